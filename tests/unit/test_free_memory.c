/* test_free_memory.c - control groups as files of both versions, and turns. */
#include "exec/free_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/control_group.h"
#include "exec/net.h"
#include "tests/check.h"

static char folder[] = P_tmpdir "/lockstep-memory-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    ASSERT(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void drop(const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static void a_group_has_room_up_to_its_limit(void)
{
    put("memory.max", "1000000\n");
    put("memory.current", "400000\n");
    CHECK_U64(600000, control_group_room(folder, 2));
    put("memory.stat", "anon 300000\ninactive_file 100000\nactive_file 7\n");
    CHECK_U64(700000, control_group_room(folder, 2));
    put("memory.current", "1200000\n");
    CHECK_U64(0, control_group_room(folder, 2));
    put("memory.max", "max\n");
    CHECK_U64(NONE_U64, control_group_room(folder, 2));
    CHECK_U64(NONE_U64, control_group_room(folder, 1));
    put("memory.limit_in_bytes", "1000000\n");
    put("memory.usage_in_bytes", "400000\n");
    put("memory.stat", "inactive_file 5\ntotal_inactive_file 100000\n");
    CHECK_U64(700000, control_group_room(folder, 1));
}

static void a_group_has_processors_up_to_its_quota(void)
{
    CHECK_U64(NONE_U64, control_group_processors(folder, 2));
    put("cpu.max", "max 100000\n");
    CHECK_U64(NONE_U64, control_group_processors(folder, 2));
    put("cpu.max", "150000 100000\n");
    CHECK_U64(2, control_group_processors(folder, 2));
    CHECK_U64(NONE_U64, control_group_processors(folder, 1));
    put("cpu.cfs_quota_us", "-1\n");
    put("cpu.cfs_period_us", "100000\n");
    CHECK_U64(NONE_U64, control_group_processors(folder, 1));
    put("cpu.cfs_quota_us", "400000\n");
    CHECK_U64(4, control_group_processors(folder, 1));
    CHECK(control_groups_least("cpu", control_group_processors) > 0);
    CHECK_U64(control_groups_digest(), control_groups_digest());
}

static void there_is_memory(void)
{
    CHECK(free_memory_bytes() > 0);
}

/* A child has the turn for 100 ms. */
static void one_process_takes_at_a_time(void)
{
    int ready[2];
    ASSERT(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        int turn = free_memory_enter();
        ssize_t n = write(ready[1], "", 1);
        net_sleep_ns(100000000);
        free_memory_leave(turn);
        _exit(n == 1 ? 0 : 1);
    }
    char byte;
    int status;
    CHECK_INT(1, read(ready[0], &byte, 1));
    int64_t start_ns = net_now_ns();
    int turn = free_memory_enter();
    CHECK(net_now_ns() - start_ns > 50000000);
    free_memory_leave(turn);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    ASSERT(mkdtemp(folder));
    RUN(a_group_has_room_up_to_its_limit);
    RUN(a_group_has_processors_up_to_its_quota);
    RUN(there_is_memory);
    RUN(one_process_takes_at_a_time);
    static const char *const names[] = { "memory.max",
                                         "memory.current",
                                         "memory.stat",
                                         "memory.limit_in_bytes",
                                         "memory.usage_in_bytes",
                                         "cpu.max",
                                         "cpu.cfs_quota_us",
                                         "cpu.cfs_period_us" };
    for (size_t i = 0; i < ARRAY_N(names); i++)
        drop(names[i]);
    rmdir(folder);
    return check_report();
}
