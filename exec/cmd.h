/* cmd.h - the commands of this folder, for the table in lockstep.c; see sim/cmd.h. */
#ifndef LOCKSTEP_EXEC_CMD_H
#define LOCKSTEP_EXEC_CMD_H

int cmd_run(int argc, char **argv);   /* train for real and record what happens */
int cmd_bench(int argc, char **argv); /* the micro-benchmarks that calibration needs */

#endif
