/*
 * cmd_collective.c - lockstep collective OP --cluster NAME: the table nccl-tests would print.
 *
 *     sizes      from --size, doubled; or those of a log (--against), beside what it measured
 *     ranks      as many as the cluster has; of --nodes nodes, of --ranks GPUs spread over them
 *     time       sim/network.h's closed form (fluid), or message by message (chunked,
 *                sim/chunked.h)
 *
 * Sizes, algbw and busbw are counted as nccl-tests does.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/json_out.h"
#include "core/now.h"
#include "profile/calibrate.h"
#include "sim/chunked.h"
#include "sim/cluster_open.h"
#include "sim/cmd.h"
#include "sim/cmd_options.h"
#include "sim/progress.h"
#include "sim/rank_group.h"
#include "sim/texts.h"
#include "traces/nccl_tests.h"

/* NCCL's log: "24 coll channels, 16 nvls channels" on 8 H100; the first is the GPU's comm_sms. */
enum { NVLS_CHANNELS = 16 };
#define SIZE_MAX_BYTES ((uint64_t)1 << 50)

typedef struct Options {
    OpKind kind;
    const char *op, *cluster, *against;
    uint64_t nodes_n, ranks_n; /* 0: not said */
    uint64_t size_first, size_last;
    bool sized; /* --size was given */
    CommOnly only;
    bool ideal, chunked, json;
    SettingList set;
} Options;

/* ---- rows ---- */

typedef struct Row {
    uint64_t bytes;
    double ns;
    CommCost cost;
    double measured_ns; /* NAN: nothing was */
} Row;

/* One table: a size range, or one test of a log. */
typedef struct Table {
    uint32_t ranks_n, nodes_n;
    Row *row;
    uint32_t n, cap;
} Table;

typedef struct Work {
    const Options *o;
    Machine m;
    NcclLog log;
    Table *table;
    uint32_t n, cap;
    uint32_t left_n;   /* rows of the log that say nothing: wrong values, uneven nodes */
    Progress progress; /* by row */
    uint64_t events;
    double wall_s;
} Work;

static Table *add_table(Work *w, uint32_t ranks_n, uint32_t nodes_n)
{
    GROW(w->table, w->n, w->cap);
    w->table[w->n] = (Table){ .ranks_n = ranks_n, .nodes_n = nodes_n };
    return &w->table[w->n++];
}

static void add_row(Table *t, uint64_t bytes, double measured_ns)
{
    GROW(t->row, t->n, t->cap);
    t->row[t->n++] = (Row){ .bytes = bytes, .measured_ns = measured_ns };
}

static void free_work(Work *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        free(w->table[i].row);
    free(w->table);
    nccl_log_free(&w->log);
    machine_free(&w->m);
}

/* ---- what is asked ---- */

static void add_sizes(Work *w, uint32_t ranks_n, uint32_t nodes_n)
{
    const Options *o = w->o;
    Table *t = add_table(w, ranks_n, nodes_n);
    for (uint64_t b = o->size_first; b < o->size_last; b *= 2)
        add_row(t, b, NAN);
    add_row(t, o->size_last, NAN);
}

static bool is_of_op(const Options *o, const NcclTest *t, const NcclRow *r)
{
    return measured_op_of(t->op) == o->kind && !r->in_place;
}

static bool is_asked(const Options *o, const NcclTest *t, const NcclRow *r, uint32_t nodes_n)
{
    return (!o->sized || (r->size_bytes >= o->size_first && r->size_bytes <= o->size_last)) &&
           (!o->ranks_n || t->ranks_n == o->ranks_n) && (!o->nodes_n || nodes_n == o->nodes_n);
}

/* ranks_n on nodes_n: one of the sound ones. */
static bool none_of_log(const Options *o, uint32_t of_op, uint32_t sound, uint32_t ranks_n,
                        uint32_t nodes_n, Err *err)
{
    if (of_op == 0)
        return err_set(err, "'%.200s' has no out-of-place row of %s", o->against, o->op);
    if (sound == 0)
        return err_set(
            err,
            "'%.200s' has %u rows of %s, but none with right values, a time, two ranks "
            "or more and as many on each node",
            o->against, (unsigned)of_op, o->op);
    return err_set(err,
                   "'%.200s' has %u rows of %s, such as of %u ranks on %u node%s, but none as "
                   "--nodes, --ranks and --size say",
                   o->against, (unsigned)sound, o->op, (unsigned)ranks_n, (unsigned)nodes_n,
                   nodes_n == 1 ? "" : "s");
}

