/* calls.c - tasks of a program as transfers: parts of the arena, and who takes part. */
#include "exec/calls.h"

#include <stdlib.h>
#include <string.h>

static bool part_of_peer(const Task *t, const Buffer *b, uint64_t parts, Part *part, Err *err)
{
    uint32_t peer = t->op->u.comm.peer, n = t->members_n;
    if ((parts != n && parts + 1 != n) || b->elements % parts != 0)
        return err_set(err,
                       "op %u: %" PRIu64 " messages of %" PRIu64
                       " bytes lie in a tensor for %u ranks",
                       t->id, parts, t->op->u.comm.bytes, n);
    uint64_t place = parts == n ? peer : peer - (peer > t->self);
    part->elements = b->elements / parts;
    part->offset += place * (b->bytes / parts);
    return true;
}

static bool is_result(const Op *op, const Buffer *b)
{
    bool two =
        op->kind == OP_ALL_GATHER || op->kind == OP_REDUCE_SCATTER || op->kind == OP_ALL_TO_ALL;
    return two && b->mode == ARG_WRITE;
}

static bool add_part(CommCalls *x, const Task *t, const Buffer *b, uint64_t messages, Err *err)
{
    Part *part = &x->parts[x->parts_n++];
    *part = (Part){ b->offset, b->elements, b->dtype };
    return messages == 1 || part_of_peer(t, b, messages, part, err);
}

static uint64_t messages_in(const Program *p, const Task *t)
{
    uint64_t bytes = 0;
    for (uint32_t a = 0; a < t->args_n; a++)
        bytes += task_args(p, t)[a].bytes;
    uint64_t one = t->op->u.comm.bytes;
    return op_is_p2p(t->op->kind) && one > 0 && bytes > one ? bytes / one : 1;
}

/* Over tensor-parallel ranks the softmax of the loss begins with the largest logit of a row. */
static bool takes_largest(const Program *p, const Task *t)
{
    return t->op->kind == OP_ALL_REDUCE && t->args_n > 0 &&
           strcmp(program_text(p, task_args(p, t)->name), "loss maximum") == 0;
}

/* The arguments of which the staging buffer holds the last columns, side by side: all but the one
 * that is whole. */
static uint32_t staged_first(const Task *t)
{
    return t->op->kind == OP_ALL_GATHER ? 0 : 1;
}

static uint32_t staged_n(const Task *t)
{
    return t->staged ? t->args_n - 1 : 0;
}

/* Of one side: what goes in, or what comes out. */
static bool add_parts(CommCalls *x, CommCall *c, const Program *p, const Task *t, bool results,
                      Err *err)
{
    uint64_t messages = messages_in(p, t);
    const Part *first = &x->parts[x->parts_n];
    uint32_t before = x->parts_n;
    for (uint32_t a = 0; a < t->args_n; a++) {
        const Buffer *b = &task_args(p, t)[a];
        uint32_t column = a - staged_first(t); /* of the staging buffer */
        bool staged = column < staged_n(t);
        if (is_result(t->op, b) != results || (staged && column > 0))
            continue;
        if (!add_part(x, t, staged ? &task_args(p, t)[t->args_n] : b, messages, err))
            return false;
    }
    *(results ? &c->out : &c->in) = first;
    *(results ? &c->out_n : &c->in_n) = x->parts_n - before;
    return true;
}

static bool add_call(CommCalls *x, const Program *p, uint32_t task, Err *err)
{
    const Task *t = &p->tasks[task];
    CommCall *c = &x->calls[x->calls_n];
    x->of[task] = x->calls_n++;
    if (t->args_n == 0)
        return err_set(err, "op %u '%s' transfers no tensor", t->id,
                       program_text(p, t->op->name));
    *c = (CommCall){ .kind = t->op->kind,
                     .lane = t->lane,
                     .members_n = t->members_n,
                     .self = t->self,
                     .peer = t->op->u.comm.peer,
                     .tag = t->op->u.comm.tag,
                     .members = p->members + t->members_first,
                     .maximum = takes_largest(p, t) };
    return add_parts(x, c, p, t, false, err) && add_parts(x, c, p, t, true, err);
}

bool calls_make(CommCalls *x, const Program *p, Err *err)
{
    uint32_t calls = 0;
    for (uint32_t i = 0; i < p->tasks_n; i++)
        calls += op_is_comm(p->tasks[i].op->kind);
    *x = (CommCalls){ .calls = mem_zero((size_t)calls + 1, sizeof *x->calls),
                      .of = mem_zero((size_t)p->tasks_n + 1, sizeof *x->of),
                      .parts = mem_zero((size_t)p->args_n + 1, sizeof *x->parts) };
    for (uint32_t i = 0; i < p->tasks_n; i++) {
        x->of[i] = NONE_U32;
        if (op_is_comm(p->tasks[i].op->kind) && !add_call(x, p, i, err))
            return err_wrap(err, "rank %u", p->rank);
    }
    return true;
}

void calls_free(CommCalls *x)
{
    free(x->of);
    free(x->calls);
    free(x->parts);
    *x = (CommCalls){ 0 };
}

bool calls_staged(const Program *p, const Task *t, uint32_t i, StagedCopy *copy)
{
    if (i >= staged_n(t))
        return false;
    const Buffer *tensor = &task_args(p, t)[staged_first(t) + i];
    const Buffer *buffer = &task_args(p, t)[t->args_n];
    uint64_t rows = buffer->bytes > tensor->bytes ? 1 : tensor->dims[0];
    uint64_t pitch = tensor->bytes / rows, buffer_pitch = buffer->bytes / rows;
    uint64_t row = min_u64(pitch, buffer_pitch / staged_n(t));
    *copy = (StagedCopy){ .tensor_offset = tensor->offset + pitch - row,
                          .buffer_offset = buffer->offset + i * row,
                          .rows = rows,
                          .row_bytes = row,
                          .pitch_bytes = pitch,
                          .buffer_pitch_bytes = buffer_pitch,
                          .before = t->op->kind == OP_ALL_GATHER };
    return true;
}

void calls_stage(const Program *p, const Task *t, uint8_t *arena, bool before)
{
    StagedCopy c;
    for (uint32_t k = 0; calls_staged(p, t, k, &c) && c.before == before; k++)
        for (uint64_t i = 0; i < c.rows; i++) {
            uint8_t *there = arena + c.tensor_offset + i * c.pitch_bytes;
            uint8_t *here = arena + c.buffer_offset + i * c.buffer_pitch_bytes;
            memcpy(before ? here : there, before ? there : here, c.row_bytes);
        }
}
