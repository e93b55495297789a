/*
 * graph.h - what is to be done in one optimizer step.  No time in it.
 *
 * The simulator and the executor walk the same Graph.  It is made in three
 * steps (sim/): model -> logical ops, strategy passes, lowering to a software
 * stack; the struct is the same before and after.
 *
 *   rank --group coordinates--> Role (one program, shared by all ranks that run it)
 *   Role      = list of Instances, in the order in which the host launches them
 *   Instance  = (Segment, micro-batch, layer, chunk, frames, edges, first op id)
 *   Segment   = ops stored once: forward of a block, backward of a block, one
 *               bucket's all-reduce, a send ...
 *   Op        = one kernel (one logical op before lowering), on a lane
 *
 * ORDER.  A lane is a CUDA stream: its ops run one after another in launch order
 * (instance order, then op order).  Between lanes only the listed dependencies
 * hold: `deps` inside a segment, `edges` between instances of one role, and the
 * rendezvous of collectives and of send with receive between ranks.
 *
 *   host    |F0|F1|B1|ar|B0|ar|opt|               launches in program order
 *   compute    [F0][F1][B1][B0]........[opt]
 *   dp                     [ar b1][ar b0]         edge B1 -> ar b1, ar b0 -> opt
 *
 * OP IDS.  Op i of an instance has the id instance.first_op + i, unique within
 * its role.
 *
 * LOGICAL OPS.  Before lowering an op is one logical op, and has a number in its
 * segment.  A kernel keeps the number of the one that gave it its kind (Op.logical);
 * where several became one kernel, or several kernels together, it has all of them:
 *
 *     logical    0 matmul   1 bias    2 activation
 *     one stack  matmul {0}   bias {1}  activation {2}
 *     another    matmul+bias {0 1}      activation {2}
 *
 * Numbers mean the same in two graphs where the segments' `numbering` is the same;
 * what instance of it they belong to, its key says (core/graph_spans.h).  So two
 * lowerings of one scenario compare by logical op.
 *
 * TENSORS.  What an op touches is (slot, tensor): the segment gives every slot a
 * Layout (a list of tensors), the instance binds the slot to a Frame of that
 * layout (the activations saved for micro-batch 3 of layer 7, say).  An argument
 * marked BORN is allocated when its op is launched, one marked DIES is freed
 * after it: lifetimes follow program order, not time, as in a caching allocator.
 * Frames of resident tensors live through the whole step.  So memory is a
 * function of the graph alone, and the executor lays out the very same bytes.
 *
 * Names are interned in Graph.names.  A Graph owns all it points to.
 */
#ifndef LOCKSTEP_CORE_GRAPH_H
#define LOCKSTEP_CORE_GRAPH_H

#include "core/dtype.h"
#include "core/err.h"
#include "core/intern.h"
#include "core/op_kind.h"

/* ---- groups of ranks ---- */

enum { GROUP_DIMS_MAX = 4 };

/*
 * The ranks that differ in some coordinates only.  A coordinate of rank r is
 * (r / stride) % extent; members have 0, step, 2 step ... (count values).  step
 * is 1 and count == extent but for groups such as {first, last stage}.
 */
typedef struct GroupDim {
    uint32_t stride, extent, step, count;
} GroupDim;

typedef struct GroupSpec {
    uint32_t name; /* "tp", "dp", "pp", "cp", "dp_shard", "embedding" ... */
    uint32_t dims_n;
    GroupDim dims[GROUP_DIMS_MAX]; /* innermost (fastest) first: gives the order of members */
    /* All-to-alls that send a row once to each node and copy it there to the ranks that want it:
     * the copies that cross between nodes, as a part of those for ranks of other nodes.  0: every
     * copy crosses by itself, as NCCL sends. */
    double sent_once;
} GroupSpec;

uint32_t group_size(const GroupSpec *s);
bool group_has(const GroupSpec *s, uint32_t rank);
uint32_t group_base(const GroupSpec *s,
                    uint32_t rank); /* lowest member; identifies the group */
