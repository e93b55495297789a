/*
 * json.c - documents, paths and getters over cJSON.
 *
 * Keys may be asked for by const char * only; paths are built in the document's
 * arena, so a JsonNode can be copied freely.
 */
#include "core/json.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file_text.h"
#include "core/intern.h"
#include "core/nearest.h"
#include "core/numeral.h"
#include "core/order.h"
#include "core/out_file.h"
#include "core/text.h"
#include "core/utf8.h"

/* Of the value at path and all below it, unless a later one says otherwise. */
typedef struct Origin {
    const char *path;
    const char *file; /* of which it is the root; NULL: --set */
} Origin;

struct JsonDoc {
    cJSON *root;
    Arena arena;
    const char *name;
    Origin *origins; /* what is not from the document itself */
    uint32_t origins_n, origins_cap;
    JsonLogRow *log;
    uint32_t log_n, log_cap;
    Interner logged; /* paths in log: row i has the id i */
};

enum {
    FAIL_CAP = 1120, /* bytes of a message, without file and path */
    PATH_SHOWN_MAX = 150
};

/* ---- documents ---- */

typedef struct Source {
    const char *name, *text;
    size_t bytes;
    bool is_line; /* of a file; its number ends name */
} Source;

static bool syntax_error(const Source *s, const char *at, const char *what, const char *slip,
                         Err *err)
{
    size_t offset =
        at && at >= s->text && at <= s->text + s->bytes ? (size_t)(at - s->text) : s->bytes;
    unsigned line = 1, column = 1;
    for (size_t i = 0; i < offset; i++) {
        column = s->text[i] == '\n' ? 1 : column + 1;
        line += s->text[i] == '\n';
    }
    if (s->is_line)
        return err_set(err, "%s:%u: %s%s", s->name, column, what, slip);
    return err_set(err, "%s:%u:%u: %s%s", s->name, line, column, what, slip);
}

/* What people write that JSON has not. */
static const char *slip_at(const char *text, const char *at, const char *end)
{
    const char *before = at;
    while (before > text && strchr(" \t\r\n", before[-1]))
        before--;
    if ((*at == '}' || *at == ']') && before > text && before[-1] == ',')
        return ": a comma too many stands before it";
    if (*at == '\'')
        return ": texts stand in double quotes";
    if (*at == '/' || *at == '#')
        return ": JSON has no comments";
    if (end - at >= 3 && (memcmp(at, "NaN", 3) == 0 || memcmp(at, "Inf", 3) == 0))
        return ": numbers are finite";
    return "";
}

/* at: where cJSON has stopped, or one behind it.  open: brackets that are never closed. */
static bool not_json(const Source *s, const char *at, unsigned open, Err *err)
{
    const char *end = s->text + s->bytes;
    if (s->bytes == 0)
        return syntax_error(s, at, "the file is empty", "", err);
    if (open > 0 && (!at || at + 1 >= end))
        return syntax_error(s, end, "not JSON: the text ends where something is still open", "",
                            err);
    at = at ? at : end - 1;
    if (at > s->text && *slip_at(s->text, at - 1, end))
        at--;
    return syntax_error(s, at, "not JSON from here on", slip_at(s->text, at, end), err);
}

/* cJSON recurses, so depth is bounded before it starts.  Strings are skipped.  odd: the first
 * number that is none, which cJSON may take for one. */
