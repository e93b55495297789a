/*
 * view_groups.c - the list of ranks under headings of their process groups.
 */
#include "viz/view.h"

#include <stdio.h>
#include <string.h>

void view_group(View *v, uint32_t kind)
{
    const ViewData *d = v->data[VIEW_REAL_SIDE];
    if (kind && v->groups.kinds_n == 0)
        groups_find(&v->groups, d);
    v->grouped_by = kind <= v->groups.kinds_n ? kind : 0;
    memset(v->closed, 0, (d->ranks_n + 1) * sizeof *v->closed);
    view_sort(v, v->sort);
}

uint32_t view_group_next(View *v)
{
    view_group(v, v->grouped_by + 1);
    return v->grouped_by;
}

uint32_t view_group_of(const View *v, uint32_t rank)
{
    return v->grouped_by ? v->groups.kinds[v->grouped_by - 1].of[rank] : NONE_U32;
}

bool view_is_hidden(const View *v, uint32_t rank)
{
    return v->grouped_by && v->closed[view_group_of(v, rank)] && !v->ranks[rank].pinned;
}

ViewItems view_items(const View *v)
{
    return (ViewItems){ v, 0, NONE_U32 };
}

bool view_items_next(ViewItems *i, ViewItem *item)
{
    const View *v = i->v;
    for (; i->at < v->data[VIEW_REAL_SIDE]->ranks_n; i->at++) {
        uint32_t rank = v->order[i->at], group = view_group_of(v, rank);
        if (v->ranks[rank].left_out)
            continue;
        if (group != i->group && !v->ranks[rank].pinned) {
            i->group = group;
            *item = (ViewItem){ NONE_U32, group };
            return true;
        }
        if (view_is_hidden(v, rank))
            continue;
        i->at++;
        *item = (ViewItem){ rank, NONE_U32 };
        return true;
    }
    return false;
}

ViewItem view_item(const View *v, uint32_t n)
{
    ViewItems items = view_items(v);
    ViewItem item;
    while (view_items_next(&items, &item))
        if (n-- == 0)
            return item;
    return (ViewItem){ NONE_U32, NONE_U32 };
}

char *view_group_text(const View *v, uint32_t group, char *text, size_t cap)
{
    const ViewData *d = v->data[VIEW_REAL_SIDE];
    size_t n = 0;
    text[0] = 0;
    for (uint32_t r = 0, end; r < d->ranks_n && n < cap; r = end) {
        const ViewRank *k = &d->ranks[r];
        for (end = r + 1; end < d->ranks_n && view_group_of(v, r) == group &&
                          view_group_of(v, end) == group && k->ranks_n == 1 &&
                          d->ranks[end].ranks_n == 1 &&
                          d->ranks[end].rank == d->ranks[end - 1].rank + 1;)
            end++;
        if (view_group_of(v, r) != group)
            continue;
        n += (size_t)snprintf(text + n, cap - n, "%s%" PRIu32, n ? ", " : "", k->rank);
        if (n < cap && end > r + 1)
            n += (size_t)snprintf(text + n, cap - n, "-%" PRIu32, d->ranks[end - 1].rank);
        if (n < cap && k->ranks_n > 1)
            n += (size_t)snprintf(text + n, cap - n, " \xc3\x97%" PRIu32, k->ranks_n);
    }
    return text;
}
