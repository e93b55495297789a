/* chakra.c - nodes become spans, at their times or, without any, where their dependencies allow. */
#include "traces/chakra.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/chakra_parts.h"
#include "traces/unpack.h"

/* ---- nodes ---- */

ChakraNode *chakra_node(ChakraNodes *nodes)
{
    GROW(nodes->node, nodes->n, nodes->cap);
    ChakraNode *node = &nodes->node[nodes->n++];
    *node = (ChakraNode){ .name = NONE_U32,
                          .group = NONE_U32,
                          .comm_type = NONE_U32,
                          .src = NONE_U32,
                          .dst = NONE_U32,
                          .bytes = NONE_U64,
                          .dep_first = nodes->deps_n };
    return node;
}

void chakra_dep(ChakraNodes *nodes, uint64_t id, bool control)
{
    GROW(nodes->dep, nodes->deps_n, nodes->deps_cap);
    nodes->dep[nodes->deps_n++] = (ChakraDep){ id, control };
    nodes->node[nodes->n - 1].dep_n++;
}

void chakra_attribute(ChakraNode *node, const char *name, size_t n, uint64_t value)
{
    uint32_t small = value < NONE_U32 ? (uint32_t)value : NONE_U32;
    char key[24];
    snprintf(key, sizeof key, "%.*s", (int)(n < sizeof key ? n : 0), n ? name : "");
    if (strcmp(key, "is_cpu_op") == 0)
        node->on_cpu = value != 0;
    else if (strcmp(key, "tid") == 0 || strcmp(key, "stream") == 0)
        node->lane = value <= INT64_MAX ? (int64_t)value : 0;
    else if (strcmp(key, "comm_type") == 0)
        node->comm_type = small;
    else if (strcmp(key, "comm_size") == 0)
        node->bytes = value;
    else if (strcmp(key, "comm_src") == 0)
        node->src = small;
    else if (strcmp(key, "comm_dst") == 0)
        node->dst = small;
}

/* ---- laying out ---- */

typedef struct Reader {
    Timeline *t;
    TraceInfo *info;
    const Rules *rules;
    const char *file;
    Err *err;
    ChakraNodes nodes;
    Interner lanes;  /* "c 7": track of lane 7 of the CPU */
    uint32_t *track; /* by lane */
    uint64_t *lane_end_us;
    uint32_t tracks_cap, ends_cap;
} Reader;

enum { NEW, OPEN, PLACED }; /* how far a node is laid out */

static bool refuse(Reader *r, const char *why)
{
    return err_set(r->err, "cannot read '%s': %s", r->file, why);
}

static uint32_t lane_of(Reader *r, const ChakraNode *node)
{
    char key[40];
    snprintf(key, sizeof key, "%c %" PRId64, node->on_cpu ? 'c' : 'g', node->lane);
    uint32_t n = r->lanes.n, lane = intern(&r->lanes, key);
    if (lane < n)
        return lane;
    GROW(r->track, n, r->tracks_cap);
    GROW(r->lane_end_us, n, r->ends_cap);
    char name[40];
    snprintf(name, sizeof name, "%s %" PRId64, node->on_cpu ? "thread" : "stream", node->lane);
    r->track[lane] =
        timeline_track(r->t, 0, node->on_cpu ? TRACK_HOST : TRACK_STREAM, name, node->lane);
    r->lane_end_us[lane] = 0;
    return lane;
}

static int compare_ids(const void *pa, const void *pb)
{
    const uint64_t *a = pa, *b = pb; /* { id, index } */
    return a[0] != b[0] ? (a[0] > b[0] ? 1 : -1) : (a[1] > b[1]) - (a[1] < b[1]);
}

/* { id, index } of all nodes, sorted: a node is found by its id. */
static uint64_t (*index_of(const ChakraNodes *nodes))[2]
{
    uint64_t(*index)[2] = mem_zero((size_t)nodes->n + 1, sizeof *index);
    for (uint64_t i = 0; i < nodes->n; i++) {
        index[i][0] = nodes->node[i].id;
        index[i][1] = i;
    }
    qsort(index, (size_t)nodes->n, sizeof *index, compare_ids);
    return index;
}

