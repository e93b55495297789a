/*
 * blocks_transformer.c - embedding, layer and head of a transformer, on tapes.
 *
 *     pre-norm (GPT, Llama)            x -+- norm -- attention -- (+) -+- norm -- mlp -- (+) -> out
 *                                         +------------------------+   +------------------+
 *     sandwich_norm (Gemma 2)          ... attention -- norm -- (+) ... mlp -- norm -- (+)
 *     branch_norm (OLMo 2)             x -+- attention -- norm -- (+) -+- mlp -- norm -- (+) -> out
 *     post_norm (BERT)                 x -+- attention -- (+) -- norm -+- mlp -- (+) -- norm -> out
 *                                         +-----------------+          +----------+
 *     parallel_block (GPT-NeoX)        x -+- norm -+- attention --+
 *                                         |        +- mlp ------- (+) -- biases -- (+) -> out
 *                                         +---------------------------------------+
 *
 * Layers that are mixtures have their experts in the place of mlp: blocks_moe.c.
 *
 * A parallel block adds its two branches before anything else, so that tensor
 * parallelism needs one collective for both.
 *
 *     embedding   tokens -> rows of the table [-> projection] [+ positions] [+ types] [-> norm]
 *     head        [norm] [-> projection] [-> dense, activation, norm] -> logits [+ bias] -> loss;
 *                 with it the layers that predict further tokens: blocks_mtp.c
 */
#include "sim/blocks_layer.h"

/* ---- pieces ---- */

TapeOp norm_op(Maker *k, uint32_t x, uint64_t width, const char *name)
{
    Tape *t = k->t;
    bool rms = k->m->norm == NORM_RMSNORM;
    TapeOp op = { .kind = OP_NORM,
                  .fn = rms ? FN_RMSNORM : FN_LAYERNORM,
                  .name = name,
                  .dtype = t->values[x].dtype,
                  .in_n = 1,
                  .in = { x },
                  .chain = rms && fusion_of(k->b).norm_chain };
    if (!k->m->norm_plain && width > 0) {
        op.param[op.param_n++] =
            tape_param(t, arena_printf(t->arena, "%s.weight", name), k->param, 1, width);
        if (k->m->norm_bias)
            op.param[op.param_n++] =
                tape_param(t, arena_printf(t->arena, "%s.bias", name), k->param, 1, width);
    }
    return op;
}

static void add_aux(Maker *k, TapeOp *op, const char *name, DType dtype, uint64_t columns,
                    uint64_t kv_columns)
{
    uint32_t v = tape_made(k->t, name, dtype, k->t->values[op->in[0]].rows, columns);
    k->t->values[v].kv_columns = kv_columns;
    op->aux[op->aux_n++] = v;
}

/*
 * Statistics per vector: mean and 1/deviation, or 1/rms alone; in f32.  A chain also keeps its
 * input in f32, which it may be already, and the normed values that the gain multiplies.
 */
uint32_t norm_make(Maker *k, TapeOp op, Normed n)
{
    uint64_t each = k->m->norm == NORM_RMSNORM ? 1 : 2;
    DType dtype = k->t->values[op.in[0]].dtype;
    add_aux(k, &op, "norm statistics", DTYPE_F32, each * n.vectors, each * n.kv_vectors);
    if (op.chain && dtype != DTYPE_F32)
        add_aux(k, &op, "norm input", DTYPE_F32, n.columns, n.kv_columns);
    if (op.chain && op.param_n)
        add_aux(k, &op, "normed", dtype, n.columns, n.kv_columns);
    op.out = tape_made(k->t, op.name, dtype, k->t->values[op.in[0]].rows, n.columns);
    k->t->values[op.out].kv_columns = n.kv_columns;
    tape_op(k->t, op);
    return op.out;
}

uint32_t block_norm(Maker *k, uint32_t x, const char *name)
{
    uint64_t columns = k->t->values[x].columns;
    return norm_make(k, norm_op(k, x, columns, name),
                     (Normed){ .columns = columns, .vectors = 1 });
}

/* Up to the second matmul, without its bias; or the experts. */
static uint32_t mlp(Maker *k, uint32_t x)
{
    if (k->moe)
        return tape_moe(k->b, k->t, tape_narrow(k->b, k->t, x));
    const char *up = k->m->gated ? NAME_GATE_UP : "mlp.up";
    return tape_mlp(k->b, k->t, tape_narrow_for(k->b, k->t, x, up),
                    &(MlpSpec){ .up = up, .down = "mlp.down", .ffn = k->m->ffn });
}

static uint32_t out_bias(Maker *k, uint32_t x)
{
    return k->m->out_bias ? tape_bias(k->b, k->t, x, "attention.out") : x;
}

