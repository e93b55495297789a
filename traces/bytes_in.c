/*
 * bytes_in.c - read(2) or a copy, or a thread that inflates into a ring of blocks.  Small gzip
 * files are not worth a thread: they are inflated block by block as they are asked for.
 *
 * The ring has one writer and one reader, each of which owns the blocks between
 * its own counter and the other's; the mutex guards the two counters and flags.
 */
#include "traces/bytes_in.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
    THREAD_BYTES_MIN = 1 << 16,
    PACKED_BYTES = 1 << 16,
    BLOCK_BYTES = 1 << 18,
    BLOCKS_N = 4
};

typedef struct Unpacker {
    bool threaded;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t filled_n, taken_n; /* blocks, ever; filled_n - taken_n <= BLOCKS_N */
    bool ended, stop;
    const char *problem;
    size_t taken_at; /* reader's place in its block */

    BytesSource source;
    z_stream z;
    uint64_t packed_bytes, unpacked_bytes;
    bool between_members;
    uint8_t packed[PACKED_BYTES];
    uint8_t block[BLOCKS_N][BLOCK_BYTES];
    size_t block_n[BLOCKS_N];
} Unpacker;

/* ---- the file ---- */

static size_t copy_some(BytesSource *s, void *into, size_t n)
{
    n = min_u64(n, s->left);
    if (n > 0)
        memcpy(into, s->at, n);
    s->at += n;
    s->left -= n;
    return n;
}

static size_t read_some(BytesSource *s, void *into, size_t n, const char **problem)
{
    if (s->left > 0 || s->fd < 0)
        return copy_some(s, into, n);
    for (;;) {
        ssize_t got = read(s->fd, into, n);
        if (got >= 0)
            return (size_t)got;
        if (errno == EINTR)
            continue;
        *problem = "it cannot be read to its end";
        return 0;
    }
}

/* ---- the thread that unpacks ---- */

/* False at the end of the packed bytes. */
static bool refill(Unpacker *u)
{
    size_t n = read_some(&u->source, u->packed, sizeof u->packed, &u->problem);
    u->packed_bytes += n;
    u->z.next_in = u->packed;
    u->z.avail_in = (uInt)n;
    return n > 0;
}

static bool is_bomb(const Unpacker *u)
{
    return u->unpacked_bytes > BYTES_IN_FREE_BYTES &&
           u->unpacked_bytes / BYTES_IN_RATIO_MAX > u->packed_bytes;
}

/* Between members: whether another one begins. */
static bool next_member(Unpacker *u)
{
    if (u->z.avail_in == 0 && !refill(u))
        return false;
    if (*u->z.next_in != 0x1f)
        return false;
    u->between_members = false;
    return inflateReset(&u->z) == Z_OK;
}

/* One call of inflate; false when there is no more, with u->problem if that is odd. */
static bool inflate_more(Unpacker *u)
{
    if (u->between_members)
        return next_member(u);
    if (u->z.avail_in == 0 && !refill(u)) {
        if (!u->problem)
            u->problem = "it ends in the middle of its gzip data";
        return false;
    }
    int rc = inflate(&u->z, Z_NO_FLUSH);
    if (rc == Z_STREAM_END)
        u->between_members = true;
    else if (rc != Z_OK && rc != Z_BUF_ERROR)
        u->problem = "its gzip data are damaged";
    return !u->problem;
}

/* Fills a block; false when it is the last one. */
static bool fill_block(Unpacker *u, uint8_t *block, size_t *n)
{
    u->z.next_out = block;
    u->z.avail_out = BLOCK_BYTES;
    bool more = true;
    while (more && u->z.avail_out > 0)
        more = inflate_more(u);
    *n = BLOCK_BYTES - u->z.avail_out;
    u->unpacked_bytes += *n;
    if (more && is_bomb(u)) {
        u->problem = "it unpacks to more than 400 times its size, which no trace does";
        return false;
    }
    return more;
}

static void *unpack(void *u_)
{
    Unpacker *u = u_;
    bool more = true;
    while (more) {
        pthread_mutex_lock(&u->lock);
        while (u->filled_n - u->taken_n == BLOCKS_N && !u->stop)
            pthread_cond_wait(&u->changed, &u->lock);
        bool stop = u->stop;
        uint64_t i = u->filled_n % BLOCKS_N;
        pthread_mutex_unlock(&u->lock);
        if (stop)
            return NULL;

        more = fill_block(u, u->block[i], &u->block_n[i]);

        pthread_mutex_lock(&u->lock);
        u->filled_n++;
        u->ended = !more;
        pthread_cond_signal(&u->changed);
        pthread_mutex_unlock(&u->lock);
    }
    return NULL;
}

static Unpacker *unpacker_start(BytesSource source, bool threaded)
{
    Unpacker *u = malloc(sizeof *u);
    ASSERT(u);
    memset(u, 0, offsetof(Unpacker, packed));
    u->source = source;
    ASSERT(inflateInit2(&u->z, 15 + 16) == Z_OK);
    if (!threaded)
        return u;
    ASSERT(pthread_mutex_init(&u->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&u->changed, NULL) == 0);
    u->threaded = pthread_create(&u->thread, NULL, unpack, u) == 0; /* there may be too many */
    return u;
}

