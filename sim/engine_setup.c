/*
 * engine_setup.c - everything that is known before the first event.
 *
 * Per role: how many ops each lane has before each instance (so that an op's
 * place in its lane is one addition), and behind which instances somebody may go
 * on before their end.  Per GPU type: the cost of every op in use.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine_collapse.h"

/* ---- indexes over the graph ---- */

static bool waits_for_compute(const Graph *g, const Segment *s, const Op *o)
{
    for (uint32_t d = 0; d < o->dep_n; d++)
        if (graph_ops(g, s)[g->deps[o->dep_first + d]].lane == LANE_COMPUTE)
            return true;
    return false;
}

static SegmentLanes lanes_of(const Graph *g, const Segment *s)
{
    SegmentLanes lanes = { .op_first = s->op_first, .op_n = s->op_n };
    for (uint32_t k = 0; k < s->op_n; k++) {
        const Op *o = graph_ops(g, s) + k;
        lanes.all |= 1u << o->lane;
        if (o->lane_index == 0 && waits_for_compute(g, s, o))
            lanes.follow |= 1u << o->lane;
    }
    return lanes;
}

static void index_lanes(Sim *sim)
{
    const Graph *g = sim->g;
    sim->lane_ops = PUSH_ARRAY(&sim->arena, uint32_t, g->ops_n + 1);
    sim->lane_first = PUSH_ARRAY(&sim->arena, uint32_t, (size_t)g->segments_n * LANE_N);
    sim->lanes = PUSH_ARRAY(&sim->arena, SegmentLanes, g->segments_n + 1);
    sim->place = PUSH_UNSET(&sim->arena, OpPlace, g->ops_n + 1);
    for (uint32_t i = 0; i < g->segments_n; i++) {
        const Segment *s = &g->segments[i];
        uint32_t *first = sim->lane_first + (size_t)i * LANE_N, at = s->op_first;
        SegmentLanes lanes = lanes_of(g, s);
        for (uint32_t left = lanes.all; left; left &= left - 1) {
            first[first_lane(left)] = at;
            at += s->lane_n[first_lane(left)];
        }
        for (uint32_t k = s->op_first; k < s->op_first + s->op_n; k++) {
            sim->place[k] = (OpPlace){ g->ops[k].lane, g->ops[k].lane_index };
            sim->lane_ops[first[g->ops[k].lane] + g->ops[k].lane_index] = k;
        }
        lanes.all &= ~(1u << LANE_HOST);
        sim->lanes[i] = lanes;
    }
}

/* The graph op that an edge comes from. */
static uint32_t source_of(const Sim *sim, const Role *r, const Edge *e)
{
    return sim->lanes[r->instances[e->src_instance].segment].op_first + e->src_op;
}

/* Does the first op on the lane that instance i has ops on wait for one of the compute lane in
 * instance `since` or later? */
static bool follows_compute(const Sim *sim, const Role *r, uint32_t i, uint32_t lane,
                            uint32_t since)
{
    const Instance *in = &r->instances[i];
    if (in->edge_n == 0)
        return false;
    uint32_t first = sim->lane_ops[sim->lane_first[in->segment * LANE_N + lane]];
    uint32_t local = first - sim->lanes[in->segment].op_first;
    for (uint32_t e = 0; e < in->edge_n; e++) {
        const Edge *edge = &r->edges[in->edge_first + e];
        if (edge->dst_op == local && edge->src_instance >= since &&
            sim->place[source_of(sim, r, edge)].lane == LANE_COMPUTE)
            return true;
    }
    return false;
}

/* Of the edges into instance i.  Of their waits all but what is done before the source's instance,
 * see list_waits. */
