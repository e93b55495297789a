/* cmd_from_trace.h - lockstep sim --from-trace, for cmd_sim.c. */
#ifndef LOCKSTEP_SIM_CMD_FROM_TRACE_H
#define LOCKSTEP_SIM_CMD_FROM_TRACE_H

#include "sim/cmd_options.h"

typedef struct FromTraceCommand {
    char *const *names; /* of trace files, or folders of them */
    uint32_t names_n;
    const SettingList *set;
    int64_t step;      /* -1: the median one */
    const char *trace; /* to write the replay to; NULL: nowhere */
    bool json;
} FromTraceCommand;

/* The exit status. */
int cmd_from_trace(const FromTraceCommand *c);

#endif
