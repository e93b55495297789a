/*
 * schedule_zb.c - zb-1p and zb-2p: all stages are played with the costs given, and whoever is
 * free takes the best thing it can do; of several habits the one with the shortest step wins.
 *
 *     free stage:   B that has arrived, else F that has arrived and that memory allows (or F
 *                   first), else W if there is one, else it waits
 *
 * zb-h1's own order is among those that are tried.  Habits: which of F and B goes first where
 * both could; whether stage s keeps s W for later, as zb-h1 does; and whether a stage that could
 * do W rather waits for what arrives within no, a half, or a whole W.  That is in the spirit of
 * the heuristic of section 3.1 of Qi et al., which also tries combinations; like theirs it knows
 * what F, B, W and a transfer take (sim/engine_actions.c).  Transfers go beside compute.  Every
 * stage holds at most pp (zb-1p) or 2 pp (zb-2p) micro-batches; zb-2p tries both, so that by
 * these costs it is never longer than zb-1p.
 *
 * The step is as long as it is from its first action to its last, of all stages or, where steps
 * follow one another on each stage by itself (SchedulePlan.open_ended), of the longest stage.
 */
#include "sim/strategy/schedule_parts.h"

#include <stdlib.h>
#include <string.h>

enum { HABITS_N = 12, WAITS = 3 };

typedef struct Stage {
    StageLine line;
    bool busy;
    uint64_t until; /* when it is done, where busy */
    uint64_t since; /* when it began its first action */
} Stage;

typedef struct Search {
    const SchedulePlan *plan;
    bool forward_first, defers;
    uint32_t patience; /* waits for what comes within so many halves of W */
    uint32_t limit;    /* micro-batches between F and W */
    Stage *stages;
    uint64_t *ends[2]; /* of F and B, by stage and micro-batch */
    uint64_t now;
} Search;

static uint32_t done(const Stage *s, ActionKind kind)
{
    return s->line.done[kind][0];
}

static uint64_t end_of(const Search *x, ActionKind kind, uint32_t stage, uint32_t micro_batch)
{
    return x->ends[kind][(size_t)stage * x->plan->micro_batches + micro_batch];
}

/* When what a stage made is at its neighbour; UINT64_MAX: that has not begun. */
static uint64_t sent_by(const Search *x, ActionKind kind, uint32_t stage, uint32_t micro_batch)
{
    uint64_t end = end_of(x, kind, stage, micro_batch);
    return end == UINT64_MAX ? end : end + x->plan->costs[stage].way[kind];
}

/* When the next F or B of a stage has all it needs; UINT64_MAX: that has not begun. */
static uint64_t arrival(const Search *x, uint32_t stage, ActionKind kind)
{
    const Stage *s = &x->stages[stage];
    uint32_t next = done(s, kind), last = x->plan->pp - 1;
    if (next == x->plan->micro_batches)
        return UINT64_MAX;
    if (kind == ACTION_FORWARD)
        return stage == 0 ? 0 : sent_by(x, kind, stage - 1, next);
    return stage == last ? end_of(x, ACTION_FORWARD, stage, next)
                         : sent_by(x, kind, stage + 1, next);
}

/* What a free stage does next; WAITS: nothing. */
static int choose(const Search *x, uint32_t stage)
{
    const Stage *s = &x->stages[stage];
    uint64_t f = arrival(x, stage, ACTION_FORWARD), b = arrival(x, stage, ACTION_BACKWARD);
    bool room = done(s, ACTION_FORWARD) - done(s, ACTION_WEIGHT) < x->limit;
    bool forward = f <= x->now && room, backward = b <= x->now;
    if (forward && (x->forward_first || !backward))
        return ACTION_FORWARD;
    if (backward)
        return ACTION_BACKWARD;
    uint64_t soon = b < f || !room ? b : f;
    uint64_t patience = x->patience * x->plan->costs[stage].cost[ACTION_WEIGHT] / 2;
    uint32_t undone = done(s, ACTION_BACKWARD) - done(s, ACTION_WEIGHT);
    bool more = done(s, ACTION_BACKWARD) < x->plan->micro_batches;
    bool early = x->defers && more && room && undone <= stage;
    if (undone == 0 || early || (soon != UINT64_MAX && soon <= x->now + patience))
        return WAITS;
    return ACTION_WEIGHT;
}

static uint64_t cost_of(const Search *x, uint32_t stage, ActionKind kind)
{
    return max_u64(1, x->plan->costs[stage].cost[kind]);
}

/* Of the step, as far as a stage has come that is done at s->until. */
static uint64_t length(const Search *x, const Stage *s)
{
    return x->plan->open_ended ? s->until - s->since : s->until;
}

static void begin(Search *x, uint32_t stage, ActionKind kind)
{
    Stage *s = &x->stages[stage];
    if (s->line.n == 0)
        s->since = x->now;
    s->until = x->now + cost_of(x, stage, kind);
    s->busy = true;
    if (kind != ACTION_WEIGHT)
        x->ends[kind][(size_t)stage * x->plan->micro_batches + done(s, kind)] = s->until;
    line_push(&s->line, kind, 0);
}

