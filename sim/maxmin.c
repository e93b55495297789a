/* maxmin.c - progressive filling; each round retires the tightest link, or who has enough. */
#include "sim/maxmin.h"

#include <math.h>

/* Of a link, while rates are computed. */
struct MaxminLink {
    double left, load;
    uint32_t first, last; /* of its users */
    uint32_t number;      /* of MaxminSpace.share and touched */
    bool seen;            /* false between calls */
};

/* One flow on one link, and the next there. */
struct MaxminUser {
    uint32_t flow, next;
};

typedef struct MaxminLink Link;
typedef struct MaxminUser User;

void maxmin_space(MaxminSpace *space, uint32_t resources_n, Arena *arena)
{
    *space = (MaxminSpace){ .arena = arena };
    space->link = PUSH_ARRAY(arena, Link, resources_n);
    space->touched = PUSH_ARRAY(arena, uint32_t, resources_n);
    space->share = PUSH_ARRAY(arena, double, resources_n);
}

double maxmin_solo(const Demand *flow, const Resource *resource)
{
    double rate = INFINITY;
    for (uint32_t u = 0; u < flow->uses_n; u++)
        rate = fmin(rate,
                    resource[flow->uses[u].resource].bytes_per_ns / flow->uses[u].coefficient);
    return rate;
}

double maxmin_own(const Demand *flow, const Resource *resource)
{
    double rate = INFINITY;
    for (uint32_t u = 0; u < flow->uses_n; u++)
        rate = fmin(rate, resource[flow->uses[u].resource].bytes_per_ns / flow->uses[u].own);
    return rate;
}

static void make_room(MaxminSpace *s, const Demand *flow, uint32_t flows_n)
{
    uint32_t n = 0;
    for (uint32_t f = 0; f < flows_n; f++)
        n += flow[f].uses_n;
    if (n <= s->users_cap)
        return;
    s->users_cap = 2 * n;
    s->users = PUSH_ARRAY(s->arena, User, s->users_cap);
}

static void add_user(MaxminSpace *s, uint32_t link, uint32_t user, uint32_t flow)
{
    Link *l = &s->link[link];
    s->users[user] = (User){ flow, NONE_U32 };
    if (l->first == NONE_U32)
        l->first = user;
    else
        s->users[l->last].next = user;
    l->last = user;
}

static void find_share(MaxminSpace *s, const Link *l)
{
    s->share[l->number] = l->load > 0 ? l->left / l->load : INFINITY;
}

static uint32_t gather(const Demand *flow, uint32_t flows_n, const Resource *resource,
                       MaxminSpace *s)
{
    uint32_t n = 0, users_n = 0;
    for (uint32_t f = 0; f < flows_n; f++)
        for (uint32_t u = 0; u < flow[f].uses_n; u++) {
            uint32_t r = flow[f].uses[u].resource;
            if (!s->link[r].seen) {
                s->link[r] = (Link){ .left = resource[r].bytes_per_ns,
                                     .first = NONE_U32,
                                     .number = n,
                                     .seen = true };
                s->touched[n++] = r;
            }
            s->link[r].load += flow[f].uses[u].coefficient;
            add_user(s, r, users_n++, f);
        }
    for (uint32_t i = 0; i < n; i++) {
        find_share(s, &s->link[s->touched[i]]);
        s->link[s->touched[i]].seen = false;
    }
    return n;
}

/* NULL: nobody is left. */
static Link *tightest(const MaxminSpace *s, uint32_t touched_n)
{
    uint32_t best = 0;
    double least = INFINITY;
    for (uint32_t i = 0; i < touched_n; i++)
        if (s->share[i] < least) {
            least = s->share[i];
            best = i;
        }
    return least < INFINITY ? &s->link[s->touched[best]] : NULL;
}

static void freeze(double *rate, const Demand *flow, double share, MaxminSpace *s)
{
    *rate = share;
    for (uint32_t u = 0; u < flow->uses_n; u++) {
        Link *l = &s->link[flow->uses[u].resource];
        l->left -= share * flow->uses[u].coefficient;
        l->load -= flow->uses[u].coefficient;
        /* Rounding can leave a hair; a link must not seem used or overdrawn by it. */
        if (l->load < 1e-12)
            l->load = 0;
        if (l->left < 0)
            l->left = 0;
        find_share(s, l);
    }
}

/* The flow that has enough first, below this share; NONE_U32: none has. */
static uint32_t first_content(const double *rate, const Demand *flow, uint32_t flows_n,
                              double share)
{
    uint32_t first = NONE_U32;
    for (uint32_t f = 0; f < flows_n; f++)
        if (flow[f].cap > 0 && flow[f].cap < share && isinf(rate[f])) {
            share = flow[f].cap;
            first = f;
        }
    return first;
}

static bool some_are_capped(const Demand *flow, uint32_t flows_n)
{
    for (uint32_t f = 0; f < flows_n; f++)
        if (flow[f].cap > 0)
            return true;
    return false;
}

void maxmin_rates(double *rate, const Demand *flow, uint32_t flows_n, const Resource *resource,
                  MaxminSpace *s)
{
    make_room(s, flow, flows_n);
    uint32_t touched_n = gather(flow, flows_n, resource, s);
    bool capped = some_are_capped(flow, flows_n);
    for (uint32_t f = 0; f < flows_n; f++)
        rate[f] = INFINITY; /* not frozen */
    for (Link *full = tightest(s, touched_n); full; full = tightest(s, touched_n)) {
        double share = s->share[full->number];
        uint32_t content = capped ? first_content(rate, flow, flows_n, share) : NONE_U32;
        if (content != NONE_U32) {
            freeze(&rate[content], &flow[content], flow[content].cap, s);
            continue;
        }
        for (uint32_t u = full->first; u != NONE_U32; u = s->users[u].next)
            if (isinf(rate[s->users[u].flow]))
                freeze(&rate[s->users[u].flow], &flow[s->users[u].flow], share, s);
        s->share[full->number] = INFINITY;
    }
}
