/*
 * fuzz_nsys.c - any bytes as a database of Nsight Systems: a timeline that passes its
 * check, or a sentence.
 */
#include "traces/nsys.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static Rules rules;
    Timeline t;
    TraceInfo info;
    Err err = { 0 };
    if (rules.n == 0)
        ASSERT(rules_read(&rules, NULL, 0, &err));
    uint8_t *bytes = mem_zero(n + 1, 1);
    memcpy(bytes, data, n);
    bool ok = nsys_read_bytes(&t, &info, bytes, n, "fuzz", &rules, &err);
    ASSERT(ok != err.set);
    ASSERT(!ok || timeline_check(&t, &err));
    timeline_free(&t);
    free(bytes);
    return 0;
}
