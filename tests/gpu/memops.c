/*
 * memops.c - the table, and cases laid out from it.
 */
#include "memops.h"

#include <string.h>

#include "gpu_try.h"
#include "memops_ref.h"

enum { ALIGN = 1024 };

/* A table, and the words it is written in. */
/* clang-format off */
#define IN(shape, type)     { SHAPE_##shape, NUM_##type, ROLE_IN, INDEX_NONE, false }
#define OUT(shape, type)    { SHAPE_##shape, NUM_##type, ROLE_OUT, INDEX_NONE, false }
#define INOUT(shape, type)  { SHAPE_##shape, NUM_##type, ROLE_INOUT, INDEX_NONE, false }
#define SQUARES(shape)      { SHAPE_##shape, NUM_F32, ROLE_INOUT, INDEX_NONE, true }
#define INDEX(shape, limit) { SHAPE_##shape, NUM_I32, ROLE_IN, INDEX_##limit, false }

#define FLAT  { 4096 }
#define NORMS { 4096, 768, 8192 }
#define VOCAB { 50304, 128256 }

/* The order of slots is what kern_*.cu reads them in. */
const MemOp MEMOPS[] = {
    { "copy", "bf16", kern_copy, ref_copy, { IN(FULL, BF16), OUT(FULL, BF16) }, FLAT },
    { "add", "bf16", kern_add, ref_add, { IN(FULL, BF16), IN(FULL, BF16), OUT(FULL, BF16) }, FLAT },
    { "cast_f32_bf16", "bf16", kern_cast_down, ref_copy, { IN(FULL, F32), OUT(FULL, BF16) }, FLAT },
    { "cast_bf16_f32", "bf16", kern_cast_up, ref_copy, { IN(FULL, BF16), OUT(FULL, F32) }, FLAT },
    { "gelu_fwd", "bf16", kern_gelu_fwd, ref_gelu_fwd, { IN(FULL, BF16), OUT(FULL, BF16) }, FLAT },
    { "gelu_bwd", "bf16", kern_gelu_bwd, ref_gelu_bwd,
     { IN(FULL, BF16), IN(FULL, BF16), OUT(FULL, BF16) }, FLAT },
    { "silu_mul_fwd", "bf16", kern_silu_mul_fwd, ref_silu_mul_fwd,
     { IN(FULL, BF16), IN(FULL, BF16), OUT(FULL, BF16) }, FLAT },
    { "silu_mul_bwd", "bf16", kern_silu_mul_bwd, ref_silu_mul_bwd,
     { IN(FULL, BF16), IN(FULL, BF16), IN(FULL, BF16), OUT(FULL, BF16), OUT(FULL, BF16) }, FLAT },
    /* x gamma beta | y mean rstd */
    { "layernorm_fwd", "bf16", kern_layernorm_fwd, ref_layernorm_fwd,
     { IN(FULL, BF16), IN(COL, BF16), IN(COL, BF16), OUT(FULL, BF16), OUT(ROW, F32),
      OUT(ROW, F32) }, NORMS },
    /* dy x gamma mean rstd | dx dgamma dbeta */
    { "layernorm_bwd", "bf16", kern_layernorm_bwd, ref_layernorm_bwd,
     { IN(FULL, BF16), IN(FULL, BF16), IN(COL, BF16), IN(ROW, F32), IN(ROW, F32),
      OUT(FULL, BF16), OUT(COL, F32), OUT(COL, F32) }, NORMS },
    /* x gamma | y rstd */
    { "rmsnorm_fwd", "bf16", kern_rmsnorm_fwd, ref_rmsnorm_fwd,
     { IN(FULL, BF16), IN(COL, BF16), OUT(FULL, BF16), OUT(ROW, F32) }, NORMS },
    /* dy x gamma rstd | dx dgamma */
    { "rmsnorm_bwd", "bf16", kern_rmsnorm_bwd, ref_rmsnorm_bwd,
     { IN(FULL, BF16), IN(FULL, BF16), IN(COL, BF16), IN(ROW, F32), OUT(FULL, BF16),
      OUT(COL, F32) }, NORMS },
    { "softmax_fwd", "bf16", kern_softmax_fwd, ref_softmax_fwd,
     { IN(FULL, BF16), OUT(FULL, BF16) }, { 1024, 2048, 8192 } },
    /* y dy | dx */
    { "softmax_bwd", "bf16", kern_softmax_bwd, ref_softmax_bwd,
     { IN(FULL, BF16), IN(FULL, BF16), OUT(FULL, BF16) }, { 1024, 2048, 8192 } },
    /* logits target | loss lse */
    { "cross_entropy_fwd", "bf16", kern_cross_entropy_fwd, ref_cross_entropy_fwd,
     { IN(FULL, BF16), INDEX(ROW, COL), OUT(ROW, F32), OUT(ROW, F32) }, VOCAB },
    /* logits target lse | dlogits */
    { "cross_entropy_bwd", "bf16", kern_cross_entropy_bwd, ref_cross_entropy_bwd,
     { IN(FULL, BF16), INDEX(ROW, COL), IN(ROW, F32), OUT(FULL, BF16) }, VOCAB },
    { "embedding", "bf16", kern_embedding, ref_embedding,
     { IN(TABLE, BF16), INDEX(ROW, VOCAB), OUT(FULL, BF16) }, { 4096, 768 } },
    /* weights gradient m v */
    { "adamw_f32", "f32", kern_adamw_f32, ref_adamw,
     { INOUT(FULL, F32), IN(FULL, F32), INOUT(FULL, F32), SQUARES(FULL) }, FLAT },
    /* ... | bf16 weights */
    { "adamw_mixed", "f32", kern_adamw_mixed, ref_adamw_mixed,
     { INOUT(FULL, F32), IN(FULL, BF16), INOUT(FULL, F32), SQUARES(FULL), OUT(FULL, BF16) },
     FLAT },
    { "sum_squares", "f32", kern_sum_squares, ref_sum_squares, { IN(FULL, F32), OUT(ONE, F32) },
     FLAT },
};
/* clang-format on */

