/*
 * capture.c - see capture.h.  Records are read by their first fields only: a newer
 * library may deliver longer ones with the same beginning.
 */
#include "capture.h"

#include <cupti.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_try.h"

#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 KernelRecord;
#else
typedef CUpti_ActivityKernel9 KernelRecord;
#endif

enum { BUFFER_BYTES = 4 << 20, BUFFER_ALIGN = 64 };

typedef struct KernelList {
    CapturedKernel *kernel;
    size_t n, cap;
} KernelList;

static pthread_mutex_t arrived_lock = PTHREAD_MUTEX_INITIALIZER;
static KernelList arrived; /* under arrived_lock */
static KernelList taken;   /* the main thread's */
static uint64_t dropped_n; /* under arrived_lock */

static void append(const KernelRecord *record)
{
    CapturedKernel k = { .start_ns = (int64_t)record->start,
                         .end_ns = (int64_t)record->end,
                         .stream_id = record->streamId };
    if (record->name)
        strncpy(k.name, record->name, sizeof k.name - 1);

    pthread_mutex_lock(&arrived_lock);
    if (arrived.n == arrived.cap) {
        size_t cap = arrived.cap ? 2 * arrived.cap : 1024;
        CapturedKernel *grown = realloc(arrived.kernel, cap * sizeof *grown);
        if (!grown)
            try_failed("realloc", "no memory for kernel records", 0, __FILE__, __LINE__);
        arrived.kernel = grown;
        arrived.cap = cap;
    }
    arrived.kernel[arrived.n++] = k;
    pthread_mutex_unlock(&arrived_lock);
}

static void CUPTIAPI buffer_wanted(uint8_t **buffer, size_t *size, size_t *records_max)
{
    *buffer = aligned_alloc(BUFFER_ALIGN, BUFFER_BYTES);
    if (!*buffer)
        try_failed("aligned_alloc", "no memory for a CUPTI buffer", 0, __FILE__, __LINE__);
    *size = BUFFER_BYTES;
    *records_max = 0; /* as many as fit */
}

static void CUPTIAPI buffer_full(CUcontext context, uint32_t stream, uint8_t *buffer,
                                 size_t size, size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)size;
    while (valid && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
            append((const KernelRecord *)(const void *)record);
    if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS &&
        dropped) {
        pthread_mutex_lock(&arrived_lock);
        dropped_n += dropped;
        pthread_mutex_unlock(&arrived_lock);
    }
    free(buffer);
}

static bool succeeded(CUptiResult rc, const char **why)
{
    if (rc == CUPTI_SUCCESS)
        return true;
    *why = "unknown error";
    (void)cuptiGetResultString(rc, why);
    return false;
}

bool capture_start(const char **why)
{
    return succeeded(cuptiActivityRegisterCallbacks(buffer_wanted, buffer_full), why) &&
           succeeded(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), why);
}

static int by_start(const void *a, const void *b)
{
    const CapturedKernel *x = a, *y = b;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

bool capture_take(const CapturedKernel **kernels, size_t *n, const char **why)
{
    if (!succeeded(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), why))
        return false;
    pthread_mutex_lock(&arrived_lock);
    KernelList old = taken;
    taken = arrived;
    arrived = (KernelList){ .kernel = old.kernel, .cap = old.cap };
    pthread_mutex_unlock(&arrived_lock);

    if (taken.n)
        qsort(taken.kernel, taken.n, sizeof *taken.kernel, by_start);
    *kernels = taken.kernel;
    *n = taken.n;
    return true;
}

uint64_t capture_stop(void)
{
    (void)cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    (void)cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    pthread_mutex_lock(&arrived_lock);
    uint64_t dropped = dropped_n;
    pthread_mutex_unlock(&arrived_lock);
    return dropped;
}
