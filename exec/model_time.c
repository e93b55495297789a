/*
 * model_time.c - the turns of a host that several ranks share.
 */
#include "exec/model_time.h"

static int64_t launch_total_ns(const Graph *g, const HostMember *m, uint32_t instance)
{
    const Instance *in = &m->role->instances[instance];
    int64_t ns = 0;
    for (uint32_t i = 0; i < g->segments[in->segment].op_n; i++)
        ns += m->times[in->first_op + i].launch_ns;
    return ns;
}

void host_turns(int64_t *start_ns, const Graph *g, const HostMember *members, uint32_t n,
                uint32_t turn)
{
    int64_t now_ns = 0;
    bool more = true;
    for (uint32_t i = 0; more; i++) {
        more = false;
        for (uint32_t t = 0; t < n; t++) {
            if (i >= members[t].role->instances_n)
                continue;
            more = true;
            ASSERT(g->segments[members[t].role->instances[i].segment].lane_n[LANE_HOST] == 0);
            if (t == turn)
                start_ns[i] = now_ns;
            now_ns += launch_total_ns(g, &members[t], i);
        }
    }
}
