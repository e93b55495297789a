/* cuda_comm_place.c - a GPU for a rank, or a sentence. */
#include "exec/cuda_comm_place.h"

/* Of cudaError_t, which this file is compiled without. */
enum { ERROR_STUB = 34, ERROR_OLD_DRIVER = 35, ERROR_NO_DEVICE = 100 };

static bool is_set(const char *text)
{
    return text && *text;
}

bool place_gpu(int *device, const RankPlace *place, const GpuView *view, Err *err)
{
    uint32_t devices_n = (uint32_t)view->devices_n;
    *device = 0;
    if (view->loop || place->world == 1 || (devices_n == 1 && is_set(view->visible)))
        return true;
    if (place->local_rank < devices_n || is_set(view->host_id)) {
        *device = (int)(place->local_rank % devices_n);
        return true;
    }
    return err_set(err,
                   "rank %u is number %u of those started on this host, and CUDA shows %u "
                   "GPU%s here%s%.60s: start at most as many ranks as there are GPUs, or run "
                   "them all on one with --comm loop",
                   place->rank, place->local_rank + 1, devices_n, devices_n == 1 ? "" : "s",
                   is_set(view->visible) ? ", of CUDA_VISIBLE_DEVICES=" : "",
                   is_set(view->visible) ? view->visible : "");
}

bool place_no_gpu(int error, const char *text, int driver, int runtime, const char *visible,
                  Err *err)
{
    if (error == ERROR_NO_DEVICE && visible)
        return err_set(err, "CUDA shows no GPU here: CUDA_VISIBLE_DEVICES is '%.60s'", visible);
    if (error == ERROR_NO_DEVICE)
        return err_set(err, "there is an NVIDIA driver, but no GPU that it could use");
    if (error == ERROR_STUB)
        return err_set(err, "the libcuda.so.1 that is found is the toolkit's stub, no driver: "
                            "take its folder out of LD_LIBRARY_PATH");
    if (error == ERROR_OLD_DRIVER && driver == 0)
        return err_set(err, "there is no NVIDIA driver");
    if (error == ERROR_OLD_DRIVER)
        return err_set(err,
                       "the NVIDIA driver is too old: it goes up to CUDA %d.%d, the plugin was "
                       "built with %d.%d",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return err_set(err, "CUDA finds no GPU: %s", text);
}
