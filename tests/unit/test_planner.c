/*
 * test_planner.c - the search: nothing that could win is left out, and what is
 * printed can be had again.
 */
#include "sim/planner_parts.h"
#include "sim/shorten.h"
#include "sim/texts.h"
#include "tests/built.h"

static const char small_example[] = "scenarios/examples/gpt2-ddp.json";

/* Also what the stack cannot do: more that a bound has to hold for. */
#define EVERY_SPLIT \
    { \
        "software.parallel.lacks", "[]" \
    }

static PlanOptions options_of(const char *scenario, uint32_t gpus)
{
    return (PlanOptions){ .scenario = scenario, .counts_n = 1, .counts = { gpus }, .jobs = 2 };
}

static uint64_t fullest_of(const Graph *g)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->roles_n; i++)
        bytes = max_u64(bytes, memory_of_role(g, &g->roles[i], NULL).peak_bytes);
    return bytes;
}

/* The bound leaves candidates out unseen, so it may never exceed what a graph needs. */
static void the_bound_is_below_what_graphs_need(void)
{
    static const char *const scenarios[] = { "scenarios/examples/gpt2-ddp.json",
                                             "scenarios/examples/toy-mlp-ddp.json",
                                             "scenarios/examples/llama3-8b-fsdp.json",
                                             "scenarios/examples/mixtral-ep.json" };
    /* Sums in fewer bytes than gradients: shards are such sums.  f32 parameters of the stack. */
    static const Setting formats[][4] = { { { "training.grad_dtype", "f32" },
                                            { "training.reduce_dtype", "bf16" } },
                                          { { "software", "pytorch-ddp" }, EVERY_SPLIT },
                                          { { "software", "torchtitan-2025" }, EVERY_SPLIT },
                                          { { "software", "pytorch-ddp" },
                                            EVERY_SPLIT,
                                            { "training.param_dtype", "bf16" },
                                            { "training.master_weights", "false" } } };
    static const uint32_t settings_n[] = { 2, 2, 2, 4, 0 };
    uint32_t compared = 0;
    enum { N = ARRAY_N(settings_n) };
    for (size_t i = 0; i < N * ARRAY_N(scenarios); i++) {
        Plan p = { 0 };
        Err err = { 0 };
        PlanOptions o = options_of(scenarios[i / N], 4);
        o.settings_n = settings_n[i % N];
        o.settings = o.settings_n > 0 ? formats[i % N] : NULL;
        CHECK(plan_open(&p, &o, &err) && plan_enumerate(&p, &err));
        for (uint32_t k = 0; k < p.n; k += 13 * check_one_in()) {
            Scenario s = plan_scenario(&p, &p.candidates[k]);
            Graph g = { 0 };
            Err refused = { 0 };
            if (build_graph(&g, &s, &p.sw, &refused)) {
                char label[512];
                if (!CHECK(plan_memory_bound(&p, &p.candidates[k]) <= fullest_of(&g)))
                    fprintf(stderr, "%s\n", plan_label(label, &p.candidates[k]));
                compared++;
            }
            graph_free(&g);
        }
        plan_free(&p);
    }
    CHECK(compared > check_cases(100));
}

static const PlanCandidate *of_micro_batch(const Plan *p, uint32_t micro_batch)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->candidates[i].micro_batch == micro_batch)
            return &p->candidates[i];
    ASSERT(false);
    return NULL;
}

/* A micro-batch that is the whole batch has no second gradient to add: it may fit where a smaller
 * one does not. */
static void one_micro_batch_is_weighed_by_itself(void)
{
    char limit[32];
    Setting settings[] = { { "model", "llama3.2-1b" },
                           { "software", "maxtext-2025" },
                           { "training.global_batch", "32" },
                           { "training.seq_len", "1024" },
                           { "training.recompute", "full" },
                           { "parallel.strategy", "ddp" },
                           { "parallel.dp", "8" },
                           { "cluster.gpu.memory_bytes", limit } };
    PlanOptions o = options_of("scenarios/examples/llama3-8b-fsdp.json", 8);
    o.settings = settings;
    o.settings_n = ARRAY_N(settings);
    o.all = true;
    Plan p;
    Err err = { 0 };
    snprintf(limit, sizeof limit, "80GB");
    if (!CHECK(plan_run(&p, &o, &err)))
        return;
    uint64_t two = of_micro_batch(&p, 2)->need_bytes, four = of_micro_batch(&p, 4)->need_bytes;
    plan_free(&p);
    if (!CHECK(four < two))
        return;
    snprintf(limit, sizeof limit, "%" PRIu64, four + (two - four) / 2);
    if (!CHECK(plan_run(&p, &o, &err)))
        return;
    CHECK_INT(PLAN_TOO_LARGE, of_micro_batch(&p, 2)->fate);
    CHECK_INT(PLAN_SIMULATED, of_micro_batch(&p, 4)->fate);
    plan_free(&p);
}

static bool peaks_of(uint64_t *peak, const Plan *p, Scenario *s, uint32_t micro_batches)
{
    Graph g = { 0 };
    Err refused = { 0 };
    uint32_t meant = s->training.micro_batches;
    s->training.micro_batches = micro_batches;
    bool ok = build_graph(&g, s, &p->sw, &refused);
    for (uint32_t r = 0; ok && r < g.roles_n; r++)
        peak[r] = memory_of_role(&g, &g.roles[r], NULL).peak_bytes;
    s->training.micro_batches = meant;
    graph_free(&g);
    return ok;
}

/* schedule NULL: those that plan tries by itself. */
static uint32_t weigh_few(const char *schedule, uint32_t step)
{
    Plan p = { 0 };
    Err err = { 0 };
    uint32_t compared = 0;
    PlanOptions o = options_of("scenarios/examples/gpt3-175b-pp.json", 64);
    const Setting settings[] = { { "training.global_batch", "96" },
                                 { "parallel.schedule", schedule } };
    o.settings = settings;
    o.settings_n = schedule ? 2 : 1;
    CHECK(plan_open(&p, &o, &err) && plan_enumerate(&p, &err));
    for (uint32_t k = 0; k < p.n; k += step) {
        Scenario s = plan_scenario(&p, &p.candidates[k]);
        uint32_t few = shorten_to_weigh(&s), all = s.training.micro_batches;
        uint64_t a[96] = { 0 }, b[96] = { 0 };
        if (few == all || !peaks_of(a, &p, &s, few))
            continue;
        CHECK(peaks_of(b, &p, &s, all));
        char label[512];
        if (!CHECK(memcmp(a, b, sizeof a) == 0))
            fprintf(stderr, "%s\n", plan_label(label, &p.candidates[k]));
        compared++;
    }
    plan_free(&p);
    return compared;
}

/* A few micro-batches have as many under way as all of them: to the byte, on each stage. */
static void few_micro_batches_weigh_what_all_do(void)
{
    static const char *const split[] = { "zb-h1", "zbv", "dualpipe" };
    CHECK(weigh_few(NULL, 23 * check_one_in()) > check_cases(50));
    for (size_t i = 0; i < ARRAY_N(split); i++)
        CHECK(weigh_few(split[i], 23 * check_one_in()) > check_cases(3));
}

/* Of cases that are dear one in two where one in many is enough. */
static uint32_t every_other(void)
{
    return check_one_in() > 1 ? 2 : 1;
}

/* What the fullest rank reserves, by the roles that may be it and by all of them; returns how many
 * roles were spared. */
static uint32_t weigh_both_ways(const Plan *p, PlanCandidate *c)
{
    static const PlanWeighing ways[] = { PLAN_WEIGH_ALL, PLAN_WEIGH_FULLEST };
    Scenario s = plan_scenario(p, c);
    Graph g = { 0 };
    Err refused = { 0 };
    uint64_t need[2] = { 0 }, there[2] = { 0 };
    uint32_t spared = 0;
    s.training.micro_batches = shorten_to_weigh(&s);
    if (!build_graph(&g, &s, &p->sw, &refused))
        return 0;
    RoleMemory *memory = mem_zero(g.roles_n, sizeof *memory);
    for (int w = 0; w < 2; w++) {
        for (uint32_t r = 0; r < g.roles_n; r++)
            memory[r] = memory_of_role(&g, &g.roles[r], NULL);
        plan_weigh(c, p, &g, &s.machine, memory, ways[w]);
        need[w] = c->need_bytes;
        there[w] = c->gpu_bytes;
    }
    for (uint32_t r = 0; r < g.roles_n; r++)
        spared += memory[r].pool_bytes == 0;
    char label[512];
    if (!CHECK(need[0] == need[1] && there[0] == there[1]))
        fprintf(stderr, "%s (%s): %" PRIu64 " and %" PRIu64 "\n", plan_label(label, c),
                schedule_names[c->schedule], need[0], need[1]);
    free(memory);
    graph_free(&g);
    return spared;
}

