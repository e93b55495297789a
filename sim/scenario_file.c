/*
 * scenario_file.c - where scenarios come from: files, built-in names, lines of a .jsonl, --set.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/folder.h"
#include "core/nearest.h"
#include "core/out_file.h"
#include "core/share.h"
#include "core/text.h"
#include "sim/scenario_parts.h"
#include "sim/software.h"

enum { PATH_CAP = 4096 };

static uint32_t names_ending(const char *const **names, Arena *arena, const char *kind,
                             const char *end)
{
    return folder_names(names, arena, arena_printf(arena, "%s/%s", share_dir(), kind), end);
}

uint32_t share_names(const char *const **names, Arena *arena, const char *kind)
{
    return names_ending(names, arena, kind, ".json");
}

/* ---- names ---- */

/* Whoever wants a model simulated tries its name. */
static bool is_other(const char *name, Err *err)
{
    static const struct {
        const char *folder, *what, *before, *after;
    } others[] = {
        { "models", "a model", "it, with a cluster: {\"model\": ", ", \"cluster\": NAME}" },
        { "clusters", "a cluster", "it, with a model: {\"model\": NAME, \"cluster\": ", "}" },
        { "gpus", "a GPU",
          "a cluster of such, and a model: {\"model\": NAME, \"cluster\": {\"base\": NAME, "
          "\"gpu\": ",
          "}}" },
    };
    Arena arena = { 0 };
    bool is = false;
    for (size_t i = 0; i < ARRAY_N(others) && *name && !is; i++) {
        is = access(arena_printf(&arena, "%s/%s/%s.json", share_dir(), others[i].folder, name),
                    R_OK) == 0;
        if (is)
            err_set(err, "'%.100s' is %s; a scenario is a .json file that names %s\"%.100s\"%s",
                    name, others[i].what, others[i].before, name, others[i].after);
    }
    arena_free(&arena);
    return is;
}

static bool unknown_name(const char *name, Err *err)
{
    static const char *const kinds[][2] = { { "examples", ".json" },
                                            { "validation", ".jsonl" } };
    Arena arena = { 0 };
    const char *const *names, *all[128];
    char allowed[700];
    uint32_t n = 0;
    struct stat there;
    if (stat(name, &there) == 0 && S_ISDIR(there.st_mode))
        return err_set(err, "'%.100s' is a directory: a .json or .jsonl file is expected",
                       name);
    if (text_ends_in(name, ".lstrace"))
        return err_set(err,
                       "'%.100s' is a trace; a .json or .jsonl file is expected "
                       "(lockstep sim --from-trace replays a trace)",
                       name);
    if (is_other(name, err))
        return false;
    for (size_t k = 0; k < ARRAY_N(kinds); k++) {
        uint32_t names_n = names_ending(&names, &arena, kinds[k][0], kinds[k][1]);
        for (uint32_t i = 0; i < names_n && n < ARRAY_N(all); i++)
            all[n++] = names[i];
    }
    err_set(err, "no scenario '%.100s': a .json or .jsonl file is expected%s%s", name,
            n ? ", or a built-in name: " : "", words_joined(allowed, sizeof allowed, all, n));
    arena_free(&arena);
    return false;
}

/* The file that name means: itself when it looks like a path, else a built-in one. */
static const char *file_of(Arena *arena, const char *name, Err *err)
{
    static const char *const places[][2] = { { "examples", ".json" },
                                             { "validation", ".json" },
                                             { "validation", ".jsonl" } };
    if (strchr(name, '/') || text_ends_in(name, ".json") || text_ends_in(name, ".jsonl"))
        return arena_strdup(arena, name);
    for (size_t i = 0; i < ARRAY_N(places) && *name; i++) {
        const char *path =
            arena_printf(arena, "%s/%s/%s%s", share_dir(), places[i][0], name, places[i][1]);
        if (access(path, R_OK) == 0)
            return path;
    }
    unknown_name(name, err);
    return NULL;
}

/* ---- many ---- */

typedef struct Visitor {
    ScenarioVisit *visit;
    ScenarioSkip *skip; /* NULL: what is no JSON is an error */
    void *user;
} Visitor;

