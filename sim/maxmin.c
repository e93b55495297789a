/* maxmin.c - progressive filling; each round retires the tightest link. */
#include "sim/maxmin.h"

#include <math.h>

void maxmin_space(MaxminSpace *space, uint32_t resources_n, Arena *arena)
{
    space->left = PUSH_ARRAY(arena, double, resources_n);
    space->load = PUSH_ARRAY(arena, double, resources_n);
    space->seen = PUSH_ARRAY(arena, bool, resources_n);
    space->touched = PUSH_ARRAY(arena, uint32_t, resources_n);
}

double maxmin_solo(const Demand *flow, const Resource *resource)
{
    double rate = INFINITY;
    for (uint32_t u = 0; u < flow->uses_n; u++)
        rate = fmin(rate,
                    resource[flow->uses[u].resource].bytes_per_ns / flow->uses[u].coefficient);
    return rate;
}

double maxmin_own(const Demand *flow, const Resource *resource)
{
    double rate = INFINITY;
    for (uint32_t u = 0; u < flow->uses_n; u++)
        rate = fmin(rate, resource[flow->uses[u].resource].bytes_per_ns / flow->uses[u].own);
    return rate;
}

static uint32_t gather(const Demand *flow, uint32_t flows_n, const Resource *resource,
                       MaxminSpace *s)
{
    uint32_t n = 0;
    for (uint32_t f = 0; f < flows_n; f++)
        for (uint32_t u = 0; u < flow[f].uses_n; u++) {
            uint32_t r = flow[f].uses[u].resource;
            if (!s->seen[r]) {
                s->seen[r] = true;
                s->left[r] = resource[r].bytes_per_ns;
                s->load[r] = 0;
                s->touched[n++] = r;
            }
            s->load[r] += flow[f].uses[u].coefficient;
        }
    return n;
}

static uint32_t tightest(const MaxminSpace *s, uint32_t touched_n, double *share)
{
    uint32_t best = NONE_U32;
    *share = INFINITY;
    for (uint32_t i = 0; i < touched_n; i++) {
        uint32_t r = s->touched[i];
        if (s->load[r] > 0 && s->left[r] / s->load[r] < *share) {
            *share = s->left[r] / s->load[r];
            best = r;
        }
    }
    return best;
}

static bool uses_link(const Demand *flow, uint32_t link)
{
    for (uint32_t u = 0; u < flow->uses_n; u++)
        if (flow->uses[u].resource == link)
            return true;
    return false;
}

static void freeze(double *rate, const Demand *flow, double share, MaxminSpace *s)
{
    *rate = share;
    for (uint32_t u = 0; u < flow->uses_n; u++) {
        uint32_t r = flow->uses[u].resource;
        s->left[r] -= share * flow->uses[u].coefficient;
        s->load[r] -= flow->uses[u].coefficient;
        /* Rounding can leave a hair; a link must not seem used or overdrawn by it. */
        if (s->load[r] < 1e-12)
            s->load[r] = 0;
        if (s->left[r] < 0)
            s->left[r] = 0;
    }
}

void maxmin_rates(double *rate, const Demand *flow, uint32_t flows_n, const Resource *resource,
                  MaxminSpace *s)
{
    uint32_t touched_n = gather(flow, flows_n, resource, s);
    for (uint32_t f = 0; f < flows_n; f++)
        rate[f] = INFINITY; /* not frozen */
    for (;;) {
        double share;
        uint32_t full = tightest(s, touched_n, &share);
        if (full == NONE_U32)
            break;
        for (uint32_t f = 0; f < flows_n; f++)
            if (isinf(rate[f]) && uses_link(&flow[f], full))
                freeze(&rate[f], &flow[f], share, s);
        s->load[full] = 0;
    }
    for (uint32_t i = 0; i < touched_n; i++)
        s->seen[s->touched[i]] = false;
}
