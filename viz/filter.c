/*
 * filter.c - reads terms, and holds spans against them.
 */
#include "viz/filter.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/numeral.h"
#include "viz/links.h"

typedef enum TermKind {
    TERM_WORD,
    TERM_DUR,
    TERM_BYTES,
    TERM_EXPOSED,
    TERM_WAIT,
    TERM_RANK,
    TERM_STREAM,
    TERM_CLASS
} TermKind;

enum { OP_MORE, OP_LESS, OP_NOT_LESS, OP_NOT_MORE };

/* ---- reading ---- */

static bool take_time(const char *text, int64_t *ns)
{
    return view_time_parse(&text, ns) && !*text;
}

static bool take_percent(const char *text, int64_t *number)
{
    const char *end;
    double value;
    if (!numeral_real(text, &value, &end) || (*end && strcmp(end, "%") != 0) ||
        !(value >= 0 && value <= 100))
        return false;
    *number = (int64_t)(value * 1000 + 0.5);
    return true;
}

/* Is the rank in "0,3" or "0-7"?  *ok false: it is no such list. */
static bool list_has(const char *list, uint64_t rank, bool *ok)
{
    bool has = false;
    for (const char *at = list;; at++) {
        char *end = NULL;
        uint64_t from = isdigit((unsigned char)*at) ? strtoull(at, &end, 10) : 0, to = from;
        if (end && *end == '-' && isdigit((unsigned char)end[1]))
            to = strtoull(end + 1, &end, 10);
        *ok = end && from <= to && (!*end || *end == ',');
        has |= rank >= from && rank <= to;
        if (!*ok || !*end)
            return *ok && has;
        at = end;
    }
}

static bool take_compared(FilterTerm *t, const char *value, Err *err)
{
    uint64_t bytes = 0;
    bool ok = t->kind == TERM_EXPOSED ? take_percent(value, &t->number)
              : t->kind == TERM_BYTES ? size_parse(value, &bytes)
                                      : take_time(value, &t->number);
    if (t->kind == TERM_BYTES)
        t->number = (int64_t)min_u64(bytes, INT64_MAX);
    if (ok)
        return true;
    return err_set(err, "'%.40s' is not %s", value,
                   t->kind == TERM_EXPOSED ? "a percentage from 0% to 100%"
                   : t->kind == TERM_BYTES ? "a size as in 25MiB"
                                           : "a time as in 1ms (ns, us, ms, s)");
}

/* "dur>=1ms": the part behind the name. */
static bool take_comparison(FilterTerm *t, const char *rest, Err *err)
{
    bool equal = rest[1] == '=';
    t->op = rest[0] == '>' ? (equal ? OP_NOT_LESS : OP_MORE) : equal ? OP_NOT_MORE : OP_LESS;
    return take_compared(t, rest + 1 + equal, err);
}

static bool take_colon(FilterTerm *t, const char *value, Err *err)
{
    snprintf(t->word, sizeof t->word, "%s", value);
    bool ok = true;
    if (t->kind == TERM_RANK)
        list_has(value, 0, &ok);
    if (!ok)
        return err_set(err, "rank: takes ranks as in rank:0,3 or rank:0-7, not '%.40s'", value);
    for (int c = 0; t->kind == TERM_CLASS; c++) {
        if (c == SPAN_CLASS_N)
            return err_set(err,
                           "'%.40s' is no class, allowed: compute, comm, p2p, memory, launch, "
                           "host, sync, step, note",
                           value);
        if (strcmp(value, span_class_names[c]) == 0) {
            t->span_class = (uint8_t)c;
            break;
        }
    }
    return true;
}

static bool take_term(FilterTerm *t, const char *text, Err *err)
{
    static const struct {
        const char *name;
        TermKind kind;
        bool compared;
    } kinds[] = { { "dur", TERM_DUR, true },         { "bytes", TERM_BYTES, true },
                  { "exposed", TERM_EXPOSED, true }, { "wait", TERM_WAIT, true },
                  { "rank", TERM_RANK, false },      { "stream", TERM_STREAM, false },
                  { "class", TERM_CLASS, false } };
    *t = (FilterTerm){ .kind = TERM_WORD };
    if (text[0] == '-' && text[1]) {
        t->negated = true;
        text++;
    }
    for (size_t i = 0; i < ARRAY_N(kinds); i++) {
        size_t n = strlen(kinds[i].name);
        if (strncmp(text, kinds[i].name, n) != 0)
            continue;
        t->kind = (uint8_t)kinds[i].kind;
        if (kinds[i].compared && (text[n] == '>' || text[n] == '<'))
            return take_comparison(t, text + n, err);
        if (!kinds[i].compared && text[n] == ':')
            return take_colon(t, text + n + 1, err);
    }
    t->kind = TERM_WORD;
    snprintf(t->word, sizeof t->word, "%s", text);
    return true;
}

