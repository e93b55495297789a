/*
 * bench_trace.h - traces for the benches of the viewer: tracks of short events with bursts of
 * idleness, the same every time.
 */
#ifndef LOCKSTEP_TESTS_BENCH_TRACE_H
#define LOCKSTEP_TESTS_BENCH_TRACE_H

#include "core/timeline.h"

/* n spans from 0 on, named by interned ids name_first to name_first + names_n - 1. */
static inline void bench_spans(Timeline *t, uint32_t track, SpanClass class_, uint64_t n,
                               uint32_t name_first, uint32_t names_n, uint64_t *seed)
{
    int64_t at_ns = 0;
    for (uint64_t i = 0; i < n; i++) {
        *seed = mix_u64(*seed);
        int64_t dur_ns = 500 + (int64_t)(*seed % 20000), gap = (int64_t)((*seed >> 32) % 2000);
        if ((*seed >> 48) % 500 == 0)
            gap += 1000000; /* bursts */
        timeline_span(t, (Span){ .track = track,
                                 .name = name_first + (uint32_t)((*seed >> 20) % names_n),
                                 .class_ = class_,
                                 .start_ns = at_ns,
                                 .dur_ns = dur_ns,
                                 .op = NONE_U32,
                                 .comm = NONE_U32 });
        at_ns += dur_ns + gap;
    }
}

#endif
