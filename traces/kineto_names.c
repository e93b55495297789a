/*
 * kineto_names.c - each distinct name once.
 *
 * Kernel names are hundreds of bytes long and there are few of them: a name is
 * hashed and compared as it stands in the text, 16 bytes at a time, and only a
 * new one is unescaped, interned and classified.
 */
#include <stdlib.h>
#include <string.h>

#include "traces/kineto_parts.h"

static inline uint64_t load8(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static uint32_t hash_raw(const uint8_t *p, uint32_t n)
{
    uint64_t a = n * 0x9e3779b97f4a7c15u, b = a ^ 0x94d049bb133111ebu;
    for (; n >= 16; p += 16, n -= 16) {
        a = (a ^ load8(p)) * 0xbf58476d1ce4e5b9u;
        b = (b ^ load8(p + 8)) * 0x94d049bb133111ebu;
        a ^= a >> 29;
        b ^= b >> 31;
    }
    uint8_t tail[16] = { 0 };
    memcpy(tail, p, n);
    a = (a ^ load8(tail)) * 0xbf58476d1ce4e5b9u;
    b = (b ^ load8(tail + 8)) * 0x94d049bb133111ebu;
    return (uint32_t)(mix_u64(a ^ (b >> 3)) >> 32);
}

uint32_t kineto_intern(Kineto *k, const ScanText *v)
{
    if (!v->escaped)
        return intern_bytes(&k->t->names, (const char *)v->at, v->n);
    size_t need = (size_t)v->n + 8;
    if (k->text_cap < need) {
        k->text_cap = 2 * need;
        k->text = mem_resize(k->text, k->text_cap, 1);
    }
    size_t n = scan_unescape(v, k->text, k->text_cap);
    return intern_bytes(&k->t->names, k->text, n);
}

/* ---- what a name says ---- */

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* What makes the GPU do something is a launch: kernels, graphs, copies. */
static SpanClass runtime_class(const char *text)
{
    if (strstr(text, "Launch") || strstr(text, "Memcpy") || strstr(text, "Memset"))
        return SPAN_LAUNCH;
    if (strstr(text, "Synchronize") || strstr(text, "StreamWaitEvent"))
        return SPAN_SYNC;
    return SPAN_HOST;
}

static bool is_step(const char *text)
{
    static const char start[] = "ProfilerStep#";
    size_t n = sizeof start - 1;
    return starts_with(text, start) && text[n] >= '0' && text[n] <= '9';
}

static void classify(Name *name, const char *text, const Rules *rules)
{
    name->rule = rules_match(rules, text);
    name->is_step = is_step(text);
    name->is_memory_copy = starts_with(text, "Memcpy") || starts_with(text, "Memset") ||
                           starts_with(text, "hipMemcpy") || starts_with(text, "hipMemset");
    name->is_collective = strcmp(text, "record_param_comms") == 0 || starts_with(text, "nccl:");
    name->is_memory_total = strcmp(text, "[memory]") == 0;
    name->runtime_class = (uint8_t)runtime_class(text);
}

/* ---- the table ---- */

static void place_name(Names *names, uint32_t number)
{
    uint32_t i = names->name[number].hash & (names->slots_n - 1);
    while (names->slot[i])
        i = (i + 1) & (names->slots_n - 1);
    names->slot[i] = number + 1;
}

static void grow_slots(Names *names)
{
    free(names->slot);
    names->slots_n = names->slots_n ? 2 * names->slots_n : 256;
    names->slot = mem_zero(names->slots_n, sizeof *names->slot);
    for (uint32_t i = 0; i < names->n; i++)
        place_name(names, i);
}

static const Name *add_name(Kineto *k, const ScanText *v, uint32_t hash)
{
    Names *names = &k->names;
    GROW(names->name, names->n, names->cap);
    Name *name = &names->name[names->n++];
    uint8_t *raw = arena_push(&names->arena, (size_t)v->n + 1, 1);
    memcpy(raw, v->at, v->n);
    *name = (Name){ .raw = raw, .raw_n = v->n, .hash = hash, .id = kineto_intern(k, v) };
    classify(name, k->t->names.text[name->id], k->rules);
    comm_read_name(k, name);
    if (2 * names->n > names->slots_n)
        grow_slots(names);
    else
        place_name(names, names->n - 1);
    return name;
}

const Name *kineto_name(Kineto *k, const ScanText *v)
{
    Names *names = &k->names;
    uint32_t hash = hash_raw(v->at, v->n);
    if (names->slots_n == 0)
        return add_name(k, v, hash);
    uint32_t i = hash & (names->slots_n - 1);
    for (; names->slot[i]; i = (i + 1) & (names->slots_n - 1)) {
        const Name *name = &names->name[names->slot[i] - 1];
        if (name->hash == hash && name->raw_n == v->n && memcmp(name->raw, v->at, v->n) == 0)
            return name;
    }
    return add_name(k, v, hash);
}
