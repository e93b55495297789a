/*
 * ddp.c - gradients summed over dp x cp in buckets, while backward still runs.
 *
 * PyTorch's reducer, with the buckets of buckets.h.  The first limit
 * (first_bucket_bytes) is small: the gradients that are ready first start the
 * communication early.  Stacks with a bucket size of their own have no such limit.
 *
 *     compute    ..[B head][B block 1][B block 0][B E]...........[optimizer]
 *     reduce               [all-reduce 0][1]   [2]    [3]
 *
 * What comes after backward waits for all of them.  Experts are summed over the ranks that hold the
 * same, of tp too where they are whole: with dp x cp of 1 they may be all that is.
 *
 * Where the stack copies gradients into buckets (bucket_copies, PyTorch's
 * gradient_as_bucket_view=False) the copies are ops of the compute lane, per
 * block, and the buckets stay allocated.  Where it does not, gradients and
 * buckets are the same memory.  Without overlap no copy runs beside a collective.
 *
 * With pipelines all of this happens per stage, over the stage's own blocks.
 *
 * Before the first forward the buffers of batch norms are broadcast: buffers.h.
 * What DDP does once, before the first step, is no part of a steady step and not
 * here: the broadcast of parameters from rank 0, and buckets in definition order.
 */
#include "sim/strategy/buckets.h"
#include "sim/strategy/buffers.h"

static void launch(Buckets *d, const Weave *w, const BucketNames *names, Bucket *u)
{
    DType dtype = build_formats(d->b).reduce;
    if (copies_buckets(d->b)) {
        bucket_copied(d, u, names->name);
        return;
    }
    u->reduced =
        bucket_in_place(d, u, (InPlace){ OP_ALL_REDUCE, LANE_REDUCE, SLOT_GRAD, dtype, names });
    if (overlaps(d->b, DIM_DP))
        bucket_wait(d, w, u);
    else
        wait_at(d->role, 0, newest_compute(d->b->g, d->role));
}

static void weave_buckets(Buckets *d, const BucketNames *names)
{
    Weave w;
    weave_begin(&w, d->role, d->role->instances_n);
    broadcast_buffers(d->b, d->role_index);
    for (uint32_t k = 0; k < d->list_n; k++) {
        weave_keep_to(&w, d->list[k].ready_at + 1);
        launch(d, &w, names, &d->list[k]);
    }
    weave_keep_to(&w, w.old.instances_n);
    weave_end(&w);
}

/* Returns what the first reader of a summed gradient waits for. */
static Point drain(Buckets *d)
{
    if (!copies_buckets(d->b))
        return d->list_n ? d->list[d->list_n - 1].reduced : NOWHERE;
    buckets_drain(d);
    return NOWHERE;
}

static void ddp_role(Build *b, Finish *f, const BucketNames *names, uint32_t role)
{
    Buckets d;
    buckets_open(&d, b, role, f->owned, false, true);
    weave_buckets(&d, names);
    finish_role(f, role, drain(&d));
    buckets_close(&d);
}

bool pass_ddp(Build *b, Err *err)
{
    if (!has_replicas(b))
        return pass_single(b, err);
    Finish f;
    finish_begin(&f, b, owned_by_share(b, SHARE_NOTHING), SHARE_NOTHING, 1);
    BucketNames names = bucket_names(b, "all-reduce");
    for (uint32_t role = 0; role < b->g->roles_n; role++)
        ddp_role(b, &f, &names, role);
    return true;
}
