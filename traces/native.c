/*
 * native.c - columns to a file and back.  native.h describes the file.
 *
 * Every number that decides where memory is read is checked before its first
 * use: native_open checks what it uses itself, native_verify the rest.
 */
#include "traces/native.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/jobs.h"
#include "core/out_file.h"

enum { ALIGN = 64, BYTE_ORDER_MARK = 0x01020304, SEED_SECTION = 0, SEED_HEAD = 1 };

static const uint8_t magic[8] = { 0x89, 'L', 'S', 'T', '\r', '\n', 0x1a, '\n' };

typedef struct Head {
    uint8_t magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint64_t file_bytes;
    uint32_t sections_n;
    uint32_t ranks_n;
    uint32_t names_n;
    uint32_t name;
    int64_t begin_ns, end_ns;
    uint64_t checksum;
} Head;

typedef struct Section {
    uint32_t kind;
    uint32_t element_bytes;
    uint64_t offset;
    uint64_t n;
    uint64_t checksum;
} Section;

typedef struct TrackRecord {
    uint32_t name, rank, kind, ranks_n;
    int64_t sort;
    uint64_t span_first, span_n, point_first, point_n;
    uint32_t lanes_n, zero;
} TrackRecord;

_Static_assert(sizeof(Head) == 64 && sizeof(Section) == 32 && sizeof(TrackRecord) == 64,
               "the structs are the tables of native.h, without padding");

typedef enum Kind {
    KIND_NAMES = 1,
    KIND_TRACKS,
    KIND_START,
    KIND_DUR,
    KIND_SPAN_NAME,
    KIND_SPAN_TRACK,
    KIND_OP,
    KIND_COMM,
    KIND_CLASS,
    KIND_LANE,
    KIND_COMMS,
    KIND_POINT_TRACK,
    KIND_POINT_NS,
    KIND_POINT_VALUE,
    KIND_CORRELATION,
    KIND_LAUNCHES,
    KIND_OP_NAME,
    KIND_LOGICAL,
    KIND_LOGICAL_LISTS,
    KIND_COMM_RING,
    KIND_N
} Kind;

typedef struct KindInfo {
    const char *name;
    uint32_t element_bytes;
    bool optional;
} KindInfo;

static const KindInfo kinds[KIND_N] = {
    [KIND_NAMES] = { "names", 1, false },
    [KIND_TRACKS] = { "tracks", sizeof(TrackRecord), false },
    [KIND_START] = { "start_ns", 8, false },
    [KIND_DUR] = { "dur_ns", 8, false },
    [KIND_SPAN_NAME] = { "span_name", 4, false },
    [KIND_SPAN_TRACK] = { "span_track", 4, false },
    [KIND_OP] = { "op", 4, false },
    [KIND_COMM] = { "comm", 4, false },
    [KIND_CLASS] = { "span_class", 1, false },
    [KIND_LANE] = { "lane", 1, false },
    [KIND_COMMS] = { "comms", sizeof(Comm), false },
    [KIND_POINT_TRACK] = { "point_track", 4, false },
    [KIND_POINT_NS] = { "point_ns", 8, false },
    [KIND_POINT_VALUE] = { "point_value", 8, false },
    [KIND_CORRELATION] = { "correlation", 8, true },
    [KIND_LAUNCHES] = { "launches", sizeof(KernelLaunch), true },
    [KIND_OP_NAME] = { "op_name", 4, true },
    [KIND_LOGICAL] = { "logical", 8, true },
    [KIND_LOGICAL_LISTS] = { "logical_lists", 4, true },
    [KIND_COMM_RING] = { "comm_ring", 4, true },
};

/* ---- checksum ---- */

static uint64_t word_at(const uint8_t *bytes, uint64_t n)
{
    uint64_t word = 0;
    memcpy(&word, bytes, n < 8 ? n : 8);
    return word;
}

/*
 * Each step can be undone, so that two inputs which differ in one word always
 * differ in the lane it went to, and in the result.
 */
static uint64_t step(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * 0x9fb21c651e98df25u;
    return lane << 29 | lane >> 35;
}

