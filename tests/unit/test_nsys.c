/*
 * Nsight Systems exports: both ages of the schema, made here with SQLite itself;
 * damage of every kind; and the totals of real ones where they are at hand.
 */
#include "core/cuda_names.h"
#include "tests/check.h"
#include "traces/nsys.h"
#include "traces/set.h"
#include "traces/unpack.h"

#include <sqlite3.h>
#include <unistd.h>
#include <zlib.h>

static char path[] = P_tmpdir "/lockstep-nsys-XXXXXX";
static Rules rules;

static void run_sql(sqlite3 *db, const char *sql)
{
    char *why = NULL;
    if (!CHECK_INT(SQLITE_OK, sqlite3_exec(db, sql, NULL, NULL, &why)))
        fprintf(stderr, "%s: %s\n", why, sql);
    sqlite3_free(why);
}

/* A database at `path` with what the statements make. */
static void write_database(const char *const *sql, size_t n)
{
    sqlite3 *db = NULL;
    unlink(path);
    CHECK_INT(SQLITE_OK, sqlite3_open(path, &db));
    for (size_t i = 0; i < n; i++)
        run_sql(db, sql[i]);
    sqlite3_close(db);
}

static bool read_path(Timeline *t, TraceInfo *info, Err *err)
{
    *err = (Err){ 0 };
    return nsys_read(t, info, path, &rules, err);
}

#define STRINGS \
    "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);" \
    "INSERT INTO StringIds VALUES (1, 'ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)')," \
    "(2, 'gemm<128>'), (3, 'gemm'), (4, 'cudaLaunchKernel_v7000')," \
    "(5, 'cudaStreamSynchronize_v3020'), (6, 'step 3'), (7, 'trainer');"

/* Schema 2.9: no green contexts, NVTX with text only, EXPORT_META_DATA. */
static const char *const old_schema[] = {
    STRINGS,
    "CREATE TABLE EXPORT_META_DATA (name TEXT, value TEXT);"
    "INSERT INTO EXPORT_META_DATA VALUES ('EXPORT_SCHEMA_VERSION', '2.9.1');",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, "
    "correlationId, globalPid, demangledName, shortName, mangledName);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES"
    "(100, 150, 0, 1, 7, 11, 33554432, 2, 3, NULL), (140, 260, 0, 1, 20, 12, 33554432, 1, 1, "
    "1),"
    "(300, 310, 0, 1, 7, 11, 16777216, 99, 3, NULL);",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, "
    "correlationId, globalPid, bytes, copyKind);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (50, 60, 0, 1, 7, 10, 33554432, 4096, 1);",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, "
    "correlationId, nameId);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES"
    "(90, 95, 0, 33554439, 11, 4), (200, 270, 0, 33554439, 13, 5);",
    "CREATE TABLE NVTX_EVENTS (start, end, eventType, rangeId, category, color, text, "
    "globalTid, "
    "endGlobalTid, textId, domainId);"
    "INSERT INTO NVTX_EVENTS VALUES"
    "(10, NULL, 75, 0, 0, 0, 'NCCL', 33554439, 0, NULL, 1),"
    "(80, 280, 59, 0, 0, 0, 'forward', 33554439, 0, NULL, 0),"
    "(85, NULL, 34, 0, 0, 0, 'mark', 33554439, 0, NULL, 0),"
    "(86, NULL, 60, 0, 0, 0, NULL, 33554439, 0, 3, 0),"
    "(40, 320, 59, 0, 0, 0, NULL, 33554439, 0, 6, 0);",
};

