/* number_text.c - rounding first, so that 999.96 is "1000" and never "1000.0". */
#include "core/number_text.h"

#include <math.h>
#include <string.h>

int digits_of_four(double x)
{
    double size = fabs(x);
    return size < 9.9995 ? 3 : size < 99.995 ? 2 : size < 999.95 ? 1 : 0;
}

char *group_thousands(char *to, const char *plain)
{
    size_t at = 0;
    if (*plain == '-')
        to[at++] = *plain++;
    size_t whole_n = strcspn(plain, ".");
    for (size_t i = 0; plain[i]; i++) {
        if (i > 0 && i < whole_n && (whole_n - i) % 3 == 0)
            to[at++] = ',';
        to[at++] = plain[i];
    }
    to[at] = '\0';
    return to;
}

const char *unit_of_bytes(double *x, int *digits)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    size_t unit = 0;
    for (; *x >= 1023.995 && unit + 1 < ARRAY_N(units); unit++)
        *x /= 1024;
    *digits = unit ? 2 : 0;
    return units[unit];
}
