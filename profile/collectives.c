/*
 * collectives.c - from kernels that communicate to matches.
 *
 *     spans, by rank and stream --channel of each--> parts, by channel, rank, start
 *     parts of a channel = one run a rank --by number or order--> matches
 *
 * A match's parts are put side by side at the front of their channel's parts.
 */
#include "profile/collectives_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const match_by_texts[MATCH_BY_N] = {
    "nothing", "sequence number",  "process group and order", "process group, stream and order",
    "op",      "stream and order", "step and order"
};

/* ---- channels ---- */

/* Finds channels by their key: open addressing, id + 1. */
typedef struct ChannelMap {
    uint32_t *slot;
    uint32_t slots_n;
} ChannelMap;

static uint64_t channel_hash(const CollChannel *k)
{
    uint64_t h = mix_u64((uint64_t)k->group << 32 | k->group_id);
    return mix_u64(h ^ mix_u64((uint64_t)k->from << 32 | k->to) ^ k->stream);
}

static bool same_channel(const CollChannel *a, const CollChannel *b)
{
    return a->group == b->group && a->group_id == b->group_id && a->from == b->from &&
           a->to == b->to && a->stream == b->stream;
}

static uint32_t *slot_of(const ChannelMap *map, const Collectives *c, const CollChannel *key)
{
    uint32_t at = (uint32_t)channel_hash(key) & (map->slots_n - 1);
    while (map->slot[at] && !same_channel(&c->channels[map->slot[at] - 1], key))
        at = (at + 1) & (map->slots_n - 1);
    return &map->slot[at];
}

static void grow_map(ChannelMap *map, const Collectives *c)
{
    free(map->slot);
    map->slots_n = map->slots_n ? 2 * map->slots_n : 64;
    map->slot = mem_zero(map->slots_n, sizeof *map->slot);
    for (uint32_t i = 0; i < c->channels_n; i++)
        *slot_of(map, c, &c->channels[i]) = i + 1;
}

static uint32_t find_channel(Collectives *c, ChannelMap *map, const CollChannel *key)
{
    if (2 * c->channels_n >= map->slots_n)
        grow_map(map, c);
    uint32_t *slot = slot_of(map, c, key);
    if (*slot == 0) {
        GROW(c->channels, c->channels_n, c->channels_cap);
        c->channels[c->channels_n++] = *key;
        *slot = c->channels_n;
    }
    return *slot - 1;
}

/* Where a kernel belongs: its pair, its process group, else its stream. */
static CollChannel key_of(const Timeline *t, const Comm *m, uint32_t rank, uint32_t stream)
{
    CollChannel key = { .group = NONE_U32,
                        .group_id = NONE_U32,
                        .from = NONE_U32,
                        .to = NONE_U32,
                        .stream = NONE_U32 };
    if (!m || (m->group == NONE_U32 && m->peer == NONE_U32)) {
        key.stream = stream;
        return key;
    }
    key.group = m->group;
    if (m->peer == NONE_U32) {
        key.group_id = m->group_id;
        return key;
    }
    bool receives = strcmp(timeline_text(t, m->op), "recv") == 0;
    key.from = receives ? m->peer : rank;
    key.to = receives ? rank : m->peer;
    return key;
}

/* ---- gathering ---- */

typedef struct Gather {
    ChannelMap map;
    uint32_t *channel; /* of each part */
    uint64_t channel_cap, parts_cap;
} Gather;

/* Another kernel of the part's op: exec/cmd_run_collect.c says bytes and number of the first one
 * alone. */
static bool goes_on(const Timeline *t, const CollPart *last, uint64_t span)
{
    const Comm *a = timeline_comm_of(t, last->span), *b = timeline_comm_of(t, span);
    return a && b && t->op[span] != NONE_U32 && t->op[span] == t->op[last->span] &&
           a->op == b->op && a->bytes != NONE_U64 && b->bytes == NONE_U64 && b->seq == NONE_U32;
}

