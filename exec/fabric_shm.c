/*
 * fabric_shm.c - collectives among ranks that map each other's arenas.
 *
 * Nothing is copied that need not be: member i owns shard i of every piece.  Where
 * there is something to sum, the owner reads its shard from all members and writes
 * the sum to whoever wants it; nobody else touches that shard, so one meeting before
 * and one after suffice.
 *
 *                       reads                        writes
 *     all_reduce        own shard of all             own shard of all
 *     reduce            own shard of all             own shard of the root
 *     reduce_scatter    own shard of all             own
 *     all_gather        everybody's shard            own
 *     broadcast         the root                     own
 *     all_to_all        its block of all             own
 */
#include "exec/fabric_parts.h"

#include <stdio.h>
#include <string.h>

#include "exec/fabric_sum.h"

/* One collective under way. */
typedef struct Meet {
    Fabric *f;
    CommCall *c;
    uint32_t n; /* members */
    uint64_t key;
    LaneSlot **slots; /* of the members, in their order */
    uint8_t **arenas;
    uint32_t *bases;
    uint8_t **to;
    const uint8_t **from;
} Meet;

static Meet meet_make(Fabric *f, CommCall *c)
{
    uint32_t n = c->members_n;
    Meet m = { .f = f, .c = c, .n = n, .key = collective_key(f, c) };
    uint8_t *room =
        scratch_take(&f->lanes[c->lane].pointers, n * (4 * sizeof(void *) + sizeof *m.bases));
    m.slots = (LaneSlot **)(void *)room;
    m.arenas = (uint8_t **)(m.slots + n);
    m.to = m.arenas + n;
    m.from = (const uint8_t **)(void *)(m.to + n);
    m.bases = (uint32_t *)(void *)(m.from + n);
    for (uint32_t i = 0; i < n; i++) {
        const Peer *p = &f->peers[c->members[i]];
        m.slots[i] = &p->control->lanes[c->lane];
        m.arenas[i] = p->arena;
    }
    return m;
}

static const Part *part_in(const Meet *m, uint32_t member, uint32_t k)
{
    return &m->slots[member]->parts[k];
}

static const Part *part_out(const Meet *m, uint32_t member, uint32_t k)
{
    return &m->slots[member]->parts[PARTS_MAX + k];
}

/* ---- meeting ---- */

static void post(Meet *m)
{
    const CommCall *c = m->c;
    LaneSlot *slot = m->slots[c->self];
    slot->kind = c->kind;
    slot->peer = c->peer;
    slot->maximum = c->maximum;
    slot->in_n = c->in_n;
    slot->out_n = c->out_n;
    slot->at_ns = c->at_ns;
    slot->came_ns = net_now_ns();
    slot->base = atomic_load(&slot->word);
    if (c->in_n)
        memcpy(slot->parts, c->in, c->in_n * sizeof *c->in);
    if (c->out_n)
        memcpy(slot->parts + PARTS_MAX, c->out, c->out_n * sizeof *c->out);
    atomic_store(&slot->key, m->key);
    word_step(&slot->word, &slot->sleepers);
}

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void sleep_until_it_moves(const Meet *m, uint32_t i, uint32_t seen)
{
    watch_awaits(m->f, m->c->members[i]);
    word_sleep(&m->slots[i]->word, &m->slots[i]->sleepers, seen);
}

/* Until member i shows our key.  False: the job has failed. */
static bool wait_came(const Meet *m, uint32_t i, Err *err)
{
    LaneSlot *s = m->slots[i];
    for (uint32_t spin = 0;; spin++) {
        uint32_t seen = atomic_load(&s->word);
        if (atomic_load(&s->key) == m->key)
            break;
        if (atomic_load(&m->f->failed))
            return fabric_ended(m->f, err);
        if (atomic_load(&m->f->peers[m->c->members[i]].control->left))
            return fabric_lost(m->f, m->c->members[i],
                               "has left the job, but is awaited by others", err);
        if (spin < m->f->spins)
            pause_briefly();
        else
            sleep_until_it_moves(m, i, seen);
    }
    m->bases[i] = s->base;
    return true;
}

/* Until member i has finished its part. */
static bool wait_done(const Meet *m, uint32_t i, Err *err)
{
    LaneSlot *s = m->slots[i];
    for (uint32_t spin = 0;; spin++) {
        uint32_t seen = atomic_load(&s->word);
        if ((int32_t)(seen - m->bases[i]) >= 2)
            return true;
        if (atomic_load(&m->f->failed))
            return fabric_ended(m->f, err);
        if (spin < m->f->spins)
            pause_briefly();
        else
            sleep_until_it_moves(m, i, seen);
    }
}

static bool check_member(const Meet *m, uint32_t i, Err *err)
{
    const LaneSlot *s = m->slots[i];
    const CommCall *c = m->c;
    char what[160];
    if (s->kind != c->kind)
        snprintf(what, sizeof what, "calls %s", op_kind_names[s->kind]);
    else if (s->in_n != c->in_n || s->out_n != c->out_n)
        snprintf(what, sizeof what, "brings %u + %u pieces", s->in_n, s->out_n);
    else if (s->peer != c->peer || s->maximum != c->maximum)
        snprintf(what, sizeof what, "has another root or operation");
    else
        return true;
    return collective_differs(m->f, c, i, what, err);
}

