/*
 * fuzz_scenario.c - any bytes as a scenario: read or refused with a sentence, never a crash.
 *
 * The bytes are JSON; lines before it that start with '#' are settings,
 * "#training.lr=2".  Built-in names work; paths are skipped, for they would
 * make a run depend on the machine.
 */
#include "sim/report.h"

#include <stdlib.h>
#include <string.h>

enum { SETTINGS_MAX = 8, LINE_CAP = 200 };

typedef struct Settings {
    uint32_t n;
    Setting set[SETTINGS_MAX];
    char text[SETTINGS_MAX][LINE_CAP];
} Settings;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    setenv("LOCKSTEP_SHARE", "scenarios", 0);
    return 0;
}

/* Takes one "#KEY=VALUE" line; returns its bytes, 0 when there is none. */
static size_t take_setting(Settings *s, const char *text, size_t n)
{
    const char *end = n ? memchr(text, '\n', n) : NULL;
    if (!end || *text != '#' || end - text >= LINE_CAP || s->n == SETTINGS_MAX)
        return 0;
    size_t length = (size_t)(end - text) - 1;
    char *line = memcpy(s->text[s->n], text + 1, length);
    line[length] = '\0';
    char *equals = strchr(line, '=');
    if (equals) {
        *equals = '\0';
        s->set[s->n++] = (Setting){ line, equals + 1 };
    }
    return length + 2;
}

/* A stack that cannot be read is refused with a sentence; what can be read can be shown. */
static void explain(const Scenario *s)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    ASSERT(f);
    Software sw;
    Arena arena = { 0 };
    Err err = { 0 };
    bool read = software_of(&sw, &arena, s, &err);
    ASSERT(read != err.set);
    scenario_explain(s, read ? &sw : &(Software){ 0 }, f);
    ASSERT(!read || report_software_text(s, f, &err));
    arena_free(&arena);
    fclose(f);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0 || memchr(data, '/', n))
        return 0;
    Settings settings = { 0 };
    const char *text = (const char *)data;
    for (size_t used = 1; used > 0; text += used, n -= used)
        used = take_setting(&settings, text, n);
    Err err = { 0 };
    Scenario s = { 0 };
    JsonDoc *doc = json_parse(text, n, "fuzz.json", &err);
    bool ok = doc && scenario_from(&s, doc, settings.set, settings.n, &err);
    ASSERT(ok != err.set);
    ASSERT(ok || s.doc == NULL);
    if (ok) {
        ASSERT(s.parallel.gpus <= s.machine.gpus_n && s.training.micro_batches > 0);
        explain(&s);
    }
    scenario_free(&s);
    return 0;
}