/* Four lanes take every fourth word each: they do not wait for one another. */
uint64_t native_checksum(const void *bytes, uint64_t n, uint64_t seed)
{
    const uint8_t *at = bytes;
    uint64_t left = n, lane[4];
    for (uint64_t i = 0; i < 4; i++)
        lane[i] = mix_u64(4 * seed + i);
    for (; left >= 32; at += 32, left -= 32) {
        lane[0] = step(lane[0], word_at(at, 8));
        lane[1] = step(lane[1], word_at(at + 8, 8));
        lane[2] = step(lane[2], word_at(at + 16, 8));
        lane[3] = step(lane[3], word_at(at + 24, 8));
    }
    for (uint64_t i = 0; left > 0; i++) { /* at most four; the last one filled up with zeros */
        lane[i] = step(lane[i], word_at(at, left));
        at += 8;
        left -= min_u64(left, 8);
    }
    uint64_t sum = n;
    for (int i = 0; i < 4; i++)
        sum = mix_u64(sum ^ lane[i]);
    return sum;
}

/* Of the head with its own checksum taken as zero, and the table behind it. */
static uint64_t head_checksum(Head head, const Section *table)
{
    head.checksum = 0;
    uint64_t sum = native_checksum(&head, sizeof head, SEED_HEAD);
    return native_checksum(table, head.sections_n * sizeof *table, sum);
}

bool native_matches(const uint8_t *head, size_t n)
{
    return n >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

/* ---- writing ---- */

typedef struct Writer {
    Head head;
    Section table[NATIVE_SECTIONS_MAX];
    const void *data[NATIVE_SECTIONS_MAX];
    char *names;
    TrackRecord *tracks;
} Writer;

static uint64_t aligned(uint64_t offset)
{
    return (offset + ALIGN - 1) / ALIGN * ALIGN;
}

static void add_section(Writer *w, Kind kind, const void *data, uint64_t n)
{
    uint64_t bytes = n * kinds[kind].element_bytes;
    w->data[w->head.sections_n] = data;
    w->table[w->head.sections_n++] = (Section){ kind, kinds[kind].element_bytes, 0, n,
                                                native_checksum(data, bytes, SEED_SECTION) };
}

static void add_names(Writer *w, const Timeline *t)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->names.n; i++)
        bytes += strlen(t->names.text[i]) + 1;
    char *to = w->names = mem_resize(NULL, bytes, 1);
    for (uint32_t i = 0; i < t->names.n; i++) {
        size_t n = strlen(t->names.text[i]) + 1;
        memcpy(to, t->names.text[i], n);
        to += n;
    }
    add_section(w, KIND_NAMES, w->names, bytes);
}

static void add_tracks(Writer *w, const Timeline *t)
{
    w->tracks = mem_zero(t->tracks_n, sizeof *w->tracks);
    for (uint32_t i = 0; i < t->tracks_n; i++) {
        const Track *k = &t->tracks[i];
        w->tracks[i] = (TrackRecord){ .name = k->name,
                                      .rank = k->rank,
                                      .kind = (uint32_t)k->kind,
                                      .ranks_n = k->ranks_n,
                                      .sort = k->sort,
                                      .span_first = k->span_first,
                                      .span_n = k->span_n,
                                      .point_first = k->point_first,
                                      .point_n = k->point_n,
                                      .lanes_n = k->lanes_n };
    }
    add_section(w, KIND_TRACKS, w->tracks, t->tracks_n);
}

static void place_sections(Writer *w)
{
    uint64_t at = sizeof(Head) + w->head.sections_n * sizeof(Section);
    for (uint32_t i = 0; i < w->head.sections_n; i++) {
        w->table[i].offset = aligned(at);
        at = w->table[i].offset + w->table[i].n * w->table[i].element_bytes;
    }
    w->head.file_bytes = at;
    w->head.checksum = head_checksum(w->head, w->table);
}

