/*
 * Closed forms, from scenario text to result: bubbles, volumes, rings.
 *
 * On an `ideal` machine nothing is lost to launches, protocols or quantisation, so
 * what the textbooks say must come out.  Models have a tiny vocabulary where the
 * formula knows nothing of embedding and head.
 */
#include "sim/build.h"
#include "sim/engine.h"
#include "sim/memory.h"
#include "tests/check.h"

typedef struct Case {
    Scenario s;
    Software sw;
    Arena arena;
    Graph g;
    SimResult r;
} Case;

static bool run_on(Case *c, const char *software, const char *model, const char *training,
                   const char *parallel, uint32_t nodes, double gbps)
{
    char text[4096];
    snprintf(text, sizeof text,
             "{\"model\":%s,\"cluster\":{\"name\":\"ideal\",\"nodes\":%u,\"gpus_per_node\":8,"
             "\"gpu\":\"ideal\",\"collectives\":{\"ideal\":true},"
             "\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":%g,\"latency_us\":0},"
             "\"inter_node\":{\"kind\":\"fat_tree\",\"nics_per_node\":8,\"GBps_per_nic\":%g,"
             "\"latency_us\":0}},\"training\":%s,\"parallel\":%s}",
             model, nodes, gbps, gbps, training, parallel);
    *c = (Case){ 0 };
    Err err = { 0 };
    JsonDoc *doc = json_parse(text, strlen(text), "closed form", &err);
    bool ok = doc && scenario_from(&c->s, doc, NULL, 0, &err) &&
              software_read(&c->sw, &c->arena, software, &err) &&
              build_graph(&c->g, &c->s, &c->sw, &err) &&
              sim_run(&c->r, &c->g, &c->s.machine, &c->sw, &(SimOptions){ 0 }, &err);
    if (!CHECK(ok))
        fprintf(stderr, "%s\n%s\n", err.text, text);
    return ok;
}

static bool run(Case *c, const char *model, const char *training, const char *parallel,
                uint32_t nodes, double gbps)
{
    return run_on(c, "generic", model, training, parallel, nodes, gbps);
}

static void release(Case *c)
{
    sim_result_free(&c->r);
    graph_free(&c->g);
    scenario_free(&c->s);
    arena_free(&c->arena);
}

static const char *wide_model(char *text, size_t cap, uint32_t layers, uint32_t hidden)
{
    snprintf(text, cap,
             "{\"kind\":\"transformer\",\"layers\":%u,\"hidden\":%u,\"heads\":16,\"vocab\":16,"
             "\"max_seq\":65536,\"positions\":\"rope\",\"tied_embeddings\":false}",
             layers, hidden);
    return text;
}

static const char *block_model(char *text, size_t cap, uint32_t layers)
{
    return wide_model(text, cap, layers, 2048);
}

static double bubble_share(const char *software, uint32_t p, uint32_t m, uint32_t v,
                           uint32_t layers)
{
    char model[400], training[200], parallel[400];
    snprintf(training, sizeof training,
             "{\"global_batch\":%u,\"micro_batch\":1,\"seq_len\":65536,\"precision\":\"bf16\","
             "\"optimizer\":\"sgd\"}",
             m);
    snprintf(parallel, sizeof parallel,
             "{\"strategy\":\"ddp\",\"dp\":1,\"tp\":1,\"pp\":%u,\"schedule\":\"%s\","
             "\"virtual_stages\":%u,\"stage_layers\":[",
             p, v > 1 ? "interleaved" : "1f1b", v);
    for (uint32_t i = 0; i < p * v; i++)
        snprintf(parallel + strlen(parallel), sizeof parallel - strlen(parallel), "%s%u",
                 i ? "," : "", layers / (p * v));
    strcat(parallel, "]}");
    Case c;
    double share = NAN;
    if (run_on(&c, software, wide_model(model, sizeof model, layers, 8192), training, parallel,
               1, 1e6)) {
        double bubble = 0;
        for (uint32_t i = 0; i < c.r.ranks_n; i++)
            bubble += (double)c.r.ranks[i].bubble_ns * c.r.ranks[i].ranks_n;
        share = bubble / p / (double)c.r.step_ns;
    }
    release(&c);
    return share;
}

