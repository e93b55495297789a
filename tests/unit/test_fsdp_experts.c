/*
 * test_fsdp_experts.c - fsdp and hsdp of mixtures whose experts ep shares out, by closed forms.
 *
 * Dense parameters are sharded over n = dp x cp ranks, experts over the n / ep that hold the same.
 * The model is that of moe_world.h; all of its sizes divide by all of the tests' ranks.
 */
#include "sim/memory.h"
#include "tests/unit/moe_world.h"

/* Dense elements outside layers: those of embedding and head, gathered once a micro-batch. */
#define END_ELEMENTS   ((uint64_t)2 * V * H + H)
#define LAYER_ELEMENTS (DENSE_ELEMENTS - END_ELEMENTS)

/* Under tp what is whole on every rank. */
#define WHOLE_LAYERS ((uint64_t)L * (2 * H + E * H))

static Ask ask(uint32_t dp, uint32_t cp, uint32_t ep, uint32_t micro_batches)
{
    return (Ask){ .experts = E,
                  .per_token = K,
                  .dp = dp,
                  .cp = cp,
                  .ep = ep,
                  .micro_batches = micro_batches,
                  .strategy = "fsdp" };
}

/* ---- what a rank holds ---- */

/* An n-th of everything, whatever ep is: 1/ep of the experts, over n / ep ranks. */
static void every_rank_holds_an_equal_part(void)
{
    for (uint32_t cp = 1; cp <= 2; cp++)
        for (uint32_t ep = 1; ep <= WORLD; ep *= 2) {
            Drawn x;
            if (make(&x, ask(WORLD / cp, cp, ep, 1))) {
                RoleMemory m = memory_of_role(&x.g, &x.g.roles[0], NULL);
                uint64_t held = (DENSE_ELEMENTS + ALL_EXPERTS) / WORLD;
                CHECK_U64(2 * held, m.resident[TENSOR_PARAM]);
                CHECK_U64(x.sw.grads_persist ? 2 * held : 0, m.resident[TENSOR_GRAD]);
                CHECK_U64(12 * held, m.resident[TENSOR_OPTIMIZER]);
            }
            drawn_free(&x);
        }
}

/* Each replica of hsdp has all experts, in as many parts as it has ranks. */
static void every_replica_holds_all_experts(void)
{
    for (uint32_t ep = 1; ep <= 4; ep *= 2) {
        Drawn x;
        Ask a = ask(WORLD, 1, ep, 1);
        a.strategy = "hsdp";
        a.parallel = ",\"shard_size\":4";
        if (make(&x, a)) {
            RoleMemory m = memory_of_role(&x.g, &x.g.roles[0], NULL);
            CHECK_U64(2 * (DENSE_ELEMENTS + ALL_EXPERTS) / 4, m.resident[TENSOR_PARAM]);
            CHECK_U64(12 * (DENSE_ELEMENTS + ALL_EXPERTS) / 4, m.resident[TENSOR_OPTIMIZER]);
        }
        drawn_free(&x);
    }
}

/* ---- volume ---- */

typedef struct Volume {
    uint64_t dense_gathered, dense_reduced; /* elements, in all of a step on all stages */
    uint64_t experts_gathered, experts_reduced;
} Volume;

/* In bytes over the group that shares the experts out, which is that of all else with ep 1. */
static void check_volume(const Drawn *x, Volume v, const char *dense, uint32_t ep, uint32_t n)
{
    uint64_t each = x->sw.f32_reduce ? 4 : 2;
    if (ep == 1) {
        v.dense_gathered += v.experts_gathered;
        v.dense_reduced += v.experts_reduced;
    }
    if (ep == 1 || ep == n)
        v.experts_gathered = v.experts_reduced = 0;
    CHECK_U64(2 * v.dense_gathered, moved(&x->g, OP_ALL_GATHER, dense));
    CHECK_U64(each * v.dense_reduced, moved(&x->g, OP_REDUCE_SCATTER, dense));
    CHECK_U64(2 * v.experts_gathered, moved(&x->g, OP_ALL_GATHER, "edp"));
    CHECK_U64(each * v.experts_reduced, moved(&x->g, OP_REDUCE_SCATTER, "edp"));
}

