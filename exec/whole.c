/*
 * whole.c - shapes from two graphs, sections and first values from the names.
 */
#include "exec/whole.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"

/* Matmuls that hold several side by side; named in sim/blocks.h. */
#define NAME_QKV     "attention.qkv."
#define NAME_GATE_UP "mlp.gate_up."
/* Tables over the vocabulary, and the bias of its scores. */
static const char *const tables[] = { "tokens.weight", "head.weight", "head.bias" };

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- looking ---- */

typedef void EachParam(void *user, const Graph *g, const Layout *l, uint32_t i, uint32_t layer);

static void each_param(const Graph *g, EachParam *each, void *user)
{
    for (uint32_t r = 0; r < g->roles_n; r++)
        for (uint32_t f = 0; f < g->roles[r].frames_n; f++) {
            const Frame *frame = &g->roles[r].frames[f];
            const Layout *l = &g->layouts[frame->layout];
            for (uint32_t i = 0; frame->resident && i < l->tensor_n; i++)
                if (g->tensors[l->tensor_first + i].class_ == TENSOR_PARAM)
                    each(user, g, l, i, frame->layer);
        }
}

static Whole *find(const WholeList *w, uint32_t layer, const char *name)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->whole[i].layer == layer && strcmp(w->whole[i].name, name) == 0)
            return &w->whole[i];
    return NULL;
}

/* ---- one parameter ---- */

/* Biases and what norms hold are vectors, whichever way they lie in the graph. */
static void shape_of(const Tensor *t, const char *name, uint64_t *rows, uint64_t *columns)
{
    bool vector = text_ends_in(name, ".bias") || strstr(name, "norm");
    uint64_t n = t->dims[1] ? t->dims[1] : 1;
    *rows = vector ? t->dims[0] * n : t->dims[0];
    *columns = vector ? 1 : n;
}

static void add_sections(Whole *w, const WholeModel *m)
{
    uint64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    if (starts(w->name, NAME_QKV) && w->rows == q + 2 * kv) {
        w->sections_n = 3;
        for (uint32_t i = 0; i < 3; i++) {
            w->section_rows[i] = i == 0 ? q : kv;
            w->section_unit[i] = m->head_dim;
        }
    } else if (starts(w->name, NAME_GATE_UP)) {
        w->sections_n = 2;
        w->section_rows[0] = w->section_rows[1] = w->rows / 2;
        w->section_unit[0] = w->section_unit[1] = 1;
    }
}

/* torch.nn.Linear draws the bias from the range of its weight, which stands before it. */
static void add_init(Whole *w, const WholeModel *m, const Whole *before)
{
    bool norm = strstr(w->name, "norm") != NULL, bias = text_ends_in(w->name, ".bias");
    if (norm || (bias && !m->mlp)) {
        w->init = bias ? INIT_ZERO : INIT_ONE;
    } else if (m->mlp) {
        uint64_t inputs = bias && before ? before->columns : w->columns;
        w->init = INIT_UNIFORM;
        w->init_scale = 1 / sqrt((double)inputs);
    } else {
        w->init = INIT_NORMAL;
        w->init_scale = 0.02;
    }
}

static bool is_table(const char *name)
{
    for (size_t i = 0; i < ARRAY_N(tables); i++)
        if (strcmp(name, tables[i]) == 0)
            return true;
    return false;
}

typedef struct Lister {
    WholeList *list;
    uint32_t cap;
    const WholeModel *model;
    Err *err;
    bool ok;
} Lister;

static void add_param(void *user, const Graph *g, const Layout *l, uint32_t i, uint32_t layer)
{
    Lister *x = user;
    const Tensor *t = &g->tensors[l->tensor_first + i];
    const char *name = intern_text(&g->names, t->name);
    if (find(x->list, layer, name))
        return; /* a tied embedding at the other end */
    Whole w = { .layer = layer, .name = name, .table = !x->model->mlp && is_table(name) };
    shape_of(t, name, &w.rows, &w.columns);
    if (w.rows * w.columns * dtype_bytes(t->dtype) != t->bytes) {
        x->ok =
            err_set(x->err, "parameter '%s' of %" PRIu64 " x %" PRIu64 " has %" PRIu64 " bytes",
                    name, w.rows, w.columns, t->bytes);
        return;
    }
    add_sections(&w, x->model);
    add_init(&w, x->model, i > 0 ? &x->list->whole[x->list->n - 1] : NULL);
    GROW(x->list->whole, x->list->n, x->cap);
    x->list->whole[x->list->n++] = w;
}

static void compare_param(void *user, const Graph *g, const Layout *l, uint32_t i,
                          uint32_t layer)
{
    Lister *x = user;
    const Tensor *t = &g->tensors[l->tensor_first + i];
    const char *name = intern_text(&g->names, t->name);
    Whole *w = find(x->list, layer, name);
    if (!w) {
        x->ok = err_set(x->err, "parameter '%s' is not in the model for one process", name);
        return;
    }
    uint64_t rows, columns;
    shape_of(t, name, &rows, &columns);
    if (rows != w->rows || w->table) /* as many rows may lie here, some of them padding */
        w->split = SPLIT_ROWS;
    else if (columns != w->columns)
        w->split = SPLIT_COLUMNS;
}

bool whole_list(WholeList *out, const Graph *one, const Graph *split, const WholeModel *model,
                Err *err)
{
    *out = (WholeList){ 0 };
    Lister x = { .list = out, .model = model, .err = err, .ok = true };
    each_param(one, add_param, &x);
    if (x.ok && split)
        each_param(split, compare_param, &x);
    if (!x.ok)
        whole_free(out);
    return x.ok;
}

void whole_free(WholeList *w)
{
    free(w->whole);
    *w = (WholeList){ 0 };
}

/* ---- the norm ---- */

static bool role_holds(const Graph *g, const Role *role, uint32_t layer, uint32_t name)
{
    for (uint32_t f = 0; f < role->frames_n; f++) {
        const Frame *frame = &role->frames[f];
        const Layout *l = &g->layouts[frame->layout];
        for (uint32_t i = 0; frame->resident && frame->layer == layer && i < l->tensor_n; i++) {
            const Tensor *t = &g->tensors[l->tensor_first + i];
            if (t->class_ == TENSOR_PARAM && t->name == name)
                return true;
        }
    }
    return false;
}

/* Elements of the parameter, or of its shard, that this rank holds; none of them is padding. */
static uint64_t held_here(const NormOwners *o, const Whole *w)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < o->pieces->pieces_n; i++) {
        const Piece *x = &o->pieces->pieces[i];
        if (x->what != PIECE_PARAM || &o->whole->whole[x->whole] != w)
            continue;
        for (uint32_t k = x->runs_first; k < x->runs_first + x->runs_n; k++)
            end = max_u64(end, o->pieces->runs[k].local + o->pieces->runs[k].n);
    }
    return end;
}

uint64_t norm_counts(const void *owners, const Buffer *grad)
{
    const NormOwners *o = owners;
    const Program *p = o->p;
    const Frame *frame = &p->role->frames[grad->frame];
    const Whole *w = find(o->whole, frame->layer, program_text(p, grad->name));
    if (w && w->split == SPLIT_NONE && o->tp_index > 0)
        return 0;
    for (const Role *r = p->graph->roles; r < p->role; r++)
        if (role_holds(p->graph, r, frame->layer, grad->name))
            return 0;
    return w && grad->slot == SLOT_GRAD_SHARD ? held_here(o, w) : grad->elements;
}
