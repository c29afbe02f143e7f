/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: open tables, as batches use them, and descriptions of tables. Thread: the
 * connection's. */
#ifndef EMBTIER_CLIENT_LIB_TABLE_H
#define EMBTIER_CLIENT_LIB_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/spec/table_spec.h"
#include "client/include/embtier.h"
#include "proto/control.pb-c.h"

struct control_socket;

/* A table's description and the strings it points to. It must not be moved, because it points into
 * itself. */
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
    uint64_t handle;          /* 0: the restarted server no longer has the table */
    Embtier__Reply *reopened; /* while reconnecting */
    uint32_t batch_parts;     /* parts of batches that use it */
    uint32_t state_parts;     /* of these, parts with state */
    bool closed;              /* by the user; the struct lives on for its batches */
};

void table_describe(const Embtier__TableInfo *wire, struct table_description *ret_description);

/* Checks a table's name. A name that the protocol does not allow would cost the session, so this
 * side checks too. INVALID, also for NULL. */
MUST_CHECK enum embtier_err table_check_name(struct embtier *server, const char *name);

/* Reads a caller's options. The caller may be older and have fewer of them. */
MUST_CHECK enum embtier_err table_options_read(struct embtier *server,
                                               const struct embtier_table_options *given,
                                               struct embtier_table_options *ret_options);
MUST_CHECK enum embtier_err table_options_to_spec(struct embtier *server,
                                                  const struct embtier_table_options *options,
                                                  struct table_spec *ret_spec);

struct table_names {
    const char **names; /* in strcmp() order */
    size_t count;
};
/* Makes a list of the tables in @first, which it takes over, and of those on the server's further
 * pages, if any. @names, if not NULL, selects tables of the further pages. PROTOCOL: a reply
 * describes no tables. */
MUST_CHECK enum embtier_err table_list_read(struct embtier *server, Embtier__Reply **first,
                                            const struct table_names *names,
                                            struct embtier_table_list **ret_list);

/* Count a part of a batch that begins, or ceases, to use the table. */
void table_hold(struct embtier_table *table, bool with_state);
void table_release(struct embtier_table *table, bool with_state);

void tables_free(struct embtier *server); /* all of them */

/* Opens all tables by name over @sock, a new session. A missing table is no failure: its handle
 * becomes 0. MISMATCH. Nothing changes until tables_reopened(). The caller always calls it next,
 * with @kept true if it keeps the new session. */
MUST_CHECK enum embtier_err tables_reopen(struct embtier *server, struct control_socket *sock,
                                          struct err_msg *msg);
void tables_reopened(struct embtier *server, bool kept);

#endif
