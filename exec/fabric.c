/* fabric.c - opening, closing, and which way a call goes. */
#include "exec/fabric_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- small things ---- */

uint64_t counts_next(Counts *c, uint64_t of)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->items[i].of == of)
            return ++c->items[i].n;
    GROW(c->items, c->n, c->cap);
    c->items[c->n++] = (Count){ .of = of };
    return 0;
}

void *scratch_take(Scratch *s, size_t bytes)
{
    if (bytes > s->cap) {
        s->cap = bytes;
        s->bytes = mem_resize(s->bytes, s->cap, 1);
    }
    return s->bytes;
}

static void lane_state_free(LaneState *l)
{
    free(l->groups.items);
    free(l->pointers.bytes);
    free(l->bytes.bytes);
    for (uint32_t i = 0; i < l->streams_n; i++)
        stream_free(&l->streams[i]);
    free(l->streams);
    *l = (LaneState){ 0 };
}

uint8_t *fabric_arena(Fabric *f)
{
    return f->arena;
}

void fabric_use_rings(Fabric *f, bool rings)
{
    f->rings = rings;
}

/* ---- open and close ---- */

/* The identity, and where others reach this rank. */
static bool introduce(Fabric *f, const RankPlace *place, Err *err)
{
    rendezvous_introduce(&f->card);
    if (place->tcp_only) {
        size_t n = strlen(f->card.identity);
        snprintf(f->card.identity + n, sizeof f->card.identity - n, "/%u", place->rank);
    }
    f->unix_listener = shared_listen(f->card.unix_name, sizeof f->card.unix_name, err);
    if (f->unix_listener < 0)
        return false;
    uint16_t port = 0;
    bool local = rendezvous_is_local(place->rendezvous);
    f->data_listener = net_listen(local ? "127.0.0.1" : NULL, "0", &port);
    f->card.data_port = port;
    return f->data_listener >= 0 || err_set(err, "rank %u cannot listen for its peers: %s",
                                            place->rank, strerror(errno));
}

static void meet_alone(Fabric *f)
{
    rendezvous_introduce(&f->card);
    f->meeting = (Meeting){ .cards = mem_zero(1, sizeof(RankCard)), .control_n = 0 };
    f->meeting.cards[0] = f->card;
    atomic_store(&f->mapped, true);
}

/* A rank spins for a few microseconds before it sleeps, if there is a core for it. */
static uint32_t spins_of(const Fabric *f)
{
    uint32_t local_n = 0;
    for (uint32_t r = 0; r < f->world; r++)
        local_n += f->peers[r].control != NULL;
    long cores =
        sysconf(_SC_NPROCESSORS_ONLN); /* of the host, as the ranks are; one each or not */
    return cores > 0 && local_n <= (unsigned long)cores ? 100 : 0;
}

static bool open_parts(Fabric *f, const RankPlace *place, uint64_t arena_bytes, Err *err)
{
    net_allow_files();
    f->fail_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->service.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->fail_fd < 0 || f->service.wake_fd < 0)
        return err_set(err, "cannot make an event: %s", strerror(errno));
    if (!memory_make(f, arena_bytes, err))
        return false;
    if (f->world == 1) {
        meet_alone(f);
        return true;
    }
    if (!introduce(f, place, err) || !rendezvous_meet(&f->meeting, place, &f->card, err) ||
        !service_start(f, err) || !memory_exchange(f, err))
        return false;
    f->spins = spins_of(f);
    return true;
}

