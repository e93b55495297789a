/*
 * cmd_bench.c - lockstep bench PART: what this machine takes for kernels and transfers.
 *
 *     options -> kernels worth measuring -> ranks, each through the parts together
 *     rank 0 writes the report as JSON into a file that its starter has open; that is
 *     shown, kept (--out), or made a GPU's file of (no part named: cpu.json).
 */
#include "exec/cmd_bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/nearest.h"
#include "core/out_file.h"
#include "core/temporary.h"
#include "core/text.h"
#include "exec/cmd.h"
#include "exec/shared.h"
#include "profile/cmd_calibrate.h"
#include "sim/cmd_options.h"

/* No GPU's last-level cache is larger (H100 50 MB, H200 60 MB, B200 126 MB). */
#define GPU_CACHE_BYTES (128 * MIB)

enum { RANKS_DEFAULT_MAX = 4, RANKS_MAX = 1024, TIMEOUT_S = 120, SECONDS_MAX = 86400 };

enum {
    OPT_BACKEND = 1,
    OPT_RANKS,
    OPT_SECONDS,
    OPT_CACHE,
    OPT_COMM,
    OPT_OUT,
    OPT_INTO,
    OPT_JSON,
    OPT_SET
};

static const struct option table[] = { { "backend", required_argument, NULL, OPT_BACKEND },
                                       { "ranks", required_argument, NULL, OPT_RANKS },
                                       { "seconds", required_argument, NULL, OPT_SECONDS },
                                       { "cache", required_argument, NULL, OPT_CACHE },
                                       { "comm", required_argument, NULL, OPT_COMM },
                                       { "out", required_argument, NULL, OPT_OUT },
                                       { "into", required_argument, NULL, OPT_INTO },
                                       { "json", no_argument, NULL, OPT_JSON },
                                       { "set", required_argument, NULL, OPT_SET },
                                       { "help", no_argument, NULL, OPTION_HELP },
                                       { NULL, 0, NULL, 0 } };

static void print_help(FILE *f)
{
    fprintf(
        f,
        "usage: lockstep bench [gemm|memory|overlap|collective] [SCENARIO...] [OPTION]...\n"
        "Measures what a GPU's or cluster's file is made of, with the executor's own kernels\n"
        "and transfers: matmuls and attention (gemm), kernels limited by memory, launches and\n"
        "copies (memory), how much kernels and transfers slow each other (overlap), and\n"
        "transfers between ranks by size (collective).  Kernels are those of the scenarios\n"
        "given, else of the built-in models at tensor parallel 1, 2, 4 and 8, the most\n"
        "valuable first.  Without a part: all of them, and a GPU's file is made of what comes\n"
        "out, with a cluster's beside it.\n\n"
        "  --backend cpu|cuda  what is measured; cpu\n"
        "  --ranks N           all do the same at once; as many as processors, at most 4; on "
        "GPUs 1\n"
        "  --seconds S         of each part, about; 20, 10, 5, 5; on GPUs 60, 20, 15, 15\n"
        "  --cache cold|warm   operands come from memory, or stay in the caches; warm, on GPUs "
        "cold\n"
        "  --comm nccl|loop    on GPUs: NCCL, or all ranks on one GPU; nccl\n"
        "  --out FILE          keeps what was measured, as JSON, for `lockstep calibrate`\n"
        "  --into FILE         without a part: the GPU's file; gpus/cpu.json of the built-in "
        "ones\n"
        "  --set KEY=VALUE     changes a key of the scenarios; repeatable\n"
        "  --json              prints one JSON object\n");
}

typedef struct Options {
    BenchOptions o;
    SettingList set;
} Options;

static bool take_word(bool *second, const char *option, const char *a, const char *b, Err *err)
{
    *second = strcmp(optarg, b) == 0;
    return *second || strcmp(optarg, a) == 0 ||
           err_set(err, "unknown %s '%.60s'; %s and %s are allowed", option, optarg, a, b);
}

static bool take_number(uint64_t *x, const char *name, uint64_t max, Err *err)
{
    return option_count(x, name, optarg, 1, max, err);
}

