/*
 * program.c - a rank's tasks from its role: who waits for whom, and where tensors lie.
 *
 * Two clocks stand with every task: how many tasks of each lane are done before it
 * begins, by lane order, the launching host and waits alone (`model`), and with
 * guards as well (`real`).  A wait that a clock implies is left out; so is a guard.
 *
 * GUARDS MUST NOT BLOCK.  Lanes of different ranks meet in sends and receives, so a
 * guard that the graph knows nothing of could close a circle over two ranks.  A
 * task therefore reuses memory only when all transfers between different programs
 * that the memory's last users came after are ones that the task comes after
 * anyway.  What is left to wait for is work of this rank, and collectives of ranks
 * that run this same program, which all come to them in program order.
 */
#include "exec/program.h"

#include <stdlib.h>
#include <string.h>

#include "exec/space.h"

/* A tensor of a frame, or a local one. */
typedef struct Life {
    bool alive, resident;
    uint64_t offset;
    Touched touched;
} Life;

typedef struct Ending {
    uint64_t offset, bytes;
    Touched touched;
} Ending;

typedef struct Maker {
    Program *p;
    const Graph *g;
    const Role *role;
    uint32_t args_cap, waits_cap, guards_cap;
    size_t *frame_first; /* by frame: its first tensor's place in lives */
    Life *lives;         /* of all frames, then of Graph.tensors: locals */
    size_t locals_first;
    Touched *model, *real;     /* by task, at its start */
    uint32_t *foreign[LANE_N]; /* of the first n tasks of a lane: transfers between programs */
    uint32_t host_task;        /* the newest of LANE_HOST; NONE_U32 */
    uint32_t group_first;      /* first task of those posted together with this one */
    Buffer staging;            /* of the task at work */
    uint32_t endings_n, endings_cap;
    Ending *endings; /* deaths, until all that is posted together is done */
    Space space;
    uint64_t alive_bytes;
    Err *err;
} Maker;

/* ---- clocks ---- */

/* What is known once task t is done. */
static Touched after(const Maker *m, const Touched *clock, uint32_t t)
{
    Touched done = clock[t];
    const Task *task = &m->p->tasks[t];
    if (done.done[task->lane] <= task->order)
        done.done[task->lane] = task->order + 1;
    return done;
}

static void merge_after(const Maker *m, uint32_t to, uint32_t t)
{
    Touched model = after(m, m->model, t), real = after(m, m->real, t);
    touched_merge(&m->model[to], &model);
    touched_merge(&m->real[to], &real);
}

/* Lane order and the host, before any wait. */
static void begin_clock(Maker *m, uint32_t t)
{
    const Task *task = &m->p->tasks[t];
    if (m->group_first < t) { /* begins with the first of its group */
        m->model[t] = m->model[m->group_first];
        m->real[t] = m->real[m->group_first];
        return;
    }
    if (task->order > 0)
        merge_after(m, t, program_task_at(m->p, task->lane, task->order - 1));
    if (m->host_task != NONE_U32 && m->host_task != t)
        merge_after(m, t, m->host_task);
}

/* Keeps of want[] what neither clock nor another of them implies. */
static uint32_t needed_marks(const Maker *m, const Touched *clock, const Touched *at_start,
                             const Touched *want, Mark *marks)
{
    uint32_t n = 0;
    for (uint32_t lane = 0; lane < LANE_N; lane++) {
        Mark mark = { lane, want->done[lane] };
        bool implied = mark.done <= at_start->done[lane];
        for (uint32_t other = 0; other < LANE_N && !implied; other++) {
            if (other == lane || want->done[other] <= at_start->done[other])
                continue;
            Touched known =
                after(m, clock, program_marked(m->p, (Mark){ other, want->done[other] }));
            implied = known.done[lane] >= mark.done;
        }
        if (!implied)
            marks[n++] = mark;
    }
    return n;
}

/* ---- waits ---- */

static void want_op(const Maker *m, Touched *want, uint32_t own_lane, uint32_t t)
{
    const Task *task = &m->p->tasks[t];
    if (task->lane != (Lane)own_lane && want->done[task->lane] <= task->order)
        want->done[task->lane] = task->order + 1;
}

