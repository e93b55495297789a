/* Max-min fair shares, by their definition on random networks. */
#include "sim/maxmin.h"
#include "tests/check.h"

enum { LINKS = 12, FLOWS = 20, USES = 4 };

typedef struct Net {
    Resource link[LINKS];
    Use use[FLOWS][USES];
    Demand flow[FLOWS];
    double rate[FLOWS];
} Net;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = mix_u64(*state);
    return *state % below;
}

static void random_net(Net *n, uint64_t seed)
{
    *n = (Net){ 0 };
    for (int l = 0; l < LINKS; l++)
        n->link[l].bytes_per_ns = (double)(1 + draw(&seed, 100));
    for (int f = 0; f < FLOWS; f++) {
        uint32_t uses_n = 1 + (uint32_t)draw(&seed, USES);
        uint32_t first = (uint32_t)draw(&seed, LINKS);
        for (uint32_t u = 0; u < uses_n; u++)
            n->use[f][u] =
                (Use){ (first + 3 * u) % LINKS, 0.25 * (double)(1 + draw(&seed, 8)), 1, 1 };
        double cap = (double)draw(&seed, 3) * (double)(1 + draw(&seed, 20)) / 4; /* or none */
        n->flow[f] = (Demand){ n->use[f], uses_n, cap };
    }
}

/* Every flow has a full link on which nobody is faster, or all that it takes, and no link is
 * overdrawn. */
static void check_fair(const Net *n)
{
    double used[LINKS] = { 0 }, fastest[LINKS] = { 0 };
    for (int f = 0; f < FLOWS; f++)
        for (uint32_t u = 0; u < n->flow[f].uses_n; u++) {
            const Use *use = &n->flow[f].uses[u];
            used[use->resource] += use->coefficient * n->rate[f];
            fastest[use->resource] = fmax(fastest[use->resource], n->rate[f]);
        }
    for (int l = 0; l < LINKS; l++)
        CHECK(used[l] <= n->link[l].bytes_per_ns * (1 + 1e-9));
    for (int f = 0; f < FLOWS; f++) {
        double cap = n->flow[f].cap;
        bool has_bottleneck = cap > 0 && n->rate[f] == cap;
        CHECK(cap == 0 || n->rate[f] <= cap);
        for (uint32_t u = 0; u < n->flow[f].uses_n; u++) {
            uint32_t l = n->flow[f].uses[u].resource;
            has_bottleneck |= used[l] >= n->link[l].bytes_per_ns * (1 - 1e-9) &&
                              n->rate[f] >= fastest[l] * (1 - 1e-9);
        }
        CHECK(has_bottleneck);
    }
}

static void rates_are_fair_on_random_networks(void)
{
    Arena arena = { 0 };
    MaxminSpace space;
    maxmin_space(&space, LINKS, &arena);
    for (uint64_t seed = 1; seed <= 500; seed++) {
        Net n;
        random_net(&n, seed);
        maxmin_rates(n.rate, n.flow, FLOWS, n.link, &space);
        check_fair(&n);
    }
    arena_free(&arena);
}

/* The example of the header: X carries a and b, Y carries a and c. */
static void the_example_of_the_header_holds(void)
{
    Arena arena = { 0 };
    MaxminSpace space;
    maxmin_space(&space, 2, &arena);
    const Resource link[] = { { .bytes_per_ns = 10 }, { .bytes_per_ns = 4 } };
    const Use a[] = { { 0, 1, 1, 1 }, { 1, 1, 1, 1 } }, b[] = { { 0, 1, 1, 1 } },
              c[] = { { 1, 1, 1, 1 } };
    Demand flow[] = { { a, 2, 0 }, { b, 1, 0 }, { c, 1, 0 } };
    double rate[3];
    maxmin_rates(rate, flow, 3, link, &space);
    CHECK_NEAR(2, rate[0], 1e-12);
    CHECK_NEAR(8, rate[1], 1e-12);
    CHECK_NEAR(2, rate[2], 1e-12);
    CHECK_NEAR(4, maxmin_solo(&flow[0], link), 1e-12);
    flow[1].cap = 5;
    maxmin_rates(rate, flow, 3, link, &space);
    CHECK_NEAR(2, rate[0], 1e-12);
    CHECK_NEAR(5, rate[1], 1e-12);
    arena_free(&arena);
}

/* m equal flows as one of coefficient m: the quotient has the shares of the whole. */
static void folded_flows_get_the_shares_of_their_members(void)
{
    Arena arena = { 0 };
    MaxminSpace space;
    maxmin_space(&space, 1, &arena);
    const Resource link = { .bytes_per_ns = 90 };
    for (uint32_t m = 1; m <= 8; m++) {
        Use one = { 0, 0.5, 0.5, 0.5 }, folded = { 0, 0.5 * m, 0.5, 0.5 * m };
        Demand all[9], two[2];
        double rate[9], rate2[2];
        for (uint32_t i = 0; i < m; i++)
            all[i] = (Demand){ &one, 1, 0 };
        all[m] = (Demand){ &(Use){ 0, 1, 1, 1 }, 1, 0 };
        two[0] = (Demand){ &folded, 1, 0 };
        two[1] = all[m];
        maxmin_rates(rate, all, m + 1, &link, &space);
        maxmin_rates(rate2, two, 2, &link, &space);
        CHECK_NEAR(rate[0], rate2[0], 1e-12);
        CHECK_NEAR(rate[m], rate2[1], 1e-12);
    }
    arena_free(&arena);
}

int main(void)
{
    RUN(rates_are_fair_on_random_networks);
    RUN(the_example_of_the_header_holds);
    RUN(folded_flows_get_the_shares_of_their_members);
    return check_report();
}