/* Stages between the first and the last are alike but for the micro-batches under way. */
static void the_fullest_of_like_stages_is_weighed(void)
{
    static const Setting cases[][3] = {
        { { "training.global_batch", "96" } },
        { { "training.global_batch", "96" }, { "parallel.schedule", "zb-h1" } },
        { { "training.global_batch", "96" }, { "parallel.schedule", "zbv" } },
        { { "training.global_batch", "96" }, { "parallel.schedule", "dualpipe" } },
        { { "training.global_batch", "96" }, { "parallel.schedule", "gpipe" } },
        { { "training.global_batch", "96" }, { "software", "torchtitan-2025" } },
        { { "training.global_batch", "96" },
          { "software", "megatron-bridge" },
          { "model", "llama4-scout" } },
        { { "training.global_batch", "96" },
          { "cluster", "{\"base\":\"dgx-a100\",\"nodes\":8,\"gpus_per_node\":6}" },
          { "parallel.tp", "2" } },
    };
    uint32_t spared = 0, step = every_other();
    for (size_t i = 0; i < check_cases(ARRAY_N(cases)); i++) {
        Plan p = { 0 };
        Err err = { 0 };
        bool odd = i + 1 == ARRAY_N(cases);
        PlanOptions o = options_of("scenarios/examples/gpt3-175b-pp.json", odd ? 48 : 64);
        o.settings = cases[i];
        for (o.settings_n = 0; o.settings_n < 3 && cases[i][o.settings_n].key;)
            o.settings_n++;
        if (!CHECK(plan_open(&p, &o, &err) && plan_enumerate(&p, &err)))
            fprintf(stderr, "%s\n", err.text);
        for (uint32_t k = 0; k < p.n; k += 631 * step)
            if (p.candidates[k].pp > 2)
                spared += weigh_both_ways(&p, &p.candidates[k]);
        plan_free(&p);
    }
    CHECK(spared > check_cases(100) / step);
}

/* A candidate is a copy of a base with other degrees: reading it anew gives the same. */
static void check_settings(const char *scenario, uint32_t step)
{
    Plan p = { 0 };
    Err err = { 0 };
    PlanOptions o = options_of(scenario, 8);
    CHECK(plan_open(&p, &o, &err) && plan_enumerate(&p, &err));
    for (uint32_t k = 0; k < p.n; k += step * check_one_in()) {
        char text[PLAN_SETTINGS_MAX][PLAN_SETTING_CAP];
        Setting settings[PLAN_SETTINGS_MAX];
        uint32_t n = plan_settings(text, &p, &p.candidates[k]);
        for (uint32_t i = 0; i < n; i++) {
            char *equals = strchr(text[i], '=');
            *equals = '\0';
            settings[i] = (Setting){ text[i], equals + 1 };
        }
        Scenario read = { 0 }, made = plan_scenario(&p, &p.candidates[k]);
        if (CHECK(scenario_read(&read, o.scenario, settings, n, &err))) {
            const Parallel *a = &read.parallel, *b = &made.parallel;
            CHECK(a->dp == b->dp && a->tp == b->tp && a->pp == b->pp && a->cp == b->cp);
            CHECK_U64(b->ep, a->ep);
            CHECK(a->strategy == b->strategy && a->schedule == b->schedule);
            CHECK_U64(b->virtual_stages, a->virtual_stages);
            CHECK(a->sequence_parallel == b->sequence_parallel && a->gpus == b->gpus);
            CHECK_U64(made.training.micro_batches, read.training.micro_batches);
            CHECK(read.training.recompute == made.training.recompute);
            CHECK_U64(made.training.recompute_layers, read.training.recompute_layers);
            CHECK_U64(made.machine.gpus_n, read.machine.gpus_n);
            scenario_free(&read);
        } else {
            fprintf(stderr, "%s\n", err.text);
        }
    }
    plan_free(&p);
}

static void settings_make_the_candidate_again(void)
{
    check_settings(small_example, 31);
    check_settings("scenarios/examples/mixtral-ep.json", 97);
}

static bool has_setting(const Plan *p, const PlanCandidate *c, const char *setting)
{
    char text[PLAN_SETTINGS_MAX][PLAN_SETTING_CAP];
    uint32_t n = plan_settings(text, p, c);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(text[i], setting) == 0)
            return true;
    return false;
}

static bool same_settings(const Plan *p, const PlanCandidate *a, const Plan *q,
                          const PlanCandidate *b)
{
    char x[PLAN_SETTINGS_MAX][PLAN_SETTING_CAP] = { { 0 } };
    char y[PLAN_SETTINGS_MAX][PLAN_SETTING_CAP] = { { 0 } };
    return plan_settings(x, p, a) == plan_settings(y, q, b) && memcmp(x, y, sizeof x) == 0;
}

/* With --set SETTING those of all are tried that have it, in their order; and no others, but of
 * interleaved and of strategies (one replica) such as are tried only where they are asked for. */
static void check_fixed(const Plan *all, const char *setting)
{
    char key[PLAN_SETTING_CAP];
    Plan p = { 0 };
    Err err = { 0 };
    PlanOptions o = *all->options;
    snprintf(key, sizeof key, "%s", setting);
    *strchr(key, '=') = '\0';
    o.settings = &(Setting){ key, setting + strlen(key) + 1 };
    o.settings_n = 1;
    CHECK(plan_open(&p, &o, &err) && plan_enumerate(&p, &err));
    bool more = strcmp(setting, "parallel.schedule=interleaved") == 0 ||
                strcmp(setting, "parallel.strategy=zero1") == 0;
    uint32_t at = 0, n = 0;
    for (uint32_t k = 0; k < all->n; k++)
        if (has_setting(all, &all->candidates[k], setting)) {
            while (more && at < p.n &&
                   !same_settings(all, &all->candidates[k], &p, &p.candidates[at]))
                at++;
            CHECK(at < p.n && same_settings(all, &all->candidates[k], &p, &p.candidates[at]));
            at++;
            n++;
        }
    CHECK(n > 0 && (more ? n <= p.n : n == p.n));
    plan_free(&p);
}

static void a_setting_leaves_those_that_have_it(void)
{
    static const char *const settings[] = {
        "parallel.dp=2",
        "parallel.tp=4",
        "parallel.pp=2",
        "parallel.cp=1",
        "parallel.ep=1",
        "parallel.strategy=zero1",
        "parallel.schedule=interleaved",
        "parallel.virtual_stages=3", /* wherever it can be */
        "parallel.stage_layers=null",
        "parallel.sequence_parallel=true",
        "training.micro_batch=2",
        "training.recompute=selective",
        "training.recompute={\"layers\":1}"
    };
    Plan all = { 0 };
    Err err = { 0 };
    PlanOptions o = options_of(small_example, 8);
    CHECK(plan_open(&all, &o, &err) && plan_enumerate(&all, &err));
    for (size_t i = 0; i < ARRAY_N(settings); i++)
        check_fixed(&all, settings[i]);
    plan_free(&all);
}

/* All candidates of the small example on eight GPUs, with so many of the settings. */
static void list_with(Plan *p, PlanOptions *o, const Setting *settings, uint32_t n)
{
    Err err = { 0 };
    *p = (Plan){ 0 };
    *o = options_of(small_example, 8);
    o->settings = settings;
    o->settings_n = n;
    CHECK(plan_open(p, o, &err) && plan_enumerate(p, &err));
}

static bool has_candidate(const Plan *p, uint32_t micro_batch, uint32_t virtual_stages)
{
    for (uint32_t k = 0; k < p->n; k++)
        if (p->candidates[k].micro_batch == micro_batch &&
            p->candidates[k].virtual_stages == virtual_stages)
            return true;
    return false;
}

/* Of 60 samples a replica: always the largest divisor that is at most twice the one before, among
 * them the scenario's own 12; and any that is asked for. */
static void micro_batches_are_those_that_divide_the_batch(void)
{
    static const uint32_t tried[] = { 1, 2, 4, 6, 12, 20, 30, 60 };
    Setting settings[] = { { "parallel.dp", "8" }, { "training.micro_batch", "5" } };
    for (uint32_t fixed = 0; fixed < 2; fixed++) {
        Plan p;
        PlanOptions o;
        list_with(&p, &o, settings, 1 + fixed);
        CHECK_U64(12, p.own_micro_batch);
        uint32_t n = 0, before = 0;
        for (uint32_t k = 0; k < p.n && p.candidates[k].strategy == STRATEGY_DDP; k++)
            if (p.candidates[k].micro_batch != before) {
                before = p.candidates[k].micro_batch;
                CHECK_U64(fixed ? 5 : tried[n], before);
                n++;
            }
        CHECK_U64(fixed ? 1 : ARRAY_N(tried), n);
        plan_free(&p);
    }
}

/* 12 blocks over 2 stages: chunks of 6, 3, 2 and 1 blocks, or one each for embedding and head, too;
 * of a stack whose chunks may differ also powers of two; any that are asked for. */
