/*
 * fake_driver.c - a stand-in for libcuda.so.1: when it is initialised it loads the tool that
 * CUDA_INJECTION64_PATH names, as the driver does.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void fake_init(void);

void fake_init(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *tool = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *at = tool ? dlsym(tool, "InitializeInjection") : NULL;
    int (*inject)(void);
    memcpy(&inject, &at, sizeof inject);
    if (at)
        inject();
}
