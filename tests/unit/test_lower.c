/*
 * test_lower.c - from logical ops to kernels: nothing lost, counted by hand; software files.
 */
#include "tests/unit/block_world.h"

/* ---- helpers ---- */

/* As graph_seal computes it, but before. */
static int64_t delta_of(const World *w, uint32_t segment)
{
    const Segment *s = world_segment(w, segment);
    int64_t bytes = 0;
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        for (uint32_t a = 0; a < op->arg_n; a++) {
            const Arg *arg = &w->g.args[op->arg_first + a];
            int64_t size = (int64_t)graph_arg_tensor(&w->g, s, arg)->bytes;
            bytes += (arg->born ? size : 0) - (arg->dies ? size : 0);
        }
    }
    return bytes;
}

static uint32_t plain_forward(const World *w)
{
    return world_type(w, 1)->forward[VARIANT_PLAIN];
}

static uint32_t plain_backward(const World *w, GradMode m)
{
    return world_type(w, 1)->backward[VARIANT_PLAIN][m];
}

static bool lowered(World *w)
{
    return world_build(w) && lower(&w->b, &w->err);
}

/* "matmul+bias_gelu norm ..." of a segment. */
static const char *kernels(World *w, uint32_t segment)
{
    const Segment *s = world_segment(w, segment);
    const char *text = "";
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        bool plain = op->fn == FN_NONE || op->kind == OP_ACTIVATION ||
                     (op->kind == OP_NORM && op->fn < FN_ADD_LAYERNORM);
        text =
            arena_printf(&w->b.arena, "%s%s%s%s%s", text, i ? " " : "", op_kind_names[op->kind],
                         plain ? "" : "+", plain ? "" : op_fn_names[op->fn]);
    }
    return text;
}

/* "IN PARAM.1 -> STASH.0": slots of the args of an op, written ones after the arrow. */
static const char *arguments(World *w, uint32_t segment, uint32_t op)
{
    static const char *const modes[] = { "", ">", "*" };
    const Segment *s = world_segment(w, segment);
    const Op *o = &graph_ops(&w->g, s)[op];
    const char *text = "";
    for (uint32_t a = 0; a < o->arg_n; a++) {
        const Arg *arg = &w->g.args[o->arg_first + a];
        text = arena_printf(&w->b.arena, "%s%s%s%s", text, a ? ", " : "", modes[arg->mode],
                            intern_text(&w->g.names, graph_arg_tensor(&w->g, s, arg)->name));
    }
    return text;
}

/* Kernels of a segment that come from the op of this name: how many, and what they move. */
typedef struct Moved {
    uint32_t n;
    uint64_t read, written;
} Moved;

static Moved moved_by(const World *w, uint32_t segment, const char *name)
{
    const Segment *s = world_segment(w, segment);
    Moved m = { 0 };
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        if (strcmp(intern_text(&w->g.names, op->name), name) != 0)
            continue;
        m.n++;
        m.read += op->read_bytes;
        m.written += op->write_bytes;
    }
    return m;
}

static Software facts_by_bits(uint32_t bits)
{
    return (Software){ .fused_attention = true,
                       .fused_qkv = bits & 1,
                       .fused_gate_up = bits & 2,
                       .fused_gated = bits & 4,
                       .fused_bias = bits & 8,
                       .fused_elementwise = bits & 16,
                       .fused_residual_norm = bits & 32,
                       .fused_rope = bits & 64,
                       .fused_cross_entropy = bits & 128,
                       .fused_optimizer = bits & 256,
                       .wgrad_accumulate = bits & 512,
                       .f32_logits = bits & 1024,
                       .norm_chain = bits & 65536,
                       .rope_chain = bits & 131072,
                       .dropout = bits & 262144,
                       .selective_norm = bits & 2,
                       .selective_op = bits & 4,
                       .recompute_stops_early = bits & 8,
                       .fp8_dynamic = bits & 2097152,
                       .f32_params = bits & 4194304,
                       .f32_stream = bits & 8388608,
                       .addmm = bits & 16777216,
                       .keeps_logits = bits & 33554432,
                       .metric_losses = bits >> 26 & 3,
                       .gelu_new_chain = bits & 268435456,
                       .softmax_chain = bits & 536870912,
                       .attention_copies = bits & 1073741824,
                       .repeats_kv = bits & 2147483648,
                       .softmax_multiple = bits & 4096 ? 16 : 0,
                       .softmax_longest = bits & 8192 ? 24 : 0,
                       .tp_async_backward = bits & 16,
                       .vocab_multiple = 1,
                       .overlap = { true, true } };
}

/* ---- nothing is lost ---- */

/* No kernel moves more than its arguments hold: but rows of a small table, logits of which a copy
 * in f32 is meant (over tp), a number picked of two, and what is read once for its scale and once
 * to be cast. */
static void check_traffic(const World *w, const Segment *s, const Op *op)
{
    uint64_t read = 0, written = 0;
    for (uint32_t a = 0; a < op->arg_n; a++) {
        uint64_t bytes = arg_tensor(w, s, op, a)->bytes;
        ArgMode mode = w->g.args[op->arg_first + a].mode;
        read += mode != ARG_WRITE ? bytes : 0;
        written += mode != ARG_READ ? bytes : 0;
    }
    if (op->kind == OP_CAST && op->dtype == DTYPE_FP8)
        read *= 2;
    bool pair = w->s.model.kind == MODEL_TRANSFORMER && w->s.model.u.transformer.next_sentence;
    bool meant = op->kind == OP_CROSS_ENTROPY && (w->s.parallel.tp > 1 || pair);
    if (op->kind != OP_EMBEDDING && !meant &&
        !CHECK(op->read_bytes <= read && op->write_bytes <= written))
        fprintf(stderr, "    '%s', %s\n", intern_text(&w->g.names, op->name),
                op_kind_names[op->kind]);
}

/* Somebody leaves the block before a whole gradient. */
static void check_handed_on(const World *w, const Segment *s)
{
    bool whole = s->layout[SLOT_DIN] == NONE_U32 || s->kind != SEGMENT_BACKWARD;
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        for (uint32_t a = 0; a < op->arg_n; a++) {
            const Arg *arg = &w->g.args[op->arg_first + a];
            whole =
                whole ||
                (arg->slot == SLOT_DIN && arg->mode != ARG_READ &&
                 (op_is_comm(op->kind) || op->write_bytes >= arg_tensor(w, s, op, a)->bytes));
        }
    }
    CHECK(whole);
}

static void check_lowering(World *w)
{
    CHECK(world_build(w));
    uint32_t n = w->g.segments_n;
    double *flops = mem_zero(n, sizeof *flops), *model = mem_zero(n, sizeof *model);
    int64_t *delta = mem_zero(n, sizeof *delta);
    for (uint32_t i = 0; i < n; i++) {
        Sums sums = { 0 };
        add_segment(w, i, &sums);
        flops[i] = sums.flops;
        model[i] = sums.model_flops;
        delta[i] = delta_of(w, i);
    }
    CHECK(lower(&w->b, &w->err));
    graph_seal(&w->g);
    CHECK_INT(n, w->g.segments_n);
    for (uint32_t i = 0; i < n; i++) {
        Sums sums = { 0 };
        add_segment(w, i, &sums);
        CHECK_NEAR(flops[i], sums.flops, 1e-12);
        CHECK_NEAR(model[i], sums.model_flops, 1e-12);
        CHECK_INT(delta[i], world_segment(w, i)->memory_delta);
    }
    for (uint32_t i = 0; i < n; i++)
        check_handed_on(w, world_segment(w, i));
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < world_segment(w, i)->op_n; k++)
            check_traffic(w, world_segment(w, i), &graph_ops(&w->g, world_segment(w, i))[k]);
    check_lives(w);
    free(flops);
    free(model);
    free(delta);
    world_free(w);
}

static void lowering_keeps_flops_and_memory(void)
{
    for (uint32_t i = 0; i < 60 * ZOO_N; i++) {
        World w;
        uint32_t bits = (uint32_t)mix_u64(i);
        world_transformer(&w, zoo((int)(i % ZOO_N)));
        w.sw = facts_by_bits(bits);
        w.s.training.attention = bits & 2048 ? ATTENTION_MATH : ATTENTION_FLASH;
        w.s.training.compiled = bits & 4096;
        w.s.training.precision = bits & 524288 ? DTYPE_FP8 : DTYPE_BF16;
        w.s.training.recompute = bits & 8192 ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE;
        w.s.parallel.tp = bits & 16384 && i % ZOO_N != ZOO_BERT_TWO_TASKS ? 2 : 1;
        w.s.parallel.sequence_parallel = bits & 32768 && w.s.parallel.tp > 1;
        w.s.parallel.cp = bits & 1048576 && w.s.parallel.tp > 1 ? 4 : 1;
        check_lowering(&w);
    }
    for (uint32_t i = 0; i < 64; i++) {
        World w;
        if (i % 4 == 3)
            world_convnet(&w);
        else
            world_mlp(&w, mlp_like(i % 4 == 1));
        w.sw = facts_by_bits((uint32_t)mix_u64(i));
        w.s.training.loss_mse = i % 4 < 2;
        check_lowering(&w);
    }
}

/* Does a kernel say that it does the logical op? */
static bool does(const Graph *g, const Op *kernel, uint32_t logical)
{
    for (uint32_t k = 0; k < kernel->logical_n; k++)
        if (g->logicals[kernel->logical_first + k] == logical)
            return true;
    return kernel->logical_n == 0 && kernel->logical == logical;
}

