/*
 * machine.h - on what: GPUs, links, topology.  Every number with its source.
 *
 * A cluster is nodes_n nodes in a row.  Node i has gpus_n GPUs of one type; the
 * global rank of GPU g of node i is (GPUs of all nodes before i) + g.  Inside a
 * node GPUs talk over "intra", between nodes over NICs ("inter"):
 *
 *      node 0                          node 1
 *     [gpu 0]--port--+                 +--port--[gpu 8]
 *     [gpu 1]--port--+ intra     intra +--port--[gpu 9]
 *        ...         |                 |          ...
 *        nic 0..k ===+=== fabric ======+=== nic 0..k
 *
 * Bandwidths are in bytes/ns (= GB/s), one direction, per GPU (intra) or per NIC
 * (inter), as the data sheet gives them; `efficiency` is the fraction of it that
 * collectives reach, fitted on measurements named in the file ("provenance").
 *
 * A ring all-reduce of S bytes over n ranks then takes, in protocol p,
 *
 *     base[p] + intra steps * intra.hop[p] + inter steps * inter.hop[p]
 *             + 2 (n - 1) / n * S / (bytes_per_ns * efficiency * factor[p])
 *
 * Where a cluster says nothing of latency and efficiency, machine_links.c has one
 * default for each kind of link and generation of GPU.
 *
 * The file formats stand in scenarios/README.md.  A Machine owns its arena;
 * machine_free gives everything back.
 */
#ifndef LOCKSTEP_CORE_MACHINE_H
#define LOCKSTEP_CORE_MACHINE_H

#include "core/arena.h"
#include "core/dtype.h"
#include "core/err.h"
#include "core/json.h"
#include "core/op_kind.h"

/* ---- GPU ---- */

/* How the operands of a measured matmul lie in memory, in BLAS's words. */
typedef enum GemmLayout {
    GEMM_ANY,           /* not said */
    GEMM_TN,            /* forward: the weight is stored [n, k] */
    GEMM_NN,            /* gradient of the input */
    GEMM_NT,            /* gradient of the weight: both read along their long side */
    GEMM_NT_ACCUMULATE, /* the same, added to an f32 gradient */
    GEMM_LAYOUT_N
} GemmLayout;

extern const char *const gemm_layout_names[GEMM_LAYOUT_N];

GemmLayout gemm_layout_of(const MatmulShape *s);
/* Is A stored [k, m]? */
static inline bool gemm_turns_a(GemmLayout layout)
{
    return layout == GEMM_NT || layout == GEMM_NT_ACCUMULATE;
}
/* Rows of all three matrices begin at multiples of so many bytes, as they lie in memory; 16 where
 * it is more.  Below that other kernels run, several times slower: on an H200 8192 x 50257 x 768 in
 * bf16 takes 6.7 ms, 8192 x 50304 x 768 0.89 ms (tests/gpu/run.sh, 2026-11-26). */
enum { GEMM_ALIGNED = 16 };
uint32_t gemm_alignment(GemmLayout layout, DType dtype, uint64_t m, uint64_t n, uint64_t k);

typedef struct GemmRow {
    uint64_t m, n, k; /* C[m,n] = A[m,k] B[k,n] */
    DType dtype;
    GemmLayout layout;
    double time_ns;
    double log_m; /* base 2 */
    bool aligned; /* gemm_alignment is GEMM_ALIGNED */
} GemmRow;

/* Rows of one (n, k); f16 and bf16 run at one speed and are one class. */
typedef struct GemmGroup {
    uint64_t n, k;
    DType dtype; /* DTYPE_F16 for both halves */
    uint32_t first, count;
    double log_n, log_k; /* base 2 */
} GemmGroup;

