/* SPDX-License-Identifier: Apache-2.0 */
/* row_routes.h: finds the shard that stores a row, and the lane that has it in memory, from the
 * row's hash.
 *
 * hash > bucket > shard > lane. The bucket follows from the hash (base/row_hash.h), its shard from
 * the store's map (store/buckets/bucket_map.h), and the lane is shard % lanes. Shards and lanes are
 * laid out by bucket, so that each takes one look-up for an id. All code that deals out rows asks
 * here, and nothing else computes a shard. When buckets move, this changes. Thread: any; nothing
 * changes while there are lanes. */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_ROW_ROUTES_H
#define EMBTIER_DAEMON_ENGINE_TABLES_ROW_ROUTES_H

#include <stdint.h>

#include "base/err.h"
#include "base/row_hash.h"
#include "config/config.h"

_Static_assert(CONFIG_LANES_MAX <= UINT8_MAX + 1, "a lane's number is one byte");

struct bucket_map;

struct row_routes {
    uint32_t shard_count;
    uint8_t lanes[ROW_BUCKETS]; /* of each bucket; small, since each id of a request looks here */
    uint16_t shards[ROW_BUCKETS];
};

/* Copies the parts of @map that it needs. */
MUST_CHECK enum embtier_err row_routes_new(const struct bucket_map *map, uint32_t lane_count,
                                           struct row_routes **ret_routes, struct err_msg *msg);
void row_routes_free(struct row_routes *routes);

static inline uint32_t row_routes_lane(const struct row_routes *routes, uint64_t hash)
{
    return routes->lanes[row_bucket(hash)];
}

static inline uint32_t row_routes_shard(const struct row_routes *routes, uint64_t hash)
{
    return routes->shards[row_bucket(hash)];
}

#endif
