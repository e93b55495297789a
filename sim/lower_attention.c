/*
 * lower_attention.c - attention whose scores lie in memory, and the copies round attention.
 *
 *     fact missing          logical op              kernels
 *     fused_attention       attention               matmul, softmax, matmul; backward five;
 *                                                   with dropout, of the weights, one more each
 *     fact there
 *     softmax_chain         its softmax             scale, mask, softmax; backward the same three
 *     softmax_multiple ...  not as these say        the same between a cast to f32 and one back
 *     attention_copies      fused attention         copies to its layout and back
 *     repeats_kv            repeat_kv               copies of keys and of values; backward sums
 */
#include "sim/lower_parts.h"

#include <string.h>

/* ---- attention with its scores in memory ---- */

Scores scores_of(const Whole *w, uint64_t element)
{
    AttentionShape a = w->op.u.attention;
    uint64_t v = attention_value_dim(&a);
    return (Scores){ .heads = a.batch * a.heads,
                     .q_bytes = a.batch * a.seq_q * a.heads * a.head_dim * element,
                     .k_bytes = a.batch * a.seq_k * a.kv_heads * a.head_dim * element,
                     .v_bytes = a.batch * a.seq_k * a.kv_heads * v * element,
                     .y_bytes = a.batch * a.seq_q * a.heads * v * element,
                     .a = a };
}

/* A product over or into heads `dim` wide: forward one of two, backward one of four. */
static Op *batched(Lowering *l, const Whole *w, const Scores *s, uint64_t m, uint64_t n,
                   uint64_t k, uint64_t dim)
{
    double all = (double)(s->a.head_dim + attention_value_dim(&s->a));
    double share = (double)dim / (op_is_backward(&w->op) ? 2 * all : all);
    Op *op = part_begin(l, w, OP_MATMUL, FN_NONE);
    if (op->dtype == DTYPE_F32) /* of the tensors: products may be tf32, as others are */
        op->dtype = matmul_dtype(&l->b->s->training);
    op->u.matmul = (MatmulShape){ .m = m, .n = n, .k = k, .batch = s->heads };
    op->flops = w->op.flops * share;
    op->model_flops = w->op.model_flops * share;
    return op;
}

static void softmax(Lowering *l, const Whole *w, const Scores *s)
{
    Op *op = part_begin(l, w, OP_SOFTMAX, FN_NONE);
    op->u.rows = (RowsShape){ s->heads * s->a.seq_q, s->a.seq_k };
}

/* Scores times 1 / sqrt(head_dim), then -inf where they are masked; backward a zero there and
 * the same factor: out of place each. */
static KernelArg scale_and_mask(Lowering *l, const Whole *w, KernelArg scores)
{
    for (uint32_t i = 0; i < 2 && l->fusion.softmax_chain; i++) {
        KernelArg to = part_temp(l, "attention scores", scores, part_dtype(l, scores));
        Op *op = part_begin(l, w, OP_SCALE, FN_NONE);
        op->u.elements = lower_bytes(l, scores) / dtype_bytes(part_dtype(l, scores));
        part_arg(l, scores, ARG_READ);
        part_arg(l, to, ARG_WRITE);
        scores = to;
    }
    return scores;
}

static void drop(Lowering *l, const Whole *w, KernelArg x, ArgMode mode, KernelArg mask,
                 ArgMode mask_mode)
{
    Op *op = part_begin(l, w, OP_SCALE, FN_NONE);
    op->u.elements = lower_bytes(l, mask);
    part_arg(l, x, mode);
    part_arg(l, mask, mask_mode);
}

/* Keys that are gathered, over cp, or come from latents lie with the values; elsewhere with the
 * queries. */
static bool keys_apart(const Lowering *l, uint32_t inputs)
{
    bool latent = l->b->s->model.u.transformer.kv_rank > 0;
    return inputs == 2 && (latent || l->b->s->parallel.cp > 1);
}

/* What the scores become, which the second product reads: weights, 16 bits of them, or what dropout
 * leaves of these. */
static KernelArg used_of(const Whole *w, uint32_t inputs, uint32_t aux)
{
    return w->args[inputs + (aux > 1 ? 2 : 1)];
}

