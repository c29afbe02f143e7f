/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/access/operations.h"

#include <stddef.h>

#include "base/macros.h"
#include "proto/control.pb-c.h"
#include "proto/ops.h"

/* ---- Names in messages ---- */

#define NAME_OF(message, place)                                                                    \
    static const char *message##_name(const Embtier__Request *request, uint32_t i)                 \
    {                                                                                              \
        return i == 0 ? request->message->place : NULL;                                            \
    }
NAME_OF(table_create, spec->name)
NAME_OF(table_open, name)
NAME_OF(table_drop, name)
NAME_OF(table_move, name)
NAME_OF(scan_open, table)
NAME_OF(load_open, spec->name)

/* The tables that are restored, and the new name of one. */
static const char *checkpoint_restore_name(const Embtier__Request *request, uint32_t i)
{
    const Embtier__CheckpointRestore *const restore = request->checkpoint_restore;

    if (i < restore->n_tables)
        return restore->tables[i];
    return i == restore->n_tables && restore->name[0] != '\0' ? restore->name : NULL;
}

/* ---- Control messages ---- */

/* X(body case, name, role, relation, names) */
#define BODIES(X)                                                                                  \
    X(HELLO, "hello", NONE, NONE, NULL)                                                            \
    X(TABLE_CREATE, "table create", ADMIN, NAMED, table_create_name)                               \
    X(TABLE_OPEN, "table open", READ, NAMED, table_open_name)                                      \
    X(TABLE_LIST, "table list", READ, LISTED, NULL)                                                \
    X(TABLE_DROP, "table drop", ADMIN, NAMED, table_drop_name)                                     \
    X(TABLE_MOVE, "table move", ADMIN, NAMED, table_move_name)                                     \
    X(STATUS, "status", READ, NONE, NULL)                                                          \
    X(GROUP_JOIN, "group join", TRAIN, NONE, NULL)                                                 \
    X(GROUP_LEAVE, "group leave", TRAIN, NONE, NULL)                                               \
    X(CHECKPOINT_CREATE, "checkpoint create", ADMIN, WHOLE, NULL)                                  \
    X(CHECKPOINT_LIST, "checkpoint list", READ, NONE, NULL)                                        \
    X(CHECKPOINT_SHOW, "checkpoint show", READ, WHOLE, NULL) /* it names tables */                 \
    X(CHECKPOINT_VERIFY, "checkpoint verify", ADMIN, WHOLE, NULL)                                  \
    X(CHECKPOINT_DELETE, "checkpoint delete", ADMIN, WHOLE, NULL)                                  \
    X(CHECKPOINT_RESTORE, "checkpoint restore", ADMIN, NAMED, checkpoint_restore_name)             \
    X(SCAN_OPEN, "export", READ, NAMED, scan_open_name)                                            \
    X(SCAN_NEXT, "export", READ, OPENED, NULL)                                                     \
    X(SCAN_CLOSE, "end of an export", NONE, NONE, NULL)                                            \
    X(LOAD_OPEN, "import", ADMIN, NAMED, load_open_name) /* it makes a table */                    \
    X(LOAD_ROWS, "import", ADMIN, OPENED, NULL)                                                    \
    X(LOAD_END, "end of an import", ADMIN, OPENED, NULL)                                           \
    X(LOAD_CLOSE, "end of an import", NONE, NONE, NULL)                                            \
    X(ACCOUNT_LIST, "account list", READ, LISTED, NULL)                                            \
    X(JOB_LIST, "job list", READ, LISTED, NULL)                                                    \
    X(JOB_CANCEL, "job cancel", READ, NONE, NULL) /* own jobs; an admin of all tables: any */      \
    X(PLAN_BEGIN, "plan begin", ADMIN, WHOLE, NULL)                                                \
    X(PLAN_END, "plan end", ADMIN, WHOLE, NULL)                                                    \
    X(PLAN_SHOW, "plan show", READ, NONE, NULL)                                                    \
    X(PROFILE_START, "profile start", ADMIN, WHOLE, NULL)                                          \
    X(PROFILE_STOP, "profile stop", ADMIN, WHOLE, NULL)                                            \
    X(PROFILE_READ, "profile read", ADMIN, WHOLE, NULL)                                            \
    X(RELOAD, "reload", ADMIN, WHOLE, NULL)                                                        \
    X(COMPACTION_SHOW, "compaction status", ADMIN, WHOLE, NULL)                                    \
    X(COMPACTION_SET, "compaction pause, resume or schedule", ADMIN, WHOLE, NULL)                  \
    X(COMPACTION_RUN, "compaction run", ADMIN, WHOLE, NULL)                                        \
    X(RESHARD, "reshard", ADMIN, WHOLE, NULL)                                                      \
    X(SESSION_LIST, "session list", READ, LISTED, NULL)                                            \
    X(SESSION_END, "session end", ADMIN, WHOLE, NULL)                                              \
    X(KNOB_LIST, "knob list", ADMIN, WHOLE, NULL) /* it shows paths of the server */               \
    X(KNOB_SET, "knob set", ADMIN, WHOLE, NULL)

static const struct body_row {
    uint32_t body_case;
    struct operation operation;
} bodies[] = {
#define X(body, name, role, relation, names)                                                       \
    { EMBTIER__REQUEST__BODY_##body, { name, ROLE_##role, RELATION_##relation, names } },
    BODIES(X)
#undef X
};

static const struct operation found_table = { "table create of one that is there", ROLE_READ,
                                              RELATION_NAMED, table_create_name };

const struct operation *operation_of_found_table(void)
{
    return &found_table;
}

const struct operation *operation_of_body(uint32_t body_case)
{
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++)
        if (bodies[i].body_case == body_case)
            return &bodies[i].operation;
    return NULL;
}

/* ---- Operations on rows ---- */

/* Tests of operations build a copy of this file with one more. */
#ifdef OP_OF_TESTS
#define ROW_OF_TESTS(X) X(LAST + 1, "test", READ, SEGMENTS)
#else
#define ROW_OF_TESTS(X)
#endif

/* X(operation, name, role, relation). A ticket is the first half of a push. */
#define OPS(X)                                                                                     \
    X(GET, "GET", READ, SEGMENTS)                                                                  \
    X(SET, "SET", TRAIN, SEGMENTS)                                                                 \
    X(POOL, "POOL", READ, SEGMENTS)                                                                \
    X(PUSH, "PUSH", TRAIN, SEGMENTS)                                                               \
    X(RELEASE, "RELEASE", NONE, NONE) /* of a ticket of its own session */                         \
    X(PREFETCH, "PREFETCH", READ, SEGMENTS)                                                        \
    ROW_OF_TESTS(X)

static const struct operation ops[] = {
#define X(op, name, role, relation) [OP_##op] = { name, ROLE_##role, RELATION_##relation, NULL },
    OPS(X)
#undef X
};
static const struct operation pool_with_ticket = { "a lookup to train from (with a ticket)",
                                                   ROLE_TRAIN, RELATION_SEGMENTS, NULL };

const struct operation *operation_of_op(uint32_t op, uint32_t flags)
{
    if (op >= ARRAY_LEN(ops) || !ops[op].name)
        return NULL;
    return op == OP_POOL && (flags & OP_FLAG_TICKET) ? &pool_with_ticket : &ops[op];
}
