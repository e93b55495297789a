/*
 * fabric_tcp.c - lines between ranks of different hosts, and bytes over many lines
 * at once.
 *
 * A line belongs to a channel: a lane for collectives, (sender, receiver, tag) for
 * sends and receives; so what travels on it has one order, and lanes never wait for
 * each other.  It is opened at first use: one end calls the other's data port and
 * says who it is and for which channel, with the token of the job; the other end's
 * service thread answers with one byte and puts it into the table.  Whoever knows no
 * token is shown the door, and so is the oldest caller when too many stand there in
 * silence: one that has no answer yet calls again.
 *
 * A call never waits for a single line: it moves what can be moved on any of its
 * lines, in both directions, so that full socket buffers cannot block a pattern.
 */
#include "exec/fabric_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECES_MAX = 64, CALLER_NS = 2000000000 };

typedef struct LineHello {
    uint64_t magic;
    uint8_t token[MEET_TOKEN_BYTES];
    uint64_t channel;
    uint32_t from, to;
} LineHello;

#define LINE_MAGIC UINT64_C(0x656e696c6b636f6c) /* "lockline" */

_Static_assert(sizeof(LineHello) <= sizeof(((Caller *)0)->bytes), "a hello fits");

/* ---- the table ---- */

static void line_add(Fabric *f, uint32_t rank, uint64_t channel, int fd)
{
    pthread_mutex_lock(&f->mutex);
    GROW(f->lines, f->lines_n, f->lines_cap);
    f->lines[f->lines_n++] = (Line){ .channel = channel, .rank = rank, .fd = fd };
    pthread_mutex_unlock(&f->mutex);
}

static int line_find(Fabric *f, uint32_t rank, uint64_t channel)
{
    int fd = -1;
    pthread_mutex_lock(&f->mutex);
    for (uint32_t i = 0; i < f->lines_n && fd < 0; i++)
        if (f->lines[i].rank == rank && f->lines[i].channel == channel)
            fd = f->lines[i].fd;
    pthread_mutex_unlock(&f->mutex);
    return fd;
}

void lines_close(Fabric *f)
{
    for (uint32_t i = 0; i < f->lines_n; i++)
        close(f->lines[i].fd);
    free(f->lines);
    f->lines = NULL;
    f->lines_n = f->lines_cap = 0;
}

/* The other end's service thread has the line; false: shown out or not heard (errno), or the job
 * ended.  A rank that has stopped is noticed by its silence; the time limit is for what is none. */
static bool line_taken(Fabric *f, int fd)
{
    int64_t until_ns = silent_until_ns(f);
    for (;;) {
        uint8_t taken;
        ssize_t n = recv(fd, &taken, sizeof taken, MSG_DONTWAIT);
        if (n > 0)
            return true;
        if (n == 0)
            errno = ECONNRESET;
        if (n == 0 || (errno != EAGAIN && errno != EINTR) || atomic_load(&f->failed))
            return false;
        errno = ETIMEDOUT;
        if (net_now_ns() >= until_ns)
            return false;
        struct pollfd p[2] = { { .fd = fd, .events = POLLIN },
                               { .fd = f->fail_fd, .events = POLLIN } };
        poll(p, ARRAY_N(p), WAIT_NS / 1000000);
    }
}

/* Calls until the line is taken, for as long as a rank may be silent.  -1 and errno, or the job
 * has failed. */
static int call_until_taken(Fabric *f, const char *address, const char *port,
                            const LineHello *hello)
{
    const int64_t patience_ns = 5000000000, look_ns = 1000000;
    int64_t until_ns = silent_until_ns(f);
    for (;;) {
        int64_t deadline_ns = net_now_ns() + patience_ns;
        int fd = net_connect(address, port, deadline_ns);
        if (fd < 0 ||
            (net_send_all(fd, hello, sizeof *hello, deadline_ns) && line_taken(f, fd)))
            return fd;
        int why = errno;
        close(fd);
        errno = why;
        if (atomic_load(&f->failed) || net_now_ns() >= until_ns)
            return -1;
        net_sleep_ns(look_ns);
    }
}

