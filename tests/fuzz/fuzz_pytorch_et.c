/*
 * fuzz_pytorch_et.c - any bytes as a PyTorch execution trace: its collectives with texts
 * that are there, or a sentence.
 */
#include "traces/pytorch_et.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    PytorchEt e;
    Err err = { 0 };
    pytorch_et_matches(data, n);
    bool ok = pytorch_et_parse(&e, (const char *)data, n, "fuzz", &err);
    ASSERT(ok != err.set);
    ASSERT(!ok || (e.comms_n <= e.nodes_n && e.operators_n <= e.nodes_n));
    for (uint32_t i = 0; ok && i < e.comms_n; i++) {
        const PytorchComm *c = &e.comms[i];
        ASSERT(strlen(intern_text(&e.names, c->op)) <= n);
        ASSERT(c->group == NONE_U32 || strlen(intern_text(&e.names, c->group)) <= n);
    }
    pytorch_et_free(&e);
    return 0;
}
