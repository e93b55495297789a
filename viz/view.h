/*
 * view.h - what is being looked at: the state of the viewer, and what changes it.
 *
 * One state serves the window, --render and the tests; it knows neither keys (viz/keys.h)
 * nor pixels of a screen (viz/scene.h draws it).
 *
 * SIDES.  Side 0 is the trace that was opened, side 1 the one it is compared with (the
 * simulation).  Times of the view are those of side 0; a rank of either side is shifted so
 * that clocks, and the steps that are compared, are aligned: time of the rank = time of the
 * view + its shift.
 *
 * WINDOW.  [from_ns, to_ns) is what the lanes show, at least VIEW_NS_MIN long, at most twice
 * as long as the trace, in Split as trace and simulation together.  Every change of it that is
 * meant (not each step of a drag or turn of the wheel) is remembered: view_back undoes it, and
 * what followed.
 */
#ifndef LOCKSTEP_VIZ_VIEW_H
#define LOCKSTEP_VIZ_VIEW_H

#include "viz/data.h"
#include "viz/diff.h"
#include "viz/groups.h"
#include "viz/theme.h"

enum { VIEW_SIDES = 2, VIEW_REAL_SIDE = 0, VIEW_SIM_SIDE = 1 };
enum { VIEW_NS_MIN = 20, VIEW_HISTORY = 64, VIEW_MARKS = 32, VIEW_TEXT = 256 };

typedef enum ViewMode { VIEW_REAL, VIEW_SIM, VIEW_SPLIT, VIEW_DIFF, VIEW_MODES_N } ViewMode;

extern const char *const view_mode_names[VIEW_MODES_N]; /* "real", "sim", "split", "diff" */

typedef enum ViewSort { VIEW_BY_RANK, VIEW_BY_EXPOSED, VIEW_BY_STEP, VIEW_SORTS_N } ViewSort;

/* A span as it is shown. */
typedef struct ViewPlace {
    uint8_t side;
    uint32_t row;  /* index into ViewData.rows; NONE_U32: nothing */
    uint64_t span; /* index into the timeline */
} ViewPlace;

static const ViewPlace view_nowhere = { 0, NONE_U32, NONE_U64 };

typedef struct ViewRankState {
    bool pinned;
    bool folded;   /* its strip only */
    bool threads;  /* its host threads are shown; at first where there is little else */
    bool left_out; /* not among the ranks that were asked for */
} ViewRankState;

typedef struct ViewWindow {
    int64_t from_ns, to_ns;
} ViewWindow;

/* What is searched or filtered; viz/filter.h. */
typedef struct ViewFilter ViewFilter;

/* What arrows and Enter act in. */
typedef enum ViewPane {
    VIEW_PANE_LANES,
    VIEW_PANE_RANKS,
    VIEW_PANE_DRAWER,
    VIEW_PANES_N
} ViewPane;

typedef struct View {
    ViewData *data[VIEW_SIDES]; /* [1] NULL: nothing to compare with */
    const ViewDiff *diff;       /* NULL without */
    ViewMode mode;
    ViewSort sort;
    ViewRankState *ranks; /* beside data[0]->ranks */
    uint32_t *order;      /* indices of ranks as they are shown; groups together */
    RankGroups groups;    /* found when they are first asked for */
    uint32_t grouped_by;  /* 0: not; else a kind of groups, + 1 */
    bool *closed;         /* by the first rank of a group: its heading alone is shown */

    int64_t from_ns, to_ns;
    ViewWindow history[VIEW_HISTORY];
    uint32_t history_n, history_at; /* at: where we are */

    bool has_selection; /* of time, over the ranks with selected_rank */
    ViewWindow selection;
    bool *selected_ranks; /* beside data[0]->ranks */
    int64_t marks_ns[VIEW_MARKS];
    uint32_t marks_n;

    ViewPlace hover, picked;
    uint32_t hover_item; /* what else the mouse is over: SCENE_ITEM_*; NONE_U32: nothing */
    bool by_keyboard;    /* the picked event was not clicked, so its tooltip stands beside it */
    const ViewFilter *filter; /* what does not match is dimmed; NULL: everything matches */
    bool critical;            /* the critical path is shown */
    bool hta_numbers;         /* the drawer's numbers as HTA's temporal breakdown books them */
    bool overlap_shading;     /* exposed communication is shaded over all streams of a rank */
    bool align_clocks;

    const Theme *theme;
    uint32_t scale_pct;
    int32_t width, height; /* pixels */
    int32_t scroll_px;     /* of the rows, downwards */
    bool drawer, help;
    const char *const *help_lines; /* "what\tkey" */
    uint32_t help_n;
    int32_t help_at;          /* lines that it is scrolled by */
    int32_t mouse_x, mouse_y; /* -1: not over the picture */

    ViewPane pane;
    uint32_t pane_at; /* which rank (as ordered), or which of the top kernels */

    /* The omnibox: what is typed, and what is offered (palette, rows, search). */
    bool omni_open;
    char omni[VIEW_TEXT];
    uint32_t omni_cursor; /* bytes */
    const char *const *offers;
    uint32_t offers_n, offer_at;
    char message[VIEW_TEXT]; /* said in the legend's place until the next action */
} View;

/* other: NULL, or what data is compared with.  Borrowed.  The window is everything. */
void view_open(View *v, ViewData *data, ViewData *other);
void view_free(View *v);

