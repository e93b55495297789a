/*
 * pipeline.c - cuts the blocks into chunks and writes each stage's program.
 *
 *     blocks     E 0 1 2 3 4 5 H                pp 2, 2 chunks a stage
 *     chunks    [E 0][1 2][3 4][5 H]            which stage has which: schedule_stage
 *     stage        0    1    0    1
 *
 * One role per stage.  The order of forwards and backwards comes from
 * schedule.h; around each stand its transfers (pp 1: one role, no transfers,
 * micro-batches accumulate):
 *
 *     recv act   [r F1]......[r F2]
 *     compute          [F1 ........][B0 ........][F2
 *     send act                      [s F1]
 *     recv grad             [r B0]
 *     send grad                                  [s B0]
 *
 * Schedules that split backward do its weight gradients as actions of their own, on the compute
 * lane: they wait for nothing but what their backward left them (SLOT_HELD).
 *
 * DEADLOCK.  Four lanes, one per direction and kind, so the transfers of a pair
 * of stages are four streams in micro-batch order (tags 0 activations, 1
 * gradients); that is what Megatron and torch get by posting the sends and
 * receives of one exchange as one ncclGroup.  With overlap a receive is
 * posted one action early, so that it flies beside the action before its own;
 * without, all of a step's receives are posted after the step before (see
 * STEPS in schedule.h) and compute waits for the sends as well, or the host
 * itself does before it launches more (p2p_blocks_host).  Like every
 * collective of torch, a receive starts after the compute launched before it.
 *
 * SCATTER AND GATHER.  Every rank of a tensor-parallel group holds the whole
 * activation.  A stack that knows this (p2p_scatter_gather) sends one tp-th from each,
 * and the receivers gather the parts inside their node, on the compute lane:
 *
 *     recv act   [r F1, 1/tp]
 *     compute                [all-gather][F1 ........]
 *
 * LIVES.  An activation between blocks is born in forward(i), or by the receive,
 * and dies in backward(i + 1); what is sent dies in the send.  A gradient is born
 * in backward(i + 1), or by the receive, and dies in backward(i), or in the send.
 * Parameters, gradients and optimizer state live through the step, but gradients
 * only where the software keeps them (grads_persist).  A chunk without blocks
 * passes on what it receives.
 */
#include "sim/cost.h"
#include "sim/strategy/parts.h"
#include "sim/strategy/schedule.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- chunks ---- */

static uint32_t count_layers(const Build *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->blocks_n; i++)
        n += b->blocks[i].kind == BLOCK_LAYER;
    return n;
}

/* Blocks of chunk c, or layers of it: see *whole. */
static uint32_t usual_share(const Build *b, uint32_t chunks, uint32_t c, bool *whole)
{
    uint32_t layers = count_layers(b);
    *whole = b->blocks_n % chunks == 0;
    if (*whole)
        return b->blocks_n / chunks;
    return layers / chunks + (c < layers % chunks);
}

/*
 * begin[c] = first block of chunk c.  Shares count layers, the embedding goes
 * with the first chunk and the head with the last; or, when embedding, layers
 * and head divide evenly, blocks.
 */
static bool cut_chunks(const Build *b, uint32_t *begin, uint32_t chunks, Err *err)
{
    const Parallel *p = &b->s->parallel;
    bool embedding = b->blocks[0].kind == BLOCK_EMBEDDING;
    ASSERT(p->stage_layers_n == 0 || p->stage_layers_n == chunks);
    uint64_t at = 0;
    for (uint32_t c = 0; c < chunks; c++) {
        bool whole = false;
        uint32_t share =
            p->stage_layers_n ? p->stage_layers[c] : usual_share(b, chunks, c, &whole);
        begin[c] = (uint32_t)min_u64(at, b->blocks_n);
        at += share + (c == 0 && embedding && !whole);
    }
    begin[chunks] = b->blocks_n;
    bool head = b->blocks[b->blocks_n - 1].kind == BLOCK_HEAD;
    if (p->stage_layers_n && at + head != b->blocks_n)
        return err_set(err,
                       "parallel.stage_layers adds up to %" PRIu64 " blocks, the model has "
                       "%" PRIu32,
                       at - embedding, count_layers(b));
    return true;
}

static uint32_t stage_of(const Build *b, uint32_t chunk)
{
    return schedule_stage(b->s->parallel.schedule, b->s->parallel.pp, chunk);
}

static void choose_variants(Build *b, const uint32_t *begin, uint32_t pp, uint32_t chunks)
{
    const Training *t = &b->s->training;
    uint32_t *chosen = PUSH_ARRAY(&b->arena, uint32_t, pp); /* layers, by stage */
    b->chunk_of = PUSH_ARRAY(&b->arena, uint32_t, b->blocks_n);
    b->variant = PUSH_ARRAY(&b->arena, Variant, b->blocks_n);
    for (uint32_t c = 0; c < chunks; c++)
        for (uint32_t i = begin[c]; i < begin[c + 1]; i++) {
            b->chunk_of[i] = c;
            bool layer = b->blocks[i].kind == BLOCK_LAYER;
            bool again = t->recompute == RECOMPUTE_LAYERS
                             ? layer && chosen[stage_of(b, c)]++ < t->recompute_layers
                             : layer && t->recompute != RECOMPUTE_NONE;
            b->variant[i] = again ? VARIANT_RECOMPUTE : VARIANT_PLAIN;
        }
}

