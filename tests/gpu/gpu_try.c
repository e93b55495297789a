/*
 * gpu_try.c - the sentence a failing device call ends with.
 */
#include "gpu_try.h"

#include <stdint.h>
#include <stdlib.h>

_Noreturn void try_failed(const char *call, const char *why, int code, const char *file,
                          int line)
{
    fflush(stdout);
    fprintf(stderr, "gpu: %s: %s (%d) (%s:%d)\n", call, why, code, file, line);
    exit(1);
}

void *try_alloc(size_t n, size_t size)
{
    void *p = size && n > SIZE_MAX / size ? NULL : calloc(n ? n : 1, size ? size : 1);
    if (!p) {
        fprintf(stderr, "gpu: no memory for %zu elements of %zu bytes\n", n, size);
        exit(1);
    }
    return p;
}
