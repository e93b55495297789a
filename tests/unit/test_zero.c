/*
 * test_zero.c - ZeRO 1 and 2: what is scattered and gathered when, and what stays.
 */
#include "sim/memory.h"
#include "tests/graph_check.h"
#include "tests/strategy_fixture.h"

static void open_zero(Fixture *f, Strategy strategy, uint32_t dp, uint32_t pp, uint32_t m)
{
    fixture_open(f);
    f->s.parallel.strategy = strategy;
    f->s.parallel.dp = dp;
    f->s.parallel.pp = pp;
    f->s.training.micro_batches = m;
}

static uint64_t padded(uint64_t elements, uint64_t n)
{
    return div_up_u64(elements, n) * n;
}

static uint64_t padded_params(uint64_t layers, uint64_t n)
{
    uint64_t layer =
        padded(FAKE_NORM, n) + padded(FAKE_UP, n) + padded(FAKE_DOWN, n) + padded(FAKE_BIAS, n);
    return layers * layer + padded(FAKE_EMBEDDING, n) + padded(FAKE_HEAD, n);
}

static uint64_t moved(const Fixture *f, OpKind kind)
{
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < f->g.roles_n; r++)
        bytes += comm_bytes(&f->g, &f->g.roles[r], kind, f->b.group[GROUP_DP]);
    return bytes;
}

/* How often role 0 runs an op of segments of that name. */
static uint64_t kernels_named(const Fixture *f, const char *name)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->g.roles[0].instances_n; i++) {
        const Segment *s = &f->g.segments[f->g.roles[0].instances[i].segment];
        n += strcmp(intern_text(&f->g.names, s->name), name) == 0 ? s->op_n : 0;
    }
    return n;
}

/* ---- volume ---- */

/* Psi scattered and Psi gathered, however many micro-batches; zero2 scatters each of them. */
static void volume_is_twice_the_parameters(void)
{
    for (int ahead = 0; ahead < 2; ahead++)
        for (int copies = 0; copies < 2; copies++)
            for (uint32_t n = 2; n <= 9; n++)
                for (uint32_t m = 1; m <= 3; m++) {
                    Fixture f;
                    open_zero(&f, STRATEGY_ZERO1, n, 1, m);
                    f.sw.overlap_param_gather = ahead;
                    f.sw.bucket_copies = copies;
                    fixture_build(&f, 6);
                    CHECK_U64(4 * padded_params(6, n), moved(&f, OP_REDUCE_SCATTER));
                    CHECK_U64(4 * padded_params(6, n), moved(&f, OP_ALL_GATHER));
                    fixture_close(&f);
                    open_zero(&f, STRATEGY_ZERO2, n, 1, m);
                    fixture_build(&f, 6);
                    CHECK_U64(m * 4 * padded_params(6, n), moved(&f, OP_REDUCE_SCATTER));
                    CHECK_U64(4 * padded_params(6, n), moved(&f, OP_ALL_GATHER));
                    fixture_close(&f);
                }
}

/* nanotron, and ddp with ZeroRedundancyOptimizer, which copies: only the update is shared out. */
static void sum_whole_gradients(bool copies)
{
    for (uint32_t m = 1; m <= 3; m++)
        for (int strategy = STRATEGY_ZERO1; strategy <= STRATEGY_ZERO2; strategy++) {
            Fixture f;
            bool whole = strategy == STRATEGY_ZERO1;
            uint64_t each = whole ? 1 : m;
            open_zero(&f, (Strategy)strategy, 4, 1, m);
            f.sw.zero_all_reduces = true;
            f.sw.bucket_copies = copies;
            fixture_build(&f, 6);
            CHECK_U64(whole ? 4 * padded_params(6, 4) : 0, moved(&f, OP_ALL_REDUCE));
            CHECK_U64(whole ? 0 : each * 4 * padded_params(6, 4), moved(&f, OP_REDUCE_SCATTER));
            CHECK_U64(4 * padded_params(6, 4), moved(&f, OP_ALL_GATHER));
            check_lives(&f.g);
            check_runs(&f.g);
            fixture_close(&f);
        }
}

static void zero1_may_sum_whole_gradients(void)
{
    sum_whole_gradients(false);
    sum_whole_gradients(true);
}

/* DeepSpeed's BF16_Optimizer: f32 gradients in one buffer, summed whole and in place, a bucket at a
 * time; in f16 they are scattered. */
