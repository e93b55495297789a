/*
 * graph_check.h - what holds for every graph, whatever pass wrote it.
 *
 * check_lives   A tensor is touched between its birth and its death only, is born
 *               once, and is dead at the end of the step unless its frame is
 *               resident.  Whoever touches it after somebody else does so after it
 *               in the order of lanes, deps and edges, not just by luck: reads
 *               after the write, writes and deaths after every read.
 * check_runs    A model too simple to be wrong: an op is done when its turn on its
 *               lane has come and all it waits for is done; sends, receives and
 *               collectives over stages are done together.  All ops must get done.
 *               Sends meet receives of the same micro-batch, size and tensors.
 * check_time    The same with times: an op starts when nothing holds it up and takes
 *               what the caller says; returns when the last one ends.
 *
 * The order is kept as vector clocks: clock[op][lane] ops of that lane are done
 * before the op starts.
 */
#ifndef LOCKSTEP_TESTS_GRAPH_CHECK_H
#define LOCKSTEP_TESTS_GRAPH_CHECK_H

#include "core/graph.h"
#include "tests/check.h"

/* One op of a role's program. */
typedef struct CheckOp {
    const Op *op;
    const Segment *segment;
    uint32_t instance;
    uint32_t lane_at;       /* its place on its lane */
    uint32_t clock[LANE_N]; /* ops done before it starts, by lane */
    bool done;
    double end; /* when it is done */
} CheckOp;

typedef struct CheckRole {
    const Graph *g;
    const Role *role;
    CheckOp *ops; /* by op id */
    uint32_t *lane[LANE_N], lane_n[LANE_N], next[LANE_N];
} CheckRole;

static inline uint32_t check_op_id(const CheckRole *c, uint32_t instance, uint32_t op)
{
    return c->role->instances[instance].first_op + op;
}

static inline void check_merge(CheckRole *c, CheckOp *to, uint32_t from)
{
    const CheckOp *f = &c->ops[from];
    for (int l = 0; l < LANE_N; l++)
        if (f->clock[l] > to->clock[l])
            to->clock[l] = f->clock[l];
    if (f->lane_at + 1 > to->clock[f->op->lane])
        to->clock[f->op->lane] = f->lane_at + 1;
}

/* Calls each for all that op id waits for besides its lane. */
static inline void check_each_before(CheckRole *c, uint32_t id,
                                     void (*each)(CheckRole *, uint32_t, uint32_t))
{
    const CheckOp *o = &c->ops[id];
    const Instance *i = &c->role->instances[o->instance];
    for (uint32_t d = 0; d < o->op->dep_n; d++)
        each(c, id, i->first_op + c->g->deps[o->op->dep_first + d]);
    for (uint32_t e = 0; e < i->edge_n; e++) {
        const Edge *edge = &c->role->edges[i->edge_first + e];
        if (i->first_op + edge->dst_op == id)
            each(c, id, check_op_id(c, edge->src_instance, edge->src_op));
    }
}

static inline void check_merge_into(CheckRole *c, uint32_t id, uint32_t before)
{
    check_merge(c, &c->ops[id], before);
}

static inline void check_open(CheckRole *c, const Graph *g, const Role *role)
{
    *c = (CheckRole){ .g = g, .role = role };
    c->ops = mem_zero((size_t)role->ops_n + 1, sizeof *c->ops);
    for (int l = 0; l < LANE_N; l++)
        c->lane[l] = mem_zero((size_t)role->ops_n + 1, sizeof **c->lane);
    for (uint32_t n = 0; n < role->instances_n; n++) {
        const Segment *s = &g->segments[role->instances[n].segment];
        for (uint32_t i = 0; i < s->op_n; i++) {
            uint32_t id = check_op_id(c, n, i);
            CheckOp *o = &c->ops[id];
            *o = (CheckOp){ .op = graph_ops(g, s) + i, .segment = s, .instance = n };
            uint32_t l = o->op->lane;
            o->lane_at = c->lane_n[l];
            if (o->lane_at > 0)
                check_merge(c, o, c->lane[l][o->lane_at - 1]);
            c->lane[l][c->lane_n[l]++] = id;
            check_each_before(c, id, check_merge_into);
        }
    }
}

