/* cmd_view_options.c - the command line of lockstep view. */
#include "viz/cmd_view.h"

#include <stdlib.h>
#include <string.h>

#include "sim/cmd_options.h"
#include "viz/png.h"

enum {
    OPT_COMPARE = 1,
    OPT_RENDER,
    OPT_STEP,
    OPT_RANKS,
    OPT_WINDOW,
    OPT_SIZE,
    OPT_THEME,
    OPT_VIEW,
    OPT_SCALE,
    OPT_RULES,
    OPT_FILTER,
    OPT_CRITICAL,
    OPT_KEYS
};

static const struct option long_options[] = {
    { "compare", required_argument, NULL, OPT_COMPARE },
    { "render", required_argument, NULL, OPT_RENDER },
    { "step", required_argument, NULL, OPT_STEP },
    { "ranks", required_argument, NULL, OPT_RANKS },
    { "rank", required_argument, NULL, OPT_RANKS }, /* as report calls it */
    { "window", required_argument, NULL, OPT_WINDOW },
    { "size", required_argument, NULL, OPT_SIZE },
    { "theme", required_argument, NULL, OPT_THEME },
    { "view", required_argument, NULL, OPT_VIEW },
    { "scale", required_argument, NULL, OPT_SCALE },
    { "rules", required_argument, NULL, OPT_RULES },
    { "filter", required_argument, NULL, OPT_FILTER },
    { "critical", no_argument, NULL, OPT_CRITICAL },
    { "keys", required_argument, NULL, OPT_KEYS },
    { "help", no_argument, NULL, OPTION_HELP },
    { NULL, 0, NULL, 0 },
};

void view_options_help(FILE *out)
{
    fprintf(
        out,
        "usage: lockstep view TRACE... [--compare TRACE]... [OPTION]...\n"
        "Opens a window on a recorded or simulated run, or draws it into a file.  TRACE is\n"
        "a file of any format that lockstep reads, or a folder with one file a rank.\n"
        "\n"
        "  --compare TRACE     a second run, mostly the simulation; repeatable\n"
        "  --view VIEW         real, sim, split or diff\n"
        "  --render OUT        no window: OUT.png or OUT.svg, the same bytes every time\n"
        "  --step N            shows step N\n"
        "  --ranks LIST        shows these ranks: 0,3 or 0-7\n"
        "  --window START+LEN  shows LEN from START on, as in 297ms+9ms; since the begin\n"
        "  --size WxH          of the picture or window, 1920x1080 when not said\n"
        "  --theme THEME       dark or light\n"
        "  --scale PCT         of texts and rows, 75 to 300\n"
        "  --filter TEXT       dims what does not match: 'nccl dur>1ms rank:0-3', as after "
        "':'\n"
        "  --critical          shows the critical path of the step, all else dimmed\n"
        "  --keys KEYS         default, tracy, chrome, or a file of lines 'KEY action name'\n"
        "  --rules FILE        more rules on which kernels communicate; repeatable\n");
}

/* ---- values ---- */

static void push(const char ***list, uint32_t *n, uint32_t *cap, const char *text)
{
    GROW(*list, *n, *cap);
    (*list)[(*n)++] = text;
}

static bool take_window(ViewOptions *o, const char *text, Err *err)
{
    const char *at = text;
    int64_t from_ns, length_ns;
    bool ok = view_time_parse(&at, &from_ns) && *at++ == '+' &&
              view_time_parse(&at, &length_ns) && !*at && length_ns > 0;
    if (!ok)
        return err_set(
            err, "--window takes START+LEN as in 297ms+9ms (ns, us, ms, s), not '%.60s'", text);
    o->has_window = true;
    o->window = (ViewWindow){ from_ns, from_ns + length_ns };
    return true;
}

