/* Logs of nccl-tests of all ages, made by hand; and all real ones where they are at hand. */
#include "core/timeline.h"
#include "tests/check.h"
#include "traces/nccl_tests.h"

#include <dirent.h>

static NcclLog log_;
static Err err;

static bool parse(const char *text, const char *name)
{
    nccl_log_free(&log_);
    err = (Err){ 0 };
    return nccl_log_parse(&log_, text, strlen(text), name, &err);
}

#define VERSION "# nccl-tests version 2.17.8 nccl-headers=22902 nccl-library=22902\n"
#define START(what) \
    "# Collective test starting: " what "_perf\n# nThread 1 nGpus 1 minBytes 8 maxBytes " \
    "16\n#\n"
#define HEADER \
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong  " \
    "   time   algbw   busbw  #wrong\n" \
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)         " \
    "   (us)  (GB/s)  (GB/s)\n"

static const char two_tests[] = VERSION START(
    "all_reduce") "# Using devices\n"
                  "#  Rank  0 Group  0 Pid 11 on one device  0 [0000:1b:00] NVIDIA H100 80GB "
                  "HBM3\n"
                  "#  Rank  1 Group  0 Pid 12 on one device  1 [0000:43:00] NVIDIA H100 80GB "
                  "HBM3\n"
                  "#  Rank  2 Group  0 Pid 13 on two device  0 [0000:1b:00] NVIDIA H100 80GB "
                  "HBM3\n"
                  "NCCL version 2.29.2+cuda13.0\n" HEADER
                  "    33554432       4194304    double     sum      -1   182.87  183.49  "
                  "321.10       0   "
                  "182.88  183.48  321.08     N/A\n"
                  "one: Test NCCL failure common.cu:401 'remote process exited'\n"
                  "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 437.957\n#\n" VERSION
                      START("alltoall") "# Using devices\n"
                                        "#  Rank  0 Group  0 Pid 11 on one device  0 "
                                        "[0000:1b:00] NVIDIA H100 80GB HBM3\n" HEADER
                                        "    1024       4194304    half     none      -1   "
                                        "15668.1  0.49  0.10       3   "
                                        "182.88  183.48  321.08     0\n";

static void several_tests_of_one_log_are_told_apart(void)
{
    if (!CHECK(parse(two_tests, "x.log")))
        return;
    CHECK_INT(2, log_.tests_n);
    CHECK_INT(4, log_.rows_n);
    const NcclTest *t = log_.tests;
    CHECK_STR("all_reduce", t[0].op);
    CHECK_STR("all_to_all", t[1].op);
    CHECK_STR("2.17.8", t[0].version);
    CHECK_STR("2.29.2", t[0].library);
    CHECK_STR("NVIDIA H100 80GB HBM3", t[0].gpu);
    CHECK_INT(3, t[0].ranks_n);
    CHECK_INT(2, t[0].hosts_n);
    CHECK_INT(2, t[0].gpus_n);
    CHECK_STR("two", t[0].hosts[1]);
    CHECK(t[0].failed && !t[1].failed);
    CHECK_INT(1, t[1].ranks_n);
    CHECK_INT(2, t[0].row_n);
    CHECK_INT(2, t[1].row_first);

    const NcclRow *r = log_.rows;
    CHECK_U64(33554432, r[0].size_bytes);
    CHECK_STR("double", r[0].dtype);
    CHECK_NEAR(182.87, r[0].time_us, 0);
    CHECK_NEAR(183.48, r[1].algbw, 0);
    CHECK_NEAR(321.08, r[1].busbw, 0);
    CHECK(!r[0].in_place && r[1].in_place);
    CHECK_INT(0, r[0].wrong);
    CHECK_INT(NCCL_WRONG_UNKNOWN, r[1].wrong);
    CHECK_INT(3, r[2].wrong);
    CHECK_NEAR(15668.1, r[2].time_us, 0);
}

