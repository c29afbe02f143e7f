/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_shelf.h: where the checkpoints of a store lie, and which there are.
 *
 * On disk, in each data directory:
 *   checkpoints/000017/shard-0003/replay/   the files of that database: SSTs are second names
 *                                           (hard links), the rest are copies
 *   checkpoints/000017/shard-0003/logged/   the same, its log included
 * and in the first one:
 *   checkpoints/000017/catalog.json         the tables as they were
 *   checkpoints/000017/checkpoint.json      the record (checkpoint_record.h), written last
 *   checkpoints/000017/draft                only while it is made or deleted: there is none then
 *
 * The mark `draft` is made before anything else is in the folder, and removed when all is complete;
 * or made again, and removed as the last. So a folder in the first directory with a mark, or with
 * nothing in it, is no checkpoint, and is swept away; one with neither mark nor record was complete
 * once, and is never taken for nothing.
 *
 * Thread: any to read; to change, the one that makes and deletes. */
#ifndef EMBTIER_STORE_CHECKPOINT_CHECKPOINT_SHELF_H
#define EMBTIER_STORE_CHECKPOINT_CHECKPOINT_SHELF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/checkpoint/checkpoint_record.h"

struct catalog;
struct store_identity;

#define CHECKPOINT_SHELF_FOLDER "checkpoints" /* in each data directory */

struct checkpoint_shelf {
    const struct store_identity *identity; /* borrowed */
    uint32_t shards_per_directory;
    uint32_t read_files; /* table files of a checkpoint's database that are open at a time; 0: 54 */
};

/* Ids of all, ascending; malloced. One that is damaged is among them. */
MUST_CHECK enum embtier_err checkpoint_list(const struct checkpoint_shelf *shelf,
                                            uint64_t **ret_ids, uint32_t *ret_count,
                                            struct err_msg *msg);
/* NOT_FOUND; CORRUPT: also if its record is missing; MISMATCH: it is another store's; else as
 * checkpoint_record_read(). */
MUST_CHECK enum embtier_err checkpoint_read(const struct checkpoint_shelf *shelf, uint64_t id,
                                            struct checkpoint_record **ret_record,
                                            struct err_msg *msg);
/* The newest, or NULL. */
MUST_CHECK enum embtier_err checkpoint_read_newest(const struct checkpoint_shelf *shelf,
                                                   struct checkpoint_record **ret_record,
                                                   struct err_msg *msg);
/* The tables as they were. CORRUPT. */
MUST_CHECK enum embtier_err checkpoint_catalog(const struct checkpoint_shelf *shelf,
                                               const struct checkpoint_record *record,
                                               struct catalog **ret_catalog, struct err_msg *msg);
/* Malloced: where a checkpoint has the files of a database; NULL when out of memory. */
MUST_CHECK char *checkpoint_database_path(const struct checkpoint_shelf *shelf, uint64_t id,
                                          uint32_t shard, bool logged);
/* Removes what is left of checkpoints that were not completed, or not quite deleted. When none is
 * being made. */
MUST_CHECK enum embtier_err checkpoint_sweep(const struct checkpoint_shelf *shelf,
                                             struct err_msg *msg);

/* ---- For checkpoint.c ---- */

/* Malloced: a checkpoint's folder in a data directory; and in it, that of a shard. NULL when out of
 * memory. */
MUST_CHECK char *checkpoint_folder(const struct checkpoint_shelf *shelf, uint64_t id,
                                   uint32_t directory);
MUST_CHECK char *checkpoint_shard_folder(const struct checkpoint_shelf *shelf, uint64_t id,
                                         uint32_t shard);
/* Never that of another, whatever is in its folder. */
MUST_CHECK enum embtier_err checkpoint_next_id(const struct checkpoint_shelf *shelf,
                                               uint64_t *ret_id, struct err_msg *msg);
/* The mark is on disk, or gone from it, when these return. NOT_FOUND: there is no such folder. */
MUST_CHECK enum embtier_err checkpoint_mark(const struct checkpoint_shelf *shelf, uint64_t id,
                                            struct err_msg *msg);
MUST_CHECK enum embtier_err checkpoint_unmark(const struct checkpoint_shelf *shelf, uint64_t id,
                                              struct err_msg *msg);
/* Removes the folders everywhere, and the mark, which must be there, last. */
MUST_CHECK enum embtier_err checkpoint_remove_folders(const struct checkpoint_shelf *shelf,
                                                      uint64_t id, struct err_msg *msg);

#endif
