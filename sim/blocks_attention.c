/*
 * blocks_attention.c - a layer's attention, up to its output matmul.
 *
 *     x -- qkv -- [norms of q and k] -- [rope] -- [keys, values repeated]
 *       -- [cp: gathered] -- attention -- out
 *
 * Stacks whose attention knows no grouped queries (repeats_kv) copy keys and values once for each
 * head of queries; backward needs these, no longer those that they were made of.
 * With kv_rank, q, k and v come out of latents instead: blocks_latent.c.
 */
#include <math.h>

#include "sim/blocks_layer.h"

/* A norm over each head's q and k, or over those of all heads: the first columns of qkv. */
static uint32_t qk_norm(Maker *k, uint32_t qkv)
{
    const Transformer *m = k->m;
    uint64_t q = (uint64_t)m->heads * m->head_dim, kv = (uint64_t)m->kv_heads * m->head_dim;
    bool whole = m->qk_norm_whole, own = whole || m->qk_norm_own;
    uint64_t each = m->qk_norm_plain ? 0 : m->head_dim;
    TapeOp op = norm_op(k, qkv, own ? q : each, "attention.q_norm");
    TapeOp second = norm_op(k, qkv, own ? kv : each, "attention.k_norm");
    for (uint32_t i = 0; i < second.param_n; i++)
        op.param[op.param_n++] = second.param[i];
    op.name = NAME_QK_NORM;
    op.slice = true;
    return norm_make(k, op,
                     (Normed){ .columns = q + kv,
                               .kv_columns = kv,
                               .vectors = whole ? 2 : (uint64_t)m->heads + m->kv_heads,
                               .kv_vectors = whole ? 1 : m->kv_heads });
}

/* Pairs of one query head and sample: all of them, or those the mask lets through. */
static double pairs_full(const Maker *k, uint32_t window)
{
    double s = k->b->s->training.seq_len;
    return window ? s * (double)min_u64(window, k->b->s->training.seq_len) : s * s;
}

static double pairs_masked(const Maker *k, uint32_t window)
{
    double s = k->b->s->training.seq_len;
    if (!k->m->causal)
        return pairs_full(k, window);
    if (!window || window >= s)
        return s * (s + 1) / 2;
    double w = window;
    if (k->m->chunked) {
        double rest = s - floor(s / w) * w; /* of the last chunk */
        return floor(s / w) * w * (w + 1) / 2 + rest * (rest + 1) / 2;
    }
    return w * (w + 1) / 2 + (s - w) * w;
}

bool fused_attention(const Build *b)
{
    const Training *t = &b->s->training;
    return t->attention == ATTENTION_FLASH && (b->sw->fused_attention || t->asks_attention);
}

static bool repeats_kv(const Maker *k)
{
    return k->b->sw->repeats_kv && k->m->kv_heads < k->m->heads;
}

/* As attention finds them. */
static uint32_t key_heads(const Maker *k)
{
    return repeats_kv(k) ? k->m->heads : k->m->kv_heads;
}

static AttentionShape attention_shape(const Maker *k, uint32_t window)
{
    return (AttentionShape){ .batch = k->batch,
                             .heads = k->m->heads,
                             .kv_heads = key_heads(k),
                             .seq_q = k->b->s->training.seq_len / k->b->s->parallel.cp,
                             .seq_k = k->b->s->training.seq_len,
                             .head_dim = k->m->head_dim,
                             .value_dim = k->m->value_dim,
                             .causal = k->m->causal,
                             .window = window };
}

/* Fused attention saves a number per row of scores, "math" attention the softmax, and what is made
 * of it: after dropout what is left, else 16 bits where it is f32. */
