/*
 * measure.h - what this machine takes for a program's own kernels and collectives, all ranks at
 * once.
 *
 *     rank 0   kernel kernel all-gather kernel ... | kernel kernel all-gather ... | all-reduces
 *     rank 1   kernel        all-gather kernel ... | kernel        all-gather ... | -> rank 0
 *
 * Before training, every rank sweeps over its program: it runs the kernels and collectives one
 * after another in the order of the program, on the arena that they will train in and on the
 * numbers that training begins with, as some kernels are faster with zeros.  So processors,
 * caches and memory are shared as they will be, and each finds in the caches what it will find.
 * Sends and receives, whose other end may come later in its own program, are not run: what they
 * would move is touched, and what they would bring is written.
 * Kernels of equal work are one shape; its time is the median over the sweeps, of which
 * the first, that meets memory for the first time, does not count.  What another program
 * takes away is left out as far as it can be seen: a kernel counts its processor time when
 * that is less than what the clock says (and is known: kernel_took_ns).  A collective counts
 * from when the last rank has come.
 *
 * Then the ranks all-reduce eight bytes, and as much as the program's transfers carry; and they
 * walk through steps in which every task takes nothing: choosing samples, launching, handing over
 * between lanes and telling each other the loss is what is left, and every step has it.
 *
 * TCP.  The threads that pass messages on need a processor several times in a transfer.  Where
 * ranks compute on all of them, each time may come when a kernel ends: that depends on the
 * scheduler of the operating system and is not known here, where nothing computes meanwhile.
 *
 * The arena is used up: values must be set afterwards.
 */
#ifndef LOCKSTEP_EXEC_MEASURE_H
#define LOCKSTEP_EXEC_MEASURE_H

#include "exec/backend.h"

/* A shape: any op of it, and how long each of the n that were run took. */
typedef struct KernelTime {
    Op op; /* its ids and arguments mean nothing here */
    double ns;
    uint64_t n;
} KernelTime;

/* The same of collectives of so many ranks and bytes (as CommShape counts). */
typedef struct CollectiveTime {
    OpKind kind;
    uint32_t ranks;
    uint64_t bytes;
    double ns;
    uint64_t n;
} CollectiveTime;

typedef struct MachineTimes {
    KernelTime *times;
    uint32_t times_n, times_cap;
    CollectiveTime *collectives; /* by kind, ranks, bytes */
    uint32_t collectives_n, collectives_cap;
    uint32_t shapes_n;          /* of all ranks' programs; times_n of them were run */
    uint32_t ranks, processors; /* of this host: those that its ranks may run on */
    bool messages;              /* some transfers go through TCP */
    uint64_t memory_bytes;      /* of this host */
    uint64_t reduce_bytes;      /* 0: one rank alone */
    double reduce_ns, meet_ns;  /* an all-reduce of that many bytes; of 8 */
    double nothing_ns;          /* a step whose tasks take nothing; the slowest rank's */
    double seconds;             /* it took */
    double taken; /* part of rank 0's time that other programs had its processor */
} MachineTimes;

/* Of a kernel that took ns by the clock and busy_ns of its processor.  Some systems (sandboxes)
 * count the latter in ticks of milliseconds: between two of them a kernel seems to take none. */
static inline int64_t kernel_took_ns(int64_t ns, int64_t busy_ns)
{
    return busy_ns > 0 ? min_i64(ns, busy_ns) : ns;
}

/* On all ranks of the job together, from the threads that launch; whole on rank 0.  copies: jobs
 * like this one that are measured side by side. */
bool measure_job(MachineTimes *m, const Job *job, uint32_t ranks_of_host, uint32_t copies,
                 Err *err);
void machine_times_free(MachineTimes *m);

/* Is it the same work, as far as the cost of a kernel depends on it? */
bool same_work(const Op *a, const Op *b);

#endif
