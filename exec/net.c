/* net.c - sockets that never block and never signal. */
#define _GNU_SOURCE
#include "exec/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/now.h"

int64_t net_now_ns(void)
{
    return now_ns();
}

void net_sleep_ns(int64_t ns)
{
    struct timespec t = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = ns % 1000000000 };
    nanosleep(&t, NULL);
}

int net_poll_ms(int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - net_now_ns();
    if (left_ns <= 0)
        return 0;
    return (int)min_i64((left_ns + 999999) / 1000000, 1000000);
}

/* ---- names ---- */

bool net_split(const char *text, char host[NET_HOST_MAX], char port[NET_PORT_MAX], Err *err)
{
    const char *colon = strrchr(text, ':');
    size_t host_n = colon ? (size_t)(colon - text) : 0;
    if (host_n >= 2 && text[0] == '[' && text[host_n - 1] == ']') {
        text++;
        host_n -= 2;
    }
    char *end = NULL;
    long number = colon ? strtol(colon + 1, &end, 10) : 0;
    bool digits = colon && colon[1] >= '0' && colon[1] <= '9' && *end == '\0';
    if (host_n == 0 || host_n >= NET_HOST_MAX || !digits || number < 1 || number > 65535)
        return err_set(err, "'%s' is not HOST:PORT with a port of 1 to 65535", text);
    memcpy(host, text, host_n);
    host[host_n] = '\0';
    snprintf(port, NET_PORT_MAX, "%u", (unsigned)number);
    return true;
}

bool net_is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

static bool address_text(const struct sockaddr_storage *a, socklen_t n, char text[NET_HOST_MAX])
{
    const struct sockaddr *plain = (const struct sockaddr *)(const void *)a;
    if (getnameinfo(plain, n, text, NET_HOST_MAX, NULL, 0, NI_NUMERICHOST) != 0)
        return false;
    if (strncmp(text, "::ffff:", 7) == 0 && strchr(text, '.'))
        memmove(text, text + 7, strlen(text + 7) + 1);
    if (strcmp(text, "::1") == 0) /* ranks of one host listen at IPv4's loopback alone */
        snprintf(text, NET_HOST_MAX, "127.0.0.1");
    return true;
}

bool net_peer_text(int fd, char text[NET_HOST_MAX])
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    return getpeername(fd, (struct sockaddr *)(void *)&a, &n) == 0 && address_text(&a, n, text);
}

static bool own_text(int fd, char text[NET_HOST_MAX])
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    return getsockname(fd, (struct sockaddr *)(void *)&a, &n) == 0 && address_text(&a, n, text);
}

/* ---- listening ---- */

static uint16_t port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)(void *)&a, &n) != 0)
        return 0;
    if (a.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)(void *)&a)->sin6_port);
    return ntohs(((struct sockaddr_in *)(void *)&a)->sin_port);
}

/* Closes without touching errno. */
static int close_failed(int fd)
{
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int listen_at(const struct addrinfo *at)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int on = 1, off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, 4096) != 0)
        return close_failed(fd);
    return fd;
}

int net_listen(const char *host, const char *port, uint16_t *port_got)
{
    struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                              .ai_socktype = SOCK_STREAM };
    struct addrinfo *list = NULL;
    if (getaddrinfo(host, port, &hints, &list) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    int fd = -1;
    /* All interfaces: IPv6 first, which takes IPv4 in as well. */
    for (int pass = 0; pass < 2 && fd < 0; pass++)
        for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next)
            if (host ? pass == 0 : (at->ai_family == AF_INET6) == (pass == 0))
                fd = listen_at(at);
    int why = errno;
    freeaddrinfo(list);
    errno = why;
    if (fd >= 0)
        *port_got = port_of(fd);
    return fd;
}

void net_allow_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

bool net_no_room(void)
{
    return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
}

static void talk_at_once(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int net_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        talk_at_once(fd);
    return fd;
}

/* ---- connecting ---- */

/* A port from the range that the kernel hands out may be given to this very socket. */
static bool met_itself(int fd)
{
    char own[NET_HOST_MAX], peer[NET_HOST_MAX];
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getpeername(fd, (struct sockaddr *)(void *)&a, &n) != 0)
        return false;
    uint16_t peer_port =
        ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&a)->sin6_port
                                      : ((struct sockaddr_in *)(void *)&a)->sin_port);
    return peer_port == port_of(fd) && own_text(fd, own) && net_peer_text(fd, peer) &&
           strcmp(own, peer) == 0;
}

static int connect_to(const struct addrinfo *at, int64_t deadline_ns)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
        if (errno != EINPROGRESS)
            return close_failed(fd);
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        int ready;
        do
            ready = poll(&p, 1, net_poll_ms(deadline_ns));
        while (ready < 0 && errno == EINTR);
        int why = ETIMEDOUT;
        socklen_t n = sizeof why;
        if (ready > 0)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n);
        errno = why;
        if (why != 0)
            return close_failed(fd);
    }
    if (met_itself(fd)) {
        errno = ECONNREFUSED;
        return close_failed(fd);
    }
    talk_at_once(fd);
    return fd;
}

int net_connect(const char *host, const char *port, int64_t deadline_ns)
{
    struct addrinfo hints = { .ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
    struct addrinfo *list = NULL;
    if (getaddrinfo(host, port, &hints, &list) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    int fd = -1;
    for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next)
        fd = connect_to(at, deadline_ns);
    int why = errno;
    freeaddrinfo(list);
    errno = why;
    return fd;
}

/* ---- bytes ---- */

/* Waits until fd is ready; false with ETIMEDOUT. */
static bool ready_for(int fd, short events, int64_t deadline_ns)
{
    struct pollfd p = { .fd = fd, .events = events };
    for (;;) {
        int ready = poll(&p, 1, net_poll_ms(deadline_ns));
        if (ready > 0)
            return true;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready == 0)
            errno = ETIMEDOUT;
        return false;
    }
}

bool net_send_all(int fd, const void *bytes, size_t n, int64_t deadline_ns)
{
    const uint8_t *from = bytes;
    while (n > 0) {
        ssize_t sent = send(fd, from, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            from += sent;
            n -= (size_t)sent;
        } else if (errno != EINTR && errno != EAGAIN) {
            return false;
        } else if (!ready_for(fd, POLLOUT, deadline_ns)) {
            return false;
        }
    }
    return true;
}

bool net_recv_all(int fd, void *bytes, size_t n, int64_t deadline_ns)
{
    uint8_t *to = bytes;
    while (n > 0) {
        ssize_t got = recv(fd, to, n, MSG_DONTWAIT);
        if (got > 0) {
            to += got;
            n -= (size_t)got;
        } else if (got == 0) {
            errno = 0;
            return false;
        } else if (errno != EINTR && errno != EAGAIN) {
            return false;
        } else if (!ready_for(fd, POLLIN, deadline_ns)) {
            return false;
        }
    }
    return true;
}
