/*
 * progress.h - a bar on the terminal for what takes longer than two seconds.
 *
 *     Progress p;
 *     progress_open(&p);                           does nothing unless stderr is a terminal
 *     ProgressPart part = { .of = &p };
 *     options.progress = progress_part;            sim/engine.h's callback
 *     options.user = &part;                        one part per simulation, on any thread
 *     progress_end(&part);                         this one is done
 *     progress_close(&p);                          erases the bar
 *
 *     simulating [##########....................]  33 %       one part
 *     simulating 12 of 40 scenarios [########...............] several
 *
 * Results never mix with it: it stands on stderr, in one line, and is gone before
 * anything else is printed.
 */
#ifndef LOCKSTEP_SIM_PROGRESS_H
#define LOCKSTEP_SIM_PROGRESS_H

#include <pthread.h>

#include "core/base.h"

typedef struct Progress {
    pthread_mutex_t lock;
    int fd;           /* -1: nobody looks */
    int64_t start_ns; /* of the clock */
    int64_t drawn_ns; /* 0: never */
    int64_t after_ns, every_ns;
    uint32_t parts_n; /* known so far */
    uint32_t done_n;
    double running; /* fractions of those that run, summed */
} Progress;

typedef struct ProgressPart {
    Progress *of;
    double fraction;
} ProgressPart;

void progress_open(Progress *p);
/* On any descriptor, whether or not it is a terminal; for tests. */
void progress_open_on(Progress *p, int fd, int64_t after_ns, int64_t every_ns);
void progress_expect(Progress *p, uint32_t parts_n); /* so many more parts are to come */
void progress_part(void *part, double fraction);
void progress_end(ProgressPart *part);
void progress_close(Progress *p);

#endif
