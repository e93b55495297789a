/* fabric_failure.c - one sentence ends the job: the first one, on every rank. */
#include "exec/fabric_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void ring_fd(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one);
    (void)n; /* full: then it is readable already */
}

void service_wake(Fabric *f)
{
    ring_fd(f->service.wake_fd);
}

void fabric_fail(Fabric *f, const char *format, ...)
{
    char text[FAIL_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);

    pthread_mutex_lock(&f->mutex);
    bool first = !atomic_load(&f->failed);
    if (first) {
        memcpy(f->failure, text, sizeof text);
        atomic_store(&f->failed, true);
    }
    pthread_mutex_unlock(&f->mutex);
    if (!first)
        return;
    ring_fd(f->fail_fd);
    service_wake(f);
    memory_wake_all(f);
}

const char *fabric_failure(Fabric *f)
{
    return atomic_load(&f->failed) ? f->failure : NULL;
}

bool fabric_ended(Fabric *f, Err *err)
{
    ASSERT(atomic_load(&f->failed));
    return err_set(err, "%s", f->failure);
}

bool fabric_refuse(Fabric *f, const Err *err)
{
    fabric_fail(f, "%s", err->text);
    return false;
}

bool fabric_lost(Fabric *f, uint32_t rank, const char *what, Err *err)
{
    const int64_t patience_ns = 1000000000;
    int64_t until_ns = net_now_ns() + patience_ns;
    while (!atomic_load(&f->failed) && net_now_ns() < until_ns)
        net_sleep_ns(LOOK_NS);
    fabric_fail(f, "rank %u on '%s' %s", rank, f->meeting.cards[rank].host, what);
    return fabric_ended(f, err);
}

void fabric_abort(Fabric *f, const char *why)
{
    const int64_t patience_ns = 1000000000;
    fabric_fail(f, "%s", why);
    /* The caller may leave at once: let the sentence leave before it. */
    int64_t until_ns = net_now_ns() + patience_ns;
    while (f->service.runs && !atomic_load(&f->service.told) && net_now_ns() < until_ns)
        net_sleep_ns(LOOK_NS);
}
