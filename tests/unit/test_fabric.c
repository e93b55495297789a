/*
 * test_fabric.c - collectives and messages among ranks that are real processes,
 * against plain loops over everybody's data.
 *
 * Every test runs in shared memory, over TCP on this host, and where it makes sense
 * round rings; all must give exactly the bits of the loop.
 */
#include <pthread.h>

#include "core/patterns/ring.h"
#include "tests/rank_world.h"

/* ---- numbers: a function of who, where and which ---- */

typedef struct Case {
    OpKind kind;
    DType dtype;
    bool with_out, maximum, rings;
    uint32_t pieces_n;
    uint64_t elements[3]; /* of the whole pieces */
    uint32_t members_n, self, peer;
    uint32_t members[RANKS_MAX];
    uint32_t number; /* of the case: other data each time */
} Case;

static uint64_t noise(uint32_t rank, uint32_t number, uint32_t k, uint64_t e)
{
    return mix_u64(mix_u64(rank + 1) ^ mix_u64(number * 8 + k) ^ e);
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint64_t encode(DType t, double x)
{
    uint32_t bits = bits_of((float)x);
    if (t == DTYPE_BF16)
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16 & 0xffff;
    if (t == DTYPE_F32)
        return bits;
    /* f16, of numbers that need no rounding */
    int e;
    double m = frexp(fabs(x), &e);
    uint32_t sign = x < 0 ? 0x8000 : 0;
    return m > 0 ? sign | (uint32_t)(e + 14) << 10 | (uint32_t)((m * 2 - 1) * 1024) : sign;
}

static float decode(DType t, uint64_t raw)
{
    if (t == DTYPE_BF16)
        return float_of((uint32_t)raw << 16);
    if (t == DTYPE_F32)
        return float_of((uint32_t)raw);
    if ((raw & 0x7fff) == 0)
        return 0;
    double m = 1 + (double)(raw & 1023) / 1024;
    return (float)ldexp(raw & 0x8000 ? -m : m, (int)(raw >> 10 & 31) - 15);
}

/* What rank r brings as element e of piece k. */
static uint64_t brings(const Case *c, uint32_t rank, uint32_t k, uint64_t e)
{
    uint64_t h = noise(rank, c->number, k, e);
    if (c->dtype == DTYPE_I64)
        return h;
    if (c->dtype == DTYPE_F16)
        return encode(DTYPE_F16, (double)(h % 65) - 32);
    double x = ldexp((double)(h >> 40) - (1 << 23), (int)(h % 12) - 20);
    return encode(c->dtype, x);
}

static uint64_t combine(const Case *c, uint64_t a, uint64_t b)
{
    if (c->dtype == DTYPE_I64 && c->maximum)
        return (int64_t)b > (int64_t)a ? b : a;
    if (c->dtype == DTYPE_I64)
        return a + b;
    float x = decode(c->dtype, a), y = decode(c->dtype, b);
    return encode(c->dtype, c->maximum ? (y > x ? y : x) : x + y);
}

/* The sum of all members, in the order that fabric.h promises. */
static uint64_t sum_of(const Case *c, uint32_t k, uint64_t e)
{
    uint32_t n = c->members_n;
    if (c->rings && !c->maximum && c->kind != OP_REDUCE) {
        uint64_t each = (c->elements[k] + n - 1) / n;
        uint32_t b = (uint32_t)(e / each);
        uint64_t sum = brings(c, c->members[(b + 1) % n], k, e);
        for (uint32_t i = 2; i <= n; i++)
            sum = combine(c, sum, brings(c, c->members[(b + i) % n], k, e));
        return sum;
    }
    if (c->dtype == DTYPE_I64 || c->maximum) {
        uint64_t sum = brings(c, c->members[0], k, e);
        for (uint32_t i = 1; i < n; i++)
            sum = combine(c, sum, brings(c, c->members[i], k, e));
        return sum;
    }
    float sum = decode(c->dtype, brings(c, c->members[0], k, e));
    for (uint32_t i = 1; i < n; i++)
        sum += decode(c->dtype, brings(c, c->members[i], k, e));
    return encode(c->dtype, sum);
}

/* ---- one case on one rank ---- */

enum { ROOM = 40000, FILLER = 0xa5 }; /* bytes for one piece of one list */

static void store(uint8_t *at, DType t, uint64_t e, uint64_t raw)
{
    uint64_t size = dtype_bytes(t);
    memcpy(at + e * size, &raw, size); /* little-endian */
}

static uint64_t load(const uint8_t *at, DType t, uint64_t e)
{
    uint64_t raw = 0, size = dtype_bytes(t);
    memcpy(&raw, at + e * size, size);
    return raw;
}

/* Member `who` brings element e of the whole piece in an in-place all_gather. */
static uint32_t owner_of(const Case *c, uint32_t k, uint64_t e)
{
    return (uint32_t)(e / ((c->elements[k] + c->members_n - 1) / c->members_n));
}

static void make_parts(const Case *c, Part *in, Part *out)
{
    for (uint32_t k = 0; k < c->pieces_n; k++) {
        uint64_t n = c->elements[k];
        BlockRange own = ring_block(n, c->self, c->members_n);
        /* Ranks keep things at different places. */
        uint64_t offset = 64 + 2 * k * ROOM + 64 * c->members[c->self];
        in[k] = (Part){ .offset = offset, .elements = n, .dtype = c->dtype };
        out[k] = (Part){ .offset = offset + ROOM, .elements = n, .dtype = c->dtype };
        if (c->with_out && c->kind == OP_ALL_GATHER)
            in[k].elements = own.n;
        if (c->with_out && c->kind == OP_REDUCE_SCATTER)
            out[k].elements = own.n;
    }
}

static void fill(Fabric *f, const Case *c, const Part *in)
{
    uint8_t *arena = fabric_arena(f);
    uint32_t me = c->members[c->self];
    memset(arena, FILLER, 6 * ROOM + 64 * RANKS_MAX + 64);
    for (uint32_t k = 0; k < c->pieces_n; k++)
        for (uint64_t e = 0; e < in[k].elements; e++)
            store(arena + in[k].offset, c->dtype, e, brings(c, me, k, e));
}

/* The definition: what element e of the result of piece k is on this rank. */
static bool expect(const Case *c, uint32_t k, uint64_t e, uint64_t *raw)
{
    uint32_t n = c->members_n;
    BlockRange own = ring_block(c->elements[k], c->self, n);
    switch (c->kind) {
    case OP_ALL_REDUCE:
        *raw = sum_of(c, k, e);
        return true;
    case OP_REDUCE:
        *raw = sum_of(c, k, e);
        return c->self == c->peer;
    case OP_REDUCE_SCATTER:
        if (c->with_out) {
            *raw = sum_of(c, k, own.first + e);
            return true;
        }
        *raw = sum_of(c, k, e);
        return e >= own.first && e < own.first + own.n;
    case OP_ALL_GATHER: {
        uint32_t who = owner_of(c, k, e);
        uint64_t first = ring_block(c->elements[k], who, n).first;
        *raw = brings(c, c->members[who], k, c->with_out ? e - first : e);
        return true;
    }
    case OP_BROADCAST:
        *raw = brings(c, c->members[c->peer], k, e);
        return true;
    default: {
        uint64_t block = c->elements[k] / n;
        *raw = brings(c, c->members[e / block], k, c->self * block + e % block);
        return true;
    }
    }
}

static bool check_result(Fabric *f, const Case *c, const Part *in, const Part *out)
{
    const uint8_t *arena = fabric_arena(f);
    bool ok = true;
    for (uint32_t k = 0; k < c->pieces_n && ok; k++) {
        const Part *p = c->with_out ? &out[k] : &in[k];
        for (uint64_t e = 0; e < p->elements && ok; e++) {
            uint64_t raw;
            if (expect(c, k, e, &raw))
                ok = CHECK_U64(raw, load(arena + p->offset, c->dtype, e));
        }
        /* Nothing beyond; and what is only read stays. */
        const uint8_t *end = arena + p->offset + p->elements * dtype_bytes(c->dtype);
        for (int i = 0; i < 16; i++)
            ok = CHECK_INT(FILLER, end[i]) && ok;
        for (uint64_t e = 0; c->with_out && e < in[k].elements && ok; e++)
            ok = CHECK_U64(brings(c, c->members[c->self], k, e),
                           load(arena + in[k].offset, c->dtype, e));
    }
    if (!ok)
        fprintf(stderr, "case %u: %s %s with_out %d members %u self %u elements %d\n",
                c->number, op_kind_names[c->kind], dtype_names[c->dtype], c->with_out,
                c->members_n, c->self, (int)c->elements[0]);
    return ok;
}

static bool run_case(Fabric *f, const Case *c)
{
    Part in[3], out[3];
    Err err = { 0 };
    make_parts(c, in, out);
    fill(f, c, in);
    CommCall call = { .kind = c->kind,
                      .lane = LANE_REDUCE,
                      .members_n = c->members_n,
                      .self = c->self,
                      .peer = c->peer,
                      .members = c->members,
                      .in_n = c->pieces_n,
                      .in = in,
                      .out_n = c->with_out ? c->pieces_n : 0,
                      .out = out,
                      .maximum = c->maximum,
                      .at_ns = 1000 + 7 * c->members[c->self] };
    if (!CHECK(fabric_run(f, &call, 1, &err))) {
        fprintf(stderr, "%s\n", err.text);
        return false;
    }
    int64_t latest = 0;
    for (uint32_t i = 0; i < c->members_n; i++)
        latest = max_i64(latest, 1000 + 7 * c->members[i]);
    return check_result(f, c, in, out) && CHECK_INT(latest, call.met_ns) &&
           CHECK(call.met_wall_ns > 0 && call.met_wall_ns <= net_now_ns());
}

/* ---- all cases ---- */

/* Subset `which` of the world, in some order. */
static uint32_t choose_members(uint32_t world, uint32_t which, uint32_t *members)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < world; i++) {
        uint32_t r = which == 1 ? world - 1 - i : which == 2 ? (i + 1) % world : i;
        if (which < 3 || (which == 3 && r != 0) || (which == 4 && r % 2 == 0))
            members[n++] = r;
    }
    return n;
}

