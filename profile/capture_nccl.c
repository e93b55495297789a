/*
 * capture_nccl.c - NCCL's profiler plugin: what NCCL chose for each collective.
 *
 * NCCL loads the plugin that NCCL_PROFILER_PLUGIN names and looks for ncclProfiler_v5 (NCCL
 * 2.28 and newer), then _v4 (2.27); what is newer than 5 falls back to it.  The structs below
 * are that interface, restated from NCCL's src/include/plugin/profiler/profiler_v5.h and
 * profiler_v4.h, since no package ships them; the events' numbers are those of
 * src/include/plugin/nccl_profiler.h.
 *
 * What is asked for costs no kernel and no proxy anything: calls (group, collective, send and
 * receive), launches, and the task's choice.  KernelCh would make NCCL's proxy poll the GPU.
 *
 *     v5  ncclAllReduce      GroupApi(1) > CollApi(7)         the program's thread
 *         ncclGroupEnd       KernelLaunch(3) start            labels what is launched ...
 *                              cuLaunchKernelEx
 *                            KernelLaunch(3) stop             ... until here
 *                            Coll (parent 7): RING, LL128     same thread, right behind
 *     v4  ncclAllReduce        cuLaunchKernelEx
 *                            Group > Coll: RING, LL128        same thread, right behind
 *
 * A captured launch (CUDA graph) happens once; its Coll comes at every replay on a thread of
 * CUDA's, if at all.  Handles are numbers: nothing is allocated per event.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "profile/capture_parts.h"

/* ---- NCCL's interface ---- */

enum {
    EVENT_COLL = 1 << 1,
    EVENT_P2P = 1 << 2,
    EVENT_GROUP_API = 1 << 8,
    EVENT_COLL_API = 1 << 9,
    EVENT_P2P_API = 1 << 10,
    EVENT_LAUNCH = 1 << 11,
    NCCL_SUCCESS = 0
};

typedef struct CollEvent {
    uint64_t seq;
    const char *func;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *dtype;
    uint8_t channels, warps;
    const char *algorithm, *protocol;
    void *parent_group; /* v5 only: the last */
} CollEvent;

typedef struct P2pEvent {
    const char *func;
    void *buffer;
    const char *dtype;
    size_t count;
    int peer;
    uint8_t channels;
    void *parent_group; /* v5 only */
} P2pEvent;

typedef struct EventV5 {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *func;
            size_t count;
            const char *dtype;
            int root;
            void *stream;
            bool captured;
        } coll_api;
        struct {
            const char *func;
            size_t count;
            const char *dtype;
            void *stream;
            bool captured;
        } p2p_api;
        CollEvent coll;
        P2pEvent p2p;
    };
} EventV5;

typedef struct EventV4 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        CollEvent coll; /* without its last member, which is not touched */
        P2pEvent p2p;
    };
} EventV4;

_Static_assert(sizeof(EventV5) == 112 && offsetof(EventV5, coll) == 24, "NCCL's layout of v5");
_Static_assert(offsetof(EventV5, coll.algorithm) == 88, "NCCL's layout of v5");
_Static_assert(offsetof(EventV4, coll) == 24 && offsetof(CollEvent, algorithm) == 64, "of v4");

typedef struct ProfilerV5 {
    const char *name;
    int (*init)(void **context, uint64_t comm_id, int *mask, const char *comm_name, int nodes_n,
                int ranks_n, int rank, void *log);
    int (*start)(void *context, void **handle, EventV5 *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *args);
    int (*finalize)(void *context);
} ProfilerV5;

typedef struct ProfilerV4 {
    const char *name;
    int (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_id, int nodes_n,
                int ranks_n, int rank, void *log);
    int (*start)(void *context, void **handle, EventV4 *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *args);
    int (*finalize)(void *context);
} ProfilerV4;

/* ---- numbers ---- */

typedef enum HandleKind { HANDLE_GROUP = 1, HANDLE_CALL, HANDLE_LAUNCH } HandleKind;

static _Atomic uint32_t comms_n, groups_n, calls_n, launches_n;

