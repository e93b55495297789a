/*
 * records_format.h - the collector's recordings on disk, "*.lsraw": one process each.
 *
 *     +------+--------+--------+- - -+--------+
 *     | head | record | record |     | record |      a crash cuts the last one short
 *     +------+--------+--------+- - -+--------+
 *     0      512      each a multiple of 8 bytes
 *
 * Written by the capture plugin (profile/capture*.c), read by records.h; in the byte order
 * of the machine, as the structs below stand in memory: every field lies at a multiple of
 * its size, so there is no padding.  The head is written again after every batch, so its
 * counts are those of the last one.
 *
 * Times are ns of CUPTI's clock; RawClock records tie it to the machine's clocks.  Texts are
 * numbers of RawText records, which may stand anywhere in the file, 0 is "none".  Readers
 * skip kinds of record that they do not know.
 */
#ifndef LOCKSTEP_PROFILE_RECORDS_FORMAT_H
#define LOCKSTEP_PROFILE_RECORDS_FORMAT_H

#include "core/base.h"

enum {
    RAW_VERSION = 1,
    RAW_BYTE_ORDER = 0x01020304,
    RAW_HEAD_BYTES = 512,
    RAW_TEXT_BYTES_MAX = 4096, /* longer texts are cut */
    RAW_ENDED = 1,             /* flags: the collector was stopped, not cut off */
    RAW_KERNELS_ONLY = 2       /* flags: CaptureOptions.kernels_only */
};

#define RAW_MAGIC \
    { \
        0x89, 'L', 'S', 'R', '\r', '\n', 0x1a, '\n' \
    }
#define RAW_ENDING ".lsraw"

typedef struct RawHead {
    uint8_t magic[8];
    uint32_t version, byte_order, head_bytes, flags;
    uint32_t pid, rank, world, local_rank; /* NONE_U32 unknown */
    uint32_t cupti_version, driver_version;
    uint32_t signal;      /* that ended the process while it recorded; 0 none */
    uint32_t write_errno; /* why the file could not grow; 0 */
    uint64_t records_n;
    uint64_t dropped_n;    /* CUPTI had no buffer for them */
    uint64_t unwritten_n;  /* the file could not grow */
    int64_t callback_ns;   /* spent in the program's own threads by the collector */
    int64_t writer_ns;     /* CPU time of the collector's thread */
    int64_t start_real_ns; /* CLOCK_REALTIME of the first RawClock */
    char host[64];
    char command[256];  /* first words of it; NUL-terminated, as host is */
    uint64_t refused_n; /* buffers that CUPTI wanted and did not get; 0 in older files */
    uint8_t zero[80];
} RawHead;

_Static_assert(sizeof(RawHead) == RAW_HEAD_BYTES, "the head has no padding");

typedef enum RawKind {
    RAW_TEXT = 1,
    RAW_CLOCK,
    RAW_KERNEL,
    RAW_COPY,
    RAW_SET,
    RAW_CALL,
    RAW_LABEL,
    RAW_NODE,
    RAW_CLONE,
    RAW_SYNC,
    RAW_EVENT,
    RAW_MARK,
    RAW_COST,
    RAW_THREAD,
    RAW_DEVICE,
    RAW_TROUBLE,
    RAW_NCCL_COMM,
    RAW_NCCL_CALL,
    RAW_NCCL_LAUNCH,
    RAW_NCCL_TASK,
    RAW_KIND_N
} RawKind;

typedef struct RawTop {
    uint16_t kind;
    uint16_t bytes; /* of the whole record */
    uint32_t a;     /* see each */
} RawTop;

typedef struct RawText {
    RawTop top;  /* a: its number, from 1 */
    char text[]; /* ends in 1 to 8 NULs */
} RawText;

/* The clocks at one moment. */
typedef struct RawClock {
    RawTop top;
    int64_t cupti_ns, monotonic_ns, real_ns;
} RawClock;

typedef struct RawKernel {
    RawTop top; /* a: name, mangled */
    int64_t start_ns, end_ns;
    uint32_t device, context, stream, correlation;
    uint64_t node; /* of the CUDA graph; 0 none */
    /* Missing in older files.  Limits of CUDA: 2^31 - 1 blocks in x, 65535 in y and z. */
    uint32_t grid_x; /* 0: unknown */
    uint16_t grid_y, grid_z, block_x, block_y, block_z, registers_n;
    uint32_t shared_bytes, zero;
} RawKernel;

enum { RAW_KERNEL_BYTES_OLD = 48 };

/* RAW_COPY, RAW_SET. */
typedef struct RawMove {
    RawTop top; /* a: CUpti_ActivityMemcpyKind; 0 for sets */
    int64_t start_ns, end_ns;
    uint64_t size_bytes;
    uint32_t device, context, stream, correlation;
    uint64_t node;
} RawMove;

