/*
 * compare_class.c - the class of an op: by what is known of it, else by words in its name.
 *
 * Names of a simulated op ("attention.qkv", "mlp.up bias") and of kernels of libraries
 * ("ampere_bf16_s16816gemm_bf16_128x128_...") go by the same table; the first word that
 * is found decides, so special words stand above general ones.
 */
#include "profile/compare_parts.h"

#include <string.h>

const char *const compare_class_names[CLASS_N] = {
    "matmul",     "attention",  "convolution",    "norm",      "softmax",   "elementwise",
    "embedding",  "loss",       "pool",           "optimizer", "reduction", "other",
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",    "all_to_all",
    "send",       "recv",       "communication",  "memory",    "idle",
};

typedef struct ClassWord {
    const char *word; /* in lower case; '^' at its begin and '$' at its end as in patterns */
    OpClass class_;
} ClassWord;

static const ClassWord words[] = {
    { " bias$", CLASS_ELEMENTWISE },
    { ".bn$", CLASS_NORM },
    { "attention.rope", CLASS_ELEMENTWISE },
    { "^attention.", CLASS_MATMUL },
    { "^mlp.", CLASS_MATMUL },
    { "^router.top_k", CLASS_SOFTMAX },
    { "^router$", CLASS_MATMUL },
    { "^experts.weighted_sum", CLASS_ELEMENTWISE },
    { "^shared_expert.gated", CLASS_ELEMENTWISE },
    { "^experts.", CLASS_MATMUL },
    { "^shared_expert.", CLASS_MATMUL },
    { "^head$", CLASS_MATMUL },
    { "^fc$", CLASS_MATMUL },
    { "^linear", CLASS_MATMUL },
    { "^conv", CLASS_CONVOLUTION },
    { "^stem$", CLASS_CONVOLUTION },
    { "^shortcut$", CLASS_CONVOLUTION },
    { "grad_norm", CLASS_OPTIMIZER },
    { "grad norm", CLASS_OPTIMIZER },
    { "flash", CLASS_ATTENTION },
    { "fmha", CLASS_ATTENTION },
    { "attention", CLASS_ATTENTION },
    { "softmax", CLASS_SOFTMAX },
    { "cross_entropy", CLASS_LOSS },
    { "nll_loss", CLASS_LOSS },
    { "mse_", CLASS_LOSS },
    { "^loss", CLASS_LOSS },
    { "fprop", CLASS_CONVOLUTION },
    { "dgrad", CLASS_CONVOLUTION },
    { "wgrad", CLASS_CONVOLUTION },
    { "convol", CLASS_CONVOLUTION },
    { "winograd", CLASS_CONVOLUTION },
    { "nchwtonhwc", CLASS_CONVOLUTION },
    { "nhwctonchw", CLASS_CONVOLUTION },
    { "gemm", CLASS_MATMUL },
    { "gemv", CLASS_MATMUL },
    { "cutlass", CLASS_MATMUL },
    { "xmma", CLASS_MATMUL },
    { "nvjet", CLASS_MATMUL },
    { "cublaslt", CLASS_MATMUL },
    { "splitk", CLASS_MATMUL },
    { "^cijk_", CLASS_MATMUL },
    { "matmul", CLASS_MATMUL },
    { "layernorm", CLASS_NORM },
    { "layer_norm", CLASS_NORM },
    { "rmsnorm", CLASS_NORM },
    { "rms_norm", CLASS_NORM },
    { "batch_norm", CLASS_NORM },
    { "batchnorm", CLASS_NORM },
    { "bn_fw", CLASS_NORM },
    { "bn_bw", CLASS_NORM },
    { "gammabeta", CLASS_NORM },
    { "norm", CLASS_NORM },
    { "multi_tensor_apply", CLASS_OPTIMIZER },
    { "multitensorapply", CLASS_OPTIMIZER },
    { "optimizer", CLASS_OPTIMIZER },
    { "adam", CLASS_OPTIMIZER },
    { "embedding", CLASS_EMBEDDING },
    { "indexselect", CLASS_EMBEDDING },
    { "^positions", CLASS_EMBEDDING },
    /* our executor's (exec/cuda_*.cu), as far as their names do not say it by a word above */
    { "^update_kernel", CLASS_OPTIMIZER },
    { "^squares_", CLASS_OPTIMIZER },
    { "^clip_kernel", CLASS_OPTIMIZER },
    { "^forward_kernel", CLASS_ATTENTION },
    { "^queries_kernel", CLASS_ATTENTION },
    { "^keys_kernel", CLASS_ATTENTION },
    { "^along_kernel", CLASS_ATTENTION },
    { "^embed_", CLASS_EMBEDDING },
    { "^logits_", CLASS_LOSS },
    { "^maximum_kernel", CLASS_LOSS },
    { "^batch_", CLASS_NORM },
    { "^sums_kernel", CLASS_REDUCTION },
    { "^add_kernel", CLASS_ELEMENTWISE },
    { "^bias_kernel", CLASS_ELEMENTWISE },
    { "^rope_kernel", CLASS_ELEMENTWISE },
    { "^cast_kernel", CLASS_ELEMENTWISE },
    { "^copy_kernel", CLASS_ELEMENTWISE },
    { "^fill_kernel", CLASS_ELEMENTWISE },
    { "pool", CLASS_POOL },
    { "reduce_kernel", CLASS_REDUCTION },
    { "devicereduce", CLASS_REDUCTION },
    { "elementwise", CLASS_ELEMENTWISE },
    { "triton_", CLASS_ELEMENTWISE },
    { "relu", CLASS_ELEMENTWISE },
    { "gelu", CLASS_ELEMENTWISE },
    { "dropout", CLASS_ELEMENTWISE },
    { "activation", CLASS_ELEMENTWISE },
    { "residual", CLASS_ELEMENTWISE },
    { "gradient sum", CLASS_ELEMENTWISE },
};

