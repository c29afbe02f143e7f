/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_restore.h: makes a checkpoint's tables again, row by row, while other tables are in
 * use. The server may have other lanes, shards and directories now. Thread: the job's. */
#ifndef EMBTIER_DAEMON_JOBS_RESTORE_CHECKPOINT_RESTORE_H
#define EMBTIER_DAEMON_JOBS_RESTORE_CHECKPOINT_RESTORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/engine/tables/tables.h"
#include "store/checkpoint/checkpoint_shelf.h"

struct catalog;
struct checkpoint_record;
struct store_identity;
struct transfer_memory;

struct restore_order {
    uint64_t id;
    uid_t uid;           /* the user that asked */
    bool keeps_owners;   /* the tables keep the owners that they have in the checkpoint */
    char **names;        /* of tables; owned */
    uint32_t name_count; /* 0: all */
    char *new_name;      /* of the only table; NULL: as it was; owned */
};
void restore_order_clear(struct restore_order *order);

/* A checkpoint of another store, which no server has open and which may have any number of
 * directories and shards. Its directories are only read, and are locked until it is closed. */
struct other_checkpoint {
    struct store_identity *identity;
    struct checkpoint_shelf shelf;
    struct checkpoint_record *record;
};
/* Opens checkpoint @id of another store; 0: its newest. Checks it before anything is made or
 * reserved. EXISTS: a live table of @mine has the name of one of its tables. @mine is NULL if there
 * are no tables yet. */
MUST_CHECK enum embtier_err other_checkpoint_open(char *const *directories,
                                                  uint32_t directory_count, uint64_t id,
                                                  const struct catalog *mine,
                                                  struct other_checkpoint *ret_other,
                                                  struct err_msg *msg);
void other_checkpoint_close(struct other_checkpoint *other);

struct restored_tables {
    struct table_info *infos; /* malloced */
    uint32_t count;
};

/* Restores tables. Makes the first one only after these checks: NOT_FOUND, NO_TABLE, EXISTS,
 * VERSION. BUSY: @memory is not enough now, or the user would have too many tables. TOO_LARGE:
 * @memory is never enough. The shelf may be another store's. The tables are then in state CREATING,
 * and the caller publishes or abandons them. After an error there are none. */
MUST_CHECK enum embtier_err
checkpoint_restore(const struct checkpoint_shelf *shelf, struct tables *tables,
                   struct transfer_memory *memory, const struct restore_order *order,
                   const struct progress_sink *progress, struct restored_tables *ret_restored,
                   struct err_msg *msg);

#endif
