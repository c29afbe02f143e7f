/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/map_back.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_impl.h"

/* True if the checkpoint's databases of @shard may have rows of buckets that lie elsewhere now. A
 * record without a map is older than all moves; what its shards had is not known. */
static bool brings_strays(const struct bucket_map *map, const struct checkpoint_record *record,
                          uint32_t shard)
{
    if (!checkpoint_record_has(record, shard))
        return false;
    if (!record->map || record->map->strays[shard])
        return true;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        if (record->map->shards[bucket] == shard && map->shards[bucket] != shard)
            return true;
    return false;
}

enum embtier_err map_back_after_crash(struct store *store, const struct checkpoint_record *record,
                                      struct err_msg *msg)
{
    struct bucket_map *const map = store->map;
    bool is_new = false;

    if (!record || map->format == BUCKET_MAP_FORMAT_FIXED)
        return EMBTIER_OK;
    if (record->info.id < map->checkpoint_from)
        return err_set(msg, EMBTIER_MISMATCH,
                       "checkpoint %" PRIu64 ", the newest, was made before buckets of rows moved "
                       "to other shards; checkpoint %" PRIu64 " or a later one is needed, but is "
                       "missing",
                       record->info.id, map->checkpoint_from);
    for (uint32_t s = 0; s < map->shard_count; s++) {
        if (map->strays[s] || !bucket_map_has(map, s) || !brings_strays(map, record, s))
            continue;
        map->strays[s] = is_new = true;
    }
    if (!is_new)
        return EMBTIER_OK;
    map->generation++;
    return bucket_map_write_all(store->identity, map, msg);
}

/* Returns the map of @record; if it has none, that of the store when it was made. */
static struct bucket_map *map_of(const struct store *store, const struct checkpoint_record *record)
{
    struct bucket_map *const map =
        record->map ? bucket_map_copy(record->map) : malloc(sizeof(*map));

    if (map && !record->map) {
        bucket_map_balance(map, record->shard_count);
        bucket_map_place(map, store->shards_per_directory);
    }
    return map;
}

enum embtier_err map_back_begin(struct store *store, const struct checkpoint_record *record,
                                struct err_msg *msg)
{
    const struct bucket_map *const now = store->map;
    struct bucket_map *map;

    if (now->format == BUCKET_MAP_FORMAT_FIXED && !record->map)
        return EMBTIER_OK;
    map = map_of(store, record);
    if (!map)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t s = 0; s < now->shard_count; s++)
        if (!bucket_map_has(map, s))
            map->places[s] = now->places[s];
    map->format = BUCKET_MAP_FORMAT_VERSION;
    map->shard_count = MAX(map->shard_count, now->shard_count);
    map->generation = now->generation + 1;
    bucket_map_free(store->map);
    store->map = map;
    /* Newer checkpoints have other maps; the first start makes one of the restored state. */
    return checkpoint_id_after(&store->shelf, &map->checkpoint_from, msg);
}

enum embtier_err map_back_write(struct store *store, struct err_msg *msg)
{
    if (store->map->format == BUCKET_MAP_FORMAT_FIXED)
        return EMBTIER_OK;
    return bucket_map_write_all(store->identity, store->map, msg);
}
