/*
 * planner.c - tries the candidates: weighs them, simulates the promising, sorts, looks again.
 *
 *     one strategy at one split, micro-batches ascending: one task of the pool
 *       family (recompute none, selective, full):
 *         lower bound above the GPU?  --> PLAN_ABOVE_BOUND     no graph is built
 *         too large with a smaller micro-batch?  --> PLAN_TOO_LARGE     no graph is built
 *         build_graph of a few micro-batches, memory_of_role: too large?  --> PLAN_TOO_LARGE
 *         sim_bound  --> PLAN_TOO_SLOW until simulated; the rest of the family PLAN_NEEDLESS
 *     rounds, by rising bound: build_graph, sim_run, collapsed  --> PLAN_SIMULATED
 *
 * A candidate's results are its own and a round has a size of its own, so the order of
 * threads changes nothing; the sort breaks ties by memory, then by the order in which
 * candidates were made.
 */
#include "sim/planner.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/build.h"
#include "sim/pool.h"
#include "sim/progress.h"
#include "sim/shorten.h"
#include "sim/texts.h"

const char *const plan_objective_names[PLAN_OBJECTIVE_N] = { "time", "cost", "gpus" };

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- one candidate ---- */

static uint64_t largest_gpu(const Machine *m)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->types_n; i++)
        bytes = max_u64(bytes, m->types[i].gpu->memory_bytes);
    return bytes;
}

static void keep(PlanCandidate *c, const Report *r)
{
    c->fate = r->fits ? PLAN_SIMULATED : PLAN_TOO_LARGE;
    c->step_s = r->step_time_s;
    c->exposed_s = r->times.exposed_comm_s;
    c->bubble_s = r->times.bubble_s;
    c->samples_per_s = r->samples_per_s;
    c->tokens_per_s = r->has_tokens ? r->tokens_per_s : NAN;
    c->mfu = r->rates.mfu;
    c->cost_usd = r->cost_usd_per_step;
}

/* WHOLE: collapsed with all micro-batches, as sim does. */
typedef enum Depth { WEIGHED, BOUNDED, COLLAPSED, WHOLE, EXPANDED } Depth;

/* A step that leapt over micro-batches is off by so much: it may be below a bound of it. */
static const double bound_slack = 0.005;

enum { ROUND = 16 };

/* One way to try a candidate: its scenario, perhaps of fewer micro-batches than are meant. */
typedef struct Try {
    Scenario s;
    Depth depth;
    uint32_t left_out, stride;
    bool unsteady; /* more micro-batches are needed to know */
} Try;

static void try_graph(const Plan *p, PlanCandidate *c, Try *t, Report *kept, const Graph *g,
                      Err *err)
{
    SimResult result = { 0 };
    Report report = { 0 };
    SimOptions options = { .expanded = t->depth == EXPANDED,
                           .totals = !kept,
                           .left_out = t->left_out,
                           .stride = t->stride };
    RoleMemory *memory = mem_zero(g->roles_n + 1, sizeof *memory);
    for (uint32_t i = 0; i < g->roles_n; i++)
        memory[i] = memory_of_role(g, &g->roles[i], NULL);
    if (c->known < PLAN_RESERVED || kept)
        plan_weigh(c, p, g, &t->s.machine, memory, t->depth == WEIGHED || kept);
    if (c->need_bytes > c->gpu_bytes) {
        c->fate = PLAN_TOO_LARGE;
    } else if (t->depth == WEIGHED) {
        /* that is all */
    } else if (t->depth == BOUNDED) {
        double ns;
        c->fate = PLAN_TOO_SLOW;
        if (sim_bound(&ns, g, &t->s.machine, &p->sw, t->left_out, err))
            c->bound_s = ns / 1e9;
    } else if (sim_run(&result, g, &t->s.machine, &p->sw, &options, err)) {
        t->unsteady = result.repeated != t->left_out;
        if (!t->unsteady) {
            report_fill(&report, &t->s, g, &result, memory, 0);
            if (t->depth == EXPANDED) {
                c->expanded_s = report.step_time_s;
            } else {
                keep(c, &report);
                c->searched_s = t->depth == COLLAPSED ? report.step_time_s : c->searched_s;
                c->extrapolated = result.extrapolated;
            }
            if (kept)
                *kept = report;
            else
                report_free(&report);
        }
    }
    sim_result_free(&result);
    free(memory);
}

