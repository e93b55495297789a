/* cmd_view_load.c - traces made ready to be looked at: timeline, collectives, rows. */
#include "viz/cmd_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/collectives.h"
#include "profile/compare.h"
#include "profile/steps.h"
#include "traces/set.h"

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

struct ViewTraces {
    ViewSide side[VIEW_SIDES];
    uint32_t sides_n;
    Comparison comparison;
    bool has_diff;
    ViewDiff diff;
    ViewFilter filter; /* d NULL: none */
};

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
                                  c->parts[i].exposed_ns, 0 };
    qsort(s->comms, c->parts_n, sizeof *s->comms, by_span);
    view_comms_reach(s->comms, c->parts_n, &s->set.timeline);
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
    view_data_bounds(&s->data);
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

/* The steps that report means: what a mark's launches did, however late. */
static void take_steps(ViewSide *s)
{
    step_windows_free(&s->data.steps);
    step_windows_in_gpu_time(&s->data.steps, &s->set.timeline);
}

static void link_side(ViewSide *s)
{
    take_steps(s);
    collectives_find(&s->collectives, &s->set.timeline, &s->data.covers, NULL);
    link_collectives(s);
    link_clocks(s);
    s->data.links = (ViewLinks){ .comms = s->comms,
                                 .comms_n = s->collectives.parts_n,
                                 .matches = s->matches,
                                 .matches_n = s->collectives.matches_n,
                                 .parts = s->parts,
                                 .channels = s->channels,
                                 .clock_offset_ns = s->clock_ns,
                                 .clock_residual_ns = s->collectives.residual_ns };
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
    if (!trace_set_spares(&s->set, &options, o->render, err) ||
        !trace_set_holds_any(&s->set, s->name, err)) {
        trace_set_free(&s->set);
        return false;
    }
    view_data_open(&s->data, &s->set.timeline, s->name, 0);
    if (!view_has_gpu_work(&s->data))
        fprintf(stderr,
                "lockstep: note: %s has no GPU events; record it with the GPU's activity "
                "on, as torch.profiler does with ProfilerActivity.CUDA\n",
                s->name);
    return true;
}

/* ---- both sides, op by op ---- */

static uint32_t rank_index(const ViewData *d, uint32_t rank)
{
    for (uint32_t r = 0; r < d->ranks_n; r++)
        if (d->ranks[r].rank == rank)
            return r;
    return NONE_U32;
}

static void take_rank(ViewDiffRank *to, const CompareRank *from, ViewTraces *t)
{
    static const int side_of[VIEW_SIDES] = { COMPARE_REAL, COMPARE_SIM };
    Arena *arena = &t->comparison.arena;
    *to = (ViewDiffRank){ .pairs = PUSH_ARRAY(arena, ViewPair, (size_t)from->pairs_n + 1) };
    for (int k = 0; k < VIEW_SIDES; k++) {
        to->rank[k] = rank_index(&t->side[k].data, from->source[side_of[k]]);
        to->begin_ns[k] = from->begin_ns[side_of[k]];
    }
    for (uint32_t i = 0; i < from->pairs_n; i++) {
        ViewPair *p = &to->pairs[to->pairs_n++];
        for (int k = 0; k < VIEW_SIDES; k++) {
            p->span[k] = from->pairs[i].span[side_of[k]];
            p->time_ns[k] = from->pairs[i].time_ns[side_of[k]];
            p->end_ns[k] = from->pairs[i].end_ns[side_of[k]];
        }
        to->real_n += p->span[VIEW_REAL_SIDE] != NONE_U64;
    }
    view_diff_index(to, t->side[VIEW_REAL_SIDE].data.t, arena);
}

static void take_classes(ViewDiff *d, Comparison *c)
{
    d->classes = PUSH_ARRAY(&c->arena, ViewDiffClass, (size_t)c->classes_n + 1);
    for (uint32_t i = 0; i < c->classes_n; i++) {
        const CompareClass *k = &c->classes[i];
        const int64_t *ns = compare_class_ns(k);
        d->classes[d->classes_n++] =
            (ViewDiffClass){ .name = k->name,
                             .ns = { ns[COMPARE_REAL], ns[COMPARE_SIM] },
                             .share_pct = compare_share_pct(c, k) };
    }
}

