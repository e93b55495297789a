/*
 * device.h - the GPU being measured: finding it, and what it says of itself.
 *
 * Settings are only ever read.  NVML (the driver's monitoring library) is loaded
 * when it is there; without it power, temperature and throttle reasons are absent.
 */
#ifndef GPU_DEVICE_H
#define GPU_DEVICE_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>

#include "row.h"

typedef struct Device {
    struct cudaDeviceProp prop;
    int clock_max_mhz, memory_clock_mhz;
    int driver_version, runtime_version; /* 13000 = 13.0 */
} Device;

/* Opens device 0.  No usable GPU: a sentence on stderr and exit EXIT_NO_GPU. */
void device_open(Device *device);

/* As many copies of so many bytes as outgrow the L2 cache threefold, within a pool. */
uint64_t device_sets_beyond_l2(const Device *device, uint64_t set_bytes, uint64_t pool_bytes);

/* Everything known about the device as keys of the row. */
void device_row(Row *row, const Device *device);

#endif
