/*
 * planner_json.c - a plan as `plan --json` prints it.
 *
 *     {"best":{"set":[...],"training":{},"parallel":{},"cluster":{}, report keys ...},
 *      "candidates":[{...}], "pareto":[{...}], "evaluated", "pruned", "pruned_by":{}, "why":[]}
 *
 * "set" holds what `lockstep sim --set` takes to have the candidate again; the
 * objects hold the same as scenario keys.
 */
#include <math.h>
#include <string.h>

#include "sim/planner.h"

static void put_number(JsonOut *j, const char *key, double x)
{
    json_out_key(j, key);
    json_out_number(j, x);
}

static void put_int(JsonOut *j, const char *key, uint64_t x)
{
    json_out_key(j, key);
    json_out_int(j, (int64_t)x);
}

static void put_text(JsonOut *j, const char *key, const char *x)
{
    json_out_key(j, key);
    json_out_string(j, x);
}

static void put_bool(JsonOut *j, const char *key, bool x)
{
    json_out_key(j, key);
    json_out_bool(j, x);
}

static void begin(JsonOut *j, const char *key, char bracket)
{
    json_out_key(j, key);
    json_out_open(j, bracket);
}

static void write_settings(const Plan *p, const PlanCandidate *c, JsonOut *j)
{
    char settings[PLAN_SETTINGS_MAX][PLAN_SETTING_CAP];
    uint32_t n = plan_settings(settings, p, c);
    begin(j, "set", '[');
    for (uint32_t i = 0; i < n; i++)
        json_out_string(j, settings[i]);
    json_out_close(j, ']');
}

static void write_keys(const Plan *p, const PlanCandidate *c, JsonOut *j)
{
    const Scenario *base = &p->bases[c->base];
    begin(j, "training", '{');
    put_int(j, "global_batch", base->training.global_batch);
    put_int(j, "micro_batch", c->micro_batch);
    put_int(j, "seq_len", base->training.seq_len);
    put_text(j, "precision", dtype_names[base->training.precision]);
    put_text(j, "recompute", plan_recompute_names[c->recompute]);
    json_out_close(j, '}');
    begin(j, "parallel", '{');
    put_text(j, "strategy", strategy_names[c->strategy]);
    put_int(j, "dp", c->dp);
    put_int(j, "tp", c->tp);
    put_int(j, "pp", c->pp);
    put_int(j, "cp", c->cp);
    put_int(j, "ep", 1);
    put_text(j, "schedule", schedule_names[c->schedule]);
    put_int(j, "virtual_stages", c->virtual_stages);
    put_bool(j, "sequence_parallel", c->sequence_parallel);
    if (c->strategy == STRATEGY_HSDP)
        put_int(j, "shard_size", c->shard_size);
    json_out_close(j, '}');
    begin(j, "cluster", '{');
    put_text(j, "name", base->machine.name);
    put_int(j, "nodes", base->machine.nodes_n);
    json_out_close(j, '}');
}

static void write_training(const Plan *p, const PlanCandidate *c, JsonOut *j)
{
    if (p->options->tokens <= 0)
        return;
    const PlanRun run = plan_training(p, c);
    begin(j, "run", '{');
    put_number(j, "tokens", p->options->tokens);
    put_number(j, "steps", run.steps);
    put_number(j, "days", run.days);
    put_number(j, "gpu_hours", run.gpu_hours);
    put_number(j, "cost_usd", run.cost_usd);
    json_out_close(j, '}');
}

static void write_results(const Plan *p, const PlanCandidate *c, JsonOut *j)
{
    put_int(j, "gpus", plan_gpus(c));
    put_number(j, "step_time_s", c->step_s);
    put_number(j, "samples_per_s", c->samples_per_s);
    put_number(j, "tokens_per_s", c->tokens_per_s);
    put_number(j, "mfu", c->mfu);
    put_number(j, "exposed_comm_s", c->exposed_s);
    put_number(j, "bubble_s", c->bubble_s);
    put_number(j, "cost_usd_per_step", c->cost_usd);
    begin(j, "memory", '{');
    put_int(j, "reserved_bytes", c->need_bytes);
    put_int(j, "gpu_bytes", c->gpu_bytes);
    json_out_close(j, '}');
    if (c->expanded_s > 0)
        put_number(j, "step_time_expanded_s", c->expanded_s);
    write_training(p, c, j);
}