/* NONE_U64: there is no such node (a parent that was left out of the trace). */
static uint64_t find(uint64_t (*index)[2], uint64_t n, uint64_t id)
{
    uint64_t low = 0, high = n;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (index[mid][0] < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && index[low][0] == id ? index[low][1] : NONE_U64;
}

/* Begins when what it depends on and its lane are done; false when a sum leaves the range. */
static bool place_node(Reader *r, uint64_t i, const uint8_t *state)
{
    ChakraNodes *x = &r->nodes;
    ChakraNode *node = &x->node[i];
    uint64_t start = 0;
    for (uint64_t d = node->dep_first; d < node->dep_first + node->dep_n; d++)
        if (x->dep[d].node != NONE_U64 && state[x->dep[d].node] == PLACED) {
            const ChakraNode *before = &x->node[x->dep[d].node];
            start = max_u64(start, before->start_us + before->duration_us);
        }
    uint32_t lane = node->has_duration ? lane_of(r, node) : NONE_U32;
    if (lane != NONE_U32)
        start = max_u64(start, r->lane_end_us[lane]);
    node->start_us = start;
    if (start + node->duration_us > CHAKRA_US_MAX)
        return refuse(r, "its durations add up to more than 17 years");
    if (lane != NONE_U32)
        r->lane_end_us[lane] = start + node->duration_us;
    return true;
}

/*
 * A walk in the order of the file that takes a node's data dependencies before it, with
 * a stack of its own: chains are as long as traces.  Control dependencies hold where
 * they point back; in real traces some are parents that end after their children.
 */
static bool place_all(Reader *r, uint8_t *state, uint64_t *stack, uint64_t *next)
{
    ChakraNodes *x = &r->nodes;
    for (uint64_t i = 0; i < x->n; i++) {
        uint64_t depth = 0;
        if (state[i] == NEW)
            stack[depth++] = i;
        while (depth > 0) {
            uint64_t at = stack[depth - 1];
            state[at] = OPEN;
            if (next[at] == x->node[at].dep_n) {
                if (!place_node(r, at, state))
                    return false;
                state[at] = PLACED;
                depth--;
                continue;
            }
            ChakraDep dep = x->dep[x->node[at].dep_first + next[at]++];
            if (dep.node == NONE_U64 || dep.control || state[dep.node] == PLACED)
                continue;
            if (state[dep.node] == OPEN)
                return refuse(r, "its data dependencies go round in a circle");
            stack[depth++] = dep.node;
        }
    }
    return true;
}

/* Dependencies become indices, then all nodes get their times. */
static bool lay_out(Reader *r)
{
    ChakraNodes *x = &r->nodes;
    uint64_t(*index)[2] = index_of(x);
    for (uint64_t d = 0; d < x->deps_n; d++)
        x->dep[d].node = find(index, x->n, x->dep[d].node);
    free(index);
    uint8_t *state = mem_zero((size_t)x->n + 1, 1);
    uint64_t *stack = mem_zero((size_t)x->n + 1, sizeof *stack);
    uint64_t *next = mem_zero((size_t)x->n + 1, sizeof *next); /* dependency to look at */
    bool ok = place_all(r, state, stack, next);
    free(state);
    free(stack);
    free(next);
    return ok;
}

/* ---- spans ---- */

static const char *const comm_types[] = { "all_reduce", "reduce",         "all_gather",
                                          "gather",     "scatter",        "broadcast",
                                          "all_to_all", "reduce_scatter", "reduce_scatter",
                                          "barrier" };

static SpanClass class_of(Reader *r, const ChakraNode *node, const char *name, uint32_t *rule)
{
    *rule = rules_match(r->rules, name);
    if (node->on_cpu)
        return SPAN_HOST;
    if (node->type == CHAKRA_SEND || node->type == CHAKRA_RECV)
        return SPAN_P2P;
    if (node->type == CHAKRA_COLL)
        return SPAN_COMM;
    if (node->type == CHAKRA_MEM_LOAD || node->type == CHAKRA_MEM_STORE ||
        strncmp(name, "Memcpy", 6) == 0 || strncmp(name, "Memset", 6) == 0)
        return SPAN_MEMORY;
    return *rule == NONE_U32 ? SPAN_COMPUTE : r->rules->rule[*rule].class_;
}

static uint32_t optional_name(Reader *r, const char *text)
{
    return text ? intern(&r->t->names, text) : NONE_U32;
}

static uint32_t comm_of_node(Reader *r, const ChakraNode *node, const char *name)
{
    KernelComm k = kernel_comm(name);
    const char *op = node->comm_type < ARRAY_N(comm_types) ? comm_types[node->comm_type]
                     : node->type == CHAKRA_SEND           ? "send"
                     : node->type == CHAKRA_RECV           ? "recv"
                     : k.op                                ? k.op
                                                           : "unknown";
    Comm comm = comm_of(intern(&r->t->names, op));
    comm.group = node->group;
    comm.bytes = node->bytes;
    comm.peer = node->type == CHAKRA_SEND   ? node->dst
                : node->type == CHAKRA_RECV ? node->src
                                            : NONE_U32;
    comm.dtype = optional_name(r, k.dtype);
    comm.algorithm = optional_name(r, k.algorithm);
    comm.protocol = optional_name(r, k.protocol);
    return timeline_comm(r->t, comm);
}

static void count_kernel(Reader *r, const ChakraNode *node, SpanClass c, uint32_t rule)
{
    bool comm = c == SPAN_COMM || c == SPAN_P2P;
    if (node->on_cpu || c == SPAN_MEMORY)
        return;
    r->info->kernels_n++;
    r->info->comm_kernels_n += comm;
    bool by_type = node->type >= CHAKRA_SEND;
    uint32_t by = by_type ? RULE_METADATA : rule;
    if (comm && by < TRACE_RULES_MAX)
        r->info->rule_kernels_n[by]++;
}

static void add_span(Reader *r, const ChakraNode *node)
{
    uint32_t name = node->name == NONE_U32 ? intern(&r->t->names, "node") : node->name, rule;
    const char *text = timeline_text(r->t, name);
    uint32_t lane = lane_of(r, node); /* may move r->track */
    SpanClass c = class_of(r, node, text, &rule);
    bool comm = c == SPAN_COMM || c == SPAN_P2P;
    count_kernel(r, node, c, rule);
    timeline_span(r->t, (Span){ .track = r->track[lane],
                                .name = name,
                                .class_ = c,
                                .start_ns = (int64_t)node->start_us * 1000,
                                .dur_ns = (int64_t)node->duration_us * 1000,
                                .op = NONE_U32,
                                .comm = comm ? comm_of_node(r, node, text) : NONE_U32 });
    r->info->events_read++;
}

/* Whether there are times at all, and of which kind. */
static bool look_at_times(Reader *r, bool *starts)
{
    uint64_t durations_n = 0, starts_n = 0;
    for (uint64_t i = 0; i < r->nodes.n; i++) {
        ChakraNode *node = &r->nodes.node[i];
        if (node->duration_us > CHAKRA_US_MAX || node->start_us > CHAKRA_US_MAX)
            return refuse(r, "it holds times out of range, above 17 years");
        if (node->type == CHAKRA_METADATA) {
            node->has_duration = false;
            node->duration_us = 0;
        }
        durations_n += node->has_duration;
        starts_n += node->has_duration && node->start_us > 0;
    }
    *starts = starts_n > 0;
    if (durations_n > 0)
        return true;
    return err_set(r->err,
                   "cannot make a timeline of '%s': it has %" PRIu64 " nodes and %" PRIu64
                   " dependencies, and no times",
                   r->file, r->nodes.n, r->nodes.deps_n);
}

static bool build(Reader *r)
{
    bool starts = false;
    if (!look_at_times(r, &starts) || (!starts && !lay_out(r)))
        return false;
    for (uint64_t i = 0; i < r->nodes.n; i++) {
        const ChakraNode *node = &r->nodes.node[i];
        if (!node->has_duration || (starts && !node->has_start))
            continue;
        add_span(r, node);
    }
    const char *slash = strrchr(r->file, '/');
    char name[512];
    snprintf(name, sizeof name, "%.400s%s", slash ? slash + 1 : r->file,
             starts ? "" : CHAKRA_LAID_OUT);
    timeline_set_name(r->t, name);
    timeline_seal(r->t);
    return true;
}

bool chakra_read_bytes(Timeline *t, TraceInfo *info, const void *bytes, uint64_t n,
                       const char *name, const Rules *rules, Err *err)
{
    TraceInfo own;
    if (!info)
        info = &own;
    trace_info_clear(info);
    *t = (Timeline){ 0 };
    Reader r = { .t = t, .info = info, .rules = rules, .file = name, .err = err };
    r.nodes.names = &t->names;
    bool json = chakra_json_matches(bytes, (size_t)min_u64(n, 4096));
    bool ok = json ? chakra_parse(&r.nodes, bytes, n, name, err)
              : chakra_matches(bytes, (size_t)min_u64(n, 4096))
                  ? chakra_decode(&r.nodes, bytes, n, name, err)
                  : refuse(&r, "it is no Chakra trace");
    ok = ok && build(&r);
    free(r.nodes.node);
    free(r.nodes.dep);
    free(r.track);
    free(r.lane_end_us);
    intern_free(&r.lanes);
    if (!ok)
        timeline_free(t);
    return ok;
}

bool chakra_read(Timeline *t, TraceInfo *info, const char *path, const Rules *rules, Err *err)
{
    Unpacked u;
    *t = (Timeline){ 0 };
    if (!unpack_open(&u, path, UNPACK_BYTES_MAX, err))
        return false;
    bool ok = chakra_read_bytes(t, info, u.bytes, u.n, path, rules, err);
    unpack_close(&u);
    return ok;
}
