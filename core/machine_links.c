/*
 * machine_links.c - what a link costs where the cluster file does not say.
 *
 * Latencies and set-up costs are NCCL's own (src/graph/tuning.cc of 2.28.9: baseLat
 * and hwLat).  They choose algorithms there, but they are also good times: on
 * data/collectives/nccl.jsonl.gz the smallest all-reduces take 13.7 us on 8 H100
 * (15.0 by these tables), 20.3 us on 2 x 4 and 41 us on 8 x 4 A100 (20.4 and 40.4).
 * Efficiencies are fractions of the data sheet's bandwidth that the largest messages
 * there reach; tests/parity/make_gpu_tables.py --links prints them again.
 */
#include <math.h>
#include <stdio.h>

#include "core/machine_parts.h"

const char *const intra_kind_names[INTRA_KIND_N] = {"none", "nvswitch", "nvlink_mesh",
                                                    "pcie", "ring",     "shared_memory"};
const char *const inter_kind_names[INTER_KIND_N] = {"none",  "fat_tree",  "rail",
                                                    "torus", "dragonfly", "ethernet"};
const char *const protocol_names[PROTOCOL_N] = {"LL", "LL128", "Simple"};

/* ---- NCCL's tables, ns: LL, LL128, Simple ---- */

static const int64_t base_ring[PROTOCOL_N] = {6600, 14000, 8400};
static const int64_t base_tree[PROTOCOL_N] = {6800, 14000, 8400};
static const int64_t hop_nvlink_ring[PROTOCOL_N] = {600, 1900, 3400};
static const int64_t hop_nvlink_tree[PROTOCOL_N] = {600, 1250, 4000};
static const int64_t hop_pci_ring[PROTOCOL_N] = {1000, 2500, 5700};
static const int64_t hop_pci_tree[PROTOCOL_N] = {1000, 1900, 4000};
static const int64_t hop_net_ring[PROTOCOL_N] = {2700, 4000, 14000};
static const int64_t hop_net_tree[PROTOCOL_N] = {5000, 8500, 14000};
enum { NVLS_NS = 25000 }; /* hwLat[NVLink][NVLS] */

/* ---- efficiencies ---- */

static const RankCurve nvswitch_volta = {1, {8}, {0.87}};
static const RankCurve nvswitch_ampere = {
    7, {2,     3,     4,     5,     6,     7,     8    },
     {0.657, 0.706, 0.740, 0.748, 0.757, 0.757, 0.765}
};
static const RankCurve nvswitch_hopper = {
    3, {2,    4,    8   },
     {0.69, 0.80, 0.81}
};
static const RankCurve nvswitch_blackwell = {1, {8}, {0.70}};
static const RankCurve mesh = {
    7, {2,     3,     4,     5,     6,     7,     8    },
     {0.150, 0.301, 0.569, 0.248, 0.305, 0.580, 0.897}
};
static const RankCurve pcie = {
    3, {2,    4,    8   },
     {0.70, 0.69, 0.42}
};
static const RankCurve plain = {1, {2}, {0.80}};
static const RankCurve one = {1, {2}, {1.0}};

static const RankCurve *default_curve(const IntraNode *in, const Gpu *gpu, bool ideal)
{
    if (ideal)
        return &one;
    switch (in->kind) {
    case INTRA_NVSWITCH:
        return gpu->generation == GPU_VOLTA       ? &nvswitch_volta
               : gpu->generation == GPU_HOPPER    ? &nvswitch_hopper
               : gpu->generation == GPU_BLACKWELL ? &nvswitch_blackwell
                                                  : &nvswitch_ampere;
    case INTRA_NVLINK_MESH:
        return gpu->generation == GPU_VOLTA ? &mesh : &plain;
    case INTRA_PCIE:
        return &pcie;
    default:
        return &plain;
    }
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

/* ---- blank and settled ---- */

IntraNode intra_blank(void)
{
    return (IntraNode){
        .kind = INTRA_KIND_N,
        .bytes_per_ns = NAN,
        .hop_ns = {-1, -1, -1},
        .tree_hop_ns = {-1, -1, -1},
        .nvls_efficiency = NAN,
        .nvls_ns = -1
    };
}

InterNode inter_blank(void)
{
    return (InterNode){
        .kind = INTER_KIND_N,
        .nics_per_node = NONE_U32,
        .bytes_per_ns = NAN,
        .hop_ns = {-1, -1, -1},
        .tree_hop_ns = {-1, -1, -1},
        .efficiency = NAN,
        .oversubscription = NAN,
        .nodes_per_leaf = NONE_U32
    };
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

void intra_settle(IntraNode *in, const Gpu *gpu, bool ideal, JsonNode node)
{
    bool nvlink =
        in->kind == INTRA_NVSWITCH || in->kind == INTRA_NVLINK_MESH || in->kind == INTRA_RING;
    const int64_t *ring = nvlink ? hop_nvlink_ring : hop_pci_ring;
    const int64_t *tree = nvlink ? hop_nvlink_tree : hop_pci_tree;
    settle_protocols(in->hop_ns, ideal ? NULL : ring, node, "collectives.intra_hop_us");
    settle_protocols(in->tree_hop_ns, ideal ? in->hop_ns : tree, node,
                     "collectives.intra_tree_hop_us");
    settle_us(&in->nvls_ns, ideal ? in->hop_ns[PROTOCOL_SIMPLE] : NVLS_NS, node,
              "collectives.nvls_us");
    settle_number(&in->nvls_efficiency, ideal ? 1 : 0.61, node, "collectives.nvls_efficiency");
    if (in->efficiency.n == 0) {
        in->efficiency = *default_curve(in, gpu, ideal);
        double full = in->efficiency.value[in->efficiency.n - 1], none = NAN;
        settle_number(&none, full, node, "collectives.intra_efficiency");
    }
}

void inter_settle(InterNode *inter, bool ideal, JsonNode node)
{
    settle_protocols(inter->hop_ns, ideal ? NULL : hop_net_ring, node,
                     "collectives.inter_hop_us");
    settle_protocols(inter->tree_hop_ns, ideal ? inter->hop_ns : hop_net_tree, node,
                     "collectives.inter_tree_hop_us");
    double efficiency = inter->kind == INTER_ETHERNET ? 0.80 : 0.97;
    settle_number(&inter->efficiency, ideal ? 1 : efficiency, node,
                  "collectives.inter_efficiency");
}

void base_settle(Machine *m, JsonNode node)
{
    bool ideal = m->ideal_collectives;
    settle_protocols(m->collective_base_ns, ideal ? NULL : base_ring, node,
                     "collectives.base_latency_us");
    settle_protocols(m->tree_base_ns, ideal ? NULL : base_tree, node,
                     "collectives.tree_base_latency_us");
}