/* Traces that cannot be compared are still shown together. */
static void find_diff(ViewTraces *t, const ViewOptions *o)
{
    Err err = { 0 };
    Comparison *c = &t->comparison;
    ViewDiff *d = &t->diff;
    CompareOptions options = { .step = o->step, .pairs = true };
    options.name[COMPARE_SIM] = t->side[VIEW_SIM_SIDE].name;
    options.name[COMPARE_REAL] = t->side[VIEW_REAL_SIDE].name;
    if (!compare(c, &t->side[VIEW_SIM_SIDE].set.timeline, &t->side[VIEW_REAL_SIDE].set.timeline,
                 &options, &err)) {
        fprintf(stderr, "lockstep: note: %s; the traces are shown, not compared\n", err.text);
        return;
    }
    t->has_diff = true;
    d->ranks = PUSH_ARRAY(&c->arena, ViewDiffRank, (size_t)c->ranks_n + 1);
    for (uint32_t i = 0; i < c->ranks_n; i++)
        take_rank(&d->ranks[d->ranks_n++], &c->ranks[i], t);
    d->times[VIEW_REAL_SIDE] = c->times[COMPARE_REAL];
    d->times[VIEW_SIM_SIDE] = c->times[COMPARE_SIM];
    d->coverage_pct = compare_coverage_pct(c);
    d->op_error_pct = compare_op_error_pct(c);
    take_classes(d, c);
}

ViewTraces *view_traces_open(const ViewOptions *o, Err *err)
{
    ViewTraces *t = mem_zero(1, sizeof *t);
    t->sides_n = 1;
    bool ok = open_side(&t->side[0], o, o->paths, o->paths_n, err);
    if (ok && o->others_n > 0) {
        t->sides_n = 2;
        ok = open_side(&t->side[1], o, o->others, o->others_n, err);
    }
    if (ok)
        return t;
    view_traces_free(t);
    return NULL;
}

uint32_t view_traces_sides(const ViewTraces *t)
{
    return t->sides_n;
}

void view_traces_link(ViewTraces *t, const ViewOptions *o)
{
    for (uint32_t i = 0; i < t->sides_n; i++)
        link_side(&t->side[i]);
    if (t->sides_n > 1)
        find_diff(t, o);
}