static bool place_case(Case *c, const RankPlace *place, uint32_t which)
{
    c->members_n = choose_members(place->world, which, c->members);
    c->peer = c->members_n ? c->number % c->members_n : 0;
    for (c->self = 0; c->self < c->members_n; c->self++)
        if (c->members[c->self] == place->rank)
            return true;
    return false;
}

static const uint64_t sizes[][3] = { { 1, 0, 0 },     { 2, 3, 0 },          { 7, 64, 5 },
                                     { 1000, 1, 33 }, { 4099, 1023, 2048 }, { 0, 0, 0 } };

static bool make_case(Case *c, uint32_t number, bool rings)
{
    static const DType types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I64 };
    uint32_t kinds_n = OP_ALL_TO_ALL - OP_ALL_REDUCE + 1, n = number;
    *c = (Case){ .number = number, .rings = rings };
    c->kind = (OpKind)((uint32_t)OP_ALL_REDUCE + n % kinds_n);
    n /= kinds_n;
    c->dtype = types[n % ARRAY_N(types)];
    n /= ARRAY_N(types);
    c->with_out = n % 2;
    n /= 2;
    memcpy(c->elements, sizes[n % ARRAY_N(sizes)], sizeof c->elements);
    c->pieces_n = 1 + number % 3;
    c->maximum = c->kind == OP_ALL_REDUCE && c->with_out; /* the second half of its cases */
    if (c->kind == OP_ALL_TO_ALL)
        c->with_out = true;
    else if (c->kind != OP_ALL_GATHER && c->kind != OP_REDUCE_SCATTER)
        c->with_out = false;
    return n < ARRAY_N(sizes);
}