static void gather_track(Collectives *c, Gather *g, const Timeline *t, uint32_t rank,
                         uint32_t world_rank, const Track *track, uint32_t stream)
{
    CollChannel last = { .stream = NONE_U32 - 1 }; /* nobody's key */
    uint32_t last_id = 0;
    uint64_t first = c->parts_n;
    for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
        int64_t end_ns = t->start_ns[i] + t->dur_ns[i];
        CollPart *part = c->parts_n > first ? &c->parts[c->parts_n - 1] : NULL;
        if (cover_bit(t->span_class[i]) != COVER_COMM)
            continue;
        if (part && goes_on(t, part, i)) {
            part->kernels_n++;
            part->end_ns = max_i64(part->end_ns, end_ns);
            continue;
        }
        CollChannel key = key_of(t, timeline_comm_of(t, i), world_rank, stream);
        if (!same_channel(&key, &last)) {
            last = key;
            last_id = find_channel(c, &g->map, &key);
        }
        GROW(g->channel, c->parts_n, g->channel_cap);
        GROW(c->parts, c->parts_n, g->parts_cap);
        g->channel[c->parts_n] = last_id;
        c->parts[c->parts_n++] = (CollPart){
            .span = i, .rank = rank, .kernels_n = 1, .end_ns = end_ns, .wait_ns = -1
        };
    }
}

static bool communicates(const Timeline *t, const Track *track)
{
    for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++)
        if (cover_bit(t->span_class[i]) == COVER_COMM)
            return true;
    return false;
}

static int by_sort(const void *a, const void *b)
{
    const Track *const *x = a, *const *y = b;
    if ((*x)->sort != (*y)->sort)
        return (*x)->sort < (*y)->sort ? -1 : 1;
    return (*x > *y) - (*x < *y);
}

/* Streams of a rank in the order of their ids: the k-th of two ranks correspond. */
static void gather_rank(Collectives *c, Gather *g, const Timeline *t, const Covers *covers,
                        uint32_t rank)
{
    const Cover *cover = &covers->rank[rank];
    const Track **tracks = mem_zero(cover->tracks_n, sizeof *tracks);
    uint32_t n = 0;
    for (uint32_t k = 0; k < cover->tracks_n; k++)
        if (communicates(t, &t->tracks[cover->tracks[k]]))
            tracks[n++] = &t->tracks[cover->tracks[k]];
    qsort(tracks, n, sizeof *tracks, by_sort);
    for (uint32_t k = 0; k < n; k++)
        gather_track(c, g, t, rank, cover->rank, tracks[k], k);
    free(tracks);
}

/* Stable, so that parts of a channel stay in order of rank, stream, start. */
static void sort_by_channel(Collectives *c, const uint32_t *channel)
{
    CollPart *sorted = mem_zero(c->parts_n, sizeof *sorted);
    uint64_t first = 0;
    for (uint64_t i = 0; i < c->parts_n; i++)
        c->channels[channel[i]].parts_n++;
    for (uint32_t k = 0; k < c->channels_n; k++) {
        c->channels[k].part_first = first;
        first += c->channels[k].parts_n;
        c->channels[k].parts_n = 0;
    }
    for (uint64_t i = 0; i < c->parts_n; i++) {
        CollChannel *to = &c->channels[channel[i]];
        sorted[to->part_first + to->parts_n++] = c->parts[i];
    }
    free(c->parts);
    c->parts = sorted;
}

/* ---- runs ---- */

static int by_key(const void *a, const void *b)
{
    const Keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->part.span > y->part.span) - (x->part.span < y->part.span);
}

void runs_sort(Runs *r)
{
    for (uint32_t k = 0; k < r->runs_n; k++) {
        Keyed *run = r->keyed + r->first[k];
        uint64_t n = r->first[k + 1] - r->first[k], i = 1;
        while (i < n && by_key(&run[i - 1], &run[i]) < 0)
            i++;
        if (i < n)
            qsort(run, n, sizeof *run, by_key);
    }
}

