/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/connect.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define NS_PER_MS        UINT64_C(1000000)
#define FOREVER          UINT64_MAX
#define CONNECT_PAUSE_MS 10

static enum embtier_err unreachable(const char *text, const char *why, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_UNREACHABLE, "no embtierd answers at %s: %s", text, why);
}

/* Waits until a socket is connected. */
static enum embtier_err await_connection(int fd, const char *text, uint64_t deadline_ns,
                                         struct err_msg *msg)
{
    struct pollfd at = { .fd = fd, .events = POLLOUT };
    int error = 0;
    socklen_t error_bytes = sizeof(error);

    for (;;) {
        const uint64_t now_ns = clock_now_ns(&clock_monotonic);
        const uint64_t left_ms = div_round_up(deadline_ns - MIN(deadline_ns, now_ns), NS_PER_MS);
        const int ready =
            poll(&at, 1, deadline_ns == FOREVER ? -1 : (int)MIN(left_ms, (uint64_t)INT32_MAX));

        if (ready > 0)
            break;
        if (ready == 0)
            return err_set(msg, EMBTIER_TIMEOUT, "embtierd at %s has not accepted the connection",
                           text);
        if (errno != EINTR)
            return err_set_errno(msg, errno, "cannot wait for the server");
    }
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0 || error != 0)
        return unreachable(text, strerror(error), msg); // NOLINT(concurrency-mt-unsafe)
    return EMBTIER_OK;
}

/* Connects a socket that does not block. */
static enum embtier_err connect_socket(int fd, const struct sockaddr *address, socklen_t bytes,
                                       const char *text, uint64_t deadline_ns, struct err_msg *msg)
{
    while (connect(fd, address, bytes) != 0) {
        const struct timespec pause = { .tv_nsec = CONNECT_PAUSE_MS * NS_PER_MS };

        if (errno == EISCONN)
            return EMBTIER_OK;
        if (errno == EINPROGRESS || errno == EALREADY)
            return await_connection(fd, text, deadline_ns, msg);
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return unreachable(text, strerror(errno), msg); // NOLINT(concurrency-mt-unsafe)
        /* The queue of a Unix socket is full. There is no event for its end, so ask again. */
        if (clock_now_ns(&clock_monotonic) >= deadline_ns)
            return err_set(msg, EMBTIER_TIMEOUT, "embtierd at %s has not accepted the connection",
                           text);
        nanosleep(&pause, NULL);
    }
    return EMBTIER_OK;
}

static enum embtier_err connect_unix(const struct address *address, const char *text,
                                     uint64_t deadline_ns, int *ret_fd, struct err_msg *msg)
{
    _cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un name = { .sun_family = AF_UNIX };

    if (fd < 0)
        return err_set_errno(msg, errno, "cannot make a socket");
    memcpy(name.sun_path, address->path, sizeof(name.sun_path));
    TRY(connect_socket(fd, (const struct sockaddr *)&name, sizeof(name), text, deadline_ns, msg));
    *ret_fd = TAKE_FD(fd);
    return EMBTIER_OK;
}

/* Tries each of the host's addresses in turn. */
static enum embtier_err connect_tcp(const struct address *address, const char *text,
                                    uint64_t deadline_ns, int *ret_fd, struct err_msg *msg)
{
    const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    const int rc = getaddrinfo(address->host, address->port, &wanted, &found);
    enum embtier_err err = EMBTIER_UNREACHABLE;

    if (rc != 0)
        return unreachable(text, gai_strerror(rc), msg);
    for (const struct addrinfo *at = found; at && err != EMBTIER_OK; at = at->ai_next) {
        _cleanup_(closep) int fd =
            socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0) {
            err = err_set_errno(msg, errno, "cannot make a socket");
            continue;
        }
        err = connect_socket(fd, at->ai_addr, at->ai_addrlen, text, deadline_ns, msg);
        if (err == EMBTIER_OK)
            *ret_fd = TAKE_FD(fd);
    }
    freeaddrinfo(found);
    return err;
}

enum embtier_err connect_stream(const struct address *address, const char *text,
                                uint64_t deadline_ns, int *ret_fd, struct err_msg *msg)
{
    if (address->path[0] != '\0')
        return connect_unix(address, text, deadline_ns, ret_fd, msg);
    return connect_tcp(address, text, deadline_ns, ret_fd, msg);
}
