/*
 * base.h - what every file may assume: integer types, assertions that are
 * always on, arrays that grow, and the unit table.
 *
 * Units, everywhere in memory and on disk (they stand last in a name):
 *
 *     _ns            time, int64_t nanoseconds
 *     _bytes         sizes, uint64_t
 *     _bytes_per_ns  bandwidth, double; 1 byte/ns = 1 GB/s with GB = 10^9
 *     _flops         floating point operations, double (one multiply-add = 2)
 *     _flops_per_ns  speed, double; 1 flop/ns = 1 GFLOP/s
 *
 * ASSERT is for bugs of this program, never for what a user wrote.  Running out
 * of memory ends the program with a sentence (exit 1): no caller can go on.
 */
#ifndef LOCKSTEP_CORE_BASE_H
#define LOCKSTEP_CORE_BASE_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a command returns, and so the program's exit status. */
enum { EXIT_DONE = 0, EXIT_COULD_NOT = 1, EXIT_USAGE = 2, EXIT_CROSSED = 3 }; /* --fail-if */

#define NONE_U32 UINT32_MAX
#define NONE_U64 UINT64_MAX

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

#define ARRAY_N(a) (sizeof(a) / sizeof((a)[0]))

#define ASSERT(cond) ((cond) ? (void)0 : assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void assert_failed(const char *cond, const char *file, int line);

/* malloc that zeroes, checks the product n * size, and does not come back empty-handed. */
void *mem_zero(size_t n, size_t size);
/* realloc to n elements of size; new elements are not initialised. */
void *mem_resize(void *p, size_t n, size_t size);

/*
 * GROW(array, n, cap): make room for one more element at array[n].  Doubles; a cap that cannot
 * count so many is out of memory.
 *
 *     GROW(g->ops, g->ops_n, g->ops_cap);
 *     g->ops[g->ops_n++] = op;
 */
#define GROW(array, n, cap) \
    do { \
        if ((n) == (cap)) { \
            (cap) = (cap) ? 2 * (cap) : 16; \
            (array) = \
                mem_resize((array), (cap) > (n) ? (size_t)(cap) : SIZE_MAX, sizeof *(array)); \
        } \
    } while (0)

/* Room for n elements, fewer than are there or more.  At least doubles, where it grows. */
#define RESERVE(array, n, cap) \
    do { \
        if ((n) > (cap)) { \
            (cap) = (n) > 2 * (cap) ? (n) : 2 * (cap); \
            (array) = mem_resize((array), (size_t)(cap), sizeof *(array)); \
        } \
    } while (0)

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The greatest common divisor; of a number and 0 the number. */
static inline uint64_t gcd_u64(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t div_up_u64(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* 64-bit mixing (splitmix64's finaliser); the basis of every hash and of seeded noise. */
static inline uint64_t mix_u64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
