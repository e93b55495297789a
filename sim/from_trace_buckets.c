/*
 * from_trace_buckets.c - the gradients' all-reduces, cut into other buckets.
 *
 *     backward   |---|---|---|---|---|---|---|---|       main stream
 *     before           ^ar 4 MB    ^ar 6 MB     ^ar 2 MB   begins behind the op that
 *     after                   ^ar 8 MB          ^ar 4 MB   gives its last gradient
 *
 * Gradients are the all-reduces of known size off the main stream, of the group that
 * moves most there and is none of model parallelism.  Between two buckets they come
 * evenly with backward's time, those of the first one at the pace of the second; but
 * what a bucket has beyond the usual size is one large tensor, which comes whole, at
 * its end, and a bucket of less than twice the size asked for is one of that size, too:
 * what it ends with is whole as well.  What one op completes is in one bucket.  Host
 * time stays as it was: each new bucket is launched with the op that completes it.  Its
 * time is that of the old ones by latency + bytes / bandwidth, fitted to them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "sim/from_trace_parts.h"

enum { CUTS_MAX = 1 << 16 };

typedef struct Bucket {
    uint32_t item;
    uint32_t ready;     /* place in order of the last op of the main stream before it */
    uint64_t end_bytes; /* gradients up to its end */
} Bucket;

typedef struct Cut {
    uint64_t bytes; /* of the new bucket */
    uint64_t end_bytes;
    uint32_t behind; /* place in order of the op that completes it */
    uint32_t last;   /* old bucket in which it ends */
} Cut;

typedef struct Rebucket {
    RankProgram *p;
    const Timeline *t;
    Bucket *buckets;
    uint32_t n;
    uint64_t usual_bytes; /* of a bucket: the median */
    double latency_ns, ns_per_byte;
    Cut *cuts;
    uint32_t cuts_n, cuts_cap;
} Rebucket;

/* ---- which they are ---- */

/* Groups that share a model's work, not its gradients: the names of lockstep and of Megatron. */
static bool is_model_parallel(const char *group)
{
    static const char *const names[] = {
        "tp",     "cp",       "ep",      "pp",     "embedding",
        "TENSOR", "PIPELINE", "CONTEXT", "EXPERT", "EMBEDDING"
    };
    for (size_t i = 0; i < ARRAY_N(names); i++)
        if (strncmp(group, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static bool is_gradient(const Rebucket *r, const Item *i)
{
    return i->kind == ITEM_COMM && i->lane != LANE_COMPUTE && i->comm && i->bytes != NONE_U64 &&
           i->bytes > 0 && strcmp(timeline_text(r->t, i->comm->op), "all_reduce") == 0 &&
           !is_model_parallel(timeline_text(r->t, i->comm->group));
}

static uint64_t bytes_of_group(const Rebucket *r, uint32_t group, Lane lane)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < r->p->order_n; k++) {
        const Item *i = &r->p->items[r->p->order[k]];
        if (is_gradient(r, i) && i->comm->group == group && i->lane == lane)
            sum += i->bytes;
    }
    return sum;
}

static void find_buckets(Rebucket *r)
{
    const RankProgram *p = r->p;
    const Item *chosen = NULL;
    uint64_t most = 0;
    for (uint32_t k = 0; k < p->order_n; k++) {
        const Item *i = &p->items[p->order[k]];
        bool seen = chosen && i->comm && i->comm->group == chosen->comm->group &&
                    i->lane == chosen->lane;
        if (seen || !is_gradient(r, i))
            continue;
        uint64_t bytes = bytes_of_group(r, i->comm->group, i->lane);
        if (bytes > most) {
            most = bytes;
            chosen = i;
        }
    }
    r->buckets = mem_zero((size_t)p->order_n + 1, sizeof *r->buckets);
    uint32_t ready = 0;
    uint64_t sum = 0;
    for (uint32_t k = 0; k < p->order_n && chosen; k++) {
        const Item *i = &p->items[p->order[k]];
        if (i->kind != ITEM_SYNC && i->lane == LANE_COMPUTE)
            ready = k;
        if (!is_gradient(r, i) || i->comm->group != chosen->comm->group ||
            i->lane != chosen->lane)
            continue;
        sum += i->bytes;
        r->buckets[r->n++] = (Bucket){ p->order[k], ready, sum };
    }
}

/* ---- how long one takes ---- */

/* Least squares of time over bytes, neither part below 0; in proportion where sizes are all one. */
static void fit(Rebucket *r)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const Item *b = &r->p->items[r->buckets[i].item];
        double bytes = (double)b->bytes, ns = (double)b->transfer_ns;
        n++;
        x += bytes;
        y += ns;
        xx += bytes * bytes;
        xy += bytes * ns;
    }
    double spread = n * xx - x * x;
    r->ns_per_byte = spread > 1e-6 * n * xx ? (n * xy - x * y) / spread : y / x;
    r->latency_ns = (y - r->ns_per_byte * x) / n;
    if (r->latency_ns < 0 || r->ns_per_byte < 0) {
        r->latency_ns = 0;
        r->ns_per_byte = y / x;
    }
}

