/* SPDX-License-Identifier: Apache-2.0 */
/* socket_path.h: whether the server can listen at a path. A live socket of another program, of
 * whatever kind, is never taken away. Thread: any. */
#ifndef EMBTIER_DAEMON_TRANSPORT_LISTEN_SOCKET_PATH_H
#define EMBTIER_DAEMON_TRANSPORT_LISTEN_SOCKET_PATH_H

#include <stdbool.h>
#include <sys/un.h>

#include "base/err.h"

/* TOO_LARGE: a socket's path cannot be so long. */
MUST_CHECK enum embtier_err socket_path_address(const char *path, struct sockaddr_un *ret_address,
                                                struct err_msg *msg);
/* Checks that the file at the path can be replaced and that its directory takes sockets. Leaves
 * nothing behind. @may_live: the file may be a running server's. */
MUST_CHECK enum embtier_err socket_path_check(const char *path, bool may_live, struct err_msg *msg);
/* Removes a dead server's socket from the path. EXISTS: the file is not a socket. LOCKED: another
 * program has it open. */
MUST_CHECK enum embtier_err socket_path_clear(const char *path, struct err_msg *msg);

#endif
