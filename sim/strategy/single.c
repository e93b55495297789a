/*
 * single.c - nobody to share gradients with: after backward comes the optimizer.
 *
 *     compute   [F0][B0][F1][B1]|[optimizer block 0][block 1] ...
 *
 * Also what ddp and fsdp come to where dp x cp is 1 (pipelines without data
 * parallelism), unless ranks of tp hold the same whole experts.
 */
#include "sim/strategy/grads.h"

bool pass_single(Build *b, Err *err)
{
    (void)err;
    Finish f;
    finish_begin(&f, b, owned_by_share(b, SHARE_NOTHING), SHARE_NOTHING, 0);
    for (uint32_t role = 0; role < b->g->roles_n; role++)
        finish_role(&f, role, NOWHERE);
    return true;
}