static void bf16_may_sum_whole_gradients_in_f32(void)
{
    for (int f16 = 0; f16 < 2; f16++) {
        Fixture f;
        open_zero(&f, STRATEGY_ZERO1, 4, 1, 2);
        f.s.training.precision = f16 ? DTYPE_F16 : DTYPE_BF16;
        f.s.training.param_dtype = f.s.training.grad_dtype = f.s.training.precision;
        f.s.training.reduce_dtype = f.s.training.precision;
        f.sw.bf16_grads_f32 = f.sw.bucket_copies = true;
        fixture_build(&f, 6);
        CHECK_U64(f16 ? 0 : 4 * padded_params(6, 4), moved(&f, OP_ALL_REDUCE));
        CHECK_U64(f16 ? 2 * padded_params(6, 4) : 0, moved(&f, OP_REDUCE_SCATTER));
        CHECK_U64(2 * padded_params(6, 4), moved(&f, OP_ALL_GATHER));
        CHECK_U64((f16 ? 2 : 1) * (6 * 4 + 2), kernels_named(&f, "bucket copy"));
        CHECK_U64(kernels_named(&f, "bucket copy"), kernels_named(&f, "bucket copy back"));
        check_lives(&f.g);
        check_runs(&f.g);
        fixture_close(&f);
    }
}

/* nanotron: all is copied to the list, a rank's part into what is gathered, that to the list, and
 * each rank's part of each parameter by itself. */
static void parameters_may_be_gathered_as_lists(void)
{
    enum { RANKS = 4 };
    const uint64_t params = 6 * 4 + 2;
    Fixture f;
    open_zero(&f, STRATEGY_ZERO1, RANKS, 1, 1);
    f.sw.zero_all_reduces = f.sw.zero_reduces_last = f.sw.zero_gathers_lists = true;
    fixture_build(&f, 6);
    CHECK_U64(4 * padded_params(6, RANKS), moved(&f, OP_ALL_GATHER));
    CHECK_U64(2 * params, kernels_named(&f, "bucket copy"));
    CHECK_U64((1 + RANKS) * params, kernels_named(&f, "bucket copy back"));
    uint64_t bytes = 2 * 4 * padded_params(6, RANKS);
    CHECK(most_live_of(&f.g, &f.g.roles[0], SLOT_DATA) == bytes);
    check_lives(&f.g);
    check_runs(&f.g);
    fixture_close(&f);
}

/* Who has the whole sums needs nobody for their norm. */
static void the_norm_of_whole_sums_is_not_reduced(void)
{
    for (int whole = 0; whole < 2; whole++) {
        Fixture f;
        open_zero(&f, STRATEGY_ZERO1, 4, 1, 1);
        f.sw.zero_all_reduces = whole;
        f.s.training.grad_clip = 1;
        fixture_build(&f, 6);
        CHECK_U64(whole ? 4 * padded_params(6, 4) : 4, moved(&f, OP_ALL_REDUCE));
        fixture_close(&f);
    }
}

static void number_formats_scale_the_volume(void)
{
    for (int strategy = STRATEGY_ZERO1; strategy <= STRATEGY_ZERO2; strategy++) {
        Fixture f;
        open_zero(&f, (Strategy)strategy, 4, 1, 1);
        f.s.training.param_dtype = f.s.training.grad_dtype = DTYPE_BF16;
        fixture_build(&f, 6);
        CHECK_U64(4 * padded_params(6, 4), moved(&f, OP_REDUCE_SCATTER)); /* f32 */
        CHECK_U64(2 * padded_params(6, 4), moved(&f, OP_ALL_GATHER));
        fixture_close(&f);
    }
}

/* Megatron: accumulate_allreduce_grads_in_fp32.  A scenario may say otherwise. */
static void gradients_kept_in_f32_are_summed_in_f32(void)
{
    for (int strategy = STRATEGY_ZERO1; strategy <= STRATEGY_ZERO2; strategy++)
        for (int set = 0; set < 2; set++) {
            Fixture f;
            open_zero(&f, (Strategy)strategy, 4, 1, 1);
            f.s.training.reduce_dtype = DTYPE_BF16;
            f.s.training.reduce_dtype_set = set;
            f.sw.f32_grads = true;
            fixture_build(&f, 6);
            CHECK_U64((set ? 2 : 4) * padded_params(6, 4), moved(&f, OP_REDUCE_SCATTER));
            fixture_close(&f);
            open_zero(&f, (Strategy)strategy, 4, 1, 1);
            f.s.training.grad_dtype = f.s.training.reduce_dtype = DTYPE_BF16;
            f.s.training.grad_dtype_set = set;
            f.sw.f32_grads = true;
            fixture_build(&f, 6);
            CHECK_U64((set ? 2 : 4) * padded_params(6, 4), moved(&f, OP_REDUCE_SCATTER));
            fixture_close(&f);
        }
}