/* (p - 1) / (m + p - 1).  Blocks are so long that the update, the embedding and the head are the
 * tolerance.  It is no less of one where the host waits for the transfers (p2p_blocks_host). */
static void the_bubble_of_1f1b_has_its_textbook_size(void)
{
    static const char *const stacks[] = { "generic", "megatron-lm-2022", "megatron-bridge" };
    for (size_t i = 0; i < ARRAY_N(stacks); i++)
        for (uint32_t p = 2; p <= 8; p *= 2)
            for (uint32_t m = p; m <= 4 * p; m *= 2)
                CHECK_NEAR((p - 1.0) / (m + p - 1.0), bubble_share(stacks[i], p, m, 1, 16),
                           0.025);
}

/* Interleaving v chunks divides the time lost by v: (p-1)/v of m micro-batches. */
static void interleaving_divides_the_bubble(void)
{
    for (uint32_t v = 2; v <= 4; v *= 2)
        for (uint32_t p = 2; p <= 4; p *= 2)
            for (uint32_t m = p; m <= 4 * p; m *= 2) {
                double lost = (p - 1.0) / v;
                CHECK_NEAR(lost / (m + lost), bubble_share("generic", p, m, v, 16), 0.05);
            }
}

static const CollectiveStat *find(const RankStat *s, OpKind kind)
{
    for (uint32_t i = 0; i < s->collectives_n; i++)
        if (s->collectives[i].kind == kind)
            return &s->collectives[i];
    return NULL;
}

static double bytes_of(const RankStat *s, OpKind kind)
{
    const CollectiveStat *c = find(s, kind);
    return c ? (double)c->bytes : 0;
}

/* ddp: every parameter's gradient once: all-reduce of Psi elements, 2 Psi (n-1)/n on the wire. */
static void ddp_moves_two_psi(void)
{
    char model[400];
    for (uint32_t n = 2; n <= 8; n *= 2) {
        char training[200], parallel[100];
        snprintf(
            training, sizeof training,
            "{\"global_batch\":%u,\"micro_batch\":1,\"seq_len\":512,\"precision\":\"bf16\"}",
            n);
        snprintf(parallel, sizeof parallel, "{\"strategy\":\"ddp\",\"dp\":%u}", n);
        Case c;
        if (run(&c, block_model(model, sizeof model, 4), training, parallel, 1, 100)) {
            double psi = (double)model_params(&c.s.model) * 2; /* bf16 gradients */
            const CollectiveStat *ar = find(&c.r.ranks[0], OP_ALL_REDUCE);
            CHECK_NEAR(psi, (double)ar->bytes, 1e-9);
            CHECK_NEAR(2 * psi * (n - 1) / n, ar->wire_bytes, 1e-9);
            CHECK_NEAR(2 * psi * (n - 1) / n / 100, (double)ar->transfer_ns, 1e-4);
        }
        release(&c);
    }
}

/* ddp: running mean and variance in f32 and a counter of each batch norm, once per step. */
static void ddp_broadcasts_the_buffers_of_batch_norms(void)
{
    const double channels = 26560, norms = 53; /* of ResNet-50 */
    for (int sharded = 0; sharded < 2; sharded++) {
        Case c;
        if (run(&c, "\"resnet50\"",
                "{\"global_batch\":32,\"micro_batch\":2,\"precision\":\"bf16\"}",
                sharded ? "{\"strategy\":\"fsdp\",\"dp\":8}"
                        : "{\"strategy\":\"ddp\",\"dp\":8}",
                1, 100))
            CHECK_NEAR(sharded ? 0 : channels * 2 * 4 + norms * 8,
                       bytes_of(&c.r.ranks[0], OP_BROADCAST), 1e-9);
        release(&c);
    }
}

