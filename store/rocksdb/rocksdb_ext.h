/* SPDX-License-Identifier: Apache-2.0 */
/* rocksdb_ext.h: what RocksDB's C API lacks, as C functions. The only C++ of the store lies behind
 * it (ext/). Thread: any, unless it says otherwise. */
#ifndef EMBTIER_STORE_ROCKSDB_ROCKSDB_EXT_H
#define EMBTIER_STORE_ROCKSDB_ROCKSDB_EXT_H

#include <rocksdb/c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the installed RocksDB lays its C handles out as ext/handles.hh takes for granted. Asked
 * once, before anything else here. */
bool rocksdb_ext_fits(void);
/* "7.8.3". Static. */
const char *rocksdb_ext_version(void);
/* True: embtier's tests have run with @version (store/rocksdb/ext/versions.hh). */
bool rocksdb_ext_is_tried(const char *version);

/* Counting statistics (no timers), shared by all databases opened with @options or a copy. */
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

/* Each option of a string, by RocksDB's own reading of it, in the order of their names, until @each
 * says false. False: that is no string of options. */
bool rocksdb_ext_parse_options(const char *text,
                               bool (*each)(void *context, const char *name, const char *value),
                               void *context);
/* The same of all options that can stand in a string, with their present values. */
bool rocksdb_ext_each_option(const rocksdb_options_t *options,
                             bool (*each)(void *context, const char *name, const char *value),
                             void *context);

/* The name of a compression that this build of RocksDB can write, NULL from some @index on. Others
 * that it knows the names of make it end the process, or fail when files are written. */
const char *rocksdb_ext_compression(size_t index);

/* One budget for the write buffers of all databases opened with @options or a copy. */
void rocksdb_ext_share_write_buffers(rocksdb_options_t *options, size_t bytes);
uint64_t rocksdb_ext_write_buffer_bytes(const rocksdb_options_t *options);

/* A block cache that keeps index and filter blocks and lets data blocks go as soon as their reader
 * is done. Needs `cache_index_and_filter_blocks_with_high_priority`. Destroyed with
 * rocksdb_cache_destroy(). */
rocksdb_cache_t *rocksdb_ext_metadata_cache_new(size_t bytes);

/* RocksDB's warnings and errors go to "@directory/LOG", one LOG.old is kept. What cannot be written
 * is dropped: RocksDB's own logger, as Debian builds it, aborts the process when it writes after a
 * failed write, such as on a full disk. */
void rocksdb_ext_log_to(rocksdb_options_t *options, const char *directory);
/* For a database that is only read, in a folder that is not to be written to. */
void rocksdb_ext_log_nowhere(rocksdb_options_t *options);

/* Threads for flushes and compactions, all of them made now. False: one could not be. */
bool rocksdb_ext_start_threads(rocksdb_env_t *env, int flushing, int compacting);

/* Whether this process may use io_uring. */
bool rocksdb_ext_io_uring_works(void);
/* The calling thread's ring is made now, and not at its first read. */
void rocksdb_ext_io_uring_begin(void);
/* Databases opened with @options or a copy reach their files through a file system of ours. It
 * counts the bytes that rocksdb_ext_file_bytes() tells of. With @io_uring, the blocks of a MultiGet
 * that lie in one table file are read at once, through an io_uring of the calling thread; without
 * it, and in Debian's RocksDB, MultiRead is a loop of pread(). */
void rocksdb_ext_use_file_system(rocksdb_options_t *options, bool io_uring);
/* Bytes this process has written to RocksDB's files other than table files: its write-ahead logs,
 * and the rest (MANIFEST, OPTIONS, ...). In whole pages, as they go to SSD. */
void rocksdb_ext_file_bytes(uint64_t *ret_log, uint64_t *ret_other);

/* What the databases of a store do in the background, counted from RocksDB's own events. */
struct rocksdb_ext_activity;
struct rocksdb_ext_activity *rocksdb_ext_activity_new(void);
void rocksdb_ext_activity_free(struct rocksdb_ext_activity *activity);
void rocksdb_ext_activity_compactions(const struct rocksdb_ext_activity *activity,
                                      uint32_t *ret_running_shards, uint32_t *ret_peak_shards,
                                      uint64_t *ret_completed);

/* Bytes of table files, by what made them. */
struct rocksdb_ext_written {
    uint64_t flush_bytes;
    uint64_t compaction_bytes;
    uint64_t import_bytes; /* files made elsewhere and ingested */
};
/* Bytes for the rows of one table, or of all that there are and were: a file's bytes, metadata
 * included, are shared out over the tables in it by the bytes of their rows. */
#define ROCKSDB_EXT_ALL_TABLES UINT32_MAX
void rocksdb_ext_activity_written(const struct rocksdb_ext_activity *activity, uint32_t table_id,
                                  struct rocksdb_ext_written *ret_written);
/* Databases opened with @options or a copy note in each table file whose rows it holds, for the
 * above. */
void rocksdb_ext_note_tables(rocksdb_options_t *options);

/* Listens to one database, which will lie at @path: compactions, table files, background errors and
 * errors of its log. @options are that database's own. It lives until freed here and until the
 * database is closed, whichever is later; so does @activity. */
struct rocksdb_ext_watch;
struct rocksdb_ext_watch *rocksdb_ext_watch_new(struct rocksdb_ext_activity *activity,
                                                rocksdb_options_t *options, const char *path);
void rocksdb_ext_watch_free(struct rocksdb_ext_watch *watch);

/* The error of the first table file that cannot be opened, of a database at @path that is not open.
 * Malloced, and names the file; NULL if there is none. RocksDB blames the MANIFEST for it. */
char *rocksdb_ext_table_error(const char *path);

