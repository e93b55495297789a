/* rendezvous.c - the part of those who come: rank 0's part stands in rendezvous_hub.c. */
#include "exec/rendezvous_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- who this is ---- */

static uint64_t inode_of(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 ? (uint64_t)s.st_ino : 0;
}

static bool read_line(const char *path, char *line, size_t cap)
{
    FILE *file = fopen(path, "re");
    bool ok = file && fgets(line, (int)cap, file);
    if (file)
        fclose(file);
    if (ok)
        line[strcspn(line, "\n")] = '\0';
    return ok;
}

void rendezvous_introduce(RankCard *card)
{
    if (gethostname(card->host, sizeof card->host) != 0)
        snprintf(card->host, sizeof card->host, "unknown");
    card->host[sizeof card->host - 1] = '\0';
    card->pid = (uint32_t)getpid();

    char boot[40];
    uint64_t net = inode_of("/proc/self/ns/net"), pids = inode_of("/proc/self/ns/pid");
    if (!read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot) || !net || !pids) {
        /* Nothing is known: then it shares memory with nobody. */
        uint64_t noise[2] = { 0 };
        if (getrandom(noise, sizeof noise, 0) < 0)
            noise[0] = (uint64_t)net_now_ns();
        snprintf(boot, sizeof boot, "%016" PRIx64 "%016" PRIx64, noise[0], noise[1]);
    }
    snprintf(card->identity, sizeof card->identity, "%s/%" PRIu64 "/%" PRIu64, boot, net, pids);
}

/* ---- the address ---- */

static const char tcp_prefix[] = "tcp://", file_prefix[] = "file:";

static bool starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool rendezvous_check(const char *rendezvous, Err *err)
{
    char host[NET_HOST_MAX], port[NET_PORT_MAX];
    if (starts(rendezvous, tcp_prefix))
        return net_split(rendezvous + strlen(tcp_prefix), host, port, err) ||
               err_wrap(err, "rendezvous '%s'", rendezvous);
    if (starts(rendezvous, file_prefix) && rendezvous[strlen(file_prefix)])
        return true;
    return err_set(err, "rendezvous '%s' is neither tcp://HOST:PORT nor file:PATH", rendezvous);
}

char *rendezvous_of_copy(const char *rendezvous, uint32_t copy, Err *err)
{
    const uint64_t last_port = 65535;
    size_t cap = strlen(rendezvous) + 16;
    char *text = mem_zero(cap, 1);
    const char *colon = strrchr(rendezvous, ':');
    if (copy == 0) {
        snprintf(text, cap, "%s", rendezvous);
    } else if (starts(rendezvous, file_prefix)) {
        snprintf(text, cap, "%s.%u", rendezvous, copy);
    } else {
        ASSERT(starts(rendezvous, tcp_prefix) && colon);
        uint64_t port = strtoull(colon + 1, NULL, 10) + copy;
        snprintf(text, cap, "%.*s:%" PRIu64, (int)(colon - rendezvous), rendezvous, port);
        if (port > last_port) {
            err_set(err,
                    "copy %u of '%s' would meet at port %" PRIu64 ": %" PRIu64
                    " is the last one",
                    copy, rendezvous, port, last_port);
            free(text);
            return NULL;
        }
    }
    return text;
}

bool rendezvous_is_local(const char *rendezvous)
{
    char host[NET_HOST_MAX], port[NET_PORT_MAX];
    Err ignored = { 0 };
    return starts(rendezvous, tcp_prefix) &&
           net_split(rendezvous + strlen(tcp_prefix), host, port, &ignored) &&
           net_is_loopback(host);
}

static bool resolve(Spot *spot, const char *rendezvous, Err *err)
{
    *spot = (Spot){ .text = rendezvous };
    if (!rendezvous_check(rendezvous, err))
        return false;
    if (starts(rendezvous, file_prefix)) {
        spot->path = rendezvous + strlen(file_prefix);
        return true;
    }
    return net_split(rendezvous + strlen(tcp_prefix), spot->host, spot->port, err);
}

/* ---- coming ---- */

typedef struct Visit {
    const RankPlace *place;
    const RankCard *mine;
    Spot spot;
    bool excuses; /* `mine` is of who will not come */
    int64_t deadline_ns;
    char trouble[NOTE_BYTES_MAX]; /* why the last attempt failed */
} Visit;

typedef enum Outcome { VISIT_MET, VISIT_AGAIN, VISIT_OVER } Outcome;

static int64_t soonest(const Visit *v, int64_t wait_ns)
{
    return min_i64(v->deadline_ns, net_now_ns() + wait_ns);
}

static bool recv_note(int fd, Note *note, uint8_t *bytes, size_t cap, int64_t deadline_ns)
{
    errno = 0;
    if (!net_recv_all(fd, note, sizeof *note, deadline_ns))
        return false;
    if (note->magic != NOTE_MAGIC || note->bytes > cap) {
        errno = EPROTO;
        return false;
    }
    return net_recv_all(fd, bytes, note->bytes, deadline_ns);
}

