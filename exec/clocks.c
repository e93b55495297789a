/*
 * clocks.c - barriers between two looks at the clock, and straight lines between samples.
 */
#include "exec/clocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "exec/net.h"

enum { ROUNDS = 16, LATE_NS = 300000 };

/* Who has which clock. */
typedef struct ClockCard {
    uint64_t clock;  /* equal on ranks whose CLOCK_MONOTONIC is the same */
    int64_t zero_ns; /* of that clock, when this rank's run began */
} ClockCard;

typedef struct ClockReading {
    int64_t before_ns[ROUNDS], after_ns[ROUNDS]; /* of the run */
} ClockReading;

/* Of a started kernel, and of the time namespace of this process, if there are such. */
static uint64_t clock_of_host(void)
{
    char text[64] = "";
    struct stat time_ns = { 0 };
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (!fgets(text, sizeof text, f))
            text[0] = '\0';
        fclose(f);
    }
    uint64_t h = stat("/proc/self/ns/time", &time_ns) == 0 ? mix_u64(time_ns.st_ino) : 0;
    for (const char *c = text; *c; c++)
        h = mix_u64(h ^ (uint64_t)(unsigned char)*c);
    return h;
}

/* ---- a sample ---- */

static bool read_clock(ClockReading *mine, Fabric *f, bool first,
                       int64_t (*now_ns)(const Backend *), const Backend *b, Err *err)
{
    const struct timespec late = { .tv_nsec = LATE_NS };
    for (int k = 0; k < ROUNDS; k++) {
        if ((k % 2 == 0) == first)
            nanosleep(&late, NULL);
        mine->before_ns[k] = now_ns(b);
        if (!fabric_barrier(f, err))
            return false;
        mine->after_ns[k] = now_ns(b);
    }
    return true;
}

static ClockSample sample_between(const ClockReading *zero, const ClockReading *i)
{
    ClockSample s = { i->before_ns[ROUNDS / 2], INT64_MIN, INT64_MAX };
    for (int k = 0; k < ROUNDS; k++) {
        s.low_ns = max_i64(s.low_ns, zero->before_ns[k] - i->after_ns[k]);
        s.high_ns = min_i64(s.high_ns, zero->after_ns[k] - i->before_ns[k]);
    }
    return s;
}

bool clocks_sample(Clocks *c, Fabric *f, uint32_t rank, uint32_t world_n,
                   int64_t (*now_ns)(const Backend *), const Backend *b, Err *err)
{
    ClockCard card = { clock_of_host(), net_now_ns() - now_ns(b) };
    ClockCard *cards = mem_zero(world_n, sizeof *cards);
    ClockReading mine = { .before_ns = { now_ns(b) } }, *all = NULL;
    bool ok = fabric_share(f, &card, cards, sizeof card, err), differ = false;
    for (uint32_t i = 0; i < world_n; i++)
        differ = differ || cards[i].clock != cards[0].clock;
    if (ok && differ) {
        all = mem_zero(world_n, sizeof *all);
        ok = read_clock(&mine, f, rank == 0, now_ns, b, err) &&
             fabric_share(f, &mine, all, sizeof mine, err);
    }
    c->world_n = world_n;
    for (uint32_t i = 0; i < world_n && ok; i++) {
        int64_t shift = cards[i].zero_ns - cards[0].zero_ns;
        ClockSample s = { mine.before_ns[0], shift, shift };
        if (cards[i].clock != cards[0].clock)
            s = sample_between(&all[0], &all[i]);
        GROW(c->samples, c->samples_n, c->cap);
        c->samples[c->samples_n++] = s;
    }
    free(cards);
    free(all);
    return ok;
}

void clocks_free(Clocks *c)
{
    free(c->samples);
    *c = (Clocks){ 0 };
}

/* ---- a time ---- */

static int64_t middle(int64_t low_ns, int64_t high_ns)
{
    return low_ns + (high_ns - low_ns) / 2;
}

/* From a to b, in a straight line. */
static int64_t shift_between(const ClockSample *a, const ClockSample *b, int64_t at_ns)
{
    int64_t from = middle(a->low_ns, a->high_ns), to = middle(b->low_ns, b->high_ns);
    if (at_ns <= a->at_ns || b->at_ns <= a->at_ns)
        return from;
    if (at_ns >= b->at_ns)
        return to;
    double part = (double)(at_ns - a->at_ns) / (double)(b->at_ns - a->at_ns);
    return from + (int64_t)llround(part * (double)(to - from));
}

int64_t clock_samples_shift(const ClockSample *s, uint32_t n, uint32_t stride, int64_t at_ns)
{
    int64_t low = INT64_MIN, high = INT64_MAX;
    for (size_t i = 0; i < n; i++) {
        low = max_i64(low, s[i * stride].low_ns);
        high = min_i64(high, s[i * stride].high_ns);
    }
    if (n == 0 || low <= high)
        return n == 0 ? 0 : middle(low, high);
    size_t i = 0;
    while (i + 2 < n && s[(i + 1) * stride].at_ns <= at_ns)
        i++;
    return shift_between(&s[i * stride], &s[(i + 1) * stride], at_ns);
}

int64_t clocks_shift(const Clocks *c, uint32_t rank, int64_t at_ns)
{
    if (c->samples_n == 0)
        return 0;
    return clock_samples_shift(c->samples + rank, c->samples_n / c->world_n, c->world_n, at_ns);
}
