/*
 * cost_attention.c - fused attention: flops at an efficiency that the shape decides.
 *
 * A thread block works on 128 queries of one head and walks over the keys, so
 *
 *   - short rows of keys do not pay for starting the block: the efficiency grows as
 *     keys / (keys + SHORT), where a causal block has half the keys on average;
 *   - batch * heads * seq / 128 blocks fill the SMs in waves, as a matmul's tiles do;
 *     causal blocks are of unequal length, which costs TAIL blocks at the end, but none is
 *     longer than one of the full kernel, which bounds what few of them take;
 *   - narrow heads feed the matrix units badly: head_dim / (head_dim + NARROW),
 *     relative to 128; FlashAttention-2's kernels less so (NARROW_FLASH2).
 *
 * SHORT and NARROW come from FlashAttention-3's published tables (arXiv 2407.08608,
 * H100, 512 to 16k keys of 16k tokens x 16 heads x 128): FlashAttention-2 and cuDNN
 * have one curve when scaled, causal or not (test_cost.c checks cuDNN's); head_dim 64
 * against 128 reaches 0.88, 0.77 and 0.69 (FlashAttention-2, -3, cuDNN), of which
 * NARROW_FLASH2 is the first and NARROW the second.  TAIL comes
 * from SimuMax's rows on A100, 4 to 64 heads of 4096.
 * Measured rows of the file correct the model as they do for matmuls: all rows of the kernel
 * within two doublings, by 1 / distance^4 and fading to nothing there.
 *
 * In f32 there are no matrix units to feed: the same blocks run at the efficiency of products.
 *
 * The executor's own kernels (exec/cuda_attention_mma.cu) are of FlashAttention-2's kind: with
 * the heads of GPT-2 and TinyLlama they take 0.89 to 1.09 of what it does on an H200, and longer
 * backward where few heads share one of keys, of which the GPU's file has rows.  What they do not
 * take, f32, tf32 and heads that are neither 64 nor 128 wide, goes by tiles through the units of
 * f32 (exec/cuda_attention.cu), at TILES of their peak.
 *
 * What a GPU's file holds is the newest kernel for it.  Older ones take longer:
 *
 *     FlashAttention-2 from Hopper on   1.6    16k keys, head_dim 128: 0.38 forward and 0.33
 *                                              backward of the peak, cuDNN 0.61 and 0.53
 *                                              (arXiv 2407.08608); or what the file's own rows of
 *                                              FlashAttention-2 say, where it has some
 *     FlashAttention, the first         2      "around 2x speedup compared to FlashAttention"
 *                                              (arXiv 2307.08691, abstract, A100)
 *     the same in Triton                1.4    forward, against FlashAttention-2, "1.3 to 1.5
 *                                              times faster"
 *                                       2      backward (arXiv 2307.08691, section 4.1, A100)
 */
#include <math.h>

#include "sim/cost_parts.h"

enum { BLOCK_QUERIES = 128, SHORT_FORWARD = 160, SHORT_BACKWARD = 256 };
enum { NARROW = 55, NARROW_FLASH2 = 20, FULL_HEAD = 128 };
static const double TAIL = 1.5;
/* From one step in tf32 of GPT-2, 4 x 1,024 tokens, on an H100 (run-one-gpu.jsonl, 2026-11-28):
 * what it took beside the rest, as predicted.  The same step in f32 is then 4 % too slow. */
static const double TILES = 0.075;
static const double FLASH2_ON_HOPPER = 1.6, FLASH1 = 2, TRITON_FORWARD = 1.4,
                    TRITON_BACKWARD = 2;

/* Of the products over heads of keys and into those of values. */
static double width_of(const AttentionShape *a)
{
    return ((double)a->head_dim + (double)attention_value_dim(a)) / 2;
}

/* On GPUs without a newer kernel all are of FlashAttention-2's kind. */
static double narrow_of(const Gpu *gpu, AttentionKernel rows)
{
    return rows != ATTENTION_NEWEST || !gpu_is_since_hopper(gpu) ? NARROW_FLASH2 : NARROW;
}

static double shape_efficiency(const AttentionShape *a, double narrow, bool backward)
{
    double keys = (double)(a->window && a->window < a->seq_k ? a->window : a->seq_k);
    if (a->causal) /* on average: the first queries see fewer than the window */
        keys *= 1 - keys / (2 * (double)a->seq_k);
    double dim = width_of(a);
    double wide = dim / (dim + narrow) * (FULL_HEAD + narrow) / FULL_HEAD;
    return fmin(wide, 1) * keys / (keys + (backward ? SHORT_BACKWARD : SHORT_FORWARD));
}

