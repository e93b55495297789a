/*
 * machine.c - reads a cluster, layer by layer, and says where a rank is.
 *
 * A ClusterSpec collects what every layer (base of the base, base, the object
 * itself) says; what nobody said is settled once, at the end, so that a default
 * can depend on values of any layer (the latency of a link on its kind).
 */
#include "core/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/machine_parts.h"

enum { TYPES_MAX = 1024, LIST_MAX = 1 << 20 };

/* ---- what the layers say ---- */

typedef enum Flag { FLAG_NOT_GIVEN, FLAG_NO, FLAG_YES } Flag;

typedef struct NodeSpec {
    uint32_t count, gpus_n; /* 0: not given */
    Gpu gpu;
    bool has_gpu;
    IntraNode intra;
    Flag nvls;
} NodeSpec;

typedef struct ClusterSpec {
    const char *name;
    NodeSpec node; /* of a cluster of equal nodes; of node_types where they say nothing */
    NodeSpec *types;
    uint32_t types_n;
    uint32_t gpus_per_host;
    InterNode inter;
    /* "collectives": calibrated, so they win over latency_us. */
    IntraNode intra_costs;
    InterNode inter_costs;
    Flag ideal;
    int64_t base_ns[PROTOCOL_N], tree_base_ns[PROTOCOL_N];
    MeasuredCollective *measured; /* in the machine's arena */
    uint32_t measured_n;
    double price, mtbf, jitter;
    uint32_t stragglers_n, stragglers_cap, links_n, links_cap;
    Straggler *stragglers; /* on the heap until the machine takes them */
    SlowLink *links;
    const char *provenance;
} ClusterSpec;

static NodeSpec node_blank(void)
{
    return (NodeSpec){ .gpu = gpu_blank(), .intra = intra_blank() };
}

static ClusterSpec cluster_blank(void)
{
    return (ClusterSpec){ .node = node_blank(),
                          .inter = inter_blank(),
                          .intra_costs = intra_blank(),
                          .inter_costs = inter_blank(),
                          .base_ns = { -1, -1, -1 },
                          .tree_base_ns = { -1, -1, -1 },
                          .price = NAN,
                          .mtbf = NAN,
                          .jitter = NAN };
}

static void take_flag(JsonObj *o, const char *key, Flag *flag)
{
    if (json_has(o, key))
        *flag = json_bool(o, key, false) ? FLAG_YES : FLAG_NO;
}

static void take_gpu(const MachineReader *r, JsonObj *o, NodeSpec *spec)
{
    JsonNode node = json_get(o, "gpu");
    if (!node.item || !o->ok)
        return;
    spec->has_gpu = true;
    o->ok = gpu_layer(r, &spec->gpu, node);
}

/* One hop's latency is the same for rings and trees unless "collectives" says otherwise. */
static void take_latency(JsonObj *o, int64_t *hop_ns, int64_t *tree_hop_ns)
{
    take_protocols(o, "latency_us", hop_ns);
    take_protocols(o, "latency_us", tree_hop_ns);
}

static void take_intra(JsonObj *o, NodeSpec *spec)
{
    JsonNode node = json_get(o, "intra_node");
    if (!node.item || !o->ok)
        return;
    IntraNode *in = &spec->intra;
    JsonObj i = json_begin(node, o->err);
    if (json_has(&i, "kind"))
        in->kind = (IntraKind)json_word(&i, "kind", intra_kind_names, INTRA_KIND_N, -1);
    take_number(&i, "GBps", 1e-6, 1e6, &in->bytes_per_ns);
    take_latency(&i, in->hop_ns, in->tree_hop_ns);
    take_flag(&i, "nvls", &spec->nvls);
    skip_key(&i, "notes");
    o->ok = json_end(&i);
}

static void take_inter(JsonObj *o, InterNode *inter)
{
    JsonNode node = json_get(o, "inter_node");
    if (!node.item || !o->ok)
        return;
    JsonObj i = json_begin(node, o->err);
    if (json_has(&i, "kind"))
        inter->kind = (InterKind)json_word(&i, "kind", inter_kind_names, INTER_KIND_N, -1);
    take_u32(&i, "nics_per_node", 1, 1024, &inter->nics_per_node);
    take_number(&i, "GBps_per_nic", 1e-6, 1e6, &inter->bytes_per_ns);
    take_latency(&i, inter->hop_ns, inter->tree_hop_ns);
    take_number(&i, "oversubscription", 1, 1e4, &inter->oversubscription);
    take_u32(&i, "nodes_per_leaf", 1, MACHINE_NODES_MAX, &inter->nodes_per_leaf);
    skip_key(&i, "notes");
    o->ok = json_end(&i);
}

