/*
 * gpu_program.c - a program that "uses a GPU", for tests of the collector: see fake_cupti.c.
 *
 *     gpu_program KERNELS [DEED]...     initialises CUDA, launches so many kernels, and then
 *
 *     segv abort     crashes                    term     waits to be ended by a signal
 *     quit           _exit after 1.5 s          fork     a child exits as children do
 *     exec           becomes another that launches as many
 *     nccl           collectives, as NCCL tells its profiler
 *     api PATH       records itself into PATH, with ops and a graph
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/capture_api.h"

static void (*launch)(const char *kernel, uint64_t node);
static void (*node)(uint64_t node, uint64_t from);

static void find(void *library, const char *name, void *to)
{
    void *at = library ? dlsym(library, name) : NULL;
    memcpy(to, &at, sizeof at);
}

static void use_gpu(void)
{
    void (*init)(void);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    find(driver, "fake_init", &init);
    if (!init)
        exit(3);
    init();
    void *cupti = dlopen(getenv("FAKE_CUPTI"), RTLD_NOW | RTLD_NOLOAD);
    find(cupti, "fake_launch", &launch);
    find(cupti, "fake_node", &node);
}

static void launch_many(int n)
{
    for (int i = 0; i < n && launch; i++)
        launch("_Z4gemmIfEvi", 0);
}

static void nap(long ms)
{
    const struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

/* ---- NCCL ---- */

typedef struct Event {
    uint64_t type;
    void *parent;
    uint64_t rank, word[11];
} Event;

typedef struct Profiler {
    const char *name;
    int (*init)(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks,
                int rank, void *log);
    int (*start)(void *context, void **handle, Event *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *args);
    int (*finalize)(void *context);
} Profiler;

static uint64_t word(const char *text)
{
    return (uint64_t)(uintptr_t)text;
}

/* One all-reduce of 1000 floats among 4 ranks, in the order of NCCL 2.28. */
static void all_reduce(const Profiler *p, void *context)
{
    void *group, *call, *launched, *task;
    Event group_api = { .type = 1 << 8 };
    p->start(context, &group, &group_api);
    Event coll_api = { .type = 1 << 9,
                       .parent = group,
                       .word = { word("AllReduce"), 1000, word("ncclFloat32") } };
    p->start(context, &call, &coll_api);
    p->stop(call);
    Event kernel_launch = { .type = 1 << 11, .parent = group };
    p->start(context, &launched, &kernel_launch);
    launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0);
    p->stop(launched);
    Event coll = { .type = 1 << 1,
                   .parent = call,
                   .word = { 5, word("AllReduce"), 0, 0, 1000, 0, word("ncclFloat32"), 4,
                             word("TREE"), word("LL128") } };
    p->start(context, &task, &coll);
    if (task)
        p->stop(task);
    p->stop(group);
}

static void use_nccl(void)
{
    const Profiler *p;
    void *context;
    int mask;
    find(dlopen(getenv("NCCL_PROFILER_PLUGIN"), RTLD_NOW | RTLD_LOCAL), "ncclProfiler_v5", &p);
    p->init(&context, 77, &mask, "tp", 1, 4, 2, NULL);
    all_reduce(p, context);
    all_reduce(p, context);
    p->finalize(context);
}

/* ---- recording itself ---- */

static int use_api(const char *plugin, const char *path, int kernels)
{
    const CaptureApi *c;
    CaptureTotals totals;
    char why[300] = "";
    const CaptureOptions o = { .path = path, .rank = 0, .world = 2, .local_rank = 0 };
    find(dlopen(plugin, RTLD_NOW | RTLD_LOCAL), CAPTURE_PLUGIN_SYMBOL, &c);
    if (!c->start(&o, why, sizeof why)) {
        printf("start: %s\n", why);
        return 1;
    }
    use_gpu(); /* without injection this only finds the stand-in */
    c->push_op(1, 40);
    c->push_op(1, 41);
    launch_many(kernels);
    node(500, 0);
    c->pop_op();
    c->pop_op();
    node(501, 0); /* behind the ops: no label */
    node(600, 500);
    launch("captured", 600);
    launch("unlabelled", 501);
    c->map_graph_node((void *)(uintptr_t)700, 1, 43);
    launch("by hand", 700);
    bool ok = c->stop(&totals, why, sizeof why);
    printf("stop: %s%s, %llu dropped, %s\n", ok ? "whole" : "not whole: ", why,
           (unsigned long long)totals.dropped_n, totals.records_n > 8 ? "records" : "nothing");
    return 0;
}

/* ---- deeds ---- */

static void do_deed(const char *deed, char **argv)
{
    if (strcmp(deed, "segv") == 0)
        raise(SIGSEGV);
    if (strcmp(deed, "abort") == 0)
        abort();
    if (strcmp(deed, "nccl") == 0)
        use_nccl();
    if (strcmp(deed, "quit") == 0) {
        nap(1500);
        _exit(0);
    }
    if (strcmp(deed, "fork") == 0) {
        if (fork() == 0)
            exit(0);
        wait(NULL);
        launch_many(1);
    }
    if (strcmp(deed, "exec") == 0) {
        nap(1500);
        execl(argv[0], argv[0], argv[1], (char *)NULL);
    }
    while (strcmp(deed, "term") == 0)
        nap(50);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[2], "api") == 0)
        return use_api(argv[3], argv[4], atoi(argv[1]));
    use_gpu();
    launch_many(argc > 1 ? atoi(argv[1]) : 0);
    for (int i = 2; i < argc; i++)
        do_deed(argv[i], argv);
    return 0;
}
