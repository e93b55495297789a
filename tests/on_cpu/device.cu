/*
 * device.cu - blocks of fibers, and what a warp does together.
 *
 * A fiber runs until its thread ends, or waits; then the next one runs.  When none can run,
 * a warp whose threads all wait for each other goes on, else the block whose threads all wait
 * at a barrier; else the kernel is wrong.
 *
 * Layouts of ldmatrix and mma.m16n8k16 as in the PTX ISA ("Matrix Fragments for
 * mma.m16n8k16"), written here element by element.
 */
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

enum { WARP_LANES = 32, FIBERS_MAX = 1024, STACK_BYTES = 256 << 10, SHARED_MAX = 227 << 10 };

typedef enum FiberState { FIBER_READY, FIBER_AT_WARP, FIBER_AT_BLOCK, FIBER_DONE } FiberState;

typedef struct AsyncCopy {
    void *to;
    const void *from;
    size_t bytes;
    bool any;
} AsyncCopy;

typedef struct Fiber {
    jmp_buf env;
    ucontext_t context;
    void *stack;
    bool begun;
    FiberState state;
    dim3 thread;
    unsigned meetings;                          /* of its warp so far */
    std::vector<std::vector<AsyncCopy>> copies; /* groups; the last one is open */
} Fiber;

dim3 on_cpu_thread, on_cpu_block, on_cpu_block_dim, on_cpu_grid_dim;

static Fiber fibers[FIBERS_MAX];
static Fiber *running;
static jmp_buf scheduler;
static const std::function<void()> *body;
static const char *kernel_name;
static unsigned given[FIBERS_MAX / WARP_LANES][2][WARP_LANES][ON_CPU_WORDS];
alignas(128) static unsigned char shared_memory[SHARED_MAX];

static void wrong(const char *what)
{
    fprintf(stderr, "on_cpu: kernel %s, block %u %u %u, thread %u %u: %s\n", kernel_name,
            on_cpu_block.x, on_cpu_block.y, on_cpu_block.z, on_cpu_thread.x, on_cpu_thread.y,
            what);
    abort();
}

/* ---- fibers ---- */

static void give_way(FiberState state)
{
    Fiber *f = running;
    f->state = state;
    if (!_setjmp(f->env))
        _longjmp(scheduler, 1);
}

static void live(void)
{
    for (;;) {
        (*body)();
        give_way(FIBER_DONE);
    }
}

static void resume(Fiber *f)
{
    running = f;
    on_cpu_thread = f->thread;
    if (_setjmp(scheduler))
        return;
    if (f->begun)
        _longjmp(f->env, 1);
    f->begun = true;
    f->stack =
        mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    /* Stacks that all end at the same distance would share a few sets of the cache. */
    f->context.uc_stack.ss_size = STACK_BYTES - (size_t)(f - fibers) % 64 * 1088;
    makecontext(&f->context, live, 0);
    setcontext(&f->context);
}

/* Threads [first, end) that wait at `state` go on, if none of them is elsewhere. */
static bool release(unsigned first, unsigned end, FiberState state, bool all)
{
    unsigned n = 0;
    for (unsigned i = first; i < end; i++) {
        n += fibers[i].state == state;
        if (fibers[i].state != state && (all || fibers[i].state != FIBER_DONE))
            return false;
    }
    for (unsigned i = first; i < end; i++)
        if (fibers[i].state == state)
            fibers[i].state = FIBER_READY;
    return n > 0;
}

static bool go_on(unsigned threads)
{
    bool any = false, left = false;
    for (unsigned w = 0; w < threads; w += WARP_LANES) {
        unsigned end = w + WARP_LANES < threads ? w + WARP_LANES : threads;
        any = release(w, end, FIBER_AT_WARP, true) || any;
    }
    any = any || release(0, threads, FIBER_AT_BLOCK, false);
    for (unsigned i = 0; i < threads; i++)
        left = left || fibers[i].state != FIBER_DONE;
    if (left && !any)
        wrong("threads wait for others that do not come");
    return any;
}

static void run_block(unsigned threads)
{
    for (unsigned i = 0; i < threads; i++) {
        Fiber *f = &fibers[i];
        f->state = FIBER_READY;
        f->meetings = 0;
        if (f->copies.size() != 1 || !f->copies[0].empty())
            f->copies.assign(1, std::vector<AsyncCopy>());
        f->thread = dim3(i % on_cpu_block_dim.x, i / on_cpu_block_dim.x % on_cpu_block_dim.y,
                         i / on_cpu_block_dim.x / on_cpu_block_dim.y);
    }
    do {
        for (unsigned i = 0; i < threads; i++)
            if (fibers[i].state == FIBER_READY)
                resume(&fibers[i]);
    } while (go_on(threads));
    for (unsigned i = 0; i < threads; i++)
        for (const std::vector<AsyncCopy> &group : fibers[i].copies)
            if (!group.empty())
                wrong("an asynchronous copy is never waited for");
}

