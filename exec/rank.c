/*
 * rank.c - the parts of a run, opened in order and closed in reverse.
 */
#include "exec/rank.h"

#include <stdlib.h>
#include <unistd.h>

#include "exec/net.h"
#include "exec/snapshot.h"

typedef struct RankRun {
    const RankSetup *s;
    RankResult *out;
    Program program;
    Fabric *fabric;
    Pieces pieces;
    Data *data;
    Feed *feed;
    Job job;
    NormOwners owners;
    Backend *backend;
    Record record;
    uint64_t done_steps, kept_step; /* kept_step: of the last snapshot; 0: none */
    uint64_t steps_cap;
} RankRun;

/* ---- opening ---- */

static SnapshotInfo snapshot_info(const RankRun *r)
{
    const RankSetup *s = r->s;
    return (SnapshotInfo){ .step = r->done_steps,
                           .before = r->kept_step,
                           .seed = s->seed,
                           .model = s->model,
                           .text = s->text };
}

/* Where the backend has its own memory, the fabric's is of no use. */
static Store store_of(const RankRun *r)
{
    const BackendType *type = r->s->backend;
    return (Store){ .memory = type->own_memory ? NULL : fabric_arena(r->fabric),
                    .backend = r->backend,
                    .read = type->read,
                    .write = type->write,
                    .clear = type->clear };
}

static bool set_parameters(RankRun *r, Err *err)
{
    const RankSetup *s = r->s;
    Store store = store_of(r);
    if (!pieces_init(&r->pieces, &r->program, s->whole, s->seed, &store, err))
        return false;
    if (!s->resume)
        return true;
    SnapshotInfo info = snapshot_info(r);
    if (!snapshot_read(s->checkpoint, &info, &r->pieces, &r->program, s->whole, &store,
                       r->fabric, err))
        return false;
    if (info.seed != s->seed)
        return err_set(err,
                       "the snapshot in '%.200s' is of training.seed %" PRIu64 ", here it is "
                       "%" PRIu64 ": other data would follow",
                       s->checkpoint, info.seed, s->seed);
    r->done_steps = r->kept_step = info.step;
    return true;
}

static bool load(void *user, const Task *t, const Buffer *b, void *out, Err *err)
{
    RankRun *r = user;
    return feed_load(r->feed, t, b, out, err);
}

static void rewind_feed(void *user)
{
    RankRun *r = user;
    feed_step(r->feed, 0);
}

static bool open_backend(RankRun *r, Err *err)
{
    const RankSetup *s = r->s;
    r->owners = (NormOwners){ &r->program, s->whole, &r->pieces, s->feed.tp_index };
    r->job = (Job){ .program = &r->program,
                    .fabric = r->fabric,
                    .facts = s->facts,
                    .hyper = s->hyper,
                    .norm_counts = norm_counts,
                    .norm_owners = &r->owners,
                    .clock = s->clock,
                    .times = s->times,
                    .load = load,
                    .load_user = r,
                    .rewind = rewind_feed,
                    .cuda = s->cuda,
                    .timed = s->trace && !s->collected };
    r->record.job = &r->job;
    return s->backend->open(&r->backend, &r->job, err);
}

/* What every rank knows of itself, told to all. */
static bool share_facts(RankRun *r, Err *err)
{
    RankResult *out = r->out;
    out->world_n = r->program.graph->world_n;
    out->peak_bytes = mem_zero(out->world_n, sizeof *out->peak_bytes);
    out->pids = mem_zero(out->world_n, sizeof *out->pids);
    int64_t pid = (int64_t)getpid();
    uint64_t *arena_bytes = mem_zero(out->world_n, sizeof *arena_bytes);
    uint64_t *beside_bytes = mem_zero(out->world_n, sizeof *beside_bytes);
    const BackendType *type = r->s->backend;
    uint64_t beside = type->beside_bytes ? type->beside_bytes(r->backend) : 0;
    bool ok =
        fabric_share(r->fabric, &r->program.peak_bytes, out->peak_bytes, sizeof(uint64_t),
                     err) &&
        fabric_share(r->fabric, &r->program.arena_bytes, arena_bytes, sizeof(uint64_t), err) &&
        fabric_share(r->fabric, &beside, beside_bytes, sizeof beside, err) &&
        fabric_share(r->fabric, &pid, out->pids, sizeof pid, err);
    for (uint32_t i = 0; i < out->world_n; i++)
        out->arena_bytes = max_u64(out->arena_bytes, arena_bytes[i]);
    for (uint32_t i = 0; i < out->world_n; i++)
        out->beside_bytes = max_u64(out->beside_bytes, beside_bytes[i]);
    free(beside_bytes);
    free(arena_bytes);
    return ok;
}