static void prepare(Writer *w, const Timeline *t)
{
    w->head = (Head){ .version = t->launches_n ? NATIVE_VERSION : NATIVE_VERSION_OLDEST,
                      .byte_order = BYTE_ORDER_MARK,
                      .ranks_n = t->ranks_n,
                      .names_n = t->names.n,
                      .name = t->name ? intern_find(&t->names, t->name) : NONE_U32,
                      .begin_ns = t->begin_ns,
                      .end_ns = t->end_ns };
    memcpy(w->head.magic, magic, sizeof magic);
    add_names(w, t);
    add_tracks(w, t);
    add_section(w, KIND_START, t->start_ns, t->spans_n);
    add_section(w, KIND_DUR, t->dur_ns, t->spans_n);
    add_section(w, KIND_SPAN_NAME, t->span_name, t->spans_n);
    add_section(w, KIND_SPAN_TRACK, t->span_track, t->spans_n);
    add_section(w, KIND_OP, t->op, t->spans_n);
    add_section(w, KIND_COMM, t->comm, t->spans_n);
    add_section(w, KIND_CLASS, t->span_class, t->spans_n);
    add_section(w, KIND_LANE, t->lane, t->spans_n);
    add_section(w, KIND_COMMS, t->comms, t->comms_n);
    add_section(w, KIND_POINT_TRACK, t->point_track, t->points_n);
    add_section(w, KIND_POINT_NS, t->point_ns, t->points_n);
    add_section(w, KIND_POINT_VALUE, t->point_value, t->points_n);
    if (t->correlation)
        add_section(w, KIND_CORRELATION, t->correlation, t->spans_n);
    if (t->launches_n)
        add_section(w, KIND_LAUNCHES, t->launches, t->launches_n);
    if (t->op_name)
        add_section(w, KIND_OP_NAME, t->op_name, t->spans_n);
    if (t->logical) {
        add_section(w, KIND_LOGICAL, t->logical, t->spans_n);
        add_section(w, KIND_LOGICAL_LISTS, t->logical_lists, t->logical_lists_n);
    }
    if (t->rings_n)
        add_section(w, KIND_COMM_RING, t->comm_ring, t->rings_n);
    place_sections(w);
}

static bool write_all(OutFile *o, const Writer *w)
{
    static const uint8_t zeros[ALIGN];
    uint64_t at = sizeof(Head) + w->head.sections_n * sizeof(Section);
    bool ok = out_file_write(o, &w->head, sizeof w->head) &&
              out_file_write(o, w->table, w->head.sections_n * sizeof(Section));
    for (uint32_t i = 0; ok && i < w->head.sections_n; i++) {
        uint64_t bytes = w->table[i].n * w->table[i].element_bytes;
        ok = out_file_write(o, zeros, w->table[i].offset - at) &&
             (bytes == 0 || out_file_write(o, w->data[i], bytes));
        at = w->table[i].offset + bytes;
    }
    return ok;
}

bool native_write(const Timeline *t, const char *path, Err *err)
{
    ASSERT(t->sealed);
    OutFile o;
    if (!out_file_open(&o, path, err))
        return false;
    Writer w = { .names = NULL };
    prepare(&w, t);
    write_all(&o, &w);
    free(w.names);
    free(w.tracks);
    return out_file_commit(&o, err);
}

/* ---- reading ---- */

/* What a timeline stands on. */
typedef struct Mapping {
    const uint8_t *bytes;
    uint64_t size;
    bool mapped; /* unmap at the end */
    char *path;
    Head head;
    const Section *table;
    const Section *section[KIND_N]; /* by kind; NULL: not there */
} Mapping;

static void mapping_free(void *backing)
{
    Mapping *m = backing;
    if (m->mapped)
        munmap((void *)(uintptr_t)m->bytes, m->size);
    free(m->path);
    free(m);
}

static const void *section_data(const Mapping *m, Kind kind)
{
    return m->bytes + m->section[kind]->offset;
}

static bool check_head(Mapping *m, Err *err)
{
    if (m->size == 0)
        return err_set(err, "it is empty");
    if (m->size >= 2 && m->bytes[0] == 0x1f && m->bytes[1] == 0x8b)
        return err_set(err, "it is packed with gzip, which cannot be mapped: unpack it first");
    if (!native_matches(m->bytes, m->size))
        return err_set(err, "it is not a native trace: it does not begin with the mark of one");
    if (m->size < sizeof m->head)
        return err_set(err, "it is cut short: its header of %zu bytes is not complete",
                       sizeof m->head);
    memcpy(&m->head, m->bytes, sizeof m->head);
    if (m->head.byte_order != BYTE_ORDER_MARK)
        return err_set(err, "it was written on a machine of the other byte order");
    if (m->head.version < NATIVE_VERSION_OLDEST || m->head.version > NATIVE_VERSION)
        return err_set(err, "it has version %u of the native format, %d to %d allowed",
                       m->head.version, NATIVE_VERSION_OLDEST, NATIVE_VERSION);
    if (m->head.file_bytes > m->size)
        return err_set(err, "it is cut short: %" PRIu64 " of %" PRIu64 " bytes are there",
                       m->size, m->head.file_bytes);
    if (m->head.file_bytes < m->size)
        return err_set(err, "it is damaged: %" PRIu64 " bytes follow its end",
                       m->size - m->head.file_bytes);
    if (m->head.sections_n > NATIVE_SECTIONS_MAX ||
        m->size - sizeof m->head < m->head.sections_n * sizeof(Section))
        return err_set(err, "it is damaged: it claims %u sections, 0 to %d allowed",
                       m->head.sections_n, NATIVE_SECTIONS_MAX);
    m->table = (const Section *)(const void *)(m->bytes + sizeof m->head);
    if (head_checksum(m->head, m->table) != m->head.checksum)
        return err_set(err, "it is damaged: the checksum of its header does not match");
    return true;
}

