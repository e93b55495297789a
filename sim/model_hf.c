/*
 * model_hf.c - Hugging Face config.json files as they are.
 *
 * Which families there are, and what each of them fixes: model_families.c.
 * Keys that change neither cost nor memory are ignored, but for those that `run`
 * trains by (read_numerics); those that would and are not simulated are refused.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"
#include "core/text.h"
#include "sim/model_parts.h"

/* ---- what sits on top ---- */

static void set_bert_head(Transformer *t, bool pooler, bool vocabulary)
{
    t->pooler = pooler;
    t->headless = !vocabulary;
    t->head_transform = t->head_bias = vocabulary;
    t->next_sentence = pooler && vocabulary;
}

/* architecture NULL: the config does not say, so the form that is pre-trained. */
static bool bert_architecture(Transformer *t, const char *name)
{
    if (!name || text_ends_in(name, "ForMaskedLM") || text_ends_in(name, "LMHeadModel"))
        set_bert_head(t, false, true);
    else if (text_ends_in(name, "ForPreTraining"))
        set_bert_head(t, true, true);
    else if (text_ends_in(name, "Model"))
        set_bert_head(t, true, false);
    else
        return false;
    return true;
}

static bool decoder_architecture(Transformer *t, const char *name)
{
    if (!name || text_ends_in(name, "ForCausalLM") || text_ends_in(name, "LMHeadModel"))
        return true;
    t->headless = text_ends_in(name, "Model") && !text_ends_in(name, "HeadsModel");
    return t->headless;
}

static void read_architecture(Transformer *t, JsonObj *o, const Family *family)
{
    bool one_task = strstr(family->type, "roberta") != NULL;
    bool is_bert = strcmp(family->type, "bert") == 0 || one_task;
    JsonNode list = json_get(o, "architectures");
    JsonNode first = json_first(list);
    if (!o->ok)
        return;
    if (list.item && (json_items_n(list) == 0 || !json_text(first))) {
        o->ok = json_fail(list, o->err, "a list of one class name is expected");
        return;
    }
    const char *name = json_text(first);
    bool second = one_task && name && text_ends_in(name, "ForPreTraining");
    if (second || !(is_bert ? bert_architecture(t, name) : decoder_architecture(t, name)))
        o->ok = json_fail(first, o->err,
                          "unknown architecture '%.100s', allowed are names that "
                          "end in: %s",
                          name,
                          one_task  ? "ForMaskedLM, LMHeadModel, Model"
                          : is_bert ? "ForMaskedLM, ForPreTraining, LMHeadModel, Model"
                                    : "ForCausalLM, LMHeadModel, Model");
}

/* ---- one config ---- */

static void read_activation(Transformer *t, JsonObj *o, const Family *family)
{
    static const char *const words[] = { "gelu",      "relu",     "relu2",
                                         "silu",      "gelu_new", "gelu_pytorch_tanh",
                                         "gelu_fast", "swish",    "relu_squared" };
    static const Activation meaning[] = { ACT_GELU, ACT_RELU, ACT_RELU2, ACT_SILU, ACT_GELU,
                                          ACT_GELU, ACT_GELU, ACT_SILU,  ACT_RELU2 };
    /* Gemma's first configs say it in hidden_act; the later key wins. */
    const char *key = family_alias(o, family->keys->activation, family_usual.activation);
    int word = json_word(o, key, words, ARRAY_N(words), (int)family->activation);
    t->activation = meaning[word];
    t->gelu_new = word == WORD_GELU_NEW;
    t->gelu_tanh = t->gelu_new || word == WORD_GELU_TANH || word == WORD_GELU_FAST;
}

/* --set may say a size in lockstep's word for it, which is the same for every family. */
static const char *set_word(JsonObj *o, const char *key, const char *native)
{
    return json_has(o, native) && json_is_set(json_get(o, native)) ? native : key;
}

/* Asks for none of the keys: one that is not read is still told as such. */
static bool set_twice(const JsonObj *o, const char *key, const char *native)
{
    return key && strcmp(key, native) != 0 && json_is_set(json_member(o->node, key)) &&
           json_is_set(json_member(o->node, native));
}

