/*
 * dp.c - PyTorch's DataParallel: one process, and device 0 is the hub.
 *
 *     device 0   |in|-> |cat|bcast|F ....|gather loss ->|B ....|cat|reduce|optimizer
 *     device 1      |<-|    |bcast|F ....|->..........<-|B ....|cat|reduce|
 *     device 2      |<-|    |bcast|F ....|->..........<-|B ....|cat|reduce|
 *                inputs     params      outputs    gradients      gradients
 *                                                  of outputs
 *
 * Each micro-batch: the batch comes to device 0, which scatters it; every
 * parameter is broadcast (broadcast_coalesced); the outputs are gathered on device
 * 0, which computes the loss of the whole batch and scatters the gradient of the
 * outputs; the gradients are summed on device 0 (reduce_add_coalesced, only when
 * all are there: nothing overlaps), which alone has an optimizer.  Two roles:
 * device 0, and the others, which keep neither parameters nor gradients nor state.
 * One host launches for all (Graph.host_group); the shorter program of the two is
 * padded with empty instances after each phase, so that its rounds stay in step.
 *
 * All transfers stand on the compute lane, as torch puts them on the current
 * streams.  Where the others wait for device 0 is their bubble.
 *
 * SIMPLIFIED.  Inputs come to device 0 and go on from there (torch copies batches
 * that lie on the host to each device).  The threads of parallel_apply are the one
 * host that they are under Python's lock.  Buffers of batch norms, a few kilobytes
 * that torch broadcasts as well, stay where they are.
 */
#include "sim/strategy/dp_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- phases ---- */

Step *dp_step(Phase *p, uint32_t role, uint32_t segment, uint32_t layer)
{
    GROW(p->steps, p->steps_n, p->steps_cap);
    Step *s = &p->steps[p->steps_n++];
    *s = (Step){ .role = role, .segment = segment, .layer = layer, .wait = NONE_U32 };
    memset(s->frame, 0xff, sizeof s->frame);
    return s;
}

/* The host goes round the devices instance by instance: both programs stay as long. */
static void pad(Dp *d)
{
    Role *hub = &d->g->roles[HUB], *other = &d->g->roles[OTHER];
    while (hub->instances_n != other->instances_n)
        role_instance(hub->instances_n < other->instances_n ? hub : other, d->idle, NONE_U32,
                      NONE_U32, NONE_U32);
}

uint32_t dp_frame_of(const Dp *d, uint32_t role, uint32_t layout)
{
    if (layout == NONE_U32)
        return NONE_U32;
    return role_frame(&d->g->roles[role], (Frame){ layout, NONE_U32, false });
}

static void play(Dp *d, const Phase *p, uint32_t micro_batch)
{
    uint32_t *at = mem_zero(p->steps_n + 1, sizeof *at);
    uint32_t fresh = p->fresh_layout ? dp_frame_of(d, HUB, p->fresh_layout) : NONE_U32;
    d->first_at[HUB] = d->first_at[OTHER] = NONE_U32;
    for (uint32_t i = 0; i < p->steps_n; i++) {
        const Step *s = &p->steps[i];
        Role *role = &d->g->roles[s->role];
        at[i] = role_instance(role, s->segment, micro_batch, s->layer, NONE_U32);
        uint32_t *frame = role->instances[at[i]].frame;
        memcpy(frame, s->frame, sizeof s->frame);
        if (p->fresh_layout && s->role == HUB && frame[SLOT_DATA] == p->fresh)
            frame[SLOT_DATA] = fresh;
        if (s->wait != NONE_U32)
            wait_at(role, 0, (Point){ at[s->wait], 0 });
        if (d->first_at[s->role] == NONE_U32)
            d->first_at[s->role] = at[i];
    }
    free(at);
    pad(d);
}

/* ---- ops ---- */

