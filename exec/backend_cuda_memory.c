/*
 * backend_cuda_memory.c - what the CUDA backend allocates, and what it says when there is no room.
 */
#include "exec/backend_cuda_device.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 };

static uint64_t aligned(uint64_t bytes)
{
    return div_up_u64(bytes, ALIGN) * ALIGN;
}

bool cuda_ok(cudaError_t result, const char *doing, Err *err)
{
    if (result == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return err_set(err, "CUDA: %s (%s) %s", cudaGetErrorString(result),
                   cudaGetErrorName(result), doing);
}

/* ---- no room ---- */

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)((uint64_t)1 << 30);
}

/* The largest tensor of the program, and the op that has it first; a resident one has none. */
static const char *largest_tensor(const Program *p, uint64_t *bytes, const char **op)
{
    uint32_t name = NONE_U32;
    *bytes = 0;
    *op = NULL;
    for (uint32_t i = 0; i < p->residents_n; i++)
        if (p->residents[i].bytes > *bytes) {
            *bytes = p->residents[i].bytes;
            name = p->residents[i].name;
        }
    for (uint32_t t = 0; t < p->tasks_n; t++)
        for (uint32_t a = 0; a < p->tasks[t].args_n; a++) {
            const Buffer *b = &task_args(p, &p->tasks[t])[a];
            if (b->bytes <= *bytes)
                continue;
            *bytes = b->bytes;
            name = b->name;
            *op = program_text(p, p->tasks[t].op->name);
        }
    return name == NONE_U32 ? "none" : program_text(p, name);
}

static bool no_room(const Backend *b, const char *what, uint64_t bytes, cudaError_t result,
                    Err *err)
{
    size_t free_bytes = 0, all_bytes = 0;
    uint64_t largest;
    const char *op, *tensor = largest_tensor(b->p, &largest, &op);
    (void)cudaGetLastError();
    if (result != cudaErrorMemoryAllocation)
        return cuda_ok(result, "while memory was allocated", err);
    (void)cudaMemGetInfo(&free_bytes, &all_bytes);
    return err_set(
        err,
        "GPU %d has no room for %s of rank %u: %" PRIu64
        " bytes (%.2f GiB) were asked, %.2f of %.2f GiB are free; its largest tensor "
        "is '%s' with %.2f GiB%s%s%s",
        b->job->cuda->device, what, b->p->rank, bytes, gib(bytes), gib(free_bytes),
        gib(all_bytes), tensor, gib(largest), op ? ", of op '" : "", op ? op : "",
        op ? "'" : "");
}

static bool allocate(const Backend *b, uint8_t **at, uint64_t bytes, const char *what, Err *err)
{
    void *p = NULL;
    cudaError_t result = cudaMalloc(&p, max_u64(bytes, 1));
    *at = p;
    return result == cudaSuccess || no_room(b, what, bytes, result, err);
}

static bool open_arena(Backend *b, Err *err)
{
    if (b->comm_type && b->comm_type->allocate) {
        CudaCommJob job = comm_job(b);
        void *memory;
        if (!b->comm_type->allocate(&memory, &job, err))
            return false;
        b->arena = memory;
    }
    b->comms_arena = b->arena != NULL;
    return b->comms_arena || allocate(b, &b->arena, b->p->arena_bytes, "the arena", err);
}

static void close_arena(Backend *b)
{
    if (b->comms_arena)
        b->comm_type->release(b->arena);
    else
        cudaFree(b->arena);
}

static bool allocate_host(void *at, uint64_t bytes, Err *err)
{
    void *p = NULL;
    bool ok =
        cuda_ok(cudaMallocHost(&p, max_u64(bytes, 1)), "while host memory was pinned", err);
    memcpy(at, &p, sizeof p);
    return ok;
}

/* ---- what copies from the host bring ---- */

static uint64_t lay_out_staging(Backend *b)
{
    const Program *p = b->p;
    uint64_t at = 0;
    b->staging_at = mem_zero((size_t)p->args_n + 1, sizeof *b->staging_at);
    for (uint32_t t = 0; t < p->tasks_n; t++)
        for (uint32_t a = 0; p->tasks[t].op->kind == OP_H2D && a < p->tasks[t].args_n; a++) {
            uint32_t i = p->tasks[t].args_first + a;
            b->staging_at[i] = at;
            at += aligned(p->args[i].bytes);
        }
    return at;
}

