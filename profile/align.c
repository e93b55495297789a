/* align.c - trims what is equal, cuts at unique runs, then longest common subsequence. */
#include "profile/align.h"

#include <stdlib.h>
#include <string.h>

#include "core/order.h"

enum { CELLS_EXACT = 1 << 16, CELLS_MAX = 1 << 24, BAND_MIN = 64 };

/* Runs of so many keys are looked at for being unique, long ones first. */
static const uint32_t run_lengths[] = { 32, 8, 2, 1 };

typedef struct Aligner {
    const uint64_t *a, *b; /* keys of this pass */
    uint32_t *match;       /* by item of a */
} Aligner;

typedef struct Range {
    uint32_t a, a_end, b, b_end;
} Range;

/* ---- longest common subsequence, in a band ---- */

enum { STEP_BOTH, STEP_ROW, STEP_COLUMN };

typedef struct Band {
    uint32_t rows, columns, width; /* width: cells of a row, columns + 1 when all fit */
    uint32_t *above, *row;         /* lengths */
    uint8_t *step;                 /* [(rows + 1) * width]: the last step to a cell */
} Band;

/* First column of row i in the band; rows >= columns, so it moves by one at most. */
static uint32_t band_first(const Band *d, uint32_t i)
{
    uint64_t center = (uint64_t)i * d->columns / d->rows;
    uint64_t half = d->width / 2, last = d->columns + 1 - d->width;
    return (uint32_t)min_u64(center > half ? center - half : 0, last);
}

static uint32_t band_at(const Band *d, const uint32_t *row, uint32_t first, int64_t column)
{
    int64_t k = column - first;
    return k >= 0 && k < d->width ? row[k] : 0;
}

static void band_row(Band *d, uint32_t i, const uint64_t *rows, const uint64_t *columns)
{
    uint32_t first = band_first(d, i), before = i ? band_first(d, i - 1) : 0;
    for (uint32_t k = 0; k < d->width; k++) {
        uint32_t j = first + k;
        uint32_t up = i ? band_at(d, d->above, before, j) : 0;
        uint32_t left = k ? d->row[k - 1] : 0;
        bool row_is_open = i && j >= before && j < before + d->width;
        bool open = row_is_open && (up >= left || k == 0);
        d->row[k] = open ? up : left;
        d->step[(size_t)i * d->width + k] = open ? STEP_ROW : STEP_COLUMN;
        bool diagonal = i && j && j - 1 >= before && j - 1 < before + d->width;
        if (!diagonal || rows[i - 1] != columns[j - 1])
            continue;
        uint32_t both = band_at(d, d->above, before, (int64_t)j - 1) + 1;
        if (both < d->row[k])
            continue;
        d->row[k] = both;
        d->step[(size_t)i * d->width + k] = STEP_BOTH;
    }
}

/* Walks back; pair(i, j) for each step on both. */
static void band_walk(const Band *d, const Range *r, bool rows_are_a, uint32_t *match)
{
    uint32_t i = d->rows, j = d->columns;
    while (i > 0 && j > 0) {
        uint8_t step = d->step[(size_t)i * d->width + (j - band_first(d, i))];
        if (step == STEP_BOTH)
            match[r->a + (rows_are_a ? i : j) - 1] = r->b + (rows_are_a ? j : i) - 1;
        i -= step != STEP_COLUMN;
        j -= step != STEP_ROW;
    }
}

static void solve_band(const Aligner *al, Range r)
{
    uint32_t a_n = r.a_end - r.a, b_n = r.b_end - r.b;
    bool rows_are_a = a_n >= b_n;
    Band d = { .rows = rows_are_a ? a_n : b_n, .columns = rows_are_a ? b_n : a_n };
    uint64_t fit = max_u64(CELLS_MAX / ((uint64_t)d.rows + 1), BAND_MIN);
    d.width = (uint32_t)min_u64((uint64_t)d.columns + 1, fit);
    uint32_t *lengths = mem_zero(2 * (size_t)d.width, sizeof *lengths);
    d.step = mem_zero(((size_t)d.rows + 1) * d.width, 1);
    for (uint32_t i = 0; i <= d.rows; i++) {
        d.row = lengths + (i % 2) * (size_t)d.width;
        d.above = lengths + ((i + 1) % 2) * (size_t)d.width;
        band_row(&d, i, rows_are_a ? al->a + r.a : al->b + r.b,
                 rows_are_a ? al->b + r.b : al->a + r.a);
    }
    band_walk(&d, &r, rows_are_a, al->match);
    free(lengths);
    free(d.step);
}

