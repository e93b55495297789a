/*
 * raw_world.h - recordings of the collector, written by hand for tests.
 *
 *     RawWorld w = raw_world();                  a head, process 100, no rank
 *     raw_clock(&w, 1000, 5000);                 CUPTI's 1000 is 5000 on the wall clock
 *     raw_kernel(&w, "gemm", 7, 1000, 1500);     stream 7
 *     raw_add(&w, &any.top);                     any other record
 *     raw_read(&w, &t, &info, &options, &err);
 */
#ifndef LOCKSTEP_TESTS_RAW_WORLD_H
#define LOCKSTEP_TESTS_RAW_WORLD_H

#include <stdio.h>
#include <string.h>

#include "core/arena.h"
#include "profile/records.h"

enum { RAW_WORLD_BYTES = 1 << 16 };

typedef struct RawWorld {
    _Alignas(8) uint8_t bytes[RAW_WORLD_BYTES];
    uint64_t n;
    uint32_t texts_n;
} RawWorld;

static inline RawHead *raw_head(RawWorld *w)
{
    return (RawHead *)(void *)w->bytes;
}

static inline RawWorld raw_world(void)
{
    RawWorld w = { .n = RAW_HEAD_BYTES };
    *raw_head(&w) = (RawHead){ .magic = RAW_MAGIC,
                               .version = RAW_VERSION,
                               .byte_order = RAW_BYTE_ORDER,
                               .head_bytes = RAW_HEAD_BYTES,
                               .flags = RAW_ENDED,
                               .pid = 100,
                               .rank = NONE_U32,
                               .world = NONE_U32,
                               .local_rank = NONE_U32,
                               .host = "here",
                               .command = "train" };
    return w;
}

static inline void raw_add(RawWorld *w, const RawTop *record)
{
    ASSERT(w->n + record->bytes <= RAW_WORLD_BYTES);
    memcpy(w->bytes + w->n, record, record->bytes);
    w->n += record->bytes;
}

/* Always a new text. */
static inline uint32_t raw_text(RawWorld *w, const char *text)
{
    _Alignas(8) char record[1024] = { 0 };
    size_t n = strlen(text), bytes = (sizeof(RawTop) + n + 8) / 8 * 8;
    ASSERT(bytes <= sizeof record);
    const RawTop top = { RAW_TEXT, (uint16_t)bytes, ++w->texts_n };
    memcpy(record, &top, sizeof top);
    memcpy(record + sizeof top, text, n);
    raw_add(w, (const RawTop *)(const void *)record);
    return w->texts_n;
}

static inline void raw_clock(RawWorld *w, int64_t cupti_ns, int64_t real_ns)
{
    RawAny any;
    RawClock *c = RAW_OF(&any, RAW_CLOCK, clock, 0);
    c->cupti_ns = cupti_ns;
    c->monotonic_ns = cupti_ns + 7;
    c->real_ns = real_ns;
    raw_add(w, &any.top);
}

/* On a stream of device 0, launched by the call with the number `correlation`. */
static inline void raw_kernel_of(RawWorld *w, const char *name, uint32_t stream,
                                 int64_t start_ns, int64_t end_ns, uint32_t correlation,
                                 uint64_t node)
{
    RawAny any;
    uint32_t text = raw_text(w, name);
    RawKernel *k = RAW_OF(&any, RAW_KERNEL, kernel, text);
    k->start_ns = start_ns;
    k->end_ns = end_ns;
    k->context = 1;
    k->stream = stream;
    k->correlation = correlation;
    k->node = node;
    raw_add(w, &any.top);
}

static inline void raw_kernel(RawWorld *w, const char *name, uint32_t stream, int64_t start_ns,
                              int64_t end_ns)
{
    raw_kernel_of(w, name, stream, start_ns, end_ns, 0, 0);
}

static inline void raw_call(RawWorld *w, const char *name, uint32_t thread, int64_t start_ns,
                            int64_t end_ns, uint32_t correlation)
{
    RawAny any;
    uint32_t text = raw_text(w, name);
    RawCall *c = RAW_OF(&any, RAW_CALL, call, text);
    c->start_ns = start_ns;
    c->end_ns = end_ns;
    c->thread = thread;
    c->correlation = correlation;
    raw_add(w, &any.top);
}

static inline void raw_label(RawWorld *w, RawLabelled what, uint32_t correlation, uint64_t id)
{
    RawAny any;
    RawLabel *l = RAW_OF(&any, RAW_LABEL, label, correlation);
    l->id = id;
    l->what = what;
    raw_add(w, &any.top);
}

/* Names that begin with "nccl" are communication, as the rules would have it. */
static inline bool raw_words(void *user, const char *kernel, SpanClass *class_, const char **op,
                             const char **dtype)
{
    (void)user;
    if (strncmp(kernel, "nccl", 4) != 0)
        return false;
    *class_ = SPAN_COMM;
    *op = strstr(kernel, "AllReduce") ? "all_reduce" : NULL;
    *dtype = "f32";
    return true;
}

static inline bool raw_read(const RawWorld *w, Timeline *t, RecordsInfo *info,
                            const RecordsOptions *o, Err *err)
{
    RecordsOptions options = { .rank = NONE_U32 };
    if (o)
        options = *o;
    options.words.comm = raw_words;
    *err = (Err){ 0 };
    return records_read_bytes(t, info, w->bytes, w->n, "x.lsraw", &options, err);
}

#endif
