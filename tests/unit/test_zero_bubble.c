/*
 * test_zero_bubble.c - schedules that do weight gradients apart: orders, lives, lengths.
 *
 * Graphs are those of real models, so the split of backward is that of segments.c; what holds
 * for every graph is asked of them (tests/graph_check.h), and lengths are closed forms.
 */
#include "sim/memory.h"
#include "sim/strategy/schedule.h"
#include "tests/built.h"
#include "tests/graph_check.h"

enum { PP_MAX = 8, M_MAX = 24, STEPS_MAX = 4 };

static const Schedule zero_bubble[] = { SCHEDULE_ZB_H1, SCHEDULE_ZB_1P, SCHEDULE_ZB_2P,
                                        SCHEDULE_ZBV, SCHEDULE_DUALPIPE };

/* ---- orders ---- */

#define EVEN \
    { \
        { 10, 10, 10 }, \
        { \
            0 \
        } \
    }
static const ActionCosts even[PP_MAX] = { EVEN, EVEN, EVEN, EVEN, EVEN, EVEN, EVEN, EVEN };

static uint32_t turns_of(Schedule schedule)
{
    return schedule_is_vee(schedule) ? 2 : 1;
}

/* Most micro-batches of which a chunk is between its F and its W; each action once, in order. */
static uint32_t most_held(const Action *a, uint32_t n, uint32_t m, uint32_t turns)
{
    uint32_t seen[M_MAX][2] = { { 0 } }, held = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *s = &seen[a[i].micro_batch][a[i].turn];
        CHECK_INT((*s)++, a[i].kind);
        held += a[i].kind == ACTION_FORWARD;
        most = held > most ? held : most;
        held -= a[i].kind == ACTION_WEIGHT;
    }
    for (uint32_t k = 0; k < m; k++)
        for (uint32_t turn = 0; turn < turns; turn++)
            CHECK_INT(3, seen[k][turn]);
    return most;
}

static void every_part_once_and_never_too_many_held(void)
{
    static Action all[PP_MAX * 3 * 2 * M_MAX];
    for (size_t k = 0; k < ARRAY_N(zero_bubble); k++)
        for (uint32_t pp = 2; pp <= PP_MAX; pp++)
            for (uint32_t m = 1; m <= M_MAX; m += 1 + m / 3) {
                uint32_t turns = turns_of(zero_bubble[k]);
                if (zero_bubble[k] == SCHEDULE_DUALPIPE && m < 2 * pp)
                    continue;
                SchedulePlan plan = { zero_bubble[k], pp, turns, m, false, even, false };
                uint32_t n = schedule_actions_n(&plan);
                bool twice = zero_bubble[k] == SCHEDULE_ZB_2P || turns == 2;
                uint32_t most = (twice ? 2 : 1) * pp + (zero_bubble[k] == SCHEDULE_DUALPIPE);
                schedule_actions(&plan, all);
                for (uint32_t stage = 0; stage < pp; stage++)
                    CHECK(most_held(all + (size_t)stage * n, n, m, turns) <= most);
            }
}

static void a_vee_turns_at_the_last_stage(void)
{
    for (uint32_t chunk = 0; chunk < 8; chunk++) {
        uint32_t stage = schedule_stage(SCHEDULE_ZBV, 4, chunk);
        CHECK_INT(chunk < 4 ? chunk : 7 - chunk, stage);
        CHECK_INT(chunk, schedule_chunk(SCHEDULE_ZBV, 4, stage, chunk / 4));
        CHECK_INT(chunk % 4, schedule_stage(SCHEDULE_INTERLEAVED, 4, chunk));
    }
}

/* ---- the way between stages ---- */

typedef struct Played {
    uint64_t end[2][PP_MAX][M_MAX * STEPS_MAX]; /* of F and B; 0: not yet */
    uint64_t now[PP_MAX];
    uint32_t at[PP_MAX];
} Played;

