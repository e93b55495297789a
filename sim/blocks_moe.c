/*
 * blocks_moe.c - a mixture of experts in the place of a layer's MLP.
 *
 * What Megatron Core does with --moe-token-dispatcher-type alltoall, and no tokens dropped
 * (megatron/core/transformer/moe: router.py, token_dispatcher.py, experts.py).  R tokens, each
 * sent to k of E experts, E/ep of them on a rank:
 *
 *     x -- router -- top_k --------------------- weights ---------------------+
 *     |                                                                       |
 *     +-- permute -- dispatch -- sort -- experts -- unsort -- combine -- weighted sum --(+)-- y
 *     |              (ep)   [ag]        up act down    [rs]   (ep)                       |
 *     +-- shared expert [, times its gate] ---------------------------------------------+
 *
 *     router     a matmul, [R, E], in the format of its input as where moe_router_dtype is not set;
 *                softmax and choice in one kernel, f32
 *     permute    R k rows, those of one expert together
 *     dispatch   an all-to-all over ep: each rank sends R k (ep - 1)/ep rows; so does combine
 *     [ag] [rs]  with tp, under sequence parallelism alone (Megatron refuses it without):
 *                all-gather of the rows over tp before the experts, kept for backward, and
 *                reduce-scatter after; each expert's matmuls are shared out over tp.  Neither with
 *                whole experts (expert_tp 1; Megatron's expert-tensor-parallel-size): ep is then
 *                of ranks of tp too, each of which sends the rows it has
 *     sort       only where a rank has several experts: rows come rank by rank
 *     experts    one grouped matmul for all of a rank, of R k tp / (E/ep) rows each
 *
 * DEEPEP (parallel.dispatcher; Megatron's --moe-token-dispatcher-type flex, with DeepEP or
 * HybridEP; megatron/core/transformer/moe/fused_a2a.py).  What is sent are tokens, R of them, once
 * to each rank that has experts of theirs, d of ep on average (sim/routing.h), and once to each
 * node, which hands them on (GroupSpec.sent_once).  There is no permute; sort makes R k rows of
 * the R d that have come, unsort sums those of a token, combine sums what comes back:
 *
 *     x -- router -- dispatch -- sort -- experts -- unsort -- combine -- weighted sum --(+)-- y
 *
 * EARLY WEIGHTS (Software.weighs_early, and DeepEP).  Rows are weighed between the experts' two
 * matmuls, by their activation, which has all that the weights' gradient needs: combined rows are
 * only summed, and not saved.  (The weights' few bytes are read and written by the sum, here.)
 *
 * COST.  Permute, sort and weighted sum move each row once, at the speed of a copy (judged; no
 * measurement).  Rows that do not divide by the experts of a rank are rounded up for the shape.
 *
 * BALANCED.  Every expert is taken to get equally many tokens, so all ranks do the same.  A
 * router that is not balanced is slower: the fullest rank sets the pace.
 *
 * LEFT OUT.  The exchange of how many tokens go where (E numbers) and the host's wait for them,
 * the auxiliary loss and capacity limits.
 *
 * Backward mirrors it: each all-to-all is one again, permute sums the k gradients of a token,
 * the weighted sum gives those of rows and weights (without early weights the combined rows are
 * saved for it).
 */
#include <math.h>

#include "sim/blocks.h"
#include "sim/routing.h"

static uint32_t choose_experts(Build *b, Tape *t, uint32_t x)
{
    const Transformer *m = &b->s->model.u.transformer;
    uint64_t rows = t->values[x].rows;
    uint32_t w =
        tape_param(t, "router.weight", build_formats(b).read, m->experts, t->values[x].columns);
    uint32_t logits = tape_matmul(t, "router", t->values[x].dtype, x, w, TP_FOLLOW);
    if (m->router_bias)
        logits = tape_bias(b, t, logits, "router");
    TapeOp op = { .kind = OP_SOFTMAX,
                  .name = "router.top_k",
                  .dtype = DTYPE_F32,
                  .in_n = 1,
                  .in = { logits },
                  .aux_n = 1 };
    op.aux[0] = tape_made(t, "chosen experts", DTYPE_I64, rows, m->experts_per_token);
    op.out = tape_made(t, "expert weights", DTYPE_F32, rows, m->experts_per_token);
    tape_op(t, op);
    return op.out;
}

/* Rows of x in another order, each as often as its expert or token wants it, or summed. */
static uint32_t move_rows(Tape *t, uint32_t x, const char *name, uint64_t rows, TapeTp tp)
{
    TapeValue v = t->values[x];
    uint32_t y = tape_made(t, name, v.dtype, rows, v.columns);
    tape_op(t, (TapeOp){ .kind = OP_COPY,
                         .name = name,
                         .dtype = v.dtype,
                         .in_n = 1,
                         .in = { x },
                         .out = y,
                         .tp = tp });
    return y;
}