/* Calibrated overrides of what the kinds of links cost. */
static void take_collectives(const MachineReader *r, JsonObj *o, ClusterSpec *s)
{
    JsonNode node = json_get(o, "collectives");
    if (!node.item || !o->ok)
        return;
    JsonObj c = json_begin(node, o->err);
    take_flag(&c, "ideal", &s->ideal);
    take_curve(&c, "intra_efficiency", 1e-3, 1, 1, &s->intra_costs.efficiency);
    take_number(&c, "inter_efficiency", 1e-3, 1, &s->inter_costs.efficiency);
    take_curve(&c, "nvls_efficiency", 1e-3, 1, 1, &s->intra_costs.nvls_efficiency);
    take_protocols(&c, "base_latency_us", s->base_ns);
    take_protocols(&c, "tree_base_latency_us", s->tree_base_ns);
    take_protocols(&c, "intra_hop_us", s->intra_costs.hop_ns);
    take_protocols(&c, "intra_tree_hop_us", s->intra_costs.tree_hop_ns);
    take_protocols(&c, "inter_hop_us", s->inter_costs.hop_ns);
    take_protocols(&c, "inter_tree_hop_us", s->inter_costs.tree_hop_ns);
    take_us(&c, "nvls_us", &s->intra_costs.nvls_ns);
    take_us(&c, "nvls_tree_hop_us", &s->inter_costs.nvls_tree_hop_ns);
    take_number(&c, "p2p_efficiency", 1e-3, 1, &s->inter_costs.p2p_efficiency);
    take_curve(&c, "message_us", 1e-3, 1e6, 1e3, &s->inter_costs.message_ns);
    take_u32(&c, "intra_channels", 0, 1024, &s->intra_costs.channels);
    take_number(&c, "intra_channel_GBps", 1e-6, 1e6, &s->intra_costs.channel_bytes_per_ns);
    take_number(&c, "inter_channel_GBps", 0, 1e6, &s->inter_costs.channel_bytes_per_ns);
    take_measured(r, &c, &s->measured, &s->measured_n);
    skip_key(&c, "notes");
    skip_key(&c, "before"); /* of calibrate alone */
    o->ok = json_end(&c);
}

/* ---- node types ---- */

static bool read_type(const MachineReader *r, NodeSpec *spec, JsonNode node)
{
    JsonObj o = json_begin(node, r->err);
    spec->count = (uint32_t)json_count(&o, "count", 1, MACHINE_NODES_MAX, JSON_REQUIRED);
    take_u32(&o, "gpus_per_node", 1, MACHINE_GPUS_MAX, &spec->gpus_n);
    take_gpu(r, &o, spec);
    take_intra(&o, spec);
    return json_end(&o);
}

/* Entries start from what the cluster says of all its nodes. */
static void take_types(const MachineReader *r, JsonObj *o, ClusterSpec *s)
{
    JsonNode list = json_get(o, "node_types");
    if (!list.item || !o->ok)
        return;
    size_t n = json_items_n(list);
    if (json_type(list) != JSON_ARRAY || n == 0 || n > TYPES_MAX) {
        o->ok = json_fail(list, o->err, "a list of 1 to %d node types is expected", TYPES_MAX);
        return;
    }
    s->types = PUSH_ARRAY(r->arena, NodeSpec, n);
    s->types_n = (uint32_t)n;
    uint64_t nodes_n = 0;
    size_t i = 0;
    for (JsonNode e = json_first(list); e.item && o->ok; e = json_next(e, list, ++i)) {
        s->types[i] = s->node;
        o->ok = read_type(r, &s->types[i], e);
        nodes_n += s->types[i].count;
    }
    if (o->ok && json_has(o, "nodes") && nodes_n != s->node.count)
        o->ok = json_fail(json_get(o, "nodes"), o->err,
                          "%u nodes, but the counts of node_types add up to %" PRIu64,
                          (unsigned)s->node.count, nodes_n);
    if (o->ok && nodes_n > MACHINE_NODES_MAX)
        o->ok = json_fail(list, o->err, "%" PRIu64 " nodes, at most %d allowed", nodes_n,
                          MACHINE_NODES_MAX);
    s->node.count = (uint32_t)nodes_n;
}

