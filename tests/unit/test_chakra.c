/* Chakra traces: messages written here byte by byte, the JSON form, damage, and the real one. */
#include "tests/check.h"
#include "traces/chakra.h"

#include <unistd.h>

static Rules rules;
static Timeline t;
static TraceInfo info;
static Err err;

/* ---- a small writer of protobuf ---- */

typedef struct Out {
    uint8_t bytes[4096];
    size_t n;
} Out;

static void put_varint(Out *o, uint64_t x)
{
    for (; x >= 0x80; x >>= 7)
        o->bytes[o->n++] = (uint8_t)(x | 0x80);
    o->bytes[o->n++] = (uint8_t)x;
}

static void put_number(Out *o, uint32_t field, uint64_t x)
{
    put_varint(o, field << 3);
    put_varint(o, x);
}

static void put_bytes(Out *o, uint32_t field, const void *bytes, size_t n)
{
    put_varint(o, field << 3 | 2);
    put_varint(o, n);
    memcpy(o->bytes + o->n, bytes, n);
    o->n += n;
}

static void put_attribute(Out *o, const char *name, uint32_t type, uint64_t x)
{
    Out a = { .n = 0 };
    put_bytes(&a, 1, name, strlen(name));
    put_number(&a, type, x);
    put_bytes(o, 10, a.bytes, a.n);
}

/* Appends a message to a file, after its length. */
static void put_message(Out *file, const Out *m)
{
    put_varint(file, m->n);
    memcpy(file->bytes + file->n, m->bytes, m->n);
    file->n += m->n;
}

static Out file_begin(void)
{
    Out file = { .n = 0 }, meta = { .n = 0 };
    put_bytes(&meta, 1, "1.0", 3);
    put_message(&file, &meta);
    return file;
}

typedef struct Made {
    uint64_t id, type, start, duration, dep, control; /* 0: not there */
    const char *name;
    uint64_t cpu, lane;
} Made;

static Out node_of(const Made *m)
{
    Out o = { .n = 0 };
    put_number(&o, 1, m->id);
    put_bytes(&o, 2, m->name, strlen(m->name));
    put_number(&o, 3, m->type);
    if (m->control)
        put_number(&o, 4, m->control);
    if (m->dep) {
        Out packed = { .n = 0 };
        put_varint(&packed, m->dep);
        put_bytes(&o, 5, packed.bytes, packed.n);
    }
    if (m->start)
        put_number(&o, 6, m->start);
    if (m->duration)
        put_number(&o, 7, m->duration);
    put_attribute(&o, "is_cpu_op", 27, m->cpu);
    put_attribute(&o, "tid", 9, m->lane);
    put_attribute(&o, "of_no_interest", 31, 5);
    return o;
}

static Out file_of(const Made *made, size_t n)
{
    Out file = file_begin();
    for (size_t i = 0; i < n; i++) {
        Out node = node_of(&made[i]);
        put_message(&file, &node);
    }
    return file;
}

static bool read_bytes(const void *bytes, size_t n)
{
    timeline_free(&t);
    err = (Err){ 0 };
    bool ok = chakra_read_bytes(&t, &info, bytes, n, "x", &rules, &err);
    CHECK(ok != err.set);
    Err why = { 0 };
    if (ok && !CHECK(timeline_check(&t, &why)))
        fprintf(stderr, "%s\n", why.text);
    return ok;
}

static void check_span(const char *name, SpanClass c, TrackKind kind, int64_t start_ns,
                       int64_t dur_ns)
{
    for (uint64_t i = 0; i < t.spans_n; i++)
        if (strcmp(timeline_text(&t, t.span_name[i]), name) == 0) {
            CHECK_INT(c, t.span_class[i]);
            CHECK_INT(kind, t.tracks[t.span_track[i]].kind);
            CHECK_INT(start_ns, t.start_ns[i]);
            CHECK_INT(dur_ns, t.dur_ns[i]);
            return;
        }
    fprintf(stderr, "no span '%s'\n", name);
    CHECK(false);
}

/* ---- tests ---- */

