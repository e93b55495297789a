/*
 * cost.c - puts a kernel's cost together: model or table, bounds, interference.
 *
 * WHAT IT MUST REPRODUCE (tests/unit/test_cost.c prints the errors):
 *   kernels/gemm                each row from its neighbours when it is left out
 *   kernels/memory-bound-ops    attention on A100-PCIe and B200, adds on A100 and H100
 *   kernels/memory-bandwidth    what streams reach
 *   arXiv 2407.08608            attention on H100, 512 to 16k keys
 * Nothing here may be fitted on data/validation.
 */
#include "sim/cost.h"

#include <math.h>

#include "sim/cost_parts.h"
#include "sim/network.h"

double op_flops_bound_ns(const Gpu *gpu, const Op *op)
{
    return op->flops / gpu_peak_flops_per_ns(gpu, op->dtype);
}

double op_memory_bound_ns(const Gpu *gpu, const Op *op)
{
    double bytes = (double)op->read_bytes + (double)op->write_bytes;
    return bytes / (op->kind == OP_H2D ? gpu->host_bytes_per_ns : gpu->memory_bytes_per_ns);
}

/* The matmul that op is, or is a part of. */
static MatmulShape whole_matmul(const Op *op)
{
    MatmulShape s = op->u.matmul;
    s.m *= s.of ? s.of : 1;
    return s;
}

static double shape_ns(const Gpu *gpu, const MatmulShape *s, DType dtype)
{
    double ns;
    return matmul_table_ns(gpu, s, dtype, &ns) ? ns : matmul_model_ns(gpu, s, dtype);
}

/* What adds to what is there takes no less than what only writes, wherever which was measured. */
static double matmul_ns(const Gpu *gpu, const Op *op)
{
    MatmulShape s = whole_matmul(op), writes = s;
    writes.accumulate = false;
    double ns = shape_ns(gpu, &s, op->dtype);
    if (s.accumulate)
        ns = fmax(ns, shape_ns(gpu, &writes, op->dtype));
    return ns / (s.of ? s.of : 1);
}

static double kernel_ns(const Gpu *gpu, const Op *op, AttentionKernel rows)
{
    switch (op->kind) {
    case OP_MATMUL:
    case OP_CONV:
        return matmul_ns(gpu, op);
    case OP_ATTENTION:
        return attention_ns(gpu, op, rows, gpu->sms, gpu->memory_bytes_per_ns);
    case OP_H2D:
        return (double)op->write_bytes / gpu->host_bytes_per_ns;
    default:
        return memory_ns(gpu, memory_kernel_of(op),
                         (double)op->read_bytes + (double)op->write_bytes);
    }
}

/* tf32 is leave to use it (CUBLAS_COMPUTE_32F_FAST_TF32): where matrix units are no faster than
 * the others, as on GeForce, libraries have kernels of f32 to choose from. */
static double alone_ns(const Gpu *gpu, const Op *op, AttentionKernel rows)
{
    double ns = kernel_ns(gpu, op, rows);
    if (op->dtype != DTYPE_TF32 || !(gpu->peak_flops_per_ns[DTYPE_F32] > 0))
        return ns;
    Op f32 = *op;
    f32.dtype = DTYPE_F32;
    return fmin(ns, kernel_ns(gpu, &f32, rows));
}

static bool takes_sms(const Gpu *gpu)
{
    return gpu->sms > 0 && gpu->comm_sms > 0;
}

/* How much longer beside a collective: the model with what it leaves over the model alone. */
static double slowdown(const Gpu *gpu, const Op *op, AttentionKernel rows)
{
    double sms = takes_sms(gpu) ? fmax(gpu->sms - gpu->comm_sms, 1) : gpu->sms;
    double bandwidth = gpu->memory_bytes_per_ns;
    double taken = gpu->comm_memory_factor * gpu->comm_bytes_per_ns;
    double left = bandwidth * bandwidth / (bandwidth + taken);
    MatmulShape whole;
    switch (op->kind) {
    case OP_MATMUL:
    case OP_CONV:
        whole = whole_matmul(op);
        return (takes_sms(gpu) ? gpu->comm_matmul_factor : 1) *
               matmul_on_ns(gpu, &whole, op->dtype, sms, left) /
               matmul_model_ns(gpu, &whole, op->dtype);
    case OP_ATTENTION:
        return attention_ns(gpu, op, rows, sms, left) /
               attention_ns(gpu, op, rows, gpu->sms, gpu->memory_bytes_per_ns);
    case OP_H2D:
        return 1;
    default:
        return bandwidth / left;
    }
}

