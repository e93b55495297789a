/*
 * test_cuda_loop.c - transfers among ranks of one process, without a GPU.
 *
 * The device is a machine of queues: what is queued on a stream runs later, in any
 * order that the events allow, drawn from a seed.  So a wait too few shows as a wrong
 * number, and one too many, in a circle, as a queue that does not empty.  What should
 * come out is what the same calls give through the fabric, bit for bit.
 */
#include <pthread.h>

#include "core/patterns/ring.h"
#include "exec/cuda_comm_loop.h"
#include "exec/fabric_sum.h"
#include "exec/launch.h"
#include "tests/check.h"

enum { ARENA = 1 << 21, DRAWN_N = 150, ORDERS_N = 4, WORLD_MAX = 5 };

/* ---- a device ---- */

typedef enum Kind { RECORD, WAIT, KERNEL } Kind;

typedef struct Queued {
    Kind kind;
    uint32_t version; /* of an event: each record makes a new one */
    LoopKernel kernel;
} Queued;

typedef struct Queue {
    Queued *items;
    uint32_t n, cap, at;
} Queue;

typedef struct Device {
    Queue queue[WORLD_MAX][LANE_N];             /* a stream is a pointer to one */
    uint32_t versions_n, events_n, fails_after; /* kernels; 0: never */
    bool *reached;
    uint32_t *event[10000];
} Device;

static Queued *add(Queue *q, Kind kind, uint32_t version)
{
    GROW(q->items, q->n, q->cap);
    Queued *x = &q->items[q->n++];
    *x = (Queued){ .kind = kind, .version = version };
    return x;
}

static bool dev_events(void *user, void **events, uint32_t n, Err *err)
{
    Device *d = user;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        ASSERT(d->events_n < ARRAY_N(d->event));
        events[i] = d->event[d->events_n++] = mem_zero(1, sizeof(uint32_t));
    }
    return true;
}

static bool dev_record(void *user, void *event, void *stream, Err *err)
{
    Device *d = user;
    (void)err;
    *(uint32_t *)event = ++d->versions_n;
    add(stream, RECORD, d->versions_n);
    return true;
}

/* A wait keeps the event as it is now; one that was never recorded would not wait at all. */
static bool dev_wait(void *user, void *stream, void *event, Err *err)
{
    (void)user;
    (void)err;
    ASSERT(*(uint32_t *)event > 0);
    add(stream, WAIT, *(uint32_t *)event);
    return true;
}

static bool dev_run(void *user, void *stream, const LoopKernel *kernel, Err *err)
{
    Device *d = user;
    if (d->fails_after > 0 && --d->fails_after == 0)
        return err_set(err, "the device is on fire");
    add(stream, KERNEL, 0)->kernel = *kernel;
    return true;
}

static LoopDevice device_of(Device *d)
{
    return (LoopDevice){ d, dev_events, dev_record, dev_wait, dev_run };
}

static void run_kernel(const LoopKernel *k)
{
    uint8_t *to = k->to;
    if (k->action == MOVE_COPY)
        memmove(to, k->from[0], k->elements * dtype_bytes(k->dtype));
    else
        sum_vectors(&to, 1, (const uint8_t *const *)k->from, k->from_n, k->elements, k->dtype,
                    k->action == MOVE_MAX);
}

static bool step(Device *d, Queue *q)
{
    if (q->at == q->n || (q->items[q->at].kind == WAIT && !d->reached[q->items[q->at].version]))
        return false;
    const Queued *x = &q->items[q->at++];
    if (x->kind == RECORD)
        d->reached[x->version] = true;
    else if (x->kind == KERNEL)
        run_kernel(&x->kernel);
    return true;
}

/* Everything, in an order of its own for each seed; false: streams wait for each other. */
static bool device_run(Device *d, uint64_t seed)
{
    Queue *all = &d->queue[0][0];
    uint32_t n = WORLD_MAX * LANE_N, stuck_n = 0;
    d->reached = mem_zero((size_t)d->versions_n + 1, sizeof *d->reached);
    for (uint32_t i = 0; i < n; i++)
        all[i].at = 0;
    while (stuck_n < n) {
        seed = mix_u64(seed + 1);
        uint32_t first = (uint32_t)(seed % n);
        for (stuck_n = 0; stuck_n < n && !step(d, &all[(first + stuck_n) % n]); stuck_n++)
            ;
    }
    free(d->reached);
    for (uint32_t i = 0; i < n; i++)
        if (all[i].at < all[i].n)
            return false;
    return true;
}

