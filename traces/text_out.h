/*
 * text_out.h - text written fast, plain or gzip, into a file that appears whole
 * or not at all (core/out_file.h).
 *
 * Numbers are formatted here, digits two at a time: a trace is a gigabyte of
 * them.  Failing is remembered and told by text_out_commit.  gzip output holds
 * no date and no name, so equal text gives equal bytes.
 */
#ifndef LOCKSTEP_TRACES_TEXT_OUT_H
#define LOCKSTEP_TRACES_TEXT_OUT_H

#include <string.h>

#include "core/out_file.h"

enum { TEXT_OUT_BUFFER_BYTES = 1 << 18, TEXT_OUT_NUMBER_BYTES = 32 };

typedef struct TextOut {
    OutFile file;
    char *buffer;
    size_t n;
    struct Gzip *gzip; /* NULL: plain */
} TextOut;

bool text_out_open(TextOut *o, const char *path, bool gzip, Err *err);
bool text_out_commit(TextOut *o, Err *err);

void text_out_flush(TextOut *o);

/* Room for n <= TEXT_OUT_BUFFER_BYTES more bytes; add what was used to o->n. */
static inline char *text_out_room(TextOut *o, size_t n)
{
    if (TEXT_OUT_BUFFER_BYTES - o->n < n)
        text_out_flush(o);
    return o->buffer + o->n;
}

static inline void text_out_char(TextOut *o, char c)
{
    *text_out_room(o, 1) = c;
    o->n++;
}

void text_out_bytes(TextOut *o, const char *bytes, size_t n);

static inline void text_out_text(TextOut *o, const char *text)
{
    text_out_bytes(o, text, strlen(text));
}

void text_out_u64(TextOut *o, uint64_t x);
void text_out_i64(TextOut *o, int64_t x);
/* 1234567 -> 1234.567: nanoseconds as decimal microseconds, exactly. */
void text_out_thousandths(TextOut *o, int64_t x);

#endif
