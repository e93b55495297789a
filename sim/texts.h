/*
 * texts.h - numbers and names as people read them: units, thousands, widths.
 *
 *     char t[TEXT_CAP];
 *     printf("%s", text_seconds(t, 0.01234));        12.34 ms
 *
 * Each function fills text, which holds TEXT_CAP bytes, and returns it.  What is
 * not finite is "-".  The same everywhere, whatever the locale.
 */
#ifndef LOCKSTEP_SIM_TEXTS_H
#define LOCKSTEP_SIM_TEXTS_H

#include "core/base.h"

enum { TEXT_CAP = 512, TEXT_WIDTH_MAX = 120 };

char *text_seconds(char *text, double s);     /* "1.402 s", "12.34 ms", "3.200 us", "0 s" */
char *text_bytes(char *text, uint64_t bytes); /* "37.94 GiB", "512 B" */
char *text_number(char *text, double x, int digits); /* "46,743.5"; digits after the point */
char *text_rate(char *text, double x);          /* "1,632,831", "10.84": four digits or more */
char *text_count(char *text, double x);         /* "8.03B", "124M", "850" */
char *text_percent(char *text, double percent); /* "29.3 %" */
char *text_usd(char *text, double usd);         /* "$1,234.50", "$0.01230" */

/*
 * A name from outside, at most width characters wide (4 to TEXT_WIDTH_MAX), its
 * end replaced by "..." when longer; control characters are shown as '?'.
 */
char *text_name(char *text, const char *name, uint32_t width);
/* Characters of UTF-8 text: how wide it is on a terminal, for what names are made of. */
uint32_t text_width(const char *text);

/* Words with commas between them, as they are added to text, which is empty at first. */
typedef struct TextList {
    char *text;
    size_t at, cap;
} TextList;
void text_list_add(TextList *l, bool has, const char *word);

#endif
