/*
 * bench_timeline.c - how fast timelines are built, sealed, written and opened.
 *
 *     bench_timeline [SPANS]      10 million when not said
 *
 * The spans are those of 16 ranks with three streams and a host thread each,
 * coming interleaved, every 16th one a collective.  Times are CPU seconds.
 */
#include "core/timeline.h"
#include "traces/chrome_write.h"
#include "traces/native.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TRACKS_N = 64, NAMES_N = 500 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop_on(bool ok, const Err *err)
{
    if (ok)
        return;
    fprintf(stderr, "bench_timeline: %s\n", err->text);
    exit(1);
}

/* How far apart the i-th span stands from its place, by kind of disorder. */
typedef enum Order { ORDER_GROUPED, ORDER_INTERLEAVED, ORDER_NEARLY, ORDER_RANDOM } Order;

static const char *const order_names[] = { "tracks one after another", "tracks interleaved",
                                           "nearly sorted, overlapping",
                                           "one track, random order" };

static Span span_of(Timeline *t, Order order, uint64_t i, uint64_t n)
{
    uint64_t r = mix_u64(i);
    Span s = { .track = (uint32_t)(i % TRACKS_N),
               .name = (uint32_t)(r % NAMES_N),
               .class_ = SPAN_COMPUTE,
               .start_ns = (int64_t)(i / TRACKS_N) * 20000,
               .dur_ns = (int64_t)(r % 20000),
               .op = (uint32_t)(r % 100000),
               .comm = NONE_U32 };
    if (order == ORDER_GROUPED) {
        s.track = (uint32_t)(i / (n / TRACKS_N + 1));
        s.start_ns = (int64_t)i * 20000;
    }
    if (order == ORDER_NEARLY)
        s.start_ns += (int64_t)(r >> 32) % 60000;
    if (order == ORDER_RANDOM) {
        s.track = 1;
        s.start_ns = (int64_t)(r >> 20);
    }
    bool host = t->tracks[s.track].kind == TRACK_HOST;
    s.class_ = host ? SPAN_LAUNCH : SPAN_COMPUTE;
    if (i % 16 != 5 || host)
        return s;
    Comm c = comm_of(NAMES_N); /* all_reduce */
    c.group = NAMES_N + 1;
    c.bytes = r % (1 << 26);
    c.ranks_n = 16;
    c.wait_ns = s.dur_ns / 3;
    s.class_ = SPAN_COMM;
    s.comm = timeline_comm(t, c);
    return s;
}

static void build(Timeline *t, Order order, uint64_t n)
{
    char name[64];
    for (int i = 0; i < NAMES_N; i++) {
        snprintf(name, sizeof name, "void cutlass::Kernel_%d<sm80_bf16_128x256_tn>", i);
        intern(&t->names, name);
    }
    intern(&t->names, "all_reduce");
    intern(&t->names, "dp");
    for (uint32_t k = 0; k < TRACKS_N; k++)
        timeline_track(t, k / 4, k % 4 == 0 ? TRACK_HOST : TRACK_STREAM, "track", k % 4);
    for (uint64_t i = 0; i < n; i++)
        timeline_span(t, span_of(t, order, i, n));
}

static void bench_sealing(Order order, uint64_t n)
{
    Timeline t = { 0 };
    double start = now_s();
    build(&t, order, n);
    double built = now_s();
    timeline_seal(&t);
    double sealed = now_s();
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("  build %5.2f s, seal %5.2f s, at most %5.1f bytes a span so far: %s\n",
           built - start, sealed - built, 1024.0 * (double)usage.ru_maxrss / (double)n,
           order_names[order]);
    timeline_free(&t);
}

static double file_GB(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? 1e-9 * (double)info.st_size : 0;
}

static void bench_native(const Timeline *t, const char *path)
{
    Err err = { 0 };
    Timeline back;
    double start = now_s();
    stop_on(native_write(t, path, &err), &err);
    double wrote = now_s();
    stop_on(native_open(&back, path, &err), &err);
    double opened = now_s();
    stop_on(native_verify(&back, &err), &err);
    double verified = now_s();
    printf("  native %.2f GB: write %.2f s, open %.4f s, verify %.2f s\n", file_GB(path),
           wrote - start, opened - wrote, verified - opened);
    timeline_free(&back);
    unlink(path);
}

static void bench_chrome(const Timeline *t, const char *path, double json_GB)
{
    Err err = { 0 };
    double start = now_s();
    stop_on(chrome_write(t, path, &err), &err);
    double took_s = now_s() - start, wrote_GB = file_GB(path);
    if (json_GB == 0)
        json_GB = wrote_GB;
    printf("  chrome %.2f GB of JSON in %.2f GB: %.2f s, %.0f MB/s of JSON\n", json_GB,
           wrote_GB, took_s, 1000 * json_GB / took_s);
}

int main(int argc, char **argv)
{
    uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    char folder[] = P_tmpdir "/lockstep-bench-XXXXXX", path[64];
    if (n == 0 || !mkdtemp(folder))
        return 1;
    printf("%" PRIu64 " spans\n", n);
    for (Order order = ORDER_GROUPED; order <= ORDER_RANDOM; order++)
        bench_sealing(order, n);

    Timeline t = { 0 };
    build(&t, ORDER_INTERLEAVED, n);
    timeline_seal(&t);
    snprintf(path, sizeof path, "%s/t.lstrace", folder);
    bench_native(&t, path);
    timeline_free(&t);

    build(&t, ORDER_INTERLEAVED, n / 10);
    timeline_seal(&t);
    snprintf(path, sizeof path, "%s/t.json", folder);
    bench_chrome(&t, path, 0);
    double json_GB = file_GB(path);
    unlink(path);
    snprintf(path, sizeof path, "%s/t.json.gz", folder);
    bench_chrome(&t, path, json_GB);
    unlink(path);
    timeline_free(&t);
    rmdir(folder);
    return 0;
}
