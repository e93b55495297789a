/*
 * chrome_names.c - what a span is called and says in Chrome JSON, so that people
 * and the analyzers that sort by name (HTA, TensorBoard) both understand it.
 */
#include <string.h>

#include "core/dtype.h"
#include "traces/chrome_parts.h"

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_set(const char *name)
{
    return strstr(name, "emset") || strstr(name, "fill");
}

const char *chrome_cat(const Timeline *t, const Track *track, uint64_t i)
{
    static const char *const cat[SPAN_CLASS_N] = {
        [SPAN_COMPUTE] = "kernel",       [SPAN_COMM] = "kernel",
        [SPAN_P2P] = "kernel",           [SPAN_MEMORY] = "gpu_memcpy",
        [SPAN_LAUNCH] = "cuda_runtime",  [SPAN_HOST] = "cpu_op",
        [SPAN_SYNC] = "cuda_sync",       [SPAN_STEP] = "user_annotation",
        [SPAN_NOTE] = "user_annotation",
    };
    SpanClass class_ = t->span_class[i];
    if (class_ == SPAN_MEMORY && is_set(timeline_text(t, t->span_name[i])))
        return "gpu_memset";
    if (class_ == SPAN_NOTE && track->kind == TRACK_STREAM)
        return "gpu_user_annotation";
    return cat[class_];
}

/* 51234567 -> "51.2 MB" */
static void put_size(ChromeWriter *w, uint64_t bytes)
{
    static const char *const unit[] = { " kB", " MB", " GB", " TB" };
    if (bytes < 1000) {
        text_out_u64(&w->out, bytes);
        PUT(w, " B");
        return;
    }
    uint64_t scale = 1000;
    size_t u = 0;
    for (; u + 1 < ARRAY_N(unit) && bytes / scale >= 1000; u++)
        scale *= 1000;
    uint64_t tenths = bytes / (scale / 10);
    text_out_u64(&w->out, tenths / 10);
    text_out_char(&w->out, '.');
    text_out_u64(&w->out, tenths % 10);
    text_out_text(&w->out, unit[u]);
}

/*
 * nccl:all_reduce dp 51.2 MB Kernel, nccl:send pp 4.2 MB to rank 5 Kernel.  HTA up
 * to 0.5 takes for communication what matches ^nccl.*Kernel, later ones ^nccl.
 */
static void put_comm_name(ChromeWriter *w, const Comm *c)
{
    PUT(w, "nccl:");
    chrome_put_name(w, c->op);
    if (c->group != NONE_U32) {
        text_out_char(&w->out, ' ');
        chrome_put_name(w, c->group);
    }
    if (c->bytes != NONE_U64) {
        text_out_char(&w->out, ' ');
        put_size(w, c->bytes);
    }
    if (c->peer != NONE_U32) {
        bool receives = strcmp(timeline_text(w->t, c->op), "recv") == 0;
        text_out_text(&w->out, receives ? " from rank " : " to rank ");
        text_out_u64(&w->out, c->peer);
    }
    PUT(w, " Kernel");
}

/* The number a step's name ends in, else how many steps of the track stand before it. */
static uint64_t step_number(const Track *track, const char *name, uint64_t i)
{
    size_t n = strlen(name), first = n;
    while (first > 0 && n - first < 18 && name[first - 1] >= '0' && name[first - 1] <= '9')
        first--;
    if (first == n)
        return i - track->span_first;
    uint64_t number = 0;
    for (; first < n; first++)
        number = 10 * number + (uint64_t)(name[first] - '0');
    return number;
}

/* What to put in front of, or instead of, a name that does not follow the convention. */
static bool put_unconventional(ChromeWriter *w, const Track *track, uint64_t i)
{
    uint32_t id = w->t->span_name[i];
    const char *name = timeline_text(w->t, id);
    const Comm *c = timeline_comm_of(w->t, i);
    switch ((SpanClass)w->t->span_class[i]) {
    case SPAN_COMM:
    case SPAN_P2P:
        if (starts_with(name, "nccl"))
            return false;
        if (c) {
            put_comm_name(w, c);
            return true;
        }
        PUT(w, "nccl:");
        chrome_put_name(w, id);
        PUT(w, " Kernel");
        return true;
    case SPAN_MEMORY:
        if (starts_with(name, "Memcpy") || starts_with(name, "Memset"))
            return false;
        text_out_text(&w->out, is_set(name) ? "Memset " : "Memcpy ");
        break;
    case SPAN_LAUNCH:
        if (starts_with(name, "cu") || starts_with(name, "hip"))
            return false;
        PUT(w, "cudaLaunchKernel");
        return true;
    case SPAN_SYNC:
        if (track->kind != TRACK_STREAM || strstr(name, "Sync") ||
            starts_with(name, "Stream Wait Event"))
            return false;
        PUT(w, "Stream Sync ");
        break;
    case SPAN_STEP:
        if (starts_with(name, "ProfilerStep#"))
            return false;
        PUT(w, "ProfilerStep#");
        text_out_u64(&w->out, step_number(track, name, i));
        return true;
    default:
        return false;
    }
    chrome_put_name(w, id);
    return true;
}

bool chrome_put_span_name(ChromeWriter *w, const Track *track, uint64_t i)
{
    if (put_unconventional(w, track, i))
        return false;
    chrome_put_name(w, w->t->span_name[i]);
    return true;
}

/* ---- arguments of communication ---- */

/* Ours -> PyTorch's; what is not listed is called the same. */
typedef struct Renamed {
    const char *ours, *theirs;
} Renamed;

