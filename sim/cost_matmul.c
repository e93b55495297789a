/*
 * cost_matmul.c - matmuls: tiles, waves, and what was measured.
 *
 * THE MODEL.  C is cut into tiles that are dealt out to the SMs in waves; small
 * matmuls also cut k in s parts.  A tile of tm x tn runs at
 *
 *     efficiency * (1 + loss * (1/256 + 1/128)) / (1 + loss * (1/tm + 1/tn))
 *
 * of an SM's peak: a small tile reads more operands per flop.  The library picks
 * the best tile, so do we.  x = tiles * s / SMs waves cost between x and ceil(x)
 * (wave_rounding): kernels overlap the end of one wave with the next.  Then
 *
 *     t = fill + max(waves * k/s steps, operands / bandwidth)
 *
 * Matrices of 16 bits whose rows do not begin at multiples of 16 bytes are computed by other
 * kernels, which load 2, 4 or 8 bytes at a time.  Of the above their tiles reach `unaligned` at 2
 * bytes, sqrt 2 times that at 4, twice that at 8.  On H100 and H200 the sixteen rows measured are
 * 0.127 to 0.207 at 2 bytes (0.169 in the geometric mean), 0.245 at 4 and 0.34 at 8.  32 bits have
 * not been measured so, and fp8 must be aligned: nothing is known to slow them.
 *
 * THE TABLE.  Rows of the same type correct the model instead of replacing it: the
 * answer is model(shape) * exp(mean of log(measured / model(row))) over the nearest
 * rows of the nearest few (n, k), each counting by 1 / distance^2 in log2 (m, n, k).
 * So a shape between the measured ones keeps the model's tiles and waves, the model
 * alone counts like a row at the limit, and a measured shape gives its measurement
 * back.  Rows that are not aligned say nothing of shapes that are.
 * (Plain interpolation in log m at equal (n, k) is no better on left-out rows: 3.5 %
 * against 3.7 % in the median on A100, 4.2 against 3.8 on H100; and it has nothing to
 * say elsewhere.)
 */
#include <math.h>

#include "sim/cost_parts.h"

typedef struct Tile {
    uint16_t m, n;
} Tile;

/* What cuBLAS and CUTLASS have kernels for. */
static const Tile tiles[] = {
    { 256, 128 }, { 128, 256 }, { 128, 128 }, { 256, 64 }, { 64, 256 }, { 128, 64 },
    { 64, 128 },  { 64, 64 },   { 32, 128 },  { 32, 64 },  { 16, 128 }, { 16, 64 },
};
enum { SPLIT_MAX = 8, SPLIT_K_MIN = 512 }; /* a part of k shorter than this does not pay */

static const double tile_edges = 1.0 / 256 + 1.0 / 128;

static double tile_ns(const Gpu *gpu, Tile tile, double k, double sm_flops_per_ns)
{
    double edges = 1.0 / tile.m + 1.0 / tile.n;
    double slower =
        (1 + gpu->matmul_tile_loss * edges) / (1 + gpu->matmul_tile_loss * tile_edges);
    return 2.0 * tile.m * tile.n * k / sm_flops_per_ns * slower;
}

static double waves(const Gpu *gpu, double tiles_n, double sms)
{
    double x = tiles_n / sms;
    if (x <= 1)
        return 1;
    return x + gpu->matmul_wave_rounding * (ceil(x) - x);
}

static double best_tiling_ns(const Gpu *gpu, const MatmulShape *s, double sm_flops_per_ns,
                             double sms, double bytes_per_ns)
{
    double best = INFINITY;
    double parts_ns = 8.0 * (double)s->m * (double)s->n * (double)s->batch / bytes_per_ns;
    for (size_t i = 0; i < ARRAY_N(tiles); i++) {
        double count = (double)div_up_u64(s->m, tiles[i].m) *
                       (double)div_up_u64(s->n, tiles[i].n) * (double)s->batch;
        for (uint64_t split = 1; split <= SPLIT_MAX; split *= 2) {
            if (split > 1 && (s->k / split < SPLIT_K_MIN || count * (double)split > 2 * sms))
                break;
            double k = (double)s->k / (double)split;
            double ns = waves(gpu, count * (double)split, sms) *
                        tile_ns(gpu, tiles[i], k, sm_flops_per_ns);
            if (split > 1) /* parts are written in f32 and summed */
                ns += parts_ns * (double)split;
            best = fmin(best, ns);
        }
    }
    return best;
}

