/*
 * test_ddp.c - buckets, their order and volume, and what follows backward.
 */
#include "tests/graph_check.h"
#include "tests/strategy_fixture.h"

enum { BUCKETS_MAX = 256 };

static void open_ddp(Fixture *f, uint32_t dp, uint32_t pp, uint32_t m)
{
    fixture_open(f);
    f->s.parallel.dp = dp;
    f->s.parallel.pp = pp;
    f->s.training.micro_batches = m;
}

/* Parameters of the stages' blocks, in definition order. */
static uint32_t list_elements(const Fixture *f, uint32_t stage, uint64_t *elements)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->b.blocks_n; i++) {
        const BlockType *t = &f->b.types[f->b.blocks[i].type];
        for (uint32_t p = 0; f->b.home[i].role == stage && p < t->params_n; p++)
            elements[n++] = t->params[p].elements;
    }
    return n;
}

/* compute_bucket_assignment_by_size on the reversed list, as its comment tells it. */
static uint32_t plain_buckets(const uint64_t *elements, uint32_t n, uint64_t each,
                              uint64_t first_limit, uint64_t limit, uint64_t *bytes)
{
    uint32_t buckets = 0;
    uint64_t size = 0;
    for (uint32_t i = n; i-- > 0;) {
        size += elements[i] * each;
        if (size >= (buckets == 0 ? first_limit : limit)) {
            bytes[buckets++] = size;
            size = 0;
        }
    }
    if (size > 0)
        bytes[buckets++] = size;
    return buckets;
}

static uint32_t graph_buckets(const Fixture *f, uint32_t stage, uint64_t *bytes)
{
    const Graph *g = &f->g;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->roles[stage].instances_n; i++) {
        const Segment *s = &g->segments[g->roles[stage].instances[i].segment];
        const Op *op = graph_ops(g, s);
        if (op->kind == OP_ALL_REDUCE && op->u.comm.group == f->b.group[GROUP_DP])
            bytes[n++] = op->u.comm.bytes;
    }
    return n;
}

static void buckets_are_those_of_pytorch(void)
{
    const uint64_t limits[][2] = {
        { 1, 1 }, { 5000, 20000 }, { 100, 30000 }, { 1 << 30, 1 << 30 }, { 16028, 16000 }
    };
    const DType dtypes[] = { DTYPE_F32, DTYPE_BF16 };
    for (size_t l = 0; l < ARRAY_N(limits); l++)
        for (size_t d = 0; d < ARRAY_N(dtypes); d++)
            for (uint32_t pp = 1; pp <= 3; pp++) {
                Fixture f;
                open_ddp(&f, 4, pp, 3);
                f.s.training.reduce_dtype = dtypes[d];
                f.s.parallel.first_bucket_bytes = limits[l][0];
                f.s.parallel.bucket_bytes = limits[l][1];
                fixture_build(&f, 7);
                for (uint32_t stage = 0; stage < pp; stage++) {
                    uint64_t elements[64], expect[BUCKETS_MAX], got[BUCKETS_MAX];
                    uint32_t n = list_elements(&f, stage, elements);
                    n = plain_buckets(elements, n, dtype_bytes(dtypes[d]), limits[l][0],
                                      limits[l][1], expect);
                    CHECK_INT(n, graph_buckets(&f, stage, got));
                    for (uint32_t k = 0; k < n; k++)
                        CHECK_U64(expect[k], got[k]);
                }
                fixture_close(&f);
            }
}

/* Megatron's rule max(a, b * ranks), and no small first bucket, unless the scenario says a size. */
static void a_stack_cuts_its_own_buckets(void)
{
    for (int how = 0; how < 3; how++) {
        Fixture f;
        open_ddp(&f, how == 1 ? 8 : 4, 1, 1);
        f.s.parallel.cp = 2;
        f.sw.bucket_parameters = 6000;
        f.sw.bucket_parameters_per_rank = 1000;
        f.s.parallel.bucket_bytes_set = how == 2;
        fixture_build(&f, 7);
        uint64_t elements[64], expect[BUCKETS_MAX], got[BUCKETS_MAX];
        uint64_t limit = how == 2 ? 20000 : 4 * (how == 1 ? 16 * 1000 : 8 * 1000);
        uint32_t n = list_elements(&f, 0, elements);
        n = plain_buckets(elements, n, 4, how == 2 ? 5000 : limit, limit, expect);
        CHECK_INT(n, graph_buckets(&f, 0, got));
        for (uint32_t k = 0; k < n; k++)
            CHECK_U64(expect[k], got[k]);
        fixture_close(&f);
    }
}

