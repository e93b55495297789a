/*
 * test_model.c - models against what others published about them.
 *
 * Expected counts come from outside: the numbers that the makers or the hub
 * publish, each confirmed by num_parameters() of transformers 4.57.3 on the
 * meta device or by torchvision 0.29.2; never from this program's output.
 */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/model.h"
#include "tests/check.h"

/* ---- reading ---- */

typedef struct Read {
    Model model;
    Err err;
    Arena arena;
    bool ok;
} Read;

/* text stands as "model" in a scenario called file. */
static void read_in(Read *r, const char *file, const char *text)
{
    memset(r, 0, sizeof *r);
    const char *all = arena_printf(&r->arena, "{\"model\": %s}", text);
    JsonDoc *doc = json_parse(all, strlen(all), file, &r->err);
    r->ok = doc && model_read(&r->model, &r->arena, json_member(json_root(doc), "model"),
                              "scenarios", &r->err);
    json_close(doc);
    CHECK(r->ok == !r->err.set);
}

static Transformer read_transformer(const char *text)
{
    Read r;
    read_in(&r, "s.json", text);
    if (!CHECK(r.ok))
        fprintf(stderr, "    %s: %s\n", text, r.err.text);
    CHECK(r.model.kind == MODEL_TRANSFORMER);
    arena_free(&r.arena);
    return r.model.u.transformer;
}

static uint64_t params_of(const char *text)
{
    Read r;
    read_in(&r, "s.json", text);
    if (!CHECK(r.ok))
        fprintf(stderr, "    %s: %s\n", text, r.err.text);
    uint64_t params = r.ok ? model_params(&r.model) : 0;
    arena_free(&r.arena);
    return params;
}

static uint64_t active_params_of(const char *text)
{
    Read r;
    read_in(&r, "s.json", text);
    uint64_t params = r.ok ? model_active_params(&r.model) : 0;
    arena_free(&r.arena);
    return params;
}

static void check_error(const char *text, const char *part)
{
    Read r;
    read_in(&r, "s.json", text);
    if (!CHECK(!r.ok))
        fprintf(stderr, "    %s was read\n", text);
    CHECK_ERR_TEXT(&r.err, part);
    arena_free(&r.arena);
}

typedef struct TextPart {
    const char *text, *part;
} TextPart;

static void check_errors(const TextPart *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_error(rows[i].text, rows[i].part);
}

/* ---- counts ---- */

typedef struct Published {
    const char *text;
    uint64_t params;
} Published;

static void check_published(const Published *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!CHECK_U64(rows[i].params, params_of(rows[i].text)))
            fprintf(stderr, "    of %s\n", rows[i].text);
}

/*
 * "Safetensors" parameter counts of the hub (huggingface.co/REPO, REPO as in
 * the model file's "source"); where the hub shows a rounded or no number, the
 * exact one is transformers' own.
 */
static void built_in_language_models_have_their_published_size(void)
{
    static const Published rows[] = {
        { "\"gpt2\"", 124439808 },
        { "\"gpt2-medium\"", 354823168 },
        { "\"gpt2-large\"", 774030080 },
        { "\"gpt2-xl\"", 1557611200 },
        { "\"llama2-7b\"", 6738415616 },
        { "\"llama2-13b\"", 13015864320 },
        { "\"llama2-70b\"", 68976648192 },
        { "\"llama3-8b\"", 8030261248 },
        { "\"llama3-70b\"", 70553706496 },
        { "\"llama3-405b\"", 405853388800 },
        { "\"llama3.2-1b\"", 1235814400 },
        { "\"llama3.2-3b\"", 3212749824 },
        { "\"tinyllama-1.1b\"", 1100048384 },
        { "\"mistral-7b\"", 7241732096 },
        { "\"mixtral-8x7b\"", 46702792704 },
        { "\"mixtral-8x22b\"", 140620634112 },
        { "\"qwen2-0.5b\"", 494032768 },
        { "\"qwen2.5-7b\"", 7615616512 },
        { "\"qwen2.5-72b\"", 72706203648 },
        { "\"qwen3-8b\"", 8190735360 },
        { "\"qwen3-30b-a3b\"", 30532122624 },
        { "\"qwen3-235b-a22b\"", 235093634560 },
        { "\"qwen1.5-moe-a2.7b\"", 14315784192 },
        { "\"deepseek-v2-lite\"", 15706484224 },
        { "\"deepseek-v2\"", 235741434880 },
        /* 671,026,419,200 less 58 x 256 biases that choose experts and have no gradient */
        { "\"deepseek-v3\"", 671026404352 },
        { "\"gemma-2b\"", 2506172416 },
        { "\"gemma-7b\"", 8537680896 },
        { "\"gemma2-9b\"", 9241705984 },
        { "\"gemma2-27b\"", 27227128320 },
        { "\"phi3-mini\"", 3821079552 },
        { "\"gpt-neox-20b\"", 20554567680 },
        { "\"pythia-70m\"", 70426624 }, /* both Pythias: Biderman et al. 2023, table 1 */
        { "\"pythia-6.9b\"", 6857302016 },
        { "\"opt-125m\"", 125239296 },
        { "\"opt-350m\"", 331196416 },
        { "\"opt-6.7b\"", 6658473984 },
        { "\"bert-base\"", 109514298 }, /* BertForMaskedLM */
        { "\"bert-large\"", 335174458 },
    };
    check_published(rows, ARRAY_N(rows));
}

/* The hub's exact counts, of configs as published (sizes only). */
static void further_families_have_their_published_size(void)
{
    static const Published rows[] = {
        { "\"bloom-176b\"", 176247271424 },
        { "{\"model_type\": \"bloom\", \"hidden_size\": 1024, \"n_layer\": 24, "
          "\"n_head\": 16, \"vocab_size\": 250880}",
          559214592 },
        { "\"falcon-40b\"", 41303293952 },
        { "{\"model_type\": \"falcon\"}", 6921720704 }, /* 7B is the default */
        { "\"mpt-7b\"", 6649286656 },
        { "{\"model_type\": \"starcoder2\"}", 3030371328 },
        { "\"starcoder2-15b\"", 15957889024 },
        { "{\"model_type\": \"gpt_bigcode\", \"n_embd\": 6144, \"n_layer\": 40, "
          "\"n_head\": 48, \"n_inner\": 24576, \"vocab_size\": 49152, "
          "\"n_positions\": 8192}",
          15517456384 },
        { "{\"model_type\": \"gptj\"}", 6050882784 },
        { "{\"model_type\": \"phi\", \"hidden_size\": 2560, \"num_hidden_layers\": 32, "
          "\"num_attention_heads\": 32, \"vocab_size\": 51200, \"intermediate_size\": 10240}",
          2779683840 },
        { "{\"model_type\": \"granite\", \"hidden_size\": 4096, \"num_hidden_layers\": 40, "
          "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 49155, "
          "\"intermediate_size\": 12800, \"tie_word_embeddings\": true}",
          8170848256 },
        { "{\"model_type\": \"olmo\"}", 6888095744 },
        { "{\"model_type\": \"stablelm\"}", 2795443200 },
        { "{\"model_type\": \"cohere\"}", 34980831232 },
        { "\"gemma3-1b\"", 999885952 },
        /* OLMo-2-1124-7B, GLM-4-9B-0414, c4ai-command-r7b-12-2024, SmolLM3-3B, ERNIE-4.5-0.3B,
         * granite-3.0-1b-a400m-base, roberta-base */
        { "\"olmo2-7b\"", 7298617344 },
        { "{\"model_type\": \"glm4\"}", 9400279040 },
        { "{\"model_type\": \"cohere2\", \"hidden_size\": 4096, \"num_hidden_layers\": 32, "
          "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 256000, "
          "\"intermediate_size\": 14336}",
          8028033024 },
        { "\"smollm3-3b\"", 3075098624 },
        { "{\"model_type\": \"ernie4_5\"}", 360748032 },
        { "{\"model_type\": \"granitemoe\", \"hidden_size\": 1024, \"num_hidden_layers\": 24, "
          "\"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"vocab_size\": 49155, "
          "\"intermediate_size\": 512, \"num_local_experts\": 32, \"num_experts_per_tok\": 8, "
          "\"tie_word_embeddings\": true}",
          1334628352 },
        { "{\"model_type\": \"roberta\", \"hidden_size\": 768, \"num_hidden_layers\": 12, "
          "\"num_attention_heads\": 12, \"vocab_size\": 50265, "
          "\"max_position_embeddings\": 514, \"type_vocab_size\": 1}",
          124697433 },
    };
    check_published(rows, ARRAY_N(rows));
    /* Its card says 106B, 12B active, without the layer that predicts further tokens. */
    CHECK_NEAR(106e9, (double)params_of("\"glm4.5-air\""), 0.01);
}

/* Of those of which only rounded counts were published. */
static void further_families_have_about_their_published_size(void)
{
    /* arXiv 2508.10925 (gpt-oss), table 1: 116.83B and 20.91B, active 5.13B and 3.61B, which
     * leave out the embedding but not the head */
    const char *big = "\"gpt-oss-120b\"", *small = "\"gpt-oss-20b\"";
    double table = 201088.0 * 2880;
    CHECK_NEAR(116.83e9, (double)params_of(big), 5e-5);
    CHECK_NEAR(20.91e9, (double)params_of(small), 3e-4);
    CHECK_NEAR(5.13e9, (double)active_params_of(big) - table, 2e-3);
    CHECK_NEAR(3.61e9, (double)active_params_of(small) - table, 2e-3);
    /* arXiv 2406.11704 (Nemotron-4 340B), table 1: 9.4B of embeddings, 331.6B others */
    CHECK_NEAR(341.0e9, (double)params_of("\"nemotron4-340b\""), 5e-4);
    /* Cards: 109B and 400B with their encoders of images, 17B active; 21B, 3B active; 36B */
    CHECK_NEAR(108e9, (double)params_of("\"llama4-scout\""), 0.01);
    CHECK_NEAR(400e9, (double)params_of("\"llama4-maverick\""), 0.01);
    CHECK_NEAR(17e9, (double)active_params_of("\"llama4-maverick\""), 0.02);
    CHECK_NEAR(21.5e9, (double)params_of("{\"model_type\": \"ernie4_5_moe\"}"), 0.03);
    CHECK_NEAR(36e9,
               (double)params_of("{\"model_type\": \"seed_oss\", \"hidden_size\": 5120, "
                                 "\"num_hidden_layers\": 64, \"num_attention_heads\": 80, "
                                 "\"vocab_size\": 155136}"),
               0.01);
}

