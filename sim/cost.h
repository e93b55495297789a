/*
 * cost.h - how long one kernel takes on one GPU.
 *
 * A kernel's time is what limits it, and never below the floor:
 *
 *     matmul     fill + max(waves * time of a tile, bytes / (bandwidth * efficiency))
 *     attention  fill + max(flops / (peak * efficiency * part of the SMs in use), bytes / ...)
 *     others     floor + bytes / (bandwidth * efficiency of the kernel's class)
 *
 * Where the GPU file holds measured rows near the shape, the model is corrected by
 * what it gets wrong there (measured over modelled, interpolated between rows).  On
 * `ideal` all efficiencies are 1, nothing is quantised, fill and floor are 0:
 * t = max(flops / peak, bytes / bandwidth).
 *
 * Beside a running collective a kernel gets fewer SMs and less bandwidth;
 * slowed_ns is its time then (facts: a collective of c channels leaves SMs - c).
 *
 * Nothing is ever faster than op_flops_bound_ns and op_memory_bound_ns: op.flops
 * and op.read_bytes are what the kernel really does (causal attention: half), so
 * a measurement below them came out of a cache and is lifted to the bound.
 */
#ifndef LOCKSTEP_SIM_COST_H
#define LOCKSTEP_SIM_COST_H

#include "core/graph.h"
#include "core/machine.h"
#include "sim/software.h"

typedef struct OpCost {
    int64_t alone_ns;  /* nothing else on the GPU */
    int64_t slowed_ns; /* a collective running all the while; >= alone_ns */
} OpCost;

/* Of a compute or copy op of a step; communication costs stand in sim/network.h.  sw NULL: of a
 * kernel by itself, neither the stack's compute_scale nor the GPU's sustained_scale in it. */
OpCost op_cost(const Gpu *gpu, const Op *op, const Software *sw);

/* What an op of a step takes, of what it takes alone: the stack's compute_scale; on the GPU's cores
 * (matmul, conv, attention) its sustained_scale too, and for attention the age of the stack's
 * kernel, if it is older than any that a GPU's rows are of.  Clocks fall under load, the memory's
 * does not: in steps of two models on an H200 (GPT-2 124M and TinyLlama 1.1B, 2026-11-26) matmuls
 * took 1.02 and 1.06 of what `bench` measured alone, attention 1.04 and 1.13, norms 0.98 and 0.99,
 * activations 0.96 and 0.93, updates 0.99. */
double op_scale(const Gpu *gpu, const Op *op, const Software *sw);

/* sustained_scale of the slowest of n GPUs, which all others wait for: with a spread of s and GPUs
 * that differ as by a normal distribution, 1 + s q times that of the mean, where q is the
 * (n - 3/8) / (n + 1/4) quantile (the expected greatest of n, G. Blom 1958, right to 1 %). */
double sustained_among(const Gpu *gpu, uint64_t n);

/* The two lower bounds: flops at peak, bytes at full bandwidth.  Nothing may be faster. */
double op_flops_bound_ns(const Gpu *gpu, const Op *op);
double op_memory_bound_ns(const Gpu *gpu, const Op *op);

/* Time of a matmul alone; the parts of op_cost, for tests and tables. */
double matmul_model_ns(const Gpu *gpu, const MatmulShape *s, DType dtype);
/* False when no measured rows are near enough to the shape. */
bool matmul_table_ns(const Gpu *gpu, const MatmulShape *s, DType dtype, double *ns);

#endif
