/* SPDX-License-Identifier: Apache-2.0 */
/* engine_reserved.h: memory that lanes and sessions take in addition to the budgets, for the sum in
 * daemon/budget/budget.h. The code that takes the memory asserts that these numbers are not too
 * small. */
#ifndef EMBTIER_DAEMON_ENGINE_MEMORY_ENGINE_RESERVED_H
#define EMBTIER_DAEMON_ENGINE_MEMORY_ENGINE_RESERVED_H

#include "base/macros.h"
#include "base/spec/array_shape.h"
#include "config/config.h"
#include "config/config_descriptors.h"

/* Memory that each lane reserves in addition to the budgets (daemon/engine/lane/lane_life.c and the
 * parts that it makes). */
#define LANE_FIXED_BYTES (UINT64_C(6912) * KIB) /* table of misses, scratch memory */
#define LANE_SHARD_BYTES 1024                   /* for each shard: the order of reads */
#define LANE_QUEUE_BYTES (UINT64_C(128) * KIB)  /* a batch of the writer */
#define LANE_QUEUE_LEAST (UINT64_C(256) * KIB)  /* the shortest ring */
#define LANE_QUEUE_INDEX 32                     /* the ring's index takes this part of the ring */
#define LANE_READER_BYTES                                                                          \
    (UINT64_C(560) * KIB)   /* for each thread that reads: the rows it reads, and will read */
#define LANE_PAIR_BYTES  16 /* for each id of the largest ticket: the caster's */
#define LANE_PAIR_TICKET 20 /* the least that a pair takes of the tickets' memory */

/* Memory on the heap, including free memory that the allocator keeps. The numbers come from the
 * peak of resident memory under the load of tests/stress/test_memory_limit.py, less the budgets and
 * reserved memory. The load ran for half a minute each with 1, 2 and 8 lanes, 2, 8 and 32 shards, 2
 * and 8 readers a lane. All together these numbers are a tenth to a half more than was seen. */
#define HEAP_LANE_BYTES   (6 * MIB) /* batches of the writer, write buffers in pieces */
#define HEAP_READER_BYTES (3 * MIB) /* blocks of the rows that are read at once */

/* For each slab of arrays: the counters of its rows (tiers/array/row_arrays.h). */
#define HEAP_ARRAY_SLAB_BYTES 256

/* Each session's memory in addition to its arena: ticket numbers, completions, descriptors. */
#define SESSION_BYTES (42 * KIB)
/* More of each if clients come over a network: a message on its way, its spans. */
#define SESSION_RPC_BYTES (24 * KIB)
/* More of each with TLS: OpenSSL's objects and a chain of certificates, a record that has come in
 * part, and a full buffer of ciphertext. */
#define SESSION_TLS_BYTES (176 * KIB)
/* A connection over a network that is no session: its stream and its part in the control thread. */
#define STRANGER_BYTES (20 * KIB)
/* All answers together that clients have not read yet (daemon/control/connection.h). */
#define ANSWER_BYTES (16 * MIB)

/* Returns the bytes that each lane reserves at the start, if there are @lane_count lanes. */
static inline uint64_t engine_lane_reserved_bytes(const struct config *config, uint32_t lane_count)
{
    const uint64_t shards = config_shard_count(config);
    const uint64_t ring = config->lanes.write_queue_bytes / lane_count;
    const uint64_t ids = MIN(config->lanes.ticket_bytes / 4 * 3 / LANE_PAIR_TICKET,
                             (uint64_t)config->socket.max_batch_rows);

    return LANE_FIXED_BYTES + shards * LANE_SHARD_BYTES + LANE_QUEUE_BYTES +
           MAX(ring, LANE_QUEUE_LEAST) / LANE_QUEUE_INDEX +
           (ring < LANE_QUEUE_LEAST ? LANE_QUEUE_LEAST - ring : 0) + ids * LANE_PAIR_BYTES +
           config->lanes.readers_per_lane * LANE_READER_BYTES;
}

/* Returns the bytes of each lane on the heap, in addition to that. */
static inline uint64_t engine_lane_heap_bytes(const struct config *config)
{
    uint64_t array_slabs = 0;

    for (uint32_t t = 0; t < config->cache.tier_count; t++)
        array_slabs += config->cache.tiers[t].array_bytes / ARRAY_SLAB_BYTES;
    return config->lanes.readers_per_lane * HEAP_READER_BYTES + HEAP_LANE_BYTES +
           array_slabs * HEAP_ARRAY_SLAB_BYTES;
}

/* Returns the bytes of all sessions together, and of connections that are none. */
static inline uint64_t engine_session_reserved_bytes(const struct config *config)
{
    const uint64_t each = SESSION_BYTES + (config->rpc.listen_count > 0 ? SESSION_RPC_BYTES : 0) +
                          (config_has_tls(config) ? SESSION_TLS_BYTES : 0);

    const uint64_t strangers = config->rpc.listen_count > 0 ? 2 * config_rpc_strangers(config) : 0;

    return config->socket.max_sessions * each +
           strangers * (STRANGER_BYTES + (config_has_tls(config) ? SESSION_TLS_BYTES : 0));
}

#endif