/* What was one op before is in one kernel, or in all kernels of a group. */
static void check_all_is_done(const World *before, const World *after, uint32_t segment)
{
    const Segment *x = world_segment(before, segment), *y = world_segment(after, segment);
    const Op *from = graph_ops(&before->g, x), *to = graph_ops(&after->g, y);
    for (uint32_t i = 0; i < x->op_n; i++) {
        uint32_t n = 0;
        for (uint32_t j = 0; j < y->op_n; j++)
            n += does(&after->g, &to[j], from[i].logical);
        CHECK(n > 0);
    }
    for (uint32_t j = 0; j < y->op_n; j++)
        CHECK(does(&after->g, &to[j], to[j].logical));
}

static void check_ids(const World *before, const World *after, uint32_t segment)
{
    const Segment *x = world_segment(before, segment), *y = world_segment(after, segment);
    const Op *from = graph_ops(&before->g, x), *to = graph_ops(&after->g, y);
    CHECK_INT(x->logical_n, y->logical_n);
    for (uint32_t i = 0; i < x->op_n; i++)
        for (uint32_t j = 0; j <= i; j++)
            CHECK(from[i].logical < x->logical_n &&
                  (i == j || from[i].logical != from[j].logical));
    for (uint32_t i = 0; i < y->op_n; i++) {
        bool found = false;
        for (uint32_t j = 0; j < x->op_n; j++)
            found = found || from[j].logical == to[i].logical;
        CHECK(found);
        for (uint32_t j = 0; j < i; j++)
            CHECK(to[j].logical != to[i].logical || to[j].part != to[i].part);
    }
}

/* A kernel has the logical id of an op that was there; no two ops have the same, and no two kernels
 * the same id and part. */
static void kernels_keep_the_ids_of_their_ops(void)
{
    for (uint32_t i = 0; i < 8; i++) {
        World before, after;
        for (int k = 0; k < 2; k++) {
            World *w = k ? &after : &before;
            world_transformer(w, zoo(i & 1 ? ZOO_GPT2 : ZOO_LLAMA));
            w->sw.f32_params = w->sw.f32_stream = i & 2;
            w->s.training.recompute = i & 4 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
            w->sw.recompute_stops_early = i & 1;
        }
        CHECK(world_build(&before));
        CHECK(lowered(&after));
        for (uint32_t s = 0; s < before.g.segments_n; s++)
            check_ids(&before, &after, s);
        for (uint32_t s = 0; s < before.g.segments_n; s++)
            check_all_is_done(&before, &after, s);
        world_free(&before);
        world_free(&after);
    }
}

/* ---- counted by hand ---- */

static void a_gpt_layer_by_what_its_stack_fuses(void)
{
    World w;
    world_transformer(&w, gpt_like(1, 64, 4, 96));
    w.sw.fused_elementwise = false;
    CHECK(lowered(&w));
    CHECK_STR("norm matmul bias attention matmul bias add norm matmul bias activation "
              "matmul bias add",
              kernels(&w, plain_forward(&w)));
    world_free(&w);

    w.sw.fused_elementwise = true;
    CHECK(lowered(&w));
    CHECK_STR("norm matmul bias attention matmul add norm matmul activation matmul add",
              kernels(&w, plain_forward(&w)));
    world_free(&w);

    w.sw.fused_residual_norm = true;
    CHECK(lowered(&w));
    CHECK_STR(
        "norm matmul bias attention matmul norm+add_layernorm matmul activation matmul add",
        kernels(&w, plain_forward(&w)));
    world_free(&w);

    w.sw.fused_bias = true;
    CHECK(lowered(&w));
    CHECK_STR("norm matmul+bias attention matmul+bias norm+add_layernorm matmul+bias_gelu "
              "matmul+bias add",
              kernels(&w, plain_forward(&w)));
    CHECK_STR("matmul matmul+bias activation matmul matmul+bias norm+add_layernorm matmul "
              "matmul+bias attention matmul matmul+bias norm+add_layernorm",
              kernels(&w, plain_backward(&w, GRAD_BORN)));
    world_free(&w);
}

static void a_llama_layer_by_what_its_stack_fuses(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    CHECK(lowered(&w));
    CHECK_STR("norm matmul rope attention matmul add norm matmul activation matmul add",
              kernels(&w, plain_forward(&w)));
    world_free(&w);

    w.sw.fused_rope = true;
    w.sw.fused_qkv = w.sw.fused_gate_up = w.sw.fused_gated = false;
    CHECK(lowered(&w));
    CHECK_STR("norm matmul matmul matmul attention matmul add norm matmul matmul activation "
              "activation matmul add",
              kernels(&w, plain_forward(&w)));
    CHECK_STR(
        "matmul matmul activation activation activation "
        "matmul matmul add matmul matmul norm add "
        "matmul matmul attention matmul matmul add matmul add matmul matmul matmul norm add",
        kernels(&w, plain_backward(&w, GRAD_BORN)));
    world_free(&w);

    w.s.training.compiled = true; /* fuses what only moves bytes, not matmuls */
    CHECK(lowered(&w));
    CHECK_STR("norm matmul matmul matmul attention matmul norm+add_rmsnorm matmul matmul "
              "activation matmul add",
              kernels(&w, plain_forward(&w)));
    world_free(&w);
}

typedef struct Traffic {
    uint64_t read_bytes, write_bytes;
} Traffic;

/* But for what is done again. */
static Traffic traffic_of(const World *w, uint32_t segment)
{
    const Segment *s = world_segment(w, segment);
    Traffic sum = { 0 };
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        if (op->phase == PHASE_RECOMPUTE)
            continue;
        sum.read_bytes += op->read_bytes;
        sum.write_bytes += op->write_bytes;
    }
    return sum;
}

/* Where up is done again and gate is not, each is an argument of its own; nothing else moves. */
static void gate_and_up_may_be_two_arguments(void)
{
    for (int compiled = 0; compiled < 2; compiled++) {
        World w;
        world_selective(&w);
        w.s.training.compiled = compiled;
        w.sw.fused_qkv = w.sw.fused_gate_up = w.sw.fused_gated = false;
        w.sw.selective_op = true;
        CHECK(lowered(&w));
        const BlockType *t = world_type(&w, 1);
        for (int back = 0; back < 2; back++) {
            uint32_t s[VARIANT_N];
            for (int v = 0; v < VARIANT_N; v++)
                s[v] = back ? t->backward[v][GRAD_BORN] : t->forward[v];
            Traffic plain = traffic_of(&w, s[VARIANT_PLAIN]);
            Traffic again = traffic_of(&w, s[VARIANT_RECOMPUTE]);
            CHECK_U64(plain.read_bytes, again.read_bytes);
            CHECK_U64(plain.write_bytes, again.write_bytes);
        }
        world_free(&w);
    }
}

/* The table of lower.h, for the executor. */
static void arguments_stand_as_the_table_says(void)
{
    World w;
    world_transformer(&w, gpt_like(1, 64, 4, 96));
    w.sw.fused_bias = w.sw.fused_residual_norm = true;
    CHECK(lowered(&w));
    uint32_t f = plain_forward(&w), b = plain_backward(&w, GRAD_BORN);
    CHECK_STR("boundary, norm1.weight, norm1.bias, >norm1, >norm statistics",
              arguments(&w, f, 0));
    CHECK_STR("norm1, attention.qkv.weight, attention.qkv.bias, >attention.qkv",
              arguments(&w, f, 1));
    CHECK_STR("attention.qkv, >attention, >attention lse", arguments(&w, f, 2));
    CHECK_STR("boundary, attention.out, norm2.weight, norm2.bias, >residual, >norm2, "
              ">norm statistics",
              arguments(&w, f, 4));
    CHECK_STR("norm2, mlp.up.weight, mlp.up.bias, >mlp.up, >activation", arguments(&w, f, 5));
    CHECK_STR("boundary, mlp.down.weight, >gradient", arguments(&w, b, 0));
    CHECK_STR("boundary, activation, >mlp.down.weight, >mlp.down.bias", arguments(&w, b, 1));
    CHECK_STR("gradient, mlp.up, >gradient", arguments(&w, b, 2));
    CHECK_STR("gradient, residual, norm statistics, norm2.weight, boundary, >gradient, "
              ">norm2.weight, >norm2.bias",
              arguments(&w, b, 5));
    CHECK_STR("gradient, attention.qkv, attention, attention lse, >gradient",
              arguments(&w, b, 8));
    uint32_t head = world_type(&w, 2)->forward[VARIANT_PLAIN];
    CHECK_STR("*head, targets, >loss", arguments(&w, head, 2));
    uint32_t embedding = world_type(&w, 0)->backward[VARIANT_PLAIN][GRAD_BORN];
    CHECK_STR("boundary, >positions.weight", arguments(&w, embedding, 0));
    CHECK_STR("boundary, tokens, *tokens.weight", arguments(&w, embedding, 1)); /* tied: adds */
    world_free(&w);
}

static void merged_kernels_move_what_leaves_the_chip(void)
{
    World w;
    world_transformer(&w, gpt_like(1, 64, 4, 96));
    w.sw.fused_bias = w.sw.fused_residual_norm = true;
    CHECK(lowered(&w));
    const Op *ops = graph_ops(&w.g, world_segment(&w, plain_forward(&w)));
    uint64_t x = 2 * 64 * 64, y = 4 * x, weight = 2 * 64 * 256, stats = 4 * 64 * 2;
    CHECK_U64(x + weight + 2 * 256, ops[5].read_bytes); /* up, bias, gelu */
    CHECK_U64(2 * y, ops[5].write_bytes);               /* before and after gelu */
    CHECK_U64(2 * x + 2 * (2 * 64), ops[4].read_bytes); /* add, norm: two terms, gain, shift */
    CHECK_U64(2 * x + stats, ops[4].write_bytes);
    world_free(&w);

    w.sw.fused_bias = w.sw.fused_residual_norm = false; /* elementwise */
    CHECK(lowered(&w));
    ops = graph_ops(&w.g, world_segment(&w, plain_forward(&w)));
    CHECK_U64(2 * x + 2 * 64, ops[5].read_bytes); /* bias and residual add */
    CHECK_U64(x, ops[5].write_bytes);
    CHECK_U64(y + 2 * 256, ops[8].read_bytes); /* bias and gelu */
    CHECK_U64(y, ops[8].write_bytes);
    world_free(&w);
}

