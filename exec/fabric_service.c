/*
 * fabric_service.c - the one thread of the fabric: it keeps the job together.
 *
 * Every rank is wired to rank 0.  Both ends say that they live (heart-beats), so
 * that a stopped process is noticed by its silence and a dead one by the end of its
 * connection.  Rank 0 passes on the first failure it learns of.  The thread never
 * waits for anybody: what a full connection does not take now is dropped (beats) or
 * kept (all else).
 *
 * The thread also takes in peers that call at the data port (fabric_tcp.c).
 */
#include "exec/fabric_parts.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- speaking ---- */

static void wire_say(Fabric *f, Wire *w, NoteType type, const char *text)
{
    size_t n = strlen(text);
    Note note = { .magic = NOTE_MAGIC, .type = type, .from = f->rank, .bytes = (uint32_t)n };
    if (w->fd < 0 || w->out_n + sizeof note + n > sizeof w->out)
        return;
    memcpy(w->out + w->out_n, &note, sizeof note);
    memcpy(w->out + w->out_n + sizeof note, text, n);
    w->out_n += sizeof note + n;
}

static void wire_flush(Wire *w)
{
    while (w->fd >= 0 && w->out_n > 0) {
        ssize_t n = send(w->fd, w->out, w->out_n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0)
            return; /* an error shows when reading */
        w->out_n -= (size_t)n;
        memmove(w->out, w->out + n, w->out_n);
    }
}

static void wire_cut(Wire *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->process_fd >= 0)
        close(w->process_fd);
    w->fd = w->process_fd = -1;
}

/* ---- hearing ---- */

static void wire_ended(Fabric *f, Wire *w, const char *how)
{
    const RankCard *c = &f->meeting.cards[w->rank];
    wire_cut(w);
    if (!w->said_bye)
        fabric_fail(f, "rank %u on '%s' (process %u) %s", w->rank, c->host, c->pid, how);
}

static void wire_note(Fabric *f, Wire *w, const Note *note, const char *text)
{
    if (note->type == NOTE_FAIL) {
        fabric_fail(f, "%s", text);
    } else if (note->type == NOTE_BYE) {
        if (f->rank == 0)
            wire_say(f, w, NOTE_BYE, "");
        w->said_bye = true;
    } else if (note->type == NOTE_BEAT) {
        if (f->rank == 0)
            watch_hear(f, w->rank, text);
    } else {
        wire_ended(f, w, "sends what nobody understands");
    }
}

static void wire_parse(Fabric *f, Wire *w)
{
    size_t at = 0;
    Note note;
    while (w->fd >= 0 && w->in_n - at >= sizeof note) {
        char text[NOTE_BYTES_MAX + 1];
        memcpy(&note, w->in + at, sizeof note);
        if (note.magic != NOTE_MAGIC || note.bytes > NOTE_BYTES_MAX) {
            wire_ended(f, w, "sends what nobody understands");
            return;
        }
        if (w->in_n - at < sizeof note + note.bytes)
            break;
        memcpy(text, w->in + at + sizeof note, note.bytes);
        text[note.bytes] = '\0';
        at += sizeof note + note.bytes;
        wire_note(f, w, &note, text);
    }
    w->in_n -= at;
    memmove(w->in, w->in + at, w->in_n);
}

static void wire_hear(Fabric *f, Wire *w)
{
    while (w->fd >= 0) {
        ssize_t n = recv(w->fd, w->in + w->in_n, sizeof w->in - w->in_n, MSG_DONTWAIT);
        if (n > 0) {
            w->heard_ns = net_now_ns();
            w->in_n += (size_t)n;
            wire_parse(f, w);
        } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        } else {
            wire_ended(f, w, "died: its connection ended without a goodbye");
        }
    }
}

/* ---- the loop ---- */

