/*
 * Fits: numbers that are known come back, what rows do not say stays; text files are
 * changed in one place only; and both kinds of calibration there and back again.
 */
#include "core/json.h"
#include "profile/calibrate.h"
#include "profile/cmd.h"
#include "profile/splice.h"
#include "tests/built.h"
#include "traces/native.h"

#include <dirent.h>
#include <unistd.h>

/* ---- fits ---- */

/* time = min(latency + bytes / rate, other + bytes / (4 rate)): a choice, as NCCL makes it. */
typedef struct Toy {
    double bytes[32];
    uint32_t n;
} Toy;

static void toy_predict(void *user, const double *value, double *ns)
{
    const Toy *toy = user;
    for (uint32_t i = 0; i < toy->n; i++)
        ns[i] = fmin(value[0] + toy->bytes[i] / value[1],
                     value[2] + toy->bytes[i] / (4 * value[1]));
}

static Toy toy_make(uint32_t n, double smallest)
{
    Toy toy = { .n = n };
    for (uint32_t i = 0; i < n; i++)
        toy.bytes[i] = ldexp(smallest, (int)i);
    return toy;
}

static void toy_start(CalibrateNumber number[3])
{
    for (int i = 0; i < 3; i++)
        number[i] =
            (CalibrateNumber){ .value = 100, .min = 0.01, .max = 1e9, .answer_min = 0.05 };
    number[1].value = 3;
    number[2].value = 2000;
}

static void known_numbers_come_back(void)
{
    static const double truth[] = { 40, 10, 5000 };
    Toy toy = toy_make(24, 8);
    double measured[32], value[3], ns[32];
    toy_predict(&toy, truth, measured);
    CalibrateNumber number[3];
    toy_start(number);
    CalibrateRows rows = { measured, NULL, toy.n, toy_predict, &toy };
    CHECK(calibrate_fit(number, 3, &rows, NULL, 0));
    for (int i = 0; i < 3; i++) {
        CHECK(number[i].fitted);
        CHECK_NEAR(truth[i], number[i].value, 0.01);
        value[i] = number[i].value;
    }
    toy_predict(&toy, value, ns);
    CHECK(calibrate_errors(measured, ns, toy.n, NULL, 0).p90_pct < 1);
}

/* A row that is ten times too slow moves nothing: errors count once, not squared. */
static void an_outlier_moves_little(void)
{
    static const double truth[] = { 40, 10, 5000 };
    Toy toy = toy_make(24, 8);
    double measured[32];
    toy_predict(&toy, truth, measured);
    measured[3] *= 10;
    measured[20] /= 3;
    CalibrateNumber number[3];
    toy_start(number);
    CalibrateRows rows = { measured, NULL, toy.n, toy_predict, &toy };
    CHECK(calibrate_fit(number, 3, &rows, NULL, 0));
    for (int i = 0; i < 3; i++)
        CHECK_NEAR(truth[i], number[i].value, 0.02);
}

/* Of two ways the faster is taken; one is slower for larger rows. */
static void ways_predict(void *user, const double *value, double *ns)
{
    const Toy *toy = user;
    for (uint32_t i = 0; i < toy->n; i++)
        ns[i] = fmin(value[0] * toy->bytes[i], value[1]);
}

/* Rows first go by the one, and when that is fitted by the other: both have to be slower. */
static void a_choice_that_turns_is_followed(void)
{
    Toy toy = toy_make(8, 1);
    double measured[8], ns[8], value[2];
    CalibrateNumber number[2] = { { .value = 1, .min = 0.01, .max = 1e3, .answer_min = 0.05 },
                                  { .value = 5, .min = 0.01, .max = 1e3, .answer_min = 0.05 } };
    for (uint32_t i = 0; i < toy.n; i++)
        measured[i] = fmin(50 * toy.bytes[i], 400);
    CalibrateRows rows = { measured, NULL, toy.n, ways_predict, &toy };
    CHECK(calibrate_fit(number, 2, &rows, NULL, 0));
    for (int again = 0; again < 2; again++) { /* and from there on it stays */
        for (int i = 0; i < 2; i++)
            value[i] = number[i].value;
        ways_predict(&toy, value, ns);
        for (uint32_t i = 0; i < toy.n; i++)
            CHECK_NEAR(measured[i], ns[i], 0.01);
        CHECK(calibrate_fit(number, 2, &rows, NULL, 0));
        CHECK_NEAR(value[0], number[0].value, 0.01);
        CHECK_NEAR(value[1], number[1].value, 0.01);
    }
}

