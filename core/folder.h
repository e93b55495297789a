/*
 * folder.h - which files of one kind a folder has.
 */
#ifndef LOCKSTEP_CORE_FOLDER_H
#define LOCKSTEP_CORE_FOLDER_H

#include "core/arena.h"

/* Files whose names end in `end` (".json"), without it, sorted; hidden ones are left out.  Returns
 * how many, none where there is no such folder.  Names and their array are the arena's. */
uint32_t folder_names(const char *const **names, Arena *arena, const char *folder,
                      const char *end);

#endif
