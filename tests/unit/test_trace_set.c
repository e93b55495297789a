/*
 * test_trace_set.c - several files as one timeline: ranks, what is missing, what
 * does not belong together, and what is said about it.
 */
#include "tests/check.h"
#include "tests/real_traces.h"
#include "traces/native.h"
#include "traces/set.h"
#include "traces/set_parts.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64] = P_tmpdir "/lockstep-set-XXXXXX";
static TraceSet s;
static Err err;

static const char *path_of(const char *name)
{
    static char path[16][512];
    static int turn;
    turn = (turn + 1) % 16;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void clear_folder(void)
{
    DIR *dir = opendir(folder);
    ASSERT(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (e->d_name[0] != '.')
            remove(path_of(e->d_name));
    closedir(dir);
}

static const char *write_text(const char *name, const char *text)
{
    const char *path = path_of(name);
    FILE *f = fopen(path, "w");
    ASSERT(f && fputs(text, f) >= 0 && fclose(f) == 0);
    return path;
}

/* One rank of a run: a step, and a kernel of 10 us at at_us; head stands before the events. */
static const char *write_rank(const char *name, const char *head, const char *step,
                              double at_us, const char *kernel)
{
    char text[2048];
    snprintf(
        text, sizeof text,
        "{%s\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"%s\",\"pid\":"
        "9,\"tid\":9,\"ts\":%.3f,\"dur\":100},{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%s\","
        "\"pid\":0,\"tid\":7,\"ts\":%.3f,\"dur\":10,\"args\":{\"device\":0,\"stream\":7,"
        "\"correlation\":5}}]}",
        head, step, at_us, kernel, at_us + 1);
    return write_text(name, text);
}

#define DAY_US (1.7e15) /* since 1970 */
#define NCCL   "ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)"

static bool read_set(const char *const *paths, size_t n, bool lenient)
{
    TraceSetOptions o = { .lenient = lenient };
    trace_set_free(&s);
    err_clear(&err);
    bool ok = trace_set_read(&s, paths, n, &o, &err);
    CHECK(ok != err.set);
    Err broken = { 0 };
    if (ok)
        CHECK(timeline_check(&s.timeline, &broken));
    return ok;
}

static bool found(const char *part)
{
    for (size_t i = 0; i < s.findings_n; i++)
        if (strstr(s.findings[i], part))
            return true;
    return false;
}

static const char *head_of(uint32_t rank, uint32_t world)
{
    static char text[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(text[turn], sizeof text[turn],
             "\"distributedInfo\":{\"backend\":\"nccl\",\"rank\":%" PRIu32
             ",\"world_size\":%" PRIu32 "},",
             rank, world);
    return text[turn];
}

/* ---- joining ---- */

static void files_become_ranks_of_one_timeline(void)
{
    const char *paths[] = {
        write_rank("b.json", head_of(1, 2), "ProfilerStep#3", DAY_US + 50, NCCL),
        write_rank("a.json", head_of(0, 2), "ProfilerStep#3", DAY_US, NCCL),
    };
    if (!CHECK(read_set(paths, 2, false)))
        return;
    CHECK_U64(0, s.findings_n);
    CHECK_INT(2, s.world_size);
    CHECK_INT(2, s.timeline.ranks_n);
    CHECK_U64(4, s.timeline.spans_n);
    CHECK_U64(4, s.events_read);
    CHECK_U64(2, s.kernels_n);
    CHECK_U64(2, s.comm_kernels_n);
    CHECK_STR("b.json", strrchr(file_of_rank(&s, 1)->path, '/') + 1);
    CHECK_INT(TRACE_RANK_FILE, s.files[0].rank_from);
    CHECK_STR("chrome", s.files[0].format);
    CHECK(file_of_rank(&s, 7) == NULL);
    CHECK_INT((int64_t)DAY_US * 1000, timeline_begin_ns(&s.timeline));
    uint64_t of_rank[2] = { 0, 0 };
    for (uint64_t i = 0; i < s.timeline.spans_n; i++) {
        const Track *k = &s.timeline.tracks[s.timeline.span_track[i]];
        of_rank[k->rank]++;
        const Comm *c = timeline_comm_of(&s.timeline, i);
        if (!c)
            continue;
        CHECK_STR("all_reduce", timeline_text(&s.timeline, c->op));
        CHECK_STR("ring", timeline_text(&s.timeline, c->algorithm));
        CHECK_INT(2, c->ranks_n); /* all ranks are here and had equally many */
        CHECK_U64(5, s.timeline.correlation[i]);
    }
    CHECK_U64(2, of_rank[0]);
    CHECK_U64(2, of_rank[1]);
}

static void the_result_does_not_depend_on_threads(void)
{
    const char *paths[8];
    char name[32];
    for (uint32_t i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "many%" PRIu32 ".json", i);
        paths[i] = write_rank(name, head_of(7 - i, 8), "ProfilerStep#1", DAY_US + i, NCCL);
    }
    TraceSet one, many;
    TraceSetOptions o = { .jobs = 1 };
    CHECK(trace_set_read(&one, paths, 8, &o, &err));
    o.jobs = 8;
    CHECK(trace_set_read(&many, paths, 8, &o, &err));
    CHECK(native_write(&one.timeline, path_of("one.lstrace"), &err));
    CHECK(native_write(&many.timeline, path_of("many.lstrace"), &err));
    char command[512];
    snprintf(command, sizeof command, "cmp -s %s %s", path_of("one.lstrace"),
             path_of("many.lstrace"));
    CHECK_INT(0, system(command));
    trace_set_free(&one);
    trace_set_free(&many);
}

static void one_file_is_a_set_of_one(void)
{
    const char *path = write_rank("a.json", head_of(0, 1), "ProfilerStep#3", DAY_US, "gemm");
    CHECK(read_set(&path, 1, false));
    CHECK_U64(0, s.findings_n); /* a world of one communicates with nobody */
    CHECK_U64(2, s.timeline.spans_n);
}

static void a_folder_is_its_traces(void)
{
    clear_folder();
    write_rank("b.json", head_of(1, 2), "ProfilerStep#3", DAY_US, NCCL);
    write_rank("a.json", head_of(0, 2), "ProfilerStep#3", DAY_US, NCCL);
    write_text("notes.txt", "nothing");
    write_text("broken.json", "{\"a\":1}");
    ASSERT(mkdir(path_of("deeper"), 0700) == 0);
    const char *path = folder;
    if (CHECK(read_set(&path, 1, false))) {
        CHECK_INT(2, s.timeline.ranks_n);
        CHECK(found("notes.txt': it is none of the trace formats"));
        CHECK(found("broken.json': it is JSON without traceEvents; it is left out"));
        CHECK_U64(2, s.findings_n);
    }
    rmdir(path_of("deeper"));
    clear_folder();
    CHECK(!read_set(&path, 1, false));
    CHECK_ERR_TEXT(&err, "there is no trace in the folder '");
}

/* ---- ranks ---- */

static void names_of_files_say_their_rank(void)
{
    static const struct {
        const char *path;
        uint32_t rank, bare;
    } cases[] = {
        { "/x/rank7/kineto_rank0.json.gz", 0, 0 },
        { "sampled_rank-1.json.gz", 1, 1 },
        { "trace_rank_12.json", 12, 12 },
        { "worker3_step_12.1694128201557.pt.trace.json.gz", 3, 3 },
        { "Rank5.json", 5, 5 },
        { "megatron_3.json", NONE_U32, 3 },
        { "chakra.11.et", NONE_U32, 11 },
        { "t.1694128201557.pt.trace.json", NONE_U32, NONE_U32 },
        { "trace.json", NONE_U32, NONE_U32 },
        { "rank.json", NONE_U32, NONE_U32 },
        { "rank99999999999.json", NONE_U32, NONE_U32 },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        CHECK_INT(cases[i].rank, set_rank_of_name(cases[i].path, false));
        CHECK_INT(cases[i].bare, set_rank_of_name(cases[i].path, true));
    }
}

static void files_that_do_not_say_get_the_rank_of_their_name(void)
{
    const char *paths[] = { write_rank("t_1.json", "", "ProfilerStep#3", DAY_US, NCCL),
                            write_rank("t_0.json", "", "ProfilerStep#3", DAY_US, NCCL) };
    CHECK(read_set(paths, 2, false));
    CHECK_INT(1, s.files[0].rank);
    CHECK_INT(TRACE_RANK_NAME, s.files[0].rank_from);
    CHECK(found("2 of 2 files do not say which rank they are; it is taken from their names"));
}

static void names_that_clash_are_not_trusted(void)
{
    const char *paths[] = { write_rank("a_1.json", "", "ProfilerStep#3", DAY_US, NCCL),
                            write_rank("b_1.json", "", "ProfilerStep#3", DAY_US, NCCL),
                            write_rank("c.json", head_of(0, 3), "ProfilerStep#3", DAY_US,
                                       NCCL) };
    CHECK(read_set(paths, 3, false));
    CHECK_INT(1, s.files[0].rank);
    CHECK_INT(2, s.files[1].rank);
    CHECK_INT(0, s.files[2].rank);
    CHECK(found("2 of 3 files do not say which rank they are; it is taken from the order"));
}

static void a_rank_twice_is_an_error_or_left_out(void)
{
    const char *paths[] = {
        write_rank("a.json", head_of(1, 2), "ProfilerStep#3", DAY_US, NCCL),
        write_rank("b.json", head_of(1, 2), "ProfilerStep#3", DAY_US, NCCL),
    };
    CHECK(!read_set(paths, 2, false));
    CHECK_ERR_TEXT(&err, "both say that they are rank 1");
    CHECK_U64(0, s.timeline.spans_n);
    CHECK(read_set(paths, 2, true));
    CHECK(!s.files[1].used);
    CHECK(found("b.json' is left out"));
    CHECK(found("1 of 2 ranks are missing: 0"));
}

/* Two ranks' files, of which one says what its op is called, and what it is part of. */
static void names_of_ops_come_along(void)
{
    char path[2][128];
    for (uint32_t rank = 0; rank < 2; rank++) {
        Timeline t = { 0 };
        uint32_t k = timeline_track(&t, rank, TRACK_STREAM, "compute", 0);
        intern(&t.names, rank ? "other" : "numbers"); /* names differ in their numbers */
        uint64_t i = timeline_span(
            &t, (Span){ k, intern(&t.names, "gemm"), SPAN_COMPUTE, 0, 5, 7, NONE_U32 });
        Comm c = comm_of(intern(&t.names, "all_gather"));
        timeline_set_comm(&t, i, c);
        if (rank == 1) {
            timeline_set_op_name(&t, i, intern(&t.names, "mlp.up"));
            timeline_set_logical(&t, i, (LogicalOps){ 5, 2, (uint32_t[]){ 8, 9 } });
            timeline_set_ring(&t, t.comm[i], 3);
        }
        t.ranks_n = 2;
        timeline_seal(&t);
        snprintf(path[rank], sizeof path[rank], "%s",
                 path_of(rank ? "r1.lstrace" : "r0.lstrace"));
        CHECK(native_write(&t, path[rank], &err));
        timeline_free(&t);
    }
    const char *paths[] = { path[0], path[1] };
    if (!CHECK(read_set(paths, 2, false)))
        return;
    for (uint64_t i = 0; i < s.timeline.spans_n; i++) {
        uint32_t rank = s.timeline.tracks[s.timeline.span_track[i]].rank;
        CHECK_STR(rank == 1 ? "mlp.up" : "", timeline_op_name(&s.timeline, i));
        LogicalOps of = timeline_logical_of(&s.timeline, i);
        CHECK(rank == 1 ? of.instance == 5 && of.n == 2 && of.op[1] == 9 : of.n == 0);
        CHECK_INT(rank == 1 ? 3 : 0,
                  timeline_ring_steps(&s.timeline, timeline_comm_of(&s.timeline, i)));
    }
}

static void a_native_file_of_many_ranks_stands_alone(void)
{
    Timeline t = { 0 };
    for (uint32_t rank = 0; rank < 3; rank++) {
        uint32_t k = timeline_track(&t, rank, TRACK_STREAM, "compute", 0);
        timeline_span(
            &t, (Span){ k, intern(&t.names, "gemm"), SPAN_COMPUTE, 0, 5, NONE_U32, NONE_U32 });
    }
    timeline_seal(&t);
    const char *paths[] = {
        path_of("all.lstrace"),
        write_rank("a.json", head_of(1, 2), "ProfilerStep#3", DAY_US, NCCL),
    };
    CHECK(native_write(&t, paths[0], &err));
    timeline_free(&t);
    CHECK(read_set(paths, 1, false));
    CHECK_INT(3, s.timeline.ranks_n);
    CHECK_INT(TRACE_RANK_MANY, s.files[0].rank_from);
    CHECK_U64(3, s.kernels_n);
    CHECK(file_of_rank(&s, 2) == &s.files[0]);
    CHECK(!read_set(paths, 2, false));
    CHECK_ERR_TEXT(&err, "holds several ranks and cannot be joined with other files");
}

/* ---- one run? ---- */

static void worlds_must_agree(void)
{
    const char *paths[] = {
        write_rank("a.json", head_of(0, 2), "ProfilerStep#3", DAY_US, NCCL),
        write_rank("b.json", head_of(1, 4), "ProfilerStep#3", DAY_US, NCCL),
    };
    CHECK(!read_set(paths, 2, false));
    CHECK_ERR_TEXT(&err, "is of a run with 2 ranks");
    CHECK(read_set(paths, 2, true));
    CHECK_INT(2, s.world_size);
    CHECK(found("b.json' is left out: it is of a run with 4 ranks"));
}

static void missing_ranks_are_named(void)
{
    const char *path = write_rank("a.json", head_of(3, 16), "ProfilerStep#3", DAY_US, NCCL);
    CHECK(read_set(&path, 1, false));
    CHECK(found("15 of 16 ranks are missing: 0, 1, 2, 4, 5, 6, 7, 8, ..."));
}

static void ranks_of_different_runs_are_told(void)
{
    const char *paths[] = {
        write_rank("a.json", head_of(0, 2), "ProfilerStep#3", DAY_US, NCCL),
        write_rank("b.json", head_of(1, 2), "ProfilerStep#9", DAY_US + 7.2e9, NCCL),
    };
    CHECK(read_set(paths, 2, false));
    CHECK(
        found("have no step in common, ProfilerStep#3 is in the one and ProfilerStep#9 in the "
              "other"));
    CHECK(found("lie 120.0 minutes apart: they may not be one run"));
    const char *clocks[] = { paths[0],
                             write_rank("c.json", head_of(1, 2), "ProfilerStep#3", 17, NCCL) };
    CHECK(read_set(clocks, 2, false));
    CHECK(
        found("1 of 2 files do not tell the time of day: clocks of ranks cannot be compared"));
}

static void no_communication_is_said_aloud(void)
{
    const char *path = write_rank("a.json", head_of(0, 1), "ProfilerStep#3", DAY_US, "my_comm");
    CHECK(read_set(&path, 1, false));
    CHECK_U64(0, s.findings_n);
    path = write_rank("a.json", "", "ProfilerStep#3", DAY_US, "my_comm");
    const char *two[] = { path, write_rank("b.json", "", "ProfilerStep#3", DAY_US, "my_comm") };
    CHECK(read_set(two, 2, false));
    CHECK(found("none of 2 GPU kernels was recognised as communication"));
    const char *rules = write_text(
        "rules.json", "{\"rules\":[{\"name\":\"mine\",\"contains\":[\"my_comm\"]}]}");
    TraceSetOptions o = { .rules = &rules, .rules_n = 1 };
    trace_set_free(&s);
    CHECK(trace_set_read(&s, two, 2, &o, &err));
    CHECK_U64(2, s.comm_kernels_n);
    CHECK_STR("mine", s.rules.rule[1].name);
    CHECK_U64(2, s.rule_kernels_n[1]);
}

static void damage_is_told_with_its_place(void)
{
    static const char good[] =
        "[{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":2},";
    char text[256], part[256];
    snprintf(text, sizeof text, "%s{\"ph\":\"X\",\"ts\":1},{\"ph\":\"X\",\"na", good);
    snprintf(part, sizeof part,
             "bad.json': 2 of 3 events are damaged and were skipped, the first at byte %zu: it "
             "has no dur",
             strlen(good));
    const char *path = write_text("bad.json", text);
    CHECK(read_set(&path, 1, false));
    CHECK(found(part));
    CHECK(found("bad.json' is cut short"));
    CHECK_U64(2, s.events_skipped);
}

static void files_of_several_documents_are_told(void)
{
    static const char one[] =
        "[{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":2}]";
    char text[256];
    snprintf(text, sizeof text, "%s\n%s", one, one);
    const char *path = write_text("one.json", one);
    CHECK(read_set(&path, 1, false));
    CHECK(!found("one after another"));
    path = write_text("two.json", text);
    CHECK(read_set(&path, 1, false));
    CHECK(found("two.json' holds 2 traces one after another, read as one"));
}