/* When a stage's next action can begin; UINT64_MAX: what it needs has not been made. */
static uint64_t may_begin(const Played *p, const ActionCosts *costs, uint32_t pp,
                          uint32_t stage, const Action *a)
{
    bool back = a->kind == ACTION_BACKWARD, turns = back && stage == pp - 1;
    if (a->kind == ACTION_WEIGHT || (!back && stage == 0))
        return p->now[stage];
    uint32_t from = turns ? stage : back ? stage + 1 : stage - 1;
    uint64_t made = p->end[back && !turns][from][a->micro_batch];
    uint64_t at = made + (turns ? 0 : costs[from].way[back]);
    return made == 0 ? UINT64_MAX : at > p->now[stage] ? at : p->now[stage];
}

/* How long a step takes by costs when every stage follows its order. */
static uint64_t length(const SchedulePlan *plan, const ActionCosts *costs, const Action *order)
{
    Played p = { 0 };
    uint32_t n = schedule_actions_n(plan);
    uint64_t longest = 0;
    for (uint32_t left = plan->pp * n, before = 0; left != before;) {
        before = left;
        for (uint32_t i = 0; i < plan->pp; i++) {
            if (p.at[i] == n)
                continue;
            const Action *a = &order[(size_t)i * n + p.at[i]];
            uint64_t begin = may_begin(&p, costs, plan->pp, i, a);
            if (begin == UINT64_MAX)
                continue;
            p.now[i] = begin + costs[i].cost[a->kind];
            if (a->kind != ACTION_WEIGHT)
                p.end[a->kind][i][a->micro_batch] = p.now[i];
            longest = p.now[i] > longest ? p.now[i] : longest;
            p.at[i]++;
            left--;
        }
    }
    for (uint32_t i = 0; i < plan->pp; i++)
        CHECK_INT(n, p.at[i]);
    return longest;
}

static uint64_t length_found(Schedule schedule, uint32_t pp, uint32_t m,
                             const ActionCosts *known, const ActionCosts *costs)
{
    static Action all[PP_MAX * 3 * M_MAX];
    SchedulePlan plan = { schedule, pp, 1, m, false, known, false };
    schedule_actions(&plan, all);
    return length(&plan, costs, all);
}

/* Whoever knows how long transfers take finds no longer an order than zb-h1's, nor one that may
 * hold twice as much than one that may not; and mostly a shorter one than who does not know. */
static void orders_know_the_way_to_the_neighbours(void)
{
    uint32_t shorter = 0, longer = 0;
    for (uint32_t pp = 2; pp <= PP_MAX; pp++)
        for (uint64_t way = 0; way <= 40; way += 5) {
            ActionCosts costs[PP_MAX];
            for (uint32_t i = 0; i < pp; i++)
                costs[i] = (ActionCosts){ { 10, 12 + i % 3, 8 }, { way, way } };
            uint64_t h1 = length_found(SCHEDULE_ZB_H1, pp, 3 * pp, costs, costs);
            uint64_t one = length_found(SCHEDULE_ZB_1P, pp, 3 * pp, costs, costs);
            uint64_t two = length_found(SCHEDULE_ZB_2P, pp, 3 * pp, costs, costs);
            uint64_t blind = length_found(SCHEDULE_ZB_2P, pp, 3 * pp, even, costs);
            CHECK(one <= h1);
            CHECK(two <= one);
            shorter += two < blind;
            longer += two > blind;
        }
    CHECK_U64(0, longer);
    CHECK(shorter >= 20);
}

/* ---- steps on steps ---- */

/* So many steps, each stage going on with the next when it is done with one. */
static uint64_t length_of_steps(const SchedulePlan *plan, const Action *order, uint32_t steps)
{
    static Action all[PP_MAX * 3 * M_MAX * STEPS_MAX];
    SchedulePlan whole = *plan;
    uint32_t n = schedule_actions_n(plan), m = plan->micro_batches;
    whole.micro_batches = steps * m;
    for (uint32_t stage = 0; stage < plan->pp; stage++)
        for (uint32_t i = 0; i < steps * n; i++) {
            Action *a = &all[(size_t)stage * steps * n + i];
            *a = order[(size_t)stage * n + i % n];
            a->micro_batch += i / n * m;
        }
    return length(&whole, plan->costs, all);
}