static void device_free(Device *d)
{
    for (uint32_t i = 0; i < WORLD_MAX * LANE_N; i++)
        free((&d->queue[0][0])[i].items);
    for (uint32_t i = 0; i < d->events_n; i++)
        free(d->event[i]);
    free(d);
}

/* ---- the same calls, through the fabric and in a loop ---- */

typedef struct Twin {
    uint32_t world, drawn_n;
    bool rings, again; /* again: all calls work on the same tensors */
    Device *device;
    LoopWorld *loop;
    uint8_t *before[WORLD_MAX], *memory[WORLD_MAX], *fabric[WORLD_MAX];
    bool *defined[WORLD_MAX]; /* by byte: both must agree */
    uint64_t used[WORLD_MAX]; /* bytes: behind them nobody writes */
} Twin;

typedef struct Drawn {
    CommCall call;
    Part in[3], out[3];
    uint32_t members[WORLD_MAX];
    bool mine;
} Drawn;

static uint32_t choose_members(uint32_t world, uint64_t draw, uint32_t *members)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < world; i++)
        if (draw % 3 == 0 || (draw >> i & 1) || world < 2)
            members[n++] = draw % 2 ? i : world - 1 - i;
    for (uint32_t i = 0; n > 1 && draw % 2 == 0 && i < n / 2; i++) {
        uint32_t swap = members[i];
        members[i] = members[n - 1 - i];
        members[n - 1 - i] = swap;
    }
    if (n == 0)
        members[n++] = 0;
    return n;
}

/* Numbers that do not add up exactly, or small ones that do. */
static void fill(uint8_t *at, const Part *p, uint64_t noise, bool exact)
{
    for (uint64_t e = 0; e < p->elements; e++) {
        uint64_t h = mix_u64(noise + e);
        float x = exact ? (float)(h % 7) - 3 : (float)(h >> 40) * 1e-3f;
        uint32_t bits;
        memcpy(&bits, &x, 4);
        uint16_t half = (uint16_t)(bits >> 16),
                 f16 = (uint16_t)(exact ? 0x3c00 : 0x3800 + h % 1024);
        if (p->dtype == DTYPE_F32)
            memcpy(at + 4 * e, &x, 4);
        else if (p->dtype == DTYPE_I64)
            memcpy(at + 8 * e, &h, 8);
        else
            memcpy(at + 2 * e, p->dtype == DTYPE_BF16 ? &half : &f16, 2);
    }
}

static uint64_t take(uint64_t *at, const Part *p)
{
    uint64_t offset = *at;
    *at += (p->elements * dtype_bytes(p->dtype) + 63) / 64 * 64 + 64;
    ASSERT(*at < ARENA);
    return offset;
}

static OpKind draw_kind(const Twin *t, uint64_t h)
{
    static const OpKind again[] = { OP_ALL_REDUCE, OP_ALL_GATHER, OP_BROADCAST };
    if (t->again)
        return again[h % ARRAY_N(again)];
    return (OpKind)((uint64_t)OP_ALL_REDUCE + h % (OP_ALL_TO_ALL - OP_ALL_REDUCE + 1));
}

