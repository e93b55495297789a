/*
 * engine_links.c - how busy the links of a rank are, as counter tracks beside its spans.
 *
 *     value = bytes that cross the link per ns, over what its data sheet gives, in percent
 *
 * A flow leaves a stint on each of its links whenever its rate changes, and when it ends:
 * what it has carried since the last time.  The stints on a link, summed, are its counter.
 *
 *     flow a  |==== 60 ====|=== 30 ===|                two sends that share a port:
 *     flow b               |=== 30 ===|==== 60 ====|   the counter has two points,
 *     port    |            60                      |   where it begins and where it ends
 *
 * What is counted.  The bytes are data: what a transfer passes on by its algorithm (ring
 * all-reduce 2(n-1)/n of its size over each port, tree 2, NVLS 1, a send its size), times
 * the part that crosses this link (sim/classes.h: Use.crossing).  Neither the flags of LL
 * nor the bandwidth that a protocol does not reach count, so a link on which no more can be
 * had shows what collectives make of the data sheet, 80 or 90 %.  While a transfer has not
 * moved yet (its latency) nothing crosses.  The integral over time is the bytes carried:
 * the last stint is as long as whole nanoseconds made it.  Only where a collective was
 * measured to be faster than its algorithm could be does a value exceed 100.  Transfers
 * whose times are given (GivenCosts) have no known links, and leave nothing.
 *
 * Whose link.  Ranks that share a link (a NIC of several GPUs) all show its whole load; a
 * folded rank shows the one of those it stands for.  Where both directions of a link carry
 * the same at all times, as with rings, they are one track.
 *
 * Loads are whole multiples of 2^-50 of the link's rate: their sums are exact in any order,
 * and a link that is idle again is at 0.
 */
#include <math.h>
#include <stdlib.h>

#include "sim/engine_state.h"

enum { LOAD_BITS = 50 };

typedef struct Stint {
    uint32_t link; /* resource */
    int64_t from_ns, to_ns, load;
} Stint;

/* At at_ns the load changes by so much, or is so much from then on. */
typedef struct Step {
    int64_t at_ns, load;
} Step;

struct LinkLog {
    uint64_t stints_n, stints_cap;
    Stint *stints;
    Step *steps;      /* by link */
    uint64_t *step_n; /* of each link, from step_first on */
    uint64_t *step_first;
};

void links_begin(Sim *sim)
{
    if (sim->timeline && sim->options->links)
        sim->links = mem_zero(1, sizeof *sim->links);
}

void links_end(Sim *sim)
{
    if (!sim->links)
        return;
    free(sim->links->stints);
    free(sim->links->steps);
    free(sim->links->step_n);
    free(sim->links->step_first);
    free(sim->links);
    sim->links = NULL;
}

void links_note(Sim *sim, Flow *f, double left)
{
    LinkLog *log = sim->links;
    int64_t since_ns = f->noted_ns, ns = sim->now_ns - since_ns;
    double moved = (f->noted_left - left) * f->cost->payload_bytes / f->cost->traffic_bytes;
    bool moves = f->rate > 0 && ns > 0;
    f->noted_left = left;
    f->noted_ns = sim->now_ns;
    if (!moves)
        return;
    Demand d = f->demand;
    for (uint32_t u = 0; u < d.uses_n; u++) {
        uint32_t link = d.uses[u].resource;
        double part =
            moved * d.uses[u].crossing / (double)ns / sim->classes.resources[link].bytes_per_ns;
        int64_t load = llround(ldexp(part, LOAD_BITS));
        GROW(log->stints, log->stints_n, log->stints_cap);
        log->stints[log->stints_n++] = (Stint){ link, since_ns, sim->now_ns, load };
    }
}

/* ---- from stints to steps ---- */

static int compare_steps(const void *a, const void *b)
{
    const Step *x = a, *y = b;
    return x->at_ns < y->at_ns ? -1 : x->at_ns > y->at_ns;
}

static bool is_sorted(const Step *step, uint64_t n)
{
    for (uint64_t i = 1; i < n; i++)
        if (step[i].at_ns < step[i - 1].at_ns)
            return false;
    return true;
}

/* Changes, in any order, become loads, where they differ from the one before.  Returns how many. */
static uint64_t sum_changes(Step *step, uint64_t n)
{
    uint64_t kept = 0;
    int64_t load = 0, before = 0;
    if (!is_sorted(step, n)) /* it is, where transfers do not overlap */
        qsort(step, n, sizeof *step, compare_steps);
    for (uint64_t i = 0; i < n; i++) {
        int64_t at_ns = step[i].at_ns;
        load += step[i].load;
        if ((i + 1 < n && step[i + 1].at_ns == at_ns) || load == before)
            continue;
        step[kept++] = (Step){ at_ns, load };
        before = load;
    }
    return kept;
}

