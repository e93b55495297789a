/* control_group.c - /proc/self/cgroup says which groups, /sys/fs/cgroup has their files. */
#include "exec/control_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_CAP = 4600 };

bool control_group_number(const char *folder, const char *name, const char *key, uint64_t *x)
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

/* From the group itself up to what of the hierarchy is seen here. */
static uint64_t least_upwards(const char *mount, char *group, int version, GroupLimit *limit)
{
    uint64_t least = NONE_U64;
    for (;;) {
        char folder[PATH_CAP];
        snprintf(folder, sizeof folder, "%s%s", mount, group);
        least = min_u64(least, limit(folder, version));
        char *slash = strrchr(group, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

/* Is it one of "cpu,cpuacct"?  The list ends at `end`. */
static bool lists(const char *list, const char *end, const char *controller)
{
    size_t n = strlen(controller);
    while (list < end) {
        size_t one = strcspn(list, ",:");
        if (one == n && strncmp(list, controller, n) == 0)
            return true;
        list += one + 1;
    }
    return false;
}

/* Lines are "0::/GROUP" (version 2) or "N:CONTROLLERS:/GROUP". */
uint64_t control_groups_least(const char *controller, GroupLimit *limit)
{
    char line[4096], mount[64];
    uint64_t least = NONE_U64;
    FILE *f = fopen("/proc/self/cgroup", "re");
    snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
    while (f && fgets(line, sizeof line, f)) {
        char *what = strchr(line, ':'), *group = what ? strchr(what + 1, ':') : NULL;
        if (!group)
            continue;
        line[strcspn(line, "\n")] = '\0';
        if (group == what + 1)
            least = min_u64(least, least_upwards("/sys/fs/cgroup", group + 1, 2, limit));
        else if (lists(what + 1, group, controller))
            least = min_u64(least, least_upwards(mount, group + 1, 1, limit));
    }
    if (f)
        fclose(f);
    return least;
}

/* Version 2: "QUOTA PERIOD" or "max PERIOD"; version 1: a quota of -1 is none. */
uint64_t control_group_processors(const char *folder, int version)
{
    uint64_t quota = 0, period = 0;
    char text[64] = "", path[PATH_CAP + 64];
    bool one = version == 1;
    snprintf(path, sizeof path, "%s/%s", folder, one ? "cpu.cfs_quota_us" : "cpu.max");
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(text, sizeof text, f) && text[0] >= '0' && text[0] <= '9';
    if (f)
        fclose(f);
    ok = ok && sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) == (one ? 1 : 2) &&
         (!one || control_group_number(folder, "cpu.cfs_period_us", "", &period));
    return ok && quota > 0 && period > 0 ? div_up_u64(quota, period) : NONE_U64;
}

uint64_t control_groups_digest(void)
{
    char part[4096];
    uint64_t h = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    for (size_t n; f && (n = fread(part, 1, sizeof part, f)) > 0;)
        for (size_t i = 0; i < n; i++)
            h = mix_u64(h ^ (uint8_t)part[i]);
    if (f)
        fclose(f);
    return h;
}
