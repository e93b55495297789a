/*
 * pipeline_line.h - one stage's program while it is written: what the files of the pipeline share.
 * Nobody else includes it.
 *
 *     pipeline.c            chunks, the stage's actions one after another
 *     pipeline_transfers.c  what it receives and sends around them
 *     pipeline_blocks.c     one block of one micro-batch: its instance, frames, waits
 *     pipeline_passes.c     a micro-batch through a chunk, alone or as half of a pair
 *     pipeline_kept.c       what it has sent, or its head made, and keeps
 */
#ifndef LOCKSTEP_SIM_STRATEGY_PIPELINE_LINE_H
#define LOCKSTEP_SIM_STRATEGY_PIPELINE_LINE_H

#include "sim/strategy/parts.h"
#include "sim/strategy/schedule.h"

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

/* Of a block: backward and weight gradients are others in micro-batch 0 than later (GradMode), or
 * in ddp's last than before (line_way). */
enum { RUN_FORWARD, RUN_BACKWARD, RUN_WEIGHT = RUN_BACKWARD + 2, RUNS_N = RUN_WEIGHT + 2 };

/* The same of the parts of a pass that is cut: forward, and backward in micro-batch 0 and later. */
enum { CUT_BACKWARD = CUT_PARTS_MAX, CUT_RUNS_N = CUT_BACKWARD + 2 * CUT_PARTS_MAX };

/* How one chunk receives or sends in one direction; all its transfers are alike. */
typedef struct Way {
    bool crosses; /* nothing else is set where it does not */
    uint32_t block, peer, layout;
    Lane lane;
    Slot slot;
    Instance like; /* segment NONE_U32 until the first one */
} Way;

/* What a chunk has made and keeps: see KEPT in pipeline_kept.c. */
typedef struct Kept {
    uint32_t frame; /* NONE_U32: nothing */
    Point sent;     /* NOWHERE: it is not sent */
} Kept;

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
    uint32_t *own;   /* by block: its number among the stage's, in order */
    Saved *saved;    /* [micro-batch * own_n + own] */
    Run *runs;       /* [own * RUNS_N + ...]; segment NONE_U32 where the block has none */
    bool hides;      /* pairs hide their all-to-alls */
    bool adds_last;  /* gradients, behind a whole backward */
    Kept *kept;      /* [turn * micro-batches + micro-batch]; NULL: nothing is kept */
    bool keeps_sent; /* what it sends, else that is gone then */
    uint32_t logits; /* layout of what the head makes, where that is kept; NONE_U32 */
    Run *cut_runs;   /* [own * CUT_RUNS_N + ...], where pairs do */
    Way *in, *out;   /* [2 * turn + backward] */
    uint32_t actions_n;
    const Action *actions;
    Received *received; /* by action, of those before posted_n */
    uint32_t posted_n;
    /* Receives of actions of round_kind (NONE_U32: of none) are posted `round` such actions
     * earlier, so far those before round_n: see ROUND in pipeline.c. */
    uint32_t round, round_kind, round_n;
    /* [(2 * turn + backward) * micro-batches + micro-batch]: from the stage's own chunk before,
     * in backward after, this one. */
    Received *handed;
    uint32_t transfers_n, transfers_cap;
    Transfer *transfers;
    bool ahead, waits; /* receives are posted early; compute waits for sends */
    uint32_t parts;    /* an activation is sent in so many parts, gathered by the receiver */
    /* Segment in which the host waits for transfers; NONE_U32: it never does. */
    uint32_t host_wait;
    Point sent[2], due[2]; /* newest sends, by backward; due: the next compute waits */
    Point compute;         /* newest op on the compute lane */
    Point join;            /* result on another lane that the next compute needs */
    Point pair;            /* what the other half of a pair waits for */
    Tied tied[2];          /* by backward; frame NONE_U32: nothing */
} Line;

static inline uint32_t chunk_stage(const Build *b, uint32_t chunk)
{
    return schedule_stage(b->s->parallel.schedule, b->s->parallel.pp, chunk);
}

/* Does what the halves of a pair make wait for the other?  See PAIRS in schedule.h. */
static inline bool line_sends_together(const Line *l)
{
    return runs_dualpipe(&l->b->s->parallel);
}

