/*
 * test_fsdp.c - what is gathered when, how much is moved, what lives at once.
 */
#include "tests/graph_check.h"
#include "tests/strategy_fixture.h"

static void open_fsdp(Fixture *f, uint32_t dp, uint32_t pp, uint32_t m)
{
    fixture_open(f);
    f->s.parallel.strategy = STRATEGY_FSDP;
    f->s.parallel.dp = dp;
    f->s.parallel.pp = pp;
    f->s.training.micro_batches = m;
    f->sw.grads_persist = false;
}

static uint64_t padded(uint64_t elements, uint64_t n)
{
    return div_up_u64(elements, n) * n;
}

static uint64_t padded_layer(uint64_t n)
{
    return padded(FAKE_NORM, n) + padded(FAKE_UP, n) + padded(FAKE_DOWN, n) +
           padded(FAKE_BIAS, n);
}

static uint64_t padded_ends(uint64_t n)
{
    return padded(FAKE_EMBEDDING, n) + padded(FAKE_HEAD, n);
}

/* ---- volume ---- */

static uint64_t moved(const Fixture *f, OpKind kind)
{
    return comm_bytes(&f->g, &f->g.roles[0], kind, f->b.group[GROUP_DP]);
}

/* Per rank (n-1)/n of: every layer twice and the root once gathered, all reduced once. */
static void volume_is_three_times_the_parameters(void)
{
    for (uint32_t n = 2; n <= 9; n++)
        for (uint32_t m = 1; m <= 3; m++) {
            Fixture f;
            open_fsdp(&f, n, 1, m);
            fixture_build(&f, 6);
            CHECK_U64(m * 4 * (2 * 6 * padded_layer(n) + padded_ends(n)),
                      moved(&f, OP_ALL_GATHER));
            CHECK_U64(m * 4 * (6 * padded_layer(n) + padded_ends(n)),
                      moved(&f, OP_REDUCE_SCATTER));
            fixture_close(&f);
        }
}

/* ZeRO-2's volume: gathered once, reduced once. */
static void without_resharding_parameters_are_gathered_once(void)
{
    Fixture f;
    open_fsdp(&f, 8, 1, 2);
    f.s.parallel.reshard_after_forward = false;
    fixture_build(&f, 6);
    CHECK_U64(2 * 4 * (6 * padded_layer(8) + padded_ends(8)), moved(&f, OP_ALL_GATHER));
    fixture_close(&f);
}

/* As torchtitan: with a pipeline, and unless the scenario says otherwise. */
static void a_pipeline_may_keep_what_it_gathered(void)
{
    for (int how = 0; how < 8; how++) {
        Fixture f;
        uint32_t pp = how & 1 ? 2 : 1;
        open_fsdp(&f, 4, pp, 6);
        f.sw.pp_keeps_params = how & 2;
        f.s.parallel.reshard_set = how & 4;
        fixture_build(&f, 6);
        uint64_t once = 0;
        for (uint32_t r = 0; r < f.g.roles_n; r++)
            once += comm_bytes(&f.g, &f.g.roles[r], OP_ALL_GATHER, f.b.group[GROUP_DP]);
        bool kept = once == 4 * (6 * padded_layer(4) + padded_ends(4));
        CHECK_INT(how == 3, kept);
        fixture_close(&f);
    }
}

/* Gradients are summed over micro-batches before they are scattered. */
static void with_a_pipeline_gradients_are_scattered_once(void)
{
    Fixture f;
    open_fsdp(&f, 4, 2, 6);
    fixture_build(&f, 6);
    uint64_t scattered = 0;
    for (uint32_t r = 0; r < 2; r++)
        scattered += comm_bytes(&f.g, &f.g.roles[r], OP_REDUCE_SCATTER, f.b.group[GROUP_DP]);
    CHECK_U64(4 * (6 * padded_layer(4) + padded_ends(4)), scattered);
    fixture_close(&f);
}

static void number_formats_scale_the_volume(void)
{
    Fixture f;
    open_fsdp(&f, 4, 1, 1);
    f.s.training.reduce_dtype = DTYPE_BF16;
    fixture_build(&f, 6);
    CHECK_U64(2 * (6 * padded_layer(4) + padded_ends(4)), moved(&f, OP_REDUCE_SCATTER));
    fixture_close(&f);
}

