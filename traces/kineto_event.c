/*
 * kineto_event.c - one event's members, found by how the events before were laid out,
 * else by hashing their keys.
 *
 * Keys come in any order, and most of those in args mean nothing to us: a table
 * of 512 slots, made once, tells them apart with one comparison at most.
 */
#include <pthread.h>

#include "traces/kineto_parts.h"

/* ---- keys ---- */

/* A key of up to 32 bytes: its first 8 bytes, and its last 8 where it is longer. */
typedef struct Key {
    uint64_t first, last;
    const char *text;
    uint8_t number; /* + 1; 0: a free slot */
    uint8_t n;
} Key;

enum { KEY_SLOTS_N = 512 };

typedef struct KeyTable {
    Key slot[KEY_SLOTS_N];
} KeyTable;

static inline uint64_t load8(const void *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* The first up to 8 of n bytes; reads 8, which the scanner's padding allows. */
static inline uint64_t first_bytes(const uint8_t *p, uint32_t n)
{
    static const uint64_t keep[9] = { 0,
                                      0xff,
                                      0xffff,
                                      0xffffff,
                                      0xffffffff,
                                      0xffffffffff,
                                      0xffffffffffff,
                                      0xffffffffffffff,
                                      0xffffffffffffffff };
    const uint8_t order[8] = { 1 };
    uint64_t x = load8(p), mask = keep[n < 8 ? n : 8];
    if (load8(order) != 1) /* the first byte is the highest one */
        mask = __builtin_bswap64(mask);
    return x & mask;
}

static inline uint32_t key_hash(uint64_t first, uint32_t n)
{
    return (uint32_t)(((first + n) * 0x9e3779b97f4a7c15u) >> 55);
}

static void key_add(KeyTable *table, const char *text, uint8_t number)
{
    uint8_t padded[48] = { 0 };
    uint32_t n = (uint32_t)strlen(text);
    ASSERT(n > 0 && n <= 32);
    memcpy(padded, text, n);
    Key key = { first_bytes(padded, n), n > 8 ? load8(padded + n - 8) : 0, text,
                (uint8_t)(number + 1), (uint8_t)n };
    uint32_t i = key_hash(key.first, n);
    while (table->slot[i].number)
        i = (i + 1) % KEY_SLOTS_N;
    table->slot[i] = key;
}

static inline bool key_is(const Key *k, uint64_t first, const ScanText *text)
{
    if (k->first != first || k->n != text->n)
        return false;
    if (k->n > 8 && k->last != load8(text->at + k->n - 8))
        return false;
    return k->n <= 16 || memcmp(k->text, text->at, k->n) == 0;
}

/* The number the key was added with, or -1. */
SCAN_INLINE int key_find(const KeyTable *table, const ScanText *key)
{
    uint64_t first = first_bytes(key->at, key->n);
    for (uint32_t i = key_hash(first, key->n);; i = (i + 1) % KEY_SLOTS_N) {
        const Key *k = &table->slot[i];
        if (k->number == 0)
            return -1;
        if (key_is(k, first, key))
            return k->number - 1;
    }
}

typedef struct MemberKey {
    const char *text;
    Member member;
} MemberKey;

static const MemberKey member_keys[] = {
    { "ph", MEMBER_PH },     { "name", MEMBER_NAME }, { "cat", MEMBER_CAT },
    { "pid", MEMBER_PID },   { "tid", MEMBER_TID },   { "ts", MEMBER_TS },
    { "dur", MEMBER_DUR },   { "id", MEMBER_ID },     { "id2", MEMBER_ID },
    { "args", MEMBER_ARGS },
};

static const char *const arg_keys[ARG_N] = {
    [ARG_CORRELATION] = "correlation",
    [ARG_STREAM] = "stream",
    [ARG_DEVICE] = "device",
    [ARG_COLLECTIVE] = "Collective name",
    [ARG_IN_NELEMS] = "In msg nelems",
    [ARG_OUT_NELEMS] = "Out msg nelems",
    [ARG_DTYPE] = "dtype",
    [ARG_GROUP_SIZE] = "Group size",
    [ARG_PG_NAME] = "Process Group Name",
    [ARG_PG_DESCRIPTION] = "Process Group Description",
    [ARG_PG_RANKS] = "Process Group Ranks",
    [ARG_SEQ] = "Seq",
    [ARG_SRC_RANK] = "Src Rank",
    [ARG_DST_RANK] = "Dst Rank",
    [ARG_INPUT_DIMS] = "Input Dims",
    [ARG_INPUT_TYPE] = "Input type",
    [ARG_GRID] = "grid",
    [ARG_BLOCK] = "block",
    [ARG_REGISTERS] = "registers per thread",
    [ARG_SHARED] = "shared memory",
    [ARG_OCCUPANCY] = "est. achieved occupancy %",
    [ARG_DEVICE_TYPE] = "Device Type",
    [ARG_DEVICE_ID] = "Device Id",
    [ARG_TOTAL_ALLOCATED] = "Total Allocated",
    [ARG_TOTAL_RESERVED] = "Total Reserved",
    [ARG_NAME] = "name",
    [ARG_LABELS] = "labels",
    [ARG_OP] = "op",
    [ARG_OP_NAME] = "op_name",
    [ARG_LOGICAL] = "logical",
    [ARG_GROUP] = "group",
    [ARG_GROUP_ID] = "group_id",
    [ARG_RANKS] = "ranks",
    [ARG_OWN_SEQ] = "seq",
    [ARG_PEER] = "peer",
    [ARG_BYTES] = "bytes",
    [ARG_ALGORITHM] = "algorithm",
    [ARG_PROTOCOL] = "protocol",
    [ARG_WAIT_US] = "wait_us",
    [ARG_RING_STEPS] = "ring_steps",
    [ARG_KIND] = "kind",
    [ARG_SORT] = "sort",
    [ARG_TRACK] = "track",
    [ARG_STANDS_FOR] = "stands_for",
    [ARG_RANK] = "rank",
    [ARG_CLASS] = "class",
};

typedef struct CatName {
    const char *text;
    Cat cat;
} CatName;

/* Flat table: today's names, those of 2021, and other vendors'. */
static const CatName cat_names[] = {
    { "kernel", CAT_KERNEL },
    { "Kernel", CAT_KERNEL },
    { "concurrent_kernel", CAT_KERNEL },
    { "xpu_kernel", CAT_KERNEL },
    { "gpu_memcpy", CAT_MEMORY },
    { "gpu_memset", CAT_MEMORY },
    { "Memcpy", CAT_MEMORY },
    { "Memset", CAT_MEMORY },
    { "cuda_sync", CAT_GPU_SYNC },
    { "cuda_event", CAT_GPU_SYNC },
    { "gpu_user_annotation", CAT_GPU_NOTE },
    { "cpu_op", CAT_HOST },
    { "Operator", CAT_HOST },
    { "python_function", CAT_HOST },
    { "cpu_instant_event", CAT_HOST },
    { "overhead", CAT_HOST },
    { "collective_comm", CAT_HOST },
    { "cuda_runtime", CAT_RUNTIME },
    { "cuda_driver", CAT_RUNTIME },
    { "cuda_profiler_range", CAT_RUNTIME },
    { "Runtime", CAT_RUNTIME },
    { "hip_runtime", CAT_RUNTIME },
    { "xpu_runtime", CAT_RUNTIME },
    { "xpu_driver", CAT_RUNTIME },
    { "mtia_runtime", CAT_RUNTIME },
    { "privateuse1_runtime", CAT_RUNTIME },
    { "privateuse1_driver", CAT_RUNTIME },
    { "user_annotation", CAT_NOTE },
    { "Trace", CAT_TRACE },
    { "wait", CAT_WAIT },
};

static KeyTable members, args, cats;
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint8_t i = 0; i < ARRAY_N(member_keys); i++)
        key_add(&members, member_keys[i].text, (uint8_t)member_keys[i].member);
    for (uint8_t i = 0; i < ARG_N; i++)
        key_add(&args, arg_keys[i], i);
    for (uint8_t i = 0; i < ARRAY_N(cat_names); i++)
        key_add(&cats, cat_names[i].text, i);
}

