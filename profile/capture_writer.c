/*
 * capture_writer.c - CUPTI's buffers, made as they are wanted, and the thread that empties them.
 *
 * CUPTI fills a buffer for each of the program's threads (CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_
 * BUFFER), so it holds many that are almost empty, and clears each one on the program's thread
 * before it fills it: they are many and small, 512 MiB together.  Asked for what is complete it
 * gives back buffers that are not full and wants as many new ones: there are twice as many as a
 * program may well have threads.
 *
 * Once a second the thread asks CUPTI for what is complete, so a crash loses about a second; and at
 * once when CUPTI holds more than half of all there may be.  When no buffer is free CUPTI drops
 * records and counts them; versions that cannot be refused a buffer (before 12.9: API 27) get one
 * more.
 *
 * The thread takes no part in the program's signals.
 */
#include "profile/capture_parts.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "profile/capture_records.h"

enum {
    BUFFER_BYTES = 512 << 10,
    BUFFER_ALIGN = 64,
    BUFFERS_MAX = 1024,
    QUEUE_MAX = 2 * BUFFERS_MAX,
    REFUSABLE_SINCE = 27,
    FLUSH_EVERY_MS = 1000,
    RESCUE_MS = 2000,
    CALLS_MAX = 1024
};

typedef struct Full {
    uint8_t *buffer;
    size_t valid;
} Full;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work;
static struct {
    pthread_t thread;
    bool runs, ending, scarce; /* scarce: what CUPTI has done with is wanted back */
    uint32_t version;
    uint8_t *spare[QUEUE_MAX];
    uint32_t spare_n, made_n;
    Full queue[QUEUE_MAX]; /* a ring */
    uint32_t queue_first, queue_n;
    uint32_t name[2][CALLS_MAX]; /* texts of calls by number, runtime and driver */
} w;
static _Atomic int64_t cpu_ns;
static _Atomic uint64_t refused_n;
static _Atomic int rescue_signal; /* 0 none */
static _Atomic bool rescued;

int64_t writer_cpu_ns(void)
{
    return cpu_ns;
}

uint64_t writer_refused_n(void)
{
    return refused_n;
}

/* ---- CUPTI's callbacks ---- */

/* made: there was no memory for it, and may be next time. */
static void note_refused(bool made)
{
    refused_n++;
    pthread_mutex_lock(&lock);
    w.made_n -= made;
    pthread_mutex_unlock(&lock);
}

static bool may_make_one(void)
{
    return w.made_n < BUFFERS_MAX || (w.version < REFUSABLE_SINCE && w.made_n < QUEUE_MAX);
}

void CUPTIAPI writer_buffer_wanted(uint8_t **buffer, size_t *size, size_t *records_max)
{
    int64_t since_ns = capture_monotonic_ns();
    bool make = false;
    *buffer = NULL;
    pthread_mutex_lock(&lock);
    if (w.spare_n > 0)
        *buffer = w.spare[--w.spare_n];
    else
        make = may_make_one();
    w.made_n += make;
    if (!*buffer && w.made_n - w.queue_n > BUFFERS_MAX / 2) {
        w.scarce = true;
        pthread_cond_signal(&work);
    }
    pthread_mutex_unlock(&lock);
    if (make)
        *buffer = aligned_alloc(BUFFER_ALIGN, BUFFER_BYTES);
    if (!*buffer)
        note_refused(make);
    *size = *buffer ? BUFFER_BYTES : 0;
    *records_max = 0; /* as many as fit */
    capture_add_cost(since_ns);
}

void CUPTIAPI writer_buffer_full(CUcontext context, uint32_t stream, uint8_t *buffer,
                                 size_t size, size_t valid)
{
    int64_t since_ns = capture_monotonic_ns();
    (void)context;
    (void)stream;
    (void)size;
    if (!buffer)
        return;
    pthread_mutex_lock(&lock);
    if (valid == 0) {
        w.spare[w.spare_n++] = buffer;
    } else { /* there is room: no more buffers are ever made than the queue holds */
        w.queue[(w.queue_first + w.queue_n++) % QUEUE_MAX] = (Full){ buffer, valid };
        pthread_cond_signal(&work);
    }
    pthread_mutex_unlock(&lock);
    capture_add_cost(since_ns);
}

/* ---- texts ---- */

static uint32_t text_of(void *user, const char *text)
{
    (void)user;
    return sink_text(text);
}

static uint32_t kernel_of(void *user, const char *name)
{
    (void)user;
    return sink_kernel_name(name ? name : "?");
}

/* "cudaLaunchKernel_v7000" -> "cudaLaunchKernel", "cuLaunchKernel_ptsz" stays. */
static void cut_version(char *name)
{
    char *v = strrchr(name, '_');
    if (v && v[1] == 'v' && v[2] && v[2 + strspn(v + 2, "0123456789")] == '\0')
        *v = '\0';
}

