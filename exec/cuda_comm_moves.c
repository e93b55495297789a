/* cuda_comm_moves.c - the moves of each kind of collective. */
#include "exec/cuda_comm_moves.h"

#include <stdlib.h>

#include "core/patterns/ring.h"

typedef struct Making {
    Moves *x;
    const CommCall *const *calls;
    const CommCall *first; /* of member 0: what all have in common */
    uint32_t n;
} Making;

/* ---- places ---- */

/* Elements [span.first, ...) of a member's piece k. */
static Place in_place(const Making *m, uint32_t member, uint32_t k, BlockRange span)
{
    const Part *p = &m->calls[member]->in[k];
    return (Place){ member, p->offset + span.first * dtype_bytes(p->dtype) };
}

static Place out_place(const Making *m, uint32_t member, uint32_t k, BlockRange span)
{
    const Part *p = &m->calls[member]->out[k];
    return (Place){ member, p->offset + span.first * dtype_bytes(p->dtype) };
}

/* Where a member's whole piece k is, or is to be: `out` where that is given. */
static Place whole_place(const Making *m, uint32_t member, uint32_t k, BlockRange span)
{
    return (m->first->out_n > 0 ? out_place : in_place)(m, member, k, span);
}

static BlockRange block_of(const Making *m, uint32_t k, uint32_t block)
{
    bool out = m->first->kind == OP_ALL_GATHER && m->first->out_n > 0;
    return ring_block((out ? m->first->out : m->first->in)[k].elements, block, m->n);
}

/* ---- adding ---- */

static Move *add_move(const Making *m, uint32_t phase, MoveAction action, uint32_t k,
                      BlockRange span, Place to)
{
    Moves *x = m->x;
    if (span.n == 0)
        return NULL;
    GROW(x->moves, x->moves_n, x->moves_cap);
    Move *move = &x->moves[x->moves_n++];
    *move = (Move){ .phase = phase,
                    .action = action,
                    .dtype = m->first->in[k].dtype,
                    .elements = span.n,
                    .to = to,
                    .from_first = x->from_n };
    if (phase >= x->phases_n)
        x->phases_n = phase + 1;
    return move;
}

static void add_from(const Making *m, Move *move, Place from)
{
    Moves *x = m->x;
    GROW(x->from, x->from_n, x->from_cap);
    x->from[x->from_n++] = from;
    move->from_n++;
}

static void add_copy(const Making *m, uint32_t phase, uint32_t k, BlockRange span, Place to,
                     Place from)
{
    if (to.member == from.member && to.offset == from.offset)
        return;
    Move *move = add_move(m, phase, MOVE_COPY, k, span, to);
    if (move)
        add_from(m, move, from);
}

static MoveAction sum_action(const Making *m)
{
    return m->first->maximum ? MOVE_MAX : MOVE_SUM;
}

static void add_sum_of_all(const Making *m, uint32_t phase, uint32_t k, BlockRange span,
                           Place to)
{
    Move *move = add_move(m, phase, sum_action(m), k, span, to);
    for (uint32_t i = 0; move && i < m->n; i++)
        add_from(m, move, in_place(m, i, k, span));
}

/* ---- direct ---- */

static void direct_sums(const Making *m, uint32_t member, uint32_t k)
{
    BlockRange own = block_of(m, k, member), begin = { 0, own.n };
    bool out = m->first->kind == OP_REDUCE_SCATTER && m->first->out_n > 0;
    add_sum_of_all(m, 0, k, own,
                   out ? out_place(m, member, k, begin) : in_place(m, member, k, own));
}

static void direct_copies(const Making *m, uint32_t phase, uint32_t member, uint32_t k)
{
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t from = (member + i) % m->n; /* not all from the same one at once */
        BlockRange span = block_of(m, k, from);
        bool shards = m->first->out_n > 0; /* of which `in` holds only the own one */
        add_copy(m, phase, k, span, whole_place(m, member, k, span),
                 in_place(m, from, k, shards ? (BlockRange){ 0, span.n } : span));
    }
}

