/*
 * test_pairs.c - a forward and a backward that hide each other's all-to-alls (schedule.h, PAIRS).
 *
 * Orders by what pairs promise; graphs by what holds for every graph, and by the same job without
 * pairs; times in closed form, on a machine on which nothing slows anything.
 */
#include "sim/strategy/schedule.h"
#include "tests/unit/moe_world.h"

enum { PP_MAX = 4, TURNS_MAX = 3, M_MAX = 16 };

/* ---- orders ---- */

static uint32_t key_of(const Action *a, uint32_t m)
{
    return (a->kind * TURNS_MAX + a->turn) * m + a->micro_batch;
}

/* The backward of a pair needs what was done before it; the last of each chunk is alone. */
static void check_order(const Action *a, const SchedulePlan *plan)
{
    bool done[2 * TURNS_MAX * M_MAX] = { false };
    uint32_t m = plan->micro_batches, n = schedule_actions_n(plan);
    for (uint32_t i = 0; i < n; i++) {
        Action forward = { ACTION_FORWARD, a[i].micro_batch, a[i].turn, 0, 0 };
        bool pair = a[i].tied > 0, half = i > 0 && a[i - 1].tied > 0;
        CHECK(!done[key_of(&a[i], m)]);
        if (a[i].kind == ACTION_BACKWARD)
            CHECK(done[key_of(&forward, m)]);
        if (pair) {
            CHECK(a[i].kind == ACTION_FORWARD && a[i + 1].kind == ACTION_BACKWARD);
            CHECK(a[i].micro_batch != a[i + 1].micro_batch || a[i].turn != a[i + 1].turn);
        }
        CHECK(!half || a[i].micro_batch + 1 < m);
        done[key_of(&a[i], m)] = true;
    }
}

static uint32_t pairs_of(const Action *a, uint32_t n)
{
    uint32_t pairs = 0;
    for (uint32_t i = 0; i < n; i++)
        pairs += a[i].tied > 0;
    return pairs;
}

static void halves_of_a_pair_need_nothing_of_each_other(void)
{
    static Action all[PP_MAX * 2 * TURNS_MAX * M_MAX];
    for (uint32_t pp = 1; pp <= PP_MAX; pp++)
        for (uint32_t turns = pp > 1 ? 2 : 1; turns <= (pp > 1 ? TURNS_MAX : 1); turns++)
            for (uint32_t m = pp; m <= M_MAX; m += pp) {
                SchedulePlan plan = { .schedule = pp > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B,
                                      .pp = pp,
                                      .turns = turns,
                                      .micro_batches = m,
                                      .pairs = true };
                uint32_t n = schedule_actions_n(&plan), total = m * turns;
                schedule_actions(&plan, all);
                for (uint32_t stage = 0; stage < pp; stage++) {
                    const Action *mine = all + (size_t)stage * n;
                    uint32_t warm = 2 * (pp - 1 - stage) + (turns - 1) * pp + 1;
                    check_order(mine, &plan);
                    CHECK_U64(warm < total ? total - warm : 0, pairs_of(mine, n));
                }
            }
}

/* ---- graphs ---- */

#define DUALPIPE    ",\"schedule\":\"dualpipe\",\"virtual_stages\":2"
#define INTERLEAVED ",\"schedule\":\"interleaved\",\"virtual_stages\":2"
#define HIDES       ",\"overlap\":{\"ep\":true}"
#define EXPOSES     ",\"overlap\":{\"ep\":false}"

static bool has_parts(const Graph *g)
{
    for (uint32_t i = 0; i < g->segments_n; i++)
        if (strstr(intern_text(&g->names, g->segments[i].name), " part "))
            return true;
    return false;
}

