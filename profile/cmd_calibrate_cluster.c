/*
 * cmd_calibrate_cluster.c - logs of nccl-tests into a cluster's "collectives".
 *
 * What is fitted are the very numbers that the simulator reads (scenarios/README.md,
 * cluster.collectives), and what predicts is the simulator's own cost of a collective
 * (sim/network.h) on the cluster of the file, with as many nodes as the logs have:
 *
 *     file --machine_read--> Machine <--numbers-- calibrate_fit
 *                               |                      ^
 *                               +--collective_cost--> times of all rows
 *
 * So a number means after the fit what it means in a simulation.  Rows are the
 * out-of-place half of each line; sends and receives are their slowest pair.
 */
#include "profile/cmd_calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_out.h"
#include "profile/calibrate.h"
#include "profile/splice.h"
#include "sim/network.h"
#include "sim/scenario.h"
#include "traces/nccl_tests.h"

enum { SIZE_FOLDS = 5, NUMBERS_MAX = CALIBRATE_NUMBERS_MAX };
/* A latency is measured by rows of which it is a good part: bandwidths scatter by a few %. */
static const double fraction_answers = 0.05, time_answers = 0.1;

/* Ranks that measured together. */
typedef struct Shape {
    uint32_t ranks_n, nodes_n, gpus_n; /* gpus_n of each node */
    Graph g;
} Shape;

typedef struct Row {
    uint32_t shape, part; /* part: of Work.parts */
    OpKind kind;          /* OP_SEND: send and receive in a ring */
    uint64_t bytes;
} Row;

/* Rows that a line of the report stands for. */
typedef struct Part {
    const char *op;
    uint32_t shape;
    CalibrateLine line;
} Part;

/* A number's place in the machine and in the file. */
typedef struct Spot {
    const char *key; /* of "collectives" */
    double *fraction;
    int64_t *ns;    /* or */
    uint32_t index; /* protocol, or point of the curve */
} Spot;

typedef struct Work {
    const CalibrateOptions *o;
    Arena arena;
    NcclLog log;
    Machine m;
    Shape *shapes;
    uint32_t shapes_n, shapes_cap;
    Part *parts;
    uint32_t parts_n, parts_cap;
    Row *rows;
    double *measured_ns;
    bool *judged;                                       /* predicted, not fitted */
    uint32_t *log_of, *part_of, *size_fold, *judged_of; /* by row; judged_of: 1 where judged */
    uint32_t rows_n, logs_n;
    uint32_t skipped_op, skipped_other;
    uint32_t nodes_n; /* most of a log */
    bool own_notes;   /* collectives.notes is ours to write */
    Spot places[NUMBERS_MAX];
    CalibrateNumber numbers[NUMBERS_MAX];
    uint32_t numbers_n;
    double *was, *fitted, *left_out_size, *left_out_log;
} Work;

/* ---- rows ---- */

/* OP_KIND_N: the simulator has no such collective. */
static OpKind kind_of(const char *op)
{
    for (int k = OP_ALL_REDUCE; k <= OP_ALL_TO_ALL; k++)
        if (strcmp(op, op_kind_names[k]) == 0)
            return (OpKind)k;
    return strcmp(op, "send_recv") == 0 ? OP_SEND : OP_KIND_N;
}

static uint32_t shape_of(Work *w, const NcclTest *t)
{
    for (uint32_t i = 0; i < w->shapes_n; i++)
        if (w->shapes[i].ranks_n == t->ranks_n && w->shapes[i].nodes_n == t->nodes_n)
            return i;
    GROW(w->shapes, w->shapes_n, w->shapes_cap);
    w->shapes[w->shapes_n] =
        (Shape){ .ranks_n = t->ranks_n, .nodes_n = t->nodes_n, .gpus_n = t->gpus_n };
    return w->shapes_n++;
}

static uint32_t part_of(Work *w, const char *op, uint32_t shape)
{
    for (uint32_t i = 0; i < w->parts_n; i++)
        if (w->parts[i].shape == shape && strcmp(w->parts[i].op, op) == 0)
            return i;
    GROW(w->parts, w->parts_n, w->parts_cap);
    w->parts[w->parts_n] = (Part){ .op = op, .shape = shape };
    return w->parts_n++;
}

