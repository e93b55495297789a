/*
 * json.h - strict reading of JSON written by people.
 *
 * A document is read whole (cJSON underneath, nowhere else).  An object is read
 * key by key; every key asked for is remembered, and json_end refuses the keys
 * nobody asked for, naming those that are allowed.  Errors are sticky: after the
 * first one every getter returns its default, so a reader asks for all its keys
 * and looks once:
 *
 *     JsonObj o = json_begin(node, err);
 *     spec->layers = (uint32_t)json_count(&o, "layers", 1, 100000, JSON_REQUIRED);
 *     spec->tied = json_bool(&o, "tied_embeddings", false);
 *     return json_end(&o);
 *
 * prints  models/x.json: model.layers: 0 is out of range, 1 to 100000 allowed
 *
 * Refused everywhere: duplicate keys, text after the document, nesting deeper
 * than JSON_DEPTH_MAX, numbers that are not finite, NUL bytes, files above
 * JSON_BYTES_MAX.  Syntax errors give file:line:column.
 *
 * Every value asked for, with where it came from, can be logged: sim --explain
 * prints the log.  Nodes and strings live as long as their document.
 */
#ifndef LOCKSTEP_CORE_JSON_H
#define LOCKSTEP_CORE_JSON_H

#include "core/err.h"

enum { JSON_DEPTH_MAX = 64 };
#define JSON_BYTES_MAX ((size_t)256 << 20)

typedef struct JsonDoc JsonDoc;

/* A value in a document.  item == NULL: absent. */
typedef struct JsonNode {
    const void *item;
    JsonDoc *doc;
    const char *path; /* "" for the root, else "training.micro_batch", "measured[0].value" */
} JsonNode;

typedef enum JsonType {
    JSON_ABSENT,
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} JsonType;

/* Reads a file, or text named name in messages.  NULL and err on failure. */
JsonDoc *json_open(const char *path, Err *err);
JsonDoc *json_parse(const char *text, size_t bytes, const char *name, Err *err);
/* The same of a line of a file, whose number ends name: "runs.jsonl:12".  Errors add a column. */
JsonDoc *json_parse_line(const char *text, size_t bytes, const char *name, Err *err);
/* Does a text that names a file, or else something built in, name a file?  It holds '/' or ends in
 * .json. */
bool json_is_path(const char *text);
/* The file that a text node names by its path, relative to the file in which the node stands. */
JsonDoc *json_open_beside(JsonNode node, Err *err);
const char *json_path_beside(JsonNode node); /* of that file; in the node's document */
void json_close(JsonDoc *doc);               /* NULL is fine */
JsonNode json_root(JsonDoc *doc);
const char *json_name(const JsonDoc *doc); /* the file's path or the name given */

/*
 * Sets the value at a dotted path, making objects on the way; value is JSON, or
 * else taken as a string ("8", "true", "fsdp", "{\"layers\":4}").  Replaces an
 * existing value.  Array elements as "measured[0].value" must exist.  What is said
 * of such a value later names its path "--set PATH".
 */
bool json_set(JsonDoc *doc, const char *path, const char *value, Err *err);

/* Member name of object, a value v, becomes {"key": v}.  It moves to the end of object. */
void json_wrap(JsonNode object, const char *name, const char *key);

/* Member name of object becomes value, which is JSON; as if the document had said so. */
void json_replace(JsonNode object, const char *name, const char *value);
/* Member name of object becomes a copy of another document, which stays the one that errors and
 * the log name, with paths as they are there.  What is set in it later is --set's. */
void json_graft(JsonNode object, const char *name, const JsonDoc *from);

bool json_is_set(JsonNode node); /* there, and given by json_set */
/* The file node is from, json_name or that of a grafted document; or "--set". */
const char *json_origin(JsonNode node);

