/* SPDX-License-Identifier: Apache-2.0 */
/* connect_race.h: connects to one of the addresses of a name.
 *
 * A host may have addresses that do not answer, and an attempt to reach one can take minutes. So
 * the attempts overlap, as in RFC 8305 ("happy eyeballs"): each address has a head start before the
 * next one is tried as well, and the first connection wins. IPv6 and IPv4 take turns, beginning
 * with the family that the system prefers. An attempt that fails lets the next begin at once.
 *
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_TRANSPORT_CONNECT_RACE_H
#define EMBTIER_CLIENT_TRANSPORT_CONNECT_RACE_H

#include <netdb.h>
#include <stdint.h>

#include "base/err.h"

/* @found: at least one address, of which at most CONNECT_RACE_MAX are tried. @text: the name, for
 * messages. UNREACHABLE, TIMEOUT; the message has the reason of each address. */
#define CONNECT_RACE_MAX 16
MUST_CHECK enum embtier_err connect_race(const struct addrinfo *found, const char *text,
                                         uint64_t deadline_ns, int *ret_fd, struct err_msg *msg);

#endif
