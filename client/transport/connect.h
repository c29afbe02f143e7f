/* SPDX-License-Identifier: Apache-2.0 */
/* connect.h: connects a stream to a server's address: a Unix socket, or TCP to a host whose name is
 * looked up anew each time.
 *
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_TRANSPORT_CONNECT_H
#define EMBTIER_CLIENT_TRANSPORT_CONNECT_H

#include <stdint.h>

#include "base/err.h"
#include "base/net/address.h"

/* Connects before @deadline_ns (of the monotonic clock; UINT64_MAX: no limit). @text is the address
 * as the caller wrote it. The descriptor does not block. UNREACHABLE, TIMEOUT, or the system's
 * error. */
MUST_CHECK enum embtier_err connect_stream(const struct address *address, const char *text,
                                           uint64_t deadline_ns, int *ret_fd, struct err_msg *msg);

#endif
