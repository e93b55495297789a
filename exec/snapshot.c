/*
 * snapshot.c - all ranks write, or none has; all ranks read, whatever split wrote.
 *
 * Rank 0 alone changes the folder; between its steps the ranks agree (fabric_share)
 * whether all is well, so that every rank leaves with the same answer:
 *
 *     rank 0   claim DIR, make step-N.tmp           rename it, write latest, remove old ones
 *     all                            write a part                                           -
 *     agree    ----------------------|------------|-----------------------------------------|
 *
 * Reading, each rank looks through the heads of all parts and loads the numbers of
 * those pieces that it shares elements with.
 */
#include "exec/snapshot.h"

#include "exec/fabric.h"
#include "exec/number.h"
#include "exec/snapshot_part.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 64 };

typedef struct Path {
    char text[4096 + 128];
} Path;

__attribute__((format(printf, 2, 3))) static Path path_in(const char *dir, const char *format,
                                                          ...)
{
    Path p;
    char name[NAME_MAX_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    snprintf(p.text, sizeof p.text, "%s/%s", dir, name);
    return p;
}

/* ---- agreeing ---- */

typedef struct Word {
    bool failed;
    char text[sizeof((Err *)0)->text];
} Word;

/* True when all ranks were well; else every rank has the sentence of the first that was not. */
static bool agree(bool ok, const Program *p, Fabric *f, Err *err)
{
    uint32_t world = p->graph->world_n;
    Word mine = { .failed = !ok }, *all = mem_zero(world, sizeof *all);
    if (!ok)
        memcpy(mine.text, err->text, sizeof mine.text);
    err_clear(err); /* also where sharing fails, all ranks have one sentence */
    bool shared = fabric_share(f, &mine, all, sizeof mine, err);
    uint32_t rank = 0;
    while (shared && rank < world && !all[rank].failed)
        rank++;
    bool failed = shared && rank < world;
    if (failed && world > 1)
        err_set(err, "rank %" PRIu32 ": %s", rank, all[rank].text);
    else if (failed)
        err_set(err, "%s", all[rank].text);
    free(all);
    return shared && !failed;
}

/* ---- the folder: rank 0 ---- */

/* N of "step-N"; false for every other name. */
static bool step_of(const char *name, uint64_t *step)
{
    char again[NAME_MAX_BYTES];
    if (sscanf(name, "step-%20" SCNu64, step) != 1)
        return false;
    snprintf(again, sizeof again, "step-%08" PRIu64, *step);
    return strcmp(name, again) == 0;
}

/* Removes a folder of parts; what else is in it stays, and the folder with it. */
static void remove_parts(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (strncmp(e->d_name, "rank-", 5) == 0 && n > 5 && n < NAME_MAX_BYTES)
            unlink(path_in(dir, "%s", e->d_name).text);
    }
    if (d)
        closedir(d);
    rmdir(dir);
}

/* A step that was being replaced is put back; half a step goes. */
static void remove_leftover(const char *dir, const char *name, const char *step, bool old)
{
    Path left = path_in(dir, "%s", name), place = path_in(dir, "%s", step);
    if (old && access(place.text, F_OK) != 0)
        rename(left.text, place.text);
    else
        remove_parts(left.text);
}

/* Of a job that was ended while it wrote. */
static void remove_leftovers(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[NAME_MAX_BYTES];
        uint64_t step;
        size_t n = strlen(e->d_name);
        if (n < 5 || n >= sizeof name)
            continue;
        memcpy(name, e->d_name, n + 1);
        bool fresh = strcmp(name + n - 4, ".tmp") == 0, old = strcmp(name + n - 4, ".old") == 0;
        name[n - 4] = '\0';
        if ((fresh || old) && step_of(name, &step))
            remove_leftover(dir, e->d_name, name, old);
    }
    if (d)
        closedir(d);
}

/* Keeps `before`, this training's own, of those before `step`.  Later ones are another training's:
 * as long as this one has not come so far, they stay. */
