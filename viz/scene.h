/*
 * scene.h - the state of the viewer as a draw list: the whole picture, each time anew.
 *
 *     View + ViewData --layout--> Layout --scene_draw--> DrawList --> pixels or SVG
 *
 * The same state gives the same list.  What costs more than a frame may take is kept from
 * one to the next and made again when what it depends on has changed: the minimap, short
 * names, the drawer's tables.
 */
#ifndef LOCKSTEP_VIZ_SCENE_H
#define LOCKSTEP_VIZ_SCENE_H

#include "viz/critical.h"
#include "viz/filter.h"
#include "viz/kernels.h"
#include "viz/layout.h"
#include "viz/links.h"
#include "viz/names.h"

enum { SCENE_TOP_KERNELS = 24, SCENE_TOP_COMMS = 6, SCENE_EDGES = 64 };

/* Ids of what can be clicked or hovered, beside the rows (draw_tip, draw_item_at). */
enum {
    SCENE_ITEM_MODE, /* + ViewMode: the chips of the top bar */
    SCENE_ITEM_OMNI = SCENE_ITEM_MODE + VIEW_MODES_N,
    SCENE_ITEM_KERNEL,                                       /* + index into SceneTables.top */
    SCENE_ITEM_EDGE = SCENE_ITEM_KERNEL + SCENE_TOP_KERNELS, /* + index into Scene.edges */
    SCENE_ITEM_OFFER = SCENE_ITEM_EDGE + SCENE_EDGES         /* + index into View.offers */
};

/* Mean over the ranks of what each pixel of the minimap holds. */
typedef struct SceneMinimap {
    const ViewData *data;
    const int64_t *clock_ns; /* view_clock_ns */
    uint32_t width;
    uint32_t (*share)[LOD_N];
} SceneMinimap;

/* Communication of one op, type, size and number of ranks: what of it was exposed. */
typedef struct CommTotal {
    uint64_t span;   /* one of them */
    uint32_t number; /* among those found */
    int64_t exposed_ns;
    int64_t transfer_ns; /* the median of those known, as the report's; -1 none is */
} CommTotal;

/* The drawer's tables, of one window and choice of ranks. */
typedef struct SceneTables {
    const ViewData *data;
    ViewWindow window;
    uint64_t ranks_hash; /* which, and their clocks */
    KernelTotal top[SCENE_TOP_KERNELS];
    uint32_t top_n;
    CommTotal comms[SCENE_TOP_COMMS];
    uint32_t comms_n;
    bool comms_left_out; /* more are in the window than are looked at */
} SceneTables;

/* The critical path of the step in sight. */
typedef struct ScenePath {
    const ViewData *data;
    const int64_t *clock_ns; /* view_clock_ns */
    ViewWindow window;
    CriticalPath path;
} ScenePath;

/* What the filter wants: how much it is, and rows of it beside ViewData.rows, built when first
 * shown. */
typedef struct SceneKept {
    uint64_t number;       /* of the filter */
    const ViewComm *comms; /* as they were known, which terms may ask for */
    LodRow *rows;
    bool *ready;
    uint32_t rows_n;
    FilterCount count;
} SceneKept;

/* Of the top kernel at hand: the table's window and ranks. */
typedef struct SceneTimes {
    const ViewData *data;
    ViewWindow window;
    uint64_t ranks_hash;
    uint32_t name;
    KernelTimes times;
} SceneTimes;

typedef struct Scene {
    Font font;
    Layout layout;
    Names names[VIEW_SIDES]; /* beside View.data */
    SceneMinimap minimap;
    SceneTables tables;
    uint32_t kernels_n; /* of the top kernels, how many the drawer shows */
    KernelSums sums[VIEW_SIDES];
    bool hurry; /* the first picture: what takes long is left for the next */
    ScenePath path;
    SceneKept kept;
    SceneTimes times;
    ViewPlace edges[SCENE_EDGES]; /* where the arrows at the edges lead to */
    uint32_t edges_n;
    bool still; /* --render: no mouse, no hints on keys that a picture does not have */
    bool tips;  /* pieces are items of their own, with their tooltips: for SVG */
} Scene;

void scene_open(Scene *s, uint32_t scale_pct);
void scene_free(Scene *s);

/* The drawer's tables of the view as it is; and times of the i-th of its kernels. */
const SceneTables *scene_tables(Scene *s, const View *v);
const KernelTimes *scene_kernel_times(Scene *s, const View *v, uint32_t i);

/* The tooltip of the event that mouse or keyboard are at; "" without one.  Returns text. */
char *scene_event_text(const View *v, char *text, size_t cap);

/* Empties d first.  Follows changes of the view's scale and data. */
void scene_draw(Scene *s, View *v, DrawList *d);

#endif
