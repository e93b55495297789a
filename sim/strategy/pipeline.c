/*
 * pipeline.c - cuts the blocks into chunks and writes each stage's program.
 *
 *     blocks     E 0 1 2 3 4 5 H                pp 2, 2 chunks a stage
 *     chunks    [E 0][1 2][3 4][5 H]            which stage has which: schedule_stage
 *     stage        0    1    0    1
 *
 * One role per stage.  The order of forwards and backwards comes from
 * schedule.h; around each stand its transfers (pp 1: one role, no transfers,
 * micro-batches accumulate):
 *
 *     recv act   [r F1]......[r F2]
 *     compute          [F1 ........][B0 ........][F2
 *     send act                      [s F1]
 *     recv grad             [r B0]
 *     send grad                                  [s B0]
 *
 * Schedules that split backward do its weight gradients as actions of their own, on the compute
 * lane: they wait for nothing but what their backward left them (SLOT_HELD).
 *
 * DEADLOCK.  Four lanes, one per direction and kind, so the transfers of a pair
 * of stages are four streams in micro-batch order (tags 0 activations, 1
 * gradients); that is what Megatron and torch get by posting the sends and
 * receives of one exchange as one ncclGroup.  With overlap a receive is
 * posted one action early, so that it flies beside the action before its own;
 * without, all of a step's receives are posted after the step before (see
 * STEPS in schedule.h) and compute waits for the sends as well, or the host
 * itself does before it launches more (p2p_blocks_host).  Like every
 * collective of torch, a receive starts after the compute launched before it.
 *
 * ROUND.  Chunks take turns by groups of pp micro-batches: what the last stage makes for the next
 * turn comes round to the first when that is done with the group, and gradients the other way.  In
 * torch's groups of n > pp it comes n - pp actions before it is used, and torch posts the receive
 * when the other stage makes it; were it posted later, the last stage would wait with all others
 * behind it:
 *
 *     pp 2, n 3     stage 0   F0.0 F1.0 F2.0 F0.1        the input of F0.1 is received beside F2.0
 *                   stage 1        F0.0 F1.0 F2.0 F0.1
 *
 * SCATTER AND GATHER.  Every rank of a tensor-parallel group holds the whole
 * activation.  A stack that knows this (p2p_scatter_gather) sends one tp-th from each,
 * and the receivers gather the parts inside their node, on the compute lane:
 *
 *     recv act   [r F1, 1/tp]
 *     compute                [all-gather][F1 ........]
 *
 * LIVES.  An activation between blocks is born in forward(i), or by the receive,
 * and dies in backward(i + 1); what is sent dies in the send, or later where
 * the stack keeps it (pipeline_kept.c).  A gradient is born
 * in backward(i + 1), or by the receive, and dies in backward(i), or in the send.
 * Parameters, gradients and optimizer state live through the step, but gradients
 * only where the software keeps them (grads_persist).  A chunk without blocks
 * passes on what it receives.
 *
 * GRADIENTS IN 16 BITS that are added to those in f32 when a backward is through (adds_grads_last)
 * are added by its blocks' sums, before what it made travels on:
 *
 *     compute    [B 5][B 4][B 3][sum 5][sum 4][sum 3]
 *
 * But ddp's last: its reducer's hook adds a bucket as soon as that is full.
 */
#include <stdio.h>
#include <stdlib.h>

#include "sim/strategy/pipeline_line.h"

/* ---- chunks ---- */

static uint32_t count_layers(const Build *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->blocks_n; i++)
        n += b->blocks[i].kind == BLOCK_LAYER;
    return n;
}

uint32_t even_share(uint32_t layers, uint32_t ends, uint32_t chunks, uint32_t c)
{
    if ((layers + ends) % chunks == 0)
        return (layers + ends) / chunks - (ends && c == 0) - (ends && c + 1 == chunks);
    return layers / chunks + (c < layers % chunks);
}

/* begin[c] = first block of chunk c.  The embedding goes with the first chunk and the head with the
 * last. */
