/*
 * bake_font.c - writes viz/font_baked.c: the outlines that lockstep always has.
 *
 *     bake_font REGULAR.otf SEMIBOLD.otf >viz/font_baked.c
 *
 * Run by `make bake-font`; needed only to change which letters are baked.
 */
#include <stdio.h>
#include <string.h>

#include "viz/font_baked.h"

/* Beside ASCII; sorted.  The last is shown for what is missing. */
static const uint32_t signs[] = { 0xb0,   0xb1,   0xb2,   0xb3,   0xb5,   0xb7,   0xd7,
                                  0x2013, 0x2014, 0x2026, 0x2190, 0x2191, 0x2192, 0x2193,
                                  0x2248, 0x2264, 0x2265, 0x25b8, 0x25be, 0x2713, 0xfffd };

typedef struct Baker {
    FontFile *file;
    Arena arena;
    uint32_t points_n;
} Baker;

enum { CORNERS_MAX = 8 };

/* Triangles that point right and down and a hollow box, in eighths of a capital's height. */
static const struct {
    uint32_t character;
    uint32_t n;
    int8_t xy[CORNERS_MAX][2];
    int8_t last; /* of the first contour */
} shapes[] = {
    { 0x25b8, 3, { { 1, 1 }, { 5, 4 }, { 1, 7 } }, 2 },
    { 0x25be, 3, { { 1, 6 }, { 7, 6 }, { 4, 2 } }, 2 },
    { 0xfffd,
      8,
      { { 1, 0 }, { 1, 8 }, { 6, 8 }, { 6, 0 }, { 2, 1 }, { 5, 1 }, { 5, 7 }, { 2, 7 } },
      3 },
};

static bool made_up(Outline *o, uint32_t character, int32_t cap, Arena *arena)
{
    for (size_t s = 0; s < ARRAY_N(shapes); s++) {
        if (shapes[s].character != character)
            continue;
        OutlinePoint *points = PUSH_ARRAY(arena, OutlinePoint, CORNERS_MAX);
        int32_t right = 0;
        for (uint32_t i = 0; i < shapes[s].n; i++) {
            points[i].x = (int16_t)(cap * shapes[s].xy[i][0] / 8);
            points[i].y = (int16_t)(cap * shapes[s].xy[i][1] / 8);
            points[i].tag = OUTLINE_ON;
            points[i].last = (int32_t)i == shapes[s].last || i + 1 == shapes[s].n;
            right = points[i].x > right ? points[i].x : right;
        }
        *o = (Outline){ points, shapes[s].n, right + cap / 8 };
        return true;
    }
    return false;
}

/* The widest of the digits. */
static int32_t digit_advance(Baker *b)
{
    Outline o;
    int32_t widest = 0;
    for (uint32_t digit = '0'; digit <= '9'; digit++)
        if (font_file_outline(b->file, digit, &o, &b->arena) && o.advance > widest)
            widest = o.advance;
    return widest;
}

/* Columns of numbers line up: every digit stands in the middle of the widest one's room. */
static void make_tabular(Outline *o, int32_t advance, Arena *arena)
{
    OutlinePoint *points = PUSH_ARRAY(arena, OutlinePoint, o->points_n);
    for (uint32_t i = 0; i < o->points_n; i++) {
        points[i] = o->points[i];
        points[i].x = (int16_t)(points[i].x + (advance - o->advance) / 2);
    }
    *o = (Outline){ points, o->points_n, advance };
}

static bool find(Baker *b, uint32_t character, Outline *o)
{
    if (made_up(o, character, font_file_font(b->file)->cap_height, &b->arena))
        return true;
    if (!font_file_outline(b->file, character, o, &b->arena))
        return false;
    if (character >= '0' && character <= '9')
        make_tabular(o, digit_advance(b), &b->arena);
    return true;
}

static void put_points(Baker *b, const char *name, bool only_letters)
{
    b->points_n = 0;
    for (uint32_t i = 0; i < BAKED_ASCII_N + ARRAY_N(signs); i++) {
        uint32_t character = i < BAKED_ASCII_N ? ' ' + i : signs[i - BAKED_ASCII_N];
        Outline o = { 0 };
        if (!find(b, character, &o)) {
            fprintf(stderr, "bake_font: %s has no U+%04X\n", name, character);
            continue;
        }
        if (only_letters)
            printf("    { 0x%04x, %d, %u, %u },\n", character, o.advance, b->points_n,
                   o.points_n);
        for (uint32_t k = 0; k < o.points_n && !only_letters; k++)
            printf("{%d,%d,%d,%d},%s", o.points[k].x, o.points[k].y, o.points[k].tag,
                   o.points[k].last, k % 6 == 5 || k + 1 == o.points_n ? "\n" : "");
        b->points_n += o.points_n;
    }
}

static bool put_font(const char *path, const char *name, Err *err)
{
    Baker b = { 0 };
    if (!font_file_open(&b.file, path, err))
        return false;
    const OutlineFont *font = font_file_font(b.file);
    Outline x, o;
    ASSERT(find(&b, 'o', &o) && find(&b, 'x', &x));
    int32_t high = 0;
    for (uint32_t i = 0; i < o.points_n; i++)
        high = o.points[i].y > high ? o.points[i].y : high;
    printf("static const OutlinePoint %s_points[] = {\n", name);
    put_points(&b, name, false);
    printf("};\n\nstatic const BakedLetter %s_letters[] = {\n", name);
    put_points(&b, name, true);
    printf("};\n\nconst BakedFont font_baked_%s = {\n    { %d, %d, %d, %d },\n", name,
           font->units_per_em, font->x_height, font->cap_height, high - font->x_height);
    printf("    %s_letters, ARRAY_N(%s_letters), %s_points\n};\n\n", name, name, name);
    arena_free(&b.arena);
    font_file_close(b.file);
    return true;
}

int main(int argc, char **argv)
{
    Err err = { 0 };
    if (argc != 3) {
        fprintf(stderr, "usage: bake_font REGULAR.otf SEMIBOLD.otf >viz/font_baked.c\n");
        return EXIT_USAGE;
    }
    printf("/*\n * font_baked.c - written by tests/bake_font.c; see viz/font_baked.h for what "
           "and\n"
           " * viz/font_baked.LICENSE for the licence of the outlines.\n */\n"
           "#include \"viz/font_baked.h\"\n\n/* clang-format off */\n"
           "/* x, y, OUTLINE_ON ..., last of its contour */\n\n");
    if (!put_font(argv[1], "regular", &err) || !put_font(argv[2], "bold", &err)) {
        fprintf(stderr, "bake_font: %s\n", err.text);
        return EXIT_COULD_NOT;
    }
    return EXIT_DONE;
}
