/*
 * kineto_comm.c - what is known about a communication kernel: from its own args,
 * from the operator around its launch, from its name.
 *
 * Operators are remembered as they come (there are a few per collective); the
 * join happens once, after the last event, since kernels may stand before
 * their launches in the file, and both before the operators.
 */
#include <stdlib.h>
#include <string.h>

#include "traces/kineto_parts.h"

enum { OPERATORS_AROUND_MAX = 8 };

/* ---- words ---- */

static uint32_t intern_or_none(Kineto *k, const char *text)
{
    return text ? intern(&k->t->names, text) : NONE_U32;
}

static uint32_t text_arg(Kineto *k, const Event *e, Arg arg)
{
    if (!event_has(e, arg) || e->arg[arg].kind != SCAN_STRING || e->arg[arg].n == 0)
        return NONE_U32;
    return kineto_intern(k, &e->arg[arg]);
}

static uint32_t count_arg(const Event *e, Arg arg)
{
    int64_t x;
    return event_whole(e, arg, &x) && x >= 0 && x < (int64_t)NONE_U32 / 2 ? (uint32_t)x
                                                                          : NONE_U32;
}

static uint32_t dtype_of(Kineto *k, const ScanText *v, uint64_t *each_bytes)
{
    const char *dtype;
    *each_bytes = 0;
    if (v->kind != SCAN_STRING || v->n == 0)
        return NONE_U32;
    if (comm_dtype_of((const char *)v->at, v->n, &dtype, each_bytes))
        return intern(&k->t->names, dtype);
    return kineto_intern(k, v);
}

/* Equal texts give equal numbers, on all ranks and in all runs.  list: however it is spaced and
 * quoted. */
static uint32_t text_number(const ScanText *v, uint32_t seed, bool list)
{
    uint64_t h = 0xcbf29ce484222325u ^ seed;
    for (uint32_t i = 0; i < v->n; i++)
        if (!list || (v->at[i] != ' ' && v->at[i] != '"'))
            h = (h ^ v->at[i]) * 0x100000001b3u;
    return (uint32_t)(mix_u64(h) >> 33);
}

/* ---- args of the kernel, or of record_param_comms ---- */

static void take_group(Kineto *k, const Event *e, Comm *c)
{
    c->group = text_arg(k, e, ARG_PG_DESCRIPTION);
    if (c->group != NONE_U32 && SCAN_IS(&e->arg[ARG_PG_DESCRIPTION], "undefined"))
        c->group = NONE_U32;
    if (!event_has(e, ARG_PG_NAME))
        return;
    const ScanText *name = &e->arg[ARG_PG_NAME];
    int64_t number;
    if (c->group == NONE_U32)
        c->group = text_arg(k, e, ARG_PG_NAME);
    if (scan_whole(name, &number) && number >= 0 && number < INT32_MAX)
        c->group_id = (uint32_t)number;
    else if (name->n > 0)
        c->group_id = text_number(name, 0, false);
    if (c->group_id != NONE_U32 && event_has(e, ARG_PG_RANKS))
        c->group_id = text_number(&e->arg[ARG_PG_RANKS], c->group_id, true);
}

/* Elements x size; NONE_U64 where either is unknown or the product is absurd. */
static uint64_t sized(int64_t elements, uint64_t each_bytes)
{
    if (elements < 0 || each_bytes == 0 || elements > (INT64_MAX >> 4))
        return NONE_U64;
    return (uint64_t)elements * each_bytes;
}

static void take_elements(Kineto *k, const Event *e, Comm *c)
{
    int64_t in = -1, out = -1;
    uint64_t each_bytes = 0;
    if (event_has(e, ARG_DTYPE))
        c->dtype = dtype_of(k, &e->arg[ARG_DTYPE], &each_bytes);
    event_whole(e, ARG_IN_NELEMS, &in);
    event_whole(e, ARG_OUT_NELEMS, &out);
    c->bytes = sized(max_i64(in, out), each_bytes);
}

/* send: to; recv: from.  Kineto gives both ends of either. */
static void take_peer(const Event *e, const char *op, Comm *c)
{
    if (!comm_op_is_p2p(op))
        return;
    c->peer = count_arg(e, strcmp(op, "recv") == 0 ? ARG_SRC_RANK : ARG_DST_RANK);
}

