/*
 * svg_words.c - numbers, colours and texts of an SVG, from integers: no locale, no rounding
 * that differs.
 */
#include "viz/svg_words.h"

void svg_px(FILE *out, Px x)
{
    int64_t hundredths = ((int64_t)x * 100 + (x < 0 ? -PX_ONE / 2 : PX_ONE / 2)) / PX_ONE;
    uint64_t h = (uint64_t)(hundredths < 0 ? -hundredths : hundredths);
    fprintf(out, "%s%" PRIu64, hundredths < 0 ? "-" : "", h / 100);
    if (h % 10)
        fprintf(out, ".%02" PRIu64, h % 100);
    else if (h % 100)
        fprintf(out, ".%" PRIu64, h % 100 / 10);
}

void svg_attribute(FILE *out, const char *name, Px x)
{
    fprintf(out, " %s=\"", name);
    svg_px(out, x);
    fputc('"', out);
}

/* kind: "fill" or "stroke". */
void svg_color(FILE *out, const char *kind, Color c)
{
    fprintf(out, " %s=\"#%06" PRIx32 "\"", kind, c & 0xffffff);
    if (color_alpha(c) < 255)
        fprintf(out, " %s-opacity=\".%03" PRIu32 "\"", kind, color_alpha(c) * 1000 / 255);
}

static void put_utf8(FILE *out, uint32_t c)
{
    if (c < 0x80) {
        fputc((int)c, out);
        return;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint32_t lead[] = { 0, 0xc0, 0xe0, 0xf0 };
    fputc((int)(lead[more] | c >> (6 * more)), out);
    while (more-- > 0)
        fputc((int)(0x80 | (c >> (6 * more) & 0x3f)), out);
}

/* Well-formed whatever the bytes are; a tooltip keeps its lines. */
void svg_text(FILE *out, const char *text, size_t n, bool lines)
{
    for (size_t at = 0; at < n;) {
        if (lines && text[at] == '\n') {
            fputc('\n', out);
            at++;
            continue;
        }
        uint32_t c = font_next_char(text, n, &at);
        if (c == '<')
            fputs("&lt;", out);
        else if (c == '>')
            fputs("&gt;", out);
        else if (c == '&')
            fputs("&amp;", out);
        else
            put_utf8(out, c);
    }
}
