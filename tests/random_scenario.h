/*
 * random_scenario.h - scenarios drawn from a seed: small models on small
 * clusters, every strategy that can be simulated, with and without stragglers,
 * on machines where everything divides and on odd ones.
 *
 * Drawn as JSON text, so that a failing one can be put into a file and looked at.
 */
#ifndef LOCKSTEP_TESTS_RANDOM_SCENARIO_H
#define LOCKSTEP_TESTS_RANDOM_SCENARIO_H

#include "tests/built.h"

#include <stdarg.h>

typedef struct Draw {
    uint64_t state;
    char text[4096];
    uint32_t gpus, node_gpus; /* used; on the first node */
} Draw;

/* Each draw in a statement of its own: compilers order arguments as they like. */
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
    bool stragglers; /* some ranks slower, some pairs of them with a slow link */
    bool odd;        /* numbers that do not divide, mixed nodes, leaves, every kind of link */
    bool experts;    /* a mixture of experts, shared out over ep */
} DrawKind;

__attribute__((format(printf, 2, 3))) static inline void draw_text(Draw *d, const char *format,
                                                                   ...)
{
    size_t used = strlen(d->text);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(d->text + used, sizeof d->text - used, format, args);
    va_end(args);
    ASSERT(n >= 0 && used + (size_t)n < sizeof d->text);
}

static inline const char *draw_word(Draw *d, const char *const *words, uint32_t n)
{
    return words[draw_below(d, n)];
}

static inline void draw_stragglers(Draw *d, uint32_t need)
{
    uint32_t slow = 5 + draw_below(d, 5), rank = draw_below(d, need);
    draw_text(d, "\"stragglers\":[{\"ranks\":[%u],\"compute\":0.%u}", rank, slow);
    for (uint32_t n = need > 1 ? draw_below(d, 4) : 0; n > 0; n--) {
        uint32_t a = draw_below(d, need), b = draw_below(d, need - 1);
        draw_text(d, ",{\"link\":[%u,%u],\"GBps\":%u}", a, b < a ? b : b + 1,
                  1 + draw_below(d, 20));
    }
    draw_text(d, "],");
}

/* GPUs per node, and what joins them. */
static inline uint32_t draw_node(Draw *d, DrawKind kind, bool other_gpu)
{
    static const char *const links[] = { "nvswitch", "nvlink_mesh", "pcie", "ring",
                                         "shared_memory" };
    uint32_t gpus = kind.odd ? 1 + draw_below(d, 8) : 2u << draw_below(d, 3);
    d->node_gpus = d->node_gpus ? d->node_gpus : gpus;
    const char *gpu = other_gpu ? "a100-80gb" : "h100-80gb";
    uint32_t speed = 20 + draw_below(d, 400);
    const char *link = kind.odd ? draw_word(d, links, ARRAY_N(links)) : links[0];
    draw_text(d,
              "\"gpus_per_node\":%u,\"gpu\":\"%s\",\"intra_node\":{\"kind\":\"%s\","
              "\"GBps\":%u}",
              gpus, kind.ideal ? "ideal" : gpu, link, speed);
    return gpus;
}

/* Nodes for so many GPUs; now and then a few more than needed, or of two types. */
static inline void draw_nodes(Draw *d, uint32_t need, DrawKind kind)
{
    uint32_t more = kind.odd ? draw_below(d, 3) : 0;
    if (kind.odd && draw_below(d, 3) == 0) {
        uint32_t count = 1 + draw_below(d, 3);
        draw_text(d, "\"node_types\":[{\"count\":%u,", count);
        uint32_t have = draw_node(d, kind, false) * count;
        draw_text(d, "},{\"count\":%u,", need + more); /* enough, whatever their size */
        draw_node(d, kind, true);
        draw_text(d, "}],");
        ASSERT(have > 0);
        return;
    }
    uint32_t gpus = draw_node(d, kind, false);
    draw_text(d, ",\"nodes\":%u,", (need + gpus - 1) / gpus + more);
}

