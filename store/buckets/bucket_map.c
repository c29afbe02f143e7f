/* SPDX-License-Identifier: Apache-2.0 */
#include "store/buckets/bucket_map.h"

#include <stdlib.h>
#include <string.h>

void bucket_map_free(struct bucket_map *map)
{
    free(map);
}

void bucket_map_balance(struct bucket_map *map, uint32_t shard_count)
{
    memset(map, 0, sizeof(*map));
    map->generation = 1;
    map->format = BUCKET_MAP_FORMAT_FIXED;
    map->shard_count = shard_count;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        map->shards[bucket] = (uint16_t)(bucket % shard_count);
    bucket_map_count(map);
}

void bucket_map_place(struct bucket_map *map, uint32_t shards_per_directory)
{
    for (uint32_t shard = 0; shard < map->shard_count; shard++)
        map->places[shard] = (uint8_t)(shard / shards_per_directory);
}

void bucket_map_count(struct bucket_map *map)
{
    memset(map->bucket_counts, 0, sizeof(map->bucket_counts));
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        map->bucket_counts[map->shards[bucket]]++;
}

struct bucket_map *bucket_map_copy(const struct bucket_map *map)
{
    struct bucket_map *const copy = malloc(sizeof(*copy));

    if (copy)
        *copy = *map;
    return copy;
}

uint32_t bucket_map_present(const struct bucket_map *map)
{
    uint32_t count = 0;

    for (uint32_t shard = 0; shard < map->shard_count; shard++)
        count += bucket_map_has(map, shard);
    return count;
}
