/*
 * names.c - cuts what says nothing off a kernel's name.
 */
#include "viz/names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "viz/view.h"

enum { NAME_CAP = 96 };

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* ---- matmuls: "gemm" and the tile, wherever the library put it ---- */

/* "128x256" or "128x256x64" at p: its length, else 0. */
static size_t tile_length(const char *p)
{
    size_t n = 0, parts = 0;
    while (isdigit((unsigned char)p[n])) {
        while (isdigit((unsigned char)p[n]))
            n++;
        parts++;
        if (p[n] != 'x' || !isdigit((unsigned char)p[n + 1]))
            break;
        n++;
    }
    return parts >= 2 && n >= 5 ? n : 0;
}

/* "nvjet_tst_128x256_64x4_..." and "..._tilesize128x128x64_..." as well. */
static bool matmul_name(const char *name, char *text, size_t cap)
{
    bool jet = strncmp(name, "nvjet", 5) == 0;
    if (!jet && !has(name, "gemm") && !has(name, "Gemm") && !has(name, "GEMM"))
        return false;
    if (has(name, "gemmk1") || has(name, "splitK") || has(name, "splitk"))
        return false; /* a part of one: its own name says more */
    for (const char *p = name; *p; p++) {
        size_t n = p == name || !isdigit((unsigned char)p[-1]) ? tile_length(p) : 0;
        if (n > 0) {
            snprintf(text, cap, "gemm %.*s", (int)n, p);
            return true;
        }
    }
    return false;
}

/* ---- collectives: what, of which type, how; not that sums are sums ---- */

typedef struct NcclName {
    char op[32], type[12], way[24]; /* "AllReduce", "f16", "RING_LL" */
} NcclName;

static bool is_one_of(const char *word, const char *const *of, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, of[i]) == 0)
            return true;
    return false;
}

/* C's names of types are told by the number format they are. */
static const char *type_named(const char *word)
{
    static const char *const types[][2] = {
        { "float", "f32" },    { "half", "f16" },      { "double", "f64" },
        { "f16", "f16" },      { "f32", "f32" },       { "f64", "f64" },
        { "bf16", "bf16" },    { "i8", "i8" },         { "int8", "i8" },
        { "u8", "u8" },        { "uint8", "u8" },      { "i32", "i32" },
        { "int32", "i32" },    { "u32", "u32" },       { "uint32", "u32" },
        { "i64", "i64" },      { "int64", "i64" },     { "u64", "u64" },
        { "uint64", "u64" },   { "f8e4m3", "f8e4m3" }, { "f8e5m2", "f8e5m2" },
        { "bfloat16", "bf16" }
    };
    for (size_t i = 0; i < ARRAY_N(types); i++)
        if (strcmp(word, types[i][0]) == 0)
            return types[i][1];
    return NULL;
}

static void add_way(NcclName *k, const char *word)
{
    size_t n = strlen(k->way);
    snprintf(k->way + n, sizeof k->way - n, "%s%s", n ? "_" : "", word);
}

static void take_nccl_word(NcclName *k, const char *word)
{
    static const char *const ways[] = { "RING", "TREE",  "COLLNET", "NVLS",  "PAT",
                                        "LL",   "LL128", "SIMPLE",  "CHAIN", "DIRECT" };
    static const char *const reductions[] = { "Max", "Min", "Prod", "MinMax", "Avg" };
    const char *type = type_named(word);
    if (!k->op[0])
        snprintf(k->op, sizeof k->op, "%s", word);
    else if (type)
        snprintf(k->type, sizeof k->type, "%s", type);
    else if (is_one_of(word, ways, ARRAY_N(ways)))
        add_way(k, word);
    else if (is_one_of(word, reductions, ARRAY_N(reductions)))
        snprintf(k->op + strlen(k->op), sizeof k->op - strlen(k->op), "_%s", word);
}

/* "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)": its words, between '_'. */
static bool nccl_read(const char *name, NcclName *k)
{
    static const char *const begins[] = { "ncclDevKernel_", "ncclKernel_", "ncclSymDevKernel_",
                                          "ncclSymkDevKernel_" };
    *k = (NcclName){ .op = "" };
    for (size_t i = 0; i < ARRAY_N(begins); i++) {
        size_t skip = strlen(begins[i]);
        if (strncmp(name, begins[i], skip) != 0)
            continue;
        for (const char *p = name + skip; is_word(*p);) {
            char word[32];
            size_t n = 0;
            while (isalnum((unsigned char)p[n]))
                n++;
            snprintf(word, sizeof word, "%.*s", (int)(n < 31 ? n : 31), p);
            if (n > 0)
                take_nccl_word(k, word);
            p += n + (p[n] == '_');
        }
        return k->op[0] != 0;
    }
    return false;
}

static bool nccl_name(const char *name, char *text, size_t cap)
{
    NcclName k;
    if (!nccl_read(name, &k))
        return false;
    bool bytes = strcmp(k.op, "SendRecv") == 0; /* all are sent as bytes */
    const char *type = bytes ? "" : k.type;
    snprintf(text, cap, "%s%s%s%s%s", k.op, type[0] ? " " : "", type, k.way[0] ? " " : "",
             k.way);
    return true;
}

