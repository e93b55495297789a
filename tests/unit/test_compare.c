/* Two timelines beside each other: equal ones, one op slower, folded, renamed, several steps. */
#include "profile/compare.h"
#include "tests/check.h"

/* ---- timelines made by hand ---- */

typedef struct Made {
    Timeline t;
    uint32_t rank;
    uint32_t compute, comm, steps;
    int64_t now_ns;
    uint32_t next_op;
    bool with_ids;
} Made;

static void made_rank(Made *m, uint32_t rank)
{
    m->rank = rank;
    m->compute = timeline_track(&m->t, rank, TRACK_STREAM, "compute", 1);
    m->comm = timeline_track(&m->t, rank, TRACK_STREAM, "reduce", 2);
    m->steps = timeline_track(&m->t, rank, TRACK_STEPS, "steps", 0);
    m->now_ns = 0;
    m->next_op = 0;
}

static void add_span(Made *m, uint32_t track, SpanClass class_, const char *name, int64_t ns,
                     uint32_t comm)
{
    timeline_span(&m->t, (Span){ .track = track,
                                 .name = intern(&m->t.names, name),
                                 .class_ = class_,
                                 .start_ns = m->now_ns,
                                 .dur_ns = ns,
                                 .op = m->with_ids ? m->next_op++ : NONE_U32,
                                 .comm = comm });
}

static void kernel(Made *m, const char *name, int64_t ns)
{
    add_span(m, m->compute, SPAN_COMPUTE, name, ns, NONE_U32);
    m->now_ns += ns;
}

/* Runs beside what comes next; the caller moves on. */
static void all_reduce(Made *m, uint64_t bytes, int64_t ns)
{
    Comm c = comm_of(intern(&m->t.names, "all_reduce"));
    c.bytes = bytes;
    add_span(m, m->comm, SPAN_COMM, "all-reduce", ns, timeline_comm(&m->t, c));
}

static void end_step(Made *m, const char *name, int64_t begin_ns)
{
    timeline_span(&m->t, (Span){ .track = m->steps,
                                 .name = intern(&m->t.names, name),
                                 .class_ = SPAN_STEP,
                                 .start_ns = begin_ns,
                                 .dur_ns = m->now_ns - begin_ns,
                                 .op = NONE_U32,
                                 .comm = NONE_U32 });
}

enum { LAYERS = 6, SLOW_LAYER = 3 };

/* Layers of three kernels, an all-reduce beside the last, an optimizer.  One matmul is slower. */
static void add_step(Made *m, const char *name, int64_t slower_ns)
{
    int64_t begin_ns = m->now_ns;
    for (uint32_t i = 0; i < LAYERS; i++) {
        kernel(m, "layernorm_kernel", 10);
        kernel(m, "gemm_a", 100 + (i == SLOW_LAYER ? slower_ns : 0));
        kernel(m, "gelu_kernel", 30);
        if (i == LAYERS - 1) {
            all_reduce(m, 4096, 60);
            m->now_ns += 20;
        }
    }
    m->now_ns += 60;
    kernel(m, "adam_kernel", 40);
    end_step(m, name, begin_ns);
}

static Made made(bool with_ids)
{
    Made m = { .with_ids = with_ids };
    made_rank(&m, 0);
    return m;
}

static bool compare_made(Comparison *c, Made *sim, Made *real, int64_t step, Err *err)
{
    CompareOptions o = { .name = { "sim", "real" }, .step = step, .pairs = true };
    timeline_seal(&sim->t);
    timeline_seal(&real->t);
    return compare(c, &sim->t, &real->t, &o, err);
}

static const CompareClass *class_named(const Comparison *c, const char *name)
{
    for (uint32_t i = 0; i < c->classes_n; i++)
        if (strcmp(c->classes[i].name, name) == 0)
            return &c->classes[i];
    return NULL;
}

static void free_all(Comparison *c, Made *sim, Made *real)
{
    compare_free(c);
    timeline_free(&sim->t);
    timeline_free(&real->t);
}

/* ---- tests ---- */

