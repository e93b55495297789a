/*
 * planner_ask.c - who answers a question best: the fastest that fits, or who misses by least.
 *
 *     known     |  simulated: step_s      fast
 *     unknown   |     bound_s     bound_s       bound_s ...     tried, from the lowest on, until
 *                                                               all are behind the fastest
 *
 * The search left most candidates out by a bound.  Who may still be the best of those that decide
 * one thing otherwise is tried now.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/planner_parts.h"

/* One whose time is not known, at least bound_s when it was listed. */
typedef struct Unknown {
    double bound_s;
    PlanCandidate *candidate;
} Unknown;

/* Whom a question is about; nobody else will be when more is known, but some no longer. */
typedef struct Asked {
    const Plan *p;
    PlanQuestion *asks;
    const PlanCandidate *best;
    PlanCandidate *fast; /* of those whose time is known; NULL: there is none */
    uint32_t n, cap, next;
    Unknown
        *unknown; /* from next on by rising bound; some may be known by now, or twice there */
} Asked;

static bool is_asked(const Asked *a, const PlanCandidate *c)
{
    return c->base == a->best->base && a->asks(c, a->best);
}

static int compare_unknown(const void *a, const void *b)
{
    const Unknown *x = a, *y = b;
    if (x->bound_s < y->bound_s || x->bound_s > y->bound_s)
        return x->bound_s < y->bound_s ? -1 : 1;
    return x->candidate < y->candidate ? -1 : x->candidate > y->candidate;
}

static void note_fast(Asked *a, PlanCandidate *c)
{
    if (c->fate != PLAN_SIMULATED || !is_asked(a, c))
        return;
    bool ties = a->fast && !(c->step_s < a->fast->step_s) && !(c->step_s > a->fast->step_s);
    if (!a->fast || c->step_s < a->fast->step_s || (ties && c < a->fast))
        a->fast = c;
}

static void find_fast(Asked *a)
{
    a->fast = NULL;
    for (uint32_t i = 0; i < a->p->n; i++)
        note_fast(a, &a->p->candidates[i]);
}

static Asked ask(const Plan *p, PlanQuestion *asks)
{
    Asked a = { .p = p, .asks = asks, .best = &p->candidates[p->order[0]] };
    find_fast(&a);
    for (uint32_t i = 0; i < p->n; i++) {
        PlanCandidate *c = &p->candidates[i];
        if (c->fate != PLAN_TOO_SLOW || !is_asked(&a, c))
            continue;
        GROW(a.unknown, a.n, a.cap);
        a.unknown[a.n++] = (Unknown){ c->bound_s, c };
    }
    if (a.n > 0)
        qsort(a.unknown, a.n, sizeof *a.unknown, compare_unknown);
    return a;
}

static void list_unknown(Asked *a, PlanCandidate *c)
{
    const Unknown u = { c->bound_s, c };
    uint32_t low = a->next, high = a->n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (compare_unknown(&a->unknown[mid], &u) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    GROW(a->unknown, a->n, a->cap);
    memmove(a->unknown + low + 1, a->unknown + low, (a->n - low) * sizeof u);
    a->unknown[low] = u;
    a->n++;
}

/* Who takes least, as far as known; NULL: there is none. */
static PlanCandidate *least_unknown(Asked *a)
{
    for (; a->next < a->n; a->next++) {
        const Unknown u = a->unknown[a->next];
        if (u.candidate->fate != PLAN_TOO_SLOW || !is_asked(a, u.candidate))
            continue;
        if (!(u.candidate->bound_s > u.bound_s))
            return u.candidate;
        list_unknown(a, u.candidate); /* with what is known of it now, behind others */
    }
    return NULL;
}

/* Candidates of a family, which stand together: more may be known of each once one was tried. */
static void look_at_family(Asked *a, PlanCandidate *c)
{
    PlanCandidate *first = plan_first_of_family(a->p, c), *end = &a->p->candidates[a->p->n];
    if (a->fast &&
        plan_is_family(a->fast, c)) /* it may not fit, or with more layers recomputed */
        find_fast(a);
    for (; first < end && plan_is_family(first, c); first++) {
        note_fast(a, first);
        if (first->fate == PLAN_TOO_SLOW && is_asked(a, first))
            list_unknown(a, first);
    }
}

/* The one that needs least, as far as known. */
static PlanCandidate *least_known(const Asked *a)
{
    PlanCandidate *least = NULL;
    for (uint32_t i = 0; i < a->p->n; i++) {
        PlanCandidate *c = &a->p->candidates[i];
        bool large = c->fate == PLAN_TOO_LARGE || c->fate == PLAN_ABOVE_BOUND;
        if (large && (!least || c->need_bytes < least->need_bytes) && is_asked(a, c))
            least = c;
    }
    return least;
}

/* And of those of which there is a bound only, and no graph, as many as are worth it are built. */
static const PlanCandidate *find_small(const Asked *a)
{
    PlanCandidate *c = least_known(a);
    for (int left = 8; left > 0 && c && c->fate == PLAN_TOO_LARGE && c->known == PLAN_BOUND;
         left--) {
        Err ignored = { 0 };
        plan_try(a->p, c, PLAN_BOUNDED, NULL, &ignored);
        c = least_known(a);
    }
    return c;
}

PlanFound plan_find(const Plan *p, PlanQuestion *asks)
{
    Asked a = ask(p, asks);
    for (bool open = true; open;) {
        PlanCandidate *c = least_unknown(&a);
        if (!c || (a.fast && c->bound_s >= a.fast->step_s))
            c = a.fast && a.fast->known < PLAN_RESERVED ? a.fast : NULL;
        open = c != NULL;
        if (open) {
            plan_simulate(p, c);
            look_at_family(&a, c);
        }
    }
    free(a.unknown);
    return (PlanFound){ a.fast, a.fast ? NULL : find_small(&a) };
}
