/*
 * formats.h - in which number formats a step keeps, reads and sums parameters and gradients.
 *
 * training says so; where it is silent, the software:
 *
 *                    nobody says more   f32_params, fsdp   f32_params, else   f32_grads  f32_reduce
 *     kept           param_dtype        f32                f32
 *     read           kept; fsdp: act    act                a cast to act
 *     made           grad_dtype         act                f32                f32
 *     reduced        reduce_dtype       as made            as made            f32        f32
 *     shard of it    as reduced         f32                as reduced
 *     masters        master_weights     none               none
 *
 * act: the format of activations.  f32_params stands aside where training.param_dtype or
 * training.master_weights say otherwise, and for matmuls in f32, tf32 or (but under fsdp) fp8.
 */
#ifndef LOCKSTEP_SIM_FORMATS_H
#define LOCKSTEP_SIM_FORMATS_H

#include "sim/scenario.h"
#include "sim/software.h"

typedef struct Formats {
    DType param;  /* as kept: whole, or in shards */
    DType read;   /* as blocks find them: fsdp casts what it gathers */
    DType grad;   /* as backward leaves them */
    DType reduce; /* as they are summed over replicas */
    DType shard;  /* as fsdp and zero2 keep what is left of the sum */
    DType stream; /* what transformer layers add to and hand on: f32 under torch.autocast */
    bool masters; /* f32 weights beside them */
    bool casts;   /* matmuls read casts of f32 weights */
} Formats;

/* Values as they lie in memory: f32 for f32 and tf32, bf16 for fp8. */
DType act_dtype(const Training *t);

/* fsdp: parameters are really sharded (uses_fsdp in sim/build.h). */
Formats formats_of(const Training *t, const Software *sw, bool fsdp);

#endif