static void chunks_are_those_that_divide_the_blocks(void)
{
    static const char *const software[] = { "megatron-lm-2022", "generic" };
    for (uint32_t fixed = 0; fixed < 2; fixed++)
        for (uint32_t uneven = 0; uneven < 2; uneven++) {
            Setting settings[] = { { "parallel.pp", "2" },
                                   { "software", software[uneven] },
                                   { "parallel.virtual_stages", "5" } };
            Plan p;
            PlanOptions o;
            list_with(&p, &o, settings, 2 + fixed);
            for (uint32_t v = 1; v <= 8; v++) {
                bool even = 6 % v == 0 || v == 7, power = uneven && v == 4;
                CHECK_INT(fixed ? v == 5 : even || power, has_candidate(&p, 1, v));
            }
            plan_free(&p);
        }
}

/* Llama 3 8B on four stages: its head takes as long as two and a half of its layers. */
static void the_last_stage_has_fewer_layers_where_the_head_is_long(void)
{
    static const struct {
        const char *model, *software, *stages;
        Schedule schedule;
        uint32_t pp, last; /* last 0: none is tried */
    } cases[] = {
        { "llama3-8b", "generic", NULL, SCHEDULE_1F1B, 4, 6 },
        { "llama3-8b", "generic", NULL, SCHEDULE_ZBV, 4, 2 }, /* on the first stage */
        /* every stage has as many; so it is asked for */
        { "llama3-8b", "megatron-lm-2022", NULL, SCHEDULE_1F1B, 4, 0 },
        { "llama3-8b", "generic", "null", SCHEDULE_1F1B, 4, 0 },
        { "llama3-8b", "generic", NULL, SCHEDULE_1F1B, 1, 0 },
        { "gpt3-175b", "generic", NULL, SCHEDULE_1F1B, 8, 0 }, /* of a layer a third */
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        const Setting settings[] = { { "model", cases[i].model },
                                     { "software", cases[i].software },
                                     { "parallel.stage_layers", cases[i].stages } };
        Plan p = { 0 };
        Err err = { 0 };
        PlanOptions o = options_of("scenarios/examples/gpt3-175b-pp.json", 64);
        o.settings = settings;
        o.settings_n = cases[i].stages ? 3 : 2;
        CHECK(plan_open(&p, &o, &err));
        PlanCandidate c = { .pp = cases[i].pp,
                            .virtual_stages = schedule_is_vee(cases[i].schedule) ? 2 : 1,
                            .schedule = cases[i].schedule,
                            .dp = 1,
                            .tp = 1,
                            .cp = 1,
                            .ep = 1,
                            .micro_batch = 1 };
        CHECK_INT(cases[i].last > 0, plan_share_unevenly(&p, &c));
        if (cases[i].last > 0) {
            uint32_t sum = 0;
            for (uint32_t k = 0; k < c.pp * c.virtual_stages; k++)
                sum += c.stage_layers[k];
            CHECK_U64(32, sum);
            CHECK_U64(cases[i].last, plan_last_share(&c));
        }
        plan_free(&p);
    }
}

/* Has somebody in p the keys of c, but another strategy? */
static bool is_tried_with(const Plan *p, PlanCandidate c, Strategy strategy)
{
    bool some = false;
    c.strategy = strategy;
    for (uint32_t i = 0; i < p->n && !some; i++)
        some = plan_is_family(&p->candidates[i], &c);
    return some;
}

/* What refining finds for one strategy may be better with another: here chunks and shares of layers
 * that zero1 leads to are best with fsdp. */
static void what_refining_finds_is_tried_with_each_strategy(void)
{
    static const Strategy strategies[] = { STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_FSDP };
    const Setting settings[] = { { "model", "bert-large" },
                                 { "cluster", "pcie-workstation" },
                                 { "cluster.gpu.memory_bytes", "8GiB" },
                                 { "software", "megatron-core-2025" },
                                 { "training.global_batch", "120" },
                                 { "training.seq_len", "256" },
                                 { "parallel.pp", "2" },
                                 { "parallel.tp", "1" },
                                 { "parallel.cp", "1" } };
    PlanOptions o = options_of("scenarios/examples/llama3-8b-fsdp.json", 4);
    Plan p = { 0 };
    Err err = { 0 };
    o.settings = settings;
    o.settings_n = ARRAY_N(settings);
    if (CHECK(plan_run(&p, &o, &err)))
        for (uint32_t i = 0; i < p.order_n && i < PLAN_TOP; i++)
            for (size_t k = 0; k < ARRAY_N(strategies); k++)
                CHECK(is_tried_with(&p, p.candidates[p.order[i]], strategies[k]));
    plan_free(&p);
}

/* Is best as fast as it is with any share of the layers that a user may write down?  share: of the
 * stages up to `stage`, with what is left of them. */
static bool is_best_share(const Plan *p, const PlanCandidate *best, uint32_t *share,
                          uint32_t stage, uint32_t left)
{
    bool is = true;
    for (uint32_t n = 0; n <= left && stage + 1 < best->pp; n++) {
        share[stage] = n;
        is &= is_best_share(p, best, share, stage + 1, left - n);
    }
    if (stage + 1 < best->pp)
        return is;
    PlanCandidate other = *best;
    Err ignored = { 0 };
    share[stage] = left;
    other.stage_layers = share;
    plan_try(p, &other, PLAN_WHOLE, NULL, &ignored);
    return other.fate != PLAN_SIMULATED || best->step_s <= other.step_s;
}

/* Nodes of a slow GPU, then as many of a fast one. */
static void slow_gpus_get_as_few_layers_as_is_best(void)
{
    for (uint32_t count = 1; count <= 2; count++) {
        char cluster[400], stages[12];
        const Setting settings[] = { { "model", "gpt2" },
                                     { "cluster", cluster },
                                     { "training.global_batch", "64" },
                                     { "parallel.pp", stages },
                                     { "parallel.schedule", "1f1b" } };
        PlanOptions o = options_of(small_example, 2 * count);
        Plan p = { 0 };
        Err err = { 0 };
        snprintf(stages, sizeof stages, "%" PRIu32, 2 * count);
        snprintf(cluster, sizeof cluster,
                 "{\"name\":\"mixed\",\"node_types\":["
                 "{\"count\":%" PRIu32 ",\"gpus_per_node\":1,\"gpu\":\"a100-40gb\"},"
                 "{\"count\":%" PRIu32 ",\"gpus_per_node\":1,\"gpu\":\"h100-80gb\"}],"
                 "\"inter_node\":{\"kind\":\"fat_tree\",\"nics_per_node\":1,"
                 "\"GBps_per_nic\":25}}",
                 count, count);
        o.settings = settings;
        o.settings_n = ARRAY_N(settings);
        if (CHECK(plan_run(&p, &o, &err))) {
            const PlanCandidate *best = &p.candidates[p.order[0]];
            uint32_t layers = p.bases[0].model.u.transformer.layers, share[4];
            if (CHECK(best->stage_layers))
                CHECK(best->stage_layers[0] < layers / best->pp);
            CHECK(is_best_share(&p, best, share, 0, layers));
        }
        plan_free(&p);
    }
}

/* The text of shares: by stage where more than the end differs. */
static void check_share(const char *text, uint32_t pp, uint32_t chunks, uint32_t *layers)
{
    char got[80];
    const PlanCandidate c = { .pp = pp,
                              .virtual_stages = chunks / pp,
                              .schedule = SCHEDULE_INTERLEAVED,
                              .stage_layers = layers };
    CHECK_STR(text, plan_share_text(got, sizeof got, &c));
}

static void shares_are_told_by_stage(void)
{
    check_share("6 layers at the end", 2, 2, (uint32_t[]){ 10, 6 });
    check_share("1 layer at the end", 2, 4, (uint32_t[]){ 5, 5, 5, 1 });
    check_share("6 + 10 layers", 2, 4, (uint32_t[]){ 2, 6, 4, 4 });
    check_share("0 to 5 layers a stage", 9, 9, (uint32_t[]){ 5, 5, 5, 1, 1, 0, 0, 4, 4 });
}

/* Of two that differ in one key the labels differ, or nobody knows which of them is meant. */
static void labels_tell_how_wide_hsdp_shards(void)
{
    char label[TEXT_CAP];
    PlanCandidate c = { .strategy = STRATEGY_HSDP,
                        .dp = 8,
                        .tp = 2,
                        .pp = 1,
                        .cp = 1,
                        .ep = 1,
                        .shard_size = 4,
                        .micro_batch = 3,
                        .virtual_stages = 1,
                        .schedule = SCHEDULE_1F1B };
    CHECK_STR("hsdp dp 8 x tp 2 in groups of 4, micro-batch 3, recompute none",
              plan_label(label, &c));
    c.strategy = STRATEGY_FSDP;
    CHECK_STR("fsdp dp 8 x tp 2, micro-batch 3, recompute none", plan_label(label, &c));
}

