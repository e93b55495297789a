/*
 * cmd_run_plan.c - scenario, graphs, prediction: what `run` takes from the simulator.
 */
#include "exec/cmd_run_plan.h"

#include <stdlib.h>
#include <string.h>

#include "exec/cmd_run_model.h"
#include "sim/build.h"
#include "sim/engine.h"
#include "sim/report.h"
#include "traces/formats.h"

struct RunPlanParts {
    Arena arena;
    Scenario s;
    Software sw;
    Graph one, split; /* the same model for one process; for tensor-parallel ranks alone */
    Timeline timeline;
    bool simulated;
    Report report;
    RunRequest request; /* with settings of its own */
    char *cluster;      /* of this machine, as JSON */
    int64_t nothing_ns; /* what every step here takes besides: MachineTimes */
};

typedef struct RunPlanParts Parts;

enum { CLUSTER_RANKS_MAX = 64 };

/* ---- the scenario ---- */

static const char *const own_software = "lockstep"; /* what is run, and the prediction of it */

/* The request's, and room for three more. */
static Setting *settings_of(const RunRequest *r)
{
    Setting *settings = mem_zero((size_t)r->settings_n + 3, sizeof *settings);
    if (r->settings_n > 0)
        memcpy(settings, r->settings, r->settings_n * sizeof *settings);
    return settings;
}

/* cluster, software: in place of the scenario's own; NULL: as it says. */
static bool read_scenario(Scenario *s, const RunRequest *r, const char *cluster,
                          const char *software, Err *err)
{
    Setting *settings = settings_of(r);
    uint32_t n = r->settings_n;
    if (software)
        settings[n++] = (Setting){ "software", software };
    if (cluster)
        settings[n++] = (Setting){ "cluster", cluster };
    bool ok = scenario_read(s, r->scenario, settings, n, err);
    free(settings);
    return ok;
}

/* A cluster that any scenario for so many ranks fits, where it has none of its own that does;
 * nothing is known of its speed. */
static void some_cluster(char text[300], uint32_t ranks)
{
    snprintf(text, 300,
             "{\"name\":\"this machine\",\"nodes\":1,\"gpus_per_node\":%" PRIu32
             ",\"gpu\":\"ideal\",\"intra_node\":{\"kind\":\"shared_memory\",\"GBps\":1}}",
             ranks);
}

/* How many ranks the scenario splits the work over.  Where it does not say, those of its cluster,
 * as for sim; but of those that were asked for, or started, all. */
static bool count_ranks(uint32_t *ranks, const RunRequest *r, Err *err)
{
    Scenario s;
    ScenarioSays says;
    char many[300];
    Setting *settings = settings_of(r);
    bool ok = scenario_says(&says, r->scenario, settings, r->settings_n, err);
    free(settings);
    *ranks = r->ranks > 0 ? r->ranks : 1;
    if (!ok || (!says.split && (r->ranks > 0 || !says.cluster)))
        return ok;
    some_cluster(many, MACHINE_GPUS_MAX);
    if (!read_scenario(&s, r, says.split ? many : NULL, own_software, err))
        return false;
    *ranks = s.parallel.gpus;
    scenario_free(&s);
    return says.split || *ranks <= CLUSTER_RANKS_MAX ||
           err_set(err,
                   "the scenario does not say how the work is split, and its cluster has "
                   "%" PRIu32 " GPUs, too many ranks to start unasked: give --ranks or "
                   "parallel.dp",
                   *ranks);
}

static bool check_ranks(const RunRequest *r, uint32_t ranks, const Parallel *p, Err *err)
{
    if (r->ranks == 0 || r->ranks == ranks)
        return true;
    return err_set(err,
                   "%s%" PRIu32 "%s is not what the scenario splits the work over: dp %" PRIu32
                   " x tp %" PRIu32 " x pp %" PRIu32 " x cp %" PRIu32 " = %" PRIu32 " ranks",
                   r->started ? "" : "--ranks ", r->ranks,
                   r->started ? " ranks were started, which" : "", p->dp, p->tp, p->pp, p->cp,
                   ranks);
}

