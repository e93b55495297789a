/*
 * test_host_order.c - under NCCL's rules every drawn split comes to its end, and what meets fits.
 *
 * A kernel of NCCL holds its stream until all members' run; kernels of one communicator run in the
 * order in which they were queued.  Hosts run ahead of their devices; or each waits behind every
 * kernel until that has run, as with LOCKSTEP_CUDA_SYNC.  Where it waited behind transfers as well,
 * or in front of a kernel for the whole device (as while one is loaded), many would never end.
 */
#include "exec/calls.h"
#include "exec/cuda_comm_split.h"
#include "tests/random_scenario.h"

enum { DRAWN_N = 200, RANKS_MAX = 64 };

typedef struct Rank {
    Program program;
    CommCalls calls;
    uint32_t *comm_of; /* by call; NONE_U32: alone */
    uint32_t *begun;   /* by communicator: transfers that run, or have run */
    uint32_t at;       /* the task that its host has come to */
    uint32_t behind;   /* the lane that its host waits for; NONE_U32 */
    uint32_t queued[LANE_N], done[LANE_N];
    bool runs[LANE_N]; /* the head of the lane */
} Rank;

typedef struct World {
    uint32_t ranks_n;
    Rank rank[RANKS_MAX];
    SplitPlan plan;
} World;

static uint32_t find_comm(const SplitPlan *x, uint32_t rank, const CommCall *c)
{
    uint32_t peer = op_is_p2p(c->kind) ? c->members[c->peer] : 0;
    return c->kind == OP_SEND   ? split_plan_channel(x, rank, peer, c->tag)
           : c->kind == OP_RECV ? split_plan_channel(x, peer, rank, c->tag)
                                : split_plan_collective(x, c->lane, c->members, c->members_n);
}

static bool rank_make(World *w, const Graph *g, uint32_t rank, Err *err)
{
    Rank *r = &w->rank[w->ranks_n++];
    if (!program_make(&r->program, g, rank, err) || !calls_make(&r->calls, &r->program, err))
        return false;
    r->comm_of = mem_zero((size_t)r->calls.calls_n + 1, sizeof *r->comm_of);
    r->begun = mem_zero((size_t)w->plan.comms_n + 1, sizeof *r->begun);
    for (uint32_t i = 0; i < r->calls.calls_n; i++)
        r->comm_of[i] = find_comm(&w->plan, rank, &r->calls.calls[i]);
    return true;
}

static bool world_make(World *w, const Graph *g)
{
    Err err = { 0 };
    bool ok = true;
    *w = (World){ 0 };
    split_plan_make(&w->plan, g);
    for (uint32_t r = 0; r < g->world_n && ok; r++) {
        ASSERT(r < RANKS_MAX);
        ok = rank_make(w, g, r, &err);
    }
    if (!CHECK(ok))
        fprintf(stderr, "%s\n", err.text);
    return ok;
}

static void world_free(World *w)
{
    for (uint32_t r = 0; r < w->ranks_n; r++) {
        free(w->rank[r].comm_of);
        free(w->rank[r].begun);
        calls_free(&w->rank[r].calls);
        program_free(&w->rank[r].program);
    }
    split_plan_free(&w->plan);
}

/* ---- hosts and devices ---- */

/* When a host waits for its device, apart from where the program says so. */
typedef enum Waiting { NEVER, BEHIND_KERNELS } Waiting;

static bool reached(const Rank *r, const Mark *marks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (r->done[marks[i].lane] < marks[i].done)
            return false;
    return true;
}

static bool is_reached(const Rank *r, const Task *t, bool guards)
{
    const Program *p = &r->program;
    return reached(r, p->waits + t->waits_first, t->waits_n) &&
           (!guards || reached(r, p->guards + t->guards_first, t->guards_n));
}

/* All members' kernels run. */
static bool has_met(const World *w, const Rank *r, uint32_t comm)
{
    const SplitComm *c = &w->plan.comms[comm];
    bool met = true;
    for (uint32_t i = 0; i < c->members_n && met; i++)
        met = w->rank[w->plan.members[c->members_first + i]].begun[comm] >= r->begun[comm];
    return met;
}