/* Of nodes that are equal, and of others. */
static void whole_nodes_are_counted(void)
{
    static const char mixed[] =
        "{\"name\":\"mixed\",\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":300},"
        "\"inter_node\":{\"kind\":\"ethernet\",\"nics_per_node\":1,\"GBps_per_nic\":12.5},"
        "\"node_types\":[{\"count\":2,\"gpus_per_node\":4,\"gpu\":\"a100-40gb\"},"
        "{\"count\":2,\"gpus_per_node\":6,\"gpu\":\"h100-80gb\"}]}";
    static const struct {
        const char *cluster;
        uint32_t gpus, whole;
    } cases[] = { { "dgx-h100", 1, 8 }, { "dgx-h100", 8, 8 }, { "dgx-h100", 12, 16 },
                  { mixed, 3, 4 },      { mixed, 8, 8 },      { mixed, 10, 14 } };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        const Setting settings[] = { { "cluster", cases[i].cluster } };
        PlanOptions o = options_of(small_example, cases[i].gpus);
        Plan p = { 0 };
        Err err = { 0 };
        o.settings = settings;
        o.settings_n = 1;
        if (CHECK(plan_open(&p, &o, &err))) {
            const PlanCandidate c = { .dp = cases[i].gpus, .tp = 1, .pp = 1, .cp = 1 };
            CHECK_U64(cases[i].whole, plan_whole_nodes_gpus(&p, &c));
        }
        plan_free(&p);
    }
}

/* Where it is tried it is found, also in the settings that make it again. */
static void fewer_layers_at_the_end_are_found(void)
{
    const Setting settings[] = { { "parallel.pp", "4" }, { "training.global_batch", "64" } };
    Plan p;
    Err err = { 0 };
    PlanOptions o = options_of("scenarios/examples/llama3-8b-tp.json", 8);
    o.settings = settings;
    o.settings_n = ARRAY_N(settings);
    if (!CHECK(plan_run(&p, &o, &err)))
        fprintf(stderr, "%s\n", err.text);
    const PlanCandidate *best = &p.candidates[p.order[0]];
    bool why = false;
    CHECK(best->stage_layers != NULL);
    for (uint32_t i = 0; i < p.why_n; i++)
        why |= strncmp(p.why[i], "As many layers at the end as elsewhere takes", 44) == 0;
    CHECK(why);
    char text[PLAN_SETTINGS_MAX][PLAN_SETTING_CAP];
    uint32_t n = plan_settings(text, &p, best), lists = 0;
    for (uint32_t i = 0; i < n; i++)
        lists += strncmp(text[i], "parallel.stage_layers=[", 23) == 0;
    CHECK_U64(1, lists);
    plan_free(&p);
}

/* Every divisor of experts and of dp x cp x tp, under all strategies; no split of a
 * layer's matmuls without sequence parallelism. */
static void experts_are_tried_on_as_many_ranks_as_divide_them(void)
{
    Plan p = { 0 };
    Err err = { 0 };
    PlanOptions o = options_of("scenarios/examples/mixtral-ep.json", 16);
    bool seen[9] = { false }, tp = false, sharded = false, zero2 = false;
    CHECK(plan_open(&p, &o, &err) && plan_enumerate(&p, &err));
    for (uint32_t k = 0; k < p.n; k++) {
        const PlanCandidate *c = &p.candidates[k];
        CHECK(c->ep <= 8 && 8 % c->ep == 0 && c->dp * c->cp * c->tp % c->ep == 0);
        CHECK(c->tp == 1 || c->sequence_parallel);
        seen[c->ep] = true;
        tp = tp || c->tp > 1;
        sharded = sharded || (c->ep > 1 && c->strategy == STRATEGY_FSDP);
        zero2 = zero2 || (c->ep > 1 && c->strategy == STRATEGY_ZERO2);
    }
    CHECK(seen[1] && seen[2] && seen[4] && seen[8] && tp && sharded && zero2);
    plan_free(&p);
    o = options_of(small_example, 8);
    CHECK(plan_open(&p, &o, &err) && plan_enumerate(&p, &err));
    for (uint32_t k = 0; k < p.n; k++)
        CHECK_INT(1, p.candidates[k].ep);
    plan_free(&p);
}

static void every_candidate_uses_all_gpus_once(void)
{
    Plan p = { 0 };
    Err err = { 0 };
    PlanOptions o = options_of(small_example, 8);
    CHECK(plan_open(&p, &o, &err) && plan_enumerate(&p, &err));
    for (uint32_t i = 0; i < p.n; i++) {
        const PlanCandidate *c = &p.candidates[i];
        CHECK_U64(8, plan_gpus(c));
        for (uint32_t k = i + 1; k < p.n; k++) {
            const PlanCandidate *d = &p.candidates[k];
            CHECK(!plan_same_split(c, d) || !plan_same_family(c, d) ||
                  c->recompute != d->recompute);
        }
    }
    CHECK(p.n > 100);
    plan_free(&p);
}

static void results_do_not_depend_on_threads(void)
{
    char *text[2];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        Plan p;
        Err err = { 0 };
        PlanOptions o = options_of(small_example, 4);
        o.jobs = i ? 4 : 1;
        FILE *out = open_memstream(&text[i], &n[i]);
        if (CHECK(plan_run(&p, &o, &err))) {
            JsonOut j = json_out_file(out, 0);
            plan_json(&p, &j);
            plan_text(&p, true, out);
        }
        fclose(out);
        plan_free(&p);
    }
    CHECK_STR(text[0], text[1]);
    free(text[0]);
    free(text[1]);
}

/* Sorted by the objective, the ten best by what they take kernel by kernel too, and the front falls
 * as GPUs grow. */
static void the_best_is_first(void)
{
    Plan p;
    Err err = { 0 };
    PlanOptions o = { .scenario = small_example,
                      .counts_n = 3,
                      .counts = { 1, 2, 8 },
                      .objective = PLAN_COST,
                      .tokens = 1e9,
                      .jobs = 2 };
    CHECK(plan_run(&p, &o, &err));
    for (uint32_t i = 0; i + 1 < p.order_n; i++)
        CHECK(plan_score(&p, &p.candidates[p.order[i]]) <=
              plan_score(&p, &p.candidates[p.order[i + 1]]));
    for (uint32_t i = 0; i < p.order_n && i < PLAN_TOP; i++)
        CHECK(p.candidates[p.order[i]].expanded_s > 0);
    CHECK_NEAR(p.best.step_time_s, p.candidates[p.order[0]].step_s, 1e-12);
    for (uint32_t i = 0; i < p.front_n; i++)
        CHECK(!p.candidates[p.front[i]].extrapolated);
    for (uint32_t i = 0; i + 1 < p.front_n; i++) {
        const PlanCandidate *a = &p.candidates[p.front[i]], *b = &p.candidates[p.front[i + 1]];
        CHECK(plan_gpus(a) < plan_gpus(b) && a->step_s > b->step_s);
    }
    const PlanCandidate *c = &p.candidates[p.order[0]];
    const Training *t = &p.bases[c->base].training;
    PlanRun run = plan_training(&p, c);
    CHECK(run.steps * t->global_batch * t->seq_len >= 1e9);
    CHECK((run.steps - 1) * t->global_batch * t->seq_len < 1e9);
    CHECK_NEAR(run.steps * c->step_s, run.days * 86400, 1e-12);
    CHECK_NEAR(run.steps * c->step_s * plan_gpus(c) / 3600, run.gpu_hours, 1e-12);
    Machine *m = &p.bases[c->base].machine;
    CHECK(m->gpu_mtbf_hours > 0 || isnan(run.failures));
    m->gpu_mtbf_hours = 1000;
    run = plan_training(&p, c);
    CHECK_NEAR(run.gpu_hours / 1000, run.failures, 1e-12);
    CHECK_NEAR(run.gpu_hours * m->types[0].gpu->tdp_w / 1e6, run.gpu_mwh, 1e-12);
    uint64_t all = 0;
    for (int f = 0; f < PLAN_FATE_N; f++)
        all += p.fates[f];
    CHECK_U64(p.n, all);
    plan_free(&p);
}

/* Where the stack can, and does not yet. */
static void it_says_what_pairs_would_hide(void)
{
    static const char *const overlap[] = { "null", "true" };
    for (int hides = 0; hides < 2; hides++) {
        const Setting settings[] = { { "parallel.pp", "2" },
                                     { "parallel.ep", "8" },
                                     { "parallel.schedule", "interleaved" },
                                     { "parallel.virtual_stages", "4" },
                                     { "parallel.strategy", "zero1" },
                                     { "training.micro_batch", "1" },
                                     { "model.num_hidden_layers", "8" },
                                     { "parallel.overlap.ep", overlap[hides] } };
        Plan p;
        Err err = { 0 };
        PlanOptions o = options_of("scenarios/examples/mixtral-ep.json", 16);
        o.settings = settings;
        o.settings_n = ARRAY_N(settings);
        uint32_t said = 0;
        CHECK(plan_run(&p, &o, &err));
        for (uint32_t i = 0; i < p.why_n; i++)
            said += strstr(p.why[i], "(parallel.overlap.ep true) takes") != NULL;
        CHECK_U64(hides ? 0 : 1, said);
        plan_free(&p);
    }
}

