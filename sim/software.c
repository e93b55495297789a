/*
 * software.c - reads scenarios/software/NAME.json, strictly: a stack without a
 * fact, or a fact without a source, is an error.
 */
#include "sim/software.h"

#include <stdio.h>
#include <string.h>

#include "core/nearest.h"

enum { METRIC_LOSSES_MAX = 8, RING_NICS_MAX = 64 }; /* Composer has two losses */
#define BUCKET_PARAMETERS_MAX ((uint64_t)1 << 40)

typedef struct Fact {
    const char *key;
    size_t offset; /* of a bool in Software */
} Fact;

#define FACT(key) \
    { \
#key, offsetof(Software, key) \
    }

static const Fact kernel_facts[] = {
    FACT(fused_attention),     FACT(fused_qkv),
    FACT(fused_gate_up),       FACT(fused_gated),
    FACT(fused_bias),          FACT(fused_elementwise),
    FACT(fused_residual_norm), FACT(fused_rope),
    FACT(fused_cross_entropy), FACT(fused_optimizer),
    FACT(wgrad_accumulate),    FACT(f32_grads),
    FACT(f32_logits),          FACT(norm_chain),
    FACT(rope_chain),          FACT(dropout),
};

static const Fact parallel_facts[] = {
    FACT(tp_async_backward),  FACT(grads_persist),        FACT(bucket_copies),
    FACT(p2p_waits_for_send), FACT(overlap_param_gather), FACT(cp_ring),
};

/* May be left out: false. */
static const Fact kernel_options[] = {
    FACT(addmm),
    FACT(gated_qkv_apart),
    FACT(f16_grads),
    FACT(bf16_grads_f32),
    FACT(foreach_optimizer),
    FACT(keeps_logits),
    FACT(half_to_float),
    FACT(activations_again),
    FACT(loss_in_place),
    FACT(loss_copies),
    FACT(fp8_dynamic),
    FACT(f32_params),
    FACT(f32_stream),
    FACT(planned_memory),
    FACT(expandable_segments),
    FACT(fp8_weight_copies),
    FACT(fp8_transposes),
    FACT(fp8_param_gather),
    FACT(gelu_new_chain),
    FACT(softmax_chain),
    FACT(attention_copies),
    FACT(model_dropout),
    FACT(states_like_params),
    FACT(master_remainders),
    FACT(table_grad_apart),
    FACT(mtp),
};

static const Fact parallel_options[] = {
    FACT(p2p_scatter_gather), FACT(tp_ring),
    FACT(p2p_blocks_host),    FACT(zero_reduces_last),
    FACT(gather_copies),      FACT(reduce_copies),
    FACT(f32_reduce),         FACT(pp_overlap_interleaved),
    FACT(tp_keeps_gathered),  FACT(pp_keeps_params),
    FACT(root_unit),          FACT(keeps_last_unit),
    FACT(zero_all_reduces),   FACT(first_chunk_buckets),
    FACT(divides_grads),      FACT(deepep),
    FACT(whole_experts),      FACT(ep_pairs),
    FACT(cp_gathers),         FACT(uneven_stages),
    FACT(weighs_early),       FACT(gathers_at_start),
    FACT(gathers_together),   FACT(post_validates),
    FACT(tp_own_first),       FACT(fsdp_overlaps),
    FACT(zero_gathers_lists),
};

/* Words of recompute.selective. */
static const Fact selective_facts[] = {
    { "attention", offsetof(Software, selective_attention) },
    { "norm", offsetof(Software, selective_norm) },
    { "activation", offsetof(Software, selective_activation) },
    { "op", offsetof(Software, selective_op) },
    { "all_but_qkv", offsetof(Software, selective_all_but_qkv) },
    { "latent_up", offsetof(Software, selective_latent_up) },
};

/* Words of kernels.optimizer_passes. */
static const Fact pass_facts[] = {
    { "zero_grads", offsetof(Software, zeroes_grads) },
    { "check_grads", offsetof(Software, checks_grads) },
    { "average_grads", offsetof(Software, averages_grads) },
    { "main_grads", offsetof(Software, copies_grads) },
    { "unscale", offsetof(Software, unscales_grads) },
    { "norm", offsetof(Software, norms_grads) },
    { "clip", offsetof(Software, clips_grads) },
    { "copy_params", offsetof(Software, copies_params) },
};