/* Each micro-batch gathers layers twice, or once where they are kept, and reduces all once. */
static void check_micro_batches(uint32_t ep, uint32_t m, bool keeps, const char *software)
{
    for (uint32_t cp = 1; cp <= 2; cp++) {
        Drawn x;
        Ask a = ask(WORLD / cp, cp, ep, m);
        a.parallel = keeps ? ",\"reshard_after_forward\":false" : NULL;
        a.software = software;
        if (make(&x, a)) {
            uint64_t experts = ALL_EXPERTS / ep, twice = keeps ? 0 : L;
            twice -= !keeps && x.sw.keeps_last_unit;
            check_volume(&x,
                         (Volume){ m * (DENSE_ELEMENTS + twice * LAYER_ELEMENTS / L),
                                   m * DENSE_ELEMENTS, m * (experts + twice * experts / L),
                                   m * experts },
                         "dp", ep, WORLD);
        }
        drawn_free(&x);
    }
}

static void experts_are_gathered_where_the_same_ones_are(void)
{
    static const char *const software[] = { "generic", "torchtitan-2025", "pytorch-fsdp-2022" };
    for (size_t i = 0; i < ARRAY_N(software); i++)
        for (uint32_t ep = 1; ep <= WORLD; ep *= 2)
            for (uint32_t m = 1; m <= 3; m++) {
                check_micro_batches(ep, m, false, software[i]);
                check_micro_batches(ep, m, true, software[i]);
            }
}

/* With a pipeline each micro-batch gathers, and the last alone reduces. */
static void with_a_pipeline_experts_are_reduced_once(void)
{
    enum { M = 4 };
    for (uint32_t ep = 1; ep <= WORLD; ep *= 2) {
        Drawn x;
        Ask a = ask(WORLD, 1, ep, M);
        a.pp = 2;
        if (make(&x, a)) {
            uint64_t experts = ALL_EXPERTS / ep, gathers = 2 * M;
            check_volume(&x,
                         (Volume){ END_ELEMENTS + gathers * LAYER_ELEMENTS, DENSE_ELEMENTS,
                                   gathers * experts, experts },
                         "dp", ep, WORLD);
        }
        drawn_free(&x);
    }
}

/* What is computed again reads what backward has gathered. */
static void recomputation_gathers_no_more(void)
{
    for (uint32_t ep = 1; ep <= WORLD; ep *= 2) {
        Drawn x;
        Ask a = ask(WORLD, 1, ep, 1);
        a.training = ",\"recompute\":\"full\"";
        if (make(&x, a))
            check_volume(&x,
                         (Volume){ DENSE_ELEMENTS + LAYER_ELEMENTS, DENSE_ELEMENTS,
                                   2 * ALL_EXPERTS / ep, ALL_EXPERTS / ep },
                         "dp", ep, WORLD);
        drawn_free(&x);
    }
}

/* Inside a replica as fsdp; of everything a rank's part is summed over the replicas. */
static void replicas_sum_their_parts_of_experts(void)
{
    enum { SHARDS = 4 };
    for (uint32_t ep = 1; ep <= SHARDS; ep *= 2)
        for (uint32_t m = 1; m <= 2; m++) {
            Drawn x;
            Ask a = ask(WORLD, 1, ep, m);
            a.strategy = "hsdp";
            a.parallel = ",\"shard_size\":4";
            if (make(&x, a)) {
                uint64_t experts = ALL_EXPERTS / ep;
                check_volume(&x,
                             (Volume){ m * (DENSE_ELEMENTS + LAYER_ELEMENTS),
                                       m * DENSE_ELEMENTS, 2 * m * experts, m * experts },
                             "dp_shard", ep, SHARDS);
                CHECK_U64(2 * m * (DENSE_ELEMENTS + ALL_EXPERTS) / SHARDS,
                          moved(&x.g, OP_ALL_REDUCE, "dp_replicate"));
            }
            drawn_free(&x);
        }
}

