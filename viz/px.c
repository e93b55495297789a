/*
 * px.c - moments to places without floating point.
 */
#include "viz/px.h"

Px px_between(Px a, Px b, int64_t part, int64_t whole)
{
    ASSERT(whole > 0);
    int64_t turns = part / whole, rest = part % whole;
    if (rest < 0) {
        turns--;
        rest += whole;
    }
    while (whole > (int64_t)1 << 34) {
        whole >>= 1;
        rest >>= 1;
    }
    turns = max_i64(-2 * (int64_t)PX_FAR, min_i64(2 * (int64_t)PX_FAR, turns));
    int64_t way = (int64_t)b - a, step = way * rest;
    int64_t place =
        a + way * turns + (step >= 0 ? step / whole : -((-step + whole - 1) / whole));
    return (Px)max_i64(-PX_FAR, min_i64(PX_FAR, place));
}

/* Bit by bit, from the highest: 32 rounds. */
uint64_t sqrt_u64(uint64_t x)
{
    uint64_t root = 0;
    for (uint64_t bit = (uint64_t)1 << 31; bit; bit >>= 1)
        if ((root | bit) * (root | bit) <= x)
            root |= bit;
    return root;
}