/* -I adds four columns to each half, -S a time stamp, -C renames the time. */
static void variants_are_read_by_their_header(void)
{
    static const char wide[] = START("all_gather") "#  size  count  type  redop  root  time  "
                                                   "algbw  busbw  #wrong  i_min  i_max  i_p99  "
                                                   "i_cv%  time  algbw  busbw  #wrong  i_min  "
                                                   "i_max  i_p99  i_cv%  timestamp\n"
                                                   "1024 256 float none -1 10.5 0.1 0.09 0 "
                                                   "10.1 11.9 11.8 3.2 20.5 0.2 0.19 1 1 2 3 4 "
                                                   "2026-01-31 12:00:01\n";
    if (CHECK(parse(wide, "x.log"))) {
        CHECK_INT(2, log_.rows_n);
        CHECK_NEAR(10.5, log_.rows[0].time_us, 0);
        CHECK_NEAR(20.5, log_.rows[1].time_us, 0);
        CHECK_INT(1, log_.rows[1].wrong);
        CHECK_STR("2026-01-31 12:00:01", log_.rows[0].stamp);
    }
    static const char cpu[] =
        START("broadcast") "#  size  count  type  redop  root  cputime  algbw  busbw  #wrong  "
                           "cputime  algbw  busbw  "
                           "#wrong\n8 2 float none 0 1.5 0.1 0.09 0 2.5 0.2 0.19 0\n";
    if (CHECK(parse(cpu, "x.log")))
        CHECK(log_.rows[0].cpu_time && log_.rows[1].cpu_time);
    /* 2.0: no version, no name, no root, an error instead of wrong values. */
    static const char old[] =
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5\n"
        "#   Rank  0 Pid  51 on  dgx device  0 [0x07] Tesla V100-SXM2-16GB\n"
        "#       size         count    type   redop     time   algbw   busbw  error     time   "
        "algbw   busbw  error\n"
        "           8             2   float     sum    31.78    0.00    0.00  0e+00    31.41   "
        " "
        "0.00    0.00  1e-07\n";
    if (CHECK(parse(old, "logs/all_reduce_perf.v100.txt"))) {
        CHECK_STR("all_reduce", log_.tests[0].op);
        CHECK_STR("Tesla V100-SXM2-16GB", log_.tests[0].gpu);
        CHECK_NEAR(31.41, log_.rows[1].time_us, 0);
    }
    CHECK(!parse(old, "logs/v100.txt"));
    CHECK_ERR_TEXT(&err, "cannot tell which collective 'logs/v100.txt' measures");
}

static void launchers_may_write_before_each_line(void)
{
    static const char tagged[] =
        "[1,0]<stdout>:# Collective test starting: reduce_perf\n"
        "[1,0]<stdout>:# nThread 1 nGpus 1\n"
        "[1,0]<stdout>:#  Rank  0 Group  0 Pid 5 on a device  0 [0000:1b:00] NVIDIA A100\n"
        "[1,0]<stdout>:#  size  count  type  redop  root  time  algbw  busbw  #wrong\n"
        "[1,0]<stdout>: 64 16 float sum 0 9.5 0.1 0.1 0\n";
    if (CHECK(parse(tagged, "x"))) {
        CHECK_INT(1, log_.rows_n);
        CHECK_STR("reduce", log_.tests[0].op);
    }
    static const char numbered[] = "0: # Collective test starting: sendrecv_perf\n"
                                   "0: # nThread 1\n"
                                   "0: # size count type redop root time algbw busbw #wrong\n"
                                   "0:  64 16 float sum 0 9.5 0.1 0.1 0\n";
    if (CHECK(parse(numbered, "x")))
        CHECK_STR("send_recv", log_.tests[0].op);
}

