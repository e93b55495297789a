/*
 * fabric_message.c - collectives over TCP.
 *
 * First everybody tells everybody that it has come (a TalkHead), which checks that
 * all mean the same.  Then each member owns its shard, as in shared memory: the
 * others send it their elements, it sums in member order (the same bits as there),
 * and sends the result to whoever wants it.  Long vectors go segment by segment,
 * the results of one segment along with the elements of the next:
 *
 *     step 0    elements of segment 0
 *     step 1    elements of segment 1, results of segment 0
 *     step 2    ...                    results of segment 1
 */
#include <stdlib.h>
#include <string.h>

#include "exec/fabric_sum.h"
#include "exec/fabric_talk.h"

enum { SEGMENT_ELEMENTS = 256 * 1024 };

typedef struct TalkHead {
    uint64_t key, elements; /* of all pieces, and their formats */
    int64_t at_ns;
    uint32_t kind, peer, maximum, in_n, out_n, pad;
} TalkHead;

/* ---- runs ---- */

/* The piece that shards are taken of: the whole one of in and out. */
static const Part *whole_of(const Talk *t, uint32_t k)
{
    const CommCall *c = t->c;
    return c->kind == OP_ALL_GATHER && c->out_n ? &c->out[k] : &c->in[k];
}

Walk walk_shards(const Talk *t, uint32_t member, uint64_t first, uint64_t end)
{
    return (Walk){ .t = t, .member = member, .first = first, .end = end };
}

bool walk_next(Walk *w, Run *run)
{
    while (w->k < w->t->c->in_n && w->before < w->end) {
        uint32_t k = w->k++;
        const Part *p = whole_of(w->t, k);
        BlockRange s = ring_block(p->elements, w->member, w->t->n);
        uint64_t from = max_u64(w->first, w->before) - w->before;
        uint64_t to = min_u64(w->end - w->before, s.n);
        w->before += s.n;
        if (from >= to)
            continue;
        *run = (Run){ .k = k,
                      .at = s.first + from,
                      .n = to - from,
                      .in_shard = from,
                      .bytes = (to - from) * dtype_bytes(p->dtype),
                      .dtype = p->dtype };
        return true;
    }
    return false;
}

uint64_t shard_elements(const Talk *t, uint32_t member)
{
    uint64_t n = 0;
    for (uint32_t k = 0; k < t->c->in_n; k++)
        n += ring_block(whole_of(t, k)->elements, member, t->n).n;
    return n;
}

uint8_t *run_in(const Talk *t, const Run *r)
{
    return part_at(t->f->arena, &t->c->in[r->k]) + r->at * dtype_bytes(r->dtype);
}

uint8_t *run_out(const Talk *t, const Run *r)
{
    return part_at(t->f->arena, whole_of(t, r->k)) + r->at * dtype_bytes(r->dtype);
}

uint8_t *run_sum(const Talk *t, const Run *r)
{
    if (t->c->kind == OP_REDUCE_SCATTER && t->c->out_n)
        return part_at(t->f->arena, &t->c->out[r->k]) + r->in_shard * dtype_bytes(r->dtype);
    return run_in(t, r);
}

/* ---- meeting ---- */

void talk_clear(Talk *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        stream_clear(&t->streams[i], t->c->members[i], t->streams[i].fd);
}

bool talk_run(Talk *t, Err *err)
{
    return streams_run(t->f, t->streams, t->n, err);
}

static bool open_lines(Talk *t, Err *err)
{
    const int64_t since_ns = net_now_ns();
    Fabric *f = t->f;
    t->streams = lane_streams(&f->lanes[t->c->lane], t->n);
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t rank = t->c->members[i];
        int fd = -1;
        while (rank != f->rank &&
               (fd = line_get(f, rank, t->c->lane, f->rank < rank, err)) < 0) {
            if (err->set)
                return false;
            if (atomic_load(&f->failed))
                return fabric_ended(f, err);
            watch_awaits(f, rank);
            net_sleep_ns(look_pause_ns(since_ns));
        }
        stream_clear(&t->streams[i], rank, fd);
    }
    return true;
}

