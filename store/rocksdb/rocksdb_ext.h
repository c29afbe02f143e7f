/* SPDX-License-Identifier: Apache-2.0 */
/* rocksdb_ext.h: C functions that RocksDB's C API lacks. The only C++ of the store lies behind them
 * (ext/). Thread: any, unless stated otherwise. */
#ifndef EMBTIER_STORE_ROCKSDB_ROCKSDB_EXT_H
#define EMBTIER_STORE_ROCKSDB_ROCKSDB_EXT_H

#include <rocksdb/c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* True if the installed RocksDB lays out its C handles as ext/handles.hh assumes. The caller asks
 * once, before it calls anything else here. */
bool rocksdb_ext_fits(void);
/* Returns for example "7.8.3". Static. */
const char *rocksdb_ext_version(void);
/* True if embtier's tests have run with @version (store/rocksdb/ext/versions.hh). */
bool rocksdb_ext_is_tried(const char *version);

/* Turns on counting statistics (no timers), shared by all databases opened with @options or a
 * copy. */
void rocksdb_ext_enable_statistics(rocksdb_options_t *options);

/* X(name, RocksDB's ticker) */
#define ROCKSDB_EXT_TICKER_TABLE(X)                                                                \
    X(COMPACT_READ_BYTES)                                                                          \
    X(LAST_LEVEL_READ_BYTES)                                                                       \
    X(NON_LAST_LEVEL_READ_BYTES)                                                                   \
    X(BLOCK_CACHE_INDEX_HIT)                                                                       \
    X(BLOCK_CACHE_INDEX_MISS)                                                                      \
    X(BLOCK_CACHE_FILTER_HIT)                                                                      \
    X(BLOCK_CACHE_FILTER_MISS)

enum rocksdb_ext_ticker {
#define X(name) ROCKSDB_EXT_##name,
    ROCKSDB_EXT_TICKER_TABLE(X)
#undef X
};
uint64_t rocksdb_ext_ticker(const rocksdb_options_t *options, enum rocksdb_ext_ticker ticker);

/* Calls @each for each option in @text, as RocksDB parses it, in order of names, until @each
 * returns false. Returns false if @text is no string of options. */
bool rocksdb_ext_parse_options(const char *text,
                               bool (*each)(void *context, const char *name, const char *value),
                               void *context);
/* Does the same for all options that a string can hold, with their present values. */
bool rocksdb_ext_each_option(const rocksdb_options_t *options,
                             bool (*each)(void *context, const char *name, const char *value),
                             void *context);

/* Returns the name of a compression that this build of RocksDB can write; NULL from some @index on.
 * Other compressions known to RocksDB end the process, or fail when files are written. */
const char *rocksdb_ext_compression(size_t index);

/* Sets one budget for the write buffers of all databases opened with @options or a copy. */
void rocksdb_ext_share_write_buffers(rocksdb_options_t *options, size_t bytes);
uint64_t rocksdb_ext_write_buffer_bytes(const rocksdb_options_t *options);
/* Changes the budget while databases are open, and reads it. */
void rocksdb_ext_set_write_buffers(const rocksdb_options_t *options, size_t bytes);
uint64_t rocksdb_ext_write_buffers_budget(const rocksdb_options_t *options);

/* Limits the bytes a second that compactions of all databases opened with @options or a copy write,
 * together; 0, as at first: no limit. Flushes never wait for it. A change counts at once, also for
 * compactions that wait. Any thread. */
void rocksdb_ext_limit_compaction(rocksdb_options_t *options);
/* Leaves the limit out of a copy of the options, for a database that does not compact. */
void rocksdb_ext_unlimit_compaction(rocksdb_options_t *options);
void rocksdb_ext_set_compaction_limit(const rocksdb_options_t *options, uint64_t bytes_per_second);
uint64_t rocksdb_ext_compaction_limit(const rocksdb_options_t *options);
/* Returns the bytes so far that the limit holds for, and those of flushes. */
void rocksdb_ext_limited_bytes(const rocksdb_options_t *options, uint64_t *ret_waiting,
                               uint64_t *ret_passing);

/* Makes a block cache that keeps index and filter blocks, and drops a data block when its reader is
 * done. Needs `cache_index_and_filter_blocks_with_high_priority`. Destroyed with
 * rocksdb_cache_destroy(). */
rocksdb_cache_t *rocksdb_ext_metadata_cache_new(size_t bytes);

