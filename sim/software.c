/*
 * software.c - the facts of a training stack, read from one layer (software_layers.c)
 * after the other, strictly: a stack without a fact, or a fact without a source, is an
 * error.  A layer over another says what is different there.
 */
#include <string.h>

#include "sim/software_parts.h"

enum { METRIC_LOSSES_MAX = 8, RING_NICS_MAX = 64 }; /* Composer has two losses */
enum {
    SOFTMAX_MULTIPLE_MAX = 64,
    SOFTMAX_LONGEST_MAX = 1 << 20,
    CHECKPOINT_LAUNCHES_MAX = 1000
};
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
    FACT(pads_matmuls),
    FACT(gated_qkv_apart),
    FACT(f16_grads),
    FACT(bf16_grads_f32),
    FACT(grads_added_last),
    FACT(half_grads_stay),
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
    FACT(repeats_kv),
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
    FACT(pp_accumulates),     FACT(pp_keeps_outputs),
    FACT(pp_outputs_stay),    FACT(pp_keeps_logits),
    FACT(root_unit),          FACT(keeps_last_unit),
    FACT(zero_all_reduces),   FACT(first_chunk_buckets),
    FACT(divides_grads),      FACT(deepep),
    FACT(whole_experts),      FACT(ep_pairs),
    FACT(cp_gathers),         FACT(uneven_stages),
    FACT(weighs_early),       FACT(gathers_at_start),
    FACT(gathers_together),   FACT(post_validates),
    FACT(tp_own_first),       FACT(fsdp_overlaps),
    FACT(zero_gathers_lists), FACT(interleaved_multiple),
};

