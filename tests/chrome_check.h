/*
 * chrome_check.h - is this a Chrome trace that Perfetto shows without losing
 * anything?  The rules, after Perfetto's json_trace_tokenizer and slice_tracker:
 *
 *   - valid JSON: an object with the array traceEvents (core/json.h is strict)
 *   - pid and tid are whole numbers; each pid that has events has one process_name,
 *     and no two pids the same: ranks do not melt into one another
 *   - each (pid, tid) that has spans has one thread_name
 *   - X has a name, ts and dur, both numbers, dur >= 0
 *   - C has args, every one a number
 *   - the X of one (pid, tid), taken by ts and then as they stand in the file, nest:
 *     each ends no later than the one it began in
 *
 *     ChromeFacts facts;
 *     if (!chrome_check_file(path, &facts, &err)) ...
 *
 * Reads ".gz" too.  Files are held in memory as a document: 256 MB at most.
 */
#ifndef LOCKSTEP_TESTS_CHROME_CHECK_H
#define LOCKSTEP_TESTS_CHROME_CHECK_H

#include "core/err.h"
#include "core/intern.h"
#include "core/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct ChromeSpan {
    int64_t pid, tid, start_ns, dur_ns;
    uint64_t event; /* its place in the file */
} ChromeSpan;

/* A process or thread seen, and how often it was named. */
typedef struct ChromeThread {
    int64_t pid, tid; /* tid -1: the process itself */
    uint32_t named_n;
} ChromeThread;

typedef struct ChromeFacts {
    uint64_t events_n, spans_n, counters_n, waits_n;
    uint32_t processes_n, threads_n;
} ChromeFacts;

typedef struct ChromeChecker {
    ChromeFacts *facts;
    ChromeSpan *span;
    uint64_t spans_n, spans_cap;
    ChromeThread *thread;
    uint32_t threads_n, threads_cap;
    Interner process_names;
} ChromeChecker;

static inline bool chrome_whole(JsonNode event, const char *key, int64_t *value, Err *err)
{
    JsonNode node = json_member(event, key);
    double x = json_value(node);
    if (json_type(node) != JSON_NUMBER || x != floor(x) || fabs(x) > 9e15)
        return json_fail(event, err, "%s is not a whole number", key);
    *value = (int64_t)x;
    return true;
}

static inline bool chrome_time(JsonNode event, const char *key, int64_t *ns, Err *err)
{
    JsonNode node = json_member(event, key);
    if (json_type(node) != JSON_NUMBER)
        return json_fail(event, err, "%s is not a number", key);
    *ns = llround(json_value(node) * 1000); /* as Perfetto does */
    return true;
}

static inline ChromeThread *chrome_thread(ChromeChecker *c, int64_t pid, int64_t tid)
{
    for (uint32_t i = c->threads_n; i > 0; i--) /* the last one is the likeliest */
        if (c->thread[i - 1].pid == pid && c->thread[i - 1].tid == tid)
            return &c->thread[i - 1];
    GROW(c->thread, c->threads_n, c->threads_cap);
    c->thread[c->threads_n] = (ChromeThread){ pid, tid, 0 };
    return &c->thread[c->threads_n++];
}

static inline bool chrome_check_metadata(ChromeChecker *c, JsonNode event, Err *err)
{
    const char *what = json_text(json_member(event, "name"));
    JsonNode args = json_member(event, "args");
    int64_t pid = 0, tid = -1;
    if (!what || json_type(args) != JSON_OBJECT)
        return json_fail(event, err, "metadata needs a name and args");
    if (!chrome_whole(event, "pid", &pid, err))
        return false;
    bool process = strcmp(what, "process_name") == 0;
    if (strncmp(what, "thread_", 7) == 0 && !chrome_whole(event, "tid", &tid, err))
        return false;
    if (!process && strcmp(what, "thread_name") != 0)
        return true;
    const char *name = json_text(json_member(args, "name"));
    if (!name)
        return json_fail(event, err, "%s without args.name", what);
    if (process && intern_find(&c->process_names, name) != NONE_U32)
        return json_fail(event, err, "a second process is called '%s'", name);
    if (process)
        intern(&c->process_names, name);
    if (++chrome_thread(c, pid, tid)->named_n > 1)
        return json_fail(event, err, "a second %s", what);
    return true;
}

static inline bool chrome_check_span(ChromeChecker *c, JsonNode event, Err *err)
{
    ChromeSpan s = { .event = c->facts->events_n };
    if (!json_text(json_member(event, "name")))
        return json_fail(event, err, "a span without a name");
    if (!chrome_whole(event, "pid", &s.pid, err) || !chrome_whole(event, "tid", &s.tid, err) ||
        !chrome_time(event, "ts", &s.start_ns, err) ||
        !chrome_time(event, "dur", &s.dur_ns, err))
        return false;
    if (s.dur_ns < 0)
        return json_fail(event, err, "dur is negative");
    const char *cat = json_text(json_member(event, "cat"));
    c->facts->waits_n += cat && strcmp(cat, "wait") == 0;
    GROW(c->span, c->spans_n, c->spans_cap);
    c->span[c->spans_n++] = s;
    return true;
}