static void newer_families_have_their_habits(void)
{
    Transformer t = read_transformer("{\"model_type\": \"olmo2\"}");
    CHECK(t.branch_norm && t.qk_norm_whole && !t.sandwich_norm && t.norm == NORM_RMSNORM);
    t = read_transformer("{\"model_type\": \"nemotron\"}");
    CHECK(!t.gated && t.activation == ACT_RELU2 && t.norm_bias && !t.qkv_bias && !t.mlp_bias);
    t = read_transformer("{\"model_type\": \"glm4\"}");
    CHECK(t.sandwich_norm && t.qkv_bias && !t.out_bias);
    t = read_transformer("{\"model_type\": \"cohere2\"}");
    for (uint32_t l = 0; l < 8; l++) {
        CHECK_INT(l % 4 == 3 ? 0 : 4096, transformer_window(&t, l));
        CHECK(transformer_is_nope(&t, l) == (l % 4 == 3));
    }
    CHECK(t.parallel_block && !t.two_norms_parallel);
    t = read_transformer("{\"model_type\": \"gpt_oss\"}");
    CHECK(t.sinks && t.mlp_bias && t.out_bias && transformer_is_moe(&t, 0));
    CHECK(transformer_window(&t, 0) == 128 && transformer_window(&t, 1) == 0);
    t = read_transformer("{\"model_type\": \"llama4_text\", \"no_rope_layers\": []}");
    CHECK(t.chunked && t.qk_norm_plain && t.moe_ffn == 8192 && t.ffn == 16384);
    CHECK(transformer_window(&t, 2) == 8192 && transformer_window(&t, 3) == 0);
    CHECK(!transformer_is_nope(&t, 2) && transformer_is_nope(&t, 3));
    t = read_transformer("{\"model_type\": \"llama4_text\", \"attention_chunk_size\": null}");
    CHECK_INT(0, t.window);
    t = read_transformer("{\"model_type\": \"ernie4_5_moe\"}");
    CHECK(!transformer_is_moe(&t, 0) && transformer_is_moe(&t, 1) &&
          t.shared_expert_ffn == 3072);
    CHECK(read_transformer("{\"model_type\": \"seed_oss\"}").dropout);

    check_error("{\"model_type\": \"smollm3\", \"no_rope_layers\": [1, 1]}",
                "model.no_rope_layers: a list of at least 36 numbers is expected");
    check_error("{\"model_type\": \"smollm3\", \"hidden_size\": 64, \"num_hidden_layers\": 4, "
                "\"num_attention_heads\": 4, \"vocab_size\": 9, "
                "\"no_rope_layers\": [1, 0, 1, 0]}",
                "model.no_rope_layers[1]: 1 is expected, as no_rope_layer_interval 4 says");
    check_error("{\"model_type\": \"llama4_text\", \"moe_layers\": [1, 3]}",
                "model.moe_layers[0]: 0 is expected, as interleave_moe_layer_step says");
    check_error("{\"model_type\": \"smollm3\", \"no_rope_layers\": 7}",
                "model.no_rope_layers: a list of at least 36 numbers is expected");
    static const char *const lists[] = { "[0, 1]", "[]", "3", "{}" };
    for (size_t i = 0; i < ARRAY_N(lists); i++) {
        char text[100];
        snprintf(text, sizeof text, "{\"model_type\": \"llama4_text\", \"moe_layers\": %s}",
                 lists[i]);
        check_error(text, "is expected, as interleave_moe_layer_step says");
    }
    read_transformer("{\"model_type\": \"llama4_text\", \"moe_layers\": null}");
    t = read_transformer(
        "{\"model_type\": \"roberta\", \"max_position_embeddings\": 514, "
        "\"hidden_size\": 768, \"num_hidden_layers\": 12, \"num_attention_heads\": 12, "
        "\"vocab_size\": 50265}");
    CHECK(t.max_seq == 512 && t.position_rows == 514);
    check_error("{\"model_type\": \"roberta\", \"architectures\": [\"RobertaForPreTraining\"]}",
                "allowed are names that end in: ForMaskedLM, LMHeadModel, Model");
    t = read_transformer("{\"model_type\": \"cohere2\", \"_sliding_window_pattern\": 2}");
    CHECK(transformer_window(&t, 0) && !transformer_window(&t, 1));
    CHECK_NEAR(2e6, read_transformer("{\"model_type\": \"smollm3\"}").rope_theta, 0);
    check_error(
        "{\"model_type\": \"ernie4_5_moe\", \"moe_layer_end_index\": 20}",
        "model.moe_layer_end_index: only the first layers can be dense, -1 or at least 27 "
        "allowed");
    check_error(
        "{\"model_type\": \"llama4_text\", \"hidden_size\": 64, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"vocab_size\": 9, "
        "\"layer_types\": [\"sliding_attention\", \"chunked_attention\"]}",
        "model.layer_types[0]: 'chunked_attention' is expected, as the keys of its window "
        "say");
}

static void relatives_differ_where_they_do(void)
{
    static const Published rows[] = {
        /* c4ai-command-r-plus, whose heads have norms with weights of their own */
        { "{\"model_type\": \"cohere\", \"hidden_size\": 12288, \"num_hidden_layers\": 64, "
          "\"num_attention_heads\": 96, \"num_key_value_heads\": 8, \"vocab_size\": 256000, "
          "\"intermediate_size\": 33792, \"use_qk_norm\": true}",
          103810674688 },
        /* glm-4-9b-chat-hf, Olmo-3-1025-7B, OLMoE-1B-7B-0924, Phi-3.5-MoE-instruct,
         * xlm-roberta-base */
        { "{\"model_type\": \"glm\"}", 9399951360 },
        { "{\"model_type\": \"olmo3\", \"hidden_size\": 4096, \"num_hidden_layers\": 32, "
          "\"num_attention_heads\": 32, \"vocab_size\": 100278}",
          7298011136 },
        { "{\"model_type\": \"olmoe\", \"hidden_size\": 2048, \"num_hidden_layers\": 16, "
          "\"num_attention_heads\": 16, \"vocab_size\": 50304, "
          "\"intermediate_size\": 1024}",
          6919161856 },
        { "{\"model_type\": \"phimoe\", \"attention_bias\": true, \"lm_head_bias\": true}",
          41873153344 },
        { "{\"model_type\": \"xlm-roberta\", \"hidden_size\": 768, "
          "\"num_hidden_layers\": 12, \"num_attention_heads\": 12, \"vocab_size\": 250002, "
          "\"max_position_embeddings\": 514, \"type_vocab_size\": 1}",
          278295186 },
    };
    check_published(rows, ARRAY_N(rows));
    Transformer t = read_transformer("{\"model_type\": \"glm\"}");
    CHECK(!t.sandwich_norm && t.qkv_bias && !t.out_bias);
    t = read_transformer("{\"model_type\": \"olmo3\"}");
    CHECK(t.branch_norm && transformer_window(&t, 2) == 4096 && !transformer_window(&t, 3));
    t = read_transformer("{\"model_type\": \"olmoe\"}");
    CHECK(!t.branch_norm && t.qk_norm_whole && t.experts == 64 && t.experts_per_token == 8);
    t = read_transformer("{\"model_type\": \"phimoe\"}");
    CHECK(t.norm == NORM_LAYERNORM && t.experts == 16 && t.experts_per_token == 2);
    check_error("{\"model_type\": \"cohere2\", \"use_qk_norm\": true}",
                "model.use_qk_norm: true is not simulated, false allowed");
    check_error("{\"model_type\": \"olmoe\", \"clip_qkv\": 8.0}",
                "model.clip_qkv: clipping is not simulated, null allowed");
}

static void further_families_have_their_habits(void)
{
    Transformer t = read_transformer("{\"model_type\": \"falcon\"}");
    CHECK_INT(1, t.kv_heads);
    CHECK(t.parallel_block && !t.two_norms_parallel && !t.mlp_bias && t.norm_bias);
    t = read_transformer("{\"model_type\": \"falcon\", \"multi_query\": false, \"bias\": true, "
                         "\"parallel_attn\": false, \"alibi\": true}");
    CHECK_INT(71, t.kv_heads);
    CHECK(!t.parallel_block && t.mlp_bias && t.positions == POS_ALIBI);
    t = read_transformer("\"falcon-40b\"");
    CHECK_INT(8, t.kv_heads);
    CHECK(t.parallel_block && t.two_norms_parallel);
    CHECK_INT(16, read_transformer("{\"model_type\": \"gpt_bigcode\", \"n_embd\": 1024, "
                                   "\"n_layer\": 1, \"n_head\": 16, \"vocab_size\": 9, "
                                   "\"multi_query\": false}")
                      .kv_heads);
    t = read_transformer("{\"model_type\": \"mpt\", \"expansion_ratio\": 2, "
                         "\"attn_config\": {\"alibi\": false}}");
    CHECK_INT(4096, t.ffn);
    CHECK(t.positions == POS_NONE);
    t = read_transformer("\"bloom-176b\"");
    CHECK(t.embedding_norm && t.positions == POS_ALIBI && !t.dropout);
    CHECK_INT(2048, t.max_seq);
    t = read_transformer("\"glm4.5-air\"");
    CHECK(t.qkv_bias && !t.out_bias && !t.qk_norm);
    CHECK(!transformer_is_moe(&t, 0) && transformer_is_moe(&t, 1));
    t = read_transformer("{\"model_type\": \"gemma3_text\"}");
    for (uint32_t l = 0; l < 12; l++)
        CHECK_INT(l == 5 || l == 11 ? 0 : 4096, transformer_window(&t, l));
    t = read_transformer("{\"model_type\": \"gemma3_text\", \"sliding_window_pattern\": 2}");
    CHECK(transformer_window(&t, 0) && !transformer_window(&t, 1));
    t = read_transformer("{\"model_type\": \"starcoder2\", \"sliding_window\": 4096}");
    CHECK_INT(4096, transformer_window(&t, 29));

    check_error("{\"model_type\": \"mpt\", \"attn_config\": {\"qk_ln\": true}}",
                "model.attn_config.qk_ln: true is not simulated, false allowed");
    check_error(
        "{\"model_type\": \"bloom\", \"apply_residual_connection_post_layernorm\": true}",
        "true is not simulated, false allowed");
    check_error("{\"model_type\": \"olmo\", \"clip_qkv\": 8.0}",
                "model.clip_qkv: clipping is not simulated, null allowed");
    check_error("{\"model_type\": \"mpt\", \"expansion_ratio\": 99}", "model.expansion_ratio");
}

