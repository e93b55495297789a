/*
 * test_tensor.c - tensor and context parallelism against closed forms: shares, volumes, lanes.
 */
#include "tests/unit/block_world.h"

static void split_world(World *w, Transformer m, uint32_t tp, bool sequence)
{
    world_transformer(w, m);
    w->s.parallel.tp = tp;
    w->s.parallel.sequence_parallel = sequence;
}

/* The second task of BERT is not split. */
static Transformer splittable(int i)
{
    Transformer m = zoo(i);
    m.pooler = m.next_sentence = false; /* nor over cp */
    return m;
}

/* ---- shares ---- */

static void ranks_together_do_the_flops_of_one(void)
{
    for (int i = 0; i < ZOO_N; i++)
        for (int sequence = 0; sequence < 2; sequence++) {
            World one, two;
            split_world(&one, splittable(i), 1, false);
            split_world(&two, splittable(i), 2, sequence);
            CHECK(world_build(&one));
            CHECK(world_build(&two));
            bool alike =
                two.s.model.u.transformer.kv_rank && !sequence; /* latents: each rank */
            for (uint32_t block = 1; block <= 3 && !alike; block++)
                CHECK_NEAR(sum_block(&one, block, VARIANT_PLAIN).flops,
                           2 * sum_block(&two, block, VARIANT_PLAIN).flops, 1e-12);
            world_free(&one);
            world_free(&two);
        }
}

/* Model flops are the model's: what several ranks do alike counts once. */
static void work_done_by_several_ranks_counts_once(void)
{
    for (int i = 0; i <= ZOO_N; i++)
        for (int sequence = 0; sequence < 2; sequence++) {
            World one, all;
            /* The last: 2 key and value heads on 4 ranks. */
            Transformer m = i < ZOO_N ? splittable(i) : llama_like(3, 64, 4, 2, 96, 128);
            uint32_t tp = i < ZOO_N ? 2 : 4;
            split_world(&one, m, 1, false);
            split_world(&all, m, tp, sequence);
            CHECK(world_build(&one));
            CHECK(world_build(&all));
            CHECK_NEAR(sum_blocks(&one, VARIANT_PLAIN).model_flops,
                       tp * sum_blocks(&all, VARIANT_PLAIN).model_flops, 1e-12);
            world_free(&one);
            world_free(&all);
        }
}

static void ranks_together_hold_the_parameters_of_one(void)
{
    for (int sequence = 0; sequence < 2; sequence++) {
        World w;
        split_world(&w, zoo(ZOO_LLAMA), 2, sequence);
        CHECK(world_build(&w));
        const BlockType *t = world_type(&w, 1);
        uint64_t norms = 2 * 64;
        uint64_t all = transformer_block_params(&w.s.model.u.transformer, 0);
        CHECK_U64((all - norms) / 2 + norms, t->elements);
        uint32_t partial_n = 0;
        for (uint32_t p = 0; p < t->params_n; p++)
            partial_n += t->params[p].tp_partial;
        CHECK_INT(sequence ? 2 : 0, partial_n);
        world_free(&w);
    }
}

/* 2 key and value heads on 4 ranks: each rank holds one of each, so two ranks hold the same. */
static void key_and_value_heads_are_repeated(void)
{
    World w;
    split_world(&w, llama_like(1, 64, 4, 2, 96, 128), 4, false);
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    const Segment *s = world_segment(&w, t->forward[VARIANT_PLAIN]);
    const Op *qkv = find_op(&w, t->forward[VARIANT_PLAIN], OP_MATMUL, PHASE_FORWARD, 0);
    CHECK_U64(16 + 2 * 16, qkv->u.matmul.n); /* one head of 16 each of q, k, v */
    CHECK_U64(2 * 64 * 48, arg_tensor(&w, s, qkv, 2)->bytes);
    const Op *attention =
        find_op(&w, t->forward[VARIANT_PLAIN], OP_ATTENTION, PHASE_FORWARD, 0);
    CHECK_U64(1, attention->u.attention.heads);
    CHECK_U64(1, attention->u.attention.kv_heads);
    world_free(&w);
}

