/*
 * engine_share.c - fair rates of flows that share links.
 *
 *     link X  | gather |      | send |        gather and send, send and reduction share a link:
 *     link Y           | send |reduction|     the rates of all three depend on each other
 *
 * When a flow begins or ends, the rates of those it is connected with, directly or over others,
 * are computed anew (maxmin.h).  The same few meet with every micro-batch: what they got is
 * remembered, by the links that they take.
 */
#include <string.h>

#include "sim/engine_state.h"

/* Of more flows, and after so many sets of them, none are remembered. */
enum { TOGETHER_MOST = 16, PLACES = 1024, SETS_MOST = 1 << 16 };

/* What n flows that take these links got. */
typedef struct Shares {
    struct Shares *next; /* of the same place */
    uint32_t n;
    const Use **uses;
    double *rates;
} Shares;

void share_add(Sim *sim, uint32_t flow)
{
    Demand d = sim->flows[flow].demand;
    for (uint32_t u = 0; u < d.uses_n; u++) {
        uint32_t r = d.uses[u].resource;
        GROW(sim->on_link[r], sim->on_link_n[r], sim->on_link_cap[r]);
        sim->on_link[r][sim->on_link_n[r]++] = flow;
    }
}

void share_remove(Sim *sim, uint32_t flow)
{
    Demand d = sim->flows[flow].demand;
    for (uint32_t u = 0; u < d.uses_n; u++) {
        uint32_t r = d.uses[u].resource, i = 0;
        while (sim->on_link[r][i] != flow)
            i++;
        /* Order is kept: it decides the order of equal events. */
        memmove(&sim->on_link[r][i], &sim->on_link[r][i + 1],
                (sim->on_link_n[r] - i - 1) * sizeof(uint32_t));
        sim->on_link_n[r]--;
    }
}

static void component_add(Sim *sim, uint32_t *n, uint32_t flow)
{
    if (sim->flows[flow].looked == sim->look)
        return;
    sim->flows[flow].looked = sim->look;
    if (*n == sim->component_cap) {
        sim->component_cap = sim->component_cap ? 2 * sim->component_cap : 64;
        sim->component = mem_resize(sim->component, sim->component_cap, sizeof(uint32_t));
        sim->demands = mem_resize(sim->demands, sim->component_cap, sizeof(Demand));
        sim->rates = mem_resize(sim->rates, sim->component_cap, sizeof(double));
    }
    sim->component[(*n)++] = flow;
}

/* Flows connected to those on the links of d, directly or over others. */
static uint32_t component_of(Sim *sim, Demand d)
{
    uint32_t n = 0;
    sim->look++;
    for (uint32_t at = 0;; at++) {
        for (uint32_t u = 0; u < d.uses_n; u++) {
            uint32_t r = d.uses[u].resource;
            if (sim->link_looked[r] == sim->look)
                continue;
            sim->link_looked[r] = sim->look;
            for (uint32_t i = 0; i < sim->on_link_n[r]; i++)
                component_add(sim, &n, sim->on_link[r][i]);
        }
        if (at == n)
            return n;
        d = sim->flows[sim->component[at]].demand;
    }
}

static void fair_rates(Sim *sim, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        sim->demands[i] = sim->flows[sim->component[i]].demand;
    maxmin_rates(sim->rates, sim->demands, n, sim->classes.resources, &sim->space);
}

/* Where the n flows are remembered, or will be. */
static Shares **place_of(Sim *sim, uint32_t n)
{
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ (uintptr_t)sim->flows[sim->component[i]].demand.uses) * 0x9e3779b97f4a7c15u;
    if (!sim->shares)
        sim->shares = PUSH_ARRAY(&sim->arena, Shares *, PLACES);
    return &sim->shares[h >> 32 & (PLACES - 1)];
}

static bool are_these(const Sim *sim, const Shares *known, uint32_t n)
{
    bool same = known->n == n;
    for (uint32_t i = 0; same && i < n; i++)
        same = known->uses[i] == sim->flows[sim->component[i]].demand.uses;
    return same;
}

/* Notes sim->rates. */
static void remember(Sim *sim, Shares **place, uint32_t n)
{
    if (sim->shares_n == SETS_MOST)
        return;
    Shares *s = PUSH(&sim->arena, Shares);
    *s = (Shares){ *place, n, PUSH_UNSET(&sim->arena, const Use *, n),
                   PUSH_UNSET(&sim->arena, double, n) };
    for (uint32_t i = 0; i < n; i++)
        s->uses[i] = sim->demands[i].uses;
    memcpy(s->rates, sim->rates, n * sizeof *sim->rates);
    *place = s;
    sim->shares_n++;
}

/* The rates of few flows; groups and sends have their links where they stay. */
static const double *rates_of_few(Sim *sim, uint32_t n)
{
    Shares **place = place_of(sim, n);
    for (const Shares *s = *place; s; s = s->next)
        if (are_these(sim, s, n))
            return s->rates;
    fair_rates(sim, n);
    remember(sim, place, n);
    return sim->rates;
}

void share(Sim *sim, Demand around)
{
    uint32_t n = component_of(sim, around);
    const double *rates = sim->rates;
    if (n == 1) {
        flow_set_rate(sim, sim->component[0], sim->flows[sim->component[0]].solo_rate);
        return;
    }
    if (n > TOGETHER_MOST)
        fair_rates(sim, n);
    else if (n > 0)
        rates = rates_of_few(sim, n);
    for (uint32_t i = 0; i < n; i++)
        flow_set_rate(sim, sim->component[i], rates[i]);
}