/* ---- stragglers ---- */

static void take_slow_ranks(JsonObj *o, JsonNode list, ClusterSpec *s)
{
    double compute = json_number(o, "compute", 1e-3, 1e3, JSON_REQUIRED);
    size_t i = 0;
    if (o->ok && json_type(list) != JSON_ARRAY)
        o->ok = json_fail(list, o->err, "a list of ranks is expected");
    for (JsonNode e = json_first(list); e.item && o->ok; e = json_next(e, list, ++i)) {
        double rank = json_type(e) == JSON_NUMBER ? json_value(e) : -1;
        if (!(rank >= 0 && rank < MACHINE_GPUS_MAX && rank == floor(rank)) ||
            s->stragglers_n == LIST_MAX) {
            o->ok = json_fail(e, o->err, "ranks are whole numbers from 0, at most %d of them",
                              LIST_MAX);
            return;
        }
        GROW(s->stragglers, s->stragglers_n, s->stragglers_cap);
        s->stragglers[s->stragglers_n++] = (Straggler){ (uint32_t)rank, compute };
    }
}

static void take_slow_link(JsonObj *o, JsonNode pair, ClusterSpec *s)
{
    double gbps = json_number(o, "GBps", 1e-6, 1e6, JSON_REQUIRED);
    double x[2] = { 0 };
    if (o->ok)
        o->ok = json_numbers(pair, x, 2, o->err);
    for (int i = 0; i < 2 && o->ok; i++)
        if (!(x[i] >= 0 && x[i] < MACHINE_GPUS_MAX && x[i] == floor(x[i])) || x[0] == x[1])
            o->ok = json_fail(pair, o->err, "two different ranks are expected");
    if (!o->ok)
        return;
    GROW(s->links, s->links_n, s->links_cap);
    s->links[s->links_n++] =
        (SlowLink){ (uint32_t)fmin(x[0], x[1]), (uint32_t)fmax(x[0], x[1]), gbps };
}

static void take_stragglers(JsonObj *o, ClusterSpec *s)
{
    JsonNode list = json_get(o, "stragglers");
    if (!list.item || !o->ok)
        return;
    if (json_type(list) != JSON_ARRAY) {
        o->ok = json_fail(list, o->err, "a list of objects is expected");
        return;
    }
    s->stragglers_n = s->links_n = 0; /* replaces those of the base */
    size_t i = 0;
    for (JsonNode e = json_first(list); e.item && o->ok; e = json_next(e, list, ++i)) {
        JsonObj one = json_begin(e, o->err);
        JsonNode ranks = json_get(&one, "ranks"), link = json_get(&one, "link");
        if (one.ok && !ranks.item == !link.item)
            one.ok = json_fail(e, o->err, "either 'ranks' or 'link' is expected");
        if (ranks.item)
            take_slow_ranks(&one, ranks, s);
        else
            take_slow_link(&one, link, s);
        o->ok = json_end(&one);
    }
}

/* ---- layers ---- */

/* node_types of a base already say what these keys would change. */
static bool types_hide(const ClusterSpec *s, JsonObj *o)
{
    static const char *const keys[] = { "nodes", "gpus_per_node", "gpu", "intra_node" };
    if (s->types_n == 0 || json_has(o, "node_types"))
        return false;
    for (size_t i = 0; i < ARRAY_N(keys); i++)
        if (json_has(o, keys[i]))
            return !json_fail(json_get(o, keys[i]), o->err,
                              "the base has node_types, give node_types instead");
    return false;
}

/* What was measured of a base was measured on its links: of others it says nothing. */
static void drop_measured(JsonObj *o, ClusterSpec *s, const MeasuredCollective *before)
{
    if (s->measured == before && (json_has(o, "intra_node") || json_has(o, "inter_node")))
        s->measured_n = 0;
}

