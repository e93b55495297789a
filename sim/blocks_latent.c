/*
 * blocks_latent.c - multi-head latent attention: what attention reads, out of narrow latents.
 *
 * DeepSeek-V2 (arXiv 2405.04434, section 2.1); the order of ops is that of Megatron Core
 * (megatron/core/transformer/multi_latent_attention.py), which for training makes whole keys and
 * values, as every stack does:
 *
 *     x -+- q_down -- norm -- q_up -------------- rope of a part of each head ------ q
 *        |
 *        +- kv_down -+- norm -- kv_up -- [each head's key, value] -+
 *                    |                                             +- keys --------- k v
 *                    +- k_positions -------------- rope -----------+
 *
 *     q_down     [hidden -> q_rank]; without q_rank one matmul makes q
 *     kv_down    [hidden -> kv_rank + rope_dim]: the last columns are one key's positions, which
 *                all heads share
 *     keys       puts those beside each head's own: keys and values are copied once.  A stack
 *                without kernels of its own for rope (rope_chain) turns both parts by ops of
 *                PyTorch and copies the queries as well (torch.cat); elsewhere what is turned of
 *                the keys is turned in this copy (fused_apply_mla_rope_for_kv).
 *
 * TENSOR PARALLELISM.  The down matmuls are held and done by every rank (TELinear, parallel_mode
 * "duplicated"), under sequence parallelism on its rows; so what is gathered are the latents and
 * the positions, not the layer's input.
 *
 * SAVED for backward: the latents before and after their norms, q, k and v; not kv_up's result.
 */
#include "sim/blocks_layer.h"

static uint32_t down(Maker *k, uint32_t x, const char *name, uint64_t columns)
{
    return tape_linear(
        k->b, k->t, x,
        &(LinearSpec){
            .name = name, .columns = columns, .bias = k->m->qkv_bias, .quantized = true });
}

static uint32_t up(Maker *k, uint32_t x, const char *name, uint64_t columns)
{
    return tape_linear(
        k->b, k->t, x,
        &(LinearSpec){ .name = name, .columns = columns, .quantized = true, .tp = TP_COLUMN });
}

/* The first `width` columns, normed and as matmuls read them. */
static uint32_t normed(Maker *k, uint32_t x, const char *name, uint64_t width)
{
    TapeOp op = norm_op(k, x, width, name);
    op.slice = width < k->t->values[x].columns;
    uint32_t y = norm_make(k, op, (Normed){ .columns = width, .vectors = 1 });
    return tape_quantize(k->b, k->t, y);
}

/* Of every `of` columns, rope_dim turn. */
static uint32_t turn(Maker *k, uint32_t x, const char *name, uint64_t of, bool idle)
{
    return tape_in_place(k->t, (TapeOp){ .kind = OP_ROPE,
                                         .name = name,
                                         .dtype = k->act,
                                         .in_n = 1,
                                         .in = { x },
                                         .turns = k->m->rope_dim,
                                         .turns_of = of,
                                         .idle = idle,
                                         .chain = fusion_of(k->b).rope_chain });
}

static uint32_t queries(Maker *k, uint32_t x)
{
    const Transformer *m = k->m;
    if (m->q_rank > 0)
        x = normed(k, down(k, x, "attention.q_down", m->q_rank), "attention.q_norm", m->q_rank);
    uint32_t q = up(k, x, "attention.q_up", (uint64_t)m->heads * m->head_dim);
    return turn(k, q, "attention.q_rope", m->head_dim, false);
}

/* The last columns of kv_down's result. */
static uint32_t positions(Maker *k, uint32_t down)
{
    uint32_t y = tape_made(k->t, "key positions", k->act, k->rows, k->m->rope_dim);
    tape_op(k->t, (TapeOp){ .kind = OP_COPY,
                            .name = "attention.k_positions",
                            .dtype = k->act,
                            .in_n = 1,
                            .in = { down },
                            .slice = true,
                            .out = y });
    return turn(k, y, "attention.k_rope", k->m->rope_dim, !fusion_of(k->b).rope_chain);
}

static uint32_t keys_and_values(Maker *k, uint32_t x)
{
    const Transformer *m = k->m;
    uint64_t heads = m->heads, own = m->head_dim - m->rope_dim;
    uint32_t latent = down(k, x, "attention.kv_down", (uint64_t)m->kv_rank + m->rope_dim);
    uint32_t shared = positions(k, latent);
    uint32_t kv = up(k, normed(k, latent, "attention.kv_norm", m->kv_rank), "attention.kv_up",
                     heads * (own + m->value_dim));
    uint32_t y = tape_made(k->t, "keys and values", k->act, k->rows,
                           heads * (m->head_dim + m->value_dim));
    tape_op(k->t, (TapeOp){ .kind = OP_COPY,
                            .name = "attention.keys",
                            .dtype = k->act,
                            .in_n = 2,
                            .in = { kv, shared },
                            .joins = true,
                            .tp = TP_JOIN,
                            .out = y });
    return y;
}

Latent latent_inputs(Maker *k, uint32_t x)
{
    uint32_t q = queries(k, x);
    return (Latent){ q, keys_and_values(k, x) };
}