/* Every row goes to the ranks that have its experts, or comes back. */
static uint32_t exchange(Build *b, Tape *t, uint32_t x, const char *name, uint64_t rows,
                         TapeTp tp)
{
    if (b->s->parallel.ep == 1)
        return x;
    TapeValue v = t->values[x];
    uint32_t y = tape_made(t, name, v.dtype, rows, v.columns);
    tape_op(t, (TapeOp){ .kind = OP_ALL_REDUCE,
                         .name = name,
                         .dtype = v.dtype,
                         .in_n = 1,
                         .in = { x },
                         .out = y,
                         .tp = tp,
                         .is_comm = true,
                         .over_ep = true,
                         .forward = OP_ALL_TO_ALL,
                         .backward = OP_ALL_TO_ALL });
    return y;
}

/* rows: a multiple of the weights' rows; each of those times its weight, summed. */
static uint32_t weighted_sum(Tape *t, uint32_t rows, uint32_t weights, const char *name,
                             bool weighed)
{
    TapeValue v = t->values[rows];
    uint32_t y = tape_made(t, name, v.dtype, t->values[weights].rows, v.columns);
    tape_op(t, (TapeOp){ .kind = OP_COPY,
                         .name = name,
                         .dtype = v.dtype,
                         .in_n = 2,
                         .in = { rows, weights },
                         .weighed = weighed,
                         .out = y });
    return y;
}

/* Every token visits it, and in Qwen 2 a sigmoid of one column says how much it counts. */
static uint32_t shared_expert(Build *b, Tape *t, uint32_t x)
{
    const Transformer *m = &b->s->model.u.transformer;
    uint32_t gate = NONE_U32;
    if (m->shared_expert_gate)
        gate =
            tape_linear(b, t, x, &(LinearSpec){ .name = "shared_expert.gate", .columns = 1 });
    uint32_t y = tape_mlp(b, t, x,
                          &(MlpSpec){ .up = m->gated ? NAME_SHARED_GATE_UP : "shared_expert.up",
                                      .down = "shared_expert.down",
                                      .ffn = m->shared_expert_ffn });
    if (m->mlp_bias)
        y = tape_bias(b, t, y, "shared_expert.down");
    return gate == NONE_U32 ? y : weighted_sum(t, y, gate, "shared_expert.gated", false);
}

/* x: so many rows for this rank's experts together; routed: for each of them. */
static uint32_t local_experts(Build *b, Tape *t, uint32_t x, uint64_t routed)
{
    const Transformer *m = &b->s->model.u.transformer;
    uint32_t here = m->experts / b->s->parallel.ep;
    uint64_t rows = t->values[x].rows;
    bool sorts = here > 1 || rows != routed;
    if (sorts)
        x = move_rows(t, x, "experts.sort", routed, TP_FOLLOW);
    uint32_t y = tape_mlp(b, t, x,
                          &(MlpSpec){ .up = m->gated ? NAME_EXPERTS_GATE_UP : "experts.up",
                                      .down = "experts.down",
                                      .ffn = m->moe_ffn,
                                      .groups = here,
                                      .whole = expert_tp(b) == 1 });
    if (transformer_experts_bias(m))
        y = tape_expert_bias(b, t, y, "experts.down", here);
    return sorts ? move_rows(t, y, "experts.unsort", rows, TP_FOLLOW) : y;
}

/* Rows that DeepEP brings a rank, one for each token of which it has experts: as many as tokens
 * leave, in as many parts as there are ranks. */
static uint64_t rows_sent_once(const Build *b, uint64_t tokens)
{
    Routing r = routing_of(&b->s->model.u.transformer);
    double rows = (double)tokens * routing_parts(&r, b->s->parallel.ep);
    uint64_t tp = b->s->parallel.tp;
    return ((uint64_t)ceil(rows) + tp - 1) / tp * tp;
}

uint32_t tape_moe(Build *b, Tape *t, uint32_t x)
{
    const Transformer *m = &b->s->model.u.transformer;
    uint64_t tokens = t->values[x].rows, routed = tokens * m->experts_per_token;
    bool far = b->s->parallel.ep > 1, once = far && sends_once(b);
    uint64_t sent = once ? rows_sent_once(b, tokens) : routed;
    TapeTp arrive = expert_tp(b) < b->s->parallel.tp ? TP_FOLLOW : TP_GATHER;
    uint32_t shared = NONE_U32, y = x;
    uint32_t weights = choose_experts(b, t, x);
    if (!once)
        y = move_rows(t, x, "experts.permute", routed, far ? TP_FOLLOW : arrive);
    y = exchange(b, t, y, "experts.dispatch", sent, arrive);
    if (m->shared_expert_ffn) /* beside the all-to-all, where ep overlaps */
        shared = shared_expert(b, t, x);
    y = local_experts(b, t, y, routed);
    y = exchange(b, t, y, "experts.combine", once ? tokens : routed, TP_FOLLOW);
    y = weighted_sum(t, y, weights, "experts.weighted_sum", once || b->sw->weighs_early);
    return shared == NONE_U32 ? y : tape_add(b, t, y, shared);
}
