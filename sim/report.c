/*
 * report.c - from the engine's nanoseconds per rank class to the report.
 */
#include "sim/report.h"

#include <math.h>
#include <string.h>

#include "sim/texts.h"

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

/* NAN where there is nothing to divide by. */
static double ratio(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

static const char *copy(Report *r, const char *text)
{
    return arena_strdup(&r->arena, text);
}

/* ---- times ---- */

static ReportTimes times_of(const RankStat *s)
{
    ReportTimes t = { .compute_s = seconds(s->compute_ns),
                      .comm_s = seconds(s->comm_ns),
                      .overlapped_s = seconds(s->overlapped_ns),
                      .exposed_comm_s = seconds(s->exposed_ns),
                      .bubble_s = seconds(s->bubble_ns),
                      .idle_s = seconds(s->idle_ns) };
    t.overlap_pct = 100 * ratio(t.overlapped_s, t.comm_s);
    return t;
}

static ReportTimes mean_times(const SimResult *result)
{
    double sum[6] = { 0 }, ranks = 0;
    for (uint32_t i = 0; i < result->ranks_n; i++) {
        const RankStat *s = &result->ranks[i];
        const int64_t ns[6] = { s->compute_ns, s->comm_ns,   s->overlapped_ns,
                                s->exposed_ns, s->bubble_ns, s->idle_ns };
        for (int k = 0; k < 6; k++)
            sum[k] += (double)ns[k] * s->ranks_n;
        ranks += s->ranks_n;
    }
    for (int k = 0; k < 6; k++)
        sum[k] /= 1e9 * ranks;
    return (ReportTimes){ .compute_s = sum[0],
                          .comm_s = sum[1],
                          .overlapped_s = sum[2],
                          .exposed_comm_s = sum[3],
                          .bubble_s = sum[4],
                          .idle_s = sum[5],
                          .overlap_pct = 100 * ratio(sum[2], sum[1]) };
}

/* ---- flops ---- */

typedef struct Flops {
    double model, hardware;
} Flops;

/* peak: flops/ns of all the GPUs together. */
static ReportRates rates_of(Flops f, double step_ns, double gpus, double peak)
{
    return (ReportRates){ .model_tflops_per_gpu = ratio(f.model, 1e3 * step_ns * gpus),
                          .hardware_tflops_per_gpu = ratio(f.hardware, 1e3 * step_ns * gpus),
                          .mfu = ratio(f.model, step_ns * peak),
                          .hfu = ratio(f.hardware, step_ns * peak) };
}

/* ---- bounds ---- */

static ReportBounds bounds_above(ReportBounds b, double step_s)
{
    double largest = fmax(fmax(b.compute_s, b.memory_s), fmax(b.link_s, b.launch_s));
    b.above = ratio(step_s - largest, largest);
    return b;
}

static ReportBounds bounds_of(const RankStat *s, double step_s)
{
    ReportBounds b = { .compute_s = s->flops_bound_ns / 1e9,
                       .memory_s = s->memory_bound_ns / 1e9,
                       .link_s = s->link_bound_ns / 1e9,
                       .launch_s = s->launch_bound_ns / 1e9 };
    return bounds_above(b, step_s);
}

static void raise_bounds(ReportBounds *b, const ReportBounds *other)
{
    b->compute_s = fmax(b->compute_s, other->compute_s);
    b->memory_s = fmax(b->memory_s, other->memory_s);
    b->link_s = fmax(b->link_s, other->link_s);
    b->launch_s = fmax(b->launch_s, other->launch_s);
}

/* ---- collectives ---- */

/* Most exposed first, then longest, then in the engine's order: the sort is stable. */
static bool comes_before(const ReportCollective *a, const ReportCollective *b)
{
    if (a->exposed_s != b->exposed_s)
        return a->exposed_s > b->exposed_s;
    return a->time_s > b->time_s;
}

static void sort_collectives(ReportCollective *c, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        ReportCollective x = c[i];
        uint32_t at = i;
        for (; at > 0 && comes_before(&x, &c[at - 1]); at--)
            c[at] = c[at - 1];
        c[at] = x;
    }
}

