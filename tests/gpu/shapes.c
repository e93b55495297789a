/*
 * shapes.c - see shapes.h.  Model sizes are those of their published configurations.
 */
#include "shapes.h"

#include <stdlib.h>
#include <string.h>

#include "gpu_try.h"

typedef struct Model {
    const char *name;
    int hidden, heads, kv_heads, head_dim, ffn, vocab;
    bool gated; /* gate and up projections, as one product or as two */
} Model;

/* clang-format off */
static const Model MODELS[] = {
    { "llama3-8b",   4096, 32,  8, 128, 14336, 128256, true },
    { "gpt2",         768, 12, 12,  64,  3072,  50304, false },
    { "llama2-7b",   4096, 32, 32, 128, 11008,  32000, true },
    { "llama3-70b",  8192, 64,  8, 128, 28672, 128256, true },
    { "gpt3-175b",  12288, 96, 96, 128, 49152,  51200, false },
    { "gpt2-xl",     1600, 25, 25,  64,  6400,  50304, false },
    { "mixtral",     4096, 32,  8, 128, 14336,  32000, true },
};
/* clang-format on */
enum { MODELS_N = sizeof MODELS / sizeof MODELS[0] };

/* A vocabulary's product beyond so many tokens is as fast per token, and takes long. */
enum { HEAD_TOKENS_MAX = 8192 };

typedef enum Passes { FORWARD = 1, DGRAD = 2, WGRAD = 4, WGRAD_F32 = 8 } Passes;
enum { ALL_PASSES = FORWARD | DGRAD | WGRAD };

/* ---- the list ---- */

static bool same(const GemmSpec *a, const GemmSpec *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->type == b->type &&
           a->layout == b->layout && a->accumulate == b->accumulate &&
           a->promoted == b->promoted && (a->type != GEMM_FP8 || strcmp(a->use, b->use) == 0);
}

static void add(ShapeList *list, GemmSpec spec)
{
    for (size_t i = 0; i < list->n; i++)
        if (same(&list->spec[i], &spec))
            return;
    if (list->n == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 256;
        list->spec = realloc(list->spec, list->cap * sizeof *list->spec);
        if (!list->spec)
            try_failed("realloc", "no memory for the list of shapes", 0, __FILE__, __LINE__);
    }
    list->spec[list->n++] = spec;
}

static void add_plain(ShapeList *list, const char *use, GemmType type, int64_t m, int64_t n,
                      int64_t k)
{
    add(list, (GemmSpec){ .m = m, .n = n, .k = k, .type = type, .use = use });
}

/* fp8 has forward's layout only; frameworks transpose copies for the other two, whose sums are
 * promoted.  Products of equal shapes are both kept: what they are for tells them apart. */
static void add_linear(ShapeList *list, GemmType type, unsigned passes, int64_t tokens,
                       int64_t in, int64_t out)
{
    bool fp8 = type == GEMM_FP8;
    GemmLayout dgrad = fp8 ? LAYOUT_TN : LAYOUT_NN, wgrad = fp8 ? LAYOUT_TN : LAYOUT_NT;

    if (passes & FORWARD)
        add(list, (GemmSpec){ tokens, out, in, type, LAYOUT_TN, false, false, "fwd" });
    if (passes & DGRAD)
        add(list, (GemmSpec){ tokens, in, out, type, dgrad, false, fp8, "dgrad" });
    if (passes & WGRAD)
        add(list, (GemmSpec){ out, in, tokens, type, wgrad, false, fp8, "wgrad" });
    if (passes & WGRAD_F32)
        add(list, (GemmSpec){ out, in, tokens, type, wgrad, true, fp8, "wgrad" });
}

static void add_model(ShapeList *list, const Model *m, GemmType type, unsigned passes, int tp,
                      int64_t tokens)
{
    int width = m->heads * m->head_dim / tp, ffn = m->ffn / tp;
    int kv_width = (m->kv_heads < tp ? 1 : m->kv_heads / tp) * m->head_dim;

    if (m->heads % tp != 0 || m->ffn % tp != 0)
        return;
    add_linear(list, type, passes, tokens, m->hidden, width + 2 * kv_width);
    add_linear(list, type, passes, tokens, width, m->hidden);
    add_linear(list, type, passes, tokens, m->hidden, ffn);
    add_linear(list, type, passes, tokens, ffn, m->hidden);
    if (m->gated) {
        add_linear(list, type, passes, tokens, m->hidden, 2 * ffn);
        add_linear(list, type, passes, tokens, m->hidden, kv_width);
    }
    if (tokens <= HEAD_TOKENS_MAX && m->vocab % tp == 0)
        add_linear(list, type, passes, tokens, m->hidden, m->vocab / tp);
}

static void add_models(ShapeList *list, GemmType type, unsigned passes, int tp, int64_t tokens)
{
    for (int i = 0; i < MODELS_N; i++)
        add_model(list, &MODELS[i], type, passes, tp, tokens);
}

/* ---- the sweeps ---- */

static void add_squares(ShapeList *list, GemmType type, const int *side, int n)
{
    for (int i = 0; i < n; i++)
        add_plain(list, "square", type, side[i], side[i], side[i]);
}

