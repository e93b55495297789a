/*
 * nccl_json.c - what nccl-tests writes with -J FILE, versions 2 and 3 (nccl-tests, src/util.cu).
 *
 *     { "version": 2, "start_time": "...", "args": ["./all_reduce_perf", ...], "env": [...],
 *       "nccl_version": 22902,
 *       "config": { "nthreads": 1, "ngpus": 1, ..., "devices": [
 *           { "rank": 0, "group": 0, "pid": 7, "hostname": "HOST", "device": 0,
 *             "device_hex": "0000:1b:00", "device_info": "NVIDIA H100" } ] },
 *       "results": [ { "size": 1024, "count": 256, "type": "float", "redop": "sum",
 *           "root": "    -1", "out_of_place": { "time": 21.5, "alg_bw": 0.05, "bus_bw": 0.08,
 *           "nwrong": 0 }, "in_place": { ... } } ],
 *       "out_of_bounds": { "count": 0, "okay": "true" }, ... }
 *
 * Times have all their digits here, and are "cpu_time" with -C; nwrong is null unchecked.
 * `devices` names the first device of each process only: nthreads x ngpus ranks stand for one.
 * The collective stands nowhere but in the program's name.
 */
#include "traces/nccl_parts.h"

#include <math.h>
#include <string.h>

#include "core/json.h"

enum { RANKS_MAX = 1 << 24 };

/* ---- who measured ---- */

static bool is_one_of(const NcclTest *t, const char *host)
{
    for (uint32_t i = 0; i < t->hosts_n; i++)
        if (strcmp(t->hosts[i], host) == 0)
            return true;
    return false;
}

/* Processes of the first group on a host; all hosts where it is NULL. */
static uint32_t processes_on(JsonNode devices, const char *host)
{
    double group = json_value(json_member(json_first(devices), "group"));
    uint32_t n = 0;
    size_t i = 0;
    for (JsonNode d = json_first(devices); d.item; d = json_next(d, devices, ++i)) {
        const char *on = json_text(json_member(d, "hostname"));
        if (json_value(json_member(d, "group")) == group &&
            (!host || (on && strcmp(on, host) == 0)))
            n++;
    }
    return n;
}

static double count_of(JsonNode config, const char *key)
{
    double n = json_value(json_member(config, key));
    return n >= 1 && n <= RANKS_MAX ? floor(n) : 1;
}

static bool take_devices(NcclLog *l, NcclTest *t, JsonNode config, Err *err)
{
    JsonNode devices = json_member(config, "devices");
    if (json_type(devices) != JSON_ARRAY || json_items_n(devices) == 0)
        return json_fail(config, err, "a list 'devices' is expected, with one at least");
    double each = count_of(config, "nthreads") * count_of(config, "ngpus");
    uint32_t processes_n = processes_on(devices, NULL);
    if (each * processes_n > RANKS_MAX)
        return json_fail(config, err, "there are %.0f ranks, at most %d are allowed",
                         each * processes_n, RANKS_MAX);
    t->ranks_n = (uint32_t)each * processes_n;
    t->hosts = PUSH_ARRAY(&l->arena, const char *, json_items_n(devices));
    const char *gpu = json_text(json_member(json_first(devices), "device_info"));
    t->gpu = gpu ? arena_strdup(&l->arena, gpu) : "";
    size_t i = 0;
    for (JsonNode d = json_first(devices); d.item; d = json_next(d, devices, ++i)) {
        const char *host = json_text(json_member(d, "hostname"));
        uint32_t ranks_n = host ? (uint32_t)each * processes_on(devices, host) : 0;
        if (ranks_n == 0 || is_one_of(t, host))
            continue;
        t->hosts[t->hosts_n++] = arena_strdup(&l->arena, host);
        t->gpus_n = ranks_n > t->gpus_n ? ranks_n : t->gpus_n;
    }
    return true;
}

/* ---- what was measured ---- */

static bool take_number(JsonNode half, const char *key, double *x, Err *err)
{
    JsonNode node = json_member(half, key);
    *x = json_value(node);
    if (json_type(node) != JSON_NUMBER || *x < 0)
        return json_fail(half, err, "'%s' is no number from 0 on", key);
    return true;
}

