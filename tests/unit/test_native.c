/*
 * test_native.c - native traces there and back, and every way a file can be
 * wrong: each field damaged by hand, every bit flipped, every length cut.
 */
#include "tests/check.h"
#include "traces/formats.h"
#include "traces/native.h"
#include "traces/set.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[64] = P_tmpdir "/lockstep-native-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[2][128];
    static int turn;
    turn ^= 1; /* two paths may be in use at once */
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* ---- timelines and files ---- */

static uint64_t random_state;
static bool random_launches; /* some spans have one */
static bool random_ops;      /* some have one with a name */
static bool random_logical;  /* some say what they are of a model, and of a ring */

static uint64_t draw(uint64_t below)
{
    random_state = mix_u64(random_state);
    return random_state % below;
}

static void draw_tracks(Timeline *t)
{
    for (uint64_t n = draw(6) + 2; n > 0; n--) {
        uint32_t k = timeline_track(t, (uint32_t)draw(5), n == 1 ? TRACK_COUNTER : TRACK_STREAM,
                                    n % 2 ? "a" : "b", (int64_t)draw(9) - 4);
        t->tracks[k].ranks_n = (uint32_t)draw(3) + 1;
    }
}

static void draw_spans(Timeline *t, uint64_t n)
{
    for (; n > 0; n--) {
        Comm c = comm_of(intern(&t->names, "all_reduce"));
        c.bytes = draw(1 << 30);
        c.protocol = draw(2) ? NONE_U32 : intern(&t->names, "LL");
        char name[16];
        snprintf(name, sizeof name, "k%u", (unsigned)draw(50));
        bool comm = draw(4) == 0;
        uint64_t i = timeline_span(
            t, (Span){ (uint32_t)draw(t->tracks_n - 1), intern(&t->names, name),
                       comm ? SPAN_COMM : SPAN_COMPUTE, (int64_t)draw(5000) - 1000,
                       (int64_t)draw(90), draw(2) ? NONE_U32 : (uint32_t)draw(70),
                       comm ? timeline_comm(t, c) : NONE_U32 });
        if (t->correlation)
            t->correlation[i] = draw(1000);
        if (random_ops && draw(2))
            timeline_set_op_name(t, i, intern(&t->names, draw(2) ? "attention" : "mlp.up"));
        if (random_logical) {
            uint32_t ops[] = { (uint32_t)draw(4), (uint32_t)draw(4) };
            timeline_set_logical(t, i, (LogicalOps){ draw(9), (uint32_t)draw(3), ops });
            if (comm && draw(2))
                timeline_set_ring(t, t->comm[i], (uint32_t)draw(9));
        }
        if (random_launches && draw(2)) {
            KernelLaunch l = { { (uint32_t)draw(9), 1, 1 }, { 64, 2, 1 }, 32, 0, NONE_U32 };
            timeline_set_launch(t, i, timeline_launch(t, &l));
        }
    }
    for (uint64_t p = draw(40); p > 0; p--)
        timeline_point(t, t->tracks_n - 1, (int64_t)draw(5000), (double)draw(99) / 3);
}

/* Sealed. */
static void draw_timeline(Timeline *t, uint64_t seed)
{
    *t = (Timeline){ 0 };
    random_state = seed;
    random_launches = seed % 4 == 0;
    random_ops = seed % 5 == 1;
    random_logical = seed % 3 == 2;
    if (seed % 2)
        timeline_want(t, true, false);
    if (seed % 3)
        timeline_set_name(t, "what ran");
    draw_tracks(t);
    draw_spans(t, draw(300));
    timeline_seal(t);
}

static bool same_text(const Timeline *a, uint32_t x, const Timeline *b, uint32_t y)
{
    return strcmp(timeline_text(a, x), timeline_text(b, y)) == 0 &&
           (x == NONE_U32) == (y == NONE_U32);
}

