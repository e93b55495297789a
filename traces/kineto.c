/*
 * kineto.c - the document: a window that slides over the text, its top level, and
 * how to go on after damage.
 *
 *     |.. read ..|== window: whole events =========|## part of one ##|
 *                                                   ^ moves to the front, more is read behind
 *
 * An event is scanned within the window.  When the window ends first, the event
 * moves to the front, the window is filled up, and it is scanned again.
 *
 * After damage the search for the next event goes by how events begin: a brace
 * after a comma, a bracket or a brace, and a key of events.
 */
#include "traces/kineto.h"

#include <stdlib.h>
#include <string.h>

#include "traces/bytes_in.h"
#include "traces/kineto_parts.h"

enum { WINDOW_BYTES = 1 << 18, LOOK_BACK_BYTES = 256, LOOK_AHEAD_BYTES = 64 };

/* Times after this (September 2001) are on the wall clock. */
#define WALL_CLOCK_NS_MIN ((int64_t)1000000000 * 1000000000)

/* Of a document, besides its events. */
typedef struct Head {
    int64_t base_ns;
    uint64_t first_span, first_point;
} Head;

typedef struct Reader {
    Kineto k;
    BytesIn in;
    uint8_t *window;
    size_t cap;
    uint64_t offset; /* of window[0] in the text */
    Scan s;          /* the rest of the window */
    bool ended;      /* there is no more to read */
    bool found_list; /* of events */
    Head head;
    uint32_t ranks_n;    /* as chrome_write says */
    uint32_t other_rank; /* that a document says, unlike one before; NONE_U32 */
} Reader;

static uint64_t offset_of(const Reader *r, const uint8_t *p)
{
    return r->offset + (uint64_t)(p - r->window);
}

/* ---- the window ---- */

static void fill(Reader *r)
{
    size_t have = (size_t)(r->s.end - r->window);
    while (have < r->cap) {
        size_t n = bytes_in_read(&r->in, r->window + have, r->cap - have);
        have += n;
        r->ended = n == 0;
        if (n == 0 || have >= r->cap / 2)
            break;
    }
    memset(r->window + have, 0, SCAN_PADDING_BYTES);
    r->s.end = r->window + have;
}

/*
 * Lets go of what stands before keep and reads more behind it; s.at stays on the
 * same byte.  False when there is no more, or the window cannot grow.
 */
static bool more(Reader *r, const uint8_t *keep)
{
    size_t passed = (size_t)(keep - r->window), left = (size_t)(r->s.end - keep);
    size_t at = r->s.at < r->s.end ? (size_t)(r->s.at - keep) : left;
    if (r->ended)
        return false;
    memmove(r->window, keep, left);
    r->offset += passed;
    if (left > r->cap / 2) {
        if (r->cap >= KINETO_EVENT_BYTES_MAX) {
            r->s.end = r->window + left;
            r->s.at = r->window + at;
            memset(r->window + left, 0, SCAN_PADDING_BYTES);
            return false;
        }
        r->cap *= 2;
        r->window = mem_resize(r->window, r->cap + SCAN_PADDING_BYTES, 1);
    }
    r->s.end = r->window + left;
    fill(r);
    r->s.at = r->window + at;
    return r->s.end > r->window + left;
}

/* To the next byte that is no white space, comma or NUL; false at the end of the text. */
static bool skip_between(Reader *r)
{
    for (;;) {
        while (r->s.at < r->s.end && (*r->s.at <= ' ' || *r->s.at == ','))
            r->s.at++;
        if (r->s.at < r->s.end)
            return true;
        r->s.at = r->s.end;
        if (!more(r, r->s.end))
            return false;
    }
}

/* ---- damage ---- */

/* Whether p, an opening brace, looks like the beginning of an event. */
static bool begins_event(const Reader *r, const uint8_t *p)
{
    static const char *const keys[] = { "\"ph\"",  "\"name\"", "\"cat\"",
                                        "\"pid\"", "\"ts\"",   "\"tid\"" };
    const uint8_t *before = p;
    while (before > r->window && before[-1] <= ' ')
        before--;
    if (before == r->window || !strchr(",[}", before[-1]) || before[-1] == '\0')
        return false;
    Scan s = { p + 1, r->s.end, NULL };
    scan_space(&s);
    for (size_t i = 0; i < ARRAY_N(keys); i++)
        if ((size_t)(s.end - s.at) >= strlen(keys[i]) &&
            memcmp(s.at, keys[i], strlen(keys[i])) == 0)
            return true;
    return false;
}

