/* cmd_convert.c - lockstep convert IN OUT: read one trace format, write another. */
#include "traces/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/out_file.h"
#include "traces/formats.h"
#include "traces/set.h"

typedef struct ConvertOptions {
    const char *in, *out;
    const TraceFormat *to; /* NULL: as the ending of out says */
    const char **rules;
    uint32_t rules_n, rules_cap;
} ConvertOptions;

static void print_help(FILE *f)
{
    fprintf(
        f, "usage: lockstep convert IN OUT [--to FORMAT] [--rules FILE]...\n"
           "Reads the trace IN, whose format its content tells, checks it, and writes it as\n"
           "OUT in the format that OUT's ending or --to says.  A folder of one trace per rank\n"
           "becomes one trace of all ranks.  What is odd about IN is said on standard error.\n"
           "--rules: more rules on which kernels communicate, as for lockstep report.\n\n"
           "  format     read  write  endings           what\n");
    for (size_t i = 0; i < trace_formats_n; i++) {
        const TraceFormat *t = &trace_formats[i];
        fprintf(f, "  %-10s yes   %-6s %-17s %s\n", t->name, t->write ? "yes" : "no",
                t->endings, t->summary);
    }
}

static bool take_format(ConvertOptions *o, const char *name, Err *err)
{
    o->to = trace_format_named(name, err);
    if (o->to && !o->to->write)
        return err_set(err, "trace format '%s' is read only", name);
    return o->to != NULL;
}

static bool take_file(ConvertOptions *o, const char *path, Err *err)
{
    if (o->out)
        return err_set(err, "'%s' is one file too many, IN and OUT allowed", path);
    if (o->in)
        o->out = path;
    else
        o->in = path;
    return true;
}

static bool take_rules(ConvertOptions *o, const char *path)
{
    GROW(o->rules, o->rules_n, o->rules_cap);
    o->rules[o->rules_n++] = path;
    return true;
}

/* The value of argv[*i] where that is the option name, "--to X" or "--to=X"; else NULL. */
static const char *value_of(const char *name, int argc, char **argv, int *i)
{
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0)
        return NULL;
    if (argv[*i][n] == '=')
        return argv[*i] + n + 1;
    return argv[*i][n] == '\0' && *i + 1 < argc ? argv[++*i] : NULL;
}

/* Takes argv[*i], and the one after it where it belongs to it. */
static bool take_argument(ConvertOptions *o, int argc, char **argv, int *i, Err *err)
{
    const char *arg = argv[*i], *value;
    if ((value = value_of("--to", argc, argv, i)))
        return take_format(o, value, err);
    if ((value = value_of("--rules", argc, argv, i)))
        return take_rules(o, value);
    if (strcmp(arg, "--to") == 0)
        return err_set(err, "--to needs a format");
    if (strcmp(arg, "--rules") == 0)
        return err_set(err, "--rules needs a file");
    if (arg[0] == '-' && arg[1])
        return err_set(err, "unknown option '%s', allowed: --to, --rules", arg);
    return take_file(o, arg, err);
}

static bool parse(ConvertOptions *o, int argc, char **argv, Err *err)
{
    for (int i = 1; i < argc; i++)
        if (!take_argument(o, argc, argv, &i, err))
            return false;
    if (!o->out)
        return err_set(err, "%s is missing", o->in ? "OUT" : "IN");
    if (!o->to)
        o->to = trace_format_for_ending(o->out, err);
    return o->to != NULL;
}

static bool convert(const ConvertOptions *o, Err *err)
{
    if (out_file_is_same(o->in, o->out))
        return err_set(err, "'%s' and '%s' are the same file, the input is not written over",
                       o->in, o->out);
    TraceSet set;
    TraceSetOptions options = { .rules = o->rules, .rules_n = o->rules_n };
    bool ok = trace_set_read(&set, &o->in, 1, &options, err);
    for (size_t i = 0; i < set.findings_n; i++)
        fprintf(stderr, "lockstep: %s\n", set.findings[i]);
    ok = ok && trace_set_spares(&set, &options, o->out, err) &&
         trace_set_holds_any(&set, o->in, err) && o->to->write(&set.timeline, o->out, err);
    trace_set_free(&set);
    return ok;
}

int cmd_convert(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(stdout);
            return EXIT_DONE;
        }
    Err err = { 0 };
    ConvertOptions options = { .in = NULL };
    int status = EXIT_DONE;
    if (!parse(&options, argc, argv, &err))
        status = EXIT_USAGE;
    else if (!convert(&options, &err))
        status = EXIT_COULD_NOT;
    if (err.set)
        fprintf(stderr, "lockstep: %s\n", err.text);
    free(options.rules);
    return status;
}