static const char *kind_name(uint32_t kind)
{
    return kind > 0 && kind < KIND_N ? kinds[kind].name : "of an unknown kind";
}

static bool check_section(Mapping *m, const Section *s, Err *err)
{
    bool known = s->kind > 0 && s->kind < KIND_N;
    if (s->element_bytes == 0 || (known && s->element_bytes != kinds[s->kind].element_bytes))
        return err_set(err, "it is damaged: section %s has elements of %u bytes",
                       kind_name(s->kind), s->element_bytes);
    if (s->offset % ALIGN != 0 || s->offset > m->size ||
        s->n > (m->size - s->offset) / s->element_bytes)
        return err_set(err, "it is damaged: section %s is not within the file",
                       kind_name(s->kind));
    if (known && m->section[s->kind])
        return err_set(err, "it is damaged: section %s stands twice", kind_name(s->kind));
    if (known)
        m->section[s->kind] = s;
    return true;
}

static bool check_count(const Mapping *m, Kind kind, Kind like, Err *err)
{
    if (!m->section[kind] || m->section[kind]->n == m->section[like]->n)
        return true;
    return err_set(err, "it is damaged: sections %s and %s differ in length", kinds[kind].name,
                   kinds[like].name);
}

static bool check_limits(const Mapping *m, Err *err)
{
    if (m->section[KIND_TRACKS]->n >= NONE_U32 / 2 || m->section[KIND_COMMS]->n >= NONE_U32 / 2)
        return err_set(err, "it is damaged: it has too many tracks or comms");
    if (m->section[KIND_LAUNCHES] && m->section[KIND_LAUNCHES]->n > TIMELINE_LAUNCHES_MAX)
        return err_set(err, "it is damaged: it has %" PRIu64 " launches, 0 to %d allowed",
                       m->section[KIND_LAUNCHES]->n, TIMELINE_LAUNCHES_MAX);
    if (m->section[KIND_LOGICAL_LISTS] &&
        m->section[KIND_LOGICAL_LISTS]->n > TIMELINE_LOGICAL_LISTS_MAX)
        return err_set(err,
                       "it is damaged: its lists of logical ops have %" PRIu64
                       " numbers, 0 to %d allowed",
                       m->section[KIND_LOGICAL_LISTS]->n, TIMELINE_LOGICAL_LISTS_MAX);
    if (m->section[KIND_COMM_RING] && m->section[KIND_COMM_RING]->n > m->section[KIND_COMMS]->n)
        return err_set(err, "it is damaged: section comm_ring is longer than comms");
    return true;
}

static bool check_sections(Mapping *m, Err *err)
{
    for (uint32_t i = 0; i < m->head.sections_n; i++)
        if (!check_section(m, &m->table[i], err))
            return false;
    for (uint32_t kind = 1; kind < KIND_N; kind++)
        if (!m->section[kind] && !kinds[kind].optional)
            return err_set(err, "it is damaged: section %s is missing", kinds[kind].name);
    for (Kind kind = KIND_DUR; kind <= KIND_LANE; kind++)
        if (!check_count(m, kind, KIND_START, err))
            return false;
    if (!check_limits(m, err))
        return false;
    return check_count(m, KIND_CORRELATION, KIND_START, err) &&
           check_count(m, KIND_LOGICAL, KIND_START, err) &&
           check_count(m, KIND_OP_NAME, KIND_START, err) &&
           check_count(m, KIND_POINT_NS, KIND_POINT_TRACK, err) &&
           check_count(m, KIND_POINT_VALUE, KIND_POINT_TRACK, err);
}