/* What costs as much as something else is simulated as that; trained it would be another model. */
static bool can_train(const Model *m, Err *err)
{
    const Transformer *t = &m->u.transformer;
    if (t->other_numerics)
        return err_set(err, "model '%s': the executor has no %s yet", m->name,
                       t->other_numerics);
    if (t->positions == POS_ALIBI)
        return err_set(err,
                       "model.positions 'alibi' of '%s': the executor adds no biases to scores "
                       "yet; learned, rope and none can be run",
                       m->name);
    if (m->kind == MODEL_TRANSFORMER && t->mtp_asked && t->mtp_layers > 0)
        return err_set(err,
                       "model.mtp_layers of '%s': the executor trains no layers that predict "
                       "further tokens yet, 0 can be run",
                       m->name);
    if (t->gated && t->activation != ACT_GELU && t->activation != ACT_SILU)
        return err_set(
            err, "model.activation of '%s': the executor has gates with gelu and silu only",
            m->name);
    return true;
}

static bool can_run(const Scenario *s, Err *err)
{
    if (s->model.kind == MODEL_CONVNET)
        return err_set(err,
                       "'%s' is a convnet: the executor has no convolutions yet, mlp and "
                       "transformer models can be run",
                       s->model.name);
    if (s->model.kind == MODEL_TRANSFORMER && s->model.u.transformer.experts > 0)
        return err_set(err,
                       "'%s' has experts: the executor cannot run them yet, dense models "
                       "can be run",
                       s->model.name);
    const Transformer *t = &s->model.u.transformer;
    if (s->model.kind == MODEL_TRANSFORMER && t->kv_rank > 0)
        return err_set(err,
                       "'%s' has latent attention: the executor cannot run it yet, attention "
                       "with heads of one width can be run",
                       s->model.name);
    if (s->training.precision == DTYPE_FP8)
        return err_set(err,
                       "training.precision 'fp8': the executor does not multiply in it yet; "
                       "f32, tf32, f16 and bf16 can be run");
    if (s->model.kind == MODEL_TRANSFORMER && t->kv_heads < s->parallel.tp)
        return err_set(err,
                       "parallel.tp: %" PRIu32 " ranks would hold copies of the %" PRIu32
                       " key and value heads of '%s' and train each by itself; up to %" PRIu32
                       " is allowed",
                       s->parallel.tp, t->kv_heads, s->model.name, t->kv_heads);
    return s->model.kind != MODEL_TRANSFORMER || can_train(&s->model, err);
}

static void keep_request(Parts *p, const RunRequest *r)
{
    Setting *settings = PUSH_ARRAY(&p->arena, Setting, r->settings_n + 1);
    for (uint32_t i = 0; i < r->settings_n; i++)
        settings[i] = (Setting){ arena_printf(&p->arena, "%s", r->settings[i].key),
                                 arena_printf(&p->arena, "%s", r->settings[i].value) };
    p->request = *r;
    p->request.settings = settings;
}

/* A file may name what it predicts elsewhere; who asks for it here must know that it is not run. */
static bool check_software(RunPlan *x, const RunRequest *r, const char *cluster, Err *err)
{
    Scenario s;
    bool asked = false;
    for (uint32_t i = 0; i < r->settings_n; i++)
        asked = asked || scenario_sets_software(&r->settings[i]);
    if (!read_scenario(&s, r, cluster, NULL, err))
        return false;
    if (asked && strcmp(s.software, own_software) != 0)
        err_set(
            err,
            "--set software=%.100s: what runs is '%s'; sim, plan and validate predict others",
            s.software, own_software);
    else if (software_key(&s).item && strcmp(s.software, own_software) != 0)
        x->other_software = arena_strdup(&x->parts->arena, s.software);
    scenario_free(&s);
    return !err->set;
}

/* Of the scenario's cluster by itself: what is wrong there is said whatever is trained. */
static bool cluster_size(uint32_t *gpus_n, const RunRequest *r, Err *err)
{
    static const Setting little[] = { { "model", "{\"kind\":\"mlp\",\"widths\":[1,1]}" },
                                      { "training", "{\"global_batch\":1}" },
                                      { "parallel", "{\"strategy\":\"single\"}" } };
    Scenario s;
    Setting *settings = settings_of(r);
    memcpy(settings + r->settings_n, little, sizeof little);
    bool ok = scenario_read(&s, r->scenario, settings, r->settings_n + ARRAY_N(little), err);
    free(settings);
    if (!ok)
        return false;
    *gpus_n = s.machine.gpus_n;
    scenario_free(&s);
    return true;
}

