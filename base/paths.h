/* SPDX-License-Identifier: Apache-2.0 */
/* paths.h: the default places of data and sockets, the same for the daemon, the client and the
 * tools.
 *
 * Data: $STATE_DIRECTORY (systemd), else /var/lib/embtier for root, else
 * ${XDG_STATE_HOME:-~/.local/state}/embtier. Socket: $EMBTIER_SOCKET, else
 * $RUNTIME_DIRECTORY/embtier.sock, else /run/embtier/embtier.sock for root, else
 * ${XDG_RUNTIME_DIR:-/tmp/embtier-UID}/embtier.sock. Relative paths in HOME and XDG variables are
 * ignored. Without HOME, the home comes from the system's list of users; if that has none either,
 * there is no default.
 *
 * In /tmp any user can make embtier-UID before the user does, and su leaves XDG_RUNTIME_DIR at
 * another user's directory. So the server calls users_directory_check() before it makes a socket
 * there, and a client before it connects to one. */
#ifndef EMBTIER_BASE_PATHS_H
#define EMBTIER_BASE_PATHS_H

#include <stdbool.h>

#include "base/err.h"
#include "base/macros.h"

/* Returns a malloced string. CONFIG: the user has no home. */
MUST_CHECK enum embtier_err default_data_directory(char **ret_path, struct err_msg *msg);
/* NULL when out of memory. */
MUST_CHECK char *default_socket_path(void);
/* True if default_socket_path() is what EMBTIER_SOCKET says. */
bool default_socket_is_named(void);
/* True if default_socket_path() lies in a directory of the user's own, chosen neither by the system
 * nor by a variable of embtier. */
bool default_socket_is_users(void);
/* PERMISSION: @directory is not a directory or is a link to one, belongs neither to the user nor to
 * root, or is writable by others. NOT_FOUND: it does not exist. */
MUST_CHECK enum embtier_err users_directory_check(const char *directory, struct err_msg *msg);
/* Returns the directory that @path lies in, malloced. */
MUST_CHECK enum embtier_err path_directory(const char *path, char **ret_directory,
                                           struct err_msg *msg);
/* "@directory/@name" */
MUST_CHECK char *path_join(const char *directory, const char *name);

#endif
