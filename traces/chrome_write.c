/*
 * chrome_write.c - the document: processes, threads, events.
 *
 * Tracks are written one after another, so that what is in memory is one output
 * buffer, the escaped names, and the open rows of one track.
 */
#include "traces/chrome_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_out.h"
#include "core/lanes.h"
#include "core/text.h"
#include "traces/chrome_parts.h"

enum { TID_FIRST = 100 };

/* Microseconds with three decimals are exact in a double up to here: 2^52 ns, 52 days. */
#define SHOWN_NS_MAX ((int64_t)1 << 52)

/* ---- pieces ---- */

static void begin_event(ChromeWriter *w)
{
    if (w->any_event)
        PUT(w, ",\n");
    w->any_event = true;
}

void chrome_arg(ChromeWriter *w, const char *key)
{
    text_out_char(&w->out, w->arg_separator);
    w->arg_separator = ',';
    text_out_char(&w->out, '"');
    text_out_text(&w->out, key);
    PUT(w, "\":");
}

void chrome_arg_u64(ChromeWriter *w, const char *key, uint64_t value)
{
    chrome_arg(w, key);
    text_out_u64(&w->out, value);
}

void chrome_arg_name(ChromeWriter *w, const char *key, uint32_t name)
{
    chrome_arg(w, key);
    text_out_char(&w->out, '"');
    chrome_put_name(w, name);
    text_out_char(&w->out, '"');
}

void chrome_arg_name_if(ChromeWriter *w, const char *key, uint32_t name)
{
    if (name != NONE_U32)
        chrome_arg_name(w, key, name);
}

static uint64_t pid_of(uint32_t rank)
{
    return (uint64_t)rank + 1;
}

static void put_ids(ChromeWriter *w, uint32_t rank, uint64_t tid)
{
    PUT(w, "\"pid\":");
    text_out_u64(&w->out, pid_of(rank));
    PUT(w, ",\"tid\":");
    text_out_u64(&w->out, tid);
}

static void put_time(ChromeWriter *w, int64_t at_ns)
{
    PUT(w, ",\"ts\":");
    text_out_thousandths(&w->out, at_ns - w->base_ns);
}

/* All names at once through the one place that knows how to escape. */
static void escape_names(ChromeWriter *w)
{
    size_t bytes = 0;
    FILE *f = open_memstream(&w->escaped, &bytes);
    ASSERT(f);
    JsonOut j = json_out_file(f, 0);
    w->name_at = mem_resize(NULL, (size_t)w->t->names.n + 1, sizeof *w->name_at);
    uint64_t *quoted_at = w->name_at;
    for (uint32_t i = 0; i < w->t->names.n; i++) {
        quoted_at[i] = (uint64_t)ftell(f);
        json_out_string(&j, w->t->names.text[i]);
    }
    quoted_at[w->t->names.n] = (uint64_t)ftell(f);
    ASSERT(fclose(f) == 0);

    uint64_t to = 0; /* moves the texts together, without their quotes */
    for (uint32_t i = 0; i < w->t->names.n; i++) {
        uint64_t from = quoted_at[i] + 1, n = quoted_at[i + 1] - 1 - from;
        memmove(w->escaped + to, w->escaped + from, n);
        w->name_at[i] = to;
        to += n;
    }
    w->name_at[w->t->names.n] = to;
}

/* ---- launches and kernels ---- */

/* Counts by op id where ids are small numbers, as those of a graph are. */
static void correlator_init(Correlator *c, const Timeline *t)
{
    if (t->correlation)
        return;
    uint64_t ops_n = 0;
    for (uint64_t i = 0; i < t->spans_n; i++)
        if (t->op[i] != NONE_U32)
            ops_n = max_u64(ops_n, (uint64_t)t->op[i] + 1);
    if (ops_n == 0 || ops_n > 8 * t->spans_n + 1024)
        return;
    c->ops_n = ops_n;
    c->launched_n = mem_zero(ops_n, sizeof *c->launched_n);
    c->run_n = mem_zero(ops_n, sizeof *c->run_n);
}

static void correlator_next_rank(Correlator *c)
{
    if (!c->launched_n)
        return;
    memset(c->launched_n, 0, c->ops_n * sizeof *c->launched_n);
    memset(c->run_n, 0, c->ops_n * sizeof *c->run_n);
}

