/*
 * snapshot_part.c - writes a part in one go, and believes nothing when reading.
 */
#include "exec/snapshot_part.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they are");

enum {
    VERSION = 1,
    CHECKED_FROM = 16, /* where the head's checksum begins */
    FIXED_BYTES = 68,
    PIECE_BYTES = 44,
    PIECE_SUM_AT = 40, /* in what the head says of a piece */
    RUN_BYTES = 16,
    CRC_CHUNK = 1 << 30
};

static const char magic[8] = { 'L', 'O', 'C', 'K', 'S', 'N', 'A', 'P' };

/* By number in the file. */
static const DType formats[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };

/* The one place that knows which checksum it is. */
static uint32_t checksum(uint32_t sum, const void *bytes, uint64_t n)
{
    const uint8_t *at = bytes;
    for (; n > 0; at += min_u64(n, CRC_CHUNK), n -= min_u64(n, CRC_CHUNK))
        sum = (uint32_t)crc32(sum, at, (uInt)min_u64(n, CRC_CHUNK));
    return sum;
}

static void put(uint8_t *to, uint64_t x, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(x >> 8 * i);
}

static uint64_t get(const uint8_t *from, uint32_t bytes)
{
    uint64_t x = 0;
    for (uint32_t i = 0; i < bytes; i++)
        x |= (uint64_t)from[i] << 8 * i;
    return x;
}

void snap_repair(uint8_t *bytes, uint64_t n)
{
    if (n < FIXED_BYTES)
        return;
    put(bytes + 24, n, 8);
    uint64_t head = get(bytes + 16, 8);
    if (head >= CHECKED_FROM && head <= n)
        put(bytes + 12, checksum(0, bytes + CHECKED_FROM, head - CHECKED_FROM), 4);
}

/* ---- writing ---- */

typedef struct Bytes {
    uint8_t *data;
    size_t n, cap;
} Bytes;

static void add_bytes(Bytes *b, const void *from, size_t n)
{
    while (b->cap - b->n < n) {
        b->cap = b->cap ? 2 * b->cap : 4096;
        b->data = mem_resize(b->data, b->cap, 1);
    }
    if (n > 0)
        memcpy(b->data + b->n, from, n);
    b->n += n;
}

static void add(Bytes *b, uint64_t x, uint32_t bytes)
{
    uint8_t little[8];
    put(little, x, bytes);
    add_bytes(b, little, bytes);
}

static uint32_t format_of(DType t)
{
    for (uint32_t i = 0; i < ARRAY_N(formats); i++)
        if (formats[i] == t)
            return i;
    ASSERT(t == DTYPE_TF32); /* f32 in memory */
    return 0;
}

typedef struct Source {
    const Pieces *x;
    const Program *p;
    const WholeList *whole;
    const Store *from;
    uint8_t *buffer; /* see store_buffer */
} Source;

/* Appends what the head says of a piece, but for its checksum; returns the bytes of its numbers. */
static uint64_t add_piece(Bytes *b, const Source *s, const Piece *piece)
{
    const Whole *w = &s->whole->whole[piece->whole];
    DType dtype = s->p->residents[piece->resident].dtype;
    uint64_t numbers = 0;
    add(b, w->layer, 4);
    add(b, piece->what, 4);
    add(b, format_of(dtype), 4);
    add(b, strlen(w->name), 4);
    add(b, w->rows, 8);
    add(b, w->columns, 8);
    add(b, piece->runs_n, 8);
    add(b, 0, 4);
    add_bytes(b, w->name, strlen(w->name));
    for (uint32_t i = 0; i < piece->runs_n; i++) {
        Run run = s->x->runs[piece->runs_first + i];
        add(b, run.whole, 8);
        add(b, run.n, 8);
        numbers += run.n;
    }
    return numbers * dtype_bytes(dtype);
}