static void take_row(Work *w, const NcclRow *r, uint32_t log, uint32_t nth)
{
    const NcclTest *t = &w->log.tests[r->test];
    OpKind kind = kind_of(t->op);
    if (kind == OP_KIND_N) {
        w->skipped_op++;
        return;
    }
    if (t->ranks_n < 2 || t->ranks_n != t->nodes_n * t->gpus_n || r->cpu_time ||
        !(r->time_us > 0) || r->size_bytes == 0) {
        w->skipped_other++;
        return;
    }
    uint32_t i = w->rows_n++, shape = shape_of(w, t), part = part_of(w, t->op, shape);
    w->rows[i] = (Row){ shape, part, kind, r->size_bytes };
    w->measured_ns[i] = r->time_us * 1e3;
    w->log_of[i] = log;
    w->part_of[i] = part;
    w->size_fold[i] = nth % SIZE_FOLDS;
    w->nodes_n = t->nodes_n > w->nodes_n ? t->nodes_n : w->nodes_n;
}

static void take_rows(Work *w)
{
    uint32_t n = w->log.rows_n, log = 0, nth = 0;
    w->rows = PUSH_ARRAY(&w->arena, Row, n);
    w->measured_ns = PUSH_ARRAY(&w->arena, double, n);
    w->judged = PUSH_ARRAY(&w->arena, bool, n);
    w->log_of = PUSH_ARRAY(&w->arena, uint32_t, n);
    w->part_of = PUSH_ARRAY(&w->arena, uint32_t, n);
    w->size_fold = PUSH_ARRAY(&w->arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) {
        const NcclRow *r = &w->log.rows[i];
        bool new_test = i == 0 || r->test != r[-1].test;
        if (new_test && i > 0 && w->log.tests[r->test].file != w->log.tests[r[-1].test].file)
            log++;
        nth = new_test ? 0 : nth;
        if (!r->in_place)
            take_row(w, r, log, nth++);
    }
    w->logs_n = log + 1;
}

/*
 * Rings, trees and NVLS say what the numbers are.  A send fills fewer channels than a ring does,
 * and an all-to-all of several GPUs a node is not simulated as the pairs that it is: fitting them
 * too would spoil the numbers for all others.  They count where the logs have nothing else.
 */
static void judge(Work *w)
{
    uint32_t judged_n = 0;
    for (uint32_t i = 0; i < w->rows_n; i++) {
        const Shape *s = &w->shapes[w->rows[i].shape];
        bool across = s->nodes_n > 1 && s->gpus_n > 1;
        w->judged[i] =
            w->rows[i].kind == OP_SEND || (w->rows[i].kind == OP_ALL_TO_ALL && across);
        judged_n += w->judged[i];
    }
    w->judged_of = PUSH_ARRAY(&w->arena, uint32_t, w->rows_n);
    for (uint32_t i = 0; i < w->rows_n; i++) {
        w->judged[i] = w->judged[i] && judged_n < w->rows_n;
        w->judged_of[i] = w->judged[i];
    }
}

static void fit_lines(Work *w)
{
    double *x = PUSH_ARRAY(&w->arena, double, w->rows_n);
    double *ns = PUSH_ARRAY(&w->arena, double, w->rows_n);
    for (uint32_t p = 0; p < w->parts_n; p++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < w->rows_n; i++)
            if (w->part_of[i] == p) {
                x[n] = (double)w->rows[i].bytes;
                ns[n++] = w->measured_ns[i];
            }
        w->parts[p].line = calibrate_line(x, ns, n);
    }
}

/* ---- the machine ---- */

/* One group: the first gpus_n GPUs of the first nodes_n nodes. */
static void make_graph(Shape *s, uint32_t gpus_per_node)
{
    Graph *g = &s->g;
    uint32_t world = s->nodes_n * gpus_per_node;
    g->world_n = world;
    g->role_stride = world;
    g->role_extent = 1;
    g->host_group = NONE_U32;
    g->role_of = mem_zero(1, sizeof *g->role_of);
    g->replica = (GroupDim){ 1, 1, 1, 1 };
    graph_role(g, "test", 0);
    GroupDim dims[2] = { { 1, gpus_per_node, 1, s->gpus_n },
                         { gpus_per_node, s->nodes_n, 1, s->nodes_n } };
    graph_group(g, "all", dims, 2);
    graph_seal(g);
}

static void look_at_notes(Work *w, JsonNode root)
{
    JsonNode notes = json_member(json_member(root, "collectives"), "notes");
    w->own_notes = !notes.item || json_member(notes, "calibrated").item;
}

