/*
 * model_parts.h - what the model_*.c files tell each other; nobody else includes it.
 *
 * Native objects and Hugging Face configs name the same sizes differently, so
 * the sizes are read once (model_shape.c) and the names are handed in.
 */
#ifndef LOCKSTEP_SIM_MODEL_PARTS_H
#define LOCKSTEP_SIM_MODEL_PARTS_H

#include "sim/model.h"

/* What a format calls a size; NULL: it has no such key. */
typedef struct ShapeKeys {
    const char *layers, *hidden, *heads, *kv_heads, *head_dim, *ffn, *vocab, *max_seq;
} ShapeKeys;

/*
 * Reads layers, hidden, heads, kv_heads, head_dim, ffn, vocab and max_seq.  t
 * holds the defaults; a 0 there means: heads for kv_heads, hidden / heads for
 * head_dim, 4 hidden for ffn, and for any other that the key must be given.
 */
void shape_read(Transformer *t, JsonObj *o, const ShapeKeys *keys);

/* How many of t->experts experts a token visits. */
void shape_read_experts_per_token(Transformer *t, JsonObj *o, const char *key,
                                  uint32_t fallback);

/* Refuses a model too large to count. */
void shape_check_total(const Transformer *t, JsonObj *o);

/* What lockstep's own words call the sizes. */
extern const ShapeKeys native_keys;
/* Of a config in Hugging Face's words: what --set has changed in lockstep's. */
void native_override(Transformer *t, JsonObj *o);

/* Families of Hugging Face configs, model_families.c: what they call their sizes ... */
typedef struct HfKeys {
    ShapeKeys shape;
    const char *activation;
} HfKeys;

extern const HfKeys family_usual; /* most of them */

/* The first words that model_hf.c knows for an activation stand in the order of Activation, then
 * this. */
enum { WORD_GELU_NEW = ACT_N, WORD_GELU_TANH, WORD_GELU_FAST };

/* ... and what they take where a file says nothing. */
typedef struct Family {
    const char *type;                         /* model_type */
    void (*read)(Transformer *t, JsonObj *o); /* what is its own; the sizes are read already */
    const HfKeys *keys;
    /* transformers 4.57's defaults; 0: derived, see shape_read */
    uint32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_seq;
    uint32_t activation; /* a word of model_hf.c */
} Family;

extern const Family families[];
extern const size_t families_n;

/* What readers of families share, and those of families with experts (model_families_moe.c). */
typedef void FamilyRead(Transformer *t, JsonObj *o);
uint32_t family_u32(JsonObj *o, const char *key, uint32_t min, uint32_t max, uint32_t fallback);
/* key, or where it is absent the other one, if that is there. */
const char *family_alias(JsonObj *o, const char *key, const char *other);
void family_refuse_true(JsonObj *o, const char *key);
void family_refuse_clipping(JsonObj *o); /* "clip_qkv" */
/* 0: none, also for null. */
uint32_t family_tokens(JsonObj *o, const char *key, uint32_t fallback);
uint32_t family_window(JsonObj *o, uint32_t fallback); /* "sliding_window" */
void family_qwen_window(Transformer *t, JsonObj *o);
void family_tie(Transformer *t, JsonObj *o, bool fallback);
void family_attention_bias(Transformer *t, JsonObj *o, bool fallback);
void family_llama_habit(Transformer *t);
void family_read_nope_layers(Transformer *t, JsonObj *o); /* that they are nope_every's */
FamilyRead family_mixtral, family_qwen2_moe, family_qwen3_moe, family_glm4_moe,
    family_deepseek_v2, family_deepseek_v3, family_granite_moe, family_ernie_moe,
    family_gpt_oss, family_llama4, family_olmoe, family_phi_moe;

/* The two formats.  file_name: what an object without a name is called; NULL: by its kind. */
bool model_read_native(Model *model, Arena *arena, JsonNode node, const char *file_name,
                       Err *err);
bool model_read_hf(Model *model, Arena *arena, JsonNode node, const char *file_name, Err *err);

#endif
