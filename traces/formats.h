/*
 * formats.h - the table of trace formats: what lockstep reads and writes.
 *
 * A file that exists is recognised by its content, never by its name (gzip is
 * looked through); one to be written by its ending.  A new format is a row here.
 */
#ifndef LOCKSTEP_TRACES_FORMATS_H
#define LOCKSTEP_TRACES_FORMATS_H

#include "traces/info.h"
#include "traces/rules.h"

enum { TRACE_HEAD_BYTES = 4096 }; /* of a file's beginning, unpacked, decide */

typedef struct TraceFormat {
    const char *name;    /* as in --to: "native", "chrome" */
    const char *endings; /* of file names, each followed by a blank: ".json .json.gz " */
    const char *summary;
    bool (*matches)(const uint8_t *head, size_t n);
    /* One of the two, which looks at all of the file.  read says what it was like; of what is
     * opened nothing more is known. */
    bool (*open)(Timeline *t, const char *path, Err *err);
    bool (*read)(Timeline *t, TraceInfo *info, const char *path, const Rules *rules, Err *err);
    bool (*write)(const Timeline *t, const char *path, Err *err); /* NULL: not written */
} TraceFormat;

extern const TraceFormat trace_formats[];
extern const size_t trace_formats_n;

/* NULL and an err that lists what is allowed when there is none. */
const TraceFormat *trace_format_named(const char *name, Err *err);
const TraceFormat *trace_format_of_file(const char *path, Err *err);
const TraceFormat *trace_format_for_ending(const char *path,
                                           Err *err); /* one that is written */

/* Whether the first bytes of a file contain this: for TraceFormat.matches. */
bool trace_head_has(const uint8_t *head, size_t n, const char *text);

/* In the format that path's ending says.  t must be sealed. */
bool trace_write(const Timeline *t, const char *path, Err *err);

#endif
