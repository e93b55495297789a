/*
 * test_zero_bubble.c - schedules that do weight gradients apart: orders, lives, lengths.
 *
 * Graphs are those of real models, so the split of backward is that of segments.c; what holds
 * for every graph is asked of them (tests/graph_check.h), and lengths are closed forms.
 */
#include "sim/strategy/schedule.h"
#include "tests/built.h"
#include "tests/graph_check.h"

enum { PP_MAX = 8, M_MAX = 24 };

static const Schedule zero_bubble[] = { SCHEDULE_ZB_H1, SCHEDULE_ZB_1P, SCHEDULE_ZB_2P,
                                        SCHEDULE_ZBV };

/* ---- orders ---- */

static const ActionCosts even[PP_MAX] = { { { 10, 10, 10 } }, { { 10, 10, 10 } },
                                          { { 10, 10, 10 } }, { { 10, 10, 10 } },
                                          { { 10, 10, 10 } }, { { 10, 10, 10 } },
                                          { { 10, 10, 10 } }, { { 10, 10, 10 } } };

static uint32_t turns_of(Schedule schedule)
{
    return schedule == SCHEDULE_ZBV ? 2 : 1;
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
                SchedulePlan plan = { zero_bubble[k], pp, turns, m, even };
                uint32_t n = schedule_actions_n(&plan);
                bool twice = zero_bubble[k] == SCHEDULE_ZB_2P || turns == 2;
                schedule_actions(&plan, all);
                for (uint32_t stage = 0; stage < pp; stage++)
                    CHECK(most_held(all + (size_t)stage * n, n, m, turns) <=
                          (twice ? 2 : 1) * pp);
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
             "\"cluster\":{\"base\":\"ideal\",\"nodes\":1,\"gpus_per_node\":%u},"
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
                             { SCHEDULE_ZBV, (pp - 1) * f / 2 } };
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

/* Chunks without a layer pass on what they get, to another stage or to the next chunk on theirs. */
static void chunks_may_be_empty(void)
{
    static const char *const schedules[] = { "1f1b", "interleaved", "zb-h1", "zb-2p", "zbv" };
    uint32_t seed = 1;
    double all = 0;
    for (uint32_t k = 0; k < 20 * ARRAY_N(schedules); k++) {
        const char *schedule = schedules[k % ARRAY_N(schedules)];
        bool two = strcmp(schedule, "zbv") == 0 || strcmp(schedule, "interleaved") == 0;
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
                                     { "training.global_batch", "8" } };
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

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(every_part_once_and_never_too_many_held);
    RUN(a_vee_turns_at_the_last_stage);
    RUN(nothing_deadlocks_or_is_read_too_late);
    RUN(split_backward_does_the_same_work);
    RUN(bubbles_are_those_of_the_paper);
    RUN(chunks_may_be_empty);
    return check_report();
}
