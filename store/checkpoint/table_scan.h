/* SPDX-License-Identifier: Apache-2.0 */
/* table_scan.h: all stored rows of one table of a checkpoint, in order of their ids, whatever shard
 * they lie in. Thread: one. */
#ifndef EMBTIER_STORE_CHECKPOINT_TABLE_SCAN_H
#define EMBTIER_STORE_CHECKPOINT_TABLE_SCAN_H

#include <stdint.h>

#include "base/err.h"
#include "store/checkpoint/checkpoint.h"
#include "store/store.h"

struct table_scan;

/* What a scan has of memory at most: known before anything is opened. */
uint64_t table_scan_bytes(const struct checkpoint_record *record, const struct store_row *like);
/* @like names the table (table_id, lengths, logged). Opens a database per shard. CORRUPT. */
MUST_CHECK enum embtier_err table_scan_open(const struct checkpoint_shelf *shelf,
                                            const struct checkpoint_record *record,
                                            const struct store_row *like,
                                            struct table_scan **ret_scan, struct err_msg *msg);
void table_scan_free(struct table_scan *scan);
DEFINE_CLEANUP(struct table_scan, table_scan_free)

/* About how many rows there were when it was opened; those still in logs are not counted. */
uint64_t table_scan_estimate(const struct table_scan *scan);
/* The row the scan stands at: its id, and weights and state, borrowed until table_scan_step().
 * NULL: it has come to the end. */
const void *table_scan_row(const struct table_scan *scan, uint64_t *ret_id);
/* To the next row. CORRUPT, IO: the scan is over. */
MUST_CHECK enum embtier_err table_scan_step(struct table_scan *scan, struct err_msg *msg);

#endif
