/*
 * fuzz_snapshot.c - any bytes as a part of a snapshot: never a crash, and what is
 * read stays within what the head says.
 *
 * The checksum of the head and the size are made right first, else no damage would
 * get past them; the checksums of the numbers are left to chance.
 */
#include "exec/snapshot_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What a head promises of its pieces. */
static void look(SnapPart *part)
{
    for (uint32_t i = 0; i < part->pieces_n; i++) {
        const StoredPiece *s = &part->pieces[i];
        uint64_t elements = 0, end = 0, bytes = s->elements * dtype_bytes(s->dtype);
        ASSERT(s->what < PIECE_KIND_N && s->runs_first + s->runs_n <= part->runs_n);
        for (uint32_t k = 0; k < s->runs_n; k++) {
            Run run = part->runs[s->runs_first + k];
            ASSERT(run.local == elements && run.whole >= end && run.n > 0);
            end = run.whole + run.n;
            elements += run.n;
        }
        ASSERT(end <= s->rows * s->columns && elements == s->elements);
        ASSERT(s->offset + bytes <= part->file_bytes && strlen(s->name) < part->head_bytes);
        uint8_t *numbers = mem_zero(bytes + 1, 1);
        Err err = { 0 };
        bool ok = snap_numbers(part, s, numbers, &err);
        ASSERT(ok != err.set);
        free(numbers);
    }
    ASSERT(strlen(part->head.model) + strlen(part->head.text) < part->head_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/lockstep-fuzz-snapshot-%ld", P_tmpdir, (long)getpid());
    uint8_t *bytes = mem_zero(n + 1, 1);
    if (n > 0)
        memcpy(bytes, data, n);
    snap_repair(bytes, n);
    FILE *f = fopen(path, "w");
    ASSERT(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
    free(bytes);

    SnapPart part;
    Err err = { 0 };
    bool ok = snap_open(&part, path, &err);
    ASSERT(ok != err.set);
    if (ok)
        look(&part);
    snap_close(&part);
    unlink(path);
    return 0;
}