static void all_to_all(const Making *m, uint32_t member, uint32_t k)
{
    uint64_t each = m->first->in[k].elements / m->n;
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t from = (member + i) % m->n;
        add_copy(m, 0, k, (BlockRange){ 0, each },
                 out_place(m, member, k, (BlockRange){ from * each, 0 }),
                 in_place(m, from, k, (BlockRange){ member * each, 0 }));
    }
}

static void direct_phase(const Making *m, uint32_t phase, uint32_t member, uint32_t k)
{
    BlockRange all = { 0, m->first->in[k].elements };
    uint32_t root = m->first->peer;
    switch (m->first->kind) {
    case OP_ALL_GATHER:
        direct_copies(m, phase, member, k);
        return;
    case OP_ALL_TO_ALL:
        all_to_all(m, member, k);
        return;
    case OP_BROADCAST:
        add_copy(m, 0, k, all, in_place(m, member, k, all), in_place(m, root, k, all));
        return;
    case OP_REDUCE:
        if (member == root)
            add_sum_of_all(m, 0, k, all, in_place(m, member, k, all));
        return;
    default: /* all_reduce, reduce_scatter */
        if (phase == 0)
            direct_sums(m, member, k);
        else
            direct_copies(m, phase, member, k);
    }
}

/* ---- ring ---- */

static void ring_phase(const Making *m, uint32_t phase, uint32_t step, uint32_t member,
                       uint32_t k)
{
    uint32_t left = ring_left(member, m->n);
    BlockRange span = block_of(m, k, ring_recv_block(member, step, m->n));
    Place to = whole_place(m, member, k, span), from = whole_place(m, left, k, span);
    if (!ring_step_reduces(step, m->n)) {
        add_copy(m, phase, k, span, to, from);
        return;
    }
    Move *move = add_move(m, phase, sum_action(m), k, span, to);
    if (!move)
        return;
    add_from(m, move, from);
    add_from(m, move, to);
}

/* Its own block, which others will take from there. */
static void ring_place_own(const Making *m, uint32_t member, uint32_t k)
{
    BlockRange span = block_of(m, k, member);
    add_copy(m, 0, k, span, whole_place(m, member, k, span),
             in_place(m, member, k, (BlockRange){ 0, span.n }));
}

static void ring_moves(const Making *m)
{
    OpKind kind = m->first->kind;
    uint32_t half = ring_half_steps(m->n), phase = 0;
    uint32_t begin = kind == OP_ALL_GATHER ? half : 0;
    uint32_t end = kind == OP_REDUCE_SCATTER ? half : 2 * half;
    if (kind == OP_ALL_GATHER && m->first->out_n > 0) {
        for (uint32_t member = 0; member < m->n; member++)
            for (uint32_t k = 0; k < m->first->in_n; k++)
                ring_place_own(m, member, k);
        phase++;
    }
    for (uint32_t step = begin; step < end; step++, phase++)
        for (uint32_t member = 0; member < m->n; member++)
            for (uint32_t k = 0; k < m->first->in_n; k++)
                ring_phase(m, phase, step, member, k);
}

/* ---- do they fit together? ---- */

/* The whole pieces are alike; shards are as large as they must be, at least. */
static bool same_pieces(const CommCall *a, const CommCall *b)
{
    bool out = a->kind == OP_ALL_GATHER && a->out_n > 0;
    for (uint32_t k = 0; k < a->in_n; k++) {
        const Part *p = out ? &a->out[k] : &a->in[k], *q = out ? &b->out[k] : &b->in[k];
        if (p->dtype != q->dtype || p->elements != q->elements)
            return false;
    }
    return true;
}

static bool same_call(const CommCall *a, const CommCall *b)
{
    bool rooted = a->kind == OP_BROADCAST || a->kind == OP_REDUCE;
    return a->kind == b->kind && a->in_n == b->in_n && a->out_n == b->out_n &&
           a->maximum == b->maximum && (!rooted || a->peer == b->peer) && same_pieces(a, b);
}

