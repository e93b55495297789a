/*
 * app_mouse.c - what the mouse does: select, pan, zoom to, scroll; and what it is over.
 */
#include "viz/app.h"

#include <math.h>
#include <stdlib.h>

enum { BUTTON_LEFT = 1, BUTTON_MIDDLE = 2, BUTTON_RIGHT = 3, CLICK_PX = 4, WHEEL_PX = 60 };
enum { HELP_LINES = 3 }; /* a notch of the wheel */

void app_hover(App *a)
{
    View *v = &a->view;
    const Layout *l = &a->scene.layout;
    v->hover = view_nowhere;
    v->hover_item = NONE_U32;
    if (v->mouse_x < 0 || a->drag != DRAG_NONE)
        return;
    v->hover_item = draw_item_at(&a->list, PX(v->mouse_x), PX(v->mouse_y));
    if (v->hover_item == NONE_U32)
        v->hover = layout_pick(l, v, PX(v->mouse_x), PX(v->mouse_y));
}

static bool over(PxBox box, const Input *in)
{
    return px_box_has(box, PX(in->x), PX(in->y));
}

/* ---- the minimap: its middle follows the mouse ---- */

static void move_minimap(App *a, const Input *in)
{
    View *v = &a->view;
    PxBox map = a->scene.layout.minimap;
    ViewWindow whole = view_whole(v);
    double part = (double)(PX(in->x) - map.x0) / (double)px_max(1, map.x1 - map.x0);
    int64_t at_ns = view_moved(whole.from_ns, part * (double)(whole.to_ns - whole.from_ns));
    int64_t half_ns = (v->to_ns - v->from_ns) / 2;
    view_move(v, at_ns - half_ns, at_ns - half_ns + (v->to_ns - v->from_ns));
}

/* ---- dragging ---- */

static bool press(App *a, const Input *in)
{
    View *v = &a->view;
    const Layout *l = &a->scene.layout;
    a->drag_x = in->x;
    a->drag_y = in->y;
    a->drag_ns = layout_ns_at(l, v, PX(in->x));
    a->drag_from_ns = v->from_ns;
    a->drag_to_ns = v->to_ns;
    if (over(l->minimap, in)) {
        a->drag = DRAG_MINIMAP;
        move_minimap(a, in);
        return true;
    }
    if (!over(l->lanes, in) && !over(l->ruler, in))
        return false;
    if (in->button == BUTTON_RIGHT || (in->button == BUTTON_LEFT && in->mods & MOD_SHIFT))
        a->drag = DRAG_PAN;
    else if (in->button == BUTTON_MIDDLE)
        a->drag = DRAG_ZOOM_TO;
    else
        a->drag = DRAG_SELECT;
    return true;
}

static void select_ranks(App *a, const Input *in)
{
    View *v = &a->view;
    const Layout *l = &a->scene.layout;
    Px low = PX(in->y < a->drag_y ? in->y : a->drag_y);
    Px high = PX(in->y < a->drag_y ? a->drag_y : in->y);
    uint32_t chosen_n = 0;
    for (uint32_t r = 0; r < v->data[0]->ranks_n; r++)
        v->selected_ranks[r] = false;
    for (uint32_t i = 0; i < l->rows_n; i++) {
        const LayoutRow *row = &l->rows[i];
        if (v->mode == VIEW_SIM || row->y1 <= low || row->y0 > high ||
            row->kind == LAYOUT_GROUP)
            continue; /* statistics of the simulation are of all its ranks */
        chosen_n += !v->selected_ranks[row->real];
        v->selected_ranks[row->real] = true;
    }
    bool ruler = px_box_has(l->ruler, PX(a->drag_x), PX(a->drag_y));
    for (uint32_t r = 0; (ruler || chosen_n == 0) && r < v->data[0]->ranks_n; r++)
        v->selected_ranks[r] = !v->ranks[r].left_out;
}

static void drag_to(App *a, const Input *in)
{
    View *v = &a->view;
    const Layout *l = &a->scene.layout;
    int64_t now_ns = layout_ns_at(l, v, PX(in->x));
    if (a->drag == DRAG_MINIMAP) {
        move_minimap(a, in);
    } else if (a->drag == DRAG_PAN) {
        double part = (double)(in->x - a->drag_x) /
                      (double)px_max(1, px_floor(l->lanes.x1 - l->lanes.x0));
        int64_t length_ns = a->drag_to_ns - a->drag_from_ns;
        int64_t from_ns = view_moved(a->drag_from_ns, -part * (double)length_ns);
        view_move(v, from_ns, from_ns + length_ns);
    } else if (abs(in->x - a->drag_x) >= CLICK_PX) {
        v->has_selection = true;
        v->selection = (ViewWindow){ min_i64(a->drag_ns, now_ns),
                                     max_i64(max_i64(a->drag_ns, now_ns), a->drag_ns + 1) };
        select_ranks(a, in);
    }
}

/* A click: picks, or folds a rank or group whose name was clicked. */
static void click(App *a, const Input *in)
{
    View *v = &a->view;
    const Layout *l = &a->scene.layout;
    uint32_t edge = draw_item_at(&a->list, PX(in->x), PX(in->y)) - SCENE_ITEM_EDGE;
    if (edge < a->scene.edges_n) {
        app_pick(a, a->scene.edges[edge]);
        return;
    }
    ViewPlace place = layout_pick(l, v, PX(in->x), PX(in->y));
    v->picked = place;
    if (in->clicks >= 2 && place.row != NONE_U32)
        view_show_span(v, place, 1);
    else if (place.row == NONE_U32)
        v->has_selection = false;
}

