/*
 * formats.h - in which number formats a step keeps, reads and sums parameters and gradients.
 *
 * training says so; where it is silent, the software:
 *
 *               nobody says more    f32_params, fsdp    f32_stream, else    f32_grads   f32_reduce
 *     param     param_dtype         f32                 f32
 *     read      param; fsdp: act    act                 f32, cast for matmuls
 *     grad      grad_dtype          act                 f32                 f32
 *     reduce    reduce_dtype        as grad             as grad             f32         f32
 *     shard     as reduce           f32                 as reduce
 *               (grad_dtype, where training says it)
 *     masters   master_weights      none                none
 *     moments   f32; of states_like_params without masters: as param
 *     master    f32; of master_remainders 16 bits beside bf16, with zero1 and zero2
 *
 * bf16_grads_f32 is as f32_grads where it applies.
 *
 * act is the format of activations.  Matmuls make weight gradients in it with f32_params, and
 * outside fsdp where they do not add to gradients themselves (accumulates_wgrads); what keeps them
 * in f32 casts or adds them.  Under fsdp with f32_params and a pipeline, gradients are summed
 * before they are scattered, in the format of reduce (FSDP2: to_accumulated_grad_if_needed).
 *
 * Where fsdp is asked for f32 by training.param_dtype it is as with f32_params.  f32_params means
 * nothing where training.param_dtype or training.master_weights says otherwise, in f32 and tf32.
 * Without f32_stream it is of fsdp alone: XLA, elsewhere, casts weights once a step, which is what
 * 16-bit ones beside masters are.
 *
 * TORCH.AUTOCAST (f32_stream) also keeps in f32 what transformer layers add up and norm.  Left
 * out: the softmax of unfused attention, which it does in f32; a cast for each of q, k, v, of gate
 * and up where these are matmuls of their own (here one serves them all); that it holds the casts
 * of weights until forward ends, also under checkpointing, and over all micro-batches of a
 * pipeline; f32 features and images, and losses by mse.
 */
#ifndef LOCKSTEP_SIM_FORMATS_H
#define LOCKSTEP_SIM_FORMATS_H

#include "sim/scenario.h"
#include "sim/software.h"

typedef struct Formats {
    DType param;   /* as kept: whole, or in shards */
    DType read;    /* as blocks find them */
    DType made;    /* weight gradients as matmuls make them */
    DType grad;    /* as backward leaves them */
    DType reduce;  /* as they are summed over replicas */
    DType shard;   /* of fsdp: as it keeps its part of the sum */
    DType stream;  /* what transformer layers add up and hand on */
    DType moments; /* of the optimizer */
    DType master;  /* of masters: f32, or the 16 bits that parameters lack */
    bool masters;  /* f32 weights beside them */
    bool casts;    /* matmuls read 16-bit casts of f32 weights */
} Formats;

/* Values as they lie in memory: f32 for f32 and tf32, bf16 for fp8. */
DType act_dtype(const Training *t);

/* How many moments an optimizer keeps of each parameter. */
uint32_t optimizer_moments(Optimizer o);

/* Parameters are really sharded: fsdp or hsdp, over more than one rank; or under fsdp those of
 * experts alone, which ranks of tp have alike. */
bool shards_params(const Parallel *p, const Software *sw);
/* Do matmuls add weight gradients to those of earlier micro-batches themselves? */
bool accumulates_wgrads(const Parallel *p, const Software *sw);
/* Are there gradients in 16 bits beside those in f32 all the time?  replicas: other ranks hold the
 * same parameters. */
bool keeps_half_grads(const Training *t, const Parallel *p, const Software *sw, bool replicas);
/* Does the strategy know of experts that are not on all ranks? */
bool shares_experts(const Parallel *p);
/* Ranks of dp among which experts are shared out: of hsdp those that share out a copy of the
 * parameters, so that each copy has all experts. */
uint32_t expert_dp(const Parallel *p);
/* Is each expert on one rank, not cut over tp?  The scenario says so (etp 1), or is silent and the
 * software does so, or ep leaves no other way.  Of a dense model it means nothing. */
bool whole_experts(const Parallel *p, const Software *sw);

/* Does the software keep gradients in f32, where the scenario is silent? */
bool grads_in_f32(const Training *t, const Parallel *p, const Software *sw);
Formats formats_of(const Training *t, const Parallel *p, const Software *sw);

#endif