/* ---- runs that are unique on both sides ---- */

typedef struct Run {
    uint64_t hash;
    uint32_t at;
} Run;

static int compare_runs(const void *x, const void *y)
{
    const Run *p = x, *q = y;
    if (p->hash != q->hash)
        return p->hash < q->hash ? -1 : 1;
    return p->at < q->at ? -1 : p->at > q->at;
}

/* Sorted runs of `length` keys of [first, end); only those that are there once. */
static uint32_t unique_runs(Run *runs, const uint64_t *keys, uint32_t first, uint32_t end,
                            uint32_t length)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t i = first; i + length <= end; i++) {
        uint64_t h = length;
        for (uint32_t k = 0; k < length; k++)
            h = mix_u64(h ^ keys[i + k]);
        runs[n++] = (Run){ h, i };
    }
    qsort(runs, n, sizeof *runs, compare_runs);
    for (uint32_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && runs[next].hash == runs[i].hash;)
            next++;
        if (next == i + 1)
            runs[kept++] = runs[i];
    }
    return kept;
}

/* Pairs (a << 32 | b) of runs on both sides, ascending in a. */
static uint32_t common_runs(uint64_t *pairs, const Run *a, uint32_t a_n, const Run *b,
                            uint32_t b_n)
{
    uint32_t n = 0;
    for (uint32_t i = 0, k = 0; i < a_n && k < b_n;) {
        if (a[i].hash == b[k].hash)
            pairs[n++] = (uint64_t)a[i++].at << 32 | b[k++].at;
        else if (a[i].hash < b[k].hash)
            i++;
        else
            k++;
    }
    qsort(pairs, n, sizeof *pairs, compare_u64);
    return n;
}

/* The longest chain ascending in b too (patience sorting); kept in place, its length returned. */
static uint32_t longest_chain(uint64_t *pairs, uint32_t n)
{
    uint32_t *pile = mem_zero((size_t)n + 1, sizeof *pile); /* pile k ends with this pair */
    uint32_t *before = mem_zero((size_t)n + 1, sizeof *before);
    uint32_t piles = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t low = 0, high = piles;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if ((uint32_t)pairs[pile[middle]] < (uint32_t)pairs[i])
                low = middle + 1;
            else
                high = middle;
        }
        before[i] = low ? pile[low - 1] : NONE_U32;
        pile[low] = i;
        piles += low == piles;
    }
    uint32_t at = piles ? pile[piles - 1] : NONE_U32;
    for (uint32_t k = piles; k-- > 0; at = before[pile[k]])
        pile[k] = at;
    for (uint32_t k = 0; k < piles; k++)
        pairs[k] = pairs[pile[k]];
    free(pile);
    free(before);
    return piles;
}

/* ---- a range: trim, cut, solve ---- */

static void trim(const Aligner *al, Range *r)
{
    while (r->a < r->a_end && r->b < r->b_end && al->a[r->a] == al->b[r->b])
        al->match[r->a++] = r->b++;
    while (r->a < r->a_end && r->b < r->b_end && al->a[r->a_end - 1] == al->b[r->b_end - 1])
        al->match[--r->a_end] = --r->b_end;
}

/* Chain of unique runs of some length, the longest length that has any; NULL: nothing is. */
static uint64_t *find_anchors(const Aligner *al, Range r, uint32_t *n)
{
    uint32_t a_n = r.a_end - r.a, b_n = r.b_end - r.b;
    Run *a = mem_zero((size_t)a_n + 1, sizeof *a), *b = mem_zero((size_t)b_n + 1, sizeof *b);
    uint64_t *pairs = mem_zero((size_t)(a_n < b_n ? a_n : b_n) + 1, sizeof *pairs);
    *n = 0;
    for (size_t k = 0; k < ARRAY_N(run_lengths) && *n == 0; k++) {
        uint32_t a_unique = unique_runs(a, al->a, r.a, r.a_end, run_lengths[k]);
        uint32_t b_unique = unique_runs(b, al->b, r.b, r.b_end, run_lengths[k]);
        *n = longest_chain(pairs, common_runs(pairs, a, a_unique, b, b_unique));
    }
    free(a);
    free(b);
    if (*n > 0)
        return pairs;
    free(pairs);
    return NULL;
}

