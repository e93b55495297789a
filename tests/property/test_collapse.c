/*
 * What makes a plan quick changes nothing that it says.
 *
 * Layers of a stage as one event, beside sends and rings of context parallelism on the same
 * network: against every kernel an event, to 0.5 %, and with fewer events than there are
 * instances.  Where only transfers of a stage's own share links with one another, to 0.005 %.
 * Where gathers of parameters pass beside them, on the same links or the same network, as near.
 * And a larger micro-batch needs no less memory, which spares the planner graphs.
 */
#include "sim/memory.h"
#include "tests/random_scenario.h"

enum { DRAWS = 40 };

/* ---- chains ---- */

typedef enum Meet {
    APART,  /* nodes of tp GPUs: context parallelism and the pipeline leave them */
    WITHIN, /* nodes of tp x cp, both more than one: transfers of either share a GPU's links */
    BESIDE /* parameters are gathered for each micro-batch, in the node, out of it, or both; tensor
               parallelism leaves it too, or does not */
} Meet;

static void draw_machine(Draw *d, Meet meet, uint32_t tp, uint32_t cp)
{
    uint32_t node = meet == WITHIN ? tp * cp : tp;
    if (meet == BESIDE) /* d->gpus is a multiple of 2 tp cp */
        node = (tp / 2) << draw_below(d, 2 + cp);
    draw_text(d,
              "\"cluster\":{\"name\":\"drawn\",\"gpus_per_node\":%u,\"gpu\":\"a100-80gb\","
              "\"nodes\":%u,\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":300},"
              "\"inter_node\":{\"kind\":\"fat_tree\",\"nics_per_node\":%u,"
              "\"GBps_per_nic\":%u}},",
              node, d->gpus / node, meet == BESIDE ? node : tp, 10 + draw_below(d, 90));
}

static void draw_pipeline(Draw *d, uint64_t seed, Meet meet)
{
    *d = (Draw){ .state = mix_u64(seed) };
    uint32_t tp = draw_power(d, 3), pp = 1u << draw_below(d, 3), cp = 1 + draw_below(d, 2);
    if (meet != APART && tp == 1)
        tp = 2;
    if (meet == WITHIN)
        cp = 2;
    bool interleaved = pp > 1 && draw_below(d, 2);
    d->gpus = tp * pp * cp * 2;
    draw_text(d, "{\"name\":\"pipeline %" PRIu64 "\",", seed);
    draw_model(d, pp * 8);
    draw_machine(d, meet, tp, cp);
    draw_text(d,
              "\"training\":{\"global_batch\":%u,\"micro_batch\":2,\"seq_len\":2048,"
              "\"precision\":\"bf16\",\"recompute\":\"%s\"},",
              pp * 16, draw_below(d, 2) ? "full" : "none");
    bool sequence = tp > 1 && (draw_below(d, 2) || meet == WITHIN), zero = !draw_below(d, 2);
    draw_text(d,
              "\"parallel\":{\"strategy\":\"%s\",\"dp\":2,\"tp\":%u,\"pp\":%u,\"cp\":%u,"
              "\"sequence_parallel\":%s,\"schedule\":\"%s\",\"virtual_stages\":%u,"
              "\"overlap\":{\"pp\":%s}}}",
              meet == BESIDE ? "fsdp"
              : zero         ? "zero1"
                             : "ddp",
              tp, pp, cp, sequence ? "true" : "false", interleaved ? "interleaved" : "1f1b",
              interleaved ? 2 : 1, interleaved || seed % 4 ? "true" : "false");
}

static uint64_t instances_of(const Graph *g)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->roles_n; i++)
        n += g->roles[i].instances_n;
    return n;
}

static bool near_part(int64_t a, int64_t b, int64_t part)
{
    return CHECK(a - b <= b / part && b - a <= b / part);
}

/* What plan does not read is not counted, the rest is the same. */
static void same_totals(Drawn *x, const SimResult *whole, const Draw *d)
{
    SimResult totals;
    if (!drawn_run(&totals, x, (SimOptions){ .totals = true }, d))
        return;
    CHECK_INT(whole->step_ns, totals.step_ns);
    for (uint32_t i = 0; i < whole->ranks_n; i++) {
        const RankStat *a = &whole->ranks[i], *b = &totals.ranks[i];
        CHECK_U64(0, b->collectives_n);
        CHECK_INT(a->comm_ns, b->comm_ns);
        CHECK_INT(a->exposed_ns, b->exposed_ns);
        CHECK_INT(a->bubble_ns, b->bubble_ns);
    }
    sim_result_free(&totals);
}

