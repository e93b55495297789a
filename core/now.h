/*
 * now.h - a clock that nobody sets, to tell how long something took.
 */
#ifndef LOCKSTEP_CORE_NOW_H
#define LOCKSTEP_CORE_NOW_H

#include <stdint.h>
#include <time.h>

/* Since some moment of this host's past; of all its processes the same. */
static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