uint32_t group_index(const GroupSpec *s, uint32_t rank); /* 0 .. size-1; rank is a member */
uint32_t group_member(const GroupSpec *s, uint32_t rank,
                      uint32_t i); /* i-th member of rank's group */

/* ---- ops ---- */

typedef enum Lane {
    LANE_COMPUTE,
    LANE_TP, /* tensor-parallel collectives that do not sit on the compute lane */
    LANE_CP,
    LANE_EP,
    LANE_REDUCE,    /* gradients: all-reduce, reduce-scatter */
    LANE_REPLICATE, /* hsdp: all-reduce of gradient shards over the replicas */
    LANE_GATHER,    /* parameters: all-gather */
    LANE_SEND_ACT,  /* pipeline: activations and gradients, out and in */
    LANE_RECV_ACT,
    LANE_SEND_GRAD,
    LANE_RECV_GRAD,
    LANE_COPY,        /* host to device */
    LANE_SEND_ACT_UP, /* the same four of chunks whose way leads up the stages (zbv) */
    LANE_RECV_ACT_UP,
    LANE_SEND_GRAD_UP,
    LANE_RECV_GRAD_UP,
    LANE_HOST, /* not a stream: the launching thread itself */
    LANE_N
} Lane;

extern const char *const lane_names[LANE_N];

typedef enum OpPhase {
    PHASE_FORWARD,
    PHASE_RECOMPUTE, /* forward again, for the backward pass */
    PHASE_DGRAD,     /* backward: gradient of the input (and of everything but weights) */
    PHASE_WGRAD,     /* backward: gradient of the weight */
    PHASE_UPDATE,    /* optimizer and what surrounds it */
    PHASE_N
} OpPhase;

extern const char *const op_phase_names[PHASE_N];

/* Sub-function of activation ops and matmul epilogues. */
typedef enum OpFn {
    FN_NONE,
    FN_GELU,
    FN_RELU,
    FN_RELU2,
    FN_SILU,
    FN_GATED_GELU, /* act(gate) * up */
    FN_GATED_SILU,
    FN_LAYERNORM,
    FN_RMSNORM,
    FN_ADD_LAYERNORM, /* residual add and norm in one kernel */
    FN_ADD_RMSNORM,
    FN_BIAS, /* epilogues */
    FN_BIAS_GELU,
    FN_BIAS_RELU,
    FN_SGD,
    FN_MOMENTUM,
    FN_ADAM,
    FN_ADAMW,
    FN_N
} OpFn;

extern const char *const op_fn_names[FN_N];

typedef struct AttentionShape {
    uint64_t batch, heads, kv_heads, seq_q, seq_k, head_dim;
    bool causal;
    uint64_t window;    /* 0 = none */
    uint64_t value_dim; /* width of a value's head; 0: head_dim, as that of queries and keys */
} AttentionShape;

static inline uint64_t attention_value_dim(const AttentionShape *a)
{
    return a->value_dim ? a->value_dim : a->head_dim;
}

typedef struct RowsShape {
    uint64_t rows, columns; /* norm, activation, bias, softmax, embedding (columns = width) */
} RowsShape;

/* bytes as nccl-tests counts: the buffer; all_gather, reduce_scatter, all_to_all: of all ranks. */
typedef struct CommShape {
    uint64_t bytes;
    uint32_t group; /* index into Graph.groups */
    uint32_t peer;  /* index within the group, for p2p and rooted collectives */
    uint32_t tag;   /* separates p2p streams between the same two ranks */
    uint32_t of;    /* one of so many steps of a ring, which take the time of one collective of
                     * all their bytes; 0: alone */
} CommShape;