/* A collector of logs puts a host or the time before every line: its digits change. */
static void what_stands_before_the_first_line_stands_before_all(void)
{
    static const char *const prefixes[][2] = {
        { "node01: ", "node01: " },
        { "2026-01-31T12:00:00.123456Z ", "2026-01-31T12:00:07.654321Z " },
        { "2026-01-31T12:00:00.1Z stdout F ", "2026-01-31T12:00:09.2Z stdout F " },
    };
    for (size_t i = 0; i < ARRAY_N(prefixes); i++) {
        const char *first = prefixes[i][0], *later = prefixes[i][1];
        char text[1024];
        snprintf(text, sizeof text,
                 "%s# Collective test starting: reduce_perf\n"
                 "%s# nThread 1 nGpus 1\n"
                 "%s#  Rank  0 Group  0 Pid 5 on a device  0 [0000:1b:00] NVIDIA A100\n"
                 "%s#  size  count  type  redop  root  time  algbw  busbw  #wrong\n"
                 "%s 64 16 float sum 0 9.5 0.1 0.1 0\n",
                 first, first, first, later, later);
        if (CHECK(parse(text, "x")) && CHECK_INT(1, log_.rows_n)) {
            CHECK_U64(64, log_.rows[0].size_bytes);
            CHECK_STR("reduce", log_.tests[0].op);
            CHECK_INT(1, log_.tests[0].ranks_n);
        }
    }
}

/* Groups side by side (NCCL_TESTS_SPLIT): the first one stands for all. */
static void ranks_of_other_groups_do_not_count(void)
{
    static const char text[] =
        START("all_reduce") "#  Rank  0 Group  0 Pid 1 on a device  0 [0000:1b:00] X\n"
                            "#  Rank  1 Group  1 Pid 2 on a device  1 [0000:1b:00] X\n"
                            "#  Rank  2 Group  0 Pid 3 on b device  0 [0000:1b:00] X\n"
                            "# size count type redop root time algbw busbw #wrong\n 64 16 "
                            "float sum 0 9.5 0.1 0.1 0\n";
    if (!CHECK(parse(text, "x")))
        return;
    CHECK_INT(2, log_.tests[0].ranks_n);
    CHECK_INT(2, log_.tests[0].hosts_n);
    CHECK_INT(1, log_.tests[0].gpus_n);
}

static void what_is_wrong_is_said_with_its_line(void)
{
    CHECK(!parse("hello\n", "x"));
    CHECK_ERR_TEXT(&err, "cannot read 'x': it is no log of nccl-tests");
    CHECK(!parse(START("all_reduce") HEADER, "x"));
    CHECK_ERR_TEXT(&err, "the log of nccl-tests holds no rows");
    CHECK(!parse(START("all_reduce") HEADER "64 16 float sum\n# end\n", "x"));
    CHECK_ERR_TEXT(&err, "x:6: a row of 13 columns is expected, not of 4");
    CHECK(!parse(START("all_reduce") HEADER "64 1 float sum -1 fast 1 1 0 1 1 1 0\n", "x"));
    CHECK_ERR_TEXT(&err, "x:6: a time in us is expected, not 'fast'");
    CHECK(!parse(START("all_reduce") HEADER "64 1 float sum -1 0x10 1 1 0 1 1 1 0\n", "x"));
    CHECK_ERR_TEXT(&err, "x:6: a time in us is expected, not '0x10'");
    CHECK(!parse(START("all_reduce") HEADER "64 1 float sum -1 1 1 -1 0 1 1 1 0\n", "x"));
    CHECK_ERR_TEXT(&err, "x:6: a bandwidth in GB/s is expected, not '-1'");
    CHECK(!parse(START("all_reduce") HEADER "64 1 float sum -1 1 1 1 no 1 1 1 0\n", "x"));
    CHECK_ERR_TEXT(&err, "x:6: a number of wrong values or N/A is expected, not 'no'");
    static const char nul[] = START("all_reduce") "\0\0# size count type\n64 1 1 1";
    CHECK(!nccl_log_parse(&log_, nul, sizeof nul, "x", &err));
}

