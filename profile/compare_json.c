/* compare_json.c - a comparison as one JSON object; the paths are the metrics of --fail-if. */
#include "profile/compare.h"

#include <math.h>

static void put_sides(JsonOut *j, int64_t sim, int64_t real)
{
    json_put_int(j, "sim_ns", sim);
    json_put_int(j, "real_ns", real);
    json_put_number(j, "error_pct", compare_error_pct(sim, real));
}

static void put_quantity(JsonOut *j, const char *key, int64_t sim, int64_t real)
{
    json_put_open(j, key, '{');
    put_sides(j, sim, real);
    json_out_close(j, '}');
}

static void put_times(JsonOut *j, const Metrics times[COMPARE_SIDES])
{
    const Metrics *sim = &times[COMPARE_SIM], *real = &times[COMPARE_REAL];
    for (int k = 0; k < COMPARE_QUANTITIES_N; k++)
        put_quantity(j, compare_quantity_names[k], compare_quantity(sim, k),
                     compare_quantity(real, k));
    json_put_open(j, "overlap", '{');
    json_put_number(j, "sim_pct", metrics_overlap_pct(sim));
    json_put_number(j, "real_pct", metrics_overlap_pct(real));
    json_put_number(j, "error_points", compare_overlap_points(times));
    json_out_close(j, '}');
}

static void put_class(JsonOut *j, const Comparison *c, const CompareClass *k)
{
    const int64_t *ns = compare_class_ns(k);
    double real = (double)k->matched_ns[COMPARE_REAL];
    json_out_open(j, '{');
    json_put_text(j, "class", k->name);
    put_sides(j, ns[COMPARE_SIM], ns[COMPARE_REAL]);
    json_put_int(j, "sim_ops", (int64_t)k->ops_n[COMPARE_SIM]);
    json_put_int(j, "real_ops", (int64_t)k->ops_n[COMPARE_REAL]);
    json_put_int(j, "matched_ops", (int64_t)k->matched_n);
    json_put_int(j, "matched_sim_ns", k->matched_ns[COMPARE_SIM]);
    json_put_int(j, "matched_real_ns", k->matched_ns[COMPARE_REAL]);
    json_put_number(j, "op_error_pct", real > 0 ? 100 * k->absolute_ns / real : NAN);
    json_put_number(j, "op_error_mean_pct",
                    k->relative_n ? 100 * k->relative / (double)k->relative_n : NAN);
    json_put_int(j, "sim_step_ns", k->own_ns[COMPARE_SIM]);
    json_put_int(j, "real_step_ns", k->own_ns[COMPARE_REAL]);
    json_put_number(j, "share_pct", compare_share_pct(c, k));
    json_out_close(j, '}');
}

static void put_op(JsonOut *j, const CompareOp *o)
{
    bool both = o->name[COMPARE_SIM] && o->name[COMPARE_REAL];
    json_out_open(j, '{');
    for (int k = 0; k < COMPARE_SIDES; k++)
        if (o->name[k])
            json_put_text(j, k == COMPARE_SIM ? "sim_name" : "real_name", o->name[k]);
    json_put_text(j, "class", o->class_);
    json_put_int(j, "count", (int64_t)o->n);
    if (o->name[COMPARE_SIM])
        json_put_int(j, "sim_ns", o->time_ns[COMPARE_SIM]);
    if (o->name[COMPARE_REAL])
        json_put_int(j, "real_ns", o->time_ns[COMPARE_REAL]);
    if (both)
        json_put_int(j, "difference_ns", o->time_ns[COMPARE_SIM] - o->time_ns[COMPARE_REAL]);
    json_out_close(j, '}');
}

static void put_ops(JsonOut *j, const char *key, const CompareOp *ops, uint32_t n, uint32_t top)
{
    json_put_open(j, key, '[');
    for (uint32_t i = 0; i < n && i < top; i++)
        put_op(j, &ops[i]);
    json_out_close(j, ']');
}