static uint64_t pace(const SchedulePlan *plan)
{
    static Action order[PP_MAX * 3 * M_MAX];
    schedule_actions(plan, order);
    return length_of_steps(plan, order, STEPS_MAX) -
           length_of_steps(plan, order, STEPS_MAX - 1);
}

/* The paper: zb-2p has no bubble, zb-1p a third of 1f1b's. */
static void without_a_barrier_the_way_in_is_paid_once(void)
{
    for (uint32_t pp = 2; pp <= PP_MAX; pp++)
        for (uint32_t m = 2 * pp; m <= 3 * pp; m += pp) {
            SchedulePlan plan = { SCHEDULE_ZB_2P, pp, 1, m, false, even, true };
            CHECK_U64(30 * m, pace(&plan));
            plan.schedule = SCHEDULE_ZB_1P;
            CHECK_U64(30 * m + 10 * (pp - 1), pace(&plan));
        }
}

/* ---- graphs ---- */

static bool open_case(Built *c, Schedule schedule, uint32_t pp, uint32_t m, const char *more)
{
    char text[1024], shares[256] = "";
    uint32_t chunks = pp * turns_of(schedule);
    for (uint32_t i = 0; i < chunks; i++)
        snprintf(shares + strlen(shares), sizeof shares - strlen(shares), "%s%u", i ? "," : "",
                 4 * pp / chunks);
    snprintf(text, sizeof text,
             "{\"model\":{\"kind\":\"transformer\",\"layers\":%u,\"hidden\":64,\"heads\":4,"
             "\"ffn\":256,\"vocab\":128,\"max_seq\":32,\"tied_embeddings\":%s},"
             "\"cluster\":{\"base\":\"ideal\",\"nodes\":1,\"gpus_per_node\":%u,\"intra_node\":"
             "{\"kind\":\"nvswitch\",\"GBps\":1000,\"latency_us\":0}},"
             "\"training\":{\"global_batch\":%u,\"micro_batch\":1,\"seq_len\":32},"
             "\"parallel\":{\"pp\":%u,\"schedule\":\"%s\",\"stage_layers\":[%s]}%s}",
             4 * pp, m % 2 ? "true" : "false", pp, m, pp, schedule_names[schedule], shares,
             more);
    Err err = { 0 };
    return built_from(c, json_parse(text, strlen(text), "case", &err), &err);
}

static void nothing_deadlocks_or_is_read_too_late(void)
{
    static const char *const more[] = { "", ",\"software\":\"zero-bubble-2023\"",
                                        ",\"software\":\"megatron-core-2025\"" };
    for (size_t k = 0; k < ARRAY_N(zero_bubble); k++)
        for (uint32_t pp = 2; pp <= 5; pp++)
            for (uint32_t m = 1; m <= 3 * pp; m += 1 + m / 2)
                for (size_t i = 0; i < ARRAY_N(more); i++) {
                    Built c;
                    if (zero_bubble[k] == SCHEDULE_DUALPIPE && m < 2 * pp)
                        continue;
                    uint32_t failures = check_state.test_failures_n;
                    if (open_case(&c, zero_bubble[k], pp, m, more[i])) {
                        check_lives(&c.g);
                        check_runs(&c.g);
                    }
                    built_free(&c);
                    if (failures != check_state.test_failures_n)
                        fprintf(stderr, "    %s, pp %u, m %u%s\n",
                                schedule_names[zero_bubble[k]], pp, m, more[i]);
                }
}

