/*
 * cuda_comm_split.c - lists every group and channel of the graph once, sorts, packs.
 *
 * Ranks of one role use like groups: what a role uses is looked up in its ops once,
 * then done for each of its ranks.  A group is entered by its lowest member, a channel
 * by its sender.
 */
#include "exec/cuda_comm_split.h"

#include <stdlib.h>
#include <string.h>

/* What some ops of a role need. */
typedef struct Use {
    bool channel;
    uint32_t group, of, peer;
} Use;

typedef struct Uses {
    uint32_t n, cap;
    Use *items;
} Uses;

typedef struct Making {
    SplitPlan *x;
    uint32_t comms_cap, members_cap;
} Making;

/* ---- what a role uses ---- */

static void add_use(Uses *u, Use use)
{
    for (uint32_t i = 0; i < u->n; i++) {
        const Use *o = &u->items[i];
        if (o->channel == use.channel && o->group == use.group && o->of == use.of &&
            o->peer == use.peer)
            return;
    }
    GROW(u->items, u->n, u->cap);
    u->items[u->n++] = use;
}

static void add_segment(Uses *u, const Graph *g, const Segment *s)
{
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *o = &graph_ops(g, s)[i];
        const CommShape *c = &o->u.comm;
        if (op_is_collective(o->kind))
            add_use(u, (Use){ .group = c->group, .of = (uint32_t)o->lane });
        else if (o->kind == OP_SEND)
            add_use(u, (Use){ true, c->group, c->tag, c->peer });
    }
}

static Uses uses_of(const Graph *g, const Role *role)
{
    Uses u = { 0 };
    bool *seen = mem_zero((size_t)g->segments_n + 1, sizeof *seen);
    for (uint32_t i = 0; i < role->instances_n; i++) {
        uint32_t s = role->instances[i].segment;
        if (!seen[s])
            add_segment(&u, g, &g->segments[s]);
        seen[s] = true;
    }
    free(seen);
    return u;
}

/* ---- the list ---- */

static void add_member(Making *m, uint32_t rank)
{
    SplitPlan *x = m->x;
    GROW(x->members, x->members_n, m->members_cap);
    x->members[x->members_n++] = rank;
    x->comms[x->comms_n - 1].members_n++;
}

static void add_comm(Making *m, const Graph *g, const Use *u, uint32_t rank)
{
    SplitPlan *x = m->x;
    const GroupSpec *s = &g->groups[u->group];
    uint32_t n = group_size(s);
    if (n < 2 || !group_has(s, rank) || (!u->channel && group_base(s, rank) != rank))
        return;
    GROW(x->comms, x->comms_n, m->comms_cap);
    x->comms[x->comms_n++] = (SplitComm){
        .channel = u->channel, .of = u->of, .name = s->name, .members_first = x->members_n
    };
    if (u->channel)
        add_member(m, rank);
    for (uint32_t i = 0; i < n; i++)
        if (!u->channel || i == u->peer)
            add_member(m, group_member(s, rank, i));
}

static int compare(const SplitPlan *x, const SplitComm *a, const SplitComm *b)
{
    if (a->channel != b->channel)
        return a->channel ? 1 : -1;
    if (a->of != b->of)
        return a->of < b->of ? -1 : 1;
    uint32_t n = a->members_n < b->members_n ? a->members_n : b->members_n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t p = x->members[a->members_first + i], q = x->members[b->members_first + i];
        if (p != q)
            return p < q ? -1 : 1;
    }
    return a->members_n == b->members_n ? 0 : a->members_n < b->members_n ? -1 : 1;
}

/* Merges sorted halves; stable, so that every rank keeps the same name of two. */
static void sort(const SplitPlan *x, SplitComm *c, SplitComm *room, uint32_t n)
{
    if (n < 2)
        return;
    uint32_t half = n / 2, i = 0, k = half;
    sort(x, c, room, half);
    sort(x, c + half, room, n - half);
    for (uint32_t at = 0; at < n; at++) {
        bool left = k == n || (i < half && compare(x, &c[i], &c[k]) <= 0);
        room[at] = c[left ? i++ : k++];
    }
    memcpy(c, room, n * sizeof *c);
}