/* Whether p, a closing bracket, looks like the end of the list of events. */
static bool ends_list(const Reader *r, const uint8_t *p)
{
    const uint8_t *before = p;
    while (before > r->window && before[-1] <= ' ')
        before--;
    if (before == r->window || before[-1] != '}')
        return false;
    Scan s = { p + 1, r->s.end, NULL };
    scan_space(&s);
    if (s.at < s.end && *s.at == '}')
        return true;
    if (s.at >= s.end || *s.at != ',')
        return false;
    s.at++;
    scan_space(&s);
    return s.at < s.end && *s.at == '"';
}

/* To where reading can go on, behind from; false when there is no such place. */
static bool resync(Reader *r, const uint8_t *from)
{
    r->s.problem = NULL;
    r->s.at = from;
    for (;;) {
        r->s.at = scan_at_structure(r->s.at, r->s.end);
        if (r->s.at > r->s.end)
            r->s.at = r->s.end;
        if (r->s.end - r->s.at < LOOK_AHEAD_BYTES && !r->ended) {
            size_t back = (size_t)(r->s.at - r->window);
            more(r, r->s.at - (back < LOOK_BACK_BYTES ? back : LOOK_BACK_BYTES));
            continue;
        }
        if (r->s.at >= r->s.end)
            return false;
        if (*r->s.at == '{' && begins_event(r, r->s.at))
            return true;
        if (*r->s.at == ']' && ends_list(r, r->s.at))
            return true;
        r->s.at++;
    }
}

/* ---- events ---- */

static void damaged(Reader *r, const uint8_t *at, const char *reason)
{
    trace_info_damage(r->k.info, offset_of(r, at), reason);
}

/* The event at s.at; false when it is damaged, and s.at stands at what follows. */
static bool read_event(Reader *r, Event *e)
{
    const uint8_t *start = r->s.at;
    while (!event_scan(&r->s, e)) {
        const char *problem = r->s.problem;
        r->s.at = start;
        if (!problem && more(r, start)) {
            start = r->s.at;
            continue;
        }
        start = r->s.at;
        if (!problem && r->ended)
            r->k.info->cut_short = true;
        if (!problem)
            problem = r->ended ? "the file ends within it" : "it is longer than 32 MiB";
        damaged(r, start, problem);
        return false;
    }
    e->offset = offset_of(r, start);
    const char *problem = kineto_add(&r->k, e);
    if (problem)
        damaged(r, start, problem);
    else
        r->k.info->events_read++;
    return true;
}

/* From behind the opening bracket to behind the closing one; false when there is none. */
static bool read_events(Reader *r, bool may_stay_open)
{
    Event *e = mem_zero(1, sizeof *e);
    r->found_list = true;
    bool more_events = true, closed = false;
    while (more_events && !closed) {
        if (!skip_between(r)) {
            r->k.info->cut_short |= !may_stay_open;
            more_events = false;
        } else if (*r->s.at == ']') {
            r->s.at++;
            closed = true;
        } else if (*r->s.at != '{') {
            damaged(r, r->s.at, "an event is expected");
            more_events = resync(r, r->s.at + 1);
        } else if (!read_event(r, e)) {
            more_events = resync(r, r->s.at + 1);
        }
    }
    free(e);
    return closed;
}

/* ---- the rest of the document ---- */

/* A whole value in the window; false when it does not fit or the text ends. */
static bool read_value(Reader *r, ScanText *v)
{
    const uint8_t *start = r->s.at;
    while (!scan_value(&r->s, v)) {
        r->s.at = start;
        if (r->s.problem || !more(r, start))
            return false;
        start = r->s.at;
    }
    return true;
}

