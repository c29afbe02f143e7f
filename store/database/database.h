/* SPDX-License-Identifier: Apache-2.0 */
/* database.h: one RocksDB database of rows; each shard has two (store.h). Thread: any, except open
 * and close. */
#ifndef EMBTIER_STORE_DATABASE_DATABASE_H
#define EMBTIER_STORE_DATABASE_DATABASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/database/logs/log_marks.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "store/rocksdb/rocksdb_setup.h"
#include "store/store_types.h"

struct database;

#define DATABASES_SYNC_MAX 128

struct database_opts {
    const struct rocksdb_setup *setup; /* outlives the database */
    struct rocksdb_ext_activity *activity;
    const char *path;       /* of the database, such as /data/shard-0007/replay; copied */
    struct log_marks marks; /* used if it is logged */
    bool make;              /* otherwise it must exist */
    bool put_back;          /* it has just been put back (checkpoint.h) */
    bool logged;            /* writes go through a log, which an open recovers */
    bool direct_io;
};

MUST_CHECK enum embtier_err database_open(const struct database_opts *opts,
                                          struct database **ret_database, struct err_msg *msg);
/* Flushes, then seals (database_seal.h) if @complete. The database is closed and freed even if a
 * step fails. */
MUST_CHECK enum embtier_err database_close(struct database *database, bool complete,
                                           struct err_msg *msg);
bool database_was_clean(const struct database *database);
/* Does not flush: rows in the write buffers may be lost. */
void database_free(struct database *database);
DEFINE_CLEANUP(struct database, database_free)

const char *database_path(const struct database *database);

/* See store_read(), store_write() and store_flush(). */
MUST_CHECK enum embtier_err database_read(struct database *database, struct store_row *rows,
                                          uint32_t count, struct err_msg *msg);
MUST_CHECK enum embtier_err database_write(struct database *database, const struct store_row *rows,
                                           uint32_t count, struct err_msg *msg);
/* Returns OK if a write now would not have to wait; BUSY, or why it would fail. */
MUST_CHECK enum embtier_err database_may_write(struct database *database, struct err_msg *msg);
/* As database_write(), for a caller that has asked database_may_write(). */
MUST_CHECK enum embtier_err database_write_now(struct database *database,
                                               const struct store_row *rows, uint32_t count,
                                               struct err_msg *msg);
/* See store_table_steps(). */
MUST_CHECK enum embtier_err database_table_steps(struct database *database,
                                                 void (*note)(void *context, uint32_t table_id,
                                                              uint64_t step),
                                                 void *context, struct err_msg *msg);
/* See store_sync_logs() (@by_syncer) and store_sync_all_logs(). All databases are logged, and
 * differ;
 * @count is at most DATABASES_SYNC_MAX. Syncers may come with the same databases, always in the
 * same order; they wait for each other. */
MUST_CHECK enum embtier_err databases_sync_logs(struct database *const *databases, uint32_t count,
                                                bool by_syncer, struct err_msg *msg);
/* Writes a mark into the log: how far it has been synced. Does nothing if the last written batch
 * has that mark. A failure needs no report: the next batch carries the mark, and the log keeps its
 * own error. */
void database_mark_log(struct database *database);
MUST_CHECK enum embtier_err database_flush(struct database *database, struct err_msg *msg);
/* Keeps the log of a logged database short. Flushes if the write buffers, and so the logs, hold
 * more than @most_bytes, and has logs deleted that are no longer needed. It must not make writes
 * fall behind. So it returns BUSY without a flush if level 0 is half full, or if running flushes
 * take seconds. Returns SHUTDOWN if *@give_up is true before the flush begins (@give_up may be
 * NULL). Rows written meanwhile are in the log. */
MUST_CHECK enum embtier_err database_shorten_log(struct database *database, uint64_t most_bytes,
                                                 const _Atomic bool *give_up, struct err_msg *msg);

/* In the place of a table, for the two functions that follow. Steps of tables stay. */
#define DATABASE_ALL_TABLES UINT32_MAX
/* Marks all rows of a table as deleted, on disk. database_compact_table() gives their space back,
 * whether or not automatic compactions are on. */
MUST_CHECK enum embtier_err database_delete_table(struct database *database, uint32_t table_id,
                                                  struct err_msg *msg);
MUST_CHECK enum embtier_err database_compact_table(struct database *database, uint32_t table_id,
                                                   struct err_msg *msg);