static void what_rows_do_not_say_stays(void)
{
    static const double truth[] = { 40, 10, 5000 };
    Toy toy = toy_make(8, 1e7); /* large only: no latency can be seen */
    double measured[32];
    toy_predict(&toy, truth, measured);
    CalibrateNumber number[3];
    toy_start(number);
    CalibrateRows rows = { measured, NULL, toy.n, toy_predict, &toy };
    CHECK(calibrate_fit(number, 3, &rows, NULL, 0));
    CHECK(!number[0].fitted && number[1].fitted && !number[2].fitted);
    CHECK_NEAR(100, number[0].value, 0);
    CHECK_NEAR(10, number[1].value, 0.01);
}

/* The second half is another machine: each fold is predicted from the other alone. */
static void left_out_rows_are_predicted_by_the_others(void)
{
    double measured[8], ns[8];
    uint32_t fold[8];
    Toy toy = toy_make(4, 1e8);
    for (uint32_t i = 0; i < 8; i++) {
        toy.bytes[i] = toy.bytes[i % 4];
        fold[i] = i / 4;
        measured[i] = toy.bytes[i] / (4 * (fold[i] ? 20.0 : 10.0));
    }
    toy.n = 8;
    CalibrateNumber number[3];
    toy_start(number);
    CalibrateRows rows = { measured, NULL, 8, toy_predict, &toy };
    calibrate_left_out(number, 3, &rows, fold, 2, ns);
    for (uint32_t i = 0; i < 8; i++)
        CHECK_NEAR(fold[i] ? 2 : 0.5, ns[i] / measured[i], 0.02);
    CHECK_NEAR(3, number[1].value, 0);

    memset(fold, 0, sizeof fold); /* a lone log: nothing is left to fit */
    calibrate_left_out(number, 3, &rows, fold, 1, ns);
    CHECK(isnan(ns[0]));
    CHECK_INT(0, calibrate_errors(measured, ns, 8, NULL, 0).n);
    const bool judged[8] = { true, true, true, true, true, true, true, true };
    rows.judged = judged;
    CHECK(!calibrate_fit(number, 3, &rows, NULL, 0));
}

static void lines_give_latency_and_bandwidth(void)
{
    double bytes[6], ns[6];
    for (int i = 0; i < 6; i++) {
        bytes[i] = ldexp(1024, 2 * i);
        ns[i] = 5000 + bytes[i] / 50;
    }
    CalibrateLine line = calibrate_line(bytes, ns, 6);
    CHECK_NEAR(5000, line.latency_ns, 1e-6);
    CHECK_NEAR(50, line.bytes_per_ns, 1e-6);
    CHECK(line.median_pct < 1e-6);
    CHECK(calibrate_line(bytes, ns, 1).bytes_per_ns <= 0);
}

/* ---- text ---- */

static void check_splice(const char *text, const char *outer, const char *inner,
                         const char *value, const char *expected)
{
    size_t n = strlen(text) + 1;
    char *copy = mem_zero(n, 1);
    memcpy(copy, text, n);
    copy = json_splice(copy, outer, inner, value);
    CHECK_STR(expected, copy);
    free(copy);
}

static void one_value_changes_and_nothing_else(void)
{
    check_splice("{\"a\": [1,\n 2], \"b\" : {\"c\":\"}\\\"\"}}\n", "a", NULL, "7",
                 "{\"a\": 7, \"b\" : {\"c\":\"}\\\"\"}}\n");
    check_splice("{\"b\": {\"c\": \"}\\\"\", \"d\": {\"e\": 1}}}", "b", "d", "2",
                 "{\"b\": {\"c\": \"}\\\"\", \"d\": 2}}");
    check_splice("{\n  \"a\": 1\n}\n", "b", NULL, "2", "{\n  \"a\": 1,\n  \"b\": 2\n}\n");
    check_splice("{\n  \"a\": 1\n}\n", "b", "c", "2",
                 "{\n  \"a\": 1,\n  \"b\": {\n    \"c\": 2\n  }\n}\n");
    check_splice("{}", "a", NULL, "true", "{\n  \"a\": true\n}");
    check_splice("{\"a\": \"text\"}", "a", "b", "1", "{\"a\": {\n    \"b\": 1\n  }}");
    check_splice("{\"a\": {\"b\": 1, \"x\": 3}}", "a", "c", "2",
                 "{\"a\": {\"b\": 1, \"x\": 3,\n    \"c\": 2}}");
}

