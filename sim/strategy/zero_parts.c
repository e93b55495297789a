/*
 * zero_parts.c - scatters, gathers and where they stand; see zero_parts.h.
 */
#include "sim/strategy/zero_parts.h"

/* ---- gradients ---- */

static OpKind scatter_kind(const Zero *z)
{
    return zero_sums_whole(z->b) ? OP_ALL_REDUCE : OP_REDUCE_SCATTER;
}

/* This rank's part of a bucket goes where the optimizer looks for it. */
static void settle_part(const Zero *z, ZeroPart *p)
{
    BundleCopy out = { .slot = z->each ? SLOT_GRAD_SHARD : SLOT_GRAD, .part = true };
    out.add = z->each && p->adds;
    out.born = z->each && !p->adds && !z->b->sw->grads_persist;
    bundle_copy(&p->bundle, &out, p->reduced);
}

static void settle(Zero *z)
{
    for (uint32_t i = 0; i < z->pending_n; i++)
        settle_part(z, &z->pending[i]);
    z->pending_n = 0;
}

/* Buckets of experts and of the rest that fill up at once leave together. */
static bool leaves_with_pending(const Zero *z, const Bundle *bundle, bool at_once)
{
    bool other = at_once && z->pending_n < ARRAY_N(z->pending);
    for (uint32_t i = 0; i < z->pending_n; i++)
        other = other && z->pending[i].bundle.group != bundle->group;
    return other;
}

/* The gradients of a block are gone when all of its parameters' are. */
static void forget_grads(Zero *z, const Bucket *u)
{
    for (uint32_t i = u->first; i < u->first + u->n; i++) {
        uint32_t block = z->buckets.pieces[i].block;
        ASSERT(z->grads_left[block] > 0);
        if (--z->grads_left[block] == 0)
            z->grads[block] = NONE_U32;
    }
}

/* Every micro-batch of zero2 scatters the same. */
static Bundle scatter_bundle(Zero *z, const Bucket *u)
{
    Bundle *first = &z->scatter[u - z->buckets.list];
    Arena *arena = &z->buckets.scratch;
    if (first->name)
        return *first;
    *first =
        bucket_bundle(&z->buckets, u, z->scatter_names.name, build_formats(z->b).reduce, false);
    first->comm = PUSH(arena, uint32_t);
    bundle_share(first, &z->scatters, arena);
    return *first;
}

/* Whole sums have buffers of their own, as ddp's: backward does not wait for them. */
static bool sums_stay(const Zero *z)
{
    return z->copies && zero_sums_whole(z->b);
}

/* at_once: in the same place as the one before. */
static void scatter_copies(Zero *z, const Bucket *u, bool at_once)
{
    Build *b = z->b;
    ZeroPart part = { .adds = z->round > 0 };
    part.bundle = scatter_bundle(z, u);
    if (z->each)
        part.bundle.micro_batch = z->round;
    bundle_open(&part.bundle);
    BundleCopy in = { .in = true, .slot = SLOT_GRAD, .dies = z->each };
    in.frame = z->each ? z->grads : NULL;
    bundle_copy(&part.bundle, &in, NOWHERE);
    if (z->each)
        forget_grads(z, u);
    part.reduced = newest_compute(b->g, z->buckets.role);
    if (part.bundle.group == NONE_U32) { /* it sends nothing */
        settle_part(z, &part);
        return;
    }
    if (!leaves_with_pending(z, &part.bundle, at_once)) {
        settle(z);
        part.reduced = newest_compute(b->g, z->buckets.role);
    }
    part.reduced = bundle_comm(&part.bundle, OP_REDUCE_SCATTER, LANE_REDUCE, part.reduced);
    z->pending[z->pending_n++] = part;
    if (!overlaps(b, DIM_DP))
        settle(z);
}

static void scatter(Zero *z, Bucket *u, bool at_once)
{
    Build *b = z->b;
    if (sums_stay(z)) {
        bucket_copied(&z->buckets, u, z->scatter_names.name);
        return;
    }
    if (z->copies) {
        scatter_copies(z, u, at_once);
        return;
    }
    InPlace how = { scatter_kind(z), LANE_REDUCE, SLOT_GRAD, build_formats(b).reduce,
                    &z->scatter_names };
    u->reduced = bucket_in_place(&z->buckets, u, how);
    if (overlaps(b, DIM_DP))
        bucket_wait(&z->buckets, &z->w, u);
    else
        wait_at(z->buckets.role, 0, newest_compute(b->g, z->buckets.role));
}

/* zero1: the old instance is the last that its gradients need; zero2: a backward pass visits the
 * blocks from the last to the first, again and again. */
static bool is_ready(const Zero *z, const Bucket *u, uint32_t old, const Instance *at)
{
    if (!z->each)
        return u->ready_at == old;
    return z->b->g->segments[at->segment].kind == SEGMENT_BACKWARD &&
           z->buckets.pieces[u->first + u->n - 1].block >= block_of(z->b, at);
}