/* The compaction work that a database has. */
struct database_debt {
    bool due;         /* RocksDB would compact if it were allowed to */
    uint32_t running; /* compactions running now */
    uint32_t level0_files;
    uint64_t pending_bytes; /* estimate */
};
/* True if a database with this debt takes no more writes. */
static inline bool database_debt_stops_writes(uint32_t level0_files, uint64_t pending_bytes)
{
    return level0_files >= DATABASE_LEVEL0_FILES_MAX ||
           (level0_files >= DATABASE_PENDING_FILES && pending_bytes >= DATABASE_PENDING_BYTES_MAX);
}

/* Divides the keys into ranges whose files have about @piece_bytes together. A layout whose runs
 * only merge as a whole has one range. */
struct database_ranges {
    struct database_cut {
        unsigned char key[12]; /* the last of a range; the last range ends with the last key */
    } * cuts;
    uint32_t cut_count;
    uint64_t bytes; /* of all files */
};
MUST_CHECK enum embtier_err database_ranges(struct database *database, uint64_t piece_bytes,
                                            struct database_ranges *ret_ranges,
                                            struct err_msg *msg);
void database_ranges_clear(struct database_ranges *ranges);
/* Rewrites all files with keys of range number @range, which is at most the number of cuts.
 * Clients write meanwhile. CANCELLED: @stop is set. */
MUST_CHECK enum embtier_err database_rewrite(struct database *database,
                                             const struct database_ranges *ranges, uint32_t range,
                                             struct rocksdb_ext_stop *stop, struct err_msg *msg);
/* Reads the debt. It also tells database_write() how near its limit the database is. */
void database_poll_debt(struct database *database, struct database_debt *ret_debt);
/* Returns the bytes of the files that compactions have read which have ended. */
uint64_t database_compacted_bytes(struct database *database);
MUST_CHECK enum embtier_err database_set_compacting(struct database *database, bool on,
                                                    struct err_msg *msg);
/* Sets a number of the open database, and reads it back: INTERNAL, with both, if RocksDB has
 * another one then. BUSY: the database is being resumed. */
MUST_CHECK enum embtier_err database_tune(struct database *database, enum rocksdb_ext_tuning tuning,
                                          int64_t value, struct err_msg *msg);
int64_t database_tuned(struct database *database, enum rocksdb_ext_tuning tuning);
/* Returns how many rows were read and written since the database was opened. Any thread. */
uint64_t database_rows_moved(struct database *database);
/* Looks how much space the files of rows that lie apart from their keys take on disk, old versions
 * and files that RocksDB has yet to delete included. Its own statistics may tell half of that.
 * Reads the database's directory. */
void database_measure_blobs(struct database *database);
/* While compaction is paused, the database takes rows however far compaction is behind. Any
 * thread. */
void database_set_paused(struct database *database, bool is_paused);

/* True if a full write buffer waits for its flush, as it does now and then. */
bool database_flushes(struct database *database);
/* True if compactions are half behind: work that can wait should. */
bool database_is_near_limit(struct database *database);
/* True if flushes or compactions fail. */
bool database_is_failed(struct database *database);
/* Tries to resume after such an error; blocks. */
MUST_CHECK enum embtier_err database_resume(struct database *database, struct err_msg *msg);

/* Ends RocksDB's background work, and all waits for it. Afterwards the database can only be
 * closed. */
void database_give_up(struct database *database);

/* Checks that @value is a stored row with the lengths of @row; CORRUPT, with the reason, if not.
 * @path is the database's, for the message. */
MUST_CHECK enum embtier_err stored_row_check(const char *path, const struct store_row *row,
                                             const char *value, size_t value_bytes,
                                             struct err_msg *msg);
/* Returns the name of the database's folder in the shard's folder. */
const char *database_name(bool logged);
/* Lists the database's present files, without its write buffers. The caller frees the list with
 * rocksdb_ext_files_free() before it closes the database. */
MUST_CHECK enum embtier_err database_files(struct database *database,
                                           struct rocksdb_ext_files **ret_files,
                                           struct err_msg *msg);
/* Returns RocksDB's sequence number of the last write. */
uint64_t database_sequence(const struct database *database);

/* Adds the database's counts to @stats. */
void database_add_stats(struct database *database, struct store_stats *stats);

#endif
