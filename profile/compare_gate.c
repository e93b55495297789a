/*
 * compare_gate.c - the numbers of a comparison by name, and --fail-if.
 *
 *     step_time.error_pct>5%     exposed_comm.abs_error_pct>10, coverage_pct<90
 *     \____ metric _____/ ^\_/
 *
 * A metric is the path of a number in compare --json.  "abs_error_pct" is the size of
 * "error_pct"; a path that stops at a quantity ("step_time>5%") means that size.  The sign is
 * for reading, but not behind what is in nanoseconds.
 */
#include "profile/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeral.h"
#include "core/text.h"

/* ---- quantities: sim, real, error ---- */

static const char *const parts[] = { "sim_ns", "real_ns", "error_pct", "abs_error_pct" };
static const char *const single[] = { "coverage_pct",     "sim_coverage_pct",
                                      "op_error_pct",     "overlap.sim_pct",
                                      "overlap.real_pct", "overlap.error_points",
                                      "drift.end_ns",     "drift.largest_ns" };

/* Part k of a sim and a real; false for a part that does not exist. */
static bool part_of(const char *part, int64_t sim, int64_t real, double *value)
{
    double error = compare_error_pct(sim, real);
    const double values[] = { (double)sim, (double)real, error, fabs(error) };
    for (size_t i = 0; i < ARRAY_N(parts); i++)
        if (strcmp(part, parts[i]) == 0) {
            *value = values[i];
            return true;
        }
    return false;
}

static bool quantity_value(const Comparison *c, const char *metric, double *value)
{
    for (int k = 0; k < COMPARE_QUANTITIES_N; k++) {
        const char *name = compare_quantity_names[k];
        size_t n = strlen(name);
        if (strncmp(metric, name, n) != 0 || (metric[n] && metric[n] != '.'))
            continue;
        return part_of(metric[n] ? metric + n + 1 : "abs_error_pct",
                       compare_quantity(&c->times[COMPARE_SIM], k),
                       compare_quantity(&c->times[COMPARE_REAL], k), value);
    }
    return false;
}

/* "classes.matmul.error_pct"; a class that neither side has is 0 and 0. */
static bool class_value(const Comparison *c, const char *metric, double *value)
{
    if (strncmp(metric, "classes.", 8) != 0)
        return false;
    const char *name = metric + 8, *dot = strchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : strlen(name);
    const char *part = dot ? dot + 1 : "abs_error_pct";
    for (uint32_t i = 0; i < c->classes_n; i++) {
        const CompareClass *k = &c->classes[i];
        if (strncmp(k->name, name, n) != 0 || k->name[n])
            continue;
        *value = compare_share_pct(c, k);
        const int64_t *ns = compare_class_ns(k);
        return strcmp(part, "share_pct") == 0 ||
               part_of(part, ns[COMPARE_SIM], ns[COMPARE_REAL], value);
    }
    return false;
}

static bool single_value(const Comparison *c, const char *metric, double *value)
{
    const double values[] = { compare_coverage_pct(c),
                              compare_sim_coverage_pct(c),
                              compare_op_error_pct(c),
                              metrics_overlap_pct(&c->times[COMPARE_SIM]),
                              metrics_overlap_pct(&c->times[COMPARE_REAL]),
                              compare_overlap_points(c->times),
                              (double)c->drift.end_ns,
                              (double)c->drift.largest_ns };
    for (size_t i = 0; i < ARRAY_N(single); i++)
        if (strcmp(metric, single[i]) == 0) {
            *value = values[i];
            return true;
        }
    return false;
}

void compare_metrics(FILE *out)
{
    fprintf(out, "  ");
    for (int k = 0; k < COMPARE_QUANTITIES_N; k++)
        fprintf(out, "%s%s", k ? ", " : "", compare_quantity_names[k]);
    fprintf(out, " or classes.CLASS,\n  followed by ");
    for (size_t i = 0; i < ARRAY_N(parts); i++)
        fprintf(out, ".%s, ", parts[i]);
    fprintf(out, "of a class also .share_pct;\n  ");
    for (size_t i = 0; i < ARRAY_N(single); i++)
        fprintf(out, "%s%s", i ? i == 4 ? ",\n  " : ", " : "", single[i]);
    fprintf(out, "\n");
}

static bool unknown(const char *metric, Err *err)
{
    return err_set(
        err,
        "--fail-if knows no '%.80s'; step_time, compute, comm, overlapped, "
        "exposed_comm, memory, idle or classes.CLASS with .error_pct, "
        ".abs_error_pct, .sim_ns or .real_ns, overlap.sim_pct, overlap.real_pct, "
        "overlap.error_points, coverage_pct, sim_coverage_pct, op_error_pct, drift.end_ns "
        "and drift.largest_ns allowed",
        metric);
}

