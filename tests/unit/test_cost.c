/*
 * test_cost.c - kernel times: closed forms on ideal, bounds everywhere, and how far
 * model and table are from what was measured (printed, and held to honest limits).
 */
#include "core/quantile.h"
#include "sim/cost.h"
#include "sim/cost_parts.h"
#include "sim/network.h"

#include <dirent.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"

static const Gpu *load_json(Arena *arena, const char *text)
{
    Err err = { 0 };
    JsonDoc *doc = json_parse(text, strlen(text), "t.json", &err);
    const Gpu *g = gpu_read(arena, json_root(doc), "scenarios", &err);
    if (!CHECK(g != NULL))
        fprintf(stderr, "    %s\n", err.text);
    json_close(doc);
    return g;
}

static const Gpu *load(Arena *arena, const char *name)
{
    char text[100];
    snprintf(text, sizeof text, "\"%s\"", name);
    return load_json(arena, text);
}

/* The built-in GPUs, one after another. */
static uint32_t all_gpus(Arena *arena, const Gpu **gpus, uint32_t max)
{
    uint32_t n = 0;
    DIR *dir = opendir("scenarios/gpus");
    for (struct dirent *e = dir ? readdir(dir) : NULL; e && n < max; e = readdir(dir)) {
        char name[256];
        size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 5, ".json") != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)len - 5, e->d_name);
        gpus[n++] = load(arena, name);
    }
    if (dir)
        closedir(dir);
    return n;
}

static Op matmul_op(uint64_t m, uint64_t n, uint64_t k, DType dtype)
{
    uint64_t b = dtype_bytes(dtype);
    return (Op){ .kind = OP_MATMUL,
                 .dtype = dtype,
                 .u.matmul = { .m = m, .n = n, .k = k, .batch = 1, .transpose_b = true },
                 .flops = 2.0 * (double)m * (double)n * (double)k,
                 .read_bytes = b * (m * k + k * n),
                 .write_bytes = b * m * n };
}

static Op attention_op(uint64_t batch, uint64_t heads, uint64_t seq, uint64_t dim, bool causal,
                       bool backward)
{
    uint64_t part = 2 * batch * heads * seq * dim;
    return (Op){ .kind = OP_ATTENTION,
                 .phase = backward ? PHASE_DGRAD : PHASE_FORWARD,
                 .dtype = DTYPE_BF16,
                 .u.attention = { .batch = batch,
                                  .heads = heads,
                                  .kv_heads = heads,
                                  .seq_q = seq,
                                  .seq_k = seq,
                                  .head_dim = dim,
                                  .causal = causal },
                 .flops = (backward ? 10.0 : 4.0) * (double)(batch * heads * dim) *
                          (double)seq * (double)seq * (causal ? 0.5 : 1),
                 .read_bytes = part * (backward ? 5 : 3),
                 .write_bytes = part * (backward ? 3 : 1) };
}

static Op memory_op(OpKind kind, uint64_t bytes)
{
    return (Op){ .kind = kind,
                 .dtype = DTYPE_BF16,
                 .u.elements = bytes / 4,
                 .read_bytes = bytes / 2,
                 .write_bytes = bytes - bytes / 2 };
}

/* ---- closed forms ---- */

static void ideal_is_flops_over_peak_or_bytes_over_bandwidth(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "ideal");
    /* 2 * 1000^3 flops at 10^6 flop/ns = 2000 ns; 3 * 2 * 10^6 bytes at 1000/ns = 6000 ns. */
    Op thin = matmul_op(1000, 1000, 1000, DTYPE_BF16);
    CHECK_INT(6000, op_cost(g, &thin, NULL).alone_ns);
    /* 2 * 10000^3 flops = 2 * 10^6 ns; 6 * 10^8 bytes = 6 * 10^5 ns. */
    Op fat = matmul_op(10000, 10000, 10000, DTYPE_F16);
    CHECK_INT(2000000, op_cost(g, &fat, NULL).alone_ns);
    Op one = matmul_op(1, 1, 1, DTYPE_F32);
    CHECK_INT(1, op_cost(g, &one, NULL).alone_ns); /* 12 bytes: never below the bound */
    Op add = memory_op(OP_ADD, 3000000);
    CHECK_INT(3000, op_cost(g, &add, NULL).alone_ns);
    Op ages = { .kind = OP_OPTIMIZER, .dtype = DTYPE_F32, .u.elements = 1, .flops = 1e40 };
    CHECK_INT(NS_MAX, op_cost(g, &ages, NULL).alone_ns); /* more than a step may take */
    Op attention = attention_op(2, 16, 4096, 128, true, false);
    CHECK_NEAR(attention.flops / 1e6, (double)op_cost(g, &attention, NULL).alone_ns, 1e-6);
    Op copy = memory_op(OP_H2D, 4000000);
    CHECK_INT(4000, op_cost(g, &copy, NULL).alone_ns);
    OpCost cost = op_cost(g, &fat, NULL);
    CHECK_INT(cost.alone_ns, cost.slowed_ns);
    arena_free(&arena);
}

static void what_is_no_kernel_costs_nothing(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "a100-80gb");
    CHECK_INT(0, op_cost(g, &(Op){ .kind = OP_RELEASE }, NULL).alone_ns);
    CHECK_INT(0, op_cost(g, &(Op){ .kind = OP_HOST_WAIT }, NULL).alone_ns);
    arena_free(&arena);
}

static void a_kernel_that_does_nothing_takes_the_floor(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "a100-80gb");
    for (OpKind k = OP_NORM; k < OP_H2D; k++)
        if (k != OP_CONV)
            CHECK_INT(g->kernel_floor_ns, op_cost(g, &(Op){ .kind = k }, NULL).alone_ns);
    arena_free(&arena);
}

