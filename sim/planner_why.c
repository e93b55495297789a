/*
 * planner_why.c - the decision diagram people draw, with the numbers of the candidates on it.
 *
 *     do the GPUs divide the batch? --no--> split more than it
 *     does a replica fit on one GPU? --no--> does sharding alone do? --no--> split it
 *     does it fit with room to spare? --no--> what would that cost
 *     how fast are the links?  tp in the node and beyond
 *     is it too slow?          what bubbles, recomputation, another strategy would cost
 *     do experts wait?         what pairs of micro-batches would hide
 *
 * Every sentence compares the best with the best of those that decide one thing
 * otherwise, on as many GPUs: what does not fit has bytes, what fits has times.  Who was
 * too slow to be simulated and could be the best of those is simulated now (planner_ask.c).
 */
#include "sim/planner_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/build.h"
#include "sim/texts.h"

static const char *schedule_text(char *text, size_t cap, const PlanCandidate *c)
{
    if (c->schedule == SCHEDULE_INTERLEAVED)
        snprintf(text, cap, ", interleaved %" PRIu32, c->virtual_stages);
    else if (c->schedule != SCHEDULE_1F1B && c->pp > 1)
        snprintf(text, cap, ", %s", schedule_names[c->schedule]);
    else
        snprintf(text, cap, "%s", "");
    return text;
}

/* "full", "3 layers a stage" */
static const char *recompute_text(char text[40], const PlanCandidate *c)
{
    if (c->recompute != RECOMPUTE_LAYERS)
        return recompute_names[c->recompute];
    snprintf(text, 40, "%" PRIu32 " layer%s%s", c->recompute_layers,
             c->recompute_layers == 1 ? "" : "s", c->pp > 1 ? " a stage" : "");
    return text;
}

char *plan_label(char *label, const PlanCandidate *c)
{
    const struct {
        const char *name;
        uint32_t n;
    } degrees[] = {
        { "dp", c->dp }, { "tp", c->tp }, { "pp", c->pp }, { "cp", c->cp }, { "ep", c->ep }
    };
    char schedule[40], recompute[40], groups[40] = "", share[80];
    size_t at = (size_t)snprintf(label, TEXT_CAP, "%s", strategy_names[c->strategy]);
    bool any = false;
    for (size_t i = 0; i < ARRAY_N(degrees); i++)
        if (degrees[i].n > 1) {
            at += (size_t)snprintf(label + at, TEXT_CAP - at, "%s%s %" PRIu32,
                                   any ? " x " : " ", degrees[i].name, degrees[i].n);
            any = true;
        }
    if (c->strategy == STRATEGY_HSDP)
        snprintf(groups, sizeof groups, " in groups of %" PRIu32, c->shard_size);
    at += (size_t)snprintf(
        label + at, TEXT_CAP - at, "%s%s, micro-batch %" PRIu32 ", recompute %s%s",
        c->sequence_parallel ? " sp" : "", groups, c->micro_batch, recompute_text(recompute, c),
        schedule_text(schedule, sizeof schedule, c));
    if (c->stage_layers)
        snprintf(label + at, TEXT_CAP - at, ", %s", plan_share_text(share, sizeof share, c));
    return label;
}

/* ---- whom to compare with ---- */

static bool is_replica(const PlanCandidate *c)
{
    return c->tp == 1 && c->pp == 1 && c->cp == 1;
}

static bool asks_ddp_alone(const PlanCandidate *c, const PlanCandidate *best)
{
    (void)best;
    return is_replica(c) && c->ep == 1 &&
           (c->strategy == STRATEGY_DDP || c->strategy == STRATEGY_SINGLE);
}

static bool asks_sharding_alone(const PlanCandidate *c, const PlanCandidate *best)
{
    (void)best;
    return is_replica(c) && c->strategy != STRATEGY_DDP && c->strategy != STRATEGY_SINGLE;
}

static bool same_degrees(const PlanCandidate *c, const PlanCandidate *best)
{
    return c->tp == best->tp && c->pp == best->pp && c->cp == best->cp && c->ep == best->ep;
}

/* hsdp shards what fsdp does, but over fewer ranks. */
static int compare_sharding(const PlanCandidate *a, const PlanCandidate *b)
{
    static const int level[STRATEGY_N] = {
        [STRATEGY_ZERO1] = 1, [STRATEGY_ZERO2] = 2, [STRATEGY_HSDP] = 3, [STRATEGY_FSDP] = 4
    };
    int by_strategy = level[a->strategy] - level[b->strategy];
    return by_strategy ? by_strategy
                       : (a->shard_size > b->shard_size) - (a->shard_size < b->shard_size);
}