static void add_attention_aux(Maker *k, TapeOp *op, uint64_t scores)
{
    if (!scores) {
        op->aux[op->aux_n++] =
            tape_made(k->t, "attention lse", DTYPE_F32, k->rows, k->m->heads);
        return;
    }
    bool f32 = fusion_of(k->b).softmax_f32, drops = has_dropout(k->b);
    op->aux[op->aux_n++] =
        tape_made(k->t, "attention weights", f32 ? DTYPE_F32 : k->act, k->rows, scores);
    if (!f32 && !drops)
        return;
    op->aux[op->aux_n++] = tape_made(
        k->t, drops ? "attention dropped" : "attention weights cast", k->act, k->rows, scores);
    if (!drops)
        return;
    op->aux[op->aux_n++] =
        tape_made(k->t, "attention dropout mask", DTYPE_MASK, k->rows, scores);
}

/*
 * Context parallelism: keys and values of the whole sequence, for this rank's queries.
 * They are not kept; backward gathers them again and scatters the sums of their
 * gradients.  Under a window no ring passes them: most of what comes round would be masked, and
 * Transformer Engine's knows none (attn_forward_func_with_cp wants all_gather or a2a then).
 */
static uint32_t gather_kv(Maker *k, uint32_t keys, uint32_t values, uint32_t window)
{
    const AttentionShape shape = attention_shape(k, 0);
    uint64_t columns = (uint64_t)key_heads(k) * (shape.head_dim + attention_value_dim(&shape));
    uint32_t y =
        tape_made(k->t, "keys and values", k->act, k->rows * k->b->s->parallel.cp, columns);
    k->t->values[y].kv_columns = columns;
    k->t->values[y].kv_repeated = repeats_kv(k);
    tape_op(k->t, (TapeOp){ .kind = OP_ALL_REDUCE,
                            .name = "attention.kv",
                            .dtype = k->act,
                            .in_n = keys == values ? 1 : 2,
                            .in = { keys, values },
                            .out = y,
                            .slice = true,
                            .is_comm = true,
                            .over_cp = true,
                            .at_once = window > 0,
                            .forward = OP_ALL_GATHER,
                            .backward = OP_REDUCE_SCATTER,
                            .again = true });
    return y;
}

static uint32_t attention_core(Maker *k, uint32_t qk, uint32_t qkv, uint32_t window)
{
    uint64_t heads = k->m->heads, seq = k->b->s->training.seq_len;
    bool fused = fused_attention(k->b);
    bool masked = k->b->model_flops_causal;
    bool latent = k->m->kv_rank > 0; /* then keys and values lie alone */
    uint32_t cp = k->b->s->parallel.cp;
    if (cp > 1)
        qkv = gather_kv(k, latent ? qkv : qk, qkv, window);
    TapeOp op = { .kind = OP_ATTENTION,
                  .fn = FN_NONE,
                  .name = "attention",
                  .dtype = k->act == DTYPE_F32 ? matmul_dtype(&k->b->s->training) : k->act,
                  .in_n = qk == qkv ? 1 : 2,
                  .in = { qk, qkv },
                  .math_attention = !fused,
                  .attention = attention_shape(k, window) };
    op.apart = cp > 1 || latent;
    /* cp: chunks of the sequence are dealt out so that all do the same */
    op.pairs = (fused ? pairs_masked(k, window) : (double)seq * (double)seq) / cp;
    op.model_pairs = (masked ? pairs_masked(k, window) : pairs_full(k, window)) / cp;
    add_attention_aux(k, &op, fused ? 0 : heads * seq);
    op.out = tape_made(k->t, "attention", k->act, k->rows,
                       heads * attention_value_dim(&op.attention));
    tape_op(k->t, op);
    return op.out;
}

/*
 * q, and k and v of all heads, of q and k in qk and v in qkv, which may be one.  Idle where
 * attention reads these as they are.  q does not move: it is counted in the result, for
 * qkv dies here, but not as traffic.
 */
