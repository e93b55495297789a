/*
 * fsdp.c - parameters, gradients and optimizer state sharded over dp x cp.
 *
 * As PyTorch's FSDP2.  A unit is a block; its parameters are gathered before
 * each use and freed after it, its gradients are reduce-scattered:
 *
 *     gather   [G0][G1][G2].[G3].........      ...[G1][G0]
 *     compute      [F0][F1][F2]  ...  [B2]....[B1]....[B0]...|optimizer on shards
 *     reduce                              [RS2]   [RS1]  [RS0]
 *
 * FORWARD.  The gather of the next unit is launched while this one computes, and
 * it waits for the release of the unit before: two gathered units live at most.
 * limit_all_gathers false: it waits for nothing.  Gathers run ahead of compute, and
 * the host ahead of both: the allocator cannot give again what kernels have yet to
 * read, so all units of a micro-batch's forward, or of its backward, are held until
 * its end (what the limit is there to prevent: Zhao et al., arXiv 2304.11277, 3.4).
 * BACKWARD.  The same in reverse where `prefetch` says so; else each gather
 * starts when the unit before it is done, as PyTorch's in-order communication
 * stream has it.  One unit's reduce-scatter may be pending: after the next backward,
 * compute waits for it and frees its input.
 * KEPT.  Embedding and head are not resharded after forward (they are the root's); with
 * reshard_after_forward false no unit is, and in pipelines of software that keeps them
 * (pp_keeps_params) where the scenario says nothing.  What is kept lives
 * until its backward; with pipelines, where several micro-batches are under way,
 * until its last use.  With keeps_last_unit the last layer is kept too: its backward is next.
 * ROOT.  Each of embedding and head is a unit, unless the software makes them one (root_unit, as
 * PyTorch does: all that is in no block is the root's).  Then both are gathered before the first
 * forward, and reduce-scattered and freed at the end of a micro-batch's backward: what is
 * in no block has no hook in front of it, so the root's comes last
 * (_root_post_backward_final_callback).  A stage of a pipeline has one of the two.
 * MICRO-BATCHES.  Each gathers and reduce-scatters; sums of shards are added up
 * on the reduce lane.  After its backward compute waits for the last of them, as
 * FSDP2's root does (_root_post_backward_final_callback).  With pipelines whole
 * gradients are accumulated instead and reduce-scattered once, in the last
 * micro-batch, as torch.distributed.pipelining does (is_last_backward).
 * Without overlap every gather starts after the compute before it, and compute
 * waits for every reduce-scatter at once.
 *
 * EXPERTS that ep shares out are a unit inside their layer's, as torchtitan wraps them
 * (apply_fsdp: fully_shard(moe.experts) on the mesh "efsdp"): sharded over the ranks that hold the
 * same ones, gathered behind the rest of their layer, waited for where they are read, and reduced
 * before it:
 *
 *     gather   [G1][G1 experts]          [G2][G2 experts] ...
 *     compute         [F0 .......]             [F1 .....]
 *     reduce                       ...  [RS2 experts][RS2]
 *
 * Where no other rank holds the same, their shards are whole (and all else where dp x cp is 1, but
 * ranks of tp hold whole experts alike): compute copies them to where they
 * are used, cast to what kernels read, and their gradients are copied back in place of the
 * reduce-scatter; nothing is sent.  So FSDP2 does in a group of one (FSDPParamGroup's
 * wait_for_unshard, foreach_reduce).  What is copied out of a buffer is so before the layer,
 * where FSDP2 does it before the experts; and a layer's gradients are reduced after all of its
 * backward, where FSDP2 begins with those of experts when they are there, and waits for them before
 * it reduces the rest.
 *
 * REPLICAS.  hsdp shards over GROUP_DP_SHARD only; see hsdp.c for what is added.
 *
 * TIED.  A head that has its parameters with the embedding (Block.frame_of) is a
 * use of the embedding's unit, whose gradients are final after the embedding.
 *
 * SHARDS.  Of every parameter each of n ranks holds ceil(elements / n), the last
 * parts padded.  An all-gather reads the shards of all parameters of the unit and
 * bears the parameters; a parameter is the concatenation of the ranks' shards of it.
 * What is gathered is cast first where shards are kept in another format than kernels read, and
 * what was scattered where they keep it in another than it was summed in (sim/formats.h); weights
 * that matmuls read in fp8 to that, where the software says so (fp8_param_gather).
 * With bytes counted so, a step moves 3 (n - 1)/n times the parameters per rank.
 *
 * COPIES.  Where the software says so (gather_copies, as FSDP2 does), what is gathered is one
 * buffer, out of which compute copies the parameters before their first use; then it is freed.
 * Gradients are copied into what is reduce-scattered where that has another format, or the
 * software says so (reduce_copies).  FSDP 1 divides them before (divides_grads), on the same lane.
 */