/* Where ranks lie, and what is searched by what actions take (zb-1p), is as in sim's graph where
 * the scenario's own cluster holds that many ranks; NULL: it does.  Otherwise the other one. */
static bool choose_cluster(const char **cluster, const char *other, const RunRequest *r,
                           uint32_t ranks, Err *err)
{
    Scenario s;
    ScenarioSays says;
    uint32_t gpus_n = 0;
    Setting *settings = settings_of(r);
    bool ok = scenario_says(&says, r->scenario, settings, r->settings_n, err) &&
              (!says.cluster || cluster_size(&gpus_n, r, err));
    free(settings);
    *cluster = other;
    if (!ok || gpus_n < ranks || (!says.split && gpus_n != ranks))
        return ok;
    if (!read_scenario(&s, r, NULL, own_software, err))
        return false;
    *cluster = s.parallel.gpus == ranks ? NULL : other;
    scenario_free(&s);
    return true;
}

static bool open_scenario(RunPlan *x, const RunRequest *r, bool *usage, Err *err)
{
    Parts *p = x->parts;
    char cluster[300];
    uint32_t ranks = 0;
    keep_request(p, r);
    if (r->this_machine && !count_ranks(&ranks, r, err))
        return false;
    some_cluster(cluster, ranks);
    const char *given = NULL;
    if (r->this_machine && !choose_cluster(&given, cluster, r, ranks, err))
        return false;
    if (!check_software(x, r, given, err) || !read_scenario(&p->s, r, given, own_software, err))
        return false;
    *usage = !check_ranks(r, p->s.parallel.gpus, &p->s.parallel, err);
    x->prediction_of = p->s.machine.name;
    char unused[SCENARIO_UNUSED_CAP];
    x->unused = arena_strdup(&p->arena, scenario_unused(&p->s, unused));
    return !*usage && can_run(&p->s, err) &&
           software_read(&p->sw, &p->arena, p->s.software, err);
}

/* ---- graphs ---- */

static Scenario for_ranks_of_tp(const Scenario *s, uint32_t tp)
{
    Scenario x = *s;
    Parallel *p = &x.parallel;
    p->strategy = STRATEGY_DDP;
    p->dp = p->pp = p->cp = p->ep = 1;
    p->tp = p->gpus = tp;
    p->stage_layers_n = 0;
    p->sequence_parallel = false;
    p->schedule = SCHEDULE_1F1B;
    p->virtual_stages = 1;
    p->shard_size = 1;
    p->sync_batchnorm = false;
    x.training.global_batch = x.training.micro_batch;
    x.training.micro_batches = 1;
    x.training.recompute = RECOMPUTE_NONE;
    return x;
}

static bool list_parameters(RunPlan *x, Err *err)
{
    Parts *p = x->parts;
    const Transformer *t = &p->s.model.u.transformer;
    bool mlp = p->s.model.kind == MODEL_MLP;
    WholeModel model = { .mlp = mlp };
    if (!mlp) {
        model.heads = t->heads;
        model.kv_heads = t->kv_heads;
        model.head_dim = t->head_dim;
    }
    Software exact = p->sw; /* what one process would hold has no padding */
    exact.vocab_multiple = 1;
    Scenario one = for_ranks_of_tp(&p->s, 1), split = for_ranks_of_tp(&p->s, p->s.parallel.tp);
    bool splits = split.parallel.tp > 1;
    return build_graph(&p->one, &one, &exact, err) &&
           (!splits || build_graph(&p->split, &split, &p->sw, err)) &&
           whole_list(&x->whole, &p->one, splits ? &p->split : NULL, &model, err);
}

/* ---- what stands in the scenario ---- */

static uint64_t job_digest(const RunPlan *x)
{
    const Graph *g = &x->graph;
    const Hyper *y = &x->hyper;
    const double numbers[] = { y->lr,  y->weight_decay, y->beta1,    y->beta2,
                               y->eps, y->momentum,     y->grad_clip };
    uint64_t h = run_model_digest(&x->parts->s, &x->whole) ^ x->seed;
    for (size_t i = 0; i < ARRAY_N(numbers); i++)
        h = hash_number(h, numbers[i]);
    h = hash_text(h, x->data.kind);
    const uint64_t counts[] = { g->world_n, g->roles_n, g->ops_n, g->args_n, x->global_batch };
    for (size_t i = 0; i < ARRAY_N(counts); i++)
        h = mix_u64(h ^ counts[i]);
    for (uint32_t i = 0; i < g->roles_n; i++)
        h = mix_u64(h ^ g->roles[i].ops_n);
    return h;
}

