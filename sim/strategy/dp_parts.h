/*
 * dp_parts.h - what the files of the strategy dp share; only dp*.c include it.
 */
#ifndef LOCKSTEP_SIM_STRATEGY_DP_PARTS_H
#define LOCKSTEP_SIM_STRATEGY_DP_PARTS_H

#include "sim/strategy/grads.h"

enum { LOSSES_MAX = 4, WHOLE_MAX = 24, INPUTS_MAX = 8 };
enum { TAG_INPUT, TAG_OUTPUT, TAG_GRADIENT };
enum { HUB, OTHER, ROLES_N };

/* One instance of a phase. */
typedef struct Step {
    uint32_t role, segment, layer;
    uint32_t wait; /* step of the same phase and role; NONE_U32 */
    uint32_t frame[SLOT_N];
} Step;

/* What stands between the blocks, written once and played for each micro-batch. */
typedef struct Phase {
    uint32_t steps_n, steps_cap;
    Step *steps;
    /* Written on the copy lane, maybe while the micro-batch before still reads its own: this
     * frame of device 0 stands for a new one each time. */
    uint32_t fresh, fresh_layout;
} Phase;

/* A value that the loss ops touch, as its block named it. */
typedef struct WholeValue {
    bool backward;
    uint8_t slot;
    uint32_t tensor;
} WholeValue;

typedef struct Loss {
    uint32_t block, n;
    WholeValue logits[LOSSES_MAX], dlogits[LOSSES_MAX];
    uint64_t bytes; /* of one device's outputs */
    uint32_t values_n;
    WholeValue values[WHOLE_MAX]; /* by tensor of whole_layout */
    uint32_t whole_layout, out_layout;
    uint32_t input_layout, inputs[INPUTS_MAX]; /* what else the block reads from outside */
    uint32_t forward, backward;                /* the block without its loss */
    uint32_t whole[ROLES_N], out[ROLES_N], dout[ROLES_N], data[ROLES_N]; /* frames */
    uint32_t loaded; /* instance on device 0 that has brought the newest inputs of the block */
} Loss;

typedef struct Dp {
    Build *b;
    Graph *g;
    uint32_t devices_n;
    Weave w[ROLES_N];
    Loss loss;
    uint32_t idle;  /* a segment without ops */
    uint32_t *grad; /* by block: frame on device 0 of the gradients of its own copy */
    uint32_t pieces_n;
    Piece *pieces;
    Phase replicate, at_loss, reduce[2]; /* reduce: first micro-batch, later ones */
    Phase *input;                        /* by block */
    uint32_t first_at[ROLES_N];          /* instance of each role's first step played last */
} Dp;

typedef struct Message {
    const char *name;
    OpPhase phase;
    DType dtype;
    uint64_t bytes;
    uint32_t tag;
} Message;

/* ---- dp.c: phases, and ops of the open segment ---- */

/* One more instance of the phase, without frames; to be used before the next. */
Step *dp_step(Phase *p, uint32_t role, uint32_t segment, uint32_t layer);
uint32_t dp_frame_of(const Dp *d, uint32_t role, uint32_t layout);
Op dp_work(Dp *d, OpKind kind, const char *name, OpPhase phase, DType dtype, uint64_t bytes);
void dp_h2d(Dp *d, DType dtype, uint64_t bytes);
/* Between device 0 and the peer, by its index in the group of all devices. */
void dp_send_or_receive(Dp *d, OpKind kind, const Message *m, uint32_t peer);
uint32_t dp_new_segment(Dp *d, SegmentKind kind, const char *name, Slot slot, uint32_t layout);

/* ---- dp_loss.c: the last block without its loss, and the phase at_loss ---- */

void dp_cut_off_loss(Dp *d);

/* ---- dp_buffers.c: the phases replicate and reduce ---- */

void dp_list_pieces(Dp *d);
void dp_write_replicate(Dp *d, const uint32_t *param);
void dp_write_reduce(Dp *d, Phase *p, bool first, const uint32_t *param, const uint32_t *grad);

#endif
