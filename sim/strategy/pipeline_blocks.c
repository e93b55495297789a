/*
 * pipeline_blocks.c - one block of one micro-batch in a stage's program: LIVES in pipeline.c.
 */
#include "sim/strategy/pipeline_line.h"

/* Where gradients are sharded every micro-batch has its own, unless they are summed whole.  Those
 * that are zeroed before the step are added to from the first one on. */
GradMode line_grad_mode(const Line *l, uint32_t way)
{
    const Build *b = l->b;
    bool persist = b->sw->grads_persist && !shards_grads(b);
    if (way > 0 && !(shards_grads(b) && b->s->parallel.pp == 1))
        return GRAD_ADD;
    if (persist && b->sw->zeroes_grads)
        return GRAD_ADD;
    return persist ? GRAD_WRITE : GRAD_BORN;
}

uint32_t line_way(const Line *l, uint32_t micro_batch)
{
    const Scenario *s = l->b->s;
    if (!l->adds_last)
        return micro_batch > 0;
    bool last = micro_batch + 1 == s->training.micro_batches;
    return last && s->parallel.strategy == STRATEGY_DDP && has_replicas(l->b);
}

static uint32_t line_frame_if(const Segment *s, Slot slot, uint32_t frame)
{
    return s->layout[slot] == NONE_U32 ? NONE_U32 : frame;
}

/* made_in: what the next block reads. */
static Run make_run(const Line *l, uint32_t block, uint32_t segment, Slot made_in)
{
    Run r = { .like.segment = segment };
    if (segment == NONE_U32)
        return r;
    const Segment *s = &l->g->segments[segment];
    const Home *home = &l->b->home[block];
    r.like = line_bare_instance(segment, l->b->blocks[block].layer, l->b->chunk_of[block]);
    r.like.frame[SLOT_PARAM] = line_frame_if(s, SLOT_PARAM, home->param);
    r.like.frame[SLOT_GRAD] = line_frame_if(s, SLOT_GRAD, home->grad);
    r.starts = segment_starts(l->g, s);
    r.made = segment_last_writer(l->g, s, made_in);
    r.compute = segment_last_op(l->g, s, LANE_COMPUTE);
    r.beside = graph_ops(l->g, s)[r.made].lane != LANE_COMPUTE;
    return r;
}

void line_make_runs(const Line *l, uint32_t block)
{
    const BlockType *t = block_type(l->b, block);
    Variant v = l->b->variant[block];
    Run *runs = &l->runs[(size_t)l->own[block] * RUNS_N];
    runs[RUN_FORWARD] = make_run(l, block, t->forward[v], SLOT_OUT);
    for (uint32_t later = 0; later < 2; later++) {
        GradMode mode = line_grad_mode(l, later);
        bool sums = l->adds_last && later == 0 && t->sum[v] != NONE_U32;
        uint32_t backward = sums ? t->made[v] : t->backward[v][mode];
        uint32_t weight = sums ? t->sum[v] : t->weight[v][mode];
        runs[RUN_BACKWARD + later] = make_run(l, block, backward, SLOT_DIN);
        runs[RUN_WEIGHT + later] = make_run(l, block, weight, SLOT_DIN);
    }
}

void line_make_cut_runs(const Line *l, uint32_t block)
{
    const BlockType *t = block_type(l->b, block);
    Variant v = l->b->variant[block];
    const CutPass *forward = &t->forward_parts[v];
    Run *runs = &l->cut_runs[(size_t)l->own[block] * CUT_RUNS_N];
    for (uint32_t k = 0; k < forward->n; k++)
        runs[k] = make_run(l, block, forward->segment[k], SLOT_OUT);
    for (uint32_t later = 0; later < 2; later++) {
        const CutPass *backward = &t->backward_parts[v][line_grad_mode(l, later)];
        for (uint32_t k = 0; k < backward->n; k++)
            runs[CUT_BACKWARD + later * CUT_PARTS_MAX + k] =
                make_run(l, block, backward->segment[k], SLOT_DIN);
    }
}

/* First op of a segment that touches a slot. */
static uint32_t first_user(const Graph *g, uint32_t segment, Slot slot)
{
    const Segment *s = &g->segments[segment];
    for (uint32_t i = 0; i < s->op_n; i++)
        for (uint32_t a = 0; a < graph_ops(g, s)[i].arg_n; a++)
            if (g->args[graph_ops(g, s)[i].arg_first + a].slot == (uint8_t)slot)
                return i;
    return 0;
}