static void solve(const Aligner *al, Range r);

/* Solves what lies before each anchor and follows the anchor as far as keys are equal; what comes
 * after the last one is left in r. */
static void solve_between(const Aligner *al, Range *r, const uint64_t *anchors, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a = (uint32_t)(anchors[i] >> 32), b = (uint32_t)anchors[i];
        if (a < r->a || b < r->b)
            continue; /* within what the anchor before it has matched */
        solve(al, (Range){ r->a, a, r->b, b });
        r->a = a;
        r->b = b;
        while (r->a < r->a_end && r->b < r->b_end && al->a[r->a] == al->b[r->b])
            al->match[r->a++] = r->b++;
    }
}

static void solve(const Aligner *al, Range r)
{
    for (;;) {
        trim(al, &r);
        if (r.a == r.a_end || r.b == r.b_end)
            return;
        uint64_t cells = (uint64_t)(r.a_end - r.a) * (r.b_end - r.b);
        uint32_t n;
        uint64_t *anchors = cells > CELLS_EXACT ? find_anchors(al, r, &n) : NULL;
        if (!anchors)
            break;
        solve_between(al, &r, anchors, n);
        free(anchors);
    }
    solve_band(al, r);
}

/* ---- two passes, in an order that does not depend on who is called a ---- */

static uint64_t *keys_of(const AlignItem *items, uint32_t n, bool exact)
{
    uint64_t *keys = mem_zero((size_t)n + 1, sizeof *keys);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = exact ? items[i].exact : items[i].loose;
    return keys;
}

static void solve_gaps(const Aligner *al, uint32_t a_n, uint32_t b_n)
{
    Range r = { 0, 0, 0, 0 };
    for (uint32_t i = 0; i <= a_n; i++) {
        uint32_t b = i < a_n ? al->match[i] : b_n;
        if (b == NONE_U32)
            continue;
        r.a_end = i;
        r.b_end = b;
        if (r.a < r.a_end && r.b < r.b_end)
            solve(al, r);
        r.a = i + 1;
        r.b = b + 1;
    }
}

static void align_ordered(uint32_t *match, const AlignItem *a, uint32_t a_n, const AlignItem *b,
                          uint32_t b_n)
{
    for (uint32_t i = 0; i < a_n; i++)
        match[i] = NONE_U32;
    for (int pass = 0; pass < 2; pass++) {
        uint64_t *a_keys = keys_of(a, a_n, pass == 0), *b_keys = keys_of(b, b_n, pass == 0);
        Aligner al = { a_keys, b_keys, match };
        solve_gaps(&al, a_n, b_n);
        free(a_keys);
        free(b_keys);
    }
}

static bool goes_first(const AlignItem *a, uint32_t a_n, const AlignItem *b, uint32_t b_n)
{
    if (a_n != b_n)
        return a_n < b_n;
    for (uint32_t i = 0; i < a_n; i++) {
        if (a[i].exact != b[i].exact)
            return a[i].exact < b[i].exact;
        if (a[i].loose != b[i].loose)
            return a[i].loose < b[i].loose;
    }
    return true;
}

void align(uint32_t *match, const AlignItem *a, uint32_t a_n, const AlignItem *b, uint32_t b_n)
{
    if (goes_first(a, a_n, b, b_n)) {
        align_ordered(match, a, a_n, b, b_n);
        return;
    }
    uint32_t *back = mem_zero((size_t)b_n + 1, sizeof *back);
    align_ordered(back, b, b_n, a, a_n);
    for (uint32_t i = 0; i < a_n; i++)
        match[i] = NONE_U32;
    for (uint32_t i = 0; i < b_n; i++)
        if (back[i] != NONE_U32)
            match[back[i]] = i;
    free(back);
}
