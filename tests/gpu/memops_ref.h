/*
 * memops_ref.h - what the memory-bound kernels must compute, in double on the host.
 *
 * Written from the definitions, slot for slot as memops.c lists them; slow on purpose.
 */
#ifndef GPU_MEMOPS_REF_H
#define GPU_MEMOPS_REF_H

#include "memops.h"

MemReference ref_copy, ref_add;
MemReference ref_gelu_fwd, ref_gelu_bwd, ref_silu_mul_fwd, ref_silu_mul_bwd;
MemReference ref_layernorm_fwd, ref_layernorm_bwd, ref_rmsnorm_fwd, ref_rmsnorm_bwd;
MemReference ref_softmax_fwd, ref_softmax_bwd, ref_cross_entropy_fwd, ref_cross_entropy_bwd;
MemReference ref_embedding, ref_adamw, ref_adamw_mixed, ref_sum_squares;

#endif