static void what_cannot_be_read_is_an_error_or_left_out(void)
{
    const char *paths[] = { write_text("no.json", "hello"),
                            write_rank("a.json", head_of(0, 2), "ProfilerStep#3", DAY_US, NCCL),
                            path_of("none.json") };
    CHECK(!read_set(paths, 2, false));
    CHECK_ERR_TEXT(&err, "it is none of the trace formats");
    CHECK(!read_set(paths + 1, 2, false));
    CHECK_ERR_TEXT(&err, "cannot open '");
    CHECK(read_set(paths, 3, true));
    CHECK(found("no.json': it is none of the trace formats"));
    CHECK(found("none.json': No such file or directory; it is left out"));
    CHECK(!read_set(paths, 1, true));
    CHECK(!read_set(NULL, 0, false));
    CHECK_ERR_TEXT(&err, "no trace is given");
}

/* ---- recorded traces ---- */

static void recorded_ranks_become_one_run(void)
{
    static const char *const folders[] = { "../shared/data/traces/megatron-tp8",
                                           "../shared/data/traces/param-dlrm8" };
    static const uint64_t comm_kernels_n[] = { 8 * 84, 8 * 8 };
    for (size_t i = 0; i < ARRAY_N(folders); i++) {
        if (access(folders[i], R_OK) != 0) {
            fprintf(stderr, "test_trace_set: %s is not here, skipped\n", folders[i]);
            continue;
        }
        if (!CHECK(read_set(&folders[i], 1, false)))
            continue;
        CHECK_INT(8, s.timeline.ranks_n);
        CHECK_U64(0, s.events_skipped);
        CHECK_U64(comm_kernels_n[i], s.comm_kernels_n);
        for (uint32_t c = 0; c < s.timeline.comms_n; c++) {
            CHECK_INT(8, s.timeline.comms[c].ranks_n);
            CHECK(s.timeline.comms[c].bytes != NONE_U64);
        }
    }
}

