/*
 * space.c - a sorted array of free pieces; there are few, as in any training step.
 */
#include "exec/space.h"

#include <stdlib.h>
#include <string.h>

uint64_t space_round(uint64_t bytes)
{
    uint64_t n = div_up_u64(bytes, SPACE_ALIGN_BYTES) * SPACE_ALIGN_BYTES;
    return n ? n : SPACE_ALIGN_BYTES;
}

void touched_merge(Touched *a, const Touched *b)
{
    for (int lane = 0; lane < LANE_N; lane++)
        if (b->done[lane] > a->done[lane])
            a->done[lane] = b->done[lane];
}

static void remove_pieces(Space *s, uint32_t first, uint32_t n)
{
    memmove(&s->pieces[first], &s->pieces[first + n],
            (s->pieces_n - first - n) * sizeof *s->pieces);
    s->pieces_n -= n;
}

/* Takes `bytes` from pieces [first, end), which lie side by side. */
static uint64_t take_run(Space *s, uint32_t first, uint32_t end, uint64_t bytes,
                         Touched *touched)
{
    uint64_t offset = s->pieces[first].offset, stop = offset + bytes;
    uint32_t whole = 0;
    for (uint32_t i = first; i < end && s->pieces[i].offset < stop; i++) {
        FreePiece *piece = &s->pieces[i];
        touched_merge(touched, &piece->touched);
        if (piece->offset + piece->bytes <= stop) {
            whole++;
            continue;
        }
        piece->bytes -= stop - piece->offset;
        piece->offset = stop;
    }
    remove_pieces(s, first, whole);
    if (stop > s->end_bytes)
        s->end_bytes = stop;
    return offset;
}

uint64_t space_take(Space *s, uint64_t bytes, SpaceMay *may, void *user, Touched *touched)
{
    bytes = space_round(bytes);
    uint32_t first = 0;
    uint64_t run = 0;
    for (uint32_t i = 0; i < s->pieces_n; i++) {
        const FreePiece *piece = &s->pieces[i];
        bool joins = run > 0 && piece[-1].offset + piece[-1].bytes == piece->offset;
        if (!may(user, &piece->touched)) {
            run = 0;
            continue;
        }
        first = joins ? first : i;
        run = (joins ? run : 0) + piece->bytes;
        if (run >= bytes)
            return take_run(s, first, i + 1, bytes, touched);
    }
    const FreePiece *last = s->pieces_n ? &s->pieces[s->pieces_n - 1] : NULL;
    if (run > 0 && last->offset + last->bytes == s->end_bytes)
        return take_run(s, first, s->pieces_n, bytes, touched);
    s->end_bytes += bytes;
    return s->end_bytes - bytes;
}

void space_give(Space *s, uint64_t offset, uint64_t bytes, const Touched *touched)
{
    bytes = space_round(bytes);
    uint32_t at = s->pieces_n;
    while (at > 0 && s->pieces[at - 1].offset > offset)
        at--;
    FreePiece *before = at > 0 ? &s->pieces[at - 1] : NULL;
    if (before && before->offset + before->bytes == offset &&
        memcmp(&before->touched, touched, sizeof *touched) == 0) {
        before->bytes += bytes;
        return;
    }
    GROW(s->pieces, s->pieces_n, s->pieces_cap);
    memmove(&s->pieces[at + 1], &s->pieces[at], (s->pieces_n - at) * sizeof *s->pieces);
    s->pieces[at] = (FreePiece){ offset, bytes, *touched };
    s->pieces_n++;
}

void space_free(Space *s)
{
    free(s->pieces);
    *s = (Space){ 0 };
}