/* SyncBatchNorm: 2 C + 1 numbers of n ranks gathered forward, 2 C summed backward, per norm. */
static void sync_batchnorm_exchanges_statistics(void)
{
    const double channels = 26560, norms = 53, n = 8;
    Case plain, sync = { 0 };
    const char *training = "{\"global_batch\":32,\"micro_batch\":2,\"precision\":\"bf16\"}";
    if (run(&plain, "\"resnet50\"", training, "{\"strategy\":\"ddp\",\"dp\":8}", 1, 100) &&
        run(&sync, "\"resnet50\"", training,
            "{\"strategy\":\"ddp\",\"dp\":8,\"sync_batchnorm\":true}", 1, 100)) {
        const RankStat *p = &plain.r.ranks[0], *s = &sync.r.ranks[0];
        double forward = bytes_of(s, OP_ALL_GATHER), m = 2; /* micro-batches */
        CHECK_NEAR(m * n * (2 * channels + norms) * 4, forward, 1e-9);
        CHECK_NEAR(m * 2 * channels * 4,
                   bytes_of(s, OP_ALL_REDUCE) - bytes_of(p, OP_ALL_REDUCE), 1e-9);
        CHECK(sync.r.step_ns > plain.r.step_ns);
    }
    release(&sync);
    release(&plain);
}

/* fsdp: gathered for forward and for backward, gradients scattered: 3 Psi (n-1)/n. */
static void fsdp_moves_three_psi(void)
{
    char model[400];
    for (uint32_t n = 2; n <= 8; n *= 2) {
        char training[200], parallel[100];
        snprintf(
            training, sizeof training,
            "{\"global_batch\":%u,\"micro_batch\":1,\"seq_len\":512,\"precision\":\"bf16\"}",
            n);
        snprintf(parallel, sizeof parallel, "{\"strategy\":\"fsdp\",\"dp\":%u}", n);
        Case c;
        if (run(&c, block_model(model, sizeof model, 12), training, parallel, 1, 100)) {
            double psi = (double)model_params(&c.s.model) * 2;
            const RankStat *s = &c.r.ranks[0];
            /* The root unit (embedding, final norm, head) stays gathered: it is small. */
            CHECK_NEAR(2 * psi, bytes_of(s, OP_ALL_GATHER), 0.01);
            CHECK_NEAR(psi, bytes_of(s, OP_REDUCE_SCATTER), 0.01);
            double wire =
                find(s, OP_ALL_GATHER)->wire_bytes + find(s, OP_REDUCE_SCATTER)->wire_bytes;
            CHECK_NEAR(3 * psi * (n - 1) / n, wire, 0.01);
        }
        release(&c);
    }
}

/* zero1, zero2: gradients scattered once, parameters gathered once: 2 Psi (n-1)/n, as ddp. */
static void zero_moves_two_psi(void)
{
    char model[400];
    for (uint32_t n = 2; n <= 8; n *= 2)
        for (uint32_t stage = 1; stage <= 2; stage++) {
            char training[200], parallel[100];
            snprintf(training, sizeof training,
                     "{\"global_batch\":%u,\"micro_batch\":1,\"seq_len\":512,\"precision\":"
                     "\"bf16\"}",
                     n);
            snprintf(parallel, sizeof parallel, "{\"strategy\":\"zero%u\",\"dp\":%u}", stage,
                     n);
            Case c;
            if (run(&c, block_model(model, sizeof model, 4), training, parallel, 1, 100)) {
                double psi = (double)model_params(&c.s.model) * 2;
                const RankStat *s = &c.r.ranks[0];
                CHECK_NEAR(psi, bytes_of(s, OP_REDUCE_SCATTER), 1e-9);
                CHECK_NEAR(psi, bytes_of(s, OP_ALL_GATHER), 1e-9);
                double wire =
                    find(s, OP_ALL_GATHER)->wire_bytes + find(s, OP_REDUCE_SCATTER)->wire_bytes;
                CHECK_NEAR(2 * psi * (n - 1) / n, wire, 1e-9);
            }
            release(&c);
        }
}