/* The cluster of a text, made large enough for the logs. */
static bool read_machine(Work *w, const char *text, Machine *m, Err *err)
{
    JsonDoc *doc = json_parse(text, strlen(text), w->o->into, err);
    bool ok = doc && machine_read(m, json_root(doc), share_dir(), err);
    if (ok)
        look_at_notes(w, json_root(doc));
    if (ok && m->nodes_n < w->nodes_n) {
        char nodes[16];
        snprintf(nodes, sizeof nodes, "%u", (unsigned)w->nodes_n);
        machine_free(m);
        ok = json_set(doc, "nodes", nodes, err) &&
             machine_read(m, json_root(doc), share_dir(), err);
    }
    json_close(doc);
    return ok;
}

static bool check_machine(const Work *w, Err *err)
{
    const Machine *m = &w->m;
    if (m->types_n > 1)
        return err_set(err, "%s: node_types: logs calibrate clusters of equal nodes only",
                       w->o->into);
    if (m->ideal_collectives)
        return err_set(err, "%s: collectives.ideal is true: there is nothing to calibrate",
                       w->o->into);
    for (uint32_t i = 0; i < w->shapes_n; i++)
        if (w->shapes[i].gpus_n > m->types[0].gpus_n)
            return err_set(err, "the logs have %u GPUs on a node, the cluster '%s' has %u",
                           (unsigned)w->shapes[i].gpus_n, w->o->into,
                           (unsigned)m->types[0].gpus_n);
    return true;
}

static double pair_ns(const Machine *m, const Classes *c, uint32_t from, uint32_t to,
                      uint64_t bytes)
{
    Use uses[RES_RANK_N + 2];
    uint32_t n = classes_p2p_uses(c, classes_of_rank(c, from), to, uses);
    bool same = machine_place(m, from).node == machine_place(m, to).node;
    return (double)p2p_cost(m, &m->types[0], same, &c->groups[0], &(Demand){ uses, n },
                            c->resources, bytes, 1)
        .solo_ns;
}

/* sendrecv_perf: each rank sends to the next; the slowest pair is done last. */
static double ring_of_pairs_ns(const Work *w, const Machine *m, const Classes *c,
                               const Row *row)
{
    const Shape *s = &w->shapes[row->shape];
    double ns = 0;
    if (s->gpus_n > 1)
        ns = pair_ns(m, c, 0, 1, row->bytes);
    if (s->nodes_n > 1)
        ns = fmax(ns, pair_ns(m, c, s->gpus_n - 1, m->types[0].gpus_n, row->bytes));
    return ns;
}

/* Of all rows, on m as it is.  NAN where the machine cannot carry them. */
static void predict_rows(const Work *w, const Machine *m, double *ns)
{
    for (uint32_t s = 0; s < w->shapes_n; s++) {
        Classes c = { 0 };
        Err ignored = { 0 };
        bool ok = classes_make(&c, &w->shapes[s].g, m, true, &ignored);
        for (uint32_t i = 0; i < w->rows_n; i++) {
            const Row *r = &w->rows[i];
            if (r->shape != s)
                continue;
            ns[i] = !ok                  ? NAN
                    : r->kind == OP_SEND ? ring_of_pairs_ns(w, m, &c, r)
                                         : (double)collective_cost(m, &c.groups[0], c.resources,
                                                                   r->kind, r->bytes, 1)
                                               .solo_ns;
        }
        classes_free(&c);
    }
}

static void predict(void *user, const double *value, double *ns)
{
    Work *w = user;
    for (uint32_t i = 0; i < w->numbers_n; i++) {
        if (w->places[i].fraction)
            *w->places[i].fraction = value[i];
        else
            *w->places[i].ns = llround(value[i]);
    }
    memcpy(w->m.p2p_base_ns, w->m.collective_base_ns, sizeof w->m.p2p_base_ns);
    predict_rows(w, &w->m, ns);
}

/* ---- numbers ---- */

static void add_fraction(Work *w, const char *key, double *x, uint32_t index)
{
    w->places[w->numbers_n] = (Spot){ .key = key, .fraction = x, .index = index };
    w->numbers[w->numbers_n++] =
        (CalibrateNumber){ .value = *x, .min = 1e-3, .max = 1, .answer_min = fraction_answers };
}

