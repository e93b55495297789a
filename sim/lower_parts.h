/*
 * lower_parts.h - what lower_expand.c shares with the files of single rules (lower_loss.c ...);
 * nobody else includes it.
 */
#ifndef LOCKSTEP_SIM_LOWER_PARTS_H
#define LOCKSTEP_SIM_LOWER_PARTS_H

#include "sim/lower.h"

/* The kernel that is taken apart, with its args, out of the way. */
typedef struct Whole {
    Op op;
    uint32_t args_n;
    const KernelArg *args;
} Whole;

/* A kernel of the same phase, with nothing read or written yet. */
Op *part_begin(Lowering *l, const Whole *w, OpKind kind, OpFn fn);
/* Appends an argument to the newest kernel, and its traffic: all of it, or so many bytes. */
void part_arg(Lowering *l, KernelArg a, ArgMode mode);
void part_bytes_arg(Lowering *l, KernelArg a, ArgMode mode, uint64_t bytes);
/* Appends all arguments of w but for number i, in place of which is another; no traffic. */
void part_args_but(Lowering *l, const Whole *w, uint32_t i, KernelArg other);
/* The kernel as it was. */
void part_whole(Lowering *l, const Whole *w);
/* A kernel that casts all of `from`; mode: whether `to` is written or added to. */
void part_cast(Lowering *l, const Whole *w, KernelArg from, KernelArg to, ArgMode mode);
/* x, or a copy of that name where it has another format. */
KernelArg part_in(Lowering *l, const Whole *w, const char *name, KernelArg x, DType dtype);
/* A temporary of the shape of another value. */
KernelArg part_temp(Lowering *l, const char *name, KernelArg like, DType dtype);
DType part_dtype(const Lowering *l, KernelArg a);

/* Parts that the stack splits a matmul in, and the columns of each, of `all`; 0: it is whole. */
enum { PARTS_MAX = 3 };
uint32_t parts_named(const Lowering *l, const char *matmul, uint64_t all,
                     uint64_t columns[PARTS_MAX]);

/* lower_chain.c; gains: parameters of the norm. */
void chain_norm_forward(Lowering *l, const Whole *w, uint32_t gains);
void chain_norm_backward(Lowering *l, const Whole *w, uint32_t gains);
void chain_rope(Lowering *l, const Whole *w);
void chain_gelu_forward(Lowering *l, const Whole *w);
void chain_gelu_backward(Lowering *l, const Whole *w);

/* Rules of take_apart, in files of their own: sim/lower_loss.c ... */
bool loss_expand(Lowering *l, const Whole *w);
/* After a micro-batch's backward, of which w is the last op: losses for metrics (metric_losses). */
void metric_losses(Lowering *l, const Whole *w, uint64_t vocab);
bool optimizer_expand(Lowering *l, const Whole *w);
/* sim/lower_attention.c.  Sizes of an attention op whose values have elements of so many bytes. */
typedef struct Scores {
    uint64_t heads, q_bytes, k_bytes, v_bytes, y_bytes; /* y: attention's result */
    AttentionShape a;
} Scores;
Scores scores_of(const Whole *w, uint64_t element);
/* Attention that is not fused; copies round it where it is. */
bool attention_expand(Lowering *l, const Whole *w);
bool attention_layouts(Lowering *l, const Whole *w);
bool attention_repeats(Lowering *l, const Whole *w);
bool sync_batchnorm(Lowering *l, const Whole *w);
/* sim/lower_autocast.c: before them, where weights are cast by kernels of their own. */
bool autocast_expand(Lowering *l, const Whole *w);
/* sim/lower_fp8.c: before them, on every kernel, where the stack so scales, and transposes. */
bool fp8_is_dynamic(const Lowering *l);
bool fp8_transposes(const Lowering *l);
bool fp8_scale(Lowering *l, const Whole *w);
bool fp8_transpose(Lowering *l, const Whole *w);

/* sim/lower_ring.c: a rule of take_apart; and the kernel that kernel k of the group waits for
 * on account of op, NONE_U32 for none. */
bool ring_expand(Lowering *l, const Whole *w);
uint32_t ring_dep(const Lowering *l, uint32_t kernel, uint32_t op);

#endif
