/*
 * scene_lanes.c - what stands in the lanes: spans, and their labels; strips are drawn by
 * viz/strip.h.
 *
 * A column of a lane is as opaque as it is full, but never fainter than FAINTEST: a lone
 * kernel of a microsecond stays visible.  Its kinds are stacked by their shares.
 *
 *     lane   |gemm|gemm|  |AllReduce ==|
 */
#include "viz/scene_lanes.h"

#include <stdlib.h>
#include <string.h>

#include "viz/filter.h"
#include "viz/strip.h"

enum { FAINTEST = 70, DIMMED = 60, NOTES = 110, LABEL_MIN = 30, LABELS_MAX = 400 };

/* ---- one lane ---- */

typedef struct Lane {
    ScenePen *p;
    const LayoutRow *row;
    LodWindow window;
    PxBox box;
    uint32_t alpha; /* of all; 255, or less below a filter */

    /* Columns that look alike, as one. */
    uint32_t run_from, run_to;
    uint8_t level[LOD_N]; /* shares, in STRIP_LEVELS steps */

    /* The span whose pieces are being drawn. */
    uint64_t span;
    Px span_x0, span_x1;
    LodKind span_kind;
    bool span_mixed;
    uint64_t dimmed; /* the last span of which some is, as a wait */
    uint32_t *labels_n;

    /* Spans of the window whose waits are not dimmed yet. */
    const LodRow *lod; /* NULL: too many to be looked at */
    uint64_t wait_next, wait_end;
} Lane;

static Px lane_x(const Lane *lane, int64_t ns)
{
    return px_between(lane->box.x0, lane->box.x1, ns - lane->window.from_ns,
                      lane->window.to_ns - lane->window.from_ns);
}

static void draw_kind(Lane *lane, LodKind kind, PxBox box, uint32_t alpha)
{
    alpha = alpha * lane->alpha / 255;
    if (!px_box_is_empty(box))
        theme_span(lane->p->d, lane->p->theme, strip_class(kind), box, alpha);
}

/* ---- lanes ---- */

static void draw_lane_run(Lane *lane, PxBox box)
{
    uint32_t sum = 0, below = 0, last = 0;
    for (uint32_t k = 0; k < LOD_N; k++)
        if (lane->level[k]) {
            sum += lane->level[k];
            last = k;
        }
    uint32_t alpha = 255 * sum / STRIP_LEVELS;
    alpha = alpha < FAINTEST ? FAINTEST : alpha > 255 ? 255 : alpha;
    Px height = box.y1 - box.y0, y = box.y1;
    for (uint32_t k = 0; k < LOD_N; k++) {
        if (!lane->level[k])
            continue;
        below += lane->level[k];
        Px top =
            k == last ? box.y0 : box.y1 - (Px)((int64_t)height * below / sum / PX_ONE * PX_ONE);
        draw_kind(lane, (LodKind)k, (PxBox){ box.x0, top, box.x1, y }, alpha);
        y = top;
    }
}

static void end_run(Lane *lane)
{
    PxBox box = lane->box;
    if (lane->run_to == lane->run_from)
        return;
    box.x0 = lane->box.x0 + PX((int32_t)lane->run_from);
    box.x1 = lane->box.x0 + PX((int32_t)lane->run_to);
    draw_lane_run(lane, box);
    lane->run_from = lane->run_to;
}

/* ---- labels ---- */

/* On one colour alone a label stands as it is; on hatch, on several colours, and on what is dimmed
 * a chip makes it legible. */
static void draw_label(Lane *lane, uint64_t span)
{
    ScenePen *p = lane->p;
    if (!lane->labels_n || lane->span_x1 - lane->span_x0 < draw_px(p->d, LABEL_MIN) ||
        *lane->labels_n >= LABELS_MAX || lane->box.y1 - lane->box.y0 < draw_px(p->d, 11))
        return;
    char text[160];
    Px pad = draw_px(p->d, 4), width = lane->span_x1 - lane->span_x0 - 2 * pad;
    PxBox box = { lane->span_x0 + pad, lane->box.y0, lane->span_x1 - pad, lane->box.y1 };
    bool chip = lane->span_mixed || lane->span_kind == LOD_EXPOSED || lane->dimmed == span;
    names_of_span(&p->s->names[lane->row->side], span, text, sizeof text);
    if (!chip && lane->span_kind == LOD_P2P) { /* behind the chevron's notch */
        box.x0 += (lane->box.y1 - lane->box.y0) / 3;
        width -= (lane->box.y1 - lane->box.y0) / 3;
    }
    if (chip) /* what it stands on is still seen beside it */
        width = width * 4 / 5 - draw_px(p->d, 6);
    if (!names_fit(p->d->font, scene_small(), text, width))
        return;
    box.x1 = box.x0 + width + (chip ? draw_px(p->d, 6) : 0);
    if (lane->alpha == NOTES)
        draw_text(p->d, box, scene_small(), ALIGN_LEFT, scene_color(p, THEME_TEXT), text);
    else
        theme_label(p->d, p->theme, chip ? TIME_EXPOSED : strip_class(lane->span_kind), box,
                    scene_small(), text);
    ++*lane->labels_n;
}

