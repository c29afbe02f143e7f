/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_shelf.h: where the checkpoints of a store lie, and which exist.
 *
 * On disk, in each data directory:
 *   checkpoints/000017/shard-0003/replay/   the files of that database: SSTs are second names
 *                                           (hard links), the rest are copies
 *   checkpoints/000017/shard-0003/logged/   the same, its log included
 * and in the first one:
 *   checkpoints/000017/catalog.json         the tables as they were
 *   checkpoints/000017/checkpoint.json      the record (checkpoint_record.h), written last
 *   checkpoints/000017/draft                only while the checkpoint is made or deleted: then it
 *                                           does not count
 *
 * The mark `draft` is made before anything else in the folder, and removed when all is complete. A
 * deletion makes it again, and removes it last. So a folder in the first directory with a mark, or
 * with nothing in it, is no checkpoint, and is swept away. A folder with files but neither mark nor
 * record was complete once, and is never ignored.
 *
 * Thread: any to read; to change, only the one that makes and deletes. */
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
    uint32_t shards_per_directory;         /* as the store was made */
    uint32_t read_files; /* table files open at a time in a checkpoint's database; 0: 54 */
};

/* Lists the ids of all checkpoints, ascending; malloced. Damaged checkpoints are among them. */
MUST_CHECK enum embtier_err checkpoint_list(const struct checkpoint_shelf *shelf,
                                            uint64_t **ret_ids, uint32_t *ret_count,
                                            struct err_msg *msg);
/* Reads a checkpoint's record. NOT_FOUND. CORRUPT: also if the record is missing. MISMATCH: it
 * belongs to another store. Other errors as checkpoint_record_read(). */
MUST_CHECK enum embtier_err checkpoint_read(const struct checkpoint_shelf *shelf, uint64_t id,
                                            struct checkpoint_record **ret_record,
                                            struct err_msg *msg);
/* Reads the record of the newest checkpoint; NULL if there is none. */
MUST_CHECK enum embtier_err checkpoint_read_newest(const struct checkpoint_shelf *shelf,
                                                   struct checkpoint_record **ret_record,
                                                   struct err_msg *msg);
/* Reads the tables as they were. CORRUPT. */
MUST_CHECK enum embtier_err checkpoint_catalog(const struct checkpoint_shelf *shelf,
                                               const struct checkpoint_record *record,
                                               struct catalog **ret_catalog, struct err_msg *msg);
/* Returns the place of a database's files in a checkpoint, malloced; NULL if out of memory. */
MUST_CHECK char *checkpoint_database_path(const struct checkpoint_shelf *shelf, uint64_t id,
                                          const struct checkpoint_database *database);
/* Removes the remains of checkpoints that were not completed, or not quite deleted. Only while none
 * is being made. */
MUST_CHECK enum embtier_err checkpoint_sweep(const struct checkpoint_shelf *shelf,
                                             struct err_msg *msg);

/* ---- For checkpoint.c ---- */

/* Return a checkpoint's folder in a data directory, and a shard's folder in that, malloced. NULL if
 * out of memory. */
MUST_CHECK char *checkpoint_folder(const struct checkpoint_shelf *shelf, uint64_t id,
                                   uint32_t directory);
MUST_CHECK char *checkpoint_shard_folder(const struct checkpoint_shelf *shelf, uint64_t id,
                                         const struct checkpoint_database *database);
/* Returns an id that no folder has, neither of a checkpoint nor of a draft. */
MUST_CHECK enum embtier_err checkpoint_next_id(const struct checkpoint_shelf *shelf,
                                               uint64_t *ret_id, struct err_msg *msg);
/* Returns an id above those of all checkpoints. That of a draft does not count: if the draft is
 * given up, the next one has it again. */
MUST_CHECK enum embtier_err checkpoint_id_after(const struct checkpoint_shelf *shelf,
                                                uint64_t *ret_id, struct err_msg *msg);
/* Make and remove the mark; this is on disk on return. NOT_FOUND: there is no such folder. */
MUST_CHECK enum embtier_err checkpoint_mark(const struct checkpoint_shelf *shelf, uint64_t id,
                                            struct err_msg *msg);
MUST_CHECK enum embtier_err checkpoint_unmark(const struct checkpoint_shelf *shelf, uint64_t id,
                                              struct err_msg *msg);
/* Removes the folders everywhere. The mark must exist; it goes last. */
MUST_CHECK enum embtier_err checkpoint_remove_folders(const struct checkpoint_shelf *shelf,
                                                      uint64_t id, struct err_msg *msg);

#endif
