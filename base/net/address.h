/* SPDX-License-Identifier: Apache-2.0 */
/* address.h: addresses of servers, as users write them.
 *
 *     /run/embtier/embtier.sock, unix:PATH   Unix socket, then shared memory
 *     unix+rpc:PATH                          Unix socket, all over it
 *     tcp://HOST:PORT, tcp://[IPV6]:PORT
 *
 * Thread: any. */
#ifndef EMBTIER_BASE_NET_ADDRESS_H
#define EMBTIER_BASE_NET_ADDRESS_H

#include <stdbool.h>

#include "base/err.h"
#include "base/macros.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ADDRESS_HOST_MAX 255
#define ADDRESS_PATH_MAX 107 /* of a Unix socket, in bytes: the system's limit */

enum address_kind {
    ADDRESS_UNIX,
    ADDRESS_UNIX_RPC,
    ADDRESS_TCP,
};

struct address {
    enum address_kind kind;
    char path[ADDRESS_PATH_MAX + 1]; /* of a Unix socket; else "" */
    char host[ADDRESS_HOST_MAX + 1]; /* name or number, without brackets; else "" */
    char port[6];                    /* decimal, 0 to 65535; else "" */
};

/* INVALID: @text is no address; the message says what is allowed. */
MUST_CHECK enum embtier_err address_parse(const char *text, struct address *ret_address,
                                          struct err_msg *msg);

#ifdef __cplusplus
}
#endif
#endif