static void remove_old(const char *dir, uint64_t step, uint64_t before)
{
    uint64_t n = 0, cap = 0, *old = NULL, x;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (step_of(e->d_name, &x) && x < step && x != before) {
            GROW(old, n, cap);
            old[n++] = x;
        }
    if (d)
        closedir(d);
    for (uint64_t i = 0; i < n && before > 0; i++)
        remove_parts(path_in(dir, "step-%08" PRIu64, old[i]).text);
    free(old);
}

/* Makes dir, and what it lies in. */
static bool make_folders(const char *dir, Err *err)
{
    Path part;
    snprintf(part.text, sizeof part.text, "%s", dir);
    for (char *at = part.text + 1; *at; at++)
        if (*at == '/') {
            *at = '\0';
            mkdir(part.text, 0777); /* what goes wrong shows at the end */
            *at = '/';
        }
    struct stat st;
    if (mkdir(part.text, 0777) != 0 && errno != EEXIST)
        return err_set(err, "cannot make the folder '%s': %s", dir, strerror(errno));
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return err_set(err, "'%s' is not a folder, so no snapshot can be kept in it", dir);
    return true;
}

/* Held to the end of the process. */
static struct {
    bool held;
    dev_t device;
    ino_t folder;
} claimed;

static bool claim(const char *dir, Err *err)
{
    struct stat st;
    int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || fstat(folder, &st) != 0)
        return err_set(err, "cannot open the folder '%s': %s", dir, strerror(errno));
    if (claimed.held && claimed.device == st.st_dev && claimed.folder == st.st_ino) {
        close(folder);
        return true;
    }
    if (flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(folder);
        return err_set(err,
                       "another job is writing its snapshots into '%s'; each needs a "
                       "folder of its own",
                       dir);
    }
    claimed.held =
        true; /* the descriptor stays open; file systems without locks go unguarded */
    claimed.device = st.st_dev;
    claimed.folder = st.st_ino;
    return true;
}

static bool sync_folder(const char *dir, Err *err)
{
    int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = folder >= 0 && (fsync(folder) == 0 || errno == EINVAL);
    if (!ok)
        err_set(err, "cannot write the folder '%s': %s", dir, strerror(errno));
    if (folder >= 0)
        close(folder);
    return ok;
}

/* The line goes to disk under another name first. */
static bool write_latest(const char *dir, uint64_t step, Err *err)
{
    Path path = path_in(dir, "latest"), fresh = path_in(dir, "latest.tmp");
    FILE *f = fopen(fresh.text, "we");
    bool ok = f && fprintf(f, "step-%08" PRIu64 "\n", step) > 0 && fflush(f) == 0 &&
              fsync(fileno(f)) == 0;
    int reason = errno;
    if (f && fclose(f) != 0 && ok) {
        ok = false;
        reason = errno;
    }
    if (ok && rename(fresh.text, path.text) != 0) {
        ok = false;
        reason = errno;
    }
    if (ok)
        return sync_folder(dir, err);
    unlink(fresh.text);
    return err_set(err, "cannot write '%s': %s", path.text, strerror(reason));
}

/* A step that is there already, from an earlier run, makes room. */
static bool put_in_place(const char *dir, uint64_t step, uint64_t before, Err *err)
{
    Path fresh = path_in(dir, "step-%08" PRIu64 ".tmp", step);
    Path place = path_in(dir, "step-%08" PRIu64, step);
    Path old = path_in(dir, "step-%08" PRIu64 ".old", step);
    if (!sync_folder(fresh.text, err))
        return false;
    bool replaces = rename(place.text, old.text) == 0;
    if (rename(fresh.text, place.text) != 0) {
        int reason = errno;
        if (replaces)
            rename(old.text, place.text);
        return err_set(err, "cannot rename '%s': %s", fresh.text, strerror(reason));
    }
    if (!sync_folder(dir, err) || !write_latest(dir, step, err)) {
        rename(place.text, fresh.text); /* the caller removes it */
        if (replaces)
            rename(old.text, place.text);
        return false;
    }
    if (replaces)
        remove_parts(old.text);
    remove_old(dir, step, before);
    return true;
}

