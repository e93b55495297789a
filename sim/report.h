/*
 * report.h - what a simulated step amounts to: the keys of `sim --json`.
 *
 * A Report is numbers and copied texts: it outlives scenario, graph and result,
 * so thousands of them can be kept, compared and sorted.  Its names are those of
 * the report keys (DESIGN 4.2, a contract); as there, times are seconds, and what
 * is not known is NAN in memory, null in JSON and "-" for people.
 *
 *     step_time_s = compute_s + exposed_comm_s + bubble_s + idle_s       of each rank
 *     comm_s      = overlapped_s + exposed_comm_s
 *     mfu         = model flops / (step_time_s * sum over GPUs of their peak)
 *     hfu         = the same with recomputation of matmuls, attention and convolutions added
 *
 * Headline times are means over all ranks; memory is that of the rank with the
 * largest peak, what is reserved that of the fullest GPU; collectives are those of
 * the rank that communication exposes most; each bound is the largest over the ranks.
 */
#ifndef LOCKSTEP_SIM_REPORT_H
#define LOCKSTEP_SIM_REPORT_H

#include <stdio.h>

#include "core/json_out.h"
#include "sim/engine.h"
#include "sim/memory.h"
#include "sim/scenario.h"
#include "sim/software.h"

typedef struct ReportTimes {
    double compute_s, comm_s, overlapped_s, exposed_comm_s, bubble_s, idle_s;
    double overlap_pct; /* 100 * overlapped / comm; NAN without communication */
} ReportTimes;

typedef struct ReportMemory {
    uint64_t peak_bytes, reserved_bytes;
    uint64_t of_class[TENSOR_CLASS_N]; /* at the peak, sums to it */
    MemoryExtra extra;                 /* reserved - peak */
    uint64_t gpu_bytes;                /* what there is */
    bool fits;
} ReportMemory;

/* Memory is predicted within a few per cent (README, accuracy): what leaves less of it may not
 * fit, or make an allocator free and ask anew, step after step. */
#define LITTLE_SPARE 0.05

typedef struct ReportRates {
    double model_tflops_per_gpu, hardware_tflops_per_gpu, mfu, hfu;
} ReportRates;

typedef struct ReportBounds {
    double compute_s, memory_s, link_s, launch_s;
    double above; /* (step - largest bound) / largest bound; NAN where no bound is */
} ReportBounds;

typedef struct ReportCollective {
    const char *op, *group, *algorithm, *protocol; /* algorithm NULL: none to choose */
    uint32_t group_size;
    uint64_t count, bytes;
    double time_s, exposed_s, busbw_GBps; /* busbw NAN where nothing was transferred */
} ReportCollective;

typedef struct ReportRank {
    uint32_t rank, ranks_n, stage; /* lowest rank of the class, and how many it stands for */
    const char *role, *gpu;
    double end_s; /* when its last op is done */
    ReportTimes times;
    ReportRates rates;
    ReportBounds bounds;
    ReportMemory memory;
    uint32_t collectives_n;
    ReportCollective *collectives; /* most exposed first */
} ReportRank;

/* What is alive at the peak, for sim --memory. */
typedef struct ReportPeak {
    const char *segment, *op; /* NULL: nothing is ever born */
    uint32_t layer, micro_batch;
    uint64_t resident[TENSOR_CLASS_N];
    MemoryDetail detail;
    const char **tensor_name; /* by detail.tensors */
} ReportPeak;

typedef struct Report {
    Arena arena;
    const char *name, *strategy, *model, *cluster, *software, *precision, *schedule;
    const char *gpu, *gpus_counted; /* "h100-80gb", "8 x h100-80gb"; of several " + " between */
    const char *recompute;          /* "none", "selective", "full", "4 layers" */
    uint32_t gpus_idle;             /* of the cluster, beyond gpus */
    uint32_t gpus, degree[DIM_N], micro_batch, micro_batches, global_batch, seq_len;
    uint32_t virtual_stages, shard_size; /* shard_size 0: not sharded in groups */
    bool sequence_parallel;
    uint32_t etp;           /* ranks of tp that share out an expert; 0: no experts, or no tp */
    const char *dispatcher; /* "alltoall", "deepep"; NULL: no experts that ep shares out */
    uint64_t params_n;
    bool has_tokens; /* a transformer */
    double step_time_s, samples_per_s, tokens_per_s, tokens_per_s_per_gpu;
    ReportRates rates;
    ReportTimes times;
    double cost_usd_per_step; /* NAN: no price */
    double critical_compute_s, critical_comm_s, critical_bubble_s, critical_launch_s;
    ReportBounds bounds;
    uint32_t ranks_n;
    ReportRank *ranks;             /* by class, ascending rank */
    uint32_t peak_rank, comm_rank; /* indices into ranks: memory, collectives */
    uint32_t full_rank;            /* whose GPU has least left, as a part of it */
    bool fits;                     /* every rank */
    ReportPeak *peak;              /* NULL unless report_add_peak */
    uint64_t events, ops;
    double wall_s;
} Report;

/* memory: by Graph.roles, see memory_extra.  wall_s: what building and simulating took; NAN: not
 * known. */
void report_fill(Report *r, const Scenario *s, const Graph *g, const SimResult *result,
                 RoleMemory *memory, double wall_s);
/* Adds what is alive at the peak of the rank with the largest one. */
void report_add_peak(Report *r, const Graph *g, const RoleMemory *memory);
void report_free(Report *r);

static inline const ReportMemory *report_memory(const Report *r)
{
    return &r->ranks[r->peak_rank].memory;
}

/* What decides whether it fits. */
static inline const ReportMemory *report_fullest(const Report *r)
{
    return &r->ranks[r->full_rank].memory;
}

/* The value of a report key ("mfu", "memory.peak_bytes"; fits: 0 or 1); false: unknown key. */
bool report_value(const Report *r, const char *key, double *value);

/* ---- showing ---- */

void report_text(const Report *r, FILE *out);        /* for people, at most 40 lines */
void report_memory_text(const Report *r, FILE *out); /* needs report_add_peak */
/* Side by side, one column each, not wider than COMPARE_WIDTH; what was asked for only where it is
 * not the usual or not the same. */
enum { COMPARE_WIDTH = 100 };
void report_compare(const Report **reports, uint32_t n, FILE *out);
void report_json(const Report *r, JsonOut *j);         /* one object */
void report_results_json(const Report *r, JsonOut *j); /* its keys but for what was asked */
/* What a stack fuses, saves and overlaps, each with its source; for sim --explain. */
bool report_software_text(const Scenario *s, FILE *out, Err *err);

#endif