/* ---- there and back: a cluster ---- */

static char folder[] = P_tmpdir "/lockstep-calibrate-XXXXXX";

static const char *in_folder(Arena *arena, const char *name)
{
    return arena_printf(arena, "%s/%s", folder, name);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ASSERT(f);
    fputs(text, f);
    fclose(f);
}

/* cmd_calibrate as the shell would call it, its standard output thrown away. */
static int calibrate(Arena *arena, const char *const *words, int n)
{
    char *argv[40] = { arena_strdup(arena, "calibrate") };
    for (int i = 0; i < n; i++)
        argv[i + 1] = arena_strdup(arena, words[i]);
    fflush(stdout);
    int out = dup(STDOUT_FILENO);
    ASSERT(freopen("/dev/null", "w", stdout));
    int status = cmd_calibrate(n + 1, argv);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out);
    return status;
}

static bool open_machine(Machine *m, const char *path)
{
    Err err = { 0 };
    JsonDoc *doc = json_open(path, &err);
    bool ok = doc && machine_read(m, json_root(doc), share_dir(), &err);
    if (!CHECK(ok))
        fprintf(stderr, "%s\n", err.text);
    json_close(doc);
    return ok;
}

typedef struct Group {
    Graph g;
    Classes c;
} Group;

static bool group_of_all(Group *x, const Machine *m)
{
    uint32_t n = m->gpus_n;
    Err err = { 0 };
    *x = (Group){ 0 };
    x->g.world_n = x->g.role_stride = n;
    x->g.role_extent = 1;
    x->g.host_group = NONE_U32;
    x->g.role_of = mem_zero(1, sizeof *x->g.role_of);
    x->g.replica = (GroupDim){ 1, 1, 1, 1 };
    graph_role(&x->g, "all", 0);
    graph_group(&x->g, "all", &(GroupDim){ 1, n, 1, n }, 1);
    graph_seal(&x->g);
    return CHECK(classes_make(&x->c, &x->g, m, 0, false, &err));
}

static const OpKind kinds[] = { OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_BROADCAST };
static const char *const programs[] = { "all_reduce", "all_gather", "reduce_scatter",
                                        "broadcast" };

static double time_us(const Machine *m, const Group *x, size_t kind, uint64_t bytes)
{
    return (double)collective_cost(m, &x->c.groups[0], x->c.resources, kinds[kind], bytes, 1)
               .solo_ns /
           1e3;
}

/* What nccl-tests would print on the machine, 1 KiB to 4 GiB. */
static void write_log(const char *path, const Machine *m)
{
    Group x;
    FILE *f = fopen(path, "w");
    ASSERT(f);
    if (!group_of_all(&x, m))
        return;
    for (size_t k = 0; k < ARRAY_N(kinds); k++) {
        fprintf(f, "# Collective test starting: %s_perf\n# nThread 1 nGpus 1\n", programs[k]);
        for (uint32_t r = 0; r < m->gpus_n; r++)
            fprintf(f, "# Rank %u Group 0 Pid 1 on host%u device %u [0000:00:00] GPU\n",
                    (unsigned)r, (unsigned)machine_place(m, r).node, (unsigned)r);
        fprintf(f, "# size count type redop root time algbw busbw #wrong\n");
        for (uint64_t bytes = KIB; bytes <= 4 * GIB; bytes *= 2)
            fprintf(f, "%" PRIu64 " 1 float sum -1 %.3f 1 1 0\n", bytes,
                    time_us(m, &x, k, bytes));
    }
    fclose(f);
    classes_free(&x.c);
    graph_free(&x.g);
}

