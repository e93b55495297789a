/*
 * chakra_decode.c - Chakra's two forms, protobuf and JSON, into nodes.
 *
 * The protobuf is read by hand: ten fields of two messages, of which the largest (the
 * texts of inputs and outputs, most of the file) are stepped over.  A library would
 * unpack all of them, and bring a compiler of its own into the build.  Every read is
 * bounded by the message it is in, and that by the file.
 */
#include <string.h>

#include "core/json.h"
#include "traces/chakra_parts.h"
#include "traces/formats.h"

/* ---- protobuf ---- */

typedef struct Bytes {
    const uint8_t *at, *end;
    bool bad;
} Bytes;

/* A field of a message: its number and, by wire type, a value or bytes. */
typedef struct Field {
    uint64_t number, value;
    Bytes bytes;
    bool has_bytes;
} Field;

static uint64_t varint(Bytes *b)
{
    uint64_t x = 0;
    for (int shift = 0; shift < 64 && b->at < b->end; shift += 7) {
        uint8_t byte = *b->at++;
        x |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return x;
    }
    b->bad = true;
    return 0;
}

static Bytes take(Bytes *b, uint64_t n)
{
    if (n > (uint64_t)(b->end - b->at)) {
        b->bad = true;
        return (Bytes){ b->end, b->end, true };
    }
    Bytes part = { b->at, b->at + n, false };
    b->at += n;
    return part;
}

/* The next field; false at the end and when the bytes make no sense (bad is set). */
static bool next_field(Bytes *b, Field *f)
{
    enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };
    if (b->at >= b->end)
        return false;
    uint64_t tag = varint(b);
    *f = (Field){ .number = tag >> 3 };
    switch (tag & 7) {
    case WIRE_VARINT:
        f->value = varint(b);
        break;
    case WIRE_64:
        take(b, 8);
        break;
    case WIRE_BYTES:
        f->bytes = take(b, varint(b));
        f->has_bytes = true;
        break;
    case WIRE_32:
        take(b, 4);
        break;
    default:
        b->bad = true;
    }
    b->bad = b->bad || f->number == 0;
    return !b->bad;
}

/* AttributeProto: the value's field number is its type. */
static bool decode_attribute(ChakraNodes *nodes, ChakraNode *node, Bytes b)
{
    enum { NAME = 1, SINT32 = 15, SINT64 = 17, STRING = 29 };
    Bytes name = { 0 }, text = { 0 };
    uint64_t value = 0;
    bool has_value = false;
    for (Field f; next_field(&b, &f);) {
        if (f.number == NAME && f.has_bytes)
            name = f.bytes;
        else if (f.number == STRING && f.has_bytes)
            text = f.bytes;
        else if (!f.has_bytes) {
            has_value = true;
            bool zigzag = f.number == SINT32 || f.number == SINT64;
            value = zigzag ? f.value >> 1 ^ (0 - (f.value & 1)) : f.value;
        }
    }
    size_t n = (size_t)(name.end - name.at);
    if (has_value)
        chakra_attribute(node, (const char *)name.at, n, value);
    if (text.at && n == 7 && memcmp(name.at, "pg_name", 7) == 0)
        node->group =
            intern_bytes(nodes->names, (const char *)text.at, (size_t)(text.end - text.at));
    return !b.bad;
}

static bool decode_deps(ChakraNodes *nodes, Field f, bool control)
{
    if (!f.has_bytes) {
        chakra_dep(nodes, f.value, control);
        return true;
    }
    while (f.bytes.at < f.bytes.end && !f.bytes.bad)
        chakra_dep(nodes, varint(&f.bytes), control);
    return !f.bytes.bad;
}

static bool decode_node(ChakraNodes *nodes, Bytes b)
{
    enum { ID = 1, NAME, TYPE, CTRL_DEPS, DATA_DEPS, START, DURATION, ATTRIBUTE = 10 };
    ChakraNode *node = chakra_node(nodes);
    bool ok = true;
    for (Field f; ok && next_field(&b, &f);) {
        if (f.number == ID)
            node->id = f.value;
        else if (f.number == NAME && f.has_bytes)
            node->name = intern_bytes(nodes->names, (const char *)f.bytes.at,
                                      (size_t)(f.bytes.end - f.bytes.at));
        else if (f.number == TYPE)
            node->type = f.value < CHAKRA_TYPE_N ? (ChakraType)f.value : CHAKRA_INVALID;
        else if (f.number == CTRL_DEPS || f.number == DATA_DEPS)
            ok = decode_deps(nodes, f, f.number == CTRL_DEPS);
        else if (f.number == START) {
            node->start_us = f.value;
            node->has_start = true;
        } else if (f.number == DURATION) {
            node->duration_us = f.value;
            node->has_duration = true;
        } else if (f.number == ATTRIBUTE && f.has_bytes)
            ok = decode_attribute(nodes, node, f.bytes);
    }
    return ok && !b.bad;
}