#include "sim/strategy/fsdp_units.h"

typedef uint32_t FrameParts[PART_N];
typedef Point PointParts[PART_N];

/* A forward or backward of a block that reads a unit; units are named by their block. */
typedef struct Use {
    uint32_t instance; /* before weaving */
    uint32_t unit;
    bool backward, last; /* last: of its unit in the role */
    bool owner;          /* its gradients are final after this, not after another block */
} Use;

typedef struct Pending {
    uint32_t block, frame;
    Part part;
    Point reduced;
} Pending;

typedef struct Fsdp {
    Build *b;
    Finish finish;
    UnitParts *types;
    bool ahead;      /* overlap */
    Starts *starts;  /* by segment of a block */
    uint32_t root_n; /* blocks that are one unit, and which; 0: each is its own */
    uint32_t *root;

    /* One role. */
    Role *role;
    Arena scratch;
    Weave w;
    uint32_t uses_n;
    Use *uses;
    Point *retired;       /* by use: where it, or the last before it that was, was released */
    uint32_t *live;       /* by block: frame of the gathered parameters */
    FrameParts *uncopied; /* by block: frame that compute copies them from; NONE_U32 */
    PointParts *gathered; /* by block */
    uint32_t owed_n;      /* units whose release waits for the end of the pass, */
    uint32_t *owed, *owed_frame; /* their blocks, and what was gathered */
    uint32_t *grads;             /* by block: frame of the whole gradients being summed */
    bool *reduced_once;          /* by block */
    uint32_t pending_n;
    Pending *pending; /* by when they were launched: those of one unit */
    Point summed;     /* newest op that wrote a gradient's shard */
} Fsdp;

static bool sums_whole(const Build *b)
{
    return b->s->parallel.pp > 1;
}

static bool is_last_layer(const Build *b, uint32_t block)
{
    return block + 1 == b->blocks_n || b->blocks[block + 1].kind != BLOCK_LAYER;
}

static bool is_kept(const Build *b, uint32_t block)
{
    bool last = b->sw->keeps_last_unit && !sums_whole(b) && is_last_layer(b, block);
    return b->blocks[block].kind != BLOCK_LAYER || last || !reshards(b);
}

static bool is_of_root(const Fsdp *d, uint32_t block)
{
    return d->root_n > 0 && d->b->blocks[block].kind != BLOCK_LAYER;
}

/* The blocks that are one unit with this one, itself among them. */
static const uint32_t *unit_of(const Fsdp *d, const uint32_t *block, uint32_t *n)
{
    *n = is_of_root(d, *block) ? d->root_n : 1;
    return is_of_root(d, *block) ? d->root : block;
}

static UnitType *unit_type(const Fsdp *d, uint32_t block, Part part)
{
    return &d->types[d->b->blocks[block].type][part];
}

static bool has_part(const Fsdp *d, uint32_t block, Part part)
{
    return unit_type(d, block, part)->elements > 0;
}

static const Owned *shards_of(const Fsdp *d, uint32_t block)
{
    return &d->finish.owned[d->b->blocks[block].type];
}

/* ---- instances ---- */

static uint32_t unit_instance(const Fsdp *d, uint32_t segment, uint32_t block,
                              const Instance *like)
{
    return role_instance(d->role, segment, like->micro_batch, d->b->blocks[block].layer,
                         like->chunk);
}