static bool cut_chunks(const Build *b, uint32_t *begin, uint32_t chunks, Err *err)
{
    const Parallel *p = &b->s->parallel;
    bool embedding = b->blocks[0].kind == BLOCK_EMBEDDING;
    ASSERT(p->stage_layers_n == 0 || p->stage_layers_n == chunks);
    uint64_t at = 0;
    uint32_t layers = count_layers(b), ends = b->blocks_n - layers;
    for (uint32_t c = 0; c < chunks; c++) {
        begin[c] = (uint32_t)min_u64(at, b->blocks_n);
        at += p->stage_layers_n ? p->stage_layers[c] : even_share(layers, ends, chunks, c);
        at += c == 0 && embedding;
    }
    begin[chunks] = b->blocks_n;
    bool head = b->blocks[b->blocks_n - 1].kind == BLOCK_HEAD;
    if (p->stage_layers_n && at + head != b->blocks_n)
        return err_set(err,
                       "parallel.stage_layers adds up to %" PRIu64 " blocks, the model has "
                       "%" PRIu32,
                       at - embedding, layers);
    return true;
}

static void choose_variants(Build *b, const uint32_t *begin, uint32_t pp, uint32_t chunks)
{
    const Training *t = &b->s->training;
    uint32_t *chosen = PUSH_ARRAY(&b->arena, uint32_t, pp); /* layers, by stage */
    b->chunk_of = PUSH_ARRAY(&b->arena, uint32_t, b->blocks_n);
    b->variant = PUSH_ARRAY(&b->arena, Variant, b->blocks_n);
    for (uint32_t c = 0; c < chunks; c++)
        for (uint32_t i = begin[c]; i < begin[c + 1]; i++) {
            b->chunk_of[i] = c;
            bool layers = b->blocks[i].kind != BLOCK_EMBEDDING; /* a head may have some */
            bool again = t->recompute == RECOMPUTE_LAYERS
                             ? layers && chosen[chunk_stage(b, c)]++ < t->recompute_layers
                             : t->recompute != RECOMPUTE_NONE;
            b->variant[i] = again ? VARIANT_RECOMPUTE : VARIANT_PLAIN;
        }
}

/* ---- actions ---- */

static bool comes_round(const Line *l, uint32_t action)
{
    return (uint32_t)l->actions[action].kind == l->round_kind;
}

/* Those behind the posted ones that have come round by then. */
static void post_round(Line *l)
{
    uint32_t a = l->posted_n;
    for (uint32_t left = l->round; a < l->actions_n && left > 0; a++) {
        if (!comes_round(l, a))
            continue;
        left--;
        if (a >= l->round_n)
            line_receive(l, a);
    }
    l->round_n = a > l->round_n ? a : l->round_n;
}

static void post_until(Line *l, uint32_t action)
{
    for (; l->posted_n < action && l->posted_n < l->actions_n; l->posted_n++)
        if (l->posted_n >= l->round_n || !comes_round(l, l->posted_n))
            line_receive(l, l->posted_n);
    if (l->round > 0)
        post_round(l);
}

static void post_step(Line *l, uint32_t action)
{
    uint32_t step = l->actions[action].step;
    while (action < l->actions_n && l->actions[action].step == step)
        action++;
    post_until(l, action);
}

/* The host launches nothing more before a step's transfers, and all that came before, are done. */
static void block_host(Line *l, uint32_t action)
{
    const Action *x = &l->actions[action];
    Point blocks[4] = { l->due[0], l->due[1], NOWHERE, NOWHERE };
    for (uint32_t a = action, n = 2; a < l->actions_n && l->actions[a].step == x->step; a++)
        if (point_is(l->received[a].at) && n < ARRAY_N(blocks))
            blocks[n++] = l->received[a].at;
    uint32_t last = 0;
    while (last < ARRAY_N(blocks) && !point_is(blocks[last]))
        last++;
    if (last == ARRAY_N(blocks))
        return;
    role_instance(l->role, l->host_wait, x->micro_batch, NONE_U32, line_chunk(l, x));
    for (uint32_t i = 0; i < ARRAY_N(blocks); i++)
        if (point_is(blocks[i]))
            wait_at(l->role, 0, blocks[i]);
    if (point_is(l->compute))
        wait_at(l->role, 0, l->compute);
}