/* Fills c by how deep it is asked for, with err as PLAN_REFUSED; *kept (may be NULL) is the report
 * of a simulated one, for which nothing is left out. */
static void try_candidate(const Plan *p, PlanCandidate *c, Depth depth, Report *kept, Err *err)
{
    Try t = { .s = plan_scenario(p, c), .depth = depth };
    Shortening way = shorten(&t.s);
    uint32_t meant = t.s.training.micro_batches, n = way.micro_batches;
    if (depth == BOUNDED)
        n = shorten_to_weigh(&t.s);
    if (depth >= WHOLE || depth == WEIGHED || kept)
        n = meant;
    for (t.unsteady = true; t.unsteady; n = meant) {
        Graph g = { 0 };
        t.s.training.micro_batches = n;
        t.left_out = meant - n;
        t.stride = way.stride;
        t.unsteady = false;
        bool built = build_graph(&g, &t.s, &p->sw, err);
        t.s.training.micro_batches = meant;
        if (built)
            try_graph(p, c, &t, kept, &g, err);
        graph_free(&g);
    }
    if (err->set)
        c->fate = PLAN_REFUSED;
}

/* ---- all of them ---- */

typedef struct Task {
    Plan *plan;
    uint32_t first, n; /* candidates; n 0: one alone, n: all of a split */
    Depth depth;
    ProgressPart progress;
    Err err;
} Task;

/* One that differs in having a smaller micro-batch and does not fit: fewer samples of a larger
 * micro-batch are never under way.  But where one micro-batch is the whole batch, nothing is added
 * to a gradient: that needs less. */
static const PlanCandidate *smaller_too_large(const Task *t, const PlanCandidate *c)
{
    if (t->plan->bases[c->base].training.global_batch == c->dp * c->micro_batch)
        return NULL;
    for (const PlanCandidate *a = &t->plan->candidates[t->first]; a < c; a++)
        if (a->fate == PLAN_TOO_LARGE && a->recompute == c->recompute &&
            a->schedule == c->schedule && a->virtual_stages == c->virtual_stages &&
            a->sequence_parallel == c->sequence_parallel)
            return a;
    return NULL;
}

static bool is_same_split(const PlanCandidate *a, const PlanCandidate *b)
{
    return a->base == b->base && a->strategy == b->strategy && a->dp == b->dp &&
           a->tp == b->tp && a->pp == b->pp && a->cp == b->cp && a->ep == b->ep &&
           a->shard_size == b->shard_size;
}

static bool is_same_family(const PlanCandidate *a, const PlanCandidate *b)
{
    return a->micro_batch == b->micro_batch && a->schedule == b->schedule &&
           a->virtual_stages == b->virtual_stages &&
           a->sequence_parallel == b->sequence_parallel;
}

static void run_split(Task *t)
{
    bool fits = false;
    for (uint32_t i = t->first; i < t->first + t->n; i++) {
        PlanCandidate *c = &t->plan->candidates[i];
        const PlanCandidate *smaller = smaller_too_large(t, c);
        Err err = { 0 };
        fits = fits && i > t->first && is_same_family(c - 1, c);
        c->gpu_bytes = largest_gpu(&t->plan->bases[c->base].machine);
        c->need_bytes = plan_memory_bound(t->plan, c);
        if (fits) {
            c->fate = PLAN_NEEDLESS;
        } else if (c->need_bytes > c->gpu_bytes) {
            c->fate = PLAN_ABOVE_BOUND;
        } else if (smaller) {
            c->fate = PLAN_TOO_LARGE;
            c->need_bytes = max_u64(c->need_bytes, smaller->need_bytes);
        } else {
            try_candidate(t->plan, c, t->depth, NULL, &err);
            fits = c->fate == PLAN_SIMULATED || c->fate == PLAN_TOO_SLOW;
        }
        if (err.set && !t->err.set)
            t->err = err;
    }
}