/* Classes of kernels that are limited by memory, each with its own measured rows. */
typedef enum MemoryKernel {
    MEMORY_NORM,
    MEMORY_NORM_BWD,
    MEMORY_ACTIVATION,
    MEMORY_ADD,
    MEMORY_SOFTMAX,
    MEMORY_COPY,
    MEMORY_OPTIMIZER,
    MEMORY_EMBEDDING,
    MEMORY_OTHER,
    MEMORY_KERNEL_N
} MemoryKernel;

extern const char *const memory_kernel_names[MEMORY_KERNEL_N];

typedef struct MemoryRow {
    MemoryKernel kernel;
    uint64_t bytes; /* read + written, ideal */
    double time_ns;
} MemoryRow;

/* Whose fused attention: what a stack calls, and what a row is of. */
typedef enum AttentionKernel {
    ATTENTION_NEWEST, /* FlashAttention-2 up to Ampere, cuDNN or FlashAttention-3 from Hopper on */
    ATTENTION_FLASH2,   /* FlashAttention-2 everywhere */
    ATTENTION_LOCKSTEP, /* exec/'s own */
    ATTENTION_FLASH1,   /* the first FlashAttention: PyTorch 2.0 and 2.1 */
    ATTENTION_TRITON,   /* the same, written in Triton */
    ATTENTION_KERNEL_N
} AttentionKernel;
enum { ATTENTION_MEASURED_N = ATTENTION_LOCKSTEP + 1 }; /* rows are of the first three */
extern const char *const attention_kernel_names[ATTENTION_KERNEL_N];

typedef struct AttentionRow {
    bool backward, causal;
    AttentionKernel kernel;
    uint64_t batch, heads, kv_heads, seq, head_dim;
    double time_ns;
} AttentionRow;

/* What its kernel is to compute: two products of so many pairs by head_dim forward, five backward;
 * causal, a query meets itself and those before it. */
static inline double attention_row_flops(const AttentionRow *r)
{
    double seq = (double)r->seq, pairs = r->causal ? seq * (seq + 1) / 2 : seq * seq;
    return (r->backward ? 10 : 4) * (double)r->batch * (double)r->heads * (double)r->head_dim *
           pairs;
}

/* What NCCL's tables are indexed by, and whose neighbour stands in where nobody measured. */
typedef enum GpuGeneration {
    GPU_OTHER,
    GPU_VOLTA,
    GPU_TURING,
    GPU_AMPERE,
    GPU_ADA,
    GPU_HOPPER,
    GPU_BLACKWELL,
    GPU_CDNA3,
    GPU_GENERATION_N
} GpuGeneration;

typedef enum GpuRows { GPU_ROWS_GEMM, GPU_ROWS_MEMORY, GPU_ROWS_ATTENTION, GPU_ROWS_N } GpuRows;

