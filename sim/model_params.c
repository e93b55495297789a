/*
 * model_params.c - how many numbers a model learns.  Pure arithmetic.
 *
 *     embedding    vocabulary, positions, token types, their norm, projection in
 *     block        norms, attention (q k v, out), MLP or router and experts
 *     head         final norm, projection out, transform, decoder, pooler
 *
 * Tied embeddings are counted once, in the embedding.
 */
#include "sim/model.h"

/* ---- transformers ---- */

static uint64_t linear_params(uint64_t in, uint64_t out, bool bias)
{
    return in * out + (bias ? out : 0);
}

static uint64_t norm_params(const Transformer *t, uint64_t width)
{
    if (t->norm_plain)
        return 0;
    return t->norm_bias ? 2 * width : width;
}

static uint64_t block_norms_n(const Transformer *t)
{
    if (t->parallel_block && !t->two_norms_parallel)
        return 1;
    return t->sandwich_norm ? 4 : 2;
}

static uint64_t latent_params(const Transformer *t)
{
    uint64_t heads = t->heads, q = heads * t->head_dim, in = t->q_rank ? t->q_rank : t->hidden;
    uint64_t own = (uint64_t)t->head_dim - t->rope_dim, y = heads * t->value_dim;
    uint64_t params =
        in * q + norm_params(t, t->kv_rank) + t->kv_rank * (heads * own + y) +
        linear_params(t->hidden, (uint64_t)t->kv_rank + t->rope_dim, t->qkv_bias) +
        linear_params(y, t->hidden, t->out_bias);
    if (t->q_rank)
        params += linear_params(t->hidden, t->q_rank, t->qkv_bias) + norm_params(t, t->q_rank);
    return params;
}

static uint64_t attention_params(const Transformer *t)
{
    if (t->kv_rank)
        return latent_params(t);
    uint64_t q = (uint64_t)t->heads * t->head_dim;
    uint64_t kv = (uint64_t)t->kv_heads * t->head_dim;
    uint64_t params = linear_params(t->hidden, q + 2 * kv, t->qkv_bias) +
                      linear_params(q, t->hidden, t->out_bias);
    if (t->qk_norm_whole || t->qk_norm_own)
        params += norm_params(t, q) + norm_params(t, kv);
    else if (t->qk_norm && !t->qk_norm_plain)
        params += 2 * norm_params(t, t->head_dim);
    return params + (t->sinks ? t->heads : 0);
}

static uint64_t mlp_params(const Transformer *t, uint64_t ffn, bool bias)
{
    uint64_t inputs_n = t->gated ? 2 : 1;
    return inputs_n * linear_params(t->hidden, ffn, bias) + linear_params(ffn, t->hidden, bias);
}

bool transformer_is_moe(const Transformer *t, uint32_t layer)
{
    if (t->experts == 0 || layer < t->dense_first)
        return false;
    return t->moe_every <= 1 || (layer + 1) % t->moe_every == 0;
}

uint32_t transformer_window(const Transformer *t, uint32_t layer)
{
    bool excepted = t->window_but_every > 0 && (layer + 1) % t->window_but_every == 0;
    if (t->window == 0 || layer < t->window_first || excepted)
        return 0;
    bool chosen = t->window_every <= 1 || (layer - t->window_first) % t->window_every == 0;
    return chosen ? t->window : 0;
}

bool transformer_is_nope(const Transformer *t, uint32_t layer)
{
    return t->nope_every > 0 && (layer + 1) % t->nope_every == 0;
}

/* Of a mixture-of-experts block, with experts_n of its experts counted. */
static uint64_t moe_params(const Transformer *t, uint64_t experts_n)
{
    uint64_t params = linear_params(t->hidden, t->experts, t->router_bias) +
                      experts_n * mlp_params(t, t->moe_ffn, transformer_experts_bias(t));
    if (t->shared_expert_ffn)
        params += mlp_params(t, t->shared_expert_ffn, t->mlp_bias) +
                  (t->shared_expert_gate ? t->hidden : 0);
    return params;
}

static uint64_t block_params(const Transformer *t, uint32_t layer, uint64_t experts_n)
{
    return block_norms_n(t) * norm_params(t, t->hidden) + attention_params(t) +
           (transformer_is_moe(t, layer) ? moe_params(t, experts_n)
                                         : mlp_params(t, t->ffn, t->mlp_bias));
}

