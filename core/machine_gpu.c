/*
 * machine_gpu.c - reads a GPU: its data sheet and its fitted constants.
 *
 * The measured kernels of the file stand in machine_tables.c.
 */
#include <math.h>
#include <stddef.h>

#include "core/machine_parts.h"

static const char *const generation_names[GPU_GENERATION_N] = { "other",     "volta", "turing",
                                                                "ampere",    "ada",   "hopper",
                                                                "blackwell", "cdna3" };

Gpu gpu_blank(void)
{
    Gpu g = { .generation = GPU_GENERATION_N,
              .memory_bytes_per_ns = NAN,
              .host_bytes_per_ns = NAN,
              .tdp_w = NAN,
              .launch_ns = -1,
              .kernel_floor_ns = -1,
              .sustained_scale = NAN,
              .sustained_spread = NAN,
              .matmul_fill_ns = NAN,
              .matmul_tile_loss = NAN,
              .matmul_wave_rounding = NAN,
              .matmul_unaligned = NAN,
              .attention_efficiency = NAN,
              .attention_bwd_efficiency = NAN,
              .memory_efficiency = NAN,
              .comm_sms = NAN,
              .comm_memory_factor = NAN,
              .comm_matmul_factor = NAN,
              .sms = NONE_U32 };
    for (int t = 0; t < DTYPE_N; t++)
        g.matmul_efficiency[t] = NAN;
    return g;
}

/* ---- one layer ---- */

/* {dtype: value, ...} into per_dtype; a plain number is for every dtype where that is allowed. */
static void take_dtypes(JsonObj *o, const char *key, double scale, double max, bool plain,
                        double per_dtype[DTYPE_N])
{
    JsonNode node = json_get(o, key);
    if (!node.item)
        return;
    if (plain && json_type(node) == JSON_NUMBER) {
        double x = json_number(o, key, 1e-9, max, 0);
        for (int t = 0; t < DTYPE_N; t++)
            per_dtype[t] = x * scale;
        return;
    }
    if (!o->ok)
        return;
    JsonObj d = json_begin(node, o->err);
    for (int t = 0; t < DTYPE_N; t++) {
        double x = NAN;
        take_number(&d, dtype_names[t], 1e-9, max, &x);
        if (!isnan(x))
            per_dtype[t] = x * scale;
    }
    o->ok = json_end(&d);
}

static void take_efficiency(JsonObj *o, Gpu *g)
{
    JsonNode node = json_get(o, "efficiency");
    if (!node.item || !o->ok)
        return;
    JsonObj e = json_begin(node, o->err);
    take_dtypes(&e, "matmul", 1, 1, true, g->matmul_efficiency);
    take_number(&e, "attention", 1e-3, 1, &g->attention_efficiency);
    take_number(&e, "attention_bwd", 1e-3, 1, &g->attention_bwd_efficiency);
    take_number(&e, "memory", 1e-3, 1, &g->memory_efficiency);
    o->ok = json_end(&e);
}

static void take_matmul_model(JsonObj *o, Gpu *g)
{
    JsonNode node = json_get(o, "matmul_model");
    if (!node.item || !o->ok)
        return;
    double fill_us = NAN;
    JsonObj m = json_begin(node, o->err);
    take_number(&m, "fill_us", 0, 1e3, &fill_us);
    take_number(&m, "tile_loss", 0, 1e3, &g->matmul_tile_loss);
    take_number(&m, "wave_rounding", 0, 1, &g->matmul_wave_rounding);
    take_number(&m, "unaligned", 0.01, 1, &g->matmul_unaligned);
    if (!isnan(fill_us))
        g->matmul_fill_ns = fill_us * 1e3;
    o->ok = json_end(&m);
}

