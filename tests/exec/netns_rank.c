/*
 * netns_rank.c - one rank of netns.sh: sums, messages and a gather among ranks of two
 * hosts, in mixed and in local groups.
 *
 *     netns_rank RANK WORLD RENDEZVOUS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/launch.h"

enum { N = 300000 };

static bool sum_among(Fabric *f, const uint32_t *members, uint32_t n, uint32_t self,
                      uint32_t rank, Err *err)
{
    int64_t *x = (int64_t *)(void *)fabric_arena(f), ranks = 0;
    for (int64_t i = 0; i < N; i++)
        x[i] = i + rank;
    for (uint32_t i = 0; i < n; i++)
        ranks += members[i];
    Part part = { .elements = N, .dtype = DTYPE_I64 };
    CommCall c = { .kind = OP_ALL_REDUCE, .lane = LANE_REDUCE, .members_n = n, .self = self };
    c.members = members;
    c.in_n = 1;
    c.in = &part;
    if (!fabric_run(f, &c, 1, err))
        return false;
    for (int64_t i = 0; i < N; i++)
        if (x[i] != (int64_t)n * i + ranks)
            return err_set(err, "element %" PRId64 " is %" PRId64, i, x[i]);
    return true;
}

/* To the right and from the left, across the hosts and within them. */
static bool pass_on(Fabric *f, uint32_t rank, uint32_t world, Err *err)
{
    uint32_t all[64];
    for (uint32_t i = 0; i < world; i++)
        all[i] = i;
    int64_t *x = (int64_t *)(void *)fabric_arena(f);
    for (int64_t i = 0; i < N; i++)
        x[i] = i + rank;
    Part parts[2] = { { .elements = N, .dtype = DTYPE_I64 },
                      { .offset = N * 8, .elements = N, .dtype = DTYPE_I64 } };
    CommCall calls[2] = { { .kind = OP_SEND, .lane = LANE_SEND_ACT, .in = &parts[0] },
                          { .kind = OP_RECV, .lane = LANE_RECV_ACT, .in = &parts[1] } };
    uint32_t left = (rank + world - 1) % world;
    calls[0].peer = (rank + 1) % world;
    calls[1].peer = left;
    for (int i = 0; i < 2; i++) {
        calls[i].members = all;
        calls[i].members_n = world;
        calls[i].self = rank;
        calls[i].in_n = 1;
    }
    if (!fabric_run(f, calls, 2, err))
        return false;
    for (int64_t i = 0; i < N; i++)
        if (x[N + i] != i + left)
            return err_set(err, "message element %" PRId64 " is %" PRId64, i, x[N + i]);
    return true;
}

static bool work(Fabric *f, uint32_t rank, uint32_t world, Err *err)
{
    uint32_t all[64], host[2] = { rank / 2 * 2, rank / 2 * 2 + 1 };
    uint32_t across[2] = { rank % 2, rank % 2 + 2 };
    for (uint32_t i = 0; i < world; i++)
        all[i] = i;
    for (int round = 0; round < 3; round++)
        if (!sum_among(f, all, world, rank, rank, err) ||
            !sum_among(f, host, 2, rank % 2, rank, err) ||
            !sum_among(f, across, 2, rank / 2, rank, err) || !pass_on(f, rank, world, err))
            return false;
    fabric_use_rings(f, true);
    return sum_among(f, all, world, rank, rank, err) && fabric_barrier(f, err);
}

int main(int argc, char **argv)
{
    LaunchFlags flags = { .local_rank = NONE_U32 };
    if (argc != 4 || atoi(argv[2]) > 64)
        return EXIT_USAGE;
    flags.rank = (uint32_t)atoi(argv[1]);
    flags.world = (uint32_t)atoi(argv[2]);
    flags.rendezvous = argv[3];
    RankPlace place = { .timeout_s = 10, .digest = "netns" };
    Launcher by;
    Fabric *f = NULL;
    Err err = { 0 };
    bool ok = launch_place(&place, &by, &flags, &err) &&
              fabric_open(&f, &place, 2 * N * 8, &err) &&
              work(f, place.rank, place.world, &err);
    if (!ok)
        fprintf(stderr, "rank %u: %s\n", place.rank, err.text);
    fabric_close(f);
    return ok ? EXIT_DONE : EXIT_COULD_NOT;
}
