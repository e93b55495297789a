/*
 * graph_dump.c - a graph as JSON, for people and tests.
 *
 * One object: groups, segments with their ops, roles with their instances.
 * Indices are those of the Graph, so a dump can be followed by hand.
 */
#include "core/graph.h"
#include "core/json_out.h"
#include "core/out_file.h"

static void optional(JsonOut *j, const char *key, uint32_t value)
{
    if (value != NONE_U32)
        json_put_uint(j, key, value);
}

static void dump_group(JsonOut *j, const Graph *g, const GroupSpec *s)
{
    json_out_open(j, '{');
    json_put_text(j, "name", intern_text(&g->names, s->name));
    json_put_uint(j, "size", group_size(s));
    json_put_open(j, "dims", '[');
    for (uint32_t d = 0; d < s->dims_n; d++) {
        json_out_open(j, '{');
        json_put_uint(j, "stride", s->dims[d].stride);
        json_put_uint(j, "extent", s->dims[d].extent);
        json_put_uint(j, "step", s->dims[d].step);
        json_put_uint(j, "count", s->dims[d].count);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
    if (s->sent_once > 0)
        json_put_number(j, "sent_once", s->sent_once);
    json_out_close(j, '}');
}

/* Flags are left out where they are false, counts where 0 is usual. */
static void put_flag(JsonOut *j, const char *key, bool x)
{
    if (x)
        json_put_bool(j, key, x);
}

static void put_some(JsonOut *j, const char *key, uint64_t x)
{
    if (x > 0)
        json_put_uint(j, key, x);
}

static void dump_matmul(JsonOut *j, const MatmulShape *m)
{
    json_put_uint(j, "m", m->m);
    json_put_uint(j, "n", m->n);
    json_put_uint(j, "k", m->k);
    json_put_uint(j, "batch", m->batch);
    put_flag(j, "transpose_a", m->transpose_a);
    put_flag(j, "transpose_b", m->transpose_b);
    put_flag(j, "accumulate", m->accumulate);
    put_some(j, "of", m->of);
}

static void dump_attention(JsonOut *j, const AttentionShape *a)
{
    json_put_uint(j, "batch", a->batch);
    json_put_uint(j, "heads", a->heads);
    json_put_uint(j, "kv_heads", a->kv_heads);
    json_put_uint(j, "seq_q", a->seq_q);
    json_put_uint(j, "seq_k", a->seq_k);
    json_put_uint(j, "head_dim", a->head_dim);
    put_some(j, "value_dim", a->value_dim);
    put_flag(j, "causal", a->causal);
    put_some(j, "window", a->window);
}

static void dump_comm(JsonOut *j, const Graph *g, const Op *op)
{
    const CommShape *c = &op->u.comm;
    json_put_uint(j, "bytes", c->bytes);
    json_put_text(j, "group", intern_text(&g->names, g->groups[c->group].name));
    if (op_is_p2p(op->kind) || op->kind == OP_BROADCAST || op->kind == OP_REDUCE)
        json_put_uint(j, "peer", c->peer);
    if (op_is_p2p(op->kind))
        json_put_uint(j, "tag", c->tag);
    put_some(j, "of", c->of);
    put_flag(j, "grouped", op->grouped);
}

static void dump_shape(JsonOut *j, const Graph *g, const Op *op)
{
    switch (op->kind) {
    case OP_MATMUL:
    case OP_CONV:
        dump_matmul(j, &op->u.matmul);
        break;
    case OP_ATTENTION:
        dump_attention(j, &op->u.attention);
        break;
    case OP_SOFTMAX:
    case OP_NORM:
    case OP_ACTIVATION:
    case OP_BIAS:
    case OP_ROPE:
    case OP_EMBEDDING:
    case OP_CROSS_ENTROPY:
    case OP_MSE:
    case OP_BATCHNORM:
    case OP_POOL:
        json_put_uint(j, "rows", op->u.rows.rows);
        json_put_uint(j, "columns", op->u.rows.columns);
        break;
    default:
        if (op_is_comm(op->kind))
            dump_comm(j, g, op);
        else
            put_some(j, "elements", op->u.elements);
    }
}

static void dump_args(JsonOut *j, const Graph *g, const Segment *s, const Op *op)
{
    static const char *const modes[] = { "read", "write", "update" };
    json_put_open(j, "args", '[');
    for (uint32_t a = 0; a < op->arg_n; a++) {
        const Arg *arg = &g->args[op->arg_first + a];
        const Tensor *t = graph_arg_tensor(g, s, arg);
        json_out_open(j, '{');
        json_put_text(j, "tensor", intern_text(&g->names, t->name));
        json_put_uint(j, "slot", arg->slot);
        json_put_uint(j, "index", arg->tensor);
        json_put_text(j, "mode", modes[arg->mode]);
        json_put_uint(j, "bytes", t->bytes);
        if (arg->born)
            json_put_text(j, "life", arg->dies ? "born and dies" : "born");
        else if (arg->dies)
            json_put_text(j, "life", "dies");
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void dump_op(JsonOut *j, const Graph *g, const Segment *s, const Op *op)
{
    json_out_open(j, '{');
    json_put_text(j, "name", intern_text(&g->names, op->name));
    json_put_text(j, "kind", op_kind_names[op->kind]);
    json_put_text(j, "phase", op_phase_names[op->phase]);
    if (op->fn != FN_NONE)
        json_put_text(j, "fn", op_fn_names[op->fn]);
    json_put_text(j, "dtype", dtype_names[op->dtype]);
    json_put_text(j, "lane", lane_names[op->lane]);
    json_put_uint(j, "logical", op->logical);
    if (op->logical_n) {
        json_put_open(j, "logicals", '[');
        for (uint32_t k = 0; k < op->logical_n; k++)
            json_out_int(j, g->logicals[op->logical_first + k]);
        json_out_close(j, ']');
    }
    json_put_uint(j, "part", op->part);
    dump_shape(j, g, op);
    json_put_number(j, "flops", op->flops);
    if (op->model_flops < op->flops || op->model_flops > op->flops)
        json_put_number(j, "model_flops", op->model_flops);
    json_put_uint(j, "read_bytes", op->read_bytes);
    json_put_uint(j, "write_bytes", op->write_bytes);
    dump_args(j, g, s, op);
    if (op->dep_n) {
        json_put_open(j, "deps", '[');
        for (uint32_t d = 0; d < op->dep_n; d++)
            json_out_int(j, g->deps[op->dep_first + d]);
        json_out_close(j, ']');
    }
    json_out_close(j, '}');
}

static void dump_segment(JsonOut *j, const Graph *g, const Segment *s)
{
    json_out_open(j, '{');
    json_put_text(j, "name", intern_text(&g->names, s->name));
    json_put_text(j, "kind", segment_kind_names[s->kind]);
    json_put_int(j, "memory_delta", s->memory_delta);
    json_put_int(j, "memory_peak", s->memory_peak);
    json_put_open(j, "ops", '[');
    for (uint32_t i = 0; i < s->op_n; i++)
        dump_op(j, g, s, graph_ops(g, s) + i);
    json_out_close(j, ']');
    json_out_close(j, '}');
}

static void dump_instance(JsonOut *j, const Role *role, const Instance *i)
{
    json_out_open(j, '{');
    json_put_uint(j, "segment", i->segment);
    json_put_uint(j, "first_op", i->first_op);
    optional(j, "micro_batch", i->micro_batch);
    optional(j, "layer", i->layer);
    optional(j, "chunk", i->chunk);
    if (i->edge_n) {
        json_put_open(j, "edges", '[');
        for (uint32_t e = 0; e < i->edge_n; e++) {
            const Edge *edge = &role->edges[i->edge_first + e];
            json_out_open(j, '{');
            json_put_uint(j, "op", edge->dst_op);
            json_put_uint(j, "after_instance", edge->src_instance);
            json_put_uint(j, "after_op", edge->src_op);
            json_out_close(j, '}');
        }
        json_out_close(j, ']');
    }
    json_out_close(j, '}');
}

static void dump_role(JsonOut *j, const Graph *g, const Role *role)
{
    json_out_open(j, '{');
    json_put_text(j, "name", intern_text(&g->names, role->name));
    json_put_uint(j, "stage", role->stage);
    json_put_uint(j, "ops", role->ops_n);
    json_put_open(j, "instances", '[');
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
    json_put_uint(&j, "ranks", g->world_n);
    json_put_open(&j, "groups", '[');
    for (uint32_t i = 0; i < g->groups_n; i++)
        dump_group(&j, g, &g->groups[i]);
    json_out_close(&j, ']');
    json_put_open(&j, "segments", '[');
    for (uint32_t i = 0; i < g->segments_n; i++)
        dump_segment(&j, g, &g->segments[i]);
    json_out_close(&j, ']');
    json_put_open(&j, "roles", '[');
    for (uint32_t i = 0; i < g->roles_n; i++)
        dump_role(&j, g, &g->roles[i]);
    json_out_close(&j, ']');
    json_out_close(&j, '}');
    Err ignored = { 0 }; /* commit says it with the file's name */
    json_out_end(&j, &ignored);
    return out_file_commit(&out, err);
}