#define ROW "64 1 float sum -1 1 1 1 0 1 1 1 0\n"
#define KILLED \
    "slurmstepd: error: *** JOB 1 ON one CANCELLED AT 12:00:00 DUE TO TIME LIMIT ***\n"

/* A job that was killed leaves a part of a row behind, and what killed it may write on. */
static void a_test_may_stop_within_a_row(void)
{
    static const char *const ends[] = {
        "128 1 flo",
        "128 1 float sum -1  ",
        ("128 1 float sum -1" KILLED "srun: error: one: task 0: Terminated\n"),
        ("128 1 float sum -1 2 2 2 0 2" KILLED),
        "128 1 float sum -1\n# end\n",
        "128 1 float sum -1 one: Test NCCL failure common.cu:401 'x / y' z z z z z z z\n",
    };
    for (size_t i = 0; i < ARRAY_N(ends); i++) {
        char text[2048];
        snprintf(text, sizeof text, "%s%s", START("all_reduce") HEADER ROW, ends[i]);
        if (!CHECK(parse(text, "x")))
            continue;
        CHECK_INT(2, log_.rows_n);
        CHECK_INT(2, log_.tests[0].row_n);
        CHECK_INT(7, log_.tests[0].cut_line);
    }
    if (CHECK(parse(START("all_reduce") HEADER ROW "128 1 flo\n" START("reduce") HEADER ROW,
                    "x"))) {
        CHECK_INT(4, log_.rows_n);
        CHECK_INT(7, log_.tests[0].cut_line);
        CHECK_INT(0, log_.tests[1].cut_line);
        CHECK_INT(2, log_.tests[1].row_n);
    }
    CHECK(!parse(START("all_reduce") HEADER ROW "128 1 flo\n" ROW, "x"));
    CHECK_ERR_TEXT(&err, "x:7: a row of 13 columns is expected, not of 3");
}

/* Open MPI ends so where a process died. */
static void lines_of_others_may_begin_with_a_number(void)
{
    static const char text[] = START("all_reduce") HEADER ROW
        "15 total processes killed (some possibly by mpirun during cleanup)\n" ROW;
    if (CHECK(parse(text, "x"))) {
        CHECK_INT(4, log_.rows_n);
        CHECK_INT(0, log_.tests[0].cut_line);
    }
}

/* rccl-tests -O 0: the half there is is the second. */
static void one_half_is_that_which_the_table_says(void)
{
    static const char *const places[] = { "out-of-place", "in-place" };
    for (int i = 0; i < 2; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "%srccl-tests: Version develop:33cc4df\n"
                 "#                                 %s\n"
                 "#  size  count  type  redop  root  time  algbw  busbw #wrong\n%s",
                 START("all_reduce"), places[i], "64 1 float sum -1 9 1 1 0\n");
        if (CHECK(parse(text, "x")) && CHECK_INT(1, log_.rows_n))
            CHECK_INT(i, log_.rows[0].in_place);
    }
    /* The next test has both again. */
    if (CHECK(
            parse(START("all_reduce") "# in-place\n# size count type time\n8 1 float 9\n" START(
                      "all_reduce") HEADER ROW,
                  "x")))
        CHECK(log_.rows[0].in_place && !log_.rows[1].in_place && log_.rows[2].in_place);
}

/* Of rccl-tests: uneven, and with an addition. */
static void collectives_of_like_names_are_others(void)
{
    CHECK(parse(START("alltoallv") HEADER ROW, "x"));
    CHECK_STR("all_to_all_v", log_.tests[0].op);
    CHECK(parse(START("all_reduce_bias") HEADER ROW, "x"));
    CHECK_STR("all_reduce_bias", log_.tests[0].op);
}

static void logs_are_known_by_their_beginning(void)
{
    CHECK(nccl_log_matches(two_tests, sizeof two_tests));
    CHECK(nccl_log_matches("warning\n# nThread 1", 19));
    CHECK(!nccl_log_matches("{\"a\": 1}", 8));
}

/* ---- JSON ---- */

