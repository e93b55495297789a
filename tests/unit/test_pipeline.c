/*
 * test_pipeline.c - chunks, schedules, transfers and frames of pipelines.
 *
 * Nearly everything is checked by definition over a sweep of shapes: what
 * tests/graph_check.h says of any graph, and what a pipeline is for.
 */
#include "sim/strategy/schedule.h"
#include "tests/graph_check.h"
#include "tests/strategy_fixture.h"

#include <time.h>

/* ---- schedules ---- */

enum { ACTIONS_MAX = 8 * 3 * 2 * 32 };

/* The actions of one stage. */
static const Action *actions_of(Schedule schedule, uint32_t pp, uint32_t stage, uint32_t turns,
                                uint32_t m)
{
    static Action all[ACTIONS_MAX];
    SchedulePlan plan = { .schedule = schedule, .pp = pp, .turns = turns, .micro_batches = m };
    ASSERT(pp * schedule_actions_n(&plan) <= ACTIONS_MAX);
    schedule_actions(&plan, all);
    return all + (size_t)stage * schedule_actions_n(&plan);
}

static void actions_are_each_forward_and_backward_once(void)
{
    for (uint32_t pp = 1; pp <= 5; pp++)
        for (uint32_t turns = 1; turns <= 3; turns++)
            for (uint32_t stage = 0; stage < pp; stage++) {
                enum { M = 20 };
                uint32_t m = pp * (1 + turns);
                Schedule kind = turns > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
                uint32_t seen[M][3] = { { 0 } };
                const Action *a = actions_of(kind, pp, stage, turns, m);
                for (uint32_t i = 0; i < 2 * m * turns; i++) {
                    uint32_t *s = &seen[a[i].micro_batch][a[i].turn];
                    CHECK_INT(a[i].kind, *s); /* backward once, after forward once */
                    (*s)++;
                }
                for (uint32_t k = 0; k < m; k++)
                    for (uint32_t t = 0; t < turns; t++)
                        CHECK_INT(2, seen[k][t]);
            }
}

/* Megatron's formulas, restated: forwards before the first backward. */
static void warm_up_is_as_long_as_in_megatron(void)
{
    for (uint32_t pp = 1; pp <= 6; pp++)
        for (uint32_t turns = 1; turns <= 4; turns++)
            for (uint32_t stage = 0; stage < pp; stage++) {
                uint32_t m = 3 * pp, forwards = 0;
                Schedule kind = turns > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
                const Action *a = actions_of(kind, pp, stage, turns, m);
                while (a[forwards].kind == ACTION_FORWARD)
                    forwards++;
                uint32_t warm =
                    turns == 1 ? pp - stage - 1 : (pp - stage - 1) * 2 + (turns - 1) * pp;
                uint32_t total = m * turns;
                CHECK_INT(warm + 1 < total ? warm + 1 : total, forwards);
            }
}

static void check_held(Schedule kind, uint32_t pp, uint32_t turns, uint32_t m)
{
    const SchedulePlan plan = {
        .schedule = kind, .pp = pp, .turns = turns, .micro_batches = m
    };
    for (uint32_t stage = 0; stage < pp; stage++) {
        enum { TURNS = 3 };
        uint32_t held[TURNS] = { 0 };
        const Action *a = actions_of(kind, pp, stage, turns, m);
        for (; a->kind == ACTION_FORWARD; a++)
            held[a->turn]++;
        for (uint32_t turn = 0; turn < turns; turn++)
            CHECK_INT(held[turn], schedule_held(&plan, stage, turn));
    }
}

static void held_are_forwards_before_the_first_backward(void)
{
    for (uint32_t pp = 1; pp <= 5; pp++) {
        for (uint32_t m = 1; m <= 3 * pp; m++) {
            check_held(SCHEDULE_1F1B, pp, 1, m);
            check_held(SCHEDULE_GPIPE, pp, 1, m);
            check_held(SCHEDULE_NAIVE, pp, 1, m);
            check_held(SCHEDULE_ZB_H1, pp, 1, m);
            check_held(SCHEDULE_ZBV, pp, 2, m);
            if (m >= 2 * pp)
                check_held(SCHEDULE_DUALPIPE, pp, 2, m);
            for (uint32_t turns = 2; turns <= 3 && schedule_group(pp, m) > 0; turns++)
                check_held(SCHEDULE_INTERLEAVED, pp, turns, m);
        }
    }
}