bool chakra_decode(ChakraNodes *nodes, const uint8_t *bytes, uint64_t n, const char *file,
                   Err *err)
{
    Bytes all = { bytes, bytes + n, false };
    for (bool first = true; all.at < all.end; first = false) {
        uint64_t offset = (uint64_t)(all.at - bytes), length = varint(&all);
        Bytes message = take(&all, length);
        if (all.bad)
            return err_set(err,
                           "cannot read '%s': it is cut short in the message at byte %" PRIu64,
                           file, offset);
        if (!first && !decode_node(nodes, message))
            return err_set(err, "cannot read '%s': the message at byte %" PRIu64 " is damaged",
                           file, offset);
    }
    return true;
}

/* The first message: a version, attributes, and nothing else, as far as head goes. */
static bool et_matches(const uint8_t *head, size_t n)
{
    Bytes b = { head, head + n, false };
    uint64_t length = varint(&b);
    if (b.bad || length < 2 || length > (1 << 20))
        return false;
    if (length <= (uint64_t)(b.end - b.at))
        b.end = b.at + length;
    uint32_t fields_n = 0;
    Field f;
    for (; next_field(&b, &f); fields_n++)
        if ((f.number != 1 && f.number != 2) || !f.has_bytes)
            return false;
    bool cut = length > n; /* head ends within the message: then its last field may be bad */
    return fields_n > 0 && (!b.bad || cut);
}

/* ---- JSON ---- */

bool chakra_json_matches(const uint8_t *head, size_t n)
{
    return trace_head_has(head, n, "\"workload_graph\"");
}

bool chakra_matches(const uint8_t *head, size_t n)
{
    return et_matches(head, n) || chakra_json_matches(head, n);
}

/* Whole and not negative; anything else says nothing. */
static bool whole(JsonNode node, uint64_t *x)
{
    double value = json_value(node);
    if (json_type(node) == JSON_BOOL)
        value = json_truth(node);
    else if (json_type(node) != JSON_NUMBER)
        return false;
    if (!(value >= 0 && value < 9e15))
        return false;
    *x = (uint64_t)value;
    return true;
}

static void parse_deps(ChakraNodes *nodes, JsonNode list, bool control)
{
    size_t i = 0;
    uint64_t id;
    if (json_type(list) != JSON_ARRAY)
        return;
    for (JsonNode d = json_first(list); d.item; d = json_next(d, list, ++i))
        if (whole(d, &id))
            chakra_dep(nodes, id, control);
}

static void parse_node(ChakraNodes *nodes, JsonNode object)
{
    ChakraNode *node = chakra_node(nodes);
    uint64_t x;
    for (size_t i = 0; i < json_items_n(object); i++) {
        const char *key = json_key(object, i);
        JsonNode value = json_member(object, key);
        if (strcmp(key, "Name") == 0 && json_text(value))
            node->name = intern(nodes->names, json_text(value));
        else if (strcmp(key, "pg_name") == 0 && json_text(value))
            node->group = intern(nodes->names, json_text(value));
        else if (strcmp(key, "ctrlDeps") == 0 || strcmp(key, "data_deps") == 0)
            parse_deps(nodes, value, key[0] == 'c');
        else if (!whole(value, &x))
            continue;
        else if (strcmp(key, "Id") == 0)
            node->id = x;
        else if (strcmp(key, "NodeType") == 0)
            node->type = x < CHAKRA_TYPE_N ? (ChakraType)x : CHAKRA_INVALID;
        else if (strcmp(key, "start_time") == 0) {
            node->start_us = x;
            node->has_start = true;
        } else if (strcmp(key, "runtime") == 0) {
            node->duration_us = x;
            node->has_duration = true;
        } else
            chakra_attribute(node, key, strlen(key), x);
    }
}

bool chakra_parse(ChakraNodes *nodes, const uint8_t *bytes, uint64_t n, const char *file,
                  Err *err)
{
    JsonDoc *doc = json_parse((const char *)bytes, (size_t)n, file, err);
    if (!doc)
        return false;
    JsonNode list = json_member(json_root(doc), "workload_graph");
    bool ok = json_type(list) == JSON_ARRAY ||
              json_fail(list, err, "a list of nodes is expected, not %s",
                        json_type_name(json_type(list)));
    size_t i = 0;
    for (JsonNode node = json_first(list); ok && node.item; node = json_next(node, list, ++i)) {
        if (json_type(node) != JSON_OBJECT)
            ok = json_fail(node, err, "a node is an object, not %s",
                           json_type_name(json_type(node)));
        else
            parse_node(nodes, node);
    }
    json_close(doc);
    return ok;
}
