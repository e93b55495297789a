/*
 * lower_chain.c - norms, rotations and gelu_new that are written as PyTorch ops: a kernel for each.
 *
 *     y = x32 * rsqrt(mean(x32^2) + eps) -> type of x -> * gain
 *
 *     forward    cast, square, mean, add, rsqrt, times, cast, gain
 *     backward   dy * gain, dy * normed, sum; cast, times r, times x32, sum, three on a number
 *                per row, times x32, sum of two, cast
 *
 * (Llama's RMSNorm in Hugging Face and torch.nn.RMSNorm before 2.9, which is a
 * composite of the same ops; autograd differentiates each.)  The rotation is
 * cast to f32, complex product, cast back, for q and for k (torchtitan's and
 * Meta's apply_rotary_emb).
 *
 * Where x is f32 already nothing is cast: dy x stats [normed gain] come in this order then.
 *
 *     y = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
 *
 *     forward    half x, x^3, times, x +, times, tanh, 1 +, product
 *     backward   dy * factor, dy * half, tanh's, times, times, x^2, times, product, half; two sums
 *
 * (NewGELUActivation of Hugging Face's activations.py.)  torch.autocast runs pow in f32: x is cast
 * and all from there is f32 but for half x; the product is cast for the matmul, and backward the
 * three gradients of x each to its format.
 *
 * training.compile fuses the chains: then the op stays one kernel.
 */
#include "sim/lower_parts.h"

/* One elementwise kernel: reads, then a result. */
static void elementwise(Lowering *l, const Whole *w, OpKind kind, KernelArg a,
                        const KernelArg *second, KernelArg y, uint64_t elements)
{
    Op *op = part_begin(l, w, kind, FN_NONE);
    op->dtype = part_dtype(l, y);
    op->u.elements = elements;
    part_bytes_arg(l, a, ARG_READ, elements * dtype_bytes(part_dtype(l, a)));
    if (second) {
        uint64_t all = lower_bytes(l, *second);
        uint64_t bytes = elements * dtype_bytes(part_dtype(l, *second));
        part_bytes_arg(l, *second, ARG_READ,
                       min_u64(all, bytes)); /* a row or a gain may be small */
    }
    uint64_t result = elements * dtype_bytes(part_dtype(l, y));
    part_bytes_arg(l, y, y.mode == ARG_UPDATE ? ARG_UPDATE : ARG_WRITE,
                   min_u64(lower_bytes(l, y), result));
}

/* A number per row (or vector), in place: eps, rsqrt and their derivatives. */
static void on_rows(Lowering *l, const Whole *w, KernelArg r, uint32_t kernels)
{
    for (uint32_t i = 0; i < kernels; i++) {
        Op *op = part_begin(l, w, OP_SCALE, FN_NONE);
        op->dtype = DTYPE_F32;
        op->u.elements = lower_bytes(l, r) / dtype_bytes(DTYPE_F32);
        part_arg(l, r, ARG_UPDATE);
    }
}

/* Sum over rows or columns; what it makes is small. */
static void reduce(Lowering *l, const Whole *w, KernelArg x, KernelArg y)
{
    Op *op = part_begin(l, w, OP_NORM, w->op.fn);
    op->u.rows = w->op.u.rows;
    part_arg(l, x, ARG_READ);
    part_arg(l, y, y.mode);
}

/* x [gain ...] -> y stats x32 [normed] */
void chain_norm_forward(Lowering *l, const Whole *w, uint32_t gains)
{
    const KernelArg *out = w->args + 1 + gains;
    KernelArg x = w->args[0], y = out[0], r = out[1];
    bool wide = part_dtype(l, x) == DTYPE_F32;
    KernelArg x32 = wide ? x : out[2], normed = gains ? out[wide ? 2 : 3] : y;
    uint64_t n = lower_bytes(l, y) / dtype_bytes(part_dtype(l, y)); /* x may have v beside */
    KernelArg square = part_temp(l, "squares", y, DTYPE_F32);
    if (!wide)
        elementwise(l, w, OP_CAST, x, NULL, x32, n);
    elementwise(l, w, OP_SCALE, x32, NULL, square, n);
    reduce(l, w, square, r);
    on_rows(l, w, r, 2);
    KernelArg product = wide ? normed : part_temp(l, "normed in f32", y, DTYPE_F32);
    elementwise(l, w, OP_SCALE, x32, &r, product, n);
    if (!wide)
        elementwise(l, w, OP_CAST, product, NULL, normed, n);
    for (uint32_t i = 0; i < gains; i++) /* q and k have one each, for their columns */
        elementwise(l, w, OP_SCALE, normed, &w->args[1 + i], y, n / gains);
}