static uint64_t below(uint64_t *seed, uint64_t end)
{
    *seed = mix_u64(*seed + 1);
    return *seed % end;
}

/* Whatever stages are how much slower than others. */
static void searched_orders_hold_as_much_as_zb_h1(void)
{
    enum { PP = 12, M = 30 };
    uint64_t seed = 7;
    for (uint32_t i = 0; i < check_cases(300); i++) {
        static Action all[PP * M * 3];
        ActionCosts costs[PP];
        SchedulePlan plan = { .schedule = i % 2 ? SCHEDULE_ZB_1P : SCHEDULE_ZB_2P,
                              .pp = 2 + (uint32_t)below(&seed, PP - 1),
                              .turns = 1,
                              .micro_batches = 1 + (uint32_t)below(&seed, M),
                              .costs = costs,
                              .open_ended = i % 3 == 0 };
        for (uint32_t s = 0; s < plan.pp; s++) {
            uint64_t forward = 100 + below(&seed, 200);
            costs[s] = (ActionCosts){ { forward, forward / 2 + below(&seed, 2 * forward),
                                        below(&seed, 300) },
                                      { below(&seed, 50), below(&seed, 50) } };
        }
        schedule_actions(&plan, all);
        for (uint32_t s = 0; s < plan.pp; s++) {
            uint32_t held = 0;
            while (all[s * schedule_actions_n(&plan) + held].kind == ACTION_FORWARD)
                held++;
            CHECK(held >= schedule_held(&plan, s, 0));
        }
    }
}

/* get_schedule_table of Megatron-LM, as three nested loops. */
static void interleaved_order_is_the_nested_loops(void)
{
    enum { PP = 3, TURNS = 2, M = 6 };
    const Action *a = actions_of(SCHEDULE_INTERLEAVED, PP, 1, TURNS, M);
    uint32_t f = 0, back = 0;
    for (uint32_t group = 0; group < M; group += PP)
        for (uint32_t turn = 0; turn < TURNS; turn++)
            for (uint32_t k = group; k < group + PP; k++) {
                while (a[f].kind == ACTION_BACKWARD)
                    f++;
                while (a[back].kind == ACTION_FORWARD)
                    back++;
                CHECK_INT(k, a[f].micro_batch);
                CHECK_INT(turn, a[f++].turn);
                CHECK_INT(k, a[back].micro_batch);
                CHECK_INT(TURNS - 1 - turn, a[back++].turn);
            }
}

/* ---- chunks ---- */

static void check_layers(Fixture *f, uint32_t layers, const uint32_t *expect, uint32_t chunks)
{
    if (!fixture_build(f, layers))
        return;
    uint32_t got[128] = { 0 };
    for (uint32_t i = 0; i < f->b.blocks_n; i++)
        got[f->b.chunk_of[i]] += f->b.blocks[i].kind == BLOCK_LAYER;
    for (uint32_t c = 0; c < chunks; c++)
        CHECK_INT(expect[c], got[c]);
    CHECK_INT(0, f->b.chunk_of[0]);
    CHECK_INT(chunks - 1, f->b.chunk_of[f->b.blocks_n - 1]);
    fixture_close(f);
}

static void open_pipeline(Fixture *f, uint32_t pp, uint32_t turns, uint32_t m)
{
    fixture_open(f);
    f->s.parallel.pp = pp;
    f->s.parallel.virtual_stages = turns;
    f->s.parallel.schedule = turns > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    f->s.training.micro_batches = m;
}

static void first_chunks_take_one_more(void)
{
    Fixture f;
    open_pipeline(&f, 4, 1, 4);
    check_layers(&f, 7, (const uint32_t[]){ 2, 2, 2, 1 }, 4);
}

/* 6 + 2 divides by 4, so the ends count as blocks. */
static void embedding_and_head_count_where_that_divides(void)
{
    Fixture f;
    open_pipeline(&f, 4, 1, 4);
    check_layers(&f, 6, (const uint32_t[]){ 1, 2, 2, 1 }, 4);
}

