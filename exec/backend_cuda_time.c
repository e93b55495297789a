/*
 * backend_cuda_time.c - when tasks ran, by events on the device.
 *
 * Two events cost a kernel a microsecond or two, so they stand around stretches: tasks of a
 * lane that nothing but their order separates.  A stretch's time is its first task's, the rest
 * are at its end; the sums that a step reports are right.  When times of each task are wanted
 * (Job.timed) every task, or group posted together, is a stretch.
 *
 * CLOCK.  An event at the beginning of the step, when the device is idle, is put between two
 * looks at the host's clock; all others count from it.  cudaEventElapsedTime is good for half a
 * microsecond.
 */
#include "exec/backend_cuda_device.h"

#include <stdlib.h>

#include "exec/net.h"

/* ---- stretches ---- */

/* Does a task go on with the stretch that the one before it on the lane is in? */
static bool goes_on(const Backend *b, const Task *before, const Task *t)
{
    if (before->op->grouped)
        return true;
    if (b->job->timed)
        return false;
    return t->waits_n == 0 && t->guards_n == 0 && !op_is_comm(t->op->kind) &&
           !op_is_comm(before->op->kind);
}

static bool new_stretch(Backend *b, Lane lane, uint32_t order, Err *err)
{
    GROW(b->stretches, b->stretches_n, b->stretches_cap);
    Stretch *s = &b->stretches[b->stretches_n++];
    *s = (Stretch){ .lane = lane, .first = order };
    return cuda_ok(cudaEventCreateWithFlags(&s->start, cudaEventDefault), "making events",
                   err) &&
           cuda_ok(cudaEventCreateWithFlags(&s->end, cudaEventDefault), "making events", err);
}

static bool cut_lane(Backend *b, Lane lane, Err *err)
{
    const Program *p = b->p;
    bool ok = true;
    for (uint32_t i = 0; i < p->lane_n[lane] && ok; i++) {
        const Task *t = &p->tasks[program_task_at(p, lane, i)];
        const Task *before = i > 0 ? &p->tasks[program_task_at(p, lane, i - 1)] : NULL;
        if (!before || !goes_on(b, before, t))
            ok = new_stretch(b, lane, i, err);
        b->stretches[b->stretches_n - 1].n++;
    }
    return ok;
}

bool times_open(Backend *b, Err *err)
{
    const Program *p = b->p;
    size_t n = (size_t)p->tasks_n + 1;
    bool ok =
        cuda_ok(cudaEventCreateWithFlags(&b->base, cudaEventDefault), "making events", err);
    b->begins = mem_zero(n, sizeof *b->begins);
    b->ends = mem_zero(n, sizeof *b->ends);
    b->records = mem_zero(n, sizeof *b->records);
    for (uint32_t t = 0; t < p->tasks_n; t++)
        b->begins[t] = b->ends[t] = NONE_U32;
    for (uint32_t lane = 0; lane < LANE_HOST && ok; lane++)
        ok = cut_lane(b, (Lane)lane, err);
    for (uint32_t i = 0; i < b->stretches_n && ok; i++) {
        const Stretch *s = &b->stretches[i];
        b->begins[program_task_at(p, s->lane, s->first)] = i;
        b->ends[program_task_at(p, s->lane, s->first + s->n - 1)] = i;
    }
    return ok;
}

void times_close(Backend *b)
{
    for (uint32_t i = 0; i < b->stretches_n; i++) {
        if (b->stretches[i].start)
            cudaEventDestroy(b->stretches[i].start);
        if (b->stretches[i].end)
            cudaEventDestroy(b->stretches[i].end);
    }
    if (b->base)
        cudaEventDestroy(b->base);
    free(b->stretches);
    free(b->begins);
    free(b->ends);
    free(b->records);
}

/* ---- a step ---- */

bool times_begin(Backend *b, Err *err)
{
    int64_t before_ns = net_now_ns();
    bool ok = cuda_ok(cudaEventRecord(b->base, b->stream[LANE_COMPUTE]), "at the step's begin",
                      err) &&
              cuda_ok(cudaEventSynchronize(b->base), "at the step's begin", err);
    int64_t after_ns = net_now_ns();
    b->base_ns = before_ns + (after_ns - before_ns) / 2 - b->zero_ns;
    return ok;
}

static bool event_ns(const Backend *b, cudaEvent_t event, int64_t *ns, Err *err)
{
    float ms = 0;
    if (!cuda_ok(cudaEventElapsedTime(&ms, b->base, event), "reading times", err))
        return false;
    *ns = b->base_ns + (int64_t)((double)ms * 1e6);
    return true;
}

static bool times_of(Backend *b, const Stretch *s, Err *err)
{
    int64_t start_ns, end_ns;
    if (!event_ns(b, s->start, &start_ns, err) || !event_ns(b, s->end, &end_ns, err))
        return false;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t t = program_task_at(b->p, s->lane, s->first + i);
        /* Tasks posted together run together. */
        bool at_start = i == 0 || b->p->tasks[t - 1].op->grouped;
        TaskRecord *r = &b->records[t];
        r->start_ns = r->met_ns = at_start ? start_ns : end_ns;
        r->end_ns = max_i64(end_ns, r->start_ns);
        r->launched_ns = min_i64(r->launched_ns, r->start_ns);
    }
    return true;
}

bool times_end(Backend *b, Err *err)
{
    for (uint32_t i = 0; i < b->stretches_n; i++)
        if (!times_of(b, &b->stretches[i], err))
            return false;
    return true;
}