static void take_overlap(JsonObj *o, Gpu *g)
{
    JsonNode node = json_get(o, "overlap");
    if (!node.item || !o->ok)
        return;
    JsonObj v = json_begin(node, o->err);
    take_number(&v, "comm_sms", 0, 1e4, &g->comm_sms);
    take_number(&v, "comm_memory_factor", 0, 100, &g->comm_memory_factor);
    take_number(&v, "comm_matmul_factor", 1, 10, &g->comm_matmul_factor);
    o->ok = json_end(&v);
}

/* memory_GB is what people write; memory_bytes, where given, what the driver reports. */
static void take_memory(JsonObj *o, Gpu *g)
{
    double gb = NAN;
    take_number(o, "memory_GB", 1e-3, 1e6, &gb);
    if (!isnan(gb))
        g->memory_bytes = (uint64_t)llround(gb * 1e9);
    if (json_has(o, "memory_bytes"))
        g->memory_bytes = json_size(o, "memory_bytes", 1, (uint64_t)1 << 50, 1);
    take_number(o, "memory_GBps", 1e-3, 1e6, &g->memory_bytes_per_ns);
    take_number(o, "host_GBps", 1e-3, 1e5, &g->host_bytes_per_ns);
}

static void take_keys(const MachineReader *r, JsonObj *o, Gpu *g)
{
    if (json_has(o, "name"))
        g->name = arena_strdup(r->arena, json_string(o, "name", ""));
    if (json_has(o, "generation"))
        g->generation =
            (GpuGeneration)json_word(o, "generation", generation_names, GPU_GENERATION_N, -1);
    take_dtypes(o, "peak_tflops", 1e3, 1e6, false, g->peak_flops_per_ns);
    take_memory(o, g);
    take_u32(o, "sms", 0, 100000, &g->sms);
    take_us(o, "launch_us", &g->launch_ns);
    take_number(o, "tdp_w", 0, 1e6, &g->tdp_w);
    take_us(o, "kernel_floor_us", &g->kernel_floor_ns);
    /* A scale of its own is nobody's steps' unless it says so. */
    if (json_has(o, "sustained_scale") || json_has(o, "sustained_from"))
        g->sustained_from = arena_strdup(r->arena, json_string(o, "sustained_from", ""));
    take_number(o, "sustained_scale", 0.1, 10, &g->sustained_scale);
    if (json_has(o, "sustained_scale"))
        g->sustained_spread = 0; /* it is as said, unless a spread is said as well */
    take_number(o, "sustained_spread", 0, 0.5, &g->sustained_spread);
    take_matmul_model(o, g);
    take_efficiency(o, g);
    take_overlap(o, g);
    if (json_has(o, "kernels") && o->ok)
        o->ok = gpu_tables(r, g, json_get(o, "kernels"));
    take_provenance(o, r->arena, &g->provenance);
    skip_key(o, "aliases");
    skip_key(o, "notes");
}

/* Tables that the layer has not given are of the GPU as it was before. */
static void keep_measured(const MachineReader *r, Gpu *g, const Gpu *before)
{
    const bool kept[GPU_ROWS_N] = {
        [GPU_ROWS_GEMM] = before->gemm && g->gemm == before->gemm,
        [GPU_ROWS_MEMORY] = before->memory && g->memory == before->memory,
        [GPU_ROWS_ATTENTION] = before->attention && g->attention == before->attention,
    };
    Gpu *copy = NULL;
    for (int t = 0; t < GPU_ROWS_N; t++) {
        if (!kept[t])
            g->measured[t] = NULL;
        if (!kept[t] || g->measured[t])
            continue;
        if (!copy) {
            copy = PUSH(r->arena, Gpu);
            *copy = *before;
        }
        g->measured[t] = copy;
    }
}

/* Lays the file that name means over *g; *doc stays open for its log. */
static bool layer_file(const MachineReader *r, Gpu *g, JsonNode name, uint32_t depth,
                       JsonDoc **doc);