/* ---- writing one role ---- */

/* Frames that wait for the backward of one (micro-batch, block). */
typedef struct Saved {
    uint32_t in, din, dout, stash, data, held;
} Saved;

typedef struct Received {
    Point at;
    uint32_t frame;
    bool afar; /* from another stage: to be waited for */
} Received;

typedef struct Transfer {
    Lane lane;
    uint32_t peer, layout, segment;
} Transfer;

/* What all micro-batches of one segment of a block have in common. */
typedef struct Run {
    Instance like; /* with the frames of the block's Home */
    Starts starts;
    uint32_t made;    /* op that makes what the next block reads */
    bool beside;      /* it is not on the compute lane */
    uint32_t compute; /* last op on the compute lane; NONE_U32 */
} Run;

/* Of a block: backward and weight gradients are others in micro-batch 0 than later (GradMode). */
enum { RUN_FORWARD, RUN_BACKWARD, RUN_WEIGHT = RUN_BACKWARD + 2, RUNS_N = RUN_WEIGHT + 2 };

/* How one chunk receives or sends in one direction; all its transfers are alike. */
typedef struct Way {
    bool crosses; /* nothing else is set where it does not */
    uint32_t block, peer, layout;
    Lane lane;
    Slot slot;
    Instance like; /* segment NONE_U32 until the first one */
} Way;

/* What an action made, to be sent when all that it is tied to is done. */
typedef struct Tied {
    uint32_t frame, action;
    Point made;
} Tied;

typedef struct Line {
    Build *b;
    Graph *g;
    Role *role;
    uint32_t stage, pp, chunks;
    const uint32_t *begin; /* by chunk, and one more */
    uint32_t own_n;
    uint32_t *own; /* by block: its number among the stage's, in order */
    Saved *saved;  /* [micro-batch * own_n + own] */
    Run *runs;     /* [own * RUNS_N + ...]; segment NONE_U32 where the block has none */
    Way *in, *out; /* [2 * turn + backward] */
    uint32_t actions_n;
    const Action *actions;
    Received *received; /* by action */
    /* [(2 * turn + backward) * micro-batches + micro-batch]: from the stage's own chunk before,
     * in backward after, this one. */
    Received *handed;
    uint32_t transfers_n, transfers_cap;
    Transfer *transfers;
    bool ahead, waits; /* receives are posted early; compute waits for sends */
    uint32_t parts;    /* an activation is sent in so many parts, gathered by the receiver */
    uint32_t
        host_wait; /* segment in which the host waits for transfers; NONE_U32: it never does */
    Point sent[2], due[2]; /* newest sends, by backward; due: the next compute waits */
    Point compute;         /* newest op on the compute lane */
    Point join;            /* result on another lane that the next compute needs */
    Point pair;            /* what the other half of a pair waits for */
    Tied tied[2];          /* by backward; frame NONE_U32: nothing */
} Line;

static Saved *saved_of(const Line *l, uint32_t micro_batch, uint32_t block)
{
    ASSERT(l->own[block] != NONE_U32);
    return &l->saved[(size_t)micro_batch * l->own_n + l->own[block]];
}

static const Run *run_of(const Line *l, uint32_t block, uint32_t run)
{
    return &l->runs[(size_t)l->own[block] * RUNS_N + run];
}

static Instance bare_instance(uint32_t segment, uint32_t layer, uint32_t chunk)
{
    Instance i = { .segment = segment, .layer = layer, .chunk = chunk };
    for (int s = 0; s < SLOT_N; s++)
        i.frame[s] = NONE_U32;
    return i;
}

static uint32_t new_frame(const Line *l, uint32_t layout, uint32_t layer, uint32_t micro_batch)
{
    if (layout == NONE_U32)
        return NONE_U32;
    return role_frame(l->role, (Frame){ layout, layer, micro_batch, false });
}

static uint32_t chunk_of(const Line *l, const Action *x)
{
    return schedule_chunk(l->b->s->parallel.schedule, l->pp, l->stage, x->turn);
}

/* Do activations go from the stage of chunk - 1 to another, that of chunk? */
static bool crosses(const Line *l, uint32_t chunk)
{
    return l->pp > 1 && chunk > 0 && chunk < l->chunks && l->begin[chunk] > 0 &&
           l->begin[chunk] < l->b->blocks_n &&
           stage_of(l->b, chunk - 1) != stage_of(l->b, chunk);
}

/* ---- transfers ---- */

static uint64_t boundary_bytes(const Line *l, uint32_t layout)
{
    return layout == l->b->boundary_layout ? l->b->boundary_bytes : layout_bytes(l->g, layout);
}

