/*
 * file_text.h - a whole text file in memory.
 *
 * A pipe, as in `lockstep plan <(jq ...) --gpus 8`, can be read once, and commands open their
 * scenario several times: what one held is kept, by its path, and read again from memory.
 */
#ifndef LOCKSTEP_CORE_FILE_TEXT_H
#define LOCKSTEP_CORE_FILE_TEXT_H

#include <stddef.h>

#include "core/err.h"

/* *text is the caller's to free, *bytes long and without an end.  Longer than bytes_max is an
 * error. */
bool file_text_read(const char *path, size_t bytes_max, char **text, size_t *bytes, Err *err);

#endif