static void check_is_zero(const Comparison *c)
{
    CHECK_NEAR(100, compare_coverage_pct(c), 0);
    CHECK_NEAR(0, compare_op_error_pct(c), 0);
    CHECK(!c->drift.parts);
    CHECK_INT(0, c->drift.end_ns);
    for (int k = 0; k < COMPARE_SIDES; k++)
        CHECK_INT(0, c->only_n[k]);
    for (uint32_t i = 0; i < c->classes_n; i++) {
        CHECK_INT(c->classes[i].own_ns[COMPARE_SIM], c->classes[i].own_ns[COMPARE_REAL]);
        CHECK_NEAR(0, compare_class_error_pct(&c->classes[i]), 0);
        CHECK(isnan(compare_share_pct(c, &c->classes[i])));
    }
    for (uint32_t i = 0; i < c->ops_n; i++)
        CHECK_INT(c->ops[i].time_ns[COMPARE_SIM], c->ops[i].time_ns[COMPARE_REAL]);
}

static void a_trace_is_like_itself(void)
{
    for (int with_ids = 0; with_ids < 2; with_ids++) {
        Made a = made(with_ids), b = made(with_ids);
        Comparison c = { 0 };
        Err err = { 0 };
        add_step(&a, "0", 0);
        add_step(&b, "0", 0);
        if (CHECK(compare_made(&c, &a, &b, -1, &err))) {
            check_is_zero(&c);
            CHECK((c.ranks[0].paired == PAIRED_OP) == (with_ids != 0));
        }
        free_all(&c, &a, &b);
    }
}

/* The classes of a step sum to it, so the shares sum to 100. */
static void check_sums(const Comparison *c)
{
    for (int k = 0; k < COMPARE_SIDES; k++) {
        int64_t own = 0, steps = 0;
        for (uint32_t i = 0; i < c->classes_n; i++)
            own += c->classes[i].own_ns[k];
        for (uint32_t i = 0; i < c->ranks_n; i++)
            steps += c->ranks[i].times[k].span_ns * c->ranks[i].ranks_n;
        CHECK_INT(steps, own);
    }
}

static void one_slower_op_is_named_by_share_and_drift(void)
{
    for (int with_ids = 0; with_ids < 2; with_ids++) {
        Made a = made(with_ids), b = made(with_ids);
        Comparison c = { 0 };
        Err err = { 0 };
        const int64_t slower = 25;
        add_step(&a, "0", slower);
        add_step(&b, "0", 0);
        if (CHECK(compare_made(&c, &a, &b, -1, &err))) {
            const CompareClass *matmul = class_named(&c, "matmul");
            CHECK_INT(slower, c.times[COMPARE_SIM].span_ns - c.times[COMPARE_REAL].span_ns);
            CHECK_NEAR(100, compare_share_pct(&c, matmul), 1e-12);
            CHECK_NEAR((double)slower * 100 / (LAYERS * 100), compare_class_error_pct(matmul),
                       1e-9);
            CHECK(c.drift.parts);
            CHECK_STR("gemm_a", c.drift.op_name);
            CHECK_INT(SLOW_LAYER * 140 + 10, c.drift.op_start_ns);
            CHECK_INT(slower, c.drift.op_drift_ns);
            CHECK_INT(slower, c.drift.end_ns);
            CHECK_U64(with_ids ? SLOW_LAYER * 3 + 1 : NONE_U32, c.drift.op);
            CHECK_STR("gemm_a", c.ops[0].name[COMPARE_REAL]);
            CHECK_INT(slower, c.ops[0].time_ns[COMPARE_SIM] - c.ops[0].time_ns[COMPARE_REAL]);
            check_sums(&c);
        }
        free_all(&c, &a, &b);
    }
}

static void the_sides_are_equal_partners(void)
{
    Made a = made(false), b = made(false);
    Comparison c = { 0 }, back = { 0 };
    Err err = { 0 };
    add_step(&a, "0", 40);
    kernel(&a, "extra_kernel", 5);
    add_step(&b, "0", 0);
    if (CHECK(compare_made(&c, &a, &b, -1, &err)) &&
        CHECK(compare_made(&back, &b, &a, -1, &err))) {
        CHECK_U64(c.ranks[0].matched_n, back.ranks[0].matched_n);
        CHECK_INT(c.drift.largest_ns, -back.drift.largest_ns);
        CHECK_INT(c.only_n[COMPARE_SIM], back.only_n[COMPARE_REAL]);
    }
    compare_free(&back);
    free_all(&c, &a, &b);
}

