/*
 * cmd_calibrate_cluster.c - logs of nccl-tests meet the simulator's cost of a collective.
 *
 * Rows are the out-of-place half of each line; sends and receives are their slowest
 * pair.  What predicts is sim/network.h on the cluster of the file, with as many nodes
 * as the logs have, so that a number means after the fit what it means in a simulation.
 */
#include "profile/cmd_calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/calibrate_cluster.h"
#include "profile/calibrate_file.h"
#include "sim/rank_group.h"
#include "sim/scenario.h"
#include "traces/nccl_tests.h"

typedef struct Work {
    const CalibrateOptions *o;
    NcclLog log;
    ClusterFit fit;
    const char **log_names; /* of those with rows */
    const char *bench;      /* what measured, where `lockstep bench` did; else NULL */
    uint32_t skipped_op, skipped_wrong, skipped_other;
} Work;

/* ---- rows ---- */

static void take_row(Work *w, const NcclRow *r, uint32_t log, uint32_t nth)
{
    const NcclTest *t = &w->log.tests[r->test];
    OpKind kind = measured_op_of(t->op);
    if (kind == OP_KIND_N) {
        w->skipped_op++;
        return;
    }
    if (r->wrong > 0) {
        w->skipped_wrong++;
        return;
    }
    uint32_t nodes_n = machine_nodes_of_hosts(&w->fit.stands, t->hosts_n);
    if (!nccl_row_is_sound(t, r, nodes_n)) {
        w->skipped_other++;
        return;
    }
    cluster_fit_add(&w->fit, t->op, kind,
                    (ClusterShape){ t->ranks_n, nodes_n, t->ranks_n / nodes_n }, r->size_bytes,
                    r->time_us * 1e3, log, nth);
}

/* Types, operations, roots and cycles go through the sizes again: each time from the first. */
static void take_rows(Work *w)
{
    uint32_t log = 0, nth = 0, test = NONE_U32;
    uint64_t first_bytes = 0; /* of the test */
    w->log_names = PUSH_ARRAY(&w->fit.arena, const char *, w->o->inputs_n);
    for (uint32_t i = 0; i < w->log.rows_n; i++) {
        const NcclRow *r = &w->log.rows[i];
        const char *file = w->log.tests[r->test].file;
        bool new_test = i == 0 || r->test != r[-1].test;
        if (new_test && i > 0 && file != w->log.tests[r[-1].test].file)
            log++;
        if (new_test)
            w->log_names[log] = calibrate_base_name(file);
        if (r->in_place)
            continue;
        if (r->test != test)
            first_bytes = r->size_bytes;
        test = r->test;
        nth = r->size_bytes == first_bytes ? 0 : nth;
        take_row(w, r, log, nth++);
    }
}

/* ---- predictions ---- */

static double row_ns(const RankGroup *g, const ClusterRow *r)
{
    CommCost cost;
    bool ok = rank_group_cost(&cost, g, r->kind, r->bytes, COMM_ANY);
    return ok ? (double)cost.solo_ns : NAN;
}

static void predict_rows(const ClusterFit *f, const Machine *m, double *ns)
{
    for (uint32_t s = 0; s < f->shapes_n; s++) {
        const ClusterShape *shape = &f->shapes[s];
        RankGroup g;
        Err ignored = { 0 };
        bool ok = rank_group_open(&g, m, shape->nodes_n, shape->ranks_n, &ignored);
        for (uint32_t i = 0; i < f->rows_n; i++)
            if (f->rows[i].shape == s)
                ns[i] = ok ? row_ns(&g, &f->rows[i]) : NAN;
        if (ok)
            rank_group_close(&g);
    }
}

/* ---- the whole ---- */

/* The cluster of a text, made large enough for the logs. */
static bool read_machine(const ClusterFit *f, const char *text, Machine *m, Err *err)
{
    uint32_t nodes_n = 0;
    for (uint32_t i = 0; i < f->shapes_n; i++)
        nodes_n = f->shapes[i].nodes_n > nodes_n ? f->shapes[i].nodes_n : nodes_n;
    JsonDoc *doc = json_parse(text, strlen(text), f->into, err);
    bool ok = doc && machine_read(m, json_root(doc), share_dir(), err);
    if (ok && m->nodes_n < nodes_n && m->types_n == 1) {
        char nodes[16];
        snprintf(nodes, sizeof nodes, "%u", (unsigned)nodes_n);
        machine_free(m);
        ok = json_set(doc, "nodes", nodes, err) &&
             machine_read(m, json_root(doc), share_dir(), err);
    }
    json_close(doc);
    return ok;
}

static bool read_log(Work *w, const char *path, Err *err)
{
    uint32_t rows_n = w->log.rows_n;
    const char *source = NULL;
    if (!w->o->bench)
        return nccl_log_read(&w->log, path, err);
    if (!calibrate_bench_log(&w->log, path, &source, err))
        return false;
    if (w->log.rows_n > rows_n)
        w->bench = w->bench ? arena_printf(&w->log.arena, "%s; %s", w->bench, source) : source;
    return true;
}

/* What was measured before a test failed or was cut short, or beside wrong values, is used all the
 * same. */
static void say_failed(const Work *w)
{
    for (uint32_t i = 0; i < w->log.tests_n; i++) {
        const NcclTest *t = &w->log.tests[i];
        if (t->failed)
            fprintf(stderr, "lockstep: '%.200s' says that its %.60s failed\n", t->file, t->op);
        nccl_say_cut(stderr, t);
    }
}