/* ---- what is laid out as before ---- */

/* A number of a node that is no key's. */
enum { OBJECT_CLOSED = -2 };

/* Nodes where objects begin: an event's, and args' by what cat it has.  Node 0 knows nothing. */
enum { ROOT_EVENT = 1, ROOT_ARGS = 2, ROOTS_ARGS_N = 16, ROOTS_END = ROOT_ARGS + ROOTS_ARGS_N };

static uint32_t args_root(const Event *e)
{
    if (e->cat.kind != SCAN_STRING || e->cat.n == 0)
        return ROOT_ARGS;
    return ROOT_ARGS + ((uint32_t)e->cat.at[e->cat.n / 2] + e->cat.n) % ROOTS_ARGS_N;
}

SCAN_INLINE bool is_next(const LayoutNode *node, const uint8_t *at)
{
#ifdef __SSE2__
    const __m128i *x = (const __m128i *)(const void *)at;
    const __m128i *y = (const __m128i *)(const void *)node->text;
    unsigned low =
        (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128(x), _mm_loadu_si128(y)));
    unsigned high = (unsigned)_mm_movemask_epi8(
        _mm_cmpeq_epi8(_mm_loadu_si128(x + 1), _mm_loadu_si128(y + 1)));
    if (node->need & ~(low | high << 16))
        return false;
    return node->n <= 32 || memcmp(node->text + 32, at + 32, node->n - 32) == 0;
#else
    return memcmp(node->text, at, node->n) == 0;
#endif
}

