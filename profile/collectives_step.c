/*
 * collectives_step.c - what ranks did in one step, where their windows do not agree.
 *
 *     rank 0   | 4: a b c | 5: a b c | 6: a b   |     its window ends sooner
 *     rank 1   | 4:   b c | 5: a b c | 6: a b c |     its window begins later
 *
 * By order the first a would meet the first b, and all after it as well, though both ranks
 * have eight.  Of step 5 both have three: those match, and what steps 4 and 6 have does not.
 *
 * Steps only decide where they must: as a rank may launch a kernel on either side of a mark,
 * equal counts are left to order, unless that took the clocks of ranks to be much further apart.
 */
#include "profile/collectives_parts.h"

#include <stdlib.h>
#include <string.h>

#include "core/quantile.h"

enum { CLOCK_FACTOR = 2 }; /* "much" */

static const int64_t no_step = INT64_MAX;

/* ---- steps of parts ---- */

typedef struct StepPart {
    int64_t step; /* its number, or no_step */
    uint32_t run;
    uint64_t at; /* in Runs.keyed */
} StepPart;

static const RankSteps *steps_of_rank(const GpuSteps *s, uint32_t rank)
{
    uint32_t low = 0, high = s->ranks_n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (s->ranks[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->ranks_n && s->ranks[low].rank == rank ? &s->ranks[low] : NULL;
}

/* Ops of a rank are in the order of their spans. */
static int64_t step_of_span(const RankSteps *r, uint64_t span)
{
    uint32_t low = 0, high = r->ops_n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (r->ops[middle].span < span)
            low = middle + 1;
        else
            high = middle;
    }
    ASSERT(low < r->ops_n && r->ops[low].span == span);
    return r->ops[low].step == NONE_U32 ? no_step : r->marks[r->ops[low].step].step;
}

/* False: a rank has marked no steps of its own. */
static bool find_parts(const Runs *r, const GpuSteps *s, const Covers *covers, StepPart *parts)
{
    for (uint32_t k = 0; k < r->runs_n; k++) {
        uint32_t rank = covers->rank[r->keyed[r->first[k]].part.rank].rank;
        const RankSteps *steps = steps_of_rank(s, rank);
        if (!steps || steps->marks_n == 0 || steps->marks->rank != rank)
            return false;
        for (uint64_t i = r->first[k]; i < r->first[k + 1]; i++)
            parts[i] = (StepPart){ step_of_span(steps, r->keyed[i].part.span), k, i };
    }
    return true;
}

static int by_step(const void *a_, const void *b_)
{
    const StepPart *a = a_, *b = b_;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at); /* and so by run and order */
}

/* ---- keys ---- */

/* Do so many of one step, in the order of runs, have as many of each? */
static bool is_shared(const StepPart *parts, uint64_t n, uint32_t runs_n)
{
    uint64_t each = n / runs_n;
    bool shared = n % runs_n == 0 && parts->step != no_step;
    for (uint32_t k = 0; shared && k < runs_n; k++)
        shared = parts[k * each].run == k && parts[(k + 1) * each - 1].run == k;
    return shared;
}

/* How many of a run are of steps that all runs have as many of; the others have keys of their own.
 */
static uint64_t key_shared(Runs *r, StepPart *parts)
{
    uint64_t shared_n = 0, end;
    qsort(parts, r->n, sizeof *parts, by_step);
    for (uint64_t i = 0; i < r->n; i = end) {
        for (end = i + 1; end < r->n && parts[end].step == parts[i].step;)
            end++;
        uint64_t n = end - i, each = n / r->runs_n;
        bool shared = is_shared(parts + i, n, r->runs_n);
        for (uint64_t p = 0; p < n; p++)
            r->keyed[parts[i + p].at].key =
                (int64_t)(shared ? shared_n + p % each : r->n + parts[i + p].at);
        shared_n += shared ? each : 0;
    }
    runs_sort(r);
    return shared_n;
}

/* ---- clocks ---- */

/* How far the clock of any rank would be from the first one's: medians, as collectives_clock.c. */
static int64_t furthest_clock(const Runs *r)
{
    int64_t furthest = 0, *late = mem_zero(r->n, sizeof *late);
    for (uint32_t k = 1; k < r->runs_n; k++) {
        uint64_t n = 0;
        for (uint64_t i = 0; i < run_n(r, k) && i < run_n(r, 0); i++) {
            const Keyed *a = &r->keyed[i], *b = &r->keyed[r->first[k] + i];
            if (a->key == b->key)
                late[n++] = b->part.end_ns - a->part.end_ns;
        }
        furthest = max_i64(furthest, n ? llabs(sort_median_ns(late, n)) : 0);
    }
    free(late);
    return furthest;
}

/* ---- the choice ---- */

/* As they are keyed by step; ordered: as they were. */
static bool is_better(const Runs *r, Runs ordered, uint64_t shared_n)
{
    if (shared_n == 0)
        return false;
    if (!runs_equal_counts(&ordered))
        return true;
    return shared_n < run_n(r, 0) &&
           furthest_clock(&ordered) > CLOCK_FACTOR * furthest_clock(r) + CLOCK_DIFFERS_NS;
}

bool runs_key_by_step(Runs *r, StepsAtHand *steps, const Timeline *t, const Covers *covers)
{
    if (!steps->found)
        gpu_steps_find(&steps->steps, t);
    steps->found = true;
    if (steps->steps.marks.n == 0)
        return false;
    StepPart *parts = mem_zero(r->n, sizeof *parts);
    Runs ordered = *r;
    ordered.keyed = mem_zero(r->n, sizeof *ordered.keyed);
    memcpy(ordered.keyed, r->keyed, r->n * sizeof *r->keyed);
    bool better = find_parts(r, &steps->steps, covers, parts) &&
                  is_better(r, ordered, key_shared(r, parts));
    if (!better)
        memcpy(r->keyed, ordered.keyed, r->n * sizeof *r->keyed);
    free(ordered.keyed);
    free(parts);
    return better;
}

void steps_at_hand_free(StepsAtHand *s)
{
    if (s->found)
        gpu_steps_free(&s->steps);
}