/* Schema 3.20: other columns in between, processes and threads with names. */
static const char *const new_schema[] = {
    STRINGS,
    "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);",
    "CREATE TABLE PROCESSES (globalPid, pid, name);"
    "INSERT INTO PROCESSES VALUES (16777216, 1, 'python');",
    "CREATE TABLE ThreadNames (nameId, priority, globalTid);"
    "INSERT INTO ThreadNames VALUES (7, 10, 16777219);",
    "CREATE TABLE TARGET_INFO_GPU (vmId, id, name);"
    "INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H200'), (0, 1, 'NVIDIA H200');",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, greenContextId, "
    "streamId, correlationId, globalPid, demangledName, shortName, mangledName, graphNodeId);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES"
    "(100, 150, 1, 1, NULL, 7, 11, 16777216, 2, 3, NULL, NULL);",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start, end, deviceId, contextId, greenContextId, "
    "streamId, correlationId, globalPid, value, bytes);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (50, 55, 1, 1, NULL, 7, 1, 16777216, 0, 8);",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, deviceId, graphId, contextId, "
    "greenContextId, streamId, correlationId, globalPid);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (200, 240, 1, 5, 1, NULL, 7, 12, "
    "16777216);",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start, end, deviceId, contextId, "
    "greenContextId, streamId, correlationId, globalPid, syncType, eventId);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (90, 260, 1, 1, NULL, 4294967295, "
    "13, 16777216, 4, 0);",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, "
    "correlationId, nameId);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (90, 95, 0, 16777219, 11, 4);",
};

/* The span of that name, NONE_U64 and a failure when there is none. */
static uint64_t span_named(const Timeline *t, const char *name)
{
    for (uint64_t i = 0; i < t->spans_n; i++)
        if (strcmp(timeline_text(t, t->span_name[i]), name) == 0)
            return i;
    fprintf(stderr, "no span '%s'\n", name);
    CHECK(false);
    return NONE_U64;
}

static void check_span(const Timeline *t, const char *name, SpanClass c, uint32_t rank,
                       int64_t start_ns, int64_t dur_ns)
{
    uint64_t i = span_named(t, name);
    if (i == NONE_U64)
        return;
    CHECK_INT(c, t->span_class[i]);
    CHECK_INT(rank, t->tracks[t->span_track[i]].rank);
    CHECK_INT(start_ns, t->start_ns[i]);
    CHECK_INT(dur_ns, t->dur_ns[i]);
}

static void every_table_of_the_old_schema_becomes_spans(void)
{
    Timeline t;
    TraceInfo info;
    Err err;
    write_database(old_schema, ARRAY_N(old_schema));
    if (!CHECK(read_path(&t, &info, &err)))
        return;
    CHECK(timeline_check(&t, &err));
    CHECK_INT(2, t.ranks_n);
    CHECK_U64(10, t.spans_n);
    check_span(&t, "gemm<128>", SPAN_COMPUTE, 1, 100, 50);
    check_span(&t, "ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)", SPAN_COMM, 1, 140, 120);
    check_span(&t, "Memcpy HtoD", SPAN_MEMORY, 1, 50, 10);
    check_span(&t, "cudaLaunchKernel", SPAN_LAUNCH, 1, 90, 5);
    check_span(&t, "cudaStreamSynchronize", SPAN_SYNC, 1, 200, 70);
    check_span(&t, "forward", SPAN_NOTE, 1, 80, 200);
    check_span(&t, "mark", SPAN_NOTE, 1, 85, 0);
    check_span(&t, "step 3", SPAN_STEP, 1, 40, 280);
    CHECK_U64(3, info.kernels_n);
    CHECK_U64(1, info.comm_kernels_n);

    uint64_t kernel = span_named(&t, "gemm<128>"), launch = span_named(&t, "cudaLaunchKernel");
    CHECK_U64(11, t.correlation[kernel]);
    CHECK_U64(11, t.correlation[launch]);
    const Comm *comm =
        timeline_comm_of(&t, span_named(&t, "ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)"));
    CHECK(comm && strcmp(timeline_text(&t, comm->op), "all_reduce") == 0);
    timeline_free(&t);
}

