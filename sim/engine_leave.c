/*
 * engine_leave.c - a macro (engine_macro.c) is left in its middle.
 *
 *     compute   |ln|qkv|attn|proj|    |ln|up|dow-
 *     tp                         |ar--|
 *                                   ^ broken up here the all-reduce goes on as a flow, and the
 *                                     kernels behind it are ops; or it goes on as another macro
 *                                     of the same ops, from where that has done as much of it
 *
 * Of a chain (engine_chain.c) the macros before are over, the one it is in is left, those behind
 * have not begun.
 */
#include <math.h>

#include "sim/engine_collapse.h"

/* What a running sum has grown by since op i began, at position x. */
static double grown_since(const Macro *m, const int64_t *sum, uint32_t i, double x)
{
    return macro_map(m, m->alone_at, sum, x) -
           macro_map(m, m->alone_at, sum, (double)m->start_ns[i]);
}

static double comm_into(const Macro *m, uint32_t i, double x)
{
    const MacroComm *c = m->comms;
    while (c->op != i)
        c++;
    if (!c->into)
        return x - (double)c->start_ns;
    MacroPlace p = macro_place(m, m->alone_at, x, 0);
    const double *into = c->into + (p.low - c->into_first);
    return into[0] + p.part * (into[1] - into[0]);
}

static double kernel_into(const Runner *r, const Macro *m, const Segment *s, uint32_t i,
                          double x)
{
    const OpCost *c = &r->cost->op[s->op_first + i];
    double slowed = grown_since(m, m->comm_at, i, x);
    double alone = x - (double)m->start_ns[i] - slowed;
    if (c->slowed_ns > 0)
        alone += slowed * (double)c->alone_ns / (double)c->slowed_ns;
    return fmin(alone, (double)c->alone_ns);
}

double macro_op_into(const Sim *sim, const Runner *r, const Macro *m, uint32_t i, double x)
{
    return op_is_comm(macro_op(sim, m, i)->kind)
               ? comm_into(m, i, x)
               : kernel_into(r, m, &sim->g->segments[m->of.segment], i, x);
}

/* Goes on with op i, in progress at position x, as an op of its own. */
static void resume_op(Sim *sim, Runner *r, uint32_t lane, const Segment *s, const Macro *m,
                      uint32_t i, double x, const Path *path)
{
    LaneState *l = &r->lane[lane];
    l->busy = true;
    l->op = s->op_first + i;
    l->group_n = l->group_left = 1;
    l->start_ns = sim->now_ns;
    path_set_cause(r, lane, path);
    double passed = x - (double)m->start_ns[i];
    if (op_is_comm(sim->g->ops[l->op].kind)) {
        flow_resume_collective(sim, r, lane, passed, comm_into(m, i, x));
        double exposed = passed - grown_since(m, m->compute_at, i, x);
        r->stat->collectives[l->stat].exposed_ns += llround(exposed);
        return;
    }
    r->compute_n++;
    r->left = (double)r->cost->op[l->op].alone_ns - kernel_into(r, m, s, i, x);
    compute_resume(sim, r);
}

MacroLane macro_lane_at(const Sim *sim, const Macro *m, uint32_t lane, double x)
{
    const Segment *s = &sim->g->segments[m->of.segment];
    const uint32_t *ops = sim->lane_ops + sim->lane_first[m->of.segment * LANE_N + lane];
    uint32_t first = m->begin_at ? m->begin_at[lane] : 0;
    uint32_t end = m->end_at ? m->end_at[lane] : s->lane_n[lane], low = first;
    for (uint32_t high = end; low < high;) {
        uint32_t half = low + (high - low) / 2;
        if ((double)m->end_ns[ops[half] - s->op_first] <= x)
            low = half + 1;
        else
            high = half;
    }
    return (MacroLane){ .over = low,
                        .last = low > first ? ops[low - 1] - s->op_first : NONE_U32,
                        .next = low < end ? ops[low] - s->op_first : NONE_U32 };
}

