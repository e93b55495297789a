/*
 * parts.c - what every part needs: arguments, the device, the clock of its budget.
 */
#include "parts.h"

#include <stdlib.h>
#include <string.h>

#include "gpu_try.h"

bool run_has_time(const Run *run)
{
    return (host_now_us() - run->begin_us) * 1e-6 < run->budget_s;
}

static int usage(const NamedPart *parts, int parts_n)
{
    fprintf(stderr, "usage: PROGRAM PART --out FILE [--budget-s N] [--date TEXT]\nparts:");
    for (int i = 0; i < parts_n; i++)
        fprintf(stderr, " %s", parts[i].name);
    fprintf(stderr, "\n");
    return 2;
}

static bool read_option(Run *run, const char **out, const char *name, const char *value)
{
    char *end = NULL;
    if (!value)
        return false;
    if (strcmp(name, "--out") == 0) {
        *out = value;
        return true;
    }
    if (strcmp(name, "--date") == 0) {
        run->date = value;
        return true;
    }
    if (strcmp(name, "--budget-s") == 0) {
        run->budget_s = strtod(value, &end);
        return end != value && *end == '\0' && run->budget_s > 0;
    }
    return false;
}

int parts_main(int argc, char **argv, const NamedPart *parts, int parts_n)
{
    static Run run = { .date = "", .budget_s = 1e9 };
    const NamedPart *part = NULL;
    const char *out = NULL;

    for (int i = 0; argc > 1 && i < parts_n; i++)
        if (strcmp(argv[1], parts[i].name) == 0)
            part = &parts[i];
    for (int i = 2; part && i < argc; i += 2)
        if (!read_option(&run, &out, argv[i], i + 1 < argc ? argv[i + 1] : NULL))
            part = NULL;
    if (!part || !out)
        return usage(parts, parts_n);

    /* Lines leave at once: a part that is stopped has said how far it came. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    run.begin_us = host_now_us();
    device_open(&run.device);
    run.rows = rows_open(out);
    bench_open(&run.bench);
    int rc = part->run(&run);
    bench_close(&run.bench);
    if (fclose(run.rows) != 0) {
        fprintf(stderr, "gpu: cannot write '%s'\n", out);
        return 1;
    }
    return rc;
}