static uint32_t host_wait_segment(Build *b)
{
    Graph *g = b->g;
    uint32_t s = graph_segment(g, SEGMENT_OTHER, "transfers done");
    graph_op(g, (Op){ .kind = OP_HOST_WAIT,
                      .phase = PHASE_FORWARD,
                      .lane = LANE_HOST,
                      .name = intern(&g->names, "transfers done") });
    return s;
}

/* Where pairs hide their all-to-alls, those of one are done together. */
static uint32_t done_together(const Line *l, uint32_t action)
{
    bool pair = l->hides && action < l->actions_n &&
                l->actions[action].kind == ACTION_FORWARD && l->actions[action].tied > 0;
    return pair ? 1 + l->actions[action].tied : 1;
}

/* Where stages go on by themselves: from here on there are gradients of weights only. */
static bool only_weighs(const Line *l, uint32_t action)
{
    for (uint32_t a = action; a < l->actions_n; a++)
        if (l->actions[a].kind != ACTION_WEIGHT)
            return false;
    return l->g->open_ended;
}

static void write_actions(Line *l)
{
    for (uint32_t a = 0, next; a < l->actions_n; a = next) {
        if (l->actions[a].kind == ACTION_WEIGHT && only_weighs(l, a)) {
            line_weigh_rest(l, a);
            return;
        }
        next = a + done_together(l, a);
        if (l->ahead) {
            post_until(l, next + done_together(l, next));
        } else if (a == 0 || l->actions[a].step != l->actions[a - 1].step) {
            line_sends_fall_due(l);
            post_step(l, a);
            if (l->host_wait != NONE_U32)
                block_host(l, a);
        }
        if (next > a + 1)
            line_do_pair(l, a);
        else if (l->actions[a].kind == ACTION_WEIGHT)
            line_weigh_chunk(l, &l->actions[a]);
        else
            line_do_chunk(l, a);
        line_send_tied(l, next - 1);
    }
}

/* ---- roles ---- */

static uint32_t resident(Role *role, uint32_t layout, uint32_t layer, bool stays)
{
    if (layout == NONE_U32)
        return NONE_U32;
    return role_frame(role, (Frame){ layout, layer, stays });
}

static void give_home(Build *b, uint32_t block, uint32_t stage)
{
    const BlockType *t = block_type(b, block);
    Role *role = &b->g->roles[stage];
    if (b->blocks[block].frame_of != block) { /* tied: an earlier block of this stage */
        b->home[block] = b->home[b->blocks[block].frame_of];
        ASSERT(b->home[block].role == stage);
        return;
    }
    uint32_t layer = b->blocks[block].layer;
    b->home[block] =
        (Home){ .role = stage,
                .param = resident(role, t->param_layout, layer, true),
                .grad = resident(role, t->grad_layout, layer, b->sw->grads_persist),
                .state = resident(role, t->state_layout, layer, true) };
    resident(role, t->copy_layout, layer, true);
    resident(role, t->half_layout, layer, true);
}

/* Megatron's rule: where activations are whole on every rank and divide by them. */
static uint32_t parts_of_boundary(const Build *b)
{
    uint32_t tp = b->s->parallel.tp;
    if (!sends_parts(b))
        return 1;
    uint64_t elements =
        b->boundary_bytes / dtype_bytes(layout_tensor(b->g, b->boundary_layout, 0)->dtype);
    return elements % tp == 0 ? tp : 1;
}

/* Orders in which neighbours do not meet step by step: who waited for each transfer at once
 * would wait for ever. */
static bool posts_ahead(const Parallel *p)
{
    return p->pp > 1 && schedule_splits(p->schedule) && p->schedule != SCHEDULE_ZB_H1;
}

