/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h: makes, checks and deletes checkpoints of a store, and puts databases back to one.
 * checkpoint_shelf.h says where they lie and which exist.
 *
 * Thread: as stated; at most one checkpoint is being made at a time. */
#ifndef EMBTIER_STORE_CHECKPOINT_CHECKPOINT_H
#define EMBTIER_STORE_CHECKPOINT_CHECKPOINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/checkpoint/checkpoint_record.h"
#include "store/checkpoint/checkpoint_shelf.h"

struct catalog;
struct catalog_made;
struct checkpoint_draft;
struct database;

/* ---- Making ---- */

MUST_CHECK enum embtier_err checkpoint_begin(const struct checkpoint_shelf *shelf,
                                             struct checkpoint_draft **ret_draft,
                                             struct err_msg *msg);
/* Tells the draft which shards there are and where buckets lie. The caller does so before it
 * captures some of the databases, and again before it captures the rest. BUSY: buckets have moved
 * in between, so the checkpoint would lack rows. */
MUST_CHECK enum embtier_err checkpoint_take_map(struct checkpoint_draft *draft,
                                                const struct bucket_map *map, struct err_msg *msg);
/* Captures a database as it is now, without its write buffers. Quick if its logs have just been
 * synced: it reads and writes no other data. The database must stay open until the draft is
 * committed or freed. */
MUST_CHECK enum embtier_err checkpoint_capture(struct checkpoint_draft *draft, uint32_t shard,
                                               bool logged, struct database *database,
                                               struct err_msg *msg);
/* Drops all captures. */
void checkpoint_forget(struct checkpoint_draft *draft);
/* Makes the names and copies of all captured files, then the record. The caller fills @info except
 * id, bytes and new_bytes, which this sets. The tables of @made (may be NULL) are in the checkpoint
 * as LIVE. The checkpoint is complete on disk, or there is none. SHUTDOWN between two files if
 * *@give_up is true (@give_up may be NULL). */
MUST_CHECK enum embtier_err
checkpoint_commit(struct checkpoint_draft *draft, const struct catalog *catalog,
                  const struct catalog_made *made, struct checkpoint_info *info,
                  void (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                  const _Atomic bool *give_up, struct err_msg *msg);
/* Removes the checkpoint if it was not committed. */
void checkpoint_draft_free(struct checkpoint_draft *draft);
DEFINE_CLEANUP(struct checkpoint_draft, checkpoint_draft_free)

/* ---- Using ---- */

/* Reads every byte and compares checksums. CORRUPT: the message names the file. */
MUST_CHECK enum embtier_err
checkpoint_verify(const struct checkpoint_shelf *shelf, const struct checkpoint_record *record,
                  void (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                  const _Atomic bool *give_up, struct err_msg *msg);
/* Checks a database's files in the same way, but table files only for their lengths. The caller
 * checks before it opens the database: RocksDB takes some damage of MANIFEST and logs for their
 * torn ends. RocksDB itself checks the contents of table files, but misreports one that is missing
 * or cut short. */
MUST_CHECK enum embtier_err checkpoint_check_logs(const struct checkpoint_shelf *shelf,
                                                  const struct checkpoint_record *record,
                                                  uint32_t shard, bool logged, struct err_msg *msg);
/* Deletes a checkpoint. Once it is marked it is gone, even if removing its files fails. */
MUST_CHECK enum embtier_err checkpoint_delete(const struct checkpoint_shelf *shelf, uint64_t id,
                                              struct err_msg *msg);

/* Puts back a database that is closed and lies at @path, or should, in two steps. After a crash in
 * between both are repeated, even if parts of the database are gone. This step makes the
 * replacement next to the database, as @record has it, and finds missing and damaged files. It
 * checks table files only for their lengths. */
MUST_CHECK enum embtier_err checkpoint_make_replacement(const struct checkpoint_shelf *shelf,
                                                        const struct checkpoint_record *record,
                                                        uint32_t shard, bool logged,
                                                        const char *path, struct err_msg *msg);
void checkpoint_remove_replacement(const char *path);
/* Removes a database that the checkpoint does not have, as its shard came later. database_open()
 * makes a new one. */
MUST_CHECK enum embtier_err checkpoint_empty_place(const char *path, struct err_msg *msg);
/* Does the second step: moves the replacement to its place. If @emptied, nothing takes the place:
 * database_open() makes a new database, and the old one lies beside it as NAME.lost. */
MUST_CHECK enum embtier_err checkpoint_take_place(const char *path, bool emptied,
                                                  struct err_msg *msg);

#endif
