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
 * ZERO BUBBLE (Qi et al., ICLR 2024, arXiv 2401.10241; arXiv 2405.15362).  Backward in two:
 * B makes the gradient that travels on, W those of the weights, which nobody waits for, so it
 * fills the gaps:
 *
 *     zb-h1, pp 4     warm-up as 1f1b; stage s leaves the W of s micro-batches for the end
 *     stage 0   F0 F1 F2 F3 .. .. .. B0 W0 F4 B1 W1 F5 B2 W2 ...
 *     stage 3            F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 ...             W5 W6 W7
 *
 *     zb-1p, zb-2p    found by the greedy search of schedule_zb.c, so that no stage holds
 *                     more than pp, or 2 pp, micro-batches between their F and their W
 *     zbv             two chunks a stage, down the stages and up again: chunk c is on stage c,
 *                     or on 2 pp - 1 - c; the order is torch's ScheduleZBVZeroBubble
 *     dualpipe        the same two chunks, in the order of DeepSeek's DualPipeV (dualpipev.py, and
 *                     torch's ScheduleDualPipeV): steadily a forward of one chunk and a whole
 *                     backward of the other, a pair.  Inside a pair one comes after the other, as
 *                     in both where nobody gives them a function that overlaps the two
 *
 * With F, B and W equally long a step is m (F + B + W) long plus (pp - 1) (F + B - W) under
 * zb-h1 and zb-1p, (pp - 1) F under zb-2p (the last stage waits for its first forward), and
 * (pp - 1) F / 2 under zbv, whose chunks are half as long; 1f1b: (pp - 1) (F + B + W).  dualpipe,
 * whatever they take: (pp - 1) (F + 2 B - W) / 2.
 *
 * PAIRS.  Under dualpipe a whole backward is one call, which does W as well, and a forward and
 * the backward after it are one function (Action.tied): they begin when the inputs of both are
 * there, and what they make travels on when all is done.  In Megatron's combined 1F1B, interleaved
 * or without a pipeline, they are one with all-to-alls hidden behind the other half
 * (SchedulePlan.pairs), but each sends what it made at once (post_forward and post_backward of
 * combined_1f1b.py); one forward more warms up, so that no half needs the other.
 *
 *     pp 1, pairs     F0  F1+B0  F2+B1  F3+B2  B3
 *
 * STEPS ON STEPS.  Where no stage waits for the others between steps (Graph.open_ended) the next
 * begins on a stage when this one is done there: the way into the pipeline is paid once, not in
 * every step, and what counts of an order is the longest time of a stage from its first action to
 * its last.  With F, B and W equally long that of zb-2p is m (F + B + W).
 *
 *     zb-2p     stage 0   [ step 0          ][ step 1          ]
 *               stage 1      [ step 0          ][ step 1          ]
 *
 * STEPS.  A schedule that does not overlap its transfers exchanges activations
 * and gradients between steps: whatever a stage sends after step n and receives
 * for step n + 1 is posted together.  1f1b exchanges after each action, the
 * interleaved schedule after each pair of forward and backward, as Megatron's
 * send_forward_recv_backward and send_forward_backward_recv_forward_backward.
 * Waiting for every send after each action would block the interleaved schedule
 * for good: its stage s + 1 takes an activation two actions later.
 * Whoever follows zb-1p, zb-2p, zbv or dualpipe posts its receives one action early, as their
 * authors do.  W belongs to the step of the action before it: it transfers nothing.
 */
#ifndef LOCKSTEP_SIM_STRATEGY_SCHEDULE_H
#define LOCKSTEP_SIM_STRATEGY_SCHEDULE_H

#include "sim/scenario.h"

/*
 * Micro-batches of which chunks take turns in the interleaved schedule, as
 * torch.distributed.pipelining's Interleaved1F1B has it: pp where they divide by it (Megatron knows
 * no others, or a group size of one's own), else in as many rounds of equally many, each of pp or
 * more.  0: they cannot be put in groups so.
 */
uint32_t schedule_group(uint32_t pp, uint32_t micro_batches);

typedef enum ActionKind {
    ACTION_FORWARD,
    ACTION_BACKWARD, /* without the weight gradients where the schedule splits */
    ACTION_WEIGHT
} ActionKind;

typedef struct Action {
    ActionKind kind;
    uint32_t micro_batch;
    uint32_t turn; /* which of the stage's chunks: schedule_chunk */
    uint32_t step;
    uint32_t tied; /* with so many that follow it is done as one: see PAIRS */
} Action;

/* Where a chunk lives, and which one a stage has in a turn. */
uint32_t schedule_stage(Schedule schedule, uint32_t pp, uint32_t chunk);
uint32_t schedule_chunk(Schedule schedule, uint32_t pp, uint32_t stage, uint32_t turn);

/* How long the actions of a stage take, and the way of what they make to the next stage, or back
 * to the one before, beside whatever else is done: in any unit. */
typedef struct ActionCosts {
    uint64_t cost[3]; /* by ActionKind */
    uint64_t way[2];  /* of forward, of backward; 0 where there is no such stage */
} ActionCosts;

typedef struct SchedulePlan {
    Schedule schedule;
    uint32_t pp, turns, micro_batches;
    /* 1f1b of one stage, interleaved: a forward and the backward after it are one. */
    bool pairs;
    const ActionCosts *costs; /* by stage; where schedule_is_searched */
    bool open_ended;          /* see STEPS ON STEPS */
} SchedulePlan;

/* zb-1p and zb-2p: their order depends on what actions and transfers take. */
bool schedule_is_searched(Schedule schedule);

/* Actions of each stage. */
uint32_t schedule_actions_n(const SchedulePlan *plan);
/*
 * Fills actions[pp * schedule_actions_n], stage by stage.  interleaved: schedule_group is not 0;
 * zbv and dualpipe: turns is 2; dualpipe: at least 2 pp micro-batches.
 */
void schedule_actions(const SchedulePlan *plan, Action *actions);

/* Forwards of a turn whose backward is still to come when the stage does its first backward: so
 * many micro-batches it holds at least then.  Where the order is searched: at least so many, as
 * long as no backward takes less than half a forward. */
uint32_t schedule_held(const SchedulePlan *plan, uint32_t stage, uint32_t turn);

#endif
