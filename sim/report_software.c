/*
 * report_software.c - the facts about a training stack, each with its source: the
 * second half of sim --explain, below the scenario's own keys.
 *
 * The stack is read once more, by the reader that the simulation uses: its log of keys says
 * what there is to show.  What a layer over it changes is shown as that says.
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

/* The value at a dotted path below node. */
static JsonNode value_at(JsonNode node, const char *path)
{
    char key[64];
    for (size_t n = strcspn(path, "."); *path; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        node = json_member(node, key);
    }
    return node;
}

/* The layer that says what a fact is: the highest that has the key, else the whole stack. */
static uint32_t layer_of(const SoftwareLayers *l, const char *path)
{
    uint32_t i = 0;
    while (i + 1 < l->n && !value_at(l->node[i], path).item)
        i++;
    return i;
}

/* Of a layer over the stack a fact without a source is what the layer says. */
static const char *source_in(const SoftwareLayers *l, uint32_t layer, const char *path)
{
    const char *text = source_of(json_member(l->node[layer], "sources"), path);
    return *text || layer + 1 == l->n ? text : json_origin(value_at(l->node[layer], path));
}

/* A list, which the log does not hold: "norm, activation". */
static void print_list(const SoftwareLayers *l, const char *path, FILE *out)
{
    uint32_t layer = layer_of(l, path);
    JsonNode list = value_at(l->node[layer], path);
    char words[TEXT_CAP] = "none";
    size_t i = 0, at = 0;
    for (JsonNode word = json_first(list); word.item && at + 60 < sizeof words;
         word = json_next(word, list, ++i))
        at += (size_t)snprintf(words + at, sizeof words - at, "%s%.50s", i ? ", " : "",
                               json_text(word));
    if (list.item)
        print_fact(out, path, words, source_in(l, layer, path));
}

/* The i-th value that the log has of a layer: its path below the layer; NULL: it is of something
 * else.  Past the end *value is NULL too. */
static const char *logged(JsonNode layer, size_t i, const char **value)
{
    size_t n, above = *layer.path ? strlen(layer.path) + 1 : 0; /* "software." */
    const JsonLogRow *rows = json_log(layer.doc, &n);
    *value = i < n ? rows[i].value : NULL;
    bool below = i < n && strlen(rows[i].path) > above &&
                 strncmp(rows[i].path, layer.path, strlen(layer.path)) == 0;
    return below && is_fact(rows[i].path + above) ? rows[i].path + above : NULL;
}

/* What the log has of it; NULL: nothing. */
static const char *value_in(JsonNode layer, const char *path)
{
    const char *value, *at;
    size_t i = 0;
    do
        at = logged(layer, i++, &value);
    while (value && (!at || strcmp(at, path) != 0));
    return value;
}

/* The facts that layer i is the lowest to name, as the highest has them. */
static void print_layer(const SoftwareLayers *l, uint32_t i, FILE *out)
{
    const char *value, *path;
    for (size_t k = 0; path = logged(l->node[i], k, &value), value; k++) {
        bool shown = !path;
        for (uint32_t below = i + 1; below < l->n && !shown; below++)
            shown = value_in(l->node[below], path) != NULL;
        if (shown)
            continue;
        uint32_t highest = layer_of(l, path);
        const char *says = highest == i ? value : value_in(l->node[highest], path);
        print_fact(out, path, says ? says : "", source_in(l, highest, path));
    }
}

static void print_facts(const SoftwareLayers *l, FILE *out)
{
    static const char *const lists[] = { "kernels.optimizer_passes", "recompute.selective",
                                         "parallel.zero_bubble", "parallel.lacks" };
    for (uint32_t i = l->n; i-- > 0;)
        print_layer(l, i, out);
    for (size_t i = 0; i < ARRAY_N(lists); i++)
        print_list(l, lists[i], out);
}

/* Compiled, kernels take what those of another stack take. */
static bool print_compiled(const Scenario *s, const Software *sw, FILE *out, Arena *arena,
                           Err *err)
{
    Software used;
    if (!s->training.compiled || !sw->compiled_as)
        return true;
    if (!software_of(&used, arena, s, err))
        return false;
    print_fact(out, "compute_scale, compiled", arena_printf(arena, "%g", used.compute_scale),
               arena_printf(arena, "that of %s (kernels.compiled_as)", sw->compiled_as));
    return true;
}

bool report_software_text(const Scenario *s, FILE *out, Err *err)
{
    Arena arena = { 0 };
    Software sw;
    SoftwareLayers l;
    bool ok =
        software_open(&l, &arena, software_key(s), err) && software_from(&sw, &arena, &l, err);
    if (ok) {
        print_fact(out, "software", sw.name, sw.source);
        print_facts(&l, out);
        ok = print_compiled(s, &sw, out, &arena, err);
    }
    software_close(&l);
    arena_free(&arena);
    return ok;
}
