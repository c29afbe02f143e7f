/* SPDX-License-Identifier: Apache-2.0 */
/* map_back.h: the map of buckets of a store that goes back to a checkpoint.
 *
 * After a crash only databases of `replay` tables go back. Buckets may have moved since the
 * checkpoint, and logged rows have moved with them, so the map stays. It must therefore fit the
 * checkpoint: each bucket's rows were already in its shard when the checkpoint was made
 * (bucket_map.checkpoint_from). Rows that come back beside them are strays. A restore that a user
 * asks for takes all databases back, and the map with them.
 *
 * Thread: the one that opens the store. */
#ifndef EMBTIER_STORE_RESHARDING_MAP_BACK_H
#define EMBTIER_STORE_RESHARDING_MAP_BACK_H

#include "base/err.h"

struct checkpoint_record;
struct store;

/* Before a start after a crash puts anything back to @record (NULL: the databases are emptied).
 * MISMATCH: the map does not fit it. Marks shards that get strays, and writes the map then. */
MUST_CHECK enum embtier_err map_back_after_crash(struct store *store,
                                                 const struct checkpoint_record *record,
                                                 struct err_msg *msg);

/* Makes the map of @record the store's, in memory. Shards that it does not have stay, empty. */
MUST_CHECK enum embtier_err
map_back_begin(struct store *store, const struct checkpoint_record *record, struct err_msg *msg);
/* Writes that map to disk. The restore has been written down, so the next start repeats it. */
MUST_CHECK enum embtier_err map_back_write(struct store *store, struct err_msg *msg);

#endif
