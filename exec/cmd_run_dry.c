/*
 * cmd_run_dry.c - lockstep run --backend cuda --dry-run: what each rank would launch.
 *
 *     per rank   memory     the arena: what lives through the step by class, the rest
 *                streams    a lane each; communicators, in the order in which they are made
 *                launches   ops in the order of the host, with the ops they wait for
 *
 * `waits` are the graph's dependencies, "after" what had the same memory before
 * (exec/program.h); both only where the stream's own order does not imply them.
 */
#include <string.h>

#include "exec/cmd_run_cuda.h"
#include "exec/cuda_comm_split.h"
#include "sim/texts.h"

enum { WAITS_TEXT = 160 };

typedef struct Dry {
    const RunPlan *plan;
    SplitPlan split;
    Program p; /* of the rank that is shown */
    FILE *out;
    JsonOut *j;
} Dry;

/* ---- what stands in a program ---- */

typedef struct Memory {
    uint64_t by_class[TENSOR_CLASS_N], temporary;
} Memory;

static Memory memory_of(const Program *p)
{
    Memory m = { 0 };
    uint64_t end = 0;
    for (uint32_t i = 0; i < p->residents_n; i++) {
        const Resident *r = &p->residents[i];
        m.by_class[r->class_] += r->bytes;
        end = max_u64(end, r->offset + r->bytes);
    }
    m.temporary = p->arena_bytes - end;
    return m;
}

static uint64_t bytes_of(const Op *op)
{
    return op_is_comm(op->kind) ? op->u.comm.bytes : op->read_bytes + op->write_bytes;
}

static bool has_rank(const SplitPlan *x, const SplitComm *c, uint32_t rank)
{
    for (uint32_t i = 0; i < c->members_n; i++)
        if (x->members[c->members_first + i] == rank)
            return true;
    return false;
}

static const char *comm_name(const Dry *d, const SplitComm *c)
{
    return d->plan->graph.names.text[c->name];
}

/* ---- for people ---- */

static void list_marks(const Program *p, const Mark *marks, uint32_t n, const char *before,
                       char text[WAITS_TEXT])
{
    size_t used = strlen(text);
    for (uint32_t i = 0; i < n && used + 16 < WAITS_TEXT; i++)
        used += (size_t)snprintf(text + used, WAITS_TEXT - used, "%s%u", i == 0 ? before : " ",
                                 p->tasks[program_marked(p, marks[i])].id);
}

static void print_launch(const Dry *d, const Task *t)
{
    const Program *p = &d->p;
    char waits[WAITS_TEXT] = "";
    list_marks(p, p->waits + t->waits_first, t->waits_n, "", waits);
    list_marks(p, p->guards + t->guards_first, t->guards_n, waits[0] ? ", after " : "after ",
               waits);
    fprintf(d->out, "  %6u  %-9s  %-14s  %14" PRIu64 "  %14.0f  %-24s  %s%s\n", t->id,
            lane_names[t->lane], op_kind_names[t->op->kind], bytes_of(t->op), t->op->flops,
            waits[0] ? waits : "-", program_text(p, t->op->name),
            t->op->grouped ? " (with the next)" : "");
}

static void print_memory(const Dry *d)
{
    Memory m = memory_of(&d->p);
    fprintf(d->out, "  arena %" PRIu64 " bytes: ", d->p.arena_bytes);
    for (int i = 0; i < TENSOR_CLASS_N; i++)
        if (m.by_class[i] > 0)
            fprintf(d->out, "%s %" PRIu64 ", ", tensor_class_names[i], m.by_class[i]);
    fprintf(d->out, "born and dying %" PRIu64 "; at most %" PRIu64 " bytes alive at once\n",
            m.temporary, d->p.peak_bytes);
}