/* Groups of two names may have the same members. */
static void sort_once(SplitPlan *x)
{
    SplitComm *room = mem_zero((size_t)x->comms_n + 1, sizeof *room);
    uint32_t n = 0;
    sort(x, x->comms, room, x->comms_n);
    for (uint32_t i = 0; i < x->comms_n; i++)
        if (n == 0 || compare(x, &x->comms[n - 1], &x->comms[i]) != 0)
            x->comms[n++] = x->comms[i];
    x->comms_n = n;
    free(room);
}

/* ---- calls ---- */

static bool is_free(const SplitPlan *x, uint32_t call, const SplitComm *c)
{
    for (uint32_t i = 0; i < c->members_n; i++)
        if (x->comm_of[(size_t)call * x->world_n + x->members[c->members_first + i]] !=
            NONE_U32)
            return false;
    return true;
}

/* Each goes into the first call where all its members are free. */
static void pack(SplitPlan *x)
{
    uint32_t cap = 0, *colors = mem_zero((size_t)x->comms_n + 1, sizeof *colors);
    for (uint32_t i = 0; i < x->comms_n; i++) {
        SplitComm *c = &x->comms[i];
        uint32_t call = 0;
        while (call < x->calls_n && !is_free(x, call, c))
            call++;
        if (call == x->calls_n) {
            if (call == cap) {
                cap = cap ? 2 * cap : 8;
                x->comm_of = mem_resize(x->comm_of, (size_t)cap * x->world_n, sizeof(uint32_t));
            }
            for (uint32_t r = 0; r < x->world_n; r++)
                x->comm_of[(size_t)call * x->world_n + r] = NONE_U32;
            x->calls_n++;
        }
        for (uint32_t k = 0; k < c->members_n; k++)
            x->comm_of[(size_t)call * x->world_n + x->members[c->members_first + k]] = i;
        c->call = call;
        c->color = colors[call]++;
    }
    free(colors);
}

void split_plan_make(SplitPlan *x, const Graph *g)
{
    *x = (SplitPlan){ .world_n = g->world_n };
    Making m = { .x = x };
    Uses *uses = mem_zero((size_t)g->roles_n + 1, sizeof *uses);
    for (uint32_t i = 0; i < g->roles_n; i++)
        uses[i] = uses_of(g, &g->roles[i]);
    for (uint32_t r = 0; r < g->world_n; r++) {
        const Uses *u = &uses[graph_role_of(g, r) - g->roles];
        for (uint32_t i = 0; i < u->n; i++)
            add_comm(&m, g, &u->items[i], r);
    }
    for (uint32_t i = 0; i < g->roles_n; i++)
        free(uses[i].items);
    free(uses);
    sort_once(x);
    pack(x);
}

void split_plan_free(SplitPlan *x)
{
    free(x->comms);
    free(x->members);
    free(x->comm_of);
    *x = (SplitPlan){ 0 };
}

/* ---- looking ---- */

SplitColor split_plan_color(const SplitPlan *x, uint32_t call, uint32_t rank)
{
    uint32_t comm = x->comm_of[(size_t)call * x->world_n + rank];
    if (comm == NONE_U32)
        return (SplitColor){ SPLIT_NO_COLOR, 0, NONE_U32 };
    const SplitComm *c = &x->comms[comm];
    int key = 0;
    while (x->members[c->members_first + (uint32_t)key] != rank)
        key++;
    return (SplitColor){ (int)c->color, key, comm };
}

static uint32_t find(const SplitPlan *x, bool channel, uint32_t of, const uint32_t *members,
                     uint32_t n)
{
    for (uint32_t i = 0; i < x->comms_n; i++) {
        const SplitComm *c = &x->comms[i];
        if (c->channel == channel && c->of == of && c->members_n == n &&
            memcmp(x->members + c->members_first, members, n * sizeof *members) == 0)
            return i;
    }
    return NONE_U32;
}

uint32_t split_plan_collective(const SplitPlan *x, Lane lane, const uint32_t *members,
                               uint32_t members_n)
{
    return find(x, false, (uint32_t)lane, members, members_n);
}

uint32_t split_plan_channel(const SplitPlan *x, uint32_t from, uint32_t to, uint32_t tag)
{
    const uint32_t members[2] = { from, to };
    return find(x, true, tag, members, 2);
}