/* With relu the input of the epilogue is not kept, and is gone. */
static void relu_leaves_only_its_result(void)
{
    World w;
    world_transformer(&w, zoo(ZOO_OPT));
    w.sw.fused_bias = true;
    CHECK(lowered(&w));
    const Op *up = find_op(&w, plain_forward(&w), OP_MATMUL, PHASE_FORWARD, 2);
    CHECK_INT(FN_BIAS_RELU, up->fn);
    CHECK_INT(4, up->arg_n);
    CHECK_U64(2 * 64 * 256, up->write_bytes);
    world_free(&w);
}

static void attention_without_fusion_is_two_matmuls_and_a_softmax(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.s.training.attention = ATTENTION_MATH;
    CHECK(lowered(&w));
    uint32_t f = plain_forward(&w);
    CHECK_STR("norm matmul rope matmul softmax matmul matmul add norm matmul activation matmul "
              "add",
              kernels(&w, f));
    const Op *ops = graph_ops(&w.g, world_segment(&w, f));
    uint64_t b = 2, a = 4, s = 32, d = 16, kv = 2;
    MatmulShape scores = ops[3].u.matmul, values = ops[5].u.matmul;
    CHECK(scores.m == s && scores.n == s && scores.k == d && scores.batch == b * a);
    CHECK(values.m == s && values.n == d && values.k == s && values.batch == b * a);
    CHECK_U64(2 * b * a * s * s, ops[3].write_bytes);
    CHECK_U64(2 * (b * s * a * d + b * s * kv * d), ops[3].read_bytes);
    CHECK_NEAR(2.0 * (double)(b * a * s * s * d), ops[3].flops, 0);
    CHECK_INT(1, ops[4].part);
    CHECK_INT(ops[3].logical, ops[5].logical);
    uint32_t softmaxes = 0;
    const Segment *back = world_segment(&w, plain_backward(&w, GRAD_BORN));
    for (uint32_t i = 0; i < back->op_n; i++)
        softmaxes += graph_ops(&w.g, back)[i].kind == OP_SOFTMAX;
    CHECK_INT(1, softmaxes);
    world_free(&w);
}

/* Megatron-LM's flash attention: q, k, v and the result are copied, and the gradients put side by
 * side; of one sequence only q, k and v are. */
static void fused_attention_may_copy_to_its_layout(void)
{
    for (uint32_t batch = 1; batch <= 2; batch++) {
        World w;
        world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
        w.s.training.micro_batch = batch;
        w.sw.attention_copies = true;
        CHECK(lowered(&w));
        uint32_t f = plain_forward(&w), b = plain_backward(&w, GRAD_BORN);
        uint64_t q = 2 * batch * 32 * 64, k = q / 2;
        CHECK_STR(batch == 1 ? "norm matmul rope copy copy copy attention matmul add norm "
                               "matmul activation matmul add"
                             : "norm matmul rope copy copy copy attention copy matmul add norm "
                               "matmul activation matmul add",
                  kernels(&w, f));
        Moved forward = moved_by(&w, f, "attention"), backward = moved_by(&w, b, "attention");
        CHECK_INT(batch == 1 ? 4 : 5, forward.n);
        CHECK_INT(batch == 1 ? 2 : 3, backward.n);
        const Op *ops = graph_ops(&w.g, world_segment(&w, f));
        CHECK_U64(q, ops[3].read_bytes);
        CHECK_U64(k, ops[4].write_bytes);
        CHECK_U64(k, ops[5].read_bytes);
        check_lives(&w);
        world_free(&w);
    }
}

/* Bytes of the ops from `first` on that are about the loss: its statistics, passes and casts. */
static uint64_t loss_bytes(World *w, uint32_t segment)
{
    uint64_t bytes = 0;
    const Segment *s = world_segment(w, segment);
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        if (op->kind == OP_CROSS_ENTROPY || op->kind == OP_CAST || op->kind == OP_SCALE)
            bytes += op->read_bytes + op->write_bytes;
    }
    return bytes;
}

/* torch.autocast in eager mode: each matmul casts what it reads and keeps that.  Compiled, one cast
 * serves all. */
static void eager_parts_cast_their_input_each(void)
{
    enum { ROWS = 64, HIDDEN = 64, ONCE = 2 * ROWS * HIDDEN };
    World w;
    world_transformer(&w, llama_like(1, HIDDEN, 4, 2, 96, 128));
    w.s.training.precision = DTYPE_BF16;
    w.sw.f32_params = w.sw.f32_stream = true;
    w.sw.fused_qkv = true;
    w.sw.fused_gate_up = w.sw.fused_residual_norm = w.sw.fused_elementwise = false;
    uint64_t kept[3];
    for (int i = 0; i < 3; i++) {
        w.sw.gated_qkv_apart = i > 0;
        w.s.training.compiled = i == 2;
        CHECK(lowered(&w));
        const BlockType *layer = world_type(&w, 1);
        Moved casts = moved_by(&w, layer->forward[VARIANT_PLAIN], "autocast");
        uint32_t n = i == 0   ? 1 + 2
                     : i == 1 ? 3 + 2
                              : 0; /* compiled, the norms write 16 bits */
        CHECK_U64(n, casts.n);
        CHECK_U64(n * ONCE, casts.written);
        CHECK_U64(2 * n * ONCE, casts.read);
        kept[i] = layout_sum(&w, layer->stash_layout[VARIANT_PLAIN]);
        world_free(&w);
    }
    CHECK_U64(2 * ONCE, kept[1] - kept[0]);
    CHECK(kept[2] + 3 * ONCE <= kept[1]);
}

/* Weights that are apart are cast apart, and so are their gradients; the bytes stay the same. */
static void eager_parts_cast_their_weights_each(void)
{
    enum { HIDDEN = 64, WEIGHTS = (4 + 2 * 2) * 16 * HIDDEN }; /* of q, k and v */
    for (int apart = 0; apart < 2; apart++) {
        World w;
        world_transformer(&w, llama_like(1, HIDDEN, 4, 2, 96, 128));
        w.s.training.precision = DTYPE_BF16;
        w.sw.f32_params = w.sw.f32_stream = w.sw.fused_qkv = true;
        w.sw.fused_residual_norm = w.sw.fused_elementwise = false;
        w.sw.gated_qkv_apart = apart;
        CHECK(lowered(&w));
        Moved casts = moved_by(&w, plain_forward(&w), "attention.qkv.weight in bf16");
        CHECK_U64(apart ? 3 : 1, casts.n);
        CHECK_U64(4 * WEIGHTS, casts.read);
        CHECK_U64(2 * WEIGHTS, casts.written);
        const Segment *s = world_segment(&w, plain_backward(&w, GRAD_BORN));
        Moved back = { 0 };
        for (uint32_t i = 0; i < s->op_n; i++) {
            const Op *op = &graph_ops(&w.g, s)[i];
            bool qkv = strcmp(intern_text(&w.g.names, op->name), "attention.qkv") == 0;
            bool cast = qkv && op->kind == OP_CAST && op->phase == PHASE_WGRAD;
            back.n += cast;
            back.read += cast ? op->read_bytes : 0;
            back.written += cast ? op->write_bytes : 0;
        }
        CHECK_U64(apart ? 3 : 1, back.n);
        CHECK_U64(2 * WEIGHTS, back.read);
        CHECK_U64(4 * WEIGHTS, back.written);
        world_free(&w);
    }
}

/* A compiler keeps what goes into an activation function; the eager program what comes out, too. */
static void a_compiler_makes_activations_again(void)
{
    enum { ROWS = 64, FFN = 256 };
    World w;
    world_transformer(&w, gpt_like(1, 64, 4, FFN));
    uint64_t kept[2];
    for (int again = 0; again < 2; again++) {
        w.sw.activations_again = again;
        w.sw.fused_elementwise = true;
        CHECK(lowered(&w));
        const BlockType *layer = world_type(&w, 1);
        kept[again] = layout_sum(&w, layer->stash_layout[VARIANT_PLAIN]);
        Moved forward = moved_by(&w, layer->forward[VARIANT_PLAIN], "activation");
        Moved back = moved_by(&w, layer->backward[VARIANT_PLAIN][GRAD_BORN], "activation");
        CHECK_U64(1, forward.n);
        CHECK_U64(1 + (unsigned)again, back.n);
        world_free(&w);
        w.sw.fused_elementwise = false; /* eager: as it is */
        CHECK(lowered(&w));
        layer = world_type(&w, 1);
        back = moved_by(&w, layer->backward[VARIANT_PLAIN][GRAD_BORN], "activation");
        CHECK_U64(1, back.n);
        world_free(&w);
    }
    CHECK_U64(2 * ROWS * FFN, kept[0] - kept[1]);
}