/* torchvision's table of weights, "Params", in full: num_params of each weights' meta. */
static void resnets_have_torchvisions_size(void)
{
    static const Published rows[] = {
        { "\"resnet50\"", 25557032 },
        { "\"resnet101\"", 44549160 },
        { "\"resnet152\"", 60192808 },
        { "{\"kind\": \"convnet\"}", 25557032 },
        /* wide_resnet50_2 and wide_resnet101_2 */
        { "{\"kind\": \"convnet\", \"blocks\": [3, 4, 6, 3], \"expansion\": 2, "
          "\"widths\": [128, 256, 512, 1024]}",
          68883240 },
        { "{\"kind\": \"convnet\", \"blocks\": [3, 4, 23, 3], \"expansion\": 2, "
          "\"widths\": [128, 256, 512, 1024]}",
          126886696 },
    };
    check_published(rows, ARRAY_N(rows));
}

/* A config that says nothing is the model whose code transformers took its defaults from. */
static void missing_keys_take_the_defaults_of_transformers(void)
{
    static const Published rows[] = {
        { "{\"model_type\": \"gpt2\"}", 124439808 },
        { "{\"model_type\": \"gpt_neox\"}", 20554567680 },
        { "{\"model_type\": \"opt\"}", 125239296 },
        { "{\"model_type\": \"llama\"}", 6738415616 },
        { "{\"model_type\": \"mistral\"}", 7241732096 },
        { "{\"model_type\": \"mixtral\"}", 46702792704 },
        { "{\"model_type\": \"qwen2_moe\"}", 14315784192 },
        { "{\"model_type\": \"deepseek_v3\"}", 671026404352 },
        { "{\"model_type\": \"gemma\"}", 8537680896 },
        { "{\"model_type\": \"gemma2\"}", 2614341888 }, /* google/gemma-2-2b */
        { "{\"model_type\": \"phi3\"}", 3821079552 },
        { "{\"model_type\": \"bert\"}", 109514298 },
    };
    check_published(rows, ARRAY_N(rows));

    Transformer qwen3 = read_transformer("{\"model_type\": \"qwen3\"}");
    CHECK_INT(128, qwen3.head_dim);
    CHECK_INT(22016, qwen3.ffn);
    CHECK_INT(151936, qwen3.vocab);
    Transformer qwen2 = read_transformer("{\"model_type\": \"qwen2\"}");
    CHECK_INT(32, qwen2.kv_heads);
    CHECK_INT(32768, qwen2.max_seq);
    Transformer moe = read_transformer("{\"model_type\": \"qwen3_moe\"}");
    CHECK_INT(128, moe.experts);
    CHECK_INT(8, moe.experts_per_token);
    CHECK_INT(768, moe.moe_ffn);
    CHECK_INT(64, moe.head_dim);
    CHECK_INT(4, moe.kv_heads);
}

#define BERT_LARGE \
    "\"model_type\": \"bert\", \"hidden_size\": 1024, \"intermediate_size\": 4096, " \
    "\"num_attention_heads\": 16, \"num_hidden_layers\": 24, \"vocab_size\": 30522"

/* Devlin et al. 2018 give 110M and 340M; the exact ones are BertModel's, as hub cards say. */
static void the_architecture_decides_what_sits_on_top(void)
{
    static const Published rows[] = {
        { "{\"model_type\": \"bert\", \"architectures\": [\"BertModel\"]}", 109482240 },
        { "{" BERT_LARGE ", \"architectures\": [\"BertModel\"]}", 335141888 },
        { "{\"model_type\": \"bert\", \"architectures\": [\"BertForPreTraining\"]}",
          110106428 },
        { "{" BERT_LARGE ", \"architectures\": [\"BertForPreTraining\"]}", 336226108 },
        { "{\"model_type\": \"bert\", \"architectures\": [\"BertLMHeadModel\"]}", 109514298 },
        { "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2Model\"]}", 124439808 },
        /* 6,738,415,616 without a decoder of 32,000 rows of 4,096 */
        { "{\"model_type\": \"llama\", \"architectures\": [\"LlamaModel\"]}",
          6738415616 - 32000 * 4096 },
    };
    check_published(rows, ARRAY_N(rows));

    Transformer t = read_transformer(rows[0].text);
    CHECK(t.headless && t.pooler && !t.head_transform && !t.head_bias && !t.next_sentence);
    t = read_transformer(rows[2].text);
    CHECK(!t.headless && t.pooler && t.head_transform && t.head_bias && t.next_sentence);
    t = read_transformer("\"bert-base\"");
    CHECK(!t.headless && !t.pooler && t.head_transform && t.head_bias && !t.next_sentence);
    CHECK(!read_transformer("\"llama2-7b\"").headless);
}

static void the_toy_mlp_is_two_linear_layers(void)
{
    Read r;
    read_in(&r, "s.json", "\"toy-mlp\"");
    CHECK(r.ok && r.model.kind == MODEL_MLP);
    const Mlp *mlp = &r.model.u.mlp;
    CHECK_INT(3, mlp->widths_n);
    CHECK_INT(4096, mlp->widths[1]);
    CHECK(mlp->activation == ACT_RELU && !mlp->batchnorm && mlp->bias);
    CHECK_U64(1024 * 4096 + 4096 + 4096 * 1024 + 1024, model_params(&r.model));
    arena_free(&r.arena);

    /* torch.nn.BatchNorm1d: a gain and a shift for each hidden unit */
    CHECK_U64(20 * 8 + 8 + 2 * 8 + 8 * 5 + 5 + 2 * 5 + 5 * 1 + 1,
              params_of("{\"kind\": \"mlp\", \"widths\": [20, 8, 5, 1], \"batchnorm\": true}"));
    CHECK_U64(20 * 8 + 8 * 1,
              params_of("{\"kind\": \"mlp\", \"widths\": [20, 8, 1], \"bias\": false}"));
}

/* Brown et al. 2020 say 175.0 billion; 12 l h^2 + (vocab + seq) h alone is 174.56 billion. */
static void gpt3_has_about_175_billion(void)
{
    double h = 12288;
    double matrices = 12 * 96 * h * h + (50257 + 2048) * h;
    double params = (double)params_of("\"gpt3-175b\"");
    CHECK_NEAR(175.0e9, params, 0.005);
    CHECK(params > matrices);
    CHECK_NEAR(matrices, params, 0.0002);
}

static void native_habits_are_gpt2s_and_llamas(void)
{
    CHECK_U64(124439808,
              params_of("{\"kind\": \"transformer\", \"layers\": 12, \"hidden\": 768, "
                        "\"heads\": 12, \"vocab\": 50257, \"max_seq\": 1024}"));
    CHECK_U64(8030261248,
              params_of("{\"kind\": \"transformer\", \"layers\": 32, \"hidden\": 4096, "
                        "\"heads\": 32, \"kv_heads\": 8, \"ffn\": 14336, \"vocab\": 128256, "
                        "\"gated\": true, \"norm\": \"rmsnorm\", \"positions\": \"rope\", "
                        "\"tied_embeddings\": false}"));
    CHECK_U64(46702792704,
              params_of("{\"kind\": \"transformer\", \"layers\": 32, \"hidden\": 4096, "
                        "\"heads\": 32, \"kv_heads\": 8, \"ffn\": 14336, \"vocab\": 32000, "
                        "\"gated\": true, \"norm\": \"rmsnorm\", \"positions\": \"rope\", "
                        "\"tied_embeddings\": false, \"experts\": 8}"));
}

