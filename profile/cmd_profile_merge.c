/*
 * cmd_profile_merge.c - recordings of processes become traces of ranks.
 *
 * A process is the rank that its launcher told it; processes that were told none get the ranks
 * that are left, in the order they started.  One that was told none and ran nothing on a GPU, as
 * torchrun itself, is no rank where others are.  Several processes of one rank (a helper that uses
 * the GPU too, a program that execs another) share it, with their numbers in the names of their
 * tracks.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text.h"
#include "profile/cmd_profile.h"
#include "profile/records.h"
#include "traces/native.h"
#include "traces/rules.h"

typedef struct Recording {
    const char *path;
    RawHead head;
    uint32_t rank;
    bool idle;
    bool shared; /* its rank has other processes too */
    RecordsInfo info;
} Recording;

typedef struct Recordings {
    Recording *file;
    uint32_t n, cap;
    uint32_t helpers_n; /* behind these, no ranks */
    uint32_t ranks_n;   /* world size */
    Arena *arena;
    Rules rules;
    RecordsMembers members;
} Recordings;

/* ---- which ---- */

static int by_start(const void *a_, const void *b_)
{
    const Recording *a = a_, *b = b_;
    if (a->head.start_real_ns != b->head.start_real_ns)
        return a->head.start_real_ns < b->head.start_real_ns ? -1 : 1;
    if (a->head.pid != b->head.pid)
        return a->head.pid < b->head.pid ? -1 : 1;
    return strcmp(a->path, b->path);
}

static int by_rank(const void *a_, const void *b_)
{
    const Recording *a = a_, *b = b_;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return by_start(a, b);
}

static bool find_files(Recordings *all, const char *folder, Err *err)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return err_set(err, "cannot open '%s': %s", folder, strerror(errno));
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        Err odd = { 0 };
        Recording file = { .path = arena_printf(all->arena, "%s/%s", folder, e->d_name) };
        if (!text_ends_in(e->d_name, RAW_ENDING))
            continue;
        if (!records_head(&file.head, &file.idle, file.path, &odd)) {
            fprintf(stderr, "lockstep: %s; it is left out\n", odd.text);
            continue;
        }
        GROW(all->file, all->n, all->cap);
        all->file[all->n++] = file;
    }
    closedir(dir);
    return true;
}

static bool is_no_rank(const Recording *file)
{
    return file->idle && file->head.rank == NONE_U32;
}

/* They stand behind the others from here on, beyond all->n. */
static void leave_out_helpers(Recordings *all)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        Recording file = all->file[i];
        if (is_no_rank(&file))
            continue;
        all->file[i] = all->file[kept];
        all->file[kept++] = file;
    }
    all->helpers_n = kept > 0 ? all->n - kept : 0;
    all->n -= all->helpers_n;
}

static bool is_taken(const Recordings *all, uint32_t rank)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (all->file[i].rank == rank)
            return true;
    return false;
}

static void give_ranks(Recordings *all)
{
    leave_out_helpers(all);
    if (all->n > 0)
        qsort(all->file, all->n, sizeof *all->file, by_start);
    for (uint32_t i = 0; i < all->n; i++) {
        const RawHead *head = &all->file[i].head;
        all->file[i].rank = head->rank < TIMELINE_RANKS_MAX ? head->rank : NONE_U32;
        if (head->world < TIMELINE_RANKS_MAX && head->world > all->ranks_n)
            all->ranks_n = head->world;
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        if (all->file[i].rank != NONE_U32)
            continue;
        while (is_taken(all, next))
            next++;
        all->file[i].rank = next;
    }
    if (all->n > 0)
        qsort(all->file, all->n, sizeof *all->file, by_rank);
    for (uint32_t i = 0; i < all->n; i++) {
        uint32_t rank = all->file[i].rank;
        all->file[i].shared = (i > 0 && all->file[i - 1].rank == rank) ||
                              (i + 1 < all->n && all->file[i + 1].rank == rank);
        if (rank >= all->ranks_n)
            all->ranks_n = rank + 1;
    }
}

/* ---- reading ---- */

bool profile_kernel_words(void *user, const char *kernel, SpanClass *class_, const char **op,
                          const char **dtype)
{
    uint32_t match;
    KernelComm said;
    if (!rules_comm(user, kernel, &match, class_, &said))
        return false;
    *op = said.op;
    *dtype = said.dtype;
    return true;
}

static bool read_one(Recordings *all, Recording *file, Timeline *t, RecordsMembers *members,
                     Err *err)
{
    char process[32];
    snprintf(process, sizeof process, "process %" PRIu32, file->head.pid);
    const RecordsOptions o = { .words = { &all->rules, profile_kernel_words },
                               .rank = file->rank,
                               .process = file->shared ? process : NULL,
                               .members = members };
    return records_read(t, &file->info, file->path, &o, err);
}

/* Of files [first, first + n); the members are known when all have been read once. */
static bool write_trace(Recordings *all, uint32_t first, uint32_t n, bool collect,
                        const char *path, Err *err)
{
    Timeline t = { .name = NULL };
    bool ok = true;
    timeline_set_name(&t, n > 0 ? all->file[first].head.command : "");
    for (uint32_t i = first; i < first + n && ok; i++)
        ok = read_one(all, &all->file[i], &t, collect ? &all->members : NULL, err);
    t.ranks_n = all->ranks_n;
    if (ok) {
        records_settle_peers(&t, &all->members);
        timeline_seal(&t);
        ok = native_write(&t, path, err);
    }
    timeline_free(&t);
    return ok;
}