/* Where the stack sums in f32 and the scenario says nothing else. */
static void stacks_may_reduce_in_f32(void)
{
    for (int said = 0; said < 2; said++) {
        Fixture f;
        open_fsdp(&f, 4, 1, 1);
        f.s.training.reduce_dtype = DTYPE_BF16;
        f.s.training.reduce_dtype_set = said;
        f.sw.f32_reduce = true;
        fixture_build(&f, 6);
        CHECK_U64((said ? 2 : 4) * (6 * padded_layer(4) + padded_ends(4)),
                  moved(&f, OP_REDUCE_SCATTER));
        fixture_close(&f);
    }
}

/* Kept in f32, read in the format of the layout: gathered in the latter, after a cast. */
static void shards_are_cast_before_they_are_gathered(void)
{
    Fixture f;
    open_fsdp(&f, 4, 1, 1);
    f.s.training.param_dtype = DTYPE_BF16; /* what the made-up kernels read */
    fixture_start(&f, 6);
    f.s.training.param_dtype = DTYPE_F32;
    CHECK(pass_pipeline(&f.b, &f.err) && pass_fsdp(&f.b, &f.err));
    graph_seal(&f.g);
    CHECK_U64(2 * (2 * 6 * padded_layer(4) + padded_ends(4)), moved(&f, OP_ALL_GATHER));
    check_lives(&f.g);
    const Frame *shard = &f.g.roles[0].frames[f.b.home[1].param];
    const Layout *l = &f.g.layouts[shard->layout];
    CHECK_U64(4 * FAKE_UP / 4, f.g.tensors[l->tensor_first + 1].bytes);
    fixture_close(&f);
}

/* Shards in f32 of parameters and gradients; what is gathered and scattered is bf16. */
static void stacks_may_keep_f32_shards(void)
{
    for (uint32_t m = 1; m <= 2; m++) {
        Fixture f;
        open_fsdp(&f, 4, 1, m);
        f.s.training.precision = f.s.training.param_dtype = DTYPE_BF16;
        f.s.training.grad_dtype = f.s.training.reduce_dtype = DTYPE_BF16;
        f.sw.f32_params = true;
        fixture_build(&f, 6);
        CHECK_U64(m * 2 * (2 * 6 * padded_layer(4) + padded_ends(4)), moved(&f, OP_ALL_GATHER));
        CHECK_U64(m * 2 * (6 * padded_layer(4) + padded_ends(4)), moved(&f, OP_REDUCE_SCATTER));
        check_lives(&f.g);
        const uint32_t kept[] = { f.b.home[1].param, f.b.home[1].grad };
        for (size_t i = 0; i < ARRAY_N(kept); i++) {
            const Layout *l = &f.g.layouts[f.g.roles[0].frames[kept[i]].layout];
            CHECK_U64(4 * FAKE_UP / 4, f.g.tensors[l->tensor_first + 1].bytes);
        }
        fixture_close(&f);
    }
}

static void one_rank_is_not_sharded(void)
{
    Fixture f;
    open_fsdp(&f, 1, 2, 2);
    f.sw.grads_persist = true;
    fixture_build(&f, 6);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t i = 0; i < f.g.roles[r].instances_n; i++)
            CHECK(f.g.segments[f.g.roles[r].instances[i].segment].kind != SEGMENT_GATHER);
    check_lives(&f.g);
    fixture_close(&f);
}

static void every_shard_is_an_equal_part(void)
{
    Fixture f;
    open_fsdp(&f, 8, 1, 1);
    fixture_build(&f, 2);
    uint64_t updated = 0;
    for (uint32_t i = 0; i < f.g.roles[0].instances_n; i++) {
        const Op *op = graph_ops(&f.g, &f.g.segments[f.g.roles[0].instances[i].segment]);
        updated += op->kind == OP_OPTIMIZER ? op->u.elements : 0;
    }
    CHECK_U64((2 * padded_layer(8) + padded_ends(8)) / 8, updated);
    fixture_close(&f);
}

/* ---- what lives at once ---- */

typedef struct Live {
    uint32_t units,
        grads; /* most at once, in program order: layers gathered, whole gradients */
} Live;

/* Births and deaths of a layer's first tensor in a slot, in one instance. */
static int32_t change(const Graph *g, const Segment *s, Slot slot)
{
    int32_t n = 0;
    for (uint32_t i = 0; i < s->op_n; i++)
        for (uint32_t a = 0; a < graph_ops(g, s)[i].arg_n; a++) {
            const Arg *arg = &g->args[graph_ops(g, s)[i].arg_first + a];
            if (arg->slot == slot && arg->tensor == 0)
                n += arg->born - arg->dies;
        }
    return n;
}

