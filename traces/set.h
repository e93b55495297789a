/*
 * set.h - several trace files, or a folder of them, as ONE timeline of many ranks.
 *
 *     TraceSet s;
 *     if (!trace_set_read(&s, paths, paths_n, NULL, &err))
 *         ...
 *     s.timeline                    sealed; tracks carry the rank of their file
 *     s.files[i]                    what each file was: rank and why, events, damage, kernels
 *     s.findings[i]                 sentences a user should read before any number
 *     trace_set_free(&s);
 *
 * A path may be a folder: its trace files then, in order of name, not deeper.
 * What cannot be read in it, and files of another format than most of it (the
 * execution traces beside Kineto's), are left out with a finding.  One file that
 * holds many ranks (native) keeps its ranks, and then stands alone.
 *
 * RANK of a file: what it says itself (distributedInfo); else its name (rank0,
 * rank-0, rank_0, worker3, _3.json, .0.et); else the order given.  Names and
 * order are used for all files that do not say, or for none: a name that gives a
 * rank twice is not trusted, unless another file says that rank itself.  Exports of
 * Nsight Systems that hold a node each, of several processes, are counted on in the
 * order given.
 *
 *     ERRORS                                     FINDINGS
 *     a file that cannot be read at all          events skipped: how many, where, why
 *     two files that say they are the same rank  ranks missing: 2 of 8 files
 *     no files                                   ranks by name, by order
 *     world sizes that differ                    no step name in common
 *                                                times far apart (not one run?)
 *                                                clocks that cannot be compared
 *                                                kernels, and none is communication
 *                                                files that were cut short
 *                                                files of several documents
 *                                                a newer format than is known (info.note)
 *
 * With `lenient` the errors of the first column but "no files" become findings,
 * and the files concerned are left out (of duplicates, all but the first).
 *
 * Correlation ids and args_offset are those of a rank's own file: join launches
 * and kernels within a rank.
 *
 * Times: files on the wall clock keep it, so starts are of the order 1.7e18 ns
 * (timeline_begin_ns says); differences are what one wants.  If they cannot be
 * compared (some file without wall clock, or far apart) they are as recorded.
 *
 * Files are read in parallel, and the result does not depend on it.
 */
#ifndef LOCKSTEP_TRACES_SET_H
#define LOCKSTEP_TRACES_SET_H

#include "core/arena.h"
#include "traces/info.h"
#include "traces/rules.h"

typedef enum TraceRankFrom {
    TRACE_RANK_FILE,  /* the file says so */
    TRACE_RANK_NAME,  /* its name does */
    TRACE_RANK_ORDER, /* as given on the command line */
    TRACE_RANK_MANY   /* the file holds several ranks; rank is the lowest */
} TraceRankFrom;

typedef struct TraceFile {
    const char *path;
    const char *folder; /* the one given that it lies in; NULL when it was given itself */
    const char *format; /* name in traces/formats.h: "chrome", "native", "nsys", ... */
    uint32_t rank;
    TraceRankFrom rank_from;
    bool used; /* false: left out, a finding says why */
    TraceInfo info;
} TraceFile;

typedef struct TraceSetOptions {
    const char *const *rules; /* rule files read after the built-in one: --rules FILE */
    size_t rules_n;
    uint32_t jobs; /* threads; 0 = as many as cores */
    bool lenient;
} TraceSetOptions;

typedef struct TraceSet {
    /* Sealed, and has been checked; correlation and args_offset where known. */
    Timeline timeline;
    TraceFile *files;
    size_t files_n;
    const char **findings;
    size_t findings_n, findings_cap;
    Rules rules; /* names of info.rule_kernels_n */

    /* Sums over the files used. */
    uint64_t events_read, events_skipped;
    uint64_t kernels_n, comm_kernels_n;
    uint64_t rule_kernels_n[TRACE_RULES_MAX];
    uint32_t world_size; /* what files say, else the ranks here; 0 without files */
    bool world_said;     /* by a file */

    Arena arena; /* texts */
} TraceSet;

/* options may be NULL.  On failure s is empty. */
bool trace_set_read(TraceSet *s, const char *const *paths, size_t n, const TraceSetOptions *o,
                    Err *err);
/* Whether there is anything to show; else a sentence that names it. */
bool trace_set_holds_any(const TraceSet *s, const char *name, Err *err);
/* Whether path leads to none of the files that were read, rules (those of the options) included;
 * else a sentence.  path may be NULL. */
bool trace_set_spares(const TraceSet *s, const TraceSetOptions *o, const char *path, Err *err);
void trace_set_free(TraceSet *s);

#endif
