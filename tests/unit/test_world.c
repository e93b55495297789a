/*
 * test_world.c - coordinates, groups and roles of ranks.
 */
#include "tests/strategy_fixture.h"

static void open_degrees(Fixture *f, uint32_t dp, uint32_t tp, uint32_t pp, const Dim *order)
{
    fixture_open(f);
    f->s.parallel.dp = dp;
    f->s.parallel.tp = tp;
    f->s.parallel.pp = pp;
    for (int d = 0; order && d < DIM_N; d++)
        f->s.parallel.order[d] = order[d];
    f->b = (Build){ .s = &f->s, .sw = &f->sw, .g = &f->g };
}

static void groups_of_one_do_not_exist(void)
{
    Fixture f;
    open_degrees(&f, 1, 1, 1, NULL);
    CHECK(build_world(&f.b, &f.err));
    for (int k = 0; k < GROUP_KIND_N; k++)
        CHECK_INT(NONE_U32, f.b.group[k]);
    CHECK_INT(1, f.g.world_n);
    CHECK_INT(1, f.g.role_extent);
    fixture_close(&f);
}

/* tp 2, dp 2, pp 2: the drawing in world.c. */
static void innermost_dimension_has_stride_one(void)
{
    Fixture f;
    open_degrees(&f, 2, 2, 2, NULL);
    CHECK(build_world(&f.b, &f.err));
    CHECK_INT(8, f.g.world_n);
    const GroupSpec *tp = &f.g.groups[f.b.group[GROUP_TP]];
    const GroupSpec *dp = &f.g.groups[f.b.group[GROUP_DP]];
    const GroupSpec *pp = &f.g.groups[f.b.group[GROUP_PP]];
    CHECK_INT(7, group_member(tp, 6, 1));
    CHECK_INT(4, group_member(dp, 6, 0));
    CHECK_INT(6, group_member(dp, 6, 1));
    CHECK_INT(2, group_member(pp, 6, 0));
    CHECK_INT(1, group_index(pp, 6)); /* peers of p2p are stages */
    CHECK_INT(2, f.g.replica.stride);
    CHECK_INT(2, f.g.replica.extent);
    CHECK_INT(4, f.g.role_stride);
    fixture_close(&f);
}

/* ---- experts ---- */

static void check_partition(const Graph *g, uint32_t group, uint32_t size)
{
    uint32_t members = 0;
    if (size == 1) {
        CHECK_INT(NONE_U32, group);
        return;
    }
    const GroupSpec *s = &g->groups[group];
    CHECK_INT(size, group_size(s));
    for (uint32_t r = 0; r < g->world_n; r++) {
        members += group_has(s, r);
        CHECK_INT(r, group_member(s, r, group_index(s, r)));
    }
    CHECK_INT(g->world_n, members);
}

/* Two ranks of the same dp x cp group meet in ep or in edp, or in neither; never in both. */
static void check_cut(const Fixture *f)
{
    const Graph *g = &f->g;
    const uint32_t ep = f->b.group[GROUP_EP], edp = f->b.group[GROUP_EDP];
    const GroupSpec *all = &g->groups[f->b.group[GROUP_DP]];
    for (uint32_t r = 0; r < g->world_n && ep != NONE_U32 && edp != NONE_U32; r++)
        for (uint32_t i = 0; i < group_size(all); i++) {
            uint32_t o = group_member(all, r, i);
            bool e = group_base(&g->groups[ep], r) == group_base(&g->groups[ep], o);
            bool d = group_base(&g->groups[edp], r) == group_base(&g->groups[edp], o);
            CHECK(o == r || !(e && d));
        }
}

/* Whole experts (etp 1) cut tp as well. */
static void experts_cut_dp_x_cp_in_two(void)
{
    const Dim orders[][DIM_N] = {
        { DIM_TP, DIM_CP, DIM_EP, DIM_DP, DIM_PP },
        { DIM_TP, DIM_CP, DIM_DP, DIM_EP, DIM_PP },
        { DIM_PP, DIM_DP, DIM_EP, DIM_CP, DIM_TP },
        { DIM_EP, DIM_DP, DIM_TP, DIM_PP, DIM_CP },
    };
    static const uint32_t degrees[][3] = { { 8, 1, 4 }, { 4, 2, 2 }, { 4, 2, 4 }, { 4, 2, 8 },
                                           { 6, 4, 2 }, { 1, 6, 3 }, { 6, 1, 6 } };
    for (size_t o = 0; o < ARRAY_N(orders); o++)
        for (size_t i = 0; i < ARRAY_N(degrees); i++) {
            Fixture f;
            uint32_t dp = degrees[i][0], cp = degrees[i][1], ep = degrees[i][2];
            open_degrees(&f, dp, 2, 2, orders[o]);
            f.s.parallel.cp = cp;
            f.s.parallel.ep = ep;
            if (CHECK(build_world(&f.b, &f.err))) {
                check_partition(&f.g, f.b.group[GROUP_EP], ep);
                check_partition(&f.g, f.b.group[GROUP_EDP], dp * cp / ep);
                check_cut(&f);
            }
            fixture_close(&f);
            open_degrees(&f, dp, 2, 2, orders[o]);
            f.s.parallel.cp = cp;
            f.s.parallel.etp = 1;
            f.s.parallel.ep = 2 * ep;
            if (CHECK(build_world(&f.b, &f.err))) {
                check_partition(&f.g, f.b.group[GROUP_EP], 2 * ep);
                check_partition(&f.g, f.b.group[GROUP_EDP], dp * cp / ep);
                check_cut(&f);
            }
            fixture_close(&f);
        }
}

