/*
 * text.h - what is asked of texts in many places.
 */
#ifndef LOCKSTEP_CORE_TEXT_H
#define LOCKSTEP_CORE_TEXT_H

#include <stdbool.h>
#include <string.h>

/* Behind something: "x.json" ends in ".json", ".json" by itself does not. */
static inline bool text_ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), end_n = strlen(end);
    return n > end_n && strcmp(text + n - end_n, end) == 0;
}

#endif