static void compute_scale_multiplies_but_not_below_the_bound(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "h100-80gb");
    Op op = matmul_op(8192, 8192, 8192, DTYPE_BF16);
    double alone = (double)op_cost(g, &op, &(Software){ .compute_scale = 1 }).alone_ns;
    CHECK(g->sustained_scale > 1);
    CHECK_STR("nemo-2025", g->sustained_from);
    CHECK_NEAR(g->sustained_scale * (double)op_cost(g, &op, NULL).alone_ns, alone, 1e-5);
    CHECK_NEAR(2 * alone, (double)op_cost(g, &op, &(Software){ .compute_scale = 2 }).alone_ns,
               1e-5);
    CHECK_NEAR(op_flops_bound_ns(g, &op),
               (double)op_cost(g, &op, &(Software){ .compute_scale = 0.01 }).alone_ns, 1e-5);
    arena_free(&arena);
}

/* GPT-2's head: 50257 was measured, and is several times slower; twice as many rows of 50304 were
 * not, and take twice as long. */
static void odd_rows_say_nothing_of_aligned_ones(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "h200-141gb");
    Op odd = matmul_op(8192, 50257, 768, DTYPE_BF16),
       even = matmul_op(8192, 50304, 768, DTYPE_BF16);
    Op more = matmul_op(16384, 50304, 768, DTYPE_BF16);
    odd.u.matmul.transpose_b = even.u.matmul.transpose_b = more.u.matmul.transpose_b = true;
    double ns = (double)op_cost(g, &even, NULL).alone_ns;
    CHECK((double)op_cost(g, &odd, NULL).alone_ns > 5 * ns);
    CHECK_NEAR(2 * ns, (double)op_cost(g, &more, NULL).alone_ns, 0.1);
    CHECK_INT(16, gemm_alignment(GEMM_NT, DTYPE_BF16, 768, 3072, 50257));
    CHECK_INT(2, gemm_alignment(GEMM_NT, DTYPE_BF16, 50257, 768, 8192));
    CHECK_INT(16, gemm_alignment(GEMM_TN, DTYPE_F32, 1, 100, 4));
    CHECK_INT(8, gemm_alignment(GEMM_TN, DTYPE_F16, 8, 100, 8));
    CHECK_INT(4, gemm_alignment(GEMM_TN, DTYPE_BF16, 1, 1024, 30522));
    CHECK_INT(8, gemm_alignment(GEMM_NN, DTYPE_FP8, 16, 16, 8));
    arena_free(&arena);
}

/* A head of so many tokens: vocabularies that are odd, twice, four and eight times something. */
static void shorter_alignment_costs_more_whatever_was_measured_nearby(void)
{
    Arena arena = { 0 };
    static const char *const gpus[] = { "a100-80gb", "h100-80gb", "h200-141gb", "b200-180gb" };
    for (size_t i = 0; i < ARRAY_N(gpus); i++)
        for (uint64_t tokens = 512; tokens <= 65536; tokens *= 2) {
            const Gpu *g = load(&arena, gpus[i]);
            int64_t ns[4];
            for (uint32_t a = 0; a < 4; a++) {
                static const uint64_t vocab[] = { 50257, 50258, 50260, 50264 };
                Op head = matmul_op(tokens, vocab[a], 1600, DTYPE_BF16);
                head.u.matmul.transpose_b = true;
                ns[a] = op_cost(g, &head, NULL).alone_ns;
                CHECK(a == 0 || ns[a] < ns[a - 1]);
            }
            CHECK(ns[0] > 2 * ns[3] && ns[0] < 10 * ns[3]);
        }
    arena_free(&arena);
}

static void no_other_rows_are_needed_where_they_are_padded(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "h100-80gb");
    const Software pads = { .compute_scale = 1, .pads_matmuls = true },
                   not = { .compute_scale = 1 };
    Op odd = matmul_op(8192, 768, 50257, DTYPE_BF16),
       even = matmul_op(8192, 768, 50264, DTYPE_BF16);
    CHECK_INT(op_cost(g, &even, &not ).alone_ns, op_cost(g, &odd, &pads).alone_ns);
    CHECK(op_cost(g, &odd, &not ).alone_ns > 2 * op_cost(g, &odd, &pads).alone_ns);
    CHECK_INT(op_cost(g, &even, &not ).alone_ns, op_cost(g, &even, &pads).alone_ns);
    Op patches = matmul_op(802816, 64, 147, DTYPE_F16),
       filled = matmul_op(802816, 64, 152, DTYPE_F16);
    patches.kind = filled.kind = OP_CONV;
    CHECK_INT(op_cost(g, &filled, NULL).alone_ns, op_cost(g, &patches, NULL).alone_ns);
    arena_free(&arena);
}

/* The expected greatest of n normal numbers, from tables (Harter 1961): 1.42360 of 8, 2.50759 of
 * 100, 3.24144 of 1,000. */
static void a_step_waits_for_the_slowest_of_its_gpus(void)
{
    Gpu g = { .sustained_scale = 1.1, .sustained_spread = 0.1 };
    CHECK_NEAR(1.1, sustained_among(&g, 1), 0);
    CHECK_NEAR(1.1 * 1.142360, sustained_among(&g, 8), 2e-3);
    CHECK_NEAR(1.1 * 1.250759, sustained_among(&g, 100), 2e-3);
    CHECK_NEAR(1.1 * 1.324144, sustained_among(&g, 1000), 2e-3);
    g.sustained_spread = 0;
    CHECK_NEAR(1.1, sustained_among(&g, 1000), 0);
}

static void memory_keeps_its_clock_under_load(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "h100-80gb");
    Software sw = { .compute_scale = 1, .attention_kernel = ATTENTION_FLASH2 };
    CHECK_NEAR(g->sustained_scale, op_scale(g, &(Op){ .kind = OP_MATMUL }, &sw), 0);
    CHECK_NEAR(g->sustained_scale, op_scale(g, &(Op){ .kind = OP_CONV }, &sw), 0);
    for (OpKind k = OP_NORM; k <= OP_H2D; k++)
        if (k != OP_CONV)
            CHECK_NEAR(1, op_scale(g, &(Op){ .kind = k }, &sw), 0);
    arena_free(&arena);
}

