/*
 * numbers.h - the number formats of the measured kernels, as the host reads them.
 *
 * Only the checks look at values on the host; they do so in double.
 */
#ifndef GPU_NUMBERS_H
#define GPU_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

typedef enum NumType { NUM_BF16, NUM_F16, NUM_F32, NUM_E4M3, NUM_I32 } NumType;

size_t num_bytes(NumType type);

/* out[i] = in[i], exactly. */
void num_to_double(double *out, const void *in, NumType type, size_t n);

/* ||got - want|| / ||want||; NaN anywhere gives NaN.  A zero reference asks for exact zeros. */
double num_error(const double *got, const double *want, size_t n);

#endif
