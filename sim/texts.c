/* texts.c - rounding first, so that 999.96 ms is "1.000 s" and never "1000.0 ms". */
#include "sim/texts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/number_text.h"
#include "core/printable.h"

char *text_number(char *text, double x, int digits)
{
    char plain[64];
    if (!isfinite(x) || fabs(x) >= 1e30) {
        snprintf(text, TEXT_CAP, "-");
        return text;
    }
    snprintf(plain, sizeof plain, "%.*f", digits, x);
    bool is_nothing = strspn(plain, "-0.") == strlen(plain); /* which has no sign */
    return group_thousands(text, plain + (is_nothing && *plain == '-'));
}

char *text_rate(char *text, double x)
{
    return text_number(text, x, digits_of_four(x));
}

char *text_count(char *text, double x)
{
    static const char *const units[] = { "", "k", "M", "B", "T" };
    size_t unit = 0;
    for (; x >= 999.5 && unit + 1 < ARRAY_N(units); unit++)
        x /= 1000;
    snprintf(text, TEXT_CAP, "%.3g%s", x, units[unit]);
    return text;
}

/* Appends " unit" to text. */
static char *with_unit(char *text, const char *unit)
{
    size_t n = strlen(text);
    snprintf(text + n, TEXT_CAP - n, " %s", unit);
    return text;
}

char *text_seconds(char *text, double s)
{
    static const char *const units[] = { "s", "ms", "us", "ns" };
    double x = fabs(s);
    size_t unit = 0;
    if (!isfinite(s) || s == 0)
        return isfinite(s) ? strcpy(text, "0 s") : strcpy(text, "-");
    for (; x < 0.99995 && unit + 1 < ARRAY_N(units); unit++)
        x *= 1e3;
    return with_unit(text_number(text, s < 0 ? -x : x, digits_of_four(x)), units[unit]);
}

char *text_bytes(char *text, uint64_t bytes)
{
    double x = (double)bytes;
    int digits;
    const char *unit = unit_of_bytes(&x, &digits);
    return with_unit(text_number(text, x, digits), unit);
}

char *text_percent(char *text, double percent)
{
    return isfinite(percent) ? with_unit(text_number(text, percent, 1), "%")
                             : strcpy(text, "-");
}

char *text_usd(char *text, double usd)
{
    if (!isfinite(usd))
        return strcpy(text, "-");
    if (usd > 0 && usd < 1e-5) {
        snprintf(text, TEXT_CAP, "$%.2e", usd);
        return text;
    }
    int digits = 2;
    for (double x = usd; x > 0 && x < 10; x *= 10)
        digits++;
    text_number(text + 1, usd, usd < 10 ? digits : 2);
    text[0] = '$';
    return text;
}

uint32_t text_width(const char *text)
{
    return printable_width(text);
}

char *text_name(char *text, const char *name, uint32_t width)
{
    ASSERT(width >= 4 && width <= TEXT_WIDTH_MAX);
    printable_cut(text, TEXT_CAP, name, width);
    return text;
}

void text_list_add(TextList *l, bool has, const char *word)
{
    if (has && l->at < l->cap)
        l->at += (size_t)snprintf(l->text + l->at, l->cap - l->at, "%s%s",
                                  l->at > 0 ? ", " : "", word);
}