/* ---- bounds ---- */

static void check_bounds(const Gpu *g, const Op *op)
{
    OpCost cost = op_cost(g, op, NULL);
    double least = fmax(op_flops_bound_ns(g, op), op_memory_bound_ns(g, op));
    bool fine = (double)cost.alone_ns >= least * (1 - 1e-9) && cost.slowed_ns >= cost.alone_ns;
    if (!CHECK(fine))
        fprintf(stderr, "    %s: kind %d m %" PRIu64 ": %" PRId64 " and %" PRId64 " ns, %g\n",
                g->name, (int)op->kind, op->u.matmul.m, cost.alone_ns, cost.slowed_ns, least);
}

static uint64_t random_dim(uint64_t *seed, unsigned bits)
{
    uint64_t x = *seed = mix_u64(*seed);
    unsigned shift = 64 - 1 - (unsigned)(mix_u64(x) % bits);
    return (x >> shift) + 1;
}

static void nothing_is_faster_than_the_bounds(void)
{
    Arena arena = { 0 };
    const Gpu *gpus[40];
    uint32_t n = all_gpus(&arena, gpus, 40);
    uint64_t seed = 1;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < 300; r++) {
            DType t = (DType)(mix_u64(seed + r) % DTYPE_N);
            Op op = matmul_op(random_dim(&seed, 20), random_dim(&seed, 18),
                              random_dim(&seed, 18), t);
            op.u.matmul.transpose_a = r % 2;
            op.u.matmul.accumulate = r % 4 == 1;
            check_bounds(gpus[i], &op);
            Op attention =
                attention_op(random_dim(&seed, 4), random_dim(&seed, 7), random_dim(&seed, 16),
                             random_dim(&seed, 8), r % 2, r % 4 > 1);
            check_bounds(gpus[i], &attention);
            for (OpKind k = OP_SOFTMAX; k <= OP_H2D; k++)
                if (k != OP_CONV) {
                    Op moves = memory_op(k, random_dim(&seed, 34));
                    check_bounds(gpus[i], &moves);
                }
        }
    arena_free(&arena);
}

/* Shapes at the edges: no overflow, no NaN (which would round to anything). */
static void the_largest_and_smallest_shapes_have_a_time(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "h100-80gb");
    static const uint64_t dims[] = { 1, 7, 100000, (uint64_t)1 << 40 };
    for (size_t a = 0; a < 4; a++)
        for (size_t b = 0; b < 4; b++)
            for (size_t c = 0; c < 4; c++) {
                MatmulShape s = { .m = dims[a], .n = dims[b], .k = dims[c], .batch = 3 };
                double ns = matmul_model_ns(g, &s, DTYPE_BF16);
                CHECK(isfinite(ns) && ns > 0);
            }
    arena_free(&arena);
}

static void rows_below_the_bound_are_lifted_to_it(void)
{
    Arena arena = { 0 };
    const Gpu *gpus[40];
    uint32_t n = all_gpus(&arena, gpus, 40), rows = 0, lifted = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < gpus[i]->gemm_n; r++) {
            const GemmRow *row = &gpus[i]->gemm[r];
            Op op = matmul_op(row->m, row->n, row->k, row->dtype);
            check_bounds(gpus[i], &op);
            rows++;
            lifted += row->time_ns < op_memory_bound_ns(gpus[i], &op) ||
                      row->time_ns < op_flops_bound_ns(gpus[i], &op);
        }
    printf("  %u of %u measured matmuls are faster than the data sheet allows\n",
           (unsigned)lifted, (unsigned)rows);
    CHECK(lifted * 100 < rows);
    arena_free(&arena);
}

/* ---- matmuls against measurements ---- */

static void a_measured_shape_gives_its_measurement_back(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "a100-80gb");
    for (uint32_t i = 1; i + 1 < g->gemm_n; i++) {
        const GemmRow *r = &g->gemm[i];
        bool alone = r->m != r[1].m && (r->m != r[-1].m || r->k != r[-1].k || r->n != r[-1].n);
        if (!alone || r->layout != GEMM_TN)
            continue;
        MatmulShape s = { .m = r->m, .n = r->n, .k = r->k, .batch = 1, .transpose_b = true };
        double ns = 0;
        CHECK(matmul_table_ns(g, &s, DTYPE_BF16, &ns));
        CHECK_NEAR(r->time_ns, ns, 1e-9);
    }
    arena_free(&arena);
}

/* What if this GPU had twice the memory bandwidth, or twice of everything?  Rows are of the GPU as
 * it is. */
