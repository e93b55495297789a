/*
 * fabric_world.c - barrier, share and gather: everybody to rank 0, and back.
 *
 * Each rank has one line to rank 0 for this.  Who says what is checked: a rank in
 * another call than rank 0 ends the job with a sentence.
 */
#include "exec/fabric_parts.h"

#include <stdlib.h>
#include <string.h>

typedef enum WorldCall { WORLD_BARRIER, WORLD_SHARE, WORLD_GATHER } WorldCall;

static const char *const world_call_names[] = { "fabric_barrier", "fabric_share",
                                                "fabric_gather" };

typedef struct WorldHead {
    uint64_t call, bytes;
} WorldHead;

static const uint64_t world_channel = LANE_N;

/* One stream per other rank on rank 0, in rank order; one to rank 0 elsewhere. */
static Stream *world_streams(Fabric *f, uint32_t *n, Err *err)
{
    const int64_t since_ns = net_now_ns();
    *n = f->rank == 0 ? f->world - 1 : 1;
    Stream *s = lane_streams(&f->world_lane, *n);
    for (uint32_t i = 0; i < *n; i++) {
        uint32_t rank = f->rank == 0 ? i + 1 : 0;
        int fd;
        while ((fd = line_get(f, rank, world_channel, f->rank > 0, err)) < 0) {
            if (err->set)
                return NULL;
            if (atomic_load(&f->failed)) {
                fabric_ended(f, err);
                return NULL;
            }
            watch_awaits(f, rank);
            net_sleep_ns(look_pause_ns(since_ns));
        }
        stream_clear(&s[i], rank, fd);
    }
    return s;
}

static bool check_heads(Fabric *f, const WorldHead *mine, const WorldHead *their, Err *err)
{
    for (uint32_t r = 1; r < f->world; r++) {
        bool same = their[r].call == mine->call &&
                    (mine->call == WORLD_GATHER || their[r].bytes == mine->bytes);
        if (same)
            continue;
        const char *name = their[r].call < ARRAY_N(world_call_names)
                               ? world_call_names[their[r].call]
                               : "something else";
        err_set(err,
                "rank %u calls %s with %" PRIu64 " bytes where rank 0 calls %s with %" PRIu64,
                r, name, their[r].bytes, world_call_names[mine->call], mine->bytes);
        return fabric_refuse(f, err);
    }
    return true;
}

/* Rank 0: the heads of all, then memory for their bytes: [world], malloc'd, and the bytes. */
static bool hear_all(Fabric *f, const WorldHead *mine, WorldHead *heads, void **bytes, Err *err)
{
    uint32_t n;
    Stream *s = world_streams(f, &n, err);
    if (!s)
        return false;
    for (uint32_t i = 0; i < n; i++)
        stream_recv(&s[i], &heads[i + 1], sizeof heads[0]);
    if (!streams_run(f, s, n, err) || !check_heads(f, mine, heads, err))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        stream_clear(&s[i], i + 1, s[i].fd);
        bytes[i + 1] = mem_zero((size_t)heads[i + 1].bytes, 1);
        stream_recv(&s[i], bytes[i + 1], heads[i + 1].bytes);
    }
    return streams_run(f, s, n, err);
}

/* Rank 0: one answer to all. */
static bool tell_all(Fabric *f, const void *bytes, uint64_t n, Err *err)
{
    uint32_t streams_n;
    Stream *s = world_streams(f, &streams_n, err);
    for (uint32_t i = 0; s && i < streams_n; i++)
        stream_send(&s[i], bytes, n);
    bool ok = s && streams_run(f, s, streams_n, err);
    watch_call_done(f);
    return ok;
}

/* Others: head and bytes to rank 0, answer_n bytes back. */
static bool tell_rank0(Fabric *f, const WorldHead *head, const void *mine, void *answer,
                       uint64_t answer_n, Err *err)
{
    uint32_t n;
    Stream *s = world_streams(f, &n, err);
    if (!s)
        return false;
    stream_send(s, head, sizeof *head);
    stream_send(s, mine, head->bytes);
    stream_recv(s, answer, answer_n);
    bool ok = streams_run(f, s, 1, err);
    watch_call_done(f);
    return ok;
}

static void free_all(void **bytes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(bytes[i]);
    free(bytes);
}

/* Everybody's bytes, all of one size, one after another, on all ranks. */
static bool share(Fabric *f, WorldCall call, const void *mine, uint8_t *out, size_t each,
                  Err *err)
{
    WorldHead head = { .call = call, .bytes = each };
    uint64_t out_n = (uint64_t)each * f->world;
    if (f->rank > 0)
        return tell_rank0(f, &head, mine, out, out_n, err);
    WorldHead *heads = mem_zero(f->world, sizeof *heads);
    void **bytes = mem_zero(f->world, sizeof *bytes);
    bool ok = hear_all(f, &head, heads, bytes, err);
    if (ok) {
        memmove(out, mine, each);
        for (uint32_t r = 1; r < f->world; r++)
            memcpy(out + (size_t)r * each, bytes[r], each);
        ok = tell_all(f, out, out_n, err);
    }
    free(heads);
    free_all(bytes, f->world);
    return ok;
}

bool fabric_barrier(Fabric *f, Err *err)
{
    uint8_t mine = 0;
    uint8_t *out = mem_zero(f->world, 1);
    bool ok = !fabric_failure(f) ? f->world == 1 || share(f, WORLD_BARRIER, &mine, out, 1, err)
                                 : fabric_ended(f, err);
    free(out);
    return ok;
}

bool fabric_share(Fabric *f, const void *mine, void *out, size_t bytes, Err *err)
{
    if (fabric_failure(f))
        return fabric_ended(f, err);
    if (f->world > 1)
        return share(f, WORLD_SHARE, mine, out, bytes, err);
    memmove(out, mine, bytes);
    return true;
}

static void *copy_of(const void *bytes, size_t n)
{
    void *copy = mem_zero(n, 1);
    if (n > 0)
        memcpy(copy, bytes, n);
    return copy;
}

bool fabric_gather(Fabric *f, const void *mine, size_t n, void ***out, size_t **out_n, Err *err)
{
    *out = NULL;
    *out_n = NULL;
    if (fabric_failure(f))
        return fabric_ended(f, err);
    WorldHead head = { .call = WORLD_GATHER, .bytes = n };
    uint8_t answer;
    if (f->rank > 0)
        return tell_rank0(f, &head, mine, &answer, 1, err);
    WorldHead *heads = mem_zero(f->world, sizeof *heads);
    void **bytes = mem_zero(f->world, sizeof *bytes);
    bool ok =
        f->world == 1 || (hear_all(f, &head, heads, bytes, err) && tell_all(f, "", 1, err));
    if (ok) {
        bytes[0] = copy_of(mine, n);
        heads[0] = head;
        *out = bytes;
        *out_n = mem_zero(f->world, sizeof **out_n);
        for (uint32_t r = 0; r < f->world; r++)
            (*out_n)[r] = (size_t)heads[r].bytes;
    } else {
        free_all(bytes, f->world);
    }
    free(heads);
    return ok;
}
