/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: an open table, as batches use it. Thread: the connection's. */
#ifndef EMBTIER_CLIENT_LIB_TABLE_H
#define EMBTIER_CLIENT_LIB_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/spec/table_spec.h"
#include "client/include/embtier.h"
#include "proto/control.pb-c.h"

struct control_socket;

/* A table's description with the strings it points to. It must not be moved. */
struct table_description {
    struct embtier_table_info info;
    struct table_spec spec;
    char state[32];
};

struct embtier_table {
    struct embtier *server;
    struct embtier_table *next;
    struct embtier_table *previous;
    struct table_description description;
    uint64_t handle;          /* 0: the table has not come back with the server */
    Embtier__Reply *reopened; /* while reconnecting */
    uint32_t batch_parts;     /* that use it */
    uint32_t state_parts;     /* of these, with state */
    bool closed;              /* by the user; lives on for its batches */
};

void table_describe(const Embtier__TableInfo *wire, struct table_description *ret_description);

/* Names are checked here too: what the protocol does not allow would cost the session. NULL is
 * INVALID as well. */
MUST_CHECK enum embtier_err table_check_name(struct embtier *server, const char *name);

/* Options as this library knows them, from a caller that may be older and have fewer. */
MUST_CHECK enum embtier_err table_options_read(struct embtier *server,
                                               const struct embtier_table_options *given,
                                               struct embtier_table_options *ret_options);
MUST_CHECK enum embtier_err table_options_to_spec(struct embtier *server,
                                                  const struct embtier_table_options *options,
                                                  struct table_spec *ret_spec);

struct table_names {
    const char **names; /* in order of strcmp() */
    size_t count;
};
/* The tables that @first describes, which is taken over, and if there are more, those that the
 * server has behind them; of these only such of @names, if it is not NULL. PROTOCOL: it describes
 * none. */
MUST_CHECK enum embtier_err table_list_read(struct embtier *server, Embtier__Reply **first,
                                            const struct table_names *names,
                                            struct embtier_table_list **ret_list);

/* A part of a batch begins, or ends, to use it. */
void table_hold(struct embtier_table *table, bool with_state);
void table_release(struct embtier_table *table, bool with_state);

void tables_free(struct embtier *server); /* all of them */

/* Opens all tables by name over @sock, a new session. A table that is gone is no failure: its
 * handle becomes 0. MISMATCH. Nothing changes until tables_reopened(), which follows in any case
 * and says whether the new session is to be @kept. */
MUST_CHECK enum embtier_err tables_reopen(struct embtier *server, struct control_socket *sock,
                                          struct err_msg *msg);
void tables_reopened(struct embtier *server, bool kept);

#endif
