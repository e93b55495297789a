/* share.c - looks beside the program, above it, then where it was to be installed. */
#include "core/share.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/own_folder.h"

#ifndef LOCKSTEP_SHARE_DIR
#define LOCKSTEP_SHARE_DIR "/usr/local/share/lockstep"
#endif

enum { PATH_CAP = 4096 };

static char share_path[PATH_CAP];
static pthread_once_t share_once = PTHREAD_ONCE_INIT;

/* Some other project's scenarios/ holds no gpus/. */
static bool holds_gpus(void)
{
    char probe[PATH_CAP + 32];
    struct stat st;
    snprintf(probe, sizeof probe, "%s/gpus", share_path);
    return stat(probe, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Is DIR/scenarios it? */
static bool take_share(const char *dir)
{
    return snprintf(share_path, sizeof share_path, "%s/scenarios", dir) < PATH_CAP &&
           holds_gpus();
}

/* Cuts the last part off "/a/b"; false when nothing is left. */
static bool cut_last_part(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return false;
    *slash = '\0';
    return true;
}

static void find_share(void)
{
    const char *given = getenv("LOCKSTEP_SHARE");
    if (given && *given) {
        snprintf(share_path, sizeof share_path, "%s", given);
        return;
    }
    char exe[PATH_CAP];
    if (own_folder(exe, sizeof exe) && take_share(exe))
        return;
    if (cut_last_part(exe) && take_share(exe))
        return;
    if (!take_share(LOCKSTEP_SHARE_DIR))
        snprintf(share_path, sizeof share_path, "scenarios");
}

const char *share_dir(void)
{
    pthread_once(&share_once, find_share);
    return share_path;
}

bool share_is_there(void)
{
    share_dir();
    return holds_gpus();
}