/* A table for each test of the log that has rows of the op, on nodes as the machine has them. */
static bool add_log(Work *w, Err *err)
{
    const Options *o = w->o;
    uint32_t of_op = 0, sound = 0, ranks_n = 0, on_nodes_n = 0;
    if (!nccl_log_read(&w->log, o->against, err))
        return false;
    for (uint32_t i = 0, test = NONE_U32; i < w->log.rows_n; i++) {
        const NcclRow *r = &w->log.rows[i];
        const NcclTest *t = &w->log.tests[r->test];
        uint32_t nodes_n = machine_nodes_of_hosts(&w->m, t->hosts_n);
        bool is = is_of_op(o, t, r), use = is && nccl_row_is_sound(t, r, nodes_n);
        of_op += is;
        sound += use;
        ranks_n = use ? t->ranks_n : ranks_n;
        on_nodes_n = use ? nodes_n : on_nodes_n;
        if (!use || !is_asked(o, t, r, nodes_n))
            continue;
        if (r->test != test)
            add_table(w, t->ranks_n, nodes_n);
        test = r->test;
        add_row(&w->table[w->n - 1], r->size_bytes, r->time_us * 1e3);
    }
    w->left_n = of_op - sound;
    return w->n > 0 || none_of_log(o, of_op, sound, ranks_n, on_nodes_n, err);
}

/* ---- the machine ---- */

/* What a part of a mesh's or a ring's GPUs have of their links is no overhead: it stays. */
static RankCurve ideal_curve(const NodeType *t)
{
    const IntraNode *in = &t->intra;
    RankCurve c = in->efficiency;
    double all = rank_curve_at(&c, t->gpus_n);
    if ((in->kind != INTRA_NVLINK_MESH && in->kind != INTRA_RING) || !(all > 0))
        return (RankCurve){ .n = 1, .ranks = { 1 }, .value = { 1 } };
    for (uint32_t i = 0; i < c.n; i++)
        c.value[i] = fmin(c.value[i] / all, 1);
    return c;
}

/* One channel, latency and bandwidth of the links, nothing else. */
static void idealise(Machine *m)
{
    m->ideal_collectives = true;
    m->measured_n = 0;
    for (Protocol p = 0; p < PROTOCOL_N; p++)
        m->collective_base_ns[p] = m->tree_base_ns[p] = m->p2p_base_ns[p] = 0;
    for (uint32_t t = 0; t < m->types_n; t++) {
        IntraNode *in = &m->types[t].intra;
        in->efficiency = ideal_curve(&m->types[t]);
        in->nvls = false;
        in->channels = 0;
    }
    m->inter.efficiency = 1;
    m->inter.p2p_efficiency = 0;
    m->inter.channel_bytes_per_ns = 0;
    m->inter.message_ns.n = 0;
}

static uint32_t nodes_of_log(const Work *w)
{
    uint32_t nodes_n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        nodes_n = w->table[i].nodes_n > nodes_n ? w->table[i].nodes_n : nodes_n;
    return nodes_n;
}

/* nodes_n 0: as many as it has. */
static bool open_machine(Work *w, uint32_t nodes_n, Err *err)
{
    const Options *o = w->o;
    const SettingList *set = &o->set;
    machine_free(&w->m);
    if (!cluster_open(&w->m, o->cluster, nodes_n, set->settings, set->n, err))
        return false;
    if (o->ideal)
        idealise(&w->m);
    return true;
}

/* What the log has, with more nodes where it has more than the machine. */
static bool open_log(Work *w, Err *err)
{
    if (!add_log(w, err))
        return false;
    uint32_t nodes_n = nodes_of_log(w);
    return w->m.types_n > 1 || w->m.nodes_n >= nodes_n || open_machine(w, nodes_n, err);
}

static bool nodes_are_alike(const Machine *m, uint64_t ranks_n, Err *err)
{
    if (m->types_n == 1 || ranks_n == m->gpus_n)
        return true;
    return err_set(err,
                   "nodes of '%.60s' are not alike: all %u GPUs take part, leave --ranks out",
                   m->name, (unsigned)m->gpus_n);
}

