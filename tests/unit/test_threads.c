/*
 * test_threads.c - ranks that are threads of one process train as processes do: the same
 * losses, bit for bit.  So a GPU that all of them share can be driven like many.
 */
#include "tests/exec_world.h"

/* Threads of the world, as the thread sanitizer looks for them: <pthread.h>. */

static const char mlp[] =
    "{\"name\":\"threads\",\"model\":{\"kind\":\"mlp\",\"widths\":[8,16,12,1]},"
    "\"cluster\":\"dgx-h100\",\"training\":{\"global_batch\":32,\"micro_batch\":8,"
    "\"precision\":\"f32\",\"optimizer\":\"adamw\"},\"parallel\":{\"strategy\":\"ddp\",\"dp\":"
    "4}}";

static const char gpt[] =
    "{\"name\":\"threads\",\"model\":{\"kind\":\"transformer\",\"layers\":2,\"hidden\":16,"
    "\"heads\":2,\"vocab\":32,\"max_seq\":8,\"positions\":\"learned\"},\"cluster\":\"dgx-"
    "h100\","
    "\"training\":{\"global_batch\":8,\"micro_batch\":1,\"seq_len\":8,\"precision\":\"f32\","
    "\"optimizer\":\"adamw\"},\"parallel\":{\"strategy\":\"fsdp\",\"dp\":2,\"pp\":2}}";

static void check_world(const char *text, const char *strategy)
{
    ExecWorld w;
    Err err = { 0 };
    Setting set = { "parallel.strategy", strategy };
    enum { STEPS = 3 };
    double losses[STEPS];
    if (!CHECK(world_open(&w, text, &set, 1, &err))) {
        fprintf(stderr, "%s\n", err.text);
        return;
    }
    if (CHECK(world_run(&w, (WorldOptions){ .clock = RUN_WALL, .steps = STEPS }))) {
        memcpy(losses, w.result->losses, sizeof losses);
        memset(w.result, 0, sizeof *w.result);
        RankPlace place = { .timeout_s = 60, .digest = w.plan.digest };
        kernels_check(&(Program){ .tasks_n = 0 }, &err);
        uint32_t world = w.plan.graph.world_n;
        CHECK_INT(0, launch_threads(world, world_rank, &w, &place));
        CHECK_STR("", w.result->text);
        CHECK_U64(STEPS, w.result->steps_n);
        CHECK_INT(0, memcmp(losses, w.result->losses, sizeof losses));
        CHECK(losses[0] > 0);
    }
    world_close(&w);
}

static void threads_train_as_processes_do(void)
{
    check_world(mlp, "ddp");
    check_world(gpt, "fsdp");
}

/* ---- one fails ---- */

static int fails_on_two(const RankPlace *place, void *user)
{
    Err err = { 0 };
    Fabric *f;
    (void)user;
    if (!fabric_open(&f, place, 4096, &err))
        return EXIT_COULD_NOT;
    bool ok = fabric_barrier(f, &err); /* opening, cut short, has another status */
    if (place->rank == 2)
        fabric_abort(f, "rank 2 does not like it");
    ok = ok && fabric_barrier(f, &err);
    int status = !ok && strcmp(err.text, "rank 2 does not like it") == 0 ? 40 + (int)place->rank
                                                                         : EXIT_DONE;
    fabric_close(f);
    return status;
}

static void the_first_failure_is_the_status(void)
{
    RankPlace place = { .timeout_s = 20, .digest = "test" };
    CHECK_INT(40, launch_threads(3, fails_on_two, NULL, &place));
}

int main(void)
{
    RUN(threads_train_as_processes_do);
    RUN(the_first_failure_is_the_status);
    return check_report();
}
