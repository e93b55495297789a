/*
 * engine_chain.c - instances that follow one another as one event.
 *
 *     compute   |F layer 0|F layer 1|F layer 2|        |B layer 2|B layer 1|B layer 0|
 *               \___________ a chain ________/          \__________ a chain _________/
 *     send                                     |act|
 *
 * Macros (engine_macro.c) of one micro-batch that nothing but the compute lane joins:
 * nobody on another lane waits for the end of one that another follows, and that other
 * waits for nobody on another lane.  A chain is the macro of them all, its running sums
 * are theirs one after another.  When it is broken up, so is the macro it is in.
 *
 * Chains of the same segments have the same number, whatever the micro-batch.
 */
#include "sim/engine_state.h"

#include <stdlib.h>

/* ---- which instances ---- */

/* Which instances wait for another lane, and behind which another lane waits. */
typedef struct Apart {
    bool *waits, *awaited;
} Apart;

static void find_apart(const Sim *sim, const Role *r, Apart *a)
{
    for (uint32_t i = 0; i < r->instances_n; i++) {
        const Instance *in = &r->instances[i];
        const Op *ops = graph_ops(sim->g, &sim->g->segments[in->segment]);
        for (uint32_t e = 0; e < in->edge_n; e++) {
            const Edge *edge = &r->edges[in->edge_first + e];
            const Segment *src = &sim->g->segments[r->instances[edge->src_instance].segment];
            bool computes = ops[edge->dst_op].lane == LANE_COMPUTE;
            a->awaited[edge->src_instance] |= !computes;
            a->waits[i] |=
                !computes || graph_ops(sim->g, src)[edge->src_op].lane != LANE_COMPUTE;
        }
    }
}

static bool joins(const Sim *sim, const Role *r, const bool *open, const bool *waits,
                  uint32_t i)
{
    const Instance *a = &r->instances[i], *b = a + 1;
    return !open[i] && !open[i + 1] && a->micro_batch == b->micro_batch &&
           sim->g->segments[a->segment].lane_n[LANE_COMPUTE] > 0 &&
           sim->g->segments[b->segment].lane_n[LANE_COMPUTE] > 0 && !waits[i + 1];
}

/* ---- numbers ---- */

/* rest: the number of the chain behind the first instance, or if only one is there its segment. */
typedef struct ChainName {
    uint32_t segment, rest;
    bool pair;
} ChainName;

typedef struct ChainNames {
    uint32_t slots_n; /* a power of two */
    uint32_t *slot;   /* number */
    ChainName *name;  /* by number, from 1 */
    uint32_t n;
} ChainNames;

static uint32_t number_of(ChainNames *names, ChainName name)
{
    uint32_t at = (uint32_t)mix_u64((uint64_t)name.segment << 32 | name.rest << 1 | name.pair);
    for (at &= names->slots_n - 1; names->slot[at]; at = (at + 1) & (names->slots_n - 1)) {
        const ChainName *known = &names->name[names->slot[at]];
        if (known->segment == name.segment && known->rest == name.rest &&
            known->pair == name.pair)
            return names->slot[at];
    }
    names->name[++names->n] = name;
    return names->slot[at] = names->n;
}

static void index_role(Sim *sim, uint32_t role, ChainNames *names)
{
    const Role *r = &sim->g->roles[role];
    const bool *open = sim->role_open[role];
    Apart apart = { mem_zero(r->instances_n + 1, sizeof(bool)),
                    mem_zero(r->instances_n + 1, sizeof(bool)) };
    ChainLink *link = PUSH_ARRAY(&sim->arena, ChainLink, r->instances_n + 1);
    find_apart(sim, r, &apart);
    for (uint32_t i = r->instances_n; i-- > 0;) {
        bool more =
            i + 1 < r->instances_n && !apart.awaited[i] && joins(sim, r, open, apart.waits, i);
        link[i].n = more ? link[i + 1].n + 1 : 1;
        if (!more)
            continue;
        ChainName name = { .segment = r->instances[i].segment, .pair = link[i].n == 2 };
        name.rest = name.pair ? r->instances[i + 1].segment : link[i + 1].number;
        link[i].number = number_of(names, name);
    }
    sim->role_chain[role] = link;
    free(apart.waits);
    free(apart.awaited);
}

