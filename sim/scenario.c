/*
 * scenario.c - reads a scenario from its document, key by key, in the order of the defaults.
 *
 * Defaults look at what was read before: the cluster's GPUs give dp, the model
 * gives seq_len and the precision, the precision gives the other dtypes.  Hence
 * model, cluster, parallel, training.  Whether the values fit each other is
 * asked afterwards, in scenario_check.c.
 */
#include "sim/scenario.h"

#include <string.h>

#include "sim/scenario_parts.h"
#include "sim/software.h"

enum {
    MEASURED_MAX = 1000,
    LISTED_MAX = 40, /* numbers of a list that are logged */
    NUMBER_CAP = 16  /* of one such number, as text */
};

/* ---- over json.h ---- */

JsonObj scenario_begin(JsonNode node, Err *err)
{
    if (node.item)
        return json_begin(node, err);
    return (JsonObj){ .node = node, .err = err, .ok = !err->set };
}

uint32_t scenario_count(JsonObj *o, const char *key, uint64_t min, uint64_t max,
                        double fallback)
{
    ASSERT(max <= UINT32_MAX);
    return (uint32_t)json_count(o, key, min, max, fallback);
}

void scenario_log_numbers(JsonNode node, const double *x, size_t n, bool is_default)
{
    char text[LISTED_MAX * NUMBER_CAP] = "[";
    size_t at = 1;
    for (size_t i = 0; i < n && i < LISTED_MAX; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.7g", i ? ", " : "", x[i]);
    snprintf(text + at, sizeof text - at, n > LISTED_MAX ? ", ..." : "]");
    json_log_value(node, text, is_default);
}

/* ---- measured ---- */

/* Whatever the report says about a step, named as there. */
const char *const scenario_metrics[SCENARIO_METRICS_N] = { "step_time_s",
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
                                                           "cost_usd_per_step",
                                                           "fits",
                                                           "memory.peak_bytes",
                                                           "memory.reserved_bytes",
                                                           "memory.params_bytes",
                                                           "memory.grads_bytes",
                                                           "memory.optimizer_bytes",
                                                           "memory.activations_bytes",
                                                           "memory.buffers_bytes",
                                                           "critical_path.compute_s",
                                                           "critical_path.comm_s",
                                                           "critical_path.bubble_s",
                                                           "critical_path.launch_s" };

static double read_value(JsonObj *o, const char *metric)
{
    bool fits = strcmp(metric, "fits") == 0;
    if (fits && json_type(json_get(o, "value")) == JSON_BOOL)
        return json_bool(o, "value", false) ? 1 : 0;
    double x = json_number(o, "value", 0, 1e18, JSON_REQUIRED);
    if (o->ok && fits && x != 0 && x != 1)
        o->ok = json_fail(json_member(o->node, "value"), o->err,
                          "%g is neither 0 nor 1; true or false says whether it fits", x);
    return x;
}

static bool read_measured_row(Measured *row, JsonNode node, Err *err)
{
    JsonObj o = json_begin(node, err);
    row->metric =
        scenario_metrics[json_word(&o, "metric", scenario_metrics, SCENARIO_METRICS_N, -1)];
    row->value = read_value(&o, row->metric);
    row->published_as = json_string(&o, "published_as", "");
    row->source = json_string(&o, "source", "");
    return json_end(&o);
}

static bool read_measured(Scenario *s, JsonNode list, Err *err)
{
    if (!list.item)
        return true;
    size_t n = json_items_n(list);
    if (json_type(list) != JSON_ARRAY || n > MEASURED_MAX)
        return json_fail(list, err, "a list of at most %d objects is expected", MEASURED_MAX);
    s->measured = PUSH_ARRAY(&s->arena, Measured, n);
    s->measured_n = (uint32_t)n;
    size_t i = 0;
    for (JsonNode row = json_first(list); row.item; row = json_next(row, list, ++i))
        if (!read_measured_row(&s->measured[i], row, err))
            return false;
    return true;
}

/* ---- the whole ---- */

/* "dir/llama.json" -> "llama" */
static const char *name_of_file(Scenario *s)
{
    const char *slash = strrchr(s->file, '/');
    const char *name = slash ? slash + 1 : s->file;
    size_t n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, ".json") == 0)
        n -= 5;
    return arena_printf(&s->arena, "%.*s", (int)n, name);
}

