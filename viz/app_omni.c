/*
 * app_omni.c - one box for searching, filtering, commands and ranks, told by its first sign.
 *
 *     /nccl dur>1ms    search: Enter goes to the next match
 *     :rank:0-3        filter: what does not match is dimmed
 *     >zoom            commands, with their keys
 *     @12              ranks
 */
#include "viz/app.h"

#include <stdio.h>
#include <string.h>

/* ---- offers ---- */

static void add_offer(App *a, int32_t action, const char *text, const char *key)
{
    uint32_t i = a->view.offers_n;
    if (i == APP_OFFERS)
        return;
    snprintf(a->offer_text[i], sizeof a->offer_text[i], "%s%s%s", text, key[0] ? "\t" : "",
             key);
    a->offers[i] = a->offer_text[i];
    a->offer_action[i] = action;
    a->view.offers_n++;
}

static void offer_actions(App *a, const char *word)
{
    char key[KEY_TEXT];
    for (size_t i = 0; i < app_actions_n; i++) {
        const AppAction *k = &app_actions[i];
        bool again = i > 0 && strcmp(app_actions[i - 1].name, k->name) == 0;
        if (!again && filter_has_word(k->name, word))
            add_offer(a, (int32_t)i, k->name, keys_text(&a->keys, (uint32_t)i, key));
    }
}

static void offer_ranks(App *a, const char *word)
{
    const ViewData *d = a->view.data[VIEW_REAL_SIDE];
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        char text[32];
        if (a->view.ranks[r].left_out)
            continue;
        snprintf(text, sizeof text, "rank %" PRIu32, d->ranks[r].rank);
        if (filter_has_word(text, word))
            add_offer(a, -1 - (int32_t)r, text, "");
    }
}

static void make_offers(App *a)
{
    View *v = &a->view;
    v->offers = a->offers;
    v->offers_n = v->offer_at = 0;
    if (v->omni[0] == '>')
        offer_actions(a, v->omni + 1);
    else if (v->omni[0] == '@')
        offer_ranks(a, v->omni + 1);
}

/* What a search or filter would find, said while it is typed. */
static void try_filter(App *a)
{
    View *v = &a->view;
    ViewFilter f;
    Err err = { 0 };
    char text[64];
    v->message[0] = 0;
    if ((v->omni[0] != '/' && v->omni[0] != ':') || !v->omni[1])
        return;
    if (!filter_open(&f, view_data(v), v->omni + 1, &err)) {
        app_say(a, "%s", err.text);
        return;
    }
    view_filter_shown(v, &f);
    app_say(a, "%s", filter_count_text(filter_count(&f), text, sizeof text));
    filter_free(&f);
}

static void changed(App *a)
{
    make_offers(a);
    try_filter(a);
}

void app_omni_open(App *a, const char *text)
{
    View *v = &a->view;
    v->omni_open = true;
    snprintf(v->omni, sizeof v->omni, "%s", text);
    v->omni_cursor = (uint32_t)strlen(v->omni);
    changed(a);
}

void app_omni_close(App *a)
{
    a->view.omni_open = false;
    a->view.omni[0] = 0;
    a->view.omni_cursor = 0;
    a->view.offers_n = 0;
}

/* ---- Enter ---- */

static bool take_filter(App *a, ViewFilter *f, const char *text, Err *err)
{
    ViewFilter fresh;
    if (!filter_open(&fresh, view_data(&a->view), text, err)) {
        app_say(a, "%s", err->text);
        return false;
    }
    view_filter_shown(&a->view, &fresh);
    filter_free(f);
    *f = fresh;
    return true;
}

bool app_filter(App *a, const char *text, Err *err)
{
    if (text[0])
        return take_filter(a, &a->filter, text, err);
    filter_free(&a->filter);
    return true;
}

void app_search_name(App *a, uint32_t name)
{
    filter_free(&a->search);
    filter_open_name(&a->search, view_data(&a->view), name);
    view_filter_shown(&a->view, &a->search);
}