static void rows_are_of_the_gpu_they_were_measured_on(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "h100-80gb");
    const Gpu *same = load_json(&arena, "{\"base\":\"h100-80gb\",\"launch_us\":1}");
    const Gpu *wide = load_json(&arena, "{\"base\":\"h100-80gb\",\"memory_GBps\":6700}");
    const Gpu *twice = load_json(&arena, "{\"base\":\"h100-80gb\",\"memory_GBps\":6700,"
                                         "\"peak_tflops\":{\"bf16\":1978.8,\"f16\":1978.8}}");
    CHECK(g->gemm_n > 100 && !g->measured[GPU_ROWS_GEMM] && twice->measured[GPU_ROWS_GEMM]);
    for (uint32_t i = 0; i < g->gemm_n; i++) {
        const GemmRow *r = &g->gemm[i];
        Op op = matmul_op(r->m, r->n, r->k, DTYPE_BF16);
        double ns[4] = { 0 };
        const Gpu *of[4] = { g, same, wide, twice };
        for (int k = 0; k < 4; k++)
            CHECK(matmul_table_ns(of[k], &op.u.matmul, DTYPE_BF16, &ns[k]));
        CHECK(ns[1] == ns[0]);
        CHECK(ns[2] <= ns[0] * (1 + 1e-12));
        CHECK(ns[3] < ns[0] && ns[3] > 0.49 * ns[0]);
    }
    for (int k = 0; k < MEMORY_KERNEL_N; k++) {
        double bytes = 1e9, ns = memory_ns(g, (MemoryKernel)k, bytes);
        CHECK_NEAR(ns, memory_ns(same, (MemoryKernel)k, bytes), 0);
        CHECK_NEAR(2, ns / memory_ns(wide, (MemoryKernel)k, bytes), 0.05);
    }
    Op attention = attention_op(1, 32, 8192, 128, true, false);
    double ratio = attention_ns(g, &attention, ATTENTION_NEWEST, g->sms, 1e9) /
                   attention_ns(twice, &attention, ATTENTION_NEWEST, g->sms, 1e9);
    CHECK_NEAR(2, ratio, 0.1);
    arena_free(&arena);
}

static void a_layer_that_completes_another_is_no_other_gpu(void)
{
    Arena arena = { 0 };
    static const char rows[] =
        "\"kernels\":{\"gemm\":[{\"source\":\"s\",\"columns\":[\"m\",\"n\","
        "\"k\",\"dtype\",\"layout\",\"time_us\"],\"rows\":"
        "[[4096,4096,4096,\"f16\",\"TN\",500]]}]}";
    static const char sheet[] = "\"peak_tflops\":{\"f16\":312},\"memory_GBps\":2000,"
                                "\"memory_GB\":80,\"sms\":108,\"generation\":\"ampere\"";
    char part[400], whole[600], path[] = P_tmpdir "/lockstep-gpu-XXXXXX";
    int fd = mkstemp(path);
    snprintf(part, sizeof part, "{%s}", rows);
    CHECK(fd >= 0 && write(fd, part, strlen(part)) == (ssize_t)strlen(part) && close(fd) == 0);
    char json[80];
    snprintf(json, sizeof json, "%s.json", path);
    CHECK(rename(path, json) == 0);
    snprintf(whole, sizeof whole, "{\"base\":\"%s\",%s}", json, sheet);
    const Gpu *completed = load_json(&arena, whole);
    remove(json);
    snprintf(whole, sizeof whole, "{%s,%s}", rows, sheet);
    const Gpu *once = load_json(&arena, whole);
    Op square = matmul_op(4096, 4096, 2048, DTYPE_F16);
    double a, b;
    CHECK(matmul_table_ns(completed, &square.u.matmul, DTYPE_F16, &a));
    CHECK(matmul_table_ns(once, &square.u.matmul, DTYPE_F16, &b));
    CHECK_NEAR(b, a, 1e-12);
    arena_free(&arena);
}

static void shapes_far_from_all_rows_are_left_to_the_model(void)
{
    Arena arena = { 0 };
    const Gpu *a100 = load(&arena, "a100-80gb"), *l40s = load(&arena, "l40s");
    double ns;
    MatmulShape near_ = { .m = 2048, .n = 5000, .k = 4000, .batch = 1 },
                tiny = { .m = 16, .n = 16, .k = 16, .batch = 1 }, batched = near_;
    batched.batch = 8;
    CHECK(matmul_table_ns(a100, &near_, DTYPE_F16, &ns));
    CHECK(!matmul_table_ns(a100, &near_, DTYPE_F32, &ns));
    CHECK(!matmul_table_ns(a100, &tiny, DTYPE_F16, &ns));
    CHECK(!matmul_table_ns(a100, &batched, DTYPE_F16, &ns));
    CHECK(!matmul_table_ns(l40s, &near_, DTYPE_F16, &ns));
    arena_free(&arena);
}

typedef struct Errors {
    double *of;
    uint32_t n, cap;
} Errors;

static void errors_add(Errors *e, double got, double expect)
{
    GROW(e->of, e->n, e->cap);
    e->of[e->n++] = 100 * fabs(got / expect - 1);
}

static double errors_at(Errors *e, double part)
{
    if (e->n == 0)
        return 0;
    sort_doubles(e->of, e->n);
    return e->of[(uint32_t)(part * (e->n - 1))];
}

/*
 * The GPU without rows [first, end), which lie in group g: the group becomes the
 * two halves on either side; with all, the whole group goes.
 */
static Gpu without(const Gpu *gpu, GemmGroup *groups, uint32_t g, uint32_t first, uint32_t end,
                   bool all)
{
    Gpu left = *gpu;
    memcpy(groups, gpu->gemm_groups, gpu->gemm_groups_n * sizeof *groups);
    uint32_t group_end = groups[g].first + groups[g].count;
    groups[gpu->gemm_groups_n] = groups[g];
    groups[g].count = all ? 0 : first - groups[g].first;
    groups[gpu->gemm_groups_n].first = end;
    groups[gpu->gemm_groups_n].count = all ? 0 : group_end - end;
    left.gemm_groups = groups;
    left.gemm_groups_n = gpu->gemm_groups_n + 1;
    return left;
}

static MatmulShape shape_of(const GemmRow *r)
{
    return (MatmulShape){ .m = r->m,
                          .n = r->n,
                          .k = r->k,
                          .batch = 1,
                          .transpose_a = r->layout >= GEMM_NT,
                          .transpose_b = r->layout == GEMM_TN,
                          .accumulate = r->layout == GEMM_NT_ACCUMULATE };
}