/* ---- all others: the last name before its arguments ---- */

/* End of the name: where template arguments or parameters begin. */
static size_t name_end(const char *name)
{
    size_t n = strlen(name);
    if (strncmp(name, "(anonymous namespace)", 21) == 0)
        return 21 + name_end(name + 21);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(name + i, "(anonymous namespace)", 21) == 0)
            i += 20;
        else if (i > 0 && (name[i] == '<' || name[i] == '('))
            return i;
    }
    return n;
}

static const char *const plain_ends[] = { "_kernel_impl", "_kernel", "Kernel", "_impl" };

static size_t without_end(const char *begin, size_t n)
{
    for (size_t i = 0; i < ARRAY_N(plain_ends); i++) {
        size_t k = strlen(plain_ends[i]);
        if (n > k + 2 && memcmp(begin + n - k, plain_ends[i], k) == 0)
            return n - k;
    }
    return n;
}

static void plain_name(const char *name, char *text, size_t cap)
{
    if (strncmp(name, "void ", 5) == 0)
        name += 5;
    size_t end = name_end(name), begin = end;
    while (begin > 0 && is_word(name[begin - 1]))
        begin--;
    if (begin == end || !has(name, "::")) /* no namespaces: people's own names stay whole */
        begin = 0;
    size_t n = without_end(name + begin, end - begin);
    snprintf(text, cap, "%.*s", (int)(n < cap ? n : cap - 1), name + begin);
}

char *name_shorten(const char *name, char *text, size_t cap)
{
    if (!nccl_name(name, text, cap) && !matmul_name(name, text, cap))
        plain_name(name, text, cap);
    if (!text[0])
        snprintf(text, cap, "%s", name);
    return text;
}

/* ---- names that are short for several ---- */

typedef struct Clash {
    const char *full;
    const char *text; /* short */
    uint32_t name;    /* interned */
} Clash;

static int by_text(const void *a, const void *b)
{
    const Clash *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : strcmp(x->full, y->full);
}

static size_t same_length(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* The word of a name that its byte `at` lies in: a C++ name, or a part of one that is long. */
static size_t word_about(const char *name, size_t at, size_t *begin)
{
    enum { LONG = 28 };
    for (int whole = 1;; whole = 0) {
        size_t a = at, b = at;
        while (a > 0 && (whole ? is_word(name[a - 1]) : isalnum((unsigned char)name[a - 1])))
            a--;
        while (name[b] && (whole ? is_word(name[b]) : isalnum((unsigned char)name[b])))
            b++;
        *begin = a;
        if (b - a <= LONG || !whole)
            return b - a < LONG ? b - a : LONG;
    }
}

/* The words where other names of the group part from this one: the first two and the last. */
static void tell_apart(const Clash *group, size_t n, size_t i, char *text, size_t cap)
{
    enum { LOOK = 64 };
    uint64_t at[2 * LOOK];
    size_t at_n = 0, used = 0, end = 0;
    size_t first = i > LOOK ? i - LOOK : 0, last = i + LOOK < n ? i + LOOK : n;
    for (size_t k = first; k < last; k++)
        if (k != i)
            at[at_n++] = same_length(group[k].full, group[i].full);
    qsort(at, at_n, sizeof *at, compare_u64);
    text[0] = 0;
    for (size_t p = 0, words = 0; p < at_n; p++) {
        size_t begin, length = word_about(group[i].full, at[p], &begin);
        bool late = words == 2 && p + 1 < at_n;
        if (late || length == 0 || (words > 0 && begin < end) || used + length + 2 > cap)
            continue;
        end = begin + length;
        words++;
        used += (size_t)snprintf(text + used, cap - used, " %.*s", (int)length,
                                 group[i].full + begin);
    }
}

/* Members of a group whose texts are still equal are counted. */
static void number_equals(Names *n, const Clash *group, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *text = n->text[group[i].name];
        uint32_t same = 1;
        for (size_t k = i + 1; k < count && k < i + 64; k++)
            if (strcmp(n->text[group[k].name], text) == 0)
                n->text[group[k].name] = arena_printf(&n->arena, "%s #%" PRIu32, text, ++same);
    }
}

static void part_group(Names *n, const Clash *group, size_t count)
{
    char more[NAME_CAP];
    for (size_t i = 0; count > 1 && i < count; i++) {
        tell_apart(group, count, i, more, 48);
        n->text[group[i].name] = arena_printf(&n->arena, "%s%s", group[i].text, more);
    }
    if (count > 1)
        number_equals(n, group, count);
}

/* By interned id: it is what a GPU did, and stands beside others of the kind. */
static bool *names_of_gpus(const Timeline *t)
{
    bool *is = mem_zero((size_t)t->names.n + 1, sizeof *is);
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        const Track *track = &t->tracks[k];
        uint64_t end = track->kind == TRACK_STREAM ? track->span_first + track->span_n : 0;
        for (uint64_t s = track->span_first; s < end; s++)
            if (cover_bit(t->span_class[s]) && t->span_name[s] < t->names.n)
                is[t->span_name[s]] = true;
    }
    return is;
}