static void index_edges(Sim *sim, const Role *r, uint32_t i, Program *p)
{
    const Instance *in = &r->instances[i];
    uint32_t op_first = sim->lanes[in->segment].op_first;
    for (uint32_t e = in->edge_first; e < in->edge_first + in->edge_n; e++) {
        const Edge *edge = &r->edges[e];
        const SegmentLanes *before = &sim->lanes[r->instances[edge->src_instance].segment];
        uint32_t src = before->op_first + edge->src_op, dst = op_first + edge->dst_op;
        OpPlace from = sim->place[src], to = sim->place[dst];
        p->open[edge->src_instance] |= edge->src_op + 1 < before->op_n;
        p->ties[edge->src_instance].awaited |= to.lane != LANE_COMPUTE;
        p->ties[i].waits |= to.lane != LANE_COMPUTE || from.lane != LANE_COMPUTE;
        p->wait[e] = (SpotWait){ edge->dst_op, from.lane, from.index + 1 };
        if (from.lane != to.lane)
            runs_note(sim, dst, src);
    }
}

/* Open are instances whose end says too little: a later one waits for an op in their middle, or
 * goes on behind them on a lane that they leave before the compute lane.  instances_n: how many
 * have ops on each lane. */
static void index_ties(Sim *sim, const Role *r, Program *p, uint32_t *instances_n)
{
    uint32_t next[LANE_N]; /* instance that the lane goes on with */
    uint32_t come = 0,
             follow = 0; /* lanes that go on; whose next op follows compute for sure */
    for (uint32_t i = r->instances_n; i-- > 0;) {
        const SegmentLanes *lanes = &sim->lanes[r->instances[i].segment];
        uint32_t may_open = come & ~follow;
        instances_n[LANE_COMPUTE] += lanes->all >> LANE_COMPUTE & 1u;
        for (uint32_t left = lanes->all & ~(1u << LANE_COMPUTE); left; left &= left - 1) {
            uint32_t lane = first_lane(left);
            if (may_open >> lane & 1u && !p->open[i])
                p->open[i] = !follows_compute(sim, r, next[lane], lane, i);
            next[lane] = i;
            instances_n[lane]++;
        }
        p->ties[i].follow = (uint16_t)follow;
        come |= lanes->all;
        follow = (follow & ~lanes->all) | lanes->follow;
        if (r->instances[i].edge_n > 0)
            index_edges(sim, r, i, p);
    }
}

/* Counts the ops before each instance, and lists the instances of each lane. */
static void count_ops(const Sim *sim, const Role *r, Program *p)
{
    const Segment *segments = sim->g->segments;
    uint32_t sum[LANE_N + 1] = { 0 }, n[LANE_N] = { 0 };
    uint32_t *base = p->lane_base;
    for (uint32_t i = 0; i <= r->instances_n; i++, base += p->lane_bases_n) {
        memcpy(base, sum, p->lane_bases_n * sizeof *base);
        if (i == r->instances_n)
            break;
        uint32_t segment = r->instances[i].segment;
        for (uint32_t left = sim->lanes[segment].all; left; left &= left - 1) {
            uint32_t lane = first_lane(left);
            sum[p->base_of[lane]] += segments[segment].lane_n[lane];
            p->on_lane[lane][n[lane]++] = i;
        }
    }
    for (uint32_t lane = 0; lane < LANE_N; lane++)
        p->on_lane[lane][n[lane]] = r->instances_n;
}

/* Waits stand as their edges do. */
static void list_waits(const Role *r, Program *p)
{
    for (uint32_t i = 0; i < r->instances_n; i++) {
        const Instance *in = &r->instances[i];
        p->spot[i] = (Spot){ in->segment, in->edge_first, in->edge_n };
        for (uint32_t e = in->edge_first; e < in->edge_first + in->edge_n; e++)
            p->wait[e].ops_n += ops_before(p, p->wait[e].lane, r->edges[e].src_instance);
    }
}

