/* cmd.h - the commands of this folder, for the table in lockstep.c; see sim/cmd.h. */
#ifndef LOCKSTEP_PROFILE_CMD_H
#define LOCKSTEP_PROFILE_CMD_H

int cmd_validate(int argc, char **argv); /* predictions beside published measurements */

#endif
