/*
 * Reports on whole traces: simulated ones against what the simulator says itself,
 * recorded ones against reference figures, altered copies against the originals.
 */
#include "core/json.h"
#include "profile/cmd_report_html.h"
#include "profile/compare_parts.h"
#include "profile/steps.h"
#include "profile/trace_report.h"
#include "sim/report.h"
#include "tests/built.h"
#include "tests/real_traces.h"
#include "tests/trace_world.h"
#include "viz/theme.h"

static const TraceReportOptions everything = { .step = -1, .top = 5 };

static bool make(TraceReport *r, const Timeline *t)
{
    static const TraceSource source = { .name = "test", .files_n = 1 };
    Err err = { 0 };
    return CHECK(trace_report_make(r, t, &source, &everything, &err));
}

/* ---- recorded ---- */

static void check_ns(JsonNode expected, const char *key, int64_t got)
{
    CHECK_INT((int64_t)json_value(json_member(expected, key)), got);
}

/*
 * The reference subtracted starts as doubles, which since 1970 have 256 ns: its spans of
 * the two traces with fractional microseconds are 1 and 36 ns too long.  In decimals,
 * 985,358.440 + 253.727 - 505,582.988 us is 480,029,179 ns, where it has 480,029,215.
 */
static void check_span(JsonNode expected, const char *key, int64_t got, bool fractional)
{
    int64_t expect = (int64_t)json_value(json_member(expected, key));
    CHECK(llabs(expect - got) <= (fractional ? 36 : 0));
}

/* What every reference has. */
static void check_times(JsonNode e, const Metrics *m)
{
    JsonNode n = json_member(e, "n");
    check_ns(e, "busy_ns", m->busy_ns);
    check_ns(e, "compute_ns", m->compute_ns);
    check_ns(e, "memory_ns", m->memory_ns);
    check_ns(e, "comm_ns", m->comm_ns);
    check_ns(e, "overlap_comm_comp_ns", m->overlapped_ns);
    check_ns(e, "exposed_comm_ns", m->exposed_comm_ns);
    check_ns(n, "compute", (int64_t)m->compute_kernels);
    check_ns(n, "comm", (int64_t)m->comm_kernels);
    check_ns(n, "memory", (int64_t)m->memory_ops);
}

static void check_rank(JsonNode clean, const Cover *c)
{
    char rank[16];
    snprintf(rank, sizeof rank, "%u", c->rank);
    JsonNode e = json_member(clean, rank);
    Metrics m = metrics_of_rank(c);
    CHECK(json_type(e) == JSON_OBJECT);
    bool fractional = m.busy_ns % 1000 != 0;
    check_span(e, "span_ns", m.span_ns, fractional);
    check_span(e, "idle_ns", m.idle_ns, fractional);
    check_ns(e, "exposed_comm_vs_compute_and_memcpy_ns", m.exposed_comm_vs_memory_ns);
    check_times(e, &m);
    JsonNode pct = json_member(e, "overlap_pct_of_comm");
    double got = metrics_overlap_pct(&m);
    CHECK(json_type(pct) == JSON_NUMBER ? fabs(json_value(pct) - got) <= 0.0005001
                                        : isnan(got));
}

static void figures_of_real_traces_are_exact(void)
{
    Err err = { 0 };
    JsonDoc *doc = real_expected(&err);
    for (size_t i = 0; doc && i < REAL_TRACES_N; i++) {
        TraceSet set;
        Covers covers;
        if (!CHECK(real_read(&set, &real_traces[i], &err)))
            break;
        JsonNode of = json_member(json_member(json_root(doc), "kineto"), real_traces[i].name);
        covers_build(&covers, &set.timeline);
        CHECK_INT((int64_t)set.files_n, covers.n);
        for (uint32_t r = 0; r < covers.n; r++)
            check_rank(json_member(of, "clean"), &covers.rank[r]);
        covers_free(&covers);
        trace_set_free(&set);
    }
    json_close(doc);
}

/* Nsight's exports: every total of expected.json, by device, to the nanosecond. */
static void check_nsys(JsonNode e, const Cover *c)
{
    Metrics m = metrics_of_rank(c);
    CHECK(json_type(e) == JSON_OBJECT);
    check_ns(e, "span_ns", m.span_ns);
    check_ns(e, "idle_ns", m.idle_ns);
    check_times(e, &m);
    CHECK_INT(JSON_NULL, json_type(json_member(e, "overlap_pct_of_comm")));
    CHECK(isnan(metrics_overlap_pct(&m)));
}

/* Of all spans of a class, overlapping or not. */
static int64_t class_sum_ns(const Timeline *t, SpanClass class_)
{
    int64_t sum = 0;
    for (uint64_t i = 0; i < t->spans_n; i++)
        sum += t->span_class[i] == class_ ? t->dur_ns[i] : 0;
    return sum;
}

