/*
 * fake_cupti.c - a stand-in for libcupti and for the driver, for tests of the collector without
 * a GPU: the functions that the plugin calls, and fake_*, by which a test program "uses a GPU".
 *
 * Records are CUPTI's own structs, one behind the other in the buffers that the collector gives.
 * Kernels begin when they are launched and last 1000 ns.
 *
 *     FAKE_OTHER=NAME     another tool is attached
 *     FAKE_NO_BUFFERS=1   every record is dropped, as if no buffer were free
 *     FAKE_KEEPS=1        gives no buffer back before it is forced to
 *     FAKE_THREADS=N      records go to N buffers in turn, as those of so many threads would
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "profile/capture_records.h"

enum { LABELS_MAX = 16, THREADS_MAX = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_BuffersCallbackRequestFunc wanted;
static CUpti_BuffersCallbackCompleteFunc completed;
static CUpti_CallbackFunc on_callback;
static CUpti_TimestampCallbackFunc timestamp;
static struct {
    uint8_t *at;
    size_t n, bytes;
} buffers[THREADS_MAX];
static uint32_t buffer_turn;
static size_t dropped_n;
static uint32_t correlation;
static _Thread_local struct {
    uint64_t id[LABELS_MAX];
    int n;
} labels[2];

static uint64_t now(void)
{
    struct timespec t;
    if (timestamp)
        return timestamp();
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- buffers ---- */

static size_t bytes_of(CUpti_ActivityKind kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return sizeof(CUpti_ActivityKernel9);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return sizeof(CUpti_ActivityExternalCorrelation);
    default:
        return sizeof(CUpti_ActivityAPI);
    }
}

static uint32_t threads_n(void)
{
    const char *text = getenv("FAKE_THREADS");
    uint32_t n = text ? (uint32_t)strtoul(text, NULL, 10) : 1;
    return n > 0 && n <= THREADS_MAX ? n : 1;
}