/* The all-reduce of a block's backward that is over the group "kv"; NULL: there is none. */
static const Op *sum_of_heads(const World *w)
{
    const Segment *s = world_segment(w, world_type(w, 1)->backward[VARIANT_PLAIN][GRAD_ADD]);
    const Op *found = NULL;
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *o = graph_ops(&w->g, s) + i;
        if (o->kind != OP_ALL_REDUCE || o->u.comm.group != w->b.group[GROUP_KV])
            continue;
        CHECK(found == NULL);
        found = o;
    }
    return found;
}

static bool comes_before(const World *w, const Op *sum, OpKind kind, OpPhase phase)
{
    const Segment *s = world_segment(w, world_type(w, 1)->backward[VARIANT_PLAIN][GRAD_ADD]);
    for (const Op *o = sum + 1; o < graph_ops(&w->g, s) + s->op_n; o++)
        if (o->kind == kind && o->phase == phase)
            return true;
    return false;
}

/* Once a block and backward alone, tokens x 2 heads x their width, among the ranks that repeat
 * them; before the weight's gradient, and its bias's, but after those of norms, whose parts are
 * summed over all of tp. */
static void gradients_of_repeated_heads_are_summed(void)
{
    for (int variant = 0; variant < 12; variant++) {
        Transformer m = llama_like(1, 64, 4, variant % 2 ? 1 : 2, 96, 128), each;
        m.qkv_bias = variant / 2 % 3 == 1;
        m.qk_norm = variant / 2 % 3 == 2;
        each = m;
        each.kv_heads = 4;
        World w, none;
        split_world(&w, m, 4, variant >= 6);
        split_world(&none, each, 4, variant >= 6);
        w.s.parallel.cp = none.s.parallel.cp = variant % 4 < 2 ? 1 : 2;
        CHECK(world_build(&w) && world_build(&none));
        const Op *sum = sum_of_heads(&w);
        uint64_t tokens = 2 * 32 / w.s.parallel.cp, bytes = tokens * 2 * 16 * 2;
        Sums a = sum_block(&w, 1, VARIANT_PLAIN), b = sum_block(&none, 1, VARIANT_PLAIN);
        CHECK_U64(NONE_U32, none.b.group[GROUP_KV]);
        if (CHECK(sum != NULL)) {
            const GroupSpec *group = &w.g.groups[sum->u.comm.group];
            CHECK_U64(bytes, sum->u.comm.bytes);
            CHECK_U64(4 / m.kv_heads, group_size(group));
            CHECK_U64(m.kv_heads == 2 ? 2 : 0, group_base(group, 3));
            CHECK(comes_before(&w, sum, OP_MATMUL, PHASE_WGRAD));
            CHECK(!m.qkv_bias || comes_before(&w, sum, OP_BIAS, PHASE_WGRAD));
            const Op *before = sum - 1;
            CHECK(before->kind == (m.qk_norm ? OP_NORM : OP_ROPE));
        }
        CHECK_U64(b.comm_bytes[OP_ALL_REDUCE] + bytes, a.comm_bytes[OP_ALL_REDUCE]);
        CHECK_U64(b.comms_n[OP_ALL_REDUCE] + 1, a.comms_n[OP_ALL_REDUCE]);
        world_free(&w);
        world_free(&none);
    }
}

static void norms_of_q_and_k_get_a_part_of_their_gradient(void)
{
    World w;
    split_world(&w, zoo(ZOO_QWEN), 2, false);
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    for (uint32_t p = 0; p < t->params_n; p++) {
        const Tensor *x =
            &w.g.tensors[w.g.layouts[t->param_layout].tensor_first + t->params[p].tensor];
        const char *name = intern_text(&w.g.names, x->name);
        bool of_heads = strstr(name, "q_norm") || strstr(name, "k_norm");
        CHECK_INT(of_heads, t->params[p].tp_partial);
        if (of_heads)
            CHECK_U64(16, t->params[p].elements);
    }
    world_free(&w);
}

static void the_vocabulary_is_padded_to_a_multiple_of_the_ranks(void)
{
    World w;
    split_world(&w, gpt_like(1, 64, 4, 97), 4, false);
    w.sw.vocab_multiple = 8;
    CHECK(world_build(&w));
    CHECK_U64(128 / 4 * 64, world_type(&w, 0)->params[0].elements);
    world_free(&w);
}

/* ---- volumes ---- */