static const struct {
    const char *scenario;
    uint32_t gpus;
    double worst; /* bound over time, at least */
    const char *software;
    Setting own; /* where there is one */
    bool slow;   /* slow_nodes, too */
} bound_cases[] = {
    /* The first is what sanitizers take. */
    { "scenarios/examples/toy-mlp-ddp.json", 4, 0, "generic", { 0 }, false },
    { "scenarios/examples/gpt2-ddp.json", 4, 0.25, "generic", { 0 }, false },
    { "scenarios/examples/llama3-8b-fsdp.json", 16, 0.25, "generic", { 0 }, false },
    { "scenarios/examples/gpt2-ddp.json",
      8,
      0.1,
      "torchtitan-2025",
      { "parallel.cp", "1" }, /* the others split contexts, too */
      false },
    /* Experts are reached over the network, which is faster than what is in a node. */
    { "scenarios/examples/mixtral-ep.json",
      16,
      0,
      "megatron-core-2025",
      { "parallel.order", "[\"tp\",\"cp\",\"dp\",\"ep\",\"pp\"]" },
      true },
    /* Pairs and weight gradients apart: kernels alone. */
    { "scenarios/examples/mixtral-ep.json",
      16,
      0.2,
      "megatron-core-2025",
      { "parallel.schedule", "dualpipe" },
      true },
    /* Two micro-batches of fsdp on eight stages: most of it is bubble. */
    { "scenarios/examples/mixtral-ep.json",
      16,
      0.15,
      "megatron-core-2025",
      { "parallel.overlap.ep", "true" },
      true },
};

static const Setting slow_nodes[] = {
    { "cluster",
      "{\"base\":\"dgx-h100\",\"nodes\":2,\"intra_node\":{\"kind\":\"pcie\",\"GBps\":25}}" },
    { "parallel.tp", "1" },
    { "parallel.cp", "1" },
    { "model.num_hidden_layers", "8" },
};

/* No step is shorter than its bound, and a few micro-batches weigh what all of them do. */
static void bounds_hold_for_all_that_fit(void)
{
    for (uint32_t i = 0; i < check_cases(ARRAY_N(bound_cases)); i++) {
        Plan all, few;
        Err err = { 0 };
        PlanOptions o = options_of(bound_cases[i].scenario, bound_cases[i].gpus);
        Setting settings[2 + ARRAY_N(slow_nodes)] = { { "software", bound_cases[i].software },
                                                      bound_cases[i].own };
        memcpy(settings + 2, slow_nodes, sizeof slow_nodes);
        o.settings = settings;
        o.settings_n = bound_cases[i].own.key ? 2 : 1;
        if (bound_cases[i].slow)
            o.settings_n = ARRAY_N(settings);
        CHECK(plan_run(&few, &o, &err));
        o.all = o.weighs_all = true;
        CHECK(plan_run(&all, &o, &err));
        CHECK_U64(few.n, all.n);
        CHECK(few.fates[PLAN_SIMULATED] <= all.fates[PLAN_SIMULATED]);
        for (uint32_t k = 0; k < all.n; k++) {
            const PlanCandidate *a = &all.candidates[k], *b = &few.candidates[k];
            bool replayed = a->fate == PLAN_SIMULATED || a->fate == PLAN_TOO_LARGE;
            /* Whether it, or the less recomputed one, really fits is asked only of the best. */
            bool not_asked = b->fate == PLAN_TOO_SLOW || b->fate == PLAN_NEEDLESS ||
                             (b->fate == PLAN_SIMULATED && b->known < PLAN_RESERVED);
            CHECK(a->fate == b->fate || (replayed && not_asked) || b->untried);
            CHECK(!b->untried || b->fate == PLAN_TOO_SLOW);
            if (a->fate != PLAN_SIMULATED || b->fate == PLAN_NEEDLESS)
                continue;
            /* Of the GPU with the least left; without fragmentation only where it was not asked. */
            CHECK_INT(PLAN_RESERVED, a->known);
            CHECK(b->recompute_layers <= a->recompute_layers);
            CHECK(b->bound_s > 0 && b->bound_s <= (1 + 1.0 / SIM_PACE_PART) * a->step_s);
            if (b->known < PLAN_RESERVED && b->recompute_layers < a->recompute_layers)
                continue; /* so many that it fits without fragmentation */
            CHECK(b->known == PLAN_RESERVED ? b->need_bytes == a->need_bytes
                                            : b->need_bytes <= a->need_bytes);
            /* What leapt over micro-batches is off by so much at most. */
            CHECK(b->bound_s >= bound_cases[i].worst * a->step_s);
            CHECK(b->fate == PLAN_TOO_SLOW || a->step_s == b->step_s);
        }
        for (uint32_t k = 0; k < all.order_n && k < PLAN_TOP; k++)
            CHECK_U64(all.order[k], few.order[k]);
        CHECK_U64(all.why_n, few.why_n);
        for (uint32_t k = 0; k < all.why_n; k++)
            CHECK_STR(all.why[k], few.why[k]);
        plan_free(&all);
        plan_free(&few);
    }
}

/* Of a candidate. */
typedef struct Bounds {
    double step_s, work_step_s;
    uint64_t bytes, work_bytes;
} Bounds;

static bool bounds_of(Bounds *b, const Plan *p, const PlanCandidate *c)
{
    Scenario s = plan_scenario(p, c);
    Graph g = { 0 };
    Err err = { 0 };
    double ns = 0;
    *b = (Bounds){ .work_step_s = plan_work_bound(p, c), .work_bytes = plan_work_memory(p, c) };
    bool ok = c->work != NONE_U32 && build_graph(&g, &s, &p->sw, &err);
    if (ok) {
        CHECK(sim_bound(&ns, &g, &s.machine, &p->sw, 0, &err));
        b->step_s = ns / 1e9;
        b->bytes = fullest_of(&g);
    }
    graph_free(&g);
    return ok;
}

/* model, pp and schedule NULL: as in the scenario, or all that are tried.  least: part of what a
 * graph needs that is known before, in the mean. */
typedef struct WorkCase {
    const char *scenario, *software, *model, *pp, *schedule;
    uint32_t gpus;
    double least;
} WorkCase;

static const WorkCase work_cases[] = {
    { "llama3-8b-tp", "megatron-core-2025", "llama3.2-3b", "4", NULL, 16, 0.8 },
    { "llama3-8b-tp", "torchtitan-2025", "llama3.2-3b", "4", NULL, 16, 0.6 },
    { "llama3-8b-tp", "maxtext-2025", "llama3.2-3b", "4", NULL, 16, 0.6 },
    { "llama3-8b-tp", "zero-bubble-2023", "llama3.2-3b", "4", NULL, 16, 0.78 },
    { "mixtral-ep", "lockstep", NULL, "2", "dualpipe", 16, 0.8 },
    { "mixtral-ep", "megatron-bridge", NULL, NULL, NULL, 16, 0.8 },
    { "gpt2-ddp", "pytorch-fsdp-2022", NULL, NULL, NULL, 8, 0.6 },
    { "gpt2-ddp", "nanogpt-2023", NULL, NULL, NULL, 8, 0.7 },
};

/* A step's and a GPU's bounds from works alone, beside those of graphs. */
typedef struct WorkSums {
    uint32_t compared, whole, apart;
    double known; /* sum of parts of what graphs need */
} WorkSums;

static void compare_work(WorkSums *sums, const Plan *p, const PlanCandidate *c)
{
    char label[512];
    Bounds b;
    if (!bounds_of(&b, p, c))
        return;
    uint64_t memory = plan_memory_bound(p, c), bytes = max_u64(memory, b.work_bytes);
    bool below = b.work_step_s <= b.step_s * (1 + 1e-9) && bytes <= b.bytes;
    if (!CHECK(below))
        fprintf(stderr,
                "%s: %.9g of %.9g s, %" PRIu64 " and %" PRIu64 " of %" PRIu64 " bytes\n",
                plan_label(label, c), b.work_step_s, b.step_s, memory, b.work_bytes, b.bytes);
    sums->compared++;
    sums->whole += !schedule_splits(c->schedule); /* others: its own work alone counts */
    sums->apart += !schedule_splits(c->schedule) && b.work_step_s < 0.9 * b.step_s;
    sums->known += (double)bytes / (double)b.bytes;
}

