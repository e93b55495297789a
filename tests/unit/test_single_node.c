/*
 * test_single_node.c - README on the rows of vtrain-single-node.jsonl that kernels decide.
 *
 * They are listed with full recomputation and under a stack that pads its vocabulary, neither of
 * which their source says.  Of 74 of them, with tp 1, hidden size 2048 and micro-batches of 2 or
 * more, the host is ahead of its GPU; run with nothing recomputed and 50257 words as they are, they
 * take what was measured.  Nothing is fitted on that.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/built.h"
#include "tests/data_rows.h"

static const Setting as_run[] = { { "training.recompute", "none" },
                                  { "software.parallel.vocab_multiple", "1" } };

/* Of ln(predicted / measured). */
typedef struct Errors {
    uint32_t n;
    double sum, squares, most;
} Errors;

static double predicted_s(const char *line, const Setting *settings, uint32_t n)
{
    Built b = { 0 };
    SimResult r = { 0 };
    Err err = { 0 };
    JsonDoc *doc = json_parse(line, strlen(line), "row", &err);
    bool ok = built_with(&b, doc, settings, n, &err) && built_run(&r, &b, (SimOptions){ 0 });
    double s = ok ? (double)r.step_ns * 1e-9 : NAN;
    sim_result_free(&r);
    built_free(&b);
    return s;
}

static void add(Errors *e, double predicted, double measured)
{
    double error = log(predicted / measured);
    e->n++;
    e->sum += error;
    e->squares += error * error;
    e->most = fmax(e->most, fabs(error));
}

static double deviation(const Errors *e)
{
    double mean = e->sum / e->n;
    return sqrt(e->squares / e->n - mean * mean);
}

static bool kernels_decide(JsonNode row)
{
    return data_count(row, "parallel", "tp") == 1 &&
           data_count(row, "model", "hidden") == 2048 &&
           data_count(row, "training", "micro_batch") >= 2;
}

static void rows_where_kernels_decide_were_not_recomputed(void)
{
    Errors listed = { 0 }, run = { 0 };
    char line[8192];
    FILE *f = fopen("scenarios/validation/vtrain-single-node.jsonl", "r");
    while (CHECK(f != NULL) && fgets(line, sizeof line, f)) {
        Err err = { 0 };
        JsonDoc *doc = json_parse(line, strlen(line), "row", &err);
        JsonNode row = json_root(doc);
        bool counts = CHECK(doc != NULL) && kernels_decide(row);
        double measured =
            json_value(json_member(json_first(json_member(row, "measured")), "value"));
        json_close(doc);
        if (!counts)
            continue;
        add(&listed, predicted_s(line, NULL, 0), measured);
        add(&run, predicted_s(line, as_run, ARRAY_N(as_run)), measured);
    }
    if (f)
        fclose(f);
    printf("  %u rows: as listed %+.1f %% +- %.1f, at most %.1f; not recomputed, not padded "
           "%+.1f +- %.1f, %.1f\n",
           run.n, 100 * listed.sum / listed.n, 100 * deviation(&listed), 100 * listed.most,
           100 * run.sum / run.n, 100 * deviation(&run), 100 * run.most);
    CHECK_U64(74, run.n);
    CHECK(fabs(run.sum / run.n) < 0.02 && deviation(&run) < 0.02 && run.most < 0.05);
    CHECK(deviation(&listed) > 2 * deviation(&run));
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(rows_where_kernels_decide_were_not_recomputed);
    return check_report();
}
