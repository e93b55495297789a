/*
 * backend.h - what a machine must be able to do so that a program can run on it.
 *
 *     walk.c, the host thread of a rank             backend
 *     ---------------------------------             -------
 *     begin(step)                                   counts from zero again
 *     launch(task) launch(task) ...                 queues it on its lane, returns at once
 *     host_wait(task)                               blocks until the task's waits are done
 *     launch(task) ...
 *     end()                                         blocks until all lanes are empty
 *
 * A lane is a stream: its tasks run one after another in the order of their
 * launches.  Before it runs a task the lane waits until every mark in the task's
 * waits and guards is reached: events, recorded behind tasks of other lanes.  Sends
 * and receives that are posted together (program_posted_n) run as one, when all of
 * them are launched.  What a task is, its op says: a kernel by op kind, a collective
 * or send over the fabric, a copy from the host whose data `load` delivers, nothing
 * (OP_RELEASE).  A task that fails stops all lanes: launch does nothing any more,
 * host_wait and end return false with the sentence.
 *
 * On two backends the same program computes the same numbers within rounding; the
 * CPU's are the reference, and bit for bit the same every time.
 *
 * CLOCKS
 *     wall      times are this host's, since begin_run
 *     virtual   arithmetic is real, time is the model's.  A task starts when it is
 *               launched, its lane is free and its waits are done; a kernel takes
 *               run_ns; a transfer begins when the last one has come (ranks tell each
 *               other when they come) and takes run_ns then.  Guards take no time.
 *     paced     as wall, but a kernel lasts at least run_ns, a transfer at least run_ns
 *               after the last one has come, and the host takes its time to launch
 */
#ifndef LOCKSTEP_EXEC_BACKEND_H
#define LOCKSTEP_EXEC_BACKEND_H

#include "exec/fabric.h"
#include "exec/kernel.h"
#include "exec/model_time.h"

typedef enum RunClock { RUN_WALL, RUN_VIRTUAL, RUN_PACED, RUN_CLOCK_N } RunClock;

extern const char *const run_clock_names[RUN_CLOCK_N]; /* "wall", "virtual", "paced" */

/* When a task ran, on the clock of the run. */
typedef struct TaskRecord {
    int64_t launched_ns; /* the host was done with launching it */
    int64_t start_ns;    /* its lane reached it and all it waits for was done */
    int64_t met_ns;      /* transfers: the last one had come; else start_ns */
    int64_t end_ns;
    int64_t busy_ns; /* kernels on the CPU, where Job.timed: the processor's time; else 0 */
} TaskRecord;

/* Writes what the host has for a tensor of an OP_H2D task (b) to `out`; called by the lane. */
typedef bool LoadData(void *user, const Task *t, const Buffer *b, void *out, Err *err);

/* What a backend is opened with; all of it outlives the backend. */
typedef struct Job {
    const Program *program;
    Fabric *fabric;
    ModelFacts facts;
    Hyper hyper;
    uint64_t (*norm_counts)(const void *owners,
                            const Buffer *grad); /* as in KernelEnv; may be NULL */
    const void *norm_owners;
    RunClock clock;
    const OpTime *times; /* by op id; NULL on wall */
    LoadData *load;
    void *load_user;
    void (*rewind)(
        void *user); /* the copies bring the first step's data again; for measure_job */
    const struct CudaOptions *cuda; /* exec/cuda_plugin.h; NULL elsewhere */
    bool timed; /* times of each task are wanted, even where taking them costs (CUDA) */
} Job;

typedef struct Backend Backend;

typedef struct BackendType {
    bool own_memory; /* the program's arena is the backend's, not the fabric's: parameters get
                        there, and snapshots from there, by write and read (exec/store.h) */

    /* False and a sentence when a task of the program cannot run here.  Before the rank has any
     * other thread; open asks again.  NULL: only open says. */
    bool (*check)(const Program *p, Err *err);
    bool (*open)(Backend **b, const Job *job, Err *err);
    void (*close)(Backend *b); /* ends its threads; NULL is fine */

    /* Copy from the program's arena to the host, from the host to it, set it to zero.  From any
     * thread, one at a time, not while a step runs. */
    bool (*read)(Backend *b, uint64_t offset, void *to, uint64_t bytes, Err *err);
    bool (*write)(Backend *b, uint64_t offset, const void *from, uint64_t bytes, Err *err);
    bool (*clear)(Backend *b, uint64_t offset, uint64_t bytes, Err *err);

    /* Time is 0 now; before the first step. */
    void (*begin_run)(Backend *b);
    /* `step` optimizer steps are done; lanes are free at from_ns (virtual). */
    void (*begin)(Backend *b, uint64_t step, int64_t from_ns);
    /* launched_ns: when the host has launched it: model time; paced: not before; 0 on wall. */
    void (*launch)(Backend *b, uint32_t task, int64_t launched_ns);
    /* *done_ns: when the last of what it waits for was done. */
    bool (*host_wait)(Backend *b, uint32_t task, int64_t *done_ns, Err *err);
    /* *loss: the terms that this rank's kernels have added up in the step. */
    bool (*end)(Backend *b, double *loss, Err *err);
    /* By task, of the step that has ended; valid until the next begin. */
    const TaskRecord *(*records)(const Backend *b);
    int64_t (*now_ns)(const Backend *b); /* of wall and paced */
    /* Device memory that it holds beside the arena: scratch, workspaces, tables.  NULL: none. */
    uint64_t (*beside_bytes)(const Backend *b);
} BackendType;

extern const BackendType backend_cpu;

#endif
