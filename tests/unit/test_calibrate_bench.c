/*
 * test_calibrate_bench.c - what `lockstep bench` wrote, as a machine's file.
 *
 * The bench is simulated: its times are what a machine that we know takes (sim/cost.h), so
 * the file made of them must predict that machine again, also for shapes it has not seen.
 */
#include "core/quantile.h"
#include "core/share.h"
#include "profile/cmd_calibrate.h"
#include "sim/cost.h"
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[200], bench[300], gpu_path[300], cluster_path[300];

static void open_folder(void)
{
    snprintf(folder, sizeof folder, "%s/lockstep-bench-test-XXXXXX", P_tmpdir);
    ASSERT(mkdtemp(folder));
    snprintf(bench, sizeof bench, "%s/bench.json", folder);
    snprintf(gpu_path, sizeof gpu_path, "%s/known.json", folder);
    snprintf(cluster_path, sizeof cluster_path, "%s/known-cluster.json", folder);
}

static void close_folder(void)
{
    unlink(bench);
    unlink(gpu_path);
    unlink(cluster_path);
    rmdir(folder);
}

static const Gpu *gpu_of(Arena *arena, const char *json)
{
    Err err = { 0 };
    JsonDoc *doc = json_parse(json, strlen(json), "test", &err);
    const Gpu *gpu = doc ? gpu_read(arena, json_root(doc), share_dir(), &err) : NULL;
    if (!CHECK(gpu != NULL))
        fprintf(stderr, "%s\n", err.text);
    json_close(doc);
    return gpu;
}

static const Gpu *gpu_at(Arena *arena, const char *path)
{
    char text[400];
    snprintf(text, sizeof text, "{\"base\": \"%s\"}", path);
    return gpu_of(arena, text);
}

/* A processor: flat efficiency, no tiles; made up, and simple. */
static const char law_gpu[] =
    "{\"name\":\"law\",\"generation\":\"other\",\"peak_tflops\":{\"f32\":0.1},\"memory_GB\":8,"
    "\"memory_GBps\":10,\"host_GBps\":5,\"sms\":8,\"tdp_w\":0,\"launch_us\":0.5,"
    "\"kernel_floor_us\":0,\"matmul_model\":{\"fill_us\":3,\"tile_loss\":0,"
    "\"wave_rounding\":0},\"efficiency\":{\"matmul\":0.8,\"attention\":0.4,"
    "\"attention_bwd\":0.3,\"memory\":1},\"overlap\":{\"comm_sms\":0,"
    "\"comm_memory_factor\":0}}";

/* Tiles and waves as on an H100, without its tables; how efficient, the file may have wrong. */
#define TILED(efficiency) \
    "{\"name\":\"tiled\",\"generation\":\"hopper\",\"peak_tflops\":{\"bf16\":989}," \
    "\"memory_GB\":80,\"memory_GBps\":3350,\"host_GBps\":50,\"sms\":132,\"tdp_w\":700," \
    "\"launch_us\":4,\"kernel_floor_us\":2,\"matmul_model\":{\"fill_us\":5.5,\"tile_loss\":" \
    "31," \
    "\"wave_rounding\":0.375},\"efficiency\":{\"matmul\":" efficiency ",\"attention\":0.6," \
    "\"attention_bwd\":0.5,\"memory\":0.9},\"overlap\":{\"comm_sms\":24," \
    "\"comm_memory_factor\":2.5}}"

/* ---- a bench of a machine that we know ---- */

typedef struct Known {
    const Gpu *gpu;
    DType dtype;
    bool every_third; /* the others only */
} Known;

static const uint64_t sizes[] = { 64, 128, 256, 512, 1024 };

static Op product(uint64_t m, uint64_t n, uint64_t k, DType dtype)
{
    uint64_t each = dtype_bytes(dtype);
    return (Op){ .kind = OP_MATMUL,
                 .dtype = dtype,
                 .u.matmul = { .m = m, .n = n, .k = k, .batch = 1, .transpose_b = true },
                 .flops = 2.0 * (double)m * (double)n * (double)k,
                 .read_bytes = each * (m * k + n * k),
                 .write_bytes = each * m * n };
}