static void native_defaults_are_the_documented_ones(void)
{
    Transformer t = read_transformer("{\"kind\": \"transformer\", \"layers\": 2, "
                                     "\"hidden\": 64, \"heads\": 4, \"vocab\": 256}");
    CHECK_INT(4, t.kv_heads);
    CHECK_INT(16, t.head_dim);
    CHECK_INT(256, t.ffn);
    CHECK_INT(2048, t.max_seq);
    CHECK_INT(2048, t.position_rows);
    CHECK_INT(64, t.embedding_dim);
    CHECK(!t.gated && t.norm == NORM_LAYERNORM && t.activation == ACT_GELU && t.causal);
    CHECK(t.positions == POS_LEARNED && t.tied_embeddings && t.final_norm);
    CHECK(t.qkv_bias && t.out_bias && t.mlp_bias && t.norm_bias);
    CHECK(!t.parallel_block && !t.sandwich_norm && !t.post_norm && !t.embedding_norm);
    CHECK(!t.headless && !t.pooler && !t.head_bias && !t.norm_plain);
    CHECK_INT(0, t.experts);
    CHECK_INT(0, t.experts_per_token);
    CHECK_INT(0, t.window);

    t = read_transformer("{\"kind\": \"transformer\", \"layers\": 2, \"hidden\": 64, "
                         "\"heads\": 4, \"head_dim\": 8, \"vocab\": 256, \"gated\": true, "
                         "\"norm\": \"rmsnorm\", \"positions\": \"alibi\", \"experts\": 4, "
                         "\"moe_every\": 2, \"causal\": false}");
    CHECK(t.activation == ACT_SILU && !t.qkv_bias && !t.norm_bias && !t.causal);
    CHECK_INT(8, t.head_dim);
    CHECK_INT(0, t.position_rows);
    CHECK_INT(2, t.experts_per_token);
    CHECK_INT(256, t.moe_ffn);
    CHECK(!transformer_is_moe(&t, 0) && transformer_is_moe(&t, 1));

    t = read_transformer("{\"kind\": \"transformer\", \"layers\": 2, \"hidden\": 64, "
                         "\"heads\": 4, \"vocab\": 256, \"activation\": \"relu2\", "
                         "\"bias\": false, \"experts\": 1}");
    CHECK(t.activation == ACT_RELU2 && !t.qkv_bias && !t.out_bias && !t.mlp_bias);
    CHECK(t.norm_bias);
    CHECK_INT(1, t.experts_per_token);
}

/* 2 layers of a router, and 4 experts with two matmuls; biases only where they are asked for. */
static void native_experts_have_no_biases_unless_asked(void)
{
#define EXPERTS \
    "{\"kind\": \"transformer\", \"layers\": 2, \"hidden\": 64, \"heads\": 4, " \
    "\"vocab\": 256, \"experts\": 4"
    uint64_t weights = 2 * 4 * 2 * 64 * 256, biases = 2 * 4 * (256 + 64);
    Read r;
    read_in(&r, "s.json", EXPERTS "}");
    const Transformer *t = &r.model.u.transformer;
    CHECK(r.ok && t->qkv_bias && t->out_bias && !transformer_experts_bias(t));
    CHECK_U64(weights, model_expert_params(&r.model));
    arena_free(&r.arena);
    read_in(&r, "s.json", EXPERTS ", \"bias\": true}");
    CHECK(r.ok && transformer_experts_bias(&r.model.u.transformer));
    CHECK_U64(weights + biases, model_expert_params(&r.model));
    arena_free(&r.arena);
    /* the routers' biases */
    CHECK_U64(params_of(EXPERTS "}") + biases + 2 * 4, params_of(EXPERTS ", \"bias\": true}"));
#undef EXPERTS
}

static void zeros_of_experts_are_dense(void)
{
    static const char dense[] = "{\"kind\": \"transformer\", \"layers\": 2, \"hidden\": 64, "
                                "\"heads\": 4, \"vocab\": 256";
    char plain[200], zeros[300];
    snprintf(plain, sizeof plain, "%s}", dense);
    snprintf(zeros, sizeof zeros,
             "%s, \"experts\": 0, \"experts_per_token\": 0, \"moe_every\": 0}", dense);
    CHECK_U64(params_of(plain), params_of(zeros));
}

/* ---- parts ---- */

/* By definition: leave out, in every mixture layer, the experts that a token does not visit. */
static void check_active(const char *text, double published)
{
    Read r;
    read_in(&r, "s.json", text);
    CHECK(r.ok);
    const Transformer *t = &r.model.u.transformer;
    uint64_t expert = (uint64_t)(t->gated ? 3 : 2) * t->hidden * t->moe_ffn;
    uint64_t idle = 0;
    for (uint32_t l = 0; l < t->layers; l++)
        if (transformer_is_moe(t, l))
            idle += (t->experts - t->experts_per_token) * expert;
    CHECK_U64(model_params(&r.model) - idle, model_active_params(&r.model));
    CHECK_NEAR(published, (double)model_active_params(&r.model), 0.02);
    arena_free(&r.arena);
}

/* Published by: Jiang et al. 2024, mistral.ai, Yang et al. 2025 (twice), Qwen's model card,
 * DeepSeek's reports (arXiv 2405.04434, 2412.19437). */
static void a_token_visits_only_its_experts(void)
{
    check_active("\"mixtral-8x7b\"", 12.9e9);
    check_active("\"mixtral-8x22b\"", 39e9);
    check_active("\"qwen3-30b-a3b\"", 3.3e9);
    check_active("\"qwen3-235b-a22b\"", 22e9);
    check_active("\"qwen1.5-moe-a2.7b\"", 2.7e9);
    check_active("\"deepseek-v2\"", 21e9);
    check_active("\"deepseek-v3\"", 37e9);
    check_active("\"llama3-8b\"", 8.03e9);
}

static void check_file(const char *file)
{
    Read r;
    char text[300];
    snprintf(text, sizeof text, "\"%.*s\"", (int)strlen(file) - 5, file);
    read_in(&r, "s.json", text);
    if (!CHECK(r.ok)) {
        fprintf(stderr, "    %s\n", r.err.text);
    } else if (r.model.kind == MODEL_TRANSFORMER) {
        const Transformer *t = &r.model.u.transformer;
        uint64_t sum = transformer_embedding_params(t) + transformer_head_params(t);
        for (uint32_t l = 0; l < t->layers; l++)
            sum += transformer_block_params(t, l);
        CHECK_U64(sum, model_params(&r.model));
    }
    CHECK(r.ok && strncmp(r.model.name, file, strlen(file) - 5) == 0);
    CHECK(r.ok && model_active_params(&r.model) <= model_params(&r.model));
    arena_free(&r.arena);
}

static void every_built_in_model_reads_and_is_the_sum_of_its_parts(void)
{
    uint32_t n = 0;
    DIR *dir = opendir("scenarios/models");
    if (!CHECK(dir))
        return;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (e->d_name[0] != '.') {
            check_file(e->d_name);
            n++;
        }
    closedir(dir);
    CHECK(n >= 24);
}

/* ---- families ---- */

static void gpt2_is_read_under_both_sets_of_names(void)
{
    Transformer t = read_transformer("\"gpt2-xl\"");
    CHECK_INT(48, t.layers);
    CHECK_INT(25, t.heads);
    CHECK_INT(64, t.head_dim);
    CHECK_INT(6400, t.ffn);
    CHECK_INT(1024, t.position_rows);
    CHECK(t.activation == ACT_GELU && t.causal && t.positions == POS_LEARNED && !t.gated);
    CHECK_U64(
        354823168,
        params_of(
            "{\"model_type\": \"gpt2\", \"hidden_size\": 1024, "
            "\"num_hidden_layers\": 24, \"num_attention_heads\": 16, \"vocab_size\": 50257, "
            "\"n_inner\": null}"));
    CHECK_INT(100, read_transformer("{\"model_type\": \"gpt2\", \"n_inner\": 100}").ffn);
    CHECK_INT(64,
              read_transformer("{\"model_type\": \"gpt2\", \"max_position_embeddings\": 64}")
                  .max_seq);
}

static void gpt_neox_has_parallel_branches_unless_told(void)
{
    Transformer t = read_transformer("\"gpt-neox-20b\"");
    CHECK(t.parallel_block && t.two_norms_parallel && !t.tied_embeddings && t.qkv_bias);
    CHECK(t.positions == POS_ROPE && t.activation == ACT_GELU);
    CHECK_INT(0, t.position_rows);
    t = read_transformer("{\"model_type\": \"gpt_neox\", \"use_parallel_residual\": false, "
                         "\"attention_bias\": false}");
    CHECK(!t.parallel_block && !t.qkv_bias && !t.out_bias && t.mlp_bias);
}

static void opt_has_its_oddities(void)
{
    Transformer t = read_transformer("\"opt-125m\"");
    CHECK_INT(2050, t.position_rows);
    CHECK(t.activation == ACT_RELU && t.final_norm && !t.post_norm && t.tied_embeddings);
    t = read_transformer("\"opt-350m\"");
    CHECK_INT(512, t.embedding_dim);
    CHECK(t.post_norm && !t.final_norm);
    t = read_transformer("{\"model_type\": \"opt\", \"enable_bias\": false, "
                         "\"layer_norm_elementwise_affine\": false, "
                         "\"_remove_final_layer_norm\": true}");
    CHECK(!t.qkv_bias && !t.mlp_bias && t.norm_plain && !t.final_norm);
    /* two embeddings and, in each of 12 layers, 4 h^2 + 8 h^2: nothing else is left */
    CHECK_U64((uint64_t)(50272 + 2050) * 768 + (uint64_t)12 * 12 * 768 * 768,
              params_of("{\"model_type\": \"opt\", \"enable_bias\": false, "
                        "\"layer_norm_elementwise_affine\": false, "
                        "\"_remove_final_layer_norm\": true}"));
}

static void llama_reads_its_switches(void)
{
    Transformer t = read_transformer("\"llama3-8b\"");
    CHECK_INT(8, t.kv_heads);
    CHECK_INT(128, t.head_dim);
    CHECK(t.gated && t.norm == NORM_RMSNORM && !t.norm_bias && !t.qkv_bias && !t.mlp_bias);
    CHECK(t.activation == ACT_SILU && t.positions == POS_ROPE && !t.tied_embeddings);
    t = read_transformer("{\"model_type\": \"llama\", \"attention_bias\": true, "
                         "\"mlp_bias\": true, \"head_dim\": 64, \"hidden_act\": \"swish\", "
                         "\"tie_word_embeddings\": true, \"num_key_value_heads\": null}");
    CHECK(t.qkv_bias && t.out_bias && t.mlp_bias && t.tied_embeddings);
    CHECK(t.activation == ACT_SILU);
    CHECK_INT(64, t.head_dim);
    CHECK_INT(32, t.kv_heads);
    CHECK_INT(128,
              read_transformer("{\"model_type\": \"llama\", \"head_dim\": null}").head_dim);
}

