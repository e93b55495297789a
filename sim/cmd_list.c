/*
 * cmd_list.c - lockstep list WORD: what is built in, one name a line with what it is.
 *
 * Each word has a function that fills rows; printing, as text or JSON, knows
 * only rows.  A file that cannot be read keeps its line, says why on stderr and
 * makes the exit status 1: the others are still of use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_out.h"
#include "core/machine.h"
#include "sim/build.h"
#include "sim/cmd.h"
#include "sim/scenario.h"
#include "sim/software.h"
#include "sim/texts.h"
#include "traces/formats.h"

enum { NUMBERS_MAX = 4 };

typedef struct Number {
    const char *key; /* in JSON; the unit stands in it */
    double value;
} Number;

typedef enum Can { CAN_NOT_SAID, CAN, CAN_NOT_YET } Can;

typedef struct Row {
    const char *name, *about;
    Can can; /* be simulated, where that is a question */
    uint32_t numbers_n;
    Number numbers[NUMBERS_MAX];
} Row;

typedef struct Rows {
    Arena arena;
    Row *row;
    uint32_t n, cap;
    bool complete; /* no file failed */
} Rows;

static Row *add_row(Rows *rows, const char *name, const char *about)
{
    GROW(rows->row, rows->n, rows->cap);
    rows->row[rows->n] = (Row){ .name = name, .about = about };
    return &rows->row[rows->n++];
}

static void add_number(Row *row, const char *key, double value)
{
    ASSERT(row->numbers_n < NUMBERS_MAX);
    row->numbers[row->numbers_n++] = (Number){ key, value };
}

/* ---- things with a file each ---- */

/* Makes the row of one name; node is that name as JSON, for the readers. */
typedef bool FillRow(Row *row, Arena *arena, JsonNode node, Err *err);

static void add_files(Rows *rows, const char *folder, FillRow *fill)
{
    const char *const *names;
    uint32_t n = share_names(&names, &rows->arena, folder);
    for (uint32_t i = 0; i < n; i++) {
        Err err = { 0 };
        const char *text = arena_printf(&rows->arena, "\"%s\"", names[i]);
        JsonDoc *doc = json_parse(text, strlen(text), folder, &err);
        Row *row = add_row(rows, names[i], "");
        if (!doc || !fill(row, &rows->arena, json_root(doc), &err)) {
            fprintf(stderr, "lockstep: %s\n", err.text);
            row->about = "cannot be read";
            rows->complete = false;
        }
        json_close(doc);
    }
}

static const char *model_shape(Arena *arena, const Model *m)
{
    if (m->kind == MODEL_MLP)
        return arena_printf(arena, "mlp, %u linear layers", (unsigned)m->u.mlp.widths_n - 1);
    if (m->kind == MODEL_CONVNET)
        return arena_printf(arena, "convnet, %u classes", (unsigned)m->u.convnet.classes);
    const Transformer *t = &m->u.transformer;
    const char *experts =
        t->experts ? arena_printf(arena, ", %u experts", (unsigned)t->experts) : "";
    return arena_printf(arena, "transformer, %u layers of %u%s", (unsigned)t->layers,
                        (unsigned)t->hidden, experts);
}

static bool fill_model(Row *row, Arena *arena, JsonNode node, Err *err)
{
    Model m;
    if (!model_read(&m, arena, node, share_dir(), err))
        return false;
    double all = (double)model_params(&m), active = (double)model_active_params(&m);
    add_number(row, "parameters", all);
    add_number(row, "active_parameters", active);
    char whole[TEXT_CAP], part[TEXT_CAP];
    row->about = arena_printf(arena, "%s parameters%s%s, %s", text_count(whole, all),
                              active < all ? ", " : "",
                              active < all ? strcat(text_count(part, active), " active") : "",
                              model_shape(arena, &m));
    return true;
}

static bool fill_gpu(Row *row, Arena *arena, JsonNode node, Err *err)
{
    const Gpu *gpu = gpu_read(arena, node, share_dir(), err);
    if (!gpu)
        return false;
    double memory_GB = (double)gpu->memory_bytes / 1e9;
    add_number(row, "memory_GB", memory_GB);
    add_number(row, "memory_GBps", gpu->memory_bytes_per_ns);
    const char *peaks = "";
    for (int t = DTYPE_FP8; t >= 0; t--) {
        double tflops = gpu->peak_flops_per_ns[t] / 1e3;
        if (tflops > 0)
            peaks = arena_printf(arena, ", %s %.4g%s", dtype_names[t], tflops, peaks);
    }
    row->about = arena_printf(arena, "%.4g GB at %.4g GB/s; TFLOP/s: %s", memory_GB,
                              gpu->memory_bytes_per_ns, *peaks ? peaks + 2 : "none");
    return true;
}