static void nodes_with_times_become_spans(void)
{
    static const Made made[] = {
        { 1, 4, 100, 20, 0, 0, "aten::mm", 1, 3 },
        { 2, 4, 130, 50, 1, 0, "gemm", 0, 7 },
        { 3, 2, 200, 5, 0, 0, "load", 0, 7 },
        { 4, 4, 0, 5, 0, 0, "no start", 0, 7 }, /* others have one: it cannot be placed */
        { 5, 1, 300, 5, 0, 0, "metadata", 0, 7 },
        { 6, 4, 210, 9, 0, 0, "ncclDevKernel_AllGather_RING_LL(x)", 0, 20 },
    };
    Out file = file_of(made, ARRAY_N(made));
    if (!CHECK(read_bytes(file.bytes, file.n)))
        return;
    CHECK_U64(4, t.spans_n);
    CHECK_INT(3, t.tracks_n);
    check_span("aten::mm", SPAN_HOST, TRACK_HOST, 100000, 20000);
    check_span("gemm", SPAN_COMPUTE, TRACK_STREAM, 130000, 50000);
    check_span("load", SPAN_MEMORY, TRACK_STREAM, 200000, 5000);
    check_span("ncclDevKernel_AllGather_RING_LL(x)", SPAN_COMM, TRACK_STREAM, 210000, 9000);
    CHECK(strstr(t.name, "laid out") == NULL);
    CHECK_U64(2, info.kernels_n);
    CHECK_U64(1, info.comm_kernels_n);
}

/* a 10, b 20 after a, c 5 after b though it stands first; d 7 on b's lane, no dependency. */
static void without_start_times_dependencies_lay_nodes_out(void)
{
    static const Made made[] = {
        { 9, 4, 0, 5, 2, 0, "c", 0, 1 },
        { 1, 4, 0, 10, 0, 77, "a", 1, 1 }, /* its parent was left out of the trace */
        { 2, 4, 0, 20, 1, 0, "b", 0, 2 },
        { 3, 4, 0, 7, 0, 9, "d", 0, 2 },
    };
    Out file = file_of(made, ARRAY_N(made));
    if (!CHECK(read_bytes(file.bytes, file.n)))
        return;
    check_span("a", SPAN_HOST, TRACK_HOST, 0, 10000);
    check_span("b", SPAN_COMPUTE, TRACK_STREAM, 10000, 20000);
    check_span("c", SPAN_COMPUTE, TRACK_STREAM, 30000, 5000);
    check_span("d", SPAN_COMPUTE, TRACK_STREAM, 35000, 7000);
    CHECK(strstr(t.name, "laid out by dependencies") != NULL);
}

static void collectives_keep_what_their_attributes_say(void)
{
    Out file = file_begin(), node = { .n = 0 }, attr = { .n = 0 }, send = { .n = 0 };
    put_number(&node, 1, 1);
    put_bytes(&node, 2, "gather the shards", 17);
    put_number(&node, 3, 7);
    put_number(&node, 6, 5);
    put_number(&node, 7, 5);
    put_attribute(&node, "comm_type", 9, 2);
    put_attribute(&node, "comm_size", 13, 4096);
    put_bytes(&attr, 1, "pg_name", 7);
    put_bytes(&attr, 29, "dp", 2);
    put_bytes(&node, 10, attr.bytes, attr.n);
    put_message(&file, &node);
    put_number(&send, 1, 2);
    put_number(&send, 3, 5);
    put_number(&send, 6, 20);
    put_number(&send, 7, 5);
    put_attribute(&send, "comm_dst", 15, 6); /* zigzag: 3 */
    put_message(&file, &send);
    if (!CHECK(read_bytes(file.bytes, file.n)))
        return;
    CHECK_INT(2, t.comms_n);
    CHECK_STR("all_gather", timeline_text(&t, t.comms[0].op));
    CHECK_STR("dp", timeline_text(&t, t.comms[0].group));
    CHECK_U64(4096, t.comms[0].bytes);
    CHECK_STR("send", timeline_text(&t, t.comms[1].op));
    CHECK_INT(3, t.comms[1].peer);
}

static void what_cannot_be_read_is_said(void)
{
    static const Made untimed[] = { { 1, 4, 0, 0, 0, 0, "a", 0, 1 },
                                    { 2, 4, 0, 0, 1, 0, "b", 0, 1 } };
    Out file = file_of(untimed, 2);
    CHECK(!read_bytes(file.bytes, file.n));
    CHECK_ERR_TEXT(&err, "cannot make a timeline of 'x': it has 2 nodes and 1 dependencies, "
                         "and no times");
    static const Made circle[] = { { 1, 4, 0, 3, 2, 0, "a", 0, 1 },
                                   { 2, 4, 0, 3, 1, 0, "b", 0, 1 } };
    file = file_of(circle, 2);
    CHECK(!read_bytes(file.bytes, file.n));
    CHECK_ERR_TEXT(&err, "its data dependencies go round in a circle");
    static const Made late[] = { { 1, 4, UINT64_MAX, 3, 0, 0, "a", 0, 1 } };
    file = file_of(late, 1);
    CHECK(!read_bytes(file.bytes, file.n));
    CHECK_ERR_TEXT(&err, "it holds times out of range");
    file = file_of(circle, 2);
    CHECK(!read_bytes(file.bytes, file.n - 3));
    CHECK_ERR_TEXT(&err, "cannot read 'x': it is cut short in the message at byte");
    file.bytes[7] = 0x0b; /* a group, which no version has */
    CHECK(!read_bytes(file.bytes, file.n));
    CHECK_ERR_TEXT(&err, "is damaged");
    CHECK(!read_bytes("hello", 5));
    CHECK_ERR_TEXT(&err, "it is no Chakra trace");
}