static void index_role(Sim *sim, uint32_t role)
{
    const Role *r = &sim->g->roles[role];
    Program *p = &sim->programs[role];
    uint32_t instances_n[LANE_N] = { 0 };
    *p = (Program){ .spot = PUSH_UNSET(&sim->arena, Spot, r->instances_n + 1),
                    .wait = PUSH_UNSET(&sim->arena, SpotWait, r->edges_n + 1),
                    .lane_bases_n = 1,
                    .open = PUSH_ARRAY(&sim->arena, bool, r->instances_n),
                    .ties = PUSH_ARRAY(&sim->arena, Ties, r->instances_n) };
    index_ties(sim, r, p, instances_n);
    for (uint32_t lane = 0; lane < LANE_N; lane++) {
        p->on_lane[lane] = PUSH_UNSET(&sim->arena, uint32_t, instances_n[lane] + 1);
        p->base_of[lane] = instances_n[lane] > 0 ? (uint8_t)p->lane_bases_n++ : 0;
        p->lanes |= (uint32_t)(instances_n[lane] > 0 && lane != LANE_HOST) << lane;
    }
    p->lane_base =
        PUSH_UNSET(&sim->arena, uint32_t, (size_t)(r->instances_n + 1) * p->lane_bases_n);
    count_ops(sim, r, p);
    list_waits(r, p);
}

static void index_roles(Sim *sim)
{
    sim->programs = PUSH_ARRAY(&sim->arena, Program, sim->g->roles_n + 1);
    for (uint32_t i = 0; i < sim->g->roles_n; i++)
        index_role(sim, i);
}

/* ---- costs ---- */

static bool is_launched(const Op *o)
{
    return o->kind != OP_RELEASE && o->kind != OP_HOST_WAIT && !o->grouped;
}

static OpCost cost_of(const Sim *sim, const CostTable *t, const Op *o)
{
    if (op_is_comm(o->kind) || o->kind == OP_HOST_WAIT || o->kind == OP_RELEASE)
        return (OpCost){ 0, 0 };
    OpCost c = op_cost(t->used, o, sim->sw);
    if (t->speed == 1 && c.alone_ns <= NS_MAX && c.slowed_ns <= NS_MAX)
        return c;
    return (OpCost){ ns_up((double)c.alone_ns / t->speed),
                     ns_up((double)c.slowed_ns / t->speed) };
}

static void fill_segment(Sim *sim, CostTable *t, uint32_t segment, int64_t launch_ns)
{
    const Segment *s = &sim->g->segments[segment];
    const GivenCosts *given = sim->options->given;
    t->launch_total[segment] = given ? 0 : s->host_before * launch_ns;
    for (uint32_t k = s->op_first; k < s->op_first + s->op_n; k++) {
        const Op *o = &sim->g->ops[k];
        t->op[k] = given ? given->op[k] : cost_of(sim, t, o);
        t->launch_total[segment] += given            ? given->launch_ns[k]
                                    : is_launched(o) ? launch_ns
                                                     : 0;
        t->launch_after[k] = t->launch_total[segment];
    }
}

static void copy_segment(const Sim *sim, CostTable *t, uint32_t segment, uint32_t from)
{
    const Segment *s = &sim->g->segments[segment];
    uint32_t first = sim->g->segments[from].op_first;
    memcpy(t->op + s->op_first, t->op + first, s->op_n * sizeof *t->op);
    memcpy(t->launch_after + s->op_first, t->launch_after + first,
           s->op_n * sizeof *t->launch_after);
    t->launch_total[segment] = t->launch_total[from];
}

static void fill_costs(Sim *sim, CostTable *t, const bool *in_use)
{
    const Graph *g = sim->g;
    int64_t launch_ns = llround((double)t->gpu->launch_ns * sim->sw->host_scale);
    t->op = PUSH_ARRAY(&sim->arena, OpCost, g->ops_n + 1);
    t->launch_after = PUSH_ARRAY(&sim->arena, int64_t, g->ops_n + 1);
    t->launch_total = PUSH_ARRAY(&sim->arena, int64_t, g->segments_n + 1);
    t->run = PUSH_ARRAY(&sim->arena, Macro *, g->ops_n + 1);
    for (uint32_t i = 0; i < g->segments_n; i++) {
        if (in_use[i] && (sim->same[i] == i || sim->options->given))
            fill_segment(sim, t, i, launch_ns);
        else if (in_use[i])
            copy_segment(sim, t, i, sim->same[i]);
    }
}

/* A step goes by the slowest of its GPUs.  Nodes that no rank is on do not slow what the others
 * send: ranks fill nodes in order. */