/* What this machine takes, told by rank 0; the arena is as it was before. */
static bool measure(RankRun *r, const RankPlace *place, Err *err)
{
    const RankSetup *s = r->s;
    MachineTimes m = { 0 };
    if (!s->measured)
        return true;
    ASSERT(!s->backend->own_memory); /* measure_job works in the fabric's */
    Store store = store_of(r);
    feed_prepare(r->feed, 0, 1);
    feed_ahead(r->feed, 0); /* as in most steps */
    bool ok = pieces_init(&r->pieces, &r->program, s->whole, s->seed, &store, err) &&
              measure_job(&m, &r->job, place->local_n, s->beside_n ? s->beside_n : 1, err) &&
              (place->rank > 0 || s->measured(s->user, &m, err));
    machine_times_free(&m);
    return ok && store_clear(&store, 0, r->program.arena_bytes, err);
}

static bool open_run(RankRun *r, const RankPlace *place, Err *err)
{
    const RankSetup *s = r->s;
    if (!program_make(&r->program, s->graph, place->rank, err) ||
        !pieces_make(&r->pieces, &r->program, s->whole, err) ||
        (s->backend->check && !s->backend->check(&r->program, err)))
        return false;
    uint64_t bytes = s->backend->own_memory ? 0 : r->program.arena_bytes;
    if (!fabric_open(&r->fabric, place, bytes, err))
        return false;
    fabric_use_rings(r->fabric, s->rings);
    bool ok = data_open(&r->data, s->data, err) && open_backend(r, err);
    if (ok) {
        r->feed = feed_open(r->data, s->data, &s->feed, &r->program);
        ok = measure(r, place, err) && set_parameters(r, err) &&
             (!s->checkpoint || snapshot_prepare(s->checkpoint, &r->program, r->fabric, err));
    }
    if (!ok) {
        fabric_abort(r->fabric, err->text);
        return false;
    }
    return share_facts(r, err);
}

static void close_run(RankRun *r)
{
    if (r->s->backend)
        r->s->backend->close(r->backend);
    record_free(&r->record);
    feed_close(r->feed);
    data_close(r->data);
    pieces_free(&r->pieces);
    fabric_close(r->fabric);
    program_free(&r->program);
}

/* ---- steps ---- */

static bool prepare(void *user, uint64_t step, Err *err)
{
    RankRun *r = user;
    (void)err;
    feed_step(r->feed, step);
    return true;
}

static void ahead(void *user, uint64_t step)
{
    RankRun *r = user;
    feed_ahead(r->feed, step);
}

static bool snapshot(RankRun *r, Err *err)
{
    const RankSetup *s = r->s;
    SnapshotInfo info = snapshot_info(r);
    Store store = store_of(r);
    bool ok = snapshot_write(s->checkpoint, &info, &r->pieces, &r->program, s->whole, &store,
                             r->fabric, err);
    r->kept_step = ok ? r->done_steps : r->kept_step;
    return ok;
}

static bool after(void *user, const StepInfo *info, Err *err)
{
    RankRun *r = user;
    const RankSetup *s = r->s;
    RankResult *out = r->out;
    GROW(out->steps, out->steps_n, r->steps_cap);
    out->steps[out->steps_n++] = *info;
    r->done_steps = info->step + 1;
    if (s->each_step && !s->each_step(s->user, info, err))
        return false;
    bool last = r->done_steps == s->steps;
    bool due = last || (s->every > 0 && r->done_steps % s->every == 0);
    return !s->checkpoint || !due || snapshot(r, err);
}

static bool gather(RankRun *r, Err *err)
{
    RankResult *out = r->out;
    if (!record_gather(&r->record, r->s->backend->now_ns, r->backend, &out->timeline,
                       &out->shift_max_ns, err))
        return false;
    int64_t now_ns = net_now_ns();
    RankEnd end = { .fabric = r->fabric,
                    .clocks = &r->record.clocks,
                    .rank = r->program.rank,
                    .zero_ns = now_ns - r->s->backend->now_ns(r->backend),
                    .now_ns = now_ns,
                    .out = out };
    return !r->s->ended || r->s->ended(r->s->user, &end, err);
}

static bool run_steps(RankRun *r, Err *err)
{
    const RankSetup *s = r->s;
    uint64_t left = s->steps > r->done_steps ? s->steps - r->done_steps : 0;
    Walk w = { .job = &r->job,
               .type = s->backend,
               .backend = r->backend,
               .first_step = r->done_steps,
               .steps = left,
               .host_start_ns = s->host_start_ns,
               .record = s->trace ? &r->record : NULL,
               .prepare = prepare,
               .ahead = ahead,
               .after = after,
               .user = r };
    r->out->first_step = r->done_steps;
    feed_prepare(r->feed, r->done_steps, left);
    feed_ahead(r->feed, r->done_steps);
    return walk(&w, err) && (!s->trace || left == 0 || gather(r, err));
}

bool rank_run(RankResult *out, const RankSetup *s, const RankPlace *place, Err *err)
{
    *out = (RankResult){ 0 };
    RankRun r = { .s = s, .out = out };
    bool ok = open_run(&r, place, err) && run_steps(&r, err);
    close_run(&r);
    return ok;
}

void rank_result_free(RankResult *r)
{
    free(r->steps);
    free(r->peak_bytes);
    free(r->pids);
    timeline_free(&r->timeline);
    *r = (RankResult){ 0 };
}
