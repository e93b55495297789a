/*
 * cmd_cluster.c - lockstep cluster NAME: who reaches whom, over what, how fast.
 *
 *     reach         from the first GPU of each kind of node: its memory, its host, and its peers,
 *                   those alike in one row: the links on the way, what a large send reaches of
 *                   them, what a small one takes
 *     collectives   of a node's GPUs and of all, a small and a large one
 *
 * What is printed is what a simulated step is charged (sim/network.h), of a stack without
 * comm_scale and ring_nics.
 */
#include <math.h>
#include <stdlib.h>

#include "core/json_out.h"
#include "core/printable.h"
#include "sim/cluster_open.h"
#include "sim/cmd.h"
#include "sim/cmd_options.h"
#include "sim/rank_group.h"
#include "sim/texts.h"

static const uint64_t SMALL = 8, LARGE = GIB;

typedef struct Options {
    const char *name;
    uint64_t nodes_n; /* 0: the cluster's own */
    SettingList set;
    bool json;
} Options;

/* ---- reach ---- */

typedef enum Where { WHERE_NODE, WHERE_LEAF, WHERE_BEYOND, WHERE_SLOW } Where;

static const char *const where_names[] = { "its node", "another node", "another leaf",
                                           "a slow link" };

/* Peers that are alike, seen from one GPU. */
typedef struct Reach {
    uint32_t from, first, peers_n;
    Where where;
    double link_GBps;            /* the narrowest link on the way */
    double alone_GBps, all_GBps; /* of a large send by itself, and while all GPUs send so far */
    double latency_us;
} Reach;

typedef struct Reaches {
    Reach *row;
    uint32_t n, cap;
} Reaches;

static Where where_is(const RankGroup *g, uint32_t from, uint32_t to, const Use *way,
                      uint32_t way_n)
{
    for (uint32_t i = 0; i < way_n; i++)
        if (g->classes.resources[way[i].resource].kind == RES_LINK)
            return WHERE_SLOW;
    for (uint32_t i = 0; i < way_n; i++)
        if (g->classes.resources[way[i].resource].kind == RES_LEAF_UP)
            return WHERE_BEYOND;
    bool near = machine_place(g->m, from).node == machine_place(g->m, to).node;
    return near ? WHERE_NODE : WHERE_LEAF;
}

static double GBps(CommCost cost)
{
    return (double)LARGE / (double)cost.solo_ns;
}

/* plain: the same without slow links, where all GPUs of a kind are alike. */
static Reach reach_of(const RankGroup *g, const RankGroup *plain, uint32_t from, uint32_t to)
{
    Use way[RES_RANK_N + 2];
    uint32_t n = rank_group_way(g, from, to, way);
    Reach r = { .from = from,
                .first = to,
                .peers_n = 1,
                .where = where_is(g, from, to, way, n),
                .alone_GBps = GBps(rank_group_send(g, from, to, LARGE, false)),
                .all_GBps = GBps(rank_group_send(plain, from, to, LARGE, true)),
                .latency_us =
                    (double)rank_group_send(g, from, to, SMALL, false).solo_ns / 1e3 };
    r.all_GBps = fmin(r.all_GBps, r.alone_GBps);
    for (uint32_t i = 0; i < n; i++) {
        double rate = g->classes.resources[way[i].resource].bytes_per_ns;
        r.link_GBps = i == 0 || rate < r.link_GBps ? rate : r.link_GBps;
    }
    return r;
}

static bool same(double a, double b)
{
    return !(a < b) && !(a > b);
}

static bool alike(const Reach *a, const Reach *b)
{
    return a->from == b->from && a->where == b->where && same(a->link_GBps, b->link_GBps) &&
           same(a->alone_GBps, b->alone_GBps) && same(a->all_GBps, b->all_GBps) &&
           same(a->latency_us, b->latency_us);
}

static void add_reach(Reaches *all, Reach r)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (alike(&all->row[i], &r)) {
            all->row[i].peers_n++;
            return;
        }
    GROW(all->row, all->n, all->cap);
    all->row[all->n++] = r;
}

static void add_peers(Reaches *all, const RankGroup *g, const RankGroup *plain, uint32_t from)
{
    for (uint32_t to = 0; to < g->m->gpus_n; to++)
        if (to != from)
            add_reach(all, reach_of(g, plain, from, to));
}

