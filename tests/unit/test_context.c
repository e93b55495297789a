/*
 * test_context.c - context parallelism: what moves, and beside what.
 */
#include "tests/graph_check.h"

#include "sim/build.h"

typedef struct Split {
    Scenario s;
    Software sw;
    Arena arena;
    Graph g;
    Err err;
} Split;

enum { LAYERS = 3, HEADS = 8, KV_HEADS = 2, HEAD_DIM = 64, SEQ = 960 };

static bool open_model(Split *x, const char *model, uint32_t cp, bool ring, bool overlap,
                       const char *recompute)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model\":%s,\"cluster\":\"dgx-h100\",\"training\":{\"global_batch\":1,\"micro_"
             "batch\":1,"
             "\"seq_len\":%d,\"precision\":\"bf16\",\"recompute\":\"%s\"},\"parallel\":{"
             "\"strategy\":\"ddp\",\"dp\":1,"
             "\"cp\":%u,\"overlap\":{\"cp\":%s}}}",
             model, SEQ, recompute, cp, overlap ? "true" : "false");
    *x = (Split){ 0 };
    JsonDoc *doc = json_parse(text, strlen(text), "split", &x->err);
    bool ok = doc && scenario_from(&x->s, doc, NULL, 0, &x->err) &&
              software_read(&x->sw, &x->arena, "generic", &x->err);
    x->sw.cp_ring = ring;
    x->sw.cp_gathers = !ring; /* though overlap asks for a ring */
    x->sw.selective_attention = true;
    ok = ok && build_graph(&x->g, &x->s, &x->sw, &x->err);
    if (!CHECK(ok))
        fprintf(stderr, "%s\n", x->err.text);
    return ok;
}

static bool open_split_again(Split *x, uint32_t cp, bool ring, bool overlap,
                             const char *recompute)
{
    char model[300];
    snprintf(model, sizeof model,
             "{\"kind\":\"transformer\",\"layers\":%d,\"hidden\":%d,\"heads\":%d,"
             "\"kv_heads\":%d,\"vocab\":1000,\"max_seq\":4096,\"positions\":\"rope\"}",
             LAYERS, HEADS * HEAD_DIM, HEADS, KV_HEADS);
    return open_model(x, model, cp, ring, overlap, recompute);
}

static bool open_split(Split *x, uint32_t cp, bool ring, bool overlap)
{
    return open_split_again(x, cp, ring, overlap, "none");
}

static void close_split(Split *x)
{
    graph_free(&x->g);
    scenario_free(&x->s);
    arena_free(&x->arena);
}

static bool is_cp(const Graph *g, const Op *op)
{
    return op_is_comm(op->kind) &&
           strcmp(intern_text(&g->names, g->groups[op->u.comm.group].name), "cp") == 0;
}

typedef struct Sum {
    uint32_t ops_n;
    uint64_t bytes;
    double flops;
} Sum;

/* Over the whole step of the ops of a kind; communication: over cp only. */
static Sum sum_of(const Graph *g, OpKind kind)
{
    Sum sum = { 0 };
    const Role *role = &g->roles[0];
    for (uint32_t i = 0; i < role->instances_n; i++) {
        const Segment *s = &g->segments[role->instances[i].segment];
        for (uint32_t k = 0; k < s->op_n; k++) {
            const Op *op = &graph_ops(g, s)[k];
            if (op->kind != kind || (op_is_comm(kind) && !is_cp(g, op)))
                continue;
            sum.ops_n++;
            sum.bytes += op_is_comm(kind) ? op->u.comm.bytes : 0;
            sum.flops += op->flops;
        }
    }
    return sum;
}

/* Keys and values of the whole sequence forward and backward, the sums of their gradients once;
 * a ring moves the same in n - 1 steps. */
static void keys_and_values_move_twice_their_gradients_once(void)
{
    const uint64_t kv = (uint64_t)SEQ * 2 * KV_HEADS * HEAD_DIM * 2;
    for (uint32_t cp = 2; cp <= 8; cp *= 2)
        for (int ring = 0; ring < 2; ring++) {
            Split x;
            uint32_t steps = ring ? cp - 1 : 1;
            if (open_split(&x, cp, ring, true)) {
                Sum gathers = sum_of(&x.g, OP_ALL_GATHER);
                Sum sums = sum_of(&x.g, OP_REDUCE_SCATTER);
                CHECK_U64(2 * LAYERS * kv, gathers.bytes);
                CHECK_U64(LAYERS * kv, sums.bytes);
                CHECK_INT(2 * LAYERS * steps, gathers.ops_n);
                CHECK_INT(LAYERS * steps, sums.ops_n);
                CHECK_INT(2 * LAYERS * (ring ? cp : 1), sum_of(&x.g, OP_ATTENTION).ops_n);
            }
            close_split(&x);
        }
}

/* Attention that is done again has its keys and values gathered for that, and then for backward,
 * which passes them round as without. */
