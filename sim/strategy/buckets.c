/*
 * buckets.c - what goes into which bucket, and when it is ready; see buckets.h.
 */
#include "sim/strategy/buckets.h"

#include <stdlib.h>
#include <string.h>

/* ---- what goes where ---- */

static uint32_t bucket_group(const Buckets *d, const Bucket *u)
{
    return d->b->group[u->experts ? GROUP_EDP : GROUP_DP];
}

/* Times Owned.elements is a tensor of the bucket. */
static uint32_t bucket_parts(const Buckets *d, const Bucket *u)
{
    return d->shared ? group_ranks(d->b, bucket_group(d, u)) : 1;
}

static void list_pieces(Buckets *d, bool experts)
{
    const Build *b = d->b;
    for (uint32_t i = b->blocks_n; i-- > 0;) {
        const BlockType *t = block_type(b, i);
        uint32_t n = b->home[i].role == d->role_index ? t->params_n : 0;
        for (uint32_t p = n; p-- > 0;)
            if (t->params[p].expert == experts)
                d->pieces[d->pieces_n++] = (Piece){ i, p };
    }
}

/* Those of a role; NONE_U32: of all. */
static uint32_t count_params(const Build *b, uint32_t role)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->blocks_n; i++)
        n += role == NONE_U32 || b->home[i].role == role ? block_type(b, i)->params_n : 0;
    return n;
}

/* All that is reduced at one time may as well be one. */
static bool is_one_bucket(const Build *b)
{
    const Parallel *p = &b->s->parallel;
    bool zero = p->strategy == STRATEGY_ZERO1 || p->strategy == STRATEGY_ZERO2;
    bool last = b->sw->zero_reduces_last && zero && !overlap_is_asked(b, DIM_DP);
    return !p->bucket_bytes_set &&
           (last || (b->sw->first_chunk_buckets && !overlaps(b, DIM_DP)));
}

/* A stack that reduces whole buffers, after backward, has no buckets to overlap: who asks for that
 * gets PyTorch's. */
static bool has_buckets(const Build *b)
{
    const uint64_t whole = UINT64_C(1000000000000); /* parameters; as files say it */
    const Software *sw = b->sw;
    bool buffers = sw->bucket_parameters >= whole && overlap_is_asked(b, DIM_DP);
    return (sw->bucket_parameters || sw->bucket_parameters_per_rank) && !buffers;
}

bool buckets_are_stacks(const Build *b)
{
    return !b->s->parallel.bucket_bytes_set && (has_buckets(b) || is_one_bucket(b));
}

/* Of the first stage's first chunk the last gradients come last in the step, with nothing left to
 * hide them; what is reduced of others is hidden whatever its size. */
static bool is_one_piece(const Build *b, uint32_t block)
{
    return !b->s->parallel.bucket_bytes_set && b->sw->first_chunk_buckets &&
           b->chunk_of[block] > 0;
}

uint64_t bucket_limit_bytes(const Build *b, bool first)
{
    const Parallel *p = &b->s->parallel;
    if (is_one_bucket(b))
        return UINT64_MAX;
    if (!buckets_are_stacks(b))
        return first ? p->first_bucket_bytes : p->bucket_bytes;
    uint64_t ranks = (uint64_t)p->dp * p->cp;
    return max_u64(b->sw->bucket_parameters, b->sw->bucket_parameters_per_rank * ranks) *
           dtype_bytes(build_formats(b).reduce);
}

/* Does the bucket of piece i, so far of so many bytes, end with it? */
static bool ends_bucket(const Buckets *d, uint32_t i, uint64_t bytes, uint64_t limit)
{
    const uint32_t *chunk_of = d->b->chunk_of;
    uint32_t block = d->pieces[i].block;
    if (i + 1 == d->pieces_n)
        return true;
    if (d->b->sw->first_chunk_buckets && chunk_of[d->pieces[i + 1].block] != chunk_of[block])
        return true;
    return bytes >= limit && !is_one_piece(d->b, block);
}