static void describe(RunPlan *x)
{
    Parts *p = x->parts;
    const Scenario *s = &p->s;
    const Training *t = &s->training;
    bool tokens = s->model.kind == MODEL_TRANSFORMER;
    const Mlp *m = &s->model.u.mlp;
    x->name = s->name;
    x->strategy = strategy_names[s->parallel.strategy];
    x->seed = t->seed;
    x->global_batch = t->global_batch;
    x->tokens = x->graph.tokens;
    x->hyper = (Hyper){ .lr = t->lr,
                        .weight_decay = t->weight_decay,
                        .beta1 = t->beta1,
                        .beta2 = t->beta2,
                        .eps = t->eps,
                        .momentum = t->momentum,
                        .grad_clip = t->grad_clip };
    x->data = (DataSpec){ .kind = t->data,
                          .tokens = tokens,
                          .labels = !tokens && !t->loss_mse,
                          .features = tokens ? 0 : m->widths[0],
                          .outputs = tokens ? 0 : m->widths[m->widths_n - 1],
                          .seq_len = tokens ? t->seq_len : 0,
                          .vocab = tokens ? s->model.u.transformer.vocab : 0,
                          .seed = t->seed };
    x->digest = arena_printf(&p->arena, "%016" PRIx64, job_digest(x));
    x->model = run_model_text(&p->arena, s, &x->whole);
}

bool run_plan_open(RunPlan *x, const RunRequest *r, bool *usage, Err *err)
{
    *x = (RunPlan){ .parts = mem_zero(1, sizeof(Parts)) };
    Parts *p = x->parts;
    *usage = false;
    if (!open_scenario(x, r, usage, err))
        return false;
    if (!build_graph(&x->graph, &p->s, &p->sw, err) || !list_parameters(x, err))
        return err_wrap(err, "%s", p->s.file);
    describe(x);
    return true;
}

void run_plan_free(RunPlan *x)
{
    Parts *p = x->parts;
    if (!p)
        return;
    whole_free(&x->whole);
    graph_free(&x->graph);
    graph_free(&p->one);
    graph_free(&p->split);
    timeline_free(&p->timeline);
    report_free(&p->report);
    scenario_free(&p->s);
    arena_free(&p->arena);
    free(p->cluster);
    free(p);
    *x = (RunPlan){ 0 };
}

/* ---- one rank ---- */

/* As sim/strategy/world.c seats ranks. */
static uint32_t coordinate(const Parallel *p, Dim dim, uint32_t rank)
{
    uint32_t stride = 1;
    for (int i = 0; i < DIM_N && p->order[i] != dim; i++)
        stride *= parallel_extent(p, p->order[i]);
    return rank / stride % parallel_extent(p, dim);
}

/* Place in, and size of, the group of that name; { 0, 1 } without it. */
static void seat(const Graph *g, const char *name, uint32_t rank, uint32_t *index, uint32_t *n)
{
    for (uint32_t i = 0; i < g->groups_n; i++) {
        if (strcmp(intern_text(&g->names, g->groups[i].name), name) != 0 ||
            !group_has(&g->groups[i], rank))
            continue;
        *index = group_index(&g->groups[i], rank);
        *n = group_size(&g->groups[i]);
        return;
    }
    *index = 0;
    *n = 1;
}

static void fill_shard(const RunPlan *x, ModelFacts *f, uint32_t rank)
{
    Strategy s = x->parts->s.parallel.strategy;
    f->shard_n = 1;
    if (s < STRATEGY_ZERO1)
        return;
    seat(&x->graph, "dp_shard", rank, &f->shard_index, &f->shard_n);
    if (s != STRATEGY_HSDP)
        seat(&x->graph, "dp", rank, &f->shard_index, &f->shard_n);
}

static uint64_t loss_terms(const RunPlan *x)
{
    if (x->data.tokens)
        return x->tokens;
    return (uint64_t)x->global_batch * (x->data.labels ? 1 : x->data.outputs);
}

