/*
 * kernel_args.h - what the arguments of a task are, where their order alone does not say it.
 *
 * For whoever computes: the CPU's kernels and the launches of the CUDA backend read tasks by
 * the same functions, so that both mean the same.  Orders of arguments: sim/lower.h.
 */
#ifndef LOCKSTEP_EXEC_KERNEL_ARGS_H
#define LOCKSTEP_EXEC_KERNEL_ARGS_H

#include "exec/kernel.h"
#include "exec/kernel_numbers.h"

/* Arguments of a mode, which come first: how many of them are read only. */
uint32_t call_reads(const Buffer *b, uint32_t n);

/* Numbers [first, first + n) of a tensor of `elements` that this rank owns. */
typedef struct Part {
    uint64_t first, n;
} Part;
Part own_part(const ModelFacts *f, const Buffer *b);

/* Numbers of two tensors that meet in a copy or sum. */
typedef struct Pair {
    const Buffer *from, *to;
    uint64_t from_at, to_at, n;
} Pair;

/*
 * What of two tensors meets.  Buffers of ZeRO hold shard_n equal parts, the last one padded:
 *     in     all of a gradient, the padding cleared;  or (parameters) only the own part
 *     out    all of it;  or the own part, to its place or to a shard
 */
Pair pair_of(const ModelFacts *f, const Task *t, const Buffer *from, const Buffer *to);
/* Must what of p.to lies behind the pair be cleared? */
bool pair_pads(const ModelFacts *f, const Task *t, Pair p);
/* Where a tensor lies in a flat buffer of all tensors of its layout. */
uint64_t place_in_layout(const Program *p, const Task *t, const Buffer *b);

/* GELU or RELU of a matmul's epilogue; FN_NONE. */
OpFn activation_of(OpFn epilogue);
/* attention "math": a matmul without a parameter. */
bool is_attention_matmul(const Program *p, const Task *t);
/* Over cp its keys are apart from its queries; are they missing among the arguments? */
bool attention_lacks_keys(const Op *op, uint32_t args_n);
/* Keys of one sample, of a matmul of attention "math". */
uint64_t attention_keys(const Op *op);
/* The matmuls of one attention, by Op.part; between them stands the softmax. */
enum { SCORES = 0, WEIGHTED = 2 };                               /* forward */
enum { D_WEIGHTS = 0, D_VALUES = 1, D_QUERIES = 3, D_KEYS = 4 }; /* backward */
/* Do attention windows hold in this task's layer (attention "math")? */
bool is_windowed(const Program *p, const Task *t);

/* Is an argument of a norm the bias of the residual added before it? */
bool is_bias_row(const Program *p, const Buffer *b);
/*
 * The gain of k, where the arguments have that of q only: the parameter `after` q's in the
 * same frame, as some earlier kernel (its forward, its gather) named it.  NULL: there is none.
 */
const Buffer *gain_of_k(const Program *p, const Task *t, const Buffer *q, uint32_t after);

/* A table of token types: row 0 for all (there are none in the data). */
bool is_table_of_types(const Program *p, const Buffer *table);

/* x: the logits of a fused loss. */
Logits logits_of(const ModelFacts *f, const Task *t, const Buffer *x);

/* step: optimizer steps done before. */
Rates rates_of(const Hyper *h, OpFn fn, uint64_t step);

/* Of n states the one with that name; NULL. */
const Buffer *state_named(const Program *p, const Buffer *states, uint32_t n, const char *name);

#endif
