/* fuzz_nccl_tests.c - any bytes as a log of nccl-tests: rows that make sense, or a sentence. */
#include "traces/nccl_tests.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    NcclLog l = { 0 };
    Err err = { 0 };
    bool ok = nccl_log_parse(&l, (const char *)data, n, "all_reduce_perf", &err);
    ASSERT(ok != err.set);
    for (uint32_t i = 0; ok && i < l.tests_n; i++) {
        const NcclTest *t = &l.tests[i];
        ASSERT(t->op && t->row_first + t->row_n <= l.rows_n);
        ASSERT(t->gpus_n <= t->ranks_n && t->hosts_n <= t->ranks_n);
    }
    for (uint32_t i = 0; ok && i < l.rows_n; i++)
        ASSERT(l.rows[i].test < l.tests_n && isfinite(l.rows[i].time_us));
    nccl_log_free(&l);
    return 0;
}
