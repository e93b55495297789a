/*
 * schedule_zb.c - zb-1p and zb-2p: all stages are played with the costs given, and whoever is
 * free takes the best thing it can do; of several habits the one with the shortest step wins.
 *
 *     free stage:   B that has arrived, else F that has arrived and that memory allows (or F
 *                   first), else W if there is one, else it waits
 *
 * A stage is asked again when it is done or something comes.  Whoever of them is first is found
 * in a tree, of which each node is the earlier of two:
 *
 *            3
 *          /   \
 *         3     4
 *        / \   / \
 *       5   3 9   4        stage 0 at 5, stage 1 at 3 ...
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
    uint64_t until; /* when it is done; at work before that */
    uint64_t since; /* when it began its first action */
    uint64_t left;  /* what it has still to do takes so long */
} Stage;

typedef struct Search {
    const SchedulePlan *plan;
    bool forward_first, defers;
    uint32_t patience; /* waits for what comes within so many halves of W */
    uint32_t limit;    /* micro-batches between F and W */
    Stage *stages;
    /* When a stage is done or, if it waits, something comes: stage i is node leaves_n + i, node 1
     * is the earliest of all, node k that of 2 k and 2 k + 1. */
    uint64_t *wake;
    uint32_t leaves_n;
    uint64_t shortest; /* so far: what takes no less is not played to its end */
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

/* ---- who is next ---- */

static void set_wake(Search *x, uint32_t stage, uint64_t at)
{
    uint64_t *wake = x->wake;
    uint32_t k = x->leaves_n + stage;
    for (wake[k] = at; k > 1; k /= 2)
        wake[k / 2] = min_u64(wake[k], wake[k ^ 1]);
}

/* The lowest stage that is to be asked by now; there is one. */
static uint32_t first_awake(const Search *x)
{
    uint32_t k = 1;
    while (k < x->leaves_n)
        k = 2 * k + (x->wake[2 * k] > x->now);
    return k - x->leaves_n;
}

/* When the next thing comes to a stage that waits.  Until then it does nothing else: what makes it
 * wait is its own doing, or comes ever nearer. */
static uint64_t next_arrival(const Search *x, uint32_t stage)
{
    uint64_t next = UINT64_MAX;
    for (int kind = 0; kind < 2; kind++) {
        uint64_t at = arrival(x, stage, (ActionKind)kind);
        next = at > x->now ? min_u64(next, at) : next;
    }
    return next;
}

/* Somebody has begun what will come to the stage. */
static void tell(Search *x, uint32_t stage)
{
    if (x->stages[stage].until <= x->now && x->wake[x->leaves_n + stage] > x->now)
        set_wake(x, stage, next_arrival(x, stage));
}

static void begin(Search *x, uint32_t stage, ActionKind kind)
{
    Stage *s = &x->stages[stage];
    if (s->line.n == 0)
        s->since = x->now;
    s->until = x->now + cost_of(x, stage, kind);
    s->left -= cost_of(x, stage, kind);
    set_wake(x, stage, s->until);
    if (kind != ACTION_WEIGHT)
        x->ends[kind][(size_t)stage * x->plan->micro_batches + done(s, kind)] = s->until;
    line_push(&s->line, kind, 0);
    if (kind == ACTION_FORWARD && stage + 1 < x->plan->pp)
        tell(x, stage + 1);
    if (kind == ACTION_BACKWARD && stage > 0)
        tell(x, stage - 1);
}

/* ---- a step ---- */

static void forget(Search *x)
{
    memset(x->stages, 0, x->plan->pp * sizeof *x->stages);
    for (int kind = 0; kind < 2; kind++)
        memset(x->ends[kind], 0xff,
               (size_t)x->plan->pp * x->plan->micro_batches * sizeof *x->ends[kind]);
}

static void begin_step(Search *x, Action *actions)
{
    forget(x);
    for (uint32_t k = 1; k < 2 * x->leaves_n; k++)
        x->wake[k] = UINT64_MAX;
    for (uint32_t i = 0; i < x->plan->pp; i++) {
        Stage *s = &x->stages[i];
        s->line.actions = actions + (size_t)i * schedule_actions_n(x->plan);
        for (int kind = ACTION_FORWARD; kind <= ACTION_WEIGHT; kind++)
            s->left += x->plan->micro_batches * cost_of(x, i, (ActionKind)kind);
        set_wake(x, i, 0);
    }
}

/* Plays a step; returns how long it takes, or less where that is no less than the shortest. */
static uint64_t play(Search *x, Action *actions)
{
    uint32_t all = schedule_actions_n(x->plan), left = x->plan->pp * all;
    uint64_t longest = 0;
    begin_step(x, actions);
    for (x->now = 0; left > 0 && longest < x->shortest;) {
        uint32_t i = first_awake(x);
        Stage *s = &x->stages[i];
        int kind = s->line.n == all ? WAITS : choose(x, i);
        if (kind == WAITS) {
            set_wake(x, i, next_arrival(x, i));
        } else {
            begin(x, i, (ActionKind)kind);
            longest = max_u64(longest, length(x, s) + s->left);
            left--;
        }
        x->now = max_u64(x->now, x->wake[1]);
        ASSERT(left == 0 || x->now != UINT64_MAX);
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
    for (x.leaves_n = 1; x.leaves_n < p->pp;)
        x.leaves_n *= 2;
    x.wake = mem_zero(2 * x.leaves_n, sizeof *x.wake);
    for (int kind = 0; kind < 2; kind++)
        x.ends[kind] = mem_zero(ends, sizeof *x.ends[kind]);
    uint32_t best = 0, limit = 0;
    x.shortest = UINT64_MAX;
    for (x.limit = p->pp; x.limit <= (twice ? 2 : 1) * p->pp; x.limit += p->pp)
        for (uint32_t k = 0; k <= HABITS_N; k++) {
            uint32_t habit = HABITS_N - k;
            uint64_t length = try_habit(&x, habit, actions);
            if (length < x.shortest) {
                x.shortest = length;
                best = habit;
                limit = x.limit;
            }
        }
    x.limit = limit;
    x.shortest = UINT64_MAX;
    try_habit(&x, best, actions);
    free(x.stages);
    free(x.wake);
    free(x.ends[0]);
    free(x.ends[1]);
}