typedef struct Op {
    OpKind kind;
    OpPhase phase;
    OpFn fn;
    DType dtype; /* of the arithmetic; of the data for communication */
    Lane lane;
    bool grouped; /* p2p: posted together with the next op of the segment (one ncclGroup) */
    uint32_t name;
    uint32_t logical; /* logical op within the segment */
    uint32_t part;    /* k-th kernel of it */
    uint32_t logical_first,
        logical_n; /* Graph.logicals: all that it does; n 0: `logical` alone */
    union {
        MatmulShape matmul; /* OP_MATMUL, OP_CONV */
        AttentionShape attention;
        RowsShape rows;
        uint64_t elements; /* add, optimizer, scale, cast, copy, fill, h2d, ... */
        CommShape comm;
    } u;
    double flops;       /* executed */
    double model_flops; /* as the formulas of "model flops" count matmuls and attention */
    uint64_t read_bytes, write_bytes; /* device memory traffic, each operand once */
    uint32_t arg_first, arg_n;        /* Graph.args */
    uint32_t dep_first, dep_n; /* Graph.deps: earlier ops of the same segment, by index in it */
    uint32_t lane_index;       /* n-th op of its segment on its lane; filled by graph_seal */
} Op;

/* What is computed again counts for hardware flops only. */
static inline double op_model_flops(const Op *op)
{
    return op->phase == PHASE_RECOMPUTE ? 0 : op->model_flops;
}

static inline bool op_is_forward(const Op *op)
{
    return op->phase == PHASE_FORWARD || op->phase == PHASE_RECOMPUTE;
}

static inline bool op_is_backward(const Op *op)
{
    return op->phase == PHASE_DGRAD || op->phase == PHASE_WGRAD;
}

/* ---- tensors ---- */

typedef enum TensorClass {
    TENSOR_PARAM,
    TENSOR_GRAD,
    TENSOR_OPTIMIZER,  /* moments and master weights */
    TENSOR_ACTIVATION, /* saved for backward, or passed between blocks */
    TENSOR_BUFFER,     /* temporaries, gathered parameters, buckets, input batches */
    TENSOR_CLASS_N
} TensorClass;

extern const char *const tensor_class_names[TENSOR_CLASS_N];

enum { TENSOR_DIMS_MAX = 4 };

typedef struct Tensor {
    uint32_t name;
    TensorClass class_;
    DType dtype;
    uint64_t bytes;
    uint64_t dims[TENSOR_DIMS_MAX]; /* outermost first, 0 past the last */
} Tensor;

typedef struct Layout {
    uint32_t tensor_first, tensor_n; /* Graph.tensors */
} Layout;

/* What a segment's slots are for.  SLOT_LOCAL frames are private to an instance. */
typedef enum Slot {
    SLOT_LOCAL, /* temporaries: born and dead within the instance; bound to no frame */
    SLOT_PARAM, /* parameters as the kernels read them (gathered under fsdp) */
    SLOT_GRAD,  /* gradients as the kernels write them */
    SLOT_STATE, /* optimizer state */
    SLOT_SHARD, /* this rank's part of the parameters */
    SLOT_GRAD_SHARD,
    SLOT_STASH, /* activations saved from forward to backward of (micro-batch, layer) */
    SLOT_IN,    /* activation that enters the block */
    SLOT_OUT,   /* activation that leaves it */
    SLOT_DOUT,  /* gradient of SLOT_OUT */
    SLOT_DIN,   /* gradient of SLOT_IN */
    SLOT_HELD,  /* what is read by a segment that was parted from the one that made it */
    SLOT_DATA,  /* tokens, targets */
    SLOT_N
} Slot;

typedef enum ArgMode { ARG_READ, ARG_WRITE, ARG_UPDATE } ArgMode; /* update: read and write */

typedef struct Arg {
    uint8_t slot;
    uint8_t mode;
    bool born, dies;
    uint32_t tensor; /* within the slot's layout */
} Arg;

typedef struct Frame {
    uint32_t layout;
    uint32_t layer; /* NONE_U32 where it does not apply */
    bool resident;  /* lives through the whole step */
} Frame;

/* ---- segments, instances, roles ---- */

