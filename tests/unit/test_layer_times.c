/*
 * One transformer block against a stopwatch: Korthikanti et al. (arXiv 2205.05198),
 * table 4, forward and backward of a block of the 22B model on 8 A100.
 *
 * Nothing is fitted on these rows: kernel times come from scenarios/gpus/a100-80gb.json,
 * the all-reduce from the DGX A100's links, what runs from software/megatron-lm-2022.json.
 * A block lasts from its first kernel to the first kernel of the next one, inside a model
 * of several; backward includes what is computed again.
 */
#include "tests/built.h"
#include "tests/data_rows.h"

enum { LAYERS = 4 };
static const double most_off = 0.03; /* as README says */

typedef struct Block22 {
    double forward_ms, backward_ms;
} Block22;

/* When the first kernel of the instance starts. */
static int64_t start_of(const Timeline *t, const Graph *g, const Instance *i)
{
    uint32_t end = i->first_op + g->segments[i->segment].op_n;
    int64_t start_ns = INT64_MAX;
    for (uint64_t k = 0; k < t->spans_n; k++)
        if (t->tracks[t->span_track[k]].kind == TRACK_STREAM && t->op[k] >= i->first_op &&
            t->op[k] < end)
            start_ns = min_i64(start_ns, t->start_ns[k]);
    CHECK(start_ns != INT64_MAX);
    return start_ns;
}

static int64_t start_of_layer(const Timeline *t, const Graph *g, SegmentKind kind,
                              uint32_t layer)
{
    const Role *r = &g->roles[0];
    for (uint32_t i = 0; i < r->instances_n; i++)
        if (r->instances[i].layer == layer && g->segments[r->instances[i].segment].kind == kind)
            return start_of(t, g, &r->instances[i]);
    CHECK(false);
    return 0;
}

/* Block 1 of 0 .. 3: neighbours on both sides are blocks, forward and backward. */
static Block22 inner_block(const Timeline *t, const Graph *g)
{
    int64_t forward =
        start_of_layer(t, g, SEGMENT_FORWARD, 2) - start_of_layer(t, g, SEGMENT_FORWARD, 1);
    int64_t backward =
        start_of_layer(t, g, SEGMENT_BACKWARD, 1) - start_of_layer(t, g, SEGMENT_BACKWARD, 2);
    return (Block22){ (double)forward * 1e-6, (double)backward * 1e-6 };
}

static Block22 predict(const char *text)
{
    Built b;
    SimResult r = { 0 };
    Timeline t = { 0 };
    Err err = { 0 };
    Block22 block = { NAN, NAN };
    if (built_from(&b, json_parse(text, strlen(text), "row", &err), &err) &&
        built_run(&r, &b, (SimOptions){ .timeline = &t }))
        block = inner_block(&t, &b.g);
    else
        fprintf(stderr, "%s\n", text);
    timeline_free(&t);
    sim_result_free(&r);
    built_free(&b);
    return block;
}

static bool row_flag(JsonNode row, const char *key)
{
    Err err = { 0 };
    JsonObj o = json_begin(row, &err);
    bool set = json_bool(&o, key, false);
    CHECK(json_end_lax(&o));
    return set;
}

static void row_scenario(JsonNode row, char *text, size_t cap)
{
    unsigned micro_batch = data_count(row, NULL, "micro_batch");
    snprintf(text, cap,
             "{\"model\":{\"kind\":\"transformer\",\"layers\":%d,\"hidden\":%u,\"heads\":%u,"
             "\"ffn\":%u,\"vocab\":%u,\"max_seq\":%u},\"cluster\":\"dgx-a100\","
             "\"software\":\"megatron-lm-2022\",\"training\":{\"global_batch\":%u,"
             "\"micro_batch\":%u,\"precision\":\"f16\",\"optimizer\":\"adam\","
             "\"recompute\":\"%s\"},\"parallel\":{\"tp\":%u,\"sequence_parallel\":%s}}",
             LAYERS, data_count(row, "model", "hidden"), data_count(row, "model", "heads"),
             data_count(row, "model", "ffn"), data_count(row, "model", "vocab"),
             data_count(row, "model", "seq"), micro_batch, micro_batch,
             data_text(row, "recompute"), data_count(row, NULL, "tp"),
             row_flag(row, "seq_parallel") ? "true" : "false");
}

static void check_ms(const char *row, const char *pass, double measured_ms, double got_ms)
{
    printf("%-32s %-8s measured %5.1f ms, predicted %6.2f ms, %+5.1f %%\n", row, pass,
           measured_ms, got_ms, 100 * (got_ms / measured_ms - 1));
    CHECK_NEAR(measured_ms, got_ms, most_off);
}

static void check_row(JsonNode row)
{
    char text[2048];
    row_scenario(row, text, sizeof text);
    Block22 block = predict(text);
    const char *name = data_text(row, "id");
    check_ms(name, "forward", data_number(row, "measured", "layer_fwd_ms"), block.forward_ms);
    check_ms(name, "backward", data_number(row, "measured", "layer_bwd_ms"), block.backward_ms);
}

static void published_times_of_a_block_are_predicted(void)
{
    CHECK_INT(5, data_rows("tests/data/layer-times-a100.jsonl", check_row));
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(published_times_of_a_block_are_predicted);
    return check_report();
}
