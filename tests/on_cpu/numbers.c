/*
 * numbers.c - 16-bit numbers of the stand-in device, by the rules of exec/number.h.
 */
#include "exec/number.h"

unsigned short on_cpu_bf16(float x);
unsigned short on_cpu_f16(float x);
float on_cpu_float(unsigned short x);

unsigned short on_cpu_bf16(float x)
{
    return bf16_of_f32(x);
}

unsigned short on_cpu_f16(float x)
{
    return f16_of_f32(x);
}

float on_cpu_float(unsigned short x)
{
    return f32_of_f16(x);
}
