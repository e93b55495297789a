/*
 * memory.c - peaks and what they are made of.
 *
 * Segments are summed once, by class; instances then cost one addition each.
 * Only the instance of the peak is walked op by op.
 */
#include "sim/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- sums ---- */

static const Segment *segment_of(const Graph *g, const Role *role, uint32_t instance)
{
    return &g->segments[role->instances[instance].segment];
}

/* What op does to the allocated bytes of each class: births before it runs, deaths after. */
static void apply_op(int64_t *bytes, const Graph *g, const Segment *s, const Op *op,
                     bool births)
{
    for (uint32_t a = 0; a < op->arg_n; a++) {
        const Arg *arg = &g->args[op->arg_first + a];
        if (!(births ? arg->born : arg->dies))
            continue;
        const Tensor *t = graph_arg_tensor(g, s, arg);
        bytes[t->class_] += births ? (int64_t)t->bytes : -(int64_t)t->bytes;
    }
}

static int64_t sum_of(const int64_t *bytes)
{
    int64_t sum = 0;
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        sum += bytes[c];
    return sum;
}

static void add_residents(int64_t *bytes, const Graph *g, const Role *role)
{
    for (uint32_t f = 0; f < role->frames_n; f++) {
        const Layout *l = &g->layouts[role->frames[f].layout];
        for (uint32_t i = 0; role->frames[f].resident && i < l->tensor_n; i++) {
            const Tensor *t = &g->tensors[l->tensor_first + i];
            bytes[t->class_] += (int64_t)t->bytes;
        }
    }
}

/* ---- the peak ---- */

static void find_peak(RoleMemory *m, const Graph *g, const Role *role, int64_t resident)
{
    int64_t now = resident, peak = resident;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Segment *s = segment_of(g, role, i);
        if (m->before)
            m->before[i] = (uint64_t)now;
        if (now + s->memory_peak > peak) {
            peak = now + s->memory_peak;
            m->peak_instance = i;
        }
        now += s->memory_delta;
        ASSERT(now >= 0);
    }
    if (m->before)
        m->before[role->instances_n] = (uint64_t)now;
    m->peak_bytes = (uint64_t)peak;
}

/* Adds up bytes to the peak: whole instances before it, then its ops. */
static void compose_peak(RoleMemory *m, int64_t *bytes, const Graph *g, const Role *role)
{
    if (m->peak_instance == NONE_U32)
        return;
    for (uint32_t i = 0; i < m->peak_instance; i++) {
        const Segment *before = segment_of(g, role, i);
        for (int c = 0; c < TENSOR_CLASS_N; c++)
            bytes[c] += before->memory_delta_of[c];
    }
    const Segment *s = segment_of(g, role, m->peak_instance);
    for (m->peak_op = 0;; m->peak_op++) {
        ASSERT(m->peak_op < s->op_n);
        const Op *op = graph_ops(g, s) + m->peak_op;
        apply_op(bytes, g, s, op, true);
        if ((uint64_t)sum_of(bytes) == m->peak_bytes)
            return;
        apply_op(bytes, g, s, op, false);
    }
}

RoleMemory memory_of_role(const Graph *g, const Role *role, Arena *before)
{
    ASSERT(g->sealed);
    RoleMemory m = { .peak_instance = NONE_U32, .peak_op = NONE_U32 };
    int64_t bytes[TENSOR_CLASS_N] = { 0 };
    if (before)
        m.before = PUSH_ARRAY(before, uint64_t, (size_t)role->instances_n + 1);
    add_residents(bytes, g, role);
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        m.resident[c] = (uint64_t)bytes[c];
    find_peak(&m, g, role, sum_of(bytes));
    compose_peak(&m, bytes, g, role);
    for (int c = 0; c < TENSOR_CLASS_N; c++) {
        ASSERT(bytes[c] >= 0);
        m.at_peak[c] = (uint64_t)bytes[c];
    }
    return m;
}