/* Shared memory is static and dynamic together; a row without a grid has no launch. */
static void kernels_keep_grid_and_block(void)
{
    static const char *const sql[] = {
        STRINGS,
        "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, "
        "correlationId, globalPid, demangledName, shortName, registersPerThread, gridX, gridY, "
        "gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES"
        "(100, 150, 0, 7, 11, 16777216, 2, 3, 96, 24, 2, 1, 544, 1, 1, 16, 88000),"
        "(200, 250, 0, 7, 12, 16777216, 1, 1, NULL, 4, 1, 1, 512, 1, 1, NULL, 0),"
        "(300, 350, 0, 7, 13, 16777216, 3, 3, 96, -1, 1, 1, 512, 1, 1, 0, 0);",
    };
    Timeline t;
    Err err;
    write_database(sql, ARRAY_N(sql));
    if (!CHECK(read_path(&t, NULL, &err)))
        return;
    const KernelLaunch *l = timeline_launch_of(&t, span_named(&t, "gemm<128>"));
    CHECK(l && l->grid[0] == 24 && l->grid[1] == 2 && l->block[0] == 544);
    CHECK(l && l->registers_n == 96 && l->shared_bytes == 88016 &&
          l->occupancy_pct == NONE_U32);
    uint64_t nccl = span_named(&t, "ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)");
    l = timeline_launch_of(&t, nccl);
    CHECK(l && l->block[0] == 512 && l->registers_n == NONE_U32 && l->shared_bytes == NONE_U32);
    CHECK(timeline_comm_of(&t, nccl) != NULL);
    CHECK(timeline_launch_of(&t, span_named(&t, "gemm")) == NULL);
    timeline_free(&t);
}

/* A range that nobody ended lasts until the last event; a kernel without its demangled name has
 * the short one. */
static void what_is_missing_in_a_row_is_made_up_for(void)
{
    Timeline t;
    Err err;
    write_database(old_schema, ARRAY_N(old_schema));
    if (!CHECK(read_path(&t, NULL, &err)))
        return;
    uint32_t seen = 0;
    for (uint64_t i = 0; i < t.spans_n; i++)
        if (strcmp(timeline_text(&t, t.span_name[i]), "gemm") == 0) {
            seen++;
            CHECK_INT(t.span_class[i] == SPAN_NOTE ? 320 - 86 : 10, t.dur_ns[i]);
        }
    CHECK_INT(2, seen);
    timeline_free(&t);
}

static void rows_whose_times_are_wrong_are_skipped_and_counted(void)
{
    static const char *const edits[] = {
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 5 WHERE start = 100",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'abc' WHERE start = 100",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 150.5 WHERE start = 100",
    };
    static const char *const reasons[] = { "a row ends before it starts",
                                           "the start or end of a row is no whole number",
                                           "the start or end of a row is no whole number" };
    for (size_t i = 0; i < ARRAY_N(edits); i++) {
        Timeline t;
        TraceInfo info;
        Err err;
        sqlite3 *db = NULL;
        write_database(old_schema, ARRAY_N(old_schema));
        CHECK_INT(SQLITE_OK, sqlite3_open(path, &db));
        run_sql(db, edits[i]);
        sqlite3_close(db);
        if (!CHECK(read_path(&t, &info, &err)))
            continue;
        CHECK_U64(1, info.events_skipped);
        CHECK_U64(2, info.kernels_n);
        CHECK_STR(reasons[i], info.damage[0].reason);
        timeline_free(&t);
    }
}

static void the_new_schema_names_its_tracks(void)
{
    Timeline t;
    TraceInfo info;
    Err err;
    write_database(new_schema, ARRAY_N(new_schema));
    if (!CHECK(read_path(&t, &info, &err)))
        return;
    CHECK(timeline_check(&t, &err));
    CHECK_INT(1, t.ranks_n);
    CHECK_STR("NVIDIA H200", info.device);
    check_span(&t, "Memset", SPAN_MEMORY, 0, 50, 5);
    check_span(&t, "CUDA graph 5", SPAN_COMPUTE, 0, 200, 40);
    check_span(&t, "Context Sync", SPAN_SYNC, 0, 90, 170);
    const Track *stream = &t.tracks[t.span_track[span_named(&t, "Memset")]];
    CHECK_INT(TRACK_STREAM, stream->kind);
    CHECK_STR("GPU 1 stream 7, NVIDIA H200", timeline_text(&t, stream->name));
    CHECK_INT(1, stream->lanes_n);
    const Track *thread = &t.tracks[t.span_track[span_named(&t, "cudaLaunchKernel")]];
    CHECK_STR("thread 3 trainer, python", timeline_text(&t, thread->name));
    timeline_free(&t);
}