Op dp_work(Dp *d, OpKind kind, const char *name, OpPhase phase, DType dtype, uint64_t bytes)
{
    Graph *g = d->g;
    return (Op){ .kind = kind,
                 .phase = phase,
                 .dtype = dtype,
                 .lane = kind == OP_H2D ? LANE_COPY : LANE_COMPUTE,
                 .name = intern(&g->names, name),
                 .logical = g->segments[g->segments_n - 1].op_n,
                 .u.elements = bytes / dtype_bytes(dtype) };
}

void dp_h2d(Dp *d, DType dtype, uint64_t bytes)
{
    Op op = dp_work(d, OP_H2D, "input", PHASE_FORWARD, dtype, bytes);
    op.write_bytes = bytes;
    graph_op(d->g, op);
}

void dp_send_or_receive(Dp *d, OpKind kind, const Message *m, uint32_t peer)
{
    Op op = dp_work(d, kind, m->name, m->phase, m->dtype, 0);
    op.u.comm = (CommShape){
        .bytes = m->bytes, .group = d->b->group[GROUP_DP], .peer = peer, .tag = m->tag
    };
    op.read_bytes = kind == OP_SEND ? m->bytes : 0;
    op.write_bytes = kind == OP_SEND ? 0 : m->bytes;
    graph_op(d->g, op);
}

uint32_t dp_new_segment(Dp *d, SegmentKind kind, const char *name, Slot slot, uint32_t layout)
{
    uint32_t s = graph_segment(d->g, kind, name);
    d->g->segments[s].layout[slot] = layout;
    return s;
}

/* ---- inputs ---- */

static uint32_t input_segment(Dp *d, uint32_t layout, uint64_t bytes)
{
    DType dtype = layout_tensor(d->g, layout, 0)->dtype;
    uint32_t s = dp_new_segment(d, SEGMENT_INPUT, "input", SLOT_DATA, layout);
    dp_h2d(d, dtype, bytes);
    arg_each(d->g, SLOT_DATA, layout, ARG_WRITE, true, false);
    return s;
}

/* What the other devices shall have. */
static uint32_t rest_layout(Dp *d, uint32_t layout)
{
    uint32_t rest = graph_layout(d->g);
    for (uint32_t i = 0; i < d->g->layouts[layout].tensor_n; i++) {
        Tensor t = *layout_tensor(d->g, layout, i);
        t.bytes *= d->devices_n - 1;
        t.dims[0] *= d->devices_n - 1;
        graph_tensor(d->g, t);
    }
    return rest;
}

/* Device 0: its own part, the rest, and away with that.  The frames of what blocks read are
 * bound by who plays this. */
static void write_input_phase(Dp *d, Phase *p, uint32_t layout)
{
    Graph *g = d->g;
    Message m = { "scatter input", PHASE_FORWARD, layout_tensor(g, layout, 0)->dtype,
                  layout_bytes(g, layout), TAG_INPUT };
    uint32_t rest = rest_layout(d, layout), frame = dp_frame_of(d, HUB, rest);
    p->fresh = frame;
    p->fresh_layout = rest;
    dp_step(p, HUB, input_segment(d, layout, m.bytes), NONE_U32);
    dp_step(p, HUB, input_segment(d, rest, m.bytes * (d->devices_n - 1)), NONE_U32)
        ->frame[SLOT_DATA] = frame;
    Step *s =
        dp_step(p, HUB, dp_new_segment(d, SEGMENT_SEND, m.name, SLOT_DATA, rest), NONE_U32);
    s->frame[SLOT_DATA] = frame;
    s->wait = 1;
    for (uint32_t i = 1; i < d->devices_n; i++) {
        dp_send_or_receive(d, OP_SEND, &m, i);
        arg_each(g, SLOT_DATA, rest, ARG_READ, false, i + 1 == d->devices_n);
    }
    dp_step(p, OTHER, dp_new_segment(d, SEGMENT_RECV, m.name, SLOT_DATA, layout), NONE_U32);
    dp_send_or_receive(d, OP_RECV, &m, HUB);
    arg_each(g, SLOT_DATA, layout, ARG_WRITE, true, false);
}

