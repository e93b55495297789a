/*
 * fabric_p2p.c - sends and receives, alone or posted together.
 *
 * The k-th send from a to b with a tag meets the k-th such receive: both count.  All
 * of a group are posted first; then whatever can go on goes on, in any order.
 *
 * On one host the receiver copies from the sender's arena and marks the post as
 * taken.  Over TCP both ends say when they came (a Head), then the data follow; so
 * neither end is done before the other has come, as on one host.
 */
#include "exec/fabric_parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct Head {
    uint64_t key, bytes;
    int64_t at_ns;
} Head;

typedef enum Stage { STAGE_LINE, STAGE_HEADS, STAGE_DATA, STAGE_DONE } Stage;

typedef struct Transfer {
    CommCall *c;
    uint32_t peer; /* world rank */
    uint64_t key, bytes;
    bool local;
    Stage stage;
    SendPost *post; /* local send */
    Stream *stream; /* remote */
    Head mine, their;
} Transfer;

static uint64_t channel_of(const Fabric *f, const Transfer *t)
{
    bool sends = t->c->kind == OP_SEND;
    uint64_t from = sends ? f->rank : t->peer, to = sends ? t->peer : f->rank;
    return mix_u64(mix_u64(mix_u64(from + 1) ^ (to + 1)) ^ t->c->tag) | (uint64_t)1 << 63;
}

static Transfer transfer_make(Fabric *f, CommCall *c)
{
    Transfer t = { .c = c, .peer = c->members[c->peer] };
    t.local = f->peers[t.peer].control != NULL;
    uint64_t channel = channel_of(f, &t);
    uint64_t direction = c->kind == OP_SEND ? 0 : 1; /* a rank may send to itself */
    pthread_mutex_lock(&f->mutex);
    uint64_t nth = counts_next(&f->p2p, mix_u64(channel + direction));
    pthread_mutex_unlock(&f->mutex);
    t.key = mix_u64(channel + nth) | 1;
    for (uint32_t k = 0; k < c->in_n; k++)
        t.bytes += part_bytes(&c->in[k]);
    c->met_ns = c->at_ns;
    c->met_wall_ns = net_now_ns();
    return t;
}

static bool sizes_differ(Fabric *f, const Transfer *t, uint64_t their_bytes, Err *err)
{
    bool sends = t->c->kind == OP_SEND;
    err_set(err, "rank %u sends %" PRIu64 " bytes where rank %u receives %" PRIu64 " (tag %u)",
            sends ? f->rank : t->peer, sends ? t->bytes : their_bytes,
            sends ? t->peer : f->rank, sends ? their_bytes : t->bytes, t->c->tag);
    return fabric_refuse(f, err);
}

/* ---- on one host ---- */

static void ring_bell(Fabric *f, uint32_t rank)
{
    Control *c = f->peers[rank].control;
    word_step(&c->bell, &c->bell_sleepers);
}

/* In the slot of the lane whose thread we are. */
static bool post_send(Fabric *f, Transfer *t, LaneSlot *slot, uint32_t *parts_n, Err *err)
{
    const CommCall *c = t->c;
    uint32_t nth = atomic_load(&slot->sends_n);
    if (nth == GROUPED_MAX || c->in_n > 2 * PARTS_MAX - *parts_n) {
        err_set(err, "sends posted together are too many: at most %d, of %d pieces",
                GROUPED_MAX, 2 * PARTS_MAX);
        return fabric_refuse(f, err);
    }
    SendPost *p = &slot->sends[nth];
    p->parts_first = *parts_n;
    p->parts_n = c->in_n;
    p->at_ns = c->at_ns;
    p->came_ns = c->met_wall_ns;
    atomic_store(&p->taken, 0);
    if (c->in_n)
        memcpy(slot->parts + *parts_n, c->in, c->in_n * sizeof *c->in);
    *parts_n += c->in_n;
    atomic_store(&p->key, t->key);
    atomic_store(&slot->sends_n, nth + 1);
    t->post = p;
    ring_bell(f, t->peer);
    return true;
}