/* Call number i as this rank makes it; *at is where its tensors go. */
static void draw(const Twin *t, uint32_t i, uint32_t rank, uint64_t *at, Drawn *x)
{
    static const DType types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I64 };
    uint64_t h = mix_u64(mix_u64(i + 1000 * t->world) + t->rings);
    *x = (Drawn){ 0 };
    CommCall *c = &x->call;
    uint32_t n = t->again ? choose_members(t->world, 0, x->members)
                          : choose_members(t->world, h >> 8, x->members);
    DType dtype = t->again ? DTYPE_F32 : types[(h >> 20) % ARRAY_N(types)];
    *c = (CommCall){ .kind = draw_kind(t, h >> 24),
                     .lane = t->again      ? LANE_TP
                             : h >> 44 & 1 ? LANE_TP
                                           : LANE_REDUCE,
                     .members_n = n,
                     .members = x->members,
                     .peer = (uint32_t)((h >> 32) % n),
                     .in_n = t->again ? 2 : 1 + (uint32_t)((h >> 36) % 3),
                     .in = x->in,
                     .out = x->out };
    c->maximum = c->kind == OP_ALL_REDUCE && (h >> 40) % 3 == 0;
    for (c->self = 0; c->self < n && x->members[c->self] != rank; c->self++)
        ;
    x->mine = c->self < n;
    bool out = !t->again &&
               (c->kind == OP_ALL_TO_ALL ||
                ((h >> 41 & 1) && (c->kind == OP_ALL_GATHER || c->kind == OP_REDUCE_SCATTER)));
    c->out_n = out ? c->in_n : 0;
    for (uint32_t k = 0; k < c->in_n; k++) {
        uint64_t elements = t->again ? 40 + k : mix_u64(h + k) % 200;
        if (c->kind == OP_ALL_TO_ALL)
            elements = elements / n * n;
        uint64_t own = ring_block(elements, x->mine ? c->self : 0, n).n;
        bool gather = c->kind == OP_ALL_GATHER, scatter = c->kind == OP_REDUCE_SCATTER;
        x->in[k] = (Part){ 0, out && gather ? own : elements, dtype };
        x->out[k] = (Part){ 0, out && scatter ? own : elements, dtype };
        x->in[k].offset = take(at, &x->in[k]);
        x->out[k].offset = take(at, &x->out[k]);
    }
}

/* Which bytes of the result are the same everywhere by definition. */
static void mark_defined(Twin *t, uint32_t rank, const Drawn *x)
{
    const CommCall *c = &x->call;
    for (uint32_t k = 0; k < c->in_n; k++) {
        const Part *p = c->out_n ? &c->out[k] : &c->in[k];
        uint64_t size = dtype_bytes(p->dtype);
        BlockRange span = { 0, p->elements };
        if (c->kind == OP_REDUCE_SCATTER && !c->out_n)
            span = ring_block(p->elements, c->self, c->members_n);
        if (c->kind == OP_REDUCE && c->self != c->peer)
            span.n = 0;
        memset(t->defined[rank] + p->offset + span.first * size, 1, span.n * size);
    }
}

/* Tensors begin with numbers of (rank, call). */
static void prepare(Twin *t, uint32_t rank)
{
    uint64_t at = 0;
    Drawn x;
    for (uint32_t i = 0; i < t->drawn_n; i++) {
        if (t->again)
            at = 0;
        draw(t, i, rank, &at, &x);
        t->used[rank] = max_u64(t->used[rank], at);
        bool exact = t->rings && x.call.kind == OP_REDUCE_SCATTER && x.call.out_n > 0;
        for (uint32_t k = 0; k < x.call.in_n && (!t->again || i == 0); k++)
            fill(t->before[rank] + x.in[k].offset, &x.in[k],
                 mix_u64(rank * 100000 + i * 10 + k), exact);
        if (x.mine)
            mark_defined(t, rank, &x);
    }
}

static int twin_rank(const RankPlace *place, void *user)
{
    Twin *t = user;
    uint32_t rank = place->rank;
    Fabric *f;
    Err err = { 0 };
    uint64_t at = 0;
    prepare(t, rank);
    memcpy(t->memory[rank], t->before[rank], ARENA);
    loop_world_join(t->loop, rank, t->memory[rank], NULL);
    bool ok = fabric_open(&f, place, ARENA, &err);
    if (ok) {
        fabric_use_rings(f, t->rings);
        memcpy(fabric_arena(f), t->before[rank], ARENA);
    }
    for (uint32_t i = 0; ok && i < t->drawn_n; i++) {
        Drawn x;
        at = t->again ? 0 : at;
        draw(t, i, rank, &at, &x);
        if (x.mine)
            ok = loop_run(t->loop, rank, &x.call, 1, &t->device->queue[rank][x.call.lane],
                          &err) &&
                 fabric_run(f, &x.call, 1, &err);
    }
    if (!ok)
        fprintf(stderr, "rank %u: %s\n", rank, err.text);
    else
        memcpy(t->fabric[rank], fabric_arena(f), ARENA);
    ok = ok && fabric_barrier(f, &err);
    fabric_close(f);
    return ok ? 0 : 1;
}