/* Returns where it is gathered; NOWHERE where there is nothing to gather. */
static Point gather_part(Fsdp *d, uint32_t block, Part part, uint32_t j, Point after)
{
    const Instance *like = &d->w.old.instances[d->uses[j].instance];
    UnitType *u = unit_type(d, block, part);
    if (unit_is_alone(u)) {
        d->uncopied[block][part] = d->b->home[block].param;
        return d->gathered[block][part] = NOWHERE;
    }
    uint32_t segment = unit_gather(d->b, u, shards_of(d, block));
    uint32_t i = unit_instance(d, segment, block, like);
    d->role->instances[i].frame[SLOT_SHARD] = d->b->home[block].param;
    uint32_t gathered = d->live[block];
    if (u->flat_layout != NONE_U32) {
        Frame frame = { u->flat_layout, d->b->blocks[block].layer, false };
        gathered = d->uncopied[block][part] = role_frame(d->role, frame);
    }
    d->role->instances[i].frame[unit_gathered_slot(u)] = gathered;
    wait_at(d->role, 0, after);
    if (j >= 2 && d->b->s->parallel.limit_all_gathers)
        wait_at(d->role, 0, d->retired[j - 2]);
    Point at = { i, d->b->g->segments[segment].op_n - 1 };
    return d->gathered[block][part] = at;
}

/* Returns where the last of it is gathered. */
static Point gather_block(Fsdp *d, uint32_t block, uint32_t j, Point after)
{
    Frame frame = { block_type(d->b, block)->param_layout, d->b->blocks[block].layer, false };
    Point last = NOWHERE;
    d->live[block] = role_frame(d->role, frame);
    for (int part = 0; part < PART_N; part++) {
        if (!has_part(d, block, (Part)part))
            continue;
        Point at = gather_part(d, block, (Part)part, j, after);
        last = point_is(at) ? at : last;
    }
    return last;
}

/* Gathers what use j needs, unless it is there. */
static void gather(Fsdp *d, uint32_t j, Point after)
{
    uint32_t n, unit = d->uses[j].unit;
    const uint32_t *block = unit_of(d, &unit, &n);
    Point last = NOWHERE;
    if (d->live[unit] != NONE_U32)
        return;
    for (uint32_t i = 0; i < n; i++)
        last = gather_block(d, block[i], j, after);
    if (n > 1)
        d->gathered[unit][PART_DENSE] = last;
}

/* Before the first use of what was gathered into a buffer, or of shards that are whole. */
static void copy_out(Fsdp *d, uint32_t block, Part part, const Instance *like)
{
    uint32_t *from = &d->uncopied[block][part];
    if (*from == NONE_U32)
        return;
    UnitType *u = unit_type(d, block, part);
    uint32_t i = unit_instance(d, unit_copy_out(d->b, u, shards_of(d, block)), block, like);
    d->role->instances[i].frame[unit_is_alone(u) ? SLOT_SHARD : SLOT_DATA] = *from;
    d->role->instances[i].frame[SLOT_PARAM] = d->live[block];
    wait_at(d->role, 0, d->gathered[block][part]);
    d->gathered[block][part] = (Point){ i, 0 };
    *from = NONE_U32;
}

/* Is use j the last of its micro-batch's backward? */
static bool ends_micro_batch(const Fsdp *d, uint32_t j)
{
    const Instance *old = d->w.old.instances;
    const Use *use = &d->uses[j];
    if (sums_whole(d->b))
        return false; /* several are under way */
    return j + 1 == d->uses_n ||
           old[use[1].instance].micro_batch != old[use->instance].micro_batch;
}

static bool is_released_after(const Fsdp *d, uint32_t j)
{
    const Use *use = &d->uses[j];
    if (is_of_root(d, use->unit))
        return ends_micro_batch(d, j);
    if (!is_kept(d->b, use->unit))
        return true;
    return use->last || (use->backward && use->owner && d->b->s->parallel.pp == 1);
}

/* Are the gradients of the unit of use j complete after it, and to be reduced? */
static bool is_reduced_after(const Fsdp *d, uint32_t j)
{
    const Use *use = &d->uses[j];
    if (is_of_root(d, use->unit))
        return ends_micro_batch(d, j);
    return use->backward && use->owner && (!sums_whole(d->b) || use->last);
}

