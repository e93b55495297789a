/*
 * fuzz_native.c - any bytes as a native trace: never a crash, before or after it
 * has been checked; and what passes the check can be written in every format.
 *
 * Size and checksums are made right first, else no damage would get past them.
 */
#include "traces/chrome_write.h"
#include "traces/native.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What a viewer does with a trace that nobody has checked: guarded looks at everything. */
static uint64_t walk(const Timeline *t)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        const Track *track = &t->tracks[k];
        sum += strlen(timeline_text(t, track->name));
        for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
            const Comm *c = timeline_comm_of(t, i);
            sum += strlen(timeline_text(t, t->span_name[i]));
            sum += c ? strlen(timeline_text(t, c->group)) + timeline_ring_steps(t, c) : 0;
            LogicalOps of = timeline_logical_of(t, i);
            for (uint32_t o = 0; o < of.n; o++)
                sum += of.op[o];
        }
        for (uint64_t i = track->point_first; i < track->point_first + track->point_n; i++)
            sum += (uint64_t)t->point_ns[i];
    }
    return sum;
}

static void write_everywhere(const Timeline *t)
{
    Err err = { 0 };
    for (uint64_t i = 0; i < t->spans_n; i++)
        ASSERT(timeline_busbw_bytes_per_ns(t, i) >= 0);
    ASSERT(chrome_write(t, "/dev/null", &err));
    ASSERT(native_write(t, "/dev/null", &err));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t *bytes = mem_zero(n + 8, 1); /* aligned, as a mapping is */
    memcpy(bytes, data, n);
    if (n >= 24)
        memcpy(bytes + 16, &(uint64_t){ n }, 8);
    native_repair_checksums(bytes, n);

    Timeline t;
    Err err = { 0 };
    bool ok = native_open_bytes(&t, bytes, n, "fuzz", &err);
    ASSERT(ok != err.set);
    if (ok) {
        volatile uint64_t walked = walk(&t); /* or the compiler leaves the walk out */
        (void)walked;
        bool valid = native_verify(&t, &err);
        ASSERT(valid != err.set);
        if (valid)
            write_everywhere(&t);
    }
    timeline_free(&t);
    free(bytes);
    return 0;
}
