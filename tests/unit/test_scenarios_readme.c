/*
 * test_scenarios_readme.c - scenarios/README.md lists exactly the keys that are read.
 *
 * An object with a key that does not exist makes its reader name all keys that
 * do: "unknown key, allowed: a, b, c".  For every heading of the README that is a
 * path such a key is put in there, and the answer compared with the table below
 * the heading, both ways.
 */
#include "sim/software.h"
#include "tests/check.h"

#define NOBODY "no_such_key"

/* Every object and list that has a table stands in it. */
static const char complete[] =
    "{\"model\":{\"kind\":\"transformer\",\"layers\":8,\"hidden\":64,\"heads\":8,\"vocab\":99},"
    "\"training\":{\"recompute\":{\"layers\":1}},"
    "\"parallel\":{\"overlap\":{}},"
    "\"software\":{\"base\":\"generic\",\"kernels\":{},\"recompute\":{},"
    "\"parallel\":{\"overlap\":{}},\"fitted\":{},\"assumed\":{\"compute_scale\":1}},"
    "\"measured\":[{\"metric\":\"mfu\",\"value\":1}],"
    "\"cluster\":{\"node_types\":[{\"count\":1}],\"gpus_per_node\":2,\"collectives\":{"
    "\"measured\":[{\"op\":"
    "\"reduce\",\"ranks\":2,\"nodes\":1,\"latency_us\":1,\"GBps\":1}]},"
    "\"intra_node\":{\"kind\":\"ring\",\"GBps\":1},\"inter_node\":{},"
    "\"stragglers\":[{\"ranks\":[0],\"compute\":1},{\"link\":[0,1],\"GBps\":1}],"
    "\"gpu\":{\"peak_tflops\":{\"f32\":1,\"bf16\":1},\"memory_GB\":1,\"memory_GBps\":1,"
    "\"efficiency\":{},\"matmul_model\":{},\"overlap\":{},\"kernels\":{\"gemm\":[{\"source\":"
    "\"s\","
    "\"columns\":[\"m\"],\"rows\":[],\"n\":1,\"k\":1,\"dtype\":\"f32\",\"time_us\":1}],"
    "\"memory\":[],\"attention\":[]}}}}";

typedef struct Section {
    const char *heading, *path; /* path NULL: no table of its own */
    const char *model;          /* another kind of model; NULL: the transformer */
    const char *also;           /* a second form of the object, in the same table */
} Section;

static const Section sections[] = {
    { "`scenario`", "", NULL, NULL },
    { "`training`", "training.", NULL, NULL },
    { "`training.recompute`", "training.recompute.", NULL, NULL },
    { "`parallel`", "parallel.", NULL, NULL },
    { "`parallel.overlap`", "parallel.overlap.", NULL, NULL },
    { "`measured[]`", "measured[0].", NULL, NULL },
    { "`model`", NULL, NULL, NULL },
    { "`model` (transformer)", "model.", NULL, NULL },
    { "`model` (mlp)", "model.", "{\"kind\":\"mlp\",\"widths\":[2,3]}", NULL },
    { "`model` (convnet)", "model.", "{\"kind\":\"convnet\",\"blocks\":[1],\"widths\":[8]}",
      NULL },
    { "`software`", "software.", NULL, NULL },
    { "`software.kernels`", "software.kernels.", NULL, NULL },
    { "`software.recompute`", "software.recompute.", NULL, NULL },
    { "`software.parallel`", "software.parallel.", NULL, NULL },
    { "`software.parallel.overlap`", "software.parallel.overlap.", NULL, NULL },
    { "`software.fitted`", "software.fitted.", NULL, NULL },
    { "`software.assumed`", "software.assumed.", NULL, NULL },
    { "`cluster`", "cluster.", NULL, NULL },
    { "`cluster.intra_node`", "cluster.intra_node.", NULL, NULL },
    { "`cluster.inter_node`", "cluster.inter_node.", NULL, NULL },
    { "`cluster.node_types[]`", "cluster.node_types[0].", NULL, NULL },
    { "`cluster.collectives`", "cluster.collectives.", NULL, NULL },
    { "`cluster.collectives.measured[]`", "cluster.collectives.measured[0].", NULL, NULL },
    { "`cluster.stragglers[]`", "cluster.stragglers[0].", NULL, "cluster.stragglers[1]." },
    { "`cluster.gpu`", "cluster.gpu.", NULL, NULL },
    { "`cluster.gpu.efficiency`", "cluster.gpu.efficiency.", NULL, NULL },
    { "`cluster.gpu.matmul_model`", "cluster.gpu.matmul_model.", NULL, NULL },
    { "`cluster.gpu.overlap`", "cluster.gpu.overlap.", NULL, NULL },
    { "`cluster.gpu.kernels`", "cluster.gpu.kernels.", NULL, NULL },
    { "`cluster.gpu.kernels.gemm[]`", "cluster.gpu.kernels.gemm[0].", NULL, NULL },
};

/* ---- the README ---- */

static char *read_readme(void)
{
    FILE *f = fopen("scenarios/README.md", "rb");
    size_t cap = 1 << 20;
    char *text = mem_zero(cap, 1);
    if (CHECK(f != NULL)) {
        CHECK(fread(text, 1, cap - 1, f) > 0);
        fclose(f);
    }
    return text;
}