static ReportCollective collective_of(Report *r, const Graph *g, const CollectiveStat *c)
{
    const char *group = intern_text(&g->names, g->groups[c->group].name);
    return (ReportCollective){ .op = op_kind_names[c->kind],
                               .group = copy(r, group),
                               .algorithm = comm_has_algorithm(c->kind)
                                                ? algorithm_names[c->algorithm]
                                                : NULL,
                               .protocol = protocol_names[c->protocol],
                               .group_size = c->group_size,
                               .count = c->count,
                               .bytes = c->bytes,
                               .time_s = seconds(c->time_ns),
                               /* of parts that are rounded one by one */
                               .exposed_s = seconds(min_i64(c->exposed_ns, c->time_ns)),
                               .busbw_GBps = ratio(c->wire_bytes, (double)c->transfer_ns) };
}

/* ---- ranks ---- */

/* What filling a report looks at. */
typedef struct Fill {
    Report *r;
    const Scenario *s;
    const Graph *g;
    const SimResult *result;
    RoleMemory *memory; /* by role */
} Fill;

static const Gpu *gpu_of(const Fill *f, uint32_t rank)
{
    return machine_place(&f->s->machine, rank).type->gpu;
}

static ReportMemory memory_of(const Fill *f, const RankStat *stat)
{
    RoleMemory *m = &f->memory[stat->role];
    const Role *role = &f->g->roles[stat->role];
    ReportMemory out = { .peak_bytes = m->peak_bytes,
                         .gpu_bytes = gpu_of(f, stat->rank)->memory_bytes };
    out.extra = memory_extra(f->g, role, m, &f->s->machine, stat->rank);
    out.reserved_bytes = memory_reserved_bytes(m, &out.extra);
    out.fits = out.reserved_bytes <= out.gpu_bytes;
    memcpy(out.of_class, m->at_peak, sizeof out.of_class);
    return out;
}

static double peak_flops_per_ns(const Fill *f, uint32_t rank)
{
    return gpu_peak_flops_per_ns(gpu_of(f, rank), f->s->training.precision);
}

static ReportRank rank_of(const Fill *f, const RankStat *stat)
{
    Report *r = f->r;
    double step_ns = (double)f->result->step_ns;
    ReportRank k = { .rank = stat->rank,
                     .ranks_n = stat->ranks_n,
                     .stage = stat->stage,
                     .role = copy(r, intern_text(&f->g->names, f->g->roles[stat->role].name)),
                     .gpu = copy(r, gpu_of(f, stat->rank)->name),
                     .end_s = seconds(stat->end_ns),
                     .times = times_of(stat),
                     .bounds = bounds_of(stat, step_ns / 1e9),
                     .memory = memory_of(f, stat),
                     .collectives_n = stat->collectives_n };
    k.rates = rates_of((Flops){ stat->model_flops, stat->hardware_flops }, step_ns, 1,
                       peak_flops_per_ns(f, stat->rank));
    k.collectives = PUSH_ARRAY(&r->arena, ReportCollective, stat->collectives_n);
    for (uint32_t i = 0; i < stat->collectives_n; i++)
        k.collectives[i] = collective_of(r, f->g, &stat->collectives[i]);
    sort_collectives(k.collectives, k.collectives_n);
    return k;
}

/* ---- the whole ---- */

static const char *recompute_text(Report *r, const Training *t)
{
    if (t->recompute != RECOMPUTE_LAYERS)
        return recompute_names[t->recompute];
    return arena_printf(&r->arena, "%" PRIu32 " layers", t->recompute_layers);
}