static uint32_t repeat_kv(Maker *k, uint32_t qk, uint32_t qkv)
{
    const Transformer *m = k->m;
    uint64_t q = (uint64_t)m->heads * m->head_dim;
    bool idle = !repeats_kv(k);
    TapeOp op = { .kind = OP_COPY,
                  .name = NAME_REPEAT,
                  .dtype = k->act,
                  .in_n = idle || qk == qkv ? 1 : 2,
                  .in = { qk, qkv },
                  .repeats = true,
                  .idle = idle };
    if (idle)
        return tape_in_place(k->t, op);
    op.out = tape_made(k->t, "queries, keys and values", k->act, k->rows, 3 * q);
    k->t->values[op.out].kv_columns = 2 * q;
    k->t->values[op.out].kv_repeated = true;
    tape_op(k->t, op);
    return op.out;
}

/* q, k and v side by side; normed q and k apart from them. */
static uint32_t usual_attention(Maker *k, uint32_t x, uint32_t window)
{
    const Transformer *m = k->m;
    uint64_t kv = 2 * (uint64_t)m->kv_heads * m->head_dim;
    uint32_t qkv = tape_linear(k->b, k->t, x,
                               &(LinearSpec){ .name = NAME_QKV,
                                              .columns = (uint64_t)m->heads * m->head_dim + kv,
                                              .kv_columns = kv,
                                              .bias = m->qkv_bias,
                                              .quantized = true,
                                              .tp = TP_COLUMN });
    bool norms = m->qk_norm && !(m->qk_norm_plain && k->nope);
    uint32_t qk = norms ? qk_norm(k, qkv) : qkv;
    if (m->positions == POS_ROPE && !k->nope) {
        qk = tape_in_place(k->t, (TapeOp){ .kind = OP_ROPE,
                                           .name = "attention.rope",
                                           .dtype = k->act,
                                           .in_n = 1,
                                           .in = { qk },
                                           .slice = !norms, /* v stays */
                                           .chain = fusion_of(k->b).rope_chain });
        if (!norms)
            qkv = qk;
    }
    if (m->kv_heads < m->heads) {
        uint32_t repeated = repeat_kv(k, qk, qkv);
        qkv = qk == qkv || repeats_kv(k) ? repeated : qkv;
        qk = repeated;
    }
    return attention_core(k, qk, qkv, window);
}

static uint32_t latent_attention(Maker *k, uint32_t x, uint32_t window)
{
    Latent in = latent_inputs(k, x);
    return attention_core(k, in.q, in.kv, window);
}

/*
 * A number of each head that its softmax divides by, too.  It scales what attention gave, in a
 * kernel of its own as torchtitan's, whose attention knows of none (Transformer Engine's does):
 * with a factor for each head and row that backward needs beside what was scaled, as a norm.
 */
static uint32_t add_sinks(Maker *k, uint32_t x)
{
    TapeOp op = { .kind = OP_NORM,
                  .fn = FN_LAYERNORM, /* one kernel in every stack */
                  .name = "attention.sinks",
                  .dtype = k->t->values[x].dtype,
                  .in_n = 1,
                  .in = { x } };
    op.param[op.param_n++] = tape_param(k->t, "attention.sinks", k->param, 1, k->m->heads);
    return norm_make(k, op,
                     (Normed){ .columns = k->t->values[x].columns, .vectors = k->m->heads });
}

uint32_t block_attention(Maker *k, uint32_t x, uint32_t window)
{
    bool latent = k->m->kv_rank > 0;
    x = tape_quantize(k->b, k->t, tape_narrow_for(k->b, k->t, x, latent ? "" : NAME_QKV));
    uint32_t y = latent ? latent_attention(k, x, window) : usual_attention(k, x, window);
    if (k->m->sinks)
        y = add_sinks(k, y);
    return tape_linear(k->b, k->t, tape_quantize(k->b, k->t, y),
                       &(LinearSpec){ .name = "attention.out",
                                      .columns = k->m->hidden,
                                      .quantized = true,
                                      .tp = TP_ROW });
}
