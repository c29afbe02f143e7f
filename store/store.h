/* SPDX-License-Identifier: Apache-2.0 */
/* store.h: keeps rows on SSD, in RocksDB shards spread over the data directories.
 *
 * Contents of each data directory:
 *   embtier.json         the store this directory belongs to, its place in it, number of shards,
 *                        hash key, format version (store_identity.h)
 *   buckets.json         the shard of each bucket of rows (buckets/bucket_map.h)
 *   directories.json     the directories of the store, once one was added or removed
 *                        (members/members.h)
 *   LOCK                 held while a daemon has the store open
 *   catalog.json         the tables; in the first directory only (catalog.h)
 *   checkpoints/         see checkpoint.h
 *   reserve              blocks kept for work that frees space (space.h)
 *   closed.json          in the first directory, from a clean close until rows of `replay` tables
 *                        are written again
 *   endurance.json       in the first directory: what was written in the last week; not the store's
 *                        (daemon/endurance/write_histories.h)
 *   endurance-tables.json  the same, of each table (daemon/endurance/table_histories.h)
 *   plan.json            in the first directory: the placement plan in force; not the store's
 *                        (daemon/jobs/plan/plan_record.h)
 *   reshard.json         in the first directory, while buckets move to other shards
 *                        (resharding/reshard_record.h)
 *   restore.json         in the first directory, while the store is being put back to a checkpoint
 *                        that a user named
 *   shard-0007/replay/   RocksDB without a log, for tables of durability `replay`
 *   shard-0007/logged/   RocksDB with its write-ahead log, for tables of the other modes
 *
 * Shards are numbered over all directories. Callers see routes instead: the shards that had buckets
 * when the store was opened, without holes. A row's route stays the same while the store is open,
 * also if its bucket moves to another shard meanwhile (resharding/view.h). A key is the table id,
 * then the row id, both big-endian. These 12 bytes use RocksDB's bytewise comparator, so `ldb` and
 * `sst_dump` work. A value is struct stored_row_head, then weights, then optimizer state
 * (row_format.h).
 *
 * A logged database also holds each table's step, under the key (0, table id). It is the step at
 * which rows of the table were last written: eight bytes, little-endian. No table has the id 0.
 *
 * All functions here block: reader and writer threads call them, lanes never do. Thread: any,
 * concurrently, except open and close. RocksDB's errors become embtier's in one place
 * (rocksdb_err.c). After NO_SPACE or IO a shard refuses writes but still serves reads. The store
 * keeps trying to take the shard back into service. */
#ifndef EMBTIER_STORE_STORE_H
#define EMBTIER_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/row_hash.h"
#include "config/config.h"
#include "store/checkpoint/checkpoint_record.h"
#include "store/store_types.h"

struct bucket_map;
struct checkpoint_draft;
struct checkpoint_record;
struct checkpoint_shelf;
struct compaction_scheduler;
struct store;

/* Returns for example "7.8.3". Static. */
const char *store_rocksdb_version(void);

struct store_opts {
    const struct config *config; /* data.* and rocksdb.*; borrowed until store_open() returns */
    uint64_t restore_id; /* all tables are put back to this checkpoint first; 0: no restore */
};

/* Checks that store_open() would accept config->data and config->rocksdb as they are now. It
 * inspects the directories, has RocksDB check its options, and changes nothing. Errors as
 * store_open(). */
MUST_CHECK enum embtier_err store_check(const struct config *config, struct err_msg *msg);
/* True if a server has the directories open now. */
bool store_is_in_use(const struct config *config);
/* Opens the whole store, or makes it if the directories are empty. After an unclean close, the
 * databases of `replay` tables are first put back to the newest checkpoint. Without a checkpoint
 * they are emptied (store_recovery()). The directories may be named in any order. Refuses
 * directories
 *   of different stores, or with other counts of shards or directories than at creation: MISMATCH
 *   held by another process: LOCKED
 *   of a newer or older format: VERSION
 *   with a file missing or cut short: CORRUPT; the message names the file */
MUST_CHECK enum embtier_err store_open(const struct store_opts *opts, struct store **ret_store,
                                       struct err_msg *msg);
