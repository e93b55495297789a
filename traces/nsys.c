/*
 * nsys.c - walks the tables of an Nsight Systems export; the only file that uses SQLite.
 *
 * Every table is read by one SELECT of the columns it is known to have had, NULL
 * standing in for those that this schema lacks, and one function that makes a span
 * of a row.  The database comes from outside: it is opened read-only from memory,
 * views, triggers and virtual tables are not touched, and more rows than the file
 * could hold end the reading, as SQLite itself follows pages that point in circles.
 */
#include "traces/nsys.h"

#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/cuda_names.h"
#include "traces/unpack.h"

enum { COLUMNS_MAX = 20, STRING_CACHE = 4096, MEMO_N = 512, TEXT_MAX = 1 << 20 };
enum { SCHEMA_MAJOR = 3, SCHEMA_MINOR = 20 }; /* the newest that has been seen */
#define TIMES_MAX    (TIMELINE_NS_MAX / 2)    /* so that no duration is out of range */
#define EPOCH_NS_MIN ((int64_t)1000000000 * 1000000000) /* September 2001: a time of day */
#define PROCESS_MASK (~(uint64_t)0xffffff) /* what of a global thread id is the process */

typedef struct Process {
    uint64_t id; /* globalPid */
    bool has_gpu;
} Process;

typedef struct CachedString {
    int64_t id;
    uint32_t name;
    bool used;
} CachedString;

/* What is asked of every row again and has few answers, by a hash of the question. */
typedef struct TrackMemo {
    uint64_t process_or_thread, device, stream; /* of a thread the latter are NONE_U64 */
    uint32_t track;
    bool used;
} TrackMemo;

/* What a kernel of this name is. */
typedef struct KernelMemo {
    uint32_t name, rule;
    SpanClass class_;
    Comm comm; /* where it is communication */
    bool talks, used;
} KernelMemo;

/* What the call of this name is: "cudaLaunchKernel_v7000" is a cudaLaunchKernel. */
typedef struct CallMemo {
    uint32_t text, name;
    SpanClass class_;
    bool used;
} CallMemo;

typedef struct Reader {
    sqlite3 *db;
    sqlite3_stmt *string_of; /* NULL: there is no StringIds */
    Timeline *t;
    TraceInfo *info;
    const Rules *rules;
    const char *file;
    uint64_t rows_max; /* of one table */
    int64_t epoch_ns;  /* when the session began; 0 unknown */
    Err *err;

    /* "s PID DEVICE STREAM" -> track, "h TID" -> track, "n ID" -> name ... */
    Interner keys;
    uint32_t *value; /* by key */
    uint32_t values_cap;

    Process *processes; /* in the order met; a track's rank is an index until the end */
    uint32_t processes_n, processes_cap;
    uint64_t *open_ranges; /* spans of NVTX ranges that nobody ended */
    uint32_t open_n, open_cap;
    CachedString cache[STRING_CACHE];
    TrackMemo track_memo[MEMO_N];
    KernelMemo kernel_memo[MEMO_N];
    CallMemo call_memo[MEMO_N];
} Reader;

typedef bool RowFunction(Reader *r, sqlite3_stmt *row);

typedef struct Table {
    const char *name;
    uint32_t needed; /* so many of the columns must be there */
    const char *columns[COLUMNS_MAX];
    RowFunction *row;
} Table;

static bool refuse(Reader *r, const char *why)
{
    return err_set(r->err, "cannot read '%s': %s", r->file, why);
}

/* ---- texts and numbers of a row ---- */

static bool is_null(sqlite3_stmt *row, int column)
{
    return sqlite3_column_type(row, column) == SQLITE_NULL;
}

static uint64_t number(sqlite3_stmt *row, int column)
{
    return (uint64_t)sqlite3_column_int64(row, column);
}

static uint32_t intern_text_column(Reader *r, sqlite3_stmt *row, int column)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    int n = sqlite3_column_bytes(row, column);
    return text ? intern_bytes(&r->t->names, text, (size_t)n) : NONE_U32;
}