static const Gpu *gpu_as_used(Sim *sim, const Gpu *gpu)
{
    Gpu *used = PUSH(&sim->arena, Gpu);
    *used = *gpu;
    used->sustained_scale = sustained_among(gpu, sim->among ? sim->among : sim->g->world_n);
    if (machine_place(sim->m, sim->g->world_n - 1).node == 0)
        used->comm_bytes_per_ns = gpu->comm_inside_bytes_per_ns;
    return used;
}

static CostTable *costs_for(Sim *sim, const Gpu *gpu, double speed, const bool *in_use)
{
    for (uint32_t i = 0; i < sim->costs_n; i++)
        if (sim->costs[i].gpu == gpu && sim->costs[i].speed == speed)
            return &sim->costs[i];
    CostTable *t = &sim->costs[sim->costs_n++];
    *t = (CostTable){ .gpu = gpu, .used = gpu_as_used(sim, gpu), .speed = speed };
    fill_costs(sim, t, in_use);
    return t;
}

/* A normal number from two hashes (Box and Muller). */
static double normal(uint64_t h)
{
    double u = ((double)(mix_u64(h) >> 11) + 0.5) / 9007199254740992.0;
    double v = ((double)(mix_u64(h + 1) >> 11) + 0.5) / 9007199254740992.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

int64_t cost_jitter(const Sim *sim, const Runner *r, uint32_t instance, uint32_t op, int64_t ns)
{
    if (!(sim->m->jitter > 0) || ns == 0)
        return ns;
    const Instance *in = &r->role->instances[instance];
    uint64_t id = in->first_op + (op - sim->g->segments[in->segment].op_first);
    uint64_t h = mix_u64(mix_u64(sim->options->seed ^ ((uint64_t)r->rc->rank << 32)) ^ id);
    double noisy = (double)ns * exp(sim->m->jitter * normal(h));
    return max_i64(1, llround(fmin(noisy, (double)NS_MAX)));
}

/* ---- runners ---- */

static void setup_runner(Sim *sim, Runner *r, uint32_t class_, const bool *in_use)
{
    const RankClass *rc = &sim->classes.ranks[class_];
    r->id = class_;
    r->rc = rc;
    r->role = &sim->g->roles[rc->role];
    r->cost = costs_for(sim, rc->place.type->gpu, rc->speed, in_use);
    r->macro = PUSH_ARRAY(&sim->arena, Macro *, sim->g->segments_n + 1);
    path_setup(sim, r);
    r->lanes_left = LANE_HOST; /* every lane says once that it is at its end */
    r->stat = &sim->result->ranks[class_];
    *r->stat = (RankStat){
        .rank = rc->rank, .ranks_n = rc->ranks_n, .role = rc->role, .stage = r->role->stage
    };
}

static void setup_program(Sim *sim, Runner *r)
{
    r->program = sim->programs[r->rc->role];
    r->host_start = PUSH_ARRAY(&sim->arena, int64_t, r->role->instances_n + 1);
    sim->ops_total += r->role->ops_n;
    record_tracks(sim, r);
}

/* ---- hosts ---- */

/* Members stay in the order of their index in the group. */
static void host_add(Sim *sim, Host *h, Runner *r)
{
    const GroupSpec *spec = h->members_n ? &sim->g->groups[sim->g->host_group] : NULL;
    uint32_t at = h->members_n++;
    for (; at > 0; at--) {
        uint32_t before = sim->classes.ranks[h->member[at - 1]].rank;
        if (group_index(spec, before) < group_index(spec, r->rc->rank))
            break;
        h->member[at] = h->member[at - 1];
    }
    h->member[at] = r->id;
    r->host = h;
    h->instances_n =
        h->instances_n > r->role->instances_n ? h->instances_n : r->role->instances_n;
}

static Host *host_of(Sim *sim, const Runner *r)
{
    uint32_t spec = sim->g->host_group;
    uint32_t group = spec == NONE_U32 ? NONE_U32 : r->rc->group[spec];
    for (uint32_t i = 0; i < r->id && group != NONE_U32; i++)
        if (sim->runners[i].rc->group[spec] == group)
            return sim->runners[i].host;
    Host *h = &sim->hosts[sim->hosts_n++];
    uint32_t n = group == NONE_U32 ? 1 : sim->classes.groups[group].members_n;
    h->member = PUSH_ARRAY(&sim->arena, uint32_t, n);
    GROW(h->anchors, h->anchors_n, h->anchors_cap);
    h->now_ns = start_of(sim, r);
    h->anchors[h->anchors_n++] = (Anchor){ .at_ns = h->now_ns };
    return h;
}

static void setup_hosts(Sim *sim)
{
    sim->hosts = PUSH_ARRAY(&sim->arena, Host, sim->runners_n);
    for (uint32_t i = 0; i < sim->runners_n; i++)
        host_add(sim, host_of(sim, &sim->runners[i]), &sim->runners[i]);
    for (uint32_t i = 0; i < sim->hosts_n; i++)
        for (uint32_t t = 0; t < sim->hosts[i].members_n; t++)
            sim->runners[sim->hosts[i].member[t]].host_turn = t;
}

/* In programs, or the first that is like one that is. */
static bool *segments_in_use(Sim *sim)
{
    bool *in_use = PUSH_ARRAY(&sim->arena, bool, sim->g->segments_n + 1);
    for (uint32_t i = 0; i < sim->g->roles_n; i++)
        for (uint32_t k = 0; k < sim->g->roles[i].instances_n; k++)
            in_use[sim->g->roles[i].instances[k].segment] = true;
    for (uint32_t i = 0; i < sim->g->segments_n; i++)
        if (in_use[i])
            in_use[sim->same[i]] = true;
    return in_use;
}

static bool check_size(Sim *sim)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < sim->g->world_n; i++) {
        total += graph_role_of(sim->g, i)->ops_n;
        if (total > SIM_OPS_MAX)
            return err_set(
                sim->err,
                "simulating every one of %u ranks takes more than %" PRIu64
                " op instances, which is the limit; without jitter and --expand-ranks equal"
                " ranks are simulated once",
                sim->g->world_n, SIM_OPS_MAX);
    }
    return true;
}