/* Words of parallel.zero_bubble. */
static const Fact schedule_facts[] = {
    { "zb-h1", offsetof(Software, zero_bubble[SCHEDULE_ZB_H1]) },
    { "zb-1p", offsetof(Software, zero_bubble[SCHEDULE_ZB_1P]) },
    { "zb-2p", offsetof(Software, zero_bubble[SCHEDULE_ZB_2P]) },
    { "zbv", offsetof(Software, zero_bubble[SCHEDULE_ZBV]) },
    { "dualpipe", offsetof(Software, zero_bubble[SCHEDULE_DUALPIPE]) },
};

#define SCHEDULE_WORDS "zb-h1, zb-1p, zb-2p, zbv, dualpipe"
#define PASS_WORDS \
    "zero_grads, check_grads, average_grads, main_grads, unscale, norm, clip, copy_params"
#define SELECTIVE_WORDS "attention, norm, activation, op, all_but_qkv, latent_up"

static bool *fact_at(Software *sw, const Fact *fact)
{
    return (bool *)((char *)sw + fact->offset);
}

static bool required_bool(JsonObj *o, const char *key)
{
    if (o->ok && !json_has(o, key))
        o->ok = json_fail(o->node, o->err, "'%s' is missing, true or false is expected", key);
    return json_bool(o, key, false);
}

static JsonNode required_object(JsonObj *o, const char *key)
{
    JsonNode node = json_get(o, key);
    if (o->ok && json_type(node) != JSON_OBJECT)
        o->ok = json_fail(o->node, o->err, "'%s' is missing, an object is expected", key);
    return node;
}

static bool read_facts(Software *sw, JsonObj *o, const Fact *facts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *fact_at(sw, &facts[i]) = required_bool(o, facts[i].key);
    return o->ok;
}

static void read_options(Software *sw, JsonObj *o, const Fact *facts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *fact_at(sw, &facts[i]) = json_bool(o, facts[i].key, false);
}

/* A fact that says something of another's way of doing things. */
static bool check_pair(bool fact, bool other, JsonNode node, const char *name,
                       const char *needed, Err *err)
{
    if (!fact || other)
        return true;
    return json_fail(json_member(node, name), err, "true is allowed only where %s is", needed);
}

/* A list of facts by their words. */
static bool read_words(Software *sw, JsonNode list, const Fact *facts, size_t n,
                       const char *allowed, Err *err)
{
    if (json_type(list) != JSON_ARRAY)
        return json_fail(list, err, "a list is expected of: %s", allowed);
    uint32_t i = 0;
    for (JsonNode node = json_first(list); node.item; node = json_next(node, list, ++i)) {
        const char *word = json_text(node);
        size_t f = 0;
        while (f < n && (!word || strcmp(facts[f].key, word) != 0))
            f++;
        if (f == n)
            return json_fail(node, err, "unknown word '%.100s', allowed: %s", word ? word : "",
                             allowed);
        *fact_at(sw, &facts[f]) = true;
    }
    return true;
}

static bool read_selective(Software *sw, JsonNode list, Err *err)
{
    if (!read_words(sw, list, selective_facts, ARRAY_N(selective_facts), SELECTIVE_WORDS, err))
        return false;
    if (sw->selective_all_but_qkv && json_items_n(list) > 1)
        return json_fail(list, err,
                         "'all_but_qkv' says it all, no other word is allowed beside it");
    return true;
}

static bool read_passes(Software *sw, JsonNode list, Err *err)
{
    return !list.item || read_words(sw, list, pass_facts, ARRAY_N(pass_facts), PASS_WORDS, err);
}

static bool read_schedules(Software *sw, JsonNode list, Err *err)
{
    return !list.item ||
           read_words(sw, list, schedule_facts, ARRAY_N(schedule_facts), SCHEDULE_WORDS, err);
}

