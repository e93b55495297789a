/*
 * cmd_run_model.c - the digest of a model and its optimizer, and the keys behind it.
 */
#include "exec/cmd_run_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "sim/scenario.h"

/* ---- the digest ---- */

/* What is done with the parameters, where their names and shapes do not tell. */
static uint64_t hash_architecture(uint64_t h, const Model *m)
{
    if (m->kind != MODEL_TRANSFORMER)
        return mix_u64(h ^ m->u.mlp.activation);
    const Transformer *t = &m->u.transformer;
    const uint64_t words[] = { t->activation,   t->gated,        t->norm,          t->causal,
                               t->positions,    t->heads,        t->kv_heads,      t->window,
                               t->window_first, t->window_every, t->parallel_block };
    for (size_t i = 0; i < ARRAY_N(words); i++)
        h = mix_u64(h ^ words[i]);
    if (t->window_but_every || t->nope_every) /* else as before there were any */
        h = mix_u64(mix_u64(h ^ t->window_but_every) ^ t->nope_every);
    if (t->gelu_tanh)
        h = mix_u64(h + 1);
    return hash_number(hash_number(h, t->rope_theta), t->norm_eps);
}

/* Model and optimizer: what it computes, every parameter by name and shape, and what updates it. */
uint64_t run_model_digest(const Scenario *s, const WholeList *whole)
{
    const Training *t = &s->training;
    uint64_t h = hash_text(t->optimizer, dtype_names[t->param_dtype]);
    h = hash_architecture(h, &s->model);
    for (uint32_t i = 0; i < whole->n; i++) {
        const Whole *w = &whole->whole[i];
        h = hash_text(h ^ w->layer, w->name);
        h = mix_u64(mix_u64(h ^ w->rows) ^ w->columns);
    }
    return h;
}

/* ---- keys ---- */

static void put_transformer(FILE *f, const Transformer *t)
{
    static const char *const positions[] = { "learned", "rope", "alibi", "none" };
    static const char *const yes[] = { "false", "true" };
    fprintf(f, "model.layers=%" PRIu32 "\nmodel.hidden=%" PRIu32 "\n", t->layers, t->hidden);
    fprintf(f, "model.heads=%" PRIu32 "\nmodel.kv_heads=%" PRIu32 "\n", t->heads, t->kv_heads);
    fprintf(f, "model.head_dim=%" PRIu32 "\nmodel.ffn=%" PRIu32 "\n", t->head_dim, t->ffn);
    fprintf(f, "model.vocab=%" PRIu32 "\n", t->vocab);
    if (t->positions == POS_LEARNED)
        fprintf(f, "model.max_seq=%" PRIu32 "\n", t->position_rows);
    fprintf(f, "model.gated=%s\nmodel.causal=%s\n", yes[t->gated], yes[t->causal]);
    fprintf(f, "model.norm=%s\n", t->norm == NORM_RMSNORM ? "rmsnorm" : "layernorm");
    fprintf(f, "model.activation=%s%s\n", activation_names[t->activation],
            t->gelu_tanh ? " by tanh" : "");
    fprintf(f, "model.positions=%s\n", positions[t->positions]);
    fprintf(f, "model.tied_embeddings=%s\n", yes[t->tied_embeddings]);
    fprintf(f, "model.sliding_window=%" PRIu32 "\n", t->window);
    fprintf(f, "model.sliding_window from layer=%" PRIu32 "\n", t->window_first);
    fprintf(f, "model.sliding_window every=%" PRIu32 "\n", t->window_every);
    if (t->window_but_every)
        fprintf(f, "model.sliding_window but every=%" PRIu32 "\n", t->window_but_every);
    if (t->nope_every)
        fprintf(f, "model.no positions every=%" PRIu32 "\n", t->nope_every);
    if (t->post_norm)
        fprintf(f, "model.norm after the sum=true\n");
    fprintf(f, "model.parallel_block=%s\n", yes[t->parallel_block]);
    bool bias = t->qkv_bias || t->out_bias || t->mlp_bias;
    fprintf(f, "model.bias=%s%s%s%s\n", t->qkv_bias ? "qkv " : "", t->out_bias ? "out " : "",
            t->mlp_bias ? "mlp" : "", bias ? "" : "none");
    fprintf(f, "model.rope_theta=%g\nmodel.norm_eps=%g\n", t->rope_theta, t->norm_eps);
}

static void put_mlp(FILE *f, const Mlp *m)
{
    fprintf(f, "model.widths=");
    for (uint32_t i = 0; i < m->widths_n; i++)
        fprintf(f, "%s%" PRIu32, i ? "," : "", m->widths[i]);
    fprintf(f, "\nmodel.activation=%s\n", activation_names[m->activation]);
    fprintf(f, "model.batchnorm=%s\n", m->batchnorm ? "true" : "false");
}

/* A text is what stands in it, whatever its name: its length, and bytes from all over it, as it may
 * be too long to be read whole. */
static void put_data(FILE *f, const char *data)
{
    enum { PLACES = 64 };
    char bytes[1024];
    struct stat st;
    fprintf(f, "training.data=%s\n", data);
    FILE *text = stat(data, &st) == 0 && S_ISREG(st.st_mode) ? fopen(data, "rb") : NULL;
    if (!text)
        return;
    uint64_t h = 0;
    for (off_t i = 0; i < PLACES && fseeko(text, st.st_size / PLACES * i, SEEK_SET) == 0; i++)
        for (size_t k = fread(bytes, 1, sizeof bytes, text); k-- > 0;)
            h = mix_u64(h ^ (unsigned char)bytes[k]);
    fclose(text);
    fprintf(f, "training.data content=%" PRIu64 " bytes, %016" PRIx64 "\n",
            (uint64_t)st.st_size, h);
}

const char *run_model_text(Arena *arena, const Scenario *s, const WholeList *whole)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    ASSERT(f);
    fprintf(f, "%016" PRIx64 "\n", run_model_digest(s, whole));
    fprintf(f, "model.kind=%s\n", s->model.kind == MODEL_MLP ? "mlp" : "transformer");
    if (s->model.kind == MODEL_MLP)
        put_mlp(f, &s->model.u.mlp);
    else
        put_transformer(f, &s->model.u.transformer);
    fprintf(f, "training.optimizer=%s\n", optimizer_names[s->training.optimizer]);
    fprintf(f, "training.param_dtype=%s\n", dtype_names[s->training.param_dtype]);
    put_data(f, s->training.data);
    fprintf(f, "training.loss=%s\n", s->training.loss_mse ? "mse" : "cross_entropy");
    fprintf(f, "training.global_batch=%" PRIu32 "\n", s->training.global_batch);
    if (s->model.kind == MODEL_TRANSFORMER)
        fprintf(f, "training.seq_len=%" PRIu32 "\n", s->training.seq_len);
    ASSERT(fclose(f) == 0);
    const char *kept = arena_strdup(arena, text);
    free(text);
    return kept;
}
