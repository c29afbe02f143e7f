/* SPDX-License-Identifier: Apache-2.0 */
/* paths.h: where things lie when nobody says otherwise; the daemon, the client and the tools agree
 * on it here.
 *
 * Data: $STATE_DIRECTORY (systemd), else /var/lib/embtier for root, else
 * ${XDG_STATE_HOME:-~/.local/state}/embtier. Socket: $EMBTIER_SOCKET, else
 * $RUNTIME_DIRECTORY/embtier.sock, else /run/embtier/embtier.sock for root, else
 * ${XDG_RUNTIME_DIR:-/tmp/embtier-UID}/embtier.sock. */
#ifndef EMBTIER_BASE_PATHS_H
#define EMBTIER_BASE_PATHS_H

#include "base/macros.h"

/* Malloced strings; NULL when out of memory. */
MUST_CHECK char *default_data_directory(void);
MUST_CHECK char *default_socket_path(void);
/* "@directory/@name" */
MUST_CHECK char *path_join(const char *directory, const char *name);

#endif