static void run_all_cases(Fabric *f, const RankPlace *place, bool rings)
{
    Case c;
    for (uint32_t number = 0; make_case(&c, number, rings); number++)
        for (uint32_t which = 0; which < 5; which++) {
            if (!check_takes(number * 5 + which) || !place_case(&c, place, which))
                continue;
            for (uint32_t k = 0; c.kind == OP_ALL_TO_ALL && k < c.pieces_n; k++)
                c.elements[k] -= c.elements[k] % c.members_n;
            if (!run_case(f, &c))
                return;
            make_case(&c, number, rings);
        }
}

static void body_cases(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    run_all_cases(f, place, false);
}

static void body_ring_cases(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    run_all_cases(f, place, true);
}

static void collectives_in_shared_memory_are_the_plain_loop(void)
{
    for (uint32_t n = 1; n <= 4; n++)
        CHECK_INT(0, ranks_run(n, &(RankOptions){ 0 }, body_cases));
}

static void collectives_over_tcp_are_the_plain_loop(void)
{
    for (uint32_t n = 2; n <= 4; n++)
        CHECK_INT(0, ranks_run(n, &(RankOptions){ .tcp = true }, body_cases));
}

static void collectives_round_rings_are_summed_in_ring_order(void)
{
    for (uint32_t n = 2; n <= 4; n++)
        CHECK_INT(0, ranks_run(n, &(RankOptions){ .rings = true }, body_ring_cases));
}

