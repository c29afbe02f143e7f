/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.h: makes checkpoints of all tables while they are used, and keeps count of them.
 *
 * In an instant between two updates (lane_epoch.c) the logged databases are captured and every lane
 * begins an epoch. Updates then go on while the rows that were dirty in that instant are written.
 * When the last of them is flushed, the other databases are captured too, and the epoch is over.
 * Names, copies and the record are made after that, while no request waits
 * (store/checkpoint/checkpoint.h).
 *
 * Tables may be made and dropped meanwhile. The checkpoint has those that were live in that instant
 * and still are when all is captured.
 *
 * Thread: any. One checkpoint is made or deleted at a time; other callers wait for that. */
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
    bool automatic; /* the server's own */
    bool has_step;
    uint64_t step;
    char metadata[EMBTIER_METADATA_MAX + 1]; /* JSON, or "" */
    uint32_t keep; /* the user's oldest are then deleted, until this many are left; 0: none is */
    const struct catalog_made *made; /* tables to include too, or NULL */
    bool keep_all; /* none is deleted, not even of the server's own: one may still be needed */
    /* The server's own, for a move of buckets. It does not count among those that are kept, and
     * goes with the next one of a move, or when all that are kept are newer. */
    bool passes;
    uid_t uid;                          /* its owner, if it is promised or not the server's own */
    char user[CHECKPOINT_USER_MAX + 1]; /* its owner's name in the access file, or "" */
    bool promised; /* it stays for a minute, however few of the server's own are kept: the client
                      that asked has yet to begin reading it */
};

/* Fills in @order for a checkpoint that carries on from @from. It is a user's if @from is, and then
 * stays until a user deletes it. */
void checkpoint_order_carry_over(const struct checkpoint_info *from,
                                 struct checkpoint_order *order);

/* Returns once the checkpoint is complete on disk, or has failed and left none. INVALID: the
 * metadata is not JSON. BUSY: updates under way leave it no moment (checkpoint_gate.h), or the user
 * has as many as it may have. BUSY also if it is for an export (automatic and promised), which gets
 * no memory now. */
MUST_CHECK enum embtier_err checkpoints_make(struct checkpoints *checkpoints,
                                             const struct checkpoint_order *order,
                                             const struct progress_sink *progress,
                                             struct checkpoint_info *ret_info, struct err_msg *msg);
/* Calls @before, does the same, then calls @then with the checkpoint's id. No other checkpoint is
 * made from the first call to the end of the last. Returns the first error. */
MUST_CHECK enum embtier_err
checkpoints_make_and(struct checkpoints *checkpoints, const struct checkpoint_order *order,
                     const struct progress_sink *progress,
                     enum embtier_err (*before)(void *context, struct err_msg *msg),
                     enum embtier_err (*then)(void *context, uint64_t id, struct err_msg *msg),
                     void *context, struct err_msg *msg);
/* Calls @then with a checkpoint that was made earlier, while none is made or deleted. */
MUST_CHECK enum embtier_err
checkpoints_and(struct checkpoints *checkpoints, uint64_t id, const struct progress_sink *progress,
                enum embtier_err (*then)(void *context, uint64_t id, struct err_msg *msg),
                void *context, struct err_msg *msg);
/* Called at the start, before there are updates. Makes a checkpoint if something was written since
 * the newest, so that a crash does not go back to before the last clean stop. Also makes one if a
 * user had an older checkpoint put back. */
MUST_CHECK enum embtier_err checkpoints_begin(struct checkpoints *checkpoints, struct err_msg *msg);
/* True if it is time for the server to make one. Returns true once, until that has been tried. */
bool checkpoints_due(struct checkpoints *checkpoints, uint64_t now_ns);
/* Notes that the due checkpoint could not be tried after all, or was cancelled. It is due again
 * after another interval. */
void checkpoints_not_tried(struct checkpoints *checkpoints);

/* Lists checkpoints with ids above @after, oldest first: at most CHECKPOINTS_PAGE, at most @most,
 * and with at most CHECKPOINTS_PAGE_BYTES of metadata together. Leaves out one whose record cannot
 * be read, with a line in the log. Thread: one that may wait for SSD, as for all that follow. */
