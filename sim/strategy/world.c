/*
 * world.c - which rank sits where: coordinates, groups of ranks, roles.
 *
 * A rank is its coordinates, innermost first in parallel.order.  With the usual
 * order tp, cp, ep, dp, pp and tp 2, dp 2, pp 2:
 *
 *               dp 0      dp 1
 *     pp 0     0--1      2--3         tp groups {0,1} {2,3} {4,5} {6,7}, stride 1
 *     pp 1     4--5      6--7         dp groups {0,2} {1,3} {4,6} {5,7}, stride 2
 *                                     pp groups {0,4} {1,5} {2,6} {3,7}, stride 4
 *
 * Experts live on the ranks of dp x cp, so ep takes no factor of its own.  A
 * group of one rank is none (NONE_U32): passes insert nothing for it.
 *
 * All ranks of one stage run the same program, so role = pp coordinate; ranks
 * that differ in dp do so on like data (Graph.replica).
 */
#include "sim/build.h"

#include <string.h>

static uint32_t degree(const Parallel *p, Dim d)
{
    switch (d) {
    case DIM_TP:
        return p->tp;
    case DIM_CP:
        return p->cp;
    case DIM_DP:
        return p->dp;
    case DIM_PP:
        return p->pp;
    default:
        return 1;
    }
}

static GroupDim whole(const Build *b, Dim d)
{
    uint32_t n = degree(&b->s->parallel, d);
    return (GroupDim){ b->stride[d], n, 1, n };
}

static uint32_t make_group(Build *b, const char *name, GroupDim dim)
{
    return dim.count > 1 ? graph_group(b->g, name, &dim, 1) : NONE_U32;
}

/* dp x cp, the dimension of smaller stride first: members in ascending order. */
static uint32_t make_reduce_group(Build *b, const char *name, GroupDim dp)
{
    GroupDim dims[2];
    uint32_t n = 0;
    bool dp_inner = b->stride[DIM_DP] <= b->stride[DIM_CP];
    const GroupDim cp = whole(b, DIM_CP), order[2] = { dp_inner ? dp : cp, dp_inner ? cp : dp };
    for (int i = 0; i < 2; i++)
        if (order[i].count > 1)
            dims[n++] = order[i];
    return n ? graph_group(b->g, name, dims, n) : NONE_U32;
}

/* hsdp: neighbours in dp, shard_size of them, and their cp share out a copy of the parameters. */
static void make_shard_groups(Build *b)
{
    const Parallel *p = &b->s->parallel;
    b->group[GROUP_DP_SHARD] = b->group[GROUP_DP_REPLICATE] = NONE_U32;
    if (p->strategy != STRATEGY_HSDP || p->shard_size == 0)
        return;
    uint32_t n = p->shard_size, copies = p->dp / n;
    b->group[GROUP_DP_SHARD] =
        make_reduce_group(b, "dp_shard", (GroupDim){ b->stride[DIM_DP], n, 1, n });
    b->group[GROUP_DP_REPLICATE] =
        make_group(b, "dp_replicate", (GroupDim){ b->stride[DIM_DP] * n, copies, 1, copies });
}

/* Neighbours in tp repeat a key and value head where there are fewer of them than ranks. */
static GroupDim repeats_of_head(const Build *b)
{
    const Model *m = &b->s->model;
    uint64_t heads = m->kind == MODEL_TRANSFORMER ? m->u.transformer.kv_heads : 0;
    uint64_t tp = b->s->parallel.tp;
    uint32_t n = heads > 0 && heads < tp && tp % heads == 0 ? (uint32_t)(tp / heads) : 1;
    return (GroupDim){ b->stride[DIM_TP], n, 1, n };
}

static void make_groups(Build *b)
{
    uint32_t pp = b->s->parallel.pp;
    b->group[GROUP_TP] = make_group(b, "tp", whole(b, DIM_TP));
    b->group[GROUP_KV] = make_group(b, "kv", repeats_of_head(b));
    b->group[GROUP_CP] = make_group(b, "cp", whole(b, DIM_CP));
    b->group[GROUP_PP] = make_group(b, "pp", whole(b, DIM_PP));
    b->group[GROUP_DP] = make_reduce_group(b, "dp", whole(b, DIM_DP));
    make_shard_groups(b);
    b->group[GROUP_EMBEDDING] =
        pp > 1 ? make_group(b, "embedding", (GroupDim){ b->stride[DIM_PP], pp, pp - 1, 2 })
               : NONE_U32;
}

bool build_world(Build *b, Err *err)
{
    const Parallel *p = &b->s->parallel;
    const Training *t = &b->s->training;
    Graph *g = b->g;
    uint64_t world = 1;
    for (int i = 0; i < DIM_N; i++) {
        b->stride[p->order[i]] = (uint32_t)world;
        world *= degree(p, p->order[i]);
        if (world >= NONE_U32)
            return err_set(err, "the degrees multiply to more than %" PRIu32 " GPUs",
                           NONE_U32 - 1);
    }
    g->world_n = (uint32_t)world;
    g->replica = whole(b, DIM_DP);
    g->host_group = NONE_U32;
    g->samples = t->global_batch;
    g->tokens = b->s->model.kind == MODEL_TRANSFORMER ? g->samples * t->seq_len : 0;
    make_groups(b);

    g->role_stride = b->stride[DIM_PP];
    g->role_extent = p->pp;
    g->role_of = mem_zero(p->pp, sizeof *g->role_of);
    for (uint32_t stage = 0; stage < p->pp; stage++)
        g->role_of[stage] = stage;
    return true;
}