static uint32_t make_transfer(const Line *l, Lane lane, uint32_t peer, uint32_t layout)
{
    static const struct {
        const char *name;
        Slot slot;
        bool send, grad;
    } what[LANE_N] = {
        [LANE_SEND_ACT] = { "send act", SLOT_OUT, true, false },
        [LANE_RECV_ACT] = { "recv act", SLOT_IN, false, false },
        [LANE_SEND_GRAD] = { "send grad", SLOT_DIN, true, true },
        [LANE_RECV_GRAD] = { "recv grad", SLOT_DOUT, false, true },
        [LANE_SEND_ACT_UP] = { "send act", SLOT_OUT, true, false },
        [LANE_RECV_ACT_UP] = { "recv act", SLOT_IN, false, false },
        [LANE_SEND_GRAD_UP] = { "send grad", SLOT_DIN, true, true },
        [LANE_RECV_GRAD_UP] = { "recv grad", SLOT_DOUT, false, true },
    };
    Graph *g = l->g;
    bool send = what[lane].send, grad = what[lane].grad;
    uint64_t bytes = boundary_bytes(l, layout) / l->parts;
    uint32_t s = graph_segment(g, send ? SEGMENT_SEND : SEGMENT_RECV, what[lane].name);
    g->segments[s].layout[what[lane].slot] = layout;
    graph_op(g, (Op){ .kind = send ? OP_SEND : OP_RECV,
                      .phase = grad ? PHASE_DGRAD : PHASE_FORWARD,
                      .dtype = layout_tensor(g, layout, 0)->dtype,
                      .lane = lane,
                      .name = intern(&g->names, what[lane].name),
                      .u.comm = { .bytes = bytes,
                                  .group = l->b->group[GROUP_PP],
                                  .peer = peer,
                                  .tag = grad },
                      .read_bytes = send ? bytes : 0,
                      .write_bytes = send ? 0 : bytes });
    arg_each(g, what[lane].slot, layout, send ? ARG_READ : ARG_WRITE, !send, send);
    return s;
}

/* One segment per lane, peer and layout: a handful per role. */
static uint32_t transfer_segment(Line *l, Lane lane, uint32_t peer, uint32_t layout)
{
    for (uint32_t i = 0; i < l->transfers_n; i++) {
        const Transfer *t = &l->transfers[i];
        if (t->lane == lane && t->peer == peer && t->layout == layout)
            return t->segment;
    }
    GROW(l->transfers, l->transfers_n, l->transfers_cap);
    uint32_t segment = make_transfer(l, lane, peer, layout);
    l->transfers[l->transfers_n++] = (Transfer){ lane, peer, layout, segment };
    return segment;
}

/* Chunks that lead up the stages have lanes of their own: a stage's two neighbours would wait for
 * one another in one. */
static Lane lane_of(const Line *l, uint32_t turn, Lane lane)
{
    bool up = schedule_is_vee(l->b->s->parallel.schedule) && turn == 1;
    return up ? lane + LANE_SEND_ACT_UP - LANE_SEND_ACT : lane;
}

static void find_way(const Line *l, Way *w, uint32_t turn, bool sends, bool backward)
{
    static const struct {
        Lane lane;
        Slot slot;
    } what[2][2] = { { { LANE_RECV_ACT, SLOT_IN }, { LANE_RECV_GRAD, SLOT_DOUT } },
                     { { LANE_SEND_ACT, SLOT_OUT }, { LANE_SEND_GRAD, SLOT_DIN } } };
    uint32_t chunk = schedule_chunk(l->b->s->parallel.schedule, l->pp, l->stage, turn);
    bool ahead = sends != backward; /* to or from the chunk after this one */
    uint32_t border = chunk + ahead;
    w->crosses = crosses(l, border);
    if (!w->crosses)
        return;
    w->block = l->begin[border] - ahead;
    w->layout = block_type(l->b, l->begin[border])->in_layout;
    w->peer = stage_of(l->b, ahead ? chunk + 1 : chunk - 1);
    w->lane = lane_of(l, turn, what[sends][backward].lane);
    w->slot = what[sends][backward].slot;
    w->like = bare_instance(NONE_U32, NONE_U32, chunk);
}

/* Appends a transfer; the frame is what is sent or received. */
static uint32_t add_transfer(Line *l, Way *w, uint32_t micro_batch, uint32_t frame, Point after)
{
    if (w->like.segment == NONE_U32)
        w->like.segment = transfer_segment(l, w->lane, w->peer, w->layout);
    uint32_t i = role_instance_like(l->role, &w->like);
    l->role->instances[i].micro_batch = micro_batch;
    l->role->instances[i].frame[w->slot] = frame;
    if (point_is(after))
        role_edge(l->role, 0, after.instance, after.op);
    return i;
}

