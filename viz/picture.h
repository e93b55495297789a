/*
 * picture.h - a draw list to the file its name asks for.
 */
#ifndef LOCKSTEP_VIZ_PICTURE_H
#define LOCKSTEP_VIZ_PICTURE_H

#include "core/err.h"
#include "viz/draw.h"

/* path ends with .svg or .png, else false with a sentence that begins with option. */
bool picture_name_check(const char *path, const char *option, Err *err);

/* What picture_write makes of a name. */
bool picture_is_svg(const char *path);
/* A name that ends with .png is a PNG, every other an SVG. */
bool picture_write(const DrawList *d, const char *path, Err *err);

#endif