static int line_call(Fabric *f, uint32_t rank, uint64_t channel, Err *err)
{
    const RankCard *c = &f->meeting.cards[rank];
    LineHello hello = { .magic = LINE_MAGIC, .channel = channel, .from = f->rank, .to = rank };
    memcpy(hello.token, f->meeting.token, sizeof hello.token);
    char port[NET_PORT_MAX], what[NET_HOST_MAX + 64];
    snprintf(port, sizeof port, "%u", c->data_port & 0xffffu);
    int fd = call_until_taken(f, c->address, port, &hello);
    if (fd >= 0) {
        line_add(f, rank, channel, fd);
        return fd;
    }
    snprintf(what, sizeof what, "cannot be reached at %s port %s: %s", c->address, port,
             strerror(errno));
    fabric_lost(f, rank, what, err);
    return -1;
}

int line_get(Fabric *f, uint32_t rank, uint64_t channel, bool calls, Err *err)
{
    int fd = line_find(f, rank, channel);
    return fd >= 0 || !calls ? fd : line_call(f, rank, channel, err);
}

/* ---- callers at the data port (service thread) ---- */

static void caller_leaves(Service *s, uint32_t i)
{
    s->callers_n--;
    memmove(&s->callers[i], &s->callers[i + 1], (s->callers_n - i) * sizeof s->callers[0]);
}

/* True when it is dealt with, one way or the other. */
static bool caller_hear(Fabric *f, Caller *c)
{
    LineHello hello;
    ssize_t n = recv(c->fd, c->bytes + c->got, sizeof hello - c->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0)
        c->got += (size_t)n;
    if (n > 0 && c->got < sizeof hello)
        return false;
    memcpy(&hello, c->bytes, sizeof hello);
    bool ok = n > 0 && hello.magic == LINE_MAGIC && hello.from < f->world &&
              hello.to == f->rank &&
              memcmp(hello.token, f->meeting.token, sizeof hello.token) == 0;
    /* The answer goes first: once in the table, the line is its channel's. */
    const uint8_t taken = 1;
    if (ok && send(c->fd, &taken, sizeof taken, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof taken)
        line_add(f, hello.from, hello.channel, c->fd);
    else
        close(c->fd);
    return true;
}

/* Most have their hello with them: only those who have not take up room, the oldest least.
 * A few at a time, so that those who stand there are heard before they are the oldest. */
void callers_take(Fabric *f)
{
    Service *s = &f->service;
    for (uint32_t taken_n = 0; taken_n < CALLERS_MAX / 2; taken_n++) {
        Caller c = { .fd = net_accept(f->data_listener), .until_ns = net_now_ns() + CALLER_NS };
        if (c.fd < 0 && net_no_room())
            fabric_fail(f, "rank %u on '%s' cannot take in its peers: %s", f->rank,
                        f->card.host, strerror(errno));
        if (c.fd < 0)
            return;
        if (caller_hear(f, &c))
            continue;
        if (s->callers_n == CALLERS_MAX) {
            close(s->callers[0].fd);
            caller_leaves(s, 0);
        }
        s->callers[s->callers_n++] = c;
    }
}

void callers_hear(Fabric *f, const struct pollfd *polls)
{
    Service *s = &f->service;
    int64_t now_ns = net_now_ns();
    for (uint32_t i = s->callers_n; i-- > 0;) {
        Caller *c = &s->callers[i];
        bool over = polls[i].revents && caller_hear(f, c);
        if (!over && now_ns >= c->until_ns) {
            close(c->fd);
            over = true;
        }
        if (over)
            caller_leaves(s, i);
    }
}

/* ---- streams ---- */

Stream *lane_streams(LaneState *l, uint32_t n)
{
    if (n > l->streams_n) {
        l->streams = mem_resize(l->streams, n, sizeof *l->streams);
        memset(l->streams + l->streams_n, 0, (n - l->streams_n) * sizeof *l->streams);
        l->streams_n = n;
    }
    for (uint32_t i = 0; i < n; i++)
        stream_clear(&l->streams[i], NONE_U32, -1);
    return l->streams;
}

void stream_clear(Stream *s, uint32_t rank, int fd)
{
    s->rank = rank;
    s->fd = fd;
    s->out_n = s->in_n = s->out_at = s->in_at = 0;
}

void stream_free(Stream *s)
{
    free(s->out);
    free(s->in);
    *s = (Stream){ 0 };
}

/* iovec has no const; sending does not write. */
static void *unconst(const void *p)
{
    union {
        const void *from;
        void *to;
    } u = { .from = p };
    return u.to;
}

void stream_send(Stream *s, const void *bytes, uint64_t n)
{
    if (n == 0)
        return;
    GROW(s->out, s->out_n, s->out_cap);
    s->out[s->out_n++] = (struct iovec){ .iov_base = unconst(bytes), .iov_len = (size_t)n };
}

void stream_recv(Stream *s, void *bytes, uint64_t n)
{
    if (n == 0)
        return;
    GROW(s->in, s->in_n, s->in_cap);
    s->in[s->in_n++] = (struct iovec){ .iov_base = bytes, .iov_len = (size_t)n };
}

bool stream_done(const Stream *s)
{
    return s->out_at == s->out_n && s->in_at == s->in_n;
}

/* n bytes of the list are done. */
static void pieces_done(struct iovec *list, uint32_t *at, size_t n)
{
    while (n > 0) {
        struct iovec *p = &list[*at];
        size_t part = n < p->iov_len ? n : p->iov_len;
        p->iov_base = (uint8_t *)p->iov_base + part;
        p->iov_len -= part;
        n -= part;
        if (p->iov_len == 0)
            (*at)++;
    }
}

/* One system call in each direction at a time; false: broken. */
static bool move(int fd, struct iovec *list, uint32_t n, uint32_t *at, bool out)
{
    while (*at < n) {
        struct msghdr m = { .msg_iov = list + *at };
        m.msg_iovlen = (size_t)min_u64(n - *at, PIECES_MAX);
        ssize_t moved =
            out ? sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) : recvmsg(fd, &m, MSG_DONTWAIT);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0 && errno == EAGAIN)
            return true;
        if (moved <= 0)
            return false;
        pieces_done(list, at, (size_t)moved);
    }
    return true;
}

