/*
 * cmd_run_cuda.c - finds and loads the CUDA plugin.
 *
 * Looking for the driver first takes a tenth of a millisecond; loading the plugin with
 * all of CUDA's libraries takes long, and its error would name libraries that nobody
 * here has heard of.
 */
#include "exec/cmd_run_cuda.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/own_folder.h"

#ifndef LOCKSTEP_LIB_DIR
#define LOCKSTEP_LIB_DIR "/usr/local/lib/lockstep"
#endif

enum { PATH_CAP = 4096 };

static bool is_there(char path[PATH_CAP], const char *folder)
{
    int n = snprintf(path, PATH_CAP, "%s/%s", folder, CUDA_PLUGIN_FILE);
    return folder[0] && n < PATH_CAP && access(path, R_OK) == 0;
}

/* LOCKSTEP_PLUGIN_DIR alone when it is set; else beside the program, else where it is installed. */
static bool find(char path[PATH_CAP], const char *instead, Err *err)
{
    char own[PATH_CAP];
    const char *given = getenv("LOCKSTEP_PLUGIN_DIR");
    if (given && *given)
        return is_there(path, given) ||
               err_set(err, "LOCKSTEP_PLUGIN_DIR is '%.200s', where there is no %s", given,
                       CUDA_PLUGIN_FILE);
    (void)own_folder(own, sizeof own);
    if (is_there(path, own) || is_there(path, LOCKSTEP_LIB_DIR))
        return true;
    return err_set(err,
                   "there is no %s, neither in '%.200s' nor in '%s': it is built where nvcc "
                   "and NCCL are; %s",
                   CUDA_PLUGIN_FILE, own, LOCKSTEP_LIB_DIR, instead);
}

static bool check_driver(const char *instead, Err *err)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver)
        return err_set(err, "there is no NVIDIA driver on this machine (no libcuda.so.1): %s",
                       instead);
    dlclose(driver);
    return true;
}

bool cuda_plugin_find(const char *instead, Err *err)
{
    char path[PATH_CAP];
    return check_driver(instead, err) && find(path, instead, err);
}

/* Loads the plugin into this process, where it stays until that ends.  By now it was found once:
 * only a rank on another machine may lack it. */
static bool load(const CudaPlugin **plugin, Err *err)
{
    static const char instead[] = "each rank needs it";
    char path[PATH_CAP];
    *plugin = NULL;
    if (!check_driver(instead, err) || !find(path, instead, err))
        return false;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(err, "'%.200s' cannot be loaded: %.600s", path, dlerror());
    const CudaPlugin *found = dlsym(library, CUDA_PLUGIN_SYMBOL);
    if (!found || found->version != CUDA_PLUGIN_VERSION)
        return err_set(err, "'%.200s' belongs to another build of lockstep", path);
    *plugin = found;
    return true;
}

bool cuda_rank(const CudaPlugin **plugin, CudaOptions *cuda, const RunOptions *o,
               const RankPlace *place, Err *err)
{
    *cuda = (CudaOptions){ .loop = o->loop,
                           .rings = o->rings,
                           .graphs = !o->loop && !o->no_graphs,
                           .timeout_s = (double)o->timeout_s };
    return load(plugin, err) && (*plugin)->choose(&cuda->device, place, o->loop, err);
}
