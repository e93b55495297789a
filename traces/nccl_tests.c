/*
 * nccl_tests.c - logs a line at a time: comments say what is measured, other lines are rows or
 * noise.
 */
#include "traces/nccl_parts.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeral.h"
#include "traces/unpack.h"

enum { WORDS_MAX = 48, LINE_BYTES_MAX = 4096, HOSTS_MAX = 1 << 16, PREFIX_BYTES_MAX = 128 };

/* How the first lines of a test begin. */
static const char *const marks[] = { "# nThread ", "# nccl-tests version ",
                                     "# Collective test starting" };

typedef enum Cell {
    CELL_SIZE,
    CELL_COUNT,
    CELL_TYPE,
    CELL_TIME,
    CELL_CPU_TIME,
    CELL_ALGBW,
    CELL_BUSBW,
    CELL_WRONG,
    CELL_STAMP, /* two words: date and time */
    CELL_OTHER
} Cell;

typedef struct Host {
    const char *name;
    uint32_t ranks_n;
} Host;

typedef struct Reader {
    NcclLog *log;
    const char *name; /* of the log */
    uint32_t line;
    Err *err;
    /* said before a test begins, or while it runs */
    const char *version, *library, *op;
    char prefix[PREFIX_BYTES_MAX]; /* what stood before the mark met last */
    size_t prefix_n;
    /* of the running test; its hosts go into the log when it ends */
    bool running;
    uint32_t group;
    Host *hosts;
    uint32_t hosts_n, hosts_cap;
    /* of the table */
    Cell cells[WORDS_MAX];
    uint32_t cells_n;
    bool in_place_only; /* its one half is the second */
    Err cut;            /* its last row is none, and why; no error if it stays the last */
    uint32_t cut_line;
} Reader;

typedef struct Words {
    char line[LINE_BYTES_MAX];
    char *word[WORDS_MAX];
    uint32_t n;
} Words;

static NcclTest *test_of(Reader *r)
{
    return &r->log->tests[r->log->tests_n - 1];
}

/* ---- names ---- */

typedef struct OpName {
    const char *program, *op;
} OpName;

/* Longer names first: one may be part of another.  RCCL's uneven all-to-all and its all-reduce
 * that adds a bias are collectives of their own. */
static const OpName op_names[] = {
    { "all_reduce_bias", "all_reduce_bias" },
    { "alltoallv", "all_to_all_v" },
    { "reduce_scatter", "reduce_scatter" },
    { "all_reduce", "all_reduce" },
    { "all_gather", "all_gather" },
    { "alltoall", "all_to_all" },
    { "sendrecv", "send_recv" },
    { "broadcast", "broadcast" },
    { "hypercube", "hypercube" },
    { "scatter", "scatter" },
    { "gather", "gather" },
    { "reduce", "reduce" },
};

const char *nccl_op_in(const char *text)
{
    for (size_t i = 0; i < ARRAY_N(op_names); i++)
        if (strstr(text, op_names[i].program))
            return op_names[i].op;
    return NULL;
}

const char *nccl_library_version(Arena *arena, unsigned long v)
{
    if (v >= 10000)
        return arena_printf(arena, "%lu.%lu.%lu", v / 10000, v / 100 % 100, v % 100);
    return arena_printf(arena, "%lu.%lu.%lu", v / 1000, v / 100 % 10, v % 100);
}

/* ---- a line in words ---- */

/* What launchers put before a line: "[1,0]<stdout>:" of mpirun, "12: " of srun. */
static const char *skip_prefix(const char *line)
{
    const char *tag = strstr(line, "<stdout>:");
    if (*line == '[' && tag)
        return tag + strlen("<stdout>:");
    size_t digits = strspn(line, "0123456789");
    if (digits > 0 && line[digits] == ':' && line[digits + 1] == ' ')
        return line + digits + 2;
    return line;
}

/* What else stands before the first lines of a test is what collectors of logs put before every
 * line: "node01: ", "2026-01-31T12:00:00.123Z ". */
static void learn_prefix(Reader *r, const char *line)
{
    for (size_t i = 0; i < ARRAY_N(marks); i++) {
        const char *mark = strstr(line, marks[i]);
        if (!mark || mark - line >= PREFIX_BYTES_MAX)
            continue;
        r->prefix_n = (size_t)(mark - line);
        memcpy(r->prefix, line, r->prefix_n);
        return;
    }
}

