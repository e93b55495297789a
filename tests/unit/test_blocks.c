/*
 * test_blocks.c - blocks of models against closed forms: parameters, flops, memory, lives.
 */
#include "tests/unit/block_world.h"

/* ---- parameters ---- */

static void every_parameter_of_the_model_is_in_a_block(void)
{
    for (int i = 0; i < ZOO_N; i++) {
        World w;
        world_transformer(&w, zoo(i));
        CHECK(world_build(&w));
        CHECK_U64(model_params(&w.s.model), sum_params(&w));
        world_free(&w);
    }
    World olmo;
    world_transformer(&olmo, zoo(ZOO_BRANCH_NORM));
    olmo.s.model.u.transformer.qk_norm_whole = true;
    CHECK(world_build(&olmo));
    CHECK_U64(model_params(&olmo.s.model), sum_params(&olmo));
    world_free(&olmo);
    World cohere;
    world_transformer(&cohere, zoo(ZOO_QWEN));
    cohere.s.model.u.transformer.qk_norm_own = true;
    CHECK(world_build(&cohere));
    CHECK_U64(model_params(&cohere.s.model), sum_params(&cohere));
    world_free(&cohere);
    for (int batchnorm = 0; batchnorm < 2; batchnorm++) {
        World w;
        world_mlp(&w, mlp_like(batchnorm));
        CHECK(world_build(&w));
        CHECK_U64(model_params(&w.s.model), sum_params(&w));
        world_free(&w);
    }
    World w;
    world_convnet(&w);
    CHECK(world_build(&w));
    CHECK_U64(25557032,
              sum_params(&w)); /* torchvision.models.resnet50, its weights' num_params */
    world_free(&w);
}

static void a_pipeline_holds_tied_embeddings_at_both_ends(void)
{
    World w;
    world_transformer(&w, zoo(ZOO_GPT2));
    w.s.parallel.pp = 2;
    CHECK(world_build(&w));
    const Transformer *m = &w.s.model.u.transformer;
    CHECK_U64(model_params(&w.s.model) + (uint64_t)m->vocab * m->hidden, sum_params(&w));
    uint32_t shared_n = 0;
    for (uint32_t i = 0; i < w.b.blocks_n; i++)
        for (uint32_t p = 0; p < world_type(&w, i)->params_n; p++)
            shared_n += world_type(&w, i)->params[p].shared;
    CHECK_INT(2, shared_n);
    CHECK_INT(w.b.blocks_n - 1, w.b.blocks[w.b.blocks_n - 1].frame_of);
    world_free(&w);
}

static void on_one_stage_the_head_uses_the_frames_of_the_embedding(void)
{
    World w;
    world_transformer(&w, zoo(ZOO_GPT2));
    CHECK(world_build(&w));
    uint32_t last = w.b.blocks_n - 1;
    const BlockType *embedding = world_type(&w, 0), *head = world_type(&w, last);
    CHECK_INT(0, w.b.blocks[last].frame_of);
    CHECK_INT(embedding->param_layout, head->param_layout);
    CHECK_INT(embedding->grad_layout, head->grad_layout);
    CHECK_INT(0, head->params_n);
    CHECK_U64(2 * embedding->elements, layout_sum(&w, embedding->param_layout)); /* bf16 */
    /* The head writes the gradient of the table, the embedding adds to it. */
    const Op *scatter = find_op(&w, embedding->backward[VARIANT_PLAIN][GRAD_BORN], OP_EMBEDDING,
                                PHASE_WGRAD, 1);
    CHECK_INT(ARG_UPDATE, w.g.args[scatter->arg_first + scatter->arg_n - 1].mode);
    const Op *wgrad =
        find_op(&w, head->backward[VARIANT_PLAIN][GRAD_BORN], OP_MATMUL, PHASE_WGRAD, 0);
    CHECK(w.g.args[wgrad->arg_first + 2].born);
    world_free(&w);
}

static void the_vocabulary_is_padded_as_the_software_says(void)
{
    World w;
    world_transformer(&w, gpt_like(1, 64, 4, 97));
    w.sw.vocab_multiple = 128;
    CHECK(world_build(&w));
    CHECK_U64(model_params(&w.s.model) + (128 - 97) * 64, sum_params(&w));
    world_free(&w);
}

/* torch.optim makes moments as what it updates: bf16 parameters, or f32 masters. */
static void moments_may_have_the_format_of_parameters(void)
{
    for (int masters = 0; masters < 2; masters++) {
        World w;
        world_transformer(&w, zoo(ZOO_LLAMA));
        w.sw.states_like_params = true;
        w.s.training.master_weights = masters;
        CHECK(world_build(&w));
        const BlockType *t = world_type(&w, 1);
        CHECK_U64((masters ? 3 * 4 : 2 * 2) * t->elements, layout_sum(&w, t->state_layout));
        world_free(&w);
    }
}

/* Apex's distributed optimizer: what bf16 parameters lack of f32 masters, but where weights are
 * fp8; whoever keeps whole states has f32 masters. */
static void masters_may_be_the_bits_that_parameters_lack(void)
{
    static const Strategy strategies[] = { STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2 };
    for (size_t i = 0; i < 2 * ARRAY_N(strategies); i++) {
        bool fp8 = i % 2 > 0, ddp = strategies[i / 2] == STRATEGY_DDP;
        World w;
        world_transformer(&w, zoo(ZOO_LLAMA));
        w.sw.master_remainders = true;
        w.s.parallel.strategy = strategies[i / 2];
        w.s.training.precision = fp8 ? DTYPE_FP8 : DTYPE_BF16;
        CHECK(world_build(&w));
        const BlockType *t = world_type(&w, 1);
        CHECK_U64((fp8 || ddp ? 12 : 10) * t->elements, layout_sum(&w, t->state_layout));
        world_free(&w);
    }
}

