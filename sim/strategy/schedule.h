/*
 * schedule.h - what a pipeline stage does after what.  Pure arithmetic.
 *
 *     1f1b, pp 4, 6 micro-batches       | warm-up | steady            | cool-down
 *     stage 0                            F0 F1 F2   F3 B0 F4 B1 F5 B2   B3 B4 B5
 *     stage 2                            F0         F1 B0 F2 B1 F3 B2 F4 B3 F5 B4   B5
 *     stage 3                                       F0 B0 F1 B1 F2 B2 ...
 *
 * Stage s starts with pp - 1 - s forwards, so it never holds more than pp - s
 * micro-batches.  Interleaved (Megatron's): a stage owns several chunks of the
 * model, chunk c lives on stage c % pp; groups of pp micro-batches pass through
 * all chunks one after another:
 *
 *     interleaved, pp 2, 2 chunks a stage, 4 micro-batches (F 1.0 = micro-batch 1, its turn 0)
 *     stage 0   F0.0 F1.0 F0.1 F1.1   F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0   B2.1 B3.1 ...
 *     stage 1   F0.0 F1.0   F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 ...
 *
 * with (pp - 1 - s) * 2 + (turns - 1) * pp forwards to warm up; backward visits
 * the chunks in reverse.  gpipe: all forwards, then all backwards.  naive: one
 * micro-batch at a time.
 *
 * STEPS.  A schedule that does not overlap its transfers exchanges activations
 * and gradients between steps: whatever a stage sends after step n and receives
 * for step n + 1 is posted together.  1f1b exchanges after each action, the
 * interleaved schedule after each pair of forward and backward, as Megatron's
 * send_forward_recv_backward and send_forward_backward_recv_forward_backward.
 * Waiting for every send after each action would block the interleaved schedule
 * for good: its stage s + 1 takes an activation two actions later.
 */
#ifndef LOCKSTEP_SIM_STRATEGY_SCHEDULE_H
#define LOCKSTEP_SIM_STRATEGY_SCHEDULE_H

#include "sim/scenario.h"

typedef struct Action {
    bool backward;
    uint32_t micro_batch;
    uint32_t turn; /* which of the stage's chunks: chunk = turn * pp + stage */
    uint32_t step;
} Action;

/* Fills actions[2 * micro_batches * turns].  interleaved: micro_batches is a multiple of pp. */
void schedule_actions(Action *actions, Schedule schedule, uint32_t pp, uint32_t stage,
                      uint32_t turns, uint32_t micro_batches);

#endif
