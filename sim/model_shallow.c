/*
 * model_shallow.c - a model of few layers that stands for a deep one.
 *
 *     deep       0 1 2 | 3 4 5 6 7 8 ... 58 59 60     three dense layers, then all with experts
 *     shallow    0 1 2 | 3 4 5
 *     like       0 1 2   3 4 4 4 4 4 ... 4  4  5
 *
 * The first and the last have neighbours of their own.  Kinds of layers depend on their number
 * alone, so a model that is cut off behind some of them has the same ones before.
 */
#include "sim/model.h"

/* Times that what repeats is there. */
enum { TURNS = 3 };

static bool is_like(const Transformer *t, uint32_t a, uint32_t b)
{
    return transformer_window(t, a) == transformer_window(t, b) &&
           transformer_is_moe(t, a) == transformer_is_moe(t, b) &&
           transformer_is_nope(t, a) == transformer_is_nope(t, b);
}

/* From which layer on each is like the one a period later. */
static uint32_t first_of(const Transformer *t, uint32_t period)
{
    uint32_t first = t->layers - period;
    while (first > 0 && is_like(t, first - 1, first - 1 + period))
        first--;
    return first;
}

uint32_t transformer_shallow(const Transformer *t, uint32_t *like)
{
    uint32_t period = t->layers, first = 0, layers = t->layers;
    for (uint32_t p = 1; p * TURNS < layers; p++) {
        uint32_t from = first_of(t, p), rest = t->layers - from;
        if (rest < TURNS * p || from + TURNS * p + rest % p >= layers)
            continue;
        period = p;
        first = from;
        layers = from + TURNS * p + rest % p;
    }
    for (uint32_t i = 0; i < t->layers; i++) {
        uint32_t in = i < first ? 0 : (i - first) % period, left = t->layers - i;
        if (i < first + period)
            like[i] = i;
        else
            like[i] = left <= layers - first - 2 * period ? layers - left : first + period + in;
    }
    return layers;
}
