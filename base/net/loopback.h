/* SPDX-License-Identifier: Apache-2.0 */
/* loopback.h: whether an address or a connection is of this host alone. Thread: any. */
#ifndef EMBTIER_BASE_NET_LOOPBACK_H
#define EMBTIER_BASE_NET_LOOPBACK_H

#include <stdbool.h>
#include <sys/socket.h>

/* True for 127.0.0.0/8, also as ::ffff:127.0.0.1, and for ::1. */
bool address_is_loopback(const struct sockaddr *address);

/* True if the other end of a TCP connection has an address of loopback. */
bool peer_is_loopback(int fd);
/* If so, bytes go out as fast as the other side takes them. A system with BBR would hold them back
 * to find out the speed of a link, by a timer for each packet. */
void loopback_send_unpaced(int fd);

#endif