static uint32_t input_segment(Line *l, uint32_t layout)
{
    uint32_t known = line_known_segment(l, LANE_COPY, 0, layout);
    if (known != NONE_U32)
        return known;
    Graph *g = l->g;
    uint64_t bytes = layout_bytes(g, layout);
    DType dtype = layout_tensor(g, layout, 0)->dtype;
    uint32_t s = graph_segment(g, SEGMENT_INPUT, "input");
    g->segments[s].layout[SLOT_DATA] = layout;
    graph_op(g, (Op){ .kind = OP_H2D,
                      .phase = PHASE_FORWARD,
                      .dtype = dtype,
                      .lane = LANE_COPY,
                      .name = intern(&g->names, "input"),
                      .u.elements = bytes / dtype_bytes(dtype),
                      .write_bytes = bytes });
    arg_each(g, SLOT_DATA, layout, ARG_WRITE, true, false);
    return line_know_segment(l, (Transfer){ LANE_COPY, 0, layout, s });
}

/* Tokens or targets of a micro-batch, for the blocks that read them. */
static Point load_input(Line *l, const Action *x, const Run *run, Saved *saved)
{
    uint32_t layout = l->g->segments[run->like.segment].layout[SLOT_DATA];
    saved->data = line_frame(l, layout, run->like.layer);
    if (layout == NONE_U32)
        return NOWHERE;
    uint32_t segment = input_segment(l, layout);
    uint32_t i = role_instance(l->role, segment, x->micro_batch, NONE_U32, run->like.chunk);
    l->role->instances[i].frame[SLOT_DATA] = saved->data;
    return (Point){ i, 0 };
}

void line_enter_compute(Line *l, const Starts *starts, Point arrived, uint32_t last)
{
    wait_starts(l->role, starts, arrived);
    wait_starts(l->role, starts, l->join);
    wait_starts(l->role, starts, l->pair);
    l->join = l->pair = NOWHERE;
    for (int k = 0; k < 2 && l->waits; k++) {
        wait_starts(l->role, starts, l->due[k]);
        l->due[k] = NOWHERE;
    }
    if (last != NONE_U32)
        l->compute = (Point){ l->role->instances_n - 1, last };
}

Instance *line_add_run(Line *l, const Run *run, uint32_t micro_batch, const Saved *saved)
{
    const Segment *s = &l->g->segments[run->like.segment];
    uint32_t at = role_instance_like(l->role, &run->like);
    Instance *i = &l->role->instances[at];
    i->micro_batch = micro_batch;
    i->frame[SLOT_STASH] = line_frame_if(s, SLOT_STASH, saved->stash);
    i->frame[SLOT_IN] = line_frame_if(s, SLOT_IN, saved->in);
    i->frame[SLOT_DATA] = line_frame_if(s, SLOT_DATA, saved->data);
    return i;
}

Point line_forward_block(Line *l, const Action *x, const Run *run, Saved *saved, Point arrived,
                         uint32_t *out)
{
    Point input = load_input(l, x, run, saved); /* may make a segment */
    const uint32_t *layout = l->g->segments[run->like.segment].layout;
    uint32_t layer = run->like.layer;
    saved->stash = line_frame(l, layout[SLOT_STASH], layer);
    *out = line_frame(l, layout[SLOT_OUT], layer);
    line_add_run(l, run, x->micro_batch, saved)->frame[SLOT_OUT] = *out;
    line_enter_compute(l, &run->starts, arrived, run->compute);
    if (point_is(input))
        wait_at(l->role, first_user(l->g, run->like.segment, SLOT_DATA), input);
    return (Point){ l->role->instances_n - 1, run->made };
}

Instance *line_add_gradients(Line *l, const Run *run, uint32_t micro_batch, const Saved *saved)
{
    const Segment *s = &l->g->segments[run->like.segment];
    Instance *i = line_add_run(l, run, micro_batch, saved);
    i->frame[SLOT_DOUT] = line_frame_if(s, SLOT_DOUT, saved->dout);
    i->frame[SLOT_HELD] = line_frame_if(s, SLOT_HELD, saved->held);
    return i;
}

Point line_backward_block(Line *l, const Action *x, const Run *run, Saved *saved, Point arrived)
{
    const uint32_t *layout = l->g->segments[run->like.segment].layout;
    uint32_t layer = run->like.layer;
    saved->held = line_frame(l, layout[SLOT_HELD], layer);
    saved->din = line_frame(l, layout[SLOT_DIN], layer);
    line_add_gradients(l, run, x->micro_batch, saved)->frame[SLOT_DIN] = saved->din;
    line_enter_compute(l, &run->starts, arrived, run->compute);
    return (Point){ l->role->instances_n - 1, run->made };
}
