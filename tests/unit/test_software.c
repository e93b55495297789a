/*
 * test_software.c - files that describe training stacks: read strictly, every fact with a source.
 */
#include "sim/software.h"
#include "tests/check.h"

/* A file that is fine; tests replace a piece of it. */
static const char good[] =
    "{\"name\":\"x\",\"source\":\"s\","
    "\"kernels\":{\"fused_attention\":true,\"fused_qkv\":true,\"fused_gate_up\":false,"
    "\"fused_gated\":true,\"fused_bias\":false,\"fused_elementwise\":true,"
    "\"fused_residual_norm\":false,\"fused_rope\":true,\"fused_cross_entropy\":false,"
    "\"fused_optimizer\":true,\"wgrad_accumulate\":false,\"f32_grads\":true,"
    "\"f32_logits\":true,\"norm_chain\":true,\"rope_chain\":false,\"dropout\":true},"
    "\"recompute\":{\"selective\":[\"attention\",\"norm\"],\"stops_early\":true},"
    "\"parallel\":{\"tp_async_backward\":true,\"grads_persist\":false,\"bucket_copies\":true,"
    "\"p2p_waits_for_send\":true,\"overlap_param_gather\":true,\"cp_ring\":false,\"vocab_"
    "multiple\":128,"
    "\"overlap\":{\"tp\":false,\"cp\":false,\"ep\":false,\"dp\":true,\"pp\":false}},"
    "\"fitted\":{\"host_scale\":1.25,\"fitted_on\":\"three runs\"},"
    "\"sources\":{\"fused_rope\":\"a page\",\"rest\":\"a book\"}}";

static bool read_text(Software *sw, Arena *arena, const char *text, Err *err)
{
    JsonDoc *doc = json_parse(text, strlen(text), "x.json", err);
    SoftwareLayers l;
    bool ok = doc && software_open(&l, arena, json_root(doc), err);
    if (ok) {
        ok = software_from(sw, arena, &l, err);
        software_close(&l);
    }
    json_close(doc);
    return ok;
}

/* The text with the first `from` replaced by `to`. */
static const char *replaced(Arena *arena, const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    CHECK(at != NULL);
    return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static bool read_with(Software *sw, Arena *arena, const char *from, const char *to, Err *err)
{
    return read_text(sw, arena, replaced(arena, good, from, to), err);
}

static void facts_are_read(void)
{
    Software sw;
    Arena arena = { 0 };
    Err err = { 0 };
    CHECK(read_text(&sw, &arena, good, &err));
    CHECK_STR("x", sw.name);
    CHECK(sw.fused_attention && !sw.fused_gate_up && sw.f32_grads && !sw.wgrad_accumulate);
    CHECK(sw.selective_attention && sw.selective_norm && !sw.selective_activation);
    CHECK(sw.recompute_stops_early && sw.p2p_waits_for_send && !sw.grads_persist &&
          sw.overlap_param_gather && !sw.cp_ring);
    CHECK(sw.overlap[DIM_DP] && !sw.overlap[DIM_TP]);
    CHECK_U64(128, sw.vocab_multiple);
    CHECK_NEAR(1.25, sw.host_scale, 0);
    CHECK_NEAR(1, sw.compute_scale, 0);
    CHECK_U64(0, sw.ring_nics);
    CHECK(read_with(&sw, &arena, "1.25", "1.25,\"ring_nics\":1", &err));
    CHECK_U64(1, sw.ring_nics);
    arena_free(&arena);
}

/* Of what may be left out only what is there has a source. */
static void an_option_that_is_set_has_a_source(void)
{
    static const char *const cases[][3] = {
        { "\"cp_ring\"", "\"cp_ring\"", "fused_attention" },
        { "\"cp_ring\"", "\"f32_reduce\":true,\"cp_ring\"", "f32_reduce" },
        { "\"cp_ring\"", "\"bucket_parameters\":7,\"cp_ring\"", "bucket_parameters" },
        { "\"dropout\"", "\"metric_losses\":2,\"dropout\"", "metric_losses" },
        { "\"dropout\"", "\"optimizer_passes\":[\"norm\"],\"dropout\"", "optimizer_passes" },
        { "\"cp_ring\"", "\"zero_bubble\":[\"zbv\"],\"cp_ring\"", "zero_bubble" },
        { "\"cp_ring\"", "\"lacks\":[\"tp\"],\"cp_ring\"", "lacks" },
    };
    Arena arena = { 0 };
    const char *text = replaced(&arena, good, "\"rest\":\"a book\"", "\"overlap\":\"z\"");
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Software sw;
        Err err = { 0 };
        CHECK(!read_text(&sw, &arena, replaced(&arena, text, cases[i][0], cases[i][1]), &err));
        CHECK_ERR_TEXT(&err, arena_printf(&arena, "sources: no source for '%s'", cases[i][2]));
    }
    arena_free(&arena);
}

