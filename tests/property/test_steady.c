/*
 * Micro-batches that are left out are counted as if they had been run.
 *
 * Drawn pipelines and accumulations of many micro-batches, with every strategy, schedule and
 * kind of machine: a graph of a few of them with SimOptions.left_out against the whole graph.
 * The step and what ranks spend it on must be the same to 0.5 % (to 1 ns where only a node
 * talks), counts exactly; where its pace was estimated, the step to 1 %, and to 0.5 % but for one
 * in fifty, what ranks spend it on to 4 % of the step.  Whether all were counted is counted:
 * most draws must be.  And what bounds a step from below does, see sim_bound.
 */
#include "sim/memory.h"
#include "sim/shorten.h"
#include "tests/random_scenario.h"

enum { DRAWS = 60, DRAWS_DRIFTING = 100 };

typedef struct SteadyKind {
    bool ideal, stragglers, odd, quiet, drifting;
    bool split; /* pipelines that do weight gradients apart */
    bool
        experts; /* shared out over dp, interleaved or without a pipeline, in PAIRS (schedule.h) */
} SteadyKind;

/* far_n: steps more than half a percent off; outliers_n: estimated ones farther off than usual. */
static uint32_t pipelines_n, steady_n, extrapolated_n, far_n, outliers_n, tried_n;
static bool in_pairs; /* what is drawn now, see SteadyKind.experts */

/* How many times as far off as usual an estimate may be: of many that are drawn a few are. */
enum { OUTLIER_MOST = 3, OUTLIER_MOST_IN_PAIRS = 4 };
static double estimates_most = 1;

/* ---- drawing ---- */

typedef struct Order {
    const char *schedule;
    uint32_t virtual_stages;
} Order;

static Order draw_turns(Draw *d, bool interleaved, bool split)
{
    static const Order orders[] = { { "zb-h1", 1 }, { "zbv", 2 }, { "dualpipe", 2 } };
    if (split)
        return orders[draw_below(d, ARRAY_N(orders))];
    return interleaved ? (Order){ "interleaved", 2 } : (Order){ "1f1b", 1 };
}

static void draw_parallel(Draw *d, const uint32_t *degree, Order order, SteadyKind kind)
{
    bool gathers = kind.drifting && !kind.split && draw_below(d, 4) > 0;
    uint32_t tp = degree[0], pp = degree[1], dp = degree[2], cp = degree[3];
    bool sequence = tp > 1 && draw_below(d, 2);
    const char *strategy = gathers      ? "fsdp"
                           : kind.split ? (draw_below(d, 2) ? "ddp" : "zero1")
                                        : draw_strategy(d, pp);
    draw_text(d,
              "\"parallel\":{\"strategy\":\"%s\",\"dp\":%u,\"tp\":%u,\"pp\":%u,\"cp\":%u,"
              "\"sequence_parallel\":%s,\"schedule\":\"%s\",\"virtual_stages\":%u",
              strategy, dp, tp, pp, cp, sequence ? "true" : "false", order.schedule,
              order.virtual_stages);
    bool vee = kind.split && order.virtual_stages > 1; /* needs transfers beside compute */
    if (draw_below(d, 3) == 0 && !vee)
        draw_text(d, ",\"overlap\":%s", draw_below(d, 2) ? "true" : "false");
    else /* what generic does but with interleaving: ranks drift more than in line */
        draw_text(d, ",\"overlap\":{\"pp\":true}");
    draw_sharding(d, dp);
    draw_text(d, "}}");
}

static void draw_parallel_experts(Draw *d, const uint32_t *degree, Order order, SteadyKind kind)
{
    bool vee = kind.split && order.virtual_stages > 1; /* needs transfers beside compute */
    bool beside = draw_below(d, 2) || vee;
    draw_text(d,
              "\"parallel\":{\"strategy\":\"%s\",\"dp\":%u,\"tp\":%u,\"pp\":%u,\"cp\":%u,"
              "\"ep\":%u,\"sequence_parallel\":%s,\"schedule\":\"%s\",\"virtual_stages\":%u,"
              "\"overlap\":{\"ep\":true,\"pp\":%s},\"dispatcher\":\"%s\"}}",
              draw_below(d, 2) ? "ddp" : "zero1", degree[2], degree[0], degree[1], degree[3],
              degree[2], degree[0] > 1 ? "true" : "false", order.schedule, order.virtual_stages,
              beside ? "true" : "false", draw_below(d, 2) ? "deepep" : "alltoall");
}