static bool check_bytes(const Source *s, unsigned *open, const char **odd, Err *err)
{
    const char *text = s->text;
    unsigned depth = 0;
    bool in_string = false;
    for (size_t i = 0, n; i < s->bytes; i += n) {
        char c = text[i];
        n = utf8_bytes(text + i, s->bytes - i);
        if (c == '\0')
            return syntax_error(s, text + i, "not JSON: a NUL byte", "", err);
        if (n == 0)
            return syntax_error(s, text + i, "not UTF-8 from here on", "", err);
        if (in_string) {
            if (c == '\\' && s->bytes - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0)
                return syntax_error(s, text + i, "\\u0000 in a text, which would end there", "",
                                    err);
            if (c == '\\' && i + 1 < s->bytes && (text[i + 1] == '\\' || text[i + 1] == '"'))
                n = 2;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            size_t number = numeral_bytes(text + i, s->bytes - i);
            *odd = *odd || number > 0 ? *odd : text + i;
            n = number > 0 ? number : n;
        } else if (c == '[' || c == '{') {
            if (++depth > JSON_DEPTH_MAX)
                return syntax_error(s, text + i, "nested deeper than 64 levels", "", err);
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    *open = depth;
    return true;
}

/* Every value read has a path, so they are not printed but copied together. */
static const char *join(JsonDoc *doc, const char *a, const char *b, const char *c)
{
    size_t a_n = strlen(a), b_n = strlen(b), c_n = strlen(c);
    char *text = arena_push(&doc->arena, a_n + b_n + c_n + 1, 1);
    memcpy(text, a, a_n);
    memcpy(text + a_n, b, b_n);
    memcpy(text + a_n + b_n, c, c_n);
    return text;
}

static const char *join_path(JsonDoc *doc, const char *path, const char *key)
{
    return join(doc, path, *path ? "." : "", key);
}

static const char *join_index(JsonDoc *doc, const char *path, size_t i)
{
    char index[24];
    snprintf(index, sizeof index, "[%zu]", i);
    return join(doc, path, index, "");
}

/* The way from the root to an item; its text is only made for a message. */
typedef struct Trail {
    const struct Trail *up;
    const char *key; /* NULL: element i of a list */
    uint32_t i;
} Trail;

static const char *trail_path(JsonDoc *doc, const Trail *t)
{
    if (!t)
        return "";
    const char *path = trail_path(doc, t->up);
    return t->key ? join_path(doc, path, t->key) : join_index(doc, path, t->i);
}

/* A key that stands in the object twice, or NULL.  Sorts: objects may be large. */
static const char *twice(const cJSON *object)
{
    size_t n = 0;
    for (const cJSON *c = object->child; c; c = c->next)
        n++;
    if (n < 2)
        return NULL;
    const char **keys = mem_zero(n, sizeof *keys);
    n = 0;
    for (const cJSON *c = object->child; c; c = c->next)
        keys[n++] = c->string;
    qsort(keys, n, sizeof *keys, compare_text);
    const char *found = NULL;
    for (size_t i = 1; i < n && !found; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            found = keys[i];
    free(keys);
    return found;
}

static bool tree_fail(JsonDoc *doc, const Trail *t, const char *what, Err *err)
{
    return json_fail((JsonNode){ NULL, doc, trail_path(doc, t) }, err, "%s", what);
}

/* Duplicate keys and numbers that overflowed to infinity. */
static bool check_tree(JsonDoc *doc, const cJSON *item, const Trail *at, Err *err)
{
    if (cJSON_IsNumber(item) && !isfinite(item->valuedouble))
        return tree_fail(doc, at, "the number is too large", err);
    const char *key = cJSON_IsObject(item) ? twice(item) : NULL;
    if (key)
        return tree_fail(doc, &(Trail){ at, key, 0 }, "the key stands here twice", err);
    uint32_t i = 0;
    for (const cJSON *c = item->child; c; c = c->next, i++)
        if (!check_tree(doc, c, &(Trail){ at, cJSON_IsObject(item) ? c->string : NULL, i },
                        err))
            return false;
    return true;
}

static cJSON *parse(const Source *s, Err *err)
{
    unsigned open = 0;
    const char *end = NULL, *odd = NULL;
    if (!check_bytes(s, &open, &odd, err))
        return NULL;
    cJSON *root = s->bytes ? cJSON_ParseWithLengthOpts(s->text, s->bytes, &end, false) : NULL;
    if (odd && (root || !end || end >= odd)) {
        cJSON_Delete(root);
        syntax_error(s, odd, "not JSON from here on", ": numbers are as in 10, -0.5 and 2e9",
                     err);
        return NULL;
    }
    if (!root) {
        not_json(s, end, open, err);
        return NULL;
    }
    while (end < s->text + s->bytes && strchr(" \t\r\n", *end))
        end++;
    if (end == s->text + s->bytes)
        return root;
    syntax_error(s, end, "more text after the end of the document", "", err);
    cJSON_Delete(root);
    return NULL;
}

static JsonDoc *read_source(Source s, Err *err)
{
    static const char bom[] = "\xef\xbb\xbf";
    if (s.bytes >= 3 && memcmp(s.text, bom, 3) == 0) {
        s.text += 3;
        s.bytes -= 3;
    }
    cJSON *root = parse(&s, err);
    if (!root)
        return NULL;
    JsonDoc *doc = mem_zero(1, sizeof *doc);
    doc->root = root;
    doc->name = arena_strdup(&doc->arena, s.name);
    if (!check_tree(doc, root, NULL, err)) {
        json_close(doc);
        return NULL;
    }
    return doc;
}

JsonDoc *json_parse(const char *text, size_t bytes, const char *name, Err *err)
{
    return read_source((Source){ name, text, bytes, false }, err);
}

JsonDoc *json_parse_line(const char *text, size_t bytes, const char *name, Err *err)
{
    while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        bytes--;
    return read_source((Source){ name, text, bytes, true }, err);
}

JsonDoc *json_open(const char *path, Err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    if (!file_text_read(path, JSON_BYTES_MAX, &text, &bytes, err))
        return NULL;
    JsonDoc *doc = json_parse(text, bytes, path, err);
    free(text);
    return doc;
}

bool json_is_path(const char *text)
{
    return strchr(text, '/') || text_ends_in(text, ".json");
}

const char *json_path_beside(JsonNode node)
{
    const char *path = json_text(node), *from = node.doc->name;
    const char *slash = strrchr(from, '/');
    return *path == '/' || !slash
               ? path
               : arena_printf(&node.doc->arena, "%.*s/%s", (int)(slash - from), from, path);
}

JsonDoc *json_open_beside(JsonNode node, Err *err)
{
    JsonDoc *doc = json_open(json_path_beside(node), err);
    if (!doc)
        err_wrap(err, *node.path ? "%s: %s" : "%s%s", node.doc->name, node.path);
    return doc;
}

void json_close(JsonDoc *doc)
{
    if (!doc)
        return;
    cJSON_Delete(doc->root);
    arena_free(&doc->arena);
    free(doc->origins);
    free(doc->log);
    intern_free(&doc->logged);
    free(doc);
}

JsonNode json_root(JsonDoc *doc)
{
    return (JsonNode){ doc->root, doc, "" };
}

const char *json_name(const JsonDoc *doc)
{
    return doc->name;
}

/* ---- nodes ---- */

JsonType json_type(JsonNode node)
{
    const cJSON *item = node.item;
    if (!item)
        return JSON_ABSENT;
    if (cJSON_IsNull(item))
        return JSON_NULL;
    if (cJSON_IsBool(item))
        return JSON_BOOL;
    if (cJSON_IsNumber(item))
        return JSON_NUMBER;
    if (cJSON_IsString(item))
        return JSON_STRING;
    return cJSON_IsArray(item) ? JSON_ARRAY : JSON_OBJECT;
}

const char *json_type_name(JsonType type)
{
    static const char *const names[] = { "nothing",  "null",   "true or false", "a number",
                                         "a string", "a list", "an object" };
    return names[type];
}

const char *json_text(JsonNode node)
{
    return json_type(node) == JSON_STRING ? ((const cJSON *)node.item)->valuestring : NULL;
}

double json_value(JsonNode node)
{
    return json_type(node) == JSON_NUMBER ? ((const cJSON *)node.item)->valuedouble : 0;
}

bool json_truth(JsonNode node)
{
    return node.item && cJSON_IsTrue((const cJSON *)node.item);
}

size_t json_items_n(JsonNode node)
{
    JsonType type = json_type(node);
    return type == JSON_ARRAY || type == JSON_OBJECT ? (size_t)cJSON_GetArraySize(node.item)
                                                     : 0;
}

JsonNode json_item(JsonNode node, size_t i)
{
    ASSERT(json_type(node) == JSON_ARRAY && i < json_items_n(node));
    return (JsonNode){ cJSON_GetArrayItem(node.item, (int)i), node.doc,
                       join_index(node.doc, node.path, i) };
}

JsonNode json_member(JsonNode node, const char *key)
{
    const cJSON *item = json_type(node) == JSON_OBJECT
                            ? cJSON_GetObjectItemCaseSensitive(node.item, key)
                            : NULL;
    return (JsonNode){ item, node.doc, join_path(node.doc, node.path, key) };
}

static JsonNode element(const cJSON *item, JsonNode list, size_t i)
{
    return (JsonNode){ item, list.doc, join_index(list.doc, list.path, i) };
}

JsonNode json_first(JsonNode list)
{
    bool is_list = json_type(list) == JSON_ARRAY;
    return element(is_list ? ((const cJSON *)list.item)->child : NULL, list, 0);
}

JsonNode json_next(JsonNode at, JsonNode list, size_t i)
{
    return element(((const cJSON *)at.item)->next, list, i);
}

bool json_numbers(JsonNode list, double *x, size_t n, Err *err)
{
    if (json_type(list) != JSON_ARRAY || json_items_n(list) != n)
        return json_fail(list, err, "a list of %zu numbers is expected", n);
    const cJSON *c = ((const cJSON *)list.item)->child;
    for (size_t i = 0; i < n; i++, c = c->next) {
        if (!cJSON_IsNumber(c))
            return json_fail(list, err, "a list of %zu numbers is expected", n);
        x[i] = c->valuedouble;
    }
    return true;
}

const char *json_key(JsonNode node, size_t i)
{
    if (json_type(node) != JSON_OBJECT || i >= json_items_n(node))
        return NULL;
    return cJSON_GetArrayItem(node.item, (int)i)->string;
}

/* ---- where values come from ---- */

static bool is_below(const char *path, const char *above)
{
    size_t n = strlen(above);
    return strncmp(path, above, n) == 0 &&
           (path[n] == '\0' || path[n] == '.' || path[n] == '[');
}

static void add_origin(JsonDoc *doc, const char *path, const char *file)
{
    GROW(doc->origins, doc->origins_n, doc->origins_cap);
    doc->origins[doc->origins_n++] = (Origin){ arena_strdup(&doc->arena, path),
                                               file ? arena_strdup(&doc->arena, file) : NULL };
}

/* NULL: the document. */
static const Origin *origin_of(JsonNode node)
{
    const JsonDoc *doc = node.doc;
    for (uint32_t i = doc->origins_n; i > 0; i--)
        if (is_below(node.path, doc->origins[i - 1].path))
            return &doc->origins[i - 1];
    return NULL;
}

bool json_is_set(JsonNode node)
{
    const Origin *from = origin_of(node);
    return node.item && from && !from->file;
}

const char *json_origin(JsonNode node)
{
    const Origin *from = origin_of(node);
    if (!from)
        return node.doc->name;
    return from->file ? from->file : "--set";
}

static bool fail_at(JsonNode node, const char *text, Err *err)
{
    const Origin *from = origin_of(node);
    const char *file = node.doc->name, *path = node.path;
    if (from && from->file) {
        file = from->file;
        path += strlen(from->path);
        path += *path == '.';
    }
    bool is_set = json_is_set(node);
    if (is_set && strcmp(file, "--set") == 0) /* a document of nothing else */
        return err_set(err, "--set %.*s%s: %s", PATH_SHOWN_MAX, path,
                       strlen(path) > PATH_SHOWN_MAX ? "..." : "", text);
    return err_set(err, "%s: %s%.*s%s%s%s", file, is_set ? "--set " : "", PATH_SHOWN_MAX, path,
                   strlen(path) > PATH_SHOWN_MAX ? "..." : "", *path ? ": " : "", text);
}

bool json_fail(JsonNode node, Err *err, const char *format, ...)
{
    char text[FAIL_CAP];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail_at(node, text, err);
}

/* ---- --set ---- */

/* Where --set is all there is to the document, its name is not said twice. */
static bool set_fail(const JsonDoc *doc, const char *path, const char *what, Err *err)
{
    bool all = strcmp(doc->name, "--set") == 0;
    return err_set(err, "%s%s--set '%.200s': %s", all ? "" : doc->name, all ? "" : ": ", path,
                   what);
}

/* One step of "a.b[2].c". */
typedef struct Part {
    char name[104];
    long index;       /* -1: none */
    const char *rest; /* ".c", or "" for the last */
} Part;

static bool read_part(Part *part, const char *path)
{
    size_t n = strcspn(path, ".[");
    *part = (Part){ .index = -1, .rest = path + n };
    if (n == 0 || n >= sizeof part->name)
        return false;
    memcpy(part->name, path, n);
    if (path[n] == '[') {
        char *stop;
        part->index = strtol(path + n + 1, &stop, 10);
        part->rest = stop + 1;
        if (path[n + 1] < '0' || path[n + 1] > '9' || *stop != ']' || part->index > INT_MAX)
            return false;
    }
    return *part->rest == '\0' || *part->rest == '.';
}

static cJSON *value_of(const char *value)
{
    Err ignored = { 0 };
    JsonDoc *doc = json_parse(value, strlen(value), "--set", &ignored);
    cJSON *item = doc ? cJSON_Duplicate(doc->root, true) : cJSON_CreateString(value);
    json_close(doc);
    if (!item)
        mem_zero(SIZE_MAX / 2, 1);
    return item;
}

/* NULL: there is no such list element.  path leads to what may have to be made. */
static cJSON *step_into(JsonDoc *doc, cJSON *at, const Part *part, const char *path)
{
    cJSON *child = cJSON_GetObjectItemCaseSensitive(at, part->name);
    if (part->index >= 0)
        return cJSON_IsArray(child) ? cJSON_GetArrayItem(child, (int)part->index) : NULL;
    if (child)
        return child;
    add_origin(doc, arena_printf(&doc->arena, "%.*s", (int)(part->rest - path), path), NULL);
    return cJSON_AddObjectToObject(at, part->name);
}

static void put_member(cJSON *object, const char *name, cJSON *item)
{
    if (cJSON_GetObjectItemCaseSensitive(object, name))
        cJSON_ReplaceItemInObjectCaseSensitive(object, name, item);
    else
        cJSON_AddItemToObject(object, name, item);
}

/* What stands where path goes on at rest is no object. */
static bool no_object(const JsonDoc *doc, const cJSON *at, const char *path, const char *rest,
                      Err *err)
{
    const char *type = json_type_name(json_type((JsonNode){ .item = at }));
    char what[320];
    int n = rest > path ? (int)(rest - 1 - path) : 0;
    snprintf(what, sizeof what, "%s%.*s%s is %s here, an object is expected", n ? "'" : "",
             n < 200 ? n : 200, n ? path : "", n ? "'" : "the document", type);
    return set_fail(doc, path, what, err);
}

/* Elements are changed, not added.  list: what path's first n bytes lead to, NULL nothing. */
static bool no_element(const JsonDoc *doc, const cJSON *list, const char *path, size_t n,
                       Err *err)
{
    char what[500];
    int items_n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0,
        cut = n < 200 ? (int)n : 200;
    if (!list)
        snprintf(what, sizeof what,
                 "'%.*s' is left out and has no elements, allowed: '%.*s=[...]'", cut, path,
                 cut, path);
    else if (!cJSON_IsArray(list))
        snprintf(what, sizeof what, "'%.*s' is %s here, a list is expected", cut, path,
                 json_type_name(json_type((JsonNode){ .item = list })));
    else if (items_n == 0)
        snprintf(what, sizeof what, "there is no such list element, the list is empty");
    else
        snprintf(what, sizeof what, "there is no such list element, 0 to %d allowed",
                 items_n - 1);
    return set_fail(doc, path, what, err);
}

static bool put_value(cJSON *at, const Part *part, const char *value)
{
    if (part->index < 0) {
        put_member(at, part->name, value_of(value));
        return true;
    }
    cJSON *list = cJSON_GetObjectItemCaseSensitive(at, part->name);
    if (!cJSON_IsArray(list) || !cJSON_GetArrayItem(list, (int)part->index))
        return false;
    cJSON_ReplaceItemInArray(list, (int)part->index, value_of(value));
    return true;
}

bool json_set(JsonDoc *doc, const char *path, const char *value, Err *err)
{
    cJSON *at = doc->root;
    const char *p = path;
    for (uint32_t depth = 0;; depth++) {
        Part part;
        if (depth == JSON_DEPTH_MAX)
            return set_fail(doc, path, "nested deeper than 64 levels", err);
        if (!read_part(&part, p))
            return set_fail(doc, path, "a key is KEY.KEY or KEY[NUMBER].KEY", err);
        if (!cJSON_IsObject(at))
            return no_object(doc, at, path, p, err);
        bool last = *part.rest == '\0';
        if (last && put_value(at, &part, value))
            break;
        cJSON *next = last ? NULL : step_into(doc, at, &part, path);
        if (!next)
            return no_element(doc, cJSON_GetObjectItemCaseSensitive(at, part.name), path,
                              (size_t)(p - path) + strlen(part.name), err);
        at = next;
        p = part.rest + 1;
    }
    add_origin(doc, path, NULL);
    return true;
}

void json_graft(JsonNode object, const char *member, const JsonDoc *from)
{
    cJSON *copy = cJSON_Duplicate(from->root, true);
    if (!copy)
        mem_zero(SIZE_MAX / 2, 1);
    put_member((cJSON *)object.item, member, copy);
    add_origin(object.doc, json_member(object, member).path, from->name);
}

void json_wrap(JsonNode object, const char *name, const char *key)
{
    cJSON *parent = (cJSON *)object.item; /* of a document, which is ours to change */
    cJSON *old = cJSON_DetachItemFromObjectCaseSensitive(parent, name);
    ASSERT(old);
    cJSON *around = cJSON_AddObjectToObject(parent, name);
    if (!around || !cJSON_AddItemToObject(around, key, old))
        mem_zero(SIZE_MAX / 2, 1);
}

void json_replace(JsonNode object, const char *name, const char *value)
{
    put_member((cJSON *)object.item, name, value_of(value));
}

/* ---- log ---- */

static void log_row(JsonDoc *doc, const char *path, const char *value, const char *origin)
{
    if (intern(&doc->logged, path) < doc->log_n)
        return;
    GROW(doc->log, doc->log_n, doc->log_cap);
    doc->log[doc->log_n++] = (JsonLogRow){ path, arena_strdup(&doc->arena, value), origin };
}

void json_log_value(JsonNode node, const char *value, bool is_default)
{
    log_row(node.doc, node.path, value, is_default ? "default" : json_origin(node));
}

void json_log_adopt(JsonNode at, const JsonDoc *from)
{
    JsonDoc *doc = at.doc;
    for (uint32_t i = 0; i < from->log_n; i++) {
        const JsonLogRow *row = &from->log[i];
        log_row(doc, join_path(doc, at.path, row->path), row->value,
                arena_strdup(&doc->arena, row->origin));
    }
}

static void log_number(JsonNode node, double value, bool is_default)
{
    char text[40];
    snprintf(text, sizeof text, "%.12g", value);
    json_log_value(node, text, is_default);
}

/* The origins are the files that gave a value, "--set" and "default". */
bool json_log_has_file(const JsonDoc *doc, const char *path)
{
    const char *before = "";
    for (size_t i = 0; i < doc->log_n; i++) {
        bool again = strcmp(doc->log[i].origin, before) == 0;
        before = doc->log[i].origin;
        bool file = strcmp(before, "default") != 0 && strcmp(before, "--set") != 0;
        if (!again && file && out_file_is_same(path, before))
            return true;
    }
    return false;
}

const JsonLogRow *json_log(const JsonDoc *doc, size_t *rows_n)
{
    *rows_n = doc->log_n;
    return doc->log;
}

/* ---- objects ---- */

JsonObj json_begin(JsonNode node, Err *err)
{
    JsonObj o = { .node = node, .err = err, .ok = !err->set };
    if (o.ok && json_type(node) != JSON_OBJECT)
        o.ok = json_fail(node, err, "an object is expected, not %s",
                         json_type_name(json_type(node)));
    return o;
}

static void free_asked(JsonObj *o)
{
    free(o->asked);
    o->asked = NULL;
    o->asked_n = o->asked_cap = 0;
}

static bool was_asked(const JsonObj *o, const char *key)
{
    for (uint32_t i = 0; i < o->asked_n; i++)
        if (strcmp(o->asked[i], key) == 0)
            return true;
    return false;
}

enum { LIST_CAP = 1000 };

/* Of the keys that were asked for; rather one that is not there. */
static const char *nearest_asked(const JsonObj *o, const char *typed)
{
    const char **absent = mem_zero((size_t)o->asked_n + 1, sizeof *absent);
    size_t n = 0;
    for (uint32_t i = 0; i < o->asked_n; i++)
        if (!json_member(o->node, o->asked[i]).item)
            absent[n++] = o->asked[i];
    const char *meant = nearest(typed, absent, n);
    free(absent);
    return meant ? meant : nearest(typed, o->asked, o->asked_n);
}

static bool unknown_key(const JsonObj *o, const char *key, const char *what)
{
    char text[FAIL_CAP], allowed[LIST_CAP], guess[80] = "";
    JsonNode node = json_member(o->node, key);
    const char *meant = nearest_asked(o, key);
    if (meant)
        snprintf(guess, sizeof guess, "did you mean '%.40s'? ", meant);
    words_joined(allowed, LIST_CAP, o->asked, o->asked_n);
    snprintf(text, sizeof text, "%s, %sallowed: %s", what, guess, allowed);
    return fail_at(node, text, o->err);
}

bool json_end(JsonObj *o)
{
    const cJSON *item = o->ok ? o->node.item : NULL;
    for (const cJSON *c = item ? item->child : NULL; c && o->ok; c = c->next)
        if (!was_asked(o, c->string))
            o->ok = unknown_key(o, c->string, "unknown key");
    free_asked(o);
    return o->ok;
}

/* Almost a key that is not there: a slip, not a key that nobody here needs. */
static bool is_almost_asked(const JsonObj *o, const char *key)
{
    enum { LETTERS_MIN = 5 };
    for (uint32_t i = 0; strlen(key) >= LETTERS_MIN && i < o->asked_n; i++)
        if (is_slip(key, o->asked[i]) &&
            !cJSON_GetObjectItemCaseSensitive(o->node.item, o->asked[i]))
            return true;
    return false;
}

bool json_end_lax(JsonObj *o)
{
    const cJSON *item = o->ok ? o->node.item : NULL;
    for (const cJSON *c = item ? item->child : NULL; c && o->ok; c = c->next)
        if (!was_asked(o, c->string) &&
            (json_is_set(json_member(o->node, c->string)) || is_almost_asked(o, c->string)))
            o->ok = unknown_key(o, c->string, "the key changes nothing here");
    free_asked(o);
    return o->ok;
}

JsonNode json_get(JsonObj *o, const char *key)
{
    if (!was_asked(o, key)) {
        GROW(o->asked, o->asked_n, o->asked_cap);
        o->asked[o->asked_n++] = key;
    }
    JsonNode node = o->ok ? json_member(o->node, key) : (JsonNode){ NULL, o->node.doc, key };
    if (json_type(node) == JSON_NULL)
        node.item = NULL;
    return node;
}

bool json_has(JsonObj *o, const char *key)
{
    return json_get(o, key).item != NULL;
}

bool json_missing(JsonObj *o, const char *key, const char *hint)
{
    if (!o->ok)
        return false;
    const char *typed = NULL;
    for (const cJSON *c = ((const cJSON *)o->node.item)->child; c && !typed; c = c->next)
        if (!was_asked(o, c->string) && is_near(c->string, key))
            typed = c->string;
    JsonNode node = json_member(o->node, key);
    o->ok = typed ? json_fail(node, o->err, "the key is missing; is '%.60s' meant?", typed)
                  : json_fail(node, o->err, "the key is missing%s", hint);
    return false;
}

/* True when there is a value of the right type; otherwise the error or nothing is set. */
static bool present(JsonObj *o, const char *key, JsonNode node, JsonType type, bool required)
{
    if (!o->ok)
        return false;
    JsonType got = json_type(node);
    if (got == type)
        return true;
    if (got != JSON_ABSENT)
        o->ok = json_fail(node, o->err, "%s is expected, not %s", json_type_name(type),
                          json_type_name(got));
    else if (required)
        json_missing(o, key, "");
    return false;
}

static double in_range(JsonObj *o, JsonNode node, double min, double max, double fallback)
{
    double x = json_value(node);
    if (x >= min && x <= max)
        return x;
    o->ok =
        json_fail(node, o->err, "%.12g is out of range, %.12g to %.12g allowed", x, min, max);
    return fallback;
}

static double whole(JsonObj *o, JsonNode node, double min, double max, double fallback)
{
    double x = json_value(node);
    if (x == floor(x))
        return in_range(o, node, min, max, fallback);
    o->ok = json_fail(node, o->err, "a whole number is expected, not %.12g", x);
    return fallback;
}

double json_number(JsonObj *o, const char *key, double min, double max, double fallback)
{
    JsonNode node = json_get(o, key);
    double x = fallback;
    bool given = present(o, key, node, JSON_NUMBER, fallback <= JSON_REQUIRED);
    if (given)
        x = in_range(o, node, min, max, fallback);
    if (x <= JSON_REQUIRED)
        return min;
    if (o->ok)
        log_number(node, x, !given);
    return x;
}

uint64_t json_count(JsonObj *o, const char *key, uint64_t min, uint64_t max, double fallback)
{
    JsonNode node = json_get(o, key);
    double x = fallback, top = (double)min_u64(max, (uint64_t)1 << 53);
    bool given = present(o, key, node, JSON_NUMBER, fallback <= JSON_REQUIRED);
    if (given)
        x = whole(o, node, (double)min, top, fallback);
    if (x < 0)
        return min;
    if (o->ok)
        log_number(node, x, !given);
    return (uint64_t)x;
}

bool size_parse(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = { { "B", 1 },
                  { "kB", 1e3 },
                  { "KB", 1e3 },
                  { "MB", 1e6 },
                  { "GB", 1e9 },
                  { "TB", 1e12 },
                  { "KiB", 1024.0 },
                  { "MiB", 1048576.0 },
                  { "GiB", 1073741824.0 },
                  { "TiB", 1099511627776.0 },
                  { "", 1 } };
    const char *end;
    double x;
    if (!numeral_real(text, &x, &end) || *text == '-')
        return false;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < ARRAY_N(units); i++)
        if (strcmp(end, units[i].unit) == 0) {
            double product = x * units[i].factor;
            if (!(product < 9.2e18))
                return false;
            *bytes = (uint64_t)(product + 0.5);
            return true;
        }
    return false;
}

uint64_t json_size(JsonObj *o, const char *key, uint64_t min, uint64_t max, uint64_t fallback)
{
    JsonNode node = json_get(o, key);
    uint64_t x = fallback;
    bool given = o->ok && node.item;
    if (given && json_type(node) == JSON_STRING) {
        if (!size_parse(json_text(node), &x))
            o->ok = json_fail(node, o->err, "'%s' is not a size such as 25MiB or 25MB",
                              json_text(node));
        else if (x < min || x > max)
            o->ok = json_fail(node, o->err,
                              "%s is out of range, %" PRIu64 " to %" PRIu64 " bytes allowed",
                              json_text(node), min, max);
    } else if (given && present(o, key, node, JSON_NUMBER, false)) {
        double top = (double)min_u64(max, (uint64_t)1 << 53);
        x = (uint64_t)whole(o, node, (double)min, top, (double)fallback);
    }
    if (!o->ok)
        return fallback;
    log_number(node, (double)x, !given);
    return x;
}

bool json_bool(JsonObj *o, const char *key, bool fallback)
{
    JsonNode node = json_get(o, key);
    bool given = present(o, key, node, JSON_BOOL, false);
    bool x = given ? cJSON_IsTrue((const cJSON *)node.item) != 0 : fallback;
    if (o->ok)
        json_log_value(node, x ? "true" : "false", !given);
    return x;
}

const char *json_string(JsonObj *o, const char *key, const char *fallback)
{
    JsonNode node = json_get(o, key);
    bool given = present(o, key, node, JSON_STRING, fallback == NULL);
    const char *x = given ? json_text(node) : fallback;
    if (o->ok)
        json_log_value(node, x, !given);
    return x ? x : "";
}

int json_word(JsonObj *o, const char *key, const char *const *words, size_t words_n,
              int fallback)
{
    JsonNode node = json_get(o, key);
    bool given = present(o, key, node, JSON_STRING, fallback < 0);
    int x = fallback;
    if (given) {
        x = -1;
        for (size_t i = 0; i < words_n; i++)
            if (strcmp(words[i], json_text(node)) == 0)
                x = (int)i;
    }
    if (given && x < 0) {
        char allowed[LIST_CAP];
        words_joined(allowed, LIST_CAP, words, words_n);
        o->ok = json_fail(node, o->err, "unknown word '%.100s', allowed: %s", json_text(node),
                          allowed);
    }
    if (o->ok && x >= 0)
        json_log_value(node, words[x], !given);
    return x < 0 ? 0 : x;
}
