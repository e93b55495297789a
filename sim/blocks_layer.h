/*
 * blocks_layer.h - what the files that put a transformer's layers on tapes share; nobody else
 * includes it.
 *
 *     blocks_transformer.c   embedding, layer, head; norms
 *     blocks_attention.c     attention, from its input to its output matmul
 *     blocks_latent.c        queries, keys and values that come out of narrow latents
 *     blocks_mtp.c           layers that predict further tokens
 */
#ifndef LOCKSTEP_SIM_BLOCKS_LAYER_H
#define LOCKSTEP_SIM_BLOCKS_LAYER_H

#include "sim/blocks.h"

typedef struct Maker {
    Build *b;
    const Transformer *m;
    Tape *t;
    uint64_t batch, rows;
    DType act, param, stream;
    bool moe, nope; /* of the layer at work */
    /* Of the head's tape: the first values of the table and of the head's weights; NONE_U32. */
    uint32_t table, head;
} Maker;

/* How many vectors of a row are normed; kv: of them, and of the columns, those of keys. */
typedef struct Normed {
    uint64_t columns, kv_columns, vectors, kv_vectors;
} Normed;

/* A norm of x's first columns or all of them, in vectors of `width` (0: whose gains are none); not
 * on the tape yet. */
TapeOp norm_op(Maker *k, uint32_t x, uint64_t width, const char *name);
/* Puts it there, with what it keeps for backward; returns its result. */
uint32_t norm_make(Maker *k, TapeOp op, Normed n);
/* Of all columns of x. */
uint32_t block_norm(Maker *k, uint32_t x, const char *name);

/* Sets what kind of layer is at work; returns its window, 0 where it masks nothing. */
uint32_t block_turn_to(Maker *k, uint32_t layer);
/* A layer, from what it adds to on. */
uint32_t block_layer(Maker *k, uint32_t x, uint32_t window);
/* The table of tokens, or the head's weights, in the head's tape: one parameter, however often it
 * is asked for; each time a value of its own, which tp splits for the op that reads it. */
uint32_t block_vocab_param(Maker *k, bool table);
/* The table's rows of those tokens. */
uint32_t block_token_rows(Maker *k, uint32_t tokens, uint32_t table);
/* The matmul onto the vocabulary. */
uint32_t block_logits(Maker *k, uint32_t x);

/* blocks_mtp.c.  Not all of them can be trained by all strategies. */
enum { MTP_LAYERS_MAX = TAPE_DATA_MAX - 2 }; /* targets of the model's own tasks, and of each */
bool mtp_check(const Build *b, Err *err);
/* x: the last layer's result; target: data, the tokens that follow. */
void mtp_make(Maker *k, uint32_t x, BlockPlan *plan, uint32_t target);

/* Up to the output matmul, without its bias. */
uint32_t block_attention(Maker *k, uint32_t x, uint32_t window);

/* What attention reads: queries, and keys with their values. */
typedef struct Latent {
    uint32_t q, kv;
} Latent;
Latent latent_inputs(Maker *k, uint32_t x);

#endif
