/* shared.c - memfd, futex, SCM_RIGHTS and pidfd, which only Linux has. */
#define _GNU_SOURCE
#include "exec/shared.h"

#include "exec/free_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* ---- memory ---- */

static int take(uint64_t bytes, uint64_t first, Err *err)
{
    const double gib = (double)GIB;
    uint64_t left = free_memory_bytes();
    if (bytes > INT64_MAX || bytes - first + SHARED_BESIDES_BYTES > left) {
        err_set(err, "a rank needs %.3g GiB of memory, %.3g GiB are free here",
                (double)bytes / gib, (double)left / gib);
        return -1;
    }
    int fd = memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool ok = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0;
    if (ok && bytes > first)
        ok = fallocate(fd, 0, (off_t)first, (off_t)(bytes - first)) == 0;
    /* Nobody can make it shorter under those who have mapped it. */
    ok = ok && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
    if (ok)
        return fd;
    err_set(err, "cannot allocate %.3g GiB of shared memory: %s", (double)bytes / gib,
            strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Where memory is plenty nobody waits for a turn. */
int shared_make(uint64_t bytes, uint64_t first, Err *err)
{
    const uint64_t plenty = 64;
    int turn = bytes - first > free_memory_bytes() / plenty ? free_memory_enter() : -1;
    int fd = take(bytes, first, err);
    free_memory_leave(turn);
    return fd;
}

bool shared_ranks_fit(uint32_t ranks, uint64_t bytes, Err *err)
{
    uint64_t need = bytes + SHARED_BESIDES_BYTES, left = free_memory_bytes();
    return need <= left ||
           err_set(err, "%" PRIu32 " rank%s %.3g GiB of memory, %.3g GiB are free here", ranks,
                   ranks == 1 ? " needs" : "s need", (double)need / (double)GIB,
                   (double)left / (double)GIB);
}

void *shared_map(int fd, uint64_t bytes, bool populate, Err *err)
{
    struct stat s;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &s) != 0 || (uint64_t)s.st_size != bytes || seals < 0 ||
        !(seals & F_SEAL_SHRINK)) {
        err_set(err, "shared memory of another rank is not what it should be");
        return NULL;
    }
    void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        err_set(err, "cannot map %.3g GiB of shared memory: %s", (double)bytes / (double)GIB,
                strerror(errno));
        return NULL;
    }
    madvise(at, (size_t)bytes,
            MADV_HUGEPAGE); /* where the kernel lets shared memory have them */
#ifdef MADV_POPULATE_WRITE
    if (populate)
        madvise(at, (size_t)bytes, MADV_POPULATE_WRITE);
#else
    (void)populate;
#endif
    return at;
}

void shared_unmap(void *at, uint64_t bytes)
{
    if (at)
        munmap(at, (size_t)bytes);
}

/* ---- waiting ---- */

void shared_wait(_Atomic uint32_t *word, uint32_t seen, int64_t ns)
{
    struct timespec t = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = ns % 1000000000 };
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0);
}

void shared_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- handing over ---- */

static socklen_t abstract_address(struct sockaddr_un *a, const char *name)
{
    size_t n = strlen(name);
    ASSERT(n > 0 && n + 1 < sizeof a->sun_path);
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    memcpy(a->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int unix_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int shared_listen(char *name, size_t cap, Err *err)
{
    uint64_t noise[2] = { 0 };
    struct sockaddr_un a;
    int fd = unix_socket();
    bool ok = fd >= 0 && getrandom(noise, sizeof noise, 0) == sizeof noise;
    snprintf(name, cap, "lockstep%016" PRIx64 "%016" PRIx64, noise[0], noise[1]);
    socklen_t n = abstract_address(&a, name);
    ok = ok && bind(fd, (struct sockaddr *)(void *)&a, n) == 0 && listen(fd, 4096) == 0;
    if (ok)
        return fd;
    err_set(err, "cannot make a local socket: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

int shared_connect(const char *name)
{
    struct sockaddr_un a;
    int fd = unix_socket();
    socklen_t n = abstract_address(&a, name);
    if (fd >= 0 && connect(fd, (struct sockaddr *)(void *)&a, n) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int shared_accept(int listener)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct ucred who = { 0 };
        socklen_t n = sizeof who;
        if (fd < 0)
            return -1;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid())
            return fd;
        close(fd);
    }
}

/* Room for one descriptor, aligned as the kernel wants it. */
typedef union Envelope {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
} Envelope;

bool shared_give(int to, int fd, const SharedNote *note)
{
    Envelope envelope = { .room = { 0 } };
    SharedNote copy = *note;
    struct iovec bytes = { .iov_base = &copy, .iov_len = sizeof copy };
    struct msghdr m = { .msg_iov = &bytes,
                        .msg_iovlen = 1,
                        .msg_control = envelope.room,
                        .msg_controllen = sizeof envelope.room };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return sendmsg(to, &m, MSG_NOSIGNAL) == (ssize_t)sizeof copy;
}

int shared_take(int from, SharedNote *note)
{
    Envelope envelope = { .room = { 0 } };
    struct iovec bytes = { .iov_base = note, .iov_len = sizeof *note };
    struct msghdr m = { .msg_iov = &bytes,
                        .msg_iovlen = 1,
                        .msg_control = envelope.room,
                        .msg_controllen = sizeof envelope.room };
    ssize_t n = recvmsg(from, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0)
        return -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    int fd = -1;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    if (fd >= 0 && n == (ssize_t)sizeof *note)
        return fd;
    if (fd >= 0)
        close(fd);
    errno = EPROTO;
    return -1;
}

int shared_watch_process(uint32_t pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
#else
    (void)pid;
    return -1;
#endif
}