/* One of the two would be left aside without a word. */
static void check_set_twice(JsonObj *o, const Family *family)
{
    const ShapeKeys *k = &family->keys->shape, *n = &native_keys;
    const char *const words[][2] = {
        { k->layers, n->layers },
        { k->hidden, n->hidden },
        { k->heads, n->heads },
        { k->kv_heads, n->kv_heads },
        { k->head_dim, n->head_dim },
        { k->ffn, n->ffn },
        { k->vocab, n->vocab },
        { k->max_seq, n->max_seq },
        { family->keys->activation, "activation" },
        { "tie_word_embeddings", "tied_embeddings" },
        { "num_nextn_predict_layers", "mtp_layers" },
        { "num_local_experts", "experts" },
        { "num_experts", "experts" },
        { "n_routed_experts", "experts" },
        { "num_experts_per_tok", "experts_per_token" },
    };
    for (size_t i = 0; i < ARRAY_N(words) && o->ok; i++)
        if (set_twice(o, words[i][0], words[i][1]))
            o->ok = json_fail(json_member(o->node, words[i][1]), o->err,
                              "'%s' is another name of this key, and set too: set one of them",
                              words[i][0]);
}

/* GPT-2 also answers to the usual names, as transformers' attribute_map has it. */
static ShapeKeys present_keys(JsonObj *o, const ShapeKeys *keys)
{
    ShapeKeys k = *keys;
    const ShapeKeys *n = &native_keys;
    k.layers = set_word(o, family_alias(o, k.layers, family_usual.shape.layers), n->layers);
    k.hidden = set_word(o, family_alias(o, k.hidden, family_usual.shape.hidden), n->hidden);
    k.heads = set_word(o, family_alias(o, k.heads, family_usual.shape.heads), n->heads);
    k.max_seq = set_word(o, family_alias(o, k.max_seq, family_usual.shape.max_seq), n->max_seq);
    k.kv_heads = set_word(o, k.kv_heads, n->kv_heads);
    k.head_dim = set_word(o, k.head_dim, n->head_dim);
    k.ffn = set_word(o, k.ffn, n->ffn);
    k.vocab = set_word(o, k.vocab, n->vocab);
    return k;
}

/* Newer files spell out each layer's attention; it must be what the other keys say. */
static void check_layer_types(const Transformer *t, JsonObj *o)
{
    JsonNode list = json_get(o, "layer_types");
    JsonNode at = json_first(list);
    if (o->ok && list.item && (!at.item || json_items_n(list) != t->layers))
        o->ok = json_fail(list, o->err, "a list of %" PRIu32 " words is expected", t->layers);
    for (uint32_t l = 0; o->ok && at.item; at = json_next(at, list, ++l)) {
        const char *word = json_text(at);
        const char *want = !transformer_window(t, l) ? "full_attention"
                           : t->chunked              ? "chunked_attention"
                                                     : "sliding_attention";
        if (!word || strcmp(word, want) != 0)
            o->ok =
                json_fail(at, o->err, "'%s' is expected, as the keys of its window say", want);
    }
}

/* A published config states its size.  One that states a part of it has a typo, or is a text_config
 * as transformers writes it, without what is usual: which it is the user has to say, as a default
 * would be another model without a word. */
static void require_sizes(JsonObj *o, const ShapeKeys *keys, const Family *family)
{
    const struct {
        const char *key;
        uint32_t usual;
    } sizes[] = { { keys->layers, family->layers },
                  { keys->hidden, family->hidden },
                  { keys->heads, family->heads },
                  { keys->vocab, family->vocab } };
    size_t given = 0, missing = ARRAY_N(sizes);
    char hint[64];
    for (size_t i = ARRAY_N(sizes); i-- > 0;) {
        if (json_has(o, sizes[i].key))
            given++;
        else
            missing = i;
    }
    if (!o->ok || given == 0 || missing == ARRAY_N(sizes))
        return;
    snprintf(hint, sizeof hint, "; transformers takes %" PRIu32 " then: say so",
             sizes[missing].usual);
    json_missing(o, sizes[missing].key, hint);
}

static bool is_given(JsonObj *o, const char *key)
{
    return json_has(o, key) && json_type(json_member(o->node, key)) != JSON_NULL;
}

/* transformers 5 has what turns and how far in one object, or in one for each kind of layer. */
static const char *read_rope_parameters(Transformer *t, JsonObj *o)
{
    JsonNode node = json_get(o, "rope_parameters");
    if (!o->ok || !node.item)
        return NULL;
    JsonObj rope = json_begin(node, o->err);
    const char *type = json_string(&rope, "rope_type", "default");
    double part = json_number(&rope, "partial_rotary_factor", 0, 1, 1);
    double theta = json_number(&rope, "rope_theta", 1, 1e12, 0);
    o->ok = json_end_lax(&rope);
    if (!o->ok || strcmp(type, "default") != 0 || part != 1 || theta == 0)
        return "rope_parameters";
    t->rope_theta = theta;
    return NULL;
}

