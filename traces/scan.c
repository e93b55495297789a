/* scan.c - the parts of the scanner that are not met at every value. */
#include "traces/scan.h"

#include <math.h>
#include <stdlib.h>

bool scan_escaped_rest(Scan *s, const uint8_t *p)
{
    while (p < s->end && *p != '"') {
        p += *p == '\\' ? 2 : 1;
        if (p < s->end)
            p = scan_at_quote_or_backslash(p, s->end);
    }
    if (p >= s->end) {
        s->at = s->end;
        return false;
    }
    s->at = p + 1;
    return true;
}

bool scan_member_slow(Scan *s, ScanText *key, bool *closed)
{
    if (!scan_next(s, '}', closed))
        return false;
    if (*s->at != '"')
        return scan_fail(s, "a key is expected");
    if (!scan_string(s, key))
        return false;
    scan_space(s);
    if (s->at >= s->end)
        return false;
    if (*s->at != ':')
        return scan_fail(s, "a colon is expected");
    s->at++;
    return true;
}

/* Open brackets as bits: 1 for a brace.  Their kinds must match. */
typedef struct Depth {
    uint64_t braces;
    uint32_t n;
} Depth;

static bool take_bracket(Scan *s, Depth *d, uint8_t c)
{
    if (c == '{' || c == '[') {
        if (d->n == SCAN_DEPTH_MAX)
            return scan_fail(s, "it is nested too deep");
        d->braces = d->braces << 1 | (c == '{');
        d->n++;
        return true;
    }
    if ((d->braces & 1) != (c == '}'))
        return scan_fail(s, "a bracket is closed by one of another kind");
    d->braces >>= 1;
    d->n--;
    return true;
}

/* Past the bracket that closes the last open one, a string or bracket at a time. */
static bool close_brackets_slowly(Scan *s, Depth depth)
{
    do {
        s->at = scan_at_structure(s->at, s->end);
        if (s->at >= s->end) {
            s->at = s->end;
            return false;
        }
        ScanText skipped;
        if (*s->at == '"') {
            if (!scan_string(s, &skipped))
                return false;
            continue;
        }
        if (!take_bracket(s, &depth, *s->at))
            return false;
        s->at++;
    } while (depth.n > 0);
    return true;
}

#ifdef __SSE2__

/* 64 bytes, a bit for each. */
typedef struct Block {
    uint64_t quotes, backslashes, brackets;
} Block;

static inline Block block_at(const uint8_t *p)
{
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    const __m128i opens = _mm_set1_epi8('{'), closes = _mm_set1_epi8('}');
    const __m128i fold = _mm_set1_epi8(0x20);
    Block b = { 0, 0, 0 };
    for (int i = 0; i < 64; i += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
        __m128i folded = _mm_or_si128(x, fold); /* [ ] become { } */
        __m128i bracket =
            _mm_or_si128(_mm_cmpeq_epi8(folded, opens), _mm_cmpeq_epi8(folded, closes));
        b.quotes |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(x, quote)) << i;
        b.backslashes |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(x, backslash))
                         << i;
        b.brackets |= (uint64_t)(unsigned)_mm_movemask_epi8(bracket) << i;
    }
    return b;
}

/* Bit i: how many of bits 0..i are set, odd or even. */
static inline uint64_t parity_up_to(uint64_t x)
{
    for (int shift = 1; shift < 64; shift *= 2)
        x ^= x << shift;
    return x;
}

/* Bytes behind a backslash that is none itself; *carry: the block's first byte is, the next's. */
static inline uint64_t escaped_bytes(uint64_t backslashes, bool *carry)
{
    uint64_t escaped = *carry;
    backslashes &= ~escaped;
    *carry = false;
    while (backslashes) {
        uint64_t bit = backslashes & -backslashes;
        *carry = bit >> 63;
        escaped |= bit << 1;
        backslashes &= ~(bit | bit << 1);
    }
    return escaped;
}

/* The same, 64 bytes at a time: what lies within strings is told by the parity of quotes. */
static bool close_brackets(Scan *s, const Depth depth)
{
    const uint8_t *from = s->at;
    Depth d = depth;
    uint64_t in_string = 0; /* all ones when a string goes on into the next block */
    bool escape = false;
    for (const uint8_t *p = from; p < s->end; p += 64) {
        Block b = block_at(p);
        uint64_t within = s->end - p < 64 ? ((uint64_t)1 << (s->end - p)) - 1 : ~(uint64_t)0;
        if (b.backslashes | escape)
            b.quotes &= ~escaped_bytes(b.backslashes, &escape);
        uint64_t strings = parity_up_to(b.quotes) ^ in_string;
        if (b.backslashes & ~strings & within) {
            s->at = from; /* no JSON: it escapes nothing there */
            return close_brackets_slowly(s, depth);
        }
        in_string = (uint64_t)((int64_t)strings >> 63);
        for (uint64_t at = b.brackets & ~strings & within; at; at &= at - 1) {
            s->at = p + __builtin_ctzll(at);
            if (!take_bracket(s, &d, *s->at))
                return false;
            if (d.n == 0) {
                s->at++;
                return true;
            }
        }
    }
    s->at = s->end;
    return false;
}

