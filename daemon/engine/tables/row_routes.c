/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/tables/row_routes.h"

#include <stdlib.h>
#include <string.h>

#include "store/buckets/bucket_map.h"

enum embtier_err row_routes_new(const struct bucket_map *map, uint32_t lane_count,
                                struct row_routes **ret_routes, struct err_msg *msg)
{
    struct row_routes *const routes = malloc(sizeof(*routes));

    if (!routes)
        return err_set(msg, EMBTIER_NO_MEMORY, "the map of buckets: out of memory");
    routes->shard_count = map->shard_count;
    memcpy(routes->shards, map->shards, sizeof(routes->shards));
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        routes->lanes[bucket] = (uint8_t)(map->shards[bucket] % lane_count);
    *ret_routes = routes;
    return EMBTIER_OK;
}

void row_routes_free(struct row_routes *routes)
{
    free(routes);
}