static bool asks_less_sharding(const PlanCandidate *c, const PlanCandidate *best)
{
    return same_degrees(c, best) && compare_sharding(c, best) < 0;
}

static bool asks_more_sharding(const PlanCandidate *c, const PlanCandidate *best)
{
    return same_degrees(c, best) && compare_sharding(c, best) > 0;
}

static bool asks_more_tp(const PlanCandidate *c, const PlanCandidate *best)
{
    return c->tp > best->tp;
}

static bool asks_less_tp(const PlanCandidate *c, const PlanCandidate *best)
{
    return c->tp < best->tp;
}

static bool asks_more_pp(const PlanCandidate *c, const PlanCandidate *best)
{
    return c->pp > best->pp;
}

static bool asks_less_pp(const PlanCandidate *c, const PlanCandidate *best)
{
    return c->pp < best->pp;
}

static bool asks_less_recompute(const PlanCandidate *c, const PlanCandidate *best)
{
    return same_degrees(c, best) && c->strategy == best->strategy &&
           c->micro_batch == best->micro_batch && plan_recomputes_less(c, best) &&
           c->sequence_parallel == best->sequence_parallel;
}

static bool asks_larger_batch(const PlanCandidate *c, const PlanCandidate *best)
{
    return same_degrees(c, best) && c->strategy == best->strategy &&
           c->micro_batch > best->micro_batch;
}

static bool asks_plain_schedule(const PlanCandidate *c, const PlanCandidate *best)
{
    return same_degrees(c, best) && c->strategy == best->strategy &&
           best->schedule != SCHEDULE_1F1B && !schedule_splits(best->schedule) &&
           c->schedule == SCHEDULE_1F1B;
}

static bool asks_whole_backward(const PlanCandidate *c, const PlanCandidate *best)
{
    return schedule_splits(best->schedule) && !schedule_splits(c->schedule);
}

static bool asks_split_backward(const PlanCandidate *c, const PlanCandidate *best)
{
    return !schedule_splits(best->schedule) && schedule_splits(c->schedule);
}

static bool asks_even(const PlanCandidate *c, const PlanCandidate *best)
{
    return same_degrees(c, best) && c->strategy == best->strategy &&
           c->micro_batch == best->micro_batch && c->schedule == best->schedule &&
           c->virtual_stages == best->virtual_stages && best->stage_layers && !c->stage_layers;
}

/* With LITTLE_SPARE the best may not fit, with a tenth it should. */
static const double enough_spare = 0.1;

static double spare(const PlanCandidate *c)
{
    return 1 - (double)c->need_bytes / (double)c->gpu_bytes;
}

static bool asks_any(const PlanCandidate *c, const PlanCandidate *best)
{
    (void)c;
    (void)best;
    return true;
}

/* As if the GPU were smaller: who does not fit into that any more has those of its family that
 * recompute more tried, or more of its layers. */
static void make_smaller(const Plan *p, PlanCandidate *c)
{
    bool needless = c->fate == PLAN_NEEDLESS;
    c->gpu_bytes = plan_there_bytes(p, c->gpu_bytes);
    if (c->fate == PLAN_REFUSED || (!needless && c->need_bytes <= c->gpu_bytes))
        return;
    if (!needless && !(plan_seeks_layers(p, c) && c->fate != PLAN_TOO_LARGE)) {
        c->fate = PLAN_TOO_LARGE;
        c->untried = false;
        return;
    }
    c->fate = PLAN_TOO_SLOW;
    c->untried = true;
    c->known = PLAN_BOUND;
    c->need_bytes = plan_memory_bound(p, c);
    c->expanded_s = 0;
}

/* The fastest that leaves enough_spare; false: none does. */
static bool find_roomy(const Plan *p, PlanCandidate *found)
{
    Plan roomy = *p;
    roomy.kept_free = enough_spare;
    roomy.candidates = mem_zero(p->n, sizeof *roomy.candidates);
    memcpy(roomy.candidates, p->candidates, p->n * sizeof *roomy.candidates);
    for (uint32_t i = 0; i < p->n; i++)
        make_smaller(&roomy, &roomy.candidates[i]);
    const PlanCandidate *fast = plan_find(&roomy, asks_any).fast;
    if (fast)
        *found = *fast;
    free(roomy.candidates);
    return fast != NULL;
}

/* ---- sentences ---- */