static void add_time(Work *w, const char *key, int64_t *ns, uint32_t index)
{
    w->places[w->numbers_n] = (Spot){ .key = key, .ns = ns, .index = index };
    w->numbers[w->numbers_n++] = (CalibrateNumber){
        .value = (double)max_i64(*ns, 1), .min = 1, .max = 1e9, .answer_min = time_answers
    };
}

static void add_times(Work *w, const char *key, int64_t ns[PROTOCOL_N])
{
    for (uint32_t p = 0; p < PROTOCOL_N; p++)
        add_time(w, key, &ns[p], p);
}

/* A point of the curve where `ranks` were measured, as the curve has it until now. */
static void add_point(RankCurve *c, uint32_t ranks)
{
    double value = rank_curve_at(c, ranks);
    uint32_t i = 0;
    while (i < c->n && c->ranks[i] < ranks)
        i++;
    if ((i < c->n && c->ranks[i] == ranks) || c->n == RANK_CURVE_MAX)
        return;
    memmove(&c->ranks[i + 1], &c->ranks[i], (c->n - i) * sizeof c->ranks[0]);
    memmove(&c->value[i + 1], &c->value[i], (c->n - i) * sizeof c->value[0]);
    c->ranks[i] = ranks;
    c->value[i] = value;
    c->n++;
}

static void list_numbers(Work *w)
{
    Machine *m = &w->m;
    IntraNode *in = &m->types[0].intra;
    for (uint32_t i = 0; i < w->shapes_n; i++)
        if (w->shapes[i].gpus_n > 1)
            add_point(&in->efficiency, w->shapes[i].ranks_n);
    for (uint32_t i = 0; i < in->efficiency.n; i++)
        add_fraction(w, "intra_efficiency", &in->efficiency.value[i], i);
    add_fraction(w, "inter_efficiency", &m->inter.efficiency, 0);
    add_fraction(w, "nvls_efficiency", &in->nvls_efficiency, 0);
    add_time(w, "nvls_us", &in->nvls_ns, 0);
    add_times(w, "base_latency_us", m->collective_base_ns);
    add_times(w, "tree_base_latency_us", m->tree_base_ns);
    add_times(w, "intra_hop_us", in->hop_ns);
    add_times(w, "intra_tree_hop_us", in->tree_hop_ns);
    add_times(w, "inter_hop_us", m->inter.hop_ns);
    add_times(w, "inter_tree_hop_us", m->inter.tree_hop_ns);
}

static bool any_fitted(const Work *w, const char *key)
{
    for (uint32_t i = 0; i < w->numbers_n; i++)
        if (w->numbers[i].fitted && (!key || strcmp(w->places[i].key, key) == 0))
            return true;
    return false;
}

static bool fit(Work *w, Err *err)
{
    CalibrateNumber start[NUMBERS_MAX];
    double value[NUMBERS_MAX];
    CalibrateRows rows = { w->measured_ns, w->judged, w->rows_n, predict, w };
    w->was = PUSH_ARRAY(&w->arena, double, w->rows_n);
    w->left_out_size = PUSH_ARRAY(&w->arena, double, w->rows_n);
    w->left_out_log = PUSH_ARRAY(&w->arena, double, w->rows_n);
    predict_rows(w, &w->m, w->was);
    for (uint32_t i = 0; i < w->rows_n; i++)
        if (!isfinite(w->was[i]))
            return err_set(err, "the cluster '%s' cannot carry a collective of %u nodes",
                           w->o->into, (unsigned)w->shapes[w->rows[i].shape].nodes_n);
    memcpy(start, w->numbers, sizeof start);
    calibrate_left_out(start, w->numbers_n, &rows, w->size_fold, SIZE_FOLDS, w->left_out_size);
    calibrate_left_out(start, w->numbers_n, &rows, w->log_of, w->logs_n, w->left_out_log);
    calibrate_fit(w->numbers, w->numbers_n, &rows, NULL, 0);
    for (uint32_t i = 0; i < w->numbers_n; i++)
        value[i] = w->numbers[i].value;
    w->fitted = PUSH_ARRAY(&w->arena, double, w->rows_n);
    predict(w, value, w->fitted);
    if (any_fitted(w, NULL))
        return true;
    return err_set(err,
                   "%u rows are too few to calibrate '%s': no number answers to %d of them",
                   (unsigned)w->rows_n, w->o->into, CALIBRATE_ROWS_MIN);
}