/* The pieces from `first` on. */
static void cut(Buckets *d, uint32_t first, bool experts, bool small_first)
{
    uint64_t each = dtype_bytes(build_formats(d->b).reduce), bytes = 0;
    uint64_t later = bucket_limit_bytes(d->b, false);
    uint64_t limit = bucket_limit_bytes(d->b, small_first);
    for (uint32_t i = first; i < d->pieces_n; i++) {
        Piece piece = d->pieces[i];
        bytes += block_type(d->b, piece.block)->params[piece.param].elements * each;
        if (!ends_bucket(d, i, bytes, limit))
            continue;
        GROW(d->list, d->list_n, d->list_cap);
        d->list[d->list_n++] = (Bucket){
            .first = first, .n = i + 1 - first, .experts = experts, .reduced = NOWHERE
        };
        first = i + 1;
        bytes = 0;
        limit = later;
    }
}

/* Under zero2 whole gradients go by way of a bucket even where nobody else has the same. */
static void cut_kind(Buckets *d, bool experts, bool small_first)
{
    uint32_t first = d->pieces_n;
    if (d->b->group[experts ? GROUP_EDP : GROUP_DP] == NONE_U32 && !shards_grads(d->b))
        return;
    list_pieces(d, experts);
    cut(d, first, experts, small_first);
}

/* From the end, until all have been seen. */
static void find_last_backwards(Buckets *d)
{
    const Build *b = d->b;
    uint32_t unseen = 0;
    for (uint32_t i = 0; i < b->blocks_n; i++) {
        d->last[i] = NONE_U32;
        unseen += b->home[i].role == d->role_index;
    }
    for (uint32_t i = d->role->instances_n; i-- > 0 && unseen > 0;) {
        const Instance *at = &d->role->instances[i];
        SegmentKind kind = b->g->segments[at->segment].kind;
        if (kind != SEGMENT_BACKWARD && kind != SEGMENT_WEIGHT && kind != SEGMENT_SUM)
            continue;
        uint32_t *last = &d->last[block_of(b, at)];
        if (*last == NONE_U32) {
            *last = i;
            unseen--;
        }
    }
}

static void find_ready(Buckets *d)
{
    bool at_once = overlaps(d->b, DIM_DP) || shards_grads(d->b);
    uint32_t at = 0;
    for (uint32_t k = 0; k < d->list_n; k++) {
        Bucket *u = &d->list[k];
        at = k > 0 && u->experts != u[-1].experts ? 0 : at;
        for (uint32_t i = u->first; i < u->first + u->n; i++) {
            uint32_t last = d->last[d->pieces[i].block];
            ASSERT(last != NONE_U32);
            at = last > at ? last : at;
        }
        u->ready_at = at_once ? at : d->role->instances_n - 1;
    }
}

/* Both kinds in one list, as they become ready; of one instance the experts last. */
static void merge_kinds(Buckets *d)
{
    uint32_t dense_n = 0, i = 0, n = d->list_n;
    while (dense_n < n && !d->list[dense_n].experts)
        dense_n++;
    if (dense_n == n)
        return;
    Bucket *merged = PUSH_ARRAY(&d->scratch, Bucket, n);
    for (uint32_t x = 0, y = dense_n; i < n; i++) {
        bool dense = y == n || (x < dense_n && d->list[x].ready_at <= d->list[y].ready_at);
        merged[i] = d->list[dense ? x++ : y++];
    }
    memcpy(d->list, merged, n * sizeof *merged);
}

void buckets_open(Buckets *d, Build *b, uint32_t role, const Owned *owned, bool shared,
                  bool small_first)
{
    *d = (Buckets){
        .b = b, .role = &b->g->roles[role], .role_index = role, .owned = owned, .shared = shared
    };
    d->pieces = PUSH_ARRAY(&d->scratch, Piece, count_params(b, role));
    d->last = PUSH_ARRAY(&d->scratch, uint32_t, b->blocks_n);
    cut_kind(d, false, small_first);
    cut_kind(d, true, false);
    find_last_backwards(d);
    find_ready(d);
    merge_kinds(d);
}

void buckets_close(Buckets *d)
{
    free(d->list);
    arena_free(&d->scratch);
    *d = (Buckets){ 0 };
}

/* ---- collectives ---- */

/* "NAME bucket K", without printf: there are thousands in a plan. */
static const char *bucket_name(Buckets *d, const char *name, uint32_t k)
{
    static const char middle[] = " bucket ";
    char digits[10];
    size_t digits_n = 0, name_n = strlen(name), middle_n = sizeof middle - 1;
    do
        digits[digits_n++] = (char)('0' + k % 10);
    while (k /= 10);
    char *text = PUSH_ARRAY(&d->scratch, char, name_n + middle_n + digits_n + 1);
    memcpy(text, name, name_n);
    memcpy(text + name_n, middle, middle_n);
    for (size_t i = 0; i < digits_n; i++)
        text[name_n + middle_n + i] = digits[digits_n - 1 - i];
    return text;
}