static void totals_of_nsight_traces_are_exact(void)
{
    Err err = { 0 };
    JsonDoc *doc = real_expected(&err);
    JsonNode all = doc ? json_member(json_root(doc), "nsys") : (JsonNode){ 0 };
    size_t files_n = doc ? json_items_n(all) : 0;
    CHECK(!doc || files_n == 2);
    for (size_t i = 0; i < files_n; i++) {
        const char *name = json_key(all, i);
        char path[300];
        const char *paths[] = { path };
        TraceSet set = { 0 };
        Covers covers;
        snprintf(path, sizeof path, REAL_FOLDER "%s.gz", name);
        if (!CHECK(trace_set_read(&set, paths, 1, NULL, &err))) {
            fprintf(stderr, "    %s\n", err.text);
            break;
        }
        JsonNode e = json_member(json_member(all, name), "dev0");
        covers_build(&covers, &set.timeline);
        CHECK_INT(1, covers.n);
        CHECK_U64(1, json_items_n(json_member(all, name)));
        check_nsys(e, &covers.rank[0]);
        check_ns(e, "compute_sum_ns", class_sum_ns(&set.timeline, SPAN_COMPUTE));
        check_ns(e, "comm_sum_ns",
                 class_sum_ns(&set.timeline, SPAN_COMM) +
                     class_sum_ns(&set.timeline, SPAN_P2P));
        covers_free(&covers);
        trace_set_free(&set);
    }
    json_close(doc);
}

static int64_t gaps_ns_of(const TraceReport *r, uint32_t rank)
{
    int64_t ns = 0;
    for (int k = 0; k < GAP_KIND_N; k++)
        ns += r->gaps.ranks[rank].ns[k];
    return ns;
}

/* One definition of a step (steps.h): for each rank the same window, with the same work in it. */
static void check_step(const Timeline *t, const char *name, int64_t step)
{
    static const TraceSource source = { .name = "test", .files_n = 1 };
    TraceReportOptions o = everything;
    TraceReport r;
    Side side;
    Arena arena = { 0 };
    Err err = { 0 };
    o.step = step;
    if (!CHECK(side_open(&side, t, name, step, &arena, &err)) ||
        !CHECK(trace_report_make(&r, t, &source, &o, &err))) {
        arena_free(&arena);
        return;
    }
    bool other = side.step != step; /* nothing works in it, and only one other is there */
    CHECK(!other || r.mean.busy_ns == 0);
    for (uint32_t i = 0; i < side.ranks_n && !other; i++) {
        const SideRank *c = &side.ranks[i];
        uint32_t k = (uint32_t)(covers_of_rank(&r.covers, c->rank) - r.covers.rank);
        const Metrics *m = &r.metrics[k];
        CHECK_INT(r.from_ns[k], c->begin_ns);
        CHECK_INT(r.to_ns[k] - r.from_ns[k], c->length_ns);
        CHECK_INT(m->span_ns, c->length_ns);
        if (r.covers.rank[k].n > 0)
            CHECK_INT(m->idle_ns, gaps_ns_of(&r, k));
        CHECK_U64(m->compute_kernels + m->comm_kernels + m->memory_ops, c->ops_n);
    }
    trace_report_free(&r);
    arena_free(&arena);
}

static void check_steps(const Timeline *t, const char *name)
{
    StepWindows w;
    step_windows_in_gpu_time(&w, t);
    for (uint32_t k = 0; k < w.n && w.at[k].rank == w.at[0].rank; k++)
        if (w.at[k].step >= 0)
            check_step(t, name, w.at[k].step);
    step_windows_free(&w);
}

static void report_and_compare_cut_the_same_steps(void)
{
    Err err = { 0 };
    for (size_t i = 0; real_traces_are_here() && i < REAL_TRACES_N; i++) {
        TraceSet set;
        if (!CHECK(real_read(&set, &real_traces[i], &err)))
            break;
        check_steps(&set.timeline, real_traces[i].name);
        trace_set_free(&set);
    }
}

/* Of the whole trace, then of each of its steps. */
static void gaps_of_a_recorded_step_are_all_its_idle_time(void)
{
    static const char *const samples[] = { "traces/samples/gpt2.lstrace",
                                           "traces/samples/tinyllama-1.1b.lstrace" };
    static const TraceSource source = { .name = "test", .files_n = 1 };
    enum { STEPS = 4 };
    Err err = { 0 };
    for (size_t i = 0; i < ARRAY_N(samples); i++) {
        TraceSet set;
        if (!CHECK(trace_set_read(&set, &samples[i], 1, NULL, &err)))
            break;
        TraceReportOptions o = everything;
        for (o.step = -1; o.step < STEPS; o.step++) {
            TraceReport r;
            if (!CHECK(trace_report_make(&r, &set.timeline, &source, &o, &err)))
                break;
            CHECK(r.metrics[0].idle_ns > 0);
            CHECK_INT(r.metrics[0].idle_ns, gaps_ns_of(&r, 0));
            trace_report_free(&r);
        }
        trace_set_free(&set);
    }
}

/* Within the microsecond that the traces have. */
static void check_us(double expect_us, int64_t got_ns)
{
    CHECK(fabs(1000 * expect_us - (double)got_ns) <= 1000);
}

