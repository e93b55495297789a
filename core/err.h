/*
 * err.h - one sentence about what went wrong in the outside world.
 *
 * Functions that can fail return bool and take an Err last.  The first failure
 * wins; callers add context in front on the way up; only main prints:
 *
 *     if (!machine_read(&m, path, err))
 *         return err_wrap(err, "cluster of '%s'", scenario->name);
 *
 * Text law: no capital, no full stop, what failed first, the subject in quotes,
 * what is allowed at the end.  What core/printable.h hides is shown as '?'.
 * Err e = { 0 } is "nothing went wrong".
 */
#ifndef LOCKSTEP_CORE_ERR_H
#define LOCKSTEP_CORE_ERR_H

#include "core/base.h"

typedef struct Err {
    bool set;
    char text[1280]; /* cut with "..." when longer */
} Err;

/* Sets the text unless one is set already.  Always returns false. */
bool err_set(Err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "context: " in front of the text.  Always returns false. */
bool err_wrap(Err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

void err_clear(Err *err);

#endif
