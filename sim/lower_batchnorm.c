/*
 * lower_batchnorm.c - batch norms over the samples of all replicas (parallel.sync_batchnorm).
 *
 * torch.nn.SyncBatchNorm.  Statistics of this rank's samples, an exchange, and then
 * the norm itself; backward likewise with two sums per channel:
 *
 *     forward    stats(x) | all-gather 2 C + 1 numbers | gather stats, y(x)
 *     backward   sums(dy, x) | all-reduce 2 C numbers  | dx(dy, x, sums)
 *
 * The exchange uses the stream of the gradients (one process group, one NCCL
 * stream), so it queues behind buckets under way, and compute waits for it: there are two
 * for every batch norm, small ones, which cost their latency.
 *
 * It stands in the lowering, not on the tape, because a batch norm stays one logical
 * op, whatever samples it looks at.
 */
#include "sim/lower_parts.h"

static Op *exchange(Lowering *l, const Whole *w, OpKind kind, uint64_t bytes)
{
    Op *op = part_begin(l, w, kind, FN_NONE);
    op->dtype = DTYPE_F32;
    op->lane = LANE_REDUCE;
    op->u.comm = (CommShape){ .bytes = bytes, .group = l->b->group[GROUP_DP] };
    return op;
}

static void local_arg(Lowering *l, KernelArg a, ArgMode mode)
{
    lower_arg(l, a.slot, a.tensor, mode);
}

/* x gain shift -> y stats */
static void forward(Lowering *l, const Whole *w, uint64_t ranks)
{
    uint64_t numbers = 2 * w->op.u.rows.columns + 1;
    KernelArg x = w->args[0], y = w->args[w->args_n - 2], stats = w->args[w->args_n - 1];
    KernelArg own = lower_temp(l, "statistics of a rank", DTYPE_F32, 1, numbers);
    KernelArg all = lower_temp(l, "statistics of all", DTYPE_F32, ranks, numbers);
    part_begin(l, w, OP_BATCHNORM, w->op.fn);
    part_arg(l, x, ARG_READ);
    part_arg(l, own, ARG_WRITE);
    exchange(l, w, OP_ALL_GATHER, ranks * numbers * dtype_bytes(DTYPE_F32));
    local_arg(l, own, ARG_READ);
    local_arg(l, all, ARG_WRITE);
    part_begin(l, w, OP_BATCHNORM, w->op.fn);
    part_arg(l, x, ARG_READ);
    for (uint32_t i = 1; i + 2 < w->args_n; i++)
        part_arg(l, w->args[i], ARG_READ);
    part_arg(l, all, ARG_READ);
    part_arg(l, y, ARG_WRITE);
    part_arg(l, stats, ARG_WRITE);
}

/* dy x stats gain -> dx dgain dshift */
static void backward(Lowering *l, const Whole *w)
{
    uint64_t channels = w->op.u.rows.columns;
    KernelArg sums = lower_temp(l, "sums over samples", DTYPE_F32, 2, channels);
    part_begin(l, w, OP_BATCHNORM, w->op.fn);
    for (uint32_t i = 0; i < 3; i++)
        part_arg(l, w->args[i], ARG_READ);
    for (uint32_t i = 5; i < w->args_n; i++)
        part_arg(l, w->args[i], w->args[i].mode);
    part_arg(l, sums, ARG_WRITE);
    exchange(l, w, OP_ALL_REDUCE, 2 * channels * dtype_bytes(DTYPE_F32));
    local_arg(l, sums, ARG_UPDATE);
    part_begin(l, w, OP_BATCHNORM, w->op.fn);
    for (uint32_t i = 0; i < 4; i++)
        part_arg(l, w->args[i], ARG_READ);
    part_arg(l, sums, ARG_READ);
    part_arg(l, w->args[4], w->args[4].mode);
}

bool sync_batchnorm(Lowering *l, const Whole *w)
{
    uint32_t group = l->b->group[GROUP_DP];
    if (w->op.kind != OP_BATCHNORM || !l->b->s->parallel.sync_batchnorm || group == NONE_U32)
        return false;
    if (op_is_forward(&w->op)) {
        ASSERT(w->args_n == 5);
        forward(l, w, group_size(&l->g->groups[group]));
    } else {
        ASSERT(w->args_n == 7);
        backward(l, w);
    }
    return true;
}
