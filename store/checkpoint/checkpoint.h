/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h: the checkpoints of a store: making, checking, deleting them, and putting databases
 * back to one. Where they lie, and which there are: checkpoint_shelf.h.
 *
 * Thread: as told; at most one checkpoint is being made at a time. */
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
/* Takes a database as it is now, its write buffers excepted. Quick, if its logs have been synced
 * right before: no other data is read or written. The database must stay open until the draft is
 * committed or freed. */
MUST_CHECK enum embtier_err checkpoint_capture(struct checkpoint_draft *draft, uint32_t shard,
                                               bool logged, struct database *database,
                                               struct err_msg *msg);
/* As if nothing had been captured. */
void checkpoint_forget(struct checkpoint_draft *draft);
/* Makes the names and copies of all that has been captured, and then the record. @info has all but
 * id, bytes and new_bytes, which it gets. Those of @made (may be NULL) are in it. The checkpoint is
 * complete on disk, or is none. SHUTDOWN between two files when *@give_up (may be NULL) is true. */
MUST_CHECK enum embtier_err
checkpoint_commit(struct checkpoint_draft *draft, const struct catalog *catalog,
                  const struct catalog_made *made, struct checkpoint_info *info,
                  void (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                  const _Atomic bool *give_up, struct err_msg *msg);
/* Removes it if it was not committed. */
void checkpoint_draft_free(struct checkpoint_draft *draft);
DEFINE_CLEANUP(struct checkpoint_draft, checkpoint_draft_free)

/* ---- Using ---- */

/* Reads every byte and compares. CORRUPT: the message names the file. */
MUST_CHECK enum embtier_err
checkpoint_verify(const struct checkpoint_shelf *shelf, const struct checkpoint_record *record,
                  void (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                  const _Atomic bool *give_up, struct err_msg *msg);
/* The same of a database's files that are no table files: before it is opened, since RocksDB takes
 * some damage of MANIFEST and logs for their torn ends. What table files hold it checks itself, but
 * of one that is missing or cut short it says something else: those have their lengths. */
MUST_CHECK enum embtier_err checkpoint_check_logs(const struct checkpoint_shelf *shelf,
                                                  const struct checkpoint_record *record,
                                                  uint32_t shard, bool logged, struct err_msg *msg);
/* From here on it is not there, even if removing its files fails. */
MUST_CHECK enum embtier_err checkpoint_delete(const struct checkpoint_shelf *shelf, uint64_t id,
                                              struct err_msg *msg);

/* The way back of a database that is closed and lies, or should, at @path, in two steps. After a
 * crash in between both are to be done again, whatever of the database is there. The first makes
 * what will take its place beside it, as @record has it, and finds out what is missing or damaged;
 * but of table files only whether they have their lengths. */
MUST_CHECK enum embtier_err checkpoint_make_beside(const struct checkpoint_shelf *shelf,
                                                   const struct checkpoint_record *record,
                                                   uint32_t shard, bool logged, const char *path,
                                                   struct err_msg *msg);
void checkpoint_forget_beside(const char *path);
/* The second puts it there; or, if it is to be @emptied, nothing: database_open() makes a new one,
 * and what was there lies beside it as NAME.lost. */
MUST_CHECK enum embtier_err checkpoint_take_place(const char *path, bool emptied,
                                                  struct err_msg *msg);

#endif