/* What changes the numbers but not their cost: `run` trains by it, or refuses. */
static void read_numerics(Transformer *t, JsonObj *o)
{
    static const char *const eps[] = { "rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps",
                                       "norm_epsilon", "norm_eps" };
    static const char *const thetas[] = { "rotary_emb_base", "rope_theta" };
    static const char *const parts[] = { "partial_rotary_factor", "rotary_pct" };
    static const char *const others[] = { "rope_scaling", "attn_logit_softcapping",
                                          "final_logit_softcapping", "clip_qkv" };
    const char *other = read_rope_parameters(t, o);
    for (size_t i = 0; i < ARRAY_N(eps); i++)
        if (is_given(o, eps[i]))
            t->norm_eps = fmax(json_number(o, eps[i], 0, 1, 0), DBL_MIN);
    for (size_t i = 0; i < ARRAY_N(thetas); i++)
        if (is_given(o, thetas[i]))
            t->rope_theta = json_number(o, thetas[i], 1, 1e12, 0);
    for (size_t i = 0; i < ARRAY_N(parts); i++)
        if (is_given(o, parts[i]) && json_number(o, parts[i], 0, 1, 1) != 1)
            other = parts[i];
    for (size_t i = 0; i < ARRAY_N(others); i++)
        if (is_given(o, others[i]))
            other = others[i];
    if (is_given(o, "scale_attn_weights") && !json_bool(o, "scale_attn_weights", true))
        other = "scores that are not scaled (scale_attn_weights)";
    if (is_given(o, "scale_attn_by_inverse_layer_idx") &&
        json_bool(o, "scale_attn_by_inverse_layer_idx", false))
        other = "scale_attn_by_inverse_layer_idx";
    if (!t->other_numerics)
        t->other_numerics = other;
}

static void read_transformer(Transformer *t, JsonObj *o, const Family *family)
{
    *t = (Transformer){ .layers = family->layers,
                        .hidden = family->hidden,
                        .heads = family->heads,
                        .kv_heads = family->kv_heads,
                        .head_dim = family->head_dim,
                        .ffn = family->ffn,
                        .vocab = family->vocab,
                        .max_seq = family->max_seq };
    check_set_twice(o, family);
    ShapeKeys keys = present_keys(o, &family->keys->shape);
    shape_read(t, o, &keys);
    read_activation(t, o, family);
    family->read(t, o);
    t->mtp_layers = family_u32(o, "num_nextn_predict_layers", 0, MODEL_LAYERS_MAX, 0);
    native_override(t, o);
    read_architecture(t, o, family);
    check_layer_types(t, o);
    read_numerics(t, o);
    shape_check_total(t, o);
    require_sizes(o, &keys, family);
}

static bool is_known(JsonNode type)
{
    for (size_t i = 0; json_text(type) && i < families_n; i++)
        if (strcmp(families[i].type, json_text(type)) == 0)
            return true;
    return false;
}

static char *list_families(char *text, size_t cap)
{
    const char **types = mem_zero(families_n, sizeof *types);
    for (size_t i = 0; i < families_n; i++)
        types[i] = families[i].type;
    words_joined(text, cap, types, families_n);
    free(types);
    return text;
}

static const Family *find_family(JsonObj *o)
{
    const char *type = json_string(o, "model_type", NULL);
    char known[1000];
    for (size_t i = 0; o->ok && i < families_n; i++)
        if (strcmp(families[i].type, type) == 0)
            return &families[i];
    if (o->ok && is_known(json_member(json_member(o->node, "text_config"), "model_type")))
        o->ok = json_fail(json_member(o->node, "model_type"), o->err,
                          "'%.100s' is a model of text and something else; its text_config is "
                          "one of text alone, which can be given in its place",
                          type);
    if (o->ok)
        o->ok = json_fail(json_member(o->node, "model_type"), o->err,
                          "unknown model_type '%.100s', known: %s", type,
                          list_families(known, sizeof known));
    return NULL;
}

bool model_read_hf(Model *model, Arena *arena, JsonNode node, const char *file_name, Err *err)
{
    JsonObj o = json_begin(node, err);
    const Family *family = find_family(&o);
    if (!family)
        return json_end_lax(&o);
    const char *name = file_name ? file_name : family->type;
    model->kind = MODEL_TRANSFORMER;
    model->name = arena_strdup(arena, json_string(&o, "name", name));
    read_transformer(&model->u.transformer, &o, family);
    return json_end_lax(&o);
}
