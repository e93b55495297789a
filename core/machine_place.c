/* machine_place.c - where ranks are, and what is said of them and of pairs of them. */
#include "core/machine.h"

uint32_t machine_nodes_of_hosts(const Machine *m, uint32_t hosts_n)
{
    uint32_t of_host = m->gpus_per_host, of_node = m->types[0].gpus_n;
    uint64_t hosts_of_node = of_host > 0 ? div_up_u64(of_node, of_host) : 1;
    return (uint32_t)div_up_u64(hosts_n, hosts_of_node);
}

Place machine_place(const Machine *m, uint32_t rank)
{
    ASSERT(rank < m->gpus_n);
    uint32_t low = 0, high = m->types_n; /* the type is in [low, high) */
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (m->types[mid].first_rank <= rank)
            low = mid;
        else
            high = mid;
    }
    const NodeType *t = &m->types[low];
    uint32_t in_type = rank - t->first_rank;
    return (Place){ t->first_node + in_type / t->gpus_n, in_type % t->gpus_n, t };
}

double machine_speed(const Machine *m, uint32_t rank)
{
    uint32_t low = 0, high = m->stragglers_n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (m->stragglers[mid].rank < rank)
            low = mid + 1;
        else
            high = mid;
    }
    bool slow = low < m->stragglers_n && m->stragglers[low].rank == rank;
    return slow ? m->stragglers[low].compute : 1;
}

uint32_t machine_slow_link(const Machine *m, uint32_t a, uint32_t b)
{
    uint32_t low = a < b ? a : b, high = a < b ? b : a, slowest = NONE_U32;
    for (uint32_t k = 0; k < m->slow_links_n; k++) {
        const SlowLink *l = &m->slow_links[k];
        if (l->rank_a == low && l->rank_b == high &&
            (slowest == NONE_U32 || l->bytes_per_ns < m->slow_links[slowest].bytes_per_ns))
            slowest = k;
    }
    return slowest;
}
