/* base.c - assertions and memory that does not fail. */
#include "core/base.h"

#include <stdio.h>
#include <stdlib.h>

void assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "lockstep: bug: %s (%s:%d)\n", cond, file, line);
    abort();
}

static _Noreturn void out_of_memory(size_t n, size_t size)
{
    fprintf(stderr, "lockstep: out of memory: %zu x %zu bytes asked\n", n, size);
    exit(1);
}

void *mem_zero(size_t n, size_t size)
{
    if (n == 0 || size == 0)
        n = size = 1;
    void *p = calloc(n, size);
    if (!p)
        out_of_memory(n, size);
    return p;
}

void *mem_resize(void *p, size_t n, size_t size)
{
    if (n == 0 || size == 0)
        n = size = 1;
    if (n > SIZE_MAX / size)
        out_of_memory(n, size);
    void *q = realloc(p, n * size);
    if (!q)
        out_of_memory(n, size);
    return q;
}
