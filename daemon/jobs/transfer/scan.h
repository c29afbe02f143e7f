/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h: a table of a checkpoint on its way to a client, some rows at a time, in order of ids:
 * what exports are made of. Thread: the job's, one at a time. */
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
    uid_t uid;       /* whose */
    bool all_rows;   /* those that were never written too, with their initial values; not of a table
                        of any number of rows */
};

/* NOT_FOUND, NO_TABLE, INVALID (all rows of an unbounded table), CORRUPT; BUSY, TOO_LARGE: @memory
 * is not enough now, or never. The checkpoint is not deleted, and memory not given back, before
 * scan_free(). */
MUST_CHECK enum embtier_err scan_open(struct store *store, struct checkpoints *checkpoints,
                                      struct transfer_memory *memory,
                                      const struct scan_order *order, struct scan **ret_scan,
                                      struct err_msg *msg);
void scan_free(struct scan *scan);
DEFINE_CLEANUP(struct scan, scan_free)

const struct table_spec *scan_spec(const struct scan *scan);
uint64_t scan_checkpoint(const struct scan *scan);
/* That will come; of written rows about so many. */
uint64_t scan_row_count(const struct scan *scan);

/* Where the rows lie in what was filled. */
struct scan_filled {
    uint32_t rows;     /* 0: there are no more */
    uint64_t first_id; /* of scans of all rows, whose ids follow each other */
    uint64_t ids_at;   /* of others: a 64-bit id for each row, from here on, in bytes */
    uint64_t rows_at;  /* the rows, one behind the other */
};
/* Puts the next rows into @bytes at @dest, which a client may look at and change meanwhile: as many
 * as there is room for, but no more than those of a turn (transfer_piece.h). INVALID: there is no
 * room for one. SHUTDOWN when *@give_up has become true. After any other error than INVALID the
 * scan gives no more. */
MUST_CHECK enum embtier_err scan_fill(struct scan *scan, void *dest, uint64_t bytes,
                                      const _Atomic bool *give_up, struct scan_filled *ret_filled,
                                      struct err_msg *msg);

#endif