static bool take(void *user, int option, Err *err)
{
    Options *options = user;
    BenchOptions *o = &options->o;
    uint64_t n = 0;
    bool ok = true;
    switch (option) {
    case OPT_BACKEND:
        return take_word(&o->cuda, "backend", "cpu", "cuda", err);
    case OPT_CACHE:
        o->cache_given = true;
        return take_word(&o->warm, "cache", "cold", "warm", err);
    case OPT_COMM:
        return take_word(&o->loop, "comm", "nccl", "loop", err);
    case OPT_RANKS:
        ok = take_number(&n, "--ranks", RANKS_MAX, err);
        o->ranks = (uint32_t)n;
        return ok;
    case OPT_SECONDS:
        ok = take_number(&n, "--seconds", SECONDS_MAX, err);
        o->seconds = (double)n;
        return ok;
    case OPT_OUT:
        o->out = optarg;
        return true;
    case OPT_INTO:
        o->into = optarg;
        return true;
    case OPT_SET:
        return option_set(&options->set, optarg, err);
    default:
        return o->json = true;
    }
}

static int part_of(const char *word)
{
    for (int i = 0; i < BENCH_PART_N; i++)
        if (strcmp(word, bench_part_names[i]) == 0)
            return i;
    return BENCH_PART_N;
}

/* D/x.json -> D/x-cluster.json; the built-in gpus/cpu.json -> clusters/cpu.json */
static void paths_of(const BenchOptions *o, char *gpu, char *cluster, size_t size)
{
    const char *into = o->into, *name = o->cuda ? "this-gpu" : "cpu";
    if (!into) {
        snprintf(gpu, size, "%s/gpus/%s.json", share_dir(), name);
        snprintf(cluster, size, "%s/clusters/%s.json", share_dir(), name);
        return;
    }
    snprintf(gpu, size, "%s", into);
    snprintf(cluster, size, "%.*s-cluster.json", (int)(strlen(into) - strlen(".json")), into);
}

/* What is kept with --out is not written over by the files made of it. */
static bool outputs_differ(const BenchOptions *o, Err *err)
{
    char gpu[1024], cluster[1024];
    paths_of(o, gpu, cluster, sizeof gpu);
    if (o->all && o->out && out_file_will_be_same(o->out, gpu))
        return err_set(err, "--out and %s are both '%.200s'",
                       o->into ? "--into" : "the GPU's file", gpu);
    if (o->all && o->out && out_file_will_be_same(o->out, cluster))
        return err_set(err, "--out and the cluster's file are both '%.200s'", cluster);
    return true;
}

static bool take_arguments(BenchOptions *o, char **words, uint32_t n, Err *err)
{
    uint32_t parts = 0;
    for (; parts < n && part_of(words[parts]) < BENCH_PART_N; parts++)
        o->part[part_of(words[parts])] = true;
    o->all = parts == 0;
    o->warm = o->cache_given ? o->warm : !o->cuda;
    for (int i = 0; i < BENCH_PART_N && o->all; i++)
        o->part[i] = true;
    o->scenarios = words + parts;
    o->scenarios_n = n - parts;
    for (uint32_t i = parts; i < n; i++)
        if (part_of(words[i]) < BENCH_PART_N)
            return err_set(err, "parts stand before scenarios: '%s' is one, '%.60s' is not",
                           words[i], words[parts]);
    for (uint32_t i = parts; i < n; i++) {
        const char *meant = nearest(words[i], bench_part_names, BENCH_PART_N);
        if (meant)
            return err_set(err, "'%.60s' is no part and no scenario, did you mean '%s'?",
                           words[i], meant);
    }
    if (o->settings_n > 0 && o->scenarios_n == 0)
        return err_set(err, "--set changes a scenario, and none is given");
    if (o->into && !o->all)
        return err_set(err, "--into makes a file of all parts; for one of them use --out FILE "
                            "and lockstep calibrate FILE");
    if (o->into && !text_ends_in(o->into, ".json"))
        return err_set(err, "--into takes a file that ends in .json, not '%.200s'", o->into);
    if (o->loop && !o->cuda)
        return err_set(err, "--comm loop is for --backend cuda");
    return outputs_differ(o, err);
}

/* ---- ranks ---- */

typedef struct Bench {
    const BenchOptions *o;
    BenchCases cases;
    BenchHost host;
    uint32_t ranks;
    char device[128], versions[128];
    FILE *json, *text; /* of rank 0, for its starter */
} Bench;