static void attention_done_again_gathers_again(void)
{
    static const char *const recompute[] = { "selective", "full" };
    const uint64_t kv = (uint64_t)SEQ * 2 * KV_HEADS * HEAD_DIM * 2;
    for (size_t i = 0; i < ARRAY_N(recompute); i++)
        for (int ring = 0; ring < 2; ring++) {
            Split x;
            if (open_split_again(&x, 4, ring, true, recompute[i])) {
                CHECK_U64(3 * LAYERS * kv, sum_of(&x.g, OP_ALL_GATHER).bytes);
                CHECK_INT(3 * LAYERS * (ring ? 4 : 1), sum_of(&x.g, OP_ATTENTION).ops_n);
            }
            close_split(&x);
        }
}

/* Of Mistral's layers all have a window, of Gemma 2's every second, of Llama's none. */
static void windowed_layers_gather(void)
{
    enum { CP = 4 };
    static const struct {
        const char *family;
        uint32_t windowed_n;
    } cases[] = { { "mistral", 2 }, { "gemma2", 1 }, { "llama", 0 } };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        char model[500];
        snprintf(model, sizeof model,
                 "{\"model_type\":\"%s\",\"num_hidden_layers\":2,\"hidden_size\":512,"
                 "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":64,"
                 "\"intermediate_size\":2048,\"vocab_size\":1000,\"sliding_window\":128,"
                 "\"max_position_embeddings\":4096}",
                 cases[i].family);
        Split x;
        if (open_model(&x, model, CP, true, true, "none")) {
            uint32_t whole = cases[i].windowed_n, rings = 2 - whole;
            CHECK_INT(2 * (whole + rings * (CP - 1)), sum_of(&x.g, OP_ALL_GATHER).ops_n);
            CHECK_INT(whole + rings * (CP - 1), sum_of(&x.g, OP_REDUCE_SCATTER).ops_n);
            CHECK_INT(2 * (whole + rings * CP), sum_of(&x.g, OP_ATTENTION).ops_n);
        }
        close_split(&x);
    }
}

static void every_rank_has_an_equal_share_of_the_work(void)
{
    Split one;
    if (open_split(&one, 1, true, true))
        for (uint32_t cp = 2; cp <= 8; cp *= 2)
            for (int ring = 0; ring < 2; ring++) {
                Split x;
                if (open_split(&x, cp, ring, true)) {
                    static const OpKind kinds[] = { OP_ATTENTION, OP_MATMUL };
                    for (size_t k = 0; k < ARRAY_N(kinds); k++)
                        CHECK_NEAR(sum_of(&one.g, kinds[k]).flops / cp,
                                   sum_of(&x.g, kinds[k]).flops, 1e-9);
                }
                close_split(&x);
            }
    close_split(&one);
}

static void gradients_are_summed_over_the_ranks_of_a_sequence(void)
{
    Split x;
    if (open_split(&x, 4, true, true)) {
        uint64_t bytes = 0;
        const Role *role = &x.g.roles[0];
        for (uint32_t i = 0; i < role->instances_n; i++) {
            const Segment *s = &x.g.segments[role->instances[i].segment];
            const Op *op = graph_ops(&x.g, s);
            if (s->op_n && op->kind == OP_ALL_REDUCE) {
                CHECK_INT(4, group_size(&x.g.groups[op->u.comm.group]));
                bytes += op->u.comm.bytes;
            }
        }
        CHECK_U64(2 * model_params(&x.s.model), bytes);
    }
    close_split(&x);
}

/* ---- time: attention of a layer takes 12, keys and values of all 6, all else nothing ---- */

static const Graph *timed;

static double ring_cost(const Role *role, const CheckOp *o)
{
    (void)role;
    const double kv = (double)SEQ * 2 * KV_HEADS * HEAD_DIM * 2;
    const AttentionShape *a = &o->op->u.attention;
    if (o->op->kind == OP_ATTENTION) /* by its pairs: below the diagonal, or a rectangle */
        return 12.0 * (double)a->seq_k / SEQ * (a->causal ? 1 : 2);
    return is_cp(timed, o->op) ? 6.0 * (double)o->op->u.comm.bytes / kv : 0;
}

/* A step of the ring takes less than attention on its keys: what is exposed is the last
 * exchange of gradients alone. */
static void a_ring_hides_behind_attention(void)
{
    for (uint32_t cp = 2; cp <= 8; cp *= 2) {
        double expect[] = { LAYERS * (12 + 6 + 12 + 6 + 6), LAYERS * (24 + 6.0 / (cp - 1)) };
        for (int ring = 0; ring < 2; ring++) {
            Split x;
            if (open_split(&x, cp, ring, true)) {
                timed = &x.g;
                CHECK_NEAR(expect[ring], check_time(&x.g, ring_cost), 1e-6);
            }
            close_split(&x);
        }
    }
}

static void without_overlap_all_of_it_is_exposed(void)
{
    Split x;
    if (open_split(&x, 4, true, false)) {
        timed = &x.g;
        CHECK_NEAR(LAYERS * (24 + 18), check_time(&x.g, ring_cost), 1e-6);
    }
    close_split(&x);
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(keys_and_values_move_twice_their_gradients_once);
    RUN(attention_done_again_gathers_again);
    RUN(windowed_layers_gather);
    RUN(every_rank_has_an_equal_share_of_the_work);
    RUN(gradients_are_summed_over_the_ranks_of_a_sequence);
    RUN(a_ring_hides_behind_attention);
    RUN(without_overlap_all_of_it_is_exposed);
    return check_report();
}
