/*
 * engine_path.c - the longest chain of causes (Path), carried along as the run goes.
 *
 *     compute   |  F layer 0  |        |  F layer 1  |
 *     tp                      |gather  |                    cause of layer 1: the gather's path,
 *                                                           which is that of layer 0 and the gather
 *
 * Every lane knows the path to the end of its last op, and to the start of the running one: that of
 * what it waited for last.  Who asks for totals only is told no path, and none is carried.
 */
#include <math.h>

#include "sim/engine_collapse.h"

void path_setup(Sim *sim, Runner *r)
{
    if (sim->options->totals)
        return;
    r->path = PUSH_ARRAY(&sim->arena, Path, LANE_N);
    r->cause = PUSH_ARRAY(&sim->arena, Path, LANE_N);
}

Path path_of_lane(const Runner *r, uint32_t lane)
{
    return r->path ? r->path[lane] : (Path){ 0 };
}

static Path path_of_host(const Sim *sim, const Runner *r, uint32_t instance)
{
    const Host *h = r->host;
    const Anchor *a = &h->anchors[h->anchors_n - 1];
    while (a > h->anchors && a->place > host_place(h, instance, r->host_turn))
        a--;
    Path p = a->path;
    p.launch_ns += sim->now_ns - a->at_ns;
    return p;
}

/* The path to now, given what the lane has just waited for. */
static Path path_to_start(const Sim *sim, const Runner *r, uint32_t lane)
{
    const LaneState *l = &r->lane[lane];
    if (l->wait == WAIT_HOST || l->wait == WAIT_GATE)
        return path_of_host(sim, r, l->instance);
    if (l->wait == WAIT_LANE)
        return r->path[l->wait_lane];
    return r->path[lane];
}

/* Padded with bubble up to now, so that paths always sum to the time they lead to. */
void path_start(const Sim *sim, Runner *r, uint32_t lane)
{
    if (!r->path)
        return;
    Path p = path_to_start(sim, r, lane);
    p.bubble_ns += sim->now_ns - (p.compute_ns + p.comm_ns + p.bubble_ns + p.launch_ns);
    r->cause[lane] = p;
}

void path_computed(const Sim *sim, Runner *r, uint32_t lane)
{
    if (!r->path)
        return;
    r->path[lane] = r->cause[lane];
    r->path[lane].compute_ns += sim->now_ns - r->lane[lane].start_ns;
}

void path_into_flow(Flow *f, const Runner *r, uint32_t lane)
{
    if (r->path)
        f->path = r->cause[lane];
}

void path_transferred(const Sim *sim, Runner *r, uint32_t lane, const Flow *f)
{
    if (!r->path)
        return;
    r->path[lane] = f->path;
    r->path[lane].comm_ns += sim->now_ns - f->start_ns;
}

/* What has passed since the macro began, so much of it communication. */
static Path path_into_macro(const Sim *sim, const Runner *r, double comm)
{
    int64_t passed_ns = sim->now_ns - r->lane[LANE_COMPUTE].start_ns;
    int64_t comm_ns = min_i64(passed_ns, ns_round(fmax(0, comm)));
    Path p = r->cause[LANE_COMPUTE];
    p.comm_ns += comm_ns;
    p.compute_ns += passed_ns - comm_ns;
    return p;
}

/* As was found when it was timed. */
Path path_of_macro(const Sim *sim, const Runner *r)
{
    const Macro *m = r->running_macro;
    if (!r->path)
        return (Path){ 0 };
    double comm = m->has_comm ? macro_map(m, m->alone_at, m->path_at, r->position) : 0;
    return path_into_macro(sim, r, comm + r->path_shift);
}

/* Of a chain the macro that it is in, at *x of its own; what of the path to its beginning is
 * communication is added to *comm. */
static const Macro *part_of(const Macro *m, double *x, double *comm)
{
    double before = *x;
    const Macro *part = chain_part(m, x);
    if (part != m)
        *comm += macro_map(m, m->alone_at, m->path_at, before - *x);
    return part;
}

/* What of the path to x, through op i of the macro, is communication. */
static double comm_through(const Sim *sim, const Macro *m, uint32_t i, double x)
{
    bool comm = op_is_comm(macro_op(sim, m, i)->kind);
    return (double)m->path_ns[i] + (comm ? x - (double)m->start_ns[i] : 0);
}

Path path_of_inner(const Sim *sim, const Runner *r, uint32_t i)
{
    double x = r->position, comm = r->path_shift;
    if (!r->path)
        return (Path){ 0 };
    const Macro *m = part_of(r->running_macro, &x, &comm);
    return path_into_macro(sim, r, comm + comm_through(sim, m, i, x));
}

void path_go_on_as(const Sim *sim, Runner *r, const Macro *as, double y)
{
    double x = r->position;
    uint32_t last = NONE_U32; /* of the ops in progress, to end */
    if (!r->path)
        return;
    const Macro *m = part_of(r->running_macro, &x, &r->path_shift);
    for (uint32_t i = m->of.first; i < m->of.end; i++)
        if ((double)m->start_ns[i] < x && x < (double)m->end_ns[i] &&
            (last == NONE_U32 || as->end_ns[i] > as->end_ns[last]))
            last = i;
    if (last != NONE_U32)
        r->path_shift += comm_through(sim, m, last, x) - comm_through(sim, as, last, y);
    else
        r->path_shift += macro_map(m, m->alone_at, m->path_at, x) -
                         macro_map(as, as->alone_at, as->path_at, y);
}

void path_set(Runner *r, uint32_t lane, const Path *p)
{
    if (r->path)
        r->path[lane] = *p;
}

void path_set_cause(Runner *r, uint32_t lane, const Path *p)
{
    if (r->path)
        r->cause[lane] = *p;
}

void path_lengthen(Path *p, int64_t ns)
{
    int64_t so_far = p->compute_ns + p->comm_ns + p->bubble_ns + p->launch_ns;
    double by = so_far > 0 ? (double)ns / (double)so_far : 0;
    int64_t comm_ns = (int64_t)((double)p->comm_ns * by);
    int64_t bubble_ns = (int64_t)((double)p->bubble_ns * by);
    int64_t launch_ns = (int64_t)((double)p->launch_ns * by);
    p->comm_ns += comm_ns;
    p->bubble_ns += bubble_ns;
    p->launch_ns += launch_ns;
    p->compute_ns += ns - comm_ns - bubble_ns - launch_ns;
}

Path path_longest(const Runner *r)
{
    Path longest = { 0 };
    int64_t most_ns = -1;
    for (uint32_t lane = 0; lane < LANE_HOST && r->path; lane++) {
        const Path *p = &r->path[lane];
        int64_t ns = p->compute_ns + p->comm_ns + p->bubble_ns + p->launch_ns;
        if (ns > most_ns) {
            most_ns = ns;
            longest = *p;
        }
    }
    return longest;
}
