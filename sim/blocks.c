/*
 * blocks.c - from a model to blocks and their types; ops that all models use.
 */
#include "sim/blocks.h"

#include <stdlib.h>
#include <string.h>

DType matmul_dtype(const Training *t)
{
    return t->precision == DTYPE_FP8 ? act_dtype(t) : t->precision;
}

/* Is there a kernel that scales and masks the scores, and makes them weights? */
static bool has_softmax_kernel(const Build *b)
{
    const Software *sw = b->sw;
    const Parallel *p = &b->s->parallel;
    uint32_t multiple = sw->softmax_multiple, longest = sw->softmax_longest;
    if (sw->softmax_chain || b->s->model.kind != MODEL_TRANSFORMER)
        return !sw->softmax_chain;
    uint64_t heads =
        (uint64_t)b->s->training.micro_batch * b->s->model.u.transformer.heads / p->tp;
    uint32_t keys = b->s->training.seq_len, queries = keys / p->cp;
    bool limited = multiple > 0 || longest > 0;
    return (!limited || act_dtype(&b->s->training) != DTYPE_F32) &&
           (multiple == 0 || (heads % multiple == 0 && queries % multiple == 0)) &&
           (longest == 0 || keys <= longest);
}

Fusion fusion_of(const Build *b)
{
    bool compiled = b->s->training.compiled;
    Fusion f = { .gated = compiled || b->sw->fused_gated,
                 .elementwise = compiled || b->sw->fused_elementwise,
                 .residual_norm = compiled || b->sw->fused_residual_norm,
                 .norm_chain = !compiled && b->sw->norm_chain,
                 .rope_chain = !compiled && b->sw->rope_chain,
                 .softmax_chain = !compiled && !has_softmax_kernel(b) };
    f.softmax_f32 =
        f.softmax_chain && !b->sw->softmax_chain && act_dtype(&b->s->training) != DTYPE_F32;
    const Model *m = &b->s->model;
    f.gelu_chain = !compiled && b->sw->gelu_new_chain && m->kind == MODEL_TRANSFORMER &&
                   m->u.transformer.gelu_new && !m->u.transformer.gated;
    f.norms = f.residual_norm && !f.norm_chain;
    return f;
}

bool casts_each(const Build *b)
{
    return build_formats(b).casts && !fusion_of(b).norms;
}

bool has_dropout(const Build *b)
{
    const Model *m = &b->s->model;
    bool says = m->kind == MODEL_TRANSFORMER && m->u.transformer.dropout;
    return b->sw->dropout || (b->sw->model_dropout && says);
}

/* ---- ops that several models use ---- */

uint32_t tape_bias(Build *b, Tape *t, uint32_t x, const char *name)
{
    uint32_t p = tape_param(t, arena_printf(&b->arena, "%s.bias", name), build_formats(b).read,
                            1, t->values[x].columns);
    t->values[p].kv_columns = t->values[x].kv_columns;
    return tape_in_place(t, (TapeOp){ .kind = OP_BIAS,
                                      .name = arena_printf(&b->arena, "%s bias", name),
                                      .dtype = t->values[x].dtype,
                                      .in_n = 1,
                                      .in = { x },
                                      .param_n = 1,
                                      .param = { p } });
}

/* A row of it for each of so many experts. */
uint32_t tape_expert_bias(Build *b, Tape *t, uint32_t x, const char *name, uint64_t groups)
{
    uint32_t y = tape_bias(b, t, x, name);
    TapeValue *bias = &t->values[t->ops[t->ops_n - 1].param[0]];
    bias->rows = groups;
    bias->expert = experts_apart(b);
    return y;
}

static uint32_t tape_cast(Tape *t, uint32_t x, const char *op, const char *made, DType dtype)
{
    TapeValue v = t->values[x];
    uint32_t y = tape_made(t, made, dtype, v.rows, v.columns);
    tape_op(
        t, (TapeOp){
               .kind = OP_CAST, .name = op, .dtype = dtype, .in_n = 1, .in = { x }, .out = y });
    return y;
}

