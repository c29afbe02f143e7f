/* SPDX-License-Identifier: Apache-2.0 */
/* connection.h: a session with the daemon, as the files of this library share it.
 *
 * A connection is `over` once its end is noticed. The socket is closed, and answered requests keep
 * their answers. Other requests, and all calls until embtier_reconnect(), fail with DISCONNECTED.
 * Memory, tables and batches stay.
 *
 * Thread: one at a time, the caller's. */
#ifndef EMBTIER_CLIENT_LIB_CONNECTION_H
#define EMBTIER_CLIENT_LIB_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/net/address_list.h"
#include "client/include/embtier.h"
#include "client/lib/arena_alloc.h"
#include "client/lib/session/retry.h"
#include "client/transport/client_channel.h"
#include "client/transport/control_socket.h"
#include "proto/control_limits.h"

/* As the server said in its answer to the hello. */
struct server_facts {
    uint32_t max_batch_rows;
    char config_file[CONFIG_FILE_BYTES_MAX + 1]; /* "": unknown */
    char user[64 + 1];                           /* that the client is; "": it may do all */
    struct session_key {
        uint64_t session; /* the server's number; 0: it has given no secret */
        uint8_t secret[SECRET_BYTES_MAX];
        size_t secret_bytes;
        bool went_in_clear; /* over a network, where others could read it */
    } key;                  /* of the session, by which a later one replaces it */
};

struct embtier {
    /* As the caller asked for; strings are owned. */
    struct address_list *addresses;
    bool socket_is_users; /* the default, in a directory that must be the user's own */
    char *client_name;
    uint64_t arena_bytes;
    uint32_t max_in_flight;
    uint32_t timeout_ms;
    uint32_t reconnect_ms;       /* RETRY_FOREVER_MS: no limit */
    uint32_t request_timeout_ms; /* 0: none */
    bool retries_reads;

    struct tls_contexts *tls; /* of all connections to these addresses */
    struct control_socket socket;
    struct client_channel *channel; /* NULL: the session has control messages only */
    struct server_facts facts;
    uint32_t address;        /* of the list, at which the session is */
    uint64_t session_number; /* counts sessions of this connection, from 1; handles opened in one
                                end with it */
    bool over;
    struct err_msg over_reason;
    struct retry retry;              /* of embtier_reconnect_within() */
    struct err_msg reconnect_reason; /* why its last attempt failed */
    /* Fails the requests in flight when the connection is over. Points to requests_fail(), which
     * lies in a higher layer. */
    void (*fail_requests)(struct embtier *server);
    struct err_msg message; /* of the last failed call */

    /* Requests: see request.c. */
    struct arena_alloc *alloc;    /* NULL without an arena */
    struct embtier_batch **slots; /* the batch whose request is in flight, or NULL */
    uint32_t tail;                /* requests submitted in this session */
    uint64_t checked_ns;          /* when the server was last seen alive */
    uint32_t spin_ns;             /* how long a wait now spins before it sleeps */
    uint32_t spin_ns_max;         /* the limit on spin_ns */

    struct embtier_table *tables; /* lists, newest first */
    struct embtier_batch *batches;
    struct embtier_group *groups;
};

/* Makes a control call. On failure the message is set; if the connection broke, it is over. A call
 * that changes nothing is repeated in a new session, once, if the caller allows that. */
MUST_CHECK enum embtier_err connection_call(struct embtier *server, Embtier__Request *request,
                                            embtier_progress_fn *progress, void *progress_context,
                                            Embtier__Reply **ret_reply);

/* Checks whether the server is still there; if not, the connection is over. Never waits. */
void connection_check(struct embtier *server);
void connection_end(struct embtier *server, const char *reason);

DEFINE_CLEANUP(struct embtier, embtier_disconnect)

/* Returns the bytes at an offset into the region, which the session has. */
static inline void *connection_bytes(const struct embtier *server, uint64_t offset)
{
    return server->channel->region + offset;
}

/* Make a part of the region the same on both sides, before a call that names it or after one. On
 * failure the message is set, and the connection is over. */
MUST_CHECK enum embtier_err connection_put(struct embtier *server, uint64_t offset, uint64_t bytes);
MUST_CHECK enum embtier_err connection_put_ids(struct embtier *server, uint64_t offset,
                                               uint64_t count);
MUST_CHECK enum embtier_err connection_get(struct embtier *server, uint64_t offset, uint64_t bytes);

/* Returns DISCONNECTED and sets the message. */
enum embtier_err connection_is_over(struct embtier *server);

/* Returns "@key in FILE": a key of the server's configuration and its file, if known. The text lies
 * in @buffer, which SERVER_KEY() places in the caller's statement. */
struct server_key_text {
    char text[64 + sizeof(((struct server_facts *)NULL)->config_file)];
};
const char *server_key_text(struct server_key_text *buffer, const struct embtier *server,
                            const char *key);
#define SERVER_KEY(server, key) server_key_text(&(struct server_key_text){ { 0 } }, (server), (key))

/* Copies a caller's options over the defaults in @options, of @bytes. Their first field,
 * struct_bytes, is the size of the version that the caller knows: @least bytes or more. All
 * versions are multiples of 8 bytes, so that none ends within a pointer or number. INVALID: @given
 * is NULL, or of an unknown version. @what and @init are for the message: "push", and the name of
 * the macro that sets struct_bytes. */
enum embtier_err options_read(const void *given, size_t least, void *options, size_t bytes,
                              const char *what, const char *init, struct err_msg *msg);

#endif
