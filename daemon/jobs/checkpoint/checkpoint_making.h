/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_making.h: makes one checkpoint (checkpoints.h), from the search for its moment to its
 * record. Thread: any, one at a time. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINT_MAKING_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINT_MAKING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/jobs/checkpoint/checkpoint_pace.h"
#include "store/checkpoint/checkpoint_record.h"

struct catalog;
struct catalog_made;
struct checkpoint_draft;
struct checkpoints_opts;
struct progress_sink;

/* Counts of all checkpoints since the start, made or failed. Any thread reads them. */
struct making_counts {
    _Atomic uint64_t tries;       /* to find a moment without updates */
    _Atomic uint64_t cut_updates; /* updates that those moments cut in two */
    _Atomic uint64_t longest_pause_us;
    _Atomic uint64_t yielded_us; /* time for which the cores were left to others */
};

struct checkpoint_making {
    /* Set by the caller before it is made; borrowed. */
    const struct checkpoints_opts *opts;
    const _Atomic bool *stopping; /* true: give up */
    struct making_counts *counts;
    const struct catalog_made *made; /* tables to include too, or NULL */
    const struct progress_sink *progress;
    struct checkpoint_pace pace;
    struct checkpoint_info info; /* the caller sets owner and kind; the run adds figures and id */

    /* Set while it is made. */
    uint64_t created_ns; /* as info.created_ms, by the monotonic clock */
    uint64_t updated_bytes;

    /* Private. */
    struct checkpoint_draft *draft;
    struct catalog *catalog; /* that the checkpoint will have */
    uint64_t dirty_rows;
    bool has_logged; /* has logged tables; else logged databases can be captured at any time */
    bool in_epoch;
    bool has_old; /* some rows that were dirty when it began may not be written yet */
};

/* Returns once the checkpoint is complete on disk, or has failed and left none. */
MUST_CHECK enum embtier_err checkpoint_making_run(struct checkpoint_making *making,
                                                  struct err_msg *msg);
/* Frees all that the run holds, after success or failure. The lanes go on as before. */
void checkpoint_making_end(struct checkpoint_making *making);

#endif
