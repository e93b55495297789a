/*
 * memops.h - the memory-bound kernels as a table: what each reads and writes.
 *
 * From the table follow the buffers to make, the bytes a call must move (every input
 * read once, every output written once) and what to compare with the reference.  A case
 * is one op at one size with its buffers, in as many copies ("sets") as it takes to
 * outgrow the L2 cache, which calls use in turn.
 */
#ifndef GPU_MEMOPS_H
#define GPU_MEMOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

typedef enum SlotShape {
    SHAPE_NONE,  /* no such slot */
    SHAPE_FULL,  /* rows x cols */
    SHAPE_ROW,   /* one number per row */
    SHAPE_COL,   /* one number per column */
    SHAPE_ONE,   /* one number */
    SHAPE_TABLE, /* vocab x cols; a call reads `rows` rows of it */
} SlotShape;

typedef enum SlotRole { ROLE_IN, ROLE_OUT, ROLE_INOUT } SlotRole;

/* Which integers an index holds: rows of the table, or columns. */
typedef enum SlotIndex { INDEX_NONE, INDEX_VOCAB, INDEX_COL } SlotIndex;

typedef struct Slot {
    SlotShape shape;
    NumType type;
    SlotRole role;
    SlotIndex index;
    bool positive;
} Slot;

/* Sizes of a call; vocab only matters to the ops that have a table. */
typedef struct MemShape {
    int64_t rows, cols, vocab;
} MemShape;

/* v[i] are slot i's numbers; outputs are written, inouts replaced. */
typedef void MemReference(double *const *v, const MemShape *shape);

typedef struct MemOp {
    const char *name, *dtype;
    KernLaunch *launch;
    MemReference *reference; /* memops_ref.h */
    Slot slot[KERN_SLOTS];
    int64_t cols[3]; /* row lengths to measure with; 0 ends */
} MemOp;

extern const MemOp MEMOPS[];
extern const int MEMOPS_N;

const MemOp *memop_named(const char *name); /* NULL: there is none */

uint64_t slot_numbers(const Slot *slot, const MemShape *shape);

/* Bytes a call must move. */
uint64_t memop_bytes(const MemOp *op, const MemShape *shape);

/* As many rows as move about so many bytes, at least one. */
MemShape memop_shape_for(const MemOp *op, int64_t cols, uint64_t bytes);

typedef struct MemCase {
    const MemOp *op;
    MemShape shape;
    char *base; /* device memory, borrowed */
    void *scratch;
    uint64_t set_bytes;
    uint64_t sets_n;
} MemCase;

/* Bytes of one set. */
uint64_t memcase_set_bytes(const MemOp *op, const MemShape *shape);

/*
 * Lays sets_n sets out in device memory and fills inputs with random numbers.
 * scratch is KERN_SCRATCH_BYTES.  Outputs are filled with ones: NaN or -1.
 */
void memcase_open(MemCase *c, const MemOp *op, MemShape shape, uint64_t sets_n, char *base,
                  void *scratch, cudaStream_t stream);

/* Device pointers of a set. */
KernArgs memcase_args(const MemCase *c, uint64_t set);

/* A WorkLaunch over a MemCase. */
void memcase_launch(void *self, uint64_t call, cudaStream_t stream);

#endif
