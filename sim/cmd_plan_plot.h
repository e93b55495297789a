/*
 * cmd_plan_plot.h - step time over GPUs as a picture: all that fit, and the front.
 */
#ifndef LOCKSTEP_SIM_CMD_PLAN_PLOT_H
#define LOCKSTEP_SIM_CMD_PLAN_PLOT_H

#include "sim/planner.h"

/* Whether path ends with .svg or .png; else false with a sentence. */
bool plan_plot_check(const char *path, Err *err);
/* p has candidates that fit. */
bool plan_plot(const Plan *p, const char *path, Err *err);

#endif
