/* temporary.c - the folder that the environment names, as mktemp(1) takes it. */
#include "core/temporary.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

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

int temporary_open(const char *what)
{
    char path[4096];
    int fd = temporary_name(path, sizeof path, what) ? mkstemp(path) : -1;
    if (fd >= 0)
        unlink(path);
    return fd;
}

FILE *temporary_file(const char *what)
{
    int fd = temporary_open(what);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w+");
    if (fd >= 0 && !f)
        close(fd);
    return f;
}