/* A * B, C: each once.  (op.read_bytes may differ: an epilogue, an accumulation.) */
static double operand_bytes(const MatmulShape *s, DType dtype)
{
    double m = (double)s->m, n = (double)s->n, k = (double)s->k;
    double each = (double)dtype_bytes(dtype);
    double out = dtype == DTYPE_FP8 ? 2 : each; /* fp8 matmuls write 16 bits */
    return (double)s->batch * (each * (m * k + k * n) + out * m * n);
}

/* What alignment leaves of the rate of the matrix units. */
static double aligned_part(const Gpu *gpu, const MatmulShape *s, DType dtype)
{
    if (dtype != DTYPE_F16 && dtype != DTYPE_BF16)
        return 1;
    uint32_t bytes = gemm_alignment(gemm_layout_of(s), dtype, s->m, s->n, s->k);
    if (bytes == GEMM_ALIGNED)
        return 1;
    return fmin(1, gpu->matmul_unaligned * sqrt(bytes / 2.0));
}

double matmul_on_ns(const Gpu *gpu, const MatmulShape *s, DType dtype, double sms,
                    double bandwidth)
{
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k * (double)s->batch;
    double reached = gpu_peak_flops_per_ns(gpu, dtype) * gpu->matmul_efficiency[dtype] *
                     aligned_part(gpu, s, dtype);
    double moved = operand_bytes(s, dtype) / (bandwidth * gpu->memory_efficiency);
    if (!gpu->quantise)
        return gpu->matmul_fill_ns + fmax(flops / reached, moved);
    double tiled = best_tiling_ns(gpu, s, reached / gpu->sms, sms, bandwidth);
    return gpu->matmul_fill_ns + fmax(tiled, moved);
}

double matmul_model_ns(const Gpu *gpu, const MatmulShape *s, DType dtype)
{
    return matmul_on_ns(gpu, s, dtype, gpu->sms, gpu->memory_bytes_per_ns);
}

/* ---- measured rows ---- */

enum { NEIGHBOURS = 4 };
static const double limit2 =
    4.0; /* squared distance, in doublings, from which rows say nothing */
static const double nearness2 = 0.05; /* rows scatter: two close ones count alike */
static const double layout2 =
    1.0; /* as far as a doubling: NN, NT and TN are different kernels */

typedef struct Neighbour {
    double distance2;
    uint32_t row;
} Neighbour;

