/*
 * view.c - moves the window, orders the ranks, writes times and sizes.
 */
#include "viz/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/number_text.h"
#include "core/numeral.h"
#include "viz/filter.h"

const char *const view_mode_names[VIEW_MODES_N] = { "real", "sim", "split", "diff" };

enum { STRIPS_FROM = 17 }; /* ranks */

/* ---- life ---- */

static bool has_few_threads(const ViewData *d, uint32_t rank)
{
    enum { FEW_ROWS = 40, FEW_SPANS = 200000 };
    const ViewRank *r = &d->ranks[rank];
    uint64_t rows_n = 0, spans_n = 0;
    for (uint32_t i = r->row_first; i < r->row_first + r->rows_n; i++) {
        const ViewRow *row = &d->rows[i];
        rows_n += row->kind == VIEW_ROW_HOST;
        if (row->kind == VIEW_ROW_HOST && row->lane == 0)
            spans_n += d->t->tracks[row->track].span_n;
    }
    return rows_n <= FEW_ROWS && spans_n <= FEW_SPANS;
}

/* Host threads are folded, but where a rank is alone with few of them, or has nothing else.  Both
 * sides of a comparison show them, or none. */
static bool shows_threads(const View *v, uint32_t rank)
{
    const ViewData *d = v->data[VIEW_REAL_SIDE];
    uint32_t sim = view_sim_rank(v, rank);
    return d->ranks[rank].cover->n == 0 ||
           (d->ranks_n == 1 && has_few_threads(d, rank) &&
            (sim == NONE_U32 || has_few_threads(v->data[VIEW_SIM_SIDE], sim)));
}

void view_open(View *v, ViewData *data, ViewData *other)
{
    *v = (View){ .data = { data, other },
                 .hover = view_nowhere,
                 .picked = view_nowhere,
                 .hover_item = NONE_U32,
                 .align_clocks = true,
                 .theme = theme_dark(),
                 .scale_pct = 100,
                 .drawer = true,
                 .mouse_x = -1,
                 .mouse_y = -1 };
    v->ranks = mem_zero(data->ranks_n + 1, sizeof *v->ranks);
    v->order = mem_zero(data->ranks_n + 1, sizeof *v->order);
    v->selected_ranks = mem_zero(data->ranks_n + 1, sizeof *v->selected_ranks);
    v->closed = mem_zero(data->ranks_n + 1, sizeof *v->closed);
    for (uint32_t r = 0; r < data->ranks_n; r++) {
        v->selected_ranks[r] = true;
        v->ranks[r].threads = shows_threads(v, r);
    }
    view_sort(v, VIEW_BY_RANK);
    view_fit(v);
}

void view_free(View *v)
{
    free(v->ranks);
    free(v->order);
    free(v->selected_ranks);
    free(v->closed);
    groups_free(&v->groups);
    *v = (View){ 0 };
}

uint32_t view_side(const View *v)
{
    return v->mode == VIEW_SIM && v->data[VIEW_SIM_SIDE] ? VIEW_SIM_SIDE : VIEW_REAL_SIDE;
}

const int64_t *view_clock_ns(const View *v)
{
    return v->align_clocks ? v->data[VIEW_REAL_SIDE]->links.clock_offset_ns : NULL;
}

char *view_clocks_text(const View *v, char *text, size_t cap)
{
    const ViewData *d = v->data[VIEW_REAL_SIDE];
    const ViewLinks *l = &d->links;
    int64_t most_ns = 0;
    char most[32], rest[32];
    text[0] = 0;
    for (uint32_t r = 0; l->clock_offset_ns && r < d->ranks_n; r++)
        most_ns = max_i64(most_ns, l->clock_offset_ns[r] < 0 ? -l->clock_offset_ns[r]
                                                             : l->clock_offset_ns[r]);
    if (most_ns == 0 || view_side(v) != VIEW_REAL_SIDE)
        return text;
    view_time_text(most, sizeof most, most_ns);
    if (view_clock_ns(v))
        snprintf(text, cap, "clocks aligned by up to %s, residual %s", most,
                 view_time_text(rest, sizeof rest, l->clock_residual_ns));
    else
        snprintf(text, cap, "clocks as recorded, up to %s apart", most);
    return text;
}

