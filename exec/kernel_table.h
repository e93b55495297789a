/*
 * kernel_table.h - every op kind that is computed, and what computes it where.
 *
 * X(kind, the CPU's kernel, the CUDA backend's): both tables of kernels are made of this one
 * list, so neither can have a kernel that the other lacks.  Op kinds without a line are
 * communication, or need no kernel (h2d, host waits, releases), or nobody has one yet
 * (OP_CONV, OP_POOL); tests/unit/test_kernel_table.c holds that.
 */
#ifndef LOCKSTEP_EXEC_KERNEL_TABLE_H
#define LOCKSTEP_EXEC_KERNEL_TABLE_H

/* clang-format off */
#define KERNEL_TABLE(X)                                       \
    X(OP_MATMUL,        kernel_matmul,        launch_matmul)        \
    X(OP_ATTENTION,     kernel_attention,     launch_attention)     \
    X(OP_SOFTMAX,       kernel_softmax,       launch_softmax)       \
    X(OP_NORM,          kernel_norm,          launch_norm)          \
    X(OP_ACTIVATION,    kernel_activation,    launch_activation)    \
    X(OP_ADD,           kernel_add,           launch_add)           \
    X(OP_BIAS,          kernel_bias,          launch_bias)          \
    X(OP_ROPE,          kernel_rope,          launch_rope)          \
    X(OP_EMBEDDING,     kernel_embedding,     launch_embedding)     \
    X(OP_CROSS_ENTROPY, kernel_cross_entropy, launch_cross_entropy) \
    X(OP_MSE,           kernel_mse,           launch_mse)           \
    X(OP_BATCHNORM,     kernel_batchnorm,     launch_batchnorm)     \
    X(OP_OPTIMIZER,     kernel_optimizer,     launch_optimizer)     \
    X(OP_GRAD_NORM,     kernel_grad_norm,     launch_grad_norm)     \
    X(OP_SCALE,         kernel_scale,         launch_scale)         \
    X(OP_CAST,          kernel_copy,          launch_copy)          \
    X(OP_COPY,          kernel_copy,          launch_copy)          \
    X(OP_FILL,          kernel_fill,          launch_fill)
/* clang-format on */

#endif
