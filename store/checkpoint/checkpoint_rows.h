/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_rows.h: reads the rows of one table in one database of a checkpoint, in order of ids.
 * It opens the database for reading while another is in use, and reads its log, if any, into
 * memory. Thread: one. */
#ifndef EMBTIER_STORE_CHECKPOINT_CHECKPOINT_ROWS_H
#define EMBTIER_STORE_CHECKPOINT_CHECKPOINT_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include <rocksdb/c.h>

#include "base/err.h"
#include "store/checkpoint/checkpoint.h"
#include "store/store_types.h"

struct checkpoint_rows;

/* Returns the most memory that a reader takes, without its read-ahead and cache. */
uint64_t checkpoint_rows_bytes(const struct checkpoint_record *record, uint32_t shard,
                               const struct store_row *like);
/* Opens the table of @like (table_id, lengths, logged) in @shard. Reads of the files other than of
 * rows go through @cache, which others may use too; NULL: its own. The reader borrows nothing of
 * @record. CORRUPT. */
MUST_CHECK enum embtier_err
checkpoint_rows_open(const struct checkpoint_shelf *shelf, const struct checkpoint_record *record,
                     uint32_t shard, const struct store_row *like, rocksdb_cache_t *cache,
                     struct checkpoint_rows **ret_rows, struct err_msg *msg);
void checkpoint_rows_free(struct checkpoint_rows *rows);
DEFINE_CLEANUP(struct checkpoint_rows, checkpoint_rows_free)

/* Estimates the rows in its files; logs are not counted. */
uint64_t checkpoint_rows_estimate(const struct checkpoint_rows *rows);
/* Estimates the rows from samples. Files also have older versions of rows, which the estimate above
 * counts. The result is rather too small than too large. Called before the first row is read. */
uint64_t checkpoint_rows_sample(struct checkpoint_rows *rows);
/* Returns the next row: its id, and weights and state, borrowed until the next call. *@ret_bytes is
 * NULL at the end. */
MUST_CHECK enum embtier_err checkpoint_rows_next(struct checkpoint_rows *rows, uint64_t *ret_id,
                                                 const void **ret_bytes, struct err_msg *msg);

#endif
