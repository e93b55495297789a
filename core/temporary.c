/* temporary.c - the folder that the environment names, as mktemp(1) takes it. */
#include "core/temporary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

const char *temporary_folder(void)
{
    const char *given = getenv("TMPDIR");
    return given && *given ? given : P_tmpdir;
}

bool temporary_name(char *path, size_t n, const char *what)
{
    int length = snprintf(path, n, "%s/lockstep-%s-XXXXXX", temporary_folder(), what);
    if (length >= 0 && (size_t)length < n)
        return true;
    errno = ENAMETOOLONG;
    return false;
}
