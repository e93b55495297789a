/*
 * engine_beside.c - macros whose transfers share links with flows of others.
 *
 *     gather of parameters   |latency|==========================|latency|=======
 *     the layer, alone       |qkv|attn|out|ar|up|down|ar|
 *     beside the gather      |qkv|attn|out|.ar.|up|down|.ar.|
 *
 * What a macro takes beside flows that move for as long as it lasts is known as well as what it
 * takes alone: its transfers get the fair share of their links.  Timed once for each set of flows
 * (Beside) and kept in the list of what it is alone, it is one event as long as those flows, and
 * no others, are on its links while it transfers there:
 *
 *   - the flows go as fast as without it, which the fair share says (their links elsewhere hold
 *     them back, or a send's channels); or
 *   - it is one flow, of the rank itself, with no one else on any of its links: what that loses
 *     by the macro's transfers is a running sum, of which it is told when the macro ends.  (Of
 *     ranks that share a port whoever is a nanosecond behind falls back further and further, so
 *     their transfers are ops of their own.)
 *
 * When flows begin, end or change their rate, a macro goes on beside the new ones from where all
 * its ops are as far: before its next transfer, or in one with no kernel beside it.  Where there
 * is no such place it is broken up (engine_leave.c).
 */
#include <math.h>

#include "sim/engine_collapse.h"

enum { KINDS_MOST = 32 }; /* beside so many sets of flows */

/* ---- who is there ---- */

typedef struct Neighbours {
    Beside by;
    uint32_t flow[BESIDE_MOST];
} Neighbours;

static double takes_of(const Flow *f, uint32_t link)
{
    Demand d = f->demand;
    for (uint32_t u = 0; u < d.uses_n; u++)
        if (d.uses[u].resource == link)
            return d.uses[u].coefficient;
    return 0;
}

/* False: they are too many.  One that is over by at_ns does not count. */
static bool add_flow(const Sim *sim, Neighbours *n, uint32_t flow, uint32_t kind, uint32_t link,
                     int64_t at_ns)
{
    const Flow *f = &sim->flows[flow];
    if (f->slowed_by == 0 && f->since_ns + ns_up(f->left / f->rate) <= at_ns)
        return true;
    uint32_t i = 0;
    while (i < n->by.n && n->flow[i] != flow)
        i++;
    if (i == BESIDE_MOST)
        return false;
    if (i == n->by.n) {
        n->flow[n->by.n++] = flow;
        n->by.flow[i] = (BesideFlow){ .rate = f->rate };
    }
    n->by.flow[i].takes[kind] = takes_of(f, link);
    n->by.links |= 1u << kind;
    return true;
}

/* Those that move on the links at at_ns if nothing begins until then.  False: they are too many, or
 * one may begin to move while a transfer is on, or what they get is not known. */
static bool find_neighbours(const Sim *sim, const Runner *r, uint32_t links, int64_t at_ns,
                            Neighbours *n)
{
    n->by.n = n->by.links = 0;
    for (; links; links &= links - 1) {
        uint32_t kind = first_lane(links), link = r->rc->resource[kind];
        for (uint32_t i = 0; i < sim->on_link_n[link]; i++)
            if (!add_flow(sim, n, sim->on_link[link][i], kind, link, at_ns))
                return false;
        if (sim->direct[link] == 0)
            continue;
        if (sim->flows[sim->direct[link] - 1].since_ns > at_ns ||
            !add_flow(sim, n, sim->direct[link] - 1, kind, link, at_ns))
            return false;
    }
    for (uint32_t i = 0; i < n->by.n; i++) {
        uint32_t by = sim->flows[n->flow[i]].slowed_by;
        if (by > 0 && by != r->id + 1)
            return false;
    }
    return true;
}

static bool same_flows(const Beside *a, const Beside *b)
{
    if (!b || a->n != b->n || a->links != b->links)
        return a->n == 0 && !b;
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->flow[i].rate != b->flow[i].rate)
            return false;
        for (uint32_t k = 0; k < RES_RANK_N; k++)
            if (a->flow[i].takes[k] != b->flow[i].takes[k])
                return false;
    }
    return true;
}

