/* kernel_names.c - what kernels, operators and number formats are called by others. */
#include <string.h>

#include "traces/rules.h"

typedef struct Word {
    const char *theirs, *ours;
} Word;

/* PyTorch's "Collective name", NCCL's kernels, annotations "nccl:...": without _ and case. */
static const Word ops[] = {
    { "allreduce", "all_reduce" },
    { "allreducecoalesced", "all_reduce" },
    { "allreducesparse", "all_reduce" },
    { "allgather", "all_gather" },
    { "allgatherbase", "all_gather" },
    { "allgatherv", "all_gather" },
    { "allgathercoalesced", "all_gather" },
    { "allgatherintotensor", "all_gather" },
    { "allgatherintotensorcoalesced", "all_gather" },
    { "reducescatter", "reduce_scatter" },
    { "reducescatterbase", "reduce_scatter" },
    { "reducescatterv", "reduce_scatter" },
    { "reducescattercoalesced", "reduce_scatter" },
    { "reducescattertensor", "reduce_scatter" },
    { "reducescattertensorcoalesced", "reduce_scatter" },
    { "alltoall", "all_to_all" },
    { "alltoallv", "all_to_all" },
    { "alltoallpivot", "all_to_all" },
    { "alltoallbase", "all_to_all" },
    { "alltoallsingle", "all_to_all" },
    { "broadcast", "broadcast" },
    { "broadcastoop", "broadcast" },
    { "reduce", "reduce" },
    { "reduceoop", "reduce" },
    { "send", "send" },
    { "recv", "recv" },
    { "recvanysource", "recv" },
    { "sendrecv", "send_recv" },
    { "gather", "gather" },
    { "scatter", "scatter" },
    { "barrier", "barrier" },
};

static const Word algorithms[] = {
    { "RING", "ring" },       { "TREE", "tree" },
    { "COLLNET", "collnet" }, { "COLLNET_DIRECT", "collnet_direct" },
    { "NVLS", "nvls" },       { "COLLNET_CHAIN", "collnet_chain" },
    { "PAT", "pat" },         { "NVLS_TREE", "nvls_tree" },
};

static const Word protocols[] = { { "LL", "LL" },
                                  { "LL128", "LL128" },
                                  { "SIMPLE", "Simple" } };

typedef struct DTypeWord {
    const char *theirs, *ours;
    uint8_t bytes;
} DTypeWord;

/* Flat table: PyTorch's ScalarType, its C++ names, NCCL's kernels old and new. */
static const DTypeWord dtypes[] = {
    { "Float", "f32", 4 },
    { "float", "f32", 4 },
    { "f32", "f32", 4 },
    { "Half", "f16", 2 },
    { "half", "f16", 2 },
    { "c10::Half", "f16", 2 },
    { "f16", "f16", 2 },
    { "BFloat16", "bf16", 2 },
    { "c10::BFloat16", "bf16", 2 },
    { "bf16", "bf16", 2 },
    { "bfloat16", "bf16", 2 },
    { "__nv_bfloat16", "bf16", 2 },
    { "hip_bfloat16", "bf16", 2 },
    { "Double", "f64", 8 },
    { "double", "f64", 8 },
    { "f64", "f64", 8 },
    { "Int", "i32", 4 },
    { "int", "i32", 4 },
    { "i32", "i32", 4 },
    { "int32_t", "i32", 4 },
    { "u32", "u32", 4 },
    { "uint32_t", "u32", 4 },
    { "Long", "i64", 8 },
    { "long", "i64", 8 },
    { "long int", "i64", 8 },
    { "i64", "i64", 8 },
    { "int64_t", "i64", 8 },
    { "u64", "u64", 8 },
    { "uint64_t", "u64", 8 },
    { "Short", "i16", 2 },
    { "short", "i16", 2 },
    { "Char", "i8", 1 },
    { "signed char", "i8", 1 },
    { "int8_t", "i8", 1 },
    { "i8", "i8", 1 },
    { "Byte", "u8", 1 },
    { "unsigned char", "u8", 1 },
    { "uint8_t", "u8", 1 },
    { "u8", "u8", 1 },
    { "Bool", "bool", 1 },
    { "bool", "bool", 1 },
    { "Float8_e4m3fn", "fp8", 1 },
    { "Float8_e5m2", "fp8", 1 },
    { "Float8_e4m3fnuz", "fp8", 1 },
    { "Float8_e5m2fnuz", "fp8", 1 },
    { "c10::Float8_e4m3fn", "fp8", 1 },
    { "c10::Float8_e5m2", "fp8", 1 },
    { "fp8", "fp8", 1 },
    { "f8e4m3", "fp8", 1 },
    { "f8e5m2", "fp8", 1 },
    { "ComplexFloat", "c64", 8 },
    { "c10::complex<float>", "c64", 8 },
};

static const char *find_word(const Word *table, size_t table_n, const char *word, size_t n)
{
    for (size_t i = 0; i < table_n; i++)
        if (strlen(table[i].theirs) == n && memcmp(table[i].theirs, word, n) == 0)
            return table[i].ours;
    return NULL;
}

const char *comm_op_of(const char *word, size_t n)
{
    char plain[40];
    size_t plain_n = 0;
    for (size_t i = 0; i < n; i++) {
        if (word[i] == '_')
            continue;
        if (plain_n == sizeof plain)
            return NULL;
        bool upper = word[i] >= 'A' && word[i] <= 'Z';
        plain[plain_n++] = upper ? (char)(word[i] + 'a' - 'A') : word[i];
    }
    return find_word(ops, ARRAY_N(ops), plain, plain_n);
}