static void put_parting(JsonOut *j, const CompareDrift *d)
{
    json_out_key(j, "parts_at");
    if (!d->parts) {
        json_out_null(j);
        return;
    }
    json_out_open(j, '{');
    json_put_text(j, "name", d->op_name);
    json_put_text(j, "class", d->op_class);
    json_put_known(j, "op", d->op == NONE_U32 ? -1 : (int64_t)d->op);
    json_put_int(j, "real_start_ns", d->op_start_ns);
    json_put_int(j, "sim_ns", d->op_time_ns[COMPARE_SIM]);
    json_put_int(j, "real_ns", d->op_time_ns[COMPARE_REAL]);
    json_put_int(j, "drift_ns", d->op_drift_ns);
    json_out_close(j, '}');
}

static void put_drift(JsonOut *j, const CompareDrift *d)
{
    json_put_open(j, "drift", '{');
    json_put_int(j, "rank", d->rank);
    json_put_int(j, "end_ns", d->end_ns);
    json_put_int(j, "largest_ns", d->largest_ns);
    put_parting(j, d);
    json_put_open(j, "points", '[');
    for (uint32_t i = 0; i < d->points_n; i++) {
        json_out_open(j, '{');
        json_put_int(j, "real_ns", d->points[i].real_ns);
        json_put_int(j, "drift_ns", d->points[i].drift_ns);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
    json_out_close(j, '}');
}

static void put_rank(JsonOut *j, const CompareRank *r)
{
    static const char *const ways[] = {
        [PAIRED_OP] = "op", [PAIRED_LOGICAL] = "logical", [PAIRED_SEQUENCE] = "sequence"
    };
    double real = (double)r->time_ns[COMPARE_REAL];
    json_out_open(j, '{');
    json_put_int(j, "rank", r->rank);
    json_put_int(j, "ranks", r->ranks_n);
    json_put_int(j, "sim_rank", r->source[COMPARE_SIM]);
    json_put_int(j, "real_rank", r->source[COMPARE_REAL]);
    json_put_text(j, "paired_by", ways[r->paired]);
    json_put_number(j, "coverage_pct",
                    real > 0 ? 100 * (double)r->matched_ns[COMPARE_REAL] / real : NAN);
    json_put_int(j, "sim_ops", (int64_t)r->ops_n[COMPARE_SIM]);
    json_put_int(j, "real_ops", (int64_t)r->ops_n[COMPARE_REAL]);
    json_put_int(j, "matched_ops", (int64_t)r->matched_n);
    put_times(j, r->times);
    json_out_close(j, '}');
}

static void put_side(JsonOut *j, const Comparison *c, int k)
{
    json_put_open(j, k == COMPARE_SIM ? "sim" : "real", '{');
    json_put_text(j, "trace", c->name[k]);
    json_put_known(j, "step", c->step[k]);
    json_put_int(j, "steps", c->steps_n[k]);
    json_put_int(j, "ranks_without_counterpart", c->left_out_n[k]);
    json_out_close(j, '}');
}

void compare_json(const Comparison *c, uint32_t top, JsonOut *j)
{
    json_out_open(j, '{');
    put_side(j, c, COMPARE_SIM);
    put_side(j, c, COMPARE_REAL);
    put_times(j, c->times);
    json_put_number(j, "coverage_pct", compare_coverage_pct(c));
    json_put_number(j, "sim_coverage_pct", compare_sim_coverage_pct(c));
    json_put_number(j, "op_error_pct", compare_op_error_pct(c));
    json_put_open(j, "classes", '[');
    for (uint32_t i = 0; i < c->classes_n; i++)
        put_class(j, c, &c->classes[i]);
    json_out_close(j, ']');
    put_drift(j, &c->drift);
    put_ops(j, "ops", c->ops, c->ops_n, top);
    put_ops(j, "only_sim", c->only[COMPARE_SIM], c->only_n[COMPARE_SIM], top);
    put_ops(j, "only_real", c->only[COMPARE_REAL], c->only_n[COMPARE_REAL], top);
    json_put_open(j, "ranks", '[');
    for (uint32_t i = 0; i < c->ranks_n; i++)
        put_rank(j, &c->ranks[i]);
    json_out_close(j, ']');
    json_out_close(j, '}');
}
