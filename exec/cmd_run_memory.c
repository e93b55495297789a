/*
 * cmd_run_memory.c - whether all ranks fit this host, told before any of them takes memory.
 */
#include "exec/cmd_run.h"

#include <stdlib.h>

#include "exec/program.h"
#include "exec/shared.h"

/* Of any rank with this role. */
static bool role_bytes(uint64_t *bytes, const Graph *g, uint32_t rank, Err *err)
{
    Program p;
    if (*bytes > 0)
        return true;
    if (!program_make(&p, g, rank, err))
        return false;
    *bytes = p.arena_bytes;
    program_free(&p);
    return true;
}

bool run_memory_fits(const Graph *g, Err *err)
{
    uint64_t *of_role = mem_zero(g->roles_n, sizeof *of_role), bytes = 0;
    bool ok = true;
    for (uint32_t r = 0; r < g->world_n && ok; r++) {
        uint32_t role = (uint32_t)(graph_role_of(g, r) - g->roles);
        ok = role_bytes(&of_role[role], g, r, err);
        bytes += of_role[role];
    }
    free(of_role);
    return ok && shared_ranks_fit(g->world_n, bytes, err);
}
