/*
 * kernels.h - the launchers of tests/gpu's own kernels, for C.
 *
 * A launcher enqueues and returns; a launch that fails is the return value.
 * Kernels of one kind share one signature, so that a table (memops.c) can name
 * them: the meaning of slot[i] stands in that table.  Rows are contiguous; cols
 * and rows * cols are multiples of 8, pointers of 16 bytes, so that every access is
 * 16 bytes wide.
 */
#ifndef GPU_KERNELS_H
#define GPU_KERNELS_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "numbers.h"

enum { KERN_SLOTS = 9 };

typedef struct KernArgs {
    void *slot[KERN_SLOTS];
    void *scratch; /* KERN_SCRATCH_BYTES */
    int64_t rows, cols;
} KernArgs;

/* Partial sums of the widest row the norms are measured with, from the widest grid. */
#define KERN_SCRATCH_BYTES ((size_t)256 << 20)

typedef cudaError_t KernLaunch(const KernArgs *args, cudaStream_t stream);

/* How random data are drawn.  INDEX: integers below a limit. */
typedef enum KernFill { FILL_NORMAL, FILL_ABS, FILL_INDEX } KernFill;

/* What one clock probe saw; both 0 when the timer did not move. */
typedef struct ClockReading {
    uint64_t cycles, ns;
} ClockReading;

/* What one block of the hog did. */
typedef struct HogReport {
    uint64_t bytes; /* read plus written */
    uint64_t ns;
} HogReport;

typedef struct HogArgs {
    char *dst;
    const char *src;
    uint64_t block_bytes;  /* the region of each block; a multiple of HOG_CHUNK_BYTES */
    double block_GBps;     /* read plus written, per block; 0 = as fast as it goes */
    uint64_t cycles_max;   /* ends by itself after so many, whatever happens */
    const int *stop;       /* ends soon after this becomes 1 */
    HogReport *report;     /* one per block */
    unsigned shared_bytes; /* dynamic shared memory: the whole of an SM keeps others off it */
} HogArgs;

#define HOG_CHUNK_BYTES ((uint64_t)512 << 10)

#ifdef __cplusplus
extern "C" {
#endif

/* kern_probe.cu: what measuring needs */
cudaError_t kern_fill(void *dst, NumType type, KernFill fill, uint64_t limit, uint64_t n,
                      uint64_t seed, cudaStream_t stream);
cudaError_t kern_spin(double us, cudaStream_t stream);
cudaError_t kern_empty(cudaStream_t stream);
cudaError_t kern_set_flag(volatile int *flag, int value, cudaStream_t stream);
cudaError_t kern_clock_probe(ClockReading *out, cudaStream_t stream);
cudaError_t kern_timer_tick(uint64_t *ns, cudaStream_t stream);
cudaError_t kern_hog(const HogArgs *args, int blocks, cudaStream_t stream);

/* kern_elementwise.cu */
KernLaunch kern_copy, kern_add, kern_cast_down, kern_cast_up;
KernLaunch kern_gelu_fwd, kern_gelu_bwd, kern_silu_mul_fwd, kern_silu_mul_bwd;

/* kern_norm.cu */
KernLaunch kern_layernorm_fwd, kern_layernorm_bwd, kern_rmsnorm_fwd, kern_rmsnorm_bwd;

/* kern_softmax.cu */
KernLaunch kern_softmax_fwd, kern_softmax_bwd, kern_cross_entropy_fwd, kern_cross_entropy_bwd;

/* kern_optim.cu */
KernLaunch kern_embedding, kern_adamw_f32, kern_adamw_mixed, kern_sum_squares;

#ifdef __cplusplus
}
#endif

#endif
