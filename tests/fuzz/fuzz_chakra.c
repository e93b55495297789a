/*
 * fuzz_chakra.c - any bytes as a Chakra trace in either form: a timeline that passes its
 * check, or a sentence.
 */
#include "traces/chakra.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static Rules rules;
    Timeline t;
    TraceInfo info;
    Err err = { 0 };
    if (rules.n == 0)
        ASSERT(rules_read(&rules, NULL, 0, &err));
    bool ok = chakra_read_bytes(&t, &info, data, n, "fuzz", &rules, &err);
    ASSERT(ok != err.set);
    ASSERT(!ok || timeline_check(&t, &err));
    timeline_free(&t);
    return 0;
}