static void windows_lie_where_the_family_puts_them(void)
{
    Transformer t = read_transformer("\"mistral-7b\"");
    CHECK_INT(4096, transformer_window(&t, 0));
    CHECK_INT(4096, transformer_window(&t, 31));
    t = read_transformer("{\"model_type\": \"mistral\", \"sliding_window\": null}");
    CHECK_INT(0, transformer_window(&t, 0));
    CHECK_INT(8, t.kv_heads);
    t = read_transformer("{\"model_type\": \"mistral\", \"num_key_value_heads\": null}");
    CHECK_INT(4096, t.window);
    CHECK_INT(32, t.kv_heads);
    t = read_transformer("\"phi3-mini\"");
    CHECK_INT(2047, transformer_window(&t, 5));
    t = read_transformer("\"mixtral-8x7b\"");
    CHECK_INT(0, t.window);

    t = read_transformer("\"gemma2-9b\"");
    CHECK_INT(4096, transformer_window(&t, 0));
    CHECK_INT(0, transformer_window(&t, 1));
    CHECK_INT(4096, transformer_window(&t, 40));

    t = read_transformer("\"qwen2.5-7b\"");
    CHECK_INT(0, transformer_window(&t, 27));
    t = read_transformer("{\"model_type\": \"qwen2\", \"use_sliding_window\": true, "
                         "\"sliding_window\": 100, \"max_window_layers\": 3}");
    CHECK_INT(0, transformer_window(&t, 2));
    CHECK_INT(100, transformer_window(&t, 3));
    CHECK_INT(100, transformer_window(&t, 4));
}

static void qwen_mixtures_say_which_layers_are_dense(void)
{
    Transformer t = read_transformer("\"qwen1.5-moe-a2.7b\"");
    CHECK_INT(60, t.experts);
    CHECK_INT(5632, t.shared_expert_ffn);
    CHECK(t.qkv_bias && !t.out_bias && !t.qk_norm);
    t = read_transformer(
        "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 6, "
        "\"hidden_size\": 2048, \"num_attention_heads\": 32, \"vocab_size\": 151936, "
        "\"mlp_only_layers\": [0, 1], \"decoder_sparse_step\": 2}");
    CHECK_INT(2, t.dense_first);
    CHECK(t.qk_norm && !t.qkv_bias);
    static const bool moe[6] = { false, false, false, true, false, true };
    for (uint32_t l = 0; l < 6; l++)
        CHECK(transformer_is_moe(&t, l) == moe[l]);
    t = read_transformer("{\"model_type\": \"qwen3_moe\", \"num_experts\": 0}");
    CHECK(!transformer_is_moe(&t, 3));
}

/* Counts by transformers 5.24 (num_parameters() on the meta device), Ernie's by 4.57.3. */
static void keys_have_the_meaning_that_transformers_gives_them(void)
{
    static const Published rows[] = {
        /* 5 writes Qwen 3's experts by their other name, and takes either in other families */
        { "{\"model_type\": \"qwen3_moe\", \"num_local_experts\": 64}", 8099828736 },
        { "{\"model_type\": \"qwen3_moe\", \"num_experts\": 64}", 8099828736 },
        { "{\"model_type\": \"mixtral\", \"num_experts\": 4}", 24153690112 },
        /* a head as wide as derived */
        { "{\"model_type\": \"glm4_moe\", \"hidden_size\": 2048, "
          "\"num_attention_heads\": 32, \"num_hidden_layers\": 46, \"vocab_size\": 151552}",
          51399944192 },
        /* the head has a bias as well */
        { "{\"model_type\": \"ernie4_5_moe\", \"hidden_size\": 256, "
          "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"num_hidden_layers\": 6, "
          "\"vocab_size\": 1000, \"use_bias\": true}",
          401369320 },
        /* replit-code-v1_5-3b ("3.3B"): of each layer 3072 x (3072 + 2 x 8 x 128) for queries, keys
         * and values, 9 x 3072^2 for what follows, two norms */
        { "{\"model_type\": \"mpt\", \"d_model\": 3072, \"n_heads\": 24, \"n_layers\": 32, "
          "\"vocab_size\": 32768, \"attn_config\": {\"attn_type\": "
          "\"grouped_query_attention\", \"kv_n_heads\": 8}}",
          32 * (3072ull * 5120 + 9 * 3072 * 3072 + 2 * 3072) + 32768 * 3072 + 3072 },
    };
    check_published(rows, ARRAY_N(rows));
    Transformer t = read_transformer("{\"model_type\": \"mpt\", \"attn_config\": "
                                     "{\"attn_type\": \"multiquery_attention\"}}");
    CHECK_INT(1, t.kv_heads);
    check_error("{\"model_type\": \"mpt\", \"attn_config\": "
                "{\"attn_type\": \"grouped_query_attention\", \"kv_n_heads\": 7}}",
                "model.attn_config.kv_n_heads: 7 does not divide n_heads 16");
    check_error("{\"model_type\": \"deepseek_v2\", \"mlp_bias\": true}",
                "model.mlp_bias: true is not simulated, false allowed");
    check_error("{\"model_type\": \"gemma2\", \"use_bidirectional_attention\": true}",
                "model.use_bidirectional_attention: true is not simulated, false allowed");
    t = read_transformer("{\"model_type\": \"gemma3_text\", "
                         "\"use_bidirectional_attention\": true}");
    CHECK(!t.causal && transformer_window(&t, 0) == 4096);
    CHECK(read_transformer("{\"model_type\": \"gemma3_text\"}").causal);
    t = read_transformer("{\"model_type\": \"qwen2_moe\", \"use_sliding_window\": true, "
                         "\"max_window_layers\": 21}");
    CHECK(transformer_window(&t, 20) == 0 && transformer_window(&t, 21) == 4096);
    t = read_transformer("{\"model_type\": \"qwen3_moe\", \"use_sliding_window\": true}");
    CHECK_INT(4096, transformer_window(&t, 0));
    t = read_transformer("{\"model_type\": \"ernie4_5_moe\", \"num_experts_per_tok\": 2}");
    CHECK_INT(2, t.experts_per_token);
}

/* As transformers 5 writes them; `run` turns by theta and refuses the rest. */
static void rope_parameters_of_the_usual_kind_are_a_theta(void)
{
    Transformer t = read_transformer("{\"model_type\": \"llama\", \"rope_parameters\": "
                                     "{\"rope_theta\": 500000.0, \"rope_type\": \"default\"}}");
    CHECK_NEAR(500000, t.rope_theta, 0);
    CHECK(!t.other_numerics);
    static const char *const others[] = {
        "{\"rope_theta\": 500000.0, \"rope_type\": \"llama3\", \"factor\": 8.0}",
        "{\"rope_theta\": 500000.0, \"partial_rotary_factor\": 0.5}",
        "{\"full_attention\": {\"rope_theta\": 1000000.0, \"rope_type\": \"default\"}}",
    };
    for (size_t i = 0; i < ARRAY_N(others); i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"model_type\": \"llama\", \"rope_parameters\": %s}",
                 others[i]);
        t = read_transformer(text);
        CHECK_STR("rope_parameters", t.other_numerics);
    }
    CHECK(!read_transformer("{\"model_type\": \"llama\", \"rope_parameters\": null}")
               .other_numerics);
    check_error("{\"model_type\": \"llama\", \"rope_parameters\": []}",
                "model.rope_parameters: an object is expected, not a list");
}

static void the_others_carry_their_marks(void)
{
    Transformer t = read_transformer("\"qwen3-8b\"");
    CHECK(t.qk_norm && !t.qkv_bias);
    t = read_transformer("\"qwen2.5-7b\"");
    CHECK(!t.qk_norm && t.qkv_bias && !t.out_bias);
    t = read_transformer("\"gemma-2b\"");
    CHECK(t.activation == ACT_GELU && t.gated && t.tied_embeddings && !t.sandwich_norm);
    CHECK_INT(256, t.head_dim);
    CHECK_INT(1, t.kv_heads);
    t = read_transformer("\"gemma2-27b\"");
    CHECK(t.sandwich_norm);
    t = read_transformer("{\"model_type\": \"gemma\", \"hidden_act\": \"relu\"}");
    CHECK(t.activation == ACT_RELU);
    t = read_transformer("{\"model_type\": \"gemma\", \"hidden_act\": \"relu\", "
                         "\"hidden_activation\": \"gelu\"}");
    CHECK(t.activation == ACT_GELU);
    t = read_transformer("\"bert-large\"");
    CHECK(!t.causal && t.post_norm && t.embedding_norm && !t.final_norm);
    CHECK_INT(2, t.token_types);
    CHECK(read_transformer("{\"model_type\": \"bert\", \"is_decoder\": true}").causal);
}

static void activation_words_of_both_formats_are_understood(void)
{
    static const struct {
        const char *word;
        Activation activation;
    } rows[] = {
        { "gelu", ACT_GELU },      { "gelu_new", ACT_GELU }, { "gelu_pytorch_tanh", ACT_GELU },
        { "gelu_fast", ACT_GELU }, { "silu", ACT_SILU },     { "swish", ACT_SILU },
        { "relu", ACT_RELU },      { "relu2", ACT_RELU2 },   { "relu_squared", ACT_RELU2 },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char text[120];
        snprintf(text, sizeof text, "{\"model_type\": \"llama\", \"hidden_act\": \"%s\"}",
                 rows[i].word);
        CHECK(read_transformer(text).activation == rows[i].activation);
        CHECK_INT(strcmp(rows[i].word, "gelu_new") == 0, read_transformer(text).gelu_new);
        CHECK_INT(strncmp(rows[i].word, "gelu_", 5) == 0, read_transformer(text).gelu_tanh);
    }
    CHECK(read_transformer("{\"model_type\": \"gpt2\"}").gelu_new); /* by default */
    CHECK(read_transformer("{\"model_type\": \"starcoder2\"}").gelu_tanh);
    CHECK(!read_transformer("{\"model_type\": \"starcoder2\"}").gelu_new);
    CHECK(!read_transformer("{\"model_type\": \"falcon\"}").gelu_tanh);
    for (uint32_t a = 0; a < ACT_N; a++) {
        char text[160];
        snprintf(text, sizeof text,
                 "{\"kind\": \"transformer\", \"layers\": 1, \"hidden\": 8, \"heads\": 1, "
                 "\"vocab\": 8, \"activation\": \"%s\"}",
                 activation_names[a]);
        CHECK(read_transformer(text).activation == (Activation)a);
    }
}