static bool layer_object(const MachineReader *r, Gpu *g, JsonNode node, uint32_t depth)
{
    JsonObj o = json_begin(node, r->err);
    JsonNode base = json_get(&o, "base");
    JsonDoc *doc = NULL;
    if (base.item && o.ok) {
        *g = gpu_blank();
        o.ok = layer_file(r, g, base, depth + 1, &doc);
    }
    if (o.ok && base.item)
        json_log_value(base, json_text(base), false);
    const Gpu before = *g;
    take_keys(r, &o, g);
    bool ok = json_end(&o);
    keep_measured(r, g, &before);
    if (doc)
        json_log_adopt(node, doc);
    json_close(doc);
    return ok;
}

static bool layer_file(const MachineReader *r, Gpu *g, JsonNode name, uint32_t depth,
                       JsonDoc **doc)
{
    if (depth > MACHINE_LAYERS_MAX)
        return json_fail(name, r->err, "bases of bases, more than %d deep", MACHINE_LAYERS_MAX);
    *doc = machine_open(r, name, "gpus");
    if (!*doc)
        return false;
    return layer_object(r, g, json_root(*doc), depth);
}

bool gpu_layer(const MachineReader *r, Gpu *g, JsonNode node)
{
    if (json_type(node) != JSON_STRING)
        return layer_object(r, g, node, 0);
    JsonDoc *doc = NULL;
    *g = gpu_blank();
    bool ok = layer_file(r, g, node, 0, &doc);
    if (doc)
        json_log_adopt(node, doc);
    json_close(doc);
    return ok;
}

/* ---- defaults ---- */

static bool gpu_complete(const Gpu *g, JsonNode node, Err *err)
{
    double peak = 0;
    for (int t = 0; t < DTYPE_N; t++)
        peak += g->peak_flops_per_ns[t];
    if (peak == 0)
        return json_fail(json_member(node, "peak_tflops"), err, "the key is missing");
    if (g->memory_bytes == 0)
        return json_fail(json_member(node, "memory_GB"), err, "the key is missing");
    if (isnan(g->memory_bytes_per_ns))
        return json_fail(json_member(node, "memory_GBps"), err, "the key is missing");
    return true;
}

/*
 * Where the file says nothing: a GPU like an A100 (see its provenance).  Without a
 * count of SMs nothing is quantised, and collectives take none of them.
 */
static void settle(Gpu *g, JsonNode node)
{
    if (!g->name)
        g->name = "gpu";
    if (g->generation == GPU_GENERATION_N)
        g->generation = GPU_OTHER;
    if (g->sms == NONE_U32)
        g->sms = 0;
    g->quantise = g->sms > 0;
    settle_number(&g->host_bytes_per_ns, 25, node, "host_GBps");
    settle_number(&g->tdp_w, 0, node, "tdp_w");
    settle_us(&g->launch_ns, 4000, node, "launch_us");
    settle_us(&g->kernel_floor_ns, 2000, node, "kernel_floor_us");
    settle_number(&g->sustained_scale, 1, node, "sustained_scale");
    settle_number(&g->sustained_spread, 0, node, "sustained_spread");
    double fill_us = g->matmul_fill_ns / 1e3;
    settle_number(&fill_us, 4, node, "matmul_model.fill_us");
    g->matmul_fill_ns = fill_us * 1e3;
    settle_number(&g->matmul_tile_loss, 16, node, "matmul_model.tile_loss");
    settle_number(&g->matmul_wave_rounding, 0.5, node, "matmul_model.wave_rounding");
    settle_number(&g->matmul_unaligned, 1, node, "matmul_model.unaligned");
    for (int t = 0; t < DTYPE_N; t++)
        if (isnan(g->matmul_efficiency[t]))
            g->matmul_efficiency[t] = 0.8;
    settle_number(&g->attention_efficiency, 0.6, node, "efficiency.attention");
    settle_number(&g->attention_bwd_efficiency, 0.5, node, "efficiency.attention_bwd");
    settle_number(&g->memory_efficiency, 0.85, node, "efficiency.memory");
    settle_number(&g->comm_sms, g->sms ? 16 : 0, node, "overlap.comm_sms");
    settle_number(&g->comm_memory_factor, g->sms ? 3 : 0, node, "overlap.comm_memory_factor");
    settle_number(&g->comm_matmul_factor, 1, node, "overlap.comm_matmul_factor");
    if (!g->provenance)
        g->provenance = "";
    if (!g->sustained_from)
        g->sustained_from = "";
}