static void check_same_tables(const Timeline *a, const Timeline *b)
{
    CHECK_STR(a->name, b->name);
    CHECK_INT(a->ranks_n, b->ranks_n);
    CHECK_INT(a->begin_ns, b->begin_ns);
    CHECK_INT(a->end_ns, b->end_ns);
    CHECK_INT(a->names.n, b->names.n);
    CHECK_INT(a->tracks_n, b->tracks_n);
    for (uint32_t k = 0; k < a->tracks_n; k++) {
        const Track *x = &a->tracks[k], *y = &b->tracks[k];
        CHECK(same_text(a, x->name, b, y->name));
        CHECK(x->rank == y->rank && x->kind == y->kind && x->ranks_n == y->ranks_n);
        CHECK(x->sort == y->sort && x->lanes_n == y->lanes_n);
        CHECK(x->span_first == y->span_first && x->span_n == y->span_n);
        CHECK(x->point_first == y->point_first && x->point_n == y->point_n);
    }
    CHECK_U64(a->points_n, b->points_n);
    for (uint64_t i = 0; i < a->points_n; i++)
        CHECK(a->point_track[i] == b->point_track[i] && a->point_ns[i] == b->point_ns[i] &&
              memcmp(&a->point_value[i], &b->point_value[i], sizeof(double)) == 0);
}

static void check_same_spans(const Timeline *a, const Timeline *b)
{
    CHECK_U64(a->spans_n, b->spans_n);
    CHECK((a->correlation == NULL) == (b->correlation == NULL));
    for (uint64_t i = 0; i < a->spans_n; i++) {
        CHECK(same_text(a, a->span_name[i], b, b->span_name[i]));
        CHECK(a->start_ns[i] == b->start_ns[i] && a->dur_ns[i] == b->dur_ns[i]);
        CHECK(a->span_track[i] == b->span_track[i] && a->op[i] == b->op[i]);
        CHECK(a->span_class[i] == b->span_class[i] && a->lane[i] == b->lane[i]);
        CHECK(!a->correlation || a->correlation[i] == b->correlation[i]);
        CHECK_STR(timeline_op_name(a, i), timeline_op_name(b, i));
        LogicalOps of = timeline_logical_of(a, i), same = timeline_logical_of(b, i);
        CHECK(of.n == same.n && of.instance == same.instance &&
              (of.n == 0 || memcmp(of.op, same.op, of.n * sizeof *of.op) == 0));
        const Comm *x = timeline_comm_of(a, i), *y = timeline_comm_of(b, i);
        CHECK((x == NULL) == (y == NULL));
        CHECK(!x || timeline_ring_steps(a, x) == timeline_ring_steps(b, y));
        CHECK(!x || (x->bytes == y->bytes && same_text(a, x->protocol, b, y->protocol)));
        const KernelLaunch *k = timeline_launch_of(a, i), *l = timeline_launch_of(b, i);
        CHECK((k == NULL) == (l == NULL) && (!k || memcmp(k, l, sizeof *k) == 0));
    }
}

/* A whole file in memory that malloc has aligned. */
typedef struct Bytes {
    uint8_t *at;
    size_t n;
} Bytes;

static Bytes read_bytes(const char *path)
{
    Bytes b = { NULL, 0 };
    FILE *f = fopen(path, "rb");
    if (!CHECK(f != NULL))
        return b;
    fseek(f, 0, SEEK_END);
    b.n = (size_t)ftell(f);
    rewind(f);
    b.at = mem_zero(b.n + 1, 1);
    CHECK_U64(b.n, fread(b.at, 1, b.n, f));
    fclose(f);
    return b;
}

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n);
    if (f)
        fclose(f);
}

/* A small trace that has something in every section. */
static Bytes small_file(void)
{
    Timeline t;
    draw_timeline(&t, 5);
    CHECK(t.comms_n > 0 && t.points_n > 0 && t.correlation && t.name);
    Err err = { 0 };
    CHECK(native_write(&t, path_of("small.lstrace"), &err));
    timeline_free(&t);
    return read_bytes(path_of("small.lstrace"));
}

static bool reads(const Bytes *b, Err *err)
{
    Timeline t;
    bool ok = native_open_bytes(&t, b->at, b->n, "x", err) && native_verify(&t, err);
    timeline_free(&t);
    return ok;
}

/* ---- there and back ---- */

static void what_is_written_reads_back_equal(void)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        Timeline t, back;
        Err err = { 0 };
        draw_timeline(&t, seed);
        CHECK(native_write(&t, path_of("t.lstrace"), &err));
        CHECK(native_open(&back, path_of("t.lstrace"), &err));
        CHECK(back.sealed && native_verify(&back, &err));
        CHECK_STR("", err.text);
        check_same_tables(&t, &back);
        check_same_spans(&t, &back);
        timeline_free(&back);
        timeline_free(&t);
    }
}