/* A text of StringIds; NONE_U32 when there is none of that number. */
static uint32_t string_of(Reader *r, int64_t id)
{
    CachedString *c = &r->cache[mix_u64((uint64_t)id) % STRING_CACHE];
    if (c->used && c->id == id)
        return c->name;
    if (!r->string_of)
        return NONE_U32;
    uint32_t name = NONE_U32;
    sqlite3_bind_int64(r->string_of, 1, id);
    if (sqlite3_step(r->string_of) == SQLITE_ROW)
        name = intern_text_column(r, r->string_of, 0);
    sqlite3_reset(r->string_of);
    *c = (CachedString){ id, name, true };
    return name;
}

static uint32_t string_column(Reader *r, sqlite3_stmt *row, int column)
{
    return is_null(row, column) ? NONE_U32 : string_of(r, sqlite3_column_int64(row, column));
}

/* ---- names, processes and tracks by key ---- */

__attribute__((format(printf, 2, 3))) static uint32_t *value_of(Reader *r, const char *format,
                                                                ...)
{
    char key[96];
    va_list args;
    va_start(args, format);
    vsnprintf(key, sizeof key, format, args);
    va_end(args);
    uint32_t n = r->keys.n, id = intern(&r->keys, key);
    if (id == n) {
        GROW(r->value, n, r->values_cap);
        r->value[id] = NONE_U32;
    }
    return &r->value[id];
}

static uint32_t process_of(Reader *r, uint64_t global_pid)
{
    uint32_t *index = value_of(r, "p %" PRIx64, global_pid);
    if (*index == NONE_U32) {
        *index = r->processes_n;
        GROW(r->processes, r->processes_n, r->processes_cap);
        r->processes[r->processes_n++] = (Process){ global_pid, false };
    }
    return *index;
}

static uint32_t new_track(Reader *r, uint64_t global_pid, TrackKind kind, int64_t sort,
                          const char *name)
{
    return timeline_track(r->t, process_of(r, global_pid), kind, name, sort);
}

static uint32_t find_stream_track(Reader *r, uint64_t global_pid, uint64_t device,
                                  uint64_t stream)
{
    uint32_t *track =
        value_of(r, "s %" PRIx64 " %" PRIx64 " %" PRIx64, global_pid, device, stream);
    if (*track != NONE_U32)
        return *track;
    char name[TRACE_DEVICE_BYTES + 64];
    snprintf(name, sizeof name, "GPU %" PRIu64 " stream %" PRIu64 "%s%s", device, stream,
             r->info->device[0] ? ", " : "", r->info->device);
    int64_t sort = (int64_t)((device & 0xffff) << 32 | (stream & UINT32_MAX));
    uint32_t made = new_track(r, global_pid, TRACK_STREAM, sort, name);
    r->processes[process_of(r, global_pid)].has_gpu = true;
    *value_of(r, "s %" PRIx64 " %" PRIx64 " %" PRIx64, global_pid, device, stream) = made;
    return made;
}

static uint32_t find_thread_track(Reader *r, uint64_t global_tid)
{
    uint32_t *track = value_of(r, "h %" PRIx64, global_tid);
    if (*track != NONE_U32)
        return *track;
    uint64_t pid = global_tid & PROCESS_MASK, tid = global_tid & ~PROCESS_MASK;
    const char *thread = timeline_text(r->t, *value_of(r, "n %" PRIx64, global_tid));
    const char *process = timeline_text(r->t, *value_of(r, "n %" PRIx64, pid));
    char name[256];
    snprintf(name, sizeof name, "thread %" PRIu64 "%s%.100s%s%.100s", tid, *thread ? " " : "",
             thread, *process ? ", " : "", process);
    uint32_t made = new_track(r, pid, TRACK_HOST, (int64_t)tid, name);
    *value_of(r, "h %" PRIx64, global_tid) = made;
    return made;
}

/* The memo of a track; where it is another's, it is this one's from now on, yet to be filled. */
static TrackMemo *track_memo(Reader *r, uint64_t process_or_thread, uint64_t device,
                             uint64_t stream)
{
    uint64_t hash = mix_u64(process_or_thread ^ mix_u64(device ^ mix_u64(stream)));
    TrackMemo *m = &r->track_memo[hash % MEMO_N];
    if (m->process_or_thread != process_or_thread || m->device != device || m->stream != stream)
        *m = (TrackMemo){ process_or_thread, device, stream, NONE_U32, false };
    return m;
}