static Live most_live(const Fixture *f)
{
    int32_t units = 0, grads = 0;
    Live most = { 0 };
    const Role *role = &f->g.roles[0];
    for (uint32_t i = 0; i < role->instances_n; i++) {
        if (role->instances[i].layer == NONE_U32)
            continue;
        const Segment *s = &f->g.segments[role->instances[i].segment];
        units += change(&f->g, s, SLOT_PARAM);
        grads += change(&f->g, s, SLOT_GRAD);
        most.units = units > (int32_t)most.units ? (uint32_t)units : most.units;
        most.grads = grads > (int32_t)most.grads ? (uint32_t)grads : most.grads;
    }
    return most;
}

static void two_units_live_at_most(void)
{
    for (int prefetch = PREFETCH_NONE; prefetch <= PREFETCH_BOTH; prefetch++)
        for (uint32_t m = 1; m <= 3; m++) {
            Fixture f;
            open_fsdp(&f, 4, 1, m);
            f.s.parallel.prefetch = (Prefetch)prefetch;
            fixture_build(&f, 9);
            CHECK_INT(2, most_live(&f).units);
            fixture_close(&f);
        }
}

/* FSDP2: what is gathered lies in a buffer until its first use, which copies it out. */
static void what_is_gathered_may_be_copied_out(void)
{
    Fixture f;
    open_fsdp(&f, 4, 1, 2);
    f.sw.gather_copies = true;
    fixture_build(&f, 6);
    uint64_t bytes = 2 * 4 * (2 * 6 * padded_layer(4) + padded_ends(4));
    CHECK_U64(bytes, moved(&f, OP_ALL_GATHER));
    const Role *role = &f.g.roles[0];
    uint64_t copied = 0;
    uint32_t gathers_n = 0, copies_n = 0;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Segment *s = &f.g.segments[role->instances[i].segment];
        const Op *op = &graph_ops(&f.g, s)[s->op_n - 1];
        gathers_n += op->kind == OP_ALL_GATHER;
        if (s->kind != SEGMENT_GATHER || op->kind != OP_COPY)
            continue;
        copies_n++;
        CHECK_INT(LANE_COMPUTE, op->lane);
        CHECK_U64(op->read_bytes, op->write_bytes);
        copied += op->write_bytes;
        const Segment *use = &f.g.segments[role->instances[i + 1].segment];
        CHECK(use->kind == SEGMENT_FORWARD || use->kind == SEGMENT_BACKWARD);
    }
    CHECK_INT(gathers_n, copies_n);
    uint64_t ends = FAKE_EMBEDDING + FAKE_HEAD;
    CHECK_U64(2 * 4 * (2 * 6 * FAKE_LAYER + ends), copied);
    CHECK_INT(1, most_live(&f).units); /* the next one is still in its buffer */
    check_lives(&f.g);
    fixture_close(&f);
}

static void without_overlap_one_unit_lives(void)
{
    Fixture f;
    open_fsdp(&f, 4, 1, 2);
    f.sw.overlap[DIM_DP] = false;
    fixture_build(&f, 9);
    CHECK_INT(1, most_live(&f).units);
    CHECK_INT(1, most_live(&f).grads);
    fixture_close(&f);
}

static void without_resharding_all_units_live(void)
{
    Fixture f;
    open_fsdp(&f, 4, 1, 2);
    f.s.parallel.reshard_after_forward = false;
    fixture_build(&f, 9);
    CHECK_INT(9, most_live(&f).units);
    fixture_close(&f);
}

/* Gathers run ahead of what frees them: as many live as if none were resharded, though all are
 * gathered again. */
static void without_a_limit_all_units_live(void)
{
    for (uint32_t pp = 1; pp <= 2; pp++) {
        Fixture f;
        open_fsdp(&f, 4, pp, 2);
        f.s.parallel.limit_all_gathers = false;
        fixture_build(&f, 9);
        /* Of a stage, of one micro-batch, and the first of the next is gathered ahead. */
        CHECK_INT(pp == 1 ? 9 : 5 + 1, most_live(&f).units);
        if (pp == 1)
            CHECK_U64(2 * 4 * (2 * 9 * padded_layer(4) + padded_ends(4)),
                      moved(&f, OP_ALL_GATHER));
        check_lives(&f.g);
        fixture_close(&f);
    }
}

