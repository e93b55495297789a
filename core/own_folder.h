/*
 * own_folder.h - where this program lies, and so what came with it.
 */
#ifndef LOCKSTEP_CORE_OWN_FOLDER_H
#define LOCKSTEP_CORE_OWN_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* The folder of the running program, without a slash at its end.  False, and "", when the kernel
 * does not tell or it has n characters or more. */
bool own_folder(char *folder, size_t n);

#endif