/* What a layer left open another completes: that is no other GPU. */
static void fill_open(Gpu *g, const Gpu *by)
{
    static const size_t numbers[] = {
        offsetof(Gpu, memory_bytes_per_ns),      offsetof(Gpu, matmul_fill_ns),
        offsetof(Gpu, matmul_tile_loss),         offsetof(Gpu, matmul_wave_rounding),
        offsetof(Gpu, matmul_unaligned),         offsetof(Gpu, attention_efficiency),
        offsetof(Gpu, attention_bwd_efficiency), offsetof(Gpu, memory_efficiency),
    };
    for (size_t i = 0; i < ARRAY_N(numbers); i++) {
        double *x = (double *)(void *)((char *)g + numbers[i]);
        if (isnan(*x))
            *x = *(const double *)(const void *)((const char *)by + numbers[i]);
    }
    for (int t = 0; t < DTYPE_N; t++) {
        if (isnan(g->matmul_efficiency[t]))
            g->matmul_efficiency[t] = by->matmul_efficiency[t];
        if (!(g->peak_flops_per_ns[t] > 0))
            g->peak_flops_per_ns[t] = by->peak_flops_per_ns[t];
    }
    g->kernel_floor_ns = g->kernel_floor_ns < 0 ? by->kernel_floor_ns : g->kernel_floor_ns;
    g->generation = g->generation == GPU_GENERATION_N ? by->generation : g->generation;
    g->sms = g->sms == NONE_U32 ? by->sms : g->sms;
    g->quantise = g->sms > 0;
}

bool gpu_settle(Arena *arena, Gpu *g, JsonNode node, Err *err)
{
    if (!gpu_complete(g, node, err))
        return false;
    settle(g, node);
    for (int t = 0; t < GPU_ROWS_N; t++) {
        if (!g->measured[t])
            continue;
        Gpu *copy = PUSH(arena, Gpu); /* node types may share what it is of */
        *copy = *g->measured[t];
        fill_open(copy, g);
        g->measured[t] = copy;
    }
    return true;
}

double gpu_peak_flops_per_ns(const Gpu *g, DType dtype)
{
    static const DType instead[DTYPE_N] = {
        [DTYPE_F32] = DTYPE_TF32, [DTYPE_TF32] = DTYPE_F32, [DTYPE_F16] = DTYPE_BF16,
        [DTYPE_BF16] = DTYPE_F32, [DTYPE_FP8] = DTYPE_F16,  [DTYPE_I32] = DTYPE_F32,
        [DTYPE_I64] = DTYPE_F32
    };
    for (int i = 0; i < DTYPE_N; i++) {
        if (g->peak_flops_per_ns[dtype] > 0)
            return g->peak_flops_per_ns[dtype];
        dtype = instead[dtype];
    }
    double most = 0;
    for (int t = 0; t < DTYPE_N; t++)
        most = fmax(most, g->peak_flops_per_ns[t]);
    return most;
}

const Gpu *gpu_read(Arena *arena, JsonNode node, const char *share_dir, Err *err)
{
    MachineReader r = { arena, share_dir, err };
    Gpu g = gpu_blank();
    if (!gpu_layer(&r, &g, node) || !gpu_settle(arena, &g, node, err))
        return NULL;
    Gpu *out = PUSH(arena, Gpu);
    *out = g;
    return out;
}