static TalkHead head_of(Fabric *f, const CommCall *c)
{
    TalkHead h = { .key = collective_key(f, c),
                   .at_ns = c->at_ns,
                   .kind = c->kind,
                   .peer = c->peer,
                   .maximum = c->maximum,
                   .in_n = c->in_n,
                   .out_n = c->out_n };
    for (uint32_t k = 0; k < c->in_n; k++) {
        const Part *p = c->kind == OP_ALL_GATHER && c->out_n ? &c->out[k] : &c->in[k];
        h.elements = mix_u64(h.elements + p->elements * DTYPE_N + p->dtype);
    }
    return h;
}

static bool check_head(const Talk *t, uint32_t i, const TalkHead *mine, const TalkHead *their,
                       Err *err)
{
    const char *what = NULL;
    if (their->kind >= OP_KIND_N || their->key != mine->key)
        what = "calls a collective of another group, or skipped one,";
    else if (their->kind != mine->kind)
        what = "calls another collective";
    else if (their->in_n != mine->in_n || their->out_n != mine->out_n)
        what = "brings another number of pieces";
    else if (their->elements != mine->elements)
        what = "brings other sizes or formats";
    else if (their->peer != mine->peer || their->maximum != mine->maximum)
        what = "has another root or operation";
    if (!what)
        return true;
    collective_differs(t->f, t->c, i, what, err);
    return fabric_refuse(t->f, err);
}

static bool meet(Talk *t, Err *err)
{
    TalkHead mine = head_of(t->f, t->c);
    TalkHead *heads = mem_zero(t->n, sizeof *heads);
    bool ok = open_lines(t, err);
    for (uint32_t i = 0; i < t->n && ok; i++) {
        if (i == t->c->self)
            continue;
        stream_send(&t->streams[i], &mine, sizeof mine);
        stream_recv(&t->streams[i], &heads[i], sizeof heads[i]);
    }
    ok = ok && talk_run(t, err);
    t->c->met_ns = t->c->at_ns;
    t->c->met_wall_ns = net_now_ns();
    for (uint32_t i = 0; i < t->n && ok; i++) {
        if (i == t->c->self)
            continue;
        t->c->met_ns = max_i64(t->c->met_ns, heads[i].at_ns);
        ok = check_head(t, i, &mine, &heads[i], err);
    }
    free(heads);
    talk_clear(t);
    return ok;
}

/* ---- sums ---- */

typedef struct Reduction {
    Talk *t;
    uint64_t room; /* bytes of `received` for one member */
    uint8_t *received;
    const uint8_t **from;
} Reduction;

static bool is_other(const Talk *t, uint32_t i)
{
    return i != t->c->self;
}

/* Elements of segment s: to every owner its own, and ours from all. */
static void plan_elements(Reduction *r, uint64_t first)
{
    Talk *t = r->t;
    uint64_t end = first + SEGMENT_ELEMENTS;
    for (uint32_t i = 0; i < t->n; i++) {
        if (!is_other(t, i))
            continue;
        Run run;
        for (Walk w = walk_shards(t, i, first, end); walk_next(&w, &run);)
            stream_send(&t->streams[i], run_in(t, &run), run.bytes);
        uint8_t *to = r->received + i * r->room;
        for (Walk w = walk_shards(t, t->c->self, first, end); walk_next(&w, &run);) {
            stream_recv(&t->streams[i], to, run.bytes);
            to += run_room(&run);
        }
    }
}

/* Results of the segment: ours to whoever wants them, theirs from the others. */
static void plan_results(Talk *t, uint64_t first)
{
    uint64_t end = first + SEGMENT_ELEMENTS;
    bool all = t->c->kind == OP_ALL_REDUCE, to_root = t->c->kind == OP_REDUCE;
    for (uint32_t i = 0; i < t->n; i++) {
        if (!is_other(t, i))
            continue;
        Run run;
        if (all || (to_root && i == t->c->peer))
            for (Walk w = walk_shards(t, t->c->self, first, end); walk_next(&w, &run);)
                stream_send(&t->streams[i], run_in(t, &run), run.bytes);
        if (all || (to_root && t->c->self == t->c->peer))
            for (Walk w = walk_shards(t, i, first, end); walk_next(&w, &run);)
                stream_recv(&t->streams[i], run_in(t, &run), run.bytes);
    }
}

static void sum_segment(Reduction *r, uint64_t first)
{
    Talk *t = r->t;
    Run run;
    uint64_t at = 0;
    for (Walk w = walk_shards(t, t->c->self, first, first + SEGMENT_ELEMENTS);
         walk_next(&w, &run);) {
        for (uint32_t i = 0; i < t->n; i++)
            r->from[i] = is_other(t, i) ? r->received + i * r->room + at : run_in(t, &run);
        uint8_t *to = run_sum(t, &run);
        sum_vectors(&to, 1, r->from, t->n, run.n, run.dtype, t->c->maximum != 0);
        at += run_room(&run);
    }
}

