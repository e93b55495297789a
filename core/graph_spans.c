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
            bool collective = op_is_collective(o->kind);
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

/* ---- logical ops ---- */

static uint64_t hash_of_instance(const Graph *g, const Instance *i)
{
    const Segment *s = &g->segments[i->segment];
    uint64_t h = mix_u64(s->numbering ^ (uint64_t)s->kind);
    for (const char *c = intern_text(&g->names, s->name); *c; c++)
        h = mix_u64(h ^ (unsigned char)*c);
    h = mix_u64(h ^ i->micro_batch) ^ i->layer;
    return mix_u64(mix_u64(h) ^ i->chunk) | 1;
}

/* How often a hash has been seen. */
typedef struct Seen {
    uint64_t hash, n;
} Seen;

/* seen: size slots, half of them free, a hash of 0 in those. */
static uint64_t seen_before(Seen *seen, uint64_t size, uint64_t hash)
{
    uint64_t at = hash & (size - 1);
    while (seen[at].hash && seen[at].hash != hash)
        at = (at + 1) & (size - 1);
    seen[at].hash = hash;
    return seen[at].n++;
}

void role_logical_keys(uint64_t *keys, const Graph *g, const Role *role)
{
    uint64_t size = 16;
    while (size < 2 * (uint64_t)role->instances_n)
        size *= 2;
    Seen *seen = mem_zero(size, sizeof *seen);
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Instance *in = &role->instances[i];
        keys[i] = 0;
        if (g->segments[in->segment].numbering == 0)
            continue;
        uint64_t hash = hash_of_instance(g, in);
        keys[i] =
            mix_u64(hash ^ seen_before(seen, size, hash) << 1) % TIMELINE_LOGICAL_INSTANCES;
    }
    free(seen);
}

LogicalOps op_logical(const Graph *g, const Op *o, uint64_t key)
{
    if (key == 0)
        return (LogicalOps){ 0 };
    if (o->logical_n == 0)
        return (LogicalOps){ key, 1, &o->logical };
    return (LogicalOps){ key, o->logical_n, g->logicals + o->logical_first };
}
