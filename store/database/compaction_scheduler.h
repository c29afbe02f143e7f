/* SPDX-License-Identifier: Apache-2.0 */
/* compaction_scheduler.h: lets only some shards' databases compact at a time, never all at once.
 *
 * A compaction takes SSD bandwidth from lookups. Rows are spread evenly, so level 0 of all
 * databases is full at the same time. If all compacted then, lookups would stand still. So every
 * database is opened with automatic compactions off, and one thread gives `parallel` slots to the
 * databases that need one most. A database with a slot keeps it until it has nothing left to
 * compact. While the lanes are busy no slot is given, until a database is urgent: near the limit at
 * which it takes no more writes (rocksdb_setup.h).
 *
 * If its disk is full, a database may be impossible to turn off. It loses its slot all the same, so
 * databases on other disks and drops of tables do not wait for it.
 *
 * The same thread resumes databases that stopped on an error, such as a full disk. */
#ifndef EMBTIER_STORE_DATABASE_COMPACTION_SCHEDULER_H
#define EMBTIER_STORE_DATABASE_COMPACTION_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/database/database.h"

struct compaction_scheduler;

struct compaction_scheduler_opts {
    struct database *const *databases; /* borrowed until the scheduler is freed */
    uint32_t database_count;
    uint32_t parallel; /* slots; at least one */
    uint32_t hold_patience_ms;
};

MUST_CHECK enum embtier_err compaction_scheduler_new(const struct compaction_scheduler_opts *opts,
                                                     struct compaction_scheduler **ret_scheduler,
                                                     struct err_msg *msg);
/* Ends the thread and takes back all slots, but does not wait for compactions. The caller has
 * released its holds. */
void compaction_scheduler_free(struct compaction_scheduler *scheduler);
DEFINE_CLEANUP(struct compaction_scheduler, compaction_scheduler_free)

/* Tells whether the lanes are busy. Any thread, does not wait. */
void compaction_scheduler_set_busy(struct compaction_scheduler *scheduler, bool busy);

/* While paused, no database compacts except under compaction_scheduler_hold(), as there is no
 * space. Running compactions go on to their end. Any thread, does not wait. */
void compaction_scheduler_pause(struct compaction_scheduler *scheduler, bool paused);

/* Waits for a slot and keeps it for a compaction of the caller's own. Callers come before automatic
 * compactions. Returns SHUTDOWN, without a slot, once *@give_up is true (@give_up may be NULL).
 * Returns TIMEOUT if no slot came free within the scheduler's patience. Any thread. */
MUST_CHECK enum embtier_err compaction_scheduler_hold(struct compaction_scheduler *scheduler,
                                                      const _Atomic bool *give_up,
                                                      struct err_msg *msg);
void compaction_scheduler_release(struct compaction_scheduler *scheduler);

#endif
