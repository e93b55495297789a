/* fabric_memory.c - every rank's memory, mapped by all ranks of its host. */
#include "exec/fabric_parts.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool memory_make(Fabric *f, uint64_t arena_bytes, Err *err)
{
    const uint64_t page = 4096;
    if (arena_bytes > (uint64_t)1 << 60)
        return err_set(err, "an arena of %" PRIu64 " bytes is too large", arena_bytes);
    f->arena_bytes = arena_bytes;
    f->map_bytes = CONTROL_BYTES + div_up_u64(arena_bytes, page) * page;
    f->memory_fd = shared_make(f->map_bytes, CONTROL_BYTES, err);
    if (f->memory_fd < 0)
        return false;
    uint8_t *at = shared_map(f->memory_fd, f->map_bytes, true, err);
    if (!at)
        return false;
    f->control = (Control *)(void *)at;
    f->arena = at + CONTROL_BYTES;
    f->peers[f->rank] =
        (Peer){ .control = f->control, .arena = f->arena, .map_bytes = f->map_bytes };
    return true;
}

void memory_free(Fabric *f)
{
    for (uint32_t r = 0; f->peers && r < f->world; r++)
        shared_unmap(f->peers[r].control, f->peers[r].map_bytes);
    free(f->peers);
    f->peers = NULL;
    if (f->memory_fd >= 0)
        close(f->memory_fd);
    f->memory_fd = -1;
}

/* ---- handing over ---- */

static bool is_local(const Fabric *f, uint32_t rank)
{
    return strcmp(f->meeting.cards[rank].identity, f->card.identity) == 0;
}

/* Until fd can be read, the job has failed, or the deadline. */
static bool wait_readable(Fabric *f, int fd, int64_t deadline_ns)
{
    struct pollfd p[2] = { { .fd = fd, .events = POLLIN },
                           { .fd = f->fail_fd, .events = POLLIN } };
    while (!atomic_load(&f->failed)) {
        int ready = poll(p, 2, net_poll_ms(deadline_ns));
        if (ready > 0 && p[0].revents)
            return true;
        if (ready == 0 || (ready < 0 && errno != EINTR))
            return false;
    }
    return false;
}

static bool map_peer(Fabric *f, uint32_t rank, int fd, uint64_t bytes, Err *err)
{
    uint8_t *at = NULL;
    if (bytes < CONTROL_BYTES)
        err_set(err, "shared memory of another rank is not what it should be");
    else
        at = shared_map(fd, bytes, false, err);
    close(fd);
    if (!at)
        return false;
    f->peers[rank] = (Peer){ .control = (Control *)(void *)at,
                             .arena = at + CONTROL_BYTES,
                             .map_bytes = bytes };
    return true;
}

/* The note and the memory of a rank of this job; -1 with errno otherwise. */
static int take_memory(Fabric *f, int from, SharedNote *note)
{
    int fd = shared_take(from, note);
    if (fd < 0)
        return -1;
    bool ok = memcmp(note->token, f->meeting.token, sizeof note->token) == 0 &&
              note->rank < f->world && note->rank != f->rank && is_local(f, note->rank);
    if (ok)
        return fd;
    close(fd);
    errno = EPROTO;
    return -1;
}

static SharedNote own_note(const Fabric *f)
{
    SharedNote note = { .rank = f->rank, .bytes = f->map_bytes };
    memcpy(note.token, f->meeting.token, sizeof note.token);
    return note;
}

/* To each lower rank: our memory.  Its answer is read later. */
static bool call_lower(Fabric *f, int *sockets, int64_t deadline_ns, Err *err)
{
    const int64_t pause_ns = 5000000; /* its queue of callers is full */
    SharedNote note = own_note(f);
    for (uint32_t r = 0; r < f->rank; r++) {
        if (!is_local(f, r))
            continue;
        while ((sockets[r] = shared_connect(f->meeting.cards[r].unix_name)) < 0) {
            if (atomic_load(&f->failed))
                return fabric_ended(f, err);
            if (net_no_room() || net_now_ns() > deadline_ns)
                return err_set(err, "rank %u of this host cannot be reached: %s", r,
                               strerror(errno));
            net_sleep_ns(pause_ns);
        }
        if (!shared_give(sockets[r], f->memory_fd, &note))
            return fabric_lost(f, r, "takes no memory from its neighbours", err);
    }
    return true;
}

