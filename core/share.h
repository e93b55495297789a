/*
 * share.h - where the built-in models, GPUs, rules ... stand.
 *
 * The folder that holds models/, gpus/, clusters/, software/, examples/, rules/:
 * $LOCKSTEP_SHARE, else scenarios/ beside the program or beside the folder it
 * lies in, else where "make install" puts it, else scenarios/ in the working
 * directory.  Looked for once; lives as long as the program.
 */
#ifndef LOCKSTEP_CORE_SHARE_H
#define LOCKSTEP_CORE_SHARE_H

#include <stdbool.h>

const char *share_dir(void);
bool share_is_there(void);

#endif