static bool read_kernels(Software *sw, JsonNode node, Err *err)
{
    JsonObj o = json_begin(node, err);
    read_facts(sw, &o, kernel_facts, ARRAY_N(kernel_facts));
    read_options(sw, &o, kernel_options, ARRAY_N(kernel_options));
    sw->metric_losses = (uint32_t)json_count(&o, "metric_losses", 0, METRIC_LOSSES_MAX, 0);
    sw->attention_kernel = (AttentionKernel)json_word(
        &o, "attention_kernel", attention_kernel_names, ATTENTION_KERNEL_N, ATTENTION_NEWEST);
    JsonNode passes = json_get(&o, "optimizer_passes");
    return json_end(&o) && read_passes(sw, passes, err) &&
           check_pair(sw->f32_stream, sw->f32_params, node, "f32_stream", "f32_params", err) &&
           check_pair(sw->gated_qkv_apart, sw->fused_qkv, node, "gated_qkv_apart", "fused_qkv",
                      err) &&
           check_pair(sw->keeps_logits, sw->fused_cross_entropy, node, "keeps_logits",
                      "fused_cross_entropy", err) &&
           check_pair(sw->half_to_float, sw->f32_logits && !sw->loss_in_place, node,
                      "half_to_float", "f32_logits without loss_in_place", err) &&
           check_pair(sw->loss_copies, sw->loss_in_place, node, "loss_copies", "loss_in_place",
                      err) &&
           check_pair(sw->bf16_grads_f32, !sw->f32_grads, node, "bf16_grads_f32",
                      "not f32_grads", err) &&
           check_pair(sw->f16_grads, sw->f32_grads, node, "f16_grads", "f32_grads", err);
}

static bool read_recompute(Software *sw, JsonNode node, Err *err)
{
    JsonObj o = json_begin(node, err);
    JsonNode list = json_get(&o, "selective");
    if (o.ok && !list.item)
        o.ok = json_fail(node, err, "'selective' is missing, a list is expected");
    sw->recompute_stops_early = required_bool(&o, "stops_early");
    bool ok = json_end(&o);
    return ok && read_selective(sw, list, err);
}

static bool read_overlap(Software *sw, JsonNode node, Err *err)
{
    JsonObj o = json_begin(node, err);
    for (int d = 0; d < DIM_N; d++)
        sw->overlap[d] = required_bool(&o, dim_names[d]);
    return json_end(&o);
}

static bool read_parallel(Software *sw, JsonNode node, Err *err)
{
    JsonObj o = json_begin(node, err);
    read_facts(sw, &o, parallel_facts, ARRAY_N(parallel_facts));
    read_options(sw, &o, parallel_options, ARRAY_N(parallel_options));
    sw->vocab_multiple = json_count(&o, "vocab_multiple", 1, 65536, JSON_REQUIRED);
    sw->bucket_parameters = json_count(&o, "bucket_parameters", 0, BUCKET_PARAMETERS_MAX, 0);
    sw->bucket_parameters_per_rank =
        json_count(&o, "bucket_parameters_per_rank", 0, BUCKET_PARAMETERS_MAX, 0);
    JsonNode schedules = json_get(&o, "zero_bubble");
    JsonNode overlap = required_object(&o, "overlap");
    return json_end(&o) && read_overlap(sw, overlap, err) &&
           read_schedules(sw, schedules, err) &&
           check_pair(sw->tp_own_first, !sw->tp_ring, node, "tp_own_first", "not tp_ring", err);
}

static bool read_assumed(Software *sw, JsonNode node, Err *err)
{
    sw->assumed_compute_scale = 1;
    if (!node.item)
        return true;
    JsonObj o = json_begin(node, err);
    sw->assumed_compute_scale = json_number(&o, "compute_scale", 0.1, 10, JSON_REQUIRED);
    json_string(&o, "assumed_from", NULL);
    return json_end(&o);
}

static bool read_fitted(Software *sw, JsonNode node, Err *err)
{
    sw->host_scale = sw->comm_scale = 1;
    sw->compute_scale = sw->assumed_compute_scale;
    if (!node.item)
        return true;
    JsonObj o = json_begin(node, err);
    sw->host_scale = json_number(&o, "host_scale", 0.1, 30, 1);
    sw->compute_scale = json_number(&o, "compute_scale", 0.1, 10, sw->compute_scale);
    sw->comm_scale = json_number(&o, "comm_scale", 0.1, 10, 1);
    sw->ring_nics = (uint32_t)json_count(&o, "ring_nics", 0, RING_NICS_MAX, 0);
    json_string(&o, "fitted_on", NULL);
    bool ok = json_end(&o);
    if (ok && sw->ring_nics > 0 && sw->comm_scale != 1)
        ok = json_fail(json_member(node, "ring_nics"), err,
                       "allowed only without 'comm_scale': at most three scalars are fitted");
    return ok;
}

/* ---- sources ---- */

static bool check_source(JsonObj *o, const char *key, bool rest)
{
    const char *text = json_string(o, key, "");
    if (o->ok && !*text && !rest)
        o->ok = json_fail(o->node, o->err,
                          "no source for '%s'; give it one, or one for the \"rest\"", key);
    return o->ok;
}

