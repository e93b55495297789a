/*
 * splice.h - changes one value in the text of a JSON file and leaves all else as it is.
 *
 *     text = json_splice(text, "collectives", "inter_efficiency", "0.91");
 *
 * A program that writes a whole document anew would lose the line breaks and the
 * order of tables that people wrote.  What is given must be a valid document whose
 * root is an object; keys with escapes are not recognised, so parse the result.
 */
#ifndef LOCKSTEP_PROFILE_SPLICE_H
#define LOCKSTEP_PROFILE_SPLICE_H

#include "core/base.h"

/*
 * Sets root.outer.inner (inner NULL: root.outer) to value, which is JSON; adds what
 * is missing at the end, on lines of its own.  Where root.outer is there and no
 * object, an object takes its place.  The result replaces text, which is freed.
 */
char *json_splice(char *text, const char *outer, const char *inner, const char *value);

#endif
