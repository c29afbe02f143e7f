/* SPDX-License-Identifier: Apache-2.0 */
/* config_memory.h: whether all that the server will take of memory fits the machine: the budgets of
 * a configuration, and what it takes beside them. Who takes that asserts that the numbers here are
 * not too small. The functions are for inside base/ only. */
#ifndef EMBTIER_BASE_CONFIG_MEMORY_H
#define EMBTIER_BASE_CONFIG_MEMORY_H

#include <stdbool.h>

#include "base/config.h"

/* What each lane reserves beside the budgets (daemon/lane.c and the parts it makes). */
#define LANE_FIXED_BYTES (UINT64_C(6272) * KIB) /* table of misses, scratch memory */
#define LANE_SHARD_BYTES 1024                   /* of each shard: the order of reads */
#define LANE_QUEUE_BYTES (UINT64_C(128) * KIB)  /* a batch of the writer, … */
#define LANE_QUEUE_LEAST (UINT64_C(256) * KIB)  /* … the shortest ring, … */
#define LANE_QUEUE_INDEX 32                     /* … and this part of the ring: its index */
#define LANE_READER_BYTES                                                                          \
    (UINT64_C(560) * KIB)   /* of each thread that reads: the rows it reads, and will read */
#define LANE_PAIR_BYTES  16 /* of each id of the largest ticket: the caster's */
#define LANE_PAIR_TICKET 20 /* what it takes of the tickets' memory at least */

/* What is on the heap, an allocator's leavings included: from the peak of resident memory under the
 * load of tests/stress/test_memory_limit.py, for half a minute each with 1, 2 and 8 lanes, 2, 8 and
 * 32 shards, 2 and 8 readers a lane, less the budgets and what is reserved; all together these are
 * a tenth to a half more than was seen. Files are compacted many at a time only where level 0 is
 * full, which is when lanes are busy. */
#define HEAP_LANE_BYTES     (6 * MIB) /* batches of the writer, write buffers in pieces */
#define HEAP_READER_BYTES   (3 * MIB) /* blocks of the rows that are read at once */
#define HEAP_DATABASE_BYTES (512 * KIB)
#define HEAP_THREAD_BYTES   (2 * MIB) /* of RocksDB's threads in the background, and … */
#define HEAP_INPUT_BYTES    (2 * MIB) /* … of each file that is compacted: read ahead */
#define HEAP_INPUTS         40        /* such files: all of level 0, and one of some others */

#define CONFIG_DATABASES_PER_SHARD 2 /* of RocksDB */

/* So much stays in the logs of all shards when a checkpoint is begun, and so much in one at most:
 * the rest is flushed before. */
#define CHECKPOINT_LOG_BYTES      (16 * MIB)
#define CHECKPOINT_LOG_BYTES_EACH MIB

/* Memory of requests is never less, whatever its budget. */
#define REQUEST_BYTES_LEAST (16 * MIB)
/* Of each session, what is not its arena: tickets' numbers, completions, descriptors. */
#define SESSION_BYTES (32 * KIB)
/* The program and its libraries, catalog and metrics, the system's own of threads and files. */
#define PROGRAM_BYTES (16 * MIB)

/* Whether a tier's bytes are the machine's memory, as far as its kind tells. */
bool config_tier_kind_is_memory(const struct tier_spec *tier);

/* All but the tiers and shared arenas, if there are @lane_count lanes: for their defaults. */
uint64_t config_memory_beside(const struct config *config, uint32_t lane_count);

/* EMBTIER_CONFIG if the tiers that are memory, queues, buffers, shared arenas, and what lanes,
 * sessions and RocksDB take beside these, are more than the machine has: the message names all of
 * them, and the machine's; its key is the largest budget. */
MUST_CHECK enum embtier_err config_memory_check(const struct config *config,
                                                bool (*is_memory)(const struct tier_spec *tier),
                                                struct err_msg *msg);

#endif
