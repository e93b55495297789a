/*
 * Holistic Trace Analysis' rules one by one; its figures for the real traces where
 * ../shared/data/traces stands beside the repository.
 */
#include "core/json.h"
#include "profile/hta.h"
#include "tests/check.h"
#include "tests/real_traces.h"
#include "tests/trace_world.h"

/* ---- rules ---- */

static Hta find(World *w, const int64_t *base_ns, bool include_last)
{
    Hta h;
    Covers covers;
    timeline_seal(&w->t);
    covers_build(&covers, &w->t);
    hta_find(&h, &w->t, &covers, base_ns, NULL, include_last);
    covers_free(&covers);
    return h;
}

static void whole_microseconds_are_not_rounded(void)
{
    World w = { 0 };
    uint32_t gpu = world_stream(&w, 0, 7), comm = world_stream(&w, 0, 20);
    world_span(&w, gpu, SPAN_COMPUTE, "gemm", 1000, 11500); /* an end may be fractional */
    world_span(&w, comm, SPAN_COMM, "ncclDevKernel_AllReduce", 6000, 21000);
    world_span(&w, gpu, SPAN_MEMORY, "Memcpy HtoD", 31000, 36000);
    Hta h = find(&w, NULL, false);
    CHECK_INT(35, h.ranks[0].kernel_time_us);
    CHECK_INT(15, h.ranks[0].comm_us);
    CHECK_INT(10, h.ranks[0].idle_us);
    CHECK_U64(3, h.ranks[0].gpu_rows);
    CHECK_INT(5, h.type_us[COVER_MEMORY]);
    hta_free(&h);
    world_free(&w);
}

/* From 1.2 to 4.9 is 2 to 4; from 4.2 to 4.9 is 5 to 4: -1. */
static void fractions_round_inwards(void)
{
    World w = { 0 };
    uint32_t gpu = world_stream(&w, 0, 7);
    world_span(&w, gpu, SPAN_COMPUTE, "a", 1200, 4900);
    world_span(&w, gpu, SPAN_COMPUTE, "b", 9200, 9900);
    Hta h = find(&w, NULL, false);
    CHECK_INT(10 - 1 - 2, h.ranks[0].kernel_time_us);
    CHECK_INT(2 - 1, h.ranks[0].compute_us);
    hta_free(&h);
    world_free(&w);
}

/* Since 1970 a double has quarters of microseconds: .9 becomes 1.0 and is not rounded up. */
static void starts_are_doubles(void)
{
    static const int64_t epoch = (int64_t)1712195495000000 * 1000;
    for (int i = 0; i < 2; i++) {
        World w = { 0 };
        uint32_t gpu = world_stream(&w, 0, 7);
        world_span(&w, gpu, SPAN_COMPUTE, "a", epoch + 1050, epoch + 9000);
        int64_t base_ns[] = { i ? epoch : 0 };
        Hta h = find(&w, base_ns, false);
        CHECK_INT(i ? 9 - 2 : 9 - 1, h.ranks[0].kernel_time_us);
        hta_free(&h);
        world_free(&w);
    }
}

static void names_decide_what_a_kernel_is(void)
{
    static const struct {
        const char *name;
        int mask;
    } rows[] = { { "ncclKernel_AllReduce_RING", COVER_COMM },
                 { "void ncclKernel_SendRecv", COVER_COMM },
                 { "hipMemcpyAsync", COVER_COMM },
                 { "deep_ep::internode::dispatch", COVER_COMPUTE },
                 { "Memset (Device)", COVER_MEMORY },
                 { "my_dma_kernel", 0 },
                 { "Context Sync", 0 },
                 { "ampere_gemm", COVER_COMPUTE } };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        World w = { 0 };
        world_span(&w, world_stream(&w, 0, 7), SPAN_COMPUTE, rows[i].name, 0, 5000);
        Hta h = find(&w, NULL, false);
        CHECK_U64(1, h.ranks[0].gpu_rows);
        for (int mask = 1; mask < COVER_MASKS; mask++)
            CHECK_INT(mask == rows[i].mask ? 5 : 0, h.type_us[mask]);
        hta_free(&h);
        world_free(&w);
    }
}

static void the_last_step_is_dropped_unless_asked_for(void)
{
    for (int last = 0; last < 2; last++) {
        World w = { 0 };
        timeline_want(&w.t, true, false);
        uint32_t gpu = world_stream(&w, 0, 7), host = world_host(&w, 0);
        uint32_t steps = timeline_track(&w.t, 0, TRACK_STEPS, "steps", 0);
        for (int64_t i = 0; i < 3; i++) {
            char name[32];
            int64_t at = 100000 * i;
            snprintf(name, sizeof name, "ProfilerStep#%d", (int)i);
            world_span(&w, steps, SPAN_STEP, name, at, at + 100000);
            uint64_t call =
                world_span(&w, host, SPAN_LAUNCH, "cudaLaunchKernel", at, at + 1000);
            uint64_t run = world_span(&w, gpu, SPAN_COMPUTE, "k", at + 5000, at + 15000);
            w.t.correlation[call] = w.t.correlation[run] = (uint64_t)i;
        }
        world_span(&w, gpu, SPAN_COMPUTE, "launched before", 500, 600);
        Hta h = find(&w, NULL, last);
        CHECK_INT(3, h.steps_n);
        CHECK_U64(last ? 3 : 2, h.ranks[0].gpu_rows);
        CHECK_U64(last ? 1 : 2, h.left_out_n);
        CHECK_INT(last ? 30 : 20, h.ranks[0].compute_us);
        hta_free(&h);
        world_free(&w);
    }
}

