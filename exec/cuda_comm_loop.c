/*
 * cuda_comm_loop.c - calls that wait for each other, and what the last one queues.
 *
 * EVENTS come from one list and go back at once: a wait that has been queued keeps the
 * state that the event had then, also when it is recorded anew (as CUDA has it).
 */
#include "exec/cuda_comm_loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/fabric_parts.h"

/* A call that waits for the others. */
typedef struct Post {
    uint64_t key;
    uint32_t rank;
    const CommCall *call;
    void *stream, *ready;
    bool done;
    struct Post *next;
} Post;

struct LoopWorld {
    uint32_t ranks;
    LoopDevice device;
    bool rings;
    double timeout_s;
    uint8_t **arena; /* by rank */
    Fabric **fabric; /* by rank; NULL */
    Counts *counts;  /* by rank: of groups and channels */
    Post *posts;
    uint64_t posted_n; /* in all */
    Moves moves;
    void **events; /* free ones */
    uint32_t events_n, events_cap;
    bool failed;
    Err err;
    pthread_mutex_t lock;
    pthread_cond_t bell;
};

static bool fail(LoopWorld *w, const Err *err)
{
    if (!w->failed)
        w->err = *err;
    w->failed = true;
    pthread_cond_broadcast(&w->bell);
    return false;
}

/* ---- events ---- */

static bool take_events(LoopWorld *w, void **events, uint32_t n, Err *err)
{
    while (w->events_n > 0 && n > 0)
        events[--n] = w->events[--w->events_n];
    return n == 0 || w->device.events(w->device.user, events, n, err);
}

static void give_events(LoopWorld *w, void **events, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        GROW(w->events, w->events_n, w->events_cap);
        w->events[w->events_n++] = events[i];
    }
}

/* ---- who meets whom ---- */

static uint64_t group_key(LoopWorld *w, uint32_t rank, const CommCall *c)
{
    uint64_t of = mix_u64(c->members_n ^ (uint64_t)c->lane << 32);
    for (uint32_t i = 0; i < c->members_n; i++)
        of = mix_u64(of ^ c->members[i]);
    return mix_u64(of + counts_next(&w->counts[rank], of)) & ~(uint64_t)1;
}

static uint64_t channel_key(LoopWorld *w, uint32_t rank, const CommCall *c)
{
    bool sends = c->kind == OP_SEND;
    uint32_t peer = c->members[c->peer], from = sends ? rank : peer, to = sends ? peer : rank;
    uint64_t of = mix_u64(mix_u64(mix_u64(from + 1) ^ (to + 1)) ^ c->tag);
    /* a rank may send to itself: both ends count for themselves */
    return mix_u64(of + counts_next(&w->counts[rank], of + sends)) | 1;
}

static void post(LoopWorld *w, Post *p)
{
    p->key = op_is_p2p(p->call->kind) ? channel_key(w, p->rank, p->call)
                                      : group_key(w, p->rank, p->call);
    p->next = w->posts;
    w->posts = p;
    w->posted_n++;
}

static void take_down(LoopWorld *w, Post *p)
{
    for (Post **at = &w->posts; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            return;
        }
}

/* Those of one key, by place in the group, or sender and receiver; false: not all have come. */
static bool gather(const LoopWorld *w, const Post *mine, Post **met, uint32_t n)
{
    bool p2p = op_is_p2p(mine->call->kind);
    uint32_t come_n = 0;
    memset(met, 0, n * sizeof(Post *));
    for (Post *p = w->posts; p; p = p->next) {
        if (p->key != mine->key)
            continue;
        met[p2p ? p->call->kind == OP_RECV : p->call->self] = p;
        come_n++;
    }
    return come_n == n;
}

/* ---- queueing ---- */

typedef struct Queueing {
    LoopWorld *w;
    Post **met;
    uint32_t n;
    void **event[2]; /* of the phase before, and of this one; by member */
} Queueing;

static bool is_neighbour(const Queueing *q, uint32_t a, uint32_t b)
{
    return ring_left(a, q->n) == b || ring_right(a, q->n) == b;
}

