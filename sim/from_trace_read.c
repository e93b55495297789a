/*
 * from_trace_read.c - what one rank launched in its step, and what each op waited for.
 *
 * An op's launch is the host's span of its correlation, or of its op id where nothing
 * is correlated.  A kernel may start before its launch call returns: it counts as
 * launched at its start then.  Where no launch is known the host is taken to be ahead.
 */
#include "sim/from_trace_parts.h"

#include <stdlib.h>
#include <string.h>

#include "core/cuda_names.h"

/* What starts so soon after its launch was not waiting for anything else: the launch's latency. */
#define LAUNCH_LATENCY_NS ((int64_t)8000)
/* A host call that returns up to so long before what it waited for is recorded as ended. */
#define SYNC_SLACK_NS ((int64_t)1000)
/* Spans of other streams looked at for one that ended in a gap. */
enum { LOOK_BACK = 64, LANES_FREE = 11 };

uint32_t program_add(RankProgram *p, Item item)
{
    GROW(p->items, p->items_n, p->items_cap);
    p->items[p->items_n] = item;
    return p->items_n++;
}

bool item_is_p2p(const Item *i, const Timeline *t)
{
    const char *op = i->comm ? timeline_text(t, i->comm->op) : "";
    return i->alone || strcmp(op, "send") == 0 || strcmp(op, "recv") == 0;
}

void item_dep(Item *item, uint32_t on)
{
    for (uint32_t i = 0; i < item->deps_n; i++)
        if (item->dep[i] == on)
            return;
    if (item->deps_n < ITEM_DEPS_MAX)
        item->dep[item->deps_n++] = on;
}

void traced_program_free(RankProgram *p)
{
    free(p->items);
    free(p->order);
    *p = (RankProgram){ 0 };
}

/* ---- launches ---- */

typedef struct Launch {
    uint64_t key;
    int64_t begin_ns, end_ns;
} Launch;

typedef struct Reader {
    const Timeline *t;
    const TraceWindow *w;
    RankProgram *p;
    bool correlated;
    Launch *launches;
    size_t launches_n, launches_cap;
    uint32_t *by_end; /* items by end */
    uint32_t main;    /* track of the main stream */
} Reader;

static int compare_launches(const void *x, const void *y)
{
    const Launch *p = x, *q = y;
    if (p->key != q->key)
        return p->key < q->key ? -1 : 1;
    return p->begin_ns < q->begin_ns ? -1 : p->begin_ns > q->begin_ns;
}

static uint64_t launch_key(const Reader *r, uint64_t span)
{
    if (r->correlated)
        return r->t->correlation[span];
    return r->t->op[span] == NONE_U32 ? NONE_U64 : r->t->op[span];
}

static bool in_window(const Reader *r, int64_t at_ns)
{
    return (r->w->unmarked || at_ns >= r->w->from_ns) && at_ns < r->w->to_ns;
}

static void add_launches(Reader *r, const Track *track)
{
    const Timeline *t = r->t;
    for (uint64_t i = track->span_first; i < track->span_first + track->span_n; i++) {
        uint64_t key = launch_key(r, i);
        if (key == NONE_U64 || (!r->correlated && t->span_class[i] != SPAN_LAUNCH))
            continue;
        GROW(r->launches, r->launches_n, r->launches_cap);
        r->launches[r->launches_n++] =
            (Launch){ key, t->start_ns[i], t->start_ns[i] + t->dur_ns[i] };
    }
}

/* By correlation, or the last of that op which began before the kernel did: ids of ops come again
 * every step. */