/* ---- the file ---- */

/* Value of a number as the file has it: fractions as they are, times in us. */
static double shown(const Work *w, uint32_t i, double value)
{
    return w->places[i].fraction ? value : value / 1e3;
}

/* A curve, {"LL", "LL128", "Simple"}, or a number, from the first number of the key on. */
static const char *value_text(Work *w, uint32_t first)
{
    const char *key = w->places[first].key, *text = "";
    const RankCurve *c = &w->m.types[0].intra.efficiency;
    bool curve = w->places[first].fraction == &c->value[0];
    uint32_t n = 0;
    for (uint32_t i = first; i < w->numbers_n && strcmp(w->places[i].key, key) == 0; i++, n++) {
        double x = shown(w, i, w->numbers[i].value);
        const char *comma = n ? ", " : "";
        if (curve)
            text = arena_printf(&w->arena, "%s%s[%u, %.5g]", text, comma, (unsigned)c->ranks[n],
                                x);
        else if (w->places[i].ns && strcmp(key, "nvls_us") != 0)
            text =
                arena_printf(&w->arena, "%s%s\"%s\": %.6g", text, comma, protocol_names[n], x);
        else
            text = arena_printf(&w->arena, "%.5g", x);
    }
    return curve             ? arena_printf(&w->arena, "[%s]", text)
           : n == PROTOCOL_N ? arena_printf(&w->arena, "{%s}", text)
                             : text;
}

/* "a.log, b.log (nccl-tests 2.17.8, NCCL 2.29.2, NVIDIA H100), 2026-01-31" */
static const char *sources(Work *w)
{
    const char *text = "", *last = "", *stamp = "";
    for (uint32_t i = 0; i < w->o->inputs_n; i++)
        text = arena_printf(&w->arena, "%s%s%s", text, i ? ", " : "",
                            calibrate_base_name(w->o->inputs[i]));
    const NcclTest *t = &w->log.tests[0];
    if (*t->version)
        last = arena_printf(&w->arena, "%snccl-tests %s", last, t->version);
    if (*t->library)
        last = arena_printf(&w->arena, "%s%sNCCL %s", last, *last ? ", " : "", t->library);
    if (*t->gpu)
        last = arena_printf(&w->arena, "%s%s%s", last, *last ? ", " : "", t->gpu);
    for (uint32_t i = 0; i < w->log.rows_n && !*stamp; i++)
        stamp = w->log.rows[i].stamp;
    return arena_printf(&w->arena, "%s%s%s%s%s%.10s", text, *last ? " (" : "", last,
                        *last ? ")" : "", *stamp ? ", " : "", stamp);
}

static const char *percent(Arena *arena, double x)
{
    return isfinite(x) ? arena_printf(arena, "%.1f", x) : "-";
}

static char *splice_provenance(Work *w, char *text)
{
    CalibrateErrors all =
        calibrate_errors(w->measured_ns, w->fitted, w->rows_n, w->judged_of, 0);
    CalibrateErrors size =
        calibrate_errors(w->measured_ns, w->left_out_size, w->rows_n, w->judged_of, 0);
    CalibrateErrors log =
        calibrate_errors(w->measured_ns, w->left_out_log, w->rows_n, w->judged_of, 0);
    const char *value = arena_printf(
        &w->arena,
        "lockstep calibrate on %s: %u rows, median error %s %%, of left-out sizes %s %%, of "
        "left-out logs %s %%",
        sources(w), (unsigned)all.n, percent(&w->arena, all.median_pct),
        percent(&w->arena, size.median_pct), percent(&w->arena, log.median_pct));
    return calibrate_provenance(text, "collectives", value);
}

/* What each collective's rows say by themselves, for people: the simulator does not read it. */
static const char *notes_text(Work *w)
{
    const char *text = "";
    for (uint32_t p = 0; p < w->parts_n; p++) {
        const Part *part = &w->parts[p];
        const Shape *s = &w->shapes[part->shape];
        CalibrateErrors e =
            calibrate_errors(w->measured_ns, w->fitted, w->rows_n, w->part_of, p);
        text = arena_printf(
            &w->arena,
            "%s%s\n      {\"op\": \"%s\", \"ranks\": %u, \"nodes\": %u, "
            "\"rows\": %u, \"latency_us\": %.5g, \"GBps\": %.5g, "
            "\"line_error_pct\": %.3g, \"error_pct\": %.3g}",
            text, p ? "," : "", part->op, (unsigned)s->ranks_n, (unsigned)s->nodes_n,
            (unsigned)part->line.rows_n, part->line.latency_ns / 1e3, part->line.bytes_per_ns,
            isfinite(part->line.median_pct) ? part->line.median_pct : 0, e.median_pct);
    }
    return arena_printf(&w->arena, "{\"calibrated\": [%s\n    ]}", text);
}