/* ---- long vectors, and more pieces than a slot holds ---- */

static void body_long(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    enum { LONG = 700001, PIECES = 5000 };
    uint32_t members[RANKS_MAX], *at = (uint32_t *)(void *)fabric_arena(f);
    float *x = (float *)(void *)at;
    Err err = { 0 };
    for (uint32_t i = 0; i < place->world; i++)
        members[i] = i;
    for (uint32_t i = 0; i < LONG; i++)
        x[i] = (float)(i % 1000 + place->rank);
    Part *parts = mem_zero(PIECES, sizeof *parts);
    for (uint32_t k = 0; k < PIECES; k++) /* 140 elements each, the last one takes the rest */
        parts[k] = (Part){ .offset = 560 * (uint64_t)k,
                           .elements = k + 1 < PIECES ? 140 : LONG - 140 * (PIECES - 1) };
    Part whole = { .elements = LONG };
    CommCall c = { .kind = OP_ALL_REDUCE, .members_n = place->world, .self = place->rank };
    c.members = members;
    c.in = &whole;
    c.in_n = 1;
    CHECK(fabric_run(f, &c, 1, &err));
    c.in = parts;
    c.in_n = PIECES;
    CHECK(fabric_run(f, &c, 1, &err));
    float n = (float)place->world, ranks = n * (n - 1) / 2;
    uint32_t wrong_n = 0;
    for (uint32_t i = 0; i < LONG; i++)
        wrong_n += x[i] != n * (n * (float)(i % 1000) + ranks);
    CHECK_INT(0, wrong_n);
    free(parts);
}

static void long_vectors_and_long_lists_come_through(void)
{
    for (int tcp = 0; tcp < 2; tcp++)
        for (uint32_t n = 2; n <= 3; n++) {
            RankOptions o = { .tcp = tcp, .arena_bytes = 4 * MIB };
            CHECK_INT(0, ranks_run(n, &o, body_long));
            o.rings = true;
            CHECK_INT(0, ranks_run(n, &o, body_long));
        }
}

/* ---- messages ---- */

/* Two members: this rank first, so that peer 1 is the other one. */
static CommCall message(OpKind kind, Lane lane, const uint32_t *pair, const Part *part)
{
    return (CommCall){ .kind = kind,
                       .lane = lane,
                       .members_n = 2,
                       .self = 0,
                       .peer = 1,
                       .members = pair,
                       .in_n = 1,
                       .in = part };
}