/* Each file has its own numbers for launches; two of three are of the same kind. */
static void launches_stay_with_their_kernels(void)
{
    static const char event[] =
        "{%s\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%s\",\"pid\":0,"
        "\"tid\":7,\"ts\":1,\"dur\":10,\"args\":{\"device\":0,\"stream\":7,\"grid\":[%d,1,1],"
        "\"block\":[32,1,1]}}]}";
    const char *paths[3];
    for (uint32_t r = 0; r < 3; r++) {
        char text[512], name[16];
        snprintf(text, sizeof text, event, head_of(r, 3), r ? NCCL : "gemm", r == 1 ? 5 : 6);
        snprintf(name, sizeof name, "%u.json", (unsigned)r);
        paths[r] = write_text(name, text);
    }
    if (!CHECK(read_set(paths, 3, false)))
        return;
    const Timeline *joined = &s.timeline;
    CHECK_INT(2, (int)joined->launches_n);
    CHECK_U64(3, joined->spans_n);
    for (uint64_t i = 0; i < joined->spans_n; i++) {
        uint32_t rank = joined->tracks[joined->span_track[i]].rank;
        const KernelLaunch *l = timeline_launch_of(joined, i);
        CHECK(l && l->grid[0] == (rank == 1 ? 5 : 6) && l->block[0] == 32);
        CHECK((timeline_comm_of(joined, i) != NULL) == (rank > 0));
    }
    clear_folder();
}

int main(void)
{
    ASSERT(mkdtemp(folder));
    RUN(files_become_ranks_of_one_timeline);
    RUN(launches_stay_with_their_kernels);
    RUN(the_result_does_not_depend_on_threads);
    RUN(one_file_is_a_set_of_one);
    RUN(a_folder_is_its_traces);
    RUN(names_of_files_say_their_rank);
    RUN(files_that_do_not_say_get_the_rank_of_their_name);
    RUN(names_that_clash_are_not_trusted);
    RUN(a_rank_twice_is_an_error_or_left_out);
    RUN(names_of_ops_come_along);
    RUN(a_native_file_of_many_ranks_stands_alone);
    RUN(worlds_must_agree);
    RUN(missing_ranks_are_named);
    RUN(ranks_of_different_runs_are_told);
    RUN(no_communication_is_said_aloud);
    RUN(damage_is_told_with_its_place);
    RUN(files_of_several_documents_are_told);
    RUN(what_cannot_be_read_is_an_error_or_left_out);
    RUN(recorded_ranks_become_one_run);
    trace_set_free(&s);
    clear_folder();
    rmdir(folder);
    return check_report();
}