/* Not in the matrix units, whose products wait for what surrounds them, and in which others are. */
static bool is_plain(const Gpu *gpu, DType dtype)
{
    double narrow =
        fmax(gpu_peak_flops_per_ns(gpu, DTYPE_F16), gpu_peak_flops_per_ns(gpu, DTYPE_BF16));
    return dtype == DTYPE_F32 && gpu_peak_flops_per_ns(gpu, dtype) < narrow;
}

static double waves_ns(const Gpu *gpu, const AttentionShape *a, AttentionKernel rows,
                       bool backward, DType dtype, double flops, double sms)
{
    double efficiency = is_plain(gpu, dtype) ? gpu->matmul_efficiency[dtype]
                        : backward           ? gpu->attention_bwd_efficiency
                                             : gpu->attention_efficiency;
    double peak = gpu_peak_flops_per_ns(gpu, dtype);
    if (!gpu->quantise)
        return flops / (peak * efficiency);
    double blocks =
        (double)a->batch * (double)a->heads * (double)div_up_u64(a->seq_q, BLOCK_QUERIES);
    double x = blocks / sms;
    double waves = a->causal ? fmax(x + TAIL, 2) : fmax(x + 0.5 * (ceil(x) - x), 1);
    double shaped =
        is_plain(gpu, dtype) ? 1 : shape_efficiency(a, narrow_of(gpu, rows), backward);
    double sm_flops_per_ns = peak * efficiency * shaped / gpu->sms;
    return gpu->matmul_fill_ns + flops / (sm_flops_per_ns * sms) * waves / x;
}

/* Of the pairs of a full mask, those that a causal one lets through: the first queries see fewer
 * keys than the window. */
static double causal_part(const AttentionShape *a)
{
    double keys = (double)a->seq_k,
           w = a->window && a->window < a->seq_k ? (double)a->window : keys;
    return (w * (w + 1) / 2 + (keys - w) * w) / (keys * keys);
}

static double model_ns(const Gpu *gpu, const AttentionShape *a, AttentionKernel rows,
                       bool backward, DType dtype, double flops, double sms)
{
    double ns = waves_ns(gpu, a, rows, backward, dtype, flops, sms);
    if (!a->causal)
        return ns;
    AttentionShape full = *a;
    full.causal = false;
    full.window = 0;
    return fmin(ns, waves_ns(gpu, &full, rows, backward, dtype, flops / causal_part(a), sms));
}

/* ---- measured rows ---- */

static const double limit2 = 4.0, nearness2 = 0.05; /* as in cost_matmul.c */

/* In doublings; causal or not is one. */
static double distance2(const AttentionRow *r, const AttentionShape *a)
{
    double blocks =
        log2((double)(r->batch * r->heads)) - log2((double)a->batch * (double)a->heads);
    double keys = (double)(a->window && a->window < a->seq_k ? a->window : a->seq_k);
    double seq = log2((double)r->seq) - log2(keys);
    double dim = log2((double)r->head_dim) - log2(width_of(a));
    double mask = r->causal == a->causal ? 0 : 1, shared = 0;
    if (r->kernel == ATTENTION_LOCKSTEP) /* its blocks backward are by head of keys */
        shared = log2((double)(r->heads * a->kv_heads) / (double)(r->kv_heads * a->heads));
    return blocks * blocks + seq * seq + dim * dim + shared * shared + mask;
}

/* How many times as long as with the newest kernel the one that rows are of takes. */
static double rows_age(const Gpu *gpu, AttentionKernel rows)
{
    return rows == ATTENTION_NEWEST || !gpu_is_since_hopper(gpu) ? 1 : FLASH2_ON_HOPPER;
}

/* Rows are of 16-bit products; where a GPU has only one of the two types, of that. */
static DType rows_dtype(const Gpu *gpu)
{
    double bf16 = gpu_peak_flops_per_ns(gpu, DTYPE_BF16);
    return bf16 < gpu_peak_flops_per_ns(gpu, DTYPE_F16) ? DTYPE_F16 : DTYPE_BF16;
}

static double row_log_ratio(const Gpu *gpu, const AttentionRow *r)
{
    AttentionShape a = { .batch = r->batch,
                         .heads = r->heads,
                         .kv_heads = r->kv_heads,
                         .seq_q = r->seq,
                         .seq_k = r->seq,
                         .head_dim = r->head_dim,
                         .causal = r->causal };
    const Gpu *on = gpu_of_rows(gpu, GPU_ROWS_ATTENTION);
    double ns = model_ns(on, &a, r->kernel, r->backward, rows_dtype(on), attention_row_flops(r),
                         on->sms);
    return log(r->time_ns / (rows_age(on, r->kernel) * ns));
}

