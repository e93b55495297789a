/* json_out.c - brackets, commas, escapes. */
#include "core/json_out.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"

JsonOut json_out_file(FILE *file, uint32_t indent)
{
    return (JsonOut){ .file = file, .indent = indent };
}

static void new_line(JsonOut *j)
{
    if (j->indent)
        fprintf(j->file, "\n%*s", (int)(j->indent * j->depth), "");
}

/* Before every value and key: comma and line, unless a key has just been written. */
static void before_item(JsonOut *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    if (j->depth == 0)
        return;
    if (j->has_items[j->depth - 1])
        putc(',', j->file);
    j->has_items[j->depth - 1] = true;
    new_line(j);
}

void json_out_open(JsonOut *j, char bracket)
{
    before_item(j);
    ASSERT(j->depth < JSON_OUT_DEPTH_MAX);
    putc(bracket, j->file);
    j->has_items[j->depth++] = false;
}

void json_out_close(JsonOut *j, char bracket)
{
    ASSERT(j->depth > 0 && !j->after_key);
    bool had = j->has_items[--j->depth];
    if (had)
        new_line(j);
    putc(bracket, j->file);
}

static void write_escaped(FILE *f, const char *text)
{
    putc('"', f);
    for (const char *s = text; *s;) {
        size_t n = utf8_bytes(s, SIZE_MAX);
        if (n == 0) {
            fputs("\xef\xbf\xbd", f);
            s++;
        } else if (*s == '"' || *s == '\\') {
            fprintf(f, "\\%c", *s++);
        } else if ((unsigned char)*s < 0x20) {
            fprintf(f, "\\u%04x", (unsigned)*s++);
        } else {
            fwrite(s, 1, n, f);
            s += n;
        }
    }
    putc('"', f);
}

void json_out_key(JsonOut *j, const char *key)
{
    before_item(j);
    write_escaped(j->file, key);
    fputs(j->indent ? ": " : ":", j->file);
    j->after_key = true;
}

void json_out_string(JsonOut *j, const char *text)
{
    before_item(j);
    if (text)
        write_escaped(j->file, text);
    else
        fputs("null", j->file);
}

void json_out_number(JsonOut *j, double x)
{
    before_item(j);
    if (!isfinite(x)) {
        fputs("null", j->file);
        return;
    }
    char text[40];
    if (x == floor(x) && fabs(x) < 1e15) { /* 80, not 8e+01 */
        fprintf(j->file, "%.0f", x);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    fputs(text, j->file);
}

void json_out_int(JsonOut *j, int64_t x)
{
    before_item(j);
    fprintf(j->file, "%" PRId64, x);
}

void json_out_bool(JsonOut *j, bool x)
{
    before_item(j);
    fputs(x ? "true" : "false", j->file);
}

void json_out_null(JsonOut *j)
{
    before_item(j);
    fputs("null", j->file);
}

void json_put_open(JsonOut *j, const char *key, char bracket)
{
    json_out_key(j, key);
    json_out_open(j, bracket);
}

void json_put_text(JsonOut *j, const char *key, const char *text)
{
    json_out_key(j, key);
    json_out_string(j, text);
}

void json_put_number(JsonOut *j, const char *key, double x)
{
    json_out_key(j, key);
    json_out_number(j, x);
}

void json_put_int(JsonOut *j, const char *key, int64_t x)
{
    json_out_key(j, key);
    json_out_int(j, x);
}

void json_put_known(JsonOut *j, const char *key, int64_t x)
{
    json_out_key(j, key);
    if (x < 0)
        json_out_null(j);
    else
        json_out_int(j, x);
}

void json_put_uint(JsonOut *j, const char *key, uint64_t x)
{
    json_put_int(j, key, (int64_t)min_u64(x, INT64_MAX));
}

void json_put_bool(JsonOut *j, const char *key, bool x)
{
    json_out_key(j, key);
    json_out_bool(j, x);
}

bool json_out_end(JsonOut *j, Err *err)
{
    ASSERT(j->depth == 0);
    putc('\n', j->file);
    if (fflush(j->file) != 0 || ferror(j->file))
        return err_set(err, "cannot write the output: %s", strerror(errno));
    return true;
}
