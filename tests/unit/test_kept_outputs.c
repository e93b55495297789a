/*
 * test_kept_outputs.c - what pipeline stages have sent, and the head has made: gone at once, kept
 * until it comes back (pp_keeps_outputs), or the step is through (pp_outputs_stay,
 * pp_keeps_logits).
 */
#include <string.h>

#include "tests/built.h"
#include "tests/graph_check.h"

enum { LAYERS = 8, MICRO_BATCHES = 8, SEQ = 32, VOCAB = 256 };

typedef struct Case {
    bool keeps, stay, logits;
    const char *schedule, *recompute;
    uint32_t pp, tp, vs;
} Case;

static const char *said(bool x)
{
    return x ? "true" : "false";
}

static bool open_case(Built *b, Case c)
{
    return built_text(
        b,
        "{\"name\":\"t\",\"model\":{\"kind\":\"transformer\",\"layers\":%d,\"hidden\":64,"
        "\"heads\":4,\"ffn\":96,\"vocab\":%d,\"max_seq\":64,\"gated\":false,"
        "\"activation\":\"gelu\",\"norm\":\"layernorm\",\"positions\":\"learned\","
        "\"tied_embeddings\":true},\"cluster\":\"dgx-h100\","
        "\"software\":{\"base\":\"megatron-deepspeed-2022\","
        "\"parallel\":{\"pp_keeps_outputs\":%s,\"pp_outputs_stay\":%s,"
        "\"pp_keeps_logits\":%s}},\"training\":{\"global_batch\":%d,"
        "\"micro_batch\":1,\"seq_len\":%d,\"precision\":\"bf16\",\"recompute\":\"%s\"},"
        "\"parallel\":{\"strategy\":\"zero1\",\"dp\":1,\"pp\":%u,\"tp\":%u,"
        "\"schedule\":\"%s\",\"virtual_stages\":%u}}",
        LAYERS, VOCAB, said(c.keeps), said(c.stay), said(c.logits), MICRO_BATCHES, SEQ,
        c.recompute, c.pp, c.tp, c.schedule, c.vs);
}

/* Does an instance touch the frame for the last time? */
static bool ends(const Graph *g, const Instance *in)
{
    const Segment *s = &g->segments[in->segment];
    for (uint32_t o = 0; o < s->op_n; o++)
        for (uint32_t a = 0; a < graph_ops(g, s)[o].arg_n; a++) {
            const Arg *arg = &g->args[graph_ops(g, s)[o].arg_first + a];
            if (arg->slot == SLOT_OUT && arg->dies)
                return true;
        }
    return false;
}

/* Most activations at once that a stage has sent, from their send on and through it. */
static uint32_t most_sent(const Built *b, const Role *role)
{
    uint32_t alive = 0, most = 0;
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Instance *in = &role->instances[i];
        const Segment *s = &b->g.segments[in->segment];
        bool sends = s->kind == SEGMENT_SEND && s->layout[SLOT_OUT] != NONE_U32;
        alive += sends;
        most = alive > most ? alive : most;
        alive -= (sends || s->kind == SEGMENT_OTHER) && ends(&b->g, in);
    }
    CHECK_INT(0, alive);
    return most;
}

/* A stage of 1f1b has pp - stage of them on their way, of gpipe all; those whose ranks of tp send
 * parts keep none of the whole. */
static void they_stay_until_they_come_back(void)
{
    static const char *const schedules[] = { "1f1b", "gpipe" };
    for (uint32_t i = 0; i < 32; i++) {
        Built b;
        bool all = i % 2;
        Case c = { .keeps = i / 2 % 2, .schedule = schedules[all], .recompute = "none" };
        c.tp = i / 4 % 2 ? 2 : 1;
        c.pp = i / 8 % 2 ? 4 : 2;
        c.stay = c.keeps && i / 16;
        c.vs = 1;
        if (open_case(&b, c))
            for (uint32_t r = 0; r < b.g.roles_n; r++) {
                uint32_t held = all || c.stay ? MICRO_BATCHES : c.pp - r;
                uint32_t some = c.keeps && c.tp == 1 ? held : 1;
                CHECK_INT(r + 1 == c.pp ? 0 : some, most_sent(&b, &b.g.roles[r]));
            }
        built_free(&b);
    }
}

static uint64_t bytes_of(const Graph *g, const char *tensor)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < g->tensors_n; t++)
        if (strcmp(intern_text(&g->names, g->tensors[t].name), tensor) == 0)
            bytes += g->tensors[t].bytes;
    return bytes;
}

/* Instances that begin to keep what the head has made. */
static uint32_t kept_by_head(const Built *b, const Role *role)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < role->instances_n; i++)
        n += strcmp(intern_text(&b->g.names, b->g.segments[role->instances[i].segment].name),
                    "output kept") == 0;
    return n;
}

/* Of each micro-batch 2 bytes a token and word of a rank, on the stage of the head alone. */
static void what_the_head_makes_stays(void)
{
    for (uint32_t tp = 1; tp <= 2; tp++) {
        Built b;
        Case c = { .logits = true, .schedule = "1f1b", .recompute = "none", .tp = tp };
        c.pp = 2;
        c.vs = 1;
        uint64_t one = 2 * SEQ * VOCAB / tp;
        if (open_case(&b, c)) {
            CHECK_U64(one, bytes_of(&b.g, "logits kept"));
            CHECK_U64(MICRO_BATCHES * one, bytes_of(&b.g, "logits together"));
            for (uint32_t r = 0; r < 2; r++)
                CHECK_INT(r == 1 ? MICRO_BATCHES : 0, kept_by_head(&b, &b.g.roles[r]));
        }
        built_free(&b);
    }
}

static int64_t step_ns(const Built *b)
{
    SimResult r = { 0 };
    int64_t ns = built_run(&r, b, (SimOptions){ 0 }) ? r.step_ns : 0;
    sim_result_free(&r);
    return ns;
}

/* In every order of micro-batches what lives does so between its ends, and no time is lost, but for
 * what is put together: who is sent a gradient has received what it is of. */
static void nothing_waits_for_it(void)
{
    static const char *const schedules[] = { "1f1b",  "gpipe", "interleaved", "naive",
                                             "zb-h1", "zb-1p", "zb-2p",       "zbv" };
    for (size_t i = 0; i < 6 * ARRAY_N(schedules); i++) {
        Built kept, gone;
        Case c = { true, i % 3 > 0, i % 3 > 1, schedules[i / 6], i / 3 % 2 ? "full" : "none",
                   4,    1,         1 };
        c.vs = strcmp(c.schedule, "interleaved") == 0 || strcmp(c.schedule, "zbv") == 0 ? 2 : 1;
        Case plain = c;
        plain.keeps = plain.stay = plain.logits = false;
        if (open_case(&kept, c) && open_case(&gone, plain)) {
            check_lives(&kept.g);
            check_runs(&kept.g);
            if (!c.logits)
                CHECK_NEAR((double)step_ns(&gone), (double)step_ns(&kept), 0);
            else
                CHECK(step_ns(&kept) >= step_ns(&gone)); /* other stages may end later */
        }
        built_free(&kept);
        built_free(&gone);
    }
}

int main(void)
{
    RUN(they_stay_until_they_come_back);
    RUN(what_the_head_makes_stays);
    RUN(nothing_waits_for_it);
    return check_report();
}