/* dy stats x32 [normed gain ...] -> dx [dgain ...], or dy x stats ...; returns the gradient of
 * normed */
static KernelArg gain_backward(Lowering *l, const Whole *w, uint32_t gains, uint64_t n)
{
    KernelArg dy = w->args[0], normed = w->args[3];
    KernelArg dnormed = part_temp(l, "normed gradient", normed, part_dtype(l, normed));
    KernelArg products = part_temp(l, "gain products", normed, part_dtype(l, normed));
    for (uint32_t i = 0; i < gains; i++) {
        KernelArg gain = w->args[4], dgain = w->args[w->args_n - gains + i];
        elementwise(l, w, OP_SCALE, dy, &gain, dnormed, n / gains);
        elementwise(l, w, OP_SCALE, dy, &normed, products, n / gains);
        reduce(l, w, products, dgain);
    }
    return dnormed;
}

void chain_norm_backward(Lowering *l, const Whole *w, uint32_t gains)
{
    KernelArg dx = w->args[w->args_n - gains - 1];
    bool wide = part_dtype(l, dx) == DTYPE_F32;
    KernelArg r = w->args[wide ? 2 : 1], x32 = w->args[wide ? 1 : 2];
    KernelArg dy = w->args[0];
    uint64_t n = lower_bytes(l, dy) / dtype_bytes(part_dtype(l, dy));
    KernelArg dnormed = gains ? gain_backward(l, w, gains, n) : dy;
    KernelArg d32 = wide ? dnormed : part_temp(l, "normed gradient in f32", dy, DTYPE_F32);
    KernelArg direct = wide ? dx : part_temp(l, "direct gradient", dy, DTYPE_F32);
    KernelArg products = part_temp(l, "mean products", dy, DTYPE_F32);
    KernelArg dr = part_temp(l, "row gradient", r, DTYPE_F32);
    if (!wide)
        elementwise(l, w, OP_CAST, dnormed, NULL, d32, n);
    elementwise(l, w, OP_SCALE, d32, &r, direct, n);
    elementwise(l, w, OP_SCALE, d32, &x32, products, n);
    reduce(l, w, products, dr);
    on_rows(l, w, dr, 3);
    KernelArg through = part_temp(l, "gradient through the mean", dy, DTYPE_F32);
    elementwise(l, w, OP_SCALE, x32, &dr, through, n);
    direct.mode = ARG_UPDATE;
    elementwise(l, w, OP_ADD, through, NULL, direct, n);
    if (!wide)
        elementwise(l, w, OP_CAST, direct, NULL, dx, n);
}

static void rotate(Lowering *l, const Whole *w, KernelArg x, uint64_t elements)
{
    KernelArg to = x;
    to.mode = ARG_WRITE;
    if (part_dtype(l, x) == DTYPE_F32) {
        elementwise(l, w, OP_ROPE, x, NULL, to, elements);
        return;
    }
    KernelArg wide = lower_temp(l, "f32 heads", DTYPE_F32, 1, elements);
    KernelArg turned = lower_temp(l, "rotated heads", DTYPE_F32, 1, elements);
    elementwise(l, w, OP_CAST, x, NULL, wide, elements);
    elementwise(l, w, OP_ROPE, wide, NULL, turned, elements);
    elementwise(l, w, OP_CAST, turned, NULL, to, elements);
}

/* The part of q, or of the one key, that turns; what turned of q is put beside what did not. */
static void chain_latent_rope(Lowering *l, const Whole *w, KernelArg x, uint64_t elements)
{
    uint64_t all = lower_bytes(l, x) / dtype_bytes(part_dtype(l, x));
    rotate(l, w, x, elements);
    if (elements == all)
        return;
    KernelArg to = x;
    to.mode = ARG_WRITE;
    elementwise(l, w, OP_COPY, x, NULL, to, all);
}

/* qkv* or qk*: q in its heads, k in its own. */
void chain_rope(Lowering *l, const Whole *w)
{
    const Transformer *m = &l->b->s->model.u.transformer;
    KernelArg x = w->args[0];
    uint64_t elements = w->op.write_bytes / dtype_bytes(part_dtype(l, x));
    if (m->kv_rank > 0) {
        chain_latent_rope(l, w, x, elements);
        return;
    }
    uint64_t row = elements / w->op.u.rows.rows;
    uint64_t q = (uint64_t)m->heads / l->b->s->parallel.tp * m->head_dim;
    rotate(l, w, x, q * w->op.u.rows.rows);
    rotate(l, w, x, (row - q) * w->op.u.rows.rows);
}