/* One half of a result; NULL or missing where it was not measured. */
static bool take_half(NcclLog *l, NcclRow row, JsonNode half, Err *err)
{
    if (json_type(half) == JSON_NULL || json_type(half) == JSON_ABSENT)
        return true;
    if (json_type(half) != JSON_OBJECT)
        return json_fail(half, err, "an object is expected, not %s",
                         json_type_name(json_type(half)));
    row.cpu_time = json_type(json_member(half, "cpu_time")) == JSON_NUMBER;
    if (!take_number(half, row.cpu_time ? "cpu_time" : "time", &row.time_us, err) ||
        !take_number(half, "alg_bw", &row.algbw, err) ||
        !take_number(half, "bus_bw", &row.busbw, err))
        return false;
    JsonNode wrong = json_member(half, "nwrong");
    double n = json_value(wrong);
    row.wrong = NCCL_WRONG_UNKNOWN;
    if (json_type(wrong) == JSON_NUMBER && n >= 0)
        row.wrong = n < 9e18 ? (int64_t)n : INT64_MAX;
    GROW(l->rows, l->rows_n, l->rows_cap);
    l->rows[l->rows_n++] = row;
    return true;
}

static bool take_result(NcclLog *l, JsonNode result, Err *err)
{
    double size;
    if (json_type(result) != JSON_OBJECT)
        return json_fail(result, err, "an object is expected, not %s",
                         json_type_name(json_type(result)));
    if (!take_number(result, "size", &size, err))
        return false;
    if (size > 9007199254740992.0) /* 2^53 */
        return json_fail(result, err, "'size' is out of range");
    const char *dtype = json_text(json_member(result, "type"));
    NcclRow row = { .test = l->tests_n - 1,
                    .size_bytes = (uint64_t)size,
                    .dtype = dtype ? arena_strdup(&l->arena, dtype) : "",
                    .stamp = "" };
    if (!take_half(l, row, json_member(result, "out_of_place"), err))
        return false;
    row.in_place = true;
    return take_half(l, row, json_member(result, "in_place"), err);
}

static bool take_results(NcclLog *l, JsonNode root, Err *err)
{
    JsonNode results = json_member(root, "results");
    if (json_type(results) != JSON_ARRAY)
        return json_fail(root, err, "a list 'results' is expected");
    size_t i = 0;
    for (JsonNode r = json_first(results); r.item; r = json_next(r, results, ++i))
        if (!take_result(l, r, err))
            return false;
    return true;
}

/* ---- the whole ---- */

static const char *op_of(JsonNode root)
{
    JsonNode args = json_member(root, "args");
    const char *program = json_type(args) == JSON_ARRAY ? json_text(json_first(args)) : NULL;
    const char *slash = program ? strrchr(program, '/') : NULL;
    return program ? nccl_op_in(slash ? slash + 1 : program) : NULL;
}

static bool take_test(NcclLog *l, JsonNode root, const char *name, Err *err)
{
    double version = json_value(json_member(root, "nccl_version"));
    NcclTest test = { .file = name,
                      .op = op_of(root),
                      .version = "",
                      .library = "",
                      .gpu = "",
                      .row_first = l->rows_n };
    if (version > 0 && version < 1e9)
        test.library = nccl_library_version(&l->arena, (unsigned long)version);
    JsonNode okay = json_member(json_member(root, "out_of_bounds"), "okay");
    test.failed = json_text(okay) && strcmp(json_text(okay), "false") == 0;
    GROW(l->tests, l->tests_n, l->tests_cap);
    l->tests[l->tests_n++] = test;
    NcclTest *t = &l->tests[l->tests_n - 1];
    if (!take_devices(l, t, json_member(root, "config"), err) || !take_results(l, root, err))
        return false;
    t->row_n = l->rows_n - t->row_first;
    return true;
}

bool nccl_json_parse(NcclLog *l, const char *text, size_t n, const char *name, Err *err)
{
    JsonDoc *doc = json_parse(text, n, name, err);
    bool ok = doc && take_test(l, json_root(doc), name, err);
    json_close(doc);
    return ok;
}

bool nccl_json_matches(const char *head, size_t n)
{
    static const char *const keys[] = { "\"version\"", "\"start_time\"", "\"args\"" };
    size_t at = 0, k = 0;
    while (at < n && strchr(" \t\r\n", head[at]) && head[at])
        at++;
    if (at == n || head[at] != '{')
        return false;
    for (; at < n && k < ARRAY_N(keys); at++)
        if (n - at >= strlen(keys[k]) && memcmp(head + at, keys[k], strlen(keys[k])) == 0)
            k++;
    return k == ARRAY_N(keys);
}