/* The same is computed, sent and gathered as where the halves come one after the other. */
static void check_same_work(Ask hides, Ask exposes)
{
    static const char *const groups[] = { "ep", "edp", "dp", "tp", "pp" };
    static const OpKind kinds[] = { OP_ALL_TO_ALL, OP_ALL_REDUCE, OP_ALL_GATHER,
                                    OP_REDUCE_SCATTER, OP_SEND };
    Drawn x, y;
    bool made = make(&x, hides);
    if (make(&y, exposes) && made) {
        Total a = total_of(&x.g, is_any, NULL), b = total_of(&y.g, is_any, NULL);
        CHECK(has_parts(&x.g) && !has_parts(&y.g));
        CHECK_NEAR(b.model_flops, a.model_flops, 1e-12);
        CHECK_NEAR(b.flops, a.flops, 1e-12);
        for (size_t i = 0; i < ARRAY_N(groups) * ARRAY_N(kinds); i++) {
            OpKind kind = kinds[i % ARRAY_N(kinds)];
            const char *group = groups[i / ARRAY_N(kinds)];
            CHECK_U64(moved(&y.g, kind, group), moved(&x.g, kind, group));
        }
        /* DeepEP reads beside a shared expert, which may be the last that does. */
        if (!x.s.parallel.dispatcher_set && !x.sw.deepep)
            check_lives(&x.g);
        check_runs(&x.g);
    }
    drawn_free(&x);
    drawn_free(&y);
}

static void every_pair_holds_together(void)
{
    static const char *const training[] = { ",\"recompute\":\"none\"",
                                            ",\"recompute\":\"selective\"",
                                            ",\"recompute\":\"full\"" };
    static const char *const models[] = { NULL, QWEN, ",\"moe_every\":2", DEEPSEEK };
    static const char *const software[] = { "generic", "megatron-core-2025",
                                            "megatron-bridge" };
    static const char *const more[] = { "", ",\"dispatcher\":\"deepep\"", ",\"etp\":1" };
    for (uint32_t n = 0; n < 4 * 3 * 3 * 3; n++) {
        char with[2][200];
        uint32_t kind = n / 36; /* no pipeline, interleaved, dualpipe */
        const char *schedule = kind == 0 ? "" : kind == 1 ? INTERLEAVED : DUALPIPE;
        for (int k = 0; k < 2; k++)
            snprintf(with[k], sizeof with[k], "%s%s,\"overlap\":{\"ep\":%s,\"tp\":false}",
                     schedule, more[n / 3 % 3], k ? "false" : "true");
        Ask a = { .experts = E, .per_token = K, .dp = 4, .ep = 2u << n % 2 };
        a.training = training[n % 3];
        a.model = models[n % 4];
        a.software = software[n / 9 % 3];
        a.strategy = n % 5 ? "zero1" : "ddp";
        a.tp = 1 + n / 4 % 2;
        a.pp = kind == 0 ? 1 : 2;
        a.micro_batches = kind == 0 ? 3 : 6;
        a.parallel = with[0];
        Ask b = a;
        b.parallel = with[1];
        check_same_work(a, b);
    }
}

static bool cuts(Ask a)
{
    Drawn x;
    bool is = make(&x, a) && has_parts(&x.g);
    drawn_free(&x);
    return is;
}

/* What a stack cannot do is not done; dualpipe is made for it, whatever the stack. */
static void who_hides_all_to_alls(void)
{
    Ask a = { .experts = E, .per_token = K, .dp = 4, .ep = 4, .pp = 2, .micro_batches = 4 };
    a.parallel = INTERLEAVED;
    CHECK(!cuts(a));
    a.parallel = INTERLEAVED HIDES;
    CHECK(cuts(a));
    a.software = "nemo-2025";
    CHECK(!cuts(a));
    a.parallel = DUALPIPE;
    CHECK(cuts(a));
    a.parallel = DUALPIPE EXPOSES;
    CHECK(!cuts(a));
    a.software = "generic";
    a.parallel = HIDES; /* 1f1b: no pair without virtual stages */
    CHECK(!cuts(a));
    a.ep = 1;
    a.parallel = DUALPIPE HIDES; /* nothing to send */
    CHECK(!cuts(a));
}

/* Sends that wait for the other half of a pair. */
static uint32_t sends_that_wait(Ask a)
{
    Drawn x;
    uint32_t n = 0;
    bool made = make(&x, a);
    for (uint32_t i = 0; made && i < x.g.roles_n; i++) {
        const Role *r = &x.g.roles[i];
        for (uint32_t k = 0; k < r->instances_n; k++) {
            const Instance *in = &r->instances[k];
            if (x.g.segments[in->segment].kind != SEGMENT_SEND)
                continue;
            for (uint32_t e = in->edge_first; e < in->edge_first + in->edge_n; e++)
                n += r->instances[r->edges[e].src_instance].micro_batch != in->micro_batch;
        }
    }
    drawn_free(&x);
    return n;
}