uint32_t tape_narrow(Build *b, Tape *t, uint32_t x)
{
    DType act = act_dtype(&b->s->training);
    bool narrow = t->values[x].dtype == act;
    return narrow ? x : tape_cast(t, x, "autocast", "autocast input", act);
}

uint32_t tape_narrow_for(Build *b, Tape *t, uint32_t x, const char *matmul)
{
    uint32_t y = tape_narrow(b, t, x);
    if (y != x && casts_each(b) && !fusion_of(b).elementwise)
        t->values[y].copies = matmul_parts(b, matmul);
    return y;
}

uint32_t tape_quantize(Build *b, Tape *t, uint32_t x)
{
    bool fp8 = b->s->training.precision == DTYPE_FP8;
    return fp8 ? tape_cast(t, x, "quantize", "fp8 input", DTYPE_FP8) : x;
}

uint32_t tape_linear(Build *b, Tape *t, uint32_t x, const LinearSpec *spec)
{
    uint64_t each = spec->groups ? spec->groups : 1;
    uint32_t w = tape_param(t, arena_printf(&b->arena, "%s.weight", spec->name),
                            build_formats(b).read, each * spec->columns, t->values[x].columns);
    t->values[w].expert = spec->groups > 0 && experts_apart(b);
    t->values[w].kv_columns = spec->kv_columns;
    const Training *training = &b->s->training;
    DType precision = spec->quantized ? training->precision : matmul_dtype(training);
    t->values[w].quantized = precision == DTYPE_FP8;
    uint32_t y = tape_matmul(t, spec->name, precision, x, w, spec->tp);
    t->ops[t->ops_n - 1].groups = spec->groups;
    t->values[y].columns = spec->columns;
    t->values[y].dtype = act_dtype(training);
    t->values[y].kv_columns = spec->kv_columns;
    if (spec->bias && spec->groups)
        return tape_expert_bias(b, t, y, spec->name, spec->groups);
    return spec->bias ? tape_bias(b, t, y, spec->name) : y;
}

uint32_t tape_dropout(Build *b, Tape *t, uint32_t x)
{
    TapeValue v = t->values[x];
    TapeOp op = { .kind = OP_SCALE,
                  .name = "dropout",
                  .dtype = v.dtype,
                  .in_n = 1,
                  .in = { x },
                  .idle = !has_dropout(b) };
    if (!op.idle) {
        op.aux[0] = tape_made(t, "dropout mask", DTYPE_MASK, v.rows, v.columns);
        op.aux_n = 1;
    }
    return tape_in_place(t, op);
}

uint32_t tape_add(Build *b, Tape *t, uint32_t x, uint32_t y)
{
    (void)b;
    TapeValue v = t->values[x];
    uint32_t out = tape_made(t, "residual", v.dtype, v.rows, v.columns);
    tape_op(t, (TapeOp){ .kind = OP_ADD,
                         .name = "residual",
                         .dtype = v.dtype,
                         .in_n = 2,
                         .in = { x, y },
                         .out = out });
    return out;
}

static OpFn activation_fn(Activation act, bool gated)
{
    static const OpFn plain[ACT_N] = {
        [ACT_GELU] = FN_GELU, [ACT_RELU] = FN_RELU, [ACT_RELU2] = FN_RELU2, [ACT_SILU] = FN_SILU
    };
    if (!gated)
        return plain[act];
    return act == ACT_SILU ? FN_GATED_SILU : FN_GATED_GELU;
}

/*
 * What autograd keeps of gelu_new, y = 0.5 x (1 + tanh(...)): the tanh, the two factors and x,
 * which torch.autocast casts to f32 for pow and keeps so.
 */
static void gelu_factors(Build *b, Tape *t, TapeOp *op, uint64_t columns)
{
    TapeValue x = t->values[op->in[0]];
    DType wide = build_formats(b).casts ? DTYPE_F32 : x.dtype;
    op->chain = true;
    if (wide != x.dtype)
        op->aux[op->aux_n++] = tape_made(t, "gelu input", wide, x.rows, columns);
    op->aux[op->aux_n++] = tape_made(t, "gelu tanh", wide, x.rows, columns);
    op->aux[op->aux_n++] = tape_made(t, "gelu factor", wide, x.rows, columns);
    op->aux[op->aux_n++] = tape_made(t, "gelu half", x.dtype, x.rows, columns);
}

