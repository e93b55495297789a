/* own_folder.c - the link that the kernel keeps of every process. */
#include "core/own_folder.h"

#include <string.h>
#include <unistd.h>

bool own_folder(char *folder, size_t n)
{
    ssize_t got = readlink("/proc/self/exe", folder, n);
    bool whole = got > 0 && (size_t)got < n;
    folder[whole ? got : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    return whole && slash;
}