/* quiet: one node, nothing but tensor parallelism; drifting: pipelines, whose ranks mostly gather
 * parameters for each of few micro-batches. */
static void draw_steady(Draw *d, uint64_t seed, SteadyKind kind)
{
    *d = (Draw){ .state = mix_u64(seed) };
    uint32_t tp = draw_power(d, 3), pp = kind.quiet ? 1 : draw_power(d, 4);
    uint32_t dp = kind.quiet ? 1 : 1 + draw_below(d, 3);
    if (kind.drifting || kind.split)
        pp = pp < 2 ? 2 : pp;
    if (kind.drifting)
        dp = dp < 2 ? 2 : dp;
    if (kind.experts)
        dp = 2 * (1 + dp % 2);
    uint32_t cp = kind.quiet || kind.experts || draw_below(d, 4) ? 1 : 2;
    if (tp * pp * dp * cp > 32)
        tp = cp = 1;
    bool interleaved = pp > 1 && !kind.split && (draw_below(d, 3) == 0 || kind.experts);
    uint32_t micro = interleaved     ? pp * (kind.drifting ? 8 : 16 + draw_below(d, 16))
                     : kind.drifting ? 24 + draw_below(d, 40)
                                     : 48 + draw_below(d, 80);
    d->gpus = tp * pp * dp * cp;
    draw_text(d, "{\"name\":\"steady %" PRIu64 "\",", seed);
    draw_model_on(d, pp * 2 + (interleaved ? 0 : draw_below(d, 3)), kind.experts ? dp : 0);
    Order order = draw_turns(d, interleaved, kind.split);
    if (kind.quiet)
        draw_text(d,
                  "\"cluster\":{\"name\":\"drawn\",\"gpus_per_node\":%u,\"gpu\":\"%s\","
                  "\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":%u}},",
                  tp, kind.ideal ? "ideal" : "h100-80gb", 20 + draw_below(d, 400));
    else
        draw_cluster(
            d, d->gpus,
            (DrawKind){ .ideal = kind.ideal, .stragglers = kind.stragglers, .odd = kind.odd });
    const char *recompute = draw_below(d, 2) ? "none" : "selective";
    uint32_t tokens = 192u << draw_below(d, 4);
    draw_text(d,
              "\"training\":{\"global_batch\":%u,\"micro_batch\":1,\"seq_len\":%u,"
              "\"precision\":\"bf16\",\"recompute\":\"%s\"},",
              dp * micro, tokens, recompute);
    const uint32_t degree[] = { tp, pp, dp, cp };
    if (kind.experts)
        draw_parallel_experts(d, degree, order, kind);
    else
        draw_parallel(d, degree, order, kind);
}

/* ---- comparing ---- */

static bool near(double a, double b)
{
    return CHECK(a - b <= 1e-9 * b && b - a <= 1e-9 * b);
}

static const CollectiveStat *stat_like(const RankStat *s, const CollectiveStat *like)
{
    for (uint32_t i = 0; i < s->collectives_n; i++)
        if (s->collectives[i].kind == like->kind && s->collectives[i].group == like->group)
            return &s->collectives[i];
    return NULL;
}

/* What is counted is equal, whatever the times are. */
static bool same_counts(const RankStat *x, const RankStat *y)
{
    bool same = CHECK_U64(y->collectives_n, x->collectives_n) &&
                near(x->hardware_flops, y->hardware_flops) &&
                near(x->model_flops, y->model_flops) &&
                near(x->flops_bound_ns, y->flops_bound_ns) &&
                near(x->memory_bound_ns, y->memory_bound_ns) &&
                near(x->link_bound_ns, y->link_bound_ns) &&
                near(x->launch_bound_ns, y->launch_bound_ns);
    for (uint32_t i = 0; same && i < y->collectives_n; i++) {
        const CollectiveStat *b = &y->collectives[i], *a = stat_like(x, b);
        same = CHECK(a != NULL) && CHECK_U64(b->count, a->count) &&
               CHECK_U64(b->bytes, a->bytes) && near(a->wire_bytes, b->wire_bytes);
    }
    return same;
}

