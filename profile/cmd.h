/* cmd.h - the commands of this folder, for the table in lockstep.c; see sim/cmd.h. */
#ifndef LOCKSTEP_PROFILE_CMD_H
#define LOCKSTEP_PROFILE_CMD_H

int cmd_compare(int argc, char **argv);   /* a prediction beside a recorded run */
int cmd_report(int argc, char **argv);    /* where the time of a trace went */
int cmd_validate(int argc, char **argv);  /* predictions beside published measurements */
int cmd_calibrate(int argc, char **argv); /* a GPU's or cluster's file from measurements */
int cmd_profile(int argc, char **argv);   /* any CUDA program under the CUPTI collector */

#endif