/* inputs -> out, weights [used [mask]] */
static void math_forward(Lowering *l, const Whole *w, uint32_t aux)
{
    uint32_t inputs = w->args_n - 1 - aux;
    KernelArg q = w->args[0], v = w->args[inputs - 1], out = w->args[inputs];
    KernelArg weights = w->args[inputs + 1], used = used_of(w, inputs, aux);
    DType act = part_dtype(l, out);
    Scores s = scores_of(w, dtype_bytes(act));
    bool apart = keys_apart(l, inputs);
    KernelArg scores = part_temp(l, "attention scores", weights, act);
    uint64_t d = s.a.head_dim, dv = attention_value_dim(&s.a);
    batched(l, w, &s, s.a.seq_q, s.a.seq_k, d, d)->u.matmul.transpose_b = true;
    part_bytes_arg(l, q, ARG_READ, apart ? s.q_bytes : s.q_bytes + s.k_bytes);
    if (apart)
        part_bytes_arg(l, v, ARG_READ, s.k_bytes);
    part_arg(l, scores, ARG_WRITE);
    scores =
        scale_and_mask(l, w, part_in(l, w, "attention cast", scores, part_dtype(l, weights)));
    softmax(l, w, &s);
    part_arg(l, scores, ARG_READ);
    part_arg(l, weights, ARG_WRITE);
    if (aux == 2) {
        part_cast(l, w, weights, used, ARG_WRITE);
    } else if (aux > 2) {
        drop(l, w, part_in(l, w, "attention cast", weights, act), ARG_READ, w->args[inputs + 3],
             ARG_WRITE);
        part_arg(l, used, ARG_WRITE);
    }
    batched(l, w, &s, s.a.seq_q, dv, s.a.seq_k, dv);
    part_arg(l, used, ARG_READ);
    part_bytes_arg(l, v, ARG_READ, s.v_bytes);
    part_arg(l, out, ARG_WRITE);
}

/* The gradient of the weights in a temporary, and that of v. */
static KernelArg weights_backward(Lowering *l, const Whole *w, const Scores *s, uint32_t inputs,
                                  uint32_t aux)
{
    KernelArg dout = w->args[0], v = w->args[inputs], dv = w->args[w->args_n - 1];
    KernelArg weights = w->args[inputs + 1], used = used_of(w, inputs, aux);
    DType act = part_dtype(l, dout);
    KernelArg dweights = part_temp(l, "attention gradient", weights, act);
    uint64_t width = attention_value_dim(&s->a);
    batched(l, w, s, s->a.seq_q, s->a.seq_k, width, width)->u.matmul.transpose_b = true;
    part_arg(l, dout, ARG_READ);
    part_bytes_arg(l, v, ARG_READ, s->v_bytes);
    part_arg(l, dweights, ARG_WRITE);
    batched(l, w, s, s->a.seq_k, width, s->a.seq_q, width)->u.matmul.transpose_a = true;
    part_arg(l, used, ARG_READ);
    part_arg(l, dout, ARG_READ);
    part_bytes_arg(l, dv, ARG_WRITE, s->v_bytes);
    if (aux > 2)
        drop(l, w, dweights, ARG_UPDATE, w->args[inputs + 3], ARG_READ);
    dweights = part_in(l, w, "attention cast", dweights, part_dtype(l, weights));
    softmax(l, w, s);
    part_arg(l, dweights, ARG_UPDATE);
    part_arg(l, weights, ARG_READ);
    return part_in(l, w, "attention cast", scale_and_mask(l, w, dweights), act);
}

/* dout, inputs, weights [used [mask]] -> dinputs */
static void math_backward(Lowering *l, const Whole *w, uint32_t aux)
{
    uint32_t inputs = (w->args_n - 1 - aux) / 2;
    KernelArg q = w->args[1], dq = w->args[w->args_n - inputs];
    Scores s = scores_of(w, dtype_bytes(part_dtype(l, w->args[0])));
    bool apart = keys_apart(l, inputs);
    KernelArg k = apart ? w->args[inputs] : q, dk = apart ? w->args[w->args_n - 1] : dq;
    KernelArg dscores = weights_backward(l, w, &s, inputs, aux);
    uint64_t d = s.a.head_dim;
    batched(l, w, &s, s.a.seq_q, d, s.a.seq_k, d);
    part_arg(l, dscores, ARG_READ);
    part_bytes_arg(l, k, ARG_READ, s.k_bytes);
    part_bytes_arg(l, dq, ARG_WRITE, s.q_bytes);
    batched(l, w, &s, s.a.seq_k, d, s.a.seq_q, d)->u.matmul.transpose_a = true;
    part_arg(l, dscores, ARG_READ);
    part_bytes_arg(l, q, ARG_READ, s.q_bytes);
    part_bytes_arg(l, dk, ARG_WRITE, s.k_bytes);
}