static bool no_class(const Comparison *c, const char *metric, Err *err)
{
    char list[512] = "";
    for (uint32_t i = 0; i < c->classes_n; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", c->classes[i].name);
    }
    return err_set(err,
                   "--fail-if '%.80s': the classes here are %s; .sim_ns, .real_ns, "
                   ".error_pct, .abs_error_pct and .share_pct of them are known",
                   metric, list);
}

bool compare_value(const Comparison *c, const char *metric, double *value, Err *err)
{
    if (quantity_value(c, metric, value) || class_value(c, metric, value) ||
        single_value(c, metric, value))
        return true;
    return strncmp(metric, "classes.", 8) == 0 ? no_class(c, metric, err)
                                               : unknown(metric, err);
}

/* ---- conditions ---- */

typedef struct Condition {
    char metric[COMPARE_TEXT_CAP];
    bool above;
    double threshold;
    const char *end; /* behind it: a comma or the end */
} Condition;

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

static bool is_time(const char *metric)
{
    return text_ends_in(metric, "_ns");
}

static bool read_condition(Condition *k, const char *text, Err *err)
{
    const char *begin = skip_blanks(text);
    size_t n = strcspn(begin, "<>,");
    size_t length = n;
    while (length > 0 && (begin[length - 1] == ' ' || begin[length - 1] == '\t'))
        length--;
    const char *end;
    if (length == 0 || length >= sizeof k->metric || (begin[n] != '<' && begin[n] != '>'))
        return err_set(err, "--fail-if takes METRIC>NUMBER or METRIC<NUMBER, not '%.80s'",
                       text);
    memcpy(k->metric, begin, length);
    k->metric[length] = '\0';
    k->above = begin[n] == '>';
    const char *number = skip_blanks(begin + n + 1);
    bool is_number = numeral_real(number, &k->threshold, &end);
    k->end = skip_blanks(end);
    bool percent = is_number && *k->end == '%';
    if (percent)
        k->end = skip_blanks(k->end + 1);
    if (!is_number || (*k->end && *k->end != ','))
        return err_set(err, "--fail-if '%.60s': '%.60s' is not a number", k->metric, number);
    if (percent && is_time(k->metric))
        return err_set(err,
                       "--fail-if '%.60s' is in nanoseconds, '%.*s' is not; .error_pct and "
                       ".abs_error_pct are in %%",
                       k->metric, (int)min_i64(60, k->end - number), number);
    return true;
}

/* Every condition of the list; stops at the first false. */
static bool each_condition(const char *text,
                           bool (*visit)(void *user, const Condition *k, Err *err), void *user,
                           Err *err)
{
    Condition k;
    for (;;) {
        if (!read_condition(&k, text, err) || !visit(user, &k, err))
            return false;
        if (!*k.end)
            return true;
        text = k.end + 1;
    }
}

typedef struct Gate {
    const Comparison *c;
    char *crossed;
} Gate;

static bool look(void *user, const Condition *k, Err *err)
{
    Gate *g = user;
    double value;
    if (!compare_value(g->c, k->metric, &value, err))
        return false;
    /* What is not known cannot be said to be within bounds. */
    bool holds = isnan(value) || (k->above ? value > k->threshold : value < k->threshold);
    if (holds && !*g->crossed && isnan(value))
        snprintf(g->crossed, COMPARE_TEXT_CAP, "%.80s is not known", k->metric);
    else if (holds && !*g->crossed)
        snprintf(g->crossed, COMPARE_TEXT_CAP, "%.80s is %.6g, %s %.6g", k->metric, value,
                 k->above ? "above" : "below", k->threshold);
    return true;
}

bool compare_gate(const Comparison *c, const char *conditions, char crossed[COMPARE_TEXT_CAP],
                  Err *err)
{
    Gate g = { c, crossed };
    *crossed = '\0';
    return each_condition(conditions, look, &g, err);
}

/* Without a comparison every quantity is 0, which is as good for asking whether it exists. */
static bool look_at_name(void *user, const Condition *k, Err *err)
{
    double value;
    return strncmp(k->metric, "classes.", 8) == 0 ||
           compare_value(user, k->metric, &value, err);
}

bool compare_gate_check(const char *conditions, Err *err)
{
    Comparison *empty = mem_zero(1, sizeof *empty);
    bool ok = each_condition(conditions, look_at_name, empty, err);
    free(empty);
    return ok;
}
