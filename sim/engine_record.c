/*
 * engine_record.c - the timeline of a run: tracks per rank class, spans per op.
 *
 *     rank 0   steps | compute | tp | reduce | gather | send ... | memory | host
 *
 * A launch is a span on the host track, a kernel one on its lane's track; a
 * transfer says how long it waited.  The span's op is the op id of the graph.
 * Where one host drives several ranks, each rank's host track has the launches for
 * that rank, at their true times: laid over one another the tracks have no overlap.
 */
#include "core/graph_spans.h"
#include "sim/engine_state.h"

/* What spans of a role say besides: core/graph_spans.h.  NULL: not known yet. */
typedef struct Labels {
    uint32_t *comm_numbers; /* by op id */
    uint64_t *logical_keys; /* by instance */
} Labels;

static Labels *labels_of(const Sim *sim, const Runner *r)
{
    return &sim->labels[r->role - sim->g->roles];
}

static void find_labels(Sim *sim, const Runner *r)
{
    if (!sim->labels)
        sim->labels = PUSH_ARRAY(&sim->arena, Labels, sim->g->roles_n);
    Labels *l = labels_of(sim, r);
    if (l->comm_numbers)
        return;
    l->comm_numbers = PUSH_ARRAY(&sim->arena, uint32_t, r->role->ops_n + 1);
    op_comm_numbers(l->comm_numbers, sim->g, r->role);
    l->logical_keys = PUSH_ARRAY(&sim->arena, uint64_t, r->role->instances_n + 1);
    role_logical_keys(l->logical_keys, sim->g, r->role);
}

void record_tracks(Sim *sim, Runner *r)
{
    for (uint32_t lane = 0; lane < LANE_N; lane++)
        r->track[lane] = NONE_U32;
    if (!sim->timeline)
        return;
    find_labels(sim, r);
    role_tracks(sim->timeline, sim->g, r->role, r->rc->rank, r->rc->ranks_n, r->track);
}

static uint32_t comm_row(Sim *sim, const Runner *r, uint32_t lane, const Op *o, uint32_t op_id)
{
    Timeline *t = sim->timeline;
    const LaneState *l = &r->lane[lane];
    Comm c = op_comm(t, sim->g, o, r->rc->rank, labels_of(sim, r)->comm_numbers[op_id]);
    if (comm_has_algorithm(o->kind))
        c.algorithm = intern(&t->names, algorithm_names[l->algorithm]);
    c.protocol = intern(&t->names, protocol_names[l->protocol]);
    c.wait_ns = l->transfer_start_ns - l->start_ns;
    uint32_t comm = timeline_comm(t, c);
    timeline_set_ring(t, comm, o->u.comm.of);
    return comm;
}

void record_op(Sim *sim, Runner *r, uint32_t lane, uint32_t instance, uint32_t op)
{
    Timeline *t = sim->timeline;
    const Op *o = &sim->g->ops[op];
    if (!t || o->kind == OP_RELEASE)
        return;
    const Instance *in = &r->role->instances[instance];
    const Segment *s = &sim->g->segments[in->segment];
    uint32_t op_id = in->first_op + (op - s->op_first);
    uint32_t name = intern(&t->names, intern_text(&sim->g->names, o->name));
    const LaneState *l = &r->lane[lane];
    bool comm = op_is_comm(o->kind);
    uint64_t span =
        timeline_span(t, (Span){ .track = r->track[lane],
                                 .name = name,
                                 .class_ = op_span_class(o),
                                 .start_ns = l->start_ns,
                                 .dur_ns = sim->now_ns - l->start_ns,
                                 .op = op_id,
                                 .comm = comm ? comm_row(sim, r, lane, o, op_id) : NONE_U32 });
    timeline_set_logical(t, span,
                         op_logical(sim->g, o, labels_of(sim, r)->logical_keys[instance]));
    int64_t before = op > s->op_first ? r->cost->launch_after[op - 1] : 0;
    int64_t launch_ns = r->cost->launch_after[op] - before;
    if (launch_ns > 0)
        timeline_span(t, (Span){ .track = r->track[LANE_HOST],
                                 .name = name,
                                 .class_ = SPAN_LAUNCH,
                                 .start_ns = r->host_start[instance] + before,
                                 .dur_ns = launch_ns,
                                 .op = op_id,
                                 .comm = NONE_U32 });
}

void record_steps(Sim *sim)
{
    Timeline *t = sim->timeline;
    if (!t)
        return;
    uint32_t name = intern(&t->names, "0"); /* one step is simulated, the first */
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        const RankClass *rc = sim->runners[i].rc;
        uint32_t track = timeline_track(t, rc->rank, TRACK_STEPS, "steps", 0);
        t->tracks[track].ranks_n = rc->ranks_n;
        timeline_span(t, (Span){ .track = track,
                                 .name = name,
                                 .class_ = SPAN_STEP,
                                 .start_ns = start_of(sim, &sim->runners[i]),
                                 .dur_ns = sim->result->step_ns,
                                 .op = NONE_U32,
                                 .comm = NONE_U32 });
    }
}
