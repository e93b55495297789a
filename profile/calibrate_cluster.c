/*
 * calibrate_cluster.c - the numbers of a cluster fitted to rows, and its table of them.
 *
 * Sends have limits of their own and everything has its base latency in common, so that
 * all rows are fitted together; as the fit minimises absolute errors, some rows that no
 * number explains do not move it.
 */
#include "profile/calibrate_cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_MAX = 256 };
/* A latency is measured by rows of which it is a good part: bandwidths scatter by a few %. */
static const double fraction_answers = 0.05, time_answers = 0.1;

/* ---- rows ---- */

void cluster_fit_init(ClusterFit *f, const char *into, ClusterPredict *predict,
                      uint32_t rows_cap)
{
    *f = (ClusterFit){ .into = into, .predict = predict, .rows_cap = rows_cap };
    double **const numbers[] = { &f->measured_ns,   &f->was,          &f->model,
                                 &f->left_out_size, &f->left_out_log, &f->table_left_out };
    uint32_t **const words[] = { &f->log_of, &f->part_of, &f->size_fold };
    f->rows = PUSH_ARRAY(&f->arena, ClusterRow, rows_cap);
    for (size_t i = 0; i < ARRAY_N(numbers); i++)
        *numbers[i] = PUSH_ARRAY(&f->arena, double, rows_cap);
    for (size_t i = 0; i < ARRAY_N(words); i++)
        *words[i] = PUSH_ARRAY(&f->arena, uint32_t, rows_cap);
}

void cluster_fit_free(ClusterFit *f)
{
    free(f->shapes);
    free(f->parts);
    machine_free(&f->m);
    machine_free(&f->stands);
    arena_free(&f->arena);
    *f = (ClusterFit){ 0 };
}

static uint32_t shape_of(ClusterFit *f, ClusterShape shape)
{
    for (uint32_t i = 0; i < f->shapes_n; i++)
        if (f->shapes[i].ranks_n == shape.ranks_n && f->shapes[i].nodes_n == shape.nodes_n)
            return i;
    GROW(f->shapes, f->shapes_n, f->shapes_cap);
    f->shapes[f->shapes_n] = shape;
    return f->shapes_n++;
}

static uint32_t part_of(ClusterFit *f, const char *op, OpKind kind, uint32_t shape)
{
    for (uint32_t i = 0; i < f->parts_n; i++)
        if (f->parts[i].shape == shape && f->parts[i].kind == kind)
            return i;
    GROW(f->parts, f->parts_n, f->parts_cap);
    f->parts[f->parts_n] = (ClusterPart){ .op = op, .kind = kind, .shape = shape };
    return f->parts_n++;
}

void cluster_fit_add(ClusterFit *f, const char *op, OpKind kind, ClusterShape shape,
                     uint64_t bytes, double ns, uint32_t log, uint32_t nth)
{
    ASSERT(f->rows_n < f->rows_cap);
    uint32_t i = f->rows_n++, s = shape_of(f, shape), part = part_of(f, op, kind, s);
    f->rows[i] = (ClusterRow){ s, kind, bytes };
    f->measured_ns[i] = ns;
    f->log_of[i] = log;
    f->part_of[i] = part;
    f->size_fold[i] = nth % CLUSTER_SIZE_FOLDS;
    f->logs_n = log + 1 > f->logs_n ? log + 1 : f->logs_n;
}

/* ---- the table ---- */

static int compare_points(const void *pa, const void *pb)
{
    const MeasuredPoint *a = pa, *b = pb;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return (a->ns > b->ns) - (a->ns < b->ns);
}

/* Equal sizes become one, their median; what is more than a file may hold is thinned out. */
static uint32_t merge_points(MeasuredPoint *p, uint32_t n)
{
    uint32_t merged = 0;
    if (n > 0)
        qsort(p, n, sizeof *p, compare_points);
    for (uint32_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && p[end].bytes == p[first].bytes;)
            end++;
        uint32_t mid = first + (end - first) / 2;
        double ns = (end - first) % 2 ? p[mid].ns : (p[mid - 1].ns + p[mid].ns) / 2;
        p[merged++] = (MeasuredPoint){ p[first].bytes, ns };
    }
    if (merged <= POINTS_MAX)
        return merged;
    for (uint32_t i = 0; i < POINTS_MAX; i++)
        p[i] = p[(uint64_t)i * (merged - 1) / (POINTS_MAX - 1)];
    return POINTS_MAX;
}

