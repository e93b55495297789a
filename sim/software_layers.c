/*
 * software_layers.c - which training stack is named, and the layers that it is read from: a file of
 * software/ or of the user's own, an object of the scenario, and what these change of a base.
 */
#include <stdio.h>
#include <string.h>

#include "core/nearest.h"
#include "core/share.h"
#include "sim/software_parts.h"

static const char unnamed[] = "generic"; /* where a scenario says nothing */

/* ---- names ---- */

bool software_exists(const char *name, Err *err)
{
    Arena arena = { 0 };
    const char *const *names;
    char allowed[700];
    bool found = false;
    uint32_t names_n = share_names(&names, &arena, "software");
    for (uint32_t i = 0; i < names_n; i++)
        found = found || strcmp(names[i], name) == 0;
    const char *meant = found ? NULL : nearest(name, names, names_n);
    if (!found)
        err_set(err, "unknown software '%.100s', %s%.60s%sallowed: %s", name,
                meant ? "did you mean '" : "", meant ? meant : "", meant ? "'? " : "",
                words_joined(allowed, sizeof allowed, names, names_n));
    arena_free(&arena);
    return found;
}

/* share_dir()/software/NAME.json */
static JsonDoc *open_built_in(Arena *arena, const char *name, Err *err)
{
    const char *path = arena_printf(arena, "%s/software/%s.json", share_dir(), name);
    JsonDoc *doc = software_exists(name, err) ? json_open(path, err) : NULL;
    const char *inside = doc ? json_text(json_member(json_root(doc), "name")) : NULL;
    if (!inside || strcmp(inside, name) == 0)
        return doc; /* without a name it will be refused */
    err_set(err, "%s: the name inside is '%.100s'", path, inside);
    json_close(doc);
    return NULL;
}

/* The file that a text node names. */
static JsonDoc *open_named(Arena *arena, JsonNode node, Err *err)
{
    if (json_is_path(json_text(node)))
        return json_open_beside(node, err);
    Err why = { 0 };
    JsonDoc *doc = open_built_in(arena, json_text(node), &why);
    if (!doc)
        json_fail(node, err, "%s", why.text);
    return doc;
}

/* ---- layers ---- */

static bool is_there(JsonNode node)
{
    return json_type(node) != JSON_ABSENT && json_type(node) != JSON_NULL;
}

/* doc: opened for it; NULL: it stands in a document of somebody else's. */
static bool add_layer(SoftwareLayers *l, JsonNode node, JsonDoc *doc, Err *err)
{
    l->doc[l->n] = doc;
    l->node[l->n++] = node;
    return json_type(node) == JSON_OBJECT ||
           json_fail(node, err, "a file of a training stack holds an object, not %s",
                     json_type_name(json_type(node)));
}

/* The layer that a text names, and those below it. */
static bool add_named(SoftwareLayers *l, Arena *arena, JsonNode node, Err *err)
{
    while (is_there(node)) {
        if (!json_text(node))
            return json_fail(node, err, "a name or a path is expected, not %s",
                             json_type_name(json_type(node)));
        if (l->n == SOFTWARE_LAYERS_MAX)
            return json_fail(node, err, "bases of bases, more than %d deep",
                             SOFTWARE_LAYERS_MAX - 1);
        JsonDoc *doc = open_named(arena, node, err);
        if (!doc || !add_layer(l, json_root(doc), doc, err))
            return false;
        node = json_member(json_root(doc), "base");
    }
    return true;
}

static bool add_file(SoftwareLayers *l, Arena *arena, JsonDoc *doc, Err *err)
{
    return doc && add_layer(l, json_root(doc), doc, err) &&
           add_named(l, arena, json_member(json_root(doc), "base"), err);
}

/* The name that the highest layer with one has; what is laid over it has changed it. */
static const char *name_of(const SoftwareLayers *l, Arena *arena)
{
    const char *name = NULL;
    uint32_t i = 0;
    for (; i < l->n && !name; i++)
        name = json_text(json_member(l->node[i], "name"));
    return !name    ? ""
           : i == 1 ? arena_strdup(arena, name)
                    : arena_printf(arena, "%s (changed)", name);
}

/* Names it, or forgets what was opened. */
static bool opened(SoftwareLayers *l, Arena *arena, bool ok)
{
    l->name = ok ? name_of(l, arena) : "";
    if (!ok)
        software_close(l);
    return ok;
}

bool software_open(SoftwareLayers *l, Arena *arena, JsonNode node, Err *err)
{
    *l = (SoftwareLayers){ 0 };
    bool ok;
    if (!is_there(node))
        ok = add_file(l, arena, open_built_in(arena, unnamed, err), err);
    else if (json_text(node))
        ok = add_named(l, arena, node, err);
    else if (json_type(node) == JSON_OBJECT)
        ok = add_layer(l, node, NULL, err) &&
             add_named(l, arena, json_member(node, "base"), err);
    else
        ok = json_fail(node, err,
                       "a training stack's name, a path to a .json file or an object is "
                       "expected, not %s",
                       json_type_name(json_type(node)));
    return opened(l, arena, ok);
}

void software_close(SoftwareLayers *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        json_close(l->doc[i]);
    l->n = 0;
}

bool software_from(Software *sw, Arena *arena, const SoftwareLayers *l, Err *err)
{
    double fitted = 0;
    *sw = (Software){ .name = arena_strdup(arena, l->name),
                      .host_scale = 1,
                      .comm_scale = 1,
                      .assumed_compute_scale = 1 };
    for (uint32_t i = l->n; i-- > 0;) {
        SoftwareLayer layer = { sw, arena, l->node[i], i + 1 < l->n, &fitted };
        if (!software_lay(&layer, err))
            return false;
    }
    sw->compute_scale = fitted > 0 ? fitted : sw->assumed_compute_scale;
    return true;
}

JsonNode software_key(const Scenario *s)
{
    return json_member(json_root(s->doc), "software");
}

bool software_is_known(const Scenario *s)
{
    const char *name = json_text(software_key(s));
    Err ignored = { 0 };
    return !name || json_is_path(name) || software_exists(name, &ignored);
}

/* Kernels that a compiler makes are those of another stack. */
static bool take_compiled(Software *sw, Arena *arena, Err *err)
{
    Software other;
    if (!software_read(&other, arena, sw->compiled_as, err))
        return false;
    sw->compute_scale = other.compute_scale;
    return true;
}

bool software_of(Software *sw, Arena *arena, const Scenario *s, Err *err)
{
    SoftwareLayers l;
    if (!software_open(&l, arena, software_key(s), err))
        return false;
    bool ok = software_from(sw, arena, &l, err);
    software_close(&l);
    bool compiled = ok && s->training.compiled && sw->compiled_as;
    return ok && (!compiled || take_compiled(sw, arena, err));
}

const char *software_name(Arena *arena, JsonNode node, Err *err)
{
    const char *text = is_there(node) ? json_text(node) : unnamed;
    if (text && !json_is_path(text))
        return text;
    SoftwareLayers l;
    if (!software_open(&l, arena, node, err))
        return "";
    software_close(&l);
    return l.name;
}

bool software_read(Software *sw, Arena *arena, const char *name, Err *err)
{
    JsonDoc *doc = json_is_path(name) ? json_open(name, err) : open_built_in(arena, name, err);
    SoftwareLayers l = { 0 };
    bool ok =
        opened(&l, arena, add_file(&l, arena, doc, err)) && software_from(sw, arena, &l, err);
    software_close(&l);
    return ok;
}
