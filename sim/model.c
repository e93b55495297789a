/*
 * model.c - finding a model: by name, in a file, or on the spot.
 *
 * A file holds an object and never a further name, so files cannot go round in
 * circles.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/folder.h"
#include "core/nearest.h"
#include "core/text.h"
#include "sim/model_parts.h"

const char *const activation_names[ACT_N] = { "gelu", "relu", "relu2", "silu" };

/* ---- names that look alike ---- */

enum { NEAR_N = 4, NAME_CAP = NEAREST_NAME_CAP };

typedef struct Near {
    uint32_t n;
    uint32_t distance[NEAR_N]; /* ascending; equal ones by name */
    char name[NEAR_N][NAME_CAP];
} Near;

/* How far off name is; a beginning of name counts as one slip. */
static uint32_t name_distance(const char *typed, const char *name)
{
    size_t n = strlen(typed);
    return n >= 2 && strncmp(typed, name, n) == 0 ? 1 : edit_distance(typed, name);
}

static void near_add(Near *near, const char *name, uint32_t distance)
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
    Arena arena = { 0 };
    const char *const *names;
    uint32_t n = typed_n < NAME_CAP ? folder_names(&names, &arena, dir_path, ".json") : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t distance =
            strlen(names[i]) < NAME_CAP ? name_distance(typed, names[i]) : NONE_U32;
        if (distance <= 1 + typed_n / 3 && distance < typed_n)
            near_add(near, names[i], distance);
    }
    arena_free(&arena);
}

static bool unknown_name(JsonNode node, const char *dir_path, Err *err)
{
    Near near;
    near_find(&near, json_text(node), dir_path);
    char like[NEAR_N * (NAME_CAP + 2) + 16] = "", config[512];
    snprintf(config, sizeof config, "%.400s/config.json", json_text(node));
    if (access(config, R_OK) == 0)
        return json_fail(node, err, "no built-in model '%.100s'; a file is '%s'",
                         json_text(node), config);
    size_t n = 0;
    for (uint32_t i = 0; i < near.n; i++)
        n += (size_t)snprintf(like + n, sizeof like - n, "%s%s",
                              i ? ", " : "; near: ", near.name[i]);
    return json_fail(node, err, "no built-in model '%.100s'%s; see 'lockstep list models'",
                     json_text(node), like);
}

/* ---- files ---- */

/* "a/b/x.json" and "a/b/x/" -> "x"; n is where the path ends for us. */
static const char *last_part(Arena *arena, const char *path, size_t n)
{
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    return arena_printf(arena, "%.*s", (int)(n - from), path + from);
}

/* "x/config.json" -> "x", wherever the program is started */
static const char *folder_name(Arena *arena, const char *path)
{
    char *whole = realpath(path, NULL);
    const char *slash = whole ? strrchr(whole, '/') : NULL;
    const char *name = slash ? last_part(arena, whole, (size_t)(slash - whole)) : "";
    free(whole);
    return name;
}

/* What a model is called by its file.  Checkpoints all call theirs config.json. */
static const char *name_by_file(Arena *arena, JsonNode root, const char *path)
{
    size_t n = strlen(path);
    const char *stem = last_part(arena, path, text_ends_in(path, ".json") ? n - 5 : n);
    if (strcmp(stem, "config") != 0)
        return stem;
    const char *published = json_text(json_member(root, "_name_or_path"));
    const char *name = published ? last_part(arena, published, strlen(published)) : "";
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        name = folder_name(arena, path);
    return *name ? name : stem;
}

static bool read_object(Model *model, Arena *arena, JsonNode node, const char *file_name,
                        Err *err)
{
    JsonNode kind = json_member(node, "kind"), type = json_member(node, "model_type");
    bool native = kind.item != NULL, hf = type.item != NULL;
    JsonNode blamed = json_is_set(kind) ? kind : json_is_set(type) ? type : node;
    if (native == hf)
        return json_fail(blamed, err,
                         "a model says either \"kind\" (transformer, mlp, convnet) or "
                         "\"model_type\" (a Hugging Face config), not %s",
                         native ? "both" : "neither");
    return native ? model_read_native(model, arena, node, file_name, err)
                  : model_read_hf(model, arena, node, file_name, err);
}

