/*
 * ddp.c - gradients summed over dp x cp in buckets, while backward still runs.
 *
 * PyTorch's reducer: parameters in definition order, reversed, are cut into
 * buckets; a bucket closes when its size reaches the limit after a tensor was
 * added, so it overshoots by up to one tensor.  The first limit is small: the
 * gradients that are ready first start the communication early.
 *
 *     params      E | block 0      | block 1       | head
 *     buckets    [     3     ][    2    ][   1    ][0]        first_bucket_bytes, bucket_bytes ...
 *
 *     compute    ..[B head][B block 1][B block 0][B E]...........[optimizer]
 *     reduce               [all-reduce 0][1]   [2]    [3]
 *
 * Buckets start strictly in order, each after its last gradient is final (the
 * very op: ready_ops), and only in the last micro-batch.  Without overlap all of
 * them start after the whole backward pass.  What comes next waits for all.
 *
 * Where the stack copies gradients into buckets (bucket_copies, PyTorch's
 * gradient_as_bucket_view=False) the copies are ops of the compute lane, per
 * block, and the buckets stay allocated.  Where it does not, gradients and
 * buckets are the same memory: the all-reduce then has no arguments but in a
 * bucket within one block, as an op knows one frame per slot.
 *
 * With pipelines all of this happens per stage, over the stage's own blocks.
 */
#include "sim/strategy/grads.h"

#include <stdlib.h>

typedef struct Bucket {
    uint32_t first, n; /* pieces */
    uint32_t
        ready_at; /* old instance after which it may start, never before the bucket before */
    Bundle bundle;
    Point reduced;
} Bucket;

typedef struct Ddp {
    Build *b;
    Role *role;
    uint32_t role_index;
    const Owned *owned;
    uint32_t pieces_n, buckets_n, buckets_cap;
    Piece *pieces; /* gradient-ready order */
    Bucket *buckets;
    uint32_t *last; /* by block: its last backward instance; NONE_U32 elsewhere */
    Arena scratch;
} Ddp;

/* ---- what goes where ---- */

static void list_pieces(Ddp *d)
{
    const Build *b = d->b;
    for (uint32_t i = b->blocks_n; i-- > 0;) {
        uint32_t n = b->home[i].role == d->role_index ? block_type(b, i)->params_n : 0;
        for (uint32_t p = n; p-- > 0;)
            d->pieces[d->pieces_n++] = (Piece){ i, p };
    }
}

static uint32_t count_params(const Build *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->blocks_n; i++)
        n += block_type(b, i)->params_n;
    return n;
}

static void cut_buckets(Ddp *d)
{
    const Parallel *p = &d->b->s->parallel;
    uint64_t limit = p->first_bucket_bytes, bytes = 0;
    uint64_t each = dtype_bytes(d->b->s->training.reduce_dtype);
    uint32_t first = 0;
    for (uint32_t i = 0; i < d->pieces_n; i++) {
        Piece piece = d->pieces[i];
        bytes += block_type(d->b, piece.block)->params[piece.param].elements * each;
        if (bytes < limit && i + 1 < d->pieces_n)
            continue;
        GROW(d->buckets, d->buckets_n, d->buckets_cap);
        d->buckets[d->buckets_n++] = (Bucket){ .first = first, .n = i + 1 - first };
        first = i + 1;
        bytes = 0;
        limit = p->bucket_bytes;
    }
}

static void find_last_backwards(Ddp *d)
{
    const Graph *g = d->b->g;
    for (uint32_t i = 0; i < d->b->blocks_n; i++)
        d->last[i] = NONE_U32;
    for (uint32_t i = 0; i < d->role->instances_n; i++) {
        const Instance *at = &d->role->instances[i];
        if (g->segments[at->segment].kind == SEGMENT_BACKWARD)
            d->last[block_of(d->b, at)] = i;
    }
}

static void find_ready(Ddp *d)
{
    bool overlap = overlaps(d->b, DIM_DP);
    uint32_t at = 0;
    for (uint32_t k = 0; k < d->buckets_n; k++) {
        Bucket *u = &d->buckets[k];
        for (uint32_t i = u->first; i < u->first + u->n; i++) {
            uint32_t last = d->last[d->pieces[i].block];
            ASSERT(last != NONE_U32);
            at = last > at ? last : at;
        }
        u->ready_at = overlap ? at : d->role->instances_n - 1;
    }
}

/* ---- writing ---- */

static void open_bucket(Ddp *d, uint32_t k)
{
    Bucket *u = &d->buckets[k];
    u->bundle = (Bundle){ .b = d->b,
                          .role = d->role,
                          .name = arena_printf(&d->scratch, "all-reduce bucket %" PRIu32, k),
                          .pieces = d->pieces + u->first,
                          .pieces_n = u->n,
                          .owned = d->owned,
                          .grad_slot = SLOT_GRAD,
                          .dtype = d->b->s->training.reduce_dtype,
                          .stays = true,
                          .group = d->b->group[GROUP_DP] };
}