static const Launch *launch_of(const Reader *r, uint64_t span)
{
    int64_t after_ns = r->correlated ? INT64_MIN : r->t->start_ns[span] + 1;
    Launch key = { launch_key(r, span), after_ns, 0 };
    size_t low = 0, high = r->launches_n;
    while (low < high && key.key != NONE_U64) {
        size_t middle = (low + high) / 2;
        if (compare_launches(&r->launches[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (!r->correlated)
        low = low > 0 ? low - 1 : r->launches_n;
    bool found = low < r->launches_n && r->launches[low].key == key.key;
    return found && key.key != NONE_U64 ? &r->launches[low] : NULL;
}

/* ---- streams and lanes ---- */

static bool is_work(uint8_t class_)
{
    return class_ == SPAN_COMPUTE || class_ == SPAN_COMM || class_ == SPAN_P2P ||
           class_ == SPAN_MEMORY;
}

static int64_t time_of(const Timeline *t, const Track *k, bool comm)
{
    int64_t sum = 0;
    for (uint64_t i = k->span_first; i < k->span_first + k->span_n; i++) {
        bool is_comm = t->span_class[i] == SPAN_COMM || t->span_class[i] == SPAN_P2P;
        if (is_work(t->span_class[i]) && is_comm == comm)
            sum += t->dur_ns[i];
    }
    return sum;
}

static bool is_stream(const Reader *r, const Track *k)
{
    return k->kind == TRACK_STREAM && k->rank == r->w->rank;
}

static Lane lane_named(const char *name)
{
    for (Lane l = 0; l < LANE_HOST; l++)
        if (strcmp(name, lane_names[l]) == 0)
            return l;
    return LANE_N;
}

/* The stream that computes longest is the main one. */
static void find_main(Reader *r)
{
    int64_t longest = -1;
    r->main = NONE_U32;
    for (uint32_t i = 0; i < r->t->tracks_n; i++) {
        const Track *k = &r->t->tracks[i];
        int64_t ns = is_stream(r, k) ? time_of(r->t, k, false) : -1;
        if (ns > longest) {
            longest = ns;
            r->main = i;
        }
    }
}

/* How many streams that communicate (or do not) stand before this one: by sort, then number. */
static uint32_t place_of(const Reader *r, uint32_t track, bool comm)
{
    const Timeline *t = r->t;
    uint32_t place = 0;
    for (uint32_t i = 0; i < t->tracks_n; i++) {
        const Track *k = &t->tracks[i], *own = &t->tracks[track];
        bool before = k->sort < own->sort || (k->sort == own->sort && i < track);
        if (is_stream(r, k) && i != r->main && before && (time_of(t, k, true) > 0) == comm)
            place++;
    }
    return place;
}

/* A lane for each stream: those that communicate from one end, so that equal ones of two ranks
 * meet; the others from the other end.  What is too many shares a lane. */
static Lane lane_of(const Reader *r, uint32_t track)
{
    static const Lane lanes[LANES_FREE] = { LANE_REDUCE,    LANE_GATHER,   LANE_TP,
                                            LANE_CP,        LANE_EP,       LANE_REPLICATE,
                                            LANE_SEND_ACT,  LANE_RECV_ACT, LANE_SEND_GRAD,
                                            LANE_RECV_GRAD, LANE_COPY };
    const Track *k = &r->t->tracks[track];
    Lane named = lane_named(timeline_text(r->t, k->name));
    if (named != LANE_N)
        return named;
    if (track == r->main)
        return LANE_COMPUTE;
    bool comm = time_of(r->t, k, true) > 0;
    uint32_t place = place_of(r, track, comm) % LANES_FREE;
    return lanes[comm ? place : LANES_FREE - 1 - place];
}

/* ---- items ---- */

static Item item_of(const Reader *r, uint64_t span, Lane lane)
{
    const Timeline *t = r->t;
    uint8_t class_ = t->span_class[span];
    bool comm = class_ == SPAN_COMM || class_ == SPAN_P2P;
    const Comm *c = comm ? timeline_comm_of(t, span) : NULL;
    return (Item){ .kind = comm                    ? ITEM_COMM
                           : class_ == SPAN_MEMORY ? ITEM_COPY
                                                   : ITEM_KERNEL,
                   .lane = lane,
                   .name = timeline_text(t, t->span_name[span]),
                   .start_ns = t->start_ns[span],
                   .end_ns = t->start_ns[span] + t->dur_ns[span],
                   .instead = NONE_U32,
                   .peer_program = NONE_U32,
                   .comm = c,
                   .bytes = c ? c->bytes : NONE_U64,
                   .transfer_ns = t->dur_ns[span] - timeline_wait_ns(t, span) };
}

/* A copy that the host waited for: the call returned after the copy had ended. */
static void add_blocking(RankProgram *p, uint32_t item, const Launch *l)
{
    const Item *i = &p->items[item];
    if (i->kind != ITEM_COPY || l->end_ns < i->end_ns || l->begin_ns >= i->end_ns)
        return;
    Item sync = { .kind = ITEM_SYNC,
                  .name = "wait",
                  .launch_at_ns = i->launch_at_ns,
                  .start_ns = i->launch_at_ns,
                  .end_ns = l->end_ns,
                  .instead = NONE_U32,
                  .peer_program = NONE_U32,
                  .deps_n = 1,
                  .dep = { item } };
    program_add(p, sync);
}

/* Returns when what was launched before the step is done. */
static int64_t add_stream(Reader *r, uint32_t track)
{
    const Track *k = &r->t->tracks[track];
    Lane lane = lane_of(r, track);
    int64_t latest = r->w->unmarked ? INT64_MIN : r->w->from_ns, before_end_ns = INT64_MIN;
    for (uint64_t i = k->span_first; i < k->span_first + k->span_n; i++) {
        if (!is_work(r->t->span_class[i]))
            continue;
        const Launch *l = launch_of(r, i);
        Item item = item_of(r, i, lane);
        int64_t at_ns = l ? l->begin_ns : item.start_ns;
        if (at_ns < r->w->from_ns && !r->w->unmarked)
            before_end_ns = max_i64(before_end_ns, item.end_ns);
        if (!in_window(r, at_ns))
            continue;
        /* In the order of the stream, so never before the one ahead of it. */
        latest = max_i64(latest, l ? min_i64(l->end_ns, item.start_ns) : latest);
        item.launch_at_ns = latest;
        r->p->unlaunched_n += !l;
        uint32_t at = program_add(r->p, item);
        if (l)
            add_blocking(r->p, at, l);
    }
    return before_end_ns;
}

static bool is_sync(const Timeline *t, uint64_t span)
{
    return cuda_host_waits(t->span_class[span], timeline_text(t, t->span_name[span]));
}

static void add_syncs(Reader *r, const Track *k)
{
    const Timeline *t = r->t;
    for (uint64_t i = k->span_first; i < k->span_first + k->span_n; i++)
        if (is_sync(t, i) && in_window(r, t->start_ns[i]))
            program_add(r->p, (Item){ .kind = ITEM_SYNC,
                                      .name = "wait",
                                      .launch_at_ns = t->start_ns[i],
                                      .start_ns = t->start_ns[i],
                                      .end_ns = t->start_ns[i] + t->dur_ns[i],
                                      .instead = NONE_U32,
                                      .peer_program = NONE_U32 });
}

/* Where the GPU is still at work for what was launched before, and where no step is marked, the
 * step begins with its own first op; the host, ahead, has launched what it had by then. */
static void begin_in_gpu_time(Reader *r, int64_t before_end_ns)
{
    RankProgram *p = r->p;
    int64_t first_ns = INT64_MAX;
    for (uint32_t i = 0; i < p->items_n; i++)
        if (p->items[i].kind != ITEM_SYNC)
            first_ns = min_i64(first_ns, p->items[i].start_ns);
    bool late = before_end_ns > p->from_ns && first_ns >= p->from_ns;
    if (first_ns == INT64_MAX || !(late || r->w->unmarked))
        return;
    p->from_ns = first_ns;
    for (uint32_t i = 0; i < p->items_n; i++)
        p->items[i].launch_at_ns = max_i64(p->items[i].launch_at_ns, first_ns);
}

/* ---- order ---- */

/* Sort needs to see the items, and qsort hands over only what it sorts. */
typedef struct OrderKey {
    int64_t a, b;
    uint32_t item;
} OrderKey;

static int compare_keys(const void *x, const void *y)
{
    const OrderKey *p = x, *q = y;
    if (p->a != q->a)
        return p->a < q->a ? -1 : 1;
    if (p->b != q->b)
        return p->b < q->b ? -1 : 1;
    return p->item < q->item ? -1 : p->item > q->item;
}

static uint32_t *sorted(const RankProgram *p, bool by_end)
{
    OrderKey *keys = mem_zero((size_t)p->items_n + 1, sizeof *keys);
    uint32_t *order = mem_zero((size_t)p->items_n + 1, sizeof *order);
    for (uint32_t i = 0; i < p->items_n; i++) {
        const Item *it = &p->items[i];
        keys[i] = by_end ? (OrderKey){ it->end_ns, it->start_ns, i }
                         : (OrderKey){ it->launch_at_ns, it->start_ns, i };
        /* A wait for what is launched at the same moment stands behind it. */
        if (!by_end && it->kind == ITEM_SYNC && it->deps_n)
            keys[i].b = p->items[it->dep[0]].start_ns;
    }
    qsort(keys, p->items_n, sizeof *keys, compare_keys);
    for (uint32_t i = 0; i < p->items_n; i++)
        order[i] = keys[i].item;
    free(keys);
    return order;
}

/* ---- what an op waited for ---- */

/* Items by end up to a moment: how many. */
static uint32_t ended_by(const Reader *r, int64_t at_ns)
{
    uint32_t low = 0, high = r->p->items_n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (r->p->items[r->by_end[middle]].end_ns <= at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The last op of another stream, launched before `item`, to end after since_ns and before it. */
static uint32_t ended_in_gap(const Reader *r, const Item *item, const uint32_t *place,
                             uint32_t own_place, int64_t since_ns)
{
    uint32_t n = ended_by(r, item->start_ns);
    for (uint32_t k = 0; k < LOOK_BACK && k < n; k++) {
        uint32_t at = r->by_end[n - 1 - k];
        const Item *other = &r->p->items[at];
        if (other->end_ns <= since_ns)
            return NONE_U32;
        if (other->kind != ITEM_SYNC && other->lane != item->lane && place[at] < own_place)
            return at;
    }
    return NONE_U32;
}

static void find_deps(const Reader *r, uint32_t at, const uint32_t *place, uint32_t previous,
                      uint32_t main_item)
{
    Item *item = &r->p->items[at];
    int64_t ready = item->launch_at_ns;
    bool launch_bound = previous == NONE_U32 || r->p->items[previous].end_ns <= ready;
    if (previous != NONE_U32)
        ready = max_i64(ready, r->p->items[previous].end_ns);
    bool latency =
        launch_bound && item->start_ns - ready <= LAUNCH_LATENCY_NS && r->p->unlaunched_n == 0;
    uint32_t on =
        item->start_ns > ready ? ended_in_gap(r, item, place, place[at], ready) : NONE_U32;
    bool exact = on != NONE_U32 && r->p->items[on].end_ns == item->start_ns;
    if (on != NONE_U32 && (!latency || exact)) {
        item_dep(item, on);
        ready = r->p->items[on].end_ns;
    }
    if (item->kind == ITEM_COMM && main_item != NONE_U32 && item->lane != LANE_COMPUTE &&
        r->p->items[main_item].end_ns <= item->start_ns)
        item_dep(item, main_item);
    item->delay_ns = max_i64(item->start_ns - ready, 0);
}

/* The first op of the main stream after another stream's last communication waits for it. */
static void join_streams(RankProgram *p)
{
    uint32_t last[LANE_N], seen[LANE_N];
    for (uint32_t l = 0; l < LANE_N; l++)
        last[l] = seen[l] = NONE_U32;
    for (uint32_t k = 0; k < p->order_n; k++) {
        const Item *i = &p->items[p->order[k]];
        if (i->kind == ITEM_COMM && i->lane != LANE_COMPUTE) {
            last[i->lane] = p->order[k];
            seen[i->lane] = k;
        }
    }
    for (uint32_t l = 0; l < LANE_N; l++)
        for (uint32_t k = last[l] == NONE_U32 ? p->order_n : seen[l] + 1; k < p->order_n; k++) {
            Item *i = &p->items[p->order[k]];
            if (i->kind == ITEM_SYNC || i->lane != LANE_COMPUTE ||
                i->start_ns < p->items[last[l]].end_ns)
                continue;
            item_dep(i, last[l]);
            break;
        }
}

static void find_waits(Reader *r)
{
    RankProgram *p = r->p;
    uint32_t previous[LANE_N];
    uint32_t *place = mem_zero((size_t)p->items_n + 1, sizeof *place);
    r->by_end = sorted(p, true);
    for (uint32_t l = 0; l < LANE_N; l++)
        previous[l] = NONE_U32;
    for (uint32_t k = 0; k < p->order_n; k++)
        place[p->order[k]] = k;
    for (uint32_t k = 0; k < p->order_n; k++) {
        Item *i = &p->items[p->order[k]];
        if (i->kind == ITEM_SYNC)
            continue;
        find_deps(r, p->order[k], place, previous[i->lane], previous[LANE_COMPUTE]);
        previous[i->lane] = p->order[k];
    }
    free(r->by_end);
    free(place);
    join_streams(p);
}

/* ---- the host ---- */

/* A sync waited if what was launched before it ended while the call lasted; the last such op. */
static uint32_t waited_for(const RankProgram *p, uint32_t k)
{
    const Item *s = &p->items[p->order[k]];
    uint32_t found = NONE_U32;
    if (s->deps_n)
        return s->dep[0];
    for (uint32_t i = 0; i < k; i++) {
        if (p->order[i] == NONE_U32)
            continue;
        const Item *other = &p->items[p->order[i]];
        if (other->kind != ITEM_SYNC && other->end_ns > s->start_ns &&
            other->end_ns <= s->end_ns + SYNC_SLACK_NS &&
            (found == NONE_U32 || other->end_ns > p->items[found].end_ns))
            found = p->order[i];
    }
    return found;
}

/* Host time between launches; syncs that waited for nothing go. */
static void time_host(RankProgram *p)
{
    int64_t host_ns = p->from_ns;
    uint32_t kept = 0;
    for (uint32_t k = 0; k < p->order_n; k++) {
        Item *i = &p->items[p->order[k]];
        uint32_t on = i->kind == ITEM_SYNC ? waited_for(p, k) : NONE_U32;
        if (i->kind == ITEM_SYNC && (on == NONE_U32 || p->items[on].end_ns <= host_ns)) {
            i->kind = ITEM_GONE;
            p->order[k] = NONE_U32;
            continue;
        }
        i->launch_ns = max_i64(i->launch_at_ns - host_ns, 0);
        host_ns += i->launch_ns;
        if (on != NONE_U32) {
            i->deps_n = 0;
            item_dep(i, on);
            host_ns = max_i64(host_ns, p->items[on].end_ns);
        }
    }
    for (uint32_t k = 0; k < p->order_n; k++)
        if (p->order[k] != NONE_U32)
            p->order[kept++] = p->order[k];
    p->order_n = kept;
    int64_t last_ns = host_ns;
    for (uint32_t k = 0; k < kept; k++)
        last_ns = max_i64(last_ns, p->items[p->order[k]].end_ns);
    p->tail_ns = p->to_ns > last_ns ? p->to_ns - host_ns : 0;
}

bool from_trace_read(RankProgram *p, const Timeline *t, const TraceWindow *w)
{
    Reader r = { .t = t, .w = w, .p = p };
    *p = (RankProgram){ .rank = w->rank, .from_ns = w->from_ns, .to_ns = w->to_ns };
    for (uint64_t i = 0; t->correlation && i < t->spans_n && !r.correlated; i++)
        r.correlated = t->correlation[i] != NONE_U64;
    for (uint32_t i = 0; i < t->tracks_n; i++)
        if (t->tracks[i].rank == w->rank && t->tracks[i].kind == TRACK_HOST)
            add_launches(&r, &t->tracks[i]);
    if (r.launches_n)
        qsort(r.launches, r.launches_n, sizeof *r.launches, compare_launches);
    find_main(&r);
    int64_t before_end_ns = INT64_MIN;
    for (uint32_t i = 0; i < t->tracks_n; i++)
        if (is_stream(&r, &t->tracks[i]))
            before_end_ns = max_i64(before_end_ns, add_stream(&r, i));
    bool any = p->items_n > 0;
    for (uint32_t i = 0; i < t->tracks_n; i++)
        if (t->tracks[i].rank == w->rank && t->tracks[i].kind == TRACK_HOST)
            add_syncs(&r, &t->tracks[i]);
    free(r.launches);
    p->order = sorted(p, false); /* as the host called, before that is cut to the step */
    p->order_n = p->items_n;
    begin_in_gpu_time(&r, before_end_ns);
    find_waits(&r);
    time_host(p);
    return any;
}
