/*
 * nearest.h - which name somebody may have meant who mistyped one, and which there are.
 *
 *     nearest("modle", keys, keys_n)     "model": two letters off
 *     nearest("x", keys, keys_n)         NULL: better no guess than a wild one
 */
#ifndef LOCKSTEP_CORE_NEAREST_H
#define LOCKSTEP_CORE_NEAREST_H

#include "core/base.h"

enum { NEAREST_NAME_CAP = 64 };

/* Letters to insert, delete or replace, whatever their case, to make a into b; names of
 * NEAREST_NAME_CAP bytes or more are UINT32_MAX apart. */
uint32_t edit_distance(const char *a, const char *b);

/* True when typed is one letter off the name, or has two neighbours in each other's place. */
bool is_slip(const char *typed, const char *name);
/* True when typed is at most two letters and half of name away from it. */
bool is_near(const char *typed, const char *name);
/* The nearest such name, the first of equals, or NULL. */
const char *nearest(const char *typed, const char *const *names, size_t names_n);

/* "a, b, c" for a message; ends in "..." where cap bytes do not hold them all, words of 50 at most.
 * Returns text. */
char *words_joined(char *text, size_t cap, const char *const *words, size_t words_n);

#endif
