/*
 * random_scenario.h - scenarios drawn from a seed: small models on small
 * clusters, every strategy that can be simulated, with and without stragglers.
 *
 * Drawn as JSON text, so that a failing one can be put into a file and looked at.
 */
#ifndef LOCKSTEP_TESTS_RANDOM_SCENARIO_H
#define LOCKSTEP_TESTS_RANDOM_SCENARIO_H

#include "sim/build.h"
#include "sim/engine.h"
#include "tests/check.h"

typedef struct Draw {
    uint64_t state;
    char text[4096];
    uint32_t gpus;
} Draw;

static inline uint32_t draw_below(Draw *d, uint32_t below)
{
    d->state = mix_u64(d->state);
    return (uint32_t)(d->state % below);
}

static inline uint32_t draw_power(Draw *d, uint32_t powers)
{
    return 1u << draw_below(d, powers);
}

typedef struct DrawKind {
    bool ideal;      /* ideal GPU and collectives, else h100-80gb with real costs */
    bool stragglers; /* some ranks slower, perhaps a slow link */
} DrawKind;

static inline size_t draw_cluster(Draw *d, size_t at, uint32_t need, DrawKind kind)
{
    uint32_t per_node = 2u << draw_below(d, 3), nodes = (need + per_node - 1) / per_node;
    uint32_t nics = 1u << draw_below(d, 4);
    char *t = d->text;
    at += (size_t)snprintf(
        t + at, sizeof d->text - at,
        "\"cluster\":{\"name\":\"drawn\",\"nodes\":%u,\"gpus_per_node\":%u,\"gpu\":\"%s\","
        "\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":%u},",
        nodes, per_node, kind.ideal ? "ideal" : "h100-80gb", 100 + draw_below(d, 400));
    if (kind.ideal)
        at +=
            (size_t)snprintf(t + at, sizeof d->text - at, "\"collectives\":{\"ideal\":true},");
    if (kind.stragglers) {
        at += (size_t)snprintf(t + at, sizeof d->text - at,
                               "\"stragglers\":[{\"ranks\":[%u],\"compute\":0.%u}",
                               draw_below(d, need), 5 + draw_below(d, 5));
        if (need > 1 && draw_below(d, 2))
            at +=
                (size_t)snprintf(t + at, sizeof d->text - at, ",{\"link\":[0,1],\"GBps\":10}");
        at += (size_t)snprintf(t + at, sizeof d->text - at, "],");
    }
    at += (size_t)snprintf(t + at, sizeof d->text - at,
                           "\"inter_node\":{\"kind\":\"fat_tree\",\"nics_per_node\":%u,"
                           "\"GBps_per_nic\":%u}},",
                           nics, 10 + draw_below(d, 50));
    return at;
}

static inline void draw_scenario(Draw *d, uint64_t seed, DrawKind kind)
{
    *d = (Draw){ .state = mix_u64(seed) };
    uint32_t tp = draw_power(d, 3), pp = draw_power(d, 3), dp = 1 + draw_below(d, 6);
    if (tp * pp * dp > 32)
        tp = 1;
    bool interleaved = pp > 1 && draw_below(d, 3) == 0;
    uint32_t micro = interleaved ? pp * (1 + draw_below(d, 2)) : 1 + draw_below(d, 4);
    uint32_t layers = pp * 2 + draw_below(d, 5);
    d->gpus = tp * pp * dp;
    static const char *const recompute[] = { "\"none\"", "\"selective\"", "\"full\"",
                                             "{\"layers\":1}" };
    size_t at = (size_t)snprintf(
        d->text, sizeof d->text,
        "{\"name\":\"drawn %llu\",\"model\":{\"kind\":\"transformer\",\"layers\":%u,"
        "\"hidden\":%u,\"heads\":8,\"vocab\":%u,\"max_seq\":2048,\"gated\":%s,"
        "\"norm\":\"%s\",\"positions\":\"%s\",\"tied_embeddings\":%s},",
        (unsigned long long)seed, layers, 256u << draw_below(d, 3), 1000 + draw_below(d, 9000),
        draw_below(d, 2) ? "true" : "false", draw_below(d, 2) ? "rmsnorm" : "layernorm",
        draw_below(d, 2) ? "rope" : "learned", draw_below(d, 2) ? "true" : "false");
    at = draw_cluster(d, at, d->gpus, kind);
    at += (size_t)snprintf(d->text + at, sizeof d->text - at,
                           "\"training\":{\"global_batch\":%u,\"micro_batch\":1,\"seq_len\":%u,"
                           "\"precision\":\"bf16\",\"recompute\":%s},",
                           dp * micro, 128u << draw_below(d, 4), recompute[draw_below(d, 4)]);
    snprintf(d->text + at, sizeof d->text - at,
             "\"parallel\":{\"strategy\":\"%s\",\"dp\":%u,\"tp\":%u,\"pp\":%u,\"cp\":1,"
             "\"sequence_parallel\":%s,\"schedule\":\"%s\",\"virtual_stages\":%u}}",
             draw_below(d, 2) ? "ddp" : "fsdp", dp, tp, pp,
             tp > 1 && draw_below(d, 2) ? "true" : "false",
             interleaved ? "interleaved" : "1f1b", interleaved ? 2 : 1);
}

/* A drawn scenario with its graph. */
typedef struct Drawn {
    Scenario s;
    Software sw;
    Arena arena;
    Graph g;
} Drawn;

static inline bool drawn_make(Drawn *x, const Draw *d)
{
    *x = (Drawn){ 0 };
    Err err = { 0 };
    JsonDoc *doc = json_parse(d->text, strlen(d->text), "drawn", &err);
    bool ok = doc && scenario_from(&x->s, doc, NULL, 0, &err) &&
              software_read(&x->sw, &x->arena, "generic", &err) &&
              build_graph(&x->g, &x->s, &x->sw, &err);
    if (!CHECK(ok))
        fprintf(stderr, "%s\n%s\n", err.text, d->text);
    return ok;
}

static inline void drawn_free(Drawn *x)
{
    graph_free(&x->g);
    scenario_free(&x->s);
    arena_free(&x->arena);
}

static inline bool drawn_run(SimResult *r, Drawn *x, SimOptions options, const Draw *d)
{
    Err err = { 0 };
    bool ok = sim_run(r, &x->g, &x->s.machine, &x->sw, &options, &err);
    if (!CHECK(ok))
        fprintf(stderr, "%s\n%s\n", err.text, d->text);
    return ok;
}

#endif
