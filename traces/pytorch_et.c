/* pytorch_et.c - walks the nodes of an execution trace and keeps its collectives. */
#include "traces/pytorch_et.h"
#include "traces/formats.h"

#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "traces/rules.h"
#include "traces/unpack.h"

/* Kineto has "schemaVersion" and traceEvents; "nodes" may stand after much else. */
bool pytorch_et_matches(const uint8_t *head, size_t n)
{
    return trace_head_has(head, n, "\"schema\"") && trace_head_has(head, n, "\"nodes\"") &&
           !trace_head_has(head, n, "\"traceEvents\"");
}

/* Bytes of a tensor value [tensor, storage, offset, elements, element bytes, device], of all in a
 * list of such; 0 for what is no tensor. */
static double tensor_bytes(JsonNode value, int depth)
{
    if (json_type(value) != JSON_ARRAY || depth > 3)
        return 0;
    if (json_items_n(value) == 6 && json_text(json_item(value, 5)))
        return json_value(json_item(value, 3)) * json_value(json_item(value, 4));
    double sum = 0;
    size_t i = 0;
    for (JsonNode v = json_first(value); v.item; v = json_next(v, value, ++i))
        sum += tensor_bytes(v, depth + 1);
    return sum;
}

static JsonNode attribute(JsonNode node, const char *name)
{
    JsonNode list = json_member(node, "attrs");
    size_t i = 0;
    for (JsonNode a = json_first(list); json_type(list) == JSON_ARRAY && a.item;
         a = json_next(a, list, ++i)) {
        const char *is = json_text(json_member(a, "name"));
        if (is && strcmp(is, name) == 0)
            return json_member(a, "value");
    }
    return (JsonNode){ 0 };
}

/* "nccl:all_reduce" of old schemas; the attribute of record_param_comms in new ones. */
static const char *collective_of(JsonNode node, const char *name)
{
    const char *attr = json_text(attribute(node, "collective_name"));
    if (attr && *attr)
        return attr;
    return strncmp(name, "nccl:", 5) == 0 ? name + 5 : NULL;
}

static void take_comm(PytorchEt *e, JsonNode node, const char *word)
{
    const char *op = comm_op_of(word, strlen(word));
    const char *group = json_text(attribute(node, "pg_name"));
    JsonNode inputs = json_member(node, "inputs");
    if (json_type(inputs) == JSON_OBJECT)
        inputs = json_member(inputs, "values");
    double bytes = tensor_bytes(inputs, 0), id = json_value(json_member(node, "id"));
    GROW(e->comms, e->comms_n, e->comms_cap);
    e->comms[e->comms_n++] =
        (PytorchComm){ .op = intern(&e->names, op ? op : word),
                       .group = group ? intern(&e->names, group) : NONE_U32,
                       .bytes = bytes > 0 && bytes < 1e18 ? (uint64_t)bytes : NONE_U64,
                       .node = id >= 0 && id < 9e15 ? (uint64_t)id : 0 };
}

static bool take_node(PytorchEt *e, JsonNode node, Err *err)
{
    if (json_type(node) != JSON_OBJECT)
        return json_fail(node, err, "a node is an object, not %s",
                         json_type_name(json_type(node)));
    const char *name = json_text(json_member(node, "name"));
    const char *schema = json_text(json_member(node, "op_schema"));
    if (!schema)
        schema = json_text(attribute(node, "op_schema"));
    e->nodes_n++;
    e->operators_n += schema && *schema;
    const char *word = name ? collective_of(node, name) : NULL;
    if (word && strcmp(word, "wait") != 0)
        take_comm(e, node, word);
    return true;
}

bool pytorch_et_parse(PytorchEt *e, const char *text, size_t n, const char *name, Err *err)
{
    *e = (PytorchEt){ 0 };
    JsonDoc *doc = json_parse(text, n, name, err);
    if (!doc)
        return false;
    JsonNode root = json_root(doc), list = json_member(root, "nodes");
    const char *schema = json_text(json_member(root, "schema"));
    double pid = json_value(json_member(root, "pid"));
    e->schema = intern(&e->names, schema ? schema : "unknown");
    e->pid = pid > 0 && pid < 9e15 ? (uint64_t)pid : 0;
    bool ok = json_type(list) == JSON_ARRAY ||
              json_fail(list, err, "a list of nodes is expected, not %s",
                        json_type_name(json_type(list)));
    size_t i = 0;
    for (JsonNode node = json_first(list); ok && node.item; node = json_next(node, list, ++i))
        ok = take_node(e, node, err);
    json_close(doc);
    if (!ok)
        pytorch_et_free(e);
    return ok;
}

bool pytorch_et_read(PytorchEt *e, const char *path, Err *err)
{
    Unpacked u;
    *e = (PytorchEt){ 0 };
    if (!unpack_open(&u, path, JSON_BYTES_MAX, err))
        return false;
    bool ok = pytorch_et_parse(e, (const char *)u.bytes, (size_t)u.n, path, err);
    unpack_close(&u);
    return ok;
}

void pytorch_et_free(PytorchEt *e)
{
    free(e->comms);
    intern_free(&e->names);
    *e = (PytorchEt){ 0 };
}

bool pytorch_et_open(Timeline *t, const char *path, Err *err)
{
    PytorchEt e;
    *t = (Timeline){ 0 };
    if (!pytorch_et_read(&e, path, err))
        return false;
    double bytes = 0;
    for (uint32_t i = 0; i < e.comms_n; i++)
        bytes += e.comms[i].bytes == NONE_U64 ? 0 : (double)e.comms[i].bytes;
    err_set(err,
            "cannot make a timeline of '%s': a PyTorch execution trace has no times (schema "
            "%.40s, %" PRIu64 " nodes, %" PRIu64 " operators, %u collectives of %.4g MB); read "
            "the Kineto trace of the same run",
            path, intern_text(&e.names, e.schema), e.nodes_n, e.operators_n,
            (unsigned)e.comms_n, bytes / 1e6);
    pytorch_et_free(&e);
    return false;
}
