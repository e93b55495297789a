/*
 * on_cpu.h - what the parts of the stand-in for CUDA say to each other, and to tests in C.
 */
#ifndef LOCKSTEP_TESTS_ON_CPU_ON_CPU_H
#define LOCKSTEP_TESTS_ON_CPU_ON_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* run(a copy of work), when the stream comes to it; at a NULL stream now. */
void on_cpu_queue(void *stream, void (*run)(const void *work), const void *work, size_t bytes);

/* How much memory the device has; 1 GiB at first. */
void on_cpu_memory(uint64_t bytes);
/* What is allocated on the device now; how often graphs have been launched. */
uint64_t on_cpu_allocated(void);
uint64_t on_cpu_graphs(void);
/* How many allocations there are of exactly so many bytes. */
uint32_t on_cpu_allocations(uint64_t bytes);
/* The n-th launch from now on fails; 0: none does. */
void on_cpu_fail_launch(uint64_t n);
/* From now on a kernel is loaded at the first launch by a thread, once the streams that the thread
 * has made are empty, as CUDA may do it. */
void on_cpu_lazy(bool lazy);
/* The next launch into a graph that is captured fails, and the capture with it. */
void on_cpu_spoil_capture(void);

#ifdef __cplusplus
}

#include <mutex>

#include "tests/on_cpu/cuda_runtime_api.h"

/* Held while anything runs; may be taken again by who has it. */
std::recursive_mutex &on_cpu_lock(void);
/* An event that counts as recorded, and is reached when somebody opens it. */
cudaEvent_t on_cpu_gate(void);
void on_cpu_gate_open(cudaEvent_t gate);
#endif

#endif
