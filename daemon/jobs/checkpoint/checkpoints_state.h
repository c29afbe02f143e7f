/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints_state.h: private state of checkpoints (checkpoints.h), shared by checkpoints_state.c
 * (lifetime, and one change at a time), checkpoints_make.c, checkpoints_look.c,
 * checkpoints_delete.c and checkpoints_publish.c. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINTS_STATE_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINTS_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/jobs/checkpoint/checkpoint_making.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/checkpoint/checkpoints_opts.h"

struct checkpoint_owners;

/* Most checkpoints that are read at the same time: by verifies, exports, restores and shows. */
#define USES_MAX 16
/* Most checkpoints that clients have had made and are about to read. */
#define PROMISES_MAX 8

struct checkpoints {
    struct checkpoints_opts opts;
    struct checkpoint_owners *owners;
    bool few_cores; /* as in checkpoint_pace_init() */
    _Atomic bool stopping;
    _Atomic uint64_t interval_ns; /* as in checkpoints_opts.h */
    _Atomic uint32_t keep;
    struct making_counts counts;

    pthread_mutex_t lock;           /* protects all below */
    pthread_cond_t changed;         /* is_changing has become false */
    bool is_changing;               /* a checkpoint is being made or deleted; one at a time */
    struct checkpoints_stats stats; /* newest_age_ms is as of aged_ns */
    uint64_t aged_ns;
    uint64_t used_ids[USES_MAX]; /* must not be deleted */
    uint32_t use_count;
    uint64_t deleting_id; /* must not be used */
    struct promise {
        uint64_t id;
        uint64_t until_ns;
    } promises[PROMISES_MAX]; /* a ring: a client that has many made at once reads them at once */
    uint32_t next_promise;
    uint64_t tried_ns; /* when the last one that does not pass was made or failed */
    bool is_due_told;
    uint64_t told_ns;            /* when is_due_told was set, or a late one last warned of */
    bool has_failed;             /* the last one that does not pass: the next is due sooner */
    uint64_t kept_updated_bytes; /* changes that it has, if it was made */
};

/* ---- checkpoints_state.c ---- */

/* Waits until no other change is under way. Several threads make checkpoints: that of
 * LINE_CHECKPOINTS and those that publish tables. A waiting thread checks now and then if its
 * change is still wanted. */
MUST_CHECK enum embtier_err checkpoints_begin_change(struct checkpoints *c,
                                                     const struct progress_sink *progress,
                                                     struct err_msg *msg);
void checkpoints_end_change(struct checkpoints *c);

/* ---- checkpoints_look.c ---- */

/* AGAIN: it was just deleted, or cannot be read. */
MUST_CHECK enum embtier_err checkpoints_read_info(const struct checkpoints *c, uint64_t id,
                                                  struct checkpoint_info *ret_info,
                                                  struct err_msg *msg);

/* ---- checkpoints_delete.c ---- */

/* Keeps the checkpoint for a minute, because an export is about to read it. */
void checkpoints_promise(struct checkpoints *c, uint64_t id);
/* Deletes all but the newest @keep of the server's own checkpoints (@automatic), or else of @uid's.
 * The newest of all stays, and so do promised ones. Passing ones do not count; those that are older
 * than all that are kept go, too. */
void checkpoints_delete_oldest(struct checkpoints *c, bool automatic, uid_t uid, uint32_t keep);
/* Deletes all passing checkpoints but the newest of all, with which a crash needs no other. */
void checkpoints_delete_passed(struct checkpoints *c);

#endif
