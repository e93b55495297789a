/* From scenario to trace file: what Perfetto is given is whole and nests. */
#include "tests/built.h"
#include "tests/chrome_check.h"
#include "traces/chrome_write.h"

#include <unistd.h>

static bool trace_of(const char *scenario, bool expand_ranks, Timeline *t)
{
    Built b;
    SimResult r = { 0 };
    Err err = { 0 };
    bool ok = built_read(&b, scenario, NULL, 0) && built_trace(t, &r, &b, expand_ranks);
    CHECK(!ok || timeline_check(t, &err));
    CHECK(!ok || r.step_ns == timeline_end_ns(t));
    sim_result_free(&r);
    built_free(&b);
    return ok;
}

/* Kernels of one stream never overlap: a stream is in order. */
static void check_streams(const Timeline *t)
{
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        const Track *track = &t->tracks[k];
        int64_t end_ns = INT64_MIN;
        if (track->kind != TRACK_STREAM)
            continue;
        for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
            CHECK(t->start_ns[i] >= end_ns);
            end_ns = t->start_ns[i] + t->dur_ns[i];
        }
    }
}

static void check_scenario(const char *scenario, bool expand_ranks)
{
    Timeline t = { 0 };
    if (!trace_of(scenario, expand_ranks, &t))
        return;
    check_streams(&t);
    char path[] = P_tmpdir "/lockstep-trace-XXXXXX.json";
    int fd = mkstemps(path, 5);
    Err err = { 0 };
    ChromeFacts facts = { 0 };
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK(chrome_write(&t, path, &err));
    if (!CHECK(chrome_check_file(path, &facts, &err)))
        fprintf(stderr, "%s: %s\n", scenario, err.text);
    unlink(path);
    timeline_free(&t);
}

static void traces_of_the_examples_pass_the_schema(void)
{
    check_scenario("scenarios/examples/llama3-8b-ddp.json", false);
    check_scenario("scenarios/examples/llama3-8b-fsdp.json", false);
    check_scenario("scenarios/examples/llama3-8b-tp.json", false);
    check_scenario("scenarios/examples/resnet50-ddp.json", false);
    check_scenario("scenarios/examples/toy-mlp-ddp.json", false);
}

static void traces_of_all_ranks_pass_the_schema(void)
{
    check_scenario("scenarios/examples/llama3-8b-tp.json", true);
}

/* A collective's ends, by its group and number: how many there are, and one of them. */
static uint32_t ends_of(const Timeline *t, const Comm *c, uint64_t *span)
{
    uint32_t n = 0;
    for (uint64_t i = 0; i < t->spans_n; i++) {
        const Comm *other = timeline_comm_of(t, i);
        if (other && other->peer == NONE_U32 && other->group == c->group &&
            other->group_id == c->group_id && other->seq == c->seq)
            *span = i, n++;
    }
    return n;
}

static void check_numbers(const Timeline *t)
{
    uint32_t collectives_n = 0;
    for (uint64_t i = 0; i < t->spans_n; i++) {
        const Comm *c = timeline_comm_of(t, i);
        uint64_t other = i;
        if (!c || c->peer != NONE_U32)
            continue;
        collectives_n++;
        CHECK_U64(c->ranks_n, ends_of(t, c, &other));
        CHECK(t->span_name[i] == t->span_name[other]);
    }
    CHECK(collectives_n > 0);
}

/* The middle stage is not in the group of the tied table, which is reduced on the lane of the
 * gradients' norm before it; and parameters are gathered beside gradients that are scattered. */
