/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h: gives a table of a checkpoint to a client, some rows at a time and in order of ids, for
 * exports. Thread: the job's, one at a time. */
#ifndef EMBTIER_DAEMON_JOBS_TRANSFER_SCAN_H
#define EMBTIER_DAEMON_JOBS_TRANSFER_SCAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/spec/table_spec.h"

struct checkpoints;
struct scan;
struct store;
struct transfer_memory;

struct scan_order {
    uint64_t checkpoint_id; /* 0: the newest */
    char name[EMBTIER_TABLE_NAME_MAX + 1];
    bool with_state; /* else weights only */
    uint64_t user;   /* that asked (accounts.h) */
    bool all_rows;   /* also rows never written, with their initial values; no unbounded tables */
};

/* Begins a scan. NOT_FOUND, NO_TABLE, INVALID (all rows of an unbounded table), VERSION, CORRUPT;
 * BUSY, TOO_LARGE: @memory is not enough now, or never. The scan keeps its checkpoint from being
 * deleted, and its memory, until scan_free(). */
MUST_CHECK enum embtier_err scan_open(struct store *store, struct checkpoints *checkpoints,
                                      struct transfer_memory *memory,
                                      const struct scan_order *order, struct scan **ret_scan,
                                      struct err_msg *msg);
void scan_free(struct scan *scan);
DEFINE_CLEANUP(struct scan, scan_free)

const struct table_spec *scan_spec(const struct scan *scan);
uint64_t scan_checkpoint(const struct scan *scan);
/* Returns how many rows will come; for scans of written rows an estimate. */
uint64_t scan_row_count(const struct scan *scan);

/* Where the rows lie in the memory that was filled. */
struct scan_filled {
    uint32_t rows;     /* 0: there are no more */
    uint64_t first_id; /* for scans of all rows, whose ids follow each other */
    uint64_t ids_at;   /* for other scans: offset in bytes of the 64-bit ids, one for each row */
    uint64_t rows_at;  /* offset of the rows, one after the other */
};
/* Puts the next rows into @bytes at @dest, which a client may read and change meanwhile. Fills
 * in as many as have room, but at most a turn's (transfer_piece.h). INVALID: there is no room
 * for one row. SHUTDOWN: *@give_up has become true. After an error other than INVALID the scan
 * gives no more. */
MUST_CHECK enum embtier_err scan_fill(struct scan *scan, void *dest, uint64_t bytes,
                                      const _Atomic bool *give_up, struct scan_filled *ret_filled,
                                      struct err_msg *msg);

#endif