static Point add_release(Fsdp *d, uint32_t block, uint32_t frame, const Instance *like)
{
    uint32_t segment = unit_release(d->b, unit_type(d, block, PART_DENSE));
    uint32_t i = unit_instance(d, segment, block, like);
    d->role->instances[i].frame[SLOT_PARAM] = frame;
    return (Point){ i, 0 };
}

/* Is use j the last of a micro-batch's forward, or of its backward? */
static bool ends_pass(const Fsdp *d, uint32_t j)
{
    const Use *use = &d->uses[j];
    const Instance *old = d->w.old.instances;
    return j + 1 == d->uses_n || use[1].backward != use->backward ||
           old[use[1].instance].micro_batch != old[use->instance].micro_batch;
}

static void release_block(Fsdp *d, uint32_t block, uint32_t j, const Instance *like)
{
    if (d->b->s->parallel.limit_all_gathers) {
        d->retired[j] = add_release(d, block, d->live[block], like);
    } else {
        d->owed[d->owed_n] = block;
        d->owed_frame[d->owed_n++] = d->live[block];
    }
    d->live[block] = NONE_U32;
}

static void release(Fsdp *d, uint32_t j, const Instance *like)
{
    uint32_t n, unit = d->uses[j].unit;
    const uint32_t *block = unit_of(d, &unit, &n);
    d->retired[j] = j > 0 ? d->retired[j - 1] : NOWHERE; /* what is kept holds nobody up */
    for (uint32_t i = 0; i < n && is_released_after(d, j); i++)
        release_block(d, block[i], j, like);
    while (d->owed_n > 0 && ends_pass(d, j)) {
        d->owed_n--;
        add_release(d, d->owed[d->owed_n], d->owed_frame[d->owed_n], like);
    }
}

static void settle_one(Fsdp *d, const Pending *p, const Instance *like)
{
    UnitType *u = unit_type(d, p->block, p->part);
    uint32_t i = unit_instance(d, unit_retire(d->b, u), p->block, like);
    d->role->instances[i].frame[unit_input_slot(u)] = p->frame;
    wait_at(d->role, 0, p->reduced);
}

/* Compute waits for the pending reduce-scatters; their inputs are freed. */
static void settle(Fsdp *d, const Instance *like)
{
    for (uint32_t i = 0; i < d->pending_n; i++)
        settle_one(d, &d->pending[i], like);
    d->pending_n = 0;
}

/* alone: nothing computes until it is done. */
static void reduce_part(Fsdp *d, uint32_t block, Part part, const Instance *like, bool alone)
{
    UnitType *u = unit_type(d, block, part);
    uint32_t frame = d->grads[block];
    if (u->copies) {
        uint32_t copy = unit_instance(d, unit_copy_in(d->b, u), block, like);
        d->role->instances[copy].frame[SLOT_GRAD] = frame;
        frame =
            role_frame(d->role, (Frame){ u->input_layout, d->b->blocks[block].layer, false });
        d->role->instances[copy].frame[SLOT_DATA] = frame;
    }
    Point ready = newest_compute(d->b->g, d->role);
    uint32_t segment = unit_reduce(d->b, u, shards_of(d, block), d->reduced_once[block]);
    uint32_t i = unit_instance(d, segment, block, like);
    d->role->instances[i].frame[unit_input_slot(u)] = frame;
    d->role->instances[i].frame[SLOT_GRAD_SHARD] = d->b->home[block].grad;
    wait_at(d->role, 0, ready);
    d->summed = last_op(d->b->g, d->role, i, unit_sum_lane(d->b));
    d->pending[d->pending_n++] =
        (Pending){ block, frame, part,
                   alone ? d->summed : (Point){ i, unit_scatter_op(d->b) } };
    if (!d->ahead)
        settle(d, like);
}

static void reduce(Fsdp *d, uint32_t block, const Instance *like, bool alone)
{
    if (has_part(d, block, PART_EXPERTS))
        reduce_part(d, block, PART_EXPERTS, like, alone);
    reduce_part(d, block, PART_DENSE, like, alone);
    d->reduced_once[block] = true;
    d->grads[block] = NONE_U32;
}

/* ---- the walk ---- */

