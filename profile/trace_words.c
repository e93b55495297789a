/* trace_words.c - rounding first, so that 999.96 ms is "1.000 s" and never "1000.0 ms". */
#include "profile/trace_words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/number_text.h"
#include "core/printable.h"

const char trace_words_beside_sim[] =
    "Numbers of a trace differ from those that `sim` prints by the same names: here a copy on\n"
    "the GPU is memory, which hides no communication, and all of a receive is communication,\n"
    "as a recorded one does not say what it waited for; sim counts the copy as compute and\n"
    "the receive's wait as bubble, as a faster network would shorten neither.\n";

static char *unknown(char *text)
{
    return strcpy(text, "-");
}

static char *with_sign(char *text, const char *sign, uint64_t ns)
{
    static const char *const units[] = { "ns", "us", "ms", "s" };
    double x = (double)ns;
    size_t unit = 0;
    for (; x >= 999.95 && unit + 1 < ARRAY_N(units); unit++)
        x /= 1000;
    int digits = unit == 0 ? 0 : digits_of_four(x);
    snprintf(text, WORD_CAP, "%s%.*f %s", sign, digits, x, units[unit]);
    return text;
}

char *word_ns(char *text, int64_t ns)
{
    if (ns < 0)
        return unknown(text);
    return ns == 0 ? strcpy(text, "0 s") : with_sign(text, "", (uint64_t)ns);
}

char *word_signed_ns(char *text, int64_t ns)
{
    if (ns == 0)
        return strcpy(text, "0 s");
    return with_sign(text, ns < 0 ? "-" : "+", ns < 0 ? (uint64_t)-ns : (uint64_t)ns);
}

char *word_count(char *text, uint64_t n)
{
    char plain[32];
    snprintf(plain, sizeof plain, "%" PRIu64, n);
    return group_thousands(text, plain);
}

/* What rounds to nothing has no sign. */
char *word_percent(char *text, double pct)
{
    if (!isfinite(pct))
        return unknown(text);
    snprintf(text, WORD_CAP, "%.1f %%", fabs(pct) < 0.05 ? 0 : pct);
    return text;
}

char *word_number(char *text, double x)
{
    if (!isfinite(x))
        return unknown(text);
    snprintf(text, WORD_CAP, "%.*f", digits_of_four(x), x);
    return text;
}

char *word_bytes(char *text, uint64_t bytes)
{
    double x = (double)bytes;
    int digits;
    if (bytes == NONE_U64)
        return unknown(text);
    const char *unit = unit_of_bytes(&x, &digits);
    snprintf(text, WORD_CAP, "%.*f %s", digits, x, unit);
    return text;
}

char *word_name(char *text, const char *name, uint32_t width)
{
    printable_cut(text, WORD_CAP, name, width);
    return text;
}

double word_share(int64_t part, int64_t all)
{
    return all ? 100 * (double)part / (double)all : NAN;
}

char *word_next(WordRing *ring)
{
    return ring->text[ring->n++ % ARRAY_N(ring->text)];
}