static uint32_t down_bias(Maker *k, uint32_t x)
{
    return k->m->mlp_bias && !k->moe ? tape_bias(k->b, k->t, x, "mlp.down") : x;
}

/* ---- the layer ---- */

static uint32_t sequential_layer(Maker *k, uint32_t x, uint32_t window)
{
    const Transformer *m = k->m;
    bool before = !m->post_norm && !m->branch_norm, after = m->sandwich_norm || m->branch_norm;
    uint32_t y = before ? block_norm(k, x, "norm1") : x;
    y = tape_dropout(k->b, k->t, out_bias(k, block_attention(k, y, window)));
    if (after)
        y = block_norm(k, y, "norm1_after");
    x = tape_add(k->b, k->t, x, y);
    if (m->post_norm)
        x = block_norm(k, x, "norm1");
    y = before ? block_norm(k, x, "norm2") : x;
    y = tape_dropout(k->b, k->t, down_bias(k, mlp(k, y)));
    if (after)
        y = block_norm(k, y, "norm2_after");
    x = tape_add(k->b, k->t, x, y);
    return m->post_norm ? block_norm(k, x, "norm2") : x;
}

static uint32_t parallel_layer(Maker *k, uint32_t x, uint32_t window)
{
    uint32_t n1 = block_norm(k, x, "norm1");
    uint32_t n2 = k->m->two_norms_parallel ? block_norm(k, x, "norm2") : n1;
    uint32_t a = block_attention(k, n1, window);
    uint32_t y = tape_add(k->b, k->t, a, mlp(k, n2));
    y = tape_dropout(k->b, k->t, down_bias(k, out_bias(k, y)));
    return tape_add(k->b, k->t, x, y);
}

uint32_t block_layer(Maker *k, uint32_t x, uint32_t window)
{
    return k->m->parallel_block ? parallel_layer(k, x, window) : sequential_layer(k, x, window);
}

static uint32_t boundary_input(Maker *k)
{
    uint32_t x = tape_input(k->t, k->stream, k->rows, k->m->hidden);
    k->t->values[x].split = k->b->s->parallel.sequence_parallel ? SPLIT_ROWS : SPLIT_WHOLE;
    return x;
}

static void make_layer(Maker *k, uint32_t window)
{
    k->t->out = block_layer(k, boundary_input(k), window);
}

/* ---- the ends ---- */

static uint64_t padded_vocab(const Build *b, const Transformer *m)
{
    return software_vocab(b->sw, m->vocab, b->s->parallel.tp);
}

static uint32_t table_param(Maker *k, const char *name, uint64_t rows, uint64_t columns)
{
    uint32_t p = tape_param(k->t, name, k->param, rows, columns);
    k->t->values[p].table = true;
    return p;
}

uint32_t block_token_rows(Maker *k, uint32_t tokens, uint32_t table)
{
    Tape *t = k->t;
    uint32_t x = tape_made(t, "embedding", k->stream, k->rows, t->values[table].columns);
    tape_op(t, (TapeOp){ .kind = OP_EMBEDDING,
                         .name = "embedding",
                         .dtype = k->stream,
                         .in_n = 1,
                         .in = { tokens },
                         .param_n = 1,
                         .param = { table },
                         .out = x,
                         .tp = TP_VOCAB });
    return x;
}

/* Adds rows of a small table: by position, or by token type. */
static uint32_t add_rows(Maker *k, uint32_t x, const char *name, uint64_t rows)
{
    uint32_t p = table_param(k, arena_printf(k->t->arena, "%s.weight", name), rows,
                             k->t->values[x].columns);
    return tape_in_place(k->t, (TapeOp){ .kind = OP_EMBEDDING,
                                         .name = name,
                                         .dtype = k->t->values[x].dtype,
                                         .in_n = 1,
                                         .in = { x },
                                         .param_n = 1,
                                         .param = { p } });
}

/* Does the head read the table of tokens? */
static bool head_reads_table(const Build *b)
{
    const Transformer *m = &b->s->model.u.transformer;
    return (m->tied_embeddings && !m->headless) || mtp_layers(b) > 0;
}

