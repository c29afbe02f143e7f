/* SPDX-License-Identifier: Apache-2.0 */
/* hot_rows.h: the ids of a split table's hot rows, on SSD, so that a start finds the same split.
 *
 * They are stored as rows of a logged table whose id no table has: that of the split table, with
 * its highest bit set. A row has HOT_ROWS_CHUNK ids, little-endian; unused places are zero. So a
 * checkpoint has them without further work. The catalog has their number and their sum
 * (catalog_file.h), which say if the stored ids are those that the table was split by. It names
 * their number for as long as any of them may be stored.
 *
 * Thread: any; one at a time for each table. */
#ifndef EMBTIER_STORE_HOT_ROWS_H
#define EMBTIER_STORE_HOT_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct store;

#define HOT_ROWS_CHUNK       8192
#define HOT_ROWS_CHUNK_BYTES (HOT_ROWS_CHUNK * sizeof(uint64_t))

/* Returns the sum of ids, to be added to that of others. Their order does not count. */
uint64_t hot_rows_sum(const uint64_t *ids, uint32_t count);

/* Writes @count ids as chunk number @chunk, which replaces one that is there. All chunks but the
 * last have HOT_ROWS_CHUNK ids. BUSY: try again later. */
MUST_CHECK enum embtier_err hot_rows_write(struct store *store, uint32_t table_id, uint64_t chunk,
                                           const uint64_t *ids, uint32_t count,
                                           struct err_msg *msg);
/* Reads a chunk into @ret_ids, which has room for HOT_ROWS_CHUNK. NOT_FOUND: it is not stored. */
MUST_CHECK enum embtier_err hot_rows_read(struct store *store, uint32_t table_id, uint64_t chunk,
                                          uint64_t *ret_ids, struct err_msg *msg);
/* Removes all chunks of a table. Ends with SHUTDOWN if *@give_up is true. */
MUST_CHECK enum embtier_err hot_rows_drop(struct store *store, uint32_t table_id,
                                          const _Atomic bool *give_up, struct err_msg *msg);

#endif
