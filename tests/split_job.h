/*
 * split_job.h - a small model on the ranks of a split, for tests of who holds what.
 *
 *     Job j;
 *     if (job_open(&j, JOB_GPT, "strategy=fsdp dp=4 tp=2")) ...
 *     job_close(&j);
 *
 * A graph from a scenario, as `lockstep run` makes it, and the program, pieces and
 * memory of every rank.  The list of parameters comes from the same model on one
 * GPU; all of them are normal, so that no two elements are equal.
 */
#ifndef LOCKSTEP_TESTS_SPLIT_JOB_H
#define LOCKSTEP_TESTS_SPLIT_JOB_H

#include "exec/params.h"
#include "tests/built.h"

#include <stdlib.h>
#include <string.h>

/* Odd sizes where they may be: nothing divides by the ranks that share. */
#define JOB_GPT \
    "{\"kind\":\"transformer\",\"layers\":3,\"hidden\":24,\"heads\":4,\"vocab\":61," \
    "\"max_seq\":16,\"positions\":\"learned\",\"tied_embeddings\":true}"
#define JOB_LLAMA \
    "{\"kind\":\"transformer\",\"layers\":2,\"hidden\":32,\"heads\":8,\"kv_heads\":2," \
    "\"ffn\":40,\"vocab\":64,\"max_seq\":16,\"positions\":\"rope\",\"norm\":\"rmsnorm\"," \
    "\"gated\":true,\"activation\":\"silu\",\"tied_embeddings\":false}"
#define JOB_MLP \
    "{\"kind\":\"mlp\",\"widths\":[6,8,12,1],\"activation\":\"relu\",\"batchnorm\":true}"
#define JOB_LINE "{\"kind\":\"mlp\",\"widths\":[20,1]}"

enum { JOB_RANKS_MAX = 16, JOB_SETTINGS_MAX = 16 };

typedef struct Job {
    Built one, split;
    WholeList whole;
    uint32_t ranks_n;
    Program program[JOB_RANKS_MAX];
    Pieces pieces[JOB_RANKS_MAX];
    uint8_t *memory[JOB_RANKS_MAX];
    Err err;
} Job;

static inline bool build_from(Built *b, const char *model, const char *settings, bool exact,
                              Err *err)
{
    char text[2048], copy[512];
    bool tokens = strstr(model, "transformer") != NULL;
    Setting set[JOB_SETTINGS_MAX];
    uint32_t n = 0;
    snprintf(copy, sizeof copy, "%s", settings);
    for (char *s = strtok(copy, " "); s; s = strtok(NULL, " ")) {
        char *value = strchr(s, '=');
        ASSERT(n < JOB_SETTINGS_MAX && value);
        *value = '\0';
        set[n++] = (Setting){ s, value + 1 };
    }
    snprintf(
        text, sizeof text,
        "{\"name\":\"job\",\"model\":%s,\"cluster\":\"dgx-h100\",\"software\":\"lockstep\","
        "\"training\":{\"global_batch\":48,\"micro_batch\":1,\"precision\":\"f32\","
        "\"optimizer\":\"adamw\"%s},\"parallel\":{\"strategy\":\"single\"}}",
        model, tokens ? ",\"seq_len\":16" : "");
    *b = (Built){ 0 };
    JsonDoc *doc = json_parse(text, strlen(text), "job", err);
    if (!doc || !scenario_from(&b->s, doc, set, n, err) ||
        !software_read(&b->sw, &b->arena, "lockstep", err))
        return false;
    if (exact)
        b->sw.vocab_multiple = 1;
    return build_graph(&b->g, &b->s, &b->sw, err);
}

static inline bool name_begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static inline void whole_sections(Whole *w, const uint64_t *rows, uint32_t n, uint64_t unit)
{
    w->split = SPLIT_ROWS;
    w->sections_n = n;
    for (uint32_t i = 0; i < n; i++) {
        w->section_rows[i] = rows[i];
        w->section_unit[i] = unit;
    }
}