/* hsdp on 2 nodes of 8: 3 Psi 7/8 within a node, an eighth of 2 Psi 1/2 between them. */
static void hsdp_moves_an_eighth_between_nodes(void)
{
    char model[400];
    Case c;
    if (run(&c, block_model(model, sizeof model, 12),
            "{\"global_batch\":16,\"micro_batch\":1,\"seq_len\":512,\"precision\":\"bf16\"}",
            "{\"strategy\":\"hsdp\",\"dp\":16,\"shard_size\":8}", 2, 100)) {
        double psi = (double)model_params(&c.s.model) * 2;
        const RankStat *s = &c.r.ranks[0];
        CHECK_NEAR(psi / 8, bytes_of(s, OP_ALL_REDUCE), 1e-9);
        CHECK_NEAR(psi / 8 * 2 * 1 / 2, find(s, OP_ALL_REDUCE)->wire_bytes, 1e-9);
        double inside =
            find(s, OP_ALL_GATHER)->wire_bytes + find(s, OP_REDUCE_SCATTER)->wire_bytes;
        CHECK_NEAR(3 * psi * 7 / 8, inside, 0.01);
    }
    release(&c);
}

/*
 * The table of the ZeRO paper (arXiv 1910.02054, figure 1): 7.5 B parameters on 64
 * GPUs, 2 + 2 + 12 bytes each: 120, 31.4, 16.6 and 1.9 GB.
 */
static void zero_memory_is_that_of_the_paper(void)
{
    static const struct {
        const char *strategy;
        double whole, shared, table_gb; /* bytes per parameter */
    } rows[] = {
        { "ddp", 16, 0, 120 },
        { "zero1", 4, 12, 31.4 },
        { "zero2", 2, 14, 16.6 },
        { "fsdp", 0, 16, 1.9 },
    };
    char model[400], parallel[100];
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Case c;
        snprintf(parallel, sizeof parallel, "{\"strategy\":\"%s\",\"dp\":64}",
                 rows[i].strategy);
        if (run(&c, wide_model(model, sizeof model, 37, 4096),
                "{\"global_batch\":64,\"micro_batch\":1,\"seq_len\":512,\"precision\":"
                "\"bf16\",\"optimizer\":\"adamw\"}",
                parallel, 8, 100)) {
            double psi = (double)model_params(&c.s.model);
            RoleMemory m = memory_of_role(&c.g, &c.g.roles[0], NULL);
            double bytes = (double)(m.resident[TENSOR_PARAM] + m.resident[TENSOR_GRAD] +
                                    m.resident[TENSOR_OPTIMIZER]);
            CHECK_NEAR(psi * (rows[i].whole + rows[i].shared / 64), bytes, 1e-6);
            CHECK_NEAR(rows[i].table_gb, bytes * 1e-9 * 7.5e9 / psi, 0.02);
        }
        release(&c);
    }
}

/* What forward leaves behind for backward, on rank 0: memory between the two. */
static double kept_bytes(const char *software, const char *recompute, uint32_t tp, bool sp,
                         uint32_t layers)
{
    char model[400], training[300], parallel[200];
    snprintf(training, sizeof training,
             "{\"global_batch\":2,\"micro_batch\":2,\"seq_len\":512,\"precision\":\"bf16\","
             "\"recompute\":\"%s\"}",
             recompute);
    snprintf(parallel, sizeof parallel,
             "{\"strategy\":\"ddp\",\"dp\":1,\"tp\":%u,\"sequence_parallel\":%s}", tp,
             sp ? "true" : "false");
    Case c;
    double bytes = NAN;
    if (run_on(&c, software, block_model(model, sizeof model, layers), training, parallel, 1,
               100)) {
        const Role *r = &c.g.roles[0];
        RoleMemory m = memory_of_role(&c.g, r, &c.arena);
        uint32_t i = 0;
        while (c.g.segments[r->instances[i].segment].kind != SEGMENT_BACKWARD)
            i++;
        bytes = (double)(m.before[i] - m.before[0]);
    }
    release(&c);
    return bytes;
}

/*
 * Korthikanti et al. (arXiv 2205.05198), table 2, bytes of one layer.  With a software that
 * drops out and keeps its scores, as theirs, all terms are there; the one below keeps
 *
 *     sbh (34 + 5as/h) - 2 sbh - 5 a s^2 b + 4 a s b     generic: no dropout masks (a byte of
 *                                                        sbh after attention and MLP each),
 *                                                        fused attention (an f32 per row)
 *
 * The paper leaves out the statistics of both norms: mean and 1/deviation of a row in f32.
 */