static bool own_folder(const char *dir, Err *err)
{
    if (strlen(dir) >= sizeof(Path) - NAME_MAX_BYTES || !*dir)
        return err_set(err,
                       "the folder of snapshots has a name of %zu bytes; 1 to 4096 are "
                       "allowed",
                       strlen(dir));
    if (!make_folders(dir, err) || !claim(dir, err))
        return false;
    return access(dir, W_OK | X_OK) == 0 ||
           err_set(err, "cannot write into the folder '%s': %s", dir, strerror(errno));
}

static bool begin(const char *dir, uint64_t step, Err *err)
{
    if (!own_folder(dir, err))
        return false;
    remove_leftovers(dir);
    Path fresh = path_in(dir, "step-%08" PRIu64 ".tmp", step);
    return mkdir(fresh.text, 0777) == 0 ||
           err_set(err, "cannot make the folder '%s': %s", fresh.text, strerror(errno));
}

static bool write_part(const char *dir, const SnapshotInfo *info, const Pieces *x,
                       const Program *p, const WholeList *whole, const Store *from, Err *err)
{
    Path fresh = path_in(dir, "step-%08" PRIu64 ".tmp", info->step);
    Path path = path_in(fresh.text, "rank-%05" PRIu32 ".part", p->rank);
    struct stat st;
    if (stat(fresh.text, &st) != 0)
        return err_set(err,
                       "the folder '%s', which rank 0 has made, is not there; ranks on "
                       "several hosts need one that all of them see",
                       fresh.text);
    SnapHead head = { info->step,        info->seed,  p->rank,
                      p->graph->world_n, info->model, info->text };
    return snap_write(path.text, &head, x, p, whole, from, err);
}

bool snapshot_prepare(const char *dir, const Program *p, Fabric *f, Err *err)
{
    return agree(p->rank != 0 || own_folder(dir, err), p, f, err);
}

bool snapshot_write(const char *dir, const SnapshotInfo *info, const Pieces *x,
                    const Program *p, const WholeList *whole, const Store *from, Fabric *f,
                    Err *err)
{
    bool first = p->rank == 0, begun = first && begin(dir, info->step, err);
    bool ok = agree(!first || begun, p, f, err);
    ok = ok && agree(write_part(dir, info, x, p, whole, from, err), p, f, err);
    ok = ok && agree(!first || put_in_place(dir, info->step, info->before, err), p, f, err);
    if (!ok && begun)
        remove_parts(path_in(dir, "step-%08" PRIu64 ".tmp", info->step).text);
    return ok;
}

/* ---- finding: rank 0 ---- */

