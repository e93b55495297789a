/*
 * cmd_options.h - what commands that take scenarios share of their command line.
 *
 * A command gives its table of long options and a function that takes one; the
 * walk, the wording of mistakes, --set, --jobs and --help are the same for all.
 * Only cmd_*.c files include this.
 */
#ifndef LOCKSTEP_SIM_CMD_OPTIONS_H
#define LOCKSTEP_SIM_CMD_OPTIONS_H

#include <getopt.h>

#include "core/setting.h"
#include "sim/scenario.h"

/* The value of --help in every table; a command's own options are below it, from 1 on. */
enum { OPTION_HELP = 1000 };

void option_setting(SettingList *list, const char *key, const char *value);
/* KEY=VALUE of --set; cuts text in two. */
bool option_set(SettingList *list, char *text, Err *err);
/* A whole number from min to max; option is named in the message. */
bool option_count(uint64_t *x, const char *option, const char *text, uint64_t min, uint64_t max,
                  Err *err);
/* Ranks as in 0,3 or 0-7, added to a list that the command frees. */
bool option_ranks(uint32_t **ranks, uint32_t *n, uint32_t *cap, const char *option,
                  const char *list, Err *err);
bool option_jobs(uint32_t *jobs, const char *text, Err *err);

/* Takes one option (optarg is set); false with err. */
typedef bool OptionTake(void *user, int option, Err *err);

/*
 * Walks argv; *help and nothing more when that is asked for.  The arguments that
 * are not options begin at argv[optind] afterwards.
 */
bool options_walk(int argc, char **argv, const struct option *table, OptionTake *take,
                  void *user, bool *help, Err *err);

/* Says what is wrong and where the usage stands; returns EXIT_USAGE. */
int options_wrong(const char *command, const Err *err);

#endif
