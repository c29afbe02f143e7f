/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/reshard_plan.h"

#include <assert.h>
#include <string.h>

uint32_t reshard_plan_keep(const struct bucket_map *map, uint32_t wanted, bool *kept)
{
    uint32_t counts[CONFIG_DIRECTORIES_MAX] = { 0 };
    uint32_t count = 0;

    memset(kept, 0, BUCKET_MAP_SHARDS_MAX * sizeof(*kept));
    for (uint32_t s = 0; s < map->shard_count; s++) {
        kept[s] = bucket_map_has(map, s);
        count += kept[s];
        if (kept[s])
            counts[map->places[s]]++;
    }
    for (; count > wanted; count--) {
        uint32_t fullest = 0, shard = map->shard_count - 1;

        for (uint32_t d = 1; d < CONFIG_DIRECTORIES_MAX; d++)
            if (counts[d] > counts[fullest])
                fullest = d;
        while (!kept[shard] || map->places[shard] != fullest)
            shard--;
        kept[shard] = false;
        counts[fullest]--;
    }
    return count;
}

uint32_t reshard_plan_place(const struct bucket_map *map, const bool *takes)
{
    uint32_t counts[CONFIG_DIRECTORIES_MAX] = { 0 };
    uint32_t emptiest = 0;

    for (uint32_t s = 0; s < map->shard_count; s++)
        if (bucket_map_has(map, s))
            counts[map->places[s]]++;
    while (emptiest < CONFIG_DIRECTORIES_MAX - 1 && !takes[emptiest])
        emptiest++;
    for (uint32_t d = emptiest + 1; d < CONFIG_DIRECTORIES_MAX; d++)
        if (takes[d] && counts[d] < counts[emptiest])
            emptiest = d;
    return emptiest;
}

/* Sets the number of buckets that each kept shard shall have. Shards that have more than the least
 * share keep one more, as long as there are such. */
static void set_quotas(const struct bucket_map *map, const bool *kept, uint16_t *ret_quotas)
{
    uint32_t count = 0, more;

    for (uint32_t s = 0; s < map->shard_count; s++)
        count += kept[s];
    assert(count > 0);
    more = ROW_BUCKETS % count;
    for (uint32_t s = 0; s < map->shard_count; s++) {
        ret_quotas[s] = (uint16_t)(kept[s] ? ROW_BUCKETS / count : 0);
        if (kept[s] && more > 0 && map->bucket_counts[s] > ret_quotas[s]) {
            ret_quotas[s]++;
            more--;
        }
    }
    for (uint32_t s = 0; s < map->shard_count && more > 0; s++)
        if (kept[s] && ret_quotas[s] == ROW_BUCKETS / count) {
            ret_quotas[s]++;
            more--;
        }
}

void reshard_plan_balance(const struct bucket_map *map, const bool *kept,
                          struct bucket_map *ret_after)
{
    uint16_t quotas[BUCKET_MAP_SHARDS_MAX] = { 0 };
    uint32_t taker = 0;

    *ret_after = *map;
    set_quotas(map, kept, quotas);
    for (uint32_t bucket = ROW_BUCKETS; bucket-- > 0;) {
        const uint32_t shard = ret_after->shards[bucket];

        if (ret_after->bucket_counts[shard] <= quotas[shard])
            continue;
        while (ret_after->bucket_counts[taker] >= quotas[taker])
            taker++;
        ret_after->shards[bucket] = (uint16_t)taker;
        ret_after->bucket_counts[shard]--;
        ret_after->bucket_counts[taker]++;
    }
}

uint32_t reshard_plan_next(const struct bucket_map *map, const struct bucket_map *goal,
                           struct bucket_map *ret_after)
{
    uint32_t source = RESHARD_PLAN_DONE;

    *ret_after = *map;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++) {
        const uint32_t shard = map->shards[bucket];

        if (goal->shards[bucket] == shard)
            continue;
        if (source == RESHARD_PLAN_DONE)
            source = shard;
        if (source == shard)
            ret_after->shards[bucket] = goal->shards[bucket];
    }
    bucket_map_count(ret_after);
    return source;
}