/* Where there is a pipeline, blocks of a work one by one say nearly as much as a graph of it. */
static void works_bound_as_graphs_do(void)
{
    for (uint32_t i = 0; i < check_cases(ARRAY_N(work_cases)); i++) {
        const WorkCase *w = &work_cases[i];
        char path[100];
        snprintf(path, sizeof path, "scenarios/examples/%s.json", w->scenario);
        PlanOptions o = options_of(path, w->gpus);
        Setting settings[6] = { { "training.global_batch", "64" },
                                { "software", w->software },
                                EVERY_SPLIT };
        o.settings = settings;
        o.settings_n = 3;
        if (w->model)
            settings[o.settings_n++] = (Setting){ "model", w->model };
        if (w->pp)
            settings[o.settings_n++] = (Setting){ "parallel.pp", w->pp };
        if (w->schedule)
            settings[o.settings_n++] = (Setting){ "parallel.schedule", w->schedule };
        Plan p = { 0 };
        Err err = { 0 };
        WorkSums sums = { 0 };
        CHECK(plan_open(&p, &o, &err) && plan_enumerate(&p, &err));
        plan_find_works(&p, 0);
        for (uint32_t k = 0; k < p.works_n; k++)
            plan_time_work(&p, &p.works[k]);
        uint32_t every = (p.n / 60 | 1) * check_one_in(); /* families are of four */
        for (uint32_t k = 0; k < p.n; k += every) {
            PlanCandidate c = p.candidates[k];
            if (c.recompute == RECOMPUTE_LAYERS)
                c.recompute_layers = 1 + k % plan_layers_between(&p, &c);
            compare_work(&sums, &p, &c);
        }
        CHECK(sums.compared > check_cases(30));
        CHECK(!w->pp || sums.apart <= sums.whole / 10);
        if (!CHECK(sums.known >= w->least * sums.compared))
            fprintf(stderr, "%s, %s: %.3f\n", w->scenario, w->software,
                    sums.known / sums.compared);
        plan_free(&p);
    }
}

/* As `sim` says of the scenario: what the fullest of all ranks needs, and that it fits. */
static void compare_need(const Plan *p, const PlanCandidate *c)
{
    Scenario s = plan_scenario(p, c);
    Graph g = { 0 };
    Arena arena = { 0 };
    Err err = { 0 };
    char label[512];
    double fullest = 0;
    bool fits = true;
    if (CHECK(build_graph(&g, &s, &p->sw, &err))) {
        RoleMemory *memory = memory_of_roles(&g, &s.machine, &p->sw, false, &arena);
        for (uint32_t r = 0; r < g.world_n; r++) {
            uint32_t role = (uint32_t)(graph_role_of(&g, r) - g.roles);
            MemoryExtra x = memory_extra(&g, &g.roles[role], &memory[role], &s.machine, r);
            uint64_t need = memory_reserved_bytes(&memory[role], &x);
            uint64_t there = machine_place(&s.machine, r).type->gpu->memory_bytes;
            fits = fits && need <= there;
            fullest = fmax(fullest, (double)need / (double)there);
        }
        if (!CHECK(fits) ||
            !CHECK_NEAR(fullest, (double)c->need_bytes / (double)c->gpu_bytes, 1e-12))
            fprintf(stderr, "%s\n", plan_label(label, c));
    }
    arena_free(&arena);
    graph_free(&g);
}

/* A plan of llama3-8b-fsdp on eight GPUs whose ten best fit; false: there is none. */
static bool plan_that_fits(Plan *p, PlanOptions *o, const Setting *settings, uint32_t n)
{
    Err err = { 0 };
    *o = options_of("scenarios/examples/llama3-8b-fsdp.json", 8);
    o->settings = settings;
    o->settings_n = n;
    if (!CHECK(plan_run(p, o, &err))) {
        fprintf(stderr, "%s\n", err.text);
        return false;
    }
    CHECK(p->order_n >= PLAN_TOP);
    for (uint32_t i = 0; i < p->order_n && i < PLAN_TOP; i++)
        compare_need(p, &p->candidates[p->order[i]]);
    return true;
}

/* Two nodes of GPUs that have different room: who has less decides. */
static void the_best_fit_on_all_types_of_gpus(void)
{
    static const char cluster[] =
        "{\"name\":\"mixed\",\"node_types\":["
        "{\"count\":1,\"gpus_per_node\":4,\"gpu\":\"h100-80gb\","
        "\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":450}},"
        "{\"count\":1,\"gpus_per_node\":4,\"gpu\":\"a100-40gb\","
        "\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":300}}],"
        "\"inter_node\":{\"kind\":\"fat_tree\",\"nics_per_node\":4,\"GBps_per_nic\":50}}";
    Setting settings[] = { { "model", "llama3.2-1b" },           { "cluster", cluster },
                           { "software", "megatron-core-2025" }, { "training.seq_len", "2048" },
                           { "training.global_batch", "256" },   { "parallel.cp", "1" } };
    PlanOptions o;
    Plan p;
    plan_that_fits(&p, &o, settings, ARRAY_N(settings));
    plan_free(&p);
}

/* Six ranks of tp on nodes of eight GPUs: some of these groups span nodes, with more buffers, and
 * not that of the first rank. */
static void the_best_fit_where_groups_span_nodes(void)
{
    Setting settings[] = { { "cluster.intra_node.kind", "pcie" },
                           { "cluster.intra_node.GBps", "25" },
                           { "training.global_batch", "48" },
                           { "parallel.tp", "6" } };
    PlanOptions o = options_of(small_example, 12);
    Plan p = { 0 };
    Err err = { 0 };
    o.settings = settings;
    o.settings_n = ARRAY_N(settings);
    o.weighs_all = true;
    CHECK(plan_run(&p, &o, &err));
    CHECK(p.order_n >= 2);
    for (uint32_t i = 0; i < p.order_n && i < PLAN_TOP; i++)
        compare_need(&p, &p.candidates[p.order[i]]);
    plan_free(&p);
}

/* Without fragmentation it would do without recomputation: 55.2 GiB. */
static void the_best_fit_with_fragmentation(void)
{
    Setting settings[] = { { "cluster.gpu.memory_bytes", "55.6GiB" },
                           { "parallel.strategy", "fsdp" },
                           { "parallel.cp", "1" } };
    PlanOptions o;
    Plan p;
    bool ok = plan_that_fits(&p, &o, settings, ARRAY_N(settings));
    for (uint32_t i = 0; ok && i < p.n; i++) {
        const PlanCandidate *c = &p.candidates[i];
        if (c->tp > 1 || c->pp > 1 || c->micro_batch > 1)
            continue;
        CHECK_INT(c->recompute == RECOMPUTE_NONE   ? PLAN_TOO_LARGE
                  : c->recompute == RECOMPUTE_FULL ? PLAN_NEEDLESS
                                                   : PLAN_SIMULATED,
                  c->fate);
    }
    plan_free(&p);
}

/* Some of them fit only with more layers recomputed than it seemed, in more time: others are as
 * good then. */
static void the_ten_best_fit_with_all_simulated(void)
{
    static const char *const memory[] = { "24GiB", "32GiB" };
    for (size_t i = 0; i < check_cases(ARRAY_N(memory)); i++) {
        Setting settings[] = { { "cluster.gpu.memory_bytes", memory[i] },
                               { "parallel.pp", "1" },
                               { "parallel.cp", "1" } };
        PlanOptions few = options_of("scenarios/examples/llama3-8b-fsdp.json", 8), all;
        Plan p, q;
        Err err = { 0 };
        few.settings = settings;
        few.settings_n = ARRAY_N(settings);
        all = few;
        all.all = true;
        CHECK(plan_run(&p, &few, &err) && plan_run(&q, &all, &err));
        CHECK(p.order_n >= PLAN_TOP && q.order_n >= PLAN_TOP);
        for (uint32_t k = 0; k < p.order_n && k < q.order_n && k < PLAN_TOP; k++) {
            const PlanCandidate *a = &p.candidates[p.order[k]], *b = &q.candidates[q.order[k]];
            CHECK_INT(PLAN_RESERVED, b->known);
            CHECK(a->need_bytes == b->need_bytes && a->step_s == b->step_s);
        }
        plan_free(&p);
        plan_free(&q);
    }
}

/* With one split alone those between stand behind larger ones, which do not fit. */
static void micro_batches_between_are_tried_whoever_stands_before(void)
{
    Setting settings[] = { { "cluster.gpu.memory_bytes", "30GiB" } };
    PlanOptions o = options_of(small_example, 1);
    Plan p;
    Err err = { 0 };
    o.settings = settings;
    o.settings_n = 1;
    if (CHECK(plan_run(&p, &o, &err))) {
        CHECK_U64(40, p.candidates[p.order[0]].micro_batch);
        CHECK_INT(RECOMPUTE_NONE, p.candidates[p.order[0]].recompute);
    }
    plan_free(&p);
}

/* ddp without recomputation misses by fragmentation: then one that recomputes a layer is asked. */
static void why_asks_who_recomputes_more(void)
{
    Setting settings[] = { { "cluster.gpu.memory_bytes", "156.55GiB" },
                           { "training.global_batch", "8" },
                           { "parallel.tp", "1" },
                           { "parallel.cp", "1" } };
    PlanOptions o;
    Plan p;
    if (plan_that_fits(&p, &o, settings, ARRAY_N(settings)))
        CHECK(strncmp(p.why[0], "A whole replica fits on each GPU: 155", 37) == 0);
    plan_free(&p);
}

/* Who leaves a tenth of a GPU is the best of one that is so much smaller: it recomputes more than
 * it would have to otherwise. */
