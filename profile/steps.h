/*
 * steps.h - the steps of a timeline in GPU time: report's and compare's one definition.
 *
 *     host    |-- step 4 --|-- step 5 --|-- step 6 --|      marks
 *              l    l        l    l      l               l  launches
 *     stream        [4  ][4  ] [5  ][5  ]  [6  ]            GPU work may lag behind
 *              |--- 4 -----|--- 5 ------|--- 6 -------|     steps, here
 *
 * An op belongs to the step that launched it, where the launch is known, else to the
 * one it starts in.  A step begins with its mark; but where the GPU still works for the
 * step before at that moment, with its own first op.  It ends where the next one begins,
 * and the last of consecutive steps with its mark or its last op, whichever is later.
 * So a host that runs ahead moves no work into the step after, and steps that follow one
 * another leave nothing out.  A rank without marks has those of the first rank with some;
 * a trace without marks is one step.
 */
#ifndef LOCKSTEP_PROFILE_STEPS_H
#define LOCKSTEP_PROFILE_STEPS_H

#include "profile/metrics.h"

/* An op of the GPU. */
typedef struct StepOp {
    uint64_t span;
    uint32_t step; /* index among the rank's marks; NONE_U32: in none */
} StepOp;

typedef struct RankSteps {
    uint32_t rank, ranks_n;  /* of the tracks */
    const StepWindow *marks; /* as the host marked them; marks_n 0: one step without a mark */
    uint32_t marks_n;
    StepOp *ops; /* in the order of its tracks */
    uint32_t ops_n, ops_cap;
    int64_t *begin_ns, *end_ns; /* by mark, in GPU time; one of them without marks */
    bool *works;                /* by mark: it has ops */
} RankSteps;

typedef struct GpuSteps {
    StepWindows marks;
    RankSteps *ranks; /* with GPU work, ascending */
    uint32_t ranks_n, ranks_cap;
} GpuSteps;

/* t must be sealed.  O(n). */
void gpu_steps_find(GpuSteps *s, const Timeline *t);
void gpu_steps_free(GpuSteps *s);

/* Index among the marks; 0 where there are none; NONE_U32: it has no such step. */
uint32_t rank_step_numbered(const RankSteps *r, int64_t number);

/* All of them as windows, by rank, then time. */
void step_windows_in_gpu_time(StepWindows *w, const Timeline *t);

#endif
