/* file_text.c - reads to the end, and keeps what cannot be read twice. */
#include "core/file_text.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base.h"

typedef struct Kept {
    char *path, *text;
    size_t bytes;
    char *why; /* it could not be read; NULL: it could */
} Kept;

static struct {
    pthread_mutex_t lock;
    Kept *at;
    uint32_t n, cap;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

static char *copy_of(const char *bytes, size_t n)
{
    char *copy = mem_zero(n + 1, 1);
    memcpy(copy, bytes, n);
    return copy;
}

static bool read_on(FILE *f, const char *path, size_t bytes_max, char **text, size_t *bytes,
                    Err *err)
{
    size_t cap = 0, got = 1;
    *text = NULL;
    *bytes = 0;
    while (got > 0 && *bytes <= bytes_max) {
        if (*bytes == cap) {
            cap = cap ? 2 * cap : 65536;
            *text = mem_resize(*text, cap, 1);
        }
        got = fread(*text + *bytes, 1, cap - *bytes, f);
        *bytes += got;
    }
    bool ok =
        *bytes <= bytes_max || err_set(err, "%s: larger than %zu MiB", path, bytes_max >> 20);
    if (ok && ferror(f))
        ok = err_set(err, "cannot read '%s': %s", path, strerror(errno));
    if (!ok) {
        free(*text);
        *text = NULL;
    }
    return ok;
}

static bool read_file(const char *path, size_t bytes_max, char **text, size_t *bytes, Err *err)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return err_set(err, "cannot open '%s': %s", path, strerror(errno));
    bool ok = read_on(f, path, bytes_max, text, bytes, err);
    fclose(f);
    return ok;
}

static const Kept *find_kept(const char *path)
{
    for (uint32_t i = 0; i < kept.n; i++)
        if (strcmp(kept.at[i].path, path) == 0)
            return &kept.at[i];
    return NULL;
}

static const Kept *keep(const char *path, size_t bytes_max)
{
    Kept k = { .path = copy_of(path, strlen(path)) };
    Err why = { 0 };
    if (!read_file(path, bytes_max, &k.text, &k.bytes, &why))
        k.why = copy_of(why.text, strlen(why.text));
    GROW(kept.at, kept.n, kept.cap);
    kept.at[kept.n] = k;
    return &kept.at[kept.n++];
}

/* Another thread that wants the same pipe waits, and finds what it held. */
static bool read_once(const char *path, size_t bytes_max, char **text, size_t *bytes, Err *err)
{
    pthread_mutex_lock(&kept.lock);
    const Kept *k = find_kept(path);
    k = k ? k : keep(path, bytes_max);
    bool ok = !k->why || err_set(err, "%s", k->why);
    if (ok) {
        *text = copy_of(k->text, k->bytes);
        *bytes = k->bytes;
    }
    pthread_mutex_unlock(&kept.lock);
    return ok;
}

bool file_text_read(const char *path, size_t bytes_max, char **text, size_t *bytes, Err *err)
{
    struct stat info;
    bool once = stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
    return once ? read_once(path, bytes_max, text, bytes, err)
                : read_file(path, bytes_max, text, bytes, err);
}