/* How far apart two times are, in what may lie between them. */
static double apart(int64_t a, int64_t b, int64_t slack)
{
    return fabs((double)(a - b)) / (double)slack;
}

/* Waiting of either kind, when only the step is known: a rank may wait for its group or for the
 * stage before it.  Pairs: see hidden_apart. */
static double waits_apart(const SimResult *a, const RankStat *x, const RankStat *y,
                          int64_t slack)
{
    if (a->extrapolated || in_pairs)
        return apart(x->exposed_ns + x->bubble_ns, y->exposed_ns + y->bubble_ns, slack);
    return fmax(apart(x->exposed_ns, y->exposed_ns, slack),
                apart(x->bubble_ns, y->bubble_ns, slack));
}

/* All-to-alls beside sends may meet them more often than in the newest strides, as estimated paces
 * do and, rarely, those that were repeated: of 332 drawn in pairs with an estimated pace what is
 * hidden was at most 1 % of the step off 19 times of 20, and never more than 11 %; of 366 others
 * once, 1.7 %. */
static double hidden_apart(const SimResult *a, const RankStat *x, const RankStat *y,
                           int64_t slack)
{
    int64_t pairs = a->step_ns / (a->extrapolated ? 5 : 25);
    return apart(x->overlapped_ns, y->overlapped_ns, in_pairs ? pairs : slack);
}

static double times_apart(const SimResult *a, const SimResult *b, int64_t slack)
{
    double most = apart(a->step_ns, b->step_ns, slack);
    for (uint32_t i = 0; i < b->ranks_n; i++) {
        const RankStat *x = &a->ranks[i], *y = &b->ranks[i];
        most = fmax(most, apart(x->end_ns, y->end_ns, slack));
        most = fmax(most, apart(x->compute_ns, y->compute_ns, slack));
        most = fmax(most, hidden_apart(a, x, y, slack));
        most = fmax(most, waits_apart(a, x, y, slack));
        most = fmax(most, apart(x->idle_ns, y->idle_ns, slack));
    }
    return most;
}

/* Each result in itself. */
static bool adds_up(const SimResult *a)
{
    bool same = true;
    for (uint32_t i = 0; same && i < a->ranks_n; i++) {
        const RankStat *x = &a->ranks[i];
        same =
            CHECK_INT(a->step_ns, x->compute_ns + x->exposed_ns + x->bubble_ns + x->idle_ns) &&
            CHECK(x->exposed_ns >= 0 && x->bubble_ns >= 0 && x->idle_ns >= 0) &&
            CHECK_INT(x->comm_ns, x->overlapped_ns + x->exposed_ns);
    }
    const Path *p = &a->path;
    return same &&
           CHECK_INT(a->step_ns, p->compute_ns + p->comm_ns + p->bubble_ns + p->launch_ns);
}

static bool same_memory(const Graph *a, const Graph *b)
{
    for (uint32_t i = 0; i < b->roles_n; i++) {
        RoleMemory x = memory_of_role(a, &a->roles[i], NULL);
        RoleMemory y = memory_of_role(b, &b->roles[i], NULL);
        if (!CHECK_U64(y.peak_bytes, x.peak_bytes) ||
            !CHECK_INT(0, memcmp(x.at_peak, y.at_peak, sizeof x.at_peak)))
            return false;
    }
    return true;
}

/* ---- one draw ---- */

static bool same_stats(const SimResult *a, const SimResult *b)
{
    bool same = CHECK_U64(b->ops, a->ops);
    for (uint32_t k = 0; same && k < b->ranks_n; k++)
        same = same_counts(&a->ranks[k], &b->ranks[k]);
    return same;
}

/* What plan leaves out by is no more than the step, however few micro-batches the graph has. */
static bool bound_holds(Drawn *x, int64_t step_ns)
{
    uint32_t meant = x->s.training.micro_batches, few = shorten_to_weigh(&x->s);
    Graph g = { 0 };
    Err err = { 0 };
    double ns = 0;
    x->s.training.micro_batches = few;
    bool ok = CHECK(build_graph(&g, &x->s, &x->sw, &err)) &&
              CHECK(sim_bound(&ns, &g, &x->s.machine, &x->sw, meant - few, &err)) &&
              CHECK(ns <= (double)step_ns * (1 + 1e-9));
    x->s.training.micro_batches = meant;
    graph_free(&g);
    return ok;
}

