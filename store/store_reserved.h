/* SPDX-License-Identifier: Apache-2.0 */
/* store_reserved.h: memory that RocksDB and the readers of checkpoints take beside the budgets, for
 * the sum of all (daemon/budget/budget.h). */
#ifndef EMBTIER_STORE_STORE_RESERVED_H
#define EMBTIER_STORE_STORE_RESERVED_H

#include "base/macros.h"
#include "config/config.h"
#include "config/config_descriptors.h"

/* Memory on the heap, an allocator's leavings included: from the peak of resident memory under the
 * load of tests/stress/test_memory_limit.py, for half a minute each with 1, 2 and 8 lanes, 2, 8 and
 * 32 shards, 2 and 8 readers a lane, less the budgets and reserved memory; all together these are a
 * tenth to a half more than was seen. Files are compacted many at a time only where level 0 is
 * full, which is when lanes are busy. */
#define HEAP_DATABASE_BYTES (512 * KIB)
#define HEAP_THREAD_BYTES   (2 * MIB) /* of RocksDB's threads in the background, and … */
#define HEAP_INPUT_BYTES    (2 * MIB) /* … of each file that is compacted: read ahead */

/* Memory of one scan of a checkpoint (store/checkpoint/table_scan.c) on the heap, beside that which
 * follows from the length of rows. Four scans at once added 6 to 93 MiB each to RssAnon, measured
 * with 1 to 512 shards, up to 36 files in each, rows of 4 to 65,536 bytes and logs of 0 to 50 MiB.
 * This is a fifth to a half more wherever files are read, and up to twice that of long logs. */
#define SCAN_BYTES       (32 * MIB)  /* 16 MiB read ahead, metadata of files, the record */
#define SCAN_SHARD_BYTES (256 * KIB) /* a database, opened for reading */
#define SCAN_LOG_FACTOR  2           /* a log's rows in memory: short ones take almost so much */
/* So much stays in the logs of all shards when a checkpoint is begun, and so much in one at most:
 * the rest is flushed before. */
#define CHECKPOINT_LOG_BYTES      (16 * MIB)
#define CHECKPOINT_LOG_BYTES_EACH MIB

/* Each database's. */
static inline uint64_t store_database_reserved_bytes(void)
{
    return HEAP_DATABASE_BYTES;
}

/* Each shard that may compact can have a full level 0; the other threads write a file or two. */
static inline uint64_t store_compaction_reserved_bytes(const struct config *config)
{
    const uint32_t shards = config->data.directory_count * config->data.shards_per_directory;
    const uint64_t threads = MAX(config->rocksdb.background_threads, 2u);
    const uint64_t compacting = threads - MAX(threads / 4, UINT64_C(1));
    const uint64_t compacts = MIN(config->rocksdb.compaction_parallel, shards);

    return threads * HEAP_THREAD_BYTES +
           MIN(compacting, compacts) * CONFIG_COMPACTION_INPUTS * HEAP_INPUT_BYTES;
}

/* One scan's, without what is in logs and follows from the length of rows. */
static inline uint64_t store_scan_reserved_bytes(uint32_t shard_count)
{
    return SCAN_BYTES + (uint64_t)shard_count * SCAN_SHARD_BYTES;
}

/* One scan's of logs as long as they may be. */
static inline uint64_t store_scan_with_logs_reserved_bytes(uint32_t shard_count)
{
    return store_scan_reserved_bytes(shard_count) + SCAN_LOG_FACTOR * CHECKPOINT_LOG_BYTES;
}

#endif
