/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one datagram for each message, as sd_notify(3) says. That function of libsystemd's
 * waits for ever if the manager does not read. A stop reports each second how far it is,
 * and would hang. */
#include "daemon/control/process/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"

#define IMPORTANT_WAIT_MS 1000

/* Fills in the manager's address: a path, or with @ a name of Linux's own. False: there is no
 * manager, or one of another kind. */
static bool manager_address(struct sockaddr_un *ret_address, socklen_t *ret_bytes)
{
    const char *const path = getenv("NOTIFY_SOCKET"); // NOLINT(concurrency-mt-unsafe)
    const size_t length = path ? strlen(path) : 0;

    *ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if (length < 2 || length >= sizeof(ret_address->sun_path) || (path[0] != '/' && path[0] != '@'))
        return false;
    memcpy(ret_address->sun_path, path, length);
    if (path[0] == '@')
        ret_address->sun_path[0] = '\0';
    *ret_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    return true;
}

/* Ignores failures: they concern only the service manager, which has its own time limit. */
static void tell(const char *text, int wait_ms)
{
    _cleanup_(closep) int fd = -1;
    struct sockaddr_un address;
    socklen_t bytes;

    if (!manager_address(&address, &bytes))
        return;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, bytes) != 0)
        return;
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) >= 0 || errno != EAGAIN)
        return;
    if (poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, wait_ms) > 0)
        (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
}

void notify_ready(void)
{
    tell("READY=1\nSTATUS=serving", IMPORTANT_WAIT_MS);
}

void notify_reloading(void)
{
    char text[128];

    /* The manager tells this reload from an earlier one by its time. */
    snprintf(text, sizeof(text),
             "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=reading files again",
             clock_now_ns(&clock_monotonic) / 1000);
    tell(text, 0);
}

void notify_stopping(void)
{
    tell("STOPPING=1", IMPORTANT_WAIT_MS);
}

void notify_status(const char *line)
{
    char text[256];

    /* Work that goes on needs more time. */
    snprintf(text, sizeof(text), "STATUS=%s\nEXTEND_TIMEOUT_USEC=30000000\nWATCHDOG=1", line);
    tell(text, 0);
}

void notify_alive(void)
{
    tell("WATCHDOG=1", 0);
}

/* Reads a number of the manager. 0: it is not set, or makes no sense. */
static uint64_t number_of(const char *name)
{
    const char *const text = getenv(name); // NOLINT(concurrency-mt-unsafe)
    char *end = NULL;
    const unsigned long long value =
        text && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;

    return end && *end == '\0' ? value : 0;
}

uint64_t notify_watchdog_ns(void)
{
    const uint64_t pid = number_of("WATCHDOG_PID");
    const uint64_t usec = number_of("WATCHDOG_USEC");

    if (pid != 0 && pid != (uint64_t)getpid())
        return 0;
    return MIN(usec, UINT64_MAX / 1000) * 1000;
}