static void print_comms(const Dry *d)
{
    const SplitPlan *x = &d->split;
    for (uint32_t i = 0; i < x->comms_n; i++) {
        const SplitComm *c = &x->comms[i];
        const uint32_t *members = x->members + c->members_first;
        if (!has_rank(x, c, d->p.rank))
            continue;
        fprintf(d->out, "  communicator %u: '%s', ", i, comm_name(d, c));
        if (c->channel) {
            fprintf(d->out, "sends of rank %u to rank %u, tag %u\n", members[0], members[1],
                    c->of);
            continue;
        }
        fprintf(d->out, "%s, ranks", lane_names[c->of]);
        for (uint32_t k = 0; k < c->members_n; k++)
            fprintf(d->out, " %u", members[k]);
        fputc('\n', d->out);
    }
}

static void print_rank(const Dry *d)
{
    const Program *p = &d->p;
    fprintf(d->out, "\nrank %u, %s\n", p->rank, d->plan->graph.names.text[p->role->name]);
    print_memory(d);
    fputs("  streams:", d->out);
    for (uint32_t lane = 0, n = 0; lane < LANE_HOST; lane++)
        if (p->lane_n[lane] > 0)
            fprintf(d->out, "%s %s %u ops", n++ ? "," : "", lane_names[lane], p->lane_n[lane]);
    fputc('\n', d->out);
    print_comms(d);
    fprintf(d->out, "  %6s  %-9s  %-14s  %14s  %14s  %-24s  %s\n", "op", "stream", "kind",
            "bytes", "flops", "waits", "name");
    for (uint32_t i = 0; i < p->tasks_n; i++)
        print_launch(d, &p->tasks[i]);
}

/* ---- for machines ---- */

static void put_marks(const Dry *d, const char *key, const Mark *marks, uint32_t n)
{
    json_put_open(d->j, key, '[');
    for (uint32_t i = 0; i < n; i++)
        json_out_int(d->j, d->p.tasks[program_marked(&d->p, marks[i])].id);
    json_out_close(d->j, ']');
}

static void put_launch(const Dry *d, const Task *t)
{
    const Program *p = &d->p;
    JsonOut *j = d->j;
    json_out_open(j, '{');
    json_put_int(j, "op", t->id);
    json_put_text(j, "stream", lane_names[t->lane]);
    json_put_text(j, "kind", op_kind_names[t->op->kind]);
    json_put_text(j, "name", program_text(p, t->op->name));
    json_put_text(j, "phase", op_phase_names[t->op->phase]);
    json_put_uint(j, "bytes", bytes_of(t->op));
    json_put_number(j, "flops", t->op->flops);
    json_put_bool(j, "with_next", t->op->grouped);
    put_marks(d, "waits", p->waits + t->waits_first, t->waits_n);
    put_marks(d, "after", p->guards + t->guards_first, t->guards_n);
    json_out_close(j, '}');
}

static void put_memory(const Dry *d)
{
    Memory m = memory_of(&d->p);
    json_put_uint(d->j, "arena_bytes", d->p.arena_bytes);
    json_put_uint(d->j, "peak_bytes", d->p.peak_bytes);
    json_put_open(d->j, "resident_bytes", '{');
    for (int i = 0; i < TENSOR_CLASS_N; i++)
        json_put_uint(d->j, tensor_class_names[i], m.by_class[i]);
    json_out_close(d->j, '}');
}

static void put_comms(const Dry *d)
{
    const SplitPlan *x = &d->split;
    json_put_open(d->j, "communicators", '[');
    for (uint32_t i = 0; i < x->comms_n; i++) {
        const SplitComm *c = &x->comms[i];
        if (!has_rank(x, c, d->p.rank))
            continue;
        json_out_open(d->j, '{');
        json_put_int(d->j, "communicator", i);
        json_put_text(d->j, "group", comm_name(d, c));
        if (c->channel)
            json_put_int(d->j, "tag", c->of);
        else
            json_put_text(d->j, "stream", lane_names[c->of]);
        json_put_open(d->j, c->channel ? "from_to" : "members", '[');
        for (uint32_t k = 0; k < c->members_n; k++)
            json_out_int(d->j, x->members[c->members_first + k]);
        json_out_close(d->j, ']');
        json_out_close(d->j, '}');
    }
    json_out_close(d->j, ']');
}

