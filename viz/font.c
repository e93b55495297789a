/*
 * font.c - which outline a character has, how wide it is, and its pixels in the atlas.
 */
#include "viz/font.h"
#include "viz/font_baked.h"

#include <stdlib.h>
#include <string.h>

enum { ATLAS_WIDTH = 1024, ATLAS_ROWS = 128, REPLACEMENT = 0xfffd, FILES_MAX = 4 };

/* Where Debian's fonts-inter, fonts-dejavu-core and fonts-noto-cjk put them. */
static const char machine_fonts[] = "/usr/share/fonts/opentype/inter/Inter-Regular.otf:"
                                    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf:"
                                    "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc";

/* A glyph that was made; key 0 is free. */
typedef struct FontSlot {
    uint64_t key;
    Glyph glyph;
} FontSlot;

/* Characters that are not baked, as far as they were met. */
typedef struct Stranger {
    uint32_t character;
    Outline outline;
    const OutlineFont *font;
} Stranger;

struct FontFiles {
    char *paths;
    bool opened;
    FontFile *file[FILES_MAX];
    uint32_t file_n;
    Arena arena; /* outlines of the strangers */
    Stranger *strangers;
    uint32_t strangers_n, strangers_cap;
    uint32_t missing; /* the first that no font has, 0: none */
    bool told;
    Fill fill;
};

/* ---- life ---- */

void font_open(Font *f, uint32_t scale_pct)
{
    *f = (Font){ .scale_pct = scale_pct < FONT_SCALE_MIN   ? FONT_SCALE_MIN
                              : scale_pct > FONT_SCALE_MAX ? FONT_SCALE_MAX
                                                           : scale_pct };
    f->atlas_width = ATLAS_WIDTH;
    f->files = mem_zero(1, sizeof *f->files);
    font_set_files(f, NULL);
}

static void close_files(FontFiles *files)
{
    for (uint32_t i = 0; i < files->file_n; i++)
        font_file_close(files->file[i]);
    arena_free(&files->arena);
    free(files->paths);
    free(files->strangers);
    fill_free(&files->fill);
    *files = (FontFiles){ 0 };
}

void font_free(Font *f)
{
    if (f->files)
        close_files(f->files);
    free(f->files);
    free(f->atlas);
    free(f->slots);
    *f = (Font){ 0 };
}

void font_set_files(Font *f, const char *paths)
{
    const char *from = paths ? paths : machine_fonts;
    close_files(f->files);
    f->files->paths = mem_zero(strlen(from) + 1, 1);
    memcpy(f->files->paths, from, strlen(from));
}

/* A font that is not there is no failure before a character needs it. */
static void open_files(FontFiles *files)
{
    files->opened = true;
    for (char *path = files->paths; *path && files->file_n < FILES_MAX;) {
        size_t n = strcspn(path, ":");
        bool more = path[n] == ':';
        Err ignored = { 0 };
        path[n] = 0;
        if (font_file_open(&files->file[files->file_n], path, &ignored))
            files->file_n++;
        path += n + more;
    }
}

bool font_complain(Font *f, Err *err)
{
    if (f->files->missing == 0 || f->files->told)
        return true;
    f->files->told = true;
    return err_set(err,
                   "no font here has the character U+%04" PRIX32
                   ": a box is shown instead; the Debian packages fonts-dejavu-core and "
                   "fonts-noto-cjk have most",
                   f->files->missing);
}

/* ---- from characters to outlines ---- */

typedef struct Letter {
    Outline outline;
    const OutlineFont *font;
} Letter;

/* ASCII by index, the signs behind it by halving. */
static uint32_t baked_index(const BakedFont *b, uint32_t character)
{
    uint32_t low = BAKED_ASCII_N, high = b->letters_n;
    if (character - ' ' < BAKED_ASCII_N)
        return character - ' ';
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (b->letters[middle].character < character)
            low = middle + 1;
        else
            high = middle;
    }
    return low < b->letters_n && b->letters[low].character == character ? low : NONE_U32;
}