static void scatter_ready(Zero *z, uint32_t old, const Instance *at)
{
    Buckets *d = &z->buckets;
    for (uint32_t first = z->next;
         z->next < d->list_n && is_ready(z, &d->list[z->next], old, at); z->next++)
        scatter(z, &d->list[z->next], z->next > first);
    if (z->each && z->next == d->list_n) {
        z->next = 0;
        z->round++;
    }
}

/* A backward of zero2 writes gradients that live until their bucket is filled. */
static void bind_grads(Zero *z, uint32_t i)
{
    Role *role = z->buckets.role;
    Instance *at = &role->instances[i];
    uint32_t block = block_of(z->b, at);
    if (!z->each || block == NONE_U32 ||
        z->b->g->segments[at->segment].kind != SEGMENT_BACKWARD)
        return;
    uint32_t owner = z->b->blocks[block].frame_of;
    uint32_t layout = block_type(z->b, owner)->grad_layout;
    if (at->frame[SLOT_GRAD] == NONE_U32)
        return;
    if (z->grads[owner] == NONE_U32) {
        Frame frame = { layout, z->b->blocks[owner].layer, false };
        z->grads[owner] = role_frame(role, frame);
        z->grads_left[owner] = block_type(z->b, owner)->params_n;
    }
    at->frame[SLOT_GRAD] = z->grads[owner];
}

/* ---- parameters ---- */

static Bundle gather_bundle(Zero *z, const Bucket *u, DType dtype)
{
    Bundle bundle = bucket_bundle(&z->buckets, u, z->gather_names.name, dtype, false);
    bundle.grad_slot = SLOT_PARAM;
    if (bundle.group == NONE_U32)
        return bundle; /* this rank has updated all of it */
    bundle_share(&bundle, &z->gathers, &z->buckets.scratch);
    bundle_open(&bundle);
    return bundle;
}

/* To a list and to what is sent, as far as the stack copies to either. */
static void gather_copies(Zero *z, uint32_t k, DType dtype)
{
    const Bucket *u = &z->buckets.list[k];
    z->gather[k] = gather_bundle(z, u, dtype);
    if (z->gather[k].group == NONE_U32)
        return;
    if (z->lists) {
        z->list = gather_bundle(z, u, dtype);
        bundle_copy(&z->list, &(BundleCopy){ .in = true, .slot = SLOT_PARAM }, NOWHERE);
    }
    BundleCopy in = { .in = true, .slot = SLOT_PARAM, .part = true };
    bundle_copy(&z->gather[k], &in, NOWHERE);
    z->gathered[k] = bundle_comm(&z->gather[k], OP_ALL_GATHER, LANE_GATHER,
                                 newest_compute(z->b->g, z->buckets.role));
}

static void launch_gather(Zero *z, uint32_t k)
{
    Buckets *d = &z->buckets;
    const Bucket *u = &d->list[k];
    Piece first = d->pieces[u->first];
    const BlockType *t = block_type(z->b, first.block);
    DType dtype = layout_tensor(z->b->g, t->param_layout, t->params[first.param].tensor)->dtype;
    if (z->drains) {
        gather_copies(z, k, dtype);
        return;
    }
    Point after = newest_compute(z->b->g, d->role);
    InPlace how = { OP_ALL_GATHER, LANE_GATHER, SLOT_PARAM, dtype, &z->gather_names };
    z->gathered[k] = bucket_in_place(d, u, how);
    wait_at(d->role, 0, after);
}

/* Launches the gathers of buckets >= k that are not under way. */
static void gather_from(Zero *z, uint32_t k)
{
    while (z->ungathered > k)
        launch_gather(z, --z->ungathered);
}

/* What stands in the list has the place of what the copy to it wrote. */
static void drain(Zero *z, uint32_t k)
{
    BundleCopy out = { .slot = SLOT_PARAM };
    if (z->gather[k].group == NONE_U32)
        return;
    bundle_copy(&z->gather[k], &out, z->gathered[k]);
    if (!z->lists)
        return;
    out.kernels = group_ranks(z->b, z->list.group);
    bundle_copy(&z->list, &out, NOWHERE);
}

static void drain_from(Zero *z, uint32_t k)
{
    while (z->drains && z->undrained > k)
        drain(z, --z->undrained);
}

/* The last bucket with a parameter of the block, that is the one with its last parts; NONE_U32. */
static uint32_t lowest_bucket_of(const Zero *z, uint32_t block)
{
    const Buckets *d = &z->buckets;
    for (uint32_t k = 0; k < d->list_n; k++) {
        const Bucket *u = &d->list[k];
        for (uint32_t i = u->first; i < u->first + u->n; i++)
            if (d->pieces[i].block == block)
                return k;
    }
    return NONE_U32;
}