static uint32_t stream_track(Reader *r, uint64_t global_pid, uint64_t device, uint64_t stream)
{
    TrackMemo *m = track_memo(r, global_pid, device, stream);
    if (!m->used)
        m->track = find_stream_track(r, global_pid, device, stream);
    m->used = true;
    return m->track;
}

static uint32_t thread_track(Reader *r, uint64_t global_tid)
{
    TrackMemo *m = track_memo(r, global_tid, NONE_U64, NONE_U64);
    if (!m->used)
        m->track = find_thread_track(r, global_tid);
    m->used = true;
    return m->track;
}

static uint32_t other_track(Reader *r, uint64_t global_pid, TrackKind kind, const char *name)
{
    uint32_t *track = value_of(r, "%s %" PRIx64, name, global_pid);
    if (*track != NONE_U32)
        return *track;
    uint32_t made = new_track(r, global_pid, kind, INT64_MAX, name);
    *value_of(r, "%s %" PRIx64, name, global_pid) = made;
    return made;
}

/* ---- spans ---- */

/* start and end are columns 0 and 1; what has no end yet counts as a mark. */
static bool add_span(Reader *r, sqlite3_stmt *row, uint32_t track, uint32_t name, SpanClass c,
                     uint32_t comm, int correlation)
{
    int64_t start = sqlite3_column_int64(row, 0), end = sqlite3_column_int64(row, 1);
    if (start < -TIMES_MAX || start > TIMES_MAX || end < -TIMES_MAX || end > TIMES_MAX)
        return refuse(r, "it holds times out of range, above 36 years");
    uint64_t i = timeline_span(r->t, (Span){ .track = track,
                                             .name = name,
                                             .class_ = c,
                                             .start_ns = start,
                                             .dur_ns = max_i64(end - start, 0),
                                             .op = NONE_U32,
                                             .comm = comm });
    if (correlation >= 0 && !is_null(row, correlation))
        r->t->correlation[i] = number(row, correlation);
    r->info->events_read++;
    return true;
}

/* GPU work: columns start end deviceId streamId correlationId globalPid. */
static bool add_gpu_span(Reader *r, sqlite3_stmt *row, uint32_t name, SpanClass c,
                         uint32_t comm)
{
    uint32_t track = stream_track(r, number(row, 5), number(row, 2), number(row, 3));
    return add_span(r, row, track, name, c, comm, 4);
}

static uint32_t optional_name(Reader *r, const char *text)
{
    return text ? intern(&r->t->names, text) : NONE_U32;
}

static Comm comm_of_kernel(Reader *r, const KernelComm *said)
{
    Comm comm = comm_of(intern(&r->t->names, said->op ? said->op : "unknown"));
    comm.dtype = optional_name(r, said->dtype);
    comm.algorithm = optional_name(r, said->algorithm);
    comm.protocol = optional_name(r, said->protocol);
    return comm;
}

/* A column from 0 to 4294967294, else NONE_U32. */
static uint32_t small_number(sqlite3_stmt *row, int column)
{
    int64_t x = is_null(row, column) ? -1 : sqlite3_column_int64(row, column);
    return x >= 0 && x < NONE_U32 ? (uint32_t)x : NONE_U32;
}

/* Of the span just added: columns gridX ... dynamicSharedMemory from the eighth on. */
static void set_launch(Reader *r, sqlite3_stmt *row)
{
    uint32_t x[9];
    for (int i = 0; i < 9; i++)
        x[i] = small_number(row, 8 + i);
    for (int i = 0; i < 6; i++)
        if (x[i] == NONE_U32)
            return;
    bool shared = x[7] != NONE_U32 && x[8] != NONE_U32 && x[8] < NONE_U32 - x[7];
    KernelLaunch l = { .grid = { x[0], x[1], x[2] },
                       .block = { x[3], x[4], x[5] },
                       .registers_n = x[6],
                       .shared_bytes = shared ? x[7] + x[8] : NONE_U32,
                       .occupancy_pct = NONE_U32 };
    timeline_set_launch(r->t, r->t->spans_n - 1, timeline_launch(r->t, &l));
}

