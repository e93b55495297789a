/*
 * test_program.c - a rank's tasks against models too simple to be wrong.
 *
 * Order is the transitive closure of lane order, the launching host and single
 * edges, as a matrix of bits; programs are small enough for it.
 */
#include "exec/program.h"

#include "core/order.h"
#include "sim/memory.h"
#include "tests/random_scenario.h"

enum { TASKS_MAX = 2000, DRAWN_N = 120 };

/* ---- order by brute force ---- */

/* Bit a of row b: task a is done before task b begins. */
typedef struct Order {
    uint32_t n, words;
    uint64_t *bits;
} Order;

static bool is_before(const Order *o, uint32_t a, uint32_t b)
{
    return o->bits[(size_t)b * o->words + a / 64] >> (a % 64) & 1;
}

static void put_before(Order *o, uint32_t a, uint32_t b)
{
    uint64_t *row = &o->bits[(size_t)b * o->words], *from = &o->bits[(size_t)a * o->words];
    for (uint32_t w = 0; w < o->words; w++)
        row[w] |= from[w];
    row[a / 64] |= (uint64_t)1 << (a % 64);
}

typedef enum Edges { FROM_GRAPH, FROM_WAITS, FROM_GUARDS_TOO } Edges;

static void put_marks(Order *o, const Program *p, const Mark *marks, uint32_t n, uint32_t t)
{
    for (uint32_t i = 0; i < n; i++)
        put_before(o, program_marked(p, marks[i]), t);
}

static void put_graph_edges(Order *o, const Program *p, uint32_t t)
{
    const Task *task = &p->tasks[t];
    const Instance *in = task->instance;
    for (uint32_t d = 0; d < task->op->dep_n; d++)
        put_before(o, in->first_op + p->graph->deps[task->op->dep_first + d], t);
    for (uint32_t e = in->edge_first; e < in->edge_first + in->edge_n; e++) {
        const Edge *edge = &p->role->edges[e];
        if (in->first_op + edge->dst_op == t)
            put_before(o, p->role->instances[edge->src_instance].first_op + edge->src_op, t);
    }
}

/* Ops posted together begin together: what one waits for, all do. */
static uint32_t group_end(const Program *p, uint32_t t)
{
    while (p->tasks[t].op->grouped)
        t++;
    return t + 1;
}

static void put_all(Order *o, const Program *p, uint32_t t, Edges edges)
{
    const Task *task = &p->tasks[t];
    if (edges == FROM_GRAPH) {
        put_graph_edges(o, p, t);
        return;
    }
    put_marks(o, p, p->waits + task->waits_first, task->waits_n, t);
    if (edges == FROM_GUARDS_TOO)
        put_marks(o, p, p->guards + task->guards_first, task->guards_n, t);
}

static Order order_open(const Program *p, Edges edges)
{
    Order o = { .n = p->tasks_n, .words = p->tasks_n / 64 + 1 };
    o.bits = mem_zero((size_t)o.n * o.words + 1, sizeof *o.bits);
    uint32_t newest[LANE_N], newest_first[LANE_N] = { 0 };
    memset(newest, 0xff, sizeof newest);
    for (uint32_t t = 0, end; t < p->tasks_n; t = end) {
        end = group_end(p, t);
        uint32_t lane = p->tasks[t].lane;
        for (uint32_t k = newest_first[lane]; newest[lane] != NONE_U32 && k <= newest[lane];
             k++)
            put_before(&o, k, t); /* whoever follows one of a group follows all */
        if (newest[LANE_HOST] != NONE_U32 && lane != LANE_HOST)
            put_before(&o, newest[LANE_HOST], t);
        for (uint32_t k = t; k < end; k++)
            put_all(&o, p, k, edges);
        for (uint32_t k = t; k < end; k++) /* all that any of them waits for */
            for (uint32_t w = 0; w < o.words; w++)
                o.bits[(size_t)t * o.words + w] |= o.bits[(size_t)k * o.words + w];
        for (uint32_t k = t + 1; k < end; k++)
            memcpy(&o.bits[(size_t)k * o.words], &o.bits[(size_t)t * o.words],
                   o.words * sizeof *o.bits);
        newest_first[lane] = t;
        newest[lane] = end - 1;
    }
    return o;
}

