/*
 * calibrate_file.h - values of the file that is calibrated, as text.
 */
#ifndef LOCKSTEP_PROFILE_CALIBRATE_FILE_H
#define LOCKSTEP_PROFILE_CALIBRATE_FILE_H

#include <stdio.h>

#include "core/arena.h"
#include "core/json.h"

/* A path's last part: files are named without the folders of this machine. */
const char *calibrate_base_name(const char *path);
/* Last parts of several paths, with commas between; in arena. */
const char *calibrate_base_names(Arena *arena, char *const *paths, uint32_t n);

/* text with provenance.key set; a provenance that is a text becomes the rest of an object. */
char *calibrate_provenance(char *text, const char *key, const char *value);

/* JSON on one line. */
void calibrate_print_text(FILE *f, const char *text);
void calibrate_print_number(FILE *f, double x);
void calibrate_print_node(FILE *f, JsonNode node);

#endif