/* Flushes the write buffers, and closes the databases. The directories stay locked until
 * store_close() or store_free(), the only calls that may follow. Reports the first failure; the
 * databases are closed all the same. @complete: the caller has handed over all its rows. Otherwise
 * the next open counts this as an unclean close (store_stats.shards_unclean). */
enum embtier_err store_shut(struct store *store, bool complete, struct err_msg *msg);
/* The same, and releases the directories. */
enum embtier_err store_close(struct store *store, bool complete, struct err_msg *msg);
/* Closes for _cleanup_, when the caller fails anyway and handed over no rows. A database that was
 * unclean before stays unclean. NULL is allowed. */
void store_free(struct store *store);
DEFINE_CLEANUP(struct store, store_free)

/* The result of store_open()'s recovery. */
struct store_recovery {
    bool after_crash; /* true: `replay` tables went back; false: all did (store_opts.restore_id) */
    struct checkpoint_info
        checkpoint; /* id 0: none existed; the tables are as when they were made */
    uint64_t spent_ns;
    bool happened; /* if false, the other members mean nothing */
};
void store_recovery(const struct store *store, struct store_recovery *ret_recovery);
/* Announces that updates begin: from here on a crash goes back to a checkpoint. Before this call, a
 * crash after a clean close loses nothing. The first store_write() of `replay` rows calls it if no
 * caller has. */
MUST_CHECK enum embtier_err store_serve(struct store *store, struct err_msg *msg);
/* Makes writes of `replay` rows, and store_serve(), fail with @err; OK allows them again. It is for
 * a start that could not checkpoint the state left by the last clean stop. Without that checkpoint,
 * the first changed `replay` row would make a crash go back to before that stop. */
void store_refuse_replay(struct store *store, enum embtier_err err);
enum embtier_err store_replay_refusal(const struct store *store);
/* Ends the restore of store_opts.restore_id: a checkpoint of the restored state now exists. Until
 * then every store_open() restores again, as a crash would go back to a newer checkpoint. */
MUST_CHECK enum embtier_err store_restore_done(struct store *store, struct err_msg *msg);

/* Returns the place of the checkpoints; borrowed. */
const struct checkpoint_shelf *store_shelf(const struct store *store);
/* Space on disk (space.h). Any thread.
 * Space that rows to be written would take; zeroed at first. */
struct store_demand {
    uint64_t row_count;
    uint64_t bytes;     /* in files; UINT64_MAX: overflow */
    uint64_t log_bytes; /* of the rows that also go into the log */
};
/* Adds @row_count rows of @row_bytes each; @logged: the table is logged. */
void store_demand_add(struct store_demand *demand, uint64_t row_count, uint64_t row_bytes,
                      bool logged);
/* Fails with NO_SPACE, @what and the figures if there is no room for the rows. The reserve is left
 * for work that frees space. */
MUST_CHECK enum embtier_err store_check_demand(const struct store *store,
                                               const struct store_demand *demand, const char *what,
                                               struct err_msg *msg);
/* Does the same for rows of one table. */
MUST_CHECK enum embtier_err store_check_room(const struct store *store, uint64_t row_count,
                                             uint64_t row_bytes, bool logged, struct err_msg *msg);
/* The bytes of an update that has no room, and those that there is room for. */
struct store_refusal {
    uint64_t needed_bytes;
    uint64_t room_bytes;
};
/* Does the same for rows that a client changes now; never waits. @ret_refusal: for NO_SPACE. */
enum embtier_err store_admit(const struct store *store, uint64_t row_count, uint64_t row_bytes,
                             bool logged, struct store_refusal *ret_refusal);
/* Does the same for copies of rows that move. A refusal is no refused update, and not counted. */
enum embtier_err store_admit_copies(const struct store *store, uint64_t row_count,
                                    uint64_t row_bytes, bool logged,
                                    struct store_refusal *ret_refusal);
/* Reports @row_count rows (@row_bytes in all) that changed in memory and still have to be
 * written. */
void store_report_unwritten(struct store *store, uint64_t row_count, uint64_t row_bytes);
/* Begins and ends work that may use the reserve. A start counts as such work until
 * store_end_reserve(). store_use_reserve() may wait some seconds until databases that stopped on a
 * full disk go on. */