static void writing_what_was_read_gives_equal_bytes(void)
{
    Bytes a = small_file();
    Timeline t;
    Err err = { 0 };
    CHECK(native_open(&t, path_of("small.lstrace"), &err));
    /* Onto the file that is mapped: the mapping keeps the old one. */
    CHECK(native_write(&t, path_of("small.lstrace"), &err));
    CHECK(native_verify(&t, &err));
    timeline_free(&t);
    Bytes b = read_bytes(path_of("small.lstrace"));
    CHECK(a.n == b.n && memcmp(a.at, b.at, a.n) == 0);
    free(a.at);
    free(b.at);
}

static Bytes file_of_seed(uint64_t seed)
{
    Timeline t;
    Err err = { 0 };
    draw_timeline(&t, seed);
    CHECK(native_write(&t, path_of("launches.lstrace"), &err));
    timeline_free(&t);
    return read_bytes(path_of("launches.lstrace"));
}

/* Old programs read what has no launches, and say that they cannot read what has. */
static void only_files_with_launches_are_of_the_new_version(void)
{
    Bytes old = file_of_seed(5), new = file_of_seed(8);
    Err err = { 0 };
    CHECK(old.at[8] == 1 && new.at[8] == 2);
    CHECK(reads(&old, &err) && reads(&new, &err));
    new.at[8] = 1; /* a number says less than what is there: as sections of later versions */
    native_repair_checksums(new.at, new.n);
    CHECK(reads(&new, &err));
    free(old.at);
    free(new.at);
}

/* The table of launches by another kind's number: its spans point to nothing. */
static void launches_that_are_not_there_are_noticed(void)
{
    Bytes b = file_of_seed(8);
    uint32_t sections_n, kind;
    memcpy(&sections_n, b.at + 24, sizeof sections_n);
    for (uint32_t i = 0; i < sections_n; i++) {
        memcpy(&kind, b.at + 64 + 32 * i, sizeof kind);
        if (kind == 16)
            memset(b.at + 64 + 32 * i, 77, 1);
    }
    native_repair_checksums(b.at, b.n);
    Err err = { 0 };
    CHECK(!reads(&b, &err));
    CHECK(strstr(err.text, "has communication 21474836") || strstr(err.text, " of 0"));
    free(b.at);
}

/* The section of that kind with n elements, zeros, behind all others. */
static void check_too_many(uint32_t section, uint32_t element_bytes, uint64_t n,
                           const char *complaint)
{
    Bytes b = file_of_seed(8);
    size_t bytes = b.n + n * element_bytes + 64;
    uint8_t *at = mem_zero(bytes, 1);
    uint64_t offset = (b.n + 63) / 64 * 64, end = offset + n * element_bytes;
    uint32_t sections_n, kind;
    memcpy(at, b.at, b.n);
    memcpy(&sections_n, at + 24, sizeof sections_n);
    memcpy(at + 16, &end, sizeof end);
    for (uint32_t i = 0; i < sections_n; i++) {
        memcpy(&kind, at + 64 + 32 * i, sizeof kind);
        if (kind == section) {
            memcpy(at + 64 + 32 * i + 8, &offset, sizeof offset);
            memcpy(at + 64 + 32 * i + 16, &n, sizeof n);
        }
    }
    native_repair_checksums(at, end);
    Err err = { 0 };
    CHECK(!reads(&(Bytes){ at, end }, &err));
    CHECK_ERR_TEXT(&err, complaint);
    free(at);
    free(b.at);
}

static void too_long_tables_are_refused(void)
{
    check_too_many(16, 36, TIMELINE_LAUNCHES_MAX + 1,
                   "it has 1048577 launches, 0 to 1048576 allowed");
    check_too_many(19, 4, TIMELINE_LOGICAL_LISTS_MAX + 1,
                   "its lists of logical ops have 1048577 numbers, 0 to 1048576 allowed");
}

static void an_empty_timeline_goes_there_and_back(void)
{
    Timeline t = { 0 };
    Err err = { 0 };
    timeline_seal(&t);
    CHECK(native_write(&t, path_of("empty.lstrace"), &err));
    CHECK(native_open(&t, path_of("empty.lstrace"), &err) && native_verify(&t, &err));
    CHECK_U64(0, t.spans_n);
    CHECK(t.name == NULL);
    timeline_free(&t);
}