typedef struct Gpu {
    const char *name;
    GpuGeneration generation;
    double peak_flops_per_ns[DTYPE_N]; /* dense; 0 = the type is not supported */
    uint64_t memory_bytes;             /* as the driver reports it to programs */
    double memory_bytes_per_ns;
    double host_bytes_per_ns; /* copies from pinned host memory */
    uint32_t sms;
    double tdp_w;

    /* Cost model, see sim/cost.h for how each enters. */
    int64_t launch_ns;       /* host time to launch one kernel */
    int64_t kernel_floor_ns; /* no kernel is shorter */
    /* Matmuls, convolutions and attention of a step take this times what they take alone: power,
     * and clocks that fall with it; 1 where nothing is known. */
    double sustained_scale;
    /* GPUs of a kind differ in that by so much (standard deviation over mean), and a step waits for
     * the slowest of them; 0 where nothing is known. */
    double sustained_spread;
    const char *sustained_from; /* stack whose measured steps show it; "" where none does */
    double matmul_efficiency[DTYPE_N]; /* fraction of peak that a full wave of tiles reaches */
    double matmul_fill_ns;             /* before the first and after the last tile's k loop */
    double matmul_tile_loss;           /* columns a tile edge costs: small tiles are slower */
    double matmul_wave_rounding; /* 0: a last partial wave costs its part, 1: a whole wave */
    double matmul_unaligned;     /* of 16-bit matrices whose rows begin at multiples of 2 bytes:
                                    fraction of the rate of others; see sim/cost_matmul.c */
    double attention_efficiency; /* fraction of peak that large fused attention reaches */
    double attention_bwd_efficiency;
    double memory_efficiency;  /* fraction of memory bandwidth that streams reach */
    bool quantise;             /* tiles and waves; false on ideal */
    double comm_sms;           /* SMs that a running collective kernel takes; 0 = none */
    double comm_memory_factor; /* memory bytes moved per byte sent by a collective */
    /* What matmuls take beside one, of what they would on the SMs that it leaves: Hopper's work in
     * clusters of several SMs, and one that is taken keeps the others of its cluster idle. */
    double comm_matmul_factor;
    double comm_bytes_per_ns; /* what a collective sends per GPU; filled by machine_read */
    double comm_inside_bytes_per_ns; /* the same where all ranks are in one node */

    uint32_t gemm_n, gemm_groups_n, memory_n, attention_n;
    GemmRow *gemm; /* sorted by (class of dtype, n, k, m, layout) */
    GemmGroup *gemm_groups;
    MemoryRow *memory; /* sorted by (kernel, bytes) */
    AttentionRow *attention;
    /* By table: the GPU that its rows are of, where keys were changed since without it (a what-if
     * of --set, a layer over a base); NULL: this one.  Rows say by how much kernels of that GPU
     * are slower or faster than its model, and this one's are by as much.  Of it only what the
     * models of kernels read is known. */
    const struct Gpu *measured[GPU_ROWS_N];
    const char *provenance; /* one line: where the numbers come from */
} Gpu;

/* The GPU that rows of a table are of. */
static inline const Gpu *gpu_of_rows(const Gpu *g, GpuRows table)
{
    return g->measured[table] ? g->measured[table] : g;
}

/* Peak of the type, or of the one that stands in where the GPU does not have it (bf16: f32). */
double gpu_peak_flops_per_ns(const Gpu *g, DType dtype);

/* ---- links ---- */

typedef enum IntraKind {
    INTRA_NONE, /* one GPU per node */
    INTRA_NVSWITCH,
    INTRA_NVLINK_MESH,
    INTRA_PCIE,
    INTRA_RING,
    INTRA_SHARED_MEMORY,
    INTRA_KIND_N
} IntraKind;

typedef enum InterKind {
    INTER_NONE, /* one node */
    INTER_FAT_TREE,
    INTER_RAIL,
    INTER_TORUS,
    INTER_DRAGONFLY, /* a leaf is a group, its oversubscription its NICs over its global links */
    INTER_ETHERNET,
    INTER_KIND_N
} InterKind;

extern const char *const intra_kind_names[INTRA_KIND_N];
extern const char *const inter_kind_names[INTER_KIND_N];

/* NCCL's three protocols; index with PROTOCOL_*. */
typedef enum Protocol { PROTOCOL_LL, PROTOCOL_LL128, PROTOCOL_SIMPLE, PROTOCOL_N } Protocol;
extern const char *const protocol_names[PROTOCOL_N]; /* "LL", "LL128", "Simple" */

/* A number that depends on how many ranks take part: straight lines between points. */
enum { RANK_CURVE_MAX = 16 };
typedef struct RankCurve {
    uint32_t n;                     /* >= 1 */
    uint32_t ranks[RANK_CURVE_MAX]; /* ascending */
    double value[RANK_CURVE_MAX];
} RankCurve;

double rank_curve_at(const RankCurve *c, uint32_t ranks); /* ends are carried on */

/* Hopper or Blackwell. */
bool gpu_is_since_hopper(const Gpu *gpu);

/* Bus bandwidth that protocol LL does not exceed (NCCL's llMaxBw). */
double ll_max_bytes_per_ns(const Gpu *gpu, uint32_t nodes_n);

