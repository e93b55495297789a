/*
 * png.h - pixels to a PNG file, and a draw list to the picture its file's name asks for.
 */
#ifndef LOCKSTEP_VIZ_PNG_H
#define LOCKSTEP_VIZ_PNG_H

#include "viz/raster.h"

/* The file appears whole or not at all (core/out_file.h). */
bool frame_write_png(const Frame *f, const char *path, Err *err);

/* path ends with .svg or .png, else false with a sentence that begins with option. */
bool picture_name_check(const char *path, const char *option, Err *err);
bool picture_write(const DrawList *d, const char *path, Err *err);

#endif