int64_t view_shift_ns(const View *v, uint32_t side, uint32_t rank)
{
    const int64_t *clock = view_clock_ns(v);
    if (side == VIEW_REAL_SIDE)
        return clock ? clock[rank] : 0;
    for (uint32_t i = 0; v->diff && i < v->diff->ranks_n; i++)
        if (v->diff->ranks[i].rank[VIEW_SIM_SIDE] == rank)
            return view_sim_shift_ns(v, v->diff->ranks[i].rank[VIEW_REAL_SIDE]);
    return v->data[VIEW_SIM_SIDE]->begin_ns - v->data[VIEW_REAL_SIDE]->begin_ns;
}

/* By number; in a folded simulation the last one at or below it. */
uint32_t view_sim_rank(const View *v, uint32_t rank)
{
    const ViewData *sim = v->data[VIEW_SIM_SIDE];
    uint32_t number = v->data[VIEW_REAL_SIDE]->ranks[rank].rank, best = NONE_U32;
    const ViewDiffRank *pair = v->diff ? view_diff_rank(v->diff, rank) : NULL;
    if (pair)
        return pair->rank[VIEW_SIM_SIDE];
    for (uint32_t r = 0; sim && r < sim->ranks_n; r++)
        if (sim->ranks[r].rank == number ||
            (sim->ranks[r].rank < number && sim->ranks[r].ranks_n > 1))
            best = r;
    return best;
}

int64_t view_sim_shift_ns(const View *v, uint32_t rank)
{
    const ViewDiffRank *pair = v->diff ? view_diff_rank(v->diff, rank) : NULL;
    int64_t real_ns = view_shift_ns(v, VIEW_REAL_SIDE, rank);
    if (pair)
        return real_ns + view_diff_shift_ns(pair);
    return real_ns + v->data[VIEW_SIM_SIDE]->begin_ns - v->data[VIEW_REAL_SIDE]->begin_ns;
}

/* ---- the window ---- */

/* All that ran on the ranks of a side. */
static ViewWindow whole_of(const View *v, uint32_t side)
{
    const ViewData *d = v->data[side];
    ViewWindow w = { INT64_MAX, INT64_MIN };
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        int64_t shift_ns = view_shift_ns(v, side, r);
        w.from_ns = min_i64(w.from_ns, d->ranks[r].begin_ns - shift_ns);
        w.to_ns = max_i64(w.to_ns, d->ranks[r].end_ns - shift_ns);
    }
    return d->ranks_n ? w : (ViewWindow){ d->begin_ns, d->end_ns };
}

ViewWindow view_whole(const View *v)
{
    return whole_of(v, view_side(v));
}

ViewWindow view_reach(const View *v)
{
    ViewWindow w = view_whole(v);
    if (v->mode != VIEW_SPLIT || !v->data[VIEW_SIM_SIDE] || !v->data[VIEW_SIM_SIDE]->ranks_n)
        return w;
    ViewWindow sim = whole_of(v, VIEW_SIM_SIDE);
    return (ViewWindow){ min_i64(w.from_ns, sim.from_ns), max_i64(w.to_ns, sim.to_ns) };
}

/* At least VIEW_NS_MIN long, at most twice what can be reached, and some of that in sight. */
static void set_window(View *v, int64_t from_ns, int64_t to_ns)
{
    ViewWindow all = view_reach(v);
    int64_t all_ns = max_i64(VIEW_NS_MIN, all.to_ns - all.from_ns);
    int64_t most_ns =
        all_ns < TIMELINE_NS_MAX / 2 ? 2 * all_ns : max_i64(all_ns, TIMELINE_NS_MAX);
    int64_t length_ns = min_i64(max_i64(VIEW_NS_MIN, to_ns - from_ns), most_ns);
    int64_t slack_ns = length_ns - length_ns / 8;
    from_ns = max_i64(from_ns, all.from_ns - slack_ns);
    from_ns = min_i64(from_ns, all.to_ns - length_ns / 8);
    from_ns = max_i64(-VIEW_NS_MAX, min_i64(from_ns, VIEW_NS_MAX - length_ns));
    v->from_ns = from_ns;
    v->to_ns = from_ns + length_ns;
}