/* Facts that younger stacks state and others leave out. */
static void some_facts_may_be_left_out(void)
{
    Software sw;
    Arena arena = { 0 };
    Err err = { 0 };
    CHECK(read_text(&sw, &arena, good, &err));
    CHECK(!sw.p2p_blocks_host && !sw.p2p_scatter_gather && !sw.zero_reduces_last);
    CHECK(!sw.gather_copies && !sw.f32_reduce && !sw.pp_overlap_interleaved);
    CHECK(!sw.tp_keeps_gathered && !sw.pp_keeps_params && !sw.pp_accumulates &&
          !sw.reduce_copies);
    CHECK(!sw.root_unit && !sw.keeps_last_unit && !sw.gelu_new_chain && !sw.softmax_chain);
    CHECK(!sw.zero_all_reduces && !sw.first_chunk_buckets && !sw.divides_grads);
    CHECK(!sw.attention_copies && !sw.repeats_kv && !sw.master_remainders &&
          !sw.model_dropout && !sw.states_like_params && !sw.table_grad_apart);
    CHECK(!sw.foreach_optimizer && !sw.loss_in_place && !sw.fp8_dynamic);
    CHECK(!sw.norms_grads && !sw.copies_params && !sw.post_validates);
    CHECK_U64(0, sw.bucket_parameters);
    CHECK_U64(0, sw.bucket_parameters_per_rank);
    for (int k = 0; k < SCHEDULE_N; k++)
        CHECK(!sw.zero_bubble[k]);
    CHECK(!sw.lacks_dim[DIM_PP] && !sw.lacks_strategy[STRATEGY_FSDP] && !sw.lacks_interleaved);
    CHECK(read_with(&sw, &arena, "\"cp_ring\":false",
                    "\"cp_ring\":false,\"lacks\":[\"pp\",\"fsdp\"]", &err));
    CHECK(sw.lacks_dim[DIM_PP] && sw.lacks_strategy[STRATEGY_FSDP] && !sw.lacks_interleaved);
    CHECK(!sw.lacks_dim[DIM_TP] && !sw.lacks_strategy[STRATEGY_ZERO1]);
    CHECK(read_with(
        &sw, &arena, "\"cp_ring\":false",
        "\"cp_ring\":false,\"zero_bubble\":[\"zb-2p\",\"zbv\"],\"p2p_scatter_gather\":true,"
        "\"zero_reduces_last\":true,"
        "\"gather_copies\":true,\"f32_reduce\":true,\"reduce_copies\":true,"
        "\"pp_overlap_interleaved\":true,\"tp_keeps_gathered\":true,"
        "\"pp_keeps_params\":true,\"pp_accumulates\":true,\"root_unit\":true,\"divides_grads\":"
        "true,"
        "\"first_chunk_buckets\":true,\"keeps_last_unit\":true,\"post_validates\":true,"
        "\"bucket_parameters\":40000000,\"bucket_parameters_per_rank\":1000000",
        &err));
    CHECK(sw.p2p_scatter_gather && sw.zero_reduces_last && sw.gather_copies && sw.f32_reduce);
    CHECK(sw.pp_overlap_interleaved && sw.tp_keeps_gathered && sw.pp_keeps_params &&
          sw.pp_accumulates);
    CHECK(sw.first_chunk_buckets && sw.divides_grads && sw.post_validates);
    CHECK(sw.reduce_copies && sw.root_unit && sw.keeps_last_unit);
    for (int k = 0; k < SCHEDULE_N; k++)
        CHECK_INT(k == SCHEDULE_ZB_2P || k == SCHEDULE_ZBV, sw.zero_bubble[k]);
    CHECK_U64(40000000, sw.bucket_parameters);
    CHECK_U64(1000000, sw.bucket_parameters_per_rank);
    CHECK(read_with(&sw, &arena, "\"bucket_copies\":true",
                    "\"bucket_copies\":true,\"zero_all_reduces\":true", &err));
    CHECK(sw.zero_all_reduces);
    CHECK(read_with(
        &sw, &arena, "\"dropout\":true",
        "\"dropout\":true,\"foreach_optimizer\":true,\"loss_in_place\":true,"
        "\"fp8_dynamic\":true,\"gelu_new_chain\":true,\"softmax_chain\":true,"
        "\"model_dropout\":true,\"states_like_params\":true,\"master_remainders\":true,"
        "\"attention_copies\":true,\"repeats_kv\":true,\"softmax_multiple\":4,\"softmax_"
        "longest\":2048,"
        "\"table_grad_apart\":true",
        &err));
    CHECK(sw.softmax_multiple == 4 && sw.softmax_longest == 2048);
    CHECK(sw.foreach_optimizer && sw.loss_in_place && sw.fp8_dynamic);
    CHECK(sw.gelu_new_chain && sw.softmax_chain && sw.model_dropout);
    CHECK(sw.attention_copies && sw.repeats_kv && sw.master_remainders &&
          sw.states_like_params && sw.table_grad_apart);
    CHECK(read_with(&sw, &arena, "\"stops_early\":true",
                    "\"stops_early\":true,\"checkpoint_launches\":9", &err));
    CHECK_INT(9, sw.checkpoint_launches);
    arena_free(&arena);
}

