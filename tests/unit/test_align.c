/* Alignment of sequences: itself is the identity, changes are found, either way round. */
#include "profile/align.h"
#include "tests/check.h"

enum { LONG = 30000, SHORT = 400 };

static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
    random_state = mix_u64(random_state);
    return (uint32_t)(random_state % n);
}

/* Letters are exact keys, their case apart the loose ones. */
static uint32_t items_of(AlignItem *items, const char *text)
{
    uint32_t n = 0;
    for (; text[n]; n++)
        items[n] = (AlignItem){ (uint64_t)text[n], (uint64_t)text[n] | 0x20 };
    return n;
}

/* The match as text: letters of b, '-' where there is none. */
static void check_match(const char *a, const char *b, const char *expect)
{
    AlignItem x[64], y[64];
    uint32_t match[64];
    char got[65] = "";
    uint32_t n = items_of(x, a);
    align(match, x, n, y, items_of(y, b));
    for (uint32_t i = 0; i < n; i++)
        got[i] = match[i] == NONE_U32 ? '-' : b[match[i]];
    CHECK_STR(expect, got);
}

static void what_is_equal_is_paired_and_the_rest_is_not(void)
{
    check_match("abc", "abc", "abc");
    check_match("", "abc", "");
    check_match("abc", "", "---");
    check_match("abc", "xyz", "---");
    check_match("abxcd", "abcd", "ab-cd");
    check_match("abcd", "abxcd", "abcd");
    check_match("abcabc", "abcbc", "abc-bc");
}

static void what_is_renamed_is_paired_by_its_class(void)
{
    check_match("abcd", "aBcd", "aBcd");
    check_match("abcd", "aBcxd", "aBcd");
    check_match("abxcd", "aBcd", "aB-cd");
    check_match("ABCD", "abcd", "abcd");
}

/* Like a transformer: the same few kernels again and again, now and then another one. */
static uint32_t layers(AlignItem *items, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t key = random_below(50) == 0 ? 1000 + i : i % 13;
        items[i] = (AlignItem){ key, key };
    }
    return n;
}

static void check_is_identity(const AlignItem *items, uint32_t n)
{
    uint32_t *match = mem_zero((size_t)n + 1, sizeof *match);
    bool same = true;
    align(match, items, n, items, n);
    for (uint32_t i = 0; i < n; i++)
        same &= match[i] == i;
    CHECK(same);
    free(match);
}

static void a_sequence_is_itself(void)
{
    AlignItem *items = mem_zero(LONG, sizeof *items);
    check_is_identity(items, 0);
    check_is_identity(items, LONG); /* all alike */
    for (uint32_t n = 1; n < 100; n += 7)
        check_is_identity(items, layers(items, n));
    check_is_identity(items, layers(items, LONG));
    free(items);
}

/* b is a with some items left out, put in, or renamed within their class. */
static uint32_t edited(AlignItem *b, const AlignItem *a, uint32_t n, uint32_t every)
{
    uint32_t b_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t what = random_below(every);
        if (what == 0)
            continue;
        if (what == 1)
            b[b_n++] = (AlignItem){ 1u << 30 | i, 1u << 30 | i };
        b[b_n] = a[i];
        if (what == 2)
            b[b_n].exact |= 1u << 29;
        b_n++;
    }
    return b_n;
}

/* Ascending, only alike items, and as many as the edits left. */
static uint32_t check_is_sound(const uint32_t *match, const AlignItem *a, uint32_t a_n,
                               const AlignItem *b)
{
    uint32_t pairs = 0, next = 0;
    bool sound = true;
    for (uint32_t i = 0; i < a_n; i++) {
        if (match[i] == NONE_U32)
            continue;
        sound &= match[i] >= next && b[match[i]].loose == a[i].loose;
        next = match[i] + 1;
        pairs++;
    }
    CHECK(sound);
    return pairs;
}

static void check_edits(uint32_t n, uint32_t every)
{
    AlignItem *a = mem_zero(n, sizeof *a), *b = mem_zero(2 * (size_t)n, sizeof *b);
    uint32_t *there = mem_zero(n, sizeof *there), *back = mem_zero(2 * (size_t)n, sizeof *back);
    layers(a, n);
    uint32_t b_n = edited(b, a, n, every), kept = 0;
    for (uint32_t i = 0; i < b_n; i++)
        kept += b[i].exact >> 30 == 0;
    align(there, a, n, b, b_n);
    align(back, b, b_n, a, n);
    uint32_t pairs = check_is_sound(there, a, n, b);
    CHECK_INT(pairs, check_is_sound(back, b, b_n, a));
    CHECK(pairs >= kept - kept / 50);
    bool symmetric = true;
    for (uint32_t i = 0; i < n; i++)
        symmetric &= there[i] == NONE_U32 || back[there[i]] == i;
    CHECK(symmetric);
    free(a);
    free(b);
    free(there);
    free(back);
}

static void changes_are_found_in_both_directions(void)
{
    random_state = 7;
    for (uint32_t i = 0; i < 50; i++)
        check_edits(1 + random_below(SHORT), 5 + random_below(40));
    check_edits(LONG, 100);
    check_edits(LONG, 10);
}

/* The longest common subsequence by the book, for short sequences of exact keys only. */
static uint32_t longest_common(const AlignItem *a, uint32_t a_n, const AlignItem *b,
                               uint32_t b_n)
{
    uint32_t row[65] = { 0 };
    for (uint32_t i = 0; i < a_n; i++)
        for (uint32_t j = 0, diagonal = 0; j < b_n; j++) {
            uint32_t above = row[j + 1];
            uint32_t both = diagonal + (a[i].exact == b[j].exact);
            row[j + 1] = above > row[j] ? above : row[j];
            row[j + 1] = row[j + 1] > both ? row[j + 1] : both;
            diagonal = above;
        }
    return row[b_n];
}

static void short_sequences_are_paired_as_long_as_can_be(void)
{
    random_state = 11;
    for (uint32_t round = 0; round < 2000; round++) {
        AlignItem a[64], b[64];
        uint32_t match[64], pairs = 0;
        uint32_t a_n = random_below(64), b_n = random_below(64), letters = 1 + random_below(8);
        for (uint32_t i = 0; i < 64; i++) {
            a[i].exact = a[i].loose = random_below(letters);
            b[i].exact = b[i].loose = random_below(letters);
        }
        align(match, a, a_n, b, b_n);
        for (uint32_t i = 0; i < a_n; i++)
            pairs += match[i] != NONE_U32;
        CHECK_INT(longest_common(a, a_n, b, b_n), pairs);
    }
}

/* Nothing unique, nothing in common at the ends: the band must not make it slow. */
static void long_sequences_without_anything_unique_end(void)
{
    AlignItem *a = mem_zero(LONG, sizeof *a), *b = mem_zero(LONG, sizeof *b);
    uint32_t *match = mem_zero(LONG, sizeof *match);
    for (uint32_t i = 0; i < LONG; i++) {
        a[i].exact = a[i].loose = i % 2;
        b[i].exact = b[i].loose = (i + 1) % 2;
    }
    align(match, a, LONG, b, LONG);
    CHECK_INT(LONG - 1, check_is_sound(match, a, LONG, b));
    free(a);
    free(b);
    free(match);
}

int main(void)
{
    RUN(what_is_equal_is_paired_and_the_rest_is_not);
    RUN(what_is_renamed_is_paired_by_its_class);
    RUN(a_sequence_is_itself);
    RUN(changes_are_found_in_both_directions);
    RUN(short_sequences_are_paired_as_long_as_can_be);
    RUN(long_sequences_without_anything_unique_end);
    return check_report();
}