/* Builds the graph that the way makes, and runs it. */
static bool run_shortened(SimResult *r, Graph *g, Drawn *x, const Shortening *way)
{
    Err err = { 0 };
    uint32_t meant = x->s.training.micro_batches, left_out = meant - way->micro_batches;
    SimOptions options = { .left_out = left_out,
                           .stride = way->stride,
                           .no_pace = way->no_pace };
    x->s.training.micro_batches = way->micro_batches;
    bool ok = CHECK(build_graph(g, &x->s, &x->sw, &err)) &&
              CHECK(sim_run(r, g, &x->s.machine, &x->sw, &options, &err)) &&
              CHECK(r->repeated == left_out || r->repeated == 0);
    x->s.training.micro_batches = meant;
    return ok;
}

/* Were all micro-batches counted? */
static bool compare_shortened(Drawn *x, const Draw *d, const SimResult *whole, int64_t slack_ns)
{
    Shortening way = shorten(&x->s);
    uint32_t meant = x->s.training.micro_batches, left_out = meant - way.micro_batches;
    if (left_out == 0)
        return false;
    Graph g = { 0 };
    SimResult r = { 0 };
    bool ok = run_shortened(&r, &g, x, &way), counted = ok && r.repeated == left_out;
    extrapolated_n += counted && r.extrapolated;
    ok = ok && same_memory(&g, &x->g) && bound_holds(x, whole->step_ns);
    if (ok && counted) {
        int64_t step_slack =
            slack_ns ? slack_ns : whole->step_ns / (r.extrapolated ? 100 : 200);
        int64_t slack = slack_ns ? slack_ns : whole->step_ns / (r.extrapolated ? 25 : 200);
        far_n += llabs(r.step_ns - whole->step_ns) > whole->step_ns / 200;
        double most =
            fmax(apart(r.step_ns, whole->step_ns, step_slack), times_apart(&r, whole, slack));
        outliers_n += r.extrapolated && most > 1;
        ok = same_stats(&r, whole) && adds_up(&r) &&
             CHECK(most <= (r.extrapolated ? estimates_most : 1));
    }
    if (!ok)
        fprintf(stderr, "%u of %u: %s\n", way.micro_batches, meant, d->text);
    sim_result_free(&r);
    graph_free(&g);
    return counted;
}

static void steady_drawn(Draw *d, int64_t slack_ns)
{
    Drawn x;
    SimResult whole;
    if (drawn_make(&x, d) && drawn_run(&whole, &x, (SimOptions){ 0 }, d)) {
        bool found = compare_shortened(&x, d, &whole, slack_ns);
        tried_n++;
        steady_n += found;
        pipelines_n += found && x.s.parallel.pp > 1;
        sim_result_free(&whole);
    }
    drawn_free(&x);
}

/* An estimated pace may be wrong now and then (of 858 drawn 7 steps were more than 0.5 % off), but
 * not wildly: see compare_shortened.  In pairs 12 of 1,022 were, the worst 3.8 %: among the few
 * that are drawn here chance puts two, and as clang compiles them a third, 0.8 % off. */
static void check_outliers(void)
{
    uint32_t by_chance = in_pairs ? 149 : 49;
    CHECK(far_n * 50 <= extrapolated_n + by_chance);
    CHECK(outliers_n * 50 <= extrapolated_n + by_chance);
    estimates_most = 1;
}

static void begin_drawn(void)
{
    steady_n = tried_n = extrapolated_n = far_n = outliers_n = 0;
    estimates_most = in_pairs ? OUTLIER_MOST_IN_PAIRS : OUTLIER_MOST;
}

static void steady_one(uint64_t seed, SteadyKind kind, int64_t slack_ns)
{
    Draw d;
    draw_steady(&d, seed, kind);
    steady_drawn(&d, slack_ns);
}

static void left_out_on_uniform_machines(void)
{
    begin_drawn();
    for (uint64_t seed = 1; seed <= check_cases(DRAWS); seed++)
        steady_one(seed, (SteadyKind){ .ideal = seed % 2 }, 0);
    check_outliers();
    CHECK(steady_n > tried_n / 2 && pipelines_n > tried_n / 3);
}

