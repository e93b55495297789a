/*
 * test_latent.c - latent attention: what it multiplies, keeps, gathers and copies, by closed form.
 *
 * The model is small: h columns, a heads of d columns of which r have positions, values v wide,
 * latents of q and c columns; s tokens in b samples, two bytes each.
 */
#include "tests/unit/block_world.h"

enum { A = 4, D = 24, R = 8, DV = 12, Q = 28, C = 20, HIDDEN = 64, FFN = 96, TWO_BYTES = 2 };
enum { ATTENTION_INPUTS = A * (D + D + DV) }; /* columns */

static void latent_world(World *w, uint32_t q_rank, uint32_t tp, bool rows)
{
    world_transformer(w, latent_like(q_rank));
    w->s.parallel.tp = tp;
    w->s.parallel.sequence_parallel = rows;
}

static double tokens(const World *w)
{
    return (double)w->s.training.micro_batch * w->s.training.seq_len;
}

/* Weights that a token passes from latents to what attention reads. */
static double up_weights(uint32_t q_rank)
{
    return (q_rank ? q_rank : HIDDEN) * A * D + C * A * (D - R + DV);
}

/* In all of attention. */
static double weights(uint32_t q_rank)
{
    return up_weights(q_rank) + HIDDEN * q_rank + HIDDEN * (C + R) + A * DV * HIDDEN;
}

static void it_multiplies_by_its_weights_and_by_two_widths(void)
{
    for (int i = 0; i < 4; i++) {
        World w;
        uint32_t q_rank = i & 1 ? Q : 0;
        latent_world(&w, q_rank, 1, false);
        w.s.training.attention = i & 2 ? ATTENTION_MATH : ATTENTION_FLASH;
        CHECK(world_build(&w));
        double t = tokens(&w), pairs = t * w.s.training.seq_len;
        double linear = 2 * t * (weights(q_rank) + 3 * HIDDEN * FFN);
        double forward = linear + 2 * pairs * A * (D + DV);
        CHECK_NEAR(3 * forward, sum_block(&w, 1, VARIANT_PLAIN).model_flops, 1e-12);
        world_free(&w);
    }
}

/* Flash: scores and values' products of the pairs below the diagonal; backward the scores again. */
static void flash_does_the_scores_once_more(void)
{
    World w;
    latent_world(&w, Q, 1, false);
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    double s = w.s.training.seq_len, pairs = s * (s + 1) / 2 * w.s.training.micro_batch * A;
    const Op *f = find_op(&w, t->forward[VARIANT_PLAIN], OP_ATTENTION, PHASE_FORWARD, 0);
    const Op *b =
        find_op(&w, t->backward[VARIANT_PLAIN][GRAD_BORN], OP_ATTENTION, PHASE_DGRAD, 0);
    CHECK_NEAR(2 * pairs * (D + DV), f->flops, 0);
    CHECK_NEAR(2 * pairs * (3 * D + 2 * DV), b->flops, 0);
    CHECK_U64(D, f->u.attention.head_dim);
    CHECK_U64(DV, f->u.attention.value_dim);
    world_free(&w);
}

/* Scores in memory: each of the six products has its own width. */
static void products_of_unfused_attention_have_their_widths(void)
{
    World w;
    latent_world(&w, Q, 1, false);
    w.s.training.attention = ATTENTION_MATH;
    CHECK(world_build(&w));
    CHECK(lower(&w.b, &w.err));
    graph_seal(&w.g);
    uint64_t s = w.s.training.seq_len, heads = (uint64_t)A * w.s.training.micro_batch;
    const BlockType *t = world_type(&w, 1);
    uint32_t segments[] = { t->forward[VARIANT_PLAIN], t->backward[VARIANT_PLAIN][GRAD_BORN] };
    uint32_t products = 0;
    for (uint32_t i = 0; i < 2; i++) {
        const Segment *segment = world_segment(&w, segments[i]);
        for (uint32_t o = 0; o < segment->op_n; o++) {
            const Op *op = &graph_ops(&w.g, segment)[o];
            const MatmulShape *m = &op->u.matmul;
            if (op->kind != OP_MATMUL || m->batch != heads)
                continue;
            products++;
            CHECK_NEAR(2.0 * (double)(heads * m->m * m->n * m->k), op->flops, 1e-12);
            CHECK(m->m == s && (m->n == s || m->n == D || m->n == DV));
        }
    }
    CHECK_INT(6, products);
    world_free(&w);
}

/* Bytes a token keeps of attention, from norm to the sum after it: x is in SLOT_IN. */
static uint64_t kept_bytes(uint32_t q_rank)
{
    uint64_t latents = q_rank ? 2 * q_rank : 0; /* before and after the norm */
    latents += C + R + C;
    uint64_t inputs = ATTENTION_INPUTS, y = A * DV;
    uint64_t statistics = 4 * (q_rank ? 3 : 2), lse = 4 * A;
    return TWO_BYTES * (HIDDEN + latents + inputs + y) + statistics + lse;
}

