/*
 * graph_spans.c - tracks by lane, span classes by op kind; see graph_spans.h.
 */
#include "core/graph_spans.h"

#include <stdlib.h>

void role_tracks(Timeline *t, const Graph *g, const Role *role, uint32_t rank, uint32_t ranks_n,
                 uint32_t track[LANE_N])
{
    bool used[LANE_N] = { [LANE_HOST] = true };
    for (uint32_t i = 0; i < role->instances_n; i++)
        for (uint32_t lane = 0; lane < LANE_N; lane++)
            used[lane] |= g->segments[role->instances[i].segment].lane_n[lane] > 0;
    for (uint32_t lane = 0; lane < LANE_N; lane++) {
        track[lane] = NONE_U32;
        if (!used[lane])
            continue;
        TrackKind kind = lane == LANE_HOST ? TRACK_HOST : TRACK_STREAM;
        int64_t sort = lane == LANE_HOST ? 0 : lane + 1;
        track[lane] = timeline_track(t, rank, kind, lane_names[lane], sort);
        t->tracks[track[lane]].ranks_n = ranks_n;
    }
}

SpanClass op_span_class(const Op *o)
{
    if (op_is_p2p(o->kind))
        return SPAN_P2P;
    if (op_is_comm(o->kind))
        return SPAN_COMM;
    return o->kind == OP_H2D || o->kind == OP_COPY || o->kind == OP_FILL ? SPAN_MEMORY
                                                                         : SPAN_COMPUTE;
}

void op_comm_numbers(uint32_t *out, const Graph *g, const Role *role)
{
    uint32_t posted[LANE_N] = { 0 }, at[LANE_N] = { 0 };
    uint32_t *of_group = mem_zero((size_t)g->groups_n + 1, sizeof *of_group);
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Instance *in = &role->instances[i];
        const Segment *s = &g->segments[in->segment];
        for (uint32_t k = 0; k < s->op_n; k++) {
            const Op *o = graph_ops(g, s) + k;
            bool collective = op_is_comm(o->kind) && !op_is_p2p(o->kind);
            out[in->first_op + k] = collective ? of_group[o->u.comm.group]++ : at[o->lane];
            posted[o->lane]++;
            at[o->lane] = o->grouped ? at[o->lane] : posted[o->lane];
        }
    }
    free(of_group);
}

Comm op_comm(Timeline *t, const Graph *g, const Op *o, uint32_t rank, uint32_t seq)
{
    const GroupSpec *spec = &g->groups[o->u.comm.group];
    bool p2p = op_is_p2p(o->kind);
    Comm c = comm_of(intern(&t->names, op_kind_names[o->kind]));
    c.group = intern(&t->names, intern_text(&g->names, spec->name));
    c.group_id = group_base(spec, rank);
    c.seq = seq;
    c.peer = p2p ? group_member(spec, rank, o->u.comm.peer) : NONE_U32;
    c.ranks_n = p2p ? 2 : group_size(spec);
    c.dtype = intern(&t->names, dtype_names[o->dtype]);
    c.bytes = o->u.comm.bytes;
    return c;
}