/* The newest instance waits for the ops that finish the bucket's gradients: on the compute lane
 * the last of them stands for all. */
static void wait_for_gradients(const Ddp *d, const Weave *w, const Bucket *u)
{
    const Graph *g = d->b->g;
    Point newest = NOWHERE;
    for (uint32_t i = u->first; i < u->first + u->n; i++) {
        uint32_t last = d->last[d->pieces[i].block];
        uint32_t segment = w->old.instances[last].segment;
        uint32_t op = ready_ops(d->b, d->pieces[i].block, segment)[d->pieces[i].param];
        Point final = { w->now[last], op };
        if (graph_ops(g, &g->segments[segment])[op].lane != LANE_COMPUTE)
            wait_at(d->role, 0, final);
        else if (!point_is(newest) || final.instance > newest.instance ||
                 (final.instance == newest.instance && op > newest.op))
            newest = final;
    }
    wait_at(d->role, 0, newest);
}

static uint64_t bucket_elements(const Ddp *d, const Bucket *u)
{
    uint64_t n = 0;
    for (uint32_t i = u->first; i < u->first + u->n; i++)
        n += block_type(d->b, d->pieces[i].block)->params[d->pieces[i].param].elements;
    return n;
}

/* Gradients lie in the bucket already. */
static Point reduce_in_place(const Ddp *d, const Bucket *u)
{
    Graph *g = d->b->g;
    const Bundle *bundle = &u->bundle;
    const Piece *pieces = bundle->pieces;
    uint32_t block = pieces[0].block;
    const BlockType *t = block_type(d->b, block);
    uint32_t s = graph_segment(g, SEGMENT_REDUCE, bundle->name);
    graph_op(g, (Op){ .kind = OP_ALL_REDUCE,
                      .phase = PHASE_UPDATE,
                      .dtype = bundle->dtype,
                      .lane = LANE_REDUCE,
                      .name = intern(&g->names, bundle->name),
                      .u.comm = { .bytes = bucket_elements(d, u) * dtype_bytes(bundle->dtype),
                                  .group = bundle->group } });
    uint32_t at = role_instance(d->role, s, NONE_U32, NONE_U32, NONE_U32);
    if (pieces[u->n - 1].block == block) {
        g->segments[s].layout[SLOT_GRAD] = t->grad_layout;
        for (uint32_t i = 0; i < u->n; i++)
            graph_arg(g, SLOT_GRAD, t->params[pieces[i].param].tensor, ARG_UPDATE, false,
                      false);
        d->role->instances[at].frame[SLOT_GRAD] = d->b->home[block].grad;
    }
    return (Point){ at, 0 };
}

static void launch(Ddp *d, const Weave *w, uint32_t k)
{
    Bucket *u = &d->buckets[k];
    open_bucket(d, k);
    if (d->b->sw->bucket_copies) {
        bundle_open(&u->bundle);
        bundle_fill(&u->bundle, NOWHERE);
        u->reduced = bundle_reduce(&u->bundle, newest_compute(d->b->g, d->role));
        return;
    }
    u->reduced = reduce_in_place(d, u);
    if (overlaps(d->b, DIM_DP))
        wait_for_gradients(d, w, u);
    else
        wait_at(d->role, 0, newest_compute(d->b->g, d->role));
}

static void weave_buckets(Ddp *d)
{
    Weave w;
    uint32_t next = 0;
    weave_begin(&w, d->b, d->role);
    while (weave_left(&w)) {
        uint32_t old = w.next;
        weave_keep(&w);
        while (next < d->buckets_n && d->buckets[next].ready_at == old)
            launch(d, &w, next++);
    }
    weave_end(&w);
    ASSERT(next == d->buckets_n);
}

/* Returns what the first reader of a summed gradient waits for. */
static Point drain(Ddp *d)
{
    if (!d->b->sw->bucket_copies)
        return d->buckets_n ? d->buckets[d->buckets_n - 1].reduced : NOWHERE;
    for (uint32_t k = 0; k < d->buckets_n; k++)
        bundle_drain(&d->buckets[k].bundle, d->buckets[k].reduced);
    return NOWHERE;
}

static void ddp_role(Build *b, Finish *f, uint32_t role)
{
    Ddp d = { .b = b, .role = &b->g->roles[role], .role_index = role, .owned = f->owned };
    d.pieces = PUSH_ARRAY(&d.scratch, Piece, count_params(b));
    d.last = PUSH_ARRAY(&d.scratch, uint32_t, b->blocks_n);
    list_pieces(&d);
    cut_buckets(&d);
    find_last_backwards(&d);
    find_ready(&d);
    weave_buckets(&d);
    finish_role(f, role, drain(&d));
    free(d.buckets);
    arena_free(&d.scratch);
}

bool pass_ddp(Build *b, Err *err)
{
    if (b->group[GROUP_DP] == NONE_U32)
        return pass_single(b, err);
    Finish f;
    finish_begin(&f, b, owned_whole(b), false);
    for (uint32_t role = 0; role < b->g->roles_n; role++)
        ddp_role(b, &f, role);
    return true;
}