static void post_receive(Line *l, uint32_t action)
{
    const Action *x = &l->actions[action];
    l->received[action] = (Received){ NOWHERE, NONE_U32, false };
    if (x->kind == ACTION_WEIGHT)
        return;
    Way *w = &l->in[2 * x->turn + (x->kind == ACTION_BACKWARD)];
    if (!w->crosses)
        return;
    uint32_t frame = new_frame(l, w->layout, l->b->blocks[w->block].layer, x->micro_batch);
    uint32_t i = add_transfer(l, w, x->micro_batch, frame, l->compute);
    l->received[action] = (Received){ { i, 0 }, frame, true };
}

static void send(Line *l, const Action *x, uint32_t frame, Point made)
{
    bool backward = x->kind == ACTION_BACKWARD;
    ASSERT(frame != NONE_U32 && point_is(made));
    Way *w = &l->out[2 * x->turn + backward];
    ASSERT(l->role->frames[frame].layout == w->layout);
    l->sent[backward] = (Point){ add_transfer(l, w, x->micro_batch, frame, made), 0 };
}

/* Sends what was tied to an action that is done now. */
static void send_tied(Line *l, uint32_t action)
{
    for (int k = 0; k < 2; k++) {
        Tied *t = &l->tied[k];
        const Action *x = &l->actions[t->action];
        if (t->frame == NONE_U32 || t->action + x->tied > action)
            continue;
        send(l, x, t->frame, t->made);
        wait_at(l->role, 0, l->compute);
        t->frame = NONE_U32;
    }
}

/* An action of a chunk has made what goes to another stage.  passed_on: the chunk has no blocks,
 * so that there is nothing to be done with it. */
static void hand_over(Line *l, uint32_t action, uint32_t frame, Point made, bool passed_on)
{
    const Action *x = &l->actions[action];
    Tied *t = &l->tied[x->kind == ACTION_BACKWARD];
    ASSERT(t->frame == NONE_U32);
    if (x->tied == 0 || passed_on)
        send(l, x, frame, made);
    else
        *t = (Tied){ frame, action, made };
}

static void sends_fall_due(Line *l)
{
    for (int k = 0; k < 2; k++)
        if (point_is(l->sent[k])) {
            l->due[k] = l->sent[k];
            l->sent[k] = NOWHERE;
        }
}

static void find_ways(Line *l, uint32_t turns, Arena *scratch)
{
    l->in = PUSH_ARRAY(scratch, Way, (size_t)2 * turns);
    l->out = PUSH_ARRAY(scratch, Way, (size_t)2 * turns);
    for (uint32_t k = 0; k < 2 * turns; k++) {
        find_way(l, &l->in[k], k / 2, false, k % 2 == 1);
        find_way(l, &l->out[k], k / 2, true, k % 2 == 1);
    }
}

/* ---- blocks ---- */

/* Where gradients are sharded every micro-batch has its own, unless they are summed whole.  Those
 * that are zeroed before the step are added to from the first one on. */
static GradMode grad_mode(const Build *b, uint32_t micro_batch)
{
    bool persist = b->sw->grads_persist && !shards_grads(b);
    if (micro_batch > 0 && !(shards_grads(b) && b->s->parallel.pp == 1))
        return GRAD_ADD;
    if (persist && b->sw->zeroes_grads)
        return GRAD_ADD;
    return persist ? GRAD_WRITE : GRAD_BORN;
}

static uint32_t frame_if(const Segment *s, Slot slot, uint32_t frame)
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
    r.like = bare_instance(segment, l->b->blocks[block].layer, l->b->chunk_of[block]);
    r.like.frame[SLOT_PARAM] = frame_if(s, SLOT_PARAM, home->param);
    r.like.frame[SLOT_GRAD] = frame_if(s, SLOT_GRAD, home->grad);
    r.starts = segment_starts(l->g, s);
    r.made = segment_last_writer(l->g, s, made_in);
    r.compute = segment_last_op(l->g, s, LANE_COMPUTE);
    r.beside = graph_ops(l->g, s)[r.made].lane != LANE_COMPUTE;
    return r;
}

