/*
 * test_number.c - f32 to and from 16 bits, against what the formats define; and how long it takes.
 */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "exec/fabric_sum.h"
#include "exec/kernel_parts.h"
#include "exec/number.h"
#include "tests/check.h"

/* ---- definitions ---- */

typedef struct Half {
    DType dtype;
    uint32_t fraction_bits, bias;
} Half;

static const Half halves[] = { { DTYPE_F16, 10, 15 }, { DTYPE_BF16, 7, 127 } };

/* (-1)^s 2^(e - bias) (1 + f), without an exponent 2^(1 - bias) f; infinity as the next one. */
static double size_of(const Half *h, uint32_t bits)
{
    int fraction = (int)(bits & ((1u << h->fraction_bits) - 1));
    int exponent = (int)(bits >> h->fraction_bits), one = 1 << h->fraction_bits;
    int scale = 1 - (int)h->bias - (int)h->fraction_bits;
    return exponent ? ldexp(one + fraction, exponent - 1 + scale) : ldexp(fraction, scale);
}

static uint32_t infinity_of(const Half *h)
{
    return 0x8000u - (1u << h->fraction_bits);
}

/* The nearest; of two as near the even one. */
static uint32_t nearest(const Half *h, double size)
{
    uint32_t low = 0, high = infinity_of(h);
    if (size >= size_of(h, high))
        return high;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (size_of(h, middle) <= size)
            low = middle;
        else
            high = middle;
    }
    double middle = (size_of(h, low) + size_of(h, high)) / 2; /* exact */
    return size < middle || (size == middle && low % 2 == 0) ? low : high;
}

static float widen(const Half *h, uint32_t bits)
{
    uint16_t half = (uint16_t)bits;
    float x;
    numbers_widen(h->dtype, &half, 1, &x);
    return x;
}

static uint32_t narrow(const Half *h, float x)
{
    uint16_t half;
    numbers_narrow(h->dtype, &x, 1, &half);
    return half;
}

static bool is_narrowed(const Half *h, float x)
{
    uint32_t sign = signbit(x) ? 0x8000 : 0, got = narrow(h, x);
    if (isnan(x))
        return (got & 0x8000) == sign && (got & 0x7fff) > infinity_of(h);
    return got == (sign | nearest(h, fabs((double)x)));
}

/* ---- tests ---- */

static void every_half_is_widened_as_defined(void)
{
    for (size_t k = 0; k < ARRAY_N(halves); k++)
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            const Half *h = &halves[k];
            uint32_t size = bits & 0x7fff;
            float x = widen(h, bits);
            CHECK_INT(bits > 0x7fff, signbit(x) != 0);
            if (size > infinity_of(h))
                CHECK(isnan(x));
            else if (size == infinity_of(h))
                CHECK(isinf(x));
            else
                CHECK((double)fabsf(x) == size_of(h, size));
        }
}

/* Each half, what lies in the middle of two, and the f32 beside them. */
static void every_boundary_is_narrowed_as_defined(void)
{
    for (size_t k = 0; k < ARRAY_N(halves); k++)
        for (uint32_t bits = 0; bits < infinity_of(&halves[k]); bits++) {
            const Half *h = &halves[k];
            double low = size_of(h, bits), middle = (low + size_of(h, bits + 1)) / 2;
            const float xs[] = { (float)low, (float)middle };
            for (size_t i = 0; i < ARRAY_N(xs); i++) {
                CHECK(is_narrowed(h, xs[i]) && is_narrowed(h, -xs[i]));
                CHECK(is_narrowed(h, nextafterf(xs[i], 0)));
                CHECK(is_narrowed(h, nextafterf(xs[i], INFINITY)));
            }
        }
}

static void drawn_bits_are_narrowed_as_defined(void)
{
    for (uint64_t i = 0; i < check_cases(400000); i++) {
        float x = f32_of_bits((uint32_t)mix_u64(i));
        for (size_t k = 0; k < ARRAY_N(halves); k++)
            CHECK(is_narrowed(&halves[k], x));
    }
    static const uint32_t ends[] = { 0,          1,          0x007fffff, 0x00800000, 0x7f7fffff,
                                     0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff };
    for (size_t i = 0; i < ARRAY_N(ends); i++)
        for (size_t k = 0; k < ARRAY_N(halves); k++) {
            CHECK(is_narrowed(&halves[k], f32_of_bits(ends[i])));
            CHECK(is_narrowed(&halves[k], f32_of_bits(ends[i] | 0x80000000)));
        }
}

/* ---- times ---- */

enum { NUMBERS_N = 1 << 16, TIMES_N = 15 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* f16: of either sign, and of sizes up to `sizes` from `first` on. */
static void draw(uint16_t *x, uint32_t first, uint32_t sizes)
{
    for (uint32_t i = 0; i < NUMBERS_N; i++)
        x[i] = (uint16_t)((first + mix_u64(i) % sizes) | (mix_u64(i + NUMBERS_N) & 0x8000));
}

/* The least of several times. */
static double sums_ns(const uint16_t *x, uint16_t *y)
{
    double least = INFINITY;
    uint8_t *to = (uint8_t *)y;
    const uint8_t *from[2] = { (const uint8_t *)x, (const uint8_t *)x };
    for (int i = 0; i < TIMES_N; i++) {
        double start_ns = now_ns();
        sum_vectors(&to, 1, from, 2, NUMBERS_N, DTYPE_F16, false);
        least = fmin(least, now_ns() - start_ns);
    }
    return least;
}

static double rounds_ns(const uint16_t *x, float *y)
{
    double least = INFINITY;
    for (int i = 0; i < TIMES_N; i++) {
        for (uint32_t k = 0; k < NUMBERS_N; k++)
            y[k] = f32_of_f16(x[k]);
        double start_ns = now_ns();
        round_to(DTYPE_F16, y, NUMBERS_N);
        least = fmin(least, now_ns() - start_ns);
    }
    return least;
}

/* f16 below 2^-14, zeros, and those of many sizes at once: what gradients are. */
static void small_and_mixed_numbers_take_no_longer(void)
{
    uint16_t *x = mem_zero(NUMBERS_N, sizeof *x), *sum = mem_zero(NUMBERS_N, sizeof *sum);
    float *wide = mem_zero(NUMBERS_N, sizeof *wide);
    static const uint32_t few[][2] = { { 0, 0x400 }, { 0, 0x800 }, { 0, 0x7c00 }, { 0, 1 } };
    draw(x, 0x3c00, 0x400);
    double sums = sums_ns(x, sum), rounds = rounds_ns(x, wide);
    for (size_t i = 0; i < ARRAY_N(few); i++) {
        draw(x, few[i][0], few[i][1]);
        CHECK(sums_ns(x, sum) < 3 * sums);
        CHECK(rounds_ns(x, wide) < 3 * rounds);
    }
    free(wide);
    free(sum);
    free(x);
}

int main(void)
{
    RUN(every_half_is_widened_as_defined);
    RUN(every_boundary_is_narrowed_as_defined);
    RUN(drawn_bits_are_narrowed_as_defined);
    RUN(small_and_mixed_numbers_take_no_longer);
    return check_report();
}
