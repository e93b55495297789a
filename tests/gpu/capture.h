/*
 * capture.h - which kernels ran, and when, as CUPTI's activity records say.
 *
 * One capture a process.  CUPTI hands buffers over on a thread of its own; the callback
 * copies what it needs and leaves.  The lock it takes is never held while CUPTI is called
 * (CUPTI may hold a lock of its own while it waits for the callback).
 */
#ifndef GPU_CAPTURE_H
#define GPU_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CAPTURE_NAME_MAX = 160 };

typedef struct CapturedKernel {
    int64_t start_ns, end_ns;
    uint32_t stream_id;
    char name[CAPTURE_NAME_MAX]; /* mangled, cut */
} CapturedKernel;

/* false: CUPTI refuses; why is its sentence. */
bool capture_start(const char **why);

/* Everything since the last take, sorted by start.  Synchronise the device first.  The
   array is valid until the next take. */
bool capture_take(const CapturedKernel **kernels, size_t *n, const char **why);

/* Stops recording; returns how many records CUPTI had no room for. */
uint64_t capture_stop(void);

#endif
