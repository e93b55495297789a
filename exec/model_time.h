/*
 * model_time.h - how long ops take by the model, as an input of a run.
 *
 * A simulation of the same graph, every rank by itself, says how long each kernel and
 * each transfer took (contention and slow-downs included).  When things start, who
 * waits and who meets whom is not taken from it: that is computed by what runs.
 */
#ifndef LOCKSTEP_EXEC_MODEL_TIME_H
#define LOCKSTEP_EXEC_MODEL_TIME_H

#include "core/graph.h"

/* Model time of one op of a rank. */
typedef struct OpTime {
    int64_t run_ns;    /* kernel, or transfer once all have come */
    int64_t launch_ns; /* of the host that launches it */
} OpTime;

/* A rank that a shared host drives: what it launches, in what times by op id. */
typedef struct HostMember {
    const Role *role;
    const OpTime *times;
} HostMember;

/*
 * One host drives several ranks (Graph.host_group): instance 0 of each in member order,
 * then instance 1 ...  start_ns: when it begins to launch each instance of member `turn`,
 * from the step's begin.
 */
void host_turns(int64_t *start_ns, const Graph *g, const HostMember *members, uint32_t n,
                uint32_t turn);

#endif
