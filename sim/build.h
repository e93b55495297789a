/*
 * build.h - from a scenario to a graph: model, strategy passes, lowering.
 *
 *   Scenario --blocks--> logical segments     forward and backward of embedding, block, head
 *            --tensor--> split over tp        sim/strategy/tensor.c, inside the segments
 *            --pipeline--> roles, instances   sim/strategy/pipeline.c: stages, micro-batches
 *            --ddp | fsdp ...--> collectives  sim/strategy/ddp.c, zero1.c, fsdp.c ...: buckets,
 *                                             gathers, update
 *            --lower--> kernels               sim/lower.c: 1 logical op -> 0..n kernels
 *
 * A pass is a function on Build; each lives in one file whose header draws it.
 * Passes compose because each reads only what the one before left in Build and
 * Graph: pipeline orders blocks and knows no gradients, ddp looks for the last
 * backward instance of each block and knows no stages.
 */
#ifndef LOCKSTEP_SIM_BUILD_H
#define LOCKSTEP_SIM_BUILD_H

#include "core/graph.h"
#include "sim/formats.h"
#include "sim/strategy/schedule.h"

typedef enum BlockKind { BLOCK_EMBEDDING, BLOCK_LAYER, BLOCK_HEAD } BlockKind;

/* A parameter of a block, as this rank holds it (after tensor parallelism). */
typedef struct Param {
    uint32_t tensor; /* in the block's SLOT_PARAM, SLOT_GRAD layouts (same index) */
    uint64_t elements;
    bool tp_partial; /* every tp rank holds it whole and has only part of its gradient (norms
                            under sequence parallelism): all-reduced over tp before use */
    bool shared;     /* tied embedding: also held by the other end of the pipeline */
    bool expert;     /* of experts_apart: summed over GROUP_EDP, not GROUP_DP */
    bool quantized;  /* matmuls read it in fp8 */
} Param;

/* How backward writes weight gradients. */
typedef enum GradMode {
    GRAD_BORN,  /* allocates and writes them */
    GRAD_WRITE, /* memory is there, overwritten (first micro-batch) */
    GRAD_ADD,   /* added to (later micro-batches, and the first where all are zeroed before) */
    GRAD_MODE_N
} GradMode;

/* A pass of a block cut behind its all-to-alls of experts (segments.c), for PAIRS of schedule.h;
 * backward with its weight gradients. */
enum { CUT_PARTS_MAX = 3 };
typedef struct CutPass {
    uint32_t n; /* 0: it is not cut */
    uint32_t segment[CUT_PARTS_MAX];
    /* Of a part but the first: its op that waits for the last op of the part before. */
    uint32_t resumes[CUT_PARTS_MAX];
    uint32_t held_layout; /* from one part to another; NONE_U32 */
} CutPass;

typedef enum Variant { VARIANT_PLAIN, VARIANT_RECOMPUTE, VARIANT_N } Variant;

/* One of the blocks in model order: embedding, layers 0..n-1, head.  MLP and convnet: layers only,
 * the last one ending in the loss. */
typedef struct Block {
    BlockKind kind;
    uint32_t layer; /* NONE_U32 for embedding and head */
    uint32_t type;  /* blocks of one type share segments, layouts and params */
    /* Block whose PARAM, GRAD and STATE frames (Home) it uses: its own index, but a tied head
     * on the embedding's stage (ends_meet) has no params: block 0 lists them all, and holds the
     * frames of both (blocks.h). */
    uint32_t frame_of;
} Block;

typedef struct BlockType {
    bool has_loss; /* backward starts here: no SLOT_DOUT */
    uint32_t params_n;
    Param *params;     /* in definition order, as module.parameters() gives them */
    uint64_t elements; /* sum over params */
    uint32_t param_layout, grad_layout, state_layout;
    uint32_t copy_layout; /* of weights in fp8 that lie beside the parameters; NONE_U32 */
    uint32_t half_layout; /* of gradients in 16 bits beside them (keeps_half_grads); NONE_U32 */
    uint32_t in_layout, out_layout; /* SLOT_IN, DIN; SLOT_OUT, DOUT.  NONE_U32 at the ends */
    uint32_t forward[VARIANT_N];    /* segments; the same in both where equal */
    uint32_t backward[VARIANT_N][GRAD_MODE_N];
    /* Weight gradients apart from backward, where the schedule wants that; NONE_U32 where all
     * are made in backward. */
    uint32_t weight[VARIANT_N][GRAD_MODE_N];
    uint32_t *ready_op
        [VARIANT_N]
        [GRAD_MODE_N]; /* by param: op of the weight segment, else of that backward segment,
                          after which its gradient is final */
    /* Where adds_grads_last: a backward that leaves gradients of weights in SLOT_HELD, and what
     * adds them (and has its ready ops); else NONE_U32. */
    uint32_t made[VARIANT_N], sum[VARIANT_N];
    uint32_t *sum_ready_op[VARIANT_N];
    uint32_t stash_layout[VARIANT_N];
    uint32_t held_layout[VARIANT_N]; /* from backward to weight; NONE_U32 */
    CutPass forward_parts[VARIANT_N], backward_parts[VARIANT_N][GRAD_MODE_N];
} BlockType;