/* All names at once: which ones clash shows only then.  What hosts do goes by its whole name. */
static void shorten_all(Names *n)
{
    size_t all = 0;
    bool *counts = names_of_gpus(n->t);
    Clash *c = mem_zero((size_t)n->t->names.n + 1, sizeof *c);
    for (uint32_t i = 0; i < n->t->names.n; i++) {
        char text[NAME_CAP];
        const char *full = timeline_text(n->t, i);
        n->text[i] = arena_strdup(&n->arena, name_shorten(full, text, sizeof text));
        if (counts[i])
            c[all++] =
                (Clash){ full + (strncmp(full, "void ", 5) == 0 ? 5 : 0), n->text[i], i };
    }
    free(counts);
    if (all > 0)
        qsort(c, all, sizeof *c, by_text);
    for (size_t first = 0, end; first < all; first = end) {
        for (end = first + 1; end < all && strcmp(c[end].text, c[first].text) == 0;)
            end++;
        part_group(n, c + first, end - first);
    }
    free(c);
}

/* ---- of one timeline ---- */

void names_open(Names *n, const Timeline *t)
{
    *n = (Names){ .t = t };
}

void names_free(Names *n)
{
    free(n->text);
    arena_free(&n->arena);
    *n = (Names){ 0 };
}

const char *names_short(Names *n, uint32_t name)
{
    if (name >= n->t->names.n)
        return "";
    if (!n->text) {
        n->text = mem_zero((size_t)n->t->names.n + 1, sizeof *n->text);
        shorten_all(n);
    }
    return n->text[name];
}

static void append(char *text, size_t cap, const char *word)
{
    size_t n = strlen(text);
    if (word[0] && n + 1 < cap)
        snprintf(text + n, cap - n, "%s%s", n ? " " : "", word);
}

/* Sends and receives in one kernel: what they are together, where the trace says. */
static const char *op_text(const Timeline *t, const Comm *c, const NcclName *k)
{
    const char *op = timeline_text(t, c->op);
    return strcmp(k->op, "SendRecv") == 0 && op[0] ? op : k->op;
}

static char *name_span(Names *n, uint64_t span, bool sized, char *text, size_t cap)
{
    const Timeline *t = n->t;
    const Comm *c = timeline_comm_of(t, span);
    const char *full = timeline_text(t, t->span_name[span]);
    char size[32];
    NcclName k = { .op = "" };
    bool nccl = c && nccl_read(full, &k), host = !cover_bit(t->span_class[span]);
    snprintf(text, cap, "%s",
             host   ? full
             : nccl ? op_text(t, c, &k)
                    : names_short(n, t->span_name[span]));
    if (!c)
        return text;
    const char *type = c->dtype != NONE_U32 ? timeline_text(t, c->dtype) : k.type;
    if (!has(text, type))
        append(text, cap, type);
    if (sized && c->bytes != NONE_U64)
        append(text, cap, view_bytes_text(size, sizeof size, c->bytes));
    if (nccl)
        append(text, cap, k.way);
    else if (c->protocol != NONE_U32 && !has(text, timeline_text(t, c->protocol)))
        append(text, cap, timeline_text(t, c->protocol));
    return text;
}

char *names_of_span(Names *n, uint64_t span, char *text, size_t cap)
{
    return name_span(n, span, true, text, cap);
}

char *names_without_size(Names *n, uint64_t span, char *text, size_t cap)
{
    return name_span(n, span, false, text, cap);
}

/* ---- as much as there is room for ---- */

static bool is_unit(const char *word)
{
    static const char *const units[] = { "B", "kB", "MB", "GB" };
    return is_one_of(word, units, ARRAY_N(units));
}

bool names_fit(Font *font, TextStyle style, char *text, Px width)
{
    enum { LETTERS = 6, SAYS_NOTHING = 3 };
    while (font_width(font, style, text, strlen(text)) > width) {
        char *space = strrchr(text, ' ');
        /* One word, or but "tp" or "##" before it: some of it, or nothing. */
        if (!space || space - text < SAYS_NOTHING)
            return font_fit(font, style, text, strlen(text), width) >= LETTERS;
        bool unit = is_unit(space + 1);
        *space = 0;
        space = unit ? strrchr(text, ' ') : NULL;
        if (space)
            *space = 0; /* no number without its unit */
    }
    return text[0] != 0;
}

char *names_cut(Font *font, TextStyle style, const char *text, Px width, char *to, size_t cap)
{
    size_t n = strlen(text), tail = n;
    Px room = width - font_advance(font, style, 0x2026);
    if (font_width(font, style, text, n) <= width) {
        snprintf(to, cap, "%s", text);
        return to;
    }
    /* Whole characters from the end, as many as have half the room. */
    for (size_t at = n; at > 0 && font_width(font, style, text + at, n - at) <= room / 2;) {
        tail = at;
        while (--at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
            ;
    }
    size_t head = font_fit(font, style, text, tail,
                           room - font_width(font, style, text + tail, n - tail));
    snprintf(to, cap, "%.*s\xe2\x80\xa6%s", (int)head, text, text + tail);
    return to;
}