/* The line without such a prefix; its digits may be others. */
static const char *skip_learned(const Reader *r, const char *line)
{
    for (size_t i = 0; i < r->prefix_n; i++) {
        bool digits = isdigit((unsigned char)line[i]) && isdigit((unsigned char)r->prefix[i]);
        if (line[i] != r->prefix[i] && !digits)
            return line;
    }
    return line + r->prefix_n;
}

static void split(Words *w, const char *line)
{
    snprintf(w->line, sizeof w->line, "%s", line);
    w->n = 0;
    char *save = NULL;
    for (char *word = strtok_r(w->line, " \t\r", &save); word && w->n < WORDS_MAX;
         word = strtok_r(NULL, " \t\r", &save))
        w->word[w->n++] = word;
}

static bool is(const Words *w, uint32_t i, const char *text)
{
    return i < w->n && strcmp(w->word[i], text) == 0;
}

/* Index of the word, NONE_U32 when it is not there. */
static uint32_t find(const Words *w, const char *text)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (strcmp(w->word[i], text) == 0)
            return i;
    return NONE_U32;
}

/* ---- a test ---- */

static void end_test(Reader *r)
{
    if (!r->running)
        return;
    NcclTest *t = test_of(r);
    t->hosts = PUSH_ARRAY(&r->log->arena, const char *, r->hosts_n);
    t->hosts_n = r->hosts_n;
    for (uint32_t i = 0; i < r->hosts_n; i++) {
        t->hosts[i] = r->hosts[i].name;
        t->gpus_n = r->hosts[i].ranks_n > t->gpus_n ? r->hosts[i].ranks_n : t->gpus_n;
    }
    t->row_n = r->log->rows_n - t->row_first;
    t->cut_line = r->cut_line;
    r->hosts_n = 0;
    r->cells_n = 0;
    r->cut_line = 0;
    r->running = false;
}

static void begin_test(Reader *r)
{
    end_test(r);
    NcclLog *l = r->log;
    GROW(l->tests, l->tests_n, l->tests_cap);
    l->tests[l->tests_n++] = (NcclTest){ .file = r->name,
                                         .op = r->op,
                                         .version = r->version,
                                         .library = r->library,
                                         .gpu = "",
                                         .row_first = l->rows_n };
    r->op = NULL;
    r->in_place_only = false;
    r->group = NONE_U32;
    r->running = true;
}

static void count_host(Reader *r, const char *host)
{
    uint32_t i = r->hosts_n; /* ranks of a host stand together: look from the end */
    while (i > 0 && strcmp(r->hosts[i - 1].name, host) != 0)
        i--;
    if (i == 0 && r->hosts_n < HOSTS_MAX) {
        GROW(r->hosts, r->hosts_n, r->hosts_cap);
        r->hosts[r->hosts_n++] = (Host){ arena_strdup(&r->log->arena, host), 1 };
    } else if (i > 0) {
        r->hosts[i - 1].ranks_n++;
    }
}

/* "# Rank 0 [Group 0] Pid 7 on HOST device 0 [0000:1b:00] GPU NAME" */
static void take_rank(Reader *r, const Words *w)
{
    uint32_t on = find(w, "on"), device = find(w, "device"), group = find(w, "Group");
    if (!r->running || on == NONE_U32 || device != on + 2)
        return;
    uint32_t g =
        group == NONE_U32 || group > on ? 0 : (uint32_t)strtoul(w->word[group + 1], NULL, 10);
    NcclTest *t = test_of(r);
    if (r->group == NONE_U32)
        r->group = g;
    if (g != r->group)
        return; /* groups measure side by side: the first stands for all */
    t->ranks_n++;
    count_host(r, w->word[on + 1]);
    if (*t->gpu)
        return;
    uint32_t first = device + 3; /* after the bus id, which may be "[0x07]" or in two words */
    const char *text = "";
    for (uint32_t i = first; i < w->n; i++)
        text = arena_printf(&r->log->arena, "%s%s%s", text, *text ? " " : "", w->word[i]);
    t->gpu = text;
}

