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
 * Chains of equal segments have the same number, whatever the micro-batch.
 */
#include "sim/engine_collapse.h"

#include <stdlib.h>

/* ---- numbers ---- */

/* Chains by their ends, as a tree: its roots are single instances, a chain's parent is what is
 * behind its first instance. */
typedef struct ChainNode {
    uint32_t segment; /* of its first instance */
    uint32_t longer;  /* the newest chain that is one instance longer; 0: none */
    uint32_t other;   /* the one before that of the same parent; 0: none */
} ChainNode;

typedef struct ChainTree {
    uint32_t n, cap; /* the first are the roots, by segment */
    ChainNode *node;
} ChainTree;

static uint32_t longer_by(ChainTree *t, uint32_t chain, uint32_t segment)
{
    for (uint32_t i = t->node[chain].longer; i > 0; i = t->node[i].other)
        if (t->node[i].segment == segment)
            return i;
    GROW(t->node, t->n, t->cap);
    t->node[t->n] = (ChainNode){ .segment = segment, .other = t->node[chain].longer };
    return t->node[chain].longer = t->n++;
}

static void index_role(Sim *sim, uint32_t role, ChainTree *t)
{
    const Role *r = &sim->g->roles[role];
    const bool *open = sim->programs[role].open;
    const Ties *ties = sim->programs[role].ties;
    ChainLink *link = PUSH_ARRAY(&sim->arena, ChainLink, r->instances_n + 1);
    bool next_joins = false; /* the instance behind, if it may follow another in a chain */
    for (uint32_t i = r->instances_n, chain = 0, n = 0; i-- > 0;) {
        const Instance *in = &r->instances[i];
        bool may = !open[i] && (sim->lanes[in->segment].all & 1u << LANE_COMPUTE);
        bool more =
            may && next_joins && !ties[i].awaited && in->micro_batch == in[1].micro_batch;
        next_joins = may && !ties[i].waits;
        n = more ? n + 1 : 1;
        uint32_t segment = sim->same[in->segment];
        chain = more ? longer_by(t, chain, segment) : segment;
        link[i] = (ChainLink){ more ? chain - sim->g->segments_n : 0, n };
    }
    sim->programs[role].chain = link;
}

void chains_index(Sim *sim)
{
    const Graph *g = sim->g;
    ChainTree t = { .n = g->segments_n, .cap = 2 * g->segments_n };
    t.node = mem_zero(t.cap, sizeof *t.node);
    for (uint32_t i = 0; i < g->roles_n; i++)
        index_role(sim, i, &t);
    sim->chains_n = t.n - g->segments_n;
    free(t.node);
}

/* ---- timing one ---- */

/* Sums of sums, each at most 2 NS_MAX: what is longer takes too long, and is said to. */
static int64_t add_ns(int64_t a, int64_t b)
{
    return min_i64(a + b, 2 * NS_MAX);
}

static void append(Macro *m, const Macro *part)
{
    uint32_t at = m->intervals_n;
    for (uint32_t i = 1; i <= part->intervals_n; i++) {
        m->alone_at[at + i] = add_ns(m->alone_at[at], part->alone_at[i]);
        m->slow_at[at + i] = add_ns(m->slow_at[at], part->slow_at[i]);
        m->compute_at[at + i] = add_ns(m->compute_at[at], part->compute_at[i]);
        m->comm_at[at + i] = add_ns(m->comm_at[at], part->comm_at[i]);
        m->path_at[at + i] = add_ns(m->path_at[at], part->path_at[i]);
    }
    for (uint32_t i = 0; i < part->comms_n; i++) {
        MacroComm *c = &m->comms[m->comms_n++];
        *c = part->comms[i];
        c->start_ns += m->alone_at[at];
        c->end_ns += m->alone_at[at];
        m->first_ns = min_i64(m->first_ns, c->start_ns);
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
    m->path_at = PUSH_ARRAY(&sim->arena, int64_t, intervals_n + 1);
    m->comms = PUSH_ARRAY(&sim->arena, MacroComm, comms_n);
    m->part_at = PUSH_ARRAY(&sim->arena, int64_t, m->parts_n + 1);
}

static Macro *chain_make(Sim *sim, Runner *r, uint32_t first, uint32_t n)
{
    Macro *m = PUSH(&sim->arena, Macro);
    m->state = MACRO_NO;
    m->parts = PUSH_ARRAY(&sim->arena, Macro *, n);
    for (; m->parts_n < n; m->parts_n++) {
        uint32_t segment = r->program.spot[first + m->parts_n].segment;
        m->parts[m->parts_n] = macro_of(sim, r, segment);
        if (m->parts[m->parts_n]->state != MACRO_YES)
            break;
    }
    if (m->parts_n < 2)
        return m;
    chain_alloc(sim, m);
    m->first_ns = INT64_MAX;
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
    ChainLink link = r->program.chain[first];
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

const Macro *chain_part(const Macro *m, double *x)
{
    if (m->parts_n == 0)
        return m;
    uint32_t k = chain_part_at(m, *x);
    *x -= (double)m->part_at[k];
    return m->parts[k];
}
