/*
 * device.c - see device.h.  The few NVML functions used are declared by hand, since
 * its header is not part of every toolkit; their ABI has been stable since 2012.
 */
#define _POSIX_C_SOURCE 200809L
#include "device.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_try.h"

/* ---- opening ---- */

static int attribute(enum cudaDeviceAttr which)
{
    int value = 0;
    CUDA_TRY(cudaDeviceGetAttribute(&value, which, 0));
    return value;
}

void device_open(Device *device)
{
    int devices_n = 0;
    cudaError_t rc = cudaGetDeviceCount(&devices_n);
    if (rc != cudaSuccess || devices_n == 0) {
        fprintf(stderr, "gpu: no usable GPU on this machine: %s\n",
                rc != cudaSuccess ? cudaGetErrorString(rc) : "no device");
        exit(EXIT_NO_GPU);
    }
    CUDA_TRY(cudaSetDevice(0));
    CUDA_TRY(cudaGetDeviceProperties(&device->prop, 0));
    CUDA_TRY(cudaDriverGetVersion(&device->driver_version));
    CUDA_TRY(cudaRuntimeGetVersion(&device->runtime_version));
    device->clock_max_mhz = attribute(cudaDevAttrClockRate) / 1000;
    device->memory_clock_mhz = attribute(cudaDevAttrMemoryClockRate) / 1000;
}

uint64_t device_sets_beyond_l2(const Device *device, uint64_t set_bytes, uint64_t pool_bytes)
{
    uint64_t wanted = 3 * (uint64_t)device->prop.l2CacheSize / set_bytes + 1;
    uint64_t room = pool_bytes / set_bytes;
    uint64_t sets = wanted < room ? wanted : room;
    return sets < 1 ? 1 : sets > 256 ? 256 : sets;
}

/* ---- NVML ---- */

enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_TEMPERATURE_GPU = 0 };

/* dlsym gives a data pointer; POSIX promises that it holds a function's address. */
static bool find(void *lib, const char *name, void *fn, size_t bytes)
{
    void *symbol = dlsym(lib, name);
    if (symbol)
        memcpy(fn, &symbol, bytes);
    return symbol != NULL;
}

typedef int NvmlAsk(void *device, unsigned *out);
typedef int NvmlAskKind(void *device, int kind, unsigned *out);
typedef int NvmlAsk64(void *device, unsigned long long *out);

static void ask(Row *row, const char *key, void *lib, void *device, const char *name,
                double scale)
{
    NvmlAsk *fn;
    unsigned value;
    if (find(lib, name, &fn, sizeof fn) && fn(device, &value) == 0)
        row_real(row, key, value * scale);
}

static void ask_kind(Row *row, const char *key, void *lib, void *device, const char *name,
                     int kind)
{
    NvmlAskKind *fn;
    unsigned value;
    if (find(lib, name, &fn, sizeof fn) && fn(device, kind, &value) == 0)
        row_int(row, key, (int64_t)value);
}

static void nvml_device_keys(Row *row, void *lib, void *device)
{
    NvmlAsk64 *reasons;
    unsigned long long bits;

    ask_kind(row, "sm_clock_mhz", lib, device, "nvmlDeviceGetClockInfo", NVML_CLOCK_SM);
    ask_kind(row, "sm_clock_max_mhz", lib, device, "nvmlDeviceGetMaxClockInfo", NVML_CLOCK_SM);
    ask_kind(row, "memory_clock_now_mhz", lib, device, "nvmlDeviceGetClockInfo",
             NVML_CLOCK_MEM);
    ask_kind(row, "temperature_c", lib, device, "nvmlDeviceGetTemperature",
             NVML_TEMPERATURE_GPU);
    ask(row, "power_w", lib, device, "nvmlDeviceGetPowerUsage", 1e-3);
    ask(row, "power_limit_w", lib, device, "nvmlDeviceGetEnforcedPowerLimit", 1e-3);
    if (find(lib, "nvmlDeviceGetCurrentClocksThrottleReasons", &reasons, sizeof reasons) &&
        reasons(device, &bits) == 0)
        row_int(row, "throttle_reasons", (int64_t)bits);
}

static void nvml_keys(Row *row, const char *bus_id)
{
    int (*init)(void), (*shutdown)(void), (*driver)(char *, unsigned);
    int (*by_bus)(const char *, void **);
    void *nvml_device = NULL;
    char version[96] = "";
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!lib || !find(lib, "nvmlInit_v2", &init, sizeof init) ||
        !find(lib, "nvmlShutdown", &shutdown, sizeof shutdown) || init() != 0) {
        row_text(row, "nvml", "not available");
        return;
    }
    if (find(lib, "nvmlSystemGetDriverVersion", &driver, sizeof driver) &&
        driver(version, sizeof version) == 0)
        row_text(row, "driver", version);
    if (find(lib, "nvmlDeviceGetHandleByPciBusId_v2", &by_bus, sizeof by_bus) &&
        by_bus(bus_id, &nvml_device) == 0)
        nvml_device_keys(row, lib, nvml_device);
    shutdown();
}

/* ---- the row ---- */

/* The host decides what a launch costs, so its name belongs to the record. */
static void host_keys(Row *row)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        row_text(row, "cpu", colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    if (f)
        fclose(f);
}

void device_row(Row *row, const Device *device)
{
    const struct cudaDeviceProp *p = &device->prop;
    size_t free_bytes = 0, total_bytes = 0;
    char bus_id[32] = "";

    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
    CUDA_TRY(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, 0));
    row_text(row, "name", p->name);
    row_int(row, "compute_capability", 10 * p->major + p->minor);
    row_int(row, "driver_version", device->driver_version);
    row_int(row, "runtime_version", device->runtime_version);
    row_int(row, "cublaslt_version", (int64_t)cublasLtGetVersion());
    row_int(row, "sms", p->multiProcessorCount);
    row_int(row, "l2_bytes", p->l2CacheSize);
    row_int(row, "memory_bytes", (int64_t)total_bytes);
    row_int(row, "memory_free_bytes", (int64_t)free_bytes);
    row_int(row, "memory_bus_bits", p->memoryBusWidth);
    row_int(row, "shared_optin_bytes", (int64_t)p->sharedMemPerBlockOptin);
    row_int(row, "copy_engines", p->asyncEngineCount);
    row_bool(row, "ecc", p->ECCEnabled != 0);
    row_int(row, "clock_max_mhz", device->clock_max_mhz);
    row_int(row, "memory_clock_mhz", device->memory_clock_mhz);
    nvml_keys(row, bus_id);
    host_keys(row);
}
