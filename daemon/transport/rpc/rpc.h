/* SPDX-License-Identifier: Apache-2.0 */
/* rpc.h: all that serves clients over streams: sockets that listen, and loops.
 *
 * Thread: the owner's. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_RPC_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_RPC_H

#include <stdbool.h>

#include "base/err.h"
#include "base/macros.h"

struct certificates;
struct config;
struct message;
struct rpc;
struct strangers;

/* Checks that the addresses of config->rpc can be listened at. @may_live: a server that runs may
 * have them. Changes nothing. */
MUST_CHECK enum embtier_err rpc_check(const struct config *config, bool may_live,
                                      struct err_msg *msg);
/* Listens at the addresses of config->rpc, and serves from now on. @certificates are borrowed;
 * NULL: no address has TLS. @strangers, borrowed too, gets their figures. @send hands new clients
 * to the control thread; any thread calls it.
 * @ret_rpc is NULL if there are no addresses. After an error it may be half made, and is to be
 * stopped and freed all the same: it may have clients. */
MUST_CHECK enum embtier_err rpc_new(const struct config *config, struct certificates *certificates,
                                    struct strangers *strangers,
                                    void (*send)(void *owner, struct message *message), void *owner,
                                    struct rpc **ret_rpc, struct err_msg *msg);
/* Accepts no more clients: none is sent to the control thread afterwards. NULL is fine. */
void rpc_stop(struct rpc *rpc);
/* It was stopped, and the control thread has none of its clients any more, nor mail of any. */
void rpc_free(struct rpc *rpc);

#endif
