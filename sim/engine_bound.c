/*
 * engine_bound.c - what a step takes at least: the busiest lane of any rank, or the busiest link,
 * or all that a rank computes, slowed by the transfers that must be beside it.
 *
 *     stage 0   |F|F|F|F....                             ....|B|
 *     stage 1   |.|F|F.....                              ..|B|.|
 *     stage 2   |...|F B F B  all that stage 2 computes  B |...|
 *                fill                                      drain
 *
 * A segment takes of the compute lane what its macro takes alone (engine_macro.c), or its
 * kernels one after another where it is none; of another lane, its transfers alone on
 * their links.  Others only make that slower, and no two segments share a lane; but a macro
 * whose own transfers share links may end earlier where others delay one of them that nothing
 * waits for (in 3,120 drawn steps none did).  Filling and
 * draining count where steps do not follow one another on each rank by itself (Graph.open_ended).
 */
#include <math.h>
#include <string.h>

#include "sim/engine_collapse.h"

/* Parts of the compute lane's time by what they keep of their speed beside a transfer of somebody
 * else: the k-th is of those that keep up to (k + 1) / SPEEDS. */
enum { SPEEDS = 20 };

/* What a segment, or several, takes of a rank. */
typedef struct Busy {
    uint32_t filled_for; /* rank class + 1; 0: nobody */
    double lane_ns[LANE_N];
    double kernels_ns;         /* on the compute lane */
    double slowed_ns[SPEEDS];  /* alone; what nothing slows further is in none */
    double outside_ns[LANE_N]; /* transfers that the compute lane's time has not in it */
} Busy;

/* How often a rank comes to a segment. */
typedef struct Visits {
    double all, work, pass; /* work: in micro-batches; pass: see Rank */
} Visits;

static void add_busy(Busy *sum, const Busy *b, double times)
{
    for (uint32_t i = 0; i < LANE_N; i++)
        sum->lane_ns[i] += times * b->lane_ns[i];
    sum->kernels_ns += times * b->kernels_ns;
    for (uint32_t i = 0; i < SPEEDS; i++)
        sum->slowed_ns[i] += times * b->slowed_ns[i];
    for (uint32_t i = 0; i < LANE_N; i++)
        sum->outside_ns[i] += times * b->outside_ns[i];
}

/* What takes alone_ns by itself, and slowed_ns beside a transfer of somebody else. */
static void add_slowed(Busy *b, double alone_ns, double slowed_ns)
{
    if (slowed_ns <= 0)
        return;
    int k = (int)ceil(alone_ns / slowed_ns * SPEEDS * (1 - 1e-12)) - 1;
    b->slowed_ns[k < 0 ? 0 : k < SPEEDS ? k : SPEEDS - 1] += alone_ns;
}

static void add_intervals(Busy *b, const Macro *m)
{
    for (uint32_t i = 0; i < m->intervals_n; i++)
        add_slowed(b, (double)(m->alone_at[i + 1] - m->alone_at[i]),
                   (double)(m->slow_at[i + 1] - m->slow_at[i]));
}

/*
 * A rank that computes for W, and transfers for C besides, takes more than either: what runs beside
 * a transfer keeps a part k of its speed, else one of the two waits.  Least is
 * W + sum of (1 - k) x over the time x beside each, C in all, where transfers are beside what they
 * slow least: first idle_ns in which the rank has to wait in any case, then what the compute lane's
 * time has of waiting, or of what is slowed already, then by k; what is left of C is waited for.
 */
static double with_outside(const Busy *b, double work_ns, double idle_ns)
{
    double left_ns = 0, slowed_ns = 0, ns = work_ns + idle_ns;
    for (uint32_t i = LANE_COMPUTE + 1; i < LANE_HOST; i++)
        left_ns = fmax(left_ns, b->outside_ns[i]);
    for (uint32_t k = 0; k < SPEEDS; k++)
        slowed_ns += b->slowed_ns[k];
    left_ns -= fmax(b->lane_ns[LANE_COMPUTE] - slowed_ns, 0) + idle_ns;
    for (uint32_t k = SPEEDS; k-- > 0 && left_ns > 0;) {
        double keeps = (k + 1.0) / SPEEDS, beside = fmin(left_ns, b->slowed_ns[k] / keeps);
        ns += (1 - keeps) * beside;
        left_ns -= beside;
    }
    return ns + fmax(left_ns, 0);
}