static inline void draw_network(Draw *d, DrawKind kind)
{
    static const uint32_t odd_nics[] = { 1, 2, 3, 5, 7, 16 };
    static const char *const fabrics[] = { "fat_tree", "rail", "ethernet" };
    uint32_t nics = kind.odd ? odd_nics[draw_below(d, ARRAY_N(odd_nics))] : draw_power(d, 4);
    uint32_t speed = 5 + draw_below(d, 50);
    const char *fabric = kind.odd ? draw_word(d, fabrics, ARRAY_N(fabrics)) : fabrics[0];
    draw_text(d, "\"inter_node\":{\"kind\":\"%s\",\"nics_per_node\":%u,\"GBps_per_nic\":%u",
              fabric, nics, speed);
    if (kind.odd && draw_below(d, 2)) {
        uint32_t over = 1 + draw_below(d, 4), nodes = 1 + draw_below(d, 4);
        draw_text(d, ",\"nodes_per_leaf\":%u,\"oversubscription\":%u.5", nodes, over);
    }
    draw_text(d, "}");
}

static inline void draw_cluster(Draw *d, uint32_t need, DrawKind kind)
{
    draw_text(d, "\"cluster\":{\"name\":\"drawn\",");
    draw_nodes(d, need, kind);
    if (kind.ideal)
        draw_text(d, "\"collectives\":{\"ideal\":true},");
    if (kind.stragglers)
        draw_stragglers(d, need);
    draw_network(d, kind);
    draw_text(d, "},");
}

/* As many experts as any divisor of dp x cp divides; now and then on every other layer. */
static inline void draw_experts(Draw *d, uint32_t ranks, uint32_t layers)
{
    uint32_t experts = ranks * (1 + draw_below(d, 3));
    uint32_t every = layers > 1 && draw_below(d, 3) == 0 ? 2 : 1;
    uint32_t chosen = 1 + draw_below(d, experts < 4 ? experts : 4);
    draw_text(d, "\"experts\":%u,\"experts_per_token\":%u,\"moe_every\":%u,\"bias\":false,",
              experts, chosen, every);
}

/* All 12 heads and 384 * 2^k columns divide by every tp.  ranks: dp x cp; 0: no experts. */
static inline void draw_model_on(Draw *d, uint32_t layers, uint32_t ranks)
{
    uint32_t hidden = 384u << draw_below(d, 3);
    draw_text(d, "\"model\":{");
    if (ranks > 0)
        draw_experts(d, ranks, layers);
    bool tied = draw_below(d, 2), rope = draw_below(d, 2), rms = draw_below(d, 2);
    bool gated = draw_below(d, 2);
    uint32_t vocab = 1000 + draw_below(d, 9000);
    draw_text(d,
              "\"kind\":\"transformer\",\"layers\":%u,\"hidden\":%u,\"heads\":12,"
              "\"ffn\":%u,\"vocab\":%u,\"max_seq\":2048,\"gated\":%s,\"norm\":\"%s\","
              "\"positions\":\"%s\",\"tied_embeddings\":%s},",
              layers, hidden, 4 * hidden, vocab, gated ? "true" : "false",
              rms ? "rmsnorm" : "layernorm", rope ? "rope" : "learned",
              tied ? "true" : "false");
}

static inline void draw_order(Draw *d)
{
    const char *dims[] = { "tp", "cp", "ep", "dp", "pp" };
    for (uint32_t n = ARRAY_N(dims); n > 1; n--) {
        uint32_t i = draw_below(d, n);
        const char *last = dims[n - 1];
        dims[n - 1] = dims[i];
        dims[i] = last;
    }
    draw_text(d, ",\"order\":\"%s,%s,%s,%s,%s\"", dims[0], dims[1], dims[2], dims[3], dims[4]);
}

/* zero2 knows no pipelines. */
static inline const char *draw_strategy(Draw *d, uint32_t pp)
{
    static const char *const strategies[] = { "ddp", "fsdp", "zero1", "hsdp", "zero2" };
    return strategies[draw_below(d, pp > 1 ? 4 : 5)];
}

/* Shards of any size that divides dp, and buckets small enough for several. */
static inline void draw_sharding(Draw *d, uint32_t dp)
{
    uint32_t size = 1 + draw_below(d, dp);
    while (dp % size != 0)
        size++;
    draw_text(d, ",\"shard_size\":%u,\"bucket_bytes\":%u", size, 1u << (19 + draw_below(d, 7)));
}