/* Asked for a selection of nothing it goes on as without: that kept more than "none". */
static void a_compiler_does_so_beside_what_is_selected(void)
{
    World w;
    world_transformer(&w, gpt_like(1, 64, 4, 256));
    w.sw.activations_again = w.sw.fused_elementwise = true;
    w.sw.selective_attention = w.sw.selective_norm = w.sw.selective_activation = false;
    w.sw.selective_op = w.sw.selective_all_but_qkv = w.sw.selective_latent_up = false;
    w.s.training.recompute = RECOMPUTE_SELECTIVE;
    CHECK(lowered(&w));
    const BlockType *layer = world_type(&w, 1);
    CHECK_U64(layout_sum(&w, layer->stash_layout[VARIANT_PLAIN]),
              layout_sum(&w, layer->stash_layout[VARIANT_RECOMPUTE]));
    for (Variant v = VARIANT_PLAIN; v <= VARIANT_RECOMPUTE; v++)
        CHECK_U64(2, moved_by(&w, layer->backward[v][GRAD_BORN], "activation").n);
    world_free(&w);
}

static void the_loss_by_what_its_stack_fuses(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    CHECK(lowered(&w));
    const BlockType *head = world_type(&w, 2);
    CHECK_STR("norm matmul cross_entropy", kernels(&w, head->forward[VARIANT_PLAIN]));
    CHECK_STR("matmul matmul norm", kernels(&w, head->backward[VARIANT_PLAIN][GRAD_BORN]));
    world_free(&w);

    w.sw.fused_cross_entropy = false;
    w.sw.f32_logits = true;
    CHECK(lowered(&w));
    head = world_type(&w, 2);
    CHECK_STR("norm matmul cast cross_entropy cross_entropy",
              kernels(&w, head->forward[VARIANT_PLAIN]));
    CHECK_STR("cross_entropy cross_entropy cast matmul matmul norm",
              kernels(&w, head->backward[VARIANT_PLAIN][GRAD_BORN]));
    /* Kept: the log of the softmax in f32, and what the norm needs. */
    uint64_t rows = 64;
    CHECK_U64(4 * rows * 128 + 2 * rows * 64 + 4 * rows,
              layout_sum(&w, head->stash_layout[VARIANT_PLAIN]));
    world_free(&w);

    w.sw.half_to_float = true;
    CHECK(lowered(&w));
    head = world_type(&w, 2);
    uint32_t forward = head->forward[VARIANT_PLAIN];
    uint32_t back = head->backward[VARIANT_PLAIN][GRAD_BORN];
    CHECK_STR("norm matmul cross_entropy cross_entropy", kernels(&w, forward));
    CHECK_STR("cross_entropy cross_entropy matmul matmul norm", kernels(&w, back));
    /* Read 2 and write 4 bytes a logit; write 4, read 8 and write 2: the rest is of rows. */
    CHECK(loss_bytes(&w, forward) - 6 * rows * 128 < 100 * rows);
    CHECK(loss_bytes(&w, back) - 14 * rows * 128 < 100 * rows);
    CHECK_U64(4 * rows * 128 + 2 * rows * 64 + 4 * rows,
              layout_sum(&w, head->stash_layout[VARIANT_PLAIN]));
    world_free(&w);
}

/* Megatron-LM's: copy 2 + 4, maximum 4, subtract 8, exp 8, sum 4, divide 8; multiply 8, cast 4 + 2.
 * One f32 tensor is kept, and nothing of its size is made beside it. */
static void a_loss_in_place_is_one_tensor(void)
{
    World w;
    uint64_t rows = 64, logits = rows * 128;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.sw.fused_cross_entropy = false;
    w.sw.f32_logits = w.sw.loss_in_place = true;
    for (uint32_t tp = 1; tp <= 2; tp++) {
        w.s.parallel.tp = tp;
        CHECK(lowered(&w));
        const BlockType *head = world_type(&w, 2);
        uint32_t forward = head->forward[VARIANT_PLAIN];
        uint32_t back = head->backward[VARIANT_PLAIN][GRAD_BORN];
        uint64_t here = logits / tp, per_row = 100 * rows;
        uint64_t forth = loss_bytes(&w, forward), backward = loss_bytes(&w, back);
        CHECK(forth >= 38 * here && forth < 38 * here + per_row);
        CHECK(backward >= 14 * here && backward < 14 * here + per_row);
        const Layout *made = &w.g.layouts[world_segment(&w, back)->layout[SLOT_LOCAL]];
        for (uint32_t i = 0; i < made->tensor_n; i++)
            CHECK(w.g.tensors[made->tensor_first + i].bytes < 4 * here);
        world_free(&w);
    }
}

/* nanotron's: the same passes, but the subtraction makes the softmax beside the f32 logits. */
static void a_loss_may_copy_once_more(void)
{
    World w;
    uint64_t logits = 64 * 128;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.sw.fused_cross_entropy = false;
    w.sw.f32_logits = w.sw.loss_in_place = true;
    uint64_t bytes[2], peak[2];
    for (uint32_t copies = 0; copies < 2; copies++) {
        w.sw.loss_copies = copies;
        CHECK(lowered(&w));
        uint32_t forward = world_type(&w, 2)->forward[VARIANT_PLAIN];
        bytes[copies] = loss_bytes(&w, forward);
        peak[copies] = 0;
        const Layout *made = &w.g.layouts[world_segment(&w, forward)->layout[SLOT_LOCAL]];
        for (uint32_t i = 0; i < made->tensor_n; i++)
            peak[copies] += w.g.tensors[made->tensor_first + i].bytes == 4 * logits;
        world_free(&w);
    }
    CHECK_U64(bytes[0], bytes[1]);
    CHECK_U64(peak[0] + 1, peak[1]);
}

static void gradients_are_added_by_the_matmul_or_after_it(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    CHECK(lowered(&w));
    Sums inside = { 0 }, apart = { 0 }, first = { 0 };
    add_segment(&w, plain_backward(&w, GRAD_ADD), &inside);
    world_free(&w);
    w.sw.wgrad_accumulate = false;
    CHECK(lowered(&w));
    add_segment(&w, plain_backward(&w, GRAD_ADD), &apart);
    add_segment(&w, plain_backward(&w, GRAD_BORN), &first);
    CHECK_INT(inside.ops_n[OP_ADD] + 4, apart.ops_n[OP_ADD]); /* qkv, out, gate_up, down */
    CHECK_INT(inside.ops_n[OP_ADD], first.ops_n[OP_ADD]);
    const Op *wgrad = find_op(&w, plain_backward(&w, GRAD_ADD), OP_MATMUL, PHASE_WGRAD, 0);
    CHECK(!wgrad->u.matmul.accumulate);
    CHECK_INT(SLOT_LOCAL, w.g.args[wgrad->arg_first + 2].slot);
    world_free(&w);
}

/* What adding the weight gradients of a layer reads and writes, and how many numbers it adds. */
static Op weight_sums(World *w)
{
    const Segment *s = world_segment(w, plain_backward(w, GRAD_ADD));
    Op all = { 0 };
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        CHECK(op->read_bytes < 1 << 20 && op->write_bytes < 1 << 20);
        if (op->kind != OP_ADD || op->phase != PHASE_WGRAD)
            continue;
        all.read_bytes += op->read_bytes;
        all.write_bytes += op->write_bytes;
        all.u.elements += op->u.elements;
    }
    return all;
}

/* Each part makes its own rows of the gradient, and only those are added. */
static void parts_of_a_gradient_are_added_once(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.sw.wgrad_accumulate = false;
    CHECK(lowered(&w));
    Op whole = weight_sums(&w);
    world_free(&w);
    w.sw.fused_qkv = w.sw.fused_gate_up = false;
    CHECK(lowered(&w));
    Op parts = weight_sums(&w);
    uint64_t elements =
        64 * 128 + 64 * 64 + 2 * 64 * 96 + 96 * 64; /* qkv, out, gate_up, down */
    CHECK_U64(elements, whole.u.elements);
    CHECK_U64(elements, parts.u.elements);
    CHECK_U64(4 * elements, parts.read_bytes); /* two of 2 bytes */
    CHECK_U64(2 * elements, parts.write_bytes);
    CHECK_U64(whole.read_bytes, parts.read_bytes);
    const Op *v = find_op(&w, plain_backward(&w, GRAD_ADD), OP_MATMUL, PHASE_WGRAD, 0);
    CHECK(!v->u.matmul.accumulate);
    const Tensor *temp = graph_arg_tensor(&w.g, world_segment(&w, plain_backward(&w, GRAD_ADD)),
                                          &w.g.args[v->arg_first + 2]);
    CHECK_U64(v->write_bytes, temp->bytes);
    world_free(&w);
}

static void table_gradients_are_cleared_then_scattered(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    CHECK(lowered(&w));
    const BlockType *t = world_type(&w, 0);
    CHECK_STR("fill embedding", kernels(&w, t->backward[VARIANT_PLAIN][GRAD_BORN]));
    CHECK_STR("embedding", kernels(&w, t->backward[VARIANT_PLAIN][GRAD_ADD]));
    const Op *scatter =
        find_op(&w, t->backward[VARIANT_PLAIN][GRAD_ADD], OP_EMBEDDING, PHASE_WGRAD, 0);
    uint64_t rows = 64, dy = 2 * rows * 64;
    CHECK_U64(dy, scatter->write_bytes);
    CHECK_U64(2 * dy + 8 * rows, scatter->read_bytes); /* dy, the rows it adds to, tokens */
    world_free(&w);
}

/* Megatron-LM: matmuls add to f32 gradients themselves, an embedding's is made whole first. */
static void an_embedding_s_gradient_may_be_made_apart(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.sw.table_grad_apart = w.sw.f32_grads = true;
    CHECK(lowered(&w));
    const BlockType *t = world_type(&w, 0);
    uint32_t b = t->backward[VARIANT_PLAIN][GRAD_ADD];
    uint64_t table = 128 * 64;
    CHECK_STR("fill embedding", kernels(&w, t->backward[VARIANT_PLAIN][GRAD_BORN]));
    CHECK_STR("fill embedding add", kernels(&w, b));
    const Op *ops = graph_ops(&w.g, world_segment(&w, b));
    CHECK_U64(2 * table, ops[0].write_bytes);
    CHECK_U64((2 + 4) * table, ops[2].read_bytes);
    CHECK_U64(4 * table, ops[2].write_bytes);
    CHECK_U64(0, weight_sums(&w).u.elements);
    world_free(&w);
}

