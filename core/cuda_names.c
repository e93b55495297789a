/* cuda_names.c - tables of words, and words within words. */
#include "core/cuda_names.h"

#include <string.h>

const char *cuda_copy_name(uint64_t kind)
{
    /* from 11 on Nsight's: of managed memory */
    static const char *const names[] = {
        "Memcpy",      "Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA", "Memcpy AtoH",
        "Memcpy AtoA", "Memcpy AtoD", "Memcpy DtoA", "Memcpy DtoD", "Memcpy HtoH",
        "Memcpy PtoP", "Memcpy HtoD", "Memcpy DtoH", "Memcpy DtoD",
    };
    return names[kind < ARRAY_N(names) ? kind : 0];
}

const char *cuda_sync_name(uint64_t kind)
{
    static const char *const names[] = { "Sync", "Event Sync", "Stream Wait Event",
                                         "Stream Sync", "Context Sync" };
    return names[kind < ARRAY_N(names) ? kind : 0];
}

SpanClass cuda_call_class(const char *call)
{
    if (strstr(call, "Launch") && !strstr(call, "HostFunc"))
        return SPAN_LAUNCH;
    return strstr(call, "Synchronize") || strstr(call, "WaitEvent") ? SPAN_SYNC : SPAN_HOST;
}

bool cuda_host_waits(SpanClass class_, const char *name)
{
    bool of_stream = strstr(name, "WaitEvent") || strstr(name, "Wait Event");
    return strstr(name, "Synchronize") || (class_ == SPAN_SYNC && !of_stream);
}

bool cuda_range_is_step(const char *name)
{
    static const char *const words[] = { "ProfilerStep", "step", "Step", "iteration" };
    for (size_t i = 0; i < ARRAY_N(words); i++) {
        size_t n = strlen(words[i]);
        if (strncmp(name, words[i], n) != 0)
            continue;
        const char *digits = name + n + strspn(name + n, " _#:");
        if (*digits && digits[strspn(digits, "0123456789")] == '\0')
            return true;
    }
    return false;
}