static Cell cell_of(const char *word)
{
    static const struct {
        const char *word;
        Cell cell;
    } cells[] = {
        { "size", CELL_SIZE },        { "count", CELL_COUNT },  { "type", CELL_TYPE },
        { "time", CELL_TIME },        { "algbw", CELL_ALGBW },  { "busbw", CELL_BUSBW },
        { "cputime", CELL_CPU_TIME }, { "#wrong", CELL_WRONG }, { "error", CELL_WRONG },
        { "timestamp", CELL_STAMP },
    };
    for (size_t i = 0; i < ARRAY_N(cells); i++)
        if (strcmp(word, cells[i].word) == 0)
            return cells[i].cell;
    return CELL_OTHER;
}

/* "#  size  count  type  redop  root  time ..."; the hash may touch the first name. */
static void take_header(Reader *r, const Words *w)
{
    r->cells_n = 0;
    for (uint32_t i = 1; i < w->n; i++)
        r->cells[r->cells_n++] = cell_of(w->word[i]);
}

static bool says_version(Reader *r, const Words *w)
{
    if (!is(w, 1, "nccl-tests") || !is(w, 2, "version") || w->n < 4)
        return false;
    r->version = arena_strdup(&r->log->arena, w->word[3]);
    for (uint32_t i = 4; i < w->n; i++)
        if (strncmp(w->word[i], "nccl-library=", 13) == 0)
            r->library =
                nccl_library_version(&r->log->arena, strtoul(w->word[i] + 13, NULL, 10));
    end_test(r);
    return true;
}

static void take_comment(Reader *r, const Words *w)
{
    if (says_version(r, w))
        return;
    if (is(w, 1, "Collective") && is(w, 3, "starting:") && w->n > 4) {
        end_test(r);
        const char *op = nccl_op_in(w->word[4]);
        r->op = op ? op : arena_strdup(&r->log->arena, w->word[4]);
    } else if (is(w, 1, "nThread")) {
        begin_test(r);
    } else if (is(w, 1, "Rank")) {
        take_rank(r, w);
    } else if (find(w, "in-place") < w->n || find(w, "out-of-place") < w->n) {
        r->in_place_only = find(w, "out-of-place") == NONE_U32;
    } else if (is(w, 1, "size") && is(w, 2, "count")) {
        if (!r->running)
            begin_test(r);
        take_header(r, w);
    } else if (r->running && is(w, 1, "Out") && is(w, 3, "bounds") &&
               find(w, "FAILED") < w->n) {
        test_of(r)->failed = true;
    }
}

/* ---- rows ---- */

static bool bad_row(Reader *r, const char *what, const char *word)
{
    return err_set(&r->cut, "%s:%u: %s, not '%.40s'", r->name, (unsigned)r->line, what, word);
}

static bool take_positive(Reader *r, const char *word, const char *what, double *x)
{
    const char *end;
    return (numeral_real(word, x, &end) && *end == '\0' && *x >= 0) || bad_row(r, what, word);
}

static bool take_cell(Reader *r, NcclRow *row, Cell cell, const char *word)
{
    switch (cell) {
    case CELL_TIME:
    case CELL_CPU_TIME:
        row->cpu_time = cell == CELL_CPU_TIME;
        row->time_from_algbw = strpbrk(word, "eE") != NULL;
        return take_positive(r, word, "a time in us is expected", &row->time_us);
    case CELL_ALGBW:
        return take_positive(r, word, "a bandwidth in GB/s is expected", &row->algbw);
    case CELL_BUSBW:
        return take_positive(r, word, "a bandwidth in GB/s is expected", &row->busbw);
    case CELL_WRONG: {
        double wrong = 0;
        row->wrong = NCCL_WRONG_UNKNOWN;
        if (strcmp(word, "N/A") == 0)
            return true;
        if (!take_positive(r, word, "a number of wrong values or N/A is expected", &wrong))
            return false;
        row->wrong = wrong < 9e18 ? (int64_t)wrong : INT64_MAX;
        return true;
    }
    default:
        return true;
    }
}

static void add_row(Reader *r, const NcclRow *row)
{
    NcclLog *l = r->log;
    if (isnan(row->time_us))
        return;
    GROW(l->rows, l->rows_n, l->rows_cap);
    l->rows[l->rows_n++] = *row;
    NcclRow *added = &l->rows[l->rows_n - 1];
    added->time_from_algbw = row->time_from_algbw && row->algbw > 0;
    if (added->time_from_algbw)
        added->time_us = (double)row->size_bytes / row->algbw / 1e3;
}