static void compare(const Twin *t, uint32_t rank)
{
    uint64_t defined_n = 0, wrong_n = 0, used = t->used[rank];
    for (uint64_t i = 0; i < used; i++) {
        bool same = t->memory[rank][i] == t->fabric[rank][i];
        defined_n += t->defined[rank][i];
        wrong_n += t->defined[rank][i] && !same;
    }
    int behind = memcmp(t->memory[rank] + used, t->before[rank] + used, ARENA - used);
    if (!CHECK_U64(0, wrong_n) || !CHECK_INT(0, behind) || !CHECK(defined_n > 100))
        fprintf(stderr, "rank %u of %u, rings %d, again %d\n", rank, t->world, t->rings,
                t->again);
}

static void run_twin(uint32_t world, bool rings, bool again)
{
    Twin t = { .world = world, .rings = rings, .again = again };
    t.drawn_n = again ? 30 : check_cases(DRAWN_N);
    t.device = mem_zero(1, sizeof *t.device);
    LoopDevice device = device_of(t.device);
    t.loop = loop_world_open(world, &device, rings, 20);
    for (uint32_t r = 0; r < world; r++) {
        t.before[r] = mem_zero(ARENA, 1);
        t.memory[r] = mem_zero(ARENA, 1);
        t.fabric[r] = mem_zero(ARENA, 1);
        t.defined[r] = mem_zero(ARENA, sizeof(bool));
    }
    RankPlace place = { .digest = "test", .timeout_s = 20 };
    if (CHECK_INT(0, launch_threads(world, twin_rank, &t, &place)))
        for (uint64_t order = 0; order < ORDERS_N; order++) {
            for (uint32_t r = 0; r < world; r++)
                memcpy(t.memory[r], t.before[r], ARENA);
            CHECK(device_run(t.device, order));
            for (uint32_t r = 0; r < world; r++)
                compare(&t, r);
        }
    loop_world_close(t.loop);
    for (uint32_t r = 0; r < world; r++) {
        free(t.before[r]);
        free(t.memory[r]);
        free(t.fabric[r]);
        free(t.defined[r]);
    }
    device_free(t.device);
}

static void collectives_are_the_fabrics_bit_for_bit(void)
{
    for (uint32_t world = 1; world <= WORLD_MAX; world++)
        run_twin(world, false, false);
}

static void rings_are_the_fabrics_bit_for_bit(void)
{
    for (uint32_t world = 2; world <= WORLD_MAX; world++)
        run_twin(world, true, false);
}

static void one_collective_waits_for_the_one_before(void)
{
    for (uint32_t world = 2; world <= WORLD_MAX; world++)
        for (int rings = 0; rings < 2; rings++)
            run_twin(world, rings, true);
}

/* ---- messages ---- */

enum { MESSAGES_N = 24, WORDS = 40 };

typedef struct Mail {
    Device *device;
    LoopWorld *loop;
    uint64_t memory[3][4][MESSAGES_N][WORDS]; /* by rank: sent with tag 0, 1; received */
    _Atomic uint32_t failed_n;
} Mail;

typedef struct Clerk {
    Mail *m;
    uint32_t rank, tag;
    bool sends;
} Clerk;

/* Round the ring of three, both tags in their own order; pieces are cut differently. */
static void *clerk_main(void *user)
{
    Clerk *k = user;
    Mail *m = k->m;
    uint32_t other = k->sends ? (k->rank + 1) % 3 : (k->rank + 2) % 3;
    const uint32_t members[2] = { k->rank, other };
    Lane lane = k->sends ? (k->tag ? LANE_SEND_GRAD : LANE_SEND_ACT)
                         : (k->tag ? LANE_RECV_GRAD : LANE_RECV_ACT);
    for (uint32_t i = 0; i < MESSAGES_N; i++) {
        uint64_t *at = m->memory[k->rank][k->tag + (k->sends ? 0 : 2)][i];
        uint64_t offset = (uint64_t)((uint8_t *)at - (uint8_t *)m->memory[k->rank]);
        uint32_t cut = k->sends ? 8 * (i % 5) : 8 * (i % 7);
        Part parts[2] = { { offset, cut / 4, DTYPE_F32 },
                          { offset + cut, (WORDS * 8 - cut) / 2, DTYPE_BF16 } };
        CommCall c = { .kind = k->sends ? OP_SEND : OP_RECV,
                       .lane = lane,
                       .members_n = 2,
                       .peer = 1,
                       .tag = k->tag,
                       .members = members,
                       .in_n = 2,
                       .in = parts };
        Err err = { 0 };
        m->failed_n +=
            !loop_run(m->loop, k->rank, &c, 1, &m->device->queue[k->rank][lane], &err);
    }
    return NULL;
}

