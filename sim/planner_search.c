/*
 * planner_search.c - tries the candidates: weighs them, simulates the promising.
 *
 *     each: what its work takes and keeps at least (planner_work.c; who recomputes more: when less
 *     does not say enough)  --> PLAN_TOO_SLOW until more is known
 *     those of little work, then of more, while they may be among the ten best:
 *       one strategy at one split, micro-batches ascending: one task of the pool
 *         family (recompute none, selective, some layers, full):
 *           lower bound above the GPU?  --> PLAN_ABOVE_BOUND, PLAN_TOO_LARGE     no graph is built
 *           too large with a smaller micro-batch, of which fewer samples are under way?
 *                                                --> PLAN_TOO_LARGE     no graph is built
 *           build_graph of a few micro-batches, memory_of_role: too large?  --> PLAN_TOO_LARGE
 *           sim_bound  --> PLAN_TOO_SLOW until simulated; the rest of the family PLAN_NEEDLESS
 *       rounds, by rising bound: build_graph, sim_run, collapsed  --> PLAN_SIMULATED
 *     the same with the micro-batches between, around the ten best, until there are none
 *
 * A candidate's results are its own and a round has a size of its own, so the order of
 * threads changes nothing.
 */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "sim/planner_parts.h"
#include "sim/pool.h"
#include "sim/progress.h"

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A step that leapt over micro-batches is off by so much: it may be below a bound of it. */
static const double bound_slack = 0.005;

enum { ROUND = 16 };

typedef struct Task {
    Plan *plan;
    PlanWork *work;        /* to be timed; NULL: candidates are tried */
    uint32_t first, n;     /* candidates; n 0: one alone, n: all of a split */
    const double *limit_s; /* of a split: by base, those with a higher bound can wait */
    PlanDepth depth;
    ProgressPart progress;
    Err err;
} Task;

/* Are more samples under way with larger micro-batches?  Not where all of the batch is with either,
 * and then gradients of which no other is added, or chunks that take turns but once, need less. */
static bool holds_more(const Plan *p, const PlanCandidate *c)
{
    bool all = c->schedule == SCHEDULE_GPIPE || c->schedule == SCHEDULE_NAIVE;
    return !all && plan_micro_batches(p, c) > schedule_fill(c->schedule, c->pp);
}

/* One that differs in having a smaller micro-batch, and does not fit; those that refine added stand
 * behind all others, smaller or not. */
static const PlanCandidate *smaller_too_large(const Task *t, const PlanCandidate *c)
{
    if (!holds_more(t->plan, c))
        return NULL;
    for (const PlanCandidate *a = &t->plan->candidates[t->first]; a < c; a++)
        if (a->fate == PLAN_TOO_LARGE && a->micro_batch < c->micro_batch &&
            a->recompute == c->recompute && a->schedule == c->schedule &&
            a->virtual_stages == c->virtual_stages &&
            a->sequence_parallel == c->sequence_parallel && plan_same_share(a, c))
            return a;
    return NULL;
}

/* By a lower bound; false: that is not above the GPU. */
static bool settle_by_bound(const Plan *p, PlanCandidate *c)
{
    if (c->need_bytes <= c->gpu_bytes)
        return false;
    c->fate = plan_memory_bound(p, c) > c->gpu_bytes ? PLAN_ABOVE_BOUND : PLAN_TOO_LARGE;
    c->untried = false;
    return true;
}

/* By what is known without a graph; false: nothing is. */
static bool settle(const Task *t, PlanCandidate *c)
{
    if (settle_by_bound(t->plan, c))
        return true;
    const PlanCandidate *smaller = smaller_too_large(t, c);
    if (!smaller)
        return false;
    c->fate = PLAN_TOO_LARGE;
    c->need_bytes = max_u64(c->need_bytes, smaller->need_bytes);
    c->untried = false;
    return true;
}

static void call_needless(PlanCandidate *c)
{
    c->fate = PLAN_NEEDLESS;
    c->untried = false;
}

static bool seems_to_fit(const PlanCandidate *c)
{
    return !c->untried && (c->fate == PLAN_SIMULATED || c->fate == PLAN_TOO_SLOW);
}