static void left_out_on_odd_machines(void)
{
    begin_drawn();
    for (uint64_t seed = 1001; seed <= 1000 + check_cases(DRAWS); seed++)
        steady_one(seed,
                   (SteadyKind){ .ideal = seed % 2, .stragglers = seed % 3 == 0, .odd = true },
                   0);
    check_outliers();
    bool few = check_one_in() > 1; /* of those perhaps none is */
    CHECK(steady_n > tried_n / 3 && (few || extrapolated_n > tried_n / 10));
}

/* Accumulation with nothing beside it: to the nanosecond, and always. */
static void left_out_is_exact_where_only_a_node_talks(void)
{
    begin_drawn();
    for (uint64_t seed = 2001; seed <= 2000 + check_cases(DRAWS); seed++)
        steady_one(seed, (SteadyKind){ .ideal = seed % 2, .quiet = true }, 1);
    check_outliers();
    CHECK_U64(tried_n, steady_n);
    CHECK_U64(0, extrapolated_n);
}

static void pipelines_that_drift(void)
{
    begin_drawn();
    for (uint64_t seed = 3001; seed <= 3000 + check_cases(DRAWS_DRIFTING); seed++)
        steady_one(
            seed,
            (SteadyKind){ .drifting = true, .odd = seed % 2, .stragglers = seed % 5 == 0 }, 0);
    check_outliers();
    bool all = check_cases(DRAWS_DRIFTING) == DRAWS_DRIFTING;
    CHECK(extrapolated_n > (all ? tried_n / 4 : 0)); /* of few draws, chance may take more */
}

static void split_backwards_are_left_out(void)
{
    begin_drawn();
    for (uint64_t seed = 7001; seed <= 7000 + check_cases(DRAWS_DRIFTING); seed++)
        steady_one(seed,
                   (SteadyKind){ .split = true,
                                 .ideal = seed % 4 == 0,
                                 .drifting = seed % 3 == 0,
                                 .odd = seed % 2 },
                   0);
    CHECK(steady_n > tried_n / 2);
    check_outliers();
}

/* Pairs of micro-batches that hide each other's all-to-alls. */
static void pairs_are_left_out(void)
{
    in_pairs = true;
    begin_drawn();
    for (uint64_t seed = 6001; seed <= 6000 + check_cases(DRAWS); seed++)
        steady_one(seed,
                   (SteadyKind){ .experts = true, .odd = seed % 2, .split = seed % 3 == 0 }, 0);
    CHECK(steady_n > tried_n / 2);
    check_outliers();
    in_pairs = false;
}

/* A pass that is in no pair waits for its all-to-alls: those left out, which are in pairs, do not
 * take that long. */
static void bounds_of_pairs(void)
{
    in_pairs = true;
    steady_one(8294, (SteadyKind){ .experts = true }, 0);
    steady_one(8556, (SteadyKind){ .experts = true }, 0);
    steady_one(9850, (SteadyKind){ .experts = true, .split = true }, 0);
    in_pairs = false;
}

/* Taken back again and again, until all micro-batches are run: nothing is leapt over, so nothing
 * may differ.  (Where a rank's sums are rounded depends on when it is looked at.) */
static void run_again(uint64_t seed, SteadyKind kind)
{
    enum { ROUNDING_NS = 100 };
    Draw d;
    Drawn x;
    SimResult whole, r = { 0 };
    Graph g = { 0 };
    Err err = { 0 };
    draw_steady(&d, seed, kind);
    if (drawn_make(&x, &d) && drawn_run(&whole, &x, (SimOptions){ 0 }, &d)) {
        Shortening way = shorten(&x.s);
        uint32_t left_out = x.s.training.micro_batches - way.micro_batches;
        SimOptions o = { .left_out = left_out, .stride = way.stride, .no_leaps = true };
        x.s.training.micro_batches = way.micro_batches;
        bool ok = CHECK(build_graph(&g, &x.s, &x.sw, &err)) &&
                  CHECK(sim_run(&r, &g, &x.s.machine, &x.sw, &o, &err));
        tried_n += left_out > 0;
        if (ok && left_out > 0 && r.repeated == left_out) {
            steady_n++;
            ok = CHECK_INT(whole.step_ns, r.step_ns) && CHECK(!r.extrapolated) &&
                 same_stats(&r, &whole) && adds_up(&r) &&
                 CHECK(times_apart(&r, &whole, ROUNDING_NS) <= 1);
        }
        if (!ok)
            fprintf(stderr, "%u left out: %s\n", left_out, d.text);
        sim_result_free(&r);
        sim_result_free(&whole);
        graph_free(&g);
    }
    drawn_free(&x);
}

