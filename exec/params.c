/*
 * params.c - runs of parameters from groups and shapes; first values.
 *
 * The graph says how many elements a rank holds, not which: that follows from the
 * rank's seat in the groups "tp", "dp", "dp_shard" and "dp_replicate", and from how
 * the whole is split.  First tp cuts rows or columns out of the whole, then the
 * share takes elements [i, i + 1) x ceil(n / ranks) of what tp has left.
 *
 * Optimizer state has no name of its own: the update's instance names state and
 * parameters of one block, and both stand in one order.
 */
#include "exec/params.h"

#include "exec/number.h"
#include "exec/random.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/jobs.h"

/* This rank's place in a group; { 1, 0 } where there is none. */
typedef struct Seat {
    uint32_t n, i;
} Seat;

/* What the tensors of a frame of PARAM, SHARD or STATE are. */
typedef struct Owner {
    uint32_t frame;       /* the one looked up */
    uint32_t param_frame; /* of PARAM or SHARD; the same but for STATE */
    uint32_t layout;      /* of the parameters after tp, before they are shared out */
    uint32_t each;        /* tensors of the frame per parameter */
    bool shards;          /* SLOT_SHARD */
} Owner;

typedef struct Maker {
    Pieces *out;
    uint32_t pieces_cap, runs_cap;
    const Program *p;
    const Graph *g;
    const WholeList *whole;
    Seat tp, dp, share, replicate;
    bool shares_state;
    Owner newest;
    Err *err;
} Maker;

/* A resident tensor and the parameter it is of. */
typedef struct Held {
    uint32_t resident, whole;
    Whole w; /* whole, with the sections that a bias has from its weight */
    PieceKind what;
    uint64_t rows, columns; /* after tp */
    uint64_t first, end;    /* of its elements, those that this tensor has */
    bool owner;             /* but for what tp ranks repeat */
} Held;

/* Rows of one section that a tp rank has. */
typedef struct Section {
    uint64_t whole, rows;
    bool repeats; /* another tp rank owns them */
} Section;

/* ---- looking up ---- */

static Seat seat(const Graph *g, const char *name, uint32_t rank)
{
    for (uint32_t i = 0; i < g->groups_n; i++) {
        const GroupSpec *s = &g->groups[i];
        if (strcmp(intern_text(&g->names, s->name), name) == 0 && group_has(s, rank))
            return (Seat){ group_size(s), group_index(s, rank) };
    }
    return (Seat){ 1, 0 };
}

static const Tensor *tensor_of(const Graph *g, uint32_t layout, uint32_t i)
{
    ASSERT(i < g->layouts[layout].tensor_n);
    return &g->tensors[g->layouts[layout].tensor_first + i];
}

static uint64_t elements_of(const Tensor *t)
{
    return t->bytes / dtype_bytes(t->dtype);
}

/* The first instance that names the frame in slot, and has `other` as well. */
static const Instance *instance_of(const Maker *m, Slot slot, uint32_t frame, Slot other)
{
    const Role *role = m->p->role;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Instance *x = &role->instances[i];
        if (x->frame[slot] == frame && m->g->segments[x->segment].layout[other] != NONE_U32)
            return x;
    }
    return NULL;
}

/* Shards are gathered into what the kernels read: that has the shape. */
static bool find_params(Maker *m, Owner *o)
{
    const Frame *frame = &m->p->role->frames[o->param_frame];
    o->layout = frame->layout;
    if (!o->shards)
        return true;
    const Instance *gather = instance_of(m, SLOT_SHARD, o->param_frame, SLOT_PARAM);
    if (!gather)
        return err_set(m->err, "the graph has shards that nobody gathers");
    o->layout = m->g->segments[gather->segment].layout[SLOT_PARAM];
    return true;
}

static bool find_owner(Maker *m, const Resident *r)
{
    Owner *o = &m->newest;
    if (o->frame == r->frame)
        return true;
    *o = (Owner){ .frame = r->frame, .param_frame = r->frame, .each = 1 };
    o->shards = r->slot == SLOT_SHARD;
    if (r->class_ == TENSOR_OPTIMIZER) {
        const Instance *shard = instance_of(m, SLOT_STATE, r->frame, SLOT_SHARD);
        const Instance *update =
            shard ? shard : instance_of(m, SLOT_STATE, r->frame, SLOT_PARAM);
        if (!update)
            return err_set(m->err, "the graph has optimizer state that nobody updates");
        o->shards = shard != NULL;
        o->param_frame = update->frame[o->shards ? SLOT_SHARD : SLOT_PARAM];
    }
    const Frame *frames = m->p->role->frames;
    o->each = m->g->layouts[frames[r->frame].layout].tensor_n /
              m->g->layouts[frames[o->param_frame].layout].tensor_n;
    return find_params(m, o);
}