static void names_found_in_a_file_are_interned(void)
{
    Bytes b = small_file();
    Timeline t;
    Err err = { 0 };
    CHECK(native_open_bytes(&t, b.at, b.n, "x", &err));
    for (uint32_t i = 0; i < t.names.n; i++)
        CHECK_INT(i, intern_find(&t.names, intern_text(&t.names, i)));
    timeline_free(&t);
    free(b.at);
}

/* ---- the checksum ---- */

/* Its definition in native.c, word by word, for up to 32 bytes. */
static uint64_t checksum_by_words(const uint8_t *bytes, size_t n, uint64_t seed)
{
    uint64_t sum = n;
    for (size_t lane = 0; lane < 4; lane++) {
        uint64_t state = mix_u64(4 * seed + lane), word = 0;
        if (8 * lane < n) {
            for (size_t i = 8 * lane; i < n && i < 8 * lane + 8; i++)
                word |= (uint64_t)bytes[i] << 8 * (i % 8);
            state = (state ^ word) * 0x9fb21c651e98df25u;
            state = state << 29 | state >> 35;
        }
        sum = mix_u64(sum ^ state);
    }
    return sum;
}

static void the_checksum_is_what_it_says(void)
{
    uint8_t bytes[32];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)mix_u64(i);
    for (size_t n = 0; n <= sizeof bytes; n++)
        for (uint64_t seed = 0; seed < 3; seed++)
            CHECK_U64(checksum_by_words(bytes, n, seed), native_checksum(bytes, n, seed));
}

/* Files written before must stay readable: these values may never change. */
static void the_checksum_never_changes(void)
{
    uint8_t bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    CHECK_U64(0x26b0692d82d4c007u, native_checksum(bytes, 0, 0));
    CHECK_U64(0xc3fb5502205a7cafu, native_checksum(bytes, 1, 0));
    CHECK_U64(0x922d053d2653ae2u, native_checksum(bytes, 1000, 0));
    CHECK_U64(0x8dc0c93e8bdacdf4u, native_checksum(bytes, 1000, 1));
}

/* ---- damage ---- */

/* Offsets of native.h. */
enum { HEAD = 64, ENTRY = 32, ENTRY_ELEMENT = 4, ENTRY_OFFSET = 8, ENTRY_N = 16 };
enum { NAMES = 1, TRACKS = 2, START = 3, NAME = 5, COMM = 8, COMMS = 11, CORRELATION = 15 };
enum { LOGICAL = 18, LOGICAL_LISTS = 19, COMM_RING = 20 };

/* small_file has all in the order of their numbers, but launches and op_name. */
static size_t entry_of(uint32_t kind)
{
    return HEAD + ENTRY * (kind - (kind < LOGICAL ? 1 : 3));
}

static uint64_t get(const Bytes *b, size_t offset, size_t n)
{
    uint64_t x = 0;
    memcpy(&x, b->at + offset, n);
    return x;
}

static size_t data_of(const Bytes *b, uint32_t kind)
{
    return (size_t)get(b, entry_of(kind) + ENTRY_OFFSET, 8);
}