static void layers_keep_what_the_paper_on_selective_recomputation_counts(void)
{
    const double s = 512, b = 2, h = 2048, a = 16, t = 4;
    const double sbh = s * b * h, scores = 5 * a * s * s * b, norms = 2 * 2 * 4 * s * b;
    const struct {
        const char *software, *recompute;
        uint32_t tp;
        bool sp;
        double paper, norms;
    } rows[] = {
        { "megatron-lm-2022", "none", 1, false, 34 * sbh + scores, norms },
        { "megatron-lm-2022", "none", 4, false, sbh * (10 + 24 / t) + scores / t, norms },
        { "megatron-lm-2022", "none", 4, true, (34 * sbh + scores) / t, norms / t },
        { "megatron-lm-2022", "selective", 4, false, sbh * (10 + 24 / t), norms },
        { "megatron-lm-2022", "selective", 4, true, 34 * sbh / t, norms / t },
        { "megatron-lm-2022", "full", 1, false, 2 * sbh, 0 },
        { "megatron-lm-2022", "full", 4, false, 2 * sbh, 0 },
        { "megatron-lm-2022", "full", 4, true, 2 * sbh / t, 0 },
        { "generic", "none", 1, false, (34 - 2) * sbh + 4 * a * s * b, norms },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        double two = kept_bytes(rows[i].software, rows[i].recompute, rows[i].tp, rows[i].sp, 2);
        double five =
            kept_bytes(rows[i].software, rows[i].recompute, rows[i].tp, rows[i].sp, 5);
        CHECK_NEAR(rows[i].paper + rows[i].norms, (five - two) / 3, 1e-12);
    }
}

/* Two all-reduces of b s h elements forward, two backward, per layer. */
static void tensor_parallel_layers_move_four_activations(void)
{
    char model[400];
    for (uint32_t layers = 2; layers <= 6; layers += 2) {
        double bytes[2];
        for (uint32_t more = 0; more < 2; more++) {
            Case c;
            bytes[more] = NAN;
            if (run(&c, block_model(model, sizeof model, layers + more),
                    "{\"global_batch\":3,\"micro_batch\":3,\"seq_len\":512,\"precision\":"
                    "\"bf16\"}",
                    "{\"strategy\":\"ddp\",\"dp\":1,\"tp\":4,\"sequence_parallel\":false}", 1,
                    100))
                bytes[more] = bytes_of(&c.r.ranks[0], OP_ALL_REDUCE);
            release(&c);
        }
        CHECK_NEAR(4.0 * 3 * 512 * 2048 * 2, bytes[1] - bytes[0], 1e-9);
    }
}

/* The time of a step that is all compute: flops over peak, with 6 flops per parameter and token. */
static void an_ideal_step_takes_its_flops(void)
{
    char model[400];
    Case c;
    if (run(&c, block_model(model, sizeof model, 8),
            "{\"global_batch\":4,\"micro_batch\":4,\"seq_len\":2048,\"precision\":\"bf16\","
            "\"optimizer\":\"sgd\"}",
            "{\"strategy\":\"single\"}", 1, 100)) {
        double tokens = 4.0 * 2048, h = 2048, s = 2048;
        double matmul = 6 * 12 * h * h * 8 * tokens + 6 * 2.0 * 16 * h * tokens * 0.5;
        double attention = 12.0 * 8 * h * s * tokens;
        CHECK_NEAR(matmul + attention, c.r.ranks[0].model_flops, 0.001);
        CHECK_NEAR(c.r.ranks[0].model_flops, c.r.ranks[0].hardware_flops, 0);
        CHECK((double)c.r.step_ns >= c.r.ranks[0].flops_bound_ns);
    }
    release(&c);
}

/* Recomputed in full, blocks compute their forward again, which counts for the hardware, not for
 * the model; but for the last product, 4 of 12 h h, whose result no gradient needs
 * (recompute_stops_early). */
static void recomputation_counts_for_the_hardware(void)
{
    char model[400];
    Case c;
    if (run(&c, block_model(model, sizeof model, 8),
            "{\"global_batch\":4,\"micro_batch\":4,\"seq_len\":2048,\"precision\":\"bf16\","
            "\"optimizer\":\"sgd\",\"recompute\":\"full\"}",
            "{\"strategy\":\"single\"}", 1, 100)) {
        double tokens = 4.0 * 2048, h = 2048, s = 2048;
        double forward = 2 * (12 - 4) * h * h * 8 * tokens + 4.0 * 8 * h * s * tokens;
        CHECK_NEAR(forward, c.r.ranks[0].hardware_flops - c.r.ranks[0].model_flops, 0.001);
    }
    release(&c);
}

