/*
 * cmd_run_hyper.c - --hyper KEY=V1,V2...: independent trainings side by side.
 *
 *     lockstep run ---- lr=0.1 ---- rank 0, rank 1 ...       each copy a process that starts
 *                  \--- lr=0.01 --- rank 0, rank 1 ...       its ranks, as if it were alone
 *
 * Under a launcher each rank is such a starter: its copies are the same rank of as many jobs,
 * which meet at one port after another.  Results come in the order of the values, when all copies
 * have ended; one that has failed leaves the others alone.
 */
#include <stdlib.h>
#include <string.h>

#include "core/json_out.h"
#include "exec/cmd_run.h"
#include "exec/rendezvous.h"
#include "sim/texts.h"

typedef struct Copy {
    const char *value;
    char text[300]; /* "lr=0.1" */
    char *meets;    /* its rendezvous; NULL: its own */
    RunTraining t;
} Copy;

typedef struct Copies {
    const RunTraining *like;
    char key[200];
    char *values; /* the list, cut where values end */
    Copy *copies;
    uint32_t n, cap;
} Copies;

/* The comma behind a value, which may be a list in brackets, or the end. */
static char *end_of_value(char *text)
{
    int depth = 0;
    for (; *text && (depth > 0 || *text != ','); text++)
        depth += (*text == '[') - (*text == ']');
    return text;
}

static void list_copies(Copies *c)
{
    const RunOptions *o = c->like->o;
    const char *name = o->hyper_key;
    snprintf(c->key, sizeof c->key, "%s%.150s", strchr(name, '.') ? "" : "training.", name);
    c->values = mem_zero(strlen(o->hyper_values) + 1, 1);
    strcpy(c->values, o->hyper_values);
    for (char *rest = c->values, *value; (value = rest); c->n++) {
        rest = end_of_value(value);
        rest = *rest ? rest : NULL;
        if (rest)
            *rest++ = '\0';
        GROW(c->copies, c->n, c->cap);
        c->copies[c->n] = (Copy){ .value = value, .t = *c->like };
        snprintf(c->copies[c->n].text, sizeof c->copies->text, "%.150s=%.100s", name, value);
    }
}

static uint32_t at_once(const Copies *c)
{
    uint32_t wanted = c->like->o->at_once;
    return wanted > 0 && wanted < c->n ? wanted : c->n;
}

/* A value that cannot be is better told before any has been trained. */
static bool open_copy(Copies *c, uint32_t i, Err *err)
{
    Copy *x = &c->copies[i];
    RunTraining *t = &x->t;
    const char *meets = t->place.rendezvous;
    if (!run_training_check(t, &(Setting){ c->key, x->value }, err))
        return err_wrap(err, "--hyper %s", x->text);
    if (meets && !(x->meets = rendezvous_of_copy(meets, i, err)))
        return err_wrap(err, "--hyper %s", x->text);
    t->hyper = t->place.copy = x->text;
    t->place.rendezvous = x->meets;
    t->place.job = t->place.job ? mix_u64(t->place.job + i) : 0;
    t->beside_n = at_once(c);
    t->beside_later = i > 0;
    return run_training_open(t, err);
}

static int train_copy(uint32_t i, void *user)
{
    Copies *c = user;
    Copy *x = &c->copies[i];
    Err err = { 0 };
    int status = run_train(&x->t, &(Setting){ c->key, x->value }, &err);
    if (err.set)
        fprintf(stderr, "lockstep: %s: %s\n", x->text, err.text);
    if (err.set && !x->t.shared->why[0])
        snprintf(x->t.shared->why, sizeof x->t.shared->why, "%s", err.text);
    return status;
}

/* ---- results ---- */

static void compare_copies(const Copies *c, const int *statuses, FILE *out)
{
    char time[TEXT_CAP];
    fprintf(out, "\n%-24s%16s%16s%16s\n", c->like->o->hyper_key, "first loss", "last loss",
            "step time");
    for (uint32_t i = 0; i < c->n; i++) {
        const RunShared *end = c->copies[i].t.shared;
        if (statuses[i] != EXIT_DONE)
            fprintf(out, "%-24s%16s\n", c->copies[i].value, "failed");
        else
            fprintf(out, "%-24s%16.6g%16.6g%16s\n", c->copies[i].value, end->first_loss,
                    end->last_loss, text_seconds(time, end->step_s));
    }
}

static void print_text(const Copies *c, const int *statuses)
{
    for (uint32_t i = 0; i < c->n; i++) {
        fputs(i > 0 ? "\n" : "", stdout);
        if (statuses[i] == EXIT_DONE)
            run_print_result(c->copies[i].t.result, stdout);
        else
            printf("%s: failed\n", c->copies[i].text);
    }
    if (c->n > 1)
        compare_copies(c, statuses, stdout);
}

/* What a copy that has failed left: why, as far as a rank could still say it. */
static void print_failed(const Copy *x)
{
    Err ignored = { 0 };
    const char *why = x->t.shared->why;
    JsonOut j = json_out_file(stdout, 2);
    json_out_open(&j, '{');
    json_put_text(&j, "hyper", x->text);
    json_put_text(&j, "failed", why[0] ? why : "ended early");
    json_out_close(&j, '}');
    json_out_end(&j, &ignored);
}

static void print_json(const Copies *c, const int *statuses)
{
    fputs("{\"runs\":[\n", stdout);
    for (uint32_t i = 0; i < c->n; i++) {
        fputs(i > 0 ? ",\n" : "", stdout);
        if (statuses[i] == EXIT_DONE)
            run_print_result(c->copies[i].t.result, stdout);
        else
            print_failed(&c->copies[i]);
    }
    fputs("]}\n", stdout);
}

/* ---- all of it ---- */

static int train_all(Copies *c)
{
    const char **names = mem_zero(c->n, sizeof *names);
    int *statuses = mem_zero(c->n, sizeof *statuses);
    bool any = false;
    for (uint32_t i = 0; i < c->n; i++)
        names[i] = c->copies[i].text;
    int status = launch_copies(c->n, at_once(c), names, train_copy, c, statuses);
    for (uint32_t i = 0; i < c->n; i++)
        any = any || statuses[i] == EXIT_DONE;
    if (any && run_prints(c->like))
        (c->like->o->json ? print_json : print_text)(c, statuses);
    free(names);
    free(statuses);
    return status;
}

int run_hyper(const RunTraining *like, Err *err)
{
    Copies c = { .like = like };
    bool ok = true;
    list_copies(&c);
    for (uint32_t i = 0; i < c.n && ok; i++)
        ok = open_copy(&c, i, err);
    int status = ok ? train_all(&c) : EXIT_COULD_NOT;
    for (uint32_t i = 0; i < c.n; i++) {
        run_training_close(&c.copies[i].t);
        free(c.copies[i].meets);
    }
    free(c.copies);
    free(c.values);
    return status;
}