/* The address that a rank on rank 0's own host has for the others: rank 0's, as seen here. */
static void fill_addresses(Meeting *m, const RankPlace *place, int fd)
{
    char hub[NET_HOST_MAX] = "";
    net_peer_text(fd, hub);
    for (uint32_t r = 0; r < place->world; r++)
        if (m->cards[r].address[0] == '\0')
            snprintf(m->cards[r].address, sizeof m->cards[r].address, "%.63s", hub);
}

static Outcome take_table(Meeting *m, Visit *v, int fd, const uint8_t *bytes)
{
    memcpy(m->token, bytes, sizeof m->token);
    memcpy(m->cards, bytes + sizeof m->token, v->place->world * sizeof *m->cards);
    for (uint32_t r = 0; r < v->place->world; r++) {
        RankCard *c = &m->cards[r];
        c->address[sizeof c->address - 1] = c->host[sizeof c->host - 1] = '\0';
        c->identity[sizeof c->identity - 1] = c->unix_name[sizeof c->unix_name - 1] = '\0';
    }
    fill_addresses(m, v->place, fd);
    m->control[0] = fd;
    return VISIT_MET;
}

static void hub_ended(const Visit *v, Err *err)
{
    err_set(err, "rank 0 at '%s' ended while the ranks were still meeting", v->spot.text);
}

/* Welcomed: rank 0 speaks next when all have come, or when it gives up. */
static Outcome wait_for_table(Meeting *m, Visit *v, int fd, Err *err)
{
    const int64_t grace_ns =
        3000000000; /* rank 0's own deadline comes first, and it says why */
    int64_t until_ns = net_now_ns() + (int64_t)(v->place->timeout_s * 1e9) + grace_ns;
    size_t cap = sizeof m->token + v->place->world * sizeof *m->cards;
    uint8_t *bytes = mem_zero(cap + 1, 1);
    Note note;
    Outcome outcome = VISIT_OVER;
    if (!recv_note(fd, &note, bytes, cap, until_ns))
        hub_ended(v, err);
    else if (note.type == NOTE_TABLE && note.bytes == cap)
        outcome = take_table(m, v, fd, bytes);
    else if (note.type == NOTE_REFUSED)
        err_set(err, "%s", (const char *)bytes);
    else
        err_set(err, "rank 0 at '%s' speaks another protocol", v->spot.text);
    free(bytes);
    return outcome;
}

static Outcome wrong_service(Visit *v, Err *err)
{
    snprintf(v->trouble, sizeof v->trouble, "what answers there is not lockstep");
    if (v->spot.path)
        return VISIT_AGAIN; /* the file may be an old one */
    err_set(err, "the service at '%s' is not lockstep's rank 0: another program has this port",
            v->spot.text);
    return VISIT_OVER;
}

static Outcome say_hello(Meeting *m, Visit *v, int fd, Err *err)
{
    Hello hello = { .magic = HELLO_MAGIC, .card = *v->mine };
    uint8_t bytes[NOTE_BYTES_MAX + 1] = { 0 };
    Note note;
    if (!net_send_all(fd, &hello, sizeof hello, v->deadline_ns) ||
        !recv_note(fd, &note, bytes, NOTE_BYTES_MAX, v->deadline_ns)) {
        if (errno == EPROTO)
            return wrong_service(v, err);
        snprintf(v->trouble, sizeof v->trouble, "%s",
                 errno == ETIMEDOUT ? "it accepts connections but says nothing"
                 : errno == 0       ? "it closes connections without a word"
                                    : strerror(errno));
        return VISIT_AGAIN;
    }
    if (note.type == NOTE_WELCOME)
        return wait_for_table(m, v, fd, err);
    if (note.type == NOTE_STRANGER && v->spot.path) {
        snprintf(v->trouble, sizeof v->trouble, "%.1000s", (const char *)bytes);
        return VISIT_AGAIN;
    }
    if (note.type != NOTE_REFUSED && note.type != NOTE_STRANGER)
        return wrong_service(v, err);
    err_set(err, "%s", (const char *)bytes);
    return VISIT_OVER;
}

static Outcome say_excuse(const Visit *v, int fd)
{
    Hello hello = { .magic = EXCUSE_MAGIC, .card = *v->mine };
    return net_send_all(fd, &hello, sizeof hello, v->deadline_ns) ? VISIT_MET : VISIT_AGAIN;
}

static Outcome visit_host(Meeting *m, Visit *v, const char *host, const char *port, Err *err)
{
    const int64_t attempt_ns = 2000000000;
    int fd = net_connect(host, port, soonest(v, attempt_ns));
    if (fd < 0 && errno == ECONNREFUSED && hub_was_there(&v->spot)) {
        hub_ended(v, err);
        return VISIT_OVER;
    }
    if (fd < 0 && net_no_room()) {
        err_set(err, "cannot call rank 0 at '%s': %s", v->spot.text, strerror(errno));
        return VISIT_OVER;
    }
    if (fd < 0) {
        snprintf(v->trouble, sizeof v->trouble, "%s",
                 errno == EHOSTUNREACH ? "no such host, or no way to it" : strerror(errno));
        return VISIT_AGAIN;
    }
    Outcome outcome = v->excuses ? say_excuse(v, fd) : say_hello(m, v, fd, err);
    if (outcome != VISIT_MET || v->excuses)
        close(fd);
    return outcome;
}

