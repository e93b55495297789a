/*
 * records.c - opens a recording, and collects what its spans are joined with.
 *
 * Nothing in the file is believed: a record is looked at only when it lies within the file
 * and is as long as its kind is, texts end in NUL, numbers are looked up, never indexed with
 * before they were compared with the size of the table.
 */
#include "profile/records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profile/records_parts.h"

void records_find(RecordsInfo *info, const char *format, ...)
{
    if (info->findings_n == RECORDS_FINDINGS_MAX)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(info->finding[info->findings_n++], RECORDS_TEXT_BYTES, format, args);
    va_end(args);
}

/* ---- joins ---- */

void join_add(Join *j, uint64_t key, uint64_t order, uint64_t value)
{
    GROW(j->row, j->n, j->cap);
    j->row[j->n++] = (JoinRow){ key, order, value };
}

static int compare_rows(const void *a_, const void *b_)
{
    const JoinRow *a = a_, *b = b_;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

void join_sort(Join *j)
{
    bool sorted = true;
    for (uint64_t i = 1; i < j->n && sorted; i++)
        sorted = compare_rows(&j->row[i - 1], &j->row[i]) <= 0;
    if (!sorted)
        qsort(j->row, j->n, sizeof *j->row, compare_rows);
}

/* The first row that is not before (key, order). */
static uint64_t lower_bound(const Join *j, uint64_t key, uint64_t order)
{
    uint64_t low = 0, high = j->n;
    const JoinRow wanted = { key, order, 0 };
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (compare_rows(&j->row[mid], &wanted) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const JoinRow *join_nearest(const Join *j, uint64_t key, uint64_t order)
{
    uint64_t at = lower_bound(j, key, order);
    const JoinRow *after = at < j->n && j->row[at].key == key ? &j->row[at] : NULL;
    const JoinRow *before = at > 0 && j->row[at - 1].key == key ? &j->row[at - 1] : NULL;
    if (!after || !before)
        return after ? after : before;
    return after->order - order < order - before->order ? after : before;
}

const JoinRow *join_next(const Join *j, uint64_t key, uint64_t order)
{
    uint64_t at = lower_bound(j, key, order + 1);
    return at < j->n && j->row[at].key == key ? &j->row[at] : NULL;
}

/* ---- records ---- */

/* Flat table: the length of each kind. */
static const uint16_t kind_bytes[RAW_KIND_N] = {
    [RAW_TEXT] = sizeof(RawTop) + 8,
    [RAW_CLOCK] = sizeof(RawClock),
    [RAW_KERNEL] = RAW_KERNEL_BYTES_OLD,
    [RAW_COPY] = sizeof(RawMove),
    [RAW_SET] = sizeof(RawMove),
    [RAW_CALL] = sizeof(RawCall),
    [RAW_LABEL] = sizeof(RawLabel),
    [RAW_NODE] = sizeof(RawNode),
    [RAW_CLONE] = sizeof(RawClone),
    [RAW_SYNC] = sizeof(RawSync),
    [RAW_EVENT] = sizeof(RawEvent),
    [RAW_MARK] = sizeof(RawMark),
    [RAW_COST] = sizeof(RawCost),
    [RAW_THREAD] = sizeof(RawThread),
    [RAW_DEVICE] = sizeof(RawDevice),
    [RAW_TROUBLE] = sizeof(RawTrouble),
    [RAW_NCCL_COMM] = sizeof(RawNcclComm),
    [RAW_NCCL_CALL] = sizeof(RawNcclCall),
    [RAW_NCCL_LAUNCH] = sizeof(RawNcclLaunch),
    [RAW_NCCL_TASK] = sizeof(RawNcclTask),
};

const RawTop *records_at(const Records *r, uint64_t at)
{
    if (r->n - at < sizeof(RawTop))
        return NULL;
    const RawTop *top = (const RawTop *)(const void *)(r->bytes + at);
    uint16_t least = top->kind < RAW_KIND_N ? kind_bytes[top->kind] : sizeof(RawTop);
    if (top->kind == 0 || top->bytes % 8 != 0 || top->bytes < least || top->bytes > r->n - at)
        return NULL;
    if (top->kind == RAW_TEXT && ((const char *)top)[top->bytes - 1] != '\0')
        return NULL;
    return top;
}

const char *records_text(const Records *r, uint32_t number)
{
    return number > 0 && number < r->texts_cap && r->text[number] ? r->text[number] : "?";
}

uint32_t records_name(Records *r, uint32_t number)
{
    if (number == 0 || number >= r->texts_cap || !r->text[number])
        return intern(&r->t->names, "?");
    if (r->interned[number] == 0)
        r->interned[number] = intern(&r->t->names, r->text[number]) + 1;
    return r->interned[number] - 1;
}

/* ---- the first walk ---- */

/* Texts are numbered one by one: no number exceeds what the file has room for. */
static void keep_text(Records *r, const RawTop *top)
{
    if (top->a == 0 || top->a > r->n / kind_bytes[RAW_TEXT])
        return;
    while (top->a >= r->texts_cap) {
        uint32_t cap = r->texts_cap ? 2 * r->texts_cap : 256;
        r->text = mem_resize(r->text, cap, sizeof *r->text);
        memset(r->text + r->texts_cap, 0, (cap - r->texts_cap) * sizeof *r->text);
        r->texts_cap = cap;
    }
    r->text[top->a] = ((const RawText *)(const void *)top)->text;
}

static void keep_clock(Records *r, const RawClock *c)
{
    if (!timeline_ns_in_range(c->cupti_ns) || !timeline_ns_in_range(c->real_ns) ||
        !timeline_ns_in_range(c->monotonic_ns))
        return;
    if (r->clocks_n++ == 0)
        r->first = *c;
    r->last = *c;
}

static void keep_end(Records *r, int64_t end_ns)
{
    if (timeline_ns_in_range(end_ns))
        r->end_ns = max_i64(r->end_ns, end_ns);
}

static void keep_task(Records *r, const RawNcclTask *task, uint64_t at)
{
    if (task->launch != 0)
        join_add(&r->tasks, task->launch, at, at);
    else if (task->top.a != 0)
        join_add(&r->tasks, 0, at, at); /* its launch is found by the call: records_nccl.c */
    else
        join_add(&r->loose_tasks, task->thread, at, at);
}

/* Flat table: what is kept of each kind. */
static void keep(Records *r, const RawAny *x, uint64_t at)
{
    uint32_t a = x->top.a;
    switch (x->top.kind) {
    case RAW_TEXT:
        keep_text(r, &x->top);
        break;
    case RAW_CLOCK:
        keep_clock(r, &x->clock);
        break;
    case RAW_KERNEL:
        keep_end(r, x->kernel.end_ns);
        break;
    case RAW_CALL:
        keep_end(r, x->call.end_ns);
        join_add(&r->calls, x->call.correlation, at, at);
        break;
    case RAW_LABEL:
        join_add(x->label.what == RAW_LAUNCH ? &r->launches : &r->ops, a, at, x->label.id);
        break;
    case RAW_NODE:
        join_add(a == RAW_LAUNCH ? &r->node_launches : &r->node_ops, x->node.node, at,
                 x->node.id);
        break;
    case RAW_CLONE:
        join_add(&r->clones, x->clone.node, at, x->clone.from);
        break;
    case RAW_MARK:
        keep_end(r, x->mark.at_ns);
        if (x->mark.flags & RAW_MARK_END)
            join_add(&r->mark_ends, x->mark.id, at, (uint64_t)x->mark.at_ns);
        break;
    case RAW_THREAD:
        join_add(&r->threads, a, at, x->thread.name);
        break;
    case RAW_DEVICE:
        join_add(&r->devices, a, at, x->device.name);
        break;
    case RAW_NCCL_COMM:
        join_add(&r->comms, a, at, at);
        break;
    case RAW_NCCL_CALL:
        join_add(&r->nccl_calls, a, at, at);
        join_add(&r->group_calls, group_key(x->nccl_call.group, x->nccl_call.comm), at, at);
        break;
    case RAW_NCCL_LAUNCH:
        join_add(&r->nccl_launches, a, at, at);
        join_add(&r->group_launches, group_key(x->launch.group, x->launch.comm), at, a);
        break;
    case RAW_NCCL_TASK:
        keep_task(r, &x->task, at);
        break;
    default:
        break;
    }
}

static void first_walk(Records *r)
{
    uint64_t at = RAW_HEAD_BYTES;
    const RawTop *top;
    while ((top = records_at(r, at))) {
        r->info->unknown_n += top->kind >= RAW_KIND_N;
        if (top->kind < RAW_KIND_N)
            keep(r, (const RawAny *)(const void *)top, at);
        at += top->bytes;
    }
    r->info->cut_short = at != r->n;
    if (at != r->n)
        records_find(r->info, "'%.100s' ends in the middle of a record, at byte %" PRIu64,
                     r->name, at);
    r->n = at;

    for (size_t i = 0; i < ARRAY_N(r->joins); i++)
        join_sort(&r->joins[i]);
    r->interned = mem_zero(r->texts_cap + 1, sizeof *r->interned);
    r->said = mem_zero(r->texts_cap + 1, sizeof *r->said);
}

/* ---- what the collector itself had to say ---- */

static void take_trouble(Records *r)
{
    RecordsInfo *info = r->info;
    const RawHead *head = &info->head;
    const RawTop *top;
    for (uint64_t at = RAW_HEAD_BYTES; (top = records_at(r, at)); at += top->bytes)
        if (top->kind == RAW_TROUBLE)
            snprintf(info->trouble, sizeof info->trouble, "%s", records_text(r, top->a));
    if (r->devices.n > 0)
        snprintf(info->device, sizeof info->device, "%s",
                 records_text(r, (uint32_t)r->devices.row[0].value));
    if (head->write_errno)
        records_find(info, "'%.80s' could not grow (%s): %" PRIu64 " records are lost", r->name,
                     strerror((int)head->write_errno), head->unwritten_n);
    if (head->dropped_n)
        records_find(info, "'%.80s': CUPTI dropped %" PRIu64 " records%s", r->name,
                     head->dropped_n, head->refused_n ? ", it had no buffer free" : "");
    if (head->signal)
        records_find(info,
                     "process %" PRIu32 " was ended by signal %" PRIu32
                     " (%s); what it had recorded is here",
                     head->pid, head->signal, strsignal((int)head->signal));
    else if (!(head->flags & RAW_ENDED))
        records_find(info,
                     "process %" PRIu32 " did not end in order; what it had recorded up "
                     "to its last second is here",
                     head->pid);
}

/* ---- opening ---- */

static bool is_recording(const uint8_t *head, size_t n)
{
    static const uint8_t magic[8] = RAW_MAGIC;
    return n >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

static bool check_head(const RawHead *head, uint64_t n, const char *name, Err *err)
{
    if (!is_recording(head->magic, (size_t)min_u64(n, sizeof head->magic)))
        return err_set(err, "'%s' is no recording of the collector", name);
    if (n < RAW_HEAD_BYTES)
        return err_set(err, "'%s' ends within its head, after %" PRIu64 " bytes", name, n);
    if (head->byte_order != RAW_BYTE_ORDER)
        return err_set(err, "'%s' was recorded on a machine of the other byte order", name);
    if (head->version != RAW_VERSION || head->head_bytes != RAW_HEAD_BYTES)
        return err_set(err, "'%s' is a recording of version %" PRIu32 ", version %d is read",
                       name, head->version, RAW_VERSION);
    return true;
}

static void take_head(RecordsInfo *info, const void *bytes)
{
    *info = (RecordsInfo){ .begin_ns = 0 };
    memcpy(&info->head, bytes, sizeof info->head);
    info->head.host[sizeof info->head.host - 1] = '\0';
    info->head.command[sizeof info->head.command - 1] = '\0';
}

static void release(Records *r)
{
    for (size_t i = 0; i < ARRAY_N(r->joins); i++)
        free(r->joins[i].row);
    free(r->text);
    free(r->interned);
    free(r->said);
    free(r->counter);
    free(r->owner);
    free(r->bare);
}

static uint32_t default_rank(const RecordsOptions *o, const RawHead *head)
{
    if (o->rank != NONE_U32)
        return o->rank;
    return head->rank < TIMELINE_RANKS_MAX ? head->rank : 0;
}

bool records_read_bytes(Timeline *t, RecordsInfo *info, const void *bytes, uint64_t n,
                        const char *name, const RecordsOptions *o, Err *err)
{
    ASSERT((uintptr_t)bytes % 8 == 0 && !t->sealed);
    *info = (RecordsInfo){ .begin_ns = 0 };
    if (!check_head(bytes, n, name, err))
        return false;
    take_head(info, bytes);
    if (t->spans_n == 0 && !t->correlation)
        timeline_want(t, true, false);
    Records r = { .bytes = bytes, .n = n, .name = name, .o = o, .info = info, .t = t };
    r.rank = default_rank(o, &info->head);
    r.steps_track = r.waits_track = r.costs_track = NONE_U32;
    first_walk(&r);
    take_trouble(&r);
    records_clock_settle(&r);
    records_nccl_settle(&r);
    records_spans(&r);
    records_nccl_loose(&r);
    release(&r);
    return true;
}

/* ---- files ---- */

static const void *map_file(const char *path, uint64_t *n, Err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        err_set(err, "cannot open '%s': %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    const void *bytes = NULL;
    *n = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode) || st.st_size < 8) {
        err_set(err, "'%s' is no recording of the collector", path);
    } else {
        bytes = mmap(NULL, (size_t)*n, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED) {
            err_set(err, "cannot read '%s': %s", path, strerror(errno));
            bytes = NULL;
        }
    }
    close(fd);
    return bytes;
}

bool records_read(Timeline *t, RecordsInfo *info, const char *path, const RecordsOptions *o,
                  Err *err)
{
    uint64_t n = 0;
    const void *bytes = map_file(path, &n, err);
    if (!bytes)
        return false;
    bool ok = records_read_bytes(t, info, bytes, n, path, o, err);
    munmap((void *)(uintptr_t)bytes, (size_t)n);
    return ok;
}

static bool is_idle(const void *bytes, uint64_t n)
{
    const Records r = { .bytes = bytes, .n = n };
    const RawTop *top;
    for (uint64_t at = RAW_HEAD_BYTES; (top = records_at(&r, at)); at += top->bytes)
        if (top->kind == RAW_KERNEL || top->kind == RAW_COPY || top->kind == RAW_SET ||
            top->kind == RAW_TROUBLE)
            return false;
    return true;
}

bool records_head(RawHead *head, bool *idle, const char *path, Err *err)
{
    uint64_t n = 0;
    const void *bytes = map_file(path, &n, err);
    if (!bytes)
        return false;
    bool ok = check_head(bytes, n, path, err);
    if (ok) {
        RecordsInfo info;
        take_head(&info, bytes);
        *head = info.head;
        *idle = is_idle(bytes, n);
    }
    munmap((void *)(uintptr_t)bytes, (size_t)n);
    return ok;
}
