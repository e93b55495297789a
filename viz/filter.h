/*
 * filter.h - what is searched and what is dimmed: a few words that all must hold.
 *
 *     nccl dur>1ms rank:0-3 stream:comm exposed>50% class:p2p -memset
 *
 *     WORD          the name has it, whatever the case; -WORD: it has not
 *     dur>TIME      also < >= <=; ns, us, ms, s
 *     bytes>SIZE    of communication; B, KiB, MB ...
 *     exposed>PCT%  of communication: the part while no compute runs
 *     wait>TIME     of collectives that were matched across ranks
 *     rank:LIST     0,3 or 0-7
 *     stream:WORD   the row's name has it
 *     class:WORD    compute, comm, p2p, memory, launch, host, sync, step, note
 *
 * Names are looked at once when the filter is made, not at every span.
 */
#ifndef LOCKSTEP_VIZ_FILTER_H
#define LOCKSTEP_VIZ_FILTER_H

#include "core/err.h"
#include "viz/data.h"

enum { FILTER_TERMS = 16 };

typedef struct FilterTerm {
    uint8_t kind; /* filter.c */
    uint8_t op;   /* > < >= <= */
    bool negated;
    int64_t number; /* ns, bytes, or 1/1000 percent */
    uint8_t span_class;
    char word[64];
} FilterTerm;

typedef struct ViewFilter {
    const ViewData *d;
    uint64_t number; /* another one for every filter that was opened */
    char text[256];  /* as it was typed, cut where it is longer */
    FilterTerm terms[FILTER_TERMS];
    uint32_t terms_n;
    const char *name;  /* exactly this one, of filter_open_name; NULL: any */
    uint8_t *name_ok;  /* by interned id: all words hold */
    uint8_t *track_ok; /* by track: rank and stream hold */
} ViewFilter;

/* False with a sentence for a term that is none: wrong values, and words with a sign of terms
 * (":<>=") that no name has.  Text may be empty: everything matches. */
bool filter_open(ViewFilter *f, const ViewData *d, const char *text, Err *err);
/* The part of it that needs no trace: wrong values. */
bool filter_check(const char *text, Err *err);
/* Of spans of exactly this interned name. */
void filter_open_name(ViewFilter *f, const ViewData *d, uint32_t name);
/* The same of another trace. */
void filter_rebind(ViewFilter *f, const ViewData *d);
/* Nothing of the rank (index into ViewData.ranks) matches. */
void filter_leave_out(ViewFilter *f, uint32_t rank);
void filter_free(ViewFilter *f);

bool filter_matches(const ViewFilter *f, uint64_t span);
/* Whether text has the word somewhere, whatever the case; the empty word is everywhere. */
bool filter_has_word(const char *text, const char *word);

/* How many spans of streams and host threads match, and the sum of their times. */
typedef struct FilterCount {
    uint64_t n;
    int64_t ns;
} FilterCount;

FilterCount filter_count(const ViewFilter *f);
/* "12 events, 3.1 ms in all".  Returns text. */
char *filter_count_text(FilterCount count, char *text, size_t cap);

/* The next span that matches, or the one before, and the row that shows it, built or not.  Spans
 * go by their start, those of one moment by number: behind *span, which begins at at_ns; NONE_U64:
 * behind all that do.  False: none. */
bool filter_next(const ViewFilter *f, int64_t at_ns, bool back, uint32_t *row, uint64_t *span);

#endif
