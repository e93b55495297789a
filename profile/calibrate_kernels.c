/* calibrate_kernels.c - spans to samples, samples of one shape to rows. */
#include "profile/calibrate_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/quantile.h"
#include "profile/steps.h"

typedef struct Interval {
    int64_t begin_ns, end_ns;
} Interval;

/* ---- spans to samples ---- */

/* False: the tables have no place for such a kernel. */
static bool gemm_sample(const Op *op, KernelSample *x)
{
    const MatmulShape *s = &op->u.matmul;
    x->table = TABLE_GEMM;
    x->key[0] = (double)s->m;
    x->key[1] = (double)s->n;
    x->key[2] = (double)s->k;
    x->key[3] = op->dtype;
    x->key[4] = gemm_layout_of(s);
    return s->batch == 1 && s->of == 0; /* such a part is faster than it would be alone */
}

bool kernel_sample_rows(const KernelFit *f, KernelSample *x)
{
    AttentionKernel rows = ATTENTION_NEWEST;
    bool is = f->model.rows_of(f->model.user, x->op, &rows);
    x->key[7] = rows;
    return is;
}

static bool attention_sample(const KernelFit *f, const Op *op, KernelSample *x)
{
    const AttentionShape *a = &op->u.attention;
    x->table = TABLE_ATTENTION;
    x->key[0] = op_is_backward(op);
    x->key[1] = (double)a->batch;
    x->key[2] = (double)a->seq_q;
    x->key[3] = (double)a->heads;
    x->key[4] = (double)a->kv_heads;
    x->key[5] = (double)a->head_dim;
    x->key[6] = a->causal;
    return a->seq_q == a->seq_k && a->window == 0 && a->value_dim == 0 &&
           kernel_sample_rows(f, x);
}

static bool sample_of(const KernelFit *f, const Op *op, KernelSample *x)
{
    switch (op->kind) {
    case OP_MATMUL:
    case OP_CONV:
        return gemm_sample(op, x);
    case OP_ATTENTION:
        return attention_sample(f, op, x);
    case OP_H2D:
        x->table = TABLE_COPY;
        x->key[0] = (double)op->write_bytes;
        return op->write_bytes > 0;
    default:
        x->table = TABLE_MEMORY;
        x->key[0] = f->model.class_of(op);
        x->key[1] = (double)op->read_bytes + (double)op->write_bytes;
        return x->key[1] > 0;
    }
}

/* The op that a span is; false with err when the trace is not of this scenario. */
static bool find_op(KernelFit *f, const Timeline *t, uint64_t i, const char *path, OpRef *ref,
                    Err *err)
{
    const Track *track = &t->tracks[t->span_track[i]];
    const Role *role = graph_role_of(f->g, track->rank);
    if (t->op[i] >= role->ops_n)
        return err_set(
            err,
            "'%s' is not of this scenario: it has op %u on rank %u, where the scenario "
            "has %" PRIu64 " ops",
            path, (unsigned)t->op[i], (unsigned)track->rank, role->ops_n);
    *ref = graph_find_op(f->g, role, t->op[i]);
    const char *is = timeline_op_name(t, i);
    if (t->op_name && t->span_class[i] == SPAN_LAUNCH)
        return true; /* recorded: its name is that of a call */
    is = *is ? is : timeline_text(t, t->span_name[i]); /* not recorded but simulated */
    const char *should = intern_text(&f->g->names, ref->o->name);
    if (strcmp(is, should) != 0)
        return err_set(err,
                       "'%s' is not of this scenario: op %u on rank %u is '%.60s', in the "
                       "scenario '%.60s'",
                       path, (unsigned)t->op[i], (unsigned)track->rank, is, should);
    return true;
}