static void one_track_stands_for_many_ranks(void)
{
    Made folded = made(true), expanded = { .with_ids = true };
    Comparison c = { 0 };
    Err err = { 0 };
    enum { RANKS = 4 };
    add_step(&folded, "0", 0);
    folded.t.ranks_n = RANKS;
    for (uint32_t i = 0; i < folded.t.tracks_n; i++)
        folded.t.tracks[i].ranks_n = RANKS;
    for (uint32_t r = 0; r < RANKS; r++) {
        made_rank(&expanded, r);
        add_step(&expanded, "0", 0);
    }
    if (CHECK(compare_made(&c, &folded, &expanded, -1, &err))) {
        check_is_zero(&c);
        check_sums(&c);
        CHECK_INT(RANKS, c.ranks_n);
        CHECK_INT(3, c.ranks[3].rank);
        CHECK_INT(0, c.ranks[3].source[COMPARE_SIM]);
        CHECK_INT(0, c.left_out_n[COMPARE_REAL]);
    }
    free_all(&c, &folded, &expanded);
}

/* Kernels of another library, and other ids for the same ops. */
static void names_may_differ(void)
{
    Made a = made(true), b = made(true);
    Comparison c = { 0 };
    Err err = { 0 };
    kernel(&a, "norm1", 10);
    kernel(&a, "attention.qkv", 100);
    kernel(&a, "activation", 20);
    kernel(&b, "void layer_norm_fwd<4>(float*)", 11);
    kernel(&b, "ampere_bf16_s16816gemm_bf16_128x128", 99);
    kernel(&b, "void gelu_kernel<2>(int)", 20);
    if (CHECK(compare_made(&c, &a, &b, -1, &err))) {
        CHECK_INT(PAIRED_OP, c.ranks[0].paired);
        CHECK_U64(3, c.ranks[0].matched_n);
        CHECK_NEAR(100, compare_coverage_pct(&c), 0);
    }
    free_all(&c, &a, &b);
}

/* Kernels of the op that came last. */
static void more_of_it(Made *m, const char *name, int64_t ns)
{
    m->next_op--;
    kernel(m, name, ns);
}

/* What an op launched is one op, of the op's class, with the sum of its kernels' times. */
static void kernels_of_one_op_are_added_up(void)
{
    Made a = made(true), b = made(true);
    Comparison c = { 0 };
    Err err = { 0 };
    kernel(&a, "attention.qkv", 100);
    kernel(&a, "norm1", 30);
    kernel(&a, "optimizer", 20);
    kernel(&b, "memset_kernel", 1); /* of no class that is known */
    more_of_it(&b, "nvjet_sm90_tst_96x128_64x7", 90);
    more_of_it(&b, "void cublasLt::epilogue::impl::globalKernelBgrad<2>(int)", 9);
    kernel(&b, "void norm_back_kernel<4>(Norm)", 20);
    b.now_ns += 5;
    more_of_it(&b, "sums_kernel(Vec)", 7);
    kernel(&b, "step_all(Slices)", 25); /* of no class either: the op's name tells */
    if (CHECK(compare_made(&c, &a, &b, -1, &err))) {
        const CompareClass *norm = class_named(&c, "norm"), *idle = class_named(&c, "idle");
        const CompareClass *optimizer = class_named(&c, "optimizer");
        CHECK_INT(PAIRED_OP, c.ranks[0].paired);
        CHECK_U64(3, c.ranks[0].matched_n);
        CHECK_NEAR(100, compare_coverage_pct(&c), 0);
        CHECK_INT(100, class_named(&c, "matmul")->time_ns[COMPARE_REAL]);
        CHECK(norm && norm->ops_n[COMPARE_REAL] == 1 && norm->time_ns[COMPARE_REAL] == 27);
        CHECK(optimizer && optimizer->matched_n == 1);
        CHECK(!class_named(&c, "other") && !class_named(&c, "reduction"));
        CHECK_INT(5, idle->own_ns[COMPARE_REAL]); /* what lies between two kernels is idle */
        CHECK_INT(-7, c.drift.end_ns);            /* 150 and 157 */
    }
    free_all(&c, &a, &b);
}

