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
#include <stdlib.h>
#include <string.h>

enum { NUMBER_CAP = 40, OP_NAME = 44, RANKS_SHOWN = 16 };

/* ---- numbers ---- */

static char *time_text(char *text, int64_t ns)
{
    static const struct {
        double ns;
        const char *unit;
    } units[] = { { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "us" } };
    double x = (double)ns;
    for (size_t i = 0; i < ARRAY_N(units); i++) {
        double y = x / units[i].ns, size = fabs(y);
        if (size < 0.9995)
            continue;
        int digits = size >= 999.95 ? 0 : size >= 99.995 ? 1 : size >= 9.9995 ? 2 : 3;
        snprintf(text, NUMBER_CAP, "%.*f %s", digits, y, units[i].unit);
        return text;
    }
    snprintf(text, NUMBER_CAP, "%" PRId64 " ns", ns);
    return text;
}

static char *signed_time(char *text, int64_t ns)
{
    text[0] = '+';
    time_text(text + (ns > 0), ns);
    return text;
}

static char *percent_text(char *text, double x, const char *unit)
{
    if (isfinite(x))
        snprintf(text, NUMBER_CAP, "%.1f %s", fabs(x) < 0.05 ? 0 : x, unit);
    else
        snprintf(text, NUMBER_CAP, "-");
    return text;
}

static char *error_text(char *text, double x, const char *unit)
{
    if (isfinite(x))
        snprintf(text, NUMBER_CAP, "%s%.1f %s", fabs(x) < 0.05 || x < 0 ? "" : "+",
                 fabs(x) < 0.05 ? 0 : x, unit);
    else
        snprintf(text, NUMBER_CAP, "-");
    return text;
}

/* Names come from files: control bytes are '?', long ones are cut at a whole character. */
static char *name_text(char *text, const char *name, size_t width)
{
    size_t n = strlen(name), kept = n <= width ? n : width - 3;
    while (kept < n && kept > 0 && ((unsigned char)name[kept] & 0xc0) == 0x80)
        kept--;
    for (size_t i = 0; i < kept; i++)
        text[i] = (unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '?' : name[i];
    snprintf(text + kept, 4, "%s", kept < n ? "..." : "");
    return text;
}

/* ---- headline ---- */

static void print_title(const Comparison *c, FILE *out)
{
    char name[2][COMPARE_TEXT_CAP];
    fprintf(out, "sim   %s", name_text(name[0], c->name[COMPARE_SIM], 80));
    if (c->step[COMPARE_SIM] >= 0)
        fprintf(out, ", step %" PRId64, c->step[COMPARE_SIM]);
    fprintf(out, "\nreal  %s", name_text(name[1], c->name[COMPARE_REAL], 80));
    if (c->step[COMPARE_REAL] >= 0)
        fprintf(out, ", step %" PRId64, c->step[COMPARE_REAL]);
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
    char t[3][NUMBER_CAP];
    fprintf(out, "%-22s %12s %12s %10s\n", name, time_text(t[0], sim), time_text(t[1], real),
            error_text(t[2], compare_error_pct(sim, real), "%"));
}

static void print_times(const Comparison *c, FILE *out)
{
    const Metrics *s = &c->times[COMPARE_SIM], *r = &c->times[COMPARE_REAL];
    char t[3][NUMBER_CAP];
    fprintf(out, "%-22s %12s %12s %10s\n", "mean over ranks", "sim", "real", "error");
    time_row(out, "step time (slowest)", s->span_ns, r->span_ns);
    time_row(out, "compute", s->compute_ns, r->compute_ns);
    time_row(out, "communication", s->comm_ns, r->comm_ns);
    time_row(out, "  exposed", s->exposed_comm_ns, r->exposed_comm_ns);
    double sim = metrics_overlap_pct(s), real = metrics_overlap_pct(r);
    fprintf(out, "%-22s %12s %12s %10s\n", "  overlapped", percent_text(t[0], sim, "%"),
            percent_text(t[1], real, "%"), error_text(t[2], sim - real, "points"));
    time_row(out, "idle", s->idle_ns, r->idle_ns);
}

static void print_coverage(const Comparison *c, FILE *out)
{
    char t[2][NUMBER_CAP];
    bool by_op = true;
    for (uint32_t i = 0; i < c->ranks_n; i++)
        by_op &= c->ranks[i].by_op;
    double coverage = compare_coverage_pct(c);
    fprintf(out, "\n%s of real GPU time is paired%s; paired ops are off by %s of their time\n",
            percent_text(t[0], coverage, "%"), by_op ? ", by op id" : ", as sequences",
            percent_text(t[1], compare_op_error_pct(c), "%"));
    if (coverage < 50)
        fprintf(out, "less than half is paired: are these traces of one program?\n");
}

/* ---- tables ---- */

static void print_class(const Comparison *c, const CompareClass *k, bool idle, FILE *out)
{
    char t[5][NUMBER_CAP], ops[NUMBER_CAP] = "";
    const int64_t *ns = idle ? k->own_ns : k->time_ns;
    if (!idle)
        snprintf(ops, sizeof ops, "%" PRIu64, k->ops_n[COMPARE_REAL]);
    else
        t[4][0] = '\0';
    if (!idle)
        percent_text(t[4],
                     k->time_ns[COMPARE_REAL] ? 100 * (double)k->matched_ns[COMPARE_REAL] /
                                                    (double)k->time_ns[COMPARE_REAL]
                                              : NAN,
                     "%");
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
        print_class(c, &c->classes[i], i + 1 == c->classes_n, out);
}

/* "kernel (sim: op)" where the two have different names. */
static char *pair_text(char *text, const CompareOp *o)
{
    const char *sim = o->name[COMPARE_SIM], *real = o->name[COMPARE_REAL];
    char whole[COMPARE_TEXT_CAP];
    if (strcmp(sim, real) == 0)
        return name_text(text, real, OP_NAME);
    snprintf(whole, sizeof whole, "%.24s (sim: %.30s)", real, sim);
    return name_text(text, whole, OP_NAME);
}

static void print_ops(const Comparison *c, uint32_t top, FILE *out)
{
    char t[3][NUMBER_CAP], name[COMPARE_TEXT_CAP];
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
                time_text(t[1], o->time_ns[COMPARE_REAL]), signed_time(t[2], off));
    }
}