/* Megatron-LM (arXiv 1909.08053): two all-reduces of b s h forward and two backward. */
static void a_layer_has_four_all_reduces(void)
{
    World w;
    split_world(&w, gpt_like(2, 64, 4, 96), 4, false);
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    uint64_t bsh = 2 * 2 * 32 * 64;
    Sums forward = { 0 }, backward = { 0 };
    add_segment(&w, t->forward[VARIANT_PLAIN], &forward);
    add_segment(&w, t->backward[VARIANT_PLAIN][GRAD_BORN], &backward);
    CHECK_U64(2, forward.comms_n[OP_ALL_REDUCE]);
    CHECK_U64(2 * bsh, forward.comm_bytes[OP_ALL_REDUCE]);
    CHECK_U64(2, backward.comms_n[OP_ALL_REDUCE]);
    CHECK_U64(2 * bsh, backward.comm_bytes[OP_ALL_REDUCE]);
    world_free(&w);
}

/*
 * Korthikanti et al. 2022, section 4.2.2: an all-gather and a reduce-scatter for
 * each all-reduce, the same volume; backward gathers the input of the two column-
 * parallel matmuls once more.
 */
static void sequence_parallelism_moves_the_same(void)
{
    World w;
    split_world(&w, gpt_like(2, 64, 4, 96), 4, true);
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    uint64_t bsh = 2 * 2 * 32 * 64;
    Sums forward = { 0 }, backward = { 0 };
    add_segment(&w, t->forward[VARIANT_PLAIN], &forward);
    add_segment(&w, t->backward[VARIANT_PLAIN][GRAD_BORN], &backward);
    CHECK_U64(2, forward.comms_n[OP_ALL_GATHER]);
    CHECK_U64(2, forward.comms_n[OP_REDUCE_SCATTER]);
    CHECK_U64(4 * bsh,
              forward.comm_bytes[OP_ALL_GATHER] + forward.comm_bytes[OP_REDUCE_SCATTER]);
    CHECK_U64(2 + 2, backward.comms_n[OP_ALL_GATHER]);
    CHECK_U64(2, backward.comms_n[OP_REDUCE_SCATTER]);
    CHECK_U64(4 * bsh, backward.comm_bytes[OP_ALL_GATHER]);
    CHECK_U64(0, forward.comms_n[OP_ALL_REDUCE] + backward.comms_n[OP_ALL_REDUCE]);
    CHECK_U64(bsh / 4, w.b.boundary_bytes);
    world_free(&w);
}

/* As torchtitan: nothing is gathered twice, so whole rows are kept in place of a rank's: of what
 * both column-parallel matmuls read. */
static void what_was_gathered_may_be_kept(void)
{
    uint64_t kept[2], t = 4, bsh = 2 * 2 * 32 * 64;
    for (int keeps = 0; keeps < 2; keeps++) {
        World w;
        split_world(&w, gpt_like(2, 64, 4, 96), (uint32_t)t, true);
        w.sw.tp_keeps_gathered = keeps;
        CHECK(world_build(&w));
        const BlockType *type = world_type(&w, 1);
        Sums backward = { 0 };
        add_segment(&w, type->backward[VARIANT_PLAIN][GRAD_BORN], &backward);
        CHECK_U64(keeps ? 2 : 2 + 2, backward.comms_n[OP_ALL_GATHER]);
        CHECK_U64(2, backward.comms_n[OP_REDUCE_SCATTER]);
        kept[keeps] = layout_sum(&w, type->stash_layout[VARIANT_PLAIN]);
        world_free(&w);
    }
    CHECK_U64(kept[0] + 2 * (bsh - bsh / t), kept[1]);
}

/* In fp8 what is gathered takes one byte, input or gradient, what is scattered two. */
static void fp8_is_gathered_in_fp8(void)
{
    World w;
    split_world(&w, gpt_like(2, 64, 4, 96), 4, true);
    w.s.training.precision = DTYPE_FP8;
    CHECK(world_build(&w));
    uint64_t bsh = 2 * 32 * 64;
    Sums forward = { 0 }, backward = { 0 };
    add_segment(&w, world_type(&w, 1)->forward[VARIANT_PLAIN], &forward);
    add_segment(&w, world_type(&w, 1)->backward[VARIANT_PLAIN][GRAD_BORN], &backward);
    CHECK_U64(2 * bsh, forward.comm_bytes[OP_ALL_GATHER]);
    CHECK_U64(2 * 2 * bsh, forward.comm_bytes[OP_REDUCE_SCATTER]);
    CHECK_U64(2 * 2 * bsh, backward.comm_bytes[OP_REDUCE_SCATTER]);
    CHECK_U64(2 * bsh + 2 * bsh, backward.comm_bytes[OP_ALL_GATHER]);
    world_free(&w);
}