/* What a recording says of its ops: names of kernels need not say anything, nor classes agree. */
static void recorded_ops_are_believed_by_their_names(void)
{
    static const char *const ops[] = { "attention.qkv", "norm1", "gradient copy" };
    Made a = made(true), b = made(true), c_ = made(true);
    Comparison c = { 0 };
    Err err = { 0 };
    for (uint32_t i = 0; i < 3; i++) {
        add_span(&a, a.compute, i == 2 ? SPAN_MEMORY : SPAN_COMPUTE, ops[i], 10, NONE_U32);
        a.now_ns += 10;
        kernel(&b, i == 0 ? "void norm_fwd(int)" : "gemm", 12); /* speaks of another class */
        timeline_set_op_name(&b.t, i, intern(&b.t.names, ops[i]));
        kernel(&c_, "gemm", 12);
        timeline_set_op_name(&c_.t, i, intern(&c_.t.names, ops[2 - i]));
    }
    if (CHECK(compare_made(&c, &a, &b, -1, &err))) {
        CHECK_INT(PAIRED_OP, c.ranks[0].paired);
        CHECK_U64(3, c.ranks[0].matched_n);
        CHECK_INT(12, class_named(&c, "matmul")->time_ns[COMPARE_REAL]);
        CHECK_INT(12, class_named(&c, "norm")->time_ns[COMPARE_REAL]);
        CHECK_INT(12, class_named(&c, "memory")->time_ns[COMPARE_REAL]);
    }
    compare_free(&c);
    if (CHECK(compare_made(&c, &a, &c_, -1, &err))) /* ids of another graph */
        CHECK_INT(PAIRED_SEQUENCE, c.ranks[0].paired);
    timeline_free(&c_.t);
    free_all(&c, &a, &b);
}

/* ---- by logical op ---- */

/* A kernel that does logical ops `first` to `last` of an instance. */
static void logical_kernel(Made *m, const char *name, int64_t ns, uint64_t instance,
                           uint32_t first, uint32_t last)
{
    uint32_t ops[8];
    for (uint32_t i = first; i <= last; i++)
        ops[i - first] = i;
    kernel(m, name, ns);
    timeline_set_logical(&m->t, m->t.spans_n - 1,
                         (LogicalOps){ instance, last - first + 1, ops });
}

/* Two stacks: one fuses the bias into the matmul, the other the sum into the norm. */
static void make_stacks(Made *a, Made *b, uint64_t instance)
{
    logical_kernel(a, "gemm", 100, instance, 0, 0);
    logical_kernel(a, "bias", 20, instance, 1, 1);
    logical_kernel(a, "softmax", 7, instance, 5, 5); /* b does no such thing */
    logical_kernel(a, "add_norm", 30, instance, 2, 3);
    logical_kernel(b, "gemm", 110, instance, 0, 1);
    logical_kernel(b, "add", 8, instance, 2, 2);
    logical_kernel(b, "norm", 16, instance, 3, 3);
    logical_kernel(b, "softmax", 7, instance, 6, 6); /* nor a of this */
}

static void what_stacks_fuse_otherwise_is_paired_by_logical_op(void)
{
    Made a = made(true), b = made(true);
    Comparison c = { 0 };
    Err err = { 0 };
    for (uint64_t i = 1; i <= 2; i++) {
        kernel(&b, "other_kernel", 3); /* ids are others from the first on */
        make_stacks(&a, &b, i);
    }
    logical_kernel(&a, "adam_kernel", 50, 3, 0, 0); /* of an instance that b does not know */
    kernel(&b, "adam_kernel", 51);
    if (!CHECK(compare_made(&c, &a, &b, -1, &err)))
        return;
    CHECK_INT(PAIRED_LOGICAL, c.ranks[0].paired);
    CHECK_U64(5, c.ranks[0].matched_n);
    const CompareClass *matmul = class_named(&c, "matmul"), *norm = class_named(&c, "norm");
    CHECK_U64(2, matmul->ops_n[COMPARE_SIM]);
    CHECK_INT(2 * 120, matmul->time_ns[COMPARE_SIM]);
    CHECK_INT(2 * 110, matmul->matched_ns[COMPARE_REAL]);
    CHECK_INT(2 * 30, norm->time_ns[COMPARE_SIM]);
    CHECK_INT(2 * 24, norm->time_ns[COMPARE_REAL]); /* sum and norm: of the class of the one */
    CHECK_INT(0, class_named(&c, "softmax")->matched_ns[COMPARE_REAL]);
    CHECK_INT(51, class_named(&c, "optimizer")->matched_ns[COMPARE_REAL]);
    int64_t own_ns[COMPARE_SIDES] = { 0 };
    for (uint32_t i = 0; i < c.classes_n; i++)
        for (int k = 0; k < COMPARE_SIDES; k++)
            own_ns[k] += c.classes[i].own_ns[k]; /* all kernels of a pair are its */
    CHECK_INT(2 * 157 + 50, own_ns[COMPARE_SIM]);
    CHECK_INT(2 * 144 + 51, own_ns[COMPARE_REAL]);
    free_all(&c, &a, &b);
}

