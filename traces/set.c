/*
 * set.c - files read side by side, then joined rank by rank.
 *
 * Threads read a file each (core/jobs.h) and share nothing else; all that
 * depends on the order of files happens afterwards, on one thread.  A single file
 * is not copied; of several, each is let go of as soon as it has been joined.
 */
#include "traces/set.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/jobs.h"
#include "core/out_file.h"
#include "traces/set_parts.h"

void set_find(TraceSet *s, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    GROW(s->findings, s->findings_n, s->findings_cap);
    s->findings[s->findings_n++] = arena_strdup(&s->arena, text);
}

/* ---- which files ---- */

typedef struct Path {
    const char *path;
    const char *folder;        /* NULL: given itself */
    const TraceFormat *format; /* in a folder; NULL: none */
} Path;

typedef struct Paths {
    Path *path;
    size_t n, cap;
} Paths;

static void add_path(Paths *p, Path path)
{
    GROW(p->path, p->n, p->cap);
    p->path[p->n++] = path;
}

static int compare_paths(const void *a_, const void *b_)
{
    const Path *a = a_, *b = b_;
    return strcmp(a->path, b->path);
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Without the slashes that a shell puts behind it. */
static const char *folder_name(Arena *arena, const char *given)
{
    size_t n = strlen(given);
    while (n > 1 && given[n - 1] == '/')
        n--;
    return arena_printf(arena, "%.*s", (int)n, given);
}

/* The files in a folder, by name. */
static bool list_folder(TraceSet *s, Paths *found, const char *folder, Err *err)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return err_set(err, "cannot open '%s': %s", folder, strerror(errno));
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        const char *path = arena_printf(&s->arena, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.' && !is_folder(path))
            add_path(found, (Path){ path, folder, NULL });
    }
    closedir(dir);
    if (found->n > 0)
        qsort(found->path, found->n, sizeof *found->path, compare_paths);
    return true;
}

/* The format that most files have; the one met first among equals. */
static const TraceFormat *usual_format(const Paths *found)
{
    const TraceFormat *usual = NULL;
    size_t usual_n = 0;
    for (size_t i = 0; i < found->n; i++) {
        size_t n = 0;
        for (size_t j = 0; j < found->n && found->path[i].format; j++)
            n += found->path[j].format == found->path[i].format;
        if (n > usual_n) {
            usual_n = n;
            usual = found->path[i].format;
        }
    }
    return usual;
}

static bool add_folder(TraceSet *s, Paths *paths, const char *folder, Err *err)
{
    Paths found = { .n = 0 };
    bool ok = list_folder(s, &found, folder, err);
    for (size_t i = 0; i < found.n; i++) {
        Err none = { 0 };
        found.path[i].format = trace_format_of_file(found.path[i].path, &none);
        if (!found.path[i].format)
            set_find(s, "%s; it is left out", none.text);
    }
    const TraceFormat *usual = usual_format(&found);
    for (size_t i = 0; i < found.n; i++) {
        const Path *p = &found.path[i];
        if (p->format && p->format == usual)
            add_path(paths, *p);
        else if (p->format)
            set_find(s, "'%s' is left out: it is %s, and most files in '%s' are %s", p->path,
                     p->format->name, folder, usual->name);
    }
    free(found.path);
    return ok && (usual || err_set(err, "there is no trace in the folder '%s'", folder));
}

static bool list_files(TraceSet *s, const char *const *given, size_t n, Err *err)
{
    Paths paths = { .n = 0 };
    bool ok = n > 0 || err_set(err, "no trace is given");
    for (size_t i = 0; i < n && ok; i++) {
        if (is_folder(given[i]))
            ok = add_folder(s, &paths, folder_name(&s->arena, given[i]), err);
        else
            add_path(&paths, (Path){ arena_strdup(&s->arena, given[i]), NULL, NULL });
    }
    s->files_n = ok ? paths.n : 0;
    s->files = PUSH_ARRAY(&s->arena, TraceFile, s->files_n);
    for (size_t i = 0; i < s->files_n; i++) {
        s->files[i] = (TraceFile){ .path = paths.path[i].path,
                                   .folder = paths.path[i].folder,
                                   .format = "",
                                   .rank = NONE_U32 };
        trace_info_clear(&s->files[i].info);
    }
    free(paths.path);
    return ok;
}

/* ---- reading ---- */

