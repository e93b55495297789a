/*
 * png.h - pixels to a PNG file.
 */
#ifndef LOCKSTEP_VIZ_PNG_H
#define LOCKSTEP_VIZ_PNG_H

#include "viz/picture.h"
#include "viz/raster.h"

/* The file appears whole or not at all (core/out_file.h). */
bool frame_write_png(const Frame *f, const char *path, Err *err);

#endif