RoleMemory *memory_of_roles(const Graph *g, const Machine *machine, const Software *sw,
                            bool before, Arena *arena)
{
    RoleMemory *memory = PUSH_ARRAY(arena, RoleMemory, g->roles_n);
    for (uint32_t i = 0; i < g->roles_n; i++) {
        memory[i] = memory_of_role(g, &g->roles[i], before ? arena : NULL);
        memory_replay(&memory[i], g, &g->roles[i], machine, sw);
    }
    return memory;
}

/* ---- what is alive at the peak ---- */

/* Who lives: a count per tensor of every frame, and per tensor of no frame (locals). */
typedef struct Alive {
    const Graph *g;
    const Role *role;
    size_t *frame_first; /* by frame: its first tensor's place in count */
    int32_t *count;
    int32_t *local;        /* by Graph.tensors */
    uint32_t *local_layer; /* of the instance that gave birth to it */
} Alive;

size_t *role_places(const Graph *g, const Role *role, size_t *places_n)
{
    size_t *first = mem_zero((size_t)role->frames_n + 1, sizeof *first);
    *places_n = 0;
    for (uint32_t f = 0; f < role->frames_n; f++) {
        first[f] = *places_n;
        *places_n += g->layouts[role->frames[f].layout].tensor_n;
    }
    first[role->frames_n] = *places_n;
    return first;
}

static Alive alive_open(const Graph *g, const Role *role)
{
    Alive a = { .g = g, .role = role };
    size_t places;
    a.frame_first = role_places(g, role, &places);
    a.count = mem_zero(places + 1, sizeof *a.count);
    a.local = mem_zero((size_t)g->tensors_n + 1, sizeof *a.local);
    a.local_layer = mem_zero((size_t)g->tensors_n + 1, sizeof *a.local_layer);
    for (uint32_t f = 0; f < role->frames_n; f++)
        for (size_t i = a.frame_first[f]; role->frames[f].resident && i < a.frame_first[f + 1];
             i++)
            a.count[i] = 1;
    return a;
}

static void alive_close(Alive *a)
{
    free(a->frame_first);
    free(a->count);
    free(a->local);
    free(a->local_layer);
}

static void alive_change(Alive *a, const Instance *in, const Arg *arg, int32_t by)
{
    uint32_t frame = in->frame[arg->slot];
    if (frame != NONE_U32) {
        a->count[a->frame_first[frame] + arg->tensor] += by;
        return;
    }
    const Segment *s = &a->g->segments[in->segment];
    size_t tensor = (size_t)(graph_arg_tensor(a->g, s, arg) - a->g->tensors);
    a->local[tensor] += by;
    a->local_layer[tensor] = in->layer;
}

static void alive_op(Alive *a, const Instance *in, const Op *op, bool births)
{
    for (uint32_t i = 0; i < op->arg_n; i++) {
        const Arg *arg = &a->g->args[op->arg_first + i];
        if (births ? arg->born : arg->dies)
            alive_change(a, in, arg, births ? 1 : -1);
    }
}

static void alive_until_peak(Alive *a, const RoleMemory *m)
{
    for (uint32_t i = 0; m->peak_instance != NONE_U32 && i <= m->peak_instance; i++) {
        const Instance *in = &a->role->instances[i];
        const Segment *s = &a->g->segments[in->segment];
        for (uint32_t k = 0; k < s->op_n; k++) {
            alive_op(a, in, graph_ops(a->g, s) + k, true);
            if (i == m->peak_instance && k == m->peak_op)
                return;
            alive_op(a, in, graph_ops(a->g, s) + k, false);
        }
    }
}

typedef struct Tally {
    const Graph *g;
    uint32_t layers_max; /* layer numbers are below; the last entry is for none */
    LayerMemory *layers;
    TensorMemory *tensors; /* by name * TENSOR_CLASS_N + class */
} Tally;

