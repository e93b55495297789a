/*
 * test_validate.c - the statistics of validate on rows made by hand, each against its definition,
 * and the fit of scalars against stacks whose scalars are known.
 */
#include "profile/cmd_validate_plot.h"
#include "profile/fit.h"
#include "profile/validate.h"
#include "tests/check.h"

#include <unistd.h>

enum { MANY = 60 };

static double next_random(uint64_t *seed)
{
    *seed = mix_u64(*seed);
    return (double)(*seed >> 11) / 9007199254740992.0; /* 2^53 */
}

/* ---- numbers ---- */

static void an_error_is_relative_to_what_was_measured(void)
{
    CHECK_NEAR(25, validate_error_pct(4, 5), 1e-12);
    CHECK_NEAR(-50, validate_error_pct(4, 2), 1e-12);
    CHECK(validate_error_pct(0, 0) == 0);
    CHECK(!isfinite(validate_error_pct(0, 1)));
}

/* The same from counts: concordant, discordant, tied pairs; n0 = n (n - 1) / 2. */
static double tau_by_counting(const double *x, const double *y, uint32_t n)
{
    double c = 0, d = 0, tied_x = 0, tied_y = 0, pairs = n * (n - 1.0) / 2;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n; j++) {
            double product = (x[i] - x[j]) * (y[i] - y[j]);
            c += product > 0;
            d += product < 0;
            tied_x += x[i] == x[j];
            tied_y += y[i] == y[j];
        }
    return (c - d) / sqrt((pairs - tied_x) * (pairs - tied_y));
}

static void kendall_tau_b_counts_pairs_and_corrects_for_ties(void)
{
    uint64_t seed = 4;
    for (int round = 0; round < 200; round++) {
        double x[MANY], y[MANY];
        uint32_t n = 3 + (uint32_t)(next_random(&seed) * (MANY - 3));
        for (uint32_t i = 0; i < n; i++) { /* few values: many ties */
            x[i] = floor(next_random(&seed) * 8);
            y[i] = floor(next_random(&seed) * 5) + (round % 2 ? x[i] : 0);
        }
        x[0] = y[0] = 20; /* neither is constant */
        CHECK_NEAR(tau_by_counting(x, y, n), validate_kendall(x, y, n), 1e-12);
    }
}

static void kendall_tau_knows_order_reversal_and_constants(void)
{
    const double up[] = { 1, 2, 3, 4 }, down[] = { 9, 7, 5, 1 }, flat[] = { 2, 2, 2, 2 };
    CHECK_NEAR(1, validate_kendall(up, up, 4), 1e-12);
    CHECK_NEAR(-1, validate_kendall(up, down, 4), 1e-12);
    CHECK_NEAR(0, validate_kendall(up, flat, 4), 0);
    CHECK(isnan(validate_kendall(flat, up, 4)));
    CHECK(isnan(validate_kendall(up, up, 1)));
}

static void regret_is_what_the_pick_takes_longer_than_the_best(void)
{
    const double measured[] = { 12, 10, 11 };
    const double right[] = { 3, 1, 2 }, wrong[] = { 1, 2, 3 }, equal[] = { 1, 2, 1 };
    CHECK_NEAR(0, validate_regret(measured, right, 3), 0);
    CHECK_NEAR(0.2, validate_regret(measured, wrong, 3), 1e-12);
    CHECK_NEAR(0.15, validate_regret(measured, equal, 3), 1e-12); /* 12 or 11: 11.5 */
}

/* ---- rows ---- */

static ValidateRow *add(Validation *v, const char *group, const char *metric, double measured,
                        double predicted)
{
    ValidateRow *row = validate_add(v);
    row->name = group;
    row->file = "hand.jsonl:1";
    row->scenario = v->scenarios_n++;
    row->group = intern(&v->names, group);
    row->software = intern(&v->names, "generic");
    row->list = intern(&v->names, "hand.jsonl");
    row->metric = intern(&v->names, metric);
    row->measured = measured;
    row->predicted = row->left_out = predicted;
    return row;
}

static void add_skipped(Validation *v, const char *group, const char *metric)
{
    add(v, group, metric, 0, 0)->skipped = "because";
}