static void add_waits(Maker *m, uint32_t t)
{
    Program *p = m->p;
    Task *task = &p->tasks[t];
    const Instance *in = task->instance;
    Touched want = { 0 };
    for (uint32_t d = 0; d < task->op->dep_n; d++)
        want_op(m, &want, task->lane, in->first_op + m->g->deps[task->op->dep_first + d]);
    for (uint32_t e = 0; e < in->edge_n; e++) {
        const Edge *edge = &m->role->edges[in->edge_first + e];
        const Instance *src = &m->role->instances[edge->src_instance];
        if (in->first_op + edge->dst_op == t)
            want_op(m, &want, task->lane, src->first_op + edge->src_op);
    }
    Mark marks[LANE_N];
    task->waits_first = p->waits_n;
    task->waits_n = needed_marks(m, m->model, &m->model[t], &want, marks);
    for (uint32_t i = 0; i < task->waits_n; i++) {
        GROW(p->waits, p->waits_n, m->waits_cap);
        p->waits[p->waits_n++] = marks[i];
        merge_after(m, t, program_marked(m->p, marks[i]));
    }
}

/* ---- guards ---- */

typedef struct Taking {
    const Maker *m;
    uint32_t task;
} Taking;

static bool may_follow(void *user, const Touched *touched)
{
    const Taking *x = user;
    const Maker *m = x->m;
    const Touched *own = &m->model[x->task], *real = &m->real[x->task];
    for (uint32_t lane = 0; lane < LANE_N; lane++) {
        if (touched->done[lane] <= real->done[lane])
            continue;
        Touched then =
            after(m, m->real, program_marked(m->p, (Mark){ lane, touched->done[lane] }));
        for (uint32_t l = 0; l < LANE_N; l++)
            if (m->foreign[l][then.done[l]] > m->foreign[l][own->done[l]])
                return false;
    }
    return true;
}

static void add_guards(Maker *m, uint32_t t, const Touched *touched)
{
    Program *p = m->p;
    Task *task = &p->tasks[t];
    Mark marks[LANE_N];
    task->guards_first = p->guards_n;
    task->guards_n = needed_marks(m, m->real, &m->real[t], touched, marks);
    for (uint32_t i = 0; i < task->guards_n; i++) {
        GROW(p->guards, p->guards_n, m->guards_cap);
        p->guards[p->guards_n++] = marks[i];
        Touched real = after(m, m->real, program_marked(m->p, marks[i]));
        touched_merge(&m->real[t], &real);
    }
}

/* ---- tensors ---- */

static Life *life_of(const Maker *m, const Instance *in, const Arg *arg)
{
    uint32_t frame = in->frame[arg->slot];
    if (frame != NONE_U32)
        return &m->lives[m->frame_first[frame] + arg->tensor];
    const Segment *s = &m->g->segments[in->segment];
    size_t tensor = (size_t)(graph_arg_tensor(m->g, s, arg) - m->g->tensors);
    return &m->lives[m->locals_first + tensor];
}

static const Arg *arg_of(const Maker *m, const Op *op, uint32_t a)
{
    return &m->g->args[op->arg_first + a];
}

static bool complain(const Maker *m, uint32_t t, uint32_t name, const char *what)
{
    const Task *task = &m->p->tasks[t];
    return err_set(m->err, "rank %u, op %u '%s': tensor '%s' %s", m->p->rank, task->id,
                   intern_text(&m->g->names, task->op->name), intern_text(&m->g->names, name),
                   what);
}

static const Op *segment_op_before(const Maker *m, const Task *task)
{
    const Segment *s = &m->g->segments[task->instance->segment];
    return task->op > graph_ops(m->g, s) ? task->op - 1 : NULL;
}

/* The n-th argument of op that is born (dies); NULL: there are fewer. */
static const Arg *nth_arg(const Maker *m, const Op *op, bool born, uint32_t n)
{
    for (uint32_t a = 0; a < op->arg_n; a++) {
        const Arg *arg = arg_of(m, op, a);
        if ((born ? arg->born : arg->dies) && n-- == 0)
            return arg;
    }
    return NULL;
}

