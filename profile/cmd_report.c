/* cmd_report.c - lockstep report TRACE...: where the time of a run went. */
#include "profile/cmd.h"

#include <stdlib.h>
#include <string.h>

#include "core/out_file.h"
#include "profile/cmd_report_html.h"
#include "profile/trace_report.h"
#include "profile/trace_words.h"
#include "sim/cmd_options.h"
#include "traces/set.h"

enum { TOP = 10, TOP_MAX = 100000 };

typedef struct Options {
    bool json;
    const char *html; /* NULL: not asked for */
    const char **rules;
    uint32_t rules_n, rules_cap;
    uint32_t *ranks;
    uint32_t ranks_n, ranks_cap;
    TraceReportOptions report;
    char *const *paths;
    uint32_t paths_n;
} Options;

static void print_help(FILE *f)
{
    fprintf(
        f,
        "usage: lockstep report TRACE... [OPTION]...\n"
        "Says where the time of a recorded or simulated run went: communication that is\n"
        "exposed, what of it was waiting and for whom, why GPUs stood still, which kernels\n"
        "took longest.  TRACE is a file of any format that lockstep reads, or a folder with\n"
        "one file a rank; several are one run.\n"
        "\n"
        "  --step N            looks at step N only\n"
        "  --rank LIST         shows these ranks: 0,3 or 0-7 (all are still matched)\n"
        "  --top N             rows of each list, %d when not said; --json lists all\n"
        "  --rules FILE        more rules on which kernels communicate; repeatable\n"
        "  --json              prints one JSON object\n"
        "  --html OUT          writes a page with pictures: one file, needs no network\n"
        "  --hta-compatible    figures as Holistic Trace Analysis rounds and cuts them\n"
        "  --hta-include-last  the same with the last step, which it drops otherwise\n"
        "\n"
        "Waiting (wait_ns in --json) is what a kernel takes beyond the shortest one of its\n"
        "collective, as Kineto's \"Synchronizing\"; or what the trace itself says.  For "
        "ranks,\n"
        "before_last_arrival_ns is the time until the last rank began, on aligned clocks.\n",
        TOP);
    fprintf(f, "\n%s", trace_words_beside_sim);
}

/* ---- arguments ---- */

enum { OPT_STEP = 1, OPT_RANK, OPT_TOP, OPT_RULES, OPT_JSON, OPT_HTML, OPT_HTA, OPT_HTA_LAST };

static const struct option long_options[] = {
    { "step", required_argument, NULL, OPT_STEP },
    { "rank", required_argument, NULL, OPT_RANK },
    { "ranks", required_argument, NULL, OPT_RANK }, /* as view calls it */
    { "top", required_argument, NULL, OPT_TOP },
    { "rules", required_argument, NULL, OPT_RULES },
    { "json", no_argument, NULL, OPT_JSON },
    { "html", required_argument, NULL, OPT_HTML },
    { "hta-compatible", no_argument, NULL, OPT_HTA },
    { "hta-include-last", no_argument, NULL, OPT_HTA_LAST },
    { "help", no_argument, NULL, OPTION_HELP },
    { NULL, 0, NULL, 0 },
};

static bool take_option(void *user, int option, Err *err)
{
    Options *o = user;
    uint64_t n;
    switch (option) {
    case OPT_STEP:
        if (!option_count(&n, "--step", optarg, 0, INT64_MAX, err))
            return false;
        o->report.step = (int64_t)n;
        return true;
    case OPT_RANK:
        return option_ranks(&o->ranks, &o->ranks_n, &o->ranks_cap, "--rank", optarg, err);
    case OPT_TOP:
        if (!option_count(&n, "--top", optarg, 1, TOP_MAX, err))
            return false;
        o->report.top = (uint32_t)n;
        return true;
    case OPT_RULES:
        GROW(o->rules, o->rules_n, o->rules_cap);
        o->rules[o->rules_n++] = optarg;
        return true;
    case OPT_JSON:
        return o->json = true;
    case OPT_HTML:
        o->html = optarg;
        return true;
    case OPT_HTA:
        return o->report.hta = true;
    default:
        return o->report.hta = o->report.hta_include_last = true;
    }
}

static bool parse(Options *o, int argc, char **argv, bool *help, Err *err)
{
    if (!options_walk(argc, argv, long_options, take_option, o, help, err))
        return false;
    o->paths = argv + optind;
    o->paths_n = (uint32_t)(argc - optind);
    o->report.ranks = o->ranks;
    o->report.ranks_n = o->ranks_n;
    o->report.all_gaps = o->json;
    if (!*help && o->report.hta && o->report.step >= 0)
        return err_set(err, "--step does not go with --hta-compatible and --hta-include-last, "
                            "whose figures are of all steps");
    return *help || o->paths_n > 0 || err_set(err, "a trace is missing");
}

/* ---- reading ---- */

/* Traces and what is known of where they came from. */
typedef struct Input {
    TraceSet set;
    TraceSource source;
    TraceRuleCount *rules;
    int64_t *base_ns; /* by rank */
} Input;

/* Bytes before the last slash; 0 without a folder. */
static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