/* transformers' defaults: GPT-2, OPT and BERT drop, unless their config says 0. */
static void a_config_says_whether_it_drops(void)
{
    CHECK(read_transformer("{\"model_type\": \"gpt2\"}").dropout);
    CHECK(read_transformer("{\"model_type\": \"opt\"}").dropout);
    CHECK(read_transformer("{\"model_type\": \"bert\"}").dropout);
    CHECK(!read_transformer("{\"model_type\": \"gpt_neox\"}").dropout);
    CHECK(!read_transformer("{\"model_type\": \"llama\"}").dropout);
    CHECK(!read_transformer("{\"model_type\": \"gpt2\", \"resid_pdrop\": 0}").dropout);
    CHECK(!read_transformer("{\"model_type\": \"phi3\"}").dropout);
    CHECK(read_transformer("{\"model_type\": \"phi3\", \"resid_pdrop\": 0.1}").dropout);
    CHECK(!read_transformer("{\"model_type\": \"opt\", \"dropout\": 0.0}").dropout);
    CHECK(!read_transformer("{\"model_type\": \"bert\", \"hidden_dropout_prob\": 0}").dropout);
    CHECK(read_transformer("{\"model_type\": \"gpt_neox\", \"hidden_dropout\": 0.1}").dropout);
}

static void other_keys_of_a_config_are_ignored(void)
{
    CHECK_U64(6738415616, params_of("{\"model_type\": \"llama\", \"rope_theta\": 1e4, "
                                    "\"torch_dtype\": \"float16\", \"use_cache\": true, "
                                    "\"rope_scaling\": {\"factor\": 8}, \"eos_token_id\": 2, "
                                    "\"add_cross_attention\": true}"));
    CHECK_U64(
        2614341888,
        params_of("{\"model_type\": \"gemma2\", \"num_hidden_layers\": 26, \"hidden_size\": "
                  "2304, \"num_attention_heads\": 8, \"vocab_size\": 256000, "
                  "\"attn_logit_softcapping\": 50.0}"));
    CHECK_U64(124439808, params_of("{\"model_type\": \"gpt2\", \"add_cross_attention\": false, "
                                   "\"n_ctx\": 1024, \"summary_type\": \"cls_index\"}"));
}

static void layer_types_may_repeat_what_the_other_keys_say(void)
{
    Transformer t = read_transformer(
        "{\"model_type\": \"gemma2\", \"num_hidden_layers\": 3, \"hidden_size\": 2304, "
        "\"num_attention_heads\": 8, \"vocab_size\": 256000, \"layer_types\": "
        "[\"sliding_attention\", \"full_attention\", \"sliding_attention\"]}");
    CHECK_INT(3, t.layers);
    check_error("{\"model_type\": \"qwen3\", \"num_hidden_layers\": 2, \"layer_types\": "
                "[\"full_attention\", \"sliding_attention\"]}",
                "s.json: model.layer_types[1]: 'full_attention' is expected, as the "
                "keys of its window say");
    check_error("{\"model_type\": \"qwen3\", \"num_hidden_layers\": 2, \"layer_types\": "
                "[\"full_attention\"]}",
                "model.layer_types: a list of 2 words is expected");
}

/* ---- names, paths, files ---- */

static void check_name(const char *file, const char *text, const char *name)
{
    Read r;
    read_in(&r, file, text);
    if (!CHECK(r.ok))
        fprintf(stderr, "    %s\n", r.err.text);
    else
        CHECK_STR(name, r.model.name);
    arena_free(&r.arena);
}

static void built_in_names_may_be_in_capitals(void)
{
    check_name("s.json", "\"Mixtral-8x7B\"", "mixtral-8x7b");
    check_name("s.json", "\"GPT2-XL\"", "gpt2-xl");
    check_name("s.json", "\"gpt2\"", "gpt2");
}

static void paths_are_relative_to_the_file_they_stand_in(void)
{
    check_name("scenarios/models/s.json", "\"gpt2.json\"", "gpt2");
    check_name("scenarios/examples/s.json", "\"../models/llama3.2-1b.json\"", "llama3.2-1b");
    check_name("s.json", "\"scenarios/models/gpt2.json\"", "gpt2");
    check_name("scenarios/models/lines.jsonl:7", "\"./resnet50.json\"", "resnet50");

    char cwd[4096], text[5000];
    if (CHECK(getcwd(cwd, sizeof cwd))) {
        snprintf(text, sizeof text, "\"%s/scenarios/models/gpt2.json\"", cwd);
        check_name("elsewhere/s.json", text, "gpt2");
    }
}

static void a_model_is_called_what_it_says_or_by_its_file_or_kind(void)
{
    check_name("s.json", "\"gpt2\"", "gpt2");
    check_name("s.json", "{\"model_type\": \"llama\"}", "llama");
    check_name("s.json", "{\"model_type\": \"llama\", \"name\": \"mine\"}", "mine");
    check_name("s.json", "{\"kind\": \"mlp\", \"widths\": [1, 2]}", "mlp");
    check_name("s.json", "{\"kind\": \"mlp\", \"widths\": [1, 2], \"name\": \"tiny\"}", "tiny");
    check_name("s.json",
               "{\"kind\": \"mlp\", \"widths\": [1, 2], \"source\": \"me\", \"notes\": \"x\"}",
               "mlp");
}

static void a_wrong_name_is_answered_with_near_ones(void)
{
    static const TextPart rows[] = {
        { "\"lama3-8b\"", "s.json: model: no built-in model 'lama3-8b'; near: llama3-8b," },
        { "\"Llama-3-8B\"", "near: llama3-8b" },
        { "\"gpt2xl\"", "near: gpt2-xl" },
        { "\"mixtral\"", "near: mixtral-8x22b, mixtral-8x7b" },
        { "\"stable-diffusion\"",
          "model: no built-in model 'stable-diffusion'; see 'lockstep list models'" },
        { "\"\"", "no built-in model ''; see 'lockstep list models'" },
        { "\"..\"", "no built-in model '..'; see" },
    };
    check_errors(rows, ARRAY_N(rows));

    char text[400] = "\"";
    memset(text + 1, 'x', 300);
    memcpy(text + 301, "\"", 2);
    check_error(text, "no built-in model 'xxx");
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    if (!CHECK(f))
        return;
    fputs(text, f);
    fclose(f);
}

/* Every checkpoint's file is called config.json. */
static void a_config_is_called_as_published_or_by_its_folder(void)
{
    static const struct {
        const char *key, *name;
    } rows[] = {
        { "", "llama-mine" },
        { ", \"_name_or_path\": \"meta-llama/Llama-3-8B\"", "Llama-3-8B" },
        { ", \"_name_or_path\": \"gpt2\"", "gpt2" },
        { ", \"_name_or_path\": \"/data/models/llama/\"", "llama" },
        { ", \"_name_or_path\": \"\"", "llama-mine" },
        { ", \"_name_or_path\": \"./\"", "llama-mine" },
        { ", \"_name_or_path\": 7", "llama-mine" },
        { ", \"_name_or_path\": \"gpt2\", \"name\": \"mine\"", "mine" },
    };
    char folder[64] = P_tmpdir "/lockstep-model-XXXXXX", inner[96], path[128], text[256];
    if (!CHECK(mkdtemp(folder) != NULL))
        return;
    snprintf(inner, sizeof inner, "%s/llama-mine", folder);
    snprintf(path, sizeof path, "%s/config.json", inner);
    CHECK(mkdir(inner, 0700) == 0);
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        snprintf(text, sizeof text, "{\"model_type\": \"llama\"%s}", rows[i].key);
        write_file(path, text);
        snprintf(text, sizeof text, "\"%s\"", path);
        check_name("s.json", text, rows[i].name);
        snprintf(text, sizeof text, "%s/s.json", inner);
        check_name(text, "\"config.json\"", rows[i].name);
    }
    unlink(path);
    rmdir(inner);
    rmdir(folder);
}

static void a_file_holds_an_object_so_files_cannot_go_in_circles(void)
{
    char dir[] = P_tmpdir "/lockstep-model-XXXXXX", path[80], text[100];
    if (!CHECK(mkdtemp(dir)))
        return;
    snprintf(path, sizeof path, "%s/m.json", dir);
    snprintf(text, sizeof text, "\"%s\"", path);

    write_file(path, "\"m.json\"");
    check_error(text, "/m.json: a model file holds an object, not a string");
    write_file(path, "{\"kind\": \"mlp\", \"widths\": [1]}");
    check_error(text, "/m.json: widths: a list of 2 to 64 whole numbers is expected");
    write_file(path, "{\"kind\": ");
    check_error(text, "s.json: model: /tmp/lockstep-model-");
    check_error(text, "/m.json:1:");
    unlink(path);
    check_error(text, "m.json': No such file or directory");
    check_error("\"no/such.json\"",
                "s.json: model: cannot open 'no/such.json': No such file or directory");
    rmdir(dir);
}

/* ---- errors ---- */

