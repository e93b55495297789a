/*
 * test_expert_replicas.c - over which ranks gradients and states of experts are summed and shared
 * out, in every combination of dp, cp, tp, ep, etp and strategy.
 *
 * By the definition of Megatron Core's parallel_state.py: expert data parallel ranks are
 * world / (pp etp ep), whatever dp, cp and tp are; all else is summed over dp cp.  DeepSpeed's
 * groups.py (_create_expert_and_data_parallel) and torchtitan's "efsdp" have as many.  Under hsdp
 * that is so within each replica.  The model is that of moe_world.h, whose sizes divide by all.
 */
#include "sim/memory.h"
#include "tests/unit/moe_world.h"

typedef struct Case {
    uint32_t dp, cp, tp, ep, etp, micro_batches;
    Strategy strategy;
    uint32_t shard_size; /* hsdp; else dp */
} Case;

/* What is held whole, in elements, and by how many ranks alike. */
typedef struct Held {
    uint64_t dense, experts;
    uint32_t dense_n, experts_n; /* ranks that share each out: under hsdp those of a replica */
    bool apart;                  /* experts are not held by just those that hold the rest */
} Held;

static Held held_of(const Case *c)
{
    uint64_t whole = H + L * (2 * H + E * H);
    uint32_t ranks = c->shard_size * c->cp;
    Held h = { .dense = whole + (DENSE_ELEMENTS - whole) / c->tp,
               .experts = ALL_EXPERTS / (c->ep * c->etp),
               .dense_n = ranks,
               .experts_n = ranks * c->tp / (c->etp * c->ep),
               .apart = c->ep > 1 || c->etp < c->tp };
    return h;
}

static bool make_case(Drawn *x, const Case *c)
{
    static const char *const names[] = { [STRATEGY_DDP] = "ddp",
                                         [STRATEGY_ZERO1] = "zero1",
                                         [STRATEGY_ZERO2] = "zero2",
                                         [STRATEGY_FSDP] = "fsdp",
                                         [STRATEGY_HSDP] = "hsdp" };
    char more[64];
    snprintf(more, sizeof more, ",\"etp\":%u,\"shard_size\":%u", c->etp, c->shard_size);
    return make(x, (Ask){ .experts = E,
                          .per_token = K,
                          .dp = c->dp,
                          .cp = c->cp,
                          .tp = c->tp,
                          .ep = c->ep,
                          .micro_batches = c->micro_batches,
                          .strategy = names[c->strategy],
                          .parallel = more });
}

/* ---- volume ---- */

/* Elements that a collective of each group has in it; a group of one has none. */
static void check_moved(const Drawn *x, const Held *h, OpKind kind, uint64_t times,
                        uint64_t each)
{
    const char *dense = x->s.parallel.strategy == STRATEGY_HSDP ? "dp_shard" : "dp";
    uint64_t with_dense = h->dense + (h->apart ? 0 : h->experts);
    uint64_t apart = h->apart && h->experts_n > 1 ? h->experts : 0;
    CHECK_U64(times * each * (h->dense_n > 1 ? with_dense : 0), moved(&x->g, kind, dense));
    CHECK_U64(times * each * apart, moved(&x->g, kind, "edp"));
}

static void check_volume(const Drawn *x, const Case *c, const Held *h)
{
    uint64_t each = x->sw.f32_reduce ? 4 : 2, m = c->micro_batches;
    switch (c->strategy) {
    case STRATEGY_DDP:
        check_moved(x, h, OP_ALL_REDUCE, 1, each);
        return;
    case STRATEGY_ZERO1:
        check_moved(x, h, OP_REDUCE_SCATTER, 1, each);
        check_moved(x, h, OP_ALL_GATHER, 1, 2);
        return;
    case STRATEGY_ZERO2:
        check_moved(x, h, OP_REDUCE_SCATTER, m, each);
        check_moved(x, h, OP_ALL_GATHER, 1, 2);
        return;
    default: /* each micro-batch reduces */
        check_moved(x, h, OP_REDUCE_SCATTER, m, each);
        return;
    }
}

/* ---- memory ---- */

static void check_memory(const Drawn *x, const Case *c, const Held *h)
{
    RoleMemory m = memory_of_role(&x->g, &x->g.roles[0], NULL);
    uint64_t whole = h->dense + h->experts;
    uint64_t part = h->dense / h->dense_n + h->experts / (h->apart ? h->experts_n : h->dense_n);
    bool shards = c->strategy == STRATEGY_FSDP || c->strategy == STRATEGY_HSDP;
    CHECK_U64(2 * (shards ? part : whole), m.resident[TENSOR_PARAM]);
    CHECK_U64(12 * (c->strategy == STRATEGY_DDP ? whole : part), m.resident[TENSOR_OPTIMIZER]);
    if (c->strategy == STRATEGY_ZERO2 && x->sw.grads_persist)
        CHECK_U64((x->sw.f32_reduce ? 4 : 2) * part, m.resident[TENSOR_GRAD]);
}

/* hsdp of one rank a replica is ddp. */
static void check_case(Case c)
{
    Held h = held_of(&c);
    Drawn x;
    if (make_case(&x, &c)) {
        check_volume(&x, &c, &h);
        check_memory(&x, &c, &h);
        check_lives(&x.g);
        check_runs(&x.g);
    }
    drawn_free(&x);
}

