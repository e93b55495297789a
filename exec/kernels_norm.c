/*
 * kernels_norm.c - layer norm, RMS norm and batch norm, with the sums before and after.
 *
 *     xhat = (x - mean) r              r = 1/sqrt(variance + eps)      RMS: mean 0, and the
 *     y = gain xhat + shift                                            mean square for variance
 *     dx = r (g - mean(g) - xhat mean(g xhat))      g = dy gain;  RMS: without mean(g)
 *     dgain = sum over rows of dy xhat              dshift = sum over rows of dy
 *
 * A row holds `vectors` that are normed each by itself: one, or (q and k) a head's each, the
 * first ones with the gain of q.  Batch norm is the same over columns instead of rows.
 */
#include "exec/kernel_parts.h"

#include <math.h>

typedef struct Shape {
    uint64_t rows, vectors, width, first_vectors; /* first_vectors: of q */
    uint64_t stats;                               /* numbers of a vector: 2, RMS 1 */
    uint64_t columns;                             /* of y: vectors x width */
    double eps;
} Shape;

static bool is_rms(OpFn fn)
{
    return fn == FN_RMSNORM || fn == FN_ADD_RMSNORM;
}

static bool adds(OpFn fn)
{
    return fn == FN_ADD_LAYERNORM || fn == FN_ADD_RMSNORM;
}

static Shape shape_of(const KernelEnv *env, const Op *op, const Buffer *stats)
{
    uint64_t each = is_rms(op->fn) ? 1 : 2, rows = op->u.rows.rows;
    uint64_t vectors = stats->elements / (rows * each);
    return (Shape){ rows,
                    vectors,
                    op->u.rows.columns / vectors,
                    vectors == 1 ? 1 : env->facts.heads,
                    each,
                    op->u.rows.columns,
                    env->facts.norm_eps };
}

/* ---- one vector ---- */

typedef struct Stats {
    float mean, r;
} Stats;

static Stats measure(const Shape *s, const float *x)
{
    double n = (double)s->width, mean = s->stats == 2 ? row_sum(x, s->width) / n : 0;
    double variance = row_squares(x, mean, s->width) / n;
    return (Stats){ (float)mean, (float)(1 / sqrt(variance + s->eps)) };
}

static Stats load(const Shape *s, const float *stats, uint64_t vector)
{
    const float *at = stats + vector * s->stats;
    return s->stats == 2 ? (Stats){ at[0], at[1] } : (Stats){ 0, at[0] };
}

static void store(const Shape *s, float *stats, uint64_t vector, Stats v)
{
    float *at = stats + vector * s->stats;
    at[0] = s->stats == 2 ? v.mean : v.r;
    at[s->stats - 1] = v.r;
}

static void norm_vector(const Shape *s, const float *x, Stats v, const float *gain,
                        const float *shift, float *y)
{
    for (uint64_t i = 0; i < s->width; i++) {
        float h = (x[i] - v.mean) * v.r;
        h = gain ? h * gain[i] : h;
        y[i] = shift ? h + shift[i] : h;
    }
}

/* Adds this vector's part to dgain and dshift; h: xhat. */
static void gain_gradient(const float *restrict dy, const float *restrict h,
                          double *restrict dgain, double *restrict dshift, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        dgain[i] += (double)dy[i] * (double)h[i];
    for (uint64_t i = 0; i < n; i++)
        dshift[i] += (double)dy[i];
}

/* g: dy gain, the vector's; h: xhat */
static void norm_vector_back(const Shape *s, const float *g, const float *h, float r,
                             const float *ds, float *dx)
{
    double n = (double)s->width;
    float mean = s->stats == 2 ? (float)(row_sum(g, s->width) / n) : 0;
    float along = (float)(row_dot(g, h, s->width) / n);
    for (uint64_t i = 0; i < s->width; i++) {
        float d = r * (g[i] - mean - h[i] * along);
        dx[i] = ds ? d + ds[i] : d;
    }
}

/* ---- gains: gain and shift, for q and k a pair each ---- */

typedef struct Gains {
    const float *gain[2], *shift[2]; /* of q (or all), of k */
} Gains;

bool is_bias_row(const Program *p, const Buffer *b)
{
    const char *name = program_text(p, b->name), *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".bias") == 0;
}

