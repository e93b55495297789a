/*
 * json_out.h - the one JSON writer: reports, traces, dumps.
 *
 *     JsonOut j = json_out_file(stdout);        or json_out_text()
 *     json_out_open(&j, '{');
 *     json_put_number(&j, "step_time_s", 1.4);
 *     json_out_close(&j, '}');
 *     json_out_end(&j, err);
 *
 * Commas, escapes and UTF-8 repair are its business (invalid bytes become
 * U+FFFD).  Doubles are printed with the fewest digits that read back equal;
 * what is not finite becomes null.  indent 0 writes one line.
 */
#ifndef LOCKSTEP_CORE_JSON_OUT_H
#define LOCKSTEP_CORE_JSON_OUT_H

#include <stdio.h>

#include "core/err.h"

enum { JSON_OUT_DEPTH_MAX = 32 };

typedef struct JsonOut {
    FILE *file;
    uint32_t indent; /* spaces a level; 0 = one line */
    uint32_t depth;
    bool after_key;
    bool has_items[JSON_OUT_DEPTH_MAX];
} JsonOut;

JsonOut json_out_file(FILE *file, uint32_t indent);
void json_out_open(JsonOut *j, char bracket); /* '{' or '[' */
void json_out_close(JsonOut *j, char bracket);
void json_out_key(JsonOut *j, const char *key);
void json_out_string(JsonOut *j, const char *text); /* NULL writes null */
void json_out_number(JsonOut *j, double x);
void json_out_int(JsonOut *j, int64_t x);
void json_out_bool(JsonOut *j, bool x);
void json_out_null(JsonOut *j);
/* Members: the key, then its value. */
void json_put_open(JsonOut *j, const char *key, char bracket);
void json_put_text(JsonOut *j, const char *key, const char *text);
void json_put_number(JsonOut *j, const char *key, double x);
void json_put_int(JsonOut *j, const char *key, int64_t x);
void json_put_known(JsonOut *j, const char *key, int64_t x); /* below 0: null, not known */
void json_put_uint(JsonOut *j, const char *key, uint64_t x); /* above INT64_MAX: INT64_MAX */
void json_put_bool(JsonOut *j, const char *key, bool x);
/* Ends the document with a newline.  False if writing failed (disk full). */
bool json_out_end(JsonOut *j, Err *err);

#endif
