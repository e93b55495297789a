/*
 * records_nccl.c - what NCCL says of its kernels, and how it is joined with them.
 *
 *     RawNcclCall 7 (all_reduce)  --group--  RawNcclLaunch 3  --label--  kernel
 *              \______ RawNcclTask: algorithm, protocol ____/
 *
 * A launch may serve several calls of its group: equal ones are one bigger collective, sends
 * and receives a send_recv.  In a CUDA graph NCCL is asked once, when the graph is captured;
 * its tasks come with each replay, and only if its proxy has work, so the calls themselves
 * say what the kernel does, and the first replay's task what was chosen.
 *
 * The words are NCCL's own (ncclFuncToString, ncclDatatypeToString ... of src/misc/utils.cc
 * and src/enqueue.cc, 2.28.9).
 */
#include <stdlib.h>
#include <string.h>

#include "profile/records_parts.h"

enum { ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, OTHERS };

typedef struct FuncWord {
    const char *theirs, *ours;
    int kind;
} FuncWord;

static const FuncWord funcs[] = {
    { "AllReduce", "all_reduce", OTHERS },
    { "AllGather", "all_gather", ALL_GATHER },
    { "ReduceScatter", "reduce_scatter", REDUCE_SCATTER },
    { "Broadcast", "broadcast", OTHERS },
    { "Reduce", "reduce", OTHERS },
    { "AlltoAll", "all_to_all", ALL_TO_ALL },
    { "AllToAll", "all_to_all", ALL_TO_ALL },
    { "Gather", "gather", GATHER },
    { "Scatter", "scatter", SCATTER },
    { "Send", "send", OTHERS },
    { "Recv", "recv", OTHERS },
    { "SendRecv", "send_recv", OTHERS },
};

typedef struct DTypeWord {
    const char *theirs, *ours;
    uint64_t bytes;
} DTypeWord;

static const DTypeWord dtypes[] = {
    { "ncclInt8", "i8", 1 },        { "ncclUint8", "u8", 1 },
    { "ncclInt32", "i32", 4 },      { "ncclUint32", "u32", 4 },
    { "ncclInt64", "i64", 8 },      { "ncclUint64", "u64", 8 },
    { "ncclFloat16", "f16", 2 },    { "ncclFloat32", "f32", 4 },
    { "ncclFloat64", "f64", 8 },    { "ncclBfloat16", "bf16", 2 },
    { "ncclFloat8e4m3", "fp8", 1 }, { "ncclFloat8e5m2", "fp8", 1 },
};

static const char *const choices[][2] = {
    { "RING", "ring" },
    { "TREE", "tree" },
    { "COLLNET_DIRECT", "collnet_direct" },
    { "COLLNET_CHAIN", "collnet_chain" },
    { "NVLS", "nvls" },
    { "NVLS_TREE", "nvls_tree" },
    { "PAT", "pat" },
    { "SIMPLE", "Simple" },
    { "LL", "LL" },
    { "LL128", "LL128" },
};

static const FuncWord *func_of(const char *theirs)
{
    for (size_t i = 0; i < ARRAY_N(funcs); i++)
        if (strcmp(funcs[i].theirs, theirs) == 0)
            return &funcs[i];
    return NULL;
}

static uint32_t choice_of(Records *r, uint32_t number)
{
    const char *theirs = records_text(r, number);
    if (number == 0 || strcmp(theirs, "?") == 0)
        return NONE_U32;
    for (size_t i = 0; i < ARRAY_N(choices); i++)
        if (strcmp(choices[i][0], theirs) == 0)
            return intern(&r->t->names, choices[i][1]);
    return intern(&r->t->names, theirs);
}

/* ---- records by number ---- */

static const RawAny *record_of(const Records *r, const Join *j, uint64_t key)
{
    const JoinRow *row = join_nearest(j, key, 0);
    return row ? (const RawAny *)(const void *)(r->bytes + row->value) : NULL;
}

