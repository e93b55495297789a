/*
 * test_mtp.c - layers that predict further tokens: what they multiply and hold, by closed form.
 */
#include "tests/unit/block_world.h"

enum { LAYERS = 3, H = 64, HEADS = 4, KV = 2, FFN = 96, VOCAB = 128 };

static Transformer model(uint32_t mtp, bool tied)
{
    Transformer m = llama_like(LAYERS, H, HEADS, KV, FFN, VOCAB);
    m.tied_embeddings = tied;
    m.mtp_layers = mtp;
    m.mtp_asked = true;
    return m;
}

static void mtp_world(World *w, uint32_t mtp, bool tied)
{
    world_transformer(w, model(mtp, tied));
    w->s.parallel.schedule = SCHEDULE_1F1B;
}

/* Weights of a layer's matmuls, and of what stands before it. */
static uint64_t layer_weights(void)
{
    uint64_t kv = (uint64_t)KV * (H / HEADS);
    return (uint64_t)H * (H + 2 * kv) + (uint64_t)H * H + 3ull * H * FFN;
}

enum { PROJECTION = 2 * H * H, LAYER_NORMS = 2 * H, OWN_NORMS = 3 * H };

static uint64_t elements_of(const World *w)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->b.blocks_n; i++)
        if (w->b.blocks[i].frame_of == i)
            n += w->b.types[w->b.blocks[i].type].elements;
    return n;
}

/* The table and the head's weights are the model's own. */
static void they_own_a_layer_a_projection_and_norms(void)
{
    for (int tied = 0; tied < 2; tied++) {
        uint64_t none = 0;
        for (uint32_t n = 0; n <= 3; n++) {
            World w;
            mtp_world(&w, n, tied);
            CHECK(world_build(&w));
            none = n == 0 ? elements_of(&w) : none;
            CHECK_U64(n * (layer_weights() + LAYER_NORMS + PROJECTION + OWN_NORMS),
                      elements_of(&w) - none);
            world_free(&w);
        }
    }
}

/* Three passes of each weight and of the scores; the head once more. */
static void they_multiply_as_a_layer_and_a_head(void)
{
    double flops[4];
    for (uint32_t n = 0; n <= 3; n++) {
        World w;
        mtp_world(&w, n, false);
        CHECK(world_build(&w));
        flops[n] = sum_blocks(&w, VARIANT_PLAIN).model_flops;
        double tokens = (double)w.s.training.micro_batch * w.s.training.seq_len;
        double weights = (double)(layer_weights() + PROJECTION + (uint64_t)H * VOCAB);
        double scores = 2.0 * 2 * H * w.s.training.seq_len;
        if (n > 0)
            CHECK_NEAR(3 * tokens * (2 * weights + scores), flops[n] - flops[n - 1], 1e-12);
        world_free(&w);
    }
}

/* A parameter that is read twice has one gradient: the first to come writes it, the other adds. */
static void gradients_of_what_is_read_twice_are_summed(void)
{
    World w;
    mtp_world(&w, 1, false);
    CHECK(world_build(&w));
    const BlockType *head = &w.b.types[w.b.types_n - 1];
    const Segment *s = world_segment(&w, head->backward[VARIANT_PLAIN][GRAD_WRITE]);
    uint32_t writes = 0, adds = 0;
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w.g, s)[i];
        const Arg *args = &w.g.args[op->arg_first];
        for (uint32_t a = 0; a < op->arg_n; a++)
            if (name_is(&w, op, NAME_HEAD) && args[a].slot == SLOT_GRAD) {
                writes += args[a].mode == ARG_WRITE;
                adds += args[a].mode == ARG_UPDATE && op->u.matmul.accumulate;
            }
    }
    CHECK_INT(1, writes);
    CHECK_INT(1, adds);
    world_free(&w);
}

/* Layers are done again as others are; logits and losses are not. */
static void they_are_recomputed_as_layers_are(void)
{
    for (int mtp = 0; mtp < 2; mtp++) {
        World w;
        mtp_world(&w, (uint32_t)mtp, false);
        w.s.training.recompute = RECOMPUTE_FULL;
        CHECK(world_build(&w));
        const BlockType *head = &w.b.types[w.b.types_n - 1];
        bool differs = head->forward[VARIANT_PLAIN] != head->forward[VARIANT_RECOMPUTE];
        CHECK_INT(mtp, differs);
        if (mtp) {
            uint64_t plain = layout_sum(&w, head->stash_layout[VARIANT_PLAIN]),
                     again = layout_sum(&w, head->stash_layout[VARIANT_RECOMPUTE]);
            uint64_t rows = 2 * 32;
            /* norms of what comes in, and of both heads; logits, which are their gradients */
            CHECK(again < plain);
            CHECK(again >= 2 * 2 * rows * VOCAB);
            const char *redone = world_redone(&w, w.b.blocks_n - 1);
            CHECK(strstr(redone, "attention.qkv") && strstr(redone, "mtp.project_hidden"));
            CHECK(!strstr(redone, NAME_HEAD));
        }
        world_free(&w);
    }
}

/* Tied or not, at both ends or at one, recomputed or not. */
static void they_live_as_long_as_they_are_wanted(void)
{
    for (int i = 0; i < 48; i++) {
        World w;
        mtp_world(&w, 1 + (uint32_t)i % 3, i / 3 & 1);
        w.s.parallel.pp = i / 6 & 1 ? 4 : 1;
        w.s.training.recompute = i / 12 & 1 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
        w.s.parallel.tp = i / 24 & 1 ? 2 : 1;
        w.s.parallel.sequence_parallel = w.s.parallel.tp > 1;
        CHECK(world_build(&w));
        check_lives(&w);
        world_free(&w);
    }
}

int main(void)
{
    RUN(they_own_a_layer_a_projection_and_norms);
    RUN(they_multiply_as_a_layer_and_a_head);
    RUN(gradients_of_what_is_read_twice_are_summed);
    RUN(they_are_recomputed_as_layers_are);
    RUN(they_live_as_long_as_they_are_wanted);
    return check_report();
}
