/* formats.c - the table, and looking things up in it. */
#include "traces/formats.h"

#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "traces/bytes_in.h"
#include "traces/chakra.h"
#include "traces/chrome_write.h"
#include "traces/kineto.h"
#include "traces/native.h"
#include "traces/nccl_tests.h"
#include "traces/nsys.h"
#include "traces/pytorch_et.h"

static bool read_native(Timeline *t, const char *path, Err *err)
{
    if (!native_open(t, path, err))
        return false;
    bool ok = native_verify(t, err);
    if (!ok)
        timeline_free(t);
    return ok;
}

/* The first row that matches wins. */
const TraceFormat trace_formats[] = {
    { .name = "native",
      .endings = ".lstrace ",
      .summary = "columns, opened without reading them",
      .matches = native_matches,
      .open = read_native,
      .write = native_write },
    { .name = "nsys",
      .endings = "",
      .summary = "Nsight Systems: nsys export --type sqlite, also as gzip",
      .matches = nsys_matches,
      .read = nsys_read },
    { .name = "chakra",
      .endings = "",
      .summary = "MLCommons Chakra execution traces: .et, or as JSON",
      .matches = chakra_matches,
      .read = chakra_read },
    { .name = "pytorch-et",
      .endings = "",
      .summary = "PyTorch execution traces: known, but without times no timeline",
      .matches = pytorch_et_matches,
      .open = pytorch_et_open },
    { .name = "nccl-tests",
      .endings = "",
      .summary = "logs and JSON of nccl-tests: known, for lockstep calibrate",
      .matches = nccl_tests_matches,
      .open = nccl_tests_open },
    { .name = "chrome",
      .endings = ".json .json.gz ",
      .summary = "Trace Event JSON: Perfetto, chrome://tracing, Kineto's readers",
      .matches = kineto_matches,
      .read = kineto_read,
      .write = chrome_write },
};
const size_t trace_formats_n = ARRAY_N(trace_formats);

/* ---- lists for messages ---- */

typedef enum Column { COLUMN_NAMES, COLUMN_ENDINGS } Column;

typedef struct List {
    char text[256];
    size_t n;
} List;

static void append(List *list, const char *text, size_t n)
{
    int wrote = snprintf(list->text + list->n, sizeof list->text - list->n, "%s%.*s",
                         list->n ? ", " : "", (int)n, text);
    ASSERT(wrote >= 0 && (size_t)wrote < sizeof list->text - list->n);
    list->n += (size_t)wrote;
}

static List list_of(Column column)
{
    List list = { .n = 0 };
    for (size_t i = 0; i < trace_formats_n; i++) {
        const TraceFormat *f = &trace_formats[i];
        if (column == COLUMN_NAMES)
            append(&list, f->name, strlen(f->name));
        for (const char *at = f->endings; *at && column == COLUMN_ENDINGS;
             at = strchr(at, ' ') + 1)
            append(&list, at, strcspn(at, " "));
    }
    return list;
}

/* ---- looking up ---- */

const TraceFormat *trace_format_named(const char *name, Err *err)
{
    for (size_t i = 0; i < trace_formats_n; i++)
        if (strcmp(trace_formats[i].name, name) == 0)
            return &trace_formats[i];
    err_set(err, "unknown trace format '%s', allowed: %s", name, list_of(COLUMN_NAMES).text);
    return NULL;
}

static bool has_ending(const char *path, const TraceFormat *f)
{
    size_t path_n = strlen(path);
    for (const char *at = f->endings; *at; at = strchr(at, ' ') + 1) {
        size_t n = strcspn(at, " ");
        if (path_n > n && memcmp(path + path_n - n, at, n) == 0)
            return true;
    }
    return false;
}

const TraceFormat *trace_format_for_ending(const char *path, Err *err)
{
    for (size_t i = 0; i < trace_formats_n; i++)
        if (trace_formats[i].write && has_ending(path, &trace_formats[i]))
            return &trace_formats[i];
    err_set(err, "cannot tell the trace format from the name '%s', endings allowed: %s", path,
            list_of(COLUMN_ENDINGS).text);
    return NULL;
}

bool trace_head_has(const uint8_t *head, size_t n, const char *text)
{
    size_t m = strlen(text);
    for (size_t i = 0; i + m <= n; i++)
        if (head[i] == (uint8_t)text[0] && memcmp(head + i, text, m) == 0)
            return true;
    return false;
}

/* The first bytes, unpacked when they are gzip; none and err when they cannot be had. */
static size_t read_head(const char *path, uint8_t *head, Err *err)
{
    BytesIn in;
    if (!bytes_in_open(&in, path, err))
        return 0;
    size_t n = 0;
    for (size_t got = 1; got > 0 && n < TRACE_HEAD_BYTES; n += got)
        got = bytes_in_read(&in, head + n, TRACE_HEAD_BYTES - n);
    const char *problem = bytes_in_problem(&in);
    bytes_in_close(&in);
    if (n == 0)
        err_set(err, "cannot read '%s': %s", path, problem ? problem : "it is empty");
    return n;
}

const TraceFormat *trace_format_of_file(const char *path, Err *err)
{
    uint8_t head[TRACE_HEAD_BYTES];
    size_t n = read_head(path, head, err);
    if (n == 0)
        return NULL;
    for (size_t i = 0; i < trace_formats_n; i++)
        if (trace_formats[i].matches(head, n))
            return &trace_formats[i];
    bool is_report = text_ends_in(path, ".nsys-rep") || text_ends_in(path, ".qdrep");
    err_set(err, "cannot read '%s': it is none of the trace formats %s%s", path,
            list_of(COLUMN_NAMES).text,
            is_report ? "; `nsys export --type sqlite` makes nsys of it" : "");
    return NULL;
}

bool trace_write(const Timeline *t, const char *path, Err *err)
{
    const TraceFormat *f = trace_format_for_ending(path, err);
    return f && f->write(t, path, err);
}
