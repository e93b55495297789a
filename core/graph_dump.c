/*
 * graph_dump.c - a graph as JSON, for people and tests.
 *
 * One object: groups, segments with their ops, roles with their instances.
 * Indices are those of the Graph, so a dump can be followed by hand.
 */
#include "core/graph.h"
#include "core/json_out.h"
#include "core/out_file.h"

static void field(JsonOut *j, const char *key, uint64_t value)
{
    json_out_key(j, key);
    json_out_int(j, (int64_t)value);
}

static void text(JsonOut *j, const char *key, const char *value)
{
    json_out_key(j, key);
    json_out_string(j, value);
}

static void optional(JsonOut *j, const char *key, uint32_t value)
{
    if (value != NONE_U32)
        field(j, key, value);
}

static void dump_group(JsonOut *j, const Graph *g, const GroupSpec *s)
{
    json_out_open(j, '{');
    text(j, "name", intern_text(&g->names, s->name));
    field(j, "size", group_size(s));
    json_out_key(j, "dims");
    json_out_open(j, '[');
    for (uint32_t d = 0; d < s->dims_n; d++) {
        json_out_open(j, '{');
        field(j, "stride", s->dims[d].stride);
        field(j, "extent", s->dims[d].extent);
        field(j, "step", s->dims[d].step);
        field(j, "count", s->dims[d].count);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
    json_out_close(j, '}');
}

static void dump_shape(JsonOut *j, const Graph *g, const Op *op)
{
    if (op->kind == OP_MATMUL || op->kind == OP_CONV) {
        field(j, "m", op->u.matmul.m);
        field(j, "n", op->u.matmul.n);
        field(j, "k", op->u.matmul.k);
        field(j, "batch", op->u.matmul.batch);
    } else if (op->kind == OP_ATTENTION) {
        field(j, "batch", op->u.attention.batch);
        field(j, "heads", op->u.attention.heads);
        field(j, "kv_heads", op->u.attention.kv_heads);
        field(j, "seq_q", op->u.attention.seq_q);
        field(j, "seq_k", op->u.attention.seq_k);
        field(j, "head_dim", op->u.attention.head_dim);
    } else if (op_is_comm(op->kind)) {
        field(j, "bytes", op->u.comm.bytes);
        text(j, "group", intern_text(&g->names, g->groups[op->u.comm.group].name));
        if (op_is_p2p(op->kind)) {
            field(j, "peer", op->u.comm.peer);
            field(j, "tag", op->u.comm.tag);
        }
    }
}

static void dump_args(JsonOut *j, const Graph *g, const Segment *s, const Op *op)
{
    static const char *const modes[] = { "read", "write", "update" };
    json_out_key(j, "args");
    json_out_open(j, '[');
    for (uint32_t a = 0; a < op->arg_n; a++) {
        const Arg *arg = &g->args[op->arg_first + a];
        const Tensor *t = graph_arg_tensor(g, s, arg);
        json_out_open(j, '{');
        text(j, "tensor", intern_text(&g->names, t->name));
        field(j, "slot", arg->slot);
        field(j, "index", arg->tensor);
        text(j, "mode", modes[arg->mode]);
        field(j, "bytes", t->bytes);
        if (arg->born)
            text(j, "life", arg->dies ? "born and dies" : "born");
        else if (arg->dies)
            text(j, "life", "dies");
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void dump_op(JsonOut *j, const Graph *g, const Segment *s, const Op *op)
{
    json_out_open(j, '{');
    text(j, "name", intern_text(&g->names, op->name));
    text(j, "kind", op_kind_names[op->kind]);
    text(j, "phase", op_phase_names[op->phase]);
    if (op->fn != FN_NONE)
        text(j, "fn", op_fn_names[op->fn]);
    text(j, "dtype", dtype_names[op->dtype]);
    text(j, "lane", lane_names[op->lane]);
    field(j, "logical", op->logical);
    field(j, "part", op->part);
    dump_shape(j, g, op);
    json_out_key(j, "flops");
    json_out_number(j, op->flops);
    field(j, "read_bytes", op->read_bytes);
    field(j, "write_bytes", op->write_bytes);
    dump_args(j, g, s, op);
    if (op->dep_n) {
        json_out_key(j, "deps");
        json_out_open(j, '[');
        for (uint32_t d = 0; d < op->dep_n; d++)
            json_out_int(j, g->deps[op->dep_first + d]);
        json_out_close(j, ']');
    }
    json_out_close(j, '}');
}

static void dump_segment(JsonOut *j, const Graph *g, const Segment *s)
{
    json_out_open(j, '{');
    text(j, "name", intern_text(&g->names, s->name));
    text(j, "kind", segment_kind_names[s->kind]);
    json_out_key(j, "memory_delta");
    json_out_int(j, s->memory_delta);
    json_out_key(j, "memory_peak");
    json_out_int(j, s->memory_peak);
    json_out_key(j, "ops");
    json_out_open(j, '[');
    for (uint32_t i = 0; i < s->op_n; i++)
        dump_op(j, g, s, graph_ops(g, s) + i);
    json_out_close(j, ']');
    json_out_close(j, '}');
}

static void dump_instance(JsonOut *j, const Role *role, const Instance *i)
{
    json_out_open(j, '{');
    field(j, "segment", i->segment);
    field(j, "first_op", i->first_op);
    optional(j, "micro_batch", i->micro_batch);
    optional(j, "layer", i->layer);
    optional(j, "chunk", i->chunk);
    if (i->edge_n) {
        json_out_key(j, "edges");
        json_out_open(j, '[');
        for (uint32_t e = 0; e < i->edge_n; e++) {
            const Edge *edge = &role->edges[i->edge_first + e];
            json_out_open(j, '{');
            field(j, "op", edge->dst_op);
            field(j, "after_instance", edge->src_instance);
            field(j, "after_op", edge->src_op);
            json_out_close(j, '}');
        }
        json_out_close(j, ']');
    }
    json_out_close(j, '}');
}

static void dump_role(JsonOut *j, const Graph *g, const Role *role)
{
    json_out_open(j, '{');
    text(j, "name", intern_text(&g->names, role->name));
    field(j, "stage", role->stage);
    field(j, "ops", role->ops_n);
    json_out_key(j, "instances");
    json_out_open(j, '[');
    for (uint32_t i = 0; i < role->instances_n; i++)
        dump_instance(j, role, &role->instances[i]);
    json_out_close(j, ']');
    json_out_close(j, '}');
}

bool graph_dump(const Graph *g, const char *path, Err *err)
{
    ASSERT(g->sealed);
    OutFile out;
    if (!out_file_open(&out, path, err))
        return false;
    JsonOut j = json_out_file(out.file, 1);
    json_out_open(&j, '{');
    field(&j, "ranks", g->world_n);
    json_out_key(&j, "groups");
    json_out_open(&j, '[');
    for (uint32_t i = 0; i < g->groups_n; i++)
        dump_group(&j, g, &g->groups[i]);
    json_out_close(&j, ']');
    json_out_key(&j, "segments");
    json_out_open(&j, '[');
    for (uint32_t i = 0; i < g->segments_n; i++)
        dump_segment(&j, g, &g->segments[i]);
    json_out_close(&j, ']');
    json_out_key(&j, "roles");
    json_out_open(&j, '[');
    for (uint32_t i = 0; i < g->roles_n; i++)
        dump_role(&j, g, &g->roles[i]);
    json_out_close(&j, ']');
    json_out_close(&j, '}');
    Err ignored = { 0 }; /* commit says it with the file's name */
    json_out_end(&j, &ignored);
    return out_file_commit(&out, err);
}