uint64_t transformer_block_params(const Transformer *t, uint32_t layer)
{
    return block_params(t, layer, t->experts);
}

uint64_t transformer_expert_params(const Transformer *t, uint32_t layer)
{
    return block_params(t, layer, t->experts) - block_params(t, layer, 0);
}

static bool is_projected(const Transformer *t)
{
    return t->embedding_dim != t->hidden;
}

uint64_t transformer_embedding_params(const Transformer *t)
{
    uint64_t rows = (uint64_t)t->position_rows + t->token_types;
    uint64_t params = (uint64_t)t->vocab * t->embedding_dim + rows * t->hidden;
    if (is_projected(t))
        params += linear_params(t->embedding_dim, t->hidden, false);
    if (t->embedding_norm)
        params += norm_params(t, t->hidden);
    return params;
}

uint64_t transformer_head_params(const Transformer *t)
{
    uint64_t params = 0;
    if (t->final_norm)
        params += norm_params(t, t->hidden);
    if (is_projected(t))
        params += linear_params(t->hidden, t->embedding_dim, false);
    if (t->pooler)
        params += linear_params(t->hidden, t->hidden, true);
    if (t->next_sentence)
        params += linear_params(t->hidden, 2, true);
    if (t->headless)
        return params;
    if (t->head_transform)
        params += linear_params(t->hidden, t->hidden, true) + norm_params(t, t->hidden);
    if (!t->tied_embeddings)
        params += (uint64_t)t->vocab * t->embedding_dim;
    return params + (t->head_bias ? t->vocab : 0);
}

static uint64_t transformer_params(const Transformer *t, uint64_t experts_n)
{
    uint64_t params = transformer_embedding_params(t) + transformer_head_params(t);
    for (uint32_t l = 0; l < t->layers; l++)
        params += block_params(t, l, experts_n);
    return params;
}

/* ---- the others ---- */

static uint64_t mlp_network_params(const Mlp *mlp)
{
    uint64_t params = 0;
    for (uint32_t i = 1; i < mlp->widths_n; i++) {
        params += linear_params(mlp->widths[i - 1], mlp->widths[i], mlp->bias);
        bool last = i + 1 == mlp->widths_n;
        if (mlp->batchnorm && !last)
            params += 2 * (uint64_t)mlp->widths[i];
    }
    return params;
}

/* A convolution without bias, and the gain and shift of its batch norm. */
static uint64_t conv_params(uint64_t in, uint64_t out, uint64_t kernel)
{
    return in * out * kernel * kernel + 2 * out;
}

static uint64_t convnet_params(const Convnet *c)
{
    uint64_t params = conv_params(c->channels_in, c->stem_width, 7);
    uint64_t in = c->stem_width;
    for (uint32_t s = 0; s < c->stages_n; s++) {
        uint64_t inner = c->widths[s], out = inner * c->expansion;
        if (s > 0 || in != out)
            params += conv_params(in, out, 1); /* the shortcut of the stage's first block */
        for (uint32_t b = 0; b < c->blocks[s]; b++) {
            params += conv_params(in, inner, 1) + conv_params(inner, inner, 3) +
                      conv_params(inner, out, 1);
            in = out;
        }
    }
    return params + linear_params(in, c->classes, true);
}

uint64_t model_params(const Model *model)
{
    switch (model->kind) {
    case MODEL_TRANSFORMER:
        return transformer_params(&model->u.transformer, model->u.transformer.experts);
    case MODEL_MLP:
        return mlp_network_params(&model->u.mlp);
    case MODEL_CONVNET:
        return convnet_params(&model->u.convnet);
    }
    return 0;
}

uint64_t model_active_params(const Model *model)
{
    if (model->kind != MODEL_TRANSFORMER)
        return model_params(model);
    return transformer_params(&model->u.transformer, model->u.transformer.experts_per_token);
}

uint64_t model_expert_params(const Model *model)
{
    if (model->kind != MODEL_TRANSFORMER)
        return 0;
    return model_params(model) - transformer_params(&model->u.transformer, 0);
}