#define CHECKPOINTS_PAGE       64
#define CHECKPOINTS_PAGE_BYTES (UINT32_C(64) << 10)
struct checkpoint_page {
    struct checkpoint_info *infos; /* malloced */
    uint32_t count;
    bool more; /* checkpoints follow this page */
};
MUST_CHECK enum embtier_err checkpoints_list(struct checkpoints *checkpoints, uint64_t after,
                                             uint32_t most, struct checkpoint_page *ret_page,
                                             struct err_msg *msg);
/* Shows one checkpoint, with the names of its tables from the one numbered @from on, at most
 * CHECKPOINTS_PAGE_BYTES of them. The array is malloced, as is each name. */
struct checkpoint_tables {
    char **names;
    uint32_t count;
    bool more; /* names follow these */
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
/* Returns the store, which scan_open() reads. */
struct store *checkpoints_store(const struct checkpoints *checkpoints);
struct tables *checkpoints_tables(const struct checkpoints *checkpoints);
/* Returns the time between the server's own checkpoints; 0: it makes none. */
uint64_t checkpoints_interval_ns(const struct checkpoints *checkpoints);
void checkpoints_set_interval_ns(struct checkpoints *checkpoints, uint64_t interval_ns);
/* Returns how many of its own the server keeps. Fewer are deleted when it makes the next one. */
uint32_t checkpoints_keep(const struct checkpoints *checkpoints);
void checkpoints_set_keep(struct checkpoints *checkpoints, uint32_t keep);
struct transfer_memory *checkpoints_memory(const struct checkpoints *checkpoints);
/* Becomes true with checkpoints_stop(). */
const _Atomic bool *checkpoints_stopping(const struct checkpoints *checkpoints);
/* Prevents the deletion of a checkpoint until checkpoints_end_use(). NOT_FOUND,
 * BUSY. Any thread. */
MUST_CHECK enum embtier_err checkpoints_begin_use(struct checkpoints *checkpoints, uint64_t id,
                                                  struct err_msg *msg);
void checkpoints_end_use(struct checkpoints *checkpoints, uint64_t id);
/* INVALID: it is the newest. BUSY: it is being read. PERMISSION: it is another user's, and @uid is
 * neither root nor the server's user. */
MUST_CHECK enum embtier_err checkpoints_delete(struct checkpoints *checkpoints, uint64_t id,
                                               uid_t uid, const struct progress_sink *progress,
                                               struct checkpoint_info *ret_info,
                                               struct err_msg *msg);
/* Makes tables live that are in state CREATING (tables_begin()) and whose rows are complete. It
 * makes all or none, and not before they are safe from a crash. If only a checkpoint makes them
 * safe, one is made as @how says. If @how has a step or metadata, one is made in any case. After an
 * error the tables are abandoned. */
MUST_CHECK enum embtier_err checkpoints_publish(struct checkpoints *checkpoints,
                                                struct table_info *infos, uint32_t count,
                                                const struct checkpoint_order *how,
                                                const struct progress_sink *progress,
                                                struct err_msg *msg);
/* Makes each caller that makes or verifies a checkpoint give up, because the daemon stops. */
void checkpoints_stop(struct checkpoints *checkpoints);

struct checkpoints_stats {
    uint64_t made; /* since the start, as are those that failed */
    uint64_t failed;
    uint64_t failures_in_row; /* since the last one that was made, or the start */
    bool has_newest;          /* there is a checkpoint */
    uint64_t newest_age_ms;   /* how long ago that was made */
    uint64_t newest_id;
    /* The part of tables_totals().updated_bytes that the newest has for certain. */
    uint64_t saved_updated_bytes;
    uint64_t pause_us; /* of the newest */
    uint64_t longest_pause_us;
    uint64_t tries;       /* to find a moment without updates, since the start */
    uint64_t cut_updates; /* updates that those moments cut in two */
    uint64_t yielded_us;  /* time for which the cores were left to others, since the start */
    bool is_making;
};
void checkpoints_stats(struct checkpoints *checkpoints, struct checkpoints_stats *ret_stats);

#endif
