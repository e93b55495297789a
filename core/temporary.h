/*
 * temporary.h - where files and folders lie that are gone when the program ends.
 */
#ifndef LOCKSTEP_CORE_TEMPORARY_H
#define LOCKSTEP_CORE_TEMPORARY_H

#include <stdbool.h>
#include <stddef.h>

/* TMPDIR, else the system's. */
const char *temporary_folder(void);

/* "FOLDER/lockstep-WHAT-XXXXXX", for mkstemp and mkdtemp.  False, and errno, when it has n
 * characters or more. */
bool temporary_name(char *path, size_t n, const char *what);

#endif