/* ---- tooltips of pictures ---- */

static void tip_span(Lane *lane, uint64_t span)
{
    const LayoutRow *row = lane->row;
    char text[1024];
    if (lane->p->s->tips)
        draw_tip(lane->p->d, NONE_U32,
                 scene_tip_text(lane->p->v, (ViewPlace){ row->side, row->row, span }, text,
                                sizeof text));
}

/* ---- waits, of spans that come as pieces, as columns, or as both ---- */

/* The part of a collective that was spent waiting for others is dimmed.  A lane's spans do not
 * overlap, so all that stands there is this one's. */
static void dim_wait(Lane *lane, uint64_t span)
{
    const ViewData *d = lane->p->v->data[lane->row->side];
    if (d->t->span_class[span] != SPAN_COMM && d->t->span_class[span] != SPAN_P2P)
        return;
    const ViewComm *c = view_comm_of(&d->links, span);
    int64_t wait_ns = c ? c->wait_ns : timeline_wait_ns(d->t, span);
    if (wait_ns <= 0)
        return;
    Px x0 = lane_x(lane, d->t->start_ns[span]);
    Px x1 = lane_x(lane, d->t->start_ns[span] + min_i64(wait_ns, d->t->dur_ns[span]));
    PxBox box = { px_max(x0, lane->box.x0), lane->box.y0, px_min(x1, lane->box.x1),
                  lane->box.y1 };
    if (box.x1 - box.x0 < PX(2))
        return;
    tip_span(lane, span);
    scene_dim_wait(lane->p, box);
    lane->dimmed = span;
}

/* Which spans have waits to be looked for.  Where there are too many for a frame, each with a
 * piece is looked at when it ends, and no other. */
static void open_waits(Lane *lane, const LodRow *lod)
{
    enum { SPANS_A_PIXEL = 4 };
    uint64_t end = lod_spans_before(lod, lane->window.to_ns);
    uint64_t first = lod_spans_before(lod, lane->window.from_ns);
    first -= first > 0; /* it may reach into the window */
    lane->lod = end - first <= (uint64_t)SPANS_A_PIXEL * lane->window.width ? lod : NULL;
    lane->wait_next = first;
    lane->wait_end = end;
}

/* All up to that span, which is drawn; NONE_U64: all. */
static void dim_waits(Lane *lane, uint64_t span)
{
    const Timeline *t = lane->p->v->data[lane->row->side]->t;
    int64_t least_ns = (lane->window.to_ns - lane->window.from_ns) / lane->window.width;
    if (!lane->lod && span != NONE_U64)
        dim_wait(lane, span);
    while (lane->lod && lane->wait_next < lane->wait_end) {
        uint64_t next = lod_span(lane->lod, lane->wait_next++);
        if (t->dur_ns[next] > least_ns)
            dim_wait(lane, next);
        if (next == span)
            break;
    }
}

/* Over all its pieces: what it waited, then what it is called. */
static void end_span(Lane *lane)
{
    uint64_t span = lane->span;
    lane->span = NONE_U64;
    if (span == NONE_U64)
        return;
    dim_waits(lane, span);
    draw_label(lane, span);
}

static void begin_span(Lane *lane, uint64_t span, LodKind kind, Px x0)
{
    end_span(lane);
    lane->span = span;
    lane->span_kind = kind;
    lane->span_x0 = x0;
    lane->span_mixed = false;
}

/* ---- what the row hands over ---- */

