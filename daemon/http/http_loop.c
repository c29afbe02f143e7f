/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of HTTP: a loop over libmicrohttpd's epoll.
 *
 * The library ends connections that are silent. A peer that sends or takes a byte now and then is
 * never silent, so the loop also ends each connection whose request takes too long as a whole. It
 * shuts the socket down, and the library notices that. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/system/thread_class.h"
#include "config/config.h"
#include "daemon/http/http_impl.h"
#include "daemon/http/http_reserved.h"

#define SILENCE_S  10
#define REQUEST_NS (UINT64_C(30) * 1000000000)
#define TICK_MS    1000
/* The system's memory for what a peer has not read yet; it doubles this. */
#define SEND_BYTES (64 * 1024)

static void end_slow_peers(struct http *http, uint64_t now_ns)
{
    for (uint32_t i = 0; i < http->config->http.max_connections; i++) {
        const struct http_peer *const peer = &http->peers[i];

        if (peer->fd >= 0 && clock_since(now_ns, peer->since_ns) > REQUEST_NS)
            (void)shutdown(peer->fd, SHUT_RDWR);
    }
}

static struct http_peer *free_place(struct http *http)
{
    for (uint32_t i = 0; i < http->config->http.max_connections; i++)
        if (http->peers[i].fd < 0)
            return &http->peers[i];
    return NULL;
}

/* A connection begins or ends. */
static void on_connection(void *context, struct MHD_Connection *connection, void **peer_place,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http *const http = context;
    struct http_peer *peer = *peer_place;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *const info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

        peer = free_place(http);
        if (!peer || !info) /* the library has as many connections as there are places */
            return;
        (void)setsockopt(info->connect_fd, SOL_SOCKET, SO_SNDBUF, &(int){ SEND_BYTES },
                         sizeof(int));
        *peer = (struct http_peer){ .fd = info->connect_fd,
                                    .since_ns = clock_now_ns(&clock_monotonic) };
        *peer_place = peer;
    } else if (peer) {
        peer->fd = -1;
        *peer_place = NULL;
    }
}

static void on_request_end(void *context, struct MHD_Connection *connection, void **request,
                           enum MHD_RequestTerminationCode how)
{
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_peer *const peer = info ? info->socket_context : NULL;

    (void)context;
    (void)how;
    *request = NULL;
    if (peer)
        peer->since_ns = clock_now_ns(&clock_monotonic);
}

static int wait_ms(struct http *http)
{
    MHD_UNSIGNED_LONG_LONG left_ms = TICK_MS;

    if (MHD_get_timeout(http->daemon, &left_ms) != MHD_YES)
        return TICK_MS;
    return (int)MIN(left_ms, (MHD_UNSIGNED_LONG_LONG)TICK_MS);
}

/* Keeps figures of the last hour for the page, also while nobody looks at it. */
static void add_to_history(struct http *http, uint64_t now_ns)
{
    if (clock_since(now_ns, http->history_ns) < HISTORY_PERIOD_MS * UINT64_C(1000000))
        return;
    http->history_ns = now_ns; /* a control thread that does not answer is not asked each second */
    if (http_ask(http, false) == HTTP_ANSWERED)
        history_add(&http->history, &http->snapshot);
}

static void on_tick(struct http *http, uint64_t now_ns)
{
    end_slow_peers(http, now_ns);
    add_to_history(http, now_ns);
}

static void *loop_main(void *arg)
{
    struct http *const http = arg;
    const union MHD_DaemonInfo *const info =
        MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd fds[] = { { .fd = info->epoll_fd, .events = POLLIN },
                            { .fd = http->wake_fd, .events = POLLIN } };
    uint64_t ticked_ns = 0;

    thread_class_background();
    while (!atomic_load(&http->is_ending)) {
        uint64_t now_ns;

        (void)poll(fds, ARRAY_LEN(fds), wait_ms(http));
        (void)MHD_run(http->daemon);
        now_ns = clock_now_ns(&clock_monotonic);
        if (clock_since(now_ns, ticked_ns) < TICK_MS * UINT64_C(1000000))
            continue;
        ticked_ns = now_ns;
        on_tick(http, now_ns);
    }
    return NULL;
}

/* The library closes its descriptor of the socket, so it gets one of its own. */
static enum embtier_err start_library(struct http *http, struct err_msg *msg)
{
    const int fd = fcntl(http->listener.fd, F_DUPFD_CLOEXEC, 0);

    if (fd < 0)
        return err_set_errno(msg, errno, "cannot have another descriptor of a socket");
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, http_answer, http, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)http->config->http.max_connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_CONNECTION_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SILENCE_S, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, http, MHD_OPTION_NOTIFY_COMPLETED, on_request_end, http, MHD_OPTION_END);
    if (!http->daemon) /* the descriptor may be closed by now */
        return err_set(msg, EMBTIER_INTERNAL,
                       "libmicrohttpd %s cannot serve HTTP; leave http.listen out, and report this",
                       MHD_get_version());
    return EMBTIER_OK;
}

enum embtier_err http_loop_start(struct http *http, struct err_msg *msg)
{
    int rc;

    TRY(start_library(http, msg));
    rc = pthread_create(&http->thread, NULL, loop_main, http);
    if (rc != 0)
        return err_set_errno(msg, rc, "cannot start the thread of HTTP");
    http->has_thread = true;
    pthread_setname_np(http->thread, "http");
    return EMBTIER_OK;
}

void http_loop_end(struct http *http)
{
    const uint64_t one = 1;

    atomic_store(&http->is_ending, true);
    if (http->has_thread) {
        if (write(http->wake_fd, &one, sizeof(one)) < 0)
            log_error("the thread of HTTP cannot be woken", "errno=%d", errno);
        pthread_join(http->thread, NULL);
        http->has_thread = false;
    }
    if (http->daemon)
        MHD_stop_daemon(TAKE(http->daemon));
}
