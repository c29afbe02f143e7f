/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.h: makes checkpoints of all tables while they are used, and keeps count of them.
 *
 * In an instant between two updates (lane_epoch.c) logged databases are captured and every lane
 * begins an epoch. Then updates go on, and the rows that were dirty in that instant are written.
 * When the last of them is flushed the other databases are captured too, and the epoch is over;
 * names, copies and the record are made after that, while nobody waits
 * (store/checkpoint/checkpoint.h).
 *
 * Tables may be made and dropped meanwhile: those are in it that were live in that instant and are
 * still when all is captured.
 *
 * Thread: any. One is made or deleted at a time; others wait for that. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINTS_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/checkpoint/checkpoints_opts.h"
#include "store/checkpoint/checkpoint_record.h"

struct accounts;
struct catalog_made;
struct checkpoints;
struct lane;
struct store;
struct tables;
struct transfer_memory;

MUST_CHECK enum embtier_err checkpoints_new(const struct checkpoints_opts *opts,
                                            struct checkpoints **ret_checkpoints,
                                            struct err_msg *msg);
void checkpoints_free(struct checkpoints *checkpoints);
DEFINE_CLEANUP(struct checkpoints, checkpoints_free)

struct checkpoint_order {
    bool automatic; /* one of the server's own */
    bool has_step;
    uint64_t step;
    char metadata[EMBTIER_METADATA_MAX + 1]; /* JSON, or "" */
    uint32_t keep; /* then its user's oldest are deleted, but for so many; 0: none is */
    const struct catalog_made *made; /* to be in it too, or NULL */
    bool keep_all; /* none is deleted, of the server's own either: one may still be needed */
    uid_t uid;     /* whose, if it is promised, or not the server's own */
    bool promised; /* it stays for a minute, however few of the server's own are to be kept:
                      whoever had it made has yet to begin to read it */
};

/* For one that goes on from another: it is a user's too then, and stays until a user deletes it. */
void checkpoint_order_carry_over(const struct checkpoint_info *from,
                                 struct checkpoint_order *order);

/* Returns when it is complete on disk, or there is none. INVALID: the metadata is no JSON. BUSY:
 * updates under way leave it no moment (checkpoint_gate.h); or it is for an export (automatic and
 * promised), and there is no memory for one; or the user has as many as it may. */
MUST_CHECK enum embtier_err checkpoints_make(struct checkpoints *checkpoints,
                                             const struct checkpoint_order *order,
                                             const struct progress_sink *progress,
                                             struct checkpoint_info *ret_info, struct err_msg *msg);
/* At the start, before there are updates: makes one if something was written since the newest, so
 * that a crash does not go back to before the last clean stop; or of what a user has had put back.
 */
MUST_CHECK enum embtier_err checkpoints_begin(struct checkpoints *checkpoints, struct err_msg *msg);
/* Whether it is time for the server to make one. True once, until that has been tried. */
bool checkpoints_due(struct checkpoints *checkpoints, uint64_t now_ns);
/* It could not be tried after all, or was cancelled: it is due after another interval. */
void checkpoints_not_tried(struct checkpoints *checkpoints);

/* Those with ids above @after, oldest first: as many as CHECKPOINTS_PAGE and @most, of which the
 * metadata is CHECKPOINTS_PAGE_BYTES at most together. One whose record cannot be read is left out,
 * with a line in the log. Thread: one that may wait for SSD, as for all below. */
#define CHECKPOINTS_PAGE       64
#define CHECKPOINTS_PAGE_BYTES (UINT32_C(64) << 10)
struct checkpoint_page {
    struct checkpoint_info *infos; /* malloced */
    uint32_t count;
    bool more; /* there are */
};
MUST_CHECK enum embtier_err checkpoints_list(struct checkpoints *checkpoints, uint64_t after,
                                             uint32_t most, struct checkpoint_page *ret_page,
                                             struct err_msg *msg);
/* One, with the names of its tables from the one numbered @from on, of CHECKPOINTS_PAGE_BYTES at
 * most: malloced, as is each of them. */
struct checkpoint_tables {
    char **names;
    uint32_t count;
    bool more; /* there are */
};
void checkpoint_tables_clear(struct checkpoint_tables *tables);
MUST_CHECK enum embtier_err checkpoints_show(struct checkpoints *checkpoints, uint64_t id,
                                             uint32_t from, struct checkpoint_info *ret_info,
                                             struct checkpoint_tables *ret_tables,
                                             struct err_msg *msg);
MUST_CHECK enum embtier_err checkpoints_verify(struct checkpoints *checkpoints, uint64_t id,
                                               const struct progress_sink *progress,
                                               struct checkpoint_info *ret_info,
                                               struct err_msg *msg);
/* The store that scan_open() reads. */
struct store *checkpoints_store(const struct checkpoints *checkpoints);
struct tables *checkpoints_tables(const struct checkpoints *checkpoints);
struct transfer_memory *checkpoints_memory(const struct checkpoints *checkpoints);
/* Becomes true with checkpoints_stop(). */
const _Atomic bool *checkpoints_stopping(const struct checkpoints *checkpoints);
/* While it is used it is not deleted. NOT_FOUND, BUSY. Any thread. */
MUST_CHECK enum embtier_err checkpoints_begin_use(struct checkpoints *checkpoints, uint64_t id,
                                                  struct err_msg *msg);
void checkpoints_end_use(struct checkpoints *checkpoints, uint64_t id);
/* INVALID: the newest. BUSY: it is being read. PERMISSION: it is not that of @uid, who is neither
 * root nor the server's user. */
MUST_CHECK enum embtier_err checkpoints_delete(struct checkpoints *checkpoints, uint64_t id,
                                               uid_t uid, const struct progress_sink *progress,
                                               struct checkpoint_info *ret_info,
                                               struct err_msg *msg);
/* Makes tables live whose rows are complete, and that are in state CREATING (tables_begin()): all
 * or none, and not before they are safe from a crash, for which a checkpoint is made if only that
 * makes them so: as @how says. If that has a step or metadata, one is made in any case. After an
 * error they are abandoned. */
MUST_CHECK enum embtier_err checkpoints_publish(struct checkpoints *checkpoints,
                                                struct table_info *infos, uint32_t count,
                                                const struct checkpoint_order *how,
                                                const struct progress_sink *progress,
                                                struct err_msg *msg);
/* Whoever makes or verifies one gives up: the daemon stops. */
void checkpoints_stop(struct checkpoints *checkpoints);

struct checkpoints_stats {
    uint64_t made; /* since the start, as those that failed */
    uint64_t failed;
    bool has_newest;        /* there is a checkpoint, */
    uint64_t newest_age_ms; /* made so long ago */
    uint64_t pause_us;      /* of the newest */
    uint64_t longest_pause_us;
    uint64_t tries;       /* to find a moment without updates, since the start */
    uint64_t cut_updates; /* by those moments */
    uint64_t yielded_us;  /* for so long the cores were left to others, since the start */
    bool is_making;
};
void checkpoints_stats(struct checkpoints *checkpoints, struct checkpoints_stats *ret_stats);

#endif