static void make_embedding(Maker *k)
{
    const Transformer *m = k->m;
    Tape *t = k->t;
    uint32_t table = table_param(k, "tokens.weight", padded_vocab(k->b, m), m->embedding_dim);
    t->values[table].shared = head_reads_table(k->b) && !ends_meet(k->b);
    t->values[table].adds = head_reads_table(k->b) && ends_meet(k->b);
    uint32_t tokens = tape_data(t, "tokens", DTYPE_I64, k->rows, 1);
    uint32_t x = block_token_rows(k, tokens, table);
    if (m->embedding_dim != m->hidden)
        x = tape_linear(k->b, t, x,
                        &(LinearSpec){ .name = "embedding.project", .columns = m->hidden });
    if (m->position_rows)
        x = add_rows(k, x, "positions", m->position_rows);
    if (m->token_types)
        x = add_rows(k, x, "token_types", m->token_types);
    if (m->embedding_norm)
        x = block_norm(k, x, "embedding.norm");
    t->out = tape_dropout(k->b, t, x);
}

uint32_t block_vocab_param(Maker *k, bool table)
{
    Tape *t = k->t;
    bool of_tokens = table || k->m->tied_embeddings, borrows = of_tokens && ends_meet(k->b);
    uint32_t *first = of_tokens ? &k->table : &k->head;
    TapeValue v = { .name = of_tokens ? "tokens.weight" : "head.weight",
                    .home = VALUE_PARAM,
                    .dtype = k->param,
                    .rows = padded_vocab(k->b, k->m),
                    .columns = k->m->embedding_dim,
                    .table = table,
                    .shared = of_tokens && !borrows,
                    .borrowed = borrows || *first != NONE_U32 };
    /* What is borrowed from the embedding is its first. */
    v.tensor = *first != NONE_U32 ? t->values[*first].tensor : borrows ? 0 : t->params_n++;
    uint32_t p = tape_value(t, v);
    *first = *first != NONE_U32 ? *first : p;
    return p;
}

uint32_t block_logits(Maker *k, uint32_t x)
{
    uint32_t w = block_vocab_param(k, false);
    x = tape_narrow(k->b, k->t, x);
    uint32_t y =
        tape_matmul(k->t, NAME_HEAD, matmul_dtype(&k->b->s->training), x, w, TP_COLUMN);
    return k->m->head_bias ? tape_bias(k->b, k->t, y, "head") : y;
}

static uint32_t head_transform(Maker *k, uint32_t x)
{
    const Transformer *m = k->m;
    x = tape_linear(
        k->b, k->t, tape_narrow(k->b, k->t, x),
        &(LinearSpec){ .name = "head.transform", .columns = m->hidden, .bias = true });
    x = tape_activation(k->b, k->t, x, m->activation, false);
    return block_norm(k, x, "head.norm");
}

/* BERT's second task: the first token of each sample, pooled, tells one of two classes. */
static void next_sentence(Maker *k, uint32_t x)
{
    Tape *t = k->t;
    uint32_t first = tape_made(t, "first tokens", t->values[x].dtype, k->batch, k->m->hidden);
    tape_op(t, (TapeOp){ .kind = OP_COPY,
                         .name = "first tokens",
                         .dtype = t->values[x].dtype,
                         .in_n = 1,
                         .in = { x },
                         .slice = true,
                         .out = first });
    LinearSpec dense = { .name = "pooler", .columns = k->m->hidden, .bias = true };
    LinearSpec classes = { .name = "next_sentence", .columns = 2, .bias = true };
    uint32_t y = tape_linear(k->b, t, tape_narrow(k->b, t, first), &dense);
    y = tape_activation(k->b, t, y, ACT_GELU, false); /* tanh moves the same bytes */
    y = tape_linear(k->b, t, y, &classes);
    uint32_t labels = tape_data(t, "next sentence labels", DTYPE_I64, k->batch, 1);
    tape_cross_entropy(k->b, t, y, labels);
}

static void make_head(Maker *k, BlockPlan *plan)
{
    const Transformer *m = k->m;
    Tape *t = k->t;
    uint32_t from = boundary_input(k), x = from;
    k->table = k->head = NONE_U32;
    if (m->final_norm)
        x = block_norm(k, x, "final_norm");
    if (m->embedding_dim != m->hidden)
        x = tape_linear(k->b, t, tape_narrow(k->b, t, x),
                        &(LinearSpec){ .name = "head.project", .columns = m->embedding_dim });
    if (m->next_sentence)
        next_sentence(k, x);
    if (m->head_transform)
        x = head_transform(k, x);
    uint32_t target = tape_data(t, "targets", DTYPE_I64, k->rows, 1);
    mtp_make(k, from, plan, target);
    tape_cross_entropy(k->b, t, block_logits(k, x), target);
}

/* ---- the whole model ---- */

