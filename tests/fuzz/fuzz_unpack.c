/*
 * fuzz_unpack.c - any bytes as a file, gzip or not: both ways of unpacking, in memory as it
 * streams and into a temporary file, give the same bytes, and see the same damage.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include "traces/bytes_in.h"
#include "traces/unpack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { BYTES_MAX = 1 << 16 };
static uint8_t streamed[BYTES_MAX];
static int fd;

/* Temporary files go where they never reach a disk. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    ASSERT(fd >= 0);
    return 0;
}

static bool stream(const uint8_t *data, size_t n, size_t *got, bool *whole)
{
    BytesIn b;
    Err err = { 0 };
    size_t more = 1;
    bool ok = bytes_in_memory(&b, data, n, "fuzz", &err);
    ASSERT(ok != err.set);
    for (*got = 0; ok && more > 0 && *got < BYTES_MAX; *got += more)
        more = bytes_in_read(&b, streamed + *got, min_u64(BYTES_MAX - *got, 1 + n * 7));
    *whole = ok && !bytes_in_problem(&b);
    if (ok)
        bytes_in_close(&b);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    size_t got;
    bool whole;
    Unpacked u;
    Err err = { 0 };
    bool opened = stream(data, n, &got, &whole);
    ASSERT(opened == (n > 0));

    ASSERT(ftruncate(fd, 0) == 0 && pwrite(fd, data, n, 0) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bool ok = unpack_open(&u, path, BYTES_MAX, &err);
    ASSERT(ok != err.set);
    ASSERT(got == BYTES_MAX || ok == (whole && got > 0));
    ASSERT(!ok || u.n == got);
    ASSERT(!ok || memcmp(u.bytes, streamed, got) == 0);
    unpack_close(&u);
    return 0;
}
