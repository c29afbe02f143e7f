/* SPDX-License-Identifier: Apache-2.0 */
/* compaction_scheduler.h: lets only some shards' databases of each device compact at a time, never
 * all at once.
 *
 * A compaction takes SSD bandwidth from lookups. Rows are spread evenly, so level 0 of all
 * databases is full at the same time. If all compacted then, lookups would stand still. So every
 * database is opened with automatic compactions off, and one thread gives `parallel` slots of each
 * device to the databases that need one most. A database with a slot keeps it until it has nothing
 * left to compact. While compaction is put off no slot is given, until a database is urgent: near
 * the limit at which it takes no more writes (rocksdb_setup.h). It is put off while the lanes are
 * busy, by an operator, and outside the hours that are set for it. An operator may also have all
 * databases that are due compact now, as if they were urgent.
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
#include "base/spec/day_hours.h"
#include "store/database/compaction_types.h"
#include "store/database/database.h"

struct compaction_scheduler;

#define COMPACTION_DEVICES_MAX 64

struct compaction_scheduler_opts {
    struct database *const *databases; /* borrowed until the scheduler is freed */
    uint32_t database_count;
    uint32_t database_room;  /* databases at most, with those that are added later */
    const uint32_t *devices; /* the device of each database, below COMPACTION_DEVICES_MAX; borrowed
                                for the call; NULL: all are on one */
    uint32_t parallel;       /* slots of each device; at least one */
    const rocksdb_options_t *options; /* those of all databases, which hold the limit; borrowed, as
                                         the databases; NULL: no limit */
    uint64_t bytes_per_second;        /* that compactions may write; 0: no limit */
    struct day_hours hours;           /* in which databases compact that are not urgent */
    uint32_t hold_patience_ms;
};

MUST_CHECK enum embtier_err compaction_scheduler_new(const struct compaction_scheduler_opts *opts,
                                                     struct compaction_scheduler **ret_scheduler,
                                                     struct err_msg *msg);
/* Ends the thread and takes back all slots, but does not wait for compactions. The caller has
 * released its holds. */
void compaction_scheduler_free(struct compaction_scheduler *scheduler);
DEFINE_CLEANUP(struct compaction_scheduler, compaction_scheduler_free)

/* Adds a database, which is open and stays so until the scheduler is freed. The caller keeps to
 * @compaction_scheduler_opts.database_room. Any thread. */
void compaction_scheduler_add(struct compaction_scheduler *scheduler, struct database *database,
                              uint32_t device);

/* Tells whether the lanes are busy. Any thread, does not wait. */
void compaction_scheduler_set_busy(struct compaction_scheduler *scheduler, bool busy);

/* Sets the number of slots, and reads it. Databases that have one more keep them until they are
 * done. Any thread. */
void compaction_scheduler_set_parallel(struct compaction_scheduler *scheduler, uint32_t parallel);
uint32_t compaction_scheduler_parallel(struct compaction_scheduler *scheduler);

/* Sets the bytes a second that compactions of all databases write, together; 0: no limit. RocksDB
 * has it on return, unless it gives way, as before a database takes no more writes
 * (compaction_pace.h). Reads it back from RocksDB, or what it comes back to. Any thread. */
void compaction_scheduler_set_bytes(struct compaction_scheduler *scheduler,
                                    uint64_t bytes_per_second);
uint64_t compaction_scheduler_bytes(struct compaction_scheduler *scheduler);

/* While paused, no database compacts except under compaction_scheduler_hold(), as there is no
 * space. Running compactions go on to their end. Any thread, does not wait. */
void compaction_scheduler_pause(struct compaction_scheduler *scheduler, bool paused);
bool compaction_scheduler_is_paused(const struct compaction_scheduler *scheduler);

/* Puts compaction off, or no longer, for an operator. Any thread, does not wait. */
void compaction_scheduler_defer(struct compaction_scheduler *scheduler, bool deferred);
void compaction_scheduler_set_hours(struct compaction_scheduler *scheduler,
                                    const struct day_hours *hours);

/* Returns how the scheduler is now. Any thread. */
void compaction_scheduler_look(struct compaction_scheduler *scheduler,
                               struct compaction_facts *ret_facts);
/* Describes up to @most databases from number @first on, as they were at the last round. Returns
 * how many. Any thread. */
uint32_t compaction_scheduler_list(struct compaction_scheduler *scheduler, uint32_t first,
                                   uint32_t most, struct compaction_view *ret_views);

/* Returns a database's path; borrowed. Any thread. */
const char *compaction_scheduler_path(const struct compaction_scheduler *scheduler,
                                      uint32_t database);

/* Has each database that is due compact until it is not, although compaction may be put off, and
 * waits for that. Calls @tell(@context, done, total) about ten times a second, with MiB of files
 * that compactions have read and are to read, and ends with its error if it returns one. Ends with
 * NO_SPACE if there is no space to compact, and with IO if a database has failed. One call at a
 * time, from any thread. */
typedef enum embtier_err compaction_tell_fn(void *context, uint32_t done, uint32_t total,
                                            struct err_msg *msg);
MUST_CHECK enum embtier_err compaction_scheduler_catch_up(struct compaction_scheduler *scheduler,
                                                          compaction_tell_fn *tell, void *context,
                                                          struct err_msg *msg);

/* Rewrites all files of all databases, one database after the other, those that are added meanwhile
 * last, although compaction may be put
 * off. Clients write meanwhile. A piece of a database takes a slot, and gives it back as soon as an
 * urgent database of the device waits; the piece is then begun anew. @tell as above. Errors
 * as above. One call at a time, from any thread. */
MUST_CHECK enum embtier_err compaction_scheduler_rewrite(struct compaction_scheduler *scheduler,
                                                         compaction_tell_fn *tell, void *context,
                                                         struct err_msg *msg);

/* Waits for a slot of @device and keeps it for a compaction of the caller's own. Callers come
 * before automatic compactions. Returns SHUTDOWN, without a slot, once *@give_up is true (@give_up
 * may be NULL). Returns TIMEOUT if no slot came free within the scheduler's patience. Any thread.
 */
MUST_CHECK enum embtier_err compaction_scheduler_hold(struct compaction_scheduler *scheduler,
                                                      uint32_t device, const _Atomic bool *give_up,
                                                      struct err_msg *msg);
void compaction_scheduler_release(struct compaction_scheduler *scheduler, uint32_t device);

#endif
