/*
 * cmd_view.h - what `lockstep view` and the window's program share: options, and traces
 * made ready to be looked at.  Only cmd_*.c files and the window's main include this.
 */
#ifndef LOCKSTEP_VIZ_CMD_VIEW_H
#define LOCKSTEP_VIZ_CMD_VIEW_H

#include <stdio.h>

#include "profile/collectives.h"
#include "profile/compare.h"
#include "traces/set.h"
#include "viz/scene.h"

typedef struct ViewOptions {
    const char **paths, **others, **rules;
    uint32_t paths_n, paths_cap, others_n, others_cap, rules_n, rules_cap;
    const char *render; /* NULL: a window */
    int64_t step;       /* -1: everything */
    uint32_t *ranks;
    uint32_t ranks_n, ranks_cap; /* 0: all */
    bool has_window;
    ViewWindow window; /* since the trace's begin */
    int64_t width, height;
    const Theme *theme; /* NULL: dark */
    ViewMode mode;
    bool has_mode;
    uint32_t scale_pct;
} ViewOptions;

/* Wrong usage is false with err; *help: it was asked for, nothing else is filled. */
bool view_options_parse(ViewOptions *o, int argc, char **argv, bool *help, Err *err);
void view_options_free(ViewOptions *o);
void view_options_help(FILE *out);

/* One side: files, timeline, who waited for whom, rows. */
typedef struct ViewSide {
    TraceSet set;
    Collectives collectives;
    ViewComm *comms;
    ViewMatch *matches;
    uint32_t *parts;
    const char **channels;
    int64_t *clock_ns;
    char name[160];
    ViewData data;
} ViewSide;

typedef struct ViewTraces {
    ViewSide side[VIEW_SIDES];
    uint32_t sides_n;
    Comparison comparison;
    bool has_diff;
    ViewDiff diff;
} ViewTraces;

/* What is odd about the traces is said on stderr. */
bool view_traces_open(ViewTraces *t, const ViewOptions *o, Err *err);
/* The second half, which the first picture need not wait for: collectives matched across ranks,
 * the two sides compared.  Before it nothing is linked. */
void view_traces_link(ViewTraces *t, const ViewOptions *o);
void view_traces_free(ViewTraces *t);

/* The view the options ask for. */
bool view_start(View *v, ViewTraces *t, const ViewOptions *o, Err *err);

#endif