void chains_index(Sim *sim)
{
    const Graph *g = sim->g;
    uint64_t all = 0;
    for (uint32_t i = 0; i < g->roles_n; i++)
        all += g->roles[i].instances_n;
    ChainNames names = { .slots_n = 16 };
    while (names.slots_n < 2 * all)
        names.slots_n *= 2;
    names.slot = mem_zero(names.slots_n, sizeof *names.slot);
    names.name = mem_zero(all + 1, sizeof *names.name);
    sim->role_chain = PUSH_ARRAY(&sim->arena, ChainLink *, g->roles_n + 1);
    for (uint32_t i = 0; i < g->roles_n; i++)
        index_role(sim, i, &names);
    sim->chains_n = names.n + 1;
    free(names.slot);
    free(names.name);
}

/* ---- timing one ---- */

static void append(Macro *m, const Macro *part)
{
    uint32_t at = m->intervals_n;
    for (uint32_t i = 1; i <= part->intervals_n; i++) {
        m->alone_at[at + i] = m->alone_at[at] + part->alone_at[i];
        m->slow_at[at + i] = m->slow_at[at] + part->slow_at[i];
        m->compute_at[at + i] = m->compute_at[at] + part->compute_at[i];
        m->comm_at[at + i] = m->comm_at[at] + part->comm_at[i];
    }
    for (uint32_t i = 0; i < part->comms_n; i++) {
        MacroComm *c = &m->comms[m->comms_n++];
        *c = part->comms[i];
        c->start_ns += m->alone_at[at];
        c->end_ns += m->alone_at[at];
    }
    m->intervals_n += part->intervals_n;
    m->has_comm |= part->has_comm;
    m->lanes |= part->lanes;
    m->links |= part->links;
}

static void chain_alloc(Sim *sim, Macro *m)
{
    uint32_t intervals_n = 0, comms_n = 0;
    for (uint32_t i = 0; i < m->parts_n; i++) {
        intervals_n += m->parts[i]->intervals_n;
        comms_n += m->parts[i]->comms_n;
    }
    m->alone_at = PUSH_ARRAY(&sim->arena, int64_t, intervals_n + 1);
    m->slow_at = PUSH_ARRAY(&sim->arena, int64_t, intervals_n + 1);
    m->compute_at = PUSH_ARRAY(&sim->arena, int64_t, intervals_n + 1);
    m->comm_at = PUSH_ARRAY(&sim->arena, int64_t, intervals_n + 1);
    m->comms = PUSH_ARRAY(&sim->arena, MacroComm, comms_n);
    m->part_at = PUSH_ARRAY(&sim->arena, int64_t, m->parts_n + 1);
}

static Macro *chain_make(Sim *sim, Runner *r, uint32_t first, uint32_t n)
{
    Macro *m = PUSH(&sim->arena, Macro);
    m->state = MACRO_NO;
    m->parts = PUSH_ARRAY(&sim->arena, Macro *, n);
    for (; m->parts_n < n; m->parts_n++) {
        uint32_t segment = r->role->instances[first + m->parts_n].segment;
        m->parts[m->parts_n] = macro_of(sim, r, segment);
        if (m->parts[m->parts_n]->state != MACRO_YES)
            break;
    }
    if (m->parts_n < 2)
        return m;
    chain_alloc(sim, m);
    for (uint32_t i = 0; i < m->parts_n; i++) {
        append(m, m->parts[i]);
        m->part_at[i + 1] = m->alone_at[m->intervals_n];
    }
    if (m->slow_at[m->intervals_n] <= NS_MAX && m->part_at[m->parts_n] <= NS_MAX)
        m->state = MACRO_YES;
    return m;
}

/* ---- the one that begins with an instance ---- */

static bool host_is_ahead(const Sim *sim, const Runner *r, const Macro *m, uint32_t first)
{
    if (first + m->parts_n > r->host_next)
        return false;
    for (uint32_t i = 1; i < m->parts_n; i++)
        if (r->host_start[first + i] + m->parts[i]->lag_ns > sim->now_ns + m->part_at[i])
            return false;
    return true;
}

const Macro *chain_of(Sim *sim, Runner *r, uint32_t first)
{
    ChainLink link = r->chain_link[first];
    if (link.n < 2)
        return NULL;
    if (!r->chain)
        r->chain = PUSH_ARRAY(&sim->arena, Macro *, sim->chains_n);
    Macro **known = &r->chain[link.number];
    if (!*known)
        *known = chain_make(sim, r, first, link.n);
    return (*known)->state == MACRO_YES && host_is_ahead(sim, r, *known, first) ? *known : NULL;
}

uint32_t chain_part_at(const Macro *m, double x)
{
    uint32_t k = 0;
    while (k + 1 < m->parts_n && (double)m->part_at[k + 1] <= x)
        k++;
    return k;
}