/* To be called when the database is open, before the first write. */
void rocksdb_ext_watch_opened(struct rocksdb_ext_watch *watch, rocksdb_t *db);
/* The error of the database's background work that has not been got over, malloced, or NULL when
 * all is well. */
char *rocksdb_ext_watch_error(const struct rocksdb_ext_watch *watch);

/* How often the database's log has failed so far. */
uint64_t rocksdb_ext_watch_log_failures(const struct rocksdb_ext_watch *watch);
/* Why the log takes no more, or has failed since it had failed @failures times; malloced, or NULL.
 * To be asked after each logged write, which says nothing of it: what it wrote is in the write
 * buffers, but not safe. And before: no more is to be written until rocksdb_ext_resume() has got
 * over it. */
char *rocksdb_ext_watch_log_error(const struct rocksdb_ext_watch *watch, uint64_t failures);

/* Has all that was written to the logs of @count databases on disk, with @io_uring at the same
 * time. Failures are those of rocksdb_ext_watch_log_error(). @by_syncer: by the one thread that
 * acknowledges what is in these logs. */
void rocksdb_ext_sync_logs(struct rocksdb_ext_watch *const *watches, uint32_t count, bool io_uring,
                           bool by_syncer);

/* How far the database's logs are known to be on disk: all those from @first on and before @log,
 * and @bytes of that one, which end with a record; those before @first are gone. */
struct rocksdb_ext_synced {
    uint64_t first;
    uint64_t log;
    uint64_t bytes;
};
/* False: rocksdb_ext_watch_marked() has been told of it. */
bool rocksdb_ext_watch_synced(struct rocksdb_ext_watch *watch,
                              struct rocksdb_ext_synced *ret_synced);
void rocksdb_ext_watch_marked(struct rocksdb_ext_watch *watch,
                              const struct rocksdb_ext_synced *synced);

/* Writes out all that was in the write buffers at the call, and returns when it is in the MANIFEST,
 * or with the error, as RocksDB's C API does. While writes are stopped for want of compaction no
 * flush is begun; it then waits for @patience_ms. */
char *rocksdb_ext_flush(rocksdb_t *db, struct rocksdb_ext_watch *watch, unsigned patience_ms);

/* Compacts the keys [start, end) down to the last level, files of which are compacted too.
 * rocksdb_compact_range_opt() does not say how it went. */
char *rocksdb_ext_compact_range(rocksdb_t *db, const char *start, size_t start_bytes,
                                const char *end, size_t end_bytes);
/* Sets an option at run time; if the MANIFEST does not take that, it is an error to be got over. */
char *rocksdb_ext_set_option(rocksdb_t *db, struct rocksdb_ext_watch *watch, const char *key,
                             const char *value);
/* Ends one rocksdb_disable_file_deletions(). */
char *rocksdb_ext_enable_file_deletions(rocksdb_t *db);
/* If a write of the MANIFEST has failed since it was begun: begins another, so that it is certain
 * what it holds. */
char *rocksdb_ext_renew_manifest(rocksdb_t *db, struct rocksdb_ext_watch *watch);

/* Gets over the error, so that all goes on: what a failed flush has left is written, so it blocks.
 * Returns the error if it could not, as RocksDB's C API does. */
char *rocksdb_ext_resume(rocksdb_t *db, struct rocksdb_ext_watch *watch);
/* Around a write, and what else may have RocksDB switch write buffers. False: the database is being
 * resumed, and takes none. */
bool rocksdb_ext_begin_write(struct rocksdb_ext_watch *watch);
void rocksdb_ext_end_write(struct rocksdb_ext_watch *watch);

/* Table files are written with a checksum of the whole file, which the MANIFEST keeps. */
void rocksdb_ext_sum_files(rocksdb_options_t *options);

/* Such a checksum, of any bytes. */
struct rocksdb_ext_sum;
struct rocksdb_ext_sum *rocksdb_ext_sum_new(void);
void rocksdb_ext_sum_add(struct rocksdb_ext_sum *sum, const void *bytes, size_t count);
/* Ends and frees it. */
uint32_t rocksdb_ext_sum_end(struct rocksdb_ext_sum *sum);

/* The files that a database consists of at one moment. */
struct rocksdb_ext_files;
struct rocksdb_ext_file {
    const char *name;     /* in the database's directory */
    const char *contents; /* what the file is to hold, or NULL: what it does, */
    uint64_t bytes;       /* up to here */
    bool is_table;        /* never changes, so a second name is as good as a copy */
    bool has_sum;
    uint32_t sum; /* as rocksdb_ext_sum_end() */
};
/* None of them is deleted before rocksdb_ext_files_free(), however much RocksDB writes and compacts
 * meanwhile. Write buffers are not among them: those of a database with a log are in that, those of
 * another are to be flushed first. NULL with the error in *@error, as RocksDB's C API does: also
 * while a log has failed, or the database is being resumed. Logs are on disk up to their length. */
struct rocksdb_ext_files *rocksdb_ext_files_new(rocksdb_t *db, struct rocksdb_ext_watch *watch,
                                                char **error);
size_t rocksdb_ext_files_count(const struct rocksdb_ext_files *files);
void rocksdb_ext_files_at(const struct rocksdb_ext_files *files, size_t index,
                          struct rocksdb_ext_file *ret_file);
/* Why a log has failed since they were listed; malloced, or NULL. Then a copy of it may be made of
 * what the disk had before: to be asked after the copying. */
char *rocksdb_ext_files_log_error(const struct rocksdb_ext_files *files);
void rocksdb_ext_files_free(struct rocksdb_ext_files *files);

#ifdef __cplusplus
}
#endif
#endif
