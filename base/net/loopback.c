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

static bool is_loopback_6(const struct in6_addr *address)
{
    uint32_t mapped;

    memcpy(&mapped, &address->s6_addr[12], sizeof(mapped));
    return IN6_IS_ADDR_LOOPBACK(address) ||
           (IN6_IS_ADDR_V4MAPPED(address) && is_loopback_4(mapped));
}

bool address_is_loopback(const struct sockaddr *address)
{
    const void *const at = address;
    const struct sockaddr_in *const v4 = at;
    const struct sockaddr_in6 *const v6 = at;

    if (address->sa_family == AF_INET)
        return is_loopback_4(v4->sin_addr.s_addr);
    return address->sa_family == AF_INET6 && is_loopback_6(&v6->sin6_addr);
}

bool peer_is_loopback(int fd)
{
    struct sockaddr_storage at = { .ss_family = AF_UNSPEC };
    socklen_t bytes = sizeof(at);

    return getpeername(fd, (struct sockaddr *)&at, &bytes) == 0 &&
           address_is_loopback((const struct sockaddr *)&at);
}

/* Reno is part of every kernel, and all users may choose it. */
void loopback_send_unpaced(int fd)
{
    static const char control[] = "reno";

    if (peer_is_loopback(fd))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, sizeof(control) - 1);
}
