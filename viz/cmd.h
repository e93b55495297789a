/* cmd.h - the command of this folder, for the table in lockstep.c; see sim/cmd.h. */
#ifndef LOCKSTEP_VIZ_CMD_H
#define LOCKSTEP_VIZ_CMD_H

int cmd_view(int argc, char **argv); /* look at traces, or draw them into a file */

#endif