/* chrome_write's own arguments, which say exactly what was in the Comm. */
static void take_own(Kineto *k, const Event *e, Comm *c)
{
    int64_t x;
    if (event_has(e, ARG_GROUP) || event_has(e, ARG_GROUP_ID)) {
        c->group = text_arg(k, e, ARG_GROUP);
        c->group_id = NONE_U32;
        if (event_whole(e, ARG_GROUP_ID, &x) && x >= 0 && x < NONE_U32)
            c->group_id = (uint32_t)x;
    }
    if (event_has(e, ARG_RANKS))
        c->ranks_n = count_arg(e, ARG_RANKS);
    if (event_has(e, ARG_OWN_SEQ))
        c->seq = count_arg(e, ARG_OWN_SEQ);
    if (event_has(e, ARG_PEER))
        c->peer = count_arg(e, ARG_PEER);
    if (event_whole(e, ARG_BYTES, &x) && x >= 0)
        c->bytes = (uint64_t)x;
    if (event_has(e, ARG_WAIT_US) && scan_decimal(&e->arg[ARG_WAIT_US], 3, &x) && x >= 0 &&
        timeline_ns_in_range(x))
        c->wait_ns = x;
    c->algorithm = text_arg(k, e, ARG_ALGORITHM);
    c->protocol = text_arg(k, e, ARG_PROTOCOL);
}

bool comm_of_args(Kineto *k, const Event *e, Comm *comm)
{
    const ScanText *word = &e->arg[ARG_COLLECTIVE];
    if (!event_has(e, ARG_COLLECTIVE) || word->kind != SCAN_STRING)
        return false;
    const char *op = comm_op_of((const char *)word->at, word->n);
    if (!op && !k->from_us)
        return false; /* "wait", "init" */
    *comm = comm_of(op ? intern(&k->t->names, op) : kineto_intern(k, word));
    take_group(k, e, comm);
    uint32_t size = count_arg(e, ARG_GROUP_SIZE);
    comm->ranks_n = size == NONE_U32 ? 0 : size;
    comm->seq = count_arg(e, ARG_SEQ);
    take_elements(k, e, comm);
    if (op)
        take_peer(e, op, comm);
    if (k->from_us)
        take_own(k, e, comm);
    if (comm->ranks_n == NONE_U32)
        comm->ranks_n = 0;
    return true;
}

void comm_read_name(Kineto *k, Name *name)
{
    const char *text = k->t->names.text[name->id];
    const Rule *rule = name->rule == NONE_U32 ? NULL : &k->rules->rule[name->rule];
    name->op = name->algorithm = name->protocol = name->dtype = NONE_U32;
    if (!rule || rule->class_ == SPAN_COMPUTE)
        return;
    KernelComm said = kernel_comm(text);
    const char *op = rule->op ? rule->op : said.op;
    name->op = intern(&k->t->names, op ? op : "collective");
    name->algorithm = intern_or_none(k, said.algorithm);
    name->protocol = intern_or_none(k, said.protocol);
    name->dtype = intern_or_none(k, said.dtype);
}

void comm_of_name(const Name *name, Comm *comm)
{
    *comm = comm_of(name->op);
    comm->algorithm = name->algorithm;
    comm->protocol = name->protocol;
    comm->dtype = name->dtype;
}

/* ---- operators ---- */

/* One dimension list [4, 2048, 4096], or a list of such; elements in all of them. */
static bool count_elements(Scan *s, int64_t *elements, int depth)
{
    int64_t product = 1, x;
    bool any = false, closed;
    if (!scan_open(s, '['))
        return false;
    while (scan_next(s, ']', &closed)) {
        ScanText v;
        if (*s->at == '[') {
            if (depth == 0 || !count_elements(s, elements, depth - 1))
                return false;
            continue;
        }
        if (!scan_value(s, &v) || !scan_whole(&v, &x) || x < 0)
            return false;
        if (x > 0 && product > (INT64_MAX >> 8) / x)
            return false;
        product *= x;
        any = true;
    }
    if (any)
        *elements += min_i64(product, (INT64_MAX >> 8));
    return closed && *elements <= (INT64_MAX >> 4);
}

