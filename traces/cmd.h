/* cmd.h - the commands of this folder, for the table in lockstep.c; see sim/cmd.h. */
#ifndef LOCKSTEP_TRACES_CMD_H
#define LOCKSTEP_TRACES_CMD_H

int cmd_convert(int argc, char **argv); /* one trace format into another */

#endif