static bool measure(Bench *b, BenchReport *r, BenchRank *rank, Err *err)
{
    for (int i = 0; i < BENCH_PART_N; i++) {
        if (!b->o->part[i])
            continue;
        if (rank->rank == 0)
            fprintf(stderr, "lockstep: measuring %s\n", bench_part_names[i]);
        if (!bench_part((BenchPart)i, r, &b->cases, rank, err))
            return false;
    }
    return true;
}

static bool show(Bench *b, const BenchReport *r, Err *err)
{
    if (!bench_show_json(r, b->json, err))
        return false;
    bench_show_text(r, b->text);
    return (fflush(b->json) == 0 && fflush(b->text) == 0) ||
           err_set(err, "cannot keep the results: %s", strerror(errno));
}

static bool has_rows(const BenchReport *r)
{
    return r->kernels_n > 0 || r->overlaps_n > 0 || r->collectives_n > 0;
}

static uint64_t arena_bytes(const Bench *b)
{
    return b->o->cuda ? 2 * MIB
                      : bench_arena_bytes(b->o, &b->cases, b->host.cache_bytes, b->ranks);
}

/* Of a part that fails, those before it are shown. */
static int run_rank(const RankPlace *place, void *user)
{
    Bench *b = user;
    BenchRank rank;
    BenchReport r = { .o = b->o,
                      .host = b->host,
                      .ranks = b->ranks,
                      .cases_n = b->cases.n,
                      .scenarios_n = b->cases.scenarios_n };
    Err err = { 0 };
    snprintf(r.device, sizeof r.device, "%s", b->device);
    snprintf(r.versions, sizeof r.versions, "%s", b->versions);
    bool ok = bench_device_open(&rank, b->o, place, &err) &&
              fabric_open(&rank.fabric, place, arena_bytes(b), &err);
    bool opened = ok;
    ok = ok && measure(b, &r, &rank, &err);
    if (opened && place->rank == 0 && (ok || has_rows(&r))) {
        Err in_show = { 0 };
        ok = show(b, &r, ok ? &err : &in_show) && ok;
    }
    if (!ok && (place->rank == 0 || !rank.fabric))
        fprintf(stderr, "lockstep: %s\n", err.text);
    fabric_close(rank.fabric);
    bench_device_close(&rank);
    bench_report_free(&r);
    return ok ? EXIT_DONE : EXIT_COULD_NOT;
}

static uint32_t ranks_wanted(const Bench *b)
{
    if (b->o->ranks > 0)
        return b->o->ranks;
    uint32_t most =
        b->host.processors < RANKS_DEFAULT_MAX ? b->host.processors : RANKS_DEFAULT_MAX;
    return b->o->cuda ? 1 : most;
}

static bool check_ranks(const Bench *b, Err *err)
{
    bool between = b->o->part[BENCH_OVERLAP] || b->o->part[BENCH_COLLECTIVE];
    bool only = !b->o->part[BENCH_GEMM] && !b->o->part[BENCH_MEMORY];
    return b->ranks > 1 || !between || !only ||
           err_set(err, "transfers are between ranks: --ranks 2 or more");
}

/* ---- what is done with the results ---- */

static char *read_all(FILE *f)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    char part[4096];
    ASSERT(out);
    rewind(f);
    for (size_t k; (k = fread(part, 1, sizeof part, f)) > 0;)
        fwrite(part, 1, k, out);
    fclose(out);
    return text;
}

static bool keep(const char *path, const char *text, Err *err)
{
    OutFile f;
    if (!out_file_open(&f, path, err))
        return false;
    out_file_write(&f, text, strlen(text));
    return out_file_commit(&f, err);
}

static bool no_temporary(Err *err)
{
    return err_set(err, "cannot make a temporary file in '%.200s': %s", temporary_folder(),
                   strerror(errno));
}

/* calibrate reads files. */
static bool make_files(const Bench *b, const char *json, Err *err)
{
    char gpu[1024], cluster[1024], path[4096];
    const char *slash;
    bool between = b->ranks > 1;
    paths_of(b->o, gpu, cluster, sizeof gpu);
    int fd = temporary_name(path, sizeof path, "bench") ? mkstemp(path) : -1;
    if (fd < 0)
        return no_temporary(err);
    close(fd);
    slash = strrchr(gpu, '/');
    const char *named = !b->o->into ? (b->o->cuda ? "this-gpu" : "cpu")
                        : slash     ? slash + 1
                                    : gpu;
    bool ok = keep(path, json, err) && calibrate_bench_new(path, gpu, cluster, named, err);
    unlink(path);
    if (ok)
        fprintf(stderr, "lockstep: wrote %s%s%s\n", gpu, between ? " and " : "",
                between ? cluster : "");
    return ok;
}