static int compare_intervals(const void *pa, const void *pb)
{
    const Interval *a = pa, *b = pb;
    return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

static bool is_transfer(const Timeline *t, uint64_t i)
{
    return t->span_class[i] == SPAN_COMM || t->span_class[i] == SPAN_P2P;
}

/* When a rank transferred, in order and apart; *n of them, on the heap. */
static Interval *transfers_of(const Timeline *t, uint32_t rank, uint32_t *n)
{
    Interval *list = NULL;
    uint32_t cap = 0, kept = 0;
    *n = 0;
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        const Track *track = &t->tracks[k];
        uint64_t end = track->span_first + track->span_n;
        for (uint64_t i = track->span_first; i < end && track->rank == rank; i++) {
            if (!is_transfer(t, i))
                continue;
            GROW(list, *n, cap);
            list[(*n)++] = (Interval){ t->start_ns[i] + timeline_wait_ns(t, i),
                                       t->start_ns[i] + t->dur_ns[i] };
        }
    }
    if (*n == 0)
        return NULL;
    qsort(list, *n, sizeof *list, compare_intervals);
    for (uint32_t i = 1; i < *n; i++) {
        if (list[i].begin_ns <= list[kept].end_ns)
            list[kept].end_ns = max_i64(list[kept].end_ns, list[i].end_ns);
        else
            list[++kept] = list[i];
    }
    *n = kept + 1;
    return list;
}

static bool meets(const Interval *list, uint32_t n, int64_t begin_ns, int64_t end_ns)
{
    uint32_t low = 0, high = n; /* first that ends after begin */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (list[mid].end_ns <= begin_ns)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && list[low].begin_ns < end_ns;
}

/* A kernel, or a few of one op of one step. */
typedef struct OpRun {
    uint32_t op, step;
    uint64_t span; /* the first of them */
    Interval when;
    int64_t ns;
} OpRun;

static int compare_runs(const void *pa, const void *pb)
{
    const OpRun *a = pa, *b = pb;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    return (a->span > b->span) - (a->span < b->span);
}

/* Of one op, on whatever tracks: their times are added up. */
static uint32_t join_runs(OpRun *runs, uint32_t n)
{
    uint32_t kept = 0;
    qsort(runs, n, sizeof *runs, compare_runs);
    for (uint32_t i = 1; i < n; i++) {
        OpRun *last = &runs[kept];
        if (runs[i].op != last->op || runs[i].step != last->step) {
            runs[++kept] = runs[i];
            continue;
        }
        last->ns += runs[i].ns;
        last->when.begin_ns = min_i64(last->when.begin_ns, runs[i].when.begin_ns);
        last->when.end_ns = max_i64(last->when.end_ns, runs[i].when.end_ns);
    }
    return kept + 1;
}

/* What the ops of a rank took in each step; *n of them, on the heap. */
static OpRun *runs_of(const Timeline *t, const RankSteps *rank, uint32_t *n)
{
    OpRun *runs = mem_zero((size_t)rank->ops_n + 1, sizeof *runs);
    *n = 0;
    for (uint32_t k = 0; k < rank->ops_n; k++) {
        uint64_t i = rank->ops[k].span;
        bool kernel = t->span_class[i] == SPAN_COMPUTE || t->span_class[i] == SPAN_MEMORY;
        if (!kernel || t->op[i] == NONE_U32 || rank->ops[k].step == NONE_U32)
            continue;
        int64_t begin_ns = t->start_ns[i], ns = t->dur_ns[i];
        runs[(*n)++] =
            (OpRun){ t->op[i], rank->ops[k].step, i, { begin_ns, begin_ns + ns }, ns };
    }
    *n = *n > 0 ? join_runs(runs, *n) : 0;
    return runs;
}

static bool take_run(KernelFit *f, const Timeline *t, const OpRun *run, const char *path,
                     const Interval *transfers, uint32_t transfers_n, Err *err)
{
    OpRef ref = { 0 };
    if (!find_op(f, t, run->span, path, &ref, err))
        return false;
    f->ops_seen++;
    if (run->ns == 0)
        return true;
    KernelSample x = { .ns = (double)run->ns, .op = ref.o };
    if (meets(transfers, transfers_n, run->when.begin_ns, run->when.end_ns))
        f->beside_comm++;
    else if (!sample_of(f, ref.o, &x))
        f->no_table++;
    else {
        GROW(f->samples, f->samples_n, f->samples_cap);
        f->samples[f->samples_n++] = x;
    }
    return true;
}

static bool take_rank(KernelFit *f, const Timeline *t, const RankSteps *rank, const char *path,
                      Err *err)
{
    uint32_t runs_n, transfers_n;
    OpRun *runs = runs_of(t, rank, &runs_n);
    Interval *transfers = transfers_of(t, rank->rank, &transfers_n);
    bool ok = true;
    for (uint32_t i = 0; i < runs_n && ok; i++)
        ok = take_run(f, t, &runs[i], path, transfers, transfers_n, err);
    free(transfers);
    free(runs);
    return ok;
}