static void each_strategy(Case c)
{
    static const Strategy all[] = { STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2,
                                    STRATEGY_FSDP };
    c.shard_size = c.dp;
    c.micro_batches = 1 + c.ep % 2;
    for (size_t i = 0; i < ARRAY_N(all); i++) {
        c.strategy = all[i];
        check_case(c);
    }
    c.strategy = STRATEGY_HSDP;
    c.shard_size = c.dp / 2;
    if (c.shard_size * c.cp > 1 && c.shard_size * c.cp * c.tp / c.etp % c.ep == 0)
        check_case(c);
}

static void experts_are_summed_over_all_that_hold_the_same(void)
{
    for (uint32_t dp = 1; dp <= 4; dp *= 2)
        for (uint32_t cp = 1; cp <= 2; cp++)
            for (uint32_t tp = 1; tp <= 4; tp *= 2)
                for (uint32_t etp = 1; etp <= tp; etp += tp > 1 ? tp - 1 : 1)
                    for (uint32_t ep = 1; ep <= E; ep *= 2)
                        if (dp * cp * tp > 1 && dp * cp * tp / etp % ep == 0)
                            each_strategy(
                                (Case){ .dp = dp, .cp = cp, .tp = tp, .ep = ep, .etp = etp });
}

/* A stack's habit of whole experts is as good as the scenario's word for it. */
static void a_habit_of_whole_experts_is_as_saying_so(void)
{
    static const char *const strategies[] = { "ddp", "zero1", "zero2", "fsdp", "hsdp" };
    static const OpKind kinds[] = { OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER };
    for (size_t i = 0; i < ARRAY_N(strategies); i++) {
        Drawn x, said;
        Ask a = { .experts = E,
                  .per_token = K,
                  .tp = 4,
                  .strategy = strategies[i],
                  .parallel = ",\"shard_size\":1",
                  .software = "megatron-bridge" };
        bool ok = make(&x, a);
        a.parallel = ",\"shard_size\":1,\"etp\":1";
        ok = make(&said, a) && ok;
        uint64_t sum = 0;
        for (size_t k = 0; ok && k < ARRAY_N(kinds); k++) {
            CHECK_U64(moved(&said.g, kinds[k], "edp"), moved(&x.g, kinds[k], "edp"));
            sum += moved(&x.g, kinds[k], "edp");
        }
        CHECK(sum >= 2 * ALL_EXPERTS);
        drawn_free(&said);
        drawn_free(&x);
    }
}

/* Where ranks of tp alone have something in common: in every stack, with clipping, in pipelines. */
static void experts_alone_are_shared_in_every_stack(void)
{
    static const char *const software[] = { "generic",         "pytorch-ddp",
                                            "megatron-bridge", "megatron-deepspeed-2022",
                                            "nanotron-2025",   "torchtitan-2025" };
    static const char *const strategies[] = { "ddp", "zero1", "zero2", "fsdp" };
    static const char *const parallel[] = { ",\"etp\":1", ",\"etp\":1,\"overlap\":false",
                                            ",\"etp\":1,\"dispatcher\":\"deepep\"" };
    for (uint32_t n = 0; n < 6 * 4 * 3; n++)
        for (uint32_t pp = 1; pp <= 2 - (n / 6 % 4 == 2); pp++)
            check_graph((Ask){ .experts = E,
                               .per_token = K,
                               .tp = 4,
                               .pp = pp,
                               .ep = 1u << (n + pp) % 3,
                               .micro_batches = 1 + n % 2,
                               .strategy = strategies[n / 6 % 4],
                               .software = software[n % 6],
                               .parallel = parallel[n / 24],
                               .training = n % 4 ? ",\"grad_clip\":1" : NULL });
}

/* Two limits and both ways to reduce: buckets of the kinds are full at different blocks. */
static void zero2_scatters_each_kind_in_every_micro_batch(void)
{
    enum { DP = 4, M = 3 };
    for (uint32_t ep = 1; ep <= DP; ep *= 2)
        for (int n = 0; n < 6; n++) {
            Drawn x;
            char more[128];
            snprintf(more, sizeof more, ",\"bucket_bytes\":%u,\"overlap\":%s",
                     100u << 7 * (n / 2), n % 2 ? "true" : "false");
            Ask a = { .experts = E,
                      .per_token = K,
                      .dp = DP,
                      .ep = ep,
                      .micro_batches = M,
                      .strategy = "zero2",
                      .parallel = more,
                      .software = ep == 2 ? "megatron-core-2025" : "generic" };
            if (make(&x, a)) {
                uint64_t apart = ep > 1 && ep < DP ? ALL_EXPERTS / ep : 0;
                uint64_t dense = DENSE_ELEMENTS + (ep == 1 ? ALL_EXPERTS : 0);
                uint64_t each =
                    dtype_bytes(formats_of(&x.s.training, &x.s.parallel, &x.sw).reduce);
                CHECK_U64(M * each * apart, moved(&x.g, OP_REDUCE_SCATTER, "edp"));
                CHECK_U64(M * each * dense, moved(&x.g, OP_REDUCE_SCATTER, "dp"));
                check_lives(&x.g);
                check_runs(&x.g);
            }
            drawn_free(&x);
        }
}

int main(void)
{
    RUN(experts_are_summed_over_all_that_hold_the_same);
    RUN(a_habit_of_whole_experts_is_as_saying_so);
    RUN(experts_alone_are_shared_in_every_stack);
    RUN(zero2_scatters_each_kind_in_every_micro_batch);
    return check_report();
}