#else

static bool close_brackets(Scan *s, Depth depth)
{
    return close_brackets_slowly(s, depth);
}

#endif

bool scan_nested(Scan *s, ScanText *value)
{
    const uint8_t *from = s->at;
    *value = (ScanText){ .at = from, .kind = *from == '{' ? SCAN_OBJECT : SCAN_ARRAY };
    if (!close_brackets(s, (Depth){ 0, 0 }))
        return false;
    value->n = (uint32_t)(s->at - from);
    return true;
}

bool scan_rest_of_object(Scan *s)
{
    return !s->problem && close_brackets(s, (Depth){ 1, 1 });
}

/* ---- numbers ---- */

/* A decimal: digits times 10^exponent, of which at most 19 digits are kept. */
typedef struct Decimal {
    uint64_t digits;
    int64_t exponent;
    bool negative;
    bool rest_seen;     /* there were digits that did not fit */
    uint8_t rest_first; /* the first of them */
} Decimal;

static void take_digit(Decimal *d, uint8_t c, bool fraction)
{
    uint8_t digit = (uint8_t)(c - '0');
    if (d->digits < 1000000000000000000u && !d->rest_seen) {
        d->digits = 10 * d->digits + digit;
        d->exponent -= fraction;
        return;
    }
    if (!d->rest_seen)
        d->rest_first = digit;
    d->rest_seen = true;
    d->exponent += !fraction;
}

static const uint8_t *take_digits(Decimal *d, const uint8_t *p, const uint8_t *end,
                                  bool fraction)
{
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        take_digit(d, *p, fraction);
    return p;
}

static const uint8_t *take_exponent(Decimal *d, const uint8_t *p, const uint8_t *end)
{
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (p == end)
        return NULL;
    int64_t e = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        e = e < 100000 ? 10 * e + (*p - '0') : e;
    d->exponent += negative ? -e : e;
    return p;
}

static bool decimal_of(const ScanText *v, Decimal *d)
{
    *d = (Decimal){ .digits = 0 };
    if (v->kind != SCAN_ATOM && v->kind != SCAN_STRING)
        return false;
    const uint8_t *p = v->at, *end = v->at + v->n;
    d->negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    const uint8_t *first = p;
    p = take_digits(d, p, end, false);
    size_t digits_n = (size_t)(p - first);
    if (p < end && *p == '.') {
        const uint8_t *fraction = ++p;
        p = take_digits(d, p, end, true);
        digits_n += (size_t)(p - fraction);
    }
    if (digits_n == 0)
        return false;
    if (p < end && (*p == 'e' || *p == 'E'))
        p = take_exponent(d, p + 1, end);
    return p == end;
}

/* Rounds half away from zero. */
static uint64_t drop_digits(const Decimal *d, int64_t n)
{
    if (n > 19)
        return 0;
    uint64_t power = 1;
    for (int64_t i = 1; i < n; i++)
        power *= 10;
    uint64_t with_half = d->digits / power; /* one digit more than wanted */
    return with_half / 10 + (with_half % 10 >= 5);
}

static bool decimal_scaled(const Decimal *d, int scale, int64_t *value)
{
    int64_t exponent = d->exponent + scale;
    uint64_t x = d->digits;
    if (exponent < 0)
        x = drop_digits(d, -exponent);
    else if (exponent == 0)
        x += d->rest_seen && d->rest_first >= 5;
    for (int64_t i = 0; i < exponent && x > 0; i++) {
        if (x > (uint64_t)INT64_MAX / 10)
            return false;
        x *= 10;
    }
    if (x > (uint64_t)INT64_MAX)
        return false;
    *value = d->negative ? -(int64_t)x : (int64_t)x;
    return true;
}

/* Whether 8 bytes are digits, and what number they are: all at once. */
static inline bool eight_digits(const uint8_t *p, uint64_t *number)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t x;
    memcpy(&x, p, sizeof x);
    x -= 0x3030303030303030u; /* a byte below '0' borrows, and shows in a high half */
    if (((x | (x + 0x7676767676767676u)) & 0x8080808080808080u) || (x & 0xf0f0f0f0f0f0f0f0u))
        return false;
    x = x * 10 + (x >> 8); /* pairs of digits in every second byte */
    x = ((x & 0x000000ff000000ffu) * 0x000f424000000064u +
         ((x >> 16) & 0x000000ff000000ffu) * 0x0000271000000001u) >>
        32;
    *number = x;
    return true;
