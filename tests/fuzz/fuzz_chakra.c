/*
 * fuzz_chakra.c - any bytes as a Chakra trace in either form, and as a PyTorch execution
 * trace: a timeline that passes its check, or a sentence.
 */
#include "traces/chakra.h"
#include "traces/pytorch_et.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static Rules rules;
    Timeline t;
    TraceInfo info;
    PytorchEt et;
    Err err = { 0 };
    if (rules.n == 0)
        ASSERT(rules_read(&rules, NULL, 0, &err));
    bool ok = chakra_read_bytes(&t, &info, data, n, "fuzz", &rules, &err);
    ASSERT(ok != err.set);
    ASSERT(!ok || timeline_check(&t, &err));
    timeline_free(&t);
    if (pytorch_et_matches(data, n)) {
        Err other = { 0 };
        ok = pytorch_et_parse(&et, (const char *)data, n, "fuzz", &other);
        ASSERT(ok != other.set);
        pytorch_et_free(&et);
    }
    return 0;
}