static void one_rank_shares_with_nobody(void)
{
    for (int strategy = STRATEGY_ZERO1; strategy <= STRATEGY_ZERO2; strategy++) {
        Fixture f;
        open_zero(&f, (Strategy)strategy, 1, 1, 2);
        fixture_build(&f, 6);
        for (uint32_t i = 0; i < f.g.roles[0].instances_n; i++) {
            SegmentKind kind = f.g.segments[f.g.roles[0].instances[i].segment].kind;
            CHECK(kind != SEGMENT_GATHER && kind != SEGMENT_REDUCE);
        }
        check_lives(&f.g);
        fixture_close(&f);
    }
}

static uint64_t updated(const Fixture *f)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->g.roles[0].instances_n; i++) {
        const Op *op = graph_ops(&f->g, &f->g.segments[f->g.roles[0].instances[i].segment]);
        n += op->kind == OP_OPTIMIZER ? op->u.elements : 0;
    }
    return n;
}

static void each_rank_updates_an_equal_part(void)
{
    for (int strategy = STRATEGY_ZERO1; strategy <= STRATEGY_ZERO2; strategy++) {
        Fixture f;
        open_zero(&f, (Strategy)strategy, 8, 1, 2);
        fixture_build(&f, 3);
        CHECK_U64(padded_params(3, 8) / 8, updated(&f));
        fixture_close(&f);
    }
}

/* An update reads the part's gradient, states and parameter and writes the latter two: f32. */
static void an_update_touches_its_part_only(void)
{
    for (int strategy = STRATEGY_ZERO1; strategy <= STRATEGY_ZERO2; strategy++) {
        Fixture f;
        open_zero(&f, (Strategy)strategy, 8, 1, 2);
        fixture_build(&f, 3);
        for (uint32_t i = 0; i < f.g.segments_n; i++) {
            const Op *op = graph_ops(&f.g, &f.g.segments[i]);
            if (f.g.segments[i].op_n && op->kind == OP_OPTIMIZER) {
                CHECK_U64(4 * 4 * op->u.elements, op->read_bytes);
                CHECK_U64(3 * 4 * op->u.elements, op->write_bytes);
            }
        }
        fixture_close(&f);
    }
}

/* ---- memory: resident bytes by class ---- */

static uint64_t resident(const Fixture *f, TensorClass class_)
{
    uint64_t bytes = 0;
    const Role *role = &f->g.roles[0];
    for (uint32_t i = 0; i < role->frames_n; i++) {
        const Layout *l = &f->g.layouts[role->frames[i].layout];
        for (uint32_t t = 0; role->frames[i].resident && t < l->tensor_n; t++) {
            const Tensor *x = &f->g.tensors[l->tensor_first + t];
            bytes += x->class_ == class_ ? x->bytes : 0;
        }
    }
    return bytes;
}

static void what_is_shared_out_is_a_part(void)
{
    const uint64_t n = 8, whole = FAKE_EMBEDDING + 3 * FAKE_LAYER + FAKE_HEAD;
    for (int strategy = STRATEGY_ZERO1; strategy <= STRATEGY_ZERO2; strategy++) {
        Fixture f;
        open_zero(&f, (Strategy)strategy, 8, 1, 2);
        fixture_build(&f, 3);
        CHECK_U64(4 * whole, resident(&f, TENSOR_PARAM));
        CHECK_U64(2 * 4 * padded_params(3, n) / n, resident(&f, TENSOR_OPTIMIZER));
        CHECK_U64(4 * (strategy == STRATEGY_ZERO1 ? whole : padded_params(3, n) / n),
                  resident(&f, TENSOR_GRAD));
        fixture_close(&f);
    }
}