/* First row of the group with m >= the shape's. */
static uint32_t first_not_below(const Gpu *gpu, const GemmGroup *g, uint64_t m)
{
    uint32_t low = g->first, high = g->first + g->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (gpu->gemm[mid].m < m)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* What a row is asked for. */
typedef struct Wanted {
    uint64_t m;
    double log_m;
    GemmLayout layout;
    bool aligned;
} Wanted;

/* Distance in m and layout; the group's own comes on top. */
static double row_distance2(const GemmRow *r, const Wanted *w)
{
    double d = r->log_m - w->log_m;
    bool other = r->layout != GEMM_ANY && r->layout != w->layout;
    if (w->aligned != r->aligned)
        return INFINITY;
    return d * d + (other ? layout2 : 0);
}

/* The best of the rows from `from` on, `step` by step, of the first m that has any. */
static void look_along(const Gpu *gpu, const GemmGroup *g, uint32_t from, int step,
                       const Wanted *w, Neighbour *best)
{
    uint64_t m = 0; /* whose rows these are; 0: none so far */
    for (uint32_t i = from; i - g->first < g->count; i += (uint32_t)step) {
        const GemmRow *r = &gpu->gemm[i];
        if (m && r->m != m)
            return;
        double d = row_distance2(r, w);
        m = d < INFINITY ? r->m : m;
        if (d < best->distance2)
            *best = (Neighbour){ d, i };
    }
}

/* The group's best row: look at the rows next to m on both sides, all layouts of them. */
static Neighbour nearest_in(const Gpu *gpu, const GemmGroup *g, const Wanted *w)
{
    Neighbour best = { INFINITY, 0 };
    uint32_t at = first_not_below(gpu, g, w->m);
    look_along(gpu, g, at, 1, w, &best);
    look_along(gpu, g, at - 1, -1, w, &best);
    return best;
}

static void keep_nearest(Neighbour kept[NEIGHBOURS], Neighbour new)
{
    if (new.distance2 >= kept[NEIGHBOURS - 1].distance2)
        return;
    int i = NEIGHBOURS - 1;
    for (; i > 0 && kept[i - 1].distance2 > new.distance2; i--)
        kept[i] = kept[i - 1];
    kept[i] = new;
}

/* log (measured / model) at a row; rows of equal shape and layout count as their mean. */
static double log_ratio(const Gpu *gpu, uint32_t row)
{
    const GemmRow *r = &gpu->gemm[row];
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = row; i < gpu->gemm_n; i++, n++) {
        const GemmRow *o = &gpu->gemm[i];
        if (o->m != r->m || o->n != r->n || o->k != r->k || o->layout != r->layout)
            break;
        sum += log(o->time_ns);
    }
    MatmulShape shape = {
        .m = r->m, .n = r->n, .k = r->k, .batch = 1, .transpose_a = gemm_turns_a(r->layout)
    };
    const Gpu *measured = gpu_of_rows(gpu, GPU_ROWS_GEMM);
    return sum / n - log(matmul_model_ns(measured, &shape, r->dtype));
}

static void find_nearest(const Gpu *gpu, const MatmulShape *s, DType class_,
                         Neighbour kept[NEIGHBOURS])
{
    double log_n = log2((double)s->n), log_k = log2((double)s->k);
    GemmLayout layout = gemm_layout_of(s);
    Wanted w = { s->m, log2((double)s->m), layout,
                 gemm_alignment(layout, class_, s->m, s->n, s->k) == GEMM_ALIGNED };
    for (int i = 0; i < NEIGHBOURS; i++)
        kept[i] = (Neighbour){ limit2, 0 };
    for (uint32_t i = 0; i < gpu->gemm_groups_n; i++) {
        const GemmGroup *g = &gpu->gemm_groups[i];
        double dn = g->log_n - log_n, dk = g->log_k - log_k, d2 = dn * dn + dk * dk;
        if (g->dtype != class_ || d2 >= kept[NEIGHBOURS - 1].distance2)
            continue;
        Neighbour best = nearest_in(gpu, g, &w);
        best.distance2 += d2;
        keep_nearest(kept, best);
    }
}

bool matmul_table_ns(const Gpu *gpu, const MatmulShape *s, DType dtype, double *ns)
{
    if (gpu->gemm_n == 0 || s->batch != 1)
        return false;
    Neighbour kept[NEIGHBOURS];
    find_nearest(gpu, s, dtype == DTYPE_BF16 ? DTYPE_F16 : dtype, kept);
    if (kept[0].distance2 >= limit2)
        return false;
    double weight = 1 / limit2, sum = 0; /* of the model itself, whose log ratio is 0 */
    for (int i = 0; i < NEIGHBOURS && kept[i].distance2 < limit2; i++) {
        double ratio = log_ratio(gpu, kept[i].row);
        if (kept[i].distance2 == 0) {
            sum = ratio;
            weight = 1;
            break;
        }
        double w = 1 / (kept[i].distance2 + nearness2);
        sum += w * ratio;
        weight += w;
    }
    *ns = matmul_model_ns(gpu, s, dtype) * exp(sum / weight);
    return true;
}