/* The next moment at which somebody is free, or something arrives. */
static uint64_t next_moment(const Search *x)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < x->plan->pp; i++) {
        if (x->stages[i].busy)
            next = min_u64(next, x->stages[i].until);
        for (int kind = 0; kind < 2 && !x->stages[i].busy; kind++) {
            uint64_t at = arrival(x, i, (ActionKind)kind);
            if (at > x->now)
                next = min_u64(next, at);
        }
    }
    return next;
}

static void forget(Search *x)
{
    memset(x->stages, 0, x->plan->pp * sizeof *x->stages);
    for (int kind = 0; kind < 2; kind++)
        memset(x->ends[kind], 0xff,
               (size_t)x->plan->pp * x->plan->micro_batches * sizeof *x->ends[kind]);
}

/* Plays a step; returns how long it takes. */
static uint64_t play(Search *x, Action *actions)
{
    uint32_t pp = x->plan->pp, all = schedule_actions_n(x->plan), left = pp * all;
    forget(x);
    for (uint32_t i = 0; i < pp; i++)
        x->stages[i].line.actions = actions + (size_t)i * all;
    uint64_t longest = 0;
    for (x->now = 0; left > 0; x->now = next_moment(x)) {
        ASSERT(x->now != UINT64_MAX);
        for (uint32_t i = 0; i < pp; i++) {
            Stage *s = &x->stages[i];
            s->busy = s->busy && s->until > x->now;
            int kind = s->busy || s->line.n == all ? WAITS : choose(x, i);
            if (kind == WAITS)
                continue;
            begin(x, i, (ActionKind)kind);
            longest = max_u64(longest, length(x, s));
            left--;
        }
    }
    return longest;
}

/* ---- an order that is given ---- */

static void fill_h1(const SchedulePlan *p, Action *actions)
{
    for (uint32_t i = 0; i < p->pp; i++)
        zb_h1_actions(p, i, actions + (size_t)i * schedule_actions_n(p));
}

/* Does as much of a stage's order as can be done; false: nothing. */
static bool advance(Search *x, uint32_t stage, const Action *order)
{
    Stage *s = &x->stages[stage];
    uint32_t before = s->line.n, all = schedule_actions_n(x->plan);
    for (; s->line.n < all; s->line.n++) {
        const Action *a = &order[s->line.n];
        uint64_t at = a->kind == ACTION_WEIGHT ? 0 : arrival(x, stage, a->kind);
        if (at == UINT64_MAX)
            break;
        if (s->line.n == 0)
            s->since = at;
        s->until = max_u64(s->until, at) + cost_of(x, stage, a->kind);
        if (a->kind != ACTION_WEIGHT)
            x->ends[a->kind][(size_t)stage * x->plan->micro_batches + a->micro_batch] =
                s->until;
        s->line.done[a->kind][0]++;
    }
    return s->line.n > before;
}

static uint64_t length_of(Search *x, const Action *actions)
{
    uint64_t longest = 0;
    bool moves = true;
    forget(x);
    while (moves) {
        moves = false;
        for (uint32_t i = 0; i < x->plan->pp; i++) {
            moves |= advance(x, i, actions + (size_t)i * schedule_actions_n(x->plan));
            longest = max_u64(longest, length(x, &x->stages[i]));
        }
    }
    return longest;
}

/* ---- the best ---- */

/* Fills actions with what a habit, or zb-h1, makes; returns how long it takes. */
static uint64_t try_habit(Search *x, uint32_t habit, Action *actions)
{
    if (habit == HABITS_N) {
        fill_h1(x->plan, actions);
        return length_of(x, actions);
    }
    x->forward_first = habit & 1;
    x->defers = habit & 2;
    x->patience = habit / 4;
    return play(x, actions);
}

/* Of equally long ones the first, which holds least: zb-h1, then what holds pp at most. */
void zb_search(const SchedulePlan *p, Action *actions)
{
    bool twice = p->schedule == SCHEDULE_ZB_2P;
    Search x = { .plan = p };
    size_t ends = (size_t)p->pp * p->micro_batches;
    x.stages = mem_zero(p->pp, sizeof *x.stages);
    for (int kind = 0; kind < 2; kind++)
        x.ends[kind] = mem_zero(ends, sizeof *x.ends[kind]);
    uint32_t best = 0, limit = 0;
    uint64_t shortest = UINT64_MAX;
    for (x.limit = p->pp; x.limit <= (twice ? 2 : 1) * p->pp; x.limit += p->pp)
        for (uint32_t k = 0; k <= HABITS_N; k++) {
            uint32_t habit = HABITS_N - k;
            uint64_t length = try_habit(&x, habit, actions);
            if (length < shortest) {
                shortest = length;
                best = habit;
                limit = x.limit;
            }
        }
    x.limit = limit;
    try_habit(&x, best, actions);
    free(x.stages);
    free(x.ends[0]);
    free(x.ends[1]);
}