/* Before the first forward of a block; returns the bucket it waits for, or NONE_U32. */
static uint32_t gather_for(Zero *z, const Instance *at)
{
    uint32_t block = block_of(z->b, at);
    if (!z->ahead || block == NONE_U32 ||
        z->b->g->segments[at->segment].kind != SEGMENT_FORWARD || z->has_run[block])
        return NONE_U32;
    z->has_run[block] = true;
    z->unrun_n--;
    uint32_t k = lowest_bucket_of(z, block);
    if (k == NONE_U32)
        return NONE_U32;
    gather_from(z, k);
    drain_from(z, k);
    if (k > 0)
        gather_from(z, k - 1);
    return k;
}

/* After the update: one after the other, exposed but for the copies of the one before; without
 * overlap those wait too. */
static void gather_all(Zero *z)
{
    uint32_t behind = overlaps(z->b, DIM_DP) && !z->lists ? 1 : 0;
    for (uint32_t k = z->buckets.list_n; k-- > 0;) {
        gather_from(z, k);
        drain_from(z, k + behind);
    }
    drain_from(z, 0);
}

/* ---- one role ---- */

static void start_role(Zero *z, uint32_t role)
{
    Build *b = z->b;
    Buckets *d = &z->buckets;
    buckets_open(d, b, role, z->finish.owned, true, sums_stay(z));
    z->next = z->round = 0;
    z->scatters = z->gathers = NULL;
    z->pending_n = 0;
    z->ungathered = z->undrained = d->list_n;
    z->scatter = z->copies ? PUSH_ARRAY(&d->scratch, Bundle, d->list_n) : NULL;
    z->gather = z->drains ? PUSH_ARRAY(&d->scratch, Bundle, d->list_n) : NULL;
    z->gathered = PUSH_ARRAY(&d->scratch, Point, d->list_n);
    z->has_run = PUSH_ARRAY(&d->scratch, bool, b->blocks_n);
    z->grads = PUSH_ARRAY(&d->scratch, uint32_t, b->blocks_n);
    z->grads_left = PUSH_ARRAY(&d->scratch, uint32_t, b->blocks_n);
    z->unrun_n = 0;
    for (uint32_t i = 0; i < b->blocks_n; i++) {
        z->grads[i] = NONE_U32;
        z->unrun_n += b->home[i].role == role;
    }
}

/* The old instance before or after which something may stand; those before it are just kept. */
static uint32_t next_look(const Zero *z)
{
    const Buckets *d = &z->buckets;
    if (z->each || (z->ahead && z->unrun_n > 0))
        return z->w.next;
    return z->next < d->list_n ? d->list[z->next].ready_at : z->w.old.instances_n - 1;
}

/* What does not wait for the first forward; buffers are never there for all of it. */
static void gather_at_start(Zero *z)
{
    const Software *sw = z->b->sw;
    bool all = sw->gathers_together && !z->drains;
    if (z->ahead && z->buckets.list_n > 0 && (sw->gathers_together || sw->gathers_at_start))
        gather_from(z, all ? 0 : z->buckets.list_n - 1);
}

static void weave_role(Zero *z)
{
    Weave *w = &z->w;
    Role *role = z->buckets.role;
    weave_begin(w, role, role->instances_n);
    gather_at_start(z);
    while (weave_left(w)) {
        weave_keep_to(w, next_look(z));
        uint32_t old = w->next;
        Instance at = *weave_next(w);
        uint32_t k = gather_for(z, &at);
        uint32_t i = weave_keep(w);
        if (k != NONE_U32 && !z->drains)
            wait_at_start(z->b->g, role, z->gathered[k]);
        bind_grads(z, i);
        scatter_ready(z, old, &at);
    }
    weave_end(w);
}

static void zero_role(Zero *z, uint32_t role)
{
    start_role(z, role);
    weave_role(z);
    settle(z);
    if (sums_stay(z))
        buckets_drain(&z->buckets);
    Buckets *d = &z->buckets;
    bool in_place = !z->copies && d->list_n > 0;
    finish_role(&z->finish, role, in_place ? d->list[d->list_n - 1].reduced : NOWHERE);
    if (!z->ahead)
        gather_all(z);
    buckets_close(d);
}

bool zero_pass(Build *b, Share share, Err *err)
{
    if (!has_replicas(b))
        return pass_single(b, err);
    Zero z = { .b = b, .each = share == SHARE_GRADS };
    z.lists = !z.each && b->sw->zero_gathers_lists;
    z.drains = z.each || b->sw->bucket_copies || z.lists;
    z.copies = z.each || copies_buckets(b);
    z.ahead = overlaps(b, DIM_DP) && b->sw->overlap_param_gather && !z.lists;
    Owned *owned = owned_by_share(b, share);
    finish_begin(&z.finish, b, owned, share, 2); /* scattered, gathered */
    share_homes(b, owned, share);
    z.scatter_names = bucket_names(b, zero_sums_whole(b) ? "all-reduce" : "reduce-scatter");
    z.gather_names = bucket_names(b, "all-gather");
    for (uint32_t role = 0; role < b->g->roles_n; role++)
        zero_role(&z, role);
    return true;
}