static void check_same_order(const Order *a, const Order *b)
{
    for (size_t i = 0; i < (size_t)a->n * a->words; i++)
        if (!CHECK_U64(a->bits[i], b->bits[i]))
            return;
}

/* ---- programs of drawn scenarios ---- */

typedef void CheckProgram(const Program *p);

static uint32_t looked_at_n, guards_n, staged_n;

static void each_role(const Graph *g, CheckProgram *check)
{
    Err err = { 0 };
    bool seen[64] = { 0 };
    for (uint32_t rank = 0; rank < g->world_n; rank++) {
        size_t role = (size_t)(graph_role_of(g, rank) - g->roles);
        Program p;
        if (role >= ARRAY_N(seen) || seen[role])
            continue;
        seen[role] = true;
        if (!CHECK(program_make(&p, g, rank, &err))) {
            fprintf(stderr, "%s\n", err.text);
            continue;
        }
        if (p.tasks_n <= TASKS_MAX) {
            check(&p);
            looked_at_n++;
            guards_n += p.guards_n;
        }
        program_free(&p);
    }
}

static void each_drawn(CheckProgram *check)
{
    looked_at_n = guards_n = staged_n = 0;
    for (uint64_t seed = 0; seed < DRAWN_N; seed++) {
        Draw d;
        Drawn x;
        draw_scenario(&d, seed, (DrawKind){ .odd = seed % 2 });
        if (drawn_make_to_run(&x, &d))
            each_role(&x.g, check);
        drawn_free(&x);
    }
    CHECK(looked_at_n > DRAWN_N / 2);
}

/* ---- tests ---- */

static void check_waits(const Program *p)
{
    Order graph = order_open(p, FROM_GRAPH), waits = order_open(p, FROM_WAITS);
    check_same_order(&graph, &waits);
    for (uint32_t t = 0; t < p->tasks_n; t++) {
        const Task *task = &p->tasks[t];
        const Mark *w = p->waits + task->waits_first;
        uint32_t lanes = 0;
        for (uint32_t i = 0; i < task->waits_n; i++) {
            uint32_t from = program_marked(p, w[i]);
            CHECK(w[i].lane != task->lane && !(lanes >> w[i].lane & 1u));
            lanes |= 1u << w[i].lane;
            CHECK(from < t);
            for (uint32_t k = 0; k < task->waits_n; k++)
                CHECK(k == i || !is_before(&waits, from, program_marked(p, w[k])));
            if (task->order > 0)
                CHECK(
                    !is_before(&waits, from, program_task_at(p, task->lane, task->order - 1)));
        }
    }
    free(graph.bits);
    free(waits.bits);
}

static void waits_are_the_graphs_order_and_none_is_idle(void)
{
    each_drawn(check_waits);
}

/* The arena cut where any tensor begins or ends: who is in each piece, who touched it last. */
typedef struct Cells {
    uint64_t *cut; /* ascending; piece i is [cut[i], cut[i + 1]) */
    uint32_t cuts_n;
    bool *live;
    uint32_t *touched; /* [piece][lane]: task + 1 */
} Cells;

static uint32_t piece_at(const Cells *c, uint64_t offset)
{
    const uint64_t *found = bsearch(&offset, c->cut, c->cuts_n, sizeof *c->cut, compare_u64);
    ASSERT(found);
    return (uint32_t)(found - c->cut);
}

