/* SPDX-License-Identifier: Apache-2.0 */
/* store.h: rows on SSD, in RocksDB shards spread over the data directories.
 *
 * On disk, in each data directory:
 *   embtier.json         which store this directory belongs to, its place in it, number of shards,
 *                        hash key, format version (store_identity.h)
 *   buckets.json         which shard each bucket of rows lies in (bucket_map.h)
 *   LOCK                 held while a daemon has the store open
 *   catalog.json         the tables; in the first directory only (catalog.h)
 *   checkpoints/         see checkpoint.h
 *   reserve              blocks that are kept for what gives space back (space.h)
 *   closed.json          in the first directory, from a clean close until rows of `replay` tables
 *                        are written again
 *   restore.json         in the first directory, while the store is put back to a checkpoint that
 *                        a user has named
 *   shard-0007/replay/   RocksDB without a log, for tables of durability `replay`
 *   shard-0007/logged/   RocksDB with its write-ahead log, for tables of the other modes
 *
 * Shards are numbered over all directories. A key is table id, then row id, both big-endian: 12
 * bytes under RocksDB's bytewise comparator, so that `ldb` and `sst_dump` work. A value is struct
 * stored_row_head, then weights, then optimizer state (row_format.h).
 *
 * A logged database has for each table, under the key (0, table id), the step that it was at when
 * rows of it were last written: eight bytes, little-endian. No table has the id 0.
 *
 * Everything here blocks: it is called by reader and writer threads, never by a lane. Thread: any,
 * at the same time, except open and close. RocksDB's errors become embtier's in one place
 * (rocksdb_err.c). After NO_SPACE or IO a shard takes no writes but goes on reading; the store
 * tries by itself, again and again, to take it back into service. */
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
struct store;

/* "7.8.3". Static. */
const char *store_rocksdb_version(void);

struct store_opts {
    const struct config *config; /* data.* and rocksdb.*; borrowed until store_open() returns */
    uint64_t restore_id;         /* all tables are put back to this checkpoint first; 0: to none */
};

/* Whether store_open() would take config->data and config->rocksdb as they are now: looks at the
 * directories and has RocksDB look at its options, and changes nothing. Errors as store_open(). */
MUST_CHECK enum embtier_err store_check(const struct config *config, struct err_msg *msg);
/* Whether a server has the directories open now. */
bool store_is_in_use(const struct config *config);
/* Opens, or makes if the directories are empty, the whole store. If it was not closed cleanly, the
 * databases of `replay` tables are put back to the newest checkpoint first, or emptied if there is
 * none (store_recovery()). The directories may be named in any order. Refuses: directories of
 * different stores, in another number of shards or directories than when they were made (MISMATCH),
 * held by another process (LOCKED), of a newer or older format (VERSION), with a file missing or
 * cut short (CORRUPT; the message names it). */
MUST_CHECK enum embtier_err store_open(const struct store_opts *opts, struct store **ret_store,
                                       struct err_msg *msg);
/* Flushes the write buffers first. Reports the first failure; the store is closed all the same.
 * @complete: the caller has handed over all rows it had; else the next open finds that this was no
 * clean end (store_stats.shards_unclean). */
enum embtier_err store_close(struct store *store, bool complete, struct err_msg *msg);
/* The same for _cleanup_, when the caller fails anyway, and has had no rows; what was unclean
 * before stays so. NULL is allowed. */
void store_free(struct store *store);
DEFINE_CLEANUP(struct store, store_free)

/* What store_open() has put back. */
struct store_recovery {
    bool after_crash; /* of `replay` tables, else of all: as store_opts.restore_id says */
    struct checkpoint_info
        checkpoint; /* id 0: there was none, the tables are as when they were made */
    uint64_t spent_ns;
    bool happened; /* else nothing of this holds */
};
void store_recovery(const struct store *store, struct store_recovery *ret_recovery);
/* From here on there are updates, and a crash goes back to a checkpoint; before, it costs nothing,
 * if the store was closed cleanly. The first store_write() calls it, if nobody has. */
MUST_CHECK enum embtier_err store_serve(struct store *store, struct err_msg *msg);
/* While there is no checkpoint of what the last clean stop has left, since none could be made, the
 * first change of a `replay` row would make a crash go back to before that stop. So with an error
 * here none is written, and store_serve() fails with it; OK: they are again. */
void store_refuse_replay(struct store *store, enum embtier_err err);
enum embtier_err store_replay_refusal(const struct store *store);
/* A checkpoint has been made of what store_opts.restore_id has put back. Before that, every
 * store_open() does it again: a crash would go back to a newer checkpoint. */
MUST_CHECK enum embtier_err store_restore_done(struct store *store, struct err_msg *msg);

/* Where the checkpoints are; borrowed. */
const struct checkpoint_shelf *store_shelf(const struct store *store);
/* Space on disk (space.h). Any thread.
 * What rows that are to be written would take; zeroed at first. */
struct store_demand {
    uint64_t row_count;
    uint64_t bytes;     /* in files; UINT64_MAX if it is no number */
    uint64_t log_bytes; /* those that are in the log as well */
};
/* That many rows of @row_bytes more, of a table that is @logged or not. */
void store_demand_add(struct store_demand *demand, uint64_t row_count, uint64_t row_bytes,
                      bool logged);
/* NO_SPACE, with @what and the figures: there is no room for them. The reserve is left to what
 * gives space back. */
MUST_CHECK enum embtier_err store_check_demand(const struct store *store,
                                               const struct store_demand *demand, const char *what,
                                               struct err_msg *msg);
