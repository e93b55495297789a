/*
 * real_traces.h - recorded traces and their reference figures, where the folder
 * ../shared/data/traces stands beside the repository; tests skip them elsewhere.
 */
#ifndef LOCKSTEP_TESTS_REAL_TRACES_H
#define LOCKSTEP_TESTS_REAL_TRACES_H

#include "core/json.h"
#include "traces/set.h"

#include <stdio.h>
#include <unistd.h>

#define REAL_FOLDER "../shared/data/traces/"
enum { REAL_FILES_MAX = 8 };

typedef struct RealTrace {
    const char *name; /* in expected.json */
    const char *files[REAL_FILES_MAX];
} RealTrace;

#define MEGATRON(rank) REAL_FOLDER "megatron-tp8/kineto_rank" #rank ".json.gz"
#define DLRM(file)     REAL_FOLDER "param-dlrm8/worker" file ".pt.trace.json.gz"
#define SINGLE(file)   REAL_FOLDER "single/" file ".json.gz"

static const RealTrace real_traces[] = {
    { "megatron-tp8",
      { MEGATRON(0), MEGATRON(1), MEGATRON(2), MEGATRON(3), MEGATRON(4), MEGATRON(5),
        MEGATRON(6), MEGATRON(7) } },
    { "param-dlrm8",
      { DLRM("0_step_12.1694128201545"), DLRM("1_step_12.1694128201556"),
        DLRM("2_step_12.1694128201554"), DLRM("3_step_12.1694128201557"),
        DLRM("4_step_12.1694128201547"), DLRM("5_step_12.1694128201549"),
        DLRM("6_step_12.1694128201553"), DLRM("7_step_12.1694128201553") } },
    { "hta-sampled-128", { SINGLE("sampled_rank-0"), SINGLE("sampled_rank-1") } },
    { "hta-nccl-data", { SINGLE("nccl_data_rank0of2_a100") } },
    { "hta-ns-resolution", { SINGLE("ns_resolution_rank0of1_v100") } },
    { "hta-mi250", { SINGLE("mi250_minitoy_train_ROCm6_2_kineto") } },
    { "kineto-tb-resnet50", { SINGLE("resnet50_nw4_v100.pt.trace") } },
};
enum { REAL_TRACES_N = sizeof real_traces / sizeof real_traces[0] };

static inline bool real_traces_are_here(void)
{
    return access(REAL_FOLDER "expected.json", R_OK) == 0;
}

/* The file that a rank came from, NULL when there is none. */
static inline const TraceFile *file_of_rank(const TraceSet *s, uint32_t rank)
{
    for (size_t i = 0; i < s->files_n; i++) {
        const TraceFile *f = &s->files[i];
        if (f->used && (f->rank == rank || f->rank_from == TRACE_RANK_MANY))
            return f;
    }
    return NULL;
}

/* NULL where they are not. */
static inline JsonDoc *real_expected(Err *err)
{
    return real_traces_are_here() ? json_open(REAL_FOLDER "expected.json", err) : NULL;
}

static inline bool real_read(TraceSet *set, const RealTrace *trace, Err *err)
{
    size_t n = 0;
    while (n < REAL_FILES_MAX && trace->files[n])
        n++;
    return trace_set_read(set, trace->files, n, NULL, err);
}

#endif
