/*
 * rendezvous_hub.c - rank 0 waits for the others.
 *
 * One poll loop over the listener, the guests whose hello is not whole yet, and
 * the ranks that are in.  Guests are many and short: 2 s for a hello, the oldest
 * makes room when there are too many.
 */
#include "exec/rendezvous_parts.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GUESTS_MAX = 256, GUEST_NS = 2000000000, NAMED_MAX = 16 };

typedef struct Guest {
    int fd;
    size_t got;
    int64_t until_ns;
    Hello hello;
} Guest;

typedef struct Hub {
    const RankPlace *place;
    const Spot *spot;
    Meeting *meeting;
    int listener;
    uint16_t port;
    uint32_t came_n; /* rank 0 included */
    uint32_t guests_n;
    Guest guests[GUESTS_MAX]; /* oldest first */
    struct pollfd *polls;     /* listener, guests, ranks */
} Hub;

/* ---- listening ---- */

static int inherited_listener = -1; /* rank 0's, until it takes it */
static uint16_t inherited_port;     /* 0: none was inherited */

void rendezvous_inherit(int listener, uint16_t port)
{
    inherited_listener = listener;
    inherited_port = port;
}

void hub_leaves(void)
{
    if (inherited_listener >= 0)
        close(inherited_listener);
    inherited_listener = -1;
}

bool hub_was_there(const Spot *spot)
{
    return !spot->path && inherited_port > 0 && atoi(spot->port) == inherited_port;
}

static bool hub_listen(Hub *h, Err *err)
{
    const Spot *s = h->spot;
    if (hub_was_there(s) && inherited_listener >= 0) {
        h->listener = inherited_listener;
        h->port = inherited_port;
        inherited_listener = -1;
        return true;
    }
    h->listener = net_listen(s->path ? NULL : s->host, s->path ? "0" : s->port, &h->port);
    /* The name may belong to a router in front of this machine. */
    if (h->listener < 0 && errno == EADDRNOTAVAIL)
        h->listener = net_listen(NULL, s->port, &h->port);
    if (h->listener >= 0)
        return true;
    if (errno == EADDRINUSE)
        return err_set(err, "port %s of '%s' is taken by another program: choose another port",
                       s->port, s->host);
    return err_set(err, "cannot listen at '%s': %s", s->text,
                   errno == EHOSTUNREACH ? "no such host" : strerror(errno));
}

static void write_addresses(FILE *file)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
        if ((family != AF_INET && family != AF_INET6) || i->ifa_flags & IFF_LOOPBACK)
            continue;
        socklen_t n =
            family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        char text[NET_HOST_MAX];
        if (getnameinfo(i->ifa_addr, n, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
            fprintf(file, "%s\n", text);
    }
    freeifaddrs(list);
}

/* A file that begins so: this job's, or one whose job was killed before it could take it away. */
static bool is_meeting_file(const char *path, const char *text)
{
    struct stat info;
    char line[512] = "";
    size_t n = strlen(text);
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    FILE *file = fopen(path, "re");
    ASSERT(n < sizeof line);
    size_t got = file ? fread(line, 1, n, file) : 0;
    if (file)
        fclose(file);
    return got == n && memcmp(line, text, n) == 0;
}

/* The first lines, by which it is known to be this job's. */
static void file_head(const Hub *h, char text[400])
{
    snprintf(text, 400, "%s\n%u\n%.250s\n", MEET_FILE_TITLE, h->port,
             h->meeting->cards[0].identity);
}

static void hub_take_file_away(const Hub *h)
{
    char head[400];
    file_head(h, head);
    if (is_meeting_file(h->spot->path, head))
        unlink(h->spot->path);
}