bool stream_step(Stream *s)
{
    return move(s->fd, s->out, s->out_n, &s->out_at, true) &&
           move(s->fd, s->in, s->in_n, &s->in_at, false);
}

bool streams_wait(Fabric *f, const Stream *const *streams, uint32_t n, int ms, Err *err)
{
    struct pollfd few[33], *p = n < ARRAY_N(few) ? few : mem_zero((size_t)n + 1, sizeof *p);
    nfds_t p_n = 0;
    p[p_n++] = (struct pollfd){ .fd = f->fail_fd, .events = POLLIN };
    for (uint32_t i = 0; i < n; i++) {
        const Stream *s = streams[i];
        int events = (s->out_at < s->out_n ? POLLOUT : 0) | (s->in_at < s->in_n ? POLLIN : 0);
        if (events)
            p[p_n++] = (struct pollfd){ .fd = s->fd, .events = (short)events };
    }
    poll(p, p_n, ms);
    if (p != few)
        free(p);
    return !atomic_load(&f->failed) || fabric_ended(f, err);
}

bool streams_run(Fabric *f, Stream *streams, uint32_t n, Err *err)
{
    const Stream **busy = mem_zero(n, sizeof(*busy));
    uint32_t busy_n;
    bool ok = true;
    do {
        busy_n = 0;
        for (uint32_t i = 0; i < n && ok; i++) {
            if (stream_done(&streams[i]))
                continue;
            if (!stream_step(&streams[i]))
                ok = fabric_lost(f, streams[i].rank,
                                 "has closed its connection in the middle of a call", err);
            else if (!stream_done(&streams[i]))
                busy[busy_n++] = &streams[i];
        }
        if (ok && busy_n > 0)
            watch_awaits(f, busy[0]->rank);
        ok = ok && (busy_n == 0 || streams_wait(f, busy, busy_n, WAIT_NS / 1000000, err));
    } while (ok && busy_n > 0);
    free(busy);
    return ok;
}