void view_traces_free(ViewTraces *t)
{
    for (uint32_t i = 0; t && i < t->sides_n; i++) {
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
    if (t)
        filter_free(&t->filter);
    if (t)
        compare_free(&t->comparison);
    free(t);
}

/* ---- what is shown ---- */

/* Asked for by --ranks, and there is none of them. */
static bool refuse_ranks(const ViewData *d, Err *err)
{
    if (d->ranks_n != 1)
        return err_set(
            err, "--ranks: the trace has none of them, its ranks are %" PRIu32 " to %" PRIu32,
            d->ranks_n ? d->ranks[0].rank : 0, d->ranks_n ? d->ranks[d->ranks_n - 1].rank : 0);
    const ViewRank *r = &d->ranks[0];
    char alike[64] = "";
    if (r->ranks_n > 1)
        snprintf(alike, sizeof alike, ", which stands for %" PRIu32 " ranks", r->ranks_n);
    return err_set(err, "--ranks: the trace has none of them, its only rank is %" PRIu32 "%s",
                   r->rank, alike);
}

static bool choose_ranks(View *v, const ViewOptions *o, Err *err)
{
    const ViewData *d = v->data[VIEW_REAL_SIDE];
    uint32_t found = 0;
    for (uint32_t r = 0; r < d->ranks_n && o->ranks_n > 0; r++) {
        bool asked = false;
        for (uint32_t i = 0; i < o->ranks_n && !asked; i++)
            asked = o->ranks[i] == d->ranks[r].rank ||
                    (o->ranks[i] > d->ranks[r].rank && d->ranks[r].ranks_n > 1 &&
                     o->ranks[i] < d->t->ranks_n &&
                     (r + 1 == d->ranks_n || o->ranks[i] < d->ranks[r + 1].rank));
        v->ranks[r].left_out = !asked;
        v->selected_ranks[r] = asked;
        found += asked;
    }
    return o->ranks_n == 0 || found > 0 || refuse_ranks(d, err);
}

/* The steps that are compared, a little room around. */
static void show_compared(View *v)
{
    int64_t from_ns = INT64_MAX;
    for (uint32_t i = 0; i < v->diff->ranks_n; i++) {
        const ViewDiffRank *r = &v->diff->ranks[i];
        from_ns =
            min_i64(from_ns, r->begin_ns[0] - view_shift_ns(v, VIEW_REAL_SIDE, r->rank[0]));
    }
    int64_t length_ns = max_i64(v->diff->times[0].span_ns, v->diff->times[1].span_ns);
    view_show(v, from_ns - length_ns / 100, from_ns + length_ns + length_ns / 50);
}

static bool show_asked(View *v, ViewWindow asked, Err *err)
{
    ViewWindow all = view_reach(v);
    char from[32], end[32];
    if (asked.from_ns >= all.to_ns - all.from_ns)
        return err_set(err,
                       "--window begins at %s, where nothing is left to show: the trace ends "
                       "%s after its begin",
                       view_time_text(from, sizeof from, asked.from_ns),
                       view_time_text(end, sizeof end, all.to_ns - all.from_ns));
    view_show(v, all.from_ns + asked.from_ns, all.from_ns + asked.to_ns);
    return true;
}

static bool no_step(const View *v, int64_t asked, Err *err)
{
    const StepWindows *s = &view_data(v)->steps;
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (uint32_t i = 0; i < s->n; i++) {
        first = min_i64(first, s->at[i].step);
        last = max_i64(last, s->at[i].step);
    }
    if (s->n == 0)
        return err_set(err, "the trace marks no steps, --step %" PRId64 " names one", asked);
    return err_set(err,
                   "the trace has no step %" PRId64 ", %" PRId64 " to %" PRId64 " are there",
                   asked, first, last);
}

/* f stays the caller's. */
static bool choose_filter(View *v, ViewFilter *f, const ViewOptions *o, Err *err)
{
    if (!o->filter || !o->filter[0])
        return true;
    if (!filter_open(f, view_data(v), o->filter, err))
        return err_wrap(err, "--filter");
    view_filter_shown(v, f);
    v->filter = f;
    return true;
}

static bool choose_window(View *v, const ViewOptions *o, Err *err)
{
    if (o->has_window && !show_asked(v, o->window, err))
        return false;
    if (!o->has_window && o->step < 0 && v->diff && v->mode >= VIEW_SPLIT)
        show_compared(v);
    return o->step < 0 || view_show_step(v, o->step) || no_step(v, o->step, err);
}

void view_note_letters(Scene *s)
{
    Err err = { 0 };
    if (!font_complain(&s->font, &err))
        fprintf(stderr, "lockstep: note: %s\n", err.text);
}

bool view_start(View *v, ViewTraces *t, const ViewOptions *o, Err *err)
{
    view_open(v, &t->side[0].data, t->sides_n > 1 ? &t->side[1].data : NULL);
    v->diff = t->has_diff ? &t->diff : NULL;
    v->mode = o->mode;
    v->history_n = 0;
    view_fit(v); /* everything of the side that is shown now, which need not be side 0 */
    v->width = (int32_t)o->width;
    v->height = (int32_t)o->height;
    v->scale_pct = o->scale_pct;
    if (o->theme)
        v->theme = o->theme;
    v->critical = o->critical;
    return choose_ranks(v, o, err) && choose_filter(v, &t->filter, o, err) &&
           choose_window(v, o, err);
}