/* What can be told from the spans, for readers that say nothing themselves. */
static void describe(const Timeline *t, TraceInfo *info)
{
    info->events_read = t->spans_n + t->points_n;
    info->world_size = timeline_world_size(t);
    for (uint32_t k = 0; k < t->tracks_n; k++) {
        const Track *track = &t->tracks[k];
        uint64_t first = track->span_first, n = track->span_n;
        uint32_t set = timeline_class_set(t, first, n);
        uint64_t step = set & (set - 1) ? 1 : max_u64(1, n); /* of one class: all at once */
        for (uint64_t i = first; i < first + n; i += step) {
            uint8_t class_ = t->span_class[i];
            bool comm = class_ == SPAN_COMM || class_ == SPAN_P2P;
            info->comm_kernels_n += comm ? step : 0;
            info->kernels_n += comm || class_ == SPAN_COMPUTE ? step : 0;
        }
    }
}

/* Whether several ranks are in it; the one it holds is put into info. */
static bool holds_many(const Timeline *t, TraceInfo *info)
{
    for (uint32_t k = 1; k < t->tracks_n; k++)
        if (t->tracks[k].rank != t->tracks[0].rank)
            return true;
    if (t->tracks_n > 0 && info->rank == NONE_U32)
        info->rank = t->tracks[0].rank;
    return false;
}

static uint32_t lowest_rank(const Timeline *t)
{
    uint32_t rank = NONE_U32;
    for (uint32_t k = 0; k < t->tracks_n; k++)
        rank = t->tracks[k].rank < rank ? t->tracks[k].rank : rank;
    return rank;
}

static void read_file(const TraceSet *s, TraceFile *f, SetPart *p)
{
    TraceInfo *info = &f->info;
    p->format = trace_format_of_file(f->path, &p->err);
    if (!p->format)
        return;
    f->format = p->format->name;
    if (p->format->read) {
        p->ok = p->format->read(&p->t, info, f->path, &s->rules, &p->err);
    } else {
        p->ok = p->format->open(&p->t, f->path, &p->err);
        if (p->ok)
            describe(&p->t, info);
    }
    if (!p->ok)
        return;
    TraceInfo one = *info;
    p->many = holds_many(&p->t, &one);
    if (p->many)
        info->rank = lowest_rank(&p->t);
    else if (strcmp(f->format, "native") == 0)
        info->rank = one.rank; /* its tracks say it */
}

typedef struct Work {
    const TraceSet *s;
    SetPart *parts;
} Work;

static void read_one(void *work, uint32_t i)
{
    const Work *w = work;
    read_file(w->s, &w->s->files[i], &w->parts[i]);
}

static void read_all(TraceSet *s, SetPart *parts, uint32_t jobs)
{
    Work w = { .s = s, .parts = parts };
    jobs_run(read_one, &w, (uint32_t)s->files_n, jobs ? jobs : jobs_processors());
}

/* Marks what is used; false at the first file that could not be read, unless lenient. */
static bool take_results(TraceSet *s, SetPart *parts, bool lenient, Err *err)
{
    size_t used_n = 0;
    for (size_t i = 0; i < s->files_n; i++) {
        s->files[i].used = parts[i].ok;
        used_n += parts[i].ok;
        if (parts[i].ok)
            continue;
        if (!lenient && !s->files[i].folder)
            return err_set(err, "%s", parts[i].err.text);
        set_find(s, "%s; it is left out", parts[i].err.text);
    }
    if (used_n == 0)
        return err_set(err, "%s", parts[0].err.text);
    for (size_t i = 0; i < s->files_n; i++)
        if (parts[i].many && used_n > 1 && !set_counts_ranks(s))
            return err_set(err,
                           "'%s' holds several ranks and cannot be joined with other files",
                           s->files[i].path);
    return true;
}

/* ---- joining ---- */

static uint32_t translated(const uint32_t *names, uint32_t names_n, uint32_t id)
{
    return id < names_n ? names[id] : NONE_U32;
}

static void join_comm(Timeline *to, const Timeline *from, const Comm *c, const uint32_t *names)
{
    uint32_t names_n = from->names.n;
    Comm copy = *c;
    copy.launch = 0; /* is given again */
    copy.op = translated(names, names_n, c->op);
    copy.group = translated(names, names_n, c->group);
    copy.dtype = translated(names, names_n, c->dtype);
    copy.algorithm = translated(names, names_n, c->algorithm);
    copy.protocol = translated(names, names_n, c->protocol);
    timeline_set_ring(to, timeline_comm(to, copy), timeline_ring_steps(from, c));
}