/* sums: where in the head the checksums of the owned pieces stand. */
static void make_head(Bytes *b, const SnapHead *h, const Source *s, size_t *sums)
{
    const char *text = h->text ? h->text : "";
    uint64_t numbers = 0;
    uint32_t pieces_n = 0;
    add_bytes(b, magic, sizeof magic);
    add(b, VERSION, 4);
    for (size_t n = b->n; n < 32; n++)
        add(b, 0, 1); /* checksum and sizes, below */
    add(b, h->step, 8);
    add(b, h->seed, 8);
    add(b, h->rank, 4);
    add(b, h->parts_n, 4);
    add(b, 0, 4);
    add(b, strlen(h->model), 4);
    add(b, strlen(text), 4);
    add_bytes(b, h->model, strlen(h->model));
    add_bytes(b, text, strlen(text));
    for (uint32_t i = 0; i < s->x->pieces_n; i++) {
        if (!s->x->pieces[i].owner)
            continue;
        sums[pieces_n++] = b->n + PIECE_SUM_AT;
        numbers += add_piece(b, s, &s->x->pieces[i]);
    }
    put(b->data + 16, b->n, 8);
    put(b->data + 24, b->n + numbers, 8);
    put(b->data + 56, pieces_n, 4);
}

/* Writes a piece's numbers, a chunk at a time. */
static bool write_piece(FILE *f, const Source *s, const Piece *piece, uint32_t *sum, Err *err)
{
    const Resident *r = &s->p->residents[piece->resident];
    uint64_t each = dtype_bytes(r->dtype), most = STORE_CHUNK / each;
    for (uint32_t k = 0; k < piece->runs_n;) {
        Run run = pieces_stretch(s->x, piece, &k);
        for (uint64_t i = 0; i < run.n; i += most) {
            uint64_t bytes = min_u64(most, run.n - i) * each;
            uint64_t offset = r->offset + (run.local + i) * each;
            const uint8_t *at = store_get(s->from, offset, bytes, s->buffer, err);
            if (!at || fwrite(at, 1, bytes, f) != bytes)
                return false;
            *sum = checksum(*sum, at, bytes);
        }
    }
    return true;
}

/* The numbers behind the head, their checksums into it. */
static bool write_numbers(FILE *f, Bytes *head, const size_t *sums, const Source *s, Err *err)
{
    uint32_t n = 0;
    bool ok = fseeko(f, (off_t)head->n, SEEK_SET) == 0;
    for (uint32_t i = 0; i < s->x->pieces_n; i++) {
        uint32_t sum = 0;
        if (!s->x->pieces[i].owner)
            continue;
        ok = ok && write_piece(f, s, &s->x->pieces[i], &sum, err);
        put(head->data + sums[n++], sum, 4);
    }
    return ok;
}

/* The head comes last: only then are the checksums known, and without it a file is none. */
static bool write_file(FILE *f, const SnapHead *head, const Source *s, Err *err)
{
    Bytes b = { 0 };
    size_t *sums = mem_zero(s->x->pieces_n + 1, sizeof *sums);
    make_head(&b, head, s, sums);
    bool ok = write_numbers(f, &b, sums, s, err);
    put(b.data + 12, checksum(0, b.data + CHECKED_FROM, b.n - CHECKED_FROM), 4);
    ok = ok && fseeko(f, 0, SEEK_SET) == 0 && fwrite(b.data, 1, b.n, f) == b.n &&
         fflush(f) == 0 && fsync(fileno(f)) == 0;
    int reason = errno;
    free(sums);
    free(b.data);
    errno = reason;
    return ok;
}

bool snap_write(const char *path, const SnapHead *head, const Pieces *x, const Program *p,
                const WholeList *whole, const Store *from, Err *err)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *f = file < 0 ? NULL : fdopen(file, "w");
    if (!f) {
        if (file >= 0)
            close(file);
        return err_set(err, "cannot create '%s': %s", path, strerror(errno));
    }
    Source s = { x, p, whole, from, store_buffer(from) };
    bool ok = write_file(f, head, &s, err);
    int reason = errno;
    free(s.buffer);
    if (fclose(f) != 0 && ok) {
        ok = false;
        reason = errno;
    }
    return ok || err_set(err, "cannot write '%s': %s", path, strerror(reason));
}

/* ---- reading ---- */