static const RawAny *record_at(const Records *r, uint64_t byte)
{
    return (const RawAny *)(const void *)(r->bytes + byte);
}

/* Equal on all members, and not NONE_U32. */
static uint32_t group_id_of(uint64_t id)
{
    return (uint32_t)(mix_u64(id) >> 33);
}

/* ---- what one call is ---- */

static bool is_p2p(const Records *r, const Comm *comm)
{
    return comm_op_is_p2p(timeline_text(r->t, comm->op));
}

/* Op, type, bytes as nccl-tests counts them; the group's size is known. */
static void take_call(Records *r, Comm *c, uint32_t func, uint32_t dtype, uint64_t count)
{
    const char *theirs = records_text(r, func);
    const FuncWord *f = func_of(theirs);
    c->op = intern(&r->t->names, f ? f->ours : theirs);
    const char *type = records_text(r, dtype);
    uint64_t each = 0, ranks = c->ranks_n;
    for (size_t i = 0; i < ARRAY_N(dtypes); i++) {
        if (strcmp(dtypes[i].theirs, type) != 0)
            continue;
        c->dtype = intern(&r->t->names, dtypes[i].ours);
        each = dtypes[i].bytes;
    }
    bool parts = f && f->kind != OTHERS; /* count is one rank's part */
    if (!parts)
        ranks = 1;
    if (each > 0 && ranks > 0 && count <= (UINT64_MAX >> 8) / each / ranks)
        c->bytes = count * each * ranks;
}

static void take_group(Records *r, Comm *c, uint32_t number)
{
    const RawAny *x = record_of(r, &r->comms, number);
    if (!x)
        return;
    const char *name = records_text(r, x->comm.name);
    c->group = intern(&r->t->names, x->comm.name && *name ? name : "nccl");
    c->group_id = group_id_of(x->comm.id);
    c->ranks_n = x->comm.ranks_n;
}

static Comm comm_of_call(Records *r, const RawNcclCall *call)
{
    Comm c = comm_of(NONE_U32);
    take_group(r, &c, call->comm);
    take_call(r, &c, call->func, call->dtype, call->count);
    if (is_p2p(r, &c))
        c.peer = call->root;
    return c;
}

/* The call knows type and count as the program gave them, the task what was chosen. */
static Comm comm_of_task(Records *r, const RawNcclTask *task)
{
    const RawAny *call = task->top.a ? record_of(r, &r->nccl_calls, task->top.a) : NULL;
    Comm c;
    if (call) {
        c = comm_of_call(r, &call->nccl_call);
    } else {
        c = comm_of(NONE_U32);
        take_group(r, &c, task->comm);
        take_call(r, &c, task->func, task->dtype, task->count);
    }
    c.algorithm = choice_of(r, task->algorithm);
    c.protocol = choice_of(r, task->protocol);
    if (task->peer != NONE_U32)
        c.peer = task->peer;
    return c;
}

/* ---- several calls in one kernel ---- */

static void add_bytes(Comm *to, const Comm *more)
{
    bool known = to->bytes != NONE_U64 && more->bytes != NONE_U64;
    to->bytes = known ? to->bytes + more->bytes : NONE_U64;
}

static uint32_t same_or_none(uint32_t a, uint32_t b)
{
    return a == b ? a : NONE_U32;
}

/* n is how many are in `to` already. */
static void join_comm(Records *r, Comm *to, const Comm *more, uint32_t n)
{
    if (n == 0) {
        *to = *more;
        return;
    }
    to->dtype = same_or_none(to->dtype, more->dtype);
    to->algorithm = same_or_none(to->algorithm, more->algorithm);
    to->protocol = same_or_none(to->protocol, more->protocol);
    to->peer = same_or_none(to->peer, more->peer);
    if (to->op == more->op) {
        add_bytes(to, more);
        return;
    }
    if (is_p2p(r, to) && is_p2p(r, more)) {
        /* What goes out is what comes in, as nccl-tests' sendrecv counts. */
        bool sends = strcmp(timeline_text(r->t, more->op), "send") == 0;
        bool sent = strcmp(timeline_text(r->t, to->op), "recv") != 0;
        if (sends && sent)
            add_bytes(to, more);
        else if (sends)
            to->bytes = more->bytes;
        to->op = intern(&r->t->names, "send_recv");
        return;
    }
    to->bytes = NONE_U64;
}

