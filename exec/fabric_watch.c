/*
 * fabric_watch.c - a job in which all ranks live and none does anything has failed, too.
 *
 * With every beat a rank says how many calls it has done and how much processor time it has
 * used.  A rank moves when it has done a call or computes; who waits or hangs uses next to
 * nothing.  As long as one rank moves all is well: the others wait for it.  When none has
 * moved for PATIENCE time-outs, as long as NCCL's transfers are waited for, rank 0 ends the
 * job and says who waits for whom.
 */
#include "exec/fabric_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PATIENCE = 10, NAMED_MAX = 8 };
/* Of a processor: more than the looks of those who wait, less than a rank that computes. */
static const double busy_share = 0.02;
static const int64_t busy_ns = 20000000;

/* ---- what this rank does ---- */

void watch_awaits(Fabric *f, uint32_t rank)
{
    atomic_store_explicit(&f->awaits, rank, memory_order_relaxed);
}

void watch_call_done(Fabric *f)
{
    atomic_fetch_add_explicit(&f->calls, 1, memory_order_relaxed);
    watch_awaits(f, NONE_U32);
}

static Sign own_sign(Fabric *f)
{
    struct timespec t = { 0 };
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (Sign){ .cpu_ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec,
                   .calls = atomic_load(&f->calls),
                   .awaits = atomic_load(&f->awaits) };
}

void watch_sign(Fabric *f, char text[SIGN_TEXT_MAX])
{
    Sign s = own_sign(f);
    snprintf(text, SIGN_TEXT_MAX, "%" PRId64 " %" PRIu64 " %" PRIu32, s.cpu_ns, s.calls,
             s.awaits);
}

/* ---- what all do ---- */

void watch_hear(Fabric *f, uint32_t rank, const char *text)
{
    Sign s;
    if (sscanf(text, "%" SCNd64 " %" SCNu64 " %" SCNu32, &s.cpu_ns, &s.calls, &s.awaits) == 3)
        f->service.signs[rank] = s;
}

static bool moves(const Service *s, uint32_t rank, int64_t now_ns)
{
    const Sign *is = &s->signs[rank], *was = &s->marks[rank];
    double share_ns = busy_share * (double)(now_ns - s->moved_ns);
    return is->calls != was->calls || is->cpu_ns - was->cpu_ns > busy_ns + (int64_t)share_ns;
}

/* "rank 2 on 'a' (process 7) waits for nobody, rank 0 on 'a' (process 5) for rank 2": first
 * those who wait for nobody. */
static void say_who_waits(const Fabric *f, char *text, size_t cap)
{
    uint32_t said_n = 0;
    size_t n = 0;
    for (int waiting = 0; waiting < 2; waiting++)
        for (uint32_t r = 0; r < f->world && n < cap; r++) {
            const RankCard *c = &f->meeting.cards[r];
            char whom[20] = "nobody";
            uint32_t awaits = f->service.signs[r].awaits;
            if ((awaits != NONE_U32) != waiting || said_n++ >= NAMED_MAX)
                continue;
            if (waiting)
                snprintf(whom, sizeof whom, "rank %u", awaits);
            n += (size_t)snprintf(text + n, cap - n, "%srank %u on '%s' (process %u) %sfor %s",
                                  said_n > 1 ? ", " : "", r, c->host, c->pid,
                                  said_n > 1 ? "" : "waits ", whom);
        }
    if (said_n > NAMED_MAX && n < cap)
        snprintf(text + n, cap - n, ", and %u more", said_n - NAMED_MAX);
}

void watch_look(Fabric *f, int64_t now_ns)
{
    Service *s = &f->service;
    bool moved = false, awaited = false;
    s->signs[0] = own_sign(f);
    for (uint32_t r = 0; r < f->world; r++) {
        moved = moved || moves(s, r, now_ns);
        awaited = awaited || s->signs[r].awaits != NONE_U32;
    }
    if (moved || s->moved_ns == 0) {
        memcpy(s->marks, s->signs, f->world * sizeof *s->marks);
        s->moved_ns = now_ns;
    }
    double still_s = (double)(now_ns - s->moved_ns) * 1e-9;
    if (!awaited || still_s < PATIENCE * f->timeout_s)
        return;
    char who[FAIL_TEXT_MAX - 100];
    say_who_waits(f, who, sizeof who);
    fabric_fail(f, "no rank has done anything for %.3g s: %s", still_s, who);
}