/* A stack that was never measured assumes what others show; its own fit counts before that. */
static void a_fit_counts_before_what_is_assumed(void)
{
    Software sw;
    Arena arena = { 0 };
    Err err = { 0 };
    const char assumed[] = "\"assumed\":{\"compute_scale\":1.5,\"assumed_from\":\"others\"},"
                           "\"sources\":{";
    CHECK(read_with(&sw, &arena, "\"sources\":{", assumed, &err));
    CHECK_NEAR(1.5, sw.compute_scale, 0);
    CHECK_NEAR(1.5, sw.assumed_compute_scale, 0);
    CHECK_NEAR(1.25, sw.host_scale, 0);
    CHECK(read_with(&sw, &arena, "three runs\"},\"sources\":{",
                    "three runs\",\"compute_scale\":0.9},\"assumed\":{\"compute_scale\":1.5,"
                    "\"assumed_from\":\"others\"},\"sources\":{",
                    &err));
    CHECK_NEAR(0.9, sw.compute_scale, 0);
    arena_free(&arena);
}

static void check_refused(const char *from, const char *to, const char *text)
{
    Software sw;
    Arena arena = { 0 };
    Err err = { 0 };
    CHECK(!read_with(&sw, &arena, from, to, &err));
    CHECK_ERR_TEXT(&err, text);
    arena_free(&arena);
}

