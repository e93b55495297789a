/*
 * kineto_tracks.c - which track an event belongs to.
 *
 * A place is what the format gives an event: (pid, tid), (device, stream) ...
 * Its track is made with the first span; its name comes at the end, when all M
 * events have been read, wherever they stand.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/kineto_parts.h"

Id kineto_id(Kineto *k, const ScanText *v)
{
    Id id = { .value = 0 };
    if (v->kind == SCAN_NOTHING)
        return (Id){ .absent = true };
    if (scan_whole(v, &id.value))
        return id;
    id.text = true;
    id.value = intern_bytes(&k->places.keys, (const char *)v->at, v->n);
    return id;
}

static Id remembered_id(Kineto *k, IdMemo *memo, const ScanText *v)
{
    if (v->kind != SCAN_NOTHING && memo->n == v->n && memcmp(memo->text, v->at, v->n) == 0)
        return memo->id;
    Id id = kineto_id(k, v);
    if (v->kind != SCAN_NOTHING && v->n > 0 && v->n <= sizeof memo->text) {
        memcpy(memo->text, v->at, v->n);
        memo->n = v->n;
        memo->id = id;
    }
    return id;
}

Id kineto_pid(Kineto *k, const Event *e)
{
    return remembered_id(k, &k->pid_memo, &e->pid);
}

Id kineto_tid(Kineto *k, const Event *e)
{
    return remembered_id(k, &k->tid_memo, &e->tid);
}

static bool id_equal(Id a, Id b)
{
    return a.value == b.value && a.text == b.text && a.absent == b.absent;
}

static inline bool is_place(const Place *p, PlaceKind kind, Id first, Id second)
{
    return p->kind == kind && id_equal(p->first, first) && id_equal(p->second, second);
}

static uint32_t place_hash(PlaceKind kind, Id first, Id second)
{
    uint64_t a =
        mix_u64((uint64_t)first.value ^ ((uint64_t)kind << 56) ^ ((uint64_t)first.text << 55));
    uint64_t b = mix_u64(a ^ (uint64_t)second.value ^ ((uint64_t)second.text << 55));
    return (uint32_t)(b >> 32);
}

static void put_slot(Places *p, uint32_t number)
{
    const Place *place = &p->place[number];
    uint32_t i = place_hash(place->kind, place->first, place->second) & (p->slots_n - 1);
    while (p->slot[i])
        i = (i + 1) & (p->slots_n - 1);
    p->slot[i] = number + 1;
}

uint32_t place_find(Kineto *k, PlaceKind kind, Id first, Id second)
{
    Places *p = &k->places;
    if (p->n == 0)
        return NONE_U32;
    uint32_t last = p->last[kind];
    if (is_place(&p->place[last], kind, first, second))
        return last;
    uint32_t i = place_hash(kind, first, second) & (p->slots_n - 1);
    for (; p->slot[i]; i = (i + 1) & (p->slots_n - 1)) {
        uint32_t number = p->slot[i] - 1;
        if (is_place(&p->place[number], kind, first, second)) {
            p->last[kind] = number;
            return number;
        }
    }
    return NONE_U32;
}

uint32_t place_get(Kineto *k, PlaceKind kind, Id first, Id second)
{
    Places *p = &k->places;
    uint32_t found = place_find(k, kind, first, second);
    if (found != NONE_U32)
        return found;
    GROW(p->place, p->n, p->cap);
    p->place[p->n++] = (Place){ .kind = kind,
                                .first = first,
                                .second = second,
                                .track = NONE_U32,
                                .name = NONE_U32,
                                .open = NONE_U32,
                                .rank = NONE_U32,
                                .number = -1 };
    if (2 * p->n > p->slots_n) {
        free(p->slot);
        p->slots_n = p->slots_n ? 2 * p->slots_n : 64;
        p->slot = mem_zero(p->slots_n, sizeof *p->slot);
        for (uint32_t i = 0; i < p->n; i++)
            put_slot(p, i);
    } else {
        put_slot(p, p->n - 1);
    }
    return p->n - 1;
}

/* ---- tracks ---- */

static TrackKind track_kind(PlaceKind kind)
{
    switch (kind) {
    case PLACE_STREAM:
    case PLACE_DEVICE:
    case PLACE_ODD:
    case PLACE_UNNAMED:
        return TRACK_STREAM;
    case PLACE_COUNTER:
        return TRACK_COUNTER;
    case PLACE_STEPS:
        return TRACK_STEPS;
    default:
        return TRACK_HOST;
    }
}