/* The last layer of an mlp sums its outputs over tp: each rank has them all. */
static bool outputs_summed(const Scenario *s)
{
    return s->model.kind == MODEL_MLP && s->model.u.mlp.widths_n % 2 == 1;
}

/* Tensor-parallel ranks share out the rows of a loss over a split vocabulary, and the columns of
 * outputs that are split; they all compute it where each has all outputs. */
static uint32_t loss_copies(const Scenario *s)
{
    return outputs_summed(s) ? s->parallel.tp : 1;
}

static void fill_transformer(const Scenario *s, const Software *sw, ModelFacts *f,
                             uint32_t rank)
{
    const Transformer *t = &s->model.u.transformer;
    const Parallel *p = &s->parallel;
    uint32_t tp_index = coordinate(p, DIM_TP, rank);
    f->heads = t->heads / p->tp;
    f->kv_heads = t->kv_heads >= p->tp ? t->kv_heads / p->tp : 1;
    f->head_dim = t->head_dim;
    f->seq_len = s->training.seq_len / p->cp;
    f->position_first = coordinate(p, DIM_CP, rank) * f->seq_len;
    f->rows_index = p->sequence_parallel ? tp_index : 0;
    f->vocab = t->vocab;
    f->vocab_first = tp_index * (uint32_t)(software_vocab(sw, t->vocab, p->tp) / p->tp);
    f->causal = t->causal;
    f->window = t->window;
    f->gelu_tanh = t->gelu_tanh;
    f->rope_theta = t->rope_theta > 0 ? t->rope_theta : f->rope_theta;
    f->norm_eps = t->norm_eps > 0 ? t->norm_eps : f->norm_eps;
}

ModelFacts run_plan_facts(const RunPlan *x, uint32_t rank)
{
    const Scenario *s = &x->parts->s;
    const Parallel *p = &s->parallel;
    ModelFacts f = { .rope_theta = 10000,
                     .norm_eps = 1e-5,
                     .loss_terms = loss_terms(x),
                     .loss_copies = loss_copies(s),
                     .batchnorm_ranks = p->sync_batchnorm ? p->dp : 1 };
    if (s->model.kind == MODEL_TRANSFORMER) {
        fill_transformer(s, &x->parts->sw, &f, rank);
    } else {
        f.vocab = x->data.outputs;
        if (!outputs_summed(s))
            f.vocab_first = coordinate(p, DIM_TP, rank) * (f.vocab / p->tp);
    }
    fill_shard(x, &f, rank);
    return f;
}

FeedSpec run_plan_feed(const RunPlan *x, uint32_t rank)
{
    const Scenario *s = &x->parts->s;
    const Parallel *p = &s->parallel;
    uint32_t seq_len = x->data.tokens ? s->training.seq_len / p->cp : 0;
    return (FeedSpec){ .global_batch = x->global_batch,
                       .micro_batch = s->training.micro_batch,
                       .replica = coordinate(p, DIM_DP, rank),
                       .replicas = p->dp,
                       .seq_len = seq_len,
                       .position_first = coordinate(p, DIM_CP, rank) * seq_len,
                       .tp_index = coordinate(p, DIM_TP, rank) };
}

/* ---- prediction ---- */

static void lengthen_steps(Timeline *t, int64_t by_ns)
{
    for (uint64_t i = 0; i < t->spans_n; i++)
        if (t->span_class[i] == SPAN_STEP)
            t->dur_ns[i] += by_ns;
}