static void strides_run_again_are_those_of_the_whole_graph(void)
{
    steady_n = tried_n = 0;
    for (uint64_t seed = 4001; seed <= 4000 + check_cases(DRAWS); seed++) {
        run_again(seed, (SteadyKind){ .ideal = seed % 2 });
        run_again(seed, (SteadyKind){ .drifting = true, .odd = seed % 2 });
        run_again(seed, (SteadyKind){ .quiet = true });
    }
    CHECK(steady_n > tried_n * 4 / 5);
    for (uint64_t seed = 5001; seed <= 5000 + check_cases(DRAWS); seed++)
        run_again(seed, (SteadyKind){ .stragglers = true, .odd = true });
}

/* The newest strides looked like a pace, and the step was 1.1 to 3.1 % off: strides that grow all
 * the while, and one that is alike on all ranks by chance. */
static void paces_that_are_none(void)
{
    steady_one(3745, (SteadyKind){ .drifting = true, .odd = true, .stragglers = true }, 0);
    steady_one(103793, (SteadyKind){ .drifting = true, .odd = true }, 0);
    steady_one(101197, (SteadyKind){ .ideal = true, .stragglers = true, .odd = true }, 0);
    steady_one(101272, (SteadyKind){ .stragglers = true, .odd = true }, 0);
}

/* Without a limit gathers run ahead, in a short graph through all there is, and kernels are slowed
 * no more: that is no steady state of a graph that has more to gather. */
static void gathers_that_run_far_ahead(void)
{
    static const char *const models[] = { "gpt2-medium", "gpt2-xl", "llama3.2-1b" };
    for (uint32_t i = 0; i < 2 * ARRAY_N(models); i++) {
        Draw d = { .gpus = 8 };
        draw_text(&d,
                  "{\"model\":\"%s\",\"cluster\":\"%s\",\"training\":{\"global_batch\":"
                  "%u,\"micro_batch\":1,\"seq_len\":1024},\"parallel\":{\"strategy\":"
                  "\"fsdp\",\"dp\":4,\"pp\":2,\"limit_all_gathers\":false}}",
                  models[i / 2], i % 2 ? "dgx-a100" : "hgx-h200", i % 2 ? 256 : 160);
        steady_drawn(&d, 0);
    }
}

/* The first stage gathers the embedding besides, and is slower; the others go on at their own pace
 * for as long as what is under way lasts: 85 micro-batches here, until the last falls back too.
 * What is left out is counted without running all that. */
static void draw_slow_first_stage(Draw *d, uint32_t pp)
{
    *d = (Draw){ .gpus = 32 * pp };
    draw_text(
        d,
        "{\"name\":\"slow first stage\",\"model\":{\"kind\":\"transformer\",\"layers\":%u,"
        "\"hidden\":12288,\"heads\":96,\"ffn\":49152,\"vocab\":51200,\"max_seq\":2048},",
        3 * pp);
    draw_text(d,
              "\"cluster\":{\"base\":\"dgx-a100\",\"nodes\":%u},"
              "\"training\":{\"global_batch\":%u,\"micro_batch\":1,\"seq_len\":2048},",
              4 * pp, 4 * 12 * pp);
    draw_text(d,
              "\"parallel\":{\"strategy\":\"fsdp\",\"dp\":4,\"tp\":4,\"cp\":2,\"pp\":%u,"
              "\"sequence_parallel\":true,\"schedule\":\"1f1b\"}}",
              pp);
}

static void stages_fall_back_one_by_one(void)
{
    enum { PART = 10000, TIMES_FEWER = 4 };
    for (uint32_t pp = 8; pp <= 16; pp *= 2) {
        Draw d;
        Drawn x;
        SimResult whole, r = { 0 };
        Graph g = { 0 };
        draw_slow_first_stage(&d, pp);
        if (drawn_make(&x, &d) && drawn_run(&whole, &x, (SimOptions){ 0 }, &d)) {
            Shortening way = shorten(&x.s);
            CHECK(run_shortened(&r, &g, &x, &way) && r.repeated > 0 && r.extrapolated);
            CHECK(r.events * TIMES_FEWER < whole.events);
            CHECK(llabs(r.step_ns - whole.step_ns) < whole.step_ns / PART);
            CHECK(adds_up(&r) && times_apart(&r, &whole, whole.step_ns / 50) <= 1);
            sim_result_free(&r);
            sim_result_free(&whole);
            graph_free(&g);
        }
        drawn_free(&x);
    }
}

