/*
 * collectives_sum.c - of matches: what was waited, for whom, and rows by name and size.
 */
#include "profile/collectives_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- wait and transfer ---- */

/* As the trace says; -1 where it does not. */
static int64_t known_wait_ns(const Timeline *t, const CollPart *p)
{
    const Comm *m = timeline_comm_of(t, p->span);
    return m && m->wait_ns >= 0 ? timeline_wait_ns(t, p->span) : -1;
}

static void wait_of_match(Collectives *c, const Timeline *t, CollMatch *m)
{
    CollPart *parts = &c->parts[m->part_first];
    bool known = true;
    m->transfer_ns = INT64_MAX;
    for (uint32_t i = 0; i < m->parts_n; i++) {
        parts[i].wait_ns = known_wait_ns(t, &parts[i]);
        known = known && parts[i].wait_ns >= 0;
    }
    for (uint32_t i = 0; i < m->parts_n; i++) {
        int64_t ns = part_dur_ns(t, &parts[i]) - (known ? parts[i].wait_ns : 0);
        m->transfer_ns = min_i64(m->transfer_ns, ns);
    }
    for (uint32_t i = 0; i < m->parts_n && !known; i++)
        parts[i].wait_ns = part_dur_ns(t, &parts[i]) - m->transfer_ns;
}

static uint32_t stands_for(const Covers *covers, const CollPart *p)
{
    return covers->rank[p->rank].ranks_n;
}

/* How many ranks one such collective has, as far as the trace says. */
static uint32_t members_said(const Timeline *t, const CollMatch *m, const CollPart *p)
{
    const Comm *comm = timeline_comm_of(t, p->span);
    bool said = comm && comm->peer == NONE_U32 && comm->ranks_n > m->parts_n;
    return said ? comm->ranks_n : m->parts_n;
}

/* Ranks that are alike may be of one group, or of groups that are alike. */
static uint32_t copies_of(const Timeline *t, const Covers *covers, const CollMatch *m,
                          const CollPart *parts)
{
    uint64_t ranks_n = 0;
    for (uint32_t i = 0; i < m->parts_n; i++)
        ranks_n += stands_for(covers, &parts[i]);
    return (uint32_t)max_u64(1, ranks_n / members_said(t, m, &parts[0]));
}

/* The one who waited least is the one who was waited for. */
static void find_last(Collectives *c, const Covers *covers, CollMatch *m)
{
    const CollPart *parts = &c->parts[m->part_first];
    uint32_t last = 0;
    int64_t sum_ns = 0, ranks_n = 0;
    for (uint32_t i = 0; i < m->parts_n; i++) {
        uint32_t n = stands_for(covers, &parts[i]) / m->copies_n;
        n = n > 0 ? n : 1;
        ranks_n += n;
        sum_ns = metrics_sum_ns(sum_ns, parts[i].wait_ns, n);
        if (parts[i].wait_ns < parts[last].wait_ns)
            last = i;
    }
    sum_ns -= parts[last].wait_ns;
    m->waited_ns = sum_ns / (ranks_n - 1) - parts[last].wait_ns;
    m->waited_ns = max_i64(m->waited_ns, 0);
    m->last = m->waited_ns > 0 ? last : NONE_U32;
}

static void find_waits(Collectives *c, const Timeline *t, const Covers *covers)
{
    for (uint64_t i = 0; i < c->parts_n; i++)
        c->parts[i].wait_ns = known_wait_ns(t, &c->parts[i]);
    for (uint64_t i = 0; i < c->matches_n; i++) {
        CollMatch *m = &c->matches[i];
        wait_of_match(c, t, m);
        m->copies_n = copies_of(t, covers, m, &c->parts[m->part_first]);
        find_last(c, covers, m);
        c->collectives_n += m->copies_n;
    }
}

