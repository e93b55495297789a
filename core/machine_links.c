/*
 * machine_links.c - what a link costs where the cluster file does not say.
 *
 * Latencies are NCCL's own (src/graph/tuning.cc of 2.28.9: baseLat and hwLat): they
 * choose algorithms there, but they are also good times of small messages.  What
 * NCCL's model leaves out of larger ones is fitted on data/collectives by
 * `tests/parity/make_gpu_tables.py --links`, which prints how well the sum of it all
 * predicts those measurements:
 *
 *   efficiency    bus bandwidth of messages of at least 512 MB over the data sheet's
 *   base          LL128 and Simple from 1 MB up: 40 us on A100, Simple 25 us on H100
 *   net hop       LL 6 us, LL128 8.5 us, Simple 6 us in rings (NCCL says 2.7, 4 and 14; its
 *                 trees' 5, 8.5 and 14 hold)
 *   net wait      none, although some clusters have it: steps of rings of 80 H100 on 10 nodes
 *                 take 4.5 us more than their hops (32 to 256 MiB), of 512 to 2160 A100 on
 *                 Slingshot 5.8; of 20, 32 and 40 none.  Trainings on up to 2,048 H100 of DGX
 *                 (dgxc rows of published.jsonl, dp 1024) would be 12 % too slow with it
 *   Blackwell     base 23.6 us, hop 7.6 us: means of SimuMax's fits of all_reduce, all_gather and
 *                 reduce_scatter (fixed_latency_us and latency_us of alpha-beta-fits.jsonl),
 *                 which LL128 is not known to be better than
 *   NVLS          75 us (NCCL: 25), 0.61 of the data sheet's bandwidth
 *
 * Sends and all-to-alls, which are grouped sends, have limits of their own (sim/network.h),
 * fitted on the same data:
 *
 *   channels      of 8 H100 sends of 32 to 64 MiB take 4 channels of 20.4 GB/s each, of 4
 *                 H100 8; so all of a GPU share 32 (NCCL: channels x ranks <= 32)
 *   between nodes one channel carries 24.9 to 26.2 GB/s (10 nodes), two 43.8 to 45.9 (2
 *                 nodes): 25 a channel, and 0.92 of the port; all-to-alls 0.90 to 0.98
 *   messages      all-to-all of few bytes: 3.75 us for each peer on another node, 8 to 32
 *                 ranks of A100; 10 us with 1024 and 2160; 10 nodes of H100 agree
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/machine_parts.h"

const char *const intra_kind_names[INTRA_KIND_N] = { "none", "nvswitch", "nvlink_mesh",
                                                     "pcie", "ring",     "shared_memory" };
const char *const inter_kind_names[INTER_KIND_N] = { "none",  "fat_tree",  "rail",
                                                     "torus", "dragonfly", "ethernet" };
const char *const protocol_names[PROTOCOL_N] = { "LL", "LL128", "Simple" };

/* ---- NCCL's tables, ns: LL, LL128, Simple ---- */

static const int64_t base_ring[PROTOCOL_N] = { 6600, 14000, 8400 };
static const int64_t base_tree[PROTOCOL_N] = { 6800, 14000, 8400 };
static const int64_t hop_nvlink_ring[PROTOCOL_N] = { 600, 1900, 3400 };
static const int64_t hop_nvlink_tree[PROTOCOL_N] = { 600, 1250, 4000 };
static const int64_t hop_pci_ring[PROTOCOL_N] = { 1000, 2500, 5700 };
static const int64_t hop_pci_tree[PROTOCOL_N] = { 1000, 1900, 4000 };
static const int64_t hop_net_ring[PROTOCOL_N] = { 6000, 8500, 6000 };
static const int64_t hop_net_tree[PROTOCOL_N] = { 5000, 8500, 14000 };
enum { NVLS_NS = 75000, NVLS_TREE_HOP_NS = 20900 };

bool gpu_is_since_hopper(const Gpu *gpu)
{
    return gpu->generation == GPU_HOPPER || gpu->generation == GPU_BLACKWELL;
}

/* llMaxBw: 1 node, 2 nodes, more; between nodes NCCL takes Volta's row with Intel's CPUs. */
double ll_max_bytes_per_ns(const Gpu *gpu, uint32_t nodes_n)
{
    static const double one_node[GPU_GENERATION_N] = {
        [GPU_VOLTA] = 39, [GPU_TURING] = 39,  [GPU_AMPERE] = 87.7,
        [GPU_ADA] = 87.7, [GPU_HOPPER] = 141, [GPU_BLACKWELL] = 282
    };
    double most = nodes_n == 1 ? one_node[gpu->generation] : nodes_n == 2 ? 39 : 20.4;
    return one_node[gpu->generation] > 0 ? most : INFINITY;
}

