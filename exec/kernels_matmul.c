/*
 * kernels_matmul.c - what OpenBLAS, found at run time, computes: matmuls, y += a x.
 *
 *     forward   y  = x w^T (+ b, activated)      w stored [outputs, inputs]
 *     dgrad     dx = dy w
 *     wgrad     dw (+)= dy^T x,  db (+)= sum over rows of dy
 *
 * Operands are rounded to the number format of the op first (f32 weights in a bf16
 * matmul), products are summed in f32, and so is the bias; the result is rounded once,
 * and the activation takes what was rounded, as it does when it is recomputed.
 *
 * OpenBLAS would start threads when it is loaded; ranks are processes of their own, so
 * it gets one.  It is not linked: only who runs a graph loads it.
 */
#include "exec/kernel_parts.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "exec/net.h"

/* As cblas.h has them. */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

typedef void Sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k,
                   float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                   float *c, int ldc);

typedef void Saxpy(int n, float alpha, const float *x, int step_x, float *y, int step_y);

static Sgemm *sgemm;
static Saxpy *saxpy;
static atomic_bool counting;
static _Atomic int64_t gemm_ns, axpy_ns;

#define BLAS_NAME "libopenblas.so.0"

static char load_error[200]; /* why it could not be loaded; "": it is not there */

/* OpenBLAS asks for a buffer again and again until it gets it: where the address space is limited
 * (ulimit -v) a rank would hang.  0.3.21 maps 128 MiB at the first product that is not small (its
 * small ones, to a hundred cubed, take none), and uses the same ever after, whichever thread
 * multiplies.  So it is made to take it at once.  0.3.29 maps as much when it is loaded. */
enum { BLAS_BUFFERS = 128 << 20, BLAS_ITSELF = 48 << 20, NOT_SMALL = 128 };

static bool has_room(size_t bytes)
{
    void *trial = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (trial == MAP_FAILED)
        return false;
    munmap(trial, bytes);
    return true;
}

static bool has_room_to_load(void)
{
    return has_room((size_t)BLAS_BUFFERS + BLAS_ITSELF);
}