static bool is_left_out(uint64_t nth)
{
    return nth % 3 == 1;
}

/* Of the executor's kernels, alone. */
static double us_of(const Gpu *gpu, const Op *op)
{
    const Software executor = { .compute_scale = 1, .attention_kernel = ATTENTION_LOCKSTEP };
    Gpu alone = *gpu;
    alone.sustained_scale = 1;
    return (double)op_cost(&alone, op, &executor).alone_ns / 1e3;
}

static void write_gemms(FILE *f, const Known *x)
{
    uint64_t nth = 0, written = 0;
    for (size_t a = 0; a < ARRAY_N(sizes); a++)
        for (size_t b = 0; b < ARRAY_N(sizes); b++)
            for (size_t c = 0; c < ARRAY_N(sizes); c++) {
                Op op = product(sizes[a], sizes[b], sizes[c], x->dtype);
                if (x->every_third && is_left_out(nth++))
                    continue;
                fprintf(f,
                        "%s{\"m\":%d,\"n\":%d,\"k\":%d,\"dtype\":\"%s\",\"layout\":\"TN\","
                        "\"time_us\":%.17g,\"spread\":0.1}",
                        written++ ? "," : "", (int)sizes[a], (int)sizes[b], (int)sizes[c],
                        dtype_names[x->dtype], us_of(x->gpu, &op));
            }
}

static Op norm_of(uint64_t bytes)
{
    return (Op){ .kind = OP_NORM, .dtype = DTYPE_F32, .read_bytes = bytes };
}

static Op attention_of(uint64_t seq, bool backward, DType dtype)
{
    return (Op){ .kind = OP_ATTENTION,
                 .phase = backward ? PHASE_DGRAD : PHASE_FORWARD,
                 .dtype = dtype,
                 .u.attention = { 2, 8, 8, seq, seq, 64, true, 0, 0 },
                 .flops = (backward ? 10.0 : 4.0) * 2 * 8 * (double)seq * (double)seq * 32 };
}

static void write_others(FILE *f, const Known *x)
{
    fprintf(f, "],\"attention\":[");
    for (int i = 0; i < 8; i++) {
        uint64_t seq = UINT64_C(128) << (i / 2);
        Op op = attention_of(seq, i % 2 == 1, x->dtype);
        fprintf(f,
                "%s{\"op\":\"%s\",\"batch\":2,\"seq\":%d,\"heads\":8,\"kv_heads\":8,"
                "\"head_dim\":64,\"causal\":true,\"dtype\":\"%s\",\"time_us\":%.17g}",
                i ? "," : "", i % 2 ? "backward" : "forward", (int)seq, dtype_names[x->dtype],
                us_of(x->gpu, &op));
    }
    fprintf(f, "],\"memory\":[");
    for (uint64_t bytes = 65536; bytes <= 1 << 26; bytes *= 4) {
        Op op = norm_of(bytes);
        fprintf(f, "%s{\"op\":\"norm\",\"bytes\":%d,\"time_us\":%.17g}",
                bytes > 65536 ? "," : "", (int)bytes, us_of(x->gpu, &op));
    }
    fprintf(f, "]");
}