static void open_runs(Runs *r, const Collectives *c, const CollChannel *ch, const Timeline *t)
{
    if (r->cap < ch->parts_n) {
        r->cap = ch->parts_n;
        r->keyed = mem_resize(r->keyed, r->cap, sizeof *r->keyed);
    }
    r->n = ch->parts_n;
    r->runs_n = 0;
    for (uint64_t i = 0; i < r->n; i++) {
        const CollPart *p = &c->parts[ch->part_first + i];
        if (i == 0 || p->rank != r->keyed[i - 1].part.rank) {
            while (r->runs_n + 2 > r->first_cap) {
                r->first_cap = r->first_cap ? 2 * r->first_cap : 16;
                r->first = mem_resize(r->first, r->first_cap, sizeof *r->first);
                r->at = mem_resize(r->at, r->first_cap, sizeof *r->at);
            }
            r->first[r->runs_n++] = i;
        }
        r->keyed[i] = (Keyed){ t->start_ns[p->span], *p };
    }
    r->first[r->runs_n] = r->n;
    runs_sort(r);
}

/* ---- by number ---- */

static bool all_numbered(const Runs *r, const Timeline *t)
{
    for (uint64_t i = 0; i < r->n; i++) {
        const Comm *m = timeline_comm_of(t, r->keyed[i].part.span);
        if (!m || m->seq == NONE_U32)
            return false;
    }
    return true;
}

static void key_by_number(Runs *r, const Timeline *t)
{
    for (uint64_t i = 0; i < r->n; i++)
        r->keyed[i].key = timeline_comm_of(t, r->keyed[i].part.span)->seq;
    runs_sort(r);
}

static bool numbers_are_unique(const Runs *r)
{
    for (uint32_t k = 0; k < r->runs_n; k++)
        for (uint64_t i = r->first[k] + 1; i < r->first[k + 1]; i++)
            if (r->keyed[i].key == r->keyed[i - 1].key)
                return false;
    return true;
}

/* No number is left out within a rank: numbered for this channel, not for more than it. */
static bool numbers_are_dense(const Runs *r)
{
    for (uint32_t k = 0; k < r->runs_n; k++) {
        int64_t range = r->keyed[r->first[k + 1] - 1].key - r->keyed[r->first[k]].key;
        if ((uint64_t)range + 1 != run_n(r, k))
            return false;
    }
    return true;
}

static bool keys_are_equal(const Runs *r)
{
    if (!runs_equal_counts(r))
        return false;
    for (uint32_t k = 1; k < r->runs_n; k++)
        for (uint64_t i = 0; i < run_n(r, 0); i++)
            if (r->keyed[i].key != r->keyed[r->first[k] + i].key)
                return false;
    return true;
}

/*
 * Numbers decide when all ranks have the same ones, or when they count this very
 * channel and part of them is missing.  What numbers several channels at once has
 * gaps that mean nothing: then order is the better guide where counts agree.
 */
static bool matches_by_number(const Runs *r)
{
    return numbers_are_unique(r) &&
           (keys_are_equal(r) || numbers_are_dense(r) || !runs_equal_counts(r));
}

/* ---- by order ---- */

/* As the runs are sorted: the n-th of each rank. */
static void key_by_place(Runs *r)
{
    for (uint32_t k = 0; k < r->runs_n; k++)
        for (uint64_t i = r->first[k]; i < r->first[k + 1]; i++)
            r->keyed[i].key = (int64_t)(i - r->first[k]);
}

static void key_by_order(Runs *r, const Timeline *t)
{
    for (uint64_t i = 0; i < r->n; i++)
        r->keyed[i].key = t->start_ns[r->keyed[i].part.span];
    runs_sort(r);
    key_by_place(r);
}

/* Spans of an op lie on one stream, in order of start.  False: some kernel has no op id. */
static bool sort_by_op(Runs *r, const Timeline *t)
{
    for (uint64_t i = 0; i < r->n; i++) {
        r->keyed[i].key = t->op[r->keyed[i].part.span];
        if (r->keyed[i].key == NONE_U32)
            return false;
    }
    runs_sort(r);
    return true;
}