/* Model alone; the table when the shape was left out; when all of its (n, k) was. */
static void measure(const Gpu *gpu, DType class_, Errors *model, Errors *shape, Errors *group)
{
    GemmGroup *groups = mem_zero(gpu->gemm_groups_n + 1, sizeof *groups);
    for (uint32_t g = 0; g < gpu->gemm_groups_n; g++) {
        uint32_t end = gpu->gemm_groups[g].first + gpu->gemm_groups[g].count, to;
        if (gpu->gemm_groups[g].dtype != class_)
            continue;
        for (uint32_t i = gpu->gemm_groups[g].first; i < end; i = to) {
            for (to = i; to < end && gpu->gemm[to].m == gpu->gemm[i].m; to++)
                ;
            for (uint32_t r = i; r < to; r++) {
                const GemmRow *row = &gpu->gemm[r];
                MatmulShape s = shape_of(row);
                double ns;
                errors_add(model, matmul_model_ns(gpu, &s, row->dtype), row->time_ns);
                Gpu left = without(gpu, groups, g, i, to, false);
                if (matmul_table_ns(&left, &s, row->dtype, &ns))
                    errors_add(shape, ns, row->time_ns);
                left = without(gpu, groups, g, i, to, true);
                if (matmul_table_ns(&left, &s, row->dtype, &ns))
                    errors_add(group, ns, row->time_ns);
            }
        }
    }
    free(groups);
}

/* Limits a little above what is reached, so that a change for the worse is seen. */
static void measured_matmuls_are_predicted_when_left_out(void)
{
    static const struct {
        const char *gpu;
        DType class_;
        double model_median, table_median, table_p90;
    } limits[] = {
        { "v100-16gb", DTYPE_F16, 8, 6, 20 },      { "v100-16gb", DTYPE_F32, 8, 6, 30 },
        { "a100-80gb", DTYPE_F16, 7, 5, 14 },      { "h100-80gb", DTYPE_F16, 7, 5, 14 },
        { "a100-80gb-pcie", DTYPE_F16, 4, 3, 14 }, { "b200-180gb", DTYPE_F16, 8, 8, 35 },
    };
    Arena arena = { 0 };
    printf("  matmuls, error in %%              model       left out: shape     all of (n, k)\n"
           "  GPU            type  rows  median  p90     median  p90      median  p90\n");
    for (size_t i = 0; i < ARRAY_N(limits); i++) {
        const Gpu *g = load(&arena, limits[i].gpu);
        Errors model = { 0 }, shape = { 0 }, group = { 0 };
        measure(g, limits[i].class_, &model, &shape, &group);
        printf("  %-14s %-4s %5u %7.1f %5.1f %9.1f %5.1f %10.1f %5.1f\n", g->name,
               dtype_names[limits[i].class_], (unsigned)model.n, errors_at(&model, 0.5),
               errors_at(&model, 0.9), errors_at(&shape, 0.5), errors_at(&shape, 0.9),
               errors_at(&group, 0.5), errors_at(&group, 0.9));
        CHECK(errors_at(&model, 0.5) < limits[i].model_median);
        CHECK(errors_at(&shape, 0.5) < limits[i].table_median);
        CHECK(errors_at(&shape, 0.9) < limits[i].table_p90);
        free(model.of);
        free(shape.of);
        free(group.of);
    }
    arena_free(&arena);
}

/* Whichever of the two was measured at the lower clock. */
static void adding_takes_no_less_than_writing(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "h100-80gb");
    for (uint32_t i = 0; i < g->gemm_n; i++) {
        const GemmRow *r = &g->gemm[i];
        Op writes = { .kind = OP_MATMUL, .dtype = r->dtype, .u.matmul = shape_of(r) };
        writes.u.matmul.transpose_a = true;
        writes.u.matmul.transpose_b = writes.u.matmul.accumulate = false;
        Op adds = writes;
        adds.u.matmul.accumulate = true;
        CHECK(op_cost(g, &adds, NULL).alone_ns >= op_cost(g, &writes, NULL).alone_ns);
    }
    arena_free(&arena);
}

static void batches_fill_the_gpu_like_more_tiles(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "a100-80gb");
    MatmulShape one = { .m = 1024, .n = 1024, .k = 1024, .batch = 1 }, many = one;
    many.batch = 128;
    double single = matmul_model_ns(g, &one, DTYPE_F16);
    double all = matmul_model_ns(g, &many, DTYPE_F16);
    CHECK(all < 128 * single);
    /* EleutherAI's bmm.out: 1209 us for 128 of them on an A100-class GPU. */
    CHECK_NEAR(1209e3, all, 0.1);
    arena_free(&arena);
}

/* ---- attention ---- */

/* The row's own time does not count: by the others, whatever the kernel. */
static double attention_left_out_ns(const Gpu *g, uint32_t row, const Op *op)
{
    Gpu left = *g;
    left.attention = mem_zero(g->attention_n, sizeof *left.attention);
    memcpy(left.attention, g->attention, g->attention_n * sizeof *left.attention);
    left.attention[row] = left.attention[--left.attention_n];
    double ns =
        attention_ns(&left, op, g->attention[row].kernel, g->sms, g->memory_bytes_per_ns);
    free(left.attention);
    return ns;
}

