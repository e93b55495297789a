/*
 * blocks_redo.c - what backward makes again of a block, by the scenario and the stack's habits.
 *
 *     none           nothing, or activation functions, as a compiler does (activations_again)
 *     full           everything, or everything that backward needs (stops_early)
 *     selective      attention, norm, activation    of these kinds
 *                    op            all but attention and every second matmul (torchtitan)
 *                    all_but_qkv   all but q, k and v as attention reads them, and as they are
 *                                  projected where q and k are normed between (MaxText)
 *                    latent_up     of latent attention what makes q, k and v of the latents, and
 *                                  not attention (Megatron Core's mla_up_proj)
 *
 * What makes values alike out of them stands in sim/draft_back.c.
 */
#include <string.h>

#include "sim/blocks.h"

static bool is_named(const TapeOp *op, const char *name)
{
    return strcmp(op->name, name) == 0;
}

/*
 * torchtitan's policy counts calls of aten.mm as they come and makes every second one again.  Of
 * gate and up that is one (both go one way where a bias is added to them in place), q, k and v go
 * the way of q.  Matmuls with a bias and those of experts are other ops in torch, which it
 * neither counts nor keeps; here they are matmuls like any.
 */
static Redo redo_matmul(const Build *b, const TapeOp *op, uint32_t matmul)
{
    if (matmul_parts(b, op->name) == 2 && !b->s->model.u.transformer.mlp_bias)
        return REDO_PART;
    if (matmul % 2 == 1)
        return REDO_ALL;
    return b->s->training.compiled ? REDO_NOTHING : REDO_KEEP;
}

/* What eager mode has kept it keeps, needed or not; compiled, nothing unneeded is.  What is not on
 * torchtitan's list, all-gathers, is done again. */
static Redo redo_comm(const Build *b, const TapeOp *op)
{
    if (b->sw->selective_op && op->forward == OP_ALL_GATHER)
        return REDO_ALL;
    bool listed = b->sw->selective_op && op->forward == OP_REDUCE_SCATTER;
    return listed && !b->s->training.compiled ? REDO_KEEP : REDO_NOTHING;
}

/* What stands between the projections and attention: query_proj and key_proj are named there. */
static bool is_projection(const TapeOp *op)
{
    return is_named(op, NAME_QKV) || op->kind == OP_ROPE || is_named(op, NAME_QK_NORM);
}

/* From the normed latents to what attention reads (blocks_latent.c). */
static bool is_latent_up(const TapeOp *op)
{
    static const char *const names[] = { "attention.q_up",        "attention.q_rope",
                                         "attention.kv_up",       "attention.k_rope",
                                         "attention.k_positions", "attention.keys" };
    for (size_t i = 0; i < ARRAY_N(names); i++)
        if (is_named(op, names[i]))
            return true;
    return false;
}

/* A compiler makes activation functions again, whatever it is asked to do again besides. */
static bool compiler_redoes(const Build *b, const TapeOp *op)
{
    return op->kind == OP_ACTIVATION && b->sw->activations_again && fusion_of(b).elementwise;
}

/* matmul: how many matmuls of the block came before. */
static Redo redo_of(const Build *b, const TapeOp *op, uint32_t matmul)
{
    const Software *sw = b->sw;
    if (b->s->training.recompute != RECOMPUTE_SELECTIVE)
        return REDO_ALL;
    if (sw->selective_all_but_qkv)
        return is_projection(op) ? REDO_NOTHING : REDO_ALL;
    if (op->is_comm)
        return redo_comm(b, op);
    bool ups = sw->selective_latent_up && b->s->model.u.transformer.kv_rank > 0;
    if (ups && is_latent_up(op))
        return REDO_ALL;
    if (op->kind == OP_ATTENTION)
        return sw->selective_attention && !ups ? REDO_AUX : REDO_NOTHING;
    if (op->kind == OP_MATMUL)
        return sw->selective_op ? redo_matmul(b, op, matmul) : REDO_NOTHING;
    bool again = sw->selective_op || (op->kind == OP_NORM && sw->selective_norm) ||
                 (op->kind == OP_ACTIVATION && sw->selective_activation) ||
                 compiler_redoes(b, op);
    return again ? REDO_ALL : REDO_NOTHING;
}

/* gate_up: gate is kept, up made again. */
static RedoPart second_half(Build *b, const TapeOp *op, const TapeValue *y)
{
    int stem = (int)(strlen(op->name) - strlen("gate_up"));
    return (RedoPart){ .columns = y->columns / 2,
                       .kept_name = arena_printf(&b->arena, "%.*sgate", stem, op->name),
                       .name = arena_printf(&b->arena, "%.*sup", stem, op->name) };
}

static void choose_plain_redo(Build *b, BlockPlan *plan)
{
    const Tape *t = &plan->tape;
    if (!b->sw->activations_again || !fusion_of(b).elementwise)
        return;
    plan->plain_redo = PUSH_ARRAY(&b->arena, Redo, t->ops_n);
    for (uint32_t i = 0; i < t->ops_n; i++)
        plan->plain_redo[i] = compiler_redoes(b, &t->ops[i]) ? REDO_ALL : REDO_NOTHING;
}

static bool stops_early(const Build *b)
{
    bool mixed =
        build_formats(b).reduce == DTYPE_F32 && dtype_bytes(act_dtype(&b->s->training)) == 2;
    return b->sw->recompute_stops_early || (b->sw->f32_reduce_stops_early && mixed);
}

void choose_redo(Build *b, BlockPlan *plan)
{
    choose_plain_redo(b, plan);
    const Tape *t = &plan->tape;
    Recompute recompute = b->s->training.recompute;
    bool layer = plan->kind == BLOCK_LAYER && !t->has_loss;
    uint32_t first = layer ? 0 : plan->redo_first, end = layer ? t->ops_n : plan->redo_end;
    if (first == end || recompute == RECOMPUTE_NONE)
        return;
    plan->redo_all = recompute != RECOMPUTE_SELECTIVE && !stops_early(b);
    plan->redo = PUSH_ARRAY(&b->arena, Redo, t->ops_n);
    plan->parts = PUSH_ARRAY(&b->arena, RedoPart, t->values_n);
    uint32_t matmuls = 0;
    for (uint32_t i = first; i < end; i++) {
        const TapeOp *op = &t->ops[i];
        plan->redo[i] = redo_of(b, op, matmuls);
        if (plan->redo[i] == REDO_PART)
            plan->parts[op->out] = second_half(b, op, &t->values[op->out]);
        if (op->kind == OP_MATMUL)
            matmuls += matmul_parts(b, op->name);
    }
}