static bool baked_letter(Letter *l, uint32_t character, bool bold)
{
    const BakedFont *b = bold ? &font_baked_bold : &font_baked_regular;
    uint32_t at = baked_index(b, character);
    if (at == NONE_U32)
        return false;
    const BakedLetter *letter = &b->letters[at];
    l->outline = (Outline){ &b->points[letter->first], letter->n, letter->advance };
    l->font = &b->font;
    return true;
}

static Letter replacement(bool bold)
{
    Letter l = { 0 };
    ASSERT(baked_letter(&l, REPLACEMENT, bold));
    return l;
}

static Letter stranger(FontFiles *files, uint32_t character, bool bold)
{
    for (uint32_t i = 0; i < files->strangers_n; i++)
        if (files->strangers[i].character == character)
            return (Letter){ files->strangers[i].outline, files->strangers[i].font };
    if (!files->opened)
        open_files(files);
    Letter l = replacement(bold);
    bool found = false;
    for (uint32_t i = 0; i < files->file_n && !found; i++) {
        found = font_file_outline(files->file[i], character, &l.outline, &files->arena);
        if (found)
            l.font = font_file_font(files->file[i]);
    }
    if (!found && files->missing == 0)
        files->missing = character;
    GROW(files->strangers, files->strangers_n, files->strangers_cap);
    files->strangers[files->strangers_n++] = (Stranger){ character, l.outline, l.font };
    return l;
}

static Letter letter_of(Font *f, uint32_t character, bool bold)
{
    Letter l;
    return baked_letter(&l, character, bold) ? l : stranger(f->files, character, bold);
}

/* ---- sizes ---- */

Px font_size(const Font *f, TextStyle style)
{
    return (Px)((uint32_t)style.size * PX_ONE * f->scale_pct / 100);
}

Px font_cap_height(const Font *f, TextStyle style)
{
    const OutlineFont *font = style.bold ? &font_baked_bold.font : &font_baked_regular.font;
    return outline_height(font, font_size(f, style), font->cap_height);
}

Px font_line_height(const Font *f, TextStyle style)
{
    return PX(px_round(font_size(f, style) * 4 / 3));
}

Px font_advance(Font *f, TextStyle style, uint32_t character)
{
    Letter l = letter_of(f, character, style.bold);
    int64_t em = l.font->units_per_em;
    return (Px)(((int64_t)l.outline.advance * font_size(f, style) + em / 2) / em);
}

/* ---- text ---- */