static void optimizer_state_is_f32(void)
{
    static const struct {
        Optimizer optimizer;
        bool master;
        uint32_t f32_per_element;
    } cases[] = { { OPT_SGD, false, 0 },
                  { OPT_MOMENTUM, false, 1 },
                  { OPT_ADAM, false, 2 },
                  { OPT_ADAMW, true, 3 } };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        World w;
        world_transformer(&w, zoo(ZOO_LLAMA));
        w.s.training.optimizer = cases[i].optimizer;
        w.s.training.master_weights = cases[i].master;
        CHECK(world_build(&w));
        const BlockType *t = world_type(&w, 1);
        CHECK_U64(4 * cases[i].f32_per_element * t->elements, layout_sum(&w, t->state_layout));
        world_free(&w);
    }
}

/* ---- flops ---- */

/* Weights that are multiplied, per token: all matrices but the tables. */
static double matmul_params(const Transformer *m)
{
    double q = (double)m->heads * m->head_dim, kv = (double)m->kv_heads * m->head_dim;
    double attention = m->hidden * (q + 2 * kv) + q * m->hidden;
    double mlp = (double)m->hidden * m->ffn * (m->gated ? 3 : 2);
    return m->layers * (attention + mlp) + (double)m->vocab * m->hidden;
}

/*
 * A matmul does 2 flops per weight and token forward and 4 backward; attention
 * multiplies two s x s matrices of each head with head_dim columns:
 * 3 * 2 * 2 * s * s * hidden per layer and sample.
 */
static void model_flops_are_six_per_parameter_and_attention(void)
{
    const Transformer models[] = { gpt_like(12, 768, 12, 50257),
                                   llama_like(32, 4096, 32, 8, 14336, 128256), zoo(ZOO_NEOX) };
    for (size_t i = 0; i < ARRAY_N(models); i++) {
        World w;
        world_transformer(&w, models[i]);
        w.s.training.seq_len = 1024;
        CHECK(world_build(&w));
        const Transformer *m = &models[i];
        double s = w.s.training.seq_len, tokens = s * w.s.training.micro_batch;
        double width = (double)m->heads * m->head_dim;
        double expect = 6 * matmul_params(m) * tokens + 12 * m->layers * width * s * tokens;
        CHECK_NEAR(expect, sum_blocks(&w, VARIANT_PLAIN).model_flops, 1e-12);
        world_free(&w);
    }
}

/* Megatron-LM's formula (arXiv 2104.04473, equation 2, without recomputation: 72 for 96). */
static void gpt3_has_the_flops_of_megatrons_formula(void)
{
    World w;
    world_transformer(&w, gpt_like(96, 12288, 96, 51200));
    w.s.training.seq_len = 2048;
    w.s.training.micro_batch = 1;
    CHECK(world_build(&w));
    double B = 1, s = 2048, l = 96, h = 12288, V = 51200;
    double expect = 72 * B * s * l * h * h * (1 + s / (6 * h) + V / (12 * l * h));
    CHECK_NEAR(expect, sum_blocks(&w, VARIANT_PLAIN).model_flops, 1e-12);
    world_free(&w);
}

static double attention_flops(const World *w, OpPhase phase, bool model)
{
    const BlockType *t = world_type(w, 1);
    uint32_t s = phase == PHASE_FORWARD ? t->forward[VARIANT_PLAIN]
                                        : t->backward[VARIANT_PLAIN][GRAD_BORN];
    const Op *op = find_op(w, s, OP_ATTENTION, phase, 0);
    return model ? op->model_flops : op->flops;
}

/* Counts the pairs one by one. */
static double count_pairs(uint64_t seq, bool causal, uint64_t window)
{
    double n = 0;
    for (uint64_t q = 0; q < seq; q++)
        for (uint64_t k = 0; k < seq; k++)
            n += (!causal || k <= q) && (!window || (k + window > q && k < q + window));
    return n;
}

/* Every query sees its chunk up to itself. */
static void chunks_see_themselves_alone(void)
{
    for (uint32_t chunk = 5; chunk < 32; chunk++) {
        World w;
        world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
        w.s.model.u.transformer.window = chunk;
        w.s.model.u.transformer.chunked = true;
        CHECK(world_build(&w));
        double pairs = 0;
        for (uint32_t query = 0; query < 32; query++)
            pairs += 1 + query % chunk;
        CHECK_NEAR(4.0 * 16 * 4 * 2 * pairs, attention_flops(&w, PHASE_FORWARD, false), 0);
        world_free(&w);
    }
}

static void attention_computes_the_pairs_that_the_mask_lets_through(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.s.model.u.transformer.window = 8;
    CHECK(world_build(&w));
    double per_pair = 4.0 * 16 * 4 * 2; /* two matmuls, head_dim, heads, samples */
    CHECK_NEAR(per_pair * count_pairs(32, true, 8), attention_flops(&w, PHASE_FORWARD, false),
               0);
    world_free(&w);

    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    CHECK(world_build(&w));
    double causal = per_pair * count_pairs(32, true, 0), all = per_pair * 32 * 32;
    CHECK_NEAR(causal, attention_flops(&w, PHASE_FORWARD, false), 0);
    CHECK_NEAR(all, attention_flops(&w, PHASE_FORWARD, true), 0);
    /* Backward: four matmuls, and the scores once more. */
    CHECK_NEAR(2.5 * causal, attention_flops(&w, PHASE_DGRAD, false), 0);
    CHECK_NEAR(2 * all, attention_flops(&w, PHASE_DGRAD, true), 0);
    world_free(&w);

    for (uint32_t window = 31; window <= 33; window++) { /* what is no shorter masks nothing */
        world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
        w.s.model.u.transformer.window = window;
        CHECK(world_build(&w));
        uint32_t s = world_type(&w, 1)->forward[VARIANT_PLAIN];
        const Op *op = find_op(&w, s, OP_ATTENTION, PHASE_FORWARD, 0);
        CHECK_U64(window < 32 ? window : 0, op->u.attention.window);
        CHECK_NEAR(per_pair * count_pairs(32, true, window), op->flops, 0);
        world_free(&w);
    }

    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.b.model_flops_causal = true;
    CHECK(world_build(&w));
    CHECK_NEAR(causal, attention_flops(&w, PHASE_FORWARD, true), 0);
    world_free(&w);

    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.s.training.attention = ATTENTION_MATH; /* computes what it then masks */
    CHECK(world_build(&w));
    CHECK_NEAR(all, attention_flops(&w, PHASE_FORWARD, false), 0);
    CHECK_NEAR(2 * all, attention_flops(&w, PHASE_DGRAD, false), 0);
    world_free(&w);
}