/* Does one of its family that recomputes less seem to fit? */
static bool less_fits(const Plan *p, const PlanCandidate *c)
{
    bool fits = false;
    for (const PlanCandidate *a = c; a > p->candidates && plan_is_family(a - 1, c) && !fits;)
        fits = seems_to_fit(--a) && plan_recomputes_less(a, c);
    return fits;
}

static void run_split(Task *t)
{
    for (uint32_t i = t->first; i < t->first + t->n; i++) {
        PlanCandidate *c = &t->plan->candidates[i];
        Err err = { 0 };
        if (c->untried && less_fits(t->plan, c))
            call_needless(c);
        else if (c->untried && !settle(t, c) && c->bound_s <= t->limit_s[c->base])
            plan_try_fewest(t->plan, c, t->depth, &err);
        if (err.set && !t->err.set)
            t->err = err;
    }
}

static void run_task(void *user)
{
    Task *t = user;
    if (t->work)
        plan_time_work(t->plan, t->work);
    else if (t->n > 0)
        run_split(t);
    else
        plan_try_fewest(t->plan, &t->plan->candidates[t->first], t->depth, &t->err);
    progress_end(&t->progress);
}

static void run_tasks(Plan *p, Task *tasks, uint32_t n)
{
    Pool pool;
    Progress progress;
    if (p->options->shows_progress)
        progress_open(&progress);
    else
        progress_open_on(&progress, -1, 0, 0);
    progress_expect(&progress, n);
    pool_open(&pool, p->options->jobs);
    for (uint32_t i = 0; i < n; i++) {
        tasks[i].plan = p;
        tasks[i].progress.of = &progress;
        pool_add(&pool, run_task, &tasks[i]);
    }
    pool_close(&pool);
    progress_close(&progress);
}

/* Every candidate takes and gives back the same megabytes: they are not to go back to the
 * system each time, which would have to clear them again. */
static void keep_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

static void note_refused(Plan *p, const Task *tasks, uint32_t n)
{
    for (uint32_t i = 0; i < n && !p->refused; i++)
        if (tasks[i].err.set)
            p->refused = arena_strdup(&p->arena, tasks[i].err.text);
}

static uint64_t largest_gpu(const Machine *m)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->types_n; i++)
        bytes = max_u64(bytes, m->types[i].gpu->memory_bytes);
    return bytes;
}

/* From the first on: each has at least its parameters. */
static void open_candidates(Plan *p, uint32_t first)
{
    for (uint32_t i = first; i < p->n; i++) {
        PlanCandidate *c = &p->candidates[i];
        c->gpu_bytes = largest_gpu(&p->bases[c->base].machine);
        c->need_bytes = plan_memory_bound(p, c);
        c->work = c->again = NONE_U32;
        c->untried = true;
        c->fate = PLAN_TOO_SLOW;
    }
}

static bool leads_family(const Plan *p, uint32_t i)
{
    const PlanCandidate *c = &p->candidates[i];
    return i == 0 || !plan_is_family(c - 1, c);
}

/* True where that says more than was known.  Where all that fit are wanted, time rules nobody
 * out. */
static bool bound_by_work(const Plan *p, PlanCandidate *c)
{
    double bound_s = c->bound_s;
    uint64_t need_bytes = c->need_bytes;
    if (c->known == PLAN_BOUND && plan_seeks_layers(p, c))
        plan_raise_layers(p, c);
    if (!p->options->all)
        c->bound_s = fmax(c->bound_s, plan_work_bound(p, c));
    if (c->known == PLAN_BOUND)
        c->need_bytes = max_u64(c->need_bytes, plan_work_memory(p, c));
    return c->bound_s > bound_s || c->need_bytes > need_bytes;
}

/* And at least its work; who recomputes more takes longer.  fresh: works that were just timed. */
static void bound_by_works(Plan *p, const bool *fresh)
{
    for (uint32_t i = 0; i < p->n; i++) {
        PlanCandidate *c = &p->candidates[i];
        bool again = c->again != NONE_U32 && fresh[c->again];
        if (c->work != NONE_U32 && (fresh[c->work] || again))
            bound_by_work(p, c);
        for (uint32_t k = i; !leads_family(p, k); k--)
            if (plan_recomputes_less(&p->candidates[k - 1], c))
                c->bound_s = fmax(c->bound_s, p->candidates[k - 1].bound_s);
    }
}

