/*
 * random.h - numbers that depend on what they are for, not on who draws them when.
 *
 * Every number has an address: a key, made of the seed, a word and a number, and
 * its index under that key.  Whoever asks, in whatever order, on whatever rank,
 * gets the same one; nothing has to be kept or passed on.
 *
 *     bits(key, i)    = mix(key + i * 0x9e3779b97f4a7c15)          mix: core/base.h, splitmix64
 *     key(s, word, n) = mix(mix(mix(s) ^ fnv1a64(word)) + n)
 *     unit(key, i)    = (bits >> 11) / 2^53                        uniform in [0, 1)
 *     normal(key, i)  : p = i / 2,  u = ((bits(key, 2p) >> 11) + 1) / 2^53,  v = unit(key, 2p + 1)
 *                       sqrt(-2 ln u) * (i even ? cos : sin)(2 pi v)      (Box and Muller)
 *
 * All in 64 bits, wrapping, and f64.  tests/parity/make_torch_golden.py has the same
 * lines in Python.
 */
#ifndef LOCKSTEP_EXEC_RANDOM_H
#define LOCKSTEP_EXEC_RANDOM_H

#include "core/base.h"

#include <math.h>

static inline uint64_t random_key(uint64_t seed, const char *word, uint64_t n)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *word; word++)
        hash = (hash ^ (uint8_t)*word) * 0x100000001b3u;
    return mix_u64(mix_u64(mix_u64(seed) ^ hash) + n);
}

static inline uint64_t random_bits(uint64_t key, uint64_t i)
{
    return mix_u64(key + i * 0x9e3779b97f4a7c15u);
}

static inline double random_unit(uint64_t key, uint64_t i)
{
    return (double)(random_bits(key, i) >> 11) * 0x1p-53;
}

/* Numbers 2 pair and 2 pair + 1. */
static inline void random_normal_pair(uint64_t key, uint64_t pair, double out[2])
{
    double u = (double)((random_bits(key, 2 * pair) >> 11) + 1) * 0x1p-53;
    double angle = 6.283185307179586 * random_unit(key, 2 * pair + 1);
    double radius = sqrt(-2 * log(u));
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

/* out[k] = number first + k. */
static inline void random_normals(uint64_t key, uint64_t first, uint64_t n, float *out)
{
    double pair[2] = { 0, 0 };
    for (uint64_t i = first; i < first + n; i++) {
        if (i == first || i % 2 == 0)
            random_normal_pair(key, i / 2, pair);
        out[i - first] = (float)pair[i % 2];
    }
}

#endif