/* The channel's parts stand by rank, stream and start as they are. */
static void sort_by_stream(Runs *r, const Collectives *c, const CollChannel *ch,
                           const Timeline *t)
{
    int64_t stream = 0;
    for (uint64_t i = 0; i < r->n; i++) {
        const CollPart *p = &c->parts[ch->part_first + i];
        if (i == 0 || p->rank != r->keyed[i - 1].part.rank)
            stream = 0;
        else if (t->span_track[p->span] != t->span_track[r->keyed[i - 1].part.span])
            stream++;
        r->keyed[i] = (Keyed){ stream, *p };
    }
}

/* ---- refusals ---- */

char *collectives_channel_text(char *text, size_t cap, const Timeline *t, const CollChannel *c)
{
    if (c->from != NONE_U32)
        snprintf(text, cap, "rank %" PRIu32 " to rank %" PRIu32, c->from, c->to);
    else if (c->group == NONE_U32)
        snprintf(text, cap, "stream %" PRIu32 " of those that communicate", c->stream + 1);
    else
        snprintf(text, cap, "group '%.60s'", timeline_text(t, c->group));
    return text;
}

typedef struct Sentence {
    char text[400];
    size_t n;
} Sentence;

static void say(Sentence *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(Sentence *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(s->text + s->n, sizeof s->text - s->n, format, args);
    va_end(args);
    s->n += n > 0 ? (size_t)n : 0;
    s->n = s->n < sizeof s->text ? s->n : sizeof s->text - 1;
}

/* "group 'dp': rank 0 has 84 collectives, rank 3 has 83: not matched" */
static const char *refuse_counts(Collectives *c, const CollChannel *ch, const Runs *r,
                                 const Timeline *t, const Covers *covers)
{
    enum { SHOWN = 8 };
    char name[128];
    Sentence s = { .n = 0 };
    say(&s, "%s: ", collectives_channel_text(name, sizeof name, t, ch));
    for (uint32_t k = 0; k < r->runs_n && k < SHOWN; k++)
        say(&s, "%srank %" PRIu32 " has %" PRIu64, k ? ", " : "",
            covers->rank[r->keyed[r->first[k]].part.rank].rank, run_n(r, k));
    if (r->runs_n > SHOWN)
        say(&s, ", and %" PRIu32 " more ranks", r->runs_n - SHOWN);
    say(&s, " collectives: counts differ, not matched");
    return arena_strdup(&c->arena, s.text);
}

static uint32_t op_of(const Timeline *t, const CollPart *p)
{
    const Comm *m = timeline_comm_of(t, p->span);
    return m ? m->op : NONE_U32;
}

/* An all-reduce has as many bytes on all of its ranks; others need not. */
static bool sizes_differ(const Timeline *t, const CollPart *a, const CollPart *b)
{
    const Comm *x = timeline_comm_of(t, a->span), *y = timeline_comm_of(t, b->span);
    return x && y && x->bytes != NONE_U64 && y->bytes != NONE_U64 && x->bytes != y->bytes &&
           strcmp(timeline_text(t, x->op), "all_reduce") == 0;
}

/* "all_reduce", and "all_reduce of 4096 bytes" where it is the size that differs */
static const char *part_text(char text[128], const Timeline *t, const CollPart *p, bool sized)
{
    const char *op = timeline_text(t, op_of(t, p));
    if (sized)
        snprintf(text, 128, "%.60s of %" PRIu64 " bytes", op,
                 timeline_comm_of(t, p->span)->bytes);
    else
        snprintf(text, 128, "%.60s", op);
    return text;
}

/* NULL, or a sentence: the n-th is not the same everywhere.  A pair sends and receives. */
static const char *refuse_ops(Collectives *c, const CollChannel *ch, const Runs *r,
                              const Timeline *t, const Covers *covers)
{
    if (ch->from != NONE_U32)
        return NULL;
    for (uint32_t k = 1; k < r->runs_n; k++)
        for (uint64_t i = 0; i < run_n(r, k) && i < run_n(r, 0); i++) {
            const Keyed *x = &r->keyed[i], *y = &r->keyed[r->first[k] + i];
            const CollPart *a = &x->part, *b = &y->part;
            if (x->key != y->key || op_of(t, a) == NONE_U32 || op_of(t, b) == NONE_U32)
                continue;
            bool sized = op_of(t, a) == op_of(t, b);
            if (sized && !sizes_differ(t, a, b))
                continue;
            char name[128], here[128], there[128];
            return arena_printf(&c->arena,
                                "%s: collective %" PRIu64 " is %s on rank %" PRIu32
                                " and %s on rank %" PRIu32 ": not matched",
                                collectives_channel_text(name, sizeof name, t, ch), i + 1,
                                part_text(here, t, a, sized), covers->rank[a->rank].rank,
                                part_text(there, t, b, sized), covers->rank[b->rank].rank);
        }
    return NULL;
}

/* NULL, or a sentence: more ranks than the group has, as several groups have its name. */
static const char *refuse_ranks(Collectives *c, const CollChannel *ch, const Runs *r,
                                const Timeline *t)
{
    const Comm *m = timeline_comm_of(t, r->keyed->part.span);
    if (ch->group == NONE_U32 || ch->from != NONE_U32 || m->ranks_n == 0 ||
        r->runs_n <= m->ranks_n)
        return NULL;
    char name[128];
    return arena_printf(&c->arena,
                        "%s: %" PRIu32 " ranks have it, and its collectives have %" PRIu32
                        " ranks: several groups of one name, not matched",
                        collectives_channel_text(name, sizeof name, t, ch), r->runs_n,
                        m->ranks_n);
}

/* ---- matching ---- */

/*
 * The n-th of each rank, in order of start.  Collectives of one group on several streams may
 * start in an order that differs from rank to rank, as FSDP's gathers and reduces do: then
 * each op's with each op's, or each stream's with each stream's.
 */
static void key_in_order(Collectives *c, CollChannel *ch, Runs *r, StepsAtHand *steps,
                         const Timeline *t, const Covers *covers)
{
    key_by_order(r, t);
    bool by_step = runs_key_by_step(r, steps, t, covers), equal = runs_equal_counts(r);
    if (by_step)
        ch->by = MATCH_BY_STEP;
    ch->refusal =
        equal || by_step ? refuse_ops(c, ch, r, t, covers) : refuse_counts(c, ch, r, t, covers);
    if (by_step && ch->refusal && equal) { /* other orders may be better */
        key_by_order(r, t);
        ch->by = MATCH_BY_GROUP;
        ch->refusal = refuse_ops(c, ch, r, t, covers);
    }
    if (!ch->refusal || !equal)
        return;
    if (sort_by_op(r, t) && keys_are_equal(r) && !refuse_ops(c, ch, r, t, covers)) {
        ch->by = MATCH_BY_OP;
    } else {
        sort_by_stream(r, c, ch, t);
        if (!keys_are_equal(r) || refuse_ops(c, ch, r, t, covers))
            return;
        ch->by = MATCH_BY_GROUP_STREAM;
    }
    ch->refusal = NULL;
    key_by_place(r);
}

static void add_match(Collectives *c, uint32_t channel, uint64_t part_first, uint32_t parts_n)
{
    GROW(c->matches, c->matches_n, c->matches_cap);
    c->matches[c->matches_n++] = (CollMatch){
        .channel = channel, .part_first = part_first, .parts_n = parts_n, .last = NONE_U32
    };
}

/* Walks the runs side by side; what has the smallest key on two ranks or more is a match. */
static void match_runs(Collectives *c, uint32_t channel, Runs *r)
{
    CollChannel *ch = &c->channels[channel];
    uint64_t to = ch->part_first, alone_n = 0;
    CollPart *alone = mem_zero(r->n, sizeof *alone);
    ch->match_first = c->matches_n;
    memcpy(r->at, r->first, r->runs_n * sizeof *r->at);
    for (;;) {
        int64_t key = INT64_MAX;
        for (uint32_t k = 0; k < r->runs_n; k++)
            if (r->at[k] < r->first[k + 1])
                key = min_i64(key, r->keyed[r->at[k]].key);
        if (key == INT64_MAX)
            break;
        uint64_t first = to;
        for (uint32_t k = 0; k < r->runs_n; k++)
            if (r->at[k] < r->first[k + 1] && r->keyed[r->at[k]].key == key)
                c->parts[to++] = r->keyed[r->at[k]++].part;
        if (to - first >= 2)
            add_match(c, channel, first, (uint32_t)(to - first));
        else
            alone[alone_n++] = c->parts[to = first];
    }
    memcpy(c->parts + to, alone, alone_n * sizeof *alone);
    free(alone);
    ch->matches_n = c->matches_n - ch->match_first;
    c->unmatched_n += alone_n;
}

/* Sends and receives of which nobody says who sends to whom. */
static bool is_loose(const CollChannel *ch, const Runs *r, const Timeline *t)
{
    return ch->group == NONE_U32 && ch->from == NONE_U32 &&
           t->span_class[r->keyed->part.span] == SPAN_P2P;
}

static void match_channel(Collectives *c, uint32_t channel, Runs *r, StepsAtHand *steps,
                          const Timeline *t, const Covers *covers)
{
    CollChannel *ch = &c->channels[channel];
    open_runs(r, c, ch, t);
    ch->ranks_n = r->runs_n;
    ch->loose = c->ranks_n > 2 && is_loose(ch, r, t);
    ch->match_first = c->matches_n;
    ch->by = ch->group == NONE_U32 && ch->from == NONE_U32 ? MATCH_BY_STREAM : MATCH_BY_GROUP;
    if (r->runs_n > 1 && ch->by == MATCH_BY_GROUP && all_numbered(r, t)) {
        key_by_number(r, t);
        if (matches_by_number(r))
            ch->by = MATCH_BY_NUMBER;
    }
    ch->refusal = r->runs_n > 1 ? refuse_ranks(c, ch, r, t) : NULL;
    if (r->runs_n > 1 && ch->by != MATCH_BY_NUMBER && !ch->refusal)
        key_in_order(c, ch, r, steps, t, covers);
    if (r->runs_n < 2 || ch->refusal) {
        ch->by = MATCH_NONE;
        c->unmatched_n += ch->parts_n;
    } else {
        match_runs(c, channel, r);
    }
}

/* Fills channels, parts, matches and the unmatched. */
static void match_all(Collectives *c, const Timeline *t, const Covers *covers)
{
    Gather g = { .channel = NULL };
    Runs runs = { .n = 0 };
    StepsAtHand steps = { .found = false };
    for (uint32_t r = 0; r < covers->n; r++)
        gather_rank(c, &g, t, covers, r);
    sort_by_channel(c, g.channel);
    for (uint32_t k = 0; k < c->channels_n; k++)
        match_channel(c, k, &runs, &steps, t, covers);
    steps_at_hand_free(&steps);
    free(runs.keyed);
    free(runs.first);
    free(runs.at);
    free(g.map.slot);
    free(g.channel);
}

void collectives_find(Collectives *c, const Timeline *t, const Covers *covers,
                      const Selection *selection)
{
    ASSERT(t->sealed);
    static const Selection all = { .ranks = NULL };
    *c = (Collectives){ .ranks_n = covers->n };
    c->ranks = mem_zero(covers->n, sizeof *c->ranks);
    match_all(c, t, covers);
    collectives_refuse_guesses(c, t);
    collectives_sum(c, t, covers, selection ? selection : &all);
}

void collectives_free(Collectives *c)
{
    free(c->parts);
    free(c->channels);
    free(c->matches);
    free(c->rows);
    free(c->ranks);
    arena_free(&c->arena);
    *c = (Collectives){ 0 };
}
