/*
 * cmd.h - the commands of this folder, for the table in lockstep.c.
 *
 * argv[0] is the command's name, as in a program of its own.  A command answers
 * --help itself, writes its result to stdout and its talk to stderr, and returns
 * the exit status: 0 done, 1 could not, 2 wrong usage.
 */
#ifndef LOCKSTEP_SIM_CMD_H
#define LOCKSTEP_SIM_CMD_H

int cmd_sim(int argc, char **argv);  /* predict the steps of scenarios */
int cmd_plan(int argc, char **argv); /* the best strategy on a number of GPUs */
int cmd_list(int argc, char **argv); /* what is built in: models, gpus, clusters, ... */

int cmd_collective(int argc, char **argv); /* what nccl-tests would print on a cluster */
int cmd_cluster(int argc, char **argv);    /* who reaches whom, over what, how fast */

#endif