static void all_members_give_a_collective_one_number(void)
{
    static const char *const splits[] = { "{\"pp\":3}",
                                          "{\"strategy\":\"fsdp\",\"dp\":2,\"pp\":3}",
                                          "{\"tp\":2,\"pp\":3}" };
    for (size_t i = 0; i < ARRAY_N(splits); i++) {
        const Setting settings[] = {
            { "model", "{\"kind\":\"transformer\",\"layers\":4,\"hidden\":32,\"heads\":2,"
                       "\"vocab\":64,\"tied_embeddings\":true}" },
            { "training", "{\"global_batch\":4,\"seq_len\":16,\"grad_clip\":1}" },
            { "software", "lockstep" },
            { "parallel", splits[i] },
        };
        Built b;
        SimResult r = { 0 };
        Timeline t = { 0 };
        if (built_read(&b, "scenarios/examples/gpt2-ddp.json", settings, ARRAY_N(settings)) &&
            built_trace(&t, &r, &b, true))
            check_numbers(&t);
        sim_result_free(&r);
        timeline_free(&t);
        built_free(&b);
    }
}

/* ---- what kernels are of the model ---- */

static bool trace_of_stack(const char *scenario, const Setting *settings, uint32_t n,
                           Timeline *t)
{
    Built b;
    SimResult r = { 0 };
    bool ok = built_read(&b, scenario, settings, n) && built_trace(t, &r, &b, false);
    sim_result_free(&r);
    built_free(&b);
    return ok;
}

/* A span of t that does that logical op on that rank; NONE_U64. */
static uint64_t span_that_does(const Timeline *t, uint32_t rank, uint64_t instance, uint32_t op)
{
    for (uint64_t i = 0; i < t->spans_n; i++) {
        LogicalOps of = timeline_logical_of(t, i);
        bool here = of.instance == instance && t->tracks[t->span_track[i]].rank == rank;
        for (uint32_t k = 0; here && k < of.n; k++)
            if (of.op[k] == op)
                return i;
    }
    return NONE_U64;
}

/* What one stack does, the other does in its forward and backward passes, in whatever kernels. */
static void two_stacks_do_the_same_logical_ops(void)
{
    static const char scenario[] = "scenarios/examples/gpt2-ddp.json";
    static const Setting generic[] = { { "training.global_batch", "96" } };
    static const Setting lockstep[] = { { "training.global_batch", "96" },
                                        { "software", "lockstep" } };
    Timeline a = { 0 }, b = { 0 };
    uint32_t several_n = 0, unknown_n = 0;
    if (CHECK(trace_of_stack(scenario, generic, 1, &a) &&
              trace_of_stack(scenario, lockstep, 2, &b))) {
        for (uint64_t i = 0; i < a.spans_n; i++) {
            LogicalOps of = timeline_logical_of(&a, i);
            bool kernel = a.span_class[i] <= SPAN_MEMORY;
            CHECK(kernel == (of.n > 0));
            several_n += of.n > 1;
            for (uint32_t k = 0; k < of.n; k++)
                unknown_n += span_that_does(&b, 0, of.instance, of.op[k]) == NONE_U64;
        }
        CHECK(several_n > 0);
        CHECK_INT(0, unknown_n);
    }
    timeline_free(&a);
    timeline_free(&b);
}

/* Context parallelism over 4 in a ring: each gather of keys and values is 3 steps. */
static void steps_of_a_ring_are_said_to_be_such(void)
{
    static const Setting settings[] = { { "parallel.dp", "2" }, { "parallel.cp", "4" } };
    Timeline t = { 0 };
    uint32_t steps_n = 0, others_n = 0;
    if (CHECK(trace_of_stack("scenarios/examples/llama3-8b-fsdp.json", settings, 2, &t)))
        for (uint32_t i = 0; i < t.comms_n; i++) {
            bool cp = strcmp(timeline_text(&t, t.comms[i].group), "cp") == 0;
            steps_n += cp;
            others_n += !cp;
            CHECK_INT(cp ? 3 : 0, timeline_ring_steps(&t, &t.comms[i]));
        }
    CHECK(steps_n > 0 && steps_n % 3 == 0 && others_n > 0);
    timeline_free(&t);
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(traces_of_the_examples_pass_the_schema);
    RUN(traces_of_all_ranks_pass_the_schema);
    RUN(all_members_give_a_collective_one_number);
    RUN(two_stacks_do_the_same_logical_ops);
    RUN(steps_of_a_ring_are_said_to_be_such);
    return check_report();
}