/* Everybody sends to the right and receives from the left, at once: alone, this blocks. */
static void body_grouped_ring(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    enum { N = 300000 };
    uint32_t world = place->world, me = place->rank;
    uint32_t right[2] = { me, (me + 1) % world }, left[2] = { me, (me + world - 1) % world };
    int64_t *x = (int64_t *)(void *)fabric_arena(f);
    Part out = { .elements = N, .dtype = DTYPE_I64 };
    Part in = { .offset = N * 8, .elements = N, .dtype = DTYPE_I64 };
    Err err = { 0 };
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < N; i++)
            x[i] = (int64_t)me * 1000000 + i + round;
        CommCall calls[2] = { message(OP_SEND, LANE_SEND_ACT, right, &out),
                              message(OP_RECV, LANE_RECV_ACT, left, &in) };
        calls[0].at_ns = calls[1].at_ns = 100 * (int64_t)me + round;
        if (!CHECK(fabric_run(f, calls, 2, &err))) {
            fprintf(stderr, "%s\n", err.text);
            return;
        }
        CHECK_INT(100 * (int64_t)max_u64(me, right[1]) + round, calls[0].met_ns);
        CHECK_INT(100 * (int64_t)max_u64(me, left[1]) + round, calls[1].met_ns);
        int wrong_n = 0;
        for (int i = 0; i < N; i++)
            wrong_n += x[N + i] != (int64_t)left[1] * 1000000 + i + round;
        CHECK_INT(0, wrong_n);
    }
}

static void grouped_messages_go_round_a_ring_without_blocking(void)
{
    for (int tcp = 0; tcp < 2; tcp++)
        for (uint32_t n = 1; n <= 4; n++) {
            RankOptions o = { .tcp = tcp, .arena_bytes = 6 * MIB };
            CHECK_INT(0, ranks_run(n, &o, body_grouped_ring));
        }
}

/* Tags are streams of their own; within one the order holds; pieces may be cut otherwise. */
static void body_tags(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    enum { ROUNDS = 20 };
    int32_t *x = (int32_t *)(void *)fabric_arena(f);
    uint32_t me = place->rank, pair[2] = { me, 1 - me };
    Err err = { 0 };
    for (int round = 0; round < ROUNDS; round++) {
        CommCall calls[4];
        Part parts[4][2];
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t tag = me == 0 ? i : 3 - i; /* the receiver asks the other way round */
            x[10 * i] = x[10 * i + 1] = me == 0 ? (int32_t)(100 * round + (int)tag) : -1;
            parts[i][0] = (Part){ .offset = 40 * i, .elements = me + 1, .dtype = DTYPE_I32 };
            parts[i][1] =
                (Part){ .offset = 40 * i + 4, .elements = 1 - me, .dtype = DTYPE_I32 };
            calls[i] = message(me == 0 ? OP_SEND : OP_RECV, LANE_SEND_GRAD, pair, parts[i]);
            calls[i].in_n = 2;
            calls[i].tag = tag;
        }
        if (!CHECK(fabric_run(f, calls, 4, &err)))
            return;
        for (uint32_t i = 0; me == 1 && i < 4; i++) {
            CHECK_INT(100 * round + 3 - (int)i, x[10 * i]);
            CHECK_INT(100 * round + 3 - (int)i, x[10 * i + 1]);
        }
    }
}

static void messages_match_in_order_per_tag(void)
{
    for (int tcp = 0; tcp < 2; tcp++)
        CHECK_INT(0, ranks_run(2, &(RankOptions){ .tcp = tcp }, body_tags));
}

/* ---- many lanes at once ---- */

typedef struct LaneWork {
    Fabric *f;
    const RankPlace *place;
    Lane lane;
    bool ok;
    char text[1024];
} LaneWork;

static void *lane_main(void *user)
{
    LaneWork *w = user;
    enum { N = 1500, ROUNDS = 60 };
    uint32_t members[RANKS_MAX];
    uint64_t offset = (uint64_t)w->lane * N * 8;
    int64_t *x = (int64_t *)(void *)(fabric_arena(w->f) + offset);
    Part part = { .offset = offset, .elements = N, .dtype = DTYPE_I64 };
    Err err = { 0 };
    for (uint32_t i = 0; i < w->place->world; i++)
        members[i] = i;
    CommCall c = { .kind = OP_ALL_REDUCE, .lane = w->lane, .members_n = w->place->world };
    c.self = w->place->rank;
    c.members = members;
    c.in_n = 1;
    c.in = &part;
    w->ok = true;
    for (int round = 0; round < ROUNDS && w->ok; round++) {
        for (int i = 0; i < N; i++)
            x[i] = (int64_t)w->lane * 1000 + i + round;
        w->ok = fabric_run(w->f, &c, 1, &err);
        for (int i = 0; i < N; i++)
            w->ok = w->ok &&
                    x[i] == ((int64_t)w->lane * 1000 + i + round) * (int64_t)w->place->world;
    }
    memcpy(w->text, err.text, sizeof w->text);
    return NULL;
}

