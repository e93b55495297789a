/*
 * pipeline_passes.c - micro-batches through the blocks of a chunk.
 *
 *     alone     F: layer 0, layer 1, ...                       B: ... layer 1, layer 0
 *
 *     pair, of a layer's forward (f) and another's backward (b), cut behind their all-to-alls
 *     compute   b weighted sum | f attention | b experts | f experts | b attention | f sum
 *     ep                       | b combine   | f dispatch| b dispatch| f combine   |
 *
 * Pairs take the layers of both chunks one by one, and of each layer a part in turn; each
 * all-to-all has the other half's next part beside it, and is waited for by its own half's.  Layers
 * without experts are one part.  Megatron Core launches them in the same order
 * (model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run), DeepSeek in its like, turned by
 * a part (DeepSeek-V3 report, figure 4: MLP(B) first).  What backward makes of weights belongs to
 * its parts, as there without delay_wgrad_compute.
 *
 * Megatron's sum is on the stream of its all-to-alls, beside b attention, and what a chunk made is
 * sent right behind it.  Here kernels are on the compute lane: the sum of a chunk's last layer goes
 * before b attention where it is sent, so that nobody waits longer for it; that f combine has
 * nothing beside it.
 */
#include "sim/strategy/pipeline_line.h"

/* What a chunk of the stage hands on to another in a micro-batch. */
static Received *handed_to(const Line *l, uint32_t turn, const Action *x)
{
    uint32_t way = 2 * turn + (x->kind == ACTION_BACKWARD);
    return &l->handed[(size_t)way * l->b->s->training.micro_batches + x->micro_batch];
}

/* What a chunk begins with, and in *arrived what that has to be waited for. */
static Received take(Line *l, uint32_t action, Point *arrived)
{
    const Action *x = &l->actions[action];
    Received in = line_arrive(l, action);
    if (!point_is(in.at))
        in = *handed_to(l, x->turn, x);
    *arrived = in.afar ? in.at : NOWHERE;
    return in;
}

/* A micro-batch on its way through the blocks of a chunk, up or down. */
typedef struct Pass {
    uint32_t action, chunk, done; /* blocks */
    const Action *x;
    bool backward, sends;
    Received in;
    Point arrived;  /* what its first block waits for */
    Point made;     /* what the next block reads, in */
    uint32_t frame; /* this one */
    /* Of a block that is done in parts, between two of them. */
    uint32_t part, out, held; /* frames of what it makes, and of what it keeps meanwhile */
    Point sent;
} Pass;

static Pass pass_begin(Line *l, uint32_t action)
{
    const Action *x = &l->actions[action];
    bool backward = x->kind == ACTION_BACKWARD;
    Pass p = { .action = action, .chunk = line_chunk(l, x), .x = x, .backward = backward };
    p.sends = l->out[2 * x->turn + backward].crosses;
    p.in = take(l, action, &p.arrived);
    p.made = p.in.at;
    p.frame = p.in.frame;
    return p;
}

static uint32_t pass_blocks(const Line *l, const Pass *p)
{
    return l->begin[p->chunk + 1] - l->begin[p->chunk];
}

static bool pass_goes_on(const Line *l, const Pass *p)
{
    return p->done < pass_blocks(l, p);
}

/* The block that it comes to next. */
static uint32_t pass_block(const Line *l, const Pass *p)
{
    return p->backward ? l->begin[p->chunk + 1] - 1 - p->done : l->begin[p->chunk] + p->done;
}

/* The newest instance has done the block. */
static void pass_on(Line *l, Pass *p, const Run *run, Point made, uint32_t frame)
{
    p->made = made;
    p->frame = frame;
    p->done++;
    if (run->beside && (pass_goes_on(l, p) || !p->sends))
        l->join = made;
}

static void do_block(Line *l, Pass *p)
{
    uint32_t block = pass_block(l, p), frame = p->frame;
    Saved *saved = line_saved(l, p->x->micro_batch, block);
    Point arrived = p->done == 0 ? p->arrived : NOWHERE;
    uint32_t way = p->backward ? RUN_BACKWARD + line_way(l, p->x->micro_batch) : RUN_FORWARD;
    const Run *run = line_run(l, block, way);
    Point made;
    if (p->backward) {
        saved->dout = frame;
        made = line_backward_block(l, p->x, run, saved, arrived);
        frame = saved->din;
    } else {
        saved->in = frame != NONE_U32 ? frame : saved->in;
        made = line_forward_block(l, p->x, run, saved, arrived, &frame);
    }
    pass_on(l, p, run, made, frame);
}

static void pass_end(Line *l, const Pass *p)
{
    const Action *x = p->x;
    uint32_t chunk = p->chunk;
    bool empty = pass_blocks(l, p) == 0;
    bool stays = p->backward
                     ? chunk > 0 && chunk_stage(l->b, chunk - 1) == l->stage
                     : chunk + 1 < l->chunks && chunk_stage(l->b, chunk + 1) == l->stage;
    if (p->backward)
        line_let_go(l, x);
    if (l->ahead)
        line_sends_fall_due(l);
    if (p->sends)
        line_hand_over(l, p->action, p->frame, p->made, empty);
    else if (stays)
        *handed_to(l, p->backward ? x->turn - 1 : x->turn + 1, x) =
            (Received){ p->made, p->frame, empty && p->in.afar };
}

/* Weight gradients apart from backward, where the block has some. */
static void weigh_block(Line *l, uint32_t micro_batch, uint32_t block)
{
    const Run *run = line_run(l, block, RUN_WEIGHT + line_way(l, micro_batch));
    if (run->like.segment == NONE_U32)
        return;
    line_add_gradients(l, run, micro_batch, line_saved(l, micro_batch, block));
    line_enter_compute(l, &run->starts, NOWHERE, run->compute);
}