static void check_ns_of_us(JsonNode e, const char *key, int64_t got_ns)
{
    CHECK_INT(1000 * (int64_t)json_value(json_member(e, key)), got_ns);
}

static void check_cross_rank(JsonNode e, const TraceReport *r)
{
    const Collectives *c = &r->collectives;
    JsonNode comm = json_member(e, "comm_us"), wait = json_member(e, "wait_us");
    CHECK_INT((int64_t)json_value(json_member(e, "n")), (int64_t)c->matches_n);
    CHECK_U64(0, c->unmatched_n);
    check_ns_of_us(e, "max_end_spread_us", c->residual_max_ns);
    check_us(json_value(json_member(e, "min_over_ranks_sum_us")), c->transfer_ns);
    for (uint32_t i = 0; i < c->ranks_n; i++) {
        check_us(json_value(json_item(comm, i)), c->ranks[i].total_ns);
        check_us(json_value(json_item(wait, i)), c->ranks[i].early_ns);
        CHECK_INT(c->ranks[i].total_ns, c->ranks[i].wait_ns + c->ranks[i].transfer_ns);
        CHECK_INT(c->transfer_ns, c->ranks[i].transfer_ns);
    }
}

static void waiting_across_real_ranks_is_exact(void)
{
    Err err = { 0 };
    JsonDoc *doc = real_expected(&err);
    for (size_t i = 0; doc && i < 2; i++) {
        TraceSet set;
        TraceReport r;
        if (!CHECK(real_read(&set, &real_traces[i], &err)) || !make(&r, &set.timeline))
            break;
        JsonNode e =
            json_member(json_member(json_root(doc), "cross_rank"), real_traces[i].name);
        check_cross_rank(e, &r);
        JsonNode big = json_member(e, "allreduce_64MiB_f16");
        const CollRow *row = &r.collectives.rows[0];
        if (json_type(big) == JSON_OBJECT) {
            CHECK_U64((uint64_t)json_value(json_member(big, "n")), row->count);
            CHECK_U64(64 * MIB, row->bytes);
            CHECK_INT(1000 * (int64_t)json_value(json_member(big, "median_min_over_ranks_us")),
                      row->transfer_median_ns);
            CHECK(fabs(json_value(json_member(big, "algbw_GBps")) - row->algbw_GBps) < 0.05);
            CHECK(fabs(json_value(json_member(big, "busbw_GBps")) - row->busbw_GBps) < 0.05);
        }
        trace_report_free(&r);
        trace_set_free(&set);
    }
    json_close(doc);
}

/* ---- altered copies ---- */

typedef enum Change { CHANGE_NONE, CHANGE_SHIFT, CHANGE_SCALE, CHANGE_FORGET } Change;

enum { SECOND = 1000000000, SCALE = 3, SHIFTED = 1 };

/* Tracks and spans anew: rank SHIFTED a second later, all times scaled, or all Comms gone. */
static void copy(Timeline *to, const Timeline *from, Change change)
{
    for (uint32_t k = 0; k < from->tracks_n; k++) {
        const Track *track = &from->tracks[k];
        timeline_track(to, track->rank, track->kind, timeline_text(from, track->name),
                       track->sort);
    }
    for (uint64_t i = 0; i < from->spans_n; i++) {
        uint32_t rank = from->tracks[from->span_track[i]].rank;
        int64_t start_ns = from->start_ns[i] - from->begin_ns, dur_ns = from->dur_ns[i];
        const Comm *m = timeline_comm_of(from, i);
        uint32_t comm = NONE_U32;
        if (m && change != CHANGE_FORGET) {
            Comm c = *m;
            c.op = intern(&to->names, timeline_text(from, m->op));
            c.group = m->group == NONE_U32 ? NONE_U32
                                           : intern(&to->names, timeline_text(from, m->group));
            c.dtype = c.algorithm = c.protocol = NONE_U32;
            c.launch = 0;
            comm = timeline_comm(to, c);
        }
        start_ns += change == CHANGE_SHIFT && rank == SHIFTED ? SECOND : 0;
        int64_t scale = change == CHANGE_SCALE ? SCALE : 1;
        timeline_span(
            to, (Span){ .track = from->span_track[i],
                        .name = intern(&to->names, timeline_text(from, from->span_name[i])),
                        .class_ = (SpanClass)from->span_class[i],
                        .start_ns = scale * start_ns,
                        .dur_ns = scale * dur_ns,
                        .op = from->op[i],
                        .comm = comm });
    }
    timeline_seal(to);
}

