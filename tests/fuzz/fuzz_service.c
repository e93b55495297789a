/*
 * fuzz_service.c - any bytes from ranks that have been welcomed, and from whoever connects
 * to the data port: never a crash, never a wait, and one whole sentence when the job ends.
 *
 * The input's first byte chooses which rank is tried (bit 0) and who speaks: a rank on its
 * control connection, else a caller at the data port, in pieces of a length that it chooses
 * as well.  The input is laid over what a right peer would say (exclusive or).
 */
#include "exec/fabric_parts.h"

#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { WORLD = 3, SAID_MAX = 4096, TOKEN = 9 };

/* Of exec/fabric_tcp.c, as a caller sends it. */
typedef struct Hello {
    uint64_t magic;
    uint8_t token[MEET_TOKEN_BYTES];
    uint64_t channel;
    uint32_t from, to;
} Hello;

typedef struct Said {
    uint8_t bytes[SAID_MAX];
    size_t n;
} Said;

static void say(Said *s, const void *bytes, size_t n)
{
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
}

static void say_note(Said *s, NoteType type, const char *text)
{
    Note note = { .magic = NOTE_MAGIC, .type = type, .from = 1 };
    note.bytes = (uint32_t)strlen(text);
    say(s, &note, sizeof note);
    say(s, text, note.bytes);
}

static Said said_by(bool caller, uint32_t to, const uint8_t *data, size_t n)
{
    Said s = { .n = 0 };
    Hello hello = { .magic = UINT64_C(0x656e696c6b636f6c), .channel = 5, .from = 1, .to = to };
    memset(hello.token, TOKEN, sizeof hello.token);
    if (caller) {
        say(&s, &hello, sizeof hello);
    } else {
        say_note(&s, NOTE_BEAT, "");
        say_note(&s, NOTE_FAIL, "why");
        say_note(&s, NOTE_BYE, "");
    }
    n = min_u64(n, sizeof s.bytes);
    for (size_t i = 0; i < n; i++)
        s.bytes[i] ^= data[i];
    s.n = max_u64(s.n, n);
    return s;
}

/* A fabric as it is behind the rendezvous, but for memory; peer[i]: where its wires end. */
static bool open_fabric(Fabric *f, uint32_t rank, RankCard *cards, int *control, int *peer)
{
    *f = (Fabric){ .rank = rank, .world = WORLD, .timeout_s = 5, .data_listener = -1 };
    pthread_mutex_init(&f->mutex, NULL);
    f->fail_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->service.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->meeting = (Meeting){ .cards = cards, .control = control };
    f->meeting.control_n = rank == 0 ? WORLD : 1;
    memset(f->meeting.token, TOKEN, sizeof f->meeting.token);
    uint16_t port = 0;
    f->data_listener = net_listen("127.0.0.1", "0", &port);
    f->card.data_port = port;
    bool ok = f->data_listener >= 0;
    for (uint32_t i = 0; i < f->meeting.control_n; i++) {
        int pair[2] = { -1, -1 };
        bool wired = rank > 0 || i > 0;
        ok = ok && (!wired || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        control[i] = pair[0];
        peer[i] = pair[1];
        snprintf(cards[i].host, sizeof cards[i].host, "host%u", i);
        snprintf(cards[i].identity, sizeof cards[i].identity, "another host");
    }
    return ok;
}

static void send_pieces(int fd, const Said *s, size_t piece)
{
    for (size_t i = 0; fd >= 0 && i < s->n; i += piece)
        if (send(fd, s->bytes + i, min_u64(piece, s->n - i), MSG_NOSIGNAL) < 0)
            return;
}

/* Connects, speaks, and hangs up before or after it was heard. */
static void call(const Fabric *f, const Said *s, size_t piece)
{
    char port[16];
    snprintf(port, sizeof port, "%u", f->card.data_port);
    int fd = net_connect("127.0.0.1", port, net_now_ns() + 1000000000);
    send_pieces(fd, s, piece);
    if (fd >= 0)
        close(fd);
}

static void check_end(Fabric *f)
{
    const char *why = fabric_failure(f);
    ASSERT(!why || memchr(why, 0, FAIL_TEXT_MAX));
    for (uint32_t i = 0; i < f->lines_n; i++)
        ASSERT(f->lines[i].rank < WORLD && f->lines[i].fd >= 0);
}

static void close_fabric(Fabric *f, const int *control, const int *peer)
{
    for (uint32_t i = 0; i < f->meeting.control_n; i++) {
        if (control[i] >= 0)
            close(control[i]); /* service_start has not taken it */
        if (peer[i] >= 0)
            close(peer[i]);
    }
    lines_close(f);
    if (f->data_listener >= 0)
        close(f->data_listener);
    close(f->fail_fd);
    close(f->service.wake_fd);
    pthread_mutex_destroy(&f->mutex);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    Fabric f;
    RankCard cards[WORLD] = { { .rank = 0 }, { .rank = 1 }, { .rank = 2 } };
    int control[WORLD] = { -1, -1, -1 }, peer[WORLD] = { -1, -1, -1 };
    uint32_t rank = data[0] & 1;
    bool caller = (data[0] & 2) != 0;
    size_t piece = 1 + (size_t)data[1] * 8;
    Said said = said_by(caller, rank, data + 2, n - 2);
    Err err = { 0 };
    if (open_fabric(&f, rank, cards, control, peer) && service_start(&f, &err)) {
        uint32_t first = rank == 0 ? 1 : 0;
        if (caller)
            call(&f, &said, piece);
        else
            send_pieces(peer[first], &said, piece);
        for (uint32_t i = 0; i < WORLD; i++) /* they hang up; what was said is still heard */
            if (peer[i] >= 0)
                shutdown(peer[i], SHUT_WR);
        service_stop(&f);
        check_end(&f);
    }
    close_fabric(&f, control, peer);
    return 0;
}
