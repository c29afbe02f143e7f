/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_connection.h: a connection to a server (embtier.h). */
#ifndef EMBTIER_CONNECTION_H
#define EMBTIER_CONNECTION_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

struct embtier_connect_options {
    size_t struct_bytes;     /* sizeof(struct embtier_connect_options): set by
                                EMBTIER_CONNECT_OPTIONS_INIT */
    const char *socket_path; /* the server's address: a path or unix:PATH (shared memory),
                                unix+rpc:PATH, tcp://HOST:PORT, tcp://[IPV6]:PORT. NULL:
                                $EMBTIER_SOCKET, else the server's default; PERMISSION if that may
                                be another user's */
    uint64_t arena_bytes;    /* memory for ids and rows, shared with the server or, over a network,
                                as much on both sides; 0: control messages only */
    uint32_t max_in_flight;  /* requests submitted and not done; 1 … 1024 */
    uint32_t timeout_ms;     /* for connecting and for control messages; 0: wait for ever */
    const char *client_name; /* for the server's log, at most 128 bytes; NULL: "libembtier" */
};
#define EMBTIER_CONNECT_OPTIONS_INIT                                                               \
    {                                                                                              \
        sizeof(struct embtier_connect_options), NULL, 64 << 20, 64, 10000, NULL                    \
    }

/* Connects to a server. @options NULL: EMBTIER_CONNECT_OPTIONS_INIT. UNREACHABLE: no server
 * listens. BUSY: no sessions or no shared memory are left, for all or for this user; the message
 * names the key. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_connect(const struct embtier_connect_options *options, struct embtier **ret_server);
/* Ends the session and frees everything made from it. Requests in flight are abandoned: a SET among
 * them may take effect on all, some or none of its rows. NULL is allowed. */
EMBTIER_PUBLIC void embtier_disconnect(struct embtier *server);
/* Makes a new session with the same options after DISCONNECTED; does nothing while the old one is
 * alive. Tables opened before are opened again by name. Batches keep their ids and rows, at the
 * same addresses, and can be submitted again. Requests that were in flight have failed; tickets and
 * memberships of groups are gone. A missing table does not prevent the reconnect: requests to it
 * fail with NO_TABLE. MISMATCH: the server grants less memory than before. Or a table has a
 * different dim or dtype, or a different optimizer while a batch holds its state; close that table
 * and free its batches. BUSY: both sessions together need more memory than this user may have; the
 * old one counts until then. On failure nothing has changed, and the call can be repeated. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_reconnect(struct embtier *server);

#ifdef __cplusplus
}
#endif
#endif