#define HALF(time, wrong) \
    "{\"" time ",\"alg_bw\":0.047621,\"bus_bw\":0.083337,\"nwrong\":" wrong "}"
#define RESULT(size, out, in) \
    "{\"size\":" size \
    ",\"count\":256,\"type\":\"float\",\"redop\":\"sum\",\"root\":\"    -1\"," \
    "\"out_of_place\":" out ",\"in_place\":" in ",\"actual_iterations\":20}"
#define DEVICE(group, host) \
    "{\"rank\":0,\"group\":" group ",\"pid\":1,\"hostname\":\"" host "\",\"device\":0," \
    "\"device_hex\":\"0000:1b:00\",\"device_info\":\"NVIDIA H100\"}"
#define JSON(program, devices, results) \
    "{\"version\":2,\"start_time\":\"2026-01-31 12:00:00\",\"args\":[\"" program \
    "\",\"-J\",\"x\"],\"env\":[\"HOME=\\/root\"],\"nccl_version\":22902,\"config\":{" \
    "\"nthreads\":2,\"ngpus\":2,\"devices\":[" devices "]},\"results\":[" results "]," \
    "\"out_of_bounds\":{\"count\":1,\"okay\":\"false\"},\"errors\":[\"\"]}"
#define TWO_HALVES RESULT("1024", HALF("time\":21.503125", "0.0"), HALF("time\":21.25", "null"))

static void json_is_read_as_its_log_is(void)
{
    static const char text[] = JSON(
        "./build/all_reduce_perf",
        DEVICE("3", "one") "," DEVICE("3", "two") "," DEVICE("3", "two") "," DEVICE("4", "z"),
        TWO_HALVES "," RESULT("2048", "null", HALF("cpu_time\":22.0", "3.0")));
    if (!CHECK(parse(text, "x")))
        return;
    CHECK(nccl_log_matches(text, sizeof text - 1));
    const NcclTest *t = &log_.tests[0];
    CHECK_INT(1, log_.tests_n);
    CHECK_STR("all_reduce", t->op);
    CHECK_STR("2.29.2", t->library);
    CHECK_STR("NVIDIA H100", t->gpu);
    CHECK(t->failed);
    /* Two threads with two GPUs each stand behind a device; group 4 is another's. */
    CHECK_INT(12, t->ranks_n);
    CHECK_INT(2, t->hosts_n);
    CHECK_STR("one", t->hosts[0]);
    CHECK_INT(8, t->gpus_n);
    const NcclRow *r = log_.rows;
    if (!CHECK_INT(3, log_.rows_n) || !CHECK_INT(3, t->row_n))
        return;
    CHECK(r[0].time_us == 21.503125 && !r[0].in_place && r[0].wrong == 0 && !r[0].cpu_time);
    CHECK(r[1].time_us == 21.25 && r[1].in_place && r[1].wrong == NCCL_WRONG_UNKNOWN);
    CHECK(r[2].time_us == 22 && r[2].in_place && r[2].wrong == 3 && r[2].cpu_time);
    CHECK_U64(2048, r[2].size_bytes);
    CHECK_STR("float", r[0].dtype);
    CHECK(r[0].algbw == 0.047621 && r[0].busbw == 0.083337 && !r[0].time_from_algbw);
}