static void every_flipped_bit_is_noticed(void)
{
    Bytes b = small_file();
    Err err = { 0 };
    CHECK(reads(&b, &err));
    /* Zeros between sections are nobody's: there, and only there, a flip stays unseen. */
    size_t unseen = 0;
    for (size_t bit = 0; bit < 8 * b.n; bit++) {
        b.at[bit / 8] ^= (uint8_t)(1u << bit % 8);
        Err flip = { 0 };
        unseen += reads(&b, &flip);
        b.at[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    size_t sections_n = get(&b, 24, 4), used = HEAD + sections_n * ENTRY;
    CHECK_U64(18, sections_n);
    for (size_t entry = HEAD; entry < HEAD + sections_n * ENTRY; entry += ENTRY)
        used += get(&b, entry + ENTRY_N, 8) * get(&b, entry + ENTRY_ELEMENT, 4);
    CHECK_U64(8 * (b.n - used), unseen);
    free(b.at);
}

static void every_cut_is_noticed(void)
{
    Bytes b = small_file();
    for (size_t n = 0; n < b.n; n++) {
        Bytes cut = { b.at, n };
        Err err = { 0 };
        CHECK(!reads(&cut, &err));
        if (n >= 64)
            CHECK_ERR_TEXT(&err, "it is cut short");
    }
    free(b.at);
}

static void put(const Bytes *b, size_t offset, uint64_t x, size_t n)
{
    memcpy(b->at + offset, &x, n);
}

/* Puts x there, makes the checksums right, and expects that complaint. */
static void check_refused(size_t offset, uint64_t x, size_t n, const char *complaint)
{
    Bytes b = small_file();
    put(&b, offset, x, n);
    native_repair_checksums(b.at, b.n);
    Err err = { 0 };
    CHECK(!reads(&b, &err));
    CHECK_ERR_TEXT(&err, "cannot read 'x': ");
    CHECK_ERR_TEXT(&err, complaint);
    free(b.at);
}

static void every_wrong_field_is_named(void)
{
    Bytes b = small_file();
    check_refused(0, 'x', 1, "it is not a native trace");
    check_refused(8, 3, 4, "it has version 3 of the native format, 1 to 2 allowed");
    check_refused(12, 0x04030201, 4, "machine of the other byte order");
    check_refused(16, b.n + 1, 8, "it is cut short");
    check_refused(16, b.n - 1, 8, "1 bytes follow its end");
    check_refused(24, 65, 4, "it claims 65 sections, 0 to 64 allowed");
    check_refused(24, 13, 4, "section point_value is missing");
    check_refused(28, 0, 4, "is of rank");
    check_refused(32, get(&b, 32, 4) + 1, 4, "its names end after");
    check_refused(32, get(&b, 32, 4) - 1, 4, "bytes follow its last name");
    check_refused(36, 1000, 4, "it is called name 1000 of");
    check_refused(40, (uint64_t)INT64_MIN, 8, "its begin or end is out of range");
    check_refused(entry_of(START) + ENTRY_ELEMENT, 4, 4,
                  "section start_ns has elements of 4 bytes");
    check_refused(entry_of(START) + ENTRY_OFFSET, data_of(&b, START) + 8, 8,
                  "section start_ns is not within the file");
    check_refused(entry_of(START) + ENTRY_OFFSET, 64 * 1000000, 8,
                  "section start_ns is not within the file");
    check_refused(entry_of(START) + ENTRY_N, UINT64_MAX / 4, 8,
                  "section start_ns is not within the file");
    check_refused(entry_of(NAME) + ENTRY_N, 1, 8,
                  "sections span_name and start_ns differ in length");
    check_refused(entry_of(CORRELATION) + ENTRY_N, 1, 8,
                  "sections correlation and start_ns differ in length");
    check_refused(entry_of(LOGICAL) + ENTRY_N, 1, 8,
                  "sections logical and start_ns differ in length");
    check_refused(entry_of(LOGICAL_LISTS), 99, 4, "has logical ops that are not there");
    check_refused(entry_of(LOGICAL_LISTS) + ENTRY_N, 1, 8,
                  "has logical ops that are not there");
    check_refused(data_of(&b, LOGICAL_LISTS), 1000, 4, "has logical ops that are not there");
    check_refused(entry_of(COMMS) + ENTRY_N, 1, 8, "section comm_ring is longer than comms");
    check_refused(data_of(&b, COMM_RING), 16777217, 4,
                  "communication 0 is one of 16777217 steps, 0 to 16777216 allowed");
    check_refused(entry_of(TRACKS), 1, 4, "section names has elements of 64 bytes");
    check_refused(entry_of(COMM), 7, 4, "section op stands twice");
    check_refused(entry_of(COMM), 99, 4, "section comm is missing");
    check_refused(data_of(&b, NAMES), 0, 1, "name");
    check_refused(data_of(&b, TRACKS), 5000, 4, "track 0 has name 5000");
    check_refused(data_of(&b, TRACKS) + 8, 70000, 4, "track 0 is of kind");
    check_refused(data_of(&b, NAME), 5000, 4, "span 0 has name 5000");
    check_refused(data_of(&b, START), (uint64_t)INT64_MIN, 8, "span 0 has times out of range");
    free(b.at);
}

static void a_broken_checksum_names_its_section(void)
{
    Bytes b = small_file();
    b.at[data_of(&b, START)] ^= 1;
    Err err = { 0 };
    CHECK(!reads(&b, &err));
    CHECK_ERR_TEXT(&err, "the checksum of section start_ns does not match");

    b.at[HEAD + ENTRY_N] ^= 1;
    Err head = { 0 };
    CHECK(!reads(&b, &head));
    CHECK_ERR_TEXT(&head, "the checksum of its header does not match");
    free(b.at);
}

static void a_name_that_stands_twice_is_noticed(void)
{
    Bytes b = small_file();
    size_t names = data_of(&b, NAMES);
    char *first = (char *)b.at + names, *second = first + strlen(first) + 1;
    /* "what ran", "a": one letter, and a third name of one letter follows. */
    char *third = second + strlen(second) + 1;
    CHECK(strlen(second) == 1 && strlen(third) == 1);
    *third = *second;
    native_repair_checksums(b.at, b.n);
    Err err = { 0 };
    CHECK(!reads(&b, &err));
    CHECK_ERR_TEXT(&err, "name 2 stands twice");
    free(b.at);
}

static void sections_of_unknown_kinds_are_skipped(void)
{
    Bytes b = small_file();
    put(&b, entry_of(CORRELATION), 4000, 4);
    native_repair_checksums(b.at, b.n);
    Timeline t;
    Err err = { 0 };
    CHECK(native_open_bytes(&t, b.at, b.n, "x", &err) && native_verify(&t, &err));
    CHECK_STR("", err.text);
    CHECK(t.correlation == NULL);
    timeline_free(&t);

    b.at[data_of(&b, CORRELATION)] ^= 1; /* its checksum counts all the same */
    CHECK(!reads(&b, &err));
    CHECK_ERR_TEXT(&err, "section of an unknown kind");
    free(b.at);
}

/* An unchecked timeline may be walked with the guarded functions. */
static void damage_is_harmless_before_it_is_found(void)
{
    Bytes b = small_file();
    put(&b, data_of(&b, NAME), 0xfffffff0, 4);
    put(&b, data_of(&b, COMM), 0xfffffff0, 4);
    native_repair_checksums(b.at, b.n);
    Timeline t;
    Err err = { 0 };
    CHECK(native_open_bytes(&t, b.at, b.n, "x", &err));
    CHECK_STR("", timeline_text(&t, t.span_name[0]));
    CHECK(timeline_comm_of(&t, 0) == NULL);
    CHECK_INT(0, timeline_wait_ns(&t, 0));
    CHECK(!native_verify(&t, &err));
    timeline_free(&t);
    free(b.at);
}

/* ---- files that are none ---- */

static void check_cannot_open(const char *path, const char *complaint)
{
    Timeline t;
    Err err = { 0 };
    CHECK(!native_open(&t, path, &err));
    CHECK_ERR_TEXT(&err, path);
    CHECK_ERR_TEXT(&err, complaint);
    CHECK(t.tracks == NULL && !t.sealed);
    timeline_free(&t);
}

static void what_is_no_trace_is_refused(void)
{
    check_cannot_open(path_of("none.lstrace"), "No such file or directory");
    check_cannot_open(folder, "it is a directory");
    check_cannot_open("/dev/null", "it is not a regular file");
    write_bytes(path_of("zero"), "", 0);
    check_cannot_open(path_of("zero"), "it is empty");
    write_bytes(path_of("text"), "hello, world", 12);
    check_cannot_open(path_of("text"), "it is not a native trace");
    write_bytes(path_of("gz"), "\x1f\x8b hello", 8);
    check_cannot_open(path_of("gz"), "packed with gzip");
    write_bytes(path_of("short"), "\x89LST\r\n\x1a\n", 8);
    check_cannot_open(path_of("short"), "its header of 64 bytes is not complete");
}

/* ---- writing that fails ---- */

static void a_full_disk_is_an_error(void)
{
    Timeline t;
    Err err = { 0 };
    draw_timeline(&t, 4);
    CHECK(!native_write(&t, "/dev/full", &err));
    CHECK_ERR_TEXT(&err, "cannot write '/dev/full': No space left on device");
    struct stat info;
    CHECK(stat("/dev/full", &info) == 0 && S_ISCHR(info.st_mode));
    timeline_free(&t);
}

static void places_that_cannot_be_written_are_named(void)
{
    Timeline t;
    draw_timeline(&t, 4);
    Err err = { 0 };
    CHECK(!native_write(&t, folder, &err));
    CHECK_ERR_TEXT(&err, "Is a directory");
    Err none = { 0 };
    CHECK(!native_write(&t, path_of("no/such/folder.lstrace"), &none));
    CHECK_ERR_TEXT(&none, "No such file or directory");
    timeline_free(&t);
}

/* ---- the table of formats ---- */

static void formats_are_told_by_content(void)
{
    Err err = { 0 };
    free(small_file().at);
    CHECK_STR("native", trace_format_of_file(path_of("small.lstrace"), &err)->name);
    write_bytes(path_of("a"), "\xef\xbb\xbf \n{\"traceEvents\":[]}", 24);
    CHECK_STR("chrome", trace_format_of_file(path_of("a"), &err)->name);
    write_bytes(path_of("b"), "[\n", 2);
    CHECK_STR("chrome", trace_format_of_file(path_of("b"), &err)->name);
    CHECK_STR("", err.text);
    CHECK(trace_format_of_file(folder, &err) == NULL);
    CHECK_ERR_TEXT(&err, "it is a directory");

    static const struct {
        const char *bytes, *complaint;
        size_t n;
    } table[] = {
        { "hello",
          "it is none of the trace formats native, nsys, chakra, pytorch-et, nccl-tests, "
          "chrome",
          5 },
        { "", "it is empty", 0 },
        { "\x1f\x8b\x08\0garbage!", "it ends in the middle of its gzip data", 12 },
    };
    for (size_t i = 0; i < ARRAY_N(table); i++) {
        Err e = { 0 };
        write_bytes(path_of("c"), table[i].bytes, table[i].n);
        CHECK(trace_format_of_file(path_of("c"), &e) == NULL);
        CHECK_ERR_TEXT(&e, table[i].complaint);
    }
}

static void formats_to_write_are_told_by_the_ending(void)
{
    Err err = { 0 };
    CHECK_STR("native", trace_format_for_ending("a.lstrace", &err)->name);
    CHECK_STR("chrome", trace_format_for_ending("a.json", &err)->name);
    CHECK_STR("chrome", trace_format_for_ending("a.b.json.gz", &err)->name);
    CHECK_STR("", err.text);
    CHECK(trace_format_for_ending("a.txt", &err) == NULL);
    CHECK_ERR_TEXT(&err, "'a.txt', endings allowed: .lstrace, .json, .json.gz");
    Err bare = { 0 };
    CHECK(trace_format_for_ending(".json", &bare) == NULL);
    Err name = { 0 };
    CHECK(trace_format_named("nativ", &name) == NULL);
    CHECK_ERR_TEXT(&name, "unknown trace format 'nativ', allowed: native, nsys, chakra, "
                          "pytorch-et, nccl-tests, chrome");
}

static void reading_checks_all_and_opening_does_not(void)
{
    Bytes b = small_file();
    b.at[data_of(&b, START)] ^= 1;
    write_bytes(path_of("bad.lstrace"), b.at, b.n);
    free(b.at);
    Timeline t;
    Err err = { 0 };
    CHECK(native_open(&t, path_of("bad.lstrace"), &err));
    timeline_free(&t);
    const char *file = path_of("bad.lstrace");
    TraceSet s;
    CHECK(!trace_set_read(&s, &file, 1, NULL, &err));
    CHECK_ERR_TEXT(&err, "the checksum of section start_ns does not match");
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    CHECK_INT(0, system(command));
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    RUN(what_is_written_reads_back_equal);
    RUN(writing_what_was_read_gives_equal_bytes);
    RUN(only_files_with_launches_are_of_the_new_version);
    RUN(launches_that_are_not_there_are_noticed);
    RUN(too_long_tables_are_refused);
    RUN(an_empty_timeline_goes_there_and_back);
    RUN(names_found_in_a_file_are_interned);
    RUN(the_checksum_is_what_it_says);
    RUN(the_checksum_never_changes);
    RUN(every_flipped_bit_is_noticed);
    RUN(every_cut_is_noticed);
    RUN(every_wrong_field_is_named);
    RUN(a_broken_checksum_names_its_section);
    RUN(a_name_that_stands_twice_is_noticed);
    RUN(sections_of_unknown_kinds_are_skipped);
    RUN(damage_is_harmless_before_it_is_found);
    RUN(what_is_no_trace_is_refused);
    RUN(a_full_disk_is_an_error);
    RUN(places_that_cannot_be_written_are_named);
    RUN(formats_are_told_by_content);
    RUN(formats_to_write_are_told_by_the_ending);
    RUN(reading_checks_all_and_opening_does_not);
    remove_folder();
    return check_report();
}