static void time_segment(Sim *sim, Runner *r, uint32_t segment, Busy *b)
{
    const Segment *s = &sim->g->segments[segment];
    bool transfers = false;
    *b = (Busy){ .filled_for = r->id + 1 };
    for (uint32_t i = s->op_first; i < s->op_first + s->op_n; i++) {
        const Op *op = &sim->g->ops[i];
        double ns = (double)op_alone_ns(sim, r, i);
        bool kernel = op->lane == LANE_COMPUTE && !op_is_comm(op->kind);
        b->lane_ns[op->lane] += ns;
        b->kernels_ns += kernel ? ns : 0;
        transfers |= op->lane != LANE_COMPUTE && op_is_comm(op->kind);
        if (kernel)
            add_slowed(b, ns, (double)r->cost->op[i].slowed_ns);
        else if (op->lane != LANE_COMPUTE && op_is_collective(op->kind))
            b->outside_ns[op->lane] += ns;
    }
    const Macro *m = macro_of(sim, r, segment);
    bool macro = m->state == MACRO_YES;
    if (transfers || macro) /* slowed as it is, or its intervals say by how much */
        memset(b->slowed_ns, 0, sizeof b->slowed_ns);
    if (!macro)
        return;
    b->lane_ns[LANE_COMPUTE] = (double)m->alone_at[m->intervals_n];
    add_intervals(b, m);
    if (b->kernels_ns > 0)
        memset(b->outside_ns, 0, sizeof b->outside_ns);
}

/* A rank over the step. */
typedef struct Rank {
    Busy all;
    double work_ns; /* compute lane, of micro-batches */
    double pass_ns; /* of it, the first forward and the last backward of its first chunk */
} Rank;

/* Where weight gradients are apart, later stages do them beside the last backwards. */
static bool drains(const Graph *g)
{
    for (uint32_t i = 0; i < g->segments_n; i++)
        if (g->segments[i].kind == SEGMENT_WEIGHT)
            return false;
    return true;
}

static bool passes(const Segment *s, const Instance *in, uint32_t stage, uint32_t last)
{
    return in->chunk == stage && ((s->kind == SEGMENT_FORWARD && in->micro_batch == 0) ||
                                  (s->kind == SEGMENT_BACKWARD && in->micro_batch == last));
}

/* Micro-batches that those left out are like in forward, backward, weight gradients and the rest:
 * where pairs hide what a pass waits for (schedule.h), those that are in none take longer. */
enum { LIKE_REST = 3, LIKES };

static int like_of(const Segment *s)
{
    return s->kind == SEGMENT_FORWARD    ? 0
           : s->kind == SEGMENT_BACKWARD ? 1
           : s->kind == SEGMENT_SUM      ? 1
           : s->kind == SEGMENT_WEIGHT   ? 2
                                         : LIKE_REST;
}

static const Busy *busy_of(Sim *sim, Runner *r, uint32_t segment, Busy *busy)
{
    Busy *b = &busy[sim->same[segment]];
    if (b->filled_for != r->id + 1)
        time_segment(sim, r, sim->same[segment], b);
    return b;
}

/* Of those between the first and the last, which may have kernels of their own, the one that the
 * compute lane is done with soonest; work_ns: LIKE_REST times by micro-batch. */
static void find_lightest(Sim *sim, Runner *r, Busy *busy, double *work_ns, uint32_t *like)
{
    uint32_t n = role_micro_batches(r->role);
    memset(work_ns, 0, (size_t)LIKE_REST * n * sizeof *work_ns);
    for (uint32_t i = 0; i < r->role->instances_n; i++) {
        const Instance *in = &r->role->instances[i];
        int k = like_of(&sim->g->segments[in->segment]);
        if (in->micro_batch != NONE_U32 && k != LIKE_REST)
            work_ns[(size_t)k * n + in->micro_batch] +=
                busy_of(sim, r, in->segment, busy)->lane_ns[LANE_COMPUTE];
    }
    for (int k = 0; k < LIKES; k++) {
        const double *work = work_ns + (size_t)k * n;
        like[k] = n / 2;
        for (uint32_t m = 1; m + 1 < n && k != LIKE_REST; m++)
            like[k] = work[m] < work[like[k]] ? m : like[k];
    }
}

/* visits: by segment, those that are the same as one. */
static void count_visits(const Sim *sim, const Role *r, uint32_t left_out, const uint32_t *like,
                         Visits *visits)
{
    const Graph *g = sim->g;
    uint32_t n = role_micro_batches(r), last = drains(g) ? n - 1 : NONE_U32;
    memset(visits, 0, g->segments_n * sizeof *visits);
    for (uint32_t i = 0; i < r->instances_n; i++) {
        const Instance *in = &r->instances[i];
        const Segment *s = &g->segments[in->segment];
        Visits *v = &visits[sim->same[in->segment]];
        double times = in->micro_batch == like[like_of(s)] ? 1 + left_out : 1;
        v->all += times;
        v->work += in->micro_batch == NONE_U32 ? 0 : times;
        v->pass += passes(s, in, r->stage, last);
    }
}

