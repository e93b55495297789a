/*
 * from_trace_settle.c - how long a collective transferred: as its member says that waited least.
 *
 *     rank 0   |== waiting ==|= transfer =|
 *     rank 1                 |= transfer =|     the n-th of a group on a lane are one
 */
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "sim/from_trace_parts.h"

typedef struct Ranks {
    RankProgram *programs;
    uint32_t programs_n;
    const Timeline *t;
    Err *err;
} Ranks;

/* A collective of a rank on a lane: the nth of its group there. */
typedef struct Part {
    uint32_t group, group_id, nth;
    uint32_t program, item;
} Part;

typedef struct Parts {
    Part *part;
    uint32_t n, cap;
} Parts;

/* Where a trace does not say of which groups all are, they count as one. */
static void list_parts(const Ranks *b, Lane lane, Parts *all)
{
    bool known = true;
    for (uint32_t r = 0; r < b->programs_n; r++) {
        const RankProgram *p = &b->programs[r];
        for (uint32_t k = 0; k < p->order_n; k++) {
            const Item *i = &p->items[p->order[k]];
            if (i->kind != ITEM_COMM || i->lane != lane || item_is_p2p(i, b->t))
                continue;
            GROW(all->part, all->n, all->cap);
            all->part[all->n++] = (Part){ .group = i->comm ? i->comm->group : 0,
                                          .group_id = i->comm ? i->comm->group_id : 0,
                                          .nth = k,
                                          .program = r,
                                          .item = p->order[k] };
            known = known && i->comm;
        }
    }
    for (uint32_t k = 0; k < all->n && !known; k++)
        all->part[k].group = all->part[k].group_id = 0;
}

static int compare_groups(const Part *a, const Part *b)
{
    int c = order_u32(a->group, b->group);
    return c ? c : order_u32(a->group_id, b->group_id);
}

static bool of_group(const Part *a, const Part *b)
{
    return compare_groups(a, b) == 0;
}

static int by_rank(const void *pa, const void *pb)
{
    const Part *a = pa, *b = pb;
    int c = compare_groups(a, b);
    c = c ? c : order_u32(a->program, b->program);
    return c ? c : order_u32(a->nth, b->nth);
}

static int by_nth(const void *pa, const void *pb)
{
    const Part *a = pa, *b = pb;
    int c = compare_groups(a, b);
    c = c ? c : order_u32(a->nth, b->nth);
    return c ? c : order_u32(a->program, b->program);
}

/* nth: where it stands in its rank's order; and then, how many of its group stand before it. */
static void number_parts(Parts *all)
{
    if (all->n > 0)
        qsort(all->part, all->n, sizeof *all->part, by_rank);
    for (uint32_t k = 0, first = 0; k < all->n; k++) {
        const Part *before = &all->part[k > 0 ? k - 1 : 0];
        if (!of_group(before, &all->part[k]) || before->program != all->part[k].program)
            first = k;
        all->part[k].nth = k - first;
    }
    if (all->n > 0)
        qsort(all->part, all->n, sizeof *all->part, by_nth);
}

/* Fewer take part than in the one before: the first who is not there any more. */
static bool refuse_fewer(const Ranks *b, const Part *before, const Part *now, uint32_t now_n,
                         Lane lane)
{
    uint32_t k = 0;
    while (k < now_n && before[k].program == now[k].program)
        k++;
    return err_set(b->err,
                   "rank %" PRIu32 " has fewer collectives than rank %" PRIu32
                   " on its stream '%s': they are not of one step",
                   b->programs[before[k].program].rank, b->programs[now[0].program].rank,
                   lane_names[lane]);
}

static bool is_one_group(const Parts *all)
{
    uint32_t k = 1;
    while (k < all->n && of_group(&all->part[0], &all->part[k]))
        k++;
    return k >= all->n;
}

static Item *item_of(const Ranks *b, const Part *p)
{
    return &b->programs[p->program].items[p->item];
}

/* Members of one collective take the time of the one that waited least, and the size of the one
 * with most: an exchange of experts is uneven.  An all-reduce of two sizes stays refused. */
static void settle_collective(const Ranks *b, const Part *part, uint32_t n)
{
    int64_t least_ns = INT64_MAX;
    uint64_t most = NONE_U64;
    for (uint32_t k = 0; k < n; k++) {
        const Item *i = item_of(b, &part[k]);
        least_ns = min_i64(least_ns, i->transfer_ns);
        if (i->bytes != NONE_U64 && (most == NONE_U64 || i->bytes > most))
            most = i->bytes;
    }
    for (uint32_t k = 0; k < n; k++) {
        Item *i = item_of(b, &part[k]);
        i->transfer_ns = least_ns;
        if (!i->comm || strcmp(timeline_text(b->t, i->comm->op), "all_reduce") != 0)
            i->bytes = most;
    }
}

/* The n-th of each member of a group.  Where groups of one name are not told apart, those of some
 * ranks may have more than those of others. */
static bool settle_parts(Ranks *b, const Parts *all, Lane lane)
{
    uint32_t before_n = 0;
    bool one = is_one_group(all);
    for (uint32_t first = 0, end; first < all->n; first = end) {
        const Part *part = &all->part[first];
        for (end = first + 1; end < all->n && of_group(part, &all->part[end]) &&
                              part->nth == all->part[end].nth;)
            end++;
        bool told = one || part->group_id != NONE_U32;
        if (told && part->nth > 0 && end - first < before_n)
            return refuse_fewer(b, part - before_n, part, end - first, lane);
        before_n = end - first;
        settle_collective(b, part, end - first);
    }
    return true;
}

/* Sends and receives of which nobody says who sends to whom. */
static bool is_unnamed(const Item *i, const Timeline *t)
{
    return i->kind == ITEM_COMM && i->comm && i->comm->group == NONE_U32 &&
           i->comm->peer == NONE_U32 && strcmp(timeline_text(t, i->comm->op), "send_recv") == 0;
}

static uint32_t count_unnamed(const RankProgram *p, const Timeline *t, Lane lane)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->order_n; k++)
        n += p->items[p->order[k]].lane == lane && is_unnamed(&p->items[p->order[k]], t);
    return n;
}

/* They are exchanges of all ranks, as NCCL does an all-to-all, where all have as many. */
static bool are_exchanges(const Ranks *b)
{
    for (Lane lane = 0; lane < LANE_HOST; lane++)
        for (uint32_t r = 1; r < b->programs_n; r++)
            if (count_unnamed(&b->programs[r], b->t, lane) !=
                count_unnamed(&b->programs[0], b->t, lane))
                return false;
    return true;
}

/* Else a pipeline's, whose first and last stage have fewer. */
static void leave_alone(Ranks *b)
{
    for (uint32_t r = 0; r < b->programs_n; r++)
        for (uint32_t k = 0; k < b->programs[r].order_n; k++) {
            Item *i = &b->programs[r].items[b->programs[r].order[k]];
            i->alone = is_unnamed(i, b->t);
        }
}

static bool settle_lane(Ranks *b, Lane lane)
{
    Parts all = { .n = 0 };
    list_parts(b, lane, &all);
    number_parts(&all);
    bool ok = settle_parts(b, &all, lane);
    free(all.part);
    return ok;
}

bool from_trace_settle(RankProgram *programs, uint32_t programs_n, const Timeline *t, Err *err)
{
    Ranks ranks = { programs, programs_n, t, err };
    if (!are_exchanges(&ranks))
        leave_alone(&ranks);
    for (Lane lane = 0; lane < LANE_HOST; lane++)
        if (!settle_lane(&ranks, lane))
            return false;
    return true;
}