static bool take_size(ViewOptions *o, const char *text, Err *err)
{
    char *end = NULL;
    if (*text >= '0' && *text <= '9')
        o->width = strtoll(text, &end, 10);
    if (!end || (*end != 'x' && *end != 'X') || end[1] < '0' || end[1] > '9')
        return err_set(err, "--size takes WIDTHxHEIGHT as in 1920x1080, not '%.60s'", text);
    o->height = strtoll(end + 1, &end, 10);
    if (*end)
        return err_set(err, "--size takes WIDTHxHEIGHT as in 1920x1080, not '%.60s'", text);
    return frame_size_check(o->width, o->height, err);
}

static bool take_view(ViewOptions *o, const char *text, Err *err)
{
    for (int m = 0; m < VIEW_MODES_N; m++)
        if (strcmp(text, view_mode_names[m]) == 0) {
            o->mode = (ViewMode)m;
            return o->has_mode = true;
        }
    return err_set(err, "--view takes real, sim, split or diff, not '%.60s'", text);
}

/* ---- options ---- */

static bool take_number(ViewOptions *o, int option, Err *err)
{
    uint64_t n;
    if (option == OPT_STEP) {
        if (!option_count(&n, "--step", optarg, 0, INT64_MAX, err))
            return false;
        o->step = (int64_t)n;
        return true;
    }
    if (!option_count(&n, "--scale", optarg, FONT_SCALE_MIN, FONT_SCALE_MAX, err))
        return false;
    o->scale_pct = (uint32_t)n;
    return true;
}

static bool take_option(void *user, int option, Err *err)
{
    ViewOptions *o = user;
    switch (option) {
    case OPT_COMPARE:
        push(&o->others, &o->others_n, &o->others_cap, optarg);
        return true;
    case OPT_RULES:
        push(&o->rules, &o->rules_n, &o->rules_cap, optarg);
        return true;
    case OPT_RENDER:
        o->render = optarg;
        return picture_name_check(optarg, "--render", err);
    case OPT_RANKS:
        return option_ranks(&o->ranks, &o->ranks_n, &o->ranks_cap, "--ranks", optarg, err);
    case OPT_WINDOW:
        return take_window(o, optarg, err);
    case OPT_SIZE:
        return take_size(o, optarg, err);
    case OPT_THEME:
        return (o->theme = theme_find(optarg, err)) != NULL;
    case OPT_FILTER:
        o->filter = optarg;
        return filter_check(optarg, err) || err_wrap(err, "--filter");
    case OPT_CRITICAL:
        return o->critical = true;
    case OPT_KEYS:
        o->keys = optarg;
        return true;
    case OPT_VIEW:
        return take_view(o, optarg, err);
    default:
        return take_number(o, option, err);
    }
}

static bool fits_together(const ViewOptions *o, Err *err)
{
    if (o->paths_n == 0)
        return err_set(err, "a trace is missing");
    if (o->step >= 0 && o->has_window)
        return err_set(err, "--step and --window both say what is shown, one is allowed");
    if (o->has_mode && o->mode != VIEW_REAL && o->others_n == 0)
        return err_set(err, "--view %s needs a second trace: --compare TRACE",
                       view_mode_names[o->mode]);
    return true;
}

bool view_options_parse(ViewOptions *o, int argc, char **argv, bool *help, Err *err)
{
    *o = (ViewOptions){
        .step = -1, .width = 1920, .height = 1080, .scale_pct = 100, .keys = "default"
    };
    if (!options_walk(argc, argv, long_options, take_option, o, help, err))
        return false;
    for (int i = optind; i < argc; i++)
        push(&o->paths, &o->paths_n, &o->paths_cap, argv[i]);
    if (!o->has_mode && o->others_n > 0)
        o->mode = VIEW_SPLIT;
    return *help || fits_together(o, err);
}

void view_options_free(ViewOptions *o)
{
    free(o->paths);
    free(o->others);
    free(o->rules);
    free(o->ranks);
    *o = (ViewOptions){ 0 };
}