/* The used file at or after i; files_n when there is none. */
static size_t used_file(const TraceSet *s, size_t i)
{
    while (i < s->files_n && !s->files[i].used)
        i++;
    return i;
}

static size_t used_files(const TraceSet *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->files_n; i++)
        n += s->files[i].used;
    return n;
}

/* What ran, else the file, else the folder that all files are in. */
static const char *name_of(Input *in)
{
    const TraceSet *s = &in->set;
    size_t first_file = used_file(s, 0), used_n = used_files(s);
    const char *first = s->files[first_file].path;
    size_t folder_n = folder_bytes(first);
    if (used_n == 1)
        return s->timeline.name ? s->timeline.name : first;
    for (size_t i = used_file(s, first_file + 1); i < s->files_n; i = used_file(s, i + 1))
        if (folder_bytes(s->files[i].path) != folder_n ||
            strncmp(s->files[i].path, first, folder_n) != 0)
            folder_n = 0;
    if (folder_n > 0)
        return arena_printf(&in->set.arena, "%.*s", (int)folder_n, first);
    return arena_printf(&in->set.arena, "%s and %zu more", first, used_n - 1);
}

static void find_bases(Input *in)
{
    TraceSource *s = &in->source;
    s->base_n = in->set.timeline.ranks_n;
    s->base_ns = in->base_ns = mem_zero(s->base_n, sizeof *in->base_ns);
    for (size_t i = 0; i < in->set.files_n; i++) {
        const TraceFile *f = &in->set.files[i];
        if (f->used && f->rank < s->base_n)
            in->base_ns[f->rank] = f->info.base_ns;
    }
}

static bool input_read(Input *in, const Options *o, Err *err)
{
    TraceSetOptions options = { .rules = o->rules, .rules_n = o->rules_n, .lenient = true };
    TraceSet *set = &in->set;
    if (!trace_set_read(set, (const char *const *)o->paths, o->paths_n, &options, err))
        return false;
    if (!trace_set_spares(set, &options, o->html, err))
        return false;
    in->rules = mem_zero(set->rules.n, sizeof *in->rules);
    for (uint32_t i = 0; i < set->rules.n && i < TRACE_RULES_MAX; i++)
        in->rules[i] = (TraceRuleCount){ set->rules.rule[i].name, set->rule_kernels_n[i] };
    in->source = (TraceSource){ .name = name_of(in),
                                .files_n = used_files(set),
                                .events_read = set->events_read,
                                .events_skipped = set->events_skipped,
                                .alone = set->world_said && set->world_size == 1,
                                .findings = set->findings,
                                .findings_n = set->findings_n,
                                .rules = in->rules,
                                .rules_n = min_u64(set->rules.n, TRACE_RULES_MAX) };
    find_bases(in);
    return true;
}

static void input_free(Input *in)
{
    free(in->rules);
    free(in->base_ns);
    trace_set_free(&in->set);
}

/* ---- writing ---- */

static bool write_html(const TraceReport *r, const Options *o, Err *err)
{
    OutFile out;
    for (uint32_t i = 0; i < o->paths_n; i++)
        if (out_file_is_same(o->html, o->paths[i]))
            return err_set(err, "'%s' is the trace itself, it is not written over", o->html);
    if (!out_file_open(&out, o->html, err))
        return false;
    report_page(r, out.file);
    return out_file_commit(&out, err);
}

/* Whether it could be written to stdout is for main to see and to say. */
static void print(const TraceReport *r, const Options *o)
{
    Err ignored = { 0 };
    if (o->json) {
        JsonOut j = json_out_file(stdout, 2);
        trace_report_json(r, &j);
        json_out_end(&j, &ignored);
    } else if (o->report.hta) {
        trace_report_hta_text(r, stdout);
    } else {
        trace_report_text(r, stdout);
    }
}

/* Else what was odd about the files, which a report would note, is said beside the error. */
static bool holds_any(const Input *in, Err *err)
{
    if (trace_set_holds_any(&in->set, in->source.name, err))
        return true;
    for (size_t i = 0; i < in->set.findings_n; i++)
        fprintf(stderr, "lockstep: %s\n", in->set.findings[i]);
    return false;
}

static bool report(const Options *o, Err *err)
{
    Input in = { .source = { .name = NULL } };
    TraceReport r = { .t = NULL };
    bool ok = input_read(&in, o, err) && holds_any(&in, err) &&
              trace_report_make(&r, &in.set.timeline, &in.source, &o->report, err) &&
              (!o->html || write_html(&r, o, err));
    if (ok)
        print(&r, o);
    trace_report_free(&r);
    input_free(&in);
    return ok;
}

int cmd_report(int argc, char **argv)
{
    Options o = { .report = { .step = -1, .top = TOP } };
    Err err = { 0 };
    bool help = false;
    int status = EXIT_DONE;
    if (!parse(&o, argc, argv, &help, &err)) {
        status = options_wrong("report", &err);
    } else if (help) {
        print_help(stdout);
    } else if (!report(&o, &err)) {
        fprintf(stderr, "lockstep: %s\n", err.text);
        status = EXIT_COULD_NOT;
    }
    free(o.rules);
    free(o.ranks);
    return status;
}
