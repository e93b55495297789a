/*
 * net.h - TCP with deadlines: nothing here waits longer than it was told to.
 *
 * Deadlines are net_now_ns() values (CLOCK_MONOTONIC).  Sockets are non-blocking
 * and close on exec; writing to a closed one is an error, never a signal.
 */
#ifndef LOCKSTEP_EXEC_NET_H
#define LOCKSTEP_EXEC_NET_H

#include "core/err.h"

enum { NET_HOST_MAX = 256, NET_PORT_MAX = 8 };

int64_t net_now_ns(void);
void net_sleep_ns(int64_t ns);

/* "HOST:PORT", "[V6]:PORT" -> its two halves; port 1 to 65535. */
bool net_split(const char *text, char host[NET_HOST_MAX], char port[NET_PORT_MAX], Err *err);
/* Whether the name says loopback: localhost, 127.x, ::1. */
bool net_is_loopback(const char *host);

/*
 * Listens; host NULL: all interfaces (IPv6 and IPv4 where the kernel can).  port "0":
 * any.  -1 and errno when it cannot; *port_got receives the port.
 */
int net_listen(const char *host, const char *port, uint16_t *port_got);

/* One attempt at every address of host, until the deadline.  -1 and errno (EHOSTUNREACH when
 * the name is unknown). */
int net_connect(const char *host, const char *port, int64_t deadline_ns);

/* Accepts one connection, ready for use; -1 and errno when there is none now. */
int net_accept(int listener);

/* As many open files as this process may have: a rank has several for each of the others. */
void net_allow_files(void);
/* Whether errno says that there is no room for one more file: trying again does not help. */
bool net_no_room(void);

/* Numeric address of the other end (v4 inside v6 is written as v4). */
bool net_peer_text(int fd, char text[NET_HOST_MAX]);

/* Everything or nothing: false with errno, ETIMEDOUT, or 0 at the end of the stream. */
bool net_send_all(int fd, const void *bytes, size_t n, int64_t deadline_ns);
bool net_recv_all(int fd, void *bytes, size_t n, int64_t deadline_ns);

/* Milliseconds from now to the deadline, for poll: rounded up, 0 when it has passed. */
int net_poll_ms(int64_t deadline_ns);

#endif