/* The head of the lane, n posted together, begins, or ends; false: it can do neither. */
static bool device_goes_on(const World *w, Rank *r, uint32_t lane)
{
    const Program *p = &r->program;
    if (r->done[lane] == r->queued[lane])
        return false;
    uint32_t t = program_task_at(p, lane, r->done[lane]), n = program_posted_n(p, t);
    uint32_t call = r->calls.of[t];
    bool begins = !r->runs[lane], ends = true;
    for (uint32_t i = 0; i < n && begins; i++)
        if (!is_reached(r, &p->tasks[t + i], true))
            return false;
    r->runs[lane] = true;
    for (uint32_t i = 0; call != NONE_U32 && i < n && begins; i++)
        if (r->comm_of[call + i] != NONE_U32)
            r->begun[r->comm_of[call + i]]++;
    for (uint32_t i = 0; call != NONE_U32 && i < n && ends; i++)
        ends = r->comm_of[call + i] == NONE_U32 || has_met(w, r, r->comm_of[call + i]);
    if (ends) {
        r->runs[lane] = false;
        r->done[lane] += n;
    }
    return begins || ends;
}

static bool is_idle(const Rank *r)
{
    for (uint32_t i = 0; i < LANE_HOST; i++)
        if (r->done[i] < r->queued[i])
            return false;
    return true;
}

/* The host queues one task, or those that are posted together; false: it waits, or is done. */
static bool host_goes_on(Rank *r, Waiting waiting)
{
    const Program *p = &r->program;
    bool waits = r->behind != NONE_U32 && r->done[r->behind] < r->queued[r->behind];
    if (r->at == p->tasks_n || waits)
        return false;
    const Task *t = &p->tasks[r->at];
    if (t->lane == LANE_HOST && !is_reached(r, t, false))
        return false;
    uint32_t n = program_posted_n(p, r->at);
    r->queued[t->lane] += n;
    r->at += n;
    r->behind = NONE_U32;
    if (t->lane == LANE_HOST)
        r->done[LANE_HOST] += n;
    else if (waiting == BEHIND_KERNELS && !op_is_comm(t->op->kind))
        r->behind = (uint32_t)t->lane;
    return true;
}

static bool rank_goes_on(const World *w, Rank *r, Waiting waiting)
{
    bool moved = false;
    while (host_goes_on(r, waiting))
        moved = true;
    for (uint32_t lane = 0; lane < LANE_HOST; lane++)
        while (device_goes_on(w, r, lane))
            moved = true;
    return moved;
}

static void tell_stuck(const World *w)
{
    for (uint32_t i = 0; i < w->ranks_n; i++) {
        const Rank *r = &w->rank[i];
        for (uint32_t lane = 0; lane < LANE_HOST; lane++) {
            if (r->done[lane] == r->queued[lane])
                continue;
            const Task *t =
                &r->program.tasks[program_task_at(&r->program, lane, r->done[lane])];
            fprintf(stderr, "rank %u: '%s' on lane %s %s\n", i,
                    program_text(&r->program, t->op->name), lane_names[lane],
                    r->runs[lane] ? "runs" : "waits");
        }
    }
}

static void begin_again(World *w)
{
    for (uint32_t i = 0; i < w->ranks_n; i++) {
        Rank *r = &w->rank[i];
        memset(r->begun, 0, w->plan.comms_n * sizeof *r->begun);
        memset(r->queued, 0, sizeof r->queued);
        memset(r->done, 0, sizeof r->done);
        memset(r->runs, 0, sizeof r->runs);
        r->at = 0;
        r->behind = NONE_U32;
    }
}

static bool comes_to_an_end(World *w, Waiting waiting)
{
    bool moved = true, ended = true;
    begin_again(w);
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < w->ranks_n; i++)
            moved = rank_goes_on(w, &w->rank[i], waiting) || moved;
    }
    for (uint32_t i = 0; i < w->ranks_n; i++)
        ended = ended && w->rank[i].at == w->rank[i].program.tasks_n && is_idle(&w->rank[i]);
    if (!ended)
        tell_stuck(w);
    return ended;
}

