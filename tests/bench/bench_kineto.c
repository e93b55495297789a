/*
 * bench_kineto.c - how fast Kineto's JSON is read, and what an event costs in memory.
 *
 *     build/tests/bench/bench_kineto [MEGABYTES]      300 by default
 *
 * The input is made here: the mix of events, arguments and layout that PyTorch
 * writes for a training step (a third operators with shapes, a quarter runtime
 * calls, a third flow arrows, a tenth kernels and copies).  GB/s are of JSON, the
 * best of five; plain files by the time of the one core that reads them, gzip by
 * the clock on the wall (zlib has a core of its own).  Exit status 1 when a limit
 * is missed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "traces/kineto.h"

enum { RUNS_N = 5 };

static const double plain_GBps_min = 0.8, gzip_GBps_min = 0.4, bytes_per_event_max = 60;

static double now_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the input ---- */

static const char *const ops[] = { "aten::to",
                                   "aten::linear",
                                   "aten::t",
                                   "aten::addmm",
                                   "aten::empty_strided",
                                   "aten::native_layer_norm",
                                   "autograd::engine::evaluate_function: AddmmBackward0" };

static const char *const kernels[] = {
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>, "
    "at::detail::Array<char*, "
    "1>)",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, "
    "float>(int, float, c10::Half const*, c10::Half const*, c10::Half const*, float*, float*, "
    "c10::Half*)",
    "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
};

static void put_op(FILE *f, unsigned long i, double at_us)
{
    fprintf(
        f,
        "  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"%s\", \"pid\": 2590092, "
        "\"tid\": 2590092,\n    \"ts\": %.3f, \"dur\": %.3f,\n    \"args\": {\n      "
        "\"External id\": %lu,\"Record function id\": 0, \"Concrete Inputs\": [\"\", \"4\", "
        "\"False\", \"False\", \"\"], \"Input type\": [\"long int\", \"Scalar\", \"Scalar\"], "
        "\"Input Dims\": [[4, 2048], [], []], \"Ev Idx\": %lu\n    }\n  },\n",
        ops[i % ARRAY_N(ops)], at_us, 17.25 + (double)(i % 50), i, i);
}

static void put_launch(FILE *f, unsigned long i, double at_us)
{
    fprintf(
        f,
        "  {\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"%s\", \"pid\": "
        "2590092, \"tid\": 2590092,\n    \"ts\": %.3f, \"dur\": %.3f,\n    \"args\": {\n      "
        "\"External id\": %lu, \"cbid\": 211, \"correlation\": %lu\n    }\n  },\n",
        i % 3 ? "cudaLaunchKernel" : "cudaStreamIsCapturing", at_us, 5.5, i, i);
}

static void put_flow(FILE *f, unsigned long i, double at_us, char ph)
{
    fprintf(
        f,
        "  {\n    \"ph\": \"%c\", \"id\": %lu, \"pid\": %d, \"tid\": %d, \"ts\": %.3f,\n    "
        "\"cat\": \"ac2g\", \"name\": \"ac2g\"%s\n  },\n",
        ph, i, ph == 's' ? 2590092 : 0, ph == 's' ? 2590092 : 7, at_us,
        ph == 's' ? "" : ", \"bp\": \"e\"");
}

static void put_kernel(FILE *f, unsigned long i, double at_us)
{
    fprintf(
        f,
        "  {\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"%s\", \"pid\": 0, \"tid\": "
        "%d,\n    \"ts\": %.3f, \"dur\": %.3f,\n    \"args\": {\n      \"External id\": %lu, "
        "\"queued\": 0, \"device\": 0, \"context\": 1,\n      \"stream\": %d, \"correlation\": "
        "%lu,\n      \"registers per thread\": 96,\n      \"shared memory\": 88016,\n      "
        "\"blocks per SM\": 0.22222222,\n      \"warps per SM\": 3.777778,\n      \"grid\": "
        "[24, 1, 1],\n      \"block\": [544, 1, 1],\n      \"est. achieved occupancy %%\": 0\n"
        "    }\n  },\n",
        kernels[i % 4], i % 4 == 3 ? 24 : 7, at_us, 8.125, i, i % 4 == 3 ? 24 : 7, i);
}