/* A layer whose 16-bit gradients are added to f32 ones by a kernel of its own; cast: to f32
 * first. */
static bool added_to_f32(World *w, bool cast)
{
    uint64_t elements = 64 * 128 + 64 * 64 + 2 * 64 * 96 + 96 * 64;
    world_transformer(w, llama_like(1, 64, 4, 2, 96, 128));
    w->sw.wgrad_accumulate = false;
    w->sw.f32_grads = !cast;
    w->sw.bf16_grads_f32 = cast;
    if (!CHECK(lowered(w)))
        return false;
    Op sums = weight_sums(w);
    return CHECK_U64(elements, sums.u.elements) &&
           CHECK_U64((cast ? 8u : 6u) * elements, sums.read_bytes) &&
           CHECK_U64(4 * elements, sums.write_bytes);
}

/* nanotron: a hook adds what autograd made in bf16 to an f32 buffer; no kernel casts it. */
static void gradients_in_16_bits_are_added_as_they_are(void)
{
    World w;
    if (added_to_f32(&w, false)) {
        const Op *v = find_op(&w, plain_backward(&w, GRAD_ADD), OP_MATMUL, PHASE_WGRAD, 0);
        CHECK_U64(2 * v->u.matmul.m * v->u.matmul.n, v->write_bytes);
    }
    world_free(&w);
}

/* DeepSpeed's BF16_Optimizer. */
static void gradients_in_bf16_may_be_cast_first(void)
{
    World w;
    added_to_f32(&w, true);
    world_free(&w);
}

static void parts_of_a_split_matmul_add_up(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.sw.fused_qkv = false;
    CHECK(lowered(&w));
    uint64_t n = 0;
    static const uint64_t expect[] = { 64, 32, 32 };
    for (uint32_t i = 0; i < 3; i++) {
        const Op *op = find_op(&w, plain_forward(&w), OP_MATMUL, PHASE_FORWARD, i);
        CHECK_U64(expect[i], op->u.matmul.n);
        CHECK_INT(i, op->part);
        CHECK_U64(2 * 64 * expect[i], op->write_bytes); /* rows x columns */
        n += op->u.matmul.n;
    }
    CHECK_U64(128, n);
    world_free(&w);
}

/* model_dropout: as the model's config says; dropout: always. */
static void dropout_may_be_the_model_s(void)
{
    for (int how = 0; how < 8; how++) {
        World w;
        world_transformer(&w, gpt_like(1, 64, 4, 96));
        w.s.model.u.transformer.dropout = how & 1;
        w.sw.model_dropout = how & 2;
        w.sw.dropout = how & 4;
        CHECK(lowered(&w));
        bool drops = sum_block(&w, 1, VARIANT_PLAIN).ops_n[OP_SCALE] > 0;
        CHECK_INT((how & 4) || (how & 3) == 3, drops);
        world_free(&w);
    }
}

/* Megatron-LM: the bias, dropout and the residual add are one kernel. */
static void dropout_joins_the_sum(void)
{
    World w;
    world_transformer(&w, gpt_like(1, 64, 4, 96));
    w.sw.dropout = true;
    w.s.training.attention = ATTENTION_MATH;
    CHECK(lowered(&w));
    uint32_t f = plain_forward(&w);
    CHECK_STR("norm matmul bias matmul softmax scale matmul matmul add norm matmul activation "
              "matmul add",
              kernels(&w, f));
    CHECK_STR("boundary, attention.out, attention.out.bias, >residual, >dropout mask",
              arguments(&w, f, 8));
    const Op *add = &graph_ops(&w.g, world_segment(&w, f))[8];
    uint64_t n = 64 * 64;
    CHECK_U64(2 * (2 * n) + 2 * 64, add->read_bytes);
    CHECK_U64(2 * n + n, add->write_bytes);
    CHECK_U64(2,
              sum_block(&w, 1, VARIANT_PLAIN).ops_n[OP_SCALE] - 2); /* two masks, two scores */
    world_free(&w);
}

/* As PyTorch runs them: 8 kernels for a norm forward, 3 for each of q and k. */
static void chains_run_kernel_by_kernel(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.sw.norm_chain = w.sw.rope_chain = true;
    CHECK(lowered(&w));
    CHECK_STR("cast scale norm scale scale scale cast scale matmul "
              "cast rope cast cast rope cast attention matmul add "
              "cast scale norm scale scale scale cast scale matmul activation matmul add",
              kernels(&w, plain_forward(&w)));
    /* Kept for each norm: its input in f32, the normed values, a number per row. */
    uint64_t rows = 64, h = 64, kv = 32, ffn = 96;
    uint64_t kept = 2 * rows * ((h + 2 * kv) + h + 2 * ffn + ffn) + 4 * rows * 4;
    kept += 2 * rows * (2 * h + 4 * h + 2 * h + 4);
    CHECK_U64(kept, layout_sum(&w, world_type(&w, 1)->stash_layout[VARIANT_PLAIN]));
    const Op *ops = graph_ops(&w.g, world_segment(&w, plain_forward(&w)));
    CHECK_U64(2 * rows * h, ops[9].read_bytes);   /* q, of 4 heads */
    CHECK_U64(2 * rows * kv, ops[12].read_bytes); /* k, of 2 */
    world_free(&w);

    w.s.training.compiled = true;
    CHECK(lowered(&w));
    CHECK_STR("norm matmul rope attention matmul norm+add_rmsnorm matmul activation matmul add",
              kernels(&w, plain_forward(&w)));
    world_free(&w);
}

static void check_moved(const World *w, uint32_t segment, const char *name, Moved expected)
{
    Moved m = moved_by(w, segment, name);
    CHECK_INT(expected.n, m.n);
    CHECK_U64(expected.read, m.read);
    CHECK_U64(expected.written, m.written);
}

/* Hugging Face's: 8 kernels forward, 11 backward; kept are x, the tanh and the two factors.  Under
 * torch.autocast pow takes f32: x is cast, and with it all but half x; kept is that copy. */
static void gelu_new_runs_kernel_by_kernel(void)
{
    uint64_t n = 64 * 256;
    const Moved expected[2][2] = { { { 8, 2 * 10 * n, 2 * 8 * n },
                                     { 11, 2 * 17 * n, 2 * 11 * n } },
                                   { { 10, 40 * n, 36 * n }, { 15, 70 * n, 48 * n } } };
    const uint64_t kept[2] = { 3 * 2 * n, (4 + 4 + 4 + 2 - 2) * n };
    for (int autocast = 0; autocast < 2; autocast++) {
        uint64_t stash[2];
        for (int chain = 0; chain < 2; chain++) {
            World w;
            world_transformer(&w, gpt_like(1, 64, 4, 96));
            w.sw.addmm = true;
            w.sw.fused_elementwise = false;
            w.sw.f32_params = w.sw.f32_stream = autocast;
            w.sw.gelu_new_chain = chain;
            CHECK(lowered(&w));
            stash[chain] = layout_sum(&w, world_type(&w, 1)->stash_layout[VARIANT_PLAIN]);
            if (chain) {
                check_moved(&w, plain_forward(&w), "activation", expected[autocast][0]);
                check_moved(&w, plain_backward(&w, GRAD_BORN), "activation",
                            expected[autocast][1]);
            }
            world_free(&w);
        }
        CHECK_U64(kept[autocast], stash[1] - stash[0]);
    }
}

/* Where the model's is another gelu, or a compiler fuses what only moves bytes, it is one. */
static void other_gelus_are_one_kernel(void)
{
    for (int other = 0; other < 2; other++) {
        World w;
        world_transformer(&w, gpt_like(1, 64, 4, 96));
        w.s.model.u.transformer.gelu_new = !other;
        w.s.training.compiled = !other;
        w.sw.gelu_new_chain = true;
        CHECK(lowered(&w));
        CHECK_INT(1, moved_by(&w, plain_forward(&w), "activation").n);
        CHECK_INT(1, moved_by(&w, plain_backward(&w, GRAD_BORN), "activation").n);
        world_free(&w);
    }
}

/* minGPT's attention: two more passes over the scores each way, each read and written. */
static void scores_may_be_scaled_and_masked_apart(void)
{
    Moved m[2][2];
    for (int compiled = 0; compiled < 2; compiled++) {
        World w;
        world_transformer(&w, gpt_like(1, 64, 4, 96));
        w.s.training.attention = ATTENTION_MATH;
        w.s.training.compiled = compiled;
        w.sw.softmax_chain = true;
        CHECK(lowered(&w));
        m[compiled][0] = moved_by(&w, plain_forward(&w), "attention");
        m[compiled][1] = moved_by(&w, plain_backward(&w, GRAD_BORN), "attention");
        check_lives(&w);
        world_free(&w);
    }
    uint64_t scores = 2 * 2 * 4 * 32 * 32;
    for (int way = 0; way < 2; way++) {
        CHECK_INT(2, m[0][way].n - m[1][way].n);
        CHECK_U64(2 * scores, m[0][way].read - m[1][way].read);
        CHECK_U64(2 * scores, m[0][way].written - m[1][way].written);
    }
}

typedef struct SoftmaxCase {
    uint32_t multiple, longest, tp;
    bool f32, dropout, compiled, chain;
    int kernels; /* more than one */
    int elements; /* bytes more that are moved, read and written alike, for each score; forward */
    int backward; /* read, backward; written are as many as forward */
} SoftmaxCase;