/* torchvision's documentation of ResNet50_Weights: 4.09 GFLOPS, a multiply-add counted once. */
static void resnet50_has_the_published_flops(void)
{
    World w;
    world_convnet(&w);
    w.s.training.micro_batch = 1;
    CHECK(world_build(&w));
    double forward = 0;
    for (uint32_t i = 0; i < w.b.blocks_n; i++) {
        Sums sums = { 0 };
        add_segment(&w, world_type(&w, i)->forward[VARIANT_PLAIN], &sums);
        forward += sums.flops;
    }
    CHECK_NEAR(4.09e9, forward / 2, 0.002);
    /* Backward is twice forward, but the images need no gradient. */
    const Op *stem =
        find_op(&w, world_type(&w, 0)->forward[VARIANT_PLAIN], OP_CONV, PHASE_FORWARD, 0);
    CHECK_NEAR(3 * forward - stem->flops, sum_blocks(&w, VARIANT_PLAIN).flops, 1e-12);
    world_free(&w);
}

static void mlp_flops_are_six_per_weight_and_sample(void)
{
    World w;
    world_mlp(&w, mlp_like(false));
    CHECK(world_build(&w));
    double weights = 16 * 64 + 64 * 64 + 64 * 64 + 64 * 8;
    double batch = w.s.training.micro_batch;
    CHECK_NEAR(6 * weights * batch - 2 * 16 * 64 * batch, sum_blocks(&w, VARIANT_PLAIN).flops,
               1e-12);
    world_free(&w);
}

/* ---- activations kept ---- */

/*
 * Korthikanti et al. 2022 (arXiv 2205.05198), equation 1, bytes per layer with
 * 2-byte activations: sbh (34 + 5as/h) with dropout.  Without it there is no mask
 * after attention (sbh) nor after the MLP (sbh), and of the scores only the softmax
 * stays (2 of 5 as^2 b: no mask, no output of dropout).  The first norm's input is
 * SLOT_IN.  The paper leaves out statistics of the norms: two of f32 per row, here.
 */
static void a_gpt_layer_keeps_what_the_paper_counts(void)
{
    for (int dropout = 0; dropout < 2; dropout++) {
        World w;
        world_transformer(&w, gpt_like(2, 256, 8, 512));
        w.s.training.attention = ATTENTION_MATH;
        w.s.training.seq_len = 128;
        w.sw.dropout = dropout;
        CHECK(world_build(&w));
        uint64_t s = 128, b = 2, h = 256, a = 8;
        uint64_t paper = s * b * h * 34 + 5 * a * s * s * b;
        if (!dropout)
            paper -= 2 * s * b * h + 3 * a * s * s * b;
        uint64_t in = 2 * s * b * h, stats = 2 * (2 * 4 * s * b);
        CHECK_U64(paper - in + stats,
                  layout_sum(&w, world_type(&w, 1)->stash_layout[VARIANT_PLAIN]));
        world_free(&w);
    }
}

/* Fused attention keeps an f32 per row of scores instead of the softmax. */
static void fused_attention_keeps_no_scores(void)
{
    World w;
    world_transformer(&w, gpt_like(2, 256, 8, 512));
    w.s.training.seq_len = 128;
    CHECK(world_build(&w));
    uint64_t s = 128, b = 2, h = 256, a = 8;
    uint64_t expect = s * b * h * (34 - 2 - 2) + 4 * a * s * b + 2 * (2 * 4 * s * b);
    CHECK_U64(expect, layout_sum(&w, world_type(&w, 1)->stash_layout[VARIANT_PLAIN]));
    world_free(&w);
}

/* Llama: two norms out, q k v, attention out, the sum between, gate and up, their product. */
static void a_llama_layer_keeps_nothing_else(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    for (int fused = 0; fused < 2; fused++) {
        w.sw.fused_gated = fused;
        CHECK(world_build(&w));
        uint64_t rows = 2 * 32, h = 64, kv = 2 * 16, ffn = 96;
        uint64_t columns = h + (h + 2 * kv) + h + h + h + 2 * ffn + ffn;
        if (!fused) /* act(gate) as well */
            columns += ffn;
        uint64_t numbers = 2 * rows * columns + 4 * rows * (1 + 1 + 4); /* rms twice, lse */
        CHECK_U64(numbers, layout_sum(&w, world_type(&w, 1)->stash_layout[VARIANT_PLAIN]));
        world_free(&w);
    }
}

static void f32_training_keeps_four_bytes_each(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.s.training.precision = DTYPE_TF32;
    w.s.training.param_dtype = w.s.training.grad_dtype = DTYPE_F32;
    CHECK(world_build(&w));
    CHECK_U64(4 * 2 * 32 * 64, w.b.boundary_bytes);
    CHECK_U64(4 * world_type(&w, 1)->elements, layout_sum(&w, world_type(&w, 1)->param_layout));
    const Op *up =
        find_op(&w, world_type(&w, 1)->forward[VARIANT_PLAIN], OP_MATMUL, PHASE_FORWARD, 0);
    CHECK_INT(DTYPE_TF32, up->dtype);
    world_free(&w);
}