/* Is the gather for use j + 1 launched before use j is (explicitly), or after it? */
typedef enum When { BEFORE_USE, AFTER_USE, AFTER_RELEASE, ON_DEMAND } When;

static When gather_next_when(const Fsdp *d, uint32_t j)
{
    Prefetch prefetch = d->b->s->parallel.prefetch;
    if (!d->ahead || j + 1 == d->uses_n || ends_micro_batch(d, j))
        return ON_DEMAND; /* the root's forward gathers after what is computed */
    const Use *use = &d->uses[j], *next = &d->uses[j + 1];
    if (next->unit == use->unit)
        return AFTER_RELEASE;
    if (!next->backward)
        return prefetch == PREFETCH_BOTH ? BEFORE_USE : AFTER_USE;
    if (prefetch == PREFETCH_NONE)
        return ON_DEMAND;
    return use->backward ? BEFORE_USE : AFTER_USE;
}

static bool reads_experts(const Graph *g, const BlockType *t, const Op *op)
{
    for (uint32_t a = 0; a < op->arg_n; a++) {
        const Arg *arg = &g->args[op->arg_first + a];
        if (arg->slot == SLOT_PARAM && t->params[arg->tensor].expert)
            return true;
    }
    return false;
}

/* Of the newest instance only what reads experts waits for them: the first such op on each lane;
 * without overlap all of it. */
static void wait_for_experts(Fsdp *d, const Use *use)
{
    const Graph *g = d->b->g;
    Point gathered = d->gathered[use->unit][PART_EXPERTS];
    const Segment *s = &g->segments[d->role->instances[d->role->instances_n - 1].segment];
    uint32_t lanes = 0;
    if (point_is(gathered) && !d->ahead)
        wait_at(d->role, 0, gathered);
    for (uint32_t i = 0; point_is(gathered) && d->ahead && i < s->op_n; i++) {
        const Op *op = &graph_ops(g, s)[i];
        uint32_t lane = (uint32_t)1 << op->lane;
        if ((lanes & lane) || !reads_experts(g, block_type(d->b, use->unit), op))
            continue;
        wait_at(d->role, i, gathered);
        lanes |= lane;
    }
}

static void bind_use(Fsdp *d, uint32_t i, const Use *use)
{
    Instance *at = &d->role->instances[i];
    uint32_t *grads = &d->grads[use->unit];
    at->frame[SLOT_PARAM] = d->live[use->unit];
    if (use->backward && *grads == NONE_U32)
        *grads = role_frame(d->role, (Frame){ block_type(d->b, use->unit)->grad_layout,
                                              d->b->blocks[use->unit].layer, false });
    if (use->backward)
        at->frame[SLOT_GRAD] = *grads;
    wait_starts(d->role, &d->starts[at->segment], d->gathered[use->unit][PART_DENSE]);
    wait_for_experts(d, use);
}

static void weave_use(Fsdp *d, uint32_t j)
{
    const Use *use = &d->uses[j];
    const Instance *like = weave_next(&d->w);
    When when = gather_next_when(d, j);
    if (d->live[use->unit] == NONE_U32)
        gather(d, j, newest_compute(d->b->g, d->role));
    if (when == BEFORE_USE)
        gather(d, j + 1, NOWHERE);
    uint32_t n;
    const uint32_t *block = unit_of(d, &use->unit, &n);
    for (uint32_t i = 0; i < PART_N * n; i++)
        copy_out(d, block[i / PART_N], (Part)(i % PART_N), like);
    bind_use(d, weave_keep(&d->w), use);
    if (when == AFTER_USE)
        gather(d, j + 1, NOWHERE);
    release(d, j, like);
    if (when == AFTER_RELEASE)
        gather(d, j + 1, NOWHERE);
    if (!is_reduced_after(d, j))
        return;
    bool alone = !d->ahead || ends_micro_batch(d, j);
    settle(d, like);
    for (uint32_t i = 0; i < n; i++)
        reduce(d, block[i], like, alone);
    if (alone)
        settle(d, like);
}