/* ---- what meets ---- */

static uint64_t bytes_of(const Part *parts, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += parts[i].elements * dtype_bytes(parts[i].dtype);
    return bytes;
}

/* Of a gather with a place for the result the whole is that, else what goes in. */
static const Part *whole_of(const CommCall *c)
{
    return c->kind == OP_ALL_GATHER && c->out_n > 0 ? c->out : c->in;
}

static bool same_collective(const CommCall *a, const CommCall *b)
{
    bool rooted = a->kind == OP_BROADCAST || a->kind == OP_REDUCE;
    bool same = a->kind == b->kind && a->in_n == b->in_n && a->out_n == b->out_n &&
                a->maximum == b->maximum && (!rooted || a->peer == b->peer);
    for (uint32_t k = 0; k < a->in_n && same; k++) {
        const Part *p = &whole_of(a)[k], *q = &whole_of(b)[k];
        same = p->elements == q->elements && p->dtype == q->dtype;
    }
    return same;
}

static bool same_call(const CommCall *a, const CommCall *b)
{
    if (!op_is_p2p(a->kind))
        return same_collective(a, b);
    return op_is_p2p(b->kind) && a->kind != b->kind &&
           bytes_of(a->in, a->in_n) == bytes_of(b->in, b->in_n);
}

/* The rank's next call on the communicator from `from` on; calls_n: none. */
static uint32_t next_on(const Rank *r, uint32_t comm, uint32_t from)
{
    while (from < r->calls.calls_n && r->comm_of[from] != comm)
        from++;
    return from;
}

static bool meetings_fit(World *w)
{
    uint64_t wrong = 0;
    for (uint32_t comm = 0; comm < w->plan.comms_n; comm++) {
        const SplitComm *c = &w->plan.comms[comm];
        const uint32_t *members = w->plan.members + c->members_first;
        const Rank *first = &w->rank[members[0]];
        for (uint32_t m = 1; m < c->members_n; m++) {
            const Rank *other = &w->rank[members[m]];
            uint32_t a = next_on(first, comm, 0), b = next_on(other, comm, 0);
            for (; a < first->calls.calls_n && b < other->calls.calls_n;
                 a = next_on(first, comm, a + 1), b = next_on(other, comm, b + 1))
                wrong += !same_call(&first->calls.calls[a], &other->calls.calls[b]);
            wrong += a < first->calls.calls_n || b < other->calls.calls_n;
        }
    }
    return wrong == 0;
}

/* ---- tests ---- */

typedef bool CheckWorld(World *w);

static void each_drawn(CheckWorld *check)
{
    uint32_t comms_n = 0;
    for (uint64_t seed = 0; seed < check_cases(DRAWN_N); seed++) {
        Draw d;
        Drawn x;
        World w = { 0 };
        draw_scenario(&d, seed, (DrawKind){ .odd = seed % 2, .experts = seed % 3 == 0 });
        if (drawn_make_to_run(&x, &d) && world_make(&w, &x.g) && !CHECK(check(&w)))
            fprintf(stderr, "%s\n", d.text);
        comms_n += w.plan.comms_n;
        world_free(&w);
        drawn_free(&x);
    }
    CHECK(comms_n > 10 * check_cases(DRAWN_N));
}

static bool ends_ahead(World *w)
{
    return comes_to_an_end(w, NEVER);
}

static bool ends_behind_kernels(World *w)
{
    return comes_to_an_end(w, BEHIND_KERNELS);
}

static void hosts_that_run_ahead_come_to_an_end(void)
{
    each_drawn(ends_ahead);
}

static void hosts_that_wait_behind_each_kernel_come_to_an_end(void)
{
    each_drawn(ends_behind_kernels);
}

static void calls_that_meet_on_a_communicator_are_the_same(void)
{
    each_drawn(meetings_fit);
}

int main(void)
{
    RUN(hosts_that_run_ahead_come_to_an_end);
    RUN(hosts_that_wait_behind_each_kernel_come_to_an_end);
    RUN(calls_that_meet_on_a_communicator_are_the_same);
    return check_report();
}