/* As Transformer Engine: matmuls of the layers read, and backward keeps, their input in fp8. */
static void fp8_keeps_the_inputs_of_matmuls_in_a_byte(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.s.training.precision = DTYPE_FP8;
    CHECK(world_build(&w));
    uint64_t rows = 2 * 32, h = 64, kv = 2 * 16, ffn = 96;
    uint64_t bytes = rows * (h + h + h + ffn);            /* inputs, fp8 */
    bytes += 2 * rows * ((h + 2 * kv) + h + h + 2 * ffn); /* the rest */
    bytes += 4 * rows * (1 + 1 + 4);                      /* rms twice, lse */
    CHECK_U64(bytes, layout_sum(&w, world_type(&w, 1)->stash_layout[VARIANT_PLAIN]));
    Sums fp8 = sum_blocks(&w, VARIANT_PLAIN);
    for (uint32_t i = 0; i < w.g.ops_n; i++) {
        const Op *op = &w.g.ops[i];
        bool head = op->kind == OP_MATMUL && name_is(&w, op, "head");
        if (op->kind == OP_MATMUL)
            CHECK_INT(head ? DTYPE_BF16 : DTYPE_FP8, op->dtype);
        /* Both that it reads, weights too, are a byte each. */
        const MatmulShape *s = &op->u.matmul;
        if (op->kind == OP_MATMUL && !head && op->phase != PHASE_WGRAD)
            CHECK_U64(s->m * s->k + s->k * s->n, op->read_bytes);
    }
    world_free(&w);
    w.s.training.precision = DTYPE_BF16;
    CHECK(world_build(&w));
    CHECK_NEAR(sum_blocks(&w, VARIANT_PLAIN).flops, fp8.flops, 0);
    world_free(&w);
}

/* ---- recomputation ---- */

static void full_recomputation_keeps_nothing_and_repeats_forward(void)
{
    for (int early = 0; early < 2; early++) {
        World w;
        world_transformer(&w, gpt_like(2, 256, 8, 512));
        w.s.training.recompute = RECOMPUTE_FULL;
        w.sw.recompute_stops_early = early;
        CHECK(world_build(&w));
        const BlockType *t = world_type(&w, 1);
        CHECK_INT(NONE_U32, t->stash_layout[VARIANT_RECOMPUTE]);
        CHECK(t->stash_layout[VARIANT_PLAIN] != NONE_U32);
        Sums plain = sum_block(&w, 1, VARIANT_PLAIN),
             again = sum_block(&w, 1, VARIANT_RECOMPUTE);
        Sums forward = { 0 };
        add_segment(&w, t->forward[VARIANT_PLAIN], &forward);
        /* The last matmul's result is nobody's input in backward. */
        const Op *last = find_op(&w, t->forward[VARIANT_PLAIN], OP_MATMUL, PHASE_FORWARD, 3);
        double left_out = early ? last->flops : 0;
        CHECK_NEAR(plain.flops + forward.flops - left_out, again.flops, 1e-12);
        CHECK_NEAR(plain.model_flops, again.model_flops, 1e-12);
        /* A forward more, causal attention counted as in the first. */
        CHECK_NEAR(plain.model_flops + forward.model_flops - left_out, again.hardware_flops,
                   1e-12);
        /* The ends of the model are not recomputed. */
        CHECK_INT(world_type(&w, 0)->forward[VARIANT_PLAIN],
                  world_type(&w, 0)->forward[VARIANT_RECOMPUTE]);
        world_free(&w);
    }
}

/* A stack that is several: those that reduce in f32 stop early. */
static void later_versions_may_stop_early(void)
{
    double flops[2][2];
    for (int f32 = 0; f32 < 2; f32++)
        for (int later = 0; later < 2; later++) {
            World w;
            world_transformer(&w, gpt_like(2, 256, 8, 512));
            w.s.training.recompute = RECOMPUTE_FULL;
            w.s.training.reduce_dtype = f32 ? DTYPE_F32 : DTYPE_BF16;
            w.s.training.reduce_dtype_set = true;
            w.sw.f32_reduce_stops_early = later;
            CHECK(world_build(&w));
            flops[f32][later] = sum_block(&w, 1, VARIANT_RECOMPUTE).flops;
            world_free(&w);
        }
    CHECK_NEAR(flops[0][0], flops[0][1], 0);
    CHECK_NEAR(flops[0][0], flops[1][0], 0);
    CHECK(flops[1][1] < 0.95 * flops[1][0]);
}

/* What a checkpoint costs the host: of both passes over what is computed again, unless compiled. */
static void checkpoints_cost_the_host(void)
{
    for (int compiled = 0; compiled < 2; compiled++) {
        World w;
        world_transformer(&w, gpt_like(2, 256, 8, 512));
        w.s.training.recompute = RECOMPUTE_FULL;
        w.s.training.compiled = compiled;
        w.sw.checkpoint_launches = 7;
        CHECK(world_build(&w));
        const BlockType *t = world_type(&w, 1);
        const Segment *all = w.g.segments;
        uint32_t own = compiled ? 0 : 7;
        CHECK_INT(own, all[t->forward[VARIANT_RECOMPUTE]].host_before);
        CHECK_INT(own, all[t->backward[VARIANT_RECOMPUTE][GRAD_BORN]].host_before);
        CHECK_INT(0, all[t->forward[VARIANT_PLAIN]].host_before);
        CHECK_INT(0, all[t->backward[VARIANT_PLAIN][GRAD_BORN]].host_before);
        world_free(&w);
    }
}

static void open_autocast(World *w)
{
    world_transformer(w, gpt_like(2, 256, 8, 512));
    w->sw.f32_params = w->sw.f32_stream = true;
}

/* torch.autocast on GPT-2, s tokens of width h: kept are f32 residuals (the block's input is the
 * boundary), casts of what norms gave and of the weights, and what matmuls gave, in bf16. */
static void autocast_keeps_casts_and_f32_residuals(void)
{
    World w;
    open_autocast(&w);
    w.s.training.recompute = RECOMPUTE_FULL;
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    uint64_t s = 2 * 32, h = 256, weights = 12 * h * h;
    uint64_t norms = 2 * (2 * s * h + 2 * 4 * s) + 4 * s * h; /* casts, statistics, residual */
    uint64_t attention = 2 * s * (3 * h + h) + 4 * s * 8, mlp = 2 * s * (4 * h + 4 * h);
    CHECK_U64(norms + attention + mlp + 2 * weights,
              layout_sum(&w, t->stash_layout[VARIANT_PLAIN]));
    CHECK_INT(NONE_U32, t->stash_layout[VARIANT_RECOMPUTE]);
    CHECK_U64(4 * s * h, layout_sum(&w, t->in_layout));
    CHECK_U64(4 * t->elements, layout_sum(&w, t->param_layout));
    CHECK_U64(4 * t->elements, layout_sum(&w, t->grad_layout));
    CHECK_U64(8 * t->elements, layout_sum(&w, t->state_layout)); /* no master weights */
    world_free(&w);
}