/* The same paper, equation 4: everything a layer keeps is shared out, sbh/t (34 + 5as/h). */
static void sequence_parallelism_shares_out_what_a_layer_keeps(void)
{
    World w;
    split_world(&w, gpt_like(2, 256, 8, 512), 4, true);
    w.s.training.attention = ATTENTION_MATH;
    w.sw.dropout = true;
    w.s.training.seq_len = 128;
    CHECK(world_build(&w));
    uint64_t s = 128, b = 2, h = 256, a = 8, t = 4;
    uint64_t paper = (s * b * h * 34 + 5 * a * s * s * b) / t;
    uint64_t in = 2 * s * b * h / t, stats = 2 * (2 * 4 * s * b) / t;
    CHECK_U64(paper - in + stats,
              layout_sum(&w, world_type(&w, 1)->stash_layout[VARIANT_PLAIN]));
    world_free(&w);
}

/* Equation 2: without it sbh (10 + 24/t + 5as/ht). */
static void tensor_parallelism_alone_shares_out_the_rest(void)
{
    World w;
    split_world(&w, gpt_like(2, 256, 8, 512), 4, false);
    w.s.training.attention = ATTENTION_MATH;
    w.sw.dropout = true;
    w.s.training.seq_len = 128;
    CHECK(world_build(&w));
    uint64_t s = 128, b = 2, h = 256, a = 8, t = 4, sbh = s * b * h;
    uint64_t paper = sbh * 10 + sbh * 24 / t + 5 * a * s * s * b / t;
    CHECK_U64(paper - 2 * sbh + 2 * (2 * 4 * s * b),
              layout_sum(&w, world_type(&w, 1)->stash_layout[VARIANT_PLAIN]));
    world_free(&w);
}

static void branches_of_a_parallel_block_share_a_collective(void)
{
    World w;
    split_world(&w, zoo(ZOO_NEOX_ONE_NORM), 2, false);
    CHECK(world_build(&w));
    Sums sums = sum_block(&w, 1, VARIANT_PLAIN);
    CHECK_U64(2, sums.comms_n[OP_ALL_REDUCE]); /* one forward, one backward */
    world_free(&w);
    split_world(&w, zoo(ZOO_NEOX), 2, false);
    CHECK(world_build(&w));
    CHECK_U64(3, sum_block(&w, 1, VARIANT_PLAIN).comms_n[OP_ALL_REDUCE]); /* two norms */
    world_free(&w);
}

/* Embedding: one all-reduce of b s h.  Head: maxima, sums (a pair), and dx, of b s rows. */
static void the_ends_exchange_rows(void)
{
    World w;
    split_world(&w, gpt_like(1, 64, 4, 96), 4, false);
    CHECK(world_build(&w));
    uint64_t rows = 2 * 32, bsh = 2 * rows * 64;
    Sums embedding = sum_block(&w, 0, VARIANT_PLAIN), head = sum_block(&w, 2, VARIANT_PLAIN);
    CHECK_U64(1, embedding.comms_n[OP_ALL_REDUCE]);
    CHECK_U64(bsh, embedding.comm_bytes[OP_ALL_REDUCE]);
    CHECK_U64(3, head.comms_n[OP_ALL_REDUCE]);
    CHECK_U64(4 * rows + 2 * 4 * rows + bsh, head.comm_bytes[OP_ALL_REDUCE]);
    const Op *loss = find_op(&w, world_type(&w, 2)->forward[VARIANT_PLAIN], OP_CROSS_ENTROPY,
                             PHASE_FORWARD, 2);
    CHECK(loss && name_is(&w, loss, "loss"));
    world_free(&w);
}

static void full_recomputation_repeats_the_collectives(void)
{
    World w;
    split_world(&w, gpt_like(1, 64, 4, 96), 4, false);
    w.s.training.recompute = RECOMPUTE_FULL;
    CHECK(world_build(&w));
    CHECK_U64(4 + 2, sum_block(&w, 1, VARIANT_RECOMPUTE).comms_n[OP_ALL_REDUCE]);
    world_free(&w);
}