static void check_copy(const TraceReport *a, const TraceReport *b, Change change)
{
    int64_t scale = change == CHANGE_SCALE ? SCALE : 1;
    CHECK_U64(a->collectives.matches_n, b->collectives.matches_n);
    CHECK_INT(scale * a->collectives.transfer_ns, b->collectives.transfer_ns);
    CHECK_INT(scale * a->mean.span_ns / scale, b->mean.span_ns / scale);
    for (uint32_t i = 0; i < a->covers.n; i++) {
        const CollRank *x = &a->collectives.ranks[i], *y = &b->collectives.ranks[i];
        int64_t moved = change == CHANGE_SHIFT && i == SHIFTED ? SECOND : 0;
        CHECK_INT(scale * a->metrics[i].exposed_comm_ns, b->metrics[i].exposed_comm_ns);
        CHECK_INT(scale * a->metrics[i].overlapped_ns, b->metrics[i].overlapped_ns);
        CHECK_INT(scale * x->wait_ns, y->wait_ns);
        CHECK_INT(scale * x->offset_ns + moved, y->offset_ns);
        CHECK_U64(x->last_n, y->last_n);
        CHECK_INT(scale * x->waited_ns / 1000 / scale, y->waited_ns / 1000 / scale);
    }
    CHECK_INT(change == CHANGE_SHIFT, b->collectives.clocks_differ);
    if (change == CHANGE_SHIFT) /* small offsets go too */
        CHECK(b->collectives.residual_max_ns <= a->collectives.residual_max_ns);
    else
        CHECK_INT(scale * a->collectives.residual_ns, b->collectives.residual_ns);
}

static void altered_copies_of_a_real_trace_say_the_same(void)
{
    Err err = { 0 };
    TraceSet set;
    TraceReport original;
    if (!real_traces_are_here() || !CHECK(real_read(&set, &real_traces[1], &err)) ||
        !make(&original, &set.timeline))
        return;
    for (Change change = CHANGE_NONE; change <= CHANGE_FORGET; change++) {
        Timeline t = { 0 };
        TraceReport r;
        copy(&t, &set.timeline, change);
        if (make(&r, &t)) {
            check_copy(&original, &r, change);
            trace_report_free(&r);
        }
        timeline_free(&t);
    }
    trace_report_free(&original);
    trace_set_free(&set);
}

/* ---- simulated ---- */

typedef struct Simulated {
    Timeline t;
    double exposed_s, overlapped_s, comm_s; /* of rank 0, as the simulator accounts */
} Simulated;

static bool simulate(Simulated *s, const char *path, const Setting *settings, size_t settings_n)
{
    Built b;
    SimResult result = { 0 };
    bool ok = built_read(&b, path, settings, (uint32_t)settings_n) &&
              built_trace(&s->t, &result, &b, true);
    if (ok) {
        RoleMemory *memory = PUSH_ARRAY(&b.arena, RoleMemory, b.g.roles_n);
        Report report = { 0 };
        for (uint32_t i = 0; i < b.g.roles_n; i++)
            memory[i] = memory_of_role(&b.g, &b.g.roles[i], NULL);
        report_fill(&report, &b.s, &b.g, &result, memory, 0);
        s->exposed_s = report.times.exposed_comm_s;
        s->comm_s = report.times.comm_s;
        s->overlapped_s = report.times.overlapped_s;
        report_free(&report);
    }
    sim_result_free(&result);
    built_free(&b);
    return ok;
}

static void check_simulated(const char *path, const Setting *settings, size_t n)
{
    Simulated s = { .exposed_s = 0 };
    TraceReport r;
    if (!simulate(&s, path, settings, n) || !make(&r, &s.t))
        return;
    CHECK_U64(0, r.collectives.unmatched_n);
    for (uint32_t k = 0; k < r.collectives.channels_n; k++)
        CHECK(!r.collectives.channels[k].refusal);
    CHECK_INT(0, r.collectives.clocks_differ);
    for (uint64_t i = 0; i < r.collectives.matches_n; i++) {
        const CollMatch *m = &r.collectives.matches[i];
        const CollPart *parts = &r.collectives.parts[m->part_first];
        if (r.collectives.channels[m->channel].from != NONE_U32)
            continue;
        for (uint32_t k = 0; k < m->parts_n; k++)
            CHECK_INT(m->transfer_ns, s.t.dur_ns[parts[k].span] - parts[k].wait_ns);
    }
    /* What a pipeline's sends and receives wait is bubble there, communication here. */
    bool has_pairs = false;
    for (uint64_t i = 0; i < s.t.spans_n; i++)
        has_pairs |= s.t.span_class[i] == SPAN_P2P;
    CHECK(has_pairs || fabs(s.comm_s - 1e-9 * (double)r.mean.comm_ns) <= 1e-3 * s.comm_s);
    CHECK(has_pairs ||
          fabs(s.exposed_s - 1e-9 * (double)r.mean.exposed_comm_ns) <= 1e-2 * s.comm_s);
    trace_report_free(&r);
    timeline_free(&s.t);
}

static void simulated_traces_match_the_simulator(void)
{
    static const Setting slow[] = {
        { "cluster.stragglers", "[{\"ranks\":[1],\"compute\":0.5}]" },
    };
    static const Setting pipeline[] = {
        { "parallel.pp", "2" },
        { "parallel.dp", "1" },
        { "parallel.schedule", "1f1b" },
        { "training.micro_batch", "8" },
    };
    check_simulated("scenarios/examples/toy-mlp-ddp.json", NULL, 0);
    check_simulated("scenarios/examples/toy-mlp-ddp.json", slow, ARRAY_N(slow));
    check_simulated("scenarios/examples/toy-mlp-ddp.json", pipeline, ARRAY_N(pipeline));
    check_simulated("scenarios/examples/llama3-8b-tp.json", NULL, 0);
    check_simulated("scenarios/examples/llama3-8b-fsdp.json", NULL, 0);
}