/* Gated: x holds gate and up side by side.  Unfused, act(gate) is a tensor too, and saved. */
uint32_t tape_activation(Build *b, Tape *t, uint32_t x, Activation act, bool gated)
{
    TapeValue v = t->values[x];
    uint64_t columns = gated ? v.columns / 2 : v.columns;
    TapeOp op = { .kind = OP_ACTIVATION,
                  .fn = activation_fn(act, gated),
                  .name = "activation",
                  .dtype = v.dtype,
                  .in_n = 1,
                  .in = { x } };
    op.out = tape_made(t, "activation", v.dtype, v.rows, columns);
    if (gated && !fusion_of(b).gated) {
        op.aux[0] = tape_made(t, "activated gate", v.dtype, v.rows, columns);
        op.aux_n = 1;
    }
    if (op.fn == FN_GELU && fusion_of(b).gelu_chain)
        gelu_factors(b, t, &op, columns);
    tape_op(t, op);
    return op.out;
}

uint32_t tape_mlp(Build *b, Tape *t, uint32_t x, const MlpSpec *spec)
{
    const Transformer *m = &b->s->model.u.transformer;
    uint32_t up = tape_linear(
        b, t, tape_quantize(b, t, x),
        &(LinearSpec){ .name = spec->up,
                       .columns = m->gated ? 2 * spec->ffn : spec->ffn,
                       .bias = spec->groups > 0 ? transformer_experts_bias(m) : m->mlp_bias,
                       .quantized = true,
                       .groups = spec->groups,
                       .tp = spec->whole ? TP_FOLLOW : TP_COLUMN });
    uint32_t y = tape_activation(b, t, up, m->activation, m->gated);
    return tape_linear(b, t, tape_quantize(b, t, y),
                       &(LinearSpec){ .name = spec->down,
                                      .columns = m->hidden,
                                      .quantized = true,
                                      .groups = spec->groups,
                                      .tp = spec->whole ? TP_FOLLOW : TP_ROW });
}

static uint32_t loss_value(Tape *t)
{
    t->has_loss = true;
    t->out = NONE_U32;
    return tape_made(t, "loss", DTYPE_F32, 1, 1);
}

void tape_mse(Build *b, Tape *t, uint32_t prediction, uint32_t target)
{
    (void)b;
    uint32_t loss = loss_value(t);
    tape_op(t, (TapeOp){ .kind = OP_MSE,
                         .name = "loss",
                         .dtype = t->values[prediction].dtype,
                         .in_n = 2,
                         .in = { prediction, target },
                         .out = loss,
                         .is_loss = true });
}

/*
 * Fused: one pass over the logits leaves their gradient in place, or (keeps_logits) one in
 * backward leaves it beside them.  Unfused: the logarithm of the softmax is a tensor of its own,
 * in f32 when the logits are copied to f32 first.
 */
void tape_cross_entropy(Build *b, Tape *t, uint32_t logits, uint32_t target)
{
    TapeValue v = t->values[logits];
    TapeOp op = { .kind = OP_CROSS_ENTROPY,
                  .name = "loss",
                  .dtype = DTYPE_F32,
                  .in_n = 2,
                  .in = { logits, target },
                  .is_loss = true,
                  .fused_loss = b->sw->fused_cross_entropy && !b->sw->keeps_logits };
    op.out = loss_value(t);
    if (!b->sw->fused_cross_entropy) {
        DType kept = b->sw->f32_logits ? DTYPE_F32 : v.dtype;
        op.aux[0] = tape_made(t, "log softmax", kept, v.rows, v.columns);
        op.aux_n = 1;
    }
    tape_op(t, op);
}