static void measured_attention_is_predicted(void)
{
    static const char *const names[] = { "a100-80gb-pcie", "b200-180gb", "h100-80gb",
                                         "h200-141gb" };
    Arena arena = { 0 };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        const Gpu *g = load(&arena, names[i]);
        Gpu bare = *g;
        bare.attention_n = 0;
        Errors table = { 0 }, model = { 0 }, left_out = { 0 };
        for (uint32_t r = 0; r < g->attention_n; r++) {
            const AttentionRow *row = &g->attention[r];
            Op op = attention_op(row->batch, row->heads, row->seq, row->head_dim, row->causal,
                                 row->backward);
            errors_add(&table,
                       attention_ns(g, &op, row->kernel, g->sms, g->memory_bytes_per_ns),
                       row->time_ns);
            errors_add(&left_out, attention_left_out_ns(g, r, &op), row->time_ns);
            errors_add(&model,
                       attention_ns(&bare, &op, row->kernel, g->sms, g->memory_bytes_per_ns),
                       row->time_ns);
        }
        printf("  attention on %s, %u rows, error in %%: model median %.1f p90 %.1f, with the "
               "table %.1f %.1f, shape left out %.1f %.1f\n",
               g->name, (unsigned)g->attention_n, errors_at(&model, 0.5),
               errors_at(&model, 0.9), errors_at(&table, 0.5), errors_at(&table, 0.9),
               errors_at(&left_out, 0.5), errors_at(&left_out, 0.9));
        CHECK(errors_at(&left_out, 0.5) < 10);
        CHECK(errors_at(&model, 0.5) < 15);
        CHECK(errors_at(&table, 0.5) < 3);
        CHECK(errors_at(&table, 0.9) < 12);
        free(left_out.of);
        free(table.of);
        free(model.of);
    }
    arena_free(&arena);
}

/* cuDNN in the figures of FlashAttention-3 (arXiv 2407.08608): 16k tokens, 16 heads of 128. */
static void published_attention_on_h100_is_predicted(void)
{
    static const double forward[] = { 497, 574, 617, 609, 600, 595 },
                        causal[] = { 315, 410, 484, 518, 529, 539 },
                        backward[] = { 305, 408, 465, 499, 518, 516 };
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "h100-80gb");
    Errors e = { 0 };
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t seq = 512u << i;
        Op f = attention_op(16384 / seq, 16, seq, 128, false, false),
           c = attention_op(16384 / seq, 16, seq, 128, true, false),
           b = attention_op(16384 / seq, 16, seq, 128, false, true);
        errors_add(&e, (double)op_cost(g, &f, NULL).alone_ns, f.flops / forward[i] / 1e3);
        errors_add(&e, (double)op_cost(g, &c, NULL).alone_ns, c.flops / causal[i] / 1e3);
        errors_add(&e, (double)op_cost(g, &b, NULL).alone_ns, b.flops / backward[i] / 1e3);
    }
    printf(
        "  attention on H100 as published (cuDNN), 18 shapes, error in %%: median %.1f, worst "
        "%.1f\n",
        errors_at(&e, 0.5), errors_at(&e, 1));
    CHECK(errors_at(&e, 0.5) < 8);
    CHECK(errors_at(&e, 1) < 25);
    free(e.of);
    arena_free(&arena);
}

/* FlashAttention-2's own A100 benchmark: about 200 TFLOP/s and more for long rows. */
/* Its blocks are parts of those of the full kernel; a window of nearly all keys is about all. */
static void causal_attention_takes_no_longer_than_full(void)
{
    static const char *const names[] = { "a100-80gb", "h100-80gb" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        Arena arena = { 0 };
        const Gpu *g = load(&arena, names[i]);
        for (uint64_t heads = 1; heads <= 256; heads *= 2)
            for (uint64_t seq = 128; seq <= 65536; seq *= 2)
                for (int backward = 0; backward < 2; backward++) {
                    Op full = attention_op(1, heads, seq, 128, false, backward),
                       causal = attention_op(1, heads, seq, 128, true, backward),
                       window = causal;
                    causal.flops = full.flops * (double)(seq + 1) / (2 * (double)seq);
                    window.flops = causal.flops - full.flops / (double)(seq * seq);
                    window.u.attention.window = seq - 1;
                    int64_t ns = op_cost(g, &causal, NULL).alone_ns;
                    CHECK(ns <= op_cost(g, &full, NULL).alone_ns);
                    CHECK_NEAR((double)ns, (double)op_cost(g, &window, NULL).alone_ns, 0.01);
                }
        arena_free(&arena);
    }
}

static Op attention_in(DType dtype)
{
    Op op = attention_op(4, 32, 4096, 128, true, false);
    op.dtype = dtype;
    return op;
}

/* tf32 is of the products inside as well, and takes as much longer than bf16 as its peak is lower;
 * the f32 of CUDA cores takes what its products take, and is no newer on Hopper. */
static void attention_is_as_fast_as_its_products(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "h100-80gb");
    Op f32 = attention_in(DTYPE_F32), tf32 = attention_in(DTYPE_TF32),
       bf16 = attention_in(DTYPE_BF16);
    double ratio = gpu_peak_flops_per_ns(g, DTYPE_BF16) / gpu_peak_flops_per_ns(g, DTYPE_TF32);
    CHECK_NEAR((double)op_cost(g, &tf32, NULL).alone_ns,
               ratio * (double)op_cost(g, &bf16, NULL).alone_ns, 0.05);
    double products =
        f32.flops / (gpu_peak_flops_per_ns(g, DTYPE_F32) * g->matmul_efficiency[DTYPE_F32]);
    CHECK_NEAR(products, (double)op_cost(g, &f32, NULL).alone_ns, 0.05);
    CHECK_INT(ATTENTION_NEWEST, attention_rows(g, &f32, ATTENTION_FLASH2));
    CHECK_INT(ATTENTION_FLASH2, attention_rows(g, &bf16, ATTENTION_FLASH2));
    arena_free(&arena);
}

static double executor_ns(const Gpu *g, const Op *op)
{
    Software sw = { .compute_scale = 1, .attention_kernel = ATTENTION_LOCKSTEP };
    Gpu cold = *g;
    cold.sustained_scale = 1;
    return (double)op_cost(&cold, op, &sw).alone_ns;
}

/* What the executor has no matrix units for takes as long in every type, 0.075 of the peak of f32;
 * what it has them for takes less.  Where there are none to have, as on a CPU, it is any other. */