static void list_uses(Fsdp *d)
{
    uint32_t n = d->role->instances_n;
    d->uses = PUSH_ARRAY(&d->scratch, Use, n);
    d->retired = PUSH_ARRAY(&d->scratch, Point, n);
    uint32_t *last = PUSH_ARRAY(&d->scratch, uint32_t, d->b->blocks_n);
    d->owed = PUSH_ARRAY(&d->scratch, uint32_t, n);
    d->owed_frame = PUSH_ARRAY(&d->scratch, uint32_t, n);
    d->uses_n = d->owed_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        const Instance *at = &d->role->instances[i];
        uint32_t block = block_of(d->b, at);
        if (block == NONE_U32)
            continue;
        uint32_t unit = d->b->blocks[block].frame_of;
        if (block_type(d->b, unit)->elements == 0)
            continue;
        bool backward = d->b->g->segments[at->segment].kind == SEGMENT_BACKWARD;
        d->retired[d->uses_n] = NOWHERE;
        last[unit] = d->uses_n;
        d->uses[d->uses_n++] = (Use){ i, unit, backward, false, unit == block };
    }
    for (uint32_t j = 0; j < d->uses_n; j++)
        d->uses[j].last = last[d->uses[j].unit] == j;
}

static void start_role(Fsdp *d, uint32_t role)
{
    uint32_t n = d->b->blocks_n;
    d->role = &d->b->g->roles[role];
    d->live = PUSH_ARRAY(&d->scratch, uint32_t, n);
    d->uncopied = PUSH_ARRAY(&d->scratch, FrameParts, n);
    d->grads = PUSH_ARRAY(&d->scratch, uint32_t, n);
    d->gathered = PUSH_ARRAY(&d->scratch, PointParts, n);
    d->reduced_once = PUSH_ARRAY(&d->scratch, bool, n);
    for (uint32_t i = 0; i < n; i++) {
        d->live[i] = d->grads[i] = NONE_U32;
        for (int part = 0; part < PART_N; part++) {
            d->uncopied[i][part] = NONE_U32;
            d->gathered[i][part] = NOWHERE;
        }
    }
    d->pending = PUSH_ARRAY(&d->scratch, Pending, PART_N * n + 1);
    d->pending_n = 0;
    d->summed = NOWHERE;
    list_uses(d);
}

static void fsdp_role(Fsdp *d, uint32_t role)
{
    start_role(d, role);
    /* A use may have a gather, a copy of it, a release, and what reduces and frees gradients. */
    weave_begin(&d->w, d->role, 5 * d->uses_n);
    role_reserve(d->role, 0, 0, 4 * d->uses_n);
    for (uint32_t j = 0; j < d->uses_n; j++) {
        weave_keep_to(&d->w, d->uses[j].instance);
        weave_use(d, j);
    }
    weave_keep_to(&d->w, d->w.old.instances_n);
    if (d->uses_n > 0)
        settle(d, &d->w.old.instances[d->uses[d->uses_n - 1].instance]);
    weave_end(&d->w);
    finish_role(&d->finish, role, d->summed);
    arena_free(&d->scratch);
}

static void list_root(Fsdp *d)
{
    const Build *b = d->b;
    d->root = PUSH_ARRAY(&d->b->arena, uint32_t, b->blocks_n + 1);
    for (uint32_t i = 0; i < b->blocks_n && b->sw->root_unit && !sums_whole(b); i++)
        if (b->blocks[i].kind != BLOCK_LAYER && b->blocks[i].frame_of == i &&
            block_type(b, i)->elements > 0)
            d->root[d->root_n++] = i;
}

bool pass_fsdp(Build *b, Err *err)
{
    if (!shards_params(&b->s->parallel, b->sw))
        return pass_ddp(b, err); /* of dp x cp of 1 */
    Fsdp d = { .b = b, .ahead = overlaps(b, DIM_DP) };
    d.starts = all_starts(b);
    list_root(&d);
    Owned *owned = owned_by_share(b, SHARE_ALL);
    d.types = unit_types(b, owned);
    finish_begin(&d.finish, b, owned, SHARE_ALL, 0);
    share_homes(b, owned, SHARE_ALL);
    for (uint32_t role = 0; role < b->g->roles_n; role++)
        fsdp_role(&d, role);
    return true;
}
