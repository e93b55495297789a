/*
 * blocks_layer.h - what the files that put a transformer's layers on tapes share; nobody else
 * includes it.
 *
 *     blocks_transformer.c   embedding, layer, head; norms
 *     blocks_attention.c     attention, from its input to its output matmul
 *     blocks_latent.c        queries, keys and values that come out of narrow latents
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

/* Up to the output matmul, without its bias. */
uint32_t block_attention(Maker *k, uint32_t x, uint32_t window);

/* What attention reads: queries, and keys with their values. */
typedef struct Latent {
    uint32_t q, kv;
} Latent;
Latent latent_inputs(Maker *k, uint32_t x);

#endif