/* Backward and weights together do what backward alone does. */
static void split_backward_does_the_same_work(void)
{
    double flops[2] = { 0 };
    uint64_t written[2] = { 0 };
    for (int split = 0; split < 2; split++) {
        Built c;
        if (open_case(&c, split ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B, 4, 8, ""))
            for (uint32_t r = 0; r < c.g.roles_n; r++)
                for (uint32_t i = 0; i < c.g.roles[r].instances_n; i++) {
                    const Segment *s = &c.g.segments[c.g.roles[r].instances[i].segment];
                    CHECK(split || s->kind != SEGMENT_WEIGHT);
                    for (uint32_t k = 0; k < s->op_n; k++) {
                        const Op *op = &graph_ops(&c.g, s)[k];
                        flops[split] += op->flops;
                        written[split] += op->write_bytes;
                        CHECK(s->kind != SEGMENT_WEIGHT || op->phase == PHASE_WGRAD);
                    }
                }
        built_free(&c);
    }
    CHECK_NEAR(flops[0], flops[1], 1e-12);
    CHECK_U64(written[0], written[1]);
}

/* What the search is told: the kernels of a micro-batch on a stage, and a send alone. */
static void actions_cost_what_their_kernels_take(void)
{
    Built c;
    ActionCosts costs[3];
    Err err = { 0 };
    bool open = open_case(&c, SCHEDULE_ZB_1P, 3, 6, "");
    const Gpu *gpu = c.s.machine.types[0].gpu;
    if (open && CHECK(sim_action_costs(costs, &c.g, &c.s.machine, &c.sw, &err)))
        for (uint32_t r = 0; r < 3; r++) {
            uint64_t ns[3] = { 0 };
            for (uint32_t i = 0; i < c.g.roles[r].instances_n; i++) {
                const Instance *in = &c.g.roles[r].instances[i];
                const Segment *s = &c.g.segments[in->segment];
                int kind = (int)s->kind - SEGMENT_FORWARD;
                for (uint32_t k = 0; k < s->op_n && in->micro_batch == 3; k++)
                    if (kind >= 0 && kind < 3)
                        ns[kind] +=
                            (uint64_t)op_cost(gpu, graph_ops(&c.g, s) + k, &c.sw).alone_ns;
            }
            for (int k = 0; k < 3; k++)
                CHECK_U64(ns[k], costs[r].cost[k]);
            /* 32 tokens of 64 numbers of 2 bytes, 1000 bytes/ns */
            CHECK_U64(r < 2 ? 5 : 0, costs[r].way[0]);
            CHECK_U64(r > 0 ? 5 : 0, costs[r].way[1]);
        }
    built_free(&c);
}

/* ---- lengths ---- */

enum { LAYER_NS = 60 };

static const Graph *timed;

/* The first op of a layer's forward, backward or weight gradients takes that long. */
static double layer_part(const Role *role, const CheckOp *o)
{
    const Instance *i = &role->instances[o->instance];
    bool first = o->op == graph_ops(timed, o->segment);
    bool part = o->segment->kind == SEGMENT_FORWARD || o->segment->kind == SEGMENT_BACKWARD ||
                o->segment->kind == SEGMENT_WEIGHT;
    return i->layer != NONE_U32 && part && first ? LAYER_NS : 0;
}

static void bubbles_are_those_of_the_paper(void)
{
    for (uint32_t pp = 2; pp <= 6; pp++)
        for (uint32_t m = 2 * pp; m <= 4 * pp; m += pp) {
            double f = 4.0 * LAYER_NS, work = 3 * m * f;
            const struct {
                Schedule schedule;
                double bubble;
            } expected[] = { { SCHEDULE_ZB_H1, (pp - 1) * f },
                             { SCHEDULE_ZB_1P, (pp - 1) * f },
                             { SCHEDULE_ZB_2P, (pp - 1) * f },
                             { SCHEDULE_ZBV, (pp - 1) * f / 2 },
                             { SCHEDULE_DUALPIPE, (pp - 1) * f } };
            for (size_t k = 0; k < ARRAY_N(expected); k++) {
                Built c;
                bool open = open_case(&c, expected[k].schedule, pp, m, "");
                timed = &c.g;
                if (open)
                    CHECK_NEAR(work + expected[k].bubble, check_time(&c.g, layer_part), 1e-9);
                built_free(&c);
            }
        }
}