const int MEMOPS_N = sizeof MEMOPS / sizeof MEMOPS[0];

const MemOp *memop_named(const char *name)
{
    for (int i = 0; i < MEMOPS_N; i++)
        if (strcmp(MEMOPS[i].name, name) == 0)
            return &MEMOPS[i];
    return NULL;
}

uint64_t slot_numbers(const Slot *slot, const MemShape *shape)
{
    switch (slot->shape) {
    case SHAPE_FULL:
        return (uint64_t)(shape->rows * shape->cols);
    case SHAPE_ROW:
        return (uint64_t)shape->rows;
    case SHAPE_COL:
        return (uint64_t)shape->cols;
    case SHAPE_ONE:
        return 1;
    case SHAPE_TABLE:
        return (uint64_t)(shape->vocab * shape->cols);
    case SHAPE_NONE:
        break;
    }
    return 0;
}

uint64_t memop_bytes(const MemOp *op, const MemShape *shape)
{
    uint64_t bytes = 0;
    for (int i = 0; i < KERN_SLOTS; i++) {
        Slot slot = op->slot[i];
        if (slot.shape == SHAPE_TABLE)
            slot.shape = SHAPE_FULL; /* the rows that are gathered */
        uint64_t once = slot_numbers(&slot, shape) * num_bytes(slot.type);
        bytes += slot.role == ROLE_INOUT ? 2 * once : once;
    }
    return bytes;
}

MemShape memop_shape_for(const MemOp *op, int64_t cols, uint64_t bytes)
{
    MemShape one = { .rows = 1, .cols = cols }, two = { .rows = 2, .cols = cols };
    uint64_t per_row = memop_bytes(op, &two) - memop_bytes(op, &one);
    uint64_t rows = bytes / per_row;
    return (MemShape){ .rows = rows ? (int64_t)rows : 1, .cols = cols, .vocab = 32768 };
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t slot_bytes(const Slot *slot, const MemShape *shape)
{
    return aligned(slot_numbers(slot, shape) * num_bytes(slot->type));
}

uint64_t memcase_set_bytes(const MemOp *op, const MemShape *shape)
{
    uint64_t bytes = 0;
    for (int i = 0; i < KERN_SLOTS; i++)
        bytes += slot_bytes(&op->slot[i], shape);
    return bytes;
}

KernArgs memcase_args(const MemCase *c, uint64_t set)
{
    KernArgs args = { .scratch = c->scratch, .rows = c->shape.rows, .cols = c->shape.cols };
    char *at = c->base + set * c->set_bytes;
    for (int i = 0; i < KERN_SLOTS && c->op->slot[i].shape != SHAPE_NONE; i++) {
        args.slot[i] = at;
        at += slot_bytes(&c->op->slot[i], &c->shape);
    }
    return args;
}

static void fill_slot(const Slot *slot, const MemShape *shape, void *dst, uint64_t seed,
                      cudaStream_t stream)
{
    uint64_t n = slot_numbers(slot, shape);
    uint64_t limit = (uint64_t)(slot->index == INDEX_VOCAB ? shape->vocab : shape->cols);
    KernFill fill = slot->index != INDEX_NONE ? FILL_INDEX
                    : slot->positive          ? FILL_ABS
                                              : FILL_NORMAL;
    if (slot->role == ROLE_OUT)
        CUDA_TRY(cudaMemsetAsync(dst, 0xff, n * num_bytes(slot->type), stream));
    else
        CUDA_TRY(kern_fill(dst, slot->type, fill, limit, n, seed, stream));
}

void memcase_open(MemCase *c, const MemOp *op, MemShape shape, uint64_t sets_n, char *base,
                  void *scratch, cudaStream_t stream)
{
    *c = (MemCase){
        .op = op, .shape = shape, .base = base, .scratch = scratch, .sets_n = sets_n
    };
    c->set_bytes = memcase_set_bytes(op, &shape);
    for (uint64_t set = 0; set < sets_n; set++) {
        KernArgs args = memcase_args(c, set);
        for (int i = 0; i < KERN_SLOTS && op->slot[i].shape != SHAPE_NONE; i++)
            fill_slot(&op->slot[i], &shape, args.slot[i], 1000 * set + (uint64_t)i + 1, stream);
    }
    CUDA_TRY(cudaStreamSynchronize(stream));
}

void memcase_launch(void *self, uint64_t call, cudaStream_t stream)
{
    const MemCase *c = self;
    KernArgs args = memcase_args(c, call % c->sets_n);
    CUDA_TRY(c->op->launch(&args, stream));
}