static char *splice_all(Work *w, char *text)
{
    for (uint32_t i = 0; i < w->numbers_n; i++) {
        const char *key = w->places[i].key;
        bool first = i == 0 || strcmp(w->places[i - 1].key, key) != 0;
        if (first && any_fitted(w, key))
            text = json_splice(text, "collectives", key, value_text(w, i));
    }
    if (w->own_notes)
        text = json_splice(text, "collectives", "notes", notes_text(w));
    return splice_provenance(w, text);
}

/* ---- what was done ---- */

static void print_numbers(const Work *w, const CalibrateNumber *was)
{
    printf("%-28s %12s %12s %6s\n", "collectives.", "was", "is now", "rows");
    for (uint32_t i = 0; i < w->numbers_n; i++) {
        const Spot *p = &w->places[i];
        char name[64];
        if (!w->numbers[i].fitted)
            continue;
        if (strcmp(p->key, "intra_efficiency") == 0)
            snprintf(name, sizeof name, "%s, %u ranks", p->key,
                     (unsigned)w->m.types[0].intra.efficiency.ranks[p->index]);
        else if (p->ns && strcmp(p->key, "nvls_us") != 0)
            snprintf(name, sizeof name, "%s.%s", p->key, protocol_names[p->index]);
        else
            snprintf(name, sizeof name, "%s", p->key);
        printf("%-28s %12.5g %12.5g %6u\n", name, shown(w, i, was[i].value),
               shown(w, i, w->numbers[i].value), (unsigned)w->numbers[i].rows_n);
    }
}

static void print_errors(const Work *w, const char *name, const uint32_t *part, uint32_t of)
{
    const double *const all[] = { w->was, w->fitted, w->left_out_size, w->left_out_log };
    CalibrateErrors e = calibrate_errors(w->measured_ns, w->was, w->rows_n, part, of);
    if (e.n == 0)
        return;
    printf("%-42.42s %4u", name, (unsigned)e.n);
    for (size_t i = 0; i < ARRAY_N(all); i++) {
        e = calibrate_errors(w->measured_ns, all[i], w->rows_n, part, of);
        if (e.n > 0)
            printf(" %6.1f %5.1f", e.median_pct, e.p90_pct);
        else
            printf(" %6s %5s", "-", "-");
    }
    printf("\n");
}

static void print_report(Work *w, const CalibrateNumber *was)
{
    printf("%s %s on %s\n\n", w->o->dry_run ? "would calibrate" : "calibrated", w->o->into,
           sources(w));
    print_numbers(w, was);
    printf("\n%-47s %12s %12s %12s %12s\n%-42s %4s", "error in %", "as it was", "fitted",
           "left-out size", "left-out log", "", "rows");
    for (int i = 0; i < 4; i++)
        printf(" %6s %5s", "median", "p90");
    printf("\n");
    for (uint32_t i = 0; i < w->logs_n; i++)
        print_errors(w, calibrate_base_name(w->o->inputs[i]), w->log_of, i);
    for (uint32_t p = 0; p < w->parts_n; p++) {
        const Shape *s = &w->shapes[w->parts[p].shape];
        print_errors(w,
                     arena_printf(&w->arena, "%s, %u ranks, %u node%s", w->parts[p].op,
                                  (unsigned)s->ranks_n, (unsigned)s->nodes_n,
                                  s->nodes_n > 1 ? "s" : ""),
                     w->part_of, p);
    }
    print_errors(w, "all that were fitted", w->judged_of, 0);
    print_errors(w, "not fitted: sends, all_to_all across", w->judged_of, 1);
    if (w->skipped_op + w->skipped_other > 0)
        printf("\nnot used: %u rows of collectives that are not simulated, %u of uneven nodes, "
               "one rank or no time\n",
               (unsigned)w->skipped_op, (unsigned)w->skipped_other);
}

