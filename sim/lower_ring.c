/*
 * lower_ring.c - context parallelism as a ring: attention and transfers step by step.
 *
 * The logical graph gathers the keys and values of the n ranks of cp, and scatters
 * the sums of their gradients.  In a ring (Software.cp_ring, overlap) they pass from
 * neighbour to neighbour, a rank's share per step; each share is used when it has come,
 * while the next is under way, and its gradient leaves when it was made:
 *
 *     cp 4, forward                          backward, the end of it
 *     cp        [kv 1][kv 2][kv 3]           [kv 3] [dkv 1][dkv 2][dkv 3]
 *     compute   [own ][1   ][2   ][3   ]       [2   ][3   ].............[rope ...
 *
 * Program order keeps the collectives whole; they only become n - 1 steps, each an
 * all-gather (reduce-scatter) of a (n - 1)-th of the bytes: what a rank sends in it is
 * just what it hands to its neighbour, as roles know no neighbours.  Attention becomes n
 * kernels, of which kernel k waits for step k - 1, and of the gradients step k
 * waits for kernel k + 1.  The ranks' chunks of the sequence are head and tail in
 * pairs (zigzag), so that under a causal mask all kernels have the same work.
 *
 * Unfused attention ("math") has no partial softmax and waits for all keys.
 * Transformer Engine's last exchange of gradients is exposed as it is here.
 */
#include "sim/lower_parts.h"

static bool is_ring_step(const Op *op)
{
    return op->lane == LANE_CP && (op->kind == OP_ALL_GATHER || op->kind == OP_REDUCE_SCATTER);
}

/* Does an op of the group wait for a collective of context parallelism? */
static bool waits_for_ring(const Lowering *l)
{
    for (uint32_t i = l->begin; i < l->begin + l->n; i++)
        for (uint32_t d = 0; d < l->ops[i].dep_n; d++)
            if (is_ring_step(&l->ops[l->old->deps[l->ops[i].dep_first + d]]))
                return true;
    return false;
}

/* One kernel on the keys of one rank; later ones add to what the first wrote. */
static void attention_kernel(Lowering *l, const Whole *w, bool first)
{
    uint64_t n = l->b->s->parallel.cp;
    uint32_t kv = w->op.phase == PHASE_DGRAD ? 2 : 1;
    Op *op = part_begin(l, w, OP_ATTENTION, w->op.fn);
    op->u.attention.seq_k /= n;
    op->flops = w->op.flops / (double)n;
    op->model_flops = w->op.model_flops / (double)n;
    for (uint32_t i = 0; i < w->args_n; i++) {
        KernelArg a = w->args[i];
        bool partly = i == kv || (kv == 2 && i + 1 == w->args_n); /* kv, dkv */
        ArgMode mode = a.mode == ARG_WRITE && !first ? ARG_UPDATE : a.mode;
        part_bytes_arg(l, a, mode, lower_bytes(l, a) / (partly ? n : 1));
    }
}

static void step_kernel(Lowering *l, const Whole *w, uint64_t k)
{
    uint64_t steps = l->b->s->parallel.cp - 1, bytes = w->op.u.comm.bytes;
    Op *op = part_begin(l, w, w->op.kind, w->op.fn);
    op->u.comm.bytes = bytes * (k + 1) / steps - bytes * k / steps;
    for (uint32_t i = 0; i < w->args_n; i++)
        lower_arg(l, w->args[i].slot, w->args[i].tensor, w->args[i].mode);
}

bool ring_expand(Lowering *l, const Whole *w)
{
    uint32_t n = l->b->s->parallel.cp;
    if (is_ring_step(&w->op)) {
        for (uint32_t k = 0; k + 1 < n; k++)
            step_kernel(l, w, k);
        return true;
    }
    if (w->op.kind != OP_ATTENTION || !fused_attention(l->b) || !waits_for_ring(l))
        return false;
    for (uint32_t k = 0; k < n; k++)
        attention_kernel(l, w, k == 0);
    return true;
}

uint32_t ring_dep(const Lowering *l, uint32_t kernel, uint32_t op)
{
    uint32_t first = l->first[l->s->op_first + op], last = l->last[l->s->op_first + op];
    const Op *own = &l->kernels[0].op, *other = &l->ops[op];
    bool keys = own->kind == OP_ATTENTION && l->kernels_n > 1 && is_ring_step(other);
    bool sums = is_ring_step(own) && own->kind == OP_REDUCE_SCATTER &&
                other->kind == OP_ATTENTION && fused_attention(l->b) &&
                last - first == l->kernels_n;
    if (keys)
        return kernel > 0 ? first + kernel - 1 : NONE_U32;
    if (sums)
        return first + kernel + 1;
    return kernel == 0 ? last : NONE_U32;
}