/* Kernels of two sides that all belong together. */
static void share_ops(Made *a, Made *b)
{
    logical_kernel(a, "gemm_x", 10, 4, 0, 1);
    logical_kernel(a, "gemm_y", 11, 4, 2, 3);
    logical_kernel(b, "gemm_z", 12, 4, 0, 0);
    logical_kernel(b, "gemm_z", 13, 4, 1, 2);
    logical_kernel(b, "gemm_z", 14, 4, 3, 3);
    logical_kernel(b, "gemm_z", 15, 4, 3, 3);
}

/* One logical op in several kernels, which others share on the other side: all are one. */
static void ops_joined_by_way_of_others_are_one_pair(void)
{
    Made a = made(false), b = made(false);
    Comparison c = { 0 };
    Err err = { 0 };
    share_ops(&a, &b);
    if (CHECK(compare_made(&c, &a, &b, -1, &err))) {
        CHECK_U64(1, c.ranks[0].matched_n);
        CHECK_INT(21, c.ranks[0].matched_ns[COMPARE_SIM]);
        CHECK_INT(54, c.ranks[0].matched_ns[COMPARE_REAL]);
    }
    free_all(&c, &a, &b);
}

/* Which kernels are named, by their times; and what all of them say. */
static void every_kernel_of_a_pair_knows_the_whole(void)
{
    static const int64_t named[][COMPARE_SIDES] = {
        /* sim, real; the longer one of sim, then the one that none of real names */
        { 11, 12 },
        { 11, 13 },
        { 11, 14 },
        { 11, 15 },
        { 10, 15 }
    };
    Made a = made(false), b = made(false);
    Comparison c = { 0 };
    Err err = { 0 };
    share_ops(&a, &b);
    if (CHECK(compare_made(&c, &a, &b, -1, &err)) &&
        CHECK_U64(ARRAY_N(named), c.ranks[0].pairs_n))
        for (uint32_t i = 0; i < c.ranks[0].pairs_n; i++) {
            const ComparePair *pair = &c.ranks[0].pairs[i];
            CHECK_INT(named[i][COMPARE_SIM], a.t.dur_ns[pair->span[COMPARE_SIM]]);
            CHECK_INT(named[i][COMPARE_REAL], b.t.dur_ns[pair->span[COMPARE_REAL]]);
            CHECK_INT(10 + 11, pair->time_ns[COMPARE_SIM]);
            CHECK_INT(12 + 13 + 14 + 15, pair->time_ns[COMPARE_REAL]);
            CHECK_INT(a.now_ns, pair->end_ns[COMPARE_SIM]);
            CHECK_INT(b.now_ns, pair->end_ns[COMPARE_REAL]);
        }
    free_all(&c, &a, &b);
}

/* Of another model: the same numbers, of instances with other keys. */
static void logical_ops_of_another_model_are_not_paired(void)
{
    Made a = made(false), b = made(false);
    Comparison c = { 0 };
    Err err = { 0 };
    for (uint32_t i = 0; i < 4; i++) {
        logical_kernel(&a, i % 2 ? "gemm" : "norm", 10, 5, i, i);
        logical_kernel(&b, i % 2 ? "norm" : "gemm", 10, 6, i, i);
    }
    if (CHECK(compare_made(&c, &a, &b, -1, &err))) {
        CHECK_INT(PAIRED_SEQUENCE, c.ranks[0].paired);
        CHECK_U64(3, c.ranks[0].matched_n); /* the longest sequence that both have */
    }
    free_all(&c, &a, &b);
}