/* 2 samples of 32 tokens and 4 heads; as a stack that has no other kernel for it. */
static void move_scores(const SoftmaxCase *c, Moved m[2])
{
    World w;
    world_transformer(&w, gpt_like(1, 64, 4, 96));
    w.s.training.attention = ATTENTION_MATH;
    w.s.training.compiled = c->compiled;
    w.s.training.precision = c->f32 ? DTYPE_F32 : DTYPE_BF16;
    w.s.parallel.tp = c->tp;
    w.sw.dropout = c->dropout;
    w.sw.softmax_multiple = c->multiple;
    w.sw.softmax_longest = c->longest;
    w.sw.softmax_chain = c->chain;
    CHECK(lowered(&w));
    m[0] = moved_by(&w, plain_forward(&w), "attention");
    m[1] = moved_by(&w, plain_backward(&w, GRAD_BORN), "attention");
    check_lives(&w);
    world_free(&w);
}

/* Megatron's: 16 bits, so many keys, and a multiple of heads of all samples; else five kernels, in
 * f32.  Forward a score is cast (2 bytes to 4), scaled, masked, read by the softmax as f32, and the
 * weight, f32 too, cast; backward the gradient is cast, meets f32, is masked, scaled and cast. */
static void fused_softmax_is_of_some_shapes(void)
{
    static const SoftmaxCase cases[] = {
        { 0, 0, 1, false, false, false, false, 0, 0, 0 },
        { 8, 32, 1, false, false, false, false, 0, 0, 0 },
        { 4, 0, 2, false, false, false, false, 0, 0, 0 },
        { 16, 0, 1, false, false, false, false, 4, 16, 18 },
        { 8, 0, 2, false, false, false, false, 4, 16, 18 },
        { 0, 31, 1, false, false, false, false, 4, 16, 18 },
        { 16, 0, 1, false, true, false, false, 4, 16, 18 }, /* dropout */
        { 8, 31, 1, false, false, true, false, 0, 0, 0 },   /* compiled */
        { 8, 0, 1, true, false, false, false, 2, 8, 8 },    /* f32 */
        { 0, 31, 1, false, false, false, true, 2, 4, 4 },   /* always a chain */
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        SoftmaxCase one = cases[i];
        one.multiple = one.longest = 0;
        one.chain = false;
        Moved apart[2], fused[2];
        move_scores(&cases[i], apart);
        move_scores(&one, fused);
        uint64_t scores = 2 * 4 * 32 * 32 / cases[i].tp;
        for (int way = 0; way < 2; way++) {
            int read = way ? cases[i].backward : cases[i].elements;
            CHECK_INT(cases[i].kernels, (int)apart[way].n - (int)fused[way].n);
            CHECK_U64(scores * (uint64_t)read, apart[way].read - fused[way].read);
            CHECK_U64(scores * (uint64_t)cases[i].elements,
                      apart[way].written - fused[way].written);
        }
    }
}

/* The softmax is kept in f32, and without dropout 16 bits of it for the second product. */
static void softmax_in_f32_is_kept_so(void)
{
    for (int dropout = 0; dropout < 2; dropout++) {
        int64_t kept[2];
        for (int apart = 0; apart < 2; apart++) {
            World w;
            world_transformer(&w, gpt_like(1, 64, 4, 96));
            w.s.training.attention = ATTENTION_MATH;
            w.sw.dropout = dropout;
            w.sw.softmax_multiple = apart ? 16 : 0;
            CHECK(lowered(&w));
            kept[apart] = delta_of(&w, plain_forward(&w));
            world_free(&w);
        }
        CHECK_INT((dropout ? 2 : 4) * 2 * 4 * 32 * 32, (int)(kept[1] - kept[0]));
    }
}

/* torch.autocast, eager: what is f32 is cast for matmuls, and so are weights; a weight's gradient
 * comes in bf16, is cast and added. */
static void autocast_casts_kernel_by_kernel(void)
{
    World w;
    world_transformer(&w, gpt_like(1, 64, 4, 96));
    w.sw.f32_params = w.sw.f32_stream = w.sw.addmm = true;
    w.sw.fused_elementwise = w.sw.wgrad_accumulate = false;
    CHECK(lowered(&w));
    uint32_t f = plain_forward(&w), b = plain_backward(&w, GRAD_ADD);
    CHECK_STR("norm cast cast cast matmul+bias attention cast cast matmul+bias add "
              "norm cast cast cast matmul+bias activation cast cast matmul+bias add",
              kernels(&w, f));
    const Op *ops = graph_ops(&w.g, world_segment(&w, f));
    uint64_t n = 64 * 64, weights = 64 * 3 * 64;
    CHECK_STR("boundary, norm1.weight, norm1.bias, >norm1, >norm statistics",
              arguments(&w, f, 0));
    CHECK_U64(4 * (n + 2 * 64), ops[0].read_bytes);
    CHECK_U64(4 * (n + 2 * 64), ops[0].write_bytes);
    CHECK_STR("norm1, >autocast input", arguments(&w, f, 1));
    CHECK_U64(4 * n, ops[1].read_bytes);
    CHECK_U64(2 * n, ops[1].write_bytes);
    CHECK_STR("attention.qkv.weight, >attention.qkv.weight in bf16", arguments(&w, f, 2));
    CHECK_U64(4 * weights, ops[2].read_bytes);
    CHECK_U64(2 * weights, ops[2].write_bytes);
    CHECK_STR("attention.qkv.bias, >bias in 16 bits", arguments(&w, f, 3));
    CHECK_STR("autocast input, attention.qkv.weight in bf16, bias in 16 bits, >attention.qkv",
              arguments(&w, f, 4));
    CHECK_U64(2 * (n + weights + 3 * 64), ops[4].read_bytes);
    CHECK_STR("boundary, attention.out, >residual", arguments(&w, f, 9));
    CHECK_U64((4 + 2) * n, ops[9].read_bytes);
    CHECK_U64(4 * n, ops[9].write_bytes);

    CHECK_STR(
        "cast matmul matmul cast add bias cast add activation matmul matmul cast add bias "
        "cast add cast norm add cast matmul matmul cast add bias cast add attention matmul "
        "matmul cast add bias cast add cast norm add",
        kernels(&w, b));
    ops = graph_ops(&w.g, world_segment(&w, b));
    uint64_t down = 64 * 256;
    CHECK_STR("boundary, >gradient", arguments(&w, b, 0));
    CHECK_STR("gradient, mlp.down.weight in bf16, >gradient", arguments(&w, b, 1));
    CHECK_STR("gradient, activation, >weight gradient", arguments(&w, b, 2));
    CHECK_U64(2 * down, ops[2].write_bytes);
    CHECK_STR("weight gradient, >gradient in f32", arguments(&w, b, 3));
    CHECK_U64(2 * down, ops[3].read_bytes);
    CHECK_U64(4 * down, ops[3].write_bytes);
    CHECK_STR("*mlp.down.weight, gradient in f32", arguments(&w, b, 4));
    CHECK_U64(8 * down, ops[4].read_bytes);
    CHECK_STR("gradient, >bias gradient", arguments(&w, b, 5));
    CHECK_STR("bias gradient, >gradient in f32", arguments(&w, b, 6));
    CHECK_STR("*mlp.down.bias, gradient in f32", arguments(&w, b, 7));
    world_free(&w);
}

/* Compiled: norms read f32 and write bf16, and backward leaves the branch a bf16 copy. */
static void compilers_fuse_the_casts_of_autocast(void)
{
    World w;
    world_transformer(&w, gpt_like(1, 64, 4, 96));
    w.sw.f32_params = w.sw.f32_stream = w.sw.addmm = true;
    w.s.training.compiled = true;
    CHECK(lowered(&w));
    uint32_t f = plain_forward(&w), b = plain_backward(&w, GRAD_BORN);
    CHECK_STR("norm cast matmul+bias attention cast matmul+bias norm+add_layernorm cast "
              "matmul+bias activation cast matmul+bias add",
              kernels(&w, f));
    CHECK_STR("boundary, norm1.weight, norm1.bias, >autocast input, >norm statistics",
              arguments(&w, f, 0));
    CHECK_STR("boundary, attention.out, norm2.weight, norm2.bias, >residual, >autocast input, "
              ">norm statistics",
              arguments(&w, f, 6));
    const Op *ops = graph_ops(&w.g, world_segment(&w, b));
    uint32_t norm = 0;
    while (ops[norm].kind != OP_NORM)
        norm++;
    CHECK_STR("gradient, residual, norm statistics, norm2.weight, boundary, >gradient, "
              ">norm2.weight, >norm2.bias, >gradient",
              arguments(&w, b, norm));
    uint64_t n = 64 * 64;
    CHECK_U64((2 + 4 + 4) * n + 4 * (2 * 64 + 64), ops[norm].read_bytes);
    CHECK_U64((4 + 2) * n + 4 * 2 * 64, ops[norm].write_bytes);
    world_free(&w);
}

/* Hugging Face's RMSNorm on an f32 stream: nothing is f32 that was not, so it casts nothing. */
static void chains_of_f32_cast_nothing(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.sw.f32_params = w.sw.f32_stream = w.sw.norm_chain = true;
    CHECK(lowered(&w));
    CHECK_STR("scale norm scale scale scale scale cast cast matmul rope attention cast matmul "
              "add scale norm scale scale scale scale cast cast matmul activation cast matmul "
              "add",
              kernels(&w, plain_forward(&w)));
    CHECK_STR("normed, norm1.weight, >norm1", arguments(&w, plain_forward(&w), 5));
    CHECK_STR("cast matmul matmul cast activation matmul matmul cast cast scale scale norm "
              "scale scale norm scale scale scale scale add add cast matmul matmul cast "
              "attention rope matmul matmul cast cast scale scale norm scale scale norm scale "
              "scale scale scale add add",
              kernels(&w, plain_backward(&w, GRAD_BORN)));
    world_free(&w);
}