static inline bool chrome_check_counter(ChromeChecker *c, JsonNode event, Err *err)
{
    int64_t pid = 0, at = 0;
    JsonNode args = json_member(event, "args");
    if (!json_text(json_member(event, "name")) || json_items_n(args) == 0)
        return json_fail(event, err, "a counter needs a name and args");
    if (!chrome_whole(event, "pid", &pid, err) || !chrome_time(event, "ts", &at, err))
        return false;
    for (size_t i = 0; i < json_items_n(args); i++)
        if (json_type(json_member(args, json_key(args, i))) != JSON_NUMBER)
            return json_fail(event, err, "a counter's value is not a number");
    chrome_thread(c, pid, -1);
    c->facts->counters_n++;
    return true;
}

static inline bool chrome_check_event(ChromeChecker *c, JsonNode event, Err *err)
{
    const char *ph = json_text(json_member(event, "ph"));
    if (!ph)
        return json_fail(event, err, "an event without ph");
    if (strcmp(ph, "X") == 0)
        return chrome_check_span(c, event, err);
    if (strcmp(ph, "C") == 0)
        return chrome_check_counter(c, event, err);
    if (strcmp(ph, "M") == 0)
        return chrome_check_metadata(c, event, err);
    return json_fail(event, err, "ph '%s' is none that lockstep writes", ph);
}

static inline int chrome_compare(const void *a_, const void *b_)
{
    const ChromeSpan *a = a_, *b = b_;
    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    if (a->tid != b->tid)
        return a->tid < b->tid ? -1 : 1;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    return a->event < b->event ? -1 : 1;
}

/* The spans of one thread, sorted: keeps the ends of those open on a stack. */
static inline bool chrome_check_nesting(const ChromeSpan *span, uint64_t n, Err *err)
{
    int64_t *end = mem_resize(NULL, n, sizeof *end);
    uint64_t open_n = 0;
    bool ok = true;
    for (uint64_t i = 0; ok && i < n; i++) {
        while (open_n > 0 && end[open_n - 1] <= span[i].start_ns)
            open_n--;
        int64_t own_end = span[i].start_ns + span[i].dur_ns;
        if (open_n > 0 && end[open_n - 1] < own_end)
            ok = err_set(err, "event %" PRIu64 " does not nest in its thread %" PRId64,
                         span[i].event, span[i].tid);
        end[open_n++] = own_end;
    }
    free(end);
    return ok;
}

static inline bool chrome_check_threads(ChromeChecker *c, Err *err)
{
    if (c->spans_n > 0)
        qsort(c->span, c->spans_n, sizeof *c->span, chrome_compare);
    for (uint64_t first = 0, end = 0; first < c->spans_n; first = end) {
        const ChromeSpan *s = &c->span[first];
        while (end < c->spans_n && c->span[end].pid == s->pid && c->span[end].tid == s->tid)
            end++;
        if (!chrome_check_nesting(s, end - first, err))
            return false;
        chrome_thread(c, s->pid, s->tid);
        chrome_thread(c, s->pid, -1);
    }
    for (uint32_t i = 0; i < c->threads_n; i++) {
        const ChromeThread *t = &c->thread[i];
        if (t->named_n == 0)
            return err_set(err, "process %" PRId64 ", thread %" PRId64 " has no name", t->pid,
                           t->tid);
        c->facts->processes_n += t->tid == -1;
        c->facts->threads_n += t->tid != -1;
    }
    return true;
}

static inline bool chrome_check_text(const char *text, size_t n, ChromeFacts *facts, Err *err)
{
    *facts = (ChromeFacts){ 0 };
    ChromeChecker c = { .facts = facts };
    JsonDoc *doc = json_parse(text, n, "trace", err);
    bool ok = doc != NULL;
    if (ok) {
        JsonNode events = json_member(json_root(doc), "traceEvents");
        if (json_type(events) != JSON_ARRAY)
            ok = err_set(err, "trace: traceEvents is not an array");
        size_t i = 0;
        for (JsonNode e = json_first(events); ok && e.item; e = json_next(e, events, ++i)) {
            ok = chrome_check_event(&c, e, err);
            facts->events_n++;
        }
    }
    ok = ok && chrome_check_threads(&c, err);
    facts->spans_n = c.spans_n;
    json_close(doc);
    free(c.span);
    free(c.thread);
    intern_free(&c.process_names);
    return ok;
}

/* The whole file, unpacked if it is packed; NULL when it cannot be read. */
static inline char *chrome_read_file(const char *path, size_t *n)
{
    gzFile f = gzopen(path, "rb"); /* hands plain files through */
    if (!f)
        return NULL;
    size_t cap = 1 << 16;
    char *text = mem_resize(NULL, cap, 1);
    int got = 0;
    for (*n = 0; (got = gzread(f, text + *n, (unsigned)min_u64(cap - *n, 1 << 30))) > 0;) {
        *n += (size_t)got;
        if (*n == cap)
            text = mem_resize(text, cap *= 2, 1);
    }
    gzclose(f);
    if (got == 0)
        return text;
    free(text);
    return NULL;
}

static inline bool chrome_check_file(const char *path, ChromeFacts *facts, Err *err)
{
    size_t n;
    char *text = chrome_read_file(path, &n);
    if (!text)
        return err_set(err, "cannot read '%s'", path);
    bool ok = chrome_check_text(text, n, facts, err);
    free(text);
    return ok || err_wrap(err, "%s", path);
}

#endif
