/*
 * cmd_calibrate_gpu.c - traces and the scenario that ran meet in a GPU's file.
 *
 * The scenario gives the graph that a trace's op ids belong to, its software file what
 * the training stack multiplies times with; the simulator's cost of an op says how far
 * the file was off, and is.
 *
 * `run` executes the lowering of the software `lockstep`, whatever the scenario names: of a
 * trace that is not simulated that one is tried first, unless --set says which it is.
 */
#include "profile/cmd_calibrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/calibrate_file.h"
#include "profile/calibrate_kernels.h"
#include "sim/build.h"
#include "sim/cost_parts.h"
#include "traces/set.h"

typedef struct Work {
    const CalibrateOptions *o;
    Arena arena;
    const char *software; /* instead of the scenario's; NULL: that */
    Scenario s;
    Software sw;
    Graph g;
    KernelFit fit;
    uint32_t noted_n; /* inputs whose findings have been printed */
    bool simulated;   /* is the first trace? */
} Work;

/* ---- the simulator's side ---- */

/* A simulated step goes by the slowest of its GPUs; those of one that ran differ, and the median is
 * taken. */
static Gpu as_it_ran(const Work *w, const Gpu *gpu)
{
    Gpu as = *gpu;
    as.sustained_scale =
        w->simulated ? sustained_among(gpu, w->g.world_n) : gpu->sustained_scale;
    return as;
}

static double scale(const void *user, const Op *op)
{
    const Work *w = user;
    const Gpu gpu = as_it_ran(w, w->fit.gpu);
    return op_scale(&gpu, op, &w->sw);
}

static bool rows_of(const void *user, const Op *op, AttentionKernel *rows)
{
    const Work *w = user;
    *rows = attention_rows(w->fit.gpu, op, w->sw.attention_kernel);
    return attention_is_row(w->fit.gpu, op, *rows);
}

static double predict_ns(const void *user, const Gpu *gpu, const Op *op)
{
    const Work *w = user;
    const Gpu as = as_it_ran(w, gpu);
    return (double)op_cost(&as, op, &w->sw).alone_ns;
}

static bool read_scenario(Work *w, Err *err)
{
    const CalibrateOptions *o = w->o;
    Setting *settings = PUSH_ARRAY(&w->arena, Setting, (size_t)o->settings_n + 1);
    uint32_t n = 0;
    for (; n < o->settings_n; n++)
        settings[n] = o->settings[n];
    if (w->software)
        settings[n++] = (Setting){ "software", w->software };
    return scenario_read(&w->s, o->scenario, settings, n, err) &&
           software_of(&w->sw, &w->arena, &w->s, err) && build_graph(&w->g, &w->s, &w->sw, err);
}

static const Gpu *read_gpu(Work *w, const char *text, Err *err)
{
    JsonDoc *doc = json_parse(text, strlen(text), w->o->into, err);
    const Gpu *gpu = doc ? gpu_read(&w->arena, json_root(doc), share_dir(), err) : NULL;
    json_close(doc);
    return gpu;
}

/* ---- the traces ---- */

/* Each by itself.  What is odd about it (damaged, cut short) is said once, however often it is
 * read. */
static bool read_trace(Work *w, TraceSet *s, uint32_t i, Err *err)
{
    const char *path = w->o->inputs[i];
    if (!trace_set_read(s, &path, 1, NULL, err))
        return false;
    for (size_t k = 0; k < s->findings_n && i >= w->noted_n; k++)
        fprintf(stderr, "lockstep: %s\n", s->findings[k]);
    w->noted_n = i >= w->noted_n ? i + 1 : w->noted_n;
    return true;
}

static bool read_traces(Work *w, Err *err)
{
    for (uint32_t i = 0; i < w->o->inputs_n; i++) {
        const char *path = w->o->inputs[i];
        TraceSet s;
        if (!read_trace(w, &s, i, err))
            return false;
        const Timeline *t = &s.timeline;
        bool ok = t->ranks_n == w->g.world_n ||
                  err_set(err, "'%s' has %u rank%s, the scenario '%s' has %u", path,
                          (unsigned)t->ranks_n, t->ranks_n == 1 ? "" : "s", w->o->scenario,
                          (unsigned)w->g.world_n);
        ok = ok && kernel_fit_add(&w->fit, t, path, err);
        trace_set_free(&s);
        if (!ok)
            return false;
    }
    return true;
}

