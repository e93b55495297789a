/*
 * cmd_validate_plot.h - predicted over measured step time as a picture.
 */
#ifndef LOCKSTEP_PROFILE_CMD_VALIDATE_PLOT_H
#define LOCKSTEP_PROFILE_CMD_VALIDATE_PLOT_H

#include "profile/validate.h"

/* Whether path ends with .svg or .png; else false with a sentence. */
bool validate_plot_check(const char *path, Err *err);
/* Both axes logarithmic, a colour and a shape a group.  A PNG when path ends with .png, else
 * an SVG. */
bool validate_plot(const Validation *v, const char *path, Err *err);

#endif