/* Megatron-Core: buckets on the first stage's first chunk, one for each chunk elsewhere, and one of
 * all where nothing overlaps. */
static void only_the_first_chunk_may_have_buckets(void)
{
    for (int how = 0; how < 4; how++) {
        Fixture f;
        uint64_t got[BUCKETS_MAX];
        bool overlaps = !(how & 1), set = how & 2;
        open_ddp(&f, 4, 2, 4);
        f.s.parallel.virtual_stages = 2;
        f.s.parallel.schedule = SCHEDULE_INTERLEAVED;
        f.sw.overlap[DIM_DP] = overlaps;
        f.sw.bucket_parameters = 2000;
        f.sw.first_chunk_buckets = true;
        f.s.parallel.bucket_bytes_set = set;
        fixture_build(&f, 14);
        uint32_t first = graph_buckets(&f, 0, got), second = graph_buckets(&f, 1, got);
        CHECK_INT(set, second > 2);
        if (!set)
            CHECK_INT(2, second);
        CHECK(set || overlaps ? first > 3 : first == 2);
        fixture_close(&f);
    }
}

/* Every gradient once: 2 (n-1)/n of it per rank is what an all-reduce of these bytes moves. */
static void all_gradients_are_reduced_once_per_step(void)
{
    for (uint32_t m = 1; m <= 4; m++) {
        Fixture f;
        open_ddp(&f, 8, 1, m);
        fixture_build(&f, 6);
        uint64_t params = FAKE_EMBEDDING + 6 * FAKE_LAYER + FAKE_HEAD;
        CHECK_U64(params * 4,
                  comm_bytes(&f.g, &f.g.roles[0], OP_ALL_REDUCE, f.b.group[GROUP_DP]));
        fixture_close(&f);
    }
}

static void one_replica_reduces_nothing(void)
{
    Fixture f;
    open_ddp(&f, 1, 2, 4);
    fixture_build(&f, 6);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t i = 0; i < f.g.roles[r].instances_n; i++)
            CHECK(f.g.segments[f.g.roles[r].instances[i].segment].kind != SEGMENT_REDUCE);
    fixture_close(&f);
}

/* ---- order ---- */

static const Instance *instance_of(const Fixture *f, uint32_t i)
{
    return &f->g.roles[0].instances[i];
}

static SegmentKind kind_of(const Fixture *f, uint32_t i)
{
    return f->g.segments[instance_of(f, i)->segment].kind;
}

/* One tensor per bucket: bucket k waits for the very op that finishes gradient k. */
static void a_bucket_waits_for_its_last_gradient_alone(void)
{
    Fixture f;
    open_ddp(&f, 2, 1, 2);
    f.s.parallel.first_bucket_bytes = f.s.parallel.bucket_bytes = 1;
    fixture_build(&f, 3);
    const Role *role = &f.g.roles[0];
    uint32_t seen = 0;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        if (kind_of(&f, i) != SEGMENT_REDUCE)
            continue;
        const Instance *at = instance_of(&f, i);
        CHECK_INT(1, at->edge_n);
        const Edge *edge = &role->edges[at->edge_first];
        const Instance *src = &role->instances[edge->src_instance];
        CHECK_INT(1, src->micro_batch); /* the last */
        CHECK_INT(SEGMENT_BACKWARD, f.g.segments[src->segment].kind);
        /* bucket 0 is the head's; then come 4 per layer from the last layer on */
        uint32_t within = seen == 0 ? 0 : (seen - 1) % 4;
        CHECK_INT(1 + within, edge->src_op); /* op 0 is dgrad */
        seen++;
    }
    CHECK_INT(2 + 3 * 4, seen);
    fixture_close(&f);
}

/* Blocks finish from the last to the first; the newest backward stands for all of them. */
static void a_bucket_over_blocks_waits_for_the_last_of_them(void)
{
    Fixture f;
    open_ddp(&f, 2, 1, 2);
    f.s.parallel.first_bucket_bytes = f.s.parallel.bucket_bytes = 40000;
    fixture_build(&f, 6);
    const Role *role = &f.g.roles[0];
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Instance *at = instance_of(&f, i);
        if (kind_of(&f, i) != SEGMENT_REDUCE)
            continue;
        CHECK_INT(1, at->edge_n);
        uint32_t newest = i - 1; /* buckets are launched right after what they wait for */
        while (kind_of(&f, newest) != SEGMENT_BACKWARD)
            newest--;
        CHECK_INT(newest, role->edges[at->edge_first].src_instance);
    }
    fixture_close(&f);
}