static inline void draw_model(Draw *d, uint32_t layers)
{
    draw_model_on(d, layers, 0);
}

static inline bool strategy_shares_experts(const char *strategy)
{
    static const char *const knows[] = { "ddp", "zero1", "zero2",
                                         "fsdp" }; /* and hsdp, within shards */
    for (size_t i = 0; i < ARRAY_N(knows); i++)
        if (strcmp(strategy, knows[i]) == 0)
            return true;
    return false;
}

/* Divides dp x cp, and cp or dp lies side by side with it or divides by it. */
static inline uint32_t draw_ep(Draw *d, uint32_t dp, uint32_t cp)
{
    uint32_t inner = cp > 1 ? cp : dp, ep = 1 + draw_below(d, inner);
    while (inner % ep != 0)
        ep++;
    return draw_below(d, 4) || ep != inner ? ep : dp * cp;
}

static inline void draw_scenario(Draw *d, uint64_t seed, DrawKind kind)
{
    static const uint32_t odd_tp[] = { 1, 1, 2, 3, 4, 6 };
    static const char *const recompute[] = { "\"none\"", "\"selective\"", "\"full\"",
                                             "{\"layers\":1}" };
    static const char *const schedules[] = { "1f1b", "1f1b", "gpipe", "naive" }; /* pp > 1 */
    static const char *const splitting[] = { "zb-h1", "zb-1p", "zb-2p", "zbv", "dualpipe" };
    *d = (Draw){ .state = mix_u64(seed) };
    uint32_t tp = kind.odd ? odd_tp[draw_below(d, ARRAY_N(odd_tp))] : draw_power(d, 3);
    uint32_t pp = kind.odd ? 1 + draw_below(d, 4) : draw_power(d, 3);
    uint32_t dp = 1 + draw_below(d, 6), cp = draw_below(d, 3) ? 1 : draw_power(d, 3);
    if (tp * pp * dp * cp > 36)
        tp = cp = 1;
    bool hub = (seed * 2654435761u >> 7) % 8 == 0; /* PyTorch's DataParallel, on one node */
    if (hub)
        tp = pp = cp = 1;
    bool interleaved = pp > 1 && draw_below(d, 3) == 0;
    uint32_t micro = interleaved ? pp * (1 + draw_below(d, 2)) : 1 + draw_below(d, 4);
    uint64_t splits = seed / 5 % ARRAY_N(splitting);
    if (pp > 1 && seed % 5 == 0 && splits == 4)
        micro += 2 * pp; /* dualpipe needs as many */
    d->gpus = tp * pp * dp * cp;
    draw_text(d, "{\"name\":\"drawn %" PRIu64 "\",", seed);
    draw_model_on(d, pp * 2 + draw_below(d, 5), kind.experts ? dp * cp : 0);
    draw_cluster(d, d->gpus, kind);
    const char *again = draw_word(d, recompute, ARRAY_N(recompute));
    uint32_t tokens = 192u << draw_below(d, 4);
    draw_text(d,
              "\"training\":{\"global_batch\":%u,\"micro_batch\":1,\"seq_len\":%u,"
              "\"precision\":\"bf16\",\"recompute\":%s},",
              dp * micro, tokens, again);
    const char *strategy = draw_strategy(d, pp);
    if (hub && dp <= d->node_gpus)
        strategy = "dp";
    uint32_t ep = kind.experts ? draw_ep(d, dp, cp) : 1;
    if (ep > 1) {
        const char *whole = draw_below(d, 2) ? "ddp" : "zero1";
        bool shards = strcmp(strategy, "fsdp") == 0 || strcmp(strategy, "zero2") == 0;
        strategy = seed % 2 && shards ? strategy : whole;
    }
    const char *schedule =
        interleaved ? "interleaved" : draw_word(d, schedules, pp > 1 ? 4 : 3);
    uint32_t turns = interleaved ? 2 : 1;
    bool zero_bubble = pp > 1 && strstr(strategy, "sdp") == NULL && seed % 5 == 0;
    if (zero_bubble) {
        schedule = splitting[splits];
        turns = 1 + (splits >= 3);
    }
    draw_text(d,
              "\"parallel\":{\"strategy\":\"%s\",\"dp\":%u,\"tp\":%u,\"pp\":%u,\"cp\":%u,"
              "\"sequence_parallel\":%s,\"schedule\":\"%s\",\"virtual_stages\":%u",
              strategy, dp, tp, pp, cp,
              tp > 1 && (draw_below(d, 2) || kind.experts) ? "true" : "false", schedule, turns);
    if (ep > 1)
        draw_text(d, ",\"ep\":%u,\"dispatcher\":\"%s\"", ep, seed % 3 ? "alltoall" : "deepep");
    if (kind.experts && seed % 4 == 0 && strategy_shares_experts(strategy))
        draw_text(d, ",\"etp\":1");
    if (draw_below(d, 3) == 0) {
        bool overlap = draw_below(d, 2);
        draw_text(d, ",\"overlap\":%s", overlap || zero_bubble ? "true" : "false");
    } else { /* what generic does but with interleaving */
        draw_text(d, ",\"overlap\":{\"pp\":true}");
    }
    if (kind.odd && draw_below(d, 2) && (cp == 1 || !kind.experts))
        draw_order(d);
    draw_sharding(d, dp);
    draw_text(d, "}}");
}