typedef enum SegmentKind {
    SEGMENT_INPUT, /* copy of the batch to the device */
    SEGMENT_FORWARD,
    SEGMENT_BACKWARD,
    SEGMENT_WEIGHT, /* weight gradients apart from backward (zero-bubble schedules) */
    SEGMENT_SUM,    /* they are added to earlier ones, where backward does not do that */
    SEGMENT_GATHER,
    SEGMENT_REDUCE,
    SEGMENT_SEND,
    SEGMENT_RECV,
    SEGMENT_OPTIMIZER,
    SEGMENT_OTHER,
    SEGMENT_KIND_N
} SegmentKind;

extern const char *const segment_kind_names[SEGMENT_KIND_N];

typedef struct Segment {
    SegmentKind kind;
    uint32_t name;
    uint32_t op_first, op_n; /* Graph.ops */
    uint32_t logical_n;
    uint64_t numbering;   /* equal: logical ops of one number are the same; 0: nobody knows */
    uint32_t host_before; /* launches whose host time passes before its first op's */
    uint32_t lanes;       /* bit per lane that it has ops on, or had when they were added */
    uint32_t layout[SLOT_N]; /* NONE_U32 where the slot is not used */
    /* filled by graph_seal */
    uint32_t slots;                          /* bit per slot that it uses */
    uint32_t lane_n[LANE_N];                 /* ops per lane */
    int64_t memory_delta;                    /* born minus dead over the segment */
    int64_t memory_delta_of[TENSOR_CLASS_N]; /* by class of tensors; sums to memory_delta */
    int64_t memory_peak;                     /* highest point above the start, >= 0 */
} Segment;

/* Op dst_op of this instance waits for op src_op of an earlier instance of the same role. */
typedef struct Edge {
    uint32_t dst_op, src_instance, src_op;
} Edge;

typedef struct Instance {
    uint32_t segment;
    uint32_t micro_batch, layer, chunk; /* NONE_U32 where it does not apply */
    uint32_t edge_first, edge_n;        /* Role.edges, ascending dst_op */
    uint32_t first_op;                  /* filled by graph_seal */
    uint32_t frame[SLOT_N];             /* Role.frames; NONE_U32 */
} Instance;

typedef struct Role {
    uint32_t name;  /* "stage 3" */
    uint32_t stage; /* pipeline stage, 0 without a pipeline */
    uint32_t instances_n, instances_cap;
    Instance *instances;
    uint32_t edges_n, edges_cap;
    Edge *edges;
    uint32_t frames_n, frames_cap;
    Frame *frames;
    uint64_t ops_n; /* filled by graph_seal: ops of all instances */
} Role;

typedef struct Graph {
    Interner names;
    uint32_t world_n; /* ranks */

    /* Role of rank r = role_of[(r / role_stride) % role_extent]. */
    uint32_t role_stride, role_extent;
    uint32_t *role_of;
    uint32_t roles_n, roles_cap;
    Role *roles;

    /* Ranks whose coordinate in this dimension differs run the same program on like data
     * (data parallelism): lets the simulator look at a few of them.  extent 1: none. */
    GroupDim replica;

    /* One host thread drives all ranks of a group (DataParallel); NONE_U32: one per rank.
     * Then the host launches instance 0 of every member in member order, then instance 1 ... */
    uint32_t host_group;

    uint32_t groups_n, groups_cap;
    GroupSpec *groups;

    uint32_t segments_n, segments_cap, ops_n, ops_cap, args_n, args_cap, deps_n, deps_cap;
    Segment *segments;
    Op *ops;
    Arg *args;
    uint32_t *deps;
    uint32_t logicals_n, logicals_cap;
    uint32_t *logicals; /* of ops that are several logical ones */

    uint32_t layouts_n, layouts_cap, tensors_n, tensors_cap;
    Layout *layouts;
    Tensor *tensors;

    uint64_t samples, tokens; /* of one step, over all ranks */
    /* Nothing makes ranks wait for each other between steps: each begins the next when it is done
     * with this one, and a step takes as long as it is until they are so again. */
    bool open_ended;
    bool sealed;
} Graph;