/* A layer closes a bucket, so with what is just being written two layers' worth live. */
static void zero2_keeps_no_whole_gradients(void)
{
    Fixture f;
    open_zero(&f, STRATEGY_ZERO2, 8, 1, 3);
    f.s.parallel.bucket_bytes = 4 * FAKE_LAYER;
    fixture_build(&f, 9);
    CHECK(most_live_of(&f.g, &f.g.roles[0], SLOT_GRAD) <= 4 * (2 * FAKE_LAYER + FAKE_HEAD));
    CHECK(most_live_of(&f.g, &f.g.roles[0], SLOT_DATA) <=
          4 * 3 * (FAKE_LAYER + FAKE_HEAD) + 3 * 256);
    fixture_close(&f);
}

/* ---- buckets ---- */

/* Sizes of the collectives of a kind, in program order: padded elements. */
static uint32_t bucket_sizes(const Fixture *f, OpKind kind, uint64_t *elements)
{
    uint32_t n = 0;
    const Role *role = &f->g.roles[0];
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Segment *s = &f->g.segments[role->instances[i].segment];
        for (uint32_t o = 0; o < s->op_n; o++) {
            const Op *op = &graph_ops(&f->g, s)[o];
            if (op->kind == kind && op->u.comm.group == f->b.group[GROUP_DP])
                elements[n++] = op->u.comm.bytes / 4;
        }
    }
    return n;
}

/* A stack's bucket ends at max(a, b * ranks) parameters; a size in the scenario wins. */
static void buckets_are_the_stacks_unless_given(void)
{
    for (int strategy = STRATEGY_ZERO1; strategy <= STRATEGY_ZERO2; strategy++)
        for (int how = 0; how < 4; how++) {
            Fixture f;
            uint64_t got[64];
            open_zero(&f, (Strategy)strategy, 4, 1, 1);
            f.sw.bucket_parameters = how == 0 ? 0 : 10000;
            f.sw.bucket_parameters_per_rank = how == 2 ? 4000 : 0;
            f.s.parallel.bucket_bytes_set = how == 3;
            fixture_build(&f, 6);
            uint64_t limit = how == 1 ? 10000 : how == 2 ? 4 * 4000 : 20000 / 4;
            for (int gathers = 0; gathers < 2; gathers++) {
                uint32_t n = bucket_sizes(&f, gathers ? OP_ALL_GATHER : OP_REDUCE_SCATTER, got);
                uint32_t short_n = 0;
                for (uint32_t k = 0; k < n; k++) {
                    short_n += got[k] < limit; /* what is left over */
                    CHECK(got[k] < limit + FAKE_HEAD + 4 * 4);
                }
                CHECK(n > 1 && short_n <= 1);
            }
            fixture_close(&f);
        }
}

/* All is reduced at one time, after backward: nanotron's one buffer. */
static void what_is_reduced_last_is_one_bucket(void)
{
    for (int set = 0; set < 2; set++) {
        Fixture f;
        uint64_t got[64];
        open_zero(&f, STRATEGY_ZERO1, 4, 1, 2);
        f.sw.zero_reduces_last = true;
        f.s.parallel.bucket_bytes_set = set;
        fixture_build(&f, 6);
        uint32_t n = bucket_sizes(&f, OP_REDUCE_SCATTER, got);
        CHECK(set ? n > 1 : n == 1);
        fixture_close(&f);
    }
}

/* ---- order ---- */

static const Segment *segment_at(const Fixture *f, uint32_t i)
{
    return &f->g.segments[f->g.roles[0].instances[i].segment];
}

static uint32_t find(const Fixture *f, uint32_t from, SegmentKind kind)
{
    uint32_t i = from;
    while (i < f->g.roles[0].instances_n && segment_at(f, i)->kind != kind)
        i++;
    return i;
}

static void gathers_follow_the_update_or_precede_the_forward(void)
{
    for (int ahead = 0; ahead < 2; ahead++) {
        Fixture f;
        open_zero(&f, STRATEGY_ZERO1, 4, 1, 2);
        f.sw.overlap_param_gather = ahead;
        fixture_build(&f, 6);
        const Role *role = &f.g.roles[0];
        uint32_t gather = find(&f, 0, SEGMENT_GATHER), update = find(&f, 0, SEGMENT_OPTIMIZER);
        uint32_t forward = find(&f, 0, SEGMENT_FORWARD);
        CHECK_INT(ahead, gather < forward);
        CHECK_INT(!ahead, gather > update);
        uint32_t last = role->instances_n - 1;
        CHECK_INT(ahead ? SEGMENT_OPTIMIZER : SEGMENT_GATHER, segment_at(&f, last)->kind);
        fixture_close(&f);
    }
}

