/* SPDX-License-Identifier: Apache-2.0 */
#include "base/net/dead_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* The first probe leaves as much time as all that follow it. */
#define PROBES_AFTER_SECONDS (DEAD_LINK_SECONDS / 2)
#define PROBE_EVERY_SECONDS  5
#define PROBES               ((DEAD_LINK_SECONDS - PROBES_AFTER_SECONDS) / PROBE_EVERY_SECONDS)

static void set(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

void dead_link_notice(int fd)
{
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, DEAD_LINK_SECONDS * 1000);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, PROBES_AFTER_SECONDS);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EVERY_SECONDS);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}
