/* SPDX-License-Identifier: Apache-2.0 */
/* paths.h: where things lie when nobody says otherwise; the daemon, the client and the tools agree
 * on it here.
 *
 * Data: $STATE_DIRECTORY (systemd), else /var/lib/embtier for root, else
 * ${XDG_STATE_HOME:-~/.local/state}/embtier. Socket: $EMBTIER_SOCKET, else
 * $RUNTIME_DIRECTORY/embtier.sock, else /run/embtier/embtier.sock for root, else
 * ${XDG_RUNTIME_DIR:-/tmp/embtier-UID}/embtier.sock. Paths that are not absolute in XDG variables
 * and HOME say nothing. Without HOME, the home is that of the system's list of users; where there
 * is none either, nothing is made up.
 *
 * In /tmp any user can make embtier-UID before the user does, and XDG_RUNTIME_DIR may be another
 * user's, as su leaves it. So before the server makes a socket there, and before a client connects
 * to one, users_directory_check() looks whether the directory is the user's own. */
#ifndef EMBTIER_BASE_PATHS_H
#define EMBTIER_BASE_PATHS_H

#include <stdbool.h>

#include "base/err.h"
#include "base/macros.h"

/* Malloced strings. CONFIG: there is no home. */
MUST_CHECK enum embtier_err default_data_directory(char **ret_path, struct err_msg *msg);
/* NULL when out of memory. */
MUST_CHECK char *default_socket_path(void);
/* True: default_socket_path() is in a directory of the user's own, which neither the system nor a
 * variable for embtier chose. */
bool default_socket_is_users(void);
/* PERMISSION: @directory is no directory, a link to one, not the user's or root's, or others can
 * write to it. NOT_FOUND. */
MUST_CHECK enum embtier_err users_directory_check(const char *directory, struct err_msg *msg);
/* The directory that @path lies in, malloced. */
MUST_CHECK enum embtier_err path_directory(const char *path, char **ret_directory,
                                           struct err_msg *msg);
/* "@directory/@name" */
MUST_CHECK char *path_join(const char *directory, const char *name);

#endif
