/*
 * scan.h - JSON read as it comes: a cursor over bytes, no tree, no copies.
 *
 *     Scan s = { .at = begin, .end = end };
 *     if (scan_open(&s, '{'))
 *         while (scan_member(&s, &key, &closed))  "key":, until the closing brace
 *             scan_value(&s, &value);             text, number, or a whole object
 *     if (s.problem) ...                          damaged here, s.at says where
 *     else if (scan_ended(&s)) ...                more bytes are needed
 *
 * Everything is sticky: after a problem, or at the end of the bytes, every call
 * does nothing and returns false.  Values point into the bytes.
 *
 * What traces in the wild hold passes: control characters and bytes that are no
 * UTF-8 within strings, unknown escapes, NaN and Infinity, any white space, commas
 * too many or too few.  Brackets must match and may nest SCAN_DEPTH_MAX deep.
 *
 * The bytes must be followed by SCAN_PADDING_BYTES that may be read; the first of
 * them must be zero, or, where the scanned bytes are a value within others, what
 * follows it there.  Strings and nested values are skipped 16 bytes at a time.
 */
#ifndef LOCKSTEP_TRACES_SCAN_H
#define LOCKSTEP_TRACES_SCAN_H

#include <string.h>

#include "core/base.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The pieces of the innermost loop: as calls they take half as long again. */
#define SCAN_INLINE static inline __attribute__((always_inline))

enum { SCAN_PADDING_BYTES = 64, SCAN_DEPTH_MAX = 60 };

typedef struct Scan {
    const uint8_t *at, *end;
    const char *problem; /* a literal: "a key is expected" */
} Scan;

typedef enum ScanKind {
    SCAN_NOTHING,
    SCAN_STRING, /* between its quotes */
    SCAN_ATOM,   /* a number, true, NaN ... */
    SCAN_OBJECT, /* with its braces */
    SCAN_ARRAY   /* with its brackets */
} ScanKind;

typedef struct ScanText {
    const uint8_t *at;
    uint32_t n;
    uint8_t kind;
    bool escaped; /* a string with backslashes in it */
} ScanText;

static inline bool scan_ended(const Scan *s)
{
    return !s->problem && s->at >= s->end;
}

/* ---- 16 bytes at a time, or one ---- */

SCAN_INLINE const uint8_t *scan_at_quote_or_backslash(const uint8_t *p, const uint8_t *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    for (; p < end; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, backslash));
        unsigned mask = (unsigned)_mm_movemask_epi8(hit);
        if (mask)
            return p + __builtin_ctz(mask);
    }
    return p;
#else
    while (p < end && *p != '"' && *p != '\\')
        p++;
    return p;
#endif
}

/* The next quote or bracket of any kind. */
static inline const uint8_t *scan_at_structure(const uint8_t *p, const uint8_t *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), fold = _mm_set1_epi8(0x20);
    const __m128i opens = _mm_set1_epi8('{'), closes = _mm_set1_epi8('}');
    for (; p < end; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i folded = _mm_or_si128(x, fold); /* [ ] become { } */
        __m128i hit = _mm_or_si128(
            _mm_cmpeq_epi8(x, quote),
            _mm_or_si128(_mm_cmpeq_epi8(folded, opens), _mm_cmpeq_epi8(folded, closes)));
        unsigned mask = (unsigned)_mm_movemask_epi8(hit);
        if (mask)
            return p + __builtin_ctz(mask);
    }
    return p;
#else
    while (p < end && *p != '"' && (*p | 0x20) != '{' && (*p | 0x20) != '}')
        p++;
    return p;
#endif
}

/* Past blanks; the zeros of the padding count as such, so p may be the end. */
static inline const uint8_t *scan_past_blanks(const uint8_t *p, const uint8_t *end)
{
#ifdef __SSE2__
    const __m128i space = _mm_set1_epi8(' ');
    for (; p < end; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        /* max(x, ' ') == ' ' where x <= ' ' */
        __m128i blank = _mm_cmpeq_epi8(_mm_max_epu8(x, space), space);
        unsigned mask = (unsigned)_mm_movemask_epi8(blank) ^ 0xffffu;
        if (mask) {
            p += __builtin_ctz(mask);
            break;
        }
    }
#else
    while (p < end && *p <= ' ')
        p++;
#endif
    return p < end ? p : end;
}

/* The same for where there is none, or one, as a rule. */
SCAN_INLINE const uint8_t *scan_past_blank(const uint8_t *p, const uint8_t *end)
{
    if (*p > ' ')
        return p;
    if (p < end && p[1] > ' ')
        return p + 1;
    return scan_past_blanks(p, end);
}

SCAN_INLINE void scan_space(Scan *s)
{
    s->at = scan_past_blank(s->at, s->end);
}

/* ---- pieces ---- */

static inline bool scan_fail(Scan *s, const char *problem)
{
    if (!s->problem)
        s->problem = problem;
    return false;
}

/* The rest of a string that has a backslash at p; false when its end is not there. */
bool scan_escaped_rest(Scan *s, const uint8_t *p);
/* The object or array at s->at. */
bool scan_nested(Scan *s, ScanText *value);
/* Past the closing brace of the object that s->at is within. */
bool scan_rest_of_object(Scan *s);