/* Under the lock, which the real library may hold too while it calls back. */
static void put(const void *record, size_t n)
{
    size_t records_max;
    uint32_t b = buffer_turn++ % threads_n();
    uint8_t *full = buffers[b].at;
    if (full && buffers[b].bytes - buffers[b].n < n) {
        buffers[b].at = NULL;
        completed(NULL, 0, full, buffers[b].bytes, buffers[b].n);
    }
    if (!buffers[b].at && wanted && !getenv("FAKE_NO_BUFFERS")) {
        wanted(&buffers[b].at, &buffers[b].bytes, &records_max);
        buffers[b].n = 0;
    }
    if (!buffers[b].at) {
        dropped_n++;
        return;
    }
    memcpy(buffers[b].at + buffers[b].n, record, n);
    buffers[b].n += n;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
    if (getenv("FAKE_KEEPS") && !(flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED))
        return CUPTI_SUCCESS;
    for (uint32_t b = 0; b < THREADS_MAX; b++) {
        pthread_mutex_lock(&lock);
        uint8_t *full = buffers[b].at;
        size_t n = buffers[b].n;
        buffers[b].at = NULL;
        pthread_mutex_unlock(&lock);
        if (full)
            completed(NULL, 0, full, buffers[b].bytes, n);
    }
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *from, size_t n, CUpti_Activity **record)
{
    uint8_t *at = (uint8_t *)*record;
    at = at ? at + bytes_of((*record)->kind) : from;
    if (at >= from + n)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)at;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *n)
{
    (void)context;
    (void)stream;
    pthread_mutex_lock(&lock);
    *n = dropped_n;
    dropped_n = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

/* ---- the rest of the library ---- */

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                              void *user, CUpti_SubscriberParams *params)
{
    const char *other = getenv("FAKE_OTHER");
    (void)subscriber;
    (void)user;
    on_callback = callback;
    if (!other)
        return CUPTI_SUCCESS;
    snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s", other);
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete)
{
    wanted = request;
    completed = complete;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc callback)
{
    timestamp = callback;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t *at)
{
    *at = now();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetVersion(uint32_t *version)
{
    *version = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult rc, const char **text)
{
    *text = rc == CUPTI_SUCCESS ? "success" : "the stand-in says no";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name)
{
    (void)cbid;
    *name = domain == CUPTI_CB_DOMAIN_DRIVER_API ? "cuLaunchKernel" : "cudaLaunchKernel_v7000";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id)
{
    *id = (uint64_t)(uintptr_t)node;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                   uint64_t id)
{
    int k = kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    labels[k].id[labels[k].n++] = id;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                  uint64_t *last)
{
    int k = kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    *last = labels[k].id[--labels[k].n];
    return CUPTI_SUCCESS;
}

/* What is called and does nothing here. */
#define NOTHING(name, ...) \
    CUptiResult name(__VA_ARGS__) \
    { \
        return CUPTI_SUCCESS; \
    }
#pragma GCC diagnostic ignored "-Wunused-parameter"
NOTHING(cuptiSubscribe, CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
        void *user)
NOTHING(cuptiUnsubscribe, CUpti_SubscriberHandle subscriber)
NOTHING(cuptiEnableCallback, uint32_t on, CUpti_SubscriberHandle subscriber,
        CUpti_CallbackDomain domain, CUpti_CallbackId id)
NOTHING(cuptiSetThreadIdType, CUpti_ActivityThreadIdType type)
NOTHING(cuptiActivityEnable, CUpti_ActivityKind kind)
NOTHING(cuptiActivityEnableAndDump, CUpti_ActivityKind kind)
NOTHING(cuptiActivityDisable, CUpti_ActivityKind kind)
NOTHING(cuptiActivityEnableDriverApi, CUpti_CallbackId id, uint8_t on)
NOTHING(cuptiActivityEnableRuntimeApi, CUpti_CallbackId id, uint8_t on)

int InitializeInjectionNvtx2(void *table);
int InitializeInjectionNvtx2(void *table)
{
    return 1;
}

/* ---- a GPU ---- */

/* Called by the driver's stand-in where cuInit would. */
void fake_init(void);
void fake_launch(const char *kernel, uint64_t node);
void fake_launch_on(const char *kernel, uint64_t node, uint32_t stream);
void fake_node(uint64_t node, uint64_t from);

void fake_launch(const char *kernel, uint64_t node)
{
    fake_launch_on(kernel, node, 7);
}

void fake_launch_on(const char *kernel, uint64_t node, uint32_t stream)
{
    pthread_mutex_lock(&lock);
    uint64_t at = now();
    CUpti_ActivityAPI call = { .kind = CUPTI_ACTIVITY_KIND_RUNTIME,
                               .start = at,
                               .end = at + 100,
                               .threadId = (uint32_t)syscall(SYS_gettid),
                               .correlationId = ++correlation };
    CUpti_ActivityKernel9 k = { .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                .start = at + 200,
                                .end = at + 1200,
                                .streamId = stream,
                                .correlationId = correlation,
                                .graphNodeId = node,
                                .name = kernel };
    for (int i = 0; i < 2; i++) {
        CUpti_ActivityExternalCorrelation e = {
            .kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
            .externalKind = i ? CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1
                              : CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
            .externalId = labels[i].n ? labels[i].id[labels[i].n - 1] : 0,
            .correlationId = correlation
        };
        if (labels[i].n)
            put(&e, sizeof e);
    }
    put(&call, sizeof call);
    put(&k, sizeof k);
    pthread_mutex_unlock(&lock);
}

/* A node is captured; or, with from, copied. */
void fake_node(uint64_t node, uint64_t from)
{
    CUpti_GraphData graph = { .node = (CUgraphNode)(uintptr_t)node,
                              .originalNode = (CUgraphNode)(uintptr_t)from };
    CUpti_ResourceData resource = { .resourceDescriptor = &graph };
    if (on_callback)
        on_callback(NULL, CUPTI_CB_DOMAIN_RESOURCE,
                    from ? CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED
                         : CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                    &resource);
}