static void say(Plan *p, const char *text)
{
    if (p->why_n < PLAN_WHY_MAX)
        p->why[p->why_n++] = arena_strdup(&p->arena, text);
}

static const char *at_least(const PlanCandidate *c)
{
    return c->known == PLAN_RESERVED ? "" : "more than ";
}

/* "ddp needs 158 GiB a GPU, 79 GiB are there" */
static void say_too_large(Plan *p, const char *what, const PlanCandidate *c, const char *so)
{
    char need[TEXT_CAP], there[TEXT_CAP], text[2 * TEXT_CAP];
    snprintf(text, sizeof text, "%s needs %s%.40s a GPU, %.40s are there: %s", what,
             at_least(c), text_bytes(need, c->need_bytes), text_bytes(there, c->gpu_bytes), so);
    say(p, text);
}

/* "tp 16 takes 1.42 s, 31.0 % more: 40 % of it exposed communication, 3 % bubbles" */
static void say_slower(Plan *p, const char *what, const PlanCandidate *c,
                       const PlanCandidate *best)
{
    char label[TEXT_CAP], time[TEXT_CAP], text[3 * TEXT_CAP];
    double more = 100 * (c->step_s / best->step_s - 1);
    snprintf(text, sizeof text,
             "%s takes %.40s (%.200s), %.1f %% %s; of it exposed communication %.1f %%, "
             "bubbles %.1f %% (best: %.1f %%, %.1f %%)",
             what, text_seconds(time, c->step_s), plan_label(label, c), fabs(more),
             more < 0 ? "less" : "more", 100 * c->exposed_s / c->step_s,
             100 * c->bubble_s / c->step_s, 100 * best->exposed_s / best->step_s,
             100 * best->bubble_s / best->step_s);
    say(p, text);
}

static void compare(Plan *p, PlanQuestion *asks, const char *what)
{
    const PlanCandidate *best = &p->candidates[p->order[0]];
    PlanFound f = plan_find(p, asks);
    if (f.fast)
        say_slower(p, what, f.fast, best);
    else if (f.small)
        say_too_large(p, what, f.small, "not possible");
}

/* GPUs that do not divide the batch leave no choice but to split more than it. */
static void explain_batch(Plan *p)
{
    char text[sizeof((Err *)0)->text + 60];
    Err err = { 0 };
    uint32_t base = p->candidates[p->order[0]].base;
    if (plan_may_replicate(p, base, &err))
        return;
    snprintf(text, sizeof text, "Replicas alone cannot use %" PRIu32 " GPUs: %s", p->gpus[base],
             err.text);
    say(p, text);
}

static void explain_fit(Plan *p)
{
    char text[2 * TEXT_CAP], need[TEXT_CAP], there[TEXT_CAP], so[TEXT_CAP];
    const PlanCandidate *best = &p->candidates[p->order[0]];
    PlanFound ddp = plan_find(p, asks_ddp_alone), sharded = plan_find(p, asks_sharding_alone);
    snprintf(so, sizeof so, "%s",
             is_replica(best) ? strategy_names[best->strategy]
             : sharded.fast   ? "it must be sharded or split"
                              : "it must be split");
    if (ddp.fast && ddp.fast != best && !is_replica(best)) {
        say_slower(p, "A whole replica on each GPU fits, but", ddp.fast, best);
    } else if (ddp.fast) {
        snprintf(text, sizeof text,
                 "A whole replica fits on each GPU: %.40s of %.40s, nothing has to be split",
                 text_bytes(need, ddp.fast->need_bytes),
                 text_bytes(there, ddp.fast->gpu_bytes));
        say(p, text);
    } else if (ddp.small) {
        say_too_large(p, "A whole replica on each GPU (ddp)", ddp.small, so);
    }
    if (sharded.fast && !is_replica(best))
        say_slower(p, "Sharding alone fits, but", sharded.fast, best);
    else if (!sharded.fast && sharded.small)
        say_too_large(p, "Sharding alone", sharded.small, "tp or pp besides");
}

/* "Only 1.12 GiB of a GPU's memory are left (1.4 %)"; an allocator in need takes the last byte. */
static const char *room_text(char text[static TEXT_CAP], const PlanCandidate *best)
{
    char left[TEXT_CAP];
    uint64_t bytes = best->gpu_bytes - best->need_bytes;
    if (bytes == 0)
        snprintf(text, TEXT_CAP, "Nothing of a GPU's memory is left");
    else
        snprintf(text, TEXT_CAP, "Only %.40s of a GPU's memory are left (%.1f %%)",
                 text_bytes(left, bytes), 100 * spare(best));
    return text;
}