static void run_task(void *user)
{
    Task *t = user;
    if (t->n > 0)
        run_split(t);
    else
        try_candidate(t->plan, &t->plan->candidates[t->first], t->depth, NULL, &t->err);
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

static void try_splits(Plan *p)
{
    Task *tasks = mem_zero(p->n, sizeof *tasks);
    Depth depth = p->options->all ? COLLAPSED : BOUNDED;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (i == 0 || !is_same_split(&p->candidates[i - 1], &p->candidates[i]))
            tasks[n++] = (Task){ .first = i, .depth = depth };
        tasks[n - 1].n++;
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
            tasks[k] = (Task){ .first = list[at + k].candidate, .depth = COLLAPSED };
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
            if (p->candidates[i].base == b && p->candidates[i].fate == PLAN_TOO_SLOW)
                list[n++] = (Bounded){ p->candidates[i].bound_s, i };
        qsort(list, n, sizeof *list, compare_bounds);
        try_rounds(p, b, list, n);
    }
    free(list);
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
    Err ignored = { 0 };
    while (++i < p->n && is_same_split(&c[i - 1], &c[i]) && is_same_family(&c[i - 1], &c[i]) &&
           c[i].fate == PLAN_NEEDLESS) {
        try_candidate(p, &c[i], p->options->all ? COLLAPSED : BOUNDED, NULL, &ignored);
        if (c[i].fate == PLAN_SIMULATED || c[i].fate == PLAN_TOO_SLOW)
            return;
    }
}

void plan_simulate(const Plan *p, PlanCandidate *c)
{
    Err ignored = { 0 };
    if (c->fate != PLAN_SIMULATED)
        try_candidate(p, c, COLLAPSED, NULL, &ignored);
    if (c->fate == PLAN_SIMULATED && c->known < PLAN_RESERVED)
        try_candidate(p, c, WEIGHED, NULL, &ignored);
    if (c->fate == PLAN_TOO_LARGE)
        try_next_of_family(p, (uint32_t)(c - p->candidates));
}

/* True if somebody does not: then others may be among the best. */
static bool some_do_not_fit(Plan *p)
{
    Task *tasks = mem_zero(p->n, sizeof *tasks);
    Fastest *fastest = mem_zero(p->bases_n, sizeof *fastest);
    uint32_t n = 0;
    bool some = false;
    for (uint32_t b = 0; b < p->bases_n; b++)
        fastest[b] = fastest_of(p, b);
    for (uint32_t i = 0; i < p->n; i++)
        if (is_doubtful(p, &p->candidates[i], fastest))
            tasks[n++] = (Task){ .first = i, .depth = WEIGHED };
    run_tasks(p, tasks, n);
    for (uint32_t i = 0; i < n; i++)
        if (p->candidates[tasks[i].first].fate == PLAN_TOO_LARGE) {
            try_next_of_family(p, tasks[i].first);
            some = true;
        }
    free(fastest);
    free(tasks);
    return some;
}

static void try_all(Plan *p)
{
    keep_memory();
    double start_s = cpu_seconds();
    try_splits(p);
    for (bool again = true; again; start_s = cpu_seconds()) {
        try_bases(p);
        p->cpu_s += cpu_seconds() - start_s;
        again = some_do_not_fit(p);
    }
}

static void count_fates(Plan *p)
{
    memset(p->fates, 0, sizeof p->fates);
    for (uint32_t i = 0; i < p->n; i++)
        p->fates[p->candidates[i].fate]++;
}

/* ---- what is wanted ---- */

PlanRun plan_training(const Plan *p, const PlanCandidate *c)
{
    const Training *t = &p->bases[c->base].training;
    double steps = ceil(p->options->tokens / ((double)t->global_batch * t->seq_len));
    double hours = steps * c->step_s / 3600;
    return (PlanRun){ steps, hours / 24, hours * plan_gpus(c), steps * c->cost_usd };
}