/* One half of a row begins at each time column. */
static bool take_halves(Reader *r, const Words *w, NcclRow *row)
{
    uint32_t halves = 0, word = 0;
    uint32_t first = r->log->rows_n;
    for (uint32_t i = 0; i < r->cells_n && word < w->n; i++, word++) {
        Cell cell = r->cells[i];
        if (cell == CELL_TYPE)
            row->dtype = arena_strdup(&r->log->arena, w->word[word]);
        if (cell == CELL_TIME || cell == CELL_CPU_TIME) {
            if (halves++ > 0)
                add_row(r, row);
            row->in_place = halves == 2 || r->in_place_only;
            row->wrong = NCCL_WRONG_UNKNOWN;
        }
        if (cell == CELL_STAMP && word + 1 < w->n) {
            row->stamp =
                arena_printf(&r->log->arena, "%s %s", w->word[word], w->word[word + 1]);
            word++;
        } else if (!take_cell(r, row, cell, w->word[word])) {
            return false;
        }
    }
    add_row(r, row);
    for (uint32_t i = first; i < r->log->rows_n; i++)
        r->log->rows[i].stamp = row->stamp;
    return true;
}

/* Columns but the time stamp's second word. */
static bool is_complete(const Reader *r, const Words *w)
{
    uint32_t needed = r->cells_n;
    for (uint32_t i = 0; i < r->cells_n; i++)
        needed += r->cells[i] == CELL_STAMP;
    return w->n >= needed;
}

static bool is_whole_number(const Words *w, uint32_t i)
{
    return i < w->n && w->word[i][strspn(w->word[i], "0123456789")] == '\0';
}

/* A size and a count; others' lines may begin with a number, too: "15 total processes killed". */
static bool is_row(const Reader *r, const Words *w)
{
    bool counts = r->cells_n > 1 && r->cells[1] == CELL_COUNT;
    return r->cells_n >= 4 && is_whole_number(w, 0) && (!counts || is_whole_number(w, 1));
}

static bool take_cells(Reader *r, const Words *w)
{
    NcclRow row = { .dtype = "", .stamp = "", .time_us = NAN, .wrong = NCCL_WRONG_UNKNOWN };
    row.size_bytes = strtoull(w->word[0], NULL, 10);
    row.test = r->log->tests_n - 1;
    if (is_complete(r, w))
        return take_halves(r, w, &row);
    return err_set(&r->cut, "%s:%u: a row of %u columns is expected, not of %u", r->name,
                   (unsigned)r->line, (unsigned)r->cells_n, (unsigned)w->n);
}

/* A job that was killed leaves a part of a row behind, and what killed it writes on: only where
 * more rows follow is such a one an error. */
static bool take_row(Reader *r, const Words *w)
{
    uint32_t rows_n = r->log->rows_n;
    if (!is_row(r, w))
        return true;
    if (r->cut_line > 0) {
        *r->err = r->cut;
        return false;
    }
    r->cut = (Err){ 0 };
    if (!take_cells(r, w)) {
        r->cut_line = r->line;
        r->log->rows_n = rows_n;
    }
    return true;
}

/* ---- the whole ---- */

static bool take_line(Reader *r, const char *line)
{
    Words w;
    const char *said = skip_prefix(line);
    learn_prefix(r, said);
    split(&w, skip_learned(r, said));
    if (w.n == 0)
        return true;
    if (w.word[0][0] == '#') {
        if (w.word[0][1] == '\0') /* "#size" is no header of any version */
            take_comment(r, &w);
        return true;
    }
    if (r->running && strstr(line, "Test ") && strstr(line, " failure"))
        test_of(r)->failed = true;
    return !isdigit((unsigned char)w.word[0][0]) || !r->running || take_row(r, &w);
}

/* Says of each new test what it measured, and that there was something. */
static bool finish(NcclLog *l, const char *name, uint32_t first_test, uint32_t first_row,
                   Err *err)
{
    const char *slash = strrchr(name, '/'), *by_name = nccl_op_in(slash ? slash + 1 : name);
    if (l->tests_n == first_test)
        return err_set(err,
                       "cannot read '%s': it is no log of nccl-tests (there is no line "
                       "'# nThread ...' and no table)",
                       name);
    if (l->rows_n == first_row)
        return err_set(err, "cannot read '%s': the log of nccl-tests holds no rows", name);
    for (uint32_t i = first_test; i < l->tests_n; i++) {
        NcclTest *t = &l->tests[i];
        if (!t->op)
            t->op = by_name;
        if (!t->op)
            return err_set(err,
                           "cannot tell which collective '%s' measures: an old log has no line "
                           "'# Collective test starting', put the name (all_reduce_perf) into "
                           "the file's",
                           name);
    }
    return true;
}