/* --ranks over --nodes, or over the fewest nodes that hold them. */
static bool spread(const Work *w, uint32_t *ranks_n, uint32_t *nodes_n, Err *err)
{
    const Machine *m = &w->m;
    uint32_t each = m->types[0].gpus_n;
    uint64_t ranks = w->o->ranks_n ? w->o->ranks_n : m->gpus_n, nodes = m->nodes_n;
    if (!nodes_are_alike(m, ranks, err))
        return false;
    if (m->types_n == 1 && !w->o->nodes_n)
        nodes = min_u64(nodes, div_up_u64(ranks, each));
    *ranks_n = (uint32_t)ranks;
    *nodes_n = (uint32_t)nodes;
    if (m->types_n > 1 || (ranks % nodes == 0 && ranks / nodes <= each))
        return true;
    return err_set(err,
                   "--ranks %" PRIu64 " on %" PRIu64
                   " node%s: as many on each are expected, at "
                   "most %u; --nodes N says on how many nodes",
                   ranks, nodes, nodes > 1 ? "s" : "", (unsigned)each);
}

/* ---- times ---- */

/* What the user left to choose from; message by message there are rings. */
static CommOnly choice_of(const Options *o)
{
    CommOnly only = o->only;
    if (o->chunked)
        only.algorithm = ALGORITHM_RING;
    return only;
}

static const char *what_there_is(const Work *w)
{
    if (w->m.ideal_collectives)
        return ", where only Ring Simple is ideal";
    if (!comm_has_algorithm(w->o->kind))
        return ", whose sends know LL and Simple";
    return ": trees are for all_reduce between nodes, NVLS for all_reduce within one that has "
           "it, NVLSTree for it between such, the latter two by Simple alone";
}

static bool not_offered(const Work *w, const RankGroup *g, Err *err)
{
    const CommOnly *only = &w->o->only;
    const char *algorithm =
        only->algorithm < ALGORITHM_N ? algorithm_names[only->algorithm] : "";
    const char *protocol = only->protocol < PROTOCOL_N ? protocol_names[only->protocol] : "";
    return err_set(err, "no %s by %s%s%s of %u ranks on %u node%s of '%.60s'%s", w->o->op,
                   algorithm, *algorithm && *protocol ? " " : "", protocol,
                   (unsigned)g->ranks_n, (unsigned)g->nodes_n, g->nodes_n > 1 ? "s" : "",
                   w->m.name, what_there_is(w));
}

/* Some seconds' worth. */
#define MESSAGES_MAX 1e9

static bool is_followed(const RankGroup *g, const Options *o, const Row *r, Err *err)
{
    double messages = chunked_messages(g, o->kind, r->bytes, r->cost.protocol);
    return messages <= MESSAGES_MAX ||
           err_set(err,
                   "--fidelity chunked: %s of %" PRIu64 " bytes on %u ranks has up to %.3g "
                   "messages, %.0g are allowed; take fewer ranks or a smaller --size",
                   o->op, r->bytes, (unsigned)g->ranks_n, messages, MESSAGES_MAX);
}

static bool fill_row(Work *w, const RankGroup *g, Row *r, Err *err)
{
    const Options *o = w->o;
    if (!rank_group_cost(&r->cost, g, o->kind, r->bytes, choice_of(o)))
        return not_offered(w, g, err);
    r->ns = (double)r->cost.solo_ns;
    if (o->chunked && !is_followed(g, o, r, err))
        return false;
    if (o->chunked)
        r->ns = chunked_ns(g, o->kind, r->bytes, &r->cost, &w->events);
    w->events += !o->chunked;
    return true;
}

static bool fill_table(Work *w, const Table *t, Err *err)
{
    RankGroup g;
    if (!rank_group_open(&g, &w->m, t->nodes_n, t->ranks_n, err))
        return false;
    bool ok = true;
    for (uint32_t i = 0; i < t->n && ok; i++) {
        ok = fill_row(w, &g, &t->row[i], err);
        progress_end(&(ProgressPart){ .of = &w->progress });
    }
    rank_group_close(&g);
    return ok;
}

static bool fits(const Work *w, const Table *t, Err *err)
{
    const Machine *m = &w->m;
    if (m->types_n > 1)
        return err_set(err, "nodes of '%.60s' are not alike, those of a log are", m->name);
    if (t->nodes_n <= m->nodes_n && t->ranks_n / t->nodes_n <= m->types[0].gpus_n)
        return true;
    return err_set(err, "'%.200s' has %u ranks on %u node%s, which '%.60s' does not hold",
                   w->o->against, (unsigned)t->ranks_n, (unsigned)t->nodes_n,
                   t->nodes_n > 1 ? "s" : "", m->name);
}

