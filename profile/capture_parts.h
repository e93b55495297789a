/*
 * capture_parts.h - what the files of the capture plugin share.
 *
 *     program's threads                          CUPTI's thread          the writer's thread
 *     -----------------                          --------------          -------------------
 *     labels, nodes of graphs, NCCL's words -->  sink_put                every second: flush,
 *     records of CUPTI ------------------------> buffer_full  -> queue -> convert, sink_put,
 *                                                                        sink_drain -> file
 *
 * LOCKS.  Two, and neither is held while CUPTI is called, since CUPTI may hold locks of its own
 * while it waits for a callback of ours: the queue's (capture_writer.c) and the sink's
 * (capture_sink.c), which is never taken under the queue's nor the other way round.
 */
#ifndef LOCKSTEP_PROFILE_CAPTURE_PARTS_H
#define LOCKSTEP_PROFILE_CAPTURE_PARTS_H

#include <cupti.h>

#include "core/capture_api.h"
#include "profile/records_format.h"

/* ---- CUPTI's functions, all of the one library that the plugin was linked with ---- */

/*
 * A process may hold two libcupti (PyTorch brings its own); names bound by the linker could
 * then come from both.  Looked up in the plugin's own dependencies instead.
 */
#define CUPTI_FUNCTIONS(X) \
    X(cuptiGetVersion) \
    X(cuptiGetTimestamp) \
    X(cuptiGetResultString) \
    X(cuptiSubscribe) \
    X(cuptiUnsubscribe) \
    X(cuptiEnableCallback) \
    X(cuptiGetCallbackName) \
    X(cuptiGetGraphNodeId) \
    X(cuptiSetThreadIdType) \
    X(cuptiActivityEnable) \
    X(cuptiActivityDisable) \
    X(cuptiActivityRegisterCallbacks) \
    X(cuptiActivityRegisterTimestampCallback) \
    X(cuptiActivityGetNextRecord) \
    X(cuptiActivityGetNumDroppedRecords) \
    X(cuptiActivityFlushAll) \
    X(cuptiActivityPushExternalCorrelationId) \
    X(cuptiActivityPopExternalCorrelationId) \
    CUPTI_FUNCTIONS_NEW(X)

#if CUPTI_API_VERSION >= 130000
#define CUPTI_FUNCTIONS_NEW(X) \
    X(cuptiSubscribe_v2) \
    X(cuptiActivityEnableAndDump) \
    X(cuptiActivityEnableDriverApi) \
    X(cuptiActivityEnableRuntimeApi)
#else
#define CUPTI_FUNCTIONS_NEW(X)
#endif

typedef struct CuptiCalls {
#define CUPTI_MEMBER(name) __typeof__(name) *name;
    CUPTI_FUNCTIONS(CUPTI_MEMBER)
#undef CUPTI_MEMBER
} CuptiCalls;

extern CuptiCalls cupti;

/* ---- capture.c ---- */

bool capture_is_on(void);
int64_t capture_now_ns(void); /* CUPTI's clock */
uint32_t capture_thread_id(void);
/* Time of the program's own threads that the collector took. */
void capture_add_cost(int64_t since_ns);
int64_t capture_cost_ns(void);
/* CLOCK_MONOTONIC. */
int64_t capture_monotonic_ns(void);
/* A launch of NCCL's on this thread begins, and ends: labels what is launched meanwhile. */
void capture_push_launch(uint32_t launch);
void capture_pop_launch(void);
void capture_put_clock(void);
/* Writes a RawTrouble. */
void capture_put_trouble(const char *text);

/* ---- capture_sink.c: records in memory, then in the file ---- */

bool sink_open(const char *path, const RawHead *head, char *why, size_t why_n);
uint32_t sink_text(const char *text);
uint32_t sink_kernel_name(const char *mangled);
void sink_put(const RawTop *record);           /* any thread; counted when there is no room */
void sink_put_and_write(const RawTop *record); /* the writer's: makes room */
void sink_drain(void);                         /* the writer's */
void sink_note_dropped(uint64_t n);
void sink_note_signal(int number);
void sink_note_version(uint32_t cupti_version);
/* Writes the last and closes. */
void sink_close(bool ended, int64_t writer_ns, CaptureTotals *totals);
void sink_forget(void); /* in a forked child: the file is the parent's */

/* ---- capture_writer.c: CUPTI's buffers and the thread that empties them ---- */

bool writer_start(uint32_t cupti_version, char *why, size_t why_n);
void CUPTIAPI writer_buffer_wanted(uint8_t **buffer, size_t *size, size_t *records_max);
void CUPTIAPI writer_buffer_full(CUcontext context, uint32_t stream, uint8_t *buffer,
                                 size_t size, size_t valid);
void writer_stop(void); /* empties what is there and joins the thread */
int64_t writer_cpu_ns(void);
uint64_t writer_refused_n(void); /* buffers that CUPTI wanted and did not get */
/* From a signal's handler: has all written that can be, in at most two seconds. */
void writer_rescue(int number);

#endif
