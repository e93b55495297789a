/* cmd_view_load.c - traces made ready to be looked at: timeline, collectives, rows. */
#include "viz/cmd_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- who waited for whom ---- */

static int by_span(const void *a, const void *b)
{
    const ViewComm *x = a, *y = b;
    return (x->span > y->span) - (x->span < y->span);
}

static uint32_t find_comm(const ViewSide *s, uint64_t span)
{
    uint64_t low = 0, high = s->collectives.parts_n;
    while (low + 1 < high) {
        uint64_t middle = low + (high - low) / 2;
        if (s->comms[middle].span <= span)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)low;
}

static void name_channels(ViewSide *s)
{
    const Collectives *c = &s->collectives;
    s->channels = mem_zero(c->channels_n + 1, sizeof *s->channels);
    for (uint32_t i = 0; i < c->channels_n; i++) {
        char text[160];
        collectives_channel_text(text, sizeof text, &s->set.timeline, &c->channels[i]);
        s->channels[i] = arena_printf(&s->set.arena, "%s, matched by %s", text,
                                      match_by_texts[c->channels[i].by]);
    }
}

static void link_collectives(ViewSide *s)
{
    const Collectives *c = &s->collectives;
    s->comms = mem_zero(c->parts_n + 1, sizeof *s->comms);
    s->parts = mem_zero(c->parts_n + 1, sizeof *s->parts);
    s->matches = mem_zero(c->matches_n + 1, sizeof *s->matches);
    for (uint64_t i = 0; i < c->parts_n; i++)
        s->comms[i] = (ViewComm){ c->parts[i].span, NONE_U32, c->parts[i].wait_ns,
                                  c->parts[i].exposed_ns };
    qsort(s->comms, c->parts_n, sizeof *s->comms, by_span);
    for (uint64_t i = 0; i < c->parts_n; i++)
        s->parts[i] = find_comm(s, c->parts[i].span);
    for (uint64_t m = 0; m < c->matches_n; m++) {
        const CollMatch *k = &c->matches[m];
        s->matches[m] = (ViewMatch){ (uint32_t)k->part_first, k->parts_n, k->last,
                                     k->transfer_ns, k->channel };
        for (uint32_t i = 0; i < k->parts_n; i++)
            s->comms[s->parts[k->part_first + i]].match = (uint32_t)m;
    }
    name_channels(s);
}

static void link_clocks(ViewSide *s)
{
    const Collectives *c = &s->collectives;
    if (!c->clocks_differ)
        return;
    s->clock_ns = mem_zero(c->ranks_n + 1, sizeof *s->clock_ns);
    for (uint32_t r = 0; r < c->ranks_n; r++)
        s->clock_ns[r] = c->ranks[r].is_aligned ? c->ranks[r].offset_ns : 0;
}

/* ---- one side ---- */

/* What ran, else the file, else the folder that all files are in. */
static void name_side(ViewSide *s)
{
    const char *first = s->set.files[0].path, *base = strrchr(first, '/');
    base = base && base[1] ? base + 1 : first;
    if (s->set.timeline.name)
        snprintf(s->name, sizeof s->name, "%s", s->set.timeline.name);
    else if (s->set.files_n == 1)
        snprintf(s->name, sizeof s->name, "%s", base);
    else
        snprintf(s->name, sizeof s->name, "%s and %zu more", base, s->set.files_n - 1);
}

static bool open_side(ViewSide *s, const ViewOptions *o, const char *const *paths, size_t n,
                      Err *err)
{
    TraceSetOptions options = { .rules = o->rules, .rules_n = o->rules_n };
    if (!trace_set_read(&s->set, paths, n, &options, err))
        return false;
    for (size_t i = 0; i < s->set.findings_n; i++)
        fprintf(stderr, "lockstep: note: %s\n", s->set.findings[i]);
    name_side(s);
    view_data_open(&s->data, &s->set.timeline, s->name, 0);
    collectives_find(&s->collectives, &s->set.timeline, &s->data.covers, NULL);
    link_collectives(s);
    link_clocks(s);
    s->data.links = (ViewLinks){ .comms = s->comms,
                                 .comms_n = s->collectives.parts_n,
                                 .matches = s->matches,
                                 .matches_n = s->collectives.matches_n,
                                 .parts = s->parts,
                                 .channels = s->channels,
                                 .channels_n = s->collectives.channels_n,
                                 .clock_offset_ns = s->clock_ns,
                                 .clock_residual_ns = s->collectives.residual_ns };
    return true;
}

bool view_traces_open(ViewTraces *t, const ViewOptions *o, Err *err)
{
    *t = (ViewTraces){ .sides_n = 1 };
    if (!open_side(&t->side[0], o, o->paths, o->paths_n, err))
        return false;
    if (o->others_n == 0)
        return true;
    t->sides_n = 2;
    return open_side(&t->side[1], o, o->others, o->others_n, err);
}

void view_traces_free(ViewTraces *t)
{
    for (uint32_t i = 0; i < t->sides_n; i++) {
        ViewSide *s = &t->side[i];
        view_data_free(&s->data);
        collectives_free(&s->collectives);
        free(s->comms);
        free(s->matches);
        free(s->parts);
        free(s->channels);
        free(s->clock_ns);
        trace_set_free(&s->set);
    }
    *t = (ViewTraces){ .sides_n = 0 };
}

/* ---- what is shown ---- */

static bool choose_ranks(View *v, const ViewOptions *o, Err *err)
{
    const ViewData *d = v->data[VIEW_REAL_SIDE];
    uint32_t found = 0;
    for (uint32_t r = 0; r < d->ranks_n && o->ranks_n > 0; r++) {
        bool asked = false;
        for (uint32_t i = 0; i < o->ranks_n && !asked; i++)
            asked = o->ranks[i] == d->ranks[r].rank ||
                    (o->ranks[i] > d->ranks[r].rank && d->ranks[r].ranks_n > 1 &&
                     (r + 1 == d->ranks_n || o->ranks[i] < d->ranks[r + 1].rank));
        v->ranks[r].left_out = !asked;
        v->selected_ranks[r] = asked;
        found += asked;
    }
    if (o->ranks_n > 0 && found == 0)
        return err_set(
            err, "--ranks: the trace has none of them, its ranks are %" PRIu32 " to %" PRIu32,
            d->ranks_n ? d->ranks[0].rank : 0, d->ranks_n ? d->ranks[d->ranks_n - 1].rank : 0);
    return true;
}

static bool choose_window(View *v, const ViewOptions *o, Err *err)
{
    int64_t begin_ns = v->from_ns;
    if (o->has_window)
        view_show(v, begin_ns + o->window.from_ns, begin_ns + o->window.to_ns);
    if (o->step >= 0 && !view_show_step(v, o->step))
        return err_set(err, "the trace has no step %" PRId64, o->step);
    return true;
}

bool view_start(View *v, ViewTraces *t, const ViewOptions *o, Err *err)
{
    view_open(v, &t->side[0].data, t->sides_n > 1 ? &t->side[1].data : NULL);
    v->mode = o->mode;
    v->width = (int32_t)o->width;
    v->height = (int32_t)o->height;
    v->scale_pct = o->scale_pct;
    if (o->theme)
        v->theme = o->theme;
    return choose_ranks(v, o, err) && choose_window(v, o, err);
}