/* Of the first test that is shown, as the head of a table names the cluster's GPU alone. */
static void say_other_gpu(const Work *w)
{
    const char *gpu = w->m.types[0].gpu->name;
    for (uint32_t i = 0; i < w->log.tests_n; i++) {
        const NcclTest *t = &w->log.tests[i];
        if (measured_op_of(t->op) != w->o->kind || !gpu_names_differ(t->gpu, gpu, share_dir()))
            continue;
        fprintf(stderr, "lockstep: '%.200s' was measured on %.100s, '%.60s' has %.60s\n",
                t->file, t->gpu, w->m.name, gpu);
        return;
    }
}

/* Of the tests of the op: rows before that are shown all the same. */
static void say_cut(const Work *w)
{
    for (uint32_t i = 0; i < w->log.tests_n; i++) {
        const NcclTest *t = &w->log.tests[i];
        if (measured_op_of(t->op) == w->o->kind)
            nccl_say_cut(stderr, t);
    }
}

static bool find_tables(Work *w, Err *err)
{
    uint32_t ranks_n = 0, nodes_n = 0;
    if (!open_machine(w, (uint32_t)w->o->nodes_n, err))
        return false;
    if (w->o->against && !open_log(w, err))
        return false;
    for (uint32_t i = 0; i < w->n; i++)
        if (!fits(w, &w->table[i], err))
            return false;
    say_other_gpu(w);
    say_cut(w);
    if (w->o->against)
        return true;
    if (!spread(w, &ranks_n, &nodes_n, err))
        return false;
    if (ranks_n < 2)
        return err_set(err,
                       "a collective needs two ranks: '%.60s' has one GPU; --nodes N has "
                       "more",
                       w->m.name);
    add_sizes(w, ranks_n, nodes_n);
    return true;
}

static bool fill(Work *w, Err *err)
{
    int64_t begin = now_ns();
    bool ok = find_tables(w, err);
    progress_open(&w->progress);
    for (uint32_t i = 0; i < w->n; i++)
        progress_expect(&w->progress, w->table[i].n);
    for (uint32_t i = 0; i < w->n && ok; i++)
        ok = fill_table(w, &w->table[i], err);
    progress_close(&w->progress);
    w->wall_s = (double)(now_ns() - begin) / 1e9;
    return ok;
}

/* ---- numbers ---- */

static double algbw(const Row *r)
{
    return (double)r->bytes / r->ns;
}

static double busbw(const Options *o, const Table *t, const Row *r)
{
    return o->kind == OP_SEND ? algbw(r) : ring_traffic(o->kind, t->ranks_n, r->bytes) / r->ns;
}

/* 0: not known. */
static uint32_t channels(const Work *w, const Row *r)
{
    if (w->m.ideal_collectives)
        return 1;
    if (!comm_has_algorithm(w->o->kind))
        return 0;
    bool nvls = r->cost.algorithm == ALGORITHM_NVLS || r->cost.algorithm == ALGORITHM_NVLS_TREE;
    return nvls ? NVLS_CHANNELS : (uint32_t)w->m.types[0].gpu->comm_sms;
}

static double error_pct(const Row *r)
{
    return 100 * (r->ns / r->measured_ns - 1);
}

typedef struct Errors {
    CalibrateErrors of;
    double bias_pct;
} Errors;

/* Of all rows that were measured. */
static Errors errors_of(const Work *w)
{
    Errors e = { .bias_pct = 0 };
    uint32_t n = 0, cap = 0;
    for (uint32_t t = 0; t < w->n; t++)
        cap += w->table[t].n;
    double *measured = mem_zero(cap, sizeof *measured),
           *predicted = mem_zero(cap, sizeof *predicted);
    for (uint32_t t = 0; t < w->n; t++)
        for (uint32_t i = 0; i < w->table[t].n; i++) {
            const Row *r = &w->table[t].row[i];
            e.bias_pct += error_pct(r) / cap;
            measured[n] = r->measured_ns;
            predicted[n++] = r->ns;
        }
    e.of = calibrate_errors(measured, predicted, n, NULL, 0);
    free(measured);
    free(predicted);
    return e;
}

/* ---- text ---- */