static void who_sends_at_once(void)
{
    Ask a = { .experts = E, .per_token = K, .dp = 4, .ep = 4, .pp = 2, .micro_batches = 8 };
    a.parallel = INTERLEAVED HIDES;
    CHECK_U64(0, sends_that_wait(a));
    a.parallel = DUALPIPE HIDES;
    CHECK(sends_that_wait(a) > 0);
}

/* Chunks of one layer, all sent: of each pair the forward is through before the backward. */
static void what_is_sent_is_made_first(void)
{
    Ask a = { .experts = E, .per_token = K, .dp = 4, .ep = 4, .pp = 2, .micro_batches = 8 };
    a.parallel = INTERLEAVED HIDES;
    Drawn x;
    uint32_t n = 0;
    bool made = make(&x, a);
    for (uint32_t k = 1; made && k < x.g.roles[0].instances_n; k++) {
        const Instance *in = &x.g.roles[0].instances[k];
        const Segment *s = &x.g.segments[in->segment], *before = &x.g.segments[in[-1].segment];
        if (s->kind != SEGMENT_BACKWARD || before->kind != SEGMENT_FORWARD)
            continue;
        n += strstr(intern_text(&x.g.names, s->name), "part 3") &&
             strstr(intern_text(&x.g.names, before->name), "part 3") &&
             in[-1].micro_batch != in->micro_batch;
    }
    CHECK_U64(2 * 8 - (2 * 1 + 2 + 1), n); /* total - warm-up */
    drawn_free(&x);
}

/* ---- times ---- */

/* So wide that each part takes longer than an all-to-all. */
#define WIDE \
    "{\"kind\":\"transformer\",\"layers\":3,\"hidden\":4096,\"heads\":32,\"ffn\":4096," \
    "\"vocab\":512,\"max_seq\":4096,\"gated\":true,\"norm\":\"rmsnorm\",\"positions\":" \
    "\"rope\"," \
    "\"tied_embeddings\":false,\"activation\":\"silu\",\"experts\":8,\"experts_per_token\":1}"

typedef struct Times {
    int64_t step_ns, exposed_ns, all_ns; /* of all-to-alls */
    uint64_t count;
} Times;

static Times times_of(Ask a)
{
    Drawn x;
    SimResult r;
    Draw none = { 0 };
    Times t = { 0 };
    if (make(&x, a) && drawn_run(&r, &x, (SimOptions){ 0 }, &none)) {
        t.step_ns = r.step_ns;
        for (uint32_t i = 0; i < r.ranks[0].collectives_n; i++) {
            const CollectiveStat *c = &r.ranks[0].collectives[i];
            if (c->kind != OP_ALL_TO_ALL)
                continue;
            t.exposed_ns = c->exposed_ns;
            t.all_ns = c->transfer_ns;
            t.count = c->count;
        }
        sim_result_free(&r);
    }
    drawn_free(&x);
    return t;
}

/* Without a pipeline: the first forward and the last backward are alone, all else is hidden. */
static void pairs_hide_all_that_they_send(void)
{
    enum { LAYERS = 3, MICRO_BATCHES = 5 };
    Ask a = { .model = WIDE, .dp = 4, .ep = 4, .micro_batches = MICRO_BATCHES };
    a.parallel = ",\"overlap\":{\"ep\":true,\"dp\":false}"; /* no gradients on the links */
    Times hidden = times_of(a);
    a.parallel = ",\"overlap\":{\"ep\":false,\"dp\":false}";
    Times exposed = times_of(a);
    CHECK_U64(4 * LAYERS * MICRO_BATCHES, hidden.count);
    CHECK_U64(4 * LAYERS * MICRO_BATCHES, exposed.count);
    CHECK(exposed.all_ns > 0);
    CHECK_INT(exposed.all_ns, exposed.exposed_ns);
    CHECK_INT(exposed.all_ns / MICRO_BATCHES, hidden.exposed_ns);
    CHECK_INT(exposed.step_ns - exposed.all_ns / MICRO_BATCHES * (MICRO_BATCHES - 1),
              hidden.step_ns);
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(halves_of_a_pair_need_nothing_of_each_other);
    RUN(every_pair_holds_together);
    RUN(who_hides_all_to_alls);
    RUN(who_sends_at_once);
    RUN(what_is_sent_is_made_first);
    RUN(pairs_hide_all_that_they_send);
    return check_report();
}