/* flash_attn's cross entropy: a kernel forward, one backward, which writes beside the logits. */
static void a_fused_loss_may_keep_the_logits(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.sw.keeps_logits = true;
    CHECK(lowered(&w));
    const BlockType *t = world_type(&w, 2);
    uint64_t logits = 2 * 64 * 128;
    uint32_t f = t->forward[VARIANT_PLAIN], b = t->backward[VARIANT_PLAIN][GRAD_BORN];
    CHECK_STR("norm matmul cross_entropy", kernels(&w, f));
    CHECK_STR("head, targets, >loss", arguments(&w, f, 2));
    CHECK_STR("cross_entropy matmul matmul norm", kernels(&w, b));
    CHECK_STR("head, targets, >gradient", arguments(&w, b, 0));
    CHECK_U64(logits, graph_ops(&w.g, world_segment(&w, b))[0].write_bytes);
    world_free(&w);
}

/* Composer's train metrics: cross entropy of the logits again, in f32: 14 bytes a logit each. */
static void metrics_are_losses_after_backward(void)
{
    for (uint32_t n = 0; n < 3; n++) {
        World w;
        world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
        w.sw.metric_losses = n;
        CHECK(lowered(&w));
        uint32_t b = world_type(&w, 0)->backward[VARIANT_PLAIN][GRAD_BORN];
        const Segment *s = world_segment(&w, b);
        uint64_t bytes = 0, rows = 64, vocab = 128;
        CHECK_INT(2 + 3 * n, s->op_n); /* fill, scatter */
        for (uint32_t i = 2; i < s->op_n; i++) {
            const Op *op = &graph_ops(&w.g, s)[i];
            CHECK(name_is(&w, op, "metrics"));
            bytes += op->read_bytes + op->write_bytes;
        }
        CHECK_U64(n * (14 * rows * vocab + 4 * rows), bytes);
        world_free(&w);
    }
}

/* What is written in the scenario has the last word, what stands there otherwise the stack. */
static void flash_may_be_asked_for(void)
{
    for (int i = 0; i < 6; i++) {
        World w;
        bool has = i & 1, flash = i < 4, asks = i >= 2;
        world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
        w.sw.fused_attention = has;
        w.s.training.attention = flash ? ATTENTION_FLASH : ATTENTION_MATH;
        w.s.training.asks_attention = asks;
        CHECK(lowered(&w));
        bool fused = flash && (has || asks);
        CHECK_INT(fused, strstr(kernels(&w, plain_forward(&w)), "softmax") == NULL);
        world_free(&w);
    }
}

/* Activations only where a compiler makes the kernel. */
static void norms_write_fp8(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.s.training.precision = DTYPE_FP8;
    CHECK(lowered(&w));
    uint32_t f = plain_forward(&w);
    CHECK_STR(
        "norm matmul rope attention cast matmul add norm matmul activation cast matmul add",
        kernels(&w, f));
    CHECK_STR("boundary, norm1.weight, >fp8 input, >norm statistics", arguments(&w, f, 0));
    const Op *norm = &graph_ops(&w.g, world_segment(&w, f))[0];
    CHECK_U64(64 * 64 + 4 * 64, norm->write_bytes);
    CHECK_STR("cast matmul matmul activation cast matmul matmul norm add cast matmul matmul "
              "attention rope cast matmul matmul norm add",
              kernels(&w, plain_backward(&w, GRAD_BORN)));
    world_free(&w);
}

/* torchao's dynamic scaling: nothing is cast by the kernel that makes it, and weights are cast. */
static void fp8_may_be_scaled_by_what_is_cast(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.s.training.precision = DTYPE_FP8;
    w.s.training.compiled = true;
    w.sw.fp8_dynamic = w.sw.f32_params = true;
    CHECK(lowered(&w));
    uint32_t f = plain_forward(&w), b = plain_backward(&w, GRAD_BORN);
    CHECK_STR(
        "norm cast cast matmul rope attention cast cast matmul norm+add_rmsnorm cast cast "
        "matmul activation cast cast matmul add",
        kernels(&w, f));
    const Op *ops = graph_ops(&w.g, world_segment(&w, f));
    uint64_t rows = 64, weights = 64 * (64 + 2 * 32);
    CHECK_STR("norm1, >fp8 input", arguments(&w, f, 1));
    CHECK_U64(2 * rows * 64, ops[1].read_bytes);
    CHECK_STR("attention.qkv.weight, >weight in fp8", arguments(&w, f, 2));
    CHECK_U64(2 * 2 * weights, ops[2].read_bytes);
    CHECK_U64(weights, ops[2].write_bytes);
    CHECK_STR("fp8 input, weight in fp8, >attention.qkv", arguments(&w, f, 3));
    CHECK_U64(rows * 64 + weights, ops[3].read_bytes);
    CHECK_STR("boundary, >gradient in fp8", arguments(&w, b, 0));
    CHECK_STR("mlp.down.weight, >weight in fp8", arguments(&w, b, 1));
    CHECK_U64(2 * 96 * 64, graph_ops(&w.g, world_segment(&w, b))[1].read_bytes);
    CHECK_STR("gradient in fp8, weight in fp8, >gradient", arguments(&w, b, 2));
    world_free(&w);

    w.s.training.compiled = false; /* each is read once more for its scale, in backward too */
    CHECK(lowered(&w));
    f = plain_forward(&w);
    CHECK_STR("norm1, >fp8 scale", arguments(&w, f, 1));
    CHECK_STR("norm1, fp8 scale, >fp8 input", arguments(&w, f, 2));
    b = plain_backward(&w, GRAD_BORN);
    CHECK_STR("mlp.down.weight, >weight in fp8", arguments(&w, b, 2));
    CHECK_U64(2 * 2 * 96 * 64, graph_ops(&w.g, world_segment(&w, b))[2].read_bytes);
    world_free(&w);
}

/* Transformer Engine's current scaling: so are inputs and gradients, but weights are fp8. */
static void weights_may_be_fp8_where_the_rest_is_scaled_by_what_is_cast(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.s.training.precision = DTYPE_FP8;
    w.sw.fp8_dynamic = true;
    CHECK(lowered(&w));
    uint32_t f = plain_forward(&w), b = plain_backward(&w, GRAD_BORN);
    CHECK_STR("norm cast cast matmul rope attention cast cast matmul add norm cast cast matmul "
              "activation cast cast matmul add",
              kernels(&w, f));
    CHECK_STR("norm1, >fp8 scale", arguments(&w, f, 1));
    CHECK_STR("norm1, fp8 scale, >fp8 input", arguments(&w, f, 2));
    CHECK_STR("fp8 input, attention.qkv.weight, >attention.qkv", arguments(&w, f, 3));
    CHECK_STR("boundary, >fp8 scale", arguments(&w, b, 0));
    CHECK_STR("boundary, fp8 scale, >gradient in fp8", arguments(&w, b, 1));
    CHECK_STR("gradient in fp8, mlp.down.weight, >gradient", arguments(&w, b, 2));
    world_free(&w);
}

/* ---- optimizer ---- */

/* One segment that updates everything of a layer, as sim/strategy/grads.c writes it. */
static uint32_t optimizer_segment(World *w)
{
    const BlockType *t = world_type(w, 1);
    uint32_t layout[] = { t->grad_layout, t->state_layout, t->param_layout };
    Slot slot[] = { SLOT_GRAD, SLOT_STATE, SLOT_PARAM };
    uint32_t s = graph_segment(&w->g, SEGMENT_OPTIMIZER, "optimizer");
    graph_op(&w->g, (Op){ .kind = OP_OPTIMIZER,
                          .phase = PHASE_UPDATE,
                          .fn = FN_ADAMW,
                          .name = intern(&w->g.names, "optimizer"),
                          .u.elements = t->elements,
                          .read_bytes = 100 * t->elements,
                          .write_bytes = 50 * t->elements });
    for (int k = 0; k < 3; k++) {
        w->g.segments[s].layout[slot[k]] = layout[k];
        for (uint32_t i = 0; i < w->g.layouts[layout[k]].tensor_n; i++)
            graph_arg(&w->g, slot[k], i, k ? ARG_UPDATE : ARG_READ, false, false);
    }
    return s;
}

/* Passes of torch.optim's AdamW over f32: 80 bytes an element, and 6 for bf16 parameters out of
 * f32 master weights.  For each parameter, or over all of them. */
static void an_unfused_optimizer_is_a_chain_of_passes(void)
{
    static const uint64_t grad_bytes = 2; /* bf16, read by two of them */
    for (int foreach = 0; foreach < 2; foreach++) {
        World w;
        world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
        w.sw.fused_optimizer = false;
        w.sw.foreach_optimizer = foreach;
        CHECK(world_build(&w));
        uint32_t s = optimizer_segment(&w);
        CHECK(lower(&w.b, &w.err));
        const BlockType *t = world_type(&w, 1);
        const Segment *segment = world_segment(&w, s);
        CHECK_INT(9 * (foreach ? 1 : t->params_n), segment->op_n);
        uint64_t bytes = 0, elements = 0;
        for (uint32_t i = 0; i < segment->op_n; i++) {
            const Op *op = &graph_ops(&w.g, segment)[i];
            bytes += op->read_bytes + op->write_bytes;
            elements += op->u.elements;
        }
        CHECK_U64(9 * t->elements, elements);
        CHECK_U64((80 - 2 * (4 - grad_bytes) + 6) * t->elements, bytes);
        if (!foreach) {
            CHECK_STR("*master weights", arguments(&w, s, 0));
            CHECK_STR("norm1.weight, *first moment", arguments(&w, s, 1));
            CHECK_STR("second moment, >optimizer temporary", arguments(&w, s, 4));
            CHECK_STR("*master weights, first moment, optimizer temporary",
                      arguments(&w, s, 7));
            CHECK_STR("master weights, >norm1.weight", arguments(&w, s, 8));
        }
        world_free(&w);
    }
}