/* All built-in names are in small letters, publishers' often are not. */
static const char *small_letters(Arena *arena, const char *name)
{
    char *small = arena_printf(arena, "%s", name);
    for (char *c = small; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return small;
}

static JsonDoc *open_built_in(Arena *arena, JsonNode node, const char *share_dir, Err *err)
{
    const char *dir = arena_printf(arena, "%s/models", share_dir);
    const char *name = small_letters(arena, json_text(node));
    const char *path = arena_printf(arena, "%s/%s.json", dir, name);
    if (access(path, F_OK) != 0) {
        unknown_name(node, dir, err);
        return NULL;
    }
    JsonDoc *doc = json_open(path, err);
    if (!doc)
        err_wrap(err, "%s: %s", json_name(node.doc), node.path);
    return doc;
}

/* Checkpoints are folders, with a config.json in each. */
static bool is_checkpoint(JsonNode node, Err *err)
{
    const char *path = json_path_beside(node);
    const char *slash = text_ends_in(path, "/") ? "" : "/";
    char config[4096];
    snprintf(config, sizeof config, "%s%sconfig.json", path, slash);
    if (access(config, R_OK) != 0)
        return false;
    json_fail(node, err, "'%.100s' is a directory; a file is '%.100s%sconfig.json'",
              json_text(node), json_text(node), slash);
    return true;
}

/* "meta-llama/Meta-Llama-3-8B" beside which there is no such folder: a name of the Hugging Face
 * Hub, which nobody asks here. */
static bool is_of_hub(JsonNode node, Err *err)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", json_path_beside(node));
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder || text_ends_in(folder, ".json"))
        return false;
    *slash = '\0';
    if (access(folder, F_OK) == 0)
        return false;
    json_fail(
        node, err,
        "there is no file '%.200s'; of a model on the Hugging Face Hub, its config.json is "
        "read, once downloaded",
        json_text(node));
    return true;
}

/* The file that a text node names; NULL and err when there is none. */
static JsonDoc *open_named(Arena *arena, JsonNode node, const char *share_dir, Err *err)
{
    const char *name = json_text(node);
    if (json_is_path(name) && (is_checkpoint(node, err) || is_of_hub(node, err)))
        return NULL;
    JsonDoc *doc = json_is_path(name) ? json_open_beside(node, err)
                                      : open_built_in(arena, node, share_dir, err);
    if (!doc)
        return NULL;
    JsonNode root = json_root(doc);
    if (json_type(root) == JSON_OBJECT)
        return doc;
    json_fail(root, err, "a model file holds an object, not %s",
              json_type_name(json_type(root)));
    json_close(doc);
    return NULL;
}

static bool read_named(Model *model, Arena *arena, JsonNode node, const char *share_dir,
                       Err *err)
{
    JsonDoc *doc = open_named(arena, node, share_dir, err);
    if (!doc)
        return false;
    JsonNode root = json_root(doc);
    bool ok = read_object(model, arena, root, name_by_file(arena, root, json_name(doc)), err);
    json_log_adopt(node, doc);
    json_close(doc);
    return ok;
}

bool model_unfold(JsonNode parent, const char *key, const char *share_dir, Err *err)
{
    Arena arena = { 0 };
    JsonDoc *doc = open_named(&arena, json_member(parent, key), share_dir, err);
    if (doc)
        json_graft(parent, key, doc);
    json_close(doc);
    arena_free(&arena);
    return doc != NULL;
}

/* An object on the spot, or one that model_unfold has put there. */
static bool read_here(Model *model, Arena *arena, JsonNode node, Err *err)
{
    const char *file = json_origin(node);
    bool unfolded = strcmp(file, json_name(node.doc)) != 0 && !json_is_set(node);
    return read_object(model, arena, node, unfolded ? name_by_file(arena, node, file) : NULL,
                       err);
}

bool model_read(Model *model, Arena *arena, JsonNode node, const char *share_dir, Err *err)
{
    *model = (Model){ 0 };
    JsonType type = json_type(node);
    if (type == JSON_STRING)
        return read_named(model, arena, node, share_dir, err);
    if (type == JSON_OBJECT)
        return read_here(model, arena, node, err);
    return json_fail(node, err,
                     "a model's name, a path to a .json file or an object is expected, "
                     "not %s",
                     json_type_name(type));
}