double plan_score(const Plan *p, const PlanCandidate *c)
{
    switch (p->options->objective) {
    case PLAN_COST:
        return c->step_s * plan_gpus(c);
    case PLAN_FEWEST:
        return plan_gpus(c);
    default:
        return c->step_s;
    }
}

static bool is_in_time(const Plan *p, const PlanCandidate *c)
{
    const PlanOptions *o = p->options;
    return o->deadline_days <= 0 || plan_training(p, c).days <= o->deadline_days;
}

static bool is_in_budget(const Plan *p, const PlanCandidate *c)
{
    const PlanOptions *o = p->options;
    return o->budget_usd <= 0 || plan_training(p, c).cost_usd <= o->budget_usd;
}

static const Plan *sorting; /* qsort has no context; plan_run sorts on one thread */

static int compare_scores(const void *a, const void *b)
{
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const PlanCandidate *x = &sorting->candidates[i], *y = &sorting->candidates[k];
    const double by[][2] = { { plan_score(sorting, x), plan_score(sorting, y) },
                             { x->step_s, y->step_s },
                             { (double)x->need_bytes, (double)y->need_bytes },
                             { i, k } };
    for (size_t n = 0; n < ARRAY_N(by); n++)
        if (by[n][0] < by[n][1] || by[n][0] > by[n][1])
            return by[n][0] < by[n][1] ? -1 : 1;
    return 0;
}

static void sort_feasible(Plan *p)
{
    p->order_n = 0;
    p->order = PUSH_ARRAY(&p->arena, uint32_t, p->n);
    for (uint32_t i = 0; i < p->n; i++) {
        const PlanCandidate *c = &p->candidates[i];
        if (c->fate == PLAN_SIMULATED && is_in_time(p, c) && is_in_budget(p, c))
            p->order[p->order_n++] = i;
    }
    sorting = p;
    qsort(p->order, p->order_n, sizeof *p->order, compare_scores);
    sorting = NULL;
}

/* Bases are ascending, so the fastest of each, if faster than all before, are the front. */
static void find_front(Plan *p)
{
    double fastest = INFINITY;
    p->front_n = 0;
    p->front = PUSH_ARRAY(&p->arena, uint32_t, p->bases_n);
    for (uint32_t b = 0; b < p->bases_n; b++) {
        uint32_t best = NONE_U32;
        for (uint32_t i = 0; i < p->order_n; i++) {
            const PlanCandidate *c = &p->candidates[p->order[i]];
            if (c->base == b && (best == NONE_U32 || c->step_s < p->candidates[best].step_s))
                best = p->order[i];
        }
        if (best == NONE_U32 || p->candidates[best].step_s >= fastest)
            continue;
        fastest = p->candidates[best].step_s;
        p->front[p->front_n++] = best;
    }
}

/* ---- nothing is wanted ---- */

static double fullness(const PlanCandidate *c)
{
    return (double)c->need_bytes / (double)c->gpu_bytes;
}

static bool is_over(const PlanCandidate *c)
{
    return (c->fate == PLAN_ABOVE_BOUND || c->fate == PLAN_TOO_LARGE) &&
           c->need_bytes > c->gpu_bytes;
}

/* Of those of which so much is known, the one that misses by least, as far as that says. */
static PlanCandidate *least_over(const Plan *p, PlanKnown least_known, PlanKnown most_known)
{
    PlanCandidate *least = NULL;
    for (uint32_t i = 0; i < p->n; i++) {
        PlanCandidate *c = &p->candidates[i];
        if (is_over(c) && c->known >= least_known && c->known <= most_known &&
            (!least || fullness(c) < fullness(least)))
            least = c;
    }
    return least;
}

/* Who has the lowest bound is built, until that is no bound; of some that allocate least it is
 * found out what they need. */