/* Sends RocksDB's warnings and errors to "@directory/LOG"; one LOG.old is kept. Lines that cannot
 * be written are dropped. RocksDB's own logger, as Debian builds it, aborts the process when it
 * writes after a failed write, such as on a full disk. */
void rocksdb_ext_log_to(rocksdb_options_t *options, const char *directory);
/* Drops RocksDB's log: for a database that is only read, in a folder that must not be written
 * to. */
void rocksdb_ext_log_nowhere(rocksdb_options_t *options);
/* For a database that is opened for reading only: has RocksDB compare its logs with the MANIFEST.
 * Without this, RocksDB forgets the logs that a MANIFEST names, which a reader cannot: it ends the
 * process by an assertion (recovery_ctx != nullptr), or by a null pointer in builds without. */
void rocksdb_ext_check_logs(rocksdb_options_t *options);

/* Makes all threads for flushes and compactions now. False if one could not be made. */
bool rocksdb_ext_start_threads(rocksdb_env_t *env, int flushing, int compacting);
/* True if a compaction waits for a thread, as all threads for compactions are busy. */
bool rocksdb_ext_compactions_wait(const rocksdb_options_t *options);

/* A compaction that runs in a database that has a watch. */
struct rocksdb_ext_compaction {
    const char *path;     /* of the database; borrowed for the call */
    uint64_t read_bytes;  /* so far, with indexes; RocksDB counts every thousand rows */
    uint64_t input_bytes; /* of its files */
    uint64_t elapsed_ms;
};
typedef void rocksdb_ext_compaction_fn(void *context,
                                       const struct rocksdb_ext_compaction *compaction);
/* Calls @tell for each compaction that runs in a database of the process. */
void rocksdb_ext_each_compaction(const rocksdb_options_t *options, rocksdb_ext_compaction_fn *tell,
                                 void *context);

/* True if this process may use io_uring. */
bool rocksdb_ext_io_uring_works(void);
/* Makes the calling thread's ring now instead of at its first read. */
void rocksdb_ext_io_uring_begin(void);
/* Makes databases opened with @options or a copy reach their files through our file system, which
 * counts bytes for rocksdb_ext_file_bytes(). With @io_uring, the blocks of a MultiGet in one table
 * file are read at once, through an io_uring of the calling thread. Without it, and in Debian's
 * RocksDB, MultiRead is a loop of pread(). */
void rocksdb_ext_use_file_system(rocksdb_options_t *options, bool io_uring);
/* Bytes this process has written to RocksDB's files other than table files. Counted in whole pages,
 * as they go to SSD. */
struct rocksdb_ext_file_bytes {
    uint64_t log_bytes;   /* write-ahead logs */
    uint64_t blob_bytes;  /* values apart from their keys, if rocksdb.layout asks for that */
    uint64_t other_bytes; /* MANIFEST, OPTIONS, ... */
};
void rocksdb_ext_file_bytes(struct rocksdb_ext_file_bytes *ret_bytes);

/* The background work of a store's databases, counted from RocksDB's own events. */
struct rocksdb_ext_activity;
struct rocksdb_ext_activity *rocksdb_ext_activity_new(void);
void rocksdb_ext_activity_free(struct rocksdb_ext_activity *activity);
void rocksdb_ext_activity_compactions(const struct rocksdb_ext_activity *activity,
                                      uint32_t *ret_running_shards, uint32_t *ret_peak_shards,
                                      uint64_t *ret_completed);

/* Bytes of table files, by cause, and of logs. */
struct rocksdb_ext_written {
    uint64_t flush_bytes;
    uint64_t compaction_bytes;
    uint64_t import_bytes; /* files made elsewhere and ingested */
    uint64_t log_bytes;    /* as rocksdb_ext_activity_add_log() got them */
};
/* Returns the bytes for the rows of one table, or of all present and past tables. A file's bytes,
 * metadata included, are shared out over its tables by the bytes of their rows. */
#define ROCKSDB_EXT_ALL_TABLES UINT32_MAX
void rocksdb_ext_activity_written(const struct rocksdb_ext_activity *activity, uint32_t table_id,
                                  struct rocksdb_ext_written *ret_written);
/* Counts rows of a table, keys and heads included, that a log has taken. The log's own heads, and
 * pages that it writes again as they fill, belong to no table. */
void rocksdb_ext_activity_add_log(struct rocksdb_ext_activity *activity, uint32_t table_id,
                                  uint64_t bytes);
/* Forgets the bytes of one table, which stay in the sum of all. No file has rows of it any more. */
void rocksdb_ext_activity_forget(struct rocksdb_ext_activity *activity, uint32_t table_id);
/* Makes databases opened with @options or a copy note in each table file the tables of its rows,
 * for the function above. */