/* Megatron gathers for the repeated forward, gives that up, and gathers again for the weights. */
static void full_recomputation_gathers_once_more(void)
{
    World w;
    split_world(&w, gpt_like(1, 64, 4, 96), 4, true);
    w.s.training.recompute = RECOMPUTE_FULL;
    CHECK(world_build(&w));
    Sums sums = { 0 };
    add_segment(&w, world_type(&w, 1)->backward[VARIANT_RECOMPUTE][GRAD_BORN], &sums);
    CHECK_U64(2 + 2 + 2, sums.comms_n[OP_ALL_GATHER]); /* forward, weights, gradients */
    CHECK_U64(2 + 2, sums.comms_n[OP_REDUCE_SCATTER]);
    world_free(&w);
}

/* What is kept is what the repeated forward gathers. */
static void full_recomputation_gathers_what_is_kept_once(void)
{
    World w;
    split_world(&w, gpt_like(1, 64, 4, 96), 4, true);
    w.s.training.recompute = RECOMPUTE_FULL;
    w.sw.tp_keeps_gathered = true;
    CHECK(world_build(&w));
    Sums sums = { 0 };
    add_segment(&w, world_type(&w, 1)->backward[VARIANT_RECOMPUTE][GRAD_BORN], &sums);
    CHECK_U64(2 + 2, sums.comms_n[OP_ALL_GATHER]); /* forward, gradients */
    CHECK_U64(2 + 2, sums.comms_n[OP_REDUCE_SCATTER]);
    world_free(&w);
}

/* ---- lanes ---- */

static bool waits_for(const World *w, const Segment *s, uint32_t op, uint32_t earlier)
{
    const Op *o = &graph_ops(&w->g, s)[op];
    for (uint32_t d = 0; d < o->dep_n; d++)
        if (w->g.deps[o->dep_first + d] == earlier)
            return true;
    return false;
}

static uint32_t index_of(const World *w, const Segment *s, const Op *op)
{
    return (uint32_t)(op - graph_ops(&w->g, s));
}

/* dgrad -> all-reduce beside wgrad -> norm. */
static void the_gradient_of_the_input_travels_beside_the_weight_gradient(void)
{
    World w;
    split_world(&w, gpt_like(1, 64, 4, 96), 4, false);
    CHECK(world_build(&w));
    uint32_t backward = world_type(&w, 1)->backward[VARIANT_PLAIN][GRAD_BORN];
    const Segment *s = world_segment(&w, backward);
    const Op *ar = find_op(&w, backward, OP_ALL_REDUCE, PHASE_DGRAD, 0);
    uint32_t i = index_of(&w, s, ar);
    const Op *ops = graph_ops(&w.g, s);
    CHECK_INT(LANE_TP, ar->lane);
    CHECK(ops[i - 1].kind == OP_MATMUL && ops[i - 1].phase == PHASE_DGRAD);
    CHECK(ops[i + 1].kind == OP_MATMUL && ops[i + 1].phase == PHASE_WGRAD);
    CHECK(ops[i + 2].kind == OP_BIAS && ops[i + 3].kind == OP_NORM);
    CHECK(waits_for(&w, s, i, i - 1));
    CHECK_INT(0, ops[i + 1].dep_n + ops[i + 2].dep_n);
    CHECK(waits_for(&w, s, i + 3, i));
    world_free(&w);
}

static void blocking_collectives_stand_on_the_compute_lane(void)
{
    for (int how = 0; how < 3; how++) {
        World w;
        split_world(&w, gpt_like(1, 64, 4, 96), 4, true);
        w.sw.tp_async_backward = how != 0;
        w.sw.overlap[DIM_TP] = how != 1;
        w.s.parallel.overlap_set[DIM_TP] = how == 2; /* the user says no */
        CHECK(world_build(&w));
        for (uint32_t i = 0; i < w.g.ops_n; i++)
            CHECK(w.g.ops[i].lane == LANE_COMPUTE && w.g.ops[i].dep_n == 0);
        world_free(&w);
    }
}