static void make_input(const char *path, double bytes_wanted)
{
    FILE *f = fopen(path, "w");
    ASSERT(f);
    fprintf(f, "{\n  \"schemaVersion\": 1,\n  \"distributedInfo\": {\"backend\": \"nccl\", "
               "\"rank\": 0, \"world_size\": 8},\n  \"traceEvents\": [\n");
    for (unsigned long i = 1; (double)ftell(f) < bytes_wanted; i++) {
        double at_us = 4458676400000.0 + 20 * (double)i;
        for (unsigned long j = 0; j < 4; j++)
            put_op(f, 4 * i + j, at_us + 4 * (double)j);
        for (unsigned long j = 0; j < 3; j++)
            put_launch(f, 3 * i + j, at_us + 1 + 4 * (double)j);
        for (unsigned long j = 0; j < 3; j++)
            put_flow(f, 3 * i + j, at_us + 1 + 4 * (double)j, j == 0 ? 's' : 'f');
        put_kernel(f, 3 * i + 1, at_us + 12);
    }
    fprintf(
        f,
        "  {\n    \"name\": \"Record Window End\", \"ph\": \"i\", \"s\": \"g\",\n    "
        "\"pid\": \"\", \"tid\": \"\", \"ts\": 4458676400000.000\n  }\n  ],\n  "
        "\"traceName\": \"made.json\",\n  \"baseTimeNanoseconds\": 1711964646000000000\n}\n");
    ASSERT(fclose(f) == 0);
}

static void pack(const char *from, const char *to)
{
    static char block[1 << 18];
    FILE *in = fopen(from, "r");
    gzFile out = gzopen(to, "wb6");
    ASSERT(in && out);
    for (size_t n; (n = fread(block, 1, sizeof block, in)) > 0;)
        ASSERT(gzwrite(out, block, (unsigned)n) == (int)n);
    fclose(in);
    ASSERT(gzclose(out) == Z_OK);
}

/* ---- reading it ---- */

static double peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return 1024.0 * (double)usage.ru_maxrss;
}

/* The best time of several; events of the file. */
static double best_s(const char *path, const Rules *rules, clockid_t clock, int runs_n,
                     uint64_t *events_n)
{
    double best = 1e30;
    for (int run = 0; run < runs_n; run++) {
        Timeline t;
        TraceInfo info;
        Err err = { 0 };
        double start = now_s(clock);
        if (!kineto_read(&t, &info, path, rules, &err)) {
            fprintf(stderr, "bench_kineto: %s\n", err.text);
            exit(1);
        }
        double took = now_s(clock) - start;
        best = took < best ? took : best;
        *events_n = info.events_read;
        ASSERT(info.events_skipped == 0);
        timeline_free(&t);
    }
    return best;
}

static bool verdict(const char *what, double value, const char *unit, double limit, bool ok)
{
    printf("  %-22s %7.2f %s (%s %.1f)%s\n", what, value, unit, ok ? "limit" : "LIMIT", limit,
           ok ? "" : "  MISSED");
    return ok;
}

int main(int argc, char **argv)
{
    double megabytes = argc > 1 ? strtod(argv[1], NULL) : 300;
    char folder[] = P_tmpdir "/lockstep-bench-XXXXXX", plain[64], packed[64];
    Rules rules;
    Err err = { 0 };
    if (!(megabytes > 0) || !mkdtemp(folder) || !rules_read(&rules, NULL, 0, &err)) {
        fprintf(stderr, "bench_kineto: %s\n", err.set ? err.text : "cannot begin");
        return 1;
    }
    snprintf(plain, sizeof plain, "%s/t.json", folder);
    snprintf(packed, sizeof packed, "%s/t.json.gz", folder);
    make_input(plain, 1e6 * megabytes);
    pack(plain, packed);
    struct stat info;
    ASSERT(stat(plain, &info) == 0);
    double json_GB = 1e-9 * (double)info.st_size;

    uint64_t events_n = 0;
    double before_bytes = peak_bytes();
    best_s(plain, &rules, CLOCK_MONOTONIC, 1, &events_n); /* as a command reads it: once */
    double per_event = (peak_bytes() - before_bytes) / (double)events_n;
    double plain_s = best_s(plain, &rules, CLOCK_PROCESS_CPUTIME_ID, RUNS_N, &events_n);
    double gzip_s = best_s(packed, &rules, CLOCK_MONOTONIC, RUNS_N, &events_n);
    printf("%.2f GB of JSON, %" PRIu64 " events, %.0f bytes each\n", json_GB, events_n,
           1e9 * json_GB / (double)events_n);
    bool ok = verdict("plain", json_GB / plain_s, "GB/s", plain_GBps_min,
                      json_GB / plain_s >= plain_GBps_min);
    ok &= verdict("gzip", json_GB / gzip_s, "GB/s", gzip_GBps_min,
                  json_GB / gzip_s >= gzip_GBps_min);
    ok &= verdict("memory", per_event, "bytes/event", bytes_per_event_max,
                  per_event <= bytes_per_event_max);
    unlink(plain);
    unlink(packed);
    rmdir(folder);
    rules_free(&rules);
    return ok ? 0 : 1;
}
