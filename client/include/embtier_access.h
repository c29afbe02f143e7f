/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_access.h: which user a client is, and what the server lets it do (embtier.h).
 *
 * A server with an access file knows its clients. A client shows a token, which it reads from the
 * file that the environment variable EMBTIER_TOKEN_FILE names, or it is known by its Unix user. A
 * client that the server does not know gets PERMISSION when it connects. So does a request that its
 * user may not make. */
#ifndef EMBTIER_ACCESS_H
#define EMBTIER_ACCESS_H

#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name of the user that this client was when it connected. "": the server has no access file,
 * or lets the client do all. Valid until the next embtier_reconnect() or embtier_disconnect(). */
EMBTIER_PUBLIC const char *embtier_user(const struct embtier *server);
/* Has the server read its access file and its certificates again. Connections stay, and have their
 * users' new rights at once; new ones get the new certificates. *@ret_users is the number of users
 * in the access file; 0: there is no such file. It may be NULL. CONFIG: a file is wrong, and all
 * old ones stay in force; the message says where. PERMISSION. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_reload(struct embtier *server,
                                                                  uint32_t *ret_users);

#ifdef __cplusplus
}
#endif
#endif