void rocksdb_ext_note_tables(rocksdb_options_t *options);

/* Listens to one database, which will lie at @path: compactions, table files, background errors and
 * errors of its log. @options belong to that database alone. The watch lives until it is freed here
 * and the database is closed, whichever is later; so does @activity. */
struct rocksdb_ext_watch;
struct rocksdb_ext_watch *rocksdb_ext_watch_new(struct rocksdb_ext_activity *activity,
                                                rocksdb_options_t *options, const char *path);
void rocksdb_ext_watch_free(struct rocksdb_ext_watch *watch);
/* Returns the bytes of the files that compactions have read which have ended. */
uint64_t rocksdb_ext_watch_compacted(const struct rocksdb_ext_watch *watch);

/* Returns the error of the first table file that cannot be opened, of a closed database at @path.
 * Malloced, and names the file; NULL if there is none. RocksDB blames the MANIFEST for such an
 * error. */
char *rocksdb_ext_table_error(const char *path);

/* Notes that the database is open. The caller calls it before the first write. */
void rocksdb_ext_watch_opened(struct rocksdb_ext_watch *watch, rocksdb_t *db);
/* Returns the error of the database's background work that still stands, malloced; NULL if there is
 * none. */
char *rocksdb_ext_watch_error(const struct rocksdb_ext_watch *watch);

/* Returns how often the database's log has failed so far. */
uint64_t rocksdb_ext_watch_log_failures(const struct rocksdb_ext_watch *watch);
/* Returns why the log takes no more, or why it failed after it had failed @failures times;
 * malloced, or NULL. The caller asks after each logged write, as RocksDB does not report such
 * failures: the rows are in the write buffers, but not safe. It also asks before a write: no more
 * may be written until rocksdb_ext_resume() succeeds. */
char *rocksdb_ext_watch_log_error(const struct rocksdb_ext_watch *watch, uint64_t failures);

/* Syncs all that was written to the logs of @count databases; with @io_uring all at once.
 * rocksdb_ext_watch_log_error() reports failures. @by_syncer: the caller is the one thread that
 * acknowledges the contents of these logs. */
void rocksdb_ext_sync_logs(struct rocksdb_ext_watch *const *watches, uint32_t count, bool io_uring,
                           bool by_syncer);

/* The part of a database's logs that is known to be on disk. It is all logs from @first up to the
 * one before @log, and the first @bytes of @log, which end with a record. Logs before @first are
 * gone. */
struct rocksdb_ext_synced {
    uint64_t first;
    uint64_t log;
    uint64_t bytes;
};
/* Reads how far the logs are synced. False if rocksdb_ext_watch_marked() has already noted that. */
bool rocksdb_ext_watch_synced(struct rocksdb_ext_watch *watch,
                              struct rocksdb_ext_synced *ret_synced);
void rocksdb_ext_watch_marked(struct rocksdb_ext_watch *watch,
                              const struct rocksdb_ext_synced *synced);

/* Flushes all that was in the write buffers at the call. Returns when it is in the MANIFEST, or
 * with the error, as RocksDB's C API does. While writes are stopped because compaction is behind,
 * no flush begins; the call then waits up to @patience_ms. */
char *rocksdb_ext_flush(rocksdb_t *db, struct rocksdb_ext_watch *watch, unsigned patience_ms);

/* Compacts the keys [start, end) down to the last level, whose files are compacted too.
 * rocksdb_compact_range_opt() returns no error. */
char *rocksdb_ext_compact_range(rocksdb_t *db, const char *start, size_t start_bytes,
                                const char *end, size_t end_bytes);
/* Ends a rewrite from another thread. Once ended, it stays so until it is set again. */
struct rocksdb_ext_stop;
struct rocksdb_ext_stop *rocksdb_ext_stop_new(void);
void rocksdb_ext_stop_set(struct rocksdb_ext_stop *stop, bool is_ended);
void rocksdb_ext_stop_free(struct rocksdb_ext_stop *stop);
/* Rewrites all files with keys in [@start, @end]; NULL: from the first, to the last. Files of rows
 * apart from their keys are rewritten, too. Writes and automatic compactions go on meanwhile. After
 * @stop it soon returns an error with *@ret_stopped true, and what it has written so far may be
 * lost. */
char *rocksdb_ext_rewrite_range(rocksdb_t *db, const char *start, size_t start_bytes,
                                const char *end, size_t end_bytes, struct rocksdb_ext_stop *stop,
                                bool *ret_stopped);