static inline void check_close(CheckRole *c)
{
    free(c->ops);
    for (int l = 0; l < LANE_N; l++)
        free(c->lane[l]);
}

static inline bool check_is_before(const CheckRole *c, uint32_t first, uint32_t then)
{
    const CheckOp *f = &c->ops[first];
    return first == then || c->ops[then].clock[f->op->lane] > f->lane_at;
}

/* ---- lives ---- */

typedef struct CheckTensor {
    bool live;
    uint32_t writer;         /* op id, NONE_U32 */
    uint32_t reader[LANE_N]; /* newest on each lane since the write, NONE_U32 */
} CheckTensor;

static inline void check_lives_say(const CheckRole *c, uint32_t id, const Arg *arg,
                                   const char *what)
{
    const CheckOp *o = &c->ops[id];
    const Instance *i = &c->role->instances[o->instance];
    if (check_failed(CHECK_HERE("lives")))
        fprintf(stderr, "%s, instance %u '%s' layer %d mb %d, op '%s', slot %d tensor %u: %s\n",
                intern_text(&c->g->names, c->role->name), o->instance,
                intern_text(&c->g->names, o->segment->name), (int)i->layer, (int)i->micro_batch,
                intern_text(&c->g->names, o->op->name), arg->slot, arg->tensor, what);
}

static inline void check_touch(CheckRole *c, uint32_t id, const Arg *arg, CheckTensor *t)
{
    const Op *op = c->ops[id].op;
    if (arg->born) {
        if (t->live)
            check_lives_say(c, id, arg, "born while alive");
        t->live = true;
    }
    if (!t->live)
        check_lives_say(c, id, arg, "touched while dead");
    if (t->writer != NONE_U32 && !check_is_before(c, t->writer, id))
        check_lives_say(c, id, arg, "does not wait for the writer");
    bool writes = arg->mode != ARG_READ || arg->dies;
    for (int l = 0; l < LANE_N && writes; l++)
        if (t->reader[l] != NONE_U32 && !check_is_before(c, t->reader[l], id))
            check_lives_say(c, id, arg, "does not wait for a reader");
    if (arg->mode != ARG_READ) {
        t->writer = id;
        for (int l = 0; l < LANE_N; l++)
            t->reader[l] = NONE_U32;
    }
    t->reader[op->lane] = id;
    if (arg->dies)
        t->live = false;
}

static inline CheckTensor check_new_tensor(bool live)
{
    CheckTensor t = { .live = live, .writer = NONE_U32 };
    for (int l = 0; l < LANE_N; l++)
        t.reader[l] = NONE_U32;
    return t;
}

/* At the end of the step exactly what is resident lives. */
static inline void check_ended(const Graph *g, const Role *role, uint32_t frame,
                               const CheckTensor *tensors)
{
    const Frame *f = &role->frames[frame];
    const Layout *l = &g->layouts[f->layout];
    for (uint32_t i = 0; i < l->tensor_n; i++)
        if (tensors[i].live != f->resident && check_failed(CHECK_HERE("lives")))
            fprintf(stderr, "%s, frame %u layer %d, tensor %u '%s': %s at the end\n",
                    intern_text(&g->names, role->name), frame, (int)f->layer, i,
                    intern_text(&g->names, g->tensors[l->tensor_first + i].name),
                    f->resident ? "dead" : "alive");
}