/* Types of nodes with the same GPU count as one. */
static uint64_t ranks_with(const Fill *f, const char *gpu)
{
    const Machine *m = &f->s->machine;
    uint64_t ranks_n = 0;
    for (uint32_t i = 0; i < m->types_n; i++) {
        const NodeType *t = &m->types[i];
        uint64_t there = (uint64_t)t->count * t->gpus_n;
        if (strcmp(t->gpu->name, gpu) == 0 && t->first_rank < f->g->world_n)
            ranks_n += min_u64(there, f->g->world_n - t->first_rank);
    }
    return ranks_n;
}

static void fill_gpus(const Fill *f)
{
    Report *r = f->r;
    const Machine *m = &f->s->machine;
    char number[TEXT_CAP];
    r->gpu = r->gpus_counted = "";
    for (uint32_t i = 0; i < m->types_n; i++) {
        const char *name = m->types[i].gpu->name;
        uint32_t first = 0;
        while (strcmp(m->types[first].gpu->name, name) != 0)
            first++;
        uint64_t ranks_n = ranks_with(f, name);
        if (first < i || ranks_n == 0)
            continue;
        const char *and = i > 0 ? " + " : "";
        r->gpu = arena_printf(&r->arena, "%s%s%s", r->gpu, and, name);
        r->gpus_counted = arena_printf(&r->arena, "%s%s%s x %s", r->gpus_counted, and,
                                       text_number(number, (double)ranks_n, 0), name);
    }
}

/* Ranks in a group of this name; 1: there is none. */
static uint32_t size_of_group(const Graph *g, const char *name, bool *sent_once)
{
    for (uint32_t i = 0; i < g->groups_n; i++)
        if (strcmp(intern_text(&g->names, g->groups[i].name), name) == 0) {
            *sent_once |= g->groups[i].sent_once > 0;
            return group_size(&g->groups[i]);
        }
    return 1;
}

/* As the graph has them: a stack may have a habit.  Whole experts are on all ranks of tp x dp x cp,
 * in ep and edp groups. */
static void fill_experts(const Fill *f)
{
    const Parallel *p = &f->s->parallel;
    const Model *m = &f->s->model;
    bool has = m->kind == MODEL_TRANSFORMER && m->u.transformer.experts > 0, once = false;
    uint32_t ep = size_of_group(f->g, "ep", &once), edp = size_of_group(f->g, "edp", &once);
    bool whole = (uint64_t)ep * edp == (uint64_t)p->tp * p->dp * p->cp;
    if (has && p->tp > 1)
        f->r->etp = whole ? 1 : p->tp;
    if (has && ep > 1)
        f->r->dispatcher = dispatcher_names[once ? DISPATCHER_DEEPEP : DISPATCHER_ALLTOALL];
}

static void fill_names(const Fill *f)
{
    Report *r = f->r;
    const Scenario *s = f->s;
    r->name = copy(r, s->name);
    r->strategy = strategy_names[s->parallel.strategy];
    r->schedule = schedule_names[s->parallel.schedule];
    r->model = copy(r, s->model.name ? s->model.name : "");
    r->cluster = copy(r, s->machine.name ? s->machine.name : "");
    fill_gpus(f);
    r->software = copy(r, s->software);
    r->precision = dtype_names[s->training.precision];
    r->gpus = f->g->world_n;
    r->gpus_idle = s->machine.gpus_n - r->gpus;
    const Parallel *p = &s->parallel;
    for (Dim d = 0; d < DIM_N; d++)
        r->degree[d] = parallel_degree(p, d);
    r->virtual_stages = p->virtual_stages;
    r->shard_size = p->strategy == STRATEGY_HSDP ? p->shard_size : 0;
    r->sequence_parallel = p->sequence_parallel && p->tp > 1;
    fill_experts(f);
    r->recompute = recompute_text(r, &s->training);
    r->micro_batch = s->training.micro_batch;
    r->micro_batches = s->training.micro_batches;
    r->global_batch = s->training.global_batch;
    r->seq_len = s->training.seq_len;
    r->params_n = model_params(&s->model);
    r->has_tokens = s->model.kind == MODEL_TRANSFORMER;
}

