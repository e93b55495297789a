/*
 * capture_sink.c - records wait in one of two blocks of memory until the writer's thread
 * writes that block to the file; meanwhile the other one fills.
 *
 * A program's thread that finds no room does not wait: the record is counted as lost.  When
 * the file cannot grow (a full disk), it is cut back to its last whole batch, nothing more is
 * written, and the head, whose place in the file exists already, says why.
 */
#include "profile/capture_parts.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4 << 20 };

typedef struct Block {
    uint8_t *bytes;
    size_t n;
    uint64_t records_n;
} Block;

typedef struct Known {
    uint64_t hash; /* 0: free */
    uint32_t id;
    char *text; /* with a letter in front: what kind of text it is */
} Known;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int fd;
    RawHead head;
    off_t file_bytes;
    Block block[2];
    int filling; /* of the two */
    bool failed; /* the file could not grow */

    Known *known;
    uint32_t known_n, known_cap, texts_n;
} sink = { .fd = -1 };

/* ---- texts ---- */

static uint64_t hash_of(char kind, const char *text)
{
    uint64_t h = 0xcbf29ce484222325u ^ (uint8_t)kind;
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 0x100000001b3u;
    return mix_u64(h) | 1;
}

static Known *slot_of(Known *table, uint32_t cap, uint64_t hash, char kind, const char *text)
{
    uint32_t i = (uint32_t)(hash >> 8) & (cap - 1);
    while (table[i].hash != 0 && (table[i].hash != hash || table[i].text[0] != kind ||
                                  strcmp(table[i].text + 1, text) != 0))
        i = (i + 1) & (cap - 1);
    return &table[i];
}

static bool grow_known(void)
{
    uint32_t cap = sink.known_cap ? 2 * sink.known_cap : 1024;
    Known *table = calloc(cap, sizeof *table);
    if (!table)
        return false;
    for (uint32_t i = 0; i < sink.known_cap; i++) {
        const Known *k = &sink.known[i];
        if (k->hash)
            *slot_of(table, cap, k->hash, k->text[0], k->text + 1) = *k;
    }
    free(sink.known);
    sink.known = table;
    sink.known_cap = cap;
    return true;
}

/* Under the lock.  false: no room. */
static bool append(const void *record, size_t n)
{
    Block *b = &sink.block[sink.filling];
    if (sink.failed || sink.fd < 0 || BLOCK_BYTES - b->n < n) {
        sink.head.unwritten_n++;
        return false;
    }
    memcpy(b->bytes + b->n, record, n);
    b->n += n;
    b->records_n++;
    return true;
}

static void append_text(uint32_t id, const char *text)
{
    _Alignas(8) char record[sizeof(RawTop) + RAW_TEXT_BYTES_MAX + 8] = { 0 };
    size_t n = strlen(text);
    if (n > RAW_TEXT_BYTES_MAX - 1)
        n = RAW_TEXT_BYTES_MAX - 1;
    size_t bytes = (sizeof(RawTop) + n + 8) / 8 * 8; /* with at least one NUL */
    const RawTop top = { RAW_TEXT, (uint16_t)bytes, id };
    memcpy(record, &top, sizeof top);
    memcpy(record + sizeof top, text, n);
    append(record, bytes);
}

typedef char *Demangle(const char *name, char *buffer, size_t *n, int *status);

/* libstdc++'s, if the program has it or it can be loaded; NULL: names stay mangled. */
static Demangle *demangler(void)
{
    static Demangle *found;
    static bool looked;
    if (!looked) {
        void *at = dlsym(NULL, "__cxa_demangle"); /* NULL: RTLD_DEFAULT */
        void *library = at ? NULL : dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
        if (library)
            at = dlsym(library, "__cxa_demangle");
        memcpy(&found, &at, sizeof found);
        looked = true;
    }
    return found;
}

/* Under the lock: the number of a text, written when it is new. */
static uint32_t text_id(char kind, const char *text)
{
    if (2 * sink.known_n >= sink.known_cap && !grow_known())
        return 0;
    uint64_t hash = hash_of(kind, text);
    Known *k = slot_of(sink.known, sink.known_cap, hash, kind, text);
    if (k->hash)
        return k->id;
    size_t n = strlen(text);
    char *copy = malloc(n + 2);
    if (!copy)
        return 0;
    copy[0] = kind;
    memcpy(copy + 1, text, n + 1);
    *k = (Known){ hash, ++sink.texts_n, copy };
    sink.known_n++;
    char *plain = NULL;
    int status = -1;
    if (kind == 'k' && strncmp(text, "_Z", 2) == 0 && demangler())
        plain = demangler()(text, NULL, NULL, &status);
    append_text(k->id, plain ? plain : text);
    free(plain);
    return k->id;
}

static uint32_t locked_text_id(char kind, const char *text)
{
    if (!text)
        return 0;
    pthread_mutex_lock(&lock);
    uint32_t id = sink.fd >= 0 ? text_id(kind, text) : 0;
    pthread_mutex_unlock(&lock);
    return id;
}

uint32_t sink_text(const char *text)
{
    return locked_text_id('t', text);
}

uint32_t sink_kernel_name(const char *mangled)
{
    return locked_text_id('k', mangled);
}

/* ---- records ---- */

void sink_put(const RawTop *record)
{
    pthread_mutex_lock(&lock);
    append(record, record->bytes);
    pthread_mutex_unlock(&lock);
}