/* The same of rows of one table. */
MUST_CHECK enum embtier_err store_check_room(const struct store *store, uint64_t row_count,
                                             uint64_t row_bytes, bool logged, struct err_msg *msg);
/* The same for rows that a client changes now, without figures; never waits. */
enum embtier_err store_admit(const struct store *store, uint64_t row_count, uint64_t row_bytes,
                             bool logged);
/* Bytes of @row_count rows that have changed in memory and are to be written. */
void store_report_unwritten(struct store *store, uint64_t row_count, uint64_t row_bytes);
/* Work that may use the reserve begins and ends; the start is such work, until it is ended. Waits
 * for some seconds, if need be, until databases that stopped on a full disk go on. */
void store_use_reserve(struct store *store);
void store_end_reserve(struct store *store);
/* Captures all databases with, or without, a log for a checkpoint; those without are flushed first.
 * Rows that are written later are not in it. SHUTDOWN between two of them when *@give_up (may be
 * NULL) is true. AGAIN between two when clock_monotonic has passed @until_ns (UINT64_MAX: never):
 * then checkpoint_forget(). */
MUST_CHECK enum embtier_err store_capture(struct store *store, struct checkpoint_draft *draft,
                                          bool logged, uint64_t until_ns,
                                          const _Atomic bool *give_up, struct err_msg *msg);
/* Whether rows of `replay` tables were written since that checkpoint was captured; NULL: ever. */
bool store_has_changed_since(const struct store *store, const struct checkpoint_record *record);

uint32_t store_shard_count(const struct store *store);
/* Which shard the rows of a bucket are read from and written to; borrowed, and does not change. */
const struct bucket_map *store_bucket_map(const struct store *store);
const struct row_hasher *store_hasher(const struct store *store);
const char *store_first_directory(const struct store *store);

/* A thread that will read says so first, and then has what it needs for it. */
void store_reader_begin(struct store *store);
/* Reads @count rows of one shard, sorted by (table_id, id), distinct. Rows that were never written
 * are not found, which is no error. Returns the first of the rows' errors; good rows are good all
 * the same. */
MUST_CHECK enum embtier_err store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                       uint32_t count, struct err_msg *msg);

/* Writes @count rows of one shard, all logged or none, all or none of them, without waiting when
 * RocksDB would: BUSY then, and the caller tries again. Logged ones are safe from the death of the
 * process; others after store_flush(). */
MUST_CHECK enum embtier_err store_write(struct store *store, uint32_t shard,
                                        const struct store_row *rows, uint32_t count,
                                        struct err_msg *msg);
/* Calls @note for the steps of logged tables that came with rows which were written, any number of
 * times for a table, of which the greatest holds. The first error of any shard; the others are read
 * all the same. */
MUST_CHECK enum embtier_err store_table_steps(struct store *store,
                                              void (*note)(void *context, uint32_t table_id,
                                                           uint64_t step),
                                              void *context, struct err_msg *msg);
/* Makes logged rows of @count different shards that have been written safe from loss of power as
 * well. After an error, none of those since the last call need be; the call is to be made again.
 * Thread: one for each shard. */
MUST_CHECK enum embtier_err store_sync_logs(struct store *store, const uint32_t *shards,
                                            uint32_t count, struct err_msg *msg);

/* Writes down in a shard's log how far it has been synced, if no batch that was written since does:
 * for when nothing else is to be done. It tells damage from a torn end at the next start
 * (log_marks.h). */
void store_mark_log(struct store *store, uint32_t shard);

/* Flushes logged databases that have much in their logs, so that those of a checkpoint that is
 * begun then are short (CHECKPOINT_LOG_BYTES). Writes go on meanwhile. SHUTDOWN between two
 * databases when *@give_up (may be NULL) is true. The first error of any; the others are flushed
 * all the same, but for BUSY if it takes long. */
MUST_CHECK enum embtier_err store_shorten_logs(struct store *store, const _Atomic bool *give_up,
                                               struct err_msg *msg);

/* All that is in logs, by another thread than those that call store_sync_logs(). */
MUST_CHECK enum embtier_err store_sync_all_logs(struct store *store, struct err_msg *msg);

/* Writes the shard's write buffers out and waits. */
MUST_CHECK enum embtier_err store_flush(struct store *store, uint32_t shard, struct err_msg *msg);

/* Removes all rows of a table, which is @logged or not, from all shards: range delete, flush,
 * compaction of the range. Blocks; calls
 * @progress(context, done, total) per shard. No one reads or writes the table meanwhile. SHUTDOWN
 * between two shards when @give_up (may be NULL) is true, TIMEOUT when other shards compact without
 * end: then, as after any error, rows of the table may be left, and the call may be made again. */
MUST_CHECK enum embtier_err store_drop_table(struct store *store, uint32_t table_id, bool logged,
                                             void (*progress)(void *, uint32_t, uint32_t),
                                             void *context, const _Atomic bool *give_up,
                                             struct err_msg *msg);

/* Tells the compaction scheduler how busy the lanes are; compaction is put off while @busy, until
 * RocksDB's own limits come near. Any thread, cheap. */
void store_set_busy(struct store *store, bool busy);

/* Counts of one table, dropped ones included, or of all and everything. */
#define STORE_ALL_TABLES UINT32_MAX
void store_written(struct store *store, uint32_t table_id, struct store_written *ret_written);

void store_stats(struct store *store, struct store_stats *ret_stats);

#endif
