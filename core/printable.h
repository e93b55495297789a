/*
 * printable.h - which bytes of somebody's text must not reach a terminal.
 *
 * Names come from traces and files that others wrote.  Control characters move the cursor or
 * change colours, marks of direction turn the words around them: C0, DEL, C1 as UTF-8, and
 * U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069.
 */
#ifndef LOCKSTEP_CORE_PRINTABLE_H
#define LOCKSTEP_CORE_PRINTABLE_H

#include "core/base.h"

/* How many bytes at s are such a character, 0 if it is none; s ends with a 0. */
size_t unprintable_bytes(const char *s);

/* Copies the character at *from, which is none of those and UTF-8, or else a '?', goes behind it,
 * and returns how many bytes it wrote: at most 4.  **from is not 0. */
size_t printable_next(char *to, const char **from);

/* How many characters of it a terminal shows. */
uint32_t printable_width(const char *text);

/* Copies as many of them as fit, "..." at the end where that is not all; width >= 4, and to has cap
 * bytes, more than 12. */
void printable_cut(char *to, size_t cap, const char *text, uint32_t width);

/* Each becomes a '?', as does every byte that is no UTF-8; text does not get longer. */
void make_printable(char *text);

#endif
