/*
 * bench_report.c - how fast a report is, beside its limits.
 *
 *     bench_report [SPANS]      10 million when not said
 *
 * The spans are those of 8 ranks, each with a compute stream, a communication
 * stream and a host thread that launches both.  Times are of the processor for the
 * report, of the wall where files are read by several threads; a limit that is
 * missed makes the exit status 1.
 */
#include "profile/cmd_report_html.h"
#include "tests/real_traces.h"

#include <stdlib.h>
#include <time.h>

enum { RANKS_N = 8, NAMES_N = 400, LAYER = 8 };

static const double report_limit_s = 1.0, command_limit_s = 0.3;

static double clock_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The report is one thread: its processor time is what it takes on a machine of its own. */
static double now_s(void)
{
    return clock_s(CLOCK_PROCESS_CPUTIME_ID);
}

static uint64_t put(Timeline *t, uint32_t track, SpanClass class_, int64_t start_ns,
                    int64_t dur_ns, uint64_t id)
{
    uint64_t i = timeline_span(t, (Span){ .track = track,
                                          .name = (uint32_t)(mix_u64(id) % NAMES_N),
                                          .class_ = class_,
                                          .start_ns = start_ns,
                                          .dur_ns = dur_ns,
                                          .op = NONE_U32,
                                          .comm = NONE_U32 });
    t->correlation[i] = id;
    return i;
}

/* Every eighth kernel a collective, which waits for the slowest rank. */
static void build_rank(Timeline *t, uint32_t rank, uint64_t kernels_n, uint32_t op,
                       uint32_t group)
{
    uint32_t compute = timeline_track(t, rank, TRACK_STREAM, "stream 7", 7);
    uint32_t comm = timeline_track(t, rank, TRACK_STREAM, "stream 20", 20);
    uint32_t host = timeline_track(t, rank, TRACK_HOST, "thread 1", 1);
    for (uint64_t i = 0; i < kernels_n; i++) {
        uint64_t random = mix_u64(i * RANKS_N + rank);
        int64_t at = 20000 * (int64_t)i + (int64_t)(random % 3000);
        put(t, host, SPAN_LAUNCH, at, 4000, i);
        if (i % LAYER != LAYER - 1) {
            put(t, compute, SPAN_COMPUTE, at + 6000, (int64_t)(8000 + random % 9000), i);
            continue;
        }
        uint64_t span = put(t, comm, SPAN_COMM, at + 6000, 60000 - (int64_t)(random % 3000), i);
        Comm c = comm_of(op);
        c.group = group;
        c.seq = (uint32_t)(i / LAYER);
        c.bytes = 1 << (16 + i / LAYER % 8);
        c.ranks_n = RANKS_N;
        t->comm[span] = timeline_comm(t, c);
    }
}

static void build(Timeline *t, uint64_t spans_n)
{
    timeline_want(t, true, false);
    for (uint32_t i = 0; i < NAMES_N; i++) {
        char name[32];
        snprintf(name, sizeof name, "kernel %u", i);
        intern(&t->names, name);
    }
    uint32_t op = intern(&t->names, "all_reduce"), group = intern(&t->names, "dp");
    for (uint32_t rank = 0; rank < RANKS_N; rank++)
        build_rank(t, rank, spans_n / RANKS_N / 2, op, group);
    timeline_seal(t);
}

static void stop_on(bool ok, const Err *err)
{
    if (ok)
        return;
    fprintf(stderr, "bench_report: %s\n", err->text);
    exit(1);
}

/* Prints to nowhere: the writing of it counts too. */
static double report_s(const Timeline *t, bool page)
{
    TraceSource source = { .name = "bench" };
    TraceReportOptions options = { .step = -1, .top = 10 };
    TraceReport r;
    Err err = { 0 };
    double begin_s = now_s();
    stop_on(trace_report_make(&r, t, &source, &options, &err), &err);
    FILE *out = fopen("/dev/null", "w");
    if (page)
        report_page(&r, out);
    else
        trace_report_text(&r, out);
    fclose(out);
    trace_report_free(&r);
    return now_s() - begin_s;
}

static double best_report_s(const Timeline *t, bool page)
{
    double best_s = report_s(t, page);
    for (int i = 0; i < 2; i++) {
        double s = report_s(t, page);
        best_s = s < best_s ? s : best_s;
    }
    return best_s;
}

static bool say(const char *what, double s, double limit_s)
{
    printf("%-52s %7.3f s, limit %.3f s%s\n", what, s, limit_s, s > limit_s ? "  MISSED" : "");
    return s <= limit_s;
}

static bool bench_parts(const Timeline *t)
{
    Covers covers;
    Collectives c;
    Gaps g;
    double times_s[4];
    times_s[0] = now_s();
    covers_build(&covers, t);
    times_s[1] = now_s();
    collectives_find(&c, t, &covers, NULL);
    times_s[2] = now_s();
    gaps_find(&g, t, &covers, NULL, 10);
    times_s[3] = now_s();
    printf("%" PRIu64 " spans: covers %.3f s, %" PRIu64 " collectives %.3f s, gaps %.3f s\n",
           t->spans_n, times_s[1] - times_s[0], c.matches_n, times_s[2] - times_s[1],
           times_s[3] - times_s[2]);
    gaps_free(&g);
    collectives_free(&c);
    covers_free(&covers);
    return true;
}

/* What the whole command does for eight recorded files, the best of three. */
static bool bench_files(void)
{
    double best_s = 1e9;
    for (int i = 0; i < 3; i++) {
        TraceSet set;
        Err err = { 0 };
        double begin_s = clock_s(CLOCK_MONOTONIC);
        stop_on(real_read(&set, &real_traces[0], &err), &err);
        report_s(&set.timeline, false);
        trace_set_free(&set);
        double s = clock_s(CLOCK_MONOTONIC) - begin_s;
        best_s = s < best_s ? s : best_s;
    }
    return say("reading and reporting eight recorded files", best_s, command_limit_s);
}

int main(int argc, char **argv)
{
    uint64_t spans_n = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    Timeline t = { 0 };
    build(&t, spans_n);
    bool ok = bench_parts(&t);
    ok &= say("report of a trace in memory", best_report_s(&t, false), report_limit_s);
    ok &= say("the same as a page, with its strips", best_report_s(&t, true), report_limit_s);
    timeline_free(&t);
    if (real_traces_are_here())
        ok &= bench_files();
    return ok ? 0 : 1;
}
