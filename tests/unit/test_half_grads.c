/*
 * test_half_grads.c - gradients made in 16 bits beside those kept in f32: how long they live.
 */
#include <string.h>

#include "tests/built.h"
#include "tests/graph_check.h"

enum { LAYERS = 4, HIDDEN = 64, FFN = 96, VOCAB = 128, MICRO_BATCHES = 3 };

/* Of a layer with 4 heads, 2 of them for keys and values; and of the head. */
enum {
    LAYER_WEIGHTS = 2 * HIDDEN * HIDDEN + HIDDEN * HIDDEN + 3 * HIDDEN * FFN,
    HEAD_WEIGHTS = HIDDEN * VOCAB
};

typedef struct Case {
    const char *stack, *facts, *strategy, *recompute;
    uint32_t dp, pp;
    bool tied;
} Case;

static bool open_case(Built *b, Case c)
{
    return built_text(
        b,
        "{\"name\":\"t\",\"model\":{\"kind\":\"transformer\",\"layers\":%d,\"hidden\":%d,"
        "\"heads\":4,\"kv_heads\":2,\"ffn\":%d,\"vocab\":%d,\"max_seq\":64,\"gated\":true,"
        "\"activation\":\"silu\",\"norm\":\"rmsnorm\",\"positions\":\"rope\","
        "\"tied_embeddings\":%s},\"cluster\":\"dgx-h100\",\"software\":{\"base\":\"%s\","
        "\"kernels\":{%s}},\"training\":{\"global_batch\":%u,\"micro_batch\":1,"
        "\"seq_len\":32,\"precision\":\"bf16\",\"recompute\":\"%s\"},"
        "\"parallel\":{\"strategy\":\"%s\",\"dp\":%u,\"pp\":%u}}",
        LAYERS, HIDDEN, FFN, VOCAB, c.tied ? "true" : "false", c.stack, c.facts,
        MICRO_BATCHES * c.dp, c.recompute ? c.recompute : "none", c.strategy, c.dp, c.pp);
}

static Case nanotron(const char *strategy, uint32_t dp, uint32_t pp)
{
    return (Case){ "nanotron-2025", "", strategy, NULL, dp, pp, false };
}

static Case at_once(Case c)
{
    c.facts = "\"grads_added_last\":false";
    return c;
}

static const Segment *segment_at(const Built *b, const Role *role, uint32_t instance)
{
    return &b->g.segments[role->instances[instance].segment];
}

static uint32_t sums_n(const Built *b, const Role *role, uint32_t micro_batch)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < role->instances_n; i++)
        n += segment_at(b, role, i)->kind == SEGMENT_SUM &&
             role->instances[i].micro_batch == micro_batch;
    return n;
}

/* Blocks of a stage with matmuls: layers, and the head on the last. */
static uint32_t blocks_of(const Case *c, uint32_t stage)
{
    return LAYERS / c->pp + (stage + 1 == c->pp);
}

/* A backward's sums stand behind all of it; ddp's last has none, where it reduces. */
static void sums_stand_behind_backward(void)
{
    static const char *const strategies[] = { "zero1", "ddp", "ddp" };
    for (uint32_t i = 0; i < 6; i++) {
        Built b;
        Case c = nanotron(strategies[i / 2], i / 2 == 2 ? 1 : 4, 1 + i % 2);
        bool hook = i / 2 == 1;
        if (open_case(&b, c))
            for (uint32_t r = 0; r < b.g.roles_n; r++) {
                const Role *role = &b.g.roles[r];
                uint32_t behind = NONE_U32;
                for (uint32_t m = 0; m < MICRO_BATCHES; m++)
                    CHECK_INT(hook && m + 1 == MICRO_BATCHES ? 0 : blocks_of(&c, r),
                              sums_n(&b, role, m));
                for (uint32_t k = 0; k < role->instances_n; k++) {
                    SegmentKind kind = segment_at(&b, role, k)->kind;
                    if (kind == SEGMENT_SUM)
                        behind = role->instances[k].micro_batch;
                    CHECK(kind != SEGMENT_BACKWARD || role->instances[k].micro_batch != behind);
                }
            }
        built_free(&b);
    }
}

/* Two bytes for each weight of a stage's matmuls, and never those of two micro-batches. */
static void all_of_a_stage_are_alive_together(void)
{
    for (uint32_t i = 0; i < 4; i++) {
        Built b;
        Case c = nanotron(i / 2 ? "ddp" : "zero1", 4, 1 + i % 2);
        if (open_case(&b, c))
            for (uint32_t r = 0; r < b.g.roles_n; r++) {
                uint64_t head = r + 1 == c.pp ? HEAD_WEIGHTS : 0;
                CHECK_U64(2 * (LAYERS / c.pp * (uint64_t)LAYER_WEIGHTS + head),
                          most_live_of(&b.g, &b.g.roles[r], SLOT_HELD));
            }
        built_free(&b);
    }
}

typedef struct Work {
    uint64_t ops, read, written;
    double flops;
} Work;