static bool reduce_shards(Talk *t, Err *err)
{
    LaneState *lane = &t->f->lanes[t->c->lane];
    uint64_t longest = shard_elements(t, 0); /* later shards are cut off */
    uint64_t segment = min_u64(longest, SEGMENT_ELEMENTS);
    Reduction r = { .t = t, .room = (segment + t->c->in_n) * sizeof(uint64_t) };
    r.received = scratch_take(&lane->bytes, (size_t)(r.room * t->n));
    r.from = scratch_take(&lane->pointers, t->n * sizeof *r.from);
    for (uint64_t first = 0; first < longest + SEGMENT_ELEMENTS; first += SEGMENT_ELEMENTS) {
        talk_clear(t);
        if (first < longest)
            plan_elements(&r, first);
        if (first > 0)
            plan_results(t, first - SEGMENT_ELEMENTS);
        if (!talk_run(t, err))
            return false;
        if (first < longest)
            sum_segment(&r, first);
    }
    return true;
}

/* ---- copies ---- */

void talk_place_own(const Talk *t)
{
    Run run;
    if (t->c->kind != OP_ALL_GATHER || !t->c->out_n)
        return;
    for (Walk w = walk_shards(t, t->c->self, 0, NONE_U64); walk_next(&w, &run);)
        memmove(run_out(t, &run),
                part_at(t->f->arena, &t->c->in[run.k]) + run.in_shard * dtype_bytes(run.dtype),
                (size_t)run.bytes);
}

static bool gather_shards(Talk *t, Err *err)
{
    talk_place_own(t);
    for (uint32_t i = 0; i < t->n; i++) {
        Run run;
        if (!is_other(t, i))
            continue;
        for (Walk w = walk_shards(t, t->c->self, 0, NONE_U64); walk_next(&w, &run);)
            stream_send(&t->streams[i], run_out(t, &run), run.bytes);
        for (Walk w = walk_shards(t, i, 0, NONE_U64); walk_next(&w, &run);)
            stream_recv(&t->streams[i], run_out(t, &run), run.bytes);
    }
    return talk_run(t, err);
}

static bool broadcast(Talk *t, Err *err)
{
    const CommCall *c = t->c;
    for (uint32_t k = 0; k < c->in_n; k++) {
        uint8_t *at = part_at(t->f->arena, &c->in[k]);
        if (c->self != c->peer)
            stream_recv(&t->streams[c->peer], at, part_bytes(&c->in[k]));
        for (uint32_t i = 0; i < t->n && c->self == c->peer; i++)
            if (is_other(t, i))
                stream_send(&t->streams[i], at, part_bytes(&c->in[k]));
    }
    return talk_run(t, err);
}

static bool all_to_all(Talk *t, Err *err)
{
    const CommCall *c = t->c;
    for (uint32_t k = 0; k < c->in_n; k++) {
        uint64_t block = part_bytes(&c->in[k]) / t->n;
        uint8_t *in = part_at(t->f->arena, &c->in[k]), *out = part_at(t->f->arena, &c->out[k]);
        for (uint32_t i = 0; i < t->n; i++) {
            if (is_other(t, i)) {
                stream_send(&t->streams[i], in + i * block, block);
                stream_recv(&t->streams[i], out + i * block, block);
            } else if (block > 0) {
                memmove(out + i * block, in + i * block, (size_t)block);
            }
        }
    }
    return talk_run(t, err);
}

bool message_collective(Fabric *f, CommCall *c, Err *err)
{
    Talk t = { .f = f, .c = c, .n = c->members_n };
    if (!meet(&t, err))
        return false;
    switch (c->kind) {
    case OP_BROADCAST:
        return broadcast(&t, err);
    case OP_ALL_TO_ALL:
        return all_to_all(&t, err);
    case OP_REDUCE:
        return reduce_shards(&t, err);
    default:
        break;
    }
    if (f->rings && t.n > 1 && !c->maximum)
        return ring_collective(&t, err);
    return c->kind == OP_ALL_GATHER ? gather_shards(&t, err) : reduce_shards(&t, err);
}
