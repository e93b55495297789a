/*
 * free_memory.c - /proc/meminfo, control groups from this process's up to the root, and a turn
 * that is a name which one socket can have.
 */
#include "exec/free_memory.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "exec/net.h"

enum { PATH_CAP = 4600, TURN_S = 20 };

/* ---- free ---- */

/* The number behind `key` at the start of a line of the file, "" being the first line. */
static bool number_in(const char *folder, const char *name, const char *key, uint64_t *x)
{
    char path[PATH_CAP + 64], line[256];
    bool found = false;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, key, strlen(key)) == 0 &&
                sscanf(line + strlen(key), "%" SCNu64, x) == 1;
    if (f)
        fclose(f);
    return found;
}

/* Pages of files that were read count as used, but go when they are in the way. */
uint64_t control_group_room(const char *folder, int version)
{
    bool two = version == 2;
    uint64_t limit, used, files = 0;
    if (!number_in(folder, two ? "memory.max" : "memory.limit_in_bytes", "", &limit) ||
        !number_in(folder, two ? "memory.current" : "memory.usage_in_bytes", "", &used))
        return NONE_U64; /* "max", or not there */
    number_in(folder, "memory.stat", two ? "inactive_file " : "total_inactive_file ", &files);
    used -= min_u64(used, files);
    return limit > used ? limit - used : 0;
}

/* From the group itself up to what of the hierarchy is seen here. */
static uint64_t room_upwards(const char *mount, char *group, int version)
{
    uint64_t room = NONE_U64;
    for (;;) {
        char folder[PATH_CAP];
        snprintf(folder, sizeof folder, "%s%s", mount, group);
        room = min_u64(room, control_group_room(folder, version));
        char *slash = strrchr(group, '/');
        if (!slash)
            return room;
        *slash = '\0';
    }
}

/* Lines are "0::/GROUP" (version 2) or "N:memory:/GROUP". */
static uint64_t control_groups_room(void)
{
    char line[4096];
    uint64_t room = NONE_U64;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        char *what = strchr(line, ':'), *group = what ? strchr(what + 1, ':') : NULL;
        if (!group)
            continue;
        line[strcspn(line, "\n")] = '\0';
        if (group == what + 1)
            room = min_u64(room, room_upwards("/sys/fs/cgroup", group + 1, 2));
        else if (strncmp(what, ":memory:", 8) == 0)
            room = min_u64(room, room_upwards("/sys/fs/cgroup/memory", group + 1, 1));
    }
    if (f)
        fclose(f);
    return room;
}

uint64_t free_memory_bytes(void)
{
    uint64_t kib;
    bool known = number_in("/proc", "meminfo", "MemAvailable:", &kib);
    return min_u64(known ? kib * KIB : NONE_U64, control_groups_room());
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