/* Equal for the n-th launch and the n-th run of an op on a rank; NONE_U64 for other spans. */
static uint64_t correlation_of(Correlator *c, const Timeline *t, const Track *track, uint64_t i)
{
    if (t->correlation)
        return t->correlation[i];
    bool launches = t->span_class[i] == SPAN_LAUNCH;
    if (!c->launched_n || t->op[i] == NONE_U32 || (!launches && track->kind != TRACK_STREAM))
        return NONE_U64;
    uint64_t before = launches ? c->launched_n[t->op[i]]++ : c->run_n[t->op[i]]++;
    return before * c->ops_n + t->op[i] + 1;
}

static void correlator_free(Correlator *c)
{
    free(c->launched_n);
    free(c->run_n);
}

/* ---- rows of a track ---- */

/*
 * Which tid a span goes to.  Row 0 of a host track takes whatever nests in it;
 * rows of streams, and further rows of host tracks, hold spans one after another.
 */
typedef struct Rows {
    const Track *track;
    uint32_t number; /* of the track */
    int64_t stream;  /* id to show, -1 when it is not a stream */
    uint64_t *tid;   /* by row; 0: not there yet */
    uint32_t rows_cap;
    Lanes lanes;
    int64_t *open_end_ns; /* spans open in row 0 of a host track, outermost first */
    uint32_t open_n, open_cap;
} Rows;

static void rows_begin(Rows *r, const Track *track, uint32_t number, int64_t stream)
{
    r->track = track;
    r->number = number;
    r->stream = stream;
    r->open_n = 0;
    lanes_clear(&r->lanes);
    if (r->rows_cap)
        memset(r->tid, 0, r->rows_cap * sizeof *r->tid);
}

static void rows_free(Rows *r)
{
    lanes_free(&r->lanes);
    free(r->tid);
    free(r->open_end_ns);
}

static bool nests(Rows *r, int64_t start_ns, int64_t end_ns)
{
    while (r->open_n > 0 && r->open_end_ns[r->open_n - 1] <= start_ns)
        r->open_n--;
    if (r->open_n > 0 && r->open_end_ns[r->open_n - 1] < end_ns)
        return false;
    GROW(r->open_end_ns, r->open_n, r->open_cap);
    r->open_end_ns[r->open_n++] = end_ns;
    return true;
}

static void put_thread(ChromeWriter *w, const Rows *r, uint32_t row)
{
    const Track *k = r->track;
    begin_event(w);
    PUT(w, "{\"ph\":\"M\",\"name\":\"thread_name\",");
    put_ids(w, k->rank, r->tid[row]);
    PUT(w, ",\"args\":{\"name\":\"");
    chrome_put_name(w, k->name);
    if (row > 0) {
        PUT(w, " (");
        text_out_u64(&w->out, (uint64_t)row + 1);
        PUT(w, ")");
    }
    PUT(w, "\",\"track\":");
    text_out_u64(&w->out, r->number);
    PUT(w, ",\"kind\":\"");
    text_out_text(&w->out, track_kind_names[k->kind]);
    PUT(w, "\",\"sort\":");
    text_out_i64(&w->out, k->sort);
    PUT(w, ",\"stands_for\":");
    text_out_u64(&w->out, k->ranks_n);
    PUT(w, "}}");

    begin_event(w);
    PUT(w, "{\"ph\":\"M\",\"name\":\"thread_sort_index\",");
    put_ids(w, k->rank, r->tid[row]);
    PUT(w, ",\"args\":{\"sort_index\":");
    text_out_u64(&w->out, r->tid[row]);
    PUT(w, "}}");
}

/* The tid of a row, which is announced at its first use. */
static uint64_t tid_of_row(ChromeWriter *w, Rows *r, uint32_t row)
{
    if (row >= r->rows_cap) {
        uint32_t cap = row < 8 ? 16 : 2 * row;
        r->tid = mem_resize(r->tid, cap, sizeof *r->tid);
        memset(r->tid + r->rows_cap, 0, (cap - r->rows_cap) * sizeof *r->tid);
        r->rows_cap = cap;
    }
    if (r->tid[row] == 0) {
        r->tid[row] = w->tid_next++;
        put_thread(w, r, row);
    }
    return r->tid[row];
}

