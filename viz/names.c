/*
 * names.c - cuts what says nothing off a kernel's name.
 */
#include "viz/names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- collectives ---- */

/* "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)" without its ends. */
static bool nccl_name(const char *name, char *text, size_t cap)
{
    static const char *const begins[] = { "ncclDevKernel_", "ncclKernel_", "ncclSymDevKernel_",
                                          "ncclSymkDevKernel_" };
    for (size_t i = 0; i < ARRAY_N(begins); i++) {
        size_t n = strlen(begins[i]);
        if (strncmp(name, begins[i], n) == 0) {
            size_t length = 0;
            while (is_word(name[n + length]))
                length++;
            snprintf(text, cap, "%.*s", (int)length, name + n);
            return true;
        }
    }
    return false;
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
    if (begin == end || !strchr(name, ':')) /* no namespaces: people's own names stay whole */
        begin = has(name, "::") ? begin : 0;
    if (begin == end)
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

/* ---- of one timeline ---- */

void names_open(Names *n, const Timeline *t)
{
    *n = (Names){ .t = t };
    n->text = mem_zero(t->names.n + 1, sizeof *n->text);
}

void names_free(Names *n)
{
    free(n->text);
    arena_free(&n->arena);
    *n = (Names){ 0 };
}

const char *names_short(Names *n, uint32_t name)
{
    char text[NAME_CAP];
    if (name >= n->t->names.n)
        return "";
    if (!n->text[name])
        n->text[name] =
            arena_strdup(&n->arena, name_shorten(timeline_text(n->t, name), text, sizeof text));
    return n->text[name];
}

static void append(char *text, size_t cap, const char *word)
{
    size_t n = strlen(text);
    if (word[0] && n + 1 < cap)
        snprintf(text + n, cap - n, "%s%s", n ? " " : "", word);
}

char *names_of_span(Names *n, uint64_t span, char *text, size_t cap)
{
    const Timeline *t = n->t;
    const Comm *c = timeline_comm_of(t, span);
    char size[32];
    snprintf(text, cap, "%s", names_short(n, t->span_name[span]));
    if (!c)
        return text;
    const char *type = timeline_text(t, c->dtype);
    if (!has(text, type))
        append(text, cap, type);
    if (c->bytes != NONE_U64)
        append(text, cap, view_bytes_text(size, sizeof size, c->bytes));
    if (c->protocol != NONE_U32 && !has(text, timeline_text(t, c->protocol)))
        append(text, cap, timeline_text(t, c->protocol));
    return text;
}