/* Pairs of ranks send back and forth on two threads, as a pipeline does. */
static void *mover_main(void *user)
{
    LaneWork *w = user;
    enum { N = 4000, ROUNDS = 60 };
    uint32_t me = w->place->rank, other = me ^ 1;
    bool sends = w->lane == LANE_SEND_ACT;
    uint64_t offset = MIB / 2 + (sends ? 0 : N * 8);
    int64_t *x = (int64_t *)(void *)(fabric_arena(w->f) + offset);
    uint32_t pair[2] = { me, other };
    Part part = { .offset = offset, .elements = N, .dtype = DTYPE_I64 };
    Err err = { 0 };
    w->ok = true;
    for (int round = 0; round < ROUNDS && other < w->place->world && w->ok; round++) {
        for (int i = 0; sends && i < N; i++)
            x[i] = (int64_t)me + round + i;
        CommCall c = message(sends ? OP_SEND : OP_RECV, w->lane, pair, &part);
        w->ok = fabric_run(w->f, &c, 1, &err);
        for (int i = 0; !sends && i < N; i++)
            w->ok = w->ok && x[i] == (int64_t)other + round + i;
    }
    memcpy(w->text, err.text, sizeof w->text);
    return NULL;
}

static void body_lanes(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    static const Lane lanes[] = { LANE_TP,     LANE_CP,       LANE_REDUCE,
                                  LANE_GATHER, LANE_SEND_ACT, LANE_RECV_ACT };
    enum { LANES = ARRAY_N(lanes) };
    static LaneWork work[LANES];
    pthread_t threads[LANES];
    for (size_t i = 0; i < LANES; i++) {
        work[i] = (LaneWork){ .f = f, .place = place, .lane = lanes[i] };
        pthread_create(&threads[i], NULL, i < 4 ? lane_main : mover_main, &work[i]);
    }
    for (size_t i = 0; i < LANES; i++) {
        pthread_join(threads[i], NULL);
        if (!CHECK(work[i].ok))
            fprintf(stderr, "lane %s: %s\n", lane_names[work[i].lane], work[i].text);
    }
}

static void lanes_do_not_wait_for_each_other(void)
{
    for (int tcp = 0; tcp < 2; tcp++)
        for (uint32_t n = 2; n <= 4; n++)
            CHECK_INT(0, ranks_run(n, &(RankOptions){ .tcp = tcp }, body_lanes));
}

/* ---- the whole world ---- */

static void body_world(Fabric *f, const RankPlace *place, RankPage *page)
{
    CHECK(fabric_shares_memory(f) == (place->world != 3)); /* that goes by TCP, see below */
    (void)page;
    Err err = { 0 };
    uint32_t all[RANKS_MAX] = { 0 }, mine = 100 + place->rank;
    for (int round = 0; round < 3; round++) {
        CHECK(fabric_barrier(f, &err));
        CHECK(fabric_share(f, &mine, all, sizeof mine, &err));
        for (uint32_t r = 0; r < place->world; r++)
            CHECK_INT(100 + r, all[r]);
        size_t n = place->rank == 1 ? 0 : 100000 * (size_t)place->rank + 1, *sizes_got;
        uint8_t *bytes = mem_zero(n, 1);
        memset(bytes, (int)place->rank + 1, n);
        void **got;
        CHECK(fabric_gather(f, bytes, n, &got, &sizes_got, &err));
        CHECK((got != NULL) == (place->rank == 0));
        for (uint32_t r = 0; got && r < place->world; r++) {
            CHECK_U64(r == 1 ? 0 : 100000 * r + 1, sizes_got[r]);
            CHECK(sizes_got[r] == 0 || ((uint8_t *)got[r])[sizes_got[r] - 1] == r + 1);
            free(got[r]);
        }
        free(got);
        free(sizes_got);
        free(bytes);
    }
}

static void the_world_meets_shares_and_gathers(void)
{
    for (uint32_t n = 1; n <= 4; n++)
        CHECK_INT(0, ranks_run(n, &(RankOptions){ .tcp = n == 3 }, body_world));
}