static SendPost *find_post(Fabric *f, const Transfer *t, LaneSlot **slot)
{
    Control *c = f->peers[t->peer].control;
    for (uint32_t lane = 0; lane < LANE_N; lane++) {
        *slot = &c->lanes[lane];
        uint32_t n = atomic_load(&(*slot)->sends_n);
        for (uint32_t i = 0; i < n && i < GROUPED_MAX; i++)
            if (atomic_load(&(*slot)->sends[i].key) == t->key)
                return &(*slot)->sends[i];
    }
    return NULL;
}

/* Both lists cover the same bytes, but may be cut differently. */
static void copy_parts(uint8_t *to_arena, const Part *to, uint8_t *from_arena, const Part *from,
                       uint64_t bytes)
{
    uint64_t to_at = 0, from_at = 0;
    while (bytes > 0) {
        uint64_t n = min_u64(part_bytes(to) - to_at, part_bytes(from) - from_at);
        if (n > 0)
            memmove(part_at(to_arena, to) + to_at, part_at(from_arena, from) + from_at,
                    (size_t)n);
        to_at += n;
        from_at += n;
        bytes -= n;
        if (to_at == part_bytes(to)) {
            to++;
            to_at = 0;
        }
        if (from_at == part_bytes(from)) {
            from++;
            from_at = 0;
        }
    }
}

static bool try_recv(Fabric *f, Transfer *t, Err *err)
{
    LaneSlot *slot;
    SendPost *p = find_post(f, t, &slot);
    if (!p)
        return true;
    uint64_t bytes = 0;
    const Part *from = slot->parts + p->parts_first;
    for (uint32_t k = 0; k < p->parts_n; k++)
        bytes += part_bytes(&from[k]);
    if (bytes != t->bytes)
        return sizes_differ(f, t, bytes, err);
    t->c->met_ns = max_i64(t->c->at_ns, p->at_ns);
    t->c->met_wall_ns = max_i64(t->c->met_wall_ns, p->came_ns);
    copy_parts(f->arena, t->c->in, f->peers[t->peer].arena, from, bytes);
    p->met_ns = t->c->met_ns;
    p->met_wall_ns = t->c->met_wall_ns;
    atomic_store(&p->key, 0);
    atomic_store(&p->taken, 1);
    t->stage = STAGE_DONE;
    ring_bell(f, t->peer);
    return true;
}

static bool local_step(Fabric *f, Transfer *t, Err *err)
{
    if (t->c->kind == OP_RECV && !try_recv(f, t, err))
        return false;
    if (t->c->kind == OP_SEND && atomic_load(&t->post->taken)) {
        t->c->met_ns = t->post->met_ns;
        t->c->met_wall_ns = t->post->met_wall_ns;
        t->stage = STAGE_DONE;
    }
    if (t->stage != STAGE_DONE && atomic_load(&f->peers[t->peer].control->left) &&
        !(t->c->kind == OP_SEND && atomic_load(&t->post->taken)))
        return fabric_lost(f, t->peer, "has left the job, but is awaited by others", err);
    return true;
}

/* ---- over TCP ---- */

static void start_data(Fabric *f, Transfer *t)
{
    stream_clear(t->stream, t->peer, t->stream->fd);
    for (uint32_t k = 0; k < t->c->in_n; k++) {
        const Part *p = &t->c->in[k];
        if (t->c->kind == OP_SEND)
            stream_send(t->stream, part_at(f->arena, p), part_bytes(p));
        else
            stream_recv(t->stream, part_at(f->arena, p), part_bytes(p));
    }
    t->stage = STAGE_DATA;
}

static bool open_line(Fabric *f, Transfer *t, Err *err)
{
    int fd = line_get(f, t->peer, channel_of(f, t), t->c->kind == OP_SEND, err);
    if (fd < 0)
        return !err->set;
    stream_clear(t->stream, t->peer, fd);
    t->mine = (Head){ .key = t->key, .bytes = t->bytes, .at_ns = t->c->at_ns };
    stream_send(t->stream, &t->mine, sizeof t->mine);
    stream_recv(t->stream, &t->their, sizeof t->their);
    t->stage = STAGE_HEADS;
    return true;
}

