/*
 * validate_parts.h - numbers as the tables of validate show them; only validate_*.c include it.
 *
 *     char t[VALIDATE_TEXT_CAP];
 *     printf("%s", validate_value(t, "step_time_s", 1.4));        1.4 s
 *
 * Each function fills text and returns it.  What is not finite is "-".
 */
#ifndef LOCKSTEP_PROFILE_VALIDATE_PARTS_H
#define LOCKSTEP_PROFILE_VALIDATE_PARTS_H

#include "profile/validate.h"

enum {
    VALIDATE_TEXT_CAP = 160,
    VALIDATE_WORST = 12, /* rows shown when there are more than VALIDATE_ALL_ROWS */
    VALIDATE_WORST_OF_GROUP = 3,
    VALIDATE_ALL_ROWS = 20, /* up to this many every row is shown */
};

char *validate_percent(char *text, double percent);             /* "7.4", "1234" */
char *validate_signed(char *text, double percent);              /* "+7.4" */
char *validate_fraction(char *text, double x);                  /* "0.75" */
char *validate_value(char *text, const char *metric, double x); /* by the metric's unit */
char *validate_need(char *text, const Overfull *x);             /* "82.23 GiB of 79.33 GiB" */
/* At most width bytes of a name from outside: longer ones end in "...", control bytes are '?'. */
char *validate_name(char *text, const char *name, uint32_t width);
/* The group's name, or "(no group)". */
char *validate_group_name(char *text, const Validation *v, uint32_t group, uint32_t width);

/* Calls line for every group with rows of metric, for every file where there are several of more
 * than one scenario, and for all. */
typedef void ValidateLine(const Validation *v, FILE *out, const char *name, ValidatePart part);
void validate_each_group(const Validation *v, FILE *out, uint32_t metric, ValidateLine *line);
/* The same for every training stack. */
void validate_each_software(const Validation *v, FILE *out, uint32_t metric,
                            ValidateLine *line);

/* Calls line for every group whose plans can be ranked, and for all where there are several; head
 * stands before the first.  False, and nothing printed: none can be. */
typedef void ValidateRanks(FILE *out, const char *name, const Ranking *r);
bool validate_each_ranking(const Validation *v, FILE *out, uint32_t name_width,
                           const char *head, ValidateRanks *line);

/* A reason for skipping, and the rows of the scenarios that it holds for. */
typedef void ValidateSkip(FILE *out, const Validation *v, const char *reason,
                          const uint32_t *rows, uint32_t rows_n);
void validate_each_reason(const Validation *v, FILE *out, ValidateSkip *skip);
uint32_t validate_skipped_scenarios(const Validation *v);
uint32_t validate_measurements(const Validation *v); /* rows with a metric */

#endif