static void print_head(const Work *w, const Table *t)
{
    char name[TEXT_CAP], ranks[TEXT_CAP];
    printf("%s on %s: %s ranks on %u node%s, %s%s%s%s\n", w->o->op,
           text_name(name, w->m.name, TEXT_WIDTH_MAX / 2), text_number(ranks, t->ranks_n, 0),
           (unsigned)t->nodes_n, t->nodes_n > 1 ? "s" : "", w->m.types[0].gpu->name,
           w->m.types_n > 1 ? " and others" : "", w->o->chunked ? ", message by message" : "",
           w->o->ideal ? ", ideal" : "");
    printf("\n%14s %12s %9s %9s  %-13s %4s", "size B", "time us", "algbw", "busbw", "GB/s by",
           "ch");
    printf(w->o->against ? "  %12s %8s\n" : "\n", "measured us", "error");
}

static void print_row(const Work *w, const Table *t, const Row *r)
{
    bool pairs = !comm_has_algorithm(w->o->kind);
    char by[32], ch[16] = "-";
    snprintf(by, sizeof by, "%s%s%s", pairs ? "" : algorithm_names[r->cost.algorithm],
             pairs ? "" : " ", protocol_names[r->cost.protocol]);
    if (channels(w, r) > 0)
        snprintf(ch, sizeof ch, "%u", (unsigned)channels(w, r));
    printf("%14" PRIu64 " %12.2f %9.3f %9.3f  %-13s %4s", r->bytes, r->ns / 1e3, algbw(r),
           busbw(w->o, t, r), by, ch);
    if (w->o->against)
        printf("  %12.2f %+7.1f%%", r->measured_ns / 1e3, error_pct(r));
    printf("\n");
}

static void print_text(const Work *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const Table *t = &w->table[i];
        double sum = 0;
        if (i > 0)
            printf("\n");
        print_head(w, t);
        for (uint32_t k = 0; k < t->n; k++) {
            print_row(w, t, &t->row[k]);
            sum += busbw(w->o, t, &t->row[k]);
        }
        printf("\naverage busbw %.3f GB/s\n", sum / t->n);
    }
    if (w->o->chunked)
        printf("%" PRIu64 " messages in %.3f s\n", w->events, w->wall_s);
    if (!w->o->against)
        return;
    Errors e = errors_of(w);
    printf(
        "%u rows: error %.1f %% in the median, %.1f %% at the 90th percentile, %+.1f %% in the "
        "mean\n",
        (unsigned)e.of.n, e.of.median_pct, e.of.p90_pct, e.bias_pct);
    if (w->left_n > 0)
        printf("not used: %u rows with wrong values, no time, or of uneven nodes\n",
               (unsigned)w->left_n);
}

/* ---- JSON ---- */

static void put_row(JsonOut *j, const Work *w, const Table *t, const Row *r)
{
    json_out_open(j, '{');
    json_put_uint(j, "size_bytes", r->bytes);
    json_put_number(j, "time_us", r->ns / 1e3);
    json_put_number(j, "algbw_GBps", algbw(r));
    json_put_number(j, "busbw_GBps", busbw(w->o, t, r));
    json_put_text(j, "algorithm",
                  comm_has_algorithm(w->o->kind) ? algorithm_names[r->cost.algorithm] : NULL);
    json_put_text(j, "protocol", protocol_names[r->cost.protocol]);
    json_put_known(j, "channels", (int64_t)channels(w, r) - (channels(w, r) == 0));
    if (w->o->against) {
        json_put_uint(j, "ranks", t->ranks_n);
        json_put_uint(j, "nodes", t->nodes_n);
        json_put_number(j, "measured_us", r->measured_ns / 1e3);
        json_put_number(j, "error_pct", error_pct(r));
    }
    json_out_close(j, '}');
}

static void put_errors(JsonOut *j, const Work *w)
{
    Errors e = errors_of(w);
    json_put_open(j, "against", '{');
    json_put_text(j, "log", w->o->against);
    json_put_uint(j, "rows", e.of.n);
    json_put_uint(j, "not_used", w->left_n);
    json_put_number(j, "median_abs_error_pct", e.of.median_pct);
    json_put_number(j, "p90_abs_error_pct", e.of.p90_pct);
    json_put_number(j, "bias_pct", e.bias_pct);
    json_out_close(j, '}');
}

