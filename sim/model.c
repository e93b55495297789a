/*
 * model.c - finding a model: by name, in a file, or on the spot.
 *
 * A file holds an object and never a further name, so files cannot go round in
 * circles.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/model_parts.h"

const char *const activation_names[ACT_N] = { "gelu", "relu", "relu2", "silu" };

/* ---- names that look alike ---- */

enum { NEAR_N = 4, NAME_CAP = 64 };

typedef struct Near {
    uint32_t n;
    unsigned distance[NEAR_N]; /* ascending; equal ones by name */
    char name[NEAR_N][NAME_CAP];
} Near;

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Insertions, deletions and replacements between two names shorter than NAME_CAP. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned row[NAME_CAP];
    unsigned n = (unsigned)strlen(b);
    for (unsigned j = 0; j <= n; j++)
        row[j] = j;
    for (unsigned i = 0; a[i]; i++) {
        unsigned before = row[0]++;
        for (unsigned j = 0; j < n; j++) {
            bool same = tolower((unsigned char)a[i]) == tolower((unsigned char)b[j]);
            unsigned replaced = before + (same ? 0 : 1);
            before = row[j + 1];
            row[j + 1] = min3(replaced, before + 1, row[j] + 1);
        }
    }
    return row[n];
}

/* How far off name is; a beginning of name counts as one slip. */
static unsigned name_distance(const char *typed, const char *name)
{
    size_t n = strlen(typed);
    return n >= 2 && strncmp(typed, name, n) == 0 ? 1 : edit_distance(typed, name);
}

static void near_add(Near *near, const char *name, unsigned distance)
{
    uint32_t at = near->n;
    while (at > 0 &&
           (near->distance[at - 1] > distance ||
            (near->distance[at - 1] == distance && strcmp(near->name[at - 1], name) > 0)))
        at--;
    if (at == NEAR_N)
        return;
    uint32_t last = near->n < NEAR_N ? near->n++ : NEAR_N - 1;
    for (uint32_t i = last; i > at; i--) {
        near->distance[i] = near->distance[i - 1];
        memcpy(near->name[i], near->name[i - 1], NAME_CAP);
    }
    near->distance[at] = distance;
    snprintf(near->name[at], NAME_CAP, "%s", name);
}

/* The built-in models at most a third of the letters away. */
static void near_find(Near *near, const char *typed, const char *dir_path)
{
    *near = (Near){ 0 };
    size_t typed_n = strlen(typed);
    DIR *dir = typed_n < NAME_CAP ? opendir(dir_path) : NULL;
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        size_t n = strlen(e->d_name);
        if (n < 6 || n >= NAME_CAP || strcmp(e->d_name + n - 5, ".json") != 0)
            continue;
        char name[NAME_CAP];
        snprintf(name, sizeof name, "%.*s", (int)n - 5, e->d_name);
        unsigned distance = name_distance(typed, name);
        if (distance <= 1 + typed_n / 3 && distance < typed_n)
            near_add(near, name, distance);
    }
    if (dir)
        closedir(dir);
}

static bool unknown_name(JsonNode node, const char *dir_path, Err *err)
{
    Near near;
    near_find(&near, json_text(node), dir_path);
    char like[NEAR_N * (NAME_CAP + 2) + 16] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < near.n; i++)
        n += (size_t)snprintf(like + n, sizeof like - n, "%s%s",
                              i ? ", " : "; near: ", near.name[i]);
    return json_fail(node, err, "no built-in model '%.100s'%s; see 'lockstep list models'",
                     json_text(node), like);
}

/* ---- files ---- */

static bool ends_in_json(const char *text)
{
    size_t n = strlen(text);
    return n >= 5 && strcmp(text + n - 5, ".json") == 0;
}

static bool is_path(const char *text)
{
    return strchr(text, '/') || ends_in_json(text);
}

/* "b/x.json" said in "a/s.json" is "a/b/x.json". */
static const char *beside(Arena *arena, const char *file, const char *path)
{
    const char *slash = strrchr(file, '/');
    if (!slash || path[0] == '/')
        return path;
    return arena_printf(arena, "%.*s/%s", (int)(slash - file), file, path);
}

/* "a/b/x.json" -> "x" */
static const char *file_stem(Arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    return arena_printf(arena, "%.*s", (int)(ends_in_json(name) ? n - 5 : n), name);
}

static bool read_object(Model *model, Arena *arena, JsonNode node, const char *file_name,
                        Err *err)
{
    bool native = json_member(node, "kind").item != NULL;
    bool hf = json_member(node, "model_type").item != NULL;
    if (native == hf)
        return json_fail(node, err,
                         "a model says either \"kind\" (transformer, mlp, convnet) or "
                         "\"model_type\" (a Hugging Face config), not %s",
                         native ? "both" : "neither");
    return native ? model_read_native(model, arena, node, file_name, err)
                  : model_read_hf(model, arena, node, file_name, err);
}

static bool read_file(Model *model, Arena *arena, JsonNode asked, const char *path, Err *err)
{
    JsonDoc *doc = json_open(path, err);
    if (!doc)
        return err_wrap(err, "%s: %s", json_name(asked.doc), asked.path);
    JsonNode root = json_root(doc);
    bool ok = json_type(root) == JSON_OBJECT;
    if (ok)
        ok = read_object(model, arena, root, file_stem(arena, path), err);
    else
        json_fail(root, err, "a model file holds an object, not %s",
                  json_type_name(json_type(root)));
    json_log_adopt(asked, doc);
    json_close(doc);
    return ok;
}

static bool read_named(Model *model, Arena *arena, JsonNode node, const char *share_dir,
                       Err *err)
{
    const char *name = json_text(node);
    if (is_path(name))
        return read_file(model, arena, node, beside(arena, json_name(node.doc), name), err);
    const char *dir = arena_printf(arena, "%s/models", share_dir);
    const char *path = arena_printf(arena, "%s/%s.json", dir, name);
    if (access(path, F_OK) != 0)
        return unknown_name(node, dir, err);
    return read_file(model, arena, node, path, err);
}

bool model_read(Model *model, Arena *arena, JsonNode node, const char *share_dir, Err *err)
{
    *model = (Model){ 0 };
    JsonType type = json_type(node);
    if (type == JSON_STRING)
        return read_named(model, arena, node, share_dir, err);
    if (type == JSON_OBJECT)
        return read_object(model, arena, node, NULL, err);
    return json_fail(node, err,
                     "a model's name, a path to a .json file or an object is expected, "
                     "not %s",
                     json_type_name(type));
}
