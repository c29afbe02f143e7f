/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_rows.h: the rows of one table in one database of a checkpoint, in order of their ids.
 * The database is opened for reading beside the one that is in use; its log, if it has one, is
 * read into memory. Thread: one. */
#ifndef EMBTIER_STORE_CHECKPOINT_CHECKPOINT_ROWS_H
#define EMBTIER_STORE_CHECKPOINT_CHECKPOINT_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include <rocksdb/c.h>

#include "base/err.h"
#include "store/checkpoint/checkpoint.h"
#include "store/store_types.h"

struct checkpoint_rows;

/* What it has of memory at most, but for what it reads ahead and a cache. */
uint64_t checkpoint_rows_bytes(const struct checkpoint_record *record, uint32_t shard,
                               const struct store_row *like);
/* Reads the table that @like names (table_id, lengths, logged), in @shard. What is read of the
 * files beside rows goes through @cache, which others may use too; NULL: one of its own. CORRUPT.
 */
MUST_CHECK enum embtier_err
checkpoint_rows_open(const struct checkpoint_shelf *shelf, const struct checkpoint_record *record,
                     uint32_t shard, const struct store_row *like, rocksdb_cache_t *cache,
                     struct checkpoint_rows **ret_rows, struct err_msg *msg);
void checkpoint_rows_free(struct checkpoint_rows *rows);
DEFINE_CLEANUP(struct checkpoint_rows, checkpoint_rows_free)

/* About how many rows there are in its files; logs are not counted. */
uint64_t checkpoint_rows_estimate(const struct checkpoint_rows *rows);
/* About how many rows there are, from samples: files also have what rows were before they changed,
 * which the estimate above counts. Rather too few than too many. Before the first row is read. */
uint64_t checkpoint_rows_sample(struct checkpoint_rows *rows);
/* The next row: its id, and weights and state, borrowed until the next call. NULL: there are no
 * more. */
MUST_CHECK enum embtier_err checkpoint_rows_next(struct checkpoint_rows *rows, uint64_t *ret_id,
                                                 const void **ret_bytes, struct err_msg *msg);

#endif
