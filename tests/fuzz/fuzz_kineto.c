/*
 * fuzz_kineto.c - any bytes as Chrome or Kineto JSON: never a crash, always a
 * sound timeline or a sentence; what was read can be written in every format; and the
 * window that slides over the text, however small it is, changes nothing.
 */
#include "traces/chrome_write.h"
#include "traces/kineto_parts.h"
#include "traces/native.h"

#include <string.h>

enum { WINDOW_BYTES = 1 << 13, BLANKS_MAX = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const Rules *rules_once(void)
{
    static Rules rules;
    Err err = { 0 };
    if (rules.n == 0)
        ASSERT(rules_read(&rules, NULL, 0, &err));
    return &rules;
}

static bool is_packed(const uint8_t *data, size_t n)
{
    return n >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}

static void check_offsets(const Timeline *t, const uint8_t *data, size_t n)
{
    for (uint64_t i = 0; i < t->spans_n && !is_packed(data, n); i++)
        ASSERT(t->args_offset[i] < n && data[t->args_offset[i]] == '{');
}

/*
 * Whether there is what depends on the window.  After damage the reader looks for an event over
 * a few blanks only, fewer at a window's edge; and behind what is no document at all it does
 * not look whether the gzip data are whole.
 */
static bool depends_on_window(const uint8_t *data, size_t n)
{
    size_t run = 0;
    if (is_packed(data, n))
        return true;
    for (size_t i = 0; i < n && run <= BLANKS_MAX; i++)
        run = data[i] <= ' ' ? run + 1 : 0;
    return run > BLANKS_MAX;
}

static void check_same(const Timeline *a, const Timeline *b)
{
    ASSERT(a->spans_n == b->spans_n && a->points_n == b->points_n && a->comms_n == b->comms_n);
    ASSERT(a->tracks_n == b->tracks_n && a->ranks_n == b->ranks_n);
    for (uint64_t i = 0; i < a->spans_n; i++) {
        ASSERT(a->start_ns[i] == b->start_ns[i] && a->dur_ns[i] == b->dur_ns[i]);
        ASSERT(a->args_offset[i] == b->args_offset[i] && a->span_class[i] == b->span_class[i]);
        ASSERT(strcmp(timeline_text(a, a->span_name[i]), timeline_text(b, b->span_name[i])) ==
               0);
    }
    for (uint64_t i = 0; i < a->points_n; i++)
        ASSERT(a->point_ns[i] == b->point_ns[i]);
}

/* The same through a window that slides many times. */
static void read_by_peepholes(const Timeline *t, const TraceInfo *info, const uint8_t *data,
                              size_t n)
{
    Timeline other;
    TraceInfo other_info;
    Err err = { 0 };
    ASSERT(kineto_read_bytes(&other, &other_info, data, n, "fuzz", 64 + n % 512, rules_once(),
                             &err));
    ASSERT(info->events_read == other_info.events_read);
    ASSERT(info->events_skipped == other_info.events_skipped);
    check_same(t, &other);
    timeline_free(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Timeline t;
    TraceInfo info;
    Err err = { 0 };
    bool ok = kineto_read_bytes(&t, &info, data, n, "fuzz", WINDOW_BYTES, rules_once(), &err);
    ASSERT(ok != err.set);
    if (ok) {
        ASSERT(timeline_check(&t, &err));
        ASSERT(info.damage_n <= TRACE_DAMAGE_KEPT && info.damage_n <= info.events_skipped);
        check_offsets(&t, data, n);
    }
    /* Each of the slower checks for some inputs. */
    if (ok && n % 4 == 0 && !depends_on_window(data, n))
        read_by_peepholes(&t, &info, data, n);
    if (ok && n % 8 == 1)
        ASSERT(chrome_write(&t, "/dev/null", &err) && native_write(&t, "/dev/null", &err));
    timeline_free(&t);
    return 0;
}