/* Whatever stands on the tp lane is waited for before the segment ends. */
static void no_collective_outlives_its_segment(void)
{
    for (int i = 0; i < 2 * ZOO_N; i++) {
        World w;
        split_world(&w, splittable(i / 2), 2, i % 2);
        w.s.training.recompute = RECOMPUTE_FULL;
        CHECK(world_build(&w));
        for (uint32_t s = 0; s < w.g.segments_n; s++) {
            const Segment *segment = world_segment(&w, s);
            uint32_t last = NONE_U32, waited = NONE_U32;
            for (uint32_t o = 0; o < segment->op_n; o++) {
                const Op *op = &graph_ops(&w.g, segment)[o];
                if (op->lane == LANE_TP)
                    last = o;
                for (uint32_t d = 0; d < op->dep_n; d++) {
                    uint32_t on = w.g.deps[op->dep_first + d];
                    if (graph_ops(&w.g, segment)[on].lane == LANE_TP)
                        waited = on;
                }
            }
            CHECK_INT(last, waited);
        }
        world_free(&w);
    }
}

/* ---- lives ---- */

/* What was gathered for gate and up is gathered once again, for up and for the gradients. */
static void up_alone_gathers_its_input_once_again(void)
{
    for (int part = 0; part < 2; part++) {
        World w;
        split_world(&w, llama_like(1, 64, 4, 2, 96, 128), 2, true);
        w.s.training.recompute = RECOMPUTE_SELECTIVE;
        w.sw.fused_qkv = w.sw.fused_gate_up = !part;
        w.sw.selective_op = w.sw.fused_gated = true;
        CHECK(world_build(&w));
        const BlockType *t = world_type(&w, 1);
        const Segment *s = world_segment(&w, t->backward[VARIANT_RECOMPUTE][GRAD_BORN]);
        uint32_t gathers_n = 0;
        for (uint32_t i = 0; i < s->op_n; i++) {
            const Op *op = &graph_ops(&w.g, s)[i];
            gathers_n += op->kind == OP_ALL_GATHER && op->phase == PHASE_RECOMPUTE;
        }
        CHECK_INT(2, gathers_n); /* norm1's and norm2's rows */
        world_free(&w);
    }
}

static void everything_born_dies_once_on_every_rank(void)
{
    static const Recompute recompute[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE,
                                           RECOMPUTE_FULL };
    for (int i = 0; i < 3 * 8 * ZOO_N; i++) {
        World w;
        int bits = i / ZOO_N % 8;
        split_world(&w, splittable(i % ZOO_N), 2, bits & 1);
        w.s.parallel.cp = bits & 4 ? 2 : 1;
        w.s.training.recompute = recompute[i / ZOO_N / 8];
        w.sw.tp_async_backward = bits & 2;
        w.s.training.precision = bits & 2 ? DTYPE_FP8 : DTYPE_BF16;
        w.sw.fused_cross_entropy = w.sw.selective_norm = bits & 4;
        w.sw.selective_op = !(bits & 4);
        w.sw.fused_gate_up = bits & 1;
        CHECK(world_build(&w));
        graph_seal(&w.g);
        check_lives(&w);
        world_free(&w);
    }
}

/* ---- an MLP: outputs, then inputs, are shared out ---- */

static void layers_of_an_mlp_alternate(void)
{
    World one, four;
    world_mlp(&one, mlp_like(true));
    world_mlp(&four, mlp_like(true));
    four.s.parallel.tp = 4;
    CHECK(world_build(&one));
    CHECK(world_build(&four));
    graph_seal(&four.g);
    check_lives(&four);
    CHECK_NEAR(sum_blocks(&one, VARIANT_PLAIN).flops,
               4 * sum_blocks(&four, VARIANT_PLAIN).flops, 1e-12);
    /* Bytes between the blocks: parts of the columns after even layers. */
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t all = layout_sum(&one, world_type(&one, i)->out_layout);
        CHECK_U64(i % 2 == 0 ? all / 4 : all,
                  layout_sum(&four, world_type(&four, i)->out_layout));
    }
    /* Row-parallel layers sum forward, column-parallel ones (but the first) backward. */
    CHECK_U64(0, sum_block(&four, 0, VARIANT_PLAIN).comms_n[OP_ALL_REDUCE]);
    CHECK_U64(1, sum_block(&four, 1, VARIANT_PLAIN).comms_n[OP_ALL_REDUCE]);
    CHECK_U64(1, sum_block(&four, 2, VARIANT_PLAIN).comms_n[OP_ALL_REDUCE]);
    world_free(&one);
    world_free(&four);
}

/* ---- context parallelism: the sequence is shared out, keys and values are gathered ---- */