void store_use_reserve(struct store *store);
void store_end_reserve(struct store *store);
/* Captures all databases with a log (@logged), or all without one, for a checkpoint. Databases
 * without a log are flushed first. Rows written later are not in the checkpoint. Between two
 * databases, it ends with SHUTDOWN if *@give_up is true (@give_up may be NULL). It ends with AGAIN
 * if clock_monotonic has passed @until_ns (UINT64_MAX: never); the caller then calls
 * checkpoint_forget(). */
MUST_CHECK enum embtier_err store_capture(struct store *store, struct checkpoint_draft *draft,
                                          bool logged, uint64_t until_ns,
                                          const _Atomic bool *give_up, struct err_msg *msg);
/* True if `replay` rows were written since @record was captured; NULL: since the store was made. */
bool store_has_changed_since(const struct store *store, const struct checkpoint_record *record);

/* Returns the number of routes. */
uint32_t store_shard_count(const struct store *store);
/* Returns the route of each bucket, for reads and writes; borrowed, never changes. */
const struct bucket_map *store_bucket_map(const struct store *store);
const struct row_hasher *store_hasher(const struct store *store);
const char *store_first_directory(const struct store *store);
/* Lists the data directories in force, by their numbers, and returns how many. The texts are
 * borrowed until the store is closed; @ret_paths: CONFIG_DIRECTORIES_MAX. Thread: any. */
uint32_t store_directories(const struct store *store, const char **ret_paths);

/* Prepares the calling thread for reads. Each reader calls it first. */
void store_reader_begin(struct store *store);
/* Reads @count rows of one route, sorted by (table_id, id), distinct. A row that was never written
 * has found == false, which is no error. Returns the first error of any row; the other rows are
 * valid all the same. */
MUST_CHECK enum embtier_err store_read(struct store *store, uint32_t route, struct store_row *rows,
                                       uint32_t count, struct err_msg *msg);

/* Writes all @count rows of one route, or none of them. Either all rows are logged or none is. If
 * RocksDB would wait, returns BUSY instead, and the caller tries again with all rows: if buckets
 * have moved since the store was opened, some may be written. Logged rows then survive
 * the death of the process; others do so after store_flush(). */
MUST_CHECK enum embtier_err store_write(struct store *store, uint32_t route,
                                        const struct store_row *rows, uint32_t count,
                                        struct err_msg *msg);
/* The same for write-back, which store_hold() may hold back: BUSY, and the caller tries again. */
MUST_CHECK enum embtier_err store_write_back(struct store *store, uint32_t route,
                                             const struct store_row *rows, uint32_t count,
                                             struct err_msg *msg);
/* Holds write-back to a data directory to @bytes of rows more, or lets it go on. A batch may
 * exceed them; the next bytes pay for it. Any thread, does not wait. */
void store_hold(struct store *store, const char *directory, bool is_held, uint64_t bytes);
/* Calls @note for each step of a logged table that is stored with its rows. A table may be noted
 * several times; its greatest step counts. Returns the first error of any shard; the others are
 * read all the same. */
MUST_CHECK enum embtier_err store_table_steps(struct store *store,
                                              void (*note)(void *context, uint32_t table_id,
                                                           uint64_t step),
                                              void *context, struct err_msg *msg);
/* Syncs the logs of @count different routes, so their written logged rows also survive loss of
 * power. After an error, no row written since the last call is known to be safe; the caller calls
 * again. Thread: one per route. */
MUST_CHECK enum embtier_err store_sync_logs(struct store *store, const uint32_t *routes,
                                            uint32_t count, struct err_msg *msg);

/* Writes a mark into the log of a route: how far the log has been synced. It does nothing if a
 * batch written since has such a mark. Call it when the syncer is idle. At the next start the mark
 * tells damage from a torn end (log_marks.h). */
void store_mark_log(struct store *store, uint32_t route);

/* Flushes logged databases with long logs, so that a checkpoint begun then has short ones
 * (CHECKPOINT_LOG_BYTES). Writes go on meanwhile. Ends with SHUTDOWN between two databases if
 * *@give_up is true (@give_up may be NULL), and with BUSY if it takes too long. Returns the first
 * error of any database; after other errors the rest are flushed all the same. */
MUST_CHECK enum embtier_err store_shorten_logs(struct store *store, const _Atomic bool *give_up,
                                               struct err_msg *msg);