bool profile_make_folder(const char *path, Err *err)
{
    if (mkdir(path, 0777) == 0)
        return true;
    struct stat st;
    if (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return true;
    return err_set(err, "cannot make the folder '%s': %s", path, strerror(errno));
}

static const char *path_of_all(const Recordings *all, const char *out)
{
    return arena_printf(all->arena, "%s/trace.lstrace", out);
}

static const char *folder_of_ranks(const Recordings *all, const char *out)
{
    return arena_printf(all->arena, "%s/ranks", out);
}

static const char *path_of_rank(const Recordings *all, const char *out, uint32_t rank)
{
    return arena_printf(all->arena, "%s/ranks/rank%" PRIu32 ".lstrace", out, rank);
}

static bool write_ranks(Recordings *all, const char *out, bool collect, Err *err)
{
    bool ok = profile_make_folder(folder_of_ranks(all, out), err);
    for (uint32_t i = 0, n; i < all->n && ok; i += n) {
        for (n = 1; i + n < all->n && all->file[i + n].rank == all->file[i].rank;)
            n++;
        ok = write_trace(all, i, n, collect, path_of_rank(all, out, all->file[i].rank), err);
    }
    return ok;
}

/* ---- the report ---- */

static uint64_t gpu_spans(const RecordsInfo *info)
{
    return info->kernels_n + info->copies_n;
}

static void print_row(const Recording *file)
{
    const RecordsInfo *i = &file->info;
    int64_t span_ns = i->end_ns - i->begin_ns;
    int64_t cost_ns = i->head.callback_ns + i->cost_ns;
    double overhead = span_ns > 0 ? 100.0 * (double)cost_ns / (double)span_ns : 0;
    printf("%6" PRIu32 " %9" PRIu32 " %10" PRIu64 " %9" PRIu64 " %9" PRIu64 " %9" PRIu64
           " %10.3f %8" PRIu64 " %9.2f\n",
           file->rank, file->head.pid, i->kernels_n, i->comm_kernels_n, i->copies_n, i->calls_n,
           (double)span_ns * 1e-9, i->head.dropped_n + i->head.unwritten_n, overhead);
}

static void print_report(const Recordings *all)
{
    printf("  rank   process    kernels      comm    copies     calls GPU's span"
           "     lost  overhead\n"
           "                                                          in seconds"
           " records in %% of it\n");
    for (uint32_t i = 0; i < all->n; i++)
        print_row(&all->file[i]);
}

static void print_findings(const Recordings *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        const Recording *file = &all->file[i];
        if (file->info.trouble[0])
            fprintf(stderr, "lockstep: process %" PRIu32 " (rank %" PRIu32 "): %s\n",
                    file->head.pid, file->rank, file->info.trouble);
        for (uint32_t k = 0; k < file->info.findings_n; k++)
            fprintf(stderr, "lockstep: %s\n", file->info.finding[k]);
    }
}

static void print_next(const ProfileRun *run, const Recordings *all)
{
    if (!run->launched)
        printf("\nthe trace is %s/trace.lstrace%s; next: lockstep report %s/trace.lstrace\n",
               run->out, all->ranks_n > 1 ? ", and one per rank in ranks/" : "", run->out);
    else
        printf("\nthe trace is %s/ranks/rank%" PRIu32
               ".lstrace; next, when all ranks are done: "
               "lockstep report %s/ranks\n",
               run->out, all->file[0].rank, run->out);
}

/* ---- all of it ---- */

static void remove_raw(const ProfileRun *run, const Recordings *all)
{
    for (uint32_t i = 0; i < all->n + all->helpers_n; i++)
        unlink(all->file[i].path);
    rmdir(run->raw); /* stays where something else lies in it */
}

static bool make_traces(const ProfileRun *run, Recordings *all, Err *err)
{
    if (run->launched)
        return write_ranks(all, run->out, true, err);
    return write_trace(all, 0, all->n, true, path_of_all(all, run->out), err) &&
           (all->ranks_n == 1 || write_ranks(all, run->out, false, err));
}

/* Traces without anything in them, or some of several, would only be in the way of the next try. */
static void remove_traces(const ProfileRun *run, const Recordings *all)
{
    for (uint32_t i = 0; i < all->n; i++)
        unlink(path_of_rank(all, run->out, all->file[i].rank));
    if (run->launched)
        return; /* the folder is other ranks' too */
    unlink(path_of_all(all, run->out));
    rmdir(folder_of_ranks(all, run->out));
}

bool profile_merge(const ProfileRun *run, ProfileResult *result, Arena *arena, Err *err)
{
    Recordings all = { .arena = arena };
    *result = (ProfileResult){ .files_n = 0 };
    if (!find_files(&all, run->raw, err))
        return false;
    give_ranks(&all);
    bool ok = rules_read(&all.rules, NULL, 0, err);
    ok = ok && (all.n == 0 || make_traces(run, &all, err));
    for (uint32_t i = 0; i < all.n && ok; i++) {
        result->gpu_spans_n += gpu_spans(&all.file[i].info);
        if (!result->trouble && all.file[i].info.trouble[0])
            result->trouble = arena_strdup(arena, all.file[i].info.trouble);
    }
    result->files_n = all.n;
    if (ok && all.n > 0)
        print_findings(&all);
    if (ok && all.n > 0 && result->gpu_spans_n > 0) {
        print_report(&all);
        print_next(run, &all);
    } else if (ok || !run->launched) {
        remove_traces(run, &all);
    }
    if (ok && !run->keep)
        remove_raw(run, &all);
    if (!ok && all.n > 0)
        err_wrap(err, "the recordings stay in '%s'", run->raw);
    rules_free(&all.rules);
    free(all.members.member);
    free(all.file);
    return ok;
}