static void check_same_times(const char *true_path, const char *path)
{
    Machine truth, fitted;
    Group a, b;
    double is[256], should[256], worst = 0;
    uint32_t n = 0;
    if (!open_machine(&truth, true_path) || !open_machine(&fitted, path) ||
        !group_of_all(&a, &truth) || !group_of_all(&b, &fitted))
        return;
    for (size_t k = 0; k < ARRAY_N(kinds); k++)
        for (uint64_t bytes = KIB; bytes <= 4 * GIB; bytes *= 2) {
            should[n] = time_us(&truth, &a, k, bytes);
            is[n] = time_us(&fitted, &b, k, bytes);
            worst = fmax(worst, fabs(is[n] / should[n] - 1));
            n++;
        }
    CalibrateErrors e = calibrate_errors(should, is, n, NULL, 0);
    printf("test_calibrate: %s: median %.2f %%, p90 %.2f %%, worst %.2f %% off\n",
           strrchr(path, '/') + 1, e.median_pct, e.p90_pct, 100 * worst);
    CHECK(e.p90_pct < 1);
    CHECK(worst < 0.02);
    classes_free(&a.c);
    classes_free(&b.c);
    graph_free(&a.g);
    graph_free(&b.g);
    machine_free(&truth);
    machine_free(&fitted);
}

/*
 * Another machine's times, measured without noise, are met: nine of ten within 1 %, those where
 * two protocols are as good, and a latency that few rows answer to decides, within 2 %.
 */
static void a_simulated_cluster_is_found_again(void)
{
    static const char *const shapes[] = { "\"nodes\": 1", "\"nodes\": 4" };
    for (size_t i = 0; i < ARRAY_N(shapes); i++) {
        Arena arena = { 0 };
        Machine m;
        const char *truth = in_folder(&arena, "truth.json"), *log = in_folder(&arena, "a.log");
        const char *into = in_folder(&arena, i ? "four.json" : "one.json");
        write_text(truth,
                   arena_printf(
                       &arena,
                       "{\"base\": \"dgx-h100\", %s, \"collectives\": {"
                       "\"intra_efficiency\": [[8, 0.70], [32, 0.6]], "
                       "\"inter_efficiency\": 0.8, \"nvls_efficiency\": [[4, 0.4], [8, 0.5]], "
                       "\"nvls_us\": 50, \"base_latency_us\": {\"LL\": 9, \"LL128\": 20, "
                       "\"Simple\": 31}}}",
                       shapes[i]));
        write_text(into, arena_printf(&arena, "{\"base\": \"dgx-h100\", %s}\n", shapes[i]));
        if (open_machine(&m, truth)) {
            write_log(log, &m);
            machine_free(&m);
            CHECK_INT(EXIT_DONE, calibrate(&arena, (const char *[]){ log, "--into", into }, 3));
            check_same_times(truth, into);
        }
        arena_free(&arena);
    }
}

#define LINE(op, latency, rate) \
    "{\"op\": \"" op "\", \"ranks\": 8, \"nodes\": 1, \"latency_us\": " latency \
    ", \"GBps\": " rate "}"
#define KEPT \
    "{\"op\": \"reduce\", \"ranks\": 4, \"nodes\": 1, \"latency_us\": 5, \"GBps\": 7, " \
    "\"fit\": \"by hand\"}"

static const MeasuredCollective *entry_of(const Machine *m, OpKind op)
{
    for (uint32_t i = 0; i < m->measured_n; i++)
        if (m->measured[i].op == op)
            return &m->measured[i];
    return NULL;
}