static int compare_reaches(const void *pa, const void *pb)
{
    const Reach *a = pa, *b = pb;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->where != b->where)
        return a->where < b->where ? -1 : 1;
    return a->first < b->first ? -1 : 1;
}

/* ---- collectives ---- */

static const OpKind ops[] = { OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER,
                              OP_BROADCAST,  OP_REDUCE,     OP_ALL_TO_ALL,
                              OP_SEND };

typedef struct Row {
    OpKind kind;
    uint32_t ranks_n, nodes_n;
    CommCost small, large;
} Row;

enum { ROWS_MAX = 2 * ARRAY_N(ops) };

typedef struct Facts {
    const Machine *m;
    Reaches reach;
    Row row[ROWS_MAX];
    uint32_t rows_n;
} Facts;

static double busbw(const Row *r)
{
    double moved =
        r->kind == OP_SEND ? (double)LARGE : ring_traffic(r->kind, r->ranks_n, LARGE);
    return moved / (double)r->large.solo_ns;
}

static void add_collectives(Facts *f, const RankGroup *g)
{
    for (size_t i = 0; i < ARRAY_N(ops) && g->ranks_n > 1; i++) {
        Row *r = &f->row[f->rows_n++];
        *r = (Row){ .kind = ops[i], .ranks_n = g->ranks_n, .nodes_n = g->nodes_n };
        rank_group_cost(&r->small, g, ops[i], SMALL, COMM_ANY);
        rank_group_cost(&r->large, g, ops[i], LARGE, COMM_ANY);
    }
}

/* Of one node's GPUs, where nodes are alike. */
static bool find_node(Facts *f, const Machine *m, Err *err)
{
    RankGroup node;
    if (m->types_n > 1 || m->nodes_n == 1)
        return true;
    if (!rank_group_open(&node, m, 1, m->types[0].gpus_n, err))
        return false;
    add_collectives(f, &node);
    rank_group_close(&node);
    return true;
}

static bool find_facts(Facts *f, const Machine *m, Err *err)
{
    RankGroup all, plain;
    Machine even = *m; /* m keeps what it points to */
    even.slow_links_n = even.stragglers_n = 0;
    f->m = m;
    if (!find_node(f, m, err) || !rank_group_open(&all, m, m->nodes_n, m->gpus_n, err))
        return false;
    add_collectives(f, &all);
    bool ok = rank_group_open(&plain, &even, m->nodes_n, m->gpus_n, err);
    for (uint32_t t = 0; t < m->types_n && ok; t++)
        add_peers(&f->reach, &all, &plain, m->types[t].first_rank);
    if (ok)
        rank_group_close(&plain);
    rank_group_close(&all);
    if (f->reach.n > 0)
        qsort(f->reach.row, f->reach.n, sizeof *f->reach.row, compare_reaches);
    return ok;
}

/* ---- text ---- */

static void print_type(const NodeType *t)
{
    const IntraNode *in = &t->intra;
    char text[TEXT_CAP];
    printf("  %s node%s of %u x %s", text_number(text, t->count, 0), t->count > 1 ? "s" : "",
           (unsigned)t->gpus_n, t->gpu->name);
    if (in->kind != INTRA_NONE)
        printf(", %s of %.4g GB/s a GPU%s", intra_kind_names[in->kind], in->bytes_per_ns,
               in->nvls ? ", NVLS" : "");
    printf("\n");
}

static void print_network(const InterNode *inter)
{
    if (inter->kind == INTER_NONE) {
        printf("  no network between nodes\n");
        return;
    }
    printf("  %s, %u NIC%s of %.4g GB/s a node", inter_kind_names[inter->kind],
           (unsigned)inter->nics_per_node, inter->nics_per_node > 1 ? "s" : "",
           inter->bytes_per_ns);
    if (inter->nodes_per_leaf > 0)
        printf(", %u nodes a leaf, oversubscribed %.4g times", (unsigned)inter->nodes_per_leaf,
               inter->oversubscription);
    else if (inter->oversubscription > 1)
        printf(", oversubscribed %.4g times, but of no effect: nodes_per_leaf is not said",
               inter->oversubscription);
    printf("\n");
}