static uint32_t find_whole(const Maker *m, uint32_t layer, const char *name)
{
    for (uint32_t i = 0; i < m->whole->n; i++)
        if (m->whole->whole[i].layer == layer && strcmp(m->whole->whole[i].name, name) == 0)
            return i;
    return NONE_U32;
}

/* A bias that is listed as a row is split as the rows of its weight are. */
static Whole whole_of(const Maker *m, uint32_t i)
{
    Whole w = m->whole->whole[i];
    size_t stem = strlen(w.name) > 4 ? strlen(w.name) - 4 : 0;
    if (w.rows != 1 || w.columns == 1 || strcmp(w.name + stem, "bias") != 0)
        return w;
    w.rows = w.columns;
    w.columns = 1;
    w.split = w.split == SPLIT_COLUMNS ? SPLIT_ROWS : w.split;
    for (uint32_t k = 0; k < m->whole->n && w.sections_n == 0; k++) {
        const Whole *v = &m->whole->whole[k];
        if (v->layer != w.layer || v->rows != w.rows || strncmp(v->name, w.name, stem) != 0 ||
            strcmp(v->name + stem, "weight") != 0)
            continue;
        w.sections_n = v->sections_n;
        memcpy(w.section_rows, v->section_rows, sizeof w.section_rows);
        memcpy(w.section_unit, v->section_unit, sizeof w.section_unit);
    }
    return w;
}

static bool holds(const Graph *g, const Frame *f, uint32_t layer, uint32_t name)
{
    if (!f->resident || f->layer != layer)
        return false;
    for (uint32_t i = 0; i < g->layouts[f->layout].tensor_n; i++) {
        const Tensor *t = tensor_of(g, f->layout, i);
        if (t->class_ == TENSOR_PARAM && t->name == name)
            return true;
    }
    return false;
}

/* A tied embedding lies at both ends of a pipeline: the first frame of the first role has it. */
static bool is_first_holder(const Maker *m, uint32_t frame, uint32_t name)
{
    const Role *mine = m->p->role;
    for (const Role *role = m->g->roles; role <= mine; role++) {
        uint32_t end = role == mine ? frame : role->frames_n;
        for (uint32_t f = 0; f < end; f++)
            if (holds(m->g, &role->frames[f], mine->frames[frame].layer, name))
                return false;
    }
    return true;
}

static PieceKind kind_of(const Maker *m, const Resident *r)
{
    const char *name = program_text(m->p, r->name);
    if (r->class_ == TENSOR_PARAM)
        return PIECE_PARAM;
    if (strcmp(name, "first moment") == 0)
        return PIECE_FIRST_MOMENT;
    if (strcmp(name, "second moment") == 0)
        return PIECE_SECOND_MOMENT;
    ASSERT(strcmp(name, "master weights") == 0); /* sim/segments.c */
    return PIECE_MASTER;
}

/* ---- tensor parallelism ---- */

/* Rows of section i that this rank has.  Rows of padding lie past the end of the whole. */
static Section section_of(const Maker *m, const Whole *w, uint32_t i, uint64_t local_rows)
{
    uint64_t before = 0, n = m->tp.n, self = m->tp.i;
    if (w->split != SPLIT_ROWS)
        return (Section){ 0, w->rows, w->split == SPLIT_NONE && self != 0 };
    if (w->sections_n <= 1) {
        uint64_t first = min_u64(self * local_rows, w->rows);
        return (Section){ first, min_u64(local_rows, w->rows - first), false };
    }
    for (uint32_t k = 0; k < i; k++)
        before += w->section_rows[k];
    uint64_t unit = max_u64(1, w->section_unit[i]), units = w->section_rows[i] / unit;
    if (units >= n)
        return (Section){ before + self * units / n * unit, units / n * unit, false };
    return (Section){ before + self * units / n * unit, unit, self % (n / units) != 0 };
}

static uint32_t sections_n(const Whole *w)
{
    return w->split == SPLIT_ROWS && w->sections_n > 1 ? w->sections_n : 1;
}