/* Most micro-batches between the first forward and the last backward of a stage. */
static uint32_t most_alive(const Graph *g, const Role *r)
{
    bool alive[64] = { 0 };
    uint32_t n = 0, most = 0;
    for (uint32_t i = 0; i < r->instances_n; i++) {
        const Instance *in = &r->instances[i];
        SegmentKind kind = g->segments[in->segment].kind;
        if (kind == SEGMENT_FORWARD && !alive[in->micro_batch]) {
            alive[in->micro_batch] = true;
            n++;
        }
        most = n > most ? n : most;
        bool last = true;
        for (uint32_t k = i + 1; k < r->instances_n; k++)
            last &= r->instances[k].micro_batch != in->micro_batch ||
                    g->segments[r->instances[k].segment].kind != SEGMENT_BACKWARD;
        if (kind == SEGMENT_BACKWARD && last)
            n--;
    }
    CHECK_U64(0, n);
    return most;
}

/* 1f1b keeps p - stage micro-batches, gpipe all of them, naive one. */
static void schedules_keep_as_many_micro_batches_as_they_should(void)
{
    static const char *const schedules[] = { "naive", "gpipe", "1f1b" };
    char model[400], parallel[200];
    const uint32_t p = 4, m = 12;
    for (uint32_t k = 0; k < 3; k++) {
        Case c;
        snprintf(parallel, sizeof parallel,
                 "{\"strategy\":\"ddp\",\"dp\":1,\"pp\":4,\"schedule\":\"%s\"}", schedules[k]);
        if (run(&c, block_model(model, sizeof model, 8),
                "{\"global_batch\":12,\"micro_batch\":1,\"seq_len\":512,\"precision\":"
                "\"bf16\"}",
                parallel, 1, 100))
            for (uint32_t role = 0; role < c.g.roles_n; role++) {
                const Role *r = &c.g.roles[role];
                const uint32_t expect[] = { 1, m, p - r->stage };
                CHECK_U64(expect[k], most_alive(&c.g, r));
            }
        release(&c);
    }
}

/* One batch through p stages one after the other: each works 1/p of the time. */
static void model_parallel_stages_take_turns(void)
{
    char model[400], parallel[100];
    for (uint32_t p = 2; p <= 8; p *= 2) {
        Case c;
        snprintf(parallel, sizeof parallel, "{\"strategy\":\"model_parallel\",\"pp\":%u}", p);
        if (run(&c, wide_model(model, sizeof model, 16, 8192),
                "{\"global_batch\":1,\"seq_len\":65536,\"precision\":\"bf16\","
                "\"optimizer\":\"sgd\"}",
                parallel, 1, 1e6)) {
            double busy = 0;
            for (uint32_t i = 0; i < c.r.ranks_n; i++)
                busy += (double)c.r.ranks[i].compute_ns * c.r.ranks[i].ranks_n;
            CHECK_NEAR(1.0, busy / (double)c.r.step_ns, 0.02);
        }
        release(&c);
    }
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(the_bubble_of_1f1b_has_its_textbook_size);
    RUN(interleaving_divides_the_bubble);
    RUN(ddp_moves_two_psi);
    RUN(ddp_broadcasts_the_buffers_of_batch_norms);
    RUN(sync_batchnorm_exchanges_statistics);
    RUN(fsdp_moves_three_psi);
    RUN(zero_moves_two_psi);
    RUN(hsdp_moves_an_eighth_between_nodes);
    RUN(zero_memory_is_that_of_the_paper);
    RUN(layers_keep_what_the_paper_on_selective_recomputation_counts);
    RUN(tensor_parallel_layers_move_four_activations);
    RUN(an_ideal_step_takes_its_flops);
    RUN(recomputation_counts_for_the_hardware);
    RUN(schedules_keep_as_many_micro_batches_as_they_should);
    RUN(model_parallel_stages_take_turns);
    return check_report();
}
