/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints_state.h: the inside of checkpoints (checkpoints.h), shared by checkpoints_state.c
 * (the life of the whole, and one change at a time), checkpoints_make.c, checkpoints_look.c,
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

/* Of checkpoints that are read, by verifying and exports, at the same time. */
#define USES_MAX 16
/* Of those that somebody has had made and is about to read. */
#define PROMISES_MAX 8

struct checkpoints {
    struct checkpoints_opts opts;
    struct checkpoint_owners *owners;
    bool few_cores; /* as checkpoint_pace_init() has it */
    _Atomic bool stopping;
    struct making_counts counts;

    pthread_mutex_t lock;           /* all below */
    pthread_cond_t changed;         /* is_changing */
    bool is_changing;               /* one is being made or deleted: one at a time is */
    uint64_t updated_bytes;         /* of all tables when the newest was begun */
    struct checkpoints_stats stats; /* newest_age_ms: at … */
    uint64_t aged_ns;               /* … this time */
    uint64_t used_ids[USES_MAX];    /* are not deleted, */
    uint32_t use_count;
    uint64_t deleting_id; /* and this one is not used */
    struct promise {
        uint64_t id;
        uint64_t until_ns;
    } promises[PROMISES_MAX]; /* a ring: whoever has many made at once reads them at once */
    uint32_t next_promise;
    uint64_t tried_ns; /* when the last one ended, well or not */
    bool is_due_told;
    uint64_t told_ns; /* when */
    bool has_failed;  /* the last one: the next is due sooner */
};

/* ---- checkpoints_state.c ---- */

/* Several threads make checkpoints: that of checkpoints, and those that publish tables. A thread
 * that waits looks up now and then, whether the change is still wanted. */
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

/* It stays for a minute: an export is about to read it. */
void checkpoints_promise(struct checkpoints *c, uint64_t id);
/* All but the newest @keep of the server's own (@automatic) go, or of those of @uid; and the newest
 * of all stays. */
void checkpoints_delete_oldest(struct checkpoints *c, bool automatic, uid_t uid, uint32_t keep);

#endif