static bool shape_fits(const Maker *m, const Whole *w, const Held *h, uint64_t elements)
{
    uint64_t rows = 0;
    if (h->rows * h->columns != elements)
        return false;
    if (w->split == SPLIT_COLUMNS)
        return h->rows == w->rows && h->columns * m->tp.n == w->columns;
    if (w->split == SPLIT_ROWS && w->sections_n <= 1)
        return h->rows >= div_up_u64(w->rows, m->tp.n);
    if (w->table)
        return h->rows >= w->rows;
    for (uint32_t i = 0; i < sections_n(w); i++)
        rows += section_of(m, w, i, h->rows).rows;
    return h->rows == rows;
}

/* Rows and columns of what tp leaves of the whole, from the number of its elements. */
static bool find_shape(const Maker *m, Held *h, uint64_t elements)
{
    const Whole *w = &h->w;
    ASSERT(w->rows > 0 && w->columns > 0 && w->sections_n <= SECTIONS_MAX);
    h->columns = w->split == SPLIT_COLUMNS ? elements / w->rows : w->columns;
    h->rows = h->columns ? elements / h->columns : 0;
    if (shape_fits(m, w, h, elements))
        return true;
    return err_set(m->err,
                   "parameter '%s' of %" PRIu64 " x %" PRIu64
                   " cannot be what a rank of %" PRIu32 " holds in %" PRIu64 " elements",
                   w->name, w->rows, w->columns, m->tp.n, elements);
}

/* ---- runs ---- */

static void open_piece(Maker *m, const Held *h, bool owner)
{
    Pieces *x = m->out;
    const Piece *last = x->pieces_n ? &x->pieces[x->pieces_n - 1] : NULL;
    if (last && last->resident == h->resident && last->owner == owner)
        return;
    GROW(x->pieces, x->pieces_n, m->pieces_cap);
    x->pieces[x->pieces_n++] = (Piece){ .resident = h->resident,
                                        .whole = h->whole,
                                        .what = h->what,
                                        .owner = owner,
                                        .runs_first = x->runs_n };
}

/* Elements [local, local + n) of what tp leaves; those that this tensor has are added. */
static void add_run(Maker *m, const Held *h, uint64_t local, uint64_t whole, uint64_t n)
{
    Pieces *x = m->out;
    uint64_t first = max_u64(local, h->first), end = min_u64(local + n, h->end);
    if (first >= end)
        return;
    whole += first - local;
    n = end - first;
    local = first - h->first;
    Piece *piece = &x->pieces[x->pieces_n - 1];
    Run *last = piece->runs_n ? &x->runs[x->runs_n - 1] : NULL;
    if (last && last->local + last->n == local && last->whole + last->n == whole) {
        last->n += n;
        return;
    }
    GROW(x->runs, x->runs_n, m->runs_cap);
    x->runs[x->runs_n++] = (Run){ local, whole, n };
    piece->runs_n++;
}

static void add_section(Maker *m, const Held *h, Section s, uint64_t local_row)
{
    const Whole *w = &h->w;
    open_piece(m, h, h->owner && !s.repeats);
    if (w->split != SPLIT_COLUMNS) {
        add_run(m, h, local_row * h->columns, s.whole * w->columns, s.rows * w->columns);
    } else {
        uint64_t column = m->tp.i * h->columns;
        uint64_t first = h->first / h->columns, end = div_up_u64(h->end, h->columns);
        for (uint64_t r = first; r < end; r++)
            add_run(m, h, r * h->columns, r * w->columns + column, h->columns);
    }
    if (m->out->pieces[m->out->pieces_n - 1].runs_n == 0)
        m->out->pieces_n--; /* all of it is padding, or another rank's */
}

static void add_pieces(Maker *m, const Held *h)
{
    const Whole *w = &h->w;
    uint64_t row = 0;
    for (uint32_t i = 0; i < sections_n(w); i++) {
        Section s = section_of(m, w, i, h->rows);
        add_section(m, h, s, row);
        row += s.rows;
    }
}

/* ---- residents ---- */

static bool is_piece(const Resident *r)
{
    return (r->class_ == TENSOR_PARAM || r->class_ == TENSOR_OPTIMIZER) && r->elements > 0;
}

static const Tensor *param_of(const Maker *m, const Resident *r)
{
    return tensor_of(m->g, m->newest.layout, r->tensor / m->newest.each);
}