/* Communication of the part while its rank computed nothing. */
static void find_exposed(Collectives *c, const Timeline *t, const Covers *covers)
{
    CoverCursor *cursors = mem_zero(covers->n, sizeof *cursors);
    for (uint32_t r = 0; r < covers->n; r++)
        cursors[r].cover = &covers->rank[r];
    for (uint64_t i = 0; i < c->parts_n; i++) {
        CollPart *p = &c->parts[i];
        CoverSum sum = cover_next(&cursors[p->rank], t->start_ns[p->span], p->end_ns);
        for (int mask = 0; mask < COVER_MASKS; mask++)
            p->exposed_ns += mask & COVER_COMM && !(mask & COVER_COMPUTE) ? sum.ns[mask] : 0;
    }
    free(cursors);
}

/* ---- ranks ---- */

/* What the last one did in the time before, as long as the others waited on average. */
static void blame(Collectives *c, const Timeline *t, const Covers *covers, const CollMatch *m)
{
    const CollPart *p = &c->parts[m->part_first + m->last];
    CollRank *r = &c->ranks[p->rank];
    int64_t start_ns = t->start_ns[p->span];
    Metrics late =
        metrics_of_sum(cover_window(&covers->rank[p->rank], start_ns - m->waited_ns, start_ns));
    r->last_n++;
    r->waited_ns += m->waited_ns;
    r->waited_all_ns = metrics_sum_ns(r->waited_all_ns, m->waited_ns, m->copies_n);
    metrics_add(&r->late, &late, 1);
}

static void sum_early(Collectives *c, const Timeline *t, const CollMatch *m)
{
    const CollPart *parts = &c->parts[m->part_first];
    int64_t last_ns = INT64_MIN;
    for (uint32_t i = 0; i < m->parts_n; i++)
        last_ns = max_i64(last_ns,
                          collectives_aligned_ns(c, parts[i].rank, t->start_ns[parts[i].span]));
    for (uint32_t i = 0; i < m->parts_n; i++) {
        int64_t start_ns = collectives_aligned_ns(c, parts[i].rank, t->start_ns[parts[i].span]);
        c->ranks[parts[i].rank].early_ns +=
            min_i64(last_ns - start_ns, part_dur_ns(t, &parts[i]));
    }
}

/* A match counts when its first part does. */
static bool is_selected(const Selection *s, const Timeline *t, const CollPart *p)
{
    return selection_has(s, p->rank, t->start_ns[p->span]);
}

static bool match_selected(const Collectives *c, const Selection *s, const Timeline *t,
                           const CollMatch *m)
{
    for (uint32_t i = 0; i < m->parts_n; i++)
        if (is_selected(s, t, &c->parts[m->part_first + i]))
            return true;
    return false;
}

static void count_matched(Collectives *c, const CollPart *p)
{
    c->ranks[p->rank].matched_n += p->kernels_n;
    c->ranks[p->rank].collectives_n++;
}

static void sum_ranks(Collectives *c, const Timeline *t, const Covers *covers,
                      const Selection *s)
{
    for (uint64_t i = 0; i < c->parts_n; i++) {
        const CollPart *p = &c->parts[i];
        if (!is_selected(s, t, p))
            continue;
        CollRank *r = &c->ranks[p->rank];
        r->kernels_n += p->kernels_n;
        r->total_ns += part_dur_ns(t, p);
        if (p->wait_ns < 0)
            continue;
        r->wait_ns += p->wait_ns;
        r->transfer_ns += part_dur_ns(t, p) - p->wait_ns;
    }
    for (uint64_t i = 0; i < c->matches_n; i++) {
        const CollMatch *m = &c->matches[i];
        if (!match_selected(c, s, t, m))
            continue;
        for (uint32_t k = 0; k < m->parts_n; k++)
            count_matched(c, &c->parts[m->part_first + k]);
        c->transfer_ns = metrics_sum_ns(c->transfer_ns, m->transfer_ns, m->copies_n);
        sum_early(c, t, m);
        if (m->last == NONE_U32)
            continue;
        c->waited_ns = metrics_sum_ns(c->waited_ns, m->waited_ns, m->copies_n);
        blame(c, t, covers, m);
    }
}

/* ---- rows ---- */