static double part_reserved(const ReportMemory *m)
{
    return (double)m->reserved_bytes / (double)m->gpu_bytes;
}

static void fill_ranks(const Fill *f)
{
    Report *r = f->r;
    r->ranks_n = f->result->ranks_n;
    r->ranks = PUSH_ARRAY(&r->arena, ReportRank, r->ranks_n);
    r->fits = true;
    for (uint32_t i = 0; i < r->ranks_n; i++) {
        ReportRank *k = &r->ranks[i];
        *k = rank_of(f, &f->result->ranks[i]);
        raise_bounds(&r->bounds, &k->bounds);
        r->fits = r->fits && k->memory.fits;
        if (k->memory.peak_bytes > r->ranks[r->peak_rank].memory.peak_bytes)
            r->peak_rank = i;
        if (part_reserved(&k->memory) > part_reserved(report_fullest(r)))
            r->full_rank = i;
        if (k->times.exposed_comm_s > r->ranks[r->comm_rank].times.exposed_comm_s)
            r->comm_rank = i;
    }
    r->bounds = bounds_above(r->bounds, r->step_time_s);
}

static void fill_rates(const Fill *f)
{
    Report *r = f->r;
    Flops sum = { 0 };
    double peak = 0;
    for (uint32_t i = 0; i < f->result->ranks_n; i++) {
        const RankStat *stat = &f->result->ranks[i];
        sum.model += stat->model_flops * stat->ranks_n;
        sum.hardware += stat->hardware_flops * stat->ranks_n;
        peak += peak_flops_per_ns(f, stat->rank) * stat->ranks_n;
    }
    r->rates = rates_of(sum, (double)f->result->step_ns, r->gpus, peak);
}

static void fill_speed(const Fill *f)
{
    Report *r = f->r;
    r->step_time_s = seconds(f->result->step_ns);
    r->samples_per_s = ratio((double)f->g->samples, r->step_time_s);
    r->tokens_per_s = r->has_tokens ? ratio((double)f->g->tokens, r->step_time_s) : NAN;
    r->tokens_per_s_per_gpu = r->tokens_per_s / r->gpus;
    double price = f->s->machine.price_usd_per_gpu_hour;
    r->cost_usd_per_step = price > 0 ? price * r->gpus * r->step_time_s / 3600 : NAN;
    r->critical_compute_s = seconds(f->result->path.compute_ns);
    r->critical_comm_s = seconds(f->result->path.comm_ns);
    r->critical_bubble_s = seconds(f->result->path.bubble_ns);
    r->critical_launch_s = seconds(f->result->path.launch_ns);
}

void report_fill(Report *r, const Scenario *s, const Graph *g, const SimResult *result,
                 RoleMemory *memory, double wall_s)
{
    ASSERT(result->ranks_n > 0);
    *r = (Report){ .events = result->events, .ops = result->ops, .wall_s = wall_s };
    Fill f = { .r = r, .s = s, .g = g, .result = result, .memory = memory };
    fill_names(&f);
    fill_speed(&f);
    fill_ranks(&f);
    fill_rates(&f);
    r->times = mean_times(result);
}

void report_free(Report *r)
{
    arena_free(&r->arena);
    *r = (Report){ 0 };
}

/* ---- the peak in detail ---- */

static const Role *role_of_report(const Graph *g, const Report *r)
{
    return graph_role_of(g, r->ranks[r->peak_rank].rank);
}