static void make_runs(const Line *l, uint32_t block)
{
    const BlockType *t = block_type(l->b, block);
    Variant v = l->b->variant[block];
    Run *runs = &l->runs[(size_t)l->own[block] * RUNS_N];
    runs[RUN_FORWARD] = make_run(l, block, t->forward[v], SLOT_OUT);
    for (uint32_t later = 0; later < 2; later++) {
        GradMode mode = grad_mode(l->b, later);
        runs[RUN_BACKWARD + later] = make_run(l, block, t->backward[v][mode], SLOT_DIN);
        runs[RUN_WEIGHT + later] = make_run(l, block, t->weight[v][mode], SLOT_DIN);
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
    for (uint32_t i = 0; i < l->transfers_n; i++)
        if (l->transfers[i].lane == LANE_COPY && l->transfers[i].layout == layout)
            return l->transfers[i].segment;
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
    GROW(l->transfers, l->transfers_n, l->transfers_cap);
    l->transfers[l->transfers_n++] = (Transfer){ LANE_COPY, 0, layout, s };
    return s;
}

/* Tokens or targets of a micro-batch, for the blocks that read them. */
static Point load_input(Line *l, const Action *x, const Run *run, Saved *saved)
{
    uint32_t layout = l->g->segments[run->like.segment].layout[SLOT_DATA];
    saved->data = new_frame(l, layout, run->like.layer, x->micro_batch);
    if (layout == NONE_U32)
        return NOWHERE;
    uint32_t segment = input_segment(l, layout);
    uint32_t i = role_instance(l->role, segment, x->micro_batch, NONE_U32, run->like.chunk);
    l->role->instances[i].frame[SLOT_DATA] = saved->data;
    return (Point){ i, 0 };
}

/* The newest instance is compute, `last` its last op there: what it has to wait for, and that it is
 * the newest. */
static void enter_compute(Line *l, const Starts *starts, Point arrived, uint32_t last)
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

/* Appends a run of a micro-batch; it has the frames that are saved. */
static Instance *add_run(Line *l, const Run *run, uint32_t micro_batch, const Saved *saved)
{
    const Segment *s = &l->g->segments[run->like.segment];
    uint32_t at = role_instance_like(l->role, &run->like);
    Instance *i = &l->role->instances[at];
    i->micro_batch = micro_batch;
    i->frame[SLOT_STASH] = frame_if(s, SLOT_STASH, saved->stash);
    i->frame[SLOT_IN] = frame_if(s, SLOT_IN, saved->in);
    i->frame[SLOT_DATA] = frame_if(s, SLOT_DATA, saved->data);
    return i;
}

/* Returns where the block's output is made; *out is its frame. */
static Point forward_block(Line *l, const Action *x, const Run *run, Saved *saved,
                           Point arrived, uint32_t *out)
{
    Point input = load_input(l, x, run, saved); /* may make a segment */
    const uint32_t *layout = l->g->segments[run->like.segment].layout;
    uint32_t layer = run->like.layer;
    saved->stash = new_frame(l, layout[SLOT_STASH], layer, x->micro_batch);
    *out = new_frame(l, layout[SLOT_OUT], layer, x->micro_batch);
    add_run(l, run, x->micro_batch, saved)->frame[SLOT_OUT] = *out;
    enter_compute(l, &run->starts, arrived, run->compute);
    if (point_is(input))
        wait_at(l->role, first_user(l->g, run->like.segment, SLOT_DATA), input);
    return (Point){ l->role->instances_n - 1, run->made };
}

/* An instance of backward, or of the weight gradients apart from it, with its frames. */
static Instance *add_gradients(Line *l, const Run *run, uint32_t micro_batch,
                               const Saved *saved)
{
    const Segment *s = &l->g->segments[run->like.segment];
    Instance *i = add_run(l, run, micro_batch, saved);
    i->frame[SLOT_DOUT] = frame_if(s, SLOT_DOUT, saved->dout);
    i->frame[SLOT_HELD] = frame_if(s, SLOT_HELD, saved->held);
    return i;
}

/* Returns where the gradient of the block's input is made; its frame is saved. */
static Point backward_block(Line *l, const Action *x, const Run *run, Saved *saved,
                            Point arrived)
{
    const uint32_t *layout = l->g->segments[run->like.segment].layout;
    uint32_t layer = run->like.layer;
    saved->held = new_frame(l, layout[SLOT_HELD], layer, x->micro_batch);
    saved->din = new_frame(l, layout[SLOT_DIN], layer, x->micro_batch);
    add_gradients(l, run, x->micro_batch, saved)->frame[SLOT_DIN] = saved->din;
    enter_compute(l, &run->starts, arrived, run->compute);
    return (Point){ l->role->instances_n - 1, run->made };
}

/* ---- actions ---- */

static uint32_t gather_segment(Line *l, bool backward, uint32_t layout)
{
    Graph *g = l->g;
    const char *name = backward ? "gather grad" : "gather act";
    Slot slot = backward ? SLOT_DOUT : SLOT_IN;
    for (uint32_t i = 0; i < l->transfers_n; i++) {
        const Transfer *t = &l->transfers[i];
        if (t->lane == LANE_COMPUTE && t->peer == backward && t->layout == layout)
            return t->segment;
    }
    uint32_t s = graph_segment(g, SEGMENT_GATHER, name);
    g->segments[s].layout[slot] = layout;
    graph_op(g, (Op){ .kind = OP_ALL_GATHER,
                      .phase = backward ? PHASE_DGRAD : PHASE_FORWARD,
                      .dtype = layout_tensor(g, layout, 0)->dtype,
                      .lane = LANE_COMPUTE,
                      .name = intern(&g->names, name),
                      .u.comm = { .bytes = boundary_bytes(l, layout),
                                  .group = l->b->group[GROUP_TP] } });
    arg_each(g, slot, layout, ARG_UPDATE, false, false);
    GROW(l->transfers, l->transfers_n, l->transfers_cap);
    l->transfers[l->transfers_n++] = (Transfer){ LANE_COMPUTE, backward, layout, s };
    return s;
}

/* What an action received, whole. */
static Received arrive(Line *l, uint32_t action)
{
    const Action *x = &l->actions[action];
    Received in = l->received[action];
    if (l->parts == 1 || !point_is(in.at))
        return in;
    bool backward = x->kind == ACTION_BACKWARD;
    uint32_t segment = gather_segment(l, backward, l->role->frames[in.frame].layout);
    uint32_t i = role_instance(l->role, segment, x->micro_batch, NONE_U32, chunk_of(l, x));
    l->role->instances[i].frame[backward ? SLOT_DOUT : SLOT_IN] = in.frame;
    enter_compute(l, &(Starts){ .n = 1 }, in.at, 0);
    return (Received){ { i, 0 }, in.frame, true };
}

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
    Received in = arrive(l, action);
    if (!point_is(in.at))
        in = *handed_to(l, x->turn, x);
    *arrived = in.afar ? in.at : NOWHERE;
    return in;
}

