/*
 * report_json.c - the report as `sim --json` prints it: the contract's keys, in its order.
 */
#include "sim/report.h"

/* NONE_U32 is null. */
static void put_count(JsonOut *j, const char *key, uint32_t x)
{
    json_put_known(j, key, x == NONE_U32 ? -1 : (int64_t)x);
}

static void write_rates(JsonOut *j, const ReportRates *r)
{
    json_put_number(j, "model_tflops_per_gpu", r->model_tflops_per_gpu);
    json_put_number(j, "hardware_tflops_per_gpu", r->hardware_tflops_per_gpu);
    json_put_number(j, "mfu", r->mfu);
    json_put_number(j, "hfu", r->hfu);
}

static void write_times(JsonOut *j, const ReportTimes *t)
{
    json_put_number(j, "compute_s", t->compute_s);
    json_put_number(j, "comm_s", t->comm_s);
    json_put_number(j, "overlapped_s", t->overlapped_s);
    json_put_number(j, "exposed_comm_s", t->exposed_comm_s);
    json_put_number(j, "overlap_pct", t->overlap_pct);
    json_put_number(j, "bubble_s", t->bubble_s);
    json_put_number(j, "idle_s", t->idle_s);
}

static void write_classes(const uint64_t *of_class, JsonOut *j)
{
    static const char *const keys[TENSOR_CLASS_N] = { "params_bytes", "grads_bytes",
                                                      "optimizer_bytes", "activations_bytes",
                                                      "buffers_bytes" };
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        json_put_uint(j, keys[c], of_class[c]);
}

/* Of one rank; or of the one that allocates most, and of the one whose GPU is fullest. */
static void write_memory(JsonOut *j, const ReportMemory *m, const ReportMemory *fullest)
{
    json_put_uint(j, "peak_bytes", m->peak_bytes);
    json_put_uint(j, "reserved_bytes", fullest->reserved_bytes);
    write_classes(m->of_class, j);
    json_put_uint(j, "context_bytes", fullest->extra.context_bytes);
    json_put_uint(j, "comm_buffers_bytes", fullest->extra.comm_bytes);
    json_put_uint(j, "fragmentation_bytes", fullest->extra.fragmentation_bytes);
    json_put_uint(j, "gpu_bytes", fullest->gpu_bytes);
}

static void write_bounds(JsonOut *j, const ReportBounds *b)
{
    json_put_open(j, "bounds", '{');
    json_put_number(j, "compute_s", b->compute_s);
    json_put_number(j, "memory_s", b->memory_s);
    json_put_number(j, "link_s", b->link_s);
    json_put_number(j, "launch_s", b->launch_s);
    json_put_number(j, "above", b->above);
    json_out_close(j, '}');
}

static void write_collective(JsonOut *j, const ReportCollective *c)
{
    json_out_open(j, '{');
    json_put_text(j, "op", c->op);
    json_put_text(j, "group", c->group);
    put_count(j, "group_size", c->group_size);
    json_put_uint(j, "count", c->count);
    json_put_uint(j, "bytes", c->bytes);
    json_put_number(j, "time_s", c->time_s);
    json_put_number(j, "exposed_s", c->exposed_s);
    json_put_text(j, "algorithm", c->algorithm);
    json_put_text(j, "protocol", c->protocol);
    json_put_number(j, "busbw_GBps", c->busbw_GBps);
    json_out_close(j, '}');
}

static void write_collectives(JsonOut *j, const ReportRank *k)
{
    json_put_open(j, "collectives", '[');
    for (uint32_t i = 0; i < k->collectives_n; i++)
        write_collective(j, &k->collectives[i]);
    json_out_close(j, ']');
}

static void write_critical_path(JsonOut *j, const Report *r)
{
    json_put_open(j, "critical_path", '{');
    json_put_number(j, "compute_s", r->critical_compute_s);
    json_put_number(j, "comm_s", r->critical_comm_s);
    json_put_number(j, "bubble_s", r->critical_bubble_s);
    json_put_number(j, "launch_s", r->critical_launch_s);
    json_out_close(j, '}');
}

static void write_sim(JsonOut *j, const Report *r)
{
    json_put_open(j, "sim", '{');
    json_put_uint(j, "events", r->events);
    json_put_uint(j, "ops", r->ops);
    json_put_number(j, "wall_s", r->wall_s);
    json_out_close(j, '}');
}

