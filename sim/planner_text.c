/*
 * planner_text.c - a plan for people: the best, why, the ten best, what was left out and why.
 */
#include <math.h>
#include <string.h>

#include "sim/planner.h"
#include "sim/texts.h"

static const char *const fate_texts[PLAN_FATE_N] = {
    [PLAN_SIMULATED] = "simulated",
    [PLAN_ABOVE_BOUND] = "parameters, gradients and optimizer alone do not fit",
    [PLAN_TOO_LARGE] = "do not fit with activations and buffers",
    [PLAN_NEEDLESS] = "recompute more than they have to",
    [PLAN_TOO_SLOW] = "compute or transfer longer than the ten best take, even at best",
    [PLAN_REFUSED] = "cannot be simulated",
};

/* A word as a shell reads it; how many characters it has there. */
static uint32_t quote(const char *text, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=.,:/@%";
    if (text[strspn(text, plain)] == '\0' && *text) {
        fputs(text, out);
        return (uint32_t)strlen(text);
    }
    uint32_t n = 2;
    fputc('\'', out);
    for (; *text; text++) {
        const char *as = *text == '\'' ? "'\\''" : (char[]){ *text, '\0' };
        fputs(as, out);
        n += (uint32_t)strlen(as);
    }
    fputc('\'', out);
    return n;
}

static void print_setting(const char *setting, uint32_t *at, FILE *out)
{
    uint32_t width = (uint32_t)strlen(setting) + 7;
    if (*at + width > COMPARE_WIDTH - 2) {
        fprintf(out, " \\\n   ");
        *at = 3;
    }
    fputs(" --set ", out);
    *at += quote(setting, out) + 7;
}

static void print_command(const Plan *p, const PlanCandidate *c, FILE *out)
{
    char settings[PLAN_SETTINGS_MAX][PLAN_SETTING_CAP];
    uint32_t n = plan_settings(settings, p, c);
    const Setting *other;
    uint32_t at = (uint32_t)fprintf(out, "  lockstep sim ");
    at += quote(p->options->scenario, out);
    for (uint32_t i = 0; (other = plan_other_setting(p, settings, n, i)); i++) {
        Arena text = { 0 };
        print_setting(arena_printf(&text, "%s=%s", other->key, other->value), &at, out);
        arena_free(&text);
    }
    for (uint32_t i = 0; i < n; i++)
        print_setting(settings[i], &at, out);
    fprintf(out, "\n");
}

/* "17,947", "2.1", "0.000301" */
static char *text_amount(char *text, double x)
{
    if (x >= 0.1)
        return text_rate(text, x);
    snprintf(text, TEXT_CAP, "%.3g", x);
    return text;
}

static void print_training(const Plan *p, const PlanCandidate *c, FILE *out)
{
    char tokens[TEXT_CAP], days[TEXT_CAP], hours[TEXT_CAP], usd[TEXT_CAP];
    if (p->options->tokens <= 0)
        return;
    const PlanRun run = plan_training(p, c);
    fprintf(out, "%s tokens    %s days, %s GPU-hours, cost %s\n",
            text_count(tokens, p->options->tokens), text_amount(days, run.days),
            text_amount(hours, run.gpu_hours), text_usd(usd, run.cost_usd));
    if (isfinite(run.gpu_mwh))
        fprintf(out, "energy      at most %s MWh for the GPUs, at their TDP\n",
                text_amount(days, run.gpu_mwh));
    if (isfinite(run.failures))
        fprintf(out,
                "failures    %s%s of a GPU to be expected; the time they cost is not counted\n",
                run.failures < 0.01 ? "less than " : "",
                text_rate(days, fmax(run.failures, 0.01)));
}

static void print_best(const Plan *p, FILE *out)
{
    char a[TEXT_CAP], b[TEXT_CAP], label[TEXT_CAP];
    const PlanCandidate *c = &p->candidates[p->order[0]];
    const ReportMemory *fullest = report_fullest(&p->best);
    fprintf(out, "%s\n", text_name(a, p->bases[0].name, COMPARE_WIDTH));
    fprintf(out, "best of %s candidates by %s: %" PRIu32 " GPU%s, %s\n\n",
            text_number(a, p->n, 0), plan_objective_names[p->options->objective], plan_gpus(c),
            plan_gpus(c) == 1 ? "" : "s", plan_label(label, c));
    fprintf(out, "step time   %s, samples per s %s", text_seconds(a, c->step_s),
            text_rate(b, c->samples_per_s));
    if (isfinite(c->tokens_per_s))
        fprintf(out, ", tokens per s %s", text_rate(b, c->tokens_per_s));
    fprintf(out, ", mfu %s\n", text_percent(a, 100 * c->mfu));
    fprintf(out, "memory      %s allocated",
            text_bytes(a, report_memory(&p->best)->peak_bytes));
    fprintf(out, ", %s reserved of %s", text_bytes(a, fullest->reserved_bytes),
            text_bytes(b, fullest->gpu_bytes));
    if (p->best.full_rank != p->best.peak_rank)
        fprintf(out, " (rank %" PRIu32 ")", p->best.ranks[p->best.full_rank].rank);
    fprintf(out, "\n");
    if (isfinite(c->cost_usd))
        fprintf(out, "cost        %s a step\n", text_usd(a, c->cost_usd));
    else
        fprintf(
            out,
            "cost        %s GPU-seconds a step (no price: cluster.price_usd_per_gpu_hour)\n",
            text_amount(a, c->step_s * plan_gpus(c)));
    print_training(p, c, out);
    fprintf(out, "\n");
    print_command(p, c, out);
}

