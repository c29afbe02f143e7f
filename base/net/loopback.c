/* SPDX-License-Identifier: Apache-2.0 */
#include "base/net/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

static bool is_loopback_4(uint32_t address)
{
    return ntohl(address) >> 24 == IN_LOOPBACKNET;
}

bool peer_is_loopback(int fd)
{
    struct sockaddr_in6 at = { .sin6_family = AF_UNSPEC }; /* the larger of the two */
    struct sockaddr_in at_4;
    socklen_t bytes = sizeof(at);
    uint32_t mapped;

    if (getpeername(fd, (struct sockaddr *)&at, &bytes) != 0)
        return false;
    memcpy(&at_4, &at, sizeof(at_4));
    memcpy(&mapped, &at.sin6_addr.s6_addr[12], sizeof(mapped));
    if (at_4.sin_family == AF_INET)
        return is_loopback_4(at_4.sin_addr.s_addr);
    return at.sin6_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(&at.sin6_addr) ||
            (IN6_IS_ADDR_V4MAPPED(&at.sin6_addr) && is_loopback_4(mapped)));
}

/* Reno is part of every kernel, and all users may choose it. */
void loopback_send_unpaced(int fd)
{
    static const char control[] = "reno";

    if (peer_is_loopback(fd))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, sizeof(control) - 1);
}
