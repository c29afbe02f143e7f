/* SPDX-License-Identifier: Apache-2.0 */
/* socket_path.h: whether the server can listen at a path, where a socket of another program that
 * lives, of whatever kind, is never taken away. Thread: any. */
#ifndef EMBTIER_DAEMON_CONTROL_SOCKET_PATH_H
#define EMBTIER_DAEMON_CONTROL_SOCKET_PATH_H

#include <stdbool.h>
#include <sys/un.h>

#include "base/err.h"

/* TOO_LARGE: a socket's path cannot be so long. */
MUST_CHECK enum embtier_err socket_path_address(const char *path, struct sockaddr_un *ret_address,
                                                struct err_msg *msg);
/* Sees that the file at the path gives way, and its directory takes sockets. Leaves nothing behind.
 * @may_live: what is there may be a server's. */
MUST_CHECK enum embtier_err socket_path_check(const char *path, bool may_live, struct err_msg *msg);
/* Removes the socket of a dead server that is at the path. EXISTS: it is no socket. LOCKED: it is
 * one that another program has open. */
MUST_CHECK enum embtier_err socket_path_clear(const char *path, struct err_msg *msg);

#endif
