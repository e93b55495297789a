/*
 * test_hsdp.c - shards inside groups, replicas between them.
 */
#include "tests/graph_check.h"
#include "tests/strategy_fixture.h"

static void open_hsdp(Fixture *f, uint32_t dp, uint32_t shard_size, uint32_t pp, uint32_t m)
{
    fixture_open(f);
    f->s.parallel.strategy = STRATEGY_HSDP;
    f->s.parallel.dp = dp;
    f->s.parallel.shard_size = shard_size;
    f->s.parallel.pp = pp;
    f->s.training.micro_batches = m;
    f->sw.grads_persist = false;
}

static uint64_t padded(uint64_t elements, uint64_t n)
{
    return div_up_u64(elements, n) * n;
}

static uint64_t padded_layer(uint64_t n)
{
    return padded(FAKE_NORM, n) + padded(FAKE_UP, n) + padded(FAKE_DOWN, n) +
           padded(FAKE_BIAS, n);
}

static uint64_t padded_ends(uint64_t n)
{
    return padded(FAKE_EMBEDDING, n) + padded(FAKE_HEAD, n);
}

static uint64_t moved(const Fixture *f, OpKind kind, GroupKind group)
{
    return comm_bytes(&f->g, &f->g.roles[0], kind, f->b.group[group]);
}

/* Inside a group as fsdp of s ranks; of the gradients one s-th between groups. */
static void shards_are_summed_over_replicas(void)
{
    for (uint32_t s = 2; s <= 6; s++)
        for (uint32_t r = 2; r <= 4; r++)
            for (uint32_t m = 1; m <= 2; m++) {
                Fixture f;
                open_hsdp(&f, s * r, s, 1, m);
                fixture_build(&f, 6);
                uint64_t all = 6 * padded_layer(s) + padded_ends(s);
                CHECK_U64(m * 4 * (all + 6 * padded_layer(s)),
                          moved(&f, OP_ALL_GATHER, GROUP_DP_SHARD));
                CHECK_U64(m * 4 * all, moved(&f, OP_REDUCE_SCATTER, GROUP_DP_SHARD));
                CHECK_U64(m * 4 * all / s, moved(&f, OP_ALL_REDUCE, GROUP_DP_REPLICATE));
                CHECK_INT(s, group_size(&f.g.groups[f.b.group[GROUP_DP_SHARD]]));
                CHECK_INT(r, group_size(&f.g.groups[f.b.group[GROUP_DP_REPLICATE]]));
                fixture_close(&f);
            }
}

/* Every rank is in one group of each kind, and shares only itself between the two. */
static void groups_are_rows_and_columns(void)
{
    for (uint32_t cp = 1; cp <= 2; cp++) {
        Fixture f;
        open_hsdp(&f, 6, 3, 1, 1);
        f.s.parallel.cp = cp;
        f.s.parallel.tp = 2;
        if (fixture_start(&f, 1)) {
            const GroupSpec *shard = &f.g.groups[f.b.group[GROUP_DP_SHARD]];
            const GroupSpec *replicas = &f.g.groups[f.b.group[GROUP_DP_REPLICATE]];
            const GroupSpec *all = &f.g.groups[f.b.group[GROUP_DP]];
            CHECK_INT(3 * cp, group_size(shard));
            CHECK_INT(2, group_size(replicas));
            for (uint32_t a = 0; a < f.g.world_n; a++)
                for (uint32_t b = 0; b < f.g.world_n; b++) {
                    bool inside = group_base(shard, a) == group_base(shard, b);
                    bool across = group_base(replicas, a) == group_base(replicas, b);
                    CHECK(!(inside && across) || a == b);
                    CHECK(!(inside || across) || group_base(all, a) == group_base(all, b));
                }
        }
        fixture_close(&f);
    }
}

static void one_replica_is_fsdp_and_one_shard_is_ddp(void)
{
    Fixture f;
    open_hsdp(&f, 4, 4, 1, 1);
    fixture_build(&f, 3);
    CHECK_INT(NONE_U32, f.b.group[GROUP_DP_REPLICATE]);
    CHECK_U64(4 * (3 * padded_layer(4) + padded_ends(4)),
              moved(&f, OP_REDUCE_SCATTER, GROUP_DP_SHARD));
    fixture_close(&f);
    open_hsdp(&f, 4, 1, 1, 1);
    fixture_build(&f, 3);
    CHECK_U64(4 * (3 * FAKE_LAYER + FAKE_EMBEDDING + FAKE_HEAD),
              moved(&f, OP_ALL_REDUCE, GROUP_DP));
    check_lives(&f.g);
    fixture_close(&f);
}

/* Reduce-scatter and all-reduce take 1 each, as long as the backward of a unit: beside each
 * other they keep pace with it, after each other they would not. */
static double even(const Role *role, const CheckOp *o)
{
    (void)role;
    OpKind kind = o->op->kind;
    return kind == OP_REDUCE_SCATTER || kind == OP_ALL_REDUCE ? 1
           : o->op->phase == PHASE_DGRAD                      ? 1
                                                              : 0;
}

static void the_all_reduce_flies_beside_the_next_reduce_scatter(void)
{
    const uint32_t layers = 9;
    Fixture f;
    open_hsdp(&f, 8, 4, 1, 1);
    fixture_build(&f, layers);
    /* backward of all, then the last unit's two collectives */
    CHECK_NEAR(layers + 2 + 2, check_time(&f.g, even), 1e-9);
    fixture_close(&f);
    open_hsdp(&f, 8, 4, 1, 1);
    f.sw.overlap[DIM_DP] = false;
    fixture_build(&f, layers);
    CHECK_NEAR(3 * (layers + 2), check_time(&f.g, even), 1e-9);
    fixture_close(&f);
}

static void check_hsdp(Fixture *f)
{
    uint32_t failures = check_state.test_failures_n;
    if (!fixture_build(f, 5))
        return;
    check_lives(&f->g);
    check_runs(&f->g);
    if (failures != check_state.test_failures_n)
        fprintf(stderr, "    pp %u, m %u, overlap %d, persist %d\n", f->s.parallel.pp,
                f->s.training.micro_batches, f->sw.overlap[DIM_DP], f->sw.grads_persist);
    fixture_close(f);
}

static void nothing_races_or_deadlocks(void)
{
    for (uint32_t pp = 1; pp <= 3; pp++)
        for (uint32_t m = 1; m <= 4; m++)
            for (uint32_t how = 0; how < 64; how++)
                for (int prefetch = PREFETCH_NONE; prefetch <= PREFETCH_BOTH; prefetch++) {
                    Fixture f;
                    open_hsdp(&f, 6, how & 32 ? 2 : 3, pp, m);
                    f.s.parallel.tp = how & 1 ? 2 : 1;
                    f.s.parallel.reshard_after_forward = how & 2;
                    f.s.parallel.prefetch = (Prefetch)prefetch;
                    f.sw.overlap[DIM_DP] = how & 4;
                    f.sw.grads_persist = how & 8;
                    f.s.training.reduce_dtype = how & 16 ? DTYPE_BF16 : DTYPE_F32;
                    f.s.training.grad_clip = 1;
                    f.tied = pp > 1;
                    f.borrows = pp == 1;
                    check_hsdp(&f);
                }
}

int main(void)
{
    RUN(shards_are_summed_over_replicas);
    RUN(groups_are_rows_and_columns);
    RUN(one_replica_is_fsdp_and_one_shard_is_ddp);
    RUN(the_all_reduce_flies_beside_the_next_reduce_scatter);
    RUN(nothing_races_or_deadlocks);
    return check_report();
}
