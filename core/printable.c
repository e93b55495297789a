/* printable.c - character by character. */
#include "core/printable.h"

#include <string.h>

#include "core/utf8.h"

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

size_t printable_next(char *to, const char **from)
{
    size_t hidden = unprintable_bytes(*from), n = utf8_bytes(*from, SIZE_MAX);
    if (hidden > 0 || n == 0) {
        *to = '?';
        *from += hidden > 0 ? hidden : 1;
        return 1;
    }
    memmove(to, *from, n);
    *from += n;
    return n;
}

uint32_t printable_width(const char *text)
{
    char shown[4];
    uint32_t n = 0;
    for (; *text; n++)
        (void)printable_next(shown, &text);
    return n;
}

void printable_cut(char *to, size_t cap, const char *text, uint32_t width)
{
    ASSERT(width >= 4 && cap > 12);
    bool cut = printable_width(text) > width;
    uint32_t keep = cut ? width - 3 : width, n = 0;
    size_t at = 0;
    while (*text && at + 8 < cap && n++ < keep)
        at += printable_next(to + at, &text);
    while (cut && at > 0 && to[at - 1] == ' ')
        at--;
    strcpy(to + at, cut ? "..." : "");
}

void make_printable(char *text)
{
    char *to = text;
    for (const char *from = text; *from;)
        to += printable_next(to, &from);
    *to = '\0';
}
