/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_restore.h: makes tables of a checkpoint again, row by row: beside tables that are in
 * use, on whatever lanes, shards and directories the server has now. Thread: the worker's. */
#ifndef EMBTIER_DAEMON_CHECKPOINT_RESTORE_H
#define EMBTIER_DAEMON_CHECKPOINT_RESTORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/tables.h"

struct checkpoint_shelf;
struct transfer_memory;

struct restore_order {
    uint64_t id;
    uid_t uid;           /* whose */
    char **names;        /* of tables; owned */
    uint32_t name_count; /* 0: all */
    char *new_name;      /* of the only one, or NULL: as it was; owned */
};
void restore_order_clear(struct restore_order *order);

struct restored_tables {
    struct table_info *infos; /* malloced */
    uint32_t count;
};

/* All that can be known to be in the way is found out before the first table is made: NOT_FOUND,
 * NO_TABLE, EXISTS, VERSION; BUSY, TOO_LARGE: @memory is not enough now, or never. The shelf may be
 * another store's. The tables are in state CREATING then, to be published or abandoned; after an
 * error there are none. */
MUST_CHECK enum embtier_err
checkpoint_restore(const struct checkpoint_shelf *shelf, struct tables *tables,
                   struct transfer_memory *memory, const struct restore_order *order,
                   const struct progress_sink *progress, struct restored_tables *ret_restored,
                   struct err_msg *msg);

#endif