/* DualPipe's authors say nothing of it.  In f32 the stack does without. */
static bool is_open_ended(const Build *b)
{
    const Parallel *p = &b->s->parallel;
    return b->sw->post_validates && posts_ahead(p) && !runs_dualpipe(p) &&
           dtype_bytes(act_dtype(&b->s->training)) == 2;
}

/* The actions of all stages, one after another. */
static Action *plan_actions(const Build *b, uint32_t turns, uint32_t *each)
{
    const Parallel *p = &b->s->parallel;
    SchedulePlan plan = { .schedule = p->schedule,
                          .pp = p->pp,
                          .turns = turns,
                          .micro_batches = b->s->training.micro_batches,
                          .pairs = hides_in_pairs(b),
                          .open_ended = b->g->open_ended,
                          .costs = b->costs };
    if (p->pp == 1 && turns == 1)
        plan.schedule = SCHEDULE_1F1B; /* just accumulation */
    *each = schedule_actions_n(&plan);
    Action *actions = mem_zero((size_t)p->pp * *each, sizeof *actions);
    schedule_actions(&plan, actions);
    return actions;
}

/* How many actions before they are used what comes round is there: see ROUND. */
static void find_round(Line *l)
{
    const Parallel *p = &l->b->s->parallel;
    uint32_t group = schedule_group(p->pp, l->b->s->training.micro_batches);
    bool turns = p->schedule == SCHEDULE_INTERLEAVED && p->virtual_stages > 1;
    bool first = l->stage == 0, last = l->stage + 1 == p->pp;
    l->round_kind = NONE_U32;
    if (!turns || group <= p->pp || !(first || last))
        return;
    l->round = group - p->pp;
    l->round_kind = first ? ACTION_FORWARD : ACTION_BACKWARD;
}

static void write_role(Build *b, uint32_t stage, const uint32_t *begin, uint32_t chunks,
                       const Action *actions, uint32_t actions_n)
{
    const Parallel *p = &b->s->parallel;
    uint32_t m = b->s->training.micro_batches;
    Arena scratch = { 0 };
    Line l = { .b = b,
               .g = b->g,
               .role = &b->g->roles[stage],
               .stage = stage,
               .pp = p->pp,
               .chunks = chunks,
               .begin = begin,
               .actions = actions,
               .actions_n = actions_n,
               .hides = hides_in_pairs(b),
               .adds_last = adds_grads_last(b),
               .ahead = overlaps(b, DIM_PP) || posts_ahead(p),
               .parts = parts_of_boundary(b),
               .sent = { NOWHERE, NOWHERE },
               .due = { NOWHERE, NOWHERE },
               .compute = NOWHERE,
               .join = NOWHERE,
               .pair = NOWHERE,
               .tied = { { NONE_U32, 0, NOWHERE }, { NONE_U32, 0, NOWHERE } } };
    find_round(&l);
    l.waits = !l.ahead || (b->sw->p2p_waits_for_send && !posts_ahead(p));
    l.host_wait =
        p->pp > 1 && !l.ahead && b->sw->p2p_blocks_host ? host_wait_segment(b) : NONE_U32;
    l.own = PUSH_ARRAY(&scratch, uint32_t, b->blocks_n);
    for (uint32_t i = 0; i < b->blocks_n; i++) {
        bool mine = chunk_stage(b, b->chunk_of[i]) == stage;
        l.own[i] = mine ? l.own_n++ : NONE_U32;
        if (mine)
            give_home(b, i, stage);
    }
    line_find_kept(&l, p->virtual_stages, &scratch);
    l.runs = mem_resize(NULL, (size_t)RUNS_N * l.own_n, sizeof *l.runs);
    for (uint32_t i = 0; i < b->blocks_n; i++)
        if (l.own[i] != NONE_U32)
            line_make_runs(&l, i);
    l.cut_runs = l.hides ? mem_zero((size_t)CUT_RUNS_N * l.own_n, sizeof *l.cut_runs) : NULL;
    for (uint32_t i = 0; i < b->blocks_n && l.hides; i++)
        if (l.own[i] != NONE_U32)
            line_make_cut_runs(&l, i);
    line_find_ways(&l, p->virtual_stages, &scratch);
    l.saved = mem_resize(NULL, (size_t)m * l.own_n, sizeof *l.saved);
    for (size_t i = 0; i < (size_t)m * l.own_n; i++)
        l.saved[i] = (Saved){ NONE_U32, NONE_U32, NONE_U32, NONE_U32, NONE_U32, NONE_U32 };
    /* An action runs the blocks of a chunk, and has an input, a receive and a send: about so
     * much. */
    uint32_t runs_n = l.actions_n / p->virtual_stages * l.own_n;
    role_reserve(l.role, runs_n + 3 * l.actions_n, runs_n + 8 * l.actions_n,
                 3 * m * l.own_n + 4 * l.actions_n);
    l.received = PUSH_ARRAY(&scratch, Received, l.actions_n);
    size_t handed_n = (size_t)2 * p->virtual_stages * m;
    l.handed = PUSH_ARRAY(&scratch, Received, handed_n);
    for (size_t i = 0; i < handed_n; i++)
        l.handed[i] = (Received){ NOWHERE, NONE_U32, false };
    write_actions(&l);
    line_let_all_go(&l);
    free(l.runs);
    free(l.cut_runs);
    free(l.saved);
    free(l.transfers);
    arena_free(&scratch);
}

