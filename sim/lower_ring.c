/*
 * lower_ring.c - collectives that go round a ring, step by step, beside the kernels that use them.
 *
 * CONTEXT PARALLELISM.  The logical graph gathers the keys and values of the n ranks of cp, and
 * scatters the sums of their gradients.  In a ring (Software.cp_ring, overlap) they pass from
 * neighbour to neighbour, a rank's share per step; each share is used when it has come,
 * while the next is under way, and its gradient leaves when it was made:
 *
 *     cp 4, forward                          backward, the end of it
 *     cp        [kv 1][kv 2][kv 3]           [kv 3] [dkv 1][dkv 2][dkv 3]
 *     compute   [own ][1   ][2   ][3   ]       [2   ][3   ].............[rope ...
 *
 * Program order keeps the collectives whole; they only become n - 1 steps, each an
 * all-gather (reduce-scatter) of a (n - 1)-th of the bytes: what a rank sends in it is
 * just what it hands to its neighbour, as roles know no neighbours; together they take the
 * whole's time.  Attention becomes n
 * kernels, of which kernel k waits for step k - 1, and of the gradients step k
 * waits for kernel k + 1.  The ranks' chunks of the sequence are head and tail in
 * pairs (zigzag), so that under a causal mask all kernels have the same work: the first below
 * the diagonal, the others rectangles, of all queries and half the keys (or half and all), whose
 * blocks are of equal length.
 *
 * CORRECTIONS.  What the kernels wrote is scaled and added up by kernels of its own (Transformer
 * Engine, context_parallel.py: flash_attn_fwd_out_correction of every step; dq and dkv are
 * added to from the second on, of which dkv is that of half the keys).  They stand as one, behind
 * the last: of the last rank, which corrects all rows of every step.
 *
 * Unfused attention ("math") has no partial softmax and waits for all keys.
 * Transformer Engine's last exchange of gradients is exposed as it is here.
 *
 * TENSOR PARALLELISM with sequence parallelism (Software.tp_ring, overlap), as Transformer
 * Engine's userbuffers do it: a matmul that reads gathered rows begins with its own and goes on
 * as the others' come (forward, and the gradient of the input of row-parallel layers); in
 * forward the sums of rows leave as they are made:
 *
 *     tp        [x 1][x 2][x 3]                    [y 1][y 2][y 3]
 *     compute   [own][1  ][2  ][3  ]      [own][1  ][2  ][3  ]
 *
 * Its n kernels fill the GPU together, on several streams: an n-th of the whole's time each.
 * What goes beside the weight gradient (tp_async_backward) stays whole, as there.
 *
 * OWN ROWS FIRST (Software.tp_own_first), nanotron's: the gather stays whole, the matmul becomes
 * two, one after the other on one stream; of ranks in the middle of the group three, for the
 * others' rows lie before and after theirs, which is left out:
 *
 *     tp        [x of the others ]
 *     compute   [own]             [others            ]
 */
#include <string.h>

#include "sim/lower_parts.h"

/* ---- which collectives ---- */

static bool depends_on(const Lowering *l, const Op *op, uint32_t begin, uint32_t end)
{
    for (uint32_t d = 0; d < op->dep_n; d++) {
        uint32_t at = l->old->deps[op->dep_first + d];
        if (at >= begin && at < end)
            return true;
    }
    return false;
}

/* Grouped matmuls, also of the one expert of a rank: userbuffers overlap linear layers only. */
static bool is_of_experts(const Lowering *l, const Op *op)
{
    return strncmp(intern_text(&l->g->names, op->name), "experts.", 8) == 0;
}

/* A matmul whose rows may come one rank's after the other's. */
static bool takes_rows(const Lowering *l, const Op *op)
{
    return op->kind == OP_MATMUL && op->u.matmul.batch <= 1 && !is_of_experts(l, op) &&
           (op_is_forward(op) || op->phase == PHASE_DGRAD);
}

/* Or leave so; the head's gather, in Megatron a plain ColumnParallelLinear, is waited for. */
static bool has_rows(const Lowering *l, const Op *op, bool leave)
{
    return takes_rows(l, op) && op->name != l->name_head && (!leave || op_is_forward(op));
}

/* The first op behind `at` that depends on it; NULL. */
static const Op *reader_of(const Lowering *l, uint32_t at)
{
    for (uint32_t i = at + 1; i < l->s->op_n; i++)
        if (depends_on(l, &l->ops[i], at, at + 1))
            return &l->ops[i];
    return NULL;
}

static bool is_tp_ring(const Lowering *l, uint32_t at)
{
    const Op *op = &l->ops[at];
    if (!l->b->sw->tp_ring || op->lane != LANE_TP)
        return false;
    if (op->kind == OP_REDUCE_SCATTER)
        return op->dep_n == 1 && has_rows(l, &l->ops[l->old->deps[op->dep_first]], true);
    const Op *reader = op->kind == OP_ALL_GATHER ? reader_of(l, at) : NULL;
    return reader && has_rows(l, reader, false);
}