static void take_cluster(const MachineReader *r, JsonObj *o, ClusterSpec *s)
{
    const MeasuredCollective *before = s->measured;
    if (o->ok && types_hide(s, o))
        o->ok = false;
    if (json_has(o, "name"))
        s->name = arena_strdup(r->arena, json_string(o, "name", ""));
    take_u32(o, "nodes", 1, MACHINE_NODES_MAX, &s->node.count);
    take_u32(o, "gpus_per_node", 1, MACHINE_GPUS_MAX, &s->node.gpus_n);
    take_u32(o, "gpus_per_host", 1, MACHINE_GPUS_MAX, &s->gpus_per_host);
    take_gpu(r, o, &s->node);
    take_intra(o, &s->node);
    take_inter(o, &s->inter);
    take_types(r, o, s);
    take_collectives(r, o, s);
    drop_measured(o, s, before);
    take_stragglers(o, s);
    take_number(o, "jitter", 0, 1, &s->jitter);
    take_number(o, "price_usd_per_gpu_hour", 0, 1e6, &s->price);
    take_number(o, "gpu_mtbf_hours", 0, 1e9, &s->mtbf);
    take_provenance(o, r->arena, &s->provenance);
    skip_key(o, "notes");
}

static bool cluster_layer(const MachineReader *r, ClusterSpec *s, JsonNode node, uint32_t depth)
{
    if (depth > MACHINE_LAYERS_MAX)
        return json_fail(node, r->err, "bases of bases, more than %d deep", MACHINE_LAYERS_MAX);
    bool named = json_type(node) == JSON_STRING;
    JsonObj o = named ? (JsonObj){ 0 } : json_begin(node, r->err);
    JsonNode base = named ? node : json_get(&o, "base");
    JsonDoc *doc = NULL;
    if (base.item && (named || o.ok)) {
        doc = machine_open(r, base, "clusters");
        o.ok = doc && cluster_layer(r, s, json_root(doc), depth + 1);
    }
    if (o.ok && !named && base.item)
        json_log_value(base, json_text(base), false);
    bool ok = o.ok;
    if (!named) {
        take_cluster(r, &o, s);
        ok = json_end(&o);
    }
    if (doc)
        json_log_adopt(node, doc);
    json_close(doc);
    return ok;
}

/* ---- what follows from them ---- */

static bool missing(JsonNode node, const char *key, const char *why, Err *err)
{
    return json_fail(json_member(node, key), err, "the key is missing%s", why);
}

static bool links_complete(const NodeSpec *t, JsonNode node, Err *err)
{
    if (t->gpus_n <= 1)
        return true;
    if (t->intra.kind == INTRA_KIND_N)
        return missing(node, "intra_node.kind", " where a node has several GPUs", err);
    if (t->intra.kind == INTRA_NONE)
        return json_fail(json_member(node, "intra_node.kind"), err,
                         "'none' does not connect %u GPUs", (unsigned)t->gpus_n);
    if (isnan(t->intra.bytes_per_ns))
        return missing(node, "intra_node.GBps", "", err);
    return true;
}

static void cover_protocols(int64_t ns[PROTOCOL_N], const int64_t over_ns[PROTOCOL_N])
{
    for (int p = 0; p < PROTOCOL_N; p++)
        if (over_ns[p] >= 0)
            ns[p] = over_ns[p];
}

static void finish_intra(NodeType *out, const NodeSpec *t, const ClusterSpec *s, JsonNode node)
{
    IntraNode *in = &out->intra;
    const IntraNode *costs = &s->intra_costs;
    *in = t->intra;
    if (in->kind == INTRA_KIND_N || t->gpus_n == 1)
        in->kind = INTRA_NONE;
    settle_number(&in->bytes_per_ns, 0, node, "intra_node.GBps");
    cover_protocols(in->hop_ns, costs->hop_ns);
    cover_protocols(in->tree_hop_ns, costs->tree_hop_ns);
    if (costs->efficiency.n > 0)
        in->efficiency = costs->efficiency;
    if (costs->nvls_efficiency.n > 0)
        in->nvls_efficiency = costs->nvls_efficiency;
    if (costs->nvls_ns >= 0)
        in->nvls_ns = costs->nvls_ns;
    in->channels = costs->channels;
    in->channel_bytes_per_ns = costs->channel_bytes_per_ns;
    bool ideal = s->ideal == FLAG_YES;
    bool usual = in->kind == INTRA_NVSWITCH && !ideal && gpu_is_since_hopper(out->gpu);
    in->nvls = t->nvls == FLAG_NOT_GIVEN ? usual : t->nvls == FLAG_YES;
    if (t->nvls == FLAG_NOT_GIVEN)
        json_log_value(json_member(node, "intra_node.nvls"), in->nvls ? "true" : "false", true);
    intra_settle(in, t->gpus_n, out->gpu, ideal, node);
}