static void json_errors(JsonOut *j, const char *key, CalibrateErrors e)
{
    json_put_open(j, key, '{');
    json_put_number(j, "median_pct", e.median_pct);
    json_put_number(j, "p90_pct", e.p90_pct);
    json_out_close(j, '}');
}

static void json_part(const Work *w, JsonOut *j, const char *kind, const char *name,
                      const uint32_t *part, uint32_t of)
{
    CalibrateErrors e = calibrate_errors(w->measured_ns, w->fitted, w->rows_n, part, of);
    json_out_open(j, '{');
    json_put_text(j, kind, name);
    json_put_int(j, "rows", e.n);
    json_errors(j, "before", calibrate_errors(w->measured_ns, w->was, w->rows_n, part, of));
    json_errors(j, "fitted", e);
    json_errors(j, "left_out_sizes",
                calibrate_errors(w->measured_ns, w->left_out_size, w->rows_n, part, of));
    json_errors(j, "left_out_logs",
                calibrate_errors(w->measured_ns, w->left_out_log, w->rows_n, part, of));
    json_out_close(j, '}');
}

static bool print_json(const Work *w, Err *err)
{
    JsonOut j = json_out_file(stdout, 2);
    json_out_open(&j, '{');
    json_put_text(&j, "file", w->o->into);
    json_put_bool(&j, "written", !w->o->dry_run);
    json_put_int(&j, "rows", w->rows_n);
    json_put_int(&j, "rows_not_used", w->skipped_op + w->skipped_other);
    json_put_open(&j, "logs", '[');
    for (uint32_t i = 0; i < w->logs_n; i++)
        json_part(w, &j, "log", calibrate_base_name(w->o->inputs[i]), w->log_of, i);
    json_out_close(&j, ']');
    json_out_key(&j, "all");
    json_part(w, &j, "log", "all", NULL, 0);
    json_out_close(&j, '}');
    return json_out_end(&j, err);
}

/* ---- the whole ---- */

static bool read_logs(Work *w, Err *err)
{
    for (uint32_t i = 0; i < w->o->inputs_n; i++)
        if (!nccl_log_read(&w->log, w->o->inputs[i], err))
            return false;
    take_rows(w);
    judge(w);
    if (w->rows_n > 0)
        return true;
    return err_set(err,
                   "the logs hold no row of a simulated collective: %u of others, %u of uneven "
                   "nodes, one rank or no time",
                   (unsigned)w->skipped_op, (unsigned)w->skipped_other);
}

/* The file as it will be must read back, and predict what the fit promised. */
static bool check_written(Work *w, const char *text, Err *err)
{
    Machine m;
    if (!read_machine(w, text, &m, err))
        return err_wrap(err, "calibrated");
    predict_rows(w, &m, w->fitted);
    machine_free(&m);
    return true;
}

static bool calibrate(Work *w, char **text, Err *err)
{
    if (!read_logs(w, err) || !(*text = calibrate_load(w->o->into, err)))
        return false;
    if (!read_machine(w, *text, &w->m, err))
        return err_wrap(err, "logs of nccl-tests calibrate a cluster");
    if (!check_machine(w, err))
        return false;
    for (uint32_t i = 0; i < w->shapes_n; i++)
        make_graph(&w->shapes[i], w->m.types[0].gpus_n);
    fit_lines(w);
    list_numbers(w);
    CalibrateNumber was[NUMBERS_MAX];
    memcpy(was, w->numbers, sizeof was);
    if (!fit(w, err))
        return false;
    *text = splice_all(w, *text);
    if (!check_written(w, *text, err))
        return false;
    *text = splice_all(w, *text); /* once more, with the errors of what is written */
    char *out = *text;
    *text = NULL;
    if (!calibrate_store(w->o, out, err))
        return false;
    if (w->o->json)
        return print_json(w, err);
    print_report(w, was);
    return true;
}

bool calibrate_cluster(const CalibrateOptions *o, Err *err)
{
    Work *w = mem_zero(1, sizeof *w);
    w->o = o;
    char *text = NULL;
    bool ok = calibrate(w, &text, err);
    free(text);
    for (uint32_t i = 0; i < w->shapes_n; i++)
        graph_free(&w->shapes[i].g);
    free(w->shapes);
    free(w->parts);
    machine_free(&w->m);
    nccl_log_free(&w->log);
    arena_free(&w->arena);
    free(w);
    return ok;
}