/* Behind it: "the best that leaves a tenth takes 1.64 s (fsdp dp 256 ...), 4.0 % more" */
static void explain_room(Plan *p)
{
    char label[TEXT_CAP], room[TEXT_CAP], time[TEXT_CAP], so[2 * TEXT_CAP], text[3 * TEXT_CAP];
    const PlanCandidate *best = &p->candidates[p->order[0]];
    if (spare(best) >= LITTLE_SPARE)
        return;
    PlanCandidate c = { 0 };
    bool some = find_roomy(p, &c);
    double more = some ? 100 * (c.step_s / best->step_s - 1) : 0;
    snprintf(so, sizeof so, "none leaves a tenth of it");
    if (some)
        snprintf(so, sizeof so, "the best that leaves a tenth takes %.40s (%.200s), %.1f %% %s",
                 text_seconds(time, c.step_s), plan_label(label, &c), fabs(more),
                 more < 0 ? "less" : "more");
    snprintf(text, sizeof text, "%.120s, which is predicted within a few per cent: %s",
             room_text(room, best), so);
    say(p, text);
}

static void explain_tensor(Plan *p)
{
    char what[TEXT_CAP];
    const PlanCandidate *best = &p->candidates[p->order[0]];
    uint32_t node = p->bases[best->base].machine.types[0].gpus_n;
    PlanFound more = plan_find(p, asks_more_tp);
    const PlanCandidate *c = more.fast ? more.fast : more.small;
    if (c) {
        snprintf(what, sizeof what, "tp %" PRIu32 "%s", c->tp,
                 c->tp > node ? " leaves the node and" : "");
        compare(p, asks_more_tp, what);
    }
    compare(p, asks_less_tp, "The best with less tp");
}

/* The best in pairs that hide all-to-alls (schedule.h): its step, and whether it fits; false: it
 * does so anyway, or its stack cannot. */
static bool try_pairs(const Plan *p, const PlanCandidate *best, double *step_s, bool *fits)
{
    Scenario s = plan_scenario(p, best);
    const Build b = { .s = &s, .sw = &p->sw };
    if (hides_in_pairs(&b))
        return false;
    s.parallel.overlap[DIM_EP] = s.parallel.overlap_set[DIM_EP] = true;
    if (!hides_in_pairs(&b) || s.training.micro_batches < 2)
        return false;
    Graph g = { 0 };
    SimResult r = { 0 };
    SimOptions totals = { .totals = true };
    Err ignored = { 0 };
    PlanCandidate pairs = *best;
    bool ok = build_graph(&g, &s, &p->sw, &ignored) &&
              sim_run(&r, &g, &s.machine, &p->sw, &totals, &ignored);
    if (ok) {
        RoleMemory *memory = mem_zero(g.roles_n, sizeof *memory);
        for (uint32_t i = 0; i < g.roles_n; i++)
            memory[i] = memory_of_role(&g, &g.roles[i], NULL);
        plan_weigh(&pairs, p, &g, &s.machine, memory, PLAN_WEIGH_FULLEST);
        free(memory);
        *step_s = (double)r.step_ns / 1e9;
        *fits = pairs.need_bytes <= pairs.gpu_bytes;
    }
    sim_result_free(&r);
    graph_free(&g);
    return ok;
}

static void explain_experts(Plan *p)
{
    char time[TEXT_CAP], text[2 * TEXT_CAP];
    const PlanCandidate *best = &p->candidates[p->order[0]];
    double step_s;
    bool fits;
    if (best->ep == 1 || !try_pairs(p, best, &step_s, &fits))
        return;
    double more = 100 * (step_s / best->step_s - 1);
    snprintf(
        text, sizeof text,
        "Hiding its all-to-alls behind another micro-batch (parallel.overlap.ep true) takes "
        "%.40s, %.1f %% %s%s",
        text_seconds(time, step_s), fabs(more), more < 0 ? "less" : "more",
        fits ? "" : ", but does not fit");
    say(p, text);
}

/* "4 GPUs of its nodes are idle and not paid for here: whole nodes, 16 GPUs, cost $0.40 a step and
 * $3,840 for all tokens, above --budget-usd; --gpus 16 uses them" */
