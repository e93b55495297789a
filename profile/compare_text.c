/*
 * compare_text.c - a comparison for people, at most 100 columns wide.
 *
 *                               sim          real      error
 *     step time             312.1 ms      330.4 ms     -5.5 %
 *     ...
 *     class            ops paired         sim        real    error   of difference
 */
#include "profile/compare.h"

#include <math.h>
#include <string.h>

#include "profile/trace_words.h"

enum { OP_NAME = 44, RANKS_SHOWN = 16 };

/* ---- numbers ---- */

static char *time_text(char *text, int64_t ns)
{
    return ns < 0 ? word_signed_ns(text, ns) : word_ns(text, ns);
}

/* What rounds to nothing has no sign. */
static double without_sign(double x)
{
    return fabs(x) < 0.05 ? 0 : x;
}

static char *error_text(char *text, double x, const char *unit)
{
    if (isfinite(x))
        snprintf(text, WORD_CAP, "%s%.1f %s", without_sign(x) > 0 ? "+" : "", without_sign(x),
                 unit);
    else
        strcpy(text, "-");
    return text;
}

/* ---- headline ---- */

/* Beside one step, all of a trace may be many. */
static void print_side(const Comparison *c, int k, const char *side, FILE *out)
{
    char name[WORD_CAP];
    fprintf(out, "%-5s %s", side, word_name(name, c->name[k], 80));
    if (c->step[k] >= 0)
        fprintf(out, ", step %" PRId64, c->step[k]);
    else if (c->step[1 - k] >= 0)
        fprintf(out, ", all of it, as it marks no steps");
}

static void print_title(const Comparison *c, FILE *out)
{
    print_side(c, COMPARE_SIM, "sim", out);
    fprintf(out, "\n");
    print_side(c, COMPARE_REAL, "real", out);
    if (c->steps_n[COMPARE_REAL] > 1)
        fprintf(out, " (one of %" PRIu32 ")", c->steps_n[COMPARE_REAL]);
    uint32_t ranks_n = 0;
    for (uint32_t i = 0; i < c->ranks_n; i++)
        ranks_n += c->ranks[i].ranks_n;
    fprintf(out, "\n%" PRIu32 " rank%s compared", ranks_n, ranks_n == 1 ? "" : "s");
    for (int k = 0; k < COMPARE_SIDES; k++)
        if (c->left_out_n[k])
            fprintf(out, ", %" PRIu32 " only in %s", c->left_out_n[k],
                    k == COMPARE_SIM ? "sim" : "real");
    fprintf(out, "\n\n");
}

static void time_row(FILE *out, const char *name, int64_t sim, int64_t real)
{
    char t[3][WORD_CAP];
    fprintf(out, "%-22s %12s %12s %10s\n", name, time_text(t[0], sim), time_text(t[1], real),
            error_text(t[2], compare_error_pct(sim, real), "%"));
}

static void print_times(const Comparison *c, FILE *out)
{
    const Metrics *s = &c->times[COMPARE_SIM], *r = &c->times[COMPARE_REAL];
    char t[3][WORD_CAP];
    fprintf(out, "%-22s %12s %12s %10s\n", "mean over ranks", "sim", "real", "error");
    time_row(out, "step time (slowest)", s->span_ns, r->span_ns);
    time_row(out, "compute", s->compute_ns, r->compute_ns);
    time_row(out, "communication", s->comm_ns, r->comm_ns);
    time_row(out, "  exposed", s->exposed_comm_ns, r->exposed_comm_ns);
    double sim = metrics_overlap_pct(s), real = metrics_overlap_pct(r);
    fprintf(out, "%-22s %12s %12s %10s\n", "  overlapped", word_percent(t[0], sim),
            word_percent(t[1], real), error_text(t[2], sim - real, "points"));
    time_row(out, "idle", s->idle_ns, r->idle_ns);
}

static void print_coverage(const Comparison *c, FILE *out)
{
    char t[2][WORD_CAP];
    static const char *const ways[] = { [PAIRED_OP] = "by op id",
                                        [PAIRED_LOGICAL] = "by logical op",
                                        [PAIRED_SEQUENCE] = "as sequences" };
    ComparePaired last = PAIRED_OP;
    for (uint32_t i = 0; i < c->ranks_n; i++)
        last = c->ranks[i].paired > last ? c->ranks[i].paired : last;
    double coverage = compare_coverage_pct(c);
    fprintf(
        out, "\n%s of real GPU time is paired, %s; paired ops are off by %s of their time\n",
        word_percent(t[0], coverage), ways[last], word_percent(t[1], compare_op_error_pct(c)));
    double of_sim = compare_sim_coverage_pct(c);
    if (coverage < 50)
        fprintf(out, "less than half is paired: are these traces of one program?\n");
    else if (of_sim < 50)
        fprintf(out,
                "but only %s of sim's: does its step do more than the real one, as with more "
                "micro batches?\n",
                word_percent(t[0], of_sim));
}

/* ---- tables ---- */

static void print_class(const Comparison *c, const CompareClass *k, FILE *out)
{
    char t[5][WORD_CAP] = { "" }, ops[WORD_CAP] = "";
    const int64_t *ns = compare_class_ns(k);
    if (ns == k->time_ns) { /* not idle */
        snprintf(ops, sizeof ops, "%" PRIu64, k->ops_n[COMPARE_REAL]);
        word_percent(t[4], word_share(k->matched_ns[COMPARE_REAL], k->time_ns[COMPARE_REAL]));
    }
    fprintf(out, "%-15s %9s %8s %11s %11s %11s %12s\n", k->name, ops, t[4],
            time_text(t[0], ns[COMPARE_SIM]), time_text(t[1], ns[COMPARE_REAL]),
            error_text(t[2], compare_class_error_pct(k), "%"),
            error_text(t[3], compare_share_pct(c, k), "%"));
}