/* The last launch of this thread: tasks come right behind it. */
static _Thread_local struct {
    uint32_t launch, comm;
} last;

static void *handle_of(HandleKind kind, uint32_t number)
{
    return (void *)(uintptr_t)((uint64_t)number << 2 | kind);
}

static uint32_t number_of(const void *handle, HandleKind kind)
{
    uint64_t bits = (uint64_t)(uintptr_t)handle;
    return (bits & 3) == kind ? (uint32_t)(bits >> 2) : 0;
}

/* ---- communicators ---- */

typedef struct CommContext {
    uint32_t number;
} CommContext;

static int open_comm(void **context, uint64_t id, const char *name, int nodes_n, int ranks_n,
                     int rank)
{
    RawAny any;
    CommContext *c = malloc(sizeof *c);
    *context = c;
    if (!c)
        return NCCL_SUCCESS;
    c->number = ++comms_n;
    uint32_t text = name && *name ? sink_text(name) : 0;
    RawNcclComm *to = RAW_OF(&any, RAW_NCCL_COMM, comm, c->number);
    to->id = id;
    to->ranks_n = (uint32_t)ranks_n;
    to->rank = (uint32_t)rank;
    to->nodes_n = (uint32_t)nodes_n;
    to->name = text;
    sink_put(&any.top);
    return NCCL_SUCCESS;
}

/* The mask is one for all communicators, so a collector that is off switches all off. */
static int open_if_on(void **context, int *mask, int wanted, uint64_t id, const char *name,
                      int nodes_n, int ranks_n, int rank)
{
    *context = NULL;
    *mask = 0;
    if (!capture_is_on())
        return NCCL_SUCCESS;
    *mask = wanted;
    return open_comm(context, id, name, nodes_n, ranks_n, rank);
}

static int init_v5(void **context, uint64_t id, int *mask, const char *name, int nodes_n,
                   int ranks_n, int rank, void *log)
{
    (void)log;
    int wanted = EVENT_GROUP_API | EVENT_COLL_API | EVENT_P2P_API | EVENT_LAUNCH | EVENT_COLL |
                 EVENT_P2P;
    return open_if_on(context, mask, wanted, id, name, nodes_n, ranks_n, rank);
}

static int init_v4(void **context, int *mask, const char *name, uint64_t id, int nodes_n,
                   int ranks_n, int rank, void *log)
{
    (void)log;
    return open_if_on(context, mask, EVENT_COLL | EVENT_P2P, id, name, nodes_n, ranks_n, rank);
}

static int finalize(void *context)
{
    free(context);
    return NCCL_SUCCESS;
}

/* ---- events ---- */

static void put_call(const CommContext *c, uint32_t number, const EventV5 *e)
{
    RawAny any;
    bool coll = e->type == EVENT_COLL_API;
    uint32_t func = sink_text(coll ? e->coll_api.func : e->p2p_api.func);
    uint32_t dtype = sink_text(coll ? e->coll_api.dtype : e->p2p_api.dtype);
    RawNcclCall *to = RAW_OF(&any, RAW_NCCL_CALL, nccl_call, number);
    to->group = number_of(e->parent, HANDLE_GROUP);
    to->comm = c->number;
    to->func = func;
    to->dtype = dtype;
    to->count = coll ? e->coll_api.count : e->p2p_api.count;
    to->root = coll ? (uint32_t)e->coll_api.root : NONE_U32;
    to->captured = coll ? e->coll_api.captured : e->p2p_api.captured;
    sink_put(&any.top);
}

static void put_launch(const CommContext *c, uint32_t number, const EventV5 *e)
{
    RawAny any;
    RawNcclLaunch *to = RAW_OF(&any, RAW_NCCL_LAUNCH, launch, number);
    to->at_ns = capture_now_ns();
    to->group = number_of(e->parent, HANDLE_GROUP);
    to->comm = c->number;
    to->thread = capture_thread_id();
    sink_put(&any.top);
}

static uint32_t choice(const char *text)
{
    return text && *text ? sink_text(text) : 0;
}