static void print_machine(const Machine *m)
{
    char text[TEXT_CAP], gpus[TEXT_CAP];
    printf("%s, %s GPU%s", text_name(text, m->name, TEXT_WIDTH_MAX / 2),
           text_number(gpus, m->gpus_n, 0), m->gpus_n > 1 ? "s" : "");
    if (m->price_usd_per_gpu_hour > 0)
        printf(", %s an hour each", text_usd(text, m->price_usd_per_gpu_hour));
    printf("\n");
    for (uint32_t t = 0; t < m->types_n; t++)
        print_type(&m->types[t]);
    if (m->types_n == 1 && m->gpus_per_host > 0 && m->gpus_per_host < m->types[0].gpus_n)
        printf("  a host has %u of a node's GPUs\n", (unsigned)m->gpus_per_host);
    print_network(&m->inter);
    for (uint32_t i = 0; i < m->slow_links_n; i++)
        printf("  between GPUs %u and %u: %.4g GB/s\n", (unsigned)m->slow_links[i].rank_a,
               (unsigned)m->slow_links[i].rank_b, m->slow_links[i].bytes_per_ns);
    for (uint32_t i = 0; i < m->stragglers_n; i++)
        printf("  GPU %u computes at %.4g of the others' speed\n",
               (unsigned)m->stragglers[i].rank, m->stragglers[i].compute);
    if (m->jitter > 0)
        printf("  kernels scatter by %.4g (standard deviation of the logarithm)\n", m->jitter);
}

static const char *over_what(const NodeType *t, Where where)
{
    switch (where) {
    case WHERE_NODE:
        return intra_kind_names[t->intra.kind];
    case WHERE_LEAF:
        return "NIC";
    case WHERE_BEYOND:
        return "NIC, leaf's uplinks";
    default:
        return "a link of its own";
    }
}

static void print_reach(const Facts *f, const NodeType *t)
{
    const Gpu *gpu = t->gpu;
    char text[TEXT_CAP];
    printf("\nGPU %-5u reaches %7s  %-20s %9s %9s %12s %9s\n", (unsigned)t->first_rank, "GPUs",
           "over", "link GB/s", "alone", "all at once", "8 B in");
    printf("%-16s %8s  %-20s %9.1f %9.1f\n", "its memory", "", "", gpu->memory_bytes_per_ns,
           gpu->memory_bytes_per_ns * gpu->memory_efficiency);
    printf("%-16s %8s  %-20s %9.1f\n", "its host", "", "", gpu->host_bytes_per_ns);
    for (uint32_t i = 0; i < f->reach.n; i++) {
        const Reach *r = &f->reach.row[i];
        if (r->from == t->first_rank)
            printf("%-16s %8s  %-20s %9.1f %9.1f %12.1f %6.2f us\n", where_names[r->where],
                   text_number(text, r->peers_n, 0), over_what(t, r->where), r->link_GBps,
                   r->alone_GBps, r->all_GBps, r->latency_us);
    }
}

static void print_collectives(const Facts *f)
{
    char ranks[TEXT_CAP], small[TEXT_CAP], large[TEXT_CAP];
    for (uint32_t i = 0; i < f->rows_n; i++) {
        const Row *r = &f->row[i];
        if (i == 0 || r->ranks_n != r[-1].ranks_n)
            printf("\n%-15s %7s %6s %11s %11s %11s  %s\n", "collective", "ranks", "nodes",
                   "8 B", "1 GiB", "busbw GB/s", "1 GiB by");
        printf("%-15s %7s %6u %11s %11s %11.1f  ", measured_op_word(r->kind),
               text_number(ranks, r->ranks_n, 0), (unsigned)r->nodes_n,
               text_seconds(small, (double)r->small.solo_ns / 1e9),
               text_seconds(large, (double)r->large.solo_ns / 1e9), busbw(r));
        printf("%s%s%s\n",
               comm_has_algorithm(r->kind) ? algorithm_names[r->large.algorithm] : "",
               comm_has_algorithm(r->kind) ? " " : "", protocol_names[r->large.protocol]);
    }
}

enum { PROSE_WIDTH = 100, PROSE_INDENT = 2 };

/* Words of a text of others, in lines that are indented. */
static void print_prose(const char *text)
{
    uint32_t column = 0;
    while (*text) {
        char word[TEXT_CAP];
        size_t n = 0;
        while (*text && *text != ' ' && n + 4 < sizeof word)
            n += printable_next(word + n, &text);
        word[n] = '\0';
        text += *text == ' ';
        uint32_t width = printable_width(word);
        bool fits = column > 0 && column + 1 + width <= PROSE_WIDTH;
        printf("%s%s", fits ? " " : column > 0 ? "\n  " : "  ", word);
        column = width + (fits ? column + 1 : PROSE_INDENT);
    }
    printf("\n");
}