/* A name is logged as it stands, an object by its reader. */
static JsonNode named(JsonObj *o, const char *key)
{
    JsonNode node = json_get(o, key);
    if (o->ok && json_text(node))
        json_log_value(node, json_text(node), false);
    return node;
}

/* Asked after the unknown keys, among which a slip for this one is. */
static bool is_there(JsonNode node, Err *err)
{
    return node.item || json_fail(node, err, "the key is missing");
}

/* Its facts are read by who needs them: a scenario may name a stack that nobody knows. */
static bool read_software(Scenario *s, JsonNode node, Err *err)
{
    s->software = software_name(&s->arena, node, err);
    if (!err->set)
        json_log_value(node, s->software, !node.item);
    return !err->set;
}

/* What tp has to divide depends on it; a stack that nobody knows has no habits. */
static void read_habits(Scenario *s)
{
    Software sw = { 0 };
    Arena arena = { 0 };
    Err ignored = { 0 };
    Parallel *p = &s->parallel;
    p->whole_by_habit = p->has_experts && p->etp == 0 &&
                        software_of(&sw, &arena, s, &ignored) && sw.whole_experts;
    arena_free(&arena);
}

/* Whoever downloaded a model tries its config, whoever described a cluster that. */
static bool is_scenario(JsonNode root, Err *err)
{
    static const struct {
        const char *key, *what, *how;
    } others[] = {
        { "model_type", "a model", "it, with a cluster: {\"model\": FILE, \"cluster\": NAME}" },
        { "kind", "a model", "it, with a cluster: {\"model\": FILE, \"cluster\": NAME}" },
        { "peak_tflops", "a GPU",
          "a cluster of such: {\"model\": NAME, \"cluster\": {\"base\": NAME, \"gpu\": "
          "FILE}}" },
        { "gpus_per_node", "a cluster",
          "it, with a model: {\"model\": NAME, \"cluster\": FILE}" },
        { "nodes", "a cluster", "it, with a model: {\"model\": NAME, \"cluster\": FILE}" },
    };
    for (size_t i = 0; i < ARRAY_N(others) && !json_member(root, "model").item; i++)
        if (json_member(root, others[i].key).item)
            return json_fail(root, err, "this is %s (it has \"%s\"); a scenario names %s",
                             others[i].what, others[i].key, others[i].how);
    return true;
}

static bool read_all(Scenario *s, Err *err)
{
    if (!is_scenario(json_root(s->doc), err) || !scenario_check_places(json_root(s->doc), err))
        return false;
    JsonObj o = json_begin(json_root(s->doc), err);
    s->name = json_string(&o, "name", name_of_file(s));
    JsonNode model = named(&o, "model"), cluster = named(&o, "cluster");
    JsonNode training = json_get(&o, "training"), parallel = json_get(&o, "parallel");
    JsonNode software = json_get(&o, "software");
    JsonNode measured = json_get(&o, "measured");
    s->source = json_string(&o, "source", "");
    s->notes = json_string(&o, "notes", "");
    s->quality = json_string(&o, "quality", "");
    s->group = json_string(&o, "group", "");
    bool ok = json_end(&o) && is_there(model, err) && is_there(cluster, err) &&
              read_software(s, software, err) &&
              model_read(&s->model, &s->arena, model, share_dir(), err) &&
              machine_read(&s->machine, cluster, share_dir(), err) &&
              scenario_parallel(s, parallel, err) && scenario_training(s, training, err) &&
              read_measured(s, measured, err);
    if (ok)
        read_habits(s);
    return ok && scenario_check(s, err);
}

bool scenario_from_to_split(Scenario *s, JsonDoc *doc, const Setting *settings,
                            uint32_t settings_n, Err *err)
{
    *s = (Scenario){ .doc = doc, .file = json_name(doc) };
    if (scenario_set(doc, settings, settings_n, err) && read_all(s, err))
        return true;
    scenario_free(s);
    return false;
}

bool scenario_from(Scenario *s, JsonDoc *doc, const Setting *settings, uint32_t settings_n,
                   Err *err)
{
    if (!scenario_from_to_split(s, doc, settings, settings_n, err))
        return false;
    bool ok = scenario_can_be_built(s, err);
    if (!ok)
        scenario_free(s);
    return ok;
}

void scenario_free(Scenario *s)
{
    machine_free(&s->machine);
    arena_free(&s->arena);
    json_close(s->doc);
    *s = (Scenario){ 0 };
}