/* ---- efficiencies ---- */

/* What rings through switches take; by the generation of the GPUs where that was measured. */
typedef struct NvSwitch {
    int64_t base_ns[PROTOCOL_N], hop_ns[PROTOCOL_N];
    RankCurve efficiency;
    RankCurve nvls; /* buffer bytes per time of the port's; n 0: as usual */
} NvSwitch;

/* nccl.jsonl: vTrain's A100 with NVSwitch and V100 with NVLink (an HGX-1's cube mesh, where 5
 * and 6 GPUs have no ring without PCIe); H100: all-gather and reduce-scatter of
 * xxrjun/nccl-tests-cluster at 4 and 8, vidur's all-reduce at 2, and 80 GPUs of 10 nodes,
 * where the ports also carry what goes to the NICs.  B200 and PCIe: SimuMax's fits
 * (alpha-beta-fits.jsonl: all_gather 0.67 of 900; 0.69, 0.69, 0.41 of 30, in 2^30 bytes/s, as its
 * compute_net_op_time multiplies). */
/* NVLS: 4 and 8 H100: 244 and 275.6 of 450, taken for others; B200: SimuMax's all_reduce, 0.742 of
 * 900 * 2^30. */
static const RankCurve nvls_usual = { 2, { 4, 8 }, { 0.543, 0.612 } };
static const NvSwitch nvswitch[GPU_GENERATION_N] = {
    [GPU_AMPERE] = { { 6600, 40000, 40000 },
                     { 600, 1900, 3400 },
                     { 7,
                       { 2, 3, 4, 5, 6, 7, 8 },
                       { 0.657, 0.706, 0.740, 0.748, 0.757, 0.757, 0.765 } },
                     { 0 } },
    [GPU_HOPPER] = { { 6600, 14000, 25000 },
                     { 600, 1900, 3400 },
                     { 4, { 2, 4, 8, 16 }, { 0.69, 0.755, 0.793, 0.73 } },
                     { 0 } },
    [GPU_BLACKWELL] = { { 6600, 23600, 23600 },
                        { 600, 7600, 7600 },
                        { 1, { 8 }, { 0.723 } },
                        { 1, { 8 }, { 0.455 } } },
};
static const RankCurve mesh_volta = { 7,
                                      { 2, 3, 4, 5, 6, 7, 8 },
                                      { 0.150, 0.301, 0.569, 0.248, 0.305, 0.580, 0.897 } };
static const RankCurve pcie = { 3, { 2, 4, 8 }, { 0.71, 0.71, 0.42 } };
static const RankCurve plain = { 1, { 2 }, { 0.80 } }; /* no measurement: as H100's switches */
static const RankCurve one = { 1, { 2 }, { 1.0 } };

/* InfiniBand: 10 H100 nodes reach 48.9 of 50 GB/s with one GPU each, 195 of 200 with four. */
static const double inter_infiniband = 0.975;
/* Ethernet: TCP at MTU 1500 carries 1448 bytes in 1538 on the wire (frame, gap, IP, TCP with
 * timestamps), and hosts fill slow ports.  Fast ones they do not: vidur's A100 pairs reach
 * 7.8 GB/s over what is taken for 12.5, and beyond that nobody measured, so the fraction stays.
 * Well-tuned RoCE is InfiniBand's equal: a cluster that has it should say fat_tree. */
static const double tcp_framing = 1448.0 / 1538, tcp_pair_bytes_per_ns = 7.8, tcp_fast = 0.63;

static double inter_efficiency(const InterNode *inter)
{
    if (inter->kind != INTER_ETHERNET)
        return inter_infiniband;
    return fmin(tcp_framing, fmax(tcp_fast, tcp_pair_bytes_per_ns / inter->bytes_per_ns));
}

/* NULL: none, or not measured. */
static const NvSwitch *switch_of(const IntraNode *in, const Gpu *gpu)
{
    const NvSwitch *s = &nvswitch[gpu->generation];
    return in->kind == INTRA_NVSWITCH && s->efficiency.n > 0 ? s : NULL;
}

static const RankCurve *default_curve(const IntraNode *in, const Gpu *gpu, bool ideal)
{
    const NvSwitch *known = switch_of(in, gpu);
    if (ideal || known)
        return ideal ? &one : &known->efficiency;
    switch (in->kind) {
    case INTRA_NVLINK_MESH:
        return gpu->generation == GPU_VOLTA ? &mesh_volta : &plain;
    case INTRA_PCIE:
        return &pcie;
    default:
        return &plain;
    }
}