void sink_put_and_write(const RawTop *record)
{
    pthread_mutex_lock(&lock);
    /* Texts of the next record need room too. */
    bool room = BLOCK_BYTES - sink.block[sink.filling].n >= 4u * RAW_TEXT_BYTES_MAX;
    append(record, record->bytes);
    pthread_mutex_unlock(&lock);
    if (!room)
        sink_drain();
}

/* As much of it at its place as goes; why: 0, or errno of what does not. */
static size_t write_all(const uint8_t *bytes, size_t n, off_t at, int *why)
{
    size_t done = 0;
    *why = 0;
    while (done < n && !*why) {
        ssize_t wrote = pwrite(sink.fd, bytes + done, n - done, at + (off_t)done);
        if (wrote > 0)
            done += (size_t)wrote;
        else if (wrote == 0 || errno != EINTR)
            *why = wrote < 0 ? errno : EIO;
    }
    return done;
}

/* Cuts a block to the whole records within its first n bytes. */
static void cut_block(Block *b, size_t n)
{
    size_t at = 0;
    uint64_t records_n = 0;
    for (;;) {
        RawTop top;
        if (n - at < sizeof top)
            break;
        memcpy(&top, b->bytes + at, sizeof top);
        if (top.bytes > n - at)
            break;
        at += top.bytes;
        records_n++;
    }
    b->n = at;
    b->records_n = records_n;
}

static void write_head(void)
{
    pthread_mutex_lock(&lock);
    sink.head.callback_ns = capture_cost_ns();
    sink.head.writer_ns = writer_cpu_ns();
    sink.head.refused_n = writer_refused_n();
    RawHead head = sink.head;
    pthread_mutex_unlock(&lock);
    int why;
    (void)write_all((const uint8_t *)&head, sizeof head, 0, &why);
}

void sink_drain(void)
{
    pthread_mutex_lock(&lock);
    Block *full = &sink.block[sink.filling];
    sink.filling = !sink.filling; /* the other one is empty: only this thread empties */
    bool failed = sink.failed;
    pthread_mutex_unlock(&lock);

    int why = 0;
    uint64_t lost_n = failed ? full->records_n : 0;
    if (!failed) {
        uint64_t records_n = full->records_n;
        size_t done = write_all(full->bytes, full->n, sink.file_bytes, &why);
        if (why)
            cut_block(full, done);
        lost_n = records_n - full->records_n;
        sink.file_bytes += (off_t)full->n;
    }
    if (why)
        (void)!ftruncate(sink.fd, sink.file_bytes);

    pthread_mutex_lock(&lock);
    if (why) {
        sink.failed = true;
        sink.head.write_errno = (uint32_t)why;
    }
    sink.head.unwritten_n += lost_n;
    sink.head.records_n += failed ? 0 : full->records_n;
    full->n = 0;
    full->records_n = 0;
    pthread_mutex_unlock(&lock);
    write_head();
}

void sink_note_dropped(uint64_t n)
{
    pthread_mutex_lock(&lock);
    sink.head.dropped_n += n;
    pthread_mutex_unlock(&lock);
}

void sink_note_signal(int number)
{
    sink.head.signal = (uint32_t)number; /* its thread waits for the writer's, which reads it */
}

void sink_note_version(uint32_t cupti_version)
{
    pthread_mutex_lock(&lock);
    sink.head.cupti_version = cupti_version;
    pthread_mutex_unlock(&lock);
}

/* ---- the file ---- */

static void free_all(void)
{
    for (uint32_t i = 0; i < sink.known_cap; i++)
        free(sink.known[i].text);
    free(sink.known);
    for (int i = 0; i < 2; i++) {
        free(sink.block[i].bytes);
        sink.block[i] = (Block){ 0 };
    }
    sink.known = NULL;
    sink.known_n = sink.known_cap = sink.texts_n = 0;
    sink.fd = -1;
}

bool sink_open(const char *path, const RawHead *head, char *why, size_t why_n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
        snprintf(why, why_n, "cannot write '%s': %s", path, strerror(errno));
        return false;
    }
    sink.block[0].bytes = malloc(BLOCK_BYTES);
    sink.block[1].bytes = malloc(BLOCK_BYTES);
    sink.head = *head;
    sink.fd = fd;
    int reason = sink.block[0].bytes && sink.block[1].bytes ? 0 : ENOMEM;
    if (!reason)
        (void)write_all((const uint8_t *)head, sizeof *head, 0, &reason);
    if (reason) {
        snprintf(why, why_n, "cannot write '%s': %s", path, strerror(reason));
        close(fd);
        unlink(path);
        free_all();
        return false;
    }
    sink.file_bytes = RAW_HEAD_BYTES;
    sink.failed = false;
    sink.filling = 0;
    return true;
}

void sink_close(bool ended, int64_t writer_ns, CaptureTotals *totals)
{
    sink_drain();
    pthread_mutex_lock(&lock);
    if (ended)
        sink.head.flags |= RAW_ENDED;
    sink.head.writer_ns = writer_ns;
    *totals = (CaptureTotals){ .records_n = sink.head.records_n,
                               .dropped_n = sink.head.dropped_n,
                               .unwritten_n = sink.head.unwritten_n,
                               .callback_ns = capture_cost_ns(),
                               .writer_ns = writer_ns };
    pthread_mutex_unlock(&lock);
    write_head();
    pthread_mutex_lock(&lock);
    close(sink.fd);
    free_all();
    pthread_mutex_unlock(&lock);
}

void sink_forget(void)
{
    if (sink.fd >= 0)
        close(sink.fd);
    sink.fd = -1; /* the lock may be held by a thread that is not here: never taken again */
}