/* Which of n elements this tensor has. */
static bool take_share(Maker *m, Held *h, const Resident *r, uint64_t n)
{
    bool state = r->class_ == TENSOR_OPTIMIZER;
    bool shared = m->newest.shards || (state && m->shares_state);
    uint64_t each = shared ? div_up_u64(n, m->share.n) : n;
    h->first = shared ? min_u64(n, m->share.i * each) : 0;
    h->end = min_u64(n, h->first + each);
    h->owner = shared ? m->replicate.i == 0 : m->dp.i == 0;
    if (r->elements == each)
        return true;
    return err_set(m->err,
                   "a tensor of parameter '%s' has %" PRIu64 " elements; %" PRIu64
                   " ranks would share out its %" PRIu64 " otherwise",
                   h->w.name, r->elements, (uint64_t)(shared ? m->share.n : 1), n);
}

static bool add_resident(Maker *m, uint32_t i)
{
    const Resident *r = &m->p->residents[i];
    if (!find_owner(m, r))
        return false;
    const Tensor *param = param_of(m, r);
    const char *name = program_text(m->p, param->name);
    uint32_t layer = m->p->role->frames[m->newest.param_frame].layer;
    Held h = { .resident = i, .whole = find_whole(m, layer, name), .what = kind_of(m, r) };
    if (h.whole == NONE_U32)
        return err_set(m->err, "the model has no parameter '%s' in layer %" PRId64, name,
                       layer == NONE_U32 ? -1 : (int64_t)layer);
    h.w = whole_of(m, h.whole);
    if (!find_shape(m, &h, elements_of(param)) || !take_share(m, &h, r, elements_of(param)))
        return false;
    h.owner = h.owner && is_first_holder(m, m->newest.param_frame, param->name);
    add_pieces(m, &h);
    return true;
}

/* ZeRO shows in that state has fewer elements than what it is of.  (One element is not shared
 * out any further: looked at alone it would not tell.) */
static bool state_is_shared(Maker *m, bool *shared)
{
    *shared = false;
    for (uint32_t i = 0; i < m->p->residents_n && !*shared; i++) {
        const Resident *r = &m->p->residents[i];
        if (r->class_ != TENSOR_OPTIMIZER || r->elements == 0)
            continue;
        if (!find_owner(m, r))
            return false;
        *shared = r->elements < elements_of(param_of(m, r));
    }
    return true;
}

bool pieces_make(Pieces *out, const Program *p, const WholeList *whole, Err *err)
{
    const Graph *g = p->graph;
    *out = (Pieces){ 0 };
    Maker m = { .out = out, .p = p, .g = g, .whole = whole, .err = err };
    m.newest.frame = NONE_U32;
    m.tp = seat(g, "tp", p->rank);
    m.dp = m.share = seat(g, "dp", p->rank);
    m.replicate = (Seat){ 1, 0 };
    Seat shard = seat(g, "dp_shard", p->rank);
    if (shard.n > 1) {
        m.share = shard;
        m.replicate = seat(g, "dp_replicate", p->rank);
    }
    bool ok = state_is_shared(&m, &m.shares_state);
    for (uint32_t i = 0; i < p->residents_n && ok; i++)
        ok = !is_piece(&p->residents[i]) || add_resident(&m, i);
    if (!ok)
        pieces_free(out);
    return ok;
}

void pieces_free(Pieces *x)
{
    free(x->pieces);
    free(x->runs);
    *x = (Pieces){ 0 };
}

/* ---- first values ---- */

static void first_values(const Whole *w, uint64_t key, uint64_t first, uint64_t n, float *out)
{
    if (w->init == INIT_NORMAL)
        random_normals(key, first, n, out);
    for (uint64_t i = 0; i < n; i++)
        switch (w->init) {
        case INIT_NORMAL:
            out[i] = (float)((double)out[i] * w->init_scale);
            break;
        case INIT_UNIFORM:
            out[i] = (float)((2 * random_unit(key, first + i) - 1) * w->init_scale);
            break;
        case INIT_ONE:
        case INIT_ZERO:
            out[i] = w->init == INIT_ONE ? 1 : 0;
        }
}

Run pieces_stretch(const Pieces *x, const Piece *piece, uint32_t *run)
{
    const Run *runs = x->runs + piece->runs_first;
    Run all = runs[(*run)++];
    while (*run < piece->runs_n && runs[*run].local == all.local + all.n)
        all.n += runs[(*run)++].n;
    return all;
}

/* All bits are 0 then, in every format. */
static bool is_zero(const Piece *piece, const Whole *w)
{
    return w->init == INIT_ZERO || piece->what == PIECE_FIRST_MOMENT ||
           piece->what == PIECE_SECOND_MOMENT;
}