/* Of one .jsonl file. */
typedef struct Lines {
    const char *path;
    size_t at, read_n; /* this line, from 1; lines so far that are JSON */
    Err first;         /* what was wrong with the first that is none */
} Lines;

static JsonDoc *parse_line(const char *name, const char *text, size_t bytes, Err *err)
{
    JsonDoc *doc = bytes <= JSON_BYTES_MAX ? json_parse_line(text, bytes, name, err) : NULL;
    if (!doc && !err->set)
        err_set(err, "%s: longer than %zu MiB", name, JSON_BYTES_MAX >> 20);
    return doc;
}

static bool visit_line(Lines *l, const char *text, size_t bytes, const Visitor *v, Err *err)
{
    Arena arena = { 0 };
    Err why = { 0 };
    const char *name = arena_printf(&arena, "%s:%zu", l->path, l->at);
    JsonDoc *doc = parse_line(name, text, bytes, &why);
    l->read_n += doc != NULL;
    if (why.set && !l->first.set)
        l->first = why;
    if (why.set && v->skip)
        v->skip(v->user, name, &why);
    else if (why.set)
        *err = why;
    arena_free(&arena);
    return doc ? v->visit(v->user, doc, err) : v->skip != NULL;
}

static bool visit_lines(const char *path, const Visitor *v, Err *err)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return err_set(err, "cannot open '%s': %s", path, strerror(errno));
    char *text = NULL;
    size_t cap = 0;
    Lines l = { .path = path };
    ssize_t got;
    bool ok = true;
    while (ok && (got = getline(&text, &cap, f)) >= 0) {
        l.at++;
        if (strspn(text, " \t\r\n") < (size_t)got)
            ok = visit_line(&l, text, (size_t)got, v, err);
    }
    if (ok && ferror(f)) {
        ok = err_set(err, "cannot read '%s': %s", path, strerror(errno));
    } else if (ok && l.read_n == 0) {
        ok = false;
        err_set(err, "'%s' holds no scenario", path);
        if (l.first.set)
            *err = l.first;
    }
    free(text);
    fclose(f);
    return ok;
}

static bool visit_name(const char *name, const Visitor *v, Err *err)
{
    Arena arena = { 0 };
    const char *path = file_of(&arena, name, err);
    bool ok = path != NULL;
    if (ok && text_ends_in(path, ".jsonl")) {
        ok = visit_lines(path, v, err);
    } else if (ok) {
        JsonDoc *doc = json_open(path, err);
        ok = doc && v->visit(v->user, doc, err);
    }
    arena_free(&arena);
    return ok;
}

/* ---- one alone ---- */

typedef struct Only {
    const char *name;
    JsonDoc *doc;
} Only;

static bool take_only(void *user, JsonDoc *doc, Err *err)
{
    Only *o = user;
    if (!o->doc) {
        o->doc = doc;
        return true;
    }
    json_close(doc);
    return err_set(err, "'%.200s' holds several scenarios, one a line; here one is expected",
                   o->name);
}

static JsonDoc *open_scenario(const char *name, Err *err)
{
    Only o = { .name = name };
    const Visitor v = { .visit = take_only, .user = &o };
    if (visit_name(name, &v, err))
        return o.doc;
    json_close(o.doc);
    return NULL;
}

bool scenario_read(Scenario *s, const char *name, const Setting *settings, uint32_t settings_n,
                   Err *err)
{
    *s = (Scenario){ 0 };
    JsonDoc *doc = open_scenario(name, err);
    return doc && scenario_from(s, doc, settings, settings_n, err);
}

bool scenario_read_to_split(Scenario *s, const char *name, const Setting *settings,
                            uint32_t settings_n, Err *err)
{
    *s = (Scenario){ 0 };
    JsonDoc *doc = open_scenario(name, err);
    return doc && scenario_from_to_split(s, doc, settings, settings_n, err);
}

bool scenario_each(char *const *names, uint32_t names_n, ScenarioVisit *visit, void *user,
                   Err *err)
{
    return scenario_each_that_reads(names, names_n, visit, NULL, user, err);
}

