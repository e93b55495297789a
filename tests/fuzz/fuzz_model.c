/*
 * fuzz_model.c - any bytes as a model, native or Hugging Face: never a crash, counts that agree.
 */
#include "sim/model.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_counts(const Model *model)
{
    uint64_t all = model_params(model);
    ASSERT(model_active_params(model) <= all);
    if (model->kind != MODEL_TRANSFORMER)
        return;
    const Transformer *t = &model->u.transformer;
    uint64_t blocks = 0;
    for (uint32_t l = 0; l < t->layers; l++)
        blocks += transformer_block_params(t, l);
    ASSERT(blocks <= all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0 || memchr(data, '/', n))
        return 0;
    Err err = { 0 };
    Arena arena = { 0 };
    JsonDoc *doc = json_parse((const char *)data, n, "fuzz.json", &err);
    if (doc) {
        Model model;
        bool ok = model_read(&model, &arena, json_root(doc), "scenarios", &err);
        ASSERT(ok != err.set);
        if (ok)
            check_counts(&model);
    }
    json_close(doc);
    arena_free(&arena);
    return 0;
}
