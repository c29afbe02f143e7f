/* SPDX-License-Identifier: Apache-2.0 */
/* moved_rows.h: reads and writes rows of one route whose buckets lie in several shards, or are
 * being moved. Rows as for store_read() and store_write(). Thread: any. */
#ifndef EMBTIER_STORE_RESHARDING_MOVED_ROWS_H
#define EMBTIER_STORE_RESHARDING_MOVED_ROWS_H

#include <stdint.h>

#include "base/err.h"
#include "store/store_types.h"

struct store;
struct store_view;

/* Reads rows of one database kind. */
MUST_CHECK enum embtier_err moved_rows_read(struct store *store, const struct store_view *view,
                                            struct store_row *rows, uint32_t count,
                                            struct err_msg *msg);
/* Writes rows of one database kind. After an error, some of them may be written; the caller calls
 * again with all of them. */
MUST_CHECK enum embtier_err moved_rows_write(struct store *store, const struct store_view *view,
                                             const struct store_row *rows, uint32_t count,
                                             struct err_msg *msg);

#endif