static const PlanCandidate *closest_to_fit(Plan *p)
{
    enum { ASKED = 8 };
    Err ignored = { 0 };
    PlanCandidate *c = least_over(p, PLAN_BOUND, PLAN_RESERVED);
    for (; c && c->known == PLAN_BOUND; c = least_over(p, PLAN_BOUND, PLAN_RESERVED)) {
        c->known = PLAN_ALLOCATED; /* who is refused is not asked again */
        try_candidate(p, c, BOUNDED, NULL, &ignored);
    }
    for (int i = 0; i < ASKED && (c = least_over(p, PLAN_ALLOCATED, PLAN_ALLOCATED)); i++) {
        c->known = PLAN_RESERVED;
        try_candidate(p, c, WEIGHED, NULL, &ignored);
    }
    return least_over(p, PLAN_RESERVED, PLAN_RESERVED);
}

static bool nothing_fits(Plan *p, Err *err)
{
    char label[TEXT_CAP], need[TEXT_CAP], there[TEXT_CAP], over[TEXT_CAP];
    const PlanCandidate *c = closest_to_fit(p);
    if (!c)
        return err_set(err, "none of %" PRIu32 " candidates can be simulated: %s", p->n,
                       p->refused ? p->refused : "no reason is known");
    return err_set(err,
                   "none of %" PRIu32 " candidates fits: the closest, %.200s on %" PRIu32
                   " GPU%s, needs %s a GPU, %s are there, %s too much",
                   p->n, plan_label(label, c), plan_gpus(c), plan_gpus(c) == 1 ? "" : "s",
                   text_bytes(need, c->need_bytes), text_bytes(there, c->gpu_bytes),
                   text_bytes(over, c->need_bytes - c->gpu_bytes));
}

/* What fits is too slow or too dear. */
static bool nothing_in_limits(const Plan *p, Err *err)
{
    char label[TEXT_CAP], usd[TEXT_CAP], limit[TEXT_CAP];
    const PlanOptions *o = p->options;
    const PlanCandidate *fast = NULL, *cheap = NULL;
    for (uint32_t i = 0; i < p->n; i++) {
        const PlanCandidate *c = &p->candidates[i];
        if (c->fate != PLAN_SIMULATED)
            continue;
        if (!fast || c->step_s < fast->step_s)
            fast = c;
        if (is_in_time(p, c) && (!cheap || c->cost_usd < cheap->cost_usd))
            cheap = c;
    }
    if (!cheap)
        return err_set(err,
                       "none of %" PRIu32 " that fit is done in %g days: the fastest, %.200s "
                       "on %" PRIu32 " GPU%s, takes %.4g days",
                       p->fates[PLAN_SIMULATED], o->deadline_days, plan_label(label, fast),
                       plan_gpus(fast), plan_gpus(fast) == 1 ? "" : "s",
                       plan_training(p, fast).days);
    return err_set(err,
                   "none of %" PRIu32 " that fit costs at most %s%s: the cheapest, %.200s on "
                   "%" PRIu32 " GPU%s, costs %s",
                   p->fates[PLAN_SIMULATED], text_usd(limit, o->budget_usd),
                   o->deadline_days > 0 ? " in time" : "", plan_label(label, cheap),
                   plan_gpus(cheap), plan_gpus(cheap) == 1 ? "" : "s",
                   text_usd(usd, plan_training(p, cheap).cost_usd));
}

/* ---- the ten best again ---- */

static uint32_t top_n(const Plan *p)
{
    return p->order_n < PLAN_TOP ? p->order_n : PLAN_TOP;
}

/* Of those among them that were not yet. */
static bool try_best(Plan *p, Depth depth, Err *err)
{
    Task tasks[PLAN_TOP] = { 0 };
    uint32_t n = 0;
    for (uint32_t i = 0; i < top_n(p); i++)
        if (p->candidates[p->order[i]].expanded_s <= 0)
            tasks[n++] = (Task){ .first = p->order[i], .depth = depth };
    run_tasks(p, tasks, n);
    for (uint32_t i = 0; i < n && !err->set; i++)
        *err = tasks[i].err;
    return n > 0 && !err->set;
}