static ValidatePart part(Validation *v, const char *metric, const char *group)
{
    ValidatePart p = VALIDATE_ANY;
    p.metric = intern(&v->names, metric);
    p.group = group ? intern(&v->names, group) : NONE_U32;
    return p;
}

static void errors_are_summed_up_by_metric_and_group(void)
{
    Validation v = { 0 };
    add(&v, "a", "step_time_s", 10, 11);   /* +10 */
    add(&v, "a", "step_time_s", 10, 6);    /* -40 */
    add(&v, "a", "step_time_s", 10, 12);   /* +20 */
    add(&v, "b", "step_time_s", 10, 30);   /* +200 */
    add(&v, "a", "tokens_per_s", 10, 9.5); /* -5 */
    ErrorStat s = validate_errors(&v, part(&v, "step_time_s", "a"));
    CHECK_INT(3, s.rows_n);
    CHECK_NEAR(20, s.median_pct, 1e-9);
    CHECK_NEAR(20 + 0.8 * (40 - 20), s.p90_pct, 1e-9);
    CHECK_NEAR(40, s.max_pct, 1e-9);
    CHECK_NEAR((10 - 40 + 20) / 3.0, s.bias_pct, 1e-9);
    CHECK_NEAR((20 + 40) / 2.0, validate_errors(&v, part(&v, "step_time_s", NULL)).median_pct,
               1e-9);
    CHECK_NEAR(5, validate_errors(&v, part(&v, "tokens_per_s", NULL)).max_pct, 1e-9);
    CHECK_INT(0, validate_errors(&v, part(&v, "tokens_per_s", "b")).rows_n);
    CHECK(isnan(validate_errors(&v, part(&v, "tokens_per_s", "b")).median_pct));
    validate_free(&v);
}

static void a_skipped_row_counts_as_a_hundred_percent_where_it_says_so(void)
{
    Validation v = { 0 };
    add(&v, "a", "step_time_s", 10, 11);
    add(&v, "a", "step_time_s", 10, 35); /* worse than being skipped */
    add_skipped(&v, "a", "step_time_s");
    add_skipped(&v, "b", "step_time_s");
    ErrorStat s = validate_errors(&v, part(&v, "step_time_s", "a"));
    CHECK_INT(2, s.rows_n);
    CHECK_INT(1, s.skipped_n);
    CHECK_NEAR((10 + 250) / 2.0, s.median_pct, 1e-9);
    CHECK_NEAR(100, s.median_with_skipped_pct, 1e-9);
    CHECK_NEAR(100 + 0.8 * 150, s.p90_with_skipped_pct, 1e-9);
    CHECK_NEAR(100, validate_errors(&v, part(&v, "step_time_s", "b")).median_with_skipped_pct,
               1e-9);
    validate_free(&v);
}

static void what_was_left_out_has_its_own_figures(void)
{
    Validation v = { 0 };
    add(&v, "a", "step_time_s", 10, 11)->left_out = 13;
    add(&v, "a", "step_time_s", 10, 9)->left_out = 5;
    ErrorStat s = validate_errors(&v, part(&v, "step_time_s", NULL));
    CHECK_NEAR(10, s.median_pct, 1e-9);
    CHECK_NEAR((30 + 50) / 2.0, s.median_left_out_pct, 1e-9);
    CHECK_NEAR(30 + 0.9 * 20, s.p90_left_out_pct, 1e-9);
    validate_free(&v);
}

static void fits_is_right_or_wrong(void)
{
    Validation v = { 0 };
    add(&v, "a", "fits", 1, 1);
    add(&v, "a", "fits", 0, 0);
    add(&v, "a", "fits", 0, 1);
    CHECK_INT(2, validate_errors(&v, part(&v, "fits", NULL)).correct_n);
    CHECK(validate_is_fits(&v, intern_find(&v.names, "fits")));
    CHECK(!validate_is_fits(&v, NONE_U32));
    uint32_t at[4];
    CHECK_INT(0, validate_worst(&v, at, 4, 4));
    validate_free(&v);
}

static void rank(Validation *v, const char *group, const char *set, double measured,
                 double predicted)
{
    add(v, group, "step_time_s", measured, predicted)->set = intern(&v->names, set);
}

