/* SPDX-License-Identifier: Apache-2.0 */
/* operations.h: every operation that a client can ask for, with the least role that may do it and
 * its relation to tables.
 *
 * This is the one table. An operation that has no row here is refused. Thread: any. */
#ifndef EMBTIER_DAEMON_ACCESS_OPERATIONS_H
#define EMBTIER_DAEMON_ACCESS_OPERATIONS_H

#include <stdint.h>

#include "proto/role.h"

struct Embtier__Request;

/* Which tables the user must be granted. */
enum relation {
    RELATION_NONE,     /* no table, or only what is the connection's own */
    RELATION_NAMED,    /* those that the message names; all, if it names none */
    RELATION_OPENED,   /* that of the connection's own export or import */
    RELATION_SEGMENTS, /* those of the request's segments; checked by the lane */
    RELATION_LISTED,   /* none, but the answer leaves out what the user is not granted */
    RELATION_WHOLE,    /* all */
};

struct operation {
    const char *name; /* for messages: "table drop", "PUSH"; NULL: there is no such operation */
    enum role role;
    enum relation relation;
    /* RELATION_NAMED: returns the @i-th name in the message; NULL: there are no more. */
    const char *(*table)(const struct Embtier__Request *request, uint32_t i);
};

/* Returns a control message's operation, by its body case, or NULL. */
const struct operation *operation_of_body(uint32_t body_case);
/* Returns what a TableCreate with if_not_exists needs if the table is there: nothing is made. */
const struct operation *operation_of_found_table(void);
/* Returns the operation of a submission (proto/ops.h), or NULL. */
const struct operation *operation_of_op(uint32_t op, uint32_t flags);

#endif