/* ---- by launch ---- */

/* Tasks of replays name a call and no launch: the launch of the call's group. */
static void place_replayed(Records *r)
{
    Join placed = { 0 };
    for (uint64_t i = 0; i < r->tasks.n; i++) {
        JoinRow row = r->tasks.row[i];
        const RawNcclTask *task = &record_at(r, row.value)->task;
        if (row.key == 0) {
            const RawAny *call = record_of(r, &r->nccl_calls, task->top.a);
            uint64_t group = call ? group_key(call->nccl_call.group, call->nccl_call.comm) : 0;
            const JoinRow *launch = call ? join_nearest(&r->group_launches, group, 0) : NULL;
            if (!launch)
                continue;
            row.key = launch->value;
        }
        join_add(&placed, row.key, row.order, row.value);
    }
    free(r->tasks.row);
    r->tasks = placed;
    join_sort(&r->tasks);
}

static void collect_members(Records *r)
{
    RecordsMembers *m = r->o->members;
    for (uint64_t i = 0; m && i < r->comms.n; i++) {
        const RawNcclComm *c = &record_at(r, r->comms.row[i].value)->comm;
        GROW(m->member, m->n, m->cap);
        m->member[m->n++] = (RecordsMember){ group_id_of(c->id), c->rank, r->rank };
    }
}

/* The next number of a communicator's collective; sends do not count, members differ in them. */
static uint32_t next_seq(Records *r, uint32_t comm)
{
    uint32_t i = r->counter_last;
    if (i >= r->counters_n || r->counter[i].comm != comm)
        for (i = 0; i < r->counters_n && r->counter[i].comm != comm; i++)
            ;
    if (i == r->counters_n) {
        GROW(r->counter, r->counters_n, r->counters_cap);
        r->counter[r->counters_n++] = (CommCounter){ comm, 0 };
    }
    r->counter_last = i;
    return r->counter[i].next++;
}

static bool is_collective(const Records *r, uint64_t number, const RawNcclLaunch *launch)
{
    const JoinRow *task = join_nearest(&r->tasks, number, 0);
    if (task)
        return record_at(r, task->value)->task.peer == NONE_U32;
    const RawAny *call = record_of(r, &r->group_calls, group_key(launch->group, launch->comm));
    const char *func = call ? records_text(r, call->nccl_call.func) : "Send";
    return strcmp(func, "Send") != 0 && strcmp(func, "Recv") != 0;
}

/*
 * NCCL's own numbers count each kind of collective; members need one count for all.  Every
 * member launches the same collectives of a communicator in the same order.
 */
static void number_launches(Records *r)
{
    for (uint64_t i = 0; i < r->nccl_launches.n; i++) {
        const JoinRow *row = &r->nccl_launches.row[i];
        const RawNcclLaunch *launch = &record_at(r, row->value)->launch;
        if (is_collective(r, row->key, launch))
            join_add(&r->launch_seqs, row->key, row->order, next_seq(r, launch->comm));
    }
}

void records_nccl_settle(Records *r)
{
    place_replayed(r);
    number_launches(r);
    collect_members(r);
}

/* How many calls were told apart: a replay says again what the first one said. */
static uint32_t join_tasks(Records *r, uint32_t launch, Comm *comm)
{
    uint32_t n = 0, first_call = 0;
    for (const JoinRow *row = join_nearest(&r->tasks, launch, 0); row;
         row = join_next(&r->tasks, launch, row->order)) {
        const RawNcclTask *task = &record_at(r, row->value)->task;
        if (n > 0 && task->top.a != 0 && task->top.a == first_call)
            break;
        Comm more = comm_of_task(r, task);
        join_comm(r, comm, &more, n);
        if (n++ == 0)
            first_call = task->top.a;
    }
    return n;
}

