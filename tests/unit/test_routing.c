/* Parts that a token's experts are in: the mean over every choice there is, one by one. */
#include "sim/routing.h"
#include "tests/check.h"

/* Experts of `set` by the part they are in, of n in `parts`. */
static uint32_t parts_touched(uint32_t set, uint32_t n, uint32_t parts)
{
    uint32_t seen = 0;
    for (uint32_t e = 0; e < n; e++)
        if (set >> e & 1u)
            seen |= 1u << e / (n / parts);
    return (uint32_t)__builtin_popcount(seen);
}

typedef struct Mean {
    double sum, n;
} Mean;

/* Every choice of experts among those in `open`. */
static Mean over_experts(const Routing *r, uint32_t open, uint32_t parts)
{
    Mean m = { 0 };
    for (uint32_t set = 0; set < 1u << r->experts; set++) {
        if ((set & ~open) || (uint32_t)__builtin_popcount(set) != r->chosen)
            continue;
        m.sum += parts_touched(set, r->experts, parts);
        m.n++;
    }
    return m;
}

/* Every choice of groups, and in each of experts. */
static double by_definition(const Routing *r, uint32_t parts)
{
    Mean all = { 0 };
    uint32_t groups = r->groups ? r->groups : 1, size = r->experts / groups;
    uint32_t chosen = r->groups ? r->groups_chosen : 1;
    for (uint32_t set = 0; set < 1u << groups; set++) {
        if ((uint32_t)__builtin_popcount(set) != chosen)
            continue;
        uint32_t open = 0;
        for (uint32_t e = 0; e < r->experts; e++)
            open |= (set >> e / size & 1u) << e;
        Mean m = over_experts(r, open, parts);
        all.sum += m.sum / m.n;
        all.n++;
    }
    return all.sum / all.n;
}

static void the_mean_is_that_of_every_choice(void)
{
    static const Routing rows[] = {
        { 8, 1, 0, 0 },  { 8, 2, 0, 0 },  { 8, 8, 0, 0 },  { 12, 5, 1, 1 },
        { 8, 2, 4, 2 },  { 8, 4, 4, 2 },  { 12, 3, 4, 3 }, { 12, 2, 2, 1 },
        { 12, 6, 2, 1 }, { 12, 4, 6, 3 }, { 8, 3, 8, 8 },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++)
        for (uint32_t parts = 1; parts <= rows[i].experts; parts++) {
            uint32_t groups = rows[i].groups ? rows[i].groups : 1;
            if (rows[i].experts % parts || (groups % parts && parts % groups))
                continue;
            CHECK_NEAR(by_definition(&rows[i], parts), routing_parts(&rows[i], parts), 1e-12);
        }
}

static void groups_across_the_parts_limit_nothing(void)
{
    const Routing limited = { 12, 2, 4, 2 }, free_choice = { 12, 2, 0, 0 };
    CHECK_NEAR(routing_parts(&free_choice, 3), routing_parts(&limited, 3), 1e-12);
}

/* At most 4 of 8 nodes (arXiv 2412.19437 section 2.1.2). */
static void deepseek_v3_visits_few_of_its_nodes(void)
{
    const Routing v3 = { 256, 8, 8, 4 };
    double nodes = routing_parts(&v3, 8), ranks = routing_parts(&v3, 64);
    CHECK(nodes > 3.5 && nodes < 4);
    CHECK(ranks > 7 && ranks < 8);
}

int main(void)
{
    RUN(the_mean_is_that_of_every_choice);
    RUN(groups_across_the_parts_limit_nothing);
    RUN(deepseek_v3_visits_few_of_its_nodes);
    return check_report();
}
