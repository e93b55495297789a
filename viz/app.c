/*
 * app.c - takes input, draws.
 */
#include "viz/app.h"
#include "viz/picture.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Actions that have keys, with all of them. */
static void fill_help(App *a)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < app_actions_n && n < APP_HELP; i++) {
        char keys[64];
        if (!keys_all_text(&a->keys, i, keys, sizeof keys)[0])
            continue;
        snprintf(a->help_text[n], sizeof a->help_text[0], "%.40s\t%.50s", app_actions[i].name,
                 keys);
        a->help[n] = a->help_text[n];
        n++;
    }
    a->view.help_n = n;
}

void app_set_keys(App *a, const Keys *keys)
{
    a->keys = *keys;
    fill_help(a);
}

void app_open(App *a, View view)
{
    *a = (App){ .view = view };
    scene_open(&a->scene, view.scale_pct);
    keys_default(&a->keys);
    fill_help(a);
}

void app_free(App *a)
{
    filter_free(&a->filter);
    filter_free(&a->search);
    scene_free(&a->scene);
    draw_free(&a->list);
    view_free(&a->view);
    free(a->copy);
    *a = (App){ .quit = true };
}

void app_say(App *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(a->view.message, sizeof a->view.message, format, args);
    va_end(args);
}

/* The rank of side 0 with which a row of a side is shown, of several the first; NONE_U32: none. */
static uint32_t shown_with(const View *v, ViewPlace place)
{
    uint32_t rank = v->data[place.side]->rows[place.row].rank, r = 0;
    if (place.side == VIEW_REAL_SIDE)
        return rank;
    while (r < v->data[VIEW_REAL_SIDE]->ranks_n &&
           (v->ranks[r].left_out || view_sim_rank(v, r) != rank))
        r++;
    return r < v->data[VIEW_REAL_SIDE]->ranks_n ? r : NONE_U32;
}

uint32_t app_rank(const App *a)
{
    const View *v = &a->view;
    ViewItem item = view_item(v, v->pane_at);
    if (v->pane == VIEW_PANE_RANKS && (item.rank != NONE_U32 || item.group != NONE_U32))
        return item.rank;
    ViewPlace place = v->hover.row != NONE_U32 ? v->hover : v->picked;
    const LayoutRow *row = v->mouse_x >= 0
                               ? layout_row_at(&a->scene.layout, PX(v->mouse_x), PX(v->mouse_y))
                               : NULL;
    if (row)
        return row->real;
    return place.row == NONE_U32 ? NONE_U32 : shown_with(v, place);
}

const LayoutRow *app_first_row(const App *a, uint32_t rank)
{
    const Layout *l = &a->scene.layout;
    for (uint32_t i = 0; i < l->rows_n; i++)
        if (l->rows[i].first && l->rows[i].real == rank)
            return &l->rows[i];
    return NULL;
}

void app_scroll_to(App *a, const LayoutRow *row)
{
    enum { ROOM = 8 };
    PxBox pane = a->scene.layout.scrolled;
    if (!row || row->pinned)
        return;
    if (row->y0 < pane.y0)
        a->view.scroll_px -= px_ceil(pane.y0 - row->y0) + ROOM;
    else if (row->y1 > pane.y1)
        a->view.scroll_px += px_ceil(row->y1 - pane.y1) + ROOM;
}

void app_unhide(App *a, uint32_t rank)
{
    View *v = &a->view;
    if (!view_is_hidden(v, rank))
        return;
    v->closed[view_group_of(v, rank)] = false;
    layout_make(&a->scene.layout, v);
}

/* Rows of host threads are built when they are first needed, and shown when asked for. */
static void open_threads(App *a, ViewPlace place)
{
    View *v = &a->view;
    ViewData *d = v->data[place.side];
    uint32_t rank = shown_with(v, place);
    view_row_ready(d, &d->rows[place.row]);
    if (d->rows[place.row].kind != VIEW_ROW_HOST || rank == NONE_U32)
        return;
    v->ranks[rank].threads = true;
    v->ranks[rank].folded = false;
    layout_make(&a->scene.layout, v);
}

void app_pick(App *a, ViewPlace place)
{
    View *v = &a->view;
    v->picked = place;
    v->by_keyboard = true;
    if (place.row == NONE_U32)
        return;
    const ViewData *d = v->data[place.side];
    int64_t shift_ns = view_shift_ns(v, place.side, d->rows[place.row].rank);
    int64_t from_ns = d->t->start_ns[place.span] - shift_ns;
    int64_t to_ns = from_ns + d->t->dur_ns[place.span];
    view_reveal(v, from_ns, to_ns);
    uint32_t rank = shown_with(v, place);
    if (rank != NONE_U32)
        app_unhide(a, rank);
    open_threads(a, place);
    app_scroll_to(a, layout_row_of(&a->scene.layout, v, place));
}

static bool resize(App *a, const Input *in)
{
    a->view.width = in->x > 0 ? in->x : 1;
    a->view.height = in->y > 0 ? in->y : 1;
    return true;
}

bool app_input(App *a, const Input *in)
{
    View *v = &a->view;
    switch (in->kind) {
    case INPUT_KEY:
        v->message[0] = 0;
        return v->omni_open ? app_omni_key(a, in->key, in->mods)
                            : app_key(a, in->key, in->mods);
    case INPUT_TEXT:
        if (v->omni_open)
            app_omni_type(a, in->text);
        return v->omni_open;
    case INPUT_SIZE:
        return resize(a, in);
    default:
        return app_mouse(a, in);
    }
}

const DrawList *app_draw(App *a)
{
    view_filter_follow(&a->view, &a->filter);
    a->view.filter = a->filter.d ? &a->filter : NULL;
    a->view.help_lines = a->help;
    layout_make(&a->scene.layout, &a->view);
    app_hover(a); /* what is below the mouse may have moved */
    scene_draw(&a->scene, &a->view, &a->list);
    return &a->list;
}

bool app_save(App *a, const char *path, Err *err)
{
    a->scene.tips = picture_is_svg(path);
    bool ok = picture_write(app_draw(a), path, err);
    a->scene.tips = false;
    return ok;
}
