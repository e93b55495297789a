/*
 * align.h - which item of one sequence is which item of another.
 *
 * Items have two keys: `exact` (a kernel's name) and `loose` (its class).  Items
 * of equal exact keys are paired first, in order, as many as possible; in the gaps
 * that are left items of equal loose keys are: that is how a renamed kernel, or the
 * same one of another GPU generation, is found.  The rest stays unmatched, never
 * forced:
 *
 *     a    ln  gemm_80  gelu        gemm_80  add
 *          |      :      |             :      |         | exact, : loose
 *     b    ln  gemm_90  gelu  copy  gemm_90  add
 *
 * Long sequences are cut at runs of keys that are unique on both sides (patience),
 * then solved as longest common subsequences; the cut keeps it near linear.  What
 * is long and has nothing unique is solved in a band around its diagonal.
 *
 * align(a, b) and align(b, a) say the same.
 */
#ifndef LOCKSTEP_PROFILE_ALIGN_H
#define LOCKSTEP_PROFILE_ALIGN_H

#include "core/base.h"

typedef struct AlignItem {
    uint64_t exact, loose;
} AlignItem;

/* match[i] = item of b that item i of a is, NONE_U32 where there is none.  Ascending. */
void align(uint32_t *match, const AlignItem *a, uint32_t a_n, const AlignItem *b, uint32_t b_n);

#endif