static bool check_schedule(const Build *b, Err *err)
{
    const Parallel *p = &b->s->parallel;
    if (runs_dualpipe(p) && p->virtual_stages == 1)
        return err_set(
            err,
            "parallel.schedule 'dualpipe' from both ends cannot be simulated, its V can: "
            "virtual_stages 2, pp %" PRIu32 " and dp %" PRIu32
            " give each GPU the same chunks and micro-batches",
            p->pp / 2, 2 * p->dp);
    if (posts_ahead(p) && p->overlap_set[DIM_PP] && !p->overlap[DIM_PP])
        return err_set(err,
                       "parallel.overlap.pp false: schedule %s needs transfers beside compute; "
                       "true is allowed, or schedule 1f1b, interleaved, zb-h1",
                       schedule_names[p->schedule]);
    bool many = p->schedule == SCHEDULE_INTERLEAVED || schedule_is_vee(p->schedule);
    if (p->virtual_stages > 1 && !many)
        return err_set(err,
                       "parallel.virtual_stages %" PRIu32 " needs parallel.schedule "
                       "interleaved; 1 is allowed with %s",
                       p->virtual_stages, schedule_names[p->schedule]);
    if (p->schedule == SCHEDULE_INTERLEAVED && p->virtual_stages > 1 &&
        schedule_group(p->pp, b->s->training.micro_batches) == 0)
        return err_set(err,
                       "schedule interleaved needs groups of equally many micro-batches, "
                       "pp = %" PRIu32 " or more each, not %" PRIu32,
                       p->pp, b->s->training.micro_batches);
    return true;
}

bool pass_pipeline(Build *b, Err *err)
{
    const Parallel *p = &b->s->parallel;
    ASSERT(b->blocks_n > 0 && b->s->training.micro_batches > 0);
    if (!check_schedule(b, err))
        return false;
    uint32_t chunks = p->pp * p->virtual_stages;
    uint32_t *begin = PUSH_ARRAY(&b->arena, uint32_t, (size_t)chunks + 1);
    if (!cut_chunks(b, begin, chunks, err))
        return false;
    choose_variants(b, begin, p->pp, chunks);
    b->g->open_ended = is_open_ended(b);
    b->home = PUSH_ARRAY(&b->arena, Home, b->blocks_n);
    for (uint32_t stage = 0; stage < p->pp; stage++) {
        char name[32];
        snprintf(name, sizeof name, "stage %" PRIu32, stage);
        graph_role(b->g, name, stage);
    }
    uint32_t each;
    Action *actions = plan_actions(b, p->virtual_stages, &each);
    for (uint32_t stage = 0; stage < p->pp; stage++)
        write_role(b, stage, begin, chunks, actions + (size_t)stage * each, each);
    free(actions);
    return true;
}