static void tally(Tally *y, uint32_t tensor, uint32_t layer, int32_t count)
{
    if (count <= 0)
        return;
    const Tensor *t = &y->g->tensors[tensor];
    uint64_t n = (uint64_t)count;
    uint32_t place = layer == NONE_U32 ? y->layers_max : layer;
    y->layers[place].bytes[t->class_] += n * t->bytes;
    TensorMemory *row = &y->tensors[(size_t)t->name * TENSOR_CLASS_N + t->class_];
    row->name = t->name;
    row->class_ = t->class_;
    row->count += n;
    row->bytes += n * t->bytes;
}

static void tally_alive(Tally *y, const Alive *a)
{
    for (uint32_t f = 0; f < a->role->frames_n; f++) {
        const Frame *frame = &a->role->frames[f];
        uint32_t first = a->g->layouts[frame->layout].tensor_first;
        for (size_t i = a->frame_first[f]; i < a->frame_first[f + 1]; i++)
            tally(y, first + (uint32_t)(i - a->frame_first[f]), frame->layer, a->count[i]);
    }
    for (uint32_t t = 0; t < a->g->tensors_n; t++)
        tally(y, t, a->local_layer[t], a->local[t]);
}

/* Layers are numbers of the model: frames and instances say how many there are. */
static uint32_t layers_of(const Role *role)
{
    uint32_t n = 0;
    for (uint32_t f = 0; f < role->frames_n; f++)
        if (role->frames[f].layer != NONE_U32 && role->frames[f].layer >= n)
            n = role->frames[f].layer + 1;
    for (uint32_t i = 0; i < role->instances_n; i++)
        if (role->instances[i].layer != NONE_U32 && role->instances[i].layer >= n)
            n = role->instances[i].layer + 1;
    return n;
}

/* Largest first, then by name: names are numbered in order of first sight. */
static int compare_tensors(const void *a, const void *b)
{
    const TensorMemory *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    return x->class_ < y->class_ ? -1 : x->class_ > y->class_;
}

static MemoryDetail keep_rows(Tally *y, Arena *arena)
{
    MemoryDetail d = { 0 };
    size_t rows = (size_t)y->g->names.n * TENSOR_CLASS_N;
    for (size_t i = 0; i < rows; i++)
        if (y->tensors[i].bytes > 0)
            y->tensors[d.tensors_n++] = y->tensors[i];
    if (d.tensors_n)
        qsort(y->tensors, d.tensors_n, sizeof *y->tensors, compare_tensors);
    for (uint32_t l = 0; l <= y->layers_max; l++) {
        uint64_t bytes = 0;
        y->layers[l].layer = l == y->layers_max ? NONE_U32 : l;
        for (int c = 0; c < TENSOR_CLASS_N; c++)
            bytes += y->layers[l].bytes[c];
        if (bytes > 0)
            y->layers[d.layers_n++] = y->layers[l];
    }
    d.tensors = PUSH_ARRAY(arena, TensorMemory, d.tensors_n);
    d.layers = PUSH_ARRAY(arena, LayerMemory, d.layers_n);
    if (d.tensors_n)
        memcpy(d.tensors, y->tensors, d.tensors_n * sizeof *d.tensors);
    if (d.layers_n)
        memcpy(d.layers, y->layers, d.layers_n * sizeof *d.layers);
    return d;
}

MemoryDetail memory_detail(const Graph *g, const Role *role, const RoleMemory *m, Arena *arena)
{
    Alive alive = alive_open(g, role);
    alive_until_peak(&alive, m);
    Tally y = { .g = g, .layers_max = layers_of(role) };
    y.layers = mem_zero((size_t)y.layers_max + 1, sizeof *y.layers);
    y.tensors = mem_zero((size_t)g->names.n * TENSOR_CLASS_N + 1, sizeof *y.tensors);
    tally_alive(&y, &alive);
    alive_close(&alive);
    MemoryDetail d = keep_rows(&y, arena);
    free(y.layers);
    free(y.tensors);
    return d;
}
