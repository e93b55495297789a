/* progress.c - draws at most ten times a second, whole lines only. */
#include "sim/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/now.h"

enum { BAR = 40 };

#define AFTER_NS ((int64_t)2000000000)
#define EVERY_NS ((int64_t)100000000)

void progress_open_on(Progress *p, int fd, int64_t after_ns, int64_t every_ns)
{
    *p = (Progress){ .fd = fd, .after_ns = after_ns, .every_ns = every_ns };
    pthread_mutex_init(&p->lock, NULL);
    p->start_ns = now_ns();
}

void progress_open(Progress *p)
{
    progress_open_on(p, isatty(STDERR_FILENO) ? STDERR_FILENO : -1, AFTER_NS, EVERY_NS);
}

/* One write a line, so that it is never torn.  A bar that cannot be drawn is no error. */
static void put(const Progress *p, const char *text)
{
    ssize_t n = write(p->fd, text, strlen(text));
    (void)n;
}

static void draw(Progress *p)
{
    char bar[BAR + 1], line[160], which[64] = "";
    double share = p->parts_n ? (p->done_n + p->running) / p->parts_n : 0;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    int full = (int)(share * BAR);
    for (int i = 0; i < BAR; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR] = '\0';
    if (p->parts_n > 1)
        snprintf(which, sizeof which, "%" PRIu32 " of %" PRIu32 " scenarios ", p->done_n,
                 p->parts_n);
    snprintf(line, sizeof line, "\r\033[Ksimulating %s[%s] %3.0f %%", which, bar, 100 * share);
    put(p, line);
}

static void draw_if_due(Progress *p)
{
    int64_t now = now_ns();
    if (p->fd < 0 || now - p->start_ns < p->after_ns ||
        (p->drawn_ns && now - p->drawn_ns < p->every_ns))
        return;
    p->drawn_ns = now;
    draw(p);
}

void progress_expect(Progress *p, uint32_t parts_n)
{
    pthread_mutex_lock(&p->lock);
    p->parts_n += parts_n;
    pthread_mutex_unlock(&p->lock);
}

void progress_part(void *user, double fraction)
{
    ProgressPart *part = user;
    Progress *p = part->of;
    pthread_mutex_lock(&p->lock);
    p->running += fraction - part->fraction;
    part->fraction = fraction;
    draw_if_due(p);
    pthread_mutex_unlock(&p->lock);
}

void progress_end(ProgressPart *part)
{
    Progress *p = part->of;
    pthread_mutex_lock(&p->lock);
    p->running -= part->fraction;
    part->fraction = 0;
    p->done_n++;
    draw_if_due(p);
    pthread_mutex_unlock(&p->lock);
}

void progress_close(Progress *p)
{
    if (p->fd >= 0 && p->drawn_ns)
        put(p, "\r\033[K");
    pthread_mutex_destroy(&p->lock);
}