static const char *links_of(Arena *arena, const Machine *m)
{
    const IntraNode *in = &m->types[0].intra;
    const char *intra = "", *inter = "";
    if (in->kind != INTRA_NONE)
        intra =
            arena_printf(arena, ", %s %.4g GB/s", intra_kind_names[in->kind], in->bytes_per_ns);
    if (m->inter.kind != INTER_NONE)
        inter = arena_printf(arena, ", %s %u x %.4g GB/s", inter_kind_names[m->inter.kind],
                             (unsigned)m->inter.nics_per_node, m->inter.bytes_per_ns);
    return arena_printf(arena, "%s%s", intra, inter);
}

static bool fill_cluster(Row *row, Arena *arena, JsonNode node, Err *err)
{
    Machine m;
    if (!machine_read(&m, node, share_dir(), err))
        return false;
    add_number(row, "nodes", m.nodes_n);
    add_number(row, "gpus", m.gpus_n);
    row->about =
        arena_printf(arena, "%u x %u %s%s", (unsigned)m.nodes_n, (unsigned)m.types[0].gpus_n,
                     m.types[0].gpu->name, m.types_n > 1 ? " and others" : links_of(arena, &m));
    machine_free(&m);
    return true;
}

static bool fill_software(Row *row, Arena *arena, JsonNode node, Err *err)
{
    Software sw;
    if (!software_read(&sw, arena, json_text(node), err))
        return false;
    row->about = sw.source;
    return true;
}

/* Only the title: an example need not be read to be listed. */
static bool fill_example(Row *row, Arena *arena, JsonNode node, Err *err)
{
    const char *path = arena_printf(arena, "%s/examples/%s.json", share_dir(), json_text(node));
    JsonDoc *doc = json_open(path, err);
    if (!doc)
        return false;
    const char *title = json_text(json_member(json_root(doc), "name"));
    row->about = title ? arena_strdup(arena, title) : "";
    json_close(doc);
    return true;
}

static void list_models(Rows *rows)
{
    add_files(rows, "models", fill_model);
}

static void list_gpus(Rows *rows)
{
    add_files(rows, "gpus", fill_gpu);
}

static void list_clusters(Rows *rows)
{
    add_files(rows, "clusters", fill_cluster);
}

static void list_software(Rows *rows)
{
    add_files(rows, "software", fill_software);
}

static void list_examples(Rows *rows)
{
    add_files(rows, "examples", fill_example);
}

/* ---- words of the program ---- */

enum { RANKS = 2 };

/* Asks the passes themselves, with a model and a pipeline that every one of them could take. */
static Can can_simulate(const char *strategy, const char *dim, int degree, const char *schedule)
{
    Arena arena = { 0 };
    Err err = { 0 };
    Scenario s = { 0 };
    Software sw;
    const char *text = arena_printf(
        &arena,
        "{\"model\":{\"kind\":\"transformer\",\"layers\":8,\"hidden\":8,\"heads\":2,"
        "\"vocab\":8,\"max_seq\":8},\"cluster\":\"ideal\",\"training\":{\"global_batch\":%d},"
        "\"parallel\":"
        "{\"strategy\":\"%s\",\"%s\":%d%s%s%s}}",
        4 * RANKS, strategy, dim, degree, schedule ? ",\"schedule\":\"" : "",
        schedule ? schedule : "", schedule ? "\"" : "");
    JsonDoc *doc = json_parse(text, strlen(text), "list", &err);
    Graph g = { 0 };
    Can can = CAN_NOT_SAID; /* without the files of scenarios/ */
    if (doc && scenario_from(&s, doc, NULL, 0, &err) &&
        software_read(&sw, &arena, s.software, &err))
        can = build_graph(&g, &s, &sw, &err) ? CAN : CAN_NOT_YET;
    graph_free(&g);
    scenario_free(&s);
    arena_free(&arena);
    return can;
}

static void list_strategies(Rows *rows)
{
    static const char *const about[STRATEGY_N] = {
        [STRATEGY_SINGLE] = "one GPU",
        [STRATEGY_MODEL_PARALLEL] = "layers over GPUs, the batch in one piece",
        [STRATEGY_DP] = "PyTorch's DataParallel: one process drives the GPUs of a node",
        [STRATEGY_DDP] = "replicas; gradients all-reduced in buckets during backward",
        [STRATEGY_ZERO1] = "replicas; optimizer states sharded",
        [STRATEGY_ZERO2] = "replicas; optimizer states and gradients sharded",
        [STRATEGY_FSDP] = "parameters, gradients and optimizer states sharded (ZeRO-3)",
        [STRATEGY_HSDP] = "sharded within groups of shard_size, replicated over them"
    };
    for (int i = 0; i < STRATEGY_N; i++)
        add_row(rows, strategy_names[i], about[i])->can =
            can_simulate(strategy_names[i], i == STRATEGY_MODEL_PARALLEL ? "pp" : "dp",
                         i == STRATEGY_SINGLE ? 1 : RANKS, NULL);
}

