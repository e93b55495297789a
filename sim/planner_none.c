/*
 * planner_none.c - why there is no plan: none at all, or none on so many GPUs.
 *
 *     no candidate           the batch, the layers ... cannot be split so
 *     none fits              by how much the closest misses
 *     others might           why they cannot be simulated
 *     none is in the limits  how long the fastest takes, what the cheapest costs
 */
#include "sim/planner_parts.h"
#include "sim/texts.h"

bool plan_is_in_time(const Plan *p, const PlanCandidate *c)
{
    const PlanOptions *o = p->options;
    return o->deadline_days <= 0 || plan_training(p, c).days <= o->deadline_days;
}

bool plan_is_in_budget(const Plan *p, const PlanCandidate *c)
{
    const PlanOptions *o = p->options;
    return o->budget_usd <= 0 || plan_training(p, c).cost_usd <= o->budget_usd;
}

static bool is_of(const PlanCandidate *c, uint32_t base)
{
    return base == NONE_U32 || c->base == base;
}

/* ---- none fits ---- */

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
static PlanCandidate *least_over(const Plan *p, uint32_t base, PlanKnown least_known,
                                 PlanKnown most_known)
{
    PlanCandidate *least = NULL;
    for (uint32_t i = 0; i < p->n; i++) {
        PlanCandidate *c = &p->candidates[i];
        if (is_of(c, base) && is_over(c) && c->known >= least_known && c->known <= most_known &&
            (!least || fullness(c) < fullness(least)))
            least = c;
    }
    return least;
}

static void try_one(Plan *p, PlanCandidate *c, PlanDepth depth)
{
    Err err = { 0 };
    plan_try(p, c, depth, NULL, &err);
    if (err.set && !p->refused)
        p->refused = arena_strdup(&p->arena, err.text);
}

/* Of one that no graph was built of; where it seeks layers, with as many recomputed as there are,
 * which the search does not get to where parameters alone do not fit. */
static void build_one(Plan *p, PlanCandidate *c)
{
    if (plan_seeks_layers(p, c))
        c->recompute_layers = plan_layers_between(p, c);
    c->known = PLAN_ALLOCATED; /* who is refused is not asked again */
    try_one(p, c, PLAN_BOUNDED);
}

/* Who has the lowest bound is built, until that is no bound; of some that allocate least it is
 * found out what they need, which takes long: of one where other GPU counts have a plan. */
static const PlanCandidate *closest_to_fit(Plan *p, uint32_t base)
{
    enum { ASKED = 8 };
    int asked = base == NONE_U32 ? ASKED : 1;
    PlanCandidate *c = least_over(p, base, PLAN_BOUND, PLAN_RESERVED);
    for (; c && c->known == PLAN_BOUND; c = least_over(p, base, PLAN_BOUND, PLAN_RESERVED))
        build_one(p, c);
    for (; asked > 0 && (c = least_over(p, base, PLAN_ALLOCATED, PLAN_ALLOCATED)); asked--) {
        try_one(p, c, PLAN_WEIGHED);
        c->known = PLAN_RESERVED;
    }
    return least_over(p, base, PLAN_RESERVED, PLAN_RESERVED);
}

/* "the closest, ddp tp 8 ... on 8 GPUs, needs ... too much"; false: none was found to need more. */
static bool closest_text(Plan *p, uint32_t base, char *text, size_t cap)
{
    char label[TEXT_CAP], need[TEXT_CAP], there[TEXT_CAP], over[TEXT_CAP];
    const PlanCandidate *c = closest_to_fit(p, base);
    if (c)
        snprintf(text, cap,
                 "the closest, %.200s on %" PRIu32
                 " GPU%s, needs %s a GPU, %s are there, %s too much",
                 plan_label(label, c), plan_gpus(c), plan_gpus(c) == 1 ? "" : "s",
                 text_bytes(need, c->need_bytes), text_bytes(there, c->gpu_bytes),
                 text_bytes(over, c->need_bytes - c->gpu_bytes));
    return c != NULL;
}

/* Those that cannot be simulated might fit: by how much others miss is not why there is no plan. */
static bool none_fits(Plan *p, uint32_t base, uint32_t n, uint32_t refused_n, Err *err)
{
    char all[TEXT_CAP], some[TEXT_CAP], lacks[TEXT_CAP], closest[4 * TEXT_CAP];
    bool some_lack = *plan_lacks_text(p, lacks, sizeof lacks) != '\0';
    bool found = closest_text(p, base, closest, sizeof closest);
    text_number(all, n, 0);
    if (!found || !p->refused)
        refused_n = 0;
    if (!found)
        return err_set(err, "none of %s candidates can be simulated: %s", all,
                       p->refused ? p->refused : "no reason is known");
    if (refused_n == 0)
        return err_set(err, "none of %s candidates fits: %s%s%s", all, closest,
                       some_lack ? "; " : "", lacks);
    return err_set(err,
                   "none of %s candidates both fits and can be simulated: %s cannot be, the "
                   "first of them: %.300s; of the others %s%s%s",
                   all, text_number(some, refused_n, 0), p->refused, closest,
                   some_lack ? "; " : "", lacks);
}

/* ---- what fits is too slow or too dear ---- */

static bool none_in_limits(const Plan *p, uint32_t base, Err *err)
{
    char label[TEXT_CAP], usd[TEXT_CAP], limit[TEXT_CAP];
    const PlanOptions *o = p->options;
    const PlanCandidate *fast = NULL, *cheap = NULL;
    for (uint32_t i = 0; i < p->n; i++) {
        const PlanCandidate *c = &p->candidates[i];
        if (c->fate != PLAN_SIMULATED || !is_of(c, base))
            continue;
        if (!fast || c->step_s < fast->step_s)
            fast = c;
        if (plan_is_in_time(p, c) && (!cheap || c->cost_usd < cheap->cost_usd))
            cheap = c;
    }
    if (!cheap)
        return err_set(err,
                       "none that fits is done in %.7g days: the fastest, %.200s "
                       "on %" PRIu32 " GPU%s, takes %.7g days",
                       o->deadline_days, plan_label(label, fast), plan_gpus(fast),
                       plan_gpus(fast) == 1 ? "" : "s", plan_training(p, fast).days);
    return err_set(err,
                   "none that fits costs at most %s%s: the cheapest, %.200s on %" PRIu32
                   " GPU%s, costs %s",
                   text_usd(limit, o->budget_usd), o->deadline_days > 0 ? " in time" : "",
                   plan_label(label, cheap), plan_gpus(cheap), plan_gpus(cheap) == 1 ? "" : "s",
                   text_usd(usd, plan_training(p, cheap).cost_usd));
}

bool plan_is_none(Plan *p, uint32_t base, Err *err)
{
    uint32_t n = 0, fits_n = 0, refused_n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        bool is = is_of(&p->candidates[i], base);
        n += is;
        fits_n += is && p->candidates[i].fate == PLAN_SIMULATED;
        refused_n += is && p->candidates[i].fate == PLAN_REFUSED;
    }
    if (n == 0)
        return plan_has_no_split(p, base == NONE_U32 ? 0 : base, err);
    if (fits_n > 0)
        return none_in_limits(p, base, err);
    return none_fits(p, base, n, refused_n, err);
}