/* tp cuts experts too; or with etp 1 they are whole, and met on ranks of tp x dp. */
static void check_under_tp(uint32_t ep, uint32_t etp)
{
    enum { DP = 4, TP = 2 };
    Drawn x;
    Ask a = ask(DP, 1, ep, 1);
    a.tp = TP;
    a.parallel = etp == 1 ? ",\"etp\":1" : NULL;
    if (make(&x, a)) {
        uint64_t experts = ALL_EXPERTS / ep / etp;
        uint64_t layers = WHOLE_LAYERS + (LAYER_ELEMENTS - WHOLE_LAYERS) / TP;
        uint64_t dense = layers + H + (END_ELEMENTS - H) / TP;
        uint32_t n = etp == 1 ? DP * TP : DP;
        bool apart = ep > 1 || etp == 1;
        check_volume(&x, (Volume){ dense + layers, dense, 2 * experts, experts }, "dp",
                     apart && ep == 1 ? 2 * n : ep, n);
        RoleMemory m = memory_of_role(&x.g, &x.g.roles[0], NULL);
        CHECK_U64(2 * (dense / DP + ALL_EXPERTS / (DP * TP)), m.resident[TENSOR_PARAM]);
    }
    drawn_free(&x);
}

static void experts_under_tp_are_sharded_too(void)
{
    for (uint32_t ep = 1; ep <= 4; ep *= 2)
        check_under_tp(ep, 2);
    for (uint32_t ep = 1; ep <= 8; ep *= 2)
        check_under_tp(ep, 1);
}

/* ---- where nobody else holds the same experts ---- */

static bool is_copy_of_experts(const Graph *g, const Op *op, const void *user)
{
    const char *name = intern_text(&g->names, op->name);
    return strcmp(name, user) == 0 && (op->kind == OP_COPY || op->kind == OP_CAST);
}

/* Their shards are copied to where they are used, for every gather there would be. */
static void whole_shards_are_copied_and_not_sent(void)
{
    for (uint32_t m = 1; m <= 2; m++) {
        Drawn x;
        if (make(&x, ask(WORLD, 1, WORLD, m))) {
            Total out = total_of(&x.g, is_copy_of_experts, "all-gather experts copy-out");
            CHECK_U64(m * 2 * L, out.count);
            Total back = total_of(&x.g, is_copy_of_experts, "reduce-scatter experts");
            CHECK_U64(m * L, back.count);
        }
        drawn_free(&x);
    }
}

/* ---- the rest ---- */

/* Every rank has other shards: one sum over all of dp counts them all. */
static void the_norm_is_summed_over_dp(void)
{
    for (uint32_t ep = 1; ep <= WORLD; ep *= 2) {
        Drawn x;
        Ask a = ask(WORLD, 1, ep, 1);
        a.training = ",\"grad_clip\":1.0";
        if (make(&x, a)) {
            CHECK_U64(4, moved(&x.g, OP_ALL_REDUCE, "dp"));
            CHECK_U64(0, moved(&x.g, OP_ALL_REDUCE, "ep"));
            CHECK_U64(0, moved(&x.g, OP_ALL_REDUCE, "edp"));
        }
        drawn_free(&x);
    }
}

typedef struct Gathered {
    int64_t now, most; /* bytes of gathered parameters of layers */
} Gathered;

static void note_gathered(Gathered *w, const Graph *g, const Segment *s)
{
    for (uint32_t o = 0; o < s->op_n; o++)
        for (uint32_t i = 0; i < graph_ops(g, s)[o].arg_n; i++) {
            const Arg *arg = &g->args[graph_ops(g, s)[o].arg_first + i];
            if (arg->slot != SLOT_PARAM)
                continue;
            w->now += (arg->born - arg->dies) * (int64_t)graph_arg_tensor(g, s, arg)->bytes;
            w->most = w->now > w->most ? w->now : w->most;
        }
}

/* Two layers at most, with the rank's experts in them; of those that are copied but one layer's,
 * as a copy is made where they are used. */
static void two_layers_live_at_most(void)
{
    for (uint32_t ep = 1; ep <= WORLD; ep *= 2) {
        Drawn x;
        if (make(&x, ask(WORLD, 1, ep, 2))) {
            Gathered w = { 0 };
            const Role *role = &x.g.roles[0];
            for (uint32_t i = 0; i < role->instances_n; i++)
                if (role->instances[i].layer != NONE_U32)
                    note_gathered(&w, &x.g, &x.g.segments[role->instances[i].segment]);
            uint64_t experts = ALL_EXPERTS / ep / L;
            uint64_t most = 2 * LAYER_ELEMENTS / L + (ep == WORLD ? 1 : 2) * experts;
            CHECK_U64(2 * most, (uint64_t)w.most);
            CHECK_INT(0, w.now);
        }
        drawn_free(&x);
    }
}