typedef struct IntraNode {
    IntraKind kind;
    double bytes_per_ns;             /* per GPU, one direction */
    int64_t hop_ns[PROTOCOL_N];      /* one step of a ring */
    int64_t tree_hop_ns[PROTOCOL_N]; /* one level of a tree */
    /* Of bytes_per_ns, reached by large collectives among so many ranks. */
    RankCurve efficiency;
    bool nvls; /* in-switch reduction (NVLink SHARP) */
    /* Of bytes_per_ns: buffer bytes per time of a large NVLS all-reduce of so many of a node. */
    RankCurve nvls_efficiency;
    int64_t nvls_ns; /* latency of an NVLS collective */
    /* A send moves over channels; 0 of them: it is not limited. */
    uint32_t channels; /* that all sends of a GPU share */
    double channel_bytes_per_ns;
} IntraNode;

/* Buffer bytes per time of a large NVLS all-reduce of so many ranks of a node. */
static inline double nvls_bytes_per_ns(const IntraNode *in, uint32_t ranks)
{
    return rank_curve_at(&in->nvls_efficiency, ranks) * in->bytes_per_ns;
}

typedef struct InterNode {
    InterKind kind;
    uint32_t nics_per_node;
    double bytes_per_ns; /* per NIC, one direction */
    int64_t hop_ns[PROTOCOL_N];
    int64_t tree_hop_ns[PROTOCOL_N];
    int64_t nvls_tree_hop_ns; /* one level of a tree of nodes that reduce in their switches */
    double efficiency;
    double p2p_efficiency; /* the same of sends and all-to-alls; 0: as efficiency */
    /* Of a channel: a send has two, one among more than 8 nodes; 0: no limit. */
    double channel_bytes_per_ns;
    RankCurve message_ns;    /* of an all-to-all: for each peer on another node; n 0: none */
    double oversubscription; /* >= 1; leaf uplinks carry 1/oversubscription of the NICs below */
    uint32_t nodes_per_leaf; /* 0 = all on one leaf */
} InterNode;

typedef struct NodeType {
    uint32_t count, gpus_n;
    const Gpu *gpu;
    IntraNode intra;
    uint32_t first_node, first_rank; /* of the first of the count nodes */
} NodeType;

typedef struct Straggler {
    uint32_t rank;
    double compute; /* speed relative to the others; 0.8 = 20 % slower */
} Straggler;

typedef struct SlowLink {
    uint32_t rank_a, rank_b; /* traffic that goes directly between these two; rank_a < rank_b */
    double bytes_per_ns;
} SlowLink;

/*
 * What a collective (OP_SEND: a send and its receive) of so many ranks was measured to take:
 *
 *     us  |            / latency + bytes / bytes_per_ns, through the last point
 *         |       .--*
 *         |   *--*        points, ascending: straight in logarithms between them
 *         |--/
 *         +---------------- bytes
 *
 * Without points the line itself.  bytes as nccl-tests counts them, and CommShape.
 */
typedef struct MeasuredPoint {
    uint64_t bytes;
    double ns;
} MeasuredPoint;

typedef struct MeasuredCollective {
    OpKind op;
    uint32_t ranks, nodes;
    double latency_ns, bytes_per_ns;
    uint32_t points_n;
    MeasuredPoint *points;
} MeasuredCollective;

/* What "op" says of a kind: its name, and "send_recv" of OP_SEND. */
const char *measured_op_word(OpKind op);
/* OP_KIND_N: nothing that is measured is called so. */
OpKind measured_op_of(const char *word);

/* Time of one entry; latency_ns is the part of it before data move. */
double measured_entry_ns(const MeasuredCollective *e, uint64_t bytes);