static void lists_have_known_words(void)
{
    static const struct {
        const char *from, *to, *text;
    } cases[] = {
        { "\"dropout\":true", "\"dropout\":true,\"optimizer_passes\":[\"norm\",\"nrm\"]",
          "kernels.optimizer_passes[1]: unknown word 'nrm', allowed: zero_grads, check_grads, "
          "average_grads, main_grads, unscale, norm, clip, copy_params" },
        { "\"dropout\":true", "\"dropout\":true,\"optimizer_passes\":7",
          "kernels.optimizer_passes: a list is expected of: zero_grads, check_grads, "
          "average_grads, main_grads, unscale, norm, clip, copy_params" },
        { "\"cp_ring\":false", "\"cp_ring\":false,\"zero_bubble\":[\"zbv\",\"1f1b\"]",
          "parallel.zero_bubble[1]: unknown word '1f1b', allowed: zb-h1, zb-1p, zb-2p, zbv, "
          "dualpipe" },
        { "\"cp_ring\":false", "\"cp_ring\":false,\"lacks\":[\"pp\",\"dp\"]",
          "parallel.lacks[1]: unknown word 'dp', allowed: tp, pp, cp, ep, sequence_parallel, "
          "interleaved, zero1, zero2, fsdp, hsdp" },
        { "\"cp_ring\":false", "\"cp_ring\":false,\"zero_bubble\":true",
          "parallel.zero_bubble: a list is expected of: zb-h1, zb-1p, zb-2p, zbv, dualpipe" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        check_refused(cases[i].from, cases[i].to, cases[i].text);
}

static void what_is_missing_or_unknown_is_an_error(void)
{
    static const struct {
        const char *from, *to, *text;
    } cases[] = {
        { "\"fused_rope\":true,", "",
          "x.json: kernels: 'fused_rope' is missing, true or false" },
        { "\"fused_rope\":true", "\"fused_rope\":1", "fused_rope" },
        { "\"f32_logits\":true", "\"f32_logits\":true,\"f64\":true", "f64" },
        { "\"norm\"]", "\"gemm\"]",
          "recompute.selective[1]: unknown word 'gemm', allowed: attention, norm, activation, "
          "op, all_but_qkv, latent_up" },
        { "[\"attention\",\"norm\"]", "\"all\"", "a list is expected of: attention, norm" },
        { "[\"attention\",\"norm\"]", "[\"all_but_qkv\",\"norm\"]",
          "recompute.selective: 'all_but_qkv' says it all, no other word is allowed beside "
          "it" },
        { "\"selective\":[\"attention\",\"norm\"],", "", "'selective' is missing" },
        { ",\"pp\":false", "", "parallel.overlap: 'pp' is missing" },
        { "\"rest\":\"a book\"", "\"overlap\":\"z\"",
          "sources: no source for 'fused_attention'" },
        { "\"a page\"", "\"a page\",\"colour\":\"z\"", "colour" },
        { ",\"fitted_on\":\"three runs\"", "", "fitted_on" },
        { "1.25", "99", "host_scale" },
        { "1.25", "1.25,\"ring_nics\":65",
          "fitted.ring_nics: 65 is out of range, 0 to 64 allowed" },
        { "1.25", "1.25,\"comm_scale\":1.5,\"ring_nics\":1",
          "fitted.ring_nics: allowed only without 'comm_scale': at most three scalars are "
          "fitted" },
        { "\"sources\":{", "\"assumed\":{\"compute_scale\":1.5},\"sources\":{",
          "assumed.assumed_from: the key is missing" },
        { "\"sources\":{", "\"assumed\":{\"assumed_from\":\"others\"},\"sources\":{",
          "assumed.compute_scale: the key is missing" },
        { "\"vocab_multiple\":128", "\"vocab_multiple\":0", "vocab_multiple" },
        { "\"cp_ring\":false", "\"cp_ring\":false,\"bucket_parameters\":-1",
          "bucket_parameters" },
        { "\"dropout\":true", "\"dropout\":true,\"f32_stream\":true",
          "kernels.f32_stream: true is allowed only where f32_params is" },
        { "\"dropout\":true", "\"dropout\":true,\"keeps_logits\":true",
          "kernels.keeps_logits: true is allowed only where fused_cross_entropy is" },
        { "\"dropout\":true", "\"dropout\":true,\"loss_in_place\":true,\"half_to_float\":true",
          "kernels.half_to_float: true is allowed only where f32_logits without loss_in_place "
          "is" },
        { "\"f32_grads\":true", "\"f32_grads\":false,\"f16_grads\":true",
          "kernels.f16_grads: true is allowed only where f32_grads is" },
        { "\"f32_grads\":true", "\"f32_grads\":true,\"grads_added_last\":true",
          "kernels.grads_added_last: true is allowed only where zero_grads is" },
        { "\"f32_grads\":true",
          "\"f32_grads\":true,\"optimizer_passes\":[\"zero_grads\"],\"grads_added_last\":true",
          "parallel: grads_persist must be true where grads_added_last is" },
        { "\"f32_grads\":true", "\"f32_grads\":true,\"bf16_grads_f32\":true",
          "kernels.bf16_grads_f32: true is allowed only where not f32_grads is" },
        { "\"f32_grads\":true", "\"f32_grads\":true,\"loss_copies\":true",
          "kernels.loss_copies: true is allowed only where loss_in_place is" },
        { "\"tp_async_backward\":true",
          "\"tp_async_backward\":true,\"tp_ring\":true,\"tp_own_first\":true",
          "parallel.tp_own_first: true is allowed only where not tp_ring is" },
        { "\"tp_async_backward\":true", "\"tp_async_backward\":true,\"pp_outputs_stay\":true",
          "parallel.pp_outputs_stay: true is allowed only where pp_keeps_outputs is" },
        { "\"dropout\":true", "\"dropout\":true,\"metric_losses\":9",
          "kernels.metric_losses: 9 is out of range, 0 to 8 allowed" },
        { "\"dropout\":true", "\"dropout\":true,\"softmax_multiple\":65",
          "kernels.softmax_multiple: 65 is out of range, 0 to 64 allowed" },
        { "\"dropout\":true", "\"dropout\":true,\"softmax_longest\":-1",
          "kernels.softmax_longest" },
        { "\"stops_early\":true", "\"stops_early\":true,\"checkpoint_launches\":1001",
          "recompute.checkpoint_launches: 1001 is out of range, 0 to 1000 allowed" },
        { "\"parallel\":{", "\"parallels\":{", "'parallel' is missing, an object is expected" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        check_refused(cases[i].from, cases[i].to, cases[i].text);
}

static void built_in_stacks_can_be_read(void)
{
    static const char *const names[] = { "generic", "lockstep" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        Software sw;
        Arena arena = { 0 };
        Err err = { 0 };
        CHECK(software_read(&sw, &arena, names[i], &err));
        CHECK_STR(names[i], sw.name);
        CHECK_STR("", err.text);
        arena_free(&arena);
    }
}

static void an_unknown_stack_is_named(void)
{
    static const char *const names[] = { "pytorch-9", "", "Generic" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        Software sw;
        Arena arena = { 0 };
        Err err = { 0 };
        CHECK(!software_read(&sw, &arena, names[i], &err));
        CHECK_ERR_TEXT(&err, "unknown software '");
        CHECK_ERR_TEXT(&err, names[i]);
        arena_free(&arena);
    }
}

/* ---- layers ---- */

/* Bytes in which two stacks differ, but for their names. */
static size_t differing(const Software *a, const Software *b)
{
    Software x = *a, y = *b;
    x.name = y.name = x.source = y.source = NULL;
    size_t n = 0;
    for (size_t i = 0; i < sizeof x; i++)
        n += ((const char *)&x)[i] != ((const char *)&y)[i];
    return n;
}

/* Each fact of the whole stack, the other way round: one bool differs, unless the fact that it says
 * something of forbids it. */
static void flip_each(const Software *whole, JsonNode root, const char *part)
{
    JsonNode facts = json_member(root, part);
    for (size_t i = 0; json_key(facts, i); i++) {
        const char *key = json_key(facts, i);
        JsonNode value = json_member(facts, key);
        if (json_type(value) != JSON_BOOL)
            continue;
        Software sw;
        Arena arena = { 0 };
        Err err = { 0 };
        const char *text =
            arena_printf(&arena, "{\"base\":\"%s\",\"%s\":{\"%s\":%s}}", whole->name, part, key,
                         json_truth(value) ? "false" : "true");
        if (read_text(&sw, &arena, text, &err))
            CHECK_U64(1, differing(whole, &sw));
        else
            CHECK_ERR_TEXT(&err, ": true is allowed only where ");
        arena_free(&arena);
    }
}

static void a_layer_changes_what_it_says_and_nothing_else(void)
{
    static const char *const names[] = { "generic", "megatron-deepspeed-2022", "maxtext-2025" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        Software whole, same;
        Arena arena = { 0 };
        Err err = { 0 };
        JsonDoc *doc =
            json_open(arena_printf(&arena, "scenarios/software/%s.json", names[i]), &err);
        CHECK(doc && software_read(&whole, &arena, names[i], &err));
        CHECK(read_text(&same, &arena, arena_printf(&arena, "{\"base\":\"%s\"}", names[i]),
                        &err));
        CHECK_U64(0, differing(&whole, &same));
        CHECK_STR(arena_printf(&arena, "%s (changed)", names[i]), same.name);
        CHECK_STR(whole.source, same.source);
        flip_each(&whole, json_root(doc), "kernels");
        flip_each(&whole, json_root(doc), "parallel");
        json_close(doc);
        arena_free(&arena);
    }
}

static void lists_numbers_and_words_of_a_layer_count(void)
{
    Software sw, base;
    Arena arena = { 0 };
    Err err = { 0 };
    CHECK(software_read(&base, &arena, "megatron-core-2025", &err));
    CHECK(base.norms_grads && !base.selective_op);
    CHECK(read_text(
        &sw, &arena,
        "{\"base\":\"megatron-core-2025\",\"name\":\"ours\",\"source\":\"us\",\"notes\":\"n\","
        "\"kernels\":{\"optimizer_passes\":[],\"attention_kernel\":\"flash2\"},"
        "\"recompute\":{\"selective\":[\"op\"]},"
        "\"parallel\":{\"zero_bubble\":[\"zbv\"],\"overlap\":{\"tp\":false},"
        "\"bucket_parameters\":7,\"vocab_multiple\":3},"
        "\"fitted\":{\"comm_scale\":1.5},\"sources\":{\"selective\":\"page\"}}",
        &err));
    CHECK_STR("", err.text);
    CHECK_STR("ours", sw.name);
    CHECK_STR("us", sw.source);
    CHECK(!sw.norms_grads && !sw.clips_grads && sw.selective_op && !sw.selective_attention);
    CHECK(sw.recompute_stops_early == base.recompute_stops_early);
    CHECK(sw.zero_bubble[SCHEDULE_ZBV] && !sw.overlap[DIM_TP]);
    CHECK_INT(ATTENTION_FLASH2, sw.attention_kernel);
    CHECK_INT(base.overlap[DIM_DP], sw.overlap[DIM_DP]);
    CHECK_U64(7, sw.bucket_parameters);
    CHECK_U64(3, sw.vocab_multiple);
    CHECK_NEAR(1.5, sw.comm_scale, 0);
    CHECK_NEAR(base.host_scale, sw.host_scale, 0);
    CHECK_NEAR(base.compute_scale, sw.compute_scale, 0);
    arena_free(&arena);
}

/* What is fitted counts before what is assumed, in whatever layer. */
static void a_fit_of_any_layer_counts(void)
{
    static const struct {
        const char *text;
        double compute;
    } cases[] = {
        { "\"fitted\":{\"compute_scale\":1.25}", 1.25 },
        { "\"assumed\":{\"compute_scale\":1.5}", 0 }, /* as the base */
        { "\"fitted\":{\"host_scale\":2}", 0 },
    };
    Software base;
    Arena arena = { 0 };
    Err err = { 0 };
    CHECK(software_read(&base, &arena, "megatron-deepspeed-2022", &err));
    CHECK(base.compute_scale != base.assumed_compute_scale || base.compute_scale != 1);
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Software sw;
        const char *text =
            arena_printf(&arena, "{\"base\":\"megatron-deepspeed-2022\",%s}", cases[i].text);
        CHECK(read_text(&sw, &arena, text, &err));
        CHECK_NEAR(cases[i].compute > 0 ? cases[i].compute : base.compute_scale,
                   sw.compute_scale, 0);
    }
    CHECK(!read_text(&base, &arena,
                     "{\"base\":\"generic\",\"fitted\":{\"comm_scale\":2,\"ring_nics\":1}}",
                     &err));
    CHECK_ERR_TEXT(&err, "x.json: fitted.ring_nics: allowed only without 'comm_scale'");
    arena_free(&arena);
}

static void what_a_layer_cannot_be_is_said(void)
{
    static const char *const cases[][2] = {
        { "{\"base\":\"generc\"}", "x.json: base: unknown software 'generc', did you mean" },
        { "{\"base\":3}", "x.json: base: a name or a path is expected, not a number" },
        { "{\"base\":\"no/such.json\"}", "x.json: base: cannot open 'no/such.json'" },
        { "{\"base\":\"generic\",\"kernel\":{}}", "x.json: kernel: unknown key, did you mean" },
        { "{\"base\":\"generic\",\"kernels\":{\"fused_qvk\":true}}",
          "x.json: kernels.fused_qvk: unknown key, did you mean 'fused_qkv'?" },
        { "{\"base\":\"generic\",\"kernels\":3}",
          "x.json: kernels: an object is expected, not a number" },
        { "{\"base\":\"generic\",\"recompute\":{\"selective\":\"op\"}}",
          "x.json: recompute.selective: a list is expected of: attention" },
        { "{\"base\":\"generic\",\"parallel\":{\"overlap\":true}}",
          "x.json: parallel.overlap: an object is expected, not true" },
        { "{\"kernels\":{}}", "x.json: name: the key is missing" },
        { "[]", "x.json: a training stack's name, a path to a .json file or an object is "
                "expected, not a list" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Software sw;
        Arena arena = { 0 };
        Err err = { 0 };
        CHECK(!read_text(&sw, &arena, cases[i][0], &err));
        CHECK_ERR_TEXT(&err, cases[i][1]);
        arena_free(&arena);
    }
}

int main(void)
{
    RUN(facts_are_read);
    RUN(an_option_that_is_set_has_a_source);
    RUN(some_facts_may_be_left_out);
    RUN(a_fit_counts_before_what_is_assumed);
    RUN(lists_have_known_words);
    RUN(what_is_missing_or_unknown_is_an_error);
    RUN(built_in_stacks_can_be_read);
    RUN(an_unknown_stack_is_named);
    RUN(a_layer_changes_what_it_says_and_nothing_else);
    RUN(lists_numbers_and_words_of_a_layer_count);
    RUN(a_fit_of_any_layer_counts);
    RUN(what_a_layer_cannot_be_is_said);
    return check_report();
}