/* A rank that says nothing at all, not even that it lives. */
static void check_silence(Fabric *f, int64_t now_ns)
{
    for (uint32_t i = 0; i < f->service.wires_n; i++) {
        Wire *w = &f->service.wires[i];
        double silent_s = (double)(now_ns - w->heard_ns) * 1e-9;
        if (w->fd < 0 || w->said_bye || silent_s < f->timeout_s)
            continue;
        const RankCard *c = &f->meeting.cards[w->rank];
        fabric_fail(f,
                    "rank %u on '%s' (process %u) has been silent for %.3g s: stopped, or its "
                    "host is unreachable",
                    w->rank, c->host, c->pid, silent_s);
    }
}

static void tell_failure(Fabric *f)
{
    Service *s = &f->service;
    if (!atomic_load(&f->failed) || atomic_load(&s->told))
        return;
    for (uint32_t i = 0; i < s->wires_n; i++) {
        wire_say(f, &s->wires[i], NOTE_FAIL, f->failure);
        wire_flush(&s->wires[i]);
    }
    atomic_store(&s->told, true);
}

static bool all_gone(const Service *s)
{
    for (uint32_t i = 0; i < s->wires_n; i++)
        if (s->wires[i].fd >= 0 && !s->wires[i].said_bye)
            return false;
    return true;
}

static bool all_flushed(const Service *s)
{
    for (uint32_t i = 0; i < s->wires_n; i++)
        if (s->wires[i].fd >= 0 && s->wires[i].out_n > 0)
            return false;
    return true;
}

static size_t fill_polls(Fabric *f, struct pollfd *p)
{
    Service *s = &f->service;
    size_t n = 0;
    p[n++] = (struct pollfd){ .fd = s->wake_fd, .events = POLLIN };
    p[n++] = (struct pollfd){ .fd = f->data_listener, .events = POLLIN };
    for (uint32_t i = 0; i < s->callers_n; i++)
        p[n++] = (struct pollfd){ .fd = s->callers[i].fd, .events = POLLIN };
    for (uint32_t i = 0; i < s->wires_n; i++) {
        const Wire *w = &s->wires[i];
        short events = w->out_n > 0 ? POLLIN | POLLOUT : POLLIN;
        p[n++] = (struct pollfd){ .fd = w->fd, .events = events };
        p[n++] = (struct pollfd){ .fd = w->process_fd, .events = POLLIN };
    }
    return n;
}

static void serve(Fabric *f, struct pollfd *p)
{
    Service *s = &f->service;
    uint64_t count;
    if (p[0].revents && read(s->wake_fd, &count, sizeof count) < 0)
        count = 0;
    struct pollfd *wires = p + 2 + s->callers_n;
    for (uint32_t i = 0; i < s->wires_n; i++) {
        Wire *w = &s->wires[i];
        if (wires[2 * i].revents || wires[2 * i + 1].revents)
            wire_hear(f, w);
        if (wires[2 * i + 1].revents && w->fd >= 0)
            wire_ended(f, w, "died");
        wire_flush(w);
    }
    callers_hear(f, p + 2);
    if (p[1].revents)
        callers_take(f);
}

static void beat(Fabric *f)
{
    Service *s = &f->service;
    char sign[SIGN_TEXT_MAX];
    watch_sign(f, sign);
    for (uint32_t i = 0; i < s->wires_n; i++) {
        if (s->wires[i].out_n == 0)
            wire_say(f, &s->wires[i], NOTE_BEAT, f->rank > 0 ? sign : "");
        wire_flush(&s->wires[i]);
    }
}

/* Says goodbye when asked to stop; true when all is said. */
static bool leaving(Fabric *f, int64_t *since_ns, int64_t now_ns)
{
    const int64_t patience_ns = 1000000000;
    Service *s = &f->service;
    if (!atomic_load(&s->closing))
        return false;
    if (*since_ns == 0) {
        *since_ns = now_ns;
        for (uint32_t i = 0; i < s->wires_n; i++)
            if (f->rank > 0 || atomic_load(&f->failed))
                wire_say(f, &s->wires[i], NOTE_BYE, "");
    }
    bool tired = now_ns - *since_ns > patience_ns;
    if (atomic_load(&f->failed))
        return all_flushed(s) || tired;
    /* Rank 0 holds the job together until the last has left. */
    return (all_gone(s) && all_flushed(s)) || (f->rank > 0 && tired);
}

