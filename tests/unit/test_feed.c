/*
 * test_feed.c - what is made ahead is what is brought without.
 */
#include "exec/feed.h"

#include "tests/exec_world.h"

typedef struct Side {
    Data *data;
    Feed *feed;
} Side;

static Side side_open(const RunPlan *plan, const FeedSpec *spec, const Program *p)
{
    Side s;
    Err err = { 0 };
    ASSERT(data_open(&s.data, &plan->data, &err));
    s.feed = feed_open(s.data, &plan->data, spec, p);
    return s;
}

static void side_close(Side *s)
{
    feed_close(s->feed);
    data_close(s->data);
}

/* Everything that a step brings; NULL with err. */
static int64_t *brought(Side *s, const Program *p, uint64_t *n, Err *err)
{
    int64_t *all = NULL;
    *n = 0;
    for (uint32_t i = 0; i < p->tasks_n; i++)
        for (uint32_t a = 0; p->tasks[i].op->kind == OP_H2D && a < p->tasks[i].args_n; a++) {
            const Buffer *b = &task_args(p, &p->tasks[i])[a];
            all = mem_resize(all, *n + b->elements, sizeof *all);
            if (!CHECK(feed_load(s->feed, &p->tasks[i], b, all + *n, err)))
                return NULL;
            *n += b->elements;
        }
    return all;
}

/* Number of numbers that a rank's steps brought, equal with and without feed_ahead. */
static uint64_t same_steps(const RunPlan *plan, uint32_t rank)
{
    Program p;
    Err err = { 0 };
    uint64_t sum = 0;
    ASSERT(program_make(&p, &plan->graph, rank, &err));
    FeedSpec spec = run_plan_feed(plan, rank);
    Side now = side_open(plan, &spec, &p), ahead = side_open(plan, &spec, &p);
    feed_ahead(ahead.feed, 0);
    for (uint64_t step = 0; step < 6; step++) {
        uint64_t a_n, b_n, at = step < 4 ? step : 9 - step; /* then another than was made */
        feed_step(now.feed, at);
        feed_step(ahead.feed, at);
        feed_ahead(ahead.feed, step + 1);
        int64_t *a = brought(&now, &p, &a_n, &err), *b = brought(&ahead, &p, &b_n, &err);
        CHECK(a_n == b_n && (a_n == 0 || memcmp(a, b, a_n * sizeof *a) == 0));
        feed_step(ahead.feed, at); /* once more from the beginning, as measure_job does */
        free(b);
        b = brought(&ahead, &p, &b_n, &err);
        CHECK(a_n == b_n && (a_n == 0 || memcmp(a, b, a_n * sizeof *a) == 0));
        sum += a_n;
        free(a);
        free(b);
    }
    side_close(&now);
    side_close(&ahead);
    program_free(&p);
    return sum;
}

static void made_ahead_is_the_same(void)
{
    static const struct {
        const char *parallel;
        uint64_t ranks_with; /* that bring something */
    } cases[] = {
        { "{\"strategy\":\"ddp\",\"dp\":2}", 2 },
        { "{\"strategy\":\"dp\",\"dp\":2}", 1 }, /* device 0 for both */
        { "{\"strategy\":\"ddp\",\"dp\":2,\"cp\":2}", 4 },
        { "{\"strategy\":\"ddp\",\"pp\":3,\"schedule\":\"1f1b\"}",
          2 }, /* tokens, nothing, targets */
        { "{\"strategy\":\"single\"}", 1 },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        char text[600];
        ExecWorld w;
        Err err = { 0 };
        snprintf(text, sizeof text,
                 "{\"model\":{\"kind\":\"transformer\",\"layers\":3,\"hidden\":16,\"heads\":2,"
                 "\"vocab\":50,\"max_seq\":8},\"cluster\":\"dgx-h100\",\"training\":{"
                 "\"global_batch\":8,\"micro_batch\":2,\"seq_len\":8,\"precision\":\"f32\","
                 "\"optimizer\":\"sgd\"},\"parallel\":%s}",
                 cases[i].parallel);
        uint64_t with = 0;
        if (CHECK(world_open(&w, text, NULL, 0, &err)))
            for (uint32_t rank = 0; rank < w.plan.graph.world_n; rank++)
                with += same_steps(&w.plan, rank) > 0;
        else
            fprintf(stderr, "    %s\n", err.text);
        CHECK_U64(cases[i].ranks_with, with);
        world_close(&w);
    }
}

int main(void)
{
    RUN(made_ahead_is_the_same);
    return check_report();
}
