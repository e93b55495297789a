/*
 * fabric_ring.c - collectives step by step round a ring, as core/patterns/ring.h says.
 *
 * In the first half a partial sum of one block travels: what comes from the left is
 * kept in a buffer, the own elements are added, and the sum goes on to the right in
 * the next step; `in` is only read.  In the second half finished blocks travel, and
 * are received where they belong.
 */
#include "exec/fabric_sum.h"
#include "exec/fabric_talk.h"

typedef struct Ring {
    Talk *t;
    Stream *right, *left; /* the same one where there are two members */
    uint8_t *coming, *going;
} Ring;

static void send_block(Ring *r, uint32_t block, const uint8_t *buffer)
{
    Run run;
    for (Walk w = walk_shards(r->t, block, 0, NONE_U64); walk_next(&w, &run);) {
        stream_send(r->right, buffer ? buffer : run_out(r->t, &run), run.bytes);
        buffer = buffer ? buffer + run_room(&run) : NULL;
    }
}

static void recv_block(Ring *r, uint32_t block, uint8_t *buffer)
{
    Run run;
    for (Walk w = walk_shards(r->t, block, 0, NONE_U64); walk_next(&w, &run);) {
        stream_recv(r->left, buffer ? buffer : run_out(r->t, &run), run.bytes);
        buffer = buffer ? buffer + run_room(&run) : NULL;
    }
}

/* What came, plus the own elements: into the buffer, or at the end where the sum belongs. */
static void add_block(Ring *r, uint32_t block, bool last)
{
    Run run;
    uint8_t *buffer = r->coming;
    for (Walk w = walk_shards(r->t, block, 0, NONE_U64); walk_next(&w, &run);) {
        const uint8_t *from[2] = { buffer, run_in(r->t, &run) };
        uint8_t *to = last ? run_sum(r->t, &run) : buffer;
        sum_vectors(&to, 1, from, 2, run.n, run.dtype, false);
        buffer += run_room(&run);
    }
}

static bool reduce_half(Ring *r, Err *err)
{
    uint32_t n = r->t->n, self = r->t->c->self, steps = ring_half_steps(n);
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t block = ring_recv_block(self, step, n);
        talk_clear(r->t);
        send_block(r, ring_send_block(self, step, n), step == 0 ? NULL : r->going);
        recv_block(r, block, r->coming);
        if (!talk_run(r->t, err))
            return false;
        add_block(r, block, step + 1 == steps);
        uint8_t *swap = r->coming;
        r->coming = r->going;
        r->going = swap;
    }
    return true;
}

static bool gather_half(Ring *r, Err *err)
{
    uint32_t n = r->t->n, self = r->t->c->self;
    for (uint32_t step = ring_half_steps(n); step < ring_all_reduce_steps(n); step++) {
        talk_clear(r->t);
        send_block(r, ring_send_block(self, step, n), NULL);
        recv_block(r, ring_recv_block(self, step, n), NULL);
        if (!talk_run(r->t, err))
            return false;
    }
    return true;
}

bool ring_collective(Talk *t, Err *err)
{
    const CommCall *c = t->c;
    Ring r = { .t = t };
    r.right = &t->streams[ring_right(c->self, t->n)];
    r.left = &t->streams[ring_left(c->self, t->n)];
    uint64_t room = (shard_elements(t, 0) + c->in_n) * sizeof(uint64_t);
    r.coming = scratch_take(&t->f->lanes[c->lane].bytes, (size_t)(2 * room));
    r.going = r.coming + room;
    talk_place_own(t);
    return (c->kind == OP_ALL_GATHER || reduce_half(&r, err)) &&
           (c->kind == OP_REDUCE_SCATTER || gather_half(&r, err));
}