static const uint32_t pair_name = NONE_U32 - 1; /* name of a send matched with its receive */

typedef struct RowKey {
    uint32_t name; /* interned */
    uint32_t group;
    uint64_t bytes;
    uint32_t ranks_n;
    bool matched;
} RowKey;

typedef struct Rows {
    Collectives *c;
    const Timeline *t;
    const Covers *covers;
    RowKey *key; /* beside c->rows */
    uint32_t keys_cap, rows_cap;
    uint32_t *slot; /* open addressing, row + 1 */
    uint32_t slots_n;
    uint32_t *row_of_match; /* NONE_U32: not selected */
} Rows;

static bool same_key(const RowKey *a, const RowKey *b)
{
    return a->name == b->name && a->group == b->group && a->bytes == b->bytes &&
           a->ranks_n == b->ranks_n && a->matched == b->matched;
}

static uint32_t *row_slot(const Rows *r, const RowKey *k)
{
    uint64_t h = mix_u64(mix_u64((uint64_t)k->name << 32 | k->group) ^ k->bytes);
    h = mix_u64(h ^ (uint64_t)k->ranks_n << 1 ^ k->matched);
    uint32_t at = (uint32_t)h & (r->slots_n - 1);
    while (r->slot[at] && !same_key(&r->key[r->slot[at] - 1], k))
        at = (at + 1) & (r->slots_n - 1);
    return &r->slot[at];
}

/* A kernel's name without its arguments: what stands before "(". */
static const char *short_name(Arena *arena, const char *name)
{
    size_t n = strcspn(name, "(");
    return n > 0 && name[n] ? arena_printf(arena, "%.*s", (int)min_u64(n, 4096), name)
                            : arena_strdup(arena, name);
}

static uint32_t add_row(Rows *r, const RowKey *k, bool has_op)
{
    Collectives *c = r->c;
    const char *name = k->name == pair_name ? "send/recv" : timeline_text(r->t, k->name);
    uint32_t rows_n = c->rows_n;
    GROW(r->key, rows_n, r->keys_cap);
    GROW(c->rows, rows_n, r->rows_cap);
    r->key[c->rows_n] = *k;
    c->rows[c->rows_n] = (CollRow){
        .name = has_op || k->name == pair_name ? arena_strdup(&c->arena, name)
                                               : short_name(&c->arena, name),
        .group = arena_strdup(&c->arena, timeline_text(r->t, k->group)),
        .bytes = k->bytes,
        .ranks_n = k->ranks_n,
        .matched = k->matched,
        .transfer_median_ns = -1,
        .algbw_GBps = NAN,
        .busbw_GBps = NAN,
    };
    return c->rows_n++;
}

static void grow_rows(Rows *r)
{
    free(r->slot);
    r->slots_n = r->slots_n ? 2 * r->slots_n : 64;
    r->slot = mem_zero(r->slots_n, sizeof *r->slot);
    for (uint32_t i = 0; i < r->c->rows_n; i++)
        *row_slot(r, &r->key[i]) = i + 1;
}

/* The part's; of a match, the most of any rank: an exchange of experts is as long as its largest,
 * and which rank comes first says nothing. */
static uint64_t bytes_of(const Rows *r, const CollPart *parts, uint32_t n)
{
    uint64_t most = NONE_U64;
    for (uint32_t i = 0; i < n; i++) {
        const Comm *m = timeline_comm_of(r->t, parts[i].span);
        if (m && m->bytes != NONE_U64 && (most == NONE_U64 || m->bytes > most))
            most = m->bytes;
    }
    return most;
}

/* Of n parts, of one collective. */
static CollRow *row_of(Rows *r, const CollPart *p, uint32_t n, uint32_t ranks_n, bool matched)
{
    const Comm *m = timeline_comm_of(r->t, p->span);
    bool has_op = m && *timeline_text(r->t, m->op);
    RowKey key = { .name = has_op ? m->op : r->t->span_name[p->span],
                   .group = m ? m->group : NONE_U32,
                   .bytes = bytes_of(r, p, n),
                   .ranks_n = ranks_n,
                   .matched = matched };
    if (matched && m && m->peer != NONE_U32)
        key.name = pair_name;
    if (2 * r->c->rows_n >= r->slots_n)
        grow_rows(r);
    uint32_t *slot = row_slot(r, &key);
    if (*slot == 0)
        *slot = add_row(r, &key, has_op) + 1;
    return &r->c->rows[*slot - 1];
}