uint32_t tape_batchnorm(Build *b, Tape *t, uint32_t x, const char *name)
{
    TapeValue v = t->values[x];
    DType dtype = build_formats(b).read;
    TapeOp op = { .kind = OP_BATCHNORM,
                  .name = name,
                  .dtype = v.dtype,
                  .in_n = 1,
                  .in = { x },
                  .param_n = 2,
                  .aux_n = 1 };
    op.param[0] =
        tape_param(t, arena_printf(&b->arena, "%s.weight", name), dtype, 1, v.columns);
    op.param[1] = tape_param(t, arena_printf(&b->arena, "%s.bias", name), dtype, 1, v.columns);
    op.aux[0] = tape_made(t, "batch statistics", DTYPE_F32, 2, v.columns);
    op.out = tape_made(t, name, v.dtype, v.rows, v.columns);
    tape_op(t, op);
    return op.out;
}

/* ---- plans ---- */

BlockPlan *plan_type(Build *b, ModelPlan *p, const char *name, BlockKind kind)
{
    GROW(p->types, p->types_n, p->types_cap);
    BlockPlan *plan = &p->types[p->types_n++];
    *plan = (BlockPlan){ .name = name,
                         .kind = kind,
                         .tape = { .arena = &b->arena, .in = NONE_U32, .out = NONE_U32 } };
    return plan;
}

/* Blocks are pushed in order; the array has been sized by the caller. */
void plan_block(Build *b, BlockKind kind, uint32_t layer, uint32_t type)
{
    b->blocks[b->blocks_n] =
        (Block){ .kind = kind, .layer = layer, .type = type, .frame_of = b->blocks_n };
    b->blocks_n++;
}

uint32_t matmul_parts(const Build *b, const char *name)
{
    static const char *const pairs[] = { NAME_GATE_UP, NAME_EXPERTS_GATE_UP,
                                         NAME_SHARED_GATE_UP };
    const Software *sw = b->sw;
    const Model *m = &b->s->model;
    bool apart = sw->gated_qkv_apart && m->kind == MODEL_TRANSFORMER && m->u.transformer.gated;
    if (strcmp(name, NAME_QKV) == 0)
        return sw->fused_qkv && !apart ? 1 : 3;
    for (size_t i = 0; i < ARRAY_N(pairs); i++)
        if (strcmp(name, pairs[i]) == 0)
            return sw->fused_gate_up ? 1 : 2;
    return 1;
}

/* ---- all of it ---- */

static bool plan_model(Build *b, ModelPlan *p, Err *err)
{
    switch (b->s->model.kind) {
    case MODEL_TRANSFORMER:
        return plan_transformer(b, p, err);
    case MODEL_MLP:
        return plan_mlp(b, p, err);
    case MODEL_CONVNET:
        return plan_convnet(b, p, err);
    }
    return false;
}

static void note_boundary(Build *b)
{
    b->boundary_layout = b->types[b->blocks[0].type].out_layout;
    b->boundary_bytes = 0;
    if (b->boundary_layout == NONE_U32)
        return;
    const Layout *l = &b->g->layouts[b->boundary_layout];
    b->boundary_bytes = b->g->tensors[l->tensor_first].bytes;
}

bool build_blocks(Build *b, Err *err)
{
    ModelPlan plan = { 0 };
    bool ok = b->s->parallel.cp == 1 || b->s->model.kind == MODEL_TRANSFORMER;
    if (!ok)
        err_set(err,
                "context parallelism (cp = %" PRIu32 ") splits the sequences of "
                "transformers only; cp = 1 is allowed",
                b->s->parallel.cp);
    ok = ok && plan_model(b, &plan, err);
    for (uint32_t i = 0; ok && i < plan.types_n; i++)
        ok = tensor_split(b, &plan.types[i].tape, err);
    bool casts = build_formats(b).casts;
    for (uint32_t i = 0; ok && casts && i < plan.types_n; i++)
        tape_cast_weights(&plan.types[i].tape, act_dtype(&b->s->training));
    for (uint32_t i = 0; ok && i < plan.types_n; i++)
        choose_redo(b, &plan.types[i]);
    if (ok) {
        make_segments(b, &plan);
        note_boundary(b);
    }
    for (uint32_t i = 0; i < plan.types_n; i++)
        tape_free(&plan.types[i].tape);
    free(plan.types);
    return ok;
}