/* The jitter is that of seed 0, as sim's where no --seed is given: x->seed is of the training. */
bool run_plan_predict(RunPlan *x, bool with_times, Err *err)
{
    Parts *p = x->parts;
    SimResult result;
    SimOptions options = { .expanded = with_times,
                           .expand_ranks = with_times,
                           .timeline = with_times ? &p->timeline : NULL };
    if (!sim_run(&result, &x->graph, &p->s.machine, &p->sw, &options, err))
        return err_wrap(err, "%s", p->s.file);
    result.step_ns += p->nothing_ns;
    if (with_times)
        lengthen_steps(&p->timeline, p->nothing_ns);
    Arena arena = { 0 };
    RoleMemory *memory = memory_of_roles(&x->graph, &p->s.machine, &p->sw, false, &arena);
    report_fill(&p->report, &p->s, &x->graph, &result, memory, 0);
    x->predicted_peak_bytes = report_memory(&p->report)->peak_bytes;
    arena_free(&arena);
    sim_result_free(&result);
    p->simulated = true;
    const Report *r = &p->report;
    x->predicted_step_s = r->step_time_s;
    x->predicted_exposed_s = r->times.exposed_comm_s;
    x->predicted_compute_s = r->times.compute_s;
    /* mfu = model flops / (step * peak of all): both are needed for the measured step. */
    x->model_flops = r->rates.model_tflops_per_gpu * 1e12 * r->gpus * r->step_time_s;
    x->peak_flops = r->rates.mfu > 0 ? x->model_flops / (r->rates.mfu * r->step_time_s) : 0;
    return true;
}

bool run_plan_measured(RunPlan *x, const MachineTimes *m, bool with_times, Err *err)
{
    Parts *p = x->parts;
    Scenario s;
    p->cluster = run_machine_json(m, x->graph.world_n, err);
    if (!p->cluster || !read_scenario(&s, &p->request, p->cluster, own_software, err))
        return false;
    Machine unknown = p->s.machine;
    p->s.machine = s.machine;
    s.machine = unknown;
    scenario_free(&s);
    p->nothing_ns = (int64_t)m->nothing_ns;
    x->prediction_of = arena_printf(
        &p->arena, "this machine; %" PRIu32 " of %" PRIu32 " kernels were timed, in %.1f s",
        m->times_n, m->shapes_n, m->seconds);
    if (m->taken > 0.05)
        x->prediction_of = arena_printf(
            &p->arena, "%s; other programs, which took %.0f %% of it, are left out",
            x->prediction_of, 100 * m->taken);
    if (m->messages && m->ranks >= m->processors)
        x->prediction_of = arena_printf(
            &p->arena, "%s; transfers by TCP also wait for processors, which is not in it",
            x->prediction_of);
    return run_plan_predict(x, with_times, err);
}

bool run_plan_write_trace(RunPlan *x, const char *path, Err *err)
{
    Parts *p = x->parts;
    timeline_set_name(&p->timeline, arena_printf(&p->arena, "%s, predicted", x->name));
    timeline_seal(&p->timeline);
    return trace_write(&p->timeline, path, err);
}

const Timeline *run_plan_timeline(const RunPlan *x)
{
    return &x->parts->timeline;
}

OpTime *run_plan_times(const RunPlan *x, uint32_t rank)
{
    const Timeline *t = &x->parts->timeline;
    OpTime *times = mem_zero(graph_role_of(&x->graph, rank)->ops_n + 1, sizeof *times);
    for (uint64_t i = 0; i < t->spans_n; i++) {
        if (t->tracks[t->span_track[i]].rank != rank || t->op[i] == NONE_U32)
            continue;
        OpTime *op = &times[t->op[i]];
        if (t->span_class[i] == SPAN_LAUNCH)
            op->launch_ns = t->dur_ns[i];
        else
            op->run_ns = t->dur_ns[i] - timeline_wait_ns(t, i);
    }
    return times;
}

int64_t *run_plan_host(const RunPlan *x, uint32_t rank)
{
    const Graph *g = &x->graph;
    if (g->host_group == NONE_U32)
        return NULL;
    const GroupSpec *s = &g->groups[g->host_group];
    uint32_t n = group_size(s);
    HostMember *members = mem_zero(n, sizeof *members);
    OpTime **times = mem_zero(n, sizeof *times);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t member = group_member(s, rank, i);
        times[i] = run_plan_times(x, member);
        members[i] = (HostMember){ graph_role_of(g, member), times[i] };
    }
    int64_t *start_ns =
        mem_zero((size_t)graph_role_of(g, rank)->instances_n + 1, sizeof *start_ns);
    host_turns(start_ns, g, members, n, group_index(s, rank));
    for (uint32_t i = 0; i < n; i++)
        free(times[i]);
    free(times);
    free(members);
    return start_ns;
}

void run_plan_json(const RunPlan *x, JsonOut *j)
{
    if (x->parts->simulated)
        report_json(&x->parts->report, j);
    else
        json_out_null(j);
}
