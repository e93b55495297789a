/*
 * blocks.h - from a model to the segments of its blocks, and how blocks hand on.
 *
 * A block of the model becomes a tape (sim/tape.h), the tape is split over
 * tensor-parallel ranks (sim/strategy/tensor.c) and played forward and backward
 * (sim/draft.h); sim/segments.c gives every value its slot.  Equal blocks share
 * one BlockType.
 *
 * WHO BIRTHS, WHO KILLS.  "forward(i) births X" means that an argument of an op in
 * that segment carries BORN, "backward(i) kills X" that one carries DIES:
 *
 *     slot                      born by              dies in
 *     SLOT_LOCAL                the segment          the segment
 *     SLOT_STASH of block i     forward(i)           backward(i), at its last use
 *     SLOT_OUT of block i    =  SLOT_IN of block i+1, one frame per micro-batch:
 *                               forward(i), or the   backward(i+1), at its last use;
 *                               receive              a sender's copy in the send
 *     SLOT_DOUT of block i   =  SLOT_DIN of block i+1, one frame per micro-batch:
 *                               backward(i+1), or    backward(i), at its last use;
 *                               the receive          a sender's copy in the send
 *     SLOT_HELD of block i      backward(i)          weight(i), at its last use
 *     SLOT_DATA                 the input segment    see below
 *     SLOT_GRAD                 GRAD_BORN: backward; otherwise who allocates
 *                               never here           who reduces or updates
 *     SLOT_PARAM                never here           never here
 *
 * The first block has neither IN nor DIN, the last (has_loss) neither
 * OUT nor DOUT.  A slot that a segment does not use has layout NONE_U32, and so
 * has SLOT_STASH where nothing is saved.
 *
 * DATA.  The SLOT_DATA layout of a type holds exactly what its tape reads from
 * outside, by name: "tokens" i64 (embedding), "targets" i64 (loss; "targets 2" and on: of
 * layers that predict further tokens), "features" and "images" (first block), "labels"
 * i64.  The input segment births it; each tensor dies where it is read last: in backward,
 * but the targets of a fused loss already in forward.  The loss itself is a local of the
 * loss op: who runs the op adds it up.
 *
 * TIED EMBEDDINGS.  On one stage (pp == 1, zbv) the head uses the embedding's PARAM,
 * GRAD and STATE frames (Block.frame_of).  One layout serves both types: first the
 * params of the embedding, then those of the head; all are Params of the embedding
 * and the head has none.  The head's backward writes the table's gradient, the
 * embedding's backward adds to it whatever the GradMode, so all are final after
 * the latter.  With a pipeline both ends hold the table as a Param with `shared`.  So
 * it is, tied or not, where the head looks tokens up itself (blocks_mtp.c); what it
 * reads twice has one gradient, which its ops add up.
 *
 * RECOMPUTATION.  VARIANT_RECOMPUTE does what training.recompute says, "full" unless it
 * says "selective"; embedding, blocks with a loss and heads (but for layers that stand with
 * them) have equal variants.  full: SLOT_STASH is empty; backward begins with the forward
 * ops as PHASE_RECOMPUTE.  selective: Software.selective names the ops.
 *
 * CONTEXT PARALLELISM.  Rows are this rank's part of each sequence.  Keys and values
 * of the whole sequence are gathered over cp before attention, again in backward,
 * and their gradients scattered; where cp overlaps, lowering lets attention begin
 * with the rank's own keys (a ring), so that only the rest waits.
 *
 * EXPERTS.  A layer with experts has them in the place of its MLP (blocks_moe.c).  Their
 * matmuls work on all experts of the rank at once: TapeOp.groups, MatmulShape.batch.
 *
 * FP8.  Matmuls of layers read their input, and the gradient of their output, cast
 * to fp8, and that cast input is what is saved (Transformer Engine); everything
 * else, and the head, is bf16.
 *
 * FLOPS.  Only matmuls, convolutions and attention count, a multiply-add is 2.
 * `flops` is what is computed: fused causal attention computes s(s+1)/2 pairs of
 * s^2 (with a window w: w per query), "math" attention all of them, and the
 * backward of fused attention computes the scores again (5 matmuls, not 4).
 * `model_flops` counts causal attention in full (s^2 pairs), as the formulas of
 * Megatron-LM and PaLM do; Build.model_flops_causal counts s(s+1)/2 instead.
 * A window counts w pairs per query in both.  What is computed again has both,
 * and counts for hardware flops only (op_model_flops).
 */
#ifndef LOCKSTEP_SIM_BLOCKS_H
#define LOCKSTEP_SIM_BLOCKS_H

#include "sim/build.h"
#include "sim/tape.h"

/* One kind of block while it is made. */
typedef struct BlockPlan {
    const char *name; /* "layer"; segments are "layer forward", ... */
    BlockKind kind;
    Tape tape;
    Redo *redo;       /* by op of the tape, VARIANT_RECOMPUTE; NULL: as plain */
    Redo *plain_redo; /* the same of VARIANT_PLAIN; NULL: nothing */
    RedoPart *parts;  /* by value of the tape, beside redo: of REDO_PART's results */
    bool redo_all;
    /* A head: its ops [first, end) are those of layers, which may be done again. */
    uint32_t redo_first, redo_end;
} BlockPlan;