static KernelMemo what_kernel(Reader *r, uint32_t name)
{
    KernelMemo k = { .name = name, .class_ = SPAN_COMPUTE, .used = true };
    KernelComm said;
    k.talks = rules_comm(r->rules, timeline_text(r->t, name), &k.rule, &k.class_, &said);
    if (k.talks)
        k.comm = comm_of_kernel(r, &said);
    return k;
}

static const KernelMemo *kernel_of(Reader *r, uint32_t name)
{
    KernelMemo *k = &r->kernel_memo[name % MEMO_N];
    if (!k->used || k->name != name)
        *k = what_kernel(r, name);
    return k;
}

static bool kernel_row(Reader *r, sqlite3_stmt *row)
{
    uint32_t name = string_column(r, row, 6);
    if (name == NONE_U32)
        name = string_column(r, row, 7);
    if (name == NONE_U32)
        name = intern(&r->t->names, "kernel");
    const KernelMemo *k = kernel_of(r, name);
    uint32_t comm = k->talks ? timeline_comm(r->t, k->comm) : NONE_U32;
    if (k->talks) {
        r->info->comm_kernels_n++;
        r->info->rule_kernels_n[k->rule]++;
    }
    r->info->kernels_n++;
    if (!add_gpu_span(r, row, name, k->class_, comm))
        return false;
    set_launch(r, row);
    return true;
}

static bool memcpy_row(Reader *r, sqlite3_stmt *row)
{
    uint32_t name = intern(&r->t->names, cuda_copy_name(number(row, 6)));
    return add_gpu_span(r, row, name, SPAN_MEMORY, NONE_U32);
}

static bool memset_row(Reader *r, sqlite3_stmt *row)
{
    return add_gpu_span(r, row, intern(&r->t->names, "Memset"), SPAN_MEMORY, NONE_U32);
}

static bool graph_row(Reader *r, sqlite3_stmt *row)
{
    char name[40];
    snprintf(name, sizeof name, "CUDA graph %" PRIu64, number(row, 6));
    r->info->kernels_n++;
    return add_gpu_span(r, row, intern(&r->t->names, name), SPAN_COMPUTE, NONE_U32);
}

/* The host waits, whatever stream it waits for. */
static bool sync_row(Reader *r, sqlite3_stmt *row)
{
    uint32_t name = intern(&r->t->names, cuda_sync_name(number(row, 6)));
    uint32_t track = other_track(r, number(row, 5), TRACK_HOST, "waits");
    return add_span(r, row, track, name, SPAN_SYNC, NONE_U32, 4);
}

/* "cudaLaunchKernel_v7000" -> "cudaLaunchKernel" */
static uint32_t api_name(Reader *r, uint32_t id)
{
    const char *text = timeline_text(r->t, id), *v = strrchr(text, '_');
    if (id == NONE_U32)
        return intern(&r->t->names, "CUDA call");
    if (!v || v[1] != 'v' || !v[2] || v[2 + strspn(v + 2, "0123456789")] != '\0')
        return id;
    return intern_bytes(&r->t->names, text, (size_t)(v - text));
}

static const CallMemo *call_of(Reader *r, uint32_t text)
{
    CallMemo *c = &r->call_memo[text % MEMO_N];
    if (c->used && c->text == text)
        return c;
    uint32_t name = api_name(r, text);
    *c = (CallMemo){ text, name, cuda_call_class(timeline_text(r->t, name)), true };
    return c;
}

static bool runtime_row(Reader *r, sqlite3_stmt *row)
{
    const CallMemo *c = call_of(r, string_column(r, row, 4));
    uint32_t track = thread_track(r, number(row, 2));
    return add_span(r, row, track, c->name, c->class_, NONE_U32, 3);
}

/* ENUM_NSYS_EVENT_TYPE: what of NVTX has a time; 70 and 71 come from text files. */
enum {
    NVTX_MARK = 34,
    NVTX_PUSH_POP = 59,
    NVTX_START_END = 60,
    NVTXT_MARK = 65,
    NVTXT_PUSH_POP = 70,
    NVTXT_START_END = 71
};

