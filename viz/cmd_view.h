/*
 * cmd_view.h - what `lockstep view` and the window's program share: options, and traces
 * made ready to be looked at.  Only cmd_*.c files and the window's main include this.
 */
#ifndef LOCKSTEP_VIZ_CMD_VIEW_H
#define LOCKSTEP_VIZ_CMD_VIEW_H

#include <stdio.h>

#include "viz/filter.h"
#include "viz/keys.h"
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
    const char *filter; /* NULL: none */
    bool critical;
    const char *keys; /* for keys_load */
} ViewOptions;

/* Wrong usage is false with err; *help: it was asked for, nothing else is filled. */
bool view_options_parse(ViewOptions *o, int argc, char **argv, bool *help, Err *err);
void view_options_free(ViewOptions *o);
void view_options_help(FILE *out);

/* The traces of the options, of one side or of two; cmd_view_load.c. */
typedef struct ViewTraces ViewTraces;

/* NULL with err.  What is odd about the traces is said on stderr. */
ViewTraces *view_traces_open(const ViewOptions *o, Err *err);
void view_traces_free(ViewTraces *t); /* NULL is fine */
/* The second half, which the first picture of one side need not wait for: collectives matched
 * across ranks, the two sides compared.  Before it nothing is linked. */
void view_traces_link(ViewTraces *t, const ViewOptions *o);
uint32_t view_traces_sides(const ViewTraces *t);

/* Says on stderr, once, that the machine's fonts lack a character that was drawn. */
void view_note_letters(Scene *s);

/* The view the options ask for. */
bool view_start(View *v, ViewTraces *t, const ViewOptions *o, Err *err);

#endif