static inline Saved *line_saved(const Line *l, uint32_t micro_batch, uint32_t block)
{
    ASSERT(l->own[block] != NONE_U32);
    return &l->saved[(size_t)micro_batch * l->own_n + l->own[block]];
}

static inline const Run *line_run(const Line *l, uint32_t block, uint32_t run)
{
    return &l->runs[(size_t)l->own[block] * RUNS_N + run];
}

static inline Instance line_bare_instance(uint32_t segment, uint32_t layer, uint32_t chunk)
{
    Instance i = { .segment = segment, .layer = layer, .chunk = chunk };
    for (int s = 0; s < SLOT_N; s++)
        i.frame[s] = NONE_U32;
    return i;
}

static inline uint32_t line_frame(const Line *l, uint32_t layout, uint32_t layer)
{
    if (layout == NONE_U32)
        return NONE_U32;
    return role_frame(l->role, (Frame){ layout, layer, false });
}

static inline uint32_t line_chunk(const Line *l, const Action *x)
{
    return schedule_chunk(l->b->s->parallel.schedule, l->pp, l->stage, x->turn);
}

/* ---- pipeline_transfers.c ---- */
/* One segment for each lane, peer and layout; not only of transfers.  NONE_U32: none yet. */
uint32_t line_known_segment(const Line *l, Lane lane, uint32_t peer, uint32_t layout);
uint32_t line_know_segment(Line *l, Transfer transfer); /* returns its segment */
void line_find_ways(Line *l, uint32_t turns, Arena *scratch);
void line_receive(Line *l, uint32_t action); /* posts the receive of an action, if it has one */
/* What an action received, whole. */
Received line_arrive(Line *l, uint32_t action);
/* An action of a chunk has made what goes to another stage.  passed_on: the chunk has no blocks,
 * so that there is nothing to be done with it. */
void line_hand_over(Line *l, uint32_t action, uint32_t frame, Point made, bool passed_on);
void line_send_tied(Line *l, uint32_t action); /* what was tied to an action that is done now */
void line_sends_fall_due(Line *l);

/* ---- pipeline_kept.c ---- */
void line_find_kept(Line *l, uint32_t turns, Arena *scratch);
void line_keep_sent(Line *l, const Action *x, uint32_t frame);
/* A micro-batch has come back: what was kept of it until then goes, what its head made stays. */
void line_let_go(Line *l, const Action *x);
void line_let_all_go(Line *l); /* behind all actions */

/* ---- pipeline_blocks.c ---- */
/* Which of two kinds of backward a micro-batch has, and how each writes gradients. */
uint32_t line_way(const Line *l, uint32_t micro_batch);
GradMode line_grad_mode(const Line *l, uint32_t way);
void line_make_runs(const Line *l, uint32_t block);
void line_make_cut_runs(const Line *l, uint32_t block);
/* Appends a run of a micro-batch; it has the frames that are saved. */
Instance *line_add_run(Line *l, const Run *run, uint32_t micro_batch, const Saved *saved);
/* An instance of backward, or of the weight gradients apart from it, with its frames. */
Instance *line_add_gradients(Line *l, const Run *run, uint32_t micro_batch, const Saved *saved);
/* The newest instance is compute, `last` its last op there: what it has to wait for, and that it is
 * the newest. */
void line_enter_compute(Line *l, const Starts *starts, Point arrived, uint32_t last);
/* Returns where the block's output is made; *out is its frame. */
Point line_forward_block(Line *l, const Action *x, const Run *run, Saved *saved, Point arrived,
                         uint32_t *out);
/* Returns where the gradient of the block's input is made; its frame is saved. */
Point line_backward_block(Line *l, const Action *x, const Run *run, Saved *saved,
                          Point arrived);

/* ---- pipeline_passes.c ---- */
void line_do_chunk(Line *l, uint32_t action);
/* Weight gradients, in the order of backward. */
void line_weigh_chunk(Line *l, const Action *x);
/* Those of this action and all behind it, block by block, of each all micro-batches: as
 * zero-bubble's WeightGradStore.clear has them, so that those of the head are final first. */
void line_weigh_rest(Line *l, uint32_t action);
void line_do_pair(Line *l, uint32_t action); /* a forward and the backward behind it */

#endif