/* ---- folded ---- */

static void check_same_rows(const Collectives *a, const Collectives *b)
{
    CHECK_INT(b->rows_n, a->rows_n);
    for (uint32_t i = 0; i < min_u64(a->rows_n, b->rows_n); i++) {
        const CollRow *x = &a->rows[i], *y = &b->rows[i];
        CHECK_STR(y->name, x->name);
        CHECK_INT(y->matched, x->matched);
        CHECK_U64(y->count, x->count);
        CHECK_INT(y->total_ns, x->total_ns);
        CHECK_INT(y->wait_ns, x->wait_ns);
        CHECK_INT(y->transfer_ns, x->transfer_ns);
        CHECK_INT(y->exposed_ns, x->exposed_ns);
        CHECK_INT(y->transfer_median_ns, x->transfer_median_ns);
    }
}

static void check_same_kernels(const Gaps *a, const Gaps *b)
{
    CHECK_INT(b->kernels_ns, a->kernels_ns);
    CHECK_INT(b->kernels_n, a->kernels_n);
    for (uint32_t i = 0; i < min_u64(a->kernels_n, b->kernels_n); i++) {
        CHECK_U64(b->kernels[i].count, a->kernels[i].count);
        CHECK_INT(b->kernels[i].total_ns, a->kernels[i].total_ns);
    }
}

/* All that is said of all ranks together, and who is waited for most. */
static void check_same_report(const TraceReport *a, const TraceReport *b)
{
    TraceWaiting wait = trace_report_waiting(a), expect = trace_report_waiting(b);
    CHECK(memcmp(&wait, &expect, sizeof wait) == 0);
    CHECK(memcmp(&a->mean, &b->mean, sizeof a->mean) == 0);
    CHECK_U64(b->alike_n, a->alike_n);
    CHECK_U64(b->kernels_n, a->kernels_n);
    CHECK_U64(b->comm_n, a->comm_n);
    check_same_rows(&a->collectives, &b->collectives);
    check_same_kernels(&a->gaps, &b->gaps);
    uint32_t *x = mem_zero(a->covers.n, sizeof *x), *y = mem_zero(b->covers.n, sizeof *y);
    uint32_t n = trace_report_stragglers(a, x);
    CHECK_INT(trace_report_stragglers(b, y) > 0, n > 0);
    if (n > 0) {
        CHECK_INT(b->covers.rank[y[0]].rank, a->covers.rank[x[0]].rank);
        CHECK_INT(b->collectives.ranks[y[0]].waited_ns, a->collectives.ranks[x[0]].waited_ns);
        CHECK_INT(b->collectives.waited_ns, a->collectives.waited_ns);
    }
    CHECK_U64(b->collectives.collectives_n, a->collectives.collectives_n);
    CHECK_INT(b->collectives.transfer_ns, a->collectives.transfer_ns);
    free(x);
    free(y);
}

/* Folded and rank by rank it is one step.  straggler: who is waited for most, or NONE_U32. */
static void check_folded(const char *path, const Setting *settings, uint32_t n,
                         uint32_t straggler)
{
    Built b;
    Timeline t[2] = { { .name = NULL } };
    SimResult result[2] = { 0 };
    TraceReport r[2];
    bool ok = built_read(&b, path, settings, n);
    for (int expand = 0; expand < 2; expand++)
        ok = ok && built_trace(&t[expand], &result[expand], &b, expand) &&
             make(&r[expand], &t[expand]);
    if (ok) {
        uint32_t last[64];
        CHECK(r[0].covers.n < r[1].covers.n);
        check_same_report(&r[0], &r[1]);
        CHECK_INT(straggler != NONE_U32, trace_report_stragglers(&r[0], last) > 0);
        CHECK(straggler == NONE_U32 || r[0].covers.rank[last[0]].rank == straggler);
        for (uint32_t k = 0; k < r[0].collectives.channels_n; k++)
            CHECK(!r[0].collectives.channels[k].refusal);
    }
    for (int k = 0; k < 2 && ok; k++)
        trace_report_free(&r[k]);
    for (int k = 0; k < 2; k++) {
        sim_result_free(&result[k]);
        timeline_free(&t[k]);
    }
    built_free(&b);
}

static void a_folded_trace_says_what_the_expanded_one_does(void)
{
    static const Setting slow[] = {
        { "cluster.stragglers", "[{\"ranks\":[3],\"compute\":0.8}]" },
        { "parallel.dp", "2" },
        { "parallel.tp", "4" },
    };
    const char *fsdp = "scenarios/examples/llama3-8b-fsdp.json";
    check_folded(fsdp, NULL, 0, NONE_U32);
    check_folded(fsdp, slow, 1, 3);
    check_folded(fsdp, slow, ARRAY_N(slow), 3);
    check_folded("scenarios/examples/llama3-8b-ddp.json", slow, 1, 3);
}