static void print_sources(const Machine *m)
{
    if (!*m->provenance)
        return;
    printf("\nsources of what the file says\n");
    print_prose(m->provenance);
}

static void print_text(const Facts *f)
{
    print_machine(f->m);
    for (uint32_t t = 0; t < f->m->types_n; t++)
        print_reach(f, &f->m->types[t]);
    print_collectives(f);
    print_sources(f->m);
}

/* ---- JSON ---- */

/* null: the file says nothing. */
static void put_sources(JsonOut *j, const char *key, const char *provenance)
{
    json_put_text(j, key, *provenance ? provenance : NULL);
}

static void put_type(JsonOut *j, const NodeType *t)
{
    json_out_open(j, '{');
    json_put_uint(j, "nodes", t->count);
    json_put_uint(j, "gpus_per_node", t->gpus_n);
    json_put_uint(j, "first_rank", t->first_rank);
    json_put_text(j, "gpu", t->gpu->name);
    json_put_number(j, "memory_GBps", t->gpu->memory_bytes_per_ns);
    json_put_number(j, "host_GBps", t->gpu->host_bytes_per_ns);
    json_put_text(j, "intra_node", intra_kind_names[t->intra.kind]);
    json_put_number(j, "GBps", t->intra.bytes_per_ns);
    json_put_bool(j, "nvls", t->intra.nvls);
    put_sources(j, "gpu_provenance", t->gpu->provenance);
    json_out_close(j, '}');
}

static void put_network(JsonOut *j, const InterNode *inter)
{
    json_put_open(j, "inter_node", '{');
    json_put_text(j, "kind", inter_kind_names[inter->kind]);
    if (inter->kind != INTER_NONE) {
        json_put_uint(j, "nics_per_node", inter->nics_per_node);
        json_put_number(j, "GBps_per_nic", inter->bytes_per_ns);
        json_put_number(j, "oversubscription", inter->oversubscription);
        json_put_uint(j, "nodes_per_leaf", inter->nodes_per_leaf);
    }
    json_out_close(j, '}');
}

