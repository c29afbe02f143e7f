/* SPDX-License-Identifier: Apache-2.0 */
/* handed_socket.h: the socket at which a service manager has listened for the server, and which it
 * hands over (sd_listen_fds(3)). Clients that connect before the server is ready wait in its queue.
 * Its file stays when the server ends, because the manager goes on listening. Thread: any. */
#ifndef EMBTIER_DAEMON_TRANSPORT_LISTEN_HANDED_SOCKET_H
#define EMBTIER_DAEMON_TRANSPORT_LISTEN_HANDED_SOCKET_H

#include "base/err.h"

/* Finds the socket that was handed over for @path. *@ret_fd is -1 if none was. INVALID: others were
 * handed over, which the server would not serve. */
MUST_CHECK enum embtier_err handed_socket_find(const char *path, int *ret_fd, struct err_msg *msg);

#endif