static bool is_folder(const char *dir, uint64_t step)
{
    struct stat st;
    return stat(path_in(dir, "step-%08" PRIu64, step).text, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool read_latest(const char *dir, uint64_t *step)
{
    char line[NAME_MAX_BYTES] = "";
    Path path = path_in(dir, "latest");
    struct stat st;
    if (stat(path.text, &st) != 0 || !S_ISREG(st.st_mode)) /* a pipe would be waited for */
        return false;
    FILE *f = fopen(path.text, "re");
    bool ok = f && fgets(line, sizeof line, f);
    if (f)
        fclose(f);
    line[strcspn(line, "\n")] = '\0';
    return ok && step_of(line, step) && is_folder(dir, *step);
}

static bool find_newest(const char *dir, uint64_t *step, Err *err)
{
    if (strlen(dir) >= sizeof(Path) - NAME_MAX_BYTES)
        return err_set(err, "no snapshot in '%s': its name is too long", dir);
    if (read_latest(dir, step))
        return true;
    DIR *d = opendir(dir);
    if (!d)
        return err_set(err, "no snapshot in '%s': %s", dir, strerror(errno));
    bool found = false;
    uint64_t x;
    for (struct dirent *e; (e = readdir(d));)
        if (step_of(e->d_name, &x) && is_folder(dir, x) && (!found || x > *step)) {
            *step = x;
            found = true;
        }
    closedir(d);
    return found || err_set(err, "no snapshot in '%s': it holds no folder step-N", dir);
}

static bool share_newest(const char *dir, uint64_t *step, const Program *p, Fabric *f, Err *err)
{
    uint32_t world = p->graph->world_n;
    if (!agree(p->rank != 0 || find_newest(dir, step, err), p, f, err))
        return false;
    uint64_t *all = mem_zero(world, sizeof *all);
    bool ok = fabric_share(f, step, all, sizeof *step, err);
    *step = all[0];
    free(all);
    return ok;
}

/* ---- reading ---- */

typedef struct Loader {
    const char *folder;
    const Pieces *x;
    const Program *p;
    const WholeList *whole;
    StoreWriter to;
    SnapPart *parts;
    uint32_t parts_n;
    uint64_t *filled; /* elements, by piece */
    Err *err;
} Loader;

/* Which stored numbers a piece takes: the best first. */
typedef enum Taste { TASTE_SAME, TASTE_OTHER, TASTE_ROUNDED, TASTE_N } Taste;

static const Resident *resident_of(const Loader *l, const Piece *piece)
{
    return &l->p->residents[piece->resident];
}

static bool is_weight(PieceKind k)
{
    return k == PIECE_PARAM || k == PIECE_MASTER;
}

static bool suits(const Loader *l, const Piece *piece, const StoredPiece *s, Taste taste)
{
    bool same = piece->what == s->what, both = is_weight(piece->what) && is_weight(s->what);
    bool exact = dtype_bytes(s->dtype) >= dtype_bytes(resident_of(l, piece)->dtype);
    const Whole *w = &l->whole->whole[piece->whole];
    if (w->layer != s->layer || strcmp(w->name, s->name) != 0)
        return false;
    return taste == TASTE_SAME ? same && exact : taste == TASTE_OTHER ? both && exact : both;
}

static void convert(DType to_type, uint8_t *to, DType from_type, const uint8_t *from,
                    uint64_t n)
{
    uint64_t each = dtype_bytes(to_type), stored = dtype_bytes(from_type);
    float wide[512];
    if (to_type == from_type || each + stored == 8) { /* tf32 is f32 in memory */
        memcpy(to, from, n * each);
        return;
    }
    for (uint64_t i = 0; i < n; i += ARRAY_N(wide)) {
        uint64_t some = min_u64(ARRAY_N(wide), n - i);
        numbers_widen(from_type, from + i * stored, some, wide);
        numbers_narrow(to_type, wide, some, to + i * each);
    }
}

/* n numbers, element `from` of the stored ones first, become those of the resident from `to` on. */
static bool copy_numbers(Loader *l, const Resident *r, uint64_t to, const StoredPiece *s,
                         const uint8_t *numbers, uint64_t from, uint64_t n)
{
    uint64_t each = dtype_bytes(r->dtype), most = STORE_CHUNK / each;
    for (uint64_t i = 0; i < n; i += most) {
        uint64_t some = min_u64(most, n - i), at = r->offset + (to + i) * each;
        uint8_t *place = store_place(&l->to, at, some * each, l->err);
        if (!place)
            return false;
        convert(r->dtype, place, s->dtype, numbers + (from + i) * dtype_bytes(s->dtype), some);
    }
    return true;
}

/* Walks both lists of runs, which ascend, and counts what is common; numbers NULL: nothing else. */
static bool take_common(Loader *l, const Piece *piece, const SnapPart *part,
                        const StoredPiece *s, const uint8_t *numbers, uint64_t *common)
{
    uint32_t a = 0, b = 0;
    bool ok = true;
    *common = 0;
    while (ok && a < piece->runs_n && b < s->runs_n) {
        Run mine = l->x->runs[piece->runs_first + a], its = part->runs[s->runs_first + b];
        uint64_t first = max_u64(mine.whole, its.whole);
        uint64_t mine_end = mine.whole + mine.n, its_end = its.whole + its.n;
        uint64_t end = min_u64(mine_end, its_end);
        if (first < end && numbers)
            ok = copy_numbers(l, resident_of(l, piece), mine.local + first - mine.whole, s,
                              numbers, its.local + first - its.whole, end - first);
        *common += first < end ? end - first : 0;
        a += mine_end <= its_end;
        b += its_end <= mine_end;
    }
    return ok;
}

static uint64_t size_of(const Loader *l, const Piece *piece)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < piece->runs_n; i++)
        n += l->x->runs[piece->runs_first + i].n;
    return n;
}