/* Two RELEASE ops, one ends tensors, the next begins others: those lie where these lay. */
static bool ends_views(const Maker *m, uint32_t t)
{
    const Task *task = &m->p->tasks[t];
    const Segment *s = &m->g->segments[task->instance->segment];
    const Op *next = task->op + 1;
    return task->op->kind == OP_RELEASE && next < graph_ops(m->g, s) + s->op_n &&
           next->kind == OP_RELEASE && nth_arg(m, next, true, 0);
}

/* The tensor whose memory the n-th born one of a view has; NULL: it is no view. */
static const Arg *viewed(const Maker *m, uint32_t t, uint32_t n)
{
    const Op *before = segment_op_before(m, &m->p->tasks[t]);
    if (m->p->tasks[t].op->kind != OP_RELEASE || !before || before->kind != OP_RELEASE)
        return NULL;
    return nth_arg(m, before, false, n);
}

static bool begin_view(Maker *m, uint32_t t, Life *life, const Tensor *x, const Arg *from)
{
    const Instance *in = m->p->tasks[t].instance;
    const Tensor *old = graph_arg_tensor(m->g, &m->g->segments[in->segment], from);
    if (x->bytes > old->bytes)
        return complain(m, t, x->name, "views a smaller one");
    const Life *was = life_of(m, in, from);
    life->offset = was->offset;
    life->touched = was->touched;
    uint64_t used = space_round(x->bytes), rest = space_round(old->bytes) - used;
    if (rest > 0)
        space_give(&m->space, was->offset + used, rest, &was->touched);
    return true;
}

/* The (first) argument of which a transfer moves the last columns only, or more than it holds;
 * NULL: it moves all of each.  (A shard may hold a little more than its part, but less than one
 * element for each member.) */
static const Tensor *moved_in_part(const Maker *m, const Task *task)
{
    const Op *op = task->op;
    bool gathers = op->kind == OP_ALL_GATHER;
    uint32_t last = op->arg_n - 1;
    if ((!gathers && op->kind != OP_REDUCE_SCATTER) || last < 1 || last > 2 ||
        arg_of(m, op, 0)->mode != ARG_READ || arg_of(m, op, last)->mode != ARG_WRITE)
        return NULL; /* in place, or not one tensor into another */
    const Segment *s = &m->g->segments[task->instance->segment];
    const Tensor *part = graph_arg_tensor(m->g, s, arg_of(m, op, gathers ? 0 : 1));
    const Tensor *whole = graph_arg_tensor(m->g, s, arg_of(m, op, gathers ? last : 0));
    if (last == 2)
        return part; /* keys and values, of two tensors */
    uint64_t slack = (uint64_t)task->members_n * dtype_bytes(part->dtype);
    uint64_t parts = part->bytes * task->members_n;
    return parts >= whole->bytes + slack || parts < whole->bytes ? part : NULL;
}

static void begin_staging(Maker *m, uint32_t t, Touched *touched)
{
    Task *task = &m->p->tasks[t];
    const Tensor *part = moved_in_part(m, task);
    task->staged = part != NULL;
    if (!part)
        return;
    Taking taking = { m, t };
    uint64_t bytes = task->op->u.comm.bytes / task->members_n;
    m->staging = (Buffer){ .offset = space_take(&m->space, bytes, may_follow, &taking, touched),
                           .bytes = bytes,
                           .elements = bytes / dtype_bytes(part->dtype),
                           .dtype = part->dtype,
                           .slot = SLOT_LOCAL,
                           .mode = ARG_UPDATE,
                           .born = true,
                           .dies = true,
                           .name = part->name,
                           .tensor = NONE_U32,
                           .frame = NONE_U32,
                           .dims = { part->dims[0] } };
    Touched own = { 0 };
    own.done[task->lane] = task->order + 1;
    GROW(m->endings, m->endings_n, m->endings_cap);
    m->endings[m->endings_n++] = (Ending){ m->staging.offset, bytes, own };
}