/* With a pipeline, where several micro-batches are under way, weights are cast again. */
static void casts_are_kept_for_one_backward_alone(void)
{
    for (uint32_t pp = 1; pp < 3; pp++) {
        World w;
        open_autocast(&w);
        w.s.parallel.pp = pp;
        CHECK(world_build(&w));
        const BlockType *t = world_type(&w, 1);
        uint32_t backward = t->backward[VARIANT_PLAIN][GRAD_BORN];
        CHECK_INT(pp == 1, find_op(&w, backward, OP_CAST, PHASE_RECOMPUTE, 0) == NULL);
        uint64_t weights = 2 * 12 * 256 * 256;
        CHECK_INT(pp == 1, layout_sum(&w, t->stash_layout[VARIANT_PLAIN]) > weights);
        world_free(&w);
    }
}

/* Checkpointing casts all weights again; stopping early it does so without the last matmul. */
static void weights_are_cast_again(void)
{
    for (int early = 0; early < 2; early++) {
        World w;
        open_autocast(&w);
        w.s.training.recompute = RECOMPUTE_FULL;
        w.sw.recompute_stops_early = early;
        CHECK(world_build(&w));
        uint32_t backward = world_type(&w, 1)->backward[VARIANT_RECOMPUTE][GRAD_BORN];
        uint32_t casts = 0;
        const Op *op;
        for (uint32_t n = 0; (op = find_op(&w, backward, OP_CAST, PHASE_RECOMPUTE, n)); n++)
            casts += !name_is(&w, op, "autocast");
        CHECK_INT(4, casts);
        CHECK_STR(early ? "attention.qkv attention.out mlp.up"
                        : "attention.qkv attention.out mlp.up mlp.down",
                  world_redone(&w, 1));
        world_free(&w);
    }
}

/* Norms and activation again: their outputs and statistics are not kept. */
static void selective_recomputation_keeps_the_inputs_of_what_is_cheap(void)
{
    World w;
    world_transformer(&w, gpt_like(2, 256, 8, 512));
    w.s.training.recompute = RECOMPUTE_SELECTIVE;
    w.sw.selective_norm = w.sw.selective_activation = true;
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    uint64_t rows = 2 * 32, h = 256;
    uint64_t norms = 2 * (2 * rows * h + 2 * 4 * rows), activation = 2 * rows * 4 * h;
    CHECK_U64(layout_sum(&w, t->stash_layout[VARIANT_PLAIN]) - norms - activation,
              layout_sum(&w, t->stash_layout[VARIANT_RECOMPUTE]));
    CHECK_NEAR(sum_block(&w, 1, VARIANT_PLAIN).flops, sum_block(&w, 1, VARIANT_RECOMPUTE).flops,
               0);
    uint32_t backward = t->backward[VARIANT_RECOMPUTE][GRAD_BORN];
    CHECK(find_op(&w, backward, OP_NORM, PHASE_RECOMPUTE, 1) != NULL);
    CHECK(find_op(&w, backward, OP_ACTIVATION, PHASE_RECOMPUTE, 0) != NULL);
    CHECK(find_op(&w, backward, OP_MATMUL, PHASE_RECOMPUTE, 0) == NULL);
    world_free(&w);
}

/* Korthikanti, section 5: scores computed again leave 34 sbh, here without 2 sbh of masks. */
static void selective_recomputation_of_attention_keeps_no_scores(void)
{
    World w;
    world_transformer(&w, gpt_like(2, 256, 8, 512));
    w.s.training.recompute = RECOMPUTE_SELECTIVE;
    w.s.training.attention = ATTENTION_MATH;
    w.sw.selective_attention = true;
    CHECK(world_build(&w));
    uint64_t sbh = 2 * 32 * 256, stats = 2 * (2 * 4 * 2 * 32);
    CHECK_U64(sbh * (34 - 2) - 2 * sbh + stats,
              layout_sum(&w, world_type(&w, 1)->stash_layout[VARIANT_RECOMPUTE]));
    Sums plain = sum_block(&w, 1, VARIANT_PLAIN), again = sum_block(&w, 1, VARIANT_RECOMPUTE);
    CHECK_NEAR(plain.flops + attention_flops(&w, PHASE_FORWARD, false), again.flops, 1e-12);
    world_free(&w);
}

/*
 * torchtitan's "op": attention and every other matmul are kept.  Of qkv, out,
 * gate_up, down that is q k v (after rope, in place), attention's result and lse,
 * gate and up.
 */
static void all_but_attention_and_every_second_matmul_can_be_done_again(void)
{
    World w;
    world_selective(&w);
    w.sw.selective_op = true;
    w.s.model.u.transformer.positions = POS_NONE;
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    CHECK_STR("attention.out", world_redone(&w, 1));
    uint64_t rows = 2 * 32, columns = (64 + 2 * 32) + 64 + 2 * 96;
    CHECK_U64(2 * rows * columns + 4 * rows * 4,
              layout_sum(&w, t->stash_layout[VARIANT_RECOMPUTE]));
    world_free(&w);
}

static uint64_t flops_of_matmul(uint64_t rows, uint64_t n, uint64_t k)
{
    return 2 * rows * n * k;
}

/*
 * Where gate and up are matmuls of their own, so are q, k and v, up is the sixth: gate is kept and
 * up done again.  down is the seventh: nobody reads it, and eager mode keeps it all the same.
 */