/* Sentences, broken at blanks. */
static void print_wrapped(const char *text, FILE *out)
{
    uint32_t column = 2;
    fprintf(out, "- ");
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column + word > COMPARE_WIDTH - 2 && column > 2) {
            fprintf(out, "\n  ");
            column = 2;
        }
        fprintf(out, "%.*s", (int)word, text);
        column += (uint32_t)word;
        text += word;
        if (*text == ' ') {
            text++;
            if (column + 1 + strcspn(text, " ") <= COMPARE_WIDTH - 2) {
                fputc(' ', out);
                column++;
            } else {
                column = COMPARE_WIDTH;
            }
        }
    }
    fprintf(out, "\n");
}

static void print_row(const PlanCandidate *c, uint32_t place, FILE *out)
{
    char label[TEXT_CAP], time[TEXT_CAP], mfu[TEXT_CAP], need[TEXT_CAP], name[TEXT_CAP];
    fprintf(out, "%2" PRIu32 " %7" PRIu32 " %10s %7s %11s %6.1f %6.1f  %s\n", place,
            plan_gpus(c), text_seconds(time, c->step_s), text_percent(mfu, 100 * c->mfu),
            text_bytes(need, c->need_bytes), 100 * c->exposed_s / c->step_s,
            100 * c->bubble_s / c->step_s, text_name(name, plan_label(label, c), 120));
}

static void print_table(const Plan *p, FILE *out)
{
    fprintf(out, "\n      GPUs  step time     mfu      memory exp. %% bub. %%  split\n");
    for (uint32_t i = 0; i < p->order_n && i < PLAN_TOP; i++)
        print_row(&p->candidates[p->order[i]], i + 1, out);
    fprintf(out, "%s\n", p->order_note);
}

static bool some_leave_gpus_idle(const Plan *p)
{
    bool some = false;
    for (uint32_t i = 0; i < p->front_n; i++) {
        const PlanCandidate *c = &p->candidates[p->front[i]];
        some |= isfinite(c->cost_usd) && plan_whole_nodes_gpus(p, c) > plan_gpus(c);
    }
    return some;
}

static void print_front(const Plan *p, FILE *out)
{
    char label[TEXT_CAP], time[TEXT_CAP], usd[TEXT_CAP], days[TEXT_CAP], hours[TEXT_CAP];
    fprintf(out,
            "\nmore GPUs, less time: what is %s is beaten on both\n"
            "   GPUs  step time  GPU-s/step  cost/step  split\n",
            p->missing_n > 0 ? "neither on this list nor named below" : "not on this list");
    for (uint32_t i = 0; i < p->front_n; i++) {
        const PlanCandidate *c = &p->candidates[p->front[i]];
        fprintf(out, "%7" PRIu32 " %10s %11s %10s  %s", plan_gpus(c),
                text_seconds(time, c->step_s), text_amount(hours, c->step_s * plan_gpus(c)),
                text_usd(usd, c->cost_usd), plan_label(label, c));
        if (p->options->tokens > 0)
            fprintf(out, "; %s days", text_rate(days, plan_training(p, c).days));
        fprintf(out, "\n");
    }
    if (some_leave_gpus_idle(p))
        fprintf(out,
                "costs are those of so many GPUs, not of the whole nodes that they are on\n");
}

static void print_missing(const Plan *p, FILE *out)
{
    if (p->missing_n > 0)
        fprintf(out, "\nno plan\n");
    for (uint32_t i = 0; i < p->missing_n; i++) {
        char text[sizeof((Err *)0)->text + 20];
        snprintf(text, sizeof text, "%" PRIu32 " GPU%s: %s", p->missing[i].gpus,
                 p->missing[i].gpus == 1 ? "" : "s", p->missing[i].why);
        print_wrapped(text, out);
    }
}

static void print_fates(const Plan *p, FILE *out)
{
    char n[TEXT_CAP];
    fprintf(out, "\nof %s candidates\n", text_number(n, p->n, 0));
    for (int f = 0; f < PLAN_FATE_N; f++)
        if (p->fates[f] > 0)
            fprintf(out, "%8s  %s\n", text_number(n, p->fates[f], 0), fate_texts[f]);
    if (p->refused)
        fprintf(out, "          the first of them: %s\n", p->refused);
}

void plan_text(const Plan *p, bool pareto, FILE *out)
{
    print_best(p, out);
    fprintf(out, "\nwhy\n");
    for (uint32_t i = 0; i < p->why_n; i++)
        print_wrapped(p->why[i], out);
    print_table(p, out);
    if (pareto)
        print_front(p, out);
    print_missing(p, out);
    print_fates(p, out);
}