static void executors_attention_may_go_by_tiles(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "h100-80gb");
    Op f32 = attention_in(DTYPE_F32), tf32 = attention_in(DTYPE_TF32),
       bf16 = attention_in(DTYPE_BF16);
    Op narrow = attention_op(4, 32, 4096, 80, true, false), latent = bf16;
    narrow.dtype = DTYPE_BF16;
    latent.u.attention.value_dim = 64;
    double tiles = f32.flops / (0.075 * gpu_peak_flops_per_ns(g, DTYPE_F32));
    CHECK_NEAR(tiles, executor_ns(g, &f32), 1e-6);
    CHECK_NEAR(tiles, executor_ns(g, &tf32), 1e-6);
    CHECK_NEAR(tiles, executor_ns(g, &latent), 1e-6);
    CHECK_NEAR(tiles * 80 / 128, executor_ns(g, &narrow), 1e-6);
    CHECK(executor_ns(g, &bf16) < tiles / 20);
    Gpu plain = *g;
    for (int i = 0; i < DTYPE_N; i++)
        plain.peak_flops_per_ns[i] = g->peak_flops_per_ns[DTYPE_F32];
    Software newest = { .compute_scale = 1 };
    plain.sustained_scale = 1;
    plain.generation = GPU_OTHER;
    plain.attention_n = 0;
    CHECK_NEAR((double)op_cost(&plain, &f32, &newest).alone_ns, executor_ns(&plain, &f32), 0);
    arena_free(&arena);
}

/* Rows in which heads share one of keys say nothing of heads that share none. */
static void sharing_keys_is_told_apart_in_the_executor(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "h200-141gb");
    Op own = attention_op(1, 7, 4096, 64, true, true), shared = own, flash2 = own;
    own.dtype = shared.dtype = flash2.dtype = DTYPE_BF16;
    own.u.attention.kv_heads = flash2.u.attention.kv_heads = 7;
    shared.u.attention.kv_heads = 1;
    CHECK_NEAR(1030e3, executor_ns(g, &shared), 0.02); /* as measured */
    Software sw = { .compute_scale = 1, .attention_kernel = ATTENTION_FLASH2 };
    Gpu cold = *g;
    cold.sustained_scale = 1;
    CHECK_NEAR((double)op_cost(&cold, &flash2, &sw).alone_ns, executor_ns(g, &own), 0.35);
    arena_free(&arena);
}

/* In f32 as elsewhere: what is fused is not slower than its parts, one after another. */
static void fused_attention_is_no_slower_than_its_parts(void)
{
    static const DType dtypes[] = { DTYPE_F32, DTYPE_TF32, DTYPE_BF16 };
    static const char *const names[] = { "a100-80gb", "h100-80gb", "gb200-186gb" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        Arena arena = { 0 };
        const Gpu *g = load(&arena, names[i]);
        for (size_t d = 0; d < ARRAY_N(dtypes); d++)
            for (uint64_t seq = 512; seq <= 16384; seq *= 2) {
                Op fused = attention_op(4, 16, seq, 128, true, false);
                fused.dtype = dtypes[d];
                Op scores = matmul_op(seq, seq, 128, dtypes[d]);
                scores.u.matmul.batch = 4 * 16;
                scores.flops *= 4 * 16;
                CHECK(op_cost(g, &fused, NULL).alone_ns <=
                      2 * op_cost(g, &scores, NULL).alone_ns);
            }
        arena_free(&arena);
    }
}

/* Leave to round is no order to: on GeForce the kernels of f32 are as fast, and may be taken. */
static void tf32_is_never_slower_than_f32(void)
{
    static const char *const names[] = { "a100-80gb", "h100-80gb", "a10g",
                                         "rtx4090",   "l40s",      "t4" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        Arena arena = { 0 };
        const Gpu *g = load(&arena, names[i]);
        for (uint64_t size = 64; size <= 16384; size *= 4) {
            Op f32 = matmul_op(4096, size, 1024, DTYPE_F32), tf32 = f32;
            tf32.dtype = DTYPE_TF32;
            CHECK(op_cost(g, &tf32, NULL).alone_ns <= op_cost(g, &f32, NULL).alone_ns);
            CHECK(op_cost(g, &tf32, NULL).slowed_ns >= op_cost(g, &tf32, NULL).alone_ns);
            f32 = tf32 = attention_op(4, 16, size, 128, true, false);
            f32.dtype = DTYPE_F32;
            tf32.dtype = DTYPE_TF32;
            CHECK(op_cost(g, &tf32, NULL).alone_ns <= op_cost(g, &f32, NULL).alone_ns);
        }
        arena_free(&arena);
    }
}

static void longer_and_wider_attention_is_more_efficient(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "a100-80gb");
    double before = 0;
    for (uint64_t seq = 512; seq <= 16384; seq *= 2) {
        Op op = attention_op(16384 / seq, 16, seq, 128, true, false);
        double reached = op.flops / (double)op_cost(g, &op, NULL).alone_ns / 1e3;
        CHECK(reached > before);
        before = reached;
    }
    CHECK(before > 180 && before < 230);
    Op wide = attention_op(4, 16, 4096, 128, true, false),
       narrow = attention_op(4, 32, 4096, 64, true, false);
    CHECK(wide.flops == narrow.flops);
    CHECK(op_cost(g, &narrow, NULL).alone_ns > op_cost(g, &wide, NULL).alone_ns);
    arena_free(&arena);
}

/* ---- memory ---- */

static void time_grows_with_bytes_on_every_gpu(void)
{
    Arena arena = { 0 };
    const Gpu *gpus[40];
    uint32_t n = all_gpus(&arena, gpus, 40);
    for (uint32_t i = 0; i < n; i++)
        for (OpKind k = OP_SOFTMAX; k < OP_H2D; k++) {
            int64_t before = 0;
            for (uint64_t bytes = 1024; k != OP_CONV && bytes < (uint64_t)1 << 36; bytes *= 2) {
                Op op = memory_op(k, bytes);
                int64_t ns = op_cost(gpus[i], &op, NULL).alone_ns;
                CHECK(ns >= before);
                before = ns;
            }
        }
    arena_free(&arena);
}

