/*
 * bench_nsys.c - how fast an export of Nsight Systems is read.
 *
 *     build/tests/bench/bench_nsys [KERNELS]      1 million when not said
 *
 * The export is made here: eight processes, each with a compute and a communication
 * stream; a launch for every kernel.  Rows a second are of the processor's time, the
 * best of three.  Exit status 1 when the limit is missed.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "traces/nsys.h"

enum { RUNS_N = 3, PROCESSES_N = 8, COMM_EVERY = 10, NAMES_N = 200 };

static const double rows_per_us_min = 1.5;

static const char schema[] =
    "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);"
    "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, "
    "streamId INT, correlationId INT, globalPid INT, demangledName INT, shortName INT, "
    "gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT, "
    "registersPerThread INT, staticSharedMemory INT, dynamicSharedMemory INT);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, "
    "correlationId INT, nameId INT);"
    "INSERT INTO StringIds VALUES (0, 'cudaLaunchKernel_v7000'),"
    "(1, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)');";

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(sqlite3 *db, int code)
{
    if (code == SQLITE_OK || code == SQLITE_DONE)
        return;
    fprintf(stderr, "bench_nsys: %s\n", sqlite3_errmsg(db));
    exit(1);
}

/* One statement, once for each of n rows: ?1 is the row's number. */
static void insert(sqlite3 *db, const char *sql, uint64_t n)
{
    sqlite3_stmt *s;
    must(db, sqlite3_prepare_v2(db, sql, -1, &s, NULL));
    for (uint64_t i = 0; i < n; i++) {
        sqlite3_bind_int64(s, 1, (sqlite3_int64)i);
        must(db, sqlite3_step(s));
        sqlite3_reset(s);
    }
    sqlite3_finalize(s);
}

static void make_export(const char *path, uint64_t kernels_n)
{
    sqlite3 *db;
    char sql[512];
    must(NULL, sqlite3_open(path, &db));
    must(db, sqlite3_exec(db, "PRAGMA synchronous = OFF; BEGIN", NULL, NULL, NULL));
    must(db, sqlite3_exec(db, schema, NULL, NULL, NULL));
    insert(db,
           "INSERT INTO StringIds VALUES (?1 + 2, 'void at::native::reduce_kernel<512, ' || "
           "?1 || '>(at::native::ReduceOp<float, at::native::func_wrapper_t<float>>)')",
           NAMES_N);
    snprintf(sql, sizeof sql,
             "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT j * 15000, j * 15000 + 12000, p, 1,"
             "CASE WHEN c THEN 20 ELSE 7 END, j, (p + 1000) << 24, n, n, 128, 1, 1, 384, 1, 1,"
             "168, 0, 213252 FROM (SELECT *, CASE WHEN c THEN 1 ELSE 2 + j %% %d END n FROM "
             "(SELECT ?1 / %d j, ?1 %% %d p, ?1 / %d %% %d = 0 c))",
             NAMES_N, PROCESSES_N, PROCESSES_N, PROCESSES_N, COMM_EVERY);
    insert(db, sql, kernels_n);
    snprintf(
        sql, sizeof sql,
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT j * 15000 - 9000, j * 15000 - 5000,"
        "(p + 1000) << 24 | (p + 1000), j, 0 FROM (SELECT ?1 / %d j, ?1 %% %d p)",
        PROCESSES_N, PROCESSES_N);
    insert(db, sql, kernels_n);
    must(db, sqlite3_exec(db, "COMMIT", NULL, NULL, NULL));
    sqlite3_close(db);
}

static double best_s(const char *path, const Rules *rules, uint64_t *rows_n)
{
    double best = 1e30;
    for (int run = 0; run < RUNS_N; run++) {
        Timeline t;
        TraceInfo info;
        Err err = { 0 };
        double start = now_s();
        if (!nsys_read(&t, &info, path, rules, &err)) {
            fprintf(stderr, "bench_nsys: %s\n", err.text);
            exit(1);
        }
        double took = now_s() - start;
        best = took < best ? took : best;
        *rows_n = info.events_read;
        timeline_free(&t);
    }
    return best;
}

int main(int argc, char **argv)
{
    uint64_t kernels_n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000, rows_n = 0;
    char path[] = P_tmpdir "/lockstep-bench-XXXXXX";
    int fd = mkstemp(path);
    Rules rules;
    Err err = { 0 };
    if (kernels_n == 0 || fd < 0 || close(fd) != 0 || !rules_read(&rules, NULL, 0, &err)) {
        fprintf(stderr, "bench_nsys: %s\n", err.set ? err.text : "cannot begin");
        return 1;
    }
    make_export(path, kernels_n);
    double took_s = best_s(path, &rules, &rows_n);
    double rows_per_us = 1e-6 * (double)rows_n / took_s;
    bool ok = rows_per_us >= rows_per_us_min;
    printf("%" PRIu64 " rows in %.2f s of the processor: %.2f a microsecond (%s %.1f)%s\n",
           rows_n, took_s, rows_per_us, ok ? "limit" : "LIMIT", rows_per_us_min,
           ok ? "" : "  MISSED");
    unlink(path);
    rules_free(&rules);
    return ok ? 0 : 1;
}
