/*
 * planner_json.c - a plan as `plan --json` prints it.
 *
 *     {"best":{"set":[...],"training":{},"parallel":{},"cluster":{}, report keys as sim has them},
 *      "candidates":[{...}], "pareto":[{...}], "evaluated", "pruned", "pruned_by":{}, "why":[]}
 *
 * "set" holds what `lockstep sim --set` takes to have the candidate again; the
 * objects hold the same as scenario keys.  Costs are those of so many "gpus"; "whole_nodes_gpus"
 * are as many as are on their nodes.
 */
#include <string.h>

#include "sim/planner.h"

static void write_settings(const Plan *p, const PlanCandidate *c, JsonOut *j)
{
    char settings[PLAN_SETTINGS_MAX][PLAN_SETTING_CAP];
    uint32_t n = plan_settings(settings, p, c);
    const Setting *other;
    json_put_open(j, "set", '[');
    for (uint32_t i = 0; (other = plan_other_setting(p, settings, n, i)); i++) {
        Arena text = { 0 };
        json_out_string(j, arena_printf(&text, "%s=%s", other->key, other->value));
        arena_free(&text);
    }
    for (uint32_t i = 0; i < n; i++)
        json_out_string(j, settings[i]);
    json_out_close(j, ']');
}

static void write_keys(const Plan *p, const PlanCandidate *c, JsonOut *j)
{
    const Scenario *base = &p->bases[c->base];
    json_put_open(j, "training", '{');
    json_put_uint(j, "global_batch", base->training.global_batch);
    json_put_uint(j, "micro_batch", c->micro_batch);
    json_put_uint(j, "seq_len", base->training.seq_len);
    json_put_text(j, "precision", dtype_names[base->training.precision]);
    if (c->recompute == RECOMPUTE_LAYERS) {
        json_put_open(j, "recompute", '{');
        json_put_uint(j, "layers", c->recompute_layers);
        json_out_close(j, '}');
    } else {
        json_put_text(j, "recompute", recompute_names[c->recompute]);
    }
    json_out_close(j, '}');
    json_put_open(j, "parallel", '{');
    json_put_text(j, "strategy", strategy_names[c->strategy]);
    json_put_uint(j, "dp", c->dp);
    json_put_uint(j, "tp", c->tp);
    json_put_uint(j, "pp", c->pp);
    json_put_uint(j, "cp", c->cp);
    json_put_uint(j, "ep", c->ep);
    json_put_text(j, "schedule", schedule_names[c->schedule]);
    json_put_uint(j, "virtual_stages", c->virtual_stages);
    json_put_bool(j, "sequence_parallel", c->sequence_parallel);
    if (c->stage_layers) {
        json_put_open(j, "stage_layers", '[');
        for (uint32_t i = 0; i < c->pp * c->virtual_stages; i++)
            json_out_number(j, c->stage_layers[i]);
        json_out_close(j, ']');
    }
    if (c->strategy == STRATEGY_HSDP)
        json_put_uint(j, "shard_size", c->shard_size);
    json_out_close(j, '}');
    json_put_open(j, "cluster", '{');
    json_put_text(j, "name", base->machine.name);
    json_put_uint(j, "nodes", base->machine.nodes_n);
    json_out_close(j, '}');
}

static void write_training(const Plan *p, const PlanCandidate *c, JsonOut *j)
{
    if (p->options->tokens <= 0)
        return;
    const PlanRun run = plan_training(p, c);
    json_put_open(j, "run", '{');
    json_put_number(j, "tokens", p->options->tokens);
    json_put_number(j, "steps", run.steps);
    json_put_number(j, "days", run.days);
    json_put_number(j, "gpu_hours", run.gpu_hours);
    json_put_number(j, "cost_usd", run.cost_usd);
    json_put_number(j, "gpu_MWh_at_tdp", run.gpu_mwh);
    json_put_number(j, "gpu_failures", run.failures);
    json_out_close(j, '}');
}

