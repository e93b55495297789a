/* bench_host.c - what /proc, /sys and the libraries say of this machine. */
#include "exec/bench_host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "core/jobs.h"
#include "exec/control_group.h"
#include "exec/kernel.h"

/* "model name : X" -> X */
static void take_line(const char *line, const char *key, char *out, size_t size)
{
    const char *colon = strchr(line, ':');
    if (strncmp(line, key, strlen(key)) != 0 || !colon || out[0])
        return;
    colon += strspn(colon, ": \t");
    snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
}

static void read_cpuinfo(BenchHost *h)
{
    char line[512], mhz[32] = "";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        take_line(line, "model name", h->cpu, sizeof h->cpu);
        take_line(line, "cpu MHz", mhz, sizeof mhz);
    }
    if (f)
        fclose(f);
    h->mhz = strtod(mhz, NULL);
}

/* The largest of processor 0's caches. */
static uint64_t last_cache_bytes(void)
{
    uint64_t most = 0;
    for (int i = 0; i < 8; i++) {
        char path[80], text[32] = "", unit = 0;
        unsigned long long n = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *f = fopen(path, "r");
        if (f && fgets(text, sizeof text, f) && sscanf(text, "%llu%c", &n, &unit) >= 1)
            most = max_u64(most, n * (unit == 'M' ? MIB : unit == 'K' ? KIB : 1));
        if (f)
            fclose(f);
    }
    long told = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return most ? most : told > 0 ? (uint64_t)told : 0;
}

/* "OpenBLAS 0.3.21 DYNAMIC_ARCH ... Zen" */
static void blas_name(BenchHost *h)
{
    void *library = open_blas();
    void *symbol = library ? dlsym(library, "openblas_get_config") : NULL;
    char *(*config)(void) = NULL;
    memcpy(&config, &symbol, sizeof config);
    snprintf(h->blas, sizeof h->blas, "%s", config ? config() : "");
}

static uint32_t processors(void)
{
    uint64_t allowed = control_groups_least("cpu", control_group_processors);
    return (uint32_t)min_u64(jobs_processors(), allowed);
}

void bench_host(BenchHost *h)
{
    struct utsname u;
    time_t now = time(NULL);
    struct tm utc;
    long pages = sysconf(_SC_PHYS_PAGES);
    *h = (BenchHost){ .processors = processors(), .cache_bytes = last_cache_bytes() };
    h->memory_bytes = (uint64_t)(pages > 0 ? pages : 0) * (uint64_t)sysconf(_SC_PAGESIZE);
    read_cpuinfo(h);
    blas_name(h);
    if (uname(&u) == 0)
        snprintf(h->kernel, sizeof h->kernel, "%.20s %.50s", u.sysname, u.release);
    if (gmtime_r(&now, &utc))
        strftime(h->date, sizeof h->date, "%Y-%m-%d", &utc);
}

void bench_gpu(char *name, char *versions, size_t size)
{
    FILE *f = popen("nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,"
                    "clocks.max.sm,power.limit --format=csv,noheader -i 0 2>/dev/null",
                    "r");
    char line[256] = "";
    name[0] = versions[0] = '\0';
    if (f && fgets(line, sizeof line, f)) {
        char *comma = strchr(line, ',');
        line[strcspn(line, "\n")] = '\0';
        snprintf(name, size, "%.*s", (int)(comma ? comma - line : 0), line);
        if (comma)
            snprintf(versions, size, "driver, memory, clock, at most, limit: %s",
                     comma + strspn(comma, ", "));
    }
    if (f)
        pclose(f);
}