static int64_t step_of(const Built *c, bool expanded)
{
    SimResult r;
    int64_t step_ns = 0;
    if (built_run(&r, c, (SimOptions){ .expanded = expanded })) {
        step_ns = r.step_ns;
        for (uint32_t i = 0; i < r.ranks_n; i++) {
            const RankStat *s = &r.ranks[i];
            CHECK_INT(step_ns, s->compute_ns + s->exposed_ns + s->bubble_ns + s->idle_ns);
            CHECK(s->bubble_ns >= 0 && s->idle_ns >= 0);
        }
        const Path *p = &r.path;
        CHECK_INT(step_ns, p->compute_ns + p->comm_ns + p->bubble_ns + p->launch_ns);
    }
    sim_result_free(&r);
    return step_ns;
}

/* Where the software says so, most of the way into the pipeline is hidden, by tied embeddings (odd
 * numbers of micro-batches here) too: their sum begins when only gradients of weights are left. */
static void stages_go_on_with_the_next_step(void)
{
    static const char *const open[] = { ",\"software\":\"zero-bubble-2023\"",
                                        ",\"software\":\"megatron-core-2025\"" };
    for (uint32_t pp = 3; pp <= 5; pp++)
        for (size_t i = 0; i < 2 * ARRAY_N(open); i++) {
            size_t k = i / 2;
            uint32_t m = 2 * (pp + 2) + (uint32_t)(i % 2);
            Built c;
            Err err = { 0 };
            ActionCosts costs[PP_MAX];
            bool is_open = open_case(&c, SCHEDULE_ZB_2P, pp, m, open[k]);
            CHECK_INT(k == 0, c.g.open_ended);
            if (is_open && c.g.open_ended &&
                CHECK(sim_action_costs(costs, &c.g, &c.s.machine, &c.sw, &err))) {
                int64_t step_ns = step_of(&c, false), way_ns = 0;
                CHECK_INT(step_ns, step_of(&c, true));
                double bound_ns;
                CHECK(sim_bound(&bound_ns, &c.g, &c.s.machine, &c.sw, 0, &err));
                CHECK(bound_ns <= (double)step_ns);
                for (uint32_t s = 0; s + 1 < pp; s++)
                    way_ns += (int64_t)(costs[s].cost[0] + costs[s].way[0]);
                c.g.open_ended = false;
                CHECK(step_of(&c, false) - step_ns >= way_ns * 8 / 10);
            }
            built_free(&c);
        }
}

/* F, B without W, and W of a layer. */
static const double uneven[] = { 50, 60, 40 };

static double uneven_part(const Role *role, const CheckOp *o)
{
    return layer_part(role, o) > 0 ? uneven[o->segment->kind - SEGMENT_FORWARD] : 0;
}

/* DualPipe's README: (PP/2 - 1)(F&B + B - 3 W) with PP stages, two a rank, whole backwards B and
 * F&B = F + B.  A stage has two layers here. */
static void dualpipe_has_the_bubble_its_authors_tell(void)
{
    for (uint32_t pp = 2; pp <= 6; pp++)
        for (uint32_t m = 2 * pp; m <= 4 * pp; m += 1 + pp / 2) {
            double f = 2 * uneven[0], w = 2 * uneven[2], b = 2 * uneven[1] + w;
            Built c;
            bool open = open_case(&c, SCHEDULE_DUALPIPE, pp, m, "");
            timed = &c.g;
            if (open)
                CHECK_NEAR(2 * m * (f + b) + (pp - 1) * (f + b + b - 3 * w),
                           check_time(&c.g, uneven_part), 1e-9);
            built_free(&c);
        }
}