/* ---- where new ones end ---- */

static void find_usual(Rebucket *r)
{
    uint64_t *bytes = mem_zero(r->n, sizeof *bytes);
    for (uint32_t i = 0; i < r->n; i++)
        bytes[i] = r->p->items[r->buckets[i].item].bytes;
    qsort(bytes, r->n, sizeof *bytes, compare_u64);
    r->usual_bytes = bytes[r->n / 2];
    free(bytes);
}

/* A cut within a large tensor goes to its end, and so does one that is to hold most of a bucket. */
static uint64_t whole_tensors(const Rebucket *r, uint64_t done, uint64_t bytes)
{
    for (uint32_t k = 0; k < r->n; k++) {
        uint64_t begin = k ? r->buckets[k - 1].end_bytes : 0, end = r->buckets[k].end_bytes;
        bool most = done == begin && end - bytes < bytes - begin;
        if (bytes <= end)
            return most || bytes > begin + r->usual_bytes ? end : bytes;
    }
    return bytes;
}

/* Place in order of the op of the main stream by which `bytes` of gradients are there. */
static uint32_t place_of_bytes(const Rebucket *r, uint64_t bytes, uint32_t *bucket)
{
    uint32_t k = 0;
    while (k + 1 < r->n && r->buckets[k].end_bytes < bytes)
        k++;
    *bucket = k;
    const Bucket *b = &r->buckets[k];
    uint64_t begin_bytes = k ? b[-1].end_bytes : 0;
    uint64_t even_bytes = min_u64(b->end_bytes - begin_bytes, r->usual_bytes);
    if (bytes >= b->end_bytes || r->n < 2)
        return b->ready;
    const Item *items = r->p->items;
    const uint32_t *order = r->p->order;
    int64_t end_ns = items[order[b->ready]].end_ns, begin_ns;
    if (k > 0) {
        begin_ns = items[order[b[-1].ready]].end_ns;
    } else {
        double pace = (double)(items[order[b[1].ready]].end_ns - end_ns) /
                      (double)min_u64(b[1].end_bytes - b->end_bytes, r->usual_bytes);
        begin_ns = end_ns - (int64_t)(pace * (double)even_bytes);
    }
    double part = (double)(bytes - begin_bytes) / (double)even_bytes;
    int64_t at_ns = begin_ns + (int64_t)(part * (double)(end_ns - begin_ns));
    uint32_t place = b->ready;
    for (uint32_t i = b->ready; i-- > 0;) {
        const Item *op = &items[order[i]];
        if (op->kind == ITEM_SYNC || op->lane != LANE_COMPUTE)
            continue;
        if (op->end_ns < at_ns)
            break;
        place = i;
    }
    return place;
}

/* The first bucket stays as it was unless it is asked for: its size is another setting. */
static uint64_t first_bytes(const Rebucket *r, const FromTraceOptions *o)
{
    if (o->first_bucket_bytes)
        return o->first_bucket_bytes;
    return min_u64(r->buckets[0].end_bytes, o->bucket_bytes);
}