static void add_part(const Rows *r, CollRow *row, const CollPart *p)
{
    int64_t dur_ns = part_dur_ns(r->t, p), n = stands_for(r->covers, p);
    row->total_ns = metrics_sum_ns(row->total_ns, dur_ns, n);
    row->exposed_ns = metrics_sum_ns(row->exposed_ns, p->exposed_ns, n);
    if (p->wait_ns < 0)
        row->wait_ns = row->transfer_ns = -1;
    if (row->wait_ns < 0)
        return;
    row->wait_ns = metrics_sum_ns(row->wait_ns, p->wait_ns, n);
    row->transfer_ns = metrics_sum_ns(row->transfer_ns, dur_ns - p->wait_ns, n);
}

/* Where the trace does not say: all ranks, if they are all there; else 0, unknown. */
static uint32_t members_of(const Rows *r, const CollMatch *m)
{
    const Comm *said = timeline_comm_of(r->t, r->c->parts[m->part_first].span);
    if (said && said->ranks_n)
        return said->ranks_n;
    return m->parts_n == r->c->ranks_n && m->parts_n == r->t->ranks_n ? m->parts_n : 0;
}

static void add_matches(Rows *r, const Selection *s)
{
    Collectives *c = r->c;
    for (uint64_t i = 0; i < c->matches_n; i++) {
        const CollMatch *m = &c->matches[i];
        r->row_of_match[i] = NONE_U32;
        if (!match_selected(c, s, r->t, m))
            continue;
        CollRow *row = row_of(r, &c->parts[m->part_first], m->parts_n, members_of(r, m), true);
        row->count += m->copies_n;
        r->row_of_match[i] = (uint32_t)(row - c->rows);
        for (uint32_t k = 0; k < m->parts_n; k++)
            if (is_selected(s, r->t, &c->parts[m->part_first + k]))
                add_part(r, row, &c->parts[m->part_first + k]);
    }
}

/* Collectives that a rank had with those that it stands for; 0: it had them with others. */
static uint32_t with_its_like(const Rows *r, const CollPart *p)
{
    const Comm *m = timeline_comm_of(r->t, p->span);
    uint32_t n = stands_for(r->covers, p);
    bool all_here = m && m->peer == NONE_U32 && m->ranks_n >= 2 && n % m->ranks_n == 0;
    return all_here && p->wait_ns >= 0 ? n / m->ranks_n : 0;
}

/* What was refused without a group may have been taken for one of all ranks (traces/set.c). */
static CollRow *row_of_unmatched(Rows *r, const CollChannel *ch, const CollPart *p)
{
    if (ch->refusal && ch->group == NONE_U32 && ch->from == NONE_U32)
        return row_of(r, p, 1, 0, false);
    const Comm *m = timeline_comm_of(r->t, p->span);
    return row_of(r, p, 1, m ? m->ranks_n : 0, with_its_like(r, p) > 0);
}

static void add_unmatched_part(Rows *r, const Selection *s, const CollChannel *ch,
                               const CollPart *p)
{
    Collectives *c = r->c;
    uint32_t n = with_its_like(r, p);
    c->collectives_n += n;
    c->among_alike_n += n > 0;
    if (!is_selected(s, r->t, p))
        return;
    CollRow *row = row_of_unmatched(r, ch, p);
    row->count += n > 0 ? n : stands_for(r->covers, p);
    add_part(r, row, p);
    if (n > 0)
        c->transfer_ns = metrics_sum_ns(c->transfer_ns, part_dur_ns(r->t, p) - p->wait_ns, n);
}