/* Arguments [i, end): gain [shift], or those of q and then of k. */
static Gains gains_at(const Call *c, const Shape *s, uint32_t i, uint32_t end)
{
    Gains g = { 0 };
    bool shifts = s->vectors > 1 ? end - i == 4 : end - i == 2;
    if (i < end) {
        g.gain[0] = g.gain[1] = c->x[i];
        g.shift[0] = g.shift[1] = shifts ? c->x[i + 1] : NULL;
    }
    uint32_t k = i + (shifts ? 2 : 1);
    if (s->vectors > 1 && k < end) {
        g.gain[1] = c->x[k];
        g.shift[1] = shifts ? c->x[k + 1] : NULL;
    }
    return g;
}

/* ---- forward ---- */

/* s = x + r [+ b], rounded as it is stored; in place where r is a row of scratch. */
static void add_row(const Call *c, const float *x, const float *r, const float *b, float *sum,
                    uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] = x[i] + (b ? r[i] + b[i] : r[i]);
    round_to(c->b[0].dtype, sum, n);
}

/* x [gain [shift]] -> y stats;  add: x r [b] [gain [shift]] -> [s] y stats */
static void forward(Call *c)
{
    Shape s = shape_of(c->env, c->op, &c->b[c->n - 1]);
    bool add = adds(c->op->fn);
    uint32_t reads = call_reads(c->b, c->n), at = add ? 2 : 1;
    bool biased = add && at < reads && is_bias_row(c->p, &c->b[at]);
    const float *bias = biased ? c->x[at++] : NULL;
    Gains g = gains_at(c, &s, at, reads);
    float *kept = c->n - reads == 3 ? c->x[reads] : NULL;
    float *y = c->x[c->n - 2], *stats = c->x[c->n - 1];
    uint64_t stride = c->b[0].elements / s.rows;
    for (uint64_t r = 0; r < s.rows; r++) {
        const float *x = c->x[0] + r * stride;
        if (add) {
            float *sum = kept ? kept + r * s.columns : c->extra;
            add_row(c, x, c->x[1] + r * s.columns, bias, sum, s.columns);
            x = sum;
        }
        for (uint64_t i = 0; i < s.vectors; i++) {
            uint32_t kind = i >= s.first_vectors;
            Stats v = measure(&s, x + i * s.width);
            store(&s, stats, r * s.vectors + i, v);
            norm_vector(&s, x + i * s.width, v, g.gain[kind], g.shift[kind],
                        y + r * s.columns + i * s.width);
        }
    }
}

/* ---- backward ---- */

const Buffer *gain_of_k(const Program *p, const Task *t, const Buffer *q, uint32_t after)
{
    for (uint32_t i = t->args_first; i-- > 0;) {
        const Buffer *b = &p->args[i];
        if (b->slot == q->slot && b->frame == q->frame && b->tensor == q->tensor + after)
            return b;
    }
    return NULL;
}

typedef struct Back {
    Shape s;
    Gains gains;
    const float *dy, *x, *stats, *ds;
    float *dx;
    uint64_t x_stride, dx_stride;
    double *sums; /* dgain, dshift: of q, of k */
    float *g, *h; /* of a vector: dy gain, xhat */
} Back;

static void back_row(const Back *b, uint64_t r)
{
    const Shape *s = &b->s;
    for (uint64_t i = 0; i < s->vectors; i++) {
        uint32_t kind = i >= s->first_vectors;
        uint64_t at = i * s->width;
        const float *dy = b->dy + r * s->columns + at, *x = b->x + r * b->x_stride + at;
        const float *gain = b->gains.gain[kind];
        double *sums = b->sums + kind * 2 * s->width;
        Stats v = load(s, b->stats, r * s->vectors + i);
        for (uint64_t k = 0; k < s->width; k++)
            b->h[k] = (x[k] - v.mean) * v.r;
        for (uint64_t k = 0; gain && k < s->width; k++)
            b->g[k] = dy[k] * gain[k];
        gain_gradient(dy, b->h, sums, sums + s->width, s->width);
        norm_vector_back(s, gain ? b->g : dy, b->h, v.r,
                         b->ds ? b->ds + r * s->columns + at : NULL,
                         b->dx + r * b->dx_stride + at);
    }
}