/* Room for what is known of a rank while it is timed, and of links, which all ranks load. */
typedef struct Room {
    Visits *visits;  /* by segment */
    Busy *busy;      /* by segment, as it is with the rank before */
    double *work_ns; /* see find_lightest */
    double *link_ns; /* by resource */
} Room;

static Room make_room(Sim *sim)
{
    uint32_t micro_batches = 0, segments_n = sim->g->segments_n;
    for (uint32_t i = 0; i < sim->g->roles_n; i++) {
        uint32_t n = role_micro_batches(&sim->g->roles[i]);
        micro_batches = n > micro_batches ? n : micro_batches;
    }
    return (Room){ .visits = PUSH_ARRAY(&sim->arena, Visits, segments_n + 1),
                   .busy = PUSH_ARRAY(&sim->arena, Busy, segments_n + 1),
                   .work_ns =
                       PUSH_ARRAY(&sim->arena, double, (size_t)LIKE_REST *micro_batches + 1),
                   .link_ns = PUSH_ARRAY(&sim->arena, double, sim->classes.resources_n + 1) };
}

static Rank time_rank(Sim *sim, Runner *r, uint32_t left_out, const Room *room)
{
    Rank sum = { 0 };
    uint32_t like[LIKES] = { 0 };
    if (left_out > 0)
        find_lightest(sim, r, room->busy, room->work_ns, like);
    count_visits(sim, r->role, left_out, like, room->visits);
    for (uint32_t i = 0; i < sim->g->segments_n; i++) {
        const Visits *v = &room->visits[i];
        if (v->all <= 0)
            continue;
        const Busy *b = busy_of(sim, r, i, room->busy);
        add_busy(&sum.all, b, v->all);
        sum.work_ns += v->work * b->lane_ns[LANE_COMPUTE];
        sum.pass_ns += v->pass * b->lane_ns[LANE_COMPUTE];
        account_load(sim, r, &sim->g->segments[i], v->all, room->link_ns);
    }
    return sum;
}

static double busiest_lane(const Busy *b)
{
    double most_ns = 0;
    for (uint32_t i = 0; i < LANE_HOST; i++)
        most_ns = fmax(most_ns, b->lane_ns[i]);
    return most_ns;
}

/* Roles are in the order of their stages where there is a pipeline. */
static void longest_rank(Sim *sim, uint32_t left_out, void *step_ns)
{
    const Room room = make_room(sim);
    Rank *rank = PUSH_ARRAY(&sim->arena, Rank, sim->runners_n);
    double *pass_ns = PUSH_ARRAY(&sim->arena, double, sim->g->roles_n + 1), most_ns = 0;
    for (uint32_t i = 0; i < sim->g->roles_n; i++)
        pass_ns[i] = INFINITY;
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        const Runner *r = &sim->runners[i];
        rank[i] = time_rank(sim, &sim->runners[i], left_out, &room);
        most_ns = fmax(most_ns,
                       fmax(busiest_lane(&rank[i].all),
                            with_outside(&rank[i].all, rank[i].all.lane_ns[LANE_COMPUTE], 0)));
        ASSERT(r->role->stage < sim->g->roles_n);
        pass_ns[r->role->stage] = fmin(pass_ns[r->role->stage], rank[i].pass_ns);
    }
    for (uint32_t i = 0; i < sim->runners_n && !sim->g->open_ended; i++) {
        double idle_ns = 0;
        for (uint32_t s = 0; s < sim->runners[i].role->stage; s++)
            idle_ns += isinf(pass_ns[s]) ? 0 : pass_ns[s];
        most_ns = fmax(most_ns, with_outside(&rank[i].all, rank[i].work_ns, idle_ns));
    }
    for (uint32_t i = 0; i < sim->classes.resources_n; i++)
        most_ns = fmax(most_ns, room.link_ns[i]);
    *(double *)step_ns = most_ns;
}

static bool is_work(const Segment *s)
{
    return s->kind == SEGMENT_FORWARD || s->kind == SEGMENT_BACKWARD ||
           s->kind == SEGMENT_WEIGHT || s->kind == SEGMENT_SUM;
}

/* A micro-batch on a rank. */
typedef struct MicroBatch {
    Busy all;
    bool layers_came[2]; /* forward, backward */
    BlockBound *block;   /* as in MicroBatchBound */
} MicroBatch;

