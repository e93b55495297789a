/* routing.c - sums over which groups a part has, of the probability that none is chosen in it. */
#include "sim/routing.h"

/* None of k that are chosen among n is among s of them. */
static double missed(double n, double s, uint32_t k)
{
    double p = 1;
    for (uint32_t i = 0; i < k && p > 0; i++)
        p *= n - s - i > 0 ? (n - s - i) / (n - i) : 0;
    return p;
}

/* C(n, k) */
static double choices(uint32_t n, uint32_t k)
{
    double c = k <= n ? 1 : 0;
    for (uint32_t i = 0; i < k && k <= n; i++)
        c = c * (n - i) / (i + 1);
    return c;
}

/* A part of whole groups: those of them that are chosen are 0, 1, 2 ... */
static double missed_by_groups(const Routing *r, uint32_t groups_here)
{
    double size = (double)r->experts / r->groups, open = size * r->groups_chosen, p = 0;
    for (uint32_t j = 0; j <= groups_here && j <= r->groups_chosen; j++)
        p += choices(groups_here, j) * choices(r->groups - groups_here, r->groups_chosen - j) *
             missed(open, j * size, r->chosen);
    return p / choices(r->groups, r->groups_chosen);
}

double routing_parts(const Routing *r, uint32_t parts)
{
    double n = r->experts, here = n / parts;
    bool limited = r->groups > 1 && r->groups_chosen < r->groups;
    if (limited && r->groups % parts == 0)
        return parts * (1 - missed_by_groups(r, r->groups / parts));
    if (limited && parts % r->groups == 0) {
        double open = n / r->groups * r->groups_chosen;
        return parts * (double)r->groups_chosen / r->groups *
               (1 - missed(open, here, r->chosen));
    }
    return parts * (1 - missed(n, here, r->chosen));
}

Routing routing_of(const Transformer *t)
{
    return (Routing){ t->experts, t->experts_per_token, t->expert_groups, t->groups_per_token };
}
