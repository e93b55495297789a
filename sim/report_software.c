/*
 * report_software.c - the facts about a training stack, each with its source: the
 * second half of sim --explain, below the scenario's own keys.
 *
 * The stack's file is read once more, by the reader that the simulation uses: its
 * log of keys says what there is to show.
 */
#include <string.h>

#include "sim/report.h"
#include "sim/texts.h"

enum { KEY_WIDTH = 30, VALUE_WIDTH = 18, SOURCE_WIDTH = 90 };

/* "kernels.fused_bias" -> "fused_bias" */
static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* What "sources" says about a key, or about the object it stands in, or about the rest. */
static const char *source_of(JsonNode sources, const char *path)
{
    char parent[64] = "";
    const char *key = last_part(path);
    if (key - path > 1)
        snprintf(parent, sizeof parent, "%.*s", (int)(key - path - 1), path);
    const char *keys[] = { key, last_part(parent), "rest" };
    for (size_t i = 0; i < ARRAY_N(keys); i++) {
        const char *text = json_text(json_member(sources, keys[i]));
        if (text && *text)
            return text;
    }
    return "";
}

static bool is_fact(const char *path)
{
    static const char *const parts[] = { "kernels.", "recompute.", "parallel.", "fitted.",
                                         "assumed." };
    for (size_t i = 0; i < ARRAY_N(parts); i++)
        if (strncmp(path, parts[i], strlen(parts[i])) == 0)
            return true;
    return false;
}

static void print_fact(FILE *out, const char *path, const char *value, const char *source)
{
    char name[TEXT_CAP], text[TEXT_CAP], shown[TEXT_CAP];
    fprintf(out, "%-*s  %-*s  %s\n", KEY_WIDTH, text_name(name, path, 60), VALUE_WIDTH,
            text_name(text, value, TEXT_WIDTH_MAX), text_name(shown, source, SOURCE_WIDTH));
}

/* A list, which the log does not hold: "norm, activation". */
static void print_list(JsonNode list, JsonNode sources, FILE *out)
{
    char words[TEXT_CAP] = "none";
    size_t i = 0, at = 0;
    for (JsonNode word = json_first(list); word.item && at + 60 < sizeof words;
         word = json_next(word, list, ++i))
        at += (size_t)snprintf(words + at, sizeof words - at, "%s%.50s", i ? ", " : "",
                               json_text(word));
    print_fact(out, list.path, words, source_of(sources, list.path));
}

static void print_facts(JsonDoc *doc, FILE *out)
{
    size_t n;
    const JsonLogRow *rows = json_log(doc, &n);
    JsonNode root = json_root(doc), sources = json_member(root, "sources");
    for (size_t i = 0; i < n; i++)
        if (is_fact(rows[i].path))
            print_fact(out, rows[i].path, rows[i].value, source_of(sources, rows[i].path));
    JsonNode passes = json_member(json_member(root, "kernels"), "optimizer_passes");
    if (passes.item)
        print_list(passes, sources, out);
    print_list(json_member(json_member(root, "recompute"), "selective"), sources, out);
    JsonNode schedules = json_member(json_member(root, "parallel"), "zero_bubble");
    if (schedules.item)
        print_list(schedules, sources, out);
}

bool report_software_text(const char *name, FILE *out, Err *err)
{
    Arena arena = { 0 };
    Software sw;
    const char *path = arena_printf(&arena, "%s/software/%s.json", share_dir(), name);
    JsonDoc *doc = json_open(path, err);
    bool ok = doc && software_from(&sw, &arena, doc, err);
    if (ok) {
        print_fact(out, "software", sw.name, sw.source);
        print_facts(doc, out);
    }
    json_close(doc);
    arena_free(&arena);
    return ok;
}