/* To the nearest ns, but not below the bound (a hair more than whole ns is rounding).  What takes
 * longer than a step may, takes just that: the engine says so. */
static int64_t whole_ns(double ns, double bound_ns)
{
    double most = (double)NS_MAX, bound = ceil(bound_ns * (1 - 1e-12));
    return max_i64(llround(fmin(ns, most)), (int64_t)fmin(bound, most));
}

/* Of the normal distribution; 0.5 <= p < 1. */
static double quantile_of_normal(double p)
{
    double low = 0, high = 8;
    for (int i = 0; i < 40; i++) {
        double x = (low + high) / 2;
        *(erfc(x / M_SQRT2) / 2 > 1 - p ? &low : &high) = x;
    }
    return low;
}

double sustained_among(const Gpu *gpu, uint64_t n)
{
    if (n < 2 || gpu->sustained_spread == 0)
        return gpu->sustained_scale;
    double q = quantile_of_normal(((double)n - 0.375) / ((double)n + 0.25));
    return gpu->sustained_scale * (1 + gpu->sustained_spread * q);
}

double op_scale(const Gpu *gpu, const Op *op, const Software *sw)
{
    switch (op->kind) {
    case OP_MATMUL:
    case OP_CONV:
        return sw->compute_scale * gpu->sustained_scale;
    case OP_ATTENTION:
        return sw->compute_scale * gpu->sustained_scale *
               attention_age(op, sw->attention_kernel);
    default:
        return sw->compute_scale;
    }
}

/* As it is computed: with longer rows where a stack pads them, then in space.  Patches of a
 * convolution are no rows in memory: cuDNN fills them up. */
static const Op *padded(const Op *op, const Software *sw, Op *space)
{
    const MatmulShape *s = &op->u.matmul;
    bool pads = op->kind == OP_CONV || (op->kind == OP_MATMUL && sw && sw->pads_matmuls);
    if (!pads || gemm_alignment(gemm_layout_of(s), op->dtype, s->m, s->n, s->k) == GEMM_ALIGNED)
        return op;
    *space = *op;
    uint64_t step = GEMM_ALIGNED / dtype_bytes(op->dtype);
    uint64_t *inner = s->transpose_a ? &space->u.matmul.m : &space->u.matmul.k;
    *inner = div_up_u64(*inner, step) * step;
    space->u.matmul.n = div_up_u64(s->n, step) * step;
    return space;
}

OpCost op_cost(const Gpu *gpu, const Op *op, const Software *sw)
{
    ASSERT(!op_is_comm(op->kind) && op->kind < OP_KIND_N);
    if (op->kind == OP_HOST_WAIT || op->kind == OP_RELEASE)
        return (OpCost){ 0 };
    double bound = fmax(op_flops_bound_ns(gpu, op), op_memory_bound_ns(gpu, op));
    AttentionKernel rows =
        sw ? attention_rows(gpu, op, sw->attention_kernel) : ATTENTION_NEWEST;
    Op space;
    const Op *as = padded(op, sw, &space);
    double ns = alone_ns(gpu, as, rows) * (sw ? op_scale(gpu, op, sw) : 1);
    ns = fmax(ns, fmax(bound, (double)gpu->kernel_floor_ns));
    bool slows = takes_sms(gpu) || gpu->comm_memory_factor > 0;
    double slowed = slows ? ns * slowdown(gpu, as, rows) : ns;
    OpCost cost = { whole_ns(ns, bound), whole_ns(slowed, bound) };
    cost.slowed_ns = max_i64(cost.slowed_ns, cost.alone_ns);
    return cost;
}