static void put_piece(void *user, uint64_t span, LodKind kind, int64_t from_ns, int64_t to_ns)
{
    Lane *lane = user;
    end_run(lane);
    PxBox box = lane->box;
    box.x0 = px_max(lane->box.x0, lane_x(lane, from_ns));
    box.x1 = px_min(lane->box.x1, px_max(lane_x(lane, to_ns), box.x0 + PX(1)));
    bool known = span == lane->span; /* then columns of it are between, where any are */
    if (!known)
        begin_span(lane, span, kind, box.x0);
    lane->span_mixed |= known && (kind != lane->span_kind || box.x0 > lane->span_x1);
    lane->span_x1 = box.x1;
    Px edge = box.x1 - box.x0 > PX(3) ? PX_ONE / 2 : 0; /* neighbours stay apart */
    box.x1 -= edge;
    tip_span(lane, span);
    draw_kind(lane, kind, box, 255);
}

static void put_column(void *user, uint32_t x, const uint32_t share[LOD_N])
{
    Lane *lane = user;
    uint8_t level[LOD_N];
    strip_levels(share, level);
    if (lane->run_to != x || memcmp(level, lane->level, sizeof level) != 0) {
        end_run(lane);
        lane->run_from = x;
        memcpy(lane->level, level, sizeof level);
    }
    lane->run_to = x + 1;
}

/* labels_n NULL: no labels, dimmed. */
static void draw_lane(ScenePen *p, const LayoutRow *row, const LodRow *lod, uint32_t *labels_n)
{
    bool notes = p->v->data[row->side]->rows[row->row].notes;
    Lane lane = { .p = p,
                  .alpha = !labels_n ? DIMMED
                           : notes   ? NOTES
                                     : 255,
                  .row = row,
                  .window = layout_window(p->l, row),
                  .box = { p->l->lanes.x0, row->y0, p->l->lanes.x1, row->y1 },
                  .span = NONE_U64,
                  .dimmed = NONE_U64,
                  .labels_n = labels_n };
    open_waits(&lane, lod);
    lod_extract(lod, &lane.window, &(LodSink){ &lane, put_piece, put_column });
    end_run(&lane);
    end_span(&lane);
    dim_waits(&lane, NONE_U64);
}

void scene_strip(ScenePen *p, const LayoutRow *row)
{
    Strip strip = { .d = p->d,
                    .theme = p->theme,
                    .window = layout_window(p->l, row),
                    .box = { p->l->lanes.x0, row->y0, p->l->lanes.x1, row->y1 },
                    .tips = p->s->tips };
    strip_draw(&strip, &p->v->data[row->side]->ranks[row->rank].strip);
}

/* ---- filters: all of a lane dimmed, what is wanted over it ---- */

static bool keep_span(const void *filter, uint64_t span)
{
    return filter_matches(filter, span);
}

/* Of the view's filter, and of what is known of communication by now. */
static SceneKept *kept_of(ScenePen *p)
{
    SceneKept *k = &p->s->kept;
    const ViewFilter *f = p->v->filter;
    if (k->number != f->number || k->comms != f->d->links.comms) {
        scene_forget_kept(k);
        *k = (SceneKept){ .number = f->number,
                          .comms = f->d->links.comms,
                          .rows = mem_zero(f->d->rows_n, sizeof *k->rows),
                          .ready = mem_zero(f->d->rows_n, sizeof *k->ready),
                          .rows_n = f->d->rows_n,
                          .count = filter_count(f) };
    }
    return k;
}

FilterCount scene_filter_count(ScenePen *p)
{
    return kept_of(p)->count;
}

static const LodRow *kept_row(ScenePen *p, uint32_t i)
{
    SceneKept *k = kept_of(p);
    const ViewFilter *f = p->v->filter;
    const ViewRow *row = &f->d->rows[i];
    if (!k->ready[i])
        lod_build_some(&k->rows[i], f->d->t, row->track, row->lane, row->lod.cover,
                       &(LodChoice){ f->d->lanes, keep_span, f });
    k->ready[i] = true;
    return &k->rows[i];
}

void scene_forget_kept(SceneKept *k)
{
    for (uint32_t i = 0; i < k->rows_n; i++)
        lod_free(&k->rows[i]);
    free(k->rows);
    free(k->ready);
    *k = (SceneKept){ 0 };
}

void scene_spans(ScenePen *p, const LayoutRow *row, uint32_t *labels_n)
{
    const ViewData *d = p->v->data[row->side];
    const ViewFilter *f = p->v->filter;
    bool filtered = f && f->d == d;
    draw_lane(p, row, &d->rows[row->row].lod, filtered ? NULL : labels_n);
    if (filtered)
        draw_lane(p, row, kept_row(p, row->row), labels_n);
}