/* ---- odd ones ---- */

/* Everything is printed in every form; what comes out is not empty. */
static void print_all(const Timeline *t, const char *expect)
{
    TraceReport r;
    char *text = NULL;
    size_t n = 0;
    if (!make(&r, t))
        return;
    FILE *f = open_memstream(&text, &n);
    trace_report_text(&r, f);
    report_page(&r, f);
    JsonOut j = json_out_file(f, 0);
    trace_report_json(&r, &j);
    Err err = { 0 };
    CHECK(json_out_end(&j, &err));
    fclose(f);
    if (expect && !CHECK(strstr(text, expect) != NULL))
        fprintf(stderr, "    '%s' is not in\n%.1500s\n", expect, text);
    CHECK(!strstr(text, "nan"));
    CHECK(!strstr(text, "inf"));
    free(text);
    trace_report_free(&r);
}

static void odd_traces_get_sentences(void)
{
    World none = { 0 }, host = { 0 }, one = { 0 }, quiet = { 0 }, alone = { 0 };
    timeline_seal(&none.t);
    print_all(&none.t, "the trace has no tracks: there is nothing to measure");
    world_span(&host, world_host(&host, 2), SPAN_HOST, "main", 0, 10);
    timeline_seal(&host.t);
    print_all(&host.t, "rank 2 has no GPU events: nothing can be said of it");
    world_span(&one, world_stream(&one, 0, 7), SPAN_COMPUTE, "k", 5, 5);
    timeline_seal(&one.t);
    print_all(&one.t, "of 1 GPU kernels: NO COMMUNICATION was recognised");
    world_span(&quiet, world_stream(&quiet, 0, 7), SPAN_COMPUTE, "k<&\">\xff", 5, 9);
    timeline_seal(&quiet.t);
    print_all(&quiet.t, "k&lt;&amp;&quot;&gt;&#xfffd;");
    world_comm(&alone, world_stream(&alone, 0, 7),
               (Coll){ .op = "all_reduce", .group = "dp", .seq = 0, .wait_ns = -1 }, 0, 9);
    timeline_seal(&alone.t);
    print_all(&alone.t, "one rank only: what of its communication was waiting");
    world_free(&none);
    world_free(&host);
    world_free(&one);
    world_free(&quiet);
    world_free(&alone);
}

/* ---- pages ---- */

static char *page_of(const Timeline *t)
{
    TraceReport r;
    char *text = NULL;
    size_t n = 0;
    if (!make(&r, t))
        return NULL;
    FILE *f = open_memstream(&text, &n);
    report_page(&r, f);
    fclose(f);
    trace_report_free(&r);
    return text;
}

static void check_has(const char *page, const char *part)
{
    if (!CHECK(strstr(page, part) != NULL))
        fprintf(stderr, "    '%s' is not in\n%.600s\n", part, strstr(page, "aria-label"));
}

/* Pixels of 1000 kernels each: half as high as the strip where the GPU is busy half of the
 * time, and a quarter of it hatched where a quarter is communication. */
static void strips_of_a_page_are_as_full_as_the_gpu_was(void)
{
    enum { PIXELS = 960, EACH = 1000 };
    World w = { 0 };
    uint32_t compute = world_stream(&w, 3, 7), comm = world_stream(&w, 3, 20);
    for (int64_t i = 0; i < PIXELS * EACH; i++) {
        world_span(&w, compute, SPAN_COMPUTE, "k", 8 * i, 8 * i + 4);
        if (i >= PIXELS * EACH / 2)
            world_span(&w, comm, SPAN_COMM, "all_reduce", 8 * i + 4, 8 * i + 6);
    }
    timeline_seal(&w.t);
    char *page = page_of(&w.t);
    check_has(page, "rank 3 over time\">\n"
                    "<path d=\"M0 0h960v28h-960z\" fill=\"var(--idle)\"/>\n"
                    "<path d=\"M0 14h960v14h-960z\" fill=\"var(--compute)\"/>\n");
    check_has(page, "M481 0h479v7h-479z\" fill=\"url(#h0)\"/>\n");
    check_has(page, "<title>rank 3, from 0 s on\ncompute 50.0 %\nidle 50.0 %</title>");
    check_has(page, "\ncompute 50.0 %\nexposed communication 25.0 %\nidle 25.0 %</title>");
    free(page);
    world_free(&w);
}

/* Of a step nothing else is shown, and a rank that is done before the others ends before. */
static void strips_of_a_page_lie_where_their_rank_worked(void)
{
    World w = { 0 };
    world_span(&w, world_stream(&w, 0, 7), SPAN_COMPUTE, "k", 0, 960);
    world_span(&w, world_stream(&w, 1, 7), SPAN_COMPUTE, "k", 240, 720);
    timeline_seal(&w.t);
    char *page = page_of(&w.t);
    check_has(page,
              "rank 0 over time\">\n<path d=\"M0 0h960v28h-960z\" fill=\"var(--idle)\"/>");
    check_has(page,
              "rank 1 over time\">\n<path d=\"M240 0h480v28h-480z\" fill=\"var(--idle)\"/>\n"
              "<path d=\"M240 0h480v28h-480z\" fill=\"var(--compute)\"/>\n");
    check_has(page, ">0.8 \xc2\xb5s</span>");
    free(page);
    world_free(&w);
}