/* Moments in 16 bits: all operands are, the temporary too. */
static void passes_over_16_bits_move_half(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.sw.fused_optimizer = false;
    w.sw.foreach_optimizer = w.sw.states_like_params = true;
    w.s.training.master_weights = false;
    CHECK(world_build(&w));
    uint32_t s = optimizer_segment(&w);
    CHECK(lower(&w.b, &w.err));
    const Segment *segment = world_segment(&w, s);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < segment->op_n; i++)
        bytes +=
            graph_ops(&w.g, segment)[i].read_bytes + graph_ops(&w.g, segment)[i].write_bytes;
    CHECK_U64(80 / 2 * world_type(&w, 1)->elements, bytes);
    world_free(&w);
}

static void a_fused_optimizer_is_one_kernel(void)
{
    World w;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.sw.fused_optimizer = true;
    CHECK(world_build(&w));
    uint32_t s = optimizer_segment(&w);
    CHECK(lower(&w.b, &w.err));
    CHECK_INT(1, world_segment(&w, s)->op_n);
    CHECK_U64(100 * world_type(&w, 1)->elements,
              graph_ops(&w.g, world_segment(&w, s))[0].read_bytes);
    world_free(&w);
}

/* Bytes an element of all kernels of a step's end. */
static uint64_t update_bytes(World *w, uint32_t *kernels_n)
{
    CHECK(world_build(w));
    uint32_t s = optimizer_segment(w);
    CHECK(lower(&w->b, &w->err));
    const Segment *segment = world_segment(w, s);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < segment->op_n; i++)
        bytes +=
            graph_ops(&w->g, segment)[i].read_bytes + graph_ops(&w->g, segment)[i].write_bytes;
    *kernels_n = segment->op_n;
    CHECK_U64(0, bytes % world_type(w, 1)->elements);
    return bytes / world_type(w, 1)->elements;
}

/* A fused AdamW reads gradient and 12 bytes of f32 state, writes the state and 2 bytes of
 * parameter; passes add what sim/lower_optimizer.c says. */
static void passes_beside_a_fused_optimizer(void)
{
    static const struct {
        DType precision;
        bool f32_grads, clip_set;
        double clip;
        uint32_t kernels_n;
        uint64_t bytes;
    } cases[] = {
        /* 16-bit gradients: 2 zero, 2 check, 4 average, 6 copy, 4 norm, 8 clip, update 4 + 24,
         * 6 copy; in f16 8 unscale. */
        { DTYPE_BF16, false, false, 0, 8, 2 + 2 + 4 + 6 + 4 + 8 + 28 + 6 },
        { DTYPE_F16, false, false, 0, 9, 2 + 2 + 4 + 6 + 8 + 4 + 8 + 28 + 6 },
        /* f32 gradients are not copied. */
        { DTYPE_BF16, true, false, 0, 7, 4 + 4 + 8 + 4 + 8 + 28 + 6 },
        { DTYPE_BF16, true, true, 0, 5, 4 + 4 + 8 + 28 + 6 },
        { DTYPE_BF16, true, true, 1, 7, 4 + 4 + 8 + 4 + 8 + 28 + 6 },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        World w;
        uint32_t kernels_n;
        world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
        w.s.training.precision = cases[i].precision;
        w.s.training.param_dtype = w.s.training.grad_dtype = cases[i].precision;
        w.s.training.grad_clip_set = cases[i].clip_set;
        w.s.training.grad_clip = cases[i].clip;
        w.s.parallel.dp = 2;
        w.sw.fused_optimizer = true;
        w.sw.f32_grads = cases[i].f32_grads;
        w.sw.zeroes_grads = w.sw.checks_grads = w.sw.averages_grads = true;
        w.sw.copies_grads = w.sw.unscales_grads = w.sw.copies_params = true;
        w.sw.norms_grads = w.sw.clips_grads = true;
        CHECK_U64(cases[i].bytes, update_bytes(&w, &kernels_n));
        CHECK_U64(cases[i].kernels_n, kernels_n);
        world_free(&w);
    }
}

/* Alone, a rank has nothing to average; a pass may be all there is. */
static void one_pass_beside_a_fused_optimizer(void)
{
    World w;
    uint32_t kernels_n;
    world_transformer(&w, llama_like(1, 64, 4, 2, 96, 128));
    w.sw.fused_optimizer = w.sw.averages_grads = true;
    CHECK_U64(2 + 24 + 2, update_bytes(&w, &kernels_n));
    CHECK_U64(1, kernels_n);
    world_free(&w);
}

/* ---- deps and edges ---- */

static void edges_and_deps_follow_the_kernels(void)
{
    World w;
    world_transformer(&w, gpt_like(1, 64, 4, 96));
    w.s.parallel.tp = 2;
    w.sw.fused_bias = true;
    w.s.training.attention = ATTENTION_MATH;
    CHECK(world_build(&w));
    Role *role = &w.g.roles[0];
    uint32_t f = plain_forward(&w);
    const Segment *s = world_segment(&w, f);
    uint32_t attention = NONE_U32, add = NONE_U32;
    for (uint32_t i = 0; i < s->op_n; i++) {
        attention = graph_ops(&w.g, s)[i].kind == OP_ATTENTION ? i : attention;
        add = graph_ops(&w.g, s)[i].kind == OP_ADD ? i : add;
    }
    role_instance(role, f, 0, 0, 0);
    role_instance(role, f, 1, 0, 0);
    role_edge(role, attention, 0, attention);
    role_edge(role, add, 0, add);
    CHECK(lower(&w.b, &w.err));
    graph_seal(&w.g);
    s = world_segment(&w, f);
    const Op *ops = graph_ops(&w.g, s);
    const Edge *edge = role->edges;
    CHECK_INT(OP_MATMUL, ops[edge[0].dst_op].kind); /* q k^T, the first kernel */
    CHECK_INT(OP_SOFTMAX, ops[edge[0].dst_op + 1].kind);
    CHECK_INT(edge[0].dst_op + 2, edge[0].src_op); /* weights v, the last */
    CHECK_INT(OP_ADD, ops[edge[1].src_op].kind);
    for (uint32_t i = 0; i < s->op_n; i++)
        if (ops[i].lane == LANE_TP) {
            CHECK_INT(1, ops[i].dep_n);
            CHECK_INT(OP_MATMUL, ops[w.g.deps[ops[i].dep_first]].kind);
            CHECK_INT(i, w.g.deps[ops[i + 1].dep_first]);
        }
    world_free(&w);
}

int main(void)
{
    RUN(lowering_keeps_flops_and_memory);
    RUN(kernels_keep_the_ids_of_their_ops);
    RUN(a_gpt_layer_by_what_its_stack_fuses);
    RUN(a_llama_layer_by_what_its_stack_fuses);
    RUN(gate_and_up_may_be_two_arguments);
    RUN(arguments_stand_as_the_table_says);
    RUN(merged_kernels_move_what_leaves_the_chip);
    RUN(relu_leaves_only_its_result);
    RUN(attention_without_fusion_is_two_matmuls_and_a_softmax);
    RUN(fused_attention_may_copy_to_its_layout);
    RUN(eager_parts_cast_their_input_each);
    RUN(eager_parts_cast_their_weights_each);
    RUN(a_compiler_makes_activations_again);
    RUN(a_compiler_does_so_beside_what_is_selected);
    RUN(the_loss_by_what_its_stack_fuses);
    RUN(a_loss_in_place_is_one_tensor);
    RUN(a_loss_may_copy_once_more);
    RUN(gradients_are_added_by_the_matmul_or_after_it);
    RUN(parts_of_a_gradient_are_added_once);
    RUN(table_gradients_are_cleared_then_scattered);
    RUN(an_embedding_s_gradient_may_be_made_apart);
    RUN(gradients_in_16_bits_are_added_as_they_are);
    RUN(gradients_in_bf16_may_be_cast_first);
    RUN(parts_of_a_split_matmul_add_up);
    RUN(dropout_may_be_the_model_s);
    RUN(dropout_joins_the_sum);
    RUN(chains_run_kernel_by_kernel);
    RUN(gelu_new_runs_kernel_by_kernel);
    RUN(other_gelus_are_one_kernel);
    RUN(scores_may_be_scaled_and_masked_apart);
    RUN(fused_softmax_is_of_some_shapes);
    RUN(softmax_in_f32_is_kept_so);
    RUN(autocast_casts_kernel_by_kernel);
    RUN(compilers_fuse_the_casts_of_autocast);
    RUN(chains_of_f32_cast_nothing);
    RUN(a_fused_loss_may_keep_the_logits);
    RUN(metrics_are_losses_after_backward);
    RUN(flash_may_be_asked_for);
    RUN(norms_write_fp8);
    RUN(fp8_may_be_scaled_by_what_is_cast);
    RUN(weights_may_be_fp8_where_the_rest_is_scaled_by_what_is_cast);
    RUN(an_unfused_optimizer_is_a_chain_of_passes);
    RUN(passes_over_16_bits_move_half);
    RUN(a_fused_optimizer_is_one_kernel);
    RUN(passes_beside_a_fused_optimizer);
    RUN(one_pass_beside_a_fused_optimizer);
    RUN(edges_and_deps_follow_the_kernels);
    return check_report();
}
