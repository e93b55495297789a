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

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(traces_of_the_examples_pass_the_schema);
    RUN(traces_of_all_ranks_pass_the_schema);
    return check_report();
}
