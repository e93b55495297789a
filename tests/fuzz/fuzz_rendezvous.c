/*
 * fuzz_rendezvous.c - any bytes from who says to be a rank, or rank 0: never a crash,
 * never a wait beyond the time-out, and what is believed is whole.
 *
 * The input is laid over what a right peer would say (exclusive or), so that zeros are a
 * right peer and each changed byte gets as far as it can.  Its first byte chooses who is
 * tried: rank 0, or a rank that comes.
 */
#include "exec/rendezvous_parts.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { WORLD = 2, SAID_MAX = 4096 };

typedef struct Peer {
    uint8_t said[SAID_MAX];
    size_t said_n;
    int listener;
} Peer;

static void say(Peer *p, const void *bytes, size_t n)
{
    memcpy(p->said + p->said_n, bytes, n);
    p->said_n += n;
}

/* More input than there is to lay it over follows behind. */
static void overlay(Peer *p, const uint8_t *data, size_t n)
{
    n = min_u64(n, sizeof p->said);
    for (size_t i = 0; i < n; i++)
        p->said[i] ^= data[i];
    p->said_n = max_u64(p->said_n, n);
}

static RankCard card_of(uint32_t rank)
{
    RankCard c = { .rank = rank, .world = WORLD, .version = MEET_VERSION, .job = 7 };
    rendezvous_introduce(&c);
    return c;
}

static RankPlace place_of(uint32_t rank, uint16_t port, char *text, size_t cap)
{
    snprintf(text, cap, "tcp://127.0.0.1:%u", port);
    return (RankPlace){
        .rank = rank, .world = WORLD, .timeout_s = 0.02, .job = 7, .rendezvous = text
    };
}

static void meet(uint32_t rank, uint16_t port)
{
    char text[64];
    RankPlace place = place_of(rank, port, text, sizeof text);
    RankCard mine = card_of(rank);
    Meeting m;
    Err err = { 0 };
    bool ok = rendezvous_meet(&m, &place, &mine, &err);
    ASSERT(ok != err.set);
    for (uint32_t r = 0; ok && r < WORLD; r++) {
        const RankCard *c = &m.cards[r];
        ASSERT(memchr(c->address, 0, sizeof c->address) && memchr(c->host, 0, sizeof c->host));
        ASSERT(memchr(c->identity, 0, sizeof c->identity));
        ASSERT(memchr(c->unix_name, 0, sizeof c->unix_name));
    }
    if (ok)
        meeting_free(&m);
}

/* A guest has come and said it all before rank 0 looks. */
static void try_rank0(const uint8_t *data, size_t n)
{
    Peer p = { .listener = -1 };
    uint16_t port = 0;
    Hello hello = { .magic = HELLO_MAGIC, .card = card_of(1) };
    say(&p, &hello, sizeof hello);
    overlay(&p, data, n);
    int listener = net_listen("127.0.0.1", "0", &port);
    char text[16];
    snprintf(text, sizeof text, "%u", port);
    int64_t until_ns = net_now_ns() + 1000000000;
    int guest = listener >= 0 ? net_connect("127.0.0.1", text, until_ns) : -1;
    if (guest >= 0 && net_send_all(guest, p.said, p.said_n, until_ns)) {
        rendezvous_inherit(listener, port);
        meet(0, port); /* closes the listener */
    }
    if (guest >= 0)
        close(guest);
}

/* Answers the first who calls. */
static void *answer(void *user)
{
    Peer *p = user;
    Hello hello;
    int64_t until_ns = net_now_ns() + 1000000000;
    int fd = -1;
    while (fd < 0 && net_now_ns() < until_ns)
        fd = net_accept(p->listener);
    if (fd < 0)
        return NULL;
    if (net_recv_all(fd, &hello, sizeof hello, until_ns))
        net_send_all(fd, p->said, p->said_n, until_ns);
    close(fd);
    return NULL;
}

static void try_guest(const uint8_t *data, size_t n)
{
    Peer p = { .said_n = 0 };
    uint16_t port = 0;
    pthread_t thread;
    Note welcome = { .magic = NOTE_MAGIC, .type = NOTE_WELCOME };
    Note table = { .magic = NOTE_MAGIC, .type = NOTE_TABLE };
    uint8_t token[MEET_TOKEN_BYTES] = { 1 };
    RankCard cards[WORLD] = { card_of(0), card_of(1) };
    table.bytes = sizeof token + sizeof cards;
    say(&p, &welcome, sizeof welcome);
    say(&p, &table, sizeof table);
    say(&p, token, sizeof token);
    say(&p, cards, sizeof cards);
    overlay(&p, data, n);
    p.listener = net_listen("127.0.0.1", "0", &port);
    if (p.listener < 0)
        return;
    if (pthread_create(&thread, NULL, answer, &p) == 0) {
        meet(1, port);
        pthread_join(thread, NULL);
    }
    close(p.listener);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    if (data[0] & 1)
        try_guest(data + 1, n - 1);
    else
        try_rank0(data + 1, n - 1);
    return 0;
}
