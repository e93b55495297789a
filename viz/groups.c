/*
 * groups.c - who is in a group with whom: memberships sorted by name and number, then joined.
 */
#include "viz/groups.h"

#include <stdlib.h>
#include <string.h>

/* A rank communicates in a group. */
typedef struct Member {
    const char *text;  /* of the name */
    uint32_t name, id; /* Comm.group, Comm.group_id */
    uint32_t rank;     /* index into ViewData.ranks */
} Member;

typedef struct Members {
    const ViewData *d;
    Member *at;
    uint32_t n, cap;
} Members;

static uint32_t rank_index(const ViewData *d, uint32_t rank)
{
    uint32_t low = 0, high = d->ranks_n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (d->ranks[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < d->ranks_n && d->ranks[low].rank == rank ? low : NONE_U32;
}

/* Members of one rank stand together, from first on; the one just found is moved to there. */
static void add_member(Members *m, uint32_t first, const Comm *c, uint32_t rank)
{
    for (uint32_t i = first; i < m->n; i++)
        if (m->at[i].name == c->group && m->at[i].id == c->group_id) {
            Member found = m->at[i];
            m->at[i] = m->at[first];
            m->at[first] = found;
            return;
        }
    if (m->n - first >= GROUPS_OF_RANK)
        return;
    GROW(m->at, m->n, m->cap);
    m->at[m->n++] = (Member){ timeline_text(m->d->t, c->group), c->group, c->group_id, rank };
}

static void collect(Members *m)
{
    const ViewData *d = m->d;
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        const Cover *cover = d->ranks[r].cover;
        uint32_t first = m->n;
        for (uint32_t k = 0; k < cover->tracks_n; k++) {
            const Track *track = &d->t->tracks[cover->tracks[k]];
            for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
                const Comm *c = timeline_comm_of(d->t, i);
                if (c && c->group != NONE_U32)
                    add_member(m, first, c, r);
            }
        }
    }
}

static int compare(const void *a, const void *b)
{
    const Member *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    if (order)
        return order;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* ---- joining ---- */

/* The first rank of a group; shortens the way for those that come after. */
static uint32_t root_of(uint32_t *of, uint32_t rank)
{
    while (of[rank] != rank) {
        of[rank] = of[of[rank]];
        rank = of[rank];
    }
    return rank;
}

static void join(uint32_t *of, uint32_t a, uint32_t b)
{
    a = root_of(of, a);
    b = root_of(of, b);
    of[a > b ? a : b] = a < b ? a : b;
}

/* Parts of a match whose group has a name, but no number. */
static void join_matches(const ViewData *d, RankGroupKind *k, const bool *is_member)
{
    const ViewLinks *l = &d->links;
    for (uint64_t m = 0; m < l->matches_n; m++) {
        uint32_t before = NONE_U32;
        for (uint32_t i = 0; i < l->matches[m].n; i++) {
            uint64_t span = l->comms[l->parts[l->matches[m].first + i]].span;
            const Comm *c = timeline_comm_of(d->t, span);
            uint32_t rank = rank_index(d, d->t->tracks[d->t->span_track[span]].rank);
            if (!c || c->group != k->name || c->group_id != NONE_U32 || rank == NONE_U32 ||
                !is_member[rank])
                continue;
            if (before != NONE_U32)
                join(k->of, before, rank);
            before = rank;
        }
    }
}

/* Members first ... end - 1 have one name. */
static RankGroupKind kind_of(const Members *m, uint32_t first, uint32_t end)
{
    const ViewData *d = m->d;
    RankGroupKind k = { .name = m->at[first].name };
    bool *is_member = mem_zero(d->ranks_n + 1, sizeof *is_member), no_number = false;
    k.of = mem_zero(d->ranks_n + 1, sizeof *k.of);
    for (uint32_t r = 0; r < d->ranks_n; r++)
        k.of[r] = r;
    for (uint32_t i = first; i < end; i++) {
        is_member[m->at[i].rank] = true;
        no_number |= m->at[i].id == NONE_U32;
        if (i > first && m->at[i].id != NONE_U32 && m->at[i].id == m->at[i - 1].id)
            join(k.of, m->at[i - 1].rank, m->at[i].rank);
    }
    if (no_number)
        join_matches(d, &k, is_member);
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        k.groups_n += is_member[r] && k.of[r] == r;
        k.of[r] = is_member[r] ? root_of(k.of, r) : d->ranks_n;
    }
    free(is_member);
    return k;
}

void groups_find(RankGroups *g, const ViewData *d)
{
    Members m = { .d = d };
    *g = (RankGroups){ .kinds = NULL };
    collect(&m);
    if (m.n > 0)
        qsort(m.at, m.n, sizeof *m.at, compare);
    for (uint32_t first = 0, end; first < m.n; first = end) {
        for (end = first + 1; end < m.n && m.at[end].name == m.at[first].name;)
            end++;
        GROW(g->kinds, g->kinds_n, g->kinds_cap);
        g->kinds[g->kinds_n++] = kind_of(&m, first, end);
    }
    free(m.at);
}

void groups_free(RankGroups *g)
{
    for (uint32_t i = 0; i < g->kinds_n; i++)
        free(g->kinds[i].of);
    free(g->kinds);
    *g = (RankGroups){ .kinds = NULL };
}
