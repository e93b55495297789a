/*
 * test_repeat_kv.c - attention that knows no grouped queries: what is copied, kept and sent.
 *
 * A small model: A heads of D columns, K key and value heads; two bytes each.  A rank of tp has
 * A / tp of the heads, and K / tp of the others, or one.
 */
#include <string.h>

#include "tests/unit/block_world.h"

enum { A = 8, K = 2, D = 16, HIDDEN = A * D, FFN = 192, TWO_BYTES = 2, SEQ = 32 };

typedef struct Case {
    bool repeats, norms, compiled, math;
    uint32_t tp, cp;
} Case;

static void repeat_world(World *w, Case c)
{
    Transformer m = llama_like(3, HIDDEN, A, K, FFN, 128);
    m.qk_norm = c.norms;
    world_transformer(w, m);
    w->sw.repeats_kv = c.repeats;
    w->sw.fused_elementwise = c.compiled;
    w->s.training.seq_len = SEQ;
    w->s.training.attention = c.math ? ATTENTION_MATH : ATTENTION_FLASH;
    w->s.parallel.tp = c.tp;
    w->s.parallel.cp = c.cp;
    CHECK(world_build(w));
}

static double tokens(const World *w)
{
    return (double)w->s.training.micro_batch * SEQ / w->s.parallel.cp;
}

static uint64_t kept(Case c)
{
    World w;
    repeat_world(&w, c);
    uint64_t bytes = layout_sum(&w, world_type(&w, 1)->stash_layout[VARIANT_PLAIN]);
    world_free(&w);
    return bytes;
}

/* Columns of a rank: of keys, and as many of values. */
static uint32_t narrow(uint32_t tp)
{
    return (K > tp ? K / tp : 1) * D;
}

static uint32_t wide(uint32_t tp)
{
    return A / tp * D;
}

/* Backward needs the wide ones in place of the narrow ones.  Where q and k are normed the norm
 * keeps what it read anyhow, v beside it. */
static void backward_finds_them_repeated(void)
{
    for (uint32_t i = 0; i < 12; i++) {
        Case c = { .norms = i / 3 % 2, .math = i / 6, .tp = 1U << i % 3, .cp = 1 };
        Case r = c;
        r.repeats = true;
        World w;
        repeat_world(&w, r);
        double tok = tokens(&w);
        world_free(&w);
        double more = 2.0 * wide(c.tp) - (c.norms ? narrow(c.tp) : 2.0 * narrow(c.tp));
        CHECK_NEAR(TWO_BYTES * tok * more, (double)kept(r) - (double)kept(c), 0);
    }
}

typedef struct Moves {
    uint32_t n;
    uint64_t read, written;
} Moves;

static Moves moves_of(const World *w, uint32_t segment, OpPhase phase)
{
    const Segment *s = world_segment(w, segment);
    Moves m = { 0 };
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(&w->g, s)[i];
        if (strcmp(intern_text(&w->g.names, op->name), NAME_REPEAT) != 0 || op->phase != phase)
            continue;
        m.n++;
        m.read += op->read_bytes;
        m.written += op->write_bytes;
    }
    return m;
}

static void check_moves(Moves m, uint32_t kernels, double read, double written)
{
    CHECK_INT(kernels, m.n);
    CHECK_NEAR(read, (double)m.read, 0);
    CHECK_NEAR(written, (double)m.written, 0);
}

/* A kernel each for keys and for values, or one of a compiler's; backward sums them. */
static void keys_and_values_are_copied_and_summed(void)
{
    for (uint32_t i = 0; i < 12; i++) {
        World w;
        Case c = { .repeats = true, .norms = i % 2, .compiled = i / 2 % 2, .cp = 1 };
        c.tp = 1U << i / 4;
        repeat_world(&w, c);
        CHECK(lower(&w.b, &w.err));
        graph_seal(&w.g);
        const BlockType *t = world_type(&w, 1);
        double from = TWO_BYTES * tokens(&w) * 2 * narrow(c.tp);
        double to = TWO_BYTES * tokens(&w) * 2 * wide(c.tp);
        check_moves(moves_of(&w, t->forward[VARIANT_PLAIN], PHASE_FORWARD), c.compiled ? 1 : 2,
                    from, to);
        check_moves(moves_of(&w, t->backward[VARIANT_PLAIN][GRAD_BORN], PHASE_DGRAD),
                    c.compiled ? 1 : 2, to, from);
        world_free(&w);
    }
}

/* Over cp all heads' travel. */
static void they_are_gathered_repeated(void)
{
    for (uint32_t i = 0; i < 4; i++) {
        World w;
        Case c = { .repeats = i % 2, .tp = 1 + i / 2, .cp = 2 };
        repeat_world(&w, c);
        uint32_t segment = world_type(&w, 1)->forward[VARIANT_PLAIN];
        const Op *op = find_op(&w, segment, OP_ALL_GATHER, PHASE_FORWARD, 0);
        double columns = 2.0 * (c.repeats ? wide(c.tp) : narrow(c.tp));
        CHECK_NEAR(TWO_BYTES * tokens(&w) * c.cp * columns, (double)op->u.comm.bytes, 0);
        const Op *a = find_op(&w, segment, OP_ATTENTION, PHASE_FORWARD, 0);
        CHECK_U64(c.repeats ? A / c.tp : K / c.tp, a->u.attention.kv_heads);
        world_free(&w);
    }
}

/* Where each head has keys of its own there is nothing to repeat, and no op that might. */
static void others_have_no_such_op(void)
{
    World w;
    world_transformer(&w, llama_like(3, HIDDEN, A, A, FFN, 128));
    w.sw.repeats_kv = true;
    CHECK(world_build(&w));
    const BlockType *t = world_type(&w, 1);
    check_moves(moves_of(&w, t->forward[VARIANT_PLAIN], PHASE_FORWARD), 0, 0, 0);
    world_free(&w);
}

int main(void)
{
    RUN(backward_finds_them_repeated);
    RUN(keys_and_values_are_copied_and_summed);
    RUN(they_are_gathered_repeated);
    RUN(others_have_no_such_op);
    return check_report();
}
