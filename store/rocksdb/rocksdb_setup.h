/* SPDX-License-Identifier: Apache-2.0 */
/* rocksdb_setup.h: how RocksDB is set up for embedding rows, the same for all databases of a store.
 *
 * No compression (weights do not compress), data blocks uncached and read with direct I/O (the row
 * cache is above), index and filters partitioned, in one cache of rocksdb.metadata_cache_bytes.
 * Write buffers fit their budget even when each database fills one while it writes the other.
 * Automatic compactions are off: compaction_scheduler.h turns them on. A database
 * with a log recovers all of it; what may be missing is the end of the last file, cut anywhere:
 * what nobody was told is safe.
 * Thread: any; nothing changes after new. */
#ifndef EMBTIER_STORE_ROCKSDB_ROCKSDB_SETUP_H
#define EMBTIER_STORE_ROCKSDB_ROCKSDB_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include <rocksdb/c.h>

#include "base/err.h"
#include "config/config.h"

/* Each database has one that fills, and one that is written. When more are to be written it takes
 * no more writes. */
#define DATABASE_WRITE_BUFFERS    2
#define STORE_DATABASES_PER_SHARD 2
/* Level-0 files at which a database takes no more writes. */
#define DATABASE_LEVEL0_FILES_MAX 36
/* Bytes that compaction is behind at which a database takes no more writes. */
#define DATABASE_PENDING_BYTES_MAX (256 * GIB)

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
/* After the last database opened with it is closed. */
void rocksdb_setup_free(struct rocksdb_setup *setup);
DEFINE_CLEANUP(struct rocksdb_setup, rocksdb_setup_free)

/* Has table files made and read as the store's are, through @cache. Users of @cache other than the
 * store may let it keep data blocks. */
void rocksdb_table_options_apply(rocksdb_options_t *options, rocksdb_cache_t *cache,
                                 const struct config *config);

/* Whether files in @directory can be read and written past the page cache, as config asks.
 * UNSUPPORTED when they cannot and @wanted is SWITCH_ON. */
MUST_CHECK enum embtier_err direct_io_probe(const char *directory, enum config_switch wanted,
                                            bool *ret_direct, struct err_msg *msg);

#endif