/* One string value's text, for members of distributedInfo and such. */
static bool member_of(const ScanText *object, const char *name, ScanText *v)
{
    Scan s = { object->at, object->at + object->n, NULL };
    ScanText key;
    bool closed;
    if (object->kind != SCAN_OBJECT || !scan_open(&s, '{'))
        return false;
    while (scan_member(&s, &key, &closed) && scan_value(&s, v))
        if (scan_is(&key, name, strlen(name)))
            return true;
    return false;
}

static void take_distributed(Reader *r, const ScanText *v)
{
    ScanText member;
    int64_t x;
    if (member_of(v, "rank", &member) && scan_whole(&member, &x) && x >= 0 &&
        x < (int64_t)TIMELINE_RANKS_MAX) {
        if (r->k.info->rank != NONE_U32 && r->k.info->rank != (uint32_t)x)
            r->other_rank = (uint32_t)x;
        else
            r->k.info->rank = (uint32_t)x;
    }
    if (member_of(v, "world_size", &member) && scan_whole(&member, &x) && x > 0 &&
        x <= (int64_t)TIMELINE_RANKS_MAX)
        r->k.info->world_size = (uint32_t)x;
}

static void take_devices(Reader *r, const ScanText *v)
{
    Scan s = { v->at, v->at + v->n, NULL };
    ScanText device, name;
    TraceInfo *info = r->k.info;
    if (v->kind != SCAN_ARRAY || !scan_open(&s, '[') || !scan_value(&s, &device) ||
        !member_of(&device, "name", &name))
        return;
    size_t n = scan_unescape(&name, info->device, sizeof info->device - 1);
    info->device[n] = '\0';
}

static void take_other(Reader *r, const ScanText *v)
{
    ScanText member;
    int64_t x;
    if (!member_of(v, "writer", &member) || !SCAN_IS(&member, "lockstep"))
        return;
    r->k.from_us = true;
    if (member_of(v, "ranks", &member) && scan_whole(&member, &x) && x >= 0 &&
        x <= (int64_t)TIMELINE_RANKS_MAX)
        r->ranks_n = (uint32_t)x;
    if (member_of(v, "name", &member) && member.kind == SCAN_STRING) {
        uint32_t name = kineto_intern(&r->k, &member);
        timeline_set_name(r->k.t, timeline_text(r->k.t, name));
    }
}

static void take_member(Reader *r, const ScanText *key, const ScanText *v)
{
    if (SCAN_IS(key, "distributedInfo"))
        take_distributed(r, v);
    else if (SCAN_IS(key, "deviceProperties"))
        take_devices(r, v);
    else if (SCAN_IS(key, "baseTimeNanoseconds"))
        scan_decimal(v, 0, &r->head.base_ns);
    else if (SCAN_IS(key, "otherData"))
        take_other(r, v);
}

static bool is_wanted(const ScanText *key)
{
    return SCAN_IS(key, "distributedInfo") || SCAN_IS(key, "deviceProperties") ||
           SCAN_IS(key, "baseTimeNanoseconds") || SCAN_IS(key, "otherData");
}

/* Where one is within a value that may be longer than the window. */
typedef struct Skip {
    uint64_t depth;
    bool in_string, escaped;
} Skip;

/* False when the value has ended before c. */
static bool skip_byte(Skip *k, uint8_t c)
{
    if (k->in_string) {
        k->in_string = k->escaped || c != '"';
        k->escaped = !k->escaped && c == '\\';
        return true;
    }
    if (k->depth == 0 && (c == ',' || c == '}' || c == ']'))
        return false;
    k->in_string = c == '"';
    k->depth += c == '{' || c == '[';
    k->depth -= c == '}' || c == ']';
    return true;
}

/* Passes a value of any length, and holds none of it. */
static bool skip_value(Reader *r)
{
    Skip k = { .depth = 0 };
    for (;;) {
        for (; r->s.at < r->s.end; r->s.at++)
            if (!skip_byte(&k, *r->s.at))
                return true;
        if (!more(r, r->s.end))
            return false;
    }
}

