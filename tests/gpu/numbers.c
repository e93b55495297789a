/*
 * numbers.c - bits to doubles.
 */
#include "numbers.h"

#include <math.h>
#include <string.h>

size_t num_bytes(NumType type)
{
    switch (type) {
    case NUM_BF16:
    case NUM_F16:
        return 2;
    case NUM_F32:
    case NUM_I32:
        return 4;
    case NUM_E4M3:
        return 1;
    }
    return 0;
}

static double float_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* sign, exponent and fraction of a small format; the largest exponent is an ordinary one. */
static double small_float(uint32_t bits, int exponent_bits, int fraction_bits)
{
    uint32_t exponent = bits >> fraction_bits & ((1u << exponent_bits) - 1);
    uint32_t fraction = bits & ((1u << fraction_bits) - 1);
    int bias = (1 << (exponent_bits - 1)) - 1;
    double sign = bits >> (exponent_bits + fraction_bits) & 1 ? -1.0 : 1.0;

    if (exponent == 0)
        return sign * ldexp((double)fraction, 1 - bias - fraction_bits);
    return sign * ldexp((double)(fraction | 1u << fraction_bits),
                        (int)exponent - bias - fraction_bits);
}

static double half_bits(uint16_t bits)
{
    if ((bits & 0x7c00) == 0x7c00)
        return bits & 0x3ff ? NAN : bits & 0x8000 ? -INFINITY : INFINITY;
    return small_float(bits, 5, 10);
}

/* e4m3 has no infinity; only all ones is NaN. */
static double e4m3_bits(uint8_t bits)
{
    return (bits & 0x7f) == 0x7f ? NAN : small_float(bits, 4, 3);
}

void num_to_double(double *out, const void *in, NumType type, size_t n)
{
    const uint16_t *u16 = in;
    const uint8_t *u8 = in;
    const float *f32 = in;
    const int32_t *i32 = in;

    for (size_t i = 0; i < n; i++)
        switch (type) {
        case NUM_BF16:
            out[i] = float_bits((uint32_t)u16[i] << 16);
            break;
        case NUM_F16:
            out[i] = half_bits(u16[i]);
            break;
        case NUM_F32:
            out[i] = (double)f32[i];
            break;
        case NUM_E4M3:
            out[i] = e4m3_bits(u8[i]);
            break;
        case NUM_I32:
            out[i] = (double)i32[i];
            break;
        }
}

double num_error(const double *got, const double *want, size_t n)
{
    double diff2 = 0, want2 = 0;
    for (size_t i = 0; i < n; i++) {
        diff2 += (got[i] - want[i]) * (got[i] - want[i]);
        want2 += want[i] * want[i];
    }
    return want2 > 0 ? sqrt(diff2 / want2) : sqrt(diff2);
}