/* tail: what else there is, after a comma; "" */
static void write_bench(const Known *x, const char *tail)
{
    FILE *f = fopen(bench, "w");
    ASSERT(f);
    fprintf(f, "{\"lockstep_bench\":1,\"backend\":\"cpu\",\"ranks\":2,\"device\":{\"name\":"
               "\"a law\",\"versions\":\"v\",\"memory_bytes\":16000000000,\"date\":"
               "\"2026-01-31\"},\"gemm\":[");
    write_gemms(f, x);
    write_others(f, x);
    fprintf(f, "%s}\n", tail);
    fclose(f);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ASSERT(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static bool calibrate_into(const char *into, Err *err)
{
    char *inputs[] = { bench };
    CalibrateOptions o = { .into = into, .quiet = true, .inputs = inputs, .inputs_n = 1 };
    return calibrate_bench(&o, err);
}

static bool calibrate_well(const char *into)
{
    Err err = { 0 };
    bool ok = CHECK(calibrate_into(into, &err));
    if (!ok)
        fprintf(stderr, "%s\n", err.text);
    return ok;
}

/* ---- round trips ---- */

static void check_same(const Gpu *want, const Gpu *got, const Op *op, double tolerance)
{
    double w = us_of(want, op), g = us_of(got, op);
    if (!CHECK(fabs(g / w - 1) <= tolerance))
        fprintf(stderr, "%s of %g flops: %g us, not %g\n", op_kind_names[op->kind], op->flops,
                g, w);
}

/* Times are written in ns: a kernel of a microsecond may be half of one off. */
static void check_round_trip(const Gpu *known, DType dtype)
{
    Arena arena = { 0 };
    unlink(gpu_path);
    write_bench(&(Known){ known, dtype, false }, ",\"launch_us\":0.5,\"host_GBps\":5");
    const Gpu *now = calibrate_well(gpu_path) ? gpu_at(&arena, gpu_path) : NULL;
    for (size_t i = 0; now && i < 125; i++) {
        Op op = product(sizes[i / 25], sizes[i / 5 % 5], sizes[i % 5], dtype);
        check_same(known, now, &op, 2e-3);
    }
    for (uint64_t bytes = 65536; now && bytes <= 1 << 26; bytes *= 4) {
        Op op = norm_of(bytes);
        check_same(known, now, &op, 2e-3);
    }
    for (int i = 0; now && i < 8; i++) {
        Op op = attention_of(UINT64_C(128) << (i / 2), i % 2 == 1, dtype);
        check_same(known, now, &op, 2e-2);
    }
    if (now) {
        CHECK_U64(500, (uint64_t)now->launch_ns);
        CHECK_NEAR(5, now->host_bytes_per_ns, 1e-9);
        CHECK_U64(8, now->memory_bytes / 1000000000); /* 16 GB, two ranks */
        CHECK(strcmp(now->name, "known") == 0);
    }
    arena_free(&arena);
}

static void a_processor_that_we_know_comes_back(void)
{
    Arena arena = { 0 };
    check_round_trip(gpu_of(&arena, law_gpu), DTYPE_F32);
    arena_free(&arena);
}

static void a_gpu_with_tables_comes_back(void)
{
    Arena arena = { 0 };
    check_round_trip(gpu_of(&arena, "\"h100-80gb\""), DTYPE_BF16);
    arena_free(&arena);
}

/* Every third shape was never measured; its neighbours are a factor of two away.  file: what is
 * there before; NULL: it is made anew. */
static void check_left_out(const Gpu *known, const char *file, DType dtype, double median,
                           double worst)
{
    Arena arena = { 0 };
    double off[125];
    uint32_t n = 0;
    unlink(gpu_path);
    if (file)
        write_text(gpu_path, file);
    write_bench(&(Known){ known, dtype, true }, "");
    const Gpu *now = calibrate_well(gpu_path) ? gpu_at(&arena, gpu_path) : NULL;
    for (size_t i = 0; now && i < 125; i++) {
        Op op = product(sizes[i / 25], sizes[i / 5 % 5], sizes[i % 5], dtype);
        if (is_left_out(i))
            off[n++] = fabs(us_of(now, &op) / us_of(known, &op) - 1);
    }
    if (CHECK_U64(42, n)) {
        sort_doubles(off, n);
        if (getenv("CHECK_VERBOSE"))
            fprintf(stderr, "%s, 42 shapes left out: median %.1f %%, worst %.1f %%\n",
                    known->name, 100 * off[n / 2], 100 * off[n - 1]);
        CHECK(off[n / 2] <= median);
        CHECK(off[n - 1] <= worst);
    }
    arena_free(&arena);
}

static void shapes_that_were_left_out_are_predicted(void)
{
    Arena arena = { 0 };
    check_left_out(gpu_of(&arena, law_gpu), NULL, DTYPE_F32, 0.01, 0.15);
    check_left_out(gpu_of(&arena, TILED("0.75")), TILED("0.5"), DTYPE_BF16, 0.05, 0.15);
    arena_free(&arena);
}

/* ---- overlap and transfers ---- */

#define ROW_OF(op, bytes, us, busbw) \
    "{\"op\":\"" op "\",\"ranks\":2,\"bytes\":" bytes ",\"time_us\":" us \
    ",\"busbw_GBps\":" busbw "}"

static const char transfers[] =
    ",\"overlap\":[{\"matmul\":true,\"slowdown\":1.25},{\"matmul\":true,\"slowdown\":1.25},"
    "{\"matmul\":false,\"slowdown\":1.5}],\"collective\":["
    /* 20 us, then 2 GB/s: sizes come one after another, each of every collective */
    ROW_OF("all_reduce", "1000", "20", "0.05") "," ROW_OF(
        "send_recv", "1000", "10",
        "0.1") "," ROW_OF("all_reduce", "100000", "70",
                          "1.43") "," ROW_OF("send_recv", "100000", "60",
                                             "1.67") "," ROW_OF("all_reduce", "10000000",
                                                                "5020",
                                                                "2") "," ROW_OF("send_recv",
                                                                                "10000000",
                                                                                "5010",
                                                                                "2") "]";

static void a_cluster_is_made_beside_the_gpu(void)
{
    Arena arena = { 0 };
    Err err = { 0 };
    Machine m;
    char text[400];
    write_bench(&(Known){ gpu_of(&arena, law_gpu), DTYPE_F32, false }, transfers);
    bool ok = CHECK(calibrate_bench_new(bench, gpu_path, cluster_path, "known.json", &err));
    snprintf(text, sizeof text, "\"%s\"", cluster_path);
    JsonDoc *doc = json_parse(text, strlen(text), "test", &err);
    ok = ok && CHECK(machine_read(&m, json_root(doc), share_dir(), &err));
    if (!ok)
        fprintf(stderr, "%s\n", err.text);
    json_close(doc);
    if (ok) {
        const Gpu *g = m.types[0].gpu;
        Op norm = norm_of(1 << 24), big = product(1024, 1024, 1024, DTYPE_F32);
        double latency;
        CHECK_U64(2, m.gpus_n);
        CHECK_NEAR(70e3, machine_measured_ns(&m, OP_ALL_REDUCE, 2, 1, 100000, &latency), 1e-9);
        CHECK_NEAR(5010e3, machine_measured_ns(&m, OP_SEND, 2, 1, 10000000, &latency), 1e-9);
        OpCost n = op_cost(g, &norm, NULL), b = op_cost(g, &big, NULL);
        CHECK(fabs((double)b.slowed_ns / (double)b.alone_ns - 1.25) < 0.05);
        CHECK((double)n.slowed_ns / (double)n.alone_ns > 1.05);
        CHECK((double)n.slowed_ns / (double)n.alone_ns < 1.55);
        machine_free(&m);
    }
    arena_free(&arena);
}

/* ---- files that are there ---- */

static void a_cluster_that_cannot_be_made_leaves_the_old_one(void)
{
    static const char old[] = "{\"base\": \"pcie-workstation\", \"name\": \"mine\"}";
    Arena arena = { 0 };
    Err err = { 0 };
    write_text(cluster_path, old);
    write_bench(&(Known){ gpu_of(&arena, law_gpu), DTYPE_F32, false },
                ",\"collective\":[" ROW_OF("all_reduce", "1000", "20", "0.05") "]");
    CHECK(!calibrate_bench_new(bench, gpu_path, cluster_path, "known.json", &err));
    CHECK_ERR_TEXT(&err, "1 rows are too few to calibrate");
    char *now = calibrate_load(cluster_path, &err);
    CHECK_STR(old, now ? now : "");
    free(now);
    unlink(cluster_path);
    arena_free(&arena);
}

static void a_file_that_is_there_keeps_what_was_not_measured(void)
{
    Arena arena = { 0 };
    unlink(gpu_path);
    write_text(gpu_path, "{\"base\": \"a100-80gb\", \"name\": \"mine\", \"tdp_w\": 123}");
    const Gpu *was = gpu_at(&arena, gpu_path);
    write_bench(&(Known){ gpu_of(&arena, law_gpu), DTYPE_F32, false }, ",\"launch_us\":0.25");
    const Gpu *now = calibrate_well(gpu_path) ? gpu_at(&arena, gpu_path) : NULL;
    if (was && now) {
        CHECK_NEAR(123, now->tdp_w, 1e-9);
        CHECK_NEAR(was->peak_flops_per_ns[DTYPE_BF16], now->peak_flops_per_ns[DTYPE_BF16],
                   1e-9);
        CHECK_U64(250, (uint64_t)now->launch_ns);
        Op op = product(512, 512, 512, DTYPE_F32);
        double want = us_of(gpu_of(&arena, law_gpu), &op);
        CHECK(fabs(us_of(now, &op) / want - 1) < 2e-3);
    }
    arena_free(&arena);
}

static void check_error(const char *json, const char *into, const char *has)
{
    Err err = { 0 };
    write_text(bench, json);
    CHECK(!calibrate_into(into, &err));
    if (!CHECK(strstr(err.text, has) != NULL))
        fprintf(stderr, "'%s' is not in '%s'\n", has, err.text);
}

#define HEAD "{\"lockstep_bench\":1,\"ranks\":1,"

static void what_cannot_be_used_is_a_sentence(void)
{
    unlink(gpu_path);
    check_error("{\"lockstep_bench\":2,\"ranks\":1}", gpu_path, "lockstep_bench: 2 is out of");
    check_error("{\"lockstep_bench\":1}", gpu_path, "ranks: the key is missing");
    check_error(HEAD "\"gemm\":7}", gpu_path, "gemm: a list is expected, not a number");
    check_error(HEAD "\"gemm\":[{\"m\":0,\"n\":1,\"k\":1,\"dtype\":\"f32\",\"time_us\":1}]}",
                gpu_path, "gemm[0].m: 0 is out of range");
    check_error(HEAD "\"gemm\":[{\"m\":1,\"n\":1,\"k\":1,\"dtype\":\"f31\",\"time_us\":1}]}",
                gpu_path, "f31");
    check_error(HEAD "\"gemm\":[{\"m\":1,\"n\":1,\"k\":1,\"dtype\":\"f32\",\"time_us\":-1}]}",
                gpu_path, "time_us");
    check_error(HEAD "\"memory\":[{\"op\":\"norms\",\"bytes\":8,\"time_us\":1}]}", gpu_path,
                "norms");
    check_error(HEAD "\"memory\":[]}", gpu_path, "neither kernels nor transfers");
    write_text(gpu_path, "{\"base\": \"a100-80gb\"}");
    check_error(HEAD "\"memory\":[]}", gpu_path, "has no kernels");
    write_text(gpu_path, "{\"base\": \"dgx-h100\"}");
    check_error(HEAD "\"memory\":[{\"op\":\"norm\",\"bytes\":8,\"time_us\":1}]}", gpu_path,
                "no out-of-place row of a simulated collective");
}

int main(void)
{
    open_folder();
    RUN(a_processor_that_we_know_comes_back);
    RUN(a_gpu_with_tables_comes_back);
    RUN(shapes_that_were_left_out_are_predicted);
    RUN(a_cluster_is_made_beside_the_gpu);
    RUN(a_cluster_that_cannot_be_made_leaves_the_old_one);
    RUN(a_file_that_is_there_keeps_what_was_not_measured);
    RUN(what_cannot_be_used_is_a_sentence);
    close_folder();
    return check_report();
}