void report_add_peak(Report *r, const Graph *g, const RoleMemory *memory)
{
    const Role *role = role_of_report(g, r);
    const RoleMemory *m = &memory[role - g->roles];
    ReportPeak *p = PUSH(&r->arena, ReportPeak);
    p->layer = p->micro_batch = NONE_U32;
    if (m->peak_instance != NONE_U32) {
        const Instance *in = &role->instances[m->peak_instance];
        const Segment *s = &g->segments[in->segment];
        p->layer = in->layer;
        p->micro_batch = in->micro_batch;
        p->segment = copy(r, intern_text(&g->names, s->name));
        p->op = copy(r, intern_text(&g->names, graph_ops(g, s)[m->peak_op].name));
    }
    memcpy(p->resident, m->resident, sizeof p->resident);
    p->detail = memory_detail(g, role, m, &r->arena);
    p->tensor_name = PUSH_ARRAY(&r->arena, const char *, p->detail.tensors_n);
    for (uint32_t i = 0; i < p->detail.tensors_n; i++)
        p->tensor_name[i] = copy(r, intern_text(&g->names, p->detail.tensors[i].name));
    r->peak = p;
}

/* ---- by key ---- */

typedef struct Key {
    const char *name;
    size_t offset;
} Key;

static const Key headline[] = {
    { "step_time_s", offsetof(Report, step_time_s) },
    { "samples_per_s", offsetof(Report, samples_per_s) },
    { "tokens_per_s", offsetof(Report, tokens_per_s) },
    { "tokens_per_s_per_gpu", offsetof(Report, tokens_per_s_per_gpu) },
    { "model_tflops_per_gpu", offsetof(Report, rates.model_tflops_per_gpu) },
    { "hardware_tflops_per_gpu", offsetof(Report, rates.hardware_tflops_per_gpu) },
    { "mfu", offsetof(Report, rates.mfu) },
    { "hfu", offsetof(Report, rates.hfu) },
    { "compute_s", offsetof(Report, times.compute_s) },
    { "comm_s", offsetof(Report, times.comm_s) },
    { "overlapped_s", offsetof(Report, times.overlapped_s) },
    { "exposed_comm_s", offsetof(Report, times.exposed_comm_s) },
    { "overlap_pct", offsetof(Report, times.overlap_pct) },
    { "bubble_s", offsetof(Report, times.bubble_s) },
    { "idle_s", offsetof(Report, times.idle_s) },
    { "cost_usd_per_step", offsetof(Report, cost_usd_per_step) },
    { "critical_path.compute_s", offsetof(Report, critical_compute_s) },
    { "critical_path.comm_s", offsetof(Report, critical_comm_s) },
    { "critical_path.bubble_s", offsetof(Report, critical_bubble_s) },
    { "critical_path.launch_s", offsetof(Report, critical_launch_s) },
};

static const Key of_memory[] = {
    { "memory.peak_bytes", offsetof(ReportMemory, peak_bytes) },
    { "memory.params_bytes", offsetof(ReportMemory, of_class[TENSOR_PARAM]) },
    { "memory.grads_bytes", offsetof(ReportMemory, of_class[TENSOR_GRAD]) },
    { "memory.optimizer_bytes", offsetof(ReportMemory, of_class[TENSOR_OPTIMIZER]) },
    { "memory.activations_bytes", offsetof(ReportMemory, of_class[TENSOR_ACTIVATION]) },
    { "memory.buffers_bytes", offsetof(ReportMemory, of_class[TENSOR_BUFFER]) },
};

bool report_value(const Report *r, const char *key, double *value)
{
    for (size_t i = 0; i < ARRAY_N(headline); i++)
        if (strcmp(headline[i].name, key) == 0) {
            memcpy(value, (const char *)r + headline[i].offset, sizeof *value);
            return true;
        }
    for (size_t i = 0; i < ARRAY_N(of_memory); i++)
        if (strcmp(of_memory[i].name, key) == 0) {
            uint64_t bytes;
            memcpy(&bytes, (const char *)report_memory(r) + of_memory[i].offset, sizeof bytes);
            *value = (double)bytes;
            return true;
        }
    if (strcmp(key, "memory.reserved_bytes") == 0) {
        *value = (double)report_fullest(r)->reserved_bytes;
        return true;
    }
    if (strcmp(key, "fits") != 0)
        return false;
    *value = r->fits;
    return true;
}