static void forward_chunk(Line *l, uint32_t action)
{
    const Action *x = &l->actions[action];
    uint32_t chunk = chunk_of(l, x), begin = l->begin[chunk], end = l->begin[chunk + 1];
    Point arrived;
    Received in = take(l, action, &arrived);
    Point made = in.at;
    uint32_t frame = in.frame;
    bool sends = l->out[2 * x->turn].crosses;
    if (x->tied > 0)
        l->pair = l->received[action + 1].at;
    for (uint32_t i = begin; i < end; i++) {
        const Run *run = run_of(l, i, RUN_FORWARD);
        Saved *saved = saved_of(l, x->micro_batch, i);
        if (frame != NONE_U32)
            saved->in = frame;
        made = forward_block(l, x, run, saved, i == begin ? arrived : NOWHERE, &frame);
        if (run->beside && (i + 1 < end || !sends))
            l->join = made;
    }
    if (l->ahead)
        sends_fall_due(l);
    if (sends)
        hand_over(l, action, frame, made, begin == end);
    else if (chunk + 1 < l->chunks && stage_of(l->b, chunk + 1) == l->stage)
        *handed_to(l, x->turn + 1, x) = (Received){ made, frame, begin == end && in.afar };
}

static void backward_chunk(Line *l, uint32_t action)
{
    const Action *x = &l->actions[action];
    uint32_t chunk = chunk_of(l, x), begin = l->begin[chunk], end = l->begin[chunk + 1];
    Point arrived;
    Received in = take(l, action, &arrived);
    Point made = in.at;
    uint32_t frame = in.frame;
    bool sends = l->out[2 * x->turn + 1].crosses;
    for (uint32_t i = end; i-- > begin;) {
        const Run *run = run_of(l, i, RUN_BACKWARD + (x->micro_batch > 0));
        Saved *saved = saved_of(l, x->micro_batch, i);
        saved->dout = frame;
        made = backward_block(l, x, run, saved, i + 1 == end ? arrived : NOWHERE);
        frame = saved->din;
        if (run->beside && (i > begin || !sends))
            l->join = made;
    }
    if (l->ahead)
        sends_fall_due(l);
    if (sends)
        hand_over(l, action, frame, made, begin == end);
    else if (chunk > 0 && stage_of(l->b, chunk - 1) == l->stage)
        *handed_to(l, x->turn - 1, x) = (Received){ made, frame, begin == end && in.afar };
}

/* Weight gradients, in the order of backward. */
static void weight_chunk(Line *l, const Action *x)
{
    uint32_t chunk = chunk_of(l, x), begin = l->begin[chunk];
    for (uint32_t i = l->begin[chunk + 1]; i-- > begin;) {
        const Run *run = run_of(l, i, RUN_WEIGHT + (x->micro_batch > 0));
        if (run->like.segment == NONE_U32)
            continue;
        add_gradients(l, run, x->micro_batch, saved_of(l, x->micro_batch, i));
        enter_compute(l, &run->starts, NOWHERE, run->compute);
    }
}

static void post_step(Line *l, uint32_t action)
{
    uint32_t step = l->actions[action].step;
    for (; action < l->actions_n && l->actions[action].step == step; action++)
        post_receive(l, action);
}

/* The host launches nothing more before a step's transfers, and all that came before, are done. */
static void block_host(Line *l, uint32_t action)
{
    const Action *x = &l->actions[action];
    Point blocks[4] = { l->due[0], l->due[1], NOWHERE, NOWHERE };
    for (uint32_t a = action, n = 2; a < l->actions_n && l->actions[a].step == x->step; a++)
        if (point_is(l->received[a].at) && n < ARRAY_N(blocks))
            blocks[n++] = l->received[a].at;
    uint32_t last = 0;
    while (last < ARRAY_N(blocks) && !point_is(blocks[last]))
        last++;
    if (last == ARRAY_N(blocks))
        return;
    role_instance(l->role, l->host_wait, x->micro_batch, NONE_U32, chunk_of(l, x));
    for (uint32_t i = 0; i < ARRAY_N(blocks); i++)
        if (point_is(blocks[i]))
            wait_at(l->role, 0, blocks[i]);
    if (point_is(l->compute))
        wait_at(l->role, 0, l->compute);
}