/* Bytes of a well-formed character, 1 for what is not. */
static size_t char_bytes(const unsigned char *s, size_t n, uint32_t *character)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t bytes = s[0] < 0x80       ? 1
                   : s[0] >> 5 == 6  ? 2
                   : s[0] >> 4 == 14 ? 3
                   : s[0] >> 3 == 30 ? 4
                                     : 0;
    *character = REPLACEMENT;
    if (bytes == 0 || bytes > n)
        return 1;
    uint32_t c = bytes == 1 ? s[0] : s[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 1;
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (c < least[bytes] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 1;
    *character = c;
    return bytes;
}

uint32_t font_next_char(const char *text, size_t n, size_t *at)
{
    uint32_t c;
    ASSERT(*at < n);
    *at += char_bytes((const unsigned char *)text + *at, n - *at, &c);
    bool control = c < 32 || (c >= 0x7f && c < 0xa0) || c == 0xfffe || c == 0xffff;
    return control ? REPLACEMENT : c;
}

Px font_width(Font *f, TextStyle style, const char *text, size_t n)
{
    Px width = 0;
    for (size_t at = 0; at < n && width < PX_FAR;)
        width += font_advance(f, style, font_next_char(text, n, &at));
    return width;
}

size_t font_fit(Font *f, TextStyle style, const char *text, size_t n, Px width)
{
    Px used = 0;
    size_t fits = 0;
    for (size_t at = 0; at < n; fits = at) {
        used += font_advance(f, style, font_next_char(text, n, &at));
        if (used > width)
            break;
    }
    return fits;
}

/* ---- glyphs ---- */

static FontSlot *slot_for(Font *f, uint64_t key)
{
    for (uint64_t at = mix_u64(key);; at++) {
        FontSlot *slot = &f->slots[at & (f->slots_cap - 1)];
        if (slot->key == key || slot->key == 0)
            return slot;
    }
}

static void grow_slots(Font *f)
{
    FontSlot *old = f->slots;
    uint32_t old_cap = f->slots_cap;
    f->slots_cap = old_cap ? 2 * old_cap : 1024;
    f->slots = mem_zero(f->slots_cap, sizeof *f->slots);
    for (uint32_t i = 0; i < old_cap; i++)
        if (old[i].key)
            *slot_for(f, old[i].key) = old[i];
    free(old);
}

/* Room in the atlas, shelf by shelf; new rows are empty. */
static void place(Font *f, Glyph *g)
{
    if (f->shelf_x + g->width > f->atlas_width) {
        f->shelf_y += f->shelf_height;
        f->shelf_x = f->shelf_height = 0;
    }
    uint32_t below = f->shelf_y + g->height;
    if (below > f->atlas_height) {
        uint32_t rows = (below + ATLAS_ROWS - 1) / ATLAS_ROWS * ATLAS_ROWS;
        size_t had = (size_t)f->atlas_height * f->atlas_width;
        f->atlas = mem_resize(f->atlas, (size_t)rows * f->atlas_width, 1);
        memset(f->atlas + had, 0, (size_t)rows * f->atlas_width - had);
        f->atlas_height = rows;
    }
    g->x = f->shelf_x;
    g->y = f->shelf_y;
    f->shelf_x += g->width;
    if (g->height > f->shelf_height)
        f->shelf_height = g->height;
}

typedef struct Target {
    uint8_t *origin; /* the pen's pixel on the baseline */
    size_t pitch;
} Target;

static void put_row(void *context, int32_t x, int32_t y, int32_t n, const uint16_t *cover)
{
    const Target *t = context;
    uint8_t *to = t->origin + (ptrdiff_t)y * (ptrdiff_t)t->pitch + x;
    for (int32_t i = 0; i < n; i++)
        to[i] = (uint8_t)(cover[i] - cover[i] / FILL_FULL); /* 256 is 255 */
}

static Glyph make_glyph(Font *f, TextStyle style, uint32_t character, uint32_t shift)
{
    Letter l = letter_of(f, character, style.bold);
    Px size = font_size(f, style), x = (Px)(shift * PX_ONE / FONT_SHIFTS);
    OutlineBounds b = outline_bounds(&l.outline, l.font, size, x);
    /* A font file may hold nonsense: no glyph is larger than a few letters. */
    int32_t limit = px_ceil(size) * 4;
    if (b.x1 <= b.x0 || b.y1 <= b.y0 || b.x0 < -limit || b.y0 < -limit || b.x1 > limit ||
        b.y1 > limit)
        return (Glyph){ 0 };
    Glyph g = { .width = (uint16_t)(b.x1 - b.x0),
                .height = (uint16_t)(b.y1 - b.y0),
                .left = (int16_t)b.x0,
                .top = (int16_t)b.y0 };
    place(f, &g);
    Target t = { f->atlas + (size_t)g.y * f->atlas_width + g.x, f->atlas_width };
    t.origin -= (ptrdiff_t)b.y0 * (ptrdiff_t)t.pitch + b.x0;
    fill_begin(&f->files->fill, b.x0, b.y0, b.x1, b.y1);
    outline_fill(&f->files->fill, &l.outline, l.font, size, x);
    fill_rows(&f->files->fill, put_row, &t);
    f->version++;
    return g;
}

Glyph font_glyph(Font *f, TextStyle style, uint32_t character, uint32_t shift)
{
    ASSERT(shift < FONT_SHIFTS);
    uint64_t key = (uint64_t)character << 16 | (uint64_t)style.size << 8 |
                   (uint64_t)style.bold << 4 | shift | 8;
    if (2 * f->slots_n >= f->slots_cap)
        grow_slots(f);
    FontSlot *slot = slot_for(f, key);
    if (slot->key == 0) {
        slot->key = key;
        slot->glyph = make_glyph(f, style, character, shift);
        f->slots_n++;
    }
    return slot->glyph;
}