JsonType json_type(JsonNode node);
const char *json_type_name(JsonType type);            /* "an object", "a number", ... */
const char *json_text(JsonNode node);                 /* of a string node, else NULL */
double json_value(JsonNode node);                     /* of a number node, else 0 */
bool json_truth(JsonNode node);                       /* true */
size_t json_items_n(JsonNode node);                   /* of an array or object, else 0 */
JsonNode json_item(JsonNode node, size_t i);          /* i-th element of an array */
JsonNode json_member(JsonNode node, const char *key); /* of an object; absent item if none */
/* Key of the i-th member of an object, NULL past the end. */
const char *json_key(JsonNode node, size_t i);

/* Walks a list in linear time: for (n = json_first(l), i = 0; n.item; n = json_next(n, l, ++i)) */
JsonNode json_first(JsonNode list);
JsonNode json_next(JsonNode element, JsonNode list, size_t i);
/* A list of exactly n numbers into x; false (and err) for anything else. */
bool json_numbers(JsonNode list, double *x, size_t n, Err *err);

/* err := "FILE: PATH: text".  Always returns false. */
bool json_fail(JsonNode node, Err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- one object, key by key ---- */

typedef struct JsonObj {
    JsonNode node;
    Err *err;
    const char **asked; /* keys asked for so far */
    uint32_t asked_n, asked_cap;
    bool ok; /* false after the first error */
} JsonObj;

/* As a default: the key must be there. */
#define JSON_REQUIRED (-1.0e300)

/* node must be an object, else the error is set and every getter returns its default. */
JsonObj json_begin(JsonNode node, Err *err);
/* Refuses keys that were not asked for.  Frees what o holds.  Returns ok. */
bool json_end(JsonObj *o);
/* Same, but other keys are ignored (Hugging Face configs), unless json_set gave them or they are a
 * letter off one that was asked for and is not there. */
bool json_end_lax(JsonObj *o);
/* Fails: key must be given.  Names a key that may be a slip for it, else the hint ends the
 * sentence.  Always returns false. */
bool json_missing(JsonObj *o, const char *key, const char *hint);

bool json_has(JsonObj *o,
              const char *key); /* marks the key as asked for; null counts as absent */
JsonNode json_get(JsonObj *o, const char *key); /* any type; item NULL when absent or null */

/* Numbers between min and max, inclusive.  fallback may be JSON_REQUIRED. */
double json_number(JsonObj *o, const char *key, double min, double max, double fallback);
/* Whole numbers; at most 2^53. */
uint64_t json_count(JsonObj *o, const char *key, uint64_t min, uint64_t max, double fallback);
/* Bytes: a whole number, or a string such as "25MiB" or "1.5GB" (KiB MiB GiB TiB binary; kB MB
 * GB TB decimal; B). */
uint64_t json_size(JsonObj *o, const char *key, uint64_t min, uint64_t max, uint64_t fallback);
bool json_bool(JsonObj *o, const char *key, bool fallback);
/* fallback NULL: required. */
const char *json_string(JsonObj *o, const char *key, const char *fallback);
/* One of words[0..n-1]; returns its index.  fallback < 0: required. */
int json_word(JsonObj *o, const char *key, const char *const *words, size_t words_n,
              int fallback);

/* "25MiB" -> bytes.  False when text is not a size. */
bool size_parse(const char *text, uint64_t *bytes);

/* ---- where values came from ---- */

typedef struct JsonLogRow {
    const char *path;   /* dotted, from the root of its document */
    const char *value;  /* as JSON */
    const char *origin; /* file name, "--set", or "default" */
} JsonLogRow;

/* Rows in the order asked; the same path asked twice is logged once. */
const JsonLogRow *json_log(const JsonDoc *doc, size_t *rows_n);
/* Whether path leads to a file that gave a value. */
bool json_log_has_file(const JsonDoc *doc, const char *path);
/* For readers of values that no getter fits: logs value (as JSON) at node's path. */
void json_log_value(JsonNode node, const char *value, bool is_default);
/* Takes over the rows of another file that the value at node names ("dgx-h100"), below its path. */
void json_log_adopt(JsonNode at, const JsonDoc *from);

#endif
