/*
 * trace_words.h - times, counts and names as the reports on traces show them.
 *
 *     char t[WORD_CAP];
 *     printf("%s", word_ns(t, 12345678));        12.35 ms
 *
 * Each function fills text, which holds WORD_CAP bytes, and returns it.  What is
 * unknown (a negative time, NaN, NONE_U64) is "-".
 */
#ifndef LOCKSTEP_PROFILE_TRACE_WORDS_H
#define LOCKSTEP_PROFILE_TRACE_WORDS_H

#include "core/base.h"

enum { WORD_CAP = 256 };

char *word_ns(char *text, int64_t ns);        /* "595.2 ms", "49 ns", "0 s" */
char *word_signed_ns(char *text, int64_t ns); /* "+1.000 s" */
char *word_count(char *text, uint64_t n);     /* "4,848" */
char *word_percent(char *text, double pct);   /* "60.3 %" */
char *word_number(char *text, double x);      /* "194.8": four digits */
char *word_bytes(char *text, uint64_t bytes); /* "64.00 MiB" */
/* At most width characters, the end replaced by "..." when longer; control bytes are '?'. */
char *word_name(char *text, const char *name, uint32_t width);

/* Texts for one line at a time: each call gives another of them. */
typedef struct WordRing {
    uint32_t n;
    char text[16][WORD_CAP];
} WordRing;
char *word_next(WordRing *ring);

/* For --help: how the same words differ between a trace and `lockstep sim`; lines of text. */
extern const char trace_words_beside_sim[];

/* part of all in percent; NaN of nothing. */
double word_share(int64_t part, int64_t all);

#endif