static bool begin_lives(Maker *m, uint32_t t)
{
    const Task *task = &m->p->tasks[t];
    Touched touched = { 0 };
    uint32_t births = 0;
    for (uint32_t a = 0; a < task->op->arg_n; a++) {
        const Arg *arg = arg_of(m, task->op, a);
        if (!arg->born)
            continue;
        Life *life = life_of(m, task->instance, arg);
        const Segment *s = &m->g->segments[task->instance->segment];
        const Tensor *x = graph_arg_tensor(m->g, s, arg);
        if (life->alive)
            return complain(m, t, x->name, "is born while it lives");
        life->alive = true;
        m->alive_bytes += x->bytes;
        const Arg *from = viewed(m, t, births++);
        if (from) {
            if (!begin_view(m, t, life, x, from))
                return false;
            continue;
        }
        life->touched = (Touched){ 0 };
        Taking taking = { m, t };
        life->offset = space_take(&m->space, x->bytes, may_follow, &taking, &touched);
    }
    m->p->peak_bytes = max_u64(m->p->peak_bytes, m->alive_bytes);
    begin_staging(m, t, &touched);
    add_guards(m, t, &touched);
    return true;
}

static bool end_lives(Maker *m, uint32_t t)
{
    const Task *task = &m->p->tasks[t];
    bool views = ends_views(m, t);
    uint32_t deaths = 0;
    for (uint32_t a = 0; a < task->op->arg_n; a++) {
        const Arg *arg = arg_of(m, task->op, a);
        Life *life = life_of(m, task->instance, arg);
        life->touched.done[task->lane] = task->order + 1;
        if (!arg->dies)
            continue;
        const Segment *s = &m->g->segments[task->instance->segment];
        const Tensor *x = graph_arg_tensor(m->g, s, arg);
        if (!life->alive || life->resident)
            return complain(m, t, x->name, "dies but does not live");
        life->alive = false;
        m->alive_bytes -= x->bytes;
        if (views && nth_arg(m, task->op + 1, true, deaths++))
            continue;
        GROW(m->endings, m->endings_n, m->endings_cap);
        m->endings[m->endings_n++] = (Ending){ life->offset, x->bytes, life->touched };
    }
    for (uint32_t i = 0; i < m->endings_n && !task->op->grouped; i++)
        space_give(&m->space, m->endings[i].offset, m->endings[i].bytes,
                   &m->endings[i].touched);
    m->endings_n = task->op->grouped ? m->endings_n : 0;
    return true;
}

static bool add_args(Maker *m, uint32_t t)
{
    Program *p = m->p;
    Task *task = &p->tasks[t];
    const Segment *s = &m->g->segments[task->instance->segment];
    task->args_first = p->args_n;
    task->args_n = task->op->arg_n;
    for (uint32_t a = 0; a < task->args_n; a++) {
        const Arg *arg = arg_of(m, task->op, a);
        const Tensor *x = graph_arg_tensor(m->g, s, arg);
        const Life *life = life_of(m, task->instance, arg);
        if (!life->alive)
            return complain(m, t, x->name, "is touched while it does not live");
        Buffer b = { .offset = life->offset,
                     .bytes = x->bytes,
                     .elements = x->bytes / dtype_bytes(x->dtype),
                     .dtype = x->dtype,
                     .slot = arg->slot,
                     .mode = arg->mode,
                     .born = arg->born,
                     .dies = arg->dies,
                     .name = x->name,
                     .tensor = arg->tensor,
                     .frame = task->instance->frame[arg->slot] };
        memcpy(b.dims, x->dims, sizeof b.dims);
        GROW(p->args, p->args_n, m->args_cap);
        p->args[p->args_n++] = b;
    }
    if (task->staged) {
        GROW(p->args, p->args_n, m->args_cap);
        p->args[p->args_n++] = m->staging;
    }
    return true;
}

/* ---- residents ---- */