bool scenario_each_that_reads(char *const *names, uint32_t names_n, ScenarioVisit *visit,
                              ScenarioSkip *skip, void *user, Err *err)
{
    const Visitor v = { .visit = visit, .skip = skip, .user = user };
    for (uint32_t i = 0; i < names_n; i++)
        if (!visit_name(names[i], &v, err))
            return false;
    return true;
}

/* ---- what a scenario stands on ---- */

static bool is_of_software(const Scenario *s, Arena *arena, const char *path)
{
    SoftwareLayers l;
    Err ignored = { 0 };
    bool is = false;
    if (!software_open(&l, arena, software_key(s), &ignored))
        return false;
    for (uint32_t i = 0; i < l.n; i++)
        is = is || (l.doc[i] && out_file_is_same(path, json_name(l.doc[i])));
    software_close(&l);
    return is;
}

bool scenario_is_made_of(const Scenario *s, const char *path)
{
    Arena arena = { 0 };
    size_t n = strlen(s->file);
    while (n > 0 && s->file[n - 1] >= '0' && s->file[n - 1] <= '9')
        n--;
    bool line = n > 0 && s->file[n - 1] == ':'; /* many.jsonl:3 */
    const char *lines = arena_printf(&arena, "%.*s", line ? (int)n - 1 : 0, s->file);
    bool is = out_file_is_same(path, s->file) || out_file_is_same(path, lines) ||
              is_of_software(s, &arena, path) || out_file_is_same(path, s->training.data) ||
              json_log_has_file(s->doc, path);
    arena_free(&arena);
    return is;
}

bool scenario_spares(const Scenario *s, const char *path, Err *err)
{
    return !scenario_is_made_of(s, path) ||
           err_set(err, "the scenario is made of '%.200s', it is not written over", path);
}

/* ---- --set ---- */

static const char overlap_all[] =
    "{\"tp\":true,\"cp\":true,\"ep\":true,\"dp\":true,\"pp\":true}";
static const char overlap_none[] =
    "{\"tp\":false,\"cp\":false,\"ep\":false,\"dp\":false,\"pp\":false}";

/* Where a scenario names no stack it is the generic one. */
static void wrap_software(JsonNode parent, JsonType type)
{
    if (type != JSON_STRING)
        json_replace(parent, "software", "\"generic\"");
    json_wrap(parent, "software", "base");
}

/*
 * What --set can reach only when it is an object: a model's name becomes a copy of
 * the model, a cluster's, GPU's or stack's {"base": NAME}, and two keys of one word or an
 * object become the object that says the same.
 */
static bool open_value(JsonNode parent, const char *key, Err *err)
{
    JsonNode node = json_member(parent, key);
    JsonType type = json_type(node);
    if (type == JSON_STRING && strcmp(node.path, "model") == 0)
        return model_unfold(parent, key, share_dir(), err);
    if (type == JSON_STRING && (strcmp(node.path, "cluster") == 0 || strcmp(key, "gpu") == 0))
        json_wrap(parent, key, "base");
    else if (strcmp(node.path, "software") == 0 &&
             (type == JSON_STRING || type == JSON_ABSENT || type == JSON_NULL))
        wrap_software(parent, type);
    else if (type == JSON_STRING && strcmp(node.path, "training.recompute") == 0)
        json_replace(parent, key, "{}");
    else if (type == JSON_BOOL && strcmp(node.path, "parallel.overlap") == 0)
        json_replace(parent, key, json_truth(node) ? overlap_all : overlap_none);
    return true;
}

/* Goes down key, "a.b[2].c", as far as there are values, and opens those on the way. */
static bool open_way(JsonNode at, const char *key, Err *err)
{
    for (;;) {
        char name[104];
        size_t n = strcspn(key, ".[");
        if (key[n] == '\0' || n >= sizeof name)
            return true;
        snprintf(name, sizeof name, "%.*s", (int)n, key);
        if (key[n] == '.' && !open_value(at, name, err))
            return false;
        at = json_member(at, name);
        if (key[n] == '[') {
            size_t i = strtoul(key + n + 1, NULL, 10);
            at = json_type(at) == JSON_ARRAY && i < json_items_n(at)
                     ? json_item(at, i)
                     : (JsonNode){ .doc = at.doc };
            n += strcspn(key + n, "]");
        }
        if (!at.item || key[n] == '\0' || key[n + 1] == '\0')
            return true;
        key += n + 1 + (key[n] == ']');
    }
}

