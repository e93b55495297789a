/*
 * part_copy.c - bandwidth of copies: host to device and back, pinned and pageable, both
 * ways at once, and within the device.
 *
 * GBps counts the bytes copied once; a copy within the device moves twice as many.
 */
#include <stdlib.h>

#include "gpu_try.h"
#include "parts.h"

static const uint64_t HOST_BYTES = (uint64_t)256 << 20;
static const uint64_t DEVICE_BYTES = (uint64_t)2 << 30;
enum { PAGEABLE_REPEATS = 5 };

typedef struct Copy {
    char *dst;
    const char *src;
    uint64_t bytes;
    enum cudaMemcpyKind kind;
} Copy;

typedef struct Buffers {
    char *device, *device2, *pinned, *pageable;
    cudaStream_t other;
} Buffers;

static void launch_copy(void *self, uint64_t call, cudaStream_t stream)
{
    const Copy *c = self;
    (void)call;
    CUDA_TRY(cudaMemcpyAsync(c->dst, c->src, c->bytes, c->kind, stream));
}

static void begin_row(Row *row, const char *direction, const char *host, uint64_t bytes)
{
    row_begin(row, "copy");
    row_text(row, "direction", direction);
    row_text(row, "host", host);
    row_int(row, "bytes", (int64_t)bytes);
}

static void end_row(Run *run, Row *row, double GBps)
{
    row_real(row, "GBps", GBps);
    row_end(row, run->rows);
}

/* Copies that run beside the host: timed with events. */
static void asynchronous(Run *run, const char *direction, const char *host, Copy copy)
{
    TimingPlan plan = { .sample_us = 4000, .batch_max = 100, .repeats = 7 };
    Timing t = bench_time(&run->bench, launch_copy, &copy, plan);
    double GBps = (double)copy.bytes / t.median_us * 1e-3;
    Row row;
    begin_row(&row, direction, host, copy.bytes);
    timing_keys(&row, &t);
    end_row(run, &row, GBps);
    if (copy.bytes == HOST_BYTES)
        printf("%-6s %-8s %8.1f GB/s\n", direction, host, GBps);
}

/* Pageable copies block the host: timed with its clock. */
static void pageable(Run *run, const char *direction, Copy copy)
{
    double us[PAGEABLE_REPEATS];
    for (int i = -1; i < PAGEABLE_REPEATS; i++) {
        double begin = host_now_us();
        CUDA_TRY(cudaMemcpy(copy.dst, copy.src, copy.bytes, copy.kind));
        CUDA_TRY(cudaDeviceSynchronize());
        if (i >= 0)
            us[i] = host_now_us() - begin;
    }
    double median_us = quantile(us, PAGEABLE_REPEATS, 0.5);
    Row row;
    begin_row(&row, direction, "pageable", copy.bytes);
    row_real(&row, "time_us", median_us);
    row_real(&row, "min_us", us[0]);
    end_row(run, &row, (double)copy.bytes / median_us * 1e-3);
    if (copy.bytes == HOST_BYTES)
        printf("%-6s %-8s %8.1f GB/s\n", direction, "pageable",
               (double)copy.bytes / median_us * 1e-3);
}

/* Both directions at once; the sum of both. */
static void both_ways(Run *run, const Buffers *b)
{
    enum { COPIES = 4 };
    double us[PAGEABLE_REPEATS];
    uint64_t half = HOST_BYTES / 2;

    for (int i = -1; i < PAGEABLE_REPEATS; i++) {
        double begin = host_now_us();
        for (int j = 0; j < COPIES; j++) {
            CUDA_TRY(cudaMemcpyAsync(b->device, b->pinned, half, cudaMemcpyHostToDevice,
                                     run->bench.stream));
            CUDA_TRY(cudaMemcpyAsync(b->pinned + half, b->device2, half, cudaMemcpyDeviceToHost,
                                     b->other));
        }
        CUDA_TRY(cudaDeviceSynchronize());
        if (i >= 0)
            us[i] = (host_now_us() - begin) / COPIES;
    }
    double median_us = quantile(us, PAGEABLE_REPEATS, 0.5);
    Row row;
    begin_row(&row, "both", "pinned", HOST_BYTES);
    row_real(&row, "time_us", median_us);
    end_row(run, &row, (double)HOST_BYTES / median_us * 1e-3);
    printf("%-6s %-8s %8.1f GB/s\n", "both", "pinned", (double)HOST_BYTES / median_us * 1e-3);
}

static void buffers_open(Buffers *b, cudaStream_t stream)
{
    CUDA_TRY(cudaMalloc((void **)&b->device, DEVICE_BYTES));
    CUDA_TRY(cudaMalloc((void **)&b->device2, DEVICE_BYTES));
    CUDA_TRY(cudaHostAlloc((void **)&b->pinned, HOST_BYTES, cudaHostAllocDefault));
    b->pageable = try_alloc(HOST_BYTES, 1);
    CUDA_TRY(cudaStreamCreateWithFlags(&b->other, cudaStreamNonBlocking));
    CUDA_TRY(kern_fill(b->device, NUM_BF16, FILL_NORMAL, 1, DEVICE_BYTES / 2, 1, stream));
    CUDA_TRY(kern_fill(b->device2, NUM_BF16, FILL_NORMAL, 1, DEVICE_BYTES / 2, 2, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    /* Random bytes on the host too, and every page touched. */
    CUDA_TRY(cudaMemcpy(b->pinned, b->device, HOST_BYTES, cudaMemcpyDeviceToHost));
    CUDA_TRY(cudaMemcpy(b->pageable, b->device, HOST_BYTES, cudaMemcpyDeviceToHost));
}

static void buffers_close(Buffers *b)
{
    CUDA_TRY(cudaStreamDestroy(b->other));
    free(b->pageable);
    CUDA_TRY(cudaFreeHost(b->pinned));
    CUDA_TRY(cudaFree(b->device2));
    CUDA_TRY(cudaFree(b->device));
}

int part_copy(Run *run)
{
    Buffers b;
    buffers_open(&b, run->bench.stream);
    for (uint64_t bytes = HOST_BYTES; bytes >= 4096 && run_has_time(run); bytes /= 4) {
        asynchronous(run, "h2d", "pinned",
                     (Copy){ b.device, b.pinned, bytes, cudaMemcpyHostToDevice });
        asynchronous(run, "d2h", "pinned",
                     (Copy){ b.pinned, b.device, bytes, cudaMemcpyDeviceToHost });
        pageable(run, "h2d", (Copy){ b.device, b.pageable, bytes, cudaMemcpyHostToDevice });
        pageable(run, "d2h", (Copy){ b.pageable, b.device, bytes, cudaMemcpyDeviceToHost });
    }
    for (uint64_t bytes = DEVICE_BYTES; bytes >= 4096 && run_has_time(run); bytes /= 4)
        asynchronous(run, "d2d", "none",
                     (Copy){ b.device2, b.device, bytes, cudaMemcpyDeviceToDevice });
    both_ways(run, &b);
    buffers_close(&b);
    return 0;
}
