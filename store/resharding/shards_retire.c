/* SPDX-License-Identifier: Apache-2.0 */
/* shards_retire.c: removes shards that have no bucket any more, or got none, unless a job that goes
 * on needs them. */
#include <stdlib.h>

#include "base/log/log.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/resharding/reshard_record.h"
#include "store/store_impl.h"

static void log_failure(const struct err_msg *why)
{
    log_warn("shards without buckets cannot be removed; a later start tries again", "why=%s",
             LOG_QUOTED(why->text));
}

/* Takes the shards out of the map. Their folders go only afterwards. */
static enum embtier_err take_out(struct store *store, struct err_msg *msg)
{
    _cleanup_(bucket_map_freep) struct bucket_map *map = bucket_map_copy(store->map);
    uint64_t generation = store->map->generation;
    bool is_unknown, is_new = false;
    enum embtier_err err;

    if (!map)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t s = 0; s < map->shard_count; s++) {
        if (!bucket_map_has(map, s) || map->bucket_counts[s] > 0)
            continue;
        map->places[s] = BUCKET_MAP_GONE;
        map->strays[s] = false;
        is_new = true;
    }
    if (!is_new)
        return EMBTIER_OK;
    err = bucket_map_change(store->identity, store->map, map, &generation, &is_unknown, msg);
    if (err != EMBTIER_OK) {
        store->map->generation = generation; /* it may be on disk, and is not given out again */
        return err;
    }
    bucket_map_free(store->map);
    store->map = TAKE(map);
    return EMBTIER_OK;
}

/* A start that was cut short may have left some. */
static enum embtier_err remove_folders(const struct store *store, struct err_msg *msg)
{
    for (uint32_t d = 0; d < store_identity_directory_count(store->identity); d++) {
        const char *const directory = store_identity_directory(store->identity, d);

        if (!store_identity_has(store->identity, d))
            continue;
        for (uint32_t s = 0; s < store->map->shard_count; s++) {
            _cleanup_(freep) char *folder = NULL;
            bool is_there = false;

            if (bucket_map_has(store->map, s))
                continue;
            folder = store_shard_folder_in(directory, s);
            if (!folder)
                return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
            TRY(path_is_there(folder, &is_there, msg));
            if (!is_there)
                continue;
            TRY(folder_remove(folder, msg));
            TRY(directory_sync(directory, msg));
            log_info("a shard without buckets has been removed", "folder=%s", LOG_QUOTED(folder));
        }
    }
    return EMBTIER_OK;
}

void store_retire_shards(struct store *store)
{
    struct reshard_record record = { 0 };
    struct err_msg why = { { 0 } };
    enum embtier_err err;

    if (store_identity_is_making(store->identity) || store->map->format == BUCKET_MAP_FORMAT_FIXED)
        return;
    err = reshard_record_read(store_first_directory(store), &record, &why);
    if (err == EMBTIER_OK && record.shards > 0)
        return;
    if (err == EMBTIER_OK)
        err = take_out(store, &why);
    if (err == EMBTIER_OK)
        err = remove_folders(store, &why);
    if (err != EMBTIER_OK)
        log_failure(&why);
}