/* Whole or not at all: readers must never see half of it. */
static bool hub_write_file(const Hub *h, Err *err)
{
    char draft[4096], head[400];
    struct stat info;
    bool there = lstat(h->spot->path, &info) == 0;
    if (there && !(S_ISREG(info.st_mode) && info.st_size == 0) &&
        !is_meeting_file(h->spot->path, MEET_FILE_TITLE "\n"))
        return err_set(err,
                       "'%s' is there and no rendezvous file of lockstep: a path is expected "
                       "where nothing is yet, or an empty file",
                       h->spot->path);
    file_head(h, head);
    int n = snprintf(draft, sizeof draft, "%s.%ld", h->spot->path, (long)getpid());
    FILE *file = n < (int)sizeof draft ? fopen(draft, "we") : NULL;
    if (!file)
        return err_set(err, "cannot write '%s': %s", h->spot->path, strerror(errno));
    fputs(head, file);
    write_addresses(file);
    bool ok = fclose(file) == 0 && rename(draft, h->spot->path) == 0;
    if (!ok) {
        err_set(err, "cannot write '%s': %s", h->spot->path, strerror(errno));
        unlink(draft);
    }
    return ok;
}

/* ---- answers ---- */

static void say(int fd, NoteType type, const void *bytes, size_t n)
{
    Note note = { .magic = NOTE_MAGIC, .type = type, .bytes = (uint32_t)n };
    int64_t deadline_ns = net_now_ns() + GUEST_NS;
    if (net_send_all(fd, &note, sizeof note, deadline_ns))
        net_send_all(fd, bytes, n, deadline_ns);
}

static void say_text(int fd, NoteType type, const char *text)
{
    size_t n = strlen(text);
    say(fd, type, text, n < NOTE_BYTES_MAX ? n : NOTE_BYTES_MAX);
}

/* Tells all who are in why it will not be. */
static bool hub_refuse_all(Hub *h, const Err *err)
{
    for (uint32_t r = 1; r < h->place->world; r++)
        if (h->meeting->control[r] >= 0)
            say_text(h->meeting->control[r], NOTE_REFUSED, err->text);
    return false;
}

/* ---- guests ---- */

static void guest_leaves(Hub *h, uint32_t g)
{
    h->guests_n--;
    memmove(&h->guests[g], &h->guests[g + 1], (h->guests_n - g) * sizeof h->guests[0]);
}

static void guest_is_shown_out(Hub *h, uint32_t g)
{
    close(h->guests[g].fd);
    guest_leaves(h, g);
}

static bool take_guests(Hub *h, Err *err)
{
    for (;;) {
        int fd = net_accept(h->listener);
        if (fd < 0)
            return !net_no_room() ||
                   err_set(err, "rank 0 cannot take in more ranks: %s", strerror(errno));
        if (h->guests_n == GUESTS_MAX)
            guest_is_shown_out(h, 0);
        Guest *g = &h->guests[h->guests_n++];
        g->fd = fd;
        g->got = 0;
        g->until_ns = net_now_ns() + GUEST_NS;
    }
}

/* The card of a guest of this job: may it come in?  False ends the rendezvous. */
static bool check_card(const Hub *h, const RankCard *c, Err *err)
{
    uint32_t world = h->place->world;
    if (c->version != MEET_VERSION)
        return err_set(err, "rank %u on '%s' speaks version %u of the protocol, rank 0 %u",
                       c->rank, c->host, c->version, MEET_VERSION);
    if (c->world != world)
        return err_set(err, "rank %u on '%s' counts %u ranks, rank 0 counts %u", c->rank,
                       c->host, c->world, world);
    if (c->rank >= world)
        return err_set(err, "a process on '%s' says it is rank %u of %u", c->host, c->rank,
                       world);
    const RankCard *same = &h->meeting->cards[c->rank];
    if (c->rank == 0 || h->meeting->control[c->rank] >= 0)
        return err_set(err,
                       "two processes say they are rank %u: process %u on '%s' and %u on '%s'",
                       c->rank, same->pid, same->host, c->pid, c->host);
    return true;
}

static bool ended_early(const RankCard *c, Err *err)
{
    return err_set(err, "rank %u on '%s' (process %u) ended before the job began", c->rank,
                   c->host, c->pid);
}

/* Of who is in, its connection says it. */
static bool is_missed(const Hub *h, const RankCard *c)
{
    return c->job == h->place->job && c->world == h->place->world && c->rank > 0 &&
           c->rank < c->world && h->meeting->control[c->rank] < 0;
}