static void large_streams_reach_the_measured_bandwidth(void)
{
    static const struct {
        const char *gpu;
        double gb_per_s;
    } rows[] = {
        { "v100-16gb", 814 },  { "a100-40gb", 1360 },  { "a100-80gb", 1700 },
        { "h100-80gb", 2970 }, { "h200-141gb", 4060 },
    };
    Arena arena = { 0 };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Op copy = memory_op(OP_COPY, 8 * GIB);
        double ns = (double)op_cost(load(&arena, rows[i].gpu), &copy, NULL).alone_ns;
        CHECK_NEAR(rows[i].gb_per_s, 8.0 * (double)GIB / ns, 0.01);
    }
    arena_free(&arena);
}

static void host_copies_run_at_the_speed_of_the_bus(void)
{
    Arena arena = { 0 };
    Op op = { .kind = OP_H2D, .dtype = DTYPE_I32, .read_bytes = 0, .write_bytes = 26300000 };
    CHECK_INT(1000000, op_cost(load(&arena, "a100-80gb"), &op, NULL).alone_ns);
    arena_free(&arena);
}

/* ---- beside a collective ---- */

static void a_collective_slows_matmuls_by_sms_and_streams_by_bandwidth(void)
{
    static const char json[] = "\"dgx-h100\"";
    Err err = { 0 };
    Machine m;
    JsonDoc *doc = json_parse(json, strlen(json), "t", &err);
    if (!CHECK(machine_read(&m, json_root(doc), "scenarios", &err)))
        return;
    const Gpu *g = m.types[0].gpu;
    /* 132 tiles of 128 x 256 fill an H100 once; 108 SMs need a second wave. */
    Op full = matmul_op(128 * 12, 256 * 11, 8192, DTYPE_BF16);
    OpCost cost = op_cost(g, &full, NULL);
    CHECK(cost.slowed_ns > cost.alone_ns * 11 / 10);
    CHECK(cost.slowed_ns < cost.alone_ns * 2);
    Gpu plain = *g;
    plain.comm_matmul_factor = 1;
    CHECK(g->comm_matmul_factor > 1);
    CHECK_NEAR(g->comm_matmul_factor,
               (double)cost.slowed_ns / (double)op_cost(&plain, &full, NULL).slowed_ns, 1e-4);
    Op stream = memory_op(OP_ADD, GIB);
    cost = op_cost(g, &stream, NULL);
    double taken = g->comm_memory_factor * g->comm_bytes_per_ns;
    CHECK_NEAR(1 + taken / g->memory_bytes_per_ns,
               (double)cost.slowed_ns / (double)cost.alone_ns, 1e-3);
    Op copy = memory_op(OP_H2D, MIB);
    cost = op_cost(g, &copy, NULL);
    CHECK_INT(cost.alone_ns, cost.slowed_ns);
    machine_free(&m);
    json_close(doc);
}

/* ---- speed ---- */

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void a_cost_takes_microseconds(void)
{
    Arena arena = { 0 };
    const Gpu *g = load(&arena, "a100-80gb");
    int64_t sum = 0;
    double from = now_us();
    for (uint32_t i = 0; i < 2000; i++) {
        Op op = matmul_op(2048 + i, 5000, 4000 + i, DTYPE_BF16);
        sum += op_cost(g, &op, NULL).alone_ns;
    }
    double each = (now_us() - from) / 2000;
    printf("  a matmul's cost, with its table: %.1f us\n", each);
    CHECK(sum > 0 && each < 200); /* far above what it takes, for slow and shared machines */
    arena_free(&arena);
}

int main(void)
{
    RUN(ideal_is_flops_over_peak_or_bytes_over_bandwidth);
    RUN(what_is_no_kernel_costs_nothing);
    RUN(a_kernel_that_does_nothing_takes_the_floor);
    RUN(compute_scale_multiplies_but_not_below_the_bound);
    RUN(a_step_waits_for_the_slowest_of_its_gpus);
    RUN(memory_keeps_its_clock_under_load);
    RUN(rows_are_of_the_gpu_they_were_measured_on);
    RUN(a_layer_that_completes_another_is_no_other_gpu);
    RUN(odd_rows_say_nothing_of_aligned_ones);
    RUN(shorter_alignment_costs_more_whatever_was_measured_nearby);
    RUN(no_other_rows_are_needed_where_they_are_padded);
    RUN(nothing_is_faster_than_the_bounds);
    RUN(the_largest_and_smallest_shapes_have_a_time);
    RUN(rows_below_the_bound_are_lifted_to_it);
    RUN(a_measured_shape_gives_its_measurement_back);
    RUN(shapes_far_from_all_rows_are_left_to_the_model);
    RUN(measured_matmuls_are_predicted_when_left_out);
    RUN(adding_takes_no_less_than_writing);
    RUN(batches_fill_the_gpu_like_more_tiles);
    RUN(measured_attention_is_predicted);
    RUN(published_attention_on_h100_is_predicted);
    RUN(causal_attention_takes_no_longer_than_full);
    RUN(attention_is_as_fast_as_its_products);
    RUN(executors_attention_may_go_by_tiles);
    RUN(sharing_keys_is_told_apart_in_the_executor);
    RUN(fused_attention_is_no_slower_than_its_parts);
    RUN(tf32_is_never_slower_than_f32);
    RUN(longer_and_wider_attention_is_more_efficient);
    RUN(time_grows_with_bytes_on_every_gpu);
    RUN(large_streams_reach_the_measured_bandwidth);
    RUN(host_copies_run_at_the_speed_of_the_bus);
    RUN(a_collective_slows_matmuls_by_sms_and_streams_by_bandwidth);
    RUN(a_cost_takes_microseconds);
    return check_report();
}