static void of_gate_and_up_one_is_done_again(void)
{
    for (int compiled = 0; compiled < 2; compiled++) {
        World w;
        world_selective(&w);
        w.s.training.compiled = compiled;
        w.sw.fused_qkv = w.sw.fused_gate_up = false;
        w.sw.selective_op = w.sw.fused_gated = true;
        w.s.model.u.transformer.positions = POS_NONE;
        CHECK(world_build(&w));
        const BlockType *t = world_type(&w, 1);
        uint32_t backward = t->backward[VARIANT_RECOMPUTE][GRAD_BORN];
        const Op *out = find_op(&w, backward, OP_MATMUL, PHASE_RECOMPUTE, 0);
        const Op *up = find_op(&w, backward, OP_MATMUL, PHASE_RECOMPUTE, 1);
        CHECK_STR("attention.out mlp.up", world_redone(&w, 1));
        uint64_t rows = 2 * 32, down = compiled ? 0 : 64;
        CHECK_U64(96, up->u.matmul.n);
        CHECK_NEAR((double)flops_of_matmul(rows, 96, 64), up->flops, 1e-12);
        CHECK_NEAR(up->flops, up->model_flops, 1e-12); /* of hardware flops */
        CHECK_U64(2 * (rows * 64 + 96 * 64), up->read_bytes);
        CHECK_U64(2 * rows * 96, up->write_bytes);
        uint64_t columns = (64 + 2 * 32) + 64 + 96 + down;
        CHECK_U64(2 * rows * columns + 4 * rows * 4,
                  layout_sum(&w, t->stash_layout[VARIANT_RECOMPUTE]));
        Sums plain = sum_block(&w, 1, VARIANT_PLAIN),
             again = sum_block(&w, 1, VARIANT_RECOMPUTE);
        CHECK_NEAR(plain.flops + out->flops + up->flops, again.flops, 1e-12);
        CHECK_NEAR(plain.model_flops, again.model_flops, 1e-12);
        world_free(&w);
    }
}

/* A bias is added to both in place, so that they go one way: of q k v, out, gate up, down, out
 * alone is done again, and down, the seventh, kept. */
static void gate_and_up_with_a_bias_go_together(void)
{
    World w;
    world_selective(&w);
    w.s.model.u.transformer.mlp_bias = true;
    w.s.model.u.transformer.positions = POS_NONE;
    w.sw.fused_qkv = w.sw.fused_gate_up = false;
    w.sw.selective_op = w.sw.fused_gated = true;
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    CHECK_STR("attention.out", world_redone(&w, 1));
    uint64_t rows = 2 * 32, columns = (64 + 2 * 32) + 64 + 2 * 96 + 64;
    CHECK_U64(2 * rows * columns + 4 * rows * 4,
              layout_sum(&w, t->stash_layout[VARIANT_RECOMPUTE]));
    world_free(&w);
}

/* What a reduce-scatter made is kept; the matmul before it runs again all the same, but compiled,
 * where nobody reads that. */
static void eager_mode_runs_again_what_nobody_reads(void)
{
    for (int compiled = 0; compiled < 2; compiled++) {
        World w;
        world_selective(&w);
        w.s.parallel.tp = 2;
        w.s.parallel.sequence_parallel = true;
        w.s.training.compiled = compiled;
        w.sw.fused_qkv = w.sw.fused_gate_up = false;
        w.sw.selective_op = w.sw.fused_gated = true;
        w.s.model.u.transformer.positions = POS_NONE;
        CHECK(world_build(&w));
        CHECK_STR(compiled ? "mlp.up" : "attention.out mlp.up", world_redone(&w, 1));
        world_free(&w);
    }
}

/* torch keeps the matmul's result as it was before rope, which is done again. */
static void rope_is_done_again_on_what_is_kept(void)
{
    for (int compiled = 0; compiled < 2; compiled++) {
        World w;
        world_selective(&w);
        w.s.training.compiled = compiled;
        w.sw.selective_op = true;
        CHECK(world_build(&w));
        uint32_t backward = world_type(&w, 1)->backward[VARIANT_RECOMPUTE][GRAD_BORN];
        CHECK(find_op(&w, backward, OP_ROPE, PHASE_RECOMPUTE, 0) != NULL);
        CHECK(find_op(&w, backward, OP_ROPE, PHASE_RECOMPUTE, 1) == NULL);
        world_free(&w);
    }
}

/* MaxText's save_qkv_proj: q, k and v stay, after rope, in place. */
static void all_but_the_projections_can_be_done_again(void)
{
    World w;
    world_selective(&w);
    w.sw.selective_all_but_qkv = true;
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    uint32_t backward = t->backward[VARIANT_RECOMPUTE][GRAD_BORN];
    CHECK_STR("attention.out mlp.gate_up", world_redone(&w, 1));
    CHECK(find_op(&w, backward, OP_ATTENTION, PHASE_RECOMPUTE, 0) != NULL);
    CHECK(find_op(&w, backward, OP_ROPE, PHASE_RECOMPUTE, 0) == NULL);
    CHECK_U64(2 * 2 * 32 * (64 + 2 * 32), layout_sum(&w, t->stash_layout[VARIANT_RECOMPUTE]));
    world_free(&w);
}

/* ---- lives, lanes, ids ---- */

static void everything_born_dies_once(void)
{
    static const Recompute recompute[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE,
                                           RECOMPUTE_FULL };
    for (int i = 0; i < 3 * 64 * ZOO_N; i++) {
        World w;
        world_transformer(&w, zoo(i % ZOO_N));
        int bits = i / ZOO_N % 64;
        w.s.training.recompute = recompute[i / ZOO_N / 64];
        w.s.training.attention = bits & 1 ? ATTENTION_MATH : ATTENTION_FLASH;
        w.sw.recompute_stops_early = w.sw.fused_cross_entropy = bits & 2;
        w.sw.selective_norm = w.sw.selective_attention = w.sw.fused_gated = bits & 4;
        w.sw.selective_activation = w.sw.selective_op = bits & 8;
        w.sw.fused_qkv = w.sw.fused_gate_up = bits & 1;
        w.sw.selective_all_but_qkv = bits == 6;
        w.s.training.compiled = bits & 2;
        w.sw.dropout = bits & 1;
        w.sw.norm_chain = bits & 32;
        w.s.training.precision = bits & 4 ? DTYPE_FP8 : DTYPE_BF16;
        w.sw.f32_params = w.sw.f32_stream = bits & 16;
        w.s.parallel.pp = bits & 8 ? 2 : 1;
        CHECK(world_build(&w));
        graph_seal(&w.g);
        check_lives(&w);
        world_free(&w);
    }
}