/* The first text of ["c10::Half", "Scalar"] that names a number format. */
static uint32_t first_dtype(Kineto *k, const ScanText *list, uint64_t *each_bytes)
{
    Scan s = { list->at, list->at + list->n, NULL };
    bool closed;
    const char *dtype;
    if (!scan_open(&s, '['))
        return NONE_U32;
    while (scan_next(&s, ']', &closed)) {
        ScanText v;
        if (!scan_value(&s, &v))
            return NONE_U32;
        if (v.kind == SCAN_STRING && comm_dtype_of((const char *)v.at, v.n, &dtype, each_bytes))
            return intern(&k->t->names, dtype);
    }
    return NONE_U32;
}

/* Old traces: "Input Dims": [[4, 2048, 4096]], "Input type": ["c10::Half"]. */
static void take_inputs(Kineto *k, const Event *e, Comm *c)
{
    uint64_t each_bytes = 0;
    int64_t elements = 0;
    if (event_has(e, ARG_INPUT_TYPE) && e->arg[ARG_INPUT_TYPE].kind == SCAN_ARRAY)
        c->dtype = first_dtype(k, &e->arg[ARG_INPUT_TYPE], &each_bytes);
    if (!event_has(e, ARG_INPUT_DIMS) || e->arg[ARG_INPUT_DIMS].kind != SCAN_ARRAY)
        return;
    const ScanText *dims = &e->arg[ARG_INPUT_DIMS];
    Scan s = { dims->at, dims->at + dims->n, NULL };
    if (count_elements(&s, &elements, 3) && elements > 0)
        c->bytes = sized(elements, each_bytes);
}

static uint32_t op_of_annotation(Kineto *k, const Name *name)
{
    const char *text = k->t->names.text[name->id];
    if (strncmp(text, "nccl:", 5) != 0)
        return NONE_U32;
    size_t n = strcspn(text + 5, " ");
    const char *op = comm_op_of(text + 5, n);
    return intern_or_none(k, op);
}

void comm_note_operator(Kineto *k, const Event *e, const Name *name, uint32_t track,
                        int64_t start_ns, int64_t dur_ns)
{
    CollectiveOp op = { track, start_ns, start_ns + dur_ns, comm_of(NONE_U32), false };
    if (!comm_of_args(k, e, &op.comm)) {
        op.by_inputs = true;
        op.comm.op = op_of_annotation(k, name);
        take_inputs(k, e, &op.comm);
    }
    GROW(k->collectives, k->collectives_n, k->collectives_cap);
    k->collectives[k->collectives_n++] = op;
}

/* ---- the join ---- */

static int compare_operators(const void *a_, const void *b_)
{
    const CollectiveOp *a = a_, *b = b_;
    if (a->track != b->track)
        return a->track < b->track ? -1 : 1;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    return a->end_ns > b->end_ns ? -1 : a->end_ns < b->end_ns;
}

static int compare_bare(const void *a_, const void *b_)
{
    const BareKernel *a = a_, *b = b_;
    if (a->correlation != b->correlation)
        return a->correlation < b->correlation ? -1 : 1;
    return a->span < b->span ? -1 : a->span > b->span;
}

/* What `from` knows and `to` does not. */
static void fill_in(Comm *to, const Comm *from)
{
    if (to->bytes == NONE_U64)
        to->bytes = from->bytes;
    if (to->dtype == NONE_U32)
        to->dtype = from->dtype;
    if (to->group == NONE_U32)
        to->group = from->group;
    if (to->group_id == NONE_U32)
        to->group_id = from->group_id;
    if (to->ranks_n == 0)
        to->ranks_n = from->ranks_n;
    if (to->seq == NONE_U32)
        to->seq = from->seq;
    if (to->peer == NONE_U32)
        to->peer = from->peer;
}