static void cut_or_changed_files_never_crash(void)
{
    static const Made made[] = { { 1, 4, 0, 5, 0, 3, "a", 1, 1 },
                                 { 2, 7, 0, 7, 1, 0, "b", 0, 2 },
                                 { 3, 5, 0, 9, 2, 1, "c", 0, 2 } };
    Out file = file_of(made, 3);
    for (size_t n = 0; n < file.n; n++)
        read_bytes(file.bytes, n);
    uint64_t random = 7;
    for (int i = 0; i < 3000; i++) {
        Out copy = file;
        random = mix_u64(random);
        copy.bytes[random % copy.n] = (uint8_t)(random >> 32);
        read_bytes(copy.bytes, copy.n);
    }
}

static void the_json_form_is_read_too(void)
{
    static const char text[] =
        "{\"workload_graph\": [\n"
        " {\"Id\": 1, \"Name\": \"aten::mm\", \"NodeType\": 4, \"ctrlDeps\": [3],\n"
        "  \"data_deps\": [], \"runtime\": 318, \"is_cpu_op\": true},\n"
        " {\"Id\": 2, \"Name\": \"ncclKernel_Broadcast_RING_LL_Sum_int8_t(x)\", \"NodeType\": "
        "7,\n"
        "  \"ctrlDeps\": [], \"data_deps\": [1], \"runtime\": 28, \"is_cpu_op\": false,\n"
        "  \"comm_size\": 64}], \"ngpus\": 8}";
    if (CHECK(read_bytes(text, sizeof text - 1))) {
        check_span("aten::mm", SPAN_HOST, TRACK_HOST, 0, 318000);
        check_span("ncclKernel_Broadcast_RING_LL_Sum_int8_t(x)", SPAN_COMM, TRACK_STREAM,
                   318000, 28000);
        CHECK_STR("broadcast", timeline_text(&t, t.comms[0].op));
        CHECK_U64(64, t.comms[0].bytes);
    }
    static const char list[] = "{\"workload_graph\": 3}", node[] = "{\"workload_graph\": [3]}";
    CHECK(!read_bytes(list, sizeof list - 1));
    CHECK_ERR_TEXT(&err, "x: workload_graph: a list of nodes is expected, not a number");
    CHECK(!read_bytes(node, sizeof node - 1));
    CHECK_ERR_TEXT(&err, "a node is an object, not a number");
}

/* Counted by another decoder: 3,664 nodes of which 3,507 have a duration, 7 collectives. */
static void the_real_one_is_whole(void)
{
    static const char path[] = "../shared/data/traces/chakra/chakra.0.et.gz";
    if (access(path, R_OK) != 0) {
        printf("test_chakra: %s is not here, skipped\n", path);
        return;
    }
    timeline_free(&t);
    err = (Err){ 0 };
    if (!CHECK(chakra_read(&t, NULL, path, &rules, &err)))
        return;
    uint64_t comms = 0;
    for (uint64_t i = 0; i < t.spans_n; i++)
        comms += t.span_class[i] == SPAN_COMM;
    CHECK(timeline_check(&t, &err));
    CHECK_U64(3507, t.spans_n);
    CHECK_U64(7, comms);
    CHECK_STR("broadcast", timeline_text(&t, t.comms[0].op));
    CHECK_U64(212480, t.comms[0].bytes);
}

int main(void)
{
    if (!rules_read(&rules, NULL, 0, &err))
        return 1;
    RUN(nodes_with_times_become_spans);
    RUN(without_start_times_dependencies_lay_nodes_out);
    RUN(collectives_keep_what_their_attributes_say);
    RUN(what_cannot_be_read_is_said);
    RUN(cut_or_changed_files_never_crash);
    RUN(the_json_form_is_read_too);
    RUN(the_real_one_is_whole);
    timeline_free(&t);
    rules_free(&rules);
    return check_report();
}