static bool clear_piece(const Pieces *x, const Piece *piece, const Resident *r, const Store *to,
                        Err *err)
{
    uint64_t each = dtype_bytes(r->dtype);
    for (uint32_t k = 0; k < piece->runs_n;) {
        Run run = pieces_stretch(x, piece, &k);
        if (!store_clear(to, r->offset + run.local * each, run.n * each, err))
            return false;
    }
    return true;
}

static bool clear_zeros(const Pieces *x, const Program *p, const WholeList *whole,
                        const Store *to, Err *err)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < x->pieces_n; i++) {
        const Piece *piece = &x->pieces[i];
        if (is_zero(piece, &whole->whole[piece->whole]))
            ok = clear_piece(x, piece, &p->residents[piece->resident], to, err);
    }
    return ok;
}

/* Large models take a minute on one processor: blocks of numbers are dealt to threads, and come out
 * the same whoever makes them. */
enum { FILL_BLOCK = STORE_CHUNK / sizeof(float), FILL_THREADS_MAX = 16 };

typedef struct Filling {
    const Pieces *x;
    const Program *p;
    const WholeList *whole;
    uint64_t seed;
    uint64_t mine, of; /* blocks mine, mine + of ... */
    StoreWriter to;
    bool ok;
    Err err;
} Filling;

/* At most a block. */
static bool make_values(Filling *f, const Whole *w, Run run, const Resident *r)
{
    float values[512];
    uint64_t key = random_key(f->seed, w->name, w->layer), each = dtype_bytes(r->dtype);
    uint8_t *to = store_place(&f->to, r->offset + run.local * each, run.n * each, &f->err);
    for (uint64_t i = 0; to && i < run.n; i += ARRAY_N(values)) {
        uint64_t n = min_u64(ARRAY_N(values), run.n - i);
        first_values(w, key, run.whole + i, n, values);
        numbers_narrow(r->dtype, values, n, to + i * each);
    }
    return to != NULL;
}

/* This thread's part of a run; *at counts the numbers of all, block by block. */
static void fill_run(Filling *f, const Whole *w, Run run, const Resident *r, uint64_t *at)
{
    for (uint64_t i = 0, n; f->ok && i < run.n; i += n, *at += n) {
        n = min_u64(FILL_BLOCK - *at % FILL_BLOCK, run.n - i);
        if (*at / FILL_BLOCK % f->of == f->mine)
            f->ok = make_values(f, w, (Run){ run.local + i, run.whole + i, n }, r);
    }
}

static void *fill(void *user)
{
    Filling *f = user;
    uint64_t at = 0;
    for (uint32_t i = 0; i < f->x->pieces_n; i++) {
        const Piece *piece = &f->x->pieces[i];
        const Whole *w = &f->whole->whole[piece->whole];
        if (is_zero(piece, w))
            continue;
        for (uint32_t k = 0; k < piece->runs_n; k++)
            fill_run(f, w, f->x->runs[piece->runs_first + k], &f->p->residents[piece->resident],
                     &at);
    }
    f->ok = store_flush(&f->to, &f->err) && f->ok;
    return NULL;
}

static uint64_t fill_threads(const Pieces *x)
{
    uint64_t numbers = 0;
    for (uint32_t i = 0; i < x->runs_n; i++)
        numbers += x->runs[i].n;
    uint64_t most = min_u64(jobs_processors(), FILL_THREADS_MAX);
    return max_u64(1, min_u64(most, numbers / FILL_BLOCK));
}

bool pieces_init(const Pieces *x, const Program *p, const WholeList *whole, uint64_t seed,
                 const Store *to, Err *err)
{
    pthread_t threads[FILL_THREADS_MAX];
    bool started[FILL_THREADS_MAX] = { false }, ok = clear_zeros(x, p, whole, to, err);
    Filling parts[FILL_THREADS_MAX];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    uint64_t n = ok ? fill_threads(x) : 0;
    for (uint64_t i = 0; i < n; i++) {
        parts[i] = (Filling){ .x = x,
                              .p = p,
                              .whole = whole,
                              .seed = seed,
                              .mine = i,
                              .of = n,
                              .to = { .store = to, .lock = &lock },
                              .ok = true };
        started[i] = i > 0 && pthread_create(&threads[i], NULL, fill, &parts[i]) == 0;
    }
    for (uint64_t i = 0; i < n; i++)
        if (!started[i])
            fill(&parts[i]);
    for (uint64_t i = 0; i < n; i++) {
        if (started[i])
            pthread_join(threads[i], NULL);
        ok = ok && (parts[i].ok || err_set(err, "%s", parts[i].err.text));
    }
    pthread_mutex_destroy(&lock);
    return ok;
}
