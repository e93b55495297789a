/*
 * diff.c - finds pairs.
 */
#include "viz/diff.h"

#include <stdlib.h>

const ViewDiffRank *view_diff_rank(const ViewDiff *d, uint32_t real_rank)
{
    for (uint32_t i = 0; i < d->ranks_n; i++)
        if (d->ranks[i].rank[0] == real_rank)
            return &d->ranks[i];
    return NULL;
}

int64_t view_diff_shift_ns(const ViewDiffRank *r)
{
    return r->begin_ns[1] - r->begin_ns[0];
}

const ViewPair *view_diff_pair(const ViewDiffRank *r, uint32_t side, uint64_t span)
{
    for (uint64_t i = 0; i < r->pairs_n; i++)
        if (r->pairs[i].span[side] == span)
            return &r->pairs[i];
    return NULL;
}

/* ---- what is drawn ---- */

static int by_moment(const void *a, const void *b)
{
    const ViewDrift *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    return (x->late_ns > y->late_ns) - (x->late_ns < y->late_ns);
}

void view_diff_index(ViewDiffRank *r, const Timeline *real, Arena *arena)
{
    r->reach_ns = PUSH_ARRAY(arena, int64_t, r->real_n + 1);
    r->drift = PUSH_ARRAY(arena, ViewDrift, r->real_n + 1);
    r->drift_n = 0;
    r->drift_max_ns = 0;
    for (uint64_t i = 0; i < r->real_n; i++) {
        const ViewPair *pair = &r->pairs[i];
        int64_t end_ns = real->start_ns[pair->span[0]] + real->dur_ns[pair->span[0]];
        r->reach_ns[i] = i ? max_i64(end_ns, r->reach_ns[i - 1]) : end_ns;
        if (pair->span[1] == NONE_U64)
            continue;
        int64_t late_ns = pair->end_ns[1] - r->begin_ns[1] - (pair->end_ns[0] - r->begin_ns[0]);
        r->drift[r->drift_n++] = (ViewDrift){ pair->end_ns[0], late_ns };
        r->drift_max_ns = max_i64(r->drift_max_ns, late_ns < 0 ? -late_ns : late_ns);
    }
    qsort(r->drift, r->drift_n, sizeof *r->drift, by_moment);
}

uint64_t view_diff_first(const ViewDiffRank *r, int64_t from_ns)
{
    uint64_t low = 0, high = r->real_n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (r->reach_ns[middle] <= from_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t view_drift_first(const ViewDiffRank *r, int64_t from_ns)
{
    uint64_t low = 0, high = r->drift_n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (r->drift[middle].at_ns <= from_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low - (low > 0);
}