/* What is left out needs no source. */
static void check_options(Software *sw, JsonObj *o, const Fact *facts, size_t n, bool rest)
{
    for (size_t i = 0; i < n; i++)
        check_source(o, facts[i].key, rest || !*fact_at(sw, &facts[i]));
}

static bool has_any(Software *sw, const Fact *facts, size_t n)
{
    size_t i = 0;
    while (i < n && !*fact_at(sw, &facts[i]))
        i++;
    return i < n;
}

static bool check_sources(Software *sw, JsonNode node, Err *err)
{
    static const char *const others[] = { "attention_kernel", "selective", "stops_early",
                                          "overlap", "vocab_multiple" };
    JsonObj o = json_begin(node, err);
    bool rest = *json_string(&o, "rest", "") != '\0';
    check_source(&o, "metric_losses", rest || sw->metric_losses == 0);
    check_source(&o, "bucket_parameters", rest || sw->bucket_parameters == 0);
    check_source(&o, "bucket_parameters_per_rank", rest || sw->bucket_parameters_per_rank == 0);
    check_source(&o, "optimizer_passes", rest || !has_any(sw, pass_facts, ARRAY_N(pass_facts)));
    check_source(&o, "zero_bubble",
                 rest || !has_any(sw, schedule_facts, ARRAY_N(schedule_facts)));
    check_options(sw, &o, kernel_options, ARRAY_N(kernel_options), rest);
    check_options(sw, &o, parallel_options, ARRAY_N(parallel_options), rest);
    for (size_t i = 0; i < ARRAY_N(kernel_facts); i++)
        check_source(&o, kernel_facts[i].key, rest);
    for (size_t i = 0; i < ARRAY_N(parallel_facts); i++)
        check_source(&o, parallel_facts[i].key, rest);
    for (size_t i = 0; i < ARRAY_N(others); i++)
        check_source(&o, others[i], rest);
    return json_end(&o);
}

/* ---- the file ---- */

bool software_from(Software *sw, Arena *arena, JsonDoc *doc, Err *err)
{
    *sw = (Software){ 0 };
    JsonObj o = json_begin(json_root(doc), err);
    const char *name = json_string(&o, "name", NULL);
    const char *source = json_string(&o, "source", NULL);
    json_string(&o, "notes", "");
    JsonNode kernels = required_object(&o, "kernels");
    JsonNode recompute = required_object(&o, "recompute");
    JsonNode parallel = required_object(&o, "parallel");
    JsonNode sources = required_object(&o, "sources");
    JsonNode fitted = json_get(&o, "fitted");
    JsonNode assumed = json_get(&o, "assumed");
    if (!json_end(&o))
        return false;
    sw->name = arena_strdup(arena, name);
    sw->source = arena_strdup(arena, source);
    return read_kernels(sw, kernels, err) && read_recompute(sw, recompute, err) &&
           read_parallel(sw, parallel, err) && read_assumed(sw, assumed, err) &&
           read_fitted(sw, fitted, err) && check_sources(sw, sources, err);
}

bool software_exists(const char *name, Err *err)
{
    Arena arena = { 0 };
    const char *const *names;
    char allowed[700];
    bool found = false;
    uint32_t names_n = share_names(&names, &arena, "software");
    for (uint32_t i = 0; i < names_n; i++)
        found = found || strcmp(names[i], name) == 0;
    const char *meant = found ? NULL : nearest(name, names, names_n);
    if (!found)
        err_set(err, "unknown software '%.100s', %s%.60s%sallowed: %s", name,
                meant ? "did you mean '" : "", meant ? meant : "", meant ? "'? " : "",
                words_joined(allowed, sizeof allowed, names, names_n));
    arena_free(&arena);
    return found;
}

bool software_read(Software *sw, Arena *arena, const char *name, Err *err)
{
    const char *path = arena_printf(arena, "%s/software/%s.json", share_dir(), name);
    JsonDoc *doc = software_exists(name, err) ? json_open(path, err) : NULL;
    bool ok = doc && software_from(sw, arena, doc, err);
    if (ok && strcmp(sw->name, name) != 0)
        ok = err_set(err, "%s: the name inside is '%.100s'", path, sw->name);
    json_close(doc);
    return ok;
}

uint64_t software_vocab(const Software *sw, uint64_t vocab, uint32_t tp)
{
    uint64_t multiple = max_u64(1, sw->vocab_multiple) * tp;
    return div_up_u64(vocab, multiple) * multiple;
}
