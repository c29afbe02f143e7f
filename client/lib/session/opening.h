/* SPDX-License-Identifier: Apache-2.0 */
/* opening.h: makes a session at one of a server's addresses.
 *
 * A round tries each address once, beginning with the one of the last session. It ends at the first
 * server that accepts the client. The round as a whole has the connection's timeout, of which each
 * address gets an equal share of what is left. So an address that does not answer leaves time for
 * the others, and a single one has all of it.
 *
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_LIB_SESSION_OPENING_H
#define EMBTIER_CLIENT_LIB_SESSION_OPENING_H

#include <stdint.h>

#include "base/err.h"
#include "client/lib/connection.h"
#include "client/transport/client_channel.h"
#include "client/transport/control_socket.h"

/* Brought by a hello. */
struct opened {
    struct control_socket socket;
    struct client_channel *channel; /* or NULL */
    struct server_facts facts;
    uint32_t address; /* of the server's list */
};

void opened_init(struct opened *opened, uint32_t timeout_ms);
/* For one that was initialised, however far it is open. */
void opened_close(struct opened *opened);

/* @opened is one that was initialised. On failure it is not open, and the message has the reason of
 * each address; the error is one that may get better, if that of any address may. */
MUST_CHECK enum embtier_err opening_round(const struct embtier *server, uint64_t arena_bytes_max,
                                          struct opened *opened, struct err_msg *msg);

#endif