static void one_reduce_scatter_is_pending_at_most(void)
{
    Fixture f;
    open_fsdp(&f, 4, 1, 2);
    fixture_build(&f, 9);
    CHECK_INT(2, most_live(&f).grads); /* its input, and the gradients just written */
    fixture_close(&f);
}

/* FSDP2's root waits at the end of each backward: the next micro-batch finds none of them, its
 * first gather neither. */
static void no_gradients_live_into_the_next_micro_batch(void)
{
    Fixture f;
    open_fsdp(&f, 4, 1, 3);
    fixture_build(&f, 5);
    const Role *role = &f.g.roles[0];
    int32_t grads = 0, at_gather = 0;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Segment *s = &f.g.segments[role->instances[i].segment];
        if (s->kind == SEGMENT_FORWARD) {
            CHECK_INT(0, grads);
            CHECK_INT(0, at_gather);
        }
        if (s->kind == SEGMENT_GATHER)
            at_gather = grads;
        grads += change(&f.g, s, SLOT_GRAD);
    }
    fixture_close(&f);
}

/* ---- who waits for whom ---- */

static const Instance *source(const Role *role, const Instance *at, uint32_t e)
{
    return &role->instances[role->edges[at->edge_first + e].src_instance];
}

static bool waits_since(const Role *role, uint32_t instance, uint32_t since)
{
    const Instance *at = &role->instances[instance];
    for (uint32_t e = 0; e < at->edge_n; e++)
        if (role->edges[at->edge_first + e].src_instance >= since)
            return true;
    return false;
}

/*
 * A gather overlaps with no compute when it waits for the use before its own.
 * Counts forwards, or backwards, that wait for such a gather.
 */
static uint32_t exposed_gathers(const Fixture *f, SegmentKind of)
{
    const Role *role = &f->g.roles[0];
    uint32_t n = 0, last = 0;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        SegmentKind kind = f->g.segments[role->instances[i].segment].kind;
        if (kind != SEGMENT_FORWARD && kind != SEGMENT_BACKWARD)
            continue;
        for (uint32_t before = last; before < i; before++)
            n += kind == of &&
                 f->g.segments[role->instances[before].segment].kind == SEGMENT_GATHER &&
                 waits_since(role, i, before) && waits_since(role, before, last);
        last = i;
    }
    return n;
}

static uint32_t gathers_after_a_release(const Fixture *f)
{
    const Role *role = &f->g.roles[0];
    uint32_t n = 0;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Instance *at = &role->instances[i];
        if (f->g.segments[at->segment].kind != SEGMENT_GATHER)
            continue;
        for (uint32_t e = 0; e < at->edge_n; e++)
            n += f->g.segments[source(role, at, e)->segment].kind == SEGMENT_OTHER;
    }
    return n;
}

static void the_limit_holds_gathers_back(void)
{
    for (int limit = 0; limit < 2; limit++) {
        Fixture f;
        open_fsdp(&f, 4, 1, 1);
        f.s.parallel.limit_all_gathers = limit;
        fixture_build(&f, 9);
        /* forward: layers 2..8; backward: layers 6..0 (8 follows its forward, 7 the head) */
        CHECK_INT(limit != 0, gathers_after_a_release(&f) >= 14);
        CHECK_INT(limit == 0, gathers_after_a_release(&f) == 0);
        fixture_close(&f);
    }
}

/* A stage of one layer and the head, which is kept: between two uses of the layer is none that is
 * released. */
static void the_limit_holds_gathers_back_beside_what_is_kept(void)
{
    enum { MICRO_BATCHES = 6 };
    Fixture f;
    open_fsdp(&f, 4, 2, MICRO_BATCHES);
    fixture_build(&f, 2);
    const Role *role = &f.g.roles[1];
    uint32_t gathers = 0, held = 0;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Instance *at = &role->instances[i];
        if (f.g.segments[at->segment].kind != SEGMENT_GATHER || at->layer != 1)
            continue;
        bool waits = false;
        for (uint32_t e = 0; e < at->edge_n; e++)
            waits |= f.g.segments[source(role, at, e)->segment].kind == SEGMENT_OTHER;
        gathers++;
        held += waits;
    }
    CHECK_U64(2 * MICRO_BATCHES, gathers);
    CHECK_U64(gathers - 1, held); /* the first finds nothing to wait for */
    fixture_close(&f);
}