/* Chunks without a layer pass on what they get, to another stage or to the next chunk on theirs. */
static void chunks_may_be_empty(void)
{
    static const char *const schedules[] = { "1f1b",  "interleaved", "zb-h1",
                                             "zb-2p", "zbv",         "dualpipe" };
    uint32_t seed = 1;
    double all = 0;
    for (uint32_t k = 0; k < 20 * ARRAY_N(schedules); k++) {
        const char *schedule = schedules[k % ARRAY_N(schedules)];
        bool two = strcmp(schedule, "zbv") == 0 || strcmp(schedule, "interleaved") == 0 ||
                   strcmp(schedule, "dualpipe") == 0;
        uint32_t chunks = two ? 8 : 4, layers[8] = { 0 };
        for (uint32_t layer = 0; layer < 6; layer++)
            layers[(seed = seed * 1103515245 + 12345) / 65536 % chunks]++;
        char list[64] = "[", *at = list + 1;
        for (uint32_t c = 0; c < chunks; c++)
            at += snprintf(at, sizeof list - (size_t)(at - list), "%s%u", c ? "," : "",
                           layers[c]);
        snprintf(at, sizeof list - (size_t)(at - list), "]");
        const Setting settings[] = { { "model.layers", "6" },
                                     { "cluster", "dgx-a100" },
                                     { "parallel.dp", "2" },
                                     { "parallel.pp", "4" },
                                     { "parallel.virtual_stages", two ? "2" : "1" },
                                     { "parallel.schedule", schedule },
                                     { "parallel.stage_layers", list },
                                     { "training.micro_batch", "1" },
                                     { "training.global_batch", "16" } };
        Built b;
        if (!built_read(&b, "scenarios/examples/gpt2-ddp.json", settings, ARRAY_N(settings)))
            continue;
        uint32_t failures = check_state.test_failures_n;
        check_lives(&b.g);
        check_runs(&b.g);
        SimResult r;
        if (CHECK(built_run(&r, &b, (SimOptions){ .expanded = true }))) {
            double flops = 0;
            for (uint32_t i = 0; i < r.ranks_n; i++)
                flops += r.ranks[i].model_flops;
            all = k == 0 ? flops : all;
            CHECK_NEAR(all, flops, 1e-9); /* wherever its layers are, it is the same model */
        }
        if (failures != check_state.test_failures_n)
            fprintf(stderr, "    %s %s\n", schedule, list);
        sim_result_free(&r);
        built_free(&b);
    }
}

static uint64_t peak_with(const char *software, const char *recompute)
{
    const Setting settings[] = { { "parallel.schedule", "zb-h1" },
                                 { "software", software },
                                 { "training.seq_len", "256" },
                                 { "training.precision", "bf16" },
                                 { "training.recompute", recompute } };
    Built b;
    uint64_t peak = 0;
    if (built_read(&b, "scenarios/examples/gpt3-175b-pp.json", settings, ARRAY_N(settings)))
        peak = memory_of_role(&b.g, &b.g.roles[0], NULL).peak_bytes;
    built_free(&b);
    return peak;
}

/* A weight gradient that cannot wait is cast at once, and not held for a cast that would. */
static void recomputation_saves_memory_here_too(void)
{
    static const char *const software[] = { "nemo-2023", "megatron-core-2025", "generic" };
    for (size_t i = 0; i < ARRAY_N(software); i++)
        CHECK(peak_with(software[i], "selective") <= peak_with(software[i], "none"));
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(every_part_once_and_never_too_many_held);
    RUN(a_vee_turns_at_the_last_stage);
    RUN(orders_know_the_way_to_the_neighbours);
    RUN(without_a_barrier_the_way_in_is_paid_once);
    RUN(actions_cost_what_their_kernels_take);
    RUN(nothing_deadlocks_or_is_read_too_late);
    RUN(split_backward_does_the_same_work);
    RUN(bubbles_are_those_of_the_paper);
    RUN(stages_go_on_with_the_next_step);
    RUN(dualpipe_has_the_bubble_its_authors_tell);
    RUN(chunks_may_be_empty);
    RUN(recomputation_saves_memory_here_too);
    return check_report();
}