static inline void check_lives_of(const Graph *g, const Role *role)
{
    CheckRole c;
    check_open(&c, g, role);
    uint32_t *first = mem_zero((size_t)role->frames_n + 1, sizeof *first), total = 0;
    for (uint32_t f = 0; f < role->frames_n; f++) {
        first[f] = total;
        total += g->layouts[role->frames[f].layout].tensor_n;
    }
    CheckTensor *tensors = mem_zero((size_t)total + 1, sizeof *tensors);
    for (uint32_t f = 0; f < role->frames_n; f++)
        for (uint32_t i = 0; i < g->layouts[role->frames[f].layout].tensor_n; i++)
            tensors[first[f] + i] = check_new_tensor(role->frames[f].resident);
    for (uint32_t id = 0; id < role->ops_n; id++) {
        const Instance *in = &role->instances[c.ops[id].instance];
        for (uint32_t a = 0; a < c.ops[id].op->arg_n; a++) {
            const Arg *arg = &g->args[c.ops[id].op->arg_first + a];
            if (arg->slot == SLOT_LOCAL)
                continue;
            if (in->frame[arg->slot] == NONE_U32)
                check_lives_say(&c, id, arg, "no frame is bound");
            else
                check_touch(&c, id, arg, &tensors[first[in->frame[arg->slot]] + arg->tensor]);
        }
    }
    for (uint32_t f = 0; f < role->frames_n; f++)
        check_ended(g, role, f, &tensors[first[f]]);
    free(first);
    free(tensors);
    check_close(&c);
}

static inline void check_lives(const Graph *g)
{
    for (uint32_t r = 0; r < g->roles_n; r++)
        check_lives_of(g, &g->roles[r]);
}

/* ---- running ---- */

typedef double CheckCost(const Role *role, const CheckOp *o);

typedef struct CheckRun {
    const Graph *g;
    CheckRole *roles; /* by role, = stage */
    CheckCost *cost;  /* NULL: all 0 */
} CheckRun;

static struct {
    bool all_done; /* of what one op waits for */
    double start;  /* when all of it is done */
} check_waits;

static inline void check_is_done(CheckRole *c, uint32_t id, uint32_t before)
{
    (void)id;
    const CheckOp *o = &c->ops[before];
    check_waits.all_done = check_waits.all_done && o->done;
    check_waits.start = fmax(check_waits.start, o->end);
}

/* The op whose turn it is on a lane, if it need not wait; NULL.  Its end is set to its start. */
static inline CheckOp *check_ready(CheckRole *c, int lane)
{
    uint32_t at = c->next[lane];
    if (at == c->lane_n[lane])
        return NULL;
    uint32_t id = c->lane[lane][at];
    check_waits.all_done = true;
    check_waits.start = at > 0 ? c->ops[c->lane[lane][at - 1]].end : 0;
    check_each_before(c, id, check_is_done);
    c->ops[id].end = check_waits.start;
    return check_waits.all_done ? &c->ops[id] : NULL;
}

static inline void check_finish(CheckRun *x, uint32_t role, CheckOp *o, double start)
{
    CheckRole *c = &x->roles[role];
    o->done = true;
    o->end = start + (x->cost ? x->cost(c->role, o) : 0);
    c->next[o->op->lane]++;
}

static inline bool check_spans_stages(const Graph *g, uint32_t group)
{
    const GroupSpec *s = &g->groups[group];
    for (uint32_t d = 0; d < s->dims_n; d++)
        if (s->dims[d].stride == g->role_stride && g->role_extent > 1)
            return true;
    return false;
}

static inline void check_pair(CheckRun *x, uint32_t from, CheckOp *send, uint32_t to,
                              CheckOp *recv)
{
    const Instance *a = &x->roles[from].role->instances[send->instance];
    const Instance *b = &x->roles[to].role->instances[recv->instance];
    CHECK_INT(a->micro_batch, b->micro_batch);
    CHECK_U64(send->op->u.comm.bytes, recv->op->u.comm.bytes);
    CHECK_INT(send->op->arg_n, recv->op->arg_n);
    bool gradient = send->op->u.comm.tag == 1;
    CHECK_INT(gradient ? (int)a->chunk - 1 : (int)a->chunk + 1, (int)b->chunk);
    double start = fmax(send->end, recv->end);
    check_finish(x, from, send, start);
    check_finish(x, to, recv, start);
}

