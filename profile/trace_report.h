/*
 * trace_report.h - what `lockstep report` says of a trace: everything of metrics.h,
 * collectives.h, gaps.h and, where asked for, hta.h, for people and for machines.
 *
 *     Timeline --trace_report_make--> TraceReport --+--> text
 *                                                   +--> JSON   DESIGN.md 4.2
 *                                                   +--> HTML   one file, no network
 */
#ifndef LOCKSTEP_PROFILE_TRACE_REPORT_H
#define LOCKSTEP_PROFILE_TRACE_REPORT_H

#include <stdio.h>

#include "core/json_out.h"
#include "profile/collectives.h"
#include "profile/gaps.h"
#include "profile/hta.h"
#include "profile/metrics.h"

/* A rule, and how many kernels it made communication. */
typedef struct TraceRuleCount {
    const char *rule;
    uint64_t kernels_n;
} TraceRuleCount;

/* What is known about the files besides their timeline; texts are borrowed. */
typedef struct TraceSource {
    const char *name; /* of the file, or of the first of several */
    uint64_t files_n;
    uint64_t events_read, events_skipped;
    bool alone;                  /* a file says that there is one rank */
    const char *const *findings; /* sentences */
    size_t findings_n;
    const TraceRuleCount *rules; /* other kernels the trace itself calls communication */
    size_t rules_n;
    const int64_t *base_ns; /* by rank of the world, see hta.h; NULL: nothing */
    uint32_t base_n;
} TraceSource;

typedef struct TraceReportOptions {
    int64_t step;          /* < 0: the whole trace */
    const uint32_t *ranks; /* of the world */
    uint32_t ranks_n;      /* 0: all */
    uint32_t top;          /* rows of each list in text and HTML */
    bool all_gaps;         /* are kept one by one, as for JSON; else the top longest */
    bool hta, hta_include_last;
} TraceReportOptions;

typedef struct TraceReport {
    const Timeline *t; /* borrowed */
    TraceSource source;
    TraceReportOptions options;

    Covers covers;
    bool *shown;              /* beside covers.rank, as all the arrays here */
    int64_t *from_ns, *to_ns; /* what is looked at: the step, or all of the rank's work */
    Metrics *metrics;
    uint32_t shown_n, busy_n;   /* ranks shown; those of them with GPU work */
    uint64_t alike_n;           /* ranks that the busy ones stand for, they among them */
    Metrics mean;               /* over these */
    uint64_t kernels_n, comm_n; /* kernels of all those shown, communication among them */
    StepWindows steps;          /* in GPU time, as profile/steps.h cuts them */
    Collectives collectives;
    Gaps gaps;
    Hta hta; /* empty unless asked for */

    const char **remarks; /* sentences: what a reader should know before the numbers */
    uint32_t remarks_n, remarks_cap;
    Arena arena;
} TraceReport;

/* t, sealed and checked, and source must outlive r.  False: no such step, no such rank. */
bool trace_report_make(TraceReport *r, const Timeline *t, const TraceSource *source,
                       const TraceReportOptions *options, Err *err);
void trace_report_free(TraceReport *r);

/* All ranks and all steps?  Matches and counts by rule are always of all. */
bool trace_report_is_whole(const TraceReport *r);

void trace_report_text(const TraceReport *r, FILE *out);
void trace_report_json(const TraceReport *r, JsonOut *j);

/* What a rank's time divides into in pictures. */
typedef enum ReportPart {
    REPORT_COMPUTE,
    REPORT_OVERLAPPED, /* communication beside compute */
    REPORT_EXPOSED,    /* communication without */
    REPORT_MEMORY,
    REPORT_IDLE,
    REPORT_PARTS_N
} ReportPart;

extern const char *const report_part_names[REPORT_PARTS_N];

/* Aligned time; profile/collectives.h. */
typedef struct ReportRange {
    int64_t from_ns, to_ns;
} ReportRange;

/*
 * Who draws the page's pictures, as SVG inside of HTML: the command, with the viewer's code.
 * The page uses colours by the names --back, --card, --line, --text, --dim and --exposed.
 */
typedef struct ReportPictures {
    void *user;
    void (*colors)(void *user, FILE *out); /* CSS that declares them, light and dark */
    void (*swatch)(void *user, ReportPart part, FILE *out);
    void (*bar)(void *user, const int64_t part_ns[REPORT_PARTS_N], FILE *out);
    /* Of rank covers.rank[i], its window; and the times below all strips of that range, in
     * one element of class axis. */
    void (*strip)(void *user, const TraceReport *r, uint32_t i, ReportRange all, FILE *out);
    void (*axis)(void *user, ReportRange all, FILE *out);
} ReportPictures;

void trace_report_html(const TraceReport *r, const ReportPictures *pictures, FILE *out);
/* HTA's figures alone. */
void trace_report_hta_text(const TraceReport *r, FILE *out);

/* Of the communication of the ranks shown, and of those they stand for, what is known. */
typedef struct TraceWaiting {
    int64_t total_ns, wait_ns, transfer_ns;
} TraceWaiting;

TraceWaiting trace_report_waiting(const TraceReport *r);

/* Ranks in the order of how much the others waited for them; returns how many do at all. */
uint32_t trace_report_stragglers(const TraceReport *r, uint32_t *ranks);

#endif
