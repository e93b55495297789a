/*
 * fabric_parts.h - what the files of the fabric share.
 *
 *     fabric.c             open, close, fabric_run: picks one of the following
 *     fabric_failure.c     the one sentence that ends a job, and who learns of it
 *     fabric_service.c     the service thread: control connections, heart-beats
 *     fabric_watch.c       rank 0 looks whether any rank still does something
 *     fabric_memory.c      ranks of one host map each other's memory
 *     fabric_shm.c         collectives in shared memory
 *     fabric_p2p.c         sends and receives, in shared memory and over TCP
 *     fabric_tcp.c         connections, and exchanges of bytes over many at once
 *     fabric_message.c     collectives over TCP; rings
 *     fabric_world.c       barrier, share, gather
 *
 * MEMORY of a rank, one piece, mapped by all ranks of its host:
 *
 *     | Control: a slot per lane, the bell | arena ................. |
 *     0                          CONTROL_BYTES               map_bytes
 *
 * A collective in it: every member posts its call in its own slot of the lane and
 * looks at the others' slots until all show the same key; works; and meets the
 * others once more, so that nobody touches its tensors while a slow one reads.  The
 * slot's word counts these two steps, and is what others sleep on.
 *
 * A send is posted in the sender's slot; the receiver finds it by its key, copies,
 * and says so there.  Both ring the other's bell, as neither knows the lane on which
 * the other one is.
 */
#ifndef LOCKSTEP_EXEC_FABRIC_PARTS_H
#define LOCKSTEP_EXEC_FABRIC_PARTS_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "core/patterns/ring.h"
#include "exec/fabric.h"
#include "exec/net.h"
#include "exec/rendezvous.h"
#include "exec/shared.h"

enum {
    GROUPED_MAX = 256,    /* sends and receives of one fabric_run */
    PARTS_MAX = 4096,     /* pieces of one call on one lane; longer lists go in several calls */
    FAIL_TEXT_MAX = 1000, /* fits into a note */
    WAIT_NS = 50000000,   /* longest sleep before a look at the failure */
    LOOK_NS = 1000000     /* shortest before a look at what wakes nobody */
};

/* ---- shared memory ---- */

/* A send that waits for its receiver. */
typedef struct SendPost {
    _Atomic uint64_t key; /* 0: none */
    _Atomic uint32_t taken;
    uint32_t parts_first, parts_n; /* in LaneSlot.parts */
    int64_t at_ns, came_ns;        /* the sender's */
    int64_t met_ns, met_wall_ns;   /* filled in by the receiver before taken */
} SendPost;

typedef struct LaneSlot {
    _Alignas(64) _Atomic uint32_t word; /* steps done; others sleep on it */
    _Atomic uint32_t sleepers;
    _Atomic uint64_t key; /* of the collective posted here */
    uint32_t base;        /* word before it was posted */
    uint32_t kind, peer, maximum, in_n, out_n;
    int64_t at_ns, came_ns;
    _Atomic uint32_t sends_n;
    SendPost sends[GROUPED_MAX];
    Part parts[2 * PARTS_MAX]; /* in, then out */
} LaneSlot;

typedef struct Control {
    _Alignas(
        64) _Atomic uint32_t bell; /* something happened to this rank's sends or receives */
    _Atomic uint32_t bell_sleepers;
    _Atomic uint32_t left; /* the rank has closed in good order */
    LaneSlot lanes[LANE_N];
} Control;

#define CONTROL_BYTES ((sizeof(Control) + 2 * MIB - 1) / (2 * MIB) * (2 * MIB))

typedef struct Peer {
    Control *control; /* NULL: on another host */
    uint8_t *arena;
    uint64_t map_bytes;
} Peer;

/* ---- private to the rank ---- */

/* Calls counted per something: group of a lane, or (peer, tag, direction). */
typedef struct Count {
    uint64_t of;
    uint64_t n;
} Count;

typedef struct Counts {
    Count *items;
    uint32_t n, cap;
} Counts;