/* "model", "cluster", "software", "cluster.gpu.base", "cluster.node_types[1].gpu" */
static bool may_name_file(const char *key)
{
    return strcmp(key, "model") == 0 || strcmp(key, "cluster") == 0 ||
           strcmp(key, "software") == 0 || text_ends_in(key, ".gpu") ||
           text_ends_in(key, ".base");
}

/* A file named by --set is looked for in the working directory, not beside the scenario; one that
 * an object names is. */
static const char *from_here(Arena *arena, const Setting *set)
{
    char cwd[PATH_CAP];
    bool quoted = set->value[0] == '"';
    const char *name = set->value + quoted;
    bool names_file =
        strcmp(set->key, "training.data") == 0
            ? strpbrk(name, "./") != NULL
            : may_name_file(set->key) &&
                  (strchr(name, '/') || text_ends_in(name, quoted ? ".json\"" : ".json"));
    if (!names_file || name[0] == '/' || name[0] == '{' || !getcwd(cwd, sizeof cwd))
        return set->value;
    return arena_printf(arena, "%s/%.*s", cwd, (int)(strlen(name) - quoted), name);
}

static bool apply(JsonDoc *doc, const Setting *set, Err *err)
{
    Arena arena = { 0 };
    bool ok = open_way(json_root(doc), set->key, err) &&
              json_set(doc, set->key, from_here(&arena, set), err);
    arena_free(&arena);
    return ok;
}

bool scenario_sets_software(const Setting *set)
{
    size_t n = strlen("software");
    return strncmp(set->key, "software", n) == 0 && (set->key[n] == '\0' || set->key[n] == '.');
}

bool scenario_set(JsonDoc *doc, const Setting *settings, uint32_t settings_n, Err *err)
{
    /* Commands set keys of their own: the file is to blame then, not --set. */
    JsonType type = json_type(json_root(doc));
    if (type != JSON_OBJECT)
        return json_fail(json_root(doc), err, "an object is expected, not %s",
                         json_type_name(type));
    for (uint32_t i = 0; i < settings_n; i++)
        if (!apply(doc, &settings[i], err))
            return false;
    return true;
}

bool scenario_says(ScenarioSays *says, const char *name, const Setting *settings,
                   uint32_t settings_n, Err *err)
{
    JsonDoc *doc = open_scenario(name, err);
    *says = (ScenarioSays){ .cluster = false };
    if (!doc || !scenario_set(doc, settings, settings_n, err)) {
        json_close(doc);
        return false;
    }
    says->cluster = json_member(json_root(doc), "cluster").item != NULL;
    says->split = parallel_says_split(json_member(json_root(doc), "parallel"));
    json_close(doc);
    return true;
}

bool scenario_read_unsplit(Scenario *s, const char *name, const Setting *settings,
                           uint32_t settings_n, Err *err)
{
    Setting *all = mem_zero((size_t)settings_n + 1, sizeof *all);
    if (settings_n > 0)
        memcpy(all, settings, settings_n * sizeof *all);
    all[settings_n] = (Setting){ "parallel", "{\"dp\": 1}" };
    bool ok = scenario_read_to_split(s, name, all, settings_n + 1, err);
    free(all);
    return ok;
}

bool scenario_spares_paths(const char *name, const Setting *settings, uint32_t settings_n,
                           const char *const *paths, size_t paths_n, Err *err)
{
    Scenario s;
    Err ignored = { 0 };
    bool ok = true;
    if (scenario_read_unsplit(&s, name, settings, settings_n, &ignored)) {
        for (size_t i = 0; i < paths_n && ok; i++)
            ok = !paths[i] || scenario_spares(&s, paths[i], err);
        scenario_free(&s);
    }
    return ok;
}