/* Whether it could be written is for main to see and to say. */
static void print_json(const Work *w)
{
    Err ignored = { 0 };
    JsonOut j = json_out_file(stdout, 2);
    json_out_open(&j, '{');
    json_put_text(&j, "op", w->o->op);
    json_put_text(&j, "cluster", w->m.name);
    json_put_text(&j, "gpu", w->m.types[0].gpu->name);
    json_put_text(&j, "fidelity", w->o->chunked ? "chunked" : "fluid");
    if (!w->o->against) {
        json_put_uint(&j, "ranks", w->table[0].ranks_n);
        json_put_uint(&j, "nodes", w->table[0].nodes_n);
    }
    json_put_open(&j, "rows", '[');
    for (uint32_t i = 0; i < w->n; i++)
        for (uint32_t k = 0; k < w->table[i].n; k++)
            put_row(&j, w, &w->table[i], &w->table[i].row[k]);
    json_out_close(&j, ']');
    if (w->o->against)
        put_errors(&j, w);
    json_put_open(&j, "sim", '{');
    json_put_uint(&j, "events", w->events);
    json_put_number(&j, "wall_s", w->wall_s);
    json_out_close(&j, '}');
    json_out_close(&j, '}');
    json_out_end(&j, &ignored);
}

/* ---- arguments ---- */

enum {
    OPT_CLUSTER = 1,
    OPT_NODES,
    OPT_RANKS,
    OPT_SIZE,
    OPT_ALGORITHM,
    OPT_PROTOCOL,
    OPT_FIDELITY,
    OPT_AGAINST,
    OPT_SET,
    OPT_JSON
};

static const struct option long_options[] = {
    { "cluster", required_argument, NULL, OPT_CLUSTER },
    { "nodes", required_argument, NULL, OPT_NODES },
    { "ranks", required_argument, NULL, OPT_RANKS },
    { "size", required_argument, NULL, OPT_SIZE },
    { "algorithm", required_argument, NULL, OPT_ALGORITHM },
    { "protocol", required_argument, NULL, OPT_PROTOCOL },
    { "fidelity", required_argument, NULL, OPT_FIDELITY },
    { "against", required_argument, NULL, OPT_AGAINST },
    { "set", required_argument, NULL, OPT_SET },
    { "json", no_argument, NULL, OPT_JSON },
    { "help", no_argument, NULL, OPTION_HELP },
    { NULL, 0, NULL, 0 }
};

static const char op_words[] =
    "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, send_recv";

static void print_help(FILE *f)
{
    fprintf(
        f,
        "usage: lockstep collective OP --cluster NAME [OPTION]...\n"
        "Prints the table that nccl-tests would print on a cluster: time, algbw and busbw of\n"
        "a collective by size, as a simulation charges it.\n"
        "OP is %s.\n"
        "\n"
        "  --cluster NAME      a built-in cluster or a .json file\n"
        "  --nodes N           so many nodes, in place of the cluster's own number\n"
        "  --ranks N           so many GPUs, as many on each node; all where it is not given\n"
        "  --size A..B         sizes, doubled from A to B; 8..8GiB where it is not given\n"
        "  --algorithm A       ring, tree, nvls or nvlstree, in place of the fastest\n"
        "  --protocol P        LL, LL128 or Simple, in place of the fastest; or ideal: one\n"
        "                      channel, latency and bandwidth of the links, nothing else\n"
        "  --fidelity WHAT     fluid, a closed form (the default), or chunked: a ring message\n"
        "                      by message\n"
        "  --against LOG       the sizes of a log of nccl-tests, beside what it measured\n"
        "  --set KEY=VALUE     changes a key of the cluster; repeatable\n"
        "  --json              prints one JSON object\n",
        op_words);
}

/* A size alone, or two. */
static bool take_sizes(Options *o, const char *text, Err *err)
{
    char first[64];
    const char *dots = strstr(text, "..");
    size_t n = dots ? (size_t)(dots - text) : strlen(text);
    o->sized = true;
    if (n < sizeof first) {
        memcpy(first, text, n);
        first[n] = '\0';
        bool ok = size_parse(first, &o->size_first) &&
                  size_parse(dots ? dots + 2 : first, &o->size_last);
        if (ok && o->size_first > 0 && o->size_first <= o->size_last &&
            o->size_last <= SIZE_MAX_BYTES)
            return true;
    }
    return err_set(
        err,
        "--size takes a size or two as in 8..8GiB or 1KiB..1MB, from 1 B to 1024 TiB, "
        "not '%.60s'",
        text);
}