/* What my pieces want of this stored one. */
static bool take_stored(Loader *l, SnapPart *part, const StoredPiece *s, Taste taste)
{
    uint8_t *numbers = NULL;
    bool ok = true;
    for (uint32_t i = 0; i < l->x->pieces_n && ok; i++) {
        const Piece *piece = &l->x->pieces[i];
        const Whole *w = &l->whole->whole[piece->whole];
        if (!suits(l, piece, s, taste) || l->filled[i] == size_of(l, piece))
            continue;
        if (s->rows != w->rows || s->columns != w->columns)
            ok = err_set(l->err,
                         "'%s' is of another model: '%s' is %" PRIu64 " x %" PRIu64
                         " there, %" PRIu64 " x %" PRIu64 " here",
                         part->path, s->name, s->rows, s->columns, w->rows, w->columns);
        uint64_t common = 0;
        if (!ok || !take_common(l, piece, part, s, NULL, &common) || common == 0)
            continue;
        if (!numbers) {
            numbers = mem_zero(s->elements, dtype_bytes(s->dtype));
            ok = snap_numbers(part, s, numbers, l->err);
        }
        ok = ok && take_common(l, piece, part, s, numbers, &common);
        l->filled[i] += ok ? common : 0;
    }
    free(numbers);
    return ok;
}

static bool all_filled(const Loader *l, uint32_t *lacking)
{
    for (uint32_t i = 0; i < l->x->pieces_n; i++)
        if (l->filled[i] != size_of(l, &l->x->pieces[i])) {
            *lacking = i;
            return false;
        }
    return true;
}

static bool take_all(Loader *l)
{
    uint32_t lacking = 0;
    bool ok = true;
    for (int taste = 0; taste < TASTE_N && ok && !all_filled(l, &lacking); taste++)
        for (uint32_t k = 0; k < l->parts_n && ok; k++) {
            for (uint32_t i = 0; i < l->parts[k].pieces_n && ok; i++)
                ok = take_stored(l, &l->parts[k], &l->parts[k].pieces[i], (Taste)taste);
            snap_rest(&l->parts[k]);
        }
    if (!ok || all_filled(l, &lacking))
        return ok;
    const Piece *piece = &l->x->pieces[lacking];
    static const char *const kinds[PIECE_KIND_N] = { "", "the master weights of ",
                                                     "the first moment of ",
                                                     "the second moment of " };
    return err_set(l->err,
                   "the snapshot '%s' has %" PRIu64 " of %" PRIu64 " elements of %s'%s'",
                   l->folder, l->filled[lacking], size_of(l, piece), kinds[piece->what],
                   l->whole->whole[piece->whole].name);
}

/* ---- which model ---- */

static size_t line_n(const char *text)
{
    return strcspn(text, "\n");
}

static const char *next_line(const char *line)
{
    line += line_n(line);
    return *line ? line + 1 : line;
}

static bool same_line(const char *a, const char *b)
{
    return line_n(a) == line_n(b) && strncmp(a, b, line_n(a)) == 0;
}

/* The line of `text` with the key of `line`; NULL: none. */
static const char *same_key(const char *text, const char *line)
{
    size_t key_n = strcspn(line, "=\n");
    for (text = next_line(text); *text; text = next_line(text))
        if (strcspn(text, "=\n") == key_n && strncmp(text, line, key_n) == 0 &&
            line[key_n] == '=')
            return text;
    return NULL;
}

/* "KEY is A there, B here; ...": keys that both have, with other values. */
static void other_keys(char *out, size_t cap, const char *there, const char *here)
{
    size_t n = 0;
    out[0] = '\0';
    for (const char *a = next_line(there); *a; a = next_line(a)) {
        const char *b = same_key(here, a);
        size_t key_n = strcspn(a, "=\n") + 1;
        if (!b || same_line(a, b) || n >= cap)
            continue;
        n += (size_t)snprintf(out + n, cap - n, "%s%.*s is %.*s there, %.*s here",
                              n ? "; " : "", (int)key_n - 1, a, (int)(line_n(a) - key_n),
                              a + key_n, (int)(line_n(b) - key_n), b + key_n);
    }
}