static Work all_work(const Built *b)
{
    Work w = { 0 };
    for (uint32_t r = 0; r < b->g.roles_n; r++)
        for (uint32_t i = 0; i < b->g.roles[r].instances_n; i++) {
            const Segment *s = segment_at(b, &b->g.roles[r], i);
            for (uint32_t o = 0; o < s->op_n; o++) {
                const Op *op = &graph_ops(&b->g, s)[o];
                w.ops++;
                w.read += op->read_bytes;
                w.written += op->write_bytes;
                w.flops += op->flops;
            }
        }
    return w;
}

/* The same kernels, later; and whoever reads a gradient does so behind them. */
static void nothing_else_changes(void)
{
    static const char *const strategies[] = { "zero1", "ddp" };
    for (uint32_t i = 0; i < 16; i++) {
        Built later, once;
        Case c = nanotron(strategies[i % 2], 2, 1 + i / 2 % 2);
        c.recompute = i / 4 % 2 ? "full" : "none";
        c.tied = i / 8;
        if (open_case(&later, c) && open_case(&once, at_once(c))) {
            Work x = all_work(&later), y = all_work(&once);
            CHECK_U64(y.ops, x.ops);
            CHECK_U64(y.read, x.read);
            CHECK_U64(y.written, x.written);
            CHECK_NEAR(y.flops, x.flops, 0);
            check_lives(&later.g);
            check_runs(&later.g);
        }
        built_free(&later);
        built_free(&once);
    }
}

static uint64_t resident_bytes(const Built *b, TensorClass class_, DType dtype)
{
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < b->g.roles_n; r++)
        for (uint32_t f = 0; f < b->g.roles[r].frames_n; f++) {
            const Frame *frame = &b->g.roles[r].frames[f];
            const Layout *l = &b->g.layouts[frame->layout];
            for (uint32_t t = 0; frame->resident && t < l->tensor_n; t++) {
                const Tensor *x = &b->g.tensors[l->tensor_first + t];
                bytes += x->class_ == class_ && x->dtype == dtype ? x->bytes : 0;
            }
        }
    return bytes;
}

/* ddp's reducer has buckets of all parameters, BF16_Optimizer what backward made last. */
static void some_stay_beside_those_in_f32(void)
{
    static const struct {
        const char *stack, *strategy;
        uint32_t dp, pp_most;
        bool stay;
    } cases[] = {
        { "nanotron-2025", "ddp", 4, 2, true },
        { "nanotron-2025", "ddp", 1, 2, false },
        { "nanotron-2025", "zero1", 4, 2, false },
        { "megatron-deepspeed-2022", "ddp", 4, 2, true },
        { "megatron-deepspeed-2022", "ddp", 1, 2, true },
        { "megatron-deepspeed-2022", "zero1", 4, 2, true },
        { "megatron-deepspeed-2022", "zero2", 4, 1, false },
        { "megatron-lm-2022", "ddp", 4, 2, false },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++)
        for (uint32_t pp = 1; pp <= cases[i].pp_most; pp++) {
            Built b;
            Case c = { cases[i].stack, "", cases[i].strategy, NULL, cases[i].dp, pp, false };
            if (open_case(&b, c))
                CHECK_U64(cases[i].stay ? resident_bytes(&b, TENSOR_PARAM, DTYPE_BF16) : 0,
                          resident_bytes(&b, TENSOR_GRAD, DTYPE_BF16));
            built_free(&b);
        }
}

static uint32_t half_layouts(const Graph *g)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < g->tensors_n; t++)
        n += strcmp(intern_text(&g->names, g->tensors[t].name), "gradients in 16 bits") == 0;
    return n;
}

static bool sums(const Graph *g)
{
    for (uint32_t i = 0; i < g->segments_n; i++)
        if (g->segments[i].kind == SEGMENT_SUM)
            return true;
    return false;
}

/* In f16 DeepSpeed has another optimizer; gradients that are asked for in 16 bits are added to by
 * autograd itself, and so are those that a zero-bubble schedule makes apart. */
static void there_are_none_without_gradients_in_f32(void)
{
    static const struct {
        Setting set[3];
        uint32_t set_n;
        bool sums, stay;
    } cases[] = {
        { { { "software", "nanotron-2025" } }, 1, true, true },
        { { { "software", "nanotron-2025" }, { "training.grad_dtype", "bf16" } },
          2,
          false,
          false },
        { { { "software", "nanotron-2025" }, { "parallel.strategy", "fsdp" } },
          2,
          false,
          false },
        { { { "software", "megatron-deepspeed-2022" } }, 1, false, true },
        { { { "software", "megatron-deepspeed-2022" }, { "training.precision", "f16" } },
          2,
          false,
          false },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Built b;
        if (built_read(&b, "gpt2-ddp", cases[i].set, cases[i].set_n)) {
            CHECK_INT(cases[i].sums, sums(&b.g));
            CHECK_INT(cases[i].stay, half_layouts(&b.g) > 0);
        }
        built_free(&b);
    }
}

int main(void)
{
    RUN(sums_stand_behind_backward);
    RUN(all_of_a_stage_are_alive_together);
    RUN(nothing_else_changes);
    RUN(some_stay_beside_those_in_f32);
    RUN(there_are_none_without_gradients_in_f32);
    return check_report();
}
