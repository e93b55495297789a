/*
 * moe_world.h - small mixtures of experts as scenarios, their graphs, and what is in those.
 *
 * Unless a test says otherwise: the model below, in bf16 on ideal GPUs: L layers of width H, E
 * experts of inner width F, of which a token visits K.
 */
#ifndef LOCKSTEP_TESTS_UNIT_MOE_WORLD_H
#define LOCKSTEP_TESTS_UNIT_MOE_WORLD_H

#include "tests/graph_check.h"
#include "tests/random_scenario.h"

enum { L = 4, H = 256, F = 512, V = 1024, E = 8, K = 2, SEQ = 512, WORLD = 8 };

#define EXPERT_ELEMENTS ((uint64_t)3 * H * F)
#define ALL_EXPERTS     (L * E * EXPERT_ELEMENTS)
#define DENSE_ELEMENTS  ((uint64_t)2 * V * H + H + L * (4 * H * H + 2 * H + E * H))

/* Two whose layers share an expert; of DEEPSEEK the first has none. */
#define QWEN \
    "{\"model_type\":\"qwen2_moe\",\"hidden_size\":256,\"intermediate_size\":512," \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":4," \
    "\"vocab_size\":1000,\"num_experts\":8,\"num_experts_per_tok\":2," \
    "\"moe_intermediate_size\":128,\"shared_expert_intermediate_size\":256}"

#define DEEPSEEK \
    "{\"model_type\":\"deepseek_v3\",\"hidden_size\":256,\"intermediate_size\":512," \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":4," \
    "\"vocab_size\":1000,\"n_routed_experts\":8,\"num_experts_per_tok\":2," \
    "\"moe_intermediate_size\":128,\"first_k_dense_replace\":1,\"q_lora_rank\":96," \
    "\"kv_lora_rank\":64,\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"v_head_dim\":32}"

/* Biases in experts and router, a number a head; chunks, unit norms, layers without positions. */
#define GPT_OSS \
    "{\"model_type\":\"gpt_oss\",\"hidden_size\":256,\"intermediate_size\":512," \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":4," \
    "\"vocab_size\":1024,\"num_local_experts\":8,\"num_experts_per_tok\":2}"

/* Biases in experts, routed and shared, but not in the router. */
#define ERNIE \
    "{\"model_type\":\"ernie4_5_moe\",\"hidden_size\":256,\"intermediate_size\":512," \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":4," \
    "\"vocab_size\":1024,\"moe_num_experts\":8,\"moe_k\":2," \
    "\"moe_intermediate_size\":128,\"use_bias\":true}"

#define LLAMA4 \
    "{\"model_type\":\"llama4_text\",\"hidden_size\":256,\"intermediate_size\":512," \
    "\"intermediate_size_mlp\":768,\"num_hidden_layers\":4,\"num_attention_heads\":4," \
    "\"num_key_value_heads\":4,\"vocab_size\":1024,\"num_local_experts\":8," \
    "\"interleave_moe_layer_step\":2,\"attention_chunk_size\":128}"

/* What a test asks; 0 stands for 1, NULL for nothing more to say. */
typedef struct Ask {
    uint32_t experts, per_token, ep, dp, tp, cp, pp, micro_batches;
    const char *strategy, *model, *training, *parallel, *gpu, *software;
} Ask;

static inline uint32_t at_least_1(uint32_t n)
{
    return n ? n : 1;
}

static inline void ask_model(Draw *d, const Ask *a)
{
    if (a->model && a->model[0] != ',') {
        draw_text(d, "\"model\":%s,", a->model);
        return;
    }
    draw_text(d,
              "\"model\":{\"kind\":\"transformer\",\"layers\":%d,\"hidden\":%d,\"heads\":4,"
              "\"ffn\":%d,\"vocab\":%d,\"max_seq\":4096,\"gated\":true,\"norm\":\"rmsnorm\","
              "\"positions\":\"rope\",\"tied_embeddings\":false,\"activation\":\"silu\"",
              L, H, F, V);
    if (a->experts > 0)
        draw_text(d, ",\"experts\":%u,\"experts_per_token\":%u", a->experts, a->per_token);
    draw_text(d, "%s},", a->model ? a->model : "");
}

