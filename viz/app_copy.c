/*
 * app_copy.c - what goes to the clipboard: the event at hand, or the drawer's numbers as TSV or
 * JSON; all in ns, bytes and GB/s.
 */
#include "viz/app.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/json_out.h"

/* ---- the numbers ---- */

enum { NUMBERS_N = 8 };

typedef struct Number {
    const char *name;
    int64_t value;
} Number;

/* Means over the ranks that count. */
static void numbers_of(const View *v, Number at[NUMBERS_N])
{
    ViewStats s = view_window_stats(v, view_stats_window(v), NULL);
    int64_t n = (int64_t)(s.ranks_n ? s.ranks_n : 1);
    const Number all[NUMBERS_N] = { { "ranks", (int64_t)s.ranks_n },
                                    { "window_ns", s.sum.span_ns / n },
                                    { "compute_ns", s.sum.compute_ns / n },
                                    { "comm_ns", s.sum.comm_ns / n },
                                    { "overlapped_ns", s.sum.overlapped_ns / n },
                                    { "exposed_comm_ns", s.sum.exposed_comm_ns / n },
                                    { "memory_ns", s.sum.memory_ns / n },
                                    { "idle_ns", s.sum.idle_ns / n } };
    for (int i = 0; i < NUMBERS_N; i++)
        at[i] = all[i];
}

char *app_stats_text(const App *a, char *text, size_t cap)
{
    Number at[NUMBERS_N];
    size_t used = 0;
    numbers_of(&a->view, at);
    text[0] = 0;
    for (int i = 0; i < NUMBERS_N && used < cap; i++)
        used += (size_t)snprintf(text + used, cap - used, "%s\t%" PRId64 "\n", at[i].name,
                                 at[i].value);
    return text;
}

/* ---- with the tables ---- */

/* In bytes/ns, which is GB/s; 0 unknown. */
static double busbw_of(const Timeline *t, const CommTotal *c)
{
    return timeline_busbw_over(t, c->span, c->transfer_ns);
}

static void write_tsv(App *a, FILE *out)
{
    const SceneTables *t = scene_tables(&a->scene, &a->view);
    const Timeline *k = view_data(&a->view)->t;
    char text[512];
    fputs(app_stats_text(a, text, sizeof text), out);
    fputs("\nkernel\tclass\tcount\ttotal_ns\n", out);
    for (uint32_t i = 0; i < t->top_n; i++)
        fprintf(out, "%s\t%s\t%" PRIu64 "\t%" PRId64 "\n", timeline_text(k, t->top[i].name),
                span_class_names[t->top[i].span_class], t->top[i].count, t->top[i].total_ns);
    fputs("\nexposed communication\texposed_ns\ttransfer_ns\tbusbw_GBps\n", out);
    for (uint32_t i = 0; i < t->comms_n; i++)
        fprintf(out, "%s\t%" PRId64 "\t%" PRId64 "\t%.4g\n",
                timeline_text(k, k->span_name[t->comms[i].span]), t->comms[i].exposed_ns,
                t->comms[i].transfer_ns, busbw_of(k, &t->comms[i]));
}

static void put_kernels(JsonOut *j, const SceneTables *t, const Timeline *k)
{
    json_put_open(j, "kernels", '[');
    for (uint32_t i = 0; i < t->top_n; i++) {
        json_out_open(j, '{');
        json_put_text(j, "name", timeline_text(k, t->top[i].name));
        json_put_text(j, "class", span_class_names[t->top[i].span_class]);
        json_put_uint(j, "count", t->top[i].count);
        json_put_int(j, "total_ns", t->top[i].total_ns);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void put_exposed(JsonOut *j, const SceneTables *t, const Timeline *k)
{
    json_put_open(j, "exposed", '[');
    for (uint32_t i = 0; i < t->comms_n; i++) {
        const CommTotal *c = &t->comms[i];
        json_out_open(j, '{');
        json_put_text(j, "name", timeline_text(k, k->span_name[c->span]));
        json_put_int(j, "exposed_ns", c->exposed_ns);
        if (c->transfer_ns >= 0)
            json_put_int(j, "transfer_ns", c->transfer_ns);
        if (busbw_of(k, c) > 0)
            json_put_number(j, "busbw_GBps", busbw_of(k, c));
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

static void write_json(App *a, FILE *out)
{
    const SceneTables *t = scene_tables(&a->scene, &a->view);
    const Timeline *k = view_data(&a->view)->t;
    JsonOut j = json_out_file(out, 2);
    Number at[NUMBERS_N];
    Err err;
    numbers_of(&a->view, at);
    json_out_open(&j, '{');
    for (int i = 0; i < NUMBERS_N; i++)
        json_put_int(&j, at[i].name, at[i].value);
    put_kernels(&j, t, k);
    put_exposed(&j, t, k);
    json_out_close(&j, '}');
    json_out_end(&j, &err);
}

static void write_event(App *a, FILE *out)
{
    char text[4096];
    fputs(scene_event_text(&a->view, text, sizeof text), out);
}

void app_copy(App *a, AppCopy what)
{
    static void (*const write[])(App *, FILE *) = { write_event, write_tsv, write_json };
    char *text = NULL;
    size_t n = 0;
    if (what == COPY_AT_HAND) {
        bool event = a->view.hover.row != NONE_U32 || a->view.picked.row != NONE_U32;
        what = event ? COPY_EVENT : COPY_TSV;
    }
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return;
    write[what](a, out);
    free(a->copy);
    a->copy = fclose(out) == 0 ? text : NULL;
}
