/*
 * pipeline_kept.c - what a stage has made and keeps longer than it is needed.
 *
 * KEPT.  What was sent may stay until this stage's backward of it is through (pp_keeps_outputs), as
 * autograd begins there with it, or until the step is (pp_outputs_stay).  What the head has made
 * may stay until then, too, when all of it is put together for who asked for the step
 * (pp_keeps_logits):
 *
 *     compute   [F0]      [F1]      [B0]-0 ... [B1]-1             outputs 0 and 1 are let go
 *     last      [F0][B0]+0 [F1][B1]+1 ... [put together]-0-1      logits are counted from where
 *                                                                 their backward lets go of them
 *
 * What micro-batches would keep that plan leaves out of a graph (Training.left_out) is there from
 * the first one's backward on: where most is kept, at the end, it is as much.
 */
#include <string.h>

#include "sim/blocks.h"
#include "sim/strategy/pipeline_line.h"

/* Of a chunk, by micro-batch; behind them, what all those keep that are left out. */
static Kept *kept_of(const Line *l, uint32_t turn)
{
    return &l->kept[(size_t)turn * (l->b->s->training.micro_batches + 1)];
}

static Kept *kept(const Line *l, const Action *x)
{
    return &kept_of(l, x->turn)[x->micro_batch];
}

/* The layout of what the head makes of a micro-batch; NONE_U32 where there is none. */
static uint32_t logits_layout(const Line *l)
{
    Graph *g = l->g;
    uint32_t last = l->b->blocks_n - 1;
    const Segment *s = &g->segments[block_type(l->b, last)->forward[VARIANT_PLAIN]];
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(g, s)[i];
        const MatmulShape *m = &op->u.matmul;
        if (op->kind != OP_MATMUL || strcmp(intern_text(&g->names, op->name), NAME_HEAD) != 0)
            continue;
        Tensor t = { .name = intern(&g->names, "logits kept"),
                     .class_ = TENSOR_ACTIVATION,
                     .dtype = act_dtype(&l->b->s->training),
                     .dims = { m->m, m->n } };
        t.bytes = m->m * m->n * dtype_bytes(t.dtype);
        uint32_t layout = graph_layout(g);
        graph_tensor(g, t);
        return layout;
    }
    return NONE_U32;
}

void line_find_kept(Line *l, uint32_t turns, Arena *scratch)
{
    const Software *sw = l->b->sw;
    uint32_t last = schedule_stage(l->b->s->parallel.schedule, l->pp, l->chunks - 1);
    l->keeps_sent = sw->pp_keeps_outputs && l->parts == 1;
    l->logits =
        sw->pp_keeps_logits && l->pp > 1 && l->stage == last ? logits_layout(l) : NONE_U32;
    if (!l->keeps_sent && l->logits == NONE_U32)
        return;
    size_t n = (size_t)turns * (l->b->s->training.micro_batches + 1);
    l->kept = PUSH_ARRAY(scratch, Kept, n);
    for (size_t i = 0; i < n; i++)
        l->kept[i] = (Kept){ NONE_U32, NOWHERE };
}

void line_keep_sent(Line *l, const Action *x, uint32_t frame)
{
    if (l->keeps_sent)
        *kept(l, x) = (Kept){ frame, l->sent[0] };
}

/* An op without work, with which a tensor begins or ends. */
static uint32_t end_segment(Line *l, uint32_t layout, bool born)
{
    Graph *g = l->g;
    /* nothing else is there of the host's lane */
    uint32_t known = line_known_segment(l, LANE_HOST, born, layout);
    if (known != NONE_U32)
        return known;
    uint32_t s =
        idle_segment(g, born ? "output kept" : "output let go", PHASE_DGRAD, SLOT_OUT, layout);
    arg_each(g, SLOT_OUT, layout, born ? ARG_WRITE : ARG_READ, born, !born);
    return line_know_segment(l, (Transfer){ LANE_HOST, born, layout, s });
}

static void end_at(Line *l, uint32_t micro_batch, uint32_t chunk, const Kept *k, bool born)
{
    uint32_t segment = end_segment(l, l->role->frames[k->frame].layout, born);
    uint32_t i = role_instance(l->role, segment, micro_batch, NONE_U32, chunk);
    l->role->instances[i].frame[SLOT_OUT] = k->frame;
    if (!born && point_is(k->sent))
        wait_at(l->role, 0, k->sent);
}

/* A layout with n times what is in another. */
static uint32_t times_layout(Line *l, uint32_t of, uint32_t n, const char *name)
{
    Graph *g = l->g;
    uint32_t layout = graph_layout(g);
    for (uint32_t i = 0; i < g->layouts[of].tensor_n; i++) {
        Tensor t = *layout_tensor(g, of, i);
        t.name = intern(&g->names, name);
        t.bytes *= n;
        t.dims[0] *= n;
        graph_tensor(g, t);
    }
    return layout;
}

/* With the first that stays. */
static void keep_left_out(Line *l, const Action *x, uint32_t layout)
{
    uint32_t n = l->b->s->training.left_out;
    Kept *rest = &kept_of(l, x->turn)[l->b->s->training.micro_batches];
    if (n == 0 || rest->frame != NONE_U32)
        return;
    layout = times_layout(l, layout, n, "outputs of others");
    rest->frame = line_frame(l, layout, NONE_U32);
    end_at(l, x->micro_batch, line_chunk(l, x), rest, true);
}

void line_let_go(Line *l, const Action *x)
{
    Kept *k = l->kept ? kept(l, x) : NULL;
    uint32_t chunk = line_chunk(l, x);
    if (k && l->logits != NONE_U32 && chunk + 1 == l->chunks) {
        k->frame = line_frame(l, l->logits, NONE_U32);
        end_at(l, x->micro_batch, chunk, k, true);
        keep_left_out(l, x, l->logits);
        return;
    }
    if (!k || k->frame == NONE_U32)
        return;
    if (l->b->sw->pp_outputs_stay) {
        keep_left_out(l, x, l->role->frames[k->frame].layout);
        return;
    }
    end_at(l, x->micro_batch, chunk, k, false);
    k->frame = NONE_U32;
}

/* All that the head has made, copied into one tensor that nobody holds. */
static void put_together(Line *l)
{
    Graph *g = l->g;
    const Training *t = &l->b->s->training;
    uint32_t layout =
        times_layout(l, l->logits, t->micro_batches + t->left_out, "logits together");
    const Tensor all = *layout_tensor(g, layout, 0);
    uint32_t s = graph_segment(g, SEGMENT_OTHER, "outputs put together");
    g->segments[s].layout[SLOT_LOCAL] = layout;
    graph_op(g, (Op){ .kind = OP_COPY,
                      .phase = PHASE_DGRAD,
                      .dtype = all.dtype,
                      .lane = LANE_COMPUTE,
                      .name = intern(&g->names, "outputs put together"),
                      .u.elements = all.bytes / dtype_bytes(all.dtype),
                      .read_bytes = all.bytes,
                      .write_bytes = all.bytes });
    graph_arg(g, SLOT_LOCAL, 0, ARG_WRITE, true, true);
    role_instance(l->role, s, NONE_U32, NONE_U32, l->chunks - 1);
}

void line_let_all_go(Line *l)
{
    uint32_t m = l->b->s->training.micro_batches + 1, turns = l->b->s->parallel.virtual_stages;
    if (l->logits != NONE_U32)
        put_together(l);
    for (uint32_t k = 0; l->kept && k < turns * m; k++)
        if (l->kept[k].frame != NONE_U32)
            end_at(l, NONE_U32, NONE_U32, &l->kept[k], false);
}
