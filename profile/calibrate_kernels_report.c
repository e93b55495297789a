/* calibrate_kernels_report.c - what calibrating a GPU did: a table for people, JSON. */
#include <stdio.h>

#include "core/json_out.h"
#include "profile/calibrate_kernels.h"

/* Errors of a GPU's predictions for the rows of a table (TABLE_N: all); n: kernels of them. */
static CalibrateErrors errors_of(KernelFit *f, const Gpu *gpu, KernelTable table,
                                 uint32_t *kernels_n)
{
    double *measured = PUSH_ARRAY(&f->arena, double, f->rows_n);
    double *predicted = PUSH_ARRAY(&f->arena, double, f->rows_n);
    uint32_t n = 0;
    *kernels_n = 0;
    for (uint32_t i = 0; i < f->rows_n; i++) {
        if (table != TABLE_N && f->rows[i].table != table)
            continue;
        measured[n] = f->rows[i].ns;
        predicted[n++] = f->model.predict_ns(f->model.user, gpu, f->rows[i].op);
        *kernels_n += f->rows[i].n;
    }
    return calibrate_errors(measured, predicted, n, NULL, 0);
}

const char *const kernel_table_texts[] = { [TABLE_GEMM] = "matmul",
                                           [TABLE_MEMORY] = "memory-bound",
                                           [TABLE_ATTENTION] = "attention",
                                           [TABLE_COPY] = "copy from host",
                                           [TABLE_N] = "all" };

void kernel_fit_print(KernelFit *f, const Gpu *now)
{
    printf("%-16s %8s %8s %14s %14s\n", "error in %", "", "", "as it was", "is now");
    printf("%-16s %8s %8s %8s %5s %8s %5s\n", "", "shapes", "kernels", "median", "p90",
           "median", "p90");
    for (KernelTable t = 0; t <= TABLE_N; t++) {
        uint32_t kernels;
        CalibrateErrors was = errors_of(f, f->gpu, t, &kernels);
        CalibrateErrors is = errors_of(f, now, t, &kernels);
        if (was.n > 0)
            printf("%-16s %8u %8u %8.1f %5.1f %8.1f %5.1f\n", kernel_table_texts[t],
                   (unsigned)was.n, (unsigned)kernels, was.median_pct, was.p90_pct,
                   is.median_pct, is.p90_pct);
    }
    printf("\nlaunch_us %g (was %g), kernel_floor_us %g (was %g), host_GBps %g (was %g)\n",
           (double)now->launch_ns / 1e3, (double)f->gpu->launch_ns / 1e3,
           (double)now->kernel_floor_ns / 1e3, (double)f->gpu->kernel_floor_ns / 1e3,
           now->host_bytes_per_ns, f->gpu->host_bytes_per_ns);
    if (f->beside_comm + f->no_table > 0)
        printf("not used: %u kernels beside communication, %u that no table holds (batched "
               "matmuls, attention with a window or in f32)\n",
               (unsigned)f->beside_comm, (unsigned)f->no_table);
}

void kernel_fit_json(KernelFit *f, const Gpu *now, const char *file, bool written, Err *err)
{
    JsonOut j = json_out_file(stdout, 2);
    json_out_open(&j, '{');
    json_put_text(&j, "file", file);
    json_put_bool(&j, "written", written);
    for (KernelTable t = 0; t <= TABLE_N; t++) {
        uint32_t kernels;
        CalibrateErrors was = errors_of(f, f->gpu, t, &kernels);
        CalibrateErrors is = errors_of(f, now, t, &kernels);
        json_put_open(&j, kernel_table_texts[t], '{');
        json_put_int(&j, "shapes", was.n);
        json_put_int(&j, "kernels", kernels);
        json_put_number(&j, "median_error_pct_before", was.median_pct);
        json_put_number(&j, "median_error_pct", is.median_pct);
        json_put_number(&j, "p90_error_pct", is.p90_pct);
        json_out_close(&j, '}');
    }
    json_put_number(&j, "launch_us", (double)now->launch_ns / 1e3);
    json_put_int(&j, "kernels_not_used", f->beside_comm + f->no_table);
    json_out_close(&j, '}');
    json_out_end(&j, err);
}
