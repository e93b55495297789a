/*
 * cost_parts.h - what the cost_*.c files tell each other; besides them only `calibrate`, which
 * turns measured kernels into the rows that they read.
 */
#ifndef LOCKSTEP_SIM_COST_PARTS_H
#define LOCKSTEP_SIM_COST_PARTS_H

#include "sim/cost.h"

/* The matmul model on so many of the GPU's SMs and so much of its bandwidth. */
double matmul_on_ns(const Gpu *gpu, const MatmulShape *s, DType dtype, double sms,
                    double bandwidth);

/* Whose rows of a GPU's file are the nearest to this kernel. */
AttentionKernel attention_rows(const Gpu *gpu, const Op *op, AttentionKernel kernel);
/* May what the op takes be one of them?  They are of 16-bit products; on a GPU that is no faster at
 * those, of any. */
bool attention_is_row(const Gpu *gpu, const Op *op, AttentionKernel rows);
double attention_ns(const Gpu *gpu, const Op *op, AttentionKernel rows, double sms,
                    double bandwidth);
/* How many times as long as with the kernel that those rows are of. */
double attention_age(const Op *op, AttentionKernel kernel);

/* Kernels that only move bytes. */
MemoryKernel memory_kernel_of(const Op *op);
double memory_ns(const Gpu *gpu, MemoryKernel kernel, double bytes);

#endif