/* How Megatron-LM splits it; see sim/blocks_transformer.c and blocks_mlp.c. */
static inline void whole_split(Whole *w, const Model *model)
{
    const Transformer *t = &model->u.transformer;
    if (model->kind == MODEL_MLP) {
        bool odd = w->layer % 2;
        if (strcmp(w->name, "linear.weight") == 0)
            w->split = odd ? SPLIT_COLUMNS : SPLIT_ROWS;
        else if (!odd)
            w->split = SPLIT_ROWS;
        return;
    }
    uint64_t q = (uint64_t)t->heads * t->head_dim, kv = (uint64_t)t->kv_heads * t->head_dim;
    w->table = name_begins(w->name, "tokens.") || name_begins(w->name, "head.");
    if (name_begins(w->name, "attention.qkv"))
        whole_sections(w, (uint64_t[]){ q, kv, kv }, 3, t->head_dim);
    else if (name_begins(w->name, "mlp.gate_up"))
        whole_sections(w, (uint64_t[]){ t->ffn, t->ffn }, 2, 1);
    else if (name_begins(w->name, "mlp.up") || w->table)
        w->split = SPLIT_ROWS;
    else if (strcmp(w->name, "attention.out.weight") == 0 ||
             strcmp(w->name, "mlp.down.weight") == 0)
        w->split = SPLIT_COLUMNS;
}

/* Frames of one GPU hold every parameter as a whole, each once. */
static inline void whole_list(Job *j)
{
    const Graph *g = &j->one.g;
    const Role *role = &g->roles[0];
    uint32_t cap = 0;
    for (uint32_t f = 0; f < role->frames_n; f++) {
        const Frame *frame = &role->frames[f];
        const Layout *l = &g->layouts[frame->layout];
        for (uint32_t i = 0; frame->resident && i < l->tensor_n; i++) {
            const Tensor *t = &g->tensors[l->tensor_first + i];
            if (t->class_ != TENSOR_PARAM)
                continue;
            GROW(j->whole.whole, j->whole.n, cap);
            Whole *w = &j->whole.whole[j->whole.n++];
            bool vector = t->dims[0] == 1 && strstr(g->names.text[t->name], "linear.w") == NULL;
            *w = (Whole){ .layer = frame->layer,
                          .name = g->names.text[t->name],
                          .rows = vector ? t->dims[1] : t->dims[0],
                          .columns = vector ? 1 : t->dims[1],
                          .init = INIT_NORMAL,
                          .init_scale = 1 };
            whole_split(w, &j->one.s.model);
        }
    }
}

static inline void job_close(Job *j)
{
    for (uint32_t r = 0; r < j->ranks_n; r++) {
        free(j->memory[r]);
        pieces_free(&j->pieces[r]);
        program_free(&j->program[r]);
    }
    free(j->whole.whole);
    built_free(&j->one);
    built_free(&j->split);
}

/* settings: "dp=4 tp=2 training.optimizer=sgd": keys of parallel, or whole paths. */
static inline bool job_open(Job *j, const char *model, const char *settings)
{
    char full[512] = "cluster.nodes=2 ", one[512] = "", copy[512];
    snprintf(copy, sizeof copy, "%s", settings);
    for (char *s = strtok(copy, " "); s; s = strtok(NULL, " ")) {
        bool path = strchr(s, '.') != NULL;
        size_t used = strlen(full), used_one = strlen(one);
        snprintf(full + used, sizeof full - used, "%s%s ", path ? "" : "parallel.", s);
        if (path && !name_begins(s, "parallel."))
            snprintf(one + used_one, sizeof one - used_one, "%s ", s);
    }
    *j = (Job){ 0 };
    bool ok = build_from(&j->one, model, one, true, &j->err) &&
              build_from(&j->split, model, full, false, &j->err);
    if (ok)
        whole_list(j);
    for (uint32_t r = 0; ok && r < j->split.g.world_n; r++) {
        ASSERT(r < JOB_RANKS_MAX);
        j->ranks_n = r + 1;
        ok = program_make(&j->program[r], &j->split.g, r, &j->err) &&
             pieces_make(&j->pieces[r], &j->program[r], &j->whole, &j->err);
        j->memory[r] = mem_zero(j->program[r].arena_bytes + 1, 1);
    }
    if (!CHECK(ok)) {
        fprintf(stderr, "%s: %s\n", settings, j->err.text);
        job_close(j);
    }
    return ok;
}

static inline uint64_t whole_elements(const Whole *w)
{
    return w->rows * w->columns;
}

#endif