static void wrong_json_is_said_with_its_place(void)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { JSON("all_reduce_perf", "", TWO_HALVES), "config: a list 'devices' is expected" },
        { JSON("all_reduce_perf", DEVICE("0", "one"), "7"),
          "results[0]: an object is expected" },
        { JSON("all_reduce_perf", DEVICE("0", "one"), RESULT("-1", "null", "null")),
          "results[0]: 'size' is no number from 0 on" },
        { JSON("all_reduce_perf", DEVICE("0", "one"), RESULT("1e300", "null", "null")),
          "results[0]: 'size' is out of range" },
        { JSON("all_reduce_perf", DEVICE("0", "one"), RESULT("8", "[]", "null")),
          "results[0].out_of_place: an object is expected" },
        { JSON("all_reduce_perf", DEVICE("0", "one"),
               RESULT("8", "null", HALF("time\":\"nan\"", "0"))),
          "results[0].in_place: 'time' is no number from 0 on" },
        { JSON("all_reduce_perf", DEVICE("0", "one"), RESULT("8", "null", "null")),
          "the log of nccl-tests holds no rows" },
        { JSON("mine", DEVICE("0", "one"), TWO_HALVES),
          "cannot tell which collective 'x' measures" },
        { "{\"version\":2,\"start_time\":\"\",\"args\":[]}", "a list 'devices' is expected" },
        { "{\"version\":2,\"start_time\":\"\",\"args\":[\"a\"],\"con", "x:1:" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        CHECK(!parse(cases[i].text, "x"));
        CHECK_ERR_TEXT(&err, cases[i].says);
    }
    CHECK(parse(JSON("mine", DEVICE("0", "one"), TWO_HALVES), "a/sendrecv.json"));
    CHECK_STR("send_recv", log_.tests[0].op);
}

/* ---- real logs ---- */

/* Printed bandwidths follow from size and time, up to their two digits. */
static void check_rows(const NcclLog *l)
{
    for (uint32_t i = 0; i < l->rows_n; i++) {
        const NcclRow *r = &l->rows[i];
        const NcclTest *t = &l->tests[r->test];
        double algbw = (double)r->size_bytes / r->time_us / 1e3;
        double busbw = r->algbw * timeline_busbw_factor(t->op, t->ranks_n);
        CHECK(fabs(algbw - r->algbw) < 0.006 + 0.0006 * algbw);
        CHECK(fabs(busbw - r->busbw) < 0.016 + 0.0006 * busbw);
        CHECK_U64(0, r->size_bytes % 8);
    }
}

static void every_real_log_is_consistent(void)
{
    static const char folder[] = "../shared/data/traces/nccl-tests";
    DIR *dir = opendir(folder);
    uint32_t logs_n = 0, failed_n = 0;
    nccl_log_free(&log_);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        char path[512];
        if (!strstr(e->d_name, ".log"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        err = (Err){ 0 };
        CHECK(nccl_log_read(&log_, path, &err));
        unsigned nodes, gpus;
        const char *n = strstr(e->d_name, "_N");
        if (CHECK(n && sscanf(n, "_N%u_G%u", &nodes, &gpus) == 2)) {
            const NcclTest *last = &log_.tests[log_.tests_n - 1];
            CHECK_INT(nodes, last->hosts_n);
            CHECK_INT(gpus, last->gpus_n);
            CHECK_INT(nodes * gpus, last->ranks_n);
        }
        logs_n++;
    }
    if (dir)
        closedir(dir);
    for (uint32_t i = 0; i < log_.tests_n; i++)
        failed_n += log_.tests[i].failed;
    check_rows(&log_);
    if (logs_n == 0)
        printf("test_nccl_tests: %s is not here, skipped\n", folder);
    else
        CHECK_INT(1, failed_n);
}

int main(void)
{
    RUN(several_tests_of_one_log_are_told_apart);
    RUN(variants_are_read_by_their_header);
    RUN(launchers_may_write_before_each_line);
    RUN(ranks_of_other_groups_do_not_count);
    RUN(what_is_wrong_is_said_with_its_line);
    RUN(a_test_may_stop_within_a_row);
    RUN(lines_of_others_may_begin_with_a_number);
    RUN(one_half_is_that_which_the_table_says);
    RUN(collectives_of_like_names_are_others);
    RUN(logs_are_known_by_their_beginning);
    RUN(json_is_read_as_its_log_is);
    RUN(wrong_json_is_said_with_its_place);
    RUN(what_stands_before_the_first_line_stands_before_all);
    RUN(every_real_log_is_consistent);
    nccl_log_free(&log_);
    return check_report();
}