static bool is_on(const Sim *sim, const Runner *r, uint32_t link)
{
    uint32_t kind = sim->classes.resources[link].kind;
    return kind < RES_RANK_N && r->running_macro && r->running_macro->links >> kind & 1u &&
           r->rc->resource[kind] == link;
}

static bool is_member(const Sim *sim, const Runner *r, const Flow *f)
{
    const GroupClass *gc = f->group != NONE_U32 ? &sim->classes.groups[f->group] : NULL;
    for (uint32_t i = 0; gc && i < gc->members_n; i++)
        if (gc->member[i] == r->id)
            return true;
    return false;
}

/* Is it of the rank itself, with nobody but the rank's macro on its links? */
static bool may_slow(const Sim *sim, const Runner *r, uint32_t flow)
{
    Demand d = sim->flows[flow].demand;
    if (!is_member(sim, r, &sim->flows[flow]))
        return false;
    for (uint32_t u = 0; u < d.uses_n; u++) {
        uint32_t link = d.uses[u].resource;
        if (sim->macros_n[link] != is_on(sim, r, link) ||
            sim->held_n[link] - sim->macros_n[link] != 1)
            return false;
    }
    return true;
}

/* When it transfers next, or now if it does; INT64_MAX: no more. */
static int64_t next_transfer(const Sim *sim, const Macro *m, double x)
{
    int64_t start = m->first_ns;
    if ((double)start < x) {
        start = INT64_MAX;
        for (uint32_t i = 0; i < m->comms_n; i++)
            if ((double)m->comms[i].end_ns > x)
                start = min_i64(start, m->comms[i].start_ns);
    }
    if (start == INT64_MAX)
        return start;
    return sim->now_ns + ((double)start > x ? (int64_t)((double)start - x) : 0);
}

bool beside_none(const Sim *sim, const Runner *r, const Macro *m)
{
    Neighbours n;
    return macro_links_in_use(sim, r, m) == 0 ||
           (find_neighbours(sim, r, m->links, next_transfer(sim, m, 0), &n) && n.by.n == 0);
}

static bool fits(const Runner *r, const Macro *m, const Neighbours *n)
{
    return same_flows(&n->by, m->by) && (!m->slows || r->slows == n->flow[0] + 1);
}

bool beside_fits(const Sim *sim, const Runner *r)
{
    Neighbours n;
    const Macro *m = r->running_macro;
    int64_t at_ns = next_transfer(sim, m, r->position);
    if (at_ns == INT64_MAX)
        return true;
    return find_neighbours(sim, r, m->links, at_ns, &n) && fits(r, m, &n);
}

/* ---- the macro beside them ---- */

static Macro *make(Sim *sim, const Runner *r, const Macro *like, const Beside *by)
{
    BesideList *list = like->beside;
    Macro *m = PUSH(&sim->arena, Macro);
    Beside *kept = PUSH(&sim->arena, Beside);
    *kept = *by;
    m->by = kept;
    m->state = macro_time(sim, r, like->of, m) ? MACRO_YES : MACRO_NO;
    m->end_op = like->end_op;
    m->beside = list;
    m->next = list->first;
    m->number = ++list->n;
    list->first = m;
    return m;
}

/* alone: the same alone.  NULL: there is none. */
static const Macro *beside(Sim *sim, Runner *r, const Macro *alone, const Neighbours *n)
{
    if (n->by.n == 0)
        return alone;
    Macro *m = alone->beside->first;
    r->meets = n->flow[0];
    while (m && !same_flows(&n->by, m->by))
        m = m->next;
    if (!m && alone->beside->n < KINDS_MOST)
        m = make(sim, r, alone, &n->by);
    bool may = m && m->state == MACRO_YES && (!m->slows || may_slow(sim, r, n->flow[0]));
    return may ? m : NULL;
}

const Macro *beside_choose(Sim *sim, Runner *r, const Macro *m)
{
    Neighbours n;
    uint32_t used = macro_links_in_use(sim, r, m);
    r->alone = m;
    if (used == 0)
        return m;
    const Macro *as = NULL;
    if (find_neighbours(sim, r, m->links, next_transfer(sim, m, 0), &n))
        as = beside(sim, r, m, &n);
    if (as)
        return as;
    return macro_transfers_at(m, used, 0) ? NULL : m;
}

/* ---- from one to another ---- */

