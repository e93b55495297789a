/*
 * machine_measured.c - what was measured of a cluster's collectives, looked up.
 *
 * Entries are ascending by (op, nodes, ranks), so that neighbours in ranks or in nodes
 * stand beside each other; there are few, and they are looked through from the first.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/machine_parts.h"

enum { MEASURED_MAX = 512, POINTS_MAX = 256 };

/* The words of "op"; a send is nccl-tests' sendrecv. */
static const char *const op_words[] = { "all_reduce", "all_gather", "reduce_scatter",
                                        "broadcast",  "reduce",     "all_to_all",
                                        "send_recv" };
static const OpKind op_of_word[] = { OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER,
                                     OP_BROADCAST,  OP_REDUCE,     OP_ALL_TO_ALL,
                                     OP_SEND };

const char *measured_op_word(OpKind op)
{
    for (size_t i = 0; i < ARRAY_N(op_words); i++)
        if (op_of_word[i] == op)
            return op_words[i];
    return op_kind_names[op];
}

OpKind measured_op_of(const char *word)
{
    for (size_t i = 0; i < ARRAY_N(op_words); i++)
        if (strcmp(word, op_words[i]) == 0)
            return op_of_word[i];
    return OP_KIND_N;
}

/* ---- reading ---- */

static bool read_points(const MachineReader *r, MeasuredCollective *e, JsonNode list)
{
    size_t n = json_items_n(list), i = 0;
    if (json_type(list) != JSON_ARRAY || n == 0 || n > POINTS_MAX)
        return json_fail(list, r->err, "a list of 1 to %d [bytes, us] is expected", POINTS_MAX);
    e->points = PUSH_ARRAY(r->arena, MeasuredPoint, n);
    for (JsonNode point = json_first(list); point.item; point = json_next(point, list, ++i)) {
        double x[2];
        if (!json_numbers(point, x, 2, r->err))
            return false;
        bool ascends = i == 0 || x[0] > (double)e->points[i - 1].bytes;
        if (!(x[0] >= 1 && x[0] <= 1e15 && ascends && x[1] > 0 && x[1] <= 1e12))
            return json_fail(point, r->err,
                             "bytes ascend, 1 to 1e15, with a time above 0 and up to 1e12 us");
        e->points[i] = (MeasuredPoint){ (uint64_t)x[0], x[1] * 1e3 };
    }
    e->points_n = (uint32_t)n;
    return true;
}

static bool read_entry(const MachineReader *r, MeasuredCollective *e, JsonNode node)
{
    JsonObj o = json_begin(node, r->err);
    int word = json_word(&o, "op", op_words, ARRAY_N(op_words), -1);
    e->ranks = (uint32_t)json_count(&o, "ranks", 2, MACHINE_GPUS_MAX, JSON_REQUIRED);
    e->nodes = (uint32_t)json_count(&o, "nodes", 1, MACHINE_NODES_MAX, JSON_REQUIRED);
    e->latency_ns = 1e3 * json_number(&o, "latency_us", 0, 1e9, JSON_REQUIRED);
    e->bytes_per_ns = json_number(&o, "GBps", 1e-9, 1e9, JSON_REQUIRED);
    JsonNode points = json_get(&o, "sizes");
    if (o.ok && points.item)
        o.ok = read_points(r, e, points);
    if (o.ok && e->ranks % e->nodes)
        o.ok = json_fail(node, r->err, "%u ranks do not lie evenly on %u nodes",
                         (unsigned)e->ranks, (unsigned)e->nodes);
    skip_key(&o, "fit"); /* how well the line fits, for people */
    if (o.ok)
        e->op = op_of_word[word];
    return json_end(&o);
}

static int compare_entries(const void *a, const void *b)
{
    const MeasuredCollective *x = a, *y = b;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    if (x->nodes != y->nodes)
        return x->nodes < y->nodes ? -1 : 1;
    return x->ranks < y->ranks ? -1 : x->ranks > y->ranks;
}

void take_measured(const MachineReader *r, JsonObj *o, MeasuredCollective **list, uint32_t *n)
{
    JsonNode node = json_get(o, "measured");
    if (!node.item || !o->ok)
        return;
    size_t items_n = json_items_n(node), i = 0;
    if (json_type(node) != JSON_ARRAY || items_n > MEASURED_MAX) {
        o->ok = json_fail(node, r->err, "a list of up to %d objects is expected", MEASURED_MAX);
        return;
    }
    *n = 0;
    *list = PUSH_ARRAY(r->arena, MeasuredCollective, items_n + 1);
    for (JsonNode e = json_first(node); e.item && o->ok; e = json_next(e, node, ++i))
        o->ok = read_entry(r, &(*list)[(*n)++], e);
    if (!o->ok)
        return;
    qsort(*list, *n, sizeof **list, compare_entries);
    for (uint32_t k = 1; k < *n; k++)
        if (compare_entries(&(*list)[k - 1], &(*list)[k]) == 0)
            o->ok = json_fail(node, r->err, "%u ranks on %u nodes stand here twice for one op",
                              (unsigned)(*list)[k].ranks, (unsigned)(*list)[k].nodes);
}

