/*
 * backend_cuda_parts.h - what the files that launch share; nobody else includes it.
 */
#ifndef LOCKSTEP_EXEC_BACKEND_CUDA_PARTS_H
#define LOCKSTEP_EXEC_BACKEND_CUDA_PARTS_H

#include "exec/cuda_ops.h"
#include "exec/kernel_args.h"

/* Launches, unless only planned. */
#define GO(env, call) \
    do { \
        if (!(env)->planning) { \
            call; \
        } \
    } while (0)

enum { SCRATCH_ALIGN = 256 };

/* Scratch of this launch: device memory, aligned to SCRATCH_ALIGN. */
void *scratch(CudaEnv *env, uint64_t bytes);

NumType num_type(DType t);
/* A tensor on the device, from its number `first` on. */
Vec vec_at(const CudaEnv *env, const Buffer *b, uint64_t first);
Vec vec_of(const CudaEnv *env, const Buffer *b);

/* The launch fails: there is no kernel for so many. */
void lacks(CudaEnv *env, const char *what, uint64_t is, uint64_t most);

CurveKind curve_of(const CudaEnv *env, OpFn fn);

/* attention "math" */
void launch_attention_matmul(CudaEnv *env, const Program *p, const Task *t);
/* False: it failed, env has the sentence. */
bool multiply(CudaEnv *env, const Product *x);

void launch_matmul(CudaEnv *env, const Program *p, const Task *t);
void launch_attention(CudaEnv *env, const Program *p, const Task *t);
void launch_softmax(CudaEnv *env, const Program *p, const Task *t);
void launch_norm(CudaEnv *env, const Program *p, const Task *t);
void launch_batchnorm(CudaEnv *env, const Program *p, const Task *t);
void launch_activation(CudaEnv *env, const Program *p, const Task *t);
void launch_add(CudaEnv *env, const Program *p, const Task *t);
void launch_bias(CudaEnv *env, const Program *p, const Task *t);
void launch_rope(CudaEnv *env, const Program *p, const Task *t);
void launch_fill(CudaEnv *env, const Program *p, const Task *t);
void launch_copy(CudaEnv *env, const Program *p, const Task *t);
void launch_embedding(CudaEnv *env, const Program *p, const Task *t);
void launch_cross_entropy(CudaEnv *env, const Program *p, const Task *t);
void launch_mse(CudaEnv *env, const Program *p, const Task *t);
void launch_optimizer(CudaEnv *env, const Program *p, const Task *t);
void launch_grad_norm(CudaEnv *env, const Program *p, const Task *t);
void launch_scale(CudaEnv *env, const Program *p, const Task *t);

#endif