/* Llama 3 405B on 16 stages of 8 chunks: 126 layers and the two ends. */
static void a_chunk_may_hold_no_layer(void)
{
    uint32_t expect[128];
    for (uint32_t c = 0; c < 128; c++)
        expect[c] = c > 0 && c < 127;
    Fixture f;
    open_pipeline(&f, 16, 8, 16);
    check_layers(&f, 126, expect, 128);
}

static void stage_layers_are_obeyed(void)
{
    uint32_t given[] = { 1, 0, 4, 2 };
    Fixture f;
    open_pipeline(&f, 2, 2, 2);
    f.s.parallel.stage_layers = given;
    f.s.parallel.stage_layers_n = 4;
    check_layers(&f, 7, given, 4);
}

static void wrong_stage_layers_are_a_sentence(void)
{
    uint32_t given[] = { 1, 5 };
    Fixture f;
    open_pipeline(&f, 2, 1, 2);
    f.s.parallel.stage_layers = given;
    f.s.parallel.stage_layers_n = 2;
    fixture_start(&f, 7);
    CHECK(!pass_pipeline(&f.b, &f.err));
    CHECK_ERR_TEXT(&f.err, "stage_layers adds up to 6 blocks, the model has 7");
    fixture_close(&f);
}

static void schedules_to_come_are_a_sentence(void)
{
    Fixture f;
    open_pipeline(&f, 2, 1, 2);
    f.s.parallel.schedule = SCHEDULE_DUALPIPE;
    fixture_start(&f, 4);
    CHECK(!pass_pipeline(&f.b, &f.err));
    CHECK_ERR_TEXT(&f.err, "'dualpipe' from both ends cannot be simulated, its V can");
    fixture_close(&f);
}

static void interleaved_wants_equal_groups(void)
{
    Fixture f;
    open_pipeline(&f, 4, 2, 9);
    fixture_start(&f, 8);
    CHECK(!pass_pipeline(&f.b, &f.err));
    CHECK_ERR_TEXT(&f.err, "needs groups of equally many micro-batches, pp = 4 or more "
                           "each, not 9");
    fixture_close(&f);
}

/* Fewer than twice pp are one group: all of a chunk's forwards before those of the next; more are
 * as many groups as pp goes into them. */
static void few_micro_batches_take_turns_together(void)
{
    static const uint32_t each[][2] = { { 1, 1 },  { 3, 3 },  { 4, 4 }, { 6, 6 },
                                        { 7, 7 },  { 8, 4 },  { 9, 0 }, { 10, 5 },
                                        { 12, 4 }, { 14, 0 }, { 15, 5 } };
    for (size_t i = 0; i < ARRAY_N(each); i++)
        CHECK_INT(each[i][1], schedule_group(4, each[i][0]));
    const SchedulePlan p = { SCHEDULE_INTERLEAVED, 4, 2, 6, false, NULL, false };
    Action actions[4 * 2 * 2 * 6];
    schedule_actions(&p, actions);
    for (uint32_t stage = 0; stage < 4; stage++) {
        uint32_t forwards = 0, backwards = 0;
        const Action *mine = actions + stage * schedule_actions_n(&p);
        for (uint32_t k = 0; k < schedule_actions_n(&p); k++) {
            bool forward = mine[k].kind == ACTION_FORWARD;
            uint32_t nth = forward ? forwards++ : backwards++;
            CHECK_INT(nth % 6, mine[k].micro_batch);
            CHECK_INT(forward ? nth / 6 : 1 - nth / 6, mine[k].turn);
        }
        CHECK(forwards == 12 && backwards == 12);
    }
}

static void recomputation_of_n_layers_is_per_stage(void)
{
    Fixture f;
    open_pipeline(&f, 2, 2, 2);
    f.s.training.recompute = RECOMPUTE_LAYERS;
    f.s.training.recompute_layers = 3;
    fixture_build(&f, 10);
    uint32_t again[2] = { 0 };
    for (uint32_t i = 0; i < f.b.blocks_n; i++)
        again[f.b.chunk_of[i] % 2] += f.b.variant[i] == VARIANT_RECOMPUTE;
    CHECK_INT(3, again[0]);
    CHECK_INT(3, again[1]);
    fixture_close(&f);
}