/* ---- calls that do not fit together ---- */

static void body_mismatch(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    uint32_t members[2] = { 0, 1 };
    Part part = { .elements = 64 };
    Err err = { 0 };
    CommCall c = { .kind = place->rank ? OP_BROADCAST : OP_ALL_REDUCE, .members_n = 2 };
    c.self = place->rank;
    c.members = members;
    c.in_n = 1;
    c.in = &part;
    CHECK(!fabric_run(f, &c, 1, &err));
    CHECK_ERR_TEXT(&err, "on lane 'compute' where rank");
    CHECK(fabric_failure(f) != NULL);
    Err again = { 0 };
    CHECK(!fabric_run(f, &c, 1, &again));
    CHECK(!fabric_barrier(f, &again));
}

static void body_wrong_sizes(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    uint32_t pair[2] = { place->rank, 1 - place->rank };
    Part part = { .elements = 64 + place->rank };
    Err err = { 0 };
    CommCall c = message(place->rank ? OP_SEND : OP_RECV, LANE_COMPUTE, pair, &part);
    CHECK(!fabric_run(f, &c, 1, &err));
    CHECK_ERR_TEXT(&err, "rank 1 sends 260 bytes where rank 0 receives 256 (tag 0)");
}

static void calls_that_differ_end_the_job_with_a_sentence(void)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        CHECK_INT(0, ranks_run(2, &(RankOptions){ .tcp = tcp }, body_mismatch));
        CHECK_INT(0, ranks_run(2, &(RankOptions){ .tcp = tcp }, body_wrong_sizes));
    }
}

static void body_bad_calls(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    uint32_t self[1] = { place->rank };
    Part part = { .offset = MIB - 4, .elements = 2 };
    Err err = { 0 };
    CommCall c = { .kind = OP_ALL_REDUCE, .members_n = 1, .members = self, .in_n = 1 };
    c.in = &part;
    CHECK(!fabric_run(f, &c, 1, &err));
    CHECK_ERR_TEXT(&err, "piece 0 of all_reduce lies outside the arena of 1048576 bytes");
}

static void a_piece_outside_the_arena_is_refused(void)
{
    CHECK_INT(0, ranks_run(1, &(RankOptions){ 0 }, body_bad_calls));
}

static void a_place_that_cannot_be_is_refused(void)
{
    Fabric *f;
    Err err = { 0 };
    CHECK(!fabric_open(&f, &(RankPlace){ .rank = 2, .world = 2, .timeout_s = 1 }, 64, &err));
    CHECK_ERR_TEXT(&err, "rank 2 of 2 does not exist");
    err_clear(&err);
    CHECK(!fabric_open(&f, &(RankPlace){ .rank = 1, .world = 2, .timeout_s = 1 }, 64, &err));
    CHECK_ERR_TEXT(&err, "--rendezvous tcp://HOST:PORT or file:PATH");
    err_clear(&err);
    CHECK(!fabric_open(&f, &(RankPlace){ .world = 1 }, 64, &err));
    CHECK_ERR_TEXT(&err, "a time-out of 0 s");
    err_clear(&err);
    RankPlace alone = { .world = 1, .timeout_s = 1 };
    CHECK(!fabric_open(&f, &alone, (uint64_t)1 << 50, &err));
    CHECK_ERR_TEXT(&err, "a rank needs 1.05e+06 GiB of memory");
    fabric_close(NULL);
}

int main(void)
{
    RUN(collectives_in_shared_memory_are_the_plain_loop);
    RUN(collectives_over_tcp_are_the_plain_loop);
    RUN(collectives_round_rings_are_summed_in_ring_order);
    RUN(long_vectors_and_long_lists_come_through);
    RUN(grouped_messages_go_round_a_ring_without_blocking);
    RUN(messages_match_in_order_per_tag);
    RUN(lanes_do_not_wait_for_each_other);
    RUN(the_world_meets_shares_and_gathers);
    RUN(calls_that_differ_end_the_job_with_a_sentence);
    RUN(a_piece_outside_the_arena_is_refused);
    RUN(a_place_that_cannot_be_is_refused);
    return check_report();
}