static void print_only(const Comparison *c, int side, uint32_t top, FILE *out)
{
    char t[NUMBER_CAP], name[COMPARE_TEXT_CAP];
    if (c->only_n[side] == 0)
        return;
    fprintf(out, "\n%s%*s %9s %11s\n", side == COMPARE_SIM ? "only in sim" : "only in real",
            side == COMPARE_SIM ? OP_NAME - 11 : OP_NAME - 12, "", "times", "time");
    for (uint32_t i = 0; i < c->only_n[side] && i < top; i++) {
        const CompareOp *o = &c->only[side][i];
        fprintf(out, "%-*s %9" PRIu64 " %11s\n", OP_NAME,
                name_text(name, o->name[side], OP_NAME), o->n, time_text(t, o->time_ns[side]));
    }
    if (c->only_n[side] > top)
        fprintf(out, "and %" PRIu32 " more names\n", c->only_n[side] - top);
}

static void print_drift(const Comparison *c, FILE *out)
{
    const CompareDrift *d = &c->drift;
    char t[5][NUMBER_CAP], name[COMPARE_TEXT_CAP];
    if (!d->parts) {
        fprintf(out, "\nevery pair ends at the same time of the step\n");
        return;
    }
    fprintf(out, "\nrank %" PRIu32 ": sim and real part %s into the step, in '%s'", d->rank,
            time_text(t[0], d->op_start_ns), name_text(name, d->op_name, OP_NAME));
    if (d->op != NONE_U32)
        fprintf(out, " (op %" PRIu32 ")", d->op);
    fprintf(out, ":\n  it takes %s in sim and %s in real, and ends %s apart; the last op %s\n",
            time_text(t[1], d->op_time_ns[COMPARE_SIM]),
            time_text(t[2], d->op_time_ns[COMPARE_REAL]), signed_time(t[3], d->op_drift_ns),
            signed_time(t[4], d->end_ns));
}

static void print_ranks(const Comparison *c, FILE *out)
{
    char t[7][NUMBER_CAP], label[NUMBER_CAP];
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
                percent_text(t[5],
                             r->time_ns[COMPARE_REAL]
                                 ? 100 * (double)r->matched_ns[COMPARE_REAL] /
                                       (double)r->time_ns[COMPARE_REAL]
                                 : NAN,
                             "%"));
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