static bool parse_lines(NcclLog *l, const char *text, size_t n, const char *name, Err *err)
{
    Reader r = { .log = l, .err = err, .name = name, .version = "", .library = "" };
    uint32_t rows_n = l->rows_n;
    bool ok = true;
    char *line = mem_resize(NULL, LINE_BYTES_MAX, 1);
    for (size_t at = 0; at < n && ok;) {
        const char *newline = memchr(text + at, '\n', n - at);
        size_t length = newline ? (size_t)(newline - text) - at : n - at;
        size_t kept = length < LINE_BYTES_MAX ? length : LINE_BYTES_MAX - 1;
        memcpy(line, text + at, kept);
        line[kept] = '\0';
        at += length + 1;
        r.line++;
        ok = take_line(&r, line);
    }
    end_test(&r);
    if (ok && r.cut.set && l->rows_n == rows_n) {
        *err = r.cut;
        ok = false;
    }
    free(line);
    free(r.hosts);
    return ok;
}

bool nccl_log_parse(NcclLog *l, const char *text, size_t n, const char *name, Err *err)
{
    name = arena_strdup(&l->arena, name);
    uint32_t first_test = l->tests_n, first_row = l->rows_n;
    bool ok = nccl_json_matches(text, n) ? nccl_json_parse(l, text, n, name, err)
                                         : parse_lines(l, text, n, name, err);
    return ok && finish(l, name, first_test, first_row, err);
}

bool nccl_log_matches(const char *head, size_t n)
{
    for (size_t i = 0; i < ARRAY_N(marks); i++)
        for (size_t at = 0, m = strlen(marks[i]); at + m <= n; at++)
            if (head[at] == '#' && memcmp(head + at, marks[i], m) == 0)
                return true;
    return nccl_json_matches(head, n);
}

bool nccl_log_read(NcclLog *l, const char *path, Err *err)
{
    Unpacked u;
    if (!unpack_open(&u, path, NCCL_LOG_BYTES_MAX, err))
        return false;
    bool ok = nccl_log_parse(l, (const char *)u.bytes, (size_t)u.n, path, err);
    unpack_close(&u);
    return ok;
}

bool nccl_tests_matches(const uint8_t *head, size_t n)
{
    return nccl_log_matches((const char *)head, n);
}

bool nccl_tests_open(Timeline *t, const char *path, Err *err)
{
    NcclLog l = { 0 };
    *t = (Timeline){ 0 };
    if (nccl_log_read(&l, path, err)) {
        const NcclTest *test = &l.tests[0];
        err_set(err,
                "cannot make a timeline of '%s': nccl-tests has no times of events (%u %s, the "
                "first of %.40s on %u %s, %u rows); lockstep calibrate reads it",
                path, (unsigned)l.tests_n, l.tests_n == 1 ? "test" : "tests", test->op,
                (unsigned)test->ranks_n, test->ranks_n == 1 ? "rank" : "ranks",
                (unsigned)l.rows_n);
    }
    nccl_log_free(&l);
    return false;
}

bool nccl_row_is_sound(const NcclTest *t, const NcclRow *r, uint32_t nodes_n)
{
    return r->wrong <= 0 && !r->cpu_time && r->time_us > 0 && r->size_bytes > 0 &&
           t->ranks_n == t->hosts_n * t->gpus_n && t->ranks_n > 1 && t->hosts_n % nodes_n == 0;
}

void nccl_say_cut(FILE *out, const NcclTest *t)
{
    if (t->cut_line > 0)
        fprintf(out, "lockstep: '%.200s' stops within its line %u, which is left out\n",
                t->file, (unsigned)t->cut_line);
}

void nccl_log_free(NcclLog *l)
{
    free(l->tests);
    free(l->rows);
    arena_free(&l->arena);
    *l = (NcclLog){ 0 };
}
