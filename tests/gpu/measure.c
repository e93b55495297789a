/*
 * measure.c - gpu_measure: every part that needs no more than CUDA and cuBLASLt.
 */
#include "parts.h"

int main(int argc, char **argv)
{
    /* clang-format off */
    static const NamedPart parts[] = {
        { "device",   part_device },
        { "check",    part_check },
        { "gemm",     part_gemm },
        { "gemm-fp8", part_gemm_fp8 },
        { "memory",   part_memory },
        { "overlap",  part_overlap },
        { "launch",   part_launch },
        { "copy",     part_copy },
    };
    /* clang-format on */
    return parts_main(argc, argv, parts, sizeof parts / sizeof parts[0]);
}
