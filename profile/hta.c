/* hta.c - HTA's rules in HTA's order: round, cut the window, classify, merge, subtract. */
#include "profile/hta.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/order.h"

/* A GPU row: interval in microseconds, which may end before it starts. */
typedef struct Row {
    int64_t start_us, end_us;
    uint8_t bits; /* of COVER_*; 0 other */
} Row;

typedef struct Rows {
    Row *row;
    uint64_t n;
} Rows;

/* ---- names ---- */

static bool starts(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static bool is_communication(const char *name)
{
    return starts(name, "nccl") || starts(name, "hip") || starts(name, "hccl") ||
           strstr(name, "ncclKernel");
}

static bool is_memory(const char *name)
{
    return starts(name, "Memcpy") || starts(name, "Memset") || starts(name, "dma");
}

static bool is_computation(const char *name)
{
    const char *cuda = strstr(name, "cuda");
    return !strstr(name, "Memcpy") && !strstr(name, "Memset") && !strstr(name, "dma") &&
           !strstr(name, "Sync") && !starts(name, "Stream Wait Event") &&
           !(cuda && strstr(cuda, "LaunchKernel")) && !starts(name, "runFunction");
}

static uint8_t bits_of_name(const char *name)
{
    if (is_communication(name))
        return COVER_COMM;
    if (is_memory(name))
        return COVER_MEMORY;
    return is_computation(name) ? COVER_COMPUTE : 0;
}

/* ---- rounding ---- */

typedef struct Clock {
    int64_t base_ns;
    bool rounds;
} Clock;

/* Microseconds as the file's numbers become doubles. */
static double double_us(int64_t ns)
{
    return (double)(ns / 1000) + (double)(ns % 1000) / 1000.0;
}

static int64_t start_us(const Clock *c, int64_t start_ns)
{
    return (int64_t)ceil(double_us(start_ns - c->base_ns));
}

static int64_t end_us(const Clock *c, int64_t start_ns, int64_t dur_ns)
{
    double start = double_us(start_ns - c->base_ns), dur = double_us(dur_ns);
    if (c->rounds)
        return (int64_t)floor(start + dur);
    return (int64_t)llround(start + dur);
}

/* ---- rows of a rank ---- */

typedef struct Reader {
    const Timeline *t;
    const Cover *cover;
    Clock clock;
    bool cuts;          /* the window counts */
    int64_t until_us;   /* host rows that start before it are in the window */
    uint64_t *launched; /* sorted correlation ids of the host rows in the window */
    uint64_t launched_n;
} Reader;

static bool is_gpu_row(const Timeline *t, const Track *track, uint64_t i)
{
    return track->kind == TRACK_STREAM && track->sort >= 0 && t->span_class[i] != SPAN_NOTE &&
           t->span_class[i] != SPAN_STEP;
}

static bool is_of_rank(const Reader *r, uint32_t track)
{
    const Track *k = &r->t->tracks[track];
    return k->rank == r->cover->rank && k->span_n > 0;
}

static bool has_fractions(const Reader *r)
{
    const Timeline *t = r->t;
    for (uint32_t k = 0; k < t->tracks_n; k++)
        for (uint64_t i = 0; is_of_rank(r, k) && i < t->tracks[k].span_n; i++)
            if ((t->start_ns[t->tracks[k].span_first + i] - r->clock.base_ns) % 1000 != 0)
                return true;
    return false;
}

static bool is_step(const Timeline *t, uint64_t i)
{
    return t->span_class[i] == SPAN_STEP ||
           strstr(timeline_text(t, t->span_name[i]), "ProfilerStep");
}

/* Starts of host rows count up to the start of the last step, or with it up to its end. */
static void find_window(Reader *r, bool include_last)
{
    const Timeline *t = r->t;
    int64_t start = INT64_MIN, end = INT64_MIN;
    for (uint32_t k = 0; k < t->tracks_n; k++)
        for (uint64_t n = 0; is_of_rank(r, k) && n < t->tracks[k].span_n; n++) {
            uint64_t i = t->tracks[k].span_first + n;
            if (is_gpu_row(t, &t->tracks[k], i) || !is_step(t, i))
                continue;
            start = max_i64(start, start_us(&r->clock, t->start_ns[i]));
            end = max_i64(end, end_us(&r->clock, t->start_ns[i], t->dur_ns[i]));
        }
    r->until_us = include_last ? end + 1 : start;
}

static void find_launched(Reader *r)
{
    const Timeline *t = r->t;
    uint64_t cap = 0;
    for (uint32_t k = 0; t->correlation && k < t->tracks_n; k++)
        for (uint64_t n = 0; is_of_rank(r, k) && n < t->tracks[k].span_n; n++) {
            uint64_t i = t->tracks[k].span_first + n;
            if (is_gpu_row(t, &t->tracks[k], i) || t->correlation[i] == NONE_U64 ||
                start_us(&r->clock, t->start_ns[i]) >= r->until_us)
                continue;
            GROW(r->launched, r->launched_n, cap);
            r->launched[r->launched_n++] = t->correlation[i];
        }
    if (r->launched_n > 0)
        qsort(r->launched, r->launched_n, sizeof *r->launched, compare_u64);
}

static bool is_in_window(const Reader *r, uint64_t i)
{
    const char *name = timeline_text(r->t, r->t->span_name[i]);
    if (!r->cuts || strcmp(name, "Event Sync") == 0 || strcmp(name, "Context Sync") == 0)
        return true;
    if (!r->t->correlation || r->launched_n == 0)
        return false;
    return bsearch(&r->t->correlation[i], r->launched, r->launched_n, sizeof *r->launched,
                   compare_u64) != NULL;
}

static int by_start(const void *a, const void *b)
{
    const Row *x = a, *y = b;
    if (x->start_us != y->start_us)
        return x->start_us < y->start_us ? -1 : 1;
    return (x->end_us > y->end_us) - (x->end_us < y->end_us);
}

/* Returns how many the window leaves out. */
static uint64_t read_rows(Rows *rows, const Reader *r)
{
    const Timeline *t = r->t;
    uint64_t cap = 0, left_out_n = 0;
    for (uint32_t n = 0; n < r->cover->tracks_n; n++) {
        const Track *k = &t->tracks[r->cover->tracks[n]];
        for (uint64_t i = k->span_first; i < k->span_first + k->span_n; i++) {
            if (!is_gpu_row(t, k, i))
                continue;
            if (!is_in_window(r, i)) {
                left_out_n++;
                continue;
            }
            uint8_t bits = t->op[i] != NONE_U32
                               ? cover_bit(t->span_class[i])
                               : bits_of_name(timeline_text(t, t->span_name[i]));
            GROW(rows->row, rows->n, cap);
            rows->row[rows->n++] =
                (Row){ start_us(&r->clock, t->start_ns[i]),
                       end_us(&r->clock, t->start_ns[i], t->dur_ns[i]), bits };
        }
    }
    if (rows->n > 0)
        qsort(rows->row, rows->n, sizeof *rows->row, by_start);
    return left_out_n;
}

/* ---- unions ---- */

/* Rows whose bits meet mask (0: all), merged; touching ones join, as HTA's do. */
static Rows merged(const Rows *rows, uint8_t mask)
{
    Rows m = { .row = mem_zero(rows->n, sizeof *m.row) };
    for (uint64_t i = 0; i < rows->n; i++) {
        Row x = rows->row[i];
        if (mask && !(x.bits & mask))
            continue;
        if (m.n > 0 && x.start_us <= m.row[m.n - 1].end_us)
            m.row[m.n - 1].end_us = max_i64(m.row[m.n - 1].end_us, x.end_us);
        else
            m.row[m.n++] = x;
    }
    return m;
}

static int64_t length_of(const Rows *m)
{
    int64_t us = 0;
    for (uint64_t i = 0; i < m->n; i++)
        us += m->row[i].end_us - m->row[i].start_us;
    return us;
}

/* Lengths by mask of what runs, over the unions of the three types. */
static void sweep_types(int64_t us[COVER_MASKS], const Rows of_type[3])
{
    uint64_t at[3] = { 0 };
    int64_t now = INT64_MIN;
    for (;;) {
        int64_t next = INT64_MAX;
        int mask = 0;
        for (int b = 0; b < 3; b++) {
            while (at[b] < of_type[b].n && of_type[b].row[at[b]].end_us <= now)
                at[b]++;
            if (at[b] == of_type[b].n)
                continue;
            const Row *x = &of_type[b].row[at[b]];
            mask |= x->start_us <= now ? 1 << b : 0;
            next = min_i64(next, x->start_us <= now ? x->end_us : x->start_us);
        }
        if (next == INT64_MAX)
            return;
        if (mask)
            us[mask] += next - now;
        now = next;
    }
}

/* ---- figures ---- */

static double percent(int64_t part, int64_t all)
{
    return all ? round(1e4 * (double)part / (double)all) / 100 : NAN;
}

static void fill(HtaRank *h, const Rows *rows)
{
    Rows all = merged(rows, 0);
    Rows of_type[3];
    int64_t last_us = INT64_MIN;
    for (uint64_t i = 0; i < rows->n; i++)
        last_us = max_i64(last_us, rows->row[i].end_us);
    for (int b = 0; b < 3; b++)
        of_type[b] = merged(rows, (uint8_t)(1 << b));
    h->gpu_rows = rows->n;
    if (rows->n > 0) {
        sweep_types(h->type_us, of_type);
        h->kernel_time_us = last_us - rows->row[0].start_us;
        h->idle_us = h->kernel_time_us - length_of(&all);
        h->compute_us = length_of(&of_type[0]);
        h->comm_us = length_of(&of_type[1]);
        h->non_compute_us = h->kernel_time_us - h->idle_us - h->compute_us;
        h->overlap_us = h->type_us[COVER_COMPUTE | COVER_COMM] +
                        h->type_us[COVER_COMPUTE | COVER_COMM | COVER_MEMORY];
    }
    h->idle_pct = percent(h->idle_us, h->kernel_time_us);
    h->compute_pct = percent(h->compute_us, h->kernel_time_us);
    h->non_compute_pct = percent(h->non_compute_us, h->kernel_time_us);
    h->overlap_pct = percent(h->overlap_us, h->comm_us);
    for (int b = 0; b < 3; b++)
        free(of_type[b].row);
    free(all.row);
}

/* Distinct names of steps over all ranks. */
static uint32_t count_steps(const Timeline *t)
{
    bool *seen = mem_zero(t->names.n, sizeof *seen);
    uint32_t n = 0;
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        const Track *track = &t->tracks[k];
        for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
            if (is_gpu_row(t, track, i) || seen[t->span_name[i]] || !is_step(t, i))
                continue;
            seen[t->span_name[i]] = true;
            n++;
        }
    }
    free(seen);
    return n;
}

