/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/connect.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/net/dead_link.h"
#include "client/transport/connect_race.h"

#define NS_PER_MS        UINT64_C(1000000)
#define CONNECT_PAUSE_MS 10

static enum embtier_err unix_unreachable(const char *path, int errnum, struct err_msg *msg)
{
    if (errnum == ENOENT || errnum == ENOTDIR || errnum == ECONNREFUSED)
        return err_set(msg, EMBTIER_UNREACHABLE,
                       "no embtierd listens on %s (%s): is it running? EMBTIER_SOCKET, or an "
                       "argument, names another socket",
                       path, strerror(errnum)); // NOLINT(concurrency-mt-unsafe)
    return err_set_errno(msg, errnum, "cannot connect to embtierd on %s", path);
}

static enum embtier_err connect_unix(const char *path, uint64_t deadline_ns, int *ret_fd,
                                     struct err_msg *msg)
{
    _cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un name = { .sun_family = AF_UNIX };

    if (fd < 0)
        return err_set_errno(msg, errno, "cannot make a socket");
    memcpy(name.sun_path, path, strlen(path));
    while (connect(fd, (const struct sockaddr *)&name, sizeof(name)) != 0) {
        const struct timespec pause = { .tv_nsec = CONNECT_PAUSE_MS * NS_PER_MS };

        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return unix_unreachable(path, errno, msg);
        /* The listener's queue is full. There is no event for its end, so ask again. */
        if (clock_now_ns(&clock_monotonic) >= deadline_ns)
            return err_set(msg, EMBTIER_TIMEOUT,
                           "embtierd on %s has not accepted the connection in time", path);
        nanosleep(&pause, NULL);
    }
    *ret_fd = TAKE_FD(fd);
    return EMBTIER_OK;
}

/* The system's resolver has its own limits of time, and no way to be given others. */
static enum embtier_err look_up(const struct address *address, const char *text,
                                uint64_t deadline_ns, struct addrinfo **ret_found,
                                struct err_msg *msg)
{
    const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM };
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    struct addrinfo *found = NULL;
    const int rc = getaddrinfo(address->host, address->port, &wanted, &found);
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);

    if (rc != 0)
        return err_set(msg, EMBTIER_UNREACHABLE, "no embtierd answers at %s: %s", text,
                       rc == EAI_SYSTEM ? strerror(errno) // NOLINT(concurrency-mt-unsafe)
                                        : gai_strerror(rc));
    if (now_ns >= deadline_ns) {
        freeaddrinfo(found);
        return err_set(msg, EMBTIER_TIMEOUT,
                       "no time is left for %s: to look up the name took %" PRIu64 " ms", text,
                       (now_ns - began_ns) / NS_PER_MS);
    }
    *ret_found = found;
    return EMBTIER_OK;
}

static enum embtier_err connect_tcp(const struct address *address, const char *text,
                                    uint64_t deadline_ns, int *ret_fd, struct err_msg *msg)
{
    struct addrinfo *found = NULL;
    enum embtier_err err;

    TRY(look_up(address, text, deadline_ns, &found, msg));
    err = connect_race(found, text, deadline_ns, ret_fd, msg);
    freeaddrinfo(found);
    if (err == EMBTIER_OK)
        dead_link_notice(*ret_fd);
    return err;
}

enum embtier_err connect_stream(const struct address *address, const char *text,
                                uint64_t deadline_ns, int *ret_fd, struct err_msg *msg)
{
    if (address->path[0] != '\0')
        return connect_unix(address->path, deadline_ns, ret_fd, msg);
    return connect_tcp(address, text, deadline_ns, ret_fd, msg);
}
