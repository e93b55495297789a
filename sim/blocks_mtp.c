/*
 * blocks_mtp.c - layers that predict further tokens (multi-token prediction), on the head's tape.
 *
 *     x, of the last layer ----+-------------------------------- norm -- logits -- loss
 *                              |                                           |
 *     tokens 1 ahead -- rows   norm                                        | the same weights
 *                         |     |                                          |
 *                        norm -(+)-- layer --+------------------ norm -- logits -- loss
 *                                            |                             |
 *     tokens 2 ahead ...      norm ---------(+)-- layer ... ---- norm -- logits -- loss
 *
 * As DeepSeek-V3 has it (arXiv 2412.19437, 2.2) and Megatron Core builds it (its file
 * transformer/multi_token_prediction.py): each is a layer like the model's last one behind norms of
 * what goes in and a projection of the two, 2 hidden x hidden; the table and the head's weights are
 * the model's own; and all of it stands with the head, on the pipeline's last stage, which holds
 * the table too.  The projection is two matmuls and a sum here: of the rows side by side it would
 * be one.  Over tp each rank projects its rows where rows are shared out, else all of them;
 * Megatron shares out columns.
 *
 * Recomputation is for these layers what it is for the others, see choose_redo; they count as one
 * and as the last of their stage.
 */
#include "sim/blocks_layer.h"

uint32_t mtp_layers(const Build *b)
{
    const Model *model = &b->s->model;
    const Transformer *m = &model->u.transformer;
    bool trains = model->kind == MODEL_TRANSFORMER && (b->sw->mtp || m->mtp_asked);
    return trains ? m->mtp_layers : 0;
}

bool mtp_check(const Build *b, Err *err)
{
    Strategy strategy = b->s->parallel.strategy;
    uint32_t n = mtp_layers(b);
    if (n > MTP_LAYERS_MAX)
        return err_set(err,
                       "%" PRIu32 " layers that predict further tokens are too many: "
                       "model.mtp_layers up to %d is allowed",
                       n, MTP_LAYERS_MAX);
    if (n > 0 && b->s->model.u.transformer.embedding_dim != b->s->model.u.transformer.hidden)
        return err_set(err, "layers that predict further tokens cannot be trained beside a "
                            "projected embedding; model.mtp_layers 0 is allowed");
    if (n > 0 && (strategy == STRATEGY_DP || strategy == STRATEGY_MODEL_PARALLEL))
        return err_set(err,
                       "layers that predict further tokens cannot be trained by "
                       "parallel.strategy '%s'; model.mtp_layers 0 is allowed",
                       strategy_names[strategy]);
    return true;
}

static uint32_t project(Maker *k, uint32_t x, const char *name)
{
    x = tape_quantize(k->b, k->t, tape_narrow(k->b, k->t, x));
    LinearSpec spec = { .name = name, .columns = k->m->hidden, .quantized = true };
    return tape_linear(k->b, k->t, x, &spec);
}

/* x: what the layer before made; tokens: data, one a row. */
static uint32_t predict(Maker *k, uint32_t x, uint32_t tokens)
{
    uint32_t rows = block_token_rows(k, tokens, block_vocab_param(k, true));
    uint32_t y = project(k, block_norm(k, x, "mtp.hidden_norm"), "mtp.project_hidden");
    uint32_t z = project(k, block_norm(k, rows, "mtp.token_norm"), "mtp.project_tokens");
    return block_layer(k, tape_add(k->b, k->t, y, z), block_turn_to(k, k->m->layers - 1));
}

static uint32_t targets(Maker *k, uint32_t ahead)
{
    const char *name = arena_printf(k->t->arena, "targets %" PRIu32, ahead);
    return tape_data(k->t, name, DTYPE_I64, k->rows, 1);
}

void mtp_make(Maker *k, uint32_t x, BlockPlan *plan, uint32_t target)
{
    uint32_t n = mtp_layers(k->b), made[MTP_LAYERS_MAX];
    plan->redo_first = k->t->ops_n;
    uint32_t tokens[MTP_LAYERS_MAX + 1] = { target };
    for (uint32_t i = 0; i < n; i++) {
        made[i] = x = predict(k, x, tokens[i]);
        tokens[i + 1] = targets(k, i + 2);
    }
    plan->redo_end = k->t->ops_n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t normed = block_norm(k, made[i], "mtp.final_norm");
        tape_cross_entropy(k->b, k->t, block_logits(k, normed), tokens[i + 1]);
    }
}