static void add_instance(MicroBatch *m, const Segment *s, const Instance *in, const Busy *busy,
                         const MicroBatchBound *of)
{
    bool backward = s->kind != SEGMENT_FORWARD, *came = &m->layers_came[backward];
    bool layer = in->layer < of->layers_n;
    BlockBound *block = &m->block[bound_block(in, backward, *came, of->layers_n)];
    PassBound *pass = backward ? &block->backward : &block->forward;
    *came |= layer;
    add_busy(&m->all, busy, layer && of->stands_for ? of->stands_for[in->layer] : 1);
    pass->busy_ns += busy->lane_ns[LANE_COMPUTE];
    pass->kernels_ns += busy->kernels_ns;
}

static void add_instances(Sim *sim, Runner *r, Busy *busy, MicroBatch *of,
                          const MicroBatchBound *bound)
{
    for (uint32_t k = 0; k < r->role->instances_n; k++) {
        const Instance *in = &r->role->instances[k];
        const Segment *s = &sim->g->segments[in->segment];
        if (in->micro_batch != NONE_U32 && is_work(s))
            add_instance(&of[in->micro_batch], s, in, busy_of(sim, r, in->segment, busy),
                         bound);
    }
}

static PassBound lesser(PassBound a, PassBound b)
{
    return (PassBound){ fmin(a.busy_ns, b.busy_ns), fmin(a.kernels_ns, b.kernels_ns) };
}

static void note_least(MicroBatchBound *least, const MicroBatch *m)
{
    least->busiest_ns = fmin(least->busiest_ns, busiest_lane(&m->all));
    least->kernels_ns = fmin(least->kernels_ns, m->all.kernels_ns);
    for (uint32_t i = 0; i < least->layers_n + 2; i++) {
        BlockBound *b = &least->block[i];
        b->forward = lesser(b->forward, m->block[i].forward);
        b->backward = lesser(b->backward, m->block[i].backward);
    }
}

/* Of any rank and micro-batch; a graph has some of both. */
static void least_micro_batch(Sim *sim, uint32_t ignored, void *bound)
{
    (void)ignored;
    MicroBatchBound *least = bound;
    PassBound never = { INFINITY, INFINITY };
    least->busiest_ns = least->kernels_ns = INFINITY;
    for (uint32_t i = 0; i < least->layers_n + 2; i++)
        least->block[i] = (BlockBound){ never, never };
    Busy *busy = PUSH_ARRAY(&sim->arena, Busy, sim->g->segments_n + 1);
    for (uint32_t i = 0; i < sim->runners_n; i++) {
        Runner *r = &sim->runners[i];
        uint32_t n = role_micro_batches(r->role);
        MicroBatch *of = PUSH_ARRAY(&sim->arena, MicroBatch, n);
        for (uint32_t m = 0; m < n; m++)
            of[m].block = PUSH_ARRAY(&sim->arena, BlockBound, least->layers_n + 2);
        add_instances(sim, r, busy, of, least);
        for (uint32_t m = 0; m < n; m++)
            note_least(least, &of[m]);
    }
}

/* Fills what it is given, which is 0. */
typedef void Bound(Sim *sim, uint32_t left_out, void *found);

/* Nothing is known where times are drawn. */
static bool bound_by(Bound *bound, void *found, const Graph *g, const Machine *m,
                     const Software *sw, uint32_t among, uint32_t left_out, Err *err)
{
    SimResult result = { 0 };
    SimOptions options = { 0 };
    Sim sim = { .g = g,
                .m = m,
                .sw = sw,
                .options = &options,
                .among = among,
                .result = &result,
                .err = err };
    bool ok = sim_setup_costs(&sim);
    if (ok && !(m->jitter > 0))
        bound(&sim, left_out, found);
    sim_teardown(&sim);
    sim_result_free(&result);
    return ok;
}

bool sim_bound_of_micro_batch(MicroBatchBound *bound, const Graph *g, const Machine *m,
                              const Software *sw, Err *err)
{
    bound->busiest_ns = bound->kernels_ns = 0;
    memset(bound->block, 0, (bound->layers_n + 2) * sizeof *bound->block);
    return bound_by(least_micro_batch, bound, g, m, sw, bound->among, 0, err);
}

bool sim_bound(double *step_ns, const Graph *g, const Machine *m, const Software *sw,
               uint32_t left_out, Err *err)
{
    *step_ns = 0;
    return bound_by(longest_rank, step_ns, g, m, sw, 0, left_out, err);
}
