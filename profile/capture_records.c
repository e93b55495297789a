/*
 * capture_records.c - see capture_records.h.
 *
 * The typedefs are those of the toolkit at hand: what is newest in CUDA 13.0, else what
 * CUDA 11.8 to 12 have in common.
 */
#include "profile/capture_records.h"

#include <string.h>

/* CAPTURE_OLD_RECORDS: the test compiles this file a second time, with the old structs. */
#if CUPTI_API_VERSION >= 130000 && !defined(CAPTURE_OLD_RECORDS)
typedef CUpti_ActivityKernel10 Kernel;
typedef CUpti_ActivityMemcpy6 Memcpy;
typedef CUpti_ActivityMemcpyPtoP4 MemcpyPeer;
typedef CUpti_ActivitySynchronization2 Sync;
typedef CUpti_ActivityCudaEvent2 Event;
typedef CUpti_ActivityOverhead3 Overhead;
typedef CUpti_ActivityDevice5 Device;
#define HAS_EVENT_RECORD  1
#define HAS_OVERHEAD_CALL 1
#elif CUPTI_API_VERSION >= 18
typedef CUpti_ActivityKernel9 Kernel;
typedef CUpti_ActivityMemcpy5 Memcpy;
typedef CUpti_ActivityMemcpyPtoP4 MemcpyPeer;
typedef CUpti_ActivitySynchronization Sync;
typedef CUpti_ActivityCudaEvent Event;
typedef CUpti_ActivityOverhead Overhead;
typedef CUpti_ActivityDevice4 Device;
#define HAS_EVENT_RECORD  0
#define HAS_OVERHEAD_CALL 0
#else
#error "the collector needs CUPTI of CUDA 11.8 or newer"
#endif
typedef CUpti_ActivityMemset4 Memset;
typedef CUpti_ActivityMarker2 Marker;

/* What both generations must agree on, where the toolkit has both. */
#if CUPTI_API_VERSION >= 130000
#define SAME_PLACE(New, Old, field) \
    _Static_assert(offsetof(New, field) == offsetof(Old, field), #Old "." #field)
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, start);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, streamId);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, correlationId);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, name);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, gridX);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, blockZ);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, registersPerThread);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, dynamicSharedMemory);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, graphNodeId);
SAME_PLACE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy5, bytes);
SAME_PLACE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy5, graphNodeId);
SAME_PLACE(CUpti_ActivitySynchronization2, CUpti_ActivitySynchronization, cudaEventId);
SAME_PLACE(CUpti_ActivityCudaEvent2, CUpti_ActivityCudaEvent, eventId);
SAME_PLACE(CUpti_ActivityOverhead3, CUpti_ActivityOverhead, end);
SAME_PLACE(CUpti_ActivityDevice5, CUpti_ActivityDevice4, id);
SAME_PLACE(CUpti_ActivityDevice5, CUpti_ActivityDevice4, name);
#endif

static int64_t ns(uint64_t at)
{
    return at > INT64_MAX ? 0 : (int64_t)at;
}

/* ---- what ran on the GPU ---- */

/* When and where, which every struct of GPU work says by the same names at places of its own. */
#define TAKE_WORK(to, from) \
    ((to)->start_ns = ns((from)->start), (to)->end_ns = ns((from)->end), \
     (to)->device = (from)->deviceId, (to)->context = (from)->contextId, \
     (to)->stream = (from)->streamId, (to)->correlation = (from)->correlationId, \
     (to)->node = (from)->graphNodeId)

static uint16_t convert_kernel(RawAny *raw, const void *record, const CaptureTexts *texts)
{
    const Kernel *k = record;
    RawKernel *to = RAW_OF(raw, RAW_KERNEL, kernel, texts->kernel(texts->user, k->name));
    TAKE_WORK(to, k);
    to->grid_x = (uint32_t)k->gridX;
    to->grid_y = (uint16_t)k->gridY;
    to->grid_z = (uint16_t)k->gridZ;
    to->block_x = (uint16_t)k->blockX;
    to->block_y = (uint16_t)k->blockY;
    to->block_z = (uint16_t)k->blockZ;
    to->registers_n = k->registersPerThread;
    to->shared_bytes = (uint32_t)k->staticSharedMemory + (uint32_t)k->dynamicSharedMemory;
    return raw->top.bytes;
}

static uint16_t convert_copy(RawAny *raw, const void *record)
{
    const Memcpy *m = record;
    RawMove *to = RAW_OF(raw, RAW_COPY, move, m->copyKind);
    TAKE_WORK(to, m);
    to->size_bytes = m->bytes;
    return raw->top.bytes;
}

static uint16_t convert_peer_copy(RawAny *raw, const void *record)
{
    const MemcpyPeer *m = record;
    RawMove *to = RAW_OF(raw, RAW_COPY, move, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP);
    TAKE_WORK(to, m);
    to->size_bytes = m->bytes;
    return raw->top.bytes;
}

static uint16_t convert_set(RawAny *raw, const void *record)
{
    const Memset *m = record;
    RawMove *to = RAW_OF(raw, RAW_SET, move, 0);
    TAKE_WORK(to, m);
    to->size_bytes = m->bytes;
    return raw->top.bytes;
}