/* The first operator, in order, that begins on the track behind at_ns, or beyond the track. */
static uint64_t operators_until(const Kineto *k, uint32_t track, int64_t at_ns)
{
    uint64_t low = 0, high = k->collectives_n;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        const CollectiveOp *op = &k->collectives[mid];
        if (op->track < track || (op->track == track && op->start_ns <= at_ns))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/*
 * The operators of a thread nest; those around at_ns are among the last few that
 * began before it.  Innermost first: it knows the tensors best.
 */
static uint32_t find_around(const Kineto *k, uint32_t track, int64_t at_ns,
                            uint64_t around[OPERATORS_AROUND_MAX])
{
    uint64_t low = operators_until(k, track, at_ns);
    uint32_t n = 0;
    for (int i = 0; i < OPERATORS_AROUND_MAX && low > 0; i++) {
        const CollectiveOp *op = &k->collectives[--low];
        if (op->track != track)
            break;
        if (op->end_ns >= at_ns)
            around[n++] = low;
    }
    return n;
}

static bool operators_around(const Kineto *k, uint32_t track, int64_t at_ns, Comm *found)
{
    uint64_t around[OPERATORS_AROUND_MAX];
    uint32_t n = find_around(k, track, at_ns, around);
    *found = comm_of(NONE_U32);
    for (uint32_t i = 0; i < n; i++) {
        const CollectiveOp *op = &k->collectives[around[i]];
        Comm said = op->comm;
        if (found->op == NONE_U32)
            found->op = said.op;
        /* Inputs of an all-gather are one rank's part of it. */
        if (op->by_inputs && strcmp(timeline_text(k->t, found->op), "all_gather") == 0)
            said.bytes = NONE_U64;
        fill_in(found, &said);
    }
    return n > 0;
}

static void tell_kernel(Kineto *k, uint64_t span, const Comm *around)
{
    Timeline *t = k->t;
    Comm *c = &t->comms[t->comm[span]];
    if (around->op != NONE_U32) {
        c->op = around->op;
        bool p2p = comm_op_is_p2p(t->names.text[c->op]);
        t->span_class[span] = p2p ? SPAN_P2P : SPAN_COMM;
    }
    if (around->dtype != NONE_U32)
        c->dtype = around->dtype; /* NCCL's own broadcasts bytes */
    fill_in(c, around);
}

/* First of the sorted bare kernels with this correlation, or bare_n. */
static uint64_t find_bare(const Kineto *k, const uint64_t *slot, uint64_t slots_n,
                          uint64_t correlation)
{
    uint64_t i = mix_u64(correlation) & (slots_n - 1);
    for (; slot[i]; i = (i + 1) & (slots_n - 1))
        if (k->bare[slot[i] - 1].correlation == correlation)
            return slot[i] - 1;
    return k->bare_n;
}

static uint64_t *index_bare(Kineto *k, uint64_t *slots_n)
{
    qsort(k->bare, k->bare_n, sizeof *k->bare, compare_bare);
    *slots_n = 64;
    while (*slots_n < 2 * k->bare_n)
        *slots_n *= 2;
    uint64_t *slot = mem_zero(*slots_n, sizeof *slot);
    for (uint64_t b = 0; b < k->bare_n; b++) {
        if (b > 0 && k->bare[b].correlation == k->bare[b - 1].correlation)
            continue;
        uint64_t i = mix_u64(k->bare[b].correlation) & (*slots_n - 1);
        while (slot[i])
            i = (i + 1) & (*slots_n - 1);
        slot[i] = b + 1;
    }
    return slot;
}

/* ---- kernels of unknown names, launched within a collective ---- */

/* A launch within an operator, and what that says. */
typedef struct Claim {
    uint64_t correlation, launch;
    Comm comm;
} Claim;

static int compare_claims(const void *a_, const void *b_)
{
    const Claim *a = a_, *b = b_;
    return (a->correlation > b->correlation) - (a->correlation < b->correlation);
}

/* Until when on this track nothing encloses a launch, now that nothing does at at_ns. */
static int64_t next_operator_ns(const Kineto *k, uint32_t track, int64_t at_ns)
{
    uint64_t next = operators_until(k, track, at_ns);
    return next < k->collectives_n && k->collectives[next].track == track
               ? k->collectives[next].start_ns
               : INT64_MAX;
}

/* The launches within operators that are a collective's, by correlation. */
static Claim *claim_launches(const Kineto *k, uint64_t first_span, uint64_t *claims_n)
{
    const Timeline *t = k->t;
    Claim *claims = NULL;
    uint64_t n = 0, cap = 0;
    uint32_t free_track = NONE_U32; /* there nothing encloses what lies in [from, to) */
    int64_t free_from = 0, free_to = 0;
    for (uint64_t i = first_span; i < t->spans_n; i++) {
        uint32_t track = t->span_track[i];
        int64_t at_ns = t->start_ns[i];
        if (t->correlation[i] == NONE_U64 || t->tracks[track].kind != TRACK_HOST ||
            (track == free_track && at_ns >= free_from && at_ns < free_to))
            continue;
        Comm around;
        if (!operators_around(k, track, at_ns, &around)) {
            free_track = track;
            free_from = at_ns;
            free_to = next_operator_ns(k, track, at_ns);
        } else if (around.op != NONE_U32) {
            GROW(claims, n, cap);
            claims[n++] = (Claim){ t->correlation[i], i, around };
        }
    }
    if (n > 0)
        qsort(claims, n, sizeof *claims, compare_claims);
    *claims_n = n;
    return claims;
}

static const Claim *claim_of(const Timeline *t, const Claim *claims, uint64_t n, uint64_t span)
{
    Claim key = { .correlation = t->correlation[span] };
    return key.correlation == NONE_U64 ? NULL
                                       : bsearch(&key, claims, n, sizeof key, compare_claims);
}

/* Operators, by number, that launched a kernel which is known to communicate. */
static bool *find_served(const Kineto *k, uint64_t first_span, const Claim *claims, uint64_t n)
{
    const Timeline *t = k->t;
    bool *served = mem_zero(k->collectives_n, sizeof *served);
    for (uint64_t i = first_span; i < t->spans_n; i++) {
        if (t->span_class[i] != SPAN_COMM && t->span_class[i] != SPAN_P2P)
            continue;
        const Claim *c = claim_of(t, claims, n, i);
        uint64_t around[OPERATORS_AROUND_MAX];
        uint32_t around_n =
            c ? find_around(k, t->span_track[c->launch], t->start_ns[c->launch], around) : 0;
        while (around_n > 0)
            served[around[--around_n]] = true;
    }
    return served;
}

static bool is_served(const Kineto *k, const Claim *c, const bool *served)
{
    uint64_t around[OPERATORS_AROUND_MAX];
    return find_around(k, k->t->span_track[c->launch], k->t->start_ns[c->launch], around) > 0 &&
           served[*around];
}

/*
 * Kernels that no rule knows are what the operator around their launch says they are; where a
 * known one is launched there, the others are beside it: a check for NaN, a copy.
 */
static void claim_kernels(Kineto *k, uint64_t first_span)
{
    Timeline *t = k->t;
    uint64_t claims_n;
    Claim *claims = claim_launches(k, first_span, &claims_n);
    bool *served = claims_n > 0 ? find_served(k, first_span, claims, claims_n) : NULL;
    for (uint64_t i = first_span; i < t->spans_n && claims_n > 0; i++) {
        const Claim *c =
            t->span_class[i] == SPAN_COMPUTE ? claim_of(t, claims, claims_n, i) : NULL;
        if (!c || is_served(k, c, served) ||
            rules_match(k->rules, t->names.text[t->span_name[i]]) != NONE_U32)
            continue;
        bool p2p = comm_op_is_p2p(t->names.text[c->comm.op]);
        t->span_class[i] = p2p ? SPAN_P2P : SPAN_COMM;
        timeline_set_comm(t, i, c->comm);
        k->info->comm_kernels_n++;
        k->info->rule_kernels_n[RULE_METADATA]++;
    }
    free(served);
    free(claims);
}

static void tell_bare_kernels(Kineto *k, uint64_t first_span)
{
    Timeline *t = k->t;
    uint64_t slots_n;
    uint64_t *slot = index_bare(k, &slots_n);
    for (uint64_t i = first_span; i < t->spans_n; i++) {
        if (t->correlation[i] == NONE_U64 || t->tracks[t->span_track[i]].kind != TRACK_HOST)
            continue;
        uint64_t b = find_bare(k, slot, slots_n, t->correlation[i]);
        Comm around;
        if (b == k->bare_n || !operators_around(k, t->span_track[i], t->start_ns[i], &around))
            continue;
        for (uint64_t c = k->bare[b].correlation; b < k->bare_n && k->bare[b].correlation == c;
             b++)
            tell_kernel(k, k->bare[b].span, &around);
    }
    free(slot);
}

void comm_resolve(Kineto *k, uint64_t first_span)
{
    if (k->collectives_n == 0)
        return;
    qsort(k->collectives, k->collectives_n, sizeof *k->collectives, compare_operators);
    if (k->bare_n > 0)
        tell_bare_kernels(k, first_span);
    claim_kernels(k, first_span);
}