typedef struct RawCall {
    RawTop top; /* a: name */
    int64_t start_ns, end_ns;
    uint32_t thread, correlation;
    uint32_t driver; /* 1: of the driver API, 0: of the runtime's */
    uint32_t result;
} RawCall;

typedef enum RawLabelled {
    RAW_OP,    /* id: rank << 32 | op */
    RAW_LAUNCH /* id: number of a RawNcclLaunch */
} RawLabelled;

/* What the call with this correlation id was part of. */
typedef struct RawLabel {
    RawTop top; /* a: correlation */
    uint64_t id;
    uint32_t what; /* RawLabelled */
    uint32_t zero;
} RawLabel;

/* The same of a graph's node. */
typedef struct RawNode {
    RawTop top; /* a: RawLabelled */
    uint64_t node, id;
} RawNode;

/* Instantiating a graph copies its nodes. */
typedef struct RawClone {
    RawTop top;
    uint64_t node, from;
} RawClone;

typedef struct RawSync {
    RawTop top; /* a: CUpti_ActivitySynchronizationType */
    int64_t start_ns, end_ns;
    uint32_t correlation, context, stream, event;
    uint64_t event_record; /* which record of the event; the same number in RawEvent */
} RawSync;

/* A CUDA event was recorded on a stream: with RawSync, an edge between streams. */
typedef struct RawEvent {
    RawTop top; /* a: correlation */
    uint32_t device, context, stream, event;
    uint64_t event_record;
} RawEvent;

enum { RAW_MARK_POINT = 1, RAW_MARK_START = 2, RAW_MARK_END = 4 };

/* NVTX. */
typedef struct RawMark {
    RawTop top; /* a: name; none at an end */
    int64_t at_ns;
    uint32_t id, thread, flags, domain;
} RawMark;

/* What CUPTI and the driver took for themselves. */
typedef struct RawCost {
    RawTop top; /* a: CUpti_ActivityOverheadKind */
    int64_t start_ns, end_ns;
    uint32_t thread, correlation;
} RawCost;

typedef struct RawThread {
    RawTop top; /* a: thread */
    uint32_t name, zero;
} RawThread;

typedef struct RawDevice {
    RawTop top; /* a: device */
    uint32_t name, sms;
    uint64_t memory_bytes;
} RawDevice;

typedef struct RawTrouble {
    RawTop top; /* a: a sentence about why nothing, or not all, was recorded */
} RawTrouble;

typedef struct RawNcclComm {
    RawTop top;  /* a: number, from 1 */
    uint64_t id; /* equal on all members */
    uint32_t ranks_n, rank, nodes_n, name;
} RawNcclComm;

/* The program called ncclAllReduce ... */
typedef struct RawNcclCall {
    RawTop top; /* a: number, from 1 */
    uint32_t group, comm, func,
        dtype; /* group: number of an ncclGroup; func and dtype: texts */
    uint64_t count;
    uint32_t root, captured; /* captured: into a CUDA graph */
} RawNcclCall;

/* ... NCCL launched a kernel, for one call or several ... */
typedef struct RawNcclLaunch {
    RawTop top; /* a: number, from 1 */
    int64_t at_ns;
    uint32_t group, comm, thread, zero;
} RawNcclLaunch;

/* ... and says what it chose for each of them; behind the launch, on the same thread. */
typedef struct RawNcclTask {
    RawTop top; /* a: number of the RawNcclCall; 0 unknown */
    int64_t at_ns;
    uint64_t seq, count;
    uint32_t launch; /* RawNcclLaunch; 0 unknown: the thread's last one */
    uint32_t comm, func, dtype, algorithm, protocol;
    uint32_t channels, peer; /* peer: NONE_U32 for collectives */
    uint32_t thread, zero;
} RawNcclTask;

/* Room for any record but a text. */
typedef union RawAny {
    RawTop top;
    RawClock clock;
    RawKernel kernel;
    RawMove move;
    RawCall call;
    RawLabel label;
    RawNode node;
    RawClone clone;
    RawSync sync;
    RawEvent event;
    RawMark mark;
    RawCost cost;
    RawThread thread;
    RawDevice device;
    RawTrouble trouble;
    RawNcclComm comm;
    RawNcclCall nccl_call;
    RawNcclLaunch launch;
    RawNcclTask task;
} RawAny;

/* A record of a type, its top filled in: RAW_OF(&any, RAW_KERNEL, kernel, name). */
#define RAW_OF(any, kind_, field, a_) \
    (memset((any), 0, sizeof *(any)), \
     (any)->top = (RawTop){ (kind_), (uint16_t)sizeof(any)->field, (a_) }, &(any)->field)

#endif