/* Set x is ranked right; of y the slowest is picked; z is too small to count. */
static void ranking_is_a_mean_over_sets_of_three_and_more(void)
{
    Validation v = { 0 };
    for (int i = 0; i < 3; i++) { /* sets are found wherever their rows stand */
        rank(&v, "a", "x", 10 + i, 1 + i);
        rank(&v, "b", "y", 10 + i, 5 - i);
        if (i < 2)
            rank(&v, "a", "z", 10 + i, 5 - i);
    }
    add(&v, "a", "tokens_per_s", 1, 1)->set = intern(&v.names, "x"); /* no time */
    add_skipped(&v, "a", "step_time_s");
    uint32_t a = intern(&v.names, "a"), b = intern(&v.names, "b");
    CHECK_INT(1, validate_ranking(&v, a).sets_n);
    CHECK_INT(3, validate_ranking(&v, a).rows_n);
    CHECK_NEAR(1, validate_ranking(&v, a).kendall_tau, 1e-12);
    CHECK_NEAR(0, validate_ranking(&v, a).regret_pct, 0);
    CHECK_NEAR(-1, validate_ranking(&v, b).kendall_tau, 1e-12);
    CHECK_NEAR(20, validate_ranking(&v, b).regret_pct, 1e-9); /* 12 instead of 10 */
    CHECK_INT(2, validate_ranking(&v, NONE_U32).sets_n);
    CHECK_NEAR(0, validate_ranking(&v, NONE_U32).kendall_tau, 1e-12);
    CHECK_NEAR(10, validate_ranking(&v, NONE_U32).regret_pct, 1e-9);
    CHECK(isnan(validate_ranking(&v, intern(&v.names, "c")).kendall_tau));
    validate_free(&v);
}

static void the_worst_rows_come_first_and_no_group_takes_all_places(void)
{
    Validation v = { 0 };
    add(&v, "a", "step_time_s", 10, 20);
    add(&v, "a", "step_time_s", 10, 1);
    add(&v, "a", "step_time_s", 10, 18);
    add(&v, "b", "step_time_s", 10, 11);
    add_skipped(&v, "b", "step_time_s");
    uint32_t at[4];
    CHECK_INT(4, validate_worst(&v, at, 9, 9));
    CHECK(at[0] == 0 && at[1] == 1 && at[2] == 2 && at[3] == 3);
    CHECK_INT(3, validate_worst(&v, at, 9, 2));
    CHECK(at[0] == 0 && at[1] == 1 && at[2] == 3);
    CHECK_INT(1, validate_worst(&v, at, 1, 9));
    validate_free(&v);
}

static void groups_and_metrics_keep_the_order_of_the_rows(void)
{
    Validation v = { 0 };
    add(&v, "b", "tokens_per_s", 1, 1);
    add(&v, "a", "step_time_s", 1, 1);
    add(&v, "b", "step_time_s", 1, 1);
    validate_add_unknown(&v, "novel");
    validate_add_unknown(&v, "newer");
    validate_add_unknown(&v, "novel");
    uint32_t *ids = mem_zero(v.names.n, sizeof *ids);
    CHECK_INT(2, validate_groups(&v, ids));
    CHECK_STR("b", validate_text_of(&v, ids[0]));
    CHECK_INT(2, validate_metrics(&v, ids));
    CHECK_STR("tokens_per_s", validate_text_of(&v, ids[0]));
    CHECK_INT(1, validate_softwares(&v, ids));
    CHECK_INT(1, validate_lists(&v, ids));
    CHECK_INT(2, v.unknown_n);
    CHECK_INT(2, v.unknown[0].scenarios_n);
    free(ids);
    validate_free(&v);
}

/* ---- the picture ---- */

/* Of the file that was written; these few points make a short one. */
static char *svg_of(const Validation *v)
{
    static char text[256 * 1024];
    char path[] = P_tmpdir "/test_validate_XXXXXX";
    Err err = { 0 };
    int fd = mkstemp(path);
    text[0] = 0;
    if (!CHECK(fd >= 0 && validate_plot(v, path, &err)))
        return text;
    close(fd);
    FILE *in = fopen(path, "r");
    if (CHECK(in)) {
        text[fread(text, 1, sizeof text - 1, in)] = 0;
        fclose(in);
    }
    remove(path);
    return text;
}