/* Gradients that the same op completes are not apart. */
static void add_cut(Rebucket *r, uint64_t begin, uint64_t end)
{
    Cut c = { .bytes = end - begin, .end_bytes = end };
    c.behind = place_of_bytes(r, end, &c.last);
    if (r->cuts_n > 0 && r->cuts[r->cuts_n - 1].behind == c.behind)
        c.bytes += r->cuts[--r->cuts_n].bytes;
    GROW(r->cuts, r->cuts_n, r->cuts_cap);
    r->cuts[r->cuts_n++] = c;
}

static bool cut(Rebucket *r, const FromTraceOptions *o, Err *err)
{
    uint64_t total = r->buckets[r->n - 1].end_bytes, done = 0;
    if (total / o->bucket_bytes >= CUTS_MAX)
        return err_set(err,
                       "buckets of %" PRIu64 " bytes are more than %d for the %" PRIu64
                       " bytes of gradients of rank %" PRIu32,
                       o->bucket_bytes, CUTS_MAX, total, r->p->rank);
    while (done < total) {
        uint64_t want = r->cuts_n == 0 ? first_bytes(r, o) : o->bucket_bytes;
        uint64_t end = whole_tensors(r, done, done + min_u64(want, total - done));
        add_cut(r, done, end);
        done = end;
    }
    return true;
}

/* ---- putting them in ---- */

static Item bucket_item(const Rebucket *r, const Cut *c)
{
    const Item *like = &r->p->items[r->buckets[c->last].item];
    double ns = r->latency_ns + r->ns_per_byte * (double)c->bytes;
    Item i = *like;
    i.bytes = c->bytes;
    i.launch_ns = 0;
    i.delay_ns = like->delay_ns;
    i.transfer_ns = llround(ns);
    i.deps_n = 0;
    item_dep(&i, r->p->order[c->behind]);
    return i;
}

/* Host time of what is gone is spent all the same: the next op's launch takes it over. */
static void put_in(Rebucket *r)
{
    RankProgram *p = r->p;
    uint32_t *added = mem_zero(r->cuts_n, sizeof *added);
    for (uint32_t c = 0; c < r->cuts_n; c++)
        added[c] = program_add(p, bucket_item(r, &r->cuts[c]));
    for (uint32_t i = 0, c = 0; i < r->n; i++) {
        while (c + 1 < r->cuts_n && r->cuts[c].end_bytes < r->buckets[i].end_bytes)
            c++;
        p->items[r->buckets[i].item].kind = ITEM_GONE;
        p->items[r->buckets[i].item].instead = added[c];
    }
    uint32_t *order = mem_zero((size_t)p->order_n + r->cuts_n + 1, sizeof *order);
    uint32_t n = 0, c = 0;
    int64_t owed_ns = 0;
    for (uint32_t k = 0; k < p->order_n; k++) {
        Item *i = &p->items[p->order[k]];
        if (i->kind == ITEM_GONE) {
            owed_ns += i->launch_ns;
        } else {
            i->launch_ns += owed_ns;
            owed_ns = 0;
            order[n++] = p->order[k];
        }
        while (c < r->cuts_n && r->cuts[c].behind == k)
            order[n++] = added[c++];
    }
    p->tail_ns += p->tail_ns > 0 ? owed_ns : 0;
    free(p->order);
    free(added);
    p->order = order;
    p->order_n = n;
}

bool from_trace_rebucket(RankProgram *p, const Timeline *t, const FromTraceOptions *o,
                         uint32_t *before, uint32_t *after, Err *err)
{
    Rebucket r = { .p = p, .t = t };
    find_buckets(&r);
    bool ok = r.n > 0 || err_set(err,
                                 "rank %" PRIu32
                                 " has no all-reduce of known size beside its main stream: "
                                 "there are no buckets to change",
                                 p->rank);
    if (ok) {
        fit(&r);
        find_usual(&r);
        ok = cut(&r, o, err);
    }
    if (ok)
        put_in(&r);
    *before = r.n;
    *after = r.cuts_n;
    free(r.buckets);
    free(r.cuts);
    return ok;
}
