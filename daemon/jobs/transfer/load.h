/* SPDX-License-Identifier: Apache-2.0 */
/* load.h: takes a new table from a client, some rows at a time, for imports. Rows go straight to
 * the store, past the lanes, which do not know the table before it is published. Until then its
 * state is CREATING, and a crash leaves nothing of it. Thread: the job's, one at a time. */
#ifndef EMBTIER_DAEMON_JOBS_TRANSFER_LOAD_H
#define EMBTIER_DAEMON_JOBS_TRANSFER_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/spec/table_spec.h"
#include "daemon/engine/tables/tables.h"

struct checkpoints;
struct load;
struct transfer_memory;

struct load_order {
    struct table_spec spec; /* init_version 0: the newest */
    uid_t uid;              /* the owner */
    uint64_t user;          /* that has the memory (accounts.h) */
    bool with_state;        /* rows come with their optimizer state; else it begins as zeros */
    uint64_t row_count;     /* rows that will come; 0: not known */
};

/* Begins a load. EXISTS, INVALID; NO_SPACE: the rows that will come have no room on disk; BUSY,
 * TOO_LARGE: @memory is not enough now, or never. load_free() gives the memory back. */
MUST_CHECK enum embtier_err load_open(struct tables *tables, struct transfer_memory *memory,
                                      const struct load_order *order, struct load **ret_load,
                                      struct err_msg *msg);
/* Abandons the table if it was not published. */
void load_free(struct load *load);
DEFINE_CLEANUP(struct load, load_free)

const struct table_info *load_table(const struct load *load);
uint64_t load_rows(const struct load *load); /* taken so far; a row given twice counts twice */

/* Rows in memory that a client may read and change meanwhile. */
struct load_batch {
    const void *ids;  /* 64-bit */
    const void *rows; /* weights, and state if the order says so, one row after the other */
    uint64_t row_bytes;
    uint32_t count;
};
/* Returns how many bytes a row has in a batch. */
uint64_t load_row_bytes(const struct load *load);
/* Takes at most a turn's rows (transfer_piece.h), and leaves the others in @batch. If an id comes
 * twice, its last row counts. ID_RANGE: the table has no such id; NO_SPACE, IO; and errors of
 * progress_look(). After an error the load takes no more, because it lacks a part of a batch. */
MUST_CHECK enum embtier_err load_add(struct load *load, struct load_batch *batch,
                                     const struct progress_sink *progress, struct err_msg *msg);
/* Makes the table live, with all rows that were taken. Only load_free() may follow. */
MUST_CHECK enum embtier_err load_publish(struct load *load, struct checkpoints *checkpoints,
                                         const struct progress_sink *progress,
                                         struct table_info *ret_info, struct err_msg *msg);

#endif