static uint64_t tid_of_span(ChromeWriter *w, Rows *r, uint64_t i)
{
    int64_t start_ns = w->t->start_ns[i], dur_ns = w->t->dur_ns[i];
    if (r->track->kind == TRACK_STREAM)
        return tid_of_row(w, r, lanes_take(&r->lanes, start_ns, dur_ns));
    if (nests(r, start_ns, start_ns + dur_ns))
        return tid_of_row(w, r, 0);
    return tid_of_row(w, r, 1 + lanes_take(&r->lanes, start_ns, dur_ns));
}

/* ---- events ---- */

/* GPU work has a stream; what analyzers are not to take for GPU work has none. */
static bool shows_stream(const Timeline *t, const Rows *r, uint64_t i)
{
    SpanClass class_ = t->span_class[i];
    return r->stream >= 0 && (class_ <= SPAN_MEMORY || class_ == SPAN_SYNC);
}

/* What cat and Comm do not tell a reader: communication without one, steps elsewhere. */
static bool class_is_hidden(const Timeline *t, const Rows *r, uint64_t i)
{
    SpanClass class_ = t->span_class[i];
    if (class_ == SPAN_STEP || class_ == SPAN_NOTE)
        return (class_ == SPAN_STEP) != (r->track->kind == TRACK_STEPS);
    return (class_ == SPAN_COMM || class_ == SPAN_P2P) && !timeline_comm_of(t, i);
}

/* As text: readers keep numbers as doubles. */
static void put_logical(ChromeWriter *w, LogicalOps of)
{
    if (of.n == 0)
        return;
    char key[24];
    snprintf(key, sizeof key, "\"%" PRIx64 ":", of.instance);
    chrome_arg(w, "logical");
    text_out_text(&w->out, key);
    for (uint32_t k = 0; k < of.n; k++) {
        if (k > 0)
            text_out_char(&w->out, ',');
        text_out_u64(&w->out, of.op[k]);
    }
    text_out_char(&w->out, '"');
}

static void put_args(ChromeWriter *w, const Rows *r, uint64_t i, bool own_name)
{
    const Timeline *t = w->t;
    if (class_is_hidden(t, r, i)) {
        chrome_arg(w, "class");
        text_out_char(&w->out, '"');
        text_out_text(&w->out, span_class_names[t->span_class[i]]);
        text_out_char(&w->out, '"');
    }
    if (!own_name)
        chrome_arg_name(w, "name", t->span_name[i]);
    if (t->op[i] != NONE_U32)
        chrome_arg_u64(w, "op", t->op[i]);
    if (*timeline_op_name(t, i))
        chrome_arg_name(w, "op_name", t->op_name[i]);
    put_logical(w, timeline_logical_of(t, i));
    if (shows_stream(t, r, i)) {
        chrome_arg_u64(w, "device", r->track->rank);
        chrome_arg_u64(w, "stream", (uint64_t)r->stream);
    }
    uint64_t correlation = correlation_of(&w->correlator, t, r->track, i);
    if (correlation != NONE_U64)
        chrome_arg_u64(w, "correlation", correlation);
    chrome_put_comm_args(w, r->track, i);
    chrome_put_launch_args(w, i);
}

static void put_wait(ChromeWriter *w, const Rows *r, uint64_t tid, uint64_t i)
{
    begin_event(w);
    PUT(w, "{\"ph\":\"X\",\"cat\":\"wait\",\"name\":\"wait\",");
    put_ids(w, r->track->rank, tid);
    put_time(w, w->t->start_ns[i]);
    PUT(w, ",\"dur\":");
    text_out_thousandths(&w->out, timeline_wait_ns(w->t, i));
    PUT(w, "}");
}