/* What an earlier calibration measured of the same; NULL: nothing. */
static const MeasuredCollective *measured_before(const ClusterFit *f, uint32_t part)
{
    const ClusterShape *s = &f->shapes[f->parts[part].shape];
    for (uint32_t i = 0; i < f->stands.measured_n; i++) {
        const MeasuredCollective *e = &f->stands.measured[i];
        if (e->op == f->parts[part].kind && e->ranks == s->ranks_n && e->nodes == s->nodes_n)
            return e;
    }
    return NULL;
}

/* Is a size smaller or larger than all rows of a part?  Between them the new rows count alone: of
 * a machine that has changed old ones would make a saw of them. */
static bool is_beyond(const ClusterFit *f, uint32_t part, uint64_t bytes)
{
    bool below = true, above = true;
    for (uint32_t i = 0; i < f->rows_n; i++)
        if (f->part_of[i] == part) {
            below = below && bytes < f->rows[i].bytes;
            above = above && bytes > f->rows[i].bytes;
        }
    return below || above;
}

/* Of the rows of a part, but those of fold `without`, and of what was measured before beyond them;
 * returns how many. */
static uint32_t take_points(MeasuredPoint *point, const ClusterFit *f, uint32_t part,
                            uint32_t without, const MeasuredCollective *before)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->rows_n; i++)
        if (f->part_of[i] == part && f->size_fold[i] != without)
            point[n++] = (MeasuredPoint){ f->rows[i].bytes, f->measured_ns[i] };
    for (uint32_t i = 0; before && n > 0 && i < before->points_n; i++)
        if (is_beyond(f, part, before->points[i].bytes))
            point[n++] = before->points[i];
    return n;
}

/* Without the rows of fold `without` (CLUSTER_SIZE_FOLDS: with all). */
static MeasuredCollective make_entry(ClusterFit *f, uint32_t part, uint32_t without,
                                     CalibrateLine *line)
{
    const ClusterShape *s = &f->shapes[f->parts[part].shape];
    const MeasuredCollective *before = measured_before(f, part);
    uint32_t cap = f->rows_n + (before ? before->points_n : 0);
    MeasuredCollective e = { .op = f->parts[part].kind,
                             .ranks = s->ranks_n,
                             .nodes = s->nodes_n,
                             .points = PUSH_ARRAY(&f->arena, MeasuredPoint, cap) };
    double *x = PUSH_ARRAY(&f->arena, double, cap), *ns = PUSH_ARRAY(&f->arena, double, cap);
    uint32_t n = take_points(e.points, f, part, without, before);
    for (uint32_t i = 0; i < n; i++) {
        x[i] = (double)e.points[i].bytes;
        ns[i] = e.points[i].ns;
    }
    *line = calibrate_line(x, ns, n);
    e.points_n = merge_points(e.points, n);
    e.latency_ns = line->latency_ns;
    e.bytes_per_ns = line->bytes_per_ns;
    if (e.bytes_per_ns <= 0 && n > 0) /* one size only: in proportion to it */
        e.bytes_per_ns = (double)e.points[0].bytes / e.points[0].ns;
    return e;
}

/* Beyond its sizes a table is no more than the model (sim/network.h). */
static bool is_within(const MeasuredCollective *e, uint64_t bytes)
{
    return e->points_n > 0 && bytes >= e->points[0].bytes &&
           bytes <= e->points[e->points_n - 1].bytes;
}

static void make_table(ClusterFit *f)
{
    for (uint32_t i = 0; i < f->rows_n; i++)
        f->table_left_out[i] = NAN;
    for (uint32_t p = 0; p < f->parts_n; p++) {
        f->parts[p].entry = make_entry(f, p, CLUSTER_SIZE_FOLDS, &f->parts[p].line);
        for (uint32_t fold = 0; fold < CLUSTER_SIZE_FOLDS; fold++) {
            ArenaMark mark = arena_mark(&f->arena);
            CalibrateLine line;
            MeasuredCollective e = make_entry(f, p, fold, &line);
            for (uint32_t i = 0; i < f->rows_n; i++)
                if (f->part_of[i] == p && f->size_fold[i] == fold &&
                    is_within(&e, f->rows[i].bytes))
                    f->table_left_out[i] = measured_entry_ns(&e, f->rows[i].bytes);
            arena_reset(&f->arena, mark);
        }
    }
}

