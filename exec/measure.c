/*
 * measure.c - short loops, the best of several: what disturbs only makes slower.
 */
#include "exec/measure.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/kernel_parts.h"

enum { SMALL = 64, LARGE = 512, FLAT = 1024, ROWS = 32, COPY_BYTES = 16 << 20, WAKES_N = 400 };
enum { THREADS_MAX = 256 };

#define BUDGET_NS 50000000 /* each of the loops below, at most */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- matmuls ---- */

static double matmul_flops_per_ns(uint64_t rows, uint64_t n)
{
    float *a = mem_zero(rows * n, sizeof *a), *b = mem_zero(n * n, sizeof *b);
    float *c = mem_zero(rows * n, sizeof *c);
    int64_t best_ns = INT64_MAX, until_ns = now_ns() + BUDGET_NS;
    for (int i = 0; i < 3 || now_ns() < until_ns; i++) {
        int64_t start_ns = now_ns();
        gemm(&(Gemm){ false, true, rows, n, n, a, n, b, n, c, n, 1, 0 });
        best_ns = min_i64(best_ns, max_i64(1, now_ns() - start_ns));
    }
    free(a);
    free(b);
    free(c);
    return 2 * (double)rows * (double)n * (double)n / (double)best_ns;
}

/* ---- memory ---- */

static double copy_bytes_per_ns(void)
{
    char *a = mem_zero(COPY_BYTES, 1), *b = mem_zero(COPY_BYTES, 1);
    int64_t best_ns = INT64_MAX, until_ns = now_ns() + BUDGET_NS;
    memset(a, 1, COPY_BYTES);
    for (int i = 0; i < 3 || now_ns() < until_ns; i++) {
        int64_t start_ns = now_ns();
        memcpy(b, a, COPY_BYTES);
        a[i % COPY_BYTES] = b[(i + 1) % COPY_BYTES];
        best_ns = min_i64(best_ns, max_i64(1, now_ns() - start_ns));
    }
    free(a);
    free(b);
    return 2.0 * COPY_BYTES / (double)best_ns;
}

/* ---- waking ---- */

typedef struct Ball {
    pthread_mutex_t lock;
    pthread_cond_t bell;
    uint32_t hits;
} Ball;

static void play(Ball *ball, uint32_t side)
{
    pthread_mutex_lock(&ball->lock);
    while (ball->hits < WAKES_N) {
        if (ball->hits % 2 == side) {
            ball->hits++;
            pthread_cond_signal(&ball->bell);
        } else {
            pthread_cond_wait(&ball->bell, &ball->lock);
        }
    }
    pthread_mutex_unlock(&ball->lock);
}

static void *other_side(void *ball)
{
    play(ball, 1);
    return NULL;
}

static bool measure_wake(int64_t *ns, Err *err)
{
    Ball ball = { .hits = 0 };
    pthread_t thread;
    pthread_mutex_init(&ball.lock, NULL);
    pthread_cond_init(&ball.bell, NULL);
    int64_t start_ns = now_ns();
    int rc = pthread_create(&thread, NULL, other_side, &ball);
    if (rc == 0) {
        play(&ball, 0);
        pthread_join(thread, NULL);
    }
    *ns = max_i64(1, (now_ns() - start_ns) / WAKES_N);
    pthread_cond_destroy(&ball.bell);
    pthread_mutex_destroy(&ball.lock);
    return rc == 0 || err_set(err, "cannot start a thread: %s", strerror(rc));
}

/* ---- all of it ---- */

static void *measure_loops(void *user)
{
    MachineSpeed *x = user;
    x->small_flops_per_ns = matmul_flops_per_ns(SMALL, SMALL);
    x->flat_flops_per_ns = matmul_flops_per_ns(ROWS, FLAT);
    x->large_flops_per_ns = matmul_flops_per_ns(LARGE, LARGE);
    x->bytes_per_ns = copy_bytes_per_ns();
    return NULL;
}

/* The same in n threads; what counts is the first's. */
static bool measure_together(MachineSpeed *x, uint32_t n, Err *err)
{
    pthread_t thread[THREADS_MAX];
    MachineSpeed others[THREADS_MAX];
    uint32_t started = 0;
    int rc = 0;
    n = n < THREADS_MAX ? n : THREADS_MAX;
    while (started + 1 < n && rc == 0) {
        rc = pthread_create(&thread[started], NULL, measure_loops, &others[started]);
        started += rc == 0;
    }
    measure_loops(x);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    return rc == 0 || err_set(err, "cannot start a thread: %s", strerror(rc));
}

bool measure_machine(MachineSpeed *x, uint32_t ranks, Err *err)
{
    int64_t start_ns = now_ns();
    long processors = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    *x = (MachineSpeed){ .processors = processors > 0 ? (uint32_t)processors : 1,
                         .memory_bytes = (uint64_t)(pages > 0 ? pages : 1) *
                                         (uint64_t)sysconf(_SC_PAGESIZE) };
    uint32_t together = ranks < x->processors ? ranks : x->processors;
    if (!gemm_load(err) || !measure_wake(&x->wake_ns, err) ||
        !measure_together(x, together, err))
        return false;
    x->seconds = (double)(now_ns() - start_ns) / 1e9;
    return true;
}

static double best_flops_per_ns(const MachineSpeed *x)
{
    double best = x->large_flops_per_ns;
    best = x->flat_flops_per_ns > best ? x->flat_flops_per_ns : best;
    return x->small_flops_per_ns > best ? x->small_flops_per_ns : best;
}

/* Of the best: as if a third of the arithmetic were done in each of the shapes. */
static double matmul_efficiency(const MachineSpeed *x)
{
    double ns =
        1 / x->large_flops_per_ns + 1 / x->flat_flops_per_ns + 1 / x->small_flops_per_ns;
    return 3 / ns / best_flops_per_ns(x);
}

char *measure_cluster_json(const MachineSpeed *x, uint32_t ranks)
{
    double part = ranks > x->processors ? (double)x->processors / ranks : 1;
    double tflops = best_flops_per_ns(x) * part / 1000, GBps = x->bytes_per_ns * part;
    char *text = mem_zero(1, 2048);
    snprintf(text, 2048,
             "{\"name\":\"this machine\",\"nodes\":1,\"gpus_per_node\":%u,"
             "\"intra_node\":{\"kind\":\"shared_memory\",\"GBps\":%.6g,\"latency_us\":%.6g},"
             "\"collectives\":{\"ideal\":true},"
             "\"gpu\":{\"name\":\"cpu\",\"generation\":\"other\","
             "\"peak_tflops\":{\"f32\":%.6g,\"tf32\":%.6g,\"f16\":%.6g,\"bf16\":%.6g},"
             "\"memory_GB\":%.6g,\"memory_GBps\":%.6g,\"host_GBps\":%.6g,\"sms\":0,\"tdp_w\":0,"
             "\"launch_us\":0,\"kernel_floor_us\":0.2,"
             "\"matmul_model\":{\"fill_us\":0,\"tile_loss\":0,\"wave_rounding\":0},"
             "\"efficiency\":{\"matmul\":%.6g,\"attention\":0.3,\"attention_bwd\":0.3,"
             "\"memory\":1},"
             "\"overlap\":{\"comm_sms\":0,\"comm_memory_factor\":0},"
             "\"provenance\":{\"all\":\"measured by this run in %.1f s\"}}}",
             ranks, GBps / 3, (double)x->wake_ns / 1000, tflops, tflops, tflops, tflops,
             (double)x->memory_bytes / 1e9 / ranks, GBps, GBps, matmul_efficiency(x),
             x->seconds);
    return text;
}
