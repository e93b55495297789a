/*
 * test_from_trace_real.c - how well a replay says what it has not seen, on real traces.
 *
 * An unchanged replay ends when the trace does, which shows that nothing was lost and no more.
 * What predicts is tested on what was left out:
 *
 *     steps    the replay of the median step of the first half, against the steps of the other
 *     links    communication priced on the cluster that it ran on, against what it took there
 *
 * The traces are not part of the project; without them there is nothing to do.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/json.h"
#include "core/quantile.h"
#include "profile/collectives.h"
#include "sim/cmd_from_trace.h"
#include "tests/check.h"
#include "traces/set.h"

#define FOLDER "../shared/data/traces/"

/* One object that the command prints; NULL where it fails. */
static JsonDoc *run(char *name, int64_t step, const char *cluster, const char *trace)
{
    Setting setting = { "cluster", cluster };
    SettingList set = { .settings = &setting, .n = cluster ? 1 : 0 };
    FromTraceCommand c = {
        .names = &name, .names_n = 1, .set = &set, .step = step, .trace = trace, .json = true
    };
    char path[] = P_tmpdir "/from_trace_XXXXXX";
    int file = mkstemp(path);
    ASSERT(file >= 0);
    fflush(stdout);
    fflush(stderr);
    int out = dup(STDOUT_FILENO), talk = dup(STDERR_FILENO);
    dup2(file, STDOUT_FILENO);
    ASSERT(freopen("/dev/null", "w", stderr));
    int status = cmd_from_trace(&c);
    fflush(stdout);
    fflush(stderr);
    dup2(out, STDOUT_FILENO);
    dup2(talk, STDERR_FILENO);
    close(out);
    close(talk);
    close(file);
    Err err = { 0 };
    JsonDoc *doc = status == 0 ? json_open(path, &err) : NULL;
    unlink(path);
    return doc;
}

/* object NULL: of the root. */
static double number(JsonDoc *doc, const char *object, const char *key)
{
    JsonNode from = object ? json_member(json_root(doc), object) : json_root(doc);
    return json_value(json_member(from, key));
}

static double median(const double *x, uint32_t n)
{
    double sorted[32];
    memcpy(sorted, x, n * sizeof *x);
    return sort_median(sorted, n);
}

/* The median of the second half, predicted by the replay of the median step of the first. */
static void check_halves(const char *name, int64_t first, uint32_t n, double within)
{
    char path[300];
    double recorded[32], replayed[32];
    snprintf(path, sizeof path, FOLDER "%s", name);
    for (uint32_t i = 0; i < n; i++) {
        JsonDoc *doc = run(path, first + i, NULL, NULL);
        if (!CHECK(doc != NULL))
            return;
        recorded[i] = number(doc, "recorded", "step_time_s");
        replayed[i] = number(doc, "replayed", "step_time_s");
        CHECK_NEAR(recorded[i], replayed[i], 1e-3); /* consistency, no more */
        json_close(doc);
    }
    uint32_t half = n / 2;
    double is = median(recorded + half, n - half), said = median(replayed, half), worst = 0;
    for (uint32_t i = half; i < n; i++)
        worst = fmax(worst, fabs(said / recorded[i] - 1));
    printf("test_from_trace_real: %s: second half of %u steps %+.1f %%, a single one at most "
           "%.1f %% off\n",
           name, (unsigned)n, 100 * (said / is - 1), 100 * worst);
    CHECK(fabs(said / is - 1) < within);
}

static void steps_that_were_left_out_take_as_long(void)
{
    check_halves("single/ns_resolution_rank0of1_v100.json.gz", 101, 5, 0.05);
    check_halves("single/resnet50_nw4_v100.pt.trace.json.gz", 16, 6, 0.05);
    check_halves("single/nccl_data_rank0of2_a100.json.gz", 4, 3, 0.03);
    check_halves("single/sampled_rank-0.json.gz", 551, 2, 0.04);
    check_halves("single/sampled_rank-1.json.gz", 551, 2, 0.04);
}

/* What all collectives of a trace needed without waiting, each once. */
static double transfers_ns(const char *path)
{
    TraceSet set = { 0 };
    Covers covers = { 0 };
    Collectives c = { 0 };
    Err err = { 0 };
    double ns = NAN;
    if (CHECK(trace_set_read(&set, &path, 1, NULL, &err))) {
        covers_build(&covers, &set.timeline);
        collectives_find(&c, &set.timeline, &covers, NULL);
        ns = (double)c.transfer_ns;
    }
    collectives_free(&c);
    covers_free(&covers);
    trace_set_free(&set);
    return ns;
}

/* Communication by the model of its cluster, and not by what the trace says it took. */
static void check_links(char *name, const char *cluster, double step_within, double within)
{
    char trace[] = P_tmpdir "/from_trace_XXXXXX.lstrace";
    int file = mkstemps(trace, 8);
    ASSERT(file >= 0);
    close(file);
    JsonDoc *doc = run(name, -1, cluster, trace);
    if (!CHECK(doc != NULL))
        return;
    double step = number(doc, NULL, "step_time_s") / number(doc, "recorded", "step_time_s") - 1;
    double transfer = transfers_ns(trace) / transfers_ns(name) - 1;
    printf("test_from_trace_real: %s on %s: step %+.1f %%, transfers %+.1f %%\n", name, cluster,
           100 * step, 100 * transfer);
    CHECK(fabs(step) < step_within && fabs(transfer) < within);
    json_close(doc);
    unlink(trace);
}

static void the_cluster_they_ran_on_gives_what_was_recorded(void)
{
    char megatron[] = FOLDER "megatron-tp8", dlrm[] = FOLDER "param-dlrm8";
    check_links(megatron, "dgx-a100", 0.02, 0.05);
    check_links(dlrm, "dgx-1", 0.02, 0.3);
}

int main(void)
{
    if (access(FOLDER, R_OK) != 0) {
        printf("test_from_trace_real: skipped, %s is not here\n", FOLDER);
    } else {
        RUN(steps_that_were_left_out_take_as_long);
        RUN(the_cluster_they_ran_on_gives_what_was_recorded);
    }
    return check_report();
}