static void put_span(ChromeWriter *w, Rows *r, uint64_t i)
{
    const Timeline *t = w->t;
    uint64_t tid = tid_of_span(w, r, i);
    begin_event(w);
    PUT(w, "{\"ph\":\"X\",\"cat\":\"");
    text_out_text(&w->out, chrome_cat(t, r->track, i));
    PUT(w, "\",\"name\":\"");
    bool own_name = chrome_put_span_name(w, r->track, i);
    PUT(w, "\",");
    put_ids(w, r->track->rank, tid);
    put_time(w, t->start_ns[i]);
    PUT(w, ",\"dur\":");
    text_out_thousandths(&w->out, t->dur_ns[i]);
    PUT(w, ",\"args\":");
    w->arg_separator = '{';
    put_args(w, r, i, own_name);
    text_out_text(&w->out, w->arg_separator == '{' ? "{}}" : "}}");

    /* On streams only: on a host track other spans may begin within the waiting part. */
    if (r->track->kind == TRACK_STREAM && timeline_wait_ns(t, i) > 0)
        put_wait(w, r, tid, i);
}

/* Whole numbers as such; others with the fewest digits that read back equal. */
static void put_number(ChromeWriter *w, double x)
{
    if (fabs(x) < 9e15 && x == floor(x)) {
        text_out_i64(&w->out, (int64_t)x);
        return;
    }
    rewind(w->number);
    JsonOut j = json_out_file(w->number, 0);
    json_out_number(&j, x);
    putc('\0', w->number);
    fflush(w->number);
    text_out_text(&w->out, w->number_text);
}

static void put_counter(ChromeWriter *w, uint32_t number, bool name_is_shared)
{
    const Track *k = &w->t->tracks[number];
    for (uint64_t i = k->point_first; i < k->point_first + k->point_n; i++) {
        begin_event(w);
        PUT(w, "{\"ph\":\"C\",\"name\":\"");
        chrome_put_name(w, k->name);
        PUT(w, "\",");
        if (name_is_shared) {
            PUT(w, "\"id\":");
            text_out_u64(&w->out, number);
            PUT(w, ",");
        }
        PUT(w, "\"pid\":");
        text_out_u64(&w->out, pid_of(k->rank));
        put_time(w, w->t->point_ns[i]);
        PUT(w, ",\"args\":{\"value\":");
        put_number(w, w->t->point_value[i]);
        PUT(w, "}}");
    }
}

/* ---- ranks ---- */

/* The tracks of one rank: order[first] to order[end - 1]. */
typedef struct RankTracks {
    const uint32_t *order;
    uint32_t first, end;
    bool sorts_are_ids; /* sort values of streams are distinct and not negative */
} RankTracks;

static RankTracks rank_tracks(const Timeline *t, const uint32_t *order, uint32_t first)
{
    RankTracks r = { order, first, first, true };
    const Track *before = NULL;
    for (; r.end < t->tracks_n; r.end++) {
        const Track *k = &t->tracks[order[r.end]];
        if (k->rank != t->tracks[order[first]].rank)
            break;
        if (k->kind != TRACK_STREAM)
            continue;
        r.sorts_are_ids &= k->sort >= 0 && (!before || before->sort != k->sort);
        before = k;
    }
    return r;
}

static void put_process(ChromeWriter *w, const RankTracks *tracks)
{
    uint32_t stands_for = 1, rank = w->t->tracks[tracks->order[tracks->first]].rank;
    for (uint32_t i = tracks->first; i < tracks->end; i++)
        if (stands_for < w->t->tracks[tracks->order[i]].ranks_n)
            stands_for = w->t->tracks[tracks->order[i]].ranks_n;

    begin_event(w);
    PUT(w, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":");
    text_out_u64(&w->out, pid_of(rank));
    PUT(w, ",\"args\":{\"name\":\"rank ");
    text_out_u64(&w->out, rank);
    if (stands_for > 1) {
        PUT(w, " (stands for ");
        text_out_u64(&w->out, stands_for);
        PUT(w, " ranks)");
    }
    PUT(w, "\",\"rank\":");
    text_out_u64(&w->out, rank);
    PUT(w, "}}");

    begin_event(w);
    PUT(w, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":");
    text_out_u64(&w->out, pid_of(rank));
    PUT(w, ",\"args\":{\"sort_index\":");
    text_out_u64(&w->out, rank);
    PUT(w, "}}");
}

