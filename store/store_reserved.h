/* SPDX-License-Identifier: Apache-2.0 */
/* store_reserved.h: memory that RocksDB and the readers of checkpoints take in addition to the
 * budgets, for the sum of all memory (daemon/budget/budget.h). */
#ifndef EMBTIER_STORE_STORE_RESERVED_H
#define EMBTIER_STORE_STORE_RESERVED_H

#include "base/macros.h"
#include "config/config.h"
#include "config/config_descriptors.h"

/* Memory on the heap, including the memory that the allocator keeps. Derived from the peak of
 * resident memory under the load of tests/stress/test_memory_limit.py, less the budgets and
 * reserved memory. It ran for half a minute each with 1, 2 and 8 lanes, 2, 8 and 32 shards, 2 and 8
 * readers a lane. Together the values are a tenth to a half more than was seen. Many files are
 * compacted at a time only if level 0 is full, which is when lanes are busy. */
#define HEAP_DATABASE_BYTES (512 * KIB)
#define HEAP_THREAD_BYTES   (2 * MIB) /* of each of RocksDB's background threads */
#define HEAP_INPUT_BYTES    (2 * MIB) /* of each file that is compacted: read ahead */

/* Memory on the heap of one scan of a checkpoint (store/checkpoint/table_scan.c), without the part
 * that follows from the length of rows. Four scans at once added 6 to 93 MiB each to RssAnon. The
 * scans had 1 to 512 shards, up to 36 files in each, rows of 4 to 65,536 bytes, logs of 0 to 50
 * MiB. The values are a fifth to a half more than that where files are read, and up to twice as
 * much for long logs. */
#define SCAN_BYTES       (32 * MIB)  /* 16 MiB read ahead, metadata of files, the record */
#define SCAN_SHARD_BYTES (256 * KIB) /* a database opened for reading */
#define SCAN_LOG_FACTOR  2           /* a log's rows in memory: short rows take almost that much */
/* Bytes left in the logs of all shards when a checkpoint begins, and in one log at most. The rest
 * is flushed before. */
#define CHECKPOINT_LOG_BYTES      (16 * MIB)
#define CHECKPOINT_LOG_BYTES_EACH MIB

/* Returns the bytes of one database. */
static inline uint64_t store_database_reserved_bytes(void)
{
    return HEAP_DATABASE_BYTES;
}

/* Returns the bytes of compactions. Each shard that may compact can have a full level 0; other
 * threads write a file or two. */
static inline uint64_t store_compaction_reserved_bytes(const struct config *config)
{
    const uint32_t shards = config_shard_count(config);
    const uint64_t threads = MAX(config->rocksdb.background_threads, 2u);
    const uint64_t compacting = threads - MAX(threads / 4, UINT64_C(1));
    const uint64_t compacts =
        MIN((uint64_t)config->rocksdb.compaction_parallel * config->data.directory_count, shards);

    return threads * HEAP_THREAD_BYTES +
           MIN(compacting, compacts) * CONFIG_COMPACTION_INPUTS * HEAP_INPUT_BYTES;
}

/* Returns the bytes of one scan, without the parts for logs and for the length of rows. */
static inline uint64_t store_scan_reserved_bytes(uint32_t shard_count)
{
    return SCAN_BYTES + (uint64_t)shard_count * SCAN_SHARD_BYTES;
}

/* Returns the bytes of one scan with logs of the greatest length. */
static inline uint64_t store_scan_with_logs_reserved_bytes(uint32_t shard_count)
{
    return store_scan_reserved_bytes(shard_count) + SCAN_LOG_FACTOR * CHECKPOINT_LOG_BYTES;
}

#endif