/* The position at which so much of a transfer is done. */
static double position_of(const Macro *m, uint32_t op, double into)
{
    const MacroComm *c = m->comms;
    while (c->op != op)
        c++;
    if (!c->into)
        return (double)c->start_ns + into;
    const double *at = c->into;
    uint32_t i = c->into_first;
    while (m->alone_at[i + 1] < c->end_ns && at[1] <= into) {
        at++;
        i++;
    }
    double part = at[1] > at[0] ? (into - at[0]) / (at[1] - at[0]) : 1;
    return (double)m->alone_at[i] + part * (double)(m->alone_at[i + 1] - m->alone_at[i]);
}

/* Is the lane in one macro at x as far as in the other at y? */
static bool as_far(const Sim *sim, const Runner *r, const MacroLane *p, const Macro *from,
                   double x, const Macro *to, double y)
{
    if (p->last != NONE_U32 && (double)to->end_ns[p->last] > y)
        return false;
    if (p->next == NONE_U32)
        return true;
    bool begun = (double)from->start_ns[p->next] < x;
    if ((double)to->end_ns[p->next] <= y || ((double)to->start_ns[p->next] < y) != begun)
        return false;
    return !begun || fabs(macro_op_into(sim, r, from, p->next, x) -
                          macro_op_into(sim, r, to, p->next, y)) <= 0.5;
}

/* Where `to` goes on from where `from` is at x; -1: it cannot. */
static double position_in(const Sim *sim, const Runner *r, const Macro *from, double x,
                          const Macro *to)
{
    MacroLane at[LANE_N];
    uint32_t transfer = NONE_U32, kernel = NONE_U32;
    double y = 0;
    if (x <= (double)from->first_ns) /* so far they are the same */
        return x;
    for (uint32_t left = from->lanes; left; left &= left - 1) {
        MacroLane *p = &at[first_lane(left)];
        *p = macro_lane_at(sim, from, first_lane(left), x);
        if (p->last != NONE_U32)
            y = fmax(y, (double)to->end_ns[p->last]);
        if (p->next != NONE_U32 && (double)from->start_ns[p->next] < x)
            *(op_is_comm(macro_op(sim, from, p->next)->kind) ? &transfer : &kernel) = p->next;
    }
    if (kernel != NONE_U32)
        y = (double)to->start_ns[kernel] + x - (double)from->start_ns[kernel];
    else if (transfer != NONE_U32)
        y = position_of(to, transfer, macro_op_into(sim, r, from, transfer, x));
    for (uint32_t left = from->lanes; left; left &= left - 1)
        if (!as_far(sim, r, &at[first_lane(left)], from, x, to, y))
            return -1;
    return y;
}

bool beside_refit(Sim *sim, Runner *r)
{
    Neighbours n;
    account(sim, r);
    const Macro *m = r->running_macro, *alone = m->number > 0 ? r->alone : m;
    double x = r->position;
    int64_t at_ns = next_transfer(sim, m, x);
    if (at_ns == INT64_MAX)
        return true;
    if (!find_neighbours(sim, r, m->links, at_ns, &n))
        return false;
    if (fits(r, m, &n))
        return true;
    if (m->parts_n > 0)
        m = alone = chain_part(m, &x);
    const Macro *to = beside(sim, r, alone, &n);
    double y = to ? position_in(sim, r, m, x, to) : -1;
    if (y < 0)
        return false;
    r->alone = alone;
    macro_go_on_as(sim, r, to, y);
    return beside_fits(sim, r);
}

/* ---- the flow that it slows ---- */

static double lost_so_far(Runner *r)
{
    MacroPlace here = macro_here(r);
    const double *lost = r->running_macro->lost_at + here.low;
    return lost[0] + here.part * (lost[1] - lost[0]);
}

/* The flow slows the rank's kernels for as long as it lasts, so it is known when the macro will be
 * where, and when the flow will have moved all. */