#define TINY \
    "{\"kind\": \"transformer\", \"layers\": 2, \"hidden\": 64, \"heads\": 4, \"vocab\": 256"

static void what_is_no_model_is_said(void)
{
    static const TextPart rows[] = {
        { "7",
          "s.json: model: a model's name, a path to a .json file or an object is expected, "
          "not a number" },
        { "null", "is expected, not null" },
        { "[]", "is expected, not a list" },
        { "{}", "s.json: model: a model says either \"kind\" (transformer, mlp, convnet) or "
                "\"model_type\" (a Hugging Face config), not neither" },
        { "{\"kind\": \"mlp\", \"model_type\": \"gpt2\"}", "not both" },
        { "{\"kind\": \"rnn\"}",
          "model.kind: unknown word 'rnn', allowed: transformer, mlp, convnet" },
        { "{\"model_type\": \"t5\"}",
          "model.model_type: unknown model_type 't5', known: gpt2, gpt_neox, opt, llama, "
          "mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, gemma, gemma2, phi3, "
          "deepseek_v2, deepseek_v3, kimi_k2, gpt_bigcode, starcoder2, gptj, phi, bloom, "
          "falcon, "
          "mpt, granite, olmo, stablelm, cohere, gemma3_text, glm4_moe, olmo2, nemotron, glm4, "
          "cohere2, smollm3, ernie4_5, seed_oss, granitemoe, ernie4_5_moe, gpt_oss, "
          "llama4_text, glm, olmo3, olmoe, phimoe, xlm-roberta, roberta, bert" },
        { "{\"model_type\": \"llama4\", \"text_config\": {\"model_type\": \"llama4_text\"}}",
          "model.model_type: 'llama4' is a model of text and something else; its text_config "
          "is "
          "one of text alone, which can be given in its place" },
        { "{\"model_type\": \"mllama\", \"text_config\": {\"model_type\": "
          "\"mllama_text_model\"}}",
          "model.model_type: unknown model_type 'mllama', known: gpt2" },
        { "{\"model_type\": 3}", "model.model_type: a string is expected, not a number" },
    };
    check_errors(rows, ARRAY_N(rows));

    Read r = { 0 };
    JsonDoc *doc = json_parse("{}", 2, "s.json", &r.err);
    CHECK(!model_read(&r.model, &r.arena, json_member(json_root(doc), "model"), "scenarios",
                      &r.err));
    CHECK_ERR_TEXT(&r.err, "s.json: model: a model's name, a path to a .json file or an object "
                           "is expected, not nothing");
    json_close(doc);
    arena_free(&r.arena);
}

static void impossible_native_transformers_are_refused(void)
{
    static const TextPart rows[] = {
        { "{\"kind\": \"transformer\"}", "model.layers: the key is missing" },
        { "{\"kind\": \"transformer\", \"layers\": 0}",
          "model.layers: 0 is out of range, 1 to 10000 allowed" },
        { "{\"kind\": \"transformer\", \"layers\": 2.5}",
          "model.layers: a whole number is expected, not 2.5" },
        { "{\"kind\": \"transformer\", \"layers\": 1, \"hidden\": 1e9}",
          "model.hidden: 1000000000 is out of range, 1 to 262144 allowed" },
        { "{\"kind\": \"transformer\", \"layers\": 1, \"hidden\": 100, \"heads\": 7, "
          "\"vocab\": 9}",
          "model.heads: 7 does not divide hidden 100" },
        { "{\"kind\": \"transformer\", \"layers\": 1, \"hidden\": 8, \"heads\": 16, "
          "\"vocab\": 9}",
          "model.heads: 16 does not divide hidden 8" },
        { TINY ", \"kv_heads\": 3}", "model.kv_heads: 3 does not divide heads 4" },
        { TINY ", \"head_dim\": 0}", "model.head_dim: 0 is out of range, 1 to 16384 allowed" },
        { TINY ", \"ffn\": -1}", "model.ffn: -1 is out of range, 1 to 4194304 allowed" },
        { TINY ", \"max_seq\": 1e9}", "model.max_seq: 1000000000 is out of range, 1 to " },
        { TINY ", \"gated\": 1}", "model.gated: true or false is expected, not a number" },
        { TINY ", \"norm\": \"batch\"}",
          "model.norm: unknown word 'batch', allowed: layernorm, rmsnorm" },
        { TINY ", \"activation\": \"tanh\"}",
          "model.activation: unknown word 'tanh', allowed: gelu, relu, relu2, silu" },
        { TINY ", \"positions\": \"xpos\"}",
          "model.positions: unknown word 'xpos', allowed: learned, rope, alibi, none" },
        { TINY ", \"experts\": 5000}",
          "model.experts: 5000 is out of range, 0 to 4096 allowed" },
        { TINY ", \"experts\": 4, \"experts_per_token\": 5}",
          "model.experts_per_token: 5 is out of range, 1 to 4 allowed" },
        { TINY ", \"moe_every\": 3}", "model.moe_every: 3 is out of range, 0 to 2 allowed" },
        { TINY ", \"experts\": 2, \"moe_every\": 0}",
          "model.moe_every: 0 is out of range, 1 to 2 allowed" },
        { TINY ", \"experts\": 2, \"experts_per_token\": 0}",
          "model.experts_per_token: 0 is out of range, 1 to 2 allowed" },
        { TINY ", \"hiden\": 3}",
          "model.hiden: unknown key, did you mean 'hidden'? allowed: kind, name, source" },
        { TINY ", \"name\": 3}", "model.name: a string is expected, not a number" },
        { TINY ", \"source\": 3}", "model.source: a string is expected, not a number" },
        { TINY ", \"layers\": 3}", "model.layers: the key stands here twice" },
    };
    check_errors(rows, ARRAY_N(rows));
}

/* The largest of everything: 10^4 layers of 4096 experts of 3 * 2^18 * 2^22 is over 2^64. */
static void sizes_whose_product_cannot_be_counted_are_refused(void)
{
    check_error("{\"kind\": \"transformer\", \"layers\": 10000, \"hidden\": 262144, "
                "\"heads\": 16384, \"head_dim\": 16384, \"ffn\": 4194304, "
                "\"vocab\": 16777216, \"gated\": true, \"experts\": 4096}",
                "s.json: model: the model has 1.4e+20 parameters, at most 1e+15 allowed");
    check_error("{\"model_type\": \"llama\", \"num_hidden_layers\": 10000, "
                "\"hidden_size\": 262144, \"intermediate_size\": 4194304}",
                "parameters, at most 1e+15 allowed");
}

/* Gemma 3's text_config as published, of 4B and 12B parameters: what is usual is left out. */
static void a_part_of_the_sizes_is_told_the_rest(void)
{
    static const TextPart rows[] = {
        { "{\"model_type\": \"gemma3_text\", \"hidden_size\": 2560, "
          "\"intermediate_size\": 10240, \"num_hidden_layers\": 34, \"sliding_window\": 1024}",
          "model.num_attention_heads: the key is missing; transformers takes 8 then: say so" },
        { "{\"model_type\": \"gemma3_text\", \"hidden_size\": 2560, "
          "\"intermediate_size\": 10240, \"num_hidden_layers\": 34, "
          "\"num_attention_heads\": 8, \"sliding_window\": 1024}",
          "model.vocab_size: the key is missing; transformers takes 262208 then: say so" },
    };
    check_errors(rows, ARRAY_N(rows));
}

static void impossible_configs_are_refused(void)
{
    static const TextPart rows[] = {
        { "{\"model_type\": \"llama\", \"num_hidden_layers\": 0}",
          "model.num_hidden_layers: 0 is out of range, 1 to 10000 allowed" },
        { "{\"model_type\": \"llama\", \"hidden_size\": \"4096\"}",
          "model.hidden_size: a number is expected, not a string" },
        { "{\"model_type\": \"llama\", \"hidden_size\": 2048, \"num_attention_heads\": 16, "
          "\"num_hidden_layer\": 4, \"vocab_size\": 100}",
          "model.num_hidden_layers: the key is missing; is 'num_hidden_layer' meant?" },
        { "{\"model_type\": \"llama\", \"num_attention_heads\": 33}",
          "model.num_attention_heads: 33 does not divide hidden_size 4096" },
        { "{\"model_type\": \"gpt2\", \"n_head\": 5}",
          "model.n_head: 5 does not divide n_embd 768" },
        { "{\"model_type\": \"gpt2\", \"num_attention_heads\": 5}",
          "model.num_attention_heads: 5 does not divide n_embd 768" },
        { "{\"model_type\": \"mistral\", \"num_key_value_heads\": 7}",
          "model.num_key_value_heads: 7 does not divide num_attention_heads 32" },
        { "{\"model_type\": \"mistral\", \"num_attention_heads\": 4}",
          "model.num_key_value_heads: 8 does not divide num_attention_heads 4" },
        { "{\"model_type\": \"mistral\", \"sliding_window\": 0}",
          "model.sliding_window: 0 is out of range, 1 to 134217728 allowed" },
        { "{\"model_type\": \"llama\", \"vocab_size\": 1e8}",
          "model.vocab_size: 100000000 is out of range, 1 to 16777216 allowed" },
        { "{\"model_type\": \"llama\", \"attention_bias\": \"no\"}",
          "model.attention_bias: true or false is expected, not a string" },
        { "{\"model_type\": \"llama\", \"hidden_act\": \"mish\"}",
          "model.hidden_act: unknown word 'mish', allowed: gelu, relu, relu2, silu, gelu_new, "
          "gelu_pytorch_tanh, gelu_fast, swish, relu_squared" },
        { "{\"model_type\": \"mixtral\", \"num_experts_per_tok\": 9}",
          "model.num_experts_per_tok: 9 is out of range, 1 to 8 allowed" },
        { "{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [1]}",
          "model.mlp_only_layers[0]: only the first layers can be dense, 0 is expected here" },
        { "{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": 1}",
          "model.mlp_only_layers: a list of layers is expected, not a number" },
        { "{\"model_type\": \"deepseek_v3\", \"moe_layer_freq\": 2}",
          "model.moe_layer_freq: only 1 is simulated, experts in every layer but the first" },
        { "{\"model_type\": \"deepseek_v2\", \"kv_lora_rank\": 0}",
          "model.kv_lora_rank: 0 is out of range, 1 to 262144 allowed" },
        { "{\"model_type\": \"deepseek_v3\", \"n_shared_experts\": 65}",
          "model.n_shared_experts: 65 is out of range, 0 to 64 allowed" },
        { "{\"model_type\": \"deepseek_v3\", \"n_group\": 7}",
          "model.n_group: 7 groups do not divide 256 experts" },
        { "{\"model_type\": \"deepseek_v3\", \"topk_group\": 9}",
          "model.topk_group: 9 is out of range, 1 to 8 allowed" },
        { "{\"model_type\": \"deepseek_v3\", \"n_group\": 64, \"topk_group\": 1}",
          "model.topk_group: its groups have 4 experts, fewer than the 8 that a token visits" },
        { "{\"model_type\": \"qwen2_moe\", \"decoder_sparse_step\": 0}",
          "model.decoder_sparse_step: 0 is out of range, 1 to 10000 allowed" },
        { "{\"model_type\": \"gpt2\", \"add_cross_attention\": true}",
          "model.add_cross_attention: true is not simulated, false allowed" },
        { "{\"model_type\": \"bert\", \"position_embedding_type\": \"relative_key\"}",
          "model.position_embedding_type: unknown word 'relative_key', allowed: absolute" },
        { "{\"model_type\": \"bert\", \"architectures\": [\"BertForQuestionAnswering\"]}",
          "model.architectures[0]: unknown architecture 'BertForQuestionAnswering', allowed "
          "are "
          "names that end in: ForMaskedLM, ForPreTraining, LMHeadModel, Model" },
        { "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2DoubleHeadsModel\"]}",
          "unknown architecture 'GPT2DoubleHeadsModel', allowed are names that end in: "
          "ForCausalLM, LMHeadModel, Model" },
        { "{\"model_type\": \"llama\", \"architectures\": \"LlamaForCausalLM\"}",
          "model.architectures: a list of one class name is expected" },
        { "{\"model_type\": \"llama\", \"architectures\": []}",
          "model.architectures: a list of one class name is expected" },
    };
    check_errors(rows, ARRAY_N(rows));
}