/* A string; s->at stands at its quote. */
SCAN_INLINE bool scan_string(Scan *s, ScanText *value)
{
    const uint8_t *from = s->at + 1, *p = scan_at_quote_or_backslash(from, s->end);
    value->at = from;
    value->kind = SCAN_STRING;
    value->escaped = false;
    if (p >= s->end) {
        s->at = s->end;
        return false;
    }
    if (*p == '"') {
        value->n = (uint32_t)(p - from);
        s->at = p + 1;
        return true;
    }
    value->escaped = true;
    if (!scan_escaped_rest(s, p))
        return false;
    value->n = (uint32_t)(s->at - 1 - from);
    return true;
}

/* What ends a number or a word: white space, comma, or a closing bracket. */
SCAN_INLINE bool scan_ends_atom(uint8_t c)
{
    return c <= ' ' || c == ',' || (c | 0x20) == '}';
}

SCAN_INLINE const uint8_t *scan_at_atom_end(const uint8_t *p, const uint8_t *end)
{
#ifdef __SSE2__
    const __m128i comma = _mm_set1_epi8(','), fold = _mm_set1_epi8(0x20);
    const __m128i closes = _mm_set1_epi8('}');
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    /* min(x, ',') == x where x <= ',': that takes in a few that end nothing, as '+'. */
    __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(x, comma), x);
    __m128i hit = _mm_or_si128(low, _mm_cmpeq_epi8(_mm_or_si128(x, fold), closes));
    unsigned mask = (unsigned)_mm_movemask_epi8(hit);
    p += mask ? __builtin_ctz(mask) : 16;
#endif
    while (p < end && !scan_ends_atom(*p))
        p++;
    return p;
}

SCAN_INLINE bool scan_atom(Scan *s, ScanText *value)
{
    const uint8_t *p = scan_at_atom_end(s->at, s->end);
    value->at = s->at;
    value->kind = SCAN_ATOM;
    value->escaped = false;
    value->n = (uint32_t)(p - s->at);
    if (p >= s->end) {
        s->at = s->end;
        return false;
    }
    if (p == s->at || *s->at == ':')
        return scan_fail(s, "a value is expected");
    s->at = p;
    return true;
}

/* Any value; s->at stands at it or at the white space before it. */
SCAN_INLINE bool scan_value(Scan *s, ScanText *value)
{
    scan_space(s);
    if (s->at >= s->end || s->problem)
        return false;
    uint8_t c = *s->at;
    if (c == '"')
        return scan_string(s, value);
    if (c == '{' || c == '[')
        return scan_nested(s, value);
    return scan_atom(s, value);
}

/* Past the opening bracket c. */
SCAN_INLINE bool scan_open(Scan *s, uint8_t c)
{
    scan_space(s);
    if (s->at >= s->end || s->problem)
        return false;
    if (*s->at != c)
        return scan_fail(s, c == '{' ? "an object is expected" : "a list is expected");
    s->at++;
    return true;
}

/*
 * Past white space and commas, to the next item.  False past the closing bracket
 * c (then *closed), with a problem, or at the end of the bytes.
 */
SCAN_INLINE bool scan_next(Scan *s, uint8_t c, bool *closed)
{
    *closed = false;
    scan_space(s);
    while (s->at < s->end && *s->at == ',') {
        s->at++;
        scan_space(s);
    }
    if (s->at >= s->end || s->problem)
        return false;
    if (*s->at != c)
        return true;
    s->at++;
    *closed = true;
    return false;
}

/* The next key of an object, and past its colon.  False as scan_next is. */
bool scan_member_slow(Scan *s, ScanText *key, bool *closed);

SCAN_INLINE bool scan_member(Scan *s, ScanText *key, bool *closed)
{
    /* Nearly always a comma, at most one run of blanks, a short key, a colon. */
    const uint8_t *p = s->at + (*s->at == ',');
    p = scan_past_blank(p, s->end);
    if (*p != '"' || s->problem)
        return scan_member_slow(s, key, closed);
    const uint8_t *from = p + 1;
    p = scan_at_quote_or_backslash(from, s->end);
    if (p + 1 >= s->end || *p != '"' || p[1] != ':')
        return scan_member_slow(s, key, closed);
    *closed = false;
    *key = (ScanText){ .at = from, .n = (uint32_t)(p - from), .kind = SCAN_STRING };
    s->at = p + 2;
    return true;
}

/* ---- what values mean ---- */

static inline bool scan_is(const ScanText *v, const char *text, size_t n)
{
    return v->n == n && memcmp(v->at, text, n) == 0;
}
#define SCAN_IS(v, literal) scan_is((v), (literal), sizeof(literal) - 1)

/*
 * Decimal text times 10^scale, rounded half away from zero, exactly: a number or
 * a string of one.  "1697040000123456.789" with scale 3 gives nanoseconds of
 * microseconds.  False for what is no number (NaN too) or beyond int64.
 */
bool scan_decimal(const ScanText *v, int scale, int64_t *value);
/* A whole number from -INT64_MAX to INT64_MAX, also "7" in quotes; false for others, and where
 * there are more than 19 digits. */
bool scan_whole(const ScanText *v, int64_t *value);
/* As a double, for counters; false for what is not finite. */
bool scan_double(const ScanText *v, double *value);

/*
 * The text of a string without its escapes, into to[cap]; cut where that is too
 * small.  Returns its length.  Unknown escapes stay as they are; half surrogates
 * become U+FFFD.  What is no string is copied as it is.
 */
size_t scan_unescape(const ScanText *v, char *to, size_t cap);

#endif
