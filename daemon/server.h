/* SPDX-License-Identifier: Apache-2.0 */
/* server.h: the whole server put together, run, and taken apart.
 *
 * Parts are made in this order: store, request memory, arenas, lanes, tables, socket. They end in
 * reverse, with the dirty rows written back between the last session and the lanes. */
#ifndef EMBTIER_DAEMON_SERVER_H
#define EMBTIER_DAEMON_SERVER_H

#include <stdint.h>

#include "base/err.h"

struct config;
struct server;

/* Restores that are done before any client is served. */
struct server_restore {
    uint64_t id;        /* all tables are put back to this checkpoint; 0: to none */
    char **directories; /* if any, of another store: tables are made as in its checkpoint `id`, 0:
                           its newest; borrowed */
    uint32_t directory_count;
};
MUST_CHECK enum embtier_err server_new(const struct config *config,
                                       const struct server_restore *restore,
                                       struct server **ret_server, struct err_msg *msg);
/* Serves until a signal asks for a stop. The caller has called signals_begin(). */
MUST_CHECK enum embtier_err server_run(struct server *server, struct err_msg *msg);
/* Writes dirty rows back, with progress in the log, and closes the store. Once the log has said
 * that a disk takes no writes, a further signal gives up on it. The error says that rows were
 * lost. */
MUST_CHECK enum embtier_err server_stop(struct server *server, struct err_msg *msg);
void server_free(struct server *server);
DEFINE_CLEANUP(struct server, server_free)

#endif
