/* SPDX-License-Identifier: Apache-2.0 */
/* rocksdb_alone.h: the shards of a stopped server, opened by RocksDB in this process. They are
 * the reference that shows the worth of our cache and our reads.
 *
 * Options are the server's, unless the caller says otherwise; reads are RocksDB's own pread().
 * Thread: any, once open. A failure ends the program. */
#ifndef EMBTIER_TESTS_BENCH_LIB_ROCKSDB_ALONE_H
#define EMBTIER_TESTS_BENCH_LIB_ROCKSDB_ALONE_H

#include <rocksdb/c.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/row_hash.h"
#include "config/config.h"
#include "store/buckets/bucket_map.h"
#include "store/rocksdb/rocksdb_setup.h"
#include "store/store_identity.h"
#include "tests/integration/harness.h"

#define ALONE_SHARDS_MAX 64
#define ALONE_BATCH_ROWS 4096

struct rocksdb_alone {
    struct config *config;
    struct store_identity *identity;
    struct bucket_map *map;
    struct row_hasher hasher;
    struct rocksdb_setup *setup;
    rocksdb_options_t *options;
    rocksdb_writeoptions_t *write;
    rocksdb_cache_t *cache;
    rocksdb_t *shards[ALONE_SHARDS_MAX];
    rocksdb_column_family_handle_t *families[ALONE_SHARDS_MAX];
    uint32_t shard_count;
    uint32_t table_id;
    uint32_t row_bytes;
    /* Since a caller last cleared them. */
    _Atomic uint64_t got_rows;
    _Atomic uint64_t read_blocks; /* read from the device for these rows */
};

struct rocksdb_alone_opts {
    const struct harness *harness; /* gives the configuration */
    const char *rows;              /* the data directory: the harness's, or a copy */
    uint32_t shard_count;
    uint32_t table_id;
    uint32_t row_bytes;   /* weights only: there is no state */
    uint64_t cache_bytes; /* a block cache for all blocks; 0: as the server's, which keeps no
                           * data blocks */
    bool writes;          /* false: opened for reading only */
    bool logged;          /* like a sync table: each write is in the log, and the log on disk */
};

void rocksdb_alone_open(struct rocksdb_alone *alone, const struct rocksdb_alone_opts *opts);
void rocksdb_alone_close(struct rocksdb_alone *alone);

/* One thread's batch: ids by shard, sorted. */
struct rocksdb_alone_batch {
    uint64_t ids[ALONE_SHARDS_MAX][ALONE_BATCH_ROWS];
    uint32_t counts[ALONE_SHARDS_MAX];
};
void rocksdb_alone_sort(const struct rocksdb_alone *alone, const uint64_t *ids, uint32_t count,
                        struct rocksdb_alone_batch *batch);
/* Reads all rows, shard by shard, into @rows in the order of @batch. */
void rocksdb_alone_get(struct rocksdb_alone *alone, const struct rocksdb_alone_batch *batch,
                       char *rows);
/* Writes all rows of @batch: one write per shard. */
void rocksdb_alone_set(const struct rocksdb_alone *alone, const struct rocksdb_alone_batch *batch,
                       const char *rows);

#endif