static void pages_have_the_viewers_colours(void)
{
    static const struct {
        TimeClass class_;
        const char *name;
    } shown[] = { { TIME_COMPUTE, "compute" },
                  { TIME_OVERLAPPED, "overlapped" },
                  { TIME_EXPOSED, "exposed" },
                  { TIME_MEMORY, "memory" },
                  { TIME_IDLE, "idle" } };
    World w = { 0 };
    timeline_seal(&w.t);
    char *page = page_of(&w.t), *dark = strstr(page, "@media(prefers-color-scheme:dark)");
    if (!CHECK(dark != NULL))
        return;
    for (size_t i = 0; i < ARRAY_N(shown); i++) {
        char light_color[64], dark_color[64];
        snprintf(light_color, sizeof light_color, "--%s:#%06x", shown[i].name,
                 (unsigned)(theme_light()->time[shown[i].class_] & 0xffffff));
        snprintf(dark_color, sizeof dark_color, "--%s:#%06x", shown[i].name,
                 (unsigned)(theme_dark()->time[shown[i].class_] & 0xffffff));
        const char *at = strstr(page, light_color);
        CHECK(at && at < dark);
        CHECK(strstr(dark, dark_color) != NULL);
    }
    free(page);
    world_free(&w);
}

/* ---- random ones ---- */

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = mix_u64(state);
    return (uint32_t)(state % n);
}

/* Groups, numbers, peers and waits that make no sense now and then. */
static void put_random_comm(World *w, uint32_t track, int64_t at, int64_t end)
{
    static const char *const ops[] = { "all_reduce", "all_gather", "send", "recv" };
    static const char *const groups[] = { "dp", "tp", NULL };
    uint32_t op = below(4);
    Coll c = { .op = ops[op],
               .group = groups[below(3)],
               .seq = below(2) ? -1 : (int64_t)below(6),
               .bytes = below(3) ? 1000 * below(4) : 0,
               .wait_ns = below(3) ? -1 : (int64_t)below(40),
               .ranks_n = below(4),
               .group_id = below(2),
               .p2p = op >= 2 && below(4),
               .peer = below(5) };
    world_comm(w, track, c, at, end);
}

static void fill_randomly(World *w)
{
    static const SpanClass classes[] = { SPAN_COMPUTE, SPAN_MEMORY, SPAN_SYNC, SPAN_COMM };
    uint32_t stand_for[4];
    timeline_want(&w->t, below(2), false);
    for (uint32_t rank = 0; rank < 4; rank++)
        stand_for[rank] = below(3) ? 1 : 1 + below(5);
    for (uint32_t rank = 0; rank < 4; rank++) {
        uint32_t streams[] = { world_stream(w, rank, 7), world_stream(w, rank, 20) };
        uint32_t host = world_host(w, rank);
        uint32_t steps = timeline_track(&w->t, rank, TRACK_STEPS, "steps", 0);
        for (uint32_t i = below(60); i > 0; i--) {
            int64_t at = below(1000), end = at + (below(6) ? below(60) : 0);
            uint32_t stream = streams[below(2)];
            uint64_t launch = world_span(w, host, below(5) ? SPAN_LAUNCH : SPAN_SYNC, "call",
                                         at - below(40), at);
            if (below(3))
                world_span(w, stream, classes[below(4)], below(2) ? "k" : "l", at, end);
            else
                put_random_comm(w, stream, at, end);
            uint64_t id = below(8) ? i : (uint64_t)below(1000) << 40;
            if (w->t.correlation)
                w->t.correlation[launch] = w->t.correlation[w->t.spans_n - 1] = id;
            else
                w->t.op[launch] = w->t.op[w->t.spans_n - 1] = (uint32_t)(id % 100);
            if (!below(12))
                world_span(w, steps, SPAN_STEP, "step", at, at + 100);
        }
    }
    for (uint32_t k = 0; k < w->t.tracks_n; k++)
        w->t.tracks[k].ranks_n = stand_for[w->t.tracks[k].rank];
    timeline_seal(&w->t);
}