void on_cpu_run(const char *name, dim3 grid, dim3 block, size_t shared_bytes,
                const std::function<void()> &thread)
{
    unsigned threads = block.x * block.y * block.z;
    kernel_name = name;
    body = &thread;
    on_cpu_block_dim = block;
    on_cpu_grid_dim = grid;
    if (threads == 0 || threads > FIBERS_MAX || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.y > 65535 || grid.z > 65535 || grid.x > INT_MAX || shared_bytes > SHARED_MAX)
        wrong("no GPU takes a launch of this size");
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                on_cpu_block = dim3(x, y, z);
                memset(shared_memory, 0xff, shared_bytes);
                run_block(threads);
            }
}

unsigned char *on_cpu_shared(void)
{
    return shared_memory;
}

/* ---- together ---- */

static unsigned thread_number(void)
{
    return (unsigned)(running - fibers);
}

int on_cpu_lane(void)
{
    return (int)(thread_number() % WARP_LANES);
}

void __syncthreads(void)
{
    give_way(FIBER_AT_BLOCK);
}

/* Two tables in turn: whoever writes the next one has read the one before the last. */
const unsigned (*on_cpu_warp(const unsigned mine[8]))[8]
{
    unsigned i = thread_number();
    unsigned(*all)[ON_CPU_WORDS] = given[i / WARP_LANES][running->meetings++ % 2];
    memcpy(all[i % WARP_LANES], mine, sizeof all[0]);
    give_way(FIBER_AT_WARP);
    return all;
}

/* ---- asynchronous copies ---- */

static void copy_async(SharedAt to, const void *from, size_t bytes, bool any)
{
    if ((to | (uintptr_t)from) & (bytes - 1))
        wrong("cp.async is not aligned");
    running->copies.back().push_back(AsyncCopy{ (void *)to, from, bytes, any });
}

void copy16_async(SharedAt to, const void *from, bool any)
{
    copy_async(to, from, 16, any);
}

void copy4_async(SharedAt to, const void *from, bool any)
{
    copy_async(to, from, 4, any);
}

void copies_commit(void)
{
    running->copies.push_back(std::vector<AsyncCopy>());
}

void on_cpu_copies_wait(int left)
{
    std::vector<std::vector<AsyncCopy>> &all = running->copies;
    size_t committed = all.size() - 1;
    for (size_t i = 0; i + (size_t)left < committed; i++) {
        for (const AsyncCopy &c : all[i])
            if (c.any)
                memcpy(c.to, c.from, c.bytes);
            else
                memset(c.to, 0, c.bytes);
        all[i].clear();
    }
}

/* ---- matrices ---- */

static void matrices(unsigned *r, SharedAt row, bool turned)
{
    unsigned words[ON_CPU_WORDS] = { 0 };
    if (row & 15)
        wrong("a row for ldmatrix is not aligned");
    memcpy(words, &row, sizeof row);
    const unsigned(*all)[ON_CPU_WORDS] = on_cpu_warp(words);
    int lane = on_cpu_lane();
    for (int m = 0; m < 4; m++) {
        unsigned short pair[2];
        for (int i = 0; i < 2; i++) {
            int down = turned ? lane % 4 * 2 + i : lane / 4;
            int across = turned ? lane / 4 : lane % 4 * 2 + i;
            const unsigned short *from;
            memcpy(&from, all[m * 8 + down], sizeof from);
            pair[i] = from[across];
        }
        r[m] = pair[0] | (unsigned)pair[1] << 16;
    }
    on_cpu_warp(words); /* nobody writes the rows before all have read them */
}

void load_matrices(unsigned *r, SharedAt row)
{
    matrices(r, row, false);
}

void load_matrices_turned(unsigned *r, SharedAt row)
{
    matrices(r, row, true);
}

static float half_of(unsigned word, int which, bool bf16)
{
    unsigned short bits = (unsigned short)(which ? word >> 16 : word & 0xffff);
    return bf16 ? __uint_as_float((unsigned)bits << 16) : f16_as_float(bits);
}

/* A[row][k]: register (row / 8) + 2 (k / 8) of lane 4 (row % 8) + k % 8 / 2. */
static float a_at(const unsigned (*all)[ON_CPU_WORDS], int row, int k, bool bf16)
{
    return half_of(all[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2, bf16);
}

/* B[k][column]: register k / 8 of lane 4 column + k % 8 / 2. */
static float b_at(const unsigned (*all)[ON_CPU_WORDS], int k, int column, bool bf16)
{
    return half_of(all[column * 4 + k % 8 / 2][4 + k / 8], k % 2, bf16);
}

void on_cpu_multiply(float *c, const unsigned *a, const unsigned *b, bool bf16)
{
    unsigned words[ON_CPU_WORDS] = { a[0], a[1], a[2], a[3], b[0], b[1], 0, 0 };
    const unsigned(*all)[ON_CPU_WORDS] = on_cpu_warp(words);
    int lane = on_cpu_lane();
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++)
            c[i] += a_at(all, row, k, bf16) * b_at(all, k, column, bf16);
    }
}