/* BERT learns a second task: its loss comes from the first token of each sample. */
static void a_second_task_adds_its_matmuls(void)
{
    World one, two;
    world_transformer(&one, zoo(ZOO_BERT));
    world_transformer(&two, zoo(ZOO_BERT_TWO_TASKS));
    CHECK(world_build(&one));
    CHECK(world_build(&two));
    double batch = 2, h = 64;
    CHECK_NEAR(sum_blocks(&one, VARIANT_PLAIN).flops + 6 * batch * (h * h + 2 * h),
               sum_blocks(&two, VARIANT_PLAIN).flops, 1e-12);
    world_free(&one);
    world_free(&two);
}

static void networks_that_are_no_transformers_live_alike(void)
{
    for (int i = 0; i < 6; i++) {
        World w;
        if (i < 4)
            world_mlp(&w, mlp_like(i & 1));
        else
            world_convnet(&w);
        w.s.training.loss_mse = i < 2;
        w.s.training.recompute = i % 2 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
        CHECK(world_build(&w));
        graph_seal(&w.g);
        check_lives(&w);
        world_free(&w);
    }
}

/* What forward leaves behind, backward takes: stash and boundaries cancel. */
static void memory_of_forward_and_backward_cancels(void)
{
    for (int i = 0; i < ZOO_N; i++) {
        World w;
        world_transformer(&w, zoo(i));
        CHECK(world_build(&w));
        graph_seal(&w.g);
        const BlockType *t = world_type(&w, 1);
        int64_t forward = world_segment(&w, t->forward[VARIANT_PLAIN])->memory_delta;
        int64_t backward =
            world_segment(&w, t->backward[VARIANT_PLAIN][GRAD_WRITE])->memory_delta;
        int64_t boundary = (int64_t)w.b.boundary_bytes;
        int64_t stash = (int64_t)layout_sum(&w, t->stash_layout[VARIANT_PLAIN]);
        CHECK_INT(stash + boundary, forward);                  /* OUT stays */
        CHECK_INT(-stash - 2 * boundary + boundary, backward); /* IN and DOUT go, DIN stays */
        CHECK_INT(backward + (int64_t)(2 * t->elements),
                  world_segment(&w, t->backward[VARIANT_PLAIN][GRAD_BORN])->memory_delta);
        world_free(&w);
    }
}

static void blocks_hand_on_in_one_layout(void)
{
    World w;
    world_mlp(&w, mlp_like(false));
    CHECK(world_build(&w));
    for (uint32_t i = 0; i + 1 < w.b.blocks_n; i++)
        CHECK_INT(world_type(&w, i)->out_layout, world_type(&w, i + 1)->in_layout);
    CHECK_INT(w.b.blocks[1].type, w.b.blocks[2].type); /* 64 -> 64 twice */
    CHECK_INT(3, w.b.types_n);
    CHECK(!world_type(&w, 0)->has_loss && world_type(&w, 3)->has_loss);
    CHECK_INT(NONE_U32, world_type(&w, 0)->in_layout);
    CHECK_INT(NONE_U32, world_type(&w, 3)->out_layout);
    world_free(&w);

    world_transformer(&w, zoo(ZOO_GEMMA)); /* windows in every second layer */
    CHECK(world_build(&w));
    CHECK_INT(4, w.b.types_n);
    CHECK_INT(w.b.blocks[1].type, w.b.blocks[3].type);
    CHECK(w.b.blocks[1].type != w.b.blocks[2].type);
    world_free(&w);
}

static void a_gradient_is_final_after_its_ready_op(void)
{
    World w;
    world_transformer(&w, zoo(ZOO_GPT2));
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    for (int m = 0; m < GRAD_MODE_N; m++) {
        const Segment *s = world_segment(&w, t->backward[VARIANT_PLAIN][m]);
        for (uint32_t p = 0; p < t->params_n; p++) {
            uint32_t last = NONE_U32;
            for (uint32_t i = 0; i < s->op_n; i++) {
                const Op *op = &graph_ops(&w.g, s)[i];
                for (uint32_t a = 0; a < op->arg_n; a++) {
                    const Arg *arg = &w.g.args[op->arg_first + a];
                    if (arg->slot == SLOT_GRAD && arg->tensor == t->params[p].tensor)
                        last = i;
                }
            }
            CHECK_INT(last, t->ready_op[VARIANT_PLAIN][m][p]);
        }
    }
    world_free(&w);
}

static void later_micro_batches_add_to_gradients(void)
{
    World w;
    world_transformer(&w, zoo(ZOO_LLAMA));
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    for (int m = 0; m < GRAD_MODE_N; m++) {
        const Op *op = find_op(&w, t->backward[VARIANT_PLAIN][m], OP_MATMUL, PHASE_WGRAD, 0);
        const Arg *dw = &w.g.args[op->arg_first + 2];
        CHECK_INT(m == GRAD_ADD, op->u.matmul.accumulate);
        CHECK_INT(m == GRAD_ADD ? ARG_UPDATE : ARG_WRITE, dw->mode);
        CHECK_INT(m == GRAD_BORN, dw->born);
    }
    world_free(&w);
}