static void list_schedules(Rows *rows)
{
    static const char *const about[SCHEDULE_N] = {
        [SCHEDULE_NAIVE] = "one micro-batch at a time through all stages",
        [SCHEDULE_GPIPE] = "all forwards, then all backwards",
        [SCHEDULE_1F1B] = "one forward, one backward: fewer activations than gpipe",
        [SCHEDULE_INTERLEAVED] = "1f1b with virtual_stages chunks per rank: smaller bubble",
        [SCHEDULE_ZB_H1] = "weight gradients fill the bubble, memory of 1f1b",
        [SCHEDULE_ZB_1P] = "zero bubble, automatic, memory of 1f1b",
        [SCHEDULE_ZB_2P] = "zero bubble, automatic, twice the memory of 1f1b",
        [SCHEDULE_ZBV] = "zero bubble, two chunks per rank in a V, memory of 1f1b",
        [SCHEDULE_DUALPIPE] =
            "DeepSeek's DualPipeV: forwards of one chunk beside backwards of the other"
    };
    for (int i = 0; i < SCHEDULE_N; i++)
        add_row(rows, schedule_names[i], about[i])->can =
            can_simulate("ddp", "pp", RANKS, schedule_names[i]);
}

static void list_formats(Rows *rows)
{
    for (size_t i = 0; i < trace_formats_n; i++) {
        const TraceFormat *f = &trace_formats[i];
        const char *can = f->write ? "read, written" : "read";
        add_row(rows, f->name, arena_printf(&rows->arena, "%s (%s)", f->summary, can));
    }
}

/* ---- the command ---- */

typedef struct Word {
    const char *word;
    void (*list)(Rows *rows);
} Word;

static const Word words[] = {
    { "models", list_models },       { "gpus", list_gpus },
    { "clusters", list_clusters },   { "strategies", list_strategies },
    { "schedules", list_schedules }, { "formats", list_formats },
    { "software", list_software },   { "examples", list_examples },
};

static const char *const can_texts[] = { "", "simulated  ", "not yet    " };

static void print_text(const Rows *rows)
{
    int width = 0;
    for (uint32_t i = 0; i < rows->n; i++) {
        int n = (int)strlen(rows->row[i].name);
        width = n > width ? n : width;
    }
    for (uint32_t i = 0; i < rows->n; i++) {
        const Row *row = &rows->row[i];
        if (*row->about)
            printf("%-*s  %s%s\n", width, row->name, can_texts[row->can], row->about);
        else
            printf("%s\n", row->name);
    }
}

/* Whether it could be written is for main to see and to say, as with text. */
static void print_json(const Rows *rows, const char *word)
{
    Err ignored = { 0 };
    JsonOut j = json_out_file(stdout, 2);
    json_out_open(&j, '{');
    json_put_open(&j, word, '[');
    for (uint32_t i = 0; i < rows->n; i++) {
        const Row *row = &rows->row[i];
        json_out_open(&j, '{');
        json_put_text(&j, "name", row->name);
        for (uint32_t n = 0; n < row->numbers_n; n++)
            json_put_number(&j, row->numbers[n].key, row->numbers[n].value);
        if (row->can != CAN_NOT_SAID)
            json_put_bool(&j, "simulated", row->can == CAN);
        json_put_text(&j, "about", row->about);
        json_out_close(&j, '}');
    }
    json_out_close(&j, ']');
    json_out_close(&j, '}');
    json_out_end(&j, &ignored);
}

static int list(const Word *word, bool json)
{
    Rows rows = { .complete = true };
    word->list(&rows);
    if (json)
        print_json(&rows, word->word);
    else
        print_text(&rows);
    bool ok = rows.complete;
    free(rows.row);
    arena_free(&rows.arena);
    return ok ? EXIT_DONE : EXIT_COULD_NOT;
}

static void print_usage(FILE *f)
{
    fprintf(f, "usage: lockstep list ");
    for (size_t i = 0; i < ARRAY_N(words); i++)
        fprintf(f, "%s%s", i ? "|" : "", words[i].word);
    fprintf(f, " [--json]\n");
}

static int wrong_word(const char *word)
{
    Err err = { 0 };
    err_set(&err, "unknown %s '%.100s', allowed: ", *word == '-' ? "option" : "word", word);
    fprintf(stderr, "lockstep: %s", err.text);
    if (*word == '-')
        fprintf(stderr, "--json, --help");
    for (size_t i = 0; i < ARRAY_N(words) && *word != '-'; i++)
        fprintf(stderr, "%s%s", i ? ", " : "", words[i].word);
    fprintf(stderr, "\n");
    return EXIT_USAGE;
}

static const Word *find_word(const char *text)
{
    for (size_t i = 0; i < ARRAY_N(words); i++)
        if (strcmp(words[i].word, text) == 0)
            return &words[i];
    return NULL;
}

int cmd_list(int argc, char **argv)
{
    const Word *word = NULL;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_usage(stdout);
            return EXIT_DONE;
        }
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
            continue;
        }
        const Word *found = find_word(argv[i]);
        if (!found)
            return wrong_word(argv[i]);
        if (word) {
            fprintf(stderr, "lockstep: one word at a time, not '%s' and '%s'\n", word->word,
                    found->word);
            return EXIT_USAGE;
        }
        word = found;
    }
    if (!word) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    return list(word, json);
}
