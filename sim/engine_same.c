/*
 * engine_same.c - which segments have the same ops.
 *
 * Strategies write a segment anew for each bucket, layer or micro-batch.  Equal ones are priced
 * and timed once, and a step in which they take turns repeats (engine_steady.c).  What is equal
 * is all that costs and times are made of; that two others have the same hash of 64 bits is taken
 * not to happen.
 */
#include "sim/engine_state.h"

#include <stdlib.h>
#include <string.h>

/* What the engine knows of an op. */
static uint64_t hash_op(const Graph *g, const Op *o, uint64_t h)
{
    enum { OWN = 6, ALL = OWN + (sizeof o->u + 7) / 8 };
    uint64_t word[ALL] = { (uint64_t)o->kind | (uint64_t)o->phase << 8 | (uint64_t)o->fn << 16 |
                               (uint64_t)o->dtype << 24 | (uint64_t)o->lane << 32 |
                               (uint64_t)o->grouped << 40,
                           o->read_bytes, o->write_bytes, o->dep_n };
    memcpy(&word[4], &o->flops, sizeof o->flops);
    memcpy(&word[5], &o->model_flops, sizeof o->model_flops);
    memcpy(&word[OWN], &o->u, sizeof o->u);
    for (uint32_t i = 0; i < ALL; i++) {
        h = (h ^ word[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    for (uint32_t d = 0; d < o->dep_n; d++)
        h = mix_u64(h ^ g->deps[o->dep_first + d]);
    return mix_u64(h);
}

void segments_same(Sim *sim)
{
    const Graph *g = sim->g;
    uint32_t slots_n = 16;
    while (slots_n < 2 * g->segments_n)
        slots_n *= 2;
    uint32_t *slot = mem_zero(slots_n, sizeof *slot); /* segment + 1, by its hash */
    uint64_t *hash = mem_zero(g->segments_n + 1, sizeof *hash);
    sim->same = PUSH_ARRAY(&sim->arena, uint32_t, g->segments_n + 1);
    for (uint32_t i = 0; i < g->segments_n; i++) {
        const Segment *s = &g->segments[i];
        hash[i] = s->op_n | (uint64_t)s->host_before << 32;
        for (uint32_t k = 0; k < s->op_n; k++)
            hash[i] = hash_op(g, graph_ops(g, s) + k, hash[i]);
        uint32_t at = (uint32_t)hash[i] & (slots_n - 1);
        while (slot[at] && hash[slot[at] - 1] != hash[i])
            at = (at + 1) & (slots_n - 1);
        if (!slot[at])
            slot[at] = i + 1;
        sim->same[i] = slot[at] - 1;
    }
    free(slot);
    free(hash);
}