static void put_rank(const Dry *d)
{
    const Program *p = &d->p;
    JsonOut *j = d->j;
    json_out_open(j, '{');
    json_put_int(j, "rank", p->rank);
    json_put_text(j, "role", d->plan->graph.names.text[p->role->name]);
    put_memory(d);
    json_put_open(j, "streams", '{');
    for (uint32_t lane = 0; lane < LANE_HOST; lane++)
        if (p->lane_n[lane] > 0)
            json_put_int(j, lane_names[lane], p->lane_n[lane]);
    json_out_close(j, '}');
    put_comms(d);
    json_put_open(j, "launches", '[');
    for (uint32_t i = 0; i < p->tasks_n; i++)
        put_launch(d, &p->tasks[i]);
    json_out_close(j, ']');
    json_out_close(j, '}');
}

/* ---- all ranks ---- */

static bool show_ranks(Dry *d, const RunOptions *o, uint64_t *peak, Err *err)
{
    uint32_t world = d->plan->graph.world_n;
    for (uint32_t r = 0; r < world; r++) {
        if (!program_make(&d->p, &d->plan->graph, r, err))
            return false;
        *peak = max_u64(*peak, d->p.peak_bytes);
        if (o->rank == NONE_U32 || o->rank == r)
            (d->j ? put_rank : print_rank)(d);
        program_free(&d->p);
    }
    return true;
}

static bool show_text(Dry *d, const RunOptions *o, Err *err)
{
    char name[TEXT_CAP], time[TEXT_CAP];
    const RunPlan *plan = d->plan;
    uint64_t peak = 0;
    fprintf(d->out, "%s\n%s on GPUs, %u rank%s: what would be launched in a step\n",
            text_name(name, plan->name, 80), plan->strategy, plan->graph.world_n,
            plan->graph.world_n == 1 ? "" : "s");
    if (!show_ranks(d, o, &peak, err))
        return false;
    fprintf(d->out,
            "\nmemory of a rank: %" PRIu64 " bytes laid out, %" PRIu64
            " predicted\nstep time: %s predicted for %s\n",
            peak, plan->predicted_peak_bytes, text_seconds(time, plan->predicted_step_s),
            plan->prediction_of);
    return true;
}

static bool show_json(Dry *d, const RunOptions *o, Err *err)
{
    JsonOut j = json_out_file(d->out, 1);
    const RunPlan *plan = d->plan;
    uint64_t peak = 0;
    d->j = &j;
    json_out_open(&j, '{');
    json_put_text(&j, "name", plan->name);
    json_put_text(&j, "strategy", plan->strategy);
    json_put_text(&j, "backend", "cuda");
    json_put_int(&j, "world", plan->graph.world_n);
    json_put_int(&j, "split_calls", d->split.calls_n);
    json_put_open(&j, "ranks", '[');
    bool ok = show_ranks(d, o, &peak, err);
    json_out_close(&j, ']');
    json_put_uint(&j, "peak_bytes", peak);
    json_put_uint(&j, "predicted_peak_bytes", plan->predicted_peak_bytes);
    json_put_number(&j, "predicted_step_s", plan->predicted_step_s);
    json_put_text(&j, "prediction_of", plan->prediction_of);
    json_out_close(&j, '}');
    return ok && json_out_end(&j, err);
}

bool cuda_dry_run(const RunOptions *o, const RunPlan *plan, FILE *out, Err *err)
{
    Dry d = { .plan = plan, .out = out };
    if (o->rank != NONE_U32 && o->rank >= plan->graph.world_n)
        return err_set(err, "--rank %" PRIu32 " is not one of %" PRIu32 " ranks", o->rank,
                       plan->graph.world_n);
    split_plan_make(&d.split, &plan->graph);
    bool ok = (o->json ? show_json : show_text)(&d, o, err);
    split_plan_free(&d.split);
    return ok;
}