/* ---- every graph ---- */

/* Each (micro-batch, block) forward once, then backward once, in one role. */
static void check_work(const Fixture *f)
{
    const Graph *g = &f->g;
    uint32_t m = f->s.training.micro_batches, blocks = f->b.blocks_n;
    uint32_t layers = blocks - 2;
    uint32_t *seen = mem_zero((size_t)m * blocks, sizeof *seen);
    for (uint32_t r = 0; r < g->roles_n; r++)
        for (uint32_t n = 0; n < g->roles[r].instances_n; n++) {
            const Instance *i = &g->roles[r].instances[n];
            SegmentKind kind = g->segments[i->segment].kind;
            if (kind != SEGMENT_FORWARD && kind != SEGMENT_BACKWARD)
                continue;
            uint32_t block =
                i->layer == NONE_U32 ? (i->chunk == 0 ? 0 : layers + 1) : i->layer + 1;
            if (i->layer == NONE_U32 && f->s.parallel.pp * f->s.parallel.virtual_stages == 1)
                block = i->segment == f->b.types[0].forward[0] ||
                                i->segment == f->b.types[0].backward[0][GRAD_WRITE] ||
                                i->segment == f->b.types[0].backward[0][GRAD_ADD]
                            ? 0
                            : layers + 1;
            CHECK_INT(f->b.chunk_of[block], i->chunk);
            CHECK_INT(r, i->chunk % f->s.parallel.pp);
            uint32_t *s = &seen[(size_t)i->micro_batch * blocks + block];
            CHECK_INT(kind == SEGMENT_BACKWARD, *s);
            (*s)++;
        }
    for (size_t i = 0; i < (size_t)m * blocks; i++)
        CHECK_INT(2, seen[i]);
    free(seen);
}

static void check_pipeline(Fixture *f, uint32_t layers)
{
    if (!fixture_build(f, layers))
        return;
    uint32_t failures = check_state.test_failures_n;
    check_work(f);
    check_lives(&f->g);
    check_runs(&f->g);
    if (failures != check_state.test_failures_n)
        fprintf(stderr, "    with pp %u x %u, m %u, layers %u, overlap %d, waits %d, %s\n",
                f->s.parallel.pp, f->s.parallel.virtual_stages, f->s.training.micro_batches,
                layers, f->sw.overlap[DIM_PP], f->sw.p2p_waits_for_send,
                schedule_names[f->s.parallel.schedule]);
    fixture_close(f);
}

/* Megatron-LM: buffers are zeroed, and every backward adds to them; else the first overwrites. */
static void zeroed_gradients_are_added_to_from_the_first_on(void)
{
    for (int zeroes = 0; zeroes < 2; zeroes++) {
        Fixture f;
        uint32_t first = 0, adds = 0;
        fixture_open(&f);
        f.s.training.micro_batches = 3;
        f.sw.zeroes_grads = zeroes;
        f.sw.grads_persist = true;
        fixture_build(&f, 4);
        const Role *role = &f.g.roles[0];
        for (uint32_t i = 0; i < role->instances_n; i++) {
            if (role->instances[i].layer != 2)
                continue;
            const BlockType *t = &f.b.types[f.b.blocks[3].type];
            first += role->instances[i].segment == t->backward[0][GRAD_WRITE];
            adds += role->instances[i].segment == t->backward[0][GRAD_ADD];
        }
        CHECK_INT(zeroes ? 0 : 1, first);
        CHECK_INT(zeroes ? 3 : 2, adds);
        check_lives(&f.g);
        fixture_close(&f);
    }
}

