/*
 * pipeline_transfers.c - what a stage receives and sends: see DEADLOCK, SCATTER AND GATHER in
 * pipeline.c.
 */
#include "sim/strategy/pipeline_line.h"

/* Do activations go from the stage of chunk - 1 to another, that of chunk? */
static bool crosses(const Line *l, uint32_t chunk)
{
    return l->pp > 1 && chunk > 0 && chunk < l->chunks && l->begin[chunk] > 0 &&
           l->begin[chunk] < l->b->blocks_n &&
           chunk_stage(l->b, chunk - 1) != chunk_stage(l->b, chunk);
}

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
    bool send = what[lane].send, grad = what[lane].grad,
         dies = send && (grad || !l->keeps_sent);
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
    arg_each(g, what[lane].slot, layout, send ? ARG_READ : ARG_WRITE, !send, dies);
    return s;
}

uint32_t line_known_segment(const Line *l, Lane lane, uint32_t peer, uint32_t layout)
{
    for (uint32_t i = 0; i < l->transfers_n; i++) {
        const Transfer *t = &l->transfers[i];
        if (t->lane == lane && t->peer == peer && t->layout == layout)
            return t->segment;
    }
    return NONE_U32;
}

uint32_t line_know_segment(Line *l, Transfer transfer)
{
    GROW(l->transfers, l->transfers_n, l->transfers_cap);
    l->transfers[l->transfers_n++] = transfer;
    return transfer.segment;
}

/* One segment per lane, peer and layout: a handful per role. */
static uint32_t transfer_segment(Line *l, Lane lane, uint32_t peer, uint32_t layout)
{
    uint32_t known = line_known_segment(l, lane, peer, layout);
    if (known != NONE_U32)
        return known;
    uint32_t segment = make_transfer(l, lane, peer, layout);
    return line_know_segment(l, (Transfer){ lane, peer, layout, segment });
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
    w->peer = chunk_stage(l->b, ahead ? chunk + 1 : chunk - 1);
    w->lane = lane_of(l, turn, what[sends][backward].lane);
    w->slot = what[sends][backward].slot;
    w->like = line_bare_instance(NONE_U32, NONE_U32, chunk);
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

void line_receive(Line *l, uint32_t action)
{
    const Action *x = &l->actions[action];
    l->received[action] = (Received){ NOWHERE, NONE_U32, false };
    if (x->kind == ACTION_WEIGHT)
        return;
    Way *w = &l->in[2 * x->turn + (x->kind == ACTION_BACKWARD)];
    if (!w->crosses)
        return;
    uint32_t frame = line_frame(l, w->layout, l->b->blocks[w->block].layer);
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
    if (!backward)
        line_keep_sent(l, x, frame);
}

void line_send_tied(Line *l, uint32_t action)
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

void line_hand_over(Line *l, uint32_t action, uint32_t frame, Point made, bool passed_on)
{
    const Action *x = &l->actions[action];
    Tied *t = &l->tied[x->kind == ACTION_BACKWARD];
    ASSERT(t->frame == NONE_U32);
    if (x->tied == 0 || passed_on || !line_sends_together(l))
        send(l, x, frame, made);
    else
        *t = (Tied){ frame, action, made };
}

void line_sends_fall_due(Line *l)
{
    for (int k = 0; k < 2; k++)
        if (point_is(l->sent[k])) {
            l->due[k] = l->sent[k];
            l->sent[k] = NOWHERE;
        }
}

void line_find_ways(Line *l, uint32_t turns, Arena *scratch)
{
    l->in = PUSH_ARRAY(scratch, Way, (size_t)2 * turns);
    l->out = PUSH_ARRAY(scratch, Way, (size_t)2 * turns);
    for (uint32_t k = 0; k < 2 * turns; k++) {
        find_way(l, &l->in[k], k / 2, false, k % 2 == 1);
        find_way(l, &l->out[k], k / 2, true, k % 2 == 1);
    }
}

/* ---- what was sent in parts ---- */

static uint32_t gather_segment(Line *l, bool backward, uint32_t layout)
{
    Graph *g = l->g;
    const char *name = backward ? "gather grad" : "gather act";
    Slot slot = backward ? SLOT_DOUT : SLOT_IN;
    uint32_t known = line_known_segment(l, LANE_COMPUTE, backward, layout);
    if (known != NONE_U32)
        return known;
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
    return line_know_segment(l, (Transfer){ LANE_COMPUTE, backward, layout, s });
}

Received line_arrive(Line *l, uint32_t action)
{
    const Action *x = &l->actions[action];
    Received in = l->received[action];
    if (l->parts == 1 || !point_is(in.at))
        return in;
    bool backward = x->kind == ACTION_BACKWARD;
    uint32_t segment = gather_segment(l, backward, l->role->frames[in.frame].layout);
    uint32_t i = role_instance(l->role, segment, x->micro_batch, NONE_U32, line_chunk(l, x));
    l->role->instances[i].frame[backward ? SLOT_DOUT : SLOT_IN] = in.frame;
    line_enter_compute(l, &(Starts){ .n = 1 }, in.at, 0);
    return (Received){ { i, 0 }, in.frame, true };
}
