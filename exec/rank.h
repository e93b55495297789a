/*
 * rank.h - one rank's whole run: memory, parameters, steps, snapshots, records.
 *
 *     program_make -> fabric_open -> [first values -> measure_job] -> first values or snapshot
 *         -> walk ... -> record_gather
 *
 * All ranks of a job call rank_run with like setups.  What it needs of a scenario is
 * given here in numbers: it knows neither scenarios nor the simulator.
 */
#ifndef LOCKSTEP_EXEC_RANK_H
#define LOCKSTEP_EXEC_RANK_H

#include "core/timeline.h"
#include "exec/clocks.h"
#include "exec/feed.h"
#include "exec/measure.h"
#include "exec/walk.h"
#include "exec/whole.h"

struct RankEnd;

typedef struct RankSetup {
    const Graph *graph;
    const WholeList *whole;
    const DataSpec *data;
    const BackendType *backend;
    ModelFacts facts;
    FeedSpec feed;
    Hyper hyper;
    uint64_t seed, steps; /* steps: in all, with those of the snapshot it goes on from */
    RunClock clock;
    bool rings;                   /* collectives go round rings (fabric_use_rings) */
    const OpTime *times;          /* by op id; NULL on wall */
    const int64_t *host_start_ns; /* as in Walk */
    bool trace;
    bool collected; /* somebody else takes the times of the trace: tasks need not be timed */
    const struct CudaOptions *cuda; /* for the CUDA backend; else NULL */

    const char *checkpoint; /* directory; NULL: no snapshots */
    uint64_t every;         /* a snapshot behind every so many steps; 0: at the end only */
    bool resume;
    const char *model, *text; /* as in SnapshotInfo */

    uint32_t beside_n; /* like jobs on this host at the same time, with this one; 0 as 1 */
    /* Before the first step, on rank 0, with what this machine takes.  NULL: nothing is
     * measured; so it must be where the backend has memory of its own. */
    bool (*measured)(void *user, const MachineTimes *m, Err *err);
    /* Behind each step; may be NULL.  False with err ends the job. */
    bool (*each_step)(void *user, const StepInfo *info, Err *err);
    /* With a trace, behind the last step and before anything is closed; all ranks together.  May
     * put another timeline in the result's place.  May be NULL. */
    bool (*ended)(void *user, const struct RankEnd *end, Err *err);
    void *user;
} RankSetup;

/* What somebody else recorded of this job (RankSetup.ended). */
typedef struct RankCollected {
    bool on;
    uint64_t records_n, dropped_n;
    double overhead; /* part of the time of a rank's own threads; the worst rank's */
} RankCollected;

/* What all ranks told each other: the same everywhere, but the timeline, which rank 0 has. */
typedef struct RankResult {
    uint64_t first_step, steps_n; /* steps done before this run; by it, 0 if all were done */
    StepInfo *steps;
    uint32_t world_n;
    uint64_t *peak_bytes;  /* by rank: what was laid out for tensors alive at once */
    uint64_t arena_bytes;  /* the largest of any rank: with gaps and staging */
    uint64_t beside_bytes; /* the same of what the backend holds on its device beside it */
    RankCollected collected;
    int64_t *pids;     /* by rank */
    Timeline timeline; /* not sealed */
    /* Rank 0: most that any rank's times in it were moved, to one clock. */
    int64_t shift_max_ns;
} RankResult;

typedef struct RankEnd {
    Fabric *fabric;
    const Clocks *clocks; /* rank 0 knows how all clocks lie */
    uint32_t rank;
    int64_t zero_ns, now_ns; /* CLOCK_MONOTONIC when the run's clock was 0, and now */
    RankResult *out;
} RankEnd;

bool rank_run(RankResult *out, const RankSetup *s, const RankPlace *place, Err *err);
void rank_result_free(RankResult *r);

#endif