static uint32_t join_calls(Records *r, const RawNcclLaunch *launch, Comm *comm)
{
    uint64_t key = group_key(launch->group, launch->comm);
    uint32_t n = 0;
    for (const JoinRow *row = join_nearest(&r->group_calls, key, 0); row && launch->group != 0;
         row = join_next(&r->group_calls, key, row->order)) {
        Comm more = comm_of_call(r, &record_at(r, row->value)->nccl_call);
        join_comm(r, comm, &more, n++);
    }
    return n;
}

bool records_nccl_comm(Records *r, uint32_t launch, Comm *comm)
{
    const RawAny *x = record_of(r, &r->nccl_launches, launch);
    if (!x)
        return false;
    if (join_tasks(r, launch, comm) == 0 && join_calls(r, &x->launch, comm) == 0)
        return false;
    const JoinRow *seq = join_nearest(&r->launch_seqs, launch, 0);
    comm->seq = seq ? (uint32_t)seq->value : NONE_U32;
    return true;
}

/* ---- without launches: older NCCL ---- */

static int compare_bare(const void *a_, const void *b_)
{
    const BareKernel *a = a_, *b = b_;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    return a->called_ns < b->called_ns ? -1 : a->called_ns > b->called_ns;
}

/* The thread's last bare kernel that was called before at_ns. */
static const BareKernel *bare_before(const Records *r, uint32_t thread, int64_t at_ns)
{
    uint64_t low = 0, high = r->bare_n;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        const BareKernel *k = &r->bare[mid];
        if (k->thread < thread || (k->thread == thread && k->called_ns <= at_ns))
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 && r->bare[low - 1].thread == thread ? &r->bare[low - 1] : NULL;
}

void records_nccl_loose(Records *r)
{
    Timeline *t = r->t;
    if (r->bare_n > 0)
        qsort(r->bare, r->bare_n, sizeof *r->bare, compare_bare);
    const BareKernel *last = NULL;
    uint32_t said_n = 0;
    for (uint64_t i = 0; i < r->loose_tasks.n; i++) {
        const RawNcclTask *task = &record_at(r, r->loose_tasks.row[i].value)->task;
        const BareKernel *k = bare_before(r, task->thread, task->at_ns);
        if (!k)
            continue;
        Comm more = comm_of_task(r, task), *comm = &t->comms[t->comm[k->span]];
        said_n = k == last ? said_n : 0;
        if (said_n == 0)
            r->info->nccl_n++;
        join_comm(r, comm, &more, said_n++);
        if (task->peer == NONE_U32 && said_n == 1)
            comm->seq = next_seq(r, task->comm);
        t->span_class[k->span] = is_p2p(r, comm) ? SPAN_P2P : SPAN_COMM;
        last = k;
    }
}

/* ---- peers ---- */

static int compare_members(const void *a_, const void *b_)
{
    const RecordsMember *a = a_, *b = b_;
    if (a->group_id != b->group_id)
        return a->group_id < b->group_id ? -1 : 1;
    return a->member < b->member ? -1 : a->member > b->member;
}

void records_settle_peers(Timeline *t, RecordsMembers *members)
{
    if (members->n > 0)
        qsort(members->member, members->n, sizeof *members->member, compare_members);
    for (uint32_t i = 0; i < t->comms_n; i++) {
        Comm *c = &t->comms[i];
        if (c->peer == NONE_U32 || c->group_id == NONE_U32)
            continue;
        const RecordsMember wanted = { c->group_id, c->peer, 0 }, *found = NULL;
        if (members->n > 0)
            found =
                bsearch(&wanted, members->member, members->n, sizeof wanted, compare_members);
        uint32_t unknown = c->ranks_n == t->ranks_n ? c->peer : NONE_U32;
        c->peer = found ? found->rank : unknown;
    }
}