static void add_to_sums(Hta *h, const HtaRank *rank, uint64_t left_out_n)
{
    h->left_out_n += left_out_n;
    for (int m = 0; m < COVER_MASKS; m++)
        h->type_us[m] += rank->type_us[m];
}

void hta_find(Hta *h, const Timeline *t, const Covers *covers, const int64_t *base_ns,
              const bool *summed, bool include_last_step)
{
    ASSERT(t->sealed);
    *h = (Hta){ .ranks_n = covers->n, .steps_n = count_steps(t) };
    h->ranks = mem_zero(covers->n, sizeof *h->ranks);
    for (uint32_t i = 0; i < covers->n; i++) {
        Rows rows = { .n = 0 };
        Reader r = { .t = t, .cover = &covers->rank[i], .cuts = h->steps_n >= 2 };
        r.clock.base_ns = base_ns ? base_ns[i] : 0;
        r.clock.rounds = has_fractions(&r);
        if (r.cuts) {
            find_window(&r, include_last_step);
            find_launched(&r);
        }
        h->ranks[i].rank = covers->rank[i].rank;
        uint64_t left_out_n = read_rows(&rows, &r);
        fill(&h->ranks[i], &rows);
        if (!summed || summed[i])
            add_to_sums(h, &h->ranks[i], left_out_n);
        free(r.launched);
        free(rows.row);
    }
}

void hta_free(Hta *h)
{
    free(h->ranks);
    *h = (Hta){ 0 };
}

char *hta_type_text(char *text, size_t cap, int mask)
{
    static const char *const types[] = { "COMPUTATION", "COMMUNICATION", "MEMORY" };
    size_t n = 0;
    text[0] = '\0';
    for (int b = 0; b < 3; b++)
        if (mask & 1 << b && n < cap)
            n +=
                (size_t)snprintf(text + n, cap - n, "%s%s", n ? " overlapping " : "", types[b]);
    return text;
}