/* Where in the program the first bucket stands relative to the last backward. */
static void without_overlap_buckets_follow_the_whole_backward(void)
{
    for (uint32_t copies = 0; copies < 2; copies++)
        for (uint32_t overlap = 0; overlap < 2; overlap++) {
            Fixture f;
            open_ddp(&f, 2, 1, 2);
            f.sw.overlap[DIM_DP] = overlap;
            f.sw.bucket_copies = copies;
            fixture_build(&f, 6);
            uint32_t first = NONE_U32, last_backward = 0;
            for (uint32_t i = 0; i < f.g.roles[0].instances_n; i++) {
                if (kind_of(&f, i) == SEGMENT_REDUCE && first == NONE_U32)
                    first = i;
                if (kind_of(&f, i) == SEGMENT_BACKWARD)
                    last_backward = i;
            }
            CHECK_INT(overlap, first < last_backward);
            fixture_close(&f);
        }
}

static bool waits_for(const Fixture *f, uint32_t instance, OpKind kind)
{
    const Role *role = &f->g.roles[0];
    const Instance *at = &role->instances[instance];
    for (uint32_t e = 0; e < at->edge_n; e++) {
        const Edge *edge = &role->edges[at->edge_first + e];
        const Instance *src = &role->instances[edge->src_instance];
        if (graph_ops(&f->g, &f->g.segments[src->segment])[edge->src_op].kind == kind)
            return true;
    }
    return false;
}

static void the_optimizer_waits_for_the_last_bucket(void)
{
    Fixture f;
    open_ddp(&f, 2, 1, 1);
    fixture_build(&f, 6);
    for (uint32_t i = 0; i < f.g.roles[0].instances_n; i++)
        if (kind_of(&f, i) == SEGMENT_OPTIMIZER) {
            CHECK(waits_for(&f, i, OP_ALL_REDUCE));
            break;
        }
    fixture_close(&f);
}

/* ---- what every graph must hold ---- */

static void check_ddp(Fixture *f, uint32_t layers)
{
    uint32_t failures = check_state.test_failures_n;
    if (!fixture_build(f, layers))
        return;
    check_lives(&f->g);
    check_runs(&f->g);
    if (failures != check_state.test_failures_n)
        fprintf(stderr, "    with pp %u, m %u, copies %d, overlap %d, persist %d\n",
                f->s.parallel.pp, f->s.training.micro_batches, f->sw.bucket_copies,
                f->sw.overlap[DIM_DP], f->sw.grads_persist);
    fixture_close(f);
}

static void nothing_races_or_deadlocks(void)
{
    for (uint32_t pp = 1; pp <= 3; pp++)
        for (uint32_t m = 1; m <= 4; m += 3)
            for (uint32_t how = 0; how < 32; how++) {
                Fixture f;
                open_ddp(&f, 4, pp, m);
                f.s.parallel.tp = 2;
                f.sw.bucket_copies = how & 1;
                f.sw.overlap[DIM_DP] = how & 2;
                f.sw.grads_persist = how & 4;
                f.s.training.grad_clip = how & 8 ? 1 : 0;
                f.tied = pp > 1;
                f.borrows = pp == 1;
                f.s.training.reduce_dtype = how & 16 ? DTYPE_BF16 : DTYPE_F32;
                check_ddp(&f, 5);
            }
}

/* ---- after backward ---- */

static void norm_gradients_are_summed_over_tp(void)
{
    Fixture f;
    open_ddp(&f, 2, 2, 2);
    f.s.parallel.tp = 4;
    fixture_build(&f, 6);
    for (uint32_t stage = 0; stage < 2; stage++)
        CHECK_U64(3 * FAKE_NORM * 4,
                  comm_bytes(&f.g, &f.g.roles[stage], OP_ALL_REDUCE, f.b.group[GROUP_TP]));
    fixture_close(&f);
}

/* Megatron's main_grads are f32 beside bf16 parameters. */
static void f32_gradients_are_summed_over_tp_in_f32(void)
{
    Fixture f;
    open_ddp(&f, 2, 1, 1);
    f.s.parallel.tp = 4;
    f.s.training.grad_dtype = DTYPE_BF16;
    f.sw.f32_grads = true;
    fixture_build(&f, 3);
    CHECK_U64(3 * FAKE_NORM * 4,
              comm_bytes(&f.g, &f.g.roles[0], OP_ALL_REDUCE, f.b.group[GROUP_TP]));
    fixture_close(&f);
}

