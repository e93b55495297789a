/*
 * data_rows.h - measurements for tests: tests/data/NAME.jsonl, an object a line.
 *
 * Facts that `validate` cannot take, because they are no whole steps; copied as
 * they are from the project's collection, each row with its source:
 *
 *     layer-times-a100.jsonl        one block forward and backward, arXiv 2205.05198, table 4
 *     pipeline-profiled-a100.jsonl  1F1B steps with the profile of their stages,
 *                                   arXiv 2401.10241, tables 4 and 9
 */
#ifndef LOCKSTEP_TESTS_DATA_ROWS_H
#define LOCKSTEP_TESTS_DATA_ROWS_H

#include "core/json.h"
#include "tests/check.h"

typedef void DataRow(JsonNode row);

/* Calls visit for each row; returns how many there were. */
static inline uint32_t data_rows(const char *path, DataRow *visit)
{
    char line[8192];
    FILE *f = fopen(path, "r");
    uint32_t n = 0;
    if (!CHECK(f != NULL))
        return 0;
    for (; fgets(line, sizeof line, f); n++) {
        Err err = { 0 };
        JsonDoc *doc = json_parse(line, strlen(line), path, &err);
        if (CHECK(doc != NULL))
            visit(json_root(doc));
        json_close(doc);
    }
    fclose(f);
    return n;
}

/* The number at "a.b" or "a"; a missing one fails the test. */
static inline double data_number(JsonNode row, const char *object, const char *key)
{
    JsonNode from = object ? json_member(row, object) : row;
    JsonNode node = from.item ? json_member(from, key) : from;
    if (!CHECK(json_type(node) == JSON_NUMBER))
        fprintf(stderr, "no number '%s'\n", key);
    return json_value(node);
}

static inline unsigned data_count(JsonNode row, const char *object, const char *key)
{
    return (unsigned)data_number(row, object, key);
}

/* Text, or true and false as words; "" where there is none. */
static inline const char *data_text(JsonNode row, const char *key)
{
    const char *text = json_text(json_member(row, key));
    CHECK(text != NULL);
    return text ? text : "";
}

#endif