void *open_blas(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    return has_room_to_load() ? dlopen(BLAS_NAME, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void take_buffers(void)
{
    enum { N = NOT_SMALL };
    float *a = mem_zero((size_t)2 * N * N, sizeof *a), *c = a + N * N;
    sgemm(ROW_MAJOR, NO_TRANSPOSE, NO_TRANSPOSE, N, N, N, 1, a, N, a, N, 0, c, N);
    free(a);
}

static bool make_room(void)
{
    static atomic_bool made; /* of a process, and of those it forks */
    if (atomic_load(&made))
        return true;
    if (!has_room(BLAS_BUFFERS))
        return false;
    take_buffers();
    atomic_store(&made, true);
    return true;
}

static void load_blas(void)
{
    void *library = open_blas();
    const char *why = library ? NULL : dlerror(); /* NULL, too, where there is no room */
    if (why && (strncmp(why, BLAS_NAME ":", strlen(BLAS_NAME ":")) != 0 ||
                !strstr(why, "No such file")))
        snprintf(load_error, sizeof load_error, "%s", why);
    void *symbol = library ? dlsym(library, "cblas_sgemm") : NULL;
    void *other = library ? dlsym(library, "cblas_saxpy") : NULL;
    if (!symbol || !other)
        return;
    memcpy(&saxpy, &other, sizeof saxpy); /* ISO C has no cast from an object to a function */
    memcpy(&sgemm, &symbol, sizeof sgemm);
}

/* Ranks may be threads. */
bool gemm_load(Err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_blas);
    if (!sgemm && load_error[0])
        return err_set(err,
                       "OpenBLAS, which the cpu backend multiplies with, cannot be loaded: %s",
                       load_error);
    bool room = sgemm ? make_room() : has_room_to_load();
    if (!sgemm && room)
        return err_set(err, "OpenBLAS, which the cpu backend multiplies with, was not found; "
                            "on Debian install libopenblas0-pthread (or libopenblas0)");
    return room ||
           err_set(err, "no address space for OpenBLAS's buffers (%d MiB): raise ulimit -v",
                   BLAS_BUFFERS >> 20);
}

/* kernels_check has loaded it, but where a test calls a kernel by itself. */
static void need_blas(void)
{
    Err err = { 0 };
    ASSERT(sgemm || gemm_load(&err));
}

static int small(uint64_t n)
{
    ASSERT(n <= INT_MAX);
    return (int)n;
}

void gemm_count(bool on)
{
    atomic_store(&counting, on);
}

BlasTime gemm_spent(void)
{
    return (BlasTime){ atomic_load(&gemm_ns), atomic_load(&axpy_ns) };
}

static void call_blas(const Gemm *g)
{
    bool counts = atomic_load_explicit(&counting, memory_order_relaxed);
    int64_t start_ns = counts ? net_now_ns() : 0;
    sgemm(ROW_MAJOR, g->transpose_a ? TRANSPOSE : NO_TRANSPOSE,
          g->transpose_b ? TRANSPOSE : NO_TRANSPOSE, small(g->m), small(g->n), small(g->k),
          g->alpha, g->a, small(g->lda), g->b, small(g->ldb), g->beta, g->c, small(g->ldc));
    if (counts)
        atomic_fetch_add(&gemm_ns, net_now_ns() - start_ns);
}

/* ---- shapes that OpenBLAS has a better way for ---- */

enum { FEW_ROWS = 64, MANY_COLUMNS = 512, TURNED_MAX = 32768, THIN = 64, SLAB = 1 << 18 };

/* Few samples times a weight stored [n, k]: OpenBLAS packs the weight a quarter faster as the
 * left operand.  So C^T = B A^T, a slab of C's columns at a time, and turned into place. */
static bool is_few_rows(const Gemm *g)
{
    return g->transpose_b && !g->transpose_a && g->beta == 0 && g->m <= FEW_ROWS &&
           g->n >= MANY_COLUMNS && g->k >= MANY_COLUMNS;
}

static void few_rows(const Gemm *g)
{
    float turned[TURNED_MAX];
    uint64_t most = TURNED_MAX / g->m;
    for (uint64_t first = 0; first < g->n; first += most) {
        uint64_t n = min_u64(most, g->n - first);
        call_blas(&(Gemm){ false, true, n, g->m, g->k, g->b + first * g->ldb, g->ldb, g->a,
                           g->lda, turned, g->m, g->alpha, 0 });
        for (uint64_t r = 0; r < g->m; r++)
            for (uint64_t c = 0; c < n; c++)
                g->c[r * g->ldc + first + c] = turned[c * g->m + r];
    }
}

/* A large product of thin matrices, the gradient of a weight: OpenBLAS fills C with zeros
 * first.  Slab by slab they are still in the cache when the sums come. */
static bool is_thin(const Gemm *g)
{
    return g->transpose_a && g->beta == 0 && g->k <= THIN && g->m * g->n > 4 * SLAB;
}

static void thin(const Gemm *g)
{
    uint64_t most = max_u64(SLAB / g->n, THIN);
    for (uint64_t first = 0; first < g->m; first += most) {
        Gemm slab = *g;
        slab.m = min_u64(most, g->m - first);
        slab.a = g->a + first;
        slab.c = g->c + first * g->ldc;
        call_blas(&slab);
    }
}

void gemm(const Gemm *g)
{
    if (g->m == 0 || g->n == 0)
        return;
    need_blas();
    (is_few_rows(g) ? few_rows : is_thin(g) ? thin : call_blas)(g);
}

void axpy(float alpha, const float *x, float *y, uint64_t n)
{
    const uint64_t most = 1 << 30; /* a number of OpenBLAS's is an int */
    bool counts = atomic_load_explicit(&counting, memory_order_relaxed);
    int64_t start_ns = counts ? net_now_ns() : 0;
    need_blas();
    for (uint64_t i = 0; i < n; i += most)
        saxpy(small(min_u64(most, n - i)), alpha, x + i, 1, y + i, 1);
    if (counts)
        atomic_fetch_add(&axpy_ns, net_now_ns() - start_ns);
}

bool is_attention_matmul(const Program *p, const Task *t)
{
    return t->op->phase != PHASE_WGRAD &&
           (t->args_n < 3 || task_args(p, t)[1].slot != SLOT_PARAM);
}

/* f32 operands of a 16-bit matmul, as that matmul reads them: a copy where they change. */
static const float *operand(const Call *c, uint32_t i, void **spare)
{
    const Buffer *b = &c->b[i];
    if (dtype_bytes(b->dtype) < 4 || dtype_bytes(c->op->dtype) == 4)
        return c->x[i];
    float *copy = *spare;
    *spare = copy + b->elements;
    memcpy(copy, c->x[i], b->elements * sizeof *copy);
    round_to(c->op->dtype, copy, b->elements);
    return copy;
}

static uint64_t operand_bytes(const Task *t, const Buffer *b)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < 2 && dtype_bytes(t->op->dtype) < 4; i++)
        bytes += dtype_bytes(b[i].dtype) < 4 ? 0 : b[i].elements * sizeof(float);
    return bytes;
}