static void backward_finds_latents_queries_keys_and_values(void)
{
    for (int i = 0; i < 2; i++) {
        World w;
        latent_world(&w, i ? Q : 0, 1, false);
        CHECK(world_build(&w));
        uint64_t bytes = layout_sum(&w, world_type(&w, 1)->stash_layout[VARIANT_PLAIN]);
        /* the sum after attention, its norm, gate and up, their product; a statistic */
        uint64_t mlp = TWO_BYTES * (2 * HIDDEN + 3 * FFN) + 4;
        CHECK_NEAR((double)(kept_bytes(i ? Q : 0) + mlp) * tokens(&w), (double)bytes, 0);
        world_free(&w);
    }
}

/* Queries, keys and values are made again out of the latents, once: nothing else changes, and
 * attention itself is not done again. */
static void up_projections_may_be_made_again(void)
{
    for (int i = 0; i < 2; i++) {
        World w;
        latent_world(&w, i ? Q : 0, 1, false);
        w.s.training.recompute = RECOMPUTE_SELECTIVE;
        w.sw.selective_attention = w.sw.selective_latent_up = true;
        CHECK(world_build(&w));
        const BlockType *t = world_type(&w, 1);
        uint64_t plain = layout_sum(&w, t->stash_layout[VARIANT_PLAIN]);
        uint64_t again = layout_sum(&w, t->stash_layout[VARIANT_RECOMPUTE]);
        CHECK_NEAR(TWO_BYTES * ATTENTION_INPUTS * tokens(&w), (double)(plain - again), 0);
        const Segment *s = world_segment(&w, t->backward[VARIANT_RECOMPUTE][GRAD_ADD]);
        double flops = 0;
        for (uint32_t k = 0; k < s->op_n; k++) {
            const Op *op = &graph_ops(&w.g, s)[k];
            CHECK(op->phase != PHASE_RECOMPUTE || op->kind != OP_ATTENTION);
            flops += op->phase == PHASE_RECOMPUTE ? op->flops : 0;
        }
        CHECK_NEAR(2 * up_weights(i ? Q : 0) * tokens(&w), flops, 1e-12);
        world_free(&w);
    }
}

static uint64_t gathered(const World *w, uint32_t segment, OpKind kind)
{
    const Segment *s = world_segment(w, segment);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        bytes += op->kind == kind ? op->u.comm.bytes : 0;
    }
    return bytes;
}

/* Over tp the latents and positions are gathered, and the MLP's input; sums of two matmuls
 * scattered.  Straight queries need the layer's input. */
static void ranks_gather_latents(void)
{
    for (int i = 0; i < 2; i++) {
        World w;
        latent_world(&w, i ? Q : 0, 2, true);
        CHECK(world_build(&w));
        uint32_t forward = world_type(&w, 1)->forward[VARIANT_PLAIN];
        double each = TWO_BYTES * tokens(&w);
        CHECK_NEAR(each * ((i ? Q : HIDDEN) + C + R + HIDDEN),
                   (double)gathered(&w, forward, OP_ALL_GATHER), 0);
        CHECK_NEAR(each * 2 * HIDDEN, (double)gathered(&w, forward, OP_REDUCE_SCATTER), 0);
        world_free(&w);
    }
}

/* Without sequence parallelism nothing is gathered; the gradients of what all ranks have are sums
 * of what each head gives. */
static void gradients_of_latents_are_summed(void)
{
    World w;
    latent_world(&w, Q, 2, false);
    CHECK(world_build(&w));
    uint32_t backward = world_type(&w, 1)->backward[VARIANT_PLAIN][GRAD_ADD];
    CHECK_NEAR(TWO_BYTES * tokens(&w) * (Q + C + R + HIDDEN),
               (double)gathered(&w, backward, OP_ALL_REDUCE), 0);
    world_free(&w);
}

/* Of each head's columns those with positions turn, of the queries; by a stack with ops of
 * PyTorch also the key's, and the queries are copied. */
static void a_part_of_each_head_turns(void)
{
    for (int chain = 0; chain < 2; chain++) {
        World w;
        latent_world(&w, Q, 1, false);
        w.sw.rope_chain = chain;
        CHECK(world_build(&w));
        uint32_t forward = world_type(&w, 1)->forward[VARIANT_PLAIN];
        const Op *q = find_op(&w, forward, OP_ROPE, PHASE_FORWARD, 0);
        const Op *k = find_op(&w, forward, OP_ROPE, PHASE_FORWARD, 1);
        CHECK_NEAR(TWO_BYTES * tokens(&w) * A * R, (double)q->write_bytes, 0);
        CHECK_INT(chain, k != NULL);
        if (k)
            CHECK_NEAR(TWO_BYTES * tokens(&w) * R, (double)k->write_bytes, 0);
        CHECK(lower(&w.b, &w.err));
        graph_seal(&w.g);
        uint32_t copies = 0;
        while (find_op(&w, forward, OP_COPY, PHASE_FORWARD, copies))
            copies++;
        CHECK_INT(chain ? 3 : 2, copies); /* positions, [queries,] keys and values */
        world_free(&w);
    }
}

int main(void)
{
    RUN(it_multiplies_by_its_weights_and_by_two_widths);
    RUN(flash_does_the_scores_once_more);
    RUN(products_of_unfused_attention_have_their_widths);
    RUN(backward_finds_latents_queries_keys_and_values);
    RUN(up_projections_may_be_made_again);
    RUN(ranks_gather_latents);
    RUN(gradients_of_latents_are_summed);
    RUN(a_part_of_each_head_turns);
    return check_report();
}
