/*
 * cmd_calibrate_gpu.c - traces and the scenario that ran meet in a GPU's file.
 *
 * The scenario gives the graph that a trace's op ids belong to, its software file what
 * the training stack multiplies times with; the simulator's cost of an op says how far
 * the file was off, and is.
 */
#include "profile/cmd_calibrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/calibrate_file.h"
#include "profile/calibrate_kernels.h"
#include "sim/build.h"
#include "sim/cost_parts.h"
#include "traces/formats.h"

typedef struct Work {
    const CalibrateOptions *o;
    Arena arena;
    Scenario s;
    Software sw;
    Graph g;
    KernelFit fit;
} Work;

/* ---- the simulator's side ---- */

static double scale(const void *user, const Op *op)
{
    const Work *w = user;
    double age =
        op->kind == OP_ATTENTION ? attention_age(w->fit.gpu, op, w->sw.attention_kernel) : 1;
    return w->sw.compute_scale * w->fit.gpu->sustained_scale * age;
}

static double predict_ns(const void *user, const Gpu *gpu, const Op *op)
{
    const Work *w = user;
    return (double)op_cost(gpu, op, &w->sw).alone_ns;
}

static bool read_scenario(Work *w, Err *err)
{
    if (!scenario_read(&w->s, w->o->scenario, w->o->settings, w->o->settings_n, err) ||
        !scenario_software_exists(&w->s, err))
        return false;
    return software_read(&w->sw, &w->arena, w->s.software, err) &&
           build_graph(&w->g, &w->s, &w->sw, err);
}

static const Gpu *read_gpu(Work *w, const char *text, Err *err)
{
    JsonDoc *doc = json_parse(text, strlen(text), w->o->into, err);
    const Gpu *gpu = doc ? gpu_read(&w->arena, json_root(doc), share_dir(), err) : NULL;
    json_close(doc);
    return gpu;
}

/* ---- the whole ---- */

static bool read_traces(Work *w, Err *err)
{
    for (uint32_t i = 0; i < w->o->inputs_n; i++) {
        const char *path = w->o->inputs[i];
        Timeline t;
        if (!trace_read(&t, path, err))
            return false;
        bool ok = t.ranks_n == w->g.world_n ||
                  err_set(err, "'%s' has %u ranks, the scenario '%s' has %u", path,
                          (unsigned)t.ranks_n, w->o->scenario, (unsigned)w->g.world_n);
        ok = ok && kernel_fit_add(&w->fit, &t, path, err);
        timeline_free(&t);
        if (!ok)
            return false;
    }
    return kernel_fit_run(&w->fit, err);
}

static bool show(Work *w, const Gpu *now, Err *err)
{
    const CalibrateOptions *o = w->o;
    if (o->json) {
        kernel_fit_json(&w->fit, now, o->into, !o->dry_run, err);
        return !err->set;
    }
    printf("%s %s on %u trace%s of %s\n\n", o->dry_run ? "would calibrate" : "calibrated",
           o->into, (unsigned)o->inputs_n, o->inputs_n > 1 ? "s" : "", o->scenario);
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
    w->fit =
        (KernelFit){ .g = &w->g,
                     .gpu = was,
                     .model = { memory_kernel_of, scale, predict_ns, w, w->sw.host_scale } };
    if (!read_traces(w, err))
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
    kernel_fit_free(&w->fit);
    graph_free(&w->g);
    scenario_free(&w->s);
    arena_free(&w->arena);
    free(w);
    return ok;
}
