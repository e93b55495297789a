/*
 * cuda_mma.cuh - products of 16-bit tiles on tensor cores, and how tiles come to lie.
 *
 * A tile is rows of WIDTH numbers in shared memory, as 16-byte chunks whose place in the row
 * is xored with the row's number, so that ldmatrix meets no bank conflict.  Tiles begin at
 * multiples of 128 bytes: what lane i reads at column c is (its row's place) ^ c, so one
 * register serves a whole tile, and rows are in the instruction.
 *
 * A warp has M fragments of 16 rows: whatever of the other side it reads serves M products.
 * A block is four warps.
 *
 * FRAGMENTS (PTX ISA, mma.m16n8k16).  With g = lane / 4, t = lane % 4:
 *     A  16 x 16   a0 (g, 2t..)  a1 (g + 8, 2t..)  a2 (g, 2t + 8..)  a3 (g + 8, 2t + 8..)
 *     B  16 x 8    b0 (2t.., g)  b1 (2t + 8.., g)
 *     C  16 x 8    c0 c1 (g, 2t..)   c2 c3 (g + 8, 2t..)
 * so C of two neighbours, rounded, is A of the next product.
 */
#ifndef LOCKSTEP_EXEC_CUDA_MMA_CUH
#define LOCKSTEP_EXEC_CUDA_MMA_CUH

#include "exec/cuda_device.cuh"

enum { WARPS = 4, THREADS = WARPS * WARP };

typedef unsigned short Half; /* the bits of an f16 or bf16 */

/* ---- the instructions (on a CPU: tests/on_cpu/device.h) ---- */

#ifndef CUDA_ON_CPU
typedef unsigned SharedAt; /* an address in shared memory */

static __device__ __forceinline__ SharedAt shared_at(const void *p)
{
    return (SharedAt)__cvta_generic_to_shared(p);
}

/* 16 or 4 bytes to shared memory, later; zeros where there is nothing to read. */
static __device__ __forceinline__ void copy16_async(SharedAt to, const void *from, bool any)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(any ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void copy4_async(SharedAt to, const void *from, bool any)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(any ? 4 : 0)
                 : "memory");
}
static __device__ __forceinline__ void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until all but the newest `left` groups are there. */
template <int left> static __device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

/* Four 8 x 8 matrices; lane i has the address of row i % 8 of matrix i / 8. */
static __device__ __forceinline__ void load_matrices(unsigned *r, SharedAt row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}
static __device__ __forceinline__ void load_matrices_turned(unsigned *r, SharedAt row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

#define MULTIPLY(type) \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 " \
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

/* x, and what follows from it is computed anew, and not kept in registers from before. */
static __device__ __forceinline__ uint32_t anew(uint32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* c += a b */
template <bool BF16>
static __device__ __forceinline__ void multiply(float *c, const unsigned *a, const unsigned *b)
{
    if (BF16)
        MULTIPLY("bf16");
    else
        MULTIPLY("f16");
}
#endif

template <bool BF16> static __device__ __forceinline__ unsigned pack(float low, float high)
{
    return BF16 ? pack_bf16(low, high) : pack_f16(low, high);
}

/* The compiler sees that all lanes have the same. */
static __device__ __forceinline__ uint32_t warp_of_block(void)
{
    return __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0);
}

/* ---- rows of a head, and tiles of them ---- */

/* Row i is at `at` + i stride; where rows lie in chunks, `jump` further for each chunk. */
typedef struct Rows {
    Half *at;
    uint32_t stride, n, chunk;
    u64 jump;
} Rows;

static __device__ __forceinline__ Half *row_at(const Rows &rows, uint32_t i)
{
    u64 jump = rows.chunk < rows.n ? i / rows.chunk * rows.jump : 0;
    return rows.at + (u64)i * rows.stride + jump;
}

template <int WIDTH> static __device__ __host__ constexpr int tile_bytes(int rows)
{
    return rows * WIDTH * (int)sizeof(Half);
}

/* Rows first .. first + N of TILES arrays alike but for where they lie and their strides; their
 * tiles are `apart` bytes from each other; zeros past the end.  Seldom are N in two chunks. */
template <int WIDTH, int N, int TILES>
static __device__ __forceinline__ void load_tiles(SharedAt tile, int apart, const Rows *rows,
                                                  uint32_t first)
{
    const int chunks = WIDTH / EIGHT, step = THREADS / chunks, steps = N / step;
    uint32_t thread = anew(threadIdx.x), n = rows->n, chunk = rows->chunk;
    uint32_t down = thread / chunks, across = thread % chunks, row = first + down;
    SharedAt to = tile + (down * chunks + (across ^ down % EIGHT)) * 16;
    uint32_t part = chunk < n ? first / chunk : 0;
    if (chunk >= n || first - part * chunk + N <= chunk) {
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const Half *from = rows[i].at + part * rows[i].jump + across * EIGHT;
            from += (u64)row * rows[i].stride;
#pragma unroll
            for (int j = 0; j < steps; j++, from += (u64)step * rows[i].stride)
                copy16_async(to + i * apart + j * tile_bytes<WIDTH>(step), from,
                             row + j * step < n);
        }
        return;
    }
#pragma unroll 1
    for (int j = 0; j < steps; j++, row += step, to += tile_bytes<WIDTH>(step))
#pragma unroll
        for (int i = 0; i < TILES; i++)
            copy16_async(to + i * apart, row_at(rows[i], row < n ? row : 0) + across * EIGHT,
                         row < n);
}

