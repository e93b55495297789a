/*
 * report_json.c - the report as `sim --json` prints it: the contract's keys, in its order.
 */
#include "sim/report.h"

static void put_number(JsonOut *j, const char *key, double x)
{
    json_out_key(j, key);
    json_out_number(j, x);
}

static void put_bytes(JsonOut *j, const char *key, uint64_t x)
{
    json_out_key(j, key);
    json_out_int(j, (int64_t)x);
}

static void put_text(JsonOut *j, const char *key, const char *x)
{
    json_out_key(j, key);
    json_out_string(j, x);
}

/* NONE_U32 is null. */
static void put_count(JsonOut *j, const char *key, uint32_t x)
{
    json_out_key(j, key);
    if (x == NONE_U32)
        json_out_null(j);
    else
        json_out_int(j, x);
}

static void begin(JsonOut *j, const char *key, char bracket)
{
    json_out_key(j, key);
    json_out_open(j, bracket);
}

static void write_rates(JsonOut *j, const ReportRates *r)
{
    put_number(j, "model_tflops_per_gpu", r->model_tflops_per_gpu);
    put_number(j, "hardware_tflops_per_gpu", r->hardware_tflops_per_gpu);
    put_number(j, "mfu", r->mfu);
    put_number(j, "hfu", r->hfu);
}

static void write_times(JsonOut *j, const ReportTimes *t)
{
    put_number(j, "compute_s", t->compute_s);
    put_number(j, "comm_s", t->comm_s);
    put_number(j, "overlapped_s", t->overlapped_s);
    put_number(j, "exposed_comm_s", t->exposed_comm_s);
    put_number(j, "overlap_pct", t->overlap_pct);
    put_number(j, "bubble_s", t->bubble_s);
    put_number(j, "idle_s", t->idle_s);
}

static void write_classes(JsonOut *j, const uint64_t *of_class)
{
    static const char *const keys[TENSOR_CLASS_N] = { "params_bytes", "grads_bytes",
                                                      "optimizer_bytes", "activations_bytes",
                                                      "buffers_bytes" };
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        put_bytes(j, keys[c], of_class[c]);
}

static void write_memory(JsonOut *j, const ReportMemory *m)
{
    begin(j, "memory", '{');
    put_bytes(j, "peak_bytes", m->peak_bytes);
    put_bytes(j, "reserved_bytes", m->reserved_bytes);
    write_classes(j, m->of_class);
    put_bytes(j, "context_bytes", m->extra.context_bytes);
    put_bytes(j, "comm_buffers_bytes", m->extra.comm_bytes);
    put_bytes(j, "fragmentation_bytes", m->extra.fragmentation_bytes);
    put_bytes(j, "gpu_bytes", m->gpu_bytes);
    json_out_close(j, '}');
}

static void write_bounds(JsonOut *j, const ReportBounds *b)
{
    begin(j, "bounds", '{');
    put_number(j, "compute_s", b->compute_s);
    put_number(j, "memory_s", b->memory_s);
    put_number(j, "link_s", b->link_s);
    put_number(j, "launch_s", b->launch_s);
    put_number(j, "above", b->above);
    json_out_close(j, '}');
}

static void write_collective(JsonOut *j, const ReportCollective *c)
{
    json_out_open(j, '{');
    put_text(j, "op", c->op);
    put_text(j, "group", c->group);
    put_count(j, "group_size", c->group_size);
    put_bytes(j, "count", c->count);
    put_bytes(j, "bytes", c->bytes);
    put_number(j, "time_s", c->time_s);
    put_number(j, "exposed_s", c->exposed_s);
    put_text(j, "algorithm", c->algorithm);
    put_text(j, "protocol", c->protocol);
    put_number(j, "busbw_GBps", c->busbw_GBps);
    json_out_close(j, '}');
}

static void write_collectives(JsonOut *j, const ReportRank *k)
{
    begin(j, "collectives", '[');
    for (uint32_t i = 0; i < k->collectives_n; i++)
        write_collective(j, &k->collectives[i]);
    json_out_close(j, ']');
}

static void write_critical_path(JsonOut *j, const Report *r)
{
    begin(j, "critical_path", '{');
    put_number(j, "compute_s", r->critical_compute_s);
    put_number(j, "comm_s", r->critical_comm_s);
    put_number(j, "bubble_s", r->critical_bubble_s);
    put_number(j, "launch_s", r->critical_launch_s);
    json_out_close(j, '}');
}

static void write_sim(JsonOut *j, const Report *r)
{
    begin(j, "sim", '{');
    put_bytes(j, "events", r->events);
    put_bytes(j, "ops", r->ops);
    put_number(j, "wall_s", r->wall_s);
    json_out_close(j, '}');
}