/* Two processes that both see "device 0, stream 7" are two ranks; helpers come last. */
static void processes_are_ranks(void)
{
    static const char *const sql[] = {
        STRINGS,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, "
        "correlationId, "
        "globalPid, demangledName);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 0, 7, 1, 50331648, 2),"
        "(1, 3, 0, 7, 1, 33554432, 1);",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, "
        "nameId);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (2, 3, 16777217, 1, 5);",
    };
    Timeline t;
    Err err;
    write_database(sql, ARRAY_N(sql));
    if (!CHECK(read_path(&t, NULL, &err)))
        return;
    CHECK_INT(3, t.ranks_n);
    check_span(&t, "ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)", SPAN_COMM, 0, 1, 2);
    check_span(&t, "gemm<128>", SPAN_COMPUTE, 1, 5, 4);
    check_span(&t, "cudaStreamSynchronize", SPAN_SYNC, 2, 2, 1);
    timeline_free(&t);
}

/* The note on a timeline whose export states this schema, found in the set's findings too. */
static void check_note(const char *table, const char *version, const char *note)
{
    char meta[200];
    snprintf(meta, sizeof meta,
             "CREATE TABLE %s (name TEXT, value TEXT);"
             "INSERT INTO %s VALUES ('EXPORT_HOST', '9.9'), ('EXPORT_SCHEMA_VERSION', '%s');",
             table, table, version);
    const char *const sql[] = { STRINGS, meta, new_schema[5] };
    const char *const paths[] = { path };
    Timeline t;
    TraceInfo info;
    TraceSet set;
    Err err;
    write_database(sql, ARRAY_N(sql));
    if (!CHECK(read_path(&t, &info, &err)))
        return;
    CHECK_STR(note, info.note);
    timeline_free(&t);
    if (!CHECK(trace_set_read(&set, paths, 1, NULL, &err)))
        return;
    bool found = false;
    for (size_t i = 0; i < set.findings_n; i++)
        found = found || strstr(set.findings[i], "newer than the newest that is known");
    CHECK_INT(*note != '\0', found);
    trace_set_free(&set);
}

static void a_schema_newer_than_the_known_ones_is_read_with_a_note(void)
{
    check_note("META_DATA_EXPORT", "3.20.4", "");
    check_note("META_DATA_EXPORT", "3.9", "");
    check_note("META_DATA_EXPORT", "odd", "");
    check_note("META_DATA_EXPORT", "3.21.0",
               "its schema is 3.21, newer than the newest that is known, 3.20: what has been "
               "renamed since is missing");
    check_note("EXPORT_META_DATA", "4.0.1",
               "its schema is 4.0, newer than the newest that is known, 3.20: what has been "
               "renamed since is missing");
}

/* The words that recordings and exports share (core/cuda_names.h). */
/* A node of two processes, whose session began at epoch_ns. */
static void write_node(const char *to, int64_t epoch_ns)
{
    char session[160];
    snprintf(session, sizeof session,
             "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT);"
             "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (%" PRId64 ", '');",
             epoch_ns);
    const char *const sql[] = {
        STRINGS,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, "
        "correlationId, globalPid, demangledName);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 150, 0, 7, 1, 33554432, 1),"
        "(120, 150, 0, 7, 2, 16777216, 1);",
        session,
    };
    write_database(sql, ARRAY_N(sql));
    CHECK_INT(0, rename(path, to));
}

static void nodes_are_joined_by_the_time_of_day_and_their_processes_counted_on(void)
{
    const int64_t epoch_ns = 1735689600000000000;
    char one[64], two[64];
    snprintf(one, sizeof one, "%s-1", path);
    snprintf(two, sizeof two, "%s-2", path);
    write_node(one, epoch_ns);
    write_node(two, epoch_ns + 1000);
    const char *const paths[] = { one, two };
    TraceSet s;
    Err err = { 0 };
    if (!CHECK(trace_set_read(&s, paths, 2, NULL, &err)))
        return;
    const Timeline *t = &s.timeline;
    CHECK_INT(4, t->ranks_n);
    CHECK_INT(4, s.world_size);
    CHECK_U64(4, t->spans_n);
    static const int64_t starts_ns[] = { 120, 100, 1120, 1100 };
    for (uint64_t i = 0; i < t->spans_n; i++) {
        uint32_t rank = t->tracks[t->span_track[i]].rank;
        CHECK_INT(starts_ns[rank % 4], t->start_ns[i] - epoch_ns);
    }
    CHECK_INT(TRACE_RANK_ORDER, s.files[1].rank_from);
    CHECK_INT(2, s.files[1].rank);
    if (CHECK_U64(1, s.findings_n))
        CHECK(strstr(s.findings[0], "counted in the order in which") != NULL);
    trace_set_free(&s);
    unlink(one);
    unlink(two);
}