/* With all micro-batches and kernel by kernel, whoever comes among them on the way. */
static bool expand_best(Plan *p, Err *err)
{
    while (try_best(p, WHOLE, err) && try_best(p, EXPANDED, err)) {
        sort_feasible(p);
        if (p->order_n == 0)
            return nothing_in_limits(p, err);
    }
    return !err->set;
}

static int compare_expanded(const void *a, const void *b)
{
    const PlanCandidate *x = &sorting->candidates[*(const uint32_t *)a];
    const PlanCandidate *y = &sorting->candidates[*(const uint32_t *)b];
    PlanCandidate as[2] = { *x, *y };
    as[0].step_s = x->expanded_s;
    as[1].step_s = y->expanded_s;
    double by[2] = { plan_score(sorting, &as[0]), plan_score(sorting, &as[1]) };
    if (by[0] < by[1] || by[0] > by[1])
        return by[0] < by[1] ? -1 : 1;
    return x->expanded_s < y->expanded_s ? -1 : x->expanded_s > y->expanded_s;
}

/* Were they in the same order, kernel by kernel?  Notes the sentence that says so. */
static void note_order(Plan *p, const uint32_t *before, uint32_t n)
{
    uint32_t order[PLAN_TOP], i = 0;
    char was[TEXT_CAP], is[TEXT_CAP];
    if (p->order_note && !p->order_kept)
        return;
    memcpy(order, before, n * sizeof *order);
    sorting = p;
    qsort(order, n, sizeof *order, compare_expanded);
    while (i < n && compare_expanded(&order[i], &before[i]) == 0)
        i++;
    sorting = NULL;
    p->order_kept = i == n;
    p->order_note = "simulated kernel by kernel the best keep their order";
    if (p->order_kept)
        return;
    text_seconds(was, p->candidates[before[i]].expanded_s);
    text_seconds(is, p->candidates[order[i]].expanded_s);
    p->order_note = arena_printf(&p->arena,
                                 "simulated kernel by kernel the order changed: what was in "
                                 "place %" PRIu32 " takes %.40s, who belongs there %.40s",
                                 i + 1, was, is);
}

/* From here on their times are those of all micro-batches.  The best may turn out not to fit,
 * which is noted: then others are. */
static bool look_again(Plan *p, Err *err)
{
    uint32_t before[PLAN_TOP], n = top_n(p);
    memcpy(before, p->order, n * sizeof *before);
    if (!expand_best(p, err))
        return false;
    note_order(p, before, n);
    PlanCandidate best = p->candidates[p->order[0]];
    try_candidate(p, &best, WHOLE, &p->best, err);
    if (best.fate == PLAN_TOO_LARGE)
        p->candidates[p->order[0]] = best;
    return !err->set;
}

/* Explaining simulates more, to compare the best with.  True if one of them belongs among the ten
 * best, or the best itself turned out not to fit: then they are to be looked at again. */
static bool explain(Plan *p)
{
    if (p->candidates[p->order[0]].fate != PLAN_SIMULATED)
        return true;
    p->why_n = 0;
    find_front(p);
    plan_explain(p);
    count_fates(p);
    sort_feasible(p);
    for (uint32_t i = 0; i < top_n(p); i++)
        if (p->candidates[p->order[i]].expanded_s <= 0)
            return true;
    return false;
}

/* ---- the whole ---- */

bool plan_run(Plan *p, const PlanOptions *options, Err *err)
{
    *p = (Plan){ 0 };
    if (!plan_open(p, options, err) || !plan_enumerate(p, err))
        return false;
    try_all(p);
    do {
        report_free(&p->best);
        count_fates(p);
        if (p->fates[PLAN_SIMULATED] == 0)
            return nothing_fits(p, err);
        sort_feasible(p);
        if (p->order_n == 0)
            return nothing_in_limits(p, err);
        if (!look_again(p, err))
            return false;
    } while (explain(p));
    return true;
}

void plan_free(Plan *p)
{
    for (uint32_t i = 0; i < p->bases_n; i++)
        scenario_free(&p->bases[i]);
    report_free(&p->best);
    free(p->candidates);
    arena_free(&p->arena);
    *p = (Plan){ 0 };
}