/* In a pipeline the hook of a stage's first forward is behind its first receive: gathers before
 * that stand at the step's start, the first or all of them. */
static void gathers_may_begin_with_the_step(void)
{
    for (int how = 0; how < 3; how++) {
        Fixture f;
        open_zero(&f, STRATEGY_ZERO1, 2, 2, 2);
        f.sw.overlap_param_gather = true;
        f.sw.gathers_at_start = how == 1;
        f.sw.gathers_together = how == 2;
        f.s.parallel.bucket_bytes = 4 * FAKE_LAYER;
        fixture_build(&f, 6);
        const Role *role = &f.g.roles[1];
        uint32_t before = 0, all = 0;
        bool received = false;
        for (uint32_t i = 0; i < role->instances_n; i++) {
            const Segment *s = &f.g.segments[role->instances[i].segment];
            received = received || s->lane_n[LANE_RECV_ACT] > 0;
            all += s->kind == SEGMENT_GATHER;
            before += s->kind == SEGMENT_GATHER && !received;
        }
        CHECK(all > 1 && received);
        CHECK_INT(how == 0 ? 0 : how == 1 ? 1 : all, before);
        fixture_close(&f);
    }
}

/* Compute c seconds per op, communication 1: a gather ahead hides behind a long forward. */
static double long_compute(const Role *role, const CheckOp *o)
{
    (void)role;
    return op_is_comm(o->op->kind) ? 1 : o->op->kind == OP_MATMUL ? 10 : 0;
}

static void gathers_ahead_hide_behind_the_forward(void)
{
    double step[2];
    uint32_t buckets = 0;
    for (int ahead = 0; ahead < 2; ahead++) {
        Fixture f;
        open_zero(&f, STRATEGY_ZERO1, 4, 1, 1);
        f.sw.overlap_param_gather = ahead;
        f.s.parallel.bucket_bytes = 4 * FAKE_LAYER;
        fixture_build(&f, 6);
        step[ahead] = check_time(&f.g, long_compute);
        buckets = 0;
        for (uint32_t i = 0; i < f.g.roles[0].instances_n; i++)
            buckets += segment_at(&f, i)->kind == SEGMENT_GATHER;
        fixture_close(&f);
    }
    CHECK(buckets > 5);
    /* exposed: the first gather, or all of them; the second waits for nobody either */
    CHECK_NEAR(step[0] - step[1], buckets - 1, 1e-9);
}

/* PyTorch's ZeroRedundancyOptimizer stands behind ddp: backward is ddp's, in the same buffers; the
 * gathers follow. */
static void whole_sums_hold_up_backward_no_more_than_ddp(void)
{
    double step[2];
    uint64_t buffers[2], state[2];
    uint32_t gathers = 0;
    for (int zero = 0; zero < 2; zero++) {
        Fixture f;
        open_zero(&f, zero ? STRATEGY_ZERO1 : STRATEGY_DDP, 4, 1, 1);
        f.sw.zero_all_reduces = f.sw.bucket_copies = true;
        f.sw.overlap[DIM_DP] = true;
        f.s.parallel.bucket_bytes = 4 * FAKE_LAYER;
        fixture_build(&f, 6);
        step[zero] = check_time(&f.g, long_compute);
        RoleMemory m = memory_of_role(&f.g, &f.g.roles[0], NULL);
        buffers[zero] = m.resident[TENSOR_BUFFER];
        state[zero] = m.resident[TENSOR_OPTIMIZER];
        gathers = 0;
        for (uint32_t i = 0; i < f.g.roles[0].instances_n; i++)
            gathers += segment_at(&f, i)->kind == SEGMENT_GATHER;
        fixture_close(&f);
    }
    CHECK(gathers > 0);
    CHECK_NEAR(step[1] - step[0], gathers, 1e-9);
    CHECK(buffers[0] > 0 && state[1] < state[0]);
    CHECK(buffers[1] - buffers[0] < buffers[0] / 1000); /* padded for parts alike */
}