/* A gather beside which its first reader works on the rank's own rows. */
static bool is_beside_own(const Lowering *l, uint32_t at)
{
    const Op *op = &l->ops[at];
    if (!l->b->sw->tp_own_first || op->lane != LANE_TP || op->kind != OP_ALL_GATHER)
        return false;
    const Op *reader = reader_of(l, at);
    return reader && takes_rows(l, reader);
}

/* How many ranks collective `at` of the segment goes round; 0: it stays whole. */
static uint32_t ring_ranks(const Lowering *l, uint32_t at)
{
    const Op *op = &l->ops[at];
    if (op->kind != OP_ALL_GATHER && op->kind != OP_REDUCE_SCATTER)
        return 0;
    const Parallel *p = &l->b->s->parallel;
    return op->lane == LANE_CP ? p->cp : is_tp_ring(l, at) ? p->tp : 0;
}

/* Does an op of the group wait for a ring on that lane? */
static bool waits_for_ring(const Lowering *l, Lane lane)
{
    for (uint32_t i = l->begin; i < l->begin + l->n; i++)
        for (uint32_t d = 0; d < l->ops[i].dep_n; d++) {
            uint32_t at = l->old->deps[l->ops[i].dep_first + d];
            if (l->ops[at].lane == lane && ring_ranks(l, at) > 0)
                return true;
        }
    return false;
}

static bool waits_for_others(const Lowering *l)
{
    for (uint32_t i = l->begin; i < l->begin + l->n; i++)
        for (uint32_t d = 0; d < l->ops[i].dep_n; d++)
            if (is_beside_own(l, l->old->deps[l->ops[i].dep_first + d]))
                return true;
    return false;
}

/* ---- kernels ---- */

/* Has a rank's kernel on another's keys to do with half of them? */
static bool is_halved(const AttentionShape *a)
{
    return a->causal; /* layers with a window have no ring (blocks_attention.c) */
}

/* One kernel on the keys of one rank.  Later ones add to what the first wrote; what that reads and
 * writes is the correction's. */
static void attention_kernel(Lowering *l, const Whole *w, bool first)
{
    uint64_t n = l->b->s->parallel.cp;
    uint32_t kv = w->op.phase == PHASE_DGRAD ? 2 : 1;
    Op *op = part_begin(l, w, OP_ATTENTION, w->op.fn);
    op->u.attention.seq_k /= n;
    if (!first && is_halved(&op->u.attention)) {
        op->u.attention.causal = false;
        op->u.attention.seq_k = div_up_u64(op->u.attention.seq_k, 2);
    }
    op->flops = w->op.flops / (double)n;
    op->model_flops = w->op.model_flops / (double)n;
    for (uint32_t i = 0; i < w->args_n; i++) {
        KernelArg a = w->args[i];
        bool partly = i == kv || (kv == 2 && i + 1 == w->args_n); /* kv, dkv */
        ArgMode mode = a.mode == ARG_WRITE && !first ? ARG_UPDATE : a.mode;
        uint64_t bytes = lower_bytes(l, a) / (partly ? n : 1);
        part_bytes_arg(l, a, mode, bytes);
        op->read_bytes -= mode != a.mode ? bytes : 0;
    }
}

/* All corrections: reads a kernel's and the sum, and writes the sum. */
static void correction_kernel(Lowering *l, const Whole *w)
{
    Scores s = scores_of(w, 1);
    uint64_t n = l->b->s->parallel.cp,
             kv = (s.k_bytes + s.v_bytes) / n / (is_halved(&s.a) ? 2 : 1);
    bool backward = w->op.phase == PHASE_DGRAD;
    uint64_t elements = backward ? (n - 1) * (s.q_bytes + kv) : n * s.y_bytes;
    Op *op = part_begin(l, w, OP_ADD, FN_NONE);
    op->u.elements = elements;
    op->write_bytes = elements * dtype_bytes(w->op.dtype);
    op->read_bytes = 2 * op->write_bytes;
    for (uint32_t i = 0; i < w->args_n; i++)
        if (w->args[i].mode == ARG_WRITE)
            lower_arg(l, w->args[i].slot, w->args[i].tensor, ARG_UPDATE);
}

/* One of the kernels of a matmul, on the rows of one rank. */
static void rows_kernel(Lowering *l, const Whole *w, uint32_t n, bool first)
{
    Op op = w->op;
    op.u.matmul.m /= n;
    op.u.matmul.of = n;
    op.flops /= n;
    op.model_flops /= n;
    op.read_bytes /= n;
    op.write_bytes /= n;
    lower_kernel(l, op);
    for (uint32_t i = 0; i < w->args_n; i++) {
        KernelArg a = w->args[i];
        lower_arg(l, a.slot, a.tensor, a.mode == ARG_WRITE && !first ? ARG_UPDATE : a.mode);
    }
}