/* ---- numbers ---- */

static void add_number(ClusterFit *f, const char *key, double *x, uint32_t index, double max)
{
    if (!(*x > 0))
        return;
    f->places[f->numbers_n] = (ClusterSpot){ .key = key, .number = x, .index = index };
    f->start[f->numbers_n++] = (CalibrateNumber){
        .value = *x, .min = 1e-3, .max = max, .answer_min = fraction_answers
    };
}

static void add_time(ClusterFit *f, const char *key, int64_t *ns, uint32_t index)
{
    f->places[f->numbers_n] = (ClusterSpot){ .key = key, .ns = ns, .index = index };
    f->start[f->numbers_n++] = (CalibrateNumber){
        .value = (double)max_i64(*ns, 1), .min = 1, .max = 1e9, .answer_min = time_answers
    };
}

static void add_times(ClusterFit *f, const char *key, int64_t ns[PROTOCOL_N])
{
    for (uint32_t p = 0; p < PROTOCOL_N; p++) {
        add_time(f, key, &ns[p], p);
        f->places[f->numbers_n - 1].by_protocol = true;
    }
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

/* Those of the shapes first: what an earlier calibration has added then moves none of them. */
static void add_points(const ClusterFit *f, IntraNode *in, const IntraNode *also)
{
    for (uint32_t i = 0; i < f->shapes_n; i++) {
        const ClusterShape *s = &f->shapes[i];
        if (s->gpus_n > 1)
            add_point(&in->efficiency, s->ranks_n);
        if (s->gpus_n > 1 && s->nodes_n == 1)
            add_point(&in->nvls_efficiency, s->ranks_n);
    }
    for (uint32_t i = 0; i < also->efficiency.n; i++)
        add_point(&in->efficiency, also->efficiency.ranks[i]);
    for (uint32_t i = 0; i < also->nvls_efficiency.n; i++)
        add_point(&in->nvls_efficiency, also->nvls_efficiency.ranks[i]);
}

static void add_curve(ClusterFit *f, const char *key, RankCurve *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        add_number(f, key, &c->value[i], i, 1);
        f->places[f->numbers_n - 1].curve = c;
    }
}

static void list_numbers(ClusterFit *f, Machine *m)
{
    IntraNode *in = &m->types[0].intra;
    f->numbers_n = 0;
    add_curve(f, "intra_efficiency", &in->efficiency);
    add_number(f, "inter_efficiency", &m->inter.efficiency, 0, 1);
    add_curve(f, "nvls_efficiency", &in->nvls_efficiency);
    add_number(f, "p2p_efficiency", &m->inter.p2p_efficiency, 0, 1);
    if (in->channels > 0)
        add_number(f, "intra_channel_GBps", &in->channel_bytes_per_ns, 0, 1e6);
    add_number(f, "inter_channel_GBps", &m->inter.channel_bytes_per_ns, 0, 1e6);
    add_time(f, "nvls_us", &in->nvls_ns, 0);
    add_time(f, "nvls_tree_hop_us", &m->inter.nvls_tree_hop_ns, 0);
    add_times(f, "base_latency_us", m->collective_base_ns);
    add_times(f, "tree_base_latency_us", m->tree_base_ns);
    add_times(f, "intra_hop_us", in->hop_ns);
    add_times(f, "intra_tree_hop_us", in->tree_hop_ns);
    add_times(f, "inter_hop_us", m->inter.hop_ns);
    add_times(f, "inter_tree_hop_us", m->inter.tree_hop_ns);
    ASSERT(f->numbers_n <= CALIBRATE_NUMBERS_MAX);
}

/* Of the file, and of what it was: the same numbers in the same order. */
static void list_both(ClusterFit *f)
{
    IntraNode *was = &f->m.types[0].intra, *is = &f->stands.types[0].intra;
    add_points(f, was, is);
    add_points(f, is, was);
    list_numbers(f, &f->stands);
    uint32_t n = f->numbers_n;
    for (uint32_t i = 0; i < n; i++)
        f->stood[i] = f->start[i].value;
    list_numbers(f, &f->m);
    ASSERT(f->numbers_n == n);
}