bool comm_dtype_of(const char *word, size_t n, const char **dtype, uint64_t *bytes)
{
    for (size_t i = 0; i < ARRAY_N(dtypes); i++) {
        if (strlen(dtypes[i].theirs) != n || memcmp(dtypes[i].theirs, word, n) != 0)
            continue;
        *dtype = dtypes[i].ours;
        *bytes = dtypes[i].bytes;
        return true;
    }
    return false;
}

/* ---- names of kernels ---- */

/* The part of an NCCL kernel's name that says what it does: after "ncclDevKernel_". */
static const char *after_nccl(const char *kernel)
{
    static const char *const stems[] = { "ncclSymkDevKernel_", "ncclSymDevKernel_",
                                         "ncclDevKernel_",     "ncclKernel_",
                                         "ncclFunction_",      "mscclKernel_" };
    for (size_t i = 0; i < ARRAY_N(stems); i++) {
        const char *at = strstr(kernel, stems[i]);
        if (at)
            return at + strlen(stems[i]);
    }
    return NULL;
}

static void take_part(KernelComm *c, const char *part, size_t n)
{
    uint64_t bytes;
    const char *ours = comm_op_of(part, n);
    if (ours && !c->op)
        c->op = ours;
    ours = find_word(protocols, ARRAY_N(protocols), part, n);
    if (ours && !c->protocol)
        c->protocol = ours;
    if (!c->dtype)
        comm_dtype_of(part, n, &c->dtype, &bytes);
}

/* The longest name of an algorithm that stands at part: NVLS_TREE is one. */
static void take_algorithm(KernelComm *c, const char *part)
{
    size_t longest = 0;
    for (size_t i = 0; i < ARRAY_N(algorithms); i++) {
        size_t n = strlen(algorithms[i].theirs);
        bool ends = strchr("_(", part[n < strlen(part) ? n : strlen(part)]) != NULL;
        if (n <= longest || strncmp(part, algorithms[i].theirs, n) != 0 || !ends)
            continue;
        longest = n;
        c->algorithm = algorithms[i].ours;
    }
}

static void take_nccl(KernelComm *c, const char *at)
{
    size_t name_n = strcspn(at, "(<");
    const char *end = at + name_n;
    while (at < end) {
        size_t n = strcspn(at, "_(<");
        if (strncmp(at, "int8_t", 6) == 0 || strncmp(at, "uint8_t", 7) == 0)
            n = strcspn(at, "8") + 3; /* a type with an underscore in it */
        if (n > (size_t)(end - at))
            n = (size_t)(end - at);
        take_part(c, at, n);
        if (!c->algorithm)
            take_algorithm(c, at);
        at += n + (at + n < end);
    }
}

/* NCCL up to 2.7: "ncclAllReduceRingLLKernel_sum_f32", "ncclSendRecvKernel_copy_i8". */
static bool take_old_nccl(KernelComm *c, const char *kernel)
{
    static const Word words[] = { { "Ring", "ring" },
                                  { "Tree", "tree" },
                                  { "CollNet", "collnet" } };
    const char *at = strstr(kernel, "nccl"), *end = at ? strstr(at, "Kernel_") : NULL;
    if (!end)
        return false;
    const char *op_end = end;
    for (const char *p = at += strlen("nccl"); p < end; p++)
        for (size_t i = 0; i < ARRAY_N(words) && op_end == end; i++)
            if (strncmp(p, words[i].theirs, strlen(words[i].theirs)) == 0) {
                c->algorithm = words[i].ours;
                op_end = p;
            }
    c->op = comm_op_of(at, (size_t)(op_end - at));
    if (!c->op)
        return false;
    if (c->algorithm) {
        size_t n = strcspn(op_end, "L");
        const char *protocol = op_end + n < end ? op_end + n : NULL;
        c->protocol = protocol ? find_word(protocols, ARRAY_N(protocols), protocol,
                                           (size_t)(end - protocol))
                               : "Simple";
    }
    const char *dtype = strchr(end + strlen("Kernel_"), '_');
    uint64_t bytes;
    if (dtype)
        comm_dtype_of(dtype + 1, strcspn(dtype + 1, "_(<"), &c->dtype, &bytes);
    return true;
}

KernelComm kernel_comm(const char *kernel)
{
    static const Word words[] = {
        { "all_reduce", "all_reduce" },
        { "allreduce", "all_reduce" },
        { "AllReduce", "all_reduce" },
        { "cross_device_reduce", "all_reduce" },
        { "all_gather", "all_gather" },
        { "allgather", "all_gather" },
        { "AllGather", "all_gather" },
        { "reduce_scatter", "reduce_scatter" },
        { "reducescatter", "reduce_scatter" },
        { "ReduceScatter", "reduce_scatter" },
        { "alltoall", "all_to_all" },
        { "all_to_all", "all_to_all" },
        { "AllToAll", "all_to_all" },
        { "dispatch", "all_to_all" },
        { "combine", "all_to_all" },
        { "broadcast", "broadcast" },
        { "barrier", "barrier" },
    };
    KernelComm c = { .op = NULL };
    const char *nccl = after_nccl(kernel);
    if (nccl) {
        take_nccl(&c, nccl);
        return c;
    }
    if (take_old_nccl(&c, kernel))
        return c;
    c = (KernelComm){ .op = NULL };
    for (size_t i = 0; i < ARRAY_N(words) && !c.op; i++)
        if (strstr(kernel, words[i].theirs))
            c.op = words[i].ours;
    return c;
}
