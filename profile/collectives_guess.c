/*
 * collectives_guess.c - matches that were guessed, and cannot be.
 *
 *     rank 0   |== a ==|           |== b ==|        where no group is known, the n-th of all
 *     rank 1   |== a ==|           |== b ==|        ranks are taken for one collective
 *     rank 2   |== a ==|                       |== b ==|
 *     rank 3   |== a ==|                       |== b ==|     two groups: not one b, but two
 *
 * Who needs the data of all ranks cannot end before all have begun.  A channel most of whose
 * matches do is of several groups.  Its clocks are those by which the match before ended
 * everywhere at once, so that neither an offset nor a drift looks like two groups.
 *
 * Sends and receives whose peers nobody names are an exchange of all ranks (that is how NCCL does
 * an all-to-all) or a pipeline's.  The stages of a pipeline keep their distance, which then
 * passes for an offset: those are judged by the clocks that other channels gave.  So are all
 * that were guessed once one of them was wrong.
 */
#include "profile/collectives_parts.h"

#include <string.h>

static const char *const synchronous[] = { "all_reduce", "all_gather", "reduce_scatter",
                                           "all_to_all", "barrier" };

static bool is_guessed(const CollChannel *ch)
{
    return ch->group == NONE_U32 && ch->from == NONE_U32 && ch->matches_n > 0;
}

/* A send does not need its receive, but an exchange of all does. */
static bool is_synchronous(const Timeline *t, const CollPart *p)
{
    const Comm *m = timeline_comm_of(t, p->span);
    if (t->span_class[p->span] == SPAN_P2P)
        return true;
    for (size_t i = 0; m && i < ARRAY_N(synchronous); i++)
        if (strcmp(timeline_text(t, m->op), synchronous[i]) == 0)
            return true;
    return false;
}

static bool of_same_ranks(const CollPart *a, const CollPart *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i].rank == b[i].rank)
        i++;
    return i == n;
}

/* Is one over before another begins?  zero: ends of each rank that were at one time. */
static bool is_apart(const Collectives *c, const Timeline *t, const CollMatch *m,
                     const CollPart *zero)
{
    int64_t last_start_ns = INT64_MIN, first_end_ns = INT64_MAX;
    for (uint32_t i = 0; i < m->parts_n; i++) {
        const CollPart *p = &c->parts[m->part_first + i];
        int64_t end_ns =
            zero ? p->end_ns - zero[i].end_ns : collectives_aligned_ns(c, p->rank, p->end_ns);
        last_start_ns = max_i64(last_start_ns, end_ns - part_dur_ns(t, p));
        first_end_ns = min_i64(first_end_ns, end_ns);
    }
    return last_start_ns - first_end_ns > CLOCK_DIFFERS_NS;
}

/* Of its matches that can be judged, how many cannot be. */
static uint64_t count_apart(const Collectives *c, const Timeline *t, const CollChannel *ch,
                            uint64_t *judged_n)
{
    uint64_t apart_n = 0;
    *judged_n = 0;
    for (uint64_t i = 0; i < ch->matches_n; i++) {
        const CollMatch *m = &c->matches[ch->match_first + i];
        const CollPart *parts = &c->parts[m->part_first], *zero = NULL;
        if (!ch->loose) {
            zero = i > 0 ? &c->parts[m[-1].part_first] : NULL;
            if (!zero || m[-1].parts_n != m->parts_n || !of_same_ranks(parts, zero, m->parts_n))
                continue;
        }
        if (!is_synchronous(t, parts))
            continue;
        ++*judged_n;
        apart_n += is_apart(c, t, m, zero);
    }
    return apart_n;
}

/* Its kernels match nothing. */
static void unmatch(Collectives *c, CollChannel *ch)
{
    uint64_t end = ch->match_first + ch->matches_n;
    for (uint64_t i = ch->match_first; i < end; i++)
        c->unmatched_n += c->matches[i].parts_n;
    memmove(&c->matches[ch->match_first], &c->matches[end],
            (c->matches_n - end) * sizeof *c->matches);
    c->matches_n -= ch->matches_n;
    for (uint32_t k = 0; k < c->channels_n; k++)
        if (c->channels[k].match_first >= end)
            c->channels[k].match_first -= ch->matches_n;
    ch->matches_n = 0;
    ch->by = MATCH_NONE;
}

static bool refuse(Collectives *c, const Timeline *t, bool loose)
{
    bool any = false;
    for (uint32_t k = 0; k < c->channels_n; k++) {
        CollChannel *ch = &c->channels[k];
        uint64_t judged_n;
        if (!is_guessed(ch) || ch->loose != loose)
            continue;
        uint64_t apart_n = count_apart(c, t, ch, &judged_n);
        if (2 * apart_n <= judged_n)
            continue;
        char name[128];
        ch->refusal = arena_printf(
            &c->arena,
            "%s: of %" PRIu64 " collectives of all ranks %" PRIu64
            " would end on one before they begin on another: these are of several groups, "
            "which the trace does not name, not matched",
            collectives_channel_text(name, sizeof name, t, ch), judged_n, apart_n);
        unmatch(c, ch);
        any = true;
    }
    return any;
}

void collectives_refuse_guesses(Collectives *c, const Timeline *t)
{
    bool any = refuse(c, t, false);
    for (uint32_t k = 0; k < c->channels_n; k++)
        c->channels[k].loose |= any && is_guessed(&c->channels[k]);
    collectives_clocks(c);
    if (refuse(c, t, true))
        collectives_clocks(c);
}