static void go_to_rank(App *a, uint32_t rank)
{
    app_unhide(a, rank);
    const LayoutRow *row = app_first_row(a, rank);
    if (row && !row->pinned)
        a->view.scroll_px += px_floor(row->y0 - a->scene.layout.scrolled.y0) - 4;
}

static void take_offer(App *a)
{
    int32_t action = a->offer_action[a->view.offer_at];
    app_omni_close(a);
    if (action >= 0)
        app_do(a, (uint32_t)action);
    else
        go_to_rank(a, (uint32_t)(-1 - action));
}

static void enter(App *a, int32_t mods)
{
    View *v = &a->view;
    char text[VIEW_TEXT];
    Err err = { 0 };
    snprintf(text, sizeof text, "%s", v->omni);
    if (v->offers_n > 0) {
        take_offer(a);
        return;
    }
    app_omni_close(a);
    if (text[0] == '/' && text[1]) {
        take_filter(a, &a->search, text + 1, &err);
        app_act(a, mods & MOD_SHIFT ? "previous match" : "next match");
    } else if (text[0] == ':') {
        if (text[1])
            take_filter(a, &a->filter, text + 1, &err);
        else
            filter_free(&a->filter);
    } else if (text[0] == '>' || text[0] == '@') {
        app_say(a, "there is no such %s", text[0] == '>' ? "command" : "rank");
    }
}

/* ---- editing ---- */

static uint32_t char_before(const View *v)
{
    uint32_t i = v->omni_cursor;
    while (i > 0 && ((unsigned char)v->omni[--i] & 0xc0) == 0x80)
        ;
    return i;
}

static uint32_t char_after(const View *v)
{
    uint32_t i = v->omni_cursor;
    if (!v->omni[i])
        return i;
    i++;
    while (((unsigned char)v->omni[i] & 0xc0) == 0x80)
        i++;
    return i;
}

static void erase(App *a, uint32_t from, uint32_t to)
{
    View *v = &a->view;
    memmove(v->omni + from, v->omni + to, strlen(v->omni + to) + 1);
    v->omni_cursor = from;
    if (!v->omni[0])
        app_omni_close(a);
    else
        changed(a);
}

void app_omni_type(App *a, const char *text)
{
    View *v = &a->view;
    size_t n = strlen(text), length = strlen(v->omni);
    if (length + n + 1 > sizeof v->omni)
        return;
    memmove(v->omni + v->omni_cursor + n, v->omni + v->omni_cursor,
            length - v->omni_cursor + 1);
    memcpy(v->omni + v->omni_cursor, text, n);
    v->omni_cursor += (uint32_t)n;
    changed(a);
}

bool app_omni_key(App *a, int32_t key, int32_t mods)
{
    View *v = &a->view;
    switch (key) {
    case KEY_ESC:
        app_omni_close(a);
        return true;
    case KEY_ENTER:
        enter(a, mods);
        return true;
    case KEY_BACKSPACE:
        if (v->omni_cursor > 0)
            erase(a, char_before(v), v->omni_cursor);
        return true;
    case KEY_DELETE:
        erase(a, v->omni_cursor, char_after(v));
        return true;
    case KEY_LEFT:
        v->omni_cursor = char_before(v);
        return true;
    case KEY_RIGHT:
        v->omni_cursor = char_after(v);
        return true;
    case KEY_HOME:
        v->omni_cursor = 0;
        return true;
    case KEY_END:
        v->omni_cursor = (uint32_t)strlen(v->omni);
        return true;
    case KEY_DOWN:
    case KEY_TAB:
        v->offer_at = v->offers_n ? (v->offer_at + 1) % v->offers_n : 0;
        return true;
    case KEY_UP:
        v->offer_at = v->offers_n ? (v->offer_at + v->offers_n - 1) % v->offers_n : 0;
        return true;
    default:
        return false;
    }
}
