/*
 * machine_keys.c - what the readers of clusters and GPUs share: getters that leave alone
 * what is not given, defaults that are logged, and the files that names mean.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/folder.h"
#include "core/machine_parts.h"
#include "core/nearest.h"
#include "core/text.h"

/* ---- getters ---- */

void take_number(JsonObj *o, const char *key, double min, double max, double *x)
{
    if (json_has(o, key))
        *x = json_number(o, key, min, max, 0);
}

void take_u32(JsonObj *o, const char *key, uint32_t min, uint32_t max, uint32_t *x)
{
    if (json_has(o, key))
        *x = (uint32_t)json_count(o, key, min, max, 0);
}

void take_us(JsonObj *o, const char *key, int64_t *ns)
{
    if (json_has(o, key))
        *ns = llround(json_number(o, key, 0, 1e6, 0) * 1e3);
}

void take_protocols(JsonObj *o, const char *key, int64_t ns[PROTOCOL_N])
{
    JsonNode node = json_get(o, key);
    if (!node.item || !o->ok)
        return;
    if (json_type(node) == JSON_NUMBER) {
        take_us(o, key, &ns[0]);
        for (int p = 1; p < PROTOCOL_N; p++)
            ns[p] = ns[0];
        return;
    }
    JsonObj each = json_begin(node, o->err);
    for (int p = 0; p < PROTOCOL_N; p++)
        take_us(&each, protocol_names[p], &ns[p]);
    o->ok = json_end(&each);
}

static bool read_curve(JsonNode list, double min, double max, RankCurve *curve, Err *err)
{
    *curve = (RankCurve){ 0 };
    size_t n = json_items_n(list);
    if (json_type(list) != JSON_ARRAY || n == 0 || n > RANK_CURVE_MAX)
        return json_fail(list, err, "a number, or a list of 1 to %d [ranks, number]",
                         RANK_CURVE_MAX);
    size_t i = 0;
    for (JsonNode point = json_first(list); point.item; point = json_next(point, list, ++i)) {
        double x[2];
        if (!json_numbers(point, x, 2, err))
            return false;
        bool ascends = i == 0 || x[0] > curve->ranks[i - 1];
        if (!(x[0] >= 1 && x[0] <= MACHINE_GPUS_MAX && x[0] == floor(x[0]) && ascends))
            return json_fail(point, err, "ranks are whole numbers that ascend, 1 to %d",
                             MACHINE_GPUS_MAX);
        if (!(x[1] >= min && x[1] <= max))
            return json_fail(point, err, "%g is out of range, %g to %g allowed", x[1], min,
                             max);
        curve->ranks[i] = (uint32_t)x[0];
        curve->value[i] = x[1];
        curve->n++;
    }
    return true;
}

void take_curve(JsonObj *o, const char *key, double min, double max, double scale,
                RankCurve *curve)
{
    JsonNode node = json_get(o, key);
    if (!node.item || !o->ok)
        return;
    if (json_type(node) == JSON_NUMBER)
        *curve = (RankCurve){ 1, { 2 }, { json_number(o, key, min, max, min) } };
    else
        o->ok = read_curve(node, min, max, curve, o->err);
    for (uint32_t i = 0; i < curve->n; i++)
        curve->value[i] *= scale;
}

void take_provenance(JsonObj *o, Arena *arena, const char **line)
{
    JsonNode node = json_get(o, "provenance");
    if (!node.item || !o->ok)
        return;
    if (json_type(node) == JSON_STRING) {
        *line = arena_strdup(arena, json_text(node));
        return;
    }
    if (json_type(node) != JSON_OBJECT) {
        o->ok = json_fail(node, o->err, "a text or an object of texts is expected");
        return;
    }
    const char *all = *line ? *line : "";
    for (size_t i = 0; i < json_items_n(node) && o->ok; i++) {
        const char *key = json_key(node, i);
        JsonNode value = json_member(node, key);
        if (json_type(value) != JSON_STRING)
            o->ok = json_fail(value, o->err, "a text is expected, not %s",
                              json_type_name(json_type(value)));
        else
            all =
                arena_printf(arena, "%s%s%s: %s", all, *all ? "; " : "", key, json_text(value));
    }
    *line = all;
}