static bool take_launches(KernelFit *f, const Timeline *t, const char *path, Err *err)
{
    OpRef ref = { 0 };
    for (uint64_t i = 0; i < t->spans_n; i++) {
        if (t->span_class[i] != SPAN_LAUNCH || t->op[i] == NONE_U32)
            continue;
        if (!find_op(f, t, i, path, &ref, err))
            return false;
        f->ops_seen++;
        GROW(f->launches, f->launches_n, f->launches_cap);
        f->launches[f->launches_n++] = (double)t->dur_ns[i];
    }
    return true;
}

bool kernel_fit_add(KernelFit *f, const Timeline *t, const char *path, Err *err)
{
    uint32_t seen = f->ops_seen;
    GpuSteps steps;
    gpu_steps_find(&steps, t);
    bool ok = take_launches(f, t, path, err);
    for (uint32_t i = 0; i < steps.ranks_n && ok; i++)
        ok = take_rank(f, t, &steps.ranks[i], path, err);
    gpu_steps_free(&steps);
    if (!ok)
        return false;
    if (f->ops_seen > seen)
        return true;
    return err_set(err,
                   "'%s' has no op ids: only traces that lockstep itself wrote (*.lstrace "
                   "of sim --trace and run --trace) tell which op a kernel is",
                   path);
}

/* ---- samples to rows ---- */

static int compare_shapes(KernelTable table_a, const double *a, KernelTable table_b,
                          const double *b)
{
    if (table_a != table_b)
        return table_a < table_b ? -1 : 1;
    for (int i = 0; i < KERNEL_KEYS_MAX; i++)
        if (a[i] < b[i] || a[i] > b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int compare_samples(const void *pa, const void *pb)
{
    const KernelSample *a = pa, *b = pb;
    int c = compare_shapes(a->table, a->key, b->table, b->key);
    return c ? c : (a->ns > b->ns) - (a->ns < b->ns);
}

static void make_rows(KernelFit *f)
{
    f->rows = PUSH_ARRAY(&f->arena, KernelFitRow, f->samples_n);
    if (f->samples_n > 0)
        qsort(f->samples, f->samples_n, sizeof *f->samples, compare_samples);
    for (uint32_t first = 0, end; first < f->samples_n; first = end) {
        const KernelSample *s = &f->samples[first];
        for (end = first + 1; end < f->samples_n; end++)
            if (compare_shapes(s->table, s->key, f->samples[end].table, f->samples[end].key) !=
                0)
                break;
        uint32_t n = end - first; /* sorted by time too */
        KernelFitRow *row = &f->rows[f->rows_n++];
        *row = (KernelFitRow){ .table = s->table, .n = n, .op = s->op };
        memcpy(row->key, s->key, sizeof row->key);
        row->ns = (s[(n - 1) / 2].ns + s[n / 2].ns) / 2;
        row->table_ns = row->ns / f->model.scale(f->model.user, s->op);
    }
}

/* Numbers that are no table: launches, copies from the host, the shortest kernel. */
static void measure_rest(KernelFit *f)
{
    double *rates = PUSH_ARRAY(&f->arena, double, f->rows_n), shortest = INFINITY;
    uint32_t rates_n = 0;
    for (uint32_t i = 0; i < f->rows_n; i++) {
        const KernelFitRow *r = &f->rows[i];
        if (r->table == TABLE_COPY && r->key[0] >= (double)MIB) /* less is latency */
            rates[rates_n++] = r->key[0] / r->table_ns;
        shortest = fmin(shortest, r->ns);
    }
    f->launch_ns = f->launches_n >= CALIBRATE_ROWS_MIN
                       ? sort_median(f->launches, f->launches_n) / f->model.host_scale
                       : NAN;
    f->host_bytes_per_ns = sort_median(rates, rates_n);
    f->floor_ns = shortest < (double)f->gpu->kernel_floor_ns ? shortest : NAN;
}

bool kernel_fit_run(KernelFit *f, Err *err)
{
    make_rows(f);
    if (f->rows_n == 0)
        return err_set(err,
                       "the traces have no kernel that can be used: %u beside "
                       "communication, %u that no table holds",
                       (unsigned)f->beside_comm, (unsigned)f->no_table);
    measure_rest(f);
    return true;
}

void kernel_fit_free(KernelFit *f)
{
    free(f->samples);
    free(f->launches);
    arena_free(&f->arena);
    *f = (KernelFit){ 0 };
}
