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

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(traces_of_the_examples_pass_the_schema);
    RUN(traces_of_all_ranks_pass_the_schema);
    RUN(all_members_give_a_collective_one_number);
    return check_report();
}