static const Renamed collectives[] = {
    { "all_reduce", "allreduce" },
    { "all_gather", "_allgather_base" },
    { "reduce_scatter", "_reduce_scatter_base" },
};

static const Renamed dtypes[] = {
    { "f32", "Float" },         { "f16", "Half" }, { "bf16", "BFloat16" },
    { "fp8", "Float8_e4m3fn" }, { "i32", "Int" },  { "i64", "Long" },
};

static void put_renamed(ChromeWriter *w, const char *key, uint32_t name, const Renamed *table,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(timeline_text(w->t, name), table[i].ours) != 0)
            continue;
        chrome_arg(w, key);
        text_out_char(&w->out, '"');
        text_out_text(&w->out, table[i].theirs);
        text_out_char(&w->out, '"');
        return;
    }
    chrome_arg_name(w, key, name);
}

static uint64_t element_bytes(const char *dtype)
{
    for (DType d = 0; d < DTYPE_N; d++)
        if (strcmp(dtype, dtype_names[d]) == 0)
            return dtype_bytes(d);
    return 0;
}

/* Elements in and out of one rank; bytes counts the larger side, as nccl-tests does. */
static void put_elements(ChromeWriter *w, const Comm *c)
{
    uint64_t each = element_bytes(timeline_text(w->t, c->dtype));
    if (each == 0 || c->bytes == NONE_U64)
        return;
    uint64_t in = c->bytes / each, out = in;
    const char *op = timeline_text(w->t, c->op);
    if (c->ranks_n > 0 && strcmp(op, "all_gather") == 0)
        in /= c->ranks_n;
    if (c->ranks_n > 0 && strcmp(op, "reduce_scatter") == 0)
        out /= c->ranks_n;
    chrome_arg_u64(w, "In msg nelems", in);
    chrome_arg_u64(w, "Out msg nelems", out);
}

static void put_ends(ChromeWriter *w, const Track *track, const Comm *c)
{
    if (c->peer == NONE_U32)
        return;
    chrome_arg_u64(w, "peer", c->peer);
    bool receives = strcmp(timeline_text(w->t, c->op), "recv") == 0;
    chrome_arg_u64(w, "Src Rank", receives ? c->peer : track->rank);
    chrome_arg_u64(w, "Dst Rank", receives ? track->rank : c->peer);
}

static void put_group(ChromeWriter *w, const Comm *c)
{
    chrome_arg_name_if(w, "group", c->group);
    if (c->group_id != NONE_U32)
        chrome_arg_u64(w, "group_id", c->group_id);
    if (c->ranks_n > 0) {
        chrome_arg_u64(w, "ranks", c->ranks_n);
        chrome_arg_u64(w, "Group size", c->ranks_n);
    }
    if (c->group == NONE_U32)
        return;
    /* Members of one group share this name, members of another have another. */
    chrome_arg(w, "Process Group Name");
    text_out_char(&w->out, '"');
    chrome_put_name(w, c->group);
    if (c->group_id != NONE_U32) {
        text_out_char(&w->out, ':');
        text_out_u64(&w->out, c->group_id);
    }
    text_out_char(&w->out, '"');
    chrome_arg_name(w, "Process Group Description", c->group);
}

void chrome_put_comm_args(ChromeWriter *w, const Track *track, uint64_t i)
{
    const Comm *c = timeline_comm_of(w->t, i);
    if (!c)
        return;
    put_renamed(w, "Collective name", c->op, collectives, ARRAY_N(collectives));
    put_group(w, c);
    if (c->seq != NONE_U32)
        chrome_arg_u64(w, "seq", c->seq);
    put_ends(w, track, c);
    if (c->bytes != NONE_U64)
        chrome_arg_u64(w, "bytes", c->bytes);
    if (c->dtype != NONE_U32)
        put_renamed(w, "dtype", c->dtype, dtypes, ARRAY_N(dtypes));
    put_elements(w, c);
    chrome_arg_name_if(w, "algorithm", c->algorithm);
    chrome_arg_name_if(w, "protocol", c->protocol);
    if (timeline_ring_steps(w->t, c))
        chrome_arg_u64(w, "ring_steps", timeline_ring_steps(w->t, c));
    if (c->wait_ns >= 0) {
        chrome_arg(w, "wait_us");
        text_out_thousandths(&w->out, c->wait_ns);
    }
    double busbw = timeline_busbw_bytes_per_ns(w->t, i);
    if (busbw > 0 && busbw < 1e15) {
        chrome_arg(w, "busbw_GBps");
        text_out_thousandths(&w->out, (int64_t)(busbw * 1000 + 0.5));
    }
}

/* ---- how a kernel was launched ---- */

static void put_three(ChromeWriter *w, const char *key, const uint32_t three[3])
{
    chrome_arg(w, key);
    for (int i = 0; i < 3; i++) {
        text_out_char(&w->out, i ? ',' : '[');
        text_out_u64(&w->out, three[i]);
    }
    text_out_char(&w->out, ']');
}

void chrome_put_launch_args(ChromeWriter *w, uint64_t i)
{
    const KernelLaunch *l = timeline_launch_of(w->t, i);
    if (!l)
        return;
    if (l->registers_n != NONE_U32)
        chrome_arg_u64(w, "registers per thread", l->registers_n);
    if (l->shared_bytes != NONE_U32)
        chrome_arg_u64(w, "shared memory", l->shared_bytes);
    put_three(w, "grid", l->grid);
    put_three(w, "block", l->block);
    if (l->occupancy_pct != NONE_U32)
        chrome_arg_u64(w, "est. achieved occupancy %", l->occupancy_pct);
}