/* So many rows of a matmul's, with the whole weight. */
static void some_rows_kernel(Lowering *l, const Whole *w, uint64_t rows, bool first)
{
    Op op = w->op;
    double share = (double)rows / (double)op.u.matmul.m;
    uint64_t weight = 0;
    for (uint32_t i = 0; i < w->args_n; i++)
        weight += w->args[i].slot == SLOT_PARAM ? lower_bytes(l, w->args[i]) : 0;
    weight = min_u64(weight, op.read_bytes);
    op.u.matmul.m = rows;
    op.flops *= share;
    op.model_flops *= share;
    op.read_bytes = weight + (uint64_t)((double)(op.read_bytes - weight) * share);
    op.write_bytes = (uint64_t)((double)op.write_bytes * share);
    lower_kernel(l, op);
    for (uint32_t i = 0; i < w->args_n; i++) {
        KernelArg a = w->args[i];
        lower_arg(l, a.slot, a.tensor, a.mode == ARG_WRITE && !first ? ARG_UPDATE : a.mode);
    }
}

static bool own_rows_first(Lowering *l, const Whole *w)
{
    uint64_t m = w->op.u.matmul.m, own = m / l->b->s->parallel.tp;
    if (!l->b->sw->tp_own_first || !takes_rows(l, &w->op) || own == 0 || !waits_for_others(l))
        return false;
    some_rows_kernel(l, w, own, true);
    some_rows_kernel(l, w, m - own, false);
    return true;
}

static bool leaves_by_ring(const Lowering *l)
{
    uint32_t end = l->begin + l->n;
    return end < l->s->op_n && l->ops[end].kind == OP_REDUCE_SCATTER && is_tp_ring(l, end) &&
           depends_on(l, &l->ops[end], l->begin, end);
}

static void step_kernel(Lowering *l, const Whole *w, uint64_t k, uint64_t steps)
{
    uint64_t bytes = w->op.u.comm.bytes;
    Op *op = part_begin(l, w, w->op.kind, w->op.fn);
    op->u.comm.bytes = bytes * (k + 1) / steps - bytes * k / steps;
    op->u.comm.of = (uint32_t)steps;
    for (uint32_t i = 0; i < w->args_n; i++)
        lower_arg(l, w->args[i].slot, w->args[i].tensor, w->args[i].mode);
}

bool ring_expand(Lowering *l, const Whole *w)
{
    uint32_t n = l->n == 1 ? ring_ranks(l, l->begin) : 0, cp = l->b->s->parallel.cp;
    for (uint32_t k = 0; k + 1 < n; k++)
        step_kernel(l, w, k, n - 1);
    if (n > 0)
        return true;
    if (l->b->sw->tp_ring && has_rows(l, &w->op, false) &&
        (waits_for_ring(l, LANE_TP) || leaves_by_ring(l)))
        n = l->b->s->parallel.tp;
    for (uint32_t k = 0; k < n; k++)
        rows_kernel(l, w, n, k == 0);
    if (n > 0 || own_rows_first(l, w))
        return true;
    if (w->op.kind != OP_ATTENTION || !fused_attention(l->b) || !waits_for_ring(l, LANE_CP))
        return false;
    for (uint32_t k = 0; k < cp; k++)
        attention_kernel(l, w, k == 0);
    correction_kernel(l, w);
    return true;
}

/* Kernels of the group at work that go rank by rank; 0: none do.  Behind those of attention stands
 * their correction. */
static uint32_t ring_kernels(const Lowering *l)
{
    const Op *op = &l->kernels[0].op;
    if (op->kind == OP_MATMUL)
        return op->u.matmul.of;
    return op->kind == OP_ATTENTION && l->kernels_n > 1 ? l->kernels_n - 1 : 0;
}

uint32_t ring_dep(const Lowering *l, uint32_t kernel, uint32_t op)
{
    uint32_t first = l->first[l->s->op_first + op], last = l->last[l->s->op_first + op];
    const Op *own = &l->kernels[0].op, *other = &l->ops[op];
    uint32_t kernels = ring_kernels(l);
    bool attends = other->kind == OP_ATTENTION && fused_attention(l->b);
    bool sums =
        own->kind == OP_REDUCE_SCATTER &&
        ((attends && last - first == l->kernels_n + 1) ||
         (other->kind == OP_MATMUL && own->lane == LANE_TP && last - first == l->kernels_n));
    if (kernels > 0 && ring_ranks(l, op) == kernels)
        return kernel > 0 && kernel < kernels ? first + kernel - 1 : NONE_U32;
    if (sums)
        return first + kernel + 1;
    if (is_beside_own(l, op) && takes_rows(l, own) && l->kernels_n > 1)
        return kernel == 1 ? last : NONE_U32;
    return kernel == 0 ? last : NONE_U32;
}