static void add_unmatched(Rows *r, const Selection *s)
{
    Collectives *c = r->c;
    for (uint32_t k = 0; k < c->channels_n; k++) {
        const CollChannel *ch = &c->channels[k];
        uint64_t i = ch->part_first, end = i + ch->parts_n;
        for (uint64_t m = 0; m < ch->matches_n; m++)
            i += c->matches[ch->match_first + m].parts_n;
        for (; i < end; i++)
            add_unmatched_part(r, s, ch, &c->parts[i]);
    }
}

/* ---- bandwidth ---- */

typedef struct Transfer {
    uint32_t row;
    int64_t ns;
} Transfer;

static int by_row_and_time(const void *a, const void *b)
{
    const Transfer *x = a, *y = b;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

static void set_bandwidth(CollRow *row, int64_t transfer_ns)
{
    row->transfer_median_ns = transfer_ns;
    if (row->bytes == NONE_U64 || transfer_ns <= 0)
        return;
    row->algbw_GBps = (double)row->bytes / (double)transfer_ns;
    if (row->ranks_n >= 2)
        row->busbw_GBps = row->algbw_GBps * timeline_busbw_factor(row->name, row->ranks_n);
}

/* Of each row the median over its collectives; of unmatched kernels that of the known. */
static void find_bandwidths(Rows *r, const Selection *s)
{
    Collectives *c = r->c;
    Transfer *all = mem_zero(c->matches_n + c->unmatched_n, sizeof *all);
    uint64_t n = 0, end;
    for (uint64_t i = 0; i < c->matches_n; i++)
        if (r->row_of_match[i] != NONE_U32)
            all[n++] = (Transfer){ r->row_of_match[i], c->matches[i].transfer_ns };
    for (uint32_t k = 0; k < c->channels_n; k++) {
        const CollChannel *ch = &c->channels[k];
        for (uint64_t i = 0; ch->matches_n == 0 && i < ch->parts_n; i++) {
            const CollPart *p = &c->parts[ch->part_first + i];
            if (p->wait_ns < 0 || !is_selected(s, r->t, p))
                continue;
            uint32_t row = (uint32_t)(row_of_unmatched(r, ch, p) - c->rows);
            all[n++] = (Transfer){ row, part_dur_ns(r->t, p) - p->wait_ns };
        }
    }
    qsort(all, n, sizeof *all, by_row_and_time);
    for (uint64_t i = 0; i < n; i = end) {
        for (end = i + 1; end < n && all[end].row == all[i].row;)
            end++;
        set_bandwidth(&c->rows[all[i].row], all[i + (end - i) / 2].ns);
    }
    free(all);
}

static int longest_first(const void *a, const void *b)
{
    const CollRow *x = a, *y = b;
    if (x->total_ns != y->total_ns)
        return x->total_ns > y->total_ns ? -1 : 1;
    int order = strcmp(x->name, y->name);
    order = order ? order : strcmp(x->group, y->group);
    if (order == 0 && x->bytes != y->bytes)
        order = x->bytes < y->bytes ? -1 : 1;
    if (order == 0 && x->ranks_n != y->ranks_n)
        order = x->ranks_n < y->ranks_n ? -1 : 1;
    return order ? order : y->matched - x->matched;
}

static void fill_rows(Collectives *c, const Timeline *t, const Covers *covers,
                      const Selection *s)
{
    Rows r = { .c = c, .t = t, .covers = covers };
    r.row_of_match = mem_zero(c->matches_n, sizeof *r.row_of_match);
    add_matches(&r, s);
    add_unmatched(&r, s);
    find_bandwidths(&r, s);
    if (c->rows_n > 0)
        qsort(c->rows, c->rows_n, sizeof *c->rows, longest_first);
    free(r.row_of_match);
    free(r.key);
    free(r.slot);
}

void collectives_sum(Collectives *c, const Timeline *t, const Covers *covers,
                     const Selection *selection)
{
    find_waits(c, t, covers);
    find_exposed(c, t, covers);
    sum_ranks(c, t, covers, selection);
    fill_rows(c, t, covers, selection);
}