uint64_t counts_next(Counts *c, uint64_t of); /* 0, 1, 2 ... for each `of` */

/* Memory that a lane's thread uses within a call; grows and stays. */
typedef struct Scratch {
    uint8_t *bytes;
    size_t cap;
} Scratch;

void *scratch_take(Scratch *s, size_t bytes);

struct Stream;

typedef struct LaneState {
    Counts groups;
    Scratch pointers, bytes;
    struct Stream *streams; /* for all that goes over TCP */
    uint32_t streams_n;
} LaneState;

/* One end of a TCP connection to a rank, for one channel (see fabric_tcp.c). */
typedef struct Line {
    uint64_t channel;
    uint32_t rank;
    int fd;
} Line;

/* A control connection, used by the service thread only. */
typedef struct Wire {
    uint32_t rank; /* at the other end */
    int fd, process_fd;
    bool said_bye;
    int64_t heard_ns;
    size_t in_n, out_n;
    uint8_t in[sizeof(Note) + NOTE_BYTES_MAX];
    uint8_t out[4 * (sizeof(Note) + NOTE_BYTES_MAX)];
} Wire;

/* Somebody who has connected to the data port and not yet said what for. */
typedef struct Caller {
    int fd;
    size_t got;
    int64_t until_ns;
    uint8_t bytes[64];
} Caller;

enum { CALLERS_MAX = 128 };

/* What a rank says of itself with every beat. */
typedef struct Sign {
    int64_t cpu_ns;  /* of the process */
    uint64_t calls;  /* that it has done */
    uint32_t awaits; /* rank that a call waits for; NONE_U32 */
} Sign;

typedef struct Service {
    bool runs;
    pthread_t thread;
    int wake_fd;
    _Atomic bool closing;
    Wire *wires; /* rank 0: one per other rank; others: one to rank 0 */
    uint32_t wires_n;
    Caller callers[CALLERS_MAX];
    uint32_t callers_n;
    int64_t beat_ns;
    _Atomic bool told;   /* the failure is on its way to the others */
    Sign *signs, *marks; /* rank 0: [world], of the last beats, and when somebody had moved */
    int64_t moved_ns;
} Service;

struct Fabric {
    uint32_t rank, world;
    double timeout_s;
    bool rings;
    uint32_t spins; /* looks at a word before sleeping on it */
    Meeting meeting;
    RankCard card; /* this rank's */
    int memory_fd, unix_listener, data_listener;
    Peer *peers; /* [world] */
    Control *control;
    uint8_t *arena;
    uint64_t arena_bytes, map_bytes;
    _Atomic bool mapped; /* peers are as they will stay */
    LaneState lanes[LANE_N];

    pthread_mutex_t mutex; /* guards what follows */
    Counts p2p;
    Line *lines;
    uint32_t lines_n, lines_cap;
    char failure[FAIL_TEXT_MAX];
    _Atomic bool failed;
    int fail_fd; /* readable once failed */

    _Atomic uint64_t calls; /* done */
    _Atomic uint32_t awaits;

    LaneState world_lane; /* barrier, share, gather */
    Service service;
};

/* Until when a rank may be silent. */
static inline int64_t silent_until_ns(const Fabric *f)
{
    return net_now_ns() + (int64_t)(f->timeout_s * 1e9);
}

/* ---- fabric_failure.c ---- */

