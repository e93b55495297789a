/*
 * test_blocks.c - blocks of models against closed forms: parameters, flops, memory, lives.
 */
#include "sim/blocks.h"
#include "tests/check.h"

static Transformer gpt(uint32_t layers, uint32_t hidden, uint32_t heads, uint32_t vocab)
{
    return (Transformer){ .layers = layers,
                          .hidden = hidden,
                          .heads = heads,
                          .kv_heads = heads,
                          .head_dim = hidden / heads,
                          .ffn = 4 * hidden,
                          .vocab = vocab,
                          .max_seq = 1024,
                          .norm = NORM_LAYERNORM,
                          .activation = ACT_GELU,
                          .causal = true,
                          .positions = POS_LEARNED,
                          .position_rows = 1024,
                          .tied_embeddings = true,
                          .qkv_bias = true,
                          .out_bias = true,
                          .mlp_bias = true,
                          .norm_bias = true,
                          .final_norm = true,
                          .embedding_dim = hidden };
}

int main(void)
{
    Scenario s = { 0 };
    s.model.kind = MODEL_TRANSFORMER;
    s.model.u.transformer = gpt(12, 768, 12, 50257);
    s.training = (Training){ .micro_batch = 2, .seq_len = 1024, .precision = DTYPE_BF16,
        .param_dtype = DTYPE_BF16, .grad_dtype = DTYPE_BF16, .optimizer = OPT_ADAMW, .master_weights = true, .recompute = RECOMPUTE_FULL };
    s.parallel = (Parallel){ .dp = 1, .tp = getenv("TP") ? 4 : 1, .sequence_parallel = getenv("SP") != NULL, .pp = 1, .cp = 1, .ep = 1, .gpus = 1 };
    Software sw = { .fused_attention = true, .fused_gated = true, .fused_cross_entropy = true, .vocab_multiple = 1, .tp_async_backward = getenv("AS") != NULL }; sw.overlap[DIM_TP] = true;
    Graph g = { .world_n = 1, .role_stride = 1, .role_extent = 1 };
    g.role_of = mem_zero(1, 4);
    graph_role(&g, "stage 0", 0);
    Build b = { .s = &s, .sw = &sw, .g = &g };
    for (int i = 0; i < GROUP_KIND_N; i++) b.group[i] = NONE_U32;
    if (s.parallel.tp > 1) { b.group[GROUP_TP] = graph_group(&g, "tp", &(GroupDim){1,4,1,4}, 1); g.world_n=4; }
    Err err = { 0 };
    if (!build_blocks(&b, &err)) printf("%s\n", err.text);
    graph_seal(&g);
    uint64_t n = 0;
    for (uint32_t i = 0; i < b.blocks_n; i++) n += b.types[b.blocks[i].type].elements;
    printf("params %lu expect %lu\n", n, model_params(&s.model));
    for (uint32_t i = 0; i < g.segments_n; i++) {
        Segment *x = &g.segments[i];
        printf("%u %s ops %u delta %ld peak %ld\n", i, intern_text(&g.names, x->name), x->op_n, x->memory_delta, x->memory_peak);
        if (i > 0 && i != 9 && i!= 4 && i != 5) continue;
        for (uint32_t o = 0; o < x->op_n; o++) {
            const Op *op = graph_ops(&g, x) + o;
            printf("   %3u %-12s %-10s %-16s l%u fl %.3g r %lu w %lu:", o, op_kind_names[op->kind], op_phase_names[op->phase], intern_text(&g.names, op->name), op->logical, op->flops, op->read_bytes, op->write_bytes);
            for (uint32_t a = 0; a < op->arg_n; a++) {
                const Arg *arg = &g.args[op->arg_first + a];
                printf(" %s%d.%u%s[%s]", arg->born ? "+" : "", arg->slot, arg->tensor, arg->dies ? "-" : "", intern_text(&g.names, graph_arg_tensor(&g, x, arg)->name));
            }
            printf("\n");
        }
    }
    graph_free(&g);
    arena_free(&b.arena);
    return check_report();
}