/* Every member waits until those it has to do with are as far as their events say. */
static bool wait_for_others(const Queueing *q, void *const *events, Err *err)
{
    const LoopDevice *d = &q->w->device;
    for (uint32_t i = 0; i < q->n; i++)
        for (uint32_t k = 0; k < q->n; k++)
            if (i != k && (!q->w->moves.ring || is_neighbour(q, i, k)) &&
                !d->wait(d->user, q->met[i]->stream, events[k], err))
                return false;
    return true;
}

static void *address(const Queueing *q, Place p)
{
    return q->w->arena[q->met[p.member]->rank] + p.offset;
}

static bool run_move(const Queueing *q, const Move *m, Err *err)
{
    const LoopDevice *d = &q->w->device;
    LoopKernel kernel = { .action = m->action,
                          .dtype = m->dtype,
                          .from_n = m->from_n,
                          .elements = m->elements,
                          .rank = q->met[m->to.member]->rank,
                          .call = q->met[m->to.member]->call,
                          .to = address(q, m->to) };
    for (uint32_t i = 0; i < m->from_n; i++)
        kernel.from[i] = address(q, q->w->moves.from[m->from_first + i]);
    return d->run(d->user, q->met[m->to.member]->stream, &kernel, err);
}

static bool record_all(const Queueing *q, void *const *events, Err *err)
{
    const LoopDevice *d = &q->w->device;
    for (uint32_t i = 0; i < q->n; i++)
        if (!d->record(d->user, events[i], q->met[i]->stream, err))
            return false;
    return true;
}

/* The events of a phase are waited for by the next one; those of the last, by what comes behind. */
static bool queue_phases(Queueing *q, Err *err)
{
    const Moves *m = &q->w->moves;
    uint32_t at = 0;
    for (uint32_t phase = 0; phase < m->phases_n; phase++) {
        void **before = q->event[phase % 2], **now = q->event[(phase + 1) % 2];
        if (!wait_for_others(q, before, err))
            return false;
        for (; at < m->moves_n && m->moves[at].phase == phase; at++)
            if (!run_move(q, &m->moves[at], err))
                return false;
        if (!record_all(q, now, err))
            return false;
    }
    return wait_for_others(q, q->event[m->phases_n % 2], err);
}

static bool plan(LoopWorld *w, Post *const *met, uint32_t n, Err *err)
{
    if (op_is_p2p(met[0]->call->kind))
        return moves_send(&w->moves, met[0]->call, met[1]->call, err);
    const CommCall *calls[MOVE_SOURCES_MAX];
    for (uint32_t i = 0; i < n; i++)
        calls[i] = met[i]->call;
    return moves_make(&w->moves, calls, w->rings, err);
}

static bool queue(LoopWorld *w, Post **met, uint32_t n, Err *err)
{
    void *ready[MOVE_SOURCES_MAX], *more[MOVE_SOURCES_MAX];
    if (!plan(w, met, n, err) || !take_events(w, more, n, err))
        return false;
    for (uint32_t i = 0; i < n; i++)
        ready[i] = met[i]->ready;
    Queueing q = { w, met, n, { ready, more } };
    bool ok = queue_phases(&q, err);
    give_events(w, ready, n);
    give_events(w, more, n);
    return ok;
}

/* If all that belong to it have come: queues it. */
static bool meet(LoopWorld *w, const Post *mine, Err *err)
{
    Post *met[MOVE_SOURCES_MAX];
    uint32_t n = op_is_p2p(mine->call->kind) ? 2 : mine->call->members_n;
    if (n > MOVE_SOURCES_MAX)
        return err_set(err, "%u ranks on one GPU; up to %d are allowed", n, MOVE_SOURCES_MAX);
    if (!gather(w, mine, met, n))
        return true;
    bool ok = queue(w, met, n, err);
    for (uint32_t i = 0; i < n; i++) {
        take_down(w, met[i]);
        met[i]->done = true;
    }
    pthread_cond_broadcast(&w->bell);
    return ok;
}

/* ---- calls ---- */

static const Post *first_open(const Post *posts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!posts[i].done)
            return &posts[i];
    return NULL;
}

static bool nobody_comes(const LoopWorld *w, const Post *p, Err *err)
{
    const CommCall *c = p->call;
    return err_set(err, "rank %u has waited for %.0f s on lane '%s' in %s among %u ranks%s",
                   p->rank, w->timeout_s, lane_names[c->lane], op_kind_names[c->kind],
                   c->members_n, op_is_p2p(c->kind) ? ", for its peer" : "");
}

