/*
 * model_parallel.c - layers on one GPU after the other, as PyTorch's tutorial has it.
 *
 * The model's layers lie on pp GPUs (x = self.seq2(self.seq1(x).to("cuda:1"))), and
 * the whole batch goes through them in one piece.  One GPU works while the others wait:
 *
 *     gpu 0   [F]......................[B]|optimizer
 *     gpu 1      [F]................[B].  |
 *     gpu 2         [F]..........[B]....  |
 *     gpu 3            [F.loss.B].......  |optimizer
 *
 * All of that is pipeline.c with schedule naive and one micro-batch, which
 * scenario_check.c insists on; what is left is the optimizer.
 *
 * ONE HOST.  In the tutorial one process drives all GPUs.  Here every GPU has a
 * host thread of its own, as every stage of a pipeline has: launches of
 * one GPU come a little sooner than they would after those of another, which
 * shows only where a step is bound by launches, and optimizers run side by side,
 * as they do there, being launched without waiting.
 */
#include "sim/build.h"

bool pass_model_parallel(Build *b, Err *err)
{
    ASSERT(b->group[GROUP_DP] == NONE_U32 && b->s->training.micro_batches == 1);
    return pass_single(b, err);
}