/* Bucket k leaves when backward of its last block is through: only the last is exposed. */
static void scatters_hide_behind_backward(void)
{
    for (int strategy = STRATEGY_ZERO1; strategy <= STRATEGY_ZERO2; strategy++)
        for (int copies = 0; copies < 2; copies++) {
            double step[3];
            for (int overlap = 0; overlap < 3; overlap++) {
                Fixture f;
                open_zero(&f, (Strategy)strategy, 4, 1, 1);
                f.sw.overlap[DIM_DP] = overlap > 0;
                f.sw.zero_reduces_last = overlap == 2;
                f.s.parallel.bucket_bytes_set = true;
                f.sw.bucket_copies = copies;
                fixture_build(&f, 6);
                step[overlap] = check_time(&f.g, long_compute);
                fixture_close(&f);
            }
            CHECK(step[1] < step[0] - 2);
            CHECK_NEAR(step[0], step[2], 0);
        }
}

/* ---- what every graph must hold ---- */

static void check_zero(Fixture *f, uint32_t layers)
{
    uint32_t failures = check_state.test_failures_n;
    if (!fixture_build(f, layers))
        return;
    check_lives(&f->g);
    check_runs(&f->g);
    const Parallel *p = &f->s.parallel;
    if (failures != check_state.test_failures_n)
        fprintf(stderr,
                "    %s, pp %u x %u, m %u, overlap %d, persist %d, copies %d, ahead %d, "
                "bucket %d\n",
                strategy_names[p->strategy], p->pp, p->virtual_stages,
                f->s.training.micro_batches, f->sw.overlap[DIM_DP], f->sw.grads_persist,
                f->sw.bucket_copies, f->sw.overlap_param_gather, (int)p->bucket_bytes);
    fixture_close(f);
}

static void nothing_races_or_deadlocks(void)
{
    static const uint64_t buckets[] = { 1, 20000, 70000, 1 << 30 };
    for (uint32_t pp = 1; pp <= 3; pp++)
        for (uint32_t turns = 1; turns <= (pp > 1 ? 2u : 1u); turns++)
            for (uint32_t k = 1; k <= 2; k++)
                for (uint32_t how = 0; how < 128; how++)
                    for (size_t size = 0; size < ARRAY_N(buckets); size++) {
                        Fixture f;
                        if (!check_takes((((pp * 8 + turns) * 8 + k) * 128 + how) * 8 + size))
                            continue;
                        bool zero2 = pp == 1 && how & 64;
                        open_zero(&f, zero2 ? STRATEGY_ZERO2 : STRATEGY_ZERO1, 3, pp, k * pp);
                        f.s.parallel.tp = how & 32 ? 2 : 1;
                        f.s.parallel.virtual_stages = turns;
                        if (turns > 1)
                            f.s.parallel.schedule = SCHEDULE_INTERLEAVED;
                        f.s.parallel.bucket_bytes = buckets[size];
                        f.sw.overlap[DIM_DP] = how & 1;
                        f.sw.grads_persist = how & 2;
                        f.sw.bucket_copies = how & 4;
                        f.sw.overlap_param_gather = how & 8;
                        f.s.training.grad_clip = how & 16 ? 1 : 0;
                        f.tied = pp > 1;
                        f.borrows = pp == 1;
                        check_zero(&f, 5);
                    }
}

int main(void)
{
    RUN(volume_is_twice_the_parameters);
    RUN(zero1_may_sum_whole_gradients);
    RUN(bf16_may_sum_whole_gradients_in_f32);
    RUN(parameters_may_be_gathered_as_lists);
    RUN(the_norm_of_whole_sums_is_not_reduced);
    RUN(what_is_reduced_last_is_one_bucket);
    RUN(number_formats_scale_the_volume);
    RUN(gradients_kept_in_f32_are_summed_in_f32);
    RUN(one_rank_shares_with_nobody);
    RUN(each_rank_updates_an_equal_part);
    RUN(an_update_touches_its_part_only);
    RUN(what_is_shared_out_is_a_part);
    RUN(zero2_keeps_no_whole_gradients);
    RUN(buckets_are_the_stacks_unless_given);
    RUN(gathers_follow_the_update_or_precede_the_forward);
    RUN(whole_sums_hold_up_backward_no_more_than_ddp);
    RUN(gathers_may_begin_with_the_step);
    RUN(gathers_ahead_hide_behind_the_forward);
    RUN(scatters_hide_behind_backward);
    RUN(nothing_races_or_deadlocks);
    return check_report();
}