/* One size varies, the two others stay. */
static void add_sweeps(ShapeList *list, GemmType type)
{
    static const int step[] = { 64,   128,  192,  256,  384,  512,  768,  1024,  1280,
                                1536, 2048, 2560, 3072, 5120, 6144, 8192, 10240, 16384 };
    static const int few[] = { 1, 8, 16, 32, 64, 128, 192, 256, 384, 768 };

    for (size_t i = 0; i < sizeof step / sizeof step[0]; i++) {
        add_plain(list, "sweep_n", type, 8192, step[i], 4096);
        add_plain(list, "sweep_k", type, 4096, 4096, step[i]);
        add_plain(list, "sweep_m", type, step[i], 4096, 4096);
    }
    for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
        add_plain(list, "few_rows", type, few[i], 4096, 4096);
        add_plain(list, "few_rows", type, few[i], 14336, 4096);
    }
}

/* Around multiples of 132 tiles of 128 x 256 (the SMs of an H100), and unaligned sizes. */
static void add_odd(ShapeList *list, GemmType type)
{
    for (int tall = 10; tall <= 13; tall++)
        for (int wide = 11; wide <= 13; wide++)
            add_plain(list, "waves", type, 128 * tall, 256 * wide, 4096);
    static const int side[] = { 1000, 1022, 2047, 4095, 4100, 5000 };
    for (size_t i = 0; i < sizeof side / sizeof side[0]; i++)
        add_plain(list, "odd", type, side[i], side[i], side[i]);
    /* GPT-2's vocabulary as it is, not padded. */
    add_linear(list, type, ALL_PASSES, 8192, 768, 50257);
    add_linear(list, type, FORWARD, 4096, 1600, 50257);
}

static const int SIDES[] = { 256,  384,  512,  768,  1024,  1536, 2048,
                             3072, 4096, 6144, 8192, 12288, 16384 };
enum { SIDES_N = sizeof SIDES / sizeof SIDES[0], SIDES_TO_8192 = 11 };

/* The other types: enough to scale bf16's table by. */
static void add_other_types(ShapeList *list)
{
    add_squares(list, GEMM_F16, SIDES, SIDES_TO_8192);
    add_squares(list, GEMM_TF32, SIDES, SIDES_TO_8192);
    add_squares(list, GEMM_F32, SIDES, SIDES_TO_8192 - 1);
    add_model(list, &MODELS[1], GEMM_F16, ALL_PASSES, 1, 8192);
    add_model(list, &MODELS[0], GEMM_F16, ALL_PASSES, 1, 4096);
    add_model(list, &MODELS[1], GEMM_TF32, ALL_PASSES, 1, 8192);
    add_model(list, &MODELS[5], GEMM_TF32, ALL_PASSES, 1, 4096);
    add_model(list, &MODELS[1], GEMM_F32, ALL_PASSES, 1, 4096);
}

void shapes_make(ShapeList *list)
{
    static const int64_t usual[] = { 8192, 2048, 4096 }, rest[] = { 1024, 16384, 512 };
    *list = (ShapeList){ 0 };

    add_models(list, GEMM_BF16, ALL_PASSES, 1, usual[0]);
    add_squares(list, GEMM_BF16, SIDES, SIDES_N);
    add_models(list, GEMM_BF16, ALL_PASSES, 1, usual[1]);
    add_models(list, GEMM_BF16, WGRAD_F32, 1, usual[0]);
    add_sweeps(list, GEMM_BF16);
    add_odd(list, GEMM_BF16);
    add_other_types(list);
    add_models(list, GEMM_BF16, ALL_PASSES, 8, usual[0]);
    add_models(list, GEMM_BF16, ALL_PASSES, 8, usual[1]);
    add_models(list, GEMM_BF16, ALL_PASSES, 1, usual[2]);
    for (int t = 0; t < 3; t++)
        for (int tp = 2; tp <= 8; tp *= 2)
            add_models(list, GEMM_BF16, ALL_PASSES, tp, usual[t]);
    for (int tp = 1; tp <= 8; tp *= 2)
        for (int t = 0; t < 3; t++)
            add_models(list, GEMM_BF16, ALL_PASSES, tp, rest[t]);
    for (int tp = 1; tp <= 8; tp *= 2)
        add_models(list, GEMM_BF16, WGRAD_F32, tp, usual[1]);
}

void shapes_make_fp8(ShapeList *list)
{
    static const struct {
        int tokens, tp;
    } of[] = { { 8192, 1 }, { 4096, 4 }, { 8192, 4 }, { 4096, 1 }, { 8192, 2 }, { 4096, 2 },
               { 8192, 8 }, { 4096, 8 }, { 2048, 1 }, { 2048, 4 }, { 2048, 2 }, { 2048, 8 } };
    *list = (ShapeList){ 0 };

    add_squares(list, GEMM_FP8, SIDES, SIDES_N);
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        add_models(list, GEMM_FP8, ALL_PASSES | WGRAD_F32, of[i].tp, of[i].tokens);
    add_sweeps(list, GEMM_FP8);
}

void shapes_free(ShapeList *list)
{
    free(list->spec);
    *list = (ShapeList){ 0 };
}
