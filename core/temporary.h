/*
 * temporary.h - where files and folders lie that are gone when the program ends.
 */
#ifndef LOCKSTEP_CORE_TEMPORARY_H
#define LOCKSTEP_CORE_TEMPORARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* TMPDIR, else the system's. */
const char *temporary_folder(void);

/* "FOLDER/lockstep-WHAT-XXXXXX", for mkstemp and mkdtemp.  False, and errno, when it has n
 * characters or more. */
bool temporary_name(char *path, size_t n, const char *what);

/* A file there that has no name any more: to write, and to read again.  -1 (NULL), and errno.
 * tmpfile() would look at no environment. */
int temporary_open(const char *what);
FILE *temporary_file(const char *what);

#endif
