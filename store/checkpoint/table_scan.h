/* SPDX-License-Identifier: Apache-2.0 */
/* table_scan.h: reads all stored rows of one table of a checkpoint, in order of ids, from all
 * shards. Thread: one. */
#ifndef EMBTIER_STORE_CHECKPOINT_TABLE_SCAN_H
#define EMBTIER_STORE_CHECKPOINT_TABLE_SCAN_H

#include <stdint.h>

#include "base/err.h"
#include "store/checkpoint/checkpoint.h"
#include "store/store.h"

struct table_scan;

/* Returns the most memory that a scan takes. It is known before anything is opened. */
uint64_t table_scan_bytes(const struct checkpoint_record *record, const struct store_row *like);
/* Opens a scan of the table of @like (table_id, lengths, logged), with a database per shard.
 * CORRUPT. */
MUST_CHECK enum embtier_err table_scan_open(const struct checkpoint_shelf *shelf,
                                            const struct checkpoint_record *record,
                                            const struct store_row *like,
                                            struct table_scan **ret_scan, struct err_msg *msg);
void table_scan_free(struct table_scan *scan);
DEFINE_CLEANUP(struct table_scan, table_scan_free)

/* Estimates the rows when the scan was opened; rows in logs are not counted. */
uint64_t table_scan_estimate(const struct table_scan *scan);
/* Returns the scan's present row: its id, and weights and state, borrowed until table_scan_step().
 * NULL at the end. */
const void *table_scan_row(const struct table_scan *scan, uint64_t *ret_id);
/* Goes to the next row. CORRUPT, IO: the scan is over. */
MUST_CHECK enum embtier_err table_scan_step(struct table_scan *scan, struct err_msg *msg);

#endif
