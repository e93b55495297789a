/*
 * set_ranks.c - which rank a file is: what it says, what its name says, its place.
 */
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "traces/set_parts.h"

/* ---- names ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The number at text; NONE_U32 when there is none, or it cannot be a rank. */
static uint32_t number_at(const char *text)
{
    uint64_t x = 0;
    if (!is_digit(*text))
        return NONE_U32;
    for (; is_digit(*text); text++)
        if ((x = 10 * x + (uint64_t)(*text - '0')) >= TIMELINE_RANKS_MAX)
            return NONE_U32;
    return (uint32_t)x;
}

/* "rank3", "rank-3", "rank_3", "rank 3"; the last one in a name counts. */
static uint32_t number_after(const char *name, const char *word)
{
    uint32_t found = NONE_U32;
    for (const char *at = strstr(name, word); at; at = strstr(at + 1, word)) {
        const char *digits = at + strlen(word);
        digits += *digits && strchr("-_ .=", *digits) != NULL;
        uint32_t number = number_at(digits);
        if (number != NONE_U32)
            found = number;
    }
    return found;
}

/* The number just before the endings: "trace_3.json.gz", "chakra.0.et". */
static uint32_t number_at_end(const char *name)
{
    static const char *const endings[] = { ".gz",    ".json",   ".et",      ".pt",
                                           ".trace", ".sqlite", ".lstrace", ".txt" };
    size_t n = strlen(name);
    for (bool cut = true; cut;) {
        cut = false;
        for (size_t i = 0; i < ARRAY_N(endings); i++) {
            size_t m = strlen(endings[i]);
            if (n > m && memcmp(name + n - m, endings[i], m) == 0) {
                n -= m;
                cut = true;
            }
        }
    }
    size_t first = n;
    while (first > 0 && is_digit(name[first - 1]))
        first--;
    if (first == n)
        return NONE_U32;
    return number_at(name + first);
}

uint32_t set_rank_of_name(const char *path, bool bare_numbers)
{
    static const char *const words[] = { "rank", "Rank", "RANK", "worker" };
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < ARRAY_N(words); i++) {
        uint32_t number = number_after(name, words[i]);
        if (number != NONE_U32)
            return number;
    }
    return bare_numbers ? number_at_end(name) : NONE_U32;
}

/* ---- files ---- */

/* Two files that say the same rank themselves. */
static bool check_duplicates(TraceSet *s, bool lenient, Err *err)
{
    for (size_t i = 0; i < s->files_n; i++) {
        if (!s->files[i].used || s->files[i].rank == NONE_U32)
            continue;
        for (size_t j = i + 1; j < s->files_n; j++) {
            TraceFile *other = &s->files[j];
            if (!other->used || other->rank != s->files[i].rank)
                continue;
            if (!lenient)
                return err_set(err, "'%s' and '%s' both say that they are rank %" PRIu32,
                               s->files[i].path, other->path, other->rank);
            set_find(s, "'%s' is left out: '%s' is rank %" PRIu32 " too", other->path,
                     s->files[i].path, other->rank);
            other->used = false;
        }
    }
    return true;
}

/* Whether all files that say no rank have one in their name, and all differ. */
static bool names_will_do(const TraceSet *s)
{
    uint32_t *ranks = mem_resize(NULL, s->files_n, sizeof *ranks);
    size_t n = 0, files_n = 0;
    for (size_t i = 0; i < s->files_n; i++)
        files_n += s->files[i].used;
    bool ok = true;
    for (size_t i = 0; i < s->files_n && ok; i++) {
        const TraceFile *f = &s->files[i];
        if (!f->used)
            continue;
        uint32_t rank = f->rank != NONE_U32 ? f->rank : set_rank_of_name(f->path, files_n > 1);
        ok = rank != NONE_U32;
        ranks[n++] = rank;
    }
    if (n > 0)
        qsort(ranks, n, sizeof *ranks, compare_u32);
    for (size_t i = 1; i < n && ok; i++)
        ok = ranks[i] != ranks[i - 1];
    free(ranks);
    return ok;
}

static bool is_taken(const TraceSet *s, uint32_t rank)
{
    for (size_t i = 0; i < s->files_n; i++)
        if (s->files[i].used && s->files[i].rank == rank)
            return true;
    return false;
}

/* Ranks for the files that do not say: returns how many those were. */
static size_t give_ranks(TraceSet *s, bool by_name)
{
    size_t given_n = 0, used_n = 0;
    for (size_t i = 0; i < s->files_n; i++)
        used_n += s->files[i].used;
    uint32_t next = 0;
    for (size_t i = 0; i < s->files_n; i++) {
        TraceFile *f = &s->files[i];
        if (!f->used || f->rank != NONE_U32)
            continue;
        while (!by_name && is_taken(s, next))
            next++;
        f->rank = by_name ? set_rank_of_name(f->path, used_n > 1) : next;
        f->rank_from = by_name ? TRACE_RANK_NAME : TRACE_RANK_ORDER;
        given_n++;
    }
    return given_n;
}

bool set_counts_ranks(const TraceSet *s)
{
    for (size_t i = 0; i < s->files_n; i++)
        if (s->files[i].used && !s->files[i].info.ranks_counted)
            return false;
    return true;
}

/* Whether the ranks of several files are to be counted on from one to the next. */
static bool are_stacked(const TraceSet *s, const SetPart *parts)
{
    size_t used_n = 0, many_n = 0;
    for (size_t i = 0; i < s->files_n; i++) {
        used_n += s->files[i].used;
        many_n += s->files[i].used && parts[i].many;
    }
    return used_n > 1 && many_n > 0 && set_counts_ranks(s);
}

static bool stack_ranks(TraceSet *s, const SetPart *parts, Err *err)
{
    uint32_t next = 0;
    for (size_t i = 0; i < s->files_n; i++) {
        TraceFile *f = &s->files[i];
        if (!f->used)
            continue;
        f->rank = next;
        f->rank_from = TRACE_RANK_ORDER;
        next += parts[i].t.ranks_n;
        if (next >= TIMELINE_RANKS_MAX)
            return err_set(err, "the files hold too many processes, %u allowed",
                           TIMELINE_RANKS_MAX - 1);
    }
    set_find(s, "the files do not say which ranks they hold: ranks are counted in the "
                "order in which they were given");
    return true;
}

bool set_ranks(TraceSet *s, const SetPart *parts, bool lenient, Err *err)
{
    if (are_stacked(s, parts))
        return stack_ranks(s, parts, err);
    size_t used_n = 0;
    for (size_t i = 0; i < s->files_n; i++) {
        TraceFile *f = &s->files[i];
        used_n += f->used;
        f->rank = f->info.rank;
        f->rank_from = parts[i].many ? TRACE_RANK_MANY : TRACE_RANK_FILE;
    }
    if (!check_duplicates(s, lenient, err))
        return false;
    bool by_name = names_will_do(s);
    size_t given_n = give_ranks(s, by_name);
    if (given_n > 0 && used_n > 1)
        set_find(s, "%zu of %zu files do not say which rank they are; it is taken from %s",
                 given_n, used_n,
                 by_name ? "their names" : "the order in which they were given");
    return true;
}