static bool click_name(App *a, const Input *in)
{
    const LayoutRow *row = layout_row_at(&a->scene.layout, PX(in->x), PX(in->y));
    if (!row)
        return false;
    if (row->kind == LAYOUT_STRIP)
        a->view.ranks[row->real].folded = !a->view.ranks[row->real].folded;
    else if (row->kind == LAYOUT_GROUP)
        a->view.closed[row->group] = !a->view.closed[row->group];
    return true;
}

/* The chips of the top bar, from right to left as scene.c draws them. */
static bool click_top(App *a, const Input *in)
{
    static const char *const modes[VIEW_MODES_N] = { "view real", "view sim", "view split",
                                                     "view diff" };
    uint32_t id = draw_item_at(&a->list, PX(in->x), PX(in->y));
    if (id < SCENE_ITEM_OMNI)
        return app_act(a, modes[id - SCENE_ITEM_MODE]);
    if (id == SCENE_ITEM_OMNI) {
        if (!a->view.omni_open)
            app_omni_open(a, "/");
        return true;
    }
    return false;
}

/* A click on one of the omnibox' list takes it. */
static bool click_offer(App *a, const Input *in)
{
    uint32_t i = draw_item_at(&a->list, PX(in->x), PX(in->y)) - SCENE_ITEM_OFFER;
    if (!a->view.omni_open || i >= a->view.offers_n)
        return false;
    a->view.offer_at = i;
    return app_omni_key(a, KEY_ENTER, 0);
}

/* A click on one of the top kernels goes to where it runs. */
static bool click_drawer(App *a, const Input *in)
{
    uint32_t i = draw_item_at(&a->list, PX(in->x), PX(in->y)) - SCENE_ITEM_KERNEL;
    if (i >= a->scene.tables.top_n)
        return false;
    app_search_kernel(a, i);
    return true;
}

static bool release(App *a, const Input *in)
{
    View *v = &a->view;
    AppDrag drag = a->drag;
    bool across = abs(in->x - a->drag_x) >= CLICK_PX;
    bool moved = across || abs(in->y - a->drag_y) >= CLICK_PX;
    if (drag != DRAG_NONE)
        drag_to(a, in);
    a->drag = DRAG_NONE;
    if (drag == DRAG_PAN || drag == DRAG_MINIMAP) {
        view_show(v, v->from_ns, v->to_ns);
    } else if (drag == DRAG_ZOOM_TO && across) {
        view_show(v, v->selection.from_ns, v->selection.to_ns);
        v->has_selection = false;
    } else if (drag == DRAG_SELECT && !moved) {
        click(a, in);
    }
    app_hover(a);
    return drag != DRAG_NONE;
}

static bool down(App *a, const Input *in)
{
    const Layout *l = &a->scene.layout;
    a->view.message[0] = 0;
    if (a->view.help) { /* it is over all else: a click closes it */
        a->view.help = false;
        return true;
    }
    if (click_offer(a, in))
        return true;
    if (over(l->top, in))
        return click_top(a, in);
    if (a->view.omni_open)
        app_omni_close(a);
    if (over(l->names, in))
        return click_name(a, in);
    if (over(l->drawer, in))
        return click_drawer(a, in);
    return press(a, in);
}

/* ---- wheel ---- */

static bool wheel(App *a, const Input *in)
{
    View *v = &a->view;
    const Layout *l = &a->scene.layout;
    if (v->help) {
        double lines = in->dy * HELP_LINES; /* of a touchpad, less than one */
        v->help_at -= (int32_t)(lines > 0 ? ceil(lines) : floor(lines));
        return true;
    }
    bool on_time = over(l->ruler, in) || over(l->minimap, in);
    bool zooms = in->mods & (MOD_CTRL | MOD_ALT) || (a->keys.wheel_zooms && !in->mods);
    if (zooms || on_time) {
        int64_t at_ns = over(l->minimap, in) ? v->from_ns + (v->to_ns - v->from_ns) / 2
                                             : layout_ns_at(l, v, PX(in->x));
        view_zoom(v, at_ns, pow(1.25, in->dy));
    } else if (in->mods & MOD_SHIFT) {
        view_pan(v, -0.1 * in->dy);
    } else {
        v->scroll_px -= (int32_t)(in->dy * WHEEL_PX);
        view_pan(v, 0.1 * in->dx);
    }
    return true;
}

bool app_mouse(App *a, const Input *in)
{
    View *v = &a->view;
    ViewPlace before = v->hover;
    if (in->kind == INPUT_LEAVE) {
        v->mouse_x = v->mouse_y = -1;
        app_hover(a);
        return true;
    }
    bool moved = v->mouse_x != in->x || v->mouse_y != in->y;
    v->mouse_x = in->x;
    v->mouse_y = in->y;
    v->by_keyboard = false;
    switch (in->kind) {
    case INPUT_DOWN:
        return down(a, in);
    case INPUT_UP:
        return release(a, in);
    case INPUT_WHEEL:
        return wheel(a, in);
    default:
        break;
    }
    if (a->drag != DRAG_NONE)
        drag_to(a, in);
    app_hover(a);
    return moved || before.span != v->hover.span;
}