void skip_key(JsonObj *o, const char *key)
{
    json_get(o, key);
}

static void log_default(JsonNode node, const char *key, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.12g", value);
    json_log_value(json_member(node, key), text, true);
}

void settle_number(double *x, double value, JsonNode node, const char *key)
{
    if (!isnan(*x))
        return;
    *x = value;
    log_default(node, key, value);
}

void settle_us(int64_t *ns, int64_t value_ns, JsonNode node, const char *key)
{
    if (*ns >= 0)
        return;
    *ns = value_ns;
    log_default(node, key, (double)value_ns / 1e3);
}

/* ---- files ---- */

static bool same_name(const char *a, const char *b)
{
    while (*a && tolower((unsigned char)*a) == tolower((unsigned char)*b)) {
        a++;
        b++;
    }
    return tolower((unsigned char)*a) == tolower((unsigned char)*b);
}

/* Files that cannot be read have no aliases; their own errors show when they are asked for. */
static bool has_alias(const char *path, const char *name)
{
    Err ignored = { 0 };
    JsonDoc *doc = json_open(path, &ignored);
    if (!doc)
        return false;
    JsonNode list = json_member(json_root(doc), "aliases");
    bool found = false;
    size_t i = 0;
    for (JsonNode a = json_first(list); a.item && !found; a = json_next(a, list, ++i))
        found = json_text(a) && same_name(json_text(a), name);
    json_close(doc);
    return found;
}

/* The file of that name, however its letters are written, or else one with it as an alias. */
static const char *find_file(Arena *arena, const char *dir, const char *const *names,
                             uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (same_name(names[i], name))
            return arena_printf(arena, "%s/%s.json", dir, names[i]);
    for (uint32_t i = 0; i < n; i++) {
        const char *path = arena_printf(arena, "%s/%s.json", dir, names[i]);
        if (has_alias(path, name))
            return path;
    }
    return NULL;
}

static JsonDoc *open_likely(const char *dir, JsonNode node, const char *folder, Err *err)
{
    Arena arena = { 0 };
    const char *const *names;
    uint32_t n = folder_names(&names, &arena, dir, ".json");
    const char *found = find_file(&arena, dir, names, n, json_text(node));
    char allowed[600] = "none";
    if (n > 0)
        words_joined(allowed, sizeof allowed, names, n);
    JsonDoc *doc = found ? json_open(found, err) : NULL;
    if (!found)
        json_fail(node, err, "no %.*s named '%.100s': a path to a .json file, or one of %s",
                  (int)strlen(folder) - 1, folder, json_text(node), allowed);
    arena_free(&arena);
    return doc;
}

JsonDoc *machine_open(const MachineReader *r, JsonNode name, const char *folder)
{
    const char *text = json_text(name);
    if (!text) {
        json_fail(name, r->err, "a name or a path is expected, not %s",
                  json_type_name(json_type(name)));
        return NULL;
    }
    if (json_is_path(text))
        return json_open_beside(name, r->err);
    Arena arena = { 0 };
    const char *dir = arena_printf(&arena, "%s/%s", r->share_dir, folder);
    const char *path = arena_printf(&arena, "%s/%s.json", dir, text);
    JsonDoc *doc = *text && access(path, R_OK) == 0 ? json_open(path, r->err)
                                                    : open_likely(dir, name, folder, r->err);
    arena_free(&arena);
    return doc;
}

bool gpu_names_differ(const char *a, const char *b, const char *share_dir)
{
    Arena arena = { 0 };
    const char *const *names, *dir = arena_printf(&arena, "%s/gpus", share_dir);
    uint32_t n = folder_names(&names, &arena, dir, ".json");
    const char *of_a = find_file(&arena, dir, names, n, a);
    const char *of_b = find_file(&arena, dir, names, n, b);
    bool differ = of_a && of_b && strcmp(of_a, of_b) != 0;
    arena_free(&arena);
    return differ;
}