/* What is left out of a step of centuries does not fit into 64 bits: it is not leapt over. */
static void steps_that_take_too_long(void)
{
    Draw d = { .gpus = 4 };
    Drawn x;
    SimResult r = { 0 };
    Graph g = { 0 };
    Err err = { 0 };
    draw_text(&d, "{\"model\":{\"kind\":\"transformer\",\"layers\":4,\"hidden\":12288,"
                  "\"heads\":96,\"ffn\":49152,\"vocab\":51200,\"max_seq\":2048},"
                  "\"cluster\":{\"name\":\"drawn\",\"gpus_per_node\":1,\"gpu\":\"h100-80gb\","
                  "\"nodes\":4,\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":10},"
                  "\"inter_node\":{\"kind\":\"fat_tree\",\"nics_per_node\":1,"
                  "\"GBps_per_nic\":0.000001}},");
    draw_text(&d, "\"training\":{\"global_batch\":100000,\"micro_batch\":1,\"seq_len\":2048},"
                  "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1,\"pp\":4,"
                  "\"schedule\":\"1f1b\"}}");
    if (drawn_make(&x, &d)) {
        Shortening way = shorten(&x.s);
        SimOptions o = { .left_out = x.s.training.micro_batches - way.micro_batches,
                         .stride = way.stride };
        x.s.training.micro_batches = way.micro_batches;
        CHECK(build_graph(&g, &x.s, &x.sw, &err));
        CHECK(!sim_run(&r, &g, &x.s.machine, &x.sw, &o, &err));
        CHECK(strstr(err.text, "longer than 30 years"));
        graph_free(&g);
    }
    drawn_free(&x);
}

/* All forwards, then all backwards: one more micro-batch is not one more turn. */
static void not_all_schedules_take_turns(void)
{
    Draw d;
    Drawn x;
    draw_steady(&d, 3, (SteadyKind){ .ideal = true });
    if (drawn_make(&x, &d)) {
        x.s.parallel.pp = 4;
        x.s.parallel.virtual_stages = 1;
        x.s.training.micro_batches = 200;
        x.s.parallel.schedule = SCHEDULE_1F1B;
        CHECK_U64(12, shorten(&x.s).micro_batches);
        x.s.parallel.schedule = SCHEDULE_GPIPE;
        CHECK_U64(200, shorten(&x.s).micro_batches);
        x.s.parallel.schedule = SCHEDULE_NAIVE;
        CHECK_U64(200, shorten(&x.s).micro_batches);
        x.s.parallel.schedule = SCHEDULE_ZB_H1;
        CHECK_U64(16, shorten(&x.s).micro_batches);
        x.s.parallel.schedule = SCHEDULE_ZB_1P; /* whose order is searched */
        CHECK_U64(200, shorten(&x.s).micro_batches);
        /* Chunks that take turns: four rounds of pp, and what is not a whole round. */
        x.s.parallel.schedule = SCHEDULE_INTERLEAVED;
        x.s.parallel.virtual_stages = 2;
        CHECK_U64(16, shorten(&x.s).micro_batches);
        x.s.training.micro_batches = 20;
        CHECK_U64(20, shorten(&x.s).micro_batches);
    }
    drawn_free(&x);
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(left_out_on_uniform_machines);
    RUN(left_out_on_odd_machines);
    RUN(left_out_is_exact_where_only_a_node_talks);
    RUN(pipelines_that_drift);
    RUN(split_backwards_are_left_out);
    RUN(pairs_are_left_out);
    RUN(bounds_of_pairs);
    RUN(strides_run_again_are_those_of_the_whole_graph);
    RUN(paces_that_are_none);
    RUN(gathers_that_run_far_ahead);
    RUN(stages_fall_back_one_by_one);
    RUN(steps_that_take_too_long);
    RUN(not_all_schedules_take_turns);
    return check_report();
}
