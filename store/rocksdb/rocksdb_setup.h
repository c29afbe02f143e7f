/* SPDX-License-Identifier: Apache-2.0 */
/* rocksdb_setup.h: sets RocksDB up for embedding rows, in the same way for all databases of a
 * store.
 *
 * There is no compression, as weights do not compress. Data blocks are uncached and read with
 * direct I/O, as the row cache is above. Index and filters are partitioned, in one cache of
 * rocksdb.metadata_cache_bytes. Write buffers fit their budget even if each database fills one
 * while it writes the other. Automatic compactions are off: compaction_scheduler.h turns them on. A
 * database with a log recovers all of it. Only the end of the last file may be missing, cut
 * anywhere: no client was told that it is safe. Thread: any; after rocksdb_setup_new() only the
 * functions below change it, which one thread at a time calls. */
#ifndef EMBTIER_STORE_ROCKSDB_ROCKSDB_SETUP_H
#define EMBTIER_STORE_ROCKSDB_ROCKSDB_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include <rocksdb/c.h>

#include "base/err.h"
#include "config/config.h"
#include "store/rocksdb/database_files.h"

#define STORE_DATABASES_PER_SHARD 2
/* Level-0 files at which a database takes no more writes. */
#define DATABASE_LEVEL0_FILES_MAX 36
/* Bytes of pending compaction at which a database takes no more writes if level 0 has half of the
 * files above, too. RocksDB's estimate alone may jump by hundreds of gigabytes when a level is
 * full, while flushes still find their place. */
#define DATABASE_PENDING_BYTES_MAX (256 * GIB)
#define DATABASE_PENDING_FILES     (DATABASE_LEVEL0_FILES_MAX / 2)

/* Threads that RocksDB makes to open the files of a database. */
#define ROCKSDB_OPENING_THREADS 16

struct rocksdb_setup {
    rocksdb_env_t *env;
    rocksdb_cache_t *metadata_cache;
    rocksdb_options_t *options; /* databases open with copies of it */
    rocksdb_readoptions_t *read;
    rocksdb_writeoptions_t *write;       /* never waits; no log */
    rocksdb_writeoptions_t *log;         /* never waits; in the log */
    rocksdb_writeoptions_t *log_patient; /* waits; in the log */
    bool io_uring;
};

MUST_CHECK enum embtier_err rocksdb_setup_new(const struct config *config, uint32_t shard_count,
                                              struct rocksdb_setup **ret_setup,
                                              struct err_msg *msg);
/* Frees the setup. The caller has closed all databases opened with it. */
void rocksdb_setup_free(struct rocksdb_setup *setup);
DEFINE_CLEANUP(struct rocksdb_setup, rocksdb_setup_free)

/* Returns the length of a write buffer of each database, out of rocksdb.memtable_bytes. CONFIG:
 * that is too little for so many shards. */
MUST_CHECK enum embtier_err rocksdb_buffer_bytes(const struct config *config, uint32_t shard_count,
                                                 uint64_t *ret_bytes, struct err_msg *msg);
/* Sets the threads for flushes and compactions of the running process, rocksdb.background_threads
 * in all, and returns how many compact. BUSY: the system gives no more threads. */
MUST_CHECK enum embtier_err rocksdb_setup_threads(struct rocksdb_setup *setup, uint32_t threads,
                                                  int *ret_compacting, struct err_msg *msg);
/* Returns how many threads there are for flushes and compactions together. */
uint32_t rocksdb_threads(const struct rocksdb_setup *setup);

/* Makes RocksDB write and read table files as the store does, through @cache. Users of @cache other
 * than the store may let it keep data blocks. */
void rocksdb_table_options_apply(rocksdb_options_t *options, rocksdb_cache_t *cache,
                                 const struct config *config);

/* Finds out if files in @directory can be read and written past the page cache, as config asks.
 * UNSUPPORTED if they cannot and @wanted is SWITCH_ON. */
MUST_CHECK enum embtier_err direct_io_probe(const char *directory, enum config_switch wanted,
                                            bool *ret_direct, struct err_msg *msg);

#endif