static int64_t track_sort(const Place *place)
{
    if (place->kind == PLACE_UNNAMED)
        return -1;
    if (place->kind == PLACE_COUNTER || place->kind == PLACE_STEPS || place->second.text)
        return 0;
    return place->second.value;
}

uint32_t place_track(Kineto *k, uint32_t place)
{
    Place *p = &k->places.place[place];
    if (p->track == NONE_U32)
        p->track = timeline_track(k->t, 0, track_kind(p->kind), "", track_sort(p));
    return p->track;
}

/* ---- names, at the end ---- */

static bool several_devices(const Places *p)
{
    const Place *one = NULL;
    for (uint32_t i = 0; i < p->n; i++) {
        const Place *place = &p->place[i];
        if ((place->kind != PLACE_STREAM && place->kind != PLACE_ODD) || place->first.absent)
            continue;
        if (one && !id_equal(one->first, place->first))
            return true;
        one = place;
    }
    return false;
}

/* "7", or the text that stands there. */
static void put_id(FILE *f, const Kineto *k, Id id)
{
    if (id.absent)
        fputs("?", f);
    else if (id.text)
        fputs(k->places.keys.text[id.value], f);
    else
        fprintf(f, "%" PRId64, id.value);
}

static void put_stream_name(FILE *f, const Kineto *k, const Place *p, bool with_device)
{
    if (with_device && !p->first.absent) {
        fputs("GPU ", f);
        put_id(f, k, p->first);
        fputs(" ", f);
    }
    fputs("stream ", f);
    put_id(f, k, p->second);
    if (p->kind == PLACE_ODD)
        fputs(" (host rows)", f);
}

static void put_thread_name(FILE *f, Kineto *k, const Place *p)
{
    uint32_t thread = place_find(k, PLACE_THREAD, p->first, p->second);
    uint32_t name = thread == NONE_U32 ? NONE_U32 : k->places.place[thread].name;
    if (name != NONE_U32) {
        fputs(k->t->names.text[name], f);
        return;
    }
    if (!p->second.text)
        fputs(p->kind == PLACE_UNNAMED ? "GPU row " : "thread ", f);
    put_id(f, k, p->second);
}

static void put_place_name(FILE *f, Kineto *k, const Place *p, bool with_device)
{
    switch (p->kind) {
    case PLACE_STREAM:
    case PLACE_DEVICE:
    case PLACE_ODD:
        put_stream_name(f, k, p, with_device);
        break;
    case PLACE_STEPS:
        fputs("steps", f);
        break;
    case PLACE_COUNTER:
        fputs(timeline_text(k->t, p->name), f);
        break;
    case PLACE_ASYNC:
        put_id(f, k, p->second);
        break;
    default:
        put_thread_name(f, k, p);
    }
}

void places_name_tracks(Kineto *k)
{
    bool with_device = several_devices(&k->places);
    char *text = NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < k->places.n; i++) {
        const Place *p = &k->places.place[i];
        if (p->track == NONE_U32 || p->kind == PLACE_DECLARED || p->kind == PLACE_NUMBERED ||
            p->kind == PLACE_ASYNC_ID)
            continue;
        FILE *f = open_memstream(&text, &n);
        ASSERT(f);
        put_place_name(f, k, p, with_device);
        ASSERT(fclose(f) == 0);
        k->t->tracks[p->track].name = intern(&k->t->names, text);
        free(text);
    }
}

bool places_give_devices(Kineto *k)
{
    int64_t first = -1;
    bool several = false;
    for (uint32_t i = 0; i < k->places.n; i++) {
        const Place *p = &k->places.place[i];
        if (p->kind != PLACE_DEVICE)
            continue;
        several = several || (first >= 0 && p->first.value != first);
        first = p->first.value;
    }
    for (uint32_t i = 0; i < k->places.n && several; i++)
        if (k->places.place[i].kind == PLACE_DEVICE)
            k->t->tracks[k->places.place[i].track].rank =
                (uint32_t)k->places.place[i].first.value;
    return several;
}

void places_give_ranks(Kineto *k)
{
    for (uint32_t i = 0; i < k->places.n; i++) {
        const Place *p = &k->places.place[i];
        if (p->track == NONE_U32 || p->kind == PLACE_DECLARED || p->kind == PLACE_NUMBERED)
            continue;
        uint32_t process = place_find(k, PLACE_PROCESS, p->first, (Id){ .absent = true });
        if (process != NONE_U32 && k->places.place[process].rank != NONE_U32)
            k->t->tracks[p->track].rank = k->places.place[process].rank;
    }
}
