/*
 * program.h - a rank's part of a graph, ready to be walked step after step.
 *
 *     Graph + rank --program_make--> tasks in launch order, each with
 *         its op, its arguments as pieces of one arena of memory,
 *         what it waits for on other lanes, and the ranks it talks to
 *
 * It knows nothing of strategies: whatever a pass asked for stands in the graph.
 * Made once, the same in every step; nothing in it changes while a step runs.
 *
 * LANES.  "Task t is done" is lane_done[t.lane] > t.order, as with CUDA events
 * and as in the simulator's engine.  `waits` are the graph's dependencies (deps
 * and edges, but for those that the lane's own order implies, and at most one per
 * lane): they hold in model time too.  `guards` are extra: the memory of an
 * argument that is born here was last touched by that task of another lane.  They
 * are needed for what really runs, and cost nothing in model time.  Ops that are
 * posted together (Op.grouped) begin together, when what any of them waits for is done.
 * No guard can close a circle of ranks that wait for each other (program.c).
 *
 * MEMORY.  Resident frames come first, then everything that is born and dies, laid
 * out by first fit in program order.  Offsets are multiples of 64.  peak_bytes is
 * what the simulator calls peak (bytes alive, without gaps); arena_bytes, with the
 * gaps and the rounding, is what is allocated.  Names and lifetimes: core/graph.h.
 *
 * VIEWS.  A RELEASE op that ends one tensor, followed by a RELEASE op that begins
 * another (both without work; sim/strategy/dp.c), hands the memory on: the new
 * tensor lies where the old one began and has its content.
 *
 * STAGING.  Under context parallelism keys and values are gathered out of q, k and v
 * side by side, and their gradients scattered back there: the last columns of each
 * row; where keys have a norm, of two tensors.  Such a transfer has a Buffer more, in
 * which they lie row after row; it is in arena_bytes, and no part of peak_bytes.  So has
 * the exchange of SyncBatchNorm, which sends a number more (a count, that nobody reads)
 * than its argument holds.
 */
#ifndef LOCKSTEP_EXEC_PROGRAM_H
#define LOCKSTEP_EXEC_PROGRAM_H

#include "core/graph.h"

/* An argument of a task: where it lies in the arena. */
typedef struct Buffer {
    uint64_t offset, bytes, elements;
    DType dtype;
    uint8_t slot; /* Slot */
    uint8_t mode; /* ArgMode */
    bool born, dies;
    uint32_t name;   /* of the tensor, Graph.names */
    uint32_t tensor; /* within the slot's layout */
    uint32_t frame;  /* of the role; NONE_U32 for locals */
    uint64_t dims[TENSOR_DIMS_MAX];
} Buffer;

/* Until lane_done[lane] >= done. */
typedef struct Mark {
    uint32_t lane, done;
} Mark;

typedef struct Task {
    const Op *op;
    const Instance *instance;
    uint32_t id; /* op id, unique within the role: spans carry it */
    Lane lane;
    uint32_t order; /* tasks of this lane before it */
    uint32_t args_first, args_n;
    bool staged; /* behind the arguments stands one more Buffer: see STAGING */
    uint32_t waits_first, waits_n;
    uint32_t guards_first, guards_n;
    uint32_t members_first, members_n; /* comm: world ranks of the group, in its order */
    uint32_t self;                     /* comm: this rank's place among them */
} Task;

/* A tensor that lives through the step. */
typedef struct Resident {
    uint8_t slot;           /* Slot of the instances that name it */
    uint32_t frame, tensor; /* of the role; within the layout */
    uint32_t name;
    TensorClass class_;
    DType dtype;
    uint64_t offset, bytes, elements;
    uint64_t dims[TENSOR_DIMS_MAX];
} Resident;

typedef struct Program {
    const Graph *graph; /* not owned */
    const Role *role;
    uint32_t rank;
    uint32_t tasks_n, args_n, waits_n, guards_n, members_n, residents_n;
    Task *tasks;
    Buffer *args;
    Mark *waits, *guards;
    uint32_t *members;
    Resident *residents;
    uint32_t lane_n[LANE_N]; /* tasks on each lane */
    uint32_t *by_lane;       /* tasks lane after lane, in the order of each */
    uint32_t lane_first[LANE_N];
    uint64_t resident_bytes, peak_bytes, arena_bytes;
} Program;

/* The graph must be sealed and outlive the program. */
bool program_make(Program *p, const Graph *g, uint32_t rank, Err *err);
void program_free(Program *p);

static inline const Buffer *task_args(const Program *p, const Task *t)
{
    return p->args + t->args_first;
}
static inline uint32_t program_task_at(const Program *p, uint32_t lane, uint32_t order)
{
    return p->by_lane[p->lane_first[lane] + order];
}
/* The task that a mark is about. */
static inline uint32_t program_marked(const Program *p, Mark mark)
{
    return program_task_at(p, mark.lane, mark.done - 1);
}
/* How many tasks from t on are posted together; 1 but for grouped sends and receives. */
static inline uint32_t program_posted_n(const Program *p, uint32_t t)
{
    uint32_t n = 1;
    while (p->tasks[t + n - 1].op->grouped)
        n++;
    return n;
}
static inline const char *program_text(const Program *p, uint32_t name)
{
    return p->graph->names.text[name];
}

#endif
