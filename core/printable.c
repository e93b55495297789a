/* printable.c - byte by byte: what is not UTF-8 is left as it is. */
#include "core/printable.h"

size_t unprintable_bytes(const char *s)
{
    const unsigned char *c = (const unsigned char *)s;
    if ((c[0] > 0 && c[0] < 0x20) || c[0] == 0x7f)
        return 1;
    if ((c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) || (c[0] == 0xd8 && c[1] == 0x9c))
        return 2;
    if (c[0] != 0xe2)
        return 0;
    bool direction = c[1] == 0x80
                         ? c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xaa && c[2] < 0xaf)
                         : c[1] == 0x81 && c[2] >= 0xa6 && c[2] < 0xaa;
    return direction ? 3 : 0;
}

void make_printable(char *text)
{
    char *to = text;
    while (*text) {
        size_t n = unprintable_bytes(text);
        *to++ = n ? '?' : *text;
        text += n ? n : 1;
    }
    *to = '\0';
}