/* The file: "lockstep", port, identity of rank 0's host, then its addresses, one a line. */
static Outcome visit_file(Meeting *m, Visit *v, Err *err)
{
    char line[NET_HOST_MAX], port[NET_HOST_MAX], identity[NET_HOST_MAX];
    FILE *file = fopen(v->spot.path, "re");
    if (!file) {
        snprintf(v->trouble, sizeof v->trouble, "%s", strerror(errno));
        return VISIT_AGAIN;
    }
    char *fields[] = { line, port, identity };
    bool ok = true;
    for (size_t i = 0; i < ARRAY_N(fields) && ok; i++) {
        ok = fgets(fields[i], NET_HOST_MAX, file) != NULL;
        if (ok)
            fields[i][strcspn(fields[i], "\n")] = '\0';
    }
    Outcome outcome = VISIT_AGAIN;
    snprintf(v->trouble, sizeof v->trouble, "the file is not one of lockstep's");
    if (ok && strcmp(line, MEET_FILE_TITLE) == 0 && strlen(port) < NET_PORT_MAX) {
        if (strcmp(identity, v->mine->identity) == 0)
            outcome = visit_host(m, v, "127.0.0.1", port, err);
        for (int n = 0; n < 16 && outcome == VISIT_AGAIN; n++) {
            if (!fgets(line, sizeof line, file))
                break;
            line[strcspn(line, "\n")] = '\0';
            outcome = visit_host(m, v, line, port, err);
        }
    }
    fclose(file);
    return outcome;
}

static bool visit(Meeting *m, Visit *v, Err *err)
{
    const int64_t pause_ns = 30000000;
    for (;;) {
        Outcome outcome = v->spot.path ? visit_file(m, v, err)
                                       : visit_host(m, v, v->spot.host, v->spot.port, err);
        if (outcome != VISIT_AGAIN)
            return outcome == VISIT_MET;
        if (net_now_ns() + pause_ns >= v->deadline_ns)
            return err_set(err, "cannot reach rank 0 at '%s' within %.3g s: %s", v->spot.text,
                           v->place->timeout_s, v->trouble);
        net_sleep_ns(pause_ns);
    }
}

/* ---- both ---- */

static void digest_of(uint64_t digest[2], const char *text)
{
    digest[0] = digest[1] = 0;
    for (const char *c = text ? text : ""; *c; c++) {
        digest[0] = mix_u64(digest[0] ^ (uint64_t)(unsigned char)*c);
        digest[1] = mix_u64(digest[1] + digest[0]);
    }
}

bool rendezvous_excuse(const RankPlace *place, uint32_t rank, uint32_t pid, int64_t until_ns)
{
    RankCard card = { .version = MEET_VERSION, .world = place->world, .job = place->job };
    Meeting none = { 0 };
    Err ignored = { 0 };
    if (rank == 0)
        hub_leaves(); /* it is missed by whoever calls there */
    if (rank == 0 || place->world < 2 || !place->rendezvous)
        return true;
    rendezvous_introduce(&card);
    card.rank = rank;
    card.pid = pid;
    Visit v = { .place = place, .mine = &card, .excuses = true, .deadline_ns = until_ns };
    return resolve(&v.spot, place->rendezvous, &ignored) && visit(&none, &v, &ignored);
}

bool rendezvous_meet(Meeting *m, const RankPlace *place, const RankCard *mine, Err *err)
{
    ASSERT(place->world > 0 && place->rank < place->world);
    if (place->came)
        *place->came = true;
    RankCard card = *mine;
    card.version = MEET_VERSION;
    card.rank = place->rank;
    card.world = place->world;
    card.job = place->job;
    digest_of(card.digest, place->digest);

    *m = (Meeting){ .control_n = place->rank == 0 ? place->world : 1 };
    m->cards = mem_zero(place->world, sizeof *m->cards);
    m->control = mem_zero(m->control_n, sizeof *m->control);
    for (uint32_t i = 0; i < m->control_n; i++)
        m->control[i] = -1;

    Spot spot;
    int64_t deadline_ns = net_now_ns() + (int64_t)(place->timeout_s * 1e9);
    bool ok = resolve(&spot, place->rendezvous, err);
    if (ok && place->rank == 0) {
        ok = hub_meet(m, place, &card, &spot, deadline_ns, err);
    } else if (ok) {
        Visit v = { .place = place, .mine = &card, .spot = spot, .deadline_ns = deadline_ns };
        ok = visit(m, &v, err);
    }
    if (!ok)
        meeting_free(m);
    return ok;
}

void meeting_free(Meeting *m)
{
    for (uint32_t i = 0; i < m->control_n; i++)
        if (m->control[i] >= 0)
            close(m->control[i]);
    free(m->control);
    free(m->cards);
    *m = (Meeting){ 0 };
}