static void write_candidate(const Plan *p, const PlanCandidate *c, JsonOut *j)
{
    json_out_open(j, '{');
    write_settings(p, c, j);
    write_keys(p, c, j);
    write_results(p, c, j);
    json_out_close(j, '}');
}

static void write_report_memory(const ReportMemory *m, JsonOut *j)
{
    static const char *const keys[TENSOR_CLASS_N] = { "params_bytes", "grads_bytes",
                                                      "optimizer_bytes", "activations_bytes",
                                                      "buffers_bytes" };
    begin(j, "memory", '{');
    put_int(j, "peak_bytes", m->peak_bytes);
    put_int(j, "reserved_bytes", m->reserved_bytes);
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        put_int(j, keys[c], m->of_class[c]);
    put_int(j, "gpu_bytes", m->gpu_bytes);
    json_out_close(j, '}');
}

static void write_report(const Plan *p, JsonOut *j)
{
    static const char *const keys[] = { "step_time_s",
                                        "samples_per_s",
                                        "tokens_per_s",
                                        "tokens_per_s_per_gpu",
                                        "model_tflops_per_gpu",
                                        "hardware_tflops_per_gpu",
                                        "mfu",
                                        "hfu",
                                        "compute_s",
                                        "comm_s",
                                        "overlapped_s",
                                        "exposed_comm_s",
                                        "overlap_pct",
                                        "bubble_s",
                                        "idle_s",
                                        "cost_usd_per_step" };
    const Report *r = &p->best;
    put_int(j, "gpus", r->gpus);
    put_text(j, "strategy", r->strategy);
    for (size_t i = 0; i < ARRAY_N(keys); i++) {
        double x = NAN;
        ASSERT(report_value(r, keys[i], &x));
        put_number(j, keys[i], x);
    }
    write_report_memory(report_memory(r), j);
    put_bool(j, "fits", r->fits);
}

static void write_best(const Plan *p, JsonOut *j)
{
    const PlanCandidate *c = &p->candidates[p->order[0]];
    char note[512];
    begin(j, "best", '{');
    put_text(j, "name", p->bases[c->base].name);
    put_text(j, "scenario", p->options->scenario);
    write_settings(p, c, j);
    write_keys(p, c, j);
    write_report(p, j);
    put_number(j, "step_time_expanded_s", c->expanded_s);
    write_training(p, c, j);
    json_out_close(j, '}');
    put_bool(j, "order_kept", plan_keeps_order(p, note));
    put_text(j, "order_note", note);
}

static void write_counts(const Plan *p, JsonOut *j)
{
    static const char *const keys[PLAN_FATE_N] = {
        [PLAN_ABOVE_BOUND] = "memory_bound",
        [PLAN_TOO_LARGE] = "memory",
        [PLAN_NEEDLESS] = "needless_recompute",
        [PLAN_REFUSED] = "refused",
    };
    put_int(j, "evaluated", p->fates[PLAN_SIMULATED]);
    put_int(j, "pruned", p->n - p->fates[PLAN_SIMULATED]);
    begin(j, "pruned_by", '{');
    for (int f = PLAN_SIMULATED + 1; f < PLAN_FATE_N; f++)
        put_int(j, keys[f], p->fates[f]);
    json_out_close(j, '}');
}

static void write_list(const Plan *p, const char *key, const uint32_t *list, uint32_t n,
                       JsonOut *j)
{
    begin(j, key, '[');
    for (uint32_t i = 0; i < n; i++)
        write_candidate(p, &p->candidates[list[i]], j);
    json_out_close(j, ']');
}

void plan_json(const Plan *p, JsonOut *j)
{
    json_out_open(j, '{');
    put_text(j, "objective", plan_objective_names[p->options->objective]);
    write_best(p, j);
    write_list(p, "candidates", p->order, p->order_n, j);
    write_list(p, "pareto", p->front, p->front_n, j);
    write_counts(p, j);
    begin(j, "why", '[');
    for (uint32_t i = 0; i < p->why_n; i++)
        json_out_string(j, p->why[i]);
    json_out_close(j, ']');
    json_out_close(j, '}');
}
