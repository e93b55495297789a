/* out_file.c - write beside, then rename. */
#include "core/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES_MAX = 100, LINKS_MAX = 40 };

static void release(OutFile *o)
{
    free(o->name);
    free(o->target);
    free(o->temporary);
    *o = (OutFile){ 0 };
}

static char *copy_text(const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(mem_resize(NULL, n, 1), text, n);
}

/* Creates TARGET.part-PID-N: the same folder, so that rename stays on one file system. */
static int create_temporary(OutFile *o)
{
    size_t cap = strlen(o->target) + 48;
    o->temporary = mem_resize(NULL, cap, 1);
    for (int i = 0; i < TRIES_MAX; i++) {
        snprintf(o->temporary, cap, "%s.part-%ld-%d", o->target, (long)getpid(), i);
        int fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* Where a path that leads to no file yet would make one: behind its links.  NULL and errno. */
static char *end_of_links(const char *path)
{
    char *at = copy_text(path), link[4096];
    struct stat info;
    for (int i = 0; lstat(at, &info) == 0 && S_ISLNK(info.st_mode); i++) {
        ssize_t n = i < LINKS_MAX ? readlink(at, link, sizeof link - 1) : -1;
        if (n < 0) {
            int why = i < LINKS_MAX ? errno : ELOOP;
            free(at);
            errno = why;
            return NULL;
        }
        link[n] = '\0';
        char *slash = strrchr(at, '/');
        size_t folder = link[0] == '/' || !slash ? 0 : (size_t)(slash - at) + 1;
        at = mem_resize(at, folder + (size_t)n + 1, 1);
        memcpy(at + folder, link, (size_t)n + 1);
    }
    return at;
}

/* The descriptor to write to, -1 and errno on failure. */
static int open_for_writing(OutFile *o, const char *path)
{
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode))
        return open(path, O_WRONLY | O_CLOEXEC); /* EISDIR for a directory */
    if (exists && access(path, W_OK) != 0)
        return -1; /* rename would replace what the user has protected */
    o->target = exists ? realpath(path, NULL) : end_of_links(path);
    if (!o->target)
        return -1;
    int fd = create_temporary(o);
    if (fd >= 0 && exists)
        (void)fchmod(fd, info.st_mode & 0777);
    return fd;
}

static void on_file_limit(int number)
{
    (void)number; /* write says EFBIG */
}

bool out_file_can_open(const char *path, Err *err)
{
    struct stat st;
    OutFile o;
    if (!path || (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
        return true;
    if (!out_file_open(&o, path, err))
        return false;
    out_file_abandon(&o);
    return true;
}

/* A handler, as programs that we start would inherit SIG_IGN. */
void out_file_survive_limits(void)
{
    struct sigaction now;
    if (sigaction(SIGXFSZ, NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
        struct sigaction survive = { .sa_handler = on_file_limit, .sa_flags = SA_RESTART };
        sigaction(SIGXFSZ, &survive, NULL);
    }
}

bool out_file_open(OutFile *o, const char *path, Err *err)
{
    out_file_survive_limits();
    *o = (OutFile){ .name = copy_text(path) };
    int fd = open_for_writing(o, path);
    o->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (o->file)
        return true;
    err_set(err, "cannot create '%s': %s", path, strerror(errno));
    if (fd >= 0) {
        close(fd);
        if (o->temporary)
            unlink(o->temporary);
    }
    release(o);
    return false;
}

bool out_file_write(OutFile *o, const void *bytes, size_t n)
{
    errno = 0;
    if (fwrite(bytes, 1, n, o->file) == n)
        return true;
    if (!o->reason)
        o->reason = errno;
    return false;
}

/* stdio has forgotten why an earlier write failed; the next one fails alike. */
static int ask_again(const OutFile *o)
{
    return write(fileno(o->file), "", 1) < 0 ? errno : 0;
}

bool out_file_commit(OutFile *o, Err *err)
{
    errno = 0;
    bool failed = ferror(o->file) != 0;
    failed |= fflush(o->file) != 0;
    int reason = o->reason ? o->reason : errno;
    if (failed && !reason)
        reason = ask_again(o);
    if (fclose(o->file) != 0 && !failed) { /* network file systems say it only here */
        failed = true;
        reason = errno;
    }
    if (!failed && o->temporary && rename(o->temporary, o->target) != 0) {
        failed = true;
        reason = errno;
    }
    if (failed) {
        err_set(err, "cannot write '%s': %s", o->name,
                reason ? strerror(reason) : "a write failed");
        if (o->temporary)
            unlink(o->temporary);
    }
    release(o);
    return !failed;
}

void out_file_abandon(OutFile *o)
{
    if (o->file)
        fclose(o->file);
    if (o->temporary)
        unlink(o->temporary);
    release(o);
}

bool out_file_is_same(const char *path, const char *other)
{
    struct stat a, b;
    return stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Of the name behind the last slash; false: there is no folder to make the file in. */
static bool stat_folder(const char *path, struct stat *info)
{
    const char *slash = strrchr(path, '/');
    char *folder = copy_text(slash ? path : ".");
    if (slash)
        folder[slash - path + 1] = '\0';
    bool ok = stat(folder, info) == 0;
    free(folder);
    return ok;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool out_file_will_be_same(const char *path, const char *other)
{
    struct stat a, b;
    bool exists = stat(path, &a) == 0 || stat(other, &b) == 0;
    if (exists)
        return out_file_is_same(path, other);
    char *x = end_of_links(path), *y = end_of_links(other);
    bool same = x && y && strcmp(last_name(x), last_name(y)) == 0 && stat_folder(x, &a) &&
                stat_folder(y, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    free(x);
    free(y);
    return same;
}