/* The slot under which instances name each frame, SLOT_N where none does. */
static uint8_t *slots_of_frames(const Role *role)
{
    uint8_t *slot = mem_zero((size_t)role->frames_n + 1, 1);
    memset(slot, SLOT_N, role->frames_n);
    for (uint32_t i = 0; i < role->instances_n; i++)
        for (uint8_t s = 0; s < SLOT_N; s++) {
            uint32_t frame = role->instances[i].frame[s];
            if (frame != NONE_U32 && slot[frame] == SLOT_N)
                slot[frame] = s;
        }
    return slot;
}

static void add_resident(Maker *m, uint32_t frame, uint32_t i, uint8_t slot)
{
    Program *p = m->p;
    const Frame *f = &m->role->frames[frame];
    const Tensor *x = &m->g->tensors[m->g->layouts[f->layout].tensor_first + i];
    Resident *r = &p->residents[p->residents_n++];
    *r = (Resident){ .slot = slot,
                     .frame = frame,
                     .tensor = i,
                     .name = x->name,
                     .class_ = x->class_,
                     .dtype = x->dtype,
                     .offset = m->space.end_bytes,
                     .bytes = x->bytes,
                     .elements = x->bytes / dtype_bytes(x->dtype) };
    memcpy(r->dims, x->dims, sizeof r->dims);
    m->space.end_bytes += space_round(x->bytes);
    m->alive_bytes += x->bytes;
    m->lives[m->frame_first[frame] + i] =
        (Life){ .alive = true, .resident = true, .offset = r->offset };
}

static void add_residents(Maker *m)
{
    const Role *role = m->role;
    uint8_t *slot = slots_of_frames(role);
    uint32_t n = 0;
    for (uint32_t f = 0; f < role->frames_n; f++)
        n += role->frames[f].resident ? m->g->layouts[role->frames[f].layout].tensor_n : 0;
    m->p->residents = mem_zero((size_t)n + 1, sizeof *m->p->residents);
    for (uint32_t f = 0; f < role->frames_n; f++) {
        const Layout *l = &m->g->layouts[role->frames[f].layout];
        for (uint32_t i = 0; role->frames[f].resident && i < l->tensor_n; i++)
            add_resident(m, f, i, slot[f]);
    }
    free(slot);
    m->p->resident_bytes = m->p->peak_bytes = m->alive_bytes;
}

/* ---- tasks ---- */

/* Members of each group that this rank is in, one list after another. */
static void add_members(Program *p, uint32_t *first)
{
    const Graph *g = p->graph;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->groups_n; i++)
        n += group_size(&g->groups[i]);
    p->members = mem_zero((size_t)n + 1, sizeof *p->members);
    for (uint32_t i = 0; i < g->groups_n; i++) {
        const GroupSpec *s = &g->groups[i];
        first[i] = p->members_n;
        for (uint32_t k = 0; group_has(s, p->rank) && k < group_size(s); k++)
            p->members[p->members_n++] = group_member(s, p->rank, k);
    }
}

static bool fill_comm(Maker *m, Task *t, const uint32_t *members_first)
{
    const GroupSpec *s = &m->g->groups[t->op->u.comm.group];
    if (!group_has(s, m->p->rank))
        return err_set(m->err, "rank %u: '%s' is of a group that the rank is not in",
                       m->p->rank, intern_text(&m->g->names, t->op->name));
    t->members_first = members_first[t->op->u.comm.group];
    t->members_n = group_size(s);
    t->self = group_index(s, m->p->rank);
    return true;
}

static bool list_tasks(Maker *m)
{
    Program *p = m->p;
    p->tasks = mem_zero((size_t)m->role->ops_n + 1, sizeof *p->tasks);
    uint32_t *members_first = mem_zero((size_t)m->g->groups_n + 1, sizeof *members_first);
    add_members(p, members_first);
    bool ok = true;
    for (uint32_t i = 0; i < m->role->instances_n && ok; i++) {
        const Instance *in = &m->role->instances[i];
        const Segment *s = &m->g->segments[in->segment];
        for (uint32_t k = 0; k < s->op_n && ok; k++) {
            const Op *op = graph_ops(m->g, s) + k;
            Task *t = &p->tasks[p->tasks_n];
            *t = (Task){ .op = op,
                         .instance = in,
                         .id = p->tasks_n++,
                         .lane = op->lane,
                         .order = p->lane_n[op->lane]++ };
            ok = !op_is_comm(op->kind) || fill_comm(m, t, members_first);
        }
    }
    free(members_first);
    return ok;
}

