/*
 * cuda_runtime.h - the whole of the stand-in runtime is its API.
 */
#include "tests/on_cpu/cuda_runtime_api.h"
