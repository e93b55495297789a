/*
 * diff.c - finds pairs.
 */
#include "viz/diff.h"

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

uint64_t view_diff_twin(const ViewDiffRank *r, uint32_t side, uint64_t span)
{
    for (uint64_t i = 0; i < r->pairs_n; i++)
        if (r->pairs[i].span[side] == span)
            return r->pairs[i].span[1 - side];
    return NONE_U64;
}

uint64_t view_diff_first(const ViewDiffRank *r, const Timeline *real, int64_t from_ns)
{
    uint64_t low = 0, high = r->real_n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (real->start_ns[r->pairs[middle].span[0]] < from_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