/* What the three families of models fill in; equal blocks are planned once. */
typedef struct ModelPlan {
    uint32_t types_n, types_cap;
    BlockPlan *types;
    bool tied; /* the last type has the frames of the first */
} ModelPlan;

bool plan_transformer(Build *b, ModelPlan *p, Err *err);
bool plan_mlp(Build *b, ModelPlan *p, Err *err);
bool plan_convnet(Build *b, ModelPlan *p, Err *err);

/* For them: a new type, and blocks of it.  Pointers stay valid until the next type. */
BlockPlan *plan_type(Build *b, ModelPlan *p, const char *name, BlockKind kind);
void plan_block(Build *b, BlockKind kind, uint32_t layer, uint32_t type);

/* Matmuls outside transformer layers are never in fp8. */
DType matmul_dtype(const Training *t);

/* Facts of the software after training.compile. */
typedef struct Fusion {
    bool gated, elementwise, residual_norm;
    bool norm_chain, rope_chain, gelu_chain, softmax_chain;
    bool softmax_f32; /* softmax_chain: of scores that are cast to f32 */
    bool norms;       /* with the sums, and the casts of torch.autocast, beside them */
} Fusion;
Fusion fusion_of(const Build *b);
bool fused_attention(const Build *b); /* training.attention has the last word */
/* torch.autocast in eager mode: every cast is a kernel of its own. */
bool casts_each(const Build *b);
bool has_dropout(const Build *b);
uint32_t mtp_layers(const Build *b); /* that are trained to predict further tokens */

/* Ops that others know by name. */
#define NAME_QKV             "attention.qkv"
#define NAME_QK_NORM         "attention.qk_norm"
#define NAME_REPEAT          "attention.repeat_kv"
#define NAME_HEAD            "head"
#define NAME_GATE_UP         "mlp.gate_up"
#define NAME_EXPERTS_GATE_UP "experts.gate_up"
#define NAME_SHARED_GATE_UP  "shared_expert.gate_up"

/* As how many matmuls the stack does the transformer's of this name: q, k and v; gate and up. */
uint32_t matmul_parts(const Build *b, const char *name);

/* ---- ops that several families use (sim/blocks.c) ---- */

typedef struct LinearSpec {
    const char *name;
    uint64_t columns; /* of the output */
    uint64_t kv_columns;
    bool bias;
    bool quantized;  /* x has been through tape_quantize */
    uint32_t groups; /* experts, each with weights of its own; 0: plain */
    TapeTp tp;
} LinearSpec;

uint32_t tape_linear(Build *b, Tape *t, uint32_t x, const LinearSpec *spec);
/* x as matmuls read it: under torch.autocast a cast of what is in f32. */
uint32_t tape_narrow(Build *b, Tape *t, uint32_t x);
/* For the matmul of this name: in eager mode each of its parts casts x anew, and keeps that. */
uint32_t tape_narrow_for(Build *b, Tape *t, uint32_t x, const char *matmul);
/* x in fp8 for the matmul that follows, where training.precision says so: that is what is
 * saved, as in Transformer Engine. */
uint32_t tape_quantize(Build *b, Tape *t, uint32_t x);
uint32_t tape_bias(Build *b, Tape *t, uint32_t x, const char *name);
uint32_t tape_expert_bias(Build *b, Tape *t, uint32_t x, const char *name, uint64_t groups);
/* Idle where the software trains without dropout. */
uint32_t tape_dropout(Build *b, Tape *t, uint32_t x);
uint32_t tape_add(Build *b, Tape *t, uint32_t x, uint32_t y);
uint32_t tape_activation(Build *b, Tape *t, uint32_t x, Activation act, bool gated);
void tape_mse(Build *b, Tape *t, uint32_t prediction, uint32_t target);
void tape_cross_entropy(Build *b, Tape *t, uint32_t logits, uint32_t target);
uint32_t tape_batchnorm(Build *b, Tape *t, uint32_t x, const char *name);

/*
 * A gated or plain MLP up to its second matmul, without that one's bias.  groups: as
 * LinearSpec has it.
 */
typedef struct MlpSpec {
    const char *up, *down; /* names of its matmuls */
    uint64_t ffn;
    uint32_t groups;
    bool whole; /* not shared out over tp: each of its ranks has rows of its own */
} MlpSpec;
uint32_t tape_mlp(Build *b, Tape *t, uint32_t x, const MlpSpec *spec);
/* sim/blocks_moe.c: in the place of the MLP; what it returns lies as x does. */
uint32_t tape_moe(Build *b, Tape *t, uint32_t x);

/* sim/blocks_redo.c: plan's redo and parts, of a tape that tp has split. */
void choose_redo(Build *b, BlockPlan *plan);
/* sim/segments.c: layouts, params and segments of types[0..n-1] from their tapes. */
void make_segments(Build *b, ModelPlan *p);

/* sim/strategy/tensor.c: rewrites the tape in place for tp ranks. */
bool tensor_split(Build *b, Tape *t, Err *err);

#endif