/* pp 1..8, chunks 1..4, micro-batches, uneven layers; with and without overlap and waiting. */
static void no_schedule_deadlocks_or_races(void)
{
    const uint32_t layer_counts[] = { 1, 5, 14 };
    for (uint32_t pp = 1; pp <= 8; pp++)
        for (uint32_t turns = 1; turns <= 4; turns++)
            for (uint32_t k = 0; k < 3; k++)
                for (uint32_t how = 0; how < 4; how++)
                    for (size_t l = 0; l < ARRAY_N(layer_counts); l++) {
                        const uint32_t m[] = { turns > 1 ? pp : 1,
                                               turns > 1 ? 2 * pp : pp / 2 + 1,
                                               turns > 1 ? 3 * pp : 2 * pp + 1 };
                        Fixture f;
                        if (!check_takes((((pp * 8 + turns) * 8 + k) * 8 + how) * 8 + l))
                            continue;
                        open_pipeline(&f, pp, turns, m[k]);
                        f.sw.overlap[DIM_PP] = how & 1;
                        f.sw.p2p_waits_for_send = how & 2;
                        f.s.training.grad_clip = 1;
                        f.tied = true;
                        check_pipeline(&f, layer_counts[l]);
                    }
}

static void naive_and_gpipe_run(void)
{
    for (uint32_t pp = 1; pp <= 4; pp++)
        for (uint32_t m = 1; m <= 6; m++)
            for (uint32_t how = 0; how < 4; how++) {
                Fixture f;
                open_pipeline(&f, pp, 1, m);
                f.sw.overlap[DIM_PP] = how & 1;
                f.s.parallel.schedule = how & 2 ? SCHEDULE_NAIVE : SCHEDULE_GPIPE;
                check_pipeline(&f, 6);
            }
}

static void results_of_other_lanes_are_waited_for(void)
{
    for (uint32_t turns = 1; turns <= 2; turns++)
        for (uint32_t pp = 1; pp <= 3; pp++) {
            Fixture f;
            open_pipeline(&f, pp, turns, 2 * pp);
            f.s.parallel.tp = 2;
            f.tp_lane = true;
            check_pipeline(&f, 7);
        }
}

static void recomputed_layers_save_nothing(void)
{
    Fixture f;
    open_pipeline(&f, 2, 1, 4);
    f.s.training.recompute = RECOMPUTE_FULL;
    fixture_build(&f, 6);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t n = 0; n < f.g.roles[r].instances_n; n++)
            if (f.g.roles[r].instances[n].layer != NONE_U32)
                CHECK_INT(NONE_U32, f.g.roles[r].instances[n].frame[SLOT_STASH]);
    fixture_close(&f);
    open_pipeline(&f, 2, 1, 4);
    f.s.training.recompute = RECOMPUTE_FULL;
    check_pipeline(&f, 6);
}

static void gradients_need_not_persist(void)
{
    for (uint32_t m = 1; m <= 3; m++) {
        Fixture f;
        open_pipeline(&f, 2, 1, m);
        f.sw.grads_persist = false;
        f.s.training.grad_clip = 1;
        check_pipeline(&f, 5);
    }
}

/* ---- memory ---- */

/* Most micro-batches of which some block's stash is alive at once. */
static uint32_t most_in_flight(const Fixture *f, uint32_t stage)
{
    const Role *role = &f->g.roles[stage];
    uint32_t now = 0, most = 0;
    int32_t alive[64] = { 0 };
    for (uint32_t n = 0; n < role->instances_n; n++) {
        const Instance *i = &role->instances[n];
        SegmentKind kind = f->g.segments[i->segment].kind;
        if (kind != SEGMENT_FORWARD && kind != SEGMENT_BACKWARD)
            continue;
        int32_t *a = &alive[i->micro_batch];
        if (kind == SEGMENT_FORWARD && (*a)++ == 0)
            now++;
        if (kind == SEGMENT_BACKWARD && --(*a) == 0)
            now--;
        most = now > most ? now : most;
    }
    return most;
}

static void one_f_one_b_keeps_few_micro_batches(void)
{
    for (uint32_t pp = 1; pp <= 6; pp++)
        for (uint32_t m = 1; m <= 9; m++) {
            Fixture f;
            open_pipeline(&f, pp, 1, m);
            fixture_build(&f, 6);
            for (uint32_t stage = 0; stage < pp; stage++)
                CHECK_INT(m < pp - stage ? m : pp - stage, most_in_flight(&f, stage));
            fixture_close(&f);
        }
}