static void write_results(const Plan *p, const PlanCandidate *c, JsonOut *j)
{
    json_put_uint(j, "gpus", plan_gpus(c));
    json_put_number(j, "step_time_s", c->step_s);
    json_put_bool(j, "extrapolated", c->extrapolated);
    json_put_number(j, "samples_per_s", c->samples_per_s);
    json_put_number(j, "tokens_per_s", c->tokens_per_s);
    json_put_number(j, "mfu", c->mfu);
    json_put_number(j, "exposed_comm_s", c->exposed_s);
    json_put_number(j, "bubble_s", c->bubble_s);
    json_put_number(j, "cost_usd_per_step", c->cost_usd);
    json_put_uint(j, "whole_nodes_gpus", plan_whole_nodes_gpus(p, c));
    json_put_open(j, "memory", '{');
    json_put_uint(j, "reserved_bytes", c->need_bytes);
    json_put_uint(j, "gpu_bytes", c->gpu_bytes);
    json_out_close(j, '}');
    if (c->expanded_s > 0)
        json_put_number(j, "step_time_expanded_s", c->expanded_s);
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

static void write_best(const Plan *p, JsonOut *j)
{
    const PlanCandidate *c = &p->candidates[p->order[0]];
    json_put_open(j, "best", '{');
    json_put_text(j, "name", p->bases[c->base].name);
    json_put_text(j, "scenario", p->options->scenario);
    write_settings(p, c, j);
    write_keys(p, c, j);
    json_put_uint(j, "gpus", p->best.gpus);
    json_put_uint(j, "whole_nodes_gpus", plan_whole_nodes_gpus(p, c));
    json_put_text(j, "strategy", p->best.strategy);
    report_results_json(&p->best, j);
    json_put_number(j, "step_time_expanded_s", c->expanded_s);
    write_training(p, c, j);
    json_out_close(j, '}');
    json_put_bool(j, "order_kept", p->order_kept);
    json_put_text(j, "order_note", p->order_note);
}

static void write_counts(const Plan *p, JsonOut *j)
{
    static const char *const keys[PLAN_FATE_N] = {
        [PLAN_ABOVE_BOUND] = "memory_bound",
        [PLAN_TOO_LARGE] = "memory",
        [PLAN_NEEDLESS] = "needless_recompute",
        [PLAN_TOO_SLOW] = "time_bound",
        [PLAN_REFUSED] = "refused",
    };
    json_put_uint(j, "evaluated", p->fates[PLAN_SIMULATED]);
    json_put_uint(j, "pruned", p->n - p->fates[PLAN_SIMULATED]);
    json_put_open(j, "pruned_by", '{');
    for (int f = PLAN_SIMULATED + 1; f < PLAN_FATE_N; f++)
        json_put_uint(j, keys[f], p->fates[f]);
    json_out_close(j, '}');
}

static void write_list(const Plan *p, const char *key, const uint32_t *list, uint32_t n,
                       JsonOut *j)
{
    json_put_open(j, key, '[');
    for (uint32_t i = 0; i < n; i++)
        write_candidate(p, &p->candidates[list[i]], j);
    json_out_close(j, ']');
}

void plan_json(const Plan *p, JsonOut *j)
{
    json_out_open(j, '{');
    json_put_text(j, "objective", plan_objective_names[p->options->objective]);
    write_best(p, j);
    write_list(p, "candidates", p->order, p->order_n, j);
    write_list(p, "pareto", p->front, p->front_n, j);
    write_counts(p, j);
    json_put_open(j, "missing", '[');
    for (uint32_t i = 0; i < p->missing_n; i++) {
        json_out_open(j, '{');
        json_put_uint(j, "gpus", p->missing[i].gpus);
        json_put_text(j, "why", p->missing[i].why);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
    json_put_open(j, "why", '[');
    for (uint32_t i = 0; i < p->why_n; i++)
        json_out_string(j, p->why[i]);
    json_out_close(j, ']');
    json_out_close(j, '}');
}