/* Syncs all logs, from another thread than those that call store_sync_logs(). */
MUST_CHECK enum embtier_err store_sync_all_logs(struct store *store, struct err_msg *msg);

/* Writes out a route's write buffers and waits for that. */
MUST_CHECK enum embtier_err store_flush(struct store *store, uint32_t route, struct err_msg *msg);

/* Removes all rows of a table from all shards: range delete, flush, compaction of the range.
 * @logged: the table is logged. Blocks; calls @progress(context, done, total) per shard. No thread
 * reads or writes the table meanwhile. Ends with SHUTDOWN between two shards if *@give_up is true
 * (@give_up may be NULL), and with TIMEOUT if other shards compact without end. After any error,
 * rows of the table may be left, and the caller may call again. */
MUST_CHECK enum embtier_err store_drop_table(struct store *store, uint32_t table_id, bool logged,
                                             void (*progress)(void *, uint32_t, uint32_t),
                                             void *context, const _Atomic bool *give_up,
                                             struct err_msg *msg);

/* Tells the compaction scheduler whether the lanes are busy. While @busy, compaction is put off
 * until RocksDB's own limits come near. Any thread, cheap. */
void store_set_busy(struct store *store, bool busy);

/* Returns the scheduler, for operators; borrowed, as long as the store is open. */
struct compaction_scheduler *store_compaction(const struct store *store);
/* Options of RocksDB that an open store takes (store_tuning.c). Each is put in force in all
 * databases, and read back from each: INTERNAL if RocksDB has another value then. BUSY: a database
 * is being resumed, or the system gives no more threads. After an error some databases have the
 * new value, and the message says how many have not; a call with the old value, or with the new
 * one again, repairs that. A shard that is made later gets the same values. Thread: one at a time,
 * which may wait for SSD; another one may call store_share_files(). */
struct store_tuning {
    uint64_t memtable_bytes;              /* rocksdb.memtable_bytes */
    uint64_t metadata_cache_bytes;        /* rocksdb.metadata_cache_bytes */
    uint32_t background_threads;          /* rocksdb.background_threads */
    uint32_t compaction_parallel;         /* rocksdb.compaction_parallel */
    uint64_t compaction_bytes_per_second; /* rocksdb.compaction_bytes_per_second */
};
/* CONFIG: the write buffers of that many shards would be too small. */
MUST_CHECK enum embtier_err store_check_memtables(const struct config *config, uint32_t shards,
                                                  struct err_msg *msg);
MUST_CHECK enum embtier_err store_set_memtables(struct store *store, const struct config *config,
                                                struct err_msg *msg);
MUST_CHECK enum embtier_err store_set_threads(struct store *store, uint32_t threads,
                                              struct err_msg *msg);
/* rocksdb.compaction_trigger_files, and as a database has it; all were set to the same. */
MUST_CHECK enum embtier_err store_set_trigger_files(struct store *store, uint32_t files,
                                                    struct err_msg *msg);
uint32_t store_trigger_files(const struct store *store);
void store_set_metadata_cache(struct store *store, uint64_t bytes);
void store_set_compaction_parallel(struct store *store, uint32_t parallel);
void store_set_compaction_bytes(struct store *store, uint64_t bytes_per_second);
/* Has the store keep fewer files open, if @config leaves it fewer descriptors than it has now. It
 * never takes more: sessions may still have them. */
MUST_CHECK enum embtier_err store_share_files(struct store *store, const struct config *config,
                                              struct err_msg *msg);
/* Reads what is in force. */
void store_tuning(struct store *store, struct store_tuning *ret_tuning);
/* The same for what is computed where the configuration says nothing. */
struct store_computed {
    uint64_t reserve_bytes;  /* data.reserve_bytes, of the directory with the least */
    uint64_t capacity_bytes; /* endurance.capacity_bytes: of the file systems */
};
void store_computed(struct store *store, struct store_computed *ret_computed);

/* Returns the counts of one table, or of all tables and files, dropped ones included. Those of one
 * table end with store_drop_table(). */
#define STORE_ALL_TABLES UINT32_MAX
void store_written(struct store *store, uint32_t table_id, struct store_written *ret_written);

void store_stats(struct store *store, struct store_stats *ret_stats);

#endif