static void gpipe_keeps_them_all(void)
{
    Fixture f;
    open_pipeline(&f, 3, 1, 7);
    f.s.parallel.schedule = SCHEDULE_GPIPE;
    fixture_build(&f, 6);
    for (uint32_t stage = 0; stage < 3; stage++)
        CHECK_INT(7, most_in_flight(&f, stage));
    fixture_close(&f);
}

/* ---- time, with transfers that take none ---- */

static const Graph *timed; /* what layer_cost is asked about */

/* A layer's forward takes 1, its backward 2; embedding and head nothing. */
static double layer_cost(const Role *role, const CheckOp *o)
{
    if (role->instances[o->instance].layer == NONE_U32)
        return 0;
    if (o->op != graph_ops(timed, o->segment))
        return 0;
    return o->op->phase == PHASE_FORWARD ? 1 : o->op->phase == PHASE_DGRAD ? 2 : 0;
}

/* Huang et al. (GPipe) and Narayanan et al. (Megatron-LM): a bubble of (p - 1) / (m v).  With
 * transfers that take no time waiting for them costs none either. */
static void bubbles_are_as_long_as_the_papers_say(void)
{
    for (uint32_t pp = 1; pp <= 6; pp++)
        for (uint32_t turns = 1; turns <= 3; turns++)
            for (uint32_t k = 1; k <= 3; k++)
                for (uint32_t how = 0; how < 8; how++) {
                    uint32_t m = turns > 1 ? k * pp : k + 3, per_chunk = 2;
                    uint32_t stage_layers[18];
                    for (uint32_t c = 0; c < pp * turns; c++)
                        stage_layers[c] = per_chunk;
                    Fixture f;
                    open_pipeline(&f, pp, turns, m);
                    f.s.parallel.stage_layers = stage_layers;
                    f.s.parallel.stage_layers_n = pp * turns;
                    f.sw.overlap[DIM_PP] = how & 1;
                    f.sw.p2p_waits_for_send = how & 2;
                    if (turns == 1 && (how & 4))
                        f.s.parallel.schedule = SCHEDULE_GPIPE;
                    fixture_build(&f, per_chunk * pp * turns);
                    timed = &f.g;
                    CHECK_NEAR(3.0 * per_chunk * (m * turns + pp - 1),
                               check_time(&f.g, layer_cost), 1e-12);
                    fixture_close(&f);
                }
}

static void naive_runs_one_stage_at_a_time(void)
{
    Fixture f;
    open_pipeline(&f, 4, 1, 5);
    f.s.parallel.schedule = SCHEDULE_NAIVE;
    fixture_build(&f, 10);
    timed = &f.g;
    CHECK_NEAR(3.0 * 10 * 5, check_time(&f.g, layer_cost), 1e-12);
    fixture_close(&f);
}

/* ---- transfers ---- */

static void every_border_is_crossed_twice_per_micro_batch(void)
{
    enum { PP = 4, TURNS = 2, M = 8 };
    Fixture f;
    open_pipeline(&f, PP, TURNS, M);
    fixture_build(&f, 14);
    uint64_t sent = 0, received = 0;
    for (uint32_t r = 0; r < PP; r++) {
        sent += comm_bytes(&f.g, &f.g.roles[r], OP_SEND, f.b.group[GROUP_PP]);
        received += comm_bytes(&f.g, &f.g.roles[r], OP_RECV, f.b.group[GROUP_PP]);
    }
    CHECK_U64((uint64_t)2 * (PP * TURNS - 1) * M * FAKE_BOUNDARY_BYTES, sent);
    CHECK_U64(sent, received);
    fixture_close(&f);
}

/* Ops of a kind over a group in all roles: how many, and each of so many bytes. */
static uint32_t count_comms(const Fixture *f, OpKind kind, GroupKind group, uint64_t bytes)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < f->g.roles_n; r++)
        for (uint32_t i = 0; i < f->g.roles[r].instances_n; i++) {
            const Segment *s = &f->g.segments[f->g.roles[r].instances[i].segment];
            for (uint32_t o = 0; o < s->op_n; o++) {
                const Op *op = &graph_ops(&f->g, s)[o];
                if (op->kind != kind || op->u.comm.group != f->b.group[group])
                    continue;
                CHECK_U64(bytes, op->u.comm.bytes);
                n++;
            }
        }
    return n;
}