/* Everybody's pieces must be alike. */
static bool check_parts(const Meet *m, uint32_t i, Err *err)
{
    const CommCall *c = m->c;
    for (uint32_t k = 0; k < c->in_n + c->out_n; k++) {
        bool in = k < c->in_n;
        const Part *mine = in ? &c->in[k] : &c->out[k - c->in_n];
        const Part *their = in ? part_in(m, i, k) : part_out(m, i, k - c->in_n);
        /* The shards that are gathered, and those that are left by a scatter, may be shorter. */
        bool shard = c->out_n && ((c->kind == OP_ALL_GATHER && in) ||
                                  (c->kind == OP_REDUCE_SCATTER && !in));
        if (their->dtype == mine->dtype && (shard || their->elements == mine->elements))
            continue;
        char what[160];
        snprintf(what, sizeof what, "brings %" PRIu64 " %s elements as piece %u",
                 their->elements, dtype_names[their->dtype], k);
        return collective_differs(m->f, c, i, what, err);
    }
    return true;
}

static bool meet_all(Meet *m, Err *err)
{
    CommCall *c = m->c;
    post(m);
    c->met_ns = INT64_MIN;
    c->met_wall_ns = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        if (!wait_came(m, i, err))
            return false;
        if (!check_member(m, i, err) || !check_parts(m, i, err))
            return fabric_refuse(m->f, err);
        c->met_ns = max_i64(c->met_ns, m->slots[i]->at_ns);
        c->met_wall_ns = max_i64(c->met_wall_ns, m->slots[i]->came_ns);
    }
    return true;
}

static bool part_all(Meet *m, Err *err)
{
    LaneSlot *own = m->slots[m->c->self];
    word_step(&own->word, &own->sleepers);
    for (uint32_t i = 0; i < m->n; i++)
        if (!wait_done(m, i, err))
            return false;
    return true;
}

/* ---- the work between ---- */

static void copy(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    if (to != from && bytes > 0)
        memmove(to, from, (size_t)bytes);
}

/* Sums this member's shard of piece k of all; `to` points to wherever it goes. */
static void sum_shard(Meet *m, uint32_t k, uint32_t to_n)
{
    const CommCall *c = m->c;
    const Part *own = &c->in[k];
    BlockRange s = ring_block(own->elements, c->self, m->n);
    uint64_t first = s.first * dtype_bytes(own->dtype);
    for (uint32_t i = 0; i < m->n; i++)
        m->from[i] = part_at(m->arenas[i], part_in(m, i, k)) + first;
    sum_vectors(m->to, to_n, m->from, m->n, s.n, own->dtype, c->maximum != 0);
}

static void do_all_reduce(Meet *m, uint32_t k)
{
    const Part *own = &m->c->in[k];
    BlockRange s = ring_block(own->elements, m->c->self, m->n);
    for (uint32_t i = 0; i < m->n; i++)
        m->to[i] = part_at(m->arenas[i], part_in(m, i, k)) + s.first * dtype_bytes(own->dtype);
    sum_shard(m, k, m->n);
}

static void do_reduce(Meet *m, uint32_t k)
{
    uint32_t root = m->c->peer;
    const Part *own = &m->c->in[k];
    BlockRange s = ring_block(own->elements, m->c->self, m->n);
    m->to[0] =
        part_at(m->arenas[root], part_in(m, root, k)) + s.first * dtype_bytes(own->dtype);
    sum_shard(m, k, 1);
}

static void do_reduce_scatter(Meet *m, uint32_t k)
{
    const CommCall *c = m->c;
    const Part *own = &c->in[k];
    BlockRange s = ring_block(own->elements, c->self, m->n);
    m->to[0] = c->out_n ? part_at(m->f->arena, &c->out[k])
                        : part_at(m->f->arena, own) + s.first * dtype_bytes(own->dtype);
    sum_shard(m, k, 1);
}

static void do_all_gather(Meet *m, uint32_t k)
{
    const CommCall *c = m->c;
    const Part *whole = c->out_n ? &c->out[k] : &c->in[k];
    uint64_t size = dtype_bytes(whole->dtype);
    for (uint32_t step = 0; step < m->n; step++) {
        uint32_t i = (c->self + step) % m->n; /* not all at the same member at once */
        BlockRange s = ring_block(whole->elements, i, m->n);
        const uint8_t *from = part_at(m->arenas[i], part_in(m, i, k));
        if (!c->out_n)
            from += s.first * size;
        copy(part_at(m->f->arena, whole) + s.first * size, from, s.n * size);
    }
}

static void do_broadcast(Meet *m, uint32_t k)
{
    const Part *own = &m->c->in[k];
    uint32_t root = m->c->peer;
    copy(part_at(m->f->arena, own), part_at(m->arenas[root], part_in(m, root, k)),
         part_bytes(own));
}

static void do_all_to_all(Meet *m, uint32_t k)
{
    const CommCall *c = m->c;
    uint64_t block = part_bytes(&c->in[k]) / m->n;
    for (uint32_t step = 0; step < m->n; step++) {
        uint32_t i = (c->self + step) % m->n;
        copy(part_at(m->f->arena, &c->out[k]) + i * block,
             part_at(m->arenas[i], part_in(m, i, k)) + c->self * block, block);
    }
}

bool shm_collective(Fabric *f, CommCall *c, Err *err)
{
    Meet m = meet_make(f, c);
    if (!meet_all(&m, err))
        return false;
    bool alone_done = m.n == 1 && !c->out_n; /* in place, of one member: it is there */
    for (uint32_t k = 0; k < c->in_n && !alone_done; k++) {
        switch (c->kind) {
        case OP_ALL_REDUCE:
            do_all_reduce(&m, k);
            break;
        case OP_REDUCE:
            do_reduce(&m, k);
            break;
        case OP_REDUCE_SCATTER:
            do_reduce_scatter(&m, k);
            break;
        case OP_ALL_GATHER:
            do_all_gather(&m, k);
            break;
        case OP_BROADCAST:
            do_broadcast(&m, k);
            break;
        default:
            do_all_to_all(&m, k);
        }
    }
    return part_all(&m, err);
}