void line_weigh_chunk(Line *l, const Action *x)
{
    uint32_t chunk = line_chunk(l, x);
    for (uint32_t i = l->begin[chunk + 1]; i-- > l->begin[chunk];)
        weigh_block(l, x->micro_batch, i);
}

/* What backward made travels on behind the sums. */
static void sum_chunk(Line *l, Pass *p)
{
    uint32_t n = l->role->instances_n;
    line_weigh_chunk(l, p->x);
    if (l->role->instances_n > n && point_is(p->made))
        p->made = l->compute;
}

void line_do_chunk(Line *l, uint32_t action)
{
    Pass p = pass_begin(l, action);
    if (!p.backward && p.x->tied > 0)
        l->pair = l->received[action + 1].at;
    while (pass_goes_on(l, &p))
        do_block(l, &p);
    if (p.backward && l->adds_last)
        sum_chunk(l, &p);
    pass_end(l, &p);
}

void line_weigh_rest(Line *l, uint32_t action)
{
    for (uint32_t i = l->b->blocks_n; i-- > 0;)
        for (uint32_t a = action; a < l->actions_n; a++) {
            uint32_t chunk = line_chunk(l, &l->actions[a]);
            if (l->begin[chunk] <= i && i < l->begin[chunk + 1])
                weigh_block(l, l->actions[a].micro_batch, i);
        }
}

/* ---- pairs that hide their all-to-alls ---- */

static const CutPass *cut_pass(const Line *l, const Pass *p)
{
    uint32_t block = pass_block(l, p);
    const BlockType *t = block_type(l->b, block);
    Variant v = l->b->variant[block];
    return p->backward
               ? &t->backward_parts[v][line_grad_mode(l, line_way(l, p->x->micro_batch))]
               : &t->forward_parts[v];
}

static const Run *cut_run(const Line *l, const Pass *p)
{
    uint32_t later = line_way(l, p->x->micro_batch) * CUT_PARTS_MAX;
    uint32_t first = p->backward ? CUT_BACKWARD + later : 0;
    return &l->cut_runs[(size_t)l->own[pass_block(l, p)] * CUT_RUNS_N + first + p->part];
}

/* Frames that its parts have in common. */
static void open_parts(Line *l, Pass *p, const CutPass *cut, const Run *run, Saved *saved)
{
    const uint32_t *layout = l->g->segments[run->like.segment].layout;
    uint32_t layer = run->like.layer;
    if (p->backward) {
        saved->dout = p->frame;
        saved->din = p->out = line_frame(l, layout[SLOT_DIN], layer);
    } else {
        saved->in = p->frame;
        saved->stash = line_frame(l, layout[SLOT_STASH], layer);
        p->out = line_frame(l, layout[SLOT_OUT], layer);
    }
    p->held = line_frame(l, cut->held_layout, layer);
}

static void do_part(Line *l, Pass *p, const CutPass *cut)
{
    const Run *run = cut_run(l, p);
    const Segment *s = &l->g->segments[run->like.segment];
    Saved *saved = line_saved(l, p->x->micro_batch, pass_block(l, p));
    bool first = p->part == 0;
    if (first)
        open_parts(l, p, cut, run, saved);
    Instance *i = line_add_run(l, run, p->x->micro_batch, saved);
    i->frame[p->backward ? SLOT_DIN : SLOT_OUT] = p->out;
    if (p->backward)
        i->frame[SLOT_DOUT] = saved->dout;
    i->frame[SLOT_HELD] = p->held;
    line_enter_compute(l, &run->starts, first && p->done == 0 ? p->arrived : NOWHERE,
                       run->compute);
    if (!first)
        wait_at(l->role, cut->resumes[p->part], p->sent);
    p->sent = (Point){ l->role->instances_n - 1, s->op_n - 1 };
    if (++p->part < cut->n)
        return;
    p->part = 0;
    pass_on(l, p, run, (Point){ l->role->instances_n - 1, run->made }, p->out);
}

/* The next part of its block, or all of what is not cut; true: the block is done. */
static bool do_step(Line *l, Pass *p)
{
    const CutPass *cut = cut_pass(l, p);
    uint32_t block = pass_block(l, p);
    if (cut->n > 0) {
        do_part(l, p, cut);
        return p->part == 0;
    }
    do_block(l, p);
    if (p->backward)
        weigh_block(l, p->x->micro_batch, block);
    return true;
}

/* Embedding and head have nothing to hide. */
static void pass_ends(Line *l, Pass *p)
{
    while (pass_goes_on(l, p) && l->b->blocks[pass_block(l, p)].kind != BLOCK_LAYER)
        do_step(l, p);
}

/* With its next part it is through, and what it made need not wait for the other half. */
static bool leaves(const Line *l, const Pass *f)
{
    return f->part > 0 && f->part + 1 == cut_pass(l, f)->n &&
           f->done + 1 == pass_blocks(l, f) && f->sends && !line_sends_together(l);
}

/* A forward and the backward behind it: layer by layer, of each a part in turn. */
void line_do_pair(Line *l, uint32_t action)
{
    Pass f = pass_begin(l, action), b = pass_begin(l, action + 1);
    l->pair = f.arrived;
    while (pass_goes_on(l, &f) || pass_goes_on(l, &b)) {
        pass_ends(l, &f);
        pass_ends(l, &b);
        bool f_left = pass_goes_on(l, &f), b_left = pass_goes_on(l, &b);
        while (f_left || b_left) {
            if (f_left && leaves(l, &f))
                f_left = !do_step(l, &f);
            b_left = b_left && !do_step(l, &b);
            f_left = f_left && !do_step(l, &f);
        }
    }
    pass_end(l, &f);
    pass_end(l, &b);
}