static bool spares_scenarios(const Bench *b, const char *path, Err *err)
{
    for (uint32_t i = 0; i < b->o->scenarios_n && path; i++)
        if (out_file_is_same(path, b->o->scenarios[i]))
            return err_set(err, "'%s' is the scenario itself, it is not written over", path);
    return true;
}

/* Minutes of measuring are not for nothing. */
static bool check_outputs(const Bench *b, Err *err)
{
    char gpu[1024], cluster[1024];
    paths_of(b->o, gpu, cluster, sizeof gpu);
    const char *paths[] = { b->o->out, b->o->all ? gpu : NULL, b->o->all ? cluster : NULL };
    /* The GPU's and the cluster's file may be those that an earlier bench made. */
    for (uint32_t i = 0; i < b->o->scenarios_n; i++)
        if (!scenario_spares_paths(b->o->scenarios[i], b->o->settings, b->o->settings_n, paths,
                                   1, err))
            return false;
    for (size_t i = 0; i < ARRAY_N(paths); i++)
        if (!spares_scenarios(b, paths[i], err) || !out_file_can_open(paths[i], err))
            return false;
    return true;
}

/* whole: no part has failed; else what the others measured is worth its time, but makes no files
 * of machines. */
static bool finish(const Bench *b, bool whole, Err *err)
{
    char *json = read_all(b->json), *text = read_all(b->text);
    bool out = b->o->out && *json;
    bool ok = (!out || keep(b->o->out, json, err)) &&
              (!whole || !b->o->all || make_files(b, json, err));
    if (ok)
        fputs(b->o->json ? json : text, stdout);
    if (ok && out && !whole)
        fprintf(stderr, "lockstep: what was measured before is in '%s'\n", b->o->out);
    free(json);
    free(text);
    return ok;
}

static int bench(Bench *b, Err *err)
{
    bench_host(&b->host);
    b->ranks = ranks_wanted(b);
    if (!check_ranks(b, err))
        return options_wrong("bench", err);
    if (b->o->cuda) {
        b->host.cache_bytes = GPU_CACHE_BYTES;
        bench_gpu(b->device, b->versions, sizeof b->device);
    }
    const bool *part = b->o->part;
    bool kernels = part[BENCH_GEMM] || part[BENCH_MEMORY] || part[BENCH_OVERLAP];
    if (!check_outputs(b, err) || !bench_device_find(b->o, err) ||
        (kernels &&
         (!bench_cases(&b->cases, b->o, err) || !bench_measures_any(b->o, &b->cases, err))) ||
        !shared_ranks_fit(b->ranks, b->ranks * arena_bytes(b), err))
        return EXIT_COULD_NOT;
    b->json = temporary_file("bench");
    b->text = b->json ? temporary_file("bench") : NULL;
    if (!b->text) {
        no_temporary(err);
        return EXIT_COULD_NOT;
    }
    RankPlace place = {
        .world = b->ranks, .local_n = b->ranks, .timeout_s = TIMEOUT_S, .digest = "bench"
    };
    fflush(NULL);
    int status = bench_launch(b->o, b->ranks, run_rank, b, &place);
    return finish(b, status == EXIT_DONE, err) ? status : EXIT_COULD_NOT;
}

int cmd_bench(int argc, char **argv)
{
    Options options = { 0 };
    BenchOptions *o = &options.o;
    Bench b = { .o = o };
    Err err = { 0 };
    bool help = false;
    int status = EXIT_DONE;
    bool usage = options_walk(argc, argv, table, take, &options, &help, &err);
    o->settings = options.set.settings;
    o->settings_n = options.set.n;
    if (help)
        print_help(stdout);
    else if (!usage || !take_arguments(o, argv + optind, (uint32_t)(argc - optind), &err))
        status = options_wrong("bench", &err);
    else if ((status = bench(&b, &err)) == EXIT_COULD_NOT && err.set)
        fprintf(stderr, "lockstep: %s\n", err.text);
    bench_cases_free(&b.cases);
    if (b.json)
        fclose(b.json);
    if (b.text)
        fclose(b.text);
    free(options.set.settings);
    return status;
}