static void without_rows_there_are_no_shares(void)
{
    World w = { 0 };
    world_host(&w, 0);
    Hta h = find(&w, NULL, false);
    CHECK_INT(0, h.ranks[0].kernel_time_us);
    CHECK(isnan(h.ranks[0].idle_pct) && isnan(h.ranks[0].overlap_pct));
    hta_free(&h);
    world_free(&w);
}

static void types_have_names(void)
{
    char text[128];
    CHECK_STR("COMPUTATION overlapping COMMUNICATION overlapping MEMORY",
              hta_type_text(text, sizeof text, 7));
    CHECK_STR("MEMORY", hta_type_text(text, sizeof text, COVER_MEMORY));
}

/* ---- real traces ---- */

static double number_of(JsonNode node, const char *key)
{
    JsonNode x = json_member(node, key);
    return json_type(x) == JSON_NUMBER ? json_value(x) : NAN;
}

static void check_number(const char *what, uint32_t rank, const char *key, double expect,
                         double got)
{
    char place[160];
    snprintf(place, sizeof place, "%s rank %u %s", what, rank, key);
    check_true((isnan(expect) && isnan(got)) || expect == got, CHECK_HERE(place));
    if (expect != got && !(isnan(expect) && isnan(got)))
        fprintf(stderr, "    %s: %.17g, not %.17g\n", place, got, expect);
}

static void check_hta(const RealTrace *trace, const TraceSet *set, JsonNode expected,
                      const char *key, bool include_last)
{
    Covers covers;
    Hta h;
    int64_t base_ns[REAL_FILES_MAX] = { 0 };
    covers_build(&covers, &set->timeline);
    for (uint32_t i = 0; i < covers.n && i < REAL_FILES_MAX; i++)
        base_ns[i] = file_of_rank(set, covers.rank[i].rank)->info.base_ns;
    hta_find(&h, &set->timeline, &covers, base_ns, NULL, include_last);
    CHECK_INT((int64_t)number_of(expected, "profiler_steps"), h.steps_n);
    for (uint32_t i = 0; i < h.ranks_n; i++) {
        const HtaRank *r = &h.ranks[i];
        char rank[16];
        snprintf(rank, sizeof rank, "%u", r->rank);
        JsonNode e = json_member(json_member(expected, key), rank);
        const struct {
            const char *key;
            double got;
        } rows[] = { { "idle_us", (double)r->idle_us },
                     { "compute_us", (double)r->compute_us },
                     { "non_compute_us", (double)r->non_compute_us },
                     { "kernel_time_us", (double)r->kernel_time_us },
                     { "comm_us", (double)r->comm_us },
                     { "overlap_us", (double)r->overlap_us },
                     { "idle_pct", r->idle_pct },
                     { "compute_pct", r->compute_pct },
                     { "non_compute_pct", r->non_compute_pct },
                     { "overlap_pct", r->overlap_pct },
                     { "gpu_rows", (double)r->gpu_rows } };
        for (size_t k = 0; k < ARRAY_N(rows); k++)
            check_number(trace->name, r->rank, rows[k].key, number_of(e, rows[k].key),
                         rows[k].got);
    }
    JsonNode types = json_member(expected, "hta_kernel_type_us_default");
    for (int mask = 1; mask < COVER_MASKS && !include_last; mask++) {
        char text[128];
        double expect = number_of(types, hta_type_text(text, sizeof text, mask));
        check_number(trace->name, 0, text, isnan(expect) ? 0 : expect, (double)h.type_us[mask]);
    }
    hta_free(&h);
    covers_free(&covers);
}

static void figures_of_real_traces_are_htas(void)
{
    Err err = { 0 };
    JsonDoc *doc = real_expected(&err);
    for (size_t i = 0; doc && i < REAL_TRACES_N; i++) {
        TraceSet set;
        if (!CHECK(real_read(&set, &real_traces[i], &err)))
            break;
        JsonNode expected =
            json_member(json_member(json_root(doc), "kineto"), real_traces[i].name);
        check_hta(&real_traces[i], &set, expected, "hta_default", false);
        check_hta(&real_traces[i], &set, expected, "hta_include_last", true);
        trace_set_free(&set);
    }
    json_close(doc);
}

int main(void)
{
    RUN(whole_microseconds_are_not_rounded);
    RUN(fractions_round_inwards);
    RUN(starts_are_doubles);
    RUN(names_decide_what_a_kernel_is);
    RUN(the_last_step_is_dropped_unless_asked_for);
    RUN(without_rows_there_are_no_shares);
    RUN(types_have_names);
    RUN(figures_of_real_traces_are_htas);
    return check_report();
}