/*
 * Building.  Everything is appended; indices are returned.  Ops, args and deps
 * belong to the newest segment, op and args to the newest op:
 *
 *     uint32_t s = graph_segment(g, SEGMENT_FORWARD, "block forward");
 *     g->segments[s].layout[SLOT_IN] = boundary;
 *     uint32_t norm = graph_op(g, (Op){ .kind = OP_NORM, ... });
 *     graph_arg(g, SLOT_IN, 0, ARG_READ, false, false);
 *     uint32_t qkv = graph_op(g, ...);      same lane: order is implied
 *     uint32_t ar = graph_op(g, (Op){ .kind = OP_ALL_REDUCE, .lane = LANE_TP, ... });
 *     graph_dep(g, qkv);                    ar waits for qkv
 *
 * graph_op returns the index within the segment; logical and part are as given.
 */
uint32_t graph_segment(Graph *g, SegmentKind kind, const char *name);
uint32_t graph_segment_named(Graph *g, SegmentKind kind, uint32_t name); /* Graph.names */
/* Without ops, but with kind, name, layouts and numbering of another, which need not be g's. */
uint32_t graph_segment_like(Graph *g, const Segment *other);
uint32_t graph_op(Graph *g, Op op); /* all its ranges are reset to empty */
void graph_arg(Graph *g, Slot slot, uint32_t tensor, ArgMode mode, bool born, bool dies);
void graph_args(Graph *g, const Arg *args, uint32_t n); /* n at once; args are not g's */
void graph_dep(Graph *g, uint32_t earlier_op);
void graph_logical(Graph *g, uint32_t logical); /* one of several that the op does */
/* Room for so many more segments, ops and args, which may come or not. */
void graph_reserve(Graph *g, uint32_t segments_n, uint32_t ops_n, uint32_t args_n);

uint32_t graph_group(Graph *g, const char *name, const GroupDim *dims, uint32_t dims_n);
uint32_t graph_layout(Graph *g); /* then graph_tensor appends to the newest layout */
uint32_t graph_tensor(Graph *g, Tensor tensor); /* index within the layout */

uint32_t graph_role(Graph *g, const char *name, uint32_t stage);
/* Room for so many more instances, edges and frames, which may come or not. */
void role_reserve(Role *role, uint32_t instances_n, uint32_t edges_n, uint32_t frames_n);
uint32_t role_frame(Role *role, Frame frame);
/* All frames NONE_U32, layer/chunk/micro_batch as given; edges are added to the newest instance. */
uint32_t role_instance(Role *role, uint32_t segment, uint32_t micro_batch, uint32_t layer,
                       uint32_t chunk);
/* The same with the frames of another instance too, which need not be of this role. */
uint32_t role_instance_like(Role *role, const Instance *other);
void role_edge(Role *role, uint32_t dst_op, uint32_t src_instance, uint32_t src_op);

/*
 * Checks the whole graph (indices, edges that point backwards only, lanes,
 * groups within the world, host waits before all else of their segment) and
 * fills what is marked so.
 * A graph that does not seal is a bug of a pass: ASSERT.
 */
void graph_seal(Graph *g);
void graph_free(Graph *g);

/* ---- looking ---- */

const Role *graph_role_of(const Graph *g, uint32_t rank);
/* One more than the highest of its instances; 0: none is of a micro-batch. */
uint32_t role_micro_batches(const Role *role);
static inline const Op *graph_ops(const Graph *g, const Segment *s)
{
    return g->ops + s->op_first;
}
const Tensor *graph_arg_tensor(const Graph *g, const Segment *s, const Arg *a);

typedef struct OpRef {
    uint32_t instance, op; /* op: index within the segment */
    const Instance *i;
    const Op *o;
} OpRef;
OpRef graph_find_op(const Graph *g, const Role *role, uint32_t op_id); /* binary search */

/* Writes *.graph.json for people and tests: groups, segments with ops, roles with instances. */
bool graph_dump(const Graph *g, const char *path, Err *err);

#endif
