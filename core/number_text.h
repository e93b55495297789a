/*
 * number_text.h - what texts of numbers have in common: how many digits, thousands, units.
 *
 * The texts themselves are made where their readers are: sim/texts.h for predictions (seconds that
 * are not whole ns), profile/trace_words.h for traces (whole ns, "-" for what is unknown),
 * viz/view.h for pictures (units of 1000, a font that has a mu).
 */
#ifndef LOCKSTEP_CORE_NUMBER_TEXT_H
#define LOCKSTEP_CORE_NUMBER_TEXT_H

#include "core/base.h"

/* After the point of |x|, so that it has four: 1.402, 12.34, 123.4; whole beyond.  By what it is
 * rounded to: 9.9995 is 10.00. */
int digits_of_four(double x);

/* "1234567.5" as "1,234,567.5", behind a sign too; to has room for a third more. */
char *group_thousands(char *to, const char *plain);

/* Divides *x bytes down to its unit, "B" to "PiB", and says how many digits it has after the
 * point.  1023.995 KiB is 1.00 MiB. */
const char *unit_of_bytes(double *x, int *digits);

#endif