/* Times works of candidates that are to be tried, of which NULL asks for the first of each family;
 * false: all are timed. */
static bool time_works(Plan *p, const double *limit_s)
{
    Task *tasks = mem_zero(p->works_n + 1, sizeof *tasks);
    bool *fresh = mem_zero(p->works_n + 1, sizeof *fresh);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const PlanCandidate *c = &p->candidates[i];
        bool asked =
            limit_s ? c->untried && c->bound_s <= limit_s[c->base] : leads_family(p, i);
        const uint32_t works[] = { c->work, c->again };
        for (size_t k = 0; k < ARRAY_N(works) && asked; k++) {
            if (works[k] == NONE_U32 || p->works[works[k]].timed || fresh[works[k]])
                continue;
            fresh[works[k]] = true;
            tasks[n++].work = &p->works[works[k]];
        }
    }
    run_tasks(p, tasks, n);
    if (n > 0)
        bound_by_works(p, fresh);
    free(fresh);
    free(tasks);
    return n > 0;
}

/* May a graph have to be built? */
static bool is_long(const Task *t)
{
    bool is = false;
    for (uint32_t i = t->first; i < t->first + t->n && !is; i++) {
        const PlanCandidate *c = &t->plan->candidates[i];
        is = c->untried && c->bound_s <= t->limit_s[c->base];
    }
    return is;
}

/* limit_s: by base; those with a higher bound can wait. */
static void try_splits(Plan *p, const double *limit_s)
{
    Task *tasks = mem_zero((size_t)p->n + 1, sizeof *tasks);
    PlanDepth depth = p->options->all ? PLAN_COLLAPSED : PLAN_BOUNDED;
    uint32_t n = 0;
    for (uint32_t i = 0, end; i < p->n; i = end) {
        for (end = i + 1;
             end < p->n && plan_same_split(&p->candidates[i], &p->candidates[end]);)
            end++;
        tasks[n] =
            (Task){ .plan = p, .first = i, .n = end - i, .limit_s = limit_s, .depth = depth };
        if (is_long(&tasks[n]))
            n++;
        else
            run_split(&tasks[n]);
    }
    run_tasks(p, tasks, n);
    note_refused(p, tasks, n);
    free(tasks);
}

typedef struct Bounded {
    double bound_s;
    uint32_t candidate;
} Bounded;

static int compare_bounds(const void *a, const void *b)
{
    const Bounded *x = a, *y = b;
    if (x->bound_s < y->bound_s || x->bound_s > y->bound_s)
        return x->bound_s < y->bound_s ? -1 : 1;
    return x->candidate < y->candidate ? -1 : x->candidate > y->candidate;
}

/* The times of the PLAN_TOP fastest so far, rising. */
typedef struct Fastest {
    uint32_t n;
    double step_s[PLAN_TOP];
} Fastest;

static void note_time(Fastest *f, double step_s)
{
    uint32_t at = f->n < PLAN_TOP ? f->n++ : PLAN_TOP;
    for (; at > 0 && step_s < f->step_s[at - 1]; at--)
        if (at < PLAN_TOP)
            f->step_s[at] = f->step_s[at - 1];
    if (at < PLAN_TOP)
        f->step_s[at] = step_s;
}

static bool may_be_among(const Fastest *f, double bound_s)
{
    return f->n < PLAN_TOP || bound_s * (1 - bound_slack) <= f->step_s[PLAN_TOP - 1];
}

static Fastest fastest_of(const Plan *p, uint32_t base)
{
    Fastest f = { 0 };
    for (uint32_t i = 0; i < p->n; i++)
        if (p->candidates[i].base == base && p->candidates[i].fate == PLAN_SIMULATED)
            note_time(&f, p->candidates[i].step_s);
    return f;
}