/* The text from `from` on, up to to, followed *node; it becomes *node. */
static void learn(Layout *l, uint32_t *node, const uint8_t *from, const uint8_t *to, int number)
{
    uint8_t *next = l->node[*node].next;
    size_t n = (size_t)(to - from);
    uint32_t way = 0;
    while (way < LAYOUT_WAYS && next[way])
        way++;
    l->nodes_n = l->nodes_n < ROOTS_END ? ROOTS_END : l->nodes_n;
    bool can = *node && way < LAYOUT_WAYS && n > 0 && n <= LAYOUT_TEXT_BYTES;
    if (!can || l->nodes_n == LAYOUT_NODES_MAX) {
        *node = 0;
        return;
    }
    *node = l->nodes_n++;
    next[way] = (uint8_t)*node;
    LayoutNode *made = &l->node[*node];
    memcpy(made->text, from, n);
    made->need = (uint32_t)(((uint64_t)1 << min_u64(n, 32)) - 1);
    made->number = number;
    made->n = (uint32_t)n;
}

/* A member as scan_member reads it, and its number in the table. */
static bool scan_and_learn(Layout *l, uint32_t *node, const KeyTable *table, Scan *s,
                           int *number, bool *closed)
{
    const uint8_t *from = s->at;
    ScanText key;
    if (!scan_member(s, &key, closed)) {
        *number = OBJECT_CLOSED;
        if (*closed)
            learn(l, node, from, s->at, *number);
        return false;
    }
    *number = key_find(table, &key);
    const uint8_t *value = scan_past_blank(s->at, s->end);
    learn(l, node, from, value < s->end ? value : s->at, *number);
    return true;
}

/* To the next value of an object, and which it is: from node, what stood before, to the next. */
SCAN_INLINE bool next_member(Layout *l, uint32_t *node, const KeyTable *table, Scan *s,
                             int *number, bool *closed)
{
    const uint8_t *next = l->node[*node].next;
    if (s->end - s->at > LAYOUT_TEXT_BYTES)
        for (uint32_t way = 0; way < LAYOUT_WAYS && next[way]; way++) {
            const LayoutNode *is = &l->node[next[way]];
            if (!is_next(is, s->at))
                continue;
            s->at += is->n;
            *node = next[way];
            *number = is->number;
            *closed = is->number == OBJECT_CLOSED;
            return !*closed;
        }
    return scan_and_learn(l, node, table, s, number, closed);
}

/* ---- members ---- */

static bool scan_args(Scan *s, Event *e)
{
    scan_space(s);
    const uint8_t *from = s->at;
    if (s->at < s->end && *s->at != '{')
        return scan_value(s, &e->args); /* null, a text: nothing in it for us */
    if (!scan_open(s, '{'))
        return false;
    ScanText value;
    int number;
    bool closed;
    uint32_t node = args_root(e);
    while (next_member(&e->layout, &node, &args, s, &number, &closed)) {
        if (!scan_value(s, &value))
            return false;
        if (number < 0)
            continue;
        e->arg[number] = value;
        e->args_seen |= (uint64_t)1 << number;
    }
    e->args = (ScanText){ .at = from, .n = (uint32_t)(s->at - from), .kind = SCAN_OBJECT };
    return closed;
}

void event_prepare(void)
{
    pthread_once(&tables_once, make_tables);
}

/* Arrows are a third of a trace, and args.correlation says the same. */
static inline bool is_arrow(const ScanText *phase)
{
    return phase->kind == SCAN_STRING && phase->n == 1 &&
           (phase->at[0] == 's' || phase->at[0] == 't' || phase->at[0] == 'f');
}

bool event_scan(Scan *s, Event *e)
{
    for (int i = 0; i < MEMBER_N; i++)
        e->member[i].kind = SCAN_NOTHING;
    e->name.at = (const uint8_t *)"";
    e->name.n = 0;
    e->args_seen = 0;
    if (!scan_open(s, '{'))
        return false;
    int number;
    bool closed;
    uint32_t node = ROOT_EVENT;
    while (next_member(&e->layout, &node, &members, s, &number, &closed)) {
        bool known = number == MEMBER_ARGS
                         ? scan_args(s, e)
                         : scan_value(s, &e->member[number < 0 ? MEMBER_OTHER : number]);
        if (!known)
            return false;
        if (number == MEMBER_PH && is_arrow(&e->phase)) {
            e->ph = e->phase.at[0];
            return scan_rest_of_object(s);
        }
    }
    e->ph = e->phase.kind == SCAN_STRING && e->phase.n == 1 ? e->phase.at[0] : 0;
    return closed;
}

bool event_whole(const Event *e, Arg arg, int64_t *value)
{
    return event_has(e, arg) && scan_whole(&e->arg[arg], value);
}

Cat event_cat(const Event *e)
{
    if (e->cat.kind != SCAN_STRING)
        return CAT_UNKNOWN;
    int number = key_find(&cats, &e->cat);
    return number < 0 ? CAT_UNKNOWN : cat_names[number].cat;
}
