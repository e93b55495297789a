/*
 * part_device.c - one row: which GPU, which versions, which clocks, when.
 */
#include "gpu_try.h"
#include "parts.h"

int part_device(Run *run)
{
    Row row;
    row_begin(&row, "device");
    row_text(&row, "date", run->date);
    device_row(&row, &run->device);
    row_end(&row, run->rows);
    printf("%s, %d SMs, driver %d, CUDA %d, cuBLASLt %zu\n", run->device.prop.name,
           run->device.prop.multiProcessorCount, run->device.driver_version,
           run->device.runtime_version, cublasLtGetVersion());
    return 0;
}