static void explain_idle(Plan *p)
{
    char usd[TEXT_CAP], training[TEXT_CAP] = "", text[2 * TEXT_CAP];
    const PlanCandidate *best = &p->candidates[p->order[0]];
    const PlanOptions *o = p->options;
    uint32_t whole = plan_whole_nodes_gpus(p, best), idle = whole - plan_gpus(best);
    double more = (double)whole / plan_gpus(best);
    double all_usd = plan_training(p, best).cost_usd * more;
    if (idle == 0 || !isfinite(best->cost_usd))
        return;
    if (o->tokens > 0)
        snprintf(training, sizeof training, " and %.40s for all tokens%s",
                 text_usd(usd, all_usd),
                 o->budget_usd > 0 && all_usd > o->budget_usd ? ", above --budget-usd" : "");
    snprintf(text, sizeof text,
             "%" PRIu32
             " GPU%s of its nodes %s idle and not paid for here: whole nodes, %" PRIu32
             " GPUs, cost %.40s a step%.200s; --gpus %" PRIu32 " uses them",
             idle, idle == 1 ? "" : "s", idle == 1 ? "is" : "are", whole,
             text_usd(usd, best->cost_usd * more), training, whole);
    say(p, text);
}

/* "Of fewer GPUs 512 were the most tried: --gpus 576,640,704,768,832,896 ... tries them" */
static void explain_between(Plan *p)
{
    enum { BETWEEN = 8 };
    const PlanOptions *o = p->options;
    if (o->objective != PLAN_FEWEST)
        return;
    char list[TEXT_CAP] = "", text[2 * TEXT_CAP];
    const PlanCandidate *best = &p->candidates[p->order[0]];
    uint32_t gpus = plan_gpus(best), below = 0;
    uint32_t node = p->bases[best->base].machine.types[0].gpus_n;
    for (uint32_t i = 0; i < o->counts_n && o->counts[i] < gpus; i++)
        below = o->counts[i];
    uint32_t step = (uint32_t)div_up_u64(div_up_u64(gpus - below, BETWEEN), node) * node;
    size_t at = 0;
    for (uint32_t n = below / node * node + step; below > 0 && n < gpus; n += step)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%" PRIu32, at > 0 ? "," : "", n);
    if (at == 0)
        return;
    snprintf(text, sizeof text,
             "Of fewer GPUs %" PRIu32 " were the most tried: --gpus %.400s tries those between",
             below, list);
    say(p, text);
}

/* "Not tried, as generic does not have them: zb-h1, zbv (--set parallel.schedule=NAME)" */
static void explain_schedules(Plan *p)
{
    const PlanCandidate *best = &p->candidates[p->order[0]];
    char names[TEXT_CAP] = "", text[2 * TEXT_CAP];
    size_t at = 0;
    for (int k = 0; k < SCHEDULE_N; k++)
        if (schedule_splits((Schedule)k) && !p->offered[k])
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at > 0 ? ", " : "",
                                   schedule_names[k]);
    if (best->pp == 1 || at == 0 || plan_fixed(p, "parallel.schedule"))
        return;
    snprintf(text, sizeof text,
             "Not tried, as %.100s does not have them: %s (--set parallel.schedule=NAME)",
             p->sw.name, names);
    say(p, text);
}

/* "Left out, as nanogpt-2023 does not have them: tp, pp, cp (--set parallel.KEY=VALUE tries it)" */
static void explain_lacks(Plan *p)
{
    char lacks[TEXT_CAP], text[2 * TEXT_CAP];
    if (!*plan_lacks_text(p, lacks, sizeof lacks))
        return;
    snprintf(text, sizeof text, "L%s (--set parallel.KEY=VALUE tries it)", lacks + 1);
    say(p, text);
}

void plan_explain(Plan *p)
{
    explain_batch(p);
    explain_fit(p);
    explain_room(p);
    explain_tensor(p);
    explain_experts(p);
    compare(p, asks_less_pp, "The best with fewer stages");
    compare(p, asks_more_pp, "The best with more stages");
    compare(p, asks_plain_schedule, "Schedule 1f1b");
    compare(p, asks_whole_backward, "The best of 1f1b and interleaved");
    compare(p, asks_split_backward, "The best with weight gradients apart");
    compare(p, asks_even,
            p->bases[p->candidates[p->order[0]].base].machine.types_n > 1
                ? "As many layers on each stage"
                : "As many layers at the end as elsewhere");
    compare(p, asks_less_sharding, "Less sharding at the same split");
    compare(p, asks_more_sharding, "More sharding at the same split");
    compare(p, asks_less_recompute, "Less recomputation");
    compare(p, asks_larger_batch, "A larger micro-batch");
    explain_idle(p);
    explain_between(p);
    explain_schedules(p);
    explain_lacks(p);
}
