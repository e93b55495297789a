/* utf8.c - the table of well-formed sequences of Unicode (3.9, table 3-7). */
#include "core/utf8.h"

#include <stdbool.h>

size_t utf8_bytes(const char *text, size_t left)
{
    const unsigned char *c = (const unsigned char *)text;
    size_t n = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    if (c[0] > 0xf4 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    bool outside = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
    return overlong || outside ? 0 : n;
}
