/*
 * free_memory.c - /proc/meminfo, control groups, and a turn that is a name which one socket can
 * have.
 */
#include "exec/free_memory.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "exec/control_group.h"
#include "exec/net.h"

enum { TURN_S = 20 };

/* ---- free ---- */

/* Pages of files that were read count as used, but go when they are in the way. */
uint64_t control_group_room(const char *folder, int version)
{
    bool two = version == 2;
    uint64_t limit, used, files = 0;
    if (!control_group_number(folder, two ? "memory.max" : "memory.limit_in_bytes", "",
                              &limit) ||
        !control_group_number(folder, two ? "memory.current" : "memory.usage_in_bytes", "",
                              &used))
        return NONE_U64; /* "max", or not there */
    control_group_number(folder, "memory.stat", two ? "inactive_file " : "total_inactive_file ",
                         &files);
    used -= min_u64(used, files);
    return limit > used ? limit - used : 0;
}

uint64_t free_memory_bytes(void)
{
    uint64_t kib;
    bool known = control_group_number("/proc", "meminfo", "MemAvailable:", &kib);
    return min_u64(known ? kib * KIB : NONE_U64,
                   control_groups_least("memory", control_group_room));
}

/* ---- turns ---- */

int free_memory_enter(void)
{
    static const char name[] = "lockstep takes memory";
    const int64_t look_ns = 1000000, until_ns = net_now_ns() + TURN_S * INT64_C(1000000000);
    struct sockaddr_un at = { .sun_family = AF_UNIX }; /* sun_path[0] stays 0: no file */
    memcpy(at.sun_path + 1, name, sizeof name - 1);
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof name);
    int turn = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    while (turn >= 0 && bind(turn, (const struct sockaddr *)&at, n) != 0 &&
           net_now_ns() < until_ns)
        net_sleep_ns(look_ns);
    return turn;
}

void free_memory_leave(int turn)
{
    if (turn >= 0)
        close(turn);
}
