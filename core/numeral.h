/*
 * numeral.h - numbers as people write them, in files and on the command line.
 *
 * One grammar for both, JSON's: digits, no 0 before others, a point only between digits, an
 * exponent.  What strtod takes besides (0x10, inf, nan, 1., .5, +1) is none.
 */
#ifndef LOCKSTEP_CORE_NUMERAL_H
#define LOCKSTEP_CORE_NUMERAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the number that text begins with; 0: with none. */
size_t numeral_bytes(const char *text, size_t bytes);

/* The finite number that text begins with; *end is behind it.  False: there is none. */
bool numeral_real(const char *text, double *x, const char **end);
/* The same of digits alone, no sign; false also where 64 bits do not hold it. */
bool numeral_whole(const char *text, uint64_t *x, const char **end);

#endif