/* The class of every kernel that our executor has, where its name alone must say it. */
static void our_own_kernels_have_classes(void)
{
    static const char *const kernels[][2] = {
        { "update_kernel(Slices, Rule, Rates const*)", "optimizer" },
        { "squares_kernel(Slices, double*)", "optimizer" },
        { "squares_end_kernel(double*)", "optimizer" },
        { "void forward_kernel<64, true>(Attention)", "attention" },
        { "void queries_kernel<64, true>(Attention)", "attention" },
        { "void keys_kernel<64, true>(Attention)", "attention" },
        { "along_kernel(Attention)", "attention" },
        { "embed_kernel(Table, long const*, Vec, Vec, bool)", "embedding" },
        { "embed_back_places_kernel(Table, Vec, Vec, bool)", "embedding" },
        { "cross_entropy_kernel(Logits, Vec, long const*, double*)", "loss" },
        { "logits_sums_kernel(Logits, Vec)", "loss" },
        { "loss_kernel(double const*, unsigned long long, Loss)", "loss" },
        { "mse_back_kernel(Vec, Vec)", "loss" },
        { "void norm_back_kernel<4>(Norm, NormBackArgs, unsigned long long)", "norm" },
        { "batch_dx_kernel(Batch)", "norm" },
        { "void softmax_kernel<4>(Softmax)", "softmax" },
        { "activation_back_kernel(Activation, Vec, Vec, Vec)", "elementwise" },
        { "add_kernel(Vec, Vec, Vec, Vec, unsigned long long)", "elementwise" },
        { "rope_kernel(Rope, Vec)", "elementwise" },
        { "sums_kernel(Vec, unsigned long long)", "reduction" },
        { "nvjet_sm90_tst_96x128_64x6_2x1_v_bz_NNN", "matmul" },
        { "void cublasLt::epilogue::impl::globalKernelBgradAB<8, 4>(int)", "matmul" },
    };
    for (size_t i = 0; i < ARRAY_N(kernels); i++) {
        Made a = made(false), b = made(false);
        Comparison c = { 0 };
        Err err = { 0 };
        kernel(&a, kernels[i][0], 10);
        kernel(&b, kernels[i][0], 10);
        if (CHECK(compare_made(&c, &a, &b, -1, &err)))
            CHECK_STR(kernels[i][1], c.classes[0].name);
        free_all(&c, &a, &b);
    }
}

/* An op more at the front shifts every id: ids are not to be believed then. */
static void shifted_ids_are_seen_through(void)
{
    Made a = made(true), b = made(true);
    Comparison c = { 0 };
    Err err = { 0 };
    kernel(&a, "fill_kernel", 1);
    add_step(&a, "0", 0);
    add_step(&b, "0", 0);
    if (CHECK(compare_made(&c, &a, &b, -1, &err))) {
        CHECK_INT(PAIRED_SEQUENCE, c.ranks[0].paired);
        CHECK_NEAR(100, compare_coverage_pct(&c), 0);
        CHECK_INT(0, c.only_n[COMPARE_REAL]);
    }
    free_all(&c, &a, &b);
}

static void the_median_step_is_taken_unless_one_is_asked_for(void)
{
    Made a = made(false), b = made(false);
    Comparison c = { 0 };
    Err err = { 0 };
    add_step(&a, "0", 0);
    add_step(&b, "ProfilerStep#7", 500); /* warming up */
    add_step(&b, "ProfilerStep#8", 20);
    add_step(&b, "ProfilerStep#9", 30);
    if (CHECK(compare_made(&c, &a, &b, -1, &err))) {
        CHECK_INT(9, c.step[COMPARE_REAL]);
        CHECK_INT(3, c.steps_n[COMPARE_REAL]);
        CHECK_INT(-30, c.drift.end_ns);
        CHECK_INT(0, c.only_n[COMPARE_REAL] + c.only_n[COMPARE_SIM]);
    }
    compare_free(&c);
    if (CHECK(compare_made(&c, &a, &b, 7, &err)))
        CHECK_INT(-500, c.drift.end_ns);
    compare_free(&c);
    CHECK(!compare_made(&c, &a, &b, 4, &err));
    CHECK_ERR_TEXT(&err, "'real' has no step 4, 7 to 9 are there");
    free_all(&c, &a, &b);
}

static void check_fails(Made *a, Made *b, const char *text)
{
    Comparison c = { 0 };
    Err err = { 0 };
    CHECK(!compare_made(&c, a, b, -1, &err));
    CHECK_ERR_TEXT(&err, text);
    free_all(&c, a, b);
}