static uint32_t host_wait_segment(Build *b)
{
    Graph *g = b->g;
    uint32_t s = graph_segment(g, SEGMENT_OTHER, "transfers done");
    graph_op(g, (Op){ .kind = OP_HOST_WAIT,
                      .phase = PHASE_FORWARD,
                      .lane = LANE_HOST,
                      .name = intern(&g->names, "transfers done") });
    return s;
}

static void write_actions(Line *l)
{
    for (uint32_t a = 0; a < l->actions_n; a++) {
        if (l->ahead) {
            if (a == 0)
                post_receive(l, 0);
            if (a + 1 < l->actions_n)
                post_receive(l, a + 1);
        } else if (a == 0 || l->actions[a].step != l->actions[a - 1].step) {
            sends_fall_due(l);
            post_step(l, a);
            if (l->host_wait != NONE_U32)
                block_host(l, a);
        }
        if (l->actions[a].kind == ACTION_FORWARD)
            forward_chunk(l, a);
        else if (l->actions[a].kind == ACTION_BACKWARD)
            backward_chunk(l, a);
        else
            weight_chunk(l, &l->actions[a]);
        send_tied(l, a);
    }
}

/* ---- roles ---- */

static uint32_t resident(Role *role, uint32_t layout, uint32_t layer, bool stays)
{
    if (layout == NONE_U32)
        return NONE_U32;
    return role_frame(role, (Frame){ layout, layer, NONE_U32, stays });
}

static void give_home(Build *b, uint32_t block, uint32_t stage)
{
    const BlockType *t = block_type(b, block);
    Role *role = &b->g->roles[stage];
    if (b->blocks[block].frame_of != block) { /* tied: an earlier block of this stage */
        b->home[block] = b->home[b->blocks[block].frame_of];
        ASSERT(b->home[block].role == stage);
        return;
    }
    uint32_t layer = b->blocks[block].layer;
    b->home[block] =
        (Home){ .role = stage,
                .param = resident(role, t->param_layout, layer, true),
                .grad = resident(role, t->grad_layout, layer, b->sw->grads_persist),
                .state = resident(role, t->state_layout, layer, true) };
    resident(role, t->copy_layout, layer, true);
}

/* Megatron's rule: where activations are whole on every rank and divide by them. */
static uint32_t parts_of_boundary(const Build *b)
{
    uint32_t tp = b->s->parallel.tp;
    bool whole = b->s->model.kind == MODEL_TRANSFORMER && !b->s->parallel.sequence_parallel;
    if (b->s->parallel.pp == 1 || tp == 1 || !whole || !b->sw->p2p_scatter_gather)
        return 1;
    uint64_t elements =
        b->boundary_bytes / dtype_bytes(layout_tensor(b->g, b->boundary_layout, 0)->dtype);
    return elements % tp == 0 ? tp : 1;
}

/* Orders in which neighbours do not meet step by step: who waited for each transfer at once
 * would wait for ever. */
static bool posts_ahead(const Parallel *p)
{
    return p->pp > 1 && schedule_splits(p->schedule) && p->schedule != SCHEDULE_ZB_H1;
}

/* The actions of all stages, one after another. */
static Action *plan_actions(const Build *b, uint32_t turns, uint32_t *each)
{
    const Parallel *p = &b->s->parallel;
    SchedulePlan plan = { .schedule = p->schedule,
                          .pp = p->pp,
                          .turns = turns,
                          .micro_batches = b->s->training.micro_batches,
                          .costs = b->costs };
    if (p->pp == 1 && turns == 1)
        plan.schedule = SCHEDULE_1F1B; /* just accumulation */
    *each = schedule_actions_n(&plan);
    Action *actions = mem_zero((size_t)p->pp * *each, sizeof *actions);
    schedule_actions(&plan, actions);
    return actions;
}