static void open_scattered(Fixture *f, uint32_t tp)
{
    open_pipeline(f, 3, 1, 5);
    f->s.parallel.tp = tp;
    f->sw.p2p_scatter_gather = true;
}

/* Each of 4 ranks sends a quarter; whoever receives gathers the whole. */
static void activations_cross_once_per_tensor_parallel_group(void)
{
    for (int overlap = 0; overlap < 2; overlap++) {
        Fixture f;
        open_scattered(&f, 4);
        f.sw.overlap[DIM_PP] = overlap;
        fixture_build(&f, 6);
        uint32_t crossings = 2 * 2 * 5; /* there and back, 2 borders, 5 micro-batches */
        uint64_t whole = FAKE_BOUNDARY_BYTES;
        CHECK_INT(crossings, count_comms(&f, OP_SEND, GROUP_PP, whole / 4));
        CHECK_INT(crossings, count_comms(&f, OP_RECV, GROUP_PP, whole / 4));
        CHECK_INT(crossings, count_comms(&f, OP_ALL_GATHER, GROUP_TP, whole));
        fixture_close(&f);
        open_scattered(&f, 4);
        f.sw.overlap[DIM_PP] = overlap;
        check_pipeline(&f, 6);
    }
}

/* Alone there is nothing to share; rows are shared out already; 640 bytes are no multiple of 3. */
static void activations_are_sent_whole_where_parts_do_not_work(void)
{
    for (int why = 0; why < 4; why++) {
        Fixture f;
        open_scattered(&f, why == 0 ? 1 : why == 1 ? 3 : 4);
        f.s.parallel.sequence_parallel = why == 2;
        f.sw.p2p_scatter_gather = why != 3;
        fixture_build(&f, 6);
        CHECK_INT(2 * 2 * 5, count_comms(&f, OP_SEND, GROUP_PP, FAKE_BOUNDARY_BYTES));
        CHECK_INT(0, why ? count_comms(&f, OP_ALL_GATHER, GROUP_TP, 0) : 0);
        fixture_close(&f);
    }
}

static uint32_t waits_for_sends(const Graph *g)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < g->roles_n; r++)
        for (uint32_t e = 0; e < g->roles[r].edges_n; e++) {
            const Instance *src = &g->roles[r].instances[g->roles[r].edges[e].src_instance];
            n += g->segments[src->segment].kind == SEGMENT_SEND;
        }
    return n;
}

static void compute_waits_for_sends_only_when_told(void)
{
    for (uint32_t how = 0; how < 4; how++) {
        Fixture f;
        open_pipeline(&f, 3, 1, 6);
        f.sw.overlap[DIM_PP] = how & 1;
        f.sw.p2p_waits_for_send = how & 2;
        fixture_build(&f, 6);
        CHECK_INT(how != 1, waits_for_sends(&f.g) > 0);
        fixture_close(&f);
    }
}

/* Megatron Core: 1F1B sends and receives in line, interleaved stages beside the next chunk. */
static void overlap_may_be_of_interleaved_stages_only(void)
{
    for (uint32_t chunks = 1; chunks <= 2; chunks++)
        for (int told = 0; told < 2; told++) {
            Fixture f;
            open_pipeline(&f, 3, chunks, 6);
            f.sw.overlap[DIM_PP] = true;
            f.sw.pp_overlap_interleaved = true;
            f.s.parallel.overlap_set[DIM_PP] = f.s.parallel.overlap[DIM_PP] = told;
            fixture_build(&f, 6);
            CHECK_INT(chunks == 1 && !told, waits_for_sends(&f.g) > 0);
            fixture_close(&f);
        }
}

static void a_scenario_overrides_the_software(void)
{
    Fixture f;
    open_pipeline(&f, 3, 1, 6);
    f.sw.overlap[DIM_PP] = true;
    f.s.parallel.overlap_set[DIM_PP] = true;
    f.s.parallel.overlap[DIM_PP] = false;
    fixture_build(&f, 6);
    CHECK(waits_for_sends(&f.g) > 0);
    fixture_close(&f);
}

