/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_restore.h: makes tables of a checkpoint again, row by row: beside tables that are in
 * use, on whatever lanes, shards and directories the server has now. Thread: the job's. */
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
    uid_t uid;           /* whose */
    bool keeps_owners;   /* the tables are those that have them in the checkpoint */
    char **names;        /* of tables; owned */
    uint32_t name_count; /* 0: all */
    char *new_name;      /* of the only one, or NULL: as it was; owned */
};
void restore_order_clear(struct restore_order *order);

/* One of another store, which no server has open: its directories, whatever their number and that
 * of its shards, are locked until it is closed, and only read. */
struct other_checkpoint {
    struct store_identity *identity;
    struct checkpoint_shelf shelf;
    struct checkpoint_record *record;
};
/* @id 0: its newest. Finds out what can be wrong with it before anything is made or reserved, a
 * name that one of the live tables of @mine (NULL: there are none yet) has (EXISTS) included. */
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

/* All that can be known to be in the way is found out before the first table is made: NOT_FOUND,
 * NO_TABLE, EXISTS, VERSION; BUSY, TOO_LARGE: @memory is not enough now, or never; BUSY: the user
 * may not have so many tables. The shelf may be another store's. The tables are in state CREATING
 * then, to be published or abandoned; after an error there are none. */
MUST_CHECK enum embtier_err
checkpoint_restore(const struct checkpoint_shelf *shelf, struct tables *tables,
                   struct transfer_memory *memory, const struct restore_order *order,
                   const struct progress_sink *progress, struct restored_tables *ret_restored,
                   struct err_msg *msg);

#endif