static void forget(Work *w)
{
    kernel_fit_free(&w->fit);
    graph_free(&w->g);
    scenario_free(&w->s);
}

/* From the beginning, with the software given. */
static bool read_as(Work *w, const char *software, const Gpu *gpu, Err *err)
{
    forget(w);
    w->software = software;
    w->fit = (KernelFit){ .g = &w->g,
                          .gpu = gpu,
                          .model = { memory_kernel_of, scale, rows_of, predict_ns, w, 0 } };
    if (!read_scenario(w, err))
        return false;
    w->fit.model.host_scale = w->sw.host_scale;
    return read_traces(w, err);
}

static bool software_is_set(const CalibrateOptions *o)
{
    for (uint32_t i = 0; i < o->settings_n; i++)
        if (scenario_sets_software(&o->settings[i]))
            return true;
    return false;
}

/* A simulated step says what memory was allocated when; what was run does not. */
static bool find_simulated(Work *w, Err *err)
{
    TraceSet s;
    if (!read_trace(w, &s, 0, err))
        return false;
    w->simulated = s.timeline.points_n > 0;
    trace_set_free(&s);
    return true;
}

/* What fits first; where nothing does, the message of what was tried first. */
static bool read_as_it_ran(Work *w, const Gpu *gpu, Err *err)
{
    Err second = { 0 };
    if (!find_simulated(w, err))
        return false;
    if (software_is_set(w->o) || strcmp(w->s.software, "lockstep") == 0)
        return read_as(w, NULL, gpu, err);
    if (read_as(w, w->simulated ? NULL : "lockstep", gpu, err))
        return true;
    if (!read_as(w, w->simulated ? "lockstep" : NULL, gpu, &second))
        return false;
    err_clear(err);
    return true;
}

/* ---- the whole ---- */

static bool show(Work *w, const Gpu *now, Err *err)
{
    const CalibrateOptions *o = w->o;
    if (o->json) {
        kernel_fit_json(&w->fit, now, o->into, !o->dry_run, err);
        return !err->set;
    }
    printf("%s %s on %u trace%s of %s%s\n\n", o->dry_run ? "would calibrate" : "calibrated",
           o->into, (unsigned)o->inputs_n, o->inputs_n > 1 ? "s" : "", o->scenario,
           w->software ? " as `run` executes it" : "");
    kernel_fit_print(&w->fit, now);
    return true;
}

static bool calibrate(Work *w, char **text, Err *err)
{
    const CalibrateOptions *o = w->o;
    if (!read_scenario(w, err) || !(*text = calibrate_load(o->into, err)))
        return false;
    const Gpu *was = read_gpu(w, *text, err);
    if (!was)
        return err_wrap(err, "traces calibrate a GPU");
    if (!read_as_it_ran(w, was, err) || !kernel_fit_run(&w->fit, err))
        return false;
    const char *source = arena_printf(&w->arena, "lockstep calibrate on %s, scenario %s",
                                      calibrate_base_names(&w->arena, o->inputs, o->inputs_n),
                                      calibrate_base_name(o->scenario));
    *text = kernel_fit_splice(&w->fit, *text, source);
    const Gpu *now = read_gpu(w, *text, err);
    if (!now)
        return err_wrap(err, "calibrated");
    char *out = *text;
    *text = NULL;
    return calibrate_store(o, out, err) && show(w, now, err);
}

bool calibrate_gpu(const CalibrateOptions *o, Err *err)
{
    Work *w = mem_zero(1, sizeof *w);
    w->o = o;
    char *text = NULL;
    bool ok = calibrate(w, &text, err);
    free(text);
    forget(w);
    arena_free(&w->arena);
    free(w);
    return ok;
}