static void tied_embeddings_are_summed_over_the_ends(void)
{
    Fixture f;
    open_ddp(&f, 2, 3, 3);
    f.tied = true;
    fixture_build(&f, 6);
    for (uint32_t stage = 0; stage < 3; stage++)
        CHECK_U64(
            stage == 1 ? 0 : FAKE_EMBEDDING * 4,
            comm_bytes(&f.g, &f.g.roles[stage], OP_ALL_REDUCE, f.b.group[GROUP_EMBEDDING]));
    fixture_close(&f);
}

/* One f32 over tp and pp; replicas over dp know the same norm already. */
static void clipping_sums_one_number_over_tp_and_pp(void)
{
    Fixture f;
    open_ddp(&f, 2, 2, 2);
    f.s.parallel.tp = 2;
    f.s.training.grad_clip = 1;
    fixture_build(&f, 6);
    for (uint32_t stage = 0; stage < 2; stage++) {
        const Role *role = &f.g.roles[stage];
        CHECK_U64(4, comm_bytes(&f.g, role, OP_ALL_REDUCE, f.b.group[GROUP_PP]));
        CHECK_U64(4 + 3 * FAKE_NORM * 4,
                  comm_bytes(&f.g, role, OP_ALL_REDUCE, f.b.group[GROUP_TP]));
    }
    fixture_close(&f);
}

/* Where the stack reads gradients beside the update, only the number is summed here. */
static void stacks_with_passes_clip_in_them(void)
{
    for (int passes = 0; passes < 2; passes++) {
        Fixture f;
        open_ddp(&f, 2, 2, 2);
        f.s.training.grad_clip = 1;
        f.sw.norms_grads = passes;
        fixture_build(&f, 6);
        for (uint32_t stage = 0; stage < 2; stage++) {
            const Role *role = &f.g.roles[stage];
            uint32_t reads = 0;
            for (uint32_t i = 0; i < role->instances_n; i++) {
                const Segment *s = &f.g.segments[role->instances[i].segment];
                OpKind kind = graph_ops(&f.g, s)[0].kind;
                reads +=
                    kind == OP_GRAD_NORM || (kind == OP_SCALE && s->kind == SEGMENT_OPTIMIZER);
            }
            CHECK_INT(passes ? 0 : 2 * 4, reads); /* three layers and an end each */
            CHECK_U64(4, comm_bytes(&f.g, role, OP_ALL_REDUCE, f.b.group[GROUP_PP]));
        }
        check_lives(&f.g);
        check_runs(&f.g);
        fixture_close(&f);
    }
}

static void the_optimizer_updates_every_element_once(void)
{
    for (uint32_t pp = 1; pp <= 3; pp++) {
        Fixture f;
        open_ddp(&f, 2, pp, 2);
        fixture_build(&f, 6);
        uint64_t elements = 0, bytes = 0;
        for (uint32_t r = 0; r < pp; r++)
            for (uint32_t i = 0; i < f.g.roles[r].instances_n; i++) {
                const Segment *s = &f.g.segments[f.g.roles[r].instances[i].segment];
                const Op *op = graph_ops(&f.g, s);
                if (op->kind == OP_OPTIMIZER) {
                    elements += op->u.elements;
                    bytes += op->read_bytes + op->write_bytes;
                }
            }
        uint64_t params = FAKE_EMBEDDING + 6 * FAKE_LAYER + FAKE_HEAD;
        CHECK_U64(params, elements);
        /* reads parameter, gradient, two moments; writes parameter and moments; all f32 */
        CHECK_U64(params * 4 * 7, bytes);
        fixture_close(&f);
    }
}

int main(void)
{
    RUN(buckets_are_those_of_pytorch);
    RUN(a_stack_cuts_its_own_buckets);
    RUN(only_the_first_chunk_may_have_buckets);
    RUN(all_gradients_are_reduced_once_per_step);
    RUN(one_replica_reduces_nothing);
    RUN(a_bucket_waits_for_its_last_gradient_alone);
    RUN(a_bucket_over_blocks_waits_for_the_last_of_them);
    RUN(without_overlap_buckets_follow_the_whole_backward);
    RUN(the_optimizer_waits_for_the_last_bucket);
    RUN(nothing_races_or_deadlocks);
    RUN(norm_gradients_are_summed_over_tp);
    RUN(f32_gradients_are_summed_over_tp_in_f32);
    RUN(tied_embeddings_are_summed_over_the_ends);
    RUN(clipping_sums_one_number_over_tp_and_pp);
    RUN(stacks_with_passes_clip_in_them);
    RUN(the_optimizer_updates_every_element_once);
    return check_report();
}