/* Sets an option at run time. If the MANIFEST does not take the change, rocksdb_ext_resume() has to
 * get over that error. */
char *rocksdb_ext_set_option(rocksdb_t *db, struct rocksdb_ext_watch *watch, const char *key,
                             const char *value);
/* X(name, RocksDB's name, of the database or of its column family): numbers that an open database
 * takes. */
#define ROCKSDB_EXT_TUNING_TABLE(X)                                                                \
    X(WRITE_BUFFER_BYTES, "write_buffer_size", FAMILY)                                             \
    X(COMPACTIONS, "max_background_compactions", DATABASE)                                         \
    X(OPEN_FILES, "max_open_files", DATABASE)                                                      \
    X(TRIGGER_FILES, "level0_file_num_compaction_trigger", FAMILY)
enum rocksdb_ext_tuning {
#define X(name, text, scope) ROCKSDB_EXT_TUNING_##name,
    ROCKSDB_EXT_TUNING_TABLE(X)
#undef X
        ROCKSDB_EXT_TUNING_COUNT
};
/* Sets one, and reads the one that is in force. RocksDB notes it on disk, so this may block. */
char *rocksdb_ext_tune(rocksdb_t *db, struct rocksdb_ext_watch *watch,
                       enum rocksdb_ext_tuning tuning, int64_t value);
int64_t rocksdb_ext_tuned(rocksdb_t *db, enum rocksdb_ext_tuning tuning);
/* Ends one rocksdb_disable_file_deletions(). */
char *rocksdb_ext_enable_file_deletions(rocksdb_t *db);
/* Begins another MANIFEST if a write of the present one has failed, so that its contents are
 * certain. */
char *rocksdb_ext_renew_manifest(rocksdb_t *db, struct rocksdb_ext_watch *watch);

/* Resumes the database after an error. It repeats failed flushes, so it blocks. Returns the error
 * if it fails, as RocksDB's C API does. */
char *rocksdb_ext_resume(rocksdb_t *db, struct rocksdb_ext_watch *watch);
/* Encloses a write, or another call that may make RocksDB switch write buffers. False while the
 * database is being resumed: it takes no writes. */
bool rocksdb_ext_begin_write(struct rocksdb_ext_watch *watch);
void rocksdb_ext_end_write(struct rocksdb_ext_watch *watch);

/* Makes RocksDB write table files with a checksum of the whole file, which the MANIFEST keeps. */
void rocksdb_ext_sum_files(rocksdb_options_t *options);

/* The same kind of checksum, of any bytes. */
struct rocksdb_ext_sum;
struct rocksdb_ext_sum *rocksdb_ext_sum_new(void);
void rocksdb_ext_sum_add(struct rocksdb_ext_sum *sum, const void *bytes, size_t count);
/* Returns the checksum, and frees @sum. */
uint32_t rocksdb_ext_sum_end(struct rocksdb_ext_sum *sum);

/* The files of a database at one moment. */
struct rocksdb_ext_files;
struct rocksdb_ext_file {
    const char *name;     /* in the database's directory */
    const char *contents; /* contents the file must get; NULL: those on disk */
    uint64_t bytes;       /* length of the contents */
    bool is_table; /* or holds rows of one. true: the file never changes, so a second name is as
                      good as a copy */
    bool has_sum;
    uint32_t sum; /* as rocksdb_ext_sum_end() */
};
/* Lists the files. None of them is deleted before rocksdb_ext_files_free(), however much RocksDB
 * writes and compacts. Write buffers are not among them: a log has those of a logged database, and
 * the caller flushes those of another first. Returns NULL with the error in *@error, as RocksDB's C
 * API does, also while a log has failed or the database is being resumed. Logs are on disk up to
 * their length. */
struct rocksdb_ext_files *rocksdb_ext_files_new(rocksdb_t *db, struct rocksdb_ext_watch *watch,
                                                char **error);
size_t rocksdb_ext_files_count(const struct rocksdb_ext_files *files);
void rocksdb_ext_files_at(const struct rocksdb_ext_files *files, size_t index,
                          struct rocksdb_ext_file *ret_file);
/* Returns why a log has failed since the files were listed; malloced, or NULL. A copy of such a log
 * may have older bytes, from the disk, so the caller asks after copying. */
char *rocksdb_ext_files_log_error(const struct rocksdb_ext_files *files);
void rocksdb_ext_files_free(struct rocksdb_ext_files *files);

#ifdef __cplusplus
}
#endif
#endif