bool attention_expand(Lowering *l, const Whole *w)
{
    if (w->op.kind != OP_ATTENTION || fused_attention(l->b))
        return false;
    uint32_t aux = has_dropout(l->b) ? 3 : l->fusion.softmax_f32 ? 2 : 1;
    if (op_is_backward(&w->op))
        math_backward(l, w, aux);
    else
        math_forward(l, w, aux);
    return true;
}

/* ---- keys and values for each head of queries ---- */

/* qk [qkv] -> q k v;  dq dk dv -> dqk [dqkv].  A compiler makes one kernel of it, which it is. */
bool attention_repeats(Lowering *l, const Whole *w)
{
    bool backward = op_is_backward(&w->op);
    if (w->op.kind != OP_COPY || l->fusion.elementwise ||
        strcmp(intern_text(&l->g->names, w->op.name), NAME_REPEAT) != 0)
        return false;
    for (uint32_t v = 0; v < 2; v++) { /* keys, then values */
        uint32_t narrow = w->args_n == 3 ? v : 0;
        KernelArg from = w->args[backward ? 0 : narrow];
        KernelArg to = w->args[backward ? 1 + narrow : w->args_n - 1];
        part_begin(l, w, OP_COPY, FN_NONE)->u.elements = w->op.u.elements / 2;
        part_bytes_arg(l, from, ARG_READ, w->op.read_bytes / 2);
        part_bytes_arg(l, to, ARG_WRITE, w->op.write_bytes / 2);
    }
    return true;
}

/* ---- attention that wants another layout ---- */

static void copy_layout(Lowering *l, const Whole *w, KernelArg from, uint64_t bytes)
{
    DType dtype = part_dtype(l, from);
    Op *op = part_begin(l, w, OP_COPY, FN_NONE);
    op->u.elements = bytes / dtype_bytes(dtype);
    part_bytes_arg(l, from, ARG_READ, bytes);
    part_arg(l, lower_temp(l, "attention layout", dtype, 1, bytes / dtype_bytes(dtype)),
             ARG_WRITE);
}

/* q, k, v and the result, which lie sequence first, to batch first and back; backward the gradients
 * of q, k and v are put side by side.  A single sequence lies both ways. */
bool attention_layouts(Lowering *l, const Whole *w)
{
    bool backward = op_is_backward(&w->op), single = w->op.u.attention.batch == 1;
    if (w->op.kind != OP_ATTENTION || !l->b->sw->attention_copies || !fused_attention(l->b) ||
        l->b->s->parallel.cp > 1)
        return false;
    uint32_t inputs = backward ? (w->args_n - 3) / 2 : w->args_n - 2;
    KernelArg q = w->args[0], v = w->args[inputs - 1], y = w->args[backward ? 0 : inputs];
    Scores s = scores_of(w, dtype_bytes(part_dtype(l, y)));
    if (!backward) {
        copy_layout(l, w, q, s.q_bytes);
        copy_layout(l, w, keys_apart(l, inputs) ? v : q, s.k_bytes);
        copy_layout(l, w, v, s.v_bytes);
    } else if (!single) {
        copy_layout(l, w, y, s.y_bytes);
    }
    part_whole(l, w);
    if (!backward && !single)
        copy_layout(l, w, y, s.y_bytes);
    for (uint32_t i = w->args_n - inputs; backward && i < w->args_n; i++) {
        Op *op = part_begin(l, w, OP_COPY, FN_NONE);
        op->u.elements = lower_bytes(l, w->args[i]) / dtype_bytes(part_dtype(l, w->args[i]));
        part_arg(l, w->args[i], ARG_UPDATE);
    }
    return true;
}
