/*
 * whole.h - the parameters of a model as one process would hold them.
 *
 * The list is read off graphs of the same model: one built for a single process, and
 * one for its tensor-parallel ranks alone; where their shapes differ, there it is split.
 */
#ifndef LOCKSTEP_EXEC_WHOLE_H
#define LOCKSTEP_EXEC_WHOLE_H

#include "exec/params.h"

/* What shapes do not tell. */
typedef struct WholeModel {
    bool mlp; /* first values as torch.nn.Linear, else as GPT-2 */
    uint64_t heads, kv_heads, head_dim;
} WholeModel;

/* Names stay those of `one`, which must outlive the list.  split: NULL without tp. */
bool whole_list(WholeList *out, const Graph *one, const Graph *split, const WholeModel *model,
                Err *err);
void whole_free(WholeList *w);

/* Of ranks that hold a gradient alike, which one counts it in the norm, and how much of it:
 * KernelEnv.norm_counts. */
typedef struct NormOwners {
    const Program *p;
    const WholeList *whole;
    const Pieces *pieces;
    uint32_t tp_index;
} NormOwners;

uint64_t norm_counts(const void *owners, const Buffer *grad);

#endif