Bundle bucket_bundle(Buckets *d, const Bucket *u, const char *name, DType dtype, bool stays)
{
    uint32_t k = (uint32_t)(u - d->list);
    return (Bundle){ .b = d->b,
                     .micro_batch = NONE_U32,
                     .role = d->role,
                     .name = bucket_name(d, name, k),
                     .pieces = d->pieces + u->first,
                     .pieces_n = u->n,
                     .owned = d->owned,
                     .parts = bucket_parts(d, u),
                     .grad_slot = SLOT_GRAD,
                     .dtype = dtype,
                     .stays = stays,
                     .group = bucket_group(d, u) };
}

/* fp8: what matmuls read in fp8 counts a byte. */
static uint64_t bucket_bytes(const Buckets *d, const Bucket *u, DType dtype, bool fp8)
{
    uint64_t bytes = 0;
    for (uint32_t i = u->first; i < u->first + u->n; i++) {
        Piece p = d->pieces[i];
        bool narrow = fp8 && block_type(d->b, p.block)->params[p.param].quantized;
        bytes += d->owned[d->b->blocks[p.block].type].elements[p.param] * bucket_parts(d, u) *
                 dtype_bytes(narrow ? DTYPE_FP8 : dtype);
    }
    return bytes;
}

BucketNames bucket_names(Build *b, const char *name)
{
    return (BucketNames){ name, PUSH_ARRAY(&b->arena, uint32_t, count_params(b, NONE_U32)) };
}

static uint32_t name_of(Buckets *d, const BucketNames *names, uint32_t k)
{
    if (names->bucket[k] == 0)
        names->bucket[k] = intern(&d->b->g->names, bucket_name(d, names->name, k)) + 1;
    return names->bucket[k] - 1;
}

Point bucket_in_place(Buckets *d, const Bucket *u, InPlace how)
{
    Graph *g = d->b->g;
    const Piece *pieces = d->pieces + u->first;
    uint32_t block = pieces[0].block;
    const BlockType *t = block_type(d->b, block);
    bool grads = how.slot == SLOT_GRAD, fp8 = !grads && d->b->sw->fp8_param_gather;
    uint32_t s = graph_segment_named(g, grads ? SEGMENT_REDUCE : SEGMENT_GATHER,
                                     name_of(d, how.names, (uint32_t)(u - d->list)));
    graph_op(g, (Op){ .kind = how.kind,
                      .phase = PHASE_UPDATE,
                      .dtype = how.dtype,
                      .lane = how.lane,
                      .name = g->segments[s].name,
                      .u.comm = { .bytes = bucket_bytes(d, u, how.dtype, fp8),
                                  .group = bucket_group(d, u) } });
    uint32_t at = role_instance(d->role, s, NONE_U32, NONE_U32, NONE_U32);
    if (pieces[u->n - 1].block == block) {
        g->segments[s].layout[how.slot] = grads ? t->grad_layout : t->param_layout;
        for (uint32_t i = 0; i < u->n; i++)
            graph_arg(g, how.slot, t->params[pieces[i].param].tensor, ARG_UPDATE, false, false);
        const Home *home = &d->b->home[block];
        d->role->instances[at].frame[how.slot] = grads ? home->grad : home->param;
    }
    return (Point){ at, 0 };
}

/* On the compute lane the last of the ops stands for all. */
void bucket_wait(const Buckets *d, const Weave *w, const Bucket *u)
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

/* ---- in buffers that stay ---- */

void bucket_copied(Buckets *d, Bucket *u, const char *name)
{
    u->bundle = bucket_bundle(d, u, name, build_formats(d->b).reduce, true);
    bundle_open(&u->bundle);
    bool alone = !overlaps(d->b, DIM_DP) && u > d->list;
    bundle_fill(&u->bundle, alone ? u[-1].reduced : NOWHERE);
    u->reduced = bundle_reduce(&u->bundle, newest_compute(d->b->g, d->role));
}

void buckets_drain(Buckets *d)
{
    bool alone = !overlaps(d->b, DIM_DP);
    for (uint32_t k = 0; k < d->list_n; k++)
        bundle_drain(&d->list[k].bundle, d->list[alone ? d->list_n - 1 : k].reduced);
}