/* dgain [dshift], or those of q and then of k. */
static void put_gains(const Call *c, const Back *b, uint32_t first)
{
    uint32_t n = c->n - first, each = b->s.vectors > 1 ? n / 2 : n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kind = i / each, what = i % each;
        put_sums(c->x[first + i], b->sums + (kind * 2 + what) * b->s.width, b->s.width,
                 c->b[first + i].mode);
    }
}

/* Three vectors behind the sums: gain of k, g, h. */
static float *rows_of_scratch(const Call *c, const Shape *s)
{
    return (float *)((double *)c->extra + 4 * s->width);
}

/* Widened gain of k behind the sums in scratch. */
static const float *load_gain_of_k(const Call *c, const Shape *s, uint32_t results)
{
    const Buffer *b = gain_of_k(c->p, c->t, &c->b[3], (c->n - results) / 2);
    ASSERT(b); /* forward came before */
    float *temp = rows_of_scratch(c, s);
    numbers_widen(b->dtype, buffer_data(c->env, b), s->width, temp);
    return temp;
}

/* dy x stats [gain [gain of k]] [ds] -> dx [dgain [dshift]] */
static void backward(Call *c)
{
    Back b = { .s = shape_of(c->env, c->op, &c->b[2]) };
    Shape *s = &b.s;
    uint32_t reads = call_reads(c->b, c->n), gains = reads - 3 - adds(c->op->fn);
    b.dy = c->x[0], b.x = c->x[1], b.stats = c->x[2];
    b.ds = adds(c->op->fn) ? c->x[reads - 1] : NULL;
    b.dx = c->x[reads];
    b.x_stride = c->b[1].elements / s->rows;
    b.dx_stride = c->b[reads].elements / s->rows;
    b.sums = c->extra;
    memset(b.sums, 0, 4 * s->width * sizeof *b.sums);
    b.g = rows_of_scratch(c, s) + s->width, b.h = b.g + s->width;
    b.gains.gain[0] = gains ? c->x[3] : NULL;
    b.gains.gain[1] = gains > 1 ? c->x[4] : NULL;
    if (gains == 1 && s->vectors > 1)
        b.gains.gain[1] = load_gain_of_k(c, s, reads + 1);
    for (uint64_t r = 0; r < s->rows; r++)
        back_row(&b, r);
    if (c->n > reads + 1)
        put_gains(c, &b, reads + 1);
}

void kernel_norm(KernelEnv *env, const Program *p, const Task *t)
{
    uint64_t width = t->op->u.rows.columns;
    uint64_t extra = 4 * width * sizeof(double) + 3 * width * sizeof(float);
    CallWrites writes = op_is_forward(t->op) ? CALL_WHOLLY : CALL_PARTLY;
    Call c = call_open(env, p, t, writes, extra);
    if (op_is_forward(t->op))
        forward(&c);
    else
        backward(&c);
    call_close(&c);
}

/* ---- batch norm ---- */

static const double batchnorm_eps = 1e-5; /* torch.nn.BatchNorm1d */

/* Means and variances of the columns; sums: scratch, 2 columns. */
static void measure_columns(const float *x, uint64_t rows, uint64_t columns, double *sums,
                            float *means, float *variances)
{
    double *squares = sums + columns, n = (double)rows;
    memset(sums, 0, 2 * columns * sizeof *sums);
    sum_rows(sums, x, rows, columns);
    for (uint64_t c = 0; c < columns; c++)
        sums[c] /= n;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++) {
            double d = (double)x[r * columns + c] - sums[c];
            squares[c] += d * d;
        }
    for (uint64_t c = 0; c < columns; c++) {
        means[c] = (float)sums[c];
        variances[c] = (float)(squares[c] / n);
    }
}

static void invert(float *variances, uint64_t columns)
{
    for (uint64_t c = 0; c < columns; c++)
        variances[c] = (float)(1 / sqrt((double)variances[c] + batchnorm_eps));
}

/* Means and variances of all ranks' samples; ranks have equally many. */
static void combine(const float *all, uint64_t ranks, uint64_t columns, float *stats)
{
    uint64_t stride = 2 * columns + 1;
    for (uint64_t c = 0; c < columns; c++) {
        double mean = 0, variance = 0, n = (double)ranks;
        for (uint64_t i = 0; i < ranks; i++)
            mean += (double)all[i * stride + c] / n;
        for (uint64_t i = 0; i < ranks; i++) {
            double d = (double)all[i * stride + c] - mean;
            variance += ((double)all[i * stride + columns + c] + d * d) / n;
        }
        stats[c] = (float)mean;
        stats[columns + c] = (float)variance;
    }
}