/* ---- two programs ---- */

/* The others run what device 0 runs, on frames with the same numbers, but own nothing. */
static void add_others(Dp *d)
{
    Graph *g = d->g;
    g->roles[HUB].name = intern(&g->names, "device 0");
    graph_role(g, "other devices", 0);
    const Role *from = &g->roles[HUB];
    Role *to = &g->roles[OTHER];
    for (uint32_t i = 0; i < from->frames_n; i++) {
        Frame frame = from->frames[i];
        frame.resident = false;
        role_frame(to, frame);
    }
    for (uint32_t i = 0; i < from->instances_n; i++) {
        const Instance *x = &from->instances[i];
        role_instance(to, x->segment, x->micro_batch, x->layer, x->chunk);
        memcpy(to->instances[i].frame, x->frame, sizeof x->frame);
        for (uint32_t e = x->edge_first; e < x->edge_first + x->edge_n; e++)
            role_edge(to, from->edges[e].dst_op, from->edges[e].src_instance,
                      from->edges[e].src_op);
    }
    g->role_stride = d->b->stride[DIM_DP];
    g->role_extent = d->devices_n;
    free(g->role_of);
    g->role_of = mem_zero(d->devices_n, sizeof *g->role_of);
    for (uint32_t i = 1; i < d->devices_n; i++)
        g->role_of[i] = OTHER;
    g->replica = (GroupDim){ 1, 1, 1, 1 };
    g->host_group = d->b->group[GROUP_DP];
}

static void pass_over(Dp *d, uint32_t instance[ROLES_N])
{
    for (uint32_t r = 0; r < ROLES_N; r++)
        d->w[r].now[d->w[r].next++] = instance[r];
}

static void weave_input(Dp *d)
{
    const Instance old = *weave_next(&d->w[HUB]);
    uint32_t block = block_of(d->b, &d->w[HUB].old.instances[d->w[HUB].next + 1]);
    bool last = block == d->loss.block;
    uint32_t layout =
        last ? d->loss.input_layout : d->g->segments[old.segment].layout[SLOT_DATA];
    Phase *p = &d->input[block];
    if (p->steps_n == 0 && layout != NONE_U32)
        write_input_phase(d, p, layout);
    play(d, p, old.micro_batch);
    for (uint32_t r = 0; r < ROLES_N && p->steps_n > 0; r++) {
        uint32_t frame = last ? dp_frame_of(d, r, layout) : old.frame[SLOT_DATA];
        d->g->roles[r].instances[d->first_at[r]].frame[SLOT_DATA] = frame;
        if (last)
            d->loss.data[r] = frame;
    }
    if (last && p->steps_n > 0)
        d->loss.loaded = d->first_at[HUB];
    pass_over(d, d->first_at);
}

/* The block of the loss, without it. */
static void weave_last(Dp *d, bool backward)
{
    const Instance old = *weave_next(&d->w[HUB]);
    const Loss *l = &d->loss;
    uint32_t at[ROLES_N];
    for (uint32_t r = 0; r < ROLES_N; r++) {
        Role *role = &d->g->roles[r];
        at[r] = role_instance(role, backward ? l->backward : l->forward, old.micro_batch,
                              old.layer, old.chunk);
        uint32_t *frame = role->instances[at[r]].frame;
        memcpy(frame, old.frame, sizeof old.frame);
        frame[SLOT_DATA] = l->data[r];
        frame[backward ? SLOT_DOUT : SLOT_OUT] = backward ? l->dout[r] : l->out[r];
        if (r == HUB && !backward && l->data[r] != NONE_U32)
            wait_at(role, 0, (Point){ l->loaded, 0 });
    }
    pass_over(d, at);
}