static const Fact recompute_options[] = {
    FACT(f32_reduce_stops_early),
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

/* Words of parallel.lacks. */
static const Fact lack_facts[] = {
    { "tp", offsetof(Software, lacks_dim[DIM_TP]) },
    { "pp", offsetof(Software, lacks_dim[DIM_PP]) },
    { "cp", offsetof(Software, lacks_dim[DIM_CP]) },
    { "ep", offsetof(Software, lacks_dim[DIM_EP]) },
    { "sequence_parallel", offsetof(Software, lacks_sequence_parallel) },
    { "interleaved", offsetof(Software, lacks_interleaved) },
    { "zero1", offsetof(Software, lacks_strategy[STRATEGY_ZERO1]) },
    { "zero2", offsetof(Software, lacks_strategy[STRATEGY_ZERO2]) },
    { "fsdp", offsetof(Software, lacks_strategy[STRATEGY_FSDP]) },
    { "hsdp", offsetof(Software, lacks_strategy[STRATEGY_HSDP]) },
    { "fsdp_with_pp", offsetof(Software, lacks_fsdp_with_pp) },
};

#define LACK_WORDS \
    "tp, pp, cp, ep, sequence_parallel, interleaved, zero1, zero2, fsdp, hsdp, fsdp_with_pp"
#define SCHEDULE_WORDS "zb-h1, zb-1p, zb-2p, zbv, dualpipe"
#define PASS_WORDS \
    "zero_grads, check_grads, average_grads, main_grads, unscale, norm, clip, copy_params"
#define SELECTIVE_WORDS "attention, norm, activation, op, all_but_qkv, latent_up"

static bool *fact_at(Software *sw, const Fact *fact)
{
    return (bool *)((char *)sw + fact->offset);
}

static bool read_bool(const SoftwareLayer *l, JsonObj *o, const char *key, bool *fact)
{
    if (json_has(o, key))
        *fact = json_bool(o, key, false);
    else if (o->ok && !l->based)
        o->ok = json_fail(o->node, o->err, "'%s' is missing, true or false is expected", key);
    return o->ok;
}

static JsonNode read_object(const SoftwareLayer *l, JsonObj *o, const char *key)
{
    JsonNode node = json_get(o, key);
    if (o->ok && !l->based && !json_has(o, key))
        o->ok = json_fail(o->node, o->err, "'%s' is missing, an object is expected", key);
    return node;
}

static bool read_facts(const SoftwareLayer *l, JsonObj *o, const Fact *facts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        read_bool(l, o, facts[i].key, fact_at(l->sw, &facts[i]));
    return o->ok;
}

/* Is a key that may be left out to be asked for?  A stack that says nothing has a default; a layer
 * over another leaves that one's as it is. */
static bool says(const SoftwareLayer *l, JsonObj *o, const char *key)
{
    return json_has(o, key) || !l->based;
}

static void read_options(const SoftwareLayer *l, JsonObj *o, const Fact *facts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (says(l, o, facts[i].key))
            *fact_at(l->sw, &facts[i]) = json_bool(o, facts[i].key, false);
}

static void read_count(const SoftwareLayer *l, JsonObj *o, const char *key, uint64_t max,
                       uint64_t *x)
{
    if (says(l, o, key))
        *x = json_count(o, key, 0, max, 0);
}

static void read_scale(const SoftwareLayer *l, JsonObj *o, const char *key, double max,
                       double *x)
{
    if (says(l, o, key))
        *x = json_number(o, key, 0.1, max, 1);
}

/* A fact that says something of another's way of doing things. */
static bool check_pair(bool fact, bool other, JsonNode node, const char *name,
                       const char *needed, Err *err)
{
    if (!fact || other)
        return true;
    return json_fail(json_member(node, name), err, "true is allowed only where %s is", needed);
}

/* A list of facts by their words, instead of one that a layer below gives. */
static bool read_words(Software *sw, JsonNode list, const Fact *facts, size_t n,
                       const char *allowed, Err *err)
{
    if (!list.item)
        return true;
    if (json_type(list) != JSON_ARRAY)
        return json_fail(list, err, "a list is expected of: %s", allowed);
    for (size_t f = 0; f < n; f++)
        *fact_at(sw, &facts[f]) = false;
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
    if (list.item && sw->selective_all_but_qkv && json_items_n(list) > 1)
        return json_fail(list, err,
                         "'all_but_qkv' says it all, no other word is allowed beside it");
    return true;
}

static bool check_kernels(const Software *sw, JsonNode node, Err *err)
{
    return check_pair(sw->f32_stream, sw->f32_params, node, "f32_stream", "f32_params", err) &&
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
           check_pair(sw->f16_grads, sw->f32_grads, node, "f16_grads", "f32_grads", err) &&
           check_pair(sw->grads_added_last, sw->zeroes_grads, node, "grads_added_last",
                      "zero_grads", err);
}

static bool check_compiled_as(const Software *sw, JsonNode node, Err *err)
{
    Err why = { 0 };
    if (!sw->compiled_as)
        return true;
    if (json_is_path(sw->compiled_as))
        err_set(&why, "the name of a built-in training stack is expected, not a path");
    else if (software_exists(sw->compiled_as, &why))
        return true;
    return json_fail(json_member(node, "compiled_as"), err, "%s", why.text);
}

static bool read_kernels(const SoftwareLayer *l, JsonNode node, Err *err)
{
    Software *sw = l->sw;
    uint64_t losses = sw->metric_losses, multiple = sw->softmax_multiple;
    uint64_t longest = sw->softmax_longest;
    JsonObj o = json_begin(node, err);
    read_facts(l, &o, kernel_facts, ARRAY_N(kernel_facts));
    read_options(l, &o, kernel_options, ARRAY_N(kernel_options));
    read_count(l, &o, "metric_losses", METRIC_LOSSES_MAX, &losses);
    sw->metric_losses = (uint32_t)losses;
    read_count(l, &o, "softmax_multiple", SOFTMAX_MULTIPLE_MAX, &multiple);
    sw->softmax_multiple = (uint32_t)multiple;
    read_count(l, &o, "softmax_longest", SOFTMAX_LONGEST_MAX, &longest);
    sw->softmax_longest = (uint32_t)longest;
    if (says(l, &o, "attention_kernel"))
        sw->attention_kernel =
            (AttentionKernel)json_word(&o, "attention_kernel", attention_kernel_names,
                                       ATTENTION_KERNEL_N, ATTENTION_NEWEST);
    JsonNode passes = json_get(&o, "optimizer_passes");
    if (says(l, &o, "compiled_as") && json_has(&o, "compiled_as"))
        sw->compiled_as = arena_strdup(l->arena, json_string(&o, "compiled_as", ""));
    return json_end(&o) && check_compiled_as(sw, node, err) &&
           read_words(sw, passes, pass_facts, ARRAY_N(pass_facts), PASS_WORDS, err) &&
           check_kernels(sw, node, err);
}

static bool read_recompute(const SoftwareLayer *l, JsonNode node, Err *err)
{
    JsonObj o = json_begin(node, err);
    JsonNode list = json_get(&o, "selective");
    if (o.ok && !list.item && !l->based)
        o.ok = json_fail(node, err, "'selective' is missing, a list is expected");
    read_bool(l, &o, "stops_early", &l->sw->recompute_stops_early);
    read_options(l, &o, recompute_options, ARRAY_N(recompute_options));
    uint64_t launches = l->sw->checkpoint_launches;
    read_count(l, &o, "checkpoint_launches", CHECKPOINT_LAUNCHES_MAX, &launches);
    l->sw->checkpoint_launches = (uint32_t)launches;
    bool ok = json_end(&o);
    return ok && read_selective(l->sw, list, err);
}

static bool read_overlap(const SoftwareLayer *l, JsonNode node, Err *err)
{
    if (!node.item)
        return true;
    JsonObj o = json_begin(node, err);
    for (int d = 0; d < DIM_N; d++)
        read_bool(l, &o, dim_names[d], &l->sw->overlap[d]);
    return json_end(&o);
}

static bool read_parallel(const SoftwareLayer *l, JsonNode node, Err *err)
{
    Software *sw = l->sw;
    JsonObj o = json_begin(node, err);
    read_facts(l, &o, parallel_facts, ARRAY_N(parallel_facts));
    read_options(l, &o, parallel_options, ARRAY_N(parallel_options));
    if (says(l, &o, "vocab_multiple"))
        sw->vocab_multiple = json_count(&o, "vocab_multiple", 1, 65536, JSON_REQUIRED);
    read_count(l, &o, "bucket_parameters", BUCKET_PARAMETERS_MAX, &sw->bucket_parameters);
    read_count(l, &o, "bucket_parameters_per_rank", BUCKET_PARAMETERS_MAX,
               &sw->bucket_parameters_per_rank);
    JsonNode schedules = json_get(&o, "zero_bubble"), lacks = json_get(&o, "lacks");
    JsonNode overlap = read_object(l, &o, "overlap");
    return json_end(&o) && read_overlap(l, overlap, err) &&
           read_words(sw, schedules, schedule_facts, ARRAY_N(schedule_facts), SCHEDULE_WORDS,
                      err) &&
           read_words(sw, lacks, lack_facts, ARRAY_N(lack_facts), LACK_WORDS, err) &&
           check_pair(sw->tp_own_first, !sw->tp_ring, node, "tp_own_first", "not tp_ring",
                      err) &&
           check_pair(sw->pp_outputs_stay, sw->pp_keeps_outputs, node, "pp_outputs_stay",
                      "pp_keeps_outputs", err) &&
           (sw->grads_persist || !sw->grads_added_last ||
            json_fail(node, err, "grads_persist must be true where grads_added_last is"));
}

/* Where from is told of a whole stack, and may be of what is laid over one. */
static void read_origin(const SoftwareLayer *l, JsonObj *o, const char *key)
{
    if (says(l, o, key))
        json_string(o, key, NULL);
}

static bool read_assumed(const SoftwareLayer *l, JsonNode node, Err *err)
{
    JsonObj o = json_begin(node, err);
    l->sw->assumed_compute_scale = json_number(&o, "compute_scale", 0.1, 10, JSON_REQUIRED);
    read_origin(l, &o, "assumed_from");
    return json_end(&o);
}

static bool read_fitted(const SoftwareLayer *l, JsonNode node, Err *err)
{
    Software *sw = l->sw;
    uint64_t nics = sw->ring_nics;
    JsonObj o = json_begin(node, err);
    read_scale(l, &o, "host_scale", 30, &sw->host_scale);
    bool fitted = json_has(&o, "compute_scale");
    if (says(l, &o, "compute_scale")) {
        double x = json_number(&o, "compute_scale", 0.1, 10, sw->assumed_compute_scale);
        *l->fitted = fitted ? x : 0;
    }
    read_scale(l, &o, "comm_scale", 10, &sw->comm_scale);
    read_count(l, &o, "ring_nics", RING_NICS_MAX, &nics);
    sw->ring_nics = (uint32_t)nics;
    read_origin(l, &o, "fitted_on");
    bool ok = json_end(&o);
    if (ok && sw->ring_nics > 0 && sw->comm_scale != 1)
        ok = json_fail(json_member(node, "ring_nics"), err,
                       "allowed only without 'comm_scale': at most three scalars are fitted");
    return ok;
}

/* ---- sources ---- */

static bool read_source(const SoftwareLayer *l, JsonObj *o, const char *key, bool rest)
{
    if (!says(l, o, key))
        return true;
    const char *text = json_string(o, key, "");
    if (o->ok && !*text && !rest)
        o->ok = json_fail(o->node, o->err,
                          "no source for '%s'; give it one, or one for the \"rest\"", key);
    return o->ok;
}

/* What is left out needs no source. */
static void read_option_sources(const SoftwareLayer *l, JsonObj *o, const Fact *facts, size_t n,
                                bool rest)
{
    for (size_t i = 0; i < n; i++)
        read_source(l, o, facts[i].key, rest || !*fact_at(l->sw, &facts[i]));
}

static bool has_any(Software *sw, const Fact *facts, size_t n)
{
    size_t i = 0;
    while (i < n && !*fact_at(sw, &facts[i]))
        i++;
    return i < n;
}

bool software_selects(const Software *sw)
{
    Software copy = *sw;
    return has_any(&copy, selective_facts, ARRAY_N(selective_facts));
}

/* Of a whole stack every fact has one.  What is laid over it may give some: without one it is what
 * the layer says. */
static bool read_sources(const SoftwareLayer *l, JsonNode node, Err *err)
{
    static const char *const others[] = { "attention_kernel", "selective", "stops_early",
                                          "overlap", "vocab_multiple" };
    Software *sw = l->sw;
    JsonObj o = json_begin(node, err);
    bool rest = *json_string(&o, "rest", "") != '\0' || l->based;
    read_source(l, &o, "metric_losses", rest || sw->metric_losses == 0);
    read_source(l, &o, "softmax_multiple", rest || sw->softmax_multiple == 0);
    read_source(l, &o, "softmax_longest", rest || sw->softmax_longest == 0);
    read_source(l, &o, "compiled_as", rest || !sw->compiled_as);
    read_source(l, &o, "checkpoint_launches", rest || sw->checkpoint_launches == 0);
    read_source(l, &o, "bucket_parameters", rest || sw->bucket_parameters == 0);
    read_source(l, &o, "bucket_parameters_per_rank",
                rest || sw->bucket_parameters_per_rank == 0);
    read_source(l, &o, "optimizer_passes",
                rest || !has_any(sw, pass_facts, ARRAY_N(pass_facts)));
    read_source(l, &o, "zero_bubble",
                rest || !has_any(sw, schedule_facts, ARRAY_N(schedule_facts)));
    read_source(l, &o, "lacks", rest || !has_any(sw, lack_facts, ARRAY_N(lack_facts)));
    read_option_sources(l, &o, kernel_options, ARRAY_N(kernel_options), rest);
    read_option_sources(l, &o, parallel_options, ARRAY_N(parallel_options), rest);
    read_option_sources(l, &o, recompute_options, ARRAY_N(recompute_options), rest);
    for (size_t i = 0; i < ARRAY_N(kernel_facts); i++)
        read_source(l, &o, kernel_facts[i].key, rest);
    for (size_t i = 0; i < ARRAY_N(parallel_facts); i++)
        read_source(l, &o, parallel_facts[i].key, rest);
    for (size_t i = 0; i < ARRAY_N(others); i++)
        read_source(l, &o, others[i], rest);
    return json_end(&o);
}

/* ---- the layer ---- */

typedef bool ReadPart(const SoftwareLayer *l, JsonNode node, Err *err);

bool software_lay(const SoftwareLayer *l, Err *err)
{
    static const struct {
        const char *key;
        ReadPart *read;
        bool required;
    } parts[] = { { "kernels", read_kernels, true },   { "recompute", read_recompute, true },
                  { "parallel", read_parallel, true }, { "assumed", read_assumed, false },
                  { "fitted", read_fitted, false },    { "sources", read_sources, true } };
    JsonNode nodes[ARRAY_N(parts)];
    JsonObj o = json_begin(l->node, err);
    json_get(&o, "base");
    read_origin(l, &o, "name");
    if (says(l, &o, "source"))
        l->sw->source = arena_strdup(l->arena, json_string(&o, "source", NULL));
    json_string(&o, "notes", "");
    for (size_t i = 0; i < ARRAY_N(parts); i++)
        nodes[i] =
            parts[i].required ? read_object(l, &o, parts[i].key) : json_get(&o, parts[i].key);
    bool ok = json_end(&o);
    for (size_t i = 0; i < ARRAY_N(parts) && ok; i++)
        ok = !nodes[i].item || parts[i].read(l, nodes[i], err);
    return ok;
}

uint64_t software_vocab(const Software *sw, uint64_t vocab, uint32_t tp)
{
    uint64_t multiple = max_u64(1, sw->vocab_multiple) * tp;
    return div_up_u64(vocab, multiple) * multiple;
}
