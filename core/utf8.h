/*
 * utf8.h - is this a character?
 */
#ifndef LOCKSTEP_CORE_UTF8_H
#define LOCKSTEP_CORE_UTF8_H

#include <stddef.h>

/* Bytes of the UTF-8 character at text, of which left bytes may be read; 0: there is none.  NUL
 * is one, and where a text ends with it, left may be any number. */
size_t utf8_bytes(const char *text, size_t left);

#endif
