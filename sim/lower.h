/*
 * lower.h - the kernels, and how logical ops become them.
 *
 * Lowering walks every segment once.  A logical op is copied, merged with those
 * that follow it (sim/lower_merge.c: what a stack fuses) or taken apart
 * (sim/lower_expand.c: what a stack does in several kernels); facts come from
 * Software alone.  A group of logical ops becomes a group of kernels:
 *
 *     logical    ... matmul | bias  activation | add | norm | ...
 *     kernels    ... matmul+bias+gelu          | add+norm   | ...
 *                    ^first, last of all three
 *
 * A value born (or dead) anywhere in a group is born in the first (dies in the
 * last) kernel of the group that names it; a value that lived inside the group
 * only, and that no kernel names, is gone.  Kernels have the logical id of the op
 * that gave them their kind; part counts the kernels of a group.
 *
 * ARGUMENTS of each kernel, in order.  `y` is written, `y*` overwrites what it
 * read (ARG_UPDATE), [x] is there when its maker asked for it.  Gradients dw are
 * written or, in later micro-batches, added to (ARG_UPDATE; MatmulShape.accumulate).
 *
 *     matmul      forward     x w -> y                      y = x w^T, w stored [outputs, inputs]
 *                  + bias     x w b -> y                    fn bias
 *                  + act      x w [b] -> [pre] y            fn gelu, relu, bias_gelu, bias_relu
 *                 dgrad       dy w -> dx                    dx = dy w
 *                 wgrad       dy x -> dw                    dw = dy^T x
 *                  + bias     dy x -> dw db                 fn bias
 *     conv        as matmul, x as patches
 *     attention   forward     qkv -> y lse                  heads side by side: q, k, v
 *                             qk qkv -> y lse               normed q and k apart; v from qkv
 *                 dgrad       dy qkv y lse -> dqkv          (dy qk qkv y lse -> dqk dqkv)
 *                 latent      q kv -> y lse;       dy q kv y lse -> dq dkv
 *                 over cp     qkv kv -> y lse;  dy qkv kv y lse -> dqkv dkv    kv: gathered;
 *                             cp kernels in a ring (sim/lower_ring.c), the later ones add
 *     softmax     forward     scores -> weights             causal mask and scale inside
 *                 dgrad       dweights* weights
 *     norm        forward     x [gain [shift]] -> y stats   stats: [mean,] 1/deviation per row
 *                 dgrad       dy x stats [gain] -> dx [dgain [dshift]]
 *                             dx written in part where x is qkv: the columns of q and k
 *                  q and k    qkv gain_q [shift_q] gain_k [shift_k] -> qk stats
 *                 forward     x r [b] [gain [shift]] -> s y stats      fn add_...: s = x + r (+ b)
 *                 dgrad       dy x stats [gain] ds -> dx [dgain [dshift]]   dx += ds
 *     activation  forward     x -> y                        gated: x is gate and up side by side
 *                  + bias     x b -> y
 *                 dgrad       dy x -> dx                    relu: dy y -> dx
 *     (where up is done again and gate is kept: matmul x w -> gate up, activation gate up -> y and
 *     dy gate up -> dx)
 *     activation  in place    x* -> (nothing more)          relu of boundaries
 *     add         forward     x r [b] -> y [mask]           b: a bias row; mask: dropout of r + b
 *                 dgrad       dx* dx2                       sum of two gradients
 *     scale       forward     y* [b] -> mask                dropout; b: a bias row
 *                 dgrad       dy mask -> dx
 *     bias        forward     y* b
 *                 wgrad       dy -> db
 *     rope        both        qkv*  (or qk*)
 *     embedding   forward     tokens table -> y             positions, token types: y* table
 *                 wgrad       dy tokens -> dtable*          after a fill; positions: dy -> dtable
 *     cross_entropy           logits* targets -> loss       fused: leaves the gradient there
 *                 over tp     logits -> maximum;  logits targets maximum -> sums;
 *                             logits* targets maximum sums -> loss
 *     mse         forward     prediction targets -> loss
 *                 dgrad       prediction targets -> dprediction
 *     batchnorm   as norm     x gain shift -> y stats;  dy x stats gain -> dx dgain dshift
 *     pool        forward     x -> y [indices]              dgrad: dy [indices] -> dx
 *     softmax     forward     scores -> weights chosen      of experts: softmax and top k
 *                 dgrad       dweights weights chosen -> dscores
 *     copy        forward     x -> y                        first row of each sample
 *                 dgrad       (add) dx* dy                  on those rows
 *                 both        x -> y;  dy -> dx             rows of tokens to those of experts
 *                 forward     x weights -> y                each token's rows, weighted and summed
 *                 dgrad       dy x weights -> dx dweights
 *     (in fp8: y of a norm or activation is what the next matmul reads, a byte each)
 *     fill        -> y        copy  x -> y        cast  x -> y; of a weight's gradient x -> y*
 *     all_reduce  x*          all_gather  part -> x         reduce_scatter  x -> part
 *     all_to_all  x -> y
 *     optimizer, grad_norm, scale and the copies around buckets: sim/strategy/
 *
 * What only unfused stacks have (sim/lower_expand.c and the files of single rules it names):
 * softmax between two batched matmuls, act(gate) and product apart, log-softmax and loss
 * apart or in place, casts of the logits, matmul and sum where gradients are not
 * accumulated, an optimizer's passes.  In rings attention and matmuls are several kernels,
 * of which the later ones update what the first wrote (sim/lower_ring.c).
 */
