/* SPDX-License-Identifier: Apache-2.0 */
/* connect.h: connects a stream to a server's address: a Unix socket, or TCP to a host whose name is
 * looked up anew each time.
 *
 * The look-up of a name can take longer than the deadline allows: the system's resolver waits as
 * long as resolv.conf(5) says, usually 5 to 30 seconds for a name server that does not answer. A
 * thread of the library's could be given up instead, but would go on in the caller's process, also
 * behind its back after a fork. A number instead of a name needs no look-up.
 *
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_TRANSPORT_CONNECT_H
#define EMBTIER_CLIENT_TRANSPORT_CONNECT_H

#include <stdint.h>

#include "base/err.h"
#include "base/net/address.h"

/* Connects before @deadline_ns (of the monotonic clock; UINT64_MAX: no limit). @text is the address
 * as the caller wrote it. The descriptor does not block. UNREACHABLE, TIMEOUT, or the system's
 * error, such as PERMISSION for a socket that the user may not write to. */
MUST_CHECK enum embtier_err connect_stream(const struct address *address, const char *text,
                                           uint64_t deadline_ns, int *ret_fd, struct err_msg *msg);

#endif