bool fabric_open(Fabric **out, const RankPlace *place, uint64_t arena_bytes, Err *err)
{
    *out = NULL;
    if (place->world == 0 || place->rank >= place->world)
        return err_set(err, "rank %u of %u does not exist", place->rank, place->world);
    if (place->world > 1 && !place->rendezvous)
        return err_set(err,
                       "rank %u of %u does not know where to meet the others: "
                       "--rendezvous tcp://HOST:PORT or file:PATH",
                       place->rank, place->world);
    if (!(place->timeout_s > 0 && place->timeout_s <= 1e6))
        return err_set(err, "a time-out of %g s is not between 0 and 1000000",
                       place->timeout_s);
    Fabric *f = mem_zero(1, sizeof *f);
    f->rank = place->rank;
    f->world = place->world;
    f->timeout_s = place->timeout_s;
    f->memory_fd = f->unix_listener = f->data_listener = f->fail_fd = -1;
    f->service.wake_fd = -1;
    atomic_store(&f->awaits, NONE_U32);
    f->peers = mem_zero(f->world, sizeof *f->peers);
    pthread_mutex_init(&f->mutex, NULL);
    if (!open_parts(f, place, arena_bytes, err)) {
        if (f->service.runs && !atomic_load(&f->failed))
            fabric_abort(f, err->text);
        fabric_close(f);
        return false;
    }
    *out = f;
    return true;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void fabric_close(Fabric *f)
{
    if (!f)
        return;
    if (f->control) {
        atomic_store(&f->control->left, 1);
        memory_wake_all(f);
    }
    service_stop(f);
    lines_close(f);
    memory_free(f);
    close_fd(f->unix_listener);
    close_fd(f->data_listener);
    close_fd(f->fail_fd);
    close_fd(f->service.wake_fd);
    meeting_free(&f->meeting);
    for (uint32_t lane = 0; lane < LANE_N; lane++)
        lane_state_free(&f->lanes[lane]);
    lane_state_free(&f->world_lane);
    free(f->p2p.items);
    pthread_mutex_destroy(&f->mutex);
    free(f);
}

/* ---- calls ---- */

uint64_t collective_key(Fabric *f, const CommCall *c)
{
    uint64_t group = mix_u64(c->members_n);
    for (uint32_t i = 0; i < c->members_n; i++)
        group = mix_u64(group ^ c->members[i]);
    return mix_u64(group + counts_next(&f->lanes[c->lane].groups, group)) | 1;
}

bool collective_differs(Fabric *f, const CommCall *c, uint32_t member, const char *what,
                        Err *err)
{
    return err_set(err, "rank %u %s on lane '%s' where rank %u calls %s of %u + %u pieces",
                   c->members[member], what, lane_names[c->lane], f->rank,
                   op_kind_names[c->kind], c->in_n, c->out_n);
}

static bool check_pieces(const Fabric *f, const CommCall *c, const Part *parts, uint32_t n,
                         Err *err)
{
    for (uint32_t k = 0; k < n; k++) {
        const Part *p = &parts[k];
        uint64_t size = dtype_bytes(p->dtype);
        if (p->offset > f->arena_bytes || p->elements > (f->arena_bytes - p->offset) / size)
            return err_set(err, "piece %u of %s lies outside the arena of %" PRIu64 " bytes", k,
                           op_kind_names[c->kind], f->arena_bytes);
        if (p->offset % size)
            return err_set(err, "piece %u of %s is not aligned to its elements", k,
                           op_kind_names[c->kind]);
    }
    return true;
}

/* `out` where the kind has one: as many pieces as `in`, of the same format, large enough. */
static bool check_out(const CommCall *c, Err *err)
{
    bool may = c->kind == OP_ALL_GATHER || c->kind == OP_REDUCE_SCATTER;
    bool must = c->kind == OP_ALL_TO_ALL;
    const char *name = op_kind_names[c->kind];
    if (must ? c->out_n != c->in_n : c->out_n && (!may || c->out_n != c->in_n))
        return err_set(err, "%s of %u pieces cannot go to %u", name, c->in_n, c->out_n);
    for (uint32_t k = 0; k < c->out_n; k++) {
        const Part *in = &c->in[k], *out = &c->out[k];
        const Part *whole = c->kind == OP_ALL_GATHER ? out : in;
        const Part *shard = c->kind == OP_ALL_GATHER ? in : out;
        uint64_t need = ring_block(whole->elements, c->self, c->members_n).n;
        if (in->dtype != out->dtype || (must && in->elements != out->elements) ||
            (must && in->elements % c->members_n) || (!must && shard->elements < need))
            return err_set(
                err, "%s among %u: piece %u of %" PRIu64 " %s does not fit %" PRIu64 " %s",
                name, c->members_n, k, in->elements, dtype_names[in->dtype], out->elements,
                dtype_names[out->dtype]);
        uint64_t in_end = in->offset + part_bytes(in), out_end = out->offset + part_bytes(out);
        if (must && in->offset < out_end && out->offset < in_end)
            return err_set(err, "%s cannot write over what it reads", name);
    }
    return true;
}

static bool check_call(const Fabric *f, const CommCall *c, Err *err)
{
    ASSERT(op_is_comm(c->kind) && c->lane < LANE_N);
    ASSERT(c->members_n > 0 && c->self < c->members_n && c->members[c->self] == f->rank);
    bool uses_peer = op_is_p2p(c->kind) || c->kind == OP_BROADCAST || c->kind == OP_REDUCE;
    if (uses_peer && c->peer >= c->members_n)
        return err_set(err, "%s names member %u of %u", op_kind_names[c->kind], c->peer,
                       c->members_n);
    bool sums =
        c->kind == OP_ALL_REDUCE || c->kind == OP_REDUCE_SCATTER || c->kind == OP_REDUCE;
    for (uint32_t k = 0; sums && k < c->in_n; k++)
        if (c->in[k].dtype == DTYPE_FP8)
            return err_set(err, "%s cannot add %s", op_kind_names[c->kind],
                           dtype_names[DTYPE_FP8]);
    return check_pieces(f, c, c->in, c->in_n, err) &&
           check_pieces(f, c, c->out, c->out_n, err) && check_out(c, err);
}

static bool all_local(const Fabric *f, const CommCall *c)
{
    for (uint32_t i = 0; i < c->members_n; i++)
        if (!f->peers[c->members[i]].control)
            return false;
    return true;
}

bool fabric_is_beside(const Fabric *f, uint32_t rank)
{
    return f->peers[rank].control != NULL;
}

bool fabric_shares_memory(const Fabric *f)
{
    for (uint32_t r = 0; r < f->world; r++)
        if (!fabric_is_beside(f, r))
            return false;
    return f->world == 1 || !f->rings;
}

static bool goes_in_rings(const Fabric *f, const CommCall *c)
{
    return f->rings && c->members_n > 1 && !c->maximum &&
           (c->kind == OP_ALL_REDUCE || c->kind == OP_ALL_GATHER ||
            c->kind == OP_REDUCE_SCATTER);
}

/* Pieces are independent of each other: a list that is too long goes in several calls. */
static bool run_collective(Fabric *f, CommCall *call, Err *err)
{
    bool shared = all_local(f, call) && !goes_in_rings(f, call);
    CommCall c = *call;
    uint32_t done_n = 0;
    int64_t met_ns = INT64_MIN;
    do {
        uint32_t n = (uint32_t)min_u64(call->in_n - done_n, PARTS_MAX);
        c.in = call->in_n ? call->in + done_n : NULL;
        c.out = call->out_n ? call->out + done_n : NULL;
        c.in_n = n;
        c.out_n = call->out_n ? n : 0;
        if (!(shared ? shm_collective(f, &c, err) : message_collective(f, &c, err)))
            return false;
        met_ns = max_i64(met_ns, c.met_ns);
        done_n += n;
    } while (done_n < call->in_n);
    call->met_ns = met_ns;
    call->met_wall_ns = c.met_wall_ns;
    return true;
}

bool fabric_run(Fabric *f, CommCall *calls, uint32_t n, Err *err)
{
    if (atomic_load(&f->failed))
        return fabric_ended(f, err);
    if (n == 0)
        return true;
    for (uint32_t i = 0; i < n; i++) {
        ASSERT(n == 1 || op_is_p2p(calls[i].kind));
        if (!check_call(f, &calls[i], err))
            return fabric_refuse(f, err);
    }
    bool ok = op_is_p2p(calls[0].kind) ? p2p_run(f, calls, n, err)
                                       : run_collective(f, &calls[0], err);
    watch_call_done(f);
    return ok;
}
