/*
 * cmd_run_memory.c - whether all ranks fit this host, told before any of them takes memory.
 */
#include "exec/cmd_run.h"

#include <stdlib.h>

#include "exec/free_memory.h"
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
    uint64_t *of_role = mem_zero(g->roles_n, sizeof *of_role), need = SHARED_BESIDES_BYTES;
    bool ok = true;
    for (uint32_t r = 0; r < g->world_n && ok; r++) {
        uint32_t role = (uint32_t)(graph_role_of(g, r) - g->roles);
        ok = role_bytes(&of_role[role], g, r, err);
        need += of_role[role];
    }
    free(of_role);
    uint64_t left = free_memory_bytes();
    if (!ok || need <= left)
        return ok;
    return err_set(err, "%" PRIu32 " rank%s %.3g GiB of memory, %.3g GiB are free here",
                   g->world_n, g->world_n == 1 ? " needs" : "s need",
                   (double)need / (double)GIB, (double)left / (double)GIB);
}
