/*
 * launch.h - how many ranks there are, which one this is, and starting them.
 *
 *     lockstep run S --ranks 4                        we start them (launch_ranks)
 *     torchrun --no-python --nproc-per-node 4 lockstep run S      RANK, WORLD_SIZE ...
 *     mpirun -n 4 lockstep run S                      OMPI_COMM_WORLD_*, PMI_*
 *     srun lockstep run S                             SLURM_PROCID ... (only with SLURM_STEP_ID)
 *
 * Several jobs side by side (launch_copies) are processes that each start, or are, a rank.
 *
 * Explicit flags win over variables.  Table and traps: the variables each launcher
 * sets stand in launch.c.
 */
#ifndef LOCKSTEP_EXEC_LAUNCH_H
#define LOCKSTEP_EXEC_LAUNCH_H

#include "exec/fabric.h"

typedef enum Launcher {
    LAUNCHER_NONE,  /* nobody: one process, or we start the others */
    LAUNCHER_OURS,  /* a child of launch_ranks */
    LAUNCHER_FLAGS, /* --rank and --world given */
    LAUNCHER_TORCHRUN,
    LAUNCHER_OPENMPI,
    LAUNCHER_MPICH,
    LAUNCHER_SLURM
} Launcher;

typedef struct LaunchFlags {
    uint32_t ranks;         /* --ranks N; 0 not given */
    uint32_t rank, world;   /* --rank, --world; NONE_U32 not given */
    uint32_t local_rank;    /* --local-rank; NONE_U32 */
    const char *rendezvous; /* --rendezvous; NULL */
} LaunchFlags;

/* Whether flags make sense by themselves; else it is the usage that is wrong. */
bool launch_flags_check(const LaunchFlags *flags, Err *err);
/* Fills place from flags, then from the environment.  Strings are owned by place->... as given, or
 * live in static storage of launch.c. */
bool launch_place(RankPlace *place, Launcher *by, const LaunchFlags *flags, Err *err);

/*
 * Starts `ranks` children that run `body(place, user)` and waits for them.  Children die with this
 * process, also by SIGKILL; SIGINT and SIGTERM are passed on once.  Returns the exit status to
 * leave with: the first child's that failed; a child killed by a signal is named on stderr, and so
 * are children that are all stopped for common->timeout_s, and then killed.
 * pids[ranks] is filled before any child begins, when given.
 */
int launch_ranks(uint32_t ranks, int (*body)(const RankPlace *place, void *user), void *user,
                 const RankPlace *common, int *pids);

/*
 * Runs body(copy, user) for copies 0 ... n - 1, each in a process of its own, at most at_once at a
 * time, and waits for all.  A copy that fails is named on stderr and leaves the others alone; a
 * signal that is to end this process ends all of them, and begins no more.  They die with this
 * process.  statuses[n]: the exit status of each.  Returns the first that is not EXIT_DONE.
 */
int launch_copies(uint32_t n, uint32_t at_once, const char *const *names,
                  int (*body)(uint32_t copy, void *user), void *user, int *statuses);

/*
 * body(place, user) for a rank that somebody else has started.  Who fails before it goes to meet
 * the others tells rank 0, as launch_ranks does for its children.
 */
int launch_self(const RankPlace *place, int (*body)(const RankPlace *place, void *user),
                void *user);

/*
 * launch_ranks with threads of this process: for ranks that share one GPU's memory.  Nobody can be
 * killed alone; the status is that of the lowest rank that failed.
 */
int launch_threads(uint32_t ranks, int (*body)(const RankPlace *place, void *user), void *user,
                   const RankPlace *common);

#endif
