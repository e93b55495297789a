/* launches.c - see launches.h. */
#include "profile/launches.h"

#include <stdlib.h>
#include <string.h>

static int64_t *unknown_times(uint64_t n)
{
    int64_t *ns = mem_resize(NULL, n, sizeof *ns);
    for (uint64_t i = 0; i < n; i++)
        ns[i] = LAUNCH_UNKNOWN;
    return ns;
}

void launches_open(Launches *l, uint64_t low, uint64_t high, uint64_t count)
{
    *l = (Launches){ .low = low };
    if (count == 0)
        return;
    if (high - low < 8 * count + 1024) {
        l->n = high - low + 1;
        l->dense_ns = unknown_times(l->n);
        return;
    }
    for (l->slots_n = 64; l->slots_n < 2 * count;)
        l->slots_n *= 2;
    l->key = mem_resize(NULL, l->slots_n, sizeof *l->key);
    l->ns = unknown_times(l->slots_n);
    memset(l->key, 0xff, l->slots_n * sizeof *l->key);
}

void launches_free(Launches *l)
{
    free(l->dense_ns);
    free(l->key);
    free(l->ns);
    *l = (Launches){ 0 };
}

static uint64_t slot_of(const Launches *l, uint64_t id)
{
    uint64_t at = mix_u64(id) & (l->slots_n - 1);
    while (l->key[at] != NONE_U64 && l->key[at] != id)
        at = (at + 1) & (l->slots_n - 1);
    return at;
}

int64_t *launches_at(Launches *l, uint64_t id)
{
    if (l->dense_ns)
        return &l->dense_ns[id - l->low];
    uint64_t at = slot_of(l, id);
    l->key[at] = id;
    return &l->ns[at];
}

int64_t launches_get(const Launches *l, uint64_t id)
{
    if (l->dense_ns)
        return id >= l->low && id - l->low < l->n ? l->dense_ns[id - l->low] : LAUNCH_UNKNOWN;
    if (!l->key || id == NONE_U64)
        return LAUNCH_UNKNOWN;
    uint64_t at = slot_of(l, id);
    return l->key[at] == id ? l->ns[at] : LAUNCH_UNKNOWN;
}
