/*
 * backend_cuda_matmul.c - matmuls, linear and of attention, as products of exec/cuda_gemm.h.
 *
 *     forward   y  = x w^T (+ b, activated)      w stored [outputs, inputs]
 *     dgrad     dx = dy w
 *     wgrad     dw (+)= dy^T x,  db (+)= sums over rows of dy
 *
 * What an epilogue can do is done by one; the rest has a kernel behind the product: an erf
 * GELU (cuBLASLt's is the one with tanh), a ReLU whose input is kept as well, a bias gradient
 * that is added to.  Operands in another format than the product's are cast first, as the CPU
 * does; so is a result that the product cannot write.
 */
#include "exec/backend_cuda_parts.h"

static const Vec none = { NULL, NUM_F32 };

bool multiply(CudaEnv *env, const Product *x)
{
    if (!env->planning && !env->failed && x->m && x->n)
        env->failed = !cuda_gemm(env->gemm, x, env->stream, env->err);
    return !env->failed;
}

/* ---- operands and results in other formats ---- */

static Vec cast_scratch(CudaEnv *env, NumType type, uint64_t n)
{
    return (Vec){ scratch(env, n * (type == NUM_F32 ? 4 : 2)), type };
}

/* Argument i as the product reads it. */
static Vec operand(CudaEnv *env, const Program *p, const Task *t, uint32_t i)
{
    const Buffer *b = &task_args(p, t)[i];
    Vec x = vec_of(env, b);
    NumType type = num_type(t->op->dtype);
    if (x.type == type)
        return x;
    Vec y = cast_scratch(env, type, b->elements);
    GO(env, cuda_cast(x, y, b->elements, env->stream));
    return y;
}

/* Can a product of such numbers write these? */
static bool writes(NumType product, NumType result)
{
    return result == NUM_F32 || result == product;
}

/* Runs the product into b, by way of f32 where it cannot write b. */
static void multiply_into(CudaEnv *env, Product *x, const Buffer *b)
{
    Vec to = vec_of(env, b);
    x->c.v = writes(x->a.v.type, to.type) ? to : cast_scratch(env, NUM_F32, b->elements);
    bool apart = x->c.v.at != to.at;
    if (apart && x->beta != 0)
        GO(env, cuda_cast(to, x->c.v, b->elements, env->stream));
    if (multiply(env, x) && apart)
        GO(env, cuda_cast(x->c.v, to, b->elements, env->stream));
}

/* ---- linear layers ---- */

/* With its epilogue, or (false) as a plain product: the rest is up to others. */
static bool fuses(CudaEnv *env, const Product *x)
{
    return !env->planning && cuda_gemm_can(env->gemm, x);
}

static GemmEpilogue epilogue_of(const CudaEnv *env, OpFn act, bool keeps)
{
    if (act == FN_GELU && env->facts.gelu_tanh)
        return GEMM_GELU_TANH;
    return act == FN_RELU && !keeps ? GEMM_RELU : GEMM_PLAIN;
}

/* x w [b] -> [pre] y */
static void forward(CudaEnv *env, const Program *p, const Task *t)
{
    const MatmulShape *s = &t->op->u.matmul;
    const Buffer *b = task_args(p, t);
    uint32_t reads = call_reads(b, t->args_n), last = t->args_n - 1;
    OpFn act = activation_of(t->op->fn);
    const Buffer *pre = &b[reads], *y = &b[last];
    Vec bias = reads == 3 ? vec_of(env, &b[2]) : none;
    Product x = { .m = s->m,
                  .n = s->n,
                  .k = s->k,
                  .batch = 1,
                  .turn_b = true,
                  .tf32 = t->op->dtype == DTYPE_TF32,
                  .a = { operand(env, p, t, 0), s->k, 0 },
                  .b = { operand(env, p, t, 1), s->k, 0 },
                  .c = { vec_of(env, y), s->n, 0 },
                  .alpha = 1 };
    Product whole = x;
    whole.bias = bias;
    whole.epilogue = epilogue_of(env, act, pre != y);
    whole.before = whole.epilogue == GEMM_GELU_TANH && pre != y ? vec_of(env, pre) : none;
    bool activates = act == FN_NONE || whole.epilogue != GEMM_PLAIN;
    if (activates && (bias.at || act != FN_NONE) && fuses(env, &whole)) {
        multiply(env, &whole);
        return;
    }
    x.bias = bias;
    x.c.v = vec_of(env, pre);
    bool biased = bias.at && fuses(env, &x);
    x.bias = biased ? bias : none;
    multiply_into(env, &x, pre);
    if (bias.at && !biased)
        GO(env, cuda_bias(vec_of(env, pre), bias, s->m, s->n, env->stream));
    Activation a = { .rows = 1, .columns = s->m * s->n };
    if (act == FN_NONE)
        return;
    a.curve = curve_of(env, act);
    GO(env, cuda_activation(a, vec_of(env, pre), none, vec_of(env, y), env->stream));
}

/* dy w -> dx */
static void dgrad(CudaEnv *env, const Program *p, const Task *t)
{
    const MatmulShape *s = &t->op->u.matmul;
    Product x = { .m = s->m,
                  .n = s->n,
                  .k = s->k,
                  .batch = 1,
                  .tf32 = t->op->dtype == DTYPE_TF32,
                  .a = { operand(env, p, t, 0), s->k, 0 },
                  .b = { operand(env, p, t, 1), s->n, 0 },
                  .c = { none, s->n, 0 },
                  .alpha = 1 };
    multiply_into(env, &x, &task_args(p, t)[2]);
}

/* dy x -> dw [db] */
static void wgrad(CudaEnv *env, const Program *p, const Task *t)
{
    const MatmulShape *s = &t->op->u.matmul;
    const Buffer *b = task_args(p, t), *db = t->args_n > 3 ? &b[3] : NULL;
    Product x = { .m = s->m,
                  .n = s->n,
                  .k = s->k,
                  .batch = 1,
                  .turn_a = true,
                  .tf32 = t->op->dtype == DTYPE_TF32,
                  .a = { operand(env, p, t, 0), s->m, 0 },
                  .b = { operand(env, p, t, 1), s->n, 0 },
                  .c = { vec_of(env, &b[2]), s->n, 0 },
                  .alpha = 1,
                  .beta = b[2].mode == ARG_UPDATE ? 1 : 0 };
    float *sums = scratch(env, db ? cuda_sums_scratch(s->k, s->m) * sizeof(float) : 0);
    if (db && db->mode != ARG_UPDATE) {
        x.sums = vec_of(env, db);
        if (fuses(env, &x)) {
            multiply(env, &x);
            return;
        }
        x.sums = none;
    }
    multiply_into(env, &x, &b[2]);
    if (db)
        GO(env, cuda_column_sums(vec_of(env, &b[0]), s->k, s->m, vec_of(env, db),
                                 db->mode == ARG_UPDATE, sums, env->stream));
}

void launch_matmul(CudaEnv *env, const Program *p, const Task *t)
{
    if (is_attention_matmul(p, t)) {
        launch_attention_matmul(env, p, t);
        return;
    }
    ASSERT(t->op->u.matmul.batch == 1);
    if (t->op->phase == PHASE_WGRAD)
        wgrad(env, p, t);
    else
        (op_is_forward(t->op) ? forward : dgrad)(env, p, t);
}