/* In a full mesh of n GPUs a pair has 1/(n - 1) of the port between it, m of them m - 1 such links
 * each.  In a ring fewer than all have no way round: each of their links carries what comes and
 * what goes back, so that it is as with one of the port's two.  It stands for a group alone: two
 * groups of one GPU at the same time share its port, though their links may be others. */
static RankCurve shared_out(RankCurve whole, IntraKind kind, uint32_t gpus_n)
{
    double full = rank_curve_at(&whole, gpus_n);
    double pair = kind == INTRA_RING ? full / 2 : full / (gpus_n - 1);
    if (kind == INTRA_RING && gpus_n > 3)
        return (RankCurve){ 3, { 2, gpus_n - 1, gpus_n }, { pair, pair, full } };
    return (RankCurve){ 2, { 2, gpus_n }, { pair, full } };
}

/* The default, and of GPUs without a switch what of it some of them have; Volta's mesh was
 * measured. */
static RankCurve usual_curve(const IntraNode *in, uint32_t gpus_n, const Gpu *gpu, bool ideal)
{
    const RankCurve *curve = default_curve(in, gpu, ideal);
    bool direct = in->kind == INTRA_NVLINK_MESH || in->kind == INTRA_RING;
    return direct && gpus_n > 2 && curve != &mesh_volta ? shared_out(*curve, in->kind, gpus_n)
                                                        : *curve;
}

double rank_curve_at(const RankCurve *c, uint32_t ranks)
{
    ASSERT(c->n > 0);
    uint32_t i = 0;
    while (i < c->n && c->ranks[i] < ranks)
        i++;
    if (i == c->n)
        return c->value[c->n - 1];
    if (i == 0 || c->ranks[i] == ranks)
        return c->value[i];
    double part = (double)(ranks - c->ranks[i - 1]) / (double)(c->ranks[i] - c->ranks[i - 1]);
    return c->value[i - 1] + part * (c->value[i] - c->value[i - 1]);
}

/* ---- sends ---- */

enum { CHANNELS_HOPPER = 32 };
static const double channel_nvlink = 20.4, channel_net = 25;
static const double p2p_of_ring = 0.92 / 0.975;
static const RankCurve message_net = { 2, { 80, 1024 }, { 3750, 10000 } };

/* Only Hopper's switches were measured; who has none of them is not limited. */
static void channels_settle(IntraNode *in, const Gpu *gpu, bool ideal, JsonNode node)
{
    bool known = in->kind == INTRA_NVSWITCH && !ideal && gpu->generation == GPU_HOPPER;
    if (in->channels == NONE_U32) {
        double none = NAN;
        in->channels = known ? CHANNELS_HOPPER : 0;
        settle_number(&none, in->channels, node, "collectives.intra_channels");
    }
}

/* ---- blank and settled ---- */

IntraNode intra_blank(void)
{
    return (IntraNode){ .kind = INTRA_KIND_N,
                        .bytes_per_ns = NAN,
                        .hop_ns = { -1, -1, -1 },
                        .tree_hop_ns = { -1, -1, -1 },
                        .nvls_ns = -1,
                        .channels = NONE_U32,
                        .channel_bytes_per_ns = NAN };
}

InterNode inter_blank(void)
{
    return (InterNode){ .kind = INTER_KIND_N,
                        .nics_per_node = NONE_U32,
                        .bytes_per_ns = NAN,
                        .hop_ns = { -1, -1, -1 },
                        .tree_hop_ns = { -1, -1, -1 },
                        .nvls_tree_hop_ns = -1,
                        .efficiency = NAN,
                        .p2p_efficiency = NAN,
                        .channel_bytes_per_ns = NAN,
                        .oversubscription = NAN,
                        .nodes_per_leaf = NONE_U32 };
}

static void settle_protocols(int64_t ns[PROTOCOL_N], const int64_t value_ns[PROTOCOL_N],
                             JsonNode node, const char *key)
{
    for (int p = 0; p < PROTOCOL_N; p++) {
        char path[64];
        snprintf(path, sizeof path, "%s.%s", key, protocol_names[p]);
        settle_us(&ns[p], value_ns ? value_ns[p] : 0, node, path);
    }
}

/* Logged by its last value. */
static void settle_curve(RankCurve *c, const RankCurve *usual, JsonNode node, const char *key)
{
    double none = NAN;
    if (c->n > 0)
        return;
    *c = *usual;
    settle_number(&none, usual->value[usual->n - 1], node, key);
}