/* The first sentence wins; all waits of this rank end.  The service thread tells the others. */
void fabric_fail(Fabric *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* err says why the job ended; false. */
bool fabric_ended(Fabric *f, Err *err);
/* A wait for `rank` was in vain: gives the service thread time to learn the real reason, then
 * says this one everywhere.  False. */
bool fabric_lost(Fabric *f, uint32_t rank, const char *what, Err *err);
/* err, set by a check of this rank, ends the job everywhere.  False. */
bool fabric_refuse(Fabric *f, const Err *err);

/* ---- fabric_service.c ---- */

bool service_start(Fabric *f, Err *err);
void service_wake(Fabric *f);
void service_stop(Fabric *f); /* says goodbye first */

/* ---- fabric_watch.c ---- */

/* How long to sleep before the next look at what wakes nobody, awaited since then: what comes is
 * found a 64th of the wait later at most, and who waits for long uses next to nothing, by which
 * fabric_watch.c knows it. */
static inline int64_t look_pause_ns(int64_t since_ns)
{
    return min_i64(LOOK_NS + (net_now_ns() - since_ns) / 64, WAIT_NS);
}

/* A call is about to sleep until `rank` does something. */
void watch_awaits(Fabric *f, uint32_t rank);
void watch_call_done(Fabric *f);
/* The rest is the service thread's.  With a beat: this rank's sign as text. */
enum { SIGN_TEXT_MAX = 80 };
void watch_sign(Fabric *f, char text[SIGN_TEXT_MAX]);
/* Rank 0 alone. */
void watch_hear(Fabric *f, uint32_t rank, const char *text);
void watch_look(Fabric *f, int64_t now_ns);

/* ---- fabric_memory.c ---- */

bool memory_make(Fabric *f, uint64_t arena_bytes, Err *err);
bool memory_exchange(Fabric *f, Err *err); /* with all ranks of equal identity */
void memory_free(Fabric *f);
/* Adds one to the word and wakes who sleeps on it. */
void word_step(_Atomic uint32_t *word, _Atomic uint32_t *sleepers);
/* Sleeps while *word is seen; returns now and then. */
void word_sleep(_Atomic uint32_t *word, _Atomic uint32_t *sleepers, uint32_t seen);
/* Wakes all local ranks' threads: they look at the failure. */
void memory_wake_all(Fabric *f);

/* ---- fabric_shm.c, fabric_message.c, fabric_p2p.c ---- */

/* Key of the next collective of these members on this lane; equal on all of them. */
uint64_t collective_key(Fabric *f, const CommCall *c);
/* "rank 2 calls all_gather where rank 0 calls all_reduce", and the like. */
bool collective_differs(Fabric *f, const CommCall *c, uint32_t member, const char *what,
                        Err *err);
bool shm_collective(Fabric *f, CommCall *c, Err *err);
bool message_collective(Fabric *f, CommCall *c, Err *err);
bool p2p_run(Fabric *f, CommCall *calls, uint32_t n, Err *err);

/* ---- fabric_tcp.c ---- */

/* Of the service thread: whoever connects to the data port, and what they say first. */
void callers_take(Fabric *f);
void callers_hear(Fabric *f, const struct pollfd *polls);
void lines_close(Fabric *f);

/* A line of the channel to rank: `calls` says which end connects.  -1: not there yet (the
 * other end has not called), or err is set. */
int line_get(Fabric *f, uint32_t rank, uint64_t channel, bool calls, Err *err);

/* What is to be sent and received over a line, each in its order. */
typedef struct Stream {
    uint32_t rank; /* at the other end */
    int fd;
    struct iovec *out, *in;
    uint32_t out_n, in_n, out_cap, in_cap;
    uint32_t out_at, in_at; /* pieces done */
} Stream;

void stream_clear(Stream *s, uint32_t rank, int fd); /* keeps its memory */
void stream_free(Stream *s);
void stream_send(Stream *s, const void *bytes, uint64_t n);
void stream_recv(Stream *s, void *bytes, uint64_t n);
/* n of them, empty, for a call of this lane. */
Stream *lane_streams(LaneState *l, uint32_t n);
bool stream_done(const Stream *s);
/* As far as it goes without waiting; false: the line is broken. */
bool stream_step(Stream *s);
/* Until one of them can go on, or for at most ms; then looks at the failure. */
bool streams_wait(Fabric *f, const Stream *const *streams, uint32_t n, int ms, Err *err);
/* All to the end. */
bool streams_run(Fabric *f, Stream *streams, uint32_t n, Err *err);

static inline uint8_t *part_at(uint8_t *arena, const Part *p)
{
    return arena + p->offset;
}

static inline uint64_t part_bytes(const Part *p)
{
    return p->elements * dtype_bytes(p->dtype);
}

#endif