static Cells cells_open(const Program *p)
{
    Cells c = { 0 };
    uint32_t n = 0;
    c.cut = mem_zero(2 * (size_t)(p->args_n + p->residents_n) + 1, sizeof *c.cut);
    for (uint32_t i = 0; i < p->args_n; i++) {
        c.cut[n++] = p->args[i].offset;
        c.cut[n++] = p->args[i].offset + p->args[i].bytes;
    }
    for (uint32_t i = 0; i < p->residents_n; i++) {
        c.cut[n++] = p->residents[i].offset;
        c.cut[n++] = p->residents[i].offset + p->residents[i].bytes;
    }
    qsort(c.cut, n, sizeof *c.cut, compare_u64);
    for (uint32_t i = 0; i < n; i++)
        if (c.cuts_n == 0 || c.cut[i] != c.cut[c.cuts_n - 1])
            c.cut[c.cuts_n++] = c.cut[i];
    CHECK(n == 0 || c.cut[c.cuts_n - 1] <= p->arena_bytes);
    c.live = mem_zero((size_t)c.cuts_n + 1, sizeof *c.live);
    c.touched = mem_zero(((size_t)c.cuts_n + 1) * LANE_N, sizeof *c.touched);
    return c;
}

static void check_resident(Cells *c, const Resident *r)
{
    for (uint32_t i = piece_at(c, r->offset); c->cut[i] < r->offset + r->bytes; i++) {
        CHECK(!c->live[i]);
        c->live[i] = true;
    }
}

/* Born where nobody lives, and behind all who were there (but views have what was there). */
static void check_touch(Cells *c, const Order *order, const Program *p, uint32_t t,
                        const Buffer *b)
{
    const Task *task = &p->tasks[t];
    bool view = task->op->kind == OP_RELEASE && b->born;
    for (uint32_t i = piece_at(c, b->offset); c->cut[i] < b->offset + b->bytes; i++) {
        uint32_t *newest = &c->touched[(size_t)i * LANE_N];
        bool ok = c->live[i] == !b->born;
        for (uint32_t l = 0; b->born && !view && l < LANE_N; l++)
            ok = ok && (newest[l] == 0 || is_before(order, newest[l] - 1, t));
        c->live[i] = true;
        newest[task->lane] = t + 1;
        if (!CHECK(ok))
            return;
    }
}

static void check_memory(const Program *p)
{
    Order order = order_open(p, FROM_GUARDS_TOO);
    Cells c = cells_open(p);
    for (uint32_t i = 0; i < p->residents_n; i++)
        check_resident(&c, &p->residents[i]);
    for (uint32_t t = 0; t < p->tasks_n; t++) {
        const Task *task = &p->tasks[t];
        const Buffer *args = task_args(p, task);
        uint32_t n = task->args_n + (task->staged ? 1 : 0);
        for (uint32_t a = 0; a < n; a++) {
            CHECK_U64(0, args[a].offset % 64);
            check_touch(&c, &order, p, t, &args[a]);
        }
        for (uint32_t a = 0; a < n; a++)
            for (uint32_t i = piece_at(&c, args[a].offset);
                 args[a].dies && c.cut[i] < args[a].offset + args[a].bytes; i++)
                c.live[i] = false;
        staged_n += task->staged;
    }
    free(order.bits);
    free(c.cut);
    free(c.live);
    free(c.touched);
}

static void memory_is_reused_only_behind_all_who_used_it(void)
{
    each_drawn(check_memory);
    CHECK(guards_n > 0 && staged_n > 0);
}

static void check_peak(const Program *p)
{
    RoleMemory m = memory_of_role(p->graph, p->role, NULL);
    uint64_t resident = 0;
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        resident += m.resident[c];
    CHECK_U64(m.peak_bytes, p->peak_bytes);
    CHECK_U64(resident, p->resident_bytes);
    CHECK(p->arena_bytes >= p->peak_bytes);
}

static void the_peak_is_the_simulators(void)
{
    each_drawn(check_peak);
}

int main(void)
{
    RUN(waits_are_the_graphs_order_and_none_is_idle);
    RUN(memory_is_reused_only_behind_all_who_used_it);
    RUN(the_peak_is_the_simulators);
    return check_report();
}