/* Which runners touch each link. */
static void index_sharers(Sim *sim)
{
    uint32_t n = sim->classes.resources_n;
    uint32_t *first = PUSH_ARRAY(&sim->arena, uint32_t, n + 2);
    for (uint32_t i = 0; i < sim->runners_n * RES_RANK_N; i++) {
        uint32_t link = sim->classes.ranks[i / RES_RANK_N].resource[i % RES_RANK_N];
        if (link != NONE_U32)
            first[link + 2]++;
    }
    for (uint32_t i = 2; i <= n; i++)
        first[i] += first[i - 1];
    sim->sharers = PUSH_ARRAY(&sim->arena, uint32_t, sim->runners_n * RES_RANK_N);
    for (uint32_t i = 0; i < sim->runners_n * RES_RANK_N; i++) {
        uint32_t link = sim->classes.ranks[i / RES_RANK_N].resource[i % RES_RANK_N];
        if (link != NONE_U32)
            sim->sharers[first[link + 1]++] = i / RES_RANK_N;
    }
    sim->sharers_first = first;
}

/* Numbers the collectives by kind and bytes, all that their cost in a group depends on. */
static void index_collectives(Sim *sim)
{
    const Graph *g = sim->g;
    uint32_t slots_n = 16, comms_n = 0;
    for (uint32_t i = 0; i < g->ops_n; i++)
        comms_n += op_is_collective(g->ops[i].kind);
    while (slots_n < 2 * comms_n)
        slots_n *= 2;
    uint32_t *first = PUSH_ARRAY(&sim->arena, uint32_t, slots_n); /* op + 1 */
    sim->comm_key = PUSH_ARRAY(&sim->arena, uint32_t, g->ops_n + 1);
    for (uint32_t i = 0; i < g->ops_n; i++) {
        const Op *o = &g->ops[i];
        if (op_is_p2p(o->kind))
            sim->comm_key[i] = sim->sends_n++;
        if (!op_is_collective(o->kind))
            continue;
        uint32_t at = (uint32_t)mix_u64(o->u.comm.bytes * 32 + (uint64_t)o->kind);
        const Op *same = NULL;
        for (at &= slots_n - 1; first[at]; at = (at + 1) & (slots_n - 1)) {
            same = &g->ops[first[at] - 1];
            if (same->kind == o->kind && same->u.comm.bytes == o->u.comm.bytes &&
                same->u.comm.of == o->u.comm.of)
                break;
        }
        if (!first[at]) {
            first[at] = i + 1;
            sim->comm_key[i] = sim->comm_keys_n++;
        } else {
            sim->comm_key[i] = sim->comm_key[first[at] - 1];
        }
    }
}