#else
    (void)p, (void)number;
    return false;
#endif
}

/* Up to 19 digits, at most `scale` of them after a point: nearly every number there is. */
static bool plain_decimal(const ScanText *v, int scale, int64_t *value)
{
    const uint8_t *p = v->at, *end = v->at + v->n;
    uint64_t x = 0, eight;
    if (v->n > 20 || v->n == 0)
        return false;
    for (; end - p >= 8 && eight_digits(p, &eight); p += 8)
        x = 100000000 * x + eight;
    for (; p < end && (uint8_t)(*p - '0') < 10; p++)
        x = 10 * x + (uint64_t)(*p - '0');
    if (p == v->at || p - v->at > 18)
        return false;
    if (p < end && *p == '.') {
        for (p++; p < end && scale > 0 && (uint8_t)(*p - '0') < 10; p++, scale--)
            x = 10 * x + (uint64_t)(*p - '0');
    }
    if (p != end)
        return false;
    for (; scale > 0; scale--) {
        if (x > (uint64_t)INT64_MAX / 10)
            return false;
        x *= 10;
    }
    *value = (int64_t)x;
    return x <= (uint64_t)INT64_MAX;
}

bool scan_decimal(const ScanText *v, int scale, int64_t *value)
{
    Decimal d;
    if ((v->kind == SCAN_ATOM || v->kind == SCAN_STRING) && plain_decimal(v, scale, value))
        return true;
    return decimal_of(v, &d) && decimal_scaled(&d, scale, value);
}

bool scan_whole(const ScanText *v, int64_t *value)
{
    if (v->kind != SCAN_ATOM && v->kind != SCAN_STRING)
        return false;
    const uint8_t *p = v->at, *end = v->at + v->n;
    if (v->n == 1 && (uint8_t)(*p - '0') < 10) {
        *value = *p - '0';
        return true;
    }
    bool negative = p < end && *p == '-';
    p += negative;
    if (p == end || end - p > 19) /* of 19 digits all fit into 64 bits */
        return false;
    uint64_t x = 0;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        x = 10 * x + (uint64_t)(*p - '0');
    }
    if (x > (uint64_t)INT64_MAX)
        return false;
    *value = negative ? -(int64_t)x : (int64_t)x;
    return true;
}

bool scan_double(const ScanText *v, double *value)
{
    char text[64];
    Decimal d;
    if (!decimal_of(v, &d) || v->n >= sizeof text)
        return false;
    memcpy(text, v->at, v->n);
    text[v->n] = '\0';
    *value = strtod(text, NULL);
    return isfinite(*value);
}

/* ---- escapes ---- */

static bool hex4(const uint8_t *p, const uint8_t *end, uint32_t *code)
{
    *code = 0;
    if (end - p < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        uint8_t c = p[i];
        bool digit = c >= '0' && c <= '9', letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'f';
        if (!digit && !letter)
            return false;
        *code = *code << 4 | (uint32_t)(digit ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return true;
}

static size_t put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 0x3f));
        to[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 0x3f));
    to[2] = (char)(0x80 | (c >> 6 & 0x3f));
    to[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* \uXXXX at p, perhaps two of them; returns how many bytes were used, 0 when it is none. */
static size_t take_unicode(const uint8_t *p, const uint8_t *end, uint32_t *code)
{
    uint32_t low;
    if (!hex4(p + 2, end, code))
        return 0;
    if (*code < 0xd800 || *code > 0xdfff)
        return 6;
    bool pair = *code < 0xdc00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u' &&
                hex4(p + 8, end, &low) && low >= 0xdc00 && low <= 0xdfff;
    if (!pair) {
        *code = 0xfffd;
        return 6;
    }
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return 12;
}

/* An escape at p; returns how many bytes were used, 0 when it is none we know. */
static size_t take_escape(const uint8_t *p, const uint8_t *end, uint32_t *code)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (end - p < 2)
        return 0;
    if (p[1] == 'u')
        return take_unicode(p, end, code);
    const char *known = p[1] ? strchr(from, p[1]) : NULL;
    if (!known)
        return 0;
    *code = (uint8_t)to[known - from];
    return 2;
}

size_t scan_unescape(const ScanText *v, char *to, size_t cap)
{
    const uint8_t *p = v->at, *end = v->at + v->n;
    size_t n = 0;
    while (p < end && n + 4 <= cap) {
        uint32_t code = 0;
        size_t used = v->escaped && *p == '\\' ? take_escape(p, end, &code) : 0;
        if (used == 0) {
            to[n++] = (char)*p++;
            continue;
        }
        n += put_utf8(to + n, code);
        p += used;
    }
    return n;
}