/* Those of one GPU count, from the lowest bound on. */
static void try_rounds(Plan *p, uint32_t base, const Bounded *list, uint32_t n)
{
    Fastest fastest = fastest_of(p, base);
    for (uint32_t at = 0; at < n && may_be_among(&fastest, list[at].bound_s);) {
        Task tasks[ROUND] = { 0 };
        uint32_t k = 0;
        for (; k < ROUND && at + k < n && may_be_among(&fastest, list[at + k].bound_s); k++)
            tasks[k] = (Task){ .first = list[at + k].candidate, .depth = PLAN_COLLAPSED };
        run_tasks(p, tasks, k);
        note_refused(p, tasks, k);
        for (uint32_t i = at; i < at + k; i++)
            if (p->candidates[list[i].candidate].fate == PLAN_SIMULATED)
                note_time(&fastest, p->candidates[list[i].candidate].step_s);
        at += k;
    }
}

static void try_bases(Plan *p)
{
    Bounded *list = mem_zero(p->n, sizeof *list);
    for (uint32_t b = 0; b < p->bases_n; b++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < p->n; i++)
            if (p->candidates[i].base == b && p->candidates[i].fate == PLAN_TOO_SLOW &&
                !p->candidates[i].untried)
                list[n++] = (Bounded){ p->candidates[i].bound_s, i };
        qsort(list, n, sizeof *list, compare_bounds);
        try_rounds(p, b, list, n);
    }
    free(list);
}

bool plan_try_some(Plan *p, const uint32_t *some, uint32_t n, PlanDepth depth, Err *err)
{
    Task *tasks = mem_zero(n + 1, sizeof *tasks);
    for (uint32_t i = 0; i < n; i++)
        tasks[i] = (Task){ .first = some[i], .depth = depth };
    run_tasks(p, tasks, n);
    for (uint32_t i = 0; i < n && !err->set; i++)
        *err = tasks[i].err;
    free(tasks);
    return !err->set;
}

/* ---- do they really fit? ---- */

/* Fragmentation takes long to find out, so that only who is among the best is asked for it. */
static bool is_doubtful(const Plan *p, const PlanCandidate *c, const Fastest *fastest)
{
    if (c->fate != PLAN_SIMULATED || c->known == PLAN_RESERVED)
        return false;
    return p->options->weighs_all || may_be_among(&fastest[c->base], c->step_s);
}

/* Who recomputes more, and was not tried because this one seemed to fit. */
static void try_next_of_family(const Plan *p, uint32_t i)
{
    PlanCandidate *c = p->candidates;
    PlanDepth depth = p->options->all ? PLAN_COLLAPSED : PLAN_BOUNDED;
    Err ignored = { 0 };
    while (++i < p->n && plan_is_family(&c[i - 1], &c[i]))
        if (c[i].fate == PLAN_NEEDLESS && !less_fits(p, &c[i]))
            plan_try_fewest(p, &c[i], depth, &ignored);
}

/* By its work, which may have been timed for another; true where that says more than was known. */
static bool learn_from_work(const Plan *p, PlanCandidate *c)
{
    if (!c->untried || c->work == NONE_U32)
        return false;
    const uint32_t works[] = { c->work, c->again };
    for (size_t k = 0; k < ARRAY_N(works); k++)
        if (works[k] != NONE_U32 && !p->works[works[k]].timed)
            plan_time_work(p, &p->works[works[k]]);
    return bound_by_work(p, c);
}

/* One that was untried, and of its family who recomputes less and may fit as well. */
static void try_family(const Plan *p, PlanCandidate *c)
{
    Err ignored = { 0 };
    PlanCandidate *first = plan_first_of_family(p, c), *end = &p->candidates[p->n];
    for (; first < end && plan_is_family(first, c); first++) {
        learn_from_work(p, first);
        if (first->untried && less_fits(p, first))
            call_needless(first);
        else if (first->untried && !settle_by_bound(p, first))
            plan_try_fewest(p, first, PLAN_BOUNDED, &ignored);
    }
}

void plan_simulate(const Plan *p, PlanCandidate *c)
{
    Err ignored = { 0 };
    if (learn_from_work(p, c))
        return;
    if (c->untried) {
        try_family(p, c);
        return;
    }
    if (c->fate != PLAN_SIMULATED)
        plan_try_fewest(p, c, PLAN_COLLAPSED, &ignored);
    if (c->fate == PLAN_SIMULATED && c->known < PLAN_RESERVED)
        plan_try_fewest(p, c, PLAN_WEIGHED, &ignored);
    if (c->fate == PLAN_TOO_LARGE)
        try_next_of_family(p, (uint32_t)(c - p->candidates));
}