/* A new value of the shape of `like`, from one that is read, or two. */
static KernelArg made(Lowering *l, const Whole *w, OpKind kind, const char *name, KernelArg a,
                      const KernelArg *b, DType dtype)
{
    KernelArg y = part_temp(l, name, a, dtype);
    elementwise(l, w, kind, a, b, y, lower_bytes(l, a) / dtype_bytes(part_dtype(l, a)));
    return y;
}

/* x -> y [x32] tanh factor half */
void chain_gelu_forward(Lowering *l, const Whole *w)
{
    const KernelArg *kept = w->args + w->args_n - 3;
    KernelArg x = w->args[0], y = w->args[1], from = x;
    DType wide = part_dtype(l, kept[0]);
    uint64_t n = lower_bytes(l, x) / dtype_bytes(part_dtype(l, x));
    elementwise(l, w, OP_SCALE, x, NULL, kept[2], n);
    if (w->args_n > 5) {
        from = w->args[2];
        elementwise(l, w, OP_CAST, x, NULL, from, n);
    }
    KernelArg cube = made(l, w, OP_SCALE, "gelu cube", from, NULL, wide);
    KernelArg part = made(l, w, OP_SCALE, "gelu cubic part", cube, NULL, wide);
    KernelArg sum = made(l, w, OP_ADD, "gelu sum", part, &x, wide);
    KernelArg angle = made(l, w, OP_SCALE, "gelu angle", sum, NULL, wide);
    elementwise(l, w, OP_SCALE, angle, NULL, kept[0], n);
    elementwise(l, w, OP_SCALE, kept[0], NULL, kept[1], n);
    bool casts = part_dtype(l, y) != wide;
    KernelArg product = casts ? part_temp(l, "gelu in f32", y, wide) : y;
    elementwise(l, w, OP_SCALE, kept[1], &kept[2], product, n);
    if (casts)
        elementwise(l, w, OP_CAST, product, NULL, y, n);
}

/* In the format of x, where it was made in another. */
static KernelArg narrowed(Lowering *l, const Whole *w, KernelArg a, KernelArg x)
{
    DType to = part_dtype(l, x);
    return part_dtype(l, a) == to ? a : made(l, w, OP_CAST, "gelu gradient", a, NULL, to);
}

/* dy x|x32 tanh factor half -> dx */
void chain_gelu_backward(Lowering *l, const Whole *w)
{
    KernelArg dy = w->args[0], x = w->args[1], th = w->args[2], factor = w->args[3],
              half = w->args[4], dx = w->args[5];
    DType wide = part_dtype(l, th);
    if (part_dtype(l, dy) != wide)
        dy = made(l, w, OP_CAST, "gelu gradient in f32", dy, NULL, wide);
    KernelArg dhalf = made(l, w, OP_SCALE, "gelu gradient", dy, &factor, wide);
    dhalf = narrowed(l, w, dhalf, dx);
    KernelArg dtanh = made(l, w, OP_SCALE, "gelu gradient", dy, &half, wide);
    KernelArg dangle = made(l, w, OP_SCALE, "gelu gradient", dtanh, &th, wide);
    KernelArg dsum = made(l, w, OP_SCALE, "gelu gradient", dangle, NULL, wide);
    KernelArg dcube = made(l, w, OP_SCALE, "gelu gradient", dsum, NULL, wide);
    KernelArg square = made(l, w, OP_SCALE, "gelu square", x, NULL, wide);
    KernelArg thrice = made(l, w, OP_SCALE, "gelu square", square, NULL, wide);
    KernelArg dpow = made(l, w, OP_SCALE, "gelu gradient", thrice, &dcube, wide);
    dpow = narrowed(l, w, dpow, dx);
    dsum = narrowed(l, w, dsum, dx);
    KernelArg direct = made(l, w, OP_SCALE, "gelu gradient", dhalf, NULL, part_dtype(l, dx));
    KernelArg two = made(l, w, OP_ADD, "gelu gradient", direct, &dsum, part_dtype(l, dx));
    elementwise(l, w, OP_ADD, two, &dpow, dx,
                lower_bytes(l, dx) / dtype_bytes(part_dtype(l, dx)));
}