static bool finish_type(Machine *m, NodeType *out, NodeSpec *t, const ClusterSpec *s,
                        JsonNode node, Err *err)
{
    if (t->gpus_n == 0)
        t->gpus_n = 1;
    if (!t->has_gpu)
        return missing(node, "gpu", "", err);
    if (!links_complete(t, node, err) ||
        !gpu_settle(&m->arena, &t->gpu, json_member(node, "gpu"), err))
        return false;
    Gpu *gpu = PUSH(&m->arena, Gpu);
    *gpu = t->gpu;
    *out = (NodeType){ .count = t->count,
                       .gpus_n = t->gpus_n,
                       .gpu = gpu,
                       .first_node = m->nodes_n,
                       .first_rank = m->gpus_n };
    uint64_t gpus_n = m->gpus_n + (uint64_t)t->count * t->gpus_n;
    if (gpus_n > MACHINE_GPUS_MAX)
        return json_fail(node, err, "%" PRIu64 " GPUs, at most %d allowed", gpus_n,
                         MACHINE_GPUS_MAX);
    finish_intra(out, t, s, node);
    m->nodes_n += t->count;
    m->gpus_n = (uint32_t)gpus_n;
    return true;
}

static bool finish_inter(Machine *m, const ClusterSpec *s, JsonNode node, Err *err)
{
    InterNode *inter = &m->inter;
    *inter = s->inter;
    if (m->nodes_n > 1 && inter->kind == INTER_KIND_N)
        return missing(node, "inter_node.kind", " where there are several nodes", err);
    if (m->nodes_n > 1 && inter->kind == INTER_NONE)
        return json_fail(json_member(node, "inter_node.kind"), err,
                         "'none' does not connect %u nodes", (unsigned)m->nodes_n);
    if (inter->kind == INTER_KIND_N)
        inter->kind = INTER_NONE;
    if (inter->kind != INTER_NONE && isnan(inter->bytes_per_ns))
        return missing(node, "inter_node.GBps_per_nic", "", err);
    settle_number(&inter->bytes_per_ns, 0, node, "inter_node.GBps_per_nic");
    if (inter->nics_per_node == NONE_U32)
        inter->nics_per_node = 1;
    if (inter->nodes_per_leaf == NONE_U32)
        inter->nodes_per_leaf = 0;
    settle_number(&inter->oversubscription, 1, node, "inter_node.oversubscription");
    cover_protocols(inter->hop_ns, s->inter_costs.hop_ns);
    cover_protocols(inter->tree_hop_ns, s->inter_costs.tree_hop_ns);
    inter->nvls_tree_hop_ns = s->inter_costs.nvls_tree_hop_ns;
    if (!isnan(s->inter_costs.efficiency))
        inter->efficiency = s->inter_costs.efficiency;
    inter->p2p_efficiency = s->inter_costs.p2p_efficiency;
    inter->channel_bytes_per_ns = s->inter_costs.channel_bytes_per_ns;
    inter->message_ns = s->inter_costs.message_ns;
    inter_settle(m, node);
    return true;
}

/* What a collective makes every GPU send: a ring over nodes is as fast as a node's NICs. */
static void finish_rates(Machine *m)
{
    const InterNode *inter = &m->inter;
    for (uint32_t i = 0; i < m->types_n; i++) {
        const NodeType *t = &m->types[i];
        double within = t->intra.bytes_per_ns * rank_curve_at(&t->intra.efficiency, t->gpus_n);
        double between = inter->bytes_per_ns * inter->nics_per_node * inter->efficiency;
        double rate = t->gpus_n > 1 ? within : INFINITY;
        if (m->nodes_n > 1)
            rate = fmin(rate, between);
        Gpu *gpu = (Gpu *)t->gpu; /* ours: finish_type */
        gpu->comm_bytes_per_ns = isinf(rate) ? 0 : rate;
        gpu->comm_inside_bytes_per_ns = t->gpus_n > 1 ? within : 0;
    }
}