/* A second has passed: has the job ended, or has nobody called anything for too long? */
static void look_round(LoopWorld *w, const Post *open, int64_t since_ns)
{
    Fabric *f = w->fabric[open->rank];
    const char *why = f ? fabric_failure(f) : NULL;
    Err err = { 0 };
    if (why)
        err_set(&err, "%s", why);
    else if ((double)(net_now_ns() - since_ns) > w->timeout_s * 1e9)
        nobody_comes(w, open, &err);
    if (err.set)
        fail(w, &err);
}

/* Until all of them are queued. */
static bool wait_all(LoopWorld *w, const Post *posts, uint32_t n, Err *err)
{
    uint64_t seen = w->posted_n;
    int64_t since_ns = net_now_ns();
    const Post *open;
    while (!w->failed && (open = first_open(posts, n)) != NULL) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        int how = pthread_cond_timedwait(&w->bell, &w->lock, &until);
        if (w->posted_n != seen)
            since_ns = net_now_ns();
        seen = w->posted_n;
        if (how == ETIMEDOUT && !open->done)
            look_round(w, open, since_ns);
    }
    if (w->failed)
        *err = w->err;
    return !w->failed;
}

static bool post_all(LoopWorld *w, Post *posts, const CommCall *calls, uint32_t n,
                     uint32_t rank, void *stream, Err *err)
{
    const LoopDevice *d = &w->device;
    for (uint32_t i = 0; i < n; i++) {
        posts[i] = (Post){ .rank = rank, .call = &calls[i], .stream = stream };
        if (!take_events(w, &posts[i].ready, 1, err) ||
            !d->record(d->user, posts[i].ready, stream, err))
            return false;
        post(w, &posts[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!posts[i].done && !meet(w, &posts[i], err))
            return false;
    return true;
}

bool loop_run(LoopWorld *w, uint32_t rank, const CommCall *calls, uint32_t n, void *stream,
              Err *err)
{
    if (n == 0)
        return true;
    Post *posts = mem_zero(n, sizeof *posts);
    pthread_mutex_lock(&w->lock);
    bool ok = !w->failed;
    if (!ok)
        *err = w->err;
    else if (!post_all(w, posts, calls, n, rank, stream, err))
        ok = fail(w, err);
    ok = ok && wait_all(w, posts, n, err);
    for (uint32_t i = 0; i < n; i++)
        if (posts[i].call && !posts[i].done)
            take_down(w, &posts[i]);
    pthread_mutex_unlock(&w->lock);
    free(posts);
    return ok;
}

/* ---- the world ---- */

LoopWorld *loop_world_open(uint32_t ranks, const LoopDevice *device, bool rings,
                           double timeout_s)
{
    LoopWorld *w = mem_zero(1, sizeof *w);
    *w = (LoopWorld){ .ranks = ranks,
                      .device = *device,
                      .rings = rings,
                      .timeout_s = timeout_s,
                      .arena = mem_zero(ranks, sizeof *w->arena),
                      .fabric = mem_zero(ranks, sizeof *w->fabric),
                      .counts = mem_zero(ranks, sizeof *w->counts) };
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->bell, NULL);
    return w;
}

void loop_world_join(LoopWorld *w, uint32_t rank, void *arena, Fabric *fabric)
{
    pthread_mutex_lock(&w->lock);
    w->arena[rank] = arena;
    w->fabric[rank] = fabric;
    pthread_mutex_unlock(&w->lock);
}

void loop_world_fail(LoopWorld *w, const char *why)
{
    Err err = { 0 };
    err_set(&err, "%s", why);
    pthread_mutex_lock(&w->lock);
    fail(w, &err);
    pthread_mutex_unlock(&w->lock);
}

void loop_world_close(LoopWorld *w)
{
    if (!w)
        return;
    for (uint32_t r = 0; r < w->ranks; r++)
        free(w->counts[r].items);
    free(w->counts);
    free(w->arena);
    free(w->fabric);
    free(w->events);
    moves_free(&w->moves);
    pthread_cond_destroy(&w->bell);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