#ifndef LOCKSTEP_SIM_LOWER_H
#define LOCKSTEP_SIM_LOWER_H

#include "sim/blocks.h"

typedef struct KernelArg {
    Slot slot;
    uint32_t tensor;
    ArgMode mode;
} KernelArg;

typedef struct Kernel {
    Op op;
    uint32_t arg_first, arg_n; /* Lowering.args */
} Kernel;

typedef struct Lowering {
    const Build *b;
    Fusion fusion;
    Graph *g;         /* being written */
    const Graph *old; /* ops, args, deps and segments as they were; other arrays are g's */
    const Segment *s; /* of old: the one at work */
    const Op *ops;    /* its ops */
    bool casts;       /* Formats.casts, by kernels of their own */
    uint32_t name_head, name_metrics;

    /* The group at work: ops [begin, begin + n) of the segment, as kernels. */
    uint32_t begin, n;
    uint32_t kernels_n, kernels_cap, args_n, args_cap;
    Kernel *kernels;
    KernelArg *args;

    /* New locals of the segment. */
    uint32_t locals_n; /* it had before */
    uint32_t temps_n, temps_cap;
    Tensor *temps;

    uint32_t *first, *last; /* by op of old: first and last kernel of its group */
} Lowering;

/* Appends a kernel; lower_arg then appends to it. */
Kernel *lower_kernel(Lowering *l, Op op);
void lower_arg(Lowering *l, Slot slot, uint32_t tensor, ArgMode mode);
/* A new local of the segment. */
KernelArg lower_temp(Lowering *l, const char *name, DType dtype, uint64_t rows,
                     uint64_t columns);
const Tensor *lower_tensor(const Lowering *l, Slot slot, uint32_t tensor);
uint64_t lower_bytes(const Lowering *l, KernelArg a);

/* Can an op of this kind begin a group of several, or become several kernels? */
bool lower_may_merge(const Op *op);
bool lower_may_expand(const Lowering *l, const Op *op);
/* Merges op `next` of the segment into the only kernel of the group.  False: they stay apart. */
bool lower_merge(Lowering *l, const Op *next);
/* Replaces the only kernel of the group by several, where the stack has no such kernel: true. */
bool lower_expand(Lowering *l);

#endif