static void prefetch_none_exposes_the_backward_gathers(void)
{
    for (int prefetch = PREFETCH_NONE; prefetch <= PREFETCH_BOTH; prefetch++) {
        Fixture f;
        open_fsdp(&f, 4, 1, 1);
        f.s.parallel.prefetch = (Prefetch)prefetch;
        fixture_build(&f, 9);
        CHECK_INT(prefetch == PREFETCH_NONE ? 9 : 0, exposed_gathers(&f, SEGMENT_BACKWARD));
        fixture_close(&f);
    }
}

static void without_overlap_every_gather_is_exposed(void)
{
    Fixture f;
    open_fsdp(&f, 4, 1, 1);
    f.sw.overlap[DIM_DP] = false;
    fixture_build(&f, 9);
    CHECK_INT(9 + 1, exposed_gathers(&f, SEGMENT_FORWARD)); /* layers and head */
    CHECK_INT(9, exposed_gathers(&f, SEGMENT_BACKWARD));
    fixture_close(&f);
}

/* In program order the gather of the next layer stands before or after this one's forward. */
static void forward_prefetch_launches_before_the_forward(void)
{
    for (int prefetch = PREFETCH_BACKWARD; prefetch <= PREFETCH_BOTH; prefetch++) {
        Fixture f;
        open_fsdp(&f, 4, 1, 1);
        f.s.parallel.prefetch = (Prefetch)prefetch;
        fixture_build(&f, 9);
        const Role *role = &f.g.roles[0];
        uint32_t gathered = NONE_U32, forward = NONE_U32; /* of layers 4 and 3 */
        for (uint32_t i = role->instances_n; i-- > 0;) {
            SegmentKind kind = f.g.segments[role->instances[i].segment].kind;
            if (kind == SEGMENT_GATHER && role->instances[i].layer == 4)
                gathered = i;
            if (kind == SEGMENT_FORWARD && role->instances[i].layer == 3)
                forward = i;
        }
        CHECK_INT(prefetch == PREFETCH_BOTH, gathered < forward);
        fixture_close(&f);
    }
}

/* ---- what every graph must hold ---- */

static void check_fsdp(Fixture *f, uint32_t layers)
{
    uint32_t failures = check_state.test_failures_n;
    if (!fixture_build(f, layers))
        return;
    check_lives(&f->g);
    check_runs(&f->g);
    const Parallel *p = &f->s.parallel;
    if (failures != check_state.test_failures_n)
        fprintf(stderr,
                "    with pp %u x %u, m %u, reshard %d, prefetch %d, limit %d, overlap %d, "
                "persist %d, copies %d, reduce %s, f32 shards %d, root %d\n",
                p->pp, p->virtual_stages, f->s.training.micro_batches, p->reshard_after_forward,
                p->prefetch, p->limit_all_gathers, f->sw.overlap[DIM_DP], f->sw.grads_persist,
                f->sw.gather_copies, f->s.training.reduce_dtype == DTYPE_F32 ? "f32" : "bf16",
                f->sw.f32_params, f->sw.root_unit);
    fixture_close(f);
}

/* Each unit's gradients are copied once a micro-batch, whatever their format; what moves is the
 * same. */
static void gradients_may_be_copied_into_what_is_reduced(void)
{
    for (int copies = 0; copies < 2; copies++) {
        Fixture f;
        open_fsdp(&f, 4, 1, 2);
        f.sw.reduce_copies = copies;
        fixture_build(&f, 6);
        const Role *role = &f.g.roles[0];
        uint64_t copied = 0;
        for (uint32_t i = 0; i < role->instances_n; i++) {
            const Segment *s = &f.g.segments[role->instances[i].segment];
            const Op *op = &graph_ops(&f.g, s)[0];
            if (s->kind == SEGMENT_REDUCE && op->kind == OP_COPY) {
                CHECK_INT(LANE_COMPUTE, op->lane);
                CHECK_U64(op->read_bytes, op->write_bytes);
                copied += op->write_bytes;
            }
        }
        uint64_t ends = FAKE_EMBEDDING + FAKE_HEAD;
        CHECK_U64(copies ? 2 * 4 * (6 * FAKE_LAYER + ends) : 0, copied);
        CHECK_U64(2 * 4 * (6 * padded_layer(4) + padded_ends(4)), moved(&f, OP_REDUCE_SCATTER));
        check_lives(&f.g);
        fixture_close(&f);
    }
}