static void norm_columns(const float *x, const float *stats, const float *gain,
                         const float *shift, float *y, uint64_t rows, uint64_t columns)
{
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++) {
            uint64_t i = r * columns + c;
            y[i] = (x[i] - stats[c]) * stats[columns + c] * gain[c] + shift[c];
        }
}

/* x gain shift -> y stats;  x -> stats and the number of rows;  x gain shift all -> y stats */
static void batch_forward(Call *c)
{
    uint64_t rows = c->op->u.rows.rows, columns = c->op->u.rows.columns;
    float *stats = c->x[c->n - 1];
    if (c->n == 6)
        combine(c->x[3], c->b[3].elements / (2 * columns + 1), columns, stats);
    else
        measure_columns(c->x[0], rows, columns, c->extra, stats, stats + columns);
    if (c->n == 2) {
        if (c->b[1].elements > 2 * columns)
            stats[2 * columns] = (float)rows;
        return;
    }
    invert(stats + columns, columns);
    norm_columns(c->x[0], stats, c->x[1], c->x[2], c->x[c->n - 2], rows, columns);
}

/* Sums over this rank's samples of dy xhat, and of dy. */
static void batch_sums(const Call *c, double *along, double *sum)
{
    uint64_t rows = c->op->u.rows.rows, columns = c->op->u.rows.columns;
    const float *dy = c->x[0], *x = c->x[1], *stats = c->x[2];
    memset(along, 0, columns * sizeof *along);
    memset(sum, 0, columns * sizeof *sum);
    sum_rows(sum, dy, rows, columns);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t k = 0; k < columns; k++) {
            uint64_t i = r * columns + k;
            along[k] += (double)dy[i] * (double)((x[i] - stats[k]) * stats[columns + k]);
        }
}

/* sums: of dy xhat, then of dy, over n samples. */
static void batch_dx(const Call *c, const float *sums, double n, float *dx)
{
    uint64_t rows = c->op->u.rows.rows, columns = c->op->u.rows.columns;
    const float *dy = c->x[0], *x = c->x[1], *stats = c->x[2], *gain = c->x[3];
    float by = (float)(1 / n);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t k = 0; k < columns; k++) {
            uint64_t i = r * columns + k;
            float h = (x[i] - stats[k]) * stats[columns + k];
            float g = dy[i] - sums[columns + k] * by - h * sums[k] * by;
            dx[i] = gain[k] * stats[columns + k] * g;
        }
}

/* dy x stats gain -> dx dgain dshift;  dy x stats -> dgain dshift sums;
 * dy x stats gain sums -> dx */
static void batch_backward(Call *c)
{
    uint64_t columns = c->op->u.rows.columns, samples = c->op->u.rows.rows;
    uint32_t reads = call_reads(c->b, c->n);
    double *along = c->extra, *sum = along + columns;
    float *sums = (float *)(sum + columns);
    if (reads == 5) {
        uint64_t ranks = max_u64(1, c->env->facts.batchnorm_ranks);
        batch_dx(c, c->x[4], (double)(samples * ranks), c->x[5]);
        return;
    }
    uint32_t gains = reads == 4 ? 5 : 3;
    batch_sums(c, along, sum);
    put_sums(c->x[gains], along, columns, c->b[gains].mode);
    put_sums(c->x[gains + 1], sum, columns, c->b[gains + 1].mode);
    sums = reads == 4 ? sums : c->x[5];
    put_sums(sums, along, 2 * columns, ARG_WRITE);
    if (reads == 4)
        batch_dx(c, sums, (double)samples, c->x[4]);
}

void kernel_batchnorm(KernelEnv *env, const Program *p, const Task *t)
{
    uint64_t columns = t->op->u.rows.columns;
    uint64_t extra = 2 * columns * (sizeof(double) + sizeof(float));
    Call c = call_open(env, p, t, CALL_WHOLLY, extra);
    if (op_is_forward(t->op))
        batch_forward(&c);
    else
        batch_backward(&c);
    call_close(&c);
}
