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
 * Experts live on the ranks of dp x cp, so ep takes no factor of its own: those
 * ranks, in ascending order, are cut into ep groups of neighbours where ep comes
 * before dp in the order (the usual one, and Megatron's), of ranks as far apart as
 * can be where it comes after.  Ranks of equal place in their ep groups hold the same
 * experts: the edp groups.  Ranks of a tp group share out each expert (Megatron's
 * expert-tensor-parallel-size, by default tp).  dp 4, ep 2, tp 1:
 *
 *     ep before dp    ep groups {0,1} {2,3}    edp groups {0,2} {1,3}
 *     dp before ep    ep groups {0,2} {1,3}    edp groups {0,1} {2,3}
 *
 * hsdp: each of its replicas has all experts, so the same within one of them.
 *
 * A group of one rank is none (NONE_U32): passes insert nothing for it.
 *
 * All ranks of one stage run the same program, so role = pp coordinate; ranks
 * that differ in dp do so on like data (Graph.replica).
 */
#include "sim/build.h"
#include "sim/routing.h"

#include <stdio.h>
#include <string.h>

static GroupDim whole(const Build *b, Dim d)
{
    uint32_t n = parallel_extent(&b->s->parallel, d);
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

/* ---- experts ---- */

/* The dimensions whose ranks have rows of their own for experts, ascending: dp, cp, and tp where
 * experts are whole.  joined: those that lie side by side are one. */
static uint32_t expert_dims(const Build *b, GroupDim dims[3], bool joined)
{
    const Dim of[] = { DIM_TP, DIM_CP, DIM_DP };
    uint32_t n = 0;
    for (int i = expert_tp(b) < b->s->parallel.tp ? 0 : 1; i < 3; i++) {
        GroupDim d = whole(b, of[i]);
        uint32_t at = n;
        if (of[i] == DIM_DP)
            d.extent = d.count = expert_dp(&b->s->parallel);
        if (d.count == 1)
            continue;
        for (n++; at > 0 && dims[at - 1].stride > d.stride; at--)
            dims[at] = dims[at - 1];
        dims[at] = d;
    }
    for (uint32_t i = 0; joined && i + 1 < n;) {
        GroupDim *in = &dims[i];
        if (in->stride * in->extent != in[1].stride) {
            i++;
            continue;
        }
        in->extent = in->count = in->extent * in[1].extent;
        n--;
        for (uint32_t k = i + 1; k < n; k++)
            dims[k] = dims[k + 1];
    }
    return n;
}

/* What one dimension of n gives to `left` ranks that are still to be found; 0: it does not fit. */
static uint32_t taken(uint32_t n, uint32_t left)
{
    return left % n == 0 ? n : n % left == 0 ? left : 0;
}

static bool ep_is_inner(const Parallel *p)
{
    int i = 0;
    while (p->order[i] != DIM_EP && p->order[i] != DIM_DP)
        i++;
    return p->order[i] == DIM_EP;
}

typedef struct Cut {
    uint32_t n;
    GroupDim ep[3], edp[3];
} Cut;

static bool cut_experts(const Build *b, Cut *cut, bool joined)
{
    uint32_t left = b->s->parallel.ep;
    GroupDim dims[3];
    cut->n = expert_dims(b, dims, joined);
    bool inner = ep_is_inner(&b->s->parallel);
    for (uint32_t i = 0; i < cut->n; i++) {
        uint32_t at = inner ? i : cut->n - 1 - i;
        const GroupDim d = dims[at];
        uint32_t part = taken(d.extent, left);
        if (part == 0)
            return false;
        uint32_t rest = d.extent / part;
        cut->ep[at] = (GroupDim){ inner ? d.stride : d.stride * rest, part, 1, part };
        cut->edp[at] = (GroupDim){ inner ? d.stride * part : d.stride, rest, 1, rest };
        left /= part;
    }
    return left == 1;
}

static uint32_t group_of_dims(Build *b, const char *name, const GroupDim *from, uint32_t n)
{
    GroupDim dims[3];
    uint32_t dims_n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (from[i].count > 1)
            dims[dims_n++] = from[i];
    return dims_n ? graph_group(b->g, name, dims, dims_n) : NONE_U32;
}

/* Nodes that the ranks of a group are on, that of rank 0. */
static uint32_t nodes_of(const Build *b, const GroupSpec *spec)
{
    uint32_t n = 0, last = NONE_U32, size = group_size(spec);
    for (uint32_t i = 0; i < size; i++) {
        uint32_t node = machine_place(&b->s->machine, group_member(spec, 0, i)).node;
        n += node != last;
        last = node;
    }
    return n;
}

/* What DeepEP sends between nodes, of what goes to ranks of other nodes. */
static double sent_once(const Build *b, const GroupSpec *spec)
{
    Routing r = routing_of(&b->s->model.u.transformer);
    return routing_parts(&r, nodes_of(b, spec)) / routing_parts(&r, group_size(spec));
}

static bool refuse_cut(const Build *b, Err *err)
{
    const Parallel *p = &b->s->parallel;
    char tp[32] = "";
    GroupDim dims[3];
    uint32_t n = expert_dims(b, dims, false), at = ep_is_inner(p) ? 0 : n - 1;
    if (expert_tp(b) < p->tp)
        snprintf(tp, sizeof tp, " nor of tp = %" PRIu32, p->tp);
    return err_set(err,
                   "parallel.ep %" PRIu32 " takes neither whole groups of cp = %" PRIu32
                   " nor of %s = %" PRIu32 "%s, which do not lie side by side in "
                   "parallel.order; divisors of %" PRIu32 " are allowed",
                   p->ep, p->cp, expert_dp(p) == p->dp ? "dp" : "shard_size", expert_dp(p), tp,
                   dims[at].extent);
}

static bool make_expert_groups(Build *b, Err *err)
{
    const Parallel *p = &b->s->parallel;
    b->group[GROUP_EP] = b->group[GROUP_EDP] = NONE_U32;
    if (!experts_apart(b))
        return true;
    Cut cut;
    if (!cut_experts(b, &cut, false) && !cut_experts(b, &cut, true))
        return refuse_cut(b, err);
    b->group[GROUP_EP] = group_of_dims(b, "ep", cut.ep, cut.n);
    if (p->ep > 1 && sends_once(b)) {
        GroupSpec *ep = &b->g->groups[b->group[GROUP_EP]];
        ep->sent_once = sent_once(b, ep);
    }
    b->group[GROUP_EDP] = group_of_dims(b, "edp", cut.edp, cut.n);
    return true;
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
        world *= parallel_extent(p, p->order[i]);
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
    if (!make_expert_groups(b, err))
        return false;

    g->role_stride = b->stride[DIM_PP];
    g->role_extent = p->pp;
    g->role_of = mem_zero(p->pp, sizeof *g->role_of);
    for (uint32_t stage = 0; stage < p->pp; stage++)
        g->role_of[stage] = stage;
    return true;
}
