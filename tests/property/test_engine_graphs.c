/*
 * Folding and collapsing change nothing on graphs and machines that no strategy
 * would make (tests/drawn_graph.h).
 */
#include "tests/drawn_graph.h"

enum { GRAPHS = 2500 };

static bool near_ns(int64_t a, int64_t b, int64_t slack)
{
    return a - b <= slack && b - a <= slack;
}

/* Rounding enters once per op and per event that changes its rate. */
static bool same_rank(const Case *c, const RankStat *f, const RankStat *e)
{
    int64_t slack = 2 + 2 * (int64_t)c->g.roles[f->role].ops_n;
    bool same = CHECK(near_ns(f->end_ns, e->end_ns, slack)) &&
                CHECK(near_ns(f->compute_ns, e->compute_ns, slack)) &&
                CHECK(near_ns(f->comm_ns, e->comm_ns, slack)) &&
                CHECK(near_ns(f->exposed_ns, e->exposed_ns, slack)) &&
                CHECK(near_ns(f->bubble_ns, e->bubble_ns, slack)) &&
                CHECK_U64(f->collectives_n, e->collectives_n);
    for (uint32_t i = 0; same && i < f->collectives_n; i++) {
        const CollectiveStat *x = &f->collectives[i], *y = &e->collectives[i];
        same = CHECK_U64(x->count, y->count) && CHECK_U64(x->bytes, y->bytes) &&
               CHECK(near_ns(x->time_ns, y->time_ns, slack));
    }
    if (!same)
        fprintf(stderr, "rank %u: folded ends at %" PRId64 ", expanded at %" PRId64 "\n",
                e->rank, f->end_ns, e->end_ns);
    return same;
}

static uint32_t saved_n;

static void fold_one(uint64_t seed)
{
    Case c;
    SimResult folded, expanded;
    Classes classes;
    Err err = { 0 };
    case_make(&c, seed);
    bool ok = simulate(&c, &folded, (SimOptions){ .expanded = true }) &&
              simulate(&c, &expanded, (SimOptions){ .expanded = true, .expand_ranks = true }) &&
              CHECK(classes_make(&classes, &c.g, &c.w.m, 0, false, &err));
    for (uint32_t rank = 0; ok && rank < c.g.world_n; rank++)
        ok = same_rank(&c, &folded.ranks[classes_of_rank(&classes, rank)],
                       &expanded.ranks[rank]);
    if (ok) {
        saved_n += expanded.ranks_n - folded.ranks_n;
        classes_free(&classes);
    } else {
        fprintf(stderr, "graph of seed %" PRIu64 "\n", seed);
    }
    sim_result_free(&expanded);
    sim_result_free(&folded);
    graph_free(&c.g);
}

static void drawn_graphs_fold(void)
{
    for (uint64_t seed = 1; seed <= check_cases(GRAPHS); seed++)
        fold_one(seed);
    CHECK(saved_n > check_cases(GRAPHS));
}

/* A share of the step is off by less than 0.5 % of it. */
static bool near_share(const SimResult *r, int64_t a, int64_t b)
{
    return near_ns(a, b, 2 + r->step_ns / 200);
}

static void collapse_one(uint64_t seed)
{
    Case c;
    SimResult collapsed, expanded;
    case_make(&c, seed);
    bool ok = simulate(&c, &collapsed, (SimOptions){ 0 }) &&
              simulate(&c, &expanded, (SimOptions){ .expanded = true }) &&
              CHECK(near_share(&expanded, collapsed.step_ns, expanded.step_ns));
    for (uint32_t i = 0; ok && i < expanded.ranks_n; i++) {
        const RankStat *x = &collapsed.ranks[i], *y = &expanded.ranks[i];
        ok = CHECK(near_share(&expanded, x->compute_ns, y->compute_ns)) &&
             CHECK(near_share(&expanded, x->comm_ns, y->comm_ns)) &&
             CHECK(near_share(&expanded, x->exposed_ns, y->exposed_ns)) &&
             CHECK(near_share(&expanded, x->bubble_ns, y->bubble_ns)) &&
             CHECK(near_share(&expanded, x->idle_ns, y->idle_ns)) &&
             CHECK_U64(y->collectives_n, x->collectives_n);
    }
    if (!ok)
        fprintf(stderr, "graph of seed %" PRIu64 "\n", seed);
    sim_result_free(&expanded);
    sim_result_free(&collapsed);
    graph_free(&c.g);
}

static void drawn_graphs_collapse(void)
{
    for (uint64_t seed = 100001; seed <= 100000 + check_cases(GRAPHS); seed++)
        collapse_one(seed);
}

int main(void)
{
    RUN(drawn_graphs_fold);
    RUN(drawn_graphs_collapse);
    return check_report();
}