static void impossible_mlps_and_convnets_are_refused(void)
{
    static const TextPart rows[] = {
        { "{\"kind\": \"mlp\"}", "model.widths: the key is missing" },
        { "{\"kind\": \"mlp\", \"widths\": 7}",
          "model.widths: a list of 2 to 64 whole numbers is expected" },
        { "{\"kind\": \"mlp\", \"width\": [8, 8]}",
          "model.widths: the key is missing; is 'width' meant?" },
        { "{\"kind\": \"mlp\", \"widths\": 3}", "a list of 2 to 64 whole numbers is expected" },
        { "{\"kind\": \"mlp\", \"widths\": [8]}",
          "a list of 2 to 64 whole numbers is expected" },
        { "{\"kind\": \"mlp\", \"widths\": [8, 0]}",
          "model.widths[1]: a whole number from 1 to 16777216 is expected" },
        { "{\"kind\": \"mlp\", \"widths\": [8, 1.5, 2]}",
          "model.widths[1]: a whole number from" },
        { "{\"kind\": \"mlp\", \"widths\": [8, \"2\"]}",
          "model.widths[1]: a whole number from" },
        { "{\"kind\": \"mlp\", \"widths\": [8, 1e10]}",
          "model.widths[1]: a whole number from" },
        { "{\"kind\": \"mlp\", \"widths\": [1, 2], \"layers\": 2}",
          "model.layers: unknown key, allowed: kind, name, source, notes, widths, activation, "
          "batchnorm, bias" },
        { "{\"kind\": \"convnet\", \"image\": 0}",
          "model.image: 0 is out of range, 8 to 8192 allowed" },
        { "{\"kind\": \"convnet\", \"blocks\": [2, 2]}", "model.widths: the key is missing" },
        { "{\"kind\": \"convnet\", \"blocks\": [2, 2], \"widths\": [64]}",
          "model.widths: 1 widths for 2 stages of blocks, one each is expected" },
        { "{\"kind\": \"convnet\", \"blocks\": [2, 2000], \"widths\": [64, 64]}",
          "model.blocks[1]: a whole number from 1 to 1000 is expected" },
        { "{\"kind\": \"convnet\", \"expansion\": 99}",
          "model.expansion: 99 is out of range, 1 to 16 allowed" },
        { "{\"kind\": \"convnet\", \"groups\": 2}", "model.groups: unknown key, allowed: " },
    };
    check_errors(rows, ARRAY_N(rows));

    char text[400] = "{\"kind\": \"mlp\", \"widths\": [1";
    for (int i = 0; i < MLP_WIDTHS_MAX; i++)
        strcat(text, ",1");
    strcat(text, "]}");
    check_error(text, "a list of 2 to 64 whole numbers is expected");
}

/* ---- shallow ones ---- */

/* Each layer is like one of its kind: the first and the last so many are themselves. */
static uint32_t check_shallow(const Transformer *t)
{
    uint32_t *like = mem_zero(t->layers, sizeof *like), n = transformer_shallow(t, like);
    CHECK(n >= 1 && n <= t->layers);
    CHECK_U64(0, like[0]);
    CHECK_U64(n - 1, like[t->layers - 1]);
    for (uint32_t i = 0; i < t->layers; i++) {
        CHECK(like[i] <= i && like[i] < n);
        CHECK(n < t->layers || like[i] == i);
        CHECK_U64(transformer_window(t, i), transformer_window(t, like[i]));
        CHECK_INT(transformer_is_moe(t, i), transformer_is_moe(t, like[i]));
        CHECK_INT(transformer_is_nope(t, i), transformer_is_nope(t, like[i]));
        CHECK_U64(transformer_block_params(t, i), transformer_block_params(t, like[i]));
        bool neighbours =
            i == 0 || transformer_is_moe(t, i - 1) == transformer_is_moe(t, like[i] - 1);
        CHECK(neighbours);
    }
    free(like);
    return n;
}

static void few_layers_stand_for_many(void)
{
    static const struct {
        const char *model;
        uint32_t layers;
    } cases[] = { { "\"llama3-405b\"", 3 },
                  { "\"deepseek-v3\"", 6 }, /* three dense ones before */
                  { "\"gpt2\"", 3 } };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Transformer t = read_transformer(cases[i].model);
        CHECK_U64(cases[i].layers, check_shallow(&t));
    }
    /* Every second or fourth is another, after some others; too few to leave any out. */
    for (uint32_t layers = 1; layers < 40; layers++)
        for (uint32_t every = 1; every < 5; every++)
            for (uint32_t dense = 0; dense < 4; dense++) {
                Transformer t = { .layers = layers,
                                  .experts = 8,
                                  .moe_every = every,
                                  .dense_first = dense,
                                  .window = every == 3 ? 64 : 0,
                                  .window_every = 2 };
                uint32_t period = every == 3 ? 6 : every;
                CHECK(check_shallow(&t) <= dense + 4 * period);
            }
}

int main(void)
{
    RUN(built_in_language_models_have_their_published_size);
    RUN(further_families_have_their_published_size);
    RUN(further_families_have_their_habits);
    RUN(further_families_have_about_their_published_size);
    RUN(newer_families_have_their_habits);
    RUN(relatives_differ_where_they_do);
    RUN(resnets_have_torchvisions_size);
    RUN(missing_keys_take_the_defaults_of_transformers);
    RUN(the_architecture_decides_what_sits_on_top);
    RUN(the_toy_mlp_is_two_linear_layers);
    RUN(gpt3_has_about_175_billion);
    RUN(native_habits_are_gpt2s_and_llamas);
    RUN(native_defaults_are_the_documented_ones);
    RUN(native_experts_have_no_biases_unless_asked);
    RUN(zeros_of_experts_are_dense);
    RUN(a_token_visits_only_its_experts);
    RUN(every_built_in_model_reads_and_is_the_sum_of_its_parts);
    RUN(gpt2_is_read_under_both_sets_of_names);
    RUN(gpt_neox_has_parallel_branches_unless_told);
    RUN(opt_has_its_oddities);
    RUN(llama_reads_its_switches);
    RUN(windows_lie_where_the_family_puts_them);
    RUN(qwen_mixtures_say_which_layers_are_dense);
    RUN(keys_have_the_meaning_that_transformers_gives_them);
    RUN(rope_parameters_of_the_usual_kind_are_a_theta);
    RUN(the_others_carry_their_marks);
    RUN(activation_words_of_both_formats_are_understood);
    RUN(a_config_says_whether_it_drops);
    RUN(other_keys_of_a_config_are_ignored);
    RUN(layer_types_may_repeat_what_the_other_keys_say);
    RUN(built_in_names_may_be_in_capitals);
    RUN(paths_are_relative_to_the_file_they_stand_in);
    RUN(a_model_is_called_what_it_says_or_by_its_file_or_kind);
    RUN(a_wrong_name_is_answered_with_near_ones);
    RUN(a_config_is_called_as_published_or_by_its_folder);
    RUN(a_file_holds_an_object_so_files_cannot_go_in_circles);
    RUN(what_is_no_model_is_said);
    RUN(impossible_native_transformers_are_refused);
    RUN(sizes_whose_product_cannot_be_counted_are_refused);
    RUN(a_part_of_the_sizes_is_told_the_rest);
    RUN(impossible_configs_are_refused);
    RUN(impossible_mlps_and_convnets_are_refused);
    RUN(few_layers_stand_for_many);
    return check_report();
}