int64_t view_moved(int64_t ns, double by_ns)
{
    double to = (double)ns + by_ns;
    if (!(to > -(double)VIEW_NS_MAX))
        return -VIEW_NS_MAX;
    if (to >= (double)VIEW_NS_MAX)
        return VIEW_NS_MAX;
    return max_i64(-VIEW_NS_MAX, min_i64(VIEW_NS_MAX, ns + (int64_t)by_ns));
}

void view_move(View *v, int64_t from_ns, int64_t to_ns)
{
    set_window(v, from_ns, to_ns);
}

void view_show(View *v, int64_t from_ns, int64_t to_ns)
{
    set_window(v, from_ns, to_ns);
    ViewWindow now = { v->from_ns, v->to_ns };
    if (v->history_n > 0 && memcmp(&v->history[v->history_at], &now, sizeof now) == 0)
        return;
    if (v->history_n > 0 && v->history_at + 1 == VIEW_HISTORY) {
        memmove(v->history, v->history + 1, (VIEW_HISTORY - 1) * sizeof now);
        v->history_at--;
    }
    v->history_at += v->history_n > 0;
    v->history[v->history_at] = now;
    v->history_n = v->history_at + 1;
}

static bool go_history(View *v, uint32_t at)
{
    if (at >= v->history_n)
        return false;
    v->history_at = at;
    set_window(v, v->history[at].from_ns, v->history[at].to_ns);
    return true;
}

/* Steps of a drag and turns of the wheel are not in the history; the first way back undoes them. */
bool view_back(View *v)
{
    int64_t from_ns = v->from_ns, to_ns = v->to_ns;
    if (go_history(v, v->history_at) && (v->from_ns != from_ns || v->to_ns != to_ns))
        return true;
    return v->history_at > 0 && go_history(v, v->history_at - 1);
}

bool view_forward(View *v)
{
    return go_history(v, v->history_at + 1);
}

void view_fit(View *v)
{
    ViewWindow all = view_reach(v);
    view_show(v, all.from_ns, all.to_ns);
}

void view_zoom(View *v, int64_t at_ns, double factor)
{
    int64_t length_ns = v->to_ns - v->from_ns;
    double wanted = (double)length_ns / factor;
    if (wanted < VIEW_NS_MIN)
        wanted = VIEW_NS_MIN;
    if (wanted > (double)TIMELINE_NS_MAX)
        wanted = (double)TIMELINE_NS_MAX;
    double left = (double)(at_ns - v->from_ns) / (double)length_ns;
    int64_t from_ns = view_moved(at_ns, -left * wanted);
    view_move(v, from_ns, from_ns + (int64_t)wanted);
}

void view_pan(View *v, double windows)
{
    int64_t length_ns = v->to_ns - v->from_ns;
    int64_t from_ns = view_moved(v->from_ns, (double)length_ns * windows);
    view_move(v, from_ns, from_ns + length_ns);
}

void view_reveal(View *v, int64_t from_ns, int64_t to_ns)
{
    ViewWindow all = view_whole(v);
    int64_t length_ns = v->to_ns - v->from_ns, room_ns = (to_ns - from_ns) / 4;
    if (from_ns >= v->from_ns && to_ns <= v->to_ns)
        return;
    length_ns = max_i64(length_ns, to_ns - from_ns + 2 * room_ns);
    room_ns = max_i64(room_ns, min_i64(length_ns / 8, (length_ns - (to_ns - from_ns)) / 2));
    int64_t begin_ns = from_ns < v->from_ns ? from_ns - room_ns : to_ns + room_ns - length_ns;
    begin_ns = min_i64(begin_ns, max_i64(all.to_ns - length_ns, all.from_ns));
    begin_ns = max_i64(begin_ns, all.from_ns);
    view_show(v, begin_ns, begin_ns + length_ns);
}