static void setup_links(Sim *sim)
{
    uint32_t n = sim->classes.resources_n;
    sim->on_link = PUSH_ARRAY(&sim->arena, uint32_t *, n + 1);
    sim->on_link_n = PUSH_ARRAY(&sim->arena, uint32_t, n + 1);
    sim->on_link_cap = PUSH_ARRAY(&sim->arena, uint32_t, n + 1);
    sim->direct = PUSH_ARRAY(&sim->arena, uint32_t, n + 1);
    sim->held_n = PUSH_ARRAY(&sim->arena, uint32_t, n + 1);
    sim->macros_n = PUSH_ARRAY(&sim->arena, uint32_t, n + 1);
    sim->link_looked = PUSH_ARRAY(&sim->arena, uint64_t, n + 1);
    index_sharers(sim);
    maxmin_space(&sim->space, n + 1, &sim->arena);
    sim->meetings =
        PUSH_ARRAY(&sim->arena, Meeting, (size_t)sim->classes.groups_n * LANE_N + 1);
    index_collectives(sim);
    sim->comm_cache = PUSH_ARRAY(&sim->arena, CommCost *, sim->classes.groups_n + 1);
}

bool sim_setup_costs(Sim *sim)
{
    const Graph *g = sim->g;
    ASSERT(g->sealed);
    bool expand = sim->options->expand_ranks || sim->m->jitter > 0;
    if (expand && !check_size(sim))
        return false;
    if (!classes_make(&sim->classes, g, sim->m, sim->sw->ring_nics, expand, sim->err))
        return false;
    index_lanes(sim);
    segments_same(sim);
    const bool *in_use = segments_in_use(sim);
    sim->runners_n = sim->classes.ranks_n;
    sim->runners = PUSH_ARRAY(&sim->arena, Runner, sim->runners_n);
    sim->costs = PUSH_ARRAY(&sim->arena, CostTable, sim->runners_n);
    sim->result->ranks_n = sim->runners_n;
    sim->result->ranks = PUSH_ARRAY(&sim->result->arena, RankStat, sim->runners_n);
    setup_links(sim);
    for (uint32_t i = 0; i < sim->runners_n; i++)
        setup_runner(sim, &sim->runners[i], i, in_use);
    return true;
}

bool sim_setup(Sim *sim)
{
    if (!sim_setup_costs(sim))
        return false;
    runs_index(sim);
    index_roles(sim);
    chains_index(sim);
    for (uint32_t i = 0; i < sim->runners_n; i++)
        setup_program(sim, &sim->runners[i]);
    setup_hosts(sim);
    if (sim->timeline)
        sim->timeline->ranks_n = sim->g->world_n;
    links_begin(sim);
    return true;
}

void sim_teardown(Sim *sim)
{
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        Runner *r = &sim->runners[i];
        for (uint32_t k = 0; k < r->channels_n; k++)
            free(r->channels[k].posts);
        free(r->channels);
    }
    for (uint32_t i = 0; i < sim->hosts_n; i++)
        free(sim->hosts[i].anchors);
    for (uint32_t i = 0; sim->on_link && i < sim->classes.resources_n; i++)
        free(sim->on_link[i]);
    links_end(sim);
    steady_end(sim);
    free(sim->flows);
    free(sim->free_flows);
    free(sim->component);
    free(sim->demands);
    free(sim->rates);
    free(sim->todo);
    evq_free(&sim->events);
    classes_free(&sim->classes);
    arena_free(&sim->arena);
}