/* The hello is whole. */
static bool greet(Hub *h, Guest *g, Err *err)
{
    RankCard *c = &g->hello.card;
    c->host[sizeof c->host - 1] = c->identity[sizeof c->identity - 1] = '\0';
    c->unix_name[sizeof c->unix_name - 1] = '\0';
    if (g->hello.magic == EXCUSE_MAGIC) {
        close(g->fd);
        return !is_missed(h, c) || ended_early(c, err);
    }
    if (c->job != h->place->job) {
        say_text(g->fd, NOTE_STRANGER,
                 "another job of lockstep meets at this rendezvous: choose another one");
        close(g->fd);
        return true;
    }
    if (!check_card(h, c, err)) {
        say_text(g->fd, NOTE_REFUSED, err->text);
        close(g->fd);
        return false;
    }
    char address[NET_HOST_MAX] = "";
    net_peer_text(g->fd, address);
    snprintf(c->address, sizeof c->address, "%.63s", address);
    h->meeting->cards[c->rank] = *c;
    h->meeting->control[c->rank] = g->fd;
    h->came_n++;
    say_text(g->fd, NOTE_WELCOME, "");
    return true;
}

/* Reads what there is of a hello.  A wrong first word needs no second. */
static bool hear_guest(Hub *h, uint32_t at, Err *err)
{
    Guest *g = &h->guests[at];
    ssize_t n =
        recv(g->fd, (uint8_t *)&g->hello + g->got, sizeof g->hello - g->got, MSG_DONTWAIT);
    bool later = n < 0 && (errno == EAGAIN || errno == EINTR);
    if (n > 0)
        g->got += (size_t)n;
    if ((n <= 0 && !later) ||
        (g->got >= sizeof g->hello.magic && g->hello.magic != HELLO_MAGIC &&
         g->hello.magic != EXCUSE_MAGIC)) {
        guest_is_shown_out(h, at);
        return true;
    }
    if (g->got < sizeof g->hello)
        return true;
    Guest whole = *g;
    guest_leaves(h, at);
    return greet(h, &whole, err);
}

static bool hear_guests(Hub *h, uint32_t polled_n, Err *err)
{
    int64_t now_ns = net_now_ns();
    for (uint32_t g = polled_n; g-- > 0;) { /* backwards: those who leave move the later ones */
        if (h->polls[1 + g].revents) {
            if (!hear_guest(h, g, err))
                return false;
        } else if (now_ns >= h->guests[g].until_ns) {
            guest_is_shown_out(h, g);
        }
    }
    return true;
}

/* Ranks that are in say nothing now: whatever comes is their end. */
static bool check_ranks(const Hub *h, const struct pollfd *polls, Err *err)
{
    for (uint32_t r = 1; r < h->place->world; r++)
        if (polls[r].fd >= 0 && polls[r].revents) {
            close(h->meeting->control[r]);
            h->meeting->control[r] = -1;
            return ended_early(&h->meeting->cards[r], err);
        }
    return true;
}

static bool hub_wait(Hub *h, int64_t deadline_ns, Err *err)
{
    uint32_t guests_n = h->guests_n, world = h->place->world;
    h->polls[0] = (struct pollfd){ .fd = h->listener, .events = POLLIN };
    for (uint32_t g = 0; g < guests_n; g++) {
        h->polls[1 + g] = (struct pollfd){ .fd = h->guests[g].fd, .events = POLLIN };
        deadline_ns = min_i64(deadline_ns, h->guests[g].until_ns);
    }
    struct pollfd *ranks = h->polls + 1 + guests_n;
    for (uint32_t r = 0; r < world; r++)
        ranks[r] = (struct pollfd){ .fd = h->meeting->control[r], .events = POLLIN };
    if (poll(h->polls, 1 + guests_n + world, net_poll_ms(deadline_ns)) < 0)
        return errno == EINTR || err_set(err, "cannot wait for ranks: %s", strerror(errno));
    if (!check_ranks(h, ranks, err) || !hear_guests(h, guests_n, err))
        return false;
    return !h->polls[0].revents || take_guests(h, err);
}

/* ---- the end ---- */

typedef bool (*Claim)(const Hub *h, uint32_t rank);

static bool is_missing(const Hub *h, uint32_t rank)
{
    return rank > 0 && h->meeting->control[rank] < 0;
}

