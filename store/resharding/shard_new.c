/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/shard_new.h"

#include <stdlib.h>
#include <string.h>

#include "base/log/log.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/store_impl.h"

/* Gives the databases the values that others were tuned to. */
static enum embtier_err tune(struct shard_new *shard, struct err_msg *msg)
{
    struct store *const store = shard->store;
    enum embtier_err err = EMBTIER_OK;

    pthread_mutex_lock(&store->tuned.lock);
    for (uint32_t kind = 0; kind < DATABASE_KINDS && err == EMBTIER_OK; kind++)
        err = store_tune_new(store, shard->databases[kind], msg);
    pthread_mutex_unlock(&store->tuned.lock);
    return err;
}

_Static_assert(ARRAY_LEN(((struct shard_new *)NULL)->databases) == DATABASE_KINDS, "it has all");

enum embtier_err shard_new_check(const struct bucket_map *map, uint32_t count, struct err_msg *msg)
{
    if (bucket_map_present(map) + count <= CONFIG_SHARDS_MAX &&
        map->shard_count + count <= BUCKET_MAP_SHARDS_MAX)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_TOO_LARGE,
                   "the store cannot have %u more shard%s: it has %u, and has had %u; allowed: %d "
                   "at a time, and %d in all",
                   count, PLURAL(count), bucket_map_present(map), map->shard_count,
                   CONFIG_SHARDS_MAX, BUCKET_MAP_SHARDS_MAX);
}

enum embtier_err shard_new_make(struct shard_new *shard, struct bucket_map *map, uint32_t place,
                                struct err_msg *msg)
{
    struct store *const store = shard->store;
    const char *const directory = store_identity_directory(store->identity, place);

    TRY(shard_new_check(map, 1, msg));
    shard->directory = directory;
    shard->place = place;
    shard->number = map->shard_count++;
    map->places[shard->number] = (uint8_t)place;
    map->strays[shard->number] = false;
    shard->folder = store_shard_folder_in(directory, shard->number);
    if (!shard->folder)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    /* A job that was cut short may have left one; no map has this number. */
    TRY(folder_remove(shard->folder, msg));
    TRY(store_open_shard(store, shard->number, place, true, shard->databases, msg));
    return tune(shard, msg);
}

/* Others may have been tuned since it was made, and the map on disk has the shard already. */
static void tune_again(struct shard_new *shard)
{
    struct err_msg why = { { 0 } };

    for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++)
        if (store_tune_new(shard->store, shard->databases[kind], &why) != EMBTIER_OK)
            log_warn("a new shard has not the values of all knobs: set them again", "why=%s",
                     LOG_QUOTED(why.text));
}

void shard_new_give(struct shard_new *shard)
{
    struct store *const store = shard->store;

    store->place_of[shard->number] = (uint8_t)shard->place;
    pthread_mutex_lock(&store->tuned.lock);
    tune_again(shard);
    for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++) {
        compaction_scheduler_add(store->scheduler, shard->databases[kind],
                                 store->drives[shard->place]);
        atomic_store(&store->databases[shard->number * DATABASE_KINDS + kind],
                     TAKE(shard->databases[kind]));
    }
    atomic_store_explicit(&store->shard_count, shard->number + 1, memory_order_release);
    pthread_mutex_unlock(&store->tuned.lock);
    for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++)
        store_pause_new(store, store_database_of(store, shard->number, kind == DATABASE_LOGGED));
    shard->is_given = true;
}

void shard_new_clear(struct shard_new *shard)
{
    const bool is_given = shard->is_given;

    for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++)
        database_free(TAKE(shard->databases[kind]));
    if (shard->folder && !is_given && !shard->may_be_in_map &&
        folder_remove(shard->folder, NULL) == EMBTIER_OK)
        (void)!directory_sync(shard->directory, NULL);
    free(shard->folder);
}
