/*
 * built.h - a scenario with its graph, and what a step of it takes.
 */
#ifndef LOCKSTEP_TESTS_BUILT_H
#define LOCKSTEP_TESTS_BUILT_H

#include <stdarg.h>
#include <stdio.h>

#include "sim/build.h"
#include "sim/engine.h"
#include "tests/check.h"

typedef struct Built {
    Scenario s;
    Software sw;
    Arena arena;
    Graph g;
} Built;

/* All: false, checked and said, where it cannot be built; built_free is for all that were begun.
 * doc: NULL with err where it could not be read; taken over. */
static inline bool built_with(Built *b, JsonDoc *doc, const Setting *settings,
                              uint32_t settings_n, Err *err)
{
    *b = (Built){ 0 };
    bool ok = CHECK(doc && scenario_from(&b->s, doc, settings, settings_n, err) &&
                    software_of(&b->sw, &b->arena, &b->s, err) &&
                    build_graph(&b->g, &b->s, &b->sw, err));
    if (!ok)
        fprintf(stderr, "%s\n", err->text);
    return ok;
}

static inline bool built_from(Built *b, JsonDoc *doc, Err *err)
{
    return built_with(b, doc, NULL, 0, err);
}

/* From a format of JSON, as printf has it. */
__attribute__((format(printf, 2, 3))) static inline bool built_text(Built *b,
                                                                    const char *format, ...)
{
    char text[4096];
    va_list args;
    Err err = { 0 };
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ASSERT(n >= 0 && (size_t)n < sizeof text);
    return built_from(b, json_parse(text, (size_t)n, "test", &err), &err);
}

static inline bool built_read(Built *b, const char *scenario, const Setting *settings,
                              uint32_t settings_n)
{
    Err err = { 0 };
    *b = (Built){ 0 };
    bool ok = CHECK(scenario_read(&b->s, scenario, settings, settings_n, &err) &&
                    software_read(&b->sw, &b->arena, b->s.software, &err) &&
                    build_graph(&b->g, &b->s, &b->sw, &err));
    if (!ok)
        fprintf(stderr, "%s: %s\n", scenario, err.text);
    return ok;
}

static inline bool built_run(SimResult *r, const Built *b, SimOptions options)
{
    Err err = { 0 };
    bool ok = CHECK(sim_run(r, &b->g, &b->s.machine, &b->sw, &options, &err));
    if (!ok)
        fprintf(stderr, "%s\n", err.text);
    return ok;
}

static inline void built_free(Built *b)
{
    graph_free(&b->g);
    arena_free(&b->arena);
    scenario_free(&b->s);
}

/* The trace of a step, sealed; t is empty before. */
static inline bool built_trace(Timeline *t, SimResult *r, const Built *b, bool expand_ranks)
{
    bool ok = built_run(r, b, (SimOptions){ .timeline = t, .expand_ranks = expand_ranks });
    if (ok)
        timeline_seal(t);
    return ok;
}

#endif