/* The longest chain is the same; where two are as long, either may be told. */
static bool has_path_of(const SimResult *a, const SimResult *b)
{
    int64_t off_ns = llabs(a->path.comm_ns - b->path.comm_ns);
    return off_ns <= b->step_ns / 200;
}

static void compare_stages(Meet meet)
{
    static const int64_t parts[] = { [APART] = 200, [WITHIN] = 20000, [BESIDE] = 20000 };
    uint32_t few_n = 0, other_paths_n = 0;
    for (uint64_t seed = 1; seed <= DRAWS; seed++) {
        Draw d;
        Drawn x;
        SimResult whole, expanded;
        draw_pipeline(&d, seed, meet);
        if (drawn_make(&x, &d) && drawn_run(&whole, &x, (SimOptions){ 0 }, &d) &&
            drawn_run(&expanded, &x, (SimOptions){ .expanded = true }, &d)) {
            bool same = near_part(whole.step_ns, expanded.step_ns, parts[meet]) &&
                        CHECK_U64(expanded.ops, whole.ops);
            for (uint32_t i = 0; same && i < whole.ranks_n; i++) {
                const RankStat *a = &whole.ranks[i], *b = &expanded.ranks[i];
                same = near_part(a->compute_ns, b->compute_ns, 100) &&
                       CHECK_U64(b->collectives_n, a->collectives_n) &&
                       CHECK_INT(whole.step_ns,
                                 a->compute_ns + a->exposed_ns + a->bubble_ns + a->idle_ns);
            }
            if (!same)
                fprintf(stderr, "%s\n", d.text);
            other_paths_n += !has_path_of(&whole, &expanded);
            few_n += whole.events < instances_of(&x.g);
            same_totals(&x, &whole, &d);
            sim_result_free(&whole);
            sim_result_free(&expanded);
        }
        drawn_free(&x);
    }
    CHECK(few_n > (meet == BESIDE ? DRAWS / 2 : DRAWS / 4));
    CHECK(other_paths_n <= DRAWS / 20);
}

static void stages_are_as_their_kernels(void)
{
    compare_stages(APART);
}

static void so_are_stages_whose_transfers_share_links(void)
{
    compare_stages(WITHIN);
}

static void so_are_stages_beside_gathers(void)
{
    compare_stages(BESIDE);
}

/* ---- memory ---- */

static uint64_t need_of(const Drawn *x)
{
    uint64_t need = 0;
    for (uint32_t i = 0; i < x->g.roles_n; i++) {
        RoleMemory m = memory_of_role(&x->g, &x->g.roles[i], NULL);
        MemoryExtra extra = memory_extra(&x->g, &x->g.roles[i], &m, &x->s.machine, 0);
        need = max_u64(need, memory_reserved_bytes(&m, &extra));
    }
    return need;
}

/* The graph again, for another micro-batch of the same global batch. */
static bool rebuild(Drawn *x, uint32_t micro_batch)
{
    Err err = { 0 };
    Training *t = &x->s.training;
    graph_free(&x->g);
    x->g = (Graph){ 0 };
    t->micro_batches = t->micro_batches * t->micro_batch / micro_batch;
    t->micro_batch = micro_batch;
    return CHECK(build_graph(&x->g, &x->s, &x->sw, &err));
}

static void larger_micro_batches_need_no_less(void)
{
    static const Strategy strategies[] = { STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_FSDP,
                                           STRATEGY_ZERO2 };
    for (uint64_t seed = 1; seed <= DRAWS; seed++) {
        Draw d;
        Drawn x;
        draw_pipeline(&d, seed, APART);
        if (drawn_make(&x, &d)) {
            uint32_t rounds = x.s.parallel.virtual_stages > 1 ? x.s.parallel.pp : 1;
            uint64_t before = 0;
            x.s.parallel.strategy = strategies[draw_below(&d, x.s.parallel.pp > 1 ? 3 : 4)];
            for (uint32_t b = 1; 8 * x.s.parallel.pp / b >= rounds; b *= 2) {
                if (!rebuild(&x, b))
                    break;
                uint64_t need = need_of(&x);
                if (!CHECK(need >= before))
                    fprintf(stderr, "micro-batch %u: %s\n", b, d.text);
                before = need;
            }
        }
        drawn_free(&x);
    }
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(stages_are_as_their_kernels);
    RUN(so_are_stages_whose_transfers_share_links);
    RUN(so_are_stages_beside_gathers);
    RUN(larger_micro_batches_need_no_less);
    return check_report();
}