static void put_uneven(JsonOut *j, const Machine *m)
{
    json_put_open(j, "slow_links", '[');
    for (uint32_t i = 0; i < m->slow_links_n; i++) {
        json_out_open(j, '{');
        json_put_uint(j, "from", m->slow_links[i].rank_a);
        json_put_uint(j, "to", m->slow_links[i].rank_b);
        json_put_number(j, "GBps", m->slow_links[i].bytes_per_ns);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
    json_put_open(j, "stragglers", '[');
    for (uint32_t i = 0; i < m->stragglers_n; i++) {
        json_out_open(j, '{');
        json_put_uint(j, "rank", m->stragglers[i].rank);
        json_put_number(j, "compute", m->stragglers[i].compute);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
    json_put_number(j, "jitter", m->jitter);
}

static void put_reach(JsonOut *j, const Reach *r)
{
    static const char *const words[] = { "node", "cluster", "beyond_leaf", "slow_link" };
    json_out_open(j, '{');
    json_put_uint(j, "from", r->from);
    json_put_text(j, "where", words[r->where]);
    json_put_uint(j, "gpus", r->peers_n);
    json_put_uint(j, "first", r->first);
    json_put_number(j, "link_GBps", r->link_GBps);
    json_put_number(j, "alone_GBps", r->alone_GBps);
    json_put_number(j, "all_at_once_GBps", r->all_GBps);
    json_put_number(j, "latency_us", r->latency_us);
    json_out_close(j, '}');
}

static void put_row(JsonOut *j, const Row *r)
{
    json_out_open(j, '{');
    json_put_text(j, "op", measured_op_word(r->kind));
    json_put_uint(j, "ranks", r->ranks_n);
    json_put_uint(j, "nodes", r->nodes_n);
    json_put_number(j, "latency_us", (double)r->small.solo_ns / 1e3);
    json_put_uint(j, "size_bytes", LARGE);
    json_put_number(j, "time_us", (double)r->large.solo_ns / 1e3);
    json_put_number(j, "busbw_GBps", busbw(r));
    json_put_text(j, "algorithm",
                  comm_has_algorithm(r->kind) ? algorithm_names[r->large.algorithm] : NULL);
    json_put_text(j, "protocol", protocol_names[r->large.protocol]);
    json_out_close(j, '}');
}

/* Whether it could be written is for main to see and to say. */
static void print_json(const Facts *f)
{
    Err ignored = { 0 };
    JsonOut j = json_out_file(stdout, 2);
    json_out_open(&j, '{');
    json_put_text(&j, "name", f->m->name);
    json_put_uint(&j, "nodes", f->m->nodes_n);
    json_put_uint(&j, "gpus", f->m->gpus_n);
    json_put_known(&j, "gpus_per_host",
                   f->m->gpus_per_host > 0 ? (int64_t)f->m->gpus_per_host : -1);
    json_put_number(&j, "price_usd_per_gpu_hour",
                    f->m->price_usd_per_gpu_hour > 0 ? f->m->price_usd_per_gpu_hour : NAN);
    put_sources(&j, "provenance", f->m->provenance);
    json_put_open(&j, "node_types", '[');
    for (uint32_t t = 0; t < f->m->types_n; t++)
        put_type(&j, &f->m->types[t]);
    json_out_close(&j, ']');
    put_network(&j, &f->m->inter);
    put_uneven(&j, f->m);
    json_put_open(&j, "reach", '[');
    for (uint32_t i = 0; i < f->reach.n; i++)
        put_reach(&j, &f->reach.row[i]);
    json_out_close(&j, ']');
    json_put_open(&j, "collectives", '[');
    for (uint32_t i = 0; i < f->rows_n; i++)
        put_row(&j, &f->row[i]);
    json_out_close(&j, ']');
    json_out_close(&j, '}');
    json_out_end(&j, &ignored);
}

/* ---- the command ---- */

enum { OPT_NODES = 1, OPT_SET, OPT_JSON };

static const struct option long_options[] = { { "nodes", required_argument, NULL, OPT_NODES },
                                              { "set", required_argument, NULL, OPT_SET },
                                              { "json", no_argument, NULL, OPT_JSON },
                                              { "help", no_argument, NULL, OPTION_HELP },
                                              { NULL, 0, NULL, 0 } };

static void print_help(FILE *f)
{
    fprintf(f,
            "usage: lockstep cluster NAME [OPTION]...\n"
            "Shows a cluster as a simulation has it: who reaches whom, over what, how fast,\n"
            "what collectives take on it, and where its numbers come from.  NAME is built in\n"
            "(`lockstep list clusters`) or a .json file.\n\n"
            "  --nodes N        so many nodes, in place of its own number\n"
            "  --set KEY=VALUE  changes a key of the cluster, as in\n"
            "                   inter_node.nics_per_node=4; repeatable\n"
            "  --json           prints one JSON object\n");
}

static bool take_option(void *user, int option, Err *err)
{
    Options *o = user;
    o->json = o->json || option == OPT_JSON;
    if (option == OPT_NODES)
        return option_count(&o->nodes_n, "--nodes", optarg, 1, MACHINE_NODES_MAX, err);
    return option != OPT_SET || option_set(&o->set, optarg, err);
}

static bool parse(Options *o, int argc, char **argv, bool *help, Err *err)
{
    if (!options_walk(argc, argv, long_options, take_option, o, help, err) || *help)
        return *help;
    if (argc - optind != 1)
        return err_set(err,
                       argc == optind ? "a cluster is missing; `lockstep list clusters` has "
                                        "those built in"
                                      : "one cluster is expected, not %d",
                       argc - optind);
    o->name = argv[optind];
    return true;
}

static int cluster(const Options *o)
{
    Machine m;
    Err err = { 0 };
    Facts facts = { 0 };
    bool ok = cluster_open(&m, o->name, (uint32_t)o->nodes_n, o->set.settings, o->set.n, &err);
    ok = ok && find_facts(&facts, &m, &err);
    if (!ok)
        fprintf(stderr, "lockstep: %s\n", err.text);
    else if (o->json)
        print_json(&facts);
    else
        print_text(&facts);
    free(facts.reach.row);
    machine_free(&m);
    return ok ? EXIT_DONE : EXIT_COULD_NOT;
}

int cmd_cluster(int argc, char **argv)
{
    Options o = { 0 };
    Err err = { 0 };
    bool help = false;
    int status = EXIT_DONE;
    if (!parse(&o, argc, argv, &help, &err))
        status = options_wrong("cluster", &err);
    else if (help)
        print_help(stdout);
    else
        status = cluster(&o);
    free(o.set.settings);
    return status;
}