static uint32_t call_of(void *user, bool driver, uint32_t cbid)
{
    (void)user;
    if (cbid < CALLS_MAX && w.name[driver][cbid])
        return w.name[driver][cbid];
    const char *given = NULL;
    char name[128];
    CUpti_CallbackDomain domain =
        driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
    if (cupti.cuptiGetCallbackName(domain, cbid, &given) != CUPTI_SUCCESS || !given)
        given = driver ? "CUDA driver call" : "CUDA call";
    snprintf(name, sizeof name, "%s", given);
    cut_version(name);
    uint32_t id = sink_text(name);
    if (cbid < CALLS_MAX)
        w.name[driver][cbid] = id;
    return id;
}

static const CaptureTexts texts = { NULL, text_of, kernel_of, call_of };

/* ---- the thread ---- */

static void convert_buffer(const Full *full)
{
    CUpti_Activity *record = NULL;
    while (cupti.cuptiActivityGetNextRecord(full->buffer, full->valid, &record) ==
           CUPTI_SUCCESS) {
        RawAny raw;
        if (capture_convert(&raw, record, &texts) > 0)
            sink_put_and_write(&raw.top);
    }
}

/* Asking sets CUPTI's count back to zero. */
static void count_dropped(void)
{
    size_t dropped = 0;
    if (cupti.cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped) == CUPTI_SUCCESS && dropped)
        sink_note_dropped(dropped);
}

static bool take_full(Full *full)
{
    pthread_mutex_lock(&lock);
    bool any = w.queue_n > 0;
    if (any) {
        *full = w.queue[w.queue_first];
        w.queue_first = (w.queue_first + 1) % QUEUE_MAX;
        w.queue_n--;
    }
    pthread_mutex_unlock(&lock);
    return any;
}

static void empty_queue(void)
{
    Full full;
    while (take_full(&full)) {
        convert_buffer(&full);
        pthread_mutex_lock(&lock);
        w.spare[w.spare_n++] = full.buffer;
        pthread_mutex_unlock(&lock);
        count_dropped();
    }
}

static void note_cpu_time(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0)
        cpu_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The process is about to die: what is here already first, then what CUPTI still has. */
static void rescue(void)
{
    sink_note_signal(rescue_signal);
    empty_queue();
    sink_drain();
    (void)cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    empty_queue();
    capture_put_clock();
    sink_drain();
    rescued = true;
}

/* Until there is work, or until_ns. */
static bool wait_for_work(int64_t until_ns)
{
    const struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000),
                                    .tv_nsec = (long)(until_ns % 1000000000) };
    pthread_mutex_lock(&lock);
    int why = 0;
    while (w.queue_n == 0 && !w.ending && !w.scarce && why == 0)
        why = pthread_cond_timedwait(&work, &lock, &until);
    bool ending = w.ending;
    pthread_mutex_unlock(&lock);
    return !ending;
}

static bool take_scarce(void)
{
    pthread_mutex_lock(&lock);
    bool scarce = w.scarce;
    w.scarce = false;
    pthread_mutex_unlock(&lock);
    return scarce;
}

/* A handler may not signal a condition, so the thread looks for signals ten times a second. */
static void *run(void *unused)
{
    const int64_t look_ns = (int64_t)100 * 1000000;
    int64_t flush_ns = capture_monotonic_ns() + (int64_t)FLUSH_EVERY_MS * 1000000;
    (void)unused;
    while (wait_for_work(min_i64(flush_ns, capture_monotonic_ns() + look_ns))) {
        if (rescue_signal && !rescued)
            rescue();
        empty_queue();
        if (!take_scarce() && capture_monotonic_ns() < flush_ns)
            continue;
        (void)cupti.cuptiActivityFlushAll(0);
        empty_queue();
        count_dropped();
        capture_put_clock();
        note_cpu_time();
        sink_drain();
        flush_ns = capture_monotonic_ns() + (int64_t)FLUSH_EVERY_MS * 1000000;
    }
    empty_queue();
    count_dropped();
    note_cpu_time();
    return NULL;
}

/* ---- starting and stopping ---- */

bool writer_start(uint32_t cupti_version, char *why, size_t why_n)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    memset(&w, 0, sizeof w);
    w.version = cupti_version;
    rescue_signal = 0;
    rescued = false;
    cpu_ns = 0;
    refused_n = 0;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w.thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w.runs = rc == 0;
    if (rc)
        snprintf(why, why_n, "cannot start the collector's thread: %s", strerror(rc));
    return w.runs;
}

void writer_stop(void)
{
    if (!w.runs)
        return;
    pthread_mutex_lock(&lock);
    w.ending = true;
    pthread_cond_signal(&work);
    pthread_mutex_unlock(&lock);
    pthread_join(w.thread, NULL);
    w.runs = false;
    for (uint32_t i = 0; i < w.spare_n; i++)
        free(w.spare[i]);
    w.spare_n = w.made_n = 0; /* what CUPTI still holds stays with it */
}

void writer_rescue(int number)
{
    const struct timespec little = { .tv_nsec = 10 * 1000000 };
    int none = 0;
    if (!w.runs || pthread_equal(pthread_self(), w.thread) ||
        !atomic_compare_exchange_strong(&rescue_signal, &none, number))
        return;
    for (int waited_ms = 0; waited_ms < RESCUE_MS && !rescued; waited_ms += 10)
        nanosleep(&little, NULL);
}