static bool has_rows(const Gpu *gpu, AttentionKernel kernel)
{
    for (uint32_t i = 0; i < gpu->attention_n; i++)
        if (gpu->attention[i].kernel == kernel)
            return true;
    return false;
}

/* Where nobody measured it the one before counts: the next of its kind, the newest at last. */
static AttentionKernel measured_kernel(const Gpu *gpu, AttentionKernel kernel)
{
    int k = (int)kernel;
    while (k > ATTENTION_NEWEST && !has_rows(gpu, (AttentionKernel)k))
        k--;
    return (AttentionKernel)k;
}

/* What to multiply the model with: the rows of the same pass near the shape, by nearness. */
static double correction(const Gpu *gpu, const AttentionShape *a, AttentionKernel kernel,
                         bool backward)
{
    double weight = 1 / limit2, sum = 0;
    for (uint32_t i = 0; i < gpu->attention_n; i++) {
        const AttentionRow *r = &gpu->attention[i];
        if (r->kernel != kernel || r->backward != backward)
            continue;
        double d2 = distance2(r, a);
        if (d2 >= limit2)
            continue;
        double w = (1 - d2 / limit2) / (d2 * d2 + nearness2 * nearness2);
        sum += w * row_log_ratio(gpu, r);
        weight += w;
    }
    return exp(sum / weight);
}

AttentionKernel attention_rows(const Gpu *gpu, const Op *op, AttentionKernel kernel)
{
    bool wide = op->dtype == DTYPE_F32 || op->dtype == DTYPE_TF32; /* not what was compared */
    if (kernel == ATTENTION_LOCKSTEP) /* without matrix units there is one kernel for all */
        return is_plain(gpu, DTYPE_F32) ? kernel : ATTENTION_NEWEST;
    return kernel != ATTENTION_NEWEST && gpu_is_since_hopper(gpu) && !wide ? ATTENTION_FLASH2
                                                                           : ATTENTION_NEWEST;
}

static double corrected_ns(const Gpu *gpu, const Op *op, const AttentionShape *a, double flops,
                           AttentionKernel rows, double sms)
{
    bool backward = op_is_backward(op);
    double ns = rows_age(gpu, rows) * model_ns(gpu, a, rows, backward, op->dtype, flops, sms);
    if (gpu->attention_n > 0 && !is_plain(gpu, op->dtype))
        ns *= correction(gpu, a, measured_kernel(gpu, rows), backward);
    return ns;
}

/* Whether the executor has it go by tiles: what its kernels on matrix units do not take. */
static bool goes_by_tiles(const Op *op)
{
    const AttentionShape *a = &op->u.attention;
    bool fits =
        (a->head_dim == 64 || a->head_dim == 128) && attention_value_dim(a) == a->head_dim;
    bool wide = op->dtype == DTYPE_F32 || op->dtype == DTYPE_TF32;
    return wide || !fits;
}

static double tiles_ns(const Gpu *gpu, const Op *op, double sms)
{
    double flops_per_ns = TILES * gpu_peak_flops_per_ns(gpu, DTYPE_F32);
    return op->flops / (flops_per_ns * (gpu->sms > 0 ? sms / gpu->sms : 1));
}

double attention_ns(const Gpu *gpu, const Op *op, AttentionKernel rows, double sms,
                    double bandwidth)
{
    const AttentionShape *a = &op->u.attention;
    if (rows == ATTENTION_LOCKSTEP && goes_by_tiles(op))
        return tiles_ns(gpu, op, sms);
    double compute = corrected_ns(gpu, op, a, op->flops, rows, sms);
    if (!a->causal && gpu->attention_n > 0) { /* no shorter than a part of it that has rows */
        AttentionShape part = *a;
        part.causal = true;
        double flops = op->flops * causal_part(&part);
        compute = fmax(compute, corrected_ns(gpu, op, &part, flops, rows, sms));
    }
    double moved =
        (double)(op->read_bytes + op->write_bytes) / (bandwidth * gpu->memory_efficiency);
    return fmax(compute, moved);
}

bool attention_is_row(const Gpu *gpu, const Op *op, AttentionKernel rows)
{
    double narrow = gpu_peak_flops_per_ns(gpu, rows_dtype(gpu));
    return !(rows == ATTENTION_LOCKSTEP && goes_by_tiles(op)) &&
           !(gpu_peak_flops_per_ns(gpu, op->dtype) < narrow);
}

double attention_age(const Op *op, AttentionKernel kernel)
{
    if (kernel == ATTENTION_TRITON)
        return op_is_backward(op) ? TRITON_BACKWARD : TRITON_FORWARD;
    return kernel == ATTENTION_FLASH1 ? FLASH1 : 1;
}
