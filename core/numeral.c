/* numeral.c - the grammar is walked by hand, the value is strtod's; see numeral.h. */
#include "core/numeral.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t digits(const char *text, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && is_digit(text[n]))
        n++;
    return n;
}

/* With its point: 0 where digits do not follow. */
static size_t fraction_bytes(const char *text, size_t bytes)
{
    size_t n = bytes > 1 && *text == '.' ? digits(text + 1, bytes - 1) : 0;
    return n ? n + 1 : 0;
}

static size_t exponent_bytes(const char *text, size_t bytes)
{
    if (bytes < 2 || (*text != 'e' && *text != 'E'))
        return 0;
    size_t sign = text[1] == '+' || text[1] == '-';
    size_t n = digits(text + 1 + sign, bytes - 1 - sign);
    return n ? 1 + sign + n : 0;
}

size_t numeral_bytes(const char *text, size_t bytes)
{
    size_t sign = bytes > 0 && *text == '-';
    size_t n = digits(text + sign, bytes - sign);
    if (n == 0 || (n > 1 && text[sign] == '0'))
        return 0;
    n += sign;
    n += fraction_bytes(text + n, bytes - n);
    n += exponent_bytes(text + n, bytes - n);
    bool goes_on = n < bytes && (text[n] == '.' || text[n] == 'x' || text[n] == 'X');
    return goes_on ? 0 : n;
}

bool numeral_real(const char *text, double *x, const char **end)
{
    size_t n = numeral_bytes(text, strlen(text));
    *end = text + n;
    *x = n ? strtod(text, NULL) : 0;
    return n && isfinite(*x);
}

bool numeral_whole(const char *text, uint64_t *x, const char **end)
{
    size_t n = digits(text, strlen(text));
    errno = 0;
    *end = text + n;
    *x = n ? strtoull(text, NULL, 10) : 0;
    return n && (n == 1 || *text != '0') && errno == 0;
}