/* said: all but who says it, and when; its texts are in the recording already. */
static void put_task(const CommContext *c, uint32_t call, uint32_t launch, RawNcclTask said)
{
    RawAny any;
    RawNcclTask *to = RAW_OF(&any, RAW_NCCL_TASK, task, call);
    said.top = to->top;
    said.at_ns = capture_now_ns();
    said.launch = launch;
    said.comm = c->number;
    said.thread = capture_thread_id();
    *to = said;
    sink_put(&any.top);
}

static void put_coll(const CommContext *c, uint32_t call, uint32_t launch, const CollEvent *e)
{
    put_task(c, call, launch,
             (RawNcclTask){ .seq = e->seq,
                            .count = e->count,
                            .func = sink_text(e->func),
                            .dtype = sink_text(e->dtype),
                            .algorithm = choice(e->algorithm),
                            .protocol = choice(e->protocol),
                            .channels = e->channels,
                            .peer = NONE_U32 });
}

static void put_p2p(const CommContext *c, uint32_t call, uint32_t launch, const P2pEvent *e)
{
    put_task(c, call, launch,
             (RawNcclTask){ .count = e->count,
                            .func = sink_text(e->func),
                            .dtype = sink_text(e->dtype),
                            .channels = e->channels,
                            .peer = (uint32_t)e->peer });
}

static void begin_launch(const CommContext *c, void **handle, const EventV5 *e)
{
    uint32_t number = ++launches_n;
    put_launch(c, number, e);
    capture_push_launch(number);
    last.launch = number;
    last.comm = c->number;
    *handle = handle_of(HANDLE_LAUNCH, number);
}

static int start_v5(void *context, void **handle, EventV5 *e)
{
    const CommContext *c = context;
    *handle = NULL;
    if (!c || !capture_is_on())
        return NCCL_SUCCESS;
    int64_t since_ns = capture_monotonic_ns();
    uint32_t call = number_of(e->parent, HANDLE_CALL);
    uint32_t launch = last.comm == c->number ? last.launch : 0;
    if (e->type == EVENT_GROUP_API) {
        *handle = handle_of(HANDLE_GROUP, ++groups_n);
    } else if (e->type == EVENT_COLL_API || e->type == EVENT_P2P_API) {
        uint32_t number = ++calls_n;
        put_call(c, number, e);
        *handle = handle_of(HANDLE_CALL, number);
    } else if (e->type == EVENT_LAUNCH) {
        begin_launch(c, handle, e);
    } else if (e->type == EVENT_COLL) {
        put_coll(c, call, launch, &e->coll);
    } else if (e->type == EVENT_P2P) {
        put_p2p(c, call, launch, &e->p2p);
    }
    capture_add_cost(since_ns);
    return NCCL_SUCCESS;
}

static int start_v4(void *context, void **handle, EventV4 *e)
{
    const CommContext *c = context;
    *handle = NULL;
    if (!c || !capture_is_on())
        return NCCL_SUCCESS;
    int64_t since_ns = capture_monotonic_ns();
    if (e->type == EVENT_COLL)
        put_coll(c, 0, 0, &e->coll);
    else if (e->type == EVENT_P2P)
        put_p2p(c, 0, 0, &e->p2p);
    capture_add_cost(since_ns);
    return NCCL_SUCCESS;
}

static int stop(void *handle)
{
    if (number_of(handle, HANDLE_LAUNCH) && capture_is_on())
        capture_pop_launch();
    return NCCL_SUCCESS;
}

static int record(void *handle, int state, void *args)
{
    (void)handle;
    (void)state;
    (void)args;
    return NCCL_SUCCESS;
}

#define DOOR __attribute__((visibility("default")))

extern const ProfilerV5 ncclProfiler_v5;
extern const ProfilerV4 ncclProfiler_v4;
DOOR const ProfilerV5 ncclProfiler_v5 = {
    "lockstep", init_v5, start_v5, stop, record, finalize
};
DOOR const ProfilerV4 ncclProfiler_v4 = {
    "lockstep", init_v4, start_v4, stop, record, finalize
};
