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

/* Addresses. A path or unix:PATH is a Unix socket, with rows in shared memory. unix+rpc:PATH,
 * tcp://HOST:PORT, tcp://[IPV6]:PORT and the same with tls:// carry the rows too. A client's files
 * follow as ?ca=FILE&cert=FILE&key=FILE&token=FILE, and connections=N gives each session N
 * connections, 1 to 16, for networks that are faster than one. Each counts as a session.
 * "tcp://a:7411,tcp://b:7411" names two: a comma always ends an address. They are tried in turn,
 * beginning with the one of the last session, until a server accepts the client. Each gets an equal
 * share of the time that is left, and the message of a failure has the reason of each. All
 * addresses that a HOST's name has are tried, IPv6 and IPv4, 250 ms apart, and the first connection
 * wins. The name is looked up for each attempt. The look-up itself may take longer than timeout_ms
 * allows: the system limits it (resolv.conf(5)).
 *
 * Lost connections. The end of the server's process is noticed within a second; a host that is
 * gone without a word within half a minute. All requests in flight then end with DISCONNECTED. One
 * that changes rows may have taken effect on all, some or none of them, and is never repeated. A
 * process that hangs, or that SIGSTOP has stopped, is not noticed: only timeouts end such waits. */
struct embtier_connect_options {
    size_t struct_bytes;     /* sizeof(struct embtier_connect_options): set by
                                EMBTIER_CONNECT_OPTIONS_INIT */
    const char *socket_path; /* the server's address, or up to 8 with commas between; see above.
                                NULL: $EMBTIER_SOCKET, else the server's default; PERMISSION if
                                that may be another user's */
    uint64_t arena_bytes;    /* memory for ids and rows, shared with the server or, over a network,
                                as much on both sides; 0: control messages only */
    uint32_t max_in_flight;  /* requests submitted and not done; 1 … 1024. The next power of two
                                is granted */
    uint32_t timeout_ms;     /* for connecting and for control messages; 0: wait for ever */
    const char *client_name; /* for the server's log, at most 128 bytes; NULL: "libembtier" */
    uint32_t reconnect_ms;   /* how long embtier_reconnect() begins new attempts; 0: one attempt,
                                UINT32_MAX: for ever */
    uint32_t request_timeout_ms; /* for embtier_get() and the other calls that submit and wait, but
                                    not for pushes of groups; 0: wait for ever */
    int retry_reads;             /* nonzero: reads are repeated after DISCONNECTED; see below */
    int unused;                  /* 0 */
};
#define EMBTIER_CONNECT_OPTIONS_INIT                                                               \
    {                                                                                              \
        sizeof(struct embtier_connect_options), NULL, 64 << 20, 64, 10000, NULL, 0, 0, 0, 0        \
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
 * memberships of groups are gone: requests that need them fail with NO_TICKET and NO_GROUP. A
 * missing table does not prevent the reconnect: requests to it fail with NO_TABLE. MISMATCH: the
 * server grants less memory than before. Or a table has a different dim or dtype, or a different
 * optimizer while a batch holds its state; close that table and free its batches. BUSY: both
 * sessions together need more memory than this user may have; the old one counts until then. On
 * failure nothing has changed, and the call can be repeated.
 *
 * UNREACHABLE, TIMEOUT, BUSY, DISCONNECTED and SHUTDOWN may get better. After these the call tries
 * again, until it has begun attempts for reconnect_ms. Any other error ends it at once. An attempt
 * lasts at most timeout_ms. The pause before the next one is random, from 0 to a limit that doubles
 * from 50 ms to 5 s, so that the clients of a restarted server do not all come at once. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_reconnect(struct embtier *server);
/* The same, with a limit of this call's own. Calls that follow each other continue with the pauses,
 * so a caller can wait in short pieces. One of them may return the last error without an attempt.
 */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_reconnect_within(struct embtier *server,
                                                                            uint32_t timeout_ms);
/* Counts the sessions of a connection, from 1. With retry_reads a call may have made a new one.
 * Then tickets and memberships are gone, and after a crash rows may be older than those read
 * before. */
EMBTIER_PUBLIC uint64_t embtier_session_number(const struct embtier *server);

/* Repeated reads. With retry_reads, a call that cannot change rows and ends with DISCONNECTED is
 * made once more, after embtier_reconnect(), whose error it returns if that fails. These are
 * embtier_get(), embtier_get_pooled() and embtier_prefetch() of batches without a group, opening a
 * table, lists and descriptions, and the status. Requests that were submitted by themselves, and
 * requests of other batches in flight, are not repeated. */

#ifdef __cplusplus
}
#endif
#endif
