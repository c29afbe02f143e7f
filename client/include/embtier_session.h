/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_session.h: the sessions of a server's clients, for administrators (embtier.h). */
#ifndef EMBTIER_SESSION_H
#define EMBTIER_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

struct embtier_session {
    uint64_t number;       /* counts up, from the server's start */
    const char *user;      /* of the server's access file; "": the Unix user @uid */
    uint32_t uid;          /* UINT32_MAX: unknown, such as that of a client over a network */
    uint64_t pid;          /* 0: unknown */
    const char *address;   /* "192.0.2.7:40512"; "": it came over a Unix socket */
    const char *transport; /* "shm", "unix+rpc", "tcp", "tls" */
    const char *client;    /* what the client calls itself, cut short */
    uint64_t age_ms;
    uint32_t connections;
    uint64_t arena_bytes;
    uint64_t requests;  /* for rows, since it connected */
    uint64_t rows;      /* that these named; of a push with a ticket, bags */
    uint32_t in_flight; /* such requests under way */
    uint32_t tickets;   /* that it holds, and prefetches */
    int is_own;         /* nonzero: this connection's */
};
struct embtier_session_list;
/* Lists the sessions of all users, by number. A user of the access file that is no administrator of
 * all tables gets its own. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_session_list(struct embtier *server, struct embtier_session_list **ret_list);
EMBTIER_PUBLIC size_t embtier_session_list_count(const struct embtier_session_list *list);
/* Borrowed from the list. */
EMBTIER_PUBLIC const struct embtier_session *
embtier_session_list_at(const struct embtier_session_list *list, size_t index);
EMBTIER_PUBLIC void embtier_session_list_free(struct embtier_session_list *list);
/* Ends another client's session. Its calls then fail with DISCONNECTED, and the message says that
 * an administrator has ended it; it may connect again. Requests under way are finished. NOT_FOUND;
 * INVALID: it is this connection's own; PERMISSION. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_session_end(struct embtier *server,
                                                                       uint64_t number);

#ifdef __cplusplus
}
#endif
#endif