static void expect_end(Sim *sim, Runner *r)
{
    const Flow *f = &sim->flows[r->meets];
    const Macro *m = r->running_macro;
    ASSERT(r->slowed);
    MacroPlace here = macro_here(r);
    double from = macro_sum(&here, m->slow_at);
    double waited = (double)(f->since_ns - sim->now_ns);
    double left = f->left - f->rate * fmax(0, -waited);
    uint32_t low = here.low, high = m->intervals_n;
    while (low < high) {
        uint32_t i = low + (high - low) / 2;
        double ns = (double)m->slow_at[i + 1] - from - fmax(0, waited);
        if (f->rate * ns - (m->lost_at[i + 1] - r->lost_from) < left)
            low = i + 1;
        else
            high = i;
    }
    /* So much it has moved where interval `low`, or the macro, is over. */
    bool behind = low == m->intervals_n;
    double start = (double)m->slow_at[low] - from;
    left -= f->rate * (start - fmax(0, waited)) - (m->lost_at[low] - r->lost_from);
    double lost = behind ? 0 : m->lost_at[low + 1] - m->lost_at[low], rate = f->rate;
    if (lost > 0)
        rate -= lost / (double)(m->slow_at[low + 1] - m->slow_at[low]);
    flow_ends_in(sim, r->meets, start + left / rate);
}

void beside_attach(Sim *sim, Runner *r)
{
    if (!r->running_macro->slows)
        return;
    r->slows = r->meets + 1;
    r->lost_from = lost_so_far(r);
    sim->flows[r->meets].slowed_by = r->id + 1;
    expect_end(sim, r);
}

/* The flow is told what it has lost. */
void beside_detach(Sim *sim, Runner *r)
{
    if (r->slows == 0)
        return;
    flow_set_back(sim, r->slows - 1, lost_so_far(r) - r->lost_from);
    sim->flows[r->slows - 1].slowed_by = 0;
    r->slows = 0;
}

/* ---- when flows change ---- */

static void release(Sim *sim, uint32_t flow)
{
    uint32_t by = sim->flows[flow].slowed_by;
    if (by == 0)
        return;
    Runner *r = &sim->runners[by - 1];
    account(sim, r);
    beside_detach(sim, r);
    compute_look(sim, r);
}

void beside_make_way(Sim *sim, Demand d)
{
    for (uint32_t u = 0; u < d.uses_n; u++) {
        uint32_t link = d.uses[u].resource;
        for (uint32_t i = 0; i < sim->on_link_n[link]; i++)
            release(sim, sim->on_link[link][i]);
        if (sim->direct[link] > 0)
            release(sim, sim->direct[link] - 1);
    }
}

static bool transfers_within(const Macro *m, uint32_t kind, double x, double ns)
{
    for (uint32_t i = 0; i < m->comms_n; i++)
        if (m->comms[i].links >> kind & 1u && (double)m->comms[i].end_ns > x &&
            (double)m->comms[i].start_ns < x + ns)
            return true;
    return false;
}

/* Who has a macro on a link. */
typedef struct OnLink {
    uint32_t kind;              /* of the link: bit of Macro.links */
    const uint32_t *next, *end; /* of who shares it */
} OnLink;

static OnLink on_link(const Sim *sim, uint32_t link)
{
    const uint32_t *first = sim->sharers + sim->sharers_first[link];
    uint32_t n = sim->sharers_first[link + 1] - sim->sharers_first[link];
    return (OnLink){ sim->classes.resources[link].kind, first,
                     first + (sim->macros_n[link] > 0 ? n : 0) };
}

/* The next; NULL: no more. */
static Runner *next_on(const Sim *sim, OnLink *on)
{
    while (on->next < on->end) {
        Runner *r = &sim->runners[*on->next++];
        if (r->running_macro && r->running_macro->links >> on->kind & 1u)
            return r;
    }
    return NULL;
}

bool beside_is_quiet(Sim *sim, Demand d, int64_t ns)
{
    for (uint32_t u = 0; u < d.uses_n; u++) {
        OnLink on = on_link(sim, d.uses[u].resource);
        for (Runner *r = next_on(sim, &on); r; r = next_on(sim, &on)) {
            account(sim, r);
            if (transfers_within(r->running_macro, on.kind, r->position, (double)ns))
                return false;
        }
    }
    return true;
}

void beside_changed(Sim *sim, Demand d)
{
    for (uint32_t u = 0; u < d.uses_n; u++) {
        OnLink on = on_link(sim, d.uses[u].resource);
        for (Runner *r = next_on(sim, &on); r; r = next_on(sim, &on)) {
            if (!r->in_doubt)
                sim_wake(sim, r, LANE_N);
            r->in_doubt = true;
        }
    }
}
