/*
 * row.c - the only place that knows what JSON looks like.
 */
#include "row.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

FILE *rows_open(const char *path)
{
    FILE *rows = fopen(path, "a");
    if (!rows) {
        fprintf(stderr, "gpu: cannot open '%s': %s\n", path, strerror(errno));
        exit(1);
    }
    return rows;
}

static void put(Row *row, const char *text, size_t n)
{
    if (n >= ROW_CAP - row->n) {
        fprintf(stderr, "gpu: a row is longer than %d bytes: %.60s...\n", ROW_CAP, row->text);
        exit(1);
    }
    memcpy(row->text + row->n, text, n);
    row->n += n;
    row->text[row->n] = '\0';
}

static void put_quoted(Row *row, const char *text)
{
    put(row, "\"", 1);
    for (size_t i = 0; text[i] && i < ROW_TEXT_MAX; i++) {
        char c = text[i];
        if (c == '"' || c == '\\')
            put(row, "\\", 1);
        if (c < 0x20 || c > 0x7e)
            c = '?';
        put(row, &c, 1);
    }
    put(row, "\"", 1);
}

static void put_key(Row *row, const char *key)
{
    put(row, row->n == 1 ? "" : ", ", row->n == 1 ? 0 : 2);
    put_quoted(row, key);
    put(row, ": ", 2);
}

void row_begin(Row *row, const char *part)
{
    row->n = 0;
    put(row, "{", 1);
    row_text(row, "part", part);
}

void row_text(Row *row, const char *key, const char *value)
{
    put_key(row, key);
    put_quoted(row, value);
}

void row_int(Row *row, const char *key, int64_t value)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%" PRId64, value);
    put_key(row, key);
    put(row, text, (size_t)n);
}

void row_real(Row *row, const char *key, double value)
{
    char text[32];
    int n = isfinite(value) ? snprintf(text, sizeof text, "%.7g", value)
                            : snprintf(text, sizeof text, "null");
    put_key(row, key);
    put(row, text, (size_t)n);
}

void row_bool(Row *row, const char *key, bool value)
{
    put_key(row, key);
    put(row, value ? "true" : "false", value ? 4 : 5);
}

void row_end(Row *row, FILE *rows)
{
    put(row, "}\n", 2);
    if (fwrite(row->text, 1, row->n, rows) != row->n || fflush(rows) != 0) {
        fprintf(stderr, "gpu: cannot write a row: %s\n", strerror(errno));
        exit(1);
    }
}