/* The side whose ranks, statistics and minimap are shown: sim in mode sim, else 0. */
uint32_t view_side(const View *v);
static inline const ViewData *view_data(const View *v)
{
    return v->data[view_side(v)];
}

/* By how much the clocks of side 0's ranks are moved now, by rank; NULL: not at all. */
const int64_t *view_clock_ns(const View *v);
/* What is said of clocks that differ, aligned or not; "" where they do not. */
char *view_clocks_text(const View *v, char *text, size_t cap);
/* Time of a rank of a side - time of the view. */
int64_t view_shift_ns(const View *v, uint32_t side, uint32_t rank);
/* The rank of sim that a rank of real is compared with, NONE_U32: none; and its shift then,
 * which differs between ranks that one simulated rank stands for. */
uint32_t view_sim_rank(const View *v, uint32_t rank);
int64_t view_sim_shift_ns(const View *v, uint32_t rank);

/* ---- the window ---- */

/* Times of the view stay within this, so that no sum of two overflows. */
#define VIEW_NS_MAX (TIMELINE_NS_MAX * 3 / 2)
/* ns + by, within those limits. */
int64_t view_moved(int64_t ns, double by_ns);

void view_show(View *v, int64_t from_ns, int64_t to_ns); /* remembered */
void view_move(View *v, int64_t from_ns, int64_t to_ns); /* a step of a drag: not remembered */
void view_fit(View *v);                                  /* everything */
ViewWindow view_whole(const View *v);                    /* of the side shown */
/* What view_fit shows: the whole; where the simulation stands below it, of both. */
ViewWindow view_reach(const View *v);
void view_zoom(View *v, int64_t at_ns, double factor); /* > 1: closer; at_ns stays in place */
void view_pan(View *v, double windows);                /* by that many windows, right > 0 */
bool view_back(View *v);                               /* false: nothing to go back to */
bool view_forward(View *v);
/* As little as brings [from_ns, to_ns) into sight with some room; zooms out where it must. */
void view_reveal(View *v, int64_t from_ns, int64_t to_ns);
/* Makes room about a span and goes there. */
void view_show_span(View *v, ViewPlace place, double margin);
/* From the first begin to the last end of a step on the ranks that are looked at; false: they have
 * no step of that number. */
bool view_step_window(const View *v, int64_t step, ViewWindow *w);
/* Goes there; false: there is none. */
bool view_show_step(View *v, int64_t step);
/* Is a rank of a side not among those that were asked for? */
bool view_is_left_out(const View *v, uint32_t side, uint32_t rank);
/* A filter, or a search, of the side shown and of ranks that are looked at; where another side is
 * shown by now, it is made again for that one. */
void view_filter_shown(const View *v, ViewFilter *f);
void view_filter_follow(const View *v, ViewFilter *f);
/* Index of the rank whose steps the ruler marks, on the side that view_data is of: the first that
 * is looked at and has some; NONE_U32: none has. */
uint32_t view_step_rank(const View *v);

/* ---- ranks ---- */

void view_sort(View *v, ViewSort sort);
bool view_is_strips(const View *v); /* more than 16 ranks shown: one row each */

/* Orders ranks by that group (0: none), groups and ranks as they are sorted; all open. */
void view_group(View *v, uint32_t kind);
/* The kind after the one shown, 0 after the last. */
uint32_t view_group_next(View *v);
/* By its first rank, ranks_n: of those that are in none; NONE_U32: ranks are not grouped. */
uint32_t view_group_of(const View *v, uint32_t rank);
/* Its group is closed, and it is not pinned. */
bool view_is_hidden(const View *v, uint32_t rank);

/* What stands in the list of ranks: a rank, or the heading of a group; the other NONE_U32. */
typedef struct ViewItem {
    uint32_t rank, group;
} ViewItem;

/* Ranks that are shown, pinned ones at their places. */
typedef struct ViewItems {
    const View *v;
    uint32_t at, group;
} ViewItems;

ViewItems view_items(const View *v);
bool view_items_next(ViewItems *i, ViewItem *item);
/* The n-th; both NONE_U32: there is none. */
ViewItem view_item(const View *v, uint32_t n);
/* "0-3, 8, 10", "0 \xc3\x974" for a folded one: the ranks of a group. */
char *view_group_text(const View *v, uint32_t group, char *text, size_t cap);

/* The statistics' window: the selection, else what is shown of the trace: nothing idles before or
 * behind it. */
ViewWindow view_stats_window(const View *v);
/* That of a rank of a side, which in Split may be the one whose statistics are not shown. */
ViewWindow view_side_window(const View *v, uint32_t side);
/* Does a rank of the side shown count in them: is it selected, or else shown? */
bool view_counts(const View *v, uint32_t rank);
/* Numbers of a window of the view, summed over the ranks that count.  of_rank: NULL, or by rank
 * of the side shown where those of each go; of ranks that do not count nothing is written. */
ViewStats view_window_stats(const View *v, ViewWindow w, Metrics *of_rank);

/* "73.35 ms", "1.250 µs", "12 ns", "2.310 s": four digits; the font has the mu that a terminal
 * may lack. */
char *view_time_text(char *text, size_t cap, int64_t ns);
/* "297ms", "1.5s", "20us", "300ns" at *text, which moves behind it; below 1e18 ns. */
bool view_time_parse(const char **text, int64_t *ns);
/* "51.20 MB", "1.200 GB", "512 B"; of 1000, as bandwidths beside them are. */
char *view_bytes_text(char *text, size_t cap, uint64_t bytes);

#endif
