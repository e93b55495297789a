/*
 * kernels.cu - two kernels that tests/gpu/profile/traced.c launches: one that lasts, one that
 * does next to nothing.
 */

__global__ void traced_spin(long long ns)
{
    long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < ns);
}

__global__ void traced_touch(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] += 1.0f;
}

extern "C" void launch_spin(long long ns, void *stream)
{
    traced_spin<<<1, 1, 0, (cudaStream_t)stream>>>(ns);
}

extern "C" void launch_touch(float *x, int n, void *stream)
{
    traced_touch<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, n);
}
