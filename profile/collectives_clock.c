/*
 * collectives_clock.c - how far the clocks of ranks are apart, by the ends of
 * what they did together.
 *
 * Ranks are reached from the first one over channels that they share; in each,
 * the offset between two ranks is the median of the differences of their ends.
 * The median does not mind some collectives that end unevenly.
 */
#include "profile/collectives_parts.h"

#include <stdlib.h>

#include "core/quantile.h"

enum { SAMPLES_MAX = 1024 };

/* How much later the end of a rank is than that of the rank it is compared with. */
typedef struct Late {
    uint32_t rank;
    int64_t ns;
} Late;

static int by_rank_and_value(const void *a, const void *b)
{
    const Late *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

static const CollPart *part_of_rank(const Collectives *c, const CollMatch *m, uint32_t rank)
{
    for (uint32_t i = 0; i < m->parts_n; i++)
        if (c->parts[m->part_first + i].rank == rank)
            return &c->parts[m->part_first + i];
    return NULL;
}

/* A rank of the channel whose offset is known, and whether there is one to be found. */
static uint32_t known_rank(const Collectives *c, const CollChannel *ch, bool *has_unknown)
{
    uint32_t known = NONE_U32;
    *has_unknown = false;
    for (uint64_t i = 0; i < ch->parts_n && (known == NONE_U32 || !*has_unknown); i++) {
        uint32_t rank = c->parts[ch->part_first + i].rank;
        if (!c->ranks[rank].is_aligned)
            *has_unknown = true;
        else if (known == NONE_U32)
            known = rank;
    }
    return known;
}

/* Of at most SAMPLES_MAX matches, evenly spread: that is plenty for a median. */
static uint64_t compare_ends(Late *late, const Collectives *c, const CollChannel *ch,
                             uint32_t from)
{
    uint64_t n = 0, step = div_up_u64(ch->matches_n, SAMPLES_MAX);
    for (uint64_t i = 0; i < ch->matches_n; i += step) {
        const CollMatch *m = &c->matches[ch->match_first + i];
        const CollPart *a = part_of_rank(c, m, from);
        for (uint32_t k = 0; a && k < m->parts_n; k++) {
            const CollPart *b = &c->parts[m->part_first + k];
            if (!c->ranks[b->rank].is_aligned)
                late[n++] = (Late){ b->rank, b->end_ns - a->end_ns };
        }
    }
    return n;
}

/* Gives offsets to the ranks of a channel of which one is known; true when any was new. */
static bool spread_over_channel(Collectives *c, const CollChannel *ch)
{
    bool has_unknown;
    uint32_t from = known_rank(c, ch, &has_unknown);
    if (from == NONE_U32 || !has_unknown)
        return false;
    Late *late = mem_zero(ch->parts_n, sizeof *late);
    uint64_t n = compare_ends(late, c, ch, from), end;
    qsort(late, n, sizeof *late, by_rank_and_value);
    for (uint64_t i = 0; i < n; i = end) {
        for (end = i + 1; end < n && late[end].rank == late[i].rank;)
            end++;
        CollRank *r = &c->ranks[late[i].rank];
        r->offset_ns = c->ranks[from].offset_ns + late[i + (end - i) / 2].ns;
        r->is_aligned = true;
    }
    free(late);
    return n > 0;
}

/*
 * A send ends when its data have left, a receive when they are there, so pairs are
 * only used where no group connects; what was matched without a group, where nothing else
 * does; never what may be a pipeline's.  Each island of ranks has its own zero.
 */
enum { TRUST_GROUP, TRUST_PAIR, TRUST_STREAM, TRUST_N };

static int trust_of(const CollChannel *ch)
{
    if (ch->loose || ch->matches_n == 0)
        return TRUST_N;
    if (ch->from != NONE_U32)
        return TRUST_PAIR;
    return ch->group == NONE_U32 ? TRUST_STREAM : TRUST_GROUP;
}

static void spread(Collectives *c)
{
    for (uint32_t root = 0; root < c->ranks_n; root++) {
        if (c->ranks[root].is_aligned)
            continue;
        c->ranks[root].is_aligned = true;
        for (bool changed = true; changed;) {
            changed = false;
            for (int trust = 0; trust < TRUST_N && !changed; trust++)
                for (uint32_t k = 0; k < c->channels_n; k++)
                    if (trust_of(&c->channels[k]) == trust)
                        changed |= spread_over_channel(c, &c->channels[k]);
        }
    }
}

/* How far the ends of a match are apart, without the offsets where those are applied. */
static int64_t spread_of_ends(const Collectives *c, const CollMatch *m)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint32_t i = 0; i < m->parts_n; i++) {
        const CollPart *p = &c->parts[m->part_first + i];
        int64_t end_ns = collectives_aligned_ns(c, p->rank, p->end_ns);
        low = min_i64(low, end_ns);
        high = max_i64(high, end_ns);
    }
    return high - low;
}

/* With the offsets or without, as clocks_differ says. */
static void find_residual(Collectives *c)
{
    int64_t *spreads_ns = mem_zero(c->matches_n, sizeof *spreads_ns);
    uint64_t n = 0;
    for (uint64_t i = 0; i < c->matches_n; i++)
        if (c->channels[c->matches[i].channel].from == NONE_U32)
            spreads_ns[n++] = spread_of_ends(c, &c->matches[i]);
    for (uint64_t i = 0; n == 0 && i < c->matches_n; i++)
        spreads_ns[i] = spread_of_ends(c, &c->matches[i]);
    n = n ? n : c->matches_n;
    c->residual_ns = sort_median_ns(spreads_ns, n);
    c->residual_max_ns = spreads_ns[n - 1];
    free(spreads_ns);
}

void collectives_clocks(Collectives *c)
{
    c->clocks_differ = false;
    for (uint32_t r = 0; r < c->ranks_n; r++) {
        c->ranks[r].offset_ns = 0;
        c->ranks[r].is_aligned = false;
    }
    c->clocks_compared = c->matches_n > 0;
    if (!c->clocks_compared)
        return;
    spread(c);
    find_residual(c);
    int64_t as_it_is_ns = c->residual_ns;
    for (uint32_t r = 0; r < c->ranks_n; r++)
        c->clocks_differ |= llabs(c->ranks[r].offset_ns) > CLOCK_DIFFERS_NS;
    if (!c->clocks_differ)
        return;
    find_residual(c);
    c->clocks_differ = c->residual_ns <= as_it_is_ns / 2;
    if (!c->clocks_differ)
        find_residual(c);
}