/* PyTorch's root: embedding and head are there before the first forward of a micro-batch, and
 * reduced and freed after its last backward; what moves is the same. */
static void embedding_and_head_may_be_one_unit(void)
{
    for (int copies = 0; copies < 2; copies++) {
        Fixture f;
        open_fsdp(&f, 4, 1, 3);
        f.sw.root_unit = true;
        f.sw.gather_copies = f.sw.reduce_copies = copies;
        fixture_build(&f, 5);
        const Role *role = &f.g.roles[0];
        uint32_t gathered = 0, freed = 0, reduced = 0, passed = 0;
        for (uint32_t i = 0; i < role->instances_n; i++) {
            const Instance *in = &role->instances[i];
            const Segment *s = &f.g.segments[in->segment];
            OpKind kind = graph_ops(&f.g, s)[s->op_n - 1].kind;
            if (s->kind == SEGMENT_FORWARD || s->kind == SEGMENT_BACKWARD) {
                CHECK_INT(2 * (in->micro_batch + 1), gathered);
                CHECK_INT(2 * in->micro_batch, freed);
                CHECK_INT(2 * in->micro_batch, reduced);
                passed++;
            } else if (in->layer == NONE_U32) {
                gathered += kind == OP_ALL_GATHER;
                freed += kind == OP_RELEASE && change(&f.g, s, SLOT_PARAM) < 0;
                reduced += graph_ops(&f.g, s)[0].kind == OP_REDUCE_SCATTER;
            }
        }
        CHECK_INT(3 * 2 * (5 + 2), passed);
        CHECK_INT(3 * 2, reduced);
        CHECK_U64(3 * 4 * (2 * 5 * padded_layer(4) + padded_ends(4)), moved(&f, OP_ALL_GATHER));
        CHECK_U64(3 * 4 * (5 * padded_layer(4) + padded_ends(4)), moved(&f, OP_REDUCE_SCATTER));
        check_lives(&f.g);
        fixture_close(&f);
    }
}

/* The first forward waits for all of the root, the head among it. */
static void the_first_forward_waits_for_the_whole_root(void)
{
    Fixture f;
    open_fsdp(&f, 4, 1, 1);
    f.sw.root_unit = true;
    fixture_build(&f, 3);
    const Role *role = &f.g.roles[0];
    uint32_t gathers[2] = { 0 }, gathers_n = 0, waits = 0, i = 0;
    for (; f.g.segments[role->instances[i].segment].kind != SEGMENT_FORWARD; i++)
        if (f.g.segments[role->instances[i].segment].kind == SEGMENT_GATHER && gathers_n < 2)
            gathers[gathers_n++] = i;
    CHECK_INT(2, gathers_n);
    const Instance *first = &role->instances[i];
    for (uint32_t e = 0; e < first->edge_n; e++)
        waits += role->edges[first->edge_first + e].src_instance == gathers[1];
    CHECK_INT(1, waits);
    fixture_close(&f);
}

/* FSDP 1: all that is reduced is divided before, in place and on the same lane. */
static void gradients_may_be_divided_before_they_are_reduced(void)
{
    for (int hsdp = 0; hsdp < 2; hsdp++) {
        Fixture f;
        open_fsdp(&f, 4, 1, 2);
        f.sw.divides_grads = true;
        if (hsdp) {
            f.s.parallel.strategy = STRATEGY_HSDP;
            f.s.parallel.shard_size = 2;
        }
        fixture_build(&f, 3);
        const Role *role = &f.g.roles[0];
        uint64_t divided = 0;
        for (uint32_t i = 0; i < role->instances_n; i++) {
            const Segment *s = &f.g.segments[role->instances[i].segment];
            const Op *op = graph_ops(&f.g, s);
            if (op->kind != OP_SCALE || op->lane != LANE_REDUCE)
                continue;
            CHECK_INT(OP_REDUCE_SCATTER, op[1].kind);
            CHECK_U64(op->read_bytes, op->write_bytes);
            divided += op->read_bytes;
        }
        CHECK_U64(2 * 4 * (3 * FAKE_LAYER + FAKE_EMBEDDING + FAKE_HEAD), divided);
        check_lives(&f.g);
        check_runs(&f.g);
        fixture_close(&f);
    }
}

