/* SPDX-License-Identifier: Apache-2.0 */
/* rocksdb_ext.h: what RocksDB's C API lacks, as C functions. The only C++ of the store lies behind
 * it (rocksdb_ext.cc). Thread: any, unless it says otherwise. */
#ifndef EMBTIER_STORE_ROCKSDB_EXT_H
#define EMBTIER_STORE_ROCKSDB_EXT_H

#include <rocksdb/c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the installed RocksDB lays its C handles out as rocksdb_ext.cc takes for granted. Asked
 * once, before anything else here. */
bool rocksdb_ext_fits(void);

/* Counting statistics (no timers), shared by all databases opened with @options or a copy. */
void rocksdb_ext_enable_statistics(rocksdb_options_t *options);

/* X(name, RocksDB's ticker) */
#define ROCKSDB_EXT_TICKER_TABLE(X)                                                                \
    X(FLUSH_WRITE_BYTES)                                                                           \
    X(COMPACT_WRITE_BYTES)                                                                         \
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

/* Whether this process may use io_uring. */
bool rocksdb_ext_io_uring_works(void);
/* The calling thread's ring is made now, and not at its first read. */
void rocksdb_ext_io_uring_begin(void);
/* Databases opened with @options or a copy read the blocks of a MultiGet that lie in one table file
 * at once, through an io_uring of the calling thread. Without it, and in Debian's RocksDB,
 * MultiRead is a loop of pread(). The process needs two descriptors for each table file then. */
void rocksdb_ext_use_io_uring(rocksdb_options_t *options);

/* How many shards of a store compact, counted from RocksDB's own events. */
struct rocksdb_ext_compactions;
struct rocksdb_ext_compactions *rocksdb_ext_compactions_new(void);
void rocksdb_ext_compactions_free(struct rocksdb_ext_compactions *compactions);
void rocksdb_ext_compactions_read(const struct rocksdb_ext_compactions *compactions,
                                  uint32_t *ret_running_shards, uint32_t *ret_peak_shards,
                                  uint64_t *ret_completed);

/* Listens to one database: compactions and background errors. @options are that database's own. It
 * lives until freed here and until the database is closed, whichever is later; so does
 * @compactions. */
struct rocksdb_ext_watch;
struct rocksdb_ext_watch *rocksdb_ext_watch_new(struct rocksdb_ext_compactions *compactions,
                                                rocksdb_options_t *options);
void rocksdb_ext_watch_free(struct rocksdb_ext_watch *watch);
/* To be called when the database is open, before the first write. */
void rocksdb_ext_watch_opened(struct rocksdb_ext_watch *watch, rocksdb_t *db);
/* The error that stopped the database's background work, malloced, or NULL when all is well. */
char *rocksdb_ext_watch_error(const struct rocksdb_ext_watch *watch);

/* Writes out all that was in the write buffers at the call, and returns when it is in the MANIFEST,
 * or with the error, as RocksDB's C API does. RocksDB 7.8's own wait is not relied upon: after a
 * resume it returns at once and says OK. */
char *rocksdb_ext_flush(rocksdb_t *db, struct rocksdb_ext_watch *watch);

/* Takes a database that stopped writing after an error back into service. Writes what is in its
 * write buffers, so it blocks. Returns the error if it could not, as RocksDB's C API does. */
char *rocksdb_ext_resume(rocksdb_t *db, struct rocksdb_ext_watch *watch);

#ifdef __cplusplus
}
#endif
#endif