/* In to: where a span's launch is known, that; else NONE_U32. */
static uint32_t joined_launch(const Timeline *from, uint64_t span, const uint32_t *launches)
{
    const KernelLaunch *l = timeline_launch_of(from, span);
    return l ? launches[l - from->launches] : NONE_U32;
}

static void join_spans(Timeline *to, const Timeline *from, const uint32_t *names,
                       uint32_t track_first)
{
    uint32_t comm_first = to->comms_n;
    uint32_t *launches = mem_resize(NULL, from->launches_n, sizeof *launches);
    for (uint32_t i = 0; i < from->launches_n; i++)
        launches[i] = timeline_launch(to, &from->launches[i]);
    for (uint32_t c = 0; c < from->comms_n; c++)
        join_comm(to, from, &from->comms[c], names);
    for (uint64_t i = 0; i < from->spans_n; i++) {
        uint32_t comm = timeline_comm_of(from, i) ? comm_first + from->comm[i] : NONE_U32;
        uint64_t at =
            timeline_span(to, (Span){ track_first + from->span_track[i],
                                      names[from->span_name[i]], from->span_class[i],
                                      from->start_ns[i], from->dur_ns[i], from->op[i], comm });
        timeline_set_launch(to, at, joined_launch(from, i, launches));
        if (from->correlation)
            to->correlation[at] = from->correlation[i];
        if (from->args_offset)
            to->args_offset[at] = from->args_offset[i];
        if (*timeline_op_name(from, i))
            timeline_set_op_name(to, at, names[from->op_name[i]]);
        timeline_set_logical(to, at, timeline_logical_of(from, i));
    }
    for (uint64_t i = 0; i < from->points_n; i++)
        timeline_point(to, track_first + from->point_track[i], from->point_ns[i],
                       from->point_value[i]);
    free(launches);
}

/* many: rank is that of the first of several, by the tracks. */
static void join(Timeline *to, const Timeline *from, uint32_t rank, bool many)
{
    uint32_t *names = mem_resize(NULL, from->names.n, sizeof *names);
    for (uint32_t i = 0; i < from->names.n; i++)
        names[i] = intern(&to->names, from->names.text[i]);
    uint32_t track_first = to->tracks_n;
    for (uint32_t k = 0; k < from->tracks_n; k++) {
        const Track *track = &from->tracks[k];
        uint32_t number = timeline_track(to, rank + (many ? track->rank : 0), track->kind,
                                         timeline_text(from, track->name), track->sort);
        to->tracks[number].ranks_n = track->ranks_n;
    }
    join_spans(to, from, names, track_first);
    free(names);
}

/* The used file with the lowest rank above `after`; files_n when there is none. */
static size_t next_file(const TraceSet *s, int64_t after)
{
    size_t found = s->files_n;
    for (size_t i = 0; i < s->files_n; i++) {
        const TraceFile *f = &s->files[i];
        if (f->used && (int64_t)f->rank > after &&
            (found == s->files_n || f->rank < s->files[found].rank))
            found = i;
    }
    return found;
}

static void join_all(TraceSet *s, SetPart *parts)
{
    size_t used_n = 0, only = 0;
    for (size_t i = 0; i < s->files_n; i++) {
        used_n += s->files[i].used;
        only = s->files[i].used ? i : only;
    }
    Timeline *t = &s->timeline;
    if (used_n == 1) {
        *t = parts[only].t;
        parts[only].t = (Timeline){ 0 };
        for (uint32_t k = 0; k < t->tracks_n && !parts[only].many; k++)
            t->tracks[k].rank = s->files[only].rank;
    } else {
        timeline_want(t, true, true);
        uint64_t spans_n = 0;
        for (size_t i = 0; i < s->files_n; i++)
            spans_n += parts[i].t.spans_n;
        timeline_reserve(t, spans_n);
        for (size_t i = next_file(s, -1); i < s->files_n; i = next_file(s, s->files[i].rank)) {
            join(t, &parts[i].t, s->files[i].rank, parts[i].many);
            timeline_free(&parts[i].t);
        }
        timeline_seal(t);
    }
    for (uint32_t k = 0; k < t->tracks_n; k++)
        if (t->ranks_n <= t->tracks[k].rank)
            t->ranks_n = t->tracks[k].rank + 1;
    t->ranks_n = (uint32_t)max_u64(t->ranks_n, s->world_size);
}