/* ---- looking up ---- */

static double line_ns(const MeasuredCollective *e, uint64_t bytes)
{
    return e->latency_ns + (double)bytes / e->bytes_per_ns;
}

/* At x between (x0, y0) and (x1, y1), straight in logarithms. */
static double between(double x, double x0, double y0, double x1, double y1)
{
    return y0 * pow(y1 / y0, log(x / x0) / log(x1 / x0));
}

double measured_entry_ns(const MeasuredCollective *e, uint64_t bytes)
{
    const MeasuredPoint *p = e->points;
    uint32_t i = 0;
    if (e->points_n == 0)
        return line_ns(e, bytes);
    while (i < e->points_n && p[i].bytes < bytes)
        i++;
    const MeasuredPoint *end = i == 0 ? &p[0] : &p[e->points_n - 1];
    if (i == 0 || i == e->points_n)
        return line_ns(e, bytes) * end->ns / line_ns(e, end->bytes);
    return between((double)bytes, (double)p[i - 1].bytes, p[i - 1].ns, (double)p[i].bytes,
                   p[i].ns);
}

static double entry_ns(const MeasuredCollective *e, uint64_t bytes, double *latency_ns)
{
    double ns = measured_entry_ns(e, bytes);
    *latency_ns = fmin(ns, e->latency_ns);
    return ns;
}

/* The entry that fits a send: of as many nodes, one or more; of those, of fewest ranks. */
static const MeasuredCollective *send_entry(const Machine *m, uint32_t nodes)
{
    const MeasuredCollective *best = NULL;
    for (uint32_t i = 0; i < m->measured_n; i++) {
        const MeasuredCollective *e = &m->measured[i];
        if (e->op == OP_SEND && (e->nodes > 1) == (nodes > 1) &&
            (!best || e->ranks < best->ranks))
            best = e;
    }
    return best;
}

/* The entries next to `ranks` below and above, of as many ranks on a node, or all on one. */
static void neighbours(const Machine *m, OpKind op, uint32_t ranks, uint32_t nodes,
                       const MeasuredCollective **below, const MeasuredCollective **above)
{
    *below = *above = NULL;
    for (uint32_t i = 0; i < m->measured_n; i++) {
        const MeasuredCollective *e = &m->measured[i];
        bool alike = nodes == 1 ? e->nodes == 1
                                : e->nodes > 1 &&
                                      (uint64_t)e->ranks * nodes == (uint64_t)ranks * e->nodes;
        if (e->op != op || !alike)
            continue;
        if (e->ranks <= ranks)
            *below = e;
        if (e->ranks >= ranks && !*above)
            *above = e;
    }
}

/* Of a send one entry, both times. */
static bool entries_of(const Machine *m, OpKind op, uint32_t ranks, uint32_t nodes,
                       const MeasuredCollective **below, const MeasuredCollective **above)
{
    if (op == OP_SEND)
        *below = *above = send_entry(m, nodes);
    else
        neighbours(m, op, ranks, nodes, below, above);
    return *below && *above;
}

double machine_measured_ns(const Machine *m, OpKind op, uint32_t ranks, uint32_t nodes,
                           uint64_t bytes, double *latency_ns)
{
    const MeasuredCollective *below, *above;
    *latency_ns = 0;
    if (m->measured_n == 0 || bytes == 0 || !entries_of(m, op, ranks, nodes, &below, &above))
        return NAN;
    double low_ns = entry_ns(below, bytes, latency_ns);
    if (below == above)
        return low_ns;
    double high_latency_ns, high_ns = entry_ns(above, bytes, &high_latency_ns);
    double part = log((double)ranks / below->ranks) / log((double)above->ranks / below->ranks);
    double ns = between(ranks, below->ranks, low_ns, above->ranks, high_ns);
    /* Straight lines lie above those in logarithms: no more than all of it is latency. */
    *latency_ns = fmin(*latency_ns + part * (high_latency_ns - *latency_ns), ns);
    return ns;
}

static uint64_t nearest_size(const MeasuredCollective *e, uint64_t bytes)
{
    if (e->points_n == 0)
        return bytes;
    return max_u64(e->points[0].bytes, min_u64(bytes, e->points[e->points_n - 1].bytes));
}

uint64_t machine_measured_size(const Machine *m, OpKind op, uint32_t ranks, uint32_t nodes,
                               uint64_t bytes)
{
    const MeasuredCollective *below, *above;
    if (m->measured_n == 0 || bytes == 0 || !entries_of(m, op, ranks, nodes, &below, &above))
        return bytes;
    return nearest_size(above, nearest_size(below, bytes));
}