static void write_rank(JsonOut *j, const ReportRank *k)
{
    json_out_open(j, '{');
    put_count(j, "rank", k->rank);
    put_count(j, "ranks_n", k->ranks_n);
    json_put_text(j, "role", k->role);
    put_count(j, "stage", k->stage);
    json_put_text(j, "gpu", k->gpu);
    json_put_number(j, "end_s", k->end_s);
    write_rates(j, &k->rates);
    write_times(j, &k->times);
    json_put_open(j, "memory", '{');
    write_memory(j, &k->memory, &k->memory);
    json_out_close(j, '}');
    json_put_bool(j, "fits", k->memory.fits);
    write_collectives(j, k);
    write_bounds(j, &k->bounds);
    json_out_close(j, '}');
}

static void write_layers(JsonOut *j, const MemoryDetail *d)
{
    json_put_open(j, "layers", '[');
    for (uint32_t i = 0; i < d->layers_n; i++) {
        json_out_open(j, '{');
        put_count(j, "layer", d->layers[i].layer);
        write_classes(d->layers[i].bytes, j);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void write_tensors(JsonOut *j, const ReportPeak *p)
{
    json_put_open(j, "tensors", '[');
    for (uint32_t i = 0; i < p->detail.tensors_n; i++) {
        const TensorMemory *t = &p->detail.tensors[i];
        json_out_open(j, '{');
        json_put_text(j, "name", p->tensor_name[i]);
        json_put_text(j, "class", tensor_class_names[t->class_]);
        json_put_uint(j, "count", t->count);
        json_put_uint(j, "bytes", t->bytes);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void write_peak(JsonOut *j, const Report *r)
{
    const ReportPeak *p = r->peak;
    json_put_open(j, "at_peak", '{');
    put_count(j, "rank", r->ranks[r->peak_rank].rank);
    json_put_text(j, "segment", p->segment);
    json_put_text(j, "op", p->op);
    put_count(j, "layer", p->layer);
    put_count(j, "micro_batch", p->micro_batch);
    json_put_open(j, "resident", '{');
    write_classes(p->resident, j);
    json_out_close(j, '}');
    write_layers(j, &p->detail);
    write_tensors(j, p);
    json_out_close(j, '}');
}

/* What tells two scenarios of one name apart. */
static void write_asked(JsonOut *j, const Report *r)
{
    json_put_text(j, "schedule", r->degree[DIM_PP] > 1 ? r->schedule : NULL);
    put_count(j, "virtual_stages", r->virtual_stages);
    json_put_bool(j, "sequence_parallel", r->sequence_parallel);
    json_put_text(j, "precision", r->precision);
    put_count(j, "global_batch", r->global_batch);
    put_count(j, "seq_len", r->seq_len);
    put_count(j, "micro_batch", r->micro_batch);
    put_count(j, "micro_batches", r->micro_batches);
    json_put_text(j, "recompute", r->recompute);
}

static void write_headline(JsonOut *j, const Report *r)
{
    json_put_text(j, "name", r->name);
    put_count(j, "gpus", r->gpus);
    json_put_text(j, "strategy", r->strategy);
    json_put_text(j, "model", r->model);
    json_put_text(j, "cluster", r->cluster);
    json_put_text(j, "gpu", r->gpu);
    json_put_text(j, "software", r->software);
    json_put_open(j, "degrees", '{');
    for (int d = 0; d < DIM_N; d++)
        put_count(j, dim_names[d], r->degree[d]);
    json_out_close(j, '}');
    write_asked(j, r);
}

void report_results_json(const Report *r, JsonOut *j)
{
    json_put_number(j, "step_time_s", r->step_time_s);
    json_put_number(j, "samples_per_s", r->samples_per_s);
    json_put_number(j, "tokens_per_s", r->tokens_per_s);
    json_put_number(j, "tokens_per_s_per_gpu", r->tokens_per_s_per_gpu);
    write_rates(j, &r->rates);
    write_times(j, &r->times);
    json_put_open(j, "memory", '{');
    json_put_uint(j, "peak_rank", r->ranks[r->peak_rank].rank);
    json_put_uint(j, "reserved_rank", r->ranks[r->full_rank].rank);
    write_memory(j, report_memory(r), report_fullest(r));
    json_out_close(j, '}');
    json_put_bool(j, "fits", r->fits);
    json_put_number(j, "cost_usd_per_step", r->cost_usd_per_step);
    write_critical_path(j, r);
    json_put_uint(j, "collectives_rank", r->ranks[r->comm_rank].rank);
    write_collectives(j, &r->ranks[r->comm_rank]);
    write_bounds(j, &r->bounds);
    json_put_open(j, "ranks", '[');
    for (uint32_t i = 0; i < r->ranks_n; i++)
        write_rank(j, &r->ranks[i]);
    json_out_close(j, ']');
    if (r->peak)
        write_peak(j, r);
    write_sim(j, r);
}

void report_json(const Report *r, JsonOut *j)
{
    json_out_open(j, '{');
    write_headline(j, r);
    report_results_json(r, j);
    json_out_close(j, '}');
}