/* Once of each log.  Whose GPUs it should be, its user knows: it is used all the same. */
static void say_other_gpu(const Work *w)
{
    const char *gpu = w->fit.stands.types[0].gpu->name, *said = NULL;
    for (uint32_t i = 0; i < w->log.tests_n; i++) {
        const NcclTest *t = &w->log.tests[i];
        if (t->file == said || !gpu_names_differ(t->gpu, gpu, share_dir()))
            continue;
        said = t->file;
        fprintf(stderr, "lockstep: '%.200s' was measured on %.100s, '%.200s' has %.60s\n",
                t->file, t->gpu, w->o->into, gpu);
    }
}

static bool read_logs(Work *w, Err *err)
{
    for (uint32_t i = 0; i < w->o->inputs_n; i++)
        if (!read_log(w, w->o->inputs[i], err))
            return false;
    say_failed(w);
    return true;
}

/* Onto nodes as the file has them: a node may be several hosts. */
static bool place_rows(Work *w, const char *text, Err *err)
{
    cluster_fit_init(&w->fit, w->o->into, predict_rows, w->log.rows_n);
    if (!read_machine(&w->fit, text, &w->fit.stands, err))
        return err_wrap(err, "logs of nccl-tests calibrate a cluster");
    take_rows(w);
    machine_free(&w->fit.stands); /* read again, large enough for them */
    if (w->fit.rows_n > 0)
        return true;
    return err_set(
        err,
        "the logs hold no out-of-place row of a simulated collective: %u of others, %u with "
        "wrong values, %u of uneven nodes, one rank or no time",
        (unsigned)w->skipped_op, (unsigned)w->skipped_wrong, (unsigned)w->skipped_other);
}

/* "a.log, b.log (nccl-tests 2.17.8, NCCL 2.29.2, NVIDIA H100), 2026-01-31" */
static const char *sources(Work *w)
{
    Arena *arena = &w->fit.arena;
    if (w->bench)
        return w->bench;
    const char *text = calibrate_base_names(arena, w->o->inputs, w->o->inputs_n), *last = "";
    const char *stamp = "";
    const NcclTest *t = &w->log.tests[0];
    if (*t->version)
        last = arena_printf(arena, "%snccl-tests %s", last, t->version);
    if (*t->library)
        last = arena_printf(arena, "%s%sNCCL %s", last, *last ? ", " : "", t->library);
    if (*t->gpu)
        last = arena_printf(arena, "%s%s%s", last, *last ? ", " : "", t->gpu);
    for (uint32_t i = 0; i < w->log.rows_n && !*stamp; i++)
        stamp = w->log.rows[i].stamp;
    return arena_printf(arena, "%s%s%s%s%s%.10s", text, *last ? " (" : "", last,
                        *last ? ")" : "", *stamp ? ", " : "", stamp);
}

static bool show(Work *w, Err *err)
{
    ClusterFit *f = &w->fit;
    if (w->o->quiet)
        return true;
    uint64_t skipped = (uint64_t)w->skipped_op + w->skipped_wrong + w->skipped_other;
    if (w->o->json) {
        cluster_fit_json(f, w->log_names, !w->o->dry_run, skipped, err);
        return !err->set;
    }
    printf("%s %s on %s\n\n", w->o->dry_run ? "would calibrate" : "calibrated", w->o->into,
           sources(w));
    cluster_fit_print(f, w->log_names);
    if (skipped > 0)
        printf(
            "\nnot used: %u rows of collectives that are not simulated, %u with wrong values, "
            "%u of uneven nodes, one rank or no time\n",
            (unsigned)w->skipped_op, (unsigned)w->skipped_wrong, (unsigned)w->skipped_other);
    return true;
}

/* The file as it will be must read back. */
static bool check_written(const Work *w, const char *text, Err *err)
{
    Machine m;
    if (!read_machine(&w->fit, text, &m, err))
        return err_wrap(err, "calibrated");
    machine_free(&m);
    return true;
}

/* The cluster as it is, and as it was before all calibrations. */
static bool read_both(Work *w, const char *text, Err *err)
{
    if (!read_machine(&w->fit, text, &w->fit.stands, err))
        return false;
    char *was = cluster_text_before(text, w->o->into, err);
    bool ok = was && (read_machine(&w->fit, was, &w->fit.m, err) ||
                      err_wrap(err, "what is \"before\" in \"collectives\""));
    free(was);
    return ok;
}

static bool calibrate(Work *w, char **text, Err *err)
{
    if (!read_logs(w, err) || !(*text = calibrate_load(w->o->into, err)))
        return false;
    if (!place_rows(w, *text, err) || !read_both(w, *text, err))
        return false;
    if (!cluster_fit_run(&w->fit, err))
        return false;
    say_other_gpu(w);
    *text = cluster_fit_splice(&w->fit, *text, sources(w));
    if (!check_written(w, *text, err))
        return false;
    char *out = *text;
    *text = NULL;
    return calibrate_store(w->o, out, err) && show(w, err);
}

bool calibrate_cluster(const CalibrateOptions *o, Err *err)
{
    Work *w = mem_zero(1, sizeof *w);
    w->o = o;
    char *text = NULL;
    bool ok = calibrate(w, &text, err);
    free(text);
    cluster_fit_free(&w->fit);
    nccl_log_free(&w->log);
    free(w);
    return ok;
}