typedef struct Machine {
    Arena arena;
    const char *name;
    uint32_t nodes_n, gpus_n; /* gpus_n over all nodes */
    uint32_t types_n;
    NodeType *types;        /* in node order; count nodes each */
    uint32_t gpus_per_host; /* where a node is several hosts (an NVLink domain); 0: it is one */
    InterNode inter;
    /* One channel, latency and bandwidth, no base cost, PROTOCOL_SIMPLE: closed forms hold. */
    bool ideal_collectives;
    int64_t collective_base_ns[PROTOCOL_N]; /* launch and set-up of a collective, once */
    int64_t tree_base_ns[PROTOCOL_N];       /* the same where the algorithm is a tree */
    int64_t p2p_base_ns[PROTOCOL_N];        /* the same of a send and its receive */
    uint32_t measured_n;
    MeasuredCollective *measured;  /* ascending (op, nodes, ranks) */
    double price_usd_per_gpu_hour; /* 0 = unknown */
    double gpu_mtbf_hours;         /* 0 = unknown */
    double jitter;                 /* standard deviation of log kernel time; 0 = none */
    uint32_t stragglers_n, slow_links_n;
    Straggler *stragglers; /* ascending ranks */
    SlowLink *slow_links;
    const char *provenance; /* one line */
} Machine;

enum { MACHINE_NODES_MAX = 1 << 20, MACHINE_GPUS_MAX = 1 << 24 };

/*
 * Reads a cluster: node is a built-in name ("dgx-h100"), a path relative to the
 * file the node stands in, or an object; {"base": NAME, ...} takes everything
 * else from NAME.  share_dir holds clusters/ and gpus/.  On failure *m is empty.
 */
bool machine_read(Machine *m, JsonNode node, const char *share_dir, Err *err);
void machine_free(Machine *m);

/* Reads one GPU the same way; it lives in arena.  NULL and err on failure. */
const Gpu *gpu_read(Arena *arena, JsonNode node, const char *share_dir, Err *err);

/* Whether two names, as a file or a driver has them, are known to be of different GPUs: both are
 * built in, and not as one. */
bool gpu_names_differ(const char *a, const char *b, const char *share_dir);

/* ---- where a rank is ---- */

typedef struct Place {
    uint32_t node;
    uint32_t local; /* GPU within the node */
    const NodeType *type;
} Place;

/*
 * NAN where nothing was measured; *latency_ns: the part before data move.  An entry of just so
 * many ranks and nodes counts; else two on one node, or two with as many ranks on a node, between
 * which ranks lies: straight in logarithms.  A send between two GPUs of a node (nodes 1) or of
 * two is what the entry of the fewest ranks says.
 */
double machine_measured_ns(const Machine *m, OpKind op, uint32_t ranks, uint32_t nodes,
                           uint64_t bytes, double *latency_ns);
/* The size nearest to bytes that such entries measured: bytes itself between their sizes, and where
 * they have a line alone. */
uint64_t machine_measured_size(const Machine *m, OpKind op, uint32_t ranks, uint32_t nodes,
                               uint64_t bytes);

/* Nodes that so many hosts are, of a machine whose nodes are alike. */
uint32_t machine_nodes_of_hosts(const Machine *m, uint32_t hosts_n);
Place machine_place(const Machine *m, uint32_t rank);  /* rank < gpus_n */
double machine_speed(const Machine *m, uint32_t rank); /* 1, or the straggler's figure */

/* Are there leaves with fewer uplinks than NICs below them?  No other leaf is ever in the way. */
static inline bool machine_has_leaves(const Machine *m)
{
    return m->inter.kind != INTER_NONE && m->inter.nodes_per_leaf > 0 &&
           m->inter.oversubscription > 1;
}

/* Do two nodes reach each other without the uplinks of such a leaf? */
static inline bool machine_same_leaf(const Machine *m, uint32_t node_a, uint32_t node_b)
{
    return !machine_has_leaves(m) ||
           node_a / m->inter.nodes_per_leaf == node_b / m->inter.nodes_per_leaf;
}

/* Of slow_links the slowest between two ranks, in either order; NONE_U32: none is listed. */
uint32_t machine_slow_link(const Machine *m, uint32_t a, uint32_t b);

#endif
