/*
 * kernel_numbers.h - numbers that kernels of every backend are given, for C and for CUDA C.
 *
 * Made of a task by exec/kernel_args.h, once for both.
 */
#ifndef LOCKSTEP_EXEC_KERNEL_NUMBERS_H
#define LOCKSTEP_EXEC_KERNEL_NUMBERS_H

#include <stdint.h>

/* What optimizers compute of hyperparameters and the step. */
typedef struct Rates {
    float lr, decay, keep; /* -lr; weight decay on g; 1 - lr wd on p */
    float momentum, moment1, beta2, moment2, root, eps, step;
} Rates;

/* The logits that this rank holds of each row. */
typedef struct Logits {
    uint64_t rows, columns;
    uint64_t n;    /* that are no padding */
    int64_t first; /* class of the first one */
    float by;      /* of gradients */
} Logits;

#endif
