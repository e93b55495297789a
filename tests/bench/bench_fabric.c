/*
 * bench_fabric.c - how fast ranks of one host exchange: an all-reduce of 64 MiB beside
 * what memcpy moves when both ranks copy as much at once, the latency of 8 bytes, and
 * TCP over the loopback interface.
 *
 * Each figure is the best of ROUNDS, as other programs only ever make one slower.  The
 * exit status is 1 when the all-reduce reaches less than LIMIT_PCT of memcpy.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "exec/launch.h"
#include "exec/net.h"

enum { ROUNDS = 15, LIMIT_PCT = 40, CALLS = 3000, LONG_BYTES = 64 << 20 };

typedef struct Figures {
    double memcpy_ms, reduce_ms, rings_ms, call_us;
} Figures;

typedef struct Bench {
    Figures *figures; /* shared with the ranks */
    uint64_t bytes;
} Bench;

static bool meet(Fabric *f, const CommCall *all, Err *err)
{
    Part nothing = { 0 };
    CommCall c = *all;
    c.in = &nothing;
    return fabric_run(f, &c, 1, err);
}

/* Milliseconds of the best round, from a common start. */
static double reduce_ms(Fabric *f, CommCall *c, Err *err)
{
    double best_ms = 1e9;
    for (int round = 0; round < ROUNDS && meet(f, c, err); round++) {
        int64_t start_ns = net_now_ns();
        if (!fabric_run(f, c, 1, err))
            return 0;
        double ms = (double)(net_now_ns() - start_ns) * 1e-6;
        best_ms = ms < best_ms ? ms : best_ms;
    }
    return best_ms;
}

/* From memory of its own into the arena: the faster way round, as private pages are larger. */
static double memcpy_ms(Fabric *f, const CommCall *c, uint64_t bytes, Err *err)
{
    double best_ms = 1e9;
    uint8_t *from = mem_zero((size_t)bytes, 1);
    memset(from, 1, (size_t)bytes);
    for (int round = 0; round < ROUNDS && meet(f, c, err); round++) {
        int64_t start_ns = net_now_ns();
        memcpy(fabric_arena(f), from, (size_t)bytes);
        if (!meet(f, c, err)) /* both have copied */
            break;
        double ms = (double)(net_now_ns() - start_ns) * 1e-6;
        best_ms = ms < best_ms ? ms : best_ms;
    }
    free(from);
    return best_ms;
}

static int rank_main(const RankPlace *place, void *user)
{
    const Bench *b = user;
    const uint32_t members[2] = { 0, 1 };
    Fabric *f;
    Err err = { 0 };
    if (!fabric_open(&f, place, b->bytes, &err)) {
        fprintf(stderr, "bench_fabric: %s\n", err.text);
        return 1;
    }
    memset(fabric_arena(f), 0, (size_t)b->bytes);
    Part all = { .elements = b->bytes / sizeof(float) }, two = { .elements = 2 };
    CommCall c = { .kind = OP_ALL_REDUCE, .members_n = 2, .self = place->rank, .in_n = 1 };
    c.members = members;
    c.in = &all;
    Figures got = { 0 };
    got.memcpy_ms = memcpy_ms(f, &c, b->bytes, &err);
    got.reduce_ms = reduce_ms(f, &c, &err);
    c.in = &two;
    int64_t start_ns = net_now_ns();
    for (int i = 0; i < CALLS && !err.set; i++)
        fabric_run(f, &c, 1, &err);
    got.call_us = (double)(net_now_ns() - start_ns) * 1e-3 / CALLS;
    c.in = &all;
    fabric_use_rings(f, true);
    got.rings_ms = reduce_ms(f, &c, &err);
    if (err.set)
        fprintf(stderr, "bench_fabric: %s\n", err.text);
    else if (place->rank == 0)
        *b->figures = got;
    fabric_close(f);
    return err.set ? 1 : 0;
}

static bool measure(Figures *got, bool tcp_only, uint64_t bytes)
{
    Figures *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false;
    Bench b = { .figures = shared, .bytes = bytes };
    RankPlace common = { .timeout_s = 30, .digest = "bench", .tcp_only = tcp_only };
    bool ok = launch_ranks(2, rank_main, &b, &common, NULL) == 0;
    *got = *shared;
    munmap(shared, sizeof *shared);
    return ok;
}

int main(void)
{
    const double gb = (double)LONG_BYTES * 1e-6; /* bytes per ms -> GB/s */
    Figures shm, tcp;
    if (!measure(&shm, false, LONG_BYTES) || !measure(&tcp, true, LONG_BYTES))
        return 1;
    double pct = 100 * shm.memcpy_ms / shm.reduce_ms;
    printf("2 ranks, 64 MiB of f32                 ms    GB/s\n");
    printf("memcpy by both at once             %6.2f  %6.2f\n", shm.memcpy_ms,
           gb / shm.memcpy_ms);
    printf(
        "all_reduce, shared memory          %6.2f  %6.2f   %.0f %% of memcpy (limit %d %%)\n",
        shm.reduce_ms, gb / shm.reduce_ms, pct, LIMIT_PCT);
    printf("all_reduce, TCP on this host       %6.2f  %6.2f\n", tcp.reduce_ms,
           gb / tcp.reduce_ms);
    printf("all_reduce, ring of TCP messages   %6.2f  %6.2f\n", tcp.rings_ms,
           gb / tcp.rings_ms);
    printf("all_reduce of 8 bytes: %.1f us in shared memory, %.1f us over TCP\n", shm.call_us,
           tcp.call_us);
    return pct >= LIMIT_PCT ? 0 : 1;
}