static Mail *mail_open(void)
{
    Mail *m = mem_zero(1, sizeof *m);
    m->device = mem_zero(1, sizeof *m->device);
    LoopDevice device = device_of(m->device);
    m->loop = loop_world_open(3, &device, false, 20);
    for (uint32_t r = 0; r < 3; r++) {
        loop_world_join(m->loop, r, m->memory[r], NULL);
        for (uint32_t i = 0; i < 2 * MESSAGES_N * WORDS; i++)
            m->memory[r][i / (MESSAGES_N * WORDS)][i / WORDS % MESSAGES_N][i % WORDS] =
                1000000 * (r + 1) + i;
    }
    return m;
}

static void mail_close(Mail *m)
{
    loop_world_close(m->loop);
    device_free(m->device);
    free(m);
}

static void messages_arrive_in_order_whoever_comes_first(void)
{
    Mail *m = mail_open();
    Clerk clerks[12];
    pthread_t threads[12];
    for (uint32_t i = 0; i < 12; i++) {
        clerks[i] = (Clerk){ m, i % 3, i / 3 % 2, i >= 6 };
        CHECK_INT(0, pthread_create(&threads[i], NULL, clerk_main, &clerks[i]));
    }
    for (uint32_t i = 0; i < 12; i++)
        pthread_join(threads[i], NULL);
    CHECK_U64(0, m->failed_n);
    for (uint64_t order = 0; order < ORDERS_N; order++) {
        for (uint32_t r = 0; r < 3; r++)
            memset(m->memory[r][2], 0, sizeof m->memory[r][2] * 2);
        CHECK(device_run(m->device, order));
        for (uint32_t r = 0; r < 3; r++)
            CHECK_INT(0, memcmp(m->memory[r][2], m->memory[(r + 2) % 3][0],
                                sizeof m->memory[r][0] * 2));
    }
    mail_close(m);
}

/* Everybody sends to the right and receives from the left with one call. */
static void *exchange_main(void *user)
{
    Clerk *k = user;
    Mail *m = k->m;
    const uint32_t right[2] = { k->rank, (k->rank + 1) % 3 };
    const uint32_t left[2] = { k->rank, (k->rank + 2) % 3 };
    for (uint32_t i = 0; i < MESSAGES_N; i++) {
        uint64_t first = i * WORDS * 8, far = 2 * sizeof m->memory[0][0];
        Part parts[2] = { { first, WORDS * 2, DTYPE_F32 },
                          { far + first, WORDS * 2, DTYPE_F32 } };
        CommCall c[2] = { { .kind = OP_SEND, .members = right },
                          { .kind = OP_RECV, .members = left } };
        for (int n = 0; n < 2; n++) {
            c[n].lane = LANE_SEND_ACT;
            c[n].members_n = 2;
            c[n].peer = 1;
            c[n].in_n = 1;
            c[n].in = &parts[n];
        }
        if (k->rank == 1) { /* in whatever order */
            CommCall swap = c[0];
            c[0] = c[1];
            c[1] = swap;
        }
        Err err = { 0 };
        m->failed_n +=
            !loop_run(m->loop, k->rank, c, 2, &m->device->queue[k->rank][LANE_SEND_ACT], &err);
    }
    return NULL;
}