void view_show_span(View *v, ViewPlace place, double margin)
{
    const ViewData *d = v->data[place.side];
    if (place.row == NONE_U32)
        return;
    int64_t shift_ns = view_shift_ns(v, place.side, d->rows[place.row].rank);
    int64_t from_ns = d->t->start_ns[place.span] - shift_ns, ns = d->t->dur_ns[place.span];
    int64_t room_ns = (int64_t)((double)max_i64(ns, 1) * margin) + VIEW_NS_MIN / 2;
    view_show(v, from_ns - room_ns, from_ns + ns + room_ns);
}

/* Ranks of the other side are all looked at. */
bool view_is_left_out(const View *v, uint32_t side, uint32_t rank)
{
    return side == VIEW_REAL_SIDE && v->ranks[rank].left_out;
}

static bool is_left_out(const View *v, uint32_t rank)
{
    return view_is_left_out(v, view_side(v), rank);
}

void view_filter_shown(const View *v, ViewFilter *f)
{
    for (uint32_t r = 0; r < f->d->ranks_n; r++)
        if (is_left_out(v, r))
            filter_leave_out(f, r);
}

void view_filter_follow(const View *v, ViewFilter *f)
{
    if (!f->d || f->d == view_data(v))
        return;
    filter_rebind(f, view_data(v));
    view_filter_shown(v, f);
}

uint32_t view_step_rank(const View *v)
{
    const ViewData *d = view_data(v);
    for (uint32_t r = 0; r < d->ranks_n; r++)
        for (uint32_t i = 0; i < d->steps.n && !is_left_out(v, r); i++)
            if (d->steps.at[i].rank == d->ranks[r].rank)
                return r;
    return NONE_U32;
}

bool view_step_window(const View *v, int64_t step, ViewWindow *w)
{
    const ViewData *d = view_data(v);
    *w = (ViewWindow){ INT64_MAX, INT64_MIN };
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        const StepWindow *s = step_window_of(&d->steps, d->ranks[r].rank, step);
        int64_t shift_ns = view_shift_ns(v, view_side(v), r);
        if (!s || is_left_out(v, r))
            continue;
        w->from_ns = min_i64(w->from_ns, s->from_ns - shift_ns);
        w->to_ns = max_i64(w->to_ns, s->to_ns - shift_ns);
    }
    return w->from_ns < w->to_ns;
}

bool view_show_step(View *v, int64_t step)
{
    ViewWindow w;
    if (!view_step_window(v, step, &w))
        return false;
    view_show(v, w.from_ns, w.to_ns);
    return true;
}

ViewWindow view_side_window(const View *v, uint32_t side)
{
    if (v->has_selection)
        return v->selection;
    ViewWindow all = whole_of(v, side);
    ViewWindow w = { max_i64(v->from_ns, all.from_ns), min_i64(v->to_ns, all.to_ns) };
    return w.from_ns < w.to_ns ? w : (ViewWindow){ v->from_ns, v->to_ns };
}

ViewWindow view_stats_window(const View *v)
{
    return view_side_window(v, view_side(v));
}

bool view_counts(const View *v, uint32_t rank)
{
    bool selects = view_side(v) == VIEW_REAL_SIDE && v->has_selection;
    return selects ? v->selected_ranks[rank] : !is_left_out(v, rank);
}

ViewStats view_window_stats(const View *v, ViewWindow w, Metrics *of_rank)
{
    ViewStats s = { 0 };
    const ViewData *d = view_data(v);
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        if (!view_counts(v, r))
            continue;
        int64_t shift_ns = view_shift_ns(v, view_side(v), r);
        Metrics m = metrics_of_sum(
            cover_window(d->ranks[r].cover, w.from_ns + shift_ns, w.to_ns + shift_ns));
        view_stats_add(&s, &d->ranks[r], &m);
        if (of_rank)
            of_rank[r] = m;
    }
    return s;
}

/* ---- ranks ---- */

