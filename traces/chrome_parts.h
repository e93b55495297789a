/* chrome_parts.h - what the files of the Chrome writer share; nobody else's. */
#ifndef LOCKSTEP_TRACES_CHROME_PARTS_H
#define LOCKSTEP_TRACES_CHROME_PARTS_H

#include "core/timeline.h"
#include "traces/text_out.h"

/* Joins launches with kernels by op id where a trace has no correlation ids. */
typedef struct Correlator {
    uint32_t *launched_n, *run_n; /* by op, on this rank so far; NULL: ops are not counted */
    uint64_t ops_n;
} Correlator;

typedef struct ChromeWriter {
    const Timeline *t;
    TextOut out;
    int64_t base_ns;   /* printed as 0 */
    char *escaped;     /* all names, as the inside of JSON strings */
    uint64_t *name_at; /* where the n-th begins in it; one more at the end */
    Correlator correlator;
    FILE *number; /* formats one double at a time into number_text */
    char number_text[64];

    bool any_event;
    uint64_t tid_next;
    char arg_separator; /* before the next argument: '{' for the first */
} ChromeWriter;

#define PUT(w, literal) text_out_bytes(&(w)->out, (literal), sizeof(literal) - 1)

static inline void chrome_put_name(ChromeWriter *w, uint32_t name)
{
    uint64_t at = w->name_at[name];
    text_out_bytes(&w->out, w->escaped + at, w->name_at[name + 1] - at);
}

/* Begins an argument: ,"key": */
void chrome_arg(ChromeWriter *w, const char *key);
void chrome_arg_u64(ChromeWriter *w, const char *key, uint64_t value);
void chrome_arg_name(ChromeWriter *w, const char *key, uint32_t name);
/* None when name is NONE_U32. */
void chrome_arg_name_if(ChromeWriter *w, const char *key, uint32_t name);

/* The name to show for span i; false when it is not its own one. */
bool chrome_put_span_name(ChromeWriter *w, const Track *track, uint64_t i);
const char *chrome_cat(const Timeline *t, const Track *track, uint64_t i);
void chrome_put_comm_args(ChromeWriter *w, const Track *track, uint64_t i);
void chrome_put_launch_args(ChromeWriter *w, uint64_t i);

#endif
