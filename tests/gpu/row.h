/*
 * row.h - one measured row as one line of JSON.
 *
 * All parts append to one file, measurements.jsonl: an object a line, the first
 * key is always "part".  A line is written by a single write, so a part that is
 * killed at its time limit leaves whole rows behind it.
 *
 *     Row row;
 *     row_begin(&row, "copy");
 *     row_text(&row, "direction", "h2d");
 *     row_real(&row, "time_us", 12.5);
 *     row_end(&row, rows);
 *
 * Text is escaped; bytes outside printable ASCII become '?'.  A number that is
 * not finite becomes null.  A row longer than ROW_CAP is a bug and ends the part.
 */
#ifndef GPU_ROW_H
#define GPU_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { ROW_CAP = 4096, ROW_TEXT_MAX = 200 };

typedef struct Row {
    char text[ROW_CAP];
    size_t n;
} Row;

/* Opens for appending, or ends the program with a sentence. */
FILE *rows_open(const char *path);

void row_begin(Row *row, const char *part);
void row_text(Row *row, const char *key, const char *value); /* cut after ROW_TEXT_MAX bytes */
void row_int(Row *row, const char *key, int64_t value);
void row_real(Row *row, const char *key, double value);
void row_bool(Row *row, const char *key, bool value);
void row_end(Row *row, FILE *rows);

#endif