static bool check_model(const char *path, const char *there, const char *here, Err *err)
{
    char keys[512];
    if (same_line(there, here))
        return true;
    other_keys(keys, sizeof keys, there, here);
    if (!keys[0])
        return err_set(err, "'%s' is of another model: %.*s there, %.*s here", path,
                       (int)line_n(there), there, (int)line_n(here), here);
    return err_set(err, "'%s' is of %s: %s", path,
                   strncmp(keys, "model.", 6) == 0 ? "another model" : "another training",
                   keys);
}

/* What decides which samples follow step by step, and their targets, where both say it. */
static bool check_data(const char *path, const char *there, const char *here, Err *err)
{
    static const char *const keys[] = { "training.data=", "training.data content=",
                                        "training.global_batch=", "training.seq_len=",
                                        "training.loss=" };
    for (size_t i = 0; i < ARRAY_N(keys); i++) {
        const char *a = same_key(there, keys[i]), *b = same_key(here, keys[i]);
        size_t n = strlen(keys[i]);
        if (a && b && !same_line(a, b))
            return err_set(
                err, "'%s' is of %.*s %.*s, here it is %.*s: other data would follow", path,
                (int)n - 1, keys[i], (int)(line_n(a) - n), a + n, (int)(line_n(b) - n), b + n);
    }
    return true;
}

static bool check_part(const Loader *l, uint32_t k, const SnapshotInfo *info, uint64_t step)
{
    const SnapHead *h = &l->parts[k].head, *first = &l->parts[0].head;
    const char *path = l->parts[k].path;
    if (!check_model(path, h->model, info->model, l->err) ||
        !check_data(path, h->model, info->model, l->err))
        return false;
    if (h->step != step || h->rank != k || h->parts_n != first->parts_n ||
        h->seed != first->seed)
        return err_set(l->err,
                       "'%s' does not belong there: it is part %" PRIu32 " of %" PRIu32
                       " of step %" PRIu64 ", seed %" PRIu64,
                       path, h->rank, h->parts_n, h->step, h->seed);
    return true;
}

/* The first part says how many there are. */
static bool open_parts(Loader *l, const SnapshotInfo *info, uint64_t step)
{
    uint32_t n = 1;
    for (uint32_t k = 0; k < n; k++) {
        Path path = path_in(l->folder, "rank-%05" PRIu32 ".part", k);
        l->parts = mem_resize(l->parts, k + 1, sizeof *l->parts);
        l->parts_n = k + 1;
        if (!snap_open(&l->parts[k], path.text, l->err) || !check_part(l, k, info, step))
            return false;
        snap_rest(&l->parts[k]);
        n = l->parts[0].head.parts_n;
    }
    return true;
}

static bool load(Loader *l, SnapshotInfo *info, uint64_t step)
{
    l->filled = mem_zero(l->x->pieces_n + (size_t)1, sizeof *l->filled);
    bool ok = open_parts(l, info, step) && take_all(l);
    if (ok) {
        info->step = step;
        info->seed = l->parts[0].head.seed;
    }
    for (uint32_t k = 0; k < l->parts_n; k++)
        snap_close(&l->parts[k]);
    free(l->parts);
    free(l->filled);
    return ok;
}

bool snapshot_read(const char *dir, SnapshotInfo *info, const Pieces *x, const Program *p,
                   const WholeList *whole, const Store *to, Fabric *f, Err *err)
{
    uint64_t step = 0;
    if (!share_newest(dir, &step, p, f, err))
        return false;
    Path folder = path_in(dir, "step-%08" PRIu64, step);
    Loader l = {
        .folder = folder.text, .x = x, .p = p, .whole = whole, .to = { .store = to }, .err = err
    };
    bool ok = load(&l, info, step);
    ok = store_flush(&l.to, err) && ok;
    return agree(ok, p, f, err);
}
