/*
 * fuzz_kineto.c - any bytes as Chrome or Kineto JSON: never a crash, always a
 * sound timeline or a sentence; and what was read can be written in every format.
 *
 * The reader takes files: the bytes go into one in memory.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include "traces/chrome_write.h"
#include "traces/kineto.h"
#include "traces/native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const Rules *rules_once(void)
{
    static Rules rules;
    Err err = { 0 };
    if (rules.n == 0)
        ASSERT(rules_read(&rules, NULL, 0, &err));
    return &rules;
}

/* A file without a name, and the path it can be opened by. */
static int memory_file(const uint8_t *data, size_t n, char *path, size_t cap)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ASSERT(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    snprintf(path, cap, "/proc/self/fd/%d", fd);
    return fd;
}

static void check_offsets(const Timeline *t, const uint8_t *data, size_t n)
{
    bool packed = n >= 2 && data[0] == 0x1f && data[1] == 0x8b;
    for (uint64_t i = 0; i < t->spans_n && !packed; i++)
        ASSERT(t->args_offset[i] < n && data[t->args_offset[i]] == '{');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    int fd = memory_file(data, n, path, sizeof path);
    Timeline t;
    TraceInfo info;
    Err err = { 0 };
    bool ok = kineto_read(&t, &info, path, rules_once(), &err);
    ASSERT(ok != err.set);
    if (ok) {
        ASSERT(timeline_check(&t, &err));
        ASSERT(info.damage_n <= TRACE_DAMAGE_KEPT && info.damage_n <= info.events_skipped);
        check_offsets(&t, data, n);
        ASSERT(chrome_write(&t, "/dev/null", &err));
        ASSERT(native_write(&t, "/dev/null", &err));
    }
    timeline_free(&t);
    close(fd);
    return 0;
}