static void write_rank(JsonOut *j, const ReportRank *k)
{
    json_out_open(j, '{');
    put_count(j, "rank", k->rank);
    put_count(j, "ranks_n", k->ranks_n);
    put_text(j, "role", k->role);
    put_count(j, "stage", k->stage);
    put_text(j, "gpu", k->gpu);
    put_number(j, "end_s", k->end_s);
    write_rates(j, &k->rates);
    write_times(j, &k->times);
    write_memory(j, &k->memory);
    json_out_key(j, "fits");
    json_out_bool(j, k->memory.fits);
    write_collectives(j, k);
    write_bounds(j, &k->bounds);
    json_out_close(j, '}');
}

static void write_layers(JsonOut *j, const MemoryDetail *d)
{
    begin(j, "layers", '[');
    for (uint32_t i = 0; i < d->layers_n; i++) {
        json_out_open(j, '{');
        put_count(j, "layer", d->layers[i].layer);
        write_classes(j, d->layers[i].bytes);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void write_tensors(JsonOut *j, const ReportPeak *p)
{
    begin(j, "tensors", '[');
    for (uint32_t i = 0; i < p->detail.tensors_n; i++) {
        const TensorMemory *t = &p->detail.tensors[i];
        json_out_open(j, '{');
        put_text(j, "name", p->tensor_name[i]);
        put_text(j, "class", tensor_class_names[t->class_]);
        put_bytes(j, "count", t->count);
        put_bytes(j, "bytes", t->bytes);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void write_peak(JsonOut *j, const Report *r)
{
    const ReportPeak *p = r->peak;
    begin(j, "at_peak", '{');
    put_count(j, "rank", r->ranks[r->peak_rank].rank);
    put_text(j, "segment", p->segment);
    put_text(j, "op", p->op);
    put_count(j, "layer", p->layer);
    put_count(j, "micro_batch", p->micro_batch);
    begin(j, "resident", '{');
    write_classes(j, p->resident);
    json_out_close(j, '}');
    write_layers(j, &p->detail);
    write_tensors(j, p);
    json_out_close(j, '}');
}

/* What tells two scenarios of one name apart. */
static void write_asked(JsonOut *j, const Report *r)
{
    put_text(j, "schedule", r->degree[DIM_PP] > 1 ? r->schedule : NULL);
    put_count(j, "virtual_stages", r->virtual_stages);
    json_out_key(j, "sequence_parallel");
    json_out_bool(j, r->sequence_parallel);
    put_text(j, "precision", r->precision);
    put_count(j, "global_batch", r->global_batch);
    put_count(j, "seq_len", r->seq_len);
    put_count(j, "micro_batch", r->micro_batch);
    put_count(j, "micro_batches", r->micro_batches);
    put_text(j, "recompute", r->recompute);
}

static void write_headline(JsonOut *j, const Report *r)
{
    put_text(j, "name", r->name);
    put_count(j, "gpus", r->gpus);
    put_text(j, "strategy", r->strategy);
    put_text(j, "model", r->model);
    put_text(j, "cluster", r->cluster);
    put_text(j, "gpu", r->gpu);
    put_text(j, "software", r->software);
    begin(j, "degrees", '{');
    for (int d = 0; d < DIM_N; d++)
        put_count(j, dim_names[d], r->degree[d]);
    json_out_close(j, '}');
    write_asked(j, r);
    put_number(j, "step_time_s", r->step_time_s);
    put_number(j, "samples_per_s", r->samples_per_s);
    put_number(j, "tokens_per_s", r->tokens_per_s);
    put_number(j, "tokens_per_s_per_gpu", r->tokens_per_s_per_gpu);
}

void report_json(const Report *r, JsonOut *j)
{
    json_out_open(j, '{');
    write_headline(j, r);
    write_rates(j, &r->rates);
    write_times(j, &r->times);
    write_memory(j, report_memory(r));
    json_out_key(j, "fits");
    json_out_bool(j, r->fits);
    put_number(j, "cost_usd_per_step", r->cost_usd_per_step);
    write_critical_path(j, r);
    write_collectives(j, &r->ranks[r->comm_rank]);
    write_bounds(j, &r->bounds);
    begin(j, "ranks", '[');
    for (uint32_t i = 0; i < r->ranks_n; i++)
        write_rank(j, &r->ranks[i]);
    json_out_close(j, ']');
    if (r->peak)
        write_peak(j, r);
    write_sim(j, r);
    json_out_close(j, '}');
}