static inline bool make_with(Drawn *x, const Draw *d, const char *software)
{
    *x = (Drawn){ 0 };
    Err err = { 0 };
    JsonDoc *doc = json_parse(d->text, strlen(d->text), "asked", &err);
    bool ok = doc && scenario_from(&x->s, doc, NULL, 0, &err) &&
              software_read(&x->sw, &x->arena, software, &err) &&
              build_graph(&x->g, &x->s, &x->sw, &err);
    if (!CHECK(ok))
        fprintf(stderr, "%s\n%s\n", err.text, d->text);
    return ok;
}

static inline bool make(Drawn *x, Ask a)
{
    Draw d = { 0 };
    uint32_t dp = at_least_1(a.dp), m = at_least_1(a.micro_batches);
    draw_text(&d, "{\"name\":\"asked\",");
    ask_model(&d, &a);
    draw_text(&d,
              "\"cluster\":{\"name\":\"box\",\"nodes\":4,\"gpus_per_node\":%d,\"gpu\":\"%s\","
              "\"collectives\":{\"ideal\":true,\"intra_efficiency\":1},\"intra_node\":{"
              "\"kind\":\"nvswitch\","
              "\"GBps\":100,\"latency_us\":0},\"inter_node\":{\"kind\":\"fat_tree\","
              "\"nics_per_node\":8,\"GBps_per_nic\":50,\"latency_us\":0}},",
              WORLD, a.gpu ? a.gpu : "ideal");
    draw_text(&d,
              "\"training\":{\"global_batch\":%u,\"micro_batch\":1,\"seq_len\":%d,"
              "\"precision\":\"bf16\"%s},",
              dp * m, SEQ, a.training ? a.training : "");
    draw_text(&d,
              "\"parallel\":{\"strategy\":\"%s\",\"dp\":%u,\"tp\":%u,\"cp\":%u,\"pp\":%u,"
              "\"ep\":%u,\"sequence_parallel\":%s%s}}",
              a.strategy ? a.strategy : "ddp", dp, at_least_1(a.tp), at_least_1(a.cp),
              at_least_1(a.pp), at_least_1(a.ep), a.tp > 1 ? "true" : "false",
              a.parallel ? a.parallel : "");
    return make_with(x, &d, a.software ? a.software : "generic");
}

/* ---- looking ---- */

typedef bool Wanted(const Graph *g, const Op *op, const void *user);

typedef struct Total {
    uint64_t count, bytes;
    double flops, model_flops;
} Total;

static inline Total total_of(const Graph *g, Wanted *wanted, const void *user)
{
    Total t = { 0 };
    for (uint32_t r = 0; r < g->roles_n; r++)
        for (uint32_t i = 0; i < g->roles[r].instances_n; i++) {
            const Segment *s = &g->segments[g->roles[r].instances[i].segment];
            for (uint32_t o = 0; o < s->op_n; o++) {
                const Op *op = &graph_ops(g, s)[o];
                if (!wanted(g, op, user))
                    continue;
                t.count++;
                t.bytes += op_is_comm(op->kind) ? op->u.comm.bytes : 0;
                t.flops += op->flops;
                t.model_flops += op_model_flops(op);
            }
        }
    return t;
}

static inline bool is_kind(const Graph *g, const Op *op, const void *user)
{
    (void)g;
    return op->kind == *(const OpKind *)user;
}

typedef struct CommOf {
    OpKind kind;
    const char *group;
} CommOf;

static inline bool is_comm_of(const Graph *g, const Op *op, const void *user)
{
    const CommOf *c = user;
    return op->kind == c->kind &&
           strcmp(intern_text(&g->names, g->groups[op->u.comm.group].name), c->group) == 0;
}

static inline uint64_t moved(const Graph *g, OpKind kind, const char *group)
{
    return total_of(g, is_comm_of, &(CommOf){ kind, group }).bytes;
}

static inline bool is_any(const Graph *g, const Op *op, const void *user)
{
    (void)g;
    (void)op;
    (void)user;
    return true;
}

/* What holds for every graph. */
static inline void check_graph(Ask a)
{
    Drawn x;
    if (make(&x, a)) {
        check_lives(&x.g);
        check_runs(&x.g);
    }
    drawn_free(&x);
}

#endif