static void weave_block(Dp *d, uint32_t block, bool backward)
{
    if (block == d->loss.block) {
        weave_last(d, backward);
    } else {
        for (uint32_t r = 0; r < ROLES_N; r++) {
            uint32_t i = weave_keep(&d->w[r]);
            if (backward)
                d->g->roles[r].instances[i].segment =
                    block_type(d->b, block)->backward[d->b->variant[block]][GRAD_BORN];
        }
    }
    Role *hub = &d->g->roles[HUB];
    uint32_t *grad = &hub->instances[hub->instances_n - 1].frame[SLOT_GRAD];
    if (backward && *grad != NONE_U32)
        *grad = d->grad[d->b->blocks[block].frame_of];
}

static void weave_all(Dp *d)
{
    for (uint32_t r = 0; r < ROLES_N; r++)
        weave_begin(&d->w[r], &d->g->roles[r], d->g->roles[r].instances_n);
    while (weave_left(&d->w[HUB])) {
        const Instance old = *weave_next(&d->w[HUB]);
        uint32_t block = block_of(d->b, &old);
        bool backward = d->g->segments[old.segment].kind == SEGMENT_BACKWARD;
        if (block == NONE_U32) {
            weave_input(d);
            continue;
        }
        if (block == 0 && !backward)
            play(d, &d->replicate, old.micro_batch);
        weave_block(d, block, backward);
        if (block == d->loss.block && !backward)
            play(d, &d->at_loss, old.micro_batch);
        if (block == 0 && backward)
            play(d, &d->reduce[old.micro_batch > 0], old.micro_batch);
    }
    for (uint32_t r = 0; r < ROLES_N; r++)
        weave_end(&d->w[r]);
}

/* Frames by block: parameters and gradients where pipeline put them, and those of device 0's
 * own copy. */
static void write_phases(Dp *d)
{
    Build *b = d->b;
    uint32_t *param = PUSH_ARRAY(&b->arena, uint32_t, b->blocks_n);
    uint32_t *grad = PUSH_ARRAY(&b->arena, uint32_t, b->blocks_n);
    d->grad = PUSH_ARRAY(&b->arena, uint32_t, b->blocks_n);
    for (uint32_t i = 0; i < b->blocks_n; i++) {
        param[i] = b->home[i].param;
        grad[i] = b->home[i].grad;
        d->grad[i] = b->blocks[i].frame_of == i
                         ? dp_frame_of(d, HUB, block_type(b, i)->grad_layout)
                         : NONE_U32;
    }
    dp_list_pieces(d);
    dp_cut_off_loss(d);
    dp_write_replicate(d, param);
    dp_write_reduce(d, &d->reduce[0], true, param, grad);
    if (b->s->training.micro_batches > 1)
        dp_write_reduce(d, &d->reduce[1], false, param, grad);
}

static void free_phases(Dp *d)
{
    free(d->replicate.steps);
    free(d->at_loss.steps);
    free(d->reduce[0].steps);
    free(d->reduce[1].steps);
    for (uint32_t i = 0; i < d->b->blocks_n; i++)
        free(d->input[i].steps);
}

bool pass_dp(Build *b, Err *err)
{
    const Parallel *p = &b->s->parallel;
    if (b->group[GROUP_DP] == NONE_U32)
        return pass_single(b, err);
    ASSERT(p->tp * p->pp * p->cp * p->virtual_stages == 1); /* see scenario_check.c */
    if (p->sync_batchnorm)
        return err_set(err, "parallel.sync_batchnorm: PyTorch's SyncBatchNorm needs a process "
                            "per GPU, so not with strategy 'dp'; false is allowed");
    Dp d = { .b = b, .g = b->g, .devices_n = p->dp };
    d.input = PUSH_ARRAY(&b->arena, Phase, b->blocks_n);
    d.idle = graph_segment(b->g, SEGMENT_OTHER, "idle");
    add_others(&d);
    write_phases(&d);
    weave_all(&d);
    free_phases(&d);
    Finish f;
    finish_begin(&f, b, owned_by_share(b, SHARE_NOTHING), SHARE_NOTHING, 0);
    finish_role(&f, HUB, NOWHERE);
    return true;
}
