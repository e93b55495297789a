/* test_whole.c - parameters as one process holds them, from graphs of two splits. */
#include "sim/build.h"

#include "exec/whole.h"
#include "tests/check.h"

static const char *const text =
    "{\"name\":\"x\",\"model\":{\"kind\":\"transformer\",\"layers\":2,\"hidden\":32,\"heads\":"
    "4,"
    "\"kv_heads\":2,\"ffn\":48,\"vocab\":64,\"max_seq\":16,\"gated\":true,"
    "\"norm\":\"layernorm\",\"positions\":\"learned\"},"
    "\"cluster\":{\"nodes\":1,\"gpus_per_node\":2,\"gpu\":\"ideal\","
    "\"intra_node\":{\"kind\":\"pcie\",\"GBps\":10}},"
    "\"training\":{\"global_batch\":1,\"micro_batch\":1,\"seq_len\":16,\"precision\":\"f32\"},"
    "\"parallel\":{\"strategy\":\"ddp\",\"dp\":1,\"tp\":1}}";

static bool build(Graph *g, const char *tp)
{
    Scenario s;
    Software sw;
    Arena arena = { 0 };
    Err err = { 0 };
    Setting set = { "parallel.tp", tp };
    JsonDoc *doc = json_parse(text, strlen(text), "text", &err);
    bool ok = CHECK(doc && scenario_from(&s, doc, &set, 1, &err)) &&
              CHECK(software_read(&sw, &arena, "lockstep", &err)) &&
              CHECK(build_graph(g, &s, &sw, &err));
    if (!ok)
        fprintf(stderr, "%s\n", err.text);
    else
        scenario_free(&s);
    arena_free(&arena);
    return ok;
}

typedef struct Expect {
    uint32_t layer;
    const char *name;
    uint64_t rows, columns;
    Split split;
    uint32_t sections_n;
} Expect;

/* hidden 32, heads 4 of 8, 2 key and value heads, ffn 48, vocabulary 64. */
static const Expect expected[] = {
    { NONE_U32, "tokens.weight", 64, 32, SPLIT_ROWS, 0 },
    { NONE_U32, "positions.weight", 16, 32, SPLIT_NONE, 0 },
    { 0, "norm1.weight", 32, 1, SPLIT_NONE, 0 },
    { 1, "attention.qkv.weight", 32 + 16 + 16, 32, SPLIT_ROWS, 3 },
    { 1, "attention.qkv.bias", 32 + 16 + 16, 1, SPLIT_ROWS, 3 },
    { 0, "attention.out.weight", 32, 32, SPLIT_COLUMNS, 0 },
    { 0, "attention.out.bias", 32, 1, SPLIT_NONE, 0 },
    { 1, "mlp.gate_up.weight", 96, 32, SPLIT_ROWS, 2 },
    { 1, "mlp.gate_up.bias", 96, 1, SPLIT_ROWS, 2 },
    { 1, "mlp.down.weight", 32, 48, SPLIT_COLUMNS, 0 },
    { NONE_U32, "final_norm.bias", 32, 1, SPLIT_NONE, 0 },
};

static const Whole *find(const WholeList *w, const Expect *e)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->whole[i].layer == e->layer && strcmp(w->whole[i].name, e->name) == 0)
            return &w->whole[i];
    return NULL;
}

static void shapes_and_splits_come_from_the_graphs(void)
{
    Graph one = { 0 }, two = { 0 };
    WholeList list = { 0 };
    WholeModel model = { .heads = 4, .kv_heads = 2, .head_dim = 8 };
    Err err = { 0 };
    if (build(&one, "1") && build(&two, "2") &&
        CHECK(whole_list(&list, &one, &two, &model, &err)))
        for (size_t i = 0; i < ARRAY_N(expected); i++) {
            const Whole *w = find(&list, &expected[i]);
            if (!CHECK(w != NULL))
                continue;
            CHECK_U64(expected[i].rows, w->rows);
            CHECK_U64(expected[i].columns, w->columns);
            CHECK_INT(expected[i].split, w->split);
            CHECK_INT(expected[i].sections_n, w->sections_n);
            for (uint32_t k = 0; k < w->sections_n; k++)
                CHECK(w->section_rows[k] > 0 && w->section_unit[k] > 0);
        }
    whole_free(&list);
    graph_free(&one);
    graph_free(&two);
}

int main(void)
{
    RUN(shapes_and_splits_come_from_the_graphs);
    return check_report();
}