static void why_asks_who_leaves_room(void)
{
    static const char *const memory[][2] = { { "20GiB", "18GiB" }, { "24GiB", "21.6GiB" } };
    for (size_t i = 0; i < check_cases(ARRAY_N(memory)); i++) {
        char told[TEXT_CAP] = "none", time[TEXT_CAP], text[2 * TEXT_CAP];
        for (int smaller = 1; smaller >= 0; smaller--) {
            Setting settings[] = { { "cluster.gpu.memory_bytes", memory[i][smaller] },
                                   { "parallel.cp", "1" },
                                   { "parallel.pp", "1" } };
            PlanOptions o = options_of("scenarios/examples/llama3-8b-fsdp.json", 8);
            Plan p;
            Err err = { 0 };
            bool said = false;
            o.settings = settings;
            o.settings_n = check_one_in() > 1 ? 3 : 2; /* sanitizers: without pipelines */
            CHECK(plan_run(&p, &o, &err));
            if (smaller)
                snprintf(told, sizeof told, "%s", text_seconds(time, p.best.step_time_s));
            snprintf(text, sizeof text, "the best that leaves a tenth takes %s (", told);
            for (uint32_t k = 0; k < p.why_n; k++)
                said = said || strstr(p.why[k], text);
            CHECK(smaller || said);
            plan_free(&p);
        }
    }
}

static uint64_t need_with_layers(const Plan *p, const PlanCandidate *like, uint32_t layers)
{
    PlanCandidate c = *like;
    Err err = { 0 };
    c.recompute_layers = layers;
    c.known = PLAN_BOUND;
    plan_try(p, &c, PLAN_WEIGHED, NULL, &err);
    CHECK(!err.set);
    return c.need_bytes;
}

/* With one less it does not, and where none fit all but the last would not do. */
static void as_few_layers_are_recomputed_as_fit(void)
{
    static const char *const memory[] = { "24GiB", "36GiB", "56GiB" };
    uint32_t more = 0, none = 0;
    for (size_t i = 0; i < check_cases(ARRAY_N(memory)); i++) {
        Setting settings[] = { { "cluster.gpu.memory_bytes", memory[i] },
                               { "parallel.cp", "1" },
                               { "training.micro_batch", i == 0 ? "1" : "2" },
                               { "parallel.tp", "2" } };
        PlanOptions o = options_of("scenarios/examples/llama3-8b-fsdp.json", 8);
        Plan p;
        Err err = { 0 };
        o.settings = settings;
        /* Of all ways to split one, but in the last case. */
        o.settings_n = ARRAY_N(settings);
        if (i + 1 == ARRAY_N(memory))
            o.settings_n--;
        o.all = o.weighs_all = true;
        CHECK(plan_run(&p, &o, &err));
        for (uint32_t k = 0; k < p.n; k++) {
            const PlanCandidate *c = &p.candidates[k];
            uint32_t most = plan_layers_between(&p, c);
            if (c->recompute != RECOMPUTE_LAYERS || c->known == PLAN_BOUND)
                continue;
            if (c->fate == PLAN_SIMULATED) {
                CHECK(c->recompute_layers >= 1 && c->recompute_layers <= most);
                CHECK_U64(c->need_bytes, need_with_layers(&p, c, c->recompute_layers));
                CHECK(need_with_layers(&p, c, c->recompute_layers - 1) > c->gpu_bytes);
                more += c->recompute_layers > 1;
            } else if (c->fate == PLAN_TOO_LARGE) {
                CHECK(need_with_layers(&p, c, most) > c->gpu_bytes);
                none++;
            }
        }
        plan_free(&p);
    }
    CHECK(more > check_cases(10) && none > 0);
}

/* So many of each stage, whether or not fewer would fit. */
static void layers_are_as_many_as_are_asked_for(void)
{
    Setting settings[] = { { "training.recompute", " {\"layers\": 3}" } };
    PlanOptions o = options_of(small_example, 8);
    Plan p;
    Err err = { 0 };
    o.settings = settings;
    o.settings_n = 1;
    CHECK(plan_run(&p, &o, &err));
    for (uint32_t k = 0; k < p.n; k++) {
        CHECK_INT(RECOMPUTE_LAYERS, p.candidates[k].recompute);
        CHECK_U64(3, p.candidates[k].recompute_layers);
    }
    CHECK(p.order_n >= PLAN_TOP);
    plan_free(&p);
}

static const char *why_room(const Plan *p)
{
    for (uint32_t i = 0; i < p->why_n; i++)
        if (strstr(p->why[i], "a GPU's memory are left"))
            return p->why[i];
    return "";
}

/* Two micro-batches of four samples on two stages are a round alone: gradients of a chunk are not
 * kept for another.  Four of two do not fit. */
static void a_larger_micro_batch_may_need_less(void)
{
    Setting settings[] = { { "software", "pytorch-2026" },
                           { "training.global_batch", "64" },
                           { "training.recompute", "full" },
                           { "parallel.strategy", "fsdp" },
                           { "parallel.dp", "8" },
                           { "parallel.tp", "4" },
                           { "parallel.pp", "2" },
                           { "parallel.schedule", "interleaved" },
                           { "parallel.virtual_stages", "2" },
                           { "parallel.sequence_parallel", "false" } };
    PlanOptions o = options_of("scenarios/examples/gpt3-175b-pp.json", 64);
    Plan p;
    Err err = { 0 };
    uint32_t seen = 0;
    o.all = true;
    o.settings = settings;
    o.settings_n = ARRAY_N(settings);
    CHECK(plan_run(&p, &o, &err));
    for (uint32_t i = 0; i < p.n; i++) {
        const PlanCandidate *c = &p.candidates[i];
        seen += c->micro_batch == 2 || c->micro_batch == 4;
        if (c->micro_batch == 2)
            CHECK_INT(PLAN_TOO_LARGE, c->fate);
        if (c->micro_batch == 4)
            CHECK_INT(PLAN_SIMULATED, c->fate);
    }
    CHECK(seen >= 2);
    plan_free(&p);
}

/* Besides 1f1b and interleaved those that the stack has; of the others it is said that they were
 * not tried, unless --set names one. */
static void schedules_of_the_stack_are_tried(void)
{
    static const struct {
        const char *software;
        Setting own;                   /* if there is one */
        const char *tried, *not_tried; /* of those with weight gradients apart */
        const char *why;               /* somewhere among the reasons, or NULL */
    } cases[] = {
        { "generic", { 0 }, "", "zb-h1, zb-1p, zb-2p, zbv, dualpipe", NULL },
        { "zero-bubble-2023",
          { 0 },
          "zb-h1 zb-1p zb-2p zbv",
          "dualpipe",
          "The best with weight gradients apart takes" },
        { "zero-bubble-2023",
          { "parallel.virtual_stages", "2" },
          "zbv",
          "dualpipe",
          "The best of 1f1b and interleaved takes" },
        { "torchtitan-2025",
          { 0 },
          "zbv",
          "zb-h1, zb-1p, zb-2p, dualpipe",
          "The best with weight gradients apart takes" },
        { "torchtitan-2025", { "parallel.schedule", "zb-h1" }, "zb-h1", NULL, NULL },
        { "zero-bubble-2023", { "parallel.schedule", "1f1b" }, "", NULL, NULL },
        { "lockstep", { 0 }, "zb-h1 zb-1p zb-2p zbv dualpipe", NULL, NULL },
    };
    const size_t step = check_one_in() > 1 ? ARRAY_N(cases) - 1 : 1; /* sanitizers: two */
    for (size_t i = 0; i < ARRAY_N(cases); i += step) {
        Setting settings[] = { { "software", cases[i].software },
                               { "parallel.pp", "4" },
                               { "parallel.tp", "2" },
                               { "training.micro_batch", "1" },
                               EVERY_SPLIT,
                               cases[i].own };
        PlanOptions o = options_of("scenarios/examples/llama3-8b-tp.json", 16);
        Plan p;
        Err err = { 0 };
        uint32_t tried[SCHEDULE_N] = { 0 }, said = 0, missing = 0;
        o.settings = settings;
        o.settings_n = cases[i].own.key ? ARRAY_N(settings) : ARRAY_N(settings) - 1;
        CHECK(plan_run(&p, &o, &err));
        for (uint32_t k = 0; k < p.n; k++)
            tried[p.candidates[k].schedule]++;
        for (int k = SCHEDULE_ZB_H1; k < SCHEDULE_N; k++)
            CHECK_INT(strstr(cases[i].tried, schedule_names[k]) != NULL, tried[k] > 0);
        for (uint32_t k = 0; k < p.why_n; k++) {
            said += cases[i].why && strstr(p.why[k], cases[i].why);
            missing += strstr(p.why[k], "Not tried, as") != NULL;
            if (cases[i].not_tried && strstr(p.why[k], "Not tried, as"))
                CHECK(strstr(p.why[k], cases[i].not_tried) != NULL);
        }
        CHECK_U64(cases[i].why ? 1 : 0, said);
        CHECK_U64(cases[i].not_tried ? 1 : 0, missing);
        plan_free(&p);
    }
}