/* Adds "|key|" for each `key` of the first column of the rows below heading; false: no heading. */
static bool table_below(char *keys, size_t cap, const char *readme, const char *heading)
{
    char line[64];
    snprintf(line, sizeof line, "\n## %s\n", heading);
    const char *at = strstr(readme, line);
    if (!at)
        return false;
    const char *end = strstr(at + 1, "\n## ");
    end = end ? end : at + strlen(at);
    *keys = '\0';
    for (at = strstr(at, "\n| `"); at && at < end; at = strstr(at + 1, "\n| `")) {
        const char *bar = strchr(at + 3, '|');
        for (const char *tick = strchr(at, '`'); tick && tick < bar;) {
            const char *close = strchr(tick + 1, '`');
            size_t n = strlen(keys);
            snprintf(keys + n, cap - n, "|%.*s|", (int)(close - tick - 1), tick + 1);
            tick = strchr(close + 1, '`');
        }
    }
    return true;
}

/* ---- the readers ---- */

/* Whole, with the stack that it names. */
static bool reads(JsonDoc *doc, const Setting *set, uint32_t set_n, Err *err)
{
    Scenario s;
    Software sw;
    Arena arena = { 0 };
    bool ok = scenario_from(&s, doc, set, set_n, err) && software_of(&sw, &arena, &s, err);
    scenario_free(&s);
    arena_free(&arena);
    return ok;
}

/* Adds "|a||b|" from "...unknown key, allowed: a, b". */
static bool allowed_at(char *keys, size_t cap, const char *object, const char *model, Err *err)
{
    char path[100];
    snprintf(path, sizeof path, "%s" NOBODY, object);
    Setting set[2];
    uint32_t set_n = 0;
    if (model)
        set[set_n++] = (Setting){ "model", model };
    set[set_n++] = (Setting){ path, "1" };
    JsonDoc *doc = json_parse(complete, sizeof complete - 1, "t.json", err);
    if (!CHECK(doc != NULL) || reads(doc, set, set_n, err))
        return false;
    const char *list = strstr(err->text, NOBODY ": unknown key, allowed: ");
    if (!list)
        return false;
    for (list = strstr(list, "allowed: ") + 9; *list;) {
        size_t n = strcspn(list, ","), used = strlen(keys);
        snprintf(keys + used, cap - used, "|%.*s|", (int)n, list);
        list += n + strspn(list + n, ", ");
    }
    return true;
}

static bool allowed_of(char *keys, size_t cap, const Section *s, Err *err)
{
    *keys = '\0';
    if (!allowed_at(keys, cap, s->path, s->model, err))
        return false;
    err_clear(err);
    return !s->also || allowed_at(keys, cap, s->also, s->model, err);
}

static void each_is_in(const char *some, const char *all, const char *heading,
                       const char *where)
{
    char key[64];
    for (const char *at = some; *at; at += strlen(key)) {
        const char *close = strchr(at + 1, '|');
        snprintf(key, sizeof key, "%.*s", (int)(close - at + 1), at);
        if (!CHECK(strstr(all, key) != NULL))
            fprintf(stderr, "    %s: %s is not %s\n", heading, key, where);
    }
}

static void the_tables_hold_the_keys_that_are_read(void)
{
    enum { CAP = 4096 };
    char *readme = read_readme(), listed[CAP], allowed[CAP];
    for (size_t i = 0; i < ARRAY_N(sections); i++) {
        const Section *p = &sections[i];
        Err err = { 0 };
        if (!CHECK(table_below(listed, CAP, readme, p->heading)))
            fprintf(stderr, "    %s is not a heading\n", p->heading);
        else if (!p->path)
            CHECK_STR("", listed);
        else if (!CHECK(allowed_of(allowed, CAP, p, &err)))
            fprintf(stderr, "    %s: %s\n", p->heading, err.text);
        else {
            each_is_in(listed, allowed, p->heading, "a key that is read");
            each_is_in(allowed, listed, p->heading, "in the README");
        }
    }
    free(readme);
}

/* A key beside the object that it belongs in is answered with its path. */
static void place_of(const char *section, const char *key)
{
    char want[100];
    Err err = { 0 };
    Setting set = { key, "1" };
    JsonDoc *doc = json_parse(complete, sizeof complete - 1, "t.json", &err);
    snprintf(want, sizeof want, "--set %s: unknown key; %s.%s is allowed", key, section, key);
    CHECK(!reads(doc, &set, 1, &err));
    CHECK_ERR_TEXT(&err, want);
}

static void keys_beside_their_object_have_a_place(void)
{
    enum { CAP = 4096 };
    static const char *const places[] = { "training", "parallel", "cluster" };
    static const char elsewhere[] = "|base||name||provenance||notes|";
    char *readme = read_readme(), listed[CAP], heading[32], key[64];
    for (size_t i = 0; i < ARRAY_N(places); i++) {
        snprintf(heading, sizeof heading, "`%s`", places[i]);
        CHECK(table_below(listed, CAP, readme, heading));
        for (const char *at = listed; *at; at = strchr(at + 1, '|') + 1) {
            size_t n = strcspn(at + 1, "|");
            snprintf(key, sizeof key, "%.*s", (int)n + 2, at);
            if (strstr(elsewhere, key))
                continue;
            snprintf(key, sizeof key, "%.*s", (int)n, at + 1);
            place_of(places[i], key);
        }
    }
    free(readme);
}

static void every_heading_is_tested(void)
{
    char *readme = read_readme();
    for (const char *at = strstr(readme, "\n## "); at; at = strstr(at + 1, "\n## ")) {
        size_t n = strcspn(at + 4, "\n");
        bool known = false;
        for (size_t i = 0; i < ARRAY_N(sections); i++)
            known |=
                strlen(sections[i].heading) == n && !memcmp(sections[i].heading, at + 4, n);
        if (!CHECK(known))
            fprintf(stderr, "    %.*s\n", (int)n, at + 4);
    }
    free(readme);
}

int main(void)
{
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    RUN(the_tables_hold_the_keys_that_are_read);
    RUN(keys_beside_their_object_have_a_place);
    RUN(every_heading_is_tested);
    return check_report();
}