static void stop_thread(Unpacker *u)
{
    pthread_mutex_lock(&u->lock);
    u->stop = true;
    pthread_cond_signal(&u->changed);
    pthread_mutex_unlock(&u->lock);
    pthread_join(u->thread, NULL);
    pthread_cond_destroy(&u->changed);
    pthread_mutex_destroy(&u->lock);
}

static void unpacker_stop(Unpacker *u)
{
    if (u->threaded)
        stop_thread(u);
    inflateEnd(&u->z);
    free(u);
}

/* ---- the reader's side ---- */

/* Makes a block where there is none; false at the end. */
static bool make_block(Unpacker *u)
{
    if (u->filled_n == u->taken_n && !u->ended) {
        u->ended = !fill_block(u, u->block[0], &u->block_n[0]);
        u->filled_n++;
    }
    return u->filled_n > u->taken_n;
}

/* Waits until there is a block; false at the end. */
static bool wait_for_block(Unpacker *u)
{
    if (!u->threaded)
        return make_block(u);
    pthread_mutex_lock(&u->lock);
    while (u->filled_n == u->taken_n && !u->ended)
        pthread_cond_wait(&u->changed, &u->lock);
    bool there = u->filled_n > u->taken_n;
    pthread_mutex_unlock(&u->lock);
    return there;
}

static void release_block(Unpacker *u)
{
    if (!u->threaded) {
        u->taken_n++;
        u->taken_at = 0;
        return;
    }
    pthread_mutex_lock(&u->lock);
    u->taken_n++;
    u->taken_at = 0;
    pthread_cond_signal(&u->changed);
    pthread_mutex_unlock(&u->lock);
}

static size_t take(Unpacker *u, void *into, size_t n)
{
    while (wait_for_block(u)) {
        uint64_t i = u->threaded ? u->taken_n % BLOCKS_N : 0;
        size_t left = u->block_n[i] - u->taken_at;
        size_t got = n < left ? n : left;
        memcpy(into, u->block[i] + u->taken_at, got);
        u->taken_at += got;
        if (got == left)
            release_block(u);
        if (got > 0)
            return got;
    }
    return 0;
}

size_t bytes_in_read(BytesIn *b, void *into, size_t n)
{
    if (!b->unpacker)
        return read_some(&b->source, into, n, &b->problem);
    size_t got = take(b->unpacker, into, n);
    if (got == 0)
        b->problem = b->unpacker->problem;
    return got;
}

static bool is_gzip(const uint8_t *head)
{
    return head[0] == 0x1f && head[1] == 0x8b;
}

bool bytes_in_memory(BytesIn *b, const void *bytes, size_t n, const char *name, Err *err)
{
    *b = (BytesIn){ .source = { -1, bytes, n }, .file_bytes = n };
    if (n == 0)
        return err_set(err, "cannot read '%s': it is empty", name);
    if (n >= 2 && is_gzip(bytes))
        b->unpacker = unpacker_start(b->source, n >= THREAD_BYTES_MIN);
    return true;
}

/* bytes_n: how many there are, or more than that. */
static void begin(BytesIn *b, int fd, uint64_t bytes_n)
{
    *b = (BytesIn){ .source = { .fd = fd } };
    size_t n = 0, got = 1;
    while (n < sizeof b->head && got > 0) {
        got = read_some(&b->source, b->head + n, sizeof b->head - n, &b->problem);
        n += got;
    }
    b->source.at = b->head;
    b->source.left = n;
    if (n == sizeof b->head && is_gzip(b->head))
        b->unpacker = unpacker_start(b->source, bytes_n >= THREAD_BYTES_MIN);
}

void bytes_in_fd(BytesIn *b, int fd)
{
    struct stat info;
    bool sized = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    begin(b, fd, sized ? (uint64_t)info.st_size : UINT64_MAX);
}

/* A file descriptor of what can be read again from its beginning, and how long it is; -1 and err
 * for others: what cannot be opened, a directory, a pipe, what is empty. */
static int open_file(const char *path, uint64_t *bytes_n, Err *err)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe may never have a writer */
    if (fd < 0 || fstat(fd, &info) != 0)
        err_set(err, "cannot open '%s': %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        err_set(err, "cannot read '%s': it is a directory", path);
    else if (!S_ISREG(info.st_mode))
        err_set(err, "cannot read '%s': it is not a regular file", path);
    else if (info.st_size == 0)
        err_set(err, "cannot read '%s': it is empty", path);
    else {
        *bytes_n = (uint64_t)info.st_size;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

bool bytes_in_open(BytesIn *b, const char *path, Err *err)
{
    uint64_t bytes_n;
    int fd = open_file(path, &bytes_n, err);
    *b = (BytesIn){ .source = { .fd = fd } };
    if (fd < 0)
        return false;
    begin(b, fd, bytes_n);
    b->file_bytes = bytes_n;
    return true;
}

void bytes_in_close(BytesIn *b)
{
    if (b->unpacker)
        unpacker_stop(b->unpacker);
    if (b->source.fd >= 0)
        close(b->source.fd);
    *b = (BytesIn){ .source = { .fd = -1 } };
}