/* A stack and what fixes something; what is tried then that the stack cannot do. */
static void check_lacks(const char *software, Setting fixed, const char *left_out, bool tries)
{
    Setting settings[] = { { "software", software }, fixed };
    PlanOptions o = options_of("scenarios/examples/llama3-8b-tp.json", 16);
    Plan p = { 0 };
    Err err = { 0 };
    char text[TEXT_CAP];
    uint32_t lacking = 0;
    o.settings = settings;
    o.settings_n = fixed.key ? 2 : 1;
    CHECK(plan_open(&p, &o, &err) && plan_enumerate(&p, &err));
    for (uint32_t k = 0; k < p.n; k++) {
        const PlanCandidate *c = &p.candidates[k];
        const Software *sw = &p.sw;
        lacking +=
            (c->pp > 1 && sw->lacks_dim[DIM_PP]) || (c->cp > 1 && sw->lacks_dim[DIM_CP]) ||
            (c->sequence_parallel && sw->lacks_sequence_parallel) ||
            (c->schedule == SCHEDULE_INTERLEAVED && sw->lacks_interleaved) ||
            (c->pp > 1 && strategy_shards_grads(c->strategy) && sw->lacks_fsdp_with_pp) ||
            sw->lacks_strategy[c->strategy];
    }
    CHECK(p.n > 0);
    CHECK_INT(tries, lacking > 0);
    CHECK_STR(left_out, plan_lacks_text(&p, text, sizeof text));
    plan_free(&p);
}

/* Unasked plan takes nothing that the stack cannot do.  The scenario has tp and sequence_parallel,
 * which asks for these. */
static void what_the_stack_lacks_is_left_out_unless_asked_for(void)
{
    static const struct {
        const char *software;
        Setting fixed;
        const char *left_out;
        bool tries;
    } cases[] = {
        { "generic", { 0 }, "", false },
        { "nanogpt-2023", { 0 }, "pp, cp, zero1, zero2, fsdp, hsdp", false },
        { "nanogpt-2023", { "parallel.pp", "2" }, "cp, zero1, zero2, fsdp, hsdp", true },
        { "nanogpt-2023", { "parallel.strategy", "fsdp" }, "pp, cp, zero1, zero2, hsdp", true },
        { "megatron-lm-2021", { 0 }, "cp, zero1, zero2, fsdp, hsdp", true }, /* its sp */
        { "megatron-lm-2022", { 0 }, "cp, zero2, fsdp, hsdp", false },
        { "megatron-deepspeed-2022", { 0 }, "interleaved, cp, hsdp, fsdp with pp", true },
        { "megatron-deepspeed-2022",
          { "parallel.sequence_parallel", "false" },
          "interleaved, cp, hsdp, fsdp with pp",
          false },
        { "megatron-deepspeed-2022",
          { "parallel.strategy", "fsdp" },
          "interleaved, cp, hsdp, fsdp with pp",
          true },
        { "nanotron-2025", { 0 }, "interleaved, zero2, fsdp, hsdp", false },
        { "nanotron-2025", { "parallel.schedule", "interleaved" }, "zero2, fsdp, hsdp", true },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        char text[TEXT_CAP];
        snprintf(text, sizeof text, "left out, as %s does not have them: %s", cases[i].software,
                 cases[i].left_out);
        check_lacks(cases[i].software, cases[i].fixed, *cases[i].left_out ? text : "",
                    cases[i].tries);
    }
}

/* "..., 4.0 % more" */
static double percent_more(const char *text)
{
    const char *at = strrchr(text, ',');
    return at ? strtod(at + 1, NULL) : INFINITY;
}

/* Of the candidates that leave a tenth of their GPU the fastest is named, or one that is faster and
 * recomputes more than it has to; where the best itself leaves a twentieth nothing is said. */
static void why_says_what_room_to_spare_costs(void)
{
    static const char *const bytes[] = { "56.0GiB", "58.5GiB" };
    for (size_t i = 0; i < ARRAY_N(bytes); i++) {
        Setting settings[] = { { "cluster.gpu.memory_bytes", bytes[i] },
                               { "parallel.strategy", "fsdp" },
                               { "parallel.cp", "1" } };
        PlanOptions o;
        Plan p;
        plan_that_fits(&p, &o, settings, ARRAY_N(settings));
        const PlanCandidate *best = &p.candidates[p.order[0]], *roomy = best;
        CHECK_INT(i == 1, (double)best->need_bytes > 0.95 * (double)best->gpu_bytes);
        CHECK_INT(i == 1, *why_room(&p) != '\0');
        for (uint32_t k = p.order_n; k-- > 0;) {
            const PlanCandidate *c = &p.candidates[p.order[k]];
            if (c->known == PLAN_RESERVED &&
                (double)c->need_bytes <= 0.9 * (double)c->gpu_bytes)
                roomy = c;
        }
        char label[TEXT_CAP];
        if (i == 1 && CHECK(roomy != best))
            CHECK(strstr(why_room(&p), plan_label(label, roomy)) != NULL ||
                  percent_more(why_room(&p)) < 100 * (roomy->step_s / best->step_s - 1));
        plan_free(&p);
    }
}

static void why_says_that_nothing_leaves_room(void)
{
    Setting settings[] = { { "cluster.gpu.memory_bytes", "58.5GiB" },
                           { "parallel.strategy", "fsdp" },
                           { "parallel.dp", "8" },
                           { "training.micro_batch", "1" },
                           { "training.recompute", "none" } };
    PlanOptions o = options_of("scenarios/examples/llama3-8b-fsdp.json", 8);
    Plan p;
    Err err = { 0 };
    o.settings = settings;
    o.settings_n = ARRAY_N(settings);
    CHECK(plan_run(&p, &o, &err));
    CHECK(strstr(why_room(&p), "none leaves a tenth of it") != NULL);
    plan_free(&p);
}

/* One stage, one micro-batch, no neighbours: the step is the bound but for its launches. */
static void a_lone_gpu_is_as_fast_as_its_bound(void)
{
    static const Setting alone[] = { { "parallel.dp", "1" },
                                     { "cluster.nodes", "1" },
                                     { "cluster.gpus_per_node", "1" } };
    Built b;
    SimResult r = { 0 };
    Err err = { 0 };
    double ns = 0;
    if (built_read(&b, "scenarios/examples/gpt2-ddp.json", alone, ARRAY_N(alone)) &&
        built_run(&r, &b, (SimOptions){ 0 }) &&
        CHECK(sim_bound(&ns, &b.g, &b.s.machine, &b.sw, 0, &err))) {
        CHECK(ns <= (double)r.step_ns);
        CHECK_NEAR((double)r.ranks[0].compute_ns, ns, 1e-9);
    }
    sim_result_free(&r);
    built_free(&b);
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(the_bound_is_below_what_graphs_need);
    RUN(one_micro_batch_is_weighed_by_itself);
    RUN(few_micro_batches_weigh_what_all_do);
    RUN(the_fullest_of_like_stages_is_weighed);
    RUN(settings_make_the_candidate_again);
    RUN(a_setting_leaves_those_that_have_it);
    RUN(micro_batches_are_those_that_divide_the_batch);
    RUN(chunks_are_those_that_divide_the_blocks);
    RUN(the_last_stage_has_fewer_layers_where_the_head_is_long);
    RUN(what_refining_finds_is_tried_with_each_strategy);
    RUN(slow_gpus_get_as_few_layers_as_is_best);
    RUN(shares_are_told_by_stage);
    RUN(labels_tell_how_wide_hsdp_shards);
    RUN(whole_nodes_are_counted);
    RUN(fewer_layers_at_the_end_are_found);
    RUN(experts_are_tried_on_as_many_ranks_as_divide_them);
    RUN(every_candidate_uses_all_gpus_once);
    RUN(results_do_not_depend_on_threads);
    RUN(the_best_is_first);
    RUN(it_says_what_pairs_would_hide);
    RUN(bounds_hold_for_all_that_fit);
    RUN(works_bound_as_graphs_do);
    RUN(the_best_fit_where_groups_span_nodes);
    RUN(the_best_fit_with_fragmentation);
    RUN(the_ten_best_fit_with_all_simulated);
    RUN(micro_batches_between_are_tried_whoever_stands_before);
    RUN(why_asks_who_recomputes_more);
    RUN(why_asks_who_leaves_room);
    RUN(as_few_layers_are_recomputed_as_fit);
    RUN(layers_are_as_many_as_are_asked_for);
    RUN(a_larger_micro_batch_may_need_less);
    RUN(schedules_of_the_stack_are_tried);
    RUN(what_the_stack_lacks_is_left_out_unless_asked_for);
    RUN(why_says_what_room_to_spare_costs);
    RUN(why_says_that_nothing_leaves_room);
    RUN(the_best_fit_on_all_types_of_gpus);
    RUN(a_lone_gpu_is_as_fast_as_its_bound);
    return check_report();
}