static bool nvtx_row(Reader *r, sqlite3_stmt *row)
{
    uint64_t type = number(row, 2), thread = number(row, 3);
    bool mark = type == NVTX_MARK || type == NVTXT_MARK;
    if (!mark && type != NVTX_PUSH_POP && type != NVTX_START_END && type != NVTXT_PUSH_POP &&
        type != NVTXT_START_END)
        return true; /* names of domains, categories, threads */
    uint32_t name = is_null(row, 4) ? string_column(r, row, 5) : intern_text_column(r, row, 4);
    if (name == NONE_U32)
        name = intern(&r->t->names, "(no text)");
    bool step = !mark && !is_null(row, 1) && cuda_range_is_step(timeline_text(r->t, name));
    uint32_t track = step ? other_track(r, thread & PROCESS_MASK, TRACK_STEPS, "steps")
                          : thread_track(r, thread);
    if (!mark && is_null(row, 1)) {
        GROW(r->open_ranges, r->open_n, r->open_cap);
        r->open_ranges[r->open_n++] = r->t->spans_n;
    }
    return add_span(r, row, track, name, step ? SPAN_STEP : SPAN_NOTE, NONE_U32, -1);
}

/* ---- names ---- */

static bool process_row(Reader *r, sqlite3_stmt *row)
{
    *value_of(r, "n %" PRIx64, number(row, 0)) = intern_text_column(r, row, 1);
    return true;
}

static bool thread_row(Reader *r, sqlite3_stmt *row)
{
    *value_of(r, "n %" PRIx64, number(row, 0)) = string_column(r, row, 1);
    return true;
}

/* The device is told where all are of one kind: whose is which, nobody knows. */
static bool gpu_row(Reader *r, sqlite3_stmt *row)
{
    const char *name = (const char *)sqlite3_column_text(row, 0);
    uint32_t *mixed = value_of(r, "mixed");
    char *device = r->info->device;
    if (!name)
        return true;
    if (*device && strncmp(device, name, sizeof r->info->device - 1) != 0)
        *mixed = 1;
    snprintf(device, sizeof r->info->device, "%s", *mixed == 1 ? "" : name);
    return true;
}

static bool session_row(Reader *r, sqlite3_stmt *row)
{
    if (r->epoch_ns == 0)
        r->epoch_ns = sqlite3_column_int64(row, 0);
    return true;
}

/* Newer exports are read as well as they can be, and a note says so. */
static bool export_row(Reader *r, sqlite3_stmt *row)
{
    const char *name = (const char *)sqlite3_column_text(row, 0);
    const char *value = (const char *)sqlite3_column_text(row, 1);
    unsigned major = 0, minor = 0;
    if (!name || !value || strcmp(name, "EXPORT_SCHEMA_VERSION") != 0 ||
        sscanf(value, "%6u.%6u", &major, &minor) != 2)
        return true;
    if (major > SCHEMA_MAJOR || (major == SCHEMA_MAJOR && minor > SCHEMA_MINOR))
        snprintf(r->info->note, sizeof r->info->note,
                 "its schema is %u.%u, newer than the newest that is known, %d.%d: what has "
                 "been renamed since is missing",
                 major, minor, SCHEMA_MAJOR, SCHEMA_MINOR);
    return true;
}

/* ---- tables ---- */

#define GPU_COLUMNS "start", "end", "deviceId", "streamId", "correlationId", "globalPid"