static void sum_up(TraceSet *s)
{
    for (size_t i = 0; i < s->files_n; i++) {
        const TraceInfo *info = &s->files[i].info;
        if (!s->files[i].used)
            continue;
        s->events_read += info->events_read;
        s->events_skipped += info->events_skipped;
        s->kernels_n += info->kernels_n;
        s->comm_kernels_n += info->comm_kernels_n;
        for (uint32_t r = 0; r < TRACE_RULES_MAX; r++)
            s->rule_kernels_n[r] += info->rule_kernels_n[r];
    }
    s->world_said = s->world_size > 0;
    if (!s->world_said)
        s->world_size = s->timeline.ranks_n;
}

/* ---- members of collectives that say no group ---- */

static bool says_no_group(const Timeline *t, uint64_t i)
{
    const Comm *c = timeline_comm_of(t, i);
    return c && t->span_class[i] == SPAN_COMM && c->group == NONE_U32 && c->ranks_n == 0;
}

/*
 * Old traces do not say who takes part.  When every rank of the run is here and
 * has had equally many collectives of that kind, all ranks were in all of them.
 */
static void infer_members(TraceSet *s)
{
    Timeline *t = &s->timeline;
    uint32_t ranks_n = t->ranks_n;
    if (t->backing || ranks_n < 2 || s->world_size != ranks_n)
        return;
    uint64_t *count = mem_zero(ranks_n, sizeof *count);
    for (uint64_t i = 0; i < t->spans_n; i++)
        count[t->tracks[t->span_track[i]].rank] += says_no_group(t, i);
    bool equal = count[0] > 0;
    for (uint32_t r = 1; r < ranks_n; r++)
        equal = equal && count[r] == count[0];
    for (uint64_t i = 0; i < t->spans_n && equal; i++)
        if (says_no_group(t, i))
            t->comms[t->comm[i]].ranks_n = ranks_n;
    free(count);
}

/* ---- all ---- */

static bool read_set(TraceSet *s, SetPart *parts, const TraceSetOptions *o, Err *err)
{
    read_all(s, parts, o->jobs);
    if (!take_results(s, parts, o->lenient, err) || !set_check_worlds(s, o->lenient, err) ||
        !set_ranks(s, parts, o->lenient, err))
        return false;
    join_all(s, parts);
    sum_up(s);
    infer_members(s);
    set_check(s);
    return true;
}

bool trace_set_read(TraceSet *s, const char *const *paths, size_t n, const TraceSetOptions *o,
                    Err *err)
{
    static const TraceSetOptions plain = { .jobs = 0 };
    *s = (TraceSet){ .files_n = 0 };
    o = o ? o : &plain;
    if (!rules_read(&s->rules, o->rules, o->rules_n, err))
        return false;
    bool ok = list_files(s, paths, n, err);
    SetPart *parts = mem_zero(s->files_n + 1, sizeof *parts);
    ok = ok && read_set(s, parts, o, err);
    for (size_t i = 0; i < s->files_n; i++)
        timeline_free(&parts[i].t);
    free(parts);
    if (!ok)
        trace_set_free(s);
    return ok;
}

bool trace_set_holds_any(const TraceSet *s, const char *name, Err *err)
{
    bool any = s->timeline.spans_n > 0 || s->timeline.points_n > 0;
    return any || err_set(err, "no event could be read of '%s'", name);
}

bool trace_set_spares(const TraceSet *s, const TraceSetOptions *o, const char *path, Err *err)
{
    for (size_t i = 0; path && i < s->files_n; i++)
        if (out_file_is_same(path, s->files[i].path))
            return err_set(err, "'%.200s' is the trace itself, it is not written over", path);
    for (uint32_t i = 0; path && o && i < o->rules_n; i++)
        if (out_file_is_same(path, o->rules[i]))
            return err_set(err, "'%.200s' holds the rules, it is not written over", path);
    return true;
}

void trace_set_free(TraceSet *s)
{
    timeline_free(&s->timeline);
    rules_free(&s->rules);
    free(s->findings);
    arena_free(&s->arena);
    *s = (TraceSet){ .files_n = 0 };
}
