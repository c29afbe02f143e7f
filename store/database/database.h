/* SPDX-License-Identifier: Apache-2.0 */
/* database.h: one RocksDB database of rows, of which each shard has two (store.h). Thread: any,
 * except open and close. */
#ifndef EMBTIER_STORE_DATABASE_DATABASE_H
#define EMBTIER_STORE_DATABASE_DATABASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/database/log_marks.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "store/rocksdb/rocksdb_setup.h"
#include "store/store_types.h"

struct database;

#define DATABASES_SYNC_MAX 128

struct database_opts {
    const struct rocksdb_setup *setup; /* outlives the database */
    struct rocksdb_ext_activity *activity;
    const char *path;       /* of the database, such as /data/shard-0007/replay; copied */
    struct log_marks marks; /* if it is logged */
    bool make;              /* else it has to be there */
    bool put_back;          /* it has just been put there (checkpoint.h) */
    bool logged;            /* writes go through a log, which is recovered when it is opened */
    bool direct_io;
};

MUST_CHECK enum embtier_err database_open(const struct database_opts *opts,
                                          struct database **ret_database, struct err_msg *msg);
/* Flushes, and seals (database_seal.h) if @complete. The database is closed and freed whatever
 * fails. */
MUST_CHECK enum embtier_err database_close(struct database *database, bool complete,
                                           struct err_msg *msg);
bool database_was_clean(const struct database *database);
/* Does not flush: what is in the write buffers may be lost. */
void database_free(struct database *database);
DEFINE_CLEANUP(struct database, database_free)

const char *database_path(const struct database *database);

/* As store_read(), store_write() and store_flush(). */
MUST_CHECK enum embtier_err database_read(struct database *database, struct store_row *rows,
                                          uint32_t count, struct err_msg *msg);
MUST_CHECK enum embtier_err database_write(struct database *database, const struct store_row *rows,
                                           uint32_t count, struct err_msg *msg);
/* As store_table_steps(). */
MUST_CHECK enum embtier_err database_table_steps(struct database *database,
                                                 void (*note)(void *context, uint32_t table_id,
                                                              uint64_t step),
                                                 void *context, struct err_msg *msg);
/* As store_sync_logs(), @by_syncer, or store_sync_all_logs(). All are logged, and at most
 * DATABASES_SYNC_MAX. */
MUST_CHECK enum embtier_err databases_sync_logs(struct database *const *databases, uint32_t count,
                                                bool by_syncer, struct err_msg *msg);
/* Writes down in the log how far it has been synced, if the last batch that was written to it does
 * not say so. If that fails, the next batch does; so the log's own error is all there is to it. */
void database_mark_log(struct database *database);
MUST_CHECK enum embtier_err database_flush(struct database *database, struct err_msg *msg);
/* For a logged database: flushes if the write buffers, and so the logs, hold more than @most_bytes,
 * and has the logs deleted that are not needed then. No write finds the database
 * behind for it: BUSY, and nothing flushed, if level 0 is half full, and if what is being flushed
 * already takes seconds. SHUTDOWN when *@give_up (may be NULL) is true before it begins. What is
 * written meanwhile is in the log. */
MUST_CHECK enum embtier_err database_shorten_log(struct database *database, uint64_t most_bytes,
                                                 const _Atomic bool *give_up, struct err_msg *msg);

/* Marks all rows of a table as gone, on disk. Their space is given back by
 * database_compact_table(), which compacts whether or not automatic compactions are on. */
MUST_CHECK enum embtier_err database_delete_table(struct database *database, uint32_t table_id,
                                                  struct err_msg *msg);
MUST_CHECK enum embtier_err database_compact_table(struct database *database, uint32_t table_id,
                                                   struct err_msg *msg);

/* What compaction has to do in a database. */
struct database_debt {
    bool due;         /* RocksDB would compact if it was allowed to */
    uint32_t running; /* compactions at work */
    uint32_t level0_files;
    uint64_t pending_bytes; /* estimate */
};
/* Also tells database_write() how near its limit the database is. */
void database_poll_debt(struct database *database, struct database_debt *ret_debt);
MUST_CHECK enum embtier_err database_set_compacting(struct database *database, bool on,
                                                    struct err_msg *msg);
/* While compaction pauses, the database takes rows however far it is behind with that. Any thread.
 */
void database_set_paused(struct database *database, bool is_paused);

/* Whether flushes or compactions fail. */
bool database_is_failed(struct database *database);
/* Tries to go on after such an error; blocks. */
MUST_CHECK enum embtier_err database_resume(struct database *database, struct err_msg *msg);

/* Ends whoever waits for RocksDB's background work, which ends too: only closing is left. */
void database_give_up(struct database *database);

/* CORRUPT, with the reason, unless @value is a stored row as @row has to be. @path is the
 * database's, for the message. */
MUST_CHECK enum embtier_err stored_row_check(const char *path, const struct store_row *row,
                                             const char *value, size_t value_bytes,
                                             struct err_msg *msg);
/* The name of its folder in the shard's. */
const char *database_name(bool logged);
/* The files it consists of now, its write buffers excepted; free with rocksdb_ext_files_free()
 * before it is closed. */
MUST_CHECK enum embtier_err database_files(struct database *database,
                                           struct rocksdb_ext_files **ret_files,
                                           struct err_msg *msg);
/* RocksDB's number of the last write. */
uint64_t database_sequence(const struct database *database);

/* Adds what the database counts to @stats. */
void database_add_stats(struct database *database, struct store_stats *stats);

#endif
