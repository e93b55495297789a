/* calibrate_file.c - values of a JSON file as text, and its provenance. */
#include "profile/calibrate_file.h"

#include <stdlib.h>
#include <string.h>

#include "core/json_out.h"
#include "profile/splice.h"

const char *calibrate_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *calibrate_base_names(Arena *arena, char *const *paths, uint32_t n)
{
    const char *text = "";
    for (uint32_t i = 0; i < n; i++)
        text =
            arena_printf(arena, "%s%s%s", text, i ? ", " : "", calibrate_base_name(paths[i]));
    return text;
}

void calibrate_print_text(FILE *f, const char *text)
{
    JsonOut j = json_out_file(f, 0);
    json_out_string(&j, text);
}

void calibrate_print_number(FILE *f, double x)
{
    JsonOut j = json_out_file(f, 0);
    json_out_number(&j, x);
}

void calibrate_print_node(FILE *f, JsonNode node)
{
    JsonType type = json_type(node);
    size_t n = json_items_n(node);
    if (type == JSON_STRING)
        calibrate_print_text(f, json_text(node));
    else if (type == JSON_NUMBER)
        calibrate_print_number(f, json_value(node));
    else if (type != JSON_ARRAY && type != JSON_OBJECT)
        fputs(type == JSON_NULL ? "null" : json_truth(node) ? "true" : "false", f);
    if (type != JSON_ARRAY && type != JSON_OBJECT)
        return;
    fputc(type == JSON_ARRAY ? '[' : '{', f);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ", " : "", f);
        if (type == JSON_OBJECT) {
            calibrate_print_text(f, json_key(node, i));
            fputs(": ", f);
        }
        calibrate_print_node(f, type == JSON_ARRAY ? json_item(node, i)
                                                   : json_member(node, json_key(node, i)));
    }
    fputc(type == JSON_ARRAY ? ']' : '}', f);
}

/* Text as a JSON string, in arena. */
static const char *quoted_text(Arena *arena, const char *text)
{
    char *quoted = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&quoted, &n);
    ASSERT(f);
    calibrate_print_text(f, text);
    fclose(f);
    const char *kept = arena_strdup(arena, quoted);
    free(quoted);
    return kept;
}

char *calibrate_provenance(char *text, const char *key, const char *value)
{
    Arena arena = { 0 };
    Err ignored = { 0 };
    JsonDoc *doc = json_parse(text, strlen(text), "", &ignored);
    const char *whole = doc ? json_text(json_member(json_root(doc), "provenance")) : NULL;
    if (whole) {
        const char *quoted = quoted_text(&arena, whole);
        text = json_splice(text, "provenance", NULL,
                           arena_printf(&arena, "{\n    \"rest\": %s\n  }", quoted));
    }
    json_close(doc);
    text = json_splice(text, "provenance", key, quoted_text(&arena, value));
    arena_free(&arena);
    return text;
}