static int compare_stragglers(const void *a, const void *b)
{
    uint32_t x = ((const Straggler *)a)->rank, y = ((const Straggler *)b)->rank;
    return (x > y) - (x < y);
}

static bool finish_stragglers(Machine *m, const ClusterSpec *s, JsonNode node, Err *err)
{
    JsonNode list = json_member(node, "stragglers");
    m->stragglers = PUSH_ARRAY(&m->arena, Straggler, s->stragglers_n);
    m->stragglers_n = s->stragglers_n;
    m->slow_links = PUSH_ARRAY(&m->arena, SlowLink, s->links_n);
    m->slow_links_n = s->links_n;
    if (s->links_n)
        memcpy(m->slow_links, s->links, s->links_n * sizeof *s->links);
    for (uint32_t i = 0; i < s->links_n; i++)
        if (s->links[i].rank_b >= m->gpus_n)
            return json_fail(list, err, "there is no rank %u, the cluster has %u GPUs",
                             (unsigned)s->links[i].rank_b, (unsigned)m->gpus_n);
    if (s->stragglers_n == 0)
        return true;
    memcpy(m->stragglers, s->stragglers, s->stragglers_n * sizeof *s->stragglers);
    qsort(m->stragglers, m->stragglers_n, sizeof *m->stragglers, compare_stragglers);
    uint32_t last = m->stragglers[m->stragglers_n - 1].rank;
    if (last >= m->gpus_n)
        return json_fail(list, err, "there is no rank %u, the cluster has %u GPUs",
                         (unsigned)last, (unsigned)m->gpus_n);
    for (uint32_t i = 1; i < m->stragglers_n; i++)
        if (m->stragglers[i].rank == m->stragglers[i - 1].rank)
            return json_fail(list, err, "rank %u stands here twice",
                             (unsigned)m->stragglers[i].rank);
    return true;
}

static bool finish(Machine *m, ClusterSpec *s, JsonNode node, Err *err)
{
    if (s->node.count == 0) {
        s->node.count = 1;
        json_log_value(json_member(node, "nodes"), "1", true);
    }
    m->name = s->name ? s->name : "cluster";
    m->provenance = s->provenance ? s->provenance : "";
    m->gpus_per_host = s->gpus_per_host;
    m->ideal_collectives = s->ideal == FLAG_YES;
    m->measured = s->measured;
    m->measured_n = s->measured_n;
    if (m->ideal_collectives && m->measured_n)
        return json_fail(json_member(node, "collectives.measured"), err,
                         "nothing is measured where collectives are ideal");
    m->types_n = s->types_n ? s->types_n : 1;
    m->types = PUSH_ARRAY(&m->arena, NodeType, m->types_n);
    for (uint32_t i = 0; i < m->types_n; i++) {
        NodeSpec *t = s->types_n ? &s->types[i] : &s->node;
        if (!finish_type(m, &m->types[i], t, s, node, err))
            return false;
    }
    memcpy(m->collective_base_ns, s->base_ns, sizeof s->base_ns);
    memcpy(m->tree_base_ns, s->tree_base_ns, sizeof s->tree_base_ns);
    base_settle(m, node);
    settle_number(&s->jitter, 0, node, "jitter");
    settle_number(&s->price, 0, node, "price_usd_per_gpu_hour");
    settle_number(&s->mtbf, 0, node, "gpu_mtbf_hours");
    m->jitter = s->jitter;
    m->price_usd_per_gpu_hour = s->price;
    m->gpu_mtbf_hours = s->mtbf;
    if (!finish_inter(m, s, node, err) || !finish_stragglers(m, s, node, err))
        return false;
    finish_rates(m);
    return true;
}

bool machine_read(Machine *m, JsonNode node, const char *share_dir, Err *err)
{
    *m = (Machine){ 0 };
    ClusterSpec spec = cluster_blank();
    MachineReader r = { &m->arena, share_dir, err };
    bool ok = cluster_layer(&r, &spec, node, 0) && finish(m, &spec, node, err);
    free(spec.stragglers);
    free(spec.links);
    if (!ok)
        machine_free(m);
    return ok;
}

void machine_free(Machine *m)
{
    arena_free(&m->arena);
    *m = (Machine){ 0 };
}