/* One node, tensor parallelism or nothing: no transfer but those of the blocks themselves. */
static inline void draw_quiet(Draw *d, uint64_t seed, bool ideal)
{
    *d = (Draw){ .state = mix_u64(seed) };
    uint32_t tp = 1 + draw_below(d, 4);
    d->gpus = tp;
    draw_text(d, "{\"name\":\"quiet %" PRIu64 "\",", seed);
    draw_model(d, 1 + draw_below(d, 6));
    draw_text(d,
              "\"cluster\":{\"name\":\"drawn\",\"gpus_per_node\":%u,\"gpu\":\"%s\","
              "\"collectives\":{\"ideal\":%s},\"intra_node\":{\"kind\":\"nvswitch\","
              "\"GBps\":%u}},",
              tp, ideal ? "ideal" : "h100-80gb", ideal ? "true" : "false",
              20 + draw_below(d, 400));
    uint32_t tokens = 192u << draw_below(d, 4), batch = 1 + draw_below(d, 4);
    draw_text(d,
              "\"training\":{\"global_batch\":%u,\"micro_batch\":1,\"seq_len\":%u,"
              "\"precision\":\"bf16\"},",
              batch, tokens);
    draw_text(d,
              "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1,\"tp\":%u,"
              "\"sequence_parallel\":%s}}",
              tp, tp > 1 && draw_below(d, 2) ? "true" : "false");
}

/* A drawn scenario with its graph. */
typedef Built Drawn;

static inline bool drawn_make(Drawn *x, const Draw *d)
{
    Err err = { 0 };
    bool ok = built_from(x, json_parse(d->text, strlen(d->text), "drawn", &err), &err);
    if (!ok)
        fprintf(stderr, "%s\n", d->text);
    return ok;
}

/* What `lockstep run` makes of it. */
static inline bool drawn_make_to_run(Drawn *x, const Draw *d)
{
    Err err = { 0 };
    JsonDoc *doc = json_parse(d->text, strlen(d->text), "drawn", &err);
    *x = (Drawn){ 0 };
    bool ok = doc && scenario_from(&x->s, doc, NULL, 0, &err) &&
              software_read(&x->sw, &x->arena, "lockstep", &err) &&
              build_graph(&x->g, &x->s, &x->sw, &err);
    if (!CHECK(ok))
        fprintf(stderr, "%s\n%s\n", err.text, d->text);
    return ok;
}

static inline void drawn_free(Drawn *x)
{
    built_free(x);
}

static inline bool drawn_run(SimResult *r, Drawn *x, SimOptions options, const Draw *d)
{
    bool ok = built_run(r, x, options);
    if (!ok)
        fprintf(stderr, "%s\n", d->text);
    return ok;
}

#endif
