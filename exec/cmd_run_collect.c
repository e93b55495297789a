/*
 * cmd_run_collect.c - starts the collector, and makes the timeline of all ranks' recordings.
 *
 * A recording is a file of its process, on whatever host; its bytes go to rank 0 through the
 * fabric.  Its times are CLOCK_MONOTONIC of that host: less that of the run's beginning, and moved
 * as clocks lie, they are rank 0's.
 */
#include "exec/cmd_run_collect.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/graph_spans.h"
#include "core/own_folder.h"
#include "core/temporary.h"
#include "profile/cmd_profile.h"
#include "profile/metrics.h"
#include "profile/records.h"
#include "traces/rules.h"

enum { PATH_CAP = 4096, FOLDER_CAP = 256, WHY_CAP = 300 };

/* Of this process. */
static struct {
    pthread_mutex_t lock;
    uint32_t users_n; /* ranks */
    const CaptureApi *api;
    bool tried, records;
    char why[WHY_CAP]; /* it does not record */
    char folder[FOLDER_CAP], path[FOLDER_CAP + 32];
} collector = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- starting ---- */

/* LOCKSTEP_CAPTURE, or beside the program, or where it is installed. */
static bool find(char path[PATH_CAP])
{
    static const char *const places[] = { "", "/../lib/lockstep" };
    char own[PATH_CAP - 64];
    const char *given = getenv("LOCKSTEP_CAPTURE");
    if (given && *given)
        return snprintf(path, PATH_CAP, "%s", given) < PATH_CAP && access(path, R_OK) == 0;
    (void)own_folder(own, sizeof own);
    for (size_t i = 0; i < ARRAY_N(places); i++) {
        snprintf(path, PATH_CAP, "%s%s/" CAPTURE_PLUGIN_FILE, own, places[i]);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

static const CaptureApi *load(char path[PATH_CAP], char why[WHY_CAP])
{
    if (!find(path)) {
        snprintf(why, WHY_CAP, "there is no %s: it is built where CUPTI is",
                 CAPTURE_PLUGIN_FILE);
        return NULL;
    }
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const CaptureApi *api = plugin ? dlsym(plugin, CAPTURE_PLUGIN_SYMBOL) : NULL;
    if (!plugin)
        snprintf(why, WHY_CAP, "the collector cannot be loaded: %.200s", dlerror());
    else if (!api || api->version != CAPTURE_VERSION)
        snprintf(why, WHY_CAP, "'%.200s' belongs to another build of lockstep", path);
    return api && api->version == CAPTURE_VERSION ? api : NULL;
}

static bool make_folder(void)
{
    if (!temporary_name(collector.folder, FOLDER_CAP, "trace") || !mkdtemp(collector.folder)) {
        collector.folder[0] = '\0';
        snprintf(collector.why, WHY_CAP, "no folder can be made in '%.200s'",
                 temporary_folder());
        return false;
    }
    snprintf(collector.path, sizeof collector.path, "%s/run" RAW_ENDING, collector.folder);
    return true;
}

/* NCCL tells the collector what it chose, unless the user has another listener. */
static bool attach(const RankPlace *place)
{
    char path[PATH_CAP];
    collector.api = load(path, collector.why);
    if (!collector.api || !make_folder())
        return false;
    setenv("NCCL_PROFILER_PLUGIN", path, 0);
    const CaptureOptions o = { .path = collector.path,
                               .rank = place->rank,
                               .world = place->world,
                               .local_rank = place->local_rank,
                               .kernels_only = true };
    return collector.api->start(&o, collector.why, WHY_CAP);
}

const CaptureApi *collect_start(const RankPlace *place, Err *why)
{
    pthread_mutex_lock(&collector.lock);
    if (!collector.tried)
        collector.records = attach(place);
    collector.tried = true;
    collector.users_n++;
    const CaptureApi *api = collector.records ? collector.api : NULL;
    if (!api)
        err_set(why, "%s", collector.why);
    pthread_mutex_unlock(&collector.lock);
    return api;
}

/* ---- a recording as a message ---- */

typedef struct Message {
    int64_t zero_ns; /* CLOCK_MONOTONIC of the run's beginning */
    double overhead;
    CaptureTotals totals;
    uint64_t bytes; /* of the recording; it stands behind, at a multiple of 8 */
} Message;

/* Stopped by the first who asks, which has it: ranks that are threads share one. */
static bool stop(CaptureTotals *totals, uint32_t rank)
{
    char why[WHY_CAP] = "";
    pthread_mutex_lock(&collector.lock);
    bool mine = collector.records;
    collector.records = false;
    if (mine && !collector.api->stop(totals, why, sizeof why))
        fprintf(stderr, "lockstep: the trace of rank %u is not whole: %s\n", rank, why);
    pthread_mutex_unlock(&collector.lock);
    return mine;
}

static uint32_t ranks_here(void)
{
    pthread_mutex_lock(&collector.lock);
    uint32_t n = collector.users_n;
    pthread_mutex_unlock(&collector.lock);
    return n;
}

/* The message, malloc'd, with the recording if there is one. */
static Message *message_of(const RankEnd *end, size_t *bytes)
{
    Message head = { .zero_ns = end->zero_ns };
    FILE *f = stop(&head.totals, end->rank) ? fopen(collector.path, "rb") : NULL;
    long size = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : 0;
    uint8_t *out = mem_zero(sizeof head + (size_t)max_i64(size, 0), 1);
    if (f) {
        rewind(f);
        head.bytes = fread(out + sizeof head, 1, (size_t)max_i64(size, 0), f);
        fclose(f);
    }
    int64_t threads_ns = ranks_here() * (end->now_ns - end->zero_ns);
    head.overhead = threads_ns > 0 ? (double)head.totals.callback_ns / (double)threads_ns : 0;
    memcpy(out, &head, sizeof head);
    *bytes = sizeof head + head.bytes;
    return (Message *)(void *)out;
}

/* ---- the timeline ---- */

/* When those of a rank began, on rank 0's clock. */
typedef struct Steps {
    int64_t *start_ns;
    uint32_t n, cap;
} Steps;

typedef struct Making {
    const RunTraining *t;
    Steps *steps; /* by rank */
    const RankEnd *end;
    Timeline timeline;
    Rules rules;
    RecordsMembers members;
} Making;

/* Spans from `first` on, which have the times of a rank's host. */
static void move_spans(Making *m, uint64_t first, uint32_t rank, int64_t zero_ns)
{
    Timeline *t = &m->timeline;
    for (uint64_t i = first; i < t->spans_n; i++) {
        t->start_ns[i] -= zero_ns;
        t->start_ns[i] += clocks_shift(m->end->clocks, rank, t->start_ns[i]);
    }
}

static void take_steps(Making *m)
{
    const Timeline *from = &m->end->out->timeline;
    m->steps = mem_zero(m->end->out->world_n, sizeof *m->steps);
    for (uint64_t i = 0; i < from->spans_n; i++) {
        if (from->span_class[i] != SPAN_STEP)
            continue;
        Steps *s = &m->steps[from->tracks[from->span_track[i]].rank];
        GROW(s->start_ns, s->n, s->cap);
        s->start_ns[s->n++] = from->start_ns[i];
    }
}

static void free_steps(Making *m)
{
    for (uint32_t r = 0; m->steps && r < m->end->out->world_n; r++)
        free(m->steps[r].start_ns);
    free(m->steps);
}

/* When the first step of a rank, or of all that share its process, begins on its host's clock:
 * what the GPU did before, as copying the first parameters, belongs to none. */
static int64_t first_step_ns(const Making *m, uint32_t rank, int64_t zero_ns)
{
    int64_t first_ns = INT64_MAX;
    for (uint32_t r = 0; r < m->end->out->world_n; r++)
        if (m->steps[r].n > 0 && (r == rank || m->t->o->loop))
            first_ns = min_i64(first_ns, m->steps[r].start_ns[0]);
    return first_ns == INT64_MAX
               ? 0
               : first_ns - clocks_shift(m->end->clocks, rank, first_ns) + zero_ns;
}

static bool add_recording(Making *m, uint32_t rank, const Message *x, Err *err)
{
    RecordsInfo info;
    uint64_t first = m->timeline.spans_n;
    char name[32];
    snprintf(name, sizeof name, "rank %u", rank);
    const RecordsOptions o = { .words = { &m->rules, profile_kernel_words },
                               .rank = rank,
                               .monotonic = true,
                               .ranks_in_ops = m->t->o->loop,
                               .gpu_only = true,
                               .from_ns = first_step_ns(m, rank, x->zero_ns),
                               .members = &m->members };
    if (!records_read_bytes(&m->timeline, &info, x + 1, x->bytes, name, &o, err))
        return false;
    for (uint32_t i = 0; i < info.findings_n; i++)
        fprintf(stderr, "lockstep: %s\n", info.finding[i]);
    move_spans(m, first, rank, x->zero_ns);
    RankCollected *sum = &m->end->out->collected;
    sum->on = true;
    sum->records_n += x->totals.records_n;
    sum->dropped_n += x->totals.dropped_n + x->totals.unwritten_n;
    sum->overhead = x->overhead > sum->overhead ? x->overhead : sum->overhead;
    return true;
}

static uint32_t *numbers_of(const Graph *g, const Role *role)
{
    uint32_t *numbers = mem_zero((size_t)role->ops_n + 1, sizeof *numbers);
    op_comm_numbers(numbers, g, role);
    return numbers;
}

/* A kernel of a transfer. */
typedef struct Transfer {
    uint64_t span;
    int64_t start_ns;
    uint32_t track, step;
} Transfer;

static int by_track_and_time(const void *x, const void *y)
{
    const Transfer *p = x, *q = y;
    if (p->track != q->track)
        return p->track < q->track ? -1 : 1;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    return (p->span > q->span) - (p->span < q->span);
}

static const Op *transfer_of(const Making *m, uint64_t span)
{
    const Graph *g = &m->t->plan.graph;
    const Timeline *t = &m->timeline;
    uint32_t op = t->op[span], rank = t->tracks[t->span_track[span]].rank;
    const Role *role = rank < g->world_n ? graph_role_of(g, rank) : NULL;
    if (!role || op >= role->ops_n || timeline_comm_of(t, span) ||
        !cover_bit(t->span_class[span]))
        return NULL;
    const Op *o = graph_find_op(g, role, op).o;
    return op_is_comm(o->kind) ? o : NULL;
}

/* In the order of time on each track: recordings are in that of buffers that were full. */
static Transfer *transfers_of(const Making *m, uint64_t *n)
{
    const Timeline *t = &m->timeline;
    Transfer *all = mem_zero(t->spans_n, sizeof *all);
    *n = 0;
    for (uint64_t i = 0; i < t->spans_n; i++)
        if (transfer_of(m, i))
            all[(*n)++] = (Transfer){ i, t->start_ns[i], t->span_track[i], 0 };
    if (*n > 0)
        qsort(all, *n, sizeof *all, by_track_and_time);
    return all;
}

/* How many steps of the rank had begun, from the one that `from` counts on. */
static uint32_t steps_begun(const Making *m, uint32_t rank, int64_t at_ns, uint32_t from)
{
    const Steps *s = &m->steps[rank];
    while (from < s->n && s->start_ns[from] <= at_ns)
        from++;
    return from;
}

/*
 * Kernels of transfers whose name says nothing, as those of a loop: the op knows.  An op of
 * several kernels is said of its first one in the step.
 */
static void name_transfers(Making *m)
{
    const Graph *g = &m->t->plan.graph;
    Timeline *t = &m->timeline;
    uint32_t **numbers = mem_zero(g->world_n, sizeof *numbers);
    uint64_t n;
    Transfer *all = transfers_of(m, &n);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t rank = t->tracks[all[i].track].rank, op = t->op[all[i].span];
        const Transfer *last = i > 0 && all[i - 1].track == all[i].track ? &all[i - 1] : NULL;
        all[i].step = steps_begun(m, rank, all[i].start_ns, last ? last->step : 0);
        bool again = last && t->op[last->span] == op && last->step == all[i].step;
        const Op *o = transfer_of(m, all[i].span);
        if (!numbers[rank])
            numbers[rank] = numbers_of(g, graph_role_of(g, rank));
        Comm c = op_comm(t, g, o, rank, again ? NONE_U32 : numbers[rank][op]);
        c.bytes = again ? NONE_U64 : c.bytes;
        t->span_class[all[i].span] = (uint8_t)op_span_class(o);
        timeline_set_comm(t, all[i].span, c);
        timeline_set_ring(t, t->comm[all[i].span], o->u.comm.of);
    }
    for (uint32_t r = 0; r < g->world_n; r++)
        free(numbers[r]);
    free(numbers);
    free(all);
}

/* By role of the graph, role_logical_keys. */
static uint64_t **keys_of_roles(const Graph *g)
{
    uint64_t **keys = mem_zero((size_t)g->roles_n + 1, sizeof *keys);
    for (uint32_t i = 0; i < g->roles_n; i++) {
        keys[i] = mem_zero((size_t)g->roles[i].instances_n + 1, sizeof **keys);
        role_logical_keys(keys[i], g, &g->roles[i]);
    }
    return keys;
}

/* What the graph calls the op of each kernel, and which of the model's it is. */
static void name_ops(Making *m)
{
    const Graph *g = &m->t->plan.graph;
    Timeline *t = &m->timeline;
    uint64_t **keys = keys_of_roles(g);
    for (uint64_t i = 0; i < t->spans_n; i++) {
        uint32_t rank = t->tracks[t->span_track[i]].rank;
        const Role *role = rank < g->world_n ? graph_role_of(g, rank) : NULL;
        if (!role || t->op[i] >= role->ops_n || !cover_bit(t->span_class[i]))
            continue;
        OpRef ref = graph_find_op(g, role, t->op[i]);
        const char *name = intern_text(&g->names, ref.o->name);
        timeline_set_op_name(t, i, intern(&t->names, name));
        timeline_set_logical(t, i, op_logical(g, ref.o, keys[role - g->roles][ref.instance]));
    }
    for (uint32_t i = 0; i < g->roles_n; i++)
        free(keys[i]);
    free(keys);
}

/* The steps, from the timeline that the host's clock made. */
static void add_steps(Making *m)
{
    const Timeline *from = &m->end->out->timeline;
    Timeline *t = &m->timeline;
    uint32_t track = NONE_U32, of = NONE_U32;
    for (uint64_t i = 0; i < from->spans_n; i++) {
        if (from->span_class[i] != SPAN_STEP)
            continue;
        const Track *x = &from->tracks[from->span_track[i]];
        if (of != from->span_track[i])
            track = timeline_track(t, x->rank, x->kind, intern_text(&from->names, x->name),
                                   x->sort);
        of = from->span_track[i];
        const char *name = intern_text(&from->names, from->span_name[i]);
        timeline_span(t, (Span){ .track = track,
                                 .name = intern(&t->names, name),
                                 .class_ = SPAN_STEP,
                                 .start_ns = from->start_ns[i],
                                 .dur_ns = from->dur_ns[i],
                                 .op = NONE_U32,
                                 .comm = NONE_U32 });
    }
}

static bool make_timeline(Making *m, void *const *all, Err *err)
{
    RankResult *out = m->end->out;
    bool ok = rules_read(&m->rules, NULL, 0, err);
    take_steps(m);
    for (uint32_t i = 0; i < out->world_n && ok; i++) {
        const Message *x = all[i];
        if (x->bytes > 0)
            ok = add_recording(m, i, x, err);
        else if (!m->t->o->loop)
            fprintf(stderr, "lockstep: the trace lacks rank %u: its process was not recorded\n",
                    i);
    }
    if (ok) {
        m->timeline.ranks_n = out->world_n;
        records_settle_peers(&m->timeline, &m->members);
        name_transfers(m);
        name_ops(m);
        add_steps(m);
        timeline_free(&out->timeline);
        out->timeline = m->timeline;
        m->timeline = (Timeline){ 0 };
    }
    free_steps(m);
    timeline_free(&m->timeline);
    free(m->members.member);
    rules_free(&m->rules);
    return ok;
}

static bool any_recorded(void *const *all, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        any = any || ((const Message *)all[i])->bytes > 0;
    return any;
}

bool collect_end(void *user, const RankEnd *end, Err *err)
{
    size_t bytes, *sizes = NULL;
    void **all = NULL;
    uint32_t n = end->out->world_n;
    if (!fabric_barrier(end->fabric, err)) /* all GPUs are idle */
        return false;
    Message *mine = message_of(end, &bytes);
    bool ok = fabric_gather(end->fabric, mine, bytes, &all, &sizes, err);
    Making m = { .t = user, .end = end };
    if (ok && all && any_recorded(all, n))
        ok = make_timeline(&m, all, err);
    for (uint32_t i = 0; all && i < n; i++)
        free(all[i]);
    free(all);
    free(sizes);
    free(mine);
    return ok;
}

void collect_close(void)
{
    CaptureTotals totals;
    char why[WHY_CAP];
    pthread_mutex_lock(&collector.lock);
    if (--collector.users_n == 0) {
        if (collector.records)
            (void)collector.api->stop(&totals, why, sizeof why);
        collector.records = collector.tried = false;
        if (collector.folder[0]) {
            unlink(collector.path);
            rmdir(collector.folder);
        }
    }
    pthread_mutex_unlock(&collector.lock);
}