/* A process each: two ranks of which no file says how many there are. */
static void one_process_a_file_does_not_make_a_run_of_one_rank(void)
{
    char one[64], two[64];
    snprintf(one, sizeof one, "%s-rank0", path);
    snprintf(two, sizeof two, "%s-rank1", path);
    const char *const paths[] = { one, two };
    for (int i = 0; i < 2; i++) {
        write_database(new_schema, ARRAY_N(new_schema));
        CHECK_INT(0, rename(path, paths[i]));
    }
    TraceSet s;
    Err err = { 0 };
    if (!CHECK(trace_set_read(&s, paths, 2, NULL, &err)))
        return;
    CHECK_INT(2, s.world_size);
    CHECK(!s.world_said);
    for (size_t i = 0; i < s.findings_n; i++)
        CHECK(strstr(s.findings[i], "the run has 1 ranks") == NULL);
    trace_set_free(&s);
    unlink(one);
    unlink(two);
}

/* A database that is still being written: here a log of one byte stands for it. */
static void a_log_beside_the_file_is_told(void)
{
    char log[64];
    snprintf(log, sizeof log, "%s-wal", path);
    write_database(new_schema, ARRAY_N(new_schema));
    FILE *f = fopen(log, "w");
    ASSERT(f && fputc('x', f) == 'x' && fclose(f) == 0);
    Timeline t;
    TraceInfo info;
    Err err;
    if (CHECK(read_path(&t, &info, &err))) {
        CHECK(strstr(info.note, "is in '-wal' beside it") != NULL);
        timeline_free(&t);
    }
    f = fopen(path, "w");
    ASSERT(f && fputs("SQLite format 3", f) >= 0 && fclose(f) == 0);
    CHECK(!read_path(&t, &info, &err));
    CHECK_ERR_TEXT(&err, "part of it is still in");
    unlink(log);
}

static void calls_and_ranges_are_told_apart(void)
{
    CHECK_INT(SPAN_LAUNCH, cuda_call_class("cuLaunchKernelEx_ptsz"));
    CHECK_INT(SPAN_HOST, cuda_call_class("cudaLaunchHostFunc"));
    CHECK_INT(SPAN_SYNC, cuda_call_class("cudaStreamWaitEvent"));
    CHECK_INT(SPAN_HOST, cuda_call_class("cudaMalloc"));
    CHECK(cuda_host_waits(SPAN_SYNC, "cudaStreamSynchronize"));
    CHECK(cuda_host_waits(SPAN_HOST, "cuEventSynchronize"));
    CHECK(cuda_host_waits(SPAN_SYNC, "Context Sync") && !cuda_host_waits(SPAN_HOST, "malloc"));
    CHECK(!cuda_host_waits(SPAN_SYNC, "cudaStreamWaitEvent"));
    CHECK(!cuda_host_waits(SPAN_SYNC, "Stream Wait Event"));
    CHECK(cuda_range_is_step("step 12") && cuda_range_is_step("ProfilerStep#12"));
    CHECK(cuda_range_is_step("iteration: 3") && !cuda_range_is_step("step"));
    CHECK(!cuda_range_is_step("step 3 of 4") && !cuda_range_is_step("forward 3"));
    CHECK_STR("Memcpy PtoP", cuda_copy_name(10));
    CHECK_STR("Memcpy", cuda_copy_name(UINT64_MAX));
    CHECK_STR("Sync", cuda_sync_name(5));
}

static void refused(const char *const *sql, size_t n, const char *why)
{
    Timeline t;
    Err err;
    write_database(sql, n);
    CHECK(!read_path(&t, NULL, &err));
    CHECK_ERR_TEXT(&err, why);
    CHECK_U64(0, t.spans_n);
}