/* Names come before those who bear them. */
static const Table tables[] = {
    { "META_DATA_EXPORT", 0, { "name", "value" }, export_row },
    { "EXPORT_META_DATA", 0, { "name", "value" }, export_row },
    { "PROCESSES", 2, { "globalPid", "name" }, process_row },
    { "ThreadNames", 2, { "globalTid", "nameId" }, thread_row },
    { "TARGET_INFO_GPU", 1, { "name" }, gpu_row },
    { "TARGET_INFO_SESSION_START_TIME", 0, { "utcEpochNs" }, session_row },
    { "CUPTI_ACTIVITY_KIND_KERNEL",
      4,
      { GPU_COLUMNS, "demangledName", "shortName", "gridX", "gridY", "gridZ", "blockX",
        "blockY", "blockZ", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory" },
      kernel_row },
    { "CUPTI_ACTIVITY_KIND_MEMCPY", 4, { GPU_COLUMNS, "copyKind" }, memcpy_row },
    { "CUPTI_ACTIVITY_KIND_MEMSET", 4, { GPU_COLUMNS }, memset_row },
    { "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 4, { GPU_COLUMNS, "graphId" }, graph_row },
    { "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", 4, { GPU_COLUMNS, "syncType" }, sync_row },
    { "CUPTI_ACTIVITY_KIND_RUNTIME",
      3,
      { "start", "end", "globalTid", "correlationId", "nameId" },
      runtime_row },
    { "CUPTI_ACTIVITY_KIND_DRIVER",
      3,
      { "start", "end", "globalTid", "correlationId", "nameId" },
      runtime_row },
    { "NVTX_EVENTS",
      4,
      { "start", "end", "eventType", "globalTid", "text", "textId" },
      nvtx_row },
};

static bool damaged(Reader *r, const char *table)
{
    int code = sqlite3_errcode(r->db);
    const char *why =
        code == SQLITE_NOTADB ? "it is no SQLite database" : "the file is damaged or cut short";
    if (table && code != SQLITE_NOTADB)
        return err_set(r->err, "cannot read '%s': %s (table %.60s)", r->file, why, table);
    return refuse(r, why);
}

/* Whether there is a real table of that name; views and virtual tables are none. */
static bool has_table(Reader *r, const char *name, bool *found)
{
    sqlite3_stmt *s = NULL;
    const char *sql =
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ?1";
    int code = sqlite3_prepare_v2(r->db, sql, -1, &s, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
        code = sqlite3_step(s);
    }
    *found = code == SQLITE_ROW;
    bool ok = code == SQLITE_ROW || code == SQLITE_DONE || damaged(r, NULL);
    sqlite3_finalize(s);
    return ok;
}

static bool has_column(Reader *r, const char *table, const char *column)
{
    return sqlite3_table_column_metadata(r->db, "main", table, column, NULL, NULL, NULL, NULL,
                                         NULL) == SQLITE_OK;
}

/* SELECT of the columns there are, NULL for the others. */
static bool prepare(Reader *r, const Table *table, sqlite3_stmt **s)
{
    char sql[600] = "SELECT ";
    size_t n = strlen(sql);
    for (uint32_t i = 0; i < COLUMNS_MAX && table->columns[i]; i++) {
        bool there = has_column(r, table->name, table->columns[i]);
        if (!there && i < table->needed)
            return err_set(r->err, "cannot read '%s': its table %s has no column '%s'", r->file,
                           table->name, table->columns[i]);
        const char *quote = there ? "\"" : "";
        n += (size_t)snprintf(sql + n, sizeof sql - n, "%s%s%s%s", i ? ", " : "", quote,
                              there ? table->columns[i] : "NULL", quote);
    }
    snprintf(sql + n, sizeof sql - n, " FROM \"%s\"", table->name);
    return sqlite3_prepare_v2(r->db, sql, -1, s, NULL) == SQLITE_OK || damaged(r, table->name);
}

/* What is wrong with columns start and end of a row; NULL: nothing, or there is no start.  What
 * has no end is a mark, or has not ended. */
static const char *wrong_times(sqlite3_stmt *row)
{
    for (int i = 0; i < 2; i++)
        if (!is_null(row, i) && sqlite3_column_type(row, i) != SQLITE_INTEGER)
            return "the start or end of a row is no whole number";
    bool ends = !is_null(row, 0) && !is_null(row, 1);
    return ends && sqlite3_column_int64(row, 1) < sqlite3_column_int64(row, 0)
               ? "a row ends before it starts"
               : NULL;
}

static bool timed_row(Reader *r, const Table *table, sqlite3_stmt *row)
{
    const char *wrong = wrong_times(row);
    if (wrong)
        trace_info_damage(r->info, NONE_U64, wrong);
    return wrong || is_null(row, 0) || table->row(r, row);
}

static bool read_table(Reader *r, const Table *table)
{
    sqlite3_stmt *s = NULL;
    bool found, ok = has_table(r, table->name, &found);
    if (!ok || !found)
        return ok;
    ok = prepare(r, table, &s);
    uint64_t rows_n = 0;
    int code = SQLITE_DONE;
    bool timed = strcmp(table->columns[0], "start") == 0;
    while (ok && (code = sqlite3_step(s)) == SQLITE_ROW) {
        if (++rows_n > r->rows_max)
            ok = refuse(r, "its pages point in circles: more rows than the file can hold");
        else if (r->processes_n >= TIMELINE_RANKS_MAX - 1)
            ok = refuse(r, "it holds too many processes");
        else
            ok = timed ? timed_row(r, table, s) : table->row(r, s);
    }
    if (ok && code != SQLITE_DONE)
        ok = damaged(r, table->name);
    sqlite3_finalize(s);
    return ok;
}

/* An export names itself; one that was cut down by hand still has its texts and a table of ours. */
static bool check_is_export(Reader *r)
{
    static const char *const names[] = { "META_DATA_EXPORT", "EXPORT_META_DATA", "StringIds" };
    bool found = false;
    for (size_t i = 0; i < ARRAY_N(names) && !found; i++)
        if (!has_table(r, names[i], &found))
            return false;
    return found || refuse(r, "it is an SQLite database, but no export of Nsight Systems "
                              "(there is no table META_DATA_EXPORT)");
}

static bool prepare_strings(Reader *r)
{
    bool found;
    if (!has_table(r, "StringIds", &found))
        return false;
    if (!found || !has_column(r, "StringIds", "id") || !has_column(r, "StringIds", "value"))
        return true;
    return sqlite3_prepare_v2(r->db, "SELECT value FROM StringIds WHERE id = ?1", -1,
                              &r->string_of, NULL) == SQLITE_OK ||
           damaged(r, "StringIds");
}

/* ---- the whole ---- */

/* Last end of anything; ranges that nobody ended last until then. */
static void end_open_ranges(Reader *r)
{
    Timeline *t = r->t;
    int64_t end = INT64_MIN;
    for (uint64_t i = 0; r->open_n > 0 && i < t->spans_n; i++)
        end = max_i64(end, t->start_ns[i] + t->dur_ns[i]);
    for (uint32_t i = 0; i < r->open_n; i++)
        t->dur_ns[r->open_ranges[i]] = end - t->start_ns[r->open_ranges[i]];
}

/* Sessions of several nodes begin at different times: the time of day lays them side by side. */
static void put_on_wall_clock(Reader *r)
{
    Timeline *t = r->t;
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (uint64_t i = 0; i < t->spans_n; i++) {
        first = min_i64(first, t->start_ns[i]);
        last = max_i64(last, t->start_ns[i] + t->dur_ns[i]);
    }
    if (r->epoch_ns < EPOCH_NS_MIN || r->epoch_ns > TIMELINE_NS_MAX - max_i64(last, 0) ||
        r->epoch_ns + first < EPOCH_NS_MIN)
        return;
    for (uint64_t i = 0; i < t->spans_n; i++)
        t->start_ns[i] += r->epoch_ns;
    r->info->wall_clock = true;
    r->info->base_ns = r->epoch_ns;
}

static int compare_processes(const void *pa, const void *pb)
{
    const Process *a = pa, *b = pb;
    if (a->has_gpu != b->has_gpu)
        return a->has_gpu ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* Ranks in the order of global process ids, those with GPU work first. */
static void number_ranks(Reader *r)
{
    Process *met = mem_resize(NULL, r->processes_n, sizeof *met);
    memcpy(met, r->processes, r->processes_n * sizeof *met);
    qsort(r->processes, r->processes_n, sizeof *met, compare_processes);
    for (uint32_t i = 0; i < r->processes_n; i++)
        *value_of(r, "p %" PRIx64, r->processes[i].id) = i;
    for (uint32_t k = 0; k < r->t->tracks_n; k++)
        r->t->tracks[k].rank = process_of(r, met[r->t->tracks[k].rank].id);
    free(met);
}

static bool read_all(Reader *r)
{
    if (!check_is_export(r) || !prepare_strings(r))
        return false;
    timeline_want(r->t, true, false);
    for (size_t i = 0; i < ARRAY_N(tables); i++)
        if (!read_table(r, &tables[i]))
            return false;
    if (r->t->spans_n == 0 && r->info->damage_n > 0)
        return err_set(r->err, "cannot read '%s': all its events are damaged, the first: %s",
                       r->file, r->info->damage[0].reason);
    if (r->t->spans_n == 0)
        return refuse(r, "the export holds neither CUDA nor NVTX events "
                         "(record with nsys profile --trace=cuda,nvtx)");
    end_open_ranges(r);
    put_on_wall_clock(r);
    number_ranks(r);
    const char *slash = strrchr(r->file, '/');
    timeline_set_name(r->t, slash ? slash + 1 : r->file);
    timeline_seal(r->t);
    return true;
}

static uint64_t big_endian(const uint8_t *at, uint32_t n)
{
    uint64_t x = 0;
    for (uint32_t i = 0; i < n; i++)
        x = x << 8 | at[i];
    return x;
}

/* The size that the head states, in pages, where its two change counters agree. */
static bool check_size(Reader *r, const uint8_t *head, uint64_t n)
{
    if (n < 100)
        return refuse(r, "the file is damaged or cut short");
    uint64_t page = big_endian(head + 16, 2), pages = big_endian(head + 28, 4);
    uint64_t whole = pages * (page == 1 ? 65536 : page);
    if (big_endian(head + 24, 4) == big_endian(head + 92, 4) && n < whole)
        return err_set(r->err,
                       "cannot read '%s': the file is damaged or cut short, it has %" PRIu64
                       " of %" PRIu64 " bytes",
                       r->file, n, whole);
    return true;
}

static bool open_database(Reader *r, uint8_t *bytes, uint64_t n)
{
    static const uint8_t journal_off = 1;
    if (!nsys_matches(bytes, n))
        return refuse(r, "it is no SQLite database");
    if (!check_size(r, bytes, n))
        return false;
    bytes[18] = bytes[19] = journal_off; /* a write-ahead log is not at hand */
    unsigned flags = SQLITE_DESERIALIZE_READONLY;
    int alone = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX; /* one thread has it, no locks */
    if (sqlite3_open_v2(":memory:", &r->db, alone, NULL) != SQLITE_OK ||
        sqlite3_deserialize(r->db, "main", bytes, (sqlite3_int64)n, (sqlite3_int64)n, flags) !=
            SQLITE_OK)
        return refuse(r, r->db ? sqlite3_errmsg(r->db) : "out of memory");
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_limit(r->db, SQLITE_LIMIT_LENGTH, TEXT_MAX);
    return true;
}

bool nsys_matches(const uint8_t *head, size_t n)
{
    static const char magic[16] = "SQLite format 3";
    return n >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

bool nsys_read_bytes(Timeline *t, TraceInfo *info, void *bytes, uint64_t n, const char *name,
                     const Rules *rules, Err *err)
{
    TraceInfo own;
    if (!info)
        info = &own;
    trace_info_clear(info);
    *t = (Timeline){ 0 };
    Reader *r = mem_zero(1, sizeof *r);
    r->t = t;
    r->info = info;
    r->rules = rules;
    r->file = name;
    r->rows_max = n;
    r->err = err;
    bool ok = open_database(r, bytes, n) && read_all(r);
    if (ok)
        info->world_size = t->ranks_n;
    info->ranks_counted = ok;
    sqlite3_finalize(r->string_of);
    sqlite3_close(r->db);
    intern_free(&r->keys);
    free(r->value);
    free(r->processes);
    free(r->open_ranges);
    free(r);
    if (!ok)
        timeline_free(t);
    return ok;
}

#define LOG_HELP "(sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)' takes it in)"

/* Whether a write-ahead log lies beside the file, with what was written last. */
static bool has_log(const char *path)
{
    char log[4096];
    struct stat info;
    int n = snprintf(log, sizeof log, "%s-wal", path);
    return n > 0 && (size_t)n < sizeof log && stat(log, &info) == 0 && info.st_size > 0;
}

bool nsys_read(Timeline *t, TraceInfo *info, const char *path, const Rules *rules, Err *err)
{
    Unpacked u;
    Err why = { 0 };
    *t = (Timeline){ 0 };
    if (!unpack_open(&u, path, UNPACK_BYTES_MAX, err))
        return false;
    bool ok = nsys_read_bytes(t, info, u.bytes, u.n, path, rules, &why), log = has_log(path);
    unpack_close(&u);
    if (!ok && log)
        return err_set(err, "cannot read '%s': part of it is still in '%s-wal' " LOG_HELP, path,
                       path);
    if (ok && log && info)
        snprintf(info->note, sizeof info->note,
                 "what was written last is in '-wal' beside it and is missing " LOG_HELP);
    return ok || err_set(err, "%s", why.text);
}