/* dp 4, ep 2: the drawing in world.c. */
static void the_order_says_whether_experts_are_neighbours(void)
{
    const Dim orders[][DIM_N] = { { DIM_TP, DIM_CP, DIM_EP, DIM_DP, DIM_PP },
                                  { DIM_TP, DIM_CP, DIM_DP, DIM_EP, DIM_PP } };
    for (uint32_t o = 0; o < 2; o++) {
        Fixture f;
        open_degrees(&f, 4, 1, 1, orders[o]);
        f.s.parallel.ep = 2;
        CHECK(build_world(&f.b, &f.err));
        const GroupSpec *ep = &f.g.groups[f.b.group[GROUP_EP]];
        const GroupSpec *edp = &f.g.groups[f.b.group[GROUP_EDP]];
        CHECK_INT(o == 0 ? 1 : 2, group_member(ep, 0, 1));
        CHECK_INT(o == 0 ? 2 : 1, group_member(edp, 0, 1));
        fixture_close(&f);
    }
}

/* cp 2 and dp 3 lie side by side: ep 3 takes ranks 0 to 2 of their six. */
static void experts_may_cut_across_cp_and_dp(void)
{
    Fixture f;
    open_degrees(&f, 3, 1, 1, NULL);
    f.s.parallel.cp = 2;
    f.s.parallel.ep = 3;
    if (CHECK(build_world(&f.b, &f.err))) {
        check_partition(&f.g, f.b.group[GROUP_EP], 3);
        check_partition(&f.g, f.b.group[GROUP_EDP], 2);
        check_cut(&f);
        CHECK_INT(2, group_member(&f.g.groups[f.b.group[GROUP_EP]], 0, 2));
    }
    fixture_close(&f);
}

/* Whatever the order, the groups of a dimension partition the ranks. */
static void every_order_partitions_the_ranks(void)
{
    const Dim orders[][DIM_N] = {
        { DIM_TP, DIM_CP, DIM_EP, DIM_DP, DIM_PP },
        { DIM_PP, DIM_DP, DIM_EP, DIM_CP, DIM_TP },
        { DIM_DP, DIM_EP, DIM_TP, DIM_PP, DIM_CP },
    };
    for (size_t o = 0; o < ARRAY_N(orders); o++) {
        Fixture f;
        open_degrees(&f, 3, 2, 4, orders[o]);
        CHECK(build_world(&f.b, &f.err));
        const GroupKind kinds[] = { GROUP_TP, GROUP_DP, GROUP_PP };
        for (size_t k = 0; k < ARRAY_N(kinds); k++) {
            const GroupSpec *s = &f.g.groups[f.b.group[kinds[k]]];
            for (uint32_t r = 0; r < f.g.world_n; r++) {
                CHECK(group_has(s, r));
                CHECK_INT(r, group_member(s, r, group_index(s, r)));
            }
        }
        fixture_close(&f);
    }
}

static void embedding_group_is_first_and_last_stage(void)
{
    for (uint32_t pp = 2; pp <= 5; pp++) {
        Fixture f;
        open_degrees(&f, 2, 1, pp, NULL);
        CHECK(build_world(&f.b, &f.err));
        const GroupSpec *s = &f.g.groups[f.b.group[GROUP_EMBEDDING]];
        CHECK_INT(2, group_size(s));
        for (uint32_t stage = 0; stage < pp; stage++)
            CHECK_INT(stage == 0 || stage == pp - 1, group_has(s, stage * f.g.role_stride + 1));
        CHECK_INT((pp - 1) * f.g.role_stride + 1, group_member(s, 1, 1));
        fixture_close(&f);
    }
}

static void gradients_are_reduced_over_dp_and_cp(void)
{
    Fixture f;
    open_degrees(&f, 2, 2, 1, NULL);
    f.s.parallel.cp = 3;
    CHECK(build_world(&f.b, &f.err));
    const GroupSpec *s = &f.g.groups[f.b.group[GROUP_DP]];
    CHECK_INT(6, group_size(s));
    for (uint32_t i = 0; i < 6; i++) /* order tp, cp, dp: members ascend in steps of tp */
        CHECK_INT(2 * i, group_member(s, 0, i));
    fixture_close(&f);
}

static void tokens_are_counted_over_all_replicas(void)
{
    Fixture f;
    open_degrees(&f, 4, 2, 1, NULL);
    f.s.training.global_batch = 32;
    CHECK(build_world(&f.b, &f.err));
    CHECK_U64(32, f.g.samples);
    CHECK_U64(32 * 16, f.g.tokens);
    fixture_close(&f);
}

int main(void)
{
    RUN(groups_of_one_do_not_exist);
    RUN(innermost_dimension_has_stride_one);
    RUN(experts_cut_dp_x_cp_in_two);
    RUN(the_order_says_whether_experts_are_neighbours);
    RUN(experts_may_cut_across_cp_and_dp);
    RUN(every_order_partitions_the_ranks);
    RUN(embedding_group_is_first_and_last_stage);
    RUN(gradients_are_reduced_over_dp_and_cp);
    RUN(tokens_are_counted_over_all_replicas);
    return check_report();
}