static bool check(const Build *b, const Transformer *m, Err *err)
{
    uint32_t tp = b->s->parallel.tp;
    if (m->experts && transformer_experts_bias(m) && expert_tp(b) > 1)
        return err_set(err,
                       "experts with biases cannot be split over tp = %" PRIu32
                       " ranks; parallel.etp 1 is allowed",
                       tp);
    if (m->qk_norm_whole && tp > 1)
        return err_set(err,
                       "a norm over the queries of all heads cannot be split over tp = %" PRIu32
                       " ranks; 1 is allowed",
                       tp);
    if (m->headless)
        return err_set(err, "a model without a head cannot be trained; give it one "
                            "(an architecture such as LlamaForCausalLM)");
    if (b->s->training.seq_len % b->s->parallel.cp != 0)
        return err_set(err,
                       "cp = %" PRIu32 " does not divide the sequence of %" PRIu32 " tokens",
                       b->s->parallel.cp, b->s->training.seq_len);
    if (m->pooler && !m->next_sentence)
        return err_set(err, "a pooler without a task cannot be trained");
    if (m->next_sentence && (tp > 1 || b->s->parallel.cp > 1))
        return err_set(err,
                       "next-sentence prediction cannot be split over tp = %" PRIu32
                       " x cp = %" PRIu32 " ranks; 1 is allowed",
                       tp, b->s->parallel.cp);
    if (m->heads % tp != 0)
        return err_set(err, "tp = %" PRIu32 " does not divide the %" PRIu32 " heads", tp,
                       m->heads);
    return mtp_check(b, err);
}

uint32_t block_turn_to(Maker *k, uint32_t layer)
{
    uint32_t window = transformer_window(k->m, layer);
    k->moe = transformer_is_moe(k->m, layer);
    k->nope = transformer_is_nope(k->m, layer);
    return window < k->b->s->training.seq_len ? window : 0;
}

/* Layers differ by their window, by whether they have experts, and by whether positions. */
enum { LAYER_TYPES = 8 };

static uint32_t layer_type(Maker *k, ModelPlan *p, uint32_t *types, uint32_t layer)
{
    static const char *const names[LAYER_TYPES] = {
        "layer",      "windowed layer",      "moe layer",      "windowed moe layer",
        "NoPE layer", "windowed NoPE layer", "NoPE moe layer", "windowed NoPE moe layer"
    };
    uint32_t window = block_turn_to(k, layer);
    uint32_t which = (window ? 1u : 0u) + (k->moe ? 2u : 0u) + (k->nope ? 4u : 0u);
    uint32_t *type = &types[which];
    if (*type == NONE_U32) {
        *type = p->types_n;
        BlockPlan *plan = plan_type(k->b, p, names[which], BLOCK_LAYER);
        k->t = &plan->tape;
        make_layer(k, window);
    }
    return *type;
}

/* What is projected from a narrow embedding is in 16 bits, and so, here, is all that follows. */
static DType stream_dtype(const Build *b)
{
    const Transformer *m = &b->s->model.u.transformer;
    bool projected = m->embedding_dim != m->hidden;
    return projected ? act_dtype(&b->s->training) : build_formats(b).stream;
}

bool plan_transformer(Build *b, ModelPlan *p, Err *err)
{
    const Transformer *m = &b->s->model.u.transformer;
    const Training *training = &b->s->training;
    if (!check(b, m, err))
        return false;
    b->rows = (uint64_t)training->micro_batch * training->seq_len / b->s->parallel.cp;
    Maker k = { .b = b,
                .m = m,
                .batch = training->micro_batch,
                .rows = b->rows,
                .act = act_dtype(training),
                .param = build_formats(b).read,
                .stream = stream_dtype(b) };
    b->blocks = PUSH_ARRAY(&b->arena, Block, m->layers + 2);

    k.t = &plan_type(b, p, "embedding", BLOCK_EMBEDDING)->tape;
    make_embedding(&k);
    uint32_t embedding_params_n = k.t->params_n;
    plan_block(b, BLOCK_EMBEDDING, NONE_U32, 0);
    uint32_t types[LAYER_TYPES];
    for (uint32_t i = 0; i < LAYER_TYPES; i++)
        types[i] = NONE_U32;
    for (uint32_t i = 0; i < m->layers; i++)
        plan_block(b, BLOCK_LAYER, i, layer_type(&k, p, types, i));

    p->tied = head_reads_table(b) && ends_meet(b);
    BlockPlan *head = plan_type(b, p, "head", BLOCK_HEAD);
    k.t = &head->tape;
    if (p->tied)
        k.t->params_n = embedding_params_n; /* its own come after those of the embedding */
    make_head(&k, head);
    plan_block(b, BLOCK_HEAD, NONE_U32, p->types_n - 1);
    if (p->tied)
        b->blocks[b->blocks_n - 1].frame_of = 0;
    return true;
}
