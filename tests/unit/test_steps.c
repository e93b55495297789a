/* Steps in GPU time: the host runs ahead, and no work changes its step because of it. */
#include <stdio.h>

#include "profile/launches.h"
#include "profile/steps.h"

#include "tests/check.h"

typedef struct Made {
    Timeline t;
    uint32_t host, stream, steps;
} Made;

static Made made(uint32_t rank)
{
    Made m = { 0 };
    timeline_want(&m.t, true, false);
    m.steps = timeline_track(&m.t, rank, TRACK_STEPS, "steps", 0);
    m.stream = timeline_track(&m.t, rank, TRACK_STREAM, "stream 7", 7);
    m.host = timeline_track(&m.t, rank, TRACK_HOST, "thread", 0);
    return m;
}

static void put(Made *m, uint32_t track, SpanClass class_, const char *name, int64_t from,
                int64_t to, uint64_t correlation)
{
    uint64_t i = timeline_span(&m->t, (Span){ .track = track,
                                              .name = intern(&m->t.names, name),
                                              .class_ = class_,
                                              .start_ns = from,
                                              .dur_ns = to - from,
                                              .op = NONE_U32,
                                              .comm = NONE_U32 });
    m->t.correlation[i] = correlation;
}

static void check_window(const StepWindows *w, uint32_t i, int64_t step, int64_t from,
                         int64_t to)
{
    if (!CHECK(i < w->n))
        return;
    CHECK_INT(step, w->at[i].step);
    CHECK_INT(from, w->at[i].from_ns);
    CHECK_INT(to, w->at[i].to_ns);
}

/*
 *     marks  |0    4   100|100   5   200|200    6   300|
 *     GPU        20  a  150   160 b 250     260 c 280
 */
static void a_step_has_what_it_launched(uint64_t stride)
{
    Made m = made(0);
    StepWindows w;
    for (uint64_t k = 0; k < 3; k++) {
        char name[40];
        snprintf(name, sizeof name, "ProfilerStep#%d", (int)(4 + k));
        put(&m, m.steps, SPAN_STEP, name, (int64_t)k * 100, (int64_t)k * 100 + 100, NONE_U64);
        put(&m, m.host, SPAN_LAUNCH, "cudaLaunchKernel", (int64_t)k * 100 + 10,
            (int64_t)k * 100 + 12, 7 + k * stride);
    }
    put(&m, m.stream, SPAN_COMPUTE, "a", 20, 150, 7);
    put(&m, m.stream, SPAN_COMPUTE, "b", 160, 250, 7 + stride);
    put(&m, m.stream, SPAN_COMPUTE, "c", 260, 280, 7 + 2 * stride);
    timeline_seal(&m.t);
    step_windows_in_gpu_time(&w, &m.t);
    CHECK_INT(3, w.n);
    check_window(&w, 0, 4, 0, 160);
    check_window(&w, 1, 5, 160, 260);
    check_window(&w, 2, 6, 260, 300);
    step_windows_free(&w);
    timeline_free(&m.t);
}

static void ids_close_together_and_far_apart(void)
{
    a_step_has_what_it_launched(1);
    a_step_has_what_it_launched(1000000);
}

/* Nobody says what was launched when: an op is of the step it starts in. */
static void without_launches_starts_decide(void)
{
    Made m = made(0);
    StepWindows w;
    put(&m, m.steps, SPAN_STEP, "ProfilerStep#1", 0, 100, NONE_U64);
    put(&m, m.steps, SPAN_STEP, "ProfilerStep#2", 100, 200, NONE_U64);
    put(&m, m.stream, SPAN_COMPUTE, "a", 20, 130, NONE_U64);
    put(&m, m.stream, SPAN_COMPUTE, "b", 140, 210, NONE_U64);
    timeline_seal(&m.t);
    step_windows_in_gpu_time(&w, &m.t);
    check_window(&w, 0, 1, 0, 140);
    check_window(&w, 1, 2, 140, 210);
    step_windows_free(&w);
    timeline_free(&m.t);
}

/* A rank that marks nothing has the steps of the one that does; an idle one its own marks. */
static void ranks_without_marks_or_work(void)
{
    Made m = made(1);
    StepWindows w;
    uint32_t other = timeline_track(&m.t, 3, TRACK_STREAM, "stream 7", 7);
    uint32_t idle = timeline_track(&m.t, 2, TRACK_STEPS, "steps", 0);
    put(&m, m.steps, SPAN_STEP, "step 1", 0, 100, NONE_U64);
    put(&m, idle, SPAN_STEP, "step 1", 5, 95, NONE_U64);
    put(&m, m.stream, SPAN_COMPUTE, "a", 20, 30, NONE_U64);
    put(&m, other, SPAN_COMPUTE, "b", 40, 120, NONE_U64);
    timeline_seal(&m.t);
    step_windows_in_gpu_time(&w, &m.t);
    CHECK_INT(3, w.n);
    check_window(&w, 0, 1, 0, 100);
    check_window(&w, 1, 1, 5, 95);
    check_window(&w, 2, 1, 0, 120);
    CHECK_INT(3, w.at[2].rank);
    step_windows_free(&w);
    timeline_free(&m.t);
}

static void a_trace_without_marks_has_no_windows(void)
{
    Made m = made(0);
    StepWindows w;
    GpuSteps s;
    put(&m, m.stream, SPAN_COMPUTE, "a", 20, 30, NONE_U64);
    timeline_seal(&m.t);
    step_windows_in_gpu_time(&w, &m.t);
    CHECK_INT(0, w.n);
    gpu_steps_find(&s, &m.t);
    CHECK_INT(1, s.ranks_n);
    CHECK_INT(0, rank_step_numbered(&s.ranks[0], 7));
    CHECK_INT(20, s.ranks[0].begin_ns[0]);
    CHECK_INT(30, s.ranks[0].end_ns[0]);
    gpu_steps_free(&s);
    step_windows_free(&w);
    timeline_free(&m.t);
}

/* Ids close together, and ids far apart, which take another table. */
static void launches_are_found_by_their_ids(void)
{
    static const uint64_t apart[] = { 1, (uint64_t)1 << 40 };
    for (size_t k = 0; k < ARRAY_N(apart); k++) {
        Launches l;
        launches_open(&l, 5, 5 + 99 * apart[k], 100);
        for (uint64_t i = 0; i < 100; i += 2)
            *launches_at(&l, 5 + i * apart[k]) = (int64_t)i;
        for (uint64_t i = 0; i < 100; i++)
            CHECK_INT(i % 2 ? LAUNCH_UNKNOWN : (int64_t)i, launches_get(&l, 5 + i * apart[k]));
        CHECK_INT(LAUNCH_UNKNOWN, launches_get(&l, 4));
        CHECK_INT(LAUNCH_UNKNOWN, launches_get(&l, 6 + 99 * apart[k]));
        CHECK_INT(LAUNCH_UNKNOWN, launches_get(&l, NONE_U64));
        launches_free(&l);
        CHECK(!launches_any(&l) && launches_get(&l, 5) == LAUNCH_UNKNOWN);
    }
}

int main(void)
{
    RUN(launches_are_found_by_their_ids);
    RUN(ids_close_together_and_far_apart);
    RUN(without_launches_starts_decide);
    RUN(ranks_without_marks_or_work);
    RUN(a_trace_without_marks_has_no_windows);
    return check_report();
}