static uint16_t convert_device(RawAny *raw, const void *record, const CaptureTexts *texts)
{
    const Device *d = record;
    RawDevice *to = RAW_OF(raw, RAW_DEVICE, device, d->id);
    to->name = d->name ? texts->text(texts->user, d->name) : 0;
    to->sms = d->numMultiprocessors;
    to->memory_bytes = d->globalMemorySize;
    return raw->top.bytes;
}

/* ---- the host ---- */

static uint16_t convert_call(RawAny *raw, const void *record, const CaptureTexts *texts)
{
    const CUpti_ActivityAPI *c = record;
    bool driver = c->kind == CUPTI_ACTIVITY_KIND_DRIVER;
    RawCall *to = RAW_OF(raw, RAW_CALL, call, texts->call(texts->user, driver, c->cbid));
    to->start_ns = ns(c->start);
    to->end_ns = ns(c->end);
    to->thread = c->threadId;
    to->correlation = c->correlationId;
    to->driver = driver;
    to->result = c->returnValue;
    return raw->top.bytes;
}

/* CUSTOM0: an op, CUSTOM1: a launch of NCCL's; the others are not ours. */
static uint16_t convert_label(RawAny *raw, const void *record)
{
    const CUpti_ActivityExternalCorrelation *e = record;
    if (e->externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 &&
        e->externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1)
        return 0;
    RawLabel *to = RAW_OF(raw, RAW_LABEL, label, e->correlationId);
    to->id = e->externalId;
    to->what = e->externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 ? RAW_OP : RAW_LAUNCH;
    return raw->top.bytes;
}

static uint16_t convert_sync(RawAny *raw, const void *record)
{
    const Sync *s = record;
    RawSync *to = RAW_OF(raw, RAW_SYNC, sync, (uint32_t)s->type);
    to->start_ns = ns(s->start);
    to->end_ns = ns(s->end);
    to->correlation = s->correlationId;
    to->context = s->contextId;
    to->stream = s->streamId;
    to->event = s->cudaEventId;
#if HAS_EVENT_RECORD
    to->event_record = s->cudaEventSyncId;
#endif
    return raw->top.bytes;
}

static uint16_t convert_event(RawAny *raw, const void *record)
{
    const Event *e = record;
    RawEvent *to = RAW_OF(raw, RAW_EVENT, event, e->correlationId);
    to->context = e->contextId;
    to->stream = e->streamId;
    to->event = e->eventId;
#if HAS_EVENT_RECORD
    to->device = e->deviceId;
    to->event_record = e->cudaEventSyncId;
#endif
    return raw->top.bytes;
}

static uint16_t convert_mark(RawAny *raw, const void *record, const CaptureTexts *texts)
{
    const Marker *m = record;
    uint32_t name = m->name ? texts->text(texts->user, m->name) : 0;
    RawMark *to = RAW_OF(raw, RAW_MARK, mark, name);
    to->at_ns = ns(m->timestamp);
    to->id = m->id;
    if (m->objectKind == CUPTI_ACTIVITY_OBJECT_THREAD)
        to->thread = m->objectId.pt.threadId;
    to->flags = (m->flags & CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS ? RAW_MARK_POINT : 0u) |
                (m->flags & CUPTI_ACTIVITY_FLAG_MARKER_START ? RAW_MARK_START : 0u) |
                (m->flags & CUPTI_ACTIVITY_FLAG_MARKER_END ? RAW_MARK_END : 0u);
    to->domain = m->domain ? texts->text(texts->user, m->domain) : 0;
    return raw->top.bytes;
}

static uint16_t convert_cost(RawAny *raw, const void *record)
{
    const Overhead *o = record;
    RawCost *to = RAW_OF(raw, RAW_COST, cost, (uint32_t)o->overheadKind);
    to->start_ns = ns(o->start);
    to->end_ns = ns(o->end);
    if (o->objectKind == CUPTI_ACTIVITY_OBJECT_THREAD)
        to->thread = o->objectId.pt.threadId;
#if HAS_OVERHEAD_CALL
    to->correlation = o->correlationId;
#endif
    return raw->top.bytes;
}

uint16_t capture_convert(RawAny *raw, const CUpti_Activity *record, const CaptureTexts *texts)
{
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return convert_kernel(raw, record, texts);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return convert_copy(raw, record);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        return convert_peer_copy(raw, record);
    case CUPTI_ACTIVITY_KIND_MEMSET:
        return convert_set(raw, record);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
        return convert_call(raw, record, texts);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return convert_label(raw, record);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        return convert_sync(raw, record);
    case CUPTI_ACTIVITY_KIND_CUDA_EVENT:
        return convert_event(raw, record);
    case CUPTI_ACTIVITY_KIND_MARKER:
        return convert_mark(raw, record, texts);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
        return convert_cost(raw, record);
    case CUPTI_ACTIVITY_KIND_DEVICE:
        return convert_device(raw, record, texts);
    default:
        return 0;
    }
}