/* A ready send meets the ready receive of its peer from here with its tag. */
static inline bool check_try_send(CheckRun *x, uint32_t from, CheckOp *send)
{
    uint32_t to = send->op->u.comm.peer;
    for (int l = 0; l < LANE_N; l++) {
        CheckOp *recv = check_ready(&x->roles[to], l);
        if (!recv || recv->op->kind != OP_RECV || recv->op->u.comm.peer != from ||
            recv->op->u.comm.tag != send->op->u.comm.tag)
            continue;
        check_pair(x, from, send, to, recv);
        return true;
    }
    return false;
}

/* A collective over stages: every member stage must be at one with this group and kind. */
static inline bool check_try_collective(CheckRun *x, const Op *op)
{
    CheckOp *member[256] = { 0 };
    const Graph *g = x->g;
    double start = 0;
    for (uint32_t r = 0; r < g->roles_n; r++) {
        if (!group_has(&g->groups[op->u.comm.group], r * g->role_stride))
            continue;
        CheckOp *o = check_ready(&x->roles[r], (int)op->lane);
        if (!o || o->op->kind != op->kind || o->op->u.comm.group != op->u.comm.group)
            return false;
        CHECK_U64(op->u.comm.bytes, o->op->u.comm.bytes);
        start = fmax(start, o->end);
        member[r] = o;
    }
    for (uint32_t r = 0; r < g->roles_n; r++)
        if (member[r])
            check_finish(x, r, member[r], start);
    return true;
}

static inline bool check_try(CheckRun *x, uint32_t role, int lane)
{
    CheckOp *o = check_ready(&x->roles[role], lane);
    if (!o || o->op->kind == OP_RECV)
        return false;
    if (o->op->kind == OP_SEND)
        return check_try_send(x, role, o);
    if (op_is_comm(o->op->kind) && check_spans_stages(x->g, o->op->u.comm.group))
        return check_try_collective(x, o->op);
    check_finish(x, role, o, o->end);
    return true;
}

static inline double check_time(const Graph *g, CheckCost *cost)
{
    CheckRun x = { g, mem_zero(g->roles_n, sizeof *x.roles), cost };
    for (uint32_t r = 0; r < g->roles_n; r++)
        check_open(&x.roles[r], g, &g->roles[r]);
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t r = 0; r < g->roles_n; r++)
            for (int l = 0; l < LANE_N; l++)
                while (check_try(&x, r, l))
                    moved = true;
    }
    double end = 0;
    for (uint32_t r = 0; r < g->roles_n; r++) {
        for (int l = 0; l < LANE_N; l++)
            CHECK_INT(x.roles[r].lane_n[l], x.roles[r].next[l]);
        for (uint64_t id = 0; id < g->roles[r].ops_n; id++)
            end = fmax(end, x.roles[r].ops[id].end);
        check_close(&x.roles[r]);
    }
    free(x.roles);
    return end;
}

static inline void check_runs(const Graph *g)
{
    check_time(g, NULL);
}

/* Most bytes of a slot that live at once, in program order; tensors of one frame may die one by
 * one. */
static inline uint64_t most_live_of(const Graph *g, const Role *role, Slot slot)
{
    int64_t live = 0, most = 0;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Segment *s = &g->segments[role->instances[i].segment];
        for (uint32_t o = 0; o < s->op_n; o++)
            for (uint32_t a = 0; a < graph_ops(g, s)[o].arg_n; a++) {
                const Arg *arg = &g->args[graph_ops(g, s)[o].arg_first + a];
                int64_t bytes = (int64_t)graph_arg_tensor(g, s, arg)->bytes;
                if (arg->slot != (uint8_t)slot)
                    continue;
                live += arg->born ? bytes : 0;
                most = max_i64(most, live);
                live -= arg->dies ? bytes : 0;
            }
    }
    return (uint64_t)most;
}

#endif