static bool differs(const Hub *h, uint32_t rank)
{
    const RankCard *c = h->meeting->cards;
    return memcmp(c[rank].digest, c[0].digest, sizeof c->digest) != 0;
}

/* "rank 3", "ranks 2, 3 and 5", "ranks 1, 2 ... and 40 more"; returns how many. */
static uint32_t name_ranks(const Hub *h, Claim holds, char *text, size_t cap)
{
    uint32_t all_n = 0, said_n = 0;
    for (uint32_t r = 0; r < h->place->world; r++)
        all_n += holds(h, r);
    size_t n = (size_t)snprintf(text, cap, all_n == 1 ? "rank" : "ranks");
    for (uint32_t r = 0; r < h->place->world && said_n < NAMED_MAX && n < cap; r++)
        if (holds(h, r)) {
            const char *join = said_n == 0 ? " " : said_n + 1 == all_n ? " and " : ", ";
            n += (size_t)snprintf(text + n, cap - n, "%s%u", join, r);
            said_n++;
        }
    if (said_n < all_n && n < cap)
        snprintf(text + n, cap - n, " and %u more", all_n - said_n);
    return all_n;
}

static bool hub_check_all(const Hub *h, Err *err)
{
    char names[256];
    if (name_ranks(h, is_missing, names, sizeof names) > 0)
        return err_set(err, "%s of %u did not come to '%s' within %.3g s", names,
                       h->place->world, h->spot->text, h->place->timeout_s);
    uint32_t n = name_ranks(h, differs, names, sizeof names);
    if (n > 0)
        return err_set(err,
                       "%s %s something else than rank 0: scenario, options or version differ",
                       names, n == 1 ? "runs" : "run");
    return true;
}

/* Ranks on this host came over loopback; for other hosts they live at rank 0's address. */
static void send_table(const Hub *h, uint32_t to)
{
    uint32_t world = h->place->world;
    size_t n = MEET_TOKEN_BYTES + world * sizeof(RankCard);
    uint8_t *bytes = mem_zero(n, 1);
    RankCard *cards = (RankCard *)mem_zero(world, sizeof *cards);
    memcpy(cards, h->meeting->cards, world * sizeof *cards);
    bool far = !net_is_loopback(cards[to].address);
    for (uint32_t r = 0; r < world; r++)
        if (r == 0 || (far && net_is_loopback(cards[r].address)))
            memset(cards[r].address, 0, sizeof cards[r].address);
    memcpy(bytes, h->meeting->token, MEET_TOKEN_BYTES);
    memcpy(bytes + MEET_TOKEN_BYTES, cards, world * sizeof *cards);
    say(h->meeting->control[to], NOTE_TABLE, bytes, n);
    free(cards);
    free(bytes);
}

static bool hub_gather(Hub *h, int64_t deadline_ns, Err *err)
{
    while (h->came_n < h->place->world && net_now_ns() < deadline_ns)
        if (!hub_wait(h, deadline_ns, err))
            return false;
    return hub_check_all(h, err);
}

static void hub_close(Hub *h)
{
    while (h->guests_n > 0)
        guest_is_shown_out(h, h->guests_n - 1);
    if (h->listener >= 0)
        close(h->listener);
    free(h->polls);
    free(h);
}

bool hub_meet(Meeting *m, const RankPlace *place, const RankCard *mine, const Spot *spot,
              int64_t deadline_ns, Err *err)
{
    Hub *h = mem_zero(1, sizeof *h);
    *h = (Hub){ .place = place, .spot = spot, .meeting = m, .listener = -1, .came_n = 1 };
    h->polls = mem_zero(1 + GUESTS_MAX + (size_t)place->world, sizeof *h->polls);
    m->cards[0] = *mine;
    bool ok = hub_listen(h, err) && (!spot->path || hub_write_file(h, err));
    bool wrote = ok && spot->path;
    if (ok && getrandom(m->token, sizeof m->token, 0) != sizeof m->token)
        ok = err_set(err, "no random numbers: %s", strerror(errno));
    ok = ok && (hub_gather(h, deadline_ns, err) || hub_refuse_all(h, err));
    for (uint32_t r = 1; r < place->world && ok; r++)
        send_table(h, r);
    if (wrote)
        hub_take_file_away(h);
    hub_close(h);
    return ok;
}