static bool answer_one(Fabric *f, uint32_t *left_n, Err *err)
{
    const int64_t dawdler_ns = 2000000000;
    SharedNote theirs, note = own_note(f);
    int caller = shared_accept(f->unix_listener);
    if (caller < 0)
        return !net_no_room() || err_set(err, "rank %u cannot take in its neighbours: %s",
                                         f->rank, strerror(errno));
    bool ok = true;
    int fd = -1;
    if (wait_readable(f, caller, net_now_ns() + dawdler_ns))
        fd = take_memory(f, caller, &theirs);
    if (fd >= 0 && f->peers[theirs.rank].control) {
        close(fd);
    } else if (fd >= 0) {
        ok = map_peer(f, theirs.rank, fd, theirs.bytes, err) &&
             (shared_give(caller, f->memory_fd, &note) ||
              fabric_lost(f, theirs.rank, "takes no memory from its neighbours", err));
        *left_n -= ok;
    }
    close(caller);
    return ok;
}

static bool answer_higher(Fabric *f, int64_t deadline_ns, Err *err)
{
    uint32_t left_n = 0;
    for (uint32_t r = f->rank + 1; r < f->world; r++)
        left_n += is_local(f, r);
    while (left_n > 0) {
        if (!wait_readable(f, f->unix_listener, deadline_ns))
            return atomic_load(&f->failed)
                       ? fabric_ended(f, err)
                       : err_set(err, "%u ranks of this host do not share their memory",
                                 left_n);
        if (!answer_one(f, &left_n, err))
            return false;
    }
    return true;
}

static bool hear_lower(Fabric *f, const int *sockets, int64_t deadline_ns, Err *err)
{
    for (uint32_t r = 0; r < f->rank; r++) {
        if (sockets[r] < 0)
            continue;
        SharedNote theirs = { .rank = NONE_U32 };
        int fd = -1;
        if (wait_readable(f, sockets[r], deadline_ns))
            fd = take_memory(f, sockets[r], &theirs);
        if (fd < 0 || theirs.rank != r) {
            if (fd >= 0)
                close(fd);
            return fabric_lost(f, r, "does not share its memory", err);
        }
        if (!map_peer(f, r, fd, theirs.bytes, err))
            return false;
    }
    return true;
}

bool memory_exchange(Fabric *f, Err *err)
{
    int64_t deadline_ns = silent_until_ns(f);
    int *sockets = mem_zero(f->world, sizeof *sockets);
    for (uint32_t r = 0; r < f->world; r++)
        sockets[r] = -1;
    bool ok = call_lower(f, sockets, deadline_ns, err) && answer_higher(f, deadline_ns, err) &&
              hear_lower(f, sockets, deadline_ns, err);
    for (uint32_t r = 0; r < f->world; r++)
        if (sockets[r] >= 0)
            close(sockets[r]);
    free(sockets);
    atomic_store(&f->mapped, ok);
    return ok;
}

/* ---- words ---- */

void word_step(_Atomic uint32_t *word, _Atomic uint32_t *sleepers)
{
    atomic_fetch_add(word, 1);
    if (atomic_load(sleepers) > 0)
        shared_wake(word);
}

void word_sleep(_Atomic uint32_t *word, _Atomic uint32_t *sleepers, uint32_t seen)
{
    atomic_fetch_add(sleepers, 1);
    if (atomic_load(word) == seen)
        shared_wait(word, seen, WAIT_NS);
    atomic_fetch_sub(sleepers, 1);
}

void memory_wake_all(Fabric *f)
{
    if (!atomic_load(&f->mapped))
        return;
    for (uint32_t r = 0; r < f->world; r++) {
        Control *c = f->peers[r].control;
        if (!c)
            continue;
        shared_wake(&c->bell);
        for (uint32_t lane = 0; lane < LANE_N; lane++)
            if (atomic_load(&c->lanes[lane].sleepers) > 0)
                shared_wake(&c->lanes[lane].word);
    }
}