static void other_databases_are_refused_in_a_sentence(void)
{
    static const char *const others[] = { "CREATE TABLE songs (title TEXT);" };
    refused(others, 1, "it is an SQLite database, but no export of Nsight Systems");
    static const char *const nothing[] = { STRINGS };
    refused(nothing, 1, "the export holds neither CUDA nor NVTX events");
    static const char *const column[] = {
        STRINGS, "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (begin, end, deviceId, streamId);"
    };
    refused(column, 2, "its table CUPTI_ACTIVITY_KIND_KERNEL has no column 'start'");
    static const char *const times[] = {
        STRINGS, "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId);"
                 "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9000000000000000000, "
                 "9223372036854775807, 0, 0);"
    };
    refused(times, 2, "it holds times out of range");
    static const char *const all_wrong[] = {
        STRINGS,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9e18, 9223372036854775807, 0, 0);"
    };
    refused(
        all_wrong, 2,
        "all its events are damaged, the first: the start or end of a row is no whole number");
    static const char *const view[] = {
        STRINGS,
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end, 0 AS deviceId, "
        "7 AS streamId;"
    };
    refused(view, 2, "neither CUDA nor NVTX events");
}

static uint8_t *load(const char *file, size_t *n)
{
    FILE *f = fopen(file, "rb");
    ASSERT(f);
    uint8_t *bytes = mem_zero(1 << 20, 1);
    *n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

static bool read_copy(const uint8_t *bytes, size_t n, Err *err)
{
    Timeline t;
    uint8_t *copy = mem_zero(n + 1, 1);
    memcpy(copy, bytes, n);
    *err = (Err){ 0 };
    bool ok = nsys_read_bytes(&t, NULL, copy, n, "x", &rules, err);
    CHECK(ok != err->set);
    Err ignored = { 0 };
    CHECK(!ok || timeline_check(&t, &ignored));
    timeline_free(&t);
    free(copy);
    return ok;
}

/* Cut anywhere, or with a byte changed: a timeline or a sentence, never a crash. */
static void damage_gives_a_sentence(void)
{
    write_database(old_schema, ARRAY_N(old_schema));
    size_t n;
    uint8_t *bytes = load(path, &n);
    Err err;
    CHECK(read_copy(bytes, n, &err));
    for (size_t cut = 0; cut < n; cut += 512)
        CHECK(!read_copy(bytes, cut, &err));
    CHECK(!read_copy(bytes, n / 2, &err));
    CHECK_ERR_TEXT(&err, "cannot read 'x': the file is damaged or cut short");
    uint64_t random = 1;
    for (int i = 0; i < 400; i++) {
        size_t at = (random = mix_u64(random)) % n;
        uint8_t was = bytes[at];
        bytes[at] = (uint8_t)mix_u64(random);
        read_copy(bytes, n, &err);
        bytes[at] = was;
    }
    free(bytes);
}

static void gzip_is_unpacked(void)
{
    write_database(new_schema, ARRAY_N(new_schema));
    size_t n;
    uint8_t *bytes = load(path, &n);
    gzFile f = gzopen(path, "wb");
    CHECK_INT((int)n, gzwrite(f, bytes, (unsigned)n));
    gzclose(f);
    free(bytes);
    Timeline t;
    Err err;
    CHECK(read_path(&t, NULL, &err));
    CHECK_U64(5, t.spans_n);
    timeline_free(&t);

    CHECK_INT(0, truncate(path, 300));
    CHECK(!read_path(&t, NULL, &err));
    CHECK_ERR_TEXT(&err, "it ends in the middle of its gzip data");
}

/* Found by fuzzing: zlib's own reader hands out 16384 bytes of these 17355 and sees no damage. */
static void gzip_that_ends_with_bytes_to_come_is_cut_short(void)
{
    Unpacked u;
    Err err = { 0 };
    CHECK(!unpack_open(&u, "tests/fuzz/corpus_unpack/pending.gz", UNPACK_BYTES_MAX, &err));
    CHECK_ERR_TEXT(&err, "pending.gz': it ends in the middle of its gzip data");
    err = (Err){ 0 };
    CHECK(unpack_open(&u, "tests/fuzz/corpus_unpack/two.gz", UNPACK_BYTES_MAX, &err));
    CHECK(u.n == 25 && memcmp(u.bytes + 19, "second", 6) == 0);
    unpack_close(&u);
}

/* ---- real exports ---- */

typedef struct Totals {
    uint64_t compute_n, memory_n, comm_n;
    int64_t compute_ns, memory_ns, begin_ns, end_ns;
} Totals;

static void add(Totals *sum, const Timeline *t, uint64_t i)
{
    bool compute = t->span_class[i] == SPAN_COMPUTE, memory = t->span_class[i] == SPAN_MEMORY;
    sum->compute_n += compute;
    sum->memory_n += memory;
    sum->comm_n += t->span_class[i] == SPAN_COMM || t->span_class[i] == SPAN_P2P;
    sum->compute_ns += compute ? t->dur_ns[i] : 0;
    sum->memory_ns += memory ? t->dur_ns[i] : 0;
    sum->begin_ns = min_i64(sum->begin_ns, t->start_ns[i]);
    sum->end_ns = max_i64(sum->end_ns, t->start_ns[i] + t->dur_ns[i]);
}

/* Of expected.json, written by other tools.  Nothing overlaps here, so sums are unions. */
static void real_exports_have_their_known_totals(void)
{
    static const struct {
        const char *path;
        Totals is;
    } files[] = {
        { "../shared/data/traces/nsys/perlmutter-cloverleaf-cuda.sqlite.gz",
          { 1312, 279, 0, 294404540, 9390923, 0, 342407810 } },
        { "../shared/data/traces/nsys/saxpy-mpi-cuda_nsys_perlmutter0.sqlite.gz",
          { 5, 15, 0, 88573480, 284699600, 0, 1097327843 } },
    };
    for (size_t f = 0; f < ARRAY_N(files); f++) {
        Timeline t;
        Err err = { 0 };
        if (access(files[f].path, R_OK) != 0) {
            printf("test_nsys: %s is not here, skipped\n", files[f].path);
            continue;
        }
        if (!CHECK(nsys_read(&t, NULL, files[f].path, &rules, &err)))
            continue;
        CHECK(timeline_check(&t, &err));
        Totals sum = { .begin_ns = INT64_MAX, .end_ns = INT64_MIN };
        for (uint64_t i = 0; i < t.spans_n; i++)
            if (t.tracks[t.span_track[i]].kind == TRACK_STREAM)
                add(&sum, &t, i);
        CHECK_U64(files[f].is.compute_n, sum.compute_n);
        CHECK_U64(files[f].is.memory_n, sum.memory_n);
        CHECK_U64(files[f].is.comm_n, sum.comm_n);
        CHECK_INT(files[f].is.compute_ns, sum.compute_ns);
        CHECK_INT(files[f].is.memory_ns, sum.memory_ns);
        CHECK_INT(files[f].is.end_ns, sum.end_ns - sum.begin_ns);
        CHECK_INT(1, t.ranks_n);
        timeline_free(&t);
    }
}

int main(void)
{
    Err err = { 0 };
    int fd = mkstemp(path);
    if (fd < 0 || close(fd) != 0 || !rules_read(&rules, NULL, 0, &err))
        return 1;
    RUN(every_table_of_the_old_schema_becomes_spans);
    RUN(kernels_keep_grid_and_block);
    RUN(what_is_missing_in_a_row_is_made_up_for);
    RUN(rows_whose_times_are_wrong_are_skipped_and_counted);
    RUN(the_new_schema_names_its_tracks);
    RUN(processes_are_ranks);
    RUN(nodes_are_joined_by_the_time_of_day_and_their_processes_counted_on);
    RUN(one_process_a_file_does_not_make_a_run_of_one_rank);
    RUN(a_log_beside_the_file_is_told);
    RUN(calls_and_ranges_are_told_apart);
    RUN(a_schema_newer_than_the_known_ones_is_read_with_a_note);
    RUN(other_databases_are_refused_in_a_sentence);
    RUN(damage_gives_a_sentence);
    RUN(gzip_is_unpacked);
    RUN(gzip_that_ends_with_bytes_to_come_is_cut_short);
    RUN(real_exports_have_their_known_totals);
    unlink(path);
    rules_free(&rules);
    return check_report();
}
