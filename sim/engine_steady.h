/*
 * engine_steady.h - what engine_steady.c, engine_mark.c, engine_pace.c and engine_rewind.c share;
 * nobody else includes it.
 *
 * Places are instances of a rank's program as it would be with those that it was taken back
 * over (engine_rewind.c): place = instance + Steady.rewound, for ever the same.
 */
#ifndef LOCKSTEP_SIM_ENGINE_STEADY_H
#define LOCKSTEP_SIM_ENGINE_STEADY_H

#include "sim/engine_state.h"

/* Periods that are looked for: so many strides of micro-batches. */
enum { PERIODS_MAX = 12, MARKS_KEPT = PERIODS_MAX + 1 };

typedef struct RankSums {
    int64_t ns[6];
} RankSums;

typedef struct RunnerMark {
    uint32_t compute;         /* place of its compute lane */
    uint32_t lowest, highest; /* places of its moving lanes, and its host */
    bool host_done;           /* has launched everything */
    int64_t host_ns;          /* when it launches the instance of the compute lane */
    uint64_t supply_waits;    /* of moving lanes, so far */
    RankSums sums;
    uint32_t stat_first; /* Mark.stats */
} RunnerMark;

typedef struct Mark {
    int64_t now_ns;
    RunnerMark *runners;
    uint32_t words_n, words_cap, times_n, times_cap, paths_n, paths_cap, stats_n, stats_cap;
    int64_t *words; /* the state: what is counted */
    int64_t *times; /* and what is measured, ns from now */
    Path *paths;    /* origin: the path of the mark before that it goes back to */
    CollectiveStat *stats;
} Mark;

/* A rank class begins the last micro-batch of another stride. */
typedef struct Pass {
    int64_t host_ns; /* when the host launched it */
    uint32_t place;
    uint32_t behind; /* instances that the last of its lanes is behind the compute lane */
    uint64_t supply_waits;
    RankStat stat; /* its sums so far */
} Pass;

/* Of passes longer ago only the time is kept. */
enum { PASSES_KEPT = 9, TIMES_KEPT = 65 };

typedef struct Pace {
    uint32_t next, micro_batch; /* instance at which the next pass is, and its micro-batch: as
                                   the graph has them */
    uint32_t passes_n;
    Pass passes[PASSES_KEPT];
    int64_t at_ns[TIMES_KEPT]; /* when they were, of more of them */
} Pace;

static inline const Pass *pass_before(const Pace *p, uint32_t back)
{
    return &p->passes[(p->passes_n - 1 - back) % PASSES_KEPT];
}

/* By how much a leap moves the times of a run. */
typedef struct Shift {
    int64_t times, ns;
    int64_t *host_ns; /* by runner: its launches */
} Shift;

/* Instances [first, end) of a program that are one stride again and again. */
typedef struct Zone {
    uint32_t first, end, stride; /* stride: instances; 0: there is no such zone */
} Zone;

struct Steady {
    Sim *sim;
    uint32_t left;        /* micro-batches left out, and not counted so far */
    Pace *pace;           /* by runner */
    uint32_t strides;     /* whose mean is the pace */
    bool own;             /* each rank's own */
    uint32_t *limit;      /* by role: instances before it are as with all micro-batches */
    Zone *zone;           /* by role; NULL: not looked for yet */
    uint32_t *rewound;    /* by runner: instances that it was taken back */
    uint32_t *segment_of; /* by op */
    uint32_t micro_batch; /* of Sim.steady_next, where the next mark is made */
    bool early;           /* that begins behind the limit: steady_next is the limit */
    uint32_t marks_n;     /* made so far */
    Mark marks[MARKS_KEPT];

    /* Working space of a mark. */
    uint32_t flows_n, flows_cap, events_cap;
    uint32_t *flow, *number; /* flows in order; the place of each */
    Event *events;
};

/* engine_steady.c */
uint32_t steady_limit(const Steady *s, const Runner *r);
/* The first instance at or behind `from` that is of the micro-batch or a later one. */
uint32_t steady_first_of(const Role *r, uint32_t from, uint32_t micro_batch);
/* Do the instances [from, to) of a program come again `shift` instances and some micro-batches
 * later?  but_first: those of the first micro-batch may have other kernels. */
bool steady_repeats(const Steady *s, const Role *r, uint32_t from, uint32_t to, uint32_t shift,
                    uint32_t micro_batches, bool but_first);
void steady_shift(Steady *s, const Shift *shift); /* RankStat.repeat is known */

/* engine_rewind.c */
uint32_t rewind_most(Steady *s); /* strides that all ranks can be taken back now */
void rewind_by(Steady *s, uint32_t strides);
/* Has a lane run ahead through all there is for it in a short graph, and would by now be at work
 * on what more strides have?  Then what is seen is not how they go by. */
bool rewind_would_go_on(Steady *s, const Runner *r);
/* steady_repeats of the places [from, to) of a rank, wherever it was taken back. */
bool rewind_repeats(const Steady *s, const Runner *r, uint32_t from, uint32_t to,
                    uint32_t shift, uint32_t micro_batches, bool but_first);
/* Instances that stand for more, from a place on, as instances that the graph has. */
Repeat rewind_repeat(const Steady *s, const Runner *r, Repeat of);
/* RankStat.repeat of all that was left out, of ranks that were taken back. */
void rewind_count(Steady *s);

/* engine_pace.c */
void pace_begin(Steady *s);
bool pace_leap(Steady *s);

/* engine_mark.c */
bool mark_is_parked(const Steady *s, const Runner *r, uint32_t lane);
bool mark_event_counts(const Steady *s, const Event *e);
void mark_each_path(Steady *s, Mark *m, void (*visit)(Mark *m, Path *p));
void mark_make(Steady *s, Mark *m);
/* But for so many ns here and there. */
bool mark_equal(const Mark *a, const Mark *b, int64_t slack_ns);
void mark_free(Mark *m);

#endif