typedef enum GroupKind {
    GROUP_TP,
    GROUP_KV, /* ranks of tp that hold the same key and value head, where heads are fewer */
    GROUP_CP,
    GROUP_PP,
    GROUP_DP,       /* dp x cp: gradients are reduced over it */
    GROUP_EP,       /* ranks of dp x cp (x tp, with whole experts) that share out the experts:
                           all-to-alls */
    GROUP_EDP,      /* those that hold the same experts: their gradients */
    GROUP_DP_SHARD, /* hsdp: parameters are sharded over it */
    GROUP_DP_REPLICATE, /* hsdp: shards are replicated over it */
    GROUP_EMBEDDING,    /* first and last stage, for a table that both hold */
    GROUP_KIND_N
} GroupKind;

/* Where pipeline put what a block owns: frames of Graph.roles[role]; NONE_U32 where it owns none.
 * Under fsdp they hold this rank's shards. */
typedef struct Home {
    uint32_t role, param, grad, state;
} Home;

typedef struct Build {
    const Scenario *s;
    const Software *sw;
    const ActionCosts *costs; /* by stage; where schedule_is_searched */
    Graph *g;
    Arena arena;

    /* sim/strategy/world.c */
    uint32_t stride[DIM_N];       /* rank distance of neighbours in a dimension */
    uint32_t group[GROUP_KIND_N]; /* Graph.groups; NONE_U32 where of size 1 */

    /* sim/blocks.c and friends */
    uint32_t blocks_n, types_n;
    Block *blocks;
    BlockType *types;
    uint32_t boundary_layout; /* SLOT_IN, SLOT_OUT, SLOT_DIN, SLOT_DOUT between layers */
    uint64_t boundary_bytes;  /* of one micro-batch on one rank; both are those of block 0's
                                 output: convnets and MLPs must look at BlockType.out_layout */
    /* Model flops count half of causal attention; default: all of it. */
    bool model_flops_causal;
    uint64_t rows; /* tokens (or samples) of one micro-batch on one rank */

    /* sim/strategy/pipeline.c */
    /* By block: chunk = virtual stage in pipeline order, 0 .. pp * vs - 1. */
    uint32_t *chunk_of;
    Variant *variant; /* by block: recomputed or not */
    Home *home;       /* by block */
} Build;

/* Are the first and the last block on one stage? */
static inline bool ends_meet(const Build *b)
{
    return b->s->parallel.pp == 1 || schedule_is_vee(b->s->parallel.schedule);
}

bool overlaps(const Build *b, Dim d); /* parallel.overlap, else the software's habit */
/* Is overlap asked for, so that it is done also by a stack that has no such habit? */
bool overlap_is_asked(const Build *b, Dim d);
bool hides_input_gradients(const Build *b); /* tp's collectives beside weight gradients */
bool rings_keys(const Build *b);            /* cp's keys and values go round a ring */
/* Ranks of tp that share out each expert: parallel.etp, else the software's habit, but 1 where ep
 * is of all ranks of tp x dp x cp. */
uint32_t expert_tp(const Build *b);
/* Are experts not held by all that hold the rest?  Then their gradients meet in GROUP_EDP. */
bool experts_apart(const Build *b);
/* Do a forward and the backward after it hide each other's all-to-alls (schedule.h, PAIRS)?  Not
 * under fsdp, whose units are gathered and given up around whole passes, nor under zero2, where
 * gradients of each whole backward are. */
bool hides_in_pairs(const Build *b);
bool sends_once(const Build *b); /* parallel.dispatcher is DeepEP, or the software's is */
bool reshards(const Build *b); /* parallel.reshard_after_forward, else the habit in pipelines */
/* Are gradients added to those in f32 behind a whole backward (Software.grads_added_last)?  Not
 * where schedules put weight gradients elsewhere. */
bool adds_grads_last(const Build *b);
/* Does each rank of tp send a part of what a stage hands on, where it divides?  Of b only scenario
 * and software are looked at. */
bool sends_parts(const Build *b);
bool copies_buckets(const Build *b);  /* Software.bucket_copies, but where that is so */
bool zero_sums_whole(const Build *b); /* zero1 whose software all-reduces gradients */
/* The group over which parameters, gradients or state are shared out: GROUP_DP, or hsdp's
 * GROUP_DP_SHARD. */
uint32_t share_group(const Build *b);
Formats build_formats(const Build *b);

/* The whole way.  g is sealed; the caller frees it also after failure.  Where the order of a
 * schedule is searched for, what its actions take is looked up in a graph of few micro-batches. */
bool build_graph(Graph *g, const Scenario *s, const Software *sw, Err *err);

/* The steps.  Order as in the drawing. */
bool build_world(Build *b, Err *err); /* sim/strategy/world.c: coordinates and groups */
bool build_blocks(
    Build *b,
    Err *err); /* sim/blocks.c: calls blocks_transformer / _mlp / _convnet, then tensor */
/* Layers of chunk c where the scenario does not say: as many blocks each where embedding and head
 * (ends 2; 0: there are none) divide evenly with them, else the first have one more. */
uint32_t even_share(uint32_t layers, uint32_t ends, uint32_t chunks, uint32_t c);
bool pass_pipeline(Build *b, Err *err); /* roles with forward, backward, send, recv instances */
bool pass_single(Build *b, Err *err);   /* optimizer only */
bool pass_dp(Build *b, Err *err);
bool pass_ddp(Build *b, Err *err);
bool pass_zero1(Build *b, Err *err);
bool pass_zero2(Build *b, Err *err);
bool pass_fsdp(Build *b, Err *err);
bool pass_hsdp(Build *b, Err *err);
bool pass_model_parallel(Build *b, Err *err);
bool lower(Build *b, Err *err); /* rewrites b->g in place */

#endif