static void sum_stints(LinkLog *log, uint32_t links_n)
{
    log->steps = mem_zero(2 * log->stints_n + 1, sizeof *log->steps);
    log->step_n = mem_zero(links_n + 1, sizeof *log->step_n);
    log->step_first = mem_zero(links_n + 1, sizeof *log->step_first);
    for (uint64_t i = 0; i < log->stints_n; i++)
        log->step_first[log->stints[i].link + 1] += 2;
    for (uint32_t k = 0; k < links_n; k++)
        log->step_first[k + 1] += log->step_first[k];
    for (uint64_t i = 0; i < log->stints_n; i++) {
        const Stint *s = &log->stints[i];
        Step *end = log->steps + log->step_first[s->link];
        end[log->step_n[s->link]++] = (Step){ s->from_ns, s->load };
        end[log->step_n[s->link]++] = (Step){ s->to_ns, -s->load };
    }
    for (uint32_t k = 0; k < links_n; k++)
        log->step_n[k] = sum_changes(log->steps + log->step_first[k], log->step_n[k]);
}

static bool same_steps(const LinkLog *log, uint32_t a, uint32_t b)
{
    const Step *x = log->steps + log->step_first[a], *y = log->steps + log->step_first[b];
    uint64_t n = log->step_n[a], i = 0;
    while (i < n && n == log->step_n[b] && x[i].at_ns == y[i].at_ns && x[i].load == y[i].load)
        i++;
    return i == n && n == log->step_n[b];
}

/* ---- tracks ---- */

static const char *port_name(const NodeType *t)
{
    switch (t->intra.kind) {
    case INTRA_NVSWITCH:
    case INTRA_NVLINK_MESH:
        return t->gpu->generation == GPU_CDNA3 ? "xGMI" : "NVLink";
    case INTRA_PCIE:
        return "PCIe";
    case INTRA_SHARED_MEMORY:
        return "shared memory";
    default:
        return "GPU ring";
    }
}

static void add_track(Sim *sim, const RankClass *rc, uint32_t link, uint32_t place,
                      const char *what)
{
    const LinkLog *log = sim->links;
    Timeline *t = sim->timeline;
    char name[96];
    snprintf(name, sizeof name, "%s, %% of %.6g GB/s", what,
             sim->classes.resources[link].bytes_per_ns);
    uint32_t track = timeline_track(t, rc->rank, TRACK_COUNTER, name, LANE_N + 2 + place);
    t->tracks[track].ranks_n = rc->ranks_n;
    const Step *step = log->steps + log->step_first[link];
    if (step[0].at_ns > 0)
        timeline_point(t, track, 0, 0);
    for (uint64_t i = 0; i < log->step_n[link]; i++)
        timeline_point(t, track, step[i].at_ns, ldexp((double)step[i].load * 100, -LOAD_BITS));
}

static void record_pair(Sim *sim, const RankClass *rc, uint32_t kind)
{
    static const char *const what[RES_RANK_N / 2] = { NULL, "NIC", "leaf", "ring NICs" };
    static const char *const way[RES_RANK_N] = { "out", "in",   "out", "in",
                                                 "up",  "down", "out", "in" };
    const LinkLog *log = sim->links;
    const uint32_t *link = rc->resource + kind;
    const char *name = kind == RES_PORT_OUT ? port_name(rc->place.type) : what[kind / 2];
    if (link[0] == NONE_U32)
        return;
    char text[48];
    if (log->step_n[link[0]] > 0 && same_steps(log, link[0], link[1])) {
        snprintf(text, sizeof text, "%s %s/%s", name, way[kind], way[kind + 1]);
        add_track(sim, rc, link[0], kind, text);
        return;
    }
    for (uint32_t k = 0; k < 2; k++) {
        snprintf(text, sizeof text, "%s %s", name, way[kind + k]);
        if (log->step_n[link[k]] > 0)
            add_track(sim, rc, link[k], kind + k, text);
    }
}

/* A pair of ranks with a link of its own: both show it. */
static void record_slow_link(Sim *sim, uint32_t k)
{
    const Classes *c = &sim->classes;
    const SlowLink *l = &sim->m->slow_links[k];
    uint32_t link = c->resources_n - sim->m->slow_links_n + k;
    char text[48];
    if (sim->links->step_n[link] == 0)
        return;
    snprintf(text, sizeof text, "link %" PRIu32 "-%" PRIu32, l->rank_a, l->rank_b);
    uint32_t a = classes_of_rank(c, l->rank_a), b = classes_of_rank(c, l->rank_b);
    add_track(sim, &c->ranks[a], link, RES_RANK_N + k, text);
    if (a != b)
        add_track(sim, &c->ranks[b], link, RES_RANK_N + k, text);
}

void links_record(Sim *sim)
{
    if (!sim->links)
        return;
    sum_stints(sim->links, sim->classes.resources_n);
    for (uint32_t i = 0; i < sim->runners_n; i++)
        for (uint32_t kind = 0; kind < RES_RANK_N; kind += 2)
            record_pair(sim, sim->runners[i].rc, kind);
    for (uint32_t k = 0; k < sim->m->slow_links_n; k++)
        record_slow_link(sim, k);
}
