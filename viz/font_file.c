/*
 * font_file.c - outlines from font files; the only place that knows FreeType.
 *
 * FreeType only reads the file: outlines come unscaled and unhinted, in the font's units, and
 * become pixels in viz/outline.c.
 */
#include "viz/outline.h"

#include <ft2build.h>
#include FT_FREETYPE_H
#include FT_OUTLINE_H
#include FT_TRUETYPE_TABLES_H

#include <stdlib.h>

struct FontFile {
    FT_Library library;
    FT_Face face;
    OutlineFont font;
};

/* The lines that letters stand on and reach, as the file's OS/2 table says. */
static void read_lines(FontFile *file)
{
    const TT_OS2 *os2 = FT_Get_Sfnt_Table(file->face, FT_SFNT_OS2);
    file->font.units_per_em = file->face->units_per_EM;
    if (!os2 || os2->version == 0xffff || os2->version < 2)
        return;
    file->font.x_height = os2->sxHeight;
    file->font.cap_height = os2->sCapHeight;
    /* Usual in text faces: 1 to 1.5 % of the em. */
    file->font.overshoot = file->font.units_per_em / 64;
}

bool font_file_open(FontFile **out, const char *path, Err *err)
{
    FontFile *file = mem_zero(1, sizeof *file);
    FT_Error failed = FT_Init_FreeType(&file->library);
    if (!failed)
        failed = FT_New_Face(file->library, path, 0, &file->face);
    if (failed || !FT_IS_SCALABLE(file->face) || file->face->units_per_EM == 0) {
        font_file_close(file);
        return err_set(err, "cannot read '%s' as a font with outlines (TrueType or OpenType)",
                       path);
    }
    read_lines(file);
    *out = file;
    return true;
}

void font_file_close(FontFile *file)
{
    if (!file)
        return;
    if (file->face)
        FT_Done_Face(file->face);
    if (file->library)
        FT_Done_FreeType(file->library);
    free(file);
}

const OutlineFont *font_file_font(const FontFile *file)
{
    return &file->font;
}

static int16_t cut_i16(FT_Pos x)
{
    return (int16_t)max_i64(INT16_MIN, min_i64(INT16_MAX, x));
}

/* Tags are chars in FreeType up to 2.13.2, and unsigned since. */
static uint8_t tag_of(unsigned char tag)
{
    int kind = FT_CURVE_TAG(tag);
    return kind == FT_CURVE_TAG_ON      ? OUTLINE_ON
           : kind == FT_CURVE_TAG_CUBIC ? OUTLINE_CUBIC
                                        : OUTLINE_CONIC;
}

static bool outline_of(FontFile *file, FT_UInt index, Outline *o, Arena *arena)
{
    if (index == 0 || FT_Load_Glyph(file->face, index, FT_LOAD_NO_SCALE))
        return false;
    FT_GlyphSlot slot = file->face->glyph;
    if (slot->format != FT_GLYPH_FORMAT_OUTLINE)
        return false;
    const FT_Outline *shape = &slot->outline;
    uint32_t n = shape->n_points > 0 ? (uint32_t)shape->n_points : 0;
    OutlinePoint *points = PUSH_ARRAY(arena, OutlinePoint, n ? n : 1);
    for (uint32_t i = 0; i < n; i++)
        points[i] = (OutlinePoint){ .x = cut_i16(shape->points[i].x),
                                    .y = cut_i16(shape->points[i].y),
                                    .tag = tag_of((unsigned char)shape->tags[i]) };
    for (int c = 0; c < shape->n_contours; c++)
        points[shape->contours[c]].last = true;
    *o = (Outline){ .points = points,
                    .points_n = n,
                    .advance = (int32_t)slot->metrics.horiAdvance };
    return true;
}

bool font_file_outline(FontFile *file, uint32_t character, Outline *o, Arena *arena)
{
    return outline_of(file, FT_Get_Char_Index(file->face, character), o, arena);
}