OpFn activation_of(OpFn epilogue)
{
    bool gelu = epilogue == FN_GELU || epilogue == FN_BIAS_GELU;
    bool relu = epilogue == FN_RELU || epilogue == FN_BIAS_RELU;
    return gelu ? FN_GELU : relu ? FN_RELU : FN_NONE;
}

/* x w [b] -> [pre] y */
static void forward(Call *c)
{
    const MatmulShape *s = &c->op->u.matmul;
    void *spare = c->extra;
    uint32_t reads = call_reads(c->b, c->n), last = c->n - 1;
    OpFn act = activation_of(c->op->fn);
    float *pre = c->x[reads], *y = c->x[last];
    gemm(&(Gemm){ false, true, s->m, s->n, s->k, operand(c, 0, &spare), s->k,
                  operand(c, 1, &spare), s->k, pre, s->n, 1, 0 });
    for (uint64_t r = 0; r < s->m && (reads == 3 || act != FN_NONE); r++) {
        float *row = pre + r * s->n;
        for (uint64_t i = 0; reads == 3 && i < s->n; i++)
            row[i] += c->x[2][i];
        if (act == FN_NONE)
            continue;
        round_to(c->b[reads].dtype, row, s->n);
        activate(c->env, act, row, y + r * s->n, s->n);
    }
}

/* dy w -> dx */
static void dgrad(Call *c)
{
    const MatmulShape *s = &c->op->u.matmul;
    void *spare = c->extra;
    gemm(&(Gemm){ false, false, s->m, s->n, s->k, operand(c, 0, &spare), s->k,
                  operand(c, 1, &spare), s->n, c->x[2], s->n, 1, 0 });
}

/* dy x -> dw [db] */
static void wgrad(Call *c, double *sums)
{
    const MatmulShape *s = &c->op->u.matmul;
    void *spare = sums + s->m;
    float beta = c->b[2].mode == ARG_UPDATE ? 1 : 0;
    gemm(&(Gemm){ true, false, s->m, s->n, s->k, operand(c, 0, &spare), s->m,
                  operand(c, 1, &spare), s->n, c->x[2], s->n, 1, beta });
    if (c->n < 4)
        return;
    memset(sums, 0, s->m * sizeof *sums);
    sum_rows(sums, c->x[0], s->k, s->m);
    put_sums(c->x[3], sums, s->m, c->b[3].mode);
}

void kernel_matmul(KernelEnv *env, const Program *p, const Task *t)
{
    if (is_attention_matmul(p, t)) {
        attention_matmul(env, p, t);
        return;
    }
    ASSERT(t->op->u.matmul.batch == 1);
    bool weights = t->op->phase == PHASE_WGRAD;
    uint64_t sums = weights ? t->op->u.matmul.m * sizeof(double) : 0;
    Call c = call_open(env, p, t, CALL_WHOLLY, sums + operand_bytes(t, task_args(p, t)));
    if (weights)
        wgrad(&c, c.extra);
    else if (op_is_forward(t->op))
        forward(&c);
    else
        dgrad(&c);
    call_close(&c);
}
