/* unpack.c - maps a file, after unpacking it where it is packed. */
#include "traces/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/temporary.h"
#include "traces/bytes_in.h"

enum { CHUNK_BYTES = 1 << 16 };

static bool refuse(const char *path, const char *why, Err *err)
{
    return err_set(err, "cannot read '%s': %s", path, why);
}

static bool map(Unpacked *u, int fd, const char *path, uint64_t n, Err *err)
{
    if (n == 0)
        return refuse(path, "it is empty", err);
    void *at = n > SIZE_MAX ? MAP_FAILED
                            : mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return refuse(path, strerror(errno), err);
    *u = (Unpacked){ at, n };
    return true;
}

static bool write_all(int fd, const uint8_t *bytes, size_t n)
{
    while (n > 0) {
        ssize_t wrote = write(fd, bytes, n);
        if (wrote < 0)
            return false;
        bytes += wrote;
        n -= (size_t)wrote;
    }
    return true;
}

/* *n bytes, unpacked, to the file `to`. */
static bool copy_unpacked(BytesIn *in, int to, const char *path, uint64_t bytes_max,
                          uint64_t *n, Err *err)
{
    uint8_t *chunk = mem_resize(NULL, CHUNK_BYTES, 1);
    size_t got;
    bool ok = true;
    while (ok && (got = bytes_in_read(in, chunk, CHUNK_BYTES)) > 0) {
        *n += (uint64_t)got;
        if (*n > bytes_max)
            ok = err_set(err, "cannot read '%s': it unpacks to more than %" PRIu64 " bytes",
                         path, bytes_max);
        else if (!write_all(to, chunk, got))
            ok = err_set(err, "cannot unpack '%s' into a temporary file: %s", path,
                         strerror(errno));
    }
    if (ok && bytes_in_problem(in))
        ok = refuse(path, bytes_in_problem(in), err);
    free(chunk);
    return ok;
}

/* Closes fd. */
static bool open_packed(Unpacked *u, int fd, const char *path, uint64_t bytes_max, Err *err)
{
    BytesIn in;
    bytes_in_fd(&in, fd);
    int temporary = temporary_open("unpacked");
    uint64_t n = 0;
    bool ok = temporary >= 0 ? copy_unpacked(&in, temporary, path, bytes_max, &n, err)
                             : err_set(err, "cannot unpack '%s' into a temporary file: %s",
                                       path, strerror(errno));
    ok = ok && map(u, temporary, path, n, err);
    bytes_in_close(&in);
    if (temporary >= 0)
        close(temporary);
    return ok;
}

static bool is_gzip(int fd)
{
    uint8_t head[2] = { 0 };
    return pread(fd, head, 2, 0) == 2 && head[0] == 0x1f && head[1] == 0x8b;
}

bool unpack_open(Unpacked *u, const char *path, uint64_t bytes_max, Err *err)
{
    *u = (Unpacked){ 0 };
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        err_set(err, "cannot open '%s': %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    if (S_ISREG(info.st_mode) && !is_gzip(fd)) {
        bool ok = map(u, fd, path, (uint64_t)info.st_size, err);
        close(fd);
        return ok;
    }
    if (S_ISDIR(info.st_mode)) {
        close(fd);
        return refuse(path, "it is a directory", err);
    }
    return open_packed(u, fd, path, bytes_max, err);
}

void unpack_close(Unpacked *u)
{
    if (u->bytes)
        munmap(u->bytes, (size_t)u->n);
    *u = (Unpacked){ 0 };
}
