/* SPDX-License-Identifier: Apache-2.0 */
/* config_memory.h: checks that all memory that the server will take fits the machine: the budgets
 * of a configuration, and the memory beside them. The code that takes it asserts that the numbers
 * here are not too small. The functions are for inside base/ only. */
#ifndef EMBTIER_CONFIG_CONFIG_MEMORY_H
#define EMBTIER_CONFIG_CONFIG_MEMORY_H

#include <stdbool.h>

#include "config/config.h"

/* Memory that each lane reserves beside the budgets (daemon/engine/lane/lane.c and the parts it
 * makes). */
#define LANE_FIXED_BYTES (UINT64_C(6272) * KIB) /* table of misses, scratch memory */
#define LANE_SHARD_BYTES 1024                   /* of each shard: the order of reads */
#define LANE_QUEUE_BYTES (UINT64_C(128) * KIB)  /* a batch of the writer, … */
#define LANE_QUEUE_LEAST (UINT64_C(256) * KIB)  /* … the shortest ring, … */
#define LANE_QUEUE_INDEX 32                     /* … and this part of the ring: its index */
#define LANE_READER_BYTES                                                                          \
    (UINT64_C(560) * KIB)   /* of each thread that reads: the rows it reads, and will read */
#define LANE_PAIR_BYTES  16 /* of each id of the largest ticket: the caster's */
#define LANE_PAIR_TICKET 20 /* its least share of the tickets' memory */

/* Memory on the heap, an allocator's leavings included: from the peak of resident memory under the
 * load of tests/stress/test_memory_limit.py, for half a minute each with 1, 2 and 8 lanes, 2, 8 and
 * 32 shards, 2 and 8 readers a lane, less the budgets and reserved memory; all together these are
 * a tenth to a half more than was seen. Files are compacted many at a time only where level 0 is
 * full, which is when lanes are busy. */
#define HEAP_LANE_BYTES     (6 * MIB) /* batches of the writer, write buffers in pieces */
#define HEAP_READER_BYTES   (3 * MIB) /* blocks of the rows that are read at once */
#define HEAP_DATABASE_BYTES (512 * KIB)
#define HEAP_THREAD_BYTES   (2 * MIB) /* of RocksDB's threads in the background, and … */
#define HEAP_INPUT_BYTES    (2 * MIB) /* … of each file that is compacted: read ahead */
#define HEAP_INPUTS         40        /* such files: all of level 0, and one of some others */

#define CONFIG_DATABASES_PER_SHARD 2  /* of RocksDB */
#define CONFIG_OPENING_THREADS     16 /* that RocksDB makes to open the files of a database */

/* Memory of one scan of a checkpoint (store/checkpoint/table_scan.c) on the heap, beside that which
 * follows from the length of rows. Four scans at once added 6 to 93 MiB each to RssAnon, measured
 * with 1 to 512 shards, up to 36 files in each, rows of 4 to 65,536 bytes and logs of 0 to 50 MiB.
 * This is a fifth to a half more wherever files are read, and up to twice that of long logs. */
#define SCAN_BYTES               (32 * MIB)  /* 16 MiB read ahead, metadata of files, the record */
#define SCAN_SHARD_BYTES         (256 * KIB) /* a database, opened for reading */
#define SCAN_LEAST_BYTES(shards) (SCAN_BYTES + (uint64_t)(shards)*SCAN_SHARD_BYTES)
#define SCAN_LOG_FACTOR          2 /* a log's rows in memory: short ones take almost so much */
/* So much stays in the logs of all shards when a checkpoint is begun, and so much in one at most:
 * the rest is flushed before. */
#define CHECKPOINT_LOG_BYTES      (16 * MIB)
#define CHECKPOINT_LOG_BYTES_EACH MIB

/* Rows that wait to be written: of an import, a restore, an eager table
 * (daemon/engine/tables/row_writer.c).
 */
#define ROW_WRITER_BYTES     (16 * MIB)
#define ROW_WRITER_ROWS      8192
#define ROW_WRITER_ROW_BYTES 64         /* of each row, beside its own */
#define ROW_WRITER_PARTS     8          /* so many parts at least are written one by one … */
#define ROW_WRITER_COPIES    3          /* … and are there so many times more meanwhile */
#define ROW_WRITER_FILLS     4          /* eager tables made side by side, which share them */
#define ROW_WRITER_MOST      (24 * MIB) /* or a row for each shard, copy and table, if more */

/* Memory of requests is never less, even with a smaller budget. */
#define REQUEST_BYTES_LEAST (16 * MIB)
/* Each session's memory besides its arena: tickets' numbers, completions, descriptors. */
#define SESSION_BYTES (36 * KIB)
/* Answers that clients have not read yet, all together (daemon/control/connection.h). */
#define ANSWER_BYTES (16 * MIB)
/* The program and its libraries, catalog and metrics, the system's own of threads and files. */
#define PROGRAM_BYTES (16 * MIB)

/* True: a tier's bytes are the machine's memory, as far as its kind tells. */
bool config_tier_kind_is_memory(const struct tier_spec *tier);

/* The default of checkpoints.transfer_bytes, and the least: one scan of logs as long as they may
 * be. */
uint64_t config_transfer_default(const struct config *config);
MUST_CHECK enum embtier_err config_transfer_check(const struct config *config, struct err_msg *msg);

/* All but the tiers and shared arenas, if there are @lane_count lanes: for their defaults. */
uint64_t config_memory_beside(const struct config *config, uint32_t lane_count);

/* EMBTIER_CONFIG if the tiers that are memory, queues, buffers, shared arenas, and the memory of
 * lanes, sessions and RocksDB beside these, are more than the machine has: the message names all of
 * them, and the machine's; its key is the largest budget. */
MUST_CHECK enum embtier_err config_memory_check(const struct config *config,
                                                bool (*is_memory)(const struct tier_spec *tier),
                                                struct err_msg *msg);
/* EMBTIER_CONFIG if a start reserves and touches more before it serves than the machine has
 * available now (machine.h): the kernel would kill it, or others. @is_memory as above. */
MUST_CHECK enum embtier_err
config_memory_check_start(const struct config *config,
                          bool (*is_memory)(const struct tier_spec *tier), struct err_msg *msg);

#endif