/* Rows [first, first + 16 M) from what came out, times `by`. */
template <int WIDTH, int M, bool BF16>
static __device__ __forceinline__ void put_rows(float (*c)[WIDTH / 8][4], const Rows &rows,
                                                uint32_t first, const float *by)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        uint32_t row = first + g + r * 8;
        if (row >= rows.n)
            continue;
        Half *to = row_at(rows, row) + 2 * t;
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
            const float *from = &c[r / 2][n][r % 2 * 2];
            *(unsigned *)(to + n * 8) = pack<BF16>(from[0] * by[r], from[1] * by[r]);
        }
    }
}

/* ---- products ---- */

/* Where this lane's row of ldmatrix is in a tile, of matrices 0 .. 3 that lie
 *     0 2        of A, and      0 1     of B that is
 *     1 3        of B turned    2 3     not turned
 * A place that is not kept is worked out anew, where registers are few. */
template <int WIDTH, bool ACROSS> static __device__ __forceinline__ unsigned place(bool kept)
{
    unsigned thread = kept ? threadIdx.x : anew(threadIdx.x), in = thread % EIGHT;
    unsigned odd = thread / EIGHT % 2, late = thread / EIGHT / 2 % 2;
    unsigned down = ACROSS ? late : odd, by = ACROSS ? odd : late;
    return (down * EIGHT + in) * tile_bytes<WIDTH>(1) + (by ^ in) * 16;
}
template <int WIDTH> static __device__ __forceinline__ unsigned place_down(bool kept = true)
{
    return place<WIDTH, false>(kept);
}
template <int WIDTH> static __device__ __forceinline__ unsigned place_across(bool kept = true)
{
    return place<WIDTH, true>(kept);
}

/* `row` (of eights) and `column` (of sixteens) of a tile, from a place in it. */
template <int WIDTH>
static __device__ __forceinline__ SharedAt matrix_at(SharedAt place, int row, int column)
{
    return (place ^ (SharedAt)(column % 64 * 2)) + tile_bytes<WIDTH>(row) + column / 64 * 128;
}

/* A: 16 M rows of a tile, in registers from the beginning if KEPT. */
template <int WIDTH, int M, bool KEPT> struct Left {
    SharedAt place;
    unsigned kept[KEPT ? WIDTH / 16 : 1][M][4];
};

template <int WIDTH, int M, bool KEPT>
static __device__ __forceinline__ void left_fragments(const Left<WIDTH, M, KEPT> &a, int k,
                                                      unsigned (*to)[4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
        load_matrices(to[m], matrix_at<WIDTH>(a.place, m * 16, k * 16));
}

template <int WIDTH, int M, bool KEPT>
static __device__ __forceinline__ void left_begin(Left<WIDTH, M, KEPT> *a, SharedAt tile)
{
    a->place = tile + place_down<WIDTH>();
    if (KEPT)
#pragma unroll
        for (int k = 0; k < WIDTH / 16; k++)
            left_fragments(*a, k, a->kept[KEPT ? k : 0]);
}

/* c += a b^T, 16 M x 8 N: of b the first 8 N rows from its place across. */
template <int WIDTH, int M, int N, bool KEPT, bool BF16>
static __device__ __forceinline__ void by_rows(float (*c)[N][4], const Left<WIDTH, M, KEPT> &a,
                                               SharedAt b)
{
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) {
        unsigned fa[M][4], fb[4];
        if (!KEPT)
            left_fragments(a, k, fa);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            load_matrices(fb, matrix_at<WIDTH>(b, n * 8, k * 16));
#pragma unroll
            for (int m = 0; m < M; m++) {
                const unsigned *left = KEPT ? a.kept[KEPT ? k : 0][m] : fa[m];
                multiply<BF16>(c[m][n], left, fb);
                multiply<BF16>(c[m][n + 1], left, fb + 2);
            }
        }
    }
}

/* c += p b: p, 16 M x 8 N as by_rows left it, is rounded; b has 8 N rows from its place down. */
template <int WIDTH, int M, int N, bool BF16>
static __device__ __forceinline__ void by_columns(float (*c)[WIDTH / 8][4], float (*p)[N][4],
                                                  SharedAt b)
{
#pragma unroll
    for (int k = 0; k < N; k += 2) {
        unsigned fa[M][4], fb[4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                fa[m][i] =
                    pack<BF16>(p[m][k + i / 2][i % 2 * 2], p[m][k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n += 2) {
            load_matrices_turned(fb, matrix_at<WIDTH>(b, k * 8, n * 8));
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply<BF16>(c[m][n], fa[m], fb);
                multiply<BF16>(c[m][n + 1], fa[m], fb + 2);
            }
        }
    }
}

#endif