static void ranks_of_cp_share_out_the_work(void)
{
    for (int i = 0; i < ZOO_N; i++)
        for (uint32_t tp = 1; tp <= 2; tp++) {
            World one, four;
            split_world(&one, splittable(i), tp, tp == 2);
            split_world(&four, splittable(i), tp, tp == 2);
            four.s.parallel.cp = 4;
            CHECK(world_build(&one));
            CHECK(world_build(&four));
            Sums a = sum_blocks(&one, VARIANT_PLAIN), b = sum_blocks(&four, VARIANT_PLAIN);
            CHECK_NEAR(a.flops, 4 * b.flops, 1e-12);
            CHECK_NEAR(a.model_flops, 4 * b.model_flops, 1e-12);
            CHECK_U64(one.b.boundary_bytes, 4 * four.b.boundary_bytes);
            CHECK_U64(sum_params(&one), sum_params(&four));
            world_free(&one);
            world_free(&four);
        }
}

/* Keys and values of b s tokens: gathered twice, their gradients scattered once. */
static void a_layer_gathers_its_keys_and_values(void)
{
    for (int i = 0; i < 3; i++) {
        World w;
        world_transformer(&w, i == 2 ? zoo(ZOO_QWEN) : zoo(ZOO_LLAMA));
        w.s.parallel.cp = 4;
        w.s.parallel.tp = i == 1 ? 2 : 1;
        CHECK(world_build(&w));
        uint64_t kv = 2 * (2 * 32) * 2 * (2 * 16) / w.s.parallel.tp;
        Sums forward = { 0 }, backward = { 0 };
        add_segment(&w, world_type(&w, 1)->forward[VARIANT_PLAIN], &forward);
        add_segment(&w, world_type(&w, 1)->backward[VARIANT_PLAIN][GRAD_BORN], &backward);
        CHECK_U64(kv, forward.comm_bytes[OP_ALL_GATHER]);
        CHECK_U64(kv, backward.comm_bytes[OP_ALL_GATHER]);
        CHECK_U64(kv, backward.comm_bytes[OP_REDUCE_SCATTER]);
        world_free(&w);
    }
}

/* Rows of 8 tokens: what 4 kernels wrote is added to the output, what 3 did to dq, and of half the
 * keys to dkv; each time two are read and one is written. */
static void check_correction(World *w, uint32_t segment, bool backward)
{
    OpPhase phase = backward ? PHASE_DGRAD : PHASE_FORWARD;
    const Op *last = find_op(w, segment, OP_ATTENTION, phase, 3), *sum = last + 1;
    const AttentionShape *a = &last->u.attention;
    uint64_t q = a->batch * a->seq_q * a->heads * a->head_dim * 2;
    uint64_t dkv = 2 * a->batch * 8 * a->kv_heads * a->head_dim * 2;
    CHECK_U64(find_op(w, segment, OP_ATTENTION, phase, 0)->read_bytes, last->read_bytes);
    CHECK_INT(OP_ADD, sum->kind);
    CHECK_U64(backward ? 3 * (q + dkv / 2) : 4 * q, sum->write_bytes);
    CHECK_U64(2 * sum->write_bytes, sum->read_bytes);
    CHECK_NEAR(0, sum->flops, 0);
}

/* A ring: kernel k of attention works on the keys that came in step k - 1, as many pairs as the
 * first does below the diagonal, but a rectangle.  What they wrote is corrected behind them. */
static void attention_begins_before_the_others_keys_arrive(void)
{
    World w;
    world_transformer(&w, zoo(ZOO_LLAMA));
    w.s.parallel.cp = 4;
    CHECK(world_build(&w));
    double flops = sum_block(&w, 1, VARIANT_PLAIN).flops;
    CHECK(lower(&w.b, &w.err));
    graph_seal(&w.g);
    CHECK_NEAR(flops, sum_block(&w, 1, VARIANT_PLAIN).flops, 1e-12);
    for (int backward = 0; backward < 2; backward++) {
        const BlockType *t = world_type(&w, 1);
        uint32_t segment =
            backward ? t->backward[VARIANT_PLAIN][GRAD_BORN] : t->forward[VARIANT_PLAIN];
        const Segment *s = world_segment(&w, segment);
        for (uint32_t k = 0; k < 4; k++) {
            const Op *op =
                find_op(&w, segment, OP_ATTENTION, backward ? PHASE_DGRAD : PHASE_FORWARD, k);
            CHECK_INT(k == 0, op->u.attention.causal);
            CHECK_U64(k == 0 ? 8 : 4, op->u.attention.seq_k);
            CHECK_INT(k > 0, op->dep_n);
            if (k == 0)
                continue;
            const Op *step = find_op(&w, segment, OP_ALL_GATHER,
                                     backward ? PHASE_RECOMPUTE : PHASE_FORWARD, k - 1);
            CHECK_INT(LANE_CP, step->lane);
            CHECK(waits_for(&w, s, index_of(&w, s, op), index_of(&w, s, step)));
        }
        check_correction(&w, segment, backward);
    }
    world_free(&w);

    w.sw.overlap[DIM_CP] = false;
    CHECK(world_build(&w));
    CHECK(lower(&w.b, &w.err));
    for (uint32_t i = 0; i < w.g.ops_n; i++)
        CHECK_INT(LANE_COMPUTE, w.g.ops[i].lane);
    world_free(&w);
}