/* Of one that seemed to fit: it does not, or only with more layers recomputed, in more time. */
static bool misses(Plan *p, const Task *t, uint32_t layers)
{
    const PlanCandidate *c = &p->candidates[t->first];
    if (c->fate == PLAN_TOO_LARGE)
        try_next_of_family(p, t->first);
    return c->fate != PLAN_SIMULATED || c->recompute_layers != layers;
}

/* True if somebody does not: then others may be among the best. */
static bool some_do_not_fit(Plan *p)
{
    Task *tasks = mem_zero(p->n, sizeof *tasks);
    uint32_t *layers = mem_zero(p->n, sizeof *layers);
    Fastest *fastest = mem_zero(p->bases_n, sizeof *fastest);
    uint32_t n = 0;
    bool some = false;
    for (uint32_t b = 0; b < p->bases_n; b++)
        fastest[b] = fastest_of(p, b);
    for (uint32_t i = 0; i < p->n; i++) {
        if (!is_doubtful(p, &p->candidates[i], fastest))
            continue;
        layers[n] = p->candidates[i].recompute_layers;
        tasks[n++] = (Task){ .first = i, .depth = PLAN_WEIGHED };
    }
    run_tasks(p, tasks, n);
    for (uint32_t i = 0; i < n; i++)
        some |= misses(p, &tasks[i], layers[i]);
    free(fastest);
    free(layers);
    free(tasks);
    return some;
}

/* How far those that are tried next may be behind those tried so far, where ten have not been found
 * yet. */
static const double reach = 1.05;

static double least_untried(const Plan *p, uint32_t base)
{
    double least_s = INFINITY;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->candidates[i].base == base && p->candidates[i].untried)
            least_s = fmin(least_s, p->candidates[i].bound_s);
    return least_s;
}

/* Who is untried and may be among the ten best is to be tried; false: nobody is. */
static bool raise_limits(const Plan *p, double *limit_s)
{
    bool some = false;
    for (uint32_t b = 0; b < p->bases_n; b++) {
        Fastest f = fastest_of(p, b);
        double least_s = least_untried(p, b);
        if (isinf(least_s) || !may_be_among(&f, least_s))
            continue;
        double tenth_s = f.n < PLAN_TOP ? INFINITY : f.step_s[PLAN_TOP - 1] / (1 - bound_slack);
        limit_s[b] = fmax(least_s, fmin(fmax(least_s, limit_s[b]) * reach, tenth_s));
        some = true;
    }
    return some;
}

/* All that is untried, from start_s on, and who is found not to fit. */
static void search(Plan *p, double start_s)
{
    double *limit_s = mem_zero(p->bases_n, sizeof *limit_s);
    for (bool again = true; again; start_s = cpu_seconds()) {
        while (raise_limits(p, limit_s)) {
            while (time_works(p, limit_s))
                ;
            try_splits(p, limit_s);
            try_bases(p);
        }
        try_bases(p);
        p->cpu_s += cpu_seconds() - start_s;
        again = some_do_not_fit(p);
    }
    free(limit_s);
}

/* Micro-batches between those that were tried, other chunks and shares of layers, and then other
 * strategies, of the ten best; false: all of them are there. */
static bool refine(Plan *p)
{
    uint32_t first = p->n;
    for (uint32_t b = 0; b < p->bases_n; b++) {
        const Fastest fastest = fastest_of(p, b);
        for (uint32_t i = 0; i < first; i++) {
            const PlanCandidate c = p->candidates[i];
            if (c.base != b || c.fate != PLAN_SIMULATED ||
                c.step_s > fastest.step_s[fastest.n - 1])
                continue;
            plan_add_between(p, c);
            plan_add_chunks(p, c);
            plan_add_shares(p, c);
            plan_add_strategies(p, c);
        }
    }
    open_candidates(p, first);
    plan_find_works(p, first);
    return p->n > first;
}

void plan_search(Plan *p)
{
    keep_memory();
    double start_s = cpu_seconds();
    open_candidates(p, 0);
    plan_find_works(p, 0);
    time_works(p, NULL);
    do {
        search(p, start_s);
        start_s = cpu_seconds();
    } while (refine(p));
}