static void what_cannot_be_compared_is_said(void)
{
    Made a = made(false), b = made(false);
    add_step(&a, "0", 0);
    end_step(&b, "0", 0);
    check_fails(&a, &b, "'real' has no GPU work, nothing can be compared");

    a = made(false);
    b = (Made){ 0 };
    made_rank(&b, 5);
    add_step(&a, "0", 0);
    add_step(&b, "0", 0);
    check_fails(&a, &b, "no rank is in both: 'sim' has rank 0, 'real' has rank 5");

    a = made(false);
    b = made(false);
    kernel(&a, "layernorm_kernel", 10);
    kernel(&b, "maxpool_kernel", 10);
    check_fails(&a, &b,
                "'sim' and 'real' have no operation in common, are they of one program?");
}

static void thresholds_are_found_by_their_path(void)
{
    Made a = made(true), b = made(true);
    Comparison c = { 0 };
    Err err = { 0 };
    char crossed[COMPARE_TEXT_CAP];
    double value;
    add_step(&a, "0", 25);
    add_step(&b, "0", 0);
    if (CHECK(compare_made(&c, &a, &b, -1, &err))) {
        CHECK(compare_value(&c, "step_time.sim_ns", &value, &err));
        CHECK_NEAR((double)c.times[COMPARE_SIM].span_ns, value, 0);
        CHECK(compare_value(&c, "classes.matmul.error_pct", &value, &err));
        CHECK_NEAR(100 * 25.0 / 600, value, 1e-9);
        CHECK(compare_value(&c, "coverage_pct", &value, &err));
        CHECK_NEAR(100, value, 0);
        CHECK(compare_gate(&c, "step_time>1%, coverage_pct<50", crossed, &err));
        CHECK(strncmp(crossed, "step_time is ", 13) == 0);
        CHECK(compare_gate(&c, "step_time > 3 %,coverage_pct<100", crossed, &err));
        CHECK_STR("", crossed);
        CHECK(compare_gate(&c, "overlap.error_points>0.5", crossed, &err));
        CHECK_STR("", crossed);
        CHECK(!compare_gate(&c, "classes.bogus>1", crossed, &err));
        CHECK_ERR_TEXT(&err, "the classes here are matmul, elementwise");
    }
    free_all(&c, &a, &b);
}

static void wrong_thresholds_are_refused(void)
{
    static const char *const wrong[][2] = {
        { "", "METRIC>NUMBER" },
        { "step_time", "METRIC>NUMBER" },
        { ">5", "METRIC>NUMBER" },
        { "step_time>x", "'x' is not a number" },
        { "step_time>5ms", "'5ms' is not a number" },
        { "step_time>inf", "'inf' is not a number" },
        { "step_time>5,", "METRIC>NUMBER" },
        { "speed>5", "knows no 'speed'" },
        { "step_time.bogus>5", "knows no 'step_time.bogus'" },
    };
    for (size_t i = 0; i < ARRAY_N(wrong); i++) {
        Err err = { 0 };
        CHECK(!compare_gate_check(wrong[i][0], &err));
        CHECK_ERR_TEXT(&err, wrong[i][1]);
    }
    Err err = { 0 };
    CHECK(
        compare_gate_check("step_time.error_pct>5%,classes.matmul<3,overlap.sim_pct<1", &err));
}

int main(void)
{
    RUN(a_trace_is_like_itself);
    RUN(one_slower_op_is_named_by_share_and_drift);
    RUN(the_sides_are_equal_partners);
    RUN(one_track_stands_for_many_ranks);
    RUN(names_may_differ);
    RUN(kernels_of_one_op_are_added_up);
    RUN(what_stacks_fuse_otherwise_is_paired_by_logical_op);
    RUN(ops_joined_by_way_of_others_are_one_pair);
    RUN(every_kernel_of_a_pair_knows_the_whole);
    RUN(logical_ops_of_another_model_are_not_paired);
    RUN(recorded_ops_are_believed_by_their_names);
    RUN(our_own_kernels_have_classes);
    RUN(shifted_ids_are_seen_through);
    RUN(the_median_step_is_taken_unless_one_is_asked_for);
    RUN(what_cannot_be_compared_is_said);
    RUN(thresholds_are_found_by_their_path);
    RUN(wrong_thresholds_are_refused);
    return check_report();
}