/* ---- refusals ---- */

static void what_does_not_divide_is_named(void)
{
    World w;
    split_world(&w, gpt_like(1, 60, 6, 96), 4, false);
    CHECK(!world_build(&w));
    CHECK_ERR_TEXT(&w.err, "tp = 4 does not divide the 6 heads");
    world_free(&w);

    split_world(&w, llama_like(1, 96, 6, 2, 96, 128), 3, false);
    CHECK(!world_build(&w));
    CHECK_ERR_TEXT(&w.err, "tp = 3 is not a multiple of the 2 key and value heads");
    world_free(&w);

    split_world(&w, llama_like(1, 64, 4, 4, 98, 128), 4, true);
    w.s.training.seq_len = 33;
    CHECK(!world_build(&w));
    CHECK_ERR_TEXT(&w.err, "tp = 4 does not divide the 66 of 'tokens of a micro-batch'");
    world_free(&w);

    split_world(&w, llama_like(1, 64, 4, 4, 97, 128), 4, false);
    CHECK(!world_build(&w));
    CHECK_ERR_TEXT(&w.err, "does not divide the 194 of 'mlp.gate_up");
    world_free(&w);

    split_world(&w, zoo(ZOO_BERT_TWO_TASKS), 2, false);
    CHECK(!world_build(&w));
    CHECK_ERR_TEXT(&w.err,
                   "next-sentence prediction cannot be split over tp = 2 x cp = 1 ranks");
    world_free(&w);

    world_convnet(&w);
    w.s.parallel.tp = 2;
    CHECK(!world_build(&w));
    CHECK_ERR_TEXT(&w.err, "tensor parallelism cannot split a convolutional network");
    world_free(&w);
}

int main(void)
{
    RUN(ranks_together_do_the_flops_of_one);
    RUN(work_done_by_several_ranks_counts_once);
    RUN(ranks_together_hold_the_parameters_of_one);
    RUN(key_and_value_heads_are_repeated);
    RUN(gradients_of_repeated_heads_are_summed);
    RUN(norms_of_q_and_k_get_a_part_of_their_gradient);
    RUN(the_vocabulary_is_padded_to_a_multiple_of_the_ranks);
    RUN(a_layer_has_four_all_reduces);
    RUN(sequence_parallelism_moves_the_same);
    RUN(what_was_gathered_may_be_kept);
    RUN(fp8_is_gathered_in_fp8);
    RUN(sequence_parallelism_shares_out_what_a_layer_keeps);
    RUN(tensor_parallelism_alone_shares_out_the_rest);
    RUN(branches_of_a_parallel_block_share_a_collective);
    RUN(the_ends_exchange_rows);
    RUN(full_recomputation_repeats_the_collectives);
    RUN(full_recomputation_gathers_once_more);
    RUN(full_recomputation_gathers_what_is_kept_once);
    RUN(the_gradient_of_the_input_travels_beside_the_weight_gradient);
    RUN(blocking_collectives_stand_on_the_compute_lane);
    RUN(no_collective_outlives_its_segment);
    RUN(up_alone_gathers_its_input_once_again);
    RUN(everything_born_dies_once_on_every_rank);
    RUN(layers_of_an_mlp_alternate);
    RUN(ranks_of_cp_share_out_the_work);
    RUN(a_layer_gathers_its_keys_and_values);
    RUN(attention_begins_before_the_others_keys_arrive);
    RUN(what_does_not_divide_is_named);
    return check_report();
}