static const Segment *segment_at(const Drawn *x, uint32_t instance)
{
    return &x->g.segments[x->g.roles[0].instances[instance].segment];
}

static bool reads_experts(const Drawn *x, const Segment *s, uint32_t op)
{
    const Op *o = &graph_ops(&x->g, s)[op];
    for (uint32_t i = 0; i < o->arg_n; i++) {
        const Arg *arg = &x->g.args[o->arg_first + i];
        const char *name = intern_text(&x->g.names, graph_arg_tensor(&x->g, s, arg)->name);
        if (arg->slot == SLOT_PARAM && strncmp(name, "experts.", 8) == 0)
            return true;
    }
    return false;
}

/* Of a layer what stands before its experts runs while they are gathered. */
static void only_what_reads_experts_waits_for_them(void)
{
    Drawn x;
    if (make(&x, ask(WORLD, 1, 2, 2))) {
        const Role *role = &x.g.roles[0];
        uint32_t waits = 0;
        for (uint32_t i = 0; i < role->instances_n; i++)
            for (uint32_t e = 0; e < role->instances[i].edge_n; e++) {
                const Edge *edge = &role->edges[role->instances[i].edge_first + e];
                const Segment *from = segment_at(&x, edge->src_instance);
                const char *name = intern_text(&x.g.names, from->name);
                SegmentKind kind = segment_at(&x, i)->kind;
                if (strcmp(name, "all-gather experts") != 0 ||
                    (kind != SEGMENT_FORWARD && kind != SEGMENT_BACKWARD))
                    continue;
                CHECK(edge->dst_op > 0);
                CHECK(reads_experts(&x, segment_at(&x, i), edge->dst_op));
                waits++;
            }
        CHECK(waits >= 2 * (2 * L - 1)); /* forward and backward, of two micro-batches */
    }
    drawn_free(&x);
}

static void every_way_to_shard_holds_together(void)
{
    static const char *const software[] = { "generic",           "torchtitan-2025",
                                            "pytorch-fsdp-2022", "maxtext-2025",
                                            "megatron-bridge",   "fms-fsdp-2024",
                                            "llm-foundry-2023" };
    static const char *const parallel[] = { NULL,
                                            ",\"reshard_after_forward\":false",
                                            ",\"overlap\":false",
                                            ",\"prefetch\":\"both\"",
                                            ",\"limit_all_gathers\":false",
                                            ",\"etp\":1",
                                            ",\"dispatcher\":\"deepep\"" };
    static const char *const training[] = { ",\"recompute\":\"none\"",
                                            ",\"recompute\":\"full\"", ",\"grad_clip\":1",
                                            ",\"reduce_dtype\":\"f32\"" };
    /* A head of experts too, which is of the root's unit where there is one. */
    const char *const models[] = { QWEN, DEEPSEEK, GPT_OSS, LLAMA4, ",\"mtp_layers\":1" };
    for (uint32_t n = 0; n < 4 * 5 * 7; n++) {
        Ask a = ask(4, 1 + n / 3 % 2, 2u << n % 2, 1 + n % 3);
        a.strategy = n % 11 == 0 ? "hsdp" : "fsdp"; /* shards of all of dp, on one node */
        a.model = models[n % 5];
        a.software = software[n / 5 % ARRAY_N(software)];
        a.parallel = parallel[n % 7];
        a.training = training[n / 7 % 4];
        a.tp = n % 5 == 2 && n % 7 != 5 ? 1 : 1 + n / 2 % 2; /* biases cannot be split */
        a.pp = 1 + n / 4 % 2;
        check_graph(a);
    }
}

int main(void)
{
    RUN(every_rank_holds_an_equal_part);
    RUN(every_replica_holds_all_experts);
    RUN(experts_are_gathered_where_the_same_ones_are);
    RUN(with_a_pipeline_experts_are_reduced_once);
    RUN(recomputation_gathers_no_more);
    RUN(replicas_sum_their_parts_of_experts);
    RUN(experts_under_tp_are_sharded_too);
    RUN(whole_shards_are_copied_and_not_sent);
    RUN(the_norm_is_summed_over_dp);
    RUN(two_layers_live_at_most);
    RUN(only_what_reads_experts_waits_for_them);
    RUN(every_way_to_shard_holds_together);
    return check_report();
}