static void check_sums(const TraceReport *r)
{
    const Collectives *c = &r->collectives;
    uint64_t parts_n = c->unmatched_n;
    int64_t rows_ns = 0, ranks_ns = 0, exposed_ns = 0;
    for (uint64_t i = 0; i < c->matches_n; i++)
        parts_n += c->matches[i].parts_n;
    CHECK_U64(c->parts_n, parts_n);
    for (uint32_t i = 0; i < c->rows_n; i++)
        rows_ns += c->rows[i].total_ns;
    for (uint32_t i = 0; i < c->ranks_n; i++) {
        CHECK_INT(r->metrics[i].idle_ns, gaps_ns_of(r, i));
        CHECK_U64(r->metrics[i].comm_kernels, c->ranks[i].kernels_n);
        CHECK_U64(c->ranks[i].kernels_n, r->covers.rank[i].comm_n);
        ranks_ns += c->ranks[i].total_ns * r->covers.rank[i].ranks_n;
    }
    CHECK_INT(ranks_ns, rows_ns);
    for (uint64_t i = 0; i < c->parts_n; i++) {
        const CollPart *p = &c->parts[i];
        int64_t dur_ns = p->end_ns - r->t->start_ns[p->span];
        CHECK(p->wait_ns >= -1 && p->wait_ns <= dur_ns);
        CHECK(p->exposed_ns >= 0 && p->exposed_ns <= dur_ns);
        exposed_ns += p->exposed_ns;
    }
    for (uint32_t i = 0; i < c->ranks_n; i++)
        exposed_ns -= r->metrics[i].exposed_comm_ns;
    CHECK(exposed_ns >= 0); /* kernels side by side are exposed each */
}

static void random_traces_keep_their_sums(void)
{
    state = 7;
    for (int round = 0; round < 300; round++) {
        World w = { 0 };
        TraceReport r;
        fill_randomly(&w);
        if (make(&r, &w.t)) {
            check_sums(&r);
            trace_report_free(&r);
        }
        if (round % 10 == 0)
            print_all(&w.t, NULL);
        world_free(&w);
    }
}

static void steps_and_ranks_that_are_not_there_are_errors(void)
{
    World w = { 0 };
    TraceReport r;
    TraceSource source = { .name = "test" };
    uint32_t steps = timeline_track(&w.t, 3, TRACK_STEPS, "steps", 0);
    world_span(&w, steps, SPAN_STEP, "ProfilerStep#5", 0, 10);
    timeline_seal(&w.t);
    uint32_t rank = 4;
    TraceReportOptions o = everything;
    Err err = { 0 };
    o.step = 7;
    CHECK(!trace_report_make(&r, &w.t, &source, &o, &err));
    CHECK_STR("there is no step 7 in the trace, it has 5 to 5", err.text);
    err_clear(&err);
    o = everything;
    o.ranks = &rank;
    o.ranks_n = 1;
    CHECK(!trace_report_make(&r, &w.t, &source, &o, &err));
    CHECK_STR("there is no rank 4 in the trace, it has 1 rank, 3", err.text);
    world_free(&w);
}

/* Steps partition a rank's time: their figures add up to the whole. */
static void steps_add_up(void)
{
    World w = { 0 };
    uint32_t gpu = world_stream(&w, 0, 7), comm = world_stream(&w, 0, 9);
    uint32_t steps = timeline_track(&w.t, 0, TRACK_STEPS, "steps", 0);
    for (int64_t i = 0; i < 40; i++) {
        world_span(&w, gpu, SPAN_COMPUTE, "k", 25 * i, 25 * i + 17);
        world_span(&w, comm, SPAN_COMM, "c", 25 * i + 9, 25 * i + 22);
    }
    for (int64_t i = 0; i < 10; i++)
        world_span(&w, steps, SPAN_STEP, "step", 100 * i, 100 * i + 100);
    timeline_seal(&w.t);
    int64_t exposed_ns = 0;
    TraceReport r;
    TraceSource source = { .name = "test" };
    Err err = { 0 };
    for (int64_t i = 0; i < 10; i++) {
        TraceReportOptions o = everything;
        o.step = i;
        if (!CHECK(trace_report_make(&r, &w.t, &source, &o, &err)))
            return;
        CHECK_INT(100, r.metrics[0].span_ns);
        CHECK_INT(4, (int64_t)r.collectives.rows[0].count);
        CHECK_INT(r.metrics[0].idle_ns, gaps_ns_of(&r, 0));
        exposed_ns += r.metrics[0].exposed_comm_ns;
        trace_report_free(&r);
    }
    if (make(&r, &w.t)) {
        CHECK_INT(r.metrics[0].exposed_comm_ns, exposed_ns);
        trace_report_free(&r);
    }
    world_free(&w);
}

int main(void)
{
    RUN(figures_of_real_traces_are_exact);
    RUN(totals_of_nsight_traces_are_exact);
    RUN(report_and_compare_cut_the_same_steps);
    RUN(gaps_of_a_recorded_step_are_all_its_idle_time);
    RUN(waiting_across_real_ranks_is_exact);
    RUN(altered_copies_of_a_real_trace_say_the_same);
    RUN(simulated_traces_match_the_simulator);
    RUN(a_folded_trace_says_what_the_expanded_one_does);
    RUN(odd_traces_get_sentences);
    RUN(strips_of_a_page_are_as_full_as_the_gpu_was);
    RUN(strips_of_a_page_lie_where_their_rank_worked);
    RUN(pages_have_the_viewers_colours);
    RUN(steps_and_ranks_that_are_not_there_are_errors);
    RUN(steps_add_up);
    RUN(random_traces_keep_their_sums);
    return check_report();
}
