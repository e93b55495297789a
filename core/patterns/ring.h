/*
 * ring.h - who sends which block when in a ring collective.  Pure arithmetic.
 *
 * n members in a circle, the buffer cut into n blocks.  In every step each member
 * sends one block to its right and receives the block before it from its left:
 *
 *     n = 4          step 0      step 1      step 2   |  step 3   ...
 *     member 0    sends b3    sends b2    sends b1    |  sends b0
 *     member 1    sends b0    sends b3    sends b2    |  sends b1
 *     member 2    sends b1    sends b0    sends b3    |  sends b2
 *     member 3    sends b2    sends b1    sends b0    |  sends b3
 *                  \______ reduce-scatter ______/        \ all-gather
 *
 * The same rule drives both halves; only what the receiver does differs: it adds
 * in the first n-1 steps and overwrites in the last n-1.  After the first half
 * member i holds the sum of block i, where a reduce-scatter leaves it and where an
 * all-gather starts.  So block b is summed in the order b+1, b+2 ... b.
 *
 * The executor performs these steps; the simulator prices as many (sim/network.c).
 */
#ifndef LOCKSTEP_CORE_PATTERNS_RING_H
#define LOCKSTEP_CORE_PATTERNS_RING_H

#include "core/base.h"

/* Elements [first, first + n) of something. */
typedef struct BlockRange {
    uint64_t first, n;
} BlockRange;

uint32_t ring_right(uint32_t member, uint32_t n);
uint32_t ring_left(uint32_t member, uint32_t n);

/* Steps of one half: reduce-scatter or all-gather; an all-reduce has both. */
uint32_t ring_half_steps(uint32_t n);
uint32_t ring_all_reduce_steps(uint32_t n);

/* Steps count through both halves; an all-gather alone begins at ring_half_steps(n). */
uint32_t ring_send_block(uint32_t member, uint32_t step, uint32_t n);
uint32_t ring_recv_block(uint32_t member, uint32_t step, uint32_t n);
bool ring_step_reduces(uint32_t step, uint32_t n);

/*
 * Block b of n: elements [b, b + 1) x ceil(elements / n), the last ones cut off; 0 are
 * possible.  The same cut serves as the shards of data parallelism.
 */
BlockRange ring_block(uint64_t elements, uint32_t b, uint32_t n);

#endif