static bool read_terms(ViewFilter *f, const char *text, Err *err)
{
    char word[64];
    for (;;) {
        while (*text == ' ')
            text++;
        size_t n = strcspn(text, " ");
        if (n == 0)
            return true;
        if (f->terms_n == FILTER_TERMS)
            return err_set(err, "at most %d terms are allowed", FILTER_TERMS);
        if (n >= sizeof word)
            return err_set(err, "'%.20s...' is too long, 63 bytes are allowed", text);
        memcpy(word, text, n);
        word[n] = 0;
        if (!take_term(&f->terms[f->terms_n], word, err))
            return false;
        f->terms_n++;
        text += n;
    }
}

bool filter_check(const char *text, Err *err)
{
    ViewFilter f = { .d = NULL };
    return read_terms(&f, text, err);
}

/* ---- what can be said of names and tracks once and for all ---- */

/* "foo:3", "rank>3", "dur=1ms" may be parts of names, as "at::native" and "nccl:all_reduce" are.
 * What no name has was meant as a term. */
static bool check_words(const ViewFilter *f, Err *err)
{
    for (uint32_t i = 0; i < f->terms_n; i++) {
        const FilterTerm *t = &f->terms[i];
        bool known = t->kind != TERM_WORD || !strpbrk(t->word, ":<>=");
        for (uint32_t k = 0; k < f->d->t->names.n && !known; k++)
            known = filter_has_word(timeline_text(f->d->t, k), t->word);
        if (!known)
            return err_set(err,
                           "'%s' is no term, and no name has it; terms are dur> bytes> "
                           "exposed> wait> (also < >= <=), rank: stream: class:",
                           t->word);
    }
    return true;
}

bool filter_has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; *text; text++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)text[i]) == tolower((unsigned char)word[i]))
            i++;
        if (i == n)
            return true;
    }
    return n == 0;
}

static bool name_holds(const ViewFilter *f, const char *name)
{
    if (f->name)
        return strcmp(f->name, name) == 0;
    for (uint32_t i = 0; i < f->terms_n; i++) {
        const FilterTerm *t = &f->terms[i];
        if (t->kind == TERM_WORD && filter_has_word(name, t->word) == t->negated)
            return false;
    }
    return true;
}

static bool track_holds(const ViewFilter *f, const Track *track)
{
    const char *name = timeline_text(f->d->t, track->name);
    for (uint32_t i = 0; i < f->terms_n; i++) {
        const FilterTerm *t = &f->terms[i];
        bool ok;
        if (t->kind == TERM_RANK && list_has(t->word, track->rank, &ok) == t->negated)
            return false;
        if (t->kind == TERM_STREAM && filter_has_word(name, t->word) == t->negated)
            return false;
    }
    return true;
}

static uint64_t next_number(void)
{
    static uint64_t opened;
    return ++opened;
}

static void bind(ViewFilter *f, const ViewData *d)
{
    const Timeline *t = d->t;
    f->d = d;
    f->number = next_number();
    f->name_ok = mem_zero(t->names.n + 1, 1);
    f->track_ok = mem_zero(t->tracks_n + 1, 1);
    for (uint32_t i = 0; i < t->names.n; i++)
        f->name_ok[i] = name_holds(f, timeline_text(t, i));
    for (uint32_t k = 0; k < t->tracks_n; k++)
        f->track_ok[k] = track_holds(f, &t->tracks[k]);
}

void filter_open_name(ViewFilter *f, const ViewData *d, uint32_t name)
{
    *f = (ViewFilter){ .name = timeline_text(d->t, name) };
    bind(f, d);
}

bool filter_open(ViewFilter *f, const ViewData *d, const char *text, Err *err)
{
    *f = (ViewFilter){ .d = d };
    snprintf(f->text, sizeof f->text, "%s", text);
    if (!read_terms(f, text, err) || !check_words(f, err)) {
        *f = (ViewFilter){ .d = NULL };
        return false;
    }
    bind(f, d);
    return true;
}

void filter_rebind(ViewFilter *f, const ViewData *d)
{
    free(f->name_ok);
    free(f->track_ok);
    bind(f, d);
}

void filter_leave_out(ViewFilter *f, uint32_t rank)
{
    const ViewRank *r = &f->d->ranks[rank];
    for (uint32_t i = r->row_first; i < r->row_first + r->rows_n; i++)
        f->track_ok[f->d->rows[i].track] = 0;
}

void filter_free(ViewFilter *f)
{
    free(f->name_ok);
    free(f->track_ok);
    *f = (ViewFilter){ .d = NULL };
}

/* ---- spans ---- */