static bool remote_step(Fabric *f, Transfer *t, Err *err)
{
    if (t->stage == STAGE_LINE && !open_line(f, t, err))
        return false;
    while (t->stage == STAGE_HEADS || t->stage == STAGE_DATA) {
        if (!stream_step(t->stream))
            return fabric_lost(f, t->peer, "has closed its connection in the middle of a call",
                               err);
        if (!stream_done(t->stream))
            return true;
        if (t->stage == STAGE_DATA) {
            t->stage = STAGE_DONE;
            return true;
        }
        t->c->met_ns = max_i64(t->c->at_ns, t->their.at_ns);
        t->c->met_wall_ns = net_now_ns();
        if (t->their.bytes != t->bytes)
            return sizes_differ(f, t, t->their.bytes, err);
        start_data(f, t);
    }
    return true;
}

/* ---- all of a group ---- */

typedef struct Group {
    Transfer *transfers;
    const Stream **busy;
    uint32_t n;
} Group;

static bool step_all(Fabric *f, Group *g, uint32_t *local_n, uint32_t *busy_n,
                     uint32_t *lineless_n, Err *err)
{
    *local_n = *busy_n = *lineless_n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        Transfer *t = &g->transfers[i];
        if (t->stage != STAGE_DONE &&
            !(t->local ? local_step(f, t, err) : remote_step(f, t, err)))
            return false;
        if (t->stage == STAGE_DONE)
            continue;
        if (t->local)
            ++*local_n;
        else if (t->stage == STAGE_LINE)
            ++*lineless_n;
        else
            g->busy[(*busy_n)++] = t->stream;
    }
    return true;
}

static uint32_t first_missed(const Group *g)
{
    uint32_t i = 0;
    while (g->transfers[i].stage == STAGE_DONE)
        i++;
    return g->transfers[i].peer;
}

static bool group_run(Fabric *f, Group *g, Err *err)
{
    Control *own = f->control;
    int64_t since_ns = net_now_ns(); /* nobody has rung */
    for (uint32_t looks = 0, rung = 0;; looks++) {
        uint32_t local_n, busy_n, lineless_n, seen = atomic_load(&own->bell);
        since_ns = seen != rung ? net_now_ns() : since_ns;
        rung = seen;
        if (!step_all(f, g, &local_n, &busy_n, &lineless_n, err))
            return false;
        if (local_n + busy_n + lineless_n == 0)
            return true;
        if (atomic_load(&f->failed))
            return fabric_ended(f, err);
        watch_awaits(f, first_missed(g));
        if (local_n && !busy_n && !lineless_n) {
            if (looks >= f->spins)
                word_sleep(&own->bell, &own->bell_sleepers, seen);
        } else {
            int64_t pause_ns = local_n || lineless_n ? look_pause_ns(since_ns) : WAIT_NS;
            if (!streams_wait(f, g->busy, busy_n, (int)(pause_ns / 1000000), err))
                return false;
        }
    }
}

static bool group_post(Fabric *f, Group *g, CommCall *calls, Err *err)
{
    uint32_t parts_n = 0, remote_n = 0;
    Lane lane = calls[0].lane;
    LaneSlot *slot = &f->control->lanes[lane];
    Stream *streams = lane_streams(&f->lanes[lane], g->n);
    /* The posts of the last call were all taken; those of one that failed end with the job. */
    atomic_store(&slot->sends_n, 0);
    for (uint32_t i = 0; i < g->n; i++) {
        Transfer *t = &g->transfers[i];
        *t = transfer_make(f, &calls[i]);
        if (!t->local)
            t->stream = &streams[remote_n++];
        else if (t->c->kind == OP_SEND && !post_send(f, t, slot, &parts_n, err))
            return false;
    }
    return true;
}

bool p2p_run(Fabric *f, CommCall *calls, uint32_t n, Err *err)
{
    Group g = { .n = n };
    g.transfers = mem_zero(n, sizeof *g.transfers);
    g.busy = mem_zero(n, sizeof(*g.busy));
    bool ok = group_post(f, &g, calls, err) && group_run(f, &g, err);
    free(g.busy);
    free(g.transfers);
    return ok;
}