static uint32_t count(const char *text, const char *part)
{
    uint32_t n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/* Every point once, with what it is; names cannot break out of it. */
static void a_picture_shows_every_step_time(void)
{
    Validation v = { 0 };
    char *text = svg_of(&v);
    CHECK(strstr(text, ">lockstep validate: 0 step times") != NULL);
    add(&v, "<a&b>", "step_time_s", 0.5, 0.7);
    add(&v, "<a&b>", "step_time_s", 30, 21);
    add(&v, "c", "step_time_s", 4, 4);
    add(&v, "c", "tokens_per_s", 4, 4);
    add_skipped(&v, "d", "step_time_s");
    text = svg_of(&v);
    CHECK_INT(3, count(text, "<title>"));
    CHECK_INT(1, count(text, "measured 0.5 s, predicted 0.7 s, +40.0 %"));
    CHECK(strstr(text, ">&lt;a&amp;b&gt;, 2<") != NULL);
    CHECK_INT(0, count(text, "nan"));
    CHECK_INT(count(text, "<g"), count(text, "</g>"));
    validate_free(&v);
}

/* A point of no error lies on the diagonal: as far from the left as from the bottom. */
static void a_point_without_error_lies_on_the_diagonal(void)
{
    Validation v = { 0 };
    add(&v, "a", "step_time_s", 0.03, 0.03);
    add(&v, "a", "step_time_s", 700, 900);
    char *text = svg_of(&v), *tip = strstr(text, "<title>");
    double x1 = 0, y1 = 0, x = 0, y = 0, side = 0;
    char *frame = strstr(text, "<rect fill=\"none\"");
    while (tip && tip > text && strncmp(tip, "<rect", 5) != 0)
        tip--;
    CHECK(frame && sscanf(frame, "<rect fill=\"none\" x=\"%lf\" y=\"%lf\"", &x1, &y1) == 2);
    if (CHECK(tip &&
              sscanf(tip, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\"", &x, &y, &side) == 3))
        CHECK(fabs((x + side / 2 - x1) - (y1 + 540 - y - side / 2)) < 1.1);
    validate_free(&v);
}

/* ---- the fit ---- */

/* A stack whose time is launches * host + work * compute + bytes * comm, in whatever unit. */
typedef struct Parts {
    double launches, work, bytes;
} Parts;

static double time_of(const Parts *p, const double scalar[FIT_N])
{
    return p->launches * scalar[FIT_HOST] + p->work * scalar[FIT_COMPUTE] +
           p->bytes * scalar[FIT_COMM];
}

static FitRow row_of(const Parts *p, const double truth[FIT_N], uint32_t group,
                     bool all_scalars)
{
    double one[FIT_N] = { 1, 1, 1 };
    FitRow row = { .group = group,
                   .measured = time_of(p, truth),
                   .predicted = time_of(p, one) };
    for (int i = 0; i < FIT_N; i++) {
        if (!all_scalars && i != FIT_COMPUTE)
            continue;
        one[i] = FIT_STEP;
        row.higher[i] = time_of(p, one);
        one[i] = 1 / FIT_STEP;
        row.lower[i] = time_of(p, one);
        one[i] = 1;
    }
    return row;
}

static Parts random_parts(uint64_t *seed)
{
    Parts p = { .launches = 0.1 * next_random(seed), .work = 1, .bytes = next_random(seed) };
    if (next_random(seed) < 0.3)
        p.launches = 3;
    return p;
}

static void fitted_scalars_are_those_the_rows_were_made_with(void)
{
    const double truth[FIT_N] = { 1.2, 1.1, 0.9 };
    uint64_t seed = 1;
    FitRow rows[MANY];
    Fitted fitted;
    for (uint32_t i = 0; i < MANY; i++) {
        Parts p = random_parts(&seed);
        rows[i] = row_of(&p, truth, i % 3, true);
    }
    CHECK(fit_scalars(&fitted, rows, MANY, 0, NONE_U32));
    for (int i = 0; i < FIT_N; i++)
        CHECK_NEAR(truth[i], fitted.factor[i], 0.03);
}

/* A third of the rows is far off, all to one side: the others decide. */
static void a_few_wrong_rows_do_not_move_the_fit(void)
{
    const double truth[FIT_N] = { 1, 1.3, 1 };
    uint64_t seed = 2;
    FitRow rows[MANY];
    Fitted fitted;
    for (uint32_t i = 0; i < MANY; i++) {
        Parts p = { .work = 1 + next_random(&seed) };
        rows[i] = row_of(&p, truth, 0, false);
        if (i % 3 == 0)
            rows[i].measured *= 3;
    }
    CHECK(fit_scalars(&fitted, rows, MANY, 0, NONE_U32));
    CHECK_NEAR(1.3, fitted.factor[FIT_COMPUTE], 0.01);
    CHECK_NEAR(1, fitted.factor[FIT_HOST], 0); /* not tried, not moved */
}

/* Group 0 runs at 1.25, group 1 at 0.8: each is judged by the other. */
static void the_group_left_out_has_no_say(void)
{
    const double slow[FIT_N] = { 1, 1.25, 1 }, quick[FIT_N] = { 1, 0.8, 1 };
    FitRow rows[6];
    Fitted fitted;
    for (uint32_t i = 0; i < 6; i++) {
        Parts p = { .work = 1.0 + i };
        rows[i] = row_of(&p, i < 3 ? slow : quick, i / 3, false);
    }
    CHECK(fit_scalars(&fitted, rows, 6, 0, 0));
    CHECK_NEAR(0.8, fitted.factor[FIT_COMPUTE], 0.005);
    CHECK(fit_scalars(&fitted, rows, 6, 0, 1));
    CHECK_NEAR(1.25, fitted.factor[FIT_COMPUTE], 0.005);
    CHECK(!fit_scalars(&fitted, rows, 3, 0, 0)); /* nothing is left */
    CHECK_NEAR(1, fitted.factor[FIT_COMPUTE], 0);
    CHECK(!fit_scalars(&fitted, rows, 6, 7, NONE_U32)); /* another stack */
}

/* Rows of group 0 took a tenth longer than without; of group 1, on one node, as long. */
static void ring_nics_are_kept_where_rows_ask_for_them(void)
{
    FitRow rows[6];
    Fitted fitted;
    for (uint32_t i = 0; i < 6; i++)
        rows[i] = (FitRow){
            .group = i / 3, .measured = 1.1, .predicted = 1.1, .all_nics = i < 3 ? 1 : 1.1
        };
    CHECK(fit_scalars(&fitted, rows, 6, 0, NONE_U32) && !fitted.all_nics);
    CHECK(fit_scalars(&fitted, rows, 6, 0, 1) && !fitted.all_nics);
    CHECK(fit_scalars(&fitted, rows, 6, 0, 0) && fitted.all_nics); /* no row that tells */
    CHECK(!fit_scalars(&fitted, rows, 6, 1, NONE_U32) && fitted.all_nics);
    /* What a scale explains as well, it explains. */
    for (uint32_t i = 0; i < 6; i++) {
        rows[i].all_nics = 1;
        rows[i].lower[FIT_COMPUTE] = 1.1 / FIT_STEP;
        rows[i].higher[FIT_COMPUTE] = 1.1 * FIT_STEP;
    }
    CHECK(fit_scalars(&fitted, rows, 6, 0, NONE_U32) && fitted.all_nics);
    CHECK_NEAR(1.1, fitted.factor[FIT_COMPUTE], 0.003);
}

int main(void)
{
    RUN(an_error_is_relative_to_what_was_measured);
    RUN(kendall_tau_b_counts_pairs_and_corrects_for_ties);
    RUN(kendall_tau_knows_order_reversal_and_constants);
    RUN(regret_is_what_the_pick_takes_longer_than_the_best);
    RUN(errors_are_summed_up_by_metric_and_group);
    RUN(a_skipped_row_counts_as_a_hundred_percent_where_it_says_so);
    RUN(what_was_left_out_has_its_own_figures);
    RUN(fits_is_right_or_wrong);
    RUN(ranking_is_a_mean_over_sets_of_three_and_more);
    RUN(the_worst_rows_come_first_and_no_group_takes_all_places);
    RUN(groups_and_metrics_keep_the_order_of_the_rows);
    RUN(a_picture_shows_every_step_time);
    RUN(a_point_without_error_lies_on_the_diagonal);
    RUN(fitted_scalars_are_those_the_rows_were_made_with);
    RUN(a_few_wrong_rows_do_not_move_the_fit);
    RUN(the_group_left_out_has_no_say);
    RUN(ring_nics_are_kept_where_rows_ask_for_them);
    return check_report();
}
