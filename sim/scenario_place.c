/*
 * scenario_place.c - a key that is known, but in another object: "dp" for "parallel.dp".
 */
#include <string.h>

#include "sim/scenario_parts.h"

static const struct Section {
    const char *name, *keys;
} sections[] = {
    { "training",
      "global_batch micro_batch seq_len precision param_dtype grad_dtype reduce_dtype "
      "master_weights optimizer recompute lr weight_decay betas eps momentum grad_clip loss "
      "data "
      "seed attention compile" },
    { "parallel",
      "strategy dp tp pp cp ep stage_layers sequence_parallel schedule virtual_stages "
      "bucket_bytes first_bucket_bytes reshard_after_forward prefetch shard_size "
      "limit_all_gathers sync_batchnorm etp dispatcher overlap order" },
    { "cluster",
      "nodes gpus_per_node gpus_per_host gpu intra_node inter_node node_types collectives "
      "stragglers jitter price_usd_per_gpu_hour gpu_mtbf_hours" },
};

static bool check_keys(JsonNode object, const struct Section *s, Err *err)
{
    char key[40];
    for (const char *at = s->keys; *at; at += strspn(at, " ")) {
        int n = (int)strcspn(at, " ");
        snprintf(key, sizeof key, "%.*s", n, at);
        JsonNode node = json_member(object, key);
        if (node.item)
            return json_fail(node, err, "unknown key; %s.%s is allowed", s->name, key);
        at += n;
    }
    return true;
}

/* of: the object's own section; NULL: the scenario, which has none of these keys. */
static bool check_object(JsonNode object, const struct Section *of, Err *err)
{
    for (size_t i = 0; i < ARRAY_N(sections); i++)
        if (&sections[i] != of && !check_keys(object, &sections[i], err))
            return false;
    return true;
}

bool scenario_check_places(JsonNode root, Err *err)
{
    bool ok = check_object(root, NULL, err);
    for (size_t i = 0; i < ARRAY_N(sections) && ok; i++) {
        JsonNode object = json_member(root, sections[i].name);
        ok = !object.item || json_type(object) != JSON_OBJECT ||
             check_object(object, &sections[i], err);
    }
    return ok;
}