static int word_in(const char *const *names, int n, const char *text)
{
    int i = 0;
    while (i < n && strcasecmp(names[i], text) != 0)
        i++;
    return i;
}

static bool take_algorithm(Options *o, const char *text, Err *err)
{
    int i = word_in(algorithm_names, ALGORITHM_N, text);
    o->only.algorithm = (Algorithm)i;
    return i < ALGORITHM_N ||
           err_set(err, "--algorithm takes ring, tree, nvls or nvlstree, not '%.60s'", text);
}

static bool take_protocol(Options *o, const char *text, Err *err)
{
    int i = word_in(protocol_names, PROTOCOL_N, text);
    o->only.protocol = (Protocol)i;
    o->ideal = strcasecmp(text, "ideal") == 0;
    return i < PROTOCOL_N || o->ideal ||
           err_set(err, "--protocol takes LL, LL128, Simple or ideal, not '%.60s'", text);
}

static bool take_fidelity(Options *o, const char *text, Err *err)
{
    o->chunked = strcmp(text, "chunked") == 0;
    return o->chunked || strcmp(text, "fluid") == 0 ||
           err_set(err, "--fidelity takes fluid or chunked, not '%.60s'", text);
}

static bool take_option(void *user, int option, Err *err)
{
    Options *o = user;
    switch (option) {
    case OPT_CLUSTER:
        o->cluster = optarg;
        return true;
    case OPT_NODES:
        return option_count(&o->nodes_n, "--nodes", optarg, 1, MACHINE_NODES_MAX, err);
    case OPT_RANKS:
        return option_count(&o->ranks_n, "--ranks", optarg, 2, MACHINE_GPUS_MAX, err);
    case OPT_SIZE:
        return take_sizes(o, optarg, err);
    case OPT_ALGORITHM:
        return take_algorithm(o, optarg, err);
    case OPT_PROTOCOL:
        return take_protocol(o, optarg, err);
    case OPT_FIDELITY:
        return take_fidelity(o, optarg, err);
    case OPT_AGAINST:
        o->against = optarg;
        return true;
    case OPT_SET:
        return option_set(&o->set, optarg, err);
    default:
        o->json = true;
        return true;
    }
}

static bool check(const Options *o, Err *err)
{
    if (!o->cluster)
        return err_set(err,
                       "--cluster is missing; `lockstep list clusters` has those built in");
    if (o->chunked && !chunked_knows(o->kind))
        return err_set(err, "--fidelity chunked follows rings, which %s has none of", o->op);
    if (o->chunked && o->only.algorithm != ALGORITHM_N && o->only.algorithm != ALGORITHM_RING)
        return err_set(err, "--fidelity chunked follows rings, not --algorithm %s",
                       algorithm_names[o->only.algorithm]);
    return true;
}

static bool parse(Options *o, int argc, char **argv, bool *help, Err *err)
{
    if (!options_walk(argc, argv, long_options, take_option, o, help, err) || *help)
        return *help;
    if (argc - optind != 1)
        return err_set(err,
                       argc == optind ? "a collective is missing: %s"
                                      : "one collective is expected: %s",
                       op_words);
    o->op = argv[optind];
    o->kind = measured_op_of(o->op);
    if (o->kind == OP_KIND_N)
        return err_set(err, "unknown collective '%.60s', allowed: %s", o->op, op_words);
    return check(o, err);
}

/* ---- the command ---- */

static int collective(const Options *o)
{
    Work w = { .o = o };
    Err err = { 0 };
    bool ok = fill(&w, &err);
    if (!ok)
        fprintf(stderr, "lockstep: %s\n", err.text);
    else if (o->json)
        print_json(&w);
    else
        print_text(&w);
    free_work(&w);
    return ok ? EXIT_DONE : EXIT_COULD_NOT;
}

int cmd_collective(int argc, char **argv)
{
    Options o = { .only = { ALGORITHM_N, PROTOCOL_N }, .size_first = 8, .size_last = 8 * GIB };
    Err err = { 0 };
    bool help = false;
    int status = EXIT_DONE;
    if (!parse(&o, argc, argv, &help, &err))
        status = options_wrong("collective", &err);
    else if (help)
        print_help(stdout);
    else
        status = collective(&o);
    free(o.set.settings);
    return status;
}