static void write_role(Build *b, uint32_t stage, const uint32_t *begin, uint32_t chunks,
                       const Action *actions, uint32_t actions_n)
{
    const Parallel *p = &b->s->parallel;
    uint32_t m = b->s->training.micro_batches;
    Arena scratch = { 0 };
    Line l = { .b = b,
               .g = b->g,
               .role = &b->g->roles[stage],
               .stage = stage,
               .pp = p->pp,
               .chunks = chunks,
               .begin = begin,
               .actions = actions,
               .actions_n = actions_n,
               .ahead = overlaps(b, DIM_PP) || posts_ahead(p),
               .parts = parts_of_boundary(b),
               .sent = { NOWHERE, NOWHERE },
               .due = { NOWHERE, NOWHERE },
               .compute = NOWHERE,
               .join = NOWHERE,
               .pair = NOWHERE,
               .tied = { { NONE_U32, 0, NOWHERE }, { NONE_U32, 0, NOWHERE } } };
    l.waits = !l.ahead || (b->sw->p2p_waits_for_send && !posts_ahead(p));
    l.host_wait =
        p->pp > 1 && !l.ahead && b->sw->p2p_blocks_host ? host_wait_segment(b) : NONE_U32;
    l.own = PUSH_ARRAY(&scratch, uint32_t, b->blocks_n);
    for (uint32_t i = 0; i < b->blocks_n; i++) {
        bool mine = stage_of(b, b->chunk_of[i]) == stage;
        l.own[i] = mine ? l.own_n++ : NONE_U32;
        if (mine)
            give_home(b, i, stage);
    }
    l.runs = mem_resize(NULL, (size_t)RUNS_N * l.own_n, sizeof *l.runs);
    for (uint32_t i = 0; i < b->blocks_n; i++)
        if (l.own[i] != NONE_U32)
            make_runs(&l, i);
    find_ways(&l, p->virtual_stages, &scratch);
    l.saved = mem_resize(NULL, (size_t)m * l.own_n, sizeof *l.saved);
    for (size_t i = 0; i < (size_t)m * l.own_n; i++)
        l.saved[i] = (Saved){ NONE_U32, NONE_U32, NONE_U32, NONE_U32, NONE_U32, NONE_U32 };
    /* An action runs the blocks of a chunk, and has an input, a receive and a send: about so
     * much. */
    uint32_t runs_n = l.actions_n / p->virtual_stages * l.own_n;
    role_reserve(l.role, runs_n + 3 * l.actions_n, runs_n + 8 * l.actions_n,
                 3 * m * l.own_n + 4 * l.actions_n);
    l.received = PUSH_ARRAY(&scratch, Received, l.actions_n);
    size_t handed_n = (size_t)2 * p->virtual_stages * m;
    l.handed = PUSH_ARRAY(&scratch, Received, handed_n);
    for (size_t i = 0; i < handed_n; i++)
        l.handed[i] = (Received){ NOWHERE, NONE_U32, false };
    write_actions(&l);
    free(l.runs);
    free(l.saved);
    free(l.transfers);
    arena_free(&scratch);
}

static bool check_schedule(const Build *b, Err *err)
{
    const Parallel *p = &b->s->parallel;
    if (p->pp > 1 && p->schedule == SCHEDULE_DUALPIPE && p->virtual_stages == 1)
        return err_set(
            err,
            "parallel.schedule 'dualpipe' from both ends cannot be simulated, its V can: "
            "virtual_stages 2, pp %" PRIu32 " and dp %" PRIu32
            " give each GPU the same chunks and micro-batches",
            p->pp / 2, 2 * p->dp);
    if (posts_ahead(p) && p->overlap_set[DIM_PP] && !p->overlap[DIM_PP])
        return err_set(err,
                       "parallel.overlap.pp false: schedule %s needs transfers beside compute; "
                       "true is allowed, or schedule 1f1b, interleaved, zb-h1",
                       schedule_names[p->schedule]);
    bool many = p->schedule == SCHEDULE_INTERLEAVED || schedule_is_vee(p->schedule);
    if (p->virtual_stages > 1 && !many)
        return err_set(err,
                       "parallel.virtual_stages %" PRIu32 " needs parallel.schedule "
                       "interleaved; 1 is allowed with %s",
                       p->virtual_stages, schedule_names[p->schedule]);
    if (p->schedule == SCHEDULE_INTERLEAVED && p->virtual_stages > 1 &&
        b->s->training.micro_batches % p->pp != 0)
        return err_set(err,
                       "schedule interleaved needs a multiple of pp = %" PRIu32
                       " micro-batches, not %" PRIu32,
                       p->pp, b->s->training.micro_batches);
    return true;
}

bool pass_pipeline(Build *b, Err *err)
{
    const Parallel *p = &b->s->parallel;
    ASSERT(b->blocks_n > 0 && b->s->training.micro_batches > 0);
    if (!check_schedule(b, err))
        return false;
    uint32_t chunks = p->pp * p->virtual_stages;
    uint32_t *begin = PUSH_ARRAY(&b->arena, uint32_t, (size_t)chunks + 1);
    if (!cut_chunks(b, begin, chunks, err))
        return false;
    choose_variants(b, begin, p->pp, chunks);
    b->home = PUSH_ARRAY(&b->arena, Home, b->blocks_n);
    for (uint32_t stage = 0; stage < p->pp; stage++) {
        char name[32];
        snprintf(name, sizeof name, "stage %" PRIu32, stage);
        graph_role(b->g, name, stage);
    }
    uint32_t each;
    Action *actions = plan_actions(b, p->virtual_stages, &each);
    for (uint32_t stage = 0; stage < p->pp; stage++)
        write_role(b, stage, begin, chunks, actions + (size_t)stage * each, each);
    free(actions);
    return true;
}