static bool read_names(Timeline *t, const Mapping *m, Err *err)
{
    const char *at = section_data(m, KIND_NAMES), *end = at + m->section[KIND_NAMES]->n;
    for (uint32_t i = 0; i < m->head.names_n; i++) {
        const char *nul = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;
        if (!nul)
            return err_set(err, "it is damaged: its names end after %u of %u", i,
                           m->head.names_n);
        if (intern_bytes(&t->names, at, (size_t)(nul - at)) != i)
            return err_set(err, "it is damaged: name %u stands twice", i);
        at = nul + 1;
    }
    if (at != end)
        return err_set(err, "it is damaged: bytes follow its last name");
    if (m->head.name != NONE_U32 && m->head.name >= t->names.n)
        return err_set(err, "it is damaged: it is called name %u of %u", m->head.name,
                       t->names.n);
    t->name = m->head.name == NONE_U32 ? NULL : intern_text(&t->names, m->head.name);
    return true;
}

static void read_tracks(Timeline *t, const Mapping *m)
{
    const TrackRecord *from = section_data(m, KIND_TRACKS);
    t->tracks_n = t->tracks_cap = (uint32_t)m->section[KIND_TRACKS]->n;
    t->tracks = mem_zero(t->tracks_n, sizeof *t->tracks);
    for (uint32_t i = 0; i < t->tracks_n; i++)
        t->tracks[i] = (Track){ .name = from[i].name,
                                .rank = from[i].rank,
                                .kind = (TrackKind)min_u64(from[i].kind, TRACK_KIND_N),
                                .ranks_n = from[i].ranks_n,
                                .sort = from[i].sort,
                                .span_first = from[i].span_first,
                                .span_n = from[i].span_n,
                                .point_first = from[i].point_first,
                                .point_n = from[i].point_n,
                                .lanes_n = from[i].lanes_n };
}

/* The mapping cannot be written to; a sealed timeline is not. */
static void *column(const Mapping *m, Kind kind)
{
    return (void *)(uintptr_t)section_data(m, kind);
}

static void attach_columns(Timeline *t, const Mapping *m)
{
    t->spans_n = t->spans_cap = m->section[KIND_START]->n;
    t->start_ns = column(m, KIND_START);
    t->dur_ns = column(m, KIND_DUR);
    t->span_name = column(m, KIND_SPAN_NAME);
    t->span_track = column(m, KIND_SPAN_TRACK);
    t->op = column(m, KIND_OP);
    t->comm = column(m, KIND_COMM);
    t->span_class = column(m, KIND_CLASS);
    t->lane = column(m, KIND_LANE);
    t->correlation = m->section[KIND_CORRELATION] ? column(m, KIND_CORRELATION) : NULL;
    t->op_name = m->section[KIND_OP_NAME] ? column(m, KIND_OP_NAME) : NULL;
    t->comms_n = t->comms_cap = (uint32_t)m->section[KIND_COMMS]->n;
    t->comms = column(m, KIND_COMMS);
    if (m->section[KIND_LAUNCHES]) {
        t->launches_n = t->launches_cap = (uint32_t)m->section[KIND_LAUNCHES]->n;
        t->launches = column(m, KIND_LAUNCHES);
    }
    t->logical = m->section[KIND_LOGICAL] ? column(m, KIND_LOGICAL) : NULL;
    if (m->section[KIND_LOGICAL_LISTS]) {
        t->logical_lists_n = (uint32_t)m->section[KIND_LOGICAL_LISTS]->n;
        t->logical_lists = column(m, KIND_LOGICAL_LISTS);
    }
    if (m->section[KIND_COMM_RING]) {
        t->rings_n = (uint32_t)m->section[KIND_COMM_RING]->n;
        t->comm_ring = column(m, KIND_COMM_RING);
    }
    t->points_n = t->points_cap = m->section[KIND_POINT_TRACK]->n;
    t->point_track = column(m, KIND_POINT_TRACK);
    t->point_ns = column(m, KIND_POINT_NS);
    t->point_value = column(m, KIND_POINT_VALUE);
    t->ranks_n = m->head.ranks_n;
    t->begin_ns = m->head.begin_ns;
    t->end_ns = m->head.end_ns;
}