/* ---- other shapes of models ---- */

static void models_without_embedding_and_head_are_cut_too(void)
{
    for (uint32_t layers = 1; layers <= 6; layers++) {
        Fixture f;
        open_pipeline(&f, 3, 1, 3);
        fixture_start(&f, 1);
        /* the made-up blocks again, as layers only: the first reads data, the last has the loss */
        f.b.blocks_n = layers;
        f.b.blocks = PUSH_ARRAY(&f.b.arena, Block, layers);
        for (uint32_t i = 0; i < layers; i++)
            f.b.blocks[i] = (Block){ BLOCK_LAYER, i, i + 1 == layers ? 2 : i > 0, i };
        CHECK(pass_pipeline(&f.b, &f.err) && pass_single(&f.b, &f.err));
        graph_seal(&f.g);
        if (layers > 1) /* a first block that is also the last would need a type of its own */
            check_lives(&f.g);
        check_runs(&f.g);
        fixture_close(&f);
    }
}

/* ---- speed ---- */

static double build_ms(uint32_t pp, uint32_t turns, uint32_t m, uint32_t layers)
{
    struct timespec a, z;
    Fixture f;
    open_pipeline(&f, pp, turns, m);
    f.s.parallel.dp = 8;
    clock_gettime(CLOCK_MONOTONIC, &a);
    fixture_build(&f, layers);
    clock_gettime(CLOCK_MONOTONIC, &z);
    uint32_t instances = 0;
    for (uint32_t r = 0; r < f.g.roles_n; r++)
        instances += f.g.roles[r].instances_n;
    double ms = (double)(z.tv_sec - a.tv_sec) * 1e3 + (double)(z.tv_nsec - a.tv_nsec) / 1e6;
    if (getenv("CHECK_VERBOSE"))
        fprintf(stderr, "pp %u x %u, m %u: %u instances in %.1f ms\n", pp, turns, m, instances,
                ms);
    fixture_close(&f);
    return ms;
}

/* A few ms each; the bound is loose because sanitizers and busy machines are slow. */
static void large_models_build_quickly(void)
{
    CHECK(build_ms(8, 1, 96, 96) < 500);
    CHECK(build_ms(16, 8, 16, 126) < 500);
}

int main(void)
{
    RUN(actions_are_each_forward_and_backward_once);
    RUN(warm_up_is_as_long_as_in_megatron);
    RUN(held_are_forwards_before_the_first_backward);
    RUN(searched_orders_hold_as_much_as_zb_h1);
    RUN(interleaved_order_is_the_nested_loops);
    RUN(first_chunks_take_one_more);
    RUN(embedding_and_head_count_where_that_divides);
    RUN(a_chunk_may_hold_no_layer);
    RUN(stage_layers_are_obeyed);
    RUN(wrong_stage_layers_are_a_sentence);
    RUN(schedules_to_come_are_a_sentence);
    RUN(interleaved_wants_equal_groups);
    RUN(few_micro_batches_take_turns_together);
    RUN(recomputation_of_n_layers_is_per_stage);
    RUN(zeroed_gradients_are_added_to_from_the_first_on);
    RUN(no_schedule_deadlocks_or_races);
    RUN(naive_and_gpipe_run);
    RUN(results_of_other_lanes_are_waited_for);
    RUN(recomputed_layers_save_nothing);
    RUN(gradients_need_not_persist);
    RUN(one_f_one_b_keeps_few_micro_batches);
    RUN(gpipe_keeps_them_all);
    RUN(bubbles_are_as_long_as_the_papers_say);
    RUN(naive_runs_one_stage_at_a_time);
    RUN(every_border_is_crossed_twice_per_micro_batch);
    RUN(activations_cross_once_per_tensor_parallel_group);
    RUN(activations_are_sent_whole_where_parts_do_not_work);
    RUN(compute_waits_for_sends_only_when_told);
    RUN(overlap_may_be_of_interleaved_stages_only);
    RUN(a_scenario_overrides_the_software);
    RUN(models_without_embedding_and_head_are_cut_too);
    RUN(large_models_build_quickly);
    return check_report();
}