/* ---- the fit ---- */

static void predict(void *user, const double *value, double *ns)
{
    ClusterFit *f = user;
    for (uint32_t i = 0; i < f->numbers_n; i++) {
        if (f->places[i].number)
            *f->places[i].number = value[i];
        else
            *f->places[i].ns = llround(value[i]);
    }
    memcpy(f->m.p2p_base_ns, f->m.collective_base_ns, sizeof f->m.p2p_base_ns);
    f->predict(f, &f->m, ns);
}

static bool check_machine(const ClusterFit *f, Err *err)
{
    const Machine *m = &f->m;
    if (m->types_n > 1)
        return err_set(err, "%s: node_types: logs calibrate clusters of equal nodes only",
                       f->into);
    if (m->ideal_collectives)
        return err_set(err, "%s: collectives.ideal is true: there is nothing to calibrate",
                       f->into);
    for (uint32_t i = 0; i < f->shapes_n; i++)
        if (f->shapes[i].gpus_n > m->types[0].gpus_n)
            return err_set(err, "the logs have %u GPUs on a node, the cluster '%s' has %u",
                           (unsigned)f->shapes[i].gpus_n, f->into,
                           (unsigned)m->types[0].gpus_n);
    return true;
}

static bool any_fitted(const ClusterFit *f)
{
    for (uint32_t i = 0; i < f->numbers_n; i++)
        if (f->numbers[i].fitted)
            return true;
    return false;
}

static bool predict_as_it_was(ClusterFit *f, Err *err)
{
    f->predict(f, &f->stands, f->was);
    for (uint32_t i = 0; i < f->rows_n; i++)
        if (!isfinite(f->was[i]))
            return err_set(err, "the cluster '%s' cannot carry a collective of %u nodes",
                           f->into, (unsigned)f->shapes[f->rows[i].shape].nodes_n);
    return true;
}

static bool key_fitted(const ClusterFit *f, const char *key)
{
    for (uint32_t i = 0; i < f->numbers_n; i++)
        if (f->numbers[i].fitted && strcmp(f->places[i].key, key) == 0)
            return true;
    return false;
}

/* What is not fitted stays; what is written is predicted with as it will be read. */
static void settle(ClusterFit *f)
{
    for (uint32_t i = 0; i < f->numbers_n; i++) {
        CalibrateNumber *number = &f->numbers[i];
        f->places[i].written = key_fitted(f, f->places[i].key);
        if (!number->fitted)
            number->value = f->stood[i];
        if (f->places[i].written)
            number->value = cluster_fit_rounded(f, i, number->value);
    }
}

bool cluster_fit_run(ClusterFit *f, Err *err)
{
    double value[CALIBRATE_NUMBERS_MAX];
    CalibrateRows rows = { f->measured_ns, NULL, f->rows_n, predict, f };
    if (!check_machine(f, err) || !predict_as_it_was(f, err))
        return false;
    make_table(f);
    uint32_t measured_n = f->m.measured_n;
    f->m.measured_n = 0; /* the numbers must answer */
    list_both(f);
    memcpy(f->numbers, f->start, sizeof f->start);
    calibrate_left_out(f->start, f->numbers_n, &rows, f->size_fold, CLUSTER_SIZE_FOLDS,
                       f->left_out_size);
    calibrate_left_out(f->start, f->numbers_n, &rows, f->log_of, f->logs_n, f->left_out_log);
    calibrate_fit(f->numbers, f->numbers_n, &rows, NULL, 0);
    settle(f);
    for (uint32_t i = 0; i < f->numbers_n; i++)
        value[i] = f->numbers[i].value;
    predict(f, value, f->model);
    f->m.measured_n = measured_n;
    if (any_fitted(f))
        return true;
    return err_set(err,
                   "%u rows are too few to calibrate '%s': no number answers to %d of them",
                   (unsigned)f->rows_n, f->into, CALIBRATE_ROWS_MIN);
}

double cluster_fit_shown(const ClusterFit *f, uint32_t number, double value)
{
    return f->places[number].number ? value : value / 1e3;
}

double cluster_fit_rounded(const ClusterFit *f, uint32_t number, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.*g", CLUSTER_DIGITS, cluster_fit_shown(f, number, value));
    double x = strtod(text, NULL);
    return f->places[number].number ? x : (double)llround(x * 1e3);
}