/* ids differ neither with what a stack fuses nor with what it recomputes */
static void logical_ids_do_not_depend_on_the_software(void)
{
    World a, b;
    world_transformer(&a, zoo(ZOO_LLAMA));
    world_transformer(&b, zoo(ZOO_LLAMA));
    b.sw = (Software){ .vocab_multiple = 1 };
    b.s.training.recompute = a.s.training.recompute = RECOMPUTE_FULL;
    CHECK(world_build(&a));
    CHECK(world_build(&b));
    for (uint32_t i = 0; i < a.g.segments_n; i++) {
        const Segment *x = world_segment(&a, i), *y = world_segment(&b, i);
        CHECK_INT(x->logical_n, y->logical_n);
        CHECK(x->numbering != 0 && x->numbering == y->numbering);
        for (uint32_t j = 0; j < x->op_n; j++)
            for (uint32_t k = 0; k < y->op_n; k++) {
                const Op *p = &graph_ops(&a.g, x)[j], *q = &graph_ops(&b.g, y)[k];
                if (p->logical == q->logical)
                    CHECK(p->kind == q->kind && p->phase == q->phase);
            }
    }
    world_free(&a);
    world_free(&b);
}

static uint64_t numbering_of(World *w)
{
    CHECK(world_build(w));
    return w->g.segments[world_type(w, 1)->forward[VARIANT_PLAIN]].numbering;
}

/* Of other parameters, or other ops; but not of other rows, which are the same ops on more. */
static void another_model_is_numbered_otherwise(void)
{
    World a, b, wide, other;
    world_transformer(&a, zoo(ZOO_LLAMA));
    world_transformer(&b, zoo(ZOO_LLAMA));
    world_transformer(&wide, zoo(ZOO_LLAMA));
    world_transformer(&other, zoo(ZOO_GPT2));
    b.s.training.micro_batch *= 2;
    wide.s.model.u.transformer.ffn += 64;
    uint64_t numbering = numbering_of(&a);
    CHECK_U64(numbering, numbering_of(&b));
    CHECK(numbering != numbering_of(&wide));
    CHECK(numbering != numbering_of(&other));
    world_free(&a);
    world_free(&b);
    world_free(&wide);
    world_free(&other);
}

/* ---- refusals ---- */

static void what_cannot_be_simulated_yet_is_said(void)
{
    World w;
    world_transformer(&w, zoo(ZOO_GPT2));
    w.s.model.u.transformer.experts = w.s.model.u.transformer.experts_per_token = 4;
    w.s.parallel.tp = w.s.parallel.etp = 2;
    CHECK(!world_build(&w));
    CHECK_ERR_TEXT(&w.err,
                   "experts with biases cannot be split over tp = 2 ranks; parallel.etp "
                   "1 is allowed");
    world_free(&w);

    world_transformer(&w, zoo(ZOO_QWEN));
    w.s.model.u.transformer.qk_norm_whole = true;
    w.s.parallel.tp = 2;
    CHECK(!world_build(&w));
    CHECK_ERR_TEXT(&w.err, "a norm over the queries of all heads cannot be split over tp = 2 "
                           "ranks; 1 is allowed");
    world_free(&w);

    world_mlp(&w, mlp_like(false));
    w.s.parallel.cp = 2;
    CHECK(!world_build(&w));
    CHECK_ERR_TEXT(&w.err, "context parallelism (cp = 2) splits the sequences of transformers");
    world_free(&w);

    world_transformer(&w, zoo(ZOO_LLAMA));
    w.s.parallel.cp = 3;
    CHECK(!world_build(&w));
    CHECK_ERR_TEXT(&w.err, "cp = 3 does not divide the sequence of 32 tokens");
    world_free(&w);

    world_transformer(&w, zoo(ZOO_LLAMA));
    w.s.model.u.transformer.headless = true;
    CHECK(!world_build(&w));
    CHECK_ERR_TEXT(&w.err, "without a head");
    world_free(&w);
}

int main(void)
{
    RUN(every_parameter_of_the_model_is_in_a_block);
    RUN(a_pipeline_holds_tied_embeddings_at_both_ends);
    RUN(on_one_stage_the_head_uses_the_frames_of_the_embedding);
    RUN(the_vocabulary_is_padded_as_the_software_says);
    RUN(optimizer_state_is_f32);
    RUN(masters_may_be_the_bits_that_parameters_lack);
    RUN(moments_may_have_the_format_of_parameters);
    RUN(model_flops_are_six_per_parameter_and_attention);
    RUN(gpt3_has_the_flops_of_megatrons_formula);
    RUN(chunks_see_themselves_alone);
    RUN(attention_computes_the_pairs_that_the_mask_lets_through);
    RUN(resnet50_has_the_published_flops);
    RUN(mlp_flops_are_six_per_weight_and_sample);
    RUN(a_gpt_layer_keeps_what_the_paper_counts);
    RUN(fused_attention_keeps_no_scores);
    RUN(a_llama_layer_keeps_nothing_else);
    RUN(f32_training_keeps_four_bytes_each);
    RUN(fp8_keeps_the_inputs_of_matmuls_in_a_byte);
    RUN(full_recomputation_keeps_nothing_and_repeats_forward);
    RUN(later_versions_may_stop_early);
    RUN(checkpoints_cost_the_host);
    RUN(autocast_keeps_casts_and_f32_residuals);
    RUN(casts_are_kept_for_one_backward_alone);
    RUN(weights_are_cast_again);
    RUN(selective_recomputation_keeps_the_inputs_of_what_is_cheap);
    RUN(selective_recomputation_of_attention_keeps_no_scores);
    RUN(all_but_attention_and_every_second_matmul_can_be_done_again);
    RUN(of_gate_and_up_one_is_done_again);
    RUN(gate_and_up_with_a_bias_go_together);
    RUN(eager_mode_runs_again_what_nobody_reads);
    RUN(rope_is_done_again_on_what_is_kept);
    RUN(all_but_the_projections_can_be_done_again);
    RUN(everything_born_dies_once);
    RUN(a_second_task_adds_its_matmuls);
    RUN(networks_that_are_no_transformers_live_alike);
    RUN(memory_of_forward_and_backward_cancels);
    RUN(blocks_hand_on_in_one_layout);
    RUN(a_gradient_is_final_after_its_ready_op);
    RUN(later_micro_batches_add_to_gradients);
    RUN(logical_ids_do_not_depend_on_the_software);
    RUN(another_model_is_numbered_otherwise);
    RUN(what_cannot_be_simulated_yet_is_said);
    return check_report();
}