/* n bytes at an offset; false and errno, 0 when the file ends before. */
static bool read_at(int file, void *to, uint64_t n, uint64_t offset)
{
    for (uint8_t *at = to; n > 0;) {
        ssize_t got = pread(file, at, (size_t)min_u64(n, CRC_CHUNK), (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got < 0 ? errno : 0;
            return false;
        }
        at += got;
        n -= (uint64_t)got;
        offset += (uint64_t)got;
    }
    return true;
}

static bool fail_read(const SnapPart *x, Err *err)
{
    return err_set(err, "cannot read '%s': %s", x->path,
                   errno ? strerror(errno) : "it has become shorter");
}

static bool open_file(SnapPart *x, Err *err)
{
    if (x->file >= 0)
        return true;
    x->file = open(x->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return x->file >= 0 || err_set(err, "cannot open '%s': %s", x->path, strerror(errno));
}

/* What is left of the head. */
typedef struct Reader {
    const uint8_t *at;
    uint64_t left;
    bool ok;
} Reader;

static const uint8_t *take_bytes(Reader *r, uint64_t n)
{
    const uint8_t *at = r->at;
    r->ok = r->ok && n <= r->left;
    if (!r->ok)
        return NULL;
    r->at += n;
    r->left -= n;
    return at;
}

static uint64_t take(Reader *r, uint32_t bytes)
{
    const uint8_t *at = take_bytes(r, bytes);
    return at ? get(at, bytes) : 0;
}

/* A text of n bytes, with its end, at *names, which moves on. */
static const char *take_text(Reader *r, uint64_t n, char **names)
{
    const uint8_t *at = take_bytes(r, n);
    char *text = *names;
    r->ok = r->ok && !memchr(at, 0, n);
    if (!r->ok)
        return "";
    memcpy(text, at, n);
    text[n] = '\0';
    *names += n + 1;
    return text;
}

/* Runs must ascend, lie in the whole, and their numbers in the file. */
static bool take_runs(SnapPart *x, Reader *r, StoredPiece *piece, uint64_t runs_n)
{
    uint64_t end = 0, size = piece->rows * piece->columns;
    r->ok = r->ok && runs_n <= r->left / RUN_BYTES && runs_n < NONE_U32 - x->runs_n;
    for (uint64_t i = 0; r->ok && i < runs_n; i++) {
        uint64_t first = take(r, 8), n = take(r, 8);
        Run run = { piece->elements, first, n };
        r->ok = run.n > 0 && run.whole >= end && run.whole <= size && run.n <= size - run.whole;
        end = run.whole + run.n;
        piece->elements += run.n;
        GROW(x->runs, x->runs_n, x->runs_cap);
        x->runs[x->runs_n++] = run;
        piece->runs_n++;
    }
    return r->ok;
}

/* offset: where the numbers of the pieces before end; moves on. */
static bool take_piece(SnapPart *x, Reader *r, StoredPiece *piece, char **names,
                       uint64_t *offset)
{
    uint64_t layer = take(r, 4), what = take(r, 4), format = take(r, 4), name_n = take(r, 4);
    uint64_t rows = take(r, 8), columns = take(r, 8), runs_n = take(r, 8), sum = take(r, 4);
    r->ok = r->ok && what < PIECE_KIND_N && format < ARRAY_N(formats) && rows > 0 &&
            columns > 0 && rows <= (NONE_U64 >> 4) / columns;
    if (!r->ok)
        return false;
    *piece = (StoredPiece){ .layer = (uint32_t)layer,
                            .what = (PieceKind)what,
                            .dtype = formats[format],
                            .name = take_text(r, name_n, names),
                            .rows = rows,
                            .columns = columns,
                            .runs_first = x->runs_n,
                            .offset = *offset,
                            .checksum = (uint32_t)sum };
    if (!take_runs(x, r, piece, runs_n))
        return false;
    uint64_t bytes = piece->elements * dtype_bytes(piece->dtype);
    r->ok = bytes <= x->file_bytes - *offset;
    *offset += bytes;
    return r->ok;
}

static bool take_head(SnapPart *x, const uint8_t *bytes)
{
    Reader r = { bytes + 32, x->head_bytes - 32, true };
    x->head.step = take(&r, 8);
    x->head.seed = take(&r, 8);
    x->head.rank = (uint32_t)take(&r, 4);
    x->head.parts_n = (uint32_t)take(&r, 4);
    uint64_t pieces_n = take(&r, 4), model_n = take(&r, 4), text_n = take(&r, 4);
    if (pieces_n > r.left / PIECE_BYTES || x->head.rank >= x->head.parts_n)
        return false;
    x->pieces = mem_zero(pieces_n + 1, sizeof *x->pieces);
    x->names = mem_zero(x->head_bytes, 1); /* names with their ends take less than the head */
    char *names = x->names;
    x->head.model = take_text(&r, model_n, &names);
    x->head.text = take_text(&r, text_n, &names);
    uint64_t offset = x->head_bytes;
    while (r.ok && x->pieces_n < pieces_n)
        if (take_piece(x, &r, &x->pieces[x->pieces_n], &names, &offset))
            x->pieces_n++;
    return r.ok && r.left == 0 && offset == x->file_bytes;
}

/* The first bytes say how large the rest is. */
static bool check_sizes(SnapPart *x, const uint8_t *fixed, uint64_t on_disk, Err *err)
{
    uint64_t version = get(fixed + 8, 4);
    if (memcmp(fixed, magic, sizeof magic) != 0)
        return err_set(err, "'%s' is not a part of a snapshot", x->path);
    if (version != VERSION)
        return err_set(err, "'%s' is of version %" PRIu64 "; this lockstep reads version %d",
                       x->path, version, VERSION);
    x->head_bytes = get(fixed + 16, 8);
    x->file_bytes = get(fixed + 24, 8);
    if (x->file_bytes != on_disk)
        return err_set(err, "'%s' has %" PRIu64 " bytes, but says it has %" PRIu64 ": %s",
                       x->path, on_disk, x->file_bytes,
                       on_disk < x->file_bytes ? "its end is missing" : "it is damaged");
    if (x->head_bytes < FIXED_BYTES || x->head_bytes > on_disk)
        return err_set(err, "'%s' is damaged: its head cannot have %" PRIu64 " bytes", x->path,
                       x->head_bytes);
    return true;
}

static bool read_head(SnapPart *x, uint64_t on_disk, Err *err)
{
    uint8_t fixed[FIXED_BYTES];
    if (on_disk < FIXED_BYTES)
        return err_set(err, "'%s' has %" PRIu64 " bytes: its end is missing", x->path, on_disk);
    if (!read_at(x->file, fixed, FIXED_BYTES, 0))
        return fail_read(x, err);
    if (!check_sizes(x, fixed, on_disk, err))
        return false;
    uint8_t *bytes = mem_zero(x->head_bytes, 1);
    bool ok = read_at(x->file, bytes, x->head_bytes, 0) || fail_read(x, err);
    if (ok &&
        checksum(0, bytes + CHECKED_FROM, x->head_bytes - CHECKED_FROM) != get(bytes + 12, 4))
        ok = err_set(err, "'%s' is damaged: the checksum of its head differs", x->path);
    if (ok && !take_head(x, bytes))
        ok = err_set(err, "'%s' is damaged: its head contradicts itself", x->path);
    free(bytes);
    return ok;
}

bool snap_open(SnapPart *x, const char *path, Err *err)
{
    struct stat st;
    size_t n = strlen(path) + 1;
    *x = (SnapPart){ .file = -1 };
    x->path = memcpy(mem_zero(n, 1), path, n);
    if (!open_file(x, err))
        return false;
    if (fstat(x->file, &st) != 0)
        return fail_read(x, err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, "'%s' is not a file", path);
    return read_head(x, (uint64_t)st.st_size, err);
}

bool snap_numbers(SnapPart *x, const StoredPiece *piece, void *out, Err *err)
{
    uint64_t bytes = piece->elements * dtype_bytes(piece->dtype);
    if (!open_file(x, err))
        return false;
    if (!read_at(x->file, out, bytes, piece->offset))
        return fail_read(x, err);
    if (checksum(0, out, bytes) == piece->checksum)
        return true;
    static const char *const kinds[PIECE_KIND_N] = { "parameter", "master weights of",
                                                     "first moment of", "second moment of" };
    char layer[32] = "";
    if (piece->layer != NONE_U32)
        snprintf(layer, sizeof layer, " of layer %" PRIu32, piece->layer);
    return err_set(err, "'%s' is damaged: the checksum of %s '%s'%s differs", x->path,
                   kinds[piece->what], piece->name, layer);
}

void snap_rest(SnapPart *x)
{
    if (x->file >= 0)
        close(x->file);
    x->file = -1;
}

void snap_close(SnapPart *x)
{
    snap_rest(x);
    free(x->path);
    free(x->pieces);
    free(x->runs);
    free(x->names);
    *x = (SnapPart){ .file = -1 };
}
