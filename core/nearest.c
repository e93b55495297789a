/* nearest.c - Levenshtein's distance, a row at a time. */
#include "core/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { LETTERS_MAX = 2 };

static uint32_t min3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

uint32_t edit_distance(const char *a, const char *b)
{
    uint32_t row[NEAREST_NAME_CAP];
    size_t n = strlen(b);
    if (n >= NEAREST_NAME_CAP || strlen(a) >= NEAREST_NAME_CAP)
        return UINT32_MAX;
    for (uint32_t j = 0; j <= n; j++)
        row[j] = j;
    for (; *a; a++) {
        uint32_t diagonal = row[0]++;
        for (size_t j = 0; j < n; j++) {
            bool same = tolower((unsigned char)*a) == tolower((unsigned char)b[j]);
            uint32_t replaced = diagonal + !same;
            diagonal = row[j + 1];
            row[j + 1] = min3(replaced, diagonal + 1, row[j] + 1);
        }
    }
    return row[n];
}

/* As "haed" and "head". */
static bool swaps_two(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] && a[i] == b[i])
        i++;
    return a[i] && b[i] && a[i] == b[i + 1] && a[i + 1] == b[i] &&
           strcmp(a + i + 2, b + i + 2) == 0;
}

bool is_slip(const char *typed, const char *name)
{
    return edit_distance(typed, name) <= 1 || swaps_two(typed, name);
}

/* UINT32_MAX: too far away to be meant. */
static uint32_t distance_if_near(const char *typed, const char *name)
{
    uint32_t distance = edit_distance(typed, name);
    return distance <= LETTERS_MAX && 2 * distance <= strlen(name) ? distance : UINT32_MAX;
}

bool is_near(const char *typed, const char *name)
{
    return distance_if_near(typed, name) != UINT32_MAX;
}

const char *nearest(const char *typed, const char *const *names, size_t names_n)
{
    const char *found = NULL;
    uint32_t best = UINT32_MAX;
    for (size_t i = 0; i < names_n; i++) {
        uint32_t distance = distance_if_near(typed, names[i]);
        if (distance < best) {
            best = distance;
            found = names[i];
        }
    }
    return found;
}

char *words_joined(char *text, size_t cap, const char *const *words, size_t words_n)
{
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < words_n; i++) {
        bool room = n + 60 < cap;
        n += (size_t)snprintf(text + n, cap - n, "%s%.50s", i ? ", " : "",
                              room ? words[i] : "...");
        if (!room)
            break;
    }
    return text;
}