/* ---- the second allocation ---- */

static bool multiplies(const Program *p, uint32_t lane)
{
    for (uint32_t i = 0; i < p->lane_n[lane]; i++)
        if (p->tasks[program_task_at(p, lane, i)].op->kind == OP_MATMUL)
            return true;
    return false;
}

/* Each lane's scratch, and behind it its workspace for products. */
static bool open_lane(Backend *b, uint32_t lane, uint8_t *at, uint64_t scratch_bytes, Err *err)
{
    CudaEnv *env = &b->env[lane];
    env->scratch = at;
    env->scratch_bytes = scratch_bytes;
    env->rates = b->rates;
    env->loss = b->loss;
    return !multiplies(b->p, lane) ||
           cuda_gemm_open(&env->gemm, at + aligned(scratch_bytes), GEMM_WORKSPACE_BYTES, err);
}

static bool open_extra(Backend *b, const uint64_t scratch_bytes[LANE_N], Err *err)
{
    uint64_t rates = aligned(CUDA_RATES_N * sizeof(Rates)), loss = aligned(sizeof(double));
    uint64_t tables = aligned(b->tables.rows_n * sizeof(Slice)), lanes_at[LANE_N];
    b->extra_bytes = rates + loss + tables;
    for (uint32_t i = 0; i < LANE_N; i++) {
        lanes_at[i] = b->extra_bytes;
        b->extra_bytes += aligned(scratch_bytes[i]);
        b->extra_bytes += multiplies(b->p, i) ? GEMM_WORKSPACE_BYTES : 0;
    }
    if (!allocate(b, &b->extra, b->extra_bytes, "scratch and workspaces", err))
        return false;
    b->rates = (Rates *)(void *)b->extra;
    b->loss = (double *)(void *)(b->extra + rates);
    b->tables.device = (Slice *)(void *)(b->extra + rates + loss);
    bool ok = true;
    for (uint32_t i = 0; i < LANE_N && ok; i++)
        ok = open_lane(b, i, b->extra + lanes_at[i], scratch_bytes[i], err);
    return ok && (b->tables.rows_n == 0 ||
                  cuda_ok(cudaMemcpy(b->tables.device, b->tables.rows,
                                     b->tables.rows_n * sizeof(Slice), cudaMemcpyHostToDevice),
                          "while tables were copied to the GPU", err));
}

/* ---- the interface ---- */

bool memory_open(Backend *b, Err *err)
{
    const Job *job = b->job;
    uint64_t scratch_bytes[LANE_N], staged = lay_out_staging(b);
    if (!open_arena(b, err))
        return false;
    for (int i = 0; i < LANE_N; i++)
        b->env[i] = (CudaEnv){ .arena = b->arena,
                               .facts = job->facts,
                               .hyper = job->hyper,
                               .norm_counts = job->norm_counts,
                               .norm_owners = job->norm_owners,
                               .tables = &b->tables };
    return cuda_plan(&b->env[LANE_COMPUTE], b->p, scratch_bytes, err) &&
           open_extra(b, scratch_bytes, err) && allocate_host(&b->staging, staged, err) &&
           allocate_host(&b->host_rates, CUDA_RATES_N * sizeof(Rates), err) &&
           allocate_host(&b->host_loss, sizeof(double), err) &&
           cuda_ok(cudaMemset(b->arena, 0, b->p->arena_bytes), "while the arena was cleared",
                   err) &&
           cuda_ok(cudaDeviceSynchronize(), "while the arena was cleared", err);
}

void memory_close(Backend *b)
{
    for (int i = 0; i < LANE_N; i++)
        cuda_gemm_close(b->env[i].gemm);
    close_arena(b);
    cudaFree(b->extra);
    cudaFreeHost(b->staging);
    cudaFreeHost(b->host_rates);
    cudaFreeHost(b->host_loss);
    cuda_tables_free(&b->tables);
    free(b->staging_at);
}