static bool has_word(const char *name, size_t n, const char *pattern)
{
    bool at_begin = *pattern == '^';
    size_t length = strlen(pattern += at_begin);
    bool at_end = pattern[length - 1] == '$';
    length -= at_end;
    if (length > n)
        return false;
    if (at_begin)
        return strncmp(name, pattern, length) == 0 && (!at_end || n == length);
    if (at_end)
        return strncmp(name + n - length, pattern, length) == 0;
    for (const char *at = name; (at = strchr(at, *pattern)); at++)
        if (strncmp(at, pattern, length) == 0)
            return true;
    return false;
}

static OpClass class_of_kernel(const char *name)
{
    char lower[256]; /* what matters of a kernel's name stands at its beginning */
    size_t n = 0;
    if (strncmp(name, "void ", 5) == 0) /* a template's */
        name += 5;
    for (; name[n] && n + 1 < sizeof lower; n++)
        lower[n] = (char)(name[n] >= 'A' && name[n] <= 'Z' ? name[n] - 'A' + 'a' : name[n]);
    lower[n] = '\0';
    for (size_t i = 0; i < ARRAY_N(words); i++)
        if (has_word(lower, n, words[i].word))
            return words[i].class_;
    return CLASS_OTHER;
}

static OpClass class_of_comm(const Timeline *t, uint64_t span)
{
    const Comm *c = timeline_comm_of(t, span);
    const char *op = c ? timeline_text(t, c->op) : "";
    for (OpClass k = CLASS_ALL_REDUCE; k < CLASS_COMM_OTHER; k++)
        if (strcmp(op, compare_class_names[k]) == 0)
            return k;
    return CLASS_COMM_OTHER;
}

OpClass compare_class_of(const Timeline *t, uint64_t span)
{
    switch (t->span_class[span]) {
    case SPAN_COMM:
    case SPAN_P2P:
        return class_of_comm(t, span);
    case SPAN_MEMORY:
        return CLASS_MEMORY;
    default: {
        const char *op = timeline_op_name(t, span);
        return class_of_kernel(*op ? op : timeline_text(t, t->span_name[span]));
    }
    }
}
