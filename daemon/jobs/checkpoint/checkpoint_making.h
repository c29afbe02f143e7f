/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_making.h: one checkpoint on its way (checkpoints.h), from the search for its moment to
 * its record. Thread: any, one at a time. */
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

/* Of all that were made, or not, since the start. Any thread reads them. */
struct making_counts {
    _Atomic uint64_t tries;       /* to find a moment without updates */
    _Atomic uint64_t cut_updates; /* by those moments */
    _Atomic uint64_t longest_pause_us;
    _Atomic uint64_t yielded_us; /* the cores were left to others */
};

struct checkpoint_making {
    /* Before it is made; borrowed. */
    const struct checkpoints_opts *opts;
    const _Atomic bool *stopping; /* it is given up then */
    struct making_counts *counts;
    const struct catalog_made *made; /* to be in it too, or NULL */
    const struct progress_sink *progress;
    struct checkpoint_pace pace;
    struct checkpoint_info info; /* whose, and what it is; figures and id come with the result */

    /* When it is made. */
    uint64_t created_ns; /* as info.created_ms, by the monotonic clock */
    uint64_t updated_bytes;

    /* Its own. */
    struct checkpoint_draft *draft;
    struct catalog *catalog; /* that it will have */
    uint64_t dirty_rows;
    bool has_logged; /* tables; else those databases can be captured at any time */
    bool in_epoch;
    bool has_old; /* rows may be left that were dirty when it began */
};

/* Returns when it is complete on disk, or there is none. */
MUST_CHECK enum embtier_err checkpoint_making_run(struct checkpoint_making *making,
                                                  struct err_msg *msg);
/* Whatever went wrong, the lanes go on as before. */
void checkpoint_making_end(struct checkpoint_making *making);

#endif