/* Its backward is next: gathered once a micro-batch, where the others are twice.  A pipeline's
 * stages have other last layers, and several micro-batches under way. */
static void the_last_layer_may_be_kept(void)
{
    for (uint32_t pp = 1; pp <= 2; pp++) {
        uint64_t bytes[2] = { 0 };
        for (int kept = 0; kept < 2; kept++) {
            Fixture f;
            open_fsdp(&f, 4, pp, 2);
            f.sw.keeps_last_unit = kept;
            fixture_build(&f, 6);
            for (uint32_t r = 0; r < f.g.roles_n; r++)
                bytes[kept] +=
                    comm_bytes(&f.g, &f.g.roles[r], OP_ALL_GATHER, f.b.group[GROUP_DP]);
            check_lives(&f.g);
            fixture_close(&f);
        }
        CHECK_U64(pp == 1 ? 2 * 4 * padded_layer(4) : 0, bytes[0] - bytes[1]);
    }
}

static void nothing_races_or_deadlocks(void)
{
    for (uint32_t pp = 1; pp <= 3; pp++)
        for (uint32_t turns = 1; turns <= 2; turns++)
            for (uint32_t k = 1; k <= 2; k++)
                for (uint32_t how = 0; how < 1024; how++)
                    for (int prefetch = PREFETCH_NONE; prefetch <= PREFETCH_BOTH; prefetch++) {
                        Fixture f;
                        if (!check_takes((((pp * 8 + turns) * 8 + k) * 1024 + how) * 8 +
                                         (uint32_t)prefetch))
                            continue;
                        open_fsdp(&f, 3, pp, k * pp);
                        f.s.parallel.tp = how & 64 ? 2 : 1;
                        f.s.parallel.virtual_stages = turns;
                        if (turns > 1)
                            f.s.parallel.schedule = SCHEDULE_INTERLEAVED;
                        f.s.parallel.reshard_after_forward = how & 1;
                        f.s.parallel.prefetch = (Prefetch)prefetch;
                        f.s.parallel.limit_all_gathers = how & 2;
                        f.sw.overlap[DIM_DP] = how & 4;
                        f.sw.overlap[DIM_PP] = how & 8;
                        f.sw.grads_persist = how & 16;
                        f.sw.gather_copies = how & 128;
                        f.sw.root_unit = f.sw.keeps_last_unit = f.sw.divides_grads = how & 512;
                        f.s.training.reduce_dtype = how & 32 ? DTYPE_BF16 : DTYPE_F32;
                        if (how & 256) {
                            f.s.training.precision = DTYPE_BF16;
                            f.sw.f32_params = true;
                        }
                        f.s.training.grad_clip = 1;
                        f.tied = pp > 1;
                        f.borrows = pp == 1;
                        check_fsdp(&f, 5);
                    }
}

int main(void)
{
    RUN(volume_is_three_times_the_parameters);
    RUN(without_resharding_parameters_are_gathered_once);
    RUN(a_pipeline_may_keep_what_it_gathered);
    RUN(with_a_pipeline_gradients_are_scattered_once);
    RUN(number_formats_scale_the_volume);
    RUN(stacks_may_reduce_in_f32);
    RUN(shards_are_cast_before_they_are_gathered);
    RUN(stacks_may_keep_f32_shards);
    RUN(one_rank_is_not_sharded);
    RUN(every_shard_is_an_equal_part);
    RUN(two_units_live_at_most);
    RUN(what_is_gathered_may_be_copied_out);
    RUN(without_overlap_one_unit_lives);
    RUN(without_resharding_all_units_live);
    RUN(without_a_limit_all_units_live);
    RUN(one_reduce_scatter_is_pending_at_most);
    RUN(no_gradients_live_into_the_next_micro_batch);
    RUN(the_limit_holds_gathers_back);
    RUN(the_limit_holds_gathers_back_beside_what_is_kept);
    RUN(prefetch_none_exposes_the_backward_gathers);
    RUN(without_overlap_every_gather_is_exposed);
    RUN(forward_prefetch_launches_before_the_forward);
    RUN(gradients_may_be_copied_into_what_is_reduced);
    RUN(embedding_and_head_may_be_one_unit);
    RUN(the_first_forward_waits_for_the_whole_root);
    RUN(gradients_may_be_divided_before_they_are_reduced);
    RUN(the_last_layer_may_be_kept);
    RUN(nothing_races_or_deadlocks);
    return check_report();
}