static bool compare_holds(const FilterTerm *t, int64_t value)
{
    return t->op == OP_MORE       ? value > t->number
           : t->op == OP_LESS     ? value < t->number
           : t->op == OP_NOT_LESS ? value >= t->number
                                  : value <= t->number;
}

/* Of communication: INT64_MIN where it is not known, which holds nowhere. */
static int64_t comm_value(const ViewFilter *f, const FilterTerm *t, uint64_t span)
{
    const Timeline *tl = f->d->t;
    const ViewComm *k = view_comm_of(&f->d->links, span);
    const Comm *c = timeline_comm_of(tl, span);
    if (t->kind == TERM_BYTES)
        return c && c->bytes != NONE_U64 ? (int64_t)min_u64(c->bytes, INT64_MAX) : INT64_MIN;
    if (t->kind == TERM_WAIT)
        return k && k->wait_ns >= 0 ? k->wait_ns : INT64_MIN;
    if (!k || tl->dur_ns[span] == 0)
        return INT64_MIN;
    return (int64_t)(100000.0 * (double)k->exposed_ns / (double)tl->dur_ns[span]);
}

bool filter_matches(const ViewFilter *f, uint64_t span)
{
    const Timeline *tl = f->d->t;
    if (tl->span_name[span] >= tl->names.n || !f->name_ok[tl->span_name[span]] ||
        !f->track_ok[tl->span_track[span]])
        return false;
    for (uint32_t i = 0; i < f->terms_n; i++) {
        const FilterTerm *t = &f->terms[i];
        bool holds = true;
        if (t->kind == TERM_DUR)
            holds = compare_holds(t, tl->dur_ns[span]) != t->negated;
        else if (t->kind == TERM_CLASS)
            holds = (tl->span_class[span] == t->span_class) != t->negated;
        else if (t->kind == TERM_BYTES || t->kind == TERM_WAIT || t->kind == TERM_EXPOSED) {
            int64_t value = comm_value(f, t, span);
            holds = value != INT64_MIN && compare_holds(t, value) != t->negated;
        }
        if (!holds)
            return false;
    }
    return true;
}

/* The track that begins with a row, if spans of it can match: they are looked at by track, as rows
 * of host threads may not be built yet. */
static const Track *track_of_row(const ViewFilter *f, uint32_t i)
{
    const ViewRow *row = &f->d->rows[i];
    bool looked_at = row->lane == 0 && row->kind != VIEW_ROW_COUNTER && f->track_ok[row->track];
    return looked_at ? &f->d->t->tracks[row->track] : NULL;
}

FilterCount filter_count(const ViewFilter *f)
{
    FilterCount count = { 0, 0 };
    for (uint32_t i = 0; i < f->d->rows_n; i++) {
        const Track *k = track_of_row(f, i);
        for (uint64_t s = 0; k && s < k->span_n; s++)
            if (filter_matches(f, k->span_first + s)) {
                count.n++;
                count.ns += f->d->t->dur_ns[k->span_first + s];
            }
    }
    return count;
}

char *filter_count_text(FilterCount count, char *text, size_t cap)
{
    char time[32];
    snprintf(text, cap, "%" PRIu64 " event%s, %s in all", count.n, count.n == 1 ? "" : "s",
             view_time_text(time, sizeof time, count.ns));
    return text;
}

/* By start, those of one moment by number. */
static bool comes_before(const Timeline *t, uint64_t span, int64_t at_ns, uint64_t at)
{
    return t->start_ns[span] != at_ns ? t->start_ns[span] < at_ns : span < at;
}

/* The nearest match of one track; best: among those so far. */
static uint64_t nearer(const ViewFilter *f, const Track *k, int64_t at_ns, uint64_t at,
                       bool back, uint64_t best)
{
    const Timeline *t = f->d->t;
    uint64_t end = k->span_first + k->span_n;
    uint64_t s = track_span_from(t, k, back ? at_ns + 1 : at_ns);
    for (; back ? s > k->span_first : s < end; s += back ? (uint64_t)-1 : 1) {
        uint64_t span = back ? s - 1 : s;
        if (best != NONE_U64 && comes_before(t, span, t->start_ns[best], best) == back)
            return best;
        if (span != at && comes_before(t, span, at_ns, at) == back && filter_matches(f, span))
            return span;
    }
    return best;
}

bool filter_next(const ViewFilter *f, int64_t at_ns, bool back, uint32_t *row, uint64_t *span)
{
    uint64_t at = *span;
    *span = NONE_U64;
    for (uint32_t i = 0; i < f->d->rows_n; i++) {
        const Track *k = track_of_row(f, i);
        *span = k ? nearer(f, k, at_ns, at, back, *span) : *span;
    }
    *row = view_place_of(f->d, VIEW_REAL_SIDE, *span).row;
    return *row != NONE_U32;
}