void intra_settle(IntraNode *in, uint32_t gpus_n, const Gpu *gpu, bool ideal, JsonNode node)
{
    bool nvlink =
        in->kind == INTRA_NVSWITCH || in->kind == INTRA_NVLINK_MESH || in->kind == INTRA_RING;
    const NvSwitch *known = switch_of(in, gpu);
    const int64_t *ring = known ? known->hop_ns : nvlink ? hop_nvlink_ring : hop_pci_ring;
    const int64_t *tree = nvlink ? hop_nvlink_tree : hop_pci_tree;
    settle_protocols(in->hop_ns, ideal ? NULL : ring, node, "collectives.intra_hop_us");
    settle_protocols(in->tree_hop_ns, ideal ? in->hop_ns : tree, node,
                     "collectives.intra_tree_hop_us");
    settle_us(&in->nvls_ns, ideal ? in->hop_ns[PROTOCOL_SIMPLE] : NVLS_NS, node,
              "collectives.nvls_us");
    const RankCurve *nvls = known && known->nvls.n > 0 ? &known->nvls : &nvls_usual;
    settle_curve(&in->nvls_efficiency, ideal ? &one : nvls, node,
                 "collectives.nvls_efficiency");
    channels_settle(in, gpu, ideal, node);
    settle_number(&in->channel_bytes_per_ns, channel_nvlink, node,
                  "collectives.intra_channel_GBps");
    RankCurve usual = usual_curve(in, gpus_n, gpu, ideal);
    settle_curve(&in->efficiency, &usual, node, "collectives.intra_efficiency");
}

/* What sends reach of what rings do: measured with the ports that Hopper and Blackwell have. */
static double p2p_part(const Machine *m)
{
    bool known = false; /* of some: a send is as slow as either end */
    for (uint32_t i = 0; i < m->types_n; i++)
        known = known || gpu_is_since_hopper(m->types[i].gpu);
    return known && !m->ideal_collectives && m->inter.kind != INTER_ETHERNET ? p2p_of_ring : 1;
}

void inter_settle(Machine *m, JsonNode node)
{
    InterNode *inter = &m->inter;
    bool ideal = m->ideal_collectives;
    settle_protocols(inter->hop_ns, ideal ? NULL : hop_net_ring, node,
                     "collectives.inter_hop_us");
    settle_protocols(inter->tree_hop_ns, ideal ? inter->hop_ns : hop_net_tree, node,
                     "collectives.inter_tree_hop_us");
    settle_us(&inter->nvls_tree_hop_ns,
              ideal ? inter->hop_ns[PROTOCOL_SIMPLE] : NVLS_TREE_HOP_NS, node,
              "collectives.nvls_tree_hop_us");
    settle_number(&inter->efficiency, ideal ? 1 : inter_efficiency(inter), node,
                  "collectives.inter_efficiency");
    settle_number(&inter->p2p_efficiency, inter->efficiency * p2p_part(m), node,
                  "collectives.p2p_efficiency");
    settle_number(&inter->channel_bytes_per_ns, ideal ? 0 : channel_net, node,
                  "collectives.inter_channel_GBps");
    if (inter->message_ns.n == 0 && !ideal) {
        double none = NAN;
        inter->message_ns = message_net;
        settle_number(&none, message_net.value[0] / 1e3, node, "collectives.message_us");
    }
}

/* By protocol, of the kind of nodes where rings take longest to set up. */
static void usual_base(int64_t ns[PROTOCOL_N], const Machine *m)
{
    memcpy(ns, base_ring, sizeof base_ring);
    for (uint32_t i = 0; i < m->types_n; i++) {
        const NvSwitch *known = switch_of(&m->types[i].intra, m->types[i].gpu);
        for (int p = 0; known && p < PROTOCOL_N; p++)
            ns[p] = max_i64(ns[p], known->base_ns[p]);
    }
}

void base_settle(Machine *m, JsonNode node)
{
    bool ideal = m->ideal_collectives;
    int64_t ring[PROTOCOL_N];
    usual_base(ring, m);
    for (int p = 0; p < PROTOCOL_N; p++) { /* as the file says, else NCCL's own everywhere */
        int64_t given = m->collective_base_ns[p];
        m->p2p_base_ns[p] = given >= 0 ? given : ideal ? 0 : base_ring[p];
    }
    settle_protocols(m->collective_base_ns, ideal ? NULL : ring, node,
                     "collectives.base_latency_us");
    settle_protocols(m->tree_base_ns, ideal ? NULL : base_tree, node,
                     "collectives.tree_base_latency_us");
}