static char *text_of(const char *path)
{
    char *text = mem_zero(1 << 16, 1);
    FILE *f = fopen(path, "r");
    ASSERT(f);
    CHECK(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* Latency and bandwidth of each collective that a file overrides are read, simulated, logged,
 * and found again; an entry of another collective stays as it was. */
static void measured_collectives_come_back(void)
{
    static const double latency_us[] = { 30, 12.5, 40, 21 }, rate[] = { 200, 310, 280, 150 };
    Arena arena = { 0 };
    Machine truth, m;
    const char *truth_path = in_folder(&arena, "lines.json"), *log = in_folder(&arena, "b.log");
    const char *into = in_folder(&arena, "found.json");
    write_text(
        truth_path,
        "{\"base\": \"dgx-h100\", \"collectives\": {\"measured\": [" LINE(
            "all_reduce", "30",
            "200") "," LINE("all_gather", "12.5",
                            "310") "," LINE("reduce_scatter", "40",
                                            "280") "," LINE("broadcast", "21", "150") "]}}");
    write_text(into, "{\"base\": \"dgx-h100\", \"collectives\": {\"measured\": [" KEPT
                     "," LINE("broadcast", "1", "1") "]}}");
    if (open_machine(&truth, truth_path)) {
        write_log(log, &truth);
        machine_free(&truth);
        CHECK_INT(EXIT_DONE, calibrate(&arena, (const char *[]){ log, "--into", into }, 3));
    }
    if (open_machine(&m, into)) {
        CHECK_INT(ARRAY_N(kinds) + 1, m.measured_n);
        for (size_t k = 0; k < ARRAY_N(kinds); k++) {
            const MeasuredCollective *e = entry_of(&m, kinds[k]);
            if (!CHECK(e != NULL))
                continue;
            CHECK_NEAR(latency_us[k], e->latency_ns / 1e3, 2e-3);
            CHECK_NEAR(rate[k], e->bytes_per_ns, 2e-3);
            CHECK(e->points_n > 20);
        }
        machine_free(&m);
        char *text = text_of(into);
        CHECK(strstr(text, "\"fit\": \"by hand\"") != NULL);
        free(text);
    }
    check_same_times(truth_path, into);
    arena_free(&arena);
}

/* ---- there and back: a GPU ---- */

static bool simulate(const char *scenario, const char *gpu, Timeline *t)
{
    Built b;
    SimResult r = { 0 };
    *t = (Timeline){ 0 };
    bool ok = built_read(&b, scenario, &(Setting){ "cluster.gpu", gpu }, 1) &&
              built_trace(t, &r, &b, false);
    sim_result_free(&r);
    built_free(&b);
    return ok;
}

static const char slow_gpu[] =
    "{\"base\": \"%s\", \"launch_us\": 6.5, \"kernel_floor_us\": 1.5,\n"
    " \"efficiency\": {\"matmul\": 0.6, \"attention\": 0.4, \"attention_bwd\": 0.3,"
    " \"memory\": 0.6}}\n";

/* Kernels and launches, op by op, of a trace that comes from a file and one simulated. */
static void check_same_spans(const Timeline *truth, const Timeline *t)
{
    double worst = 0;
    if (!CHECK_U64(truth->spans_n, t->spans_n))
        return;
    for (uint64_t i = 0; i < t->spans_n; i++) {
        SpanClass c = (SpanClass)truth->span_class[i];
        CHECK_INT(truth->op[i], t->op[i]);
        if (c == SPAN_COMPUTE || c == SPAN_LAUNCH)
            worst = fmax(worst, fabs((double)t->dur_ns[i] / (double)truth->dur_ns[i] - 1));
    }
    double end = (double)timeline_end_ns(t) / (double)timeline_end_ns(truth) - 1;
    printf("test_calibrate: kernels at most %.2f %% off, the step %.2f %%\n", 100 * worst,
           100 * end);
    CHECK(worst < 0.01);
    CHECK(fabs(end) < 0.01);
}

static void check_found_again(const char *base, const char *software)
{
    static const char model[] =
        "{\"model\": \"llama3-8b\", \"cluster\": {\"base\": \"dgx-a100\", \"gpus_per_node\": "
        "1},\n"
        " \"software\": \"%s\",\n"
        " \"training\": {\"global_batch\": 2, \"micro_batch\": 1, \"seq_len\": 2048},\n"
        " \"parallel\": {\"strategy\": \"single\"}}\n";
    Arena arena = { 0 };
    Timeline truth, fitted;
    Err err = { 0 };
    const char *gpu = in_folder(&arena, "slow.json"), *trace = in_folder(&arena, "a.lstrace");
    const char *into = in_folder(&arena, "gpu.json"), *scenario = in_folder(&arena, "s.json");
    write_text(gpu, arena_printf(&arena, slow_gpu, base));
    write_text(scenario, arena_printf(&arena, model, software));
    write_text(into, arena_printf(&arena, "{\"base\": \"%s\"}\n", base));
    if (simulate(scenario, gpu, &truth) && CHECK(native_write(&truth, trace, &err))) {
        CHECK_INT(EXIT_DONE,
                  calibrate(&arena,
                            (const char *[]){ trace, "--scenario", scenario, "--into", into },
                            5));
        if (simulate(scenario, into, &fitted))
            check_same_spans(&truth, &fitted);
        timeline_free(&fitted);
    }
    timeline_free(&truth);
    arena_free(&arena);
}

/* Times of a GPU that only the trace knows come back, op by op: of the newest attention, and of an
 * older one that has rows of its own. */
static void a_simulated_gpu_is_found_again(void)
{
    check_found_again("a100-80gb", "generic");
    check_found_again("h100-80gb", "torchtitan-2025");
}

/* ---- real logs ---- */

/* The median of a log's rows, by the report; and what the logs of one cluster give together. */
static void real_logs_are_fitted_with_these_errors(void)
{
    static const char from[] = "../shared/data/traces/nccl-tests";
    if (access(from, R_OK) != 0) {
        printf("test_calibrate: %s is not here, skipped\n", from);
        return;
    }
    static const char *const logs[] = { "nccl_N1_G8_cnode3-002.log", "nccl_N10_G1.log",
                                        "nccl_N10_G8.log" };
    Arena arena = { 0 };
    const char *into = in_folder(&arena, "real.json"), *words[8];
    int n = 0;
    write_text(into, "{\"base\": \"dgx-h100\"}\n");
    for (size_t i = 0; i < ARRAY_N(logs); i++)
        words[n++] = arena_printf(&arena, "%s/%s", from, logs[i]);
    words[n++] = "--into";
    words[n++] = into;
    CHECK_INT(EXIT_DONE, calibrate(&arena, words, n));
    Machine m;
    if (open_machine(&m, into)) {
        const IntraNode *in = &m.types[0].intra;
        printf(
            "test_calibrate: real logs: intra %.3f at 8, %.3f at 80, inter %.3f, NVLS %.3f\n",
            rank_curve_at(&in->efficiency, 8), rank_curve_at(&in->efficiency, 80),
            m.inter.efficiency, rank_curve_at(&in->nvls_efficiency, 8));
        /* What core/machine_links.c was fitted to, by hand, on the same machine's data. */
        CHECK_NEAR(0.81, rank_curve_at(&in->efficiency, 8), 0.06);
        CHECK_NEAR(0.975, m.inter.efficiency, 0.03);
        CHECK_NEAR(0.612, rank_curve_at(&in->nvls_efficiency, 8), 0.02);
        machine_free(&m);
    }
    /* What it says itself of rows that it has not seen. */
    char *text = text_of(into), *at = strstr(text, "median error of the model ");
    double model = 99, sizes = 99, whole = 99, table = 99;
    CHECK(at &&
          sscanf(at,
                 "median error of the model %lf %%, of left-out sizes %lf %%, of left-out "
                 "logs %lf %%; of the table's left-out sizes %lf",
                 &model, &sizes, &whole, &table) == 4);
    printf("test_calibrate: real logs: model %.1f %%, left-out sizes %.1f %%, left-out logs "
           "%.1f %%, table's left-out sizes %.1f %%\n",
           model, sizes, whole, table);
    CHECK(model < 1.8 && sizes < 2.2 && whole < 4 && table < 1);
    free(text);
    arena_free(&arena);
}

static void remove_folder(void)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    if (dir)
        closedir(dir);
    rmdir(folder);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    RUN(known_numbers_come_back);
    RUN(an_outlier_moves_little);
    RUN(a_choice_that_turns_is_followed);
    RUN(what_rows_do_not_say_stays);
    RUN(left_out_rows_are_predicted_by_the_others);
    RUN(lines_give_latency_and_bandwidth);
    RUN(one_value_changes_and_nothing_else);
    RUN(a_simulated_cluster_is_found_again);
    RUN(measured_collectives_come_back);
    RUN(a_simulated_gpu_is_found_again);
    RUN(real_logs_are_fitted_with_these_errors);
    remove_folder();
    return check_report();
}
