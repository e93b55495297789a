/*
 * fuzz_set.c - any bytes as a folder of trace files, of any format: one timeline of many
 * ranks that passes its check and findings, or a sentence.
 *
 * The input is the files one after another, each behind a line "@NAME"; NAME is what the
 * rank may be told from, without slashes.  The first byte says whether to be lenient.
 */
#include "traces/set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { FILES_MAX = 4, NAME_MAX_BYTES = 24 };

static char folder[64];
static char path[FILES_MAX][128];

static void remove_folder(void)
{
    rmdir(folder);
}

/* A folder where files never reach a disk. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    bool shm = access("/dev/shm", W_OK) == 0;
    snprintf(folder, sizeof folder, "%s/lockstep-fuzz-set-XXXXXX", shm ? "/dev/shm" : P_tmpdir);
    ASSERT(mkdtemp(folder) && atexit(remove_folder) == 0);
    return 0;
}

/* "@NAME\n" at *at: a path for file i, and *at behind it; false when there is none. */
static bool take_name(const uint8_t **at, const uint8_t *end, int i)
{
    const uint8_t *line = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;
    if (!line || **at != '@' || line - *at > NAME_MAX_BYTES)
        return false;
    int name_n = (int)(line - *at - 1);
    const char *name = (const char *)*at + 1;
    if (memchr(name, '/', (size_t)name_n) || memchr(name, '\0', (size_t)name_n))
        return false;
    snprintf(path[i], sizeof path[i], "%s/%d%.*s", folder, i, name_n, name);
    *at = line + 1;
    return true;
}

static const uint8_t *next_file(const uint8_t *at, const uint8_t *end)
{
    for (; at < end; at++)
        if (at[0] == '\n' && at + 1 < end && at[1] == '@')
            return at;
    return end;
}

static int write_files(const uint8_t *at, const uint8_t *end)
{
    int files_n = 0;
    while (files_n < FILES_MAX && take_name(&at, end, files_n)) {
        const uint8_t *to = next_file(at, end);
        FILE *f = fopen(path[files_n], "wb");
        ASSERT(f);
        setvbuf(f, NULL, _IONBF, 0);
        size_t n = (size_t)(to - at);
        ASSERT(n == 0 || fwrite(at, 1, n, f) == n);
        fclose(f);
        files_n++;
        at = to < end ? to + 1 : end;
    }
    return files_n;
}

static void check(const TraceSet *s, int files_n)
{
    Err err = { 0 };
    ASSERT(timeline_check(&s->timeline, &err) && s->files_n <= (size_t)files_n);
    ASSERT(s->comm_kernels_n <= s->kernels_n && s->findings_n < 1000);
    for (uint32_t k = 0; k < s->timeline.tracks_n; k++)
        ASSERT(s->timeline.tracks[k].rank < s->timeline.ranks_n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    int files_n = write_files(data + 1, data + n);
    const char *paths[FILES_MAX];
    for (int i = 0; i < files_n; i++)
        paths[i] = path[i];
    const char *whole[] = { folder };
    bool as_folder = data[0] & 2;
    TraceSetOptions o = { .jobs = 1, .lenient = data[0] & 1 };
    TraceSet s;
    Err err = { 0 };
    bool ok = as_folder ? trace_set_read(&s, whole, 1, &o, &err)
                        : trace_set_read(&s, paths, (size_t)files_n, &o, &err);
    ASSERT(ok != err.set);
    if (ok)
        check(&s, files_n);
    trace_set_free(&s);
    for (int i = 0; i < files_n; i++)
        unlink(path[i]);
    return 0;
}