/* The next key of the document, in the window and behind its colon. */
static bool read_key(Reader *r, ScanText *key, bool *closed)
{
    const uint8_t *start = r->s.at;
    while (!scan_member(&r->s, key, closed)) {
        if (*closed)
            return false;
        r->s.at = start;
        if (r->s.problem || !more(r, start))
            return false;
        start = r->s.at;
    }
    return true;
}

static bool read_member(Reader *r, const ScanText *key)
{
    char name[32];
    size_t n = scan_unescape(key, name, sizeof name);
    ScanText copy = { .at = (const uint8_t *)name, .n = (uint32_t)n, .kind = SCAN_STRING };
    if (!skip_between(r))
        return false;
    if (SCAN_IS(&copy, "traceEvents") && *r->s.at == '[') {
        r->s.at++;
        return read_events(r, false);
    }
    if (!is_wanted(&copy))
        return skip_value(r);
    ScanText value;
    if (!read_value(r, &value))
        return false;
    take_member(r, &copy, &value);
    return true;
}

/* Damage outside of events: whatever events follow are read. */
static bool go_on_after_damage(Reader *r)
{
    const char *problem = r->s.problem;
    if (!problem) {
        r->k.info->cut_short = true;
        return false;
    }
    damaged(r, r->s.at, problem);
    bool found = resync(r, r->s.at);
    while (found && *r->s.at != '{')
        found = resync(r, r->s.at + 1);
    return found && read_events(r, false);
}

/* The object from behind its brace; false when its end is not there. */
static bool read_object(Reader *r)
{
    for (;;) {
        ScanText key;
        bool closed;
        if (read_key(r, &key, &closed)) {
            if (read_member(r, &key))
                continue;
        } else if (closed) {
            return true;
        }
        if (!go_on_after_damage(r))
            return false;
    }
}

/* ---- all ---- */

static bool shift_fits(const Reader *r, int64_t base_ns)
{
    const Timeline *t = r->k.t;
    for (uint64_t i = r->head.first_span; i < t->spans_n; i++)
        if (!timeline_ns_in_range(t->start_ns[i] + base_ns) ||
            !timeline_ns_in_range(t->start_ns[i] + t->dur_ns[i] + base_ns))
            return false;
    for (uint64_t i = r->head.first_point; i < t->points_n; i++)
        if (!timeline_ns_in_range(t->point_ns[i] + base_ns))
            return false;
    return true;
}

/* Makes the times of a document absolute. */
static void add_base(Reader *r)
{
    Timeline *t = r->k.t;
    int64_t base_ns = r->head.base_ns;
    if (base_ns == 0 || !timeline_ns_in_range(base_ns) || !shift_fits(r, base_ns))
        return;
    r->k.info->base_ns = base_ns;
    for (uint64_t i = r->head.first_span; i < t->spans_n; i++)
        t->start_ns[i] += base_ns;
    for (uint64_t i = r->head.first_point; i < t->points_n; i++)
        t->point_ns[i] += base_ns;
}

/* False when the text ends before the document does. */
static bool read_document(Reader *r)
{
    r->head = (Head){ 0, r->k.t->spans_n, r->k.t->points_n };
    bool is_list = *r->s.at == '[';
    r->s.at++;
    bool whole = is_list ? read_events(r, true) : read_object(r);
    kineto_end_document(&r->k, r->head.first_span);
    add_base(r);
    return whole;
}

static void read_documents(Reader *r)
{
    fill(r);
    r->s.at = r->window;
    if (r->s.end - r->s.at >= 3 && memcmp(r->s.at, "\xef\xbb\xbf", 3) == 0)
        r->s.at += 3;
    while (skip_between(r)) {
        if (*r->s.at != '{' && *r->s.at != '[') {
            damaged(r, r->s.at, "it follows the end of the document");
            return;
        }
        r->k.info->documents_n++;
        if (!read_document(r))
            return;
    }
}