static bool name_is_shared(const Timeline *t, const RankTracks *tracks, uint32_t number)
{
    for (uint32_t i = tracks->first; i < tracks->end; i++) {
        const Track *k = &t->tracks[tracks->order[i]];
        if (tracks->order[i] != number && k->kind == TRACK_COUNTER &&
            k->name == t->tracks[number].name)
            return true;
    }
    return false;
}

static void put_rank(ChromeWriter *w, Rows *rows, const RankTracks *tracks)
{
    put_process(w, tracks);
    correlator_next_rank(&w->correlator);
    int64_t streams_n = 0;
    for (uint32_t i = tracks->first; i < tracks->end; i++) {
        uint32_t number = tracks->order[i];
        const Track *k = &w->t->tracks[number];
        if (k->kind == TRACK_COUNTER) {
            put_counter(w, number, name_is_shared(w->t, tracks, number));
            continue;
        }
        int64_t stream = -1;
        if (k->kind == TRACK_STREAM) {
            stream = tracks->sorts_are_ids ? k->sort : streams_n;
            streams_n++;
        }
        rows_begin(rows, k, number, stream);
        tid_of_row(w, rows, 0); /* an empty track is shown too */
        for (uint64_t s = k->span_first; s < k->span_first + k->span_n; s++)
            put_span(w, rows, s);
    }
}

/* ---- the document ---- */

/* Of a file of one rank.  How many there are besides is written only where it is known: a reader
 * takes a world of one for a run without communication. */
static void put_distributed_info(ChromeWriter *w, uint32_t rank)
{
    uint32_t world = timeline_world_size(w->t);
    PUT(w, ",\n\"distributedInfo\":{");
    if (world > 0)
        PUT(w, "\"backend\":\"nccl\",");
    PUT(w, "\"rank\":");
    text_out_u64(&w->out, rank);
    if (world > 0) {
        PUT(w, ",\"world_size\":");
        text_out_u64(&w->out, world);
    }
    PUT(w, "}");
}

static void put_head(ChromeWriter *w, const uint32_t *order)
{
    const Timeline *t = w->t;
    PUT(w, "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":");
    text_out_i64(&w->out, w->base_ns);
    if (t->tracks_n > 0 && t->tracks[order[0]].rank == t->tracks[order[t->tracks_n - 1]].rank)
        put_distributed_info(w, t->tracks[order[0]].rank);
    PUT(w, ",\n\"otherData\":{\"writer\":\"lockstep\",\"ranks\":");
    text_out_u64(&w->out, t->ranks_n);
    if (t->name) {
        PUT(w, ",\"name\":\"");
        chrome_put_name(w, intern_find(&t->names, t->name));
        PUT(w, "\"");
    }
    PUT(w, "},\n\"traceEvents\":[\n");
}

static uint64_t first_tid(const Timeline *t)
{
    uint64_t tid = TID_FIRST;
    while (tid <= t->ranks_n)
        tid *= 10;
    return tid;
}

static void put_document(ChromeWriter *w)
{
    const Timeline *t = w->t;
    uint32_t *order = mem_resize(NULL, t->tracks_n, sizeof *order);
    timeline_track_order(t, order);
    put_head(w, order);
    Rows rows = { .track = NULL };
    for (uint32_t first = 0; first < t->tracks_n;) {
        RankTracks tracks = rank_tracks(t, order, first);
        put_rank(w, &rows, &tracks);
        first = tracks.end;
    }
    PUT(w, "\n]}\n");
    rows_free(&rows);
    free(order);
}

bool chrome_write(const Timeline *t, const char *path, Err *err)
{
    ASSERT(t->sealed);
    ChromeWriter w = { .t = t, .tid_next = first_tid(t) };
    if (!text_out_open(&w.out, path, text_ends_in(path, ".gz"), err))
        return false;
    w.base_ns = t->begin_ns < 0 || t->end_ns > SHOWN_NS_MAX ? t->begin_ns : 0;
    w.number = fmemopen(w.number_text, sizeof w.number_text, "w");
    ASSERT(w.number);
    escape_names(&w);
    correlator_init(&w.correlator, t);

    put_document(&w);

    correlator_free(&w.correlator);
    fclose(w.number);
    free(w.name_at);
    free(w.escaped);
    return text_out_commit(&w.out, err);
}