typedef struct SortKey {
    int64_t value; /* largest first */
    uint32_t rank;
} SortKey;

static int by_value(const void *a, const void *b)
{
    const SortKey *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? 1 : -1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int64_t longest_step_ns(const ViewData *d, uint32_t rank)
{
    int64_t ns = 0;
    for (uint32_t i = 0; i < d->steps.n; i++)
        if (d->steps.at[i].rank == rank)
            ns = max_i64(ns, d->steps.at[i].to_ns - d->steps.at[i].from_ns);
    return ns;
}

/* Where its first rank is stands a group; key is [ranks_n + 1] of scratch. */
static void put_together(View *v, SortKey *key)
{
    uint32_t n = v->data[VIEW_REAL_SIDE]->ranks_n;
    uint32_t *place = mem_zero(n + 1, sizeof *place), *order = mem_zero(n + 1, sizeof *order);
    for (uint32_t i = n; i-- > 0;)
        place[view_group_of(v, v->order[i])] = i;
    for (uint32_t i = 0; i < n; i++)
        key[i] = (SortKey){ -(int64_t)place[view_group_of(v, v->order[i])], i };
    qsort(key, n, sizeof *key, by_value);
    for (uint32_t i = 0; i < n; i++)
        order[i] = v->order[key[i].rank];
    memcpy(v->order, order, n * sizeof *order);
    free(place);
    free(order);
}

void view_sort(View *v, ViewSort sort)
{
    const ViewData *d = v->data[VIEW_REAL_SIDE];
    SortKey *key = mem_zero(d->ranks_n + 1, sizeof *key);
    v->sort = sort;
    for (uint32_t r = 0; r < d->ranks_n; r++) {
        key[r].rank = r;
        key[r].value = sort == VIEW_BY_EXPOSED ? d->ranks[r].all.exposed_comm_ns
                       : sort == VIEW_BY_STEP  ? longest_step_ns(d, d->ranks[r].rank)
                                               : 0;
    }
    qsort(key, d->ranks_n, sizeof *key, by_value);
    for (uint32_t r = 0; r < d->ranks_n; r++)
        v->order[r] = key[r].rank;
    if (v->grouped_by)
        put_together(v, key);
    free(key);
}

bool view_is_strips(const View *v)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < v->data[VIEW_REAL_SIDE]->ranks_n; r++)
        n += !v->ranks[r].left_out && !view_is_hidden(v, r);
    return n >= STRIPS_FROM;
}

/* ---- texts ---- */

/* In the unit that makes less than 1000 of it, as rounded: 999960 ns is 1.000 ms.  units: of 1000
 * each, the first of whole ones. */
static char *unit_text(char *text, size_t cap, double value, const char *const units[4])
{
    size_t unit = 0;
    for (; unit < 3 && (value >= 999.95 || value <= -999.95); unit++)
        value /= 1e3;
    snprintf(text, cap, "%.*f %s", unit ? digits_of_four(value) : 0, value, units[unit]);
    return text;
}

char *view_time_text(char *text, size_t cap, int64_t ns)
{
    static const char *const units[] = { "ns", "\xc2\xb5s", "ms", "s" };
    return unit_text(text, cap, (double)ns, units);
}

bool view_time_parse(const char **text, int64_t *ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {
        { "ns", 1 }, { "us", 1e3 }, { "\xc2\xb5s", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }
    };
    const char *end;
    double value;
    bool is_number = numeral_real(*text, &value, &end);
    for (size_t i = 0; is_number && i < ARRAY_N(units); i++) {
        size_t n = strlen(units[i].name);
        if (strncmp(end, units[i].name, n) == 0 && value >= 0 && value * units[i].ns < 1e18) {
            *ns = (int64_t)(value * units[i].ns + 0.5);
            *text = end + n;
            return true;
        }
    }
    return false;
}

char *view_bytes_text(char *text, size_t cap, uint64_t bytes)
{
    static const char *const units[] = { "B", "kB", "MB", "GB" };
    return unit_text(text, cap, (double)bytes, units);
}