/* Does the op meet ranks that run another program? */
static bool is_foreign(const Program *p, const Task *t)
{
    if (!op_is_comm(t->op->kind))
        return false;
    for (uint32_t i = 0; i < t->members_n; i++)
        if (graph_role_of(p->graph, p->members[t->members_first + i]) != p->role)
            return true;
    return op_is_p2p(t->op->kind);
}

static void index_lanes(Maker *m)
{
    Program *p = m->p;
    p->by_lane = mem_zero((size_t)p->tasks_n + 1, sizeof *p->by_lane);
    for (uint32_t l = 0, first = 0; l < LANE_N; first += p->lane_n[l++]) {
        p->lane_first[l] = first;
        m->foreign[l] = mem_zero((size_t)p->lane_n[l] + 1, sizeof(uint32_t));
    }
    for (uint32_t i = 0; i < p->tasks_n; i++) {
        const Task *t = &p->tasks[i];
        p->by_lane[p->lane_first[t->lane] + t->order] = i;
        m->foreign[t->lane][t->order + 1] = m->foreign[t->lane][t->order] + is_foreign(p, t);
    }
}

static bool add_task(Maker *m, uint32_t t)
{
    const Task *task = &m->p->tasks[t];
    if (t == 0 || !m->p->tasks[t - 1].op->grouped)
        m->group_first = t;
    begin_clock(m, t);
    add_waits(m, t);
    if (!begin_lives(m, t) || !add_args(m, t) || !end_lives(m, t))
        return false;
    if (m->group_first < t) { /* whoever comes after the group comes after all its waits */
        touched_merge(&m->model[m->group_first], &m->model[t]);
        touched_merge(&m->real[m->group_first], &m->real[t]);
    }
    if (task->lane == LANE_HOST)
        m->host_task = t;
    return true;
}

static void open_maker(Maker *m)
{
    const Role *role = m->role;
    size_t places = 0;
    m->frame_first = mem_zero((size_t)role->frames_n + 1, sizeof *m->frame_first);
    for (uint32_t f = 0; f < role->frames_n; f++) {
        m->frame_first[f] = places;
        places += m->g->layouts[role->frames[f].layout].tensor_n;
    }
    m->locals_first = places;
    m->lives = mem_zero(places + m->g->tensors_n + 1, sizeof *m->lives);
    m->model = mem_zero((size_t)role->ops_n + 1, sizeof *m->model);
    m->real = mem_zero((size_t)role->ops_n + 1, sizeof *m->real);
    m->host_task = NONE_U32;
    /* Also where there are none of them, their addresses are some. */
    GROW(m->p->waits, 0u, m->waits_cap);
    GROW(m->p->guards, 0u, m->guards_cap);
}

static void close_maker(Maker *m)
{
    free(m->frame_first);
    free(m->lives);
    free(m->model);
    free(m->real);
    free(m->endings);
    for (int l = 0; l < LANE_N; l++)
        free(m->foreign[l]);
    space_free(&m->space);
}

bool program_make(Program *p, const Graph *g, uint32_t rank, Err *err)
{
    ASSERT(g->sealed && rank < g->world_n);
    *p = (Program){ .graph = g, .role = graph_role_of(g, rank), .rank = rank };
    Maker m = { .p = p, .g = g, .role = p->role, .err = err };
    open_maker(&m);
    bool ok = list_tasks(&m);
    if (ok) {
        index_lanes(&m);
        add_residents(&m);
    }
    for (uint32_t t = 0; t < p->tasks_n && ok; t++)
        ok = add_task(&m, t);
    p->arena_bytes = space_round(m.space.end_bytes);
    close_maker(&m);
    if (!ok)
        program_free(p);
    return ok;
}

void program_free(Program *p)
{
    free(p->tasks);
    free(p->args);
    free(p->waits);
    free(p->guards);
    free(p->members);
    free(p->residents);
    free(p->by_lane);
    *p = (Program){ 0 };
}
