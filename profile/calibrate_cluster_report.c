/* calibrate_cluster_report.c - what calibrating a cluster did: tables for people, JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/json_out.h"
#include "profile/calibrate_cluster.h"

static void print_numbers(const ClusterFit *f)
{
    printf("%-28s %12s %12s %6s\n", "collectives.", "was", "is now", "rows");
    for (uint32_t i = 0; i < f->numbers_n; i++) {
        const ClusterSpot *p = &f->places[i];
        char name[64];
        if (!f->numbers[i].fitted)
            continue;
        if (p->curve)
            snprintf(name, sizeof name, "%s, %u ranks", p->key,
                     (unsigned)p->curve->ranks[p->index]);
        else if (p->by_protocol)
            snprintf(name, sizeof name, "%s.%s", p->key, protocol_names[p->index]);
        else
            snprintf(name, sizeof name, "%s", p->key);
        printf("%-28s %12.5g %12.5g %6u\n", name, cluster_fit_shown(f, i, f->stood[i]),
               cluster_fit_shown(f, i, f->numbers[i].value), (unsigned)f->numbers[i].rows_n);
    }
}

static void print_errors(const ClusterFit *f, const char *name, const uint32_t *part,
                         uint32_t of)
{
    const double *const all[] = { f->was, f->model, f->left_out_size, f->left_out_log,
                                  f->table_left_out };
    CalibrateErrors e = calibrate_errors(f->measured_ns, f->was, f->rows_n, part, of);
    if (e.n == 0)
        return;
    printf("%-42.42s %4u", name, (unsigned)e.n);
    for (size_t i = 0; i < ARRAY_N(all); i++) {
        e = calibrate_errors(f->measured_ns, all[i], f->rows_n, part, of);
        if (e.n > 0)
            printf(" %6.1f %5.1f", e.median_pct, e.p90_pct);
        else
            printf(" %6s %5s", "-", "-");
    }
    printf("\n");
}

static void print_table(const ClusterFit *f)
{
    printf("\n%-42s %4s %10s %9s %9s\n", "collectives.measured", "rows", "latency us", "GB/s",
           "line off");
    for (uint32_t p = 0; p < f->parts_n; p++) {
        const ClusterPart *part = &f->parts[p];
        const ClusterShape *s = &f->shapes[part->shape];
        char name[64];
        snprintf(name, sizeof name, "%s, %u ranks, %u node%s", part->op, (unsigned)s->ranks_n,
                 (unsigned)s->nodes_n, s->nodes_n > 1 ? "s" : "");
        printf("%-42.42s %4u %10.1f %9.2f", name, (unsigned)part->line.rows_n,
               part->entry.latency_ns / 1e3, part->entry.bytes_per_ns);
        if (isfinite(part->line.median_pct))
            printf(" %7.1f %%\n", part->line.median_pct);
        else
            printf(" %9s\n", "-");
    }
}

void cluster_fit_print(ClusterFit *f, const char *const *log_names)
{
    print_numbers(f);
    print_table(f);
    printf("\n%-47s %12s %12s %12s %12s %12s\n%-47s %12s %12s %12s %12s %12s\n%-42s %4s",
           "error in %", "as it was", "model:", "left-out", "left-out", "table:", "", "",
           "fitted", "size", "log", "left-out sz.", "", "rows");
    for (int i = 0; i < 5; i++)
        printf(" %6s %5s", "median", "p90");
    printf("\n");
    for (uint32_t i = 0; i < f->logs_n; i++)
        print_errors(f, log_names[i], f->log_of, i);
    for (uint32_t p = 0; p < f->parts_n; p++) {
        const ClusterShape *s = &f->shapes[f->parts[p].shape];
        print_errors(f,
                     arena_printf(&f->arena, "%s, %u ranks, %u node%s", f->parts[p].op,
                                  (unsigned)s->ranks_n, (unsigned)s->nodes_n,
                                  s->nodes_n > 1 ? "s" : ""),
                     f->part_of, p);
    }
    print_errors(f, "all", NULL, 0);
}

static void json_errors(const ClusterFit *f, JsonOut *j, const char *key,
                        const double *predicted, const uint32_t *part, uint32_t of)
{
    CalibrateErrors e = calibrate_errors(f->measured_ns, predicted, f->rows_n, part, of);
    json_put_open(j, key, '{');
    json_put_number(j, "median_pct", e.median_pct);
    json_put_number(j, "p90_pct", e.p90_pct);
    json_out_close(j, '}');
}

static void json_rows(const ClusterFit *f, JsonOut *j, const uint32_t *part, uint32_t of)
{
    CalibrateErrors e = calibrate_errors(f->measured_ns, f->model, f->rows_n, part, of);
    json_put_int(j, "rows", e.n);
    json_errors(f, j, "before", f->was, part, of);
    json_errors(f, j, "fitted", f->model, part, of);
    json_errors(f, j, "left_out_sizes", f->left_out_size, part, of);
    json_errors(f, j, "left_out_logs", f->left_out_log, part, of);
    json_errors(f, j, "table_left_out_sizes", f->table_left_out, part, of);
}

static void json_part(const ClusterFit *f, JsonOut *j, uint32_t p)
{
    const ClusterPart *part = &f->parts[p];
    json_out_open(j, '{');
    json_put_text(j, "op", part->op);
    json_put_int(j, "ranks", part->entry.ranks);
    json_put_int(j, "nodes", part->entry.nodes);
    json_put_number(j, "latency_us", part->entry.latency_ns / 1e3);
    json_put_number(j, "GBps", part->entry.bytes_per_ns);
    json_put_number(j, "line_error_pct", part->line.median_pct);
    json_rows(f, j, f->part_of, p);
    json_out_close(j, '}');
}

void cluster_fit_json(const ClusterFit *f, const char *const *log_names, bool written,
                      uint64_t not_used, Err *err)
{
    JsonOut j = json_out_file(stdout, 2);
    json_out_open(&j, '{');
    json_put_text(&j, "file", f->into);
    json_put_bool(&j, "written", written);
    json_put_int(&j, "rows", f->rows_n);
    json_put_uint(&j, "rows_not_used", not_used);
    json_put_open(&j, "logs", '[');
    for (uint32_t i = 0; i < f->logs_n; i++) {
        json_out_open(&j, '{');
        json_put_text(&j, "log", log_names[i]);
        json_rows(f, &j, f->log_of, i);
        json_out_close(&j, '}');
    }
    json_out_close(&j, ']');
    json_put_open(&j, "measured", '[');
    for (uint32_t p = 0; p < f->parts_n; p++)
        json_part(f, &j, p);
    json_out_close(&j, ']');
    json_put_open(&j, "all", '{');
    json_put_text(&j, "log", "all");
    json_rows(f, &j, NULL, 0);
    json_out_close(&j, '}');
    json_out_close(&j, '}');
    json_out_end(&j, err);
}
