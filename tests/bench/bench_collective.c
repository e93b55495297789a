/*
 * bench_collective.c - a ring all-reduce of 1 GiB message by message, every rank looked at.
 *
 * What simulators of networks are compared by: 2(n-1) steps of n ranks, 50 GB/s and 500 ns a step.
 * CPU time is this process's; the result is checked against the closed form.  Peers' CPU times and
 * memory are of another machine of this size (two cores, no GPU).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sim/chunked.h"

typedef struct Case {
    uint32_t ranks_n;
    double limit_s;
    const char *peers;
} Case;

static const Case cases[] = {
    { 8, 0, "-" },
    { 512, 0.56, "LogGOPSim 0.56 s, ASTRA-sim 0.68 s, SimGrid 1.67 s" },
    { 4096, 57, "LogGOPSim 57 s, ASTRA-sim 75 s, SimGrid 164 s" },
};

static double cpu_s(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static bool run_case(const Case *c)
{
    ChunkedLink *link = mem_zero(c->ranks_n, sizeof *link);
    for (uint32_t i = 0; i < c->ranks_n; i++)
        link[i] = (ChunkedLink){ 500, 1 / 50.0 };
    ChunkedRing r = { OP_ALL_REDUCE, c->ranks_n, link, c->ranks_n, GIB, GIB, GIB };
    uint64_t messages = 0;
    double begin = cpu_s(), ns = chunked_ring_ns(&r, &messages), took = cpu_s() - begin;
    double n = c->ranks_n, expect = 2 * (n - 1) * (500 + (double)GIB / n / 50);
    printf("%8u %12" PRIu64 " %14.6f %10.6f %10.4f %10.2f  %s\n", (unsigned)c->ranks_n,
           messages, ns / 1e6, 100 * (ns / expect - 1), took, c->limit_s, c->peers);
    free(link);
    return fabs(ns / expect - 1) < 1e-9 && (!(c->limit_s > 0) || took <= c->limit_s);
}

int main(void)
{
    bool well = true;
    printf("%8s %12s %14s %10s %10s %10s  %s\n", "ranks", "messages", "predicted ms",
           "off in %", "CPU s", "limit", "peers");
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        well = run_case(&cases[i]) && well;
    return well ? 0 : 1;
}