/* Of a chain that stops at position *x, the macro it is in; *x is then in that. */
static const Macro *leave_chain(Sim *sim, Runner *r, const Macro *chain, double *x,
                                const Path *path)
{
    uint32_t first = r->lane[LANE_COMPUTE].instance, k = chain_part_at(chain, *x);
    for (uint32_t i = 0; i < k; i++)
        macro_book(sim, r, chain->parts[i], first + i, (double)NS_MAX);
    *x -= (double)chain->part_at[k];
    for (uint32_t lane = 0; chain->lanes >> lane; lane++) {
        if (!(chain->lanes >> lane & 1u))
            continue;
        macro_lane_skip(sim, r, lane, first + k, 0, path);
        if (!(chain->parts[k]->lanes >> lane & 1u))
            lane_wake_after(sim, r, lane);
    }
    return chain->parts[k];
}

/* Where the lanes of a macro that is broken up are: ops behind them, the one in progress or
 * NONE_U32, and the path to now. */
typedef struct Split {
    uint32_t over[LANE_N], current[LANE_N];
    Path path[LANE_N];
} Split;

static Split split(const Sim *sim, const Runner *r)
{
    Split at;
    double x = r->position;
    const Macro *m = chain_part(r->running_macro, &x);
    for (uint32_t left = m->lanes; left; left &= left - 1) {
        uint32_t lane = first_lane(left);
        MacroLane l = macro_lane_at(sim, m, lane, x);
        bool runs = l.next != NONE_U32 && (double)m->start_ns[l.next] <= x;
        at.over[lane] = l.over;
        at.current[lane] = runs ? l.next : NONE_U32;
        at.path[lane] = runs ? path_of_inner(sim, r, l.next) : path_of_macro(sim, r);
    }
    return at;
}

void macro_break(Sim *sim, Runner *r)
{
    const Macro *m = r->running_macro;
    account(sim, r);
    beside_detach(sim, r);
    double x = r->position;
    Split at = split(sim, r);
    Path path = path_of_macro(sim, r);
    r->running_macro = NULL;
    macro_links_release(sim, r, m);
    r->compute_n--;
    evq_cancel(&sim->events, r->id);
    if (m->parts_n > 0)
        m = leave_chain(sim, r, m, &x, &path);
    uint32_t instance = r->lane[LANE_COMPUTE].instance;
    const Segment *s = segment_of(sim, r, instance);
    macro_book(sim, r, m, instance, x);
    for (uint32_t left = m->lanes; left; left &= left - 1) {
        uint32_t lane = first_lane(left);
        macro_lane_skip(sim, r, lane, instance, at.over[lane], &at.path[lane]);
        if (at.current[lane] == NONE_U32)
            lane_wake_after(sim, r, lane);
        else
            resume_op(sim, r, lane, s, m, at.current[lane], x, &at.path[lane]);
    }
}

/* Where transfers were switched in their middle, what was booked is of both. */
static void book_shift(Sim *sim, Runner *r, const Segment *s, const Macro *from, double x,
                       const Macro *to, double y)
{
    for (uint32_t i = 0; i < from->comms_n && !sim->options->totals; i++) {
        uint32_t op = from->comms[i].op;
        if ((double)from->start_ns[op] >= x || (double)from->end_ns[op] <= x)
            continue;
        double passed = x - (double)from->start_ns[op] - (y - (double)to->start_ns[op]);
        double covered =
            grown_since(from, from->compute_at, op, x) - grown_since(to, to->compute_at, op, y);
        CollectiveStat *c = &r->stat->collectives[macro_stat(sim, r, s, op)];
        c->time_ns += llround(passed);
        c->transfer_ns += llround(passed);
        c->exposed_ns += llround(passed - covered);
    }
}

void macro_go_on_as(Sim *sim, Runner *r, const Macro *as, double y)
{
    const Macro *m = r->running_macro;
    LaneState *l = &r->lane[LANE_COMPUTE];
    double x = r->position;
    Path path = path_of_macro(sim, r);
    beside_detach(sim, r);
    macro_links_release(sim, r, m);
    path_go_on_as(sim, r, as, y);
    if (m->parts_n > 0) {
        m = leave_chain(sim, r, m, &x, &path);
        l->op = segment_of(sim, r, l->instance)->op_first;
        for (uint32_t left = m->lanes; left; left &= left - 1)
            r->lane[first_lane(left)].busy = true;
    }
    const Segment *s = segment_of(sim, r, l->instance);
    macro_book(sim, r, m, l->instance, x);
    book_shift(sim, r, s, m, x, as, y);
    macro_links_hold(sim, r, as);
    r->running_macro = as;
    r->position = r->booked_to = y;
    r->here = (MacroPlace){ 0 };
    r->placed = false;
    beside_attach(sim, r);
}