static void give_ranks(Reader *r)
{
    Timeline *t = r->k.t;
    uint32_t rank = r->k.info->rank == NONE_U32 ? 0 : r->k.info->rank;
    for (uint32_t i = 0; i < t->tracks_n && !r->k.from_us; i++)
        t->tracks[i].rank = rank;
    if (r->k.from_us)
        places_give_ranks(&r->k);
    else if (r->k.info->rank == NONE_U32)
        r->k.info->ranks_counted = places_give_devices(&r->k);
    t->ranks_n = (uint32_t)max_u64(r->ranks_n, r->k.info->world_size);
    for (uint32_t i = 0; i < t->tracks_n; i++)
        if (t->ranks_n <= t->tracks[i].rank)
            t->ranks_n = t->tracks[i].rank + 1;
}

/* False and a sentence when what was found is no trace. */
static bool is_trace(const Reader *r, const char *path, Err *err)
{
    const TraceInfo *info = r->k.info;
    const char *problem = bytes_in_problem(&r->in);
    if (r->other_rank != NONE_U32)
        return err_set(err,
                       "cannot read '%s': it holds traces of rank %u and rank %u one after "
                       "another, each rank needs a file of its own",
                       path, (unsigned)info->rank, (unsigned)r->other_rank);
    if (info->events_read > 0 || (r->found_list && info->events_skipped == 0 && !problem))
        return true;
    if (problem)
        return err_set(err, "cannot read '%s': %s", path, problem);
    if (info->damage_n > 0)
        return err_set(err,
                       "cannot read '%s': it holds no event that can be read; at byte %" PRIu64
                       ": %s",
                       path, info->damage[0].offset, info->damage[0].reason);
    return err_set(err, "cannot read '%s': it is JSON without traceEvents", path);
}

static void finish(Reader *r)
{
    Timeline *t = r->k.t;
    r->k.info->broken = bytes_in_problem(&r->in);
    places_name_tracks(&r->k);
    give_ranks(r);
    timeline_seal(t);
    r->k.info->wall_clock = t->spans_n > 0 && t->begin_ns >= WALL_CLOCK_NS_MIN;
}

/* As many spans as a file of that size has at most, by experience. */
static uint64_t guess_spans(const BytesIn *in)
{
    enum { PACKED_RATIO = 20, EVENT_BYTES = 160 };
    uint64_t json_bytes = in->unpacker ? in->file_bytes * PACKED_RATIO : in->file_bytes;
    return json_bytes / EVENT_BYTES;
}

/* From r->in, which is open, with the first window's size. */
static bool read_open(Reader *r, const char *path, Err *err)
{
    event_prepare();
    timeline_want(r->k.t, true, true);
    timeline_reserve(r->k.t, guess_spans(&r->in));
    r->window = mem_resize(NULL, r->cap + SCAN_PADDING_BYTES, 1);
    r->s.at = r->s.end = r->window;
    read_documents(r);
    bool ok = is_trace(r, path, err);
    if (ok)
        finish(r);
    else
        timeline_free(r->k.t);
    bytes_in_close(&r->in);
    kineto_free(&r->k);
    free(r->window);
    return ok;
}

static Reader reader_of(Timeline *t, TraceInfo *info, const Rules *rules, size_t window_bytes)
{
    *t = (Timeline){ 0 };
    trace_info_clear(info);
    return (Reader){ .k = { .t = t,
                            .info = info,
                            .rules = rules,
                            .open_free = NONE_U32,
                            .latest_ns = INT64_MIN },
                     .cap = window_bytes,
                     .other_rank = NONE_U32 };
}

bool kineto_read(Timeline *t, TraceInfo *info, const char *path, const Rules *rules, Err *err)
{
    Reader r = reader_of(t, info, rules, WINDOW_BYTES);
    return bytes_in_open(&r.in, path, err) && read_open(&r, path, err);
}

bool kineto_read_bytes(Timeline *t, TraceInfo *info, const void *bytes, size_t n,
                       const char *name, size_t window_bytes, const Rules *rules, Err *err)
{
    Reader r = reader_of(t, info, rules, window_bytes);
    return bytes_in_memory(&r.in, bytes, n, name, err) && read_open(&r, name, err);
}

bool kineto_matches(const uint8_t *head, size_t n)
{
    size_t i = n >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (i < n && (head[i] == ' ' || head[i] == '\n' || head[i] == '\r' || head[i] == '\t'))
        i++;
    return i < n && (head[i] == '{' || head[i] == '[');
}
