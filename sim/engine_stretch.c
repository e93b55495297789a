/*
 * engine_stretch.c - part of an instance as one event.
 *
 *     compute   |ln|qkv|  |attn|attn|out|  |ln|up|..|down|
 *     tp                                |rs|         ..
 *     cp               |kv gather|
 *     nic       ----- gather of the next layer's parameters -----
 *               \_ run _/           \______ a stretch ______/
 *
 * Where some of an instance's transfers meet others on the network it cannot be one event
 * (engine_macro.c); transfers that stay in the node still meet nobody.  A stretch is a
 * macro of ops that follow one another in the segment, with such transfers among them:
 *
 *   - it begins and ends on the compute lane, all its transfers over by then;
 *   - what its ops wait for on other lanes is of the stretch, or done before it;
 *   - nobody outside waits for an op in its middle, and the lanes it leaves go on behind
 *     its last op only.
 *
 * When somebody comes onto its links it is broken up as macros are.
 */
#include "sim/engine_collapse.h"

/* ---- which ops ---- */

static const Op *op_of(const Sim *sim, Stretch of, uint32_t i)
{
    return graph_ops(sim->g, &sim->g->segments[of.segment]) + i;
}

static uint32_t dep_of(const Sim *sim, const Op *o, uint32_t d)
{
    return sim->g->deps[o->dep_first + d];
}

static bool stays_in_node(const Sim *sim, const Runner *r, const Op *o)
{
    const uint32_t ports = 1u << RES_PORT_OUT | 1u << RES_PORT_IN;
    uint32_t links = 0;
    return macro_is_inner(sim, r, o, &links) && (links & ~ports) == 0;
}

/* Is all that op i waits for of the stretch, or before it and of lanes that are looked at? */
static bool waits_within(const Sim *sim, Stretch of, uint32_t i, uint32_t lanes)
{
    const Op *o = op_of(sim, of, i);
    for (uint32_t d = 0; d < o->dep_n; d++) {
        uint32_t on = dep_of(sim, o, d);
        if (on < of.first && !(lanes >> op_of(sim, of, on)->lane & 1u))
            return false;
    }
    return true;
}

/* As far as it could go: up to the first op that is not for it, or that others wait for. */
static void reach(const Sim *sim, const Runner *r, Stretch *of)
{
    const Segment *s = &sim->g->segments[of->segment];
    uint32_t lanes = 1u << LANE_COMPUTE;
    for (of->end = of->first; of->end < s->op_n; of->end++) {
        uint32_t i = of->end;
        const Op *o = op_of(sim, *of, i);
        bool fits = op_is_comm(o->kind) ? stays_in_node(sim, r, o) : o->lane == LANE_COMPUTE;
        lanes |= 1u << o->lane;
        if (!fits || (i > of->first && (sim->waits_before[s->op_first + i] ||
                                        !waits_within(sim, *of, i, lanes))))
            return;
        if (sim->awaited_later[s->op_first + i]) {
            of->end++;
            return;
        }
    }
}

/* Where an op behind it waits for one in its middle, it ends there. */
static void end_where_awaited(const Sim *sim, Stretch *of)
{
    for (uint32_t i = of->end; i < sim->g->segments[of->segment].op_n; i++) {
        const Op *o = op_of(sim, *of, i);
        for (uint32_t d = 0; d < o->dep_n; d++) {
            uint32_t on = dep_of(sim, o, d);
            if (on >= of->first && on + 1 < of->end && op_of(sim, *of, on)->lane != o->lane)
                of->end = on + 1;
        }
    }
}

/* It ends on the compute lane; the next op of every lane it is on waits for its last. */
static bool ends_well(const Sim *sim, Stretch of)
{
    uint32_t lanes = 0, comms_n = 0;
    for (uint32_t i = of.first; i < of.end; i++) {
        lanes |= 1u << op_of(sim, of, i)->lane;
        comms_n += op_is_comm(op_of(sim, of, i)->kind);
    }
    lanes &= ~(1u << LANE_COMPUTE);
    for (uint32_t i = of.end; i < sim->g->segments[of.segment].op_n && lanes; i++) {
        const Op *o = op_of(sim, of, i);
        bool follows = !(lanes >> o->lane & 1u);
        for (uint32_t d = 0; d < o->dep_n; d++) {
            uint32_t on = dep_of(sim, o, d);
            follows |= on + 1 >= of.end && op_of(sim, of, on)->lane == LANE_COMPUTE;
        }
        if (!follows)
            return false;
        lanes &= ~(1u << o->lane);
    }
    return comms_n > 0 && of.end > of.first + 1;
}

static bool find(const Sim *sim, const Runner *r, Stretch *of)
{
    uint32_t before;
    reach(sim, r, of);
    do {
        before = of->end;
        while (of->end > of->first && op_of(sim, *of, of->end - 1)->lane != LANE_COMPUTE)
            of->end--;
        end_where_awaited(sim, of);
    } while (of->end != before);
    return ends_well(sim, *of);
}

/* ---- making one ---- */

/* Of the ranks before, which have made it if they came by. */
static const Macro *twin_of(Sim *sim, const Runner *r, uint32_t segment, uint32_t op)
{
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        const Runner *other = &sim->runners[i];
        const Macro *m = other->stretch ? other->stretch[op] : NULL;
        if (!m || m->state != MACRO_YES || other->cost != r->cost)
            continue;
        uint32_t first = op - sim->g->segments[segment].op_first;
        return macro_same(sim, other, r, (Stretch){ segment, first, m->end_op }) ? m : NULL;
    }
    return NULL;
}

static Macro *make(Sim *sim, Runner *r, uint32_t segment, uint32_t op)
{
    const Macro *twin = twin_of(sim, r, segment, op);
    Macro *m = PUSH(&sim->arena, Macro);
    if (twin) {
        macro_copy(sim, r, segment, m, twin);
        return m;
    }
    Stretch of = { .segment = segment, .first = op - sim->g->segments[segment].op_first };
    m->state = MACRO_NO;
    if (!find(sim, r, &of) || !macro_time(sim, r, of, m))
        return m;
    m->state = MACRO_YES;
    m->end_op = of.end;
    return m;
}

/* Whether nobody goes on behind the last op of a lane is known of whole instances only. */
static bool leaves_early(const Sim *sim, const Runner *r, const Macro *m, uint32_t instance)
{
    const Segment *s = segment_of(sim, r, instance);
    for (uint32_t left = m->lanes & ~(1u << LANE_COMPUTE); left; left &= left - 1)
        if (m->end_at && m->end_at[first_lane(left)] == s->lane_n[first_lane(left)])
            return r->program.open[instance];
    return !m->end_at && r->program.open[instance];
}

bool stretch_try(Sim *sim, Runner *r, uint32_t instance, uint32_t op)
{
    uint32_t segment = r->program.spot[instance].segment;
    if (!sim_collapses(sim))
        return false;
    if (!r->stretch)
        r->stretch = PUSH_ARRAY(&sim->arena, Macro *, sim->g->ops_n + 1);
    if (!r->stretch[op])
        r->stretch[op] = make(sim, r, segment, op);
    const Macro *m = r->stretch[op];
    if (m->state == MACRO_NO || r->host_start[instance] + m->lag_ns > sim->now_ns ||
        leaves_early(sim, r, m, instance) || !macro_has_way(sim, r, m, instance))
        return false;
    m = beside_choose(sim, r, m);
    if (m)
        macro_begin(sim, r, m, op);
    return m != NULL;
}