/* t owns m from here on, also when this fails. */
static bool open_mapping(Timeline *t, Mapping *m, Err *err)
{
    *t = (Timeline){ .backing = m, .backing_free = mapping_free, .sealed = true };
    bool ok = check_head(m, err) && check_sections(m, err) && read_names(t, m, err);
    if (ok) {
        attach_columns(t, m);
        read_tracks(t, m);
        ok = timeline_check_tracks(t, err) || err_wrap(err, "it is damaged");
    }
    if (!ok) {
        err_wrap(err, "cannot read '%s'", m->path);
        timeline_free(t);
    }
    return ok;
}

static Mapping *mapping_new(const char *path)
{
    Mapping *m = mem_zero(1, sizeof *m);
    size_t n = strlen(path) + 1;
    m->path = memcpy(mem_zero(n, 1), path, n);
    return m;
}

static bool map_file(Mapping *m, int fd, Err *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return err_set(err, "%s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return err_set(err, S_ISDIR(info.st_mode) ? "it is a directory"
                                                  : "it is not a regular file");
    m->size = (uint64_t)info.st_size;
    if (m->size == 0)
        return true; /* open_mapping will say so */
    void *bytes = mmap(NULL, m->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return err_set(err, "%s", strerror(errno));
    m->bytes = bytes;
    m->mapped = true;
    return true;
}

bool native_open(Timeline *t, const char *path, Err *err)
{
    *t = (Timeline){ 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, "cannot open '%s': %s", path, strerror(errno));
    Mapping *m = mapping_new(path);
    bool ok = map_file(m, fd, err);
    close(fd);
    if (ok)
        return open_mapping(t, m, err);
    mapping_free(m);
    return err_wrap(err, "cannot read '%s'", path);
}

bool native_open_bytes(Timeline *t, const void *bytes, uint64_t n, const char *name, Err *err)
{
    ASSERT((uintptr_t)bytes % 8 == 0);
    Mapping *m = mapping_new(name);
    m->bytes = bytes;
    m->size = n;
    return open_mapping(t, m, err);
}

static uint64_t section_checksum(const uint8_t *bytes, const Section *s)
{
    return native_checksum(bytes + s->offset, s->n * s->element_bytes, SEED_SECTION);
}

/* By several threads: the sections of a mapping, and which of them are damaged. */
typedef struct Verify {
    const Mapping *m;
    bool *bad;
} Verify;

static void verify_section(void *verify, uint32_t i)
{
    const Verify *v = verify;
    const Section *s = &v->m->table[i];
    v->bad[i] = section_checksum(v->m->bytes, s) != s->checksum;
}

bool native_verify(const Timeline *t, Err *err)
{
    enum { BYTES_FEW = 4 << 20 }; /* that no thread is started for */
    ASSERT(t->backing && t->backing_free == mapping_free);
    const Mapping *m = t->backing;
    uint32_t n = m->head.sections_n, i = 0;
    Verify v = { m, mem_zero(n, sizeof *v.bad) };
    jobs_run(verify_section, &v, n, m->size < BYTES_FEW ? 1 : jobs_processors());
    while (i < n && !v.bad[i])
        i++;
    free(v.bad);
    if (i < n)
        return err_set(err,
                       "cannot read '%s': it is damaged: the checksum of section %s does not "
                       "match",
                       m->path, kind_name(m->table[i].kind));
    return timeline_check(t, err) || err_wrap(err, "cannot read '%s': it is damaged", m->path);
}

void native_repair_checksums(void *bytes, uint64_t n)
{
    Head head;
    Section *table = (Section *)(void *)((uint8_t *)bytes + sizeof head);
    if (n < sizeof head)
        return;
    memcpy(&head, bytes, sizeof head);
    if (head.sections_n > NATIVE_SECTIONS_MAX ||
        n - sizeof head < head.sections_n * sizeof *table)
        return;
    for (uint32_t i = 0; i < head.sections_n; i++) {
        Section *s = &table[i];
        if (s->offset <= n && s->element_bytes > 0 &&
            s->n <= (n - s->offset) / s->element_bytes)
            s->checksum = section_checksum(bytes, s);
    }
    head.checksum = head_checksum(head, table);
    memcpy(bytes, &head, sizeof head);
}