static bool check(const Making *m, Err *err)
{
    const CommCall *a = m->first;
    if (m->n > MOVE_SOURCES_MAX)
        return err_set(err, "%u ranks on one GPU; up to %d are allowed", m->n,
                       MOVE_SOURCES_MAX);
    for (uint32_t i = 1; i < m->n; i++) {
        const CommCall *b = m->calls[i];
        if (!same_call(a, b))
            return err_set(err,
                           "rank %u calls %s of %u + %u pieces on lane '%s' where rank %u "
                           "calls %s of %u + %u pieces of other sizes or kinds",
                           b->members[b->self], op_kind_names[b->kind], b->in_n, b->out_n,
                           lane_names[b->lane], a->members[a->self], op_kind_names[a->kind],
                           a->in_n, a->out_n);
    }
    return true;
}

static bool goes_round(const CommCall *c, bool rings)
{
    return rings && c->members_n > 1 && !c->maximum &&
           (c->kind == OP_ALL_REDUCE || c->kind == OP_ALL_GATHER ||
            (c->kind == OP_REDUCE_SCATTER && c->out_n == 0));
}

static void clear(Moves *x, bool ring)
{
    x->ring = ring;
    x->phases_n = x->moves_n = x->from_n = 0;
}

bool moves_make(Moves *x, const CommCall *const *calls, bool rings, Err *err)
{
    Making m = { x, calls, calls[0], calls[0]->members_n };
    clear(x, goes_round(m.first, rings));
    if (!check(&m, err))
        return false;
    if (x->ring) {
        ring_moves(&m);
        return true;
    }
    uint32_t phases = m.first->kind == OP_ALL_REDUCE && m.n > 1 ? 2 : 1;
    bool sums_itself = m.n == 1 && m.first->out_n == 0;
    for (uint32_t phase = 0; phase < phases && !sums_itself; phase++)
        for (uint32_t member = 0; member < m.n; member++)
            for (uint32_t k = 0; k < m.first->in_n; k++)
                direct_phase(&m, phase, member, k);
    return true;
}

/* ---- sends ---- */

static uint64_t bytes_of(const CommCall *c)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < c->in_n; k++)
        bytes += c->in[k].elements * dtype_bytes(c->in[k].dtype);
    return bytes;
}

bool moves_send(Moves *x, const CommCall *send, const CommCall *recv, Err *err)
{
    const CommCall *calls[2] = { send, recv };
    Making m = { x, calls, send, 2 };
    uint64_t bytes = bytes_of(send), from_at = 0, to_at = 0;
    clear(x, false);
    if (bytes != bytes_of(recv))
        return err_set(
            err, "rank %u sends %" PRIu64 " bytes where rank %u receives %" PRIu64 " (tag %u)",
            send->members[send->self], bytes, recv->members[recv->self], bytes_of(recv),
            send->tag);
    for (uint32_t i = 0, k = 0; bytes > 0;) {
        const Part *from = &send->in[i], *to = &recv->in[k];
        uint64_t from_bytes = from->elements * dtype_bytes(from->dtype);
        uint64_t to_bytes = to->elements * dtype_bytes(to->dtype);
        uint64_t n = min_u64(from_bytes - from_at, to_bytes - to_at);
        Move *move = add_move(&m, 0, MOVE_COPY, i, (BlockRange){ 0, n },
                              (Place){ 1, to->offset + to_at });
        if (move) {
            move->dtype = DTYPE_FP8; /* of a byte: pieces may be cut anywhere */
            add_from(&m, move, (Place){ 0, from->offset + from_at });
        }
        bool from_done = from_at + n == from_bytes, to_done = to_at + n == to_bytes;
        bytes -= n;
        from_at = from_done ? 0 : from_at + n;
        to_at = to_done ? 0 : to_at + n;
        i += from_done;
        k += to_done;
    }
    return true;
}

void moves_free(Moves *x)
{
    free(x->moves);
    free(x->from);
    *x = (Moves){ 0 };
}