static void print_classes(const Comparison *c, FILE *out)
{
    fprintf(out, "\n%-15s %9s %8s %11s %11s %11s %12s\n", "sum over ranks", "real ops",
            "paired", "sim", "real", "error", "share of");
    fprintf(out, "%-15s %9s %8s %11s %11s %11s %12s\n", "", "", "", "", "", "", "difference");
    for (uint32_t i = 0; i < c->classes_n; i++)
        print_class(c, &c->classes[i], out);
}

/* "kernel (sim: op)" where the two have different names. */
static char *pair_text(char *text, const CompareOp *o)
{
    const char *sim = o->name[COMPARE_SIM], *real = o->name[COMPARE_REAL];
    char whole[WORD_CAP];
    if (strcmp(sim, real) == 0)
        return word_name(text, real, OP_NAME);
    snprintf(whole, sizeof whole, "%.24s (sim: %.30s)", real, sim);
    return word_name(text, whole, OP_NAME);
}

static void print_ops(const Comparison *c, uint32_t top, FILE *out)
{
    char t[3][WORD_CAP], name[WORD_CAP];
    uint32_t n = 0;
    for (; n < c->ops_n && n < top; n++) {
        const CompareOp *o = &c->ops[n];
        int64_t off = o->time_ns[COMPARE_SIM] - o->time_ns[COMPARE_REAL];
        if (off == 0)
            break;
        if (n == 0)
            fprintf(out, "\n%-*s %9s %11s %11s %11s\n", OP_NAME, "largest differences, by name",
                    "times", "sim", "real", "difference");
        fprintf(out, "%-*s %9" PRIu64 " %11s %11s %11s\n", OP_NAME, pair_text(name, o), o->n,
                time_text(t[0], o->time_ns[COMPARE_SIM]),
                time_text(t[1], o->time_ns[COMPARE_REAL]), word_signed_ns(t[2], off));
    }
}

static void print_only(const Comparison *c, int side, uint32_t top, FILE *out)
{
    char t[WORD_CAP], name[WORD_CAP];
    if (c->only_n[side] == 0)
        return;
    fprintf(out, "\n%s%*s %9s %11s\n", side == COMPARE_SIM ? "only in sim" : "only in real",
            side == COMPARE_SIM ? OP_NAME - 11 : OP_NAME - 12, "", "times", "time");
    for (uint32_t i = 0; i < c->only_n[side] && i < top; i++) {
        const CompareOp *o = &c->only[side][i];
        fprintf(out, "%-*s %9" PRIu64 " %11s\n", OP_NAME,
                word_name(name, o->name[side], OP_NAME), o->n, time_text(t, o->time_ns[side]));
    }
    if (c->only_n[side] > top)
        fprintf(out, "and %" PRIu32 " more names\n", c->only_n[side] - top);
}

static void print_drift(const Comparison *c, FILE *out)
{
    const CompareDrift *d = &c->drift;
    char t[5][WORD_CAP], name[WORD_CAP];
    if (!d->parts) {
        fprintf(out, "\nevery pair ends at the same time of the step\n");
        return;
    }
    fprintf(out, "\nrank %" PRIu32 ": sim and real part %s into the step, in '%s'", d->rank,
            time_text(t[0], d->op_start_ns), word_name(name, d->op_name, OP_NAME));
    if (d->op != NONE_U32)
        fprintf(out, " (op %" PRIu32 ")", d->op);
    fprintf(out, ":\n  it takes %s in sim and %s in real, and ends %s apart; the last op %s\n",
            time_text(t[1], d->op_time_ns[COMPARE_SIM]),
            time_text(t[2], d->op_time_ns[COMPARE_REAL]), word_signed_ns(t[3], d->op_drift_ns),
            word_signed_ns(t[4], d->end_ns));
}

static void print_ranks(const Comparison *c, FILE *out)
{
    char t[7][WORD_CAP], label[WORD_CAP];
    if (c->ranks_n < 2)
        return;
    fprintf(out, "\n%-12s %11s %11s %9s %11s %11s %9s\n", "rank", "sim", "real", "error",
            "exposed sim", "real", "paired");
    for (uint32_t i = 0; i < c->ranks_n && i < RANKS_SHOWN; i++) {
        const CompareRank *r = &c->ranks[i];
        const Metrics *s = &r->times[COMPARE_SIM], *e = &r->times[COMPARE_REAL];
        snprintf(label, sizeof label, r->ranks_n > 1 ? "%" PRIu32 " of %" PRIu32 : "%" PRIu32,
                 r->rank, r->ranks_n);
        fprintf(out, "%-12s %11s %11s %9s %11s %11s %9s\n", label, time_text(t[0], s->span_ns),
                time_text(t[1], e->span_ns),
                error_text(t[2], compare_error_pct(s->span_ns, e->span_ns), "%"),
                time_text(t[3], s->exposed_comm_ns), time_text(t[4], e->exposed_comm_ns),
                word_percent(
                    t[5], word_share(r->matched_ns[COMPARE_REAL], r->time_ns[COMPARE_REAL])));
    }
    if (c->ranks_n > RANKS_SHOWN)
        fprintf(out, "and %" PRIu32 " more; --json has them all\n", c->ranks_n - RANKS_SHOWN);
}

void compare_text(const Comparison *c, uint32_t top, FILE *out)
{
    print_title(c, out);
    print_times(c, out);
    print_coverage(c, out);
    print_classes(c, out);
    print_drift(c, out);
    print_ops(c, top, out);
    for (int k = 0; k < COMPARE_SIDES; k++)
        print_only(c, k, top, out);
    print_ranks(c, out);
}