static void messages_posted_together_do_not_wait_for_each_other(void)
{
    Mail *m = mail_open();
    Clerk clerks[3];
    pthread_t threads[3];
    for (uint32_t i = 0; i < 3; i++) {
        clerks[i] = (Clerk){ m, i, 0, true };
        CHECK_INT(0, pthread_create(&threads[i], NULL, exchange_main, &clerks[i]));
    }
    for (uint32_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK_U64(0, m->failed_n);
    CHECK(device_run(m->device, 1));
    for (uint32_t r = 0; r < 3; r++)
        CHECK_INT(0,
                  memcmp(m->memory[r][2], m->memory[(r + 2) % 3][0], sizeof m->memory[r][0]));
    mail_close(m);
}

/* ---- faults ---- */

typedef struct Fault {
    Device *device;
    LoopWorld *loop;
    uint32_t rank, elements;
    OpKind kind;
    uint64_t memory[2][64];
    bool ok;
    Err err;
} Fault;

static void *fault_main(void *user)
{
    Fault *x = user;
    static const uint32_t both[2] = { 0, 1 };
    Part part = { 0, x->elements, DTYPE_F32 };
    CommCall c = { .kind = x->kind,
                   .lane = LANE_TP,
                   .members_n = 2,
                   .self = x->rank,
                   .peer = 1 - x->rank,
                   .tag = 3,
                   .members = both,
                   .in_n = 1,
                   .in = &part };
    x->ok = loop_run(x->loop, x->rank, &c, 1, &x->device->queue[x->rank][LANE_TP], &x->err);
    return NULL;
}

/* Both ranks call; each should fail with the sentence. */
static void check_fault(uint32_t fails_after, OpKind kind0, uint32_t elements0, OpKind kind1,
                        uint32_t elements1, const char *sentence)
{
    Device *device = mem_zero(1, sizeof *device);
    device->fails_after = fails_after;
    LoopDevice d = device_of(device);
    LoopWorld *loop = loop_world_open(2, &d, false, 20);
    Fault x[2] = { { device, loop, 0, elements0, kind0, .ok = true },
                   { device, loop, 1, elements1, kind1, .ok = true } };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        loop_world_join(loop, (uint32_t)i, x[0].memory[i], NULL);
    for (int i = 0; i < 2; i++)
        CHECK_INT(0, pthread_create(&threads[i], NULL, fault_main, &x[i]));
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK(!x[i].ok);
        CHECK_ERR_TEXT(&x[i].err, sentence);
    }
    loop_world_close(loop);
    device_free(device);
}

static void calls_that_do_not_fit_end_everybody_with_a_sentence(void)
{
    check_fault(0, OP_ALL_REDUCE, 8, OP_ALL_REDUCE, 9, "of other sizes or kinds");
    check_fault(0, OP_ALL_REDUCE, 8, OP_BROADCAST, 8, "of 1 + 0 pieces");
    check_fault(0, OP_SEND, 8, OP_RECV, 9,
                "rank 0 sends 32 bytes where rank 1 receives 36 (tag 3)");
    check_fault(2, OP_ALL_REDUCE, 8, OP_ALL_REDUCE, 8, "the device is on fire");
}

static void a_rank_that_nobody_joins_says_so(void)
{
    Device *device = mem_zero(1, sizeof *device);
    LoopDevice d = device_of(device);
    Fault x = { device, loop_world_open(2, &d, false, 0.5), 1, 8, OP_ALL_REDUCE, .ok = true };
    loop_world_join(x.loop, 1, x.memory[1], NULL);
    fault_main(&x);
    CHECK(!x.ok);
    CHECK_ERR_TEXT(&x.err,
                   "rank 1 has waited for 0 s on lane 'tp' in all_reduce among 2 ranks");
    loop_world_close(x.loop);
    device_free(device);
}

static void *fail_later(void *user)
{
    struct timespec t = { .tv_nsec = 50000000 };
    nanosleep(&t, NULL);
    loop_world_fail(user, "rank 0 has lost its disk");
    return NULL;
}

static void whoever_waits_hears_why_it_ended(void)
{
    Device *device = mem_zero(1, sizeof *device);
    LoopDevice d = device_of(device);
    Fault x = { device, loop_world_open(2, &d, false, 20), 1, 8, OP_RECV, .ok = true };
    pthread_t thread;
    loop_world_join(x.loop, 1, x.memory[1], NULL);
    CHECK_INT(0, pthread_create(&thread, NULL, fail_later, x.loop));
    fault_main(&x);
    pthread_join(thread, NULL);
    CHECK(!x.ok);
    CHECK_STR("rank 0 has lost its disk", x.err.text);
    x.err = (Err){ 0 };
    fault_main(&x);
    CHECK_STR("rank 0 has lost its disk", x.err.text);
    loop_world_close(x.loop);
    device_free(device);
}

int main(void)
{
    RUN(collectives_are_the_fabrics_bit_for_bit);
    RUN(rings_are_the_fabrics_bit_for_bit);
    RUN(one_collective_waits_for_the_one_before);
    RUN(messages_arrive_in_order_whoever_comes_first);
    RUN(messages_posted_together_do_not_wait_for_each_other);
    RUN(calls_that_do_not_fit_end_everybody_with_a_sentence);
    RUN(a_rank_that_nobody_joins_says_so);
    RUN(whoever_waits_hears_why_it_ended);
    return check_report();
}