/* To be silent, and still. */
static void start_anew(Service *s, int64_t now_ns)
{
    for (uint32_t i = 0; i < s->wires_n; i++)
        s->wires[i].heard_ns = now_ns;
    s->moved_ns = now_ns;
}

static void *service_run(void *user)
{
    Fabric *f = user;
    Service *s = &f->service;
    struct pollfd *polls = mem_zero(2 + CALLERS_MAX + 2 * (size_t)s->wires_n, sizeof *polls);
    int64_t leaving_ns = 0, last_ns = net_now_ns(), beat_at_ns = last_ns;
    for (;;) {
        int64_t now_ns = net_now_ns();
        /* Asleep for long: it was this process that was stopped, not the others. */
        if (now_ns - last_ns > 4 * s->beat_ns + 200000000)
            start_anew(s, now_ns);
        last_ns = now_ns;
        if (now_ns >= beat_at_ns) {
            beat(f);
            if (f->rank == 0)
                watch_look(f, now_ns);
            beat_at_ns = now_ns + s->beat_ns;
        }
        check_silence(f, now_ns);
        tell_failure(f);
        if (leaving(f, &leaving_ns, now_ns))
            break;
        int wait_ms = leaving_ns ? 10 : net_poll_ms(beat_at_ns);
        if (poll(polls, (nfds_t)fill_polls(f, polls), wait_ms) > 0)
            serve(f, polls);
    }
    free(polls);
    return NULL;
}

/* ---- start and stop ---- */

static void wire_make(Fabric *f, Wire *w, uint32_t rank, int fd)
{
    *w = (Wire){ .rank = rank, .fd = fd, .process_fd = -1, .heard_ns = net_now_ns() };
    if (strcmp(f->meeting.cards[rank].identity, f->card.identity) == 0)
        w->process_fd = shared_watch_process(f->meeting.cards[rank].pid);
}

bool service_start(Fabric *f, Err *err)
{
    const double slowest_s = 1.0;
    Service *s = &f->service;
    double beat_s = f->timeout_s / 5 < slowest_s ? f->timeout_s / 5 : slowest_s;
    s->beat_ns = (int64_t)(beat_s * 1e9);
    s->wires = mem_zero(f->world, sizeof *s->wires);
    s->signs = mem_zero(f->world, sizeof *s->signs);
    s->marks = mem_zero(f->world, sizeof *s->marks);
    for (uint32_t r = 0; r < f->world; r++)
        s->signs[r].awaits = NONE_U32;
    for (uint32_t i = 0; i < f->meeting.control_n; i++) {
        int fd = f->meeting.control[i];
        f->meeting.control[i] = -1; /* the wire owns it now */
        if (fd >= 0)
            wire_make(f, &s->wires[s->wires_n++], f->rank == 0 ? i : 0, fd);
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->runs = pthread_create(&s->thread, NULL, service_run, f) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s->runs || err_set(err, "cannot start a thread");
}

void service_stop(Fabric *f)
{
    Service *s = &f->service;
    if (s->runs) {
        atomic_store(&s->closing, true);
        service_wake(f);
        pthread_join(s->thread, NULL);
        s->runs = false;
    }
    for (uint32_t i = 0; i < s->wires_n; i++)
        wire_cut(&s->wires[i]);
    for (uint32_t i = 0; i < s->callers_n; i++)
        close(s->callers[i].fd);
    s->callers_n = 0;
    free(s->wires);
    free(s->signs);
    free(s->marks);
    s->wires = NULL;
    s->signs = s->marks = NULL;
    s->wires_n = 0;
}
